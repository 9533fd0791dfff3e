// Numbers, sizes and times as an operator reads them.

const BINARY = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
const DECIMAL = ["", "k", "M", "G", "T"];

function scaled(value: number, step: number, units: string[]): string {
  let v = Math.abs(value);
  let unit = 0;
  while (v >= step * 0.9995 && unit < units.length - 1) {
    v /= step;
    unit += 1;
  }
  const digits = unit === 0 && Number.isInteger(v) ? 0 : v < 9.995 ? 2 : v < 99.95 ? 1 : 0;
  const text = v.toFixed(digits);
  return `${value < 0 ? "−" : ""}${text}${units[unit] ? " " + units[unit] : ""}`;
}

export const bytes = (v: number): string => scaled(v, 1024, BINARY);
export const rate = (v: number): string => `${scaled(v, 1024, BINARY)}/s`;
export const count = (v: number): string => scaled(v, 1000, DECIMAL);
export const whole = (v: number): string => Math.round(v).toLocaleString("en-GB").replaceAll(",", "\u202f");

export function percent(part: number, digits = 1): string {
  if (!Number.isFinite(part)) return "–";
  const p = part * 100;
  if (p > 0 && p < 0.1) return "< 0.1 %";
  // What is not all of it is not called 100 %.
  if (part < 1 && p.toFixed(digits) === (100).toFixed(digits)) return `> 99.9 %`;
  return `${p.toFixed(p >= 99.95 || p === 0 ? 0 : digits)} %`;
}

export function span(seconds: number): string {
  const s = Math.max(0, Math.round(seconds));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  if (s < 86_400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86_400)} d ${Math.floor((s % 86_400) / 3600)} h`;
}

const two = (n: number): string => String(n).padStart(2, "0");

export function clock(at: number): string {
  const d = new Date(at * 1000);
  return `${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}`;
}

export function day(at: number): string {
  const d = new Date(at * 1000);
  return `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())}`;
}

export const moment = (at: number): string => `${day(at)} ${clock(at)}`;

/** Ceph's stamps: `2026-11-28T12:00:00.123456+0000`, whose offset lacks the colon that a browser asks for. */
export function stamp(text: string): number {
  const iso = text.replace(/([+-]\d\d)(\d\d)$/, "$1:$2").replace(/(\.\d{3})\d+/, "$1");
  return Date.parse(iso) / 1000;
}

export const plural = (n: number, one: string, many = `${one}s`): string => `${whole(n)} ${n === 1 ? one : many}`;

/** Characters that cannot be seen or that turn the text around them: controls, joiners, direction marks. */
const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;

/** A text of the cluster, in which nothing hides: `rev\u202egnp.exe` is not shown as `revexe.png`. */
export const plain = (text: string): string =>
  text.replace(UNSEEN, (c) => `‹U+${c.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}›`);

// The live figures: one stream of server-sent events for the whole page.
//
// A lost stream is opened again after a pause that grows. The page knows how old its figures are by its own
// clock, so that a wrong clock on either side does not make old figures look new.

import { useEffect, useState } from "preact/hooks";
import { request } from "./api";
import type { Figures, Point } from "./types";

/** Points that are kept: an hour at one in two seconds. */
const MOST_POINTS = 1800;
const FIRST_PAUSE_MS = 1_000;
const LONGEST_PAUSE_MS = 15_000;
/** A stream that says nothing for so long is taken for dead: the server speaks every two seconds. */
const SILENCE_MS = 10_000;

export interface Live {
  figures: Figures | null;
  points: Point[];
  state: "opening" | "open" | "lost";
  /** When (this clock, ms) the figures came. */
  heard: number | null;
  /** When (this clock, ms) the next try is due, while the stream is lost. */
  retry: number | null;
}

let live: Live = { figures: null, points: [], state: "opening", heard: null, retry: null };
const listeners = new Set<() => void>();

function change(part: Partial<Live>): void {
  live = { ...live, ...part };
  listeners.forEach((tell) => tell());
}

export function useLive(): Live {
  const [, setTurn] = useState(0);
  useEffect(() => {
    const tell = (): void => setTurn((turn) => turn + 1);
    listeners.add(tell);
    return () => void listeners.delete(tell);
  }, []);
  return live;
}

let source: EventSource | null = null;
let timer: ReturnType<typeof setTimeout> | undefined;
let watch: ReturnType<typeof setInterval> | undefined;
let pause = FIRST_PAUSE_MS;
/** When the stream last said anything, or was opened. */
let spoke = 0;

export function start(): void {
  stop();
  live = { figures: null, points: [], state: "opening", heard: null, retry: null };
  pause = FIRST_PAUSE_MS;
  open();
  watch = setInterval(() => {
    if (source && Date.now() - spoke > SILENCE_MS) lost();
  }, 1_000);
}

export function stop(): void {
  clearTimeout(timer);
  clearInterval(watch);
  source?.close();
  source = null;
}

/** Tries at once; for whoever does not want to wait. */
export function retry(): void {
  clearTimeout(timer);
  pause = FIRST_PAUSE_MS;
  open();
}

function open(): void {
  source?.close();
  spoke = Date.now();
  source = new EventSource("/api/live");
  source.addEventListener("history", (event) => {
    spoke = Date.now();
    const said = parse<{ points: Point[] }>(event);
    if (said) change({ points: said.points.slice(-MOST_POINTS) });
  });
  source.addEventListener("figures", (event) => {
    spoke = Date.now();
    const figures = parse<Figures>(event);
    if (!figures) return;
    pause = FIRST_PAUSE_MS;
    change({ figures, points: extended(live.points, figures), state: "open", heard: Date.now(), retry: null });
  });
  source.onerror = lost;
}

function lost(): void {
  source?.close();
  source = null;
  clearTimeout(timer);
  // Many pages that lost the same manager do not come back in step.
  const wait = pause * (0.75 + Math.random() / 2);
  pause = Math.min(pause * 2, LONGEST_PAUSE_MS);
  change({ state: "lost", retry: Date.now() + wait });
  timer = setTimeout(open, wait);
  // A stream says nothing of why it ends; this does, when the session is over.
  void request("/api/auth/check", {}).then(
    (said) => {
      if (!(said as { username?: string }).username) window.dispatchEvent(new Event("signed-out"));
    },
    () => undefined,
  );
}

function parse<T>(event: Event): T | null {
  try {
    return JSON.parse((event as MessageEvent<string>).data) as T;
  } catch {
    return null;
  }
}

function extended(points: Point[], f: Figures): Point[] {
  const last = points.at(-1);
  if (!f.client || !f.recovery || (last && last[0] >= f.at)) return points;
  const { reads, writes, read_bytes, write_bytes } = f.client;
  const point: Point = [f.at, reads, writes, read_bytes, write_bytes, f.recovery.bytes, f.recovery.objects];
  return [...points.slice(1 - MOST_POINTS), point];
}

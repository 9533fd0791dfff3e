// The parts that pages are made of. All text comes in as text: nothing here makes markup of it.

import type { ComponentChildren, JSX } from "preact";
import { useEffect, useId, useMemo, useRef, useState } from "preact/hooks";
import { percent, plain, span } from "./format";
import type { Loaded } from "./api";

export type Level = "ok" | "warn" | "err" | "busy" | "off";

/** Shapes differ as well as colours. */
const SHAPES: Record<Level, JSX.Element> = {
  ok: <path d="M3.500 8.500l3 3 6-7" fill="none" stroke="currentColor" stroke-width="2" stroke-linecap="round" stroke-linejoin="round" />,
  warn: <path d="M8 2l6.500 11.500h-13zM8 6.500v3M8 11.300v.4" fill="none" stroke="currentColor" stroke-width="1.700" stroke-linecap="round" stroke-linejoin="round" />,
  err: <path d="M4 4l8 8M12 4l-8 8" fill="none" stroke="currentColor" stroke-width="2.200" stroke-linecap="round" />,
  busy: <path d="M8 2.500a5.500 5.500 0 1 1-5.300 4M8 4.800V8l2.300 1.500" fill="none" stroke="currentColor" stroke-width="1.700" stroke-linecap="round" />,
  off: <path d="M4 8h8" fill="none" stroke="currentColor" stroke-width="2" stroke-linecap="round" />,
};

export function Icon({ level }: { level: Level }) {
  return (
    <svg class={`icon ${level}`} viewBox="0 0 16 16" width="14" height="14" aria-hidden="true">
      {SHAPES[level]}
    </svg>
  );
}

export function Tag({ level, children }: { level: Level; children: ComponentChildren }) {
  return (
    <span class={`tag ${level}`}>
      <Icon level={level} />
      {children}
    </span>
  );
}

/** What somebody of the cluster wrote, whichever way it is read. */
export function Said({ text }: { text: string }) {
  return <bdi>{plain(text)}</bdi>;
}

/** `bare`: the page's own heading says already what it is. */
export function Card(props: { title: string; aside?: ComponentChildren; wide?: boolean; bare?: boolean; children: ComponentChildren }) {
  const id = useId();
  return (
    <section class={`card ${props.wide ? "wide" : ""}`} aria-labelledby={id}>
      <header class={props.bare ? "hidden" : ""}>
        <h2 id={id}>{props.title}</h2>
        {props.aside && <div class="aside">{props.aside}</div>}
      </header>
      {props.children}
    </section>
  );
}

/** A part of a whole; colours change where the marks are passed. */
export function Meter(props: { part: number; label: string; warn?: number; err?: number; wide?: boolean }) {
  const part = Number.isFinite(props.part) ? Math.min(Math.max(props.part, 0), 1) : 0;
  const level = props.err !== undefined && part >= props.err ? "err" : props.warn !== undefined && part >= props.warn ? "warn" : "ok";
  return (
    <span class={`meter ${level} ${props.wide ? "wide" : ""}`} role="img" aria-label={`${props.label}: ${percent(part)}`}>
      <span style={{ width: `${part * 100}%` }} />
      {props.wide && [props.warn, props.err].map((at) => at !== undefined && <i key={at} style={{ left: `${at * 100}%` }} />)}
    </span>
  );
}

export function Progress(props: { part: number; label: string }) {
  const value = Math.round(Math.min(Math.max(props.part, 0), 1) * 1000) / 10;
  return (
    <span class="progress" role="progressbar" aria-label={props.label} aria-valuenow={value} aria-valuemin={0} aria-valuemax={100}>
      <span style={{ width: `${value}%` }} />
    </span>
  );
}

/** Text with commands in backquotes, which are shown as code. */
export function Prose({ text }: { text: string }) {
  return (
    <>
      {text.split("`").map((part, i) => (i % 2 ? <code key={i}>{part}</code> : part))}
    </>
  );
}

export interface Column<T> {
  key: string;
  title: string;
  /** What rows are sorted by. */
  by: (row: T) => string | number;
  show?: (row: T) => ComponentChildren;
  right?: boolean;
  /** Left out where there is little room. */
  minor?: boolean;
  /** Left out unless there is much room. */
  extra?: boolean;
}

/** Rows that are drawn at once; more on demand. */
const ROWS = 200;

export function Table<T>(props: {
  caption: string;
  columns: Column<T>[];
  rows: T[];
  id: (row: T) => string;
  search?: (row: T) => string;
  sort?: string;
  descending?: boolean;
  empty: string;
  tools?: ComponentChildren;
}) {
  const [sort, setSort] = useState({ key: props.sort ?? props.columns[0]?.key ?? "", down: props.descending ?? false });
  const [wanted, setWanted] = useState("");
  const [most, setMost] = useState(ROWS);
  const search = props.search;
  const rows = useMemo(() => {
    const word = wanted.trim().toLowerCase();
    const found = word && search ? props.rows.filter((row) => search(row).toLowerCase().includes(word)) : [...props.rows];
    const by = props.columns.find((c) => c.key === sort.key)?.by;
    if (by) found.sort((a, b) => compare(by(a), by(b)) * (sort.down ? -1 : 1));
    return found;
  }, [props.rows, props.columns, wanted, sort]);
  return (
    <>
      {(search || props.tools) && (
        <div class="tools">
          {search && (
            <input type="search" placeholder="Find" aria-label={`Find in ${props.caption}`} value={wanted} onInput={(e) => setWanted(e.currentTarget.value)} />
          )}
          {props.tools}
          <span class="count" role="status">
            {rows.length === props.rows.length ? `${rows.length} in all` : `${rows.length} of ${props.rows.length}`}
          </span>
        </div>
      )}
      <Scroll label={props.caption}>
        <table>
          <caption class="hidden">{props.caption}</caption>
          <thead>
            <tr>
              {props.columns.map((c) => (
                <th key={c.key} scope="col" class={cell(c)} aria-sort={sort.key === c.key ? (sort.down ? "descending" : "ascending") : undefined}>
                  <button type="button" onClick={() => setSort({ key: c.key, down: sort.key === c.key ? !sort.down : false })}>
                    {c.title}
                    <span class="arrow" aria-hidden="true">
                      {sort.key === c.key ? (sort.down ? "↓" : "↑") : ""}
                    </span>
                  </button>
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {rows.slice(0, most).map((row) => (
              <tr key={props.id(row)}>
                {props.columns.map((c, i) => {
                  const shown = c.show ? c.show(row) : c.by(row);
                  return i === 0 ? (
                    <th key={c.key} scope="row" class={`${cell(c)} ${typeof shown === "string" && shown.length > 34 ? "long" : ""}`}>
                      {words(shown)}
                    </th>
                  ) : (
                    <td key={c.key} class={cell(c)}>
                      {words(shown)}
                    </td>
                  );
                })}
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
      {rows.length === 0 && (
        <p class="empty">
          <Prose text={props.rows.length === 0 ? props.empty : "Nothing is found."} />
        </p>
      )}
      {rows.length > most && (
        <button type="button" class="more" onClick={() => setMost(most + ROWS * 5)}>
          Show more ({rows.length - most} are left)
        </button>
      )}
    </>
  );
}

const words = (shown: ComponentChildren): ComponentChildren => (typeof shown === "string" ? <Said text={shown} /> : shown);

const cell = (c: { right?: boolean; minor?: boolean; extra?: boolean }): string =>
  `${c.right ? "right" : ""} ${c.minor ? "minor" : ""} ${c.extra ? "extra" : ""}`;

function compare(a: string | number, b: string | number): number {
  if (typeof a === "number" && typeof b === "number") return a - b;
  return String(a).localeCompare(String(b), "en", { numeric: true });
}

/** A part of the page that may be wider than its place. The keyboard reaches it to scroll, only then. */
export function Scroll({ label, children }: { label: string; children: ComponentChildren }) {
  const ref = useRef<HTMLDivElement>(null);
  const [wide, setWide] = useState(false);
  useEffect(() => {
    const box = ref.current;
    if (!box) return;
    const look = (): void => setWide(box.scrollWidth > box.clientWidth + 1);
    const watch = new ResizeObserver(look);
    watch.observe(box);
    if (box.firstElementChild) watch.observe(box.firstElementChild);
    return () => watch.disconnect();
  }, []);
  const reach = wide ? { tabIndex: 0, role: "region", "aria-label": `${label}: table, may be scrolled` } : {};
  return (
    <div ref={ref} class="scroll" {...(reach as object)}>
      {children}
    </div>
  );
}

/** Data once they are there; before that, or where they cannot be had, what is the matter. */
export function Shown<T>({ loaded, what, children }: { loaded: Loaded<T>; what: string; children: (data: T) => ComponentChildren }) {
  const now = useNow(1_000);
  const { data, error, at } = loaded;
  return (
    <>
      {error && (
        <div class="notice err" role="alert">
          <Icon level="err" />
          <span>
            {what} cannot be loaded: {error}
            {at !== null && data !== null && ` What is shown is ${span(now / 1000 - at)} old.`}
          </span>
          <button type="button" onClick={loaded.again}>
            Try again
          </button>
        </div>
      )}
      {data !== null ? children(data) : !error && <p class="empty" role="status">Loading…</p>}
    </>
  );
}

/** This clock, in ms, looked at again every so often. */
export function useNow(every_ms: number): number {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), every_ms);
    return () => clearInterval(timer);
  }, [every_ms]);
  return now;
}

export function Choice<V extends string>(props: { label: string; value: V; of: { value: V; text: string }[]; set: (value: V) => void }) {
  const name = useId();
  return (
    <fieldset class="choice">
      <legend class="hidden">{props.label}</legend>
      {props.of.map(({ value, text }) => (
        <label key={value} class={value === props.value ? "on" : ""}>
          <input type="radio" name={name} value={value} checked={value === props.value} onChange={() => props.set(value)} />
          {text}
        </label>
      ))}
    </fieldset>
  );
}

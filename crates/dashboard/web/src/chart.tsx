// Time series on a canvas, in the colours of the page; in words for whoever does not see it.

import { useEffect, useMemo, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { clock } from "./format";
import { useTheme } from "./theme";
import type { Point } from "./types";

export interface Series {
  name: string;
  /** Index into a point. */
  at: number;
  colour: string;
}

interface Props {
  title: string;
  points: Point[];
  series: Series[];
  show: (value: number) => string;
  /** What the axis is divided by: 1024 for bytes. */
  base: 1000 | 1024;
  /** Seconds that are shown. */
  window_s: number;
}

/** Above this step between points nothing is known between them. */
const GAP_S = 15;

const HEIGHT = 132;

export function Chart(props: Props) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const theme = useTheme();
  const { points, series, window_s, show } = props;
  const last = points.at(-1);
  const data = useMemo(() => columns(points, series, window_s), [points, series, window_s]);
  const latest = useRef(data);
  latest.current = data;

  useEffect(() => {
    const parent = box.current;
    if (!parent) return;
    const made = new uPlot(options(props, parent.clientWidth), latest.current, parent);
    plot.current = made;
    const watch = new ResizeObserver(() => made.setSize({ width: parent.clientWidth, height: HEIGHT }));
    watch.observe(parent);
    return () => {
      watch.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [theme.dark]);

  useEffect(() => plot.current?.setData(data), [data]);

  const now = series.map((s) => ({ ...s, value: last ? last[s.at] ?? 0 : null }));
  const words = now.map((s) => `${s.name} ${s.value === null ? "not known" : show(s.value)}`).join(", ");
  return (
    <figure class="chart">
      <div class="plot" ref={box} role="img" aria-label={`${props.title} over time. Now: ${words}.`} />
      <figcaption>
        {now.map((s) => (
          <span key={s.name} class="legend">
            <i class={`dot ${s.colour}`} />
            {s.name} <b>{s.value === null ? "–" : show(s.value)}</b>
          </span>
        ))}
      </figcaption>
    </figure>
  );
}

/** Points within the window, from the newest back; a hole stays a hole. */
function columns(points: Point[], series: Series[], window_s: number): uPlot.AlignedData {
  const end = points.at(-1)?.[0] ?? Date.now() / 1000;
  const out: (number | null)[][] = [[], ...series.map(() => [])];
  let before = 0;
  for (const point of points) {
    if (point[0] < end - window_s) continue;
    if (before && point[0] - before > GAP_S) {
      out[0]?.push(before + 1);
      series.forEach((_, i) => out[i + 1]?.push(null));
    }
    before = point[0];
    out[0]?.push(point[0]);
    series.forEach((s, i) => out[i + 1]?.push(point[s.at] ?? null));
  }
  return out as uPlot.AlignedData;
}

function options({ series, show, base, window_s }: Props, width: number): uPlot.Options {
  const style = getComputedStyle(document.documentElement);
  const colour = (name: string): string => style.getPropertyValue(`--${name}`).trim();
  const font = `11px ${style.getPropertyValue("--font")}`;
  const grid = { stroke: colour("line"), width: 1 };
  const axis = { stroke: colour("dim"), font, ticks: { show: false }, grid };
  return {
    width,
    height: HEIGHT,
    legend: { show: false },
    padding: [8, 16, 0, 0],
    cursor: { sync: { key: "time" }, drag: { x: false, y: false }, points: { size: 6 } },
    plugins: [hint(series, show)],
    scales: {
      x: { time: true, range: (_, min, max) => [Math.max(min ?? 0, (max ?? 0) - window_s), max ?? 1] },
      y: { range: (_, __, max) => [0, Math.max(max ?? 0, 1) * 1.08] },
    },
    axes: [
      { ...axis, size: 22, space: 46, incrs: [60, 120, 300, 600, 900, 1800], values: (_, at) => at.map((s) => clock(s).slice(0, 5)) },
      { ...axis, size: 64, space: 28, incrs: steps(base), values: (_, values) => values.map((v) => show(v).replace(/\.0+(?=\D|$)/, "")) },
    ],
    series: [
      {},
      ...series.map((s) => ({
        label: s.name,
        stroke: colour(s.colour),
        fill: colour(`${s.colour}-fill`),
        width: 1.5,
        points: { show: false },
      })),
    ],
  };
}

/** Divisions that are round in the unit that is shown. */
function steps(base: number): number[] {
  const parts = base === 1000 ? [1, 2, 5, 10, 20, 50, 100, 200, 500] : [1, 2, 4, 8, 16, 32, 64, 128, 256, 512];
  return [0, 1, 2, 3, 4].flatMap((power) => parts.map((part) => part * base ** power));
}

/** A line under the pointer that says what the values were. */
function hint(series: Series[], show: (value: number) => string): uPlot.Plugin {
  const box = document.createElement("div");
  box.className = "hint";
  box.hidden = true;
  return {
    hooks: {
      init: (u) => void u.over.appendChild(box),
      setCursor: (u) => {
        const { idx, left } = u.cursor;
        const at = idx === null || idx === undefined ? undefined : u.data[0][idx];
        box.hidden = at === undefined || left === undefined || left < 0;
        if (box.hidden || at === undefined || left === undefined) return;
        const values = series.map((s, i) => {
          const value = u.data[i + 1]?.[idx as number];
          return `${s.name} ${value === null || value === undefined ? "–" : show(value)}`;
        });
        box.textContent = `${clock(at)}  ${values.join("  ")}`;
        box.classList.toggle("left", left > u.over.clientWidth / 2);
      },
    },
  };
}

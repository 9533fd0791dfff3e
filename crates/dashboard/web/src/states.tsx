// States of PGs: how bad each is, and all of them as one bar.

import { percent, whole } from "./format";

export type Grade = "clean" | "work" | "degraded" | "down" | "unknown";

/** The worst that a state says. */
export function grade(state: string): Grade {
  const has = (...words: string[]): boolean => words.some((word) => state.split("+").includes(word));
  if (state === "" || has("unknown")) return "unknown";
  if (!has("active") || has("down", "incomplete", "inconsistent", "stale", "recovery_unfound", "backfill_unfound", "snaptrim_error", "failed_repair")) return "down";
  if (has("degraded", "undersized", "recovery_toofull", "backfill_toofull")) return "degraded";
  if (has("clean") && !has("remapped")) return "clean";
  return "work";
}

export const GRADES: Record<Grade, string> = {
  clean: "clean",
  work: "moving, copies are complete",
  degraded: "copies are missing",
  down: "not served, or damaged",
  unknown: "not reported",
};

const ORDER: Grade[] = ["down", "unknown", "degraded", "work", "clean"];

export function StateBar({ states, total }: { states: Record<string, number>; total: number }) {
  const rows = Object.entries(states)
    .map(([name, pgs]) => ({ name, pgs, grade: grade(name) }))
    .sort((a, b) => ORDER.indexOf(a.grade) - ORDER.indexOf(b.grade) || b.pgs - a.pgs);
  const sums = ORDER.map((g) => ({ g, pgs: rows.reduce((n, row) => n + (row.grade === g ? row.pgs : 0), 0) })).filter((s) => s.pgs > 0);
  const words = sums.map((s) => `${s.pgs} ${GRADES[s.g]}`).join(", ");
  if (total === 0) return <p class="empty">There are no PGs: no pool has been made.</p>;
  return (
    <>
      <div class="states" role="img" aria-label={`PGs: ${words}`}>
        {sums.map((s) => (
          <span key={s.g} class={`g-${s.g}`} style={{ flexGrow: s.pgs }} />
        ))}
      </div>
      <ul class="state-list">
        {rows.slice(0, 12).map((row) => (
          <li key={row.name}>
            <i class={`dot g-${row.grade}`} />
            <span>{row.name}</span>
            <b>{whole(row.pgs)}</b>
            <span class="dim">{percent(row.pgs / total)}</span>
          </li>
        ))}
        {rows.length > 12 && <li>and {rows.length - 12} more states</li>}
      </ul>
    </>
  );
}

// Every PG as a square: coloured by its state, or by how much it holds. The arrow keys walk over them.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { useApi } from "../api";
import { bytes, plain, plural, whole } from "../format";
import { GRADES, grade, type Grade } from "../states";
import type { PgCell, PgMap } from "../types";
import { Card, Choice, Said, Shown, Table, Tag, type Column, type Level } from "../ui";

type By = "state" | "bytes" | "objects";

const LEVELS: Record<Grade, Level> = { clean: "ok", work: "busy", degraded: "warn", down: "err", unknown: "off" };
const SIDE = 12;
const GAP = 2;

interface Flat {
  id: string;
  /** Pool and number in it. */
  order: number;
  pool: string;
  state: string;
  cell: PgCell;
}

const pgid = (pool: number, ps: number): string => `${pool}.${ps.toString(16)}`;

const COLUMNS: Column<Flat>[] = [
  { key: "id", title: "PG", by: (f) => f.order, show: (f) => f.id },
  { key: "pool", title: "Pool", by: (f) => f.pool },
  { key: "state", title: "State", by: (f) => f.state, show: (f) => <Tag level={LEVELS[grade(f.state)]}>{f.state || "unknown"}</Tag> },
  { key: "primary", title: "Primary", by: (f) => f.cell[2], show: (f) => (f.cell[2] < 0 ? "none" : `osd.${f.cell[2]}`) },
  { key: "objects", title: "Objects", by: (f) => f.cell[3], show: (f) => whole(f.cell[3]), right: true },
  { key: "bytes", title: "Data", by: (f) => f.cell[4], show: (f) => bytes(f.cell[4]), right: true },
  { key: "away", title: "Copies not in place", by: (f) => f.cell[5], show: (f) => whole(f.cell[5]), right: true },
];

export function Pgs() {
  const map = useApi<PgMap>("/api/view/pgs", 5);
  const [by, setBy] = useState<By>("state");
  return (
    <Shown loaded={map} what="The map of PGs">
      {(m) => (
        <div class="grid">
          <Card
            title="Map"
            wide
            aside={
              <Choice
                label="What colours show"
                value={by}
                set={setBy}
                of={[
                  { value: "state", text: "state" },
                  { value: "bytes", text: "data" },
                  { value: "objects", text: "objects" },
                ]}
              />
            }
          >
            <Key by={by} />
            {m.pools.length === 0 && <p class="empty">There are no PGs: no pool has been made.</p>}
            {m.pools.map((pool) => (
              <Squares key={pool.id} map={m} pool={pool} by={by} />
            ))}
          </Card>
          <Card title="Not clean" wide>
            <Ailing map={m} />
          </Card>
        </div>
      )}
    </Shown>
  );
}

function Key({ by }: { by: By }) {
  if (by !== "state") {
    return (
      <p class="key">
        little
        {[1, 2, 3, 4, 5].map((n) => (
          <i key={n} class={`dot square h${n}`} />
        ))}
        much, beside the fullest PG of the pool
      </p>
    );
  }
  return (
    <p class="key">
      {(Object.keys(GRADES) as Grade[]).map((g) => (
        <span key={g}>
          <i class={`dot square g-${g}`} /> {GRADES[g]}
        </span>
      ))}
    </p>
  );
}

function Squares({ map, pool, by }: { map: PgMap; pool: PgMap["pools"][number]; by: By }) {
  const [at, setAt] = useState<number | null>(null);
  const [wide, setWide] = useState(64);
  const box = useRef<HTMLDivElement>(null);
  const most = useMemo(() => Math.max(1, ...pool.pgs.map((p) => (by === "objects" ? p[3] : p[4]))), [pool, by]);
  const state = (cell: PgCell): string => map.states[cell[1]] ?? "";
  const colour = (cell: PgCell): string => {
    if (by === "state") return `g-${grade(state(cell))}`;
    const part = (by === "objects" ? cell[3] : cell[4]) / most;
    return `h${Math.min(5, Math.max(1, Math.ceil(part * 5)))}`;
  };
  const grades = useMemo(() => counted(map, pool), [map, pool]);
  const cell = at === null ? undefined : pool.pgs[at];
  const move = (event: KeyboardEvent): void => {
    const steps: Record<string, number> = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: wide, ArrowUp: -wide, Home: -1e9, End: 1e9 };
    const step = steps[event.key];
    if (step === undefined) return;
    event.preventDefault();
    setAt((old) => Math.min(Math.max(old === null ? 0 : old + step, 0), pool.pgs.length - 1));
  };
  useEffect(() => {
    if (!box.current) return;
    const watch = new ResizeObserver(([entry]) => entry && setWide(Math.max(1, Math.floor((entry.contentRect.width + GAP) / (SIDE + GAP)))));
    watch.observe(box.current);
    return () => watch.disconnect();
  }, []);
  const height = Math.ceil(pool.pgs.length / wide) * (SIDE + GAP);
  const over = (event: MouseEvent): void => {
    const { left, top } = (event.currentTarget as Element).getBoundingClientRect();
    const column = Math.floor((event.clientX - left) / (SIDE + GAP));
    const index = Math.floor((event.clientY - top) / (SIDE + GAP)) * wide + column;
    setAt(column < wide && index < pool.pgs.length ? index : null);
  };
  return (
    <div class="pool-map">
      <div class="head">
        <h3>
          <Said text={pool.name} /> <span class="dim">{plural(pool.pgs.length, "PG")}, {grades}</span>
        </h3>
        <p class="said" aria-live="polite">
          {cell && (
            <>
              <b>{pgid(pool.id, cell[0])}</b> {state(cell) || "unknown"}, {cell[2] < 0 ? "no primary" : `primary osd.${cell[2]}`}, {plural(cell[3], "object")}, {bytes(cell[4])}
              {cell[5] > 0 && `, ${whole(cell[5])} copies not in place`}
            </>
          )}
        </p>
      </div>
      <div ref={box} class="squares" role="application" tabIndex={0} aria-label={`PGs of pool ${plain(pool.name)}: ${grades}. Arrow keys go from one to the next.`} onKeyDown={move} onMouseMove={over} onMouseLeave={() => setAt(null)} onBlur={() => setAt(null)}>
        <svg width="100%" height={height} aria-hidden="true">
          {pool.pgs.map((pg, i) => (
            <rect key={pg[0]} class={colour(pg)} x={(i % wide) * (SIDE + GAP)} y={Math.floor(i / wide) * (SIDE + GAP)} width={SIDE} height={SIDE} rx={2} />
          ))}
          {at !== null && <rect class="at" x={(at % wide) * (SIDE + GAP) - 1} y={Math.floor(at / wide) * (SIDE + GAP) - 1} width={SIDE + 2} height={SIDE + 2} rx={3} />}
        </svg>
      </div>
    </div>
  );
}

function counted(map: PgMap, pool: PgMap["pools"][number]): string {
  const sums = new Map<Grade, number>();
  for (const cell of pool.pgs) {
    const g = grade(map.states[cell[1]] ?? "");
    sums.set(g, (sums.get(g) ?? 0) + 1);
  }
  if (sums.get("clean") === pool.pgs.length) return "all clean";
  return [...sums].map(([g, n]) => `${n} ${GRADES[g]}`).join(", ");
}

function Ailing({ map }: { map: PgMap }) {
  const rows = useMemo(
    () =>
      map.pools.flatMap((pool) =>
        pool.pgs
          .map((cell) => ({ id: pgid(pool.id, cell[0]), order: pool.id * 2 ** 32 + cell[0], pool: pool.name, state: map.states[cell[1]] ?? "", cell }))
          .filter((f) => grade(f.state) !== "clean"),
      ),
    [map],
  );
  return <Table caption="PGs that are not clean" columns={COLUMNS} rows={rows} id={(f) => f.id} search={(f) => `${f.id} ${f.pool} ${f.state} osd.${f.cell[2]}`} empty="All PGs are active and clean." />;
}

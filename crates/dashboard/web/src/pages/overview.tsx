// The first page: is the cluster well, how full is it, what do clients get, what does recovery take.

import { useState } from "preact/hooks";
import { advice } from "../advice";
import { Chart, type Series } from "../chart";
import { bytes, count, percent, plural, rate, whole } from "../format";
import { useLive } from "../live";
import { StateBar } from "../states";
import type { Check, Figures, Point } from "../types";
import { Card, Choice, Icon, Meter, Prose, Said, type Level } from "../ui";
import { TaskRow } from "./tasks";

const IOPS: Series[] = [
  { name: "reads", at: 1, colour: "s1" },
  { name: "writes", at: 2, colour: "s2" },
];
const BANDWIDTH: Series[] = [
  { name: "read", at: 3, colour: "s1" },
  { name: "written", at: 4, colour: "s2" },
];
const RECOVERY: Series[] = [{ name: "recovered", at: 5, colour: "s3" }];

const perSecond = (v: number): string => `${count(v)}/s`;

export function Overview() {
  const { figures, points } = useLive();
  if (!figures) return <p class="empty" role="status">Waiting for the first figures…</p>;
  return (
    <div class="grid">
      <Health figures={figures} />
      <Numbers figures={figures} />
      {figures.usage && <Capacity usage={figures.usage} />}
      {figures.client && <Charts points={points} />}
      {figures.pgs && (
        <Card title="Placement groups" aside={<a href="#/pgs">Map</a>}>
          <StateBar states={figures.pgs.states} total={figures.pgs.total} />
        </Card>
      )}
      <Card title="Tasks" aside={<a href="#/tasks">All</a>}>
        {figures.tasks.length === 0 && <p class="empty">Nothing is under way.</p>}
        {figures.tasks.slice(0, 4).map((task) => (
          <TaskRow key={task.id} task={task} />
        ))}
      </Card>
    </div>
  );
}

const LEVELS: Record<string, Level> = { HEALTH_OK: "ok", HEALTH_WARN: "warn", HEALTH_ERR: "err" };

function Health({ figures }: { figures: Figures }) {
  const order = (c: Check): number => (c.muted ? 2 : c.severity === "HEALTH_ERR" ? 0 : 1);
  const checks = [...figures.health.checks].sort((a, b) => order(a) - order(b));
  return (
    <Card title="Health" wide>
      {checks.length === 0 && (
        <p class="well">
          <Icon level="ok" /> All is well. No check has anything to say.
        </p>
      )}
      <ul class="checks">
        {checks.map((check) => (
          <li key={check.type}>
            <Ailment check={check} />
          </li>
        ))}
      </ul>
    </Card>
  );
}

function Ailment({ check }: { check: Check }) {
  const help = advice(check.type);
  const level = check.muted ? "off" : LEVELS[check.severity] ?? "warn";
  return (
    <details class={level}>
      <summary>
        <Icon level={level} />
        <span class="what">
          <Said text={check.summary.message} />
          {check.muted && <span class="dim"> (muted)</span>}
        </span>
        <code>{check.type}</code>
      </summary>
      <div class="help">
        {help ? (
          <>
            <p>{help.means}</p>
            <ol>
              {help.steps.map((step) => (
                <li key={step}>
                  <Prose text={step} />
                </li>
              ))}
            </ol>
          </>
        ) : (
          <p>
            Nothing more is known here of this code. <code>ceph health detail</code> says what it is about.
          </p>
        )}
        {check.detail.length > 0 && (
          <ul class="detail">
            {check.detail.slice(0, 30).map((line, i) => (
              <li key={i}>
                <Said text={line.message} />
              </li>
            ))}
            {check.detail.length > 30 && <li>and {check.detail.length - 30} more</li>}
          </ul>
        )}
      </div>
    </details>
  );
}

/** What the user may not read is not there. */
function Numbers({ figures: { osds, mons, mgrs, pgs, objects, pools } }: { figures: Figures }) {
  if (!osds && !mons && !mgrs && !pgs && !objects) return null;
  const clean = Object.entries(pgs?.states ?? {}).reduce((n, [name, pgs]) => n + (name.startsWith("active+clean") ? pgs : 0), 0);
  return (
    <dl class="numbers card wide">
      {osds && <Figure name="OSDs" value={`${osds.up} up, ${osds.in} in`} of={`of ${osds.total}`} level={osds.up < osds.total ? "warn" : "ok"} />}
      {mons && <Figure name="Monitors" value={`${mons.in_quorum} in quorum`} of={`of ${mons.total}`} level={mons.in_quorum < mons.total ? "warn" : "ok"} />}
      {mgrs && <Figure name="Manager" value={mgrs.active} of={plural(mgrs.standbys, "standby", "standbys")} level={mgrs.standbys ? "ok" : "off"} />}
      {pgs && <Figure name="PGs clean" value={percent(pgs.total ? clean / pgs.total : 1)} of={`of ${whole(pgs.total)}`} level={clean < pgs.total ? "busy" : "ok"} />}
      {objects && <Figure name="Objects" value={count(objects.total)} of={pools === undefined ? "" : `in ${plural(pools, "pool")}`} />}
      {objects && <Figure name="Degraded" value={percent(objects.copies ? objects.degraded / objects.copies : 0)} of={`${count(objects.degraded)} copies`} level={objects.degraded ? "warn" : "ok"} />}
    </dl>
  );
}

function Figure({ name, value, of, level }: { name: string; value: string; of: string; level?: Level }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>
        {level && level !== "ok" && <Icon level={level} />}
        <b>
          <Said text={value} />
        </b>
        <span class="dim"> {of}</span>
      </dd>
    </div>
  );
}

function Capacity({ usage }: { usage: NonNullable<Figures["usage"]> }) {
  const part = usage.total ? usage.used / usage.total : 0;
  return (
    <Card title="Capacity" wide aside={`${percent(part)} used`}>
      <Meter part={part} label="Used" warn={usage.nearfull_ratio} err={usage.full_ratio} wide />
      <p class="under">
        <span>
          <b>{bytes(usage.used)}</b> used of <b>{bytes(usage.total)}</b>
        </span>
        <span>
          <b>{bytes(usage.avail)}</b> free, all copies counted
        </span>
        <span>
          <b>{bytes(usage.stored)}</b> stored by clients
        </span>
        <span class="dim">
          marks: nearfull {percent(usage.nearfull_ratio, 0)}, full {percent(usage.full_ratio, 0)}
        </span>
      </p>
    </Card>
  );
}

function Charts({ points }: { points: Point[] }) {
  const [window_s, setWindow] = useState<"300" | "900" | "3600">("300");
  const s = Number.parseInt(window_s, 10);
  return (
    <Card
      title="Load"
      wide
      aside={
        <Choice
          label="Time that is shown"
          value={window_s}
          set={setWindow}
          of={[
            { value: "300", text: "5 min" },
            { value: "900", text: "15 min" },
            { value: "3600", text: "1 h" },
          ]}
        />
      }
    >
      <div class="charts">
        <div>
          <h3>Clients’ operations</h3>
          <Chart key={s} title="Clients' operations" points={points} series={IOPS} show={perSecond} base={1000} window_s={s} />
        </div>
        <div>
          <h3>Clients’ bandwidth</h3>
          <Chart key={s} title="Clients' bandwidth" points={points} series={BANDWIDTH} show={rate} base={1024} window_s={s} />
        </div>
        <div>
          <h3>Recovery</h3>
          <Chart key={s} title="Recovery" points={points} series={RECOVERY} show={rate} base={1024} window_s={s} />
        </div>
      </div>
    </Card>
  );
}


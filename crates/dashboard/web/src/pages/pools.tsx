// Pools with what they hold, how safe that is, and what clients do with them.

import { useApi } from "../api";
import { bytes, count, percent, plain, rate } from "../format";
import { grade } from "../states";
import type { Pool } from "../types";
import { Card, Meter, Shown, Table, Tag, type Column } from "../ui";

const latest = (p: Pool, name: string): number => p.stats[name]?.latest ?? 0;
const speed = (p: Pool, name: string): number => Math.max(0, p.stats[name]?.rate ?? 0);
const clean = (p: Pool): number => sum(p, (state) => grade(state) === "clean");
const sum = (p: Pool, which: (state: string) => boolean): number =>
  Object.entries(p.pg_status).reduce((n, [state, pgs]) => n + (which(state) ? pgs : 0), 0);

const COLUMNS: Column<Pool>[] = [
  { key: "name", title: "Name", by: (p) => p.pool_name },
  { key: "for", title: "For", by: (p) => p.application_metadata.join(", ") || "–", minor: true },
  {
    key: "copies",
    title: "Safety",
    by: (p) => p.size,
    show: (p) => (p.type === "erasure" ? <span title={plain(`profile ${p.erasure_code_profile}`)}>coded, {p.size} shards</span> : `${p.size} copies, min ${p.min_size}`),
  },
  {
    key: "pgs",
    title: "PGs",
    by: (p) => p.pg_num,
    right: true,
    show: (p) => (p.pg_num_target === p.pg_num ? p.pg_num : `${p.pg_num} → ${p.pg_num_target}`),
  },
  {
    key: "state",
    title: "Clean",
    by: (p) => clean(p) / Math.max(p.pg_num, 1),
    show: (p) => (clean(p) >= p.pg_num ? <Tag level="ok">all</Tag> : <Tag level={sum(p, (s) => grade(s) === "down") ? "err" : "busy"}>{percent(clean(p) / p.pg_num)}</Tag>),
  },
  { key: "stored", title: "Stored", by: (p) => latest(p, "stored"), show: (p) => bytes(latest(p, "stored")), right: true },
  {
    key: "used",
    title: "Used",
    by: (p) => latest(p, "percent_used"),
    show: (p) => (
      <span class="use">
        <Meter part={latest(p, "percent_used")} label={`${p.pool_name} used`} warn={0.85} err={0.95} />
        <span>{percent(latest(p, "percent_used"))}</span>
      </span>
    ),
  },
  { key: "free", title: "Free", by: (p) => latest(p, "max_avail"), show: (p) => bytes(latest(p, "max_avail")), right: true },
  { key: "objects", title: "Objects", by: (p) => latest(p, "objects"), show: (p) => count(latest(p, "objects")), right: true, minor: true, extra: true },
  { key: "reads", title: "Read", by: (p) => speed(p, "rd_bytes"), show: (p) => rate(speed(p, "rd_bytes")), right: true },
  { key: "rops", title: "Reads", by: (p) => speed(p, "rd"), show: (p) => `${count(speed(p, "rd"))}/s`, right: true, minor: true },
  { key: "writes", title: "Written", by: (p) => speed(p, "wr_bytes"), show: (p) => rate(speed(p, "wr_bytes")), right: true },
  { key: "wops", title: "Writes", by: (p) => speed(p, "wr"), show: (p) => `${count(speed(p, "wr"))}/s`, right: true, minor: true },
  { key: "quota", title: "Quota", by: (p) => p.quota_max_bytes, show: quota, right: true, minor: true, extra: true },
  { key: "rule", title: "Rule", by: (p) => p.crush_rule, minor: true, extra: true },
  { key: "scale", title: "Autoscaler", by: (p) => p.pg_autoscale_mode, minor: true, extra: true },
];

function quota(p: Pool): string {
  const parts = [p.quota_max_bytes ? bytes(p.quota_max_bytes) : "", p.quota_max_objects ? `${count(p.quota_max_objects)} objects` : ""];
  return parts.filter(Boolean).join(", ") || "none";
}

export function Pools() {
  const pools = useApi<Pool[]>("/api/pool?stats=true", 5);
  return (
    <Card title="Pools" wide bare>
      <Shown loaded={pools} what="The list of pools">
        {(rows) => (
          <Table
            caption="Pools"
            columns={COLUMNS}
            rows={rows}
            id={(p) => String(p.pool)}
            search={(p) => `${p.pool_name} ${p.application_metadata.join(" ")}`}
            empty="No pool has been made. `ceph osd pool create NAME` makes one."
          />
        )}
      </Shown>
    </Card>
  );
}

// The CRUSH tree with the OSDs' states, use and latencies.

import { useMemo, useState } from "preact/hooks";
import { useApi } from "../api";
import { bytes, percent } from "../format";
import type { OsdTree, TreeNode } from "../types";
import { Card, Meter, Said, Scroll, Shown, Tag } from "../ui";

interface Row {
  node: TreeNode;
  depth: number;
  /** OSDs below that are not up. */
  down: number;
}

export function Osds() {
  const tree = useApi<OsdTree>("/api/view/osds", 5);
  return (
    <Shown loaded={tree} what="The tree of OSDs">
      {(t) => (
        <>
          {t.flags.length > 0 && (
            <p class="notice warn">
              <Tag level="warn">Flags are set</Tag> <span>{t.flags.join(", ")}</span>
            </p>
          )}
          <Card title="CRUSH tree" wide bare>
            <Tree tree={t} />
          </Card>
        </>
      )}
    </Shown>
  );
}

function Tree({ tree }: { tree: OsdTree }) {
  const [shut, setShut] = useState<ReadonlySet<number>>(new Set());
  const [wanted, setWanted] = useState("");
  const [ailing, setAiling] = useState(false);
  const slow = useMemo(() => usual(tree.nodes) * 4, [tree]);
  const rows = useMemo(() => lines(tree, shut, wanted.trim().toLowerCase(), ailing), [tree, shut, wanted, ailing]);
  const toggle = (id: number): void => {
    const next = new Set(shut);
    if (!next.delete(id)) next.add(id);
    setShut(next);
  };
  const osds = tree.nodes.filter((n) => n.type === "osd");
  return (
    <>
      <div class="tools">
        <input type="search" placeholder="Find" aria-label="Find in the tree" value={wanted} onInput={(e) => setWanted(e.currentTarget.value)} />
        <label class="tick">
          <input type="checkbox" checked={ailing} onChange={(e) => setAiling(e.currentTarget.checked)} />
          only what is not up and in
        </label>
        <span class="count" role="status">
          {osds.filter((o) => o.status === "up").length} up, {osds.filter((o) => o.in).length} in, {osds.length} in all
        </span>
      </div>
      <Scroll label="CRUSH tree">
        <table class="tree">
          <caption class="hidden">CRUSH tree</caption>
          <thead>
            <tr>
              <th scope="col">Name</th>
              <th scope="col">State</th>
              <th scope="col" class="minor">Class</th>
              <th scope="col" class="right minor">Weight</th>
              <th scope="col" class="right minor">Reweight</th>
              <th scope="col" class="right">Size</th>
              <th scope="col">Used</th>
              <th scope="col" class="right">PGs</th>
              <th scope="col" class="right" title="How long the OSD's store takes to make a write durable">Commit</th>
              <th scope="col" class="right minor">Apply</th>
            </tr>
          </thead>
          <tbody>
            {rows.map(({ node, depth, down }) => (
              <Line key={node.id} node={node} depth={depth} down={down} slow={slow} open={!shut.has(node.id)} toggle={toggle} />
            ))}
          </tbody>
        </table>
      </Scroll>
      {rows.length === 0 && <p class="empty">{osds.length === 0 ? "There are no OSDs." : "Nothing is found."}</p>}
    </>
  );
}

function Line(props: { node: TreeNode; depth: number; down: number; slow: number; open: boolean; toggle: (id: number) => void }) {
  const { node, depth, down, slow, open } = props;
  const osd = node.type === "osd";
  const part = node.size ? node.used / node.size : 0;
  return (
    <tr class={osd ? "" : "bucket"}>
      <th scope="row">
        <span class="indent" style={{ paddingLeft: `${depth * 18}px` }}>
          {osd ? (
            <Said text={node.name} />
          ) : (
            <button type="button" class="fold" aria-expanded={open} onClick={() => props.toggle(node.id)}>
              <span aria-hidden="true">{open ? "▾" : "▸"}</span> <Said text={node.name} /> <span class="dim"><Said text={node.type} /></span>
            </button>
          )}
        </span>
      </th>
      <td>{osd ? <State node={node} /> : down > 0 && <Tag level="warn">{down} down</Tag>}</td>
      <td class="minor">{node.device_class !== undefined && <Said text={node.device_class} />}</td>
      <td class="right minor">{node.crush_weight.toFixed(3)}</td>
      <td class="right minor">{node.reweight === undefined ? "" : node.reweight.toFixed(2)}</td>
      <td class="right">{node.size ? bytes(node.size) : "–"}</td>
      <td class="use">
        {node.size > 0 && <Meter part={part} label={`${node.name} used`} warn={0.85} err={0.95} />}
        <span>{node.size ? percent(part) : "–"}</span>
      </td>
      <td class="right">{node.pgs}</td>
      <td class="right">
        <Latency ms={node.commit_ms} slow={slow} />
      </td>
      <td class="right minor">
        <Latency ms={node.apply_ms} slow={slow} />
      </td>
    </tr>
  );
}

function State({ node }: { node: TreeNode }) {
  if (node.status === "destroyed") return <Tag level="off">destroyed</Tag>;
  if (node.status === "down") return <Tag level="err">{node.in ? "down, in" : "down, out"}</Tag>;
  return node.in ? <Tag level="ok">up, in</Tag> : <Tag level="warn">up, out</Tag>;
}

function Latency({ ms, slow }: { ms: number | undefined; slow: number }) {
  if (ms === undefined) return <>–</>;
  const text = ms < 10 ? `${ms.toFixed(1)} ms` : `${Math.round(ms)} ms`;
  if (ms <= slow || ms < 5) return <>{text}</>;
  return (
    <span class="slow" title="More than four times the median of all OSDs">
      {text} <span class="hidden">(slow)</span>
    </span>
  );
}

/** The median latency of OSDs that are up. */
function usual(nodes: TreeNode[]): number {
  const all = nodes.flatMap((n) => (n.status === "up" && n.commit_ms !== undefined ? [n.commit_ms] : [])).sort((a, b) => a - b);
  return all[Math.floor(all.length / 2)] ?? 0;
}

/** The tree in the order in which it is shown. What is looked for is shown with what it hangs from. */
function lines(tree: OsdTree, shut: ReadonlySet<number>, word: string, ailing: boolean): Row[] {
  const nodes = new Map(tree.nodes.map((n) => [n.id, n]));
  const out: Row[] = [];
  const fits = (n: TreeNode): boolean => n.name.toLowerCase().includes(word) || (n.device_class ?? "").toLowerCase() === word;
  const visit = (id: number, depth: number, found: boolean): { down: number; shown: boolean } => {
    const node = nodes.get(id);
    if (!node || depth > 32) return { down: 0, shown: false };
    const osd = node.type === "osd";
    const here = found || fits(node);
    const row: Row = { node, depth, down: osd && node.status !== "up" ? 1 : 0 };
    const at = out.push(row);
    let any = osd && here && (!ailing || node.status !== "up" || !node.in);
    for (const child of node.children) {
      const below = visit(child, depth + 1, here);
      row.down += below.down;
      any ||= below.shown;
    }
    const all = !word && !ailing;
    if (!any && !(all && !osd)) out.length = at - 1;
    else if (shut.has(id) && all) out.length = at;
    return { down: row.down, shown: any };
  };
  tree.roots.forEach((id) => visit(id, 0, false));
  tree.stray.forEach((id) => visit(id, 0, false));
  return out;
}

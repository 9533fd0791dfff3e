// Which daemons there are, on which hosts, and how each is.

import { useMemo } from "preact/hooks";
import { useApi } from "../api";
import { plain } from "../format";
import type { Daemon, Services } from "../types";
import { Card, Said, Shown, Table, Tag, type Column } from "../ui";

const KINDS: Record<string, string> = {
  mon: "monitor",
  mgr: "manager",
  osd: "OSD",
  mds: "metadata server",
  rgw: "object gateway",
  "rbd-mirror": "mirror daemon",
  "tcmu-runner": "iSCSI gateway",
};

const DAEMONS: Column<Daemon>[] = [
  { key: "name", title: "Daemon", by: (d) => `${d.kind}.${d.id}` },
  { key: "kind", title: "Kind", by: (d) => KINDS[d.kind] ?? d.kind },
  { key: "state", title: "State", by: (d) => d.state, show: (d) => <Tag level={d.ok ? "ok" : "err"}><Said text={d.state} /></Tag> },
  { key: "host", title: "Host", by: (d) => d.host || "–" },
  { key: "addr", title: "Address", by: (d) => d.addr, show: (d) => <code>{plain(d.addr)}</code>, minor: true },
  { key: "version", title: "Version", by: (d) => d.version || "–", minor: true },
  { key: "note", title: "Note", by: (d) => d.note, minor: true },
];

interface Host {
  name: string;
  daemons: Daemon[];
}

const kindsOf = (h: Host): string => {
  const counts = new Map<string, number>();
  h.daemons.forEach((d) => counts.set(d.kind, (counts.get(d.kind) ?? 0) + 1));
  return [...counts].map(([kind, n]) => `${n} ${kind}`).join(", ");
};
const ailing = (h: Host): Daemon[] => h.daemons.filter((d) => !d.ok);

const HOSTS: Column<Host>[] = [
  { key: "name", title: "Host", by: (h) => h.name },
  {
    key: "state",
    title: "State",
    by: (h) => ailing(h).length,
    show: (h) => (ailing(h).length === 0 ? <Tag level="ok">all run</Tag> : <Tag level="warn">{ailing(h).length} not well</Tag>),
  },
  { key: "what", title: "Daemons", by: (h) => h.daemons.length, show: kindsOf },
];

export function Hosts() {
  const services = useApi<Services>("/api/view/services", 10);
  return (
    <Shown loaded={services} what="The list of services">
      {(s) => <Both services={s} />}
    </Shown>
  );
}

function Both({ services }: { services: Services }) {
  const hosts = useMemo(() => {
    const by = new Map<string, Daemon[]>();
    services.daemons.forEach((d) => by.set(d.host, [...(by.get(d.host) ?? []), d]));
    return [...by].map(([name, daemons]) => ({ name: name || "not known", daemons }));
  }, [services]);
  const urls = Object.entries(services.urls);
  return (
    <div class="grid">
      <Card title="Hosts" wide>
        <Table caption="Hosts" columns={HOSTS} rows={hosts} id={(h) => h.name} search={(h) => h.name} empty="No daemon has said where it is." />
      </Card>
      <Card title="Daemons" wide>
        <Table
          caption="Daemons"
          columns={DAEMONS}
          rows={services.daemons}
          id={(d) => `${d.kind}.${d.id}`}
          search={(d) => `${d.kind}.${d.id} ${KINDS[d.kind] ?? ""} ${d.host} ${d.state}`}
          empty="No daemon is known."
        />
      </Card>
      {urls.length > 0 && (
        <Card title="The manager’s services" wide>
          <dl class="pairs">
            {urls.map(([name, url]) => (
              <div key={name}>
                <dt>
                  <Said text={name} />
                </dt>
                <dd>
                  <code>{plain(url)}</code>
                </dd>
              </div>
            ))}
          </dl>
        </Card>
      )}
    </div>
  );
}

// A made-up cluster that answers the API's shapes: five hosts with 20 OSDs, one of them down, one slow, recovery under way,
// and names that try to be markup. Figures move as real ones do.

const GIB = 2 ** 30;
const TIB = 2 ** 40;
const FSID = "5b0f2c1e-7d0a-4c57-9a45-0c5e3a1f9d42";

/** Repeatable noise. */
function noise(seed) {
  let s = seed >>> 0;
  return () => {
    s = (Math.imul(s ^ (s >>> 15), 2246822507) + 0x9e3779b9) >>> 0;
    return s / 2 ** 32;
  };
}

export const NASTY = '<img src=x onerror="document.title=\'owned\'">';
const MIRRORED = "rev\u202egnp.exe";

const POOLS = [
  { id: 1, name: ".mgr", pgs: 1, size: 3, app: "mgr", bytes: 4 * 2 ** 20, objects: 2 },
  { id: 2, name: "rbd", pgs: 128, size: 3, app: "rbd", bytes: 9.4 * TIB, objects: 2_471_000 },
  { id: 3, name: "vm-fast", pgs: 64, size: 3, app: "rbd", bytes: 2.1 * TIB, objects: 563_000 },
  { id: 4, name: "archive", pgs: 64, size: 6, app: "rgw", bytes: 21 * TIB, objects: 5_310_000, erasure: true },
  { id: 5, name: "default.rgw.buckets.index", pgs: 32, size: 3, app: "rgw", bytes: 0, objects: 731 },
  { id: 6, name: NASTY, pgs: 16, size: 2, app: "test", bytes: 12 * GIB, objects: 3_072 },
  { id: 7, name: MIRRORED, pgs: 8, size: 3, app: "test", bytes: 1 * GIB, objects: 256 },
];
const HOSTS = ["ceph-a1", "ceph-a2", "ceph-b1", "ceph-b2", "ceph-c1"];
const OSD_SIZE = Math.round(7.28 * TIB);
const DOWN = 13;
const SLOW = 6;

export class Cluster {
  constructor(well = false) {
    this.well = well;
    this.begun = Date.now() / 1000;
    const random = noise(7);
    this.osds = Array.from({ length: 20 }, (_, id) => ({ id, host: HOSTS[Math.floor(id / 4)], use: 0.52 + random() * 0.2, commit: 1.1 + random() }));
    this.points = [];
    const now = Date.now() / 1000;
    for (let at = now - 3600; at < now; at += 2) this.points.push(this.point(at));
  }

  isDown(id) {
    return !this.well && id === DOWN;
  }

  point(at) {
    const wave = (period, phase) => (Math.sin((at / period) * 2 * Math.PI + phase) + 1) / 2;
    const random = noise(Math.floor(at));
    const reads = 5200 + 2600 * wave(900, 0) + 900 * random();
    const writes = 2300 + 1400 * wave(600, 2) + 600 * random();
    const away = this.well || at < this.begun - 1500 ? 0 : (240 + 90 * random()) * 2 ** 20;
    return [at, reads, writes, reads * 18_500, writes * 31_000, away, away / (4 * 2 ** 20)].map((v, i) => (i ? Math.round(v) : v));
  }

  states() {
    if (this.well) return { "active+clean": 311, "active+clean+scrubbing+deep": 2 };
    return {
      "active+clean": 251,
      "active+undersized+degraded+remapped+backfilling": 6,
      "active+undersized+degraded+remapped+backfill_wait": 39,
      "active+remapped+backfill_wait": 12,
      "active+clean+scrubbing+deep": 2,
      "active+recovery_wait+degraded": 2,
      "peering": 1,
    };
  }

  checks() {
    if (this.well) return [];
    const one = (type, severity, message, detail, muted = false) => ({ type, severity, summary: { message, count: detail.length }, detail: detail.map((m) => ({ message: m })), muted });
    return [
      one("OSD_DOWN", "HEALTH_WARN", "1 osds down", ["osd.13 (root=default,host=ceph-b2) is down"]),
      one("PG_AVAILABILITY", "HEALTH_ERR", "Reduced data availability: 1 pg peering", ["pg 3.1a is stuck peering for 74s, current state peering, last acting [6,13,2]"]),
      one(
        "PG_DEGRADED",
        "HEALTH_WARN",
        "Degraded data redundancy: 412877/25043178 objects degraded (1.649%), 47 pgs degraded, 45 pgs undersized",
        Array.from({ length: 47 }, (_, i) => `pg 2.${i.toString(16)} is stuck undersized for ${120 + i}s, current state active+undersized+degraded+remapped+backfill_wait, last acting [${i % 12},${(i + 5) % 12}]`),
      ),
      one("SLOW_OPS", "HEALTH_WARN", "14 slow ops, oldest one blocked for 38 sec, osd.6 has slow ops", []),
      one("POOL_APP_NOT_ENABLED", "HEALTH_WARN", "application not enabled on 1 pool(s)", [`application not enabled on pool '${NASTY}'`], true),
    ];
  }

  figures() {
    const at = Date.now() / 1000;
    const point = this.point(at);
    this.points.push(point);
    if (this.points.length > 1800) this.points.shift();
    const [, reads, writes, read_bytes, write_bytes, bytes, objects] = point;
    const far = Math.min(0.97, 0.31 + (at - this.begun) / 4000);
    return {
      at,
      fsid: FSID,
      manager: "a1",
      version: "loligo 0.1.0",
      health: { status: this.well ? "HEALTH_OK" : "HEALTH_ERR", checks: this.checks() },
      usage: { total: 20 * OSD_SIZE, used: this.osds.reduce((n, o) => n + o.use * OSD_SIZE, 0), avail: this.osds.reduce((n, o) => n + (1 - o.use) * OSD_SIZE, 0), stored: 32.6 * TIB, nearfull_ratio: 0.85, full_ratio: 0.95 },
      client: { reads, writes, read_bytes, write_bytes },
      recovery: { bytes, objects },
      pgs: { total: 313, states: this.states() },
      objects: { total: 8_347_726, copies: 25_043_178, degraded: this.well ? 0 : 412_877, misplaced: this.well ? 0 : 96_310, unfound: 0 },
      osds: { total: 20, up: this.well ? 20 : 19, in: 20 },
      mons: { total: 3, in_quorum: 3 },
      mgrs: { active: "a1", standbys: 1 },
      pools: POOLS.length,
      tasks: this.well
        ? []
        : [
            { id: "1", message: "Rebalancing after osd.13 marked out", progress: far, started_at: this.begun - 1500, left_s: Math.round(((1 - far) / far) * (at - this.begun + 1500)) },
            { id: "2", message: "PG autoscaler increasing pool 3 PGs from 64 to 128", progress: 0, started_at: at - 40, left_s: null },
          ],
    };
  }

  tree() {
    const osds = this.osds.map((o) => ({
      id: o.id,
      name: `osd.${o.id}`,
      type: "osd",
      device_class: o.id % 4 === 3 ? "nvme" : "hdd",
      crush_weight: 7.27739,
      reweight: o.id === 9 ? 0.85 : 1,
      status: this.isDown(o.id) ? "down" : "up",
      in: true,
      size: OSD_SIZE,
      used: Math.round(o.use * OSD_SIZE),
      pgs: 44 + ((o.id * 7) % 9),
      ...(this.isDown(o.id) ? {} : { commit_ms: o.id === SLOW && !this.well ? 48 + Math.random() * 9 : o.commit + Math.random(), apply_ms: o.commit + Math.random() }),
      children: [],
    }));
    const sum = (list, key) => list.reduce((n, o) => n + o[key], 0);
    const bucket = (id, name, type, children, below) => ({ id, name, type, crush_weight: sum(below, "crush_weight"), size: sum(below, "size"), used: sum(below, "used"), pgs: sum(below, "pgs"), children });
    const hosts = HOSTS.map((name, i) => bucket(-2 - i, name, "host", [0, 1, 2, 3].map((n) => i * 4 + n), osds.slice(i * 4, i * 4 + 4)));
    const racks = ["a", "b", "c"].map((rack, i) => {
      const of = hosts.filter((h) => h.name.startsWith(`ceph-${rack}`));
      return bucket(-10 - i, `rack-${rack}`, "rack", of.map((h) => h.id), of);
    });
    return { nodes: [bucket(-1, "default", "root", racks.map((r) => r.id), racks), ...racks, ...hosts, ...osds], roots: [-1], stray: [], flags: this.well ? [] : ["noscrub"] };
  }

  pools() {
    const [, reads, writes, read_bytes, write_bytes] = this.points.at(-1);
    return POOLS.map((p, i) => {
      const part = [0, 0.52, 0.37, 0.08, 0.02, 0, 0.01][i];
      const stat = (latest, rate = 0) => ({ latest, rate, rates: [] });
      const free = (20 * OSD_SIZE * 0.31) / (p.erasure ? 1.5 : p.size);
      const away = this.well ? 0 : [0, 32, 5, 12, 0, 0, 0][i];
      return {
        pool: p.id,
        pool_name: p.name,
        flags: 1,
        flags_names: "hashpspool",
        type: p.erasure ? "erasure" : "replicated",
        size: p.size,
        min_size: p.erasure ? 5 : Math.ceil(p.size / 2),
        crush_rule: p.erasure ? "archive" : "replicated_rule",
        pg_autoscale_mode: p.id === 3 ? "on" : "warn",
        pg_num: p.pgs,
        pg_num_target: p.id === 3 && !this.well ? 128 : p.pgs,
        application_metadata: [p.app],
        quota_max_bytes: p.id === 3 ? 4 * TIB : 0,
        quota_max_objects: 0,
        erasure_code_profile: p.erasure ? "k4m2" : "",
        pg_status: away ? { "active+clean": p.pgs - away, "active+undersized+degraded+remapped+backfill_wait": away } : { "active+clean": p.pgs },
        stats: {
          stored: stat(p.bytes),
          objects: stat(p.objects),
          percent_used: stat(p.bytes / (p.bytes + free)),
          max_avail: stat(free),
          bytes_used: stat(p.bytes * (p.erasure ? 1.5 : p.size)),
          rd: stat(0, reads * part),
          wr: stat(0, writes * part),
          rd_bytes: stat(0, read_bytes * part),
          wr_bytes: stat(0, write_bytes * part),
        },
      };
    });
  }

  pgs() {
    const random = noise(11);
    const states = Object.keys(this.states());
    return {
      states,
      pools: POOLS.map((p) => ({
        id: p.id,
        name: p.name,
        pgs: Array.from({ length: p.pgs }, (_, ps) => {
          let state = 0;
          if (!this.well && random() < 0.2 && p.pgs > 16) state = 1 + Math.floor(random() * 5);
          if (!this.well && p.id === 3 && ps === 0x1a) state = 6;
          const share = 0.7 + random() * 0.6;
          const objects = Math.round((p.objects / p.pgs) * share);
          return [ps, state, Math.floor(random() * 20), objects, Math.round((p.bytes / p.pgs) * share), state ? Math.round(objects * random()) : 0];
        }),
      })),
    };
  }

  images() {
    const random = noise(23);
    const list = (pool_name, names) => ({
      status: 0,
      pool_name,
      value: names.map((name, i) => {
        const size = [20, 50, 100, 500, 2048][Math.floor(random() * 5)] * GIB;
        return {
          name,
          pool_name,
          namespace: i === 4 ? "tenant-7" : null,
          size,
          obj_size: 4 * 2 ** 20,
          num_objs: size / (4 * 2 ** 20),
          order: 22,
          features: 61,
          features_name: ["deep-flatten", "exclusive-lock", "fast-diff", "layering", "object-map"],
          snapshots: Array.from({ length: Math.floor(random() * 5) }, (_, n) => ({ name: `daily-${n}` })),
          parent: i % 5 === 2 ? { pool_name: "rbd", image_name: "golden-debian-12", snap_name: "v3" } : null,
          data_pool: i === 3 ? "archive" : null,
          timestamp: new Date(1.76e12 + i * 8.64e7).toISOString(),
        };
      }),
    });
    return [list("rbd", ["golden-debian-12", "db-primary", "db-replica", "backup-vol", "web-01", NASTY, "مرحبا", MIRRORED]), list("vm-fast", Array.from({ length: 40 }, (_, i) => `vm-${100 + i}-disk-0`))];
  }

  log() {
    const now = Date.now();
    const line = (ago, name, priority, message, channel = "cluster") => ({ stamp: new Date(now - ago * 1000).toISOString().replace("Z", "000+0000"), name, priority, channel, message, rank: name, seq: 0, addrs: { addrvec: [] } });
    const clog = [
      line(12, "osd.6", "[WRN]", "14 slow requests (by type [ 'delayed' : 14 ] most affected pool [ 'rbd' : 14 ])"),
      line(34, "mon.a1", "[WRN]", "Health check update: Degraded data redundancy: 412877/25043178 objects degraded (1.649%), 47 pgs degraded, 45 pgs undersized (PG_DEGRADED)"),
      line(71, "mon.a1", "[ERR]", "Health check failed: Reduced data availability: 1 pg peering (PG_AVAILABILITY)"),
      line(90, "mon.a1", "[INF]", "osd.13 failed (root=default,rack=rack-b,host=ceph-b2) (3 reporters from different host after 21.4 >= grace 20.0)"),
      line(91, "mon.a1", "[WRN]", "Health check failed: 1 osds down (OSD_DOWN)"),
      line(300, "osd.2", "[DBG]", "2.1f scrub starts"),
      line(402, "osd.2", "[DBG]", "2.1f scrub ok"),
      line(500, "mgr.a1", "[INF]", `Manager is told of pool ${NASTY} and of ${MIRRORED}`),
      ...Array.from({ length: 60 }, (_, i) => line(600 + i * 67, `osd.${(i * 7) % 20}`, "[DBG]", `${2 + (i % 3)}.${(i * 13 % 64).toString(16)} deep-scrub ${i % 2 ? "starts" : "ok"}`)),
    ];
    const audit = Array.from({ length: 25 }, (_, i) => line(20 + i * 211, "mon.a1", "[INF]", `from='client.? 10.0.0.${i}:0/${31337 + i}' entity='client.admin' cmd=[{"prefix": "osd pool set", "pool": "vm-fast", "var": "pg_num", "val": "${64 + i}"}]: dispatch`, "audit"));
    return this.well ? { clog: clog.slice(5), audit_log: audit } : { clog, audit_log: audit };
  }

  services() {
    const v = "loligo 0.1.0";
    const d = (kind, id, host, state, ok, addr, note = "") => ({ kind, id, host, addr, version: v, state, ok, note });
    return {
      urls: { dashboard: "https://ceph-a1:8443/", prometheus: "http://ceph-a1:9283/" },
      daemons: [
        ...["ceph-a1", "ceph-b1", "ceph-c1"].map((h, i) => d("mon", h.slice(5), h, "in quorum", true, `v2:10.0.0.${i + 1}:3300`, i === 0 ? "leads" : "")),
        d("mgr", "a1", "ceph-a1", "active", true, "v2:10.0.0.1:6800"),
        d("mgr", "b1", "ceph-b1", "stands by", true, "v2:10.0.0.3:6800"),
        ...this.osds.map((o) => d("osd", String(o.id), o.host, this.isDown(o.id) ? "down, in" : "up, in", !this.isDown(o.id), `v2:10.0.0.${HOSTS.indexOf(o.host) + 1}:${6802 + (o.id % 4) * 4}`, o.id === SLOW && !this.well ? "14 slow requests, the oldest waits for 38 s" : "")),
        d("rgw", "s3-a", "ceph-a2", "registered", true, "10.0.0.2:0/4127", "zone default"),
        d("rgw", "s3-b", "ceph-b2", "registered", true, "10.0.0.4:0/4131", "zone default"),
        d("mds", "files-a", "ceph-a2", "active", true, "v2:10.0.0.2:6818", "rank 0 of files"),
        d("mds", "files-b", "ceph-c1", "stands by", true, "v2:10.0.0.5:6818"),
      ],
    };
  }

  tasks() {
    const now = Date.now() / 1000;
    return {
      finished: [
        { id: "f1", message: "Rebalancing after osd.4 marked in", started_at: now - 90_000, finished_at: now - 88_200, failed: null },
        { id: "f2", message: "PG autoscaler decreasing pool 5 PGs from 64 to 32", started_at: now - 190_000, finished_at: now - 189_400, failed: null },
        { id: "f3", message: "PG autoscaler increasing pool 6 PGs from 16 to 32", started_at: now - 250_000, finished_at: now - 249_900, failed: "the pool has 16 PGs" },
      ],
    };
  }
}

// What the API answers, as far as the page reads it. The whole of it is in openapi.json.

export type Severity = "HEALTH_OK" | "HEALTH_WARN" | "HEALTH_ERR";

export interface Check {
  type: string;
  severity: Severity;
  summary: { message: string; count?: number };
  detail: { message: string }[];
  muted: boolean;
}

export interface Task {
  id: string;
  message: string;
  /** 0 to 1. */
  progress: number;
  /** Seconds since the epoch. */
  started_at: number;
  /** Seconds that are left if it goes on as it went; null where nothing can be said. */
  left_s: number | null;
}

export interface DoneTask {
  id: string;
  message: string;
  started_at: number;
  finished_at: number;
  failed: string | null;
}

/** One event of the live stream. */
export interface Figures {
  /** The server's time, in seconds since the epoch. */
  at: number;
  fsid: string;
  manager: string;
  version: string;
  health: { status: Severity; checks: Check[] };
  /** From here to `mgrs`: left out where the user may not read it. */
  usage?: { total: number; used: number; avail: number; stored: number; nearfull_ratio: number; full_ratio: number };
  client?: { reads: number; writes: number; read_bytes: number; write_bytes: number };
  recovery?: { bytes: number; objects: number };
  pgs?: { total: number; states: Record<string, number> };
  objects?: { total: number; copies: number; degraded: number; misplaced: number; unfound: number };
  osds?: { total: number; up: number; in: number };
  mons?: { total: number; in_quorum: number };
  mgrs?: { active: string; standbys: number };
  pools?: number;
  tasks: Task[];
}

/** at, reads, writes, read bytes, written bytes, recovered bytes, recovered objects: the latter six a second. */
export type Point = [number, number, number, number, number, number, number];

export interface TreeNode {
  id: number;
  name: string;
  type: string;
  device_class?: string;
  crush_weight: number;
  reweight?: number;
  /** OSDs alone. */
  status?: "up" | "down" | "destroyed";
  in?: boolean;
  size: number;
  used: number;
  pgs: number;
  commit_ms?: number;
  apply_ms?: number;
  children: number[];
}

export interface OsdTree {
  nodes: TreeNode[];
  roots: number[];
  stray: number[];
  flags: string[];
}

export interface Pool {
  pool: number;
  pool_name: string;
  type: "replicated" | "erasure";
  size: number;
  min_size: number;
  pg_num: number;
  pg_num_target: number;
  pg_autoscale_mode: string;
  crush_rule: string;
  application_metadata: string[];
  quota_max_bytes: number;
  quota_max_objects: number;
  erasure_code_profile: string;
  flags_names: string;
  pg_status: Record<string, number>;
  stats: Record<string, { latest: number; rate: number }>;
}

/** A PG: number in its pool, index of its state in `states`, acting primary, objects, bytes, objects not where they belong. */
export type PgCell = [number, number, number, number, number, number];

export interface PgMap {
  states: string[];
  pools: { id: number; name: string; pgs: PgCell[] }[];
}

export interface Image {
  name: string;
  pool_name: string;
  namespace: string | null;
  size: number;
  obj_size: number;
  num_objs: number;
  features_name: string[];
  snapshots: { name: string }[];
  parent: { pool_name: string; image_name: string; snap_name: string } | null;
  data_pool: string | null;
  timestamp: string;
}

export interface ImageList {
  status: number;
  pool_name: string;
  value: Image[];
}

export interface LogLine {
  stamp: string;
  name: string;
  priority: string;
  channel: string;
  message: string;
}

export interface Log {
  clog: LogLine[];
  audit_log: LogLine[];
}

export interface Daemon {
  kind: string;
  id: string;
  host: string;
  addr: string;
  version: string;
  /** A word, such as "in quorum" or "active"; the page shows it as it comes. */
  state: string;
  ok: boolean;
  note: string;
}

export interface Services {
  daemons: Daemon[];
  urls: Record<string, string>;
}

export interface Session {
  username: string;
  permissions: Record<string, string[]>;
  /** The password has to be changed first; until then nothing may be read. */
  pwdUpdateRequired: boolean;
}

// What an operator can do about each health code. Commands stand in backquotes.

interface Advice {
  means: string;
  /** Steps, the likeliest first. */
  steps: string[];
}

const ADVICE: Record<string, Advice> = {
  OSD_DOWN: {
    means: "An OSD that should serve data does not answer. Its PGs go on with the copies that are left.",
    steps: [
      "See which: `ceph osd tree down`. Then look at that host: is it up, is its disk there, what does the OSD's log end with?",
      "Start the OSD again. It catches up by itself.",
      "If the disk is dead, `ceph osd out ID` makes new copies elsewhere at once; by itself that begins after 10 minutes.",
    ],
  },
  OSD_HOST_DOWN: {
    means: "Every OSD of a host is down: it is the host or its network, hardly the disks.",
    steps: ["Check the host's power and network.", "If it stays away for long, plan for the recovery: `ceph osd df tree` tells whether the others have room."],
  },
  OSD_NEARFULL: {
    means: "An OSD is fuller than the nearfull ratio. Writing goes on until it is full.",
    steps: ["See whether the others are emptier: `ceph osd df`. If so, `ceph balancer status` tells whether the balancer works.", "Add disks, or delete what is not needed."],
  },
  OSD_BACKFILLFULL: {
    means: "An OSD is too full to take PGs that move to it.",
    steps: ["Add disks or free space.", "For a short while `ceph osd set-backfillfull-ratio` allows a little more."],
  },
  OSD_FULL: {
    means: "An OSD is full: clients can write to no pool that uses it.",
    steps: ["Delete data; deleting is allowed.", "Add disks.", "For a short while `ceph osd set-full-ratio 0.97` lets writing go on. Put it back afterwards."],
  },
  OSDMAP_FLAGS: {
    means: "Flags that stop something in the whole cluster are set.",
    steps: ["Whoever set them probably works on the cluster. When that is over: `ceph osd unset FLAG`."],
  },
  OSD_FLAGS: { means: "Flags are set on single OSDs, hosts or device classes.", steps: ["`ceph osd unset-group FLAG WHO` when they are not needed any more."] },
  POOL_FULL: {
    means: "A pool has reached its quota and takes no more writes.",
    steps: ["`ceph df detail` shows quota and use.", "Delete data, or raise it: `ceph osd pool set-quota POOL max_bytes N`."],
  },
  POOL_NEAR_FULL: { means: "A pool comes close to its quota.", steps: ["`ceph df detail` shows quota and use.", "Raise the quota, or delete data."] },
  POOL_NEARFULL: { means: "A pool's OSDs are nearly full.", steps: ["`ceph df` and `ceph osd df`; add disks or free space."] },
  POOL_BACKFILLFULL: { means: "PGs of a pool cannot move: the OSDs that they would go to are too full.", steps: ["Add disks or free space."] },
  PG_AVAILABILITY: {
    means: "Some PGs do not serve clients now. Requests to their objects wait.",
    steps: [
      "Bring OSDs back that are down: they may hold the only recent copy.",
      "`ceph pg dump_stuck inactive` names the PGs, `ceph pg ID query` tells what each waits for.",
    ],
  },
  PG_DEGRADED: {
    means: "Some objects have fewer copies than the pool asks for. Data are there, with less safety.",
    steps: ["If OSDs are down, bring them back, or let recovery make new copies: the page Tasks shows how far it is.", "If nothing moves, `ceph pg dump_stuck undersized` and `ceph osd df tree`: is there a place for each copy?"],
  },
  PG_RECOVERY_FULL: { means: "Recovery stands still because OSDs are full.", steps: ["Free space or add disks first."] },
  PG_BACKFILL_FULL: { means: "PGs do not move because OSDs are too full to take them.", steps: ["Free space or add disks first."] },
  PG_DAMAGED: {
    means: "A scrub found copies that differ, or a copy that does not fit its checksum.",
    steps: ["`ceph health detail` names the PGs; `rados list-inconsistent-obj PG` what differs.", "`ceph pg repair PG` puts the good copy in place of the bad one.", "If one OSD turns up again and again, replace its disk."],
  },
  OSD_SCRUB_ERRORS: { means: "Scrubs have found errors.", steps: ["See PG_DAMAGED: `ceph pg repair PG` for the PGs that are named."] },
  OSD_TOO_MANY_REPAIRS: { means: "An OSD had to repair many reads: its disk gives wrong bytes.", steps: ["Replace the disk: `ceph osd out ID`, wait until it is empty, then remove it."] },
  OBJECT_UNFOUND: {
    means: "The newest version of some objects is on no OSD that is up.",
    steps: ["Bring OSDs back that are down: they may have it.", "Only when they are lost for good: `ceph pg ID mark_unfound_lost revert` gives up that version."],
  },
  OBJECT_MISPLACED: { means: "Objects are not yet where they belong. All copies are there.", steps: ["Nothing: they are on their way."] },
  SLOW_OPS: {
    means: "Requests wait longer than 30 seconds in a daemon.",
    steps: ["The text names the daemons. If it is one OSD, its disk is slow: compare latencies on the page OSDs.", "If many are slow, look for recovery or scrub, and at the network.", "`ceph daemon osd.ID dump_ops_in_flight` shows where each request is."],
  },
  OSD_SLOW_PING_TIME_BACK: { means: "Heartbeats between OSDs take long on the cluster's network.", steps: ["`ceph daemon mgr.NAME dump_osd_network` names the pairs: look for a host or a link that they share."] },
  OSD_SLOW_PING_TIME_FRONT: { means: "Heartbeats between OSDs take long on the public network.", steps: ["`ceph daemon mgr.NAME dump_osd_network` names the pairs: look for a host or a link that they share."] },
  MON_DOWN: {
    means: "A monitor is not in the quorum. With one more lost of three the cluster stands still.",
    steps: ["Start it again on its host, and look at the end of its log.", "If the host is gone: `ceph mon remove NAME`, then make a new one."],
  },
  MON_CLOCK_SKEW: { means: "The clocks of monitors differ.", steps: ["Check the time service (chrony, ntpd) on the hosts that are named: `ceph time-sync-status`."] },
  MON_DISK_LOW: { means: "A monitor's disk has little room left.", steps: ["Free space below the monitor's data directory. Without room it stops."] },
  MON_DISK_CRIT: { means: "A monitor's disk is nearly full: it will stop.", steps: ["Free space now."] },
  MON_DISK_BIG: { means: "A monitor's database is large.", steps: ["It shrinks when all PGs are clean again."] },
  MON_MSGR2_NOT_ENABLED: { means: "Monitors do not offer the second protocol.", steps: ["`ceph mon enable-msgr2`"] },
  MGR_DOWN: { means: "No manager is active.", steps: ["Start one. The figures on this page come from it."] },
  TOO_FEW_OSDS: { means: "There are fewer OSDs than copies of an object.", steps: ["Add OSDs, or make pools smaller: `ceph osd pool set POOL size N`."] },
  TOO_FEW_PGS: { means: "There are few PGs for so many OSDs: load may be uneven.", steps: ["`ceph osd pool autoscale-status`; let the autoscaler act: `ceph osd pool set POOL pg_autoscale_mode on`."] },
  TOO_MANY_PGS: { means: "There are many PGs on each OSD: memory and peering suffer.", steps: ["`ceph osd pool autoscale-status`; lower `pg_num` of pools with little data."] },
  POOL_TOO_FEW_PGS: { means: "A pool has fewer PGs than its data ask for.", steps: ["`ceph osd pool set POOL pg_autoscale_mode on`, or raise `pg_num` yourself."] },
  POOL_TOO_MANY_PGS: { means: "A pool has more PGs than its data ask for.", steps: ["`ceph osd pool set POOL pg_autoscale_mode on`, or lower `pg_num` yourself."] },
  POOL_APP_NOT_ENABLED: { means: "It is not said what a pool is for.", steps: ["`ceph osd pool application enable POOL rbd` (or cephfs, rgw, a name of your own)."] },
  POOL_NO_REDUNDANCY: { means: "A pool keeps one copy only: a lost disk is lost data.", steps: ["`ceph osd pool set POOL size 3`"] },
  SMALLER_PGP_NUM: { means: "`pgp_num` is smaller than `pg_num`: new PGs lie where the old ones lie.", steps: ["`ceph osd pool set POOL pgp_num N`"] },
  MANY_OBJECTS_PER_PG: { means: "A pool has far more objects in each PG than the others.", steps: ["Raise its `pg_num`."] },
  LARGE_OMAP_OBJECTS: { means: "Objects have very many keys: they are slow to recover.", steps: ["Mostly indexes of buckets: let them be resharded. The log names the objects."] },
  PG_NOT_SCRUBBED: { means: "PGs have not been scrubbed in time.", steps: ["Is `noscrub` set? Otherwise give scrubs more time: `osd_scrub_begin_hour`, `osd_max_scrubs`."] },
  PG_NOT_DEEP_SCRUBBED: { means: "PGs have not been read through in time.", steps: ["Is `nodeep-scrub` set? Otherwise give scrubs more time: `osd_deep_scrub_interval`, `osd_max_scrubs`."] },
  PG_SLOW_SNAP_TRIMMING: { means: "Deleted snapshots are cleared away slowly.", steps: ["It goes on by itself. `osd_snap_trim_sleep` sets the pace."] },
  RECENT_CRASH: { means: "A daemon crashed of late.", steps: ["`ceph crash ls-new`, then `ceph crash info ID`.", "When you have seen it: `ceph crash archive-all`."] },
  DEVICE_HEALTH: { means: "A disk says that it will fail.", steps: ["`ceph device ls`; replace it in time."] },
  MDS_ALL_DOWN: { means: "No metadata server serves a file system.", steps: ["Start one."] },
  MDS_DAMAGE: { means: "A metadata server found damage.", steps: ["`ceph tell mds.NAME damage ls`"] },
  MDS_INSUFFICIENT_STANDBY: { means: "No metadata server would take over.", steps: ["Start another one, or `ceph fs set FS standby_count_wanted 0`."] },
  FS_DEGRADED: { means: "A rank of a file system is failed or damaged.", steps: ["`ceph fs status` and the metadata server's log."] },
  AUTH_INSECURE_GLOBAL_ID_RECLAIM: { means: "Clients log in again in a way that can be forged.", steps: ["Bring the clients that are named up to date."] },
  AUTH_INSECURE_GLOBAL_ID_RECLAIM_ALLOWED: { means: "Old clients may log in again in a way that can be forged.", steps: ["When all clients are new: `ceph config set mon auth_allow_insecure_global_id_reclaim false`"] },
  OSD_UPGRADE_FINISHED: { means: "All OSDs run a new release, and the map still allows older ones.", steps: ["`ceph osd require-osd-release RELEASE`"] },
  OSD_ORPHAN: { means: "An OSD stands in the CRUSH map and does not exist.", steps: ["`ceph osd crush rm osd.ID`"] },
  OSD_OUT_OF_ORDER_FULL: { means: "The full ratios are not in ascending order.", steps: ["`ceph osd dump | grep ratio`, then set them: nearfull < backfillfull < full."] },
  OLD_CRUSH_TUNABLES: { means: "CRUSH works as in old releases.", steps: ["`ceph osd crush tunables optimal` moves data; choose a quiet time."] },
};

export function advice(code: string): Advice | null {
  return ADVICE[code] ?? null;
}

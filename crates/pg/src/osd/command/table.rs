//! The commands that an OSD knows besides those of every daemon, in Ceph's own words.
//!
//! Source: `ceph tell osd.0 get_command_descriptions` of 16.2.15; OSD::final_init in src/osd/OSD.cc.

use admin::common::{Described, described_as};

pub(super) const COMMANDS: &[Described] = &[
    described_as(
        "bench name=count,type=CephInt,req=false name=size,type=CephInt,req=false \
         name=object_size,type=CephInt,req=false name=object_num,type=CephInt,req=false",
        "OSD benchmark: write <count> <size>-byte objects(with <obj_size> <obj_num>), (default count=1G default \
         size=4MB). Results in log.",
    ),
    described_as(
        "cluster_log name=level,type=CephChoices,strings=error|warning|info|debug \
         name=message,type=CephString,n=N",
        "log a message to the cluster log",
    ),
    described_as(
        "dump_blocked_ops name=filterstr,type=CephString,n=N,req=false",
        "show the blocked ops currently in flight",
    ),
    described_as("dump_blocklist", "dump blocklisted clients and times"),
    described_as("dump_historic_ops name=filterstr,type=CephString,n=N,req=false", "show recent ops"),
    described_as(
        "dump_historic_ops_by_duration name=filterstr,type=CephString,n=N,req=false",
        "show slowest recent ops, sorted by duration",
    ),
    described_as(
        "dump_historic_slow_ops name=filterstr,type=CephString,n=N,req=false",
        "show slowest recent ops",
    ),
    described_as("dump_mempools", "get mempool stats"),
    described_as(
        "dump_ops_in_flight name=filterstr,type=CephString,n=N,req=false",
        "show the ops currently in flight",
    ),
    described_as("dump_watchers", "show clients which have active watches, and on which objects"),
    described_as("flush_pg_stats", "flush pg stats"),
    described_as("get_latest_osdmap", "force osd to update the latest map from the mon"),
    described_as("get_mapped_pools", "dump pools whose PG(s) are mapped to this OSD."),
    described_as("list_devices", "list OSD devices."),
    described_as(
        "list_unfound name=pgid,type=CephPgid,req=false name=offset,type=CephString,req=false",
        "list unfound objects on this pg, perhaps starting at an offset given in JSON",
    ),
    described_as("ops name=filterstr,type=CephString,n=N,req=false", "show the ops currently in flight"),
    described_as("pg name=pgid,type=CephPgid name=cmd,type=CephChoices,strings=query", ""),
    described_as(
        "pg name=pgid,type=CephPgid name=cmd,type=CephChoices,strings=list_unfound \
         name=offset,type=CephString,req=false",
        "",
    ),
    described_as(
        "mark_unfound_lost name=pgid,type=CephPgid,req=false name=mulcmd,type=CephChoices,strings=revert|delete",
        "mark all unfound objects in this pg as lost, either removing or reverting to a prior version if one is \
         available",
    ),
    described_as(
        "pg name=pgid,type=CephPgid name=cmd,type=CephChoices,strings=mark_unfound_lost \
         name=mulcmd,type=CephChoices,strings=revert|delete",
        "",
    ),
    described_as("query name=pgid,type=CephPgid,req=false", "show details of a specific pg"),
    described_as("send_beacon", "send OSD beacon to mon immediately"),
    described_as("smart name=devid,type=CephString,req=false", "probe OSD devices for SMART data."),
    described_as("status", "high-level status of OSD"),
];

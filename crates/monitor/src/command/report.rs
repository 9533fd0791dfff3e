//! `ceph report`: everything that the monitors know, in one document for those who help from afar.
//!
//! Source: Monitor::handle_command and the dump_info functions of the monitor's services.

use serde_json::{Map, Value, json};

use crate::command::metadata::{VERSION_SHORT, osd_metadata_json};
use crate::command::{Command, Ctx, Handler, Reply, flags};
use crate::crush_dump::crush_json;
use crate::health::{Health, health_json};
use crate::pg_sums::PgSums;

pub(super) const COMMANDS: &[Command] = &[Command {
    sig: "report name=tags,type=CephString,n=N,req=false",
    help: "report full status of cluster, optional title tag strings",
    module: "mon",
    perm: "r",
    flags: flags::NONE,
    handler: Handler::Read(report),
}];

fn report(ctx: &Ctx<'_>) -> Reply {
    let tags = ctx.args.list("tags");
    let health = Health::of(ctx.state, ctx.settings, ctx.now);
    let (map, fsmap) = (ctx.osdmap(), &ctx.state.fs.map);
    let monmap = &ctx.state.monmap;
    let head = json!({
        "cluster_fingerprint": ctx.state.fsid.to_string(),
        "version": VERSION_SHORT,
        "commit": "",
        "timestamp": ctx.now.wall.to_string(),
        "tag": tags.join(" "),
        "health": health_json(&health, true),
        "monmap_first_committed": monmap.epoch.0,
        "monmap_last_committed": monmap.epoch.0,
        "monmap": monmap.dump(),
        "quorum": ctx.settings.quorum.members,
        "osdmap": map.dump(),
        "osd_metadata": osd_metadata_json(ctx),
        "osdmap_first_committed": ctx.state.osds.oldest().0,
        "osdmap_last_committed": ctx.state.osds.newest().0,
        "crushmap": crush_json(&map.crush),
        "fsmap": fsmap.dump(),
        "mdsmap_first_committed": ctx.state.fs_history.oldest().unwrap_or(fsmap.epoch).0,
        "mdsmap_last_committed": fsmap.epoch.0,
        "auth": { "num_secrets": ctx.state.auth.entities.len() },
        "servicemap": ctx.state.service_map.dump(),
    });
    let mut out = match head {
        Value::Object(fields) => fields,
        _ => Map::new(),
    };
    if let Value::Object(sums) = PgSums::of(&ctx.state.digest).summary_json() {
        out.extend(sums);
    }
    let reply = Reply::json(ctx.format, &out.into());
    // Both ends can tell whether the text came through whole.
    let crc = codec::crc32c(REPORT_CRC_SEED, &reply.data);
    reply.with_outs(format!("report {crc}"))
}

/// Source: CEPH_MON_PORT_LEGACY, which seeds the checksum of reports.
const REPORT_CRC_SEED: u32 = 6789;

//! What Ceph's manager modules answer, as far as a manager without modules can: IO rates, OSDs' status, and that nothing
//! is being recorded or orchestrated.
//!
//! Source: src/pybind/mgr/{iostat,status,crash,telemetry,orchestrator}.

use std::collections::BTreeSet;
use std::time::Duration;

use maps::Osd;
use messages::stats::ObjectStatSum;
use monitor::command::Reply;
use serde_json::json;
use types::{Errno, OsdId};

use super::daemon::pretty;
use crate::command::{Command, Ctx, Module};
use crate::pretty_table::{PrettyTable, dimless, of_bytes};
use crate::text::join;

const IOSTAT: Module = Module("iostat");
const STATUS: Module = Module("status");
const TELEMETRY: Module = Module("telemetry");
const ORCHESTRATOR: Module = Module("orchestrator");

pub(super) const COMMANDS: &[Command] = &[
    IOSTAT
        .command(
            "iostat name=width,type=CephInt,req=false name=print_header,type=CephBool,req=false",
            "Get IO rates",
            "r",
            iostat,
        )
        .polled(),
    STATUS.command(
        "osd status name=bucket,type=CephString,req=false",
        "Show the status of OSDs within a bucket, or all",
        "r",
        osd_status,
    ),
    TELEMETRY.command("telemetry status", "Show current configuration", "r", |ctx| {
        // There is no telemetry: nothing is ever sent.
        Reply::json(pretty(ctx), &json!({ "enabled": false, "last_upload": null, "url": null }))
    }),
    ORCHESTRATOR.command("orch status", "Report configured backend and its status", "r", no_orchestrator),
    ORCHESTRATOR.command("orch ls", "List services known to orchestrator", "r", no_orchestrator),
    ORCHESTRATOR.command("orch ps", "List daemons known to orchestrator", "r", no_orchestrator),
    ORCHESTRATOR.command("orch host ls", "List hosts", "r", no_orchestrator),
    ORCHESTRATOR.command("orch device ls", "List devices on a host", "r", no_orchestrator),
];

/// What a command is answered whose module is not among those that are switched on; most always are.
///
/// Source: DaemonServer::_handle_command.
pub(super) fn switched_off(on: Option<&BTreeSet<String>>, prefix: &str) -> Option<Reply> {
    let module = match prefix {
        "iostat" => "iostat",
        "healthcheck history ls" | "healthcheck history clear" | "prometheus file_sd_config" => "prometheus",
        _ => return None,
    };
    let text = format!(
        "Module '{module}' is not enabled (required by command '{prefix}'): use `ceph mgr module enable {module}` to \
         enable it"
    );
    on.filter(|on| !on.contains(module)).map(|_| Reply::error(Errno::EOPNOTSUPP, text))
}

/// There are no file systems. Source: handle_fs_status in src/pybind/mgr/status/module.py.
fn no_orchestrator(_: &mut Ctx<'_>) -> Reply {
    Reply::error(Errno::ENOENT, "No orchestrator configured (try `ceph orch set backend`)")
}

fn iostat(ctx: &mut Ctx<'_>) -> Reply {
    let (span, d) = ctx.pgs.growth().unwrap_or((Duration::from_secs(1), ObjectStatSum::default()));
    let rate = |n: i64| (n.max(0) as f64 / span.as_secs_f64()) as i64;
    let (read, write) = (rate(d.num_rd_kb) << 10, rate(d.num_wr_kb) << 10);
    let (reads, writes) = (rate(d.num_rd), rate(d.num_wr));
    let width = ctx.args.int("width").and_then(|w| usize::try_from(w).ok()).unwrap_or(80).min(1_000);
    let column = width / 6;
    let row = |cells: [String; 6]| {
        let cells = cells.map(|c| format!("{c:>w$} |", w = column.saturating_sub(2)));
        format!("|{}\n", cells.concat())
    };
    let mut out = String::new();
    if ctx.args.flag("print_header") {
        let line = format!("+{}\n", format!("{}+", "-".repeat(column.saturating_sub(1))).repeat(6));
        let names = ["Read", "Write", "Total", "Read IOPS", "Write IOPS", "Total IOPS"];
        out += &format!("{line}{}{line}", row(names.map(ToOwned::to_owned)));
    }
    let bytes = |v: i64| format!("{}B/s", iec(v));
    out += &row([
        bytes(read),
        bytes(write),
        bytes(read + write),
        reads.to_string(),
        writes.to_string(),
        (reads + writes).to_string(),
    ]);
    Reply::text(out)
}

/// Source: to_pretty_iec in src/pybind/mgr/mgr_module.py.
fn iec(v: i64) -> String {
    const UNITS: [(u32, &str); 6] = [(60, "Ei"), (50, "Pi"), (40, "Ti"), (30, "Gi"), (20, "Mi"), (10, "Ki")];
    let unit = UNITS.into_iter().find(|(bits, _)| i128::from(v) > 10i128 << bits);
    unit.map_or_else(|| format!("{v} "), |(bits, name)| format!("{} {name}", v >> bits))
}

/// Operations are those that the OSD served as primary.
fn osd_status(ctx: &mut Ctx<'_>) -> Reply {
    let crush = &ctx.map.crush;
    let bucket = ctx.args.text("bucket");
    let mut within: BTreeSet<i32> = BTreeSet::new();
    if let Some(pattern) = bucket {
        let matching = crush.buckets.iter().flatten().filter(|b| {
            crush.item_name(b.id).is_some_and(|name| matches(pattern.as_bytes(), name.as_bytes()))
        });
        let found: Vec<_> = matching.collect();
        if found.is_empty() {
            return Reply::error(Errno::ENOENT, format!("Bucket '{pattern}' not found"));
        }
        within.extend(found.iter().flat_map(|b| &b.items));
    }
    let mut table = PrettyTable::new(&[
        ("ID", true),
        ("HOST", false),
        ("USED", true),
        ("AVAIL", true),
        ("WR OPS", true),
        ("WR DATA", true),
        ("RD OPS", true),
        ("RD DATA", true),
        ("STATE", false),
    ]);
    let host_type = crush.type_id("host");
    for (id, osd) in ctx.map.existing_osds().filter(|(id, _)| bucket.is_none() || within.contains(&id.0)) {
        let fs = ctx.pgs.osds.get(&id).map(|r| r.stat.statfs);
        let host = host_type.and_then(|t| crush.parent_of_type(id.0, t)).and_then(|b| crush.item_name(b));
        let d = served(ctx, id);
        table.row([
            id.to_string(),
            fs.and(host).unwrap_or_default().to_owned(),
            of_bytes(fs.map_or(0.0, |f| (f.used_raw() >> 10 << 10) as f64), 5),
            of_bytes(fs.map_or(0.0, |f| (f.available >> 10 << 10) as f64), 5),
            dimless(d.writes, 5),
            of_bytes(d.written_bytes, 5),
            dimless(d.reads, 5),
            of_bytes(d.read_bytes, 5),
            states(osd),
        ]);
    }
    Reply::text(table.render())
}

/// Rates per second.
struct Served {
    reads: f64,
    read_bytes: f64,
    writes: f64,
    written_bytes: f64,
}

fn served(ctx: &Ctx<'_>, osd: OsdId) -> Served {
    let (span, d) = ctx.pgs.served(osd).unwrap_or((Duration::from_secs(1), ObjectStatSum::default()));
    let rate = |n: i64| n.max(0) as f64 / span.as_secs_f64();
    Served {
        reads: rate(d.num_rd),
        read_bytes: rate(d.num_rd_kb) * 1024.0,
        writes: rate(d.num_wr),
        written_bytes: rate(d.num_wr_kb) * 1024.0,
    }
}

/// `exists,up`.
fn states(osd: &Osd) -> String {
    join(maps::flags::osd_state::name_set(osd.state))
}

/// Shell patterns with `*` and `?`.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    // Where to go on when a star has to take one more byte.
    let (mut p, mut t, mut star) = (0, 0, None);
    while let Some(c) = text.get(t) {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(w) if *w == b'?' || w == c => {
                p += 1;
                t += 1;
            }
            _ => match star {
                Some((at, from)) => {
                    star = Some((at, from + 1));
                    p = at + 1;
                    t = from + 1;
                }
                None => return false,
            },
        }
    }
    pattern.get(p..).is_some_and(|rest| rest.iter().all(|b| *b == b'*'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_a_shell() {
        let check =
            |p: &str, t: &str, want: bool| assert_eq!(matches(p.as_bytes(), t.as_bytes()), want, "{p} {t}");
        check("default", "default", true);
        check("def", "default", false);
        check("d*t", "default", true);
        check("*", "", true);
        check("h?st*", "host12", true);
        check("*a*b", "xaxxbxb", true);
        check("*a*b", "xaxxbx", false);
        check("?", "", false);
    }

    #[test]
    fn rates_have_binary_units() {
        assert_eq!([0, 10_240, 10_241, 20 << 20].map(iec), ["0 ", "10240 ", "10 Ki", "20 Mi"]);
    }
}

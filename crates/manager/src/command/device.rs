//! `device ...`: the disks below daemons, what they tell of their health, and when each is expected to fail.
//!
//! Source: DaemonServer::_handle_command in src/mgr/DaemonServer.cc, src/pybind/mgr/devicehealth/module.py.

use monitor::command::Reply;
use monitor::text::table::TextTable;
use serde_json::{Value, json};
use types::{Errno, OsdId, Utime};

use super::daemon::pretty;
use crate::command::{Command, Ctx, Module};
use crate::daemons::DaemonKey;
use crate::device_health::{self, Ask};
use crate::devices::{self, Change, Device};
use crate::mon_commands::MonRequest;
use crate::outcome::Then;
use crate::times;

/// One of them is a module's.
const ORCHESTRATOR: Module = Module("orchestrator");

pub(super) const COMMANDS: &[Command] = &[
    Command::new("device ls", "Show devices", "mgr", "r", |ctx| {
        let headings = ["DEVICE", "HOST:DEV", "DAEMONS", "WEAR", "LIFE EXPECTANCY"];
        list(
            ctx,
            &headings,
            |_, _| true,
            |d, now| vec![hosts(d), daemons(d), d.wear_text(), d.life_expectancy(now)],
        )
    }),
    Command::new(
        "device info name=devid,type=CephString",
        "Show information about a device",
        "mgr",
        "r",
        info,
    ),
    Command::new(
        "device ls-by-daemon name=who,type=CephString",
        "Show devices associated with a daemon",
        "mgr",
        "r",
        by_daemon,
    ),
    Command::new(
        "device ls-by-host name=host,type=CephString",
        "Show devices on a host",
        "mgr",
        "r",
        by_host,
    ),
    ORCHESTRATOR.command("device ls-lights", "List currently active device indicator lights", "r", |ctx| {
        Reply::json(pretty(ctx), &json!({ "fault": [], "ident": [] }))
    }),
    Command::new(
        "device set-life-expectancy name=devid,type=CephString name=from,type=CephString \
         name=to,type=CephString,req=false",
        "Set predicted device life expectancy",
        "mgr",
        "rw",
        expect,
    ),
    Command::new(
        "device rm-life-expectancy name=devid,type=CephString",
        "Clear predicted device life expectancy",
        "mgr",
        "rw",
        expect_nothing,
    ),
];

const MODULE: Module = Module("devicehealth");

/// Commands of the module of Ceph's manager that looks after disks' health.
pub(super) const HEALTH: &[Command] = &[
    MODULE.command(
        "device query-daemon-health-metrics name=who,type=CephString",
        "Get device health metrics for a given daemon",
        "r",
        |ctx| match daemon(ctx) {
            Ok(osd) => ctx.ask_disks(Ask::Query(osd)),
            Err(refusal) => refusal,
        },
    ),
    MODULE.command(
        "device scrape-daemon-health-metrics name=who,type=CephString",
        "Scrape and store device health metrics for a given daemon",
        "r",
        |ctx| match daemon(ctx) {
            Ok(osd) => ctx.ask_disks(Ask::Scrape { osds: vec![osd], of: None }),
            Err(refusal) => refusal,
        },
    ),
    MODULE.command(
        "device scrape-health-metrics name=devid,type=CephString,req=false",
        "Scrape and store device health metrics",
        "r",
        scrape,
    ),
    MODULE.command(
        "device get-health-metrics name=devid,type=CephString name=sample,type=CephString,req=false",
        "Show stored device metrics for the device",
        "r",
        |ctx| {
            let of = ctx.args.text_or_empty("devid").to_owned();
            let sample = ctx.args.text("sample").filter(|sample| !sample.is_empty()).map(str::to_owned);
            match ctx.devices.get(&of) {
                Some(_) => ctx.ask_disks(Ask::Show { of, sample }),
                None => not_found(&of),
            }
        },
    ),
    MODULE.command("device check-health", "Check life expectancy of devices", "rw", |ctx| {
        ctx.ask_disks(Ask::Check)
    }),
    MODULE.command("device monitoring on", "Enable device health monitoring", "rw", |ctx| monitor(ctx, true)),
    MODULE.command("device monitoring off", "Disable device health monitoring", "rw", |ctx| {
        monitor(ctx, false)
    }),
    MODULE.command(
        "device predict-life-expectancy name=devid,type=CephString",
        "Predict life expectancy with local predictor",
        "r",
        |ctx| {
            let mode = ctx.options.get("device_failure_prediction_mode").unwrap_or_default();
            let why = match mode.to_ascii_lowercase().as_str() {
                "local" => "unable to invoke diskprediction local or remote plugin",
                _ => "unable to enable any disk prediction model[local/cloud]",
            };
            Reply::error(Errno::EPERM, why)
        },
    ),
];

/// Whether a command wants to know which disks there are.
pub(super) fn is_of_disks(prefix: &str) -> bool {
    let mut words = prefix.split_whitespace();
    words.next() == Some("device") && words.next().is_some_and(|word| word != "ls-lights")
}

/// The OSD that is named. Source: Module.is_valid_daemon_name.
fn daemon(ctx: &Ctx<'_>) -> Result<OsdId, Reply> {
    let who = ctx.args.text_or_empty("who");
    match who.split_once('.') {
        Some(("osd", id)) => {
            let osd = id.parse().ok().map(OsdId).filter(|osd| ctx.map.is_up(*osd));
            osd.ok_or_else(|| Reply::error(Errno::ENXIO, format!("{who} is not up")))
        }
        Some(("mon", _)) => {
            Err(Reply::error(Errno::EOPNOTSUPP, "monitors are not asked for their disks: OSDs are"))
        }
        _ => Err(Reply::error(Errno::EINVAL, "not a valid mon or osd daemon name")),
    }
}

fn scrape(ctx: &mut Ctx<'_>) -> Reply {
    let Some(id) = ctx.args.text("devid").filter(|id| !id.is_empty()) else {
        let up = ctx.map.existing_osds().filter(|(_, osd)| osd.is_up());
        let osds = up.map(|(id, _)| id).collect();
        return ctx.ask_disks(Ask::Scrape { osds, of: None });
    };
    let Some(device) = ctx.devices.get(id) else { return not_found(id) };
    let first = device.daemons.iter().find_map(|name| name.strip_prefix("osd.")?.parse().ok());
    match first {
        Some(osd) => {
            let of = Some(id.to_owned());
            ctx.ask_disks(Ask::Scrape { osds: vec![OsdId(osd)], of })
        }
        None => Reply::error(Errno::EAGAIN, format!("device {id} not claimed by any active daemons")),
    }
}

fn not_found(id: &str) -> Reply {
    Reply::error(Errno::ENOENT, format!("device {id} not found"))
}

/// Has the monitors keep the setting; it counts here when they do.
fn monitor(ctx: &mut Ctx<'_>, on: bool) -> Reply {
    let request = MonRequest::set_option("mgr", device_health::ENABLED, if on { "true" } else { "false" });
    ctx.ask_monitors_for_all(vec![request], Reply::ok(), Then::DeviceMonitoring(on))
}

/// The devices that `which` names: their id, and what `cells` gives of each.
fn list(
    ctx: &Ctx<'_>,
    headings: &[&str],
    which: impl Fn(&str, &Device) -> bool,
    cells: impl Fn(&Device, Utime) -> Vec<String>,
) -> Reply {
    let all = || ctx.devices.all().filter(|(id, device)| which(id, device));
    let plain = || {
        let mut table = headings.iter().fold(TextTable::new(), |t, h| t.left(h));
        for (id, device) in all() {
            table.row([vec![id.clone()], cells(device, ctx.now.wall)].concat());
        }
        table.render()
    };
    Reply::show(ctx.format, plain, || all().map(|(id, device)| device.value(id)).collect::<Value>())
}

fn hosts(device: &Device) -> String {
    device.locations.iter().map(|(host, dev, _)| format!("{host}:{dev}")).collect::<Vec<_>>().join(" ")
}

fn daemons(device: &Device) -> String {
    device.daemons.iter().map(String::as_str).collect::<Vec<_>>().join(" ")
}

fn by_daemon(ctx: &mut Ctx<'_>) -> Reply {
    let who = ctx.args.text_or_empty("who");
    match DaemonKey::parse(who).map(|key| ctx.daemons.get(&key).is_some()) {
        Some(true) => {
            let headings = ["DEVICE", "HOST:DEV", "EXPECTED FAILURE"];
            let cells = |d: &Device, now: Utime| vec![hosts(d), d.life_expectancy(now)];
            list(ctx, &headings, |_, device| device.daemons.contains(who), cells)
        }
        Some(false) => Reply::error(Errno::ENOENT, format!("daemon {who} not found")),
        None => Reply::error(Errno::EINVAL, format!("{who} is not a valid daemon name")),
    }
}

fn by_host(ctx: &mut Ctx<'_>) -> Reply {
    let host = ctx.args.text_or_empty("host");
    let there = |d: &Device| {
        d.locations.iter().filter(|(h, _, _)| h == host).map(|(_, dev, _)| dev.clone()).collect()
    };
    let cells = |d: &Device, now: Utime| {
        let names: Vec<String> = there(d);
        vec![names.join(" "), daemons(d), d.life_expectancy(now)]
    };
    let headings = ["DEVICE", "DEV", "DAEMONS", "EXPECTED FAILURE"];
    list(ctx, &headings, |_, device| device.locations.iter().any(|(h, _, _)| h == host), cells)
}

fn info(ctx: &mut Ctx<'_>) -> Reply {
    let id = ctx.args.text_or_empty("devid");
    match ctx.devices.get(id) {
        Some(device) => Reply::show(ctx.format, || device.text(id), || device.value(id)),
        None => not_found(id),
    }
}

/// Also of a device that nobody knows: whoever predicts failures may see it before its daemon reports it.
fn expect(ctx: &mut Ctx<'_>) -> Reply {
    let id = ctx.args.text_or_empty("devid").to_owned();
    let time = |name: &str| {
        let text = ctx.args.text_or_empty(name);
        times::parse(text)
            .ok_or_else(|| Reply::error(Errno::EINVAL, format!("unable to parse datetime '{text}'")))
    };
    let from = match time("from") {
        Ok(from) => from,
        Err(refusal) => return refusal,
    };
    let to = match ctx.args.text("to").filter(|to| !to.is_empty()).map(|_| time("to")).transpose() {
        Ok(to) => to,
        Err(refusal) => return refusal,
    };
    if id.is_empty() || id.len() > devices::MAX_ID_BYTES {
        let most = devices::MAX_ID_BYTES;
        return Reply::error(Errno::EINVAL, format!("a device's id has 1 to {most} bytes"));
    }
    if ctx.devices.get(&id).is_none() && ctx.devices.is_full() {
        return Reply::error(Errno::ENOSPC, "too many devices are known");
    }
    let device = ctx.devices.get(&id).cloned().unwrap_or_default();
    keep(ctx, (id, device.expecting(from, to, ctx.now.wall)))
}

fn expect_nothing(ctx: &mut Ctx<'_>) -> Reply {
    let id = ctx.args.text_or_empty("devid").to_owned();
    match ctx.devices.get(&id).map(Device::expecting_nothing) {
        Some(kept) => keep(ctx, (id, kept)),
        None => Reply::ok(),
    }
}

/// Has the monitors keep what is said of a device; it counts when they do.
fn keep(ctx: &mut Ctx<'_>, change: Change) -> Reply {
    ctx.ask_monitors_for_all(vec![devices::request(&change)], Reply::ok(), Then::Device(change))
}

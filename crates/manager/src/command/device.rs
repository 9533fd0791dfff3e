//! `device ...`: the disks below daemons, and when each is expected to fail.
//!
//! Source: DaemonServer::_handle_command in src/mgr/DaemonServer.cc.

use monitor::command::Reply;
use monitor::text::table::TextTable;
use serde_json::{Value, json};
use types::{Errno, Utime};

use super::daemon::pretty;
use crate::command::{Command, Ctx, Module};
use crate::daemons::DaemonKey;
use crate::devices::{self, Change, Device};
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
        None => Reply::error(Errno::ENOENT, format!("device {id} not found")),
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

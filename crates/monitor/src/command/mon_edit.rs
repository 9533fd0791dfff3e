//! Adding and removing monitors.
//!
//! Source: MonmapMonitor::prepare_command.

use codec::Encode;
use maps::{MonInfo, MonMap};
use types::{AddrKind, AddrVec, EntityAddr, Errno, Now};

use super::mon_place::parse_location;
use crate::command::{Access, Command, Reply, WriteCtx, flags, write};
use crate::monitor::Monitor;
use crate::proposal::Batch;
use crate::state::Change;

/// What changes something here, and needs.
pub(super) const WRITES: Access = Access { module: "mon", perm: "rw" };

pub(super) const COMMANDS: &[Command] = &[
    write(
        WRITES,
        "mon add name=name,type=CephString name=addr,type=CephIPAddr \
         name=location,type=CephString,n=N,goodchars=[A-Za-z0-9-_.=],req=false",
        "add new monitor named <name> at <addr>, possibly with CRUSH location <location>",
        flags::NONE,
        add,
    ),
    write(WRITES, "mon rm name=name,type=CephString", "remove monitor named <name>", flags::NONE, remove),
    write(
        WRITES,
        "mon remove name=name,type=CephString",
        "remove monitor named <name>",
        flags::DEPRECATED,
        remove,
    ),
];

/// The usual port for msgr2, and the one of the older protocol. Source: CEPH_MON_PORT_* in src/include/msgr.h.
const PORT: u16 = 3_300;
const LEGACY_PORT: u16 = 6_789;

fn add(ctx: &mut WriteCtx<'_>) -> Reply {
    let (name, text) = (ctx.args.text_or_empty("name").to_owned(), ctx.args.text_or_empty("addr").to_owned());
    let Some(mut addr) = parse_addr(&text) else {
        return Reply::error(Errno::EINVAL, format!("addr {text}does not parse"));
    };
    if let Some(socket) = addr.socket.as_mut() {
        // Only msgr2 is spoken here.
        if socket.port() == 0 || socket.port() == LEGACY_PORT {
            socket.set_port(PORT);
        }
    }
    if name.is_empty() || name.contains(|c: char| c.is_control() || c.is_whitespace()) {
        return Reply::error(Errno::EINVAL, format!("'{}' is no name for a monitor", name.escape_debug()));
    }
    if addr.socket.is_none_or(|s| s.ip().is_unspecified() || s.ip().is_multicast()) {
        return Reply::error(Errno::EINVAL, format!("nobody can reach mon.{name} at {addr}"));
    }
    let mut map = MonMap::clone(&ctx.state().monmap);
    let addrs = AddrVec::single(addr);
    if let Some(known) = map.mons.get(&name) {
        if known.addrs == addrs {
            return Reply::done(format!("mon.{name} at {addrs} already exists"));
        }
        let text = format!("mon.{name} already exists at address {}", known.addrs);
        return Reply::error(Errno::EEXIST, text);
    }
    if let Some(other) = map.ranked().find(|m| m.addrs.0.iter().any(|a| a.socket == addr.socket)) {
        return Reply::error(Errno::EEXIST, format!("mon.{} already exists at address {addr}", other.name));
    }
    let crush_loc = match parse_location(&ctx.args.list("location")) {
        Ok(location) => location,
        Err(refusal) => return refusal,
    };
    map.add(MonInfo { name: name.clone(), addrs: addrs.clone(), crush_loc, ..MonInfo::default() });
    propose(ctx, map);
    Reply::done(format!("adding mon.{name} at {addrs}"))
}

/// `1.2.3.4`, `1.2.3.4:3300`, `v2:1.2.3.4:3300/0`.
fn parse_addr(text: &str) -> Option<EntityAddr> {
    EntityAddr::parse(text, AddrKind::Msgr2).filter(|a| a.kind == AddrKind::Msgr2 && a.socket.is_some())
}

fn remove(ctx: &mut WriteCtx<'_>) -> Reply {
    let name = ctx.args.text_or_empty("name").to_owned();
    let mut map = MonMap::clone(&ctx.state().monmap);
    let Some(addrs) = map.mons.get(&name).map(|m| m.addrs.clone()) else {
        return Reply::done(format!("mon.{name} does not exist or has already been removed"));
    };
    if map.mons.len() == 1 {
        let text = format!("error: refusing removal of last monitor {name}");
        return Reply::error(Errno::EINVAL, text);
    }
    map.removed_ranks.clear();
    map.remove(&name);
    let left = map.mons.len();
    propose(ctx, map);
    Reply::done(format!("removing mon.{name} at {addrs}, there will be {left} monitors"))
}

pub(super) fn propose(ctx: &mut WriteCtx<'_>, map: MonMap) {
    let now = ctx.now;
    ctx.change(next(map, now));
}

/// The map as its next epoch.
fn next(mut map: MonMap, now: Now) -> Change {
    map.epoch = map.epoch.next();
    map.last_changed = now.wall;
    Change::MonMap(map.to_bytes())
}

impl Monitor {
    /// Leader: has the map say where monitors are that an operator has moved.
    pub(crate) fn move_monitors(&mut self, now: Now, batch: &mut Batch) {
        if self.settings.moved.is_empty() {
            return;
        }
        let mut map = MonMap::clone(&batch.state().monmap);
        for (name, addr) in &self.settings.moved {
            if let Some(known) = map.mons.get_mut(name) {
                known.addrs = AddrVec::single(*addr);
            }
        }
        if map.mons != batch.state().monmap.mons {
            batch.change(next(map, now));
        }
    }
}

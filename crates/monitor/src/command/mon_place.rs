//! Commands that change a monitor's entry in the map: addresses, weight, rank, location; required features.
//!
//! Ranks only order what is shown: Raft elects the leader. So `classic`, Ceph's usual one, is the only
//! strategy of elections that is accepted.
//!
//! Source: MonmapMonitor::prepare_command.

use std::collections::BTreeMap;

use maps::{MonMap, mon_features};
use types::{AddrKind, AddrVec, EntityAddr, Errno};

use super::mon_edit::{WRITES, propose};
use super::mon_show::majority;
use crate::command::{Command, Reply, WriteCtx, flags, write};
use crate::views;

pub(super) const COMMANDS: &[Command] = &[
    write(
        WRITES,
        "mon feature set name=feature_name,type=CephString \
         name=yes_i_really_mean_it,type=CephBool,req=false",
        "set provided feature on mon map",
        flags::NONE,
        feature_set,
    ),
    write(
        WRITES,
        "mon set-rank name=name,type=CephString name=rank,type=CephInt",
        "set the rank for the specified mon",
        flags::NONE,
        set_rank,
    ),
    write(
        WRITES,
        "mon set-addrs name=name,type=CephString name=addrs,type=CephString",
        "set the addrs (IPs and ports) a specific monitor binds to",
        flags::NONE,
        set_addrs,
    ),
    write(
        WRITES,
        "mon set-weight name=name,type=CephString name=weight,type=CephInt,range=0|65535",
        "set the weight for the specified mon",
        flags::NONE,
        set_weight,
    ),
    write(WRITES, "mon enable-msgr2", "enable the msgr2 protocol on port 3300", flags::NONE, enable_msgr2),
    write(
        WRITES,
        "mon set election_strategy name=strategy,type=CephString",
        "set the election strategy to use; choices classic, disallow, connectivity",
        flags::NONE,
        set_strategy,
    ),
    write(
        WRITES,
        "mon add disallowed_leader name=name,type=CephString",
        "prevent the named mon from being a leader",
        flags::NONE,
        disallow,
    ),
    write(
        WRITES,
        "mon rm disallowed_leader name=name,type=CephString",
        "allow the named mon to be a leader again",
        flags::NONE,
        disallow,
    ),
    write(
        WRITES,
        "mon set_location name=name,type=CephString \
         name=args,type=CephString,n=N,goodchars=[A-Za-z0-9-_.=]",
        "specify location <args> for the monitor <name>, using CRUSH bucket names",
        flags::NONE,
        set_location,
    ),
];

fn is_unknown(name: &str) -> Reply {
    Reply::error(Errno::ENOENT, format!("mon.{name} does not exist"))
}

/// The map, and the name that the command gives, of a monitor in it.
fn named(ctx: &WriteCtx<'_>) -> Result<(MonMap, String), Reply> {
    let name = ctx.args.text_or_empty("name").to_owned();
    let map = MonMap::clone(&ctx.state().monmap);
    if map.mons.contains_key(&name) { Ok((map, name)) } else { Err(is_unknown(&name)) }
}

fn feature_set(ctx: &mut WriteCtx<'_>) -> Reply {
    let name = ctx.args.text_or_empty("feature_name").to_owned();
    let Some(bit) = mon_features::bit(&name) else {
        return Reply::error(Errno::ENOENT, format!("unknown feature '{name}'"));
    };
    if !ctx.args.flag("yes_i_really_mean_it") {
        let text = format!(
            "please specify '--yes-i-really-mean-it' if you really, **really** want to set feature \
             'mon_feature_t([{name}])' in the monmap."
        );
        return Reply::error(Errno::EPERM, text);
    }
    let mut map = MonMap::clone(&ctx.state().monmap);
    if map.persistent_features & bit == 0 {
        map.persistent_features |= bit;
        propose(ctx, map);
    }
    Reply::done(format!("setting feature 'mon_feature_t([{name}])'"))
}

/// Unlike Ceph's, which answers 0 and does nothing, a rank beyond the map is refused.
fn set_rank(ctx: &mut WriteCtx<'_>) -> Reply {
    let (name, rank) = (ctx.args.text_or_empty("name").to_owned(), ctx.args.int("rank").unwrap_or(-1));
    let mut map = MonMap::clone(&ctx.state().monmap);
    let Some(old) = map.rank(&name) else {
        return Reply::error(Errno::ENOENT, format!("mon.{name} does not exist in monmap"));
    };
    let Some(new) = usize::try_from(rank).ok().filter(|new| *new < map.ranks.len()) else {
        let text = format!("there is no rank {rank}: the map has {} monitors", map.ranks.len());
        return Reply::error(Errno::EINVAL, text);
    };
    if new != old {
        let moved = map.ranks.remove(old);
        map.ranks.insert(new, moved);
        propose(ctx, map);
    }
    Reply::done("")
}

/// Unlike Ceph's, refused where the quorum would be lost before the monitor comes back at its new address.
fn set_addrs(ctx: &mut WriteCtx<'_>) -> Reply {
    let (mut map, name) = match named(ctx) {
        Ok(named) => named,
        Err(refusal) => return refusal,
    };
    let text = ctx.args.text_or_empty("addrs").to_owned();
    let Some(addr) = parse_addrs(&text) else {
        return Reply::error(Errno::EINVAL, format!("failed to parse addrs '{text}'"));
    };
    if addr.socket.is_none_or(|s| s.port() == 0) {
        let text = format!("monitor must bind to a non-zero port, not {addr}");
        return Reply::error(Errno::EINVAL, text);
    }
    if addr.kind != AddrKind::Msgr2 {
        return Reply::error(Errno::EINVAL, format!("only v2 is spoken here, not {addr}"));
    }
    if addr.socket.is_none_or(|s| s.ip().is_unspecified() || s.ip().is_multicast()) {
        return Reply::error(Errno::EINVAL, format!("nobody can reach mon.{name} at {addr}"));
    }
    let addrs = AddrVec::single(addr);
    let same = |m: &&maps::MonInfo| m.name != name && m.addrs.0.iter().any(|a| a.socket == addr.socket);
    if let Some(other) = map.ranked().find(same) {
        return Reply::error(Errno::EEXIST, format!("mon.{} already exists at address {addr}", other.name));
    }
    let count = map.mons.len();
    let Some(known) = map.mons.get_mut(&name).filter(|known| known.addrs != addrs) else {
        return Reply::done("");
    };
    let members = views::quorum_names(&ctx.state().monmap, &ctx.settings.quorum.members);
    if members.iter().filter(|member| **member != name).count() < majority(count) {
        let text = format!(
            "without mon.{name} there is no quorum until it comes back: start it with its new address, and it \
             changes the map itself"
        );
        return Reply::error(Errno::EBUSY, text);
    }
    known.addrs = addrs;
    propose(ctx, map);
    Reply::done("")
}

/// One address, alone or in brackets. Of a list, the one for msgr2.
fn parse_addrs(text: &str) -> Option<EntityAddr> {
    let inner = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')).unwrap_or(text);
    let one = |t: &str| EntityAddr::parse(t.trim(), AddrKind::Msgr2).filter(|a| a.socket.is_some());
    let all = match one(text) {
        Some(addr) => vec![addr],
        None => inner.split(',').map(one).collect::<Option<Vec<_>>>()?,
    };
    let mut addr = *all.iter().find(|a| a.kind == AddrKind::Msgr2).or(all.first())?;
    addr.nonce = 0;
    Some(addr)
}

fn set_weight(ctx: &mut WriteCtx<'_>) -> Reply {
    let (mut map, name) = match named(ctx) {
        Ok(named) => named,
        Err(refusal) => return refusal,
    };
    let Some(weight) = ctx.args.int("weight").and_then(|w| u16::try_from(w).ok()) else {
        return Reply::from(Errno::EINVAL);
    };
    if let Some(known) = map.mons.get_mut(&name).filter(|known| known.weight != weight) {
        known.weight = weight;
        propose(ctx, map);
    }
    Reply::done("")
}

/// Nothing is left to do: no address of a monitor here is of the older protocol.
fn enable_msgr2(_: &mut WriteCtx<'_>) -> Reply {
    Reply::done("")
}

fn set_strategy(ctx: &mut WriteCtx<'_>) -> Reply {
    match ctx.args.text_or_empty("strategy") {
        "classic" => Reply::done(""),
        "disallow" | "connectivity" => {
            Reply::error(Errno::EOPNOTSUPP, "these monitors elect by their log: only 'classic' is served")
        }
        other => {
            let text = format!("'{other}' is no strategy: classic, disallow or connectivity");
            Reply::error(Errno::EINVAL, text)
        }
    }
}

fn disallow(_: &mut WriteCtx<'_>) -> Reply {
    Reply::error(Errno::EINVAL, "You cannot disallow monitors in your current election mode")
}

fn set_location(ctx: &mut WriteCtx<'_>) -> Reply {
    let (mut map, name) = match named(ctx) {
        Ok(named) => named,
        Err(refusal) => return refusal,
    };
    let location = match parse_location(&ctx.args.list("args")) {
        Ok(location) => location,
        Err(refusal) => return refusal,
    };
    if let Some(known) = map.mons.get_mut(&name).filter(|known| known.crush_loc != location) {
        known.crush_loc = location;
        propose(ctx, map);
    }
    Reply::done("")
}

/// `datacenter=a` and more of such. Ceph takes the words up to the first that is none, if there is one.
pub(super) fn parse_location(words: &[String]) -> Result<BTreeMap<String, String>, Reply> {
    crush::parse_location(words.iter().map(String::as_str)).map(|l| l.into_iter().collect()).map_err(|_| {
        let text = format!(
            "We could not parse your input location to anything real; [{}] turned into an empty map!",
            words.join(",")
        );
        Reply::error(Errno::EINVAL, text)
    })
}

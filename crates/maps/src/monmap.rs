//! The monitor map: who the monitors are, where they listen, and which features they all have.
//!
//! Source: src/mon/MonMap.{h,cc}, src/mon/mon_types.h.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use codec::{Decode, DecodeError, Encode, Reader, Writer};
use serde_json::{Value, json};
use types::{AddrVec, Epoch, Fsid, Utime};

use crate::Release;
use crate::addrs::{addrvec_json, legacy_text, plain_text};
use crate::json::array;

/// Bits of what all monitors of a map must support. Source: ceph::features::mon in src/mon/mon_types.h.
pub mod mon_features {
    pub const KRAKEN: u64 = 1 << 0;
    pub const LUMINOUS: u64 = 1 << 1;
    pub const MIMIC: u64 = 1 << 2;
    pub const OSDMAP_PRUNE: u64 = 1 << 3;
    pub const NAUTILUS: u64 = 1 << 4;
    pub const OCTOPUS: u64 = 1 << 5;
    pub const PACIFIC: u64 = 1 << 6;
    pub const ELECTOR_PINGING: u64 = 1 << 7;
    /// What a new Pacific cluster requires.
    pub const ALL: u64 = 0xff;

    const NAMES: [&str; 8] =
        ["kraken", "luminous", "mimic", "osdmap-prune", "nautilus", "octopus", "pacific", "elector-pinging"];

    /// The bit of this name.
    pub fn bit(name: &str) -> Option<u64> {
        NAMES.iter().position(|n| *n == name).map(|i| 1 << i)
    }

    /// Names of the set bits.
    pub fn names(bits: u64) -> Vec<&'static str> {
        let set = (0..64).filter(|i| bits & (1 << i) != 0);
        set.map(|i| NAMES.get(i).copied().unwrap_or("unknown")).collect()
    }
}

/// One monitor. Source: mon_info_t.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MonInfo {
    pub name: String,
    pub addrs: AddrVec,
    /// Clients prefer monitors of a lower one.
    pub priority: u16,
    pub weight: u16,
    /// Where it stands, in CRUSH terms (`datacenter=a`).
    pub crush_loc: BTreeMap<String, String>,
}

/// The monitor map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MonMap {
    pub epoch: Epoch,
    pub fsid: Fsid,
    pub last_changed: Utime,
    pub created: Utime,
    /// Monitors by name.
    pub mons: BTreeMap<String, MonInfo>,
    /// Names by rank.
    pub ranks: Vec<String>,
    /// Ranks that went when this epoch began.
    pub removed_ranks: BTreeSet<i32>,
    /// Bits of [`mon_features`] that stay required for ever.
    pub persistent_features: u64,
    pub optional_features: u64,
    pub min_mon_release: Release,
    /// 1 classic (by rank), 2 with barred leaders, 3 by connectivity.
    pub election_strategy: u8,
    pub disallowed_leaders: BTreeSet<String>,
    pub stretch_mode: bool,
    pub tiebreaker_mon: String,
    pub stretch_marked_down_mons: BTreeSet<String>,
}

impl MonMap {
    /// A new cluster's map: epoch 1, ranks in the order given.
    pub fn new(fsid: Fsid, created: Utime, mons: impl IntoIterator<Item = (String, AddrVec)>) -> Self {
        let mut map = Self {
            epoch: Epoch(1),
            fsid,
            last_changed: created,
            created,
            mons: BTreeMap::new(),
            ranks: Vec::new(),
            removed_ranks: BTreeSet::new(),
            persistent_features: mon_features::ALL,
            optional_features: 0,
            min_mon_release: Release::PACIFIC,
            election_strategy: 1,
            disallowed_leaders: BTreeSet::new(),
            stretch_mode: false,
            tiebreaker_mon: String::new(),
            stretch_marked_down_mons: BTreeSet::new(),
        };
        for (name, addrs) in mons {
            map.add(MonInfo { name, addrs, ..MonInfo::default() });
        }
        map
    }

    /// Adds a monitor at the last rank; false when the name is taken.
    pub fn add(&mut self, info: MonInfo) -> bool {
        if self.mons.contains_key(&info.name) {
            return false;
        }
        self.ranks.push(info.name.clone());
        self.mons.insert(info.name.clone(), info);
        true
    }

    /// Removes a monitor; higher ranks move down. False when there is none of that name.
    pub fn remove(&mut self, name: &str) -> bool {
        let Some(rank) = self.rank(name) else { return false };
        self.mons.remove(name);
        self.ranks.remove(rank);
        self.disallowed_leaders.remove(name);
        self.removed_ranks.insert(rank as i32);
        true
    }

    pub fn rank(&self, name: &str) -> Option<usize> {
        self.ranks.iter().position(|n| n == name)
    }

    /// Monitors by rank.
    pub fn ranked(&self) -> impl Iterator<Item = &MonInfo> {
        self.ranks.iter().filter_map(|name| self.mons.get(name))
    }

    /// `ceph mon dump --format json` without the `quorum` that the monitor adds. Source: MonMap::dump.
    pub fn dump(&self) -> Value {
        let joined = |set: &BTreeSet<String>| set.iter().cloned().collect::<Vec<_>>().join(",");
        let removed: Vec<String> = self.removed_ranks.iter().map(ToString::to_string).collect();
        let mons = self.ranked().enumerate().map(|(rank, m)| {
            json!({
                "rank": rank,
                "name": m.name,
                "public_addrs": addrvec_json(&m.addrs),
                "addr": legacy_text(&m.addrs),
                "public_addr": legacy_text(&m.addrs),
                "priority": m.priority,
                "weight": m.weight,
                "crush_location": location_text(&m.crush_loc),
            })
        });
        json!({
            "epoch": self.epoch.0,
            "fsid": self.fsid.to_string(),
            "modified": gmtime(self.last_changed),
            "created": gmtime(self.created),
            "min_mon_release": self.min_mon_release.0,
            "min_mon_release_name": self.min_mon_release.name(),
            "election_strategy": self.election_strategy,
            // The stray colons are Ceph's.
            "disallowed_leaders: ": joined(&self.disallowed_leaders),
            "stretch_mode": self.stretch_mode,
            "tiebreaker_mon": self.tiebreaker_mon,
            "removed_ranks: ": removed.join(","),
            "features": {
                "persistent": mon_features::names(self.persistent_features),
                "optional": mon_features::names(self.optional_features),
            },
            "mons": array(mons),
        })
    }

    /// The short form in `ceph status --format json`. Source: MonMap::dump_summary.
    pub fn dump_summary(&self) -> Value {
        json!({
            "epoch": self.epoch.0,
            "min_mon_release_name": self.min_mon_release.name(),
            "num_mons": self.ranks.len(),
        })
    }

    /// `ceph mon dump` and `monmaptool --print`. Source: MonMap::print.
    pub fn print(&self) -> String {
        let mut out = format!(
            "epoch {}\nfsid {}\nlast_changed {}\ncreated {}\nmin_mon_release {} ({})\nelection_strategy: {}\n",
            self.epoch,
            self.fsid,
            self.last_changed,
            self.created,
            self.min_mon_release.0,
            self.min_mon_release,
            self.election_strategy
        );
        if self.stretch_mode {
            // 16.2.15 ends neither of the two as one would expect.
            let _ = writeln!(out, "stretch_mode_enabled 1\ntiebreaker_mon {}", self.tiebreaker_mon);
        }
        if !self.disallowed_leaders.is_empty() {
            let names: Vec<&str> = self.disallowed_leaders.iter().map(String::as_str).collect();
            let _ = writeln!(out, "disallowed_leaders {}", names.join(","));
        }
        for (rank, m) in self.ranked().enumerate() {
            let _ = write!(out, "{rank}: {} mon.{}", plain_text(&m.addrs), m.name);
            if !m.crush_loc.is_empty() {
                let _ = write!(out, "; crush_location {}", location_text(&m.crush_loc));
            }
            out.push('\n');
        }
        out
    }

    /// `e1: 1 mons at {a=v2:...}`. Source: MonMap::print_summary.
    pub fn summary(&self) -> String {
        let mons = self.mons.values().map(|m| format!("{}={}", m.name, plain_text(&m.addrs)));
        let mons: Vec<String> = mons.collect();
        format!("e{}: {} mons at {{{}}}", self.epoch, self.mons.len(), mons.join(","))
    }
}

fn location_text(location: &BTreeMap<String, String>) -> String {
    let pairs: Vec<String> = location.iter().map(|(k, v)| format!("{k}={v}")).collect();
    format!("{{{}}}", pairs.join(","))
}

/// The form with `Z` for UTC that only the monitor map uses. Source: utime_t::gmtime.
fn gmtime(t: Utime) -> String {
    t.to_string().replace("+0000", "Z")
}

impl Encode for MonInfo {
    fn encode(&self, w: &mut Writer) {
        let compat = if self.crush_loc.is_empty() { 1 } else { 4 };
        w.envelope(5, compat, |w| {
            self.name.encode(w);
            self.addrs.encode(w);
            w.u16(self.priority);
            w.u16(self.weight);
            self.crush_loc.encode(w);
        });
    }
}
impl Decode for MonInfo {
    const MIN_SIZE: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("mon_info_t", 5, |r, env| {
            let mut m = Self { name: String::decode(r)?, addrs: AddrVec::decode(r)?, ..Self::default() };
            if env.version >= 2 {
                m.priority = r.u16()?;
            }
            if env.version >= 4 {
                m.weight = r.u16()?;
            }
            if env.version >= 5 {
                m.crush_loc = Decode::decode(r)?;
            }
            Ok(m)
        })
    }
}

fn encode_features(bits: u64, w: &mut Writer) {
    w.envelope(1, 1, |w| w.u64(bits));
}

fn decode_features(r: &mut Reader) -> Result<u64, DecodeError> {
    r.envelope("mon_feature_t", 1, |r, _| r.u64())
}

impl Encode for MonMap {
    fn encode(&self, w: &mut Writer) {
        w.envelope(9, 6, |w| {
            self.fsid.encode(w);
            self.epoch.encode(w);
            self.last_changed.encode(w);
            self.created.encode(w);
            encode_features(self.persistent_features, w);
            encode_features(self.optional_features, w);
            self.mons.encode(w);
            self.ranks.encode(w);
            self.min_mon_release.encode(w);
            self.removed_ranks.encode(w);
            w.u8(self.election_strategy);
            self.disallowed_leaders.encode(w);
            self.stretch_mode.encode(w);
            self.tiebreaker_mon.encode(w);
            self.stretch_marked_down_mons.encode(w);
        });
    }
}

/// Reads the forms since Nautilus. Every rank must name a monitor.
impl Decode for MonMap {
    const MIN_SIZE: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("MonMap", 9, |r, env| {
            if env.version < 6 {
                return Err(DecodeError::Invalid { what: "MonMap version", value: env.version.into() });
            }
            let mut map = Self::new(Fsid::decode(r)?, Utime::ZERO, []);
            map.epoch = Epoch::decode(r)?;
            map.last_changed = Utime::decode(r)?;
            map.created = Utime::decode(r)?;
            map.persistent_features = decode_features(r)?;
            map.optional_features = decode_features(r)?;
            map.mons = Decode::decode(r)?;
            map.ranks = Decode::decode(r)?;
            if let Some(rank) = map.ranks.iter().position(|name| !map.mons.contains_key(name)) {
                return Err(DecodeError::Invalid { what: "MonMap rank", value: rank as u64 });
            }
            map.min_mon_release = if env.version >= 7 { Release::decode(r)? } else { Release::NAUTILUS };
            if env.version >= 8 {
                map.removed_ranks = Decode::decode(r)?;
                map.election_strategy = r.u8()?;
                map.disallowed_leaders = Decode::decode(r)?;
            }
            if env.version >= 9 {
                map.stretch_mode = bool::decode(r)?;
                map.tiebreaker_mon = Decode::decode(r)?;
                map.stretch_marked_down_mons = Decode::decode(r)?;
            }
            Ok(map)
        })
    }
}

//! The manager map: which manager is active, which stand by, and what modules they have.
//!
//! Source: src/mon/MgrMap.h; version 12 of the wire form as 16.2.15 writes it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use codec::{Decode, DecodeError, Encode, Reader, Writer};
use serde_json::{Value, json};
use types::{AddrVec, Epoch, Utime};

use crate::Release;
use crate::addrs::{addr_json, addrvec_json, legacy_text};
use crate::json::{array, object, strings};
use crate::timespan::timespan_text;

/// A setting of a manager module.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ModuleOption {
    pub name: String,
    /// Index into the names of [`ModuleOption::kind_name`].
    pub kind: u8,
    /// 0 basic, 1 advanced, 2 dev.
    pub level: u8,
    pub flags: u32,
    pub default_value: String,
    pub min: String,
    pub max: String,
    pub enum_allowed: BTreeSet<String>,
    pub desc: String,
    pub long_desc: String,
    pub tags: BTreeSet<String>,
    pub see_also: BTreeSet<String>,
}

codec::wire_struct!(ModuleOption(1, 1) {
    name, kind, level, flags, default_value, min, max, enum_allowed, desc, long_desc, tags, see_also
});

impl ModuleOption {
    /// Source: Option::type_to_str in src/common/options.h.
    pub fn kind_name(&self) -> &'static str {
        const NAMES: [&str; 11] =
            ["uint", "int", "str", "float", "bool", "addr", "addrvec", "uuid", "size", "secs", "millisecs"];
        NAMES.get(usize::from(self.kind)).copied().unwrap_or("unknown")
    }

    pub fn level_name(&self) -> &'static str {
        ["basic", "advanced", "dev"].get(usize::from(self.level)).copied().unwrap_or("unknown")
    }

    fn dump(&self) -> Value {
        json!({
            "name": self.name,
            "type": self.kind_name(),
            "level": self.level_name(),
            "flags": self.flags,
            "default_value": self.default_value,
            "min": self.min,
            "max": self.max,
            "enum_allowed": self.enum_allowed,
            "desc": self.desc,
            "long_desc": self.long_desc,
            "tags": self.tags,
            "see_also": self.see_also,
        })
    }
}

/// A module that a manager has.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ModuleInfo {
    pub name: String,
    pub can_run: bool,
    /// Why it cannot.
    pub error_string: String,
    pub options: BTreeMap<String, ModuleOption>,
}

impl ModuleInfo {
    /// A module without settings that can run.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), can_run: true, ..Self::default() }
    }

    fn dump(&self) -> Value {
        json!({
            "name": self.name,
            "can_run": self.can_run,
            "error_string": self.error_string,
            "module_options": object(self.options.iter().map(|(k, o)| (k.as_str(), o.dump()))),
        })
    }
}

impl Encode for ModuleInfo {
    fn encode(&self, w: &mut Writer) {
        w.envelope(2, 1, |w| {
            self.name.encode(w);
            self.can_run.encode(w);
            self.error_string.encode(w);
            self.options.encode(w);
        });
    }
}
impl Decode for ModuleInfo {
    const MIN_SIZE: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("MgrMap::ModuleInfo", 2, |r, env| {
            Ok(Self {
                name: String::decode(r)?,
                can_run: bool::decode(r)?,
                error_string: String::decode(r)?,
                options: if env.version >= 2 { Decode::decode(r)? } else { BTreeMap::new() },
            })
        })
    }
}

/// A manager that waits to take over.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Standby {
    pub gid: u64,
    pub name: String,
    pub available_modules: Vec<ModuleInfo>,
    pub mgr_features: u64,
}

impl Encode for Standby {
    fn encode(&self, w: &mut Writer) {
        w.envelope(4, 1, |w| {
            w.u64(self.gid);
            self.name.encode(w);
            // Readers before Mimic want the names alone.
            let names: BTreeSet<&str> = self.available_modules.iter().map(|m| m.name.as_str()).collect();
            names.encode(w);
            self.available_modules.encode(w);
            w.u64(self.mgr_features);
        });
    }
}
impl Decode for Standby {
    const MIN_SIZE: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("MgrMap::StandbyInfo", 4, |r, env| {
            let (gid, name) = (r.u64()?, String::decode(r)?);
            if env.version < 3 {
                return Err(DecodeError::Invalid { what: "StandbyInfo version", value: env.version.into() });
            }
            BTreeSet::<String>::decode(r)?;
            Ok(Self {
                gid,
                name,
                available_modules: Decode::decode(r)?,
                mgr_features: if env.version >= 4 { r.u64()? } else { 0 },
            })
        })
    }
}

/// A client session of the active manager, to be blocklisted when it fails.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MgrClient {
    pub name: String,
    pub addrs: AddrVec,
}

/// The manager map.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MgrMap {
    pub epoch: Epoch,
    /// 0 when no manager is active.
    pub active_gid: u64,
    /// Where daemons and clients reach the active one; empty until it serves.
    pub active_addrs: AddrVec,
    /// Whether it serves.
    pub available: bool,
    pub active_name: String,
    pub active_change: Utime,
    pub active_mgr_features: u64,
    /// By global id.
    pub standbys: BTreeMap<u64, Standby>,
    /// Modules that are switched on.
    pub modules: BTreeSet<String>,
    /// URI by service.
    pub services: BTreeMap<String, String>,
    pub available_modules: Vec<ModuleInfo>,
    /// Modules that are always on, by release.
    pub always_on_modules: BTreeMap<u32, BTreeSet<String>>,
    pub last_failure_osd_epoch: Epoch,
    pub clients: Vec<MgrClient>,
}

impl MgrMap {
    /// What a new cluster has on without being asked. Source: the mgr_initial_modules setting and
    /// MgrMonitor::create_initial in src/mon/MgrMonitor.cc.
    pub fn initial() -> Self {
        let set = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<BTreeSet<_>>();
        let nautilus = [
            "balancer",
            "crash",
            "devicehealth",
            "orchestrator_cli",
            "progress",
            "rbd_support",
            "status",
            "volumes",
        ];
        let octopus = [
            "balancer",
            "crash",
            "devicehealth",
            "orchestrator",
            "pg_autoscaler",
            "progress",
            "rbd_support",
            "status",
            "telemetry",
            "volumes",
        ];
        let always_on_modules = [
            (u32::from(Release::NAUTILUS.0), set(&nautilus)),
            (u32::from(Release::OCTOPUS.0), set(&octopus)),
            (u32::from(Release::PACIFIC.0), set(&octopus)),
        ];
        Self {
            epoch: Epoch(1),
            modules: set(&["iostat", "nfs", "restful"]),
            always_on_modules: always_on_modules.into(),
            ..Self::default()
        }
    }

    /// `ceph mgr dump`. Source: MgrMap::dump.
    pub fn dump(&self) -> Value {
        let modules = |all: &[ModuleInfo]| array(all.iter().map(ModuleInfo::dump));
        let standbys = self.standbys.values().map(|s| {
            json!({
                "gid": s.gid,
                "name": s.name,
                "mgr_features": s.mgr_features,
                "available_modules": modules(&s.available_modules),
            })
        });
        let release = |r: u32| u8::try_from(r).map_or(Release::UNKNOWN, Release).name();
        let always_on = self.always_on_modules.iter().map(|(r, m)| (release(*r), array(m.iter().cloned())));
        let clients = self.clients.iter().map(
            |c| json!({ "name": c.name, "addrvec": c.addrs.0.iter().map(addr_json).collect::<Vec<_>>() }),
        );
        json!({
            "epoch": self.epoch.0,
            "active_gid": self.active_gid,
            "active_name": self.active_name,
            "active_addrs": addrvec_json(&self.active_addrs),
            "active_addr": legacy_text(&self.active_addrs),
            "active_change": self.active_change.to_string(),
            "active_mgr_features": self.active_mgr_features,
            "available": self.available,
            "standbys": array(standbys),
            "modules": self.modules,
            "available_modules": modules(&self.available_modules),
            "services": strings(&self.services),
            "always_on_modules": object(always_on),
            "last_failure_osd_epoch": self.last_failure_osd_epoch.0,
            "active_clients": array(clients),
        })
    }

    /// The short form in `ceph status --format json`. Source: MgrMap::print_summary.
    pub fn dump_summary(&self) -> Value {
        json!({
            "available": self.available,
            "num_standbys": self.standbys.len(),
            "modules": self.modules,
            "services": strings(&self.services),
        })
    }

    /// The line in `ceph status`: `x(active, since 5m), standbys: y`. Source: MgrMap::print_summary.
    pub fn summary(&self, now: Utime) -> String {
        let age = timespan_text(now.since(self.active_change));
        let mut out = String::new();
        if self.active_gid == 0 {
            out.push_str("no daemons active");
            if !self.active_change.is_zero() {
                let _ = write!(out, " (since {age})");
            }
        } else {
            let state = if self.available { "active" } else { "active, starting" };
            let _ = write!(out, "{}({state}", self.active_name);
            if !self.active_change.is_zero() {
                let _ = write!(out, ", since {age}");
            }
            out.push(')');
        }
        if !self.standbys.is_empty() {
            let names: Vec<&str> = self.standbys.values().map(|s| s.name.as_str()).collect();
            let _ = write!(out, ", standbys: {}", names.join(", "));
        }
        out
    }
}

impl Encode for MgrMap {
    fn encode(&self, w: &mut Writer) {
        w.envelope(12, 6, |w| {
            self.epoch.encode(w);
            self.active_addrs.encode(w);
            w.u64(self.active_gid);
            self.available.encode(w);
            self.active_name.encode(w);
            self.standbys.encode(w);
            self.modules.encode(w);
            self.services.encode(w);
            self.available_modules.encode(w);
            self.active_change.encode(w);
            self.always_on_modules.encode(w);
            w.u64(self.active_mgr_features);
            self.last_failure_osd_epoch.encode(w);
            w.count(self.clients.len());
            self.clients.iter().for_each(|c| c.addrs.encode(w));
            w.count(self.clients.len());
            self.clients.iter().for_each(|c| c.name.encode(w));
        });
    }
}

/// Reads the forms since Nautilus.
impl Decode for MgrMap {
    const MIN_SIZE: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("MgrMap", 12, |r, env| {
            if env.version < 6 {
                return Err(DecodeError::Invalid { what: "MgrMap version", value: env.version.into() });
            }
            let mut map = Self {
                epoch: Epoch::decode(r)?,
                active_addrs: AddrVec::decode(r)?,
                active_gid: r.u64()?,
                available: bool::decode(r)?,
                active_name: String::decode(r)?,
                standbys: Decode::decode(r)?,
                modules: Decode::decode(r)?,
                services: Decode::decode(r)?,
                available_modules: Decode::decode(r)?,
                ..Self::default()
            };
            if env.version >= 7 {
                map.active_change = Utime::decode(r)?;
            }
            if env.version >= 8 {
                map.always_on_modules = Decode::decode(r)?;
            }
            if env.version >= 9 {
                map.active_mgr_features = r.u64()?;
            }
            if env.version >= 10 {
                map.last_failure_osd_epoch = Epoch::decode(r)?;
            }
            if env.version >= 11 {
                let addrs: Vec<AddrVec> = Decode::decode(r)?;
                let mut names: Vec<String> = if env.version >= 12 { Decode::decode(r)? } else { Vec::new() };
                if env.version >= 12 && names.len() != addrs.len() {
                    return Err(DecodeError::Invalid { what: "MgrMap clients", value: names.len() as u64 });
                }
                names.resize(addrs.len(), String::new());
                map.clients =
                    names.into_iter().zip(addrs).map(|(name, addrs)| MgrClient { name, addrs }).collect();
            }
            Ok(map)
        })
    }
}

//! The managers: who is active, who stands by, and what each told of itself.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use codec::{Decode, Encode, wire_struct};
use maps::{MgrClient, MgrMap, ModuleOption, Standby};
use messages::mgr::{CommandDesc, ModuleInfo};
use messages::osd::RawEnvelope;
use types::{AddrVec, Epoch, Utime};

/// What the manager map is made from.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MgrState {
    pub epoch: Epoch,
    pub active: Option<MgrDaemon>,
    /// When `active` last became another one (or none).
    pub active_change: Utime,
    /// By global id.
    pub standbys: BTreeMap<u64, MgrDaemon>,
    /// The OSD map that blocklists the last failed manager.
    pub last_failure_osd_epoch: Epoch,
    /// Addresses of the active manager's services (`dashboard`, `prometheus`).
    pub services: BTreeMap<String, String>,
    /// Metadata by daemon name.
    pub metadata: BTreeMap<String, BTreeMap<String, String>>,
    /// What the managers' beacons offer.
    pub commands: Vec<CommandDesc>,
    /// Tickets for managers have Ceph's form, because the manager in charge opens no other.
    pub ceph_tickets: bool,
    /// Modules that are switched on; `None` for those of a new cluster.
    pub modules: Option<BTreeSet<String>>,
}
wire_struct!(MgrState(3, 1) {
    epoch, active, active_change, standbys, last_failure_osd_epoch, services, metadata, commands,
} since 2 { ceph_tickets } since 3 { modules });

impl MgrState {
    /// Modules that are switched on besides those that always are.
    pub fn enabled(&self) -> BTreeSet<String> {
        self.modules.clone().unwrap_or_else(|| MgrMap::initial().modules)
    }

    /// Of these, what the manager in charge does not stand for: somebody switched it on under a manager of
    /// Ceph's.
    pub(crate) fn unserved(&self) -> Vec<String> {
        let Some(active) = self.active.as_ref().filter(|a| !a.of_ceph) else { return Vec::new() };
        let usual = MgrMap::initial().modules;
        self.enabled().into_iter().filter(|m| !usual.contains(m) && !active.has_module(m)).collect()
    }

    /// The manager map.
    pub fn map(&self) -> MgrMap {
        let modules = |d: &MgrDaemon| d.modules.iter().map(module).collect::<Vec<_>>();
        let standby = |d: &MgrDaemon| Standby {
            gid: d.gid,
            name: d.name.clone(),
            available_modules: modules(d),
            mgr_features: d.features,
        };
        let mut map = MgrMap::initial();
        map.epoch = self.epoch;
        map.modules = self.enabled();
        map.active_change = self.active_change;
        map.standbys = self.standbys.iter().map(|(gid, d)| (*gid, standby(d))).collect();
        map.services.clone_from(&self.services);
        map.last_failure_osd_epoch = self.last_failure_osd_epoch;
        if let Some(active) = &self.active {
            map.active_gid = active.gid;
            map.active_addrs.clone_from(&active.addrs);
            map.available = active.available;
            map.active_name.clone_from(&active.name);
            map.active_mgr_features = active.features;
            map.available_modules = modules(active);
            let clients = active.clients.iter();
            map.clients =
                clients.map(|(name, addrs)| MgrClient { name: name.clone(), addrs: addrs.clone() }).collect();
        }
        map
    }

    pub fn map_bytes(&self) -> Bytes {
        self.map().to_bytes()
    }
}

fn module(m: &ModuleInfo) -> maps::ModuleInfo {
    let mut info = maps::ModuleInfo::new(m.name.clone());
    info.can_run = m.can_run;
    info.error_string.clone_from(&m.error);
    let option = |raw: &RawEnvelope| ModuleOption::from_bytes(raw.0.clone()).ok();
    info.options = m.options.iter().filter_map(|(name, raw)| Some((name.clone(), option(raw)?))).collect();
    info
}

/// One manager.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MgrDaemon {
    pub gid: u64,
    pub name: String,
    pub addrs: AddrVec,
    /// It answers commands.
    pub available: bool,
    pub features: u64,
    pub modules: Vec<ModuleInfo>,
    /// It is Ceph's, and not ours.
    pub of_ceph: bool,
    /// Clients that its modules opened, by name: they are shut out with it.
    pub clients: Vec<(String, AddrVec)>,
}
wire_struct!(MgrDaemon(2, 1) { gid, name, addrs, available, features, modules } since 2 { of_ceph, clients });

/// Modules that can be switched on and off and that managers of ours stand for.
const SERVED: [&str; 2] = ["dashboard", "iostat"];

impl MgrDaemon {
    /// Whether it has a module that can be switched on.
    pub(crate) fn has_module(&self, name: &str) -> bool {
        let of_old = !self.of_ceph && self.modules.is_empty() && SERVED.contains(&name);
        of_old || self.modules.iter().any(|m| m.name == name)
    }

    /// Why it cannot run a module that it has.
    pub(crate) fn cannot_run(&self, name: &str) -> Option<&str> {
        self.modules.iter().find(|m| m.name == name && !m.can_run).map(|m| m.error.as_str())
    }
}

/// A daemon of ours says so in its metadata, under this key; its value is our version.
const OURS: &str = "loligo";

/// Whether a daemon that says this of itself is Ceph's: whatever does not say that it is ours. Before they
/// had a key for it our daemons said it in their version.
pub(crate) fn is_of_ceph(metadata: &BTreeMap<String, String>) -> bool {
    let says = metadata.get("ceph_version").is_some_and(|version| version.contains("(loligo "));
    !metadata.contains_key(OURS) && !says
}

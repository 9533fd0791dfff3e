//! The managers: who is active, who stands by, and what each told of itself.

use std::collections::BTreeMap;

use codec::wire_struct;
use messages::mgr::ModuleInfo;
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
}
wire_struct!(MgrState(1, 1) {
    epoch, active, active_change, standbys, last_failure_osd_epoch, services, metadata,
});

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
}
wire_struct!(MgrDaemon(1, 1) { gid, name, addrs, available, features, modules });

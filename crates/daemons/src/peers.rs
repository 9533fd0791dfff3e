//! Sessions that a daemon opens to other daemons: one per OSD, one to the active manager.

use std::collections::BTreeMap;
use std::sync::Arc;

use maps::MgrMap;
use msgr::{Peer, Policy};
use runtime::net::{ConnectTo, Messenger};
use types::{AddrVec, ConnId, EntityName, EntityType, OsdId};

use runtime::session::SharedAuth;

/// What an outgoing connection leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    Osd(OsdId),
    Mgr,
}

/// The table of outgoing sessions.
pub struct Peers {
    messenger: Messenger,
    auth: Arc<SharedAuth>,
    osds: BTreeMap<OsdId, (ConnId, AddrVec)>,
    mgr: Option<(ConnId, AddrVec)>,
    mgr_addrs: AddrVec,
}

impl Peers {
    pub fn new(messenger: Messenger, auth: Arc<SharedAuth>) -> Self {
        Self { messenger, auth, osds: BTreeMap::new(), mgr: None, mgr_addrs: AddrVec::default() }
    }

    /// The session to an OSD at `addrs`, opened when there is none to that address yet.
    pub fn osd(&mut self, osd: OsdId, addrs: &AddrVec) -> Option<ConnId> {
        if let Some((conn, at)) = self.osds.get(&osd) {
            if at == addrs {
                return Some(*conn);
            }
            self.drop_osd(osd);
        }
        let peer = Peer { name: EntityName::osd(osd.0), addrs: addrs.clone() };
        let conn = self.open(peer, EntityType::Osd, Policy::lossless_client())?;
        self.osds.insert(osd, (conn, addrs.clone()));
        Some(conn)
    }

    pub fn drop_osd(&mut self, osd: OsdId) {
        if let Some((conn, _)) = self.osds.remove(&osd) {
            self.messenger.close(conn);
        }
    }

    /// A new manager map: the session follows the active manager.
    pub fn mgr_map(&mut self, map: &MgrMap) {
        if map.active_addrs != self.mgr_addrs {
            if let Some((conn, _)) = self.mgr.take() {
                self.messenger.close(conn);
            }
            self.mgr_addrs = map.active_addrs.clone();
        }
        self.reach_mgr();
    }

    /// The session to the manager, opened (again) when the map names one.
    pub fn reach_mgr(&mut self) {
        if self.mgr.is_none() && !self.mgr_addrs.is_empty() {
            let addrs = self.mgr_addrs.clone();
            let peer = Peer { name: EntityName::new(EntityType::Mgr, -1), addrs: addrs.clone() };
            self.mgr = self.open(peer, EntityType::Mgr, Policy::lossy_client()).map(|conn| (conn, addrs));
        }
    }

    pub fn mgr(&self) -> Option<ConnId> {
        self.mgr.as_ref().map(|(conn, _)| *conn)
    }

    pub fn target(&self, conn: ConnId) -> Option<Target> {
        if self.mgr() == Some(conn) {
            return Some(Target::Mgr);
        }
        self.osds.iter().find(|(_, (c, _))| *c == conn).map(|(osd, _)| Target::Osd(*osd))
    }

    /// A lossy session ended.
    pub fn gone(&mut self, conn: ConnId) {
        if self.mgr() == Some(conn) {
            self.mgr = None;
        }
    }

    fn open(&self, peer: Peer, service: EntityType, policy: Policy) -> Option<ConnId> {
        let addr = peer.addrs.msgr2()?;
        let auth = Arc::clone(&self.auth);
        let factory = Arc::new(move || auth.to_service(service));
        Some(self.messenger.connect(ConnectTo { peer, addr, policy, auth: factory }))
    }
}

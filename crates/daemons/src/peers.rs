//! Sessions that a daemon opens to other daemons: those to each OSD, one to the active manager.

use std::collections::BTreeMap;
use std::sync::Arc;

use maps::{MgrMap, OsdMap};
use msgr::{Peer, Policy};
use pg::HeartbeatNet;
use runtime::net::{ConnectTo, Messenger};
use types::{AddrVec, ConnId, EntityName, EntityType, OsdId};

use runtime::session::SharedAuth;

/// Pings without an answer before a session is opened anew: after a cut, TCP itself may wait as long as the
/// cut was.
const UNANSWERED: u32 = 3;

/// What an outgoing connection leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    Osd(OsdId),
    Heartbeat(OsdId, HeartbeatNet),
    Mgr,
}

/// Sessions of different kinds to one OSD; each has an address of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Way {
    Data,
    Heartbeat(HeartbeatNet),
}

#[derive(Debug)]
struct Open {
    conn: ConnId,
    at: AddrVec,
    /// Pings since the last answer.
    unanswered: u32,
}

/// The addresses that this process states on its sessions; empty where it has but one.
#[derive(Debug, Clone, Default)]
pub struct OwnAddrs {
    pub cluster: AddrVec,
    pub heartbeat_front: AddrVec,
    pub heartbeat_back: AddrVec,
}

/// The table of outgoing sessions.
pub struct Peers {
    messenger: Messenger,
    auth: Arc<SharedAuth>,
    own: OwnAddrs,
    osds: BTreeMap<(OsdId, Way), Open>,
    targets: BTreeMap<ConnId, Target>,
    mgr: Option<ConnId>,
    mgr_addrs: AddrVec,
}

impl Peers {
    pub fn new(messenger: Messenger, auth: Arc<SharedAuth>, own: OwnAddrs) -> Self {
        let (osds, targets) = (BTreeMap::new(), BTreeMap::new());
        Self { messenger, auth, own, osds, targets, mgr: None, mgr_addrs: AddrVec::default() }
    }

    pub fn own(&self) -> &OwnAddrs {
        &self.own
    }

    /// The session to an OSD at its address of the map, opened when there is none to that address yet.
    pub fn osd(&mut self, osd: OsdId, map: &OsdMap) -> Option<ConnId> {
        let at = &map.osd(osd.0)?.cluster_addrs;
        let from = self.own.cluster.clone();
        self.session((osd, Way::Data), at, from, Policy::lossless_client(), Target::Osd(osd))
    }

    /// The session for the next ping to an OSD.
    pub fn heartbeat(&mut self, osd: OsdId, net: HeartbeatNet, map: &OsdMap) -> Option<ConnId> {
        let o = map.osd(osd.0)?;
        // Those that name no address of their own answer at the usual ones.
        let (first, second, from) = match net {
            HeartbeatNet::Back => (&o.hb_back_addrs, &o.cluster_addrs, &self.own.heartbeat_back),
            HeartbeatNet::Front => (&o.hb_front_addrs, &o.client_addrs, &self.own.heartbeat_front),
        };
        let at = if first.msgr2().is_some() { first } else { second };
        let (key, from) = ((osd, Way::Heartbeat(net)), from.clone());
        if self.osds.get(&key).is_some_and(|open| open.unanswered >= UNANSWERED) {
            self.close(key);
        }
        let conn = self.session(key, at, from, Policy::lossy_client(), Target::Heartbeat(osd, net));
        if let Some(open) = self.osds.get_mut(&key) {
            open.unanswered += 1;
        }
        conn
    }

    /// A ping over that session was answered.
    pub fn answered(&mut self, osd: OsdId, net: HeartbeatNet) {
        if let Some(open) = self.osds.get_mut(&(osd, Way::Heartbeat(net))) {
            open.unanswered = 0;
        }
    }

    fn session(
        &mut self,
        key: (OsdId, Way),
        at: &AddrVec,
        from: AddrVec,
        policy: Policy,
        target: Target,
    ) -> Option<ConnId> {
        match self.osds.get(&key) {
            Some(open) if open.at == *at => return Some(open.conn),
            Some(_) => self.close(key),
            None => {}
        }
        let peer = Peer { name: EntityName::osd(key.0.0), addrs: at.clone() };
        let from = (!from.is_empty()).then_some(from);
        let conn = self.open(peer, EntityType::Osd, policy, from)?;
        self.osds.insert(key, Open { conn, at: at.clone(), unanswered: 0 });
        self.targets.insert(conn, target);
        Some(conn)
    }

    fn close(&mut self, key: (OsdId, Way)) {
        if let Some(open) = self.osds.remove(&key) {
            self.targets.remove(&open.conn);
            self.messenger.close(open.conn);
        }
    }

    pub fn drop_osd(&mut self, osd: OsdId) {
        for way in [Way::Data, Way::Heartbeat(HeartbeatNet::Back), Way::Heartbeat(HeartbeatNet::Front)] {
            self.close((osd, way));
        }
    }

    /// A new manager map: the session follows the active manager.
    pub fn mgr_map(&mut self, map: &MgrMap) {
        if map.active_addrs != self.mgr_addrs {
            if let Some(conn) = self.mgr.take() {
                self.targets.remove(&conn);
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
            let peer = Peer { name: EntityName::new(EntityType::Mgr, -1), addrs };
            self.mgr = self.open(peer, EntityType::Mgr, Policy::lossy_client(), None);
            self.targets.extend(self.mgr.map(|conn| (conn, Target::Mgr)));
        }
    }

    pub fn mgr(&self) -> Option<ConnId> {
        self.mgr
    }

    pub fn target(&self, conn: ConnId) -> Option<Target> {
        self.targets.get(&conn).copied()
    }

    /// A lossy session ended.
    pub fn gone(&mut self, conn: ConnId) {
        match self.targets.remove(&conn) {
            Some(Target::Mgr) => self.mgr = None,
            Some(Target::Heartbeat(osd, net)) => drop(self.osds.remove(&(osd, Way::Heartbeat(net)))),
            Some(Target::Osd(_)) | None => {}
        }
    }

    fn open(&self, peer: Peer, service: EntityType, policy: Policy, from: Option<AddrVec>) -> Option<ConnId> {
        let addr = peer.addrs.msgr2()?;
        let auth = Arc::clone(&self.auth);
        let factory = Arc::new(move || auth.to_service(service));
        Some(self.messenger.connect(ConnectTo { peer, addr, policy, auth: factory, from }))
    }
}

//! The objecter's connections: which session is which.

use std::collections::BTreeMap;
use std::sync::Arc;

use msgr::{Peer, Policy};
use objecter::{ServicePeer, SessionId};
use runtime::net::{ConnectTo, Messenger};
use runtime::session::SharedAuth;
use types::{AddrVec, ConnId, EntityName, EntityType};

/// See the module's documentation.
pub(super) struct Links {
    messenger: Messenger,
    auth: Arc<SharedAuth>,
    sessions: BTreeMap<ConnId, SessionId>,
    conns: BTreeMap<SessionId, ConnId>,
}

impl Links {
    pub(super) fn new(messenger: Messenger, auth: Arc<SharedAuth>) -> Self {
        Self { messenger, auth, sessions: BTreeMap::new(), conns: BTreeMap::new() }
    }

    pub(super) fn session(&self, conn: ConnId) -> Option<SessionId> {
        self.sessions.get(&conn).copied()
    }

    pub(super) fn conn(&self, session: SessionId) -> Option<ConnId> {
        self.conns.get(&session).copied()
    }

    pub(super) fn open(&mut self, session: SessionId, service: ServicePeer, addrs: AddrVec) {
        let (name, kind) = match service {
            ServicePeer::Osd(osd) => (EntityName::osd(osd), EntityType::Osd),
            ServicePeer::Mgr => (EntityName::new(EntityType::Mgr, -1), EntityType::Mgr),
        };
        // Without a msgr2 address the attempt fails, and a later map may name one.
        let addr = addrs.msgr2().unwrap_or_default();
        let auth = Arc::clone(&self.auth);
        let factory = Arc::new(move || auth.to_service(kind));
        let peer = Peer { name, addrs };
        let to = ConnectTo { peer, addr, policy: Policy::lossy_client(), auth: factory, from: None };
        let conn = self.messenger.connect(to);
        self.sessions.insert(conn, session);
        self.conns.insert(session, conn);
    }

    pub(super) fn close(&mut self, session: SessionId) {
        if let Some(conn) = self.conns.remove(&session) {
            self.sessions.remove(&conn);
            self.messenger.close(conn);
        }
    }

    /// The session of a connection that is over.
    pub(super) fn gone(&mut self, conn: ConnId) -> Option<SessionId> {
        let session = self.sessions.remove(&conn)?;
        self.conns.remove(&session);
        Some(session)
    }
}

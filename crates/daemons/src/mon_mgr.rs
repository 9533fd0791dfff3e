//! The session that a monitor opens to the manager in charge.

use std::sync::Arc;
use std::time::Duration;

use msgr::{Peer, Policy};
use runtime::net::{ClientAuth, ConnectTo, Messenger};
use types::{AddrVec, ConnId, EntityName, EntityType};

/// Between two attempts to reach the manager.
const RETRY: Duration = Duration::from_secs(1);

/// At most one session, to the manager that the map names.
#[derive(Debug, Default)]
pub struct MgrLink {
    conn: Option<ConnId>,
    at: AddrVec,
    /// When (monotonic) the last one was opened.
    tried: Option<Duration>,
}

impl MgrLink {
    pub fn conn(&self) -> Option<ConnId> {
        self.conn
    }

    /// Gives up a session to another manager than the one at `at`, or to none: it is to be closed.
    pub fn leads_elsewhere(&mut self, at: &AddrVec) -> Option<ConnId> {
        if self.at == *at {
            return None;
        }
        (self.at, self.tried) = (AddrVec::default(), None);
        self.conn.take()
    }

    /// Whether a session to the manager at `at` is to be opened now.
    pub fn may_open(&mut self, at: &AddrVec, now: Duration) -> bool {
        let early = self.tried.is_some_and(|tried| tried + RETRY > now);
        let open = self.conn.is_none() && !at.is_empty() && !early;
        if open {
            self.tried = Some(now);
        }
        open
    }

    pub fn open(
        &mut self,
        messenger: &Messenger,
        at: AddrVec,
        auth: impl Fn() -> Box<dyn ClientAuth> + Send + Sync + 'static,
    ) {
        self.at.clone_from(&at);
        let Some(addr) = at.msgr2() else { return };
        let peer = Peer { name: EntityName::new(EntityType::Mgr, -1), addrs: at };
        let policy = Policy::lossy_client();
        self.conn =
            Some(messenger.connect(ConnectTo { peer, addr, policy, auth: Arc::new(auth), from: None }));
    }

    /// Whether it was this session that has ended.
    pub fn gone(&mut self, conn: ConnId) -> bool {
        let ours = self.conn == Some(conn);
        if ours {
            self.conn = None;
        }
        ours
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_follows_the_manager_and_is_tried_again_after_a_while() {
        let (first, second) = (AddrVec::default(), AddrVec(vec![types::EntityAddr::default()]));
        let (mut link, secs) = (MgrLink::default(), Duration::from_secs);
        assert!(!link.may_open(&first, secs(1)), "there is none");
        assert!(link.may_open(&second, secs(1)));
        (link.conn, link.at) = (Some(ConnId(7)), second.clone());
        assert_eq!((link.leads_elsewhere(&second), link.may_open(&second, secs(9))), (None, false));
        assert!(!link.gone(ConnId(8)) && link.gone(ConnId(7)));
        assert!(link.may_open(&second, secs(2)) && !link.may_open(&second, secs(2)));
        link.conn = Some(ConnId(9));
        assert_eq!(link.leads_elsewhere(&first), Some(ConnId(9)));
        assert_eq!(link.conn(), None);
    }
}

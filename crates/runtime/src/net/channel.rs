//! A channel: what the daemon knows as one `ConnId`, whichever TCP connection carries it at the moment.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use messages::wire::WireMessage;
use msgr::Session;
use types::{AuthName, ConnId, EntityAddr};

use super::link::Link;
use super::{Gate, Identity};
use crate::owner::lock;

pub(super) struct Channel {
    pub(super) id: ConnId,
    /// Whether the peer connected to us.
    accepted: bool,
    /// Holds back this peer alone.
    pub(super) gate: Gate,
    state: Mutex<State>,
}

struct State {
    carrier: Carrier,
    /// Who an accepted peer has proven to be.
    identity: Option<Identity>,
    /// Who an accepted peer claims to be, before it has proven anything.
    claim: Option<AuthName>,
    peer_addr: EntityAddr,
}

/// Where the session is.
enum Carrier {
    /// A connection holds it (or will, when its handshake is through).
    Link(Arc<Link>),
    /// Between connections, since that monotonic time; messages queue up in it.
    Parked(Session, Duration),
    /// Over: nothing can be sent any more.
    Over,
}

impl Channel {
    pub(super) fn with_link(id: ConnId, link: Arc<Link>, peer_addr: EntityAddr) -> Self {
        Self::new(id, true, Carrier::Link(link), peer_addr)
    }

    pub(super) fn parked(id: ConnId, session: Session, since: Duration, peer_addr: EntityAddr) -> Self {
        Self::new(id, false, Carrier::Parked(session, since), peer_addr)
    }

    fn new(id: ConnId, accepted: bool, carrier: Carrier, peer_addr: EntityAddr) -> Self {
        let state = Mutex::new(State { carrier, identity: None, claim: None, peer_addr });
        Self { id, accepted, gate: Gate::default(), state }
    }

    pub(super) fn is_accepted(&self) -> bool {
        self.accepted
    }

    pub(super) fn link(&self) -> Option<Arc<Link>> {
        match &lock(&self.state).carrier {
            Carrier::Link(link) => Some(Arc::clone(link)),
            _ => None,
        }
    }

    /// Takes the session, wherever it is, and lets `carry` put it on a new link. `None`: the channel is over,
    /// or its session was lost with its link.
    ///
    /// All of it under the channel's lock, so that no message finds the channel without a session.
    pub(super) fn move_session(&self, carry: impl FnOnce(Session) -> Arc<Link>) -> Option<Arc<Link>> {
        let mut state = lock(&self.state);
        let session = match std::mem::replace(&mut state.carrier, Carrier::Over) {
            Carrier::Parked(session, _) => Some(session),
            Carrier::Link(old) => {
                let session = old.with(msgr::Connection::take_session);
                old.wake();
                session
            }
            Carrier::Over => None,
        }?;
        let link = carry(session);
        state.carrier = Carrier::Link(Arc::clone(&link));
        Some(link)
    }

    /// Calls `look` with the session, and with whether a connection holds it that is ready for messages.
    pub(super) fn with_session<T>(&self, look: impl FnOnce(&Session, bool) -> T) -> Option<T> {
        match &lock(&self.state).carrier {
            Carrier::Parked(session, _) => Some(look(session, false)),
            Carrier::Link(link) => link.with(|m| m.session().map(|s| look(s, m.is_ready()))),
            Carrier::Over => None,
        }
    }

    /// The connection `link` ended: its session waits for the next one. `false` when another connection
    /// carries the channel, or the session is gone.
    pub(super) fn park(&self, link: &Arc<Link>, now: Duration) -> bool {
        let mut state = lock(&self.state);
        match &state.carrier {
            Carrier::Link(held) if Arc::ptr_eq(held, link) => {}
            _ => return false,
        }
        let session = link.with(msgr::Connection::take_session);
        let parked = session.is_some();
        state.carrier = session.map_or(Carrier::Over, |s| Carrier::Parked(s, now));
        parked
    }

    /// For a parked session: since when (monotonic), and the bytes of messages queued in it.
    pub(super) fn waits(&self) -> Option<(Duration, usize)> {
        match &lock(&self.state).carrier {
            Carrier::Parked(session, since) => Some((*since, session.pending().1)),
            _ => None,
        }
    }

    /// Ends the channel; the link, if any, is left to its task.
    pub(super) fn end(&self) -> Option<Arc<Link>> {
        match std::mem::replace(&mut lock(&self.state).carrier, Carrier::Over) {
            Carrier::Link(link) => Some(link),
            _ => None,
        }
    }

    pub(super) fn is_over(&self) -> bool {
        matches!(lock(&self.state).carrier, Carrier::Over)
    }

    /// Sends or queues; the link that has to be flushed afterwards, if any.
    pub(super) fn send(&self, msg: WireMessage) -> Option<Arc<Link>> {
        let mut state = lock(&self.state);
        match &mut state.carrier {
            Carrier::Link(link) => {
                // A session that has ended meanwhile takes nothing; its end is on the way to the handler.
                link.send(msg).then(|| Arc::clone(link))
            }
            Carrier::Parked(session, _) => {
                session.push(msg);
                None
            }
            Carrier::Over => None,
        }
    }

    pub(super) fn set_identity(&self, identity: Identity) {
        lock(&self.state).identity = Some(identity);
    }

    pub(super) fn identity(&self) -> Option<Identity> {
        lock(&self.state).identity.clone()
    }

    pub(super) fn set_claim(&self, name: AuthName) {
        lock(&self.state).claim = Some(name);
    }

    pub(super) fn claim(&self) -> Option<AuthName> {
        lock(&self.state).claim.clone()
    }

    pub(super) fn peer_addr(&self) -> EntityAddr {
        lock(&self.state).peer_addr
    }
}

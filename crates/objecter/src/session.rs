//! Sessions with OSDs and the manager: opened when something has to go there, opened again when they break.

use std::time::Duration;

use messages::osd::{MOsdBackoff, backoff_op};
use types::AddrVec;

use crate::backoff::Backoffs;
use crate::core::Objecter;
use crate::io::{Effect, ServicePeer, SessionId};

/// One session.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) peer: ServicePeer,
    pub(crate) addrs: AddrVec,
    state: State,
    /// Before the next attempt.
    backoff: Duration,
    pub(crate) backoffs: Backoffs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// `Open` is out.
    Connecting,
    Ready,
    /// The last attempt failed; the next one at this monotonic time.
    Waiting(Duration),
}

impl Session {
    pub(crate) fn is_ready(&self) -> bool {
        self.state == State::Ready
    }

    pub(crate) fn retry_at(&self) -> Option<Duration> {
        match self.state {
            State::Waiting(at) => Some(at),
            State::Connecting | State::Ready => None,
        }
    }
}

impl Objecter {
    /// The session with a peer, opened when there is none. `None` when no map tells where the peer is.
    pub(crate) fn session_with(&mut self, peer: ServicePeer, out: &mut Vec<Effect>) -> Option<SessionId> {
        if let Some(id) = self.by_peer.get(&peer) {
            return Some(*id);
        }
        let addrs = self.addrs_of(peer)?.clone();
        let id = self.next_session();
        out.push(Effect::Open { session: id, peer, addrs: addrs.clone() });
        let (state, backoff) = (State::Connecting, self.settings.first_backoff);
        self.sessions.insert(id, Session { peer, addrs, state, backoff, backoffs: Backoffs::default() });
        self.by_peer.insert(peer, id);
        Some(id)
    }

    fn addrs_of(&self, peer: ServicePeer) -> Option<&AddrVec> {
        match peer {
            ServicePeer::Osd(osd) => self.map.osd(osd).filter(|o| o.is_up()).map(|o| &o.client_addrs),
            ServicePeer::Mgr => self.mgr.as_ref().map(|m| &m.active_addrs).filter(|a| !a.is_empty()),
        }
    }

    pub(crate) fn session_ready(&mut self, id: SessionId, out: &mut Vec<Effect>) {
        let first = self.settings.first_backoff;
        let Some(session) = self.sessions.get_mut(&id) else { return };
        session.state = State::Ready;
        session.backoff = first;
        let unsent =
            |(tid, op): (&u64, &crate::op::Op)| (op.session == Some(id) && !op.is_sent).then_some(*tid);
        let tids: Vec<u64> = self.ops.iter().filter_map(unsent).collect();
        for tid in tids {
            self.send_op(tid, out);
        }
        self.send_commands(id, out);
    }

    /// The connection is over. One that stood is opened again at once, one that never did after a while; what was
    /// assigned to it is sent again, in order.
    pub(crate) fn session_gone(&mut self, id: SessionId, out: &mut Vec<Effect>) {
        let Some(old) = self.take_session(id) else { return };
        let next = if self.has_assigned(id) { self.addrs_of(old.peer).cloned() } else { None };
        let mut again = None;
        if let Some(addrs) = next {
            let new = self.next_session();
            let stood = old.is_ready();
            let backoff = (old.backoff * 2).min(self.settings.last_backoff);
            let (state, backoff) = match stood {
                true => (State::Connecting, self.settings.first_backoff),
                false => (State::Waiting(self.now.mono + old.backoff), backoff),
            };
            if stood {
                out.push(Effect::Open { session: new, peer: old.peer, addrs: addrs.clone() });
            }
            let session = Session { peer: old.peer, addrs, state, backoff, backoffs: Backoffs::default() };
            self.sessions.insert(new, session);
            self.by_peer.insert(old.peer, new);
            again = Some(new);
        }
        self.reassign(id, again, out);
        self.want_map(out);
    }

    /// Opens what waited for its next attempt.
    pub(crate) fn retry_sessions(&mut self, out: &mut Vec<Effect>) {
        let now = self.now.mono;
        for (id, session) in &mut self.sessions {
            if session.retry_at().is_some_and(|at| at <= now) {
                session.state = State::Connecting;
                out.push(Effect::Open { session: *id, peer: session.peer, addrs: session.addrs.clone() });
            }
        }
    }

    /// Closes sessions whose peer is not where it was; gives back what was assigned to them as homeless.
    pub(crate) fn close_moved(&mut self, out: &mut Vec<Effect>) {
        let moved =
            |(id, s): (&SessionId, &Session)| (self.addrs_of(s.peer) != Some(&s.addrs)).then_some(*id);
        let moved: Vec<SessionId> = self.sessions.iter().filter_map(moved).collect();
        for id in moved {
            self.take_session(id);
            out.push(Effect::Close(id));
            self.reassign(id, None, out);
        }
    }

    fn take_session(&mut self, id: SessionId) -> Option<Session> {
        let session = self.sessions.remove(&id)?;
        if self.by_peer.get(&session.peer) == Some(&id) {
            self.by_peer.remove(&session.peer);
        }
        Some(session)
    }

    fn has_assigned(&self, id: SessionId) -> bool {
        self.ops.values().any(|op| op.session == Some(id))
            || self.commands.values().any(|c| c.session == Some(id))
            || self.lingers.values().any(|l| l.session == Some(id))
    }

    /// Hands everything of a session that ended to its successor, or leaves it without one.
    fn reassign(&mut self, old: SessionId, new: Option<SessionId>, out: &mut Vec<Effect>) {
        for op in self.ops.values_mut().filter(|op| op.session == Some(old)) {
            (op.session, op.is_sent) = (new, false);
        }
        for command in self.commands.values_mut().filter(|c| c.session == Some(old)) {
            (command.session, command.is_sent) = (new, false);
        }
        let lingers: Vec<u64> =
            self.lingers.iter().filter(|(_, l)| l.session == Some(old)).map(|(cookie, _)| *cookie).collect();
        for cookie in lingers {
            self.relink(cookie, new, out);
        }
    }

    /// The OSD wants no operations on a range of objects, or wants them again. Source: Objecter::handle_osd_backoff.
    pub(crate) fn backoff(&mut self, id: SessionId, m: MOsdBackoff, out: &mut Vec<Effect>) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        match m.op {
            backoff_op::BLOCK => {
                session.backoffs.block(m.id, m.pgid, m.begin.clone(), m.end.clone());
                let ack = MOsdBackoff { op: backoff_op::ACK_BLOCK, epoch: self.map.epoch, ..m };
                out.push(Effect::Send { session: id, tid: 0, msg: ack.into() });
            }
            backoff_op::UNBLOCK if session.backoffs.unblock(m.id) => {
                let in_range =
                    |object: &types::HObject| *object == m.begin || (m.begin <= *object && *object < m.end);
                let held = self.ops.iter().filter(|(_, op)| {
                    op.session == Some(id) && op.target.spg() == m.pgid && in_range(&op.msg.object)
                });
                let tids: Vec<u64> = held.map(|(tid, _)| *tid).collect();
                for tid in tids {
                    // Those that were under way when the block came were thrown away by the OSD.
                    self.send_op(tid, out);
                }
            }
            _ => {}
        }
    }
}

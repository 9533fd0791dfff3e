//! The session handshake: opening, resuming, starting over.

use bytes::Bytes;
use codec::Decode;
use types::EntityName;

use super::{Connection, MAX_ROUNDS, State};
use crate::control::FLAG_LOSSY;
use crate::secure::Side;
use crate::session::MSG_ADDR2;
use crate::{
    ClientIdent, Error, Event, Peer, Ready, Reconnect, ServerIdent, Session, SessionAnswer, SessionRequest,
    Tag,
};

impl Connection {
    /// Connector: asks for the session that it holds.
    pub(super) fn request_session(&mut self) {
        let Some(session) = &mut self.session else { return };
        let reconnect = session.is_established();
        self.state = State::SessionSent { reconnect };
        let addrs = self.local.addrs.clone();
        if reconnect {
            let frame = Reconnect {
                addrs,
                client_cookie: session.client_cookie,
                server_cookie: session.server_cookie,
                global_seq: self.global_seq,
                connect_seq: session.connect_seq,
                msg_seq: session.in_seq,
            };
            return self.send_control(Tag::SessionReconnect, &frame);
        }
        let policy = session.policy;
        if !policy.lossy && session.client_cookie == 0 {
            session.client_cookie = self.spare_cookie;
        }
        let frame = ClientIdent {
            addrs,
            target: self.target,
            gid: self.local.name.num,
            global_seq: self.global_seq,
            features_supported: policy.features_supported,
            features_required: policy.features_required | MSG_ADDR2,
            flags: if policy.lossy { FLAG_LOSSY } else { 0 },
            cookie: session.client_cookie,
        };
        self.send_control(Tag::ClientIdent, &frame);
    }

    pub(super) fn on_server_ident(&mut self, payload: Bytes) -> Result<(), Error> {
        let ident = ServerIdent::from_bytes(payload)?;
        if !ident.addrs.0.contains(&self.target) {
            return Err(Error::WrongPeer { wanted: self.target });
        }
        let kind = self.peer_type.unwrap_or_default();
        let Some(session) = &mut self.session else { return Ok(()) };
        let missing = session.policy.features_required & !ident.features_supported;
        if missing != 0 {
            return Err(Error::MissingFeatures(missing));
        }
        session.server_cookie = ident.cookie;
        session.peer = Peer { name: EntityName { kind, num: ident.gid }, addrs: ident.addrs };
        session.features = ident.features_supported & session.policy.features_supported;
        session.peer_global_seq = ident.global_seq;
        session.policy.lossy = ident.flags & FLAG_LOSSY != 0;
        if session.policy.lossy {
            session.server_cookie = 0;
        }
        self.become_ready(false);
        Ok(())
    }

    pub(super) fn on_reconnect_ok(&mut self, payload: Bytes) -> Result<(), Error> {
        let seq = u64::from_bytes(payload)?;
        self.session_mut(|s| s.acked(seq));
        self.become_ready(true);
        Ok(())
    }

    fn count_retry(&mut self) -> Result<(), Error> {
        self.rounds += 1;
        if self.rounds > MAX_ROUNDS { Err(Error::TooManyRounds) } else { Ok(()) }
    }

    pub(super) fn on_reset(&mut self, payload: Bytes) -> Result<(), Error> {
        self.count_retry()?;
        let full = bool::from_bytes(payload)?;
        self.session_mut(|s| {
            if full {
                s.reset();
            } else {
                s.server_cookie = 0;
                s.connect_seq = 0;
                s.in_seq = 0;
            }
        });
        if full {
            self.events.push_back(Event::RemoteReset);
        }
        self.request_session();
        Ok(())
    }

    pub(super) fn on_retry(&mut self, payload: Bytes) -> Result<(), Error> {
        self.count_retry()?;
        let theirs = u64::from_bytes(payload)?;
        self.session_mut(|s| s.connect_seq = theirs.saturating_add(1));
        self.request_session();
        Ok(())
    }

    pub(super) fn on_retry_global(&mut self, payload: Bytes) -> Result<(), Error> {
        self.count_retry()?;
        let peer_knows = u64::from_bytes(payload)?;
        self.state = State::SessionOwner;
        self.events.push_back(Event::RetryGlobal { peer_knows });
        Ok(())
    }

    /// Connector: goes on after `RetryGlobal` with a larger `global_seq`.
    pub fn set_global_seq(&mut self, global_seq: u64) {
        let fits = self.state == State::SessionOwner && self.side == Side::Connector;
        if self.expect("set_global_seq", fits) {
            self.global_seq = global_seq;
            self.request_session();
            self.resume();
        }
    }

    pub(super) fn on_request(&mut self, tag: Tag, payload: Bytes) -> Result<(), Error> {
        self.count_retry()?;
        let request = if tag == Tag::ClientIdent {
            SessionRequest::Open(ClientIdent::from_bytes(payload)?)
        } else {
            SessionRequest::Resume(Reconnect::from_bytes(payload)?)
        };
        self.request = Some(request.clone());
        self.state = State::SessionOwner;
        self.events.push_back(Event::SessionRequest(request));
        Ok(())
    }

    /// Acceptor: answers a session request without taking it.
    pub fn answer_session(&mut self, answer: SessionAnswer) {
        let fits = self.state == State::SessionOwner && self.side == Side::Acceptor;
        if !self.expect("answer_session", fits) {
            return;
        }
        self.state = State::SessionAccept;
        match answer {
            SessionAnswer::MissingFeatures(f) => self.send_control(Tag::IdentMissingFeatures, &f),
            SessionAnswer::Reset { full } => self.send_control(Tag::SessionReset, &full),
            SessionAnswer::Retry { connect_seq } => self.send_control(Tag::SessionRetry, &connect_seq),
            SessionAnswer::RetryGlobal { global_seq } => {
                self.send_control(Tag::SessionRetryGlobal, &global_seq);
            }
            SessionAnswer::Wait => {
                if let Err(error) = self.writer.control(Tag::Wait, &[]) {
                    self.close(error);
                }
            }
        }
        self.resume();
    }

    /// Acceptor: takes the request for `session`, a new one or the one that was found. For a request to
    /// resume, the session's messages that the peer lacks are sent again. `global_seq` is a new one of ours;
    /// `server_cookie` random (it names a newly opened session).
    pub fn accept_session(&mut self, mut session: Session, global_seq: u64, server_cookie: u64) {
        let fits = self.state == State::SessionOwner && self.side == Side::Acceptor && self.request.is_some();
        if !self.expect("accept_session", fits) {
            return;
        }
        self.global_seq = global_seq;
        match self.request.take() {
            Some(SessionRequest::Open(ident)) => self.accept_open(session, ident, server_cookie),
            Some(SessionRequest::Resume(request)) => {
                session.peer_global_seq = request.global_seq;
                session.connect_seq = request.connect_seq;
                session.acked(request.msg_seq);
                let in_seq = session.in_seq;
                self.session = Some(session);
                self.send_control(Tag::SessionReconnectOk, &in_seq);
                self.become_ready(true);
            }
            None => {}
        }
        self.resume();
    }

    fn accept_open(&mut self, mut session: Session, ident: ClientIdent, server_cookie: u64) {
        let policy = session.policy;
        let kind = self.peer_type.unwrap_or_default();
        session.client_cookie = ident.cookie;
        session.server_cookie = if policy.lossy { 0 } else { server_cookie.max(1) };
        session.peer = Peer { name: EntityName { kind, num: ident.gid }, addrs: ident.addrs };
        session.features = ident.features_supported & policy.features_supported;
        session.peer_global_seq = ident.global_seq;
        session.in_seq = 0;
        let frame = ServerIdent {
            addrs: self.local.addrs.clone(),
            gid: self.local.name.num,
            global_seq: self.global_seq,
            features_supported: policy.features_supported,
            features_required: policy.features_required | MSG_ADDR2,
            flags: if policy.lossy { FLAG_LOSSY } else { 0 },
            cookie: session.server_cookie,
        };
        self.session = Some(session);
        self.send_control(Tag::ServerIdent, &frame);
        self.become_ready(false);
    }

    /// The session stands: what the peer has not acknowledged goes out again under its old seqs, then what
    /// was queued.
    fn become_ready(&mut self, resumed: bool) {
        let Some(session) = &mut self.session else { return };
        self.state = State::Ready;
        self.events.push_back(Event::Ready(Ready {
            peer: session.peer.clone(),
            features: session.features,
            lossy: session.policy.lossy,
            resumed,
        }));
        let mut again: Vec<_> = session.unacked.iter().cloned().collect();
        if session.policy.lossy {
            session.unacked.clear();
        }
        while let Some(msg) = session.queue.pop_front() {
            again.push(session.stamp(msg));
        }
        for msg in &again {
            self.write_message(msg);
        }
    }
}

//! What to answer a peer that asks for a session, given the session that exists with it.
//!
//! Source: handle_client_ident, handle_reconnect and handle_existing_connection in
//! src/msg/async/ProtocolV2.cc.

use std::net::SocketAddr;

use types::{AddrVec, EntityAddr};

use crate::{ClientIdent, Error, MSG_ADDR2, Policy, Reconnect, Session, SessionAnswer, SessionRequest};

/// What the existing session is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Our own connection to the peer is being made, or waits for its turn.
    Connecting,
    /// A connection holds it and is usable.
    Ready,
    /// No connection holds it.
    Standby,
    /// It is being handed from one connection to another.
    Replacing,
}

/// The session that exists with the addresses a peer states.
#[derive(Debug, Clone, Copy)]
pub struct Existing<'a> {
    pub session: &'a Session,
    pub phase: Phase,
}

/// What to do with a session request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Accept with a new session. `close_existing`: drop the existing one and its connection first.
    Fresh { close_existing: bool },
    /// Take the existing session from its connection, close that, and accept with it; `reset` it before (its
    /// owner must hear of it as of `Event::RemoteReset`).
    Take { reset: bool },
    /// Give this answer. After `SessionAnswer::Wait` our own connection must be carried through.
    Answer(SessionAnswer),
    /// Close the new connection.
    Close(Error),
}

impl SessionRequest {
    /// The addresses that the peer states as its own: its session is held under them.
    pub fn addrs(&self) -> &AddrVec {
        match self {
            Self::Open(ident) => &ident.addrs,
            Self::Resume(reconnect) => &reconnect.addrs,
        }
    }

    /// How the session behaves, with `usual` for peers of this kind. Whoever will not resume a session needs
    /// none kept: it says so by having no cookie.
    pub fn policy(&self, usual: Policy) -> Policy {
        match self {
            Self::Open(ident) if ident.cookie == 0 => Policy::stateless_server(),
            _ => usual,
        }
    }
}

/// Judges `request`. `ours`: our addresses; `policy`: for peers of this kind; `existing`: the session, not
/// lossy servers' clients, that is held under the addresses which the request states.
pub fn decide(
    ours: &AddrVec,
    policy: &Policy,
    request: &SessionRequest,
    existing: Option<Existing<'_>>,
) -> Verdict {
    match request {
        SessionRequest::Open(ident) => decide_open(ours, policy, ident, existing),
        SessionRequest::Resume(request) => decide_resume(ours, policy, request, existing),
    }
}

fn decide_open(
    ours: &AddrVec,
    policy: &Policy,
    ident: &ClientIdent,
    existing: Option<Existing<'_>>,
) -> Verdict {
    if ident.addrs.0.first().is_none_or(|a| *a == EntityAddr::default()) {
        return Verdict::Close(Error::NoPeerAddress);
    }
    if !ours.0.contains(&ident.target) {
        return Verdict::Close(Error::WrongTarget { wanted: ident.target });
    }
    let missing = (policy.features_required | MSG_ADDR2) & !ident.features_supported;
    if missing != 0 {
        return Verdict::Answer(SessionAnswer::MissingFeatures(missing));
    }
    let Some(Existing { session, phase }) = existing.filter(|_| !(policy.server && policy.lossy)) else {
        return Verdict::Fresh { close_existing: false };
    };
    if phase == Phase::Replacing {
        return Verdict::Answer(SessionAnswer::Wait);
    }
    if session.peer_global_seq > ident.global_seq {
        return Verdict::Close(Error::Stale);
    }
    if session.policy.lossy {
        return Verdict::Fresh { close_existing: true };
    }
    let cookies = session.server_cookie != 0 && session.client_cookie != 0;
    if cookies && session.client_cookie != ident.cookie {
        // The peer has started anew.
        return Verdict::Take { reset: policy.resetcheck };
    }
    // The same opening again (our answer was lost), or nothing of ours is on its way, or ours loses the race.
    let same = session.client_cookie == ident.cookie;
    if same || phase != Phase::Connecting || session.policy.server || !ours_wins(ours, &ident.addrs) {
        return Verdict::Take { reset: false };
    }
    Verdict::Answer(SessionAnswer::Wait)
}

fn decide_resume(
    ours: &AddrVec,
    policy: &Policy,
    request: &Reconnect,
    existing: Option<Existing<'_>>,
) -> Verdict {
    let Some(Existing { session, phase }) = existing else {
        return Verdict::Answer(SessionAnswer::Reset { full: true });
    };
    if phase == Phase::Replacing {
        let global_seq = session.peer_global_seq;
        return Verdict::Answer(SessionAnswer::RetryGlobal { global_seq });
    }
    if session.client_cookie != request.client_cookie {
        return Verdict::Answer(SessionAnswer::Reset { full: policy.resetcheck });
    }
    if session.server_cookie == 0 {
        // We opened this session and never got the answer; the peer must let us open it.
        return Verdict::Answer(SessionAnswer::Reset { full: false });
    }
    if session.server_cookie != request.server_cookie {
        // Another opening, with another numbering: resuming could lose or repeat messages. Ceph does not look
        // at this.
        return Verdict::Answer(SessionAnswer::Reset { full: true });
    }
    if session.peer_global_seq > request.global_seq {
        let global_seq = session.peer_global_seq;
        return Verdict::Answer(SessionAnswer::RetryGlobal { global_seq });
    }
    if session.connect_seq > request.connect_seq {
        return Verdict::Answer(SessionAnswer::Retry { connect_seq: session.connect_seq });
    }
    let race = phase == Phase::Connecting && session.connect_seq == request.connect_seq;
    if race && !session.policy.server && ours_wins(ours, &request.addrs) {
        return Verdict::Answer(SessionAnswer::Wait);
    }
    Verdict::Take { reset: false }
}

/// When both ends connect at once, the connection made by the smaller msgr2 address goes on.
fn ours_wins(ours: &AddrVec, theirs: &AddrVec) -> bool {
    address_order(ours) < address_order(theirs)
}

/// Ceph compares the memory of its address structure. Source: operator< of entity_addr_t in
/// src/msg/msg_types.h.
fn address_order(addrs: &AddrVec) -> Vec<u8> {
    let addr = addrs.msgr2().unwrap_or_default();
    let mut key = Vec::with_capacity(36);
    key.extend_from_slice(&(addr.kind as u32).to_le_bytes());
    key.extend_from_slice(&addr.nonce.to_le_bytes());
    match addr.socket {
        None => {}
        Some(SocketAddr::V4(a)) => {
            key.extend_from_slice(&2u16.to_le_bytes());
            key.extend_from_slice(&a.port().to_be_bytes());
            key.extend_from_slice(&a.ip().octets());
        }
        Some(SocketAddr::V6(a)) => {
            key.extend_from_slice(&10u16.to_le_bytes());
            key.extend_from_slice(&a.port().to_be_bytes());
            key.extend_from_slice(&a.flowinfo().to_be_bytes());
            key.extend_from_slice(&a.ip().octets());
        }
    }
    key
}

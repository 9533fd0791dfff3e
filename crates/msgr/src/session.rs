//! What outlives a TCP connection: cookies, sequence numbers, and messages that the peer has not
//! acknowledged.
//!
//! Invariants:
//! 1. `unacked` holds the messages that were given a seq above the peer's last acknowledgement, in seq order;
//!    a lossy session keeps none.
//! 2. `in_seq` is the highest seq delivered to the owner; nothing at or below it is delivered again.
//! 3. `server_cookie` is 0 while the session cannot be resumed: it is lossy, was never established, or its
//!    peer has forgotten it.
//!
//! Source: src/msg/async/ProtocolV2.cc, src/msg/Policy.h.

use std::collections::VecDeque;

use messages::wire::WireMessage;
use types::{AddrVec, EntityName, features};

/// How sessions with one kind of peer behave. Source: Policy in src/msg/Policy.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// The session ends with its connection.
    pub lossy: bool,
    /// We never connect to this peer; it connects to us.
    pub server: bool,
    /// With nothing to send, wait for a reason before connecting again.
    pub standby: bool,
    /// A peer that forgot the session makes us drop it too, with everything queued.
    pub resetcheck: bool,
    pub features_supported: u64,
    pub features_required: u64,
}

/// Every msgr2 peer must have this, for addresses are encoded by it. Source: msgr2_required in
/// src/msg/async/frames_v2.h.
pub const MSG_ADDR2: u64 = 1 << 59;

impl Policy {
    const fn new(lossy: bool, server: bool, standby: bool, resetcheck: bool) -> Self {
        Self {
            lossy,
            server,
            standby,
            resetcheck,
            features_supported: features::PACIFIC,
            features_required: MSG_ADDR2,
        }
    }

    /// Accepts clients whose sessions end with the connection (a monitor's or an OSD's clients).
    pub const fn stateless_server() -> Self {
        Self::new(true, true, false, false)
    }
    /// Accepts peers that resume (in Ceph an MDS's clients; here OSDs that connect to an OSD).
    pub const fn stateful_server() -> Self {
        Self::new(false, true, true, true)
    }
    /// Connects, and starts anew after a loss (a client of monitors or OSDs).
    pub const fn lossy_client() -> Self {
        Self::new(true, false, false, false)
    }
    /// Connects and resumes (in Ceph a client of an MDS; here an OSD that connects to another).
    pub const fn lossless_client() -> Self {
        Self::new(false, false, false, true)
    }
    /// Either side connects, and sessions resume (in Ceph OSD to OSD).
    pub const fn lossless_peer() -> Self {
        Self::new(false, false, true, false)
    }
    /// As above for peers that keep their address over restarts (in Ceph monitor to monitor).
    pub const fn lossless_peer_reuse() -> Self {
        Self::new(false, false, true, true)
    }
    #[must_use]
    pub const fn requiring(mut self, features: u64) -> Self {
        self.features_required |= features;
        self
    }
}

/// Who is at the other end.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Peer {
    pub name: EntityName,
    pub addrs: AddrVec,
}

/// The state of one session. A `Connection` holds it while there is one; between connections its owner does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    pub policy: Policy,
    pub peer: Peer,
    /// Features that both ends have; 0 before the first handshake.
    pub features: u64,
    pub client_cookie: u64,
    pub server_cookie: u64,
    /// Counts connections within this session.
    pub connect_seq: u64,
    /// The `global_seq` of the peer's newest connection.
    pub peer_global_seq: u64,
    pub(crate) in_seq: u64,
    pub(crate) out_seq: u64,
    pub(crate) unacked: VecDeque<WireMessage>,
    /// Messages that no connection could take yet.
    pub(crate) queue: VecDeque<WireMessage>,
}

impl Session {
    /// A session that we open by connecting to `peer`. `cookie`: random and not 0.
    pub fn outgoing(policy: Policy, peer: Peer, cookie: u64) -> Self {
        let mut s = Self::incoming(policy);
        s.peer = peer;
        s.client_cookie = if policy.lossy { 0 } else { cookie.max(1) };
        s
    }

    /// A session for a peer that connects to us for the first time.
    pub fn incoming(policy: Policy) -> Self {
        Self {
            policy,
            peer: Peer::default(),
            features: 0,
            client_cookie: 0,
            server_cookie: 0,
            connect_seq: 0,
            peer_global_seq: 0,
            in_seq: 0,
            out_seq: 0,
            unacked: VecDeque::new(),
            queue: VecDeque::new(),
        }
    }

    /// Queues a message for the next connection.
    pub fn push(&mut self, msg: WireMessage) {
        self.queue.push_back(msg);
    }

    /// Whether something waits to be sent or acknowledged: the reason to connect again.
    pub fn has_pending(&self) -> bool {
        !self.queue.is_empty() || !self.unacked.is_empty()
    }

    /// Messages and payload bytes that are sent or queued and not acknowledged.
    pub fn pending(&self) -> (usize, usize) {
        let all = self.unacked.iter().chain(&self.queue);
        all.fold((0, 0), |(n, bytes), m| (n + 1, bytes + m.payload_len()))
    }

    /// The highest seq received and the highest given out.
    pub fn seqs(&self) -> (u64, u64) {
        (self.in_seq, self.out_seq)
    }

    /// Whether a handshake has completed, so that the session can be resumed.
    pub fn is_established(&self) -> bool {
        self.server_cookie != 0
    }

    /// Forgets everything, with all queued messages; the policy, the peer and its features stay.
    /// Source: ProtocolV2::reset_session.
    pub fn reset(&mut self) {
        let fresh = Self::incoming(self.policy);
        *self = Self { peer: std::mem::take(&mut self.peer), features: self.features, ..fresh };
    }

    /// Gives `msg` its seq; keeps it until it is acknowledged, unless the session is lossy.
    pub(crate) fn stamp(&mut self, mut msg: WireMessage) -> WireMessage {
        self.out_seq += 1;
        msg.header.seq = self.out_seq;
        if !self.policy.lossy {
            self.unacked.push_back(msg.clone());
        }
        msg
    }

    /// The peer has everything up to `seq`.
    pub(crate) fn acked(&mut self, seq: u64) {
        while self.unacked.front().is_some_and(|m| m.header.seq <= seq) {
            self.unacked.pop_front();
        }
    }

    /// Notes a received message; `false` when it is a repetition and must be dropped.
    pub(crate) fn admit(&mut self, seq: u64) -> bool {
        let new = seq > self.in_seq;
        self.in_seq = self.in_seq.max(seq);
        new
    }

    /// Panics when an invariant stated above is broken.
    pub fn assert_invariants(&self) {
        assert!(!self.policy.lossy || self.unacked.is_empty(), "1: lossy sessions keep nothing");
        let seqs = self.unacked.iter().map(|m| m.header.seq);
        assert!(seqs.clone().zip(seqs.clone().skip(1)).all(|(a, b)| a < b), "1: seq order");
        assert!(seqs.max().is_none_or(|s| s <= self.out_seq), "1: no seq above out_seq");
    }
}

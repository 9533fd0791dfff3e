//! What members tell each other.

use std::time::Duration;

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer};
use types::{Fsid, Utime};

use crate::log::{Entry, Snapshot};
use crate::member::MemberId;

/// One message. `term` is the sender's, but in a pre-vote the one that it would like to lead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Messages of another cluster are dropped.
    pub cluster: Fsid,
    pub from: MemberId,
    /// [`MemberId::NONE`]: whoever gets it.
    pub to: MemberId,
    pub term: u64,
    pub body: Body,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    /// Would you vote for me? Changes nothing at the receiver.
    PreVote {
        last_index: u64,
        last_term: u64,
    },
    PreVoteReply {
        granted: bool,
    },
    Vote {
        last_index: u64,
        last_term: u64,
    },
    VoteReply {
        granted: bool,
    },
    Append(Append),
    AppendReply(AppendReply),
    Snapshot(InstallSnapshot),
    SnapshotPart(SnapshotPart),
    PartReply(PartReply),
    /// How far must I have applied for a read that was asked for before this message?
    ReadIndex {
        ctx: u64,
    },
    ReadIndexReply {
        ctx: u64,
        index: u64,
    },
    /// From a store that the group does not know, or that hears from no leader.
    Join {
        name: String,
    },
    /// The leader of this term goes; `next` is to follow it, without waiting.
    Resign {
        next: MemberId,
    },
    /// The store lacks what it has acknowledged: it is an older copy of itself.
    Outdated,
}

/// Entries, or none: then it is a leader's sign of life.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Append {
    /// The entry before the first one here.
    pub prev_index: u64,
    pub prev_term: u64,
    pub entries: Vec<Entry>,
    pub commit: u64,
    /// The leader's monotonic clock, which comes back in the reply.
    pub sent: Duration,
    /// Voters that the leader hears from.
    pub active: Vec<PeerStatus>,
}

/// A voter as its leader sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PeerStatus {
    pub id: MemberId,
    /// By how much its wall clock is ahead of the leader's, in milliseconds, rounded; 0 within the tolerance.
    pub skew_ms: i64,
    /// Round trip to it, in milliseconds, while the clocks differ.
    pub latency_ms: u64,
}
codec::wire_struct!(PeerStatus(1, 1) { id, skew_ms, latency_ms });

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AppendReply {
    pub ok: bool,
    /// What is equal to the leader's log and durable. When refused: where to go on from; 0 asks for a snapshot.
    pub index: u64,
    pub sent: Duration,
    /// The follower's wall clock.
    pub wall: Utime,
    /// Where the follower's log ends, durable or not.
    pub last_index: u64,
    /// When refused: the entry that it does not hold, which the leader's were to follow.
    pub refused: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct InstallSnapshot {
    pub snapshot: Snapshot,
    pub sent: Duration,
    pub active: Vec<PeerStatus>,
}

/// A part of a snapshot whose state is too large for one message.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SnapshotPart {
    /// The snapshot, with the part in place of its state.
    pub snapshot: Snapshot,
    /// Where the part begins in the state, in bytes.
    pub offset: u64,
    /// Bytes of the whole state.
    pub total: u64,
    pub sent: Duration,
    pub active: Vec<PeerStatus>,
}

/// Says how much of a snapshot's state a member holds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PartReply {
    /// The snapshot's index.
    pub index: u64,
    /// Bytes of the state that the member holds, from its beginning.
    pub held: u64,
    pub sent: Duration,
    pub wall: Utime,
}

fn put_time(time: Duration, w: &mut Writer) {
    w.u64(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
}

fn get_time(r: &mut Reader) -> Result<Duration, DecodeError> {
    r.u64().map(Duration::from_micros)
}

impl Body {
    fn tag(&self) -> u8 {
        match self {
            Self::PreVote { .. } => 1,
            Self::PreVoteReply { .. } => 2,
            Self::Vote { .. } => 3,
            Self::VoteReply { .. } => 4,
            Self::Append(_) => 5,
            Self::AppendReply(_) => 6,
            Self::Snapshot(_) => 7,
            Self::ReadIndex { .. } => 8,
            Self::ReadIndexReply { .. } => 9,
            Self::Join { .. } => 10,
            Self::Resign { .. } => 11,
            Self::Outdated => 12,
            Self::SnapshotPart(_) => 13,
            Self::PartReply(_) => 14,
        }
    }

    fn decode(tag: u8, r: &mut Reader, version: u8) -> Result<Self, DecodeError> {
        Ok(match tag {
            1 => Self::PreVote { last_index: r.u64()?, last_term: r.u64()? },
            2 => Self::PreVoteReply { granted: bool::decode(r)? },
            3 => Self::Vote { last_index: r.u64()?, last_term: r.u64()? },
            4 => Self::VoteReply { granted: bool::decode(r)? },
            5 => Self::Append(Append {
                prev_index: r.u64()?,
                prev_term: r.u64()?,
                entries: Decode::decode(r)?,
                commit: r.u64()?,
                sent: get_time(r)?,
                active: Decode::decode(r)?,
            }),
            6 => Self::AppendReply(AppendReply {
                ok: bool::decode(r)?,
                index: r.u64()?,
                sent: get_time(r)?,
                wall: Decode::decode(r)?,
                // Of an older sender nothing can be concluded.
                last_index: if version >= 2 { r.u64()? } else { u64::MAX },
                refused: if version >= 2 { r.u64()? } else { u64::MAX },
            }),
            7 => Self::Snapshot(InstallSnapshot {
                snapshot: Decode::decode(r)?,
                sent: get_time(r)?,
                active: Decode::decode(r)?,
            }),
            8 => Self::ReadIndex { ctx: r.u64()? },
            9 => Self::ReadIndexReply { ctx: r.u64()?, index: r.u64()? },
            10 => Self::Join { name: Decode::decode(r)? },
            11 => Self::Resign { next: Decode::decode(r)? },
            12 => Self::Outdated,
            13 => Self::SnapshotPart(SnapshotPart {
                snapshot: Decode::decode(r)?,
                offset: r.u64()?,
                total: r.u64()?,
                sent: get_time(r)?,
                active: Decode::decode(r)?,
            }),
            14 => Self::PartReply(PartReply {
                index: r.u64()?,
                held: r.u64()?,
                sent: get_time(r)?,
                wall: Decode::decode(r)?,
            }),
            other => return Err(DecodeError::Invalid { what: "quorum message", value: other.into() }),
        })
    }
}

impl Encode for Message {
    fn encode(&self, w: &mut Writer) {
        w.envelope(2, 1, |w| {
            self.cluster.encode(w);
            self.from.encode(w);
            self.to.encode(w);
            w.u64(self.term);
            w.u8(self.body.tag());
            match &self.body {
                Body::PreVote { last_index, last_term } | Body::Vote { last_index, last_term } => {
                    w.u64(*last_index);
                    w.u64(*last_term);
                }
                Body::PreVoteReply { granted } | Body::VoteReply { granted } => granted.encode(w),
                Body::Append(a) => {
                    w.u64(a.prev_index);
                    w.u64(a.prev_term);
                    a.entries.encode(w);
                    w.u64(a.commit);
                    put_time(a.sent, w);
                    a.active.encode(w);
                }
                Body::AppendReply(a) => {
                    a.ok.encode(w);
                    w.u64(a.index);
                    put_time(a.sent, w);
                    a.wall.encode(w);
                    w.u64(a.last_index);
                    w.u64(a.refused);
                }
                Body::Snapshot(s) => {
                    s.snapshot.encode(w);
                    put_time(s.sent, w);
                    s.active.encode(w);
                }
                Body::SnapshotPart(s) => {
                    s.snapshot.encode(w);
                    w.u64(s.offset);
                    w.u64(s.total);
                    put_time(s.sent, w);
                    s.active.encode(w);
                }
                Body::PartReply(a) => {
                    w.u64(a.index);
                    w.u64(a.held);
                    put_time(a.sent, w);
                    a.wall.encode(w);
                }
                Body::ReadIndex { ctx } => w.u64(*ctx),
                Body::ReadIndexReply { ctx, index } => {
                    w.u64(*ctx);
                    w.u64(*index);
                }
                Body::Join { name } => name.encode(w),
                Body::Resign { next } => next.encode(w),
                Body::Outdated => {}
            }
        });
    }
}
impl Decode for Message {
    const MIN_SIZE: usize = 47;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("quorum message", 2, |r, env| {
            let cluster = Fsid::decode(r)?;
            let (from, to, term) = (MemberId::decode(r)?, MemberId::decode(r)?, r.u64()?);
            let tag = r.u8()?;
            Ok(Self { cluster, from, to, term, body: Body::decode(tag, r, env.version)? })
        })
    }
}

impl Message {
    /// The whole message, for the network.
    pub fn to_wire(&self) -> Bytes {
        self.to_bytes()
    }
}

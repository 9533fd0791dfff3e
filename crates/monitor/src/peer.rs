//! What monitors tell each other besides the log: requests of a follower's clients, and the leader's answers.
//!
//! This protocol is our own; the types of Ceph's messages are kept inside it.

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer};
use messages::Header;
use messages::wire::WireMessage;
use types::{AddrVec, AuthName, EntityAddr, EntityName, GlobalId};

/// A client as its monitor knows it.
#[derive(Debug, Clone, PartialEq)]
pub struct Who {
    pub name: AuthName,
    pub peer: EntityName,
    pub global_id: GlobalId,
    /// Capabilities at the monitors, as text.
    pub caps: String,
    pub addrs: AddrVec,
    pub addr: EntityAddr,
    pub features: u64,
    pub host: String,
}

/// One message between monitors.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PeerMessage {
    /// Where the sender listens.
    pub(crate) from: AddrVec,
    pub(crate) what: PeerWhat,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum PeerWhat {
    Quorum(quorum::Message),
    /// A client's request, for the leader. `conn` is the follower's name of the client.
    Forward {
        conn: u64,
        who: Box<Who>,
        msg: WireMessage,
    },
    /// The client is gone.
    Gone {
        conn: u64,
    },
    /// A leader's answer to a client.
    Reply {
        conn: u64,
        msg: WireMessage,
    },
    /// The leader wants the client to come again.
    Close {
        conn: u64,
    },
    WantIds {
        origin: String,
    },
    /// The sender's store belongs to no group yet.
    Blank {
        name: String,
    },
    /// The monitor map does not name whoever asked to be let in.
    NotListed,
}

fn put_wire(m: &WireMessage, w: &mut Writer) {
    let h = &m.header;
    w.u64(h.tid);
    w.u16(h.ty);
    w.u16(h.priority);
    w.u16(h.version);
    w.u16(h.compat_version);
    w.u16(h.data_off);
    w.blob(&m.front);
    w.blob(&m.middle);
    w.blob(&m.whole_data());
}

fn get_wire(r: &mut Reader) -> Result<WireMessage, DecodeError> {
    let header = Header {
        seq: 0,
        tid: r.u64()?,
        ty: r.u16()?,
        priority: r.u16()?,
        version: r.u16()?,
        compat_version: r.u16()?,
        data_off: r.u16()?,
    };
    Ok(WireMessage { header, front: r.blob()?, middle: r.blob()?, data: r.blob()?, more: Vec::new() })
}

impl Encode for Who {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            self.name.encode(w);
            self.peer.encode(w);
            self.global_id.encode(w);
            self.caps.encode(w);
            self.addrs.encode(w);
            AddrVec::single(self.addr).encode(w);
            w.u64(self.features);
            self.host.encode(w);
        });
    }
}
impl Decode for Who {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("a monitor's client", 1, |r, _| {
            Ok(Self {
                name: Decode::decode(r)?,
                peer: Decode::decode(r)?,
                global_id: Decode::decode(r)?,
                caps: Decode::decode(r)?,
                addrs: Decode::decode(r)?,
                addr: AddrVec::decode(r)?.0.first().copied().unwrap_or_default(),
                features: r.u64()?,
                host: Decode::decode(r)?,
            })
        })
    }
}

impl Encode for PeerMessage {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            self.from.encode(w);
            match &self.what {
                PeerWhat::Quorum(m) => {
                    w.u8(1);
                    m.encode(w);
                }
                PeerWhat::Forward { conn, who, msg } => {
                    w.u8(2);
                    w.u64(*conn);
                    who.encode(w);
                    put_wire(msg, w);
                }
                PeerWhat::Gone { conn } => {
                    w.u8(3);
                    w.u64(*conn);
                }
                PeerWhat::Reply { conn, msg } => {
                    w.u8(4);
                    w.u64(*conn);
                    put_wire(msg, w);
                }
                PeerWhat::Close { conn } => {
                    w.u8(5);
                    w.u64(*conn);
                }
                PeerWhat::WantIds { origin } => {
                    w.u8(6);
                    origin.encode(w);
                }
                PeerWhat::Blank { name } => {
                    w.u8(7);
                    name.encode(w);
                }
                PeerWhat::NotListed => w.u8(8),
            }
        });
    }
}
impl Decode for PeerMessage {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("monitors' message", 1, |r, _| {
            let from = AddrVec::decode(r)?;
            let what = match r.u8()? {
                1 => PeerWhat::Quorum(Decode::decode(r)?),
                2 => {
                    PeerWhat::Forward { conn: r.u64()?, who: Box::new(Decode::decode(r)?), msg: get_wire(r)? }
                }
                3 => PeerWhat::Gone { conn: r.u64()? },
                4 => PeerWhat::Reply { conn: r.u64()?, msg: get_wire(r)? },
                5 => PeerWhat::Close { conn: r.u64()? },
                6 => PeerWhat::WantIds { origin: Decode::decode(r)? },
                7 => PeerWhat::Blank { name: Decode::decode(r)? },
                8 => PeerWhat::NotListed,
                other => return Err(DecodeError::Invalid { what: "monitors' message", value: other.into() }),
            };
            Ok(Self { from, what })
        })
    }
}

impl PeerMessage {
    pub(crate) fn to_wire(&self) -> Bytes {
        self.to_bytes()
    }
}

//! What clients of one image tell each other through its header's watchers.
//!
//! Source: src/librbd/WatchNotifyTypes.cc.

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer, wire_plain, wire_struct};

/// A client and its watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientId {
    pub global_id: u64,
    pub watch: u64,
}
wire_plain!(ClientId { global_id, watch });

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    AcquiredLock(ClientId),
    ReleasedLock(ClientId),
    /// `force`: the owner shall let go even if it was told to keep the lock.
    RequestLock {
        client: ClientId,
        force: bool,
    },
    HeaderUpdate,
    /// Something that the lock's owner is asked to do for the sender.
    Maintenance(u32),
    /// Progress and such.
    Other(u32),
}

const VERSION: u8 = 7;

impl Message {
    fn number(&self) -> u32 {
        match self {
            Self::AcquiredLock(_) => 0,
            Self::ReleasedLock(_) => 1,
            Self::RequestLock { .. } => 2,
            Self::HeaderUpdate => 3,
            Self::Maintenance(n) | Self::Other(n) => *n,
        }
    }

    /// An empty one is a header update of an old client.
    pub fn parse(payload: Bytes) -> Result<Self, DecodeError> {
        if payload.is_empty() { Ok(Self::HeaderUpdate) } else { Self::from_bytes(payload) }
    }
}

impl Encode for Message {
    fn encode(&self, w: &mut Writer) {
        w.envelope(VERSION, 1, |w| {
            w.u32(self.number());
            match self {
                Self::AcquiredLock(client) | Self::ReleasedLock(client) => client.encode(w),
                Self::RequestLock { client, force } => {
                    client.encode(w);
                    force.encode(w);
                }
                Self::HeaderUpdate | Self::Maintenance(_) | Self::Other(_) => {}
            }
        });
    }
}

impl Decode for Message {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("rbd notification", VERSION, |r, env| {
            Ok(match r.u32()? {
                0 => Self::AcquiredLock(Decode::decode(r)?),
                1 => Self::ReleasedLock(Decode::decode(r)?),
                2 => Self::RequestLock {
                    client: Decode::decode(r)?,
                    force: if env.version >= 3 { Decode::decode(r)? } else { false },
                },
                3 => Self::HeaderUpdate,
                n @ (4 | 5 | 18 | 19) => Self::Other(n),
                n => Self::Maintenance(n),
            })
        })
    }
}

/// What an owner answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Response {
    pub result: i32,
}
wire_struct!(Response(1, 1) { result });

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_back() {
        let client = ClientId { global_id: 4123, watch: 77 };
        for message in [
            Message::AcquiredLock(client),
            Message::ReleasedLock(client),
            Message::RequestLock { client, force: true },
            Message::HeaderUpdate,
        ] {
            assert_eq!(Message::parse(message.to_bytes()), Ok(message));
        }
        assert_eq!(Message::parse(Bytes::new()), Ok(Message::HeaderUpdate));
        // A header update as librbd sends it: version 7, compat 1, four bytes, operation 3.
        assert_eq!(Message::HeaderUpdate.to_bytes(), &b"\x07\x01\x04\0\0\0\x03\0\0\0"[..]);
    }
}

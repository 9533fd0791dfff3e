//! What a client tells the new holder of a rank: the capabilities and snapshot realms that it knows.
//!
//! The forms before version 4, of clients without the feature `multi_reconnect`, are refused.
//! Source: src/messages/MClientReconnect.h, cap_reconnect_t in src/mds/mdstypes.cc.

use std::collections::BTreeMap;

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer, wire_struct};
use types::Ino;

use super::{Caps, FileName};
use crate::payload::{Parts, Payload, Segments};
use crate::type_numbers;

/// A capability, and how to find its inode.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CapReconnect {
    /// From the inode `path_base` on.
    pub path: FileName,
    pub path_base: Ino,
    pub cap_id: u64,
    pub wanted: Caps,
    pub issued: Caps,
    pub realm: Ino,
    /// `FileLocks`, or nothing.
    pub flock: Bytes,
    /// The newest snapshot older than what the client has not flushed.
    pub snap_follows: u64,
}

impl Encode for CapReconnect {
    fn encode(&self, w: &mut Writer) {
        w.envelope(2, 1, |w| {
            w.blob(&self.path);
            w.u64(self.cap_id);
            self.wanted.encode(w);
            self.issued.encode(w);
            self.realm.encode(w);
            self.path_base.encode(w);
            w.blob(&self.flock);
            w.u64(self.snap_follows);
        });
    }
}
impl Decode for CapReconnect {
    const MIN_SIZE: usize = 46;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("cap_reconnect_t", 2, |r, env| {
            Ok(Self {
                path: r.blob()?,
                cap_id: r.u64()?,
                wanted: Caps::decode(r)?,
                issued: Caps::decode(r)?,
                realm: Ino::decode(r)?,
                path_base: Ino::decode(r)?,
                flock: r.blob()?,
                snap_follows: if env.version >= 2 { r.u64()? } else { 0 },
            })
        })
    }
}

/// A realm that the client knows, and how new.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SnapRealmReconnect {
    pub ino: Ino,
    pub seq: u64,
    pub parent: Ino,
}
wire_struct!(SnapRealmReconnect(1, 1) { ino, seq, parent });

/// All of it, or a part with more to come.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MClientReconnect {
    pub caps: BTreeMap<Ino, CapReconnect>,
    pub realms: Vec<SnapRealmReconnect>,
    pub more: bool,
}

impl Payload for MClientReconnect {
    const TYPE: u16 = type_numbers::CLIENT_RECONNECT;
    const NAME: &'static str = "client_reconnect";
    const VERSION: u16 = 5;
    const COMPAT: u16 = 4;

    fn encode_payload(&self, out: &mut Segments) {
        out.data = Writer::collect(|w| {
            self.caps.encode(w);
            self.realms.encode(w);
            self.more.encode(w);
        });
    }

    fn decode_payload(parts: &mut Parts) -> Result<Self, DecodeError> {
        let version = parts.version;
        if version < Self::COMPAT {
            return Err(DecodeError::Invalid { what: "client_reconnect version", value: version.into() });
        }
        let r = &mut Reader::new(parts.data.clone());
        let (caps, realms) = (Decode::decode(r)?, Decode::decode(r)?);
        Ok(Self { caps, realms, more: version >= 5 && bool::decode(r)? })
    }
}

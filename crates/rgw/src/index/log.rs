//! The log of changes to a bucket index, which other zones follow.

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer};
use types::RealTime;

use super::entry::{Key, Written, packed, put_packed};
use super::zones::Zones;

/// What changed. Source: RGWModifyOp in src/cls/rgw/cls_rgw_types.h.
pub mod op {
    pub const ADD: u8 = 0;
    pub const DELETE: u8 = 1;
    pub const CANCEL: u8 = 2;
    pub const UNKNOWN: u8 = 3;
    pub const LINK: u8 = 4;
    pub const LINK_DELETE_MARKER: u8 = 5;
    pub const UNLINK_INSTANCE: u8 = 6;
    pub const STOP: u8 = 7;
    pub const RESYNC: u8 = 8;
}

/// State of a change that is done.
pub const COMPLETE: u8 = 1;
/// Flag of a change to a versioned object.
pub const VERSIONED_OP: u16 = 1;

/// Source: rgw_bi_log_entry in src/cls/rgw/cls_rgw_types.h.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogEntry {
    pub id: Bytes,
    pub key: Key,
    pub time: RealTime,
    pub written: Written,
    pub tag: Bytes,
    pub op: u8,
    pub state: u8,
    /// The header's version before the change.
    pub index_version: u64,
    pub flags: u16,
    /// Set for delete markers alone, as is `owner_name`.
    pub owner: Bytes,
    pub owner_name: Bytes,
    pub zones: Zones,
}

impl Default for LogEntry {
    fn default() -> Self {
        Self {
            id: Bytes::new(),
            key: Key::default(),
            time: RealTime::default(),
            written: Written::default(),
            tag: Bytes::new(),
            op: op::UNKNOWN,
            state: 0,
            index_version: 0,
            flags: 0,
            owner: Bytes::new(),
            owner_name: Bytes::new(),
            zones: Zones::default(),
        }
    }
}

impl Encode for LogEntry {
    fn encode(&self, w: &mut Writer) {
        w.envelope(4, 1, |w| {
            self.id.encode(w);
            self.key.name.encode(w);
            self.time.encode(w);
            self.written.encode(w);
            self.tag.encode(w);
            self.op.encode(w);
            self.state.encode(w);
            put_packed(w, self.index_version);
            self.key.instance.encode(w);
            self.flags.encode(w);
            self.owner.encode(w);
            self.owner_name.encode(w);
            self.zones.encode(w);
        });
    }
}
impl Decode for LogEntry {
    const MIN_SIZE: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("log entry", 4, |r, env| {
            let mut e = Self { id: r.blob()?, key: Key::plain(r.blob()?), ..Self::default() };
            (e.time, e.written) = (Decode::decode(r)?, Decode::decode(r)?);
            (e.tag, e.op, e.state, e.index_version) = (r.blob()?, r.u8()?, r.u8()?, packed(r)?);
            if env.version >= 2 {
                (e.key.instance, e.flags) = (r.blob()?, r.u16()?);
            }
            if env.version >= 3 {
                (e.owner, e.owner_name) = (r.blob()?, r.blob()?);
            }
            if env.version >= 4 {
                e.zones = Decode::decode(r)?;
            }
            Ok(e)
        })
    }
}

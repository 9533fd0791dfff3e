//! The entries of the replicated log: typed changes, several to a proposal.

use std::collections::BTreeMap;

use bytes::Bytes;
use cephx::{EntityAuth, RotatingKeys};
use codec::{Decode, DecodeError, Encode, Reader, Writer};
use types::{AuthName, Epoch, PoolId};

use crate::state::{ConfigChange, CreatingPool, LogEntry, Mute};

/// One change of the replicated state.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// A whole monitor map.
    MonMap(Bytes),
    /// An increment of the OSD map, encoded.
    OsdMap(Bytes),
    /// Forget epochs before this one.
    TrimOsdMaps(Epoch),
    OsdMetadata(i32, Option<BTreeMap<String, String>>),
    MonMetadata(String, Option<BTreeMap<String, String>>),
    Creating(PoolId, Option<CreatingPool>),
    AuthSet(AuthName, EntityAuth),
    AuthRemove(AuthName),
    Rotating(RotatingKeys),
    GlobalIdBound(u64),
    Config(ConfigChange),
    Kv(String, Option<Bytes>),
    /// The manager's map and metadata, whole.
    Mgr(Bytes),
    Log(Vec<LogEntry>),
    /// The manager's statistics, whole.
    Digest(Bytes),
    Mute(String, Option<Mute>),
    /// Daemons of other services, whole.
    ServiceMap(Bytes),
    /// So many global ids, the next ones, are the process's of this name and nobody else's.
    GlobalIds(String, u64),
    /// The file systems and their metadata servers, whole.
    Fs(Bytes),
}

impl Change {
    fn tag(&self) -> u8 {
        match self {
            Self::MonMap(_) => 1,
            Self::OsdMap(_) => 2,
            Self::TrimOsdMaps(_) => 3,
            Self::OsdMetadata(..) => 4,
            Self::MonMetadata(..) => 5,
            Self::Creating(..) => 6,
            Self::AuthSet(..) => 7,
            Self::AuthRemove(_) => 8,
            Self::Rotating(_) => 9,
            Self::GlobalIdBound(_) => 10,
            Self::Config(_) => 11,
            Self::Kv(..) => 12,
            Self::Mgr(_) => 13,
            Self::Log(_) => 14,
            Self::Digest(_) => 15,
            Self::Mute(..) => 16,
            Self::GlobalIds(..) => 17,
            Self::ServiceMap(_) => 18,
            Self::Fs(_) => 19,
        }
    }
}

impl Encode for Change {
    fn encode(&self, w: &mut Writer) {
        w.u8(self.tag());
        w.sized(|w| match self {
            Self::MonMap(b)
            | Self::OsdMap(b)
            | Self::Mgr(b)
            | Self::Digest(b)
            | Self::ServiceMap(b)
            | Self::Fs(b) => {
                b.encode(w);
            }
            Self::TrimOsdMaps(e) => e.encode(w),
            Self::OsdMetadata(osd, meta) => {
                osd.encode(w);
                meta.encode(w);
            }
            Self::MonMetadata(mon, meta) => {
                mon.encode(w);
                meta.encode(w);
            }
            Self::Creating(pool, creating) => {
                pool.encode(w);
                creating.encode(w);
            }
            Self::AuthSet(name, auth) => {
                name.encode(w);
                auth.encode(w);
            }
            Self::AuthRemove(name) => name.encode(w),
            Self::Rotating(keys) => keys.encode(w),
            Self::GlobalIdBound(v) => v.encode(w),
            Self::Config(c) => c.encode(w),
            Self::Kv(key, value) => {
                key.encode(w);
                value.encode(w);
            }
            Self::Log(entries) => entries.encode(w),
            Self::Mute(code, mute) => {
                code.encode(w);
                mute.encode(w);
            }
            Self::GlobalIds(origin, count) => {
                origin.encode(w);
                count.encode(w);
            }
        });
    }
}
impl Decode for Change {
    const MIN_SIZE: usize = 5;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        let tag = r.u8()?;
        let len = r.u32()? as usize;
        r.bounded(len, |r| {
            Ok(match tag {
                1 => Self::MonMap(r.blob()?),
                2 => Self::OsdMap(r.blob()?),
                3 => Self::TrimOsdMaps(Decode::decode(r)?),
                4 => Self::OsdMetadata(Decode::decode(r)?, Decode::decode(r)?),
                5 => Self::MonMetadata(Decode::decode(r)?, Decode::decode(r)?),
                6 => Self::Creating(Decode::decode(r)?, Decode::decode(r)?),
                7 => Self::AuthSet(Decode::decode(r)?, Decode::decode(r)?),
                8 => Self::AuthRemove(Decode::decode(r)?),
                9 => Self::Rotating(Decode::decode(r)?),
                10 => Self::GlobalIdBound(r.u64()?),
                11 => Self::Config(Decode::decode(r)?),
                12 => Self::Kv(Decode::decode(r)?, Decode::decode(r)?),
                13 => Self::Mgr(r.blob()?),
                14 => Self::Log(Decode::decode(r)?),
                15 => Self::Digest(r.blob()?),
                16 => Self::Mute(Decode::decode(r)?, Decode::decode(r)?),
                17 => Self::GlobalIds(Decode::decode(r)?, r.u64()?),
                18 => Self::ServiceMap(r.blob()?),
                19 => Self::Fs(r.blob()?),
                other => return Err(DecodeError::Invalid { what: "change", value: other.into() }),
            })
        })
    }
}

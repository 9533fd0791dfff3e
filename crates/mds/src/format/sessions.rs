//! Sessions with clients as they outlive their server: which requests are done, which inode numbers are set
//! aside for them.
//!
//! Source: session_info_t, client_metadata_t, metareqid_t in src/mds/mdstypes.h, SessionMapStore in
//! src/mds/SessionMap.cc.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer, wire_plain};
use types::{AuthName, EntityInst, EntityName, FeatureBits, Ino, InoSet};

use super::wire::stored;

/// Names a client's request for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct MetaReqId {
    pub name: EntityName,
    pub tid: u64,
}
wire_plain!(MetaReqId { name, tid });

/// What a client said of itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClientMetadata {
    pub values: BTreeMap<Bytes, Bytes>,
    pub features: FeatureBits,
    /// Numbers of the metrics that it can tell.
    pub metrics: FeatureBits,
}

impl Encode for ClientMetadata {
    fn encode(&self, w: &mut Writer) {
        w.envelope(3, 1, |w| {
            self.values.encode(w);
            self.features.encode(w);
            w.envelope(1, 1, |w| self.metrics.encode(w));
        });
    }
}
impl Decode for ClientMetadata {
    const MIN_SIZE: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("client_metadata_t", 3, |r, env| {
            let mut metadata = Self { values: Decode::decode(r)?, ..Self::default() };
            if env.version >= 2 {
                metadata.features = Decode::decode(r)?;
            }
            if env.version >= 3 {
                metadata.metrics = r.envelope("metric_spec_t", 1, |r, _| FeatureBits::decode(r))?;
            }
            Ok(metadata)
        })
    }
}

/// A session: the value of a key like `client.4123`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SessionInfo {
    pub client: EntityInst,
    /// Requests that are done, as far as the client may send them again, with the inode that each created.
    pub completed_requests: BTreeMap<u64, Ino>,
    /// Numbers set aside for files that the client creates.
    pub prealloc_inos: InoSet,
    /// Of these, those that were used by what is only in the journal. They count as set aside when this is
    /// read.
    pub used_inos: InoSet,
    pub completed_flushes: BTreeSet<u64>,
    pub auth_name: AuthName,
    pub metadata: ClientMetadata,
}

impl Encode for SessionInfo {
    fn encode(&self, w: &mut Writer) {
        w.envelope(7, 7, |w| {
            self.client.encode(w);
            self.completed_requests.encode(w);
            self.prealloc_inos.encode(w);
            self.used_inos.encode(w);
            self.completed_flushes.encode(w);
            self.auth_name.encode(w);
            self.metadata.encode(w);
        });
    }
}
impl Decode for SessionInfo {
    const MIN_SIZE: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope_since("session_info_t", 7, 3, |r, version| {
            let mut info = Self {
                client: EntityInst::decode(r)?,
                completed_requests: Decode::decode(r)?,
                prealloc_inos: Decode::decode(r)?,
                used_inos: Decode::decode(r)?,
                ..Self::default()
            };
            if (4..7).contains(&version) {
                info.metadata.values = Decode::decode(r)?;
            }
            if version >= 5 {
                info.completed_flushes = Decode::decode(r)?;
            }
            if version >= 6 {
                info.auth_name = AuthName::decode(r)?;
            }
            if version >= 7 {
                info.metadata = ClientMetadata::decode(r)?;
            }
            Ok(info)
        })
    }
}

/// The header of the table of sessions. Each change of a session is a version of the table.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SessionMapHeader {
    pub version: u64,
}
stored!(SessionMapHeader(1, 1, 1) { version });

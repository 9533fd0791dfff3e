//! A client's session with a metadata server: opened, renewed, asked to give capabilities back, closed; and
//! its takeover.
//!
//! Source: src/messages/MClientSession.h, MClientReclaim.h, MClientReclaimReply.h; 16.2.15 writes version 5.

use std::collections::BTreeMap;

use codec::{Decode, DecodeError, Encode};
use types::{AddrVec, Epoch, FeatureBits, Utime};

use crate::payload::{Parts, Payload, Segments, message};
use crate::type_numbers;

/// What a session's message means. Source: CEPH_SESSION_*.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SessionOp(pub u32);

impl SessionOp {
    pub const REQUEST_OPEN: Self = Self(0);
    pub const OPEN: Self = Self(1);
    pub const REQUEST_CLOSE: Self = Self(2);
    pub const CLOSE: Self = Self(3);
    pub const REQUEST_RENEWCAPS: Self = Self(4);
    pub const RENEWCAPS: Self = Self(5);
    /// The client did not renew: its capabilities are in doubt.
    pub const STALE: Self = Self(6);
    /// At most `max_caps` capabilities are to be kept.
    pub const RECALL_STATE: Self = Self(7);
    pub const FLUSHMSG: Self = Self(8);
    pub const FLUSHMSG_ACK: Self = Self(9);
    pub const FORCE_RO: Self = Self(10);
    /// The client is not to come again.
    pub const REJECT: Self = Self(11);
    pub const REQUEST_FLUSH_MDLOG: Self = Self(12);
}

/// One word of a session.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MClientSession {
    pub op: SessionOp,
    pub seq: u64,
    pub stamp: Utime,
    /// Of `RECALL_STATE`.
    pub max_caps: u32,
    pub max_leases: u32,
    /// What a client says of itself; of a refusal, why (`error_string`).
    pub metadata: BTreeMap<String, String>,
    pub features: FeatureBits,
    /// Numbers of the metrics that the client can tell.
    pub metrics: FeatureBits,
    /// `BLOCKLISTED`.
    pub flags: u32,
}

impl MClientSession {
    /// The client was blocklisted, by a server that tells.
    pub const BLOCKLISTED: u32 = 1;
}

impl Payload for MClientSession {
    const TYPE: u16 = type_numbers::CLIENT_SESSION;
    const NAME: &'static str = "client_session";
    const VERSION: u16 = 5;
    const COMPAT: u16 = 1;

    /// Without features and metadata in the first form, as old kernels want it.
    fn encode_payload(&self, out: &mut Segments) {
        let w = &mut out.front;
        w.u32(self.op.0);
        w.u64(self.seq);
        self.stamp.encode(w);
        w.u32(self.max_caps);
        w.u32(self.max_leases);
        if self.metadata.is_empty() && self.features.is_empty() {
            out.version = Some(1);
            return;
        }
        self.metadata.encode(w);
        self.features.encode(w);
        w.envelope(1, 1, |w| self.metrics.encode(w));
        w.u32(self.flags);
    }

    fn decode_payload(parts: &mut Parts) -> Result<Self, DecodeError> {
        let r = &mut parts.front;
        let mut m = Self {
            op: SessionOp(r.u32()?),
            seq: r.u64()?,
            stamp: Utime::decode(r)?,
            max_caps: r.u32()?,
            max_leases: r.u32()?,
            ..Self::default()
        };
        if parts.version >= 2 {
            m.metadata = Decode::decode(r)?;
        }
        if parts.version >= 3 {
            m.features = Decode::decode(r)?;
        }
        if parts.version >= 4 {
            m.metrics = r.envelope("metric_spec_t", 1, |r, _| FeatureBits::decode(r))?;
        }
        if parts.version >= 5 {
            m.flags = r.u32()?;
        }
        Ok(m)
    }
}

message! {
    /// Takes over the state of a client that died, by the id that it went by.
    #[derive(Default)]
    MClientReclaim = type_numbers::CLIENT_RECLAIM, "client_reclaim", 1, 1 {
        uuid: String,
        flags: u32,
    }
}

impl MClientReclaim {
    /// The state is thrown away.
    pub const RESET: u32 = 1;
    /// The second of two messages: the state was taken over.
    pub const FINISH: u32 = 1 << 31;
}

message! {
    /// Where the client was that died; nobody uses its objects before all have this OSD map.
    #[derive(Default)]
    MClientReclaimReply = type_numbers::CLIENT_RECLAIM_REPLY, "client_reclaim_reply", 1, 1 {
        result: i32,
        epoch: Epoch,
        addrs: AddrVec,
    }
}

//! What metadata servers and monitors say to each other.
//!
//! Source: src/messages/MMDSBeacon.h, src/messages/MMDSLoadTargets.h.

use std::collections::{BTreeMap, BTreeSet};

use codec::{Decode, DecodeError, Encode, wire_struct};
use types::{CompatSet, Epoch, Fsid};

use crate::payload::{Parts, PaxosVersion, Payload, Segments, message};
use crate::type_numbers;
use crate::wire::priority;

/// Something that is wrong with a metadata server or its clients, by its own word.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MdsHealthMetric {
    /// A number of `MdsHealthMetric::names`.
    pub kind: u16,
    /// 0 error, 1 warning, 2 ok.
    pub severity: u8,
    pub message: String,
    pub metadata: BTreeMap<String, String>,
}
wire_struct!(MdsHealthMetric(1, 1) { kind, severity, message, metadata });

impl MdsHealthMetric {
    /// The code of its health check, and its words; `%num%` is for the number of details.
    ///
    /// Source: mds_metric_name, mds_metric_summary.
    pub fn names(&self) -> Option<(&'static str, &'static str)> {
        Some(match self.kind {
            1 => ("MDS_TRIM", "%num% MDSs behind on trimming"),
            2 => ("MDS_CLIENT_RECALL", "%num% clients failing to respond to cache pressure"),
            3 => ("MDS_CLIENT_LATE_RELEASE", "%num% clients failing to respond to capability release"),
            4 => (
                "MDS_CLIENT_RECALL_MANY",
                "%num% MDSs have many clients failing to respond to cache pressure",
            ),
            5 => (
                "MDS_CLIENT_LATE_RELEASE_MANY",
                "%num% MDSs have many clients failing to respond to capability release",
            ),
            6 => ("MDS_CLIENT_OLDEST_TID", "%num% clients failing to advance oldest client/flush tid"),
            7 => (
                "MDS_CLIENT_OLDEST_TID_MANY",
                "%num% MDSs have clients failing to advance oldest client/flush tid",
            ),
            8 => ("MDS_DAMAGE", "%num% MDSs report damaged metadata"),
            9 => ("MDS_READ_ONLY", "%num% MDSs are read only"),
            10 => ("MDS_SLOW_REQUEST", "%num% MDSs report slow requests"),
            11 => ("MDS_CACHE_OVERSIZED", "%num% MDSs report oversized cache"),
            12 => ("MDS_SLOW_METADATA_IO", "%num% MDSs report slow metadata IOs"),
            // Of 16.2.15, like the one after it, which tests bring about (mds_inject_health_dummy).
            13 => ("MDS_CLIENTS_LAGGY", "%num% client(s) laggy due to laggy OSDs"),
            14 => ("MDS_DUMMY", "???"),
            _ => return None,
        })
    }
}

/// Everything that is wrong with a metadata server.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MdsHealth {
    pub metrics: Vec<MdsHealthMetric>,
}
wire_struct!(MdsHealth(1, 1) { metrics });

/// A metadata server is alive and wants to be in this state; the monitors answer with the same.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MMdsBeacon {
    /// The newest map that the sender has.
    pub epoch: Epoch,
    pub fsid: Fsid,
    pub gid: u64,
    pub name: String,
    /// A number of `maps::MdsState`.
    pub state: i32,
    pub seq: u64,
    pub compat: CompatSet,
    pub health: MdsHealth,
    /// What it says of itself when it boots.
    pub sys_info: BTreeMap<String, String>,
    pub features: u64,
    /// The file system that it would rather serve.
    pub fs: String,
}

impl MMdsBeacon {
    /// `up:boot`: the only state that `sys_info` travels with.
    pub const BOOT: i32 = -4;
}

impl Payload for MMdsBeacon {
    const TYPE: u16 = type_numbers::MDS_BEACON;
    const NAME: &'static str = "mdsbeacon";
    const VERSION: u16 = 8;
    const COMPAT: u16 = 6;
    const PRIORITY: u16 = priority::HIGH;

    fn encode_payload(&self, out: &mut Segments) {
        let w = &mut out.front;
        PaxosVersion(self.epoch.0.into()).encode(w);
        self.fsid.encode(w);
        w.u64(self.gid);
        w.i32(self.state);
        w.u64(self.seq);
        self.name.encode(w);
        // Whom it stood by for, before `fs` took that place.
        w.i32(-1);
        w.u32(0);
        self.compat.encode(w);
        self.health.encode(w);
        if self.state == Self::BOOT {
            self.sys_info.encode(w);
        }
        w.u64(self.features);
        w.i32(-1);
        false.encode(w);
        self.fs.encode(w);
    }

    fn decode_payload(parts: &mut Parts) -> Result<Self, DecodeError> {
        let version = parts.version;
        if version < Self::COMPAT {
            return Err(DecodeError::Invalid { what: "mdsbeacon version", value: version.into() });
        }
        let r = &mut parts.front;
        let epoch = PaxosVersion::decode(r)?.0;
        let mut m = Self {
            epoch: Epoch(u32::try_from(epoch).unwrap_or(u32::MAX)),
            fsid: Fsid::decode(r)?,
            gid: r.u64()?,
            state: r.i32()?,
            seq: r.u64()?,
            name: String::decode(r)?,
            ..Self::default()
        };
        r.skip(4)?;
        String::decode(r)?;
        m.compat = Decode::decode(r)?;
        m.health = Decode::decode(r)?;
        if m.state == Self::BOOT {
            m.sys_info = Decode::decode(r)?;
        }
        m.features = r.u64()?;
        r.skip(4)?;
        if version >= 7 {
            bool::decode(r)?;
        }
        if version >= 8 {
            m.fs = Decode::decode(r)?;
        }
        Ok(m)
    }
}

message! {
    /// The ranks to which a metadata server gives subtrees.
    #[derive(Default)]
    MMdsLoadTargets = type_numbers::MDS_LOAD_TARGETS, "mds_load_targets", 1, 1 {
        version: PaxosVersion,
        gid: u64,
        targets: BTreeSet<i32>,
    }
}

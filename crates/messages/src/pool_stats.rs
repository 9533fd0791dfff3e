//! Statistics that clients and OSDs exchange with monitors and the manager.

use std::collections::BTreeMap;

use codec::{Decode, DecodeError, Encode};
use types::{Epoch, Fsid, PgId, Utime};

use crate::payload::{Parts, PaxosVersion, Payload, Segments, message};
use crate::stats::{OsdStat, PgStat, PoolStat, StoreStatfs};
use crate::type_numbers;

message! {
    /// Asks for pools' statistics by name; all without names. Source: src/messages/MGetPoolStats.h.
    #[derive(Default)]
    MGetPoolStats = type_numbers::GET_POOL_STATS, "getpoolstats", 1, 1 {
        version: PaxosVersion,
        fsid: Fsid,
        pools: Vec<String>,
    }
}

message! {
    /// Source: src/messages/MGetPoolStatsReply.h.
    #[derive(Default)]
    MGetPoolStatsReply = type_numbers::GET_POOL_STATS_REPLY, "getpoolstats", 2, 1, HIGH {
        version: PaxosVersion,
        fsid: Fsid,
        pools: BTreeMap<String, PoolStat>,
        /// Every OSD counts its stores' use by pool.
        per_pool: bool [since 2],
    }
}

/// What an OSD reports of itself and of the PGs that it leads. Source: src/messages/MPGStats.h.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MPgStats {
    pub version: PaxosVersion,
    pub fsid: Fsid,
    pub osd_stat: OsdStat,
    pub pg_stats: BTreeMap<PgId, PgStat>,
    pub epoch: Epoch,
    /// What each pool uses of this OSD's store.
    pub pool_stats: BTreeMap<i64, StoreStatfs>,
}

impl Payload for MPgStats {
    const TYPE: u16 = type_numbers::PG_STATS;
    const NAME: &'static str = "pg_stats";
    const VERSION: u16 = 2;
    const COMPAT: u16 = 1;

    fn encode_payload(&self, out: &mut Segments) {
        let w = &mut out.front;
        self.version.encode(w);
        self.fsid.encode(w);
        self.osd_stat.encode(w);
        self.pg_stats.encode(w);
        self.epoch.encode(w);
        // A time that nobody reads.
        Utime::ZERO.encode(w);
        self.pool_stats.encode(w);
    }

    fn decode_payload(parts: &mut Parts) -> Result<Self, DecodeError> {
        let r = &mut parts.front;
        let mut m = Self {
            version: Decode::decode(r)?,
            fsid: Decode::decode(r)?,
            osd_stat: Decode::decode(r)?,
            pg_stats: Decode::decode(r)?,
            epoch: Decode::decode(r)?,
            pool_stats: BTreeMap::new(),
        };
        Utime::decode(r)?;
        if parts.version >= 2 {
            m.pool_stats = Decode::decode(r)?;
        }
        Ok(m)
    }
}

message! {
    /// Reported sequence and epoch of each PG whose report arrived. Source: src/messages/MPGStatsAck.h.
    #[derive(Default)]
    MPgStatsAck = type_numbers::PG_STATS_ACK, "pg_stats_ack", 1, 1 {
        pgs: BTreeMap<PgId, (u64, Epoch)>,
    }
}

//! The digest of all PG statistics that Ceph's manager sends in MMonMgrReport.
//!
//! Source: PGMapDigest::encode in src/mon/PGMap.cc (version 4).

use std::collections::BTreeMap;

use codec::{Decode, DecodeError, Encode, Reader, Writer, wire_plain};
use types::{PoolId, SnapId, Utime};

use crate::stats::{OsdStat, PoolStat};

/// PGs of one OSD.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PgCount {
    pub acting: i32,
    pub up_not_acting: i32,
    pub primary: i32,
}
wire_plain!(PgCount { acting, up_not_acting, primary });

/// Sums over pools, OSDs and states. Maps are Ceph's hash maps: their order on the wire is nobody's concern.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PgMapDigest {
    pub num_pg: i64,
    pub num_pg_active: i64,
    pub num_pg_unknown: i64,
    pub num_osd: i64,
    pub pools: BTreeMap<i32, PoolStat>,
    pub pool_sum: PoolStat,
    pub osd_sum: OsdStat,
    /// By PG_STATE_* bits; 0 is unknown.
    pub num_pg_by_state: BTreeMap<u64, i32>,
    pub num_pg_by_osd: BTreeMap<i32, PgCount>,
    pub num_pg_by_pool: BTreeMap<PoolId, i64>,
    /// The last report's number, by OSD.
    pub osd_last_seq: Vec<u64>,
    /// What the last reports added to each pool, and in what time.
    pub pool_deltas: BTreeMap<PoolId, (PoolStat, Utime)>,
    pub pool_delta_stamps: BTreeMap<PoolId, Utime>,
    pub sum_delta: PoolStat,
    /// The span of `sum_delta`.
    pub sum_delta_span: Utime,
    /// Raw bytes that can be written under each CRUSH rule before an OSD is full.
    pub avail_by_rule: BTreeMap<i32, i64>,
    /// Removed snapshots that no PG of the pool has clones of: first and count.
    pub purged_snaps: BTreeMap<PoolId, Vec<(SnapId, u64)>>,
    pub osd_sum_by_class: BTreeMap<String, OsdStat>,
}

impl Encode for PgMapDigest {
    fn encode(&self, w: &mut Writer) {
        w.envelope(4, 1, |w| {
            for n in [self.num_pg, self.num_pg_active, self.num_pg_unknown, self.num_osd] {
                w.i64(n);
            }
            self.pools.encode(w);
            self.pool_sum.encode(w);
            self.osd_sum.encode(w);
            self.num_pg_by_state.encode(w);
            self.num_pg_by_osd.encode(w);
            self.num_pg_by_pool.encode(w);
            self.osd_last_seq.encode(w);
            self.pool_deltas.encode(w);
            self.pool_delta_stamps.encode(w);
            self.sum_delta.encode(w);
            self.sum_delta_span.encode(w);
            self.avail_by_rule.encode(w);
            self.purged_snaps.encode(w);
            self.osd_sum_by_class.encode(w);
        });
    }
}

/// Reads the forms since Nautilus.
impl Decode for PgMapDigest {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("PGMapDigest", 4, |r, env| {
            if env.version < 4 {
                return Err(DecodeError::Invalid { what: "PGMapDigest version", value: env.version.into() });
            }
            Ok(Self {
                num_pg: r.i64()?,
                num_pg_active: r.i64()?,
                num_pg_unknown: r.i64()?,
                num_osd: r.i64()?,
                pools: Decode::decode(r)?,
                pool_sum: Decode::decode(r)?,
                osd_sum: Decode::decode(r)?,
                num_pg_by_state: Decode::decode(r)?,
                num_pg_by_osd: Decode::decode(r)?,
                num_pg_by_pool: Decode::decode(r)?,
                osd_last_seq: Decode::decode(r)?,
                pool_deltas: Decode::decode(r)?,
                pool_delta_stamps: Decode::decode(r)?,
                sum_delta: Decode::decode(r)?,
                sum_delta_span: Decode::decode(r)?,
                avail_by_rule: Decode::decode(r)?,
                purged_snaps: Decode::decode(r)?,
                osd_sum_by_class: Decode::decode(r)?,
            })
        })
    }
}

//! The manager's summary of what OSDs report: use of pools and OSDs, PG states, rates, reasons for ill health.

use std::collections::BTreeMap;

use codec::{Decode, DecodeError, Encode, Reader, Writer, wire_struct};
use maps::SnapIntervals;
use messages::mgr::{HealthCheck, ProgressEvent};
use messages::stats::{ObjectStatSum, PoolStat, StoreStatfs};
use types::{Epoch, PoolId, Utime};

/// What `MPgDigest::summary` holds. The manager sends a new one every few seconds.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PgDigest {
    pub stamp: Utime,
    /// The OSD map that the manager had.
    pub epoch: Epoch,
    /// PGs by state (PG_STATE_* bits); 0 is unknown.
    pub pg_states: BTreeMap<u64, u32>,
    pub pools: BTreeMap<PoolId, PoolUsage>,
    pub osds: BTreeMap<i32, OsdUsage>,
    pub rates: Rates,
    /// What the manager finds wrong: PG_AVAILABILITY, PG_DEGRADED, ...
    pub checks: BTreeMap<String, HealthCheck>,
    pub progress: BTreeMap<String, ProgressEvent>,
    /// Removed snapshots that no PG of the pool has clones of any more.
    pub purged_snaps: BTreeMap<PoolId, SnapIntervals>,
}

impl PgDigest {
    /// What is left of a digest when nobody stands for it any more: use of space, but neither states of PGs nor rates.
    /// PGs of which nothing is known count as inactive.
    pub fn outdated(old: &Self) -> Self {
        let pgs: u32 = old.pg_states.values().sum();
        let mut new = Self { rates: Rates::default(), checks: BTreeMap::new(), ..old.clone() };
        new.progress.clear();
        new.pools.values_mut().for_each(|pool| pool.rates = Rates::default());
        new.pg_states = if pgs == 0 { BTreeMap::new() } else { [(0, pgs)].into() };
        if pgs > 0 {
            let s = if pgs == 1 { "" } else { "s" };
            let summary = format!("Reduced data availability: {pgs} pg{s} inactive");
            let check = HealthCheck { severity: 1, summary, detail: vec![], count: pgs.into() };
            new.checks.insert("PG_AVAILABILITY".to_owned(), check);
        }
        new
    }
}

impl Encode for PgDigest {
    fn encode(&self, w: &mut Writer) {
        w.envelope(2, 1, |w| {
            self.stamp.encode(w);
            self.epoch.encode(w);
            self.pg_states.encode(w);
            self.pools.encode(w);
            self.osds.encode(w);
            self.rates.encode(w);
            self.checks.encode(w);
            self.progress.encode(w);
            self.purged_snaps.encode(w);
        });
    }
}
impl Decode for PgDigest {
    const MIN_SIZE: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("PgDigest", 2, |r, env| {
            Ok(Self {
                stamp: Decode::decode(r)?,
                epoch: Decode::decode(r)?,
                pg_states: Decode::decode(r)?,
                pools: Decode::decode(r)?,
                osds: Decode::decode(r)?,
                rates: Decode::decode(r)?,
                checks: Decode::decode(r)?,
                progress: Decode::decode(r)?,
                purged_snaps: if env.version >= 2 { Decode::decode(r)? } else { BTreeMap::new() },
            })
        })
    }
}

/// One pool.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PoolUsage {
    pub stat: PoolStat,
    pub num_pg: u32,
    pub rates: Rates,
    /// Bytes that can still be written, by the fullest OSD that the rule uses, before replication is taken off.
    pub avail_raw: u64,
}
wire_struct!(PoolUsage(1, 1) { stat, num_pg, rates, avail_raw });

/// One OSD.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct OsdUsage {
    pub statfs: StoreStatfs,
    /// PGs that it holds.
    pub num_pgs: u32,
    pub commit_latency_ns: u64,
    pub apply_latency_ns: u64,
    pub up_from: Epoch,
    pub seq: u64,
}
wire_struct!(OsdUsage(1, 1) { statfs, num_pgs, commit_latency_ns, apply_latency_ns, up_from, seq });

/// Per second, over the last reports.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Rates {
    pub read_bytes: u64,
    pub write_bytes: u64,
    pub reads: u64,
    pub writes: u64,
    pub recovered_bytes: u64,
    pub recovered_objects: u64,
    pub recovered_keys: u64,
}
wire_struct!(Rates(1, 1) {
    read_bytes, write_bytes, reads, writes, recovered_bytes, recovered_objects, recovered_keys,
});

impl PgDigest {
    /// Sums over all pools.
    pub fn totals(&self) -> ObjectStatSum {
        let mut sum = ObjectStatSum::default();
        self.pools.values().for_each(|p| sum += p.stat.stats.sum);
        sum
    }

    /// Sums over all OSDs' stores.
    pub fn statfs(&self) -> StoreStatfs {
        let mut sum = StoreStatfs::default();
        self.osds.values().for_each(|o| add_statfs(&mut sum, &o.statfs));
        sum
    }

    pub fn num_pgs(&self) -> u32 {
        self.pg_states.values().sum()
    }
}

/// Adds one store's numbers to a sum.
pub fn add_statfs(sum: &mut StoreStatfs, s: &StoreStatfs) {
    sum.total += s.total;
    sum.available += s.available;
    sum.internally_reserved += s.internally_reserved;
    sum.allocated += s.allocated;
    sum.data_stored += s.data_stored;
    sum.data_compressed += s.data_compressed;
    sum.data_compressed_allocated += s.data_compressed_allocated;
    sum.data_compressed_original += s.data_compressed_original;
    sum.omap_allocated += s.omap_allocated;
    sum.internal_metadata += s.internal_metadata;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_of_the_first_form_are_read() {
        let purged_snaps = BTreeMap::from([(PoolId(3), SnapIntervals::from_iter([(1, 4)]))]);
        let digest = PgDigest { epoch: Epoch(7), purged_snaps, ..PgDigest::default() };
        let bytes = digest.to_bytes();
        assert_eq!(PgDigest::from_bytes(bytes.clone()), Ok(digest.clone()));
        let without = PgDigest { purged_snaps: BTreeMap::new(), ..digest };
        // The first form: another version, and the last field's 4 bytes less.
        let mut old = without.to_bytes().to_vec();
        old.truncate(old.len() - 4);
        for (at, change) in [(0, 1), (2, 4)] {
            if let Some(byte) = old.get_mut(at) {
                *byte -= change;
            }
        }
        assert_eq!(PgDigest::from_bytes(old), Ok(without));
        for n in 0..bytes.len() {
            assert!(PgDigest::from_bytes(bytes.slice(..n)).is_err(), "{n}");
        }
    }
}

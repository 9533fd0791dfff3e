//! Delays a manager's digest that changes only OSDs' usage and latencies until the next proposal, for at most
//! `IDLE_EVERY`. Each entry of the log costs a monitor's disk seven pages, and a manager of an idle cluster
//! has such news whenever an OSD reports.

use std::time::Duration;

use codec::Encode;
use types::Now;

use crate::monitor::Monitor;
use crate::proposal::Batch;
use crate::service::mgr::is_in_charge;
use crate::state::{Change, OsdUsage, PgDigest, PoolUsage};

/// Between two entries of an idle cluster's digests.
const IDLE_EVERY: Duration = Duration::from_secs(5);

/// The newest digest that waits, and when the last one went.
#[derive(Debug, Clone, Default)]
pub(crate) struct HeldDigest {
    /// The manager's number, and what it said.
    waits: Option<(u64, Box<PgDigest>)>,
    last: Option<Duration>,
}

impl HeldDigest {
    /// Another monitor leads: it hears of the manager itself.
    pub(crate) fn forget(&mut self) {
        *self = Self::default();
    }

    /// What waits is old: the manager says again what the monitors know.
    pub(crate) fn drop_waiting(&mut self) {
        self.waits = None;
    }

    fn is_due(&self, now: Now) -> bool {
        self.last.is_none_or(|at| now.mono.saturating_sub(at) >= IDLE_EVERY)
    }
}

impl Monitor {
    /// Takes a digest that differs from the last one: at once, or later if nothing but OSDs' usage changed.
    pub(crate) fn take_or_hold(&mut self, now: Now, batch: &mut Batch, gid: u64, digest: PgDigest) {
        let before = &batch.state().digest;
        if !before.stamp.is_zero() && !self.held.is_due(now) && says_the_same(before, &digest) {
            self.held.waits = Some((gid, Box::new(digest)));
            return;
        }
        self.held = HeldDigest { waits: None, last: Some(now.mono) };
        batch.change(Change::Digest(digest.to_bytes()));
    }

    /// The digest that waits goes with other changes, or when its time has come.
    pub(crate) fn release_digest(&mut self, now: Now, batch: &mut Batch) {
        if batch.is_empty() && !self.held.is_due(now) {
            return;
        }
        let Some((gid, digest)) = self.held.waits.take() else { return };
        if is_in_charge(batch, gid) {
            self.held.last = Some(now.mono);
            batch.change(Change::Digest(digest.to_bytes()));
        }
    }
}

/// Whether two digests differ only in OSDs' space, latencies and sequence numbers of reports, and in pools'
/// stored bytes. So `osd last-stat-seq` lags by up to `IDLE_EVERY`. Rates that are not 0 are news each time,
/// for somebody may be watching them.
fn says_the_same(before: &PgDigest, after: &PgDigest) -> bool {
    let quiet = |digest: &PgDigest| {
        let pool = |p: &PoolUsage| PoolUsage { avail_raw: 0, stat: still(p), ..p.clone() };
        let osd = |o: &OsdUsage| OsdUsage { num_pgs: o.num_pgs, up_from: o.up_from, ..OsdUsage::default() };
        PgDigest {
            stamp: types::Utime::ZERO,
            pools: digest.pools.iter().map(|(id, p)| (*id, pool(p))).collect(),
            osds: digest.osds.iter().map(|(id, o)| (*id, osd(o))).collect(),
            sums: None,
            ..digest.clone()
        }
    };
    let has_rates = |d: &PgDigest| {
        let all = d.pools.values().map(|p| p.rates).chain([d.rates]);
        all.into_iter().any(|rates| rates != Default::default())
    };
    !has_rates(before) && !has_rates(after) && quiet(before) == quiet(after)
}

/// What a pool's PGs say, without what its part of the OSDs' space is.
fn still(p: &PoolUsage) -> messages::stats::PoolStat {
    messages::stats::PoolStat { store_stats: Default::default(), ..p.stat }
}

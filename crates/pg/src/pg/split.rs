//! Splitting: when a pool gets more PGs, some of this PG's objects become a child's. Objects do not move in the store (a
//! PG is a range of the object order); log, missing set and sums are divided.

use store::{Store, Txn};
use types::{HObject, PgId, SpgId};

use super::{Pg, persist};
use crate::info::{PgInfo, PgSums};
use crate::object::{CloneInfo, LoadError, ObjectState, info_flags};
use crate::range::{ancestor, pg_range};
use maps::Pool;

/// Objects read in one step.
const PAGE: usize = 512;

/// The PGs that come out of `parent` when its pool grows from `from` to `to` PGs.
pub(crate) fn children(parent: PgId, from: u32, to: u32) -> Vec<PgId> {
    let all = (from..to).map(|seed| PgId::new(parent.pool, seed));
    all.filter(|child| ancestor(*child, from) == parent).collect()
}

impl Pg {
    /// Takes a child out of this PG, and stores the child; `save_after_split` follows for this PG. The interval that ends
    /// with the split must be closed already: the child inherits it.
    pub fn split_off(
        &mut self,
        child: PgId,
        pool: &Pool,
        store: &mut Store,
        txn: &mut Txn,
    ) -> Result<Pg, LoadError> {
        let id = SpgId { pgid: child, shard: self.id.shard };
        let (from, until) = pg_range(child, pool.pg_num);
        let moves = |o: &HObject| *o >= from && *o < until;
        let log = self.log.split_off(|e| moves(&e.object));
        // Nobody knows here what lacking objects count for.
        let lacking = self.missing.iter().count() + usize::from(self.info.is_incomplete());
        self.info.sums.uncounted += lacking as i64;
        let missing = self.missing.split_off(moves);
        let (theirs, ours) = std::mem::take(&mut self.lost_here).into_iter().partition(moves);
        self.lost_here = ours;
        let mut sums = sums_of_range(id, &from, &until, store)?;
        subtract(&mut self.info.sums, &sums);
        sums.uncounted = self.info.sums.uncounted;
        let mut info = PgInfo { pgid: child, sums, ..self.info.clone() };
        info.history.last_epoch_split = self.info.history.same_interval_since;
        self.info.history.last_epoch_split = self.info.history.same_interval_since;
        if self.log.head() < self.info.last_update {
            self.log.set_head(self.info.last_update);
        }
        let mut pg = Pg::new(id, info, self.past.clone(), log, missing);
        self.divide_records(&mut pg, moves, store, txn)?;
        pg.key = self.key.clone();
        pg.lost_here = theirs;
        pg.save_after_split(txn);
        Ok(pg)
    }

    /// Stores what a split has divided: of a child at once, of the parent when all its children are made. Whole logs
    /// are written, so the parent's must not be once for each child.
    pub fn save_after_split(&mut self, txn: &mut Txn) {
        self.update_log_bounds();
        self.update_last_complete();
        persist::put_log(txn, self.id, &mut self.log);
        persist::put_missing(txn, self.id, &self.missing);
        persist::put_damaged(txn, self.id, &self.lost_here);
        persist::put_past(txn, self.id, &self.past);
        self.save_info(txn);
    }
}

impl Pg {
    /// The objects that are here, counted.
    pub(super) fn counted(&self, cx: &mut crate::osd::shared::Shared) -> Result<PgSums, LoadError> {
        let (from, until) = pg_range(self.id.pgid, self.key.pg_num);
        sums_of_range(self.id, &from, &until, &mut cx.store)
    }
}

fn subtract(a: &mut PgSums, b: &PgSums) {
    a.objects -= b.objects;
    a.clones -= b.clones;
    a.bytes -= b.bytes;
    a.objects_omap -= b.objects_omap;
    a.whiteouts -= b.whiteouts;
}

/// Counts a range's objects; running totals (reads, writes) stay with the parent.
fn sums_of_range(id: SpgId, from: &HObject, until: &HObject, store: &mut Store) -> Result<PgSums, LoadError> {
    let mut sums = PgSums::default();
    let mut at = from.clone();
    loop {
        let page = store.list(id.shard, &at, until, PAGE)?;
        for object in &page {
            let state = ObjectState::load(store, &store::ObjectKey::new(id.shard, object.clone()))?;
            sums.objects += 1;
            // Of clones only what they share with nobody counts, and the head knows that.
            let alone =
                |c: &CloneInfo| c.size as i64 - c.overlap.iter().map(|(_, len)| *len as i64).sum::<i64>();
            if object.is_head() {
                let clones: i64 = state.snapset.clones.values().map(alone).sum();
                sums.bytes += state.info.size as i64 + clones;
            }
            sums.clones += i64::from(!object.is_head());
            sums.objects_omap += i64::from(state.info.test(info_flags::OMAP));
            sums.whiteouts += i64::from(state.info.test(info_flags::WHITEOUT));
        }
        match page.last() {
            Some(last) if page.len() == PAGE => {
                at = HObject { snap: types::SnapId(last.snap.0.saturating_add(1)), ..last.clone() };
            }
            _ => return Ok(sums),
        }
    }
}

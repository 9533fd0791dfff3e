//! What a PG copy says about itself: how far its log goes, how complete it is, and the history of its intervals.

use codec::{Decode, DecodeError, Encode, Reader, Writer};
use types::{Epoch, Eversion, HObject, PgId, Utime};

/// Epochs and stamps of a PG that all its copies learn from each other. Source: pg_history_t in src/osd/osd_types.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PgHistory {
    pub epoch_created: Epoch,
    pub epoch_pool_created: Epoch,
    /// The newest epoch in which the PG surely went active, and the interval of it.
    pub last_epoch_started: Epoch,
    pub last_interval_started: Epoch,
    /// The newest epoch in which all copies were complete, and the interval of it.
    pub last_epoch_clean: Epoch,
    pub last_interval_clean: Epoch,
    pub last_epoch_split: Epoch,
    /// First epochs of the current up set, interval and primary; each member knows its own.
    pub same_up_since: Epoch,
    pub same_interval_since: Epoch,
    pub same_primary_since: Epoch,
    pub last_clean_stamp: Utime,
    pub scrub: ScrubHistory,
}

/// What the newest scrub has found. Source: last_scrub and its like in pg_history_t, num_scrub_errors and its like in
/// object_stat_sum_t.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ScrubHistory {
    /// The log's head and the time at the end of the newest scrub, and of the newest deep one.
    pub last: Eversion,
    pub last_stamp: Utime,
    pub last_deep: Eversion,
    pub last_deep_stamp: Utime,
    /// When a scrub last found nothing wrong.
    pub last_clean_stamp: Utime,
    pub shallow_errors: u32,
    pub deep_errors: u32,
    pub large_omap_objects: u32,
    /// A repair has begun to make these errors good. Whoever is primary when all is whole looks again.
    pub mending: bool,
    /// The interval in which this was changed last, and how many changes there were. Clocks do not order
    /// them: that of the next primary may be behind.
    pub changed: Eversion,
}

codec::wire_struct!(ScrubHistory(3, 1) {
    last, last_stamp, last_deep, last_deep_stamp, last_clean_stamp, shallow_errors, deep_errors, large_omap_objects,
} since 2 { mending } since 3 { changed });

impl ScrubHistory {
    /// This is newer than all that was known up to here. `interval` is the present one.
    pub fn note_change(&mut self, interval: Epoch) {
        self.changed = Eversion::new(interval, self.changed.version + 1);
    }

    pub fn errors(&self) -> u32 {
        self.shallow_errors.saturating_add(self.deep_errors)
    }
}

impl Encode for PgHistory {
    fn encode(&self, w: &mut Writer) {
        w.envelope(2, 1, |w| {
            (self.epoch_created, self.epoch_pool_created).encode(w);
            (self.last_epoch_started, self.last_interval_started).encode(w);
            (self.last_epoch_clean, self.last_interval_clean).encode(w);
            (self.last_epoch_split, self.same_up_since).encode(w);
            (self.same_interval_since, self.same_primary_since).encode(w);
            (self.last_clean_stamp, self.scrub).encode(w);
        });
    }
}
impl Decode for PgHistory {
    const MIN_SIZE: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("PgHistory", 2, |r, env| {
            Ok(Self {
                epoch_created: Epoch::decode(r)?,
                epoch_pool_created: Epoch::decode(r)?,
                last_epoch_started: Epoch::decode(r)?,
                last_interval_started: Epoch::decode(r)?,
                last_epoch_clean: Epoch::decode(r)?,
                last_interval_clean: Epoch::decode(r)?,
                last_epoch_split: Epoch::decode(r)?,
                same_up_since: Epoch::decode(r)?,
                same_interval_since: Epoch::decode(r)?,
                same_primary_since: Epoch::decode(r)?,
                last_clean_stamp: Utime::decode(r)?,
                scrub: if env.version >= 2 { ScrubHistory::decode(r)? } else { ScrubHistory::default() },
            })
        })
    }
}

impl PgHistory {
    /// Takes what another copy knows better; true when something changed.
    pub fn merge(&mut self, o: &Self) -> bool {
        let before = *self;
        // Whatever a copy that never took part says of scrubs is made up.
        // Errors that were made good have gone since the scrub that found them. Of OSDs that did not count
        // changes only the times tell.
        let stamps = |h: &ScrubHistory| (h.last_stamp, h.last_clean_stamp);
        let scrubbed = |h: &Self| (h.last_epoch_started.0 > 0, h.scrub.changed, stamps(&h.scrub));
        if scrubbed(o) > scrubbed(self) {
            self.scrub = o.scrub;
        }
        self.epoch_created = match (self.epoch_created.0, o.epoch_created.0) {
            (0, _) => o.epoch_created,
            (_, 0) => self.epoch_created,
            _ => self.epoch_created.min(o.epoch_created),
        };
        self.epoch_pool_created = self.epoch_pool_created.max(o.epoch_pool_created);
        self.last_epoch_started = self.last_epoch_started.max(o.last_epoch_started);
        self.last_interval_started = self.last_interval_started.max(o.last_interval_started);
        self.last_epoch_clean = self.last_epoch_clean.max(o.last_epoch_clean);
        self.last_interval_clean = self.last_interval_clean.max(o.last_interval_clean);
        self.last_epoch_split = self.last_epoch_split.max(o.last_epoch_split);
        self.last_clean_stamp = self.last_clean_stamp.max(o.last_clean_stamp);
        *self != before
    }
}

/// Sums over a PG's objects, changed in the same transaction as the objects. Source: object_stat_sum_t.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PgSums {
    pub objects: i64,
    pub clones: i64,
    pub bytes: i64,
    pub omap_bytes: i64,
    pub omap_keys: i64,
    pub objects_omap: i64,
    pub whiteouts: i64,
    pub objects_pinned: i64,
    /// Operations and KiB read and written since the PG was made.
    pub reads: i64,
    pub read_kib: i64,
    pub writes: i64,
    pub write_kib: i64,
    pub objects_recovered: i64,
    pub bytes_recovered: i64,
    pub keys_recovered: i64,
    /// Objects that a copy lacked when it divided these sums in a split, or that were given up: once nothing is missing
    /// they are counted anew.
    pub uncounted: i64,
}

codec::wire_struct!(PgSums(2, 1) {
    objects, clones, bytes, omap_bytes, omap_keys, objects_omap, whiteouts, objects_pinned, reads, read_kib, writes,
    write_kib, objects_recovered, bytes_recovered, keys_recovered,
} since 2 {
    uncounted,
});

impl PgSums {
    fn fields(&self) -> [i64; 16] {
        [
            self.objects,
            self.clones,
            self.bytes,
            self.omap_bytes,
            self.omap_keys,
            self.objects_omap,
            self.whiteouts,
            self.objects_pinned,
            self.reads,
            self.read_kib,
            self.writes,
            self.write_kib,
            self.objects_recovered,
            self.bytes_recovered,
            self.keys_recovered,
            self.uncounted,
        ]
    }

    fn fields_mut(&mut self) -> [&mut i64; 16] {
        [
            &mut self.objects,
            &mut self.clones,
            &mut self.bytes,
            &mut self.omap_bytes,
            &mut self.omap_keys,
            &mut self.objects_omap,
            &mut self.whiteouts,
            &mut self.objects_pinned,
            &mut self.reads,
            &mut self.read_kib,
            &mut self.writes,
            &mut self.write_kib,
            &mut self.objects_recovered,
            &mut self.bytes_recovered,
            &mut self.keys_recovered,
            &mut self.uncounted,
        ]
    }

    pub fn add(&mut self, d: &Self) {
        self.objects += d.objects;
        self.clones += d.clones;
        self.bytes += d.bytes;
        self.omap_bytes += d.omap_bytes;
        self.omap_keys += d.omap_keys;
        self.objects_omap += d.objects_omap;
        self.whiteouts += d.whiteouts;
        self.objects_pinned += d.objects_pinned;
        self.reads += d.reads;
        self.read_kib += d.read_kib;
        self.writes += d.writes;
        self.write_kib += d.write_kib;
        self.objects_recovered += d.objects_recovered;
        self.bytes_recovered += d.bytes_recovered;
        self.keys_recovered += d.keys_recovered;
        self.uncounted += d.uncounted;
    }
}

/// What a write changes in a PG's info beside the bounds of the log, which the log itself tells. It is kept with the
/// write's newest log entry, so that a write need not store the whole info.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AfterWrite {
    pub last_user_version: u64,
    pub sums: PgSums,
}

/// The user version, a bit for each sum that is not 0, and those sums in order: most are always 0.
impl Encode for AfterWrite {
    fn encode(&self, w: &mut Writer) {
        let fields = self.sums.fields();
        let bits = fields.iter().enumerate().fold(0u16, |bits, (at, v)| bits | u16::from(*v != 0) << at);
        w.u64(self.last_user_version);
        w.u16(bits);
        fields.iter().filter(|v| **v != 0).for_each(|v| w.i64(*v));
    }
}
impl Decode for AfterWrite {
    const MIN_SIZE: usize = 10;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        let mut found = Self { last_user_version: r.u64()?, ..Self::default() };
        let bits = r.u16()?;
        let fields = found.sums.fields_mut();
        if u32::from(bits) >> fields.len() != 0 {
            return Err(DecodeError::Invalid { what: "sums of a PG", value: bits.into() });
        }
        for (at, field) in fields.into_iter().enumerate() {
            if bits >> at & 1 != 0 {
                *field = r.i64()?;
            }
        }
        Ok(found)
    }
}

/// One copy of a PG. Source: pg_info_t in src/osd/osd_types.h.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PgInfo {
    pub pgid: PgId,
    /// The newest log entry's version.
    pub last_update: Eversion,
    /// Everything up to here is in the store, not only in the log.
    pub last_complete: Eversion,
    /// The log reaches back to here.
    pub log_tail: Eversion,
    pub last_user_version: u64,
    /// The epoch in which this copy last took part in going active, and its interval.
    pub last_epoch_started: Epoch,
    pub last_interval_started: Epoch,
    /// Objects up to here are complete but for `missing`; below `HObject::max()` while this copy is being backfilled.
    pub last_backfill: HObject,
    pub history: PgHistory,
    pub sums: PgSums,
}

codec::wire_struct!(PgInfo(1, 1) {
    pgid, last_update, last_complete, log_tail, last_user_version, last_epoch_started, last_interval_started,
    last_backfill, history, sums,
});

impl PgInfo {
    /// A copy that holds nothing.
    pub fn new(pgid: PgId) -> Self {
        Self {
            pgid,
            last_update: Eversion::ZERO,
            last_complete: Eversion::ZERO,
            log_tail: Eversion::ZERO,
            last_user_version: 0,
            last_epoch_started: Epoch(0),
            last_interval_started: Epoch(0),
            last_backfill: HObject::max(),
            history: PgHistory::default(),
            sums: PgSums::default(),
        }
    }

    /// Never written to.
    pub fn is_empty(&self) -> bool {
        self.last_update.version == 0
    }

    /// Nobody ever made this copy.
    pub fn does_not_exist(&self) -> bool {
        self.history.epoch_created.0 == 0
    }

    /// Objects beyond `last_backfill` are not here.
    pub fn is_incomplete(&self) -> bool {
        !self.last_backfill.max
    }

    pub fn has_missing(&self) -> bool {
        self.last_complete != self.last_update
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_write_changes_comes_back_and_truncations_are_errors() {
        for n in 0..15 {
            let mut after = AfterWrite { last_user_version: 7, ..AfterWrite::default() };
            after.sums.fields_mut().into_iter().take(n).zip(-3..).for_each(|(field, v)| *field = v);
            let raw = after.to_bytes();
            assert_eq!(AfterWrite::from_bytes(raw.clone()), Ok(after));
            assert!((0..raw.len()).all(|cut| AfterWrite::from_bytes(raw.slice(..cut)).is_err()));
        }
        let mut unknown = AfterWrite::default().to_bytes().to_vec();
        unknown[9] = 0x80;
        assert!(AfterWrite::from_bytes(unknown).is_err());
    }

    #[test]
    fn what_scrubs_found_is_not_taken_from_a_copy_that_never_started() {
        let history = |started, stamp, errors| PgHistory {
            last_epoch_started: Epoch(started),
            scrub: ScrubHistory {
                last_stamp: Utime::new(stamp, 0),
                deep_errors: errors,
                ..Default::default()
            },
            ..PgHistory::default()
        };
        for (ours, theirs, errors) in [
            (history(5, 100, 3), history(0, 900, 0), 3),
            (history(0, 900, 0), history(5, 100, 3), 3),
            (history(5, 100, 3), history(4, 900, 0), 0),
            (history(0, 0, 0), history(0, 100, 3), 3),
        ] {
            let mut merged = ours;
            merged.merge(&theirs);
            assert_eq!(merged.scrub.deep_errors, errors, "{ours:?} {theirs:?}");
        }
    }

    #[test]
    fn errors_that_were_made_good_since_a_scrub_are_gone_everywhere() {
        let found = ScrubHistory { last_stamp: Utime::new(100, 0), deep_errors: 2, ..Default::default() };
        let good = ScrubHistory { last_clean_stamp: Utime::new(130, 0), deep_errors: 0, ..found };
        let history = |scrub| PgHistory { last_epoch_started: Epoch(5), scrub, ..PgHistory::default() };
        for (ours, theirs) in [(found, good), (good, found)] {
            let mut merged = history(ours);
            merged.merge(&history(theirs));
            assert_eq!(merged.scrub, good);
        }
    }

    /// A primary whose clock is behind has found that all is good.
    #[test]
    fn what_scrubs_found_is_not_ordered_by_clocks() {
        let found = ScrubHistory { last_stamp: Utime::new(100, 0), deep_errors: 2, ..Default::default() };
        let mut found = ScrubHistory { last_clean_stamp: Utime::new(90, 0), ..found };
        found.note_change(Epoch(7));
        let mut good = ScrubHistory { last_clean_stamp: Utime::new(50, 0), deep_errors: 0, ..found };
        good.note_change(Epoch(7));
        let mut again = ScrubHistory { last_stamp: Utime::new(60, 0), deep_errors: 1, ..good };
        again.note_change(Epoch(9));
        let history = |scrub| PgHistory { last_epoch_started: Epoch(5), scrub, ..PgHistory::default() };
        for (older, newer) in [(found, good), (good, again), (found, again)] {
            for (ours, theirs) in [(older, newer), (newer, older)] {
                let mut merged = history(ours);
                merged.merge(&history(theirs));
                assert_eq!(merged.scrub, newer);
            }
        }
    }

    #[test]
    fn both_views_of_the_sums_name_the_same_fields() {
        let mut sums = PgSums::default();
        sums.fields_mut().into_iter().zip(1..).for_each(|(field, v)| *field = v);
        assert_eq!(sums.fields(), std::array::from_fn(|i| i as i64 + 1));
        assert_eq!((sums.objects, sums.keys_recovered), (1, 15));
    }
}

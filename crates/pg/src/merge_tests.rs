//! Merging logs against a naive model: two copies share a history, diverge, and one takes the other's log over.

use std::collections::BTreeMap;

use codec::{Decode, Encode};
use testkit::Rng;
use types::{Epoch, Eversion, HObject, PoolId, ReqId, SnapId};

use crate::entry::{EntryKind, LogEntry};
use crate::log::PgLog;
use crate::merge::{LogPart, Lost, merge_log, peer_missing};
use crate::missing::{Missing, MissingItem};

/// What a store holds: each object's version.
type Objects = BTreeMap<HObject, Eversion>;

fn object(n: u64) -> HObject {
    HObject {
        pool: PoolId(1),
        hash: n as u32,
        name: format!("o{n}").into(),
        snap: SnapId::HEAD,
        ..HObject::min()
    }
}

fn reqid(tid: u64) -> ReqId {
    ReqId { tid, ..ReqId::default() }
}

/// A copy: its log, what its store holds, what it misses, and what its store would hold had nothing been missing.
#[derive(Clone)]
struct Copy {
    log: PgLog,
    store: Objects,
    missing: Missing,
    whole: Objects,
}

impl Copy {
    fn new() -> Self {
        let (log, missing) = (PgLog::default(), Missing::default());
        Self { log, store: Objects::new(), missing, whole: Objects::new() }
    }

    /// One random change in `epoch`, known with or without its data.
    fn change(&mut self, epoch: u32, with_data: bool, tid: u64, rng: &mut Rng) {
        let object = object(rng.below(6));
        let version = Eversion::new(Epoch(epoch), self.log.head().version + 1);
        let prior_version = self.whole.get(&object).copied().unwrap_or_default();
        let kind = match rng.below(8) {
            0 if prior_version != Eversion::ZERO => EntryKind::Delete,
            1 => EntryKind::Error,
            _ => EntryKind::Modify,
        };
        let e = LogEntry {
            kind,
            object: object.clone(),
            version,
            prior_version: if kind == EntryKind::Error { Eversion::ZERO } else { prior_version },
            user_version: version.version,
            reqid: reqid(tid),
            mtime: Default::default(),
            return_code: 0,
            op_returns: Vec::new(),
            dirty: crate::Dirty::ALL,
        };
        // A write of an object that is missing waits; only a log learnt from others names one.
        let with_data = with_data && !self.missing.contains(&object);
        match kind {
            EntryKind::Error => {}
            EntryKind::Delete => {
                self.missing.remove(&object);
                self.whole.remove(&object);
                self.store.remove(&object);
            }
            _ => {
                self.whole.insert(object.clone(), version);
                if with_data {
                    self.store.insert(object, version);
                } else {
                    self.missing.follow(&e);
                }
            }
        }
        self.log.append(e);
        self.check();
    }

    /// What is not missing is in the store as the log says; what is missing is named with the right version.
    fn check(&self) {
        self.log.assert_invariants();
        self.missing.assert_invariants();
        for n in 0..6 {
            let o = object(n);
            match self.missing.get(&o) {
                Some(item) => assert_eq!(Some(&item.need), self.whole.get(&o), "{o} missing"),
                None => assert_eq!(self.store.get(&o), self.whole.get(&o), "{o} present"),
            }
        }
    }
}

/// Two copies with a common past; the first is authoritative.
fn diverged(rng: &mut Rng) -> (Copy, Copy) {
    let mut base = Copy::new();
    for tid in 1..=rng.below(12) + 1 {
        base.change(1, true, tid, rng);
    }
    let (mut auth, mut other) = (base.clone(), base);
    for tid in 0..rng.below(8) {
        auth.change(3, true, 100 + tid, rng);
    }
    for tid in 0..rng.below(8) {
        let with_data = !rng.one_in(3);
        other.change(2, with_data, 200 + tid, rng);
    }
    (auth, other)
}

#[test]
fn a_merged_copy_has_or_misses_exactly_what_the_authoritative_one_holds() {
    for seed in 0..3_000 {
        let mut rng = Rng::new(seed);
        let (mut auth, mut other) = diverged(&mut rng);
        let to = auth.log.version_before_last(rng.below(10) as usize + 8);
        auth.log.trim(to, 5);
        let since = other.log.head();
        let part = LogPart::since(&auth.log, since);
        let part = LogPart::from_bytes(part.to_bytes()).unwrap();
        let expected = peer_missing(
            &auth.log,
            &LogPart::since(&other.log, Eversion::ZERO),
            other.missing.clone(),
            &HObject::max(),
            Lost::Fetch,
        );
        let merged = merge_log(&mut other.log, &mut other.missing, &HObject::max(), part).unwrap();
        for o in &merged.remove_objects {
            other.store.remove(o);
        }
        other.whole.clone_from(&auth.whole);
        other.check();
        assert_eq!(other.log.head(), auth.log.head(), "seed {seed}");
        // The primary works out the same missing set from the outside.
        let outside: Vec<_> = expected.unwrap().0.iter().map(|(o, i)| (o.clone(), i.need)).collect();
        let inside: Vec<_> = other.missing.iter().map(|(o, i)| (o.clone(), i.need)).collect();
        assert_eq!(outside, inside, "seed {seed}");
        // Requests that never happened are not found; those of the authoritative log are.
        for tid in 200..208 {
            assert_eq!(other.log.find_request(&reqid(tid)), None, "seed {seed}");
        }
        for e in auth.log.entries() {
            assert_eq!(other.log.find_request(&e.reqid).map(|r| r.version), Some(e.version));
        }
    }
}

#[test]
fn logs_without_overlap_are_refused() {
    let mut rng = Rng::new(1);
    let mut auth = Copy::new();
    for tid in 1..20 {
        auth.change(5, true, tid, &mut rng);
    }
    auth.log.trim(Eversion::new(Epoch(5), 10), 3);
    let mut log = PgLog::default();
    let part = LogPart::since(&auth.log, Eversion::ZERO);
    assert!(merge_log(&mut log, &mut Missing::default(), &HObject::max(), part.clone()).is_err());
    let mut upside_down = part;
    upside_down.entries.reverse();
    assert!(upside_down.check().is_err());
}

#[test]
fn dups_answer_requests_whose_entries_were_trimmed_until_the_window_closes() {
    let mut rng = Rng::new(2);
    let mut c = Copy::new();
    for tid in 1..=50 {
        c.change(1, true, tid, &mut rng);
        let to = c.log.version_before_last(3);
        c.log.trim(to, 10);
        c.log.assert_invariants();
    }
    for tid in 1..=50 {
        let found = c.log.find_request(&reqid(tid)).map(|r| r.version.version);
        // The counter at 50 less the window of 10.
        assert_eq!(found, (tid >= 40).then_some(tid), "request {tid}");
    }
    let part = LogPart::since(&c.log, Eversion::ZERO);
    let mut other = PgLog::from_parts(part.tail, Vec::new(), Vec::new());
    merge_log(&mut other, &mut Missing::default(), &HObject::max(), part).unwrap();
    assert_eq!(
        other.find_request(&reqid(41)).map(|r| r.version.version),
        Some(41),
        "dups travel with the log"
    );
}

#[test]
fn a_log_counts_its_memory_and_gives_it_up_with_its_entries() {
    let (rng, mut copy) = (&mut Rng::new(7), Copy::new());
    assert_eq!(copy.log.memory_bytes(), 0);
    (1..=200).for_each(|tid| copy.change(1, true, tid, rng));
    let least = 200 * size_of::<LogEntry>();
    let full = copy.log.memory_bytes();
    assert!((least..2 * least).contains(&full), "{full} bytes, at least {least}");
    let empty = PgLog::from_parts(copy.log.head(), Vec::new(), Vec::new());
    assert!(empty.memory_bytes() < full / 10, "{}", empty.memory_bytes());
}

#[test]
fn damaged_parts_never_panic() {
    let mut rng = Rng::new(3);
    let (auth, _) = diverged(&mut rng);
    let raw = LogPart::since(&auth.log, Eversion::ZERO).to_bytes();
    for n in 0..raw.len() {
        assert!(LogPart::from_bytes(raw.slice(..n)).is_err());
    }
    let item = MissingItem { need: Eversion::new(Epoch(1), 2), have: Eversion::ZERO };
    assert_eq!(MissingItem::from_bytes(item.to_bytes()), Ok(item));
}

#[test]
fn a_part_that_begins_inside_a_divergent_branch_is_refused_and_the_whole_log_is_not() {
    for seed in 0..200 {
        let mut rng = Rng::new(seed);
        let (auth, other) = diverged(&mut rng);
        let newest = LogPart::since(&other.log, other.log.head());
        let found = peer_missing(&auth.log, &newest, Missing::default(), &HObject::max(), Lost::Fetch);
        let known = auth.log.contains(other.log.head()) || other.log.is_empty();
        assert_eq!(found.is_ok(), known, "seed {seed}");
        let whole = LogPart::since(&other.log, Eversion::ZERO);
        let (_, common) =
            peer_missing(&auth.log, &whole, other.missing, &HObject::max(), Lost::Fetch).unwrap();
        assert!(common <= other.log.head() && (common == Eversion::ZERO || auth.log.contains(common)));
    }
}

/// A member that is backfilled from the start gets the newest entries only, and may lead as soon as it has the objects: a
/// request that is sent again must be known to it (seed 192 of the simulated hours ran one twice).
#[test]
fn the_newest_entries_come_with_all_requests() {
    let mut rng = Rng::new(5);
    let mut c = Copy::new();
    (1..=40).for_each(|tid| c.change(1, true, tid, &mut rng));
    c.log.trim(c.log.version_before_last(25), 30);
    let remembered: Vec<u64> = (1..=40).filter(|tid| c.log.find_request(&reqid(*tid)).is_some()).collect();
    assert!(remembered.len() >= 30, "{remembered:?}");
    for count in [0, 5, 25, 100] {
        let part = LogPart::newest(&c.log, count);
        assert!(part.entries.len() <= count && part.head == c.log.head() && part.check().is_ok());
        let taken = PgLog::from_parts(part.tail, part.entries, part.dups);
        for tid in &remembered {
            assert_eq!(taken.find_request(&reqid(*tid)), c.log.find_request(&reqid(*tid)), "{count}: {tid}");
        }
    }
}

//! Bringing a log in line with the authoritative one: what diverged is undone, what is new is learnt, what the store
//! then lacks is missing.
//!
//! Both logs share all entries up to a common version; above it, entries of the losing log never happened. An object
//! that a lost entry touched goes back to the version before, which the store no longer has: it is missing, unless it
//! did not exist before. Source: PGLog::_merge_object_divergent_entries in src/osd/PGLog.h for the cases.

use std::collections::BTreeMap;

use types::{Eversion, HObject};

use crate::entry::{DupEntry, EntryKind, LogEntry};
use crate::log::PgLog;
use crate::missing::{Missing, MissingItem};

/// A log, or the newer part of one, as copies send it to each other.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LogPart {
    /// Entries begin above this version.
    pub tail: Eversion,
    pub head: Eversion,
    pub entries: Vec<LogEntry>,
    pub dups: Vec<DupEntry>,
    /// Begins where the sender's log does.
    pub whole: bool,
}

codec::wire_struct!(LogPart(1, 1) { tail, head, entries, dups, whole });

/// The logs have no version in common, or the part contradicts itself: the sender made a mistake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MergeError {
    #[error("log ({tail}, {head}] does not overlap ours ({our_tail}, {our_head}]")]
    NoOverlap { tail: Eversion, head: Eversion, our_tail: Eversion, our_head: Eversion },
    #[error("log entries out of order at {0}")]
    OutOfOrder(Eversion),
}

/// What a merge changed, for the transaction that records it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Merged {
    pub removed_entries: Vec<Eversion>,
    pub added_entries: Vec<LogEntry>,
    pub added_dups: Vec<DupEntry>,
    /// Dups at or above this version gave way to entries again.
    pub dups_above: Option<Eversion>,
    /// Objects that the store must not hold any more.
    pub remove_objects: Vec<HObject>,
    /// Of an erasure-coded PG: what becomes of objects of which data is kept.
    pub shards: Option<MergedShards>,
}

/// What a merge means for the shards of an erasure-coded PG.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MergedShards {
    /// Changes above this version are taken back.
    pub common: Eversion,
    /// The objects of lost entries, with the version that they then have to have; zero for none.
    pub undone: Vec<(HObject, Eversion)>,
    /// Deletions that were learnt of, in their order. What goes is kept, for they may be lost themselves.
    pub deletes: Vec<(Eversion, HObject)>,
}

/// What is done with objects that lost entries changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lost {
    /// The versions before are fetched.
    Fetch,
    /// A shard has kept what takes the changes back.
    TakeBack,
    /// Nothing: a planted bug.
    Stays,
}

impl LogPart {
    /// The part of `log` above `since`; its tail is the newest version of the log at or below `since`.
    pub fn since(log: &PgLog, since: Eversion) -> Self {
        let entries: Vec<_> = log.after(since).cloned().collect();
        let tail = log.entries().rev().find(|e| e.version <= since).map_or(log.tail(), |e| e.version);
        let whole = tail == log.tail();
        let dups = if whole { log.dups().collect() } else { Vec::new() };
        Self { tail, head: log.head(), entries, dups, whole }
    }

    /// The newest entries of `log` for a member that takes it in place of its own: the others are dups there, or it would run
    /// their requests again when it leads. Source: pg_log_t::copy_up_to, which copies dups too.
    pub fn newest(log: &PgLog, count: usize) -> Self {
        let tail = log.version_before_last(count);
        let older = log.entries().take_while(|e| e.version <= tail);
        let older = older.filter(|e| e.answers_requests()).map(|e| e.to_dup());
        let dups = log.dups().chain(older);
        Self {
            tail,
            head: log.head(),
            entries: log.after(tail).cloned().collect(),
            dups: dups.collect(),
            whole: true,
        }
    }

    /// Refuses parts whose entries do not rise from `tail` to `head`.
    pub fn check(&self) -> Result<(), MergeError> {
        let mut last = self.tail;
        for e in &self.entries {
            if e.version <= last || e.version > self.head || e.version.version <= last.version {
                return Err(MergeError::OutOfOrder(e.version));
            }
            last = e.version;
        }
        match self.head >= self.tail {
            true => Ok(()),
            false => Err(MergeError::OutOfOrder(self.head)),
        }
    }

    /// The newest version that both logs have.
    ///
    /// A whole log's tail counts as common: what is trimmed was acknowledged, and so is known to every copy that has newer
    /// entries. Another part's tail must be an entry that is known here; else the part says nothing about where both
    /// parted, for entries of an interval that never took writes may reach further back than it.
    fn common_with(&self, log: &PgLog) -> Result<Eversion, MergeError> {
        let matched = self.entries.iter().rev().map(|e| e.version).find(|v| log.contains(*v));
        if let Some(common) = matched {
            return Ok(common);
        }
        let known =
            self.tail <= log.tail() || (self.whole && self.tail <= log.head()) || log.contains(self.tail);
        if !known || log.tail() > self.head {
            return Err(MergeError::NoOverlap {
                tail: self.tail,
                head: self.head,
                our_tail: log.tail(),
                our_head: log.head(),
            });
        }
        Ok(self.tail.max(log.tail()))
    }
}

/// As no planted bug does it.
#[cfg(test)]
pub fn merge_log(
    log: &mut PgLog,
    missing: &mut Missing,
    last_backfill: &HObject,
    auth: LogPart,
) -> Result<Merged, MergeError> {
    merge_logs(log, missing, last_backfill, auth, Lost::Fetch)
}

/// Merges the authoritative `auth` into `log` and `missing`; objects beyond `last_backfill` are not tracked.
pub(crate) fn merge_logs(
    log: &mut PgLog,
    missing: &mut Missing,
    last_backfill: &HObject,
    auth: LogPart,
    lost: Lost,
) -> Result<Merged, MergeError> {
    auth.check()?;
    let common = auth.common_with(log)?;
    let mut out = Merged::default();
    if auth.tail < log.tail() {
        let older: Vec<_> = auth.entries.iter().filter(|e| e.version <= log.tail()).cloned().collect();
        out.added_entries.clone_from(&older);
        out.dups_above = Some(auth.tail);
        out.removed_entries = log.extend_tail(auth.tail, older);
    }
    let divergent = log.rewind(common);
    out.removed_entries.extend(divergent.iter().map(|e| e.version));
    let mut shards = MergedShards { common, ..MergedShards::default() };
    if lost == Lost::TakeBack {
        shards.undone = take_back(&divergent, common, missing, last_backfill);
    }
    for e in auth.entries.into_iter().filter(|e| e.version > common) {
        if e.object <= *last_backfill {
            missing.follow(&e);
            match e.is_delete() {
                true if lost == Lost::TakeBack => shards.deletes.push((e.version, e.object.clone())),
                true => out.remove_objects.push(e.object.clone()),
                false => {}
            }
        }
        out.added_entries.push(e.clone());
        log.append(e);
    }
    if auth.head > log.head() {
        // The newest entries went to a child when the PG split; the head still counts.
        log.set_head(auth.head);
    }
    out.added_dups = log.merge_dups(&auth.dups);
    if lost == Lost::Fetch {
        undo_divergent(&divergent, log, common, missing, last_backfill, &mut out.remove_objects);
    }
    out.shards = (lost == Lost::TakeBack).then_some(shards);
    Ok(out)
}

/// What a peer with this log (or its newer part), these missing objects and this backfill position lacks against `log`:
/// its missing set after it has merged `log`, and the version up to which both logs are the same.
pub fn peer_missing(
    log: &PgLog,
    theirs: &LogPart,
    mut missing: Missing,
    last_backfill: &HObject,
    lost: Lost,
) -> Result<(Missing, Eversion), MergeError> {
    theirs.check()?;
    let common = theirs.common_with(log)?;
    let divergent: Vec<_> = theirs.entries.iter().filter(|e| e.version > common).cloned().collect();
    if lost == Lost::TakeBack {
        take_back(&divergent, common, &mut missing, last_backfill);
    }
    for e in log.after(common).filter(|e| e.object <= *last_backfill) {
        missing.follow(e);
    }
    if lost != Lost::Fetch {
        return Ok((missing, common));
    }
    undo_divergent(&divergent, log, common, &mut missing, last_backfill, &mut Vec::new());
    Ok((missing, common))
}

/// What is missing once the changes of divergent entries (oldest first) are taken back; and their objects,
/// with the versions that these then have. An object whose older version is not there either still lacks
/// that.
fn take_back(
    divergent: &[LogEntry],
    common: Eversion,
    missing: &mut Missing,
    last_backfill: &HObject,
) -> Vec<(HObject, Eversion)> {
    let mut firsts: BTreeMap<&HObject, &LogEntry> = BTreeMap::new();
    for e in divergent.iter().filter(|e| !e.is_error() && e.object <= *last_backfill) {
        firsts.entry(&e.object).or_insert(e);
    }
    let mut undone = Vec::with_capacity(firsts.len());
    for (object, first) in firsts {
        let prior = if first.kind == EntryKind::Clone { Eversion::ZERO } else { first.prior_version };
        undone.push((object.clone(), prior));
        let Some(item) = missing.remove(object) else { continue };
        let have = if item.have > common { prior } else { item.have };
        if have < prior {
            missing.insert(object.clone(), MissingItem { need: prior, have });
        }
    }
    undone
}

/// Puts objects of divergent entries (oldest first) back; `log` holds the authoritative entries above `common` already.
fn undo_divergent(
    divergent: &[LogEntry],
    log: &PgLog,
    common: Eversion,
    missing: &mut Missing,
    last_backfill: &HObject,
    remove_objects: &mut Vec<HObject>,
) {
    let mut firsts: BTreeMap<&HObject, &LogEntry> = BTreeMap::new();
    for e in divergent.iter().filter(|e| !e.is_error() && e.object <= *last_backfill) {
        firsts.entry(&e.object).or_insert(e);
    }
    if firsts.is_empty() {
        return;
    }
    let mut newest: BTreeMap<&HObject, &LogEntry> = BTreeMap::new();
    for e in log.after(common).filter(|e| !e.is_error()) {
        newest.insert(&e.object, e);
    }
    for (object, first) in firsts {
        let prior = first.prior_version;
        if let Some(newer) = newest.get(object) {
            if !newer.is_delete() {
                // What the store has is from the lost entries.
                let item = MissingItem { need: newer.version, have: Eversion::ZERO };
                missing.insert(object.clone(), item);
            }
        } else if prior == Eversion::ZERO || first.kind == EntryKind::Clone {
            missing.remove(object);
            remove_objects.push(object.clone());
        } else {
            match missing.get(object).copied() {
                // The lost entry's data never came: the version before is still in the store.
                Some(item) if item.have == prior => {
                    missing.remove(object);
                }
                Some(item) if item.need <= prior => {}
                was => {
                    let have =
                        was.map_or(Eversion::ZERO, |i| if i.have < prior { i.have } else { Eversion::ZERO });
                    missing.insert(object.clone(), MissingItem { need: prior, have });
                }
            }
        }
    }
}

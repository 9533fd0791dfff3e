//! The PG log: the newest changes in order, an index by request, and dups of what was trimmed.
//!
//! Invariants:
//! 1. Entries' versions strictly rise, and so do their counters; the first is above `tail`.
//! 2. `head` is the last entry's version, or `tail` when there is none.
//! 3. Dups' versions strictly rise and are at or below `tail`.
//! 4. Every entry and dup with a request id is found by it. When one request has two (a request re-run after its window
//!    closed), the newer is found.
//! 5. A dup is stored as the entry that it was, unless it is `apart`: then it has a key of its own. Such came from a peer,
//!    or from a store that kept all of them so.

mod by_request;
mod dups;

use std::collections::{BTreeSet, VecDeque};

use types::{Eversion, ReqId};

use crate::entry::{DupEntry, LogEntry, OpReturn};
use by_request::ByRequest;
use dups::Dups;

/// The entries' queue grows by so many: it holds a few hundred in each of a hundred PGs.
const STEP: usize = 64;

/// The recorded outcome of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    pub version: Eversion,
    pub user_version: u64,
    pub return_code: i32,
    pub op_returns: Vec<OpReturn>,
}

impl From<DupEntry> for Recorded {
    fn from(d: DupEntry) -> Self {
        Self {
            version: d.version,
            user_version: d.user_version,
            return_code: d.return_code,
            op_returns: d.op_returns,
        }
    }
}

/// See the module's invariants.
#[derive(Debug, Clone, Default)]
pub struct PgLog {
    entries: VecDeque<LogEntry>,
    by_request: ByRequest,
    dups: Dups,
    head: Eversion,
    tail: Eversion,
}

/// What a trim took out, for the transaction that records it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Trimmed {
    /// Versions whose entry goes: dups that fell out of the window, and entries that answer no request.
    pub entries: Vec<Eversion>,
    /// Dups out of the window that were stored apart.
    pub dups: Vec<Eversion>,
}

impl PgLog {
    /// A log read back from a store or a peer: entries at or below the tail are dups, as those of `dups`, which are
    /// stored apart.
    pub fn from_parts(tail: Eversion, entries: Vec<LogEntry>, dups: Vec<DupEntry>) -> Self {
        let mut log = Self { tail, head: tail, ..Self::default() };
        let trimmed = entries.partition_point(|e| e.version <= tail);
        let as_entries = entries.iter().take(trimmed).map(|e| (e.to_dup(), false));
        log.dups = Dups::from_unsorted(dups.into_iter().map(|d| (d, true)).chain(as_entries));
        log.entries = entries.into_iter().skip(trimmed).collect();
        log.head = log.entries.back().map_or(tail, |e| e.version);
        log.rebuild_index();
        log
    }

    pub fn head(&self) -> Eversion {
        self.head
    }
    pub fn tail(&self) -> Eversion {
        self.tail
    }
    pub fn len(&self) -> usize {
        self.entries.len()
    }
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
    pub fn entries(&self) -> impl DoubleEndedIterator<Item = &LogEntry> {
        self.entries.iter()
    }
    pub fn dups(&self) -> impl DoubleEndedIterator<Item = DupEntry> {
        self.dups.iter()
    }
    pub fn dups_len(&self) -> usize {
        self.dups.len()
    }

    /// Bytes of memory, about: the tables with their spare room, the names, and results that are kept. Looks at all.
    pub fn memory_bytes(&self) -> usize {
        let apart = |e: &LogEntry| {
            e.object.name.memory_bytes()
                + e.object.key.memory_bytes()
                + e.object.nspace.memory_bytes()
                + e.op_returns.capacity() * size_of::<OpReturn>()
                + e.op_returns.iter().map(|r| r.data.len()).sum::<usize>()
        };
        self.entries.capacity() * size_of::<LogEntry>()
            + self.entries.iter().map(apart).sum::<usize>()
            + self.by_request.memory_bytes()
            + self.dups.memory_bytes()
    }

    /// The same without a look at each entry: a name is taken for 48 bytes with its head.
    pub fn about_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<LogEntry>()
            + self.entries.len() * 48
            + self.by_request.memory_bytes()
            + self.dups.about_bytes()
    }

    /// Whether an entry has exactly this version.
    pub fn contains(&self, v: Eversion) -> bool {
        self.entry(v).is_some()
    }

    pub fn entry(&self, v: Eversion) -> Option<&LogEntry> {
        let at = self.entries.partition_point(|e| e.version < v);
        self.entries.get(at).filter(|e| e.version == v)
    }

    /// Entries above `since`, oldest first.
    pub fn after(&self, since: Eversion) -> impl Iterator<Item = &LogEntry> {
        let at = self.entries.partition_point(|e| e.version <= since);
        self.entries.range(at..)
    }

    /// Entries up to and with `v`, newest first.
    pub fn up_to(&self, v: Eversion) -> impl Iterator<Item = &LogEntry> {
        let at = self.entries.partition_point(|e| e.version <= v);
        self.entries.range(..at).rev()
    }

    /// The newest entry's version below `v`.
    pub fn last_below(&self, v: Eversion) -> Option<Eversion> {
        let at = self.entries.partition_point(|e| e.version < v);
        Some(self.entries.get(at.checked_sub(1)?)?.version)
    }

    /// The oldest version that at most `n` newest entries lie above.
    pub fn version_before_last(&self, n: usize) -> Eversion {
        match self.entries.len().checked_sub(n + 1) {
            Some(i) => self.entries.get(i).map_or(self.tail, |e| e.version),
            None => self.tail,
        }
    }

    /// Appends an entry; its version must be above `head`.
    pub fn append(&mut self, e: LogEntry) {
        assert!(e.version > self.head, "log entry {} is not above head {}", e.version, self.head);
        self.head = e.version;
        if self.entries.len() == self.entries.capacity() {
            self.entries.reserve_exact(STEP);
        }
        let (reqid, place) = (e.reqid, self.entries.len());
        self.entries.push_back(e);
        self.by_request.put(&reqid, place, |at| self.entries.get(at).map(|e| e.reqid));
    }

    /// Moves the head forward over a version that left no entry here.
    pub fn reset(&mut self, to: Eversion) {
        *self = Self { head: to, tail: to, ..Self::default() };
    }

    /// The outcome of an earlier run of the request, if it is still in the window.
    pub fn find_request(&self, reqid: &ReqId) -> Option<Recorded> {
        match self.by_request.find(reqid, |at| self.entries.get(at).map(|e| e.reqid)) {
            Some(place) => self.entries.get(place).map(|e| e.to_dup().into()),
            None => self.dups.find(reqid).map(Recorded::from),
        }
    }

    /// Turns entries up to and including `to` into dups, and drops dups more than `window` versions behind the head.
    pub fn trim(&mut self, to: Eversion, window: u64) -> Trimmed {
        let mut out = Trimmed::default();
        while self.entries.front().is_some_and(|e| e.version <= to) {
            let Some(e) = self.entries.pop_front() else { break };
            self.tail = e.version;
            self.by_request.front_taken(&e.reqid);
            match e.answers_requests() {
                true => self.dups.push(e.into()),
                false => out.entries.push(e.version),
            }
        }
        let floor = self.head.version.saturating_sub(window);
        while let Some((version, apart)) = self.dups.pop_below(floor) {
            match apart {
                true => out.dups.push(version),
                false => out.entries.push(version),
            }
        }
        out
    }

    /// Removes and returns the entries above `to`, oldest first; `to` becomes the head.
    pub fn rewind(&mut self, to: Eversion) -> Vec<LogEntry> {
        let at = self.entries.partition_point(|e| e.version <= to);
        let divergent: Vec<_> = self.entries.drain(at..).collect();
        self.head = self.entries.back().map_or(self.tail, |e| e.version);
        self.rebuild_index();
        divergent
    }

    /// Puts older entries in front of the log, so that peers who are further behind can be caught up from it. Returns the
    /// dups that this takes out and that were stored as entries.
    pub fn extend_tail(&mut self, tail: Eversion, older: Vec<LogEntry>) -> Vec<Eversion> {
        for e in older.into_iter().rev().filter(|e| e.version <= self.tail) {
            self.entries.push_front(e);
        }
        self.tail = tail.min(self.tail);
        let gone = self.dups.truncate_above(tail);
        self.rebuild_index();
        gone
    }

    /// Takes dups of a peer that this log lacks; returns those that are new.
    pub fn merge_dups(&mut self, theirs: &[DupEntry]) -> Vec<DupEntry> {
        if theirs.is_empty() {
            return Vec::new();
        }
        let have: BTreeSet<Eversion> = self.dups.versions().collect();
        let new: Vec<_> =
            theirs.iter().filter(|d| d.version <= self.tail && !have.contains(&d.version)).cloned().collect();
        if !new.is_empty() {
            self.dups.merge(new.iter().map(|d| (d.clone(), true)));
        }
        new
    }

    /// Splits off what belongs to a child PG: entries for which `moves` says so. Dups go to both.
    pub fn split_off(&mut self, moves: impl Fn(&LogEntry) -> bool) -> Self {
        let (theirs, ours): (Vec<_>, Vec<_>) = self.entries.drain(..).partition(|e| moves(e));
        self.entries = ours.into();
        let mut child = Self::from_parts(self.tail, theirs, self.dups.iter().collect());
        // Both keep the parent's head: neither may hand out a version again.
        child.head = self.head;
        self.rebuild_index();
        child
    }

    /// For a planted bug.
    pub(crate) fn without_dups(&self) -> Self {
        let mut log = Self::from_parts(self.tail, self.entries.iter().cloned().collect(), Vec::new());
        log.head = self.head;
        log
    }

    /// The store has been given every dup under a key of its own.
    pub fn dups_stored_apart(&mut self) {
        self.dups.all_apart();
    }

    /// Sets the head above the last entry, after a split took the newest entries away.
    pub fn set_head(&mut self, head: Eversion) {
        assert!(head >= self.head);
        self.head = head;
    }

    fn rebuild_index(&mut self) {
        self.by_request.clear();
        for (place, e) in self.entries.iter().enumerate() {
            self.by_request.put(&e.reqid, place, |at| self.entries.get(at).map(|e| e.reqid));
        }
    }

    /// Checks the invariants that the module states.
    pub fn assert_invariants(&self) {
        let mut last = self.tail;
        for e in &self.entries {
            assert!(e.version > last && e.version.version > last.version, "1: {} after {last}", e.version);
            last = e.version;
        }
        assert!(self.head >= last, "2: head {} below {last}", self.head);
        self.dups.assert_invariants();
        assert!(
            self.dups.versions().next_back().is_none_or(|v| v <= self.tail),
            "3: a dup above {}",
            self.tail
        );
        let found = |reqid: &ReqId| {
            let place = self.by_request.find(reqid, |at| self.entries.get(at).map(|e| e.reqid))?;
            self.entries.get(place)
        };
        for e in self.entries.iter().filter(|e| e.answers_requests()) {
            // A dup is older than any entry.
            assert!(found(&e.reqid).is_some_and(|r| r.version >= e.version), "4: {}", e.reqid);
        }
        assert!(self.by_request.len() <= self.entries.len(), "4: index too large");
    }
}

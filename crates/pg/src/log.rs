//! The PG log: the newest changes in order, an index by request, and dups of what was trimmed.
//!
//! Invariants:
//! 1. Entries' versions strictly rise, and so do their counters; the first is above `tail`.
//! 2. `head` is the last entry's version, or `tail` when there is none.
//! 3. Dups' versions strictly rise and are at or below `tail`.
//! 4. Every entry and dup with a request id is found by it; the index holds nothing else. When one request has two
//!    (a request re-run after its window closed), the newer is found.
//! 5. A dup is stored as the entry that it was, unless `apart` names it: then it has a key of its own.

use std::collections::{BTreeSet, VecDeque};

use types::{Eversion, ReqId};

use crate::entry::{DupEntry, LogEntry, OpReturn};
use crate::hash::FixedMap;

/// The recorded outcome of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    pub version: Eversion,
    pub user_version: u64,
    pub return_code: i32,
    pub op_returns: Vec<OpReturn>,
}

/// See the module's invariants.
#[derive(Debug, Clone, Default)]
pub struct PgLog {
    entries: VecDeque<LogEntry>,
    dups: VecDeque<DupEntry>,
    /// Dups that came from a peer, or from a store that kept all of them so.
    apart: BTreeSet<Eversion>,
    head: Eversion,
    tail: Eversion,
    by_reqid: FixedMap<ReqId, Eversion>,
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
        let apart = dups.iter().map(|d| d.version).collect();
        let mut log = Self { tail, head: tail, dups: dups.into(), apart, ..Self::default() };
        for e in entries {
            if e.version <= tail {
                if !log.apart.contains(&e.version) {
                    log.dups.push_back(e.to_dup());
                }
                continue;
            }
            log.head = e.version;
            log.entries.push_back(e);
        }
        log.dups.make_contiguous().sort_by_key(|d| d.version);
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
    pub fn dups(&self) -> impl DoubleEndedIterator<Item = &DupEntry> {
        self.dups.iter()
    }

    /// Bytes of memory, about: the tables with their spare room, the names, and results that are kept. Looks at all.
    pub fn memory_bytes(&self) -> usize {
        let returns = |list: &Vec<OpReturn>| {
            list.capacity() * size_of::<OpReturn>() + list.iter().map(|r| r.data.len()).sum::<usize>()
        };
        let name = |e: &LogEntry| {
            e.object.name.capacity()
                + e.object.key.capacity()
                + e.object.nspace.capacity()
                + returns(&e.op_returns)
        };
        self.entries.capacity() * size_of::<LogEntry>()
            + self.dups.capacity() * size_of::<DupEntry>()
            + self.apart.len() * 2 * size_of::<Eversion>()
            + self.by_reqid.capacity() * (size_of::<(ReqId, Eversion)>() + 1)
            + self.entries.iter().map(name).sum::<usize>()
            + self.dups.iter().map(|d| returns(&d.op_returns)).sum::<usize>()
    }

    /// Whether an entry has exactly this version.
    pub fn contains(&self, v: Eversion) -> bool {
        let at = self.entries.partition_point(|e| e.version < v);
        self.entries.get(at).is_some_and(|e| e.version == v)
    }

    /// Entries above `since`, oldest first.
    pub fn after(&self, since: Eversion) -> impl Iterator<Item = &LogEntry> {
        let at = self.entries.partition_point(|e| e.version <= since);
        self.entries.range(at..)
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
        if e.answers_requests() {
            self.by_reqid.insert(e.reqid, e.version);
        }
        self.entries.push_back(e);
    }

    /// Moves the head forward over a version that left no entry here.
    pub fn reset(&mut self, to: Eversion) {
        *self = Self { head: to, tail: to, ..Self::default() };
    }

    /// The outcome of an earlier run of the request, if it is still in the window.
    pub fn find_request(&self, reqid: &ReqId) -> Option<Recorded> {
        let version = *self.by_reqid.get(reqid)?;
        let at = self.entries.partition_point(|e| e.version < version);
        if let Some(e) = self.entries.get(at).filter(|e| e.version == version) {
            return Some(Recorded {
                version,
                user_version: e.user_version,
                return_code: e.return_code,
                op_returns: e.op_returns.clone(),
            });
        }
        let at = self.dups.partition_point(|d| d.version < version);
        let d = self.dups.get(at).filter(|d| d.version == version)?;
        Some(Recorded {
            version,
            user_version: d.user_version,
            return_code: d.return_code,
            op_returns: d.op_returns.clone(),
        })
    }

    /// Turns entries up to and including `to` into dups, and drops dups more than `window` versions behind the head.
    pub fn trim(&mut self, to: Eversion, window: u64) -> Trimmed {
        let mut out = Trimmed::default();
        while self.entries.front().is_some_and(|e| e.version <= to) {
            let Some(e) = self.entries.pop_front() else { break };
            self.tail = e.version;
            match e.answers_requests() {
                true => self.dups.push_back(e.to_dup()),
                false => out.entries.push(e.version),
            }
        }
        let floor = self.head.version.saturating_sub(window);
        while self.dups.front().is_some_and(|d| d.version.version < floor) {
            let Some(d) = self.dups.pop_front() else { break };
            if self.by_reqid.get(&d.reqid) == Some(&d.version) {
                self.by_reqid.remove(&d.reqid);
            }
            match self.apart.remove(&d.version) {
                true => out.dups.push(d.version),
                false => out.entries.push(d.version),
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
        let gone =
            self.dups.iter().map(|d| d.version).filter(|v| *v > tail && !self.apart.contains(v)).collect();
        self.dups.retain(|d| d.version <= tail);
        self.apart.retain(|v| *v <= tail);
        self.rebuild_index();
        gone
    }

    /// Takes dups of a peer that this log lacks; returns those that are new.
    pub fn merge_dups(&mut self, theirs: &[DupEntry]) -> Vec<DupEntry> {
        let have: BTreeSet<Eversion> = self.dups.iter().map(|d| d.version).collect();
        let new: Vec<_> =
            theirs.iter().filter(|d| d.version <= self.tail && !have.contains(&d.version)).cloned().collect();
        if !new.is_empty() {
            self.dups.extend(new.iter().cloned());
            self.apart.extend(new.iter().map(|d| d.version));
            self.dups.make_contiguous().sort_by_key(|d| d.version);
            self.rebuild_index();
        }
        new
    }

    /// Splits off what belongs to a child PG: entries for which `moves` says so. Dups go to both.
    pub fn split_off(&mut self, moves: impl Fn(&LogEntry) -> bool) -> Self {
        let (theirs, ours): (Vec<_>, Vec<_>) = self.entries.drain(..).partition(|e| moves(e));
        self.entries = ours.into();
        let mut child = Self::from_parts(self.tail, theirs, self.dups.iter().cloned().collect());
        // Both keep the parent's head: neither may hand out a version again.
        child.head = self.head;
        self.rebuild_index();
        child
    }

    /// The store has been given every dup under a key of its own.
    pub fn dups_stored_apart(&mut self) {
        self.apart = self.dups.iter().map(|d| d.version).collect();
    }

    /// Sets the head above the last entry, after a split took the newest entries away.
    pub fn set_head(&mut self, head: Eversion) {
        assert!(head >= self.head);
        self.head = head;
    }

    fn rebuild_index(&mut self) {
        self.by_reqid.clear();
        let dups = self.dups.iter().map(|d| (d.reqid, d.version));
        let entries = self.entries.iter().map(|e| (e.reqid, e.version));
        self.by_reqid.extend(dups.chain(entries).filter(|(r, _)| *r != ReqId::default()));
    }

    /// Checks the invariants that the module states.
    pub fn assert_invariants(&self) {
        let mut last = self.tail;
        for e in &self.entries {
            assert!(e.version > last && e.version.version > last.version, "1: {} after {last}", e.version);
            last = e.version;
        }
        assert!(self.head >= last, "2: head {} below {last}", self.head);
        let mut last = None;
        for d in &self.dups {
            assert!(last.is_none_or(|l| d.version > l) && d.version <= self.tail, "3: dup {}", d.version);
            last = Some(d.version);
        }
        let dups: BTreeSet<Eversion> = self.dups.iter().map(|d| d.version).collect();
        assert!(self.apart.is_subset(&dups), "5: {:?}", self.apart);
        for (reqid, v) in self.entries.iter().map(|e| (e.reqid, e.version)) {
            if reqid != ReqId::default() {
                assert!(self.by_reqid.get(&reqid).is_some_and(|found| *found >= v), "4: {reqid}");
            }
        }
        assert!(self.by_reqid.len() <= self.entries.len() + self.dups.len(), "4: index too large");
    }
}

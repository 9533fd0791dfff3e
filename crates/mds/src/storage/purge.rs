//! The purge queue: inodes whose objects go, in a journal of their own, executed in the background.
//!
//! ```text
//! Closed ──open──> Opening ──> Scanning ──(the end is known)──> Starting ──> Running
//! push ──> journal ──safe──> Done (the inode may go) ──> read back, or still here ──> executing ──> expired
//! ```
//!
//! Invariants:
//! 1. An item is executed only when the journal has it durably.
//! 2. The journal expires up to the first item that is not done.
//! 3. What is held of items is bounded: `max_purge_files` under way or ready; the rest lies in the journal.
//!
//! Source: src/mds/PurgeQueue.cc.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use codec::{Decode, Encode};
use messages::fs::{Frag, FragTree};
use messages::osd::{Extent, Op};
use types::{PoolId, SnapContext};

use super::desk::Desk;
use super::event::{EntryDamage, Event, StorageError, Tag};
use super::job::{Each, End, FileRange, Jobs, object_of};
use super::journal::{Journal, JournalEvent, Which};
use super::object::{ObjectName, ObjectSteps};
use super::store::{PurgeState, Settings};
use super::striping::Stripes;
use crate::format::{PurgeAction, PurgeItem, names};

/// Bytes of the queue's journal that are read ahead.
const READ_AHEAD_BYTES: u64 = 1 << 20;
/// Fragments of a directory that is removed, at most: more are no tree that a server made.
const MAX_LEAVES: usize = 1 << 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Closed,
    Opening,
    /// Entries behind the header's end are looked at: the last one may be cut off.
    Scanning,
    Starting,
    Running,
    /// An item is not understood: nothing more is executed, what comes is kept.
    Stopped,
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct PurgeQueue {
    rank: u32,
    pool: PoolId,
    pub(super) journal: Journal,
    phase: Phase,
    /// Set when the rank writes: a queue of a rank that is replayed is only looked at.
    is_active: bool,
    /// Handed over before the journal was writeable.
    early: Vec<(Tag, Bytes)>,
    /// Not safe yet, by the end of their entries.
    pushed: VecDeque<(u64, Tag)>,
    /// Items that need not be read back, by the ends of their entries.
    ready: VecDeque<(u64, u64, PurgeItem)>,
    /// By where their entries begin: where they end, how many operations they count for, whether they are
    /// done.
    executing: BTreeMap<u64, (u64, usize, bool)>,
    under_way: usize,
    ops: usize,
    done: u64,
    failed: u64,
}

impl PurgeQueue {
    pub(super) fn new(rank: u32, pool: PoolId) -> Self {
        Self {
            rank,
            pool,
            journal: Journal::new(Which::Queue, pool, names::purge_queue(rank)),
            phase: Phase::Closed,
            is_active: false,
            early: Vec::new(),
            pushed: VecDeque::new(),
            ready: VecDeque::new(),
            executing: BTreeMap::new(),
            under_way: 0,
            ops: 0,
            done: 0,
            failed: 0,
        }
    }

    pub(super) fn open(&mut self, desk: &mut Desk) {
        if self.phase == Phase::Closed {
            self.phase = Phase::Opening;
            self.journal.open(desk);
        }
    }

    /// Items may be executed from now on.
    pub(super) fn activate(&mut self) {
        self.is_active = true;
    }

    pub(super) fn is_running(&self) -> bool {
        matches!(self.phase, Phase::Running | Phase::Stopped)
    }

    pub(super) fn state(&self) -> PurgeState {
        let journal = self.journal.state();
        PurgeState {
            executing: self.under_way,
            ops_in_flight: self.ops,
            bytes_waiting: journal.write_pos.saturating_sub(journal.expire_pos),
            done: self.done,
            failed: self.failed,
        }
    }

    pub(super) fn push(&mut self, tag: Tag, item: &PurgeItem, settings: &Settings) {
        let payload = item.to_bytes();
        if !self.is_running() {
            return self.early.push((tag, payload));
        }
        let at = self.journal.state().write_pos;
        let next = self.append(tag, &payload);
        // Nothing that lies in front of it is unread: it need not be read back.
        let is_next = self.journal.read_pos() == at && self.phase == Phase::Running;
        if is_next && self.ready.len() < settings.max_purge_files {
            self.journal.read_from(next);
            self.ready.push_back((at, next, item.clone()));
        }
    }

    fn append(&mut self, tag: Tag, payload: &[u8]) -> u64 {
        let next = self.journal.append(payload);
        self.pushed.push_back((next, tag));
        next
    }

    /// Goes on as far as it can.
    pub(super) fn pump(
        &mut self,
        desk: &mut Desk,
        jobs: &mut Jobs,
        settings: &Settings,
        events: &mut Vec<Event>,
    ) {
        for event in self.journal.take_events() {
            match event {
                JournalEvent::Opened => {
                    self.phase = Phase::Scanning;
                    self.journal.read_from(self.journal.header_end());
                }
                JournalEvent::Absent => {
                    // A file system from before 12.2. Source: PurgeQueue::open.
                    self.phase = Phase::Starting;
                    self.journal.begin_fresh(desk);
                }
                JournalEvent::Writeable => self.run(),
                JournalEvent::Safe(pos) => {
                    while self.pushed.front().is_some_and(|(end, _)| *end <= pos) {
                        events.extend(self.pushed.pop_front().map(|(_, tag)| Event::Done { tag }));
                    }
                }
                JournalEvent::Failed(error) => events.push(Event::Fatal(error)),
                JournalEvent::Outrun { .. } | JournalEvent::Expired(_) => {}
            }
        }
        if self.phase == Phase::Scanning {
            self.scan(desk);
        }
        if self.phase == Phase::Running && self.is_active {
            self.consume(desk, jobs, settings, events);
        }
    }

    fn scan(&mut self, desk: &mut Desk) {
        while self.journal.next_entry().is_some() {}
        if self.journal.is_all_read() {
            self.phase = Phase::Starting;
            self.journal.start_writing(desk);
        } else {
            self.journal.read_ahead(READ_AHEAD_BYTES, desk);
        }
    }

    fn run(&mut self) {
        self.phase = Phase::Running;
        self.journal.read_from(self.journal.state().expire_pos);
        for (tag, payload) in std::mem::take(&mut self.early) {
            self.append(tag, &payload);
        }
    }

    fn has_room(&self, settings: &Settings) -> bool {
        self.under_way == 0
            || (self.under_way < settings.max_purge_files && self.ops < settings.max_purge_ops)
    }

    fn consume(&mut self, desk: &mut Desk, jobs: &mut Jobs, settings: &Settings, events: &mut Vec<Event>) {
        while self.has_room(settings) {
            let safe = self.journal.state().safe_pos;
            if let Some((_, next, _)) = self.ready.front() {
                if *next > safe {
                    return;
                }
                if let Some((at, next, item)) = self.ready.pop_front() {
                    self.execute(at, next, &item, desk, jobs, settings);
                }
                continue;
            }
            let Some(entry) = self.journal.next_entry() else {
                return self.journal.read_ahead(READ_AHEAD_BYTES, desk);
            };
            match PurgeItem::from_bytes(entry.payload) {
                Ok(item) => self.execute(entry.at, entry.next, &item, desk, jobs, settings),
                Err(error) => {
                    self.phase = Phase::Stopped;
                    let object = names::object(names::purge_queue(self.rank), 0);
                    let error = EntryDamage::Payload(error);
                    let error = StorageError::DamagedEntry { object, at: entry.at, error };
                    return events.push(Event::PurgeStopped(error));
                }
            }
        }
    }

    fn execute(
        &mut self,
        at: u64,
        next: u64,
        item: &PurgeItem,
        desk: &mut Desk,
        jobs: &mut Jobs,
        settings: &Settings,
    ) {
        let (ops, range) = self.work(item, settings);
        let in_range = range.as_ref().map_or(0, |r| r.at_once.min((r.end - r.next) as usize));
        let count = ops.len() + in_range;
        self.executing.insert(at, (next, count, false));
        self.under_way += 1;
        self.ops += count;
        jobs.start_all(desk, End::Purged(at), true, ops, range);
    }

    /// What is to be done for an item.
    fn work(&self, item: &PurgeItem, settings: &Settings) -> (Vec<ObjectSteps>, Option<FileRange>) {
        let stripes = Stripes::of(&item.layout);
        let objects = stripes.map_or(0, |s| s.objects(item.size));
        let range = |next: u64| {
            let stripes = stripes.filter(|_| next < objects)?;
            Some(FileRange {
                ino: item.ino,
                layout: item.layout.clone(),
                stripes,
                snaps: item.snaps.clone(),
                next,
                end: objects,
                each: Each::Remove,
                at_once: settings.ops_of_a_purge,
            })
        };
        match item.action {
            PurgeAction::None => (Vec::new(), None),
            PurgeAction::File => {
                let mut pools: Vec<PoolId> = item.old_pools.iter().copied().collect();
                // The backtrace's object has no namespace.
                if objects == 0 || !item.layout.pool_ns.is_empty() {
                    pools.push(item.layout.pool);
                }
                let remove = |pool| {
                    let object = ObjectName::new(pool, names::object(item.ino, 0));
                    (object, item.snaps.clone(), vec![Op::Delete.into()])
                };
                (pools.into_iter().map(remove).collect(), range(0))
            }
            PurgeAction::Truncate => {
                // The first object keeps the backtrace.
                let whole = Op::Zero(Extent::new(0, item.layout.object_size.into()));
                let first = object_of(&item.layout, item.ino, 0);
                (vec![(first, item.snaps.clone(), vec![whole.into()])], range(1))
            }
            PurgeAction::Dir => {
                let mut frags = leaves(&item.frag_tree);
                if !frags.contains(&Frag::ROOT) {
                    frags.push(Frag::ROOT);
                }
                let remove = |frag: Frag| {
                    let object = ObjectName::new(self.pool, names::object(item.ino, frag.0.into()));
                    (object, SnapContext::default(), vec![Op::Delete.into()])
                };
                (frags.into_iter().map(remove).collect(), None)
            }
        }
    }

    /// An item is done. An error other than that another server has the rank is counted, and what is left of
    /// the objects stays: the inode is gone already. Source: PurgeQueue::_execute_item.
    pub(super) fn purged(&mut self, at: u64, error: Option<StorageError>, events: &mut Vec<Event>) {
        if let Some(error) = error {
            if error.is_blocklisted() {
                return events.push(Event::Fatal(error));
            }
            self.failed += 1;
        }
        if let Some(item) = self.executing.get_mut(&at) {
            item.2 = true;
            self.ops -= item.1;
            self.under_way -= 1;
            self.done += 1;
        }
        let mut expired = None;
        while let Some(first) = self.executing.first_entry().filter(|e| e.get().2) {
            expired = Some(first.remove().0);
        }
        if let Some(pos) = expired {
            let is_idle = self.executing.is_empty() && self.ready.is_empty();
            self.journal.mark_expired(pos, is_idle);
        }
    }
}

/// The fragments that a directory is split into.
fn leaves(tree: &FragTree) -> Vec<Frag> {
    let (mut open, mut leaves) = (vec![Frag::ROOT], Vec::new());
    while let Some(frag) = open.pop() {
        let by = tree.0.get(&frag).and_then(|by| u32::try_from(*by).ok()).filter(|by| (1..=8).contains(by));
        match by {
            Some(by) if open.len() + leaves.len() < MAX_LEAVES => {
                open.extend((0..1 << by).map(|i| frag.child(by, i)).filter(|child| *child != frag));
            }
            _ => leaves.push(frag),
        }
    }
    leaves
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaves_are_what_no_split_has() {
        let half = |i| Frag::ROOT.child(1, i);
        assert_eq!(leaves(&FragTree::default()), [Frag::ROOT]);
        let mut found = leaves(&FragTree([(Frag::ROOT, 1), (half(1), 2)].into()));
        found.sort_by_key(|f| f.value());
        assert_eq!(
            found,
            [half(0), half(1).child(2, 0), half(1).child(2, 1), half(1).child(2, 2), half(1).child(2, 3)]
        );
    }
}

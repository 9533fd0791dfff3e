//! The storage of a rank: what the owner asks, and whom a result belongs to.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use codec::{Decode, Encode};
use messages::fs::FileLayout;
use messages::osd::{Extent, Op};
use types::{EntityName, Ino, Now, PoolId, SnapContext, SnapId, Utime};

use super::desk::{Desk, Owner};
use super::dirs::{self, DirCommit};
use super::event::{EntryDamage, Event, StorageError, Tag};
use super::fresh::{Fresh, backtrace_steps};
use super::job::{Each, End, Ended, FileRange, Jobs};
use super::journal::{Entry, Journal, JournalEvent, Which};
use super::object::{ObjectName, ObjectOp, ObjectSteps, OpId, Reply, Step};
use super::purge::PurgeQueue;
use super::start::Start;
use super::striping::Stripes;
use crate::format::{
    Backtrace, BaseInode, DentryKey, DirFrag, InoTable, LogEvent, PurgeItem, SessionInfo, SessionMapHeader,
    SnapTable, names,
};

/// What storage may hold and do at once.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Bytes of the journal that are read ahead during replay.
    pub read_ahead_bytes: u64,
    /// The header is written this often, if it changed. Option `journaler_write_head_interval`.
    pub head_interval: Duration,
    /// Objects of the journal that are removed at once.
    pub trims_at_once: usize,
    /// Names in a page of a fragment. Option `mds_dir_keys_per_op`.
    pub names_per_page: u64,
    /// Operations of the purge queue under way. Option `mds_max_purge_ops`.
    pub max_purge_ops: usize,
    /// Inodes that are purged at once. Option `mds_max_purge_files`.
    pub max_purge_files: usize,
    /// Operations under way for one inode that is purged. Option `filer_max_purge_ops`.
    pub ops_of_a_purge: usize,
    /// Operations under way for one file that is cut or probed. Option `filer_max_truncate_ops`.
    pub ops_of_a_truncation: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            read_ahead_bytes: 16 << 20,
            head_interval: Duration::from_secs(15),
            trims_at_once: 8,
            names_per_page: 4_096,
            max_purge_ops: 64,
            max_purge_files: 64,
            ops_of_a_purge: 10,
            ops_of_a_truncation: 16,
        }
    }
}

/// What a rank is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// It will write.
    Active,
    /// It reads what another server writes, until [`Storage::take_over`].
    Follow,
}

/// Where the journal is. Positions in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct JournalState {
    /// Objects wholly below are gone.
    pub trimmed_pos: u64,
    /// Replay begins here.
    pub expire_pos: u64,
    /// Entries that end at or before this are durable.
    pub safe_pos: u64,
    /// Where the next entry begins.
    pub write_pos: u64,
    /// Bytes of one object: a segment is about as long.
    pub period: u64,
}

/// How far the purge queue is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PurgeState {
    /// Items under way.
    pub executing: usize,
    pub ops_in_flight: usize,
    /// Bytes of the queue's journal that are not done.
    pub bytes_waiting: u64,
    /// Items done since the start.
    pub done: u64,
    /// Of these, items of which some objects could not be removed.
    pub failed: u64,
}

/// A file that is cut: its objects behind `size` are removed, and the one at `size` is cut.
#[derive(Debug, Clone, PartialEq)]
pub struct Truncation {
    pub ino: Ino,
    pub layout: FileLayout,
    pub snaps: SnapContext,
    /// Up to which the file has bytes now.
    pub from: u64,
    pub size: u64,
    /// The inode's `truncate_seq`: OSDs cut an object once for each.
    pub truncate_seq: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Closed,
    Creating,
    Opening,
    Opened,
    Replaying,
    Replayed,
    Starting,
    Writing,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Storage {
    rank: u32,
    pool: PoolId,
    has_snap_table: bool,
    settings: Settings,
    now: Now,
    desk: Desk,
    jobs: Jobs,
    stage: Stage,
    is_active: bool,
    start: Option<Start>,
    fresh: Option<Fresh>,
    log: Journal,
    purge: PurgeQueue,
    events: Vec<Event>,
    is_failed: bool,
    /// `Fatal` lies in `events`.
    is_end_untold: bool,
}

impl Storage {
    /// A rank whose metadata lies in `pool`. Nothing is read yet. `has_snap_table`: the rank has the table of
    /// snapshots (the lowest rank of the file system).
    pub fn new(rank: u32, pool: PoolId, has_snap_table: bool, settings: Settings) -> Self {
        Self {
            rank,
            pool,
            has_snap_table,
            settings,
            now: Now::default(),
            desk: Desk::default(),
            jobs: Jobs::default(),
            stage: Stage::Closed,
            is_active: false,
            start: None,
            fresh: None,
            log: Journal::new(Which::Log, pool, names::journal(rank)),
            purge: PurgeQueue::new(rank, pool),
            events: Vec::new(),
            is_failed: false,
            is_end_untold: false,
        }
    }

    /// Operations to be carried out.
    pub fn take_ops(&mut self) -> Vec<ObjectOp> {
        std::mem::take(&mut self.desk.ops)
    }

    /// What happened since.
    pub fn take_events(&mut self) -> Vec<Event> {
        self.pump();
        self.is_end_untold = false;
        std::mem::take(&mut self.events)
    }

    /// The result of an operation.
    pub fn done(&mut self, now: Now, id: OpId, reply: Reply) {
        self.now = now;
        match self.desk.take(id) {
            Some(Owner::Log(op)) => self.log.done(op, reply, &mut self.desk),
            Some(Owner::Queue(op)) => self.purge.journal.done(op, reply, &mut self.desk),
            Some(Owner::Job(op)) => self.jobs.done(op, reply, &mut self.desk),
            Some(Owner::Dir(op)) => {
                let event = dirs::done(&mut self.desk, self.pool, self.settings.names_per_page, op, reply);
                self.events.push(event);
            }
            Some(Owner::Start(op)) => {
                let result = self.start.as_mut().map(|start| start.done(op, reply, &mut self.desk));
                match result {
                    Some(Ok(())) => self.go_on_starting(),
                    Some(Err(error)) => self.fail(error),
                    None => {}
                }
            }
            None => {}
        }
        self.pump();
        self.flush(false, now);
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Now) {
        self.flush(false, now);
    }

    /// When [`Self::tick`] is due (monotonic); `None` while nothing needs one.
    pub fn deadline(&self) -> Option<Duration> {
        let interval = self.settings.head_interval;
        [&self.log, &self.purge.journal].into_iter().filter_map(|j| j.head_due(interval)).min()
    }

    /// Operations under way.
    pub fn under_way(&self) -> usize {
        self.desk.under_way()
    }

    /// Checks the numbered invariants of the journals. For tests.
    pub fn assert_invariants(&self) {
        self.log.assert_invariants();
        self.purge.journal.assert_invariants();
    }

    // Start.

    /// Makes a fresh rank: journal, purge queue, tables, the rank's folder with its strays, and for rank 0
    /// the root. Ends with `Created`. What a former attempt left is replaced: only for a rank that the map
    /// has as CREATING. `data_pool`: of the root's layout. `last_snap`: the newest snapshot that a data pool
    /// had (`snap_seq`).
    pub fn create(&mut self, now: Now, data_pool: PoolId, last_snap: SnapId) {
        assert_eq!(self.stage, Stage::Closed, "a rank is made before anything else");
        self.now = now;
        self.stage = Stage::Creating;
        let (rank, pool, has_snap_table) = (self.rank, self.pool, self.has_snap_table);
        let fresh = Fresh { rank, pool, data_pool, has_snap_table, last_snap, stamp: now.wall };
        let remove = |name| (ObjectName::new(pool, name), SnapContext::default(), vec![Op::Delete.into()]);
        let left = fresh.objects_before().into_iter().map(remove).collect();
        self.fresh = Some(fresh);
        self.jobs.start(&mut self.desk, End::Cleared, true, left);
    }

    /// Reads tables and the journal's header and end. Ends with `Opened`.
    pub fn open(&mut self, mode: Mode) {
        assert_eq!(self.stage, Stage::Closed, "a rank is opened once");
        self.stage = Stage::Opening;
        self.is_active = mode == Mode::Active;
        self.log.is_following = !self.is_active;
        self.start = Some(Start::new(self.rank, self.pool, self.has_snap_table, &mut self.desk));
        if self.is_active {
            self.purge.open(&mut self.desk);
        }
    }

    fn go_on_starting(&mut self) {
        let Some(start) = &mut self.start else { return };
        if let Some(ino) = start.journal.take() {
            let is_following = self.log.is_following;
            self.log = Journal::new(Which::Log, self.pool, ino);
            self.log.is_following = is_following;
            self.log.open(&mut self.desk);
        }
        if self.stage == Stage::Opening && self.log.is_reading() {
            if let Some(tables) = start.finished() {
                self.stage = Stage::Opened;
                self.start = None;
                self.events.push(Event::Opened(Box::new(tables)));
            }
        }
    }

    /// Reads the journal from its `expire_pos`: `Replayed` for each entry, then `ReplayEnd`.
    pub fn replay(&mut self) {
        assert_eq!(self.stage, Stage::Opened, "a rank is opened before its journal is read");
        self.stage = Stage::Replaying;
        self.replay_on();
    }

    /// After `ReplayEnd`: reads what was written since; `Replayed`, then `ReplayEnd` once more.
    pub fn follow(&mut self) {
        assert_eq!(self.stage, Stage::Replayed, "a rank follows when it has read everything");
        self.stage = Stage::Replaying;
        self.log.open(&mut self.desk);
    }

    /// The other server is gone (and blocklisted): reads the rest, as [`Self::follow`] does. The purge queue
    /// is opened, too.
    pub fn take_over(&mut self) {
        self.is_active = true;
        self.log.is_following = false;
        self.purge.open(&mut self.desk);
        self.follow();
    }

    /// After `ReplayEnd`: removes what a write that was cut off left behind the end, and begins to write.
    /// Ends with `Writeable`. The purge queue goes on.
    pub fn start_writing(&mut self) {
        assert!(self.stage == Stage::Replayed && self.is_active, "only who has read everything writes");
        self.stage = Stage::Starting;
        self.log.start_writing(&mut self.desk);
        self.purge.activate();
    }

    // The journal.

    pub fn journal(&self) -> JournalState {
        self.log.state()
    }

    /// Appends an event and answers where it ends: it is durable once `Safe` says so. Nothing is sent before
    /// [`Self::flush`]. Only after `Writeable`.
    pub fn append(&mut self, event: &LogEvent) -> u64 {
        self.log.append(&event.to_bytes())
    }

    /// Whether entries wait for [`Self::flush`].
    pub fn has_unsent(&self) -> bool {
        self.log.has_unsent()
    }

    /// Sends what else is to be sent, and with `all` what was appended; many entries are sent in any case.
    /// Cheap: to be called at the end of every input.
    pub fn flush(&mut self, all: bool, now: Now) {
        self.now = now;
        let Settings { head_interval, trims_at_once, .. } = self.settings;
        self.log.flush(all, now.mono, head_interval, trims_at_once, &mut self.desk);
        self.purge.journal.flush(true, now.mono, head_interval, trims_at_once, &mut self.desk);
    }

    /// Entries before `pos` (a position where one begins, at most what is safe) are not needed any more:
    /// replay begins at `pos` once the header says so (`Expired`); then objects below go, a few at a time.
    pub fn mark_expired(&mut self, pos: u64) {
        self.log.mark_expired(pos, true);
    }

    fn replay_on(&mut self) {
        if self.stage != Stage::Replaying {
            return;
        }
        while let Some(Entry { at, next, payload }) = self.log.next_entry() {
            match LogEvent::from_bytes(payload) {
                Ok(event) => self.events.push(Event::Replayed { at, next, event: Box::new(event) }),
                Err(error) => return self.log.damaged_entry(at, EntryDamage::Payload(error)),
            }
        }
        if self.log.is_all_read() {
            self.stage = Stage::Replayed;
            self.events.push(Event::ReplayEnd { write_pos: self.log.state().write_pos });
        } else {
            self.log.read_ahead(self.settings.read_ahead_bytes, &mut self.desk);
        }
    }

    /// Takes on what the parts have to tell, until nothing is left.
    fn pump(&mut self) {
        self.purge.pump(&mut self.desk, &mut self.jobs, &self.settings, &mut self.events);
        for ended in self.jobs.take_ended() {
            match ended {
                Ended::Told(event) => {
                    if event == Event::Created {
                        self.stage = Stage::Closed;
                    }
                    self.events.push(event);
                }
                Ended::Purged(at, error) => self.purge.purged(at, error, &mut self.events),
                Ended::Cleared => {
                    let ops = self.fresh.map(|fresh| fresh.operations()).unwrap_or_default();
                    self.jobs.start(&mut self.desk, End::Created, false, ops);
                }
            }
        }
        self.replay_on();
        for event in self.log.take_events() {
            self.log_event(event);
        }
        if self.stage == Stage::Starting && self.log.is_writing() && self.purge.is_running() {
            self.stage = Stage::Writing;
            self.events.push(Event::Writeable { write_pos: self.log.state().write_pos });
        }
        self.only_one_end();
    }

    fn log_event(&mut self, event: JournalEvent) {
        match event {
            JournalEvent::Opened if self.stage == Stage::Opening => self.go_on_starting(),
            JournalEvent::Opened => self.replay_on(),
            JournalEvent::Absent => {
                let object = names::object(names::journal(self.rank), 0);
                self.fail(StorageError::Missing { object });
            }
            JournalEvent::Outrun { expire_pos } => self.events.push(Event::Outrun { expire_pos }),
            JournalEvent::Safe(pos) => self.events.push(Event::Safe(pos)),
            JournalEvent::Expired(pos) => self.events.push(Event::Expired(pos)),
            JournalEvent::Failed(error) => self.fail(error),
            JournalEvent::Writeable => {}
        }
    }

    fn fail(&mut self, error: StorageError) {
        self.events.push(Event::Fatal(error));
    }

    /// `Fatal` is told once, and nothing that follows it.
    fn only_one_end(&mut self) {
        match self.events.iter().position(|event| matches!(event, Event::Fatal(_))) {
            Some(_) if self.is_failed && !self.is_end_untold => self.events.clear(),
            Some(at) => {
                (self.is_failed, self.is_end_untold) = (true, true);
                self.events.truncate(at + 1);
            }
            None if self.is_failed => self.events.clear(),
            None => {}
        }
    }

    // Directories.

    /// Reads a fragment, page by page: `DirLoaded` until `is_last`, or `DirFailed`. `Missing`: the object of
    /// a fragment that is not new must exist.
    pub fn load_dir(&mut self, tag: Tag, dir: DirFrag) {
        dirs::load(&mut self.desk, self.pool, tag, dir, self.settings.names_per_page);
    }

    /// Reads some names of a fragment: one `DirLoaded` with those that exist.
    pub fn load_names(&mut self, tag: Tag, dir: DirFrag, keys: &[DentryKey]) {
        let keys = keys.iter().map(|key| key.to_key().into()).collect();
        dirs::load_names(&mut self.desk, self.pool, tag, dir, keys);
    }

    /// Stores a fragment's changes, in as many operations as it takes, the header with the last one:
    /// `DirCommitted` or `Fatal`. Commits of the same fragment are executed in order.
    pub fn commit_dir(&mut self, tag: Tag, dir: DirFrag, commit: DirCommit) {
        let ops = dirs::commit_ops(self.pool, dir, commit);
        self.jobs.start(&mut self.desk, End::Committed(tag, dir), false, ops);
    }

    /// Removes a fragment's object: `DirRemoved`, also if it did not exist, or `Fatal`.
    pub fn remove_dir(&mut self, tag: Tag, dir: DirFrag) {
        let ops = vec![self.own(dir.object(), vec![Op::Delete.into()])];
        self.jobs.start(&mut self.desk, End::Removed(tag, dir), true, ops);
    }

    /// Reads the root or a server's own folder: `BaseInode`.
    pub fn load_base_inode(&mut self, tag: Tag, ino: Ino) {
        let ops = vec![self.own(names::base_inode(ino), vec![Op::Read(Extent::new(0, 0)).into()])];
        self.jobs.start(&mut self.desk, End::BaseInode(tag), false, ops);
    }

    /// `Done` or `Fatal`.
    pub fn store_base_inode(&mut self, tag: Tag, inode: &BaseInode) {
        self.put(tag, names::base_inode(inode.0.inode.ino), inode.to_bytes());
    }

    fn own(&self, object: String, steps: Vec<Step>) -> ObjectSteps {
        (ObjectName::new(self.pool, object), SnapContext::default(), steps)
    }

    fn put(&mut self, tag: Tag, object: String, data: Bytes) {
        let step = Op::WriteFull { extent: Extent::new(0, data.len() as u64), data };
        let ops = vec![self.own(object, vec![step.into()])];
        self.jobs.start(&mut self.desk, End::Must(tag), false, ops);
    }

    // Tables: `Done` when they are durable, or `Fatal`.

    pub fn save_inos(&mut self, tag: Tag, table: &InoTable) {
        self.put(tag, names::ino_table(self.rank), table.to_bytes());
    }

    pub fn save_snaps(&mut self, tag: Tag, table: &SnapTable) {
        self.put(tag, names::SNAP_TABLE.to_owned(), table.to_bytes());
    }

    /// The table's version, and the sessions that changed since it was last stored; `None`: closed.
    ///
    /// Source: SessionMap::save in src/mds/SessionMap.cc.
    pub fn save_sessions(
        &mut self,
        tag: Tag,
        version: u64,
        changed: &BTreeMap<EntityName, Option<&SessionInfo>>,
    ) {
        let mut steps = vec![Op::OmapSetHeader { header: SessionMapHeader { version }.to_bytes() }];
        let key = |name: &EntityName| Bytes::from(name.to_string());
        let set = changed.iter().filter_map(|(name, info)| Some((key(name), (*info)?.to_bytes())));
        let vals: BTreeMap<Bytes, Bytes> = set.collect();
        let closed = changed.iter().filter(|(_, info)| info.is_none());
        let keys: BTreeSet<Bytes> = closed.map(|(name, _)| key(name)).collect();
        if !vals.is_empty() {
            steps.push(Op::OmapSetVals { vals });
        }
        if !keys.is_empty() {
            steps.push(Op::OmapRmKeys { keys });
        }
        let ops = vec![self.own(names::session_map(self.rank), steps.into_iter().map(Step::from).collect())];
        self.jobs.start(&mut self.desk, End::Must(tag), false, ops);
    }

    // Backtraces and files' objects.

    /// Writes the attributes `parent` and (`layout`) `layout` of an inode's first object in the backtrace's
    /// pool, and `parent` alone in its old pools: `Done`, or `Failed` (a pool that is gone is no failure).
    pub fn store_backtrace(&mut self, tag: Tag, trace: &Backtrace, layout: Option<&FileLayout>) {
        let name = names::object(trace.ino, 0);
        let op = |pool: PoolId, layout| {
            let object = ObjectName::new(pool, name.as_str());
            (object, SnapContext::default(), backtrace_steps(trace, layout))
        };
        let mut ops = vec![op(trace.pool, layout)];
        ops.extend(trace.old_pools.iter().filter(|pool| **pool != trace.pool).map(|pool| op(*pool, None)));
        self.jobs.start(&mut self.desk, End::Done(tag), true, ops);
    }

    /// Reads the attribute `parent` of an inode's first object in a pool: `Backtrace`.
    pub fn fetch_backtrace(&mut self, tag: Tag, pool: PoolId, ino: Ino) {
        let object = ObjectName::new(pool, names::object(ino, 0));
        let steps = vec![Op::GetXattr { name: "parent".to_owned() }.into()];
        let ops = vec![(object, SnapContext::default(), steps)];
        self.jobs.start(&mut self.desk, End::Backtrace(tag), false, ops);
    }

    /// Cuts a file, a bounded number of objects at once: `Done` or `Failed`.
    ///
    /// Source: Filer::truncate in src/osdc/Filer.cc.
    pub fn truncate(&mut self, tag: Tag, truncation: Truncation) {
        let Truncation { ino, layout, snaps, from, size, truncate_seq } = truncation;
        let range = Stripes::of(&layout).map(|stripes| FileRange {
            ino,
            layout,
            stripes,
            snaps,
            next: stripes.set_begin(size),
            end: stripes.set_end(from),
            each: Each::Truncate { size, seq: truncate_seq },
            at_once: self.settings.ops_of_a_truncation,
        });
        self.jobs.start_all(&mut self.desk, End::Done(tag), true, Vec::new(), range);
    }

    /// Finds the end of a file that clients wrote to, for a size that nobody can tell any more: it is between
    /// `from`, what is known to be written, and `limit`, up to where clients may have. `Probed` or `Failed`.
    pub fn probe(&mut self, tag: Tag, ino: Ino, layout: &FileLayout, from: u64, limit: u64) {
        let range = Stripes::of(layout).map(|stripes| FileRange {
            ino,
            layout: layout.clone(),
            stripes,
            snaps: SnapContext::default(),
            next: stripes.set_begin(from),
            end: stripes.objects(limit),
            each: Each::Stat,
            at_once: self.settings.ops_of_a_truncation,
        });
        self.jobs.start_all(&mut self.desk, End::Probed(tag, from, Utime::ZERO), true, Vec::new(), range);
    }

    /// Any other operation that changes an object: `Done` or `Failed`.
    pub fn run(&mut self, tag: Tag, object: ObjectName, snaps: SnapContext, steps: Vec<Step>) {
        self.jobs.start(&mut self.desk, End::Done(tag), false, vec![(object, snaps, steps)]);
    }

    // The purge queue.

    /// Hands an inode over whose objects are to be removed (or cut): `Done` when the queue has it durably, so
    /// that the inode may go. It is executed in the background.
    pub fn purge(&mut self, tag: Tag, item: &PurgeItem) {
        self.purge.push(tag, item, &self.settings);
    }

    pub fn purge_state(&self) -> PurgeState {
        self.purge.state()
    }
}

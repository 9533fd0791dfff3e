//! What the core asks of storage, and what comes of it.
//!
//! Invariant: nothing is written to an object before the events that made it are safe in the journal
//! (`Held`): what is written is what was in memory when the write was planned.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use messages::fs::FileLayout;
use types::{EntityName, Errno, Ino, InoSet, Now, PoolId, SnapId};

use super::cache::{Dir, Key, OldName, Target};
use super::io::Effect;
use super::realm::{Snaps, View};
use super::request::{Run, Stop, Wait};
use super::server::{Dirty, Server};
use super::session::State;
use crate::format::{
    Backtrace, BaseInode, Dentry, DentryKey, DirFrag, InoTable, Link, LogEvent, PurgeItem, SessionInfo,
    SnapTable,
};
use crate::storage::{DirCommit, Event, LoadedDir, OpId, Reply, Storage, StorageError, Tag, Truncation};

/// What a tag is for.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Job {
    LoadDir(DirFrag),
    LoadName(DirFrag, Key),
    LoadBase(Ino),
    Fetch(Ino),
    Write(Dirty),
    Truncate(Ino),
    Probe(Ino),
    Purge(Ino),
}

/// A write that waits for its events.
#[derive(Debug)]
pub(crate) enum Held {
    Dir(DirFrag, DirCommit),
    Base(Box<BaseInode>),
    Inos(InoTable),
    Snaps(Box<SnapTable>),
    Sessions(u64, BTreeMap<EntityName, Option<SessionInfo>>),
    Backtrace(Box<Backtrace>, Option<FileLayout>),
    Purge(Box<PurgeItem>),
}

/// An inode that is looked for by its number.
#[derive(Debug, Default)]
pub(crate) struct Find {
    pools: Vec<PoolId>,
    trace: Option<Backtrace>,
}

/// For how long an inode that was not found is not looked for again.
const LOST_FOR: Duration = Duration::from_secs(1);
/// Numbers that were not found and are remembered.
const MAX_LOST: usize = 4_096;

#[derive(Debug, Default)]
pub(crate) struct Disk {
    pub storage: Option<Storage>,
    last_tag: u64,
    jobs: BTreeMap<Tag, Job>,
    loading: BTreeSet<DirFrag>,
    loading_names: BTreeSet<(DirFrag, Key)>,
    /// Fragments that cannot be read.
    pub bad_dirs: BTreeSet<DirFrag>,
    pub finds: BTreeMap<Ino, Find>,
    lost: BTreeMap<Ino, Duration>,
    held: VecDeque<(u64, Dirty, Held)>,
    /// What is being written, or waits to be.
    /// With the newest event that it has.
    pub writing: BTreeMap<Dirty, u64>,
    /// Events that are not safe: number and end in the journal.
    log: VecDeque<(u64, u64)>,
    /// Segments that are needed: number of the first event, and where it begins.
    pub segments: VecDeque<(u64, u64)>,
    marked: u64,
    pub inos: InoTable,
    pub closed_sessions: BTreeSet<EntityName>,
    pub is_writeable: bool,
    /// The segment in which a file's cut began.
    pub cuts: BTreeMap<Ino, u64>,
    now: Duration,
}

impl Disk {
    pub fn is_writeable(&self) -> bool {
        self.is_writeable
    }

    pub fn done(&mut self, now: Now, id: OpId, reply: Reply) {
        self.now = now.mono;
        if let Some(storage) = &mut self.storage {
            storage.done(now, id, reply);
        }
    }

    /// Whether the journal has entries that were not sent.
    pub fn has_unsent(&self) -> bool {
        self.storage.as_ref().is_some_and(crate::storage::Storage::has_unsent)
    }

    /// Sends what the journal has, if `all`, and hands out operations.
    pub fn flush(&mut self, all: bool, now: Now, out: &mut Vec<Effect>) {
        let Some(storage) = &mut self.storage else { return };
        if self.is_writeable {
            storage.flush(all, now);
        }
        out.extend(storage.take_ops().into_iter().map(|op| Effect::Object(Box::new(op))));
    }

    fn tag(&mut self, job: Job) -> Tag {
        self.last_tag += 1;
        let tag = Tag(self.last_tag);
        self.jobs.insert(tag, job);
        tag
    }

    /// A free number: the one that was given before a failover, or the first.
    pub fn next_ino(&self, wanted: Ino) -> Option<Ino> {
        if wanted.0 != 0 && self.inos.free.contains(wanted) {
            return Some(wanted);
        }
        self.inos.free.iter().next().map(|(start, _)| Ino(start))
    }

    /// The number is used; answers the table's version.
    pub fn take_ino(&mut self, ino: Ino) -> u64 {
        self.inos.free.remove_run(ino.0, 1);
        self.inos.version += 1;
        self.inos.version
    }

    pub fn release_inos(&mut self, inos: &InoSet) -> u64 {
        self.inos.free.union_of(inos);
        self.inos.version += 1;
        self.inos.version
    }

    pub fn is_lost(&self, ino: Ino) -> bool {
        self.lost.get(&ino).is_some_and(|until| self.now < *until)
    }

    fn lose(&mut self, ino: Ino) {
        self.finds.remove(&ino);
        if self.lost.len() >= MAX_LOST {
            self.lost.clear();
        }
        self.lost.insert(ino, self.now + LOST_FOR);
    }

    pub fn tick(&mut self, now: Now) {
        self.now = now.mono;
        let at = now.mono;
        self.lost.retain(|_, until| at < *until);
        if let Some(storage) = &mut self.storage {
            storage.tick(now);
        }
    }
}

impl Server {
    /// Takes what storage has to say. Whether there was anything.
    pub(crate) fn take_stored(&mut self) -> bool {
        self.disk.now = self.now.mono;
        let events = match &mut self.disk.storage {
            Some(storage) => storage.take_events(),
            None => Vec::new(),
        };
        let any = !events.is_empty();
        events.into_iter().for_each(|event| self.on_event(event));
        any
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Created => self.storage_created(),
            Event::Opened(tables) => self.storage_opened(*tables),
            Event::Replayed { at, event, .. } => self.replay(at, &event),
            Event::ReplayEnd { .. } => self.replay_end(),
            Event::Writeable { .. } => self.writeable(),
            Event::Safe(pos) => {
                let done = self.disk.log.iter().take_while(|(_, end)| *end <= pos).count();
                let seq = self.disk.log.drain(..done).next_back().map(|(seq, _)| seq);
                if let Some(seq) = seq {
                    self.on_safe(seq);
                    self.release_held();
                }
            }
            Event::DirLoaded { tag, dir, loaded } => self.dir_loaded(tag, dir, *loaded),
            Event::DirFailed { tag, dir, error } => self.dir_failed(tag, dir, &error),
            Event::DirCommitted { tag, .. } | Event::Done { tag } => self.job_done(tag),
            Event::BaseInode { tag, result } => {
                self.disk.jobs.remove(&tag);
                match result {
                    Ok(inode) => self.base_loaded(*inode),
                    Err(error) => self.damaged(error.to_string()),
                }
            }
            Event::Backtrace { tag, result } => {
                if let Some(Job::Fetch(ino)) = self.disk.jobs.remove(&tag) {
                    self.backtrace_read(ino, result.ok().map(|b| *b));
                }
            }
            Event::Failed { tag, error } => self.job_failed(tag, &error),
            Event::Probed { tag, size, mtime } => {
                if let Some(Job::Probe(ino)) = self.disk.jobs.remove(&tag) {
                    self.probed(ino, size, mtime);
                }
            }
            Event::PurgeStopped(error) => {
                self.out.push(Effect::Warn(format!("the purge queue has stopped: {error}")));
            }
            Event::Fatal(error) => self.fatal(&error),
            Event::Outrun { .. } => self.out.push(Effect::Respawn),
            Event::Expired(_) | Event::DirRemoved { .. } => {}
        }
    }

    fn fatal(&mut self, error: &StorageError) {
        if error.is_damage() {
            return self.damaged(error.to_string());
        }
        self.is_damaged = true;
        self.out.push(Effect::Warn(error.to_string()));
        self.out.push(Effect::Respawn);
    }

    /// Hands an event to the journal; a segment that is full ends.
    pub(crate) fn journal(&mut self, seq: u64, event: LogEvent) {
        let Some(storage) = &mut self.disk.storage else { return };
        let begin = storage.journal().write_pos;
        let end = storage.append(&event);
        self.disk.log.push_back((seq, end));
        if matches!(event, LogEvent::SubtreeMap(_)) {
            self.segment_start = seq;
            self.disk.segments.push_back((seq, begin));
            return;
        }
        let period = storage.journal().period.max(1);
        let first = self.disk.segments.back().map_or(0, |(_, at)| *at);
        if end / period != first / period || seq - self.segment_start >= self.settings.segment_events {
            self.begin_segment();
        }
    }

    // Reading.

    /// Reads a name of a fragment.
    pub(crate) fn load_name(&mut self, frag: DirFrag, key: &Key) -> Run<()> {
        if self.disk.bad_dirs.contains(&frag) {
            return Err(Errno::EIO.into());
        }
        let is_coming =
            self.disk.loading.contains(&frag) || self.disk.loading_names.contains(&(frag, key.clone()));
        if is_coming {
            return Ok(());
        }
        self.disk.loading_names.insert((frag, key.clone()));
        let tag = self.disk.tag(Job::LoadName(frag, key.clone()));
        if let Some(storage) = &mut self.disk.storage {
            storage.load_names(tag, frag, &[DentryKey::head(key.name.clone())]);
        }
        Ok(())
    }

    /// Reads a fragment whole.
    pub(crate) fn load_dir(&mut self, frag: DirFrag) -> Run<()> {
        if self.disk.bad_dirs.contains(&frag) {
            return Err(Errno::EIO.into());
        }
        if self.disk.loading.insert(frag) {
            let tag = self.disk.tag(Job::LoadDir(frag));
            if let Some(storage) = &mut self.disk.storage {
                storage.load_dir(tag, frag);
            }
        }
        Ok(())
    }

    pub(crate) fn load_base(&mut self, ino: Ino) {
        let tag = self.disk.tag(Job::LoadBase(ino));
        if let Some(storage) = &mut self.disk.storage {
            storage.load_base_inode(tag, ino);
        }
    }

    fn dir_loaded(&mut self, tag: Tag, frag: DirFrag, loaded: LoadedDir) {
        let Some(job) = self.disk.jobs.get(&tag).cloned() else { return };
        for (key, error) in &loaded.damaged {
            let name = String::from_utf8_lossy(key);
            self.out.push(Effect::Warn(format!("{} has a damaged name {name}: {error}", frag.object())));
        }
        if loaded.is_last {
            self.disk.jobs.remove(&tag);
        }
        if self.cache.get(frag.ino).is_none() {
            // The folder was forgotten meanwhile.
            self.end_load(frag, &job);
            return;
        }
        let dir = self
            .cache
            .dirs
            .entry(frag)
            .or_insert_with(|| Dir { fnode: loaded.fnode.clone(), ..Dir::default() });
        let version = dir.fnode.version;
        let live = self.live_snaps(frag);
        for (disk_key, dentry) in loaded.dentries {
            let Some((at, key)) = self.cache.spot(frag.ino, &disk_key.name) else { continue };
            if at != frag {
                continue;
            }
            if disk_key.last != SnapId::HEAD {
                self.load_old(frag, key, disk_key.last, dentry, live.as_ref());
                continue;
            }
            let ino = match &dentry.link {
                Link::Primary(store) => Some(store.inode.ino),
                Link::Remote { .. } => None,
            };
            self.cache.load(frag, key, dentry, version);
            ino.into_iter().for_each(|ino| self.note_rstat(ino));
        }
        if loaded.is_last {
            match &job {
                Job::LoadDir(_) => {
                    if let Some(dir) = self.cache.dirs.get_mut(&frag) {
                        dir.is_complete = true;
                    }
                }
                Job::LoadName(_, key) => {
                    if let Some(dir) = self.cache.dirs.get_mut(&frag) {
                        let none = super::cache::Dentry::new(Target::Null);
                        dir.entries.entry(key.clone()).or_insert(none);
                    }
                }
                _ => {}
            }
            self.end_load(frag, &job);
        }
    }

    /// The snapshots that a fragment's old names may be in, if it has not been looked through for those of
    /// snapshots that are gone.
    fn live_snaps(&self, frag: DirFrag) -> Option<Snaps> {
        let purged = self.cache.dir(frag)?.fnode.snap_purged_through;
        let is_due = self.is_serving() && purged < self.snaps.last_destroyed;
        is_due.then(|| self.snaps_of(frag.ino, View::Now))
    }

    /// Takes what a name was in snapshots, unless it is here already; if those are gone, so is this. Source:
    /// CDir::_load_dentry.
    fn load_old(&mut self, frag: DirFrag, key: Key, last: SnapId, dentry: Dentry, live: Option<&Snaps>) {
        let at = (key, last);
        let Some(dir) = self.cache.dirs.get_mut(&frag) else { return };
        if dir.old.contains_key(&at) || dir.dirty_old.contains(&at) || dir.committing_old.contains(&at) {
            return;
        }
        if live.is_some_and(|live| !live.has(dentry.first, last)) {
            dir.dirty_old.insert(at);
            let seq = self.last_seq;
            return self.mark_dir_dirty(frag, seq);
        }
        let version = dir.fnode.version;
        self.cache.insert_old(frag, at.0, last, OldName { dentry, version });
    }

    fn end_load(&mut self, frag: DirFrag, job: &Job) {
        match job {
            Job::LoadDir(_) => drop(self.disk.loading.remove(&frag)),
            Job::LoadName(_, key) => drop(self.disk.loading_names.remove(&(frag, key.clone()))),
            _ => {}
        }
        self.wake(&Wait::Dir(frag));
        self.boot_step();
    }

    fn dir_failed(&mut self, tag: Tag, frag: DirFrag, error: &StorageError) {
        let Some(job) = self.disk.jobs.remove(&tag) else { return };
        self.out.push(Effect::Warn(format!("a folder cannot be read: {error}")));
        if error.is_damage() {
            self.disk.bad_dirs.insert(frag);
        }
        self.end_load(frag, &job);
    }

    // Finding inodes by their numbers.

    /// Looks for an inode by its backtrace; whoever needs it waits.
    pub(crate) fn find_inode(&mut self, ino: Ino) -> Run<()> {
        let Some(find) = self.disk.finds.get(&ino) else {
            let mut pools: Vec<PoolId> =
                self.map.data_pools.iter().skip(1).rev().map(|p| PoolId(*p)).collect();
            pools.push(PoolId(self.map.metadata_pool));
            pools.extend(self.map.data_pools.first().map(|p| PoolId(*p)));
            self.disk.finds.insert(ino, Find { pools, trace: None });
            self.fetch_next(ino);
            return Ok(());
        };
        let Some(trace) = find.trace.clone() else { return Ok(()) };
        match self.follow(ino, &trace) {
            Err(Stop::Wait(wait)) => Err(Stop::Wait(wait)),
            Ok(()) if self.cache.get(ino).is_some() => {
                self.disk.finds.remove(&ino);
                Ok(())
            }
            Ok(()) | Err(_) => {
                self.disk.lose(ino);
                Err(Errno::ESTALE.into())
            }
        }
    }

    fn fetch_next(&mut self, ino: Ino) {
        let pool = self.disk.finds.get_mut(&ino).and_then(|f| f.pools.pop());
        match pool {
            Some(pool) => {
                let tag = self.disk.tag(Job::Fetch(ino));
                if let Some(storage) = &mut self.disk.storage {
                    storage.fetch_backtrace(tag, pool, ino);
                }
            }
            None => {
                self.disk.lose(ino);
                self.wake(&Wait::Find(ino));
                self.boot_step();
            }
        }
    }

    fn backtrace_read(&mut self, ino: Ino, trace: Option<Backtrace>) {
        let Some(find) = self.disk.finds.get_mut(&ino) else { return };
        match trace.filter(|t| t.ino == ino) {
            Some(trace) => {
                find.trace = Some(trace);
                self.wake(&Wait::Find(ino));
                self.boot_step();
            }
            None => self.fetch_next(ino),
        }
    }

    /// Reads the names on the way down to an inode, from the nearest folder that is in memory.
    fn follow(&mut self, ino: Ino, trace: &Backtrace) -> Run<()> {
        let Some(mut at) = trace.ancestors.iter().position(|a| self.cache.get(a.dir).is_some()) else {
            return Err(Errno::ESTALE.into());
        };
        loop {
            let Some(step) = trace.ancestors.get(at) else { return Err(Errno::ESTALE.into()) };
            let found = self.look_up(step.dir, &step.name, None)?;
            let wanted = match at.checked_sub(1) {
                Some(below) => trace.ancestors.get(below).map_or(ino, |a| a.dir),
                None => ino,
            };
            if found.target != Target::Primary(wanted) {
                return Err(Errno::ESTALE.into());
            }
            let Some(below) = at.checked_sub(1) else { return Ok(()) };
            at = below;
        }
    }

    // Writing.

    /// Writes something back that is in the journal alone.
    pub(crate) fn write(&mut self, what: Dirty) {
        if self.disk.writing.contains_key(&what) || !self.disk.is_writeable {
            return;
        }
        let held = match what {
            Dirty::Dir(frag) => self.dir_commit(frag).map(|commit| Held::Dir(frag, commit)),
            Dirty::Base(ino) => self.cache.get(ino).map(|i| Held::Base(Box::new(BaseInode(i.store.clone())))),
            Dirty::InoTable => Some(Held::Inos(self.disk.inos.clone())),
            Dirty::Sessions => Some(self.sessions_to_save()),
            Dirty::SnapTable => Some(Held::Snaps(Box::new(self.snaps.clone()))),
            Dirty::Backtrace(ino) => self.backtrace_of(ino),
            // These end by themselves.
            Dirty::Truncate(_) | Dirty::Stray(_) => return,
        };
        let Some(held) = held else { return self.mark_clean(what) };
        // What changes from now on is written the next time.
        self.disk.writing.insert(what, self.last_seq);
        self.disk.held.push_back((self.last_seq, what, held));
        self.release_held();
    }

    fn release_held(&mut self) {
        while self.disk.held.front().is_some_and(|(seq, ..)| *seq <= self.safe_seq) {
            let Some((_, what, held)) = self.disk.held.pop_front() else { break };
            let job = match &held {
                Held::Purge(item) => Job::Purge(item.ino),
                _ => Job::Write(what),
            };
            let tag = self.disk.tag(job);
            let Some(storage) = &mut self.disk.storage else { return };
            match held {
                Held::Dir(frag, commit) => storage.commit_dir(tag, frag, commit),
                Held::Base(inode) => storage.store_base_inode(tag, &inode),
                Held::Inos(table) => storage.save_inos(tag, &table),
                Held::Snaps(table) => storage.save_snaps(tag, &table),
                Held::Sessions(version, changed) => {
                    let changed = changed.iter().map(|(name, info)| (*name, info.as_ref())).collect();
                    storage.save_sessions(tag, version, &changed);
                }
                Held::Backtrace(trace, layout) => storage.store_backtrace(tag, &trace, layout.as_ref()),
                Held::Purge(item) => storage.purge(tag, &item),
            }
        }
    }

    /// Drops what only snapshots have that are gone. Source: CDir::_omap_commit, try_trim_snap_dentry.
    fn drop_stale(&mut self, frag: DirFrag) {
        let Some(live) = self.live_snaps(frag) else { return };
        let destroyed = self.snaps.last_destroyed;
        let Some(dir) = self.cache.dirs.get_mut(&frag) else { return };
        let is_stale = |((_, last), old): &(&(Key, SnapId), &OldName)| !live.has(old.dentry.first, *last);
        let stale: Vec<(Key, SnapId)> = dir.old.iter().filter(is_stale).map(|(at, _)| at.clone()).collect();
        dir.dirty_old.extend(stale.iter().cloned());
        if dir.is_complete {
            dir.fnode.snap_purged_through = destroyed;
        }
        let names = dir.dirty.iter().filter_map(|key| dir.entries.get(key));
        let inos: Vec<Ino> = names.filter_map(|d| d.target.ino()).collect();
        stale.iter().for_each(|(key, last)| self.cache.remove_old(frag, key, *last));
        for ino in inos {
            let Some(inode) = self.cache.get_mut(ino) else { continue };
            if inode.store.realm.is_none() && inode.place.as_ref().is_some_and(|(at, _)| *at == frag) {
                inode.store.old_inodes.retain(|last, old| live.has(old.first, *last));
            }
        }
    }

    fn dir_commit(&mut self, frag: DirFrag) -> Option<DirCommit> {
        self.drop_stale(frag);
        let dir = self.cache.dirs.get_mut(&frag)?;
        let names = std::mem::take(&mut dir.dirty);
        let olds = std::mem::take(&mut dir.dirty_old);
        dir.dirty_since = None;
        let mut commit = DirCommit { is_new: dir.is_new, ..DirCommit::new(dir.fnode.clone()) };
        dir.committing = names.clone();
        for (key, last) in &olds {
            let disk_key = DentryKey { name: key.name.clone(), last: *last };
            match dir.old.get(&(key.clone(), *last)) {
                Some(old) => commit.set(&disk_key, &old.dentry),
                None => commit.remove(&disk_key),
            }
        }
        dir.committing_old = olds;
        for key in names {
            let disk_key = DentryKey::head(key.name.clone());
            let Some(dentry) = self.cache.dentry(frag, &key) else { continue };
            let link = match dentry.target {
                Target::Primary(ino) => match self.cache.get(ino) {
                    Some(inode) => Link::Primary(Box::new(inode.store.clone())),
                    None => continue,
                },
                Target::Remote { ino, d_type } => Link::Remote { ino, d_type },
                Target::Null => {
                    commit.remove(&disk_key);
                    continue;
                }
            };
            let (first, alternate_name) = (dentry.first, dentry.alternate_name.clone());
            commit.set(&disk_key, &Dentry { first, alternate_name, link });
        }
        Some(commit)
    }

    fn sessions_to_save(&mut self) -> Held {
        let mut changed: BTreeMap<EntityName, Option<SessionInfo>> =
            std::mem::take(&mut self.disk.closed_sessions).into_iter().map(|name| (name, None)).collect();
        for session in self.sessions.values_mut() {
            if session.dirty_since.take().is_none() || session.state == State::Closed {
                continue;
            }
            let is_over = session.state == State::Closing || session.is_ending;
            changed.insert(session.info.client.name, (!is_over).then(|| session.info.clone()));
        }
        Held::Sessions(self.session_version, changed)
    }

    fn backtrace_of(&mut self, ino: Ino) -> Option<Held> {
        let inode = self.cache.get(ino)?;
        let i = &inode.store.inode;
        let pool = if inode.is_dir() { PoolId(self.map.metadata_pool) } else { i.layout.pool };
        let layout = (!inode.is_dir()).then(|| i.layout.clone());
        let old_pools = i.old_pools.clone();
        let trace = Backtrace { ino, ancestors: self.backpointers(ino), pool, old_pools };
        Some(Held::Backtrace(Box::new(trace), layout))
    }

    fn job_done(&mut self, tag: Tag) {
        match self.disk.jobs.remove(&tag) {
            Some(Job::Write(what)) => self.written(what),
            Some(Job::Truncate(ino)) => self.truncated(ino),
            Some(Job::Purge(ino)) => self.purged(ino),
            _ => {}
        }
    }

    /// It is in its object as it was when the write was planned.
    fn written(&mut self, what: Dirty) {
        let planned = self.disk.writing.remove(&what).unwrap_or(0);
        let since = match what {
            Dirty::Dir(frag) => self.dir_written(frag),
            _ => self.changed_at.get(&what).is_some_and(|at| *at > planned).then_some(planned + 1),
        };
        self.mark_clean(what);
        if let Some(since) = since {
            self.mark_dirty(what, since);
        }
        self.expire_log();
    }

    fn dir_written(&mut self, frag: DirFrag) -> Option<u64> {
        let now = self.now.mono;
        let dir = self.cache.dirs.get_mut(&frag)?;
        dir.is_new = false;
        let names = std::mem::take(&mut dir.committing);
        dir.committing_old.clear();
        let is_complete = dir.is_complete;
        for key in names.into_iter().filter(|_| is_complete) {
            let is_gone = dir.entries.get(&key).is_some_and(|d| {
                d.target.is_null() && d.unsafe_by.is_none() && d.leases.values().all(|l| l.until <= now)
            });
            if is_gone && !dir.dirty.contains(&key) {
                dir.entries.remove(&key);
            }
        }
        dir.dirty_since
    }

    fn job_failed(&mut self, tag: Tag, error: &StorageError) {
        let job = self.disk.jobs.remove(&tag);
        self.out.push(Effect::Warn(error.to_string()));
        match job {
            // Without a backtrace the inode is found by its name alone.
            Some(Job::Write(what)) => self.written(what),
            Some(Job::Truncate(ino)) => self.truncated(ino),
            Some(Job::Probe(ino)) => self.probe_failed(ino),
            _ => {}
        }
    }

    /// Segments whose changes are all in their objects are not needed any more.
    pub(crate) fn expire_log(&mut self) {
        let needed = self.dirty.first().map_or(self.safe_seq, |(seq, _)| *seq).min(self.safe_seq);
        while self.disk.segments.get(1).is_some_and(|(seq, _)| *seq <= needed) {
            self.disk.segments.pop_front();
        }
        let Some((_, at)) = self.disk.segments.front().copied() else { return };
        if at > self.disk.marked {
            self.disk.marked = at;
            if let Some(storage) = &mut self.disk.storage {
                storage.mark_expired(at);
            }
        }
    }

    // Files.

    /// The event of a file's cut is safe: its objects are cut.
    pub(crate) fn begin_truncate(&mut self, ino: Ino) {
        let snaps = self.snap_context(ino);
        let Some(inode) = self.cache.get(ino) else { return };
        let i = &inode.store.inode;
        if i.truncate_pending == 0 {
            return;
        }
        let truncation = Truncation {
            ino,
            layout: i.layout.clone(),
            snaps,
            from: i.truncate_from,
            size: i.truncate_size,
            truncate_seq: i.truncate_seq,
        };
        let tag = self.disk.tag(Job::Truncate(ino));
        if let Some(storage) = &mut self.disk.storage {
            storage.truncate(tag, truncation);
        }
    }

    pub(crate) fn begin_probe(&mut self, ino: Ino) {
        let Some(inode) = self.cache.get(ino) else { return };
        let i = &inode.store.inode;
        let limit = i.client_ranges.values().map(|r| r.last).max().unwrap_or(i.size);
        let (layout, size) = (i.layout.clone(), i.size);
        let tag = self.disk.tag(Job::Probe(ino));
        if let Some(storage) = &mut self.disk.storage {
            storage.probe(tag, ino, &layout, size, limit);
        }
    }

    /// Hands a stray to the purge queue.
    pub(crate) fn begin_purge(&mut self, item: PurgeItem) {
        let what = Dirty::Stray(item.ino);
        self.disk.held.push_back((self.last_seq, what, Held::Purge(Box::new(item))));
        self.release_held();
    }
}

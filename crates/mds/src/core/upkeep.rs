//! What is done from time to time: recursive statistics are passed up, what is in the journal alone is
//! written to its objects, the cache is kept small, clients are asked to give back, files whose writers are
//! gone are measured.
//!
//! Source: MDCache::predirty_journal_parents, MDLog::trim, MDCache::trim, Server::recall_client_state,
//! src/mds/RecoveryQueue.cc.

use std::collections::BTreeSet;

use messages::fs::{Caps, MClientSession, SessionOp};
use types::{GlobalId, Ino, Utime};

use super::cache::Target;
use super::change::Change;
use super::hold::Until;
use super::request::Wait;
use super::server::{Dirty, Server, Then};
use super::session::State;
use crate::format::{DirFrag, NestInfo};

/// Writes of dirty things under way.
const MAX_WRITES: usize = 64;
/// Names that one event of statistics has.
const SUMS_AT_ONCE: usize = 512;
/// Inodes that one tick forgets.
const TRIM_AT_ONCE: usize = 4_096;

impl Server {
    /// Passes what changed below up to the root. Source: CInode::finish_scatter_gather_update.
    pub(crate) fn sum_all(&mut self) {
        self.bring_home();
        let mut quotas = BTreeSet::new();
        let mut change = Change::new("nest", self.now.wall);
        while !self.unsummed.is_empty() {
            let mut by_depth: Vec<(usize, Ino)> = std::mem::take(&mut self.unsummed)
                .into_iter()
                .map(|ino| (self.cache.ancestors(ino).len(), ino))
                .collect();
            by_depth.sort_unstable_by(|a, b| b.cmp(a));
            // Those at one depth go together, so that each folder above is told once.
            let deepest = by_depth.first().map_or(0, |(depth, _)| *depth);
            let (now, later): (Vec<_>, Vec<_>) = by_depth.into_iter().partition(|(d, _)| *d == deepest);
            self.unsummed.extend(later.into_iter().map(|(_, ino)| ino));
            self.sum_some(&mut change, &now, &mut quotas);
            if change.names.len() >= SUMS_AT_ONCE {
                let next = Change::new("nest", self.now.wall);
                self.commit(std::mem::replace(&mut change, next));
            }
        }
        if !change.names.is_empty() || !change.inodes.is_empty() {
            self.commit(change);
        }
        quotas.into_iter().for_each(|ino| self.tell_quota(ino, None));
    }

    fn sum_some(&mut self, change: &mut Change, inos: &[(usize, Ino)], quotas: &mut BTreeSet<Ino>) {
        let mut frags: BTreeSet<DirFrag> = BTreeSet::new();
        for (_, ino) in inos {
            if self.cache.get(*ino).is_some_and(|i| i.is_rstat_dirty()) {
                self.cow(*ino);
            }
            let Some(inode) = self.cache.get_mut(*ino).filter(|i| i.is_rstat_dirty()) else { continue };
            if inode.store.inode.quota.is_enabled() {
                quotas.insert(*ino);
            }
            let after: NestInfo = inode.store.inode.rstat.clone();
            let before = std::mem::replace(&mut inode.store.inode.accounted_rstat, after.clone());
            let Some((frag, _)) = inode.place.clone() else { continue };
            self.touch_inode(change, *ino);
            if let Some(dir) = self.cache.dirs.get_mut(&frag) {
                dir.fnode.rstat.add(&after, &before);
            }
            frags.insert(frag);
        }
        for frag in frags {
            self.sum_dir(change, frag);
            if self.cache.get(frag.ino).is_some_and(|i| i.store.inode.quota.is_enabled()) {
                quotas.insert(frag.ino);
            }
        }
    }

    /// Writes what the journal has held for longest, so that it can be cut.
    pub(crate) fn write_back(&mut self) {
        let Some((oldest, _)) = self.dirty.first().copied() else { return self.expire_log() };
        let is_long = self.last_seq.saturating_sub(oldest) > self.settings.max_log_events;
        if is_long {
            let until = self.last_seq.saturating_sub(self.settings.max_log_events / 2);
            self.write_until(until);
        }
        self.expire_log();
    }

    pub(crate) fn write_all(&mut self) {
        self.write_until(u64::MAX);
    }

    fn write_until(&mut self, seq: u64) {
        let due: Vec<Dirty> = self
            .dirty
            .iter()
            .take_while(|(at, _)| *at <= seq)
            .map(|(_, what)| *what)
            .filter(|what| !self.disk.writing.contains_key(what))
            .take(MAX_WRITES.saturating_sub(self.disk.writing.len()))
            .collect();
        due.into_iter().for_each(|what| self.write(what));
    }

    /// Forgets inodes that nobody uses, down to the bound; asks clients to give back when that is not enough.
    pub(crate) fn trim_cache(&mut self) {
        let max = self.settings.max_inodes;
        if self.cache.inodes.len() <= max {
            return self.recall(false);
        }
        let over = (self.cache.inodes.len() - max).min(TRIM_AT_ONCE);
        let candidates: Vec<Ino> = self.cache.oldest().take(over.saturating_mul(4)).collect();
        let mut forgotten = 0;
        for ino in candidates {
            if forgotten >= over {
                break;
            }
            if self.forget_if_idle(ino) {
                forgotten += 1;
            } else {
                // What cannot go now is looked at again last.
                self.cache.touch(ino);
            }
        }
        self.recall(self.cache.inodes.len() > max);
    }

    fn is_idle(&self, ino: Ino) -> bool {
        let Some(inode) = self.cache.get(ino) else { return false };
        let Some((frag, key)) = &inode.place else { return false };
        let kept = !inode.caps.is_empty()
            || !inode.holds.is_empty()
            || inode.unsafe_until > self.safe_seq
            || inode.locks.is_some()
            || inode.needs_recover
            || inode.store.inode.truncate_pending > 0
            || inode.is_rstat_dirty()
            || crate::format::names::mdsdir_owner(frag.ino).is_some()
            || self.cache.is_stray(ino)
            || self.dirty_at.contains_key(&Dirty::Backtrace(ino));
        let dir = self.cache.dir(*frag);
        let is_dirty = dir.is_none_or(|d| d.dirty.contains(key) || d.committing.contains(key));
        let is_lent = dir.and_then(|d| d.entries.get(key)).is_some_and(|d| !d.leases.is_empty());
        let awaited = [Wait::Inode(ino), Wait::File(ino), Wait::FileLock(ino)];
        !kept && !is_dirty && !is_lent && awaited.iter().all(|w| !self.waits.contains_key(w))
    }

    fn forget_if_idle(&mut self, ino: Ino) -> bool {
        if !self.is_idle(ino) {
            return false;
        }
        let frags: Vec<DirFrag> = self
            .cache
            .dirs
            .range(DirFrag { ino, frag: Default::default() }..)
            .map(|(frag, _)| *frag)
            .take_while(|f| f.ino == ino)
            .collect();
        let is_free = |frag: &DirFrag| {
            let Some(dir) = self.cache.dir(*frag) else { return true };
            let has_inodes = dir.entries.values().any(|d| matches!(d.target, Target::Primary(_)));
            let is_written = dir.committing.is_empty() && dir.committing_old.is_empty();
            let is_clean = dir.dirty_since.is_none() && is_written;
            let is_lent = dir.entries.values().any(|d| !d.leases.is_empty() || d.unsafe_by.is_some());
            let what = Dirty::Dir(*frag);
            !has_inodes
                && is_clean
                && !is_lent
                && !self.dirty_at.contains_key(&what)
                && !self.waits.contains_key(&Wait::Dir(*frag))
        };
        if !frags.iter().all(is_free) {
            return false;
        }
        frags.iter().for_each(|frag| drop(self.cache.remove_dir(*frag)));
        let Some((frag, key)) = self.cache.get(ino).and_then(|i| i.place.clone()) else { return false };
        if let Some(dir) = self.cache.dirs.get_mut(&frag) {
            dir.entries.remove(&key);
        }
        self.cache.make_incomplete(frag);
        self.homes.remove(&ino);
        self.cache.forget(ino);
        true
    }

    /// Clients with most are asked first; one that has more than its bound always.
    fn recall(&mut self, is_full: bool) {
        let now = self.now.mono;
        let s = &self.settings;
        let (max, min, at_once) = (s.max_caps_per_client, s.min_caps_per_client, s.recall_max_caps);
        let asked: Vec<(GlobalId, usize)> = self
            .sessions
            .iter()
            .filter(|(_, s)| s.state == State::Open)
            .filter_map(|(client, session)| {
                let has = session.caps.len();
                let goal = if has > max {
                    max.min(has)
                } else if is_full && has > min {
                    has.saturating_sub(at_once.min(has / 10 + 1)).max(min)
                } else {
                    return None;
                };
                // Asked lately, and it is giving back.
                let is_recent = session.recalled.is_some_and(|(at, _)| now < at + RECALL_INTERVAL);
                (!is_recent).then_some((*client, goal.max(has.saturating_sub(at_once))))
            })
            .collect();
        for (client, goal) in asked {
            let max_caps = u32::try_from(goal).unwrap_or(u32::MAX);
            if let Some(session) = self.sessions.get_mut(&client) {
                session.recalled = Some((now, session.caps.len()));
            }
            let m = MClientSession { op: SessionOp::RECALL_STATE, max_caps, ..MClientSession::default() };
            self.tell(client, 0, m.into());
        }
    }

    /// Clients that do not give back in time are shut out, if that is wanted.
    pub(crate) fn tick_caps(&mut self) {
        let limit = self.settings.cap_revoke_eviction_timeout;
        if limit.is_zero() {
            return;
        }
        let now = self.now.mono;
        let waits: Vec<Ino> = self
            .waits
            .keys()
            .filter_map(|w| match w {
                Wait::Inode(ino) => Some(*ino),
                _ => None,
            })
            .collect();
        let late: BTreeSet<GlobalId> = waits
            .into_iter()
            .filter_map(|ino| self.cache.get(ino))
            .flat_map(|i| i.caps.iter())
            .filter(|(_, cap)| cap.revoked_at.is_some_and(|at| now >= at + limit))
            .map(|(client, _)| *client)
            .collect();
        late.into_iter().for_each(|client| self.evict(client, "it does not give a capability back"));
    }

    // Files whose size only the objects know.

    /// After a failover: writers that did not come back may have written.
    pub(crate) fn check_ranges(&mut self, ino: Ino) {
        let Some(inode) = self.cache.get_mut(ino) else { return };
        let is_writer = |c: &GlobalId| {
            inode.caps.get(c).is_some_and(|cap| (cap.issued() | cap.wanted).intersects(Caps::ANY_FILE_WR))
        };
        if inode.store.inode.client_ranges.keys().any(|c| !is_writer(c)) {
            inode.needs_recover = true;
            self.recover_file(ino);
        }
    }

    /// Looks for the end of a file, when no client can change it any more.
    pub(crate) fn recover_file(&mut self, ino: Ino) {
        let Some(inode) = self.cache.get(ino).filter(|i| i.needs_recover) else { return };
        let is_written = inode.caps.values().any(|c| c.issued().intersects(Caps::ANY_FILE_WR));
        if is_written || !self.is_serving() || !self.probing.insert(ino) {
            return;
        }
        self.begin_probe(ino);
    }

    pub(crate) fn probed(&mut self, ino: Ino, size: u64, mtime: Utime) {
        self.probing.remove(&ino);
        self.cow(ino);
        let Some(inode) = self.cache.get_mut(ino) else { return };
        inode.needs_recover = false;
        let mut change = Change::new("check_inode_max_size", self.now.wall);
        let i = &mut inode.store.inode;
        if size > i.size {
            i.size = size;
            i.rstat.rbytes = i64::try_from(size).unwrap_or(i64::MAX);
        }
        if mtime > i.mtime {
            i.mtime = mtime;
            i.ctime = i.ctime.max(mtime);
        }
        let size = i.size;
        self.set_ranges(&mut change, ino, size);
        self.commit_ranges(change, ino);
        self.note_rstat(ino);
        self.wake(&Wait::File(ino));
        self.cap_changed(ino);
    }

    pub(crate) fn probe_failed(&mut self, ino: Ino) {
        // The size that is known is the best that there is.
        let (size, mtime) =
            self.cache.get(ino).map_or((0, Utime::ZERO), |i| (i.store.inode.size, i.store.inode.mtime));
        self.probed(ino, size, mtime);
    }

    /// The objects of a file are cut.
    pub(crate) fn truncated(&mut self, ino: Ino) {
        let segment = self.disk.cuts.remove(&ino).unwrap_or(self.segment_start);
        self.mark_clean(Dirty::Truncate(ino));
        self.cow(ino);
        let Some(inode) = self.cache.get_mut(ino) else { return };
        let i = &mut inode.store.inode;
        i.truncate_pending = i.truncate_pending.saturating_sub(1);
        i.truncate_from = 0;
        let mut change = Change::new("truncate finish", self.now.wall);
        change.blob.truncate_finish.insert(ino, segment);
        self.touch_inode(&mut change, ino);
        let seq = self.commit(change);
        self.when_safe_at_last(seq, Then::Stray(ino));
        self.wake(&Wait::File(ino));
    }

    /// Events that the next server would replay.
    pub fn log_events(&self) -> u64 {
        self.last_seq - self.disk.segments.front().map_or(0, |(seq, _)| *seq)
    }

    /// Nothing of an inode is held by a request. For tests.
    pub fn assert_idle(&self) {
        for (ino, inode) in &self.cache.inodes {
            let held = inode.holds.iter().find(|h| matches!(h.until, Until::Request(_)));
            assert!(held.is_none(), "{ino} is held: {held:?}");
        }
        assert!(self.requests.is_empty(), "{:?}", self.requests);
    }
}

/// How long a client has to give back before it is asked again.
const RECALL_INTERVAL: std::time::Duration = std::time::Duration::from_secs(5);

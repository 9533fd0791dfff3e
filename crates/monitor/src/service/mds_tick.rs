//! What time does to metadata servers: silent ones lose their ranks, standbys take ranks over, file systems grow and
//! shrink to the size that is wanted.
//!
//! Source: MDSMonitor::tick, check_health, maybe_resize_cluster, maybe_promote_standby, drop_mds.

use std::time::Duration;

use maps::{FsId, MdsGid, MdsInfo, MdsState, NO_FS, NO_RANK, Rank, mds_flags};
use types::Now;

use crate::monitor::Monitor;
use crate::proposal::Batch;
use crate::service::mds::{MdsSeen, fail, propose};
use crate::settings::Settings;
use crate::state::{FsState, Priority};

/// How long a lone monitor waits for a daemon whose connection ended: whoever lives comes back at once. With
/// several monitors it may come back to another one, and is heard of by its next beacon.
const COMES_BACK_WITHIN: Duration = Duration::from_secs(2);

/// A step's surroundings.
struct Tick<'a> {
    now: Now,
    settings: &'a Settings,
    batch: &'a mut Batch,
    fs: FsState,
}

impl Monitor {
    pub(crate) fn tick_mds(&mut self, now: Now, batch: &mut Batch) {
        let last = self.mds_ticked.replace(now.mono);
        self.mds_seen.retain(|gid, _| batch.state().fs.map.daemon(*gid).is_some());
        self.mds_comes.retain(|_, paid| *paid > now.mono);
        let idle = batch.state().fs.map.daemons().next().is_none() && batch.state().fs.fences.is_empty();
        if idle {
            return;
        }
        let gone = self.silent_mds(now, batch, last);
        let fs = batch.edit_fs();
        let mut tick = Tick { now, settings: &self.settings, batch, fs };
        tick.end_fences();
        tick.want_a_standby();
        for (gid, may_replace) in gone {
            tick.silent(gid, may_replace);
        }
        let ids: Vec<FsId> = tick.fs.map.filesystems.keys().copied().collect();
        for fscid in &ids {
            tick.prefer_those_who_join(*fscid);
        }
        for fscid in &ids {
            tick.resize(*fscid);
        }
        for fscid in ids {
            tick.take_over(fscid);
            tick.let_follow(fscid);
        }
        let Tick { fs, .. } = tick;
        propose(now, &self.settings, fs, batch);
    }

    /// Daemons whose beacons are missing, and whether that is sure enough to replace them.
    fn silent_mds(&mut self, now: Now, batch: &Batch, last: Option<Duration>) -> Vec<(MdsGid, bool)> {
        let seconds = |name| {
            let secs = self.settings.number(batch.state(), name);
            Duration::from_secs_f64(secs.clamp(0.0, 1e9))
        };
        let (grace, interval) = (seconds("mds_beacon_grace"), seconds("mds_beacon_interval"));
        let paused = now.mono.saturating_sub(last.unwrap_or(now.mono)) > grace.saturating_sub(interval);
        if paused {
            // It was this monitor that was away: beacons may wait to be read.
            self.mds_seen.values_mut().for_each(|seen| (seen.at, seen.lost) = (now.mono, None));
        }
        let gids: Vec<MdsGid> = batch.state().fs.map.daemons().map(|i| i.gid).collect();
        for gid in &gids {
            self.mds_seen.entry(*gid).or_insert_with(|| MdsSeen::new(now.mono));
        }
        let age = |at: Duration| now.mono.saturating_sub(at);
        let newest = self.mds_seen.values().map(|seen| age(seen.at)).min().unwrap_or_default();
        // If nobody's beacons come, it is not the daemons that are away.
        let heard = newest < interval.max(grace / 2);
        let back = match batch.state().monmap.mons.len() {
            1 => COMES_BACK_WITHIN,
            _ => interval + Duration::from_secs(1),
        };
        let judge = |gid: &MdsGid| {
            let seen = self.mds_seen.get(gid)?;
            let left = seen.lost.is_some_and(|at| age(at) >= back);
            (left || age(seen.at) >= grace).then_some((*gid, left || heard))
        };
        gids.iter().filter_map(judge).collect()
    }
}

impl Tick<'_> {
    fn log(&mut self, priority: Priority, text: String) {
        self.batch.log(self.settings.log_entry(self.now, priority, "cluster", text));
    }

    fn end_fences(&mut self) {
        let now = self.settings.quorum.slowest_wall(self.now.wall);
        self.fs.fences.retain(|_, until| *until >= now);
    }

    /// A file system that has had a standby once wants one from then on.
    fn want_a_standby(&mut self) {
        let standbys = self.fs.map.standbys.len();
        let wants = |fs: &&maps::Filesystem| {
            let followers = fs.map.count_of(MdsState::STANDBY_REPLAY);
            fs.map.standby_count_wanted == -1
                && fs.map.count_of(MdsState::ACTIVE) > 0
                && standbys + followers > 0
        };
        let ids: Vec<FsId> = self.fs.map.filesystems.values().filter(wants).map(|fs| fs.fscid).collect();
        for fscid in ids {
            self.fs.map.modify_fs(fscid, |fs| fs.map.standby_count_wanted = 1);
        }
    }

    /// Whoever may take a rank, or follow one, when `without` gives its place up.
    fn candidate(&self, fscid: FsId, rank: Rank, without: Option<MdsGid>) -> Option<MdsInfo> {
        let fits = |info: &MdsInfo| self.fs.is_of_kind_up(info.gid, without);
        self.fs.map.replacement(fscid, rank, fits).cloned()
    }

    /// A daemon's beacons are missing.
    fn silent(&mut self, gid: MdsGid, may_replace: bool) {
        let Some(info) = self.fs.map.daemon(gid).cloned() else { return };
        if !info.is_laggy() {
            let now = self.now.wall;
            self.fs.map.modify_daemon(gid, |i| i.laggy_since = now);
        }
        if may_replace && self.replace(&info) {
            let text =
                format!("MDS {} is removed because it is dead or otherwise unavailable.", info.human_name());
            self.log(Priority::Info, text);
        }
    }

    /// Takes a daemon out, if somebody is there for its rank. A rank that nobody would take stays with it: it may
    /// come back.
    fn replace(&mut self, info: &MdsInfo) -> bool {
        if info.is_frozen() {
            return false;
        }
        if info.rank == NO_RANK || info.follows() {
            fail(self.now, self.settings, &mut self.fs, self.batch, info.gid);
            return true;
        }
        let Some(fscid) = self.fs.map.fs_of(info.gid).map(|fs| fs.fscid) else { return false };
        if !self.fs.map.is_joinable(fscid) {
            return false;
        }
        let Some(next) = self.candidate(fscid, info.rank, Some(info.gid)) else { return false };
        let text = format!(
            "Replacing {} as rank {} with standby {}",
            info.human_name(),
            info.rank,
            next.human_name()
        );
        self.log(Priority::Warn, text);
        fail(self.now, self.settings, &mut self.fs, self.batch, info.gid);
        self.fs.map.promote(next.gid, fscid, info.rank);
        true
    }

    /// One daemon at a time makes room for a standby that would rather serve this file system.
    fn prefer_those_who_join(&mut self, fscid: FsId) {
        let Some(fs) = self.fs.map.filesystems.get(&fscid) else { return };
        if !self.fs.map.is_joinable(fscid) || !fs.map.is_resizeable() {
            return;
        }
        let strangers: Vec<MdsInfo> =
            fs.map.info.values().filter(|i| i.join_fscid != fscid).cloned().collect();
        for info in strangers {
            let fits = |next: &MdsInfo| self.fs.is_of_kind_up(next.gid, None);
            let next = match info.follows() {
                true => {
                    self.fs.map.filesystems.get(&fscid).and_then(|fs| self.fs.map.available_standby(fs, fits))
                }
                false => self.fs.map.replacement(fscid, info.rank, fits),
            };
            let Some(next) = next else { return };
            let better = next.join_fscid == fscid || info.join_fscid != NO_FS && next.join_fscid == NO_FS;
            if !better || next.gid == info.gid {
                continue;
            }
            let what = if info.follows() { "standby-replay" } else { "active" };
            let text = format!(
                "Dropping low affinity {what} {} in favor of higher affinity standby.",
                info.human_name()
            );
            self.log(Priority::Info, text);
            self.replace(&info);
            return;
        }
    }

    /// Adds a rank, or ends the highest one, when the file system is at rest.
    fn resize(&mut self, fscid: FsId) {
        let before = self.batch.fs_before().map.filesystems.get(&fscid);
        let Some(map) = self.fs.map.filesystems.get(&fscid).map(|fs| &fs.map) else { return };
        if before.is_some_and(|fs| !fs.map.is_resizeable()) || !map.is_resizeable() {
            return;
        }
        let (count, max) = (map.r#in.len(), usize::try_from(map.max_mds).unwrap_or(0));
        if count < max && !map.has_flag(mds_flags::NOT_JOINABLE) {
            let Some(rank) = (0..).find(|rank| !map.r#in.contains(rank)) else { return };
            let name = map.fs_name.clone();
            let Some(next) = self.candidate(fscid, rank, None) else { return };
            let text = format!(
                "{} assigned to filesystem {name} as rank {rank} (now has {} ranks)",
                next.human_name(),
                count + 1
            );
            self.log(Priority::Info, text);
            self.fs.map.promote(next.gid, fscid, rank);
        } else if count > max {
            let last = map.r#in.last().and_then(|rank| map.holder(*rank));
            let Some(info) = last.filter(|i| i.state == MdsState::ACTIVE && !i.is_frozen()).cloned() else {
                return;
            };
            self.log(Priority::Info, format!("stopping {}", info.human_name()));
            self.fs.map.modify_daemon(info.gid, |i| i.state = MdsState::STOPPING);
        }
    }

    /// Ranks that failed go to standbys.
    fn take_over(&mut self, fscid: FsId) {
        let Some(fs) = self.fs.map.filesystems.get(&fscid) else { return };
        if fs.map.has_flag(mds_flags::NOT_JOINABLE) {
            return;
        }
        let (name, failed) = (fs.map.fs_name.clone(), fs.map.failed.clone());
        for rank in failed {
            let Some(next) = self.candidate(fscid, rank, None) else { return };
            let text = format!("Standby {} assigned to filesystem {name} as rank {rank}", next.human_name());
            self.log(Priority::Info, text);
            self.fs.map.promote(next.gid, fscid, rank);
        }
    }

    /// Standbys that are left follow ranks, where that is wanted. Not while a rank is being taken over: its journal
    /// moves.
    fn let_follow(&mut self, fscid: FsId) {
        loop {
            let Some(fs) = self.fs.map.filesystems.get(&fscid) else { return };
            let map = &fs.map;
            let wanted =
                map.has_flag(mds_flags::ALLOW_STANDBY_REPLAY) && !map.has_flag(mds_flags::NOT_JOINABLE);
            if !wanted || map.is_degraded() {
                return;
            }
            let Some(rank) = map.r#in.iter().copied().find(|rank| map.is_followable(*rank)) else { return };
            let fits = |info: &MdsInfo| self.fs.is_of_kind_up(info.gid, None);
            let Some(gid) = self.fs.map.available_standby(fs, fits).map(|i| i.gid) else { return };
            self.fs.map.follow(gid, fscid, rank);
        }
    }
}

/// Gives the first rank of a new file system to a standby, so that it does not begin with a warning.
pub(crate) fn begin(now: Now, settings: &Settings, fs: FsState, batch: &mut Batch, fscid: FsId) -> FsState {
    let mut tick = Tick { now, settings, batch, fs };
    if let Some(next) = tick.candidate(fscid, 0, None) {
        let name = tick.fs.map.filesystems.get(&fscid).map(|fs| fs.map.fs_name.clone()).unwrap_or_default();
        let text = format!("{} assigned to filesystem {name} as rank 0", next.human_name());
        tick.log(Priority::Info, text);
        tick.fs.map.promote(next.gid, fscid, 0);
    }
    tick.fs
}

//! The map of all file systems and of all metadata servers, those without a rank too, and the steps that change it.
//!
//! Every step leaves the invariants of `mdsmap` and these:
//! 1. A daemon is either in one file system or among the standbys.
//! 2. A standby has the state standby, no rank, and an epoch.
//! 3. The default file system exists, or there is none.
//!
//! Source: src/mds/FSMap.h, src/mds/FSMap.cc.

use std::collections::BTreeMap;

use types::{CompatSet, Epoch, Utime};

use crate::mdsmap::{FsId, MdsGid, MdsInfo, MdsMap, MdsState, NO_FS, NO_RANK, Rank, mds_flags};

/// Another cluster's file system that this one is mirrored to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MirrorPeer {
    pub client_name: String,
    pub cluster_name: String,
    pub fs_name: String,
}

/// Whether a file system is mirrored, and where to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MirrorInfo {
    pub mirrored: bool,
    /// By uuid.
    pub peers: BTreeMap<String, MirrorPeer>,
}

/// A file system.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Filesystem {
    pub fscid: FsId,
    pub map: MdsMap,
    pub mirror: MirrorInfo,
}

/// The map of all file systems.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FsMap {
    pub epoch: Epoch,
    pub next_filesystem_id: u64,
    /// The file system of clients that name none; -1 for none.
    pub legacy_client_fscid: FsId,
    /// What a new file system begins with.
    pub compat: CompatSet,
    pub enable_multiple: bool,
    pub ever_enabled_multiple: bool,
    pub filesystems: BTreeMap<FsId, Filesystem>,
    /// Daemons without a rank, and the epoch in which each last changed.
    pub standbys: BTreeMap<MdsGid, (MdsInfo, Epoch)>,
}

impl FsMap {
    /// What a new 16.2 cluster starts with.
    pub fn initial() -> Self {
        Self {
            epoch: Epoch(1),
            next_filesystem_id: 1,
            legacy_client_fscid: NO_FS,
            compat: CompatSet::of_new_file_system(),
            enable_multiple: true,
            ever_enabled_multiple: true,
            filesystems: BTreeMap::new(),
            standbys: BTreeMap::new(),
        }
    }

    pub fn by_name(&self, name: &str) -> Option<&Filesystem> {
        self.filesystems.values().find(|fs| fs.map.fs_name == name)
    }

    /// By number, or by name when no file system has that number. Source: FSMap::parse_filesystem.
    pub fn by_name_or_id(&self, text: &str) -> Option<&Filesystem> {
        let by_id = text.parse().ok().and_then(|id: FsId| self.filesystems.get(&id));
        by_id.or_else(|| self.by_name(text))
    }

    /// All daemons: with ranks, followers, standbys.
    pub fn daemons(&self) -> impl Iterator<Item = &MdsInfo> {
        let standbys = self.standbys.values().map(|(info, _)| info);
        standbys.chain(self.filesystems.values().flat_map(|fs| fs.map.info.values()))
    }

    pub fn daemon(&self, gid: MdsGid) -> Option<&MdsInfo> {
        let standby = self.standbys.get(&gid).map(|(info, _)| info);
        standby.or_else(|| self.filesystems.values().find_map(|fs| fs.map.info.get(&gid)))
    }

    pub fn daemon_named(&self, name: &str) -> Option<&MdsInfo> {
        self.daemons().find(|i| i.name == name)
    }

    /// The file system that a daemon has a rank in, or follows one of.
    pub fn fs_of(&self, gid: MdsGid) -> Option<&Filesystem> {
        self.filesystems.values().find(|fs| fs.map.info.contains_key(&gid))
    }

    /// The newest epoch that says something of this daemon.
    pub fn epoch_for(&self, gid: MdsGid) -> Option<Epoch> {
        let standby = self.standbys.get(&gid).map(|(_, epoch)| *epoch);
        standby.or_else(|| self.fs_of(gid).map(|fs| fs.map.epoch))
    }

    pub fn uses_pool(&self, pool: i64) -> bool {
        self.filesystems.values().any(|fs| fs.map.uses_pool(pool))
    }

    /// What a daemon that is in no file system is told: nothing but itself.
    pub fn map_for_standby(&self, gid: MdsGid) -> MdsMap {
        let mut map = MdsMap { epoch: self.epoch, compat: self.compat.clone(), ..MdsMap::default() };
        if let Some((info, epoch)) = self.standbys.get(&gid) {
            map.epoch = *epoch;
            map.info.insert(gid, info.clone());
        }
        map
    }

    /// Changes a daemon where it is, and says so in the epochs.
    pub fn modify_daemon(&mut self, gid: MdsGid, change: impl FnOnce(&mut MdsInfo)) {
        let now = self.epoch;
        if let Some((info, epoch)) = self.standbys.get_mut(&gid) {
            change(info);
            *epoch = now;
        } else if let Some(fs) = self.filesystems.values_mut().find(|fs| fs.map.info.contains_key(&gid)) {
            fs.map.epoch = now;
            if let Some(info) = fs.map.info.get_mut(&gid) {
                change(info);
            }
        }
    }

    /// Changes a file system, and says so in its epoch.
    pub fn modify_fs(&mut self, fscid: FsId, change: impl FnOnce(&mut Filesystem)) {
        if let Some(fs) = self.filesystems.get_mut(&fscid) {
            change(fs);
            fs.map.epoch = self.epoch;
        }
    }

    /// A file system with two pools that exist, under a name that is free.
    pub fn create(&mut self, name: &str, metadata: i64, data: i64, now: Utime, wanted: Option<FsId>) -> FsId {
        let next = FsId::try_from(self.next_filesystem_id).unwrap_or(FsId::MAX);
        let fscid = wanted.unwrap_or(next);
        let map = MdsMap {
            epoch: self.epoch,
            fs_name: name.to_owned(),
            enabled: true,
            data_pools: vec![data],
            metadata_pool: metadata,
            compat: self.compat.clone(),
            created: now,
            modified: now,
            ..MdsMap::default()
        };
        self.filesystems.insert(fscid, Filesystem { fscid, map, mirror: MirrorInfo::default() });
        let after = u64::try_from(fscid).unwrap_or(0).saturating_add(1);
        self.next_filesystem_id = self.next_filesystem_id.max(after);
        if self.filesystems.len() == 1 {
            self.legacy_client_fscid = fscid;
        }
        fscid
    }

    /// Forgets a file system of which no rank is up.
    pub fn erase_fs(&mut self, fscid: FsId) {
        if self.legacy_client_fscid == fscid {
            self.legacy_client_fscid = NO_FS;
        }
        self.filesystems.remove(&fscid);
        let joins = |i: &&MdsInfo| i.join_fscid == fscid;
        let gids: Vec<MdsGid> = self.daemons().filter(joins).map(|i| i.gid).collect();
        for gid in gids {
            self.modify_daemon(gid, |i| i.join_fscid = NO_FS);
        }
    }

    /// Leaves of a file system's ranks the first one alone, which whoever comes takes over: its metadata is there.
    /// Daemons of it must be gone.
    pub fn reset_fs(&mut self, fscid: FsId, now: Utime) {
        let Some(fs) = self.filesystems.get_mut(&fscid) else { return };
        let old = std::mem::take(&mut fs.map);
        // Ranks that were there once read what they left behind, and do not begin anew.
        let stopped = old.r#in.iter().chain(&old.stopped).copied().filter(|rank| *rank != 0).collect();
        // What it was written with is still on the disks.
        let mut compat = self.compat.clone();
        compat.merge(&old.compat);
        fs.map = MdsMap {
            epoch: self.epoch,
            r#in: [0].into(),
            failed: [0].into(),
            stopped,
            inline_data: old.inline_data,
            data_pools: old.data_pools,
            metadata_pool: old.metadata_pool,
            cas_pool: old.cas_pool,
            fs_name: old.fs_name,
            compat,
            created: now,
            modified: now,
            standby_count_wanted: old.standby_count_wanted,
            enabled: true,
            ..MdsMap::default()
        };
        // The next holder must not begin before the last one is shut out.
        fs.map.last_failure_osd_epoch = old.last_failure_osd_epoch;
        fs.mirror = MirrorInfo::default();
    }

    /// A daemon that has just booted.
    pub fn insert_standby(&mut self, info: MdsInfo) {
        let info = MdsInfo { state: MdsState::STANDBY, rank: NO_RANK, ..info };
        self.standbys.insert(info.gid, (info, self.epoch));
    }

    /// Gives a rank to a standby, or to whoever followed its holder.
    pub fn promote(&mut self, gid: MdsGid, fscid: FsId, rank: Rank) {
        let now = self.epoch;
        let Some(fs) = self.filesystems.get_mut(&fscid) else { return };
        let map = &mut fs.map;
        let follower = map.info.get(&gid).filter(|i| i.follows() && i.rank == rank).cloned();
        let Some(mut info) = follower.or_else(|| self.standbys.remove(&gid).map(|(info, _)| info)) else {
            return;
        };
        info.state = if map.stopped.remove(&rank) {
            MdsState::STARTING
        } else if !map.up.contains_key(&rank) && !map.failed.contains(&rank) {
            MdsState::CREATING
        } else {
            MdsState::REPLAY
        };
        map.failed.remove(&rank);
        info.rank = rank;
        info.inc = i32::try_from(now.0).unwrap_or(i32::MAX);
        map.compat.merge(&info.compat);
        map.r#in.insert(rank);
        map.up.insert(rank, gid);
        map.info.insert(gid, info);
        map.epoch = now;
    }

    /// Lets a standby follow the journal of a rank.
    pub fn follow(&mut self, gid: MdsGid, fscid: FsId, rank: Rank) {
        let Some(fs) = self.filesystems.get_mut(&fscid) else { return };
        if let Some((info, _)) = self.standbys.remove(&gid) {
            fs.map.info.insert(gid, MdsInfo { rank, state: MdsState::STANDBY_REPLAY, ..info });
            fs.map.epoch = self.epoch;
        }
    }

    /// Forgets a daemon; a rank that it held has failed. `blocked_at` is the OSD map that blocks it, if one does:
    /// the rank's next holder waits for that map.
    pub fn erase(&mut self, gid: MdsGid, blocked_at: Option<Epoch>) {
        self.standbys.remove(&gid);
        let Some(fs) = self.filesystems.values_mut().find(|fs| fs.map.info.contains_key(&gid)) else {
            return;
        };
        let map = &mut fs.map;
        let Some(info) = map.info.remove(&gid) else { return };
        if !info.follows() {
            if info.state == MdsState::CREATING {
                // It wrote nothing that counts: whoever gets the rank next begins anew.
                map.r#in.remove(&info.rank);
            } else {
                map.failed.insert(info.rank);
            }
            map.up.remove(&info.rank);
        }
        // A follower's end blocks nobody and takes nothing back.
        if let Some(epoch) = blocked_at {
            map.last_failure_osd_epoch = map.last_failure_osd_epoch.max(epoch);
        }
        map.epoch = self.epoch;
    }

    /// Forgets a daemon whose rank nobody may take until it is repaired.
    pub fn damaged(&mut self, gid: MdsGid, blocked_at: Option<Epoch>) {
        let held = self.fs_of(gid).and_then(|fs| Some((fs.fscid, fs.map.info.get(&gid)?.rank)));
        self.erase(gid, blocked_at);
        if let Some((fscid, rank)) = held {
            self.modify_fs(fscid, |fs| {
                fs.map.failed.remove(&rank);
                fs.map.r#in.insert(rank);
                fs.map.damaged.insert(rank);
            });
        }
    }

    /// A rank may be taken again; false when it was not damaged.
    pub fn undamaged(&mut self, fscid: FsId, rank: Rank) -> bool {
        let Some(fs) = self.filesystems.get_mut(&fscid) else { return false };
        let was = fs.map.damaged.remove(&rank);
        if was {
            fs.map.failed.insert(rank);
            fs.map.epoch = self.epoch;
        }
        was
    }

    /// A rank's holder has given everything away: the rank is no more. Its followers go with it.
    pub fn stop(&mut self, gid: MdsGid) -> Vec<MdsGid> {
        let Some(fs) = self.filesystems.values_mut().find(|fs| fs.map.info.contains_key(&gid)) else {
            return Vec::new();
        };
        let map = &mut fs.map;
        let Some(info) = map.info.remove(&gid) else { return Vec::new() };
        map.up.remove(&info.rank);
        map.r#in.remove(&info.rank);
        map.stopped.insert(info.rank);
        let followers: Vec<MdsGid> =
            map.info.values().filter(|i| i.rank == info.rank && i.follows()).map(|i| i.gid).collect();
        followers.iter().for_each(|gid| drop(map.info.remove(gid)));
        map.epoch = self.epoch;
        followers
    }

    /// A standby that may serve a file system: one that wants to, else one that wants no other, else any.
    ///
    /// Source: FSMap::get_available_standby.
    pub fn available_standby(&self, fs: &Filesystem, fits: impl Fn(&MdsInfo) -> bool) -> Option<&MdsInfo> {
        let mut found: Option<&MdsInfo> = None;
        for (info, _) in self.standbys.values() {
            if info.is_laggy() || info.is_frozen() || !info.compat.may_write(&fs.map.compat) || !fits(info) {
                continue;
            }
            if info.join_fscid == fs.fscid {
                return Some(info);
            }
            if info.join_fscid == NO_FS || found.is_none() {
                found = Some(info);
            }
        }
        found
    }

    /// Whoever may take a rank: its holder's follower, else a standby. Source: FSMap::find_replacement_for.
    pub fn replacement(&self, fscid: FsId, rank: Rank, fits: impl Fn(&MdsInfo) -> bool) -> Option<&MdsInfo> {
        let fs = self.filesystems.get(&fscid)?;
        match fs.map.follower(rank) {
            Some(follower) => (!follower.is_frozen() && fits(follower)).then_some(follower),
            None => self.available_standby(fs, fits),
        }
    }

    pub fn is_any_degraded(&self) -> bool {
        self.filesystems.values().any(|fs| fs.map.is_degraded())
    }

    /// Standbys that are missing, by the file system that wants most.
    pub fn standbys_missing(&self) -> usize {
        let missing = self.filesystems.values().map(|fs| fs.map.standbys_missing(self.standbys.len()));
        missing.max().unwrap_or(0)
    }

    /// Whether a file system takes no new holders of ranks.
    pub fn is_joinable(&self, fscid: FsId) -> bool {
        self.filesystems.get(&fscid).is_some_and(|fs| !fs.map.has_flag(mds_flags::NOT_JOINABLE))
    }

    /// What does not hold together, if anything.
    pub fn check(&self) -> Result<(), &'static str> {
        if self.legacy_client_fscid != NO_FS && !self.filesystems.contains_key(&self.legacy_client_fscid) {
            return Err("the default file system does not exist");
        }
        for (id, fs) in &self.filesystems {
            let map = &fs.map;
            if *id != fs.fscid {
                return Err("a file system under another one's number");
            }
            for (gid, info) in &map.info {
                let holds = map.up.get(&info.rank) == Some(gid);
                if *gid != info.gid || info.rank == NO_RANK || self.standbys.contains_key(gid) {
                    return Err("a daemon in two places, or without its rank");
                }
                if !info.follows() && (!holds || map.failed.contains(&info.rank)) {
                    return Err("a rank and its holder do not name each other");
                }
            }
            for (rank, gid) in &map.up {
                if !map.r#in.contains(rank) || map.damaged.contains(rank) || !map.info.contains_key(gid) {
                    return Err("a rank that is up and not in, or damaged, or held by nobody");
                }
            }
        }
        let is_standby = |(gid, (i, _)): (&MdsGid, &(MdsInfo, Epoch))| {
            i.gid == *gid && i.rank == NO_RANK && i.state == MdsState::STANDBY
        };
        if self.standbys.iter().all(is_standby) { Ok(()) } else { Err("a standby that is none") }
    }
}

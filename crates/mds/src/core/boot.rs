//! From the map's word to serving: a fresh rank is made, another server's journal is replayed, clients come
//! back.
//!
//! ```text
//! CREATING ──create, open, replay──> Writeable ──base inodes, own folder──> wants ACTIVE
//! REPLAY ──(the OSDs shut the last holder out) open, replay──> Writeable ──> wants RESOLVE or RECONNECT
//! RESOLVE ──> wants RECONNECT;  RECONNECT ──clients came or are late──> wants REJOIN
//! REJOIN ──claimed inodes are read──> wants CLIENT_REPLAY or ACTIVE
//! CLIENT_REPLAY ──requests that were answered are done again──> wants ACTIVE
//! ACTIVE ──> serves;  STOPPING ──sessions end, all is written──> wants STOPPED
//! ```
//!
//! Source: src/mds/MDSRank.cc (boot_start, replay_done, reconnect_start, rejoin_start, active_start,
//! stopping_start).

use maps::{MdsMap, MdsState};
use types::{GlobalId, Ino, PoolId, SnapId};

use super::cache::{Inode, whole};
use super::io::Effect;
use super::request::Wait;
use super::server::Server;
use super::session::{Session, State};
use crate::format::{BaseInode, LogEvent, MetaBlob, SubtreeMap, names};
use crate::storage::{self, Mode, Storage, Tables};

/// How far the start is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Stage {
    #[default]
    Waiting,
    Creating,
    Opening,
    /// The root and the server's own folder are read.
    Basing,
    Replaying,
    /// The journal is made ready for writing.
    Starting,
    /// The fragments of the server's own folder and of the strays are read.
    Reading,
    Ready,
}

impl Server {
    pub(crate) fn on_mds_map(&mut self, map: MdsMap) {
        if map.epoch <= self.map.epoch {
            return;
        }
        let own = map.info.get(&self.settings.gid).cloned();
        self.map = map;
        let Some(own) = own else {
            if self.state != MdsState::NULL {
                self.is_damaged = true;
                self.out.push(Effect::Respawn);
            }
            return;
        };
        let is_rank = own.rank >= 0 && !own.follows();
        if !is_rank || own.state == self.state {
            return self.boot_step();
        }
        self.rank = own.rank;
        let old = std::mem::replace(&mut self.state, own.state);
        self.wanted = own.state;
        if old == MdsState::NULL {
            self.next_tick = self.now.mono;
        }
        match own.state {
            MdsState::RESOLVE => self.want_state(MdsState::RECONNECT),
            MdsState::RECONNECT => self.begin_reconnect(),
            MdsState::CLIENT_REPLAY => self.begin_replays(),
            MdsState::ACTIVE => self.begin_serving(),
            MdsState::STOPPING => self.begin_stopping(),
            _ => {}
        }
        self.boot_step();
    }

    pub(crate) fn want_state(&mut self, state: MdsState) {
        if self.wanted != state {
            self.wanted = state;
            self.out.push(Effect::Want(state));
        }
    }

    /// Goes on with the start as far as it can.
    pub(crate) fn boot_step(&mut self) {
        if self.stage == Stage::Waiting {
            let begins = [MdsState::CREATING, MdsState::STARTING, MdsState::REPLAY].contains(&self.state);
            if begins && self.has_osd_map() {
                self.begin_storage();
            }
            return;
        }
        if self.stage == Stage::Reading {
            self.read_own();
        }
        match self.state {
            MdsState::REJOIN => self.rejoin_step(),
            MdsState::STOPPING => self.stop_step(),
            _ => {}
        }
    }

    /// The last holder of the rank must not write any more when its journal is read.
    fn has_osd_map(&mut self) -> bool {
        let needed = self.map.last_failure_osd_epoch;
        if self.osd.epoch.0 == 0 || self.osd.epoch < needed {
            self.out.push(Effect::NeedOsdMap(needed));
            return false;
        }
        true
    }

    fn new_storage(&self) -> Storage {
        let rank = u32::try_from(self.rank).unwrap_or(0);
        let has_snaps = self.rank == self.map.tableserver;
        Storage::new(rank, PoolId(self.map.metadata_pool), has_snaps, storage::Settings::default())
    }

    fn begin_storage(&mut self) {
        let mut storage = self.new_storage();
        if self.state == MdsState::CREATING {
            let data = self.map.data_pools.first().copied().unwrap_or(-1);
            let seqs = &self.osd.snap_seqs;
            let last = self.map.data_pools.iter().filter_map(|p| seqs.get(&PoolId(*p))).max();
            storage.create(self.now, PoolId(data), SnapId(last.copied().unwrap_or(0)));
            self.stage = Stage::Creating;
        } else {
            storage.open(Mode::Active);
            self.stage = Stage::Opening;
        }
        self.disk.storage = Some(storage);
    }

    pub(crate) fn storage_created(&mut self) {
        self.stage = Stage::Opening;
        // What was made is read as any other rank is.
        let mut storage = self.new_storage();
        storage.open(Mode::Active);
        self.disk.storage = Some(storage);
    }

    pub(crate) fn storage_opened(&mut self, tables: Tables) {
        if let Some(snaps) = tables.snaps {
            self.snaps = *snaps;
        }
        self.disk.inos = tables.inos;
        self.session_version = tables.session_version;
        for (name, info) in tables.sessions {
            let client = GlobalId(u64::try_from(name.num).unwrap_or(0));
            self.add_stored_session(client, info);
        }
        // Replay needs the folders that all others are in.
        self.stage = Stage::Basing;
        if self.has_base() {
            self.begin_replay();
        }
    }

    /// The root and the server's own folder are here, or are being read.
    fn has_base(&mut self) -> bool {
        let rank = u32::try_from(self.rank).unwrap_or(0);
        let mut is_here = true;
        for ino in [Ino::ROOT, names::mdsdir(rank)] {
            if self.cache.get(ino).is_none() {
                is_here = false;
                if self.base_asked.insert(ino) {
                    self.load_base(ino);
                }
            }
        }
        is_here
    }

    fn begin_replay(&mut self) {
        self.stage = Stage::Replaying;
        if let Some(storage) = &mut self.disk.storage {
            storage.replay();
        }
    }

    pub(crate) fn add_stored_session(&mut self, client: GlobalId, mut info: crate::format::SessionInfo) {
        // What was used only by what the journal has is used again when that is replayed.
        let used = std::mem::take(&mut info.used_inos);
        info.prealloc_inos.union_of(&used);
        match self.sessions.get_mut(&client) {
            Some(session) => {
                session.info = info;
                session.state = State::Open;
            }
            None => drop(self.sessions.insert(client, Session::new(info, State::Open))),
        }
    }

    pub(crate) fn replay_end(&mut self) {
        self.stage = Stage::Starting;
        if let Some(storage) = &mut self.disk.storage {
            storage.start_writing();
        }
    }

    /// The journal takes events: those from now on are in a segment of ours.
    pub(crate) fn writeable(&mut self) {
        self.disk.is_writeable = true;
        self.safe_seq = self.last_seq;
        self.stage = Stage::Reading;
        for inode in self.cache.inodes.values_mut() {
            let ranges = &inode.store.inode.client_ranges;
            inode.safe_ranges = ranges.iter().map(|(c, r)| (*c, r.last)).collect();
            inode.safe_version = inode.store.inode.version;
            inode.unsafe_until = 0;
        }
        self.read_own();
    }

    /// The root, the server's own folder and the strays.
    fn read_own(&mut self) {
        let rank = u32::try_from(self.rank).unwrap_or(0);
        let mut is_missing = false;
        let own = whole(names::mdsdir(rank));
        if !self.cache.dir(own).is_some_and(|d| d.is_complete) {
            return self.read_needed(own);
        }
        // A stray's folder is small in the end, and its header is needed for every removal.
        for i in 0..names::STRAYS {
            let ino = names::stray(rank, i);
            if self.cache.get(ino).is_none() {
                return self.damaged(format!("the folder {ino} for strays is missing"));
            }
            let frag = whole(ino);
            if !self.cache.dir(frag).is_some_and(|d| d.is_complete) {
                self.read_needed(frag);
                is_missing = true;
            }
        }
        let root = whole(Ino::ROOT);
        if self.cache.dir(root).is_none() && !self.cache.leaves(Ino::ROOT).contains(&root) {
            // The root is in pieces, which are read one by one.
        } else if self.cache.dir(root).is_none() {
            self.read_needed(root);
            is_missing = true;
        }
        if !is_missing {
            self.ready();
        }
    }

    /// Without it the rank cannot serve.
    fn read_needed(&mut self, frag: crate::format::DirFrag) {
        if self.load_dir(frag).is_err() {
            self.damaged(format!("{} cannot be read", frag.object()));
        }
    }

    pub(crate) fn base_loaded(&mut self, inode: BaseInode) {
        let ino = inode.0.inode.ino;
        if self.cache.get(ino).is_none() {
            self.cache.insert(Inode::new(inode.0, None));
        }
        if self.stage == Stage::Basing && self.has_base() {
            self.begin_replay();
        }
    }

    fn ready(&mut self) {
        self.stage = Stage::Ready;
        self.begin_segment();
        self.end_table_changes();
        for client in std::mem::take(&mut self.recon.killed) {
            self.kill_session(client);
        }
        match self.state {
            MdsState::CREATING | MdsState::STARTING => self.want_state(MdsState::ACTIVE),
            MdsState::REPLAY => {
                let is_alone = self.map.r#in.len() <= 1;
                self.want_state(if is_alone { MdsState::RECONNECT } else { MdsState::RESOLVE });
            }
            _ => {}
        }
        self.boot_step();
    }

    /// Opens a segment: what is in it can be replayed without those before.
    pub(crate) fn begin_segment(&mut self) {
        let seq = self.next_seq();
        let rank = u32::try_from(self.rank).unwrap_or(0);
        let mut metadata = MetaBlob::default();
        let mut subtrees = std::collections::BTreeMap::new();
        for ino in [Ino::ROOT, names::mdsdir(rank)] {
            self.add_root(&mut metadata, ino, false);
            for frag in self.cache.leaves(ino) {
                if self.cache.dir(frag).is_some() {
                    self.add_lump(&mut metadata, frag, 0);
                }
                subtrees.insert(frag, Vec::new());
            }
            if let Some(inode) = self.cache.get_mut(ino) {
                inode.last_journaled = seq;
            }
        }
        let expire_pos = self.disk.storage.as_ref().map_or(0, |s| s.journal().expire_pos);
        let event = SubtreeMap {
            stamp: self.now.wall,
            metadata,
            subtrees,
            ambiguous: Default::default(),
            expire_pos,
            event_seq: seq,
        };
        self.append(LogEvent::SubtreeMap(event));
    }

    fn begin_serving(&mut self) {
        self.recon.is_open = false;
        let now = self.now.mono;
        self.sessions.values_mut().for_each(|s| s.renewed = now);
        self.end_claims();
        self.tell_realms_anew();
        self.take_later();
        self.take_held_drops();
        self.wake(&Wait::Active);
        self.resume_files();
        self.look_at_strays();
        let inos: Vec<Ino> =
            self.cache.inodes.iter().filter(|(_, i)| !i.caps.is_empty()).map(|(i, _)| *i).collect();
        self.stirred.extend(inos);
    }

    /// What a former server began with files is brought to its end.
    fn resume_files(&mut self) {
        let cut: Vec<Ino> = self
            .cache
            .inodes
            .iter()
            .filter(|(_, i)| i.store.inode.truncate_pending > 0)
            .map(|(ino, _)| *ino)
            .collect();
        for ino in cut {
            self.disk.cuts.entry(ino).or_insert(self.segment_start);
            self.mark_dirty(super::server::Dirty::Truncate(ino), self.last_seq);
            self.begin_truncate(ino);
        }
        let open: Vec<Ino> = self
            .cache
            .inodes
            .iter()
            .filter(|(_, i)| i.is_file() && !i.store.inode.client_ranges.is_empty())
            .map(|(ino, _)| *ino)
            .collect();
        open.into_iter().for_each(|ino| self.check_ranges(ino));
    }

    fn begin_stopping(&mut self) {
        let clients: Vec<GlobalId> =
            self.sessions.iter().filter(|(_, s)| s.is_usable()).map(|(c, _)| *c).collect();
        for client in clients {
            self.close_by_server(client);
        }
    }

    fn stop_step(&mut self) {
        let is_closed = self.sessions.values().all(|s| s.state == State::Closed);
        if is_closed && self.requests.is_empty() && self.settles.is_empty() {
            self.write_all();
            if self.dirty.is_empty() {
                self.want_state(MdsState::STOPPED);
            }
        }
    }
}

//! Replaying the journal: what is in memory after it is what the last holder of the rank had made safe.
//!
//! Events of several ranks and of fragments that were split are refused: a journal is replayed whole or not
//! at all.
//!
//! Source: EMetaBlob::replay, ESession::replay, ESessions::replay in src/mds/journal.cc.

use std::collections::BTreeSet;

use types::{EntityName, GlobalId, Ino, SnapId};

use super::cache::{Dentry, Dir, FIRST, Inode, Key, OldName, Target, first_of};
use super::server::{Dirty, Server};
use super::session::{Session, State};
use crate::format::{
    DirFrag, DirLump, DirLumpState, FullBit, FullBitState, InodeStore, Link, LogEvent, MetaBlob,
    SessionEvent, SessionInfo,
};

fn client_of(name: EntityName) -> GlobalId {
    GlobalId(u64::try_from(name.num).unwrap_or(0))
}

impl Server {
    /// `at`: the event's position.
    pub(crate) fn replay(&mut self, at: u64, event: &LogEvent) {
        if self.is_damaged {
            return;
        }
        self.last_seq += 1;
        match event {
            LogEvent::SubtreeMap(e) => {
                self.last_seq = self.last_seq.max(e.event_seq);
                self.disk.segments.push_back((self.last_seq, at));
                self.replay_blob(&e.metadata);
            }
            LogEvent::Update(e) => {
                if e.had_peers {
                    return self.refuse_event(event);
                }
                self.replay_blob(&e.metadata);
            }
            LogEvent::Opened(e) => self.replay_blob(&e.metadata),
            LogEvent::Session(e) => self.replay_session(e),
            LogEvent::Sessions(e) => {
                if e.session_map_version > self.session_version {
                    self.session_version = e.session_map_version;
                    for (client, inst) in &e.clients {
                        let metadata = e.metadata.get(client).cloned().unwrap_or_default();
                        let info = SessionInfo { client: inst.clone(), metadata, ..SessionInfo::default() };
                        self.sessions.entry(*client).or_insert_with(|| Session::new(info, State::Open));
                    }
                    self.mark_dirty(Dirty::Sessions, self.last_seq);
                }
            }
            LogEvent::ResetJournal(_) => {
                let names: Vec<EntityName> = self.sessions.values().map(|s| s.info.client.name).collect();
                self.disk.closed_sessions.extend(names);
                self.sessions.retain(|_, s| s.conn.is_some());
                self.sessions.values_mut().for_each(|s| s.state = State::Closed);
                self.session_version += 1;
                self.mark_dirty(Dirty::Sessions, self.last_seq);
            }
            LogEvent::Purged(e) => {
                if e.ino_table_version > self.disk.inos.version {
                    self.disk.inos.free.union_of(&e.inos);
                    self.disk.inos.version = e.ino_table_version;
                    self.mark_dirty(Dirty::InoTable, self.last_seq);
                }
            }
            LogEvent::TableServer(e) => self.replay_table_server(e),
            LogEvent::TableClient(e) => self.replay_table_client(e),
            LogEvent::NoOp(_) | LogEvent::SubtreeMapTest(_) => {}
            _ => self.refuse_event(event),
        }
    }

    fn refuse_event(&mut self, event: &LogEvent) {
        self.damaged(format!("the journal has an event that is not understood yet: {}", event.kind_str()));
    }

    fn replay_session(&mut self, e: &SessionEvent) {
        let seq = self.last_seq;
        if e.session_map_version > self.session_version {
            self.session_version = e.session_map_version;
            let client = client_of(e.client.name);
            if e.open {
                let info = SessionInfo {
                    client: e.client.clone(),
                    metadata: e.metadata.clone(),
                    ..SessionInfo::default()
                };
                match self.sessions.get_mut(&client) {
                    Some(session) => {
                        session.info.metadata = info.metadata;
                        session.state = State::Open;
                        session.dirty_since = Some(seq);
                    }
                    None => {
                        let mut session = Session::new(info, State::Open);
                        session.dirty_since = Some(seq);
                        self.sessions.insert(client, session);
                    }
                }
                self.disk.closed_sessions.remove(&e.client.name);
            } else {
                match self.sessions.get_mut(&client).filter(|s| s.conn.is_some()) {
                    Some(session) => session.state = State::Closed,
                    None => drop(self.sessions.remove(&client)),
                }
                self.disk.closed_sessions.insert(e.client.name);
            }
            self.mark_dirty(Dirty::Sessions, seq);
        }
        if e.ino_table_version > self.disk.inos.version {
            self.disk.inos.free.union_of(&e.inos);
            self.disk.inos.version = e.ino_table_version;
            self.mark_dirty(Dirty::InoTable, seq);
        }
    }

    fn replay_blob(&mut self, blob: &MetaBlob) {
        let mut unlinked = BTreeSet::new();
        for bit in &blob.roots {
            self.replay_root(bit);
        }
        for frag in &blob.order {
            let Some(lump) = blob.lumps.get(frag) else { continue };
            if self.cache.get(frag.ino).is_none() {
                return self
                    .damaged(format!("the journal changes the folder {}, which it does not have", frag.ino));
            }
            self.replay_lump(*frag, lump, &mut unlinked);
        }
        for ino in unlinked {
            let is_placed = self.cache.get(ino).is_none_or(|i| match &i.place {
                Some((frag, key)) => {
                    self.cache.dentry(*frag, key).is_some_and(|d| d.target == Target::Primary(ino))
                }
                None => true,
            });
            if !is_placed {
                self.forget_tree(ino);
            }
        }
        self.replay_tables(blob);
        for ino in &blob.truncate_start {
            self.mark_dirty(Dirty::Truncate(*ino), self.last_seq);
            let segment = self.disk.segments.back().map_or(0, |(seq, _)| *seq);
            self.disk.cuts.insert(*ino, segment);
        }
        for ino in blob.truncate_finish.keys() {
            self.mark_clean(Dirty::Truncate(*ino));
            self.disk.cuts.remove(ino);
        }
        for ino in &blob.destroyed_inodes {
            self.forget_tree(*ino);
        }
    }

    fn replay_root(&mut self, bit: &FullBit) {
        let ino = bit.inode.ino;
        let known = self.cache.get(ino).map_or(0, |i| i.store.inode.version);
        if self.cache.get(ino).is_some() && known > bit.inode.version {
            return;
        }
        match self.cache.get_mut(ino) {
            Some(inode) => {
                inode.store = store_of(bit);
                inode.first = first_of(&inode.store, FIRST);
            }
            None => self.cache.insert(Inode::new(store_of(bit), None)),
        }
        if bit.state.has(FullBitState::DIRTY) {
            self.mark_dirty(Dirty::Base(ino), self.last_seq);
        }
    }

    fn replay_lump(&mut self, frag: DirFrag, lump: &DirLump, unlinked: &mut BTreeSet<Ino>) {
        let seq = self.last_seq;
        let dir = self
            .cache
            .dirs
            .entry(frag)
            .or_insert_with(|| Dir { fnode: lump.fnode.clone(), ..Dir::default() });
        if lump.fnode.version >= dir.fnode.version {
            dir.fnode = lump.fnode.clone();
        }
        if lump.state.has(DirLumpState::NEW) && lump.state.has(DirLumpState::DIRTY) {
            dir.is_new = true;
        }
        if lump.state.has(DirLumpState::COMPLETE) {
            dir.is_complete = true;
        }
        if lump.state.has(DirLumpState::DIRTY) {
            self.mark_dir_dirty(frag, seq);
        }
        for bit in &lump.full {
            self.replay_full(frag, bit, unlinked);
        }
        for bit in &lump.remote {
            if bit.last != SnapId::HEAD {
                let link = Link::Remote { ino: bit.ino, d_type: bit.d_type };
                let (first, alternate_name) = (bit.first, bit.alternate_name.clone());
                let dentry = crate::format::Dentry { first, alternate_name, link };
                let old = OldName { dentry, version: bit.version };
                self.replay_old(frag, &bit.name, bit.last, Some(old), bit.dirty);
                continue;
            }
            let mut dentry = Dentry::new(Target::Remote { ino: bit.ino, d_type: bit.d_type });
            (dentry.first, dentry.version) = (bit.first, bit.version);
            dentry.alternate_name = bit.alternate_name.clone();
            self.replay_name(frag, &bit.name, dentry, bit.dirty, unlinked);
        }
        for bit in &lump.null {
            if bit.last != SnapId::HEAD {
                self.replay_old(frag, &bit.name, bit.last, None, bit.dirty);
                continue;
            }
            let mut dentry = Dentry::new(Target::Null);
            (dentry.first, dentry.version) = (bit.first, bit.version);
            self.replay_name(frag, &bit.name, dentry, bit.dirty, unlinked);
        }
    }

    fn key_in(&self, frag: DirFrag, name: &messages::fs::FileName) -> Option<Key> {
        self.cache.spot(frag.ino, name).map(|(_, key)| key)
    }

    fn replay_name(
        &mut self,
        frag: DirFrag,
        name: &messages::fs::FileName,
        dentry: Dentry,
        is_dirty: bool,
        unlinked: &mut BTreeSet<Ino>,
    ) {
        let seq = self.last_seq;
        let Some(key) = self.key_in(frag, name) else { return };
        let target = dentry.target;
        let Some(dir) = self.cache.dirs.get_mut(&frag) else { return };
        let old = dir.entries.insert(key.clone(), dentry);
        if is_dirty {
            dir.dirty.insert(key);
        }
        if let Some(Target::Primary(ino)) = old.map(|d| d.target) {
            if target != Target::Primary(ino) {
                unlinked.insert(ino);
            }
        }
        if is_dirty {
            self.mark_dir_dirty(frag, seq);
        }
    }

    /// What a name was in snapshots; `None`: that is gone.
    fn replay_old(
        &mut self,
        frag: DirFrag,
        name: &messages::fs::FileName,
        last: SnapId,
        old: Option<OldName>,
        is_dirty: bool,
    ) {
        let seq = self.last_seq;
        let Some(key) = self.key_in(frag, name) else { return };
        match old {
            Some(old) => self.cache.insert_old(frag, key.clone(), last, old),
            None => self.cache.remove_old(frag, &key, last),
        }
        if !is_dirty {
            return;
        }
        if let Some(dir) = self.cache.dirs.get_mut(&frag) {
            dir.dirty_old.insert((key, last));
        }
        self.mark_dir_dirty(frag, seq);
    }

    fn replay_full(&mut self, frag: DirFrag, bit: &FullBit, unlinked: &mut BTreeSet<Ino>) {
        if bit.last != SnapId::HEAD {
            let link = Link::Primary(Box::new(store_of(bit)));
            let (first, alternate_name) = (bit.first, bit.alternate_name.clone());
            let dentry = crate::format::Dentry { first, alternate_name, link };
            let old = OldName { dentry, version: bit.version };
            let is_dirty = bit.state.has(FullBitState::DIRTY);
            return self.replay_old(frag, &bit.name, bit.last, Some(old), is_dirty);
        }
        let seq = self.last_seq;
        let ino = bit.inode.ino;
        let Some(key) = self.key_in(frag, &bit.name) else { return };
        let is_dirty = bit.state.has(FullBitState::DIRTY);
        let mut dentry = Dentry::new(Target::Primary(ino));
        (dentry.first, dentry.version) = (bit.first, bit.version);
        dentry.alternate_name = bit.alternate_name.clone();
        self.replay_name(frag, &bit.name, dentry, is_dirty, unlinked);
        let place = Some((frag, key));
        let before = self.cache.get(ino).and_then(|i| i.place.clone());
        match self.cache.get_mut(ino) {
            Some(inode) => {
                inode.store = store_of(bit);
                inode.first = first_of(&inode.store, bit.first);
                inode.place.clone_from(&place);
            }
            None => {
                let store = store_of(bit);
                let first = first_of(&store, bit.first);
                self.cache.insert(Inode { first, ..Inode::new(store, place.clone()) });
            }
        }
        if let Some(inode) = self.cache.get_mut(ino) {
            inode.last_journaled = 0;
        }
        // The name that it had leads nowhere; the event says so, too, if it is a name of this rank.
        if let Some((old_frag, old_key)) = before.filter(|b| Some(b) != place.as_ref()) {
            if let Some(old) = self.cache.dentry_mut(old_frag, &old_key) {
                if old.target == Target::Primary(ino) {
                    old.target = Target::Null;
                }
            }
        }
        if bit.state.has(FullBitState::DIRTY_PARENT) {
            self.mark_dirty(Dirty::Backtrace(ino), seq);
        }
        self.note_rstat(ino);
    }

    /// An inode is gone, with what is below it.
    pub(crate) fn forget_tree(&mut self, ino: Ino) {
        let frags: Vec<DirFrag> = self
            .cache
            .dirs
            .range(DirFrag { ino, frag: Default::default() }..)
            .map(|(frag, _)| *frag)
            .take_while(|f| f.ino == ino)
            .collect();
        for frag in frags {
            if let Some(dir) = self.cache.remove_dir(frag) {
                let below = dir.entries.values().filter_map(|d| match d.target {
                    Target::Primary(ino) => Some(ino),
                    _ => None,
                });
                let below: Vec<Ino> = below.collect();
                below.into_iter().for_each(|ino| self.forget_tree(ino));
            }
            self.mark_clean(Dirty::Dir(frag));
        }
        for what in [Dirty::Backtrace(ino), Dirty::Truncate(ino), Dirty::Base(ino)] {
            self.mark_clean(what);
        }
        self.unsummed.remove(&ino);
        self.cache.forget(ino);
    }

    /// Numbers of inodes, and what sessions have done. Source: EMetaBlob::replay.
    fn replay_tables(&mut self, blob: &MetaBlob) {
        let seq = self.last_seq;
        let snaps = blob.table_tids.iter().filter(|(table, _)| *table == super::snap_table::TABLE_SNAP);
        self.agreed_snaps.extend(snaps.map(|(_, tid)| *tid));
        if blob.ino_table_version > self.disk.inos.version {
            let inos = &mut self.disk.inos;
            if blob.allocated_ino.0 != 0 {
                inos.free.remove_run(blob.allocated_ino.0, 1);
            }
            inos.free.subtract(&blob.preallocated_inos);
            inos.version = blob.ino_table_version;
            self.mark_dirty(Dirty::InoTable, seq);
        }
        let client = client_of(blob.client);
        if blob.session_map_version > self.session_version {
            self.session_version = blob.session_map_version;
            if let Some(session) = self.sessions.get_mut(&client) {
                if blob.used_preallocated_ino.0 != 0 {
                    session.info.prealloc_inos.remove_run(blob.used_preallocated_ino.0, 1);
                }
                session.info.prealloc_inos.union_of(&blob.preallocated_inos);
                session.dirty_since.get_or_insert(seq);
            }
            self.mark_dirty(Dirty::Sessions, seq);
        }
        let created = if blob.allocated_ino.0 != 0 { blob.allocated_ino } else { blob.used_preallocated_ino };
        for (req, oldest) in &blob.client_reqs {
            let Some(session) = self.sessions.get_mut(&client_of(req.name)) else { continue };
            session.info.completed_requests.insert(req.tid, created);
            if *oldest > 0 {
                session.trim_completed(*oldest);
            }
            session.dirty_since.get_or_insert(seq);
            self.mark_dirty(Dirty::Sessions, seq);
        }
        for (req, oldest) in &blob.client_flushes {
            let Some(session) = self.sessions.get_mut(&client_of(req.name)) else { continue };
            session.info.completed_flushes.insert(req.tid);
            if *oldest > 0 {
                session.info.completed_flushes = session.info.completed_flushes.split_off(oldest);
            }
            session.dirty_since.get_or_insert(seq);
            self.mark_dirty(Dirty::Sessions, seq);
        }
    }
}

fn store_of(bit: &FullBit) -> InodeStore {
    InodeStore {
        inode: bit.inode.clone(),
        symlink: bit.symlink.clone(),
        frag_tree: bit.frag_tree.clone(),
        xattrs: bit.xattrs.clone(),
        realm: bit.realm.clone(),
        old_inodes: bit.old_inodes.clone(),
        oldest_snap: bit.oldest_snap,
        damage_flags: 0,
    }
}

//! Snapshots are made, removed, renamed and listed, and clients hear of them.
//!
//! A change counts for the server at once and for clients when it is safe (`SnapChange`): until then realms
//! are told as they were, and there is one such change at a time.
//!
//! Source: Server::handle_client_mksnap, handle_client_rmsnap, handle_client_renamesnap,
//! handle_client_lssnap, MDCache::do_realm_invalidate_and_update_notify, notify_global_snaprealm_update.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use codec::{Decode, Encode, Reader};
use messages::fs::{
    DirEntry, DirStat, FileName, FilePath, Frag, MClientSnap, ReaddirReply, RequestArgs, SnapOp,
};
use types::{Errno, GlobalId, Ino, SnapId};

use super::access::{READ, SNAPSHOT, WRITE};
use super::hold::{Mode, Part};
use super::path::MAX_NAME;
use super::realm::{View, snap_name};
use super::request::{Done, Request, Run, Stop, Wait};
use super::server::{Server, Then};
use super::snap_table::TABLE_SNAP;
use crate::format::names::{GLOBAL_SNAPREALM, SYSTEM_END};
use crate::format::{SnapInfo, SnapMutation, SnapRealm};

/// A change of snapshots that is not safe yet.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SnapChange {
    pub seq: u64,
    /// The folder, and its realm as clients know it.
    pub ino: Ino,
    pub before: Option<SnapRealm>,
    pub newest_before: SnapId,
    /// A snapshot that is made.
    pub made: Option<SnapId>,
    op: SnapOp,
}

/// Bytes of what is said with a snapshot besides its name.
const MAX_METADATA: usize = 65_536;
/// Entries of a listing's part at most.
const MAX_ENTRIES: usize = 1_024;
/// About the bytes of an entry of a listing.
const ENTRY_BYTES: usize = 500;
/// Nobody. Source: mds_snap_max_uid.
const NOBODY: u32 = u32::MAX;

/// What a client says with a snapshot. Old ones send something else there. Source: SnapPayload.
fn metadata(data: &Bytes) -> BTreeMap<Bytes, Bytes> {
    let mut r = Reader::new(data.clone());
    match r.envelope("SnapPayload", 1, |r, _| Decode::decode(r)) {
        Ok(metadata) if data.len() <= MAX_METADATA => metadata,
        _ => BTreeMap::new(),
    }
}

impl Server {
    /// The folder whose snapshots a request is about, and a snapshot's name.
    fn snap_path(&mut self, path: &FilePath) -> Run<(Ino, FileName)> {
        if path.base != Ino::ROOT && path.base < SYSTEM_END {
            return Err(Errno::EPERM.into());
        }
        self.ensure_inode(path.base)?;
        if !self.cache.get(path.base).is_some_and(|i| i.is_dir()) {
            return Err(Errno::ENOTDIR.into());
        }
        let at = path.path.iter().rposition(|b| *b == b'/').map_or(0, |at| at + 1);
        Ok((path.base, path.path.slice(at..)))
    }

    fn has_snap(&self, dir: Ino, name: &[u8]) -> Option<SnapId> {
        let realm = self.realm(dir, View::Now)?;
        realm.snaps.iter().find(|(_, info)| info.name == name).map(|(snap, _)| *snap)
    }

    fn is_good_snap_name(name: &[u8]) -> bool {
        !name.is_empty() && !name.starts_with(b"_") && !name.contains(&0)
    }

    /// The folder's snapshots may be changed now.
    fn free_snaps(&mut self, request: &mut Request, dir: Ino) -> Run<()> {
        if request.msg.caller_uid == NOBODY {
            return Err(Errno::EPERM.into());
        }
        self.check(request, dir, WRITE | SNAPSHOT)?;
        self.wait_for_snaps()?;
        self.need(request, &[(dir, Part::File, Mode::Write)])
    }

    /// A change of snapshots that is not safe comes first.
    pub(crate) fn wait_for_snaps(&self) -> Run<()> {
        match &self.snap_change {
            Some(pending) => Err(Stop::Wait(Wait::Safe(pending.seq))),
            None => Ok(()),
        }
    }

    pub(crate) fn op_mksnap(&mut self, request: &mut Request) -> Run<Done> {
        if !self.map.has_flag(maps::mds_flags::ALLOW_SNAPS) {
            return Err(Errno::EPERM.into());
        }
        let (dir, name) = self.snap_path(&request.msg.path.clone())?;
        self.free_snaps(request, dir)?;
        if self.subvolume_of(dir).is_some_and(|at| at != dir) {
            return Err(Errno::EPERM.into());
        }
        let has_realm = self.realm(dir, View::Now).is_some();
        if has_realm && self.snaps_of(dir, View::Now).all.len() >= self.settings.max_snaps_per_dir {
            return Err(Errno::EMLINK.into());
        }
        if self.has_snap(dir, &name).is_some() {
            return Err(Errno::EEXIST.into());
        }
        if name.len() > MAX_NAME {
            return Err(Errno::ENAMETOOLONG.into());
        }
        if !Self::is_good_snap_name(&name) {
            return Err(Errno::EINVAL.into());
        }
        // What changed below is in the folder's sums when the snapshot is taken.
        self.sum_all();
        let stamp = self.change_of(request, "mksnap").stamp;
        let (tid, snap) = self.create_snap(dir, &name, self.now.wall);
        let metadata = metadata(&request.msg.data);
        let info = SnapInfo { snap, ino: dir, stamp, name, metadata };
        let op = if has_realm { SnapOp::CREATE } else { SnapOp::SPLIT };
        let seq = self.change_snaps(request, "mksnap", tid, (dir, op, Some(snap)), 1, |realm| {
            realm.snaps.insert(snap, info);
            (realm.created, realm.seq, realm.last_created) = (snap, snap, snap);
        });
        Ok(Done { target: Some(dir), snap, seq: Some(seq), is_late: true, ..Done::default() })
    }

    pub(crate) fn op_rmsnap(&mut self, request: &mut Request) -> Run<Done> {
        let (dir, name) = self.snap_path(&request.msg.path.clone())?;
        if !Self::is_good_snap_name(&name) {
            return Err(Errno::EINVAL.into());
        }
        self.has_snap(dir, &name).ok_or(Stop::Fail(Errno::ENOENT))?;
        self.free_snaps(request, dir)?;
        let snap = self.has_snap(dir, &name).ok_or(Stop::Fail(Errno::ENOENT))?;
        let (tid, seq) = self.prepare_snaps(&SnapMutation::Destroy { ino: dir, snap });
        let seq = self.change_snaps(request, "rmsnap", tid, (dir, SnapOp::DESTROY, None), -1, |realm| {
            realm.snaps.remove(&snap);
            (realm.seq, realm.last_destroyed) = (seq, seq);
        });
        Ok(Done { seq: Some(seq), is_late: true, ..Done::default() })
    }

    pub(crate) fn op_renamesnap(&mut self, request: &mut Request) -> Run<Done> {
        let (to, from) = (request.msg.path.clone(), request.msg.path2.clone());
        if to.base != from.base {
            return Err(Errno::EINVAL.into());
        }
        let (dir, name) = self.snap_path(&to)?;
        let (_, old) = self.snap_path(&from)?;
        let check = |s: &Self| {
            if !Self::is_good_snap_name(&old) {
                return Err(Errno::EINVAL);
            }
            let snap = s.has_snap(dir, &old).ok_or(Errno::ENOENT)?;
            if !Self::is_good_snap_name(&name) {
                return Err(Errno::EINVAL);
            }
            if name.len() > MAX_NAME {
                return Err(Errno::ENAMETOOLONG);
            }
            if s.has_snap(dir, &name).is_some() { Err(Errno::EEXIST) } else { Ok(snap) }
        };
        check(self)?;
        self.free_snaps(request, dir)?;
        let snap = check(self)?;
        let stamp = types::Utime::ZERO;
        let mutation = SnapMutation::Update { ino: dir, snap, name: name.clone(), stamp };
        let (tid, _) = self.prepare_snaps(&mutation);
        let seq = self.change_snaps(request, "renamesnap", tid, (dir, SnapOp::UPDATE, None), 0, |realm| {
            if let Some(info) = realm.snaps.get_mut(&snap) {
                info.name = name;
            }
        });
        Ok(Done { target: Some(dir), snap, seq: Some(seq), is_late: true, ..Done::default() })
    }

    /// Changes a folder's realm with the table's change `tid`: the folder, what clients hear, and the
    /// snapshot that is made.
    fn change_snaps(
        &mut self,
        request: &Request,
        what: &'static str,
        tid: u64,
        (dir, op, made): (Ino, SnapOp, Option<SnapId>),
        count: i64,
        set: impl FnOnce(&mut SnapRealm),
    ) -> u64 {
        let mut change = self.change_of(request, what);
        let (stamp, newest_before) = (change.stamp, self.newest_snap(View::Now));
        self.cow(dir);
        let mut realm = self.realm_or_new(dir, newest_before);
        set(&mut realm);
        let mut before = None;
        if let Some(inode) = self.cache.get_mut(dir) {
            before = inode.store.realm.replace(realm);
            let i = &mut inode.store.inode;
            i.ctime = i.ctime.max(stamp);
            i.rstat.rctime = i.rstat.rctime.max(stamp);
            i.rstat.rsnaps = i.rstat.rsnaps.saturating_add(count);
        }
        change.blob.table_tids.push((TABLE_SNAP, tid));
        change.holds(dir, Part::File, Mode::Write);
        self.touch_inode(&mut change, dir);
        let seq = self.commit_request(request, change, Ino(0));
        self.note_rstat(dir);
        self.commit_snaps(tid);
        self.snap_change = Some(SnapChange { seq, ino: dir, before, newest_before, made, op });
        self.when_safe(seq, Then::Snaps);
        seq
    }

    /// A change of snapshots is safe: clients hear of it.
    pub(crate) fn snaps_changed(&mut self) {
        let Some(change) = self.snap_change.take() else { return };
        let op = if change.op == SnapOp::DESTROY { SnapOp::DESTROY } else { SnapOp::UPDATE };
        self.tell_global(op);
        let inside = self.caps_inside(change.ino, true);
        if let Some(snap) = change.made {
            for (client, inos) in &inside {
                inos.iter().for_each(|ino| self.note_owed(*client, *ino, snap));
            }
        }
        self.tell_realm(change.ino, change.op);
        if change.op == SnapOp::DESTROY {
            self.look_at_strays();
        }
    }

    /// Every client hears of the realm above all.
    fn tell_global(&mut self, op: SnapOp) {
        let clients: Vec<GlobalId> =
            self.sessions.keys().copied().filter(|c| self.is_session_open(*c)).collect();
        let trace = self.global_trace();
        for client in clients {
            let m =
                MClientSnap { op, split: GLOBAL_SNAPREALM, trace: trace.clone(), ..MClientSnap::default() };
            self.push(client, 0, m.into());
        }
    }

    /// Capabilities of what is in a realm or in one below; with `global` also of what is in the one above
    /// all.
    fn caps_inside(&self, realm: Ino, global: bool) -> BTreeMap<GlobalId, Vec<Ino>> {
        let mut inside = BTreeMap::new();
        let is_in = |ino: Ino| {
            let chain = self.realms_above(ino, View::Told);
            chain.contains(&realm) || global && chain.last() == Some(&GLOBAL_SNAPREALM)
        };
        if self.cache.get(realm).is_some_and(|i| !i.is_dir()) && !global {
            let holders = self.cache.get(realm).into_iter().flat_map(|i| i.caps.keys());
            return holders.map(|client| (*client, vec![realm])).collect();
        }
        let mut known: BTreeMap<Ino, bool> = BTreeMap::new();
        for (client, session) in &self.sessions {
            let of = session.caps.iter().copied();
            let inos: Vec<Ino> = of.filter(|ino| *known.entry(*ino).or_insert_with(|| is_in(*ino))).collect();
            if !inos.is_empty() {
                inside.insert(*client, inos);
            }
        }
        inside
    }

    /// Clients that have something in a realm hear of it; after a split also what is in it now. Source:
    /// MDCache::do_realm_invalidate_and_update_notify.
    pub(crate) fn tell_realm(&mut self, realm: Ino, op: SnapOp) {
        if self.realm(realm, View::Told).is_none() {
            return;
        }
        let trace = self.snap_trace(realm);
        for (client, inos) in self.caps_inside(realm, false) {
            let m = MClientSnap { op, split: realm, trace: trace.clone(), ..MClientSnap::default() };
            let m = if op == SnapOp::SPLIT { self.with_split(m, &inos) } else { m };
            self.push(client, 0, m.into());
        }
    }

    fn with_split(&self, m: MClientSnap, inos: &[Ino]) -> MClientSnap {
        let (mut split_inos, mut realms) = (Vec::new(), BTreeSet::new());
        for ino in inos {
            let chain = self.realms_above(*ino, View::Told);
            match chain.iter().position(|at| *at == m.split) {
                Some(0) => split_inos.push(ino.0),
                Some(at) => realms.extend(at.checked_sub(1).and_then(|at| chain.get(at)).map(|r| r.0)),
                None => {}
            }
        }
        MClientSnap { split_inos, split_realms: realms.into_iter().collect(), ..m }
    }

    /// What a client has after a failover is in these realms, whatever it believes. Source:
    /// MDCache::finish_snaprealm_reconnect, open_snaprealms.
    pub(crate) fn tell_realms_anew(&mut self) {
        for (client, realms) in std::mem::take(&mut self.recon.realms_due) {
            for (split, split_inos) in realms {
                let op = if split_inos.is_empty() { SnapOp::UPDATE } else { SnapOp::SPLIT };
                let trace = self.snap_trace(split);
                let m = MClientSnap { op, split, split_inos, split_realms: Vec::new(), trace };
                self.push(client, 0, m.into());
            }
        }
    }

    pub(crate) fn op_lssnap(&mut self, request: &mut Request) -> Run<Done> {
        let (dir, _) = self.snap_path(&request.msg.path.clone())?;
        self.check(request, dir, READ)?;
        let RequestArgs::Readdir(args) = request.msg.args else { return Err(Errno::EINVAL.into()) };
        let after = request.msg.path2.path.clone();
        let last = if after.is_empty() { None } else { self.resolve_snap(dir, &after) };
        let oldest = self.cache.get(dir).map_or(SnapId(0), |i| i.oldest());
        let max =
            if args.max_entries == 0 { MAX_ENTRIES } else { args.max_entries as usize }.min(MAX_ENTRIES);
        let mut left = if args.max_bytes == 0 { usize::MAX } else { args.max_bytes as usize };
        let (mut entries, mut is_end) = (Vec::new(), true);
        for (snap, info) in self.snap_infos(dir, oldest) {
            if last.is_some_and(|last| snap <= last) {
                continue;
            }
            let name = snap_name(info, dir);
            let Some(inode) = self.stat_at(dir, snap) else { continue };
            let size = ENTRY_BYTES + name.len() + inode.xattrs.len();
            if entries.len() >= max || size > left && !entries.is_empty() {
                is_end = false;
                break;
            }
            left = left.saturating_sub(size);
            entries.push(DirEntry { name, lease: Self::lease_at(), inode });
        }
        let mut flags = if is_end { ReaddirReply::END } else { 0 };
        if is_end && last.is_none() {
            flags |= ReaddirReply::COMPLETE;
        }
        let frag = DirStat { frag: Frag::ROOT, auth: self.rank, ..DirStat::default() };
        let extra = ReaddirReply { frag, flags, entries }.to_bytes();
        Ok(Done { target: Some(dir), extra, ..Done::default() })
    }
}

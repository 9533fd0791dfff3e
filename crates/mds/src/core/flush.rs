//! What clients say of their capabilities: kept, wanted, changed.
//!
//! A change that a client made under its capability is taken if it held that one, whoever asks for it; it is
//! acknowledged when it is safe.
//!
//! Source: Locker::handle_client_caps, _do_cap_update, _update_cap_fields, process_request_cap_release.

use codec::Decode;
use messages::fs::{CapDrop, CapOp, Caps, FileLocks, MClientCaps, decode_xattrs};
use types::{GlobalId, Ino, SnapId};

use super::access::{Asked, WRITE};
use super::cache::{FILE, TYPE};
use super::cap::is_earlier;
use super::change::Change;
use super::hold::{Mode, Part};
use super::realm::View;
use super::reconnect::Later;
use super::server::{Server, Then};
use crate::format::{Inode as Stored, MetaReqId, Xattrs};

impl Server {
    /// Whether words about capabilities are understood yet.
    pub(crate) fn takes_caps(&self) -> bool {
        self.is_serving() || self.state == maps::MdsState::CLIENT_REPLAY
    }

    pub(crate) fn on_caps(&mut self, client: GlobalId, tid: u64, mut m: MClientCaps) {
        let Some(session) = self.sessions.get(&client).filter(|s| s.is_usable()) else { return };
        let is_done = tid > 0 && session.info.completed_flushes.contains(&tid);
        if !self.takes_caps() {
            // What was changed before a snapshot does not say that anything is now.
            if tid > 0 && !is_done && self.recon.is_open && m.op != CapOp::FLUSHSNAP {
                let claims = self.recon.dirty.entry((client, m.ino)).or_default();
                *claims |= writable(m.dirty);
            }
            if self.recon.later.len() < super::reconnect::MAX_LATER {
                self.recon.later.push((client, Later::Caps(tid, Box::new(m))));
            }
            return;
        }
        self.raise_barrier(m.osd_epoch_barrier);
        if is_done {
            self.tell_flushed(client, tid, &m, self.last_seq);
            if m.op == CapOp::FLUSHSNAP {
                return;
            }
            m.dirty = Caps::NONE;
        }
        if m.oldest_flush_tid > 0 {
            if let Some(session) = self.sessions.get_mut(&client) {
                session.info.completed_flushes =
                    session.info.completed_flushes.split_off(&m.oldest_flush_tid);
            }
        }
        if self.state == maps::MdsState::CLIENT_REPLAY && self.cache.get(m.ino).is_none() {
            // A request that is done again may make it.
            return self.recon.later.push((client, Later::Caps(tid, Box::new(m))));
        }
        let Some(cap) = self.cache.get(m.ino).and_then(|i| i.caps.get(&client)) else { return };
        if is_earlier(m.migrate_seq, cap.mseq) {
            return;
        }
        if m.op == CapOp::FLUSHSNAP {
            return self.flush_snap(client, tid, &m);
        }
        if cap.id != m.cap_id {
            return;
        }
        self.take_caps(client, tid, &m);
    }

    fn take_caps(&mut self, client: GlobalId, tid: u64, m: &MClientCaps) {
        let ino = m.ino;
        let Some(cap) = self.cache.get_mut(ino).and_then(|i| i.caps.get_mut(&client)) else { return };
        // Only what it held can have been changed under it.
        let claimed = self.recon.dirty.remove(&(client, ino)).unwrap_or(Caps::NONE);
        let dirty = m.dirty & (writable(cap.issued()) | claimed);
        let kept = m.caps & cap.issued();
        cap.confirm(m.seq, kept);
        if m.wanted != cap.wanted {
            // What it wants by requests that crossed this message counts until it has seen their answers.
            match m.issue_seq == cap.last_issue {
                true => cap.wanted = m.wanted,
                false => cap.wanted |= m.wanted,
            }
        }
        self.take_locks(client, m);
        self.end_owed(client, m);
        self.update_by_caps(client, tid, m, dirty);
        // Room that is there already: a former server did not come to tell of it.
        let told = self.cache.get(ino).and_then(|i| i.caps.get(&client)).map_or(0, |c| c.told_max_size);
        if m.max_size > told {
            self.tell_max_size(ino);
        }
        self.cap_changed(ino);
    }

    /// Locks that a client has, told in its first word after a move. Those of others are not its to tell.
    fn take_locks(&mut self, client: GlobalId, m: &MClientCaps) {
        if m.flock.is_empty() {
            return;
        }
        let Ok(locks) = FileLocks::from_bytes(m.flock.clone()) else { return };
        self.claim_locks(client, m.ino, &locks);
    }

    fn update_by_caps(&mut self, client: GlobalId, tid: u64, m: &MClientCaps, dirty: Caps) {
        let ino = m.ino;
        let asked = Asked {
            uid: m.caller_uid,
            gid: m.caller_gid,
            gids: &[],
            mask: WRITE,
            new_uid: u32::MAX,
            new_gid: u32::MAX,
        };
        let new_max = self.wanted_room(client, m);
        let may = self.check_inode(client, ino, &asked).is_ok();
        let changes = may && (!dirty.is_empty() || new_max.is_some());
        if !changes {
            if !m.dirty.is_empty() {
                self.tell_flushed(client, tid, m, self.last_seq);
            }
            return;
        }
        let num = i64::try_from(client.0).unwrap_or(i64::MAX);
        let req = MetaReqId { name: types::EntityName::client(num), tid };
        let mut change = Change::new("cap update", self.now.wall);
        change.by = client;
        let newest = self.newest_snap(View::Now);
        let follows = if m.snap_follows > 0 { SnapId(m.snap_follows).min(newest) } else { newest };
        self.cow_to(ino, follows);
        let (max_file_size, max_xattrs) = (self.map.max_file_size, self.settings.max_xattr_bytes);
        let fields = Fields { m, dirty, max_file_size, max_xattrs };
        self.take_fields(&mut change, &fields);
        self.update_past(&mut change, &fields, follows);
        if let Some(size) = new_max {
            self.set_ranges(&mut change, ino, size);
        } else if self.has_idle_range(client, ino) {
            self.set_ranges(&mut change, ino, 0);
        }
        self.touch_inode(&mut change, ino);
        if !m.dirty.is_empty() && m.oldest_flush_tid > 0 {
            change.blob.client_flushes.push((req, m.oldest_flush_tid));
        }
        let seq = self.commit(change);
        self.note_rstat(ino);
        if !m.dirty.is_empty() {
            self.note_flush(client, tid, m, seq);
            self.tell_flushed(client, tid, m, seq);
        }
        if new_max.is_some() {
            self.when_safe(seq, Then::MaxSize(ino));
        }
    }

    /// For which size a writer wants room, if it has too little.
    fn wanted_room(&self, client: GlobalId, m: &MClientCaps) -> Option<u64> {
        let inode = self.cache.get(m.ino).filter(|i| i.is_file() && !i.needs_recover)?;
        let cap = inode.caps.get(&client)?;
        if !(cap.issued() | cap.wanted).intersects(Caps::ANY_FILE_WR) {
            return None;
        }
        let room = inode.store.inode.client_ranges.get(&client).map_or(0, |r| r.last);
        if m.max_size > room {
            return (m.max_size <= self.map.max_file_size).then_some(m.max_size);
        }
        let size = m.size.max(inode.store.inode.size);
        (self.max_size_for(m.ino, size) > room && size.saturating_mul(2) > room).then_some(size)
    }

    /// A client that does not write any more has room to.
    fn has_idle_range(&self, client: GlobalId, ino: Ino) -> bool {
        let Some(inode) = self.cache.get(ino) else { return false };
        let is_writer = |c: &super::cap::Cap| (c.issued() | c.wanted).intersects(Caps::ANY_FILE_WR);
        inode.store.inode.client_ranges.contains_key(&client)
            && !inode.caps.get(&client).is_some_and(is_writer)
    }

    pub(crate) fn tell_flushed(&mut self, client: GlobalId, tid: u64, m: &MClientCaps, seq: u64) {
        let is_snap = m.op == CapOp::FLUSHSNAP;
        let ack = MClientCaps {
            op: if is_snap { CapOp::FLUSHSNAP_ACK } else { CapOp::FLUSH_ACK },
            ino: m.ino,
            cap_id: if is_snap { 0 } else { m.cap_id },
            seq: if is_snap { 0 } else { m.seq },
            caps: if is_snap { Caps::NONE } else { m.caps },
            dirty: m.dirty,
            snap_follows: m.snap_follows,
            oldest_flush_tid: m.oldest_flush_tid,
            osd_epoch_barrier: self.barrier,
            inline_version: messages::fs::InodeStat::INLINE_NONE,
            nfiles: -1,
            nsubdirs: -1,
            ..MClientCaps::default()
        };
        let ack = Then::Tell { client, tid, msg: Box::new(ack).into(), is_push: true };
        match m.flags & MClientCaps::SYNC {
            0 => self.when_safe_at_last(seq, ack),
            _ => self.when_safe(seq, ack),
        }
    }

    /// What a client changed is in the inode; others see it when it is safe.
    pub(crate) fn take_fields(&mut self, change: &mut Change, fields: &Fields) {
        let (ino, dirty) = (fields.m.ino, fields.dirty);
        if dirty.is_empty() {
            return;
        }
        let Some(inode) = self.cache.get_mut(ino) else { return };
        let has_xattrs = fields.put(&mut inode.store.inode, &mut inode.store.xattrs);
        if dirty.intersects(Caps::FILE_EXCL | Caps::FILE_WR) {
            change.parts.push((ino, Part::File, Mode::Write));
        }
        if dirty.contains(Caps::AUTH_EXCL) {
            change.parts.push((ino, Part::Auth, Mode::Write));
        }
        if has_xattrs {
            change.parts.push((ino, Part::Xattr, Mode::Write));
        }
    }

    /// A capability or a lease that a client gives up with a request.
    pub(crate) fn on_drop(&mut self, client: GlobalId, drop: &CapDrop) {
        if !drop.name.is_empty() {
            self.drop_lease(client, drop.ino, &drop.name, Some(drop.lease_seq));
        }
        let Some(cap) = self.cache.get_mut(drop.ino).and_then(|i| i.caps.get_mut(&client)) else { return };
        if cap.id != drop.cap_id || is_earlier(drop.migrate_seq, cap.mseq) {
            return;
        }
        let kept = drop.caps & cap.issued();
        cap.confirm(drop.seq, kept);
        if drop.issue_seq == cap.last_issue {
            cap.wanted = drop.wanted;
        }
        self.cap_changed(drop.ino);
    }

    /// A client claims locks that it holds.
    pub(crate) fn claim_locks(&mut self, client: GlobalId, ino: Ino, locks: &FileLocks) {
        let Some(inode) = self.cache.get_mut(ino) else { return };
        let table = inode.locks.get_or_insert_default();
        for (held, claimed) in [(&mut table.fcntl, &locks.fcntl), (&mut table.flock, &locks.flock)] {
            for lock in claimed {
                held.add(&messages::fs::FileLock { client: client.0, ..*lock });
            }
        }
        if table.is_empty() {
            inode.locks = None;
        }
    }
}

/// What a client has changed of an inode.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fields<'a> {
    pub m: &'a MClientCaps,
    pub dirty: Caps,
    pub max_file_size: u64,
    pub max_xattrs: usize,
}

impl Fields<'_> {
    /// Puts it in. Whether that has changed extended attributes.
    pub fn put(&self, i: &mut Stored, xattrs: &mut Xattrs) -> bool {
        let (m, dirty) = (self.m, self.dirty);
        if dirty.is_empty() {
            return false;
        }
        i.ctime = i.ctime.max(m.ctime);
        i.rstat.rctime = i.rstat.rctime.max(m.ctime);
        i.change_attr = i.change_attr.max(m.change_attr);
        if dirty.intersects(Caps::FILE_EXCL | Caps::FILE_WR) {
            if dirty.contains(Caps::FILE_EXCL) || m.mtime > i.mtime {
                i.mtime = m.mtime;
                i.rstat.rctime = i.rstat.rctime.max(m.mtime);
            }
            // A truncation that the client has not heard of made its size void. With a snapshot's size
            // libcephfs tells none.
            let is_current = m.op == CapOp::FLUSHSNAP || m.truncate_seq >= i.truncate_seq;
            let is_file = i.mode & TYPE == FILE;
            if is_file && m.size > i.size && m.size <= self.max_file_size && is_current {
                i.size = m.size;
                i.rstat.rbytes = i64::try_from(m.size).unwrap_or(i64::MAX);
            }
            if dirty.contains(Caps::FILE_EXCL) {
                i.atime = m.atime;
                if is_earlier(i.time_warp_seq, m.time_warp_seq) {
                    i.time_warp_seq = m.time_warp_seq;
                }
            }
        }
        if dirty.contains(Caps::AUTH_EXCL) {
            (i.uid, i.gid) = (m.uid, m.gid);
            i.mode = i.mode & TYPE | m.mode & 0o7777;
            i.btime = m.btime;
        }
        let is_newer = m.xattr_version > i.xattr_version && !m.xattrs.is_empty();
        if !dirty.contains(Caps::XATTR_EXCL) || !is_newer || m.xattrs.len() > self.max_xattrs {
            return false;
        }
        let Ok(new) = decode_xattrs(&m.xattrs) else { return false };
        *xattrs = new;
        i.xattr_version = m.xattr_version;
        true
    }
}

/// What may be changed under these capabilities.
pub(crate) fn writable(issued: Caps) -> Caps {
    issued & (Caps::ANY_EXCL | Caps::FILE_WR | Caps::FILE_BUFFER)
}

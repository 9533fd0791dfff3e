//! Giving and taking back: every inode that something happened to is looked at, and clients hear what they
//! may have of it now.
//!
//! Source: Locker::eval, Locker::issue_caps, Locker::check_inode_max_size, Locker::share_inode_max_size.

use messages::fs::{CapItem, CapOp, Caps, MClientCapRelease, MClientCaps};
use types::{GlobalId, Ino, SnapId};

use super::cap::Cap;
use super::change::Change;
use super::hold::{self, Sum, allowed, grantable, liked};
use super::request::Wait;
use super::server::{Server, Then};
use crate::format::ClientRange;

impl Server {
    /// Takes back what clients may not have any more, and gives what they want and may have.
    pub(crate) fn look_at(&mut self, ino: Ino) {
        let Some(inode) = self.cache.get(ino) else { return };
        let clients: Vec<GlobalId> = inode.caps.keys().copied().collect();
        let mut sum = self.sum_caps(ino);
        for client in clients {
            if self.look_at_cap(client, ino, &sum) {
                sum = self.sum_caps(ino);
            }
        }
        self.look_at_ranges(ino);
        self.recover_file(ino);
        if let Some(inode) = self.cache.get(ino) {
            if inode.caps.is_empty() && self.cache.is_stray(ino) {
                self.look_at_stray(ino);
            }
        }
    }

    fn sum_caps(&self, ino: Ino) -> Sum {
        let is_stale = |c: GlobalId| self.is_stale(c);
        self.cache.get(ino).map_or_else(Sum::default, |inode| Sum::of(inode, &is_stale))
    }

    /// Whether the client has something else than before.
    fn look_at_cap(&mut self, client: GlobalId, ino: Ino, sum: &Sum) -> bool {
        let is_told = self.sessions.get(&client).is_some_and(|s| s.conn.is_some());
        let is_stale = self.is_stale(client);
        let now = self.now.mono;
        let Some(inode) = self.cache.inodes.get_mut(&ino) else { return false };
        let may = allowed(inode, client, sum);
        let can = grantable(inode, client, sum);
        let likes = liked(inode);
        let Some(cap) = inode.caps.get_mut(&client) else { return false };
        let pending = cap.pending();
        let too_much = pending.without(may | Caps::PIN);
        let missing = (cap.wanted & can).without(pending);
        if is_stale || too_much.is_empty() && missing.is_empty() {
            return false;
        }
        let before = pending;
        if too_much.is_empty() {
            cap.issue(pending | (cap.wanted | likes) & can, now);
        } else {
            cap.issue(pending & (may | Caps::PIN), now);
        }
        hold::assert_coherent_if_few(inode);
        if is_told {
            let is_less = inode.caps.get(&client).is_some_and(|c| !before.without(c.pending()).is_empty());
            self.tell_cap(client, ino, if is_less { CapOp::REVOKE } else { CapOp::GRANT });
        }
        true
    }

    /// The state of a client's capability, with the attributes that it covers.
    pub(crate) fn tell_cap(&mut self, client: GlobalId, ino: Ino, op: CapOp) {
        let realm = self.realm_of(ino);
        let barrier = self.barrier;
        let Some(inode) = self.cache.get_mut(ino) else { return };
        let Some(cap) = inode.caps.get(&client) else { return };
        let mut m = cap_message(inode, cap);
        (m.op, m.realm, m.osd_epoch_barrier) = (op, realm, barrier);
        let range = inode.store.inode.client_ranges.get(&client).map_or(0, |r| r.last);
        m.max_size = inode.safe_ranges.get(&client).copied().unwrap_or(0).min(range);
        let version = inode.store.inode.xattr_version;
        let xattrs = super::reply::xattr_blob(inode);
        if let Some(cap) = inode.caps.get_mut(&client) {
            cap.told_max_size = m.max_size;
            if cap.pending().intersects(Caps::XATTR_SHARED) && cap.xattr_version < version {
                cap.xattr_version = version;
                (m.xattr_version, m.xattrs) = (version, xattrs);
            }
        }
        self.push(client, 0, Box::new(m).into());
    }

    /// Writers have room to make a file longer; others have none. The room is in the journal before a client
    /// hears of it.
    pub(crate) fn look_at_ranges(&mut self, ino: Ino) {
        let Some(inode) = self.cache.get(ino).filter(|i| i.is_file()) else { return };
        let i = &inode.store.inode;
        let is_writer = |cap: &Cap| (cap.issued() | cap.wanted).intersects(Caps::ANY_FILE_WR);
        let lacks = inode.caps.iter().any(|(c, cap)| is_writer(cap) && !i.client_ranges.contains_key(c));
        let has_gone = i.client_ranges.keys().any(|c| !inode.caps.get(c).is_some_and(is_writer));
        if !lacks && !has_gone || inode.needs_recover {
            return;
        }
        let size = i.size;
        let mut change = Change::new("check_inode_max_size", self.now.wall);
        self.set_ranges(&mut change, ino, size);
        let seq = self.commit(change);
        match lacks {
            true => self.when_safe(seq, Then::MaxSize(ino)),
            false => self.when_safe_at_last(seq, Then::MaxSize(ino)),
        }
    }

    pub(crate) fn commit_ranges(&mut self, change: Change, ino: Ino) {
        let seq = self.commit(change);
        self.when_safe(seq, Then::MaxSize(ino));
    }

    /// Room for all that write, for a file of this size.
    pub(crate) fn set_ranges(&mut self, change: &mut Change, ino: Ino, size: u64) {
        let last = self.max_size_for(ino, size);
        self.cow(ino);
        let Some(inode) = self.cache.get_mut(ino) else { return };
        let is_writer = |cap: &Cap| (cap.issued() | cap.wanted).intersects(Caps::ANY_FILE_WR);
        let writers: Vec<GlobalId> =
            inode.caps.iter().filter(|(_, c)| is_writer(c)).map(|(c, _)| *c).collect();
        let follows = SnapId(inode.first.0.saturating_sub(1));
        let ranges = &mut inode.store.inode.client_ranges;
        ranges.retain(|c, _| writers.contains(c));
        for client in writers {
            let range = ranges.entry(client).or_insert(ClientRange { first: 0, last: 0, follows });
            range.last = range.last.max(last);
        }
        let highest = ranges.values().map(|r| r.last).max().unwrap_or(0);
        inode.store.inode.max_size_ever = inode.store.inode.max_size_ever.max(highest);
        self.touch_inode(change, ino);
    }

    /// Source: Locker::calc_new_max_size.
    pub(crate) fn max_size_for(&self, ino: Ino, size: u64) -> u64 {
        let Some(inode) = self.cache.get(ino) else { return 0 };
        let layout = &inode.store.inode.layout;
        let step = u64::from(layout.object_size) * u64::from(layout.stripe_count.max(1));
        if step == 0 {
            return 0;
        }
        let most = self.settings.range_objects.saturating_mul(layout.object_size.into());
        let want = size.saturating_add(1).saturating_mul(2).min(size.saturating_add(most));
        let rounded = want.div_ceil(step).saturating_mul(step);
        rounded.min(self.map.max_file_size.max(size))
    }

    /// Writers hear how far they may write by now.
    pub(crate) fn tell_max_size(&mut self, ino: Ino) {
        let Some(inode) = self.cache.get(ino) else { return };
        let told = |client: &GlobalId, cap: &Cap| {
            let range = inode.safe_ranges.get(client).copied().unwrap_or(0);
            cap.pending().intersects(Caps::FILE_WR | Caps::FILE_BUFFER) && range > cap.told_max_size
        };
        let clients: Vec<GlobalId> =
            inode.caps.iter().filter(|(c, cap)| told(c, cap)).map(|(c, _)| *c).collect();
        for client in clients {
            if self.is_stale(client) {
                continue;
            }
            if let Some(cap) = self.cache.get_mut(ino).and_then(|i| i.caps.get_mut(&client)) {
                cap.last_sent = cap.last_sent.wrapping_add(1);
            }
            self.tell_cap(client, ino, CapOp::GRANT);
        }
    }

    /// A client has given something back: whoever waits for it goes on.
    pub(crate) fn cap_changed(&mut self, ino: Ino) {
        self.stirred.insert(ino);
        self.wake(&Wait::Inode(ino));
    }

    /// The client has nothing of the inode any more.
    pub(crate) fn remove_cap(&mut self, client: GlobalId, ino: Ino) {
        if let Some(inode) = self.cache.get_mut(ino) {
            inode.caps.remove(&client);
        }
        if let Some(session) = self.sessions.get_mut(&client) {
            session.caps.remove(&ino);
        }
        self.cap_changed(ino);
    }

    /// Source: Locker::handle_client_cap_release.
    pub(crate) fn on_cap_release(&mut self, client: GlobalId, m: &MClientCapRelease) {
        if !self.takes_caps() {
            return self.recon.later.push((client, super::reconnect::Later::Release(m.clone())));
        }
        self.raise_barrier(m.osd_epoch_barrier);
        for item in &m.caps {
            self.on_release(client, item);
        }
    }

    fn on_release(&mut self, client: GlobalId, item: &CapItem) {
        let Some(cap) = self.cache.get_mut(item.ino).and_then(|i| i.caps.get_mut(&client)) else { return };
        if cap.id != item.cap_id || super::cap::is_earlier(item.migrate_seq, cap.mseq) {
            return;
        }
        if item.seq != cap.last_issue {
            // Something was given since: it stays.
            cap.forget_revokes(item.seq);
            return self.cap_changed(item.ino);
        }
        self.remove_cap(client, item.ino);
    }

    pub(crate) fn raise_barrier(&mut self, epoch: types::Epoch) {
        if epoch > self.barrier {
            self.barrier = epoch;
        }
        if epoch > self.osd.epoch {
            self.out.push(super::io::Effect::NeedOsdMap(epoch));
        }
    }
}

/// Source: CInode::encode_cap_message.
fn cap_message(inode: &super::cache::Inode, cap: &Cap) -> MClientCaps {
    let i = &inode.store.inode;
    MClientCaps {
        ino: i.ino,
        cap_id: cap.id,
        seq: cap.last_sent,
        issue_seq: cap.last_issue,
        caps: cap.pending(),
        wanted: cap.wanted,
        migrate_seq: cap.mseq,
        uid: i.uid,
        gid: i.gid,
        mode: i.mode,
        nlink: u32::try_from(i.nlink).unwrap_or(0),
        size: i.size,
        truncate_size: i.truncate_size,
        truncate_seq: i.truncate_seq,
        mtime: i.mtime,
        atime: i.atime,
        ctime: i.ctime,
        btime: i.btime,
        layout: i.layout.clone(),
        time_warp_seq: i.time_warp_seq,
        change_attr: i.change_attr,
        nfiles: i.dirstat.files,
        nsubdirs: i.dirstat.subdirs,
        inline_version: i.inline_version,
        inline_data: i.inline_data.clone(),
        ..MClientCaps::default()
    }
}

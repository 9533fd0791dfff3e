//! What is said of a capability: what is kept, wanted and dirty, with the attributes.
//!
//! Source: Client::send_cap, send_flush_snap.

use maps::Rank;
use messages::fs::{CapOp, Caps, InodeStat, MClientCaps, encode_xattrs};
use types::Ino;

use crate::core::Client;
use crate::inode::{CapSnap, Inode};
use crate::io::Node;

/// Attributes of an inode, or of what it was.
fn attributes(m: &mut MClientCaps, stat: &InodeStat) {
    (m.uid, m.gid, m.mode, m.nlink) = (stat.uid, stat.gid, stat.mode, stat.nlink);
    (m.size, m.max_size) = (stat.size, stat.max_size);
    (m.truncate_seq, m.truncate_size) = (stat.truncate_seq, stat.truncate_size);
    (m.mtime, m.atime, m.ctime, m.btime) = (stat.mtime, stat.atime, stat.ctime, stat.btime);
    (m.time_warp_seq, m.change_attr) = (stat.time_warp_seq, stat.change_attr);
    m.inline_version = stat.inline_version;
}

impl Client {
    fn new_message(&self, node: Node, rank: Rank, op: CapOp) -> MClientCaps {
        MClientCaps {
            op,
            ino: node.ino,
            realm: Ino(0),
            caller_uid: self.settings.uid,
            caller_gid: self.settings.gid,
            osd_epoch_barrier: self.osd_barrier,
            oldest_flush_tid: self.sessions.get(&rank).and_then(|s| s.flushes.first().copied()).unwrap_or(0),
            nfiles: -1,
            nsubdirs: -1,
            inline_version: InodeStat::INLINE_NONE,
            ..MClientCaps::default()
        }
    }

    /// `flush`: the flush's number, and what is dirty.
    pub(crate) fn send_cap(
        &mut self,
        node: Node,
        rank: Rank,
        used: Caps,
        wanted: Caps,
        retain: Caps,
        flush: Option<(u64, Caps)>,
    ) {
        let mut m = self.new_message(node, rank, CapOp::UPDATE);
        let follows = if flush.is_some() { self.snap_context(node).seq } else { 0 };
        let Some(inode) = self.inodes.get_mut(&node) else { return };
        let is_auth = inode.auth == Some(rank);
        let (wanted_max, stat) = (inode.wanted_max, &inode.stat);
        attributes(&mut m, stat);
        if inode.cap_snaps.values().any(|s| s.flush_tid == 0) {
            m.flags |= MClientCaps::PENDING_CAPSNAP;
        }
        inode.reported_size = inode.stat.size;
        let Some(cap) = inode.caps.get_mut(&rank) else { return };
        let revoking = cap.implemented.without(cap.issued);
        cap.issued &= retain.without(revoking);
        cap.implemented &= cap.issued | used;
        cap.wanted = wanted;
        (m.cap_id, m.seq, m.issue_seq, m.migrate_seq) = (cap.id, cap.seq, cap.issue_seq, cap.migrate_seq);
        (m.caps, m.wanted) = (cap.implemented, wanted);
        m.snap_follows = follows;
        let (tid, dirty) = flush.unwrap_or_default();
        m.dirty = dirty;
        if !dirty.is_empty() && !revoking.is_empty() {
            // Somebody waits for it. Without this word ceph-mds writes its journal at its next tick, which is
            // up to five seconds later. Source: Locker::handle_client_caps.
            m.flags |= MClientCaps::SYNC;
        }
        if is_auth {
            if wanted.intersects(Caps::ANY_FILE_WR) {
                m.max_size = wanted_max;
                inode.requested_max = wanted_max;
            } else {
                inode.requested_max = 0;
            }
        }
        if dirty.intersects(Caps::XATTR_EXCL) {
            m.xattrs = encode_xattrs(&inode.xattrs);
            m.xattr_version = inode.stat.xattr_version;
        }
        self.send(rank, tid, m.into());
    }

    pub(crate) fn send_snap_flush(&mut self, node: Node, follows: u64, snap: &CapSnap) {
        let Some(inode) = self.inodes.get(&node) else { return };
        let Some((rank, cap)) = inode.auth.and_then(|r| Some((r, inode.caps.get(&r)?.clone()))) else {
            return;
        };
        let xattrs = xattrs_of(inode, snap);
        let mut m = self.new_message(node, rank, CapOp::FLUSHSNAP);
        attributes(&mut m, &snap.stat);
        (m.cap_id, m.migrate_seq, m.max_size) = (cap.id, cap.migrate_seq, 0);
        (m.caps, m.dirty, m.snap_follows) = (snap.issued, snap.dirty, follows);
        m.xattr_version = snap.stat.xattr_version;
        m.xattrs = xattrs;
        self.send(rank, snap.flush_tid, m.into());
    }
}

/// They are changed by requests only, so those of now are those of then, unless a newer version came.
fn xattrs_of(inode: &Inode, snap: &CapSnap) -> bytes::Bytes {
    let is_same = inode.stat.xattr_version == snap.stat.xattr_version;
    if is_same && snap.dirty.intersects(Caps::XATTR_EXCL) {
        return encode_xattrs(&inode.xattrs);
    }
    bytes::Bytes::new()
}

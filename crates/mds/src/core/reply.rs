//! What replies show: folder, name and inode with the capabilities that come with them, leases on names,
//! realms.
//!
//! Source: Server::set_trace_dist, CInode::encode_inodestat, CDir::encode_dirstat,
//! Locker::issue_client_lease.

use bytes::Bytes;
use codec::Encode;
use messages::fs::{
    Caps, DirStat, InodeStat, LeaseStat, MClientReply, ReplyCap, Trace, TraceDentry, encode_xattrs,
};
use types::{GlobalId, Ino, SnapId, Utime};

use super::cache::{Inode, Key, Lease, Target};
use super::cap::Cap;
use super::hold::{self, Sum, grantable, liked};
use super::past::Version;
use super::request::Done;
use super::server::Server;
use crate::format::{DirFrag, names};

impl Server {
    pub(crate) fn trace(&mut self, client: GlobalId, done: &Done, reply: &mut MClientReply) {
        if done.snap != SnapId::HEAD {
            return self.trace_at(done, reply);
        }
        let shown = done.target.or(done.dentry.as_ref().map(|(frag, _)| frag.ino));
        if let Some(ino) = shown {
            reply.snaps = self.snap_trace(ino).to_bytes();
        }
        let dentry = done.dentry.as_ref().and_then(|(frag, key)| {
            let dir = self.inode_stat(client, frag.ino, Caps::NONE)?;
            let lease = self.lend(client, *frag, key);
            let frag = DirStat { frag: frag.frag, auth: self.rank, ..DirStat::default() };
            Some(TraceDentry { dir, frag, name: key.name.clone(), lease })
        });
        let target = done.target.and_then(|ino| self.inode_stat(client, ino, done.mask));
        reply.set_trace(&Trace { dentry, target });
    }

    /// The same at a snapshot, of which there is nothing to be given back.
    fn trace_at(&self, done: &Done, reply: &mut MClientReply) {
        let dentry = done.dentry.as_ref().and_then(|(frag, key)| {
            let dir = self.stat_at(frag.ino, done.snap)?;
            let frag = DirStat { frag: frag.frag, auth: self.rank, ..DirStat::default() };
            Some(TraceDentry { dir, frag, name: key.name.clone(), lease: Self::lease_at() })
        });
        let target = done.target.and_then(|ino| self.stat_at(ino, done.snap));
        reply.set_trace(&Trace { dentry, target });
    }

    /// A client may take the name for granted, unless the folder's capability says so already.
    pub(crate) fn lend(&mut self, client: GlobalId, frag: DirFrag, key: &Key) -> LeaseStat {
        let until = self.now.mono + self.settings.lease;
        let duration = u32::try_from(self.settings.lease.as_millis()).unwrap_or(u32::MAX);
        let is_covered = self
            .cache
            .get(frag.ino)
            .and_then(|i| i.caps.get(&client))
            .is_some_and(|c| c.pending().intersects(Caps::FILE_SHARED | Caps::FILE_EXCL));
        let is_own = names::stray_owner(frag.ino).is_some() || names::mdsdir_owner(frag.ino).is_some();
        let is_stale = self.is_stale(client);
        let is_awaited = self.waits.contains_key(&super::request::Wait::Lease(frag, key.clone()));
        let Some(dentry) = self.cache.dentry_mut(frag, key) else { return LeaseStat::default() };
        let mut mask = match dentry.target {
            Target::Primary(_) => LeaseStat::PRIMARY_LINK,
            Target::Remote { .. } | Target::Null => 0,
        };
        let alternate_name = dentry.alternate_name.clone();
        if is_covered || is_own || is_stale || is_awaited || dentry.leases.len() >= MAX_LEASES {
            return LeaseStat { mask, alternate_name, ..LeaseStat::default() };
        }
        mask |= LeaseStat::VALID;
        let lease = dentry.leases.entry(client).or_insert(Lease { seq: 0, until, is_revoked: false });
        lease.seq = lease.seq.wrapping_add(1);
        (lease.until, lease.is_revoked) = (until, false);
        LeaseStat { mask, duration_ms: duration, seq: lease.seq, alternate_name }
    }

    /// An inode as a client sees it; it gets a capability of it.
    pub(crate) fn inode_stat(&mut self, client: GlobalId, ino: Ino, mask: Caps) -> Option<InodeStat> {
        let cap = self.give(client, ino);
        let realm = self.realm_of(ino);
        let inode = self.cache.get_mut(ino)?;
        let mut stat = attributes(inode);
        stat.max_size = inode
            .safe_ranges
            .get(&client)
            .copied()
            .unwrap_or(0)
            .min(inode.store.inode.client_ranges.get(&client).map_or(0, |r| r.last));
        let version = inode.store.inode.xattr_version;
        let held = inode.caps.get(&client).map_or(Caps::NONE, Cap::pending);
        let knows = inode.caps.get(&client).map_or(0, |c| c.xattr_version);
        let wants = mask.intersects(Caps::XATTR_SHARED);
        if (wants || knows < version || cap.is_none()) && (wants || held.intersects(Caps::XATTR_SHARED)) {
            stat.xattr_version = version;
            stat.xattrs = xattr_blob(inode);
            if let Some(cap) = inode.caps.get_mut(&client) {
                cap.xattr_version = version;
            }
        }
        let max_size = stat.max_size;
        if let Some(cap) = inode.caps.get_mut(&client) {
            cap.told_max_size = max_size;
        }
        stat.cap = match cap {
            Some(cap) => ReplyCap { realm, ..cap },
            None => ReplyCap { flags: ReplyCap::AUTH, ..ReplyCap::default() },
        };
        Some(stat)
    }

    /// Gives a client what it may have of an inode now. `None`: nothing, for its session is in doubt.
    fn give(&mut self, client: GlobalId, ino: Ino) -> Option<ReplyCap> {
        if self.is_stale(client) || !self.is_session_open(client) {
            return None;
        }
        let is_new = self.cache.get(ino).is_some_and(|i| !i.caps.contains_key(&client));
        if is_new {
            self.last_cap += 1;
            let id = self.last_cap;
            self.cache.get_mut(ino)?.caps.insert(client, Cap::new(id));
            self.sessions.get_mut(&client)?.caps.insert(ino);
            self.stirred.insert(ino);
        }
        let sessions = &self.sessions;
        let is_stale = |c: GlobalId| sessions.get(&c).is_none_or(|s| s.is_stale());
        let inode = self.cache.inodes.get_mut(&ino)?;
        let wanted = inode.caps.get(&client)?.wanted;
        let caps = (wanted | liked(inode)) & grantable(inode, client, &Sum::of(inode, &is_stale));
        let cap = inode.caps.get_mut(&client)?;
        // What is being taken back is not given again in passing: the client's answer would be about both.
        cap.issue_more(caps.without(cap.revoking()) | Caps::PIN);
        hold::assert_coherent_if_few(inode);
        let cap = inode.caps.get(&client)?;
        Some(ReplyCap {
            caps: cap.pending(),
            wanted: cap.wanted,
            cap_id: cap.id,
            seq: cap.last_sent,
            migrate_seq: cap.mseq,
            realm: Ino::ROOT,
            flags: ReplyCap::AUTH,
        })
    }

    pub(crate) fn is_stale(&self, client: GlobalId) -> bool {
        self.sessions.get(&client).is_none_or(|s| s.is_stale())
    }
}

/// Clients that have a lease on one name.
const MAX_LEASES: usize = 64;

pub(crate) fn xattr_blob(inode: &Inode) -> Bytes {
    encode_xattrs(&inode.store.xattrs)
}

/// Twice the version that is safe, and one more if there is a later one: so the version of a change that is
/// lost is not the one of what comes in its place.
fn shown_version(inode: &Inode) -> u64 {
    match inode.unsafe_until {
        0 => inode.store.inode.version.saturating_mul(2),
        _ => inode.safe_version.saturating_mul(2).saturating_add(1),
    }
}

pub(crate) fn attributes(inode: &Inode) -> InodeStat {
    let store = &inode.store;
    let (xattrs, symlink) = (&store.xattrs, &store.symlink);
    let version = Version { inode: &store.inode, xattrs, symlink, frag_tree: Some(&store.frag_tree) };
    InodeStat { version: shown_version(inode), ..attributes_of(&version) }
}

/// Attributes of an inode as it is, or was.
pub(crate) fn attributes_of(version: &Version) -> InodeStat {
    let i = version.inode;
    let unsigned = |n: i64| u64::try_from(n).unwrap_or(0);
    InodeStat {
        ino: i.ino,
        snap: SnapId::HEAD,
        rdev: i.rdev,
        version: i.version.saturating_mul(2),
        layout: i.layout.clone(),
        ctime: i.ctime,
        mtime: i.mtime,
        atime: i.atime,
        time_warp_seq: i.time_warp_seq,
        size: i.size,
        truncate_size: i.truncate_size,
        truncate_seq: i.truncate_seq,
        mode: i.mode,
        uid: i.uid,
        gid: i.gid,
        nlink: u32::try_from(i.nlink).unwrap_or(0),
        nfiles: unsigned(i.dirstat.files),
        nsubdirs: unsigned(i.dirstat.subdirs),
        rbytes: unsigned(i.rstat.rbytes),
        rfiles: unsigned(i.rstat.rfiles),
        rsubdirs: unsigned(i.rstat.rsubdirs),
        rctime: i.rstat.rctime,
        frag_tree: version.frag_tree.cloned().unwrap_or_default(),
        symlink: version.symlink.clone(),
        dir_hash: i.dir_hash,
        inline_version: i.inline_version,
        inline_data: i.inline_data.clone(),
        quota: i.quota,
        btime: i.btime,
        change_attr: i.change_attr,
        dir_pin: i.export_pin,
        snap_btime: Utime::ZERO,
        rsnaps: unsigned(i.rstat.rsnaps),
        ..InodeStat::default()
    }
}

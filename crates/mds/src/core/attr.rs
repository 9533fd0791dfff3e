//! Requests that change attributes: owner, permissions, times, size, extended attributes, layouts, quotas,
//! pins.
//!
//! Source: Server::handle_client_setattr, handle_client_setxattr, handle_client_removexattr,
//! handle_set_vxattr, handle_remove_vxattr, handle_client_setlayout, handle_client_setdirlayout.

use messages::fs::{FileLayout, FileName, RequestArgs, SetAttr};
use types::{Errno, Ino};

use super::access::{Asked, CHGRP, CHOWN, SET_VXATTR, WRITE};
use super::cache::{FILE, TYPE};
use super::change::Change;
use super::hold::{Mode, Part};
use super::mirror::MIRROR_INFO;
use super::path::Walked;
use super::request::{Done, Request, Run, Stop};
use super::server::{Server, Then};
use crate::format::names;

/// A client's own attributes that only it understands. Those of the server have names that begin with
/// `ceph.`.
const SERVER_XATTRS: &[u8] = b"ceph.";
/// Bytes of an extended attribute's name. Source: XATTR_NAME_MAX.
const MAX_XATTR_NAME: usize = 255;

impl Server {
    /// The inode that a request changes: one of a client, and not of the server.
    fn changeable(&mut self, request: &Request) -> Run<Ino> {
        let path = request.msg.path.clone();
        let Walked { ino, .. } = self.walk_to_head(request, &path)?;
        if ino != Ino::ROOT && ino < names::SYSTEM_END {
            return Err(Errno::EPERM.into());
        }
        Ok(ino)
    }

    pub(crate) fn op_setattr(&mut self, request: &mut Request) -> Run<Done> {
        let RequestArgs::SetAttr(set) = request.msg.args else { return Err(Errno::EINVAL.into()) };
        let ino = self.changeable(request)?;
        let mask = set.mask;
        let auth = SetAttr::MODE | SetAttr::UID | SetAttr::GID | SetAttr::BTIME | SetAttr::KILL_SGUID;
        let mut needs = Vec::new();
        if mask & auth != 0 {
            needs.push((ino, Part::Auth, Mode::Write));
        }
        if mask & (SetAttr::MTIME | SetAttr::ATIME | SetAttr::SIZE) != 0 {
            needs.push((ino, Part::File, Mode::Write));
        }
        self.check_setattr(request, ino, &set)?;
        self.need(request, &needs)?;
        self.check_setattr(request, ino, &set)?;
        let old_size = self.cache.get(ino).map_or(0, |i| i.store.inode.size).max(set.old_size);
        let cuts = mask & SetAttr::SIZE != 0 && set.size < old_size;
        if mask & SetAttr::SIZE != 0 {
            self.check_size(ino, set.size, old_size)?;
        }

        let mut change = self.change_of(request, "setattr");
        self.cow(ino);
        self.set_fields(&mut change, ino, &set);
        if mask & SetAttr::SIZE != 0 {
            self.set_size(&mut change, ino, set.size, old_size);
        }
        needs.iter().for_each(|(ino, part, mode)| change.holds(*ino, *part, *mode));
        self.touch_inode(&mut change, ino);
        let seq = self.commit_request(request, change, Ino(0));
        self.note_rstat(ino);
        if cuts {
            self.when_safe(seq, Then::Truncate(ino));
        }
        if mask & SetAttr::SIZE != 0 {
            self.when_safe(seq, Then::MaxSize(ino));
        }
        Ok(Done { target: Some(ino), seq: Some(seq), ..Done::default() })
    }

    fn check_setattr(&self, request: &Request, ino: Ino, set: &SetAttr) -> Run<()> {
        let inode = self.cache.get(ino).ok_or(Stop::Fail(Errno::ESTALE))?;
        let i = &inode.store.inode;
        let mut access = WRITE;
        if set.mask & SetAttr::UID != 0 && i.uid != set.uid {
            access |= CHOWN;
        }
        if set.mask & SetAttr::GID != 0 && i.gid != set.gid {
            access |= CHGRP;
        }
        let asked = Asked {
            uid: request.msg.caller_uid,
            gid: request.msg.caller_gid,
            gids: &request.msg.gids,
            mask: access,
            new_uid: set.uid,
            new_gid: set.gid,
        };
        Ok(self.check_inode(request.client, ino, &asked)?)
    }

    fn check_size(&mut self, ino: Ino, size: u64, old_size: u64) -> Run<()> {
        let is_file = self.cache.get(ino).is_some_and(|i| i.is_file());
        if !is_file {
            let is_dir = self.cache.get(ino).is_some_and(|i| i.is_dir());
            return Err(if is_dir { Errno::EISDIR } else { Errno::EINVAL }.into());
        }
        if size > self.map.max_file_size {
            return Err(Errno::EFBIG.into());
        }
        if size < old_size {
            self.free_to_cut(ino)?;
        }
        Ok(())
    }

    fn set_fields(&mut self, change: &mut Change, ino: Ino, set: &SetAttr) {
        let stamp = change.stamp;
        let Some(inode) = self.cache.get_mut(ino) else { return };
        let i = &mut inode.store.inode;
        let has = |bit: u32| set.mask & bit != 0;
        if has(SetAttr::UID) {
            i.uid = set.uid;
        }
        if has(SetAttr::GID) {
            i.gid = set.gid;
        }
        let is_program = i.mode & TYPE == FILE && i.mode & 0o111 != 0;
        if has(SetAttr::MODE) {
            i.mode = i.mode & !0o7777 | set.mode & 0o7777;
        } else if has(SetAttr::UID | SetAttr::GID | SetAttr::KILL_SGUID) && is_program {
            i.mode &= !0o6000;
        }
        if has(SetAttr::MTIME) {
            i.mtime = set.mtime;
        }
        if has(SetAttr::ATIME) {
            i.atime = set.atime;
        }
        if has(SetAttr::BTIME) {
            i.btime = set.btime;
        }
        if has(SetAttr::ATIME | SetAttr::MTIME | SetAttr::BTIME) {
            i.time_warp_seq = i.time_warp_seq.wrapping_add(1);
        }
        i.ctime = stamp;
        i.rstat.rctime = i.rstat.rctime.max(stamp);
        i.change_attr = i.change_attr.saturating_add(1);
    }

    fn set_size(&mut self, change: &mut Change, ino: Ino, size: u64, old_size: u64) {
        let stamp = change.stamp;
        if size < old_size {
            self.cut(change, ino, old_size, size);
        } else if let Some(inode) = self.cache.get_mut(ino) {
            inode.store.inode.size = size;
            inode.store.inode.rstat.rbytes = i64::try_from(size).unwrap_or(i64::MAX);
        }
        if let Some(inode) = self.cache.get_mut(ino) {
            inode.store.inode.mtime = stamp;
        }
        self.set_ranges(change, ino, size);
    }

    /// A file becomes shorter: its objects are cut when the event is safe. Source: inode_t::truncate.
    pub(crate) fn cut(&mut self, change: &mut Change, ino: Ino, from: u64, size: u64) {
        let seq = self.last_seq + 1;
        let Some(inode) = self.cache.get_mut(ino) else { return };
        let i = &mut inode.store.inode;
        i.truncate_from = from;
        i.size = size;
        i.rstat.rbytes = i64::try_from(size).unwrap_or(i64::MAX);
        i.truncate_size = size;
        i.truncate_seq = i.truncate_seq.wrapping_add(1);
        i.truncate_pending += 1;
        change.blob.truncate_start.push(ino);
        self.mark_dirty(super::server::Dirty::Truncate(ino), seq);
    }

    pub(crate) fn op_setxattr(&mut self, request: &mut Request) -> Run<Done> {
        let name = request.msg.path2.path.clone();
        let RequestArgs::SetXattr { flags, .. } = request.msg.args else { return Err(Errno::EINVAL.into()) };
        let ino = self.changeable(request)?;
        if name == MIRROR_INFO {
            let value = request.msg.data.clone();
            let removes = flags & RequestArgs::XATTR_REMOVE != 0;
            return self.change_mirror_info(request, ino, (!removes).then_some(value));
        }
        if name.starts_with(SERVER_XATTRS) {
            return self.set_vxattr(request, ino, &name);
        }
        self.check(request, ino, WRITE)?;
        self.need(request, &[(ino, Part::Xattr, Mode::Write)])?;
        let inode = self.cache.get(ino).ok_or(Stop::Fail(Errno::ESTALE))?;
        let xattrs = &inode.store.xattrs;
        let has = xattrs.contains_key(&name);
        if name.len() > MAX_XATTR_NAME || name.is_empty() {
            return Err(Errno::ERANGE.into());
        }
        check_flags(flags, has)?;
        let removes = flags & RequestArgs::XATTR_REMOVE != 0;
        let others =
            xattrs.iter().filter(|(k, _)| **k != name).map(|(k, v)| k.len() + v.len()).sum::<usize>();
        if !removes && others + name.len() + request.msg.data.len() > self.settings.max_xattr_bytes {
            return Err(Errno::ENOSPC.into());
        }
        let value = (!removes).then(|| request.msg.data.clone());
        self.change_xattrs(request, ino, "setxattr", vec![(name, value)])
    }

    /// Attributes get these values, or go.
    pub(crate) fn change_xattrs(
        &mut self,
        request: &Request,
        ino: Ino,
        what: &'static str,
        changes: Vec<(FileName, Option<bytes::Bytes>)>,
    ) -> Run<Done> {
        let mut change = self.change_of(request, what);
        let stamp = change.stamp;
        self.cow(ino);
        if let Some(inode) = self.cache.get_mut(ino) {
            for (name, value) in changes {
                match value {
                    Some(value) => drop(inode.store.xattrs.insert(name, value)),
                    None => drop(inode.store.xattrs.remove(&name)),
                }
            }
            inode.store.inode.xattr_version = inode.store.inode.xattr_version.saturating_add(1);
        }
        change.holds(ino, Part::Xattr, Mode::Write);
        self.stamp(&mut change, ino, stamp);
        let seq = self.commit_request(request, change, Ino(0));
        self.note_rstat(ino);
        Ok(Done { target: Some(ino), seq: Some(seq), ..Done::default() })
    }

    /// The inode changed at this time.
    fn stamp(&mut self, change: &mut Change, ino: Ino, stamp: types::Utime) {
        if let Some(inode) = self.cache.get_mut(ino) {
            let i = &mut inode.store.inode;
            i.ctime = i.ctime.max(stamp);
            i.rstat.rctime = i.rstat.rctime.max(stamp);
            i.change_attr = i.change_attr.saturating_add(1);
        }
        self.touch_inode(change, ino);
    }

    pub(crate) fn op_rmxattr(&mut self, request: &mut Request) -> Run<Done> {
        let name = request.msg.path2.path.clone();
        let ino = self.changeable(request)?;
        if name == MIRROR_INFO {
            return self.change_mirror_info(request, ino, None);
        }
        if name.starts_with(SERVER_XATTRS) {
            return self.remove_vxattr(request, ino, &name);
        }
        self.check(request, ino, WRITE)?;
        self.need(request, &[(ino, Part::Xattr, Mode::Write)])?;
        let inode = self.cache.get(ino).ok_or(Stop::Fail(Errno::ESTALE))?;
        if !inode.store.xattrs.contains_key(&name) {
            return Err(Errno::ENODATA.into());
        }
        self.change_xattrs(request, ino, "removexattr", vec![(name, None)])
    }

    pub(crate) fn op_setlayout(&mut self, request: &mut Request) -> Run<Done> {
        let RequestArgs::Layout(asked) = request.msg.args.clone() else { return Err(Errno::EINVAL.into()) };
        let ino = self.changeable(request)?;
        let inode = self.cache.get(ino).ok_or(Stop::Fail(Errno::ESTALE))?;
        if !inode.is_file() {
            return Err(Errno::EINVAL.into());
        }
        let layout = merged(&inode.store.inode.layout, &asked);
        self.set_file_layout(request, ino, layout, "setlayout")
    }

    pub(crate) fn op_setdirlayout(&mut self, request: &mut Request) -> Run<Done> {
        let RequestArgs::Layout(asked) = request.msg.args.clone() else { return Err(Errno::EINVAL.into()) };
        let ino = self.changeable(request)?;
        if !self.cache.get(ino).is_some_and(|i| i.is_dir()) {
            return Err(Errno::ENOTDIR.into());
        }
        let layout = merged(&self.layout_in(ino), &asked);
        self.set_dir_layout(request, ino, layout, "setlayout")
    }

    pub(crate) fn set_file_layout(
        &mut self,
        request: &mut Request,
        ino: Ino,
        layout: FileLayout,
        what: &'static str,
    ) -> Run<Done> {
        self.check(request, ino, WRITE | SET_VXATTR)?;
        self.check_layout(&layout)?;
        self.need(request, &[(ino, Part::File, Mode::Write)])?;
        let inode = self.cache.get(ino).ok_or(Stop::Fail(Errno::ESTALE))?;
        let i = &inode.store.inode;
        if i.size > 0 || i.truncate_seq > 1 || inode.needs_recover {
            return Err(Errno::ENOTEMPTY.into());
        }
        let mut change = self.change_of(request, what);
        let stamp = change.stamp;
        self.cow(ino);
        if let Some(inode) = self.cache.get_mut(ino) {
            let i = &mut inode.store.inode;
            let old = std::mem::replace(&mut i.layout, layout);
            if old.pool != i.layout.pool {
                i.old_pools.insert(old.pool);
                i.old_pools.remove(&i.layout.pool);
            }
        }
        change.holds(ino, Part::File, Mode::Write);
        self.stamp(&mut change, ino, stamp);
        self.backtrace_due(ino);
        let seq = self.commit_request(request, change, Ino(0));
        self.note_rstat(ino);
        Ok(Done { target: Some(ino), seq: Some(seq), ..Done::default() })
    }

    pub(crate) fn set_dir_layout(
        &mut self,
        request: &mut Request,
        ino: Ino,
        layout: FileLayout,
        what: &'static str,
    ) -> Run<Done> {
        self.check(request, ino, WRITE | SET_VXATTR)?;
        self.check_layout(&layout)?;
        self.change_policy(request, ino, what, |inode| inode.store.inode.layout = layout)
    }

    /// Layout, quota or pin of a folder: the answer waits until it is safe, for clients act on it.
    pub(crate) fn change_policy(
        &mut self,
        request: &mut Request,
        ino: Ino,
        what: &'static str,
        set: impl FnOnce(&mut super::cache::Inode),
    ) -> Run<Done> {
        self.need(request, &[(ino, Part::File, Mode::Write)])?;
        let mut change = self.change_of(request, what);
        let stamp = change.stamp;
        self.cow(ino);
        if let Some(inode) = self.cache.get_mut(ino) {
            set(inode);
        }
        change.holds(ino, Part::File, Mode::Write);
        self.stamp(&mut change, ino, stamp);
        let seq = self.commit_request(request, change, Ino(0));
        self.note_rstat(ino);
        Ok(Done { target: Some(ino), seq: Some(seq), is_late: true, ..Done::default() })
    }
}

/// Whether an attribute that is there (`has`) may be set. Source: Server::xattr_validate.
pub(crate) fn check_flags(flags: u32, has: bool) -> Run<()> {
    if flags & RequestArgs::XATTR_CREATE != 0 && has {
        return Err(Errno::EEXIST.into());
    }
    if flags & RequestArgs::XATTR_REPLACE != 0 && !has {
        return Err(Errno::ENODATA.into());
    }
    Ok(())
}

/// Fields that are 0 stay as they are. Source: Server::handle_client_setlayout.
fn merged(old: &FileLayout, asked: &FileLayout) -> FileLayout {
    let or = |new: u32, old: u32| if new == 0 { old } else { new };
    FileLayout {
        stripe_unit: or(asked.stripe_unit, old.stripe_unit),
        stripe_count: or(asked.stripe_count, old.stripe_count),
        object_size: or(asked.object_size, old.object_size),
        pool: if asked.pool.0 > 0 { asked.pool } else { old.pool },
        pool_ns: old.pool_ns.clone(),
    }
}

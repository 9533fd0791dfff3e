//! Extended attributes, and what a file system tells and takes by their names: layouts, quotas, recursive
//! statistics.
//!
//! Source: Client::_getxattr, _setxattr, and the tables of vxattrs in src/client/Client.cc.

use bytes::Bytes;
use codec::Reader;
use messages::fs::{Caps, FileLayout, FileName, FilePath, FsOp, InodeStat, RequestArgs};
use types::{Errno, Ino};

use crate::call::{Event, Step};
use crate::core::Client;
use crate::inode::Inode;
use crate::io::{Answer, Node, Ticket};
use crate::request::Ask;

/// Names that files may have attributes of.
const KINDS: [&[u8]; 5] = [b"user.", b"security.", b"trusted.", b"system.", b"ceph."];
/// Bytes of a value that is sent. Source: XATTR_SIZE_MAX of Linux.
const MAX_VALUE: usize = 64 << 10;

/// What the server tells: layouts with names of pools and where they come from, and ephemeral pins.
const SERVER_S: [&[u8]; 4] =
    [b"ceph.dir.layout.json", b"ceph.file.layout.json", b"ceph.dir.pin.random", b"ceph.dir.pin.distributed"];

/// A part of a layout, by the end of its name.
fn layout_part(part: &[u8], layout: &FileLayout) -> Option<String> {
    if layout.pool.0 < 0 {
        return None;
    }
    Some(match part {
        b"stripe_unit" => layout.stripe_unit.to_string(),
        b"stripe_count" => layout.stripe_count.to_string(),
        b"object_size" => layout.object_size.to_string(),
        b"pool" | b"pool_id" => layout.pool.to_string(),
        b"pool_namespace" if !layout.pool_ns.is_empty() => layout.pool_ns.clone(),
        _ => return None,
    })
}

/// A whole layout, with the pool's number, for names of pools are not known here. A folder without one of its
/// own has none.
fn layout_text(layout: &FileLayout) -> Option<String> {
    if layout.pool.0 < 0 {
        return None;
    }
    let (unit, count, size) = (layout.stripe_unit, layout.stripe_count, layout.object_size);
    let mut text = format!("stripe_unit={unit} stripe_count={count} object_size={size} pool={}", layout.pool);
    if !layout.pool_ns.is_empty() {
        text = format!("{text} pool_namespace={}", layout.pool_ns);
    }
    Some(text)
}

/// What an inode tells of itself.
fn of_inode(name: &[u8], stat: &InodeStat) -> Option<String> {
    let quota = stat.quota;
    Some(match name {
        b"ceph.dir.entries" => stat.nfiles.saturating_add(stat.nsubdirs).to_string(),
        b"ceph.dir.files" => stat.nfiles.to_string(),
        b"ceph.dir.subdirs" => stat.nsubdirs.to_string(),
        b"ceph.dir.rentries" => stat.rfiles.saturating_add(stat.rsubdirs).to_string(),
        b"ceph.dir.rfiles" => stat.rfiles.to_string(),
        b"ceph.dir.rsubdirs" => stat.rsubdirs.to_string(),
        b"ceph.dir.rsnaps" => stat.rsnaps.to_string(),
        b"ceph.dir.rbytes" => stat.rbytes.to_string(),
        b"ceph.dir.pin" => stat.dir_pin.to_string(),
        b"ceph.dir.rctime" => format!("{}.{:09}", stat.rctime.sec, stat.rctime.nsec),
        b"ceph.quota" if quota.is_enabled() => {
            format!("max_bytes={} max_files={}", quota.max_bytes, quota.max_files)
        }
        b"ceph.quota.max_bytes" if quota.max_bytes > 0 => quota.max_bytes.to_string(),
        b"ceph.quota.max_files" if quota.max_files > 0 => quota.max_files.to_string(),
        _ => return None,
    })
}

/// When a snapshot was taken.
const SNAP_BTIME: &[u8] = b"ceph.snap.btime";

/// Source: Client::_vxattrcb_snap_btime.
fn snap_btime(stat: &InodeStat) -> Option<String> {
    let at = stat.snap_btime;
    (!at.is_zero()).then(|| format!("{}.{:09}", at.sec, at.nsec))
}

/// The cluster and the file system that the mounted one is a mirror of. Source:
/// Client::_vxattrcb_mirror_info.
fn mirror_info(inode: &Inode) -> Option<Bytes> {
    let kept = |name: &[u8]| inode.xattrs.get(name).filter(|v| !v.is_empty());
    let cluster = kept(b"ceph.mirror.info.cluster_id")?;
    let fs = kept(b"ceph.mirror.info.fs_id")?;
    Some([b"cluster_id=", cluster.as_ref(), b" fs_id=", fs.as_ref()].concat().into())
}

fn check(name: &FileName) -> Result<(), Errno> {
    if name.contains(&0) || name.len() > 255 {
        return Err(Errno::EINVAL);
    }
    KINDS.iter().any(|kind| name.starts_with(kind)).then_some(()).ok_or(Errno::EOPNOTSUPP)
}

impl Client {
    pub(crate) fn get_xattr(&mut self, ticket: Ticket, node: Node, name: &FileName, event: Event) -> Step {
        if SERVER_S.contains(&name.as_ref()) {
            return self.get_vxattr(ticket, node, name, event);
        }
        let is_special = name.starts_with(b"ceph.");
        let mask = if is_special { Caps::ALL_SHARED | Caps::FILE_WREXTEND } else { Caps::XATTR_SHARED };
        match event {
            Event::Start => {
                check(name)?;
                if !self.covers(node, mask) {
                    self.ask_attr(ticket, node, mask)?;
                    return Ok(None);
                }
            }
            Event::Reply(reply) => reply.result?,
            Event::Retry | Event::Object(..) => return Ok(None),
        }
        let inode = self.inodes.get(&node).ok_or(Errno::ESTALE)?;
        if name.as_ref() == b"ceph.mirror.info" {
            return mirror_info(inode).map(|v| Some(Answer::Value(v))).ok_or(Errno::ENODATA);
        }
        if is_special {
            let kind: &[u8] = if inode.is_dir() { b"ceph.dir.layout" } else { b"ceph.file.layout" };
            let layout = &inode.stat.layout;
            let text = match name.strip_prefix(kind) {
                Some(b"") => layout_text(layout),
                Some(part) => part.strip_prefix(b".").and_then(|part| layout_part(part, layout)),
                None if name.as_ref() == SNAP_BTIME => snap_btime(&inode.stat),
                None if inode.is_dir() => of_inode(name, &inode.stat),
                None => None,
            };
            return Ok(Some(Answer::Value(text.ok_or(Errno::ENODATA)?.into())));
        }
        inode.xattrs.get(name).map(|v| Some(Answer::Value(v.clone()))).ok_or(Errno::ENODATA)
    }

    fn get_vxattr(&mut self, ticket: Ticket, node: Node, name: &FileName, event: Event) -> Step {
        match event {
            Event::Start => {
                let (path, path2) = (self.path(node, None)?, FilePath { base: Ino(0), path: name.clone() });
                self.ask(
                    Some(ticket),
                    Ask { op: FsOp::GETVXATTR, path, path2, about: Some(node), ..Ask::default() },
                );
                Ok(None)
            }
            Event::Reply(reply) => {
                reply.result?;
                let mut r = Reader::new(reply.extra);
                let value = r.envelope("getvxattr", 1, |r, _| r.blob()).map_err(|_| Errno::EBADMSG)?;
                Ok(Some(Answer::Value(value)))
            }
            Event::Retry | Event::Object(..) => Ok(None),
        }
    }

    pub(crate) fn set_xattr(
        &mut self,
        ticket: Ticket,
        node: Node,
        name: &FileName,
        value: &Bytes,
        flags: u32,
        event: Event,
    ) -> Step {
        if let Event::Start = event {
            if value.len() > MAX_VALUE {
                return Err(Errno::E2BIG);
            }
            let args = RequestArgs::SetXattr { flags, osdmap_epoch: 0 };
            return self.change_xattr(ticket, node, name, FsOp::SETXATTR, args, value.clone());
        }
        xattr_changed(event)
    }

    pub(crate) fn remove_xattr(&mut self, ticket: Ticket, node: Node, name: &FileName, event: Event) -> Step {
        if let Event::Start = event {
            return self.change_xattr(ticket, node, name, FsOp::RMXATTR, RequestArgs::None, Bytes::new());
        }
        xattr_changed(event)
    }

    fn change_xattr(
        &mut self,
        ticket: Ticket,
        node: Node,
        name: &FileName,
        op: FsOp,
        args: RequestArgs,
        data: Bytes,
    ) -> Step {
        check(name)?;
        if !node.is_head() {
            return Err(Errno::EROFS);
        }
        let (path, path2) = (self.path(node, None)?, FilePath { base: Ino(0), path: name.clone() });
        let (about, touches) = (Some(node), vec![node]);
        self.ask(Some(ticket), Ask { op, args, path, path2, data, about, touches, ..Ask::default() });
        Ok(None)
    }

    pub(crate) fn list_xattr(&mut self, ticket: Ticket, node: Node, event: Event) -> Step {
        match event {
            Event::Start if !self.covers(node, Caps::XATTR_SHARED) => {
                return self.ask_attr(ticket, node, Caps::XATTR_SHARED).map(|()| None);
            }
            Event::Start => {}
            Event::Reply(reply) => reply.result?,
            Event::Retry | Event::Object(..) => return Ok(None),
        }
        let inode = self.inodes.get(&node).ok_or(Errno::ESTALE)?;
        Ok(Some(Answer::Names(inode.xattrs.keys().cloned().collect())))
    }
}

fn xattr_changed(event: Event) -> Step {
    match event {
        Event::Reply(reply) => reply.result.map(|()| Some(Answer::Done)),
        _ => Ok(None),
    }
}

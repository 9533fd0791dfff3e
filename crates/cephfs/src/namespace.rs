//! Making, naming and removing: one request each.
//!
//! Source: Client::_mkdir, _mknod, _symlink, _link, _unlink, _rmdir, _rename.

use bytes::Bytes;
use messages::fs::{FileName, FilePath, FsOp, RequestArgs};
use types::{Errno, Ino};

use crate::call::{Event, Stage, Step};
use crate::core::Client;
use crate::io::{Answer, Call, Node, Ticket};
use crate::request::Ask;

const DIR: u32 = 0o040_000;
const TYPE: u32 = 0o170_000;

impl Client {
    pub(crate) fn namespace(&mut self, ticket: Ticket, call: &Call, stage: &mut Stage, event: Event) -> Step {
        match event {
            Event::Start => {
                let ask = self.plan(call)?;
                self.ask(Some(ticket), ask);
                Ok(None)
            }
            Event::Reply(reply) => {
                reply.result?;
                let (Call::Mkdir { dir, name, .. }
                | Call::Mknod { dir, name, .. }
                | Call::Symlink { dir, name, .. }
                | Call::Link { dir, name, .. }) = call
                else {
                    return Ok(Some(Answer::Done));
                };
                if reply.node.is_none() && !matches!(stage, Stage::Again) {
                    *stage = Stage::Again;
                    return self.ask_name(ticket, *dir, name).map(|()| None);
                }
                self.answer_attr(reply.node)
            }
            Event::Retry | Event::Object(..) => Ok(None),
        }
    }

    fn plan(&self, call: &Call) -> Result<Ask, Errno> {
        match call {
            Call::Mkdir { dir, name, mode } => self.plan_mkdir(*dir, name, *mode),
            Call::Rmdir { dir, name } if dir.is_snapdir() => {
                let path = self.snap_path(*dir, name)?;
                Ok(Ask {
                    op: FsOp::RMSNAP,
                    path,
                    about: Some(*dir),
                    old_name: Some((*dir, name.clone())),
                    ..Ask::default()
                })
            }
            Call::Rmdir { dir, name } => self.plan_in(FsOp::RMDIR, *dir, name, RequestArgs::None),
            Call::Unlink { dir, name } => self.plan_in(FsOp::UNLINK, *dir, name, RequestArgs::None),
            Call::Mknod { dir, name, mode, rdev } => {
                let args = RequestArgs::Mknod { mode: *mode, rdev: *rdev };
                self.plan_in(FsOp::MKNOD, *dir, name, args)
            }
            Call::Symlink { dir, name, target } => {
                if target.is_empty() || target.len() > MAX_TARGET || target.contains(&0) {
                    return Err(Errno::EINVAL);
                }
                let ask = self.plan_in(FsOp::SYMLINK, *dir, name, RequestArgs::None)?;
                Ok(Ask { path2: FilePath { base: Ino(0), path: target.clone() }, ..ask })
            }
            Call::Link { node, dir, name } => {
                if !node.is_head() {
                    return Err(Errno::EROFS);
                }
                let ask = self.plan_in(FsOp::LINK, *dir, name, RequestArgs::None)?;
                let touches = vec![*dir, *node];
                Ok(Ask { path2: FilePath { base: node.ino, path: Bytes::new() }, touches, ..ask })
            }
            Call::Rename { dir, name, to_dir, to_name } => self.plan_rename(*dir, name, *to_dir, to_name),
            _ => Err(Errno::EINVAL),
        }
    }

    /// A change of a name in a folder as it is now.
    fn plan_in(&self, op: FsOp, dir: Node, name: &FileName, args: RequestArgs) -> Result<Ask, Errno> {
        Self::check_name(name)?;
        if !dir.is_head() {
            return Err(Errno::EROFS);
        }
        let path = self.path(dir, Some(name))?;
        Ok(Ask { op, args, path, about: Some(dir), touches: vec![dir], wants_dentry: true, ..Ask::default() })
    }

    fn plan_mkdir(&self, dir: Node, name: &FileName, mode: u32) -> Result<Ask, Errno> {
        if !dir.is_snapdir() {
            return self.plan_in(FsOp::MKDIR, dir, name, RequestArgs::Mkdir { mode: mode & !TYPE | DIR });
        }
        // What a snapshot is told besides its name: an envelope with no pairs. Source: SnapPayload.
        let data = codec::Writer::collect(|w| w.envelope(1, 1, |w| w.u32(0)));
        let (path, args) = (self.snap_path(dir, name)?, RequestArgs::Mkdir { mode });
        Ok(Ask { op: FsOp::MKSNAP, args, path, data, about: Some(dir), ..Ask::default() })
    }

    fn snap_path(&self, dir: Node, name: &FileName) -> Result<FilePath, Errno> {
        Self::check_name(name)?;
        self.path(dir, Some(name))
    }

    fn plan_rename(
        &self,
        dir: Node,
        name: &FileName,
        to_dir: Node,
        to_name: &FileName,
    ) -> Result<Ask, Errno> {
        Self::check_name(name)?;
        Self::check_name(to_name)?;
        let old_name = Some((dir, name.clone()));
        if dir.is_snapdir() || to_dir.is_snapdir() {
            if dir != to_dir {
                return Err(Errno::EINVAL);
            }
            let (path, path2) = (self.path(dir, Some(to_name))?, self.path(dir, Some(name))?);
            return Ok(Ask {
                op: FsOp::RENAMESNAP,
                path,
                path2,
                about: Some(dir),
                old_name,
                ..Ask::default()
            });
        }
        if !dir.is_head() || !to_dir.is_head() {
            return Err(Errno::EROFS);
        }
        let (path, path2) = (self.path(to_dir, Some(to_name))?, self.path(dir, Some(name))?);
        let touches = vec![dir, to_dir];
        let is_same = (dir, name) == (to_dir, to_name);
        let old_name = old_name.filter(|_| !is_same);
        Ok(Ask {
            op: FsOp::RENAME,
            path,
            path2,
            about: Some(to_dir),
            touches,
            old_name,
            wants_dentry: true,
            ..Ask::default()
        })
    }
}

/// Bytes of a symbolic link's target. Source: PATH_MAX.
const MAX_TARGET: usize = 4095;

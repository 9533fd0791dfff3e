//! Opening, creating and closing files.
//!
//! Source: Client::_open, _create, _release_fh.

use messages::fs::{FileName, FsOp, InodeStat, OpenArgs, RequestArgs};
use types::Errno;

use crate::call::{Event, Stage, Step};
use crate::core::Client;
use crate::io::{Answer, Handle, Node, Ticket};
use crate::request::Ask;

#[derive(Debug, Clone, Copy)]
pub(crate) struct OpenFile {
    pub node: Node,
    pub reads: bool,
    pub writes: bool,
    /// How many of the inode's losses it was told of.
    pub heard: u64,
}

const FILE: u32 = 0o100_000;
const PERMISSIONS: u32 = 0o7777;
/// Of flags: reading, writing or both.
const MODES: u32 = 3;
/// What may be asked for; other bits are refused.
const KNOWN_FLAGS: u32 =
    OpenArgs::RDWR | OpenArgs::WRONLY | OpenArgs::CREAT | OpenArgs::EXCL | OpenArgs::TRUNC;

/// In the folder's pool.
pub(crate) fn open_args(flags: u32, mode: u32) -> RequestArgs {
    RequestArgs::Open(OpenArgs { flags, mode, pool: -1, ..OpenArgs::default() })
}

fn modes(flags: u32) -> Result<(bool, bool), Errno> {
    if flags & !KNOWN_FLAGS != 0 {
        return Err(Errno::EINVAL);
    }
    match flags & MODES {
        OpenArgs::RDONLY => Ok((true, false)),
        OpenArgs::WRONLY => Ok((false, true)),
        OpenArgs::RDWR => Ok((true, true)),
        _ => Err(Errno::EINVAL),
    }
}

impl Client {
    /// What a handle wants counts before the server is asked: its answer brings the capabilities. Gives the
    /// inode back unless it is not held.
    fn count(&mut self, node: Node, (reads, writes): (bool, bool), opens: bool) -> Option<Node> {
        let inode = self.inodes.get_mut(&node)?;
        let change = |n: u32, by: bool| match (opens, by) {
            (true, true) => n.saturating_add(1),
            (false, true) => n.saturating_sub(1),
            (_, false) => n,
        };
        inode.open_read = change(inode.open_read, reads);
        inode.open_write = change(inode.open_write, writes);
        Some(node)
    }

    /// An open that failed, or whose caller has gone, wants nothing any more.
    pub(crate) fn discount(&mut self, counted: Option<Node>, modes: (bool, bool)) {
        if let Some(node) = counted {
            self.count(node, modes, false);
            self.check_caps(node, true);
        }
    }

    /// What an open that is given up counted for.
    pub(crate) fn give_up_open(&mut self, stage: &Stage, flags: u32) {
        if let (Stage::Open(counted), Ok(modes)) = (stage, modes(flags)) {
            self.discount(*counted, modes);
        }
    }

    fn opened(&mut self, node: Node, (reads, writes): (bool, bool)) -> Step {
        let attr = self.attr(node).ok_or(Errno::EIO)?;
        let inline = self.inodes.get(&node).map_or(0, |i| i.stat.inline_version);
        let refused = if !attr.is_file() {
            Some(if attr.is_dir() { Errno::EISDIR } else { Errno::ELOOP })
        } else if inline != InodeStat::INLINE_NONE {
            Some(Errno::EOPNOTSUPP)
        } else {
            None
        };
        if let Some(errno) = refused {
            self.discount(Some(node), (reads, writes));
            return Err(errno);
        }
        self.last_handle += 1;
        let handle = Handle(self.last_handle);
        let heard = self.inodes.get(&node).map_or(0, |i| i.losses.told());
        self.handles.insert(handle, OpenFile { node, reads, writes, heard });
        Ok(Some(Answer::Opened { handle, attr: Box::new(attr) }))
    }

    pub(crate) fn open(
        &mut self,
        ticket: Ticket,
        node: Node,
        flags: u32,
        stage: &mut Stage,
        event: Event,
    ) -> Step {
        let modes = modes(flags)?;
        match event {
            Event::Start => {
                if self.handles.len() >= self.settings.max_handles {
                    return Err(Errno::ENOMEM);
                }
                if !node.is_head() {
                    return if modes.1 || flags & OpenArgs::TRUNC != 0 {
                        Err(Errno::EROFS)
                    } else {
                        self.count(node, modes, true);
                        self.opened(node, modes)
                    };
                }
                let path = self.path(node, None)?;
                *stage = Stage::Open(self.count(node, modes, true));
                let (args, touches) = (open_args(flags, 0), vec![node]);
                self.ask(
                    Some(ticket),
                    Ask { op: FsOp::OPEN, args, path, about: Some(node), touches, ..Ask::default() },
                );
                Ok(None)
            }
            Event::Reply(reply) => {
                let Stage::Open(counted) = *stage else { return Err(Errno::EIO) };
                let shown = reply.result.and_then(|()| reply.node.ok_or(Errno::EIO));
                if shown.ok() != counted {
                    self.discount(counted, modes);
                    self.count(shown?, modes, true);
                }
                self.opened(shown?, modes)
            }
            Event::Retry | Event::Object(..) => Ok(None),
        }
    }

    pub(crate) fn create(
        &mut self,
        ticket: Ticket,
        dir: Node,
        name: &FileName,
        (mode, flags): (u32, u32),
        stage: &mut Stage,
        event: Event,
    ) -> Step {
        let modes = modes(flags)?;
        match event {
            Event::Start => {
                Self::check_name(name)?;
                if !dir.is_head() {
                    return Err(Errno::EROFS);
                }
                if self.handles.len() >= self.settings.max_handles {
                    return Err(Errno::ENOMEM);
                }
                let args = open_args(flags | OpenArgs::CREAT, mode & PERMISSIONS | FILE);
                self.ask_open_name(ticket, FsOp::CREATE, dir, name, args).map(|()| None)
            }
            Event::Reply(reply) => {
                reply.result?;
                if reply.node.is_none() && !matches!(stage, Stage::Again) {
                    *stage = Stage::Again;
                    let args = open_args(flags & MODES, 0);
                    return self.ask_open_name(ticket, FsOp::OPEN, dir, name, args).map(|()| None);
                }
                let node = reply.node.ok_or(Errno::EIO)?;
                self.count(node, modes, true);
                self.opened(node, modes)
            }
            Event::Retry | Event::Object(..) => Ok(None),
        }
    }

    /// Opens a name, which may have to be made.
    fn ask_open_name(
        &mut self,
        ticket: Ticket,
        op: FsOp,
        dir: Node,
        name: &FileName,
        args: RequestArgs,
    ) -> Result<(), Errno> {
        let path = self.path(dir, Some(name))?;
        let ask = Ask { op, args, path, about: Some(dir), touches: vec![dir], ..Ask::default() };
        self.ask(Some(ticket), Ask { wants_dentry: true, ..ask });
        Ok(())
    }

    pub(crate) fn close(&mut self, handle: Handle) -> Step {
        let file = self.handles.remove(&handle).ok_or(Errno::EBADF)?;
        self.count(file.node, (file.reads, file.writes), false);
        self.check_caps(file.node, false);
        // Calls that wait with this handle end: nothing is granted for it any more.
        self.wake(file.node);
        Ok(Some(Answer::Done))
    }
}

//! Opening, creating and closing files.
//!
//! Source: Client::_open, _create, _release_fh.

use messages::fs::{FileName, FsOp, InodeStat, OpenArgs, RequestArgs};
use types::Errno;

use crate::call::{Event, Step};
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
/// What may be asked for; other bits are refused.
const KNOWN_FLAGS: u32 =
    OpenArgs::RDWR | OpenArgs::WRONLY | OpenArgs::CREAT | OpenArgs::EXCL | OpenArgs::TRUNC;

fn modes(flags: u32) -> Result<(bool, bool), Errno> {
    if flags & !KNOWN_FLAGS != 0 {
        return Err(Errno::EINVAL);
    }
    match flags & 3 {
        OpenArgs::RDONLY => Ok((true, false)),
        OpenArgs::WRONLY => Ok((false, true)),
        OpenArgs::RDWR => Ok((true, true)),
        _ => Err(Errno::EINVAL),
    }
}

impl Client {
    /// What a handle wants counts before the server is asked: its answer brings the capabilities.
    fn count(&mut self, node: Node, (reads, writes): (bool, bool), opens: bool) {
        let Some(inode) = self.inodes.get_mut(&node) else { return };
        let change = |n: u32, by: bool| match (opens, by) {
            (true, true) => n.saturating_add(1),
            (false, true) => n.saturating_sub(1),
            (_, false) => n,
        };
        inode.open_read = change(inode.open_read, reads);
        inode.open_write = change(inode.open_write, writes);
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
            self.count(node, (reads, writes), false);
            self.check_caps(node, true);
            return Err(errno);
        }
        self.last_handle += 1;
        let handle = Handle(self.last_handle);
        let heard = self.inodes.get(&node).map_or(0, |i| i.losses.told());
        self.handles.insert(handle, OpenFile { node, reads, writes, heard });
        Ok(Some(Answer::Opened { handle, attr: Box::new(attr) }))
    }

    pub(crate) fn open(&mut self, ticket: Ticket, node: Node, flags: u32, event: Event) -> Step {
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
                self.count(node, modes, true);
                let args = RequestArgs::Open(OpenArgs { flags, pool: -1, ..OpenArgs::default() });
                let touches = vec![node];
                self.ask(
                    Some(ticket),
                    Ask { op: FsOp::OPEN, args, path, about: Some(node), touches, ..Ask::default() },
                );
                Ok(None)
            }
            Event::Reply(reply) => {
                if let Err(errno) = reply.result {
                    self.count(node, modes, false);
                    self.check_caps(node, true);
                    return Err(errno);
                }
                let shown = reply.node.unwrap_or(node);
                let is_counted = self.inodes.get(&node).is_some_and(|i| i.open_read + i.open_write > 0);
                if shown != node || !is_counted {
                    // It was forgotten, or is another one.
                    self.count(node, modes, false);
                    self.count(shown, modes, true);
                }
                self.opened(shown, modes)
            }
            Event::Retry | Event::Object(..) => Ok(None),
        }
    }

    pub(crate) fn create(
        &mut self,
        ticket: Ticket,
        dir: Node,
        name: &FileName,
        mode: u32,
        flags: u32,
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
                let path = self.path(dir, Some(name))?;
                let (flags, mode) = (flags | OpenArgs::CREAT, mode & PERMISSIONS | FILE);
                let args = RequestArgs::Open(OpenArgs { flags, mode, pool: -1, ..OpenArgs::default() });
                let ask = Ask {
                    op: FsOp::CREATE,
                    args,
                    path,
                    about: Some(dir),
                    touches: vec![dir],
                    ..Ask::default()
                };
                self.ask(Some(ticket), Ask { wants_dentry: true, ..ask });
                Ok(None)
            }
            Event::Reply(reply) => {
                reply.result?;
                let node = reply.node.ok_or(Errno::EIO)?;
                self.count(node, modes, true);
                self.opened(node, modes)
            }
            Event::Retry | Event::Object(..) => Ok(None),
        }
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

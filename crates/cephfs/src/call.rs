//! Calls under way, and what each does with what happens to it.

use bytes::Bytes;
use messages::fs::{Caps, FileName};
use objecter::OpReply;
use types::Errno;

use crate::core::Client;
use crate::io::{Answer, Call, Cursor, Effect, Entry, Node, Ticket};
use crate::listing::Listing;
use crate::read::Read;
use crate::settle::Settle;
use crate::walk::Walk;
use crate::write::Write;

#[derive(Debug)]
pub(crate) struct Running {
    pub call: Call,
    pub stage: Stage,
}

/// How far a call has come.
#[derive(Debug)]
pub(crate) enum Stage {
    New,
    Walk(Walk),
    List(Listing),
    Read(Read),
    Write(Write),
    Settle(Settle),
    /// The inode that an open counts for.
    Open(Option<Node>),
    /// A success showed nothing, and what it brought is asked for.
    Again,
}

/// What happens to a call.
#[derive(Debug)]
pub(crate) enum Event {
    Start,
    Reply(Reply),
    /// What it waits for may be there.
    Retry,
    Object(usize, Result<OpReply, Errno>),
}

/// A server's answer, when its trace was taken over.
#[derive(Debug)]
pub(crate) struct Reply {
    pub result: Result<(), Errno>,
    /// The inode that it was about.
    pub node: Option<Node>,
    pub extra: Bytes,
    pub entries: Vec<Entry>,
    pub next: Option<Cursor>,
}

impl Default for Reply {
    fn default() -> Self {
        Self { result: Ok(()), node: None, extra: Bytes::new(), entries: Vec::new(), next: None }
    }
}

impl Reply {
    pub fn failed(errno: Errno) -> Self {
        Self { result: Err(errno), ..Self::default() }
    }
}

/// What a server's or an OSD's result says, which may be any number.
pub(crate) fn failure(result: i32) -> Option<Errno> {
    (result < 0).then(|| Errno(result.saturating_neg()))
}

/// `None`: it goes on when something happens.
pub(crate) type Step = Result<Option<Answer>, Errno>;

impl Client {
    pub(crate) fn run(&mut self, ticket: Ticket, event: Event) {
        let Some(mut running) = self.calls.remove(&ticket) else { return };
        let step = self.step(ticket, &mut running, event);
        match step {
            Ok(None) => drop(self.calls.insert(ticket, running)),
            Ok(Some(answer)) => self.end(ticket, Ok(answer)),
            Err(errno) => self.end(ticket, Err(errno)),
        }
    }

    fn end(&mut self, ticket: Ticket, result: Result<Answer, Errno>) {
        self.settling.remove(&ticket);
        self.timed.remove(&ticket);
        self.out.push(Effect::Done(ticket, result));
    }

    fn step(&mut self, ticket: Ticket, running: &mut Running, event: Event) -> Step {
        if self.is_unmounting && matches!(event, Event::Start) && !matches!(running.call, Call::Unmount) {
            return Err(Errno::ESHUTDOWN);
        }
        let Running { call, stage } = running;
        match call {
            Call::Mount { path } => self.mount(ticket, path, event),
            Call::Walk { path, follow } => self.walk(ticket, path, *follow, stage, event),
            Call::Lookup { dir, name } => self.lookup(ticket, *dir, name, event),
            Call::GetAttr { node, mask } => self.get_attr(ticket, *node, *mask, event),
            Call::SetAttr { node, set } => self.set_attr(ticket, *node, set, stage, event),
            Call::GetXattr { node, name } => self.get_xattr(ticket, *node, name, event),
            Call::SetXattr { node, name, value, flags } => {
                self.set_xattr(ticket, *node, name, value, *flags, event)
            }
            Call::RemoveXattr { node, name } => self.remove_xattr(ticket, *node, name, event),
            Call::ListXattr { node } => self.list_xattr(ticket, *node, event),
            Call::Readdir { dir, from } => self.readdir(ticket, *dir, from.as_ref(), stage, event),
            Call::Open { node, flags } => self.open(ticket, *node, *flags, stage, event),
            Call::Create { dir, name, mode, flags } => {
                self.create(ticket, *dir, name, (*mode, *flags), stage, event)
            }
            Call::Close { handle } => self.close(*handle),
            Call::Read { handle, offset, length } => {
                self.read(ticket, *handle, *offset, *length, stage, event)
            }
            Call::Write { handle, offset, data } => self.write(ticket, *handle, *offset, data, stage, event),
            Call::Lock { handle, kind, lock, wait } => self.lock(ticket, *handle, *kind, lock, *wait, event),
            Call::TestLock { handle, kind, lock } => self.test_lock(ticket, *handle, *kind, lock, event),
            Call::Fsync { handle } => self.fsync(ticket, *handle, stage, event),
            Call::Sync => self.sync(ticket, stage, event),
            Call::Unmount => self.unmount(ticket, stage, event),
            Call::Mkdir { .. }
            | Call::Rmdir { .. }
            | Call::Mknod { .. }
            | Call::Symlink { .. }
            | Call::Link { .. }
            | Call::Unlink { .. }
            | Call::Rename { .. } => self.namespace(ticket, call, stage, event),
        }
    }

    /// The attributes of an inode that was just shown.
    pub(crate) fn answer_attr(&self, node: Option<Node>) -> Step {
        let attr = node.and_then(|n| self.attr(n)).ok_or(Errno::EIO)?;
        Ok(Some(Answer::Attr(Box::new(attr))))
    }

    /// A name that may be in a folder.
    pub(crate) fn check_name(name: &FileName) -> Result<(), Errno> {
        let is_bad = name.is_empty() || name.iter().any(|b| matches!(b, 0 | b'/'));
        if is_bad || matches!(name.as_ref(), b"." | b"..") {
            return Err(Errno::EINVAL);
        }
        if name.len() > MAX_NAME { Err(Errno::ENAMETOOLONG) } else { Ok(()) }
    }

    /// Whether attributes are right without asking.
    pub(crate) fn covers(&self, node: Node, mask: Caps) -> bool {
        let real = if node.is_snapdir() { Node::head(node.ino) } else { node };
        let is_recursive = mask.intersects(Caps::FILE_WREXTEND);
        !is_recursive
            && self.inodes.contains_key(&real)
            && self.issued(real).contains(mask.without(Caps::PIN))
    }
}

/// Bytes of a name. Source: NAME_MAX.
const MAX_NAME: usize = 255;

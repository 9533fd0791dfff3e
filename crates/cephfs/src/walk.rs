//! Mounting, and following paths: names one after the other, symbolic links, `..` and `.snap`.

use std::collections::VecDeque;

use messages::fs::{Caps, FileName, FilePath, FsOp, RequestArgs};
use types::{Errno, Ino};

use crate::call::{Event, Stage, Step};
use crate::core::Client;
use crate::dentry::Known;
use crate::io::{Node, Ticket};
use crate::request::Ask;

/// Symbolic links on one way. Source: MAXSYMLINKS.
const MAX_LINKS: u32 = 40;
/// Names of one way, with those of links.
const MAX_STEPS: usize = 4096;

#[derive(Debug)]
pub(crate) struct Walk {
    at: Node,
    /// The folder that `at` is in: a relative link starts there.
    dir: Node,
    rest: VecDeque<FileName>,
    links: u32,
    steps: usize,
    /// The last request was for attributes of the end, not for a name.
    is_at_end: bool,
}

fn names(path: &[u8]) -> impl DoubleEndedIterator<Item = FileName> {
    path.split(|b| *b == b'/').filter(|n| !n.is_empty() && *n != b".").map(FileName::copy_from_slice)
}

impl Client {
    /// Asks for the mounted folder when a server serves.
    pub(crate) fn mount(&mut self, ticket: Ticket, path: &FileName, event: Event) -> Step {
        match event {
            Event::Start if self.map.epoch.0 > 0 && !self.map.enabled => Err(Errno::ENOENT),
            Event::Start => {
                self.subscribe();
                let path: Vec<FileName> = names(path).collect();
                if path.iter().any(|n| n.as_ref() == b"..") {
                    return Err(Errno::EINVAL);
                }
                let path = FilePath { base: Ino::ROOT, path: path.join(&b"/"[..]).into() };
                let args = RequestArgs::Mask(Caps::ALL_SHARED);
                self.ask(Some(ticket), Ask { op: FsOp::GETATTR, args, path, ..Ask::default() });
                Ok(None)
            }
            Event::Reply(reply) => {
                reply.result?;
                let root = reply.node.ok_or(Errno::EIO)?;
                if !self.attr(root).is_some_and(|a| a.is_dir()) {
                    return Err(Errno::ENOTDIR);
                }
                self.root = root;
                self.answer_attr(Some(root))
            }
            Event::Retry | Event::Object(..) => Ok(None),
        }
    }

    pub(crate) fn walk(
        &mut self,
        ticket: Ticket,
        path: &FileName,
        follow: bool,
        stage: &mut Stage,
        event: Event,
    ) -> Step {
        if let Event::Start = event {
            let (at, rest) = (self.root, names(path).collect());
            *stage = Stage::Walk(Walk { at, dir: at, rest, links: 0, steps: 0, is_at_end: false });
        }
        let Stage::Walk(walk) = stage else { return Err(Errno::EIO) };
        if let Event::Reply(reply) = event {
            if walk.is_at_end {
                reply.result?;
                return self.answer_attr(Some(walk.at));
            }
            reply.result?;
            let node = reply.node.ok_or(Errno::ENOENT)?;
            self.arrive(walk, node, follow)?;
        }
        self.go_on(ticket, walk, follow)
    }

    fn go_on(&mut self, ticket: Ticket, walk: &mut Walk, follow: bool) -> Step {
        while let Some(name) = walk.rest.pop_front() {
            walk.steps += 1;
            if walk.steps > MAX_STEPS {
                return Err(Errno::ENAMETOOLONG);
            }
            if !walk.at.is_snapdir() && self.attr(walk.at).is_some_and(|a| !a.is_dir()) {
                return Err(Errno::ENOTDIR);
            }
            if name.as_ref() == b".." {
                let up = self.parent(walk.at)?;
                (walk.at, walk.dir) = (up, up);
                continue;
            }
            if name.as_ref() == SNAP_NAME && walk.at.is_head() {
                walk.at.snap = types::SnapId::SNAPDIR;
                continue;
            }
            match self.known(walk.at, &name) {
                Known::Leads(node) => self.arrive(walk, node, follow)?,
                Known::Nowhere => return Err(Errno::ENOENT),
                Known::Unknown => {
                    self.ask_name(ticket, walk.at, &name)?;
                    return Ok(None);
                }
            }
        }
        if self.covers(walk.at, Caps::ALL_SHARED) {
            return self.answer_attr(Some(walk.at));
        }
        walk.is_at_end = true;
        self.ask_attr(ticket, walk.at, Caps::ALL_SHARED)?;
        Ok(None)
    }

    /// At the end of a name; a link puts its own names in front of the rest.
    fn arrive(&mut self, walk: &mut Walk, node: Node, follow: bool) -> Result<(), Errno> {
        self.touch(node);
        let inode = self.inodes.get(&node).ok_or(Errno::EIO)?;
        if !inode.is_symlink() || walk.rest.is_empty() && !follow {
            (walk.dir, walk.at) = (walk.at, node);
            return Ok(());
        }
        walk.links += 1;
        if walk.links > MAX_LINKS {
            return Err(Errno::ELOOP);
        }
        let target = inode.stat.symlink.clone();
        if target.first() == Some(&b'/') {
            (walk.at, walk.dir) = (self.root, self.root);
        }
        names(&target).rev().for_each(|name| walk.rest.push_front(name));
        Ok(())
    }

    /// `..`: of the mounted folder it is itself.
    pub(crate) fn parent(&self, node: Node) -> Result<Node, Errno> {
        if node == self.root {
            return Ok(node);
        }
        if node.is_snapdir() {
            return Ok(Node::head(node.ino));
        }
        let parent = self.inodes.get(&node).and_then(|i| i.parent.as_ref());
        parent.map(|(dir, _)| *dir).ok_or(Errno::ESTALE)
    }

    pub(crate) fn ask_name(&mut self, ticket: Ticket, dir: Node, name: &FileName) -> Result<(), Errno> {
        Self::check_name(name)?;
        let op = if dir.is_snapdir() { FsOp::LOOKUPSNAP } else { FsOp::LOOKUP };
        let (path, args) = (self.path(dir, Some(name))?, RequestArgs::Mask(Caps::ALL_SHARED));
        self.ask(Some(ticket), Ask { op, args, path, about: Some(dir), ..Ask::default() });
        Ok(())
    }

    pub(crate) fn lookup(&mut self, ticket: Ticket, dir: Node, name: &FileName, event: Event) -> Step {
        match event {
            Event::Start if name.as_ref() == b"." => {
                self.get_attr(ticket, dir, Caps::ALL_SHARED, Event::Start)
            }
            Event::Start if name.as_ref() == b".." => {
                let up = self.parent(dir)?;
                self.get_attr(ticket, up, Caps::ALL_SHARED, Event::Start)
            }
            Event::Start if name.as_ref() == SNAP_NAME && dir.is_head() => {
                self.answer_attr(Some(Node { ino: dir.ino, snap: types::SnapId::SNAPDIR }))
            }
            Event::Start => match self.known(dir, name) {
                Known::Nowhere => Err(Errno::ENOENT),
                Known::Leads(node) if self.covers(node, Caps::ALL_SHARED) => {
                    self.touch(node);
                    self.answer_attr(Some(node))
                }
                Known::Leads(_) | Known::Unknown => self.ask_name(ticket, dir, name).map(|()| None),
            },
            Event::Reply(reply) => {
                reply.result?;
                self.answer_attr(Some(reply.node.ok_or(Errno::ENOENT)?))
            }
            Event::Retry | Event::Object(..) => Ok(None),
        }
    }
}

/// The folder of a folder's snapshots. Source: client_snapdir.
pub(crate) const SNAP_NAME: &[u8] = b".snap";

//! Reading and setting attributes.

use messages::fs::{Caps, FsOp, RequestArgs, SetAttr};
use types::Errno;

use crate::call::{Event, Stage, Step};
use crate::core::Client;
use crate::io::{Node, Ticket};
use crate::request::Ask;

/// What a caller may set. Source: CEPH_SETATTR_*.
const SETTABLE: u32 = SetAttr::MODE
    | SetAttr::UID
    | SetAttr::GID
    | SetAttr::MTIME
    | SetAttr::ATIME
    | SetAttr::SIZE
    | SetAttr::CTIME
    | SetAttr::MTIME_NOW
    | SetAttr::ATIME_NOW
    | SetAttr::BTIME
    | SetAttr::KILL_SGUID;

impl Client {
    pub(crate) fn get_attr(&mut self, ticket: Ticket, node: Node, mask: Caps, event: Event) -> Step {
        match event {
            Event::Start if self.covers(node, mask) => {
                self.touch(node);
                self.answer_attr(Some(node))
            }
            Event::Start => self.ask_attr(ticket, node, mask).map(|()| None),
            Event::Reply(reply) => {
                reply.result?;
                let shown = reply.node.ok_or(Errno::ESTALE)?;
                self.answer_attr(Some(if node.is_snapdir() { node } else { shown }))
            }
            Event::Retry | Event::Object(..) => Ok(None),
        }
    }

    /// By the server always: it takes back what others (and we) hold of what changes.
    pub(crate) fn set_attr(
        &mut self,
        ticket: Ticket,
        node: Node,
        set: &SetAttr,
        stage: &mut Stage,
        event: Event,
    ) -> Step {
        match event {
            Event::Start => {
                if !node.is_head() {
                    return Err(Errno::EROFS);
                }
                if set.mask & !SETTABLE != 0 {
                    return Err(Errno::EINVAL);
                }
                if set.mask & SetAttr::SIZE != 0 && set.size > self.map.max_file_size {
                    return Err(Errno::EFBIG);
                }
                let path = self.path(node, None)?;
                let old_size = self.inodes.get(&node).map_or(0, |i| i.stat.size);
                let args = RequestArgs::SetAttr(SetAttr { old_size, ..*set });
                let touches = vec![node];
                self.ask(
                    Some(ticket),
                    Ask { op: FsOp::SETATTR, args, path, about: Some(node), touches, ..Ask::default() },
                );
                Ok(None)
            }
            Event::Reply(reply) => {
                reply.result?;
                if reply.node.is_none() && !matches!(stage, Stage::Again) {
                    *stage = Stage::Again;
                    return self.ask_attr(ticket, node, Caps::ALL_SHARED).map(|()| None);
                }
                self.answer_attr(reply.node)
            }
            Event::Retry | Event::Object(..) => Ok(None),
        }
    }
}

//! Writing to a file: to its objects, then size and times become dirty.
//!
//! Source: Client::_write.

use bytes::Bytes;
use messages::fs::{Caps, FsOp, RequestArgs, SetAttr};
use messages::osd::{Extent, Op, flags};
use objecter::OpRequest;
use types::Errno;

use crate::call::{Event, Stage, Step, failure};
use crate::core::Client;
use crate::io::{Answer, Handle, Node, Ticket};
use crate::request::Ask;
use crate::striping::{object, object_truncate_size, pieces};

/// Bytes of one write.
const MAX_WRITE: usize = 64 << 20;
const SET_ID: u32 = 0o6000;

#[derive(Debug, Default)]
pub(crate) struct Write {
    /// Of the handle, which may be closed meanwhile.
    node: Option<Node>,
    /// Where it goes. Of an append that is known when it begins, for others may come before it.
    offset: Option<u64>,
    is_append: bool,
    pending: usize,
    errno: Option<Errno>,
    asked_size: bool,
    killed_set_id: bool,
}

impl Client {
    pub(crate) fn write(
        &mut self,
        ticket: Ticket,
        handle: Handle,
        offset: Option<u64>,
        data: &Bytes,
        stage: &mut Stage,
        event: Event,
    ) -> Step {
        if let Event::Start = event {
            if data.len() > MAX_WRITE {
                return Err(Errno::EINVAL);
            }
            *stage = Stage::Write(Write { offset, is_append: offset.is_none(), ..Write::default() });
        }
        let Stage::Write(write) = stage else { return Err(Errno::EIO) };
        if let Event::Object(_, result) = event {
            write.pending = write.pending.saturating_sub(1);
            let failed = result.map_or_else(Some, |r| failure(r.result));
            write.errno = write.errno.or(failed);
            if write.pending > 0 {
                return Ok(None);
            }
            let node = write.node.ok_or(Errno::EBADF)?;
            return self.end_write(node, data, write);
        }
        if let Event::Reply(reply) = event {
            reply.result?;
        }
        if write.pending > 0 {
            return Ok(None);
        }
        let node = self.handles.get(&handle).filter(|f| f.writes).ok_or(Errno::EBADF)?.node;
        if data.is_empty() {
            return Ok(Some(Answer::Written(0)));
        }
        self.begin_write(ticket, node, data, write)
    }

    fn begin_write(&mut self, ticket: Ticket, node: Node, data: &Bytes, write: &mut Write) -> Step {
        let Some(offset) = self.write_offset(ticket, node, write)? else { return Ok(None) };
        let end = offset.checked_add(data.len() as u64).filter(|end| *end <= self.map.max_file_size);
        let end = end.ok_or(Errno::EFBIG)?;
        // Where another client writes too, the server's answer about the size takes the right to write back.
        // The grant that brings it again brings the size: asking once more would take it back again.
        if !self.need_caps(ticket, node, Caps::FILE_WR | Caps::AUTH_SHARED, Some(end))? {
            return Ok(None);
        }
        let inode = self.inodes.get_mut(&node).ok_or(Errno::ESTALE)?;
        if inode.stat.mode & SET_ID != 0 && !write.killed_set_id {
            (write.killed_set_id, write.asked_size) = (true, false);
            let args = RequestArgs::SetAttr(SetAttr { mask: SetAttr::KILL_SGUID, ..SetAttr::default() });
            let (path, touches) = (self.path(node, None)?, vec![node]);
            self.ask(
                Some(ticket),
                Ask { op: FsOp::SETATTR, args, path, about: Some(node), touches, ..Ask::default() },
            );
            return Ok(None);
        }
        if !inode.stat.layout.is_valid() || inode.stat.layout.pool.0 < 0 {
            return Err(Errno::EIO);
        }
        inode.writing += 1;
        inode.is_appending |= write.is_append;
        (write.node, write.offset) = (Some(node), Some(offset));
        self.write_objects(ticket, node, offset, data, write);
        Ok(None)
    }

    /// Where a write goes, if that is known: an append begins when the one before it has ended.
    fn write_offset(&mut self, ticket: Ticket, node: Node, write: &mut Write) -> Result<Option<u64>, Errno> {
        if write.offset.is_some() {
            return Ok(write.offset);
        }
        let knows_size =
            self.issued(node).intersects(Caps::FILE_SHARED | Caps::FILE_EXCL) || write.asked_size;
        let inode = self.inodes.get_mut(&node).ok_or(Errno::ESTALE)?;
        if inode.is_appending {
            inode.wait(ticket);
            return Ok(None);
        }
        if knows_size {
            return Ok(Some(inode.stat.size));
        }
        write.asked_size = true;
        self.ask_attr(ticket, node, Caps::FILE_SHARED)?;
        Ok(None)
    }

    fn write_objects(&mut self, ticket: Ticket, node: Node, offset: u64, data: &Bytes, write: &mut Write) {
        let snapc = self.snap_context(node);
        let Some(inode) = self.inodes.get(&node) else { return };
        let stat = &inode.stat;
        let (layout, truncate_size, truncate_seq) =
            (stat.layout.clone(), stat.truncate_size, stat.truncate_seq);
        let pieces = pieces(&layout, offset, data.len() as u64);
        write.pending = pieces.len();
        for (index, piece) in pieces.into_iter().enumerate() {
            let extent = Extent {
                offset: piece.offset,
                length: piece.length,
                truncate_size: object_truncate_size(&layout, piece.object_no, truncate_size),
                truncate_seq,
            };
            let at = (piece.file_offset - offset) as usize;
            let part = data.slice(at..at + piece.length as usize);
            let request = OpRequest {
                object: object(&layout, node.ino, piece.object_no, node.snap),
                ops: vec![Op::Write { extent, data: part }.into()],
                flags: flags::WRITE | flags::ONDISK,
                snapc: snapc.clone(),
                mtime: None,
                timeout: None,
            };
            self.object(ticket, index, request);
        }
    }

    fn end_write(&mut self, node: Node, data: &Bytes, write: &Write) -> Step {
        let now = self.now.wall;
        let inode = self.inodes.get_mut(&node).ok_or(Errno::ESTALE)?;
        inode.writing = inode.writing.saturating_sub(1);
        let is_last = inode.writing == 0;
        if write.is_append {
            inode.is_appending = false;
        }
        if write.errno.is_none() {
            let end = write.offset.unwrap_or(0) + data.len() as u64;
            let stat = &mut inode.stat;
            stat.size = stat.size.max(end);
            (stat.mtime, stat.ctime) = (stat.mtime.max(now), stat.ctime.max(now));
            stat.change_attr = stat.change_attr.saturating_add(1);
            inode.dirty |= Caps::FILE_WR;
        }
        if is_last {
            self.finish_snap(node);
        }
        self.check_caps(node, false);
        if write.is_append {
            self.wake(node);
        }
        match write.errno {
            Some(errno) => Err(errno),
            None => Ok(Some(Answer::Written(data.len() as u64))),
        }
    }
}

impl Write {
    pub fn is_pending(&self) -> bool {
        self.pending > 0
    }
}

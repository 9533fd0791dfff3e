//! Reading a file: from its objects, and where they are short up to the file's size.
//!
//! Source: Client::_read, _read_sync.

use bytes::{Bytes, BytesMut};
use messages::fs::Caps;
use messages::osd::{Extent, Op, flags};
use objecter::{OpReply, OpRequest};
use types::{Errno, SnapContext};

use crate::call::{Event, Stage, Step, failure};
use crate::core::Client;
use crate::io::{Answer, Handle, Node, Ticket};
use crate::striping::{Piece, object, object_truncate_size, pieces};

/// Bytes of one read.
const MAX_READ: u64 = 64 << 20;

#[derive(Debug, Default)]
pub(crate) struct Read {
    /// Of the handle, which may be closed meanwhile.
    node: Option<Node>,
    pieces: Vec<Piece>,
    parts: Vec<Bytes>,
    pending: usize,
    errno: Option<Errno>,
    /// The server was asked for the size.
    knows_size: bool,
}

impl Client {
    pub(crate) fn read(
        &mut self,
        ticket: Ticket,
        handle: Handle,
        offset: u64,
        length: u64,
        stage: &mut Stage,
        event: Event,
    ) -> Step {
        if let Event::Start = event {
            *stage = Stage::Read(Read::default());
        }
        let Stage::Read(read) = stage else { return Err(Errno::EIO) };
        match event {
            Event::Start | Event::Retry if read.pending > 0 => Ok(None),
            Event::Start | Event::Retry => {
                let file = *self.handles.get(&handle).filter(|f| f.reads).ok_or(Errno::EBADF)?;
                if length > MAX_READ {
                    return Err(Errno::EINVAL);
                }
                self.begin_read(ticket, file.node, offset, length, read)
            }
            Event::Reply(reply) => {
                reply.result?;
                let file = *self.handles.get(&handle).ok_or(Errno::EBADF)?;
                read.knows_size = true;
                self.begin_read(ticket, file.node, offset, length, read)
            }
            Event::Object(index, result) => {
                read.take(index, result);
                if read.pending > 0 {
                    return Ok(None);
                }
                let node = read.node.ok_or(Errno::EBADF)?;
                self.end_read(ticket, node, offset, length, read)
            }
        }
    }

    /// Whether the size that we know is right.
    fn is_size_right(&self, node: Node, read: &Read) -> bool {
        !node.is_head()
            || read.knows_size
            || self.issued(node).intersects(Caps::FILE_SHARED | Caps::FILE_EXCL)
    }

    fn begin_read(&mut self, ticket: Ticket, node: Node, offset: u64, length: u64, read: &mut Read) -> Step {
        if node.is_head() && !self.need_caps(ticket, node, Caps::FILE_RD, None)? {
            return Ok(None);
        }
        let is_size_right = self.is_size_right(node, read);
        let inode = self.inodes.get_mut(&node).ok_or(Errno::ESTALE)?;
        let stat = &inode.stat;
        let room = if is_size_right { stat.size.saturating_sub(offset) } else { u64::MAX - offset };
        let length = length.min(room);
        if length == 0 {
            return Ok(Some(Answer::Data(Bytes::new())));
        }
        if !stat.layout.is_valid() || stat.layout.pool.0 < 0 {
            return Err(Errno::EIO);
        }
        read.pieces = pieces(&stat.layout, offset, length);
        read.parts = vec![Bytes::new(); read.pieces.len()];
        read.pending = read.pieces.len();
        let (layout, truncate_size, truncate_seq) =
            (stat.layout.clone(), stat.truncate_size, stat.truncate_seq);
        inode.reading += 1;
        read.node = Some(node);
        for (index, piece) in read.pieces.iter().enumerate() {
            let extent = Extent {
                offset: piece.offset,
                length: piece.length,
                truncate_size: object_truncate_size(&layout, piece.object_no, truncate_size),
                truncate_seq,
            };
            let request = OpRequest {
                object: object(&layout, node.ino, piece.object_no, node.snap),
                ops: vec![Op::Read(extent).into()],
                flags: flags::READ,
                snapc: SnapContext::default(),
                mtime: None,
                timeout: None,
            };
            self.object(ticket, index, request);
        }
        Ok(None)
    }

    fn end_read(&mut self, ticket: Ticket, node: Node, offset: u64, length: u64, read: &mut Read) -> Step {
        if let Some(inode) = self.inodes.get_mut(&node) {
            inode.reading = inode.reading.saturating_sub(1);
        }
        let is_size_right = self.is_size_right(node, read);
        self.check_caps(node, false);
        if let Some(errno) = read.errno {
            return Err(errno);
        }
        let size = self.inodes.get(&node).map_or(0, |i| i.stat.size);
        let asked: u64 = read.pieces.iter().map(|p| p.length).sum();
        let is_short = read.pieces.iter().zip(&read.parts).any(|(p, part)| (part.len() as u64) < p.length);
        if !is_short && asked == length {
            return Ok(Some(Answer::Data(read.whole(offset, asked))));
        }
        if !is_size_right {
            self.ask_attr(ticket, node, Caps::FILE_SHARED)?;
            return Ok(None);
        }
        Ok(Some(Answer::Data(read.whole(offset, asked.min(size.saturating_sub(offset))))))
    }
}

impl Read {
    pub fn is_pending(&self) -> bool {
        self.pending > 0
    }

    fn take(&mut self, index: usize, result: Result<OpReply, Errno>) {
        self.pending = self.pending.saturating_sub(1);
        let data = match result {
            Ok(reply) => match failure(reply.result) {
                Some(errno) => Err(errno),
                None => Ok(reply.ops.into_iter().next().map(|op| op.outdata).unwrap_or_default()),
            },
            Err(errno) => Err(errno),
        };
        match data {
            Ok(data) => {
                if let Some(part) = self.parts.get_mut(index) {
                    *part = data;
                }
            }
            // Never written.
            Err(Errno::ENOENT) => {}
            Err(errno) => self.errno = Some(errno),
        }
    }

    /// What is missing in objects is zeros.
    fn whole(&mut self, offset: u64, length: u64) -> Bytes {
        if let ([piece], [part]) = (self.pieces.as_slice(), self.parts.as_mut_slice()) {
            if part.len() as u64 == length && piece.file_offset == offset {
                return std::mem::take(part);
            }
        }
        let mut all = BytesMut::zeroed(usize::try_from(length).unwrap_or(0));
        for (piece, part) in self.pieces.iter().zip(&self.parts) {
            let at = usize::try_from(piece.file_offset - offset).unwrap_or(usize::MAX);
            let Some(place) = all.get_mut(at..) else { continue };
            place.iter_mut().zip(part.iter().take(piece.length as usize)).for_each(|(to, from)| *to = *from);
        }
        all.freeze()
    }
}

//! Replies of the transmission phase, as the buffers to send one after the other.

use bytes::{BufMut, Bytes, BytesMut};

use crate::limits::MAX_EXTENTS;
use crate::request::NbdError;
use crate::wire::{BASE_ALLOCATION_ID, SIMPLE_REPLY_MAGIC, STRUCTURED_REPLY_MAGIC, chunk, state};

/// A part of what was read, in the order of its offsets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    Data(Bytes),
    /// So many bytes that read as zeros.
    Zeros(u64),
}

impl Piece {
    /// Bytes of the image that it stands for.
    #[must_use]
    pub fn len(&self) -> u64 {
        match self {
            Self::Data(data) => data.len() as u64,
            Self::Zeros(len) => *len,
        }
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// An extent of a block status reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    pub len: u64,
    /// Not allocated.
    pub hole: bool,
    /// Reads as zeros.
    pub zero: bool,
}

/// Writes a connection's replies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replies {
    pub(crate) structured: bool,
}

impl Replies {
    /// A reply without data: a write, flush, trim, zeroing or cache request is done.
    #[must_use]
    pub fn done(self, cookie: u64) -> Bytes {
        done(cookie)
    }

    #[must_use]
    pub fn error(self, cookie: u64, error: NbdError) -> Bytes {
        self::error(cookie, error, self.structured)
    }

    /// The reply to a read from `offset`; `pieces` cover exactly what was asked.
    #[must_use]
    pub fn data(self, cookie: u64, offset: u64, pieces: Vec<Piece>, whole: bool) -> Vec<Bytes> {
        read(cookie, offset, pieces, whole, self.structured)
    }

    /// The reply to a block status request of `len` bytes.
    #[must_use]
    pub fn block_status(self, cookie: u64, len: u32, ranges: &[Range], one: bool) -> Bytes {
        block_status(cookie, len, ranges, one)
    }
}

fn done(cookie: u64) -> Bytes {
    simple(cookie, 0).freeze()
}

fn error(cookie: u64, error: NbdError, structured: bool) -> Bytes {
    if !structured {
        return simple(cookie, error as u32).freeze();
    }
    let mut out = BytesMut::with_capacity(26);
    header(&mut out, chunk::FLAG_DONE, chunk::ERROR, cookie, 6);
    out.put_u32(error as u32);
    out.put_u16(0);
    out.freeze()
}

/// The reply to a read; `pieces` cover exactly what was asked.
fn read(cookie: u64, offset: u64, pieces: Vec<Piece>, whole: bool, structured: bool) -> Vec<Bytes> {
    if !structured {
        let mut out = vec![done(cookie)];
        out.extend(pieces.into_iter().map(plain));
        return out;
    }
    let has_data = pieces.iter().any(|p| matches!(p, Piece::Data(_)));
    if whole && has_data {
        let len: u64 = pieces.iter().map(Piece::len).sum();
        let mut head = BytesMut::with_capacity(28);
        header(&mut head, chunk::FLAG_DONE, chunk::OFFSET_DATA, cookie, clamp(len + 8));
        head.put_u64(offset);
        let mut out = vec![head.freeze()];
        out.extend(pieces.into_iter().map(plain));
        return out;
    }
    read_chunks(cookie, offset, merge_zeros(pieces))
}

/// One chunk per piece, the last one marked so.
fn read_chunks(cookie: u64, mut offset: u64, pieces: Vec<Piece>) -> Vec<Bytes> {
    let mut out = Vec::with_capacity(pieces.len() * 2);
    if pieces.is_empty() {
        let mut head = BytesMut::with_capacity(20);
        header(&mut head, chunk::FLAG_DONE, chunk::NONE, cookie, 0);
        return vec![head.freeze()];
    }
    let last = pieces.len() - 1;
    for (i, piece) in pieces.into_iter().enumerate() {
        let flags = if i == last { chunk::FLAG_DONE } else { 0 };
        let mut head = BytesMut::with_capacity(32);
        let len = piece.len();
        match piece {
            Piece::Data(data) => {
                header(&mut head, flags, chunk::OFFSET_DATA, cookie, clamp(len + 8));
                head.put_u64(offset);
                out.push(head.freeze());
                out.push(data);
            }
            Piece::Zeros(_) => {
                header(&mut head, flags, chunk::OFFSET_HOLE, cookie, 12);
                head.put_u64(offset);
                head.put_u32(clamp(len));
                out.push(head.freeze());
            }
        }
        offset += len;
    }
    out
}

/// Drops empty pieces and joins neighbouring zeros: the protocol wants no empty chunk.
fn merge_zeros(pieces: Vec<Piece>) -> Vec<Piece> {
    let mut out: Vec<Piece> = Vec::with_capacity(pieces.len());
    for piece in pieces.into_iter().filter(|p| !p.is_empty()) {
        match (out.last_mut(), &piece) {
            (Some(Piece::Zeros(len)), Piece::Zeros(more)) => *len += more,
            _ => out.push(piece),
        }
    }
    out
}

fn plain(piece: Piece) -> Bytes {
    match piece {
        Piece::Data(data) => data,
        Piece::Zeros(len) => BytesMut::zeroed(usize::try_from(len).unwrap_or(0)).freeze(),
    }
}

/// The reply to a block status request for `len` bytes: neighbours alike are joined, the rest is cut off.
fn block_status(cookie: u64, len: u32, ranges: &[Range], one: bool) -> Bytes {
    let mut extents: Vec<(u32, u32)> = Vec::new();
    let mut left = len;
    for range in ranges {
        let part = clamp(range.len).min(left);
        if part == 0 {
            continue;
        }
        let flags = (u32::from(range.hole) * state::HOLE) | (u32::from(range.zero) * state::ZERO);
        let is_full = extents.len() >= if one { 1 } else { MAX_EXTENTS };
        match extents.last_mut() {
            Some((len, same)) if *same == flags => *len += part,
            _ if is_full => break,
            _ => extents.push((part, flags)),
        }
        left -= part;
    }
    let mut out = BytesMut::with_capacity(24 + extents.len() * 8);
    header(&mut out, chunk::FLAG_DONE, chunk::BLOCK_STATUS, cookie, clamp(4 + extents.len() as u64 * 8));
    out.put_u32(BASE_ALLOCATION_ID);
    for (len, flags) in extents {
        out.put_u32(len);
        out.put_u32(flags);
    }
    out.freeze()
}

fn simple(cookie: u64, error: u32) -> BytesMut {
    let mut out = BytesMut::with_capacity(16);
    out.put_u32(SIMPLE_REPLY_MAGIC);
    out.put_u32(error);
    out.put_u64(cookie);
    out
}

fn header(out: &mut BytesMut, flags: u16, kind: u16, cookie: u64, len: u32) {
    out.put_u32(STRUCTURED_REPLY_MAGIC);
    out.put_u16(flags);
    out.put_u16(kind);
    out.put_u64(cookie);
    out.put_u32(len);
}

fn clamp(len: u64) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

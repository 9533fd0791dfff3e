//! The head of a queue: where its entries are, and what its user keeps beside them. Source:
//! src/cls/queue/cls_queue_types.h.

use bytes::Bytes;
use codec::{Decode, Encode, Reader, Writer, wire_struct};
use types::Errno;

use crate::ObjectView;
use crate::registry::Done;

/// Begins a head.
const MAGIC: u16 = 0xdead;
/// Bytes of a head without what is urgent.
const HEAD_SIZE: u64 = 1024;
/// Bytes of the first read of a head.
const FIRST_READ: u64 = 1024;
/// Bytes in front of a head or an entry: a magic number and a length.
pub(crate) const FRAME: usize = 10;

/// A place in the ring, and how often the ring was gone round before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Marker {
    pub round: u64,
    pub offset: u64,
}
wire_struct!(Marker(1, 1) { round, offset });

impl Marker {
    /// As a listing gives it to its caller.
    pub(crate) fn text(self) -> Bytes {
        format!("{}/{}", self.round, self.offset).into()
    }

    /// Reads as much as there is: what is missing or too large is not an error to Ceph, which leaves the
    /// offset at 0.
    pub(crate) fn parse(text: &[u8]) -> Self {
        let text = crate::wire::c_text(text);
        let (round, rest, fits) = number(text);
        match rest.strip_prefix(b"/") {
            Some(rest) if fits && rest.len() + 1 < text.len() => Self { round, offset: number(rest).0 },
            _ => Self { round, offset: 0 },
        }
    }
}

/// A number as C's `strtoull` reads it, what stands behind it, and whether it fits into 64 bits; one that
/// does not is the largest that does.
fn number(text: &[u8]) -> (u64, &[u8], bool) {
    let blank = |b: &u8| matches!(b, b' ' | b'\t'..=b'\r');
    let start = text.iter().position(|b| !blank(b)).unwrap_or(text.len());
    let rest = text.get(start..).unwrap_or_default();
    let (negative, rest) = match rest.split_first() {
        Some((b'-', rest)) => (true, rest),
        Some((b'+', rest)) => (false, rest),
        _ => (false, rest),
    };
    let digits = rest.iter().take_while(|b| b.is_ascii_digit()).count();
    let (digits, behind) = rest.split_at(digits);
    if digits.is_empty() {
        return (0, text, true);
    }
    let value = digits.iter().try_fold(0u64, |v, b| {
        v.checked_mul(10).and_then(|v| v.checked_add(u64::from(b.wrapping_sub(b'0'))))
    });
    match value {
        None => (u64::MAX, behind, false),
        Some(v) if negative => (v.wrapping_neg(), behind, true),
        Some(v) => (v, behind, true),
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Head {
    /// Where the ring begins.
    pub start: u64,
    /// The oldest entry.
    pub front: Marker,
    /// Behind the newest entry.
    pub tail: Marker,
    /// Where the ring ends.
    pub end: u64,
    /// Bytes.
    pub max_urgent: u64,
    /// What the queue's user keeps in the head.
    pub urgent: Bytes,
}
wire_struct!(Head(1, 1) { start, front, tail, end, max_urgent, urgent });

impl Head {
    pub(crate) fn new(size: u64, max_urgent: u64, urgent: Bytes) -> Self {
        let start = HEAD_SIZE.wrapping_add(max_urgent);
        let front = Marker { round: 0, offset: start };
        Self { start, front, tail: front, end: size.wrapping_add(start), max_urgent, urgent }
    }

    /// EINVAL when there is none, or none that decodes.
    pub(crate) fn read(v: &mut dyn ObjectView) -> Result<Self, Errno> {
        let mut bytes = v.read(0, FIRST_READ)?;
        let mut r = Reader::new(bytes.clone());
        let (magic, length) = r.u16().and_then(|m| Ok((m, r.u64()?))).map_err(|_| Errno::EINVAL)?;
        if magic != MAGIC {
            return Err(Errno::EINVAL);
        }
        if let Some(rest @ 1..) = length.checked_sub(FIRST_READ - FRAME as u64) {
            bytes = [bytes, v.read(FIRST_READ, rest)?].concat().into();
        }
        Self::from_bytes(bytes.slice(FRAME..)).map_err(|_| Errno::EINVAL)
    }

    /// EINVAL when it has outgrown the place in front of the ring.
    pub(crate) fn write(&self, v: &mut dyn ObjectView) -> Result<Done, Errno> {
        let bytes = framed(MAGIC, &self.to_bytes());
        if bytes.len() as u64 > self.start {
            return Err(Errno::EINVAL);
        }
        v.write(0, bytes)?;
        Ok(Done)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.front == self.tail
    }

    /// Whether the tail has come round to the front.
    pub(crate) fn is_full(&self) -> bool {
        self.front.offset == self.tail.offset && self.tail.round == self.front.round.wrapping_add(1)
    }

    /// A place at the ring's end is the same as that at its start.
    pub(crate) fn wrapped(&self, at: Marker) -> Marker {
        if at.offset == self.end { self.next_round(at) } else { at }
    }

    pub(crate) fn next_round(&self, at: Marker) -> Marker {
        Marker { round: at.round.wrapping_add(1), offset: self.start }
    }
}

/// A head or an entry as it is stored.
pub(super) fn framed(magic: u16, body: &[u8]) -> Bytes {
    Writer::collect(|w| {
        w.raw(&magic.to_le_bytes());
        w.raw(&(body.len() as u64).to_le_bytes());
        w.raw(body);
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_are_read_as_c_reads_numbers() {
        const MAX: u64 = u64::MAX;
        for (text, round, offset) in [
            ("1/1024", 1, 1024),
            (" 1/ +1024z", 1, 1024),
            ("1/1024\0/", 1, 1024),
            ("-1/5", MAX, 5),
            ("1/-5", 1, MAX - 4),
            ("99999999999999999999/1", MAX, 0),
            ("1/99999999999999999999", 1, MAX),
            ("1", 1, 0),
            ("1 /5", 1, 0),
            ("1/", 1, 0),
            ("/5", 0, 0),
            ("x/5", 0, 0),
            ("- 1/5", 0, 0),
            ("1/\x005", 1, 0),
            ("", 0, 0),
        ] {
            assert_eq!(Marker::parse(text.as_bytes()), Marker { round, offset }, "{text:?}");
        }
    }
}

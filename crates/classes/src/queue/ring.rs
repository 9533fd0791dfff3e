//! A queue's entries: they follow each other, and go on at the ring's start when they reach its end.
//! Source: src/cls/queue/cls_queue_src.cc.
//!
//! 1. Entries stand from the front to the tail; both are borders between entries, as long as callers remove
//!    whole ones.
//! 2. With the front at or in front of the tail, of the same round, what is free lies around the entries;
//!    with the tail a round ahead it lies between the two.
//!
//! Ceph counts with offsets of 32 bits with a sign when it reads and writes: a queue that reaches behind them
//! overwrites its own head there. Here it is refused, as one that is larger than an object may be.

use bytes::Bytes;
use types::Errno;

use super::head::{FRAME, Head, Marker, framed};
use super::{Entry, ListReply};
use crate::ObjectView;

/// Begins an entry.
const MAGIC: u16 = 0xbeef;
/// Bytes of one read of entries. How many does not show, but where no entries are asked for: then it is
/// Ceph's.
const READ: u64 = 64 << 10;
const CEPHS_READ: u64 = 4 << 20;
/// Bytes of entries of one answer, with what each takes beside its own: Ceph takes as many as it is asked
/// for, and a ring may hold millions of entries without data. The answer then says where to go on, as one
/// that is full does.
pub(super) const MAX_LISTED_BYTES: usize = 32 << 20;
/// What an entry takes in memory beside its data.
const ENTRY_BYTES: usize = 128;
/// How often markers of one listing may come into another round: from the caller's to the front's, and once
/// round.
const MAX_ROUNDS: u8 = 2;

/// ENOSPC when they do not fit.
pub(crate) fn enqueue(v: &mut dyn ObjectView, head: &mut Head, entries: Vec<Bytes>) -> Result<(), Errno> {
    if head.is_full() {
        return Err(Errno::ENOSPC);
    }
    for data in entries {
        let entry = framed(MAGIC, &data);
        let (at, size) = (head.tail.offset, entry.len() as u64);
        let behind = at.saturating_add(size);
        let end = if at < head.front.offset { head.front.offset } else { head.end };
        if behind <= end {
            v.write(at, entry)?;
            head.tail.offset = behind;
        } else if at < head.front.offset {
            return Err(Errno::ENOSPC);
        } else {
            enqueue_around(v, head, entry)?;
        }
        head.tail = head.wrapped(head.tail);
    }
    Ok(())
}

/// Writes an entry's first part at the end of the ring, the other at its start.
fn enqueue_around(v: &mut dyn ObjectView, head: &mut Head, mut entry: Bytes) -> Result<(), Errno> {
    let at = head.tail.offset;
    // A ring of more than 64 bits, which ends in front of its entries, makes an OSD of Ceph abort.
    let before = head.end.checked_sub(at).ok_or(Errno::EINVAL)?;
    let free = before.wrapping_add(head.front.offset.wrapping_sub(head.start));
    if entry.len() as u64 > free {
        return Err(Errno::ENOSPC);
    }
    v.write(at, entry.split_to(entry.len().min(before as usize)))?;
    head.tail = head.next_round(head.tail);
    head.tail.offset = head.tail.offset.wrapping_add(entry.len() as u64);
    v.write(head.start, entry)
}

/// Lists at most `max` entries from a marker on, as far as one answer holds them; for 0 those of one of
/// Ceph's reads. EINVAL when no entry begins there.
pub(crate) fn list(v: &mut dyn ObjectView, head: &Head, max: u64, start: &[u8]) -> Result<ListReply, Errno> {
    if head.is_empty() {
        let next_marker = head.front.text();
        return Ok(ListReply { truncated: false, next_marker, entries: Vec::new() });
    }
    let start = Some(Marker::parse(start)).filter(|m| m.offset != 0).unwrap_or(head.front);
    let mut walk =
        Walk { at: start, pending: Vec::new(), began: None, length: None, entries: Vec::new(), taken: 0 };
    let next = walk.through(v, head, max)?;
    let next = next.map(|at| head.wrapped(at));
    let next_marker = next.unwrap_or(head.tail);
    Ok(ListReply {
        truncated: next_marker != head.tail,
        next_marker: next_marker.text(),
        entries: walk.entries,
    })
}

/// Listings that follow each other.
pub(crate) struct Pages {
    marker: Bytes,
    rounds: u8,
}

impl Pages {
    pub(crate) fn from(marker: Bytes) -> Self {
        Self { marker, rounds: 0 }
    }

    /// The next page. EINVAL where the entries go round more often than a ring can: a damaged head leads an
    /// OSD of Ceph round and round.
    pub(crate) fn next(&mut self, v: &mut dyn ObjectView, head: &Head, max: u64) -> Result<ListReply, Errno> {
        let page = list(v, head, max, &self.marker)?;
        let round = |marker: &Bytes| Marker::parse(marker).round;
        self.rounds += u8::from(round(&self.marker) != round(&page.next_marker));
        self.marker = page.next_marker.clone();
        if self.rounds > MAX_ROUNDS { Err(Errno::EINVAL) } else { Ok(page) }
    }
}

/// A walk along the ring, piece by piece.
struct Walk {
    /// What is read next.
    at: Marker,
    /// Bytes of the entry that the last piece ended in.
    pending: Vec<u8>,
    /// Where that entry began.
    began: Option<Marker>,
    /// How many bytes it has, once that was read.
    length: Option<u64>,
    entries: Vec<Entry>,
    /// Bytes of these entries, with what they take beside their data.
    taken: usize,
}

impl Walk {
    /// Whether no more entries are to be taken. Without a maximum one read bounds them.
    fn is_full(&self, max: u64) -> bool {
        self.entries.len() as u64 == max || (max != 0 && self.taken >= MAX_LISTED_BYTES)
    }

    /// Where the next entry begins; nothing at the end of the entries.
    fn through(&mut self, v: &mut dyn ObjectView, head: &Head, max: u64) -> Result<Option<Marker>, Errno> {
        let (mut left, mut goes_round) = stretch(head, self.at.offset);
        while left != 0 {
            let size = left.min(if max == 0 { CEPHS_READ } else { READ });
            let piece = v.read(self.at.offset, size)?;
            let first = self.at.offset.wrapping_sub(self.pending.len() as u64);
            self.pending.extend_from_slice(&piece);
            let used = self.take_entries(first, max)?;
            if self.is_full(max) {
                return Ok(Some(Marker { offset: first.wrapping_add(used as u64), ..self.at }));
            }
            self.pending.drain(..used);
            // Nothing follows behind an object's end: what is left of the stretch would be read in vain.
            // Where a marker stands behind the tail, that is all there is of 64 bits, and an OSD of Ceph
            // reads on for years.
            let size = if piece.is_empty() { left } else { size };
            self.at.offset = self.at.offset.wrapping_add(size);
            left -= size;
            if left == 0 && goes_round {
                self.at = head.next_round(self.at);
                left = head.tail.offset.wrapping_sub(head.start);
                goes_round = false;
            } else if left == 0 {
                break;
            }
            if self.entries.len() as u64 >= max {
                // Only where none were asked for: the marker that comes back leads nowhere.
                return Ok(Some(Marker::default()));
            }
        }
        Ok(None)
    }

    /// Takes entries out of the pending bytes, of which the first stands at an offset; gives how many bytes
    /// are done with.
    fn take_entries(&mut self, first: u64, max: u64) -> Result<usize, Errno> {
        let mut used = 0;
        loop {
            let here = Marker { offset: first.wrapping_add(used as u64), ..self.at };
            let began = self.began.take().unwrap_or(here);
            let length = match self.length.take() {
                Some(length) => length,
                None => match frame(self.pending.get(used..).unwrap_or_default())? {
                    Some(length) => {
                        used += FRAME;
                        length
                    }
                    None => {
                        self.began = Some(began);
                        return Ok(used);
                    }
                },
            };
            let rest = self.pending.get(used..).unwrap_or_default();
            let Some(data) = usize::try_from(length).ok().and_then(|n| rest.get(..n)) else {
                (self.began, self.length) = (Some(began), Some(length));
                return Ok(used);
            };
            used += data.len();
            self.taken += data.len() + ENTRY_BYTES;
            self.entries.push(Entry { data: Bytes::copy_from_slice(data), marker: began.text() });
            if self.is_full(max) || used >= self.pending.len() {
                return Ok(used);
            }
        }
    }
}

/// The length of the entry that begins here, when enough bytes are there to tell. EINVAL when none begins
/// here.
fn frame(bytes: &[u8]) -> Result<Option<u64>, Errno> {
    let Some((magic, rest)) = bytes.split_first_chunk::<2>() else { return Ok(None) };
    let Some((length, _)) = rest.split_first_chunk::<8>() else { return Ok(None) };
    if u16::from_le_bytes(*magic) != MAGIC {
        return Err(Errno::EINVAL);
    }
    Ok(Some(u64::from_le_bytes(*length)))
}

/// How many bytes of entries follow an offset in one piece, and whether they go on at the ring's start.
fn stretch(head: &Head, start: u64) -> (u64, bool) {
    let to_tail = head.tail.offset.wrapping_sub(start);
    if head.tail.offset > head.front.offset {
        (to_tail, false)
    } else if start >= head.front.offset {
        (head.end.wrapping_sub(start), true)
    } else if start <= head.tail.offset {
        (to_tail, false)
    } else {
        (0, false)
    }
}

/// Removes the entries in front of a marker, and zeroes their bytes. EINVAL for one that is not ahead of the
/// front, at most a round; whether it is behind the tail Ceph does not look.
pub(crate) fn remove(v: &mut dyn ObjectView, head: &mut Head, end: &[u8]) -> Result<(), Errno> {
    if head.is_empty() {
        return Ok(());
    }
    let (front, end) = (head.front, Marker::parse(end));
    if end.round == front.round && end.offset >= front.offset {
        zero(v, front.offset, end.offset - front.offset)?;
    } else if end.round == front.round.wrapping_add(1) && end.offset <= front.offset {
        zero(v, front.offset, head.end.wrapping_sub(front.offset))?;
        zero(v, head.start, end.offset.wrapping_sub(head.start))?;
    } else {
        return Err(Errno::EINVAL);
    }
    head.front = head.wrapped(end);
    Ok(())
}

fn zero(v: &mut dyn ObjectView, offset: u64, length: u64) -> Result<(), Errno> {
    if length == 0 { Ok(()) } else { v.zero(offset, length) }
}

//! The stored form of an onode: block places as runs, then one checksum per block.

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer};

use crate::onode::{MAX_OBJECT_BYTES, Onode, Slot, blocks_up_to};
use crate::written::Piece;

const SHARED: u8 = 1;

/// Slots with neighbouring indexes and neighbouring places.
#[derive(Default)]
struct SlotRun {
    index: u32,
    place: u32,
    len: u32,
}

impl Encode for Onode {
    fn encode(&self, w: &mut Writer) {
        w.envelope(2, 1, |w| {
            varint(w, self.size);
            w.u8(if self.shared { SHARED } else { 0 });
            varint(w, self.omap_id);
            bytes(w, &self.omap_header);
            varint(w, self.attrs.len() as u64);
            for (name, value) in &self.attrs {
                bytes(w, name);
                bytes(w, value);
            }
            let runs = slot_runs(self);
            varint(w, runs.len() as u64);
            let mut end = 0;
            for run in &runs {
                varint(w, u64::from(run.index - end));
                varint(w, u64::from(run.place));
                varint(w, u64::from(run.len));
                end = run.index + run.len;
            }
            self.mapped_slots().for_each(|(_, slot)| w.u32(slot.crc));
            varint(w, self.written.pieces().len() as u64);
            let mut block = 0;
            for piece in self.written.pieces() {
                varint(w, u64::from(piece.block - block));
                varint(w, u64::from(piece.span.0));
                varint(w, u64::from(piece.span.1 - piece.span.0));
                block = piece.block;
            }
        });
    }
}

fn slot_runs(o: &Onode) -> Vec<SlotRun> {
    let mut runs: Vec<SlotRun> = Vec::new();
    for (index, slot) in o.mapped_slots() {
        match runs.last_mut() {
            Some(r)
                if !slot.is_lost()
                    && r.index + r.len == index
                    && r.place.checked_add(r.len) == Some(slot.place) =>
            {
                r.len += 1;
            }
            _ => runs.push(SlotRun { index, place: slot.place, len: 1 }),
        }
    }
    runs
}

impl Decode for Onode {
    const MIN_SIZE: usize = 12;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("onode", 2, |r, envelope| {
            let mut o = Self::with_size(read_varint(r)?);
            if o.size > MAX_OBJECT_BYTES {
                return Err(DecodeError::TooLarge {
                    what: "object size",
                    claimed: o.size,
                    bound: MAX_OBJECT_BYTES,
                });
            }
            o.shared = r.u8()? & SHARED != 0;
            o.omap_id = read_varint(r)?;
            o.omap_header = read_bytes(r)?;
            let attrs = bounded_count(r, "attributes", 2)?;
            for _ in 0..attrs {
                let entry = (read_bytes(r)?, read_bytes(r)?);
                if o.attrs.last().is_some_and(|last| last.0 >= entry.0) {
                    return Err(DecodeError::Invalid { what: "attribute order", value: 0 });
                }
                o.attrs.push(entry);
            }
            decode_slots(r, &mut o)?;
            if envelope.version >= 2 {
                decode_written(r, &mut o)?;
            }
            Ok(o)
        })
    }
}

fn decode_slots(r: &mut Reader, o: &mut Onode) -> Result<(), DecodeError> {
    let runs = bounded_count(r, "block runs", 3)?;
    let mut table = Vec::with_capacity(runs);
    let (mut end, mut blocks) = (0u64, 0u64);
    for _ in 0..runs {
        let (gap, place, len) = (read_varint(r)?, read_varint(r)?, read_varint(r)?);
        let index = end.saturating_add(gap);
        end = index.saturating_add(len);
        blocks = blocks.saturating_add(len);
        let last_place = place.saturating_add(len).saturating_sub(1);
        if place == 0 || last_place > u64::from(u32::MAX) || end > u64::from(blocks_up_to(o.size)) {
            return Err(DecodeError::Invalid { what: "block run", value: place });
        }
        table.push(SlotRun { index: index as u32, place: place as u32, len: len as u32 });
    }
    let bound = (r.remaining() / 4) as u64;
    if blocks > bound {
        return Err(DecodeError::TooLarge { what: "blocks", claimed: blocks, bound });
    }
    for run in table {
        for i in 0..run.len {
            o.set_slot(run.index + i, Slot { place: run.place.saturating_add(i), crc: r.u32()? });
        }
    }
    Ok(())
}

fn decode_written(r: &mut Reader, o: &mut Onode) -> Result<(), DecodeError> {
    let mut block = 0u32;
    for _ in 0..bounded_count(r, "pieces of blocks", 3)? {
        let (gap, start, len) = (read_varint(r)?, read_varint(r)?, read_varint(r)?);
        let invalid = DecodeError::Invalid { what: "piece of a block", value: start };
        block = u32::try_from(u64::from(block).saturating_add(gap)).map_err(|_| invalid.clone())?;
        let span = u16::try_from(start).ok().zip(u16::try_from(start.saturating_add(len)).ok());
        let piece = Piece { block, span: span.ok_or(invalid.clone())? };
        if o.slot(block).is_hole() || !o.written.push(piece) {
            return Err(invalid);
        }
    }
    Ok(())
}

fn bounded_count(r: &mut Reader, what: &'static str, min_size: usize) -> Result<usize, DecodeError> {
    let claimed = read_varint(r)?;
    let bound = (r.remaining() / min_size) as u64;
    if claimed > bound {
        return Err(DecodeError::TooLarge { what, claimed, bound });
    }
    Ok(claimed as usize)
}

/// Seven bits a byte, the lowest first; the top bit says that more follow.
pub(crate) fn varint(w: &mut Writer, mut v: u64) {
    while v >= 0x80 {
        w.u8(v as u8 | 0x80);
        v >>= 7;
    }
    w.u8(v as u8);
}

pub(crate) fn read_varint(r: &mut Reader) -> Result<u64, DecodeError> {
    let mut v = 0u64;
    for shift in (0..64).step_by(7) {
        let b = r.u8()?;
        let bits = u64::from(b & 0x7f);
        if shift == 63 && bits > 1 {
            break;
        }
        v |= bits << shift;
        if b & 0x80 == 0 {
            return Ok(v);
        }
    }
    Err(DecodeError::Invalid { what: "varint", value: v })
}

fn bytes(w: &mut Writer, b: &[u8]) {
    varint(w, b.len() as u64);
    w.raw(b);
}

/// A copy, so that an onode in the cache does not keep its whole page in memory.
fn read_bytes(r: &mut Reader) -> Result<Bytes, DecodeError> {
    let n = bounded_count(r, "bytes", 1)?;
    Ok(Bytes::copy_from_slice(&r.raw(n)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Onode {
        let mut o = Onode::with_size(3_000_000);
        (o.omap_id, o.shared) = (300, true);
        o.omap_header = Bytes::from_static(b"header");
        o.set_attr(b"_", b"info");
        o.set_attr(b"snapset", b"");
        for (i, place) in [(0, 10), (1, 11), (2, 12), (3, 14), (700, 13), (701, 5)] {
            o.set_slot(i, Slot { place, crc: place * 3 });
        }
        o.set_slot(702, Slot::LOST);
        o.set_slot(703, Slot::LOST);
        o.written.set(2, &[(5, 9), (300, 4096)]);
        o.written.set(701, &[(0, 1)]);
        o
    }

    #[test]
    fn comes_back_and_truncation_is_an_error() {
        let raw = sample().to_bytes();
        assert_eq!(Onode::from_bytes(raw.clone()), Ok(sample()));
        for n in 0..raw.len() {
            assert!(Onode::from_bytes(raw.slice(..n)).is_err(), "{n}");
        }
    }

    #[test]
    fn damaged_bytes_never_panic() {
        let raw = sample().to_bytes();
        for at in 0..raw.len() {
            for v in [0, 0x7f, 0x80, 0xff] {
                let mut bad = raw.to_vec();
                bad[at] = v;
                if let Ok(o) = Onode::from_bytes(bad) {
                    o.assert_invariants();
                }
            }
        }
    }

    #[test]
    fn a_contiguous_object_takes_little_more_than_its_checksums() {
        let mut o = Onode::with_size(4 << 20);
        for i in 0..1024 {
            o.set_slot(i, Slot { place: 5000 + i, crc: i });
        }
        assert!(o.to_bytes().len() < 4096 + 32);
    }

    #[test]
    fn varints_come_back() {
        for v in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX] {
            let mut w = Writer::new();
            varint(&mut w, v);
            assert_eq!(read_varint(&mut Reader::new(w.into_bytes())), Ok(v));
        }
        assert!(read_varint(&mut Reader::new(Bytes::from_static(&[0xff; 10]))).is_err());
    }
}

//! Pages of the metadata tree: sorted entries in one buffer, read in place.
//!
//! A page has the length its content needs: about 8 KiB, more when one entry alone is larger. The reference to a page
//! carries its checksum, so an old, foreign or misplaced page never verifies.

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer};

use crate::alloc::{Run, count_blocks};
use crate::checksum::{BLOCK, placed_crc};
use crate::{Corruption, Device, StoreError};

/// Pages are cut before they grow above this, unless one entry alone does.
pub(crate) const PAGE_TARGET: usize = 2 * BLOCK;
/// Kind, padding and entry count.
const HEAD: usize = 8;
/// What one entry costs beside its key and value: its place in the offset table and two lengths.
pub(crate) const ENTRY_OVERHEAD: usize = 12;

/// Where a page is, how long, and what it must hash to; and sums over the subtree under it.
///
/// A page may have a second copy: then `runs` has twice as many blocks as `len` needs, those of the copy behind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PageRef {
    pub(crate) runs: Vec<Run>,
    /// Bytes in use; the rest of the last block is zero.
    pub(crate) len: u32,
    pub(crate) crc: u32,
    pub(crate) sums: Sums,
}

/// Totals of a subtree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Sums {
    /// Keys and values of omaps, in bytes.
    pub(crate) omap_bytes: u64,
    /// Leaf pages.
    pub(crate) leaves: u64,
}

impl Sums {
    pub(crate) fn add(&mut self, other: Self) {
        self.omap_bytes += other.omap_bytes;
        self.leaves += other.leaves;
    }
}

impl PageRef {
    /// First block: what names the page in caches and errors.
    pub(crate) fn block(&self) -> u32 {
        self.runs.first().map_or(0, |r| r.start)
    }

    pub(crate) fn blocks(&self) -> u32 {
        self.runs.iter().map(|r| r.len).sum()
    }

    /// Blocks of one copy.
    fn copy_blocks(&self) -> u32 {
        (self.len as usize).div_ceil(BLOCK) as u32
    }

    /// Blocks of the second copy.
    pub(crate) fn mirror_blocks(&self) -> u32 {
        self.blocks() - self.copy_blocks().min(self.blocks())
    }

    /// Where a copy is: of the first, 0, or the second, 1.
    fn copy(&self, which: u32) -> Vec<Run> {
        let (mut skip, mut left) = (which * self.copy_blocks(), self.copy_blocks());
        let mut runs = Vec::with_capacity(1);
        for run in &self.runs {
            let passed = skip.min(run.len);
            let n = left.min(run.len - passed);
            skip -= passed;
            left -= n;
            if n > 0 {
                runs.push(Run::new(run.start + passed, n));
            }
        }
        runs
    }

    /// `(offset, length)` in bytes of the pieces of its first copy.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = (u64, u64)> {
        self.copy(0).into_iter().map(|run| (run.byte_offset(), u64::from(run.len) * BLOCK as u64))
    }

    fn corrupt(&self) -> StoreError {
        Corruption::Page { block: u64::from(self.block()) }.into()
    }

    /// Reads and verifies the page; the second copy when the first is bad.
    pub(crate) fn read(&self, device: &dyn Device) -> Result<Page, StoreError> {
        self.read_any(device).map(|(page, _)| page)
    }

    /// The same; also whether the first copy is bad.
    pub(crate) fn read_any(&self, device: &dyn Device) -> Result<(Page, bool), StoreError> {
        match self.read_copy(device, 0) {
            Ok(page) => Ok((page, false)),
            Err(_) if self.mirror_blocks() > 0 => self.read_copy(device, 1).map(|page| (page, true)),
            Err(e) => Err(e),
        }
    }

    /// Whether every copy there is proves itself.
    pub(crate) fn is_whole(&self, device: &dyn Device) -> bool {
        let copies = if self.mirror_blocks() > 0 { 2 } else { 1 };
        (0..copies).all(|which| self.read_copy(device, which).is_ok())
    }

    /// Writes a good copy over a bad one. Nothing hangs on it: a failure leaves the bad copy bad.
    pub(crate) fn mend(&self, device: &dyn Device) {
        let Ok(page) = self.read(device) else { return };
        let mut raw = page.raw.to_vec();
        raw.resize(self.copy_blocks() as usize * BLOCK, 0);
        for which in (0..2).filter(|which| self.read_copy(device, *which).is_err()) {
            let mut rest = raw.as_slice();
            for run in self.copy(which) {
                let (piece, behind) = rest.split_at(run.len as usize * BLOCK);
                let _ = device.write_at(run.byte_offset(), piece);
                rest = behind;
            }
        }
    }

    fn read_copy(&self, device: &dyn Device, which: u32) -> Result<Page, StoreError> {
        let (runs, blocks) = (self.copy(which), self.copy_blocks());
        if count_blocks(&runs) != u64::from(blocks) || blocks == 0 {
            return Err(self.corrupt());
        }
        let mut raw = vec![0u8; blocks as usize * BLOCK];
        let mut rest = raw.as_mut_slice();
        for run in &runs {
            let (piece, tail) = rest.split_at_mut(run.len as usize * BLOCK);
            device.read_at(run.byte_offset(), piece)?;
            rest = tail;
        }
        raw.truncate(self.len as usize);
        if placed_crc(self.block(), &raw) != self.crc {
            return Err(self.corrupt());
        }
        Page::parse(raw.into()).ok_or_else(|| self.corrupt())
    }
}

impl Encode for PageRef {
    fn encode(&self, w: &mut Writer) {
        w.u32(self.len);
        w.u32(self.crc);
        w.u64(self.sums.omap_bytes);
        w.u64(self.sums.leaves);
        w.u16(self.runs.len() as u16);
        for run in &self.runs {
            w.u32(run.start);
            w.u32(run.len);
        }
    }
}
impl Decode for PageRef {
    const MIN_SIZE: usize = 26;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        let (len, crc) = (r.u32()?, r.u32()?);
        let sums = Sums { omap_bytes: r.u64()?, leaves: r.u64()? };
        let n = r.u16()?;
        let mut blocks = 0u64;
        let runs = (0..n)
            .map(|_| {
                let run = Run::new(r.u32()?, r.u32()?);
                blocks += u64::from(run.len);
                Ok(run)
            })
            .collect::<Result<_, _>>()?;
        let one = u64::from(len).div_ceil(BLOCK as u64);
        if blocks != one && blocks != 2 * one {
            return Err(DecodeError::Invalid { what: "page length", value: blocks });
        }
        Ok(Self { runs, len, crc, sums })
    }
}

/// A verified page: kind and count, a table of entry offsets, then the entries in key order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Page {
    raw: Bytes,
    /// 0 for a leaf, whose values are the tree's; above, values are references to pages one level down.
    level: u8,
    count: u32,
}

impl Page {
    pub(crate) fn parse(raw: Bytes) -> Option<Self> {
        let head: [u8; HEAD] = *raw.first_chunk()?;
        let [level, 0, 0, 0, count @ ..] = head else { return None };
        let count = u32::from_le_bytes(count);
        let page = Self { raw, level, count };
        // Every entry must lie in the buffer, so that later accesses only fail on a wrong index.
        (page.count as usize <= page.raw.len() / 4 && (0..count).all(|i| page.entry(i).is_some()))
            .then_some(page)
    }

    pub(crate) fn level(&self) -> u8 {
        self.level
    }

    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    pub(crate) fn weight(&self) -> usize {
        self.raw.len() + 64
    }

    /// Offset of the key, and lengths of key and value.
    fn locate(&self, i: u32) -> Option<(usize, usize, usize)> {
        let at = self.u32_at(HEAD + 4 * i as usize)? as usize;
        let (key_len, value_len) = (self.u32_at(at)? as usize, self.u32_at(at.checked_add(4)?)? as usize);
        Some((at.checked_add(8)?, key_len, value_len))
    }

    fn u32_at(&self, at: usize) -> Option<u32> {
        self.raw.get(at..at.checked_add(4)?)?.first_chunk().map(|b| u32::from_le_bytes(*b))
    }

    pub(crate) fn key(&self, i: u32) -> Option<&[u8]> {
        if i >= self.count {
            return None;
        }
        let (at, key_len, _) = self.locate(i)?;
        self.raw.get(at..at.checked_add(key_len)?)
    }

    pub(crate) fn key_bytes(&self, i: u32) -> Option<Bytes> {
        self.key(i).map(|k| self.raw.slice_ref(k))
    }

    pub(crate) fn value(&self, i: u32) -> Option<Bytes> {
        self.value_in_place(i).map(|v| self.raw.slice_ref(v))
    }

    fn value_in_place(&self, i: u32) -> Option<&[u8]> {
        if i >= self.count {
            return None;
        }
        let (at, key_len, value_len) = self.locate(i)?;
        let start = at.checked_add(key_len)?;
        self.raw.get(start..start.checked_add(value_len)?)
    }

    /// Key and value.
    pub(crate) fn entry(&self, i: u32) -> Option<(&[u8], &[u8])> {
        if i >= self.count {
            return None;
        }
        let (at, key_len, value_len) = self.locate(i)?;
        let start = at.checked_add(key_len)?;
        Some((self.raw.get(at..start)?, self.raw.get(start..start.checked_add(value_len)?)?))
    }

    /// Index of the first entry whose key is at or above `key`.
    pub(crate) fn lower_bound(&self, key: &[u8]) -> u32 {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = (low + high) / 2;
            if self.key(middle).is_some_and(|k| k < key) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    pub(crate) fn find(&self, key: &[u8]) -> Option<Bytes> {
        let i = self.lower_bound(key);
        if self.key(i)? == key { self.value(i) } else { None }
    }

    /// Index of the child whose range holds `key`: the last one that starts at or below it, else the first.
    pub(crate) fn child_for(&self, key: &[u8]) -> u32 {
        let i = self.lower_bound(key);
        if self.key(i).is_some_and(|k| k == key) { i } else { i.saturating_sub(1) }
    }

    /// The reference at index `i` of an inner page.
    pub(crate) fn child(&self, i: u32) -> Result<PageRef, StoreError> {
        let raw = self.value(i).unwrap_or_default();
        PageRef::from_bytes(raw).map_err(|_| Corruption::Value { what: "page reference" }.into())
    }

    /// First block of the child at index `i`, without the rest of the reference: enough to find it in a cache.
    pub(crate) fn child_block(&self, i: u32) -> Option<u32> {
        let start = self.value_in_place(i)?.get(PageRef::MIN_SIZE..)?.first_chunk()?;
        Some(u32::from_le_bytes(*start))
    }
}

/// Collects sorted entries into a page.
#[derive(Debug)]
pub(crate) struct PageBuilder {
    level: u8,
    offsets: Vec<u32>,
    entries: Vec<u8>,
    first_key: Bytes,
    pub(crate) sums: Sums,
}

impl PageBuilder {
    pub(crate) fn new(level: u8) -> Self {
        Self {
            level,
            offsets: Vec::new(),
            entries: Vec::new(),
            first_key: Bytes::new(),
            sums: Sums::default(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.offsets.is_empty()
    }

    pub(crate) fn count(&self) -> usize {
        self.offsets.len()
    }

    /// Length the page would have now.
    pub(crate) fn len(&self) -> usize {
        HEAD + 4 * self.offsets.len() + self.entries.len()
    }

    pub(crate) fn push(&mut self, key: &[u8], value: &[u8]) {
        if self.is_empty() {
            self.first_key = Bytes::copy_from_slice(key);
        }
        self.offsets.push(self.entries.len() as u32);
        self.entries.reserve(8 + key.len() + value.len());
        self.entries.extend_from_slice(&(key.len() as u32).to_le_bytes());
        self.entries.extend_from_slice(&(value.len() as u32).to_le_bytes());
        self.entries.extend_from_slice(key);
        self.entries.extend_from_slice(value);
    }

    /// The page's bytes and first key; the builder is empty afterwards.
    pub(crate) fn take(&mut self) -> (Bytes, Bytes, Sums) {
        let table = HEAD + 4 * self.offsets.len();
        let mut raw = Vec::with_capacity(self.len());
        raw.extend_from_slice(&[self.level, 0, 0, 0]);
        raw.extend_from_slice(&(self.offsets.len() as u32).to_le_bytes());
        for at in &self.offsets {
            raw.extend_from_slice(&(table as u32 + at).to_le_bytes());
        }
        raw.append(&mut self.entries);
        self.offsets.clear();
        (std::mem::take(&mut self.first_key), raw.into(), std::mem::take(&mut self.sums))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Bytes {
        let mut b = PageBuilder::new(0);
        for k in ["b", "d", "dd", "f"] {
            b.push(k.as_bytes(), k.to_uppercase().as_bytes());
        }
        b.take().1
    }

    #[test]
    fn entries_are_found_by_key() {
        let p = Page::parse(sample()).expect("own page");
        assert_eq!((p.level(), p.count()), (0, 4));
        assert_eq!(p.find(b"dd").as_deref(), Some(&b"DD"[..]));
        assert_eq!(p.find(b"c"), None);
        let children: Vec<u32> =
            ["a", "b", "c", "d", "e", "z"].iter().map(|k| p.child_for(k.as_bytes())).collect();
        assert_eq!(children, vec![0, 0, 0, 1, 2, 3]);
    }

    #[test]
    fn a_childs_first_block_is_that_of_its_reference() {
        let r =
            PageRef { runs: vec![Run::new(7, 1), Run::new(9, 1)], len: 5000, crc: 3, sums: Sums::default() };
        let mut b = PageBuilder::new(1);
        b.push(b"a", &r.to_bytes());
        b.push(b"b", b"short");
        let p = Page::parse(b.take().1).expect("own page");
        assert_eq!((p.child(0).ok(), p.child_block(0)), (Some(r), Some(7)));
        assert_eq!((p.child(1).ok(), p.child_block(1), p.child_block(2)), (None, None, None));
    }

    #[test]
    fn damaged_pages_parse_or_not_but_never_panic() {
        let whole = sample();
        for n in 0..whole.len() {
            assert_eq!(Page::parse(whole.slice(..n)), None, "{n}");
        }
        for at in 0..whole.len() {
            for bit in 0..8 {
                let mut raw = whole.to_vec();
                raw[at] ^= 1 << bit;
                if let Some(p) = Page::parse(raw.into()) {
                    p.find(b"dd");
                    let _ = (p.child(0), p.child_block(0));
                }
            }
        }
    }
}

//! A block device in memory with a volatile write cache, crashes, failures, rot, lost and misdirected writes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use store::{Device, DeviceError, DeviceOp};

use crate::Rng;
use crate::crash::Epoch;

const PAGE: usize = 4096;
/// Pages of which it is kept what they held before.
const OLDER_PAGES: usize = 4_096;
const EIO: i32 = 5;

/// The medium's content, of whole pages; cloning shares them, and what is written whole shares the writer's
/// memory.
#[derive(Clone)]
pub(crate) struct Image {
    /// A chunk that is not there is all zeros. Crashes copy images, of which hardly anything was written.
    chunks: Vec<Option<Arc<Chunk>>>,
}

/// A page that is not there is all zeros.
type Chunk = [Option<Bytes>; CHUNK_PAGES];

const CHUNK_PAGES: usize = 64;
const EMPTY: Chunk = [const { None }; CHUNK_PAGES];
/// What is read of pages that are not there.
static ZEROS: [u8; 4 << 20] = [0; 4 << 20];

impl Image {
    fn new(len: u64) -> Self {
        Self { chunks: vec![None; len.div_ceil((CHUNK_PAGES * PAGE) as u64) as usize] }
    }

    fn page(&self, index: usize) -> Option<&Bytes> {
        self.chunks[index / CHUNK_PAGES].as_ref()?[index % CHUNK_PAGES].as_ref()
    }

    fn put(&mut self, index: usize, page: Option<Bytes>) {
        let chunk = &mut self.chunks[index / CHUNK_PAGES];
        if page.is_some() || chunk.is_some() {
            Arc::make_mut(chunk.get_or_insert_with(|| Arc::new(EMPTY)))[index % CHUNK_PAGES] = page;
        }
    }

    fn read(&self, offset: u64, out: &mut [u8]) {
        let mut at = offset as usize;
        let mut rest = out;
        while !rest.is_empty() {
            let inside = at % PAGE;
            let n = rest.len().min(PAGE - inside);
            let (piece, tail) = rest.split_at_mut(n);
            match self.page(at / PAGE) {
                Some(page) => piece.copy_from_slice(&page[inside..inside + n]),
                None => piece.fill(0),
            }
            rest = tail;
            at += n;
        }
    }

    /// As `read`, appending.
    fn append(&self, offset: u64, len: usize, out: &mut Vec<u8>) {
        let (mut at, end) = (offset as usize, offset as usize + len);
        while at < end {
            let inside = at % PAGE;
            let n = (end - at).min(PAGE - inside);
            match self.page(at / PAGE) {
                Some(page) => out.extend_from_slice(&page[inside..inside + n]),
                None => out.resize(out.len() + n, 0),
            }
            at += n;
        }
    }

    /// A range of whole pages that are all zeros, without a copy.
    fn zeros(&self, offset: u64, len: usize) -> Option<Bytes> {
        let mut pages = offset as usize / PAGE..(offset as usize + len).div_ceil(PAGE);
        let is_zero = len <= ZEROS.len() && pages.all(|page| self.page(page).is_none());
        is_zero.then(|| Bytes::from_static(&ZEROS[..len]))
    }

    pub(crate) fn write(&mut self, offset: u64, data: &Bytes) {
        let (mut at, mut from) = (offset as usize, 0);
        while from < data.len() {
            let inside = at % PAGE;
            let n = (data.len() - from).min(PAGE - inside);
            let piece = &data[from..from + n];
            let page = if n < PAGE {
                let mut changed = self.page(at / PAGE).map_or_else(|| vec![0; PAGE], |page| page.to_vec());
                changed[inside..inside + n].copy_from_slice(piece);
                Some(changed.into())
            } else if *piece == ZEROS[..PAGE] {
                // Zeros take no memory: a log is formatted with them.
                None
            } else {
                Some(data.slice(from..from + n))
            };
            self.put(at / PAGE, page);
            from += n;
            at += n;
        }
    }

    /// The same page all over a range, of which every byte is one; whole pages of it share its memory.
    fn fill(&mut self, offset: u64, len: u64, page: &Bytes) {
        let whole = offset.next_multiple_of(PAGE as u64)..(offset + len) / PAGE as u64 * PAGE as u64;
        if whole.is_empty() {
            let first = (len as usize).min(PAGE);
            self.write(offset, &page.slice(..first));
            return self.write(offset + first as u64, &page.slice(..len as usize - first));
        }
        self.write(offset, &page.slice(..(whole.start - offset) as usize));
        for index in whole.start as usize / PAGE..whole.end as usize / PAGE {
            self.put(index, Some(page.clone()));
        }
        self.write(whole.end, &page.slice(..(offset + len - whole.end) as usize));
    }

    /// Takes over the pages of a range from another image, sharing them.
    fn share(&mut self, other: &Self, offset: u64, len: usize) {
        for index in offset as usize / PAGE..(offset as usize + len).div_ceil(PAGE) {
            self.put(index, other.page(index).cloned());
        }
    }
}

/// A write that reached the device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// Bytes from the start of the device.
    pub offset: u64,
    pub data: Bytes,
}

impl Write {
    /// Whether any of it lies in the range.
    fn meets(&self, offset: u64, len: u64) -> bool {
        self.offset < offset + len && offset < self.offset + self.data.len() as u64
    }

    /// What is left of it outside a range of whole sectors.
    fn without(self, offset: u64, len: u64) -> Vec<Self> {
        let (start, end) = (self.offset, self.offset + self.data.len() as u64);
        let (from, to) = (offset.clamp(start, end), (offset + len).clamp(start, end));
        if from >= to {
            return vec![self];
        }
        let piece = |a: u64, b: u64| Self {
            offset: a,
            data: self.data.slice((a - start) as usize..(b - start) as usize),
        };
        [(start, from), (to, end)].into_iter().filter(|(a, b)| a < b).map(|(a, b)| piece(a, b)).collect()
    }

    /// Number of atomic sectors of the given size.
    pub fn sectors(&self, sector: usize) -> usize {
        self.data.len().div_ceil(sector)
    }
}

/// What becomes of an unsynced write in a crash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    Kept,
    Lost,
    /// The sectors for which the function of their index is true are kept.
    Torn(Vec<bool>),
}

/// A simulated device. Reads see all writes; a crash keeps what was flushed and any part of what was not.
pub struct SimDevice {
    state: Mutex<State>,
    len: u64,
    sector: usize,
}

#[derive(Clone)]
struct State {
    stable: Image,
    current: Image,
    unsynced: Vec<Write>,
    counts: BTreeMap<u8, u64>,
    faults: Vec<Fault>,
    /// The last of so many writes to the cache gets lost on its way to the medium.
    drop_after: Option<u64>,
    /// One was, and no flush has found out yet.
    dropped: bool,
    /// Flushes that found out so far, and how many of them each handle was told of.
    failures: u64,
    told: BTreeMap<usize, u64>,
    record: bool,
    epochs: Vec<Epoch>,
    /// Whether reads have to wait for the medium.
    is_slow: bool,
    /// What discards have left so far, as long as the longest of them.
    junk: Bytes,
    /// What pages held before they were written last, if that is kept.
    older: Option<BTreeMap<usize, Bytes>>,
}

impl State {
    /// A write as reads see it.
    fn put(&mut self, offset: u64, data: &Bytes) {
        if let Some(older) = &mut self.older {
            for index in offset as usize / PAGE..(offset as usize + data.len()).div_ceil(PAGE) {
                match self.current.page(index) {
                    Some(page) => drop(older.insert(index, page.clone())),
                    None => drop(older.remove(&index)),
                }
            }
            while older.len() > OLDER_PAGES {
                older.pop_first();
            }
        }
        self.current.write(offset, data);
    }
}

#[derive(Debug, Clone)]
struct Fault {
    op: DeviceOp,
    /// Fires at this call of the operation, counted from 1; `None` on every one from now on.
    nth: Option<u64>,
    kind: FaultKind,
}

#[derive(Debug, Clone)]
enum FaultKind {
    Fail,
    /// Acknowledged, never stored.
    LoseWrite,
    /// Stored elsewhere.
    Misdirect(u64),
}

impl SimDevice {
    pub fn new(len: u64) -> Self {
        Self::with_sector(len, 512)
    }

    /// A device whose atomic unit has `sector` bytes.
    pub fn with_sector(len: u64, sector: usize) -> Self {
        let image = Image::new(len);
        Self::from_image(image, len, sector)
    }

    pub(crate) fn from_image(image: Image, len: u64, sector: usize) -> Self {
        let state = State {
            stable: image.clone(),
            current: image,
            unsynced: Vec::new(),
            counts: BTreeMap::new(),
            faults: Vec::new(),
            drop_after: None,
            dropped: false,
            failures: 0,
            told: BTreeMap::new(),
            record: false,
            epochs: Vec::new(),
            is_slow: false,
            junk: Bytes::new(),
            older: None,
        };
        Self { state: Mutex::new(state), len, sector }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Whether reads have to wait for the medium from now on: nothing is read at once.
    pub fn set_slow(&self, slow: bool) {
        self.state().is_slow = slow;
    }

    /// Keeps what pages held before they were written last, of some thousand pages.
    pub fn keep_older(&self) {
        self.state().older.get_or_insert_default();
    }

    /// What a page would hold if the last write to it had never come; `None` where that is not known.
    pub fn older(&self, offset: u64) -> Option<Bytes> {
        self.state().older.as_ref()?.get(&(offset as usize / PAGE)).cloned()
    }

    pub fn sector(&self) -> usize {
        self.sector
    }

    /// An independent device with the same content and the same unsynced writes, without faults; shares memory.
    pub fn fork(&self) -> Self {
        let mut state = self.state().clone();
        state.faults.clear();
        state.epochs.clear();
        state.record = false;
        Self { state: Mutex::new(state), len: self.len, sector: self.sector }
    }

    /// Writes since the last flush, in order.
    pub fn unsynced(&self) -> Vec<Write> {
        self.state().unsynced.clone()
    }

    /// The device after a power loss now: each unsynced write has the given fate; they are applied in the given order.
    pub fn crash(&self, fates: &[Fate], order: &[usize]) -> Self {
        let state = self.state();
        let epoch = Epoch { base: state.stable.clone(), writes: state.unsynced.clone() };
        let after = epoch.crash(self.len, self.sector, fates, order);
        after.state().older.clone_from(&state.older);
        after
    }

    /// The device after a power loss now that loses everything that was not flushed.
    pub fn after_the_worst(&self) -> Self {
        Self::from_image(self.state().stable.clone(), self.len, self.sector)
    }

    /// A power loss that keeps, loses and tears unsynced writes at random, in random order.
    pub fn crash_randomly(&self, rng: &mut Rng) -> Self {
        let writes = self.unsynced();
        let fates: Vec<Fate> = writes
            .iter()
            .map(|w| match rng.below(3) {
                0 => Fate::Kept,
                1 => Fate::Lost,
                _ => Fate::Torn((0..w.sectors(self.sector)).map(|_| rng.one_in(2)).collect()),
            })
            .collect();
        let mut order: Vec<usize> = (0..writes.len()).collect();
        for i in (1..order.len()).rev() {
            order.swap(i, rng.below(i as u64 + 1) as usize);
        }
        self.crash(&fates, &order)
    }

    /// Whether both hold the same bytes, as reads see them.
    pub fn same_content(&self, other: &Self) -> bool {
        let mut a = vec![0; self.len as usize];
        let mut b = vec![0; other.len as usize];
        self.state().current.read(0, &mut a);
        other.state().current.read(0, &mut b);
        a == b
    }

    /// Starts (or stops) keeping the writes between flushes.
    pub fn record(&self, on: bool) {
        let mut state = self.state();
        state.record = on;
        state.epochs.clear();
    }

    /// What was written before each flush since recording began, oldest first.
    pub fn take_epochs(&self) -> Vec<Epoch> {
        std::mem::take(&mut self.state().epochs)
    }

    /// Lets the `nth` next call (from 1) of an operation fail with EIO.
    pub fn fail_nth(&self, op: DeviceOp, nth: u64) {
        self.add_fault(op, Some(nth), FaultKind::Fail);
    }

    /// Lets every further call of an operation fail with EIO.
    pub fn fail_always(&self, op: DeviceOp) {
        self.state().faults.push(Fault { op, nth: None, kind: FaultKind::Fail });
    }

    /// Lets the `nth` next write be acknowledged but never stored.
    pub fn lose_write(&self, nth: u64) {
        self.add_fault(DeviceOp::Write, Some(nth), FaultKind::LoseWrite);
    }

    /// Lets the `nth` next write land at `offset` instead.
    pub fn misdirect_write(&self, nth: u64, offset: u64) {
        self.add_fault(DeviceOp::Write, Some(nth), FaultKind::Misdirect(offset));
    }

    /// Lets the `nth` next write to the cache (from 1) get lost on its way to the medium, which flushes tell: each handle's
    /// next one, once, as Linux does.
    pub fn drop_write(&self, nth: u64) {
        self.state().drop_after = Some(nth);
    }

    /// Whether a write was dropped that some handle's flush will tell of.
    pub fn owes_an_error(&self) -> bool {
        let state = self.state();
        state.dropped || state.failures > 0
    }

    /// Flushes through one of several handles of the device.
    pub fn flush_through(&self, handle: usize) -> Result<(), DeviceError> {
        let flushed = self.flush();
        let mut state = self.state();
        if std::mem::take(&mut state.dropped) {
            state.failures += 1;
        }
        let failures = state.failures;
        let told = state.told.entry(handle).or_default();
        if std::mem::replace(told, failures) < failures {
            return Err(DeviceError::Io { op: DeviceOp::Flush, offset: 0, len: 0, errno: EIO });
        }
        flushed
    }

    /// Writes and makes this one write durable, past the cache; others wait for a flush as before.
    pub fn write_through(&self, offset: u64, data: &Bytes) -> Result<(), DeviceError> {
        let mut state = self.state();
        let to = match self.begin(&mut state, DeviceOp::Write, offset, data.len() as u64)? {
            Some(FaultKind::LoseWrite) => return Ok(()),
            Some(FaultKind::Misdirect(to)) => to,
            _ => offset,
        };
        state.put(to, data);
        let State { stable, current, unsynced, .. } = &mut *state;
        stable.share(current, to, data.len());
        // What lay in the cache for the same place is older.
        if unsynced.iter().any(|w| w.meets(to, data.len() as u64)) {
            *unsynced = unsynced.drain(..).flat_map(|w| w.without(to, data.len() as u64)).collect();
        }
        Ok(())
    }

    /// `write_at` of data that is shared and not copied.
    pub fn write_shared(&self, offset: u64, data: Bytes) -> Result<(), DeviceError> {
        assert!(
            offset % 4096 == 0 && data.len() % 4096 == 0,
            "the store writes whole blocks: {offset} {}",
            data.len()
        );
        let mut state = self.state();
        let to = match self.begin(&mut state, DeviceOp::Write, offset, data.len() as u64)? {
            Some(FaultKind::LoseWrite) => return Ok(()),
            Some(FaultKind::Misdirect(to)) => to,
            _ => offset,
        };
        state.put(to, &data);
        state.drop_after = state.drop_after.map(|n| n.saturating_sub(1));
        if state.drop_after.take_if(|n| *n == 0).is_some() {
            state.dropped = true;
            return Ok(());
        }
        state.unsynced.push(Write { offset: to, data });
        Ok(())
    }

    /// A discard that takes effect at any time until the next flush, in any part of it; until then a power loss may leave what
    /// was there.
    pub fn discard_lazily(&self, offset: u64, len: u64, junk: u8) -> Result<(), DeviceError> {
        let mut state = self.state();
        self.begin(&mut state, DeviceOp::Discard, offset, len)?;
        if state.junk.len() < len as usize || state.junk.first() != Some(&junk) {
            state.junk = vec![junk; PAGE.max(len as usize)].into();
        }
        let page = state.junk.slice(..PAGE);
        state.current.fill(offset, len, &page);
        let data = state.junk.slice(..len as usize);
        state.unsynced.push(Write { offset, data });
        Ok(())
    }

    fn add_fault(&self, op: DeviceOp, nth: Option<u64>, kind: FaultKind) {
        let mut state = self.state();
        let done = state.counts.get(&(op as u8)).copied().unwrap_or(0);
        state.faults.push(Fault { op, nth: nth.map(|n| n + done), kind });
    }

    pub fn clear_faults(&self) {
        let mut state = self.state();
        state.faults.clear();
        state.drop_after = None;
    }

    /// Calls of an operation so far.
    pub fn calls(&self, op: DeviceOp) -> u64 {
        self.state().counts.get(&(op as u8)).copied().unwrap_or(0)
    }

    /// Changes one byte on the medium.
    pub fn flip(&self, offset: u64, mask: u8) {
        let mut state = self.state();
        let mut byte = [0];
        state.current.read(offset, &mut byte);
        byte[0] ^= mask;
        let byte = Bytes::copy_from_slice(&byte);
        state.current.write(offset, &byte);
        state.stable.write(offset, &byte);
    }

    /// Puts bytes on the medium that nobody wrote there: a misdirected write, or zeros for one that never
    /// came.
    pub fn overlay(&self, offset: u64, data: &Bytes) {
        let mut state = self.state();
        state.current.write(offset, data);
        state.stable.write(offset, data);
    }

    /// The bytes on the medium, as reads see them, without counting as a read.
    pub fn peek(&self, offset: u64, len: usize) -> Vec<u8> {
        let mut out = vec![0; len];
        self.state().current.read(offset, &mut out);
        out
    }

    fn begin(
        &self,
        state: &mut State,
        op: DeviceOp,
        offset: u64,
        len: u64,
    ) -> Result<Option<FaultKind>, DeviceError> {
        let count = state.counts.entry(op as u8).or_insert(0);
        *count += 1;
        let count = *count;
        if offset.checked_add(len).is_none_or(|end| end > self.len) {
            return Err(DeviceError::OutOfRange { op, offset, len });
        }
        let hit = state.faults.iter().find(|f| f.op == op && f.nth.is_none_or(|n| n == count));
        match hit.map(|f| f.kind.clone()) {
            Some(FaultKind::Fail) => Err(DeviceError::Io { op, offset, len, errno: EIO }),
            other => Ok(other),
        }
    }
}

impl Device for SimDevice {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        let mut state = self.state();
        self.begin(&mut state, DeviceOp::Read, offset, buf.len() as u64)?;
        state.current.read(offset, buf);
        Ok(())
    }

    fn read_append(&self, offset: u64, len: usize, out: &mut Vec<u8>) -> Result<(), DeviceError> {
        let mut state = self.state();
        self.begin(&mut state, DeviceOp::Read, offset, len as u64)?;
        state.current.append(offset, len, out);
        Ok(())
    }

    fn read_bytes(&self, offset: u64, len: usize) -> Result<Bytes, DeviceError> {
        let mut state = self.state();
        self.begin(&mut state, DeviceOp::Read, offset, len as u64)?;
        Ok(state.current.zeros(offset, len).unwrap_or_else(|| {
            let mut out = Vec::with_capacity(len);
            state.current.append(offset, len, &mut out);
            out.into()
        }))
    }

    fn read_at_once(&self, offset: u64, len: usize, out: &mut Vec<u8>) -> Result<bool, DeviceError> {
        if self.state().is_slow {
            return Ok(false);
        }
        self.read_append(offset, len, out).map(|()| true)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        self.write_shared(offset, Bytes::copy_from_slice(data))
    }

    fn flush(&self) -> Result<(), DeviceError> {
        let mut state = self.state();
        self.begin(&mut state, DeviceOp::Flush, 0, 0)?;
        let writes = std::mem::take(&mut state.unsynced);
        if state.record {
            let base = state.stable.clone();
            state.epochs.push(Epoch { base, writes: writes.clone() });
        }
        // What reads see is the medium and these writes on top of it.
        let State { stable, current, .. } = &mut *state;
        for w in &writes {
            stable.share(current, w.offset, w.data.len());
        }
        Ok(())
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        let mut state = self.state();
        self.begin(&mut state, DeviceOp::Discard, offset, len)?;
        // What is discarded may read as anything.
        let page = Bytes::from(vec![0xd5; PAGE]);
        state.current.fill(offset, len, &page);
        state.stable.fill(offset, len, &page);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(v: u8) -> Vec<u8> {
        vec![v; PAGE]
    }

    #[test]
    fn a_crash_keeps_flushed_writes_and_any_part_of_the_others() {
        let d = SimDevice::new(1 << 16);
        d.write_at(0, &page(1)).unwrap();
        d.flush().unwrap();
        d.write_at(0, &page(2)).unwrap();
        d.write_at(4096, &page(3)).unwrap();
        let torn = Fate::Torn((0..8).map(|i| i == 7).collect());
        let after = d.crash(&[Fate::Lost, torn], &[0, 1]);
        assert_eq!(
            (after.peek(0, 1), after.peek(4096 + 3583, 2), d.peek(0, 1)),
            (vec![1], vec![0, 3], vec![2])
        );
        assert!(d.crash(&[Fate::Kept, Fate::Kept], &[1, 0]).same_content(&d));
    }

    #[test]
    fn faults_fire_at_their_call() {
        let d = SimDevice::new(1 << 16);
        d.write_at(0, &page(1)).unwrap();
        d.fail_nth(DeviceOp::Write, 2);
        d.lose_write(3);
        d.misdirect_write(4, 8192);
        d.write_at(0, &page(2)).unwrap();
        assert!(d.write_at(0, &page(3)).is_err());
        d.write_at(0, &page(4)).unwrap();
        d.write_at(0, &page(5)).unwrap();
        assert_eq!((d.peek(0, 1), d.peek(8192, 1)), (vec![2], vec![5]));
        d.fail_always(DeviceOp::Flush);
        assert!(d.flush().is_err() && d.flush().is_err());
        assert_eq!(d.calls(DeviceOp::Write), 5);
        assert!(d.write_at(1 << 16, &page(1)).is_err());
    }

    #[test]
    fn what_pages_held_before_is_kept() {
        let d = SimDevice::new(1 << 26);
        d.write_at(0, &page(1)).unwrap();
        d.write_at(0, &page(2)).unwrap();
        assert_eq!(d.older(0), None, "nobody asked for it");
        d.keep_older();
        d.write_at(0, &page(3)).unwrap();
        d.write_through(4096, &page(4).into()).unwrap();
        assert_eq!((d.older(0), d.older(4096)), (Some(page(2).into()), None));
        d.flush().unwrap();
        d.write_at(0, &[page(5), page(6)].concat()).unwrap();
        let after = d.crash(&[Fate::Lost], &[0]);
        assert_eq!((after.older(0), after.older(4096)), (Some(page(3).into()), Some(page(4).into())));
        for index in 0..OLDER_PAGES as u64 + 9 {
            (7..9).for_each(|v| d.write_at(index * 4096, &page(v)).unwrap());
        }
        assert_eq!((d.older(0), d.older(OLDER_PAGES as u64 * 4096)), (None, Some(page(7).into())));
    }

    #[test]
    fn a_dropped_write_is_told_to_every_handle_once() {
        let d = SimDevice::new(1 << 16);
        d.write_at(0, &page(1)).unwrap();
        d.flush_through(0).unwrap();
        d.drop_write(1);
        d.write_at(0, &page(2)).unwrap();
        assert_eq!(d.peek(0, 1), [2]);
        assert!(d.flush_through(1).is_err() && d.flush_through(1).is_ok());
        assert!(d.flush_through(0).is_err() && d.flush_through(0).is_ok());
        assert!(d.owes_an_error());
        assert_eq!(d.after_the_worst().peek(0, 1), [1]);
    }

    #[test]
    fn a_write_past_the_cache_is_durable_and_no_other_is() {
        let d = SimDevice::new(1 << 16);
        let three = [page(1), page(2), page(3)].concat();
        d.write_at(0, &three).unwrap();
        d.write_through(4096, &page(9).into()).unwrap();
        assert_eq!(d.after_the_worst().peek(0, 3 * PAGE), [page(0), page(9), page(0)].concat());
        // The older write of that place does not come back.
        let offsets: Vec<u64> = d.unsynced().iter().map(|w| w.offset).collect();
        assert_eq!(offsets, [0, 8192]);
        let fates = [Fate::Kept, Fate::Kept];
        assert_eq!(d.crash(&fates, &[1, 0]).peek(0, 3 * PAGE), [page(1), page(9), page(3)].concat());
    }

    #[test]
    fn a_range_is_filled_whatever_pages_it_touches() {
        for (offset, len) in
            [(0, 4096), (0, 12_288), (100, 50), (100, 4096), (100, 9000), (4096, 5000), (5000, 0)]
        {
            let mut image = Image::new(1 << 15);
            image.write(0, &vec![1; 1 << 15].into());
            let mut wanted = vec![1; 1 << 15];
            image.fill(offset, len, &Bytes::from(vec![7; PAGE]));
            wanted[offset as usize..(offset + len) as usize].fill(7);
            let mut got = vec![0; 1 << 15];
            image.read(0, &mut got);
            assert!(got == wanted, "{offset} {len}");
        }
    }

    #[test]
    fn a_lazy_discard_is_undone_by_a_power_loss() {
        let d = SimDevice::new(1 << 16);
        d.write_through(0, &page(1).into()).unwrap();
        d.discard_lazily(0, 4096, 0xd5).unwrap();
        assert_eq!((d.peek(0, 1), d.after_the_worst().peek(0, 1)), (vec![0xd5], vec![1]));
        d.flush().unwrap();
        assert_eq!(d.after_the_worst().peek(0, 1), [0xd5]);
    }
}

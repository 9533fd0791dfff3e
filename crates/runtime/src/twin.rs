//! A bad medium for tests: a file whose process loses what it did not sync, and one that is slow.
//!
//! `kill -9` takes no written byte from the page cache, so it is no power loss. Here what is written stays in
//! the process's memory until it is synced, but for a random part of its sectors, which reaches the file at
//! once: what a kill leaves is what a disk without a battery leaves, some sectors new and some old, in any
//! order.
//!
//! A failure to write back is that of Linux: what was held never reaches the file, reads go on showing it,
//! each handle that was open is told of it once, by its next sync, and later syncs succeed. Source: Linux'
//! lib/errseq.c.
//!
//! Invariants:
//! 1. A read gives what was written last.
//! 2. When a sync returns without an error, everything whose write had returned before it began is in the
//!    file, but for what a failure took that this handle was told of earlier.
//! 3. A sector that is held is newer than the file's.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use store::{Device, DeviceError, DeviceOp};
use types::{Entropy, SeededEntropy};

use crate::device::{FileDevice, failed};

/// What a disk writes whole or not at all, in bytes.
const SECTOR: u64 = 512;
/// Sectors held at most; a disk's cache is bounded too.
const MAX_HELD: usize = 64 << 20 >> 9;

/// How bad the medium is. The default is as good as its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Twin {
    /// Seed of what is lost; `None` loses nothing.
    pub power_loss: Option<u64>,
    /// Added to each read, write and sync.
    pub delay: Duration,
    /// The sync, counted from 1 over all handles, at which the write-back fails; `None`: it never does.
    pub fail_sync: Option<u64>,
}

impl Twin {
    /// From text such as `power-loss=7,delay-ms=20,fail-sync=100`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut twin = Self::default();
        for word in text.split(',').filter(|w| !w.is_empty()) {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            let number: u64 = value.parse().map_err(|_| format!("{name} needs a number"))?;
            match name {
                "power-loss" => twin.power_loss = Some(number),
                "delay-ms" => twin.delay = Duration::from_millis(number),
                "fail-sync" => twin.fail_sync = Some(number),
                _ => return Err(format!("there is no {name:?}; there are power-loss, delay-ms, fail-sync")),
            }
        }
        Ok(twin)
    }
}

/// A file on a bad medium.
#[derive(Debug)]
pub struct TwinFile {
    file: File,
    delay: Duration,
    /// `None`: nothing is held.
    held: Option<Arc<Mutex<Held>>>,
    /// Failures that this handle was told of.
    told: AtomicU64,
}

#[derive(Debug)]
struct Held {
    /// By number. The last one of a file may be short.
    sectors: BTreeMap<u64, Vec<u8>>,
    /// What a failure took, as reads show it.
    ghosts: BTreeMap<u64, Vec<u8>>,
    /// `None`: all is held until it is synced.
    dice: Option<SeededEntropy>,
    syncs: u64,
    fail_sync: Option<u64>,
    failures: u64,
}

impl TwinFile {
    pub fn new(file: File, twin: Twin) -> Self {
        // Each life of a process loses something else.
        let dice = twin.power_loss.map(|seed| SeededEntropy(seed ^ u64::from(std::process::id()) << 32));
        let held = Held {
            sectors: BTreeMap::new(),
            ghosts: BTreeMap::new(),
            dice,
            syncs: 0,
            fail_sync: twin.fail_sync,
            failures: 0,
        };
        let is_bad = twin.power_loss.is_some() || twin.fail_sync.is_some();
        let held = is_bad.then(|| Arc::new(Mutex::new(held)));
        Self { file, delay: twin.delay, held, told: AtomicU64::new(0) }
    }

    /// The file opened once more, by `file`.
    pub fn another(&self, file: File) -> Self {
        let failures = self.held().map_or(0, |held| held.failures);
        Self { file, delay: self.delay, held: self.held.clone(), told: AtomicU64::new(failures) }
    }

    fn held(&self) -> Option<MutexGuard<'_, Held>> {
        self.held.as_ref().map(|held| held.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Fails once for each failure that this handle was not told of.
    fn tell(&self, held: &Held) -> io::Result<()> {
        match self.told.swap(held.failures, Ordering::SeqCst) < held.failures {
            true => Err(io::Error::from_raw_os_error(rustix::io::Errno::IO.raw_os_error())),
            false => Ok(()),
        }
    }

    fn wait(&self) {
        if !self.delay.is_zero() {
            std::thread::sleep(self.delay);
        }
    }

    pub fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.wait();
        self.read_now(offset, out)
    }

    fn read_now(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let held = self.held();
        self.file.read_exact_at(out, offset)?;
        let Some(held) = held else { return Ok(()) };
        let end = offset + out.len() as u64;
        let sectors = || offset / SECTOR..end.div_ceil(SECTOR);
        for (number, bytes) in held.ghosts.range(sectors()).chain(held.sectors.range(sectors())) {
            let at = number * SECTOR;
            let (from, to) = (at.max(offset), (at + bytes.len() as u64).min(end));
            let place = out.get_mut((from - offset) as usize..(to.max(from) - offset) as usize);
            let news = bytes.get((from - at) as usize..(to.max(from) - at) as usize);
            if let (Some(place), Some(news)) = (place, news) {
                place.copy_from_slice(news);
            }
        }
        Ok(())
    }

    pub fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.wait();
        match self.held() {
            Some(mut held) => held.write(&self.file, offset, data),
            None => self.file.write_all_at(data, offset),
        }
    }

    /// Writes and syncs these bytes alone. A power loss meanwhile leaves any of their sectors.
    pub fn write_durably(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.write(offset, data)?;
        if let Some(mut held) = self.held() {
            let numbers = offset / SECTOR..(offset + data.len() as u64).div_ceil(SECTOR);
            let numbers: Vec<u64> = held.sectors.range(numbers).map(|(number, _)| *number).collect();
            held.sync(&self.file, numbers)?;
            self.tell(&held)?;
        }
        self.file.sync_data()
    }

    pub fn sync(&self) -> io::Result<()> {
        self.wait();
        if let Some(mut held) = self.held() {
            let all = held.sectors.keys().copied().collect();
            held.sync(&self.file, all)?;
            self.tell(&held)?;
        }
        self.file.sync_data()
    }

    pub fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    pub fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// A file's length is not held back.
    pub fn set_len(&self, len: u64) -> io::Result<()> {
        if let Some(mut held) = self.held() {
            held.ghosts.split_off(&(len / SECTOR));
            let cut = held.sectors.split_off(&(len / SECTOR));
            if let Some(last) = cut.get(&(len / SECTOR)).filter(|_| len % SECTOR != 0) {
                let keep = last.iter().take((len % SECTOR) as usize).copied().collect();
                held.sectors.insert(len / SECTOR, keep);
            }
        }
        self.file.set_len(len)
    }
}

impl Held {
    fn draw(&mut self) -> u64 {
        self.dice.as_mut().map_or(2, |dice| dice.next_u64())
    }

    fn chance(&mut self) -> bool {
        self.draw() & 1 == 1
    }

    /// Writes these sectors back, or loses all that is held when it is time for that.
    fn sync(&mut self, file: &File, numbers: Vec<u64>) -> io::Result<()> {
        self.syncs += 1;
        if Some(self.syncs) != self.fail_sync {
            return self.pass(file, numbers);
        }
        self.failures += 1;
        self.ghosts.append(&mut self.sectors);
        Ok(())
    }

    fn write(&mut self, file: &File, offset: u64, data: &[u8]) -> io::Result<()> {
        // Some writes reach the medium whole, some not at all, and some in part.
        let fate = self.draw() % 3;
        let (mut at, mut rest) = (offset, data);
        while !rest.is_empty() {
            let number = at / SECTOR;
            let room = (SECTOR - at % SECTOR) as usize;
            let (piece, behind) = rest.split_at(room.min(rest.len()));
            let sector = self.merged(file, number, (at % SECTOR) as usize, piece)?;
            self.ghosts.remove(&number);
            if fate == 0 || fate == 1 && self.chance() {
                file.write_all_at(&sector, number * SECTOR)?;
                self.sectors.remove(&number);
            } else {
                self.sectors.insert(number, sector);
            }
            (at, rest) = (at + piece.len() as u64, behind);
        }
        while self.sectors.len() > MAX_HELD {
            let some = self.sectors.keys().copied().collect::<Vec<u64>>();
            let some = some.into_iter().filter(|_| self.dice.is_none() || self.chance()).collect();
            self.pass(file, some)?;
        }
        Ok(())
    }

    /// A sector as it is after `piece` was written into it.
    fn merged(&self, file: &File, number: u64, from: usize, piece: &[u8]) -> io::Result<Vec<u8>> {
        if from == 0 && piece.len() as u64 == SECTOR {
            return Ok(piece.to_vec());
        }
        let mut sector = match self.sectors.get(&number).or_else(|| self.ghosts.get(&number)) {
            Some(held) => held.clone(),
            None => {
                let mut old = vec![0; SECTOR as usize];
                let mut have = 0;
                while let Some(left) = old.get_mut(have..).filter(|left| !left.is_empty()) {
                    match file.read_at(left, number * SECTOR + have as u64)? {
                        0 => break,
                        n => have += n,
                    }
                }
                old.truncate(have);
                old
            }
        };
        if sector.len() < from + piece.len() {
            sector.resize(from + piece.len(), 0);
        }
        if let Some(place) = sector.get_mut(from..from + piece.len()) {
            place.copy_from_slice(piece);
        }
        Ok(sector)
    }

    /// Gives held sectors to the file, in any order.
    fn pass(&mut self, file: &File, mut numbers: Vec<u64>) -> io::Result<()> {
        while !numbers.is_empty() {
            let at = (self.draw() % numbers.len() as u64) as usize;
            let number = numbers.swap_remove(at);
            if let Some(sector) = self.sectors.get(&number) {
                file.write_all_at(sector, number * SECTOR)?;
                self.sectors.remove(&number);
            }
        }
        Ok(())
    }
}

/// A store's device on a bad medium.
#[derive(Debug)]
pub struct TwinDevice {
    /// Has the lock, and knows the bounds.
    inner: FileDevice,
    file: TwinFile,
    /// Blocks that were announced, by offset. Reading them takes no further time, as a disk serves reads that
    /// it knows of side by side.
    at_hand: Arc<Mutex<BTreeSet<u64>>>,
}

impl TwinDevice {
    /// Opens a file or a block device as [`FileDevice::open`] does.
    pub fn open(path: &Path, twin: Twin) -> io::Result<Self> {
        let inner = FileDevice::open(path)?;
        let file = TwinFile::new(inner.file()?, twin);
        Ok(Self { inner, file, at_hand: Arc::default() })
    }

    /// A handle for another thread.
    pub fn another(&self) -> io::Result<Self> {
        let inner = self.inner.another()?;
        let file = self.file.another(inner.file()?);
        Ok(Self { inner, file, at_hand: Arc::clone(&self.at_hand) })
    }

    /// Whether all of a range was announced; each announcement is good for one read.
    fn is_at_hand(&self, offset: u64, len: usize) -> bool {
        let mut at_hand = self.at_hand.lock().unwrap_or_else(PoisonError::into_inner);
        // Every block has to go, so no short cut.
        blocks(offset, len as u64).filter(|block| !at_hand.remove(block)).count() == 0
    }
}

fn blocks(offset: u64, len: u64) -> impl Iterator<Item = u64> {
    (offset..offset + len).step_by(4096)
}

impl Device for TwinDevice {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.inner.check(DeviceOp::Read, offset, buf.len())?;
        let len = buf.len();
        if !self.is_at_hand(offset, len) {
            self.file.wait();
        }
        self.file.read_now(offset, buf).map_err(|e| failed(DeviceOp::Read, offset, len, e.raw_os_error()))
    }

    /// A bad medium has nothing at hand.
    fn read_at_once(&self, offset: u64, len: usize, _: &mut Vec<u8>) -> Result<bool, DeviceError> {
        self.inner.check(DeviceOp::Read, offset, len).map(|()| false)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        self.inner.check(DeviceOp::Write, offset, data.len())?;
        let failed = |e: io::Error| failed(DeviceOp::Write, offset, data.len(), e.raw_os_error());
        self.file.write(offset, data).map_err(failed)
    }

    fn write_durably(&self, offset: u64, pieces: &[&[u8]]) -> Result<(), DeviceError> {
        let data = pieces.concat();
        self.inner.check(DeviceOp::Write, offset, data.len())?;
        let failed = |e: io::Error| failed(DeviceOp::Write, offset, data.len(), e.raw_os_error());
        self.file.write_durably(offset, &data).map_err(failed)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.file.sync().map_err(|e| failed(DeviceOp::Flush, 0, 0, e.raw_os_error()))
    }

    fn will_read(&self, ranges: &[(u64, u64)]) {
        self.file.wait();
        let mut at_hand = self.at_hand.lock().unwrap_or_else(PoisonError::into_inner);
        at_hand.extend(ranges.iter().flat_map(|(offset, len)| blocks(*offset, *len)));
    }

    fn len(&self) -> u64 {
        self.inner.len()
    }

    // A discarded range keeps its bytes: a hint may do nothing.
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: usize = 16 << 10;

    fn file(dir: &tempfile::TempDir) -> File {
        let path = dir.path().join("block");
        let file =
            File::options().read(true).write(true).create(true).truncate(false).open(path).expect("a file");
        file.set_len(LEN as u64).expect("its length");
        file
    }

    /// Many lives of a file: reads always give what was written last, and after each death every sector is
    /// one that was written since the last sync, or what it was then.
    #[test]
    fn a_kill_leaves_any_sectors_of_what_was_not_synced() {
        let dir = tempfile::tempdir().expect("tempdir");
        let (mut lost, mut kept) = (0, 0);
        let mut now = vec![0u8; LEN];
        for seed in 0..40 {
            let twin = TwinFile::new(file(&dir), Twin { power_loss: Some(seed), ..Twin::default() });
            let mut dice = SeededEntropy(seed);
            let mut possible: Vec<Vec<Vec<u8>>> =
                now.chunks(SECTOR as usize).map(|s| vec![s.to_vec()]).collect();
            for step in 0..60u64 {
                let from = (dice.next_u64() % LEN as u64) as usize;
                let len = (1 + dice.next_u64() % 3_000).min((LEN - from) as u64) as usize;
                let data = vec![(seed * 60 + step) as u8; len];
                now[from..from + len].copy_from_slice(&data);
                let durable = dice.next_u64() % 6 == 0;
                match durable {
                    true => twin.write_durably(from as u64, &data).expect("written"),
                    false => twin.write(from as u64, &data).expect("written"),
                }
                for (n, possible) in possible.iter_mut().enumerate() {
                    let at = n * SECTOR as usize;
                    if at < from + len && from < at + SECTOR as usize {
                        let new = now[at..at + SECTOR as usize].to_vec();
                        if durable {
                            possible.clear();
                        }
                        possible.push(new);
                    }
                }
                if dice.next_u64() % 12 == 0 {
                    twin.sync().expect("synced");
                    possible = now.chunks(SECTOR as usize).map(|s| vec![s.to_vec()]).collect();
                }
                let mut back = vec![0; LEN];
                twin.read(0, &mut back).expect("read");
                assert!(back == now, "seed {seed}, step {step}");
            }
            drop(twin);
            let mut left = vec![0; LEN];
            file(&dir).read_exact_at(&mut left, 0).expect("read");
            for (n, sector) in left.chunks(SECTOR as usize).enumerate() {
                assert!(possible[n].iter().any(|p| p == sector), "seed {seed}: sector {n} was never so");
                if possible[n].len() > 1 {
                    let newest = possible[n].last().is_some_and(|p| p == sector);
                    *if newest { &mut kept } else { &mut lost } += 1;
                }
            }
            now = left;
        }
        assert!(lost > 100 && kept > 100, "{lost} sectors were lost, {kept} kept");
    }

    #[test]
    fn a_failure_to_write_back_is_told_once_to_each_handle_and_reads_hide_it() {
        let dir = tempfile::tempdir().expect("tempdir");
        let one = TwinFile::new(file(&dir), Twin { fail_sync: Some(2), ..Twin::default() });
        let two = one.another(file(&dir));
        one.write(0, &[1; 1_024]).expect("written");
        one.sync().expect("the first sync works");
        one.write(0, &[2; 512]).expect("written");
        two.write(512, &[3; 512]).expect("written");
        assert_eq!(two.sync().expect_err("the second fails").raw_os_error(), Some(5));
        assert!(two.sync().is_ok(), "it was told");
        let mut back = [0; 1_024];
        two.read(0, &mut back).expect("read");
        assert!(back[..512] == [2; 512] && back[512..] == [3; 512], "reads show what was written");
        file(&dir).read_exact_at(&mut back, 0).expect("read");
        assert!(back == [1; 1_024], "the medium has neither");
        assert!(one.sync().is_err(), "each handle is told");
        assert!(one.another(file(&dir)).sync().is_ok(), "not one that was opened later");
    }

    #[test]
    fn a_file_that_shrinks_and_grows_reads_as_zeros_there() {
        let dir = tempfile::tempdir().expect("tempdir");
        let twin = TwinFile::new(file(&dir), Twin { power_loss: Some(2), ..Twin::default() });
        for len in [3_000u64, 1_024, 700] {
            twin.write(0, &[7; 4_096]).expect("written");
            twin.set_len(len).expect("shorter");
            twin.set_len(LEN as u64).expect("longer");
            let mut back = vec![1; 4_096];
            twin.read(0, &mut back).expect("read");
            let (whole, gone) = back.split_at(len as usize);
            assert!(whole.iter().all(|b| *b == 7) && gone.iter().all(|b| *b == 0), "length {len}");
        }
    }

    #[test]
    fn settings_are_words() {
        assert_eq!(Twin::parse(""), Ok(Twin::default()));
        let want = Twin { power_loss: Some(7), delay: Duration::from_millis(20), fail_sync: Some(9) };
        assert_eq!(Twin::parse("power-loss=7,delay-ms=20,fail-sync=9"), Ok(want));
        for bad in ["power-loss", "delay-ms=x", "speed=1"] {
            assert!(Twin::parse(bad).is_err(), "{bad}");
        }
    }
}

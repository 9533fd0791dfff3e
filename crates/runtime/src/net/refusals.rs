//! Bounds the log lines about refused peers, so that a port scanner does not fill the disk.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

/// Lines about one address within `WINDOW`, and about all addresses.
const LINES_OF_ONE: u32 = 5;
const LINES: u32 = 100;
const WINDOW: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(super) struct Refusals {
    /// When the window began (monotonic).
    began: Duration,
    lines: u32,
    by_source: BTreeMap<IpAddr, u32>,
    left_out: u64,
}

impl Refusals {
    #[cfg(test)]
    pub(super) fn lines(&self) -> u32 {
        self.lines
    }

    /// Whether a line about this address is written, and how many were left out before it.
    pub(super) fn note(&mut self, now: Duration, source: IpAddr) -> Option<u64> {
        if now >= self.began + WINDOW {
            let left_out = self.left_out;
            *self = Self { began: now, left_out, ..Self::default() };
        }
        let own = self.by_source.get(&source).copied().unwrap_or(0);
        if own >= LINES_OF_ONE || self.lines >= LINES {
            self.left_out += 1;
            return None;
        }
        // Bounded: there are no more addresses in here than lines that were written.
        self.by_source.insert(source, own + 1);
        self.lines += 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_has_a_few_lines_and_what_is_left_out_is_counted() {
        let (a, b): (IpAddr, IpAddr) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let mut log = Refusals::default();
        let at = Duration::from_secs(100);
        let written = (0..50).filter(|_| log.note(at, a).is_some()).count();
        assert_eq!(written, 5);
        assert_eq!(log.note(at, b), Some(45), "another address is heard");
        assert_eq!(log.note(at + WINDOW, a), Some(0));
        let many = |i: u32| IpAddr::from((0x0a00_0000 + i).to_be_bytes());
        assert!((0..100_000).filter(|i| log.note(at + WINDOW, many(*i)).is_some()).count() < 100);
        assert!(log.by_source.len() <= LINES as usize);
    }
}

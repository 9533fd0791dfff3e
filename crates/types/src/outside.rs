//! What cores are given from outside instead of reaching for it: time, randomness, and names of connections.

use std::time::Duration;

use crate::Utime;

/// Both clocks at the moment an input is handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Now {
    /// Monotonic, since the process (or the simulation) began: timeouts and ordering use only this one. It
    /// stands still while the host is suspended, so a lease is over when either clock says so.
    pub mono: Duration,
    /// Wall clock: stamps that people read, mtimes, and the life of tickets. It may be set ahead and back.
    pub wall: Utime,
}

/// One accepted or opened connection of a daemon's shell; never reused while the process lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ConnId(pub u64);

impl std::fmt::Display for ConnId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "conn{}", self.0)
    }
}

/// Random bytes: the operating system's in a daemon, a seeded generator in the simulator.
pub trait Entropy: Send {
    /// Fills `out`.
    fn fill(&mut self, out: &mut [u8]);

    /// A random number of all 64 bits.
    fn next_u64(&mut self) -> u64 {
        let mut b = [0u8; 8];
        self.fill(&mut b);
        u64::from_le_bytes(b)
    }
}

/// Seeded generator (SplitMix64) for tests and the simulator; never for keys of a real cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeededEntropy(pub u64);

impl Entropy for SeededEntropy {
    fn fill(&mut self, out: &mut [u8]) {
        for chunk in out.chunks_mut(8) {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = self.0;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            let bytes = (z ^ (z >> 31)).to_le_bytes();
            chunk.copy_from_slice(bytes.split_at(chunk.len()).0);
        }
    }
}

//! The real clock and the operating system's randomness, as cores are given them.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use types::{Entropy, Now, Utime};

/// Reads both clocks; monotonic time counts from when this was made.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    start: Instant,
}

impl Clock {
    pub fn start() -> Self {
        Self { start: Instant::now() }
    }

    pub fn now(&self) -> Now {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Now { mono: self.start.elapsed(), wall: Utime::from_unix(wall) }
    }
}

/// The operating system's random numbers.
#[derive(Debug, Clone, Copy, Default)]
pub struct OsEntropy;

impl Entropy for OsEntropy {
    fn fill(&mut self, out: &mut [u8]) {
        // A process that cannot get random bytes must not go on and make keys.
        aws_lc_rs::rand::fill(out).expect("the operating system gives random bytes");
    }
}

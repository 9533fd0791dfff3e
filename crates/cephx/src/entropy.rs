//! Where random bytes come from: the caller, so that a simulation decides them by its seed.

/// A source of random bytes; the shell hands in the operating system's, tests and the simulator a seeded one.
pub trait Entropy {
    /// Fills `out` with random bytes.
    fn fill(&mut self, out: &mut [u8]);
}

impl<F: FnMut(&mut [u8])> Entropy for F {
    fn fill(&mut self, out: &mut [u8]) {
        self(out);
    }
}

/// `N` random bytes.
pub(crate) fn random<const N: usize>(entropy: &mut dyn Entropy) -> [u8; N] {
    let mut out = [0u8; N];
    entropy.fill(&mut out);
    out
}

pub(crate) fn random_u64(entropy: &mut dyn Entropy) -> u64 {
    u64::from_le_bytes(random(entropy))
}

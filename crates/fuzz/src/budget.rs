//! What a target may take for an input: heap held at one time, and processor time.

use std::time::Duration;

/// A bound that grows with the input alone: what a length or a count inside claims must not matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Bytes on the heap at one time for each byte of input.
    heap_per_byte: u64,
    /// And for any input: tables, and the state of a target that is more than a decoder.
    heap_fixed: u64,
    /// Processor time for any input.
    time_fixed: Duration,
    /// The short run gives it one of so many inputs.
    one_of: u64,
}

/// What most decoders keep to.
pub(crate) const DECODER: Budget = Budget::heap(64, 64 << 10);

impl Budget {
    pub(crate) const fn heap(heap_per_byte: u64, heap_fixed: u64) -> Self {
        Self { heap_per_byte, heap_fixed, time_fixed: Duration::from_millis(500), one_of: 1 }
    }

    /// For a target that does bounded work of its own with what it decoded.
    pub(crate) const fn and_time(mut self, fixed: Duration) -> Self {
        self.time_fixed = fixed;
        self
    }

    /// For a target that starts a whole daemon for each input.
    pub(crate) const fn one_of(mut self, inputs: u64) -> Self {
        self.one_of = inputs;
        self
    }

    /// How many inputs the short run has for it, when it has this many for a decoder.
    #[must_use]
    pub fn runs(&self, of: u64) -> u64 {
        of.div_ceil(self.one_of)
    }

    /// The most bytes on the heap at one time for an input of this length.
    #[must_use]
    pub fn heap_bytes(&self, input_len: usize) -> u64 {
        self.heap_fixed + self.heap_per_byte * input_len as u64
    }

    /// Processor time for an input of this length, in a build without optimisation. It is generous: it
    /// catches work that is exponential, or as large as a number inside the input says.
    #[must_use]
    pub fn time(&self, input_len: usize) -> Duration {
        self.time_fixed + Duration::from_micros(50) * u32::try_from(input_len).unwrap_or(u32::MAX)
    }
}

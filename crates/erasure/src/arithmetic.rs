//! Bulk arithmetic behind one trait, whoever does it.

use std::fmt;

use crate::bytewise::Bytewise;
use crate::matrix::Matrix;
use crate::packets::Packets;

/// Whether vector instructions are used; results never depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Simd {
    /// The best that the processor has, found when a code is made.
    #[default]
    Detected,
    Off,
}

/// A matrix made ready: one input for each column, one output for each row.
///
/// Buffers come checked: as many as the matrix has, of one length, which is a multiple of the grain.
pub(crate) trait Arithmetic: fmt::Debug + Send + Sync {
    /// Overwrites the outputs with the sums of the scaled inputs. Encoding is the matrix of the coding
    /// chunks, decoding the one of the lost chunks by the survivors.
    fn apply(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]);

    /// Adds to the outputs what a change of one input adds. The change begins `lead` bytes behind the
    /// outputs' begin, which is a multiple of the grain, and ends within them.
    fn fold(&self, input: usize, lead: usize, change: &[u8], outputs: &mut [&mut [u8]]);

    /// The path taken, for tests and reports.
    fn path(&self) -> &'static str;
}

/// How a code reads its matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A byte of an output depends on the bytes at the same place.
    Bytes,
    /// Eight packets of this many bytes stand for the eight bits of an element.
    Packets(usize),
}

impl Kind {
    /// Bytes that stand or fall together: lengths are multiples of it.
    pub(crate) fn grain(self) -> usize {
        match self {
            Self::Bytes => 1,
            Self::Packets(packet) => 8 * packet,
        }
    }

    pub(crate) fn prepare(self, matrix: &Matrix, simd: Simd) -> Box<dyn Arithmetic> {
        match self {
            Self::Bytes => Box::new(Bytewise::new(matrix, simd)),
            Self::Packets(packet) => Box::new(Packets::new(matrix, packet, simd)),
        }
    }
}

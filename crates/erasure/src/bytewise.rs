//! Codes whose bytes stand for themselves, by a library: `rusty_erasure` has the kernels for each processor.

use rusty_erasure::kernel::Kernels;

use crate::arithmetic::{Arithmetic, Simd};
use crate::matrix::Matrix;

/// Bytes of each chunk that are worked on at a time: a wide stripe's slices stay within the second-level
/// cache.
const SLICE: usize = 16 << 10;

#[derive(Debug)]
pub(crate) struct Bytewise {
    kernels: Kernels,
    /// The matrix in the kernels' own form.
    tables: Vec<u8>,
    columns: usize,
}

impl Bytewise {
    pub(crate) fn new(matrix: &Matrix, simd: Simd) -> Self {
        let kernels = match simd {
            Simd::Detected => rusty_erasure::best_kernels(),
            Simd::Off => Kernels::scalar(),
        };
        let tables = (kernels.init)(&matrix.rows().concat());
        Self { kernels, tables, columns: matrix.columns() }
    }
}

impl Arithmetic for Bytewise {
    fn apply(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
        let len = outputs.first().map_or(0, |o| o.len());
        if len <= SLICE {
            (self.kernels.encode)(&self.tables, inputs, outputs);
            return;
        }
        for start in (0..len).step_by(SLICE) {
            let range = start..len.min(start + SLICE);
            let ins: Vec<&[u8]> = inputs.iter().filter_map(|i| i.get(range.clone())).collect();
            let mut outs: Vec<&mut [u8]> =
                outputs.iter_mut().filter_map(|o| o.get_mut(range.clone())).collect();
            (self.kernels.encode)(&self.tables, &ins, &mut outs);
        }
    }

    fn fold(&self, input: usize, lead: usize, change: &[u8], outputs: &mut [&mut [u8]]) {
        let range = lead..lead + change.len();
        let mut outs: Vec<&mut [u8]> = outputs.iter_mut().filter_map(|o| o.get_mut(range.clone())).collect();
        (self.kernels.update)(&self.tables, self.columns, input, change, &mut outs);
    }

    fn path(&self) -> &'static str {
        self.kernels.name
    }
}

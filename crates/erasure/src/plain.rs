//! A code with one matrix: `k` data chunks, `m` coding chunks, any `k` of them are enough.

use crate::arithmetic::{Arithmetic, Kind, Simd};
use crate::generators;
use crate::matrix::Matrix;
use crate::profile::{Plain, Technique};

#[derive(Debug)]
pub(crate) struct PlainCode {
    kind: Kind,
    simd: Simd,
    generator: Matrix,
    encoder: Box<dyn Arithmetic>,
}

impl PlainCode {
    pub(crate) fn new(profile: &Plain, simd: Simd) -> Self {
        let (k, m) = (profile.k, profile.m);
        let generator = match profile.technique {
            Technique::JerasureReedSolVan => generators::jerasure_reed_sol_van(k, m),
            Technique::JerasureR6 | Technique::IsaReedSolVan => generators::powers(k, m),
            Technique::JerasureCauchyOrig => generators::cauchy_orig(k, m),
            Technique::JerasureCauchyGood => generators::cauchy_good(k, m),
            Technique::IsaCauchy => generators::isa_cauchy(k, m),
        };
        let kind = profile.kind();
        Self { kind, simd, encoder: kind.prepare(&generator, simd), generator }
    }

    pub(crate) fn k(&self) -> usize {
        self.generator.columns()
    }

    pub(crate) fn m(&self) -> usize {
        self.generator.rows().len()
    }

    pub(crate) fn grain(&self) -> usize {
        self.kind.grain()
    }

    pub(crate) fn encoder(&self) -> &dyn Arithmetic {
        self.encoder.as_ref()
    }

    /// What makes `targets` from `survivors`, both as numbers of the code's own, data first. As many
    /// survivors as there are data chunks; `None` when they do not determine the data.
    pub(crate) fn rebuild(&self, survivors: &[usize], targets: &[usize]) -> Option<Box<dyn Arithmetic>> {
        Some(self.kind.prepare(&self.generator.recovery(survivors, targets)?, self.simd))
    }
}

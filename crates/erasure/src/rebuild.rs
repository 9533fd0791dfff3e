//! How lost chunks are made again: decided once for a pattern of losses, executed for every stripe.

use crate::arithmetic::Arithmetic;
use crate::chunks::ChunkSet;
use crate::error::CodecError;

/// A plan for one pattern of losses. Its matrices are inverted already; keep it while the pattern lasts.
#[derive(Debug)]
pub struct Rebuild {
    sources: ChunkSet,
    targets: ChunkSet,
    grain: usize,
    steps: Vec<RebuildStep>,
}

/// Makes some chunks from others, by position. Layered codes need several steps, and may need chunks that
/// nobody asked for on the way.
#[derive(Debug)]
pub(crate) struct RebuildStep {
    pub(crate) sources: Vec<usize>,
    pub(crate) targets: Vec<usize>,
    pub(crate) work: Box<dyn Arithmetic>,
}

impl Rebuild {
    /// `targets` are what the steps are for; sources that no step makes have to be read.
    pub(crate) fn new(targets: ChunkSet, grain: usize, steps: Vec<RebuildStep>) -> Self {
        let made: ChunkSet = steps.iter().flat_map(|s| s.targets.iter().copied()).collect();
        let used: ChunkSet = steps.iter().flat_map(|s| s.sources.iter().copied()).collect();
        Self { sources: used - made, targets, grain, steps }
    }

    /// The chunks that have to be read.
    pub fn sources(&self) -> ChunkSet {
        self.sources
    }

    /// The chunks that are made.
    pub fn targets(&self) -> ChunkSet {
        self.targets
    }

    /// Makes the targets, in ascending order into `out`. `chunks` has an entry for each position up to the
    /// highest source; only sources are looked at. All of one length.
    pub fn execute(&self, chunks: &[Option<&[u8]>], out: &mut [&mut [u8]]) -> Result<(), CodecError> {
        let expected = self.targets.len();
        if out.len() != expected {
            return Err(CodecError::Count { what: "buffers", expected, got: out.len() });
        }
        let len = out.first().map_or(0, |o| o.len());
        if len % self.grain != 0 {
            return Err(CodecError::Grain { len, grain: self.grain });
        }
        let given = |chunk: usize| chunks.get(chunk).copied().flatten();
        for chunk in self.sources.iter() {
            let got = given(chunk).ok_or(CodecError::Missing(chunk))?.len();
            if got != len {
                return Err(CodecError::Length { expected: len, got });
            }
        }
        if let Some(odd) = out.iter().find(|o| o.len() != len) {
            return Err(CodecError::Length { expected: len, got: odd.len() });
        }
        match self.steps.as_slice() {
            [] => {}
            // A plain code: nothing on the way.
            [step] if step.targets.len() == expected => {
                let sources: Vec<&[u8]> = step.sources.iter().filter_map(|c| given(*c)).collect();
                step.work.apply(&sources, out);
            }
            steps => self.execute_steps(steps, len, chunks, out),
        }
        Ok(())
    }

    fn execute_steps(
        &self,
        steps: &[RebuildStep],
        len: usize,
        chunks: &[Option<&[u8]>],
        out: &mut [&mut [u8]],
    ) {
        let made: ChunkSet = steps.iter().flat_map(|s| s.targets.iter().copied()).collect();
        let aside = made - self.targets;
        let mut scratch: Vec<Vec<u8>> = aside.iter().map(|_| vec![0; len]).collect();
        // By position: the buffers of chunks that are made. One that is being written is out of the table.
        let mut table: Vec<Option<&mut [u8]>> = Vec::new();
        table.resize_with(crate::MAX_CHUNKS, || None);
        let outputs = self.targets.iter().zip(out.iter_mut().map(|o| &mut **o));
        for (chunk, buffer) in outputs.chain(aside.iter().zip(scratch.iter_mut().map(Vec::as_mut_slice))) {
            if let Some(slot) = table.get_mut(chunk) {
                *slot = Some(buffer);
            }
        }
        for step in steps {
            let take = |chunk: &usize| table.get_mut(*chunk).and_then(Option::take);
            let mut targets: Vec<&mut [u8]> = step.targets.iter().filter_map(take).collect();
            let source = |chunk: &usize| match table.get(*chunk) {
                Some(Some(made)) => Some(&**made),
                _ => chunks.get(*chunk).copied().flatten(),
            };
            let sources: Vec<&[u8]> = step.sources.iter().filter_map(source).collect();
            step.work.apply(&sources, &mut targets);
            for (chunk, buffer) in step.targets.iter().zip(targets) {
                if let Some(slot) = table.get_mut(*chunk) {
                    *slot = Some(buffer);
                }
            }
        }
    }
}

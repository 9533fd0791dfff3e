//! A code of several plain ones over one another: what one makes, a later one may read.
//!
//! Encoding goes through the layers in their order; decoding begins with the last one, whose groups are the
//! smallest.
//! Source: src/erasure-code/lrc/ErasureCodeLrc.cc.

use crate::MAX_CHUNKS;
use crate::arithmetic::Simd;
use crate::chunks::ChunkSet;
use crate::plain::PlainCode;
use crate::profile::{Layer, Layers};
use crate::rebuild::RebuildStep;

#[derive(Debug)]
pub(crate) struct LayeredCode {
    chunks: usize,
    grain: usize,
    layers: Vec<LayerCode>,
}

#[derive(Debug)]
struct LayerCode {
    code: PlainCode,
    /// Positions by the code's own numbers: data, then coding chunks.
    positions: Vec<usize>,
    all: ChunkSet,
}

impl LayerCode {
    fn new(layer: &Layer, simd: Simd) -> Self {
        let positions = [layer.data.as_slice(), &layer.coding].concat();
        let all = positions.iter().copied().collect();
        Self { code: PlainCode::new(&layer.code, simd), positions, all }
    }

    fn data(&self) -> &[usize] {
        self.positions.get(..self.code.k()).unwrap_or_default()
    }

    fn coding(&self) -> &[usize] {
        self.positions.get(self.code.k()..).unwrap_or_default()
    }

    /// Makes the targets, all of the layer, from others of it that are there.
    fn step(&self, targets: ChunkSet, there: ChunkSet) -> Option<RebuildStep> {
        let numbers = |set: ChunkSet| {
            let mut numbers: Vec<usize> = (0..self.positions.len())
                .filter(|n| self.position(*n).is_some_and(|p| set.contains(p)))
                .collect();
            // Targets go out in ascending order of positions.
            numbers.sort_by_key(|n| self.position(*n));
            numbers
        };
        let (mut sources, targets) = (numbers(there & self.all), numbers(targets));
        sources.truncate(self.code.k());
        let work = self.code.rebuild(&sources, &targets)?;
        let positions = |numbers: Vec<usize>| numbers.into_iter().filter_map(|n| self.position(n)).collect();
        Some(RebuildStep { sources: positions(sources), targets: positions(targets), work })
    }

    fn position(&self, number: usize) -> Option<usize> {
        self.positions.get(number).copied()
    }
}

/// Buffers by position; one that is being written is out of the table.
type Table<'a> = Vec<Option<&'a mut [u8]>>;

fn table<'a>(buffers: impl Iterator<Item = (usize, &'a mut [u8])>) -> Table<'a> {
    let mut table: Table<'a> = Vec::new();
    table.resize_with(MAX_CHUNKS, || None);
    for (position, buffer) in buffers {
        if let Some(slot) = table.get_mut(position) {
            *slot = Some(buffer);
        }
    }
    table
}

fn take<'a>(table: &mut Table<'a>, positions: &[usize]) -> Vec<&'a mut [u8]> {
    positions.iter().filter_map(|p| table.get_mut(*p).and_then(Option::take)).collect()
}

fn put_back<'a>(table: &mut Table<'a>, positions: &[usize], buffers: Vec<&'a mut [u8]>) {
    for (position, buffer) in positions.iter().zip(buffers) {
        if let Some(slot) = table.get_mut(*position) {
            *slot = Some(buffer);
        }
    }
}

impl LayeredCode {
    pub(crate) fn new(layers: &Layers, simd: Simd) -> Self {
        let codes: Vec<LayerCode> = layers.layers.iter().map(|layer| LayerCode::new(layer, simd)).collect();
        // The profile sees to it that all grains divide the length of a chunk, so this stays below it.
        let grain = codes.iter().fold(1, |grain, layer| lcm(grain, layer.code.grain()));
        Self { chunks: layers.chunks, grain, layers: codes }
    }

    pub(crate) fn grain(&self) -> usize {
        self.grain
    }

    pub(crate) fn path(&self) -> &'static str {
        self.layers.first().map_or("", |layer| layer.code.encoder().path())
    }

    pub(crate) fn encode<'a>(
        &self,
        data: impl Iterator<Item = (usize, &'a [u8])>,
        coding: impl Iterator<Item = (usize, &'a mut [u8])>,
    ) {
        let mut table = table(coding);
        let mut known: Vec<Option<&[u8]>> = vec![None; MAX_CHUNKS];
        for (position, chunk) in data {
            if let Some(slot) = known.get_mut(position) {
                *slot = Some(chunk);
            }
        }
        for layer in &self.layers {
            let mut outputs = take(&mut table, layer.coding());
            let input = |at: &usize| match table.get(*at) {
                Some(Some(made)) => Some(&**made),
                _ => known.get(*at).copied().flatten(),
            };
            let inputs: Vec<&[u8]> = layer.data().iter().filter_map(input).collect();
            layer.code.encoder().apply(&inputs, &mut outputs);
            put_back(&mut table, layer.coding(), outputs);
        }
    }

    /// `want` is not all available. `None`: it cannot be made.
    pub(crate) fn minimum_to_decode(&self, want: ChunkSet, available: ChunkSet) -> Option<ChunkSet> {
        if let Some(minimum) = self.minimum_of_wanted_layers(want, available) {
            return Some(minimum);
        }
        // By way of layers that nobody wants anything of. No attempt is made at reading less than everything
        // then.
        let missing = ChunkSet::first(self.chunks) - available;
        if self.recoverable(missing) == missing {
            return Some(available);
        }
        // Ceph gives up where not every loss can be made good; what is wanted may still be.
        self.rebuild(want - available, available).map(|_| available)
    }

    /// The layers that have a wanted chunk, each on its own. Source: case 2 of
    /// ErasureCodeLrc::_minimum_to_decode.
    fn minimum_of_wanted_layers(&self, want: ChunkSet, available: ChunkSet) -> Option<ChunkSet> {
        let missing = ChunkSet::first(self.chunks) - available;
        let (mut open, mut still_wanted, mut minimum) = (missing, missing & want, ChunkSet::EMPTY);
        for layer in self.layers.iter().rev() {
            let wanted_here = want & layer.all;
            if wanted_here.is_empty() {
                continue;
            }
            if (wanted_here & still_wanted).is_empty() {
                minimum = minimum | wanted_here;
                continue;
            }
            let lost_here = layer.all & open;
            if lost_here.len() > layer.code.m() {
                continue;
            }
            minimum = minimum | (layer.all - open);
            open = open - lost_here;
            still_wanted = still_wanted - lost_here;
        }
        still_wanted.is_empty().then(|| (minimum | want) - missing)
    }

    /// Those of the lost chunks that one pass through the layers makes again.
    fn recoverable(&self, missing: ChunkSet) -> ChunkSet {
        let mut open = missing;
        for layer in self.layers.iter().rev() {
            let lost_here = layer.all & open;
            if lost_here.len() <= layer.code.m() {
                open = open - lost_here;
            }
        }
        missing - open
    }

    /// The steps that make `lost`; `None` when the layers cannot. Goes round until no layer has anything to
    /// add, where Ceph goes once.
    pub(crate) fn rebuild(&self, lost: ChunkSet, available: ChunkSet) -> Option<Vec<RebuildStep>> {
        let mut there = available;
        // Of each step its layer, what it makes, and what was there to make it from.
        let mut order: Vec<(&LayerCode, ChunkSet, ChunkSet)> = Vec::new();
        while !there.includes(lost) {
            let before = there;
            for layer in self.layers.iter().rev() {
                let lost_here = layer.all - there;
                if !lost_here.is_empty() && lost_here.len() <= layer.code.m() {
                    order.push((layer, lost_here, there));
                    there = there | lost_here;
                }
                if there.includes(lost) {
                    break;
                }
            }
            if there == before {
                return None;
            }
        }
        // From the end: what nobody needs is not made.
        let (mut needed, mut steps) = (lost, Vec::new());
        for (layer, makes, from) in order.into_iter().rev() {
            let targets = makes & needed;
            if targets.is_empty() {
                continue;
            }
            let step = layer.step(targets, from)?;
            needed = needed | (step.sources.iter().copied().collect::<ChunkSet>() - available);
            steps.push(step);
        }
        steps.reverse();
        Some(steps)
    }

    pub(crate) fn affected_by(&self, chunk: usize) -> ChunkSet {
        let mut changed: ChunkSet = [chunk].into_iter().collect();
        for layer in &self.layers {
            if layer.data().iter().any(|at| changed.contains(*at)) {
                layer.coding().iter().for_each(|at| changed.insert(*at));
            }
        }
        changed - [chunk].into_iter().collect()
    }

    /// The change of a data chunk, which begins `lead` bytes behind the buffers' begin, goes through the
    /// layers as changes; at the end they are added to the buffers.
    pub(crate) fn delta<'a>(
        &self,
        chunk: usize,
        lead: usize,
        change: &[u8],
        coding: impl Iterator<Item = (usize, &'a mut [u8])>,
    ) {
        let affected = self.affected_by(chunk);
        let coding: Vec<(usize, &mut [u8])> = coding.collect();
        let len = coding.first().map_or(0, |(_, buffer)| buffer.len());
        let mut scratch: Vec<Vec<u8>> = affected.iter().map(|_| vec![0; len]).collect();
        let mut changes = table(affected.iter().zip(scratch.iter_mut().map(Vec::as_mut_slice)));
        for layer in &self.layers {
            let mut outputs = take(&mut changes, layer.coding());
            // A layer none of whose inputs changes has no buffers here.
            if outputs.len() != layer.coding().len() {
                put_back(&mut changes, layer.coding(), outputs);
                continue;
            }
            for (input, at) in layer.data().iter().enumerate() {
                if *at == chunk {
                    layer.code.encoder().fold(input, lead, change, &mut outputs);
                } else if let Some(Some(of_earlier)) = changes.get(*at) {
                    layer.code.encoder().fold(input, 0, of_earlier, &mut outputs);
                }
            }
            put_back(&mut changes, layer.coding(), outputs);
        }
        drop(changes);
        for (position, buffer) in coding.into_iter().filter(|(position, _)| affected.contains(*position)) {
            let made = scratch.get(affected.rank(position)).map(Vec::as_slice).unwrap_or_default();
            buffer.iter_mut().zip(made).for_each(|(b, c)| *b ^= c);
        }
    }
}

fn lcm(a: usize, b: usize) -> usize {
    let (mut x, mut y) = (a, b);
    while y != 0 {
        (x, y) = (y, x % y);
    }
    a / x.max(1) * b
}

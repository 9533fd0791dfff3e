//! Codes over packets: eight neighbouring packets of a chunk stand for the eight bits of field elements, so
//! that scaling is a matter of which packets are summed.
//!
//! A chunk is a row of regions of eight packets. Bit `r` of an output's element is the sum of those input
//! bits that the coefficient's 8 by 8 matrix says. Which sums are made, and which are made from an earlier
//! one, is the schedule. Invariants:
//! 1. A step that builds on an output's packet comes after the step that makes it.
//! 2. Every output packet of a region is made exactly once.
//!
//! Source: jerasure_matrix_to_bitmatrix, jerasure_smart_bitmatrix_to_schedule, jerasure_schedule_encode in
//! jerasure.c.

use std::ops::Range;

use pulp::{Arch, Simd as Vectors, WithSimd};

use crate::arithmetic::{Arithmetic, Simd};
use crate::field::double;
use crate::matrix::Matrix;

/// What parts of a region's packets, of all chunks, may take together: they stay within the first-level
/// cache.
const CACHED: usize = 32 << 10;
/// Bytes summed in registers.
const TILE: usize = 256;

/// A packet of a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    chunk: usize,
    bit: usize,
}

/// Makes one packet of an output.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Step {
    target: Place,
    /// The output's packet that the sum starts from.
    base: Option<Place>,
    inputs: Vec<Place>,
}

#[derive(Debug)]
pub(crate) struct Packets {
    packet: usize,
    arch: Arch,
    schedule: Vec<Step>,
    /// For each packet of each input, eight to an input, the outputs' packets that it is a part of.
    reach: Vec<Vec<Place>>,
}

impl Packets {
    /// `packet` is a packet's length, above 0.
    pub(crate) fn new(matrix: &Matrix, packet: usize, simd: Simd) -> Self {
        let arch = match simd {
            Simd::Detected => Arch::new(),
            Simd::Off => Arch::Scalar,
        };
        let rows = bit_rows(matrix);
        let reach = (0..8 * matrix.columns()).map(|input| reach(&rows, input)).collect();
        Self { packet, arch, schedule: schedule(&rows), reach }
    }
}

impl Arithmetic for Packets {
    fn apply(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
        self.arch.dispatch(Apply { code: self, inputs, outputs });
    }

    fn fold(&self, input: usize, lead: usize, change: &[u8], outputs: &mut [&mut [u8]]) {
        let (mut at, mut rest) = (lead, change);
        while !rest.is_empty() {
            let within = at % self.packet;
            let (piece, more) = rest.split_at(rest.len().min(self.packet - within));
            let (region, bit) = (at - at % (8 * self.packet), at / self.packet % 8);
            for place in self.reach.get(8 * input + bit).into_iter().flatten() {
                let start = region + place.bit * self.packet + within;
                let target = outputs.get_mut(place.chunk).and_then(|o| o.get_mut(start..start + piece.len()));
                if let Some(target) = target {
                    self.arch.dispatch(Add { target, piece });
                }
            }
            at += piece.len();
            rest = more;
        }
    }

    fn path(&self) -> &'static str {
        match self.arch {
            Arch::Scalar => "scalar",
            #[cfg(target_arch = "x86_64")]
            Arch::V3(_) => "avx2",
            #[cfg(target_arch = "x86_64")]
            Arch::V4(_) => "avx512",
            #[allow(unreachable_patterns)] // a path that a later version of the library has
            _ => "vectors",
        }
    }
}

/// The work of [`Arithmetic::apply`], compiled once for each instruction set.
struct Apply<'a, 'b> {
    code: &'a Packets,
    inputs: &'a [&'a [u8]],
    outputs: &'a mut [&'b mut [u8]],
}

impl WithSimd for Apply<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Vectors>(self, _: S) {
        let Self { code, inputs, outputs } = self;
        let packet = code.packet;
        let len = outputs.first().map_or(0, |o| o.len());
        let part = (CACHED / (8 * (inputs.len() + outputs.len()).max(1))).next_multiple_of(TILE);
        let mut sources: Vec<&[u8]> = Vec::new();
        for region in (0..len).step_by(8 * packet) {
            let packet_at = |place: &Place| {
                let start = region + place.bit * packet;
                inputs.get(place.chunk)?.get(start..start + packet)
            };
            sources.clear();
            sources.extend(code.schedule.iter().flat_map(|step| &step.inputs).filter_map(packet_at));
            for start in (0..packet).step_by(part) {
                let range = start..packet.min(start + part);
                let mut rest = sources.as_slice();
                for step in &code.schedule {
                    let (of_step, others) = rest.split_at(step.inputs.len().min(rest.len()));
                    rest = others;
                    make(outputs, step, (region, packet), of_step, range.clone());
                }
            }
        }
    }
}

/// Makes a part of one packet: the sum of the sources' parts and of the base's.
#[inline(always)]
fn make(
    outputs: &mut [&mut [u8]],
    step: &Step,
    (region, packet): (usize, usize),
    sources: &[&[u8]],
    part: Range<usize>,
) {
    let packet_at = |place: Place| region + place.bit * packet;
    // Out of the list, so that the base can be read while the target is written.
    let Some(chunk) = outputs.get_mut(step.target.chunk).map(std::mem::take) else {
        return;
    };
    let base = step.base.map(|base| {
        let other = outputs.get(base.chunk).map(|o| &**o);
        (packet_at(base), other.filter(|_| base.chunk != step.target.chunk))
    });
    let target = packet_at(step.target);
    let mut start = part.start;
    while start + TILE <= part.end {
        let mut sum = [0; TILE];
        if let Some((at, other)) = &base {
            sum = tile(other.unwrap_or(&*chunk), at + start).copied().unwrap_or(sum);
        }
        for source in sources {
            if let Some(bytes) = tile(source, start) {
                sum.iter_mut().zip(bytes).for_each(|(s, b)| *s ^= b);
            }
        }
        if let Some(made) = chunk.get_mut(target + start..).and_then(|t| t.first_chunk_mut()) {
            *made = sum;
        }
        start += TILE;
    }
    // What is left of a packet that is no multiple of a tile.
    for i in start..part.end {
        let of_base = base.as_ref().and_then(|(at, other)| other.unwrap_or(&*chunk).get(at + i));
        let parts = sources.iter().filter_map(|source| source.get(i)).chain(of_base);
        let sum = parts.fold(0, |sum, byte| sum ^ byte);
        chunk.get_mut(target + i).into_iter().for_each(|made| *made = sum);
    }
    if let Some(slot) = outputs.get_mut(step.target.chunk) {
        *slot = chunk;
    }
}

#[inline(always)]
fn tile(bytes: &[u8], start: usize) -> Option<&[u8; TILE]> {
    bytes.get(start..)?.first_chunk()
}

/// Adds a piece to a target of its length.
struct Add<'a> {
    target: &'a mut [u8],
    piece: &'a [u8],
}

impl WithSimd for Add<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Vectors>(self, _: S) {
        self.target.iter_mut().zip(self.piece).for_each(|(t, p)| *t ^= p);
    }
}

/// Each output's eight bits in turn, as a mask for each input: bit `x` of it says that input bit `x` is a
/// part.
fn bit_rows(matrix: &Matrix) -> Vec<Vec<u8>> {
    let mut rows = Vec::new();
    for coefficients in matrix.rows() {
        for bit in 0..8 {
            rows.push(coefficients.iter().map(|c| mask(*c, bit)).collect());
        }
    }
    rows
}

/// Which bits of an element matter for bit `bit` of its product with a coefficient.
fn mask(coefficient: u8, bit: usize) -> u8 {
    let powers = std::iter::successors(Some(coefficient), |e| Some(double(*e)));
    powers.take(8).enumerate().fold(0, |mask, (x, product)| mask | (product >> bit & 1) << x)
}

/// The outputs' packets that an input's packet is a part of.
fn reach(rows: &[Vec<u8>], input: usize) -> Vec<Place> {
    let has = |row: &&Vec<u8>| row.get(input / 8).is_some_and(|mask| mask >> (input % 8) & 1 == 1);
    let places = rows.iter().enumerate().filter(|(_, row)| has(row));
    places.map(|(i, _)| Place { chunk: i / 8, bit: i % 8 }).collect()
}

/// An order of steps: always the row next that costs the fewest sums, anew or from a row made before.
fn schedule(rows: &[Vec<u8>]) -> Vec<Step> {
    let place = |row: usize| Place { chunk: row / 8, bit: row % 8 };
    let weight = |row: &[u8]| row.iter().map(|mask| mask.count_ones()).sum::<u32>();
    // Of each row that is still to make: what it costs, and which row it starts from.
    let mut open: Vec<(usize, u32, Option<usize>)> =
        rows.iter().enumerate().map(|(i, row)| (i, weight(row), None)).collect();
    let mut steps = Vec::with_capacity(rows.len());
    while let Some(next) = (0..open.len()).min_by_key(|i| open.get(*i).map(|(_, cost, _)| *cost)) {
        let (row, _, base) = open.swap_remove(next);
        let difference = |a: usize, b: Option<usize>| -> Vec<u8> {
            let get = |i: Option<usize>| i.and_then(|i| rows.get(i)).map_or([].as_slice(), Vec::as_slice);
            let other = get(b).iter().copied().chain(std::iter::repeat(0));
            get(Some(a)).iter().zip(other).map(|(x, y)| x ^ y).collect()
        };
        let parts = difference(row, base);
        let bits = parts.iter().enumerate().flat_map(|(chunk, mask)| {
            (0..8).filter(move |bit| mask >> bit & 1 == 1).map(move |bit| Place { chunk, bit })
        });
        steps.push(Step { target: place(row), base: base.map(place), inputs: bits.collect() });
        for (other, cost, from) in &mut open {
            // The copy costs about as much as one more source.
            let via = weight(&difference(*other, Some(row))) + 1;
            if via < *cost {
                (*cost, *from) = (via, Some(row));
            }
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::mul;

    /// Element by element, from the eight bits that stand in eight packets.
    fn naive(matrix: &Matrix, packet: usize, inputs: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let len = inputs[0].len();
        let mut outputs = vec![vec![0u8; len]; matrix.rows().len()];
        for region in (0..len).step_by(8 * packet) {
            for (i, lane) in (0..packet).flat_map(|i| (0..8).map(move |lane| (i, lane))) {
                let at = |bit: usize| region + bit * packet + i;
                let element =
                    |chunk: &Vec<u8>| (0..8).fold(0, |e, bit| e | (chunk[at(bit)] >> lane & 1) << bit);
                for (row, output) in matrix.rows().iter().zip(&mut outputs) {
                    let sum = row.iter().zip(inputs).fold(0, |s, (c, input)| s ^ mul(*c, element(input)));
                    (0..8).for_each(|bit| output[at(bit)] |= (sum >> bit & 1) << lane);
                }
            }
        }
        outputs
    }

    fn check(packet: usize, regions: usize, simd: Simd) {
        let matrix = Matrix::from_fn(3, 5, |r, c| crate::field::inverse((r ^ (c + 3)) as u8));
        let mut rng = testkit::Rng::new(packet as u64);
        let inputs: Vec<Vec<u8>> = (0..5).map(|_| rng.bytes(8 * packet * regions)).collect();
        let want = naive(&matrix, packet, &inputs);
        let code = Packets::new(&matrix, packet, simd);
        let mut got = vec![vec![0xaa; 8 * packet * regions]; 3];
        let slices: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
        code.apply(&slices, &mut got.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>());
        assert_eq!(got, want, "packets of {packet}");
        // A change of one input at odd places, folded in and computed anew.
        let (lead, change) = (packet / 3, rng.bytes(8 * packet * regions - packet / 3 - packet / 4));
        let mut changed = inputs.clone();
        changed[2][lead..].iter_mut().zip(&change).for_each(|(a, b)| *a ^= b);
        code.fold(2, lead, &change, &mut got.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>());
        assert_eq!(got, naive(&matrix, packet, &changed), "a change in packets of {packet}");
    }

    #[test]
    fn packets_stand_for_the_bits_of_elements() {
        for simd in [Simd::Detected, Simd::Off] {
            for packet in [1, 4, 7, 16, 300, 2048] {
                check(packet, 2, simd);
            }
        }
    }

    #[test]
    fn a_schedule_makes_every_packet_once_from_what_is_there() {
        let matrix = Matrix::from_fn(4, 6, |r, c| crate::field::inverse((r ^ (c + 4)) as u8));
        let (rows, steps) = (bit_rows(&matrix), schedule(&bit_rows(&matrix)));
        let mut made: Vec<Place> = Vec::new();
        for step in &steps {
            assert!(step.base.is_none_or(|base| made.contains(&base)) && !made.contains(&step.target));
            made.push(step.target);
        }
        assert_eq!(made.len(), rows.len());
        let sums: usize = steps.iter().map(|s| s.inputs.len() + usize::from(s.base.is_some())).sum();
        let ones: u32 = rows.iter().flatten().map(|mask| mask.count_ones()).sum();
        assert!(sums < ones as usize, "{sums} instead of {ones}");
    }
}

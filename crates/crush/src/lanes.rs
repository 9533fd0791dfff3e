//! Straw2 draws of one bucket for many inputs at once, in vector registers.
//!
//! Buckets are short, so the lanes are inputs, not items. Each draw is an approximate logarithm over the weight, with a
//! proven bound of its error; an input whose two best draws are closer than their bounds is drawn again exactly. So
//! the answer is the exact one always.

use pulp::{Arch, Simd, WithSimd};

use crate::choose::straw2;
use crate::hash::hash32_3;

/// Inputs of one group. The compiler makes one to four vectors of them.
const LANES: usize = 16;
/// Groups with fewer inputs than this are drawn one by one, vectors over the items.
const WORTH_IT: usize = 3;

/// Draws from a straw2 bucket for each pair of `x` and `r`; the positions of the items drawn go to `picks`. The lists
/// are of one length, `ids` and `weights` of another; `inverse` is memory that is reused.
pub(crate) fn draw_many(
    arch: Arch,
    (hash, ids, weights): (u8, &[i32], &[u32]),
    x: &[u32],
    r: &[u32],
    picks: &mut [u32],
    inverse: &mut Vec<f32>,
) {
    let fits = hash == 0 && weights.iter().all(|w| *w <= i32::MAX as u32) && weights.iter().any(|w| *w > 0);
    let exact = |x: u32, r: u32| straw2(hash, ids, weights, x, r) as u32;
    if !fits || x.len() < WORTH_IT {
        picks.iter_mut().zip(x).zip(r).for_each(|((pick, x), r)| *pick = exact(*x, *r));
        return;
    }
    let equal = weights.iter().all(|w| Some(w) == weights.first() && *w > 0) && weights.len() <= 1 << 16;
    inverse.clear();
    if !equal {
        inverse.extend(weights.iter().map(|w| if *w == 0 { NO_WEIGHT } else { 1.0 / *w as f32 }));
    }
    arch.dispatch(Draws { ids, inverse, x, r, picks: &mut *picks });
    for ((pick, x), r) in picks.iter_mut().zip(x).zip(r) {
        if *pick == UNSURE {
            *pick = exact(*x, *r);
        }
    }
}

/// The work in the form that is compiled once for each instruction set.
struct Draws<'a> {
    ids: &'a [i32],
    /// One over each weight; empty when all weights are equal.
    inverse: &'a [f32],
    x: &'a [u32],
    r: &'a [u32],
    picks: &'a mut [u32],
}

impl WithSimd for Draws<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let groups = self.x.chunks(LANES).zip(self.r.chunks(LANES)).zip(self.picks.chunks_mut(LANES));
        for ((x, r), picks) in groups {
            if self.inverse.is_empty() {
                draw_equals(self.ids, x, r, picks);
            } else {
                draw_group(self.ids, self.inverse, x, r, picks);
            }
        }
    }
}

/// The answer for an input whose two best draws may be in either order.
const UNSURE: u32 = u32::MAX;

/// One over a weight of zero: no other draw is that long.
const NO_WEIGHT: f32 = 1e30;

/// What [`distance`] may differ by from the exact distance, with room for the roundings of the division, the sum and
/// the product (less than 2^-21 of at most 16, each side) and for the exact draw being cut to a whole number: two draws
/// are in their right order when they are one unit apart, 2^-44 of weights up to 2^31.
const BOUND: f32 = 1.3e-4 + 8e-6 + 6.2e-5;

/// About how far the logarithm of base 2 of `u + 1` lies below 16, for `u` up to 0xffff.
#[inline(always)]
fn distance(u: u32) -> f32 {
    // Exact: 1 to 2^16.
    let bits = ((u + 1) as i32 as f32).to_bits();
    let exponent = (bits >> 23) as i32 - 127;
    let t = f32::from_bits(bits & 0x007f_ffff | 0x3f80_0000) - 1.0;
    // The polynomial of least error, 8.8e-5, for the logarithm of 1 + t.
    let log = 8.759_192e-5 + t * (1.437_704_4 + t * (-0.674_942_9 + t * (0.318_679_13 + t * -0.081_615_81)));
    (16 - exponent) as f32 - log
}

/// Draws of equal weights are in the order of their hashes when those differ by more than this. Nearer ones may come out
/// equal, and the logarithm's table dips at its very end.
const NEAR: u32 = 8;

/// [`draw_group`] for at most 2^16 items of one weight: the largest hash wins. It stands in the upper half of a word,
/// its item in the lower one.
#[inline(always)]
#[allow(clippy::indexing_slicing)] // arrays of LANES, indices below LANES
fn draw_equals(ids: &[i32], x: &[u32], r: &[u32], picks: &mut [u32]) {
    let (mut xs, mut rs) = ([0u32; LANES], [0u32; LANES]);
    xs.iter_mut().zip(x).for_each(|(to, from)| *to = *from);
    rs.iter_mut().zip(r).for_each(|(to, from)| *to = *from);
    let (mut best, mut second) = ([0u32; LANES], [0u32; LANES]);
    for (i, id) in (0u32..).zip(ids) {
        for l in 0..LANES {
            let draw = hash32_3(xs[l], *id as u32, rs[l]) << 16 | i;
            second[l] = second[l].max(best[l].min(draw));
            best[l] = best[l].max(draw);
        }
    }
    for l in 0..LANES {
        let sure = ids.len() == 1 || (best[l] >> 16) - (second[l] >> 16) > NEAR;
        best[l] = if sure { best[l] & 0xffff } else { UNSURE };
    }
    picks.iter_mut().zip(&best).for_each(|(to, from)| *to = *from);
}

/// One group, the last one shorter than the others.
#[inline(always)]
#[allow(clippy::indexing_slicing)] // arrays of LANES, indices below LANES
fn draw_group(ids: &[i32], inverse: &[f32], x: &[u32], r: &[u32], picks: &mut [u32]) {
    let (mut xs, mut rs) = ([0u32; LANES], [0u32; LANES]);
    xs.iter_mut().zip(x).for_each(|(to, from)| *to = *from);
    rs.iter_mut().zip(r).for_each(|(to, from)| *to = *from);
    // The shortest straw by its far end, its item, and the two shortest by their near ends.
    let (mut best, mut at) = ([f32::MAX; LANES], [0u32; LANES]);
    let (mut near, mut second) = ([f32::MAX; LANES], [f32::MAX; LANES]);
    for ((i, id), inverse) in (0u32..).zip(ids).zip(inverse) {
        for l in 0..LANES {
            let u = hash32_3(xs[l], *id as u32, rs[l]) & 0xffff;
            let d = distance(u);
            let far = (d + BOUND) * inverse;
            let low = (d - BOUND) * inverse;
            at[l] = if far < best[l] { i } else { at[l] };
            best[l] = if far < best[l] { far } else { best[l] };
            let behind = if near[l] > low { near[l] } else { low };
            second[l] = if second[l] < behind { second[l] } else { behind };
            near[l] = if near[l] < low { near[l] } else { low };
        }
    }
    for l in 0..LANES {
        at[l] = if second[l] <= best[l] { UNSURE } else { at[l] };
    }
    picks.iter_mut().zip(&at).for_each(|(to, from)| *to = *from);
}

#[cfg(test)]
#[allow(clippy::indexing_slicing)]
mod tests {
    use super::*;
    use crate::ln::neg_ln;

    #[test]
    fn the_approximate_logarithm_keeps_its_bound_for_every_draw() {
        for u in 0..=0xffff {
            let exact = neg_ln(u) as f64 / (1u64 << 44) as f64;
            let error = (f64::from(distance(u)) - exact).abs();
            assert!(error <= 1.3e-4, "{u:#x}: {error}");
        }
    }

    /// Every value that a hash can have, for the weights at the edges.
    #[test]
    fn draws_further_apart_than_their_bounds_are_in_the_exact_order() {
        for weight in [1u32, 2, 0xffff, 0x10000, 0x10001, 0x4_8000, 0xff_ffff, 0x7fff_ffff] {
            let inverse = 1.0 / weight as f32;
            // Ordered by far end: the last of the draws before a near end is the closest that counts as shorter.
            let mut draws: Vec<(f32, u64)> = (0..=0xffff)
                .map(|u| ((distance(u) + BOUND) * inverse, neg_ln(u) / u64::from(weight)))
                .collect();
            draws.sort_by(|a, b| a.0.total_cmp(&b.0));
            let mut longest = Vec::new();
            for (_, exact) in &draws {
                longest.push((*exact).max(longest.last().copied().unwrap_or(0)));
            }
            let mut judged = 0;
            for u in 0..=0xffff {
                let near = (distance(u) - BOUND) * inverse;
                let shorter = draws.partition_point(|d| d.0 < near);
                if let Some(last) = shorter.checked_sub(1) {
                    assert!(longest[last] < neg_ln(u) / u64::from(weight), "{u:#x} of weight {weight:#x}");
                    judged += 1;
                }
            }
            assert!(judged > 60_000, "{judged} of weight {weight:#x}");
        }
    }

    /// Every value again; the heavier, the nearer are the draws.
    #[test]
    fn equal_weights_draw_in_the_order_of_their_hashes() {
        for weight in [1, 0x10000, i32::MAX as u64] {
            let mut shortest = u64::MAX; // of all hashes that are smaller by more than NEAR
            for u in NEAR + 1..=0xffff {
                shortest = shortest.min(neg_ln(u - NEAR - 1) / weight);
                assert!(neg_ln(u) / weight < shortest, "{u:#x} of weight {weight:#x}");
            }
        }
    }

    fn compare(ids: &[i32], weights: &[u32], inputs: u32) {
        let x: Vec<u32> = (0..inputs).map(|i| i.wrapping_mul(0x9e37_79b9)).collect();
        let r: Vec<u32> = (0..inputs).map(|i| i % 5).collect();
        let mut picks = vec![0; x.len()];
        draw_many(Arch::new(), (0, ids, weights), &x, &r, &mut picks, &mut Vec::new());
        for ((x, r), pick) in x.iter().zip(&r).zip(&picks) {
            let exact = straw2(0, ids, weights, *x, *r) as u32;
            assert_eq!(*pick, exact, "x {x} r {r} ids {ids:?} weights {weights:?}");
        }
    }

    #[test]
    fn draws_of_many_inputs_are_the_exact_ones() {
        let ids: Vec<i32> = (0..23).collect();
        let weight_lists: [&[u32]; 8] = [
            &[0x10000; 9],
            &[1, 0x7fff_ffff, 3, 0x7fff_ffff, 2],
            &[0, 0, 0],
            &[0, 0x10000, 0, 0x20000],
            &[0x7fff_ffff; 23],
            &[0x8000_0000, 0x10000, 0xffff_ffff],
            &[1; 16],
            &[0x3_0000],
        ];
        for weights in weight_lists {
            compare(&ids[..weights.len()], weights, 6_001);
        }
        compare(&[-5, -5, -5, 7, 7], &[0x10000; 5], 501); // the same id twice draws the same: the first wins
    }

    #[test]
    fn short_groups_and_other_hashes_are_drawn_too() {
        for inputs in 0..40 {
            compare(&[3, 1, 2], &[0x10000, 0x18000, 0x8000], inputs);
        }
        let mut picks = [9; 8];
        draw_many(Arch::new(), (1, &[4, 5], &[1, 2]), &[0; 8], &[0; 8], &mut picks, &mut Vec::new());
        assert_eq!(picks, [1; 8]); // every draw is of 0: the heavier wins
    }
}

//! The fixed-point logarithm behind straw2 draws.
//!
//! Source: crush_ln in src/crush/mapper.c.

use crate::ln_table::{LOG_COARSE, LOG_FINE, RECIPROCAL};

/// About `2^44 * log2(u + 1)` for `u` up to 0xffff; higher bits of `u` are ignored.
#[inline(always)]
pub(crate) fn ln(u: u32) -> u64 {
    let x = (u & 0xffff) + 1;
    // Shift the highest set bit to bit 15 (bit 16 for the one value that is a power of two already).
    let shift = (x.leading_zeros()).saturating_sub(16);
    let x = x << shift;
    let exponent = u64::from(15 - shift);
    // `x >> 8` lies between 128 and 256.
    let coarse = ((x >> 8) as usize).wrapping_sub(128);
    let reciprocal = RECIPROCAL.get(coarse).copied().unwrap_or(0);
    let log = LOG_COARSE.get(coarse).copied().unwrap_or(0);
    let fine = (u64::from(x).wrapping_mul(reciprocal) >> 48) & 0xff;
    let log = log + LOG_FINE.get(fine as usize).copied().unwrap_or(0);
    (exponent << 44) + (log >> 4)
}

/// How far below `ln(1) = 2^48` the draw of `u` lies: 0 for the best draw.
#[inline(always)]
pub(crate) fn neg_ln(u: u32) -> u64 {
    (1u64 << 48).wrapping_sub(ln(u))
}

#[cfg(test)]
mod tests {
    use super::{ln, neg_ln};

    /// What the choice of straws relies on to skip items.
    #[test]
    fn the_logarithm_grows_but_for_its_last_value() {
        for u in 1..0xffff {
            assert!(ln(u) >= ln(u - 1), "{u:#x}");
        }
        assert!(ln(0xfffd) < ln(0xffff) && ln(0xffff) < ln(0xfffe));
        assert_eq!((neg_ln(0), ln(0xffff)), (1 << 48, 0xffff_f000_0000));
    }

    #[test]
    fn the_logarithm_is_about_log2() {
        for u in 0..=0xffff {
            let exact = f64::from(u + 1).log2() * (1u64 << 44) as f64;
            let error = (ln(u) as f64 - exact).abs() / (1u64 << 44) as f64;
            assert!(error < 1e-4, "{u:#x}: {error}");
        }
    }
}

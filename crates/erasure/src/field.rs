//! The field of 256 elements that all codes here use, for setting up matrices. Bulk work has quicker ways.
//!
//! Polynomial 0x11d, generator 2. Source: GF-complete's default for w = 8, and ISA-L's ec_base.h.

/// `2 * a`.
pub(crate) const fn double(a: u8) -> u8 {
    (a << 1) ^ if a & 0x80 == 0 { 0 } else { 0x1d }
}

pub(crate) const fn mul(a: u8, b: u8) -> u8 {
    let (mut a, mut b, mut sum) = (a, b, 0);
    while b != 0 {
        if b & 1 == 1 {
            sum ^= a;
        }
        a = double(a);
        b >>= 1;
    }
    sum
}

/// One over `a`; 0 for 0, which has no inverse.
pub(crate) const fn inverse(a: u8) -> u8 {
    // The group has 255 elements, so a^254 is the inverse: the product of a^2, a^4 ... a^128.
    let (mut power, mut product, mut i) = (a, 1, 0);
    while i < 7 {
        power = mul(power, power);
        product = mul(product, power);
        i += 1;
    }
    product
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_field() {
        for a in 0..=255u8 {
            assert_eq!(mul(a, inverse(a)), u8::from(a != 0), "{a}");
            for b in 0..=255u8 {
                assert_eq!(mul(a, b), mul(b, a));
                assert_eq!(mul(a, b ^ 0x35), mul(a, b) ^ mul(a, 0x35));
            }
        }
        // 2 generates everything but 0.
        let mut powers: Vec<u8> = std::iter::successors(Some(1u8), |a| Some(double(*a))).take(255).collect();
        powers.sort_unstable();
        assert_eq!(powers, (1..=255).collect::<Vec<u8>>());
    }
}

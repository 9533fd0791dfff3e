//! The checksum of frames, log records and blocks.

use crc_fast::{CrcAlgorithm, Digest};

/// CRC-32C as Ceph computes it: `seed` is the register's start value (mostly `!0`) and the end is not inverted, so the
/// checksum of two pieces is the second's with the first's as seed. Source: ceph_crc32c in src/include/crc32c.h.
pub fn crc32c(seed: u32, bytes: &[u8]) -> u32 {
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, seed.into());
    digest.update(bytes);
    !(digest.finalize() as u32)
}

#[cfg(test)]
mod tests {
    use super::crc32c;

    /// Bit by bit, from the polynomial.
    fn naive(seed: u32, bytes: &[u8]) -> u32 {
        bytes.iter().fold(seed, |crc, b| {
            (0..8).fold(crc ^ u32::from(*b), |c, _| (c >> 1) ^ (0x82f6_3b78 & (c & 1).wrapping_neg()))
        })
    }

    #[test]
    fn it_is_the_polynomial_without_final_inversion() {
        // The well-known check value of CRC-32C, before its final inversion.
        assert_eq!(crc32c(!0, b"123456789"), !0xe306_9283);
        let text: Vec<u8> = (0..2000u32).map(|i| (i * 7) as u8).collect();
        for n in [0, 1, 3, 15, 16, 28, 64, 255, 256, 1000, 2000] {
            for seed in [0, !0, 0x1234_5678] {
                assert_eq!(crc32c(seed, &text[..n]), naive(seed, &text[..n]), "{n} {seed:x}");
            }
        }
    }

    #[test]
    fn pieces_chain_through_the_seed() {
        assert_eq!(crc32c(crc32c(!0, b"1234"), b"56789"), crc32c(!0, b"123456789"));
    }
}

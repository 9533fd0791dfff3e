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
    use std::sync::LazyLock;

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

    /// Byte by byte, from a table: what a processor without instructions for it does.
    fn by_table(seed: u32, bytes: &[u8]) -> u32 {
        static TABLE: LazyLock<[u32; 256]> = LazyLock::new(|| std::array::from_fn(|b| naive(b as u32, &[0])));
        bytes.iter().fold(seed, |crc, b| (crc >> 8) ^ TABLE[usize::from(crc as u8 ^ b)])
    }

    #[test]
    fn every_length_at_every_alignment_is_what_the_table_says() {
        let text: Vec<u8> = (0..9000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 9) as u8).collect();
        for (start, seed) in (0..64).zip([!0, 0, 0x89ab_cdef].into_iter().cycle()) {
            for len in (0..=520).chain([1023, 1024, 1025, 4095, 4096, 4097, 8900]) {
                let part = &text[start..start + len];
                assert_eq!(crc32c(seed, part), by_table(seed, part), "{len} bytes at {start}");
            }
        }
    }

    /// What the library takes of this processor's instructions, by its own order of preference.
    fn expected_path() -> &'static str {
        #[cfg(target_arch = "x86_64")]
        {
            let base = is_x86_feature_detected!("sse4.1") && is_x86_feature_detected!("pclmulqdq");
            match (base, is_x86_feature_detected!("avx512vl"), is_x86_feature_detected!("vpclmulqdq")) {
                (false, ..) => "software",
                (true, false, _) => "sse-pclmulqdq",
                (true, true, false) => "avx512-pclmulqdq",
                (true, true, true) => "avx512-vpclmulqdq",
            }
        }
        #[cfg(target_arch = "aarch64")]
        {
            use std::arch::is_aarch64_feature_detected;
            match (is_aarch64_feature_detected!("aes"), is_aarch64_feature_detected!("sha3")) {
                (false, _) => "software",
                (true, false) => "neon-pmull",
                (true, true) => "neon-pmull-sha3",
            }
        }
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        "software"
    }

    #[test]
    fn the_processors_instructions_are_used_where_it_has_them() {
        let target = crc_fast::get_calculator_target(crc_fast::CrcAlgorithm::Crc32Iscsi);
        assert!(target.contains(expected_path()), "{target} instead of {}", expected_path());
        // The gate masks features and says which path must be left: a mask without effect would test one path often.
        if let Ok(named) = std::env::var("LOLIGO_EXPECT_CRC_PATH") {
            assert_eq!(expected_path(), named, "the processor's features are not masked as meant");
        }
    }

    #[test]
    fn pieces_chain_through_the_seed() {
        assert_eq!(crc32c(crc32c(!0, b"1234"), b"56789"), crc32c(!0, b"123456789"));
    }
}

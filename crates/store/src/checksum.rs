//! CRC-32C of blocks, pages and records.

use codec::sums;
use crc_fast::{CrcAlgorithm, Digest};

/// Size of an allocation unit and of a checksummed data block, in bytes.
pub(crate) const BLOCK: usize = sums::CHUNK;
pub(crate) const BLOCK_U64: u64 = BLOCK as u64;

/// Plain CRC-32C.
pub(crate) fn crc32c(data: &[u8]) -> u32 {
    crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, data) as u32
}

/// CRC-32C over pieces, as if they were one buffer.
pub(crate) fn crc32c_pieces<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> u32 {
    let mut crc = Crc32c::new();
    pieces.into_iter().for_each(|p| crc.update(p));
    crc.value()
}

/// CRC-32C that grows piece by piece.
pub(crate) struct Crc32c(Digest);

impl Crc32c {
    pub(crate) fn new() -> Self {
        Self(Digest::new(CrcAlgorithm::Crc32Iscsi))
    }

    pub(crate) fn update(&mut self, piece: &[u8]) {
        self.0.update(piece);
    }

    pub(crate) fn value(&self) -> u32 {
        self.0.finalize() as u32
    }
}

/// Checksum of what lies at `block`: a block that was written elsewhere by mistake does not verify there, even when
/// its content is the same.
pub(crate) fn placed_crc(block: u32, data: &[u8]) -> u32 {
    crc32c(data) ^ place_mask(block)
}

/// `placed_crc` of each block of a piece that lies at `first` and behind it.
pub(crate) fn placed_crcs(first: u32, piece: &[u8]) -> Vec<u32> {
    match sums::chunk_sums(piece) {
        Some(known) => (first..).zip(known).map(|(b, sum)| sums::standard(sum) ^ place_mask(b)).collect(),
        None => (first..).zip(piece.chunks(BLOCK)).map(|(b, content)| placed_crc(b, content)).collect(),
    }
}

/// Stands for the content of whole blocks, wherever they lie: CRC-32C over the CRC-32C of each.
pub fn blocks_digest(content: &[u8]) -> u32 {
    match sums::chunk_sums(content) {
        Some(known) => digest_of(known.into_iter().map(sums::standard)),
        None => digest_of(content.chunks(BLOCK).map(crc32c)),
    }
}

/// The same, from the blocks' own checksums.
pub(crate) fn digest_of(blocks: impl Iterator<Item = u32>) -> u32 {
    let mut all = Crc32c::new();
    blocks.for_each(|crc| all.update(&crc.to_le_bytes()));
    all.value()
}

/// Any fixed function that differs between neighbours will do.
pub(crate) fn place_mask(block: u32) -> u32 {
    block.wrapping_mul(0x9e37_79b1).rotate_left(15) ^ 0x4c6f_6c69
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_value_and_pieces() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c_pieces([&b"1234"[..], b"", b"56789"]), 0xe306_9283);
        assert_ne!(placed_crc(7, b"same"), placed_crc(8, b"same"));
    }

    #[test]
    fn sums_that_are_known_give_the_blocks_checksums() {
        let text: Vec<u8> =
            (0..20 * BLOCK as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
        let kept = sums::keep(text.clone().into(), sums::summed(0, &text).1);
        assert!(sums::chunk_sums(&kept).is_some() && sums::chunk_sums(&text).is_none());
        assert_eq!(placed_crcs(77, &kept), placed_crcs(77, &text));
        assert_eq!(placed_crcs(5, &kept.slice(3 * BLOCK..)), placed_crcs(5, &text[3 * BLOCK..]));
        assert_eq!(placed_crcs(5, &kept.slice(1..1 + 9 * BLOCK)), placed_crcs(5, &text[1..1 + 9 * BLOCK]));
    }
}

//! Sealing frames of msgr2 in secure mode, as a peer with the connection's secret can: whatever stands in
//! them.
//!
//! Source: doc/dev/msgr2.rst (msgr2.1-secure mode), src/msg/async/crypto_onwire.cc.

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use bytes::{BufMut, BytesMut};

/// Key, and the first nonces of what the connector and what the acceptor receives.
pub(crate) const SECRET: [u8; 40] = {
    let mut secret = [7; 40];
    secret[16] = 1;
    secret[28] = 2;
    secret
};
pub(crate) const BLOCK: usize = 16;
pub(crate) const TAG_LEN: usize = 16;

/// One direction.
pub(crate) struct Sealer {
    key: LessSafeKey,
    nonce: [u8; 12],
}

impl Sealer {
    /// Of what this end receives.
    pub(crate) fn to(connector: bool) -> Self {
        let (key, nonces) = SECRET.split_at(16);
        let key = UnboundKey::new(&AES_128_GCM, key).expect("16 bytes");
        let mut nonce = [0; 12];
        nonce.copy_from_slice(if connector { &nonces[..12] } else { &nonces[12..] });
        Self { key: LessSafeKey::new(key), nonce }
    }

    /// Four bytes stay, and eight count.
    fn next(&mut self) -> Nonce {
        let now = Nonce::assume_unique_for_key(self.nonce);
        for byte in &mut self.nonce[4..] {
            *byte = byte.wrapping_add(1);
            if *byte != 0 {
                break;
            }
        }
        now
    }

    /// Appends the block, filled up with zeros, and its tag.
    pub(crate) fn seal(&mut self, out: &mut BytesMut, block: &[u8]) {
        let start = out.len();
        out.put_slice(block);
        out.resize(start + block.len().next_multiple_of(BLOCK), 0);
        let nonce = self.next();
        let tag = self
            .key
            .seal_in_place_separate_tag(nonce, Aad::empty(), &mut out[start..])
            .expect("a short block");
        out.put_slice(tag.as_ref());
    }

    /// What such a block holds.
    pub(crate) fn open(&mut self, sealed: &[u8]) -> Vec<u8> {
        let mut block = sealed.to_vec();
        let nonce = self.next();
        self.key.open_in_place(nonce, Aad::empty(), &mut block).expect("sealed by our other end");
        block.truncate(sealed.len() - TAG_LEN);
        block
    }
}

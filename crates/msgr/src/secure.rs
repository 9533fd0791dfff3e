//! AES-128-GCM with counted nonces: one direction of a secure connection.
//!
//! Invariants:
//! 1. A sealer uses each nonce once: the counter only grows, and the initial value is not met again.
//! 2. The two directions share a key and never a nonce: their streams start too far apart to meet.
//!
//! Source: src/msg/async/crypto_onwire.cc, doc/dev/msgr2.rst (msgr2.1-secure mode).

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};

use crate::Error;

pub(crate) const TAG_LEN: usize = 16;
const KEY_LEN: usize = 16;
const NONCE_LEN: usize = 12;
/// Blocks one direction may ever seal: far above what a connection can carry, and what keeps the directions
/// apart.
const MAX_BLOCKS: u64 = 1 << 48;

/// One direction's key and next nonce.
pub(crate) struct Gcm {
    key: LessSafeKey,
    /// Four fixed bytes, then a counter of eight, little-endian.
    fixed: [u8; 4],
    counter: u64,
    left: u64,
}

/// Which end of the connection we are: the connecting end receives with the first nonce.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Connector,
    Acceptor,
}

/// The receiving and the sending direction, from the secret that authentication agreed on.
pub(crate) fn directions(secret: &[u8], side: Side) -> Result<(Gcm, Gcm), Error> {
    let (key, rest) = secret.split_at_checked(KEY_LEN).ok_or(Error::BadSecret)?;
    let first = rest.get(..NONCE_LEN).ok_or(Error::BadSecret)?;
    let second = rest.get(NONCE_LEN..2 * NONCE_LEN).ok_or(Error::BadSecret)?;
    let (a, b) = (Gcm::new(key, first)?, Gcm::new(key, second)?);
    let apart = a.counter.wrapping_sub(b.counter).min(b.counter.wrapping_sub(a.counter));
    if a.fixed == b.fixed && apart < MAX_BLOCKS {
        return Err(Error::BadSecret);
    }
    Ok(match side {
        Side::Connector => (a, b),
        Side::Acceptor => (b, a),
    })
}

impl Gcm {
    fn new(key: &[u8], nonce: &[u8]) -> Result<Self, Error> {
        let key = UnboundKey::new(&AES_128_GCM, key).map_err(|_| Error::BadSecret)?;
        let (fixed, counter) = nonce.split_first_chunk::<4>().ok_or(Error::BadSecret)?;
        let counter = u64::from_le_bytes(counter.try_into().map_err(|_| Error::BadSecret)?);
        Ok(Self { key: LessSafeKey::new(key), fixed: *fixed, counter, left: MAX_BLOCKS })
    }

    fn next_nonce(&mut self) -> Result<[u8; NONCE_LEN], Error> {
        self.left = self.left.checked_sub(1).ok_or(Error::NoncesExhausted)?;
        let mut nonce = [0u8; NONCE_LEN];
        let (fixed, counter) = nonce.split_at_mut(4);
        fixed.copy_from_slice(&self.fixed);
        counter.copy_from_slice(&self.counter.to_le_bytes());
        self.counter = self.counter.wrapping_add(1);
        Ok(nonce)
    }

    /// Encrypts `block` in place and returns its tag.
    pub fn seal(&mut self, block: &mut [u8]) -> Result<[u8; TAG_LEN], Error> {
        let nonce = Nonce::assume_unique_for_key(self.next_nonce()?);
        let tag = self
            .key
            .seal_in_place_separate_tag(nonce, Aad::empty(), block)
            .map_err(|_| Error::NoncesExhausted)?;
        tag.as_ref().try_into().map_err(|_| Error::NoncesExhausted)
    }

    /// Decrypts `block`, whose last 16 bytes are its tag, in place.
    pub fn open(&mut self, block: &mut [u8]) -> Result<(), Error> {
        let nonce = Nonce::assume_unique_for_key(self.next_nonce()?);
        self.key.open_in_place(nonce, Aad::empty(), block).map(|_| ()).map_err(|_| Error::BadAuthTag)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn secret(seed: u8) -> Vec<u8> {
        (0..64u8).map(|i| i.wrapping_mul(31).wrapping_add(seed)).collect()
    }

    #[test]
    fn no_nonce_comes_twice_under_one_key() {
        let mut seen = BTreeSet::new();
        for connection in 0..8 {
            let secret = secret(connection);
            for side in [Side::Connector, Side::Acceptor] {
                let (_, mut tx) = directions(&secret, side).expect("fit");
                for _ in 0..1000 {
                    assert!(seen.insert((secret[..16].to_vec(), tx.next_nonce().expect("left"))));
                }
            }
        }
    }

    #[test]
    fn the_counter_wraps_inside_its_eight_bytes_and_runs_out() {
        let mut s = secret(1);
        s[20..28].fill(0xff);
        let (mut rx, _) = directions(&s, Side::Connector).expect("fit");
        assert_eq!(rx.next_nonce().expect("left")[4..], [0xff; 8]);
        assert_eq!(rx.next_nonce().expect("left")[4..], [0; 8]);
        assert_eq!(rx.next_nonce().expect("left")[..4], s[16..20]);
        rx.left = 0;
        assert_eq!(rx.seal(&mut [0; 4]), Err(Error::NoncesExhausted));
    }

    #[test]
    fn unfit_secrets_are_refused() {
        for n in 0..40 {
            assert!(directions(&secret(0)[..n], Side::Connector).is_err(), "{n}");
        }
        let mut s = secret(0);
        s.copy_within(16..28, 28);
        assert!(matches!(directions(&s, Side::Connector), Err(Error::BadSecret)));
        s[28] ^= 1;
        assert!(directions(&s, Side::Connector).is_ok());
    }

    #[test]
    fn what_one_end_seals_the_other_opens_and_a_changed_bit_is_found() {
        let (mut crx, mut ctx) = directions(&secret(3), Side::Connector).expect("fit");
        let (mut srx, mut stx) = directions(&secret(3), Side::Acceptor).expect("fit");
        for (tx, rx) in [(&mut ctx, &mut srx), (&mut stx, &mut crx)] {
            let mut block = b"sixteen bytes...".to_vec();
            let tag = tx.seal(&mut block).expect("sealed");
            block.extend_from_slice(&tag);
            rx.open(&mut block).expect("opened");
            assert_eq!(&block[..16], b"sixteen bytes...");
            let mut block = b"another".to_vec();
            let tag = tx.seal(&mut block).expect("sealed");
            block.extend_from_slice(&tag);
            block[2] ^= 1;
            assert_eq!(rx.open(&mut block), Err(Error::BadAuthTag));
        }
    }
}

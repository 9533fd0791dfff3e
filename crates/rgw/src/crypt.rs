//! Encryption of objects: how their bytes are stored, and what their heads say of it.
//!
//! 1. Stored bytes are as many as a client's. Each block of 4096 of them stands for itself: AES-256 in CBC
//!    mode, begun with a vector that follows from where the block is in its stream.
//! 2. A stream is an object that was written at once, or one part of an upload.
//! 3. Bytes behind the last whole 16 of a stream are hidden by the cipher's next output, of which the block
//!    in front of them is the input, or the vector where there is none.
//!
//! Source: AES_256_CBC in src/rgw/rgw_crypt.cc.

use std::collections::BTreeMap;
use std::fmt;

use aes::Aes256;
use aes::cipher::generic_array::GenericArray;
use aes::cipher::{BlockEncrypt, InnerIvInit, KeyInit};
use bytes::Bytes;
use cbc::cipher::inout::InOutBuf;
use cbc::cipher::{BlockDecryptMut, BlockEncryptMut};
use zeroize::Zeroizing;

/// Bytes of a key, and of what a key is derived with.
pub const KEY: usize = 32;
/// Bytes that are encrypted by themselves.
pub const BLOCK: u64 = 4096;
/// Blocks that are encrypted side by side.
const LANES: usize = 8;
/// Bytes of the cipher's own blocks.
const UNIT: usize = 16;
/// The vector of a stream's first block.
const VECTOR: [u8; UNIT] = *b"aes256iv_ctr1337";

/// Attributes of heads. Source: RGW_ATTR_CRYPT_* in src/rgw/rgw_common.h.
const PREFIX: &[u8] = b"user.rgw.crypt.";
const MODE: &[u8] = b"user.rgw.crypt.mode";
const KEY_MD5: &[u8] = b"user.rgw.crypt.keymd5";
const KEY_ID: &[u8] = b"user.rgw.crypt.keyid";
const SELECTOR: &[u8] = b"user.rgw.crypt.keysel";
/// 16.2.15 writes it; the source of before 16.2 has none.
const CONTEXT: &[u8] = b"user.rgw.crypt.context";
const CUSTOMER: &[u8] = b"SSE-C-AES256";
const SERVICE: &[u8] = b"SSE-KMS";
const AUTOMATIC: &[u8] = b"RGW-AUTO";
/// SSE-S3 in releases behind 16.2, which does not know it. Source: rgw_s3_prepare_encrypt in
/// src/rgw/rgw_crypt.cc of 17.2.
const STORED: &[u8] = b"AES256";

/// A key that nobody sees in a log, and of which nothing stays in memory.
#[derive(Clone)]
pub struct Key(Zeroizing<[u8; KEY]>);

impl Key {
    /// `None` unless there are as many bytes as a key has.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        Some(Self(Zeroizing::new(bytes.try_into().ok()?)))
    }

    /// The key of one object, of the key of all.
    pub fn derived(&self, selector: &[u8; KEY]) -> Self {
        let cipher = Aes256::new((&*self.0).into());
        let mut key = Zeroizing::new(*selector);
        for unit in key.chunks_exact_mut(UNIT) {
            cipher.encrypt_block(GenericArray::from_mut_slice(unit));
        }
        Self(key)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key")
    }
}

/// Encrypts and decrypts with one key.
pub struct Cipher(Aes256);

impl fmt::Debug for Cipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cipher")
    }
}

/// What the block at an offset of a stream begins with.
fn vector(offset: u64) -> [u8; UNIT] {
    u128::from_be_bytes(VECTOR).wrapping_add(u128::from(offset / UNIT as u64)).to_be_bytes()
}

/// A block's whole units, and the bytes behind them.
fn split(block: &mut [u8]) -> (&mut [u8], &mut [u8]) {
    block.split_at_mut(block.len() - block.len() % UNIT)
}

impl Cipher {
    pub fn new(key: &Key) -> Self {
        Self(Aes256::new((&*key.0).into()))
    }

    /// Encrypts what lies at an offset of a stream: whole blocks, and less only at the stream's end.
    pub fn encrypt(&self, data: &mut [u8], offset: u64) {
        let mut at = offset;
        for some in data.chunks_mut(LANES * BLOCK as usize) {
            match some.len() == LANES * BLOCK as usize {
                true => self.encrypt_lanes(some, at),
                false => self.encrypt_blocks(some, at),
            }
            at = at.wrapping_add(some.len() as u64);
        }
    }

    /// Blocks side by side: within one each unit waits for the one before it, and a processor does not.
    fn encrypt_lanes(&self, data: &mut [u8], offset: u64) {
        assert!(offset % BLOCK == 0, "invariant 1: nothing begins within a block");
        let starts = (0u64..).map(|n| aes::Block::from(vector(offset.wrapping_add(n.wrapping_mul(BLOCK)))));
        let lanes = data.chunks_exact_mut(BLOCK as usize).map(|block| block.chunks_exact_mut(UNIT));
        let (mut lanes, mut chain): (Vec<_>, Vec<aes::Block>) = lanes.zip(starts).unzip();
        let mut units: Vec<&mut [u8]> = Vec::with_capacity(LANES);
        loop {
            units.extend(lanes.iter_mut().filter_map(Iterator::next));
            if units.is_empty() {
                return;
            }
            for (unit, last) in units.iter().zip(&mut chain) {
                last.iter_mut().zip(unit.iter()).for_each(|(last, byte)| *last ^= byte);
            }
            self.0.encrypt_blocks(&mut chain);
            units.drain(..).zip(&chain).for_each(|(unit, done)| unit.copy_from_slice(done));
        }
    }

    fn encrypt_blocks(&self, data: &mut [u8], offset: u64) {
        self.blocks(data, offset, |cipher, vector, whole| {
            let mut mode = cbc::Encryptor::<&Aes256>::inner_iv_init(&cipher.0, &vector.into());
            mode.encrypt_blocks_inout_mut(InOutBuf::from(&mut *whole).into_chunks().0);
            // The last of what is stored hides the rest.
            whole.last_chunk().copied()
        });
    }

    /// The other way round.
    pub fn decrypt(&self, data: &mut [u8], offset: u64) {
        self.blocks(data, offset, |cipher, vector, whole| {
            let last = whole.last_chunk().copied();
            let mut mode = cbc::Decryptor::<&Aes256>::inner_iv_init(&cipher.0, &vector.into());
            mode.decrypt_blocks_inout_mut(InOutBuf::from(&mut *whole).into_chunks().0);
            last
        });
    }

    /// `done` is given each block's whole units, and gives the last that is stored of them.
    fn blocks(
        &self,
        data: &mut [u8],
        offset: u64,
        done: impl Fn(&Self, [u8; UNIT], &mut [u8]) -> Option<[u8; UNIT]>,
    ) {
        assert!(offset % BLOCK == 0, "invariant 1: nothing begins within a block");
        let mut at = offset;
        for block in data.chunks_mut(BLOCK as usize) {
            let vector = vector(at);
            at = at.wrapping_add(BLOCK);
            let (whole, rest) = split(block);
            let last = done(self, vector, whole);
            if !rest.is_empty() {
                let mut mask = aes::Block::from(last.unwrap_or(vector));
                self.0.encrypt_block(&mut mask);
                rest.iter_mut().zip(mask).for_each(|(byte, mask)| *byte ^= mask);
            }
        }
    }
}

/// What a head says of the key that its object is encrypted with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Encryption {
    /// The client has it, and here is its MD5.
    Customer { key_md5: Bytes },
    /// A service has one of this name, of which the object's is derived. What its bucket and name were is
    /// kept with it, and may be empty: the service of tests derives nothing of it.
    Service { key_id: Bytes, selector: Bytes, context: Bytes },
    /// It is derived of the gateways' own.
    Automatic { selector: Bytes },
    /// It is derived of a bucket's, which has this name in a store of ours.
    Stored { key_id: Bytes, selector: Bytes },
    /// Made by something else than radosgw 16.2.
    Unknown,
}

impl Encryption {
    /// What attributes of a head tell; `None` where the bytes are as clients wrote them.
    pub fn told_by(attrs: &BTreeMap<Bytes, Bytes>) -> Option<Self> {
        let mut said = attrs.range(Bytes::from_static(PREFIX)..);
        let said: Vec<(&[u8], &Bytes)> =
            said.by_ref().map(|(n, v)| (&n[..], v)).take_while(|(n, _)| n.starts_with(PREFIX)).collect();
        let selects = |selector: &Bytes| selector.len() == KEY;
        // In the order of their names.
        Some(match said[..] {
            [] => return None,
            [(KEY_MD5, md5), (MODE, mode)] if mode == CUSTOMER => Self::Customer { key_md5: md5.clone() },
            [(KEY_ID, id), (SELECTOR, selector), (MODE, mode)] if mode == SERVICE && selects(selector) => {
                let (key_id, selector, context) = (id.clone(), selector.clone(), Bytes::new());
                Self::Service { key_id, selector, context }
            }
            [(CONTEXT, context), (KEY_ID, id), (SELECTOR, selector), (MODE, mode)]
                if mode == SERVICE && selects(selector) =>
            {
                let (key_id, selector, context) = (id.clone(), selector.clone(), context.clone());
                Self::Service { key_id, selector, context }
            }
            [(SELECTOR, selector), (MODE, mode)] if mode == AUTOMATIC && selects(selector) => {
                Self::Automatic { selector: selector.clone() }
            }
            [(KEY_ID, id), (SELECTOR, selector), (MODE, mode)] if mode == STORED && selects(selector) => {
                Self::Stored { key_id: id.clone(), selector: selector.clone() }
            }
            _ => Self::Unknown,
        })
    }

    /// Whether radosgw 16.2 takes the stored bytes for the client's: it is to be kept from them.
    pub fn is_unknown_to_16_2(&self) -> bool {
        matches!(self, Self::Stored { .. })
    }

    /// Whether an attribute is one of those that tell of encryption.
    pub fn tells(attr: &[u8]) -> bool {
        attr.starts_with(PREFIX)
    }

    /// What heads have to say of it.
    pub fn attrs(&self) -> Vec<(Bytes, Bytes)> {
        let pair = |(name, value): (&'static [u8], Bytes)| (Bytes::from_static(name), value);
        let mode = |mode: &'static [u8]| (MODE, Bytes::from_static(mode));
        match self.clone() {
            Self::Customer { key_md5 } => [(KEY_MD5, key_md5), mode(CUSTOMER)].map(pair).into(),
            Self::Service { key_id, selector, context } => {
                let context = Some((CONTEXT, context)).filter(|(_, context)| !context.is_empty());
                let others = [(KEY_ID, key_id), (SELECTOR, selector), mode(SERVICE)];
                context.into_iter().chain(others).map(pair).collect()
            }
            Self::Automatic { selector } => [(SELECTOR, selector), mode(AUTOMATIC)].map(pair).into(),
            Self::Stored { key_id, selector } => {
                [(KEY_ID, key_id), (SELECTOR, selector), mode(STORED)].map(pair).into()
            }
            Self::Unknown => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(byte: u8) -> Key {
        Key::new(&[byte; KEY]).unwrap()
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|b| format!("{b:02x}")).collect()
    }

    #[test]
    fn what_was_encrypted_is_decrypted_in_pieces_of_whole_blocks() {
        let cipher = Cipher::new(&key(7));
        for len in [0, 1, 15, 16, 17, 4095, 4096, 4097, 4112, 40_960, 100_003] {
            let plain: Vec<u8> = (0..len).map(|i| (i * 7 + i / 256) as u8).collect();
            let mut all = plain.clone();
            cipher.encrypt(&mut all, 0);
            assert!(len == 0 || all != plain);
            for step in [4096, 3 * 4096, 8 * 4096, 1 << 20] {
                let mut pieces = plain.clone();
                pieces.chunks_mut(step).enumerate().for_each(|(n, p)| cipher.encrypt(p, (n * step) as u64));
                assert!(pieces == all, "{len} by {step}");
                pieces.chunks_mut(step).enumerate().for_each(|(n, p)| cipher.decrypt(p, (n * step) as u64));
                assert!(pieces == plain, "{len} by {step}");
            }
        }
    }

    /// By `openssl enc -aes-256-cbc -nopad` with the vectors of RGW's source.
    #[test]
    fn blocks_and_derived_keys_are_openssls() {
        let mut data = [0; 16];
        Cipher::new(&key(0)).encrypt(&mut data, 0);
        assert_eq!(hex(&data), "6ae3970136274a42f629987f522e138b");
        let mut data = [0; 16];
        Cipher::new(&key(0)).encrypt(&mut data, 1 << 20);
        assert_eq!(hex(&data), "b99d6e47751bb0372647ef469d41e091");
        let derived = key(0x11).derived(&[0x22; KEY]);
        assert_eq!(hex(&*derived.0), "bfa14695d7e07f022d0fb79af8a34549".repeat(2));
    }

    #[test]
    fn vectors_count_the_units_in_front_of_a_block() {
        assert_eq!(&vector(0), b"aes256iv_ctr1337");
        assert_eq!(&vector(16), b"aes256iv_ctr1338");
        assert_eq!(
            hex(&vector(0xff_ffff_f000)),
            hex(&(u128::from_be_bytes(VECTOR) + 0xf_ffff_ff00).to_be_bytes())
        );
    }

    #[test]
    fn heads_tell_what_was_said_to_them() {
        let (key_id, selector) = (Bytes::from("id"), Bytes::from(vec![7; KEY]));
        for said in [
            Encryption::Customer { key_md5: "sum".into() },
            Encryption::Service {
                key_id: key_id.clone(),
                selector: selector.clone(),
                context: "e30=".into(),
            },
            Encryption::Automatic { selector: selector.clone() },
            Encryption::Stored { key_id: key_id.clone(), selector },
        ] {
            let attrs: BTreeMap<Bytes, Bytes> = said.attrs().into_iter().collect();
            assert_eq!(Encryption::told_by(&attrs), Some(said.clone()));
            assert_eq!(said.is_unknown_to_16_2(), attrs[MODE] == STORED);
            assert!(attrs.keys().all(|name| Encryption::tells(name)));
        }
        // Of a key that is too short no object's follows.
        let short = Encryption::Stored { key_id, selector: "short".into() }.attrs().into_iter().collect();
        assert_eq!(Encryption::told_by(&short), Some(Encryption::Unknown));
    }

    #[test]
    fn nobody_sees_a_key() {
        let shown = format!("{:?} {:?}", key(7), Cipher::new(&key(7)));
        assert_eq!(shown, "Key Cipher");
    }
}

//! Secret keys: their wire and text forms, and the ciphers that the protocol fixes.

use aes::Aes128;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use cbc::cipher::block_padding::{NoPadding, Pkcs7};
use cbc::cipher::{BlockDecryptMut as _, BlockEncryptMut as _, KeyIvInit as _};
use codec::{Decode, DecodeError, Encode, Reader, Writer};
use hmac::{Hmac, Mac as _};
use sha2::Sha256;
use types::Utime;

use crate::entropy::{Entropy, random};
use crate::error::AuthError;

const KIND_NONE: u16 = 0;
const KIND_AES: u16 = 1;
const BLOCK: usize = 16;
/// The one IV of the whole protocol. Source: CEPH_AES_IV in src/include/ceph_fs.h.
const IV: [u8; BLOCK] = *b"cephsageyudagreg";

/// A 16 byte AES key with its creation time, or the empty key (an entity that was given none).
///
/// `Debug` never shows the secret, comparison takes constant time, and dropping wipes it.
/// Source: CryptoKey in src/auth/Crypto.h.
#[derive(Clone)]
pub struct CryptoKey {
    kind: u16,
    created: Utime,
    secret: [u8; BLOCK],
}

impl CryptoKey {
    /// The empty key.
    pub const EMPTY: Self = Self { kind: KIND_NONE, created: Utime::ZERO, secret: [0; BLOCK] };

    pub fn new(secret: [u8; BLOCK], created: Utime) -> Self {
        Self { kind: KIND_AES, created, secret }
    }

    /// A fresh random key.
    pub fn generate(now: Utime, entropy: &mut dyn Entropy) -> Self {
        Self::new(random(entropy), now)
    }

    pub fn created(&self) -> Utime {
        self.created
    }

    pub fn is_empty(&self) -> bool {
        self.kind == KIND_NONE
    }

    /// The raw secret: for key derivation and for msgr2's signatures.
    pub fn secret(&self) -> &[u8] {
        if self.is_empty() { &[] } else { &self.secret }
    }

    /// Parses the text form that keyrings and `ceph auth get-key` show; white space around and within is
    /// ignored.
    pub fn from_base64(text: &str) -> Result<Self, KeyTextError> {
        let compact: String = text.chars().filter(|c| !c.is_ascii_whitespace()).collect();
        let raw = STANDARD.decode(compact).map_err(|_| KeyTextError::NotBase64)?;
        Self::from_bytes(raw).map_err(KeyTextError::NotAKey)
    }

    /// The text form that keyrings and `ceph auth get-key` show.
    pub fn to_base64(&self) -> String {
        STANDARD.encode(self.to_bytes())
    }

    /// AES-128-CBC under the protocol's fixed IV, PKCS#7 padding.
    pub fn encrypt(&self, plain: &[u8]) -> Result<Bytes, AuthError> {
        if self.is_empty() {
            return Err(AuthError::EmptyKey);
        }
        let cipher = cbc::Encryptor::<Aes128>::new(&self.secret.into(), &IV.into());
        let mut sealed = plain.to_vec();
        sealed.resize((plain.len() / BLOCK + 1) * BLOCK, 0);
        // Room for the padding is there, so this cannot fail.
        cipher.encrypt_padded_mut::<Pkcs7>(&mut sealed, plain.len()).map_err(|_| AuthError::EmptyKey)?;
        Ok(sealed.into())
    }

    /// The inverse of `encrypt`. Bad padding is not told from good: what the plain text holds decides.
    pub fn decrypt(&self, sealed: &[u8]) -> Result<Bytes, AuthError> {
        if self.is_empty() {
            return Err(AuthError::EmptyKey);
        }
        if sealed.is_empty() || sealed.len() % BLOCK != 0 {
            return Err(AuthError::Undecryptable("a message of a wrong length"));
        }
        let cipher = cbc::Decryptor::<Aes128>::new(&self.secret.into(), &IV.into());
        let mut plain = sealed.to_vec();
        cipher
            .decrypt_padded_mut::<NoPadding>(&mut plain)
            .map_err(|_| AuthError::Undecryptable("a message of a wrong length"))?;
        let padding = plain.last().map_or(0, |b| usize::from(*b).min(BLOCK));
        plain.truncate(plain.len().saturating_sub(padding));
        Ok(plain.into())
    }

    /// HMAC-SHA256 under the secret: msgr2's AUTH_SIGNATURE frames. Source: src/msg/async/ProtocolV2.cc.
    pub fn hmac_sha256(&self, data: &[u8]) -> [u8; 32] {
        // HMAC takes keys of any length; the fallback for the type's sake is a key of zeros, never reached.
        let mut mac = Hmac::<Sha256>::new_from_slice(self.secret())
            .unwrap_or_else(|_| Hmac::<Sha256>::new(&Default::default()));
        mac.update(data);
        mac.finalize().into_bytes().into()
    }
}

impl Default for CryptoKey {
    fn default() -> Self {
        Self::EMPTY
    }
}
impl PartialEq for CryptoKey {
    fn eq(&self, other: &Self) -> bool {
        let same_secret =
            aws_lc_rs::constant_time::verify_slices_are_equal(&self.secret, &other.secret).is_ok();
        same_secret && self.kind == other.kind && self.created == other.created
    }
}
impl Eq for CryptoKey {}

impl std::fmt::Debug for CryptoKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.is_empty() { "CryptoKey(empty)" } else { "CryptoKey(..)" })
    }
}

impl Drop for CryptoKey {
    fn drop(&mut self) {
        self.secret.fill(0);
        // Keeps the store above from being optimised away as dead.
        std::hint::black_box(&self.secret);
    }
}

impl Encode for CryptoKey {
    fn encode(&self, w: &mut Writer) {
        w.u16(self.kind);
        self.created.encode(w);
        let secret = self.secret();
        w.u16(secret.len() as u16);
        w.raw(secret);
    }
}

impl Decode for CryptoKey {
    const MIN_SIZE: usize = 12;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        let kind = r.u16()?;
        let created = Utime::decode(r)?;
        match (kind, r.u16()?) {
            (KIND_NONE | KIND_AES, 0) => Ok(Self { created, ..Self::EMPTY.clone() }),
            (KIND_AES, 16) => Ok(Self::new(r.array()?, created)),
            (KIND_AES, len) => Err(DecodeError::Invalid { what: "key length", value: len.into() }),
            (kind, _) => Err(DecodeError::Invalid { what: "key type", value: kind.into() }),
        }
    }
}

/// A key's text was not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyTextError {
    #[error("the key is not base64")]
    NotBase64,
    #[error("the key is malformed: {0}")]
    NotAKey(DecodeError),
}

//! The protocol's envelope around encrypted values: version, magic, value, all under AES-CBC.

use bytes::Bytes;
use codec::{Decode, Encode, Reader, Writer};

use crate::error::AuthError;
use crate::key::CryptoKey;

/// Tells a right key from a wrong one. Source: AUTH_ENC_MAGIC in src/auth/cephx/CephxProtocol.h.
const MAGIC: u64 = 0xff00_9cad_8826_aa55;
const VERSION: u8 = 1;

/// Encrypts a value in the protocol's envelope, without a length in front (`encode_encrypt_enc_bl`).
pub fn encrypt_value<T: Encode + ?Sized>(key: &CryptoKey, value: &T) -> Result<Bytes, AuthError> {
    let mut w = Writer::new();
    w.u8(VERSION);
    w.u64(MAGIC);
    value.encode(&mut w);
    key.encrypt(w.as_slice())
}

/// Decrypts what `encrypt_value` made; `what` names it in the error.
pub fn decrypt_value<T: Decode>(key: &CryptoKey, sealed: &[u8], what: &'static str) -> Result<T, AuthError> {
    let mut r = Reader::new(key.decrypt(sealed)?);
    let magic = r.u8().and_then(|_version| r.u64()).map_err(|_| AuthError::Undecryptable(what))?;
    if magic != MAGIC {
        return Err(AuthError::Undecryptable(what));
    }
    T::decode(&mut r).map_err(|_| AuthError::Undecryptable(what))
}

/// Appends an encrypted value with its length in front (`encode_encrypt`).
pub(crate) fn put_encrypted<T: Encode + ?Sized>(
    w: &mut Writer,
    key: &CryptoKey,
    value: &T,
) -> Result<(), AuthError> {
    w.blob(&encrypt_value(key, value)?);
    Ok(())
}

/// Reads what `put_encrypted` wrote.
pub(crate) fn take_encrypted<T: Decode>(
    r: &mut Reader,
    key: &CryptoKey,
    what: &'static str,
) -> Result<T, AuthError> {
    let sealed = r.blob()?;
    decrypt_value(key, &sealed, what)
}

//! Keys of our own, for clients that bring none (SSE-S3).
//!
//! 1. A store that all gateways share has some master keys under made-up names, and says which one counts
//!    for what is new. Two gateways that make one at the same time have two: both open what they closed.
//! 2. A bucket has a key that is derived of a master key, and an object one of its bucket's. Objects name
//!    the key that theirs is of: what was copied elsewhere is opened there, and what goes leaves nothing in
//!    the store.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use rgw::crypt::{KEY, Key};
use s3s::{S3Error, S3ErrorCode, S3Result};
use sha2::{Digest, Sha256};
use tokio::sync::Mutex;
use types::Entropy;
use zeroize::Zeroizing;

use super::derived;

/// Which master key counts.
const CURRENT: &str = "rgw/sse-s3/current";
/// In front of the names of master keys.
const MASTERS: &str = "rgw/sse-s3/key/";
/// Bytes that a master key's name is made of, and a bucket's part of its key's name.
const NAME: usize = 8;
/// Master keys that are kept at hand.
const BOUND: usize = 256;

/// Why a store did not answer, in words for an administrator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreFailed(pub String);

/// Where master keys are kept, as texts under names.
#[async_trait::async_trait]
pub trait KeyStore: Send + Sync {
    /// Nothing where there is none of this name.
    async fn get(&self, name: &str) -> Result<Option<Zeroizing<String>>, StoreFailed>;
    async fn set(&self, name: &str, value: Zeroizing<String>) -> Result<(), StoreFailed>;
}

/// Master keys, as they were read or made.
pub struct Ring {
    store: Arc<dyn KeyStore>,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    current: Option<String>,
    masters: BTreeMap<String, Key>,
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ring")
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let is_hex = text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) && text.len() % 2 == 0;
    let byte = |at: usize| u8::from_str_radix(text.get(at..at + 2)?, 16).ok();
    if is_hex { (0..text.len()).step_by(2).map(byte).collect() } else { None }
}

/// The master key that a bucket's is derived of, and what with.
fn parts(key_id: &[u8]) -> Option<(&str, Vec<u8>)> {
    let (master, bucket) = std::str::from_utf8(key_id).ok()?.split_once('.')?;
    unhex(master).filter(|name| name.len() == NAME)?;
    Some((master, unhex(bucket).filter(|bucket| bucket.len() == KEY)?))
}

fn no_answer(e: &StoreFailed) -> S3Error {
    tracing::warn!("the store of keys does not answer: {}", e.0);
    S3ErrorCode::ServiceUnavailable.into()
}

fn unknown(what: &str) -> S3Error {
    S3Error::with_message(
        S3ErrorCode::InvalidAccessKeyId,
        format!("Failed to retrieve the actual key, {what}"),
    )
}

impl Ring {
    pub fn new(store: Arc<dyn KeyStore>) -> Self {
        Self { store, known: Mutex::default() }
    }

    /// The name of a bucket's key, and the key, for what comes into the bucket now.
    pub async fn of_bucket(&self, bucket_id: &[u8]) -> S3Result<(Bytes, Key)> {
        let selector = Sha256::digest(bucket_id);
        let mut known = self.known.lock().await;
        let name = match known.current.clone() {
            Some(name) => name,
            None => self.current(&mut known).await?,
        };
        let master = self.master(&mut known, &name).await?;
        Ok((format!("{name}.{}", hex(&selector)).into(), derived(&master, &selector)?))
    }

    /// A bucket's key by its name.
    pub async fn named(&self, key_id: &[u8]) -> S3Result<Key> {
        let (name, selector) = parts(key_id).ok_or_else(|| unknown("its name is none of this store"))?;
        let master = self.master(&mut *self.known.lock().await, name).await?;
        derived(&master, &selector)
    }

    async fn get(&self, name: &str) -> S3Result<Option<Zeroizing<String>>> {
        self.store.get(name).await.map_err(|e| no_answer(&e))
    }

    /// The name of the master key that counts; the first to ask makes one.
    async fn current(&self, known: &mut Known) -> S3Result<String> {
        let set = |name: String, value: Zeroizing<String>| async move {
            self.store.set(&name, value).await.map_err(|e| no_answer(&e))
        };
        if self.get(CURRENT).await?.is_none() {
            let (mut name, mut key) = ([0; NAME], Zeroizing::new([0; KEY]));
            runtime::OsEntropy.fill(&mut name);
            runtime::OsEntropy.fill(&mut *key);
            let name = hex(&name);
            // Before it is said that it counts.
            set(format!("{MASTERS}{name}"), Zeroizing::new(BASE64_STANDARD.encode(*key))).await?;
            set(CURRENT.to_owned(), Zeroizing::new(name)).await?;
        }
        let said = self.get(CURRENT).await?.ok_or_else(|| unknown("none counts"))?;
        let name = said.trim().to_owned();
        unhex(&name).filter(|name| name.len() == NAME).ok_or_else(|| unknown("none counts"))?;
        known.current = Some(name.clone());
        Ok(name)
    }

    async fn master(&self, known: &mut Known, name: &str) -> S3Result<Key> {
        if let Some(key) = known.masters.get(name) {
            return Ok(key.clone());
        }
        let stored = self.get(&format!("{MASTERS}{name}")).await?;
        let stored = stored.ok_or_else(|| unknown("the store has none of its name"))?;
        let bytes = BASE64_STANDARD.decode(stored.trim()).map(Zeroizing::new).ok();
        let key = bytes.and_then(|bytes| Key::new(&bytes)).ok_or_else(|| unknown("the store's is none"))?;
        if known.masters.len() >= BOUND {
            known.masters.clear();
        }
        known.masters.insert(name.to_owned(), key.clone());
        Ok(key)
    }
}

/// A store in memory.
#[cfg(test)]
#[derive(Default)]
pub struct InMemory {
    pub entries: std::sync::Mutex<BTreeMap<String, String>>,
    pub fails: std::sync::atomic::AtomicBool,
}

#[cfg(test)]
#[async_trait::async_trait]
impl KeyStore for InMemory {
    async fn get(&self, name: &str) -> Result<Option<Zeroizing<String>>, StoreFailed> {
        if self.fails.load(std::sync::atomic::Ordering::Relaxed) {
            return Err(StoreFailed("out of order".to_owned()));
        }
        Ok(self.entries.lock().unwrap().get(name).cloned().map(Zeroizing::new))
    }

    async fn set(&self, name: &str, value: Zeroizing<String>) -> Result<(), StoreFailed> {
        self.entries.lock().unwrap().insert(name.to_owned(), value.to_string());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    fn block(key: &Key) -> Vec<u8> {
        let mut data = vec![0; 16];
        rgw::Cipher::new(key).encrypt(&mut data, 0);
        data
    }

    fn code<T>(result: S3Result<T>) -> String {
        result.err().map(|e| e.code().as_str().to_owned()).unwrap_or_default()
    }

    #[tokio::test]
    async fn all_gateways_have_the_same_key_of_a_bucket() {
        let store = Arc::new(InMemory::default());
        let (one, other) = (Ring::new(store.clone()), Ring::new(store.clone()));
        let (name, key) = one.of_bucket(b"bucket").await.unwrap();
        let (again, same) = other.of_bucket(b"bucket").await.unwrap();
        assert_eq!((&name, block(&key)), (&again, block(&same)));
        assert_eq!(block(&other.named(&name).await.unwrap()), block(&key));
        let (elsewhere, another) = one.of_bucket(b"another").await.unwrap();
        assert!(elsewhere != name && block(&another) != block(&key));
        assert_eq!(store.entries.lock().unwrap().len(), 2, "buckets leave nothing in the store");
    }

    #[tokio::test]
    async fn what_two_gateways_made_at_once_opens_what_they_closed() {
        let store = Arc::new(InMemory::default());
        let one = Ring::new(store.clone());
        let (name, key) = one.of_bucket(b"bucket").await.unwrap();
        // Another gateway did not see that there is one.
        store.entries.lock().unwrap().remove(CURRENT);
        let other = Ring::new(store.clone());
        let (newer, _) = other.of_bucket(b"bucket").await.unwrap();
        assert_ne!(newer, name);
        assert_eq!(block(&other.named(&name).await.unwrap()), block(&key));
    }

    #[tokio::test]
    async fn keys_that_are_not_there_are_refused() {
        let store = Arc::new(InMemory::default());
        let ring = Ring::new(store.clone());
        let (name, _) = ring.of_bucket(b"bucket").await.unwrap();
        let text = String::from_utf8(name.to_vec()).unwrap();
        let other = text.replace(|c: char| c.is_ascii_digit(), "a");
        for wrong in ["", "x", "../../x", &text[..20], &text.replace('.', "/"), &other] {
            assert_eq!(code(ring.named(wrong.as_bytes()).await), "InvalidAccessKeyId", "{wrong}");
        }
        let fresh = Ring::new(store.clone());
        store.fails.store(true, Ordering::Relaxed);
        assert_eq!(code(fresh.named(&name).await), "ServiceUnavailable");
        assert_eq!(code(fresh.of_bucket(b"bucket").await), "ServiceUnavailable");
        assert_eq!(code(ring.of_bucket(b"bucket").await), "", "it is known");
    }
}

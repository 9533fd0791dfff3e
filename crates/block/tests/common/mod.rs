//! An image in memory whose writes can be made to fail, and the bytes of NBD requests and replies.
#![allow(dead_code, reason = "each test file uses its part")]

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};

use block::{BlockDevice, BlockError, BoxFuture, CachedImage, Piece, Range};
use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt};

pub struct Ram {
    pub name: String,
    pub bytes: Mutex<Vec<u8>>,
    /// Changes fail with this number, unless it is 0.
    pub broken: AtomicI32,
    pub writes: AtomicU64,
    /// How often it was asked what is allocated.
    pub statuses: AtomicU64,
    /// Changes never end.
    pub stuck: AtomicBool,
    /// The token of the cache that marked it.
    pub mark: Mutex<Option<String>>,
}

impl Ram {
    pub fn new(name: &str, size: usize) -> Self {
        Self {
            name: name.into(),
            bytes: Mutex::new(vec![0; size]),
            broken: AtomicI32::new(0),
            writes: AtomicU64::new(0),
            statuses: AtomicU64::new(0),
            stuck: AtomicBool::new(false),
            mark: Mutex::new(None),
        }
    }

    pub fn content(&self) -> Vec<u8> {
        self.bytes.lock().expect("not poisoned").clone()
    }

    pub fn mark(&self) -> Option<String> {
        self.mark.lock().expect("not poisoned").clone()
    }

    fn check(&self) -> Result<(), BlockError> {
        match self.broken.load(Ordering::SeqCst) {
            0 => Ok(()),
            errno => Err(BlockError::new(errno, "broken")),
        }
    }

    fn change(&self, offset: u64, len: u64, by: impl FnOnce(&mut [u8])) -> Result<(), BlockError> {
        self.check()?;
        self.writes.fetch_add(1, Ordering::SeqCst);
        let mut bytes = self.bytes.lock().expect("not poisoned");
        let range = offset as usize..(offset + len) as usize;
        by(bytes.get_mut(range).ok_or_else(|| BlockError::new(22, "out of range"))?);
        Ok(())
    }
}

impl BlockDevice for Ram {
    fn identity(&self) -> String {
        self.name.clone()
    }

    fn size(&self) -> u64 {
        self.bytes.lock().expect("not poisoned").len() as u64
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read(&self, offset: u64, len: u64) -> BoxFuture<'_, Result<Vec<Piece>, BlockError>> {
        Box::pin(async move {
            let bytes = self.bytes.lock().expect("not poisoned");
            let part = bytes.get(offset as usize..(offset + len) as usize);
            let part = part.ok_or_else(|| BlockError::new(22, "out of range"))?;
            Ok(vec![Piece::Data(Bytes::copy_from_slice(part))])
        })
    }

    fn write(&self, offset: u64, data: Bytes) -> BoxFuture<'_, Result<(), BlockError>> {
        Box::pin(async move {
            if self.stuck.load(Ordering::SeqCst) {
                std::future::pending::<()>().await;
            }
            self.change(offset, data.len() as u64, |to| to.copy_from_slice(&data))
        })
    }

    fn zero(&self, offset: u64, len: u64, _punch: bool) -> BoxFuture<'_, Result<(), BlockError>> {
        Box::pin(async move { self.change(offset, len, |to| to.fill(0)) })
    }

    fn flush(&self) -> BoxFuture<'_, Result<(), BlockError>> {
        Box::pin(async move { self.change(0, 0, |_| {}) })
    }

    fn status(&self, _offset: u64, len: u64, _most: usize) -> BoxFuture<'_, Result<Vec<Range>, BlockError>> {
        self.statuses.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move { Ok(vec![Range { len, hole: true, zero: true }]) })
    }

    fn close(&self) -> BoxFuture<'_, Result<(), BlockError>> {
        Box::pin(async move { Ok(()) })
    }
}

impl CachedImage for Ram {
    fn mark<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Result<(), BlockError>> {
        Box::pin(async move {
            self.check()?;
            *self.mark.lock().expect("not poisoned") = Some(token.to_owned());
            Ok(())
        })
    }

    fn unmark(&self) -> BoxFuture<'_, Result<(), BlockError>> {
        Box::pin(async move {
            self.check()?;
            *self.mark.lock().expect("not poisoned") = None;
            Ok(())
        })
    }
}

/// The bytes of what a read gave.
pub fn flat(pieces: Vec<Piece>) -> Vec<u8> {
    let mut out = Vec::new();
    for piece in pieces {
        match piece {
            Piece::Data(data) => out.extend_from_slice(&data),
            Piece::Zeros(len) => out.resize(out.len() + len as usize, 0),
        }
    }
    out
}

/// A request as a client sends it.
pub fn request(kind: u16, cookie: u64, offset: u64, len: u32, data: &[u8]) -> Vec<u8> {
    let mut out = vec![0x25, 0x60, 0x95, 0x13, 0, 0];
    out.extend(kind.to_be_bytes());
    out.extend(cookie.to_be_bytes());
    out.extend(offset.to_be_bytes());
    out.extend(len.to_be_bytes());
    out.extend(data);
    out
}

/// The error and the cookie of a simple reply.
pub async fn simple_reply(stream: &mut (impl AsyncRead + Unpin)) -> (u32, u64) {
    let mut reply = [0; 16];
    stream.read_exact(&mut reply).await.expect("a reply");
    assert_eq!(reply[..4], [0x67, 0x44, 0x66, 0x98]);
    let error = u32::from_be_bytes(reply[4..8].try_into().expect("4"));
    (error, u64::from_be_bytes(reply[8..].try_into().expect("8")))
}

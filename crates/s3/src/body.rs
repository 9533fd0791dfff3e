//! Bodies that come in, held against their sums and signatures as they go by.
//!
//! 1. A body that is not what it is said to be does not end well: whoever reads it to its end knows that all
//!    of it is as it was sent.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use rgw::{Cksum, CksumKind};
use s3s::{S3Error, S3ErrorCode, s3_error};
use sha2::{Digest, Sha256};
use tokio::time::{Instant, Sleep};

use crate::checksum::{self, Checksum};
use crate::sign::chunks::Decoder;

/// How long a client may send nothing of a body that it has begun.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a client is waited for in all: so long, and a second more for as many bytes as it has sent.
const ALLOWANCE: Duration = Duration::from_secs(60);
const BYTES_A_SECOND: u64 = 1 << 10;

/// The time that a body's client has left. What the cluster takes for what came does not count.
#[derive(Debug, Default)]
struct Waited {
    so_far: Duration,
    since: Option<Instant>,
    bytes: u64,
}

impl Waited {
    /// Nothing is there. When the client has been waited for long enough, where that is known anew.
    fn begin(&mut self, now: Instant) -> Option<Instant> {
        if self.since.is_some() {
            return None;
        }
        self.since = Some(now);
        let all = ALLOWANCE.saturating_add(Duration::from_secs(self.bytes / BYTES_A_SECOND));
        Some(now + all.saturating_sub(self.so_far).min(PATIENCE))
    }

    fn end(&mut self, now: Instant, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes as u64);
        if let Some(since) = self.since.take() {
            self.so_far = self.so_far.saturating_add(now.saturating_duration_since(since));
        }
    }
}

/// Why a body does not end well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyError {
    /// A chunk's signature is another one.
    Signature,
    /// Its SHA-256 is not the one that was signed.
    Sum,
    Checksum,
    Malformed,
    /// It ends too early.
    Short,
    /// Nothing came for too long, or too little in all.
    Slow,
    /// The connection is gone.
    Gone,
    /// A form's file is larger or smaller than its document lets it be.
    TooLarge,
    TooSmall,
}

impl std::fmt::Display for BodyError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a body that does not end well: {self:?}")
    }
}

impl std::error::Error for BodyError {}

impl From<BodyError> for S3Error {
    fn from(e: BodyError) -> Self {
        match e {
            BodyError::Signature => S3ErrorCode::SignatureDoesNotMatch.into(),
            BodyError::Sum => crate::errors::custom("XAmzContentSHA256Mismatch", 400),
            BodyError::Checksum => S3ErrorCode::BadDigest.into(),
            BodyError::Malformed => s3_error!(InvalidRequest, "the chunks of the body cannot be read"),
            BodyError::Short | BodyError::Gone => S3ErrorCode::IncompleteBody.into(),
            BodyError::TooLarge => S3ErrorCode::EntityTooLarge.into(),
            BodyError::TooSmall => S3ErrorCode::EntityTooSmall.into(),
            BodyError::Slow => S3ErrorCode::RequestTimeout.into(),
        }
    }
}

/// What a body is held against.
#[derive(Debug, Default)]
pub struct Checks {
    /// Takes chunks apart.
    pub decoder: Option<Decoder>,
    /// SHA-256 in hexadecimal digits.
    pub sum: Option<String>,
    /// Checksums, with what was said in front of the body; what is said behind it is in trailers.
    pub checksums: Vec<(Checksum, Option<String>)>,
    /// Bytes, as they are taken out of chunks.
    pub length: u64,
    /// The sum that the client gave, when it proved right.
    pub summed: Summed,
}

/// The sum of a body that came to a good end.
#[derive(Debug, Clone, Default)]
pub struct Summed {
    /// Which one is to come.
    pub kind: Option<CksumKind>,
    sum: Arc<OnceLock<Cksum>>,
}

impl Summed {
    pub fn get(&self) -> Option<Cksum> {
        self.sum.get().cloned()
    }
}

#[derive(Debug)]
pub struct Checked<B> {
    inner: B,
    checks: Checks,
    sha256: Sha256,
    left: u64,
    ended: bool,
    waited: Waited,
    patience: Pin<Box<Sleep>>,
}

impl<B> Checked<B> {
    pub fn new(inner: B, checks: Checks) -> Self {
        let (left, patience) = (checks.length, Box::pin(tokio::time::sleep(PATIENCE)));
        let waited = Waited::default();
        Self { inner, checks, sha256: Sha256::new(), left, ended: false, waited, patience }
    }

    fn take(&mut self, data: Bytes) -> Result<Bytes, BodyError> {
        let data = match &mut self.checks.decoder {
            Some(decoder) => decoder.take(data)?,
            None => data,
        };
        self.left = self.left.checked_sub(data.len() as u64).ok_or(BodyError::Malformed)?;
        if self.checks.sum.is_some() {
            self.sha256.update(&data);
        }
        self.checks.checksums.iter_mut().for_each(|(sum, _)| sum.update(&data));
        Ok(data)
    }

    fn end(&mut self) -> Result<(), BodyError> {
        let mut trailers: &[(String, String)] = &[];
        if let Some(decoder) = &mut self.checks.decoder {
            decoder.finish()?;
            trailers = decoder.trailers();
        }
        if self.left > 0 {
            return Err(BodyError::Short);
        }
        let made: String = match self.checks.sum {
            Some(_) => {
                std::mem::take(&mut self.sha256).finalize().iter().map(|b| format!("{b:02x}")).collect()
            }
            None => String::new(),
        };
        if self.checks.sum.as_ref().is_some_and(|said| *said != made) {
            return Err(BodyError::Sum);
        }
        for (sum, said) in std::mem::take(&mut self.checks.checksums) {
            let behind = trailers.iter().find(|(name, _)| name == sum.header()).map(|(_, value)| value);
            let said = said.as_ref().or(behind).ok_or(BodyError::Malformed)?;
            let sum = sum.finish();
            if !checksum::is(&sum, said) {
                return Err(BodyError::Checksum);
            }
            let _ = self.checks.summed.sum.set(sum);
        }
        Ok(())
    }
}

impl<B: Body<Data = Bytes> + Unpin> Checked<B> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
        while !self.ended {
            let Poll::Ready(frame) = Pin::new(&mut self.inner).poll_frame(cx) else {
                if let Some(end) = self.waited.begin(Instant::now()) {
                    self.patience.as_mut().reset(end);
                }
                ready!(self.patience.as_mut().poll(cx));
                return Poll::Ready(Some(Err(BodyError::Slow)));
            };
            let bytes = frame.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref().map(Bytes::len));
            self.waited.end(Instant::now(), bytes.unwrap_or(0));
            let data = match frame {
                None => {
                    self.ended = true;
                    return Poll::Ready(self.end().err().map(Err));
                }
                Some(Err(_)) => return Poll::Ready(Some(Err(BodyError::Gone))),
                Some(Ok(frame)) => frame.into_data().unwrap_or_default(),
            };
            match self.take(data) {
                Ok(data) if data.is_empty() => {}
                taken => return Poll::Ready(Some(taken)),
            }
        }
        Poll::Ready(None)
    }

    /// Reads all of a body that is short.
    pub async fn collect(mut self, bound: u64) -> Result<Bytes, S3Error> {
        if self.left > bound {
            return Err(S3ErrorCode::MaxMessageLengthExceeded.into());
        }
        let mut all = Vec::new();
        while let Some(data) = std::future::poll_fn(|cx| self.poll(cx)).await {
            all.extend_from_slice(&data?);
        }
        Ok(all.into())
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Checked<B> {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        let polled = ready!(this.poll(cx));
        if matches!(polled, Some(Err(_))) {
            this.ended = true;
        }
        Poll::Ready(polled.map(|data| data.map(Frame::data)))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How long a client is waited for that sends so many bytes each so many seconds.
    fn waited_for(bytes: usize, every_s: u64) -> Option<u64> {
        let (start, mut waited) = (Instant::now(), Waited::default());
        let mut now = start;
        for _ in 0..10_000 {
            let end = waited.begin(now).unwrap();
            assert_eq!(waited.begin(now), None);
            let next = now + Duration::from_secs(every_s);
            if next > end {
                return Some((end - start).as_secs());
            }
            now = next;
            waited.end(now, bytes);
        }
        None
    }

    #[test]
    fn a_body_that_trickles_has_an_end() {
        assert_eq!(waited_for(1, 31), Some(30));
        assert_eq!(waited_for(1, 1), Some(60));
        // Half of what it must bring.
        assert_eq!(waited_for(512, 1), Some(119));
        assert_eq!(waited_for(1024, 1), None);
        assert_eq!(waited_for(1 << 20, 29), None);
    }

    #[test]
    fn what_the_cluster_takes_does_not_count() {
        let mut waited = Waited::default();
        let now = Instant::now();
        for hour in 0..100 {
            let now = now + Duration::from_secs(3600 * hour);
            assert_eq!(waited.begin(now), Some(now + PATIENCE.min(ALLOWANCE)), "{hour}");
            waited.end(now, 1);
        }
    }
}

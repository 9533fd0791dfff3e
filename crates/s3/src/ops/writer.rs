//! Objects and parts that are written, while their bytes come and their sums are made.
//!
//! 1. While a piece is written the next one comes in: two pieces are held, and no more.
//! 2. What was begun is taken back when the body does not end well, or the cluster is too slow for the
//!    client.

use std::pin::Pin;

use bytes::{Bytes, BytesMut};
use futures_core::Stream;
use gateway::{Error, Part, Plan, Upload};
use md5::{Digest, Md5};
use rgw::Cksum;
use s3s::dto::StreamingBlob;
use s3s::{S3Error, S3ErrorCode, S3Result, s3_error};

use crate::body::BodyError;
use crate::checksum::Checksum;
use crate::errors;
use crate::state::Gateway;

/// Bytes of a piece: a stripe.
const PIECE: usize = 4 << 20;

/// What takes bytes: an object or a part of one.
pub trait Sink: Sized + Send + 'static {
    fn take(self, data: Bytes) -> Plan<Self>;
    /// Removes what is written so far.
    fn take_back(&self) -> Plan<()>;
}

impl Sink for Upload {
    fn take(self, data: Bytes) -> Plan<Self> {
        self.write(data)
    }
    fn take_back(&self) -> Plan<()> {
        Self::take_back(self)
    }
}

impl Sink for Part {
    fn take(self, data: Bytes) -> Plan<Self> {
        self.write(data)
    }
    fn take_back(&self) -> Plan<()> {
        Self::take_back(self)
    }
}

/// What sums of a body there are to be.
#[derive(Default)]
pub struct Wants {
    /// Its MD5, where the client knows it.
    pub md5: Option<Vec<u8>>,
    /// Another one that is made.
    pub sum: Option<Checksum>,
}

/// What became of a body.
pub struct Summed {
    /// Its MD5, in digits.
    pub etag: String,
    pub sum: Option<Cksum>,
}

/// A body, piece by piece, with its sums.
struct Source {
    body: Option<StreamingBlob>,
    md5: Md5,
    sum: Option<Checksum>,
}

impl Source {
    /// The next piece; less than a whole one is the last.
    async fn piece(&mut self) -> S3Result<BytesMut> {
        let mut piece = BytesMut::new();
        while let Some(body) = self.body.as_mut().filter(|_| piece.len() < PIECE) {
            match std::future::poll_fn(|cx| Pin::new(&mut *body).poll_next(cx)).await {
                None => self.body = None,
                Some(Ok(data)) => {
                    self.md5.update(&data);
                    self.sum.iter_mut().for_each(|sum| sum.update(&data));
                    piece.extend_from_slice(&data);
                }
                Some(Err(e)) => return Err(of_body(&e)),
            }
        }
        Ok(piece)
    }
}

fn of_body(e: &s3s::StdError) -> S3Error {
    e.downcast_ref::<BodyError>().copied().map_or_else(|| S3ErrorCode::IncompleteBody.into(), S3Error::from)
}

/// What `Content-MD5` says, in bytes.
pub fn wanted_md5(header: Option<&String>) -> S3Result<Option<Vec<u8>>> {
    use base64::Engine;
    let Some(header) = header else { return Ok(None) };
    let sum = base64::prelude::BASE64_STANDARD.decode(header.trim()).ok().filter(|sum| sum.len() == 16);
    sum.map(Some).ok_or_else(|| S3ErrorCode::InvalidDigest.into())
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Writes a body, and gives its sums. A body that does not end well, or has another MD5 than is wanted,
/// leaves nothing.
pub async fn write<S: Sink>(
    gateway: &Gateway,
    sink: S,
    body: Option<StreamingBlob>,
    wants: Wants,
) -> S3Result<(S, Summed)> {
    let mut source = Source { body, md5: Md5::new(), sum: wants.sum };
    let mut sink = sink;
    let mut piece = match source.piece().await {
        Ok(piece) => piece,
        Err(e) => return Err(drop_all(gateway, sink, e).await),
    };
    loop {
        let is_last = source.body.is_none();
        let (written, next) = tokio::join!(take(gateway, sink, piece.split().freeze()), async {
            if is_last { Ok(BytesMut::new()) } else { source.piece().await }
        });
        // What failed has given up itself.
        sink = written.map_err(errors::of)?;
        match next {
            Ok(next) => piece = next,
            Err(e) => return Err(drop_all(gateway, sink, e).await),
        }
        if is_last {
            break;
        }
    }
    let md5 = source.md5.finalize();
    if wants.md5.is_some_and(|wanted| wanted != md5[..]) {
        return Err(drop_all(gateway, sink, s3_error!(BadDigest)).await);
    }
    Ok((sink, Summed { etag: hex(&md5), sum: source.sum.map(Checksum::finish) }))
}

/// Writes more bytes. What was written is taken back where it is too late for more.
pub async fn take<S: Sink>(gateway: &Gateway, sink: S, data: Bytes) -> Result<S, Error> {
    let instead = sink.take_back();
    gateway.run_or(sink.take(data), instead, |sink: S| sink.take_back()).await
}

/// Finishes what was written, as `finish` plans it; takes it back where it is too late for that.
pub async fn finish<S: Sink, T: Send + 'static>(
    gateway: &Gateway,
    sink: S,
    finish: impl FnOnce(S) -> Plan<T>,
) -> S3Result<T> {
    let instead = sink.take_back();
    gateway.run_or(finish(sink), instead, |_| Plan::ok(())).await.map_err(errors::of)
}

pub async fn drop_all<S: Sink>(gateway: &Gateway, sink: S, why: S3Error) -> S3Error {
    // What cannot be removed now stays.
    let _ = gateway.run_or(sink.take_back(), sink.take_back(), |()| Plan::ok(())).await;
    why
}

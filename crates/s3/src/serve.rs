//! Connections of clients.
//!
//! 1. A connection that neither asks nor takes its answer ends.
//! 2. Connections have a bound, half of which one address may take.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, Sleep};

use crate::Front;
use crate::shares::{Share, Shares};

/// How long the head of a request may take, and how long a connection may be idle.
const HEAD: Duration = Duration::from_secs(60);
/// How long a client may take nothing of an answer.
const STALLED: Duration = Duration::from_secs(60);
/// What is read ahead of a connection.
const BUFFER: usize = 64 << 10;
/// Headers of a request.
const MAX_HEADERS: usize = 128;

/// What clients may take together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bounds {
    pub connections: usize,
    /// What requests hold of bodies.
    pub window_bytes: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { connections: 4096, window_bytes: 1 << 30 }
    }
}

/// Serves clients until the future is dropped. Requests that are under way then go on to their end.
pub async fn serve(listener: TcpListener, front: Arc<Front>, bounds: &Bounds) {
    let shares = Shares::new(bounds.connections.max(2));
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(e) => {
                // There are no descriptors left, for instance: others will end.
                tracing::warn!("a connection is not accepted: {e}");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let peer = peer.ip();
        let Some(share) = shares.take(peer, 1) else {
            tracing::debug!("{peer} has too many connections");
            continue;
        };
        let _ = stream.set_nodelay(true);
        tokio::spawn(connection(stream, peer, Arc::clone(&front), share));
    }
}

async fn connection(stream: TcpStream, peer: IpAddr, front: Arc<Front>, _share: Share) {
    let service = service_fn(move |request| answer(Arc::clone(&front), request, peer));
    let io = TokioIo::new(Patient::new(stream));
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD).max_buf_size(BUFFER).max_headers(MAX_HEADERS);
    if let Err(e) = builder.serve_connection(io, service).await {
        tracing::debug!("the connection of {peer} ends: {e}");
    }
}

/// A request that changes something goes on to its end when its connection is gone: what it began to write
/// is finished or taken back. One that reads ends with its connection.
async fn to_its_end<T: Send + 'static>(
    reads: bool,
    work: impl Future<Output = T> + Send + 'static,
) -> Option<T> {
    match reads {
        true => Some(work.await),
        false => tokio::spawn(work).await.ok(),
    }
}

async fn answer(
    front: Arc<Front>,
    request: Request<Incoming>,
    peer: IpAddr,
) -> Result<Response<Held>, Infallible> {
    let reads = [Method::GET, Method::HEAD, Method::OPTIONS].contains(request.method());
    // In a place of its own: what a request holds on its way is more than a thread's stack should carry.
    let work = Box::pin(async move { front.answer(request, peer).await });
    let answered = to_its_end(reads, work).await;
    Ok(match answered {
        Some((response, share)) => response.map(|body| Held { body, _share: share }),
        None => {
            let mut response = Response::new(Held { body: s3s::Body::empty(), _share: None });
            *response.status_mut() = hyper::StatusCode::INTERNAL_SERVER_ERROR;
            response
        }
    })
}

/// The body of an answer, with the share that it takes.
struct Held {
    body: s3s::Body,
    _share: Option<Share>,
}

impl http_body::Body for Held {
    type Data = bytes::Bytes;
    type Error = s3s::StdError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<bytes::Bytes>, s3s::StdError>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A stream that ends when its peer takes nothing for too long.
struct Patient {
    stream: TcpStream,
    stalled: Option<Pin<Box<Sleep>>>,
}

impl Patient {
    fn new(stream: TcpStream) -> Self {
        Self { stream, stalled: None }
    }

    fn bound<T>(&mut self, cx: &mut Context<'_>, polled: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.stalled = None;
            return polled;
        }
        let stalled =
            self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(Instant::now() + STALLED)));
        match stalled.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncRead for Patient {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Patient {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.bound(cx, polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.bound(cx, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    /// What becomes of a request whose connection goes while it is under way.
    async fn left(reads: bool) -> Result<&'static str, oneshot::error::RecvError> {
        let ((go, wait), (told, done)) = (oneshot::channel::<()>(), oneshot::channel());
        let work = async move {
            wait.await.ok();
            let _ = told.send("done");
        };
        let mut under_way = Box::pin(to_its_end(reads, work));
        assert!(std::future::poll_fn(|cx| Poll::Ready(under_way.as_mut().poll(cx))).await.is_pending());
        drop(under_way);
        let _ = go.send(());
        done.await
    }

    #[tokio::test]
    async fn a_read_ends_with_its_connection_and_a_change_does_not() {
        assert!(left(true).await.is_err());
        assert_eq!(left(false).await, Ok("done"));
    }
}

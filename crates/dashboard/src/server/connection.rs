//! Connections of browsers, scripts and Prometheus.
//!
//! 1. A connection that neither asks nor takes its answer ends.
//! 2. There are at most [`MOST`], half of them of one network; whoever comes beyond that is cut off.
//! 3. A client that is gone without a word is noticed within [`STALLED`], also while a stream is open to it.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::net::sockopt;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, Sleep};
use tokio_rustls::TlsAcceptor;

use super::body::Body;
use super::lock;
use crate::attempts::network;

const MOST: usize = 512;
/// How long the handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long the head of a request may take, and how long a connection may be idle.
const HEAD: Duration = Duration::from_secs(20);
/// How long a client may take nothing of an answer.
const STALLED: Duration = Duration::from_secs(30);
/// What is read ahead of a connection, and headers of a request.
const BUFFER: usize = 16 << 10;
const MAX_HEADERS: usize = 64;

/// Connections by network, as attempts to sign in are counted: of IPv6 one client has many addresses.
type Places = Arc<Mutex<BTreeMap<u128, usize>>>;

/// One connection's place, while it lasts.
struct Place(Places, u128);

impl Place {
    fn take(places: &Places, peer: IpAddr) -> Option<Self> {
        let peer = network(peer);
        let mut all = lock(places);
        let total: usize = all.values().sum();
        let of_peer = all.get(&peer).copied().unwrap_or(0);
        if total >= MOST || of_peer >= MOST / 2 {
            return None;
        }
        all.insert(peer, of_peer + 1);
        Some(Self(Arc::clone(places), peer))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut all = lock(&self.0);
        match all.get_mut(&self.1) {
            Some(n) if *n > 1 => *n -= 1,
            _ => drop(all.remove(&self.1)),
        }
    }
}

/// What requests are answered with.
pub trait Answers: Send + Sync + 'static {
    /// What the log calls it: `the dashboard`.
    const WHAT: &'static str;

    fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
        peer: IpAddr,
    ) -> impl Future<Output = Response<Body>> + Send;
}

/// Serves until the future is dropped; connections end with it.
pub async fn serve<A: Answers>(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    shared: Arc<A>,
) -> Infallible {
    let (places, mut all) = (Places::default(), JoinSet::new());
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = all.join_next() => continue,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(e) => {
                // There are no descriptors left, for instance: others will end.
                tracing::warn!("a connection to {} is not accepted: {e}", A::WHAT);
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let peer = peer.ip().to_canonical();
        let Some(place) = Place::take(&places, peer) else {
            tracing::debug!("{peer} has too many connections to {}, or all have", A::WHAT);
            continue;
        };
        if let Err(e) = notices_who_is_gone(&stream) {
            tracing::debug!("{peer}: the connection to {} is not watched: {e}", A::WHAT);
        }
        all.spawn(connection(stream, peer, tls.clone(), Arc::clone(&shared), place));
    }
}

/// Sends at once, and has the kernel end the connection when nothing of it is acknowledged any more: neither
/// what was sent nor, while nothing is, the kernel's own questions.
fn notices_who_is_gone(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let stalled_ms = u32::try_from(STALLED.as_millis()).unwrap_or(u32::MAX);
    sockopt::set_tcp_user_timeout(stream, stalled_ms)?;
    sockopt::set_tcp_keepidle(stream, STALLED / 2)?;
    sockopt::set_tcp_keepintvl(stream, STALLED / 6)?;
    sockopt::set_socket_keepalive(stream, true)?;
    Ok(())
}

async fn connection<A: Answers>(
    stream: TcpStream,
    peer: IpAddr,
    tls: Option<TlsAcceptor>,
    shared: Arc<A>,
    _place: Place,
) {
    let Some(tls) = tls else { return talk(stream, peer, shared).await };
    match tokio::time::timeout(HANDSHAKE, tls.accept(stream)).await {
        Ok(Ok(stream)) => talk(stream, peer, shared).await,
        Ok(Err(e)) => tracing::debug!("{peer}: no TLS with {}: {e}", A::WHAT),
        Err(_) => tracing::debug!("{peer}: the handshake with {} takes too long", A::WHAT),
    }
}

async fn talk<S: AsyncRead + AsyncWrite + Unpin + Send + 'static, A: Answers>(
    stream: S,
    peer: IpAddr,
    shared: Arc<A>,
) {
    let service = service_fn(move |request| {
        let shared = Arc::clone(&shared);
        async move { Ok::<_, Infallible>(shared.answer(request, peer).await) }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD).max_buf_size(BUFFER).max_headers(MAX_HEADERS);
    if let Err(e) = builder.serve_connection(TokioIo::new(Patient::new(stream)), service).await {
        tracing::debug!("the connection of {peer} to {} ends: {e}", A::WHAT);
    }
}

/// A stream that ends when its peer takes nothing for too long.
struct Patient<S> {
    stream: S,
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<S> Patient<S> {
    fn new(stream: S) -> Self {
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

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.bound(cx, polled)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_flush(cx);
        self.bound(cx, polled)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.bound(cx, polled)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    #[test]
    fn one_network_takes_half_of_the_places_and_gives_them_back() {
        let places = Places::default();
        let take = |n: u32| Place::take(&places, IpAddr::V4(Ipv4Addr::from(n)));
        let one: Vec<Place> = (0..MOST).map_while(|_| take(1)).collect();
        assert_eq!(one.len(), MOST / 2);
        let others: Vec<Place> = (0..2 * MOST as u32).map_while(|n| take(2 + n)).collect();
        assert_eq!(others.len(), MOST / 2);
        drop((one, others));
        assert!(lock(&places).is_empty());
        // A client has a network of IPv6 addresses whole.
        let v6 = |n: usize| IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, n as u16));
        let one: Vec<Place> = (0..MOST).map_while(|n| Place::take(&places, v6(n))).collect();
        assert_eq!(one.len(), MOST / 2);
    }

    #[tokio::test]
    async fn the_kernel_ends_connections_of_clients_that_are_gone() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("bound");
        let client = TcpStream::connect(listener.local_addr().expect("an address")).await.expect("connected");
        let (stream, _) = listener.accept().await.expect("accepted");
        notices_who_is_gone(&stream).expect("set");
        assert_eq!(sockopt::tcp_user_timeout(&stream).expect("known"), 30_000);
        assert!(sockopt::socket_keepalive(&stream).expect("known"));
        let asked =
            sockopt::tcp_keepidle(&stream).expect("known") + sockopt::tcp_keepintvl(&stream).expect("known");
        assert!(asked < STALLED, "{asked:?}");
        drop(client);
    }
}

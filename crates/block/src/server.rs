//! The NBD server: listeners, connections, and a clean end.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use nbd::Export;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::connection::{self, Begun, Incoming, Limits, Outgoing};
use crate::device::BlockDevice;
use crate::memory::SharedMemory;
use crate::tls::Tls;

/// An image under the name that clients ask for.
#[derive(Clone)]
pub struct Exported {
    pub name: String,
    pub description: String,
    pub device: Arc<dyn BlockDevice>,
    /// Refuse writes, whatever the device allows.
    pub read_only: bool,
}

impl Exported {
    pub(crate) fn export(&self) -> Export {
        Export {
            name: self.name.clone(),
            description: self.description.clone(),
            size: self.device.size(),
            read_only: self.read_only || self.device.is_read_only(),
            // Every connection goes through the same device, whose flush covers them all.
            multi_conn: true,
            preferred_block: self.device.preferred_block(),
        }
    }
}

/// Connections at one time; further ones are closed at once. The memory that each may hold is bounded in
/// `memory`.
const MAX_CONNECTIONS: usize = 128;
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves exports over any number of listeners until told to stop.
pub struct Server {
    exports: Arc<Vec<Exported>>,
    connections: Arc<AtomicUsize>,
    memory: SharedMemory,
    stop: watch::Receiver<bool>,
}

/// A socket that clients connect to.
enum Listener {
    Unix(UnixListener),
    Tcp(TcpListener),
    Tls(TcpListener, Tls),
}

enum Client {
    Unix(UnixStream),
    Tcp(TcpStream),
    Tls(TcpStream, Tls),
}

impl Listener {
    async fn accept(&self) -> io::Result<Client> {
        Ok(match self {
            Self::Unix(listener) => Client::Unix(listener.accept().await?.0),
            Self::Tcp(listener) => Client::Tcp(accept_tcp(listener).await?),
            Self::Tls(listener, tls) => Client::Tls(accept_tcp(listener).await?, tls.clone()),
        })
    }
}

async fn accept_tcp(listener: &TcpListener) -> io::Result<TcpStream> {
    let (stream, _) = listener.accept().await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

impl Server {
    /// `stop` ends the server when it turns true or its sender goes.
    #[must_use]
    pub fn new(exports: Vec<Exported>, stop: watch::Receiver<bool>) -> Self {
        let connections = Arc::new(AtomicUsize::new(0));
        let memory = SharedMemory::new(exports.len());
        Self { exports: Arc::new(exports), connections, memory, stop }
    }

    /// Serves clients of a Unix socket until stopped.
    pub async fn serve_unix(&self, listener: UnixListener) {
        self.serve(&Listener::Unix(listener)).await;
    }

    /// Serves clients of a TCP socket until stopped.
    pub async fn serve_tcp(&self, listener: TcpListener) {
        self.serve(&Listener::Tcp(listener)).await;
    }

    /// Serves clients of a TCP socket that show a certificate, through TLS, until stopped.
    pub async fn serve_tls(&self, listener: TcpListener, tls: Tls) {
        self.serve(&Listener::Tls(listener, tls)).await;
    }

    /// Accepts until stopped, then waits for the requests under way.
    async fn serve(&self, listener: &Listener) {
        let mut running = JoinSet::new();
        let mut stop = self.stop.clone();
        loop {
            tokio::select! {
                () = stopped(&mut stop) => break,
                Some(_) = running.join_next() => {}
                accepted = listener.accept() => match accepted {
                    Ok(client) => self.start(client, &mut running),
                    Err(e) => {
                        // For example out of file descriptors, which come back when clients leave.
                        tracing::warn!(error = %e, "cannot accept a connection");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                }
            }
        }
        while running.join_next().await.is_some() {}
    }

    fn start(&self, client: Client, running: &mut JoinSet<()>) {
        let (exports, memory, stop) = (Arc::clone(&self.exports), self.memory.clone(), self.stop.clone());
        let connections = Arc::clone(&self.connections);
        match client {
            Client::Unix(stream) => {
                let Some(seat) = Seat::take(&connections) else { return };
                running.spawn(plain(stream.into_split(), seat, exports, memory, stop));
            }
            Client::Tcp(stream) => {
                let Some(seat) = Seat::take(&connections) else { return };
                running.spawn(plain(stream.into_split(), seat, exports, memory, stop));
            }
            Client::Tls(stream, tls) => {
                running.spawn(secured(stream, tls, connections, exports, memory, stop));
            }
        }
    }
}

/// Serves a client without TLS; the seat is free again when it leaves.
async fn plain(
    (reader, writer): (impl Incoming, impl Outgoing),
    seat: Seat,
    exports: Arc<Vec<Exported>>,
    memory: SharedMemory,
    stop: watch::Receiver<bool>,
) {
    connection::run(reader, writer, exports, &memory, Limits::DEFAULT, stop).await;
    drop(seat);
}

/// Serves a client through TLS. Only a client that has shown its certificate counts as one of
/// [`MAX_CONNECTIONS`], so that clients without one cannot use them up.
async fn secured(
    stream: TcpStream,
    tls: Tls,
    connections: Arc<AtomicUsize>,
    exports: Arc<Vec<Exported>>,
    memory: SharedMemory,
    mut stop: watch::Receiver<bool>,
) {
    let until = Instant::now() + Limits::DEFAULT.handshake;
    let accepted = tokio::select! {
        () = stopped(&mut stop) => return,
        accepted = tokio::time::timeout_at(until, tls.accept(stream, &exports)) => accepted,
    };
    let (session, reader, writer) = match accepted.map_err(io::Error::from).and_then(|accepted| accepted) {
        Ok(secured) => secured,
        Err(e) => {
            tracing::debug!(error = %e, "a client has not come to TLS");
            return;
        }
    };
    let Some(seat) = Seat::take(&connections) else { return };
    let begun = Begun { session, greeting: None, until };
    connection::go_on(begun, reader, writer, exports, &memory, Limits::DEFAULT, stop).await;
    drop(seat);
}

/// Counts a connection until it is dropped.
struct Seat(Arc<AtomicUsize>);

impl Seat {
    /// `None`: there are too many connections already.
    fn take(connections: &Arc<AtomicUsize>) -> Option<Self> {
        let seat = Self(Arc::clone(connections));
        if seat.0.fetch_add(1, Ordering::Relaxed) < MAX_CONNECTIONS {
            Some(seat)
        } else {
            tracing::warn!("more than {MAX_CONNECTIONS} connections: one is closed");
            None
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Waits until the server is told to stop, or until the sender of that is gone.
pub(crate) async fn stopped(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|s| *s).await;
}

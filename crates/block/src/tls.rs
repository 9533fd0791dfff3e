//! TLS for NBD over TCP, with certificates on both sides: loads the server's files, and takes a new socket
//! through NBD's STARTTLS and the TLS handshake.
//!
//! Source: the NBD project's doc/proto.md (FORCEDTLS: nothing but STARTTLS before TLS), QEMU's
//! docs/system/tls.rst (file names).

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use nbd::{Event, Session};
use tokio::io::{
    AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, Interest, ReadBuf, ReadHalf, WriteHalf, split,
};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::aws_lc_rs::default_provider;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use tokio_rustls::rustls::server::{NoServerSessionStorage, VerifierBuilderError, WebPkiClientVerifier};
use tokio_rustls::rustls::{self, RootCertStore, ServerConfig};
use tokio_rustls::server::TlsStream;

use crate::connection::{Incoming, Outgoing};
use crate::server::Exported;

/// Bytes read at one time before TLS begins.
const READ_RESERVE: usize = 4 << 10;
/// Clients at one time that have not shown a certificate yet. The oldest is cut off for one more.
const MAX_STRANGERS: usize = 64;

/// The PEM files of the server's side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The server's certificate, followed by the intermediate ones up to its authority.
    pub cert: PathBuf,
    /// The key of the server's certificate.
    pub key: PathBuf,
    /// The authorities, one of which must have issued a client's certificate.
    pub ca: PathBuf,
    /// The list of revoked client certificates.
    pub crl: Option<PathBuf>,
}

impl TlsFiles {
    /// The files of a folder under QEMU's names. The revocation list (`ca-crl.pem`) may be missing.
    #[must_use]
    pub fn of_folder(folder: &Path) -> Self {
        let crl = Some(folder.join("ca-crl.pem")).filter(|path| path.exists());
        let [cert, key, ca] = ["server-cert.pem", "server-key.pem", "ca-cert.pem"].map(|n| folder.join(n));
        Self { cert, key, ca, crl }
    }
}

/// Why the server's side of TLS cannot be set up: each is the operator's to mend.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("cannot read {path}: {why}")]
    Unread { path: PathBuf, why: pem::Error },
    #[error("there is no certificate in {0}")]
    Empty(PathBuf),
    #[error("what is in {path} cannot be used: {why}")]
    Unfit { path: PathBuf, why: rustls::Error },
    #[error("what clients' certificates are held against cannot be used: {0}")]
    Clients(#[from] VerifierBuilderError),
    #[error(transparent)]
    Other(#[from] rustls::Error),
}

/// The server's side of TLS. It accepts only clients that show a certificate of its authority.
#[derive(Clone)]
pub struct Tls {
    acceptor: TlsAcceptor,
    strangers: Strangers,
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// A file cannot be read, or does not hold what it should.
    pub fn load(files: &TlsFiles) -> Result<Self, TlsError> {
        let provider = Arc::new(default_provider());
        let mut roots = RootCertStore::empty();
        for cert in all::<CertificateDer<'_>>(&files.ca)? {
            roots.add(cert).map_err(|why| TlsError::Unfit { path: files.ca.clone(), why })?;
        }
        let mut clients = WebPkiClientVerifier::builder_with_provider(roots.into(), Arc::clone(&provider));
        if let Some(crl) = &files.crl {
            clients = clients
                .with_crls(all::<CertificateRevocationListDer<'_>>(crl)?)
                .only_check_end_entity_revocation();
        }
        let clients = clients.build()?;
        let key = PrivateKeyDer::from_pem_file(&files.key);
        let key = key.map_err(|why| TlsError::Unread { path: files.key.clone(), why })?;
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(clients)
            .with_single_cert(all(&files.cert)?, key)
            .map_err(|why| TlsError::Unfit { path: files.cert.clone(), why })?;
        // No session is resumed: every connection shows its certificate anew, so that a revoked or expired
        // one is refused.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(Self { acceptor: TlsAcceptor::from(Arc::new(config)), strangers: Strangers::default() })
    }

    /// Greets a client and waits for its certificate; it learns nothing of the exports before. The wait is
    /// unbounded: the caller has to bound it.
    pub(crate) async fn accept(
        &self,
        stream: TcpStream,
        exports: &[Exported],
    ) -> io::Result<(Session, TlsReader, TlsWriter)> {
        let cut_off = self.strangers.enter();
        tokio::select! {
            _ = cut_off => Err(io::Error::new(io::ErrorKind::TimedOut, "others came while it showed no certificate")),
            accepted = self.shake_hands(stream, exports) => accepted,
        }
    }

    async fn shake_hands(
        &self,
        mut stream: TcpStream,
        exports: &[Exported],
    ) -> io::Result<(Session, TlsReader, TlsWriter)> {
        let (mut session, greeting) = Session::with_tls(exports.iter().map(Exported::export).collect());
        stream.write_all(&greeting).await?;
        loop {
            match session.next_event() {
                Some(Event::Send(bytes)) => stream.write_all(&bytes).await?,
                Some(Event::StartTls) => break,
                Some(Event::Close(why)) => return Err(io::Error::other(why)),
                Some(Event::Request(_)) => return Err(io::ErrorKind::InvalidData.into()),
                None if session.is_closed() => return Err(io::ErrorKind::ConnectionAborted.into()),
                None => {
                    let input = session.input();
                    input.reserve(READ_RESERVE);
                    if stream.read_buf(input).await? == 0 {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
            }
        }
        let socket = Socket(Arc::new(stream));
        let (reader, writer) = split(self.acceptor.accept(socket.clone()).await?);
        Ok((session, TlsReader { half: reader, socket: socket.clone() }, TlsWriter { half: writer, socket }))
    }
}

/// All PEM items of one kind in a file; there must be at least one.
fn all<T: PemObject>(path: &Path) -> Result<Vec<T>, TlsError> {
    let unread = |why| TlsError::Unread { path: path.to_owned(), why };
    let found: Vec<T> = T::pem_file_iter(path).and_then(Iterator::collect).map_err(unread)?;
    if found.is_empty() { Err(TlsError::Empty(path.to_owned())) } else { Ok(found) }
}

/// Clients that have not shown a certificate yet, oldest first. Anybody may open connections, so these are
/// bounded apart: they must not keep out clients that have a certificate.
#[derive(Debug, Clone, Default)]
struct Strangers(Arc<Mutex<VecDeque<oneshot::Sender<()>>>>);

impl Strangers {
    /// Adds a client. The receiver ends when the client has to go, to make room for another.
    fn enter(&self) -> oneshot::Receiver<()> {
        let (keep, cut_off) = oneshot::channel();
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.retain(|other| !other.is_closed());
        if waiting.len() >= MAX_STRANGERS {
            waiting.pop_front();
        }
        waiting.push_back(keep);
        cut_off
    }
}

/// A socket that the connection can watch for its end while TLS reads and writes it.
#[derive(Debug, Clone)]
struct Socket(Arc<TcpStream>);

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.0.poll_read_ready(cx))?;
            match self.0.try_read(into.initialize_unfilled()) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                read => return Poll::Ready(read.map(|len| into.advance(len))),
            }
        }
    }
}

impl Socket {
    fn poll(
        &self,
        cx: &mut Context<'_>,
        write: impl Fn(&TcpStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.0.poll_write_ready(cx))?;
            match write(&self.0) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
    }

    fn end(&self) -> io::Result<()> {
        rustix::net::shutdown(&*self.0, rustix::net::Shutdown::Write).map_err(io::Error::from)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll(cx, |socket| socket.try_write(bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll(cx, |socket| socket.try_write_vectored(pieces))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.end())
    }
}

/// The decrypted bytes that a client sends.
pub(crate) struct TlsReader {
    half: ReadHalf<TlsStream<Socket>>,
    socket: Socket,
}

impl AsyncRead for TlsReader {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.half).poll_read(cx, into)
    }
}

impl Incoming for TlsReader {
    async fn ended(&self) {
        crate::connection::wait_for_end(self.socket.0.ready(Interest::PRIORITY).await).await;
    }
}

/// Encrypts replies. Dropping it ends the socket's sending side, so that the client sees the end.
pub(crate) struct TlsWriter {
    half: WriteHalf<TlsStream<Socket>>,
    socket: Socket,
}

impl Drop for TlsWriter {
    fn drop(&mut self) {
        let _ = self.socket.end();
    }
}

impl AsyncWrite for TlsWriter {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.half).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.half).poll_write_vectored(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.half.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.half).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.half).poll_shutdown(cx)
    }
}

impl Outgoing for TlsWriter {
    /// Always refuses, so that the task that writes does the encrypting.
    fn write_now(&self, _: &[io::IoSlice<'_>]) -> io::Result<usize> {
        Err(io::ErrorKind::WouldBlock.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_stranger_goes_for_a_new_one() {
        let strangers = Strangers::default();
        let mut waiting: Vec<_> = (0..MAX_STRANGERS).map(|_| strangers.enter()).collect();
        let is_cut_off =
            |s: &mut oneshot::Receiver<()>| s.try_recv() == Err(oneshot::error::TryRecvError::Closed);
        assert!(!waiting.iter_mut().any(is_cut_off));
        drop(waiting.remove(7));
        let mut last = strangers.enter();
        assert!(!waiting.iter_mut().any(is_cut_off), "one that is in, or left, counts no more");
        let mut one_more = strangers.enter();
        assert_eq!(waiting.iter_mut().map(is_cut_off).position(|gone| gone), Some(0));
        assert!(!is_cut_off(&mut last) && !is_cut_off(&mut one_more));
    }
}

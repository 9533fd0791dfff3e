//! One TCP connection: the socket, its protocol machine, and the bytes that wait for the socket.

use std::collections::VecDeque;
use std::io::{ErrorKind, IoSlice};
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::task::{Context, Poll, Waker};

use bytes::{Buf, Bytes, BytesMut};
use messages::wire::WireMessage;
use msgr::{Connection, Event, Grant};
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::sync::Notify;

use super::unread::Share;
use crate::owner::lock;

/// Pieces of one vectored write.
const MAX_PIECES: usize = 256;
/// Bytes after which a flush leaves the rest to the next: a peer that reads as quickly as they are written
/// would keep the thread, on which all others wait, for the whole of a long answer.
const FLUSH_BYTES: usize = 4 << 20;
/// A daemon that does not read what was sent to it is cut off when this much waits for it; for clients see
/// `unread`.
const MAX_UNWRITTEN_BYTES: usize = 1 << 30;

/// The socket and the machine. The lock of the machine is held for parsing and writing only, never while the
/// handler runs.
pub(super) struct Link {
    stream: TcpStream,
    wire: Mutex<Wire>,
    /// Held from taking events out of the machine until the handler has had them: whoever takes the session
    /// over waits for it, so that messages stay in order from one connection to the next.
    turn: Mutex<()>,
    /// Wakes the link's task: something to write, or an answer from outside.
    wake: Notify,
    /// Set when the peer is a client: bytes that wait to be written count in here.
    unread: OnceLock<Share>,
}

struct Wire {
    machine: Connection,
    out: VecDeque<Bytes>,
    out_bytes: usize,
    scratch: Vec<Bytes>,
    /// Nothing is written any more: the socket failed, or the peer does not read.
    failed: bool,
    /// Whether that was because the peer, a client, does not read.
    given_up: bool,
}

/// What is left after writing as much as the socket takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flushed {
    All,
    Blocked,
    /// The socket takes more. Others go first.
    More,
    /// The socket failed, or everything of a closed connection is written.
    Over,
}

impl Link {
    pub(super) fn new(stream: TcpStream, machine: Connection) -> Self {
        // Small frames must not wait for acknowledgements of earlier ones.
        let _ = stream.set_nodelay(true);
        let wire = Wire {
            machine,
            out: VecDeque::new(),
            out_bytes: 0,
            scratch: Vec::new(),
            failed: false,
            given_up: false,
        };
        let (wire, turn) = (Mutex::new(wire), Mutex::new(()));
        Self { stream, wire, turn, wake: Notify::new(), unread: OnceLock::new() }
    }

    pub(super) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Whether the peer has closed its side. Seen without reading what it sent before.
    pub(super) fn is_hung_up(&self) -> bool {
        is_hung_up(&self.stream)
    }

    /// Waits until the peer has closed its half of the connection. What it has sent may be left to read.
    pub(super) async fn hung_up(&self) {
        // The socket is not registered for urgent data. So this interest becomes ready only when the peer's
        // half is closed.
        let ready = self.stream.ready(Interest::PRIORITY).await;
        if !ready.is_ok_and(|ready| ready.is_read_closed()) {
            std::future::pending::<()>().await;
        }
    }

    pub(super) async fn woken(&self) {
        self.wake.notified().await;
    }

    pub(super) fn wake(&self) {
        self.wake.notify_one();
    }

    /// Waits until no events of this link are on their way to the handler, and keeps it so while the guard
    /// lives.
    pub(super) fn turn(&self) -> MutexGuard<'_, ()> {
        lock(&self.turn)
    }

    /// Runs `body` on the machine. Follow with `flush` when it sent something.
    pub(super) fn with<T>(&self, body: impl FnOnce(&mut Connection) -> T) -> T {
        body(&mut lock(&self.wire).machine)
    }

    /// Hands the message to the session; `false` when there is none any more.
    pub(super) fn send(&self, msg: WireMessage) -> bool {
        lock(&self.wire).machine.send(msg).is_ok()
    }

    /// Reads what the socket has, at most a few buffers full, and parses it into `events`; what the next
    /// frame needs.
    pub(super) fn read(
        &self,
        now: types::Now,
        buf: &mut BytesMut,
        events: &mut Vec<Event>,
    ) -> std::io::Result<Grant> {
        let mut grant = Grant::Unneeded;
        for _ in 0..4 {
            if buf.capacity() == buf.len() {
                buf.reserve(64 << 10);
            }
            let room = buf.capacity() - buf.len();
            let n = match try_read(&self.stream, buf, room)? {
                None => {
                    grant = self.with(|m| m.grant());
                    break;
                }
                Some(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Some(n) => n,
            };
            let mut wire = lock(&self.wire);
            wire.machine.handle_bytes(now, buf);
            events.extend(std::iter::from_fn(|| wire.machine.poll_event()));
            grant = wire.machine.grant();
            drop(wire);
            if n < room || !events.is_empty() || matches!(grant, Grant::Wanted(_)) {
                break;
            }
        }
        Ok(grant)
    }

    /// Events that calls from outside brought about.
    pub(super) fn poll_events(&self, events: &mut Vec<Event>) {
        let mut wire = lock(&self.wire);
        events.extend(std::iter::from_fn(|| wire.machine.poll_event()));
    }

    /// Writes what is outgoing as far as the socket takes it now, about [`FLUSH_BYTES`] at most.
    pub(super) fn flush(&self) -> Flushed {
        let mut wire = lock(&self.wire);
        wire.collect();
        let result = wire.write(&self.stream);
        let closed = wire.machine.is_closed();
        self.count(&wire);
        drop(wire);
        match result {
            Flushed::All if closed => Flushed::Over,
            other => other,
        }
    }

    /// The peer is a client: what it does not read counts in `share` from now on.
    pub(super) fn count_unread_in(&self, share: Share) {
        let _ = self.unread.set(share);
    }

    fn count(&self, wire: &Wire) {
        if let Some(share) = self.unread.get() {
            share.set(wire.out_bytes as u64);
        }
    }

    /// Whether the peer is a client that has left so much unread that nothing is read from it
    /// (`Share::is_much`).
    pub(super) fn has_much_unread(&self, limit: u64, usual: u64) -> bool {
        self.unread.get().is_some_and(|share| share.is_much(limit, usual))
    }

    /// Bytes that all connections of the client's entity have left unread; 0 for daemons.
    pub(super) fn unread_of_entity(&self) -> u64 {
        self.unread.get().map_or(0, Share::of_entity)
    }

    /// Bytes that the client has left unread; 0 for daemons.
    pub(super) fn unread(&self) -> u64 {
        self.unread.get().map_or(0, Share::bytes)
    }

    /// Gives up a peer that does not read: drops what waits for it, and has the link's task end.
    pub(super) fn give_up(&self) {
        let mut wire = lock(&self.wire);
        (wire.failed, wire.given_up) = (true, true);
        wire.drop_output();
        self.count(&wire);
        drop(wire);
        self.wake();
    }

    /// Why `flush` returned `Over`, for the log.
    pub(super) fn failure(&self) -> &'static str {
        if lock(&self.wire).given_up {
            "the peer does not read what it asked for"
        } else {
            "the socket failed"
        }
    }

    /// As `flush`, from outside the link's task, which is woken when there is something left for it.
    pub(super) fn flush_from_outside(&self) {
        if self.flush() != Flushed::All {
            self.wake();
        }
    }
}

/// Reads up to `room` bytes; `None` when there is nothing now.
///
/// A short read has emptied the socket: that is told to the reactor at once, which otherwise learns it from
/// another call that fails. What arrives after the read wakes the reader all the same, for the reactor tells
/// new readiness from old.
fn try_read(stream: &TcpStream, buf: &mut BytesMut, room: usize) -> std::io::Result<Option<usize>> {
    let mut got = Ok(None);
    let _ = stream.try_io(Interest::READABLE, || {
        got = match stream.try_read_buf(buf) {
            Err(e) if e.kind() == ErrorKind::WouldBlock => Ok(None),
            other => other.map(Some),
        };
        match got {
            Ok(Some(n)) if n > 0 && n < room => Err(ErrorKind::WouldBlock.into()),
            _ => Ok(()),
        }
    });
    got
}

fn is_hung_up(stream: &TcpStream) -> bool {
    let ready = std::pin::pin!(stream.ready(Interest::READABLE));
    let mut nobody = Context::from_waker(Waker::noop());
    matches!(ready.poll(&mut nobody), Poll::Ready(Ok(ready)) if ready.is_read_closed())
}

impl Wire {
    fn collect(&mut self) {
        let Self { machine, scratch, .. } = self;
        machine.take_outgoing(scratch);
        self.out_bytes += self.scratch.iter().map(Bytes::len).sum::<usize>();
        self.out.extend(self.scratch.drain(..).filter(|b| !b.is_empty()));
        if self.out_bytes > MAX_UNWRITTEN_BYTES {
            self.failed = true;
        }
    }

    fn write(&mut self, stream: &TcpStream) -> Flushed {
        let enough = self.out_bytes.saturating_sub(FLUSH_BYTES);
        while !self.out.is_empty() && !self.failed {
            if self.out_bytes < enough {
                return Flushed::More;
            }
            let mut slices = [IoSlice::new(&[]); MAX_PIECES];
            let mut n = 0;
            for (slot, piece) in slices.iter_mut().zip(&self.out) {
                *slot = IoSlice::new(piece);
                n += 1;
            }
            match stream.try_write_vectored(slices.get(..n).unwrap_or_default()) {
                Ok(written) => self.advance(written),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Flushed::Blocked,
                Err(_) => self.failed = true,
            }
        }
        if self.failed {
            self.drop_output();
            return Flushed::Over;
        }
        Flushed::All
    }

    fn drop_output(&mut self) {
        self.out.clear();
        self.out_bytes = 0;
    }

    fn advance(&mut self, mut written: usize) {
        self.out_bytes -= written;
        while let Some(front) = self.out.front_mut() {
            if written < front.len() {
                front.advance(written);
                return;
            }
            written -= front.len();
            self.out.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_peer_that_reads_at_once_does_not_keep_the_thread() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let at = listener.local_addr().expect("an address");
        let peer = std::thread::spawn(move || {
            let mut peer = std::net::TcpStream::connect(at).expect("connected");
            std::io::copy(&mut peer, &mut std::io::sink()).expect("read")
        });
        let stream = listener.accept().await.expect("accepted").0;
        let local = msgr::Local { name: types::EntityName::osd(0), addrs: types::AddrVec::default() };
        let now = crate::Clock::start().now();
        let machine = Connection::accept(now, local, types::EntityAddr::default(), msgr::Limits::default());
        let link = Link::new(stream, machine);
        let piece = Bytes::from(vec![7; 4 << 10]);
        let total = 64 << 20;
        {
            let mut wire = lock(&link.wire);
            wire.out.extend(std::iter::repeat_n(piece.clone(), total / piece.len()));
            wire.out_bytes = total;
        }
        let mut most = 0;
        loop {
            let before = lock(&link.wire).out_bytes;
            let flushed = link.flush();
            most = most.max(before.saturating_sub(lock(&link.wire).out_bytes));
            match flushed {
                Flushed::All => break,
                Flushed::Blocked => link.stream().writable().await.expect("writable"),
                Flushed::More => tokio::task::yield_now().await,
                Flushed::Over => panic!("{}", link.failure()),
            }
        }
        // What one call takes is the socket's to say, up to MAX_PIECES.
        assert!(most <= FLUSH_BYTES + MAX_PIECES * piece.len(), "{most}");
        drop(link);
        assert!(peer.join().expect("no panic") >= total as u64);
    }

    #[tokio::test]
    async fn the_end_of_a_peer_shows_although_nothing_is_read() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let at = listener.local_addr().expect("an address");
        let (mut peer, accepted) = tokio::join!(TcpStream::connect(at), listener.accept());
        let ours = accepted.expect("accepted").0;
        let peer = peer.as_mut().expect("connected");
        peer.write_all(b"unread").await.expect("written");
        ours.readable().await.expect("readable");
        assert!(!is_hung_up(&ours));
        peer.shutdown().await.expect("shut down");
        while !is_hung_up(&ours) {
            tokio::task::yield_now().await;
        }
    }
}

//! One NBD connection: reads bytes for the protocol's core, runs requests side by side, writes replies.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use nbd::{Command, Event, MAX_EXTENTS, NbdError, Replies, Request, Session};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, Interest, Ready};
use tokio::net::{tcp, unix};
use tokio::sync::{Mutex, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::device::{BlockDevice, BlockError};
use crate::memory::{MAX_REQUESTS, Memory, Room, SharedMemory};
use crate::server::{Exported, stopped};

/// The most that one block status looks at, in bytes; a shorter answer is legal, and the client asks for the rest.
const MAX_STATUS: u32 = 256 << 20;
/// What a block status request may hold in memory until it is answered, in bytes: its ranges, then the reply.
const STATUS_MEMORY: u64 = 256 << 10;
const READ_RESERVE: usize = 64 << 10;
/// How long a peer may take; what it does not use it must not hold for ever.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// From the first byte to the choice of an export.
    pub handshake: Duration,
    /// From a write's header to the end of its data: until then it holds memory that others wait for.
    pub payload: Duration,
    /// For taking replies, for the same reason, beside [`Limits::bytes_per_s`].
    pub reply: Duration,
    /// The least that a peer takes of its replies.
    pub bytes_per_s: u64,
    /// For requests under way, and one that waits for room, when the peer has gone.
    pub ending: Duration,
}

impl Limits {
    pub const DEFAULT: Self = Self {
        handshake: Duration::from_secs(30),
        payload: Duration::from_secs(60),
        reply: Duration::from_secs(60),
        bytes_per_s: 256 << 10,
        ending: Duration::from_secs(60),
    };
}

type Buffers = Vec<Bytes>;
/// A reply, and the memory that it holds until it is written.
type Reply = (Buffers, Option<Room>);

/// What a peer's bytes come from.
pub trait Incoming: AsyncRead + Unpin + Send + Sync {
    /// Waits until the peer sends no more, though what it sent is not read yet.
    fn ended(&self) -> impl Future<Output = ()> + Send;
}

impl Incoming for unix::OwnedReadHalf {
    async fn ended(&self) {
        wait_for_end(self.ready(Interest::PRIORITY).await).await;
    }
}

impl Incoming for tcp::OwnedReadHalf {
    async fn ended(&self) {
        wait_for_end(self.ready(Interest::PRIORITY).await).await;
    }
}

/// Where replies go.
pub trait Outgoing: AsyncWrite + Unpin + Send + 'static {
    /// Writes what fits now.
    fn write_now(&self, pieces: &[io::IoSlice<'_>]) -> io::Result<usize>;
}

impl Outgoing for unix::OwnedWriteHalf {
    fn write_now(&self, pieces: &[io::IoSlice<'_>]) -> io::Result<usize> {
        self.try_write_vectored(pieces)
    }
}

impl Outgoing for tcp::OwnedWriteHalf {
    fn write_now(&self, pieces: &[io::IoSlice<'_>]) -> io::Result<usize> {
        self.try_write_vectored(pieces)
    }
}

/// The socket's sending half. The lock is held from a reply's first byte to its last, or until the bytes that are left are
/// in `rest`.
struct Output<W> {
    writer: W,
    /// Of a reply that did not fit: before anything else.
    rest: Buffers,
    /// The task that writes replies is within one, or was cut off there: nothing may follow what went out of it.
    is_broken: bool,
}

impl<W> Output<W> {
    fn new(writer: W) -> Self {
        Self { writer, rest: Vec::new(), is_broken: false }
    }
}

/// Writes a reply at once from where it was made, which saves a hand-over.
trait ReplyNow: Send + Sync {
    fn reply(&self, reply: &Buffers) -> Replied;
}

enum Replied {
    Whole,
    /// The rest is kept, and goes out when the task that writes replies is woken.
    Part,
    /// Somebody else is writing or was cut off, or the reply is long: it has to be queued.
    Not,
}

/// Longer replies are left to the task that writes them.
const REPLY_AT_ONCE: usize = 64 << 10;

impl<W: Outgoing> ReplyNow for Mutex<Output<W>> {
    fn reply(&self, reply: &Buffers) -> Replied {
        let len: usize = reply.iter().map(Bytes::len).sum();
        let Ok(mut output) = self.try_lock() else { return Replied::Not };
        if len > REPLY_AT_ONCE || output.is_broken || !output.rest.is_empty() {
            return Replied::Not;
        }
        let slices: Vec<io::IoSlice<'_>> = reply.iter().map(|b| io::IoSlice::new(b)).collect();
        // An error is for the task to find, which ends the connection.
        let Ok(mut written) = output.writer.write_now(&slices) else { return Replied::Not };
        if written == len {
            return Replied::Whole;
        }
        for piece in reply {
            let gone = written.min(piece.len());
            written -= gone;
            output.rest.push(piece.slice(gone..));
        }
        Replied::Part
    }
}

/// Urgent data, which nobody sends, would hide the end: the wait has no end then.
pub(crate) async fn wait_for_end(ready: io::Result<Ready>) {
    if ready.is_ok_and(|r| !r.is_read_closed()) {
        std::future::pending::<()>().await;
    }
}

/// Serves one client from its first byte on; see [`go_on`].
pub async fn run(
    reader: impl Incoming,
    writer: impl Outgoing,
    exports: Arc<Vec<Exported>>,
    shared: &SharedMemory,
    limits: Limits,
    stop: watch::Receiver<bool>,
) {
    let (session, greeting) = Session::new(exports.iter().map(Exported::export).collect());
    let begun = Begun { session, greeting: Some(greeting), until: Instant::now() + limits.handshake };
    go_on(begun, reader, writer, exports, shared, limits, stop).await;
}

/// A connection as it is taken up.
pub struct Begun {
    pub session: Session,
    /// Still to be sent.
    pub greeting: Option<Bytes>,
    /// An export must be chosen by then.
    pub until: Instant,
}

/// Serves one client until it leaves, errs, or `stop` turns true. Changes that the image does not answer outlive the
/// connection, for half of one may be on its way; what only looks ends with it.
pub async fn go_on(
    begun: Begun,
    mut reader: impl Incoming,
    writer: impl Outgoing,
    exports: Arc<Vec<Exported>>,
    shared: &SharedMemory,
    limits: Limits,
    mut stop: watch::Receiver<bool>,
) {
    let Begun { session, greeting, until } = begun;
    let (send, queue) = mpsc::channel(MAX_REQUESTS);
    let output = Arc::new(Mutex::new(Output::new(writer)));
    let now: Weak<dyn ReplyNow> = Arc::downgrade(&output) as _;
    let mut writing = tokio::spawn(write_replies(output, queue, limits));
    let mut connection = Connection {
        session,
        exports,
        send,
        now,
        memory: Memory::new(shared),
        limits,
        handshake_until: until,
        unanswered: Arc::default(),
        incoming: None,
        is_admitted: false,
        looking: JoinSet::new(),
    };
    if let Some(greeting) = greeting {
        let _ = connection.send(vec![greeting]).await;
    }
    let end = tokio::select! {
        result = connection.talk(&mut reader) => {
            if let Err(e) = result {
                tracing::debug!(error = %e, "connection ended");
            }
            End::Left
        }
        // The peer takes no replies: what it asks for is in vain.
        _ = &mut writing => End::Deaf,
        () = stopped(&mut stop) => End::Stopped,
    };
    // Every request under way keeps a sender: the writer ends behind the last reply.
    let Connection { send, incoming, memory, mut looking, .. } = connection;
    drop((send, incoming));
    match end {
        End::Deaf => {}
        End::Stopped => drop(writing.await),
        End::Left => {
            if tokio::time::timeout(limits.ending, &mut writing).await.is_err() {
                // An image does not answer; nobody waits for the reply, and others want the seat.
                writing.abort();
                let _ = writing.await;
            }
        }
    }
    looking.shutdown().await;
    // What is still under way is the image's from here on.
    drop(memory);
}

/// Why a connection ends.
enum End {
    Left,
    Deaf,
    Stopped,
}

struct Connection {
    session: Session,
    exports: Arc<Vec<Exported>>,
    send: mpsc::Sender<Reply>,
    /// Only the task that writes replies owns the socket: it closes with the connection, whatever is left under way.
    now: Weak<dyn ReplyNow>,
    memory: Memory,
    limits: Limits,
    handshake_until: Instant,
    /// Requests whose replies are not ready.
    unanswered: Arc<AtomicUsize>,
    /// For the data of a write that is being received, and until when it must be there.
    incoming: Option<(Room, Instant)>,
    /// The image was not left with too much when the peer chose it.
    is_admitted: bool,
    /// Requests that change nothing: they may be cut off.
    looking: JoinSet<()>,
}

impl Connection {
    async fn talk(&mut self, reader: &mut impl Incoming) -> io::Result<()> {
        loop {
            while let Some(event) = self.session.next_event() {
                match event {
                    Event::Send(bytes) => {
                        // Perhaps the refusal of the write that was received.
                        self.incoming = None;
                        self.send(vec![bytes]).await?;
                    }
                    // TLS is on before this begins, where it must be.
                    Event::StartTls => return Err(io::ErrorKind::Unsupported.into()),
                    Event::Request(request) => self.start(reader, request).await?,
                    Event::Close(why) => {
                        tracing::debug!(%why, "closing the connection");
                        return Ok(());
                    }
                }
            }
            if self.session.is_closed() {
                return Ok(());
            }
            let export = self.session.export();
            if let Some(export) = export {
                self.admit(export)?;
            }
            let to_come = self.session.payload_to_come();
            if let Some(export) = export.filter(|_| to_come > 0 && self.incoming.is_none()) {
                let room = self.room(reader, export, to_come as u64).await?;
                self.incoming = Some((room, Instant::now() + self.limits.payload));
            }
            let deadline = match &self.incoming {
                Some((_, deadline)) => Some(*deadline),
                None => export.is_none().then_some(self.handshake_until),
            };
            let input = self.session.input();
            input.reserve(READ_RESERVE.max((to_come + READ_RESERVE).saturating_sub(input.len())));
            let read = reader.read_buf(input);
            let len = match deadline {
                Some(at) => {
                    tokio::time::timeout_at(at, read).await.map_err(|_| io::ErrorKind::TimedOut)??
                }
                None => read.await?,
            };
            if len == 0 {
                return Ok(());
            }
            if let Some(at) = self.session.export() {
                // Somebody may have resized the image.
                if let Some(exported) = self.exports.get(at) {
                    self.session.resize(at, exported.device.size());
                }
            }
        }
    }

    async fn send(&self, buffers: Buffers) -> io::Result<()> {
        self.send.send((buffers, None)).await.map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    /// Refuses a peer whose image has enough to do with what others left.
    fn admit(&mut self, export: usize) -> io::Result<()> {
        if !self.is_admitted && !self.memory.admits(export) {
            tracing::warn!(
                export,
                "the image does not answer what earlier connections left: one more is closed"
            );
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        self.is_admitted = true;
        Ok(())
    }

    /// Waits for room, not much longer than the peer is there.
    async fn room(&self, reader: &impl Incoming, export: usize, len: u64) -> io::Result<Room> {
        let room = self.memory.room(export, len);
        tokio::pin!(room);
        tokio::select! {
            biased;
            room = &mut room => return room,
            () = reader.ended() => {}
        }
        let late = |_| io::Error::from(io::ErrorKind::TimedOut);
        tokio::time::timeout(self.limits.ending, room).await.map_err(late)?
    }

    /// Starts a request once there is room for it. One that comes alone is begun at once, and ended too if it can be without
    /// waiting for others: handing it to another thread and back would take longer than a local write.
    async fn start(&mut self, reader: &impl Incoming, request: Request) -> io::Result<()> {
        let Some(at) = self.session.export() else { return Ok(()) };
        self.admit(at)?;
        let Some(exported) = self.exports.get(at) else { return Ok(()) };
        let room = match self.incoming.take() {
            Some((room, _)) => room,
            None => self.room(reader, at, data_len(&request.command)).await?,
        };
        let looks = looks(&request.command);
        let is_alone = self.unanswered.fetch_add(1, Ordering::AcqRel) == 0 && self.session.input().is_empty();
        let answering = Answering {
            device: Arc::clone(&exported.device),
            replies: self.session.replies(),
            send: self.send.clone(),
            now: is_alone.then(|| Weak::clone(&self.now)),
            unanswered: Arc::clone(&self.unanswered),
        };
        let mut answer = Box::pin(answering.answer(request, room));
        let is_done =
            is_alone && std::future::poll_fn(|cx| Poll::Ready(answer.as_mut().poll(cx).is_ready())).await;
        while self.looking.try_join_next().is_some() {}
        match (is_done, looks) {
            (true, _) => {}
            (false, true) => drop(self.looking.spawn(answer)),
            (false, false) => drop(tokio::spawn(answer)),
        }
        Ok(())
    }
}

/// Whether a request changes nothing.
fn looks(command: &Command) -> bool {
    match command {
        Command::Read { .. } | Command::BlockStatus { .. } | Command::Flush | Command::Cache { .. } => true,
        Command::Write { .. } | Command::Trim { .. } | Command::WriteZeroes { .. } => false,
    }
}

fn data_len(command: &Command) -> u64 {
    match command {
        Command::Read { len, .. } => u64::from(*len),
        Command::Write { data, .. } => data.len() as u64,
        Command::BlockStatus { .. } => STATUS_MEMORY,
        _ => 0,
    }
}

/// What a request needs to be answered.
struct Answering {
    device: Arc<dyn BlockDevice>,
    replies: Replies,
    send: mpsc::Sender<Reply>,
    unanswered: Arc<AtomicUsize>,
    /// Nothing else is under way on the connection: the reply may be written at once.
    now: Option<Weak<dyn ReplyNow>>,
}

impl Answering {
    async fn answer(self, request: Request, room: Room) {
        let cookie = request.cookie;
        let reply = match self.execute(request).await {
            Ok(reply) => reply,
            Err(e) => {
                tracing::debug!(error = %e, "request failed");
                vec![self.replies.error(cookie, NbdError::from_errno(e.errno))]
            }
        };
        self.unanswered.fetch_sub(1, Ordering::AcqRel);
        let reply = match self.now.as_ref().and_then(Weak::upgrade).map(|now| now.reply(&reply)) {
            Some(Replied::Whole) => return,
            Some(Replied::Part) => Vec::new(),
            Some(Replied::Not) | None => reply,
        };
        let _ = self.send.send((reply, Some(room))).await;
    }

    async fn execute(&self, request: Request) -> Result<Buffers, BlockError> {
        let (device, replies, cookie) = (&self.device, self.replies, request.cookie);
        let (durable, done) = match request.command {
            Command::Read { offset, len, whole } => {
                let pieces = device.read(offset, u64::from(len)).await?;
                return Ok(replies.data(cookie, offset, pieces, whole));
            }
            Command::BlockStatus { offset, len, one } => {
                let len = len.min(MAX_STATUS);
                let most = if one { 1 } else { MAX_EXTENTS };
                let ranges = device.status(offset, u64::from(len), most).await?;
                return Ok(vec![replies.block_status(cookie, len, &ranges, one)]);
            }
            Command::Write { offset, data, fua } if self.now.is_some() => {
                (fua, device.write_alone(offset, data).await)
            }
            Command::Write { offset, data, fua } => (fua, device.write(offset, data).await),
            Command::Trim { offset, len, fua } => (fua, device.zero(offset, u64::from(len), true).await),
            Command::WriteZeroes { offset, len, fua, punch } => {
                (fua, device.zero(offset, u64::from(len), punch).await)
            }
            Command::Flush => (true, Ok(())),
            // A hint that the range will be read; there is no read cache to fill.
            Command::Cache { .. } => (false, Ok(())),
        };
        done?;
        if durable {
            device.flush().await?;
        }
        Ok(vec![replies.done(cookie)])
    }
}

/// Writes replies in the order they are ready, several at a time.
async fn write_replies<W: Outgoing>(
    output: Arc<Mutex<Output<W>>>,
    mut queue: mpsc::Receiver<Reply>,
    limits: Limits,
) {
    while let Some((reply, room)) = queue.recv().await {
        let mut output = output.lock().await;
        let Output { writer, rest, is_broken } = &mut *output;
        *is_broken = true;
        let mut buffers = std::mem::take(rest);
        buffers.extend(reply);
        let mut rooms = vec![room];
        while let Ok((more, room)) = queue.try_recv() {
            buffers.extend(more);
            rooms.push(room);
        }
        let len: u64 = buffers.iter().map(|b| b.len() as u64).sum();
        let limit = limits.reply + Duration::from_secs(len / limits.bytes_per_s);
        let written = tokio::time::timeout(limit, write_all(writer, buffers)).await;
        if !matches!(written, Ok(Ok(()))) {
            // Requests under way must not wait for a peer that has gone.
            queue.close();
            while queue.recv().await.is_some() {}
            return;
        }
        *is_broken = false;
    }
    let _ = output.lock().await.writer.shutdown().await;
}

async fn write_all(writer: &mut (impl AsyncWrite + Unpin), buffers: Buffers) -> io::Result<()> {
    let mut slices: Vec<io::IoSlice<'_>> = buffers.iter().map(|b| io::IoSlice::new(b)).collect();
    let mut left = &mut slices[..];
    while !left.is_empty() {
        // The kernel takes at most 1024 buffers at once.
        let written = writer.write_vectored(left.get(..512).unwrap_or(left)).await?;
        if written == 0 && left.iter().any(|s| !s.is_empty()) {
            return Err(io::ErrorKind::WriteZero.into());
        }
        io::IoSlice::advance_slices(&mut left, written);
    }
    writer.flush().await
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::Context;

    use tokio::io::{DuplexStream, ReadHalf, WriteHalf};
    use tokio::net::UnixStream;

    use super::*;
    use crate::stub::Stub;

    /// A pipe's end is seen by reading alone.
    impl Incoming for ReadHalf<DuplexStream> {
        async fn ended(&self) {
            std::future::pending().await
        }
    }

    /// A pipe takes nothing outside of its task.
    impl Outgoing for WriteHalf<DuplexStream> {
        fn write_now(&self, _: &[io::IoSlice<'_>]) -> io::Result<usize> {
            Err(io::ErrorKind::WouldBlock.into())
        }
    }

    /// Takes so many bytes at once, and everything from whoever waits.
    #[derive(Default)]
    struct Narrow {
        takes: usize,
        got: Arc<std::sync::Mutex<Vec<u8>>>,
    }

    impl Outgoing for Narrow {
        fn write_now(&self, pieces: &[io::IoSlice<'_>]) -> io::Result<usize> {
            let all: Vec<u8> = pieces.iter().flat_map(|p| p.iter().copied()).take(self.takes).collect();
            self.got.lock().expect("no panic").extend(&all);
            if all.is_empty() { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(all.len()) }
        }
    }

    impl AsyncWrite for Narrow {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            self.got.lock().expect("no panic").extend(bytes);
            Poll::Ready(Ok(bytes.len()))
        }
        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test]
    async fn what_does_not_fit_at_once_goes_out_before_later_replies() {
        let reply: Buffers = [&b"abc"[..], b"", b"defg"].map(Bytes::from_static).into();
        for takes in [0, 1, 3, 5, 7, 9] {
            let got = Arc::default();
            let writer = Narrow { takes, got: Arc::clone(&got) };
            let output = Arc::new(Mutex::new(Output::new(writer)));
            let (send, queue) = mpsc::channel(4);
            let first = match output.reply(&reply) {
                Replied::Not => reply.clone(),
                Replied::Part => {
                    assert!(matches!(output.reply(&reply), Replied::Not), "another would stand inside of it");
                    Vec::new()
                }
                Replied::Whole => Vec::new(),
            };
            send.send((first, None)).await.expect("queued");
            send.send((vec![Bytes::from_static(b"later")], None)).await.expect("queued");
            drop(send);
            write_replies(output, queue, PATIENT).await;
            assert_eq!(*got.lock().expect("no panic"), b"abcdefglater", "{takes}");
        }
    }

    #[tokio::test]
    async fn long_replies_and_those_beside_another_are_queued() {
        let output = Mutex::new(Output::new(Narrow { takes: usize::MAX, ..Narrow::default() }));
        let long = vec![Bytes::from(vec![0; REPLY_AT_ONCE + 1])];
        assert!(matches!(output.reply(&long), Replied::Not));
        let short = vec![Bytes::from_static(b"x")];
        let writing = output.lock().await;
        assert!(matches!(output.reply(&short), Replied::Not));
        drop(writing);
        assert!(matches!(output.reply(&short), Replied::Whole));
    }

    /// Takes a few bytes from whoever waits, then no more; and everything at once, as a peer does that reads again.
    #[derive(Default)]
    struct Choked(Narrow);

    impl Outgoing for Choked {
        fn write_now(&self, pieces: &[io::IoSlice<'_>]) -> io::Result<usize> {
            self.0.write_now(pieces)
        }
    }

    impl AsyncWrite for Choked {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            let mut got = self.0.got.lock().expect("no panic");
            if !got.is_empty() {
                return Poll::Pending;
            }
            got.extend(&bytes[..3]);
            Poll::Ready(Ok(3))
        }
        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test]
    async fn nothing_follows_a_reply_that_was_cut_off() {
        for is_aborted in [false, true] {
            let got = Arc::default();
            let narrow = Narrow { takes: usize::MAX, got: Arc::clone(&got) };
            let output = Arc::new(Mutex::new(Output::new(Choked(narrow))));
            let (send, queue) = mpsc::channel(4);
            send.send((vec![Bytes::from_static(b"read A")], None)).await.expect("queued");
            let limits = if is_aborted { PATIENT } else { Limits { reply: SOON, ..PATIENT } };
            let writing = tokio::spawn(write_replies(Arc::clone(&output), queue, limits));
            until("a part is out", || got.lock().expect("no panic").len() == 3).await;
            if is_aborted {
                writing.abort();
            }
            let _ = writing.await;
            assert!(output.try_lock().is_ok(), "nobody writes any more");
            let late = vec![Bytes::from_static(b"write B")];
            assert!(matches!(output.reply(&late), Replied::Not));
            assert_eq!(*got.lock().expect("no panic"), b"rea", "aborted: {is_aborted}");
        }
    }

    #[tokio::test]
    async fn replies_at_once_go_on_behind_one_that_was_queued() {
        let got = Arc::default();
        let output = Arc::new(Mutex::new(Output::new(Narrow { takes: usize::MAX, got: Arc::clone(&got) })));
        let (send, queue) = mpsc::channel(4);
        let writing = tokio::spawn(write_replies(Arc::clone(&output), queue, PATIENT));
        send.send((vec![Bytes::from_static(b"queued,")], None)).await.expect("queued");
        until("it is out", || got.lock().expect("no panic").len() == 7 && output.try_lock().is_ok()).await;
        assert!(matches!(output.reply(&vec![Bytes::from_static(b"at once")]), Replied::Whole));
        drop(send);
        writing.await.expect("no panic");
        assert_eq!(*got.lock().expect("no panic"), b"queued,at once");
    }

    fn answering(device: Arc<dyn BlockDevice>) -> Answering {
        let (session, _) = Session::new(Vec::new());
        let (send, _) = mpsc::channel(1);
        Answering { device, replies: session.replies(), send, unanswered: Arc::default(), now: None }
    }

    #[tokio::test]
    async fn one_block_status_looks_at_a_bounded_part() {
        for (len, expected) in [(4096, 4096), (u32::MAX, MAX_STATUS)] {
            let device = Arc::new(Stub::default());
            let command = Command::BlockStatus { offset: 0, len, one: false };
            let reply = answering(device.clone()).execute(Request { cookie: 1, command }).await;
            let reply = reply.expect("an answer").concat();
            assert_eq!(device.looked_at.load(Ordering::SeqCst), u64::from(expected));
            // The only extent of the answer: its length, then its flags.
            let at = reply.len() - 8;
            assert_eq!(reply[at..at + 4], expected.to_be_bytes());
        }
    }

    /// The command that the image below never answers.
    const FLUSH: u8 = 3;
    const SOON: Duration = Duration::from_millis(50);
    const LATE: Duration = Duration::from_secs(3600);
    const PATIENT: Limits =
        Limits { handshake: LATE, payload: LATE, reply: LATE, bytes_per_s: u64::MAX, ending: LATE };

    fn exports(device: &Arc<Stub>) -> Arc<Vec<Exported>> {
        let device = device.clone();
        Arc::new(vec![Exported { name: "disk".into(), description: String::new(), device, read_only: false }])
    }

    /// Serves one client over a pipe of a few bytes.
    fn serve(limits: Limits) -> (DuplexStream, tokio::task::JoinHandle<()>, watch::Sender<bool>) {
        serve_of(&Arc::default(), &SharedMemory::new(1), limits)
    }

    fn serve_of(
        device: &Arc<Stub>,
        memory: &SharedMemory,
        limits: Limits,
    ) -> (DuplexStream, tokio::task::JoinHandle<()>, watch::Sender<bool>) {
        let (client, server) = tokio::io::duplex(1024);
        let (reader, writer) = tokio::io::split(server);
        let (stop, stopped) = watch::channel(false);
        let (exports, memory) = (exports(device), memory.clone());
        let serving = tokio::spawn(async move {
            run(reader, writer, exports, &memory, limits, stopped).await;
        });
        (client, serving, stop)
    }

    /// Takes the export, by its old option.
    async fn attach(client: &mut (impl AsyncRead + AsyncWrite + Unpin)) {
        client.write_all(b"\0\0\0\x03IHAVEOPT\0\0\0\x01\0\0\0\x04disk").await.expect("sends");
        client.read_exact(&mut [0; 18 + 10]).await.expect("greeting and answer");
    }

    fn request(kind: u8, len: u32) -> Vec<u8> {
        let mut out = b"\x25\x60\x95\x13\0\0\0".to_vec();
        out.push(kind);
        out.extend([0; 16]);
        out.extend(len.to_be_bytes());
        out
    }

    /// The connection ends by itself, long before a patient one would.
    async fn ends(serving: tokio::task::JoinHandle<()>) {
        tokio::time::timeout(Duration::from_secs(60), serving).await.expect("it ends").expect("no panic");
    }

    #[tokio::test]
    async fn a_peer_that_takes_no_replies_is_closed() {
        let (mut client, serving, _stop) = serve(Limits { reply: SOON, ending: SOON, ..PATIENT });
        attach(&mut client).await;
        // Errors of 16 bytes each, more of them than the pipe takes.
        let _ = client.write_all(&request(0, 1).repeat(500)).await;
        ends(serving).await;
    }

    #[tokio::test]
    async fn a_peer_that_takes_its_replies_byte_by_byte_is_closed_too() {
        let (mut client, serving, _stop) = serve(Limits { reply: SOON, ending: SOON, ..PATIENT });
        attach(&mut client).await;
        let (mut read, mut write) = tokio::io::split(client);
        let asking =
            tokio::spawn(async move { while write.write_all(&request(0, 1).repeat(100)).await.is_ok() {} });
        // A little of what it is owed, and always before a limit for each write would be over.
        let mut pace = tokio::time::interval(SOON / 4);
        while !serving.is_finished() {
            let _ = tokio::time::timeout(SOON, read.read(&mut [0])).await;
            pace.tick().await;
        }
        ends(serving).await;
        asking.abort();
    }

    #[tokio::test]
    async fn haggling_without_end_is_ended() {
        let (client, serving, _stop) = serve(Limits { handshake: SOON, ending: SOON, ..PATIENT });
        let (mut read, mut write) = tokio::io::split(client);
        let reading =
            tokio::spawn(async move { while read.read(&mut [0; 4096]).await.is_ok_and(|n| n > 0) {} });
        write.write_all(b"\0\0\0\x03").await.expect("sends");
        // The list of exports, again and again.
        while write.write_all(b"IHAVEOPT\0\0\0\x03\0\0\0\0").await.is_ok() && !serving.is_finished() {}
        ends(serving).await;
        reading.await.expect("no panic");
    }

    #[tokio::test]
    async fn a_write_whose_data_does_not_come_is_ended() {
        let (mut client, serving, _stop) = serve(Limits { payload: SOON, ending: SOON, ..PATIENT });
        attach(&mut client).await;
        client.write_all(&request(1, 4096)).await.expect("sends");
        client.write_all(b"a few bytes").await.expect("sends");
        ends(serving).await;
    }

    #[tokio::test]
    async fn a_peer_that_has_gone_leaves_its_seat_though_the_image_does_not_answer() {
        let (mut client, serving, _stop) = serve(Limits { ending: SOON, ..PATIENT });
        attach(&mut client).await;
        client.write_all(&request(FLUSH, 0)).await.expect("sends");
        drop(client);
        ends(serving).await;
    }

    #[tokio::test]
    async fn the_socket_closes_with_its_connection_though_a_write_is_not_answered() {
        let device = Arc::new(Stub::stuck());
        let (mut client, serving, _stop) = serve_socket(&device, Limits { ending: SOON, ..PATIENT });
        attach(&mut client).await;
        // Begun alone: its reply would be written from where it is made.
        client.write_all(&[request(1, 4), b"data".to_vec()].concat()).await.expect("sends");
        until("it is under way", || device.under_way() == 1).await;
        client.shutdown().await.expect("half closed");
        ends(serving).await;
        assert_eq!(device.under_way(), 1, "a write is not cut off");
        let read = tokio::time::timeout(Duration::from_secs(60), client.read(&mut [0; 64])).await;
        assert_eq!(read.expect("the socket is closed").expect("no error"), 0);
    }

    /// As `serve_of`, over a socket, which tells when its peer has closed.
    fn serve_socket(
        device: &Arc<Stub>,
        limits: Limits,
    ) -> (UnixStream, tokio::task::JoinHandle<()>, watch::Sender<bool>) {
        let (client, server) = UnixStream::pair().expect("a pair");
        let (reader, writer) = server.into_split();
        let (stop, stopped) = watch::channel(false);
        let (exports, memory) = (exports(device), SharedMemory::new(1));
        let serving =
            tokio::spawn(async move { run(reader, writer, exports, &memory, limits, stopped).await });
        (client, serving, stop)
    }

    async fn until(what: &str, holds: impl Fn() -> bool) {
        let end = Instant::now() + Duration::from_secs(60);
        while !holds() {
            assert!(Instant::now() < end, "{what}");
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_read_ends_with_its_connection() {
        let (device, memory) = (Arc::new(Stub::stuck()), SharedMemory::new(1));
        let (mut client, serving, _stop) = serve_of(&device, &memory, Limits { ending: SOON, ..PATIENT });
        attach(&mut client).await;
        client.write_all(&request(0, 4096).repeat(3)).await.expect("sends");
        until("they are under way", || device.under_way() == 3).await;
        drop(client);
        ends(serving).await;
        assert_eq!(device.under_way(), 0, "nobody waits for them");
    }

    #[tokio::test]
    async fn an_image_that_is_left_with_many_writes_takes_no_new_connection() {
        let (device, memory) = (Arc::new(Stub::stuck()), SharedMemory::new(1));
        let write = [request(1, 4), b"data".to_vec()].concat();
        for i in 1..=2 {
            let (mut client, serving, _stop) = serve_of(&device, &memory, Limits { ending: SOON, ..PATIENT });
            attach(&mut client).await;
            client.write_all(&write.repeat(MAX_REQUESTS)).await.expect("sends");
            until("they are under way", || device.under_way() == i * MAX_REQUESTS).await;
            drop(client);
            ends(serving).await;
            assert_eq!(device.under_way(), i * MAX_REQUESTS, "a write is not cut off");
        }
        let (mut client, serving, _stop) = serve_of(&device, &memory, PATIENT);
        attach(&mut client).await;
        ends(serving).await;

        device.answer(1);
        until("one is answered", || device.under_way() < 2 * MAX_REQUESTS).await;
        until("its room is free", || memory.admits(0)).await;
        let (mut client, serving, _stop) = serve_of(&device, &memory, PATIENT);
        attach(&mut client).await;
        client.write_all(&write).await.expect("sends");
        until("it is under way", || device.under_way() == 2 * MAX_REQUESTS).await;
        assert!(!serving.is_finished());
    }

    #[tokio::test]
    async fn a_peer_that_goes_while_its_request_waits_for_room_leaves_its_seat() {
        let device = Arc::new(Stub::stuck());
        let (mut client, serving, _stop) = serve_socket(&device, Limits { ending: SOON, ..PATIENT });
        attach(&mut client).await;
        client.write_all(&request(0, 1).repeat(MAX_REQUESTS + 50)).await.expect("sends");
        until("as many as may", || device.under_way() == MAX_REQUESTS).await;
        drop(client);
        ends(serving).await;
        assert_eq!(device.under_way(), 0);
    }
}

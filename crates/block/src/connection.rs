//! One NBD connection: reads bytes for the protocol's core, runs requests side by side, writes replies.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use nbd::{Command, Event, NbdError, Replies, Request, Session};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::device::{BlockDevice, BlockError};
use crate::memory::{MAX_REQUESTS, Memory, Room, SharedMemory};
use crate::server::{Exported, stopped};

/// The most that one block status looks at, in bytes; a shorter answer is legal, and the client asks for the rest.
const MAX_STATUS: u32 = 256 << 20;
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
    /// For requests under way when the peer has gone.
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

/// Serves one client until it leaves, errs, or `stop` turns true.
pub async fn run(
    mut reader: impl AsyncRead + Unpin + Send,
    writer: impl AsyncWrite + Unpin + Send + 'static,
    exports: Arc<Vec<Exported>>,
    shared: &SharedMemory,
    limits: Limits,
    mut stop: watch::Receiver<bool>,
) {
    let (session, greeting) = Session::new(exports.iter().map(Exported::export).collect());
    let (send, queue) = mpsc::channel(MAX_REQUESTS);
    let mut writing = tokio::spawn(write_replies(writer, queue, limits));
    let mut connection = Connection {
        session,
        exports,
        send,
        memory: Memory::new(shared),
        limits,
        handshake_until: Instant::now() + limits.handshake,
        unanswered: Arc::default(),
        incoming: None,
    };
    let _ = connection.send(vec![greeting]).await;
    let is_stopped = tokio::select! {
        result = connection.talk(&mut reader) => {
            if let Err(e) = result {
                tracing::debug!(error = %e, "connection ended");
            }
            false
        }
        // The peer takes no replies: what it asks for is in vain.
        _ = &mut writing => return,
        () = stopped(&mut stop) => true,
    };
    // Every request under way keeps a sender: the writer ends behind the last reply.
    drop(connection);
    if is_stopped {
        let _ = writing.await;
    } else if tokio::time::timeout(limits.ending, &mut writing).await.is_err() {
        // An image does not answer; nobody waits for the reply, and others want the seat.
        writing.abort();
    }
}

struct Connection {
    session: Session,
    exports: Arc<Vec<Exported>>,
    send: mpsc::Sender<Reply>,
    memory: Memory,
    limits: Limits,
    handshake_until: Instant,
    /// Requests whose replies are not ready.
    unanswered: Arc<AtomicUsize>,
    /// For the data of a write that is being received, and until when it must be there.
    incoming: Option<(Room, Instant)>,
}

impl Connection {
    async fn talk(&mut self, reader: &mut (impl AsyncRead + Unpin)) -> io::Result<()> {
        loop {
            while let Some(event) = self.session.next_event() {
                match event {
                    Event::Send(bytes) => {
                        // Perhaps the refusal of the write that was received.
                        self.incoming = None;
                        self.send(vec![bytes]).await?;
                    }
                    Event::Request(request) => self.start(request).await?,
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
            let to_come = self.session.payload_to_come();
            if let Some(export) = export.filter(|_| to_come > 0 && self.incoming.is_none()) {
                let room = self.memory.room(export, to_come as u64).await?;
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

    /// Starts a request once there is room for it. One that comes alone is begun at once, and ended too if it can be without
    /// waiting for others: handing it to another thread and back would take longer than a local write.
    async fn start(&mut self, request: Request) -> io::Result<()> {
        let Some(at) = self.session.export() else { return Ok(()) };
        let Some(exported) = self.exports.get(at) else { return Ok(()) };
        let room = match self.incoming.take() {
            Some((room, _)) => room,
            None => self.memory.room(at, data_len(&request.command)).await?,
        };
        let is_alone = self.unanswered.fetch_add(1, Ordering::AcqRel) == 0 && self.session.input().is_empty();
        let answering = Answering {
            device: Arc::clone(&exported.device),
            replies: self.session.replies(),
            send: self.send.clone(),
            unanswered: Arc::clone(&self.unanswered),
            is_alone,
        };
        let mut answer = Box::pin(answering.answer(request, room));
        let is_done =
            is_alone && std::future::poll_fn(|cx| Poll::Ready(answer.as_mut().poll(cx).is_ready())).await;
        if !is_done {
            tokio::spawn(answer);
        }
        Ok(())
    }
}

fn data_len(command: &Command) -> u64 {
    match command {
        Command::Read { len, .. } => u64::from(*len),
        Command::Write { data, .. } => data.len() as u64,
        _ => 0,
    }
}

/// What a request needs to be answered.
struct Answering {
    device: Arc<dyn BlockDevice>,
    replies: Replies,
    send: mpsc::Sender<Reply>,
    unanswered: Arc<AtomicUsize>,
    /// Nothing else is under way on the connection.
    is_alone: bool,
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
                let ranges = device.status(offset, u64::from(len)).await?;
                return Ok(vec![replies.block_status(cookie, len, &ranges, one)]);
            }
            Command::Write { offset, data, fua } if self.is_alone => {
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
async fn write_replies(
    mut writer: impl AsyncWrite + Unpin,
    mut queue: mpsc::Receiver<Reply>,
    limits: Limits,
) {
    while let Some((mut buffers, room)) = queue.recv().await {
        let mut rooms = vec![room];
        while let Ok((more, room)) = queue.try_recv() {
            buffers.extend(more);
            rooms.push(room);
        }
        let len: u64 = buffers.iter().map(|b| b.len() as u64).sum();
        let limit = limits.reply + Duration::from_secs(len / limits.bytes_per_s);
        let written = tokio::time::timeout(limit, write_all(&mut writer, buffers)).await;
        if !matches!(written, Ok(Ok(()))) {
            // Requests under way must not wait for a peer that has gone.
            queue.close();
            while queue.recv().await.is_some() {}
            return;
        }
    }
    let _ = writer.shutdown().await;
}

async fn write_all(writer: &mut (impl AsyncWrite + Unpin), buffers: Buffers) -> io::Result<()> {
    let mut slices: Vec<io::IoSlice<'_>> = buffers.iter().map(|b| io::IoSlice::new(b)).collect();
    let mut left = &mut slices[..];
    while !left.is_empty() {
        // The kernel takes at most 1024 buffers at once.
        let count = left.len().min(512);
        let written = writer.write_vectored(&left[..count]).await?;
        if written == 0 && left.iter().any(|s| !s.is_empty()) {
            return Err(io::ErrorKind::WriteZero.into());
        }
        io::IoSlice::advance_slices(&mut left, written);
    }
    writer.flush().await
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::device::{BoxFuture, Piece, Range};

    /// Remembers how much it was asked to look at, and never ends a flush.
    #[derive(Default)]
    struct Asked(AtomicU64);

    type Answer<'a, T> = BoxFuture<'a, Result<T, BlockError>>;

    fn refused<T: Send + 'static>() -> Answer<'static, T> {
        Box::pin(async { Err(BlockError::new(5, "not asked for")) })
    }

    impl BlockDevice for Asked {
        fn identity(&self) -> String {
            String::new()
        }

        fn size(&self) -> u64 {
            1 << 40
        }

        fn is_read_only(&self) -> bool {
            true
        }

        fn read(&self, _: u64, _: u64) -> Answer<'_, Vec<Piece>> {
            refused()
        }

        fn write(&self, _: u64, _: Bytes) -> Answer<'_, ()> {
            refused()
        }

        fn zero(&self, _: u64, _: u64, _: bool) -> Answer<'_, ()> {
            refused()
        }

        fn flush(&self) -> Answer<'_, ()> {
            Box::pin(std::future::pending())
        }

        fn status(&self, _: u64, len: u64) -> Answer<'_, Vec<Range>> {
            self.0.store(len, Ordering::SeqCst);
            Box::pin(async move { Ok(vec![Range { len, hole: true, zero: true }]) })
        }

        fn close(&self) -> Answer<'_, ()> {
            refused()
        }
    }

    fn answering(device: Arc<dyn BlockDevice>) -> Answering {
        let (session, _) = Session::new(Vec::new());
        let (send, _) = mpsc::channel(1);
        Answering { device, replies: session.replies(), send, unanswered: Arc::default(), is_alone: false }
    }

    #[tokio::test]
    async fn one_block_status_looks_at_a_bounded_part() {
        for (len, expected) in [(4096, 4096), (u32::MAX, MAX_STATUS)] {
            let device = Arc::new(Asked::default());
            let command = Command::BlockStatus { offset: 0, len, one: false };
            let reply = answering(device.clone()).execute(Request { cookie: 1, command }).await;
            let reply = reply.expect("an answer").concat();
            assert_eq!(device.0.load(Ordering::SeqCst), u64::from(expected));
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

    /// Serves one client over a pipe of a few bytes.
    fn serve(limits: Limits) -> (tokio::io::DuplexStream, tokio::task::JoinHandle<()>, watch::Sender<bool>) {
        let (client, server) = tokio::io::duplex(1024);
        let (reader, writer) = tokio::io::split(server);
        let (stop, stopped) = watch::channel(false);
        let exported = Exported {
            name: "disk".into(),
            description: String::new(),
            device: Arc::new(Asked::default()),
            read_only: true,
        };
        let serving = tokio::spawn(async move {
            let memory = SharedMemory::new(1);
            run(reader, writer, Arc::new(vec![exported]), &memory, limits, stopped).await;
        });
        (client, serving, stop)
    }

    /// Takes the export, by its old option.
    async fn attach(client: &mut tokio::io::DuplexStream) {
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
}

//! One NBD connection: reads bytes for the protocol's core, runs requests side by side, writes replies.

use std::io;
use std::sync::Arc;
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
/// A write's data comes within this time: until then it holds memory that others wait for.
const PAYLOAD_LIMIT: Duration = Duration::from_secs(60);
/// A peer that takes nothing of its replies for so long is closed, for the same reason.
const REPLY_LIMIT: Duration = Duration::from_secs(60);
/// A peer that has not chosen an export by then is closed.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(30);

type Buffers = Vec<Bytes>;
/// A reply, and the memory that it holds until it is written.
type Reply = (Buffers, Option<Room>);

/// Serves one client until it leaves, errs, or `stop` turns true.
pub async fn run(
    mut reader: impl AsyncRead + Unpin + Send,
    writer: impl AsyncWrite + Unpin + Send + 'static,
    exports: Arc<Vec<Exported>>,
    shared: &SharedMemory,
    mut stop: watch::Receiver<bool>,
) {
    let (session, greeting) = Session::new(exports.iter().map(Exported::export).collect());
    let (send, queue) = mpsc::channel(MAX_REQUESTS);
    let writing = tokio::spawn(write_replies(writer, queue));
    let mut connection = Connection { session, exports, send, memory: Memory::new(shared), incoming: None };
    let _ = connection.send(vec![greeting]).await;
    tokio::select! {
        result = connection.talk(&mut reader) => {
            if let Err(e) = result {
                tracing::debug!(error = %e, "connection ended");
            }
        }
        () = stopped(&mut stop) => {}
    }
    // Every request under way keeps a sender: the writer ends behind the last reply.
    drop(connection);
    let _ = writing.await;
}

struct Connection {
    session: Session,
    exports: Arc<Vec<Exported>>,
    send: mpsc::Sender<Reply>,
    memory: Memory,
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
            let in_handshake = self.session.export().is_none();
            let to_come = self.session.payload_to_come();
            if to_come > 0 && self.incoming.is_none() {
                self.incoming =
                    Some((self.memory.room(to_come as u64).await?, Instant::now() + PAYLOAD_LIMIT));
            }
            let deadline = match &self.incoming {
                Some((_, deadline)) => Some(*deadline),
                None => in_handshake.then(|| Instant::now() + HANDSHAKE_LIMIT),
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

    /// Starts a request once there is room for it.
    async fn start(&mut self, request: Request) -> io::Result<()> {
        let Some(exported) = self.session.export().and_then(|at| self.exports.get(at)) else { return Ok(()) };
        let room = match self.incoming.take() {
            Some((room, _)) => room,
            None => self.memory.room(data_len(&request.command)).await?,
        };
        let (device, replies, send) =
            (Arc::clone(&exported.device), self.session.replies(), self.send.clone());
        tokio::spawn(answer(device, request, replies, send, room));
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

async fn answer(
    device: Arc<dyn BlockDevice>,
    request: Request,
    replies: Replies,
    send: mpsc::Sender<Reply>,
    room: Room,
) {
    let cookie = request.cookie;
    let reply = match execute(&*device, request, replies).await {
        Ok(reply) => reply,
        Err(e) => {
            tracing::debug!(error = %e, "request failed");
            vec![replies.error(cookie, NbdError::from_errno(e.errno))]
        }
    };
    let _ = send.send((reply, Some(room))).await;
}

async fn execute(
    device: &dyn BlockDevice,
    request: Request,
    replies: Replies,
) -> Result<Buffers, BlockError> {
    let cookie = request.cookie;
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

/// Writes replies in the order they are ready, several at a time.
async fn write_replies(mut writer: impl AsyncWrite + Unpin, mut queue: mpsc::Receiver<Reply>) {
    while let Some((mut buffers, room)) = queue.recv().await {
        let mut rooms = vec![room];
        while let Ok((more, room)) = queue.try_recv() {
            buffers.extend(more);
            rooms.push(room);
        }
        if write_all(&mut writer, buffers).await.is_err() {
            // The reader notices by itself; requests under way must not wait for a peer that has gone.
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
        let written = tokio::time::timeout(REPLY_LIMIT, writer.write_vectored(&left[..count]));
        let written = written.await.map_err(|_| io::ErrorKind::TimedOut)??;
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

    /// Remembers how much it was asked to look at.
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
            refused()
        }

        fn status(&self, _: u64, len: u64) -> Answer<'_, Vec<Range>> {
            self.0.store(len, Ordering::SeqCst);
            Box::pin(async move { Ok(vec![Range { len, hole: true, zero: true }]) })
        }

        fn close(&self) -> Answer<'_, ()> {
            refused()
        }
    }

    #[tokio::test]
    async fn one_block_status_looks_at_a_bounded_part() {
        for (len, expected) in [(4096, 4096), (u32::MAX, MAX_STATUS)] {
            let (device, (session, _)) = (Asked::default(), Session::new(Vec::new()));
            let command = Command::BlockStatus { offset: 0, len, one: false };
            let reply = execute(&device, Request { cookie: 1, command }, session.replies()).await;
            let reply = reply.expect("an answer").concat();
            assert_eq!(device.0.load(Ordering::SeqCst), u64::from(expected));
            // The only extent of the answer: its length, then its flags.
            let at = reply.len() - 8;
            assert_eq!(reply[at..at + 4], expected.to_be_bytes());
        }
    }
}

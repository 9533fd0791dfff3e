//! A socket in the file system through which the owner of a daemon's files talks to it. Bytes only: what they
//! mean is told by a `LocalHandler`.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixSocket, UnixStream};
use tokio::sync::{Semaphore, oneshot};

/// Conversations at one time.
const MAX_PEERS: usize = 32;
/// Connections that wait to be taken.
const BACKLOG: u32 = 64;
/// A peer has this long to ask.
const ASK_LIMIT: Duration = Duration::from_secs(10);
/// And the daemon this long to answer, the peer to read.
const ANSWER_LIMIT: Duration = Duration::from_secs(120);

/// What the bytes of a request that came so far amount to.
#[derive(Debug)]
pub enum Asked {
    /// More bytes have to come.
    Partial,
    /// The answer's bytes come through this.
    Answer(oneshot::Receiver<Vec<u8>>),
    /// No request: the conversation ends without an answer.
    Bad,
}

/// What a daemon does with requests.
pub trait LocalHandler: Send + Sync + 'static {
    /// Looks at all bytes that came so far.
    fn asked(&self, bytes: &[u8]) -> Asked;
}

/// A listening socket; its file goes when this is dropped.
#[derive(Debug)]
pub struct LocalSocket {
    path: PathBuf,
    task: tokio::task::JoinHandle<()>,
}

impl LocalSocket {
    /// Listens at `path`, in the place of whatever socket is there. Must be called within the runtime.
    pub fn listen(path: &Path, mode: u32, handler: Arc<dyn LocalHandler>) -> std::io::Result<Self> {
        match std::fs::remove_file(path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let socket = bind(path, mode)?;
        // The umask may have taken bits away.
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
        let listener = socket.listen(BACKLOG)?;
        let task = tokio::spawn(accept(listener, handler));
        Ok(Self { path: path.to_owned(), task })
    }
}

/// Binds so that nobody has more than `mode` allows from the file's first moment on: it takes the mode of the
/// socket, less the umask. Source: unix_bind_bsd in Linux' net/unix/af_unix.c.
fn bind(path: &Path, mode: u32) -> std::io::Result<UnixSocket> {
    let socket = UnixSocket::new_stream()?;
    rustix::fs::fchmod(&socket, rustix::fs::Mode::from_raw_mode(mode & 0o777))?;
    socket.bind(path)?;
    Ok(socket)
}

impl Drop for LocalSocket {
    fn drop(&mut self) {
        self.task.abort();
        let _ = std::fs::remove_file(&self.path);
    }
}

async fn accept(listener: UnixListener, handler: Arc<dyn LocalHandler>) {
    let room = Arc::new(Semaphore::new(MAX_PEERS));
    loop {
        let Ok(permit) = Arc::clone(&room).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let handler = Arc::clone(&handler);
                tokio::spawn(async move {
                    talk(stream, handler.as_ref()).await;
                    drop(permit);
                });
            }
            // Out of file descriptors: wait for some to come back instead of spinning.
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

/// One request, one answer.
async fn talk(mut stream: UnixStream, handler: &dyn LocalHandler) {
    let ask = async {
        let mut bytes = Vec::new();
        loop {
            if stream.read_buf(&mut bytes).await.unwrap_or(0) == 0 {
                return None;
            }
            match handler.asked(&bytes) {
                Asked::Partial => {}
                Asked::Answer(answer) => return Some(answer),
                Asked::Bad => return None,
            }
        }
    };
    let Ok(Some(answer)) = tokio::time::timeout(ASK_LIMIT, ask).await else { return };
    let _ = tokio::time::timeout(ANSWER_LIMIT, async {
        if let Ok(bytes) = answer.await {
            let _ = stream.write_all(&bytes).await;
            let _ = stream.shutdown().await;
        }
    })
    .await;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers each line with itself.
    struct Echo;

    impl LocalHandler for Echo {
        fn asked(&self, bytes: &[u8]) -> Asked {
            if !bytes.ends_with(b"\n") {
                return Asked::Partial;
            }
            let (tx, rx) = oneshot::channel();
            let _ = tx.send(bytes.to_vec());
            Asked::Answer(rx)
        }
    }

    #[tokio::test]
    async fn the_file_is_nobody_elses_from_the_start() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("x.asok");
        let _socket = bind(&path, 0o600).expect("bound");
        let mode = std::fs::metadata(&path).expect("there").permissions().mode();
        assert_eq!(mode & 0o177, 0, "{mode:o}");
    }

    #[tokio::test]
    async fn requests_are_answered_and_the_file_goes_with_the_socket() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("x.asok");
        // Left behind by a daemon that was killed.
        drop(std::os::unix::net::UnixListener::bind(&path).expect("bound"));
        let socket = LocalSocket::listen(&path, 0o600, Arc::new(Echo)).expect("listens");
        let mode = std::fs::metadata(&path).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        for part in ["a\n", "longer\n"] {
            let mut stream = UnixStream::connect(&path).await.expect("connects");
            stream.write_all(part.as_bytes()).await.expect("written");
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.expect("read");
            assert_eq!(answer, part);
        }
        drop(socket);
        assert!(!path.exists());
    }
}

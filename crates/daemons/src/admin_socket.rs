//! The admin socket of a daemon: `ceph daemon osd.0 ...`. Commands go to the core, which knows them all.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use admin::options::Values;
use admin::{Reply, common, socket};
use runtime::{Asked, LocalHandler, LocalSocket};
use tokio::sync::oneshot;

/// Who may use the socket when the options do not say.
const MODE: u32 = 0o600;
/// Paths of sockets are no longer than this. Source: sun_path in unix(7).
const MAX_PATH: usize = 107;

/// Where the socket lies, and its file mode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdminSocketAt {
    pub path: PathBuf,
    pub mode: u32,
}

impl AdminSocketAt {
    /// By the options of a daemon; `None` when it is to have none.
    pub fn of(values: &Values) -> Option<Self> {
        let path = values.get("admin_socket").filter(|p| !p.is_empty())?;
        let mode = values.get("admin_socket_mode").and_then(|m| u32::from_str_radix(m.trim(), 8).ok());
        Some(Self { path: path.into(), mode: mode.filter(|m| *m > 0).unwrap_or(MODE) })
    }
}

/// What brings a command to a core, and its answer back.
pub(crate) trait Commands: Send + Sync + 'static {
    fn command(&self, json: String, answer: oneshot::Sender<Reply>);
}

/// Opens the socket. A daemon without one still serves: what went wrong is only logged.
pub(crate) fn open(at: Option<&AdminSocketAt>, daemon: Arc<dyn Commands>) -> Option<LocalSocket> {
    let AdminSocketAt { path, mode } = at?;
    if path.as_os_str().len() > MAX_PATH {
        tracing::warn!("{}: the path is too long for a socket; ceph daemon cannot be used", path.display());
        return None;
    }
    // The usual folder lies in /run, which every boot of the machine empties.
    if let Some(folder) = path.parent() {
        let _ = std::fs::create_dir_all(folder);
    }
    let handler = Arc::new(Local { daemon, runtime: tokio::runtime::Handle::current() });
    match LocalSocket::listen(Path::new(path), *mode, handler) {
        Ok(socket) => Some(socket),
        Err(e) => {
            tracing::warn!("cannot listen on {}: {e}", path.display());
            None
        }
    }
}

struct Local {
    daemon: Arc<dyn Commands>,
    runtime: tokio::runtime::Handle,
}

impl LocalHandler for Local {
    fn asked(&self, bytes: &[u8]) -> Asked {
        let (tx, rx) = oneshot::channel();
        match socket::read(bytes) {
            socket::Read::Partial => return Asked::Partial,
            socket::Read::Bad => return Asked::Bad,
            socket::Read::Version => {
                let _ = tx.send(socket::framed(socket::VERSION.as_bytes()));
            }
            socket::Read::Command(json) => {
                let (answer, answered) = oneshot::channel();
                self.daemon.command(json, answer);
                self.runtime.spawn(async move {
                    if let Ok(reply) = answered.await {
                        let _ = tx.send(socket::framed(&common::socket_answer(reply)));
                    }
                });
            }
        }
        Asked::Answer(rx)
    }
}

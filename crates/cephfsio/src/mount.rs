//! A mounted file system: calls, and those that are made of several.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use cephfs::{Answer, Attr, Call, Entry, Handle, Node, Settings, Ticket};
use rados::Cluster;
use tokio::sync::oneshot;
use types::Errno;

use crate::shell::{Event, Shared};
use crate::{Error, Result};

/// A file system that is mounted; one for each [`Cluster`]. When it is dropped without `unmount`, servers
/// keep its session until it times out.
pub struct Mount {
    shared: Arc<Shared>,
}

impl Drop for Mount {
    fn drop(&mut self) {
        self.shared.shut_down();
    }
}

/// A call without an answer yet.
struct Waiting<'a> {
    shared: &'a Shared,
    ticket: Option<Ticket>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            self.shared.hand_in(Event::GiveUp(ticket));
        }
    }
}

impl Mount {
    /// Mounts the folder `path` of a file system. Must be called within a tokio runtime, which carries the
    /// connections.
    pub async fn new(cluster: Cluster, settings: Settings, path: &str) -> Result<(Self, Attr)> {
        let mount = Self { shared: Shared::start(cluster, settings) };
        let path = Bytes::copy_from_slice(path.as_bytes());
        let root = mount.attr(Call::Mount { path }).await?;
        Ok((mount, root))
    }

    /// Given up when it is dropped before its answer came: a lock that it waits for is not taken, and a file
    /// that it opens is closed again. Other changes may happen all the same.
    pub async fn call(&self, call: Call) -> Result<Answer> {
        let (tx, rx) = oneshot::channel();
        let mut waiting = Waiting { shared: &self.shared, ticket: Some(self.shared.submit(call, tx)) };
        let answer = rx.await;
        waiting.ticket = None;
        answer.map_err(|_| Error::ShutDown)?.map_err(Error::Os)
    }

    /// A call that is answered with attributes.
    pub async fn attr(&self, call: Call) -> Result<Attr> {
        match self.call(call).await? {
            Answer::Attr(attr) | Answer::Opened { attr, .. } => Ok(*attr),
            _ => Err(Error::Os(Errno::EIO)),
        }
    }

    /// Follows a path, and a symbolic link at its end.
    pub async fn walk(&self, path: &str) -> Result<Attr> {
        let path = Bytes::copy_from_slice(path.as_bytes());
        self.attr(Call::Walk { path, follow: true }).await
    }

    /// A call that opens a file.
    pub async fn open(&self, call: Call) -> Result<(Handle, Attr)> {
        match self.call(call).await? {
            Answer::Opened { handle, attr } => Ok((handle, *attr)),
            _ => Err(Error::Os(Errno::EIO)),
        }
    }

    pub async fn write(&self, handle: Handle, offset: u64, data: Bytes) -> Result<()> {
        self.call(Call::Write { handle, offset: Some(offset), data }).await.map(|_| ())
    }

    /// Up to `length` bytes; fewer at the end of the file only.
    pub async fn read(&self, handle: Handle, offset: u64, length: u64) -> Result<Bytes> {
        match self.call(Call::Read { handle, offset, length }).await? {
            Answer::Data(data) => Ok(data),
            _ => Err(Error::Os(Errno::EIO)),
        }
    }

    /// The rest of a file, in pieces of at most 4 MiB.
    pub async fn read_to_end(&self, handle: Handle) -> Result<Bytes> {
        let mut all = BytesMut::new();
        loop {
            let part = self.read(handle, all.len() as u64, 4 << 20).await?;
            if part.is_empty() {
                return Ok(all.freeze());
            }
            all.extend_from_slice(&part);
        }
    }

    /// All names of a folder.
    pub async fn list(&self, dir: Node) -> Result<Vec<Entry>> {
        let (mut all, mut from) = (Vec::new(), None);
        loop {
            match self.call(Call::Readdir { dir, from }).await? {
                Answer::Listing { entries, next } => {
                    all.extend(entries);
                    if next.is_none() {
                        return Ok(all);
                    }
                    from = next;
                }
                _ => return Err(Error::Os(Errno::EIO)),
            }
        }
    }

    /// Waits until everything is safe, and ends the sessions.
    pub async fn unmount(self) -> Result<()> {
        self.call(Call::Unmount).await.map(|_| ())
    }
}

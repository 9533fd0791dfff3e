//! Watching an object, and notifying those who watch it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use codec::Decode;
use messages::osd::NotifyResult;
use objecter::{Outcome, Request};
use tokio::sync::oneshot;
use types::{Errno, SnapId};

use crate::cluster::unexpected;
use crate::error::check;
use crate::shell::{Event, Waiter, WatchQueue};
use crate::{Error, IoCtx, Pending, ReadOp, Result};

pub use objecter::WatchEvent;

/// A watch on an object. It outlives lost connections and restarts of OSDs; when it is lost all the same,
/// [`WatchEvent::Error`] says so, and a new one has to be made. Dropping it ends it in the background.
#[derive(Debug)]
pub struct Watch {
    pool: IoCtx,
    object: String,
    cookie: u64,
    queue: Arc<WatchQueue>,
    ended: bool,
}

/// Who acknowledged a notify, and with what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notified {
    /// The watcher's global id.
    pub client: u64,
    pub cookie: u64,
    pub reply: Bytes,
}

/// What a notify brought.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NotifyReply {
    pub replies: Vec<Notified>,
    /// Global id and cookie of watchers that did not answer in time.
    pub missed: Vec<(u64, u64)>,
}

impl IoCtx {
    /// Watches an object, which must exist. The OSD gives the watch up when it does not hear of us for `timeout` (`None`: its
    /// default of 30 s).
    pub async fn watch(&self, object: &str, timeout: Option<Duration>) -> Result<Watch> {
        let queue = Arc::new(WatchQueue::default());
        let (tx, rx) = oneshot::channel();
        let shared = self.cluster().shared();
        let ticket = shared.ticket();
        let request =
            Request::Watch { object: self.object(object, SnapId::HEAD), timeout_s: seconds(timeout) };
        shared.hand_in(Event::Submit(ticket, request, Waiter::Watch(tx, Arc::clone(&queue))));
        match self.cluster().wait(ticket, rx, None).await? {
            Outcome::Watching { cookie } => {
                Ok(Watch { pool: self.clone(), object: object.to_owned(), cookie, queue, ended: false })
            }
            other => Err(unexpected(other)),
        }
    }

    /// Tells all who watch the object, and waits until they have acknowledged or `timeout` (`None`: the OSD's default) is
    /// over. Who did not answer is in `missed`.
    pub async fn notify(
        &self,
        object: &str,
        payload: impl Into<Bytes>,
        timeout: Option<Duration>,
    ) -> Result<NotifyReply> {
        let object = self.object(object, SnapId::HEAD);
        // Source: client_notify_timeout, which librados fills in.
        let timeout_s = if timeout.is_some() { seconds(timeout) } else { 10 };
        let request = Request::Notify { object, payload: payload.into(), timeout_s };
        let (ticket, rx) = self.cluster().shared().submit(request);
        match self.cluster().wait(ticket, rx, None).await? {
            Outcome::Notified { result, replies } => {
                if result != Errno::ETIMEDOUT.neg() {
                    check(result)?;
                }
                let r = if replies.is_empty() {
                    NotifyResult::default()
                } else {
                    NotifyResult::from_bytes(replies)?
                };
                let notified = |((client, cookie), reply)| Notified { client, cookie, reply };
                Ok(NotifyReply { replies: r.replies.into_iter().map(notified).collect(), missed: r.missed })
            }
            other => Err(unexpected(other)),
        }
    }

    /// Acknowledges a notify on behalf of a watch of this client.
    pub fn notify_ack(&self, object: &str, notify_id: u64, cookie: u64, reply: impl Into<Bytes>) -> Pending {
        self.at_snap(SnapId::HEAD).submit_read(object, ReadOp::new().notify_ack(notify_id, cookie, reply))
    }
}

impl Watch {
    /// Names this watch in lists of watchers.
    pub fn cookie(&self) -> u64 {
        self.cookie
    }

    /// What happens next. Every notify wants an [`Watch::ack`]. Safe to drop and call again.
    pub async fn next(&self) -> WatchEvent {
        self.queue.pop().await
    }

    /// Acknowledges a notify.
    pub fn ack(&self, notify_id: u64, reply: impl Into<Bytes>) -> Pending {
        self.pool.notify_ack(&self.object, notify_id, self.cookie, reply)
    }

    /// How long ago the watch was known to be good; its error when it is lost.
    pub async fn check(&self) -> Result<Duration> {
        match self.pool.cluster().ask(Request::WatchCheck { cookie: self.cookie }).await? {
            Outcome::WatchAge(age) => Ok(age),
            other => Err(unexpected(other)),
        }
    }

    /// Ends it and waits until the OSD knows.
    pub async fn unwatch(mut self) -> Result<()> {
        self.ended = true;
        let shared = self.pool.cluster().shared();
        shared.hand_in(Event::DropWatch(self.cookie));
        let (ticket, rx) = shared.submit(Request::Unwatch { cookie: self.cookie });
        match self.pool.cluster().wait(ticket, rx, None).await? {
            Outcome::Op(reply) => check(reply.result).map(drop),
            other => Err(unexpected(other)),
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if !self.ended {
            let shared = self.pool.cluster().shared();
            shared.hand_in(Event::DropWatch(self.cookie));
            let request = Request::Unwatch { cookie: self.cookie };
            shared.hand_in(Event::Submit(shared.ticket(), request, Waiter::Nobody));
        }
    }
}

/// Whole seconds, at least one; 0 for none given.
fn seconds(timeout: Option<Duration>) -> u32 {
    timeout.map_or(0, |t| u32::try_from(t.as_secs().max(1)).unwrap_or(u32::MAX))
}

/// For callers that tell a lost watch from other errors.
impl Error {
    pub fn is_lost_watch(&self) -> bool {
        self.errno() == Errno::ENOTCONN
    }
}

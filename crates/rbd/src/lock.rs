//! The exclusive lock, as librbd takes, asks for, breaks and hands it over.
//!
//! ```text
//! free --lock--> ours --another asks, changes done--> free
//! another's, alive --ask, wait--> free      another's, dead --blocklist, break--> free
//! ours, under a lost watch --change the cookie--> ours
//! ```
//!
//! While the image bears a cache's mark, only the cache's owner may have the lock; see `mark`.
//!
//! Source: src/librbd/managed_lock/{Acquire,Break,GetLocker}Request.cc, src/librbd/ImageWatcher.cc.

use std::sync::Arc;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

use block::BoxFuture;
use bytes::Bytes;
use codec::{Decode, Encode};
use rados::{LockHolder, LockInfo, LockKind, LockRequest};
use tokio::sync::{RwLockReadGuard, RwLockWriteGuard};
use types::{EntityAddr, EntityName, Errno};

use crate::class::{self, FlagsArgs, HEAD};
use crate::error::{Context, Error, Result};
use crate::header::{feature, flag};
use crate::image::{Inner, LockPolicy};
use crate::mark::{Change, Seen, refuse_dirty};
use crate::notify::{ClientId, Message, Response};
use crate::object_map;
use crate::ops::cancelled;

/// Source: RBD_LOCK_NAME.
pub const LOCK_NAME: &str = "rbd_lock";
/// Locks that come with a watch have this tag. Source: get_watcher_lock_tag.
pub const TAG: &str = "internal";
pub const COOKIE_PREFIX: &str = "auto ";

/// How long an asked owner may take before it is asked again.
const HAND_OVER: Duration = Duration::from_secs(5);
/// How often that long an image of this process without a watch is waited for.
const SIBLING_ROUNDS: u32 = 12;
const NOTIFY_LIMIT: Duration = Duration::from_secs(10);
/// How long work in the background waits for a lock, and how often it looks whether it is to end.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(200);

impl Inner {
    /// Waits until changes may be made; they may while the guard lives.
    pub async fn ready(self: &Arc<Self>) -> Result<RwLockReadGuard<'_, ()>> {
        if self.read_only {
            return Err(Error::refused(Errno::EROFS, "the image is open for reading only"));
        }
        loop {
            let guard = self.gate.read().await;
            if self.owned.load(Ordering::SeqCst) || !self.view().header.has(feature::EXCLUSIVE_LOCK) {
                self.refresh_stale().await?;
                return Ok(guard);
            }
            drop(guard);
            self.acquire().await?;
        }
    }

    /// Waits until the lock is ours and no change is under way; none starts while the guard lives.
    pub async fn quiet(self: &Arc<Self>) -> Result<RwLockWriteGuard<'_, ()>> {
        loop {
            drop(self.ready().await?);
            let guard = self.gate.write().await;
            // Between the two guards another client may have been given the lock.
            if self.owned.load(Ordering::SeqCst) || !self.view().header.has(feature::EXCLUSIVE_LOCK) {
                self.refresh_stale().await?;
                return Ok(guard);
            }
        }
    }

    /// What `wait` for the lock comes to; it ends early when `stop` says so, and in any case after a while.
    /// The lock is nobody's then, or another's.
    ///
    /// # Errors
    /// As `wait`; ECANCELED when it was stopped; EBUSY after a while.
    pub async fn wait_unless<T>(
        self: &Arc<Self>,
        wait: impl Future<Output = Result<T>>,
        stop: &(dyn Fn() -> bool + Sync),
    ) -> Result<T> {
        let given_up = match unless(wait, LONGEST_WAIT, stop).await {
            Ok(waited) => return waited,
            Err(given_up) => given_up,
        };
        // It may have become ours at that moment, if no other change has gone on to take it.
        let unlocked = async {
            let _one = self.acquiring.lock().await;
            if !self.owned.load(Ordering::SeqCst) {
                self.unlock_unused().await;
            }
        };
        // Where the cluster does not answer, a later acquisition finds the lock.
        let _ = tokio::time::timeout(HAND_OVER, unlocked).await;
        Err(given_up)
    }

    async fn refresh_stale(&self) -> Result<()> {
        if self.stale.load(Ordering::SeqCst) { self.refresh().await } else { Ok(()) }
    }

    /// Whether it is we, under our present watch or one that was lost. The client's number alone does not tell: all
    /// images of one process have it.
    pub fn is_us(&self, client: ClientId) -> bool {
        client.global_id == self.meta.cluster().global_id()
            && self.cookies.lock().unwrap_or_else(PoisonError::into_inner).contains(&client.watch)
    }

    async fn watch_cookie(self: &Arc<Self>) -> Result<u64> {
        let current = self.watching.lock().await.as_ref().map(|w| w.watch.cookie());
        match current {
            Some(cookie) => Ok(cookie),
            None => self.start_watch().await,
        }
    }

    pub async fn client_id(self: &Arc<Self>) -> Result<ClientId> {
        Ok(ClientId { global_id: self.meta.cluster().global_id(), watch: self.watch_cookie().await? })
    }

    async fn acquire(self: &Arc<Self>) -> Result<()> {
        let _one = self.acquiring.lock().await;
        if self.owned.load(Ordering::SeqCst) {
            return Ok(());
        }
        self.acquire_lock(Over::Nobody).await?;
        self.take_over().await
    }

    /// Makes the lock ours, over the marks that `over` allows; `acquiring` is locked.
    pub async fn acquire_lock(self: &Arc<Self>, over: Over<'_>) -> Result<()> {
        let object = self.header_object();
        let mut dead_siblings = 0;
        loop {
            let released = self.released.notified();
            let client = self.client_id().await?;
            let seen = Seen::read(&self.meta, &object).await?;
            let holder = seen.holder();
            self.check_mark(&seen, over)?;
            let Some((holder, info)) = holder.zip(seen.lock()) else {
                let cookie = format!("{COOKIE_PREFIX}{}", client.watch);
                let request = LockRequest { tag: TAG, ..LockRequest::exclusive(LOCK_NAME, &cookie) };
                match self.meta.lock(&object, &request).await {
                    Ok(()) => return Ok(()),
                    Err(e) if matches!(e.errno(), Errno::EEXIST | Errno::EBUSY) => continue,
                    Err(e) => return Err(e).context(|| format!("locking {object}")),
                }
            };
            let watch = check_holder(info, holder)?;
            let is_our_client = holder.client == EntityName::client(client.global_id as i64);
            if is_our_client && watch == client.watch {
                return Ok(());
            }
            if is_our_client && self.is_us(ClientId { watch, ..client }) {
                let token = self.marked();
                let change = token.as_deref().map_or(Change::Keep, |token| Change::Set(Some(token)));
                if self.swap_lock(&seen, change).await? {
                    return Ok(());
                }
                continue;
            }
            if self.has_watcher(holder, Some(watch)).await? {
                self.ask_owner().await?;
                let _ = tokio::time::timeout(HAND_OVER, released).await;
            } else if is_our_client {
                // Another image of this process lost its watch. It gives the lock up when its changes are done; to
                // blocklist it would blocklist us.
                dead_siblings += 1;
                if dead_siblings > SIBLING_ROUNDS {
                    return Err(Error::refused(
                        Errno::EBUSY,
                        "another open image of this process has the lock and does not let go of it",
                    ));
                }
                let _ = tokio::time::timeout(HAND_OVER, released).await;
            } else {
                tracing::info!(image = %self.id, owner = %holder.client, "the lock's owner is dead: breaking the lock");
                self.meta.cluster().blocklist_add(&holder.addr, None).await?;
                let broken = self.meta.break_lock(&object, LOCK_NAME, holder.client, &holder.cookie).await;
                self.forgive(broken)?;
            }
        }
    }

    /// With a mark of ours nobody but us may have had the lock since; with another's, nobody but its cache may take it.
    fn check_mark(&self, seen: &Seen, over: Over<'_>) -> Result<()> {
        let may_go = match over {
            Over::Nobody => false,
            Over::Token(token) => seen.mark.as_ref().is_some_and(|m| m.token == token),
            Over::Everybody => true,
        };
        let us = self.meta.cluster().global_id();
        let is_ours = seen.holder().is_some_and(|h| {
            let is_we = |watch| self.is_us(ClientId { global_id: us, watch });
            h.client == EntityName::client(us as i64)
                && watch_of(h).is_some_and(is_we)
                && seen.mark.as_ref().is_some_and(|mark| mark.is_by(h))
        });
        match self.marked() {
            Some(token) if !is_ours || seen.mark.as_ref().is_none_or(|m| m.token != token) => {
                Err(Error::refused(
                    Errno::ESHUTDOWN,
                    "another client took the image, and may have written to it, while a write-back cache had it",
                ))
            }
            None if seen.is_dirty && !is_ours && !may_go => Err(refuse_dirty(seen.mark.as_ref())),
            _ => Ok(()),
        }
    }

    /// Whether the watch that the holder's lock came with is still there.
    pub async fn has_watcher(&self, holder: &LockHolder, watch: Option<u64>) -> Result<bool> {
        let Some(watch) = watch else { return Ok(false) };
        let watchers = self.meta.list_watchers(&self.header_object()).await?;
        let is_its = |addr: &EntityAddr| addr.socket == holder.addr.socket && addr.nonce == holder.addr.nonce;
        Ok(watchers.iter().any(|w| w.cookie == watch && is_its(&w.addr)))
    }

    /// Gives up the lock of the last watch, which is lost or does not use it; if that fails, the next
    /// acquisition does it.
    pub async fn unlock_unused(&self) {
        let last = self.watching.lock().await.as_ref().map(|w| w.watch.cookie());
        if let Some(last) = last {
            let cookie = format!("{COOKIE_PREFIX}{last}");
            if let Err(e) = self.meta.unlock(&self.header_object(), LOCK_NAME, &cookie).await {
                tracing::debug!(image = %self.id, error = %e, "the lock that nobody uses stays for now");
            }
        }
    }

    fn forgive(&self, result: rados::Result<()>) -> Result<()> {
        match result {
            Err(e) if !e.is_not_found() => Err(e.into()),
            _ => Ok(()),
        }
    }

    /// Asks whoever has the lock to let go of it.
    async fn ask_owner(self: &Arc<Self>) -> Result<()> {
        let message = Message::RequestLock { client: self.client_id().await?, force: false };
        let replies = self.meta.notify(&self.header_object(), message.to_bytes(), Some(NOTIFY_LIMIT)).await?;
        for reply in replies.replies.into_iter().filter(|r| !r.reply.is_empty()) {
            check_answer(Response::from_bytes(reply.reply)?)?;
        }
        Ok(())
    }

    /// The lock is ours: what others changed before counts, and the object map is ours too.
    pub async fn take_over(self: &Arc<Self>) -> Result<()> {
        self.refresh().await?;
        let view = self.view();
        let mut loaded = None;
        if view.header.has(feature::OBJECT_MAP) && view.header.flags & flag::OBJECT_MAP_INVALID == 0 {
            object_map::take(&self.meta, &self.id).await?;
            match object_map::load(&self.meta, &self.id, None).await {
                Ok(map) if map.len() >= view.layout.objects(view.size) => loaded = Some(map),
                Ok(_) => self.invalidate_map("it is too short").await?,
                Err(e) if matches!(e.errno(), Errno::EINVAL | Errno::ENOENT | Errno::EIO) => {
                    self.invalidate_map(&e.to_string()).await?;
                }
                Err(e) => return Err(e),
            }
        }
        *self.map.lock().unwrap_or_else(PoisonError::into_inner) = loaded;
        self.owned.store(true, Ordering::SeqCst);
        self.tell(Message::AcquiredLock(self.client_id().await?));
        Ok(())
    }

    /// Says in the header that the map is not to be relied upon.
    pub async fn invalidate_map(&self, why: &str) -> Result<()> {
        self.invalidate_maps(&[HEAD], why).await
    }

    /// Says it of the head ([`HEAD`]) and of snapshots.
    pub async fn invalidate_maps(&self, snaps: &[u64], why: &str) -> Result<()> {
        tracing::warn!(image = %self.id, why, "the object map is marked invalid");
        let bits = flag::OBJECT_MAP_INVALID | flag::FAST_DIFF_INVALID;
        for snap in snaps {
            let args = FlagsArgs { bits, mask: bits, snap: *snap };
            class::change(&self.meta, &self.header_object(), "set_flags", args.to_bytes()).await?;
        }
        if snaps.contains(&HEAD) {
            *self.map.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
        Ok(())
    }

    /// Lets go of the lock when the changes under way are done.
    pub async fn release(self: &Arc<Self>) -> Result<()> {
        let _gate = self.gate.write().await;
        if self.marked().is_some() {
            // The lock is the proof that nobody wrote since.
            return Err(Error::refused(Errno::EBUSY, "a write-back cache holds what the image lacks"));
        }
        if !self.owned.swap(false, Ordering::SeqCst) {
            return Ok(());
        }
        let had_map = self.map.lock().unwrap_or_else(PoisonError::into_inner).take().is_some();
        if had_map {
            object_map::release(&self.meta, &self.id).await?;
        }
        let client = self.client_id().await?;
        let cookie = format!("{COOKIE_PREFIX}{}", client.watch);
        self.forgive(self.meta.unlock(&self.header_object(), LOCK_NAME, &cookie).await)?;
        self.tell(Message::ReleasedLock(client));
        Ok(())
    }

    /// Releases the lock for another client. Boxed: the watch's task starts it, and it may start a watch.
    fn hand_over(self: Arc<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            if let Err(e) = self.release().await {
                tracing::warn!(image = %self.id, error = %e, "cannot release the lock");
            }
        })
    }

    /// Tells the other clients, without waiting for them.
    fn tell(&self, message: Message) {
        let (meta, object) = (self.meta.clone(), self.header_object());
        tokio::spawn(async move { meta.notify(&object, message.to_bytes(), Some(NOTIFY_LIMIT)).await });
    }

    /// Tells the other clients that the header changed, and waits until they know.
    pub async fn tell_header_update(&self) {
        let payload = Message::HeaderUpdate.to_bytes();
        if let Err(e) = self.meta.notify(&self.header_object(), payload, Some(NOTIFY_LIMIT)).await {
            tracing::debug!(image = %self.id, error = %e, "not everybody heard of the new header");
        }
    }

    /// What a notification of another client, or of ours, is answered with.
    pub async fn answer(self: &Arc<Self>, payload: Bytes) -> Bytes {
        let owned = self.owned.load(Ordering::SeqCst);
        let say = |errno: i32| Response { result: -errno }.to_bytes();
        match Message::parse(payload) {
            Ok(Message::HeaderUpdate) => {
                // Not in the way of other notifications: reading may take a while.
                tokio::spawn(Arc::clone(self).refresh_changed());
                Bytes::new()
            }
            Ok(Message::ReleasedLock(_)) => {
                self.released.notify_waiters();
                Bytes::new()
            }
            // Also when forced: the image alone lacks what the cache holds, or may soon.
            Ok(Message::RequestLock { client, .. }) if self.policy == LockPolicy::Keep => {
                if owned && !self.is_us(client) { say(Errno::EROFS.0) } else { Bytes::new() }
            }
            Ok(Message::RequestLock { client, .. }) if owned => {
                if self.is_us(client) {
                    return Bytes::new();
                }
                let inner = Arc::clone(self);
                tokio::spawn(inner.hand_over());
                say(0)
            }
            Ok(Message::AcquiredLock(client)) if owned && !self.is_us(client) => {
                // It broke our lock, or had it before us; the next change finds out.
                self.owned.store(false, Ordering::SeqCst);
                Bytes::new()
            }
            // The sender then asks for the lock and does it itself.
            Ok(Message::Maintenance(_)) if owned => say(Errno::EOPNOTSUPP.0),
            Ok(_) => Bytes::new(),
            Err(e) => {
                tracing::debug!(image = %self.id, error = %e, "a notification that cannot be read");
                Bytes::new()
            }
        }
    }
}

/// Whose mark may be on an image whose lock is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Over<'a> {
    Nobody,
    Token(&'a str),
    Everybody,
}

/// The watch that the holder's lock came with, unless a person set it.
pub fn watch_of(holder: &LockHolder) -> Option<u64> {
    holder.cookie.strip_prefix(COOKIE_PREFIX)?.parse().ok()
}

/// What `wait` comes to, or why it was given up.
async fn unless<T>(
    wait: impl Future<Output = T>,
    longest: Duration,
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<T> {
    let until = tokio::time::Instant::now() + longest;
    tokio::pin!(wait);
    loop {
        if let Ok(waited) = tokio::time::timeout(LOOK_EVERY.min(longest), wait.as_mut()).await {
            return Ok(waited);
        }
        if stop() {
            return Err(cancelled());
        }
        if tokio::time::Instant::now() >= until {
            return Err(Error::refused(Errno::EBUSY, "another client keeps the image's lock"));
        }
    }
}

/// A refusal of the lock's owner is one of the lock, whatever error it names: it knows nothing of our client
/// or of the cluster.
fn check_answer(response: Response) -> Result<()> {
    let errno = match response.result {
        0.. => return Ok(()),
        result if result == -Errno::EROFS.0 => Errno::EROFS,
        _ => Errno::EBUSY,
    };
    Err(Error::refused(errno, "the owner of the image's lock keeps it"))
}

/// The watch that keeps the holder alive; EBUSY for locks that people set.
fn check_holder(info: &LockInfo, holder: &LockHolder) -> Result<u64> {
    match watch_of(holder) {
        Some(watch) if info.tag == TAG && info.kind == Some(LockKind::Exclusive) => Ok(watch),
        _ => Err(Error::refused(
            Errno::EBUSY,
            format!("the image is locked by {} ('{}')", holder.client, holder.cookie),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn nobody_waits_for_a_lock_longer_than_is_wanted() {
        let never = || false;
        let errno = |given_up: Result<()>| given_up.err().map(|e| e.errno());
        let day = Duration::from_secs(86_400);
        assert_eq!(errno(unless(std::future::pending(), day, &|| true).await), Some(Errno::ECANCELED));
        let waited = unless(std::future::pending(), Duration::from_millis(1), &never).await;
        assert_eq!(errno(waited), Some(Errno::EBUSY));
        // What has come about is taken.
        assert_eq!(errno(unless(std::future::ready(()), day, &|| true).await), None);
        let later = tokio::time::sleep(LOOK_EVERY * 2);
        assert_eq!(errno(unless(later, day, &never).await), None);
    }

    #[test]
    fn whatever_an_owner_answers_is_a_refusal_of_the_lock() {
        let errno = |result| check_answer(Response { result }).err().map(|e| e.errno());
        for (result, want) in [
            (0, None),
            (1, None),
            (-Errno::EROFS.0, Some(Errno::EROFS)),
            (-Errno::ESHUTDOWN.0, Some(Errno::EBUSY)),
            (-Errno::ENOENT.0, Some(Errno::EBUSY)),
            (-Errno::ECANCELED.0, Some(Errno::EBUSY)),
            (i32::MIN, Some(Errno::EBUSY)),
        ] {
            assert_eq!(errno(result), want, "{result}");
        }
    }
}

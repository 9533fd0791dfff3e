//! The mark of a write-back cache in the header, and taking the image up again after its owner died.
//!
//! While a cache holds what the image lacks, the header has the feature dirty-cache and a mark: the token of the cache's
//! file, and the holder of the exclusive lock who set it. Lock and mark are parts of one object and change in one request.
//! So as long as the lock's holder is still the one in the mark, nobody else had the lock since, and who writes without
//! our mark's knowledge (librbd) had it: then, and only then, the cache's writes are the image's newest.
//!
//! ```text
//! none --mark, the lock is ours--> (token, we) --unmark, the image has everything--> none
//! (token, dead holder), lock: dead holder --claim with the token: both change at once--> (token, we), lock: we
//! (token, dead holder), lock: another's or nobody's --claim--> refused, unless somebody decides
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use codec::{Decode, Encode};
use rados::{CmpOp, IoCtx, LockHolder, LockInfo, LockKind, ReadOp, WriteOp};
use types::{EntityName, Errno};

use crate::class::{AssertLocked, MaskArgs};
use crate::error::{Context, Error, Result};
use crate::header::feature;
use crate::image::{Image, Inner, LockPolicy};
use crate::lock::{self, COOKIE_PREFIX, LOCK_NAME, Over, TAG};
use crate::notify::Message;

/// Of the image's metadata, as `rbd image-meta list` shows it.
const KEY: &str = ".loligo/write-back-cache";
/// How the class keeps metadata and features in the header's omap. Source: src/cls/rbd/cls_rbd.cc.
const OMAP_KEY: &str = "metadata_.loligo/write-back-cache";
const OMAP_FEATURES: &str = "features";
/// How long a process that was killed, and still counts as a watcher, may take to answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(3);

/// Who marked the image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mark {
    /// Of the cache's file.
    pub token: String,
    client: EntityName,
    cookie: String,
    /// Where the cache's file is, for people.
    pub place: String,
}

impl Mark {
    fn to_text(&self) -> String {
        let Self { token, client, cookie, place } = self;
        let mark =
            serde_json::json!({"token": token, "client": client.num, "cookie": cookie, "place": place});
        mark.to_string()
    }

    /// What is no mark of ours says at least that there is one.
    fn from_text(text: &[u8]) -> Self {
        let json: serde_json::Value = serde_json::from_slice(text).unwrap_or_default();
        let word = |key: &str| json.get(key).and_then(|v| v.as_str()).unwrap_or_default().to_owned();
        let client = EntityName::client(json.get("client").and_then(|v| v.as_i64()).unwrap_or(-1));
        Self { token: word("token"), client, cookie: word("cookie"), place: word("place") }
    }

    pub fn is_by(&self, holder: &LockHolder) -> bool {
        self.client == holder.client && self.cookie == holder.cookie
    }
}

/// The lock and the mark as they were at one moment.
pub(crate) struct Seen {
    /// The lock's attribute and what it says.
    lock: Option<(Bytes, LockInfo)>,
    pub is_dirty: bool,
    pub mark: Option<Mark>,
}

impl Seen {
    pub async fn read(io: &IoCtx, object: &str) -> Result<Self> {
        let keys = BTreeSet::from([OMAP_KEY, OMAP_FEATURES].map(|key| Bytes::from_static(key.as_bytes())));
        let op = ReadOp::new().get_xattrs().omap_get_by_keys(keys);
        let reply = io.read_op(object, op).await.context(|| format!("reading {object}"))?;
        Self::of(reply.output(0), reply.output(1))
    }

    /// From all attributes of the header, and from two of its keys.
    pub fn of(xattrs: Bytes, omap: Bytes) -> Result<Self> {
        let mut xattrs: BTreeMap<String, Bytes> = Decode::from_bytes(xattrs)?;
        let omap: BTreeMap<Bytes, Bytes> = Decode::from_bytes(omap)?;
        let features = omap.get(OMAP_FEATURES.as_bytes()).cloned().map_or(Ok(0), u64::from_bytes)?;
        let lock = match xattrs.remove(&LockInfo::attribute(LOCK_NAME)) {
            None => None,
            Some(bytes) => Some((bytes.clone(), LockInfo::from_attribute(bytes)?)),
        };
        let is_dirty = features & feature::DIRTY_CACHE != 0;
        // A copy of the image may have a copy of the mark.
        let mark = omap.get(OMAP_KEY.as_bytes()).filter(|_| is_dirty).map(|text| Mark::from_text(text));
        Ok(Self { lock, is_dirty, mark })
    }

    pub fn lock(&self) -> Option<&LockInfo> {
        self.lock.as_ref().map(|(_, info)| info)
    }

    pub fn holder(&self) -> Option<&LockHolder> {
        self.lock()?.holders.first()
    }

    /// Why the cache with this token cannot rely on the image being as it left it; nothing when it can.
    fn doubt(&self, token: &str) -> Option<String> {
        let Some(mark) = &self.mark else {
            return Some("the image does not bear this cache's mark any more".into());
        };
        if mark.token != token {
            return Some(format!("the image bears the mark of another cache, at {}", mark.place));
        }
        match self.lock().map(|l| &l.holders[..]) {
            None | Some([]) => Some("the lock of the cache's last owner was taken from it".into()),
            Some([holder]) if mark.is_by(holder) => None,
            Some([holder, ..]) => Some(format!("{} has the image's lock now", holder.client)),
        }
    }
}

/// The refusal of those who may not write because of somebody's mark.
pub(crate) fn refuse_dirty(mark: Option<&Mark>) -> Error {
    let place = mark.map_or("an unknown place", |m| m.place.as_str());
    Error::refused(
        Errno::EBUSY,
        format!(
            "the image lacks writes that a write-back cache holds, at {place}: start that cache again, or give them up \
             with 'loligo rbd persistent-cache invalidate'"
        ),
    )
}

/// What becomes of a cache's writes when the image may have been written by others since. A clean cache has none: it
/// opens no image with another cache's mark unless that is given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Doubt {
    /// The image is left as it is, and not opened.
    #[default]
    Refuse,
    /// They are written over whatever is there.
    Replay,
    /// They are given up.
    Discard,
}

/// What a write-back cache wants to go on with.
#[derive(Debug, Clone, Copy)]
pub struct Claim<'a> {
    /// Names the cache's file and what it holds.
    pub token: &'a str,
    /// The file has writes that the image may lack.
    pub is_dirty: bool,
    pub doubt: Doubt,
    /// Where the file is, for people.
    pub place: &'a str,
}

impl Claim<'_> {
    /// What is done without proof. Without writes to replay nothing is forced: it would only give up another cache's.
    fn decision(&self) -> Doubt {
        match self.doubt {
            Doubt::Replay if !self.is_dirty => Doubt::Refuse,
            other => other,
        }
    }
}

impl Image {
    /// Takes the lock for a write-back cache and keeps it. Afterwards the image bears the cache's mark if the cache is dirty
    /// and its writes are not given up, else none. Gives whether they are given up: never while the image proves that they
    /// are its newest. The lock of the cache's own dead process is taken over at once; the
    /// caller has made sure that no other process has the cache's file.
    ///
    /// # Errors
    /// EBUSY, with the image as it was, when the cache is dirty and others may have written to the image, or when another
    /// cache's mark is on it, unless `doubt` decides; EINVAL unless the image was opened with [`LockPolicy::Keep`] and has
    /// the exclusive-lock feature.
    pub async fn claim(&self, claim: &Claim<'_>) -> Result<Claimed> {
        let inner = &self.inner;
        if inner.policy != LockPolicy::Keep || !inner.view().header.has(feature::EXCLUSIVE_LOCK) {
            return Err(Error::refused(
                Errno::EINVAL,
                "nothing would keep others from writing below the cache",
            ));
        }
        *inner.place.lock().unwrap_or_else(PoisonError::into_inner) = claim.place.to_owned();
        let own = claim.is_dirty.then_some(claim.token);
        let decision = claim.decision();
        let one = inner.acquiring.lock().await;
        let object = inner.header_object();
        let claimed = loop {
            let seen = Seen::read(&inner.meta, &object).await?;
            let doubt = seen.doubt(claim.token);
            if doubt.is_none() {
                inner.check_dead(&seen).await?;
                if inner.swap_lock(&seen, Change::Set(own)).await? {
                    break Claimed::Kept;
                }
                continue;
            }
            let is_ours = seen.mark.as_ref().is_some_and(|m| m.token == claim.token);
            if decision == Doubt::Refuse {
                match doubt {
                    Some(why) if claim.is_dirty => {
                        return Err(Error::refused(
                            Errno::EBUSY,
                            format!("others may have written to the image since this cache did: {why}"),
                        ));
                    }
                    _ if seen.is_dirty && !is_ours => return Err(refuse_dirty(seen.mark.as_ref())),
                    _ => {}
                }
            }
            if let Some(mark) = seen.mark.as_ref().filter(|_| !is_ours) {
                tracing::warn!(image = %inner.id, place = %mark.place, "writes that another cache holds are given up");
            }
            let over = if decision == Doubt::Refuse { Over::Token(claim.token) } else { Over::Everybody };
            inner.acquire_lock(over).await?;
            let gives_up = claim.is_dirty && decision == Doubt::Discard;
            inner.set_mark(own.filter(|_| !gives_up)).await?;
            break if gives_up { Claimed::GivenUp } else { Claimed::Kept };
        };
        inner.take_over().await?;
        drop(one);
        Ok(claimed)
    }
}

/// What became of the writes of the cache that claimed an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claimed {
    /// They go to the image, if there are any.
    Kept,
    GivenUp,
}

impl Image {
    /// Says in the header that the cache with this token holds what the image lacks.
    ///
    /// # Errors
    /// ESHUTDOWN once another client had the lock while the image bore our mark.
    pub(crate) async fn mark(&self, token: &str) -> Result<()> {
        let _ready = self.inner.ready().await?;
        self.inner.set_mark(Some(token)).await
    }

    /// # Errors
    /// As [`Image::mark`].
    pub(crate) async fn unmark(&self) -> Result<()> {
        let _ready = self.inner.ready().await?;
        self.inner.set_mark(None).await
    }
}

/// What becomes of the mark when the lock's holder changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change<'a> {
    Keep,
    /// Set with a token, or removed.
    Set(Option<&'a str>),
}

impl Inner {
    /// Refuses if the lock's holder still answers.
    async fn check_dead(self: &Arc<Self>, seen: &Seen) -> Result<()> {
        let Some(holder) = seen.holder() else { return Ok(()) };
        let watch = lock::watch_of(holder);
        if !self.has_watcher(holder, watch).await? {
            return Ok(());
        }
        let message = Message::RequestLock { client: self.client_id().await?, force: false };
        let replies = self.meta.notify(&self.header_object(), message.to_bytes(), Some(ANSWER_LIMIT)).await?;
        if replies.replies.iter().any(|r| !r.reply.is_empty()) {
            return Err(Error::refused(
                Errno::EBUSY,
                format!("{} has the image's lock for this cache, and lives", holder.client),
            ));
        }
        Ok(())
    }

    /// Puts us in the place of the lock's holder, who is dead or was us, and changes the mark in the same request. False
    /// when the lock is not as it was seen.
    pub async fn swap_lock(self: &Arc<Self>, seen: &Seen, change: Change<'_>) -> Result<bool> {
        let Some((before, info)) = &seen.lock else { return Ok(false) };
        let Some(holder) = info.holders.first() else { return Ok(false) };
        let us = self.client_id().await?;
        let client = EntityName::client(us.global_id as i64);
        if holder.client != client {
            // Nothing that is still on its way from it may arrive later.
            self.meta.cluster().blocklist_add(&holder.addr, None).await?;
        }
        let object = self.header_object();
        let watchers = self.meta.list_watchers(&object).await?;
        let Some(watcher) = watchers.iter().find(|w| w.name == client && w.cookie == us.watch) else {
            return Ok(false);
        };
        let cookie = format!("{COOKIE_PREFIX}{}", us.watch);
        let holder = LockHolder { client, cookie: cookie.clone(), addr: watcher.addr, ..holder.clone() };
        let after = LockInfo { holders: vec![holder], ..info.clone() };
        let attribute = LockInfo::attribute(LOCK_NAME);
        let op = WriteOp::new()
            .cmp_xattr(&attribute, CmpOp::Eq, before.clone())
            .set_xattr(&attribute, after.to_attribute());
        let mark = match change {
            Change::Keep => None,
            Change::Set(token) => token.map(|token| self.new_mark(token, client, &cookie)),
        };
        let op = if change == Change::Keep { op } else { marking(op, mark.as_ref()) };
        match self.meta.write_op(&object, op).await {
            Ok(_) => {}
            Err(e) if e.errno() == Errno::ECANCELED => return Ok(false),
            Err(e) => return Err(e).context(|| format!("taking the lock of {object} over")),
        }
        if change != Change::Keep {
            *self.mark.lock().unwrap_or_else(PoisonError::into_inner) = mark.map(|m| m.token);
        }
        Ok(true)
    }

    /// Sets the mark, or removes it, while the lock is ours.
    pub async fn set_mark(self: &Arc<Self>, token: Option<&str>) -> Result<()> {
        let us = self.client_id().await?;
        let cookie = format!("{COOKIE_PREFIX}{}", us.watch);
        let args = AssertLocked {
            name: LOCK_NAME.into(),
            kind: LockKind::Exclusive as u8,
            cookie: cookie.clone(),
            tag: TAG.into(),
        };
        let op = WriteOp::new().exec("lock", "assert_locked", args.to_bytes());
        let mark = token.map(|token| self.new_mark(token, EntityName::client(us.global_id as i64), &cookie));
        let result = self.meta.write_op(&self.header_object(), marking(op, mark.as_ref())).await;
        if let Err(e) = &result {
            if matches!(e.errno(), Errno::EBUSY | Errno::ENOENT) {
                // The lock is not what we believed.
                self.owned.store(false, Ordering::SeqCst);
            }
        }
        result.context(|| format!("marking image {}", self.id))?;
        *self.mark.lock().unwrap_or_else(PoisonError::into_inner) = mark.map(|m| m.token);
        Ok(())
    }

    fn new_mark(&self, token: &str, client: EntityName, cookie: &str) -> Mark {
        let place = self.place.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Mark { token: token.to_owned(), client, cookie: cookie.to_owned(), place }
    }

    /// Whether a cache of ours holds what the image lacks.
    pub fn marked(&self) -> Option<String> {
        self.mark.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The steps that set or remove the mark.
fn marking(op: WriteOp, mark: Option<&Mark>) -> WriteOp {
    let bits = if mark.is_some() { feature::DIRTY_CACHE } else { 0 };
    let op = match mark {
        Some(mark) => {
            let pair = BTreeMap::from([(KEY.to_owned(), Bytes::from(mark.to_text()))]);
            op.exec("rbd", "metadata_set", pair.to_bytes())
        }
        None => op.exec("rbd", "metadata_remove", KEY.to_owned().to_bytes()),
    };
    op.exec("rbd", "set_features", MaskArgs { bits, mask: feature::DIRTY_CACHE }.to_bytes())
}

//! An open image: its header as a view that changes are made under, its watch, its lock.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use block::BoxFuture;
use rados::{IoCtx, PoolId, Watch, WatchEvent, WriteOp};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use types::{Errno, SnapId};

use crate::class;
use crate::error::{Error, Result};
use crate::header::{self, Access, Header, Snapshot, feature, flag};
use crate::layout::Layout;
use crate::lineage::Lineage;
use crate::object_map::{self, Map};

/// What happens when another client asks for the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LockPolicy {
    /// It gets the lock when the changes under way are done.
    #[default]
    Share,
    /// It is refused, also by force: a write-back cache must not lose the image. See [`Image::claim`].
    Keep,
}

/// How to open an image.
#[derive(Debug, Clone, Default)]
pub struct OpenOptions {
    pub read_only: bool,
    /// Read a snapshot of this name; implies `read_only`.
    pub snap: Option<String>,
    pub lock: LockPolicy,
    /// Read a snapshot of this id, one in the trash too; implies `read_only`.
    pub snap_id: Option<u64>,
}

impl OpenOptions {
    #[must_use]
    pub fn read_only() -> Self {
        Self { read_only: true, ..Self::default() }
    }

    #[must_use]
    pub fn at_snap(name: impl Into<String>) -> Self {
        Self { read_only: true, snap: Some(name.into()), ..Self::default() }
    }
}

/// An open image. Clones share it; [`Image::close`] it to let go of its lock and watch in order.
#[derive(Clone)]
pub struct Image {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    /// The pool and namespace of the header.
    pub meta: IoCtx,
    pub id: String,
    pub name: String,
    pub read_only: bool,
    pub policy: LockPolicy,
    pub snap_id: Option<u64>,
    /// This image, and those that were opened on the way to it as to a parent.
    lineage: Lineage,
    view: RwLock<Arc<View>>,
    /// From reading the header to storing its view, so that an older view never replaces a newer one.
    refreshing: tokio::sync::Mutex<()>,
    /// The header could not be read again: that comes before the next change.
    pub stale: AtomicBool,
    /// Changes hold it for reading; what must see none under way holds it for writing.
    pub gate: tokio::sync::RwLock<()>,
    /// One acquisition at a time.
    pub acquiring: tokio::sync::Mutex<()>,
    pub owned: AtomicBool,
    /// The head's object map while the lock is ours, or a snapshot's.
    pub map: Mutex<Option<Map>>,
    pub map_updates: tokio::sync::Mutex<()>,
    pub watching: tokio::sync::Mutex<Option<Watching>>,
    /// Of all our watches, lost ones too: other images of this process are the same client to the cluster.
    pub cookies: Mutex<Vec<u64>>,
    /// Somebody said that the lock is free.
    pub released: Notify,
    /// When the header was last told that the image was read, and written.
    pub touched: Touched,
    /// The token of the cache's mark that we put on the image.
    pub mark: Mutex<Option<String>>,
    /// Where that cache is, for people.
    pub place: Mutex<String>,
}

pub(crate) struct Watching {
    pub watch: Arc<Watch>,
    answers: Answers,
}

/// The task that answers notifications. It ends with its image: it has the watch, which keeps the client.
struct Answers(JoinHandle<()>);

impl Answers {
    fn spawn(task: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(tokio::spawn(task))
    }

    /// Waits until it has let go of the watch.
    async fn end(mut self) {
        self.0.abort();
        let _ = (&mut self.0).await;
    }
}

impl Drop for Answers {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The header, and what follows from it for reading and writing.
pub(crate) struct View {
    pub header: Header,
    pub layout: Layout,
    /// Bytes of the image, or of the snapshot that is read.
    pub size: u64,
    /// Data objects: written with the image's snapshots, read at ours.
    pub data: IoCtx,
    /// Bytes shared with the parent, which is open when there are any.
    pub overlap: u64,
    pub parent: Option<Image>,
}

/// Source: rbd_mtime_update_interval, rbd_atime_update_interval.
const TOUCH_EVERY: Duration = Duration::from_secs(60);

/// What is written down with its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Touch {
    Read,
    Written,
}

/// When each was last written down.
#[derive(Debug, Default)]
pub(crate) struct Touched {
    read: Mutex<Option<Instant>>,
    written: Mutex<Option<Instant>>,
}

impl Touched {
    fn last(&self, touch: Touch) -> &Mutex<Option<Instant>> {
        match touch {
            Touch::Read => &self.read,
            Touch::Written => &self.written,
        }
    }
}

impl View {
    pub fn object(&self, number: u64) -> String {
        format!("{}.{number:016x}", self.header.prefix)
    }
}

impl Image {
    /// Opens the image of this name in the pool and namespace of `io`.
    ///
    /// # Errors
    /// ENOENT when there is none; ENOSYS for features that are not understood, with the image untouched.
    pub async fn open(io: &IoCtx, name: &str, options: OpenOptions) -> Result<Self> {
        let id = id_of(io, name).await?;
        Self::open_known(io, name.to_owned(), id, options, &Lineage::default()).await
    }

    /// Opens the image of this name if it is the one of this id.
    ///
    /// # Errors
    /// As [`Image::open`]; ENOENT when another image has the name by now, which is not touched.
    pub async fn open_this(io: &IoCtx, name: &str, id: &str, options: OpenOptions) -> Result<Self> {
        if id_of(io, name).await? != id {
            return Err(Error::refused(Errno::ENOENT, format!("image {name} is another one by now")));
        }
        Self::open_known(io, name.to_owned(), id.to_owned(), options, &Lineage::default()).await
    }

    /// Opens by id: also what is in the trash.
    ///
    /// # Errors
    /// As [`Image::open`].
    pub async fn open_by_id(io: &IoCtx, id: &str, options: OpenOptions) -> Result<Self> {
        let input = codec::Encode::to_bytes(&id.to_owned());
        let name = class::call(io, class::object::DIRECTORY, "dir_get_name", input).await.unwrap_or_default();
        Self::open_known(io, name, id.to_owned(), options, &Lineage::default()).await
    }

    pub(crate) fn open_known<'a>(
        io: &'a IoCtx,
        name: String,
        id: String,
        options: OpenOptions,
        descendants: &'a Lineage,
    ) -> BoxFuture<'a, Result<Self>> {
        Box::pin(async move {
            let lineage = descendants.with(io, &id)?;
            let read_only = options.read_only || options.snap.is_some() || options.snap_id.is_some();
            let access = Access::of(read_only, options.lock);
            let header = header::read(io, &id, access).await?;
            let snap_id = match &options.snap {
                None => options.snap_id,
                Some(snap) => Some(header.snapshot(snap).map(|s| s.id).ok_or_else(|| {
                    Error::refused(Errno::ENOENT, format!("{name} has no snapshot {snap}"))
                })?),
            };
            let view = make_view(io, header, snap_id, &lineage, None).await?;
            let inner = Arc::new(Inner {
                meta: io.clone(),
                id,
                name,
                read_only,
                policy: options.lock,
                snap_id,
                lineage,
                view: RwLock::new(Arc::new(view)),
                refreshing: tokio::sync::Mutex::new(()),
                stale: AtomicBool::new(false),
                gate: tokio::sync::RwLock::new(()),
                acquiring: tokio::sync::Mutex::new(()),
                owned: AtomicBool::new(false),
                map: Mutex::new(None),
                map_updates: tokio::sync::Mutex::new(()),
                watching: tokio::sync::Mutex::new(None),
                cookies: Mutex::new(Vec::new()),
                released: Notify::new(),
                touched: Touched::default(),
                mark: Mutex::new(None),
                place: Mutex::new(String::new()),
            });
            if let Some(snap) = snap_id {
                inner.load_snapshot_map(snap).await;
            } else if !read_only {
                inner.start_watch().await?;
            }
            Ok(Self { inner })
        })
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    #[must_use]
    pub fn id(&self) -> &str {
        &self.inner.id
    }

    /// Bytes of the image or of the snapshot that is open.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.inner.view().size
    }

    #[must_use]
    pub fn header(&self) -> Header {
        self.inner.view().header.clone()
    }

    /// The user's snapshots, by id.
    #[must_use]
    pub fn snapshots(&self) -> Vec<Snapshot> {
        self.inner.view().header.snaps.clone()
    }

    /// Reads the header again.
    ///
    /// # Errors
    /// The header cannot be read.
    pub async fn refresh(&self) -> Result<()> {
        self.inner.refresh().await
    }

    /// Takes the exclusive lock now, if the image has one, instead of with the first change.
    ///
    /// # Errors
    /// The owner keeps it, or the cluster fails.
    pub async fn acquire_lock(&self) -> Result<()> {
        self.inner.ready().await.map(drop)
    }

    /// Waits for the changes under way, lets go of the lock and the watch.
    ///
    /// # Errors
    /// The lock could not be released; the watch is gone all the same.
    pub async fn close(&self) -> Result<()> {
        let released = self.inner.release().await;
        let watching = self.inner.watching.lock().await.take();
        if let Some(Watching { watch, answers }) = watching {
            answers.end().await;
            if let Some(watch) = Arc::into_inner(watch) {
                let _ = watch.unwatch().await;
            }
        }
        if let Some(parent) = self.inner.view().parent.clone() {
            Box::pin(parent.close()).await?;
        }
        released
    }
}

pub(crate) async fn id_of(io: &IoCtx, name: &str) -> Result<String> {
    match class::call(io, &class::object::id(name), "get_id", bytes::Bytes::new()).await {
        Err(e) if e.is_not_found() => Err(Error::refused(Errno::ENOENT, format!("there is no image {name}"))),
        other => other,
    }
}

/// What a header means for us; the parent of `before` is kept when it is still the parent.
async fn make_view(
    io: &IoCtx,
    header: Header,
    snap: Option<u64>,
    lineage: &Lineage,
    before: Option<&View>,
) -> Result<View> {
    let (size, overlap) = match snap {
        None => (header.size, header.parent_overlap),
        Some(id) => {
            let snapshot = header.snaps.iter().find(|s| s.id == id);
            let snapshot = snapshot.ok_or_else(|| Error::refused(Errno::ENOENT, "the snapshot is gone"))?;
            (snapshot.size, snapshot.parent_overlap)
        }
    };
    let data = match header.data_pool {
        Some(pool) => io.cluster().pool_by_id(PoolId(pool)).await?.with_namespace(io.namespace()),
        None => io.clone(),
    };
    let data = match snap {
        Some(id) => data.at_snap(SnapId(id)),
        None => data.with_snap_context(header.snap_context.clone())?,
    };
    let parent = match &header.parent {
        Some(spec) if overlap > 0 => {
            match before.filter(|b| b.header.parent.as_ref() == Some(spec)).and_then(|b| b.parent.clone()) {
                Some(parent) => Some(parent),
                None => Some(open_parent(io, spec, lineage).await?),
            }
        }
        _ => None,
    };
    Ok(View { layout: header.layout, size, data, overlap, parent, header })
}

async fn open_parent(io: &IoCtx, spec: &header::Parent, lineage: &Lineage) -> Result<Image> {
    let pool = io.cluster().pool_by_id(PoolId(spec.pool)).await?.with_namespace(spec.namespace.clone());
    let options = OpenOptions { read_only: true, snap_id: Some(spec.snap), ..OpenOptions::default() };
    Image::open_known(&pool, String::new(), spec.image_id.clone(), options, lineage).await
}

impl Inner {
    pub fn view(&self) -> Arc<View> {
        Arc::clone(&self.view.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn header_object(&self) -> String {
        class::object::header(&self.id)
    }

    pub async fn refresh(&self) -> Result<()> {
        let _one = self.refreshing.lock().await;
        let result = self.read_header().await;
        self.stale.store(result.is_err(), Ordering::SeqCst);
        result
    }

    /// The same, when the header may have changed.
    pub async fn refresh_changed(self: Arc<Self>) {
        if let Err(e) = self.refresh().await {
            tracing::warn!(image = %self.id, error = %e, "cannot read the changed header");
        }
    }

    async fn read_header(&self) -> Result<()> {
        let before = self.view();
        let header = header::read(&self.meta, &self.id, Access::of(self.read_only, self.policy)).await?;
        if (&header.prefix, header.data_pool) != (&before.header.prefix, before.header.data_pool) {
            // What was found of them holds as long as the image is open.
            return Err(Error::refused(Errno::EIO, "the image's header names other data objects by now"));
        }
        let view = make_view(&self.meta, header, self.snap_id, &self.lineage, Some(&before)).await?;
        *self.view.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(view);
        Ok(())
    }

    /// Writes down when the image was read or written, once in a while, beside what is done.
    pub fn touch(&self, touch: Touch) {
        if self.read_only {
            return;
        }
        {
            let mut last = self.touched.last(touch).lock().unwrap_or_else(PoisonError::into_inner);
            if last.is_some_and(|at| at.elapsed() < TOUCH_EVERY) {
                return;
            }
            *last = Some(Instant::now());
        }
        let view = self.view();
        let (method, before) = match touch {
            Touch::Read => ("set_access_timestamp", view.header.accessed),
            Touch::Written => ("set_modify_timestamp", view.header.modified),
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        if now < Duration::from_secs(u64::from(before.sec)) + TOUCH_EVERY {
            return;
        }
        let (meta, object) = (self.meta.clone(), self.header_object());
        tokio::spawn(async move {
            // Somebody may remove the image at this moment.
            let op = WriteOp::new().assert_exists().exec("rbd", method, bytes::Bytes::new());
            if let Err(e) = meta.write_op(&object, op).await {
                tracing::debug!(%object, error = %e, "{method} failed");
            }
        });
    }

    /// A snapshot never changes: its map, if it is valid, spares reads of what is not there.
    async fn load_snapshot_map(&self, snap: u64) {
        let view = self.view();
        let flags = view.header.snaps.iter().find(|s| s.id == snap).map_or(0, |s| s.flags);
        if view.header.has(feature::OBJECT_MAP) && flags & flag::OBJECT_MAP_INVALID == 0 {
            if let Ok(map) = object_map::load(&self.meta, &self.id, Some(snap)).await {
                if map.len() >= view.layout.objects(view.size) {
                    *self.map.lock().unwrap_or_else(PoisonError::into_inner) = Some(map);
                }
            }
        }
    }

    /// Watches the header and starts the task that answers.
    pub async fn start_watch(self: &Arc<Self>) -> Result<u64> {
        let watch = Arc::new(self.meta.watch(&self.header_object(), None).await?);
        let cookie = watch.cookie();
        self.cookies.lock().unwrap_or_else(PoisonError::into_inner).push(cookie);
        {
            // What was changed before it was there nobody has told us. A reading under way may be older.
            let _one = self.refreshing.lock().await;
            self.stale.store(true, Ordering::SeqCst);
        }
        let (weak, for_task) = (Arc::downgrade(self), Arc::clone(&watch));
        let answers = Answers::spawn(async move {
            loop {
                let event = for_task.next().await;
                let Some(inner) = weak.upgrade() else { return };
                match event {
                    WatchEvent::Notify { notify_id, payload, .. } => {
                        let reply = inner.answer(payload).await;
                        for_task.ack(notify_id, reply).forget();
                    }
                    WatchEvent::Error(errno) => {
                        tracing::warn!(image = %inner.id, %errno, "the watch on the image is lost");
                        tokio::spawn(inner.lost_watch());
                        return;
                    }
                }
            }
        });
        *self.watching.lock().await = Some(Watching { watch, answers });
        Ok(cookie)
    }

    /// The lock's cookie names the watch: with a new watch the lock is taken anew before the next change.
    fn lost_watch(self: Arc<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let _gate = self.gate.write().await;
            let owned = self.owned.swap(false, Ordering::SeqCst);
            // Others may wait for it, images of this process too. One that must keep the image does not offer it: whoever
            // takes it by force then shuts this client out, as the cache above needs.
            if owned && self.policy != LockPolicy::Keep {
                self.unlock_unused().await;
            }
            let inner = Arc::clone(&self);
            if let Err(e) = self.start_watch().await {
                tracing::warn!(image = %self.id, error = %e, "cannot watch the image again");
                *self.watching.lock().await = None;
            } else if owned && self.policy == LockPolicy::Keep {
                // Until the next write the lock would bear a dead cookie, and look like a dead client's.
                tokio::spawn(async move {
                    if let Err(e) = inner.ready().await {
                        tracing::warn!(image = %inner.id, error = %e, "cannot take the image's lock again");
                    }
                });
            } else {
                tokio::spawn(inner.refresh_changed());
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Somebody drops an image that is open: where a job is ended with its client, nobody closes it.
    #[tokio::test]
    async fn what_answers_for_an_image_ends_with_it() {
        let watch = Arc::new(());
        let (weak, begun) = (Arc::downgrade(&watch), Arc::new(Notify::new()));
        let tells = Arc::clone(&begun);
        let answers = Answers::spawn(async move {
            let _watch = watch;
            tells.notify_one();
            std::future::pending().await
        });
        begun.notified().await;
        drop(answers);
        let ended = async {
            while weak.upgrade().is_some() {
                tokio::task::yield_now().await;
            }
        };
        assert!(tokio::time::timeout(Duration::from_secs(10), ended).await.is_ok(), "it has the watch still");
    }
}

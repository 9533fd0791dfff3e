//! What a manager has done to images, to objects and by OSDs: by a client of the cluster that logs in with the
//! manager's key.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use admin::Reply;
use bytes::Bytes;
use daemons::client::job::{Failed, Found, ImageFacts, Job, MAX_NAMESPACES, Space, Work, share};
use daemons::client::{Client, Clients, Going, Soon};
use rados::{Cluster, Config, IoCtx, WriteOp};
use rbd::pool::Room;
use rbd::{Image, OpenOptions, feature, pool, trash};
use types::{AddrVec, AuthName, EntityAddr, Errno, OsdId};

use crate::place::Place;

/// How long a client tries to reach the cluster.
const PATIENCE: Duration = Duration::from_secs(30);
/// Images of a namespace that are looked at, and namespaces of a pool.
const NAMES: Room = Room { entries: 65_536, bytes: 8 << 20 };
const NAMESPACES: Room = Room { entries: MAX_NAMESPACES, bytes: 1 << 20 };
/// Bytes that are taken of what a pool keeps of one kind, of which its namespaces have shares as they have of
/// its keys; and keys of one answer.
const MAX_BYTES: usize = 2 << 20;
const PAGE: usize = 64;
/// Bytes of what a disk has told that are taken at once.
const MAX_SAMPLE_BYTES: usize = 32 << 20;
/// An object is copied from the parent as a whole: this is the largest that librbd makes. Source:
/// CreateRequest::validate_order in src/librbd/image/CreateRequest.cc.
const MAX_ORDER: u8 = 25;

/// Starts clients for one manager.
pub struct OfManager(Config);

impl OfManager {
    /// # Errors
    /// The manager has no key.
    pub fn new(place: &Place, monitors: Vec<EntityAddr>) -> anyhow::Result<Arc<Self>> {
        let name: AuthName = place.name.clone();
        let key = match place.method {
            daemons::auth::Method::None => place.key(&name).ok(),
            daemons::auth::Method::Cephx => Some(place.key(&name)?),
        };
        let is_mode = |name: &str| name.starts_with("ms_") && name.ends_with("_mode");
        let modes = place.options.iter().filter(|(name, _)| is_mode(name));
        let modes = modes.map(|(name, text)| (name.clone(), text.clone())).collect();
        let config = Config::new(monitors, name, key);
        Ok(Arc::new(Self(Config { method: place.method, connect_timeout: PATIENCE, modes, ..config })))
    }
}

impl Clients for OfManager {
    fn start(&self) -> Soon<Result<Arc<dyn Client>, String>> {
        let config = self.0.clone();
        Box::pin(async move {
            let cluster = Cluster::connect(config).await.map_err(|e| e.to_string())?;
            Ok(Arc::new(OfCluster(cluster)) as Arc<dyn Client>)
        })
    }
}

struct OfCluster(Cluster);

impl Client for OfCluster {
    fn addrs(&self) -> AddrVec {
        self.0.addrs()
    }

    fn perform(&self, job: Job, going: Going) -> Soon<Result<Found, Failed>> {
        let cluster = self.0.clone();
        Box::pin(async move {
            let result = perform(&cluster, job, &going).await;
            result.map_err(|e| failed(&e))
        })
    }
}

/// That a client is shut out, for which it is started anew, only the cluster says.
fn failed(error: &rbd::Error) -> Failed {
    let errno = match error {
        rbd::Error::Refused { errno: Errno::ESHUTDOWN, .. } => Errno::EBUSY,
        rbd::Error::Cluster { .. } | rbd::Error::Refused { .. } | rbd::Error::Stream(_) => error.errno(),
    };
    Failed { errno, why: error.to_string() }
}

async fn inside(cluster: &Cluster, space: &Space) -> rbd::Result<IoCtx> {
    Ok(cluster.pool_by_id(space.pool).await?.with_namespace(space.namespace.clone()))
}

async fn perform(cluster: &Cluster, job: Job, going: &Going) -> rbd::Result<Found> {
    match job {
        Job::Load { pool, object, most, with_namespaces } => {
            let io = cluster.pool_by_id(pool).await?;
            let (namespaces, is_whole) = match with_namespaces {
                true => pool::namespaces_up_to(&io, NAMESPACES).await?,
                false => (Vec::new(), true),
            };
            let (keys, cut) = load(&io, namespaces, object, most).await?;
            Ok(Found::Keys { keys, cut, is_whole })
        }
        Job::Namespaces { pool } => {
            let io = cluster.pool_by_id(pool).await?;
            let (names, is_whole) = pool::namespaces_up_to(&io, NAMESPACES).await?;
            Ok(Found::Namespaces { names, is_whole })
        }
        Job::Keep { space, object, key, value } => {
            let io = inside(cluster, &space).await?;
            let key = Bytes::from(key);
            match value {
                Some(value) => io.omap_set(object, [(key, value.into())].into()).await?,
                None => io.omap_rm_keys(object, [key].into()).await?,
            }
            Ok(Found::Nothing)
        }
        Job::Values { pool, object, prefix, most } => {
            let io = cluster.pool_by_id(pool).await?;
            let (keys, cut) = values(&io, &object, &prefix, most).await?;
            let cut = cut.then(String::new).into_iter().collect();
            Ok(Found::Keys { keys: [(String::new(), keys)].into(), cut, is_whole: true })
        }
        Job::Sample { pool, object, key, value, from, most } => {
            let io = cluster.pool_by_id(pool).await?;
            let old = match io.omap_keys(&object, Bytes::new(), most as u64).await {
                Err(e) if e.is_not_found() => BTreeSet::new(),
                page => page?.0.into_iter().filter(|old| old.as_ref() < from.as_bytes()).collect(),
            };
            let op = WriteOp::new().omap_set([(key.into(), value.into())].into());
            let op = if old.is_empty() { op } else { op.omap_rm_keys(old) };
            io.write_op(&object, op).await?;
            Ok(Found::Nothing)
        }
        Job::Tell { osd, json, within } => Ok(Found::Said(told(cluster, osd, &json, within).await?)),
        Job::Look { space, image } => {
            let io = inside(cluster, &space).await?;
            let image = Image::open(&io, &image, OpenOptions::read_only()).await?;
            let (id, header) = (image.id().to_owned(), image.header());
            let has_left_parent = image.has_left_parent().await;
            image.close().await?;
            Ok(Found::Image(ImageFacts {
                id,
                has_parent: header.parent.is_some() || has_left_parent?,
                has_snapshots: !header.snaps.is_empty(),
                is_migrating: header.has(feature::MIGRATING),
                unfit: unfit(header.features, header.order, header.parent.is_some())
                    .or_else(|| foreign(&io, &image)),
            }))
        }
        Job::LookInTrash { space, id } => {
            trash::get(&inside(cluster, &space).await?, &id).await.map(|_| Found::Nothing)
        }
        Job::Names { space } => {
            let (names, _) = pool::list_up_to(&inside(cluster, &space).await?, NAMES).await?;
            Ok(Found::Names(names.into_iter().map(|(name, id)| (id, name)).collect()))
        }
        Job::Work { space, work } => work_on(&inside(cluster, &space).await?, work, going).await,
    }
}

/// Why an image cannot be changed by a task.
fn unfit(features: u64, order: u8, has_parent: bool) -> Option<String> {
    let foreign = feature::names(features & !feature::WRITABLE);
    match (foreign.is_empty(), has_parent && order > MAX_ORDER) {
        (false, _) => Some(format!("has features that this manager does not change: {}", foreign.join(", "))),
        (_, true) => Some(format!("has objects of 2^{order} bytes, too large to be copied from its parent")),
        _ => None,
    }
}

/// Why nothing may be done to the data that an image names: whoever may write to its header alone has no say
/// in other images' data.
fn foreign(io: &IoCtx, image: &Image) -> Option<String> {
    let is_own = image.header().has_own_data(io.pool_id(), image.id());
    (!is_own).then(|| "names data objects that are not its own".to_owned())
}

/// What a pool's namespaces may take together, and each of them.
struct Rooms {
    all: Room,
    each: Room,
}

impl Rooms {
    fn new(most: usize, namespaces: usize) -> Self {
        let each = Room { entries: share(most, namespaces), bytes: share(MAX_BYTES, namespaces) };
        Self { all: Room { entries: 4 * most, bytes: 4 * MAX_BYTES }, each }
    }

    /// What the next namespace may take, which is then given to it.
    fn next(&self) -> Room {
        Room { entries: self.each.entries.min(self.all.entries), bytes: self.each.bytes.min(self.all.bytes) }
    }

    fn used(&mut self, before: Room, left: Room) {
        self.all.entries -= before.entries - left.entries;
        self.all.bytes -= before.bytes - left.bytes;
    }
}

/// Keys and values of an object by namespace.
type Keys = BTreeMap<String, BTreeMap<Bytes, Bytes>>;

/// Keys of an object, in the pool itself and in these namespaces; and namespaces that have more.
async fn load(
    io: &IoCtx,
    mut namespaces: Vec<String>,
    object: &str,
    most: usize,
) -> rbd::Result<(Keys, BTreeSet<String>)> {
    namespaces.insert(0, String::new());
    let mut rooms = Rooms::new(most, namespaces.len());
    let (mut keys, mut cut) = (BTreeMap::new(), BTreeSet::new());
    for namespace in namespaces {
        let before = rooms.next();
        let (here, left) = load_inside(&io.with_namespace(namespace.clone()), object, before).await?;
        match left {
            Some(left) => rooms.used(before, left),
            None => {
                rooms.used(before, Room { entries: 0, bytes: 0 });
                cut.insert(namespace.clone());
            }
        }
        keys.insert(namespace, here);
    }
    Ok((keys, cut))
}

/// Keys of an object, and the room that is left; `None` where there are more than it holds.
async fn load_inside(
    inside: &IoCtx,
    object: &str,
    mut room: Room,
) -> rbd::Result<(BTreeMap<Bytes, Bytes>, Option<Room>)> {
    let mut here: BTreeMap<Bytes, Bytes> = BTreeMap::new();
    loop {
        let after = here.last_key_value().map(|(key, _)| key.clone()).unwrap_or_default();
        // One more than there is room for shows that there are more.
        let page =
            match inside.omap_vals(object, after, Bytes::new(), PAGE.min(room.entries + 1) as u64).await {
                // Pools with data of images alone may have no such objects at all.
                Err(e) if e.errno() == Errno::ENOENT || e.errno() == Errno::EOPNOTSUPP => {
                    return Ok((here, Some(room)));
                }
                other => other?,
            };
        let (count, more) = (page.entries.len(), page.more);
        for (key, value) in page.entries {
            if !room.take(key.len() + value.len()) {
                return Ok((here, None));
            }
            here.insert(key, value);
        }
        if !more || count == 0 {
            return Ok((here, Some(room)));
        }
    }
}

/// Keys of an object that begin with `prefix`, `most` of them at most; whether there are more.
async fn values(
    io: &IoCtx,
    object: &str,
    prefix: &str,
    most: usize,
) -> rbd::Result<(BTreeMap<Bytes, Bytes>, bool)> {
    let mut room = Room { entries: most, bytes: MAX_SAMPLE_BYTES };
    let mut here: BTreeMap<Bytes, Bytes> = BTreeMap::new();
    loop {
        let after = here.last_key_value().map(|(key, _)| key.clone()).unwrap_or_default();
        let page =
            match io.omap_vals(object, after, Bytes::copy_from_slice(prefix.as_bytes()), PAGE as u64).await {
                Err(e) if e.is_not_found() => return Ok((here, false)),
                page => page?,
            };
        let (count, more) = (page.entries.len(), page.more);
        for (key, value) in page.entries {
            if !room.take(key.len() + value.len()) {
                return Ok((here, true));
            }
            here.insert(key, value);
        }
        if !more || count == 0 {
            return Ok((here, false));
        }
    }
}

/// Gives an OSD a command; an answer that says no is one as well.
async fn told(cluster: &Cluster, osd: OsdId, json: &str, within: Duration) -> rbd::Result<Reply> {
    let told = tokio::time::timeout(within, cluster.osd_command(osd.0, json, Bytes::new())).await;
    match told.unwrap_or(Err(Errno::ETIMEDOUT.into())) {
        Ok(said) => Ok(Reply { code: 0, outs: said.status, data: said.output }),
        Err(rados::Error::Command { errno, status }) => Ok(Reply::error(errno, status)),
        Err(other) => Err(other.into()),
    }
}

async fn work_on(io: &IoCtx, work: Work, going: &Going) -> rbd::Result<Found> {
    let progress = |done: u64, of: u64| going.progress(done, of);
    let stop = || going.is_stopped();
    let done = match work {
        Work::Flatten { image, id } => {
            let image = Image::open_this(io, &image, &id, OpenOptions::default()).await?;
            let header = image.header();
            let result = match unfit(header.features, header.order, true).or_else(|| foreign(io, &image)) {
                Some(why) => Err(rbd::Error::refused(Errno::EOPNOTSUPP, format!("the image {why}"))),
                None => image.flatten_unless(&progress, &stop).await,
            };
            let closed = image.close().await;
            result.and(closed)
        }
        Work::Remove { image, id } => pool::remove_this(io, [&image, &id], &progress, &stop).await,
        Work::TrashRemove { id } => {
            let now = runtime::Clock::start().now().wall;
            trash::remove(io, &id, trash::Which::Due(now), &progress, &stop).await
        }
        Work::TrashPurge { now, behind, except } => {
            let stopped = trash::purge(io, now, &except, &behind, &stop).await?;
            return Ok(stopped.map_or(Found::Nothing, |at| Found::Stopped { at }));
        }
    };
    done.map(|()| Found::Nothing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_namespace_has_a_share_whatever_those_before_it_have() {
        let mut rooms = Rooms::new(1_024, 16);
        for _ in 0..15 {
            let before = rooms.next();
            let mut room = before;
            let taken = (0..2_000).filter(|_| room.take(100)).count();
            assert_eq!((before.entries, taken), (64, 64));
            rooms.used(before, room);
        }
        let mut room = rooms.next();
        assert!((0..64).all(|_| room.take(2_000)) && !room.take(1));
        assert!(!Room { entries: 5, bytes: 10 }.take(11));
        // Many together take no more than there is.
        let mut rooms = Rooms::new(1_024, 5_000);
        let sum: usize = (0..5_000)
            .map(|_| {
                let before = rooms.next();
                rooms.used(before, Room { entries: 0, bytes: 0 });
                before.entries
            })
            .sum();
        assert_eq!(sum, 4 * 1_024);
    }

    #[test]
    fn only_the_cluster_shuts_a_client_out() {
        let out = Errno::ESHUTDOWN;
        assert_eq!(failed(&rbd::Error::refused(out, "a lock")).errno, Errno::EBUSY);
        assert_eq!(failed(&rados::Error::from(out).into()).errno, out);
        assert_eq!(failed(&rbd::Error::refused(Errno::ENOENT, "an image")).errno, Errno::ENOENT);
    }

    #[test]
    fn images_that_cannot_be_changed_are_told_apart() {
        assert_eq!(unfit(feature::WRITABLE, 22, true), None);
        assert_eq!(unfit(feature::WRITABLE, 40, false), None);
        assert!(unfit(feature::WRITABLE, 26, true).is_some_and(|why| why.contains("2^26")));
        let mirrored = feature::JOURNALING | feature::NON_PRIMARY | feature::LAYERING;
        assert!(unfit(mirrored, 22, false).is_some_and(|why| why.ends_with(": journaling, non-primary")));
    }
}

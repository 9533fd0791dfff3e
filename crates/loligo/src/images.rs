//! What a manager has done to images: by a client of the cluster that logs in with the manager's key.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use daemons::images::job::{Failed, Found, ImageFacts, Job, Space, Work};
use daemons::images::{Client, Clients, Going, Soon};
use rados::{Cluster, Config, IoCtx};
use rbd::{Image, OpenOptions, feature, pool, trash};
use types::{AddrVec, AuthName, EntityAddr, Errno};

use crate::place::Place;

/// How long a client tries to reach the cluster.
const PATIENCE: Duration = Duration::from_secs(30);
/// Namespaces of a pool, and images of one of them, that are looked at.
const MAX_NAMESPACES: usize = 4_096;
const MAX_NAMES: usize = 65_536;
/// Bytes that are taken of what a pool keeps of one kind, and keys of one answer.
const MAX_BYTES: usize = 2 << 20;
const PAGE: usize = 64;

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
            result.map_err(|e| Failed { errno: e.errno(), why: e.to_string() })
        })
    }
}

async fn inside(cluster: &Cluster, space: &Space) -> rbd::Result<IoCtx> {
    Ok(cluster.pool_by_id(space.pool).await?.with_namespace(space.namespace.clone()))
}

async fn perform(cluster: &Cluster, job: Job, going: &Going) -> rbd::Result<Found> {
    match job {
        Job::Load { pool, object, most } => load(&cluster.pool_by_id(pool).await?, object, most).await,
        Job::Namespaces { pool } => {
            let namespaces = pool::namespaces_up_to(&cluster.pool_by_id(pool).await?, MAX_NAMESPACES).await?;
            Ok(Found::Namespaces(namespaces))
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
        Job::Look { space, image } => {
            let image =
                Image::open(&inside(cluster, &space).await?, &image, OpenOptions::read_only()).await?;
            let (id, header) = (image.id().to_owned(), image.header());
            image.close().await?;
            Ok(Found::Image(ImageFacts {
                id,
                has_parent: header.parent.is_some(),
                has_snapshots: !header.snaps.is_empty(),
                is_migrating: header.has(feature::MIGRATING),
            }))
        }
        Job::LookInTrash { space, id } => {
            trash::get(&inside(cluster, &space).await?, &id).await.map(|_| Found::Nothing)
        }
        Job::Names { space } => {
            let names = pool::list_up_to(&inside(cluster, &space).await?, MAX_NAMES).await?;
            Ok(Found::Names(names.into_iter().map(|(name, id)| (id, name)).collect()))
        }
        Job::Work { space, work } => {
            let io = inside(cluster, &space).await?;
            work_on(&io, work, going).await.map(|()| Found::Nothing)
        }
    }
}

/// At most so many keys of an object, in the pool and in its namespaces.
async fn load(io: &IoCtx, object: &str, most: usize) -> rbd::Result<Found> {
    let mut namespaces = pool::namespaces_up_to(io, MAX_NAMESPACES).await?;
    let mut is_whole = namespaces.len() < MAX_NAMESPACES;
    namespaces.insert(0, String::new());
    let (mut keys, mut left, mut room) = (BTreeMap::new(), most, MAX_BYTES);
    for namespace in namespaces {
        let inside = io.with_namespace(namespace.clone());
        let mut here: BTreeMap<Bytes, Bytes> = BTreeMap::new();
        loop {
            let after = here.last_key_value().map(|(key, _)| key.clone()).unwrap_or_default();
            // One more than there is room for shows that there are more.
            let page = match inside.omap_vals(object, after, Bytes::new(), PAGE.min(left + 1) as u64).await {
                // Pools with data of images alone may have no such objects at all.
                Err(e) if e.errno() == Errno::ENOENT || e.errno() == Errno::EOPNOTSUPP => break,
                other => other?,
            };
            let (count, more) = (page.entries.len(), page.more);
            for (key, value) in page.entries {
                let size = key.len() + value.len();
                if left == 0 || size > room {
                    is_whole = false;
                    break;
                }
                (left, room) = (left - 1, room - size);
                here.insert(key, value);
            }
            if !more || count == 0 || !is_whole {
                break;
            }
        }
        keys.insert(namespace, here);
        if !is_whole {
            break;
        }
    }
    Ok(Found::Keys { keys, is_whole })
}

async fn work_on(io: &IoCtx, work: Work, going: &Going) -> rbd::Result<()> {
    let progress = |done: u64, of: u64| going.progress(done, of);
    let stop = || going.is_stopped();
    match work {
        Work::Flatten { image, id } => {
            let image = Image::open_this(io, &image, &id, OpenOptions::default()).await?;
            let result = image.flatten_unless(&progress, &stop).await;
            let closed = image.close().await;
            result.and(closed)
        }
        Work::Remove { image, id } => pool::remove_this(io, [&image, &id], &progress, &stop).await,
        Work::TrashRemove { id } => {
            let now = runtime::Clock::start().now().wall;
            trash::remove(io, &id, trash::Which::Due(now), &progress, &stop).await
        }
        Work::TrashPurge { now } => trash::purge(io, now).await,
    }
}

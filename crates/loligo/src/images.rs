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
        Job::Load { pool, object } => load(&cluster.pool_by_id(pool).await?, object).await.map(Found::Keys),
        Job::Namespaces { pool } => {
            pool::namespaces(&cluster.pool_by_id(pool).await?).await.map(Found::Namespaces)
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
            let names = pool::list(&inside(cluster, &space).await?).await?;
            Ok(Found::Names(names.into_iter().map(|(name, id)| (id, name)).collect()))
        }
        Job::Work { space, work } => {
            let io = inside(cluster, &space).await?;
            work_on(&io, work, going).await.map(|()| Found::Nothing)
        }
    }
}

/// The keys of an object, in the pool and in its namespaces.
async fn load(io: &IoCtx, object: &str) -> rbd::Result<BTreeMap<String, BTreeMap<Bytes, Bytes>>> {
    let mut namespaces = pool::namespaces(io).await?;
    namespaces.push(String::new());
    let mut all = BTreeMap::new();
    for namespace in namespaces {
        match io.with_namespace(namespace.clone()).omap_all(object).await {
            Ok(keys) => drop(all.insert(namespace, keys)),
            Err(e) if e.errno() == Errno::ENOENT => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(all)
}

async fn work_on(io: &IoCtx, work: Work, going: &Going) -> rbd::Result<()> {
    let progress = |done: u64, of: u64| going.progress(done, of);
    match work {
        Work::Flatten { image } => {
            let image = Image::open(io, &image, OpenOptions::default()).await?;
            let result = tokio::select! {
                result = image.flatten(&progress) => result,
                () = going.stopped() => Err(rbd::Error::refused(Errno::ECANCELED, "it was cancelled")),
            };
            let closed = image.close().await;
            result.and(closed)
        }
        Work::Remove { image } => pool::remove_unless(io, &image, &progress, going.stopped()).await,
        Work::TrashRemove { id } => {
            let now = runtime::Clock::start().now().wall;
            trash::remove(io, &id, Some(now), &progress, going.stopped()).await
        }
        Work::TrashPurge { now } => trash::purge(io, now).await,
    }
}

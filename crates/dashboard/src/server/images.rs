//! Reads the images of all pools that are for them. What was read is shown for a while: reading thousands of
//! headers takes long, and pages ask again and again.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rados::{Cluster, IoCtx};
use rbd::{Image, OpenOptions, pool};
use serde_json::Value;
use tokio::sync::Mutex;

use crate::docs::images::{Found, ParentName, of_pool};

/// For so long a list is not read again.
const FRESH: Duration = Duration::from_secs(10);
/// Images of a pool that are read; of more the list is not whole.
const MOST_OF_POOL: usize = 2_000;
/// How long reading may take.
const PATIENCE: Duration = Duration::from_secs(12);
const CONNECT: Duration = Duration::from_secs(8);

/// See the module.
pub struct Images {
    config: rados::Config,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    cluster: Option<Cluster>,
    /// By pool, with the time when it was read.
    lists: BTreeMap<String, (Instant, Value)>,
}

impl Images {
    pub fn new(mut config: rados::Config) -> Self {
        config.connect_timeout = CONNECT;
        config.op_timeout = Some(CONNECT);
        config.mon_timeout = Some(CONNECT);
        Self { config, held: Mutex::default() }
    }

    /// The lists of these pools. One request reads at a time; the others get what it found.
    pub async fn lists(&self, pools: &[String]) -> Result<Value, String> {
        let mut held = self.held.lock().await;
        held.lists.retain(|_, (at, _)| at.elapsed() < FRESH);
        let missing: Vec<&String> = pools.iter().filter(|p| !held.lists.contains_key(*p)).collect();
        if !missing.is_empty() {
            let cluster = match &held.cluster {
                Some(cluster) => cluster.clone(),
                None => Cluster::connect(self.config.clone()).await.map_err(|e| e.to_string())?,
            };
            held.cluster = Some(cluster.clone());
            let names: BTreeMap<i64, String> =
                cluster.pools().into_iter().map(|(id, name)| (id.0, name)).collect();
            let until = Instant::now() + PATIENCE;
            for pool in missing {
                let list = read_pool(&cluster, pool, &names, until).await;
                held.lists.insert(pool.clone(), (Instant::now(), list));
            }
        }
        Ok(pools.iter().filter_map(|p| held.lists.get(p).map(|(_, list)| list.clone())).collect())
    }
}

async fn read_pool(cluster: &Cluster, name: &str, pools: &BTreeMap<i64, String>, until: Instant) -> Value {
    let (mut found, mut whole) = (Vec::new(), true);
    let Ok(io) = cluster.pool(name).await else { return of_pool(name, &found, false, pools) };
    let mut namespaces = vec![String::new()];
    match pool::namespaces(&io).await {
        Ok(others) => namespaces.extend(others),
        Err(_) => whole = false,
    }
    for namespace in namespaces {
        let io = io.with_namespace(namespace.clone());
        let Ok(images) = pool::list(&io).await else {
            whole = false;
            continue;
        };
        for (image, id) in images {
            if found.len() >= MOST_OF_POOL || Instant::now() >= until {
                return of_pool(name, &found, false, pools);
            }
            match read(cluster, &io, &image, &id, &namespace, pools).await {
                Some(one) => found.push(one),
                None => whole = false,
            }
        }
    }
    of_pool(name, &found, whole, pools)
}

async fn read(
    cluster: &Cluster,
    io: &IoCtx,
    name: &str,
    id: &str,
    namespace: &str,
    pools: &BTreeMap<i64, String>,
) -> Option<Found> {
    let image = Image::open_by_id(io, id, OpenOptions::read_only()).await.ok()?;
    let header = image.header();
    let _ = image.close().await;
    let parent = match &header.parent {
        None => None,
        Some(at) => {
            let io = cluster.pool(pools.get(&at.pool)?).await.ok()?.with_namespace(at.namespace.clone());
            let parent = Image::open_by_id(&io, &at.image_id, OpenOptions::read_only()).await.ok()?;
            let snapshot = parent.snapshots().into_iter().find(|s| s.id == at.snap).map(|s| s.name);
            let name = parent.name().to_owned();
            let _ = parent.close().await;
            Some(ParentName { image: name, snapshot: snapshot.unwrap_or_default() })
        }
    };
    let (name, id, namespace) = (name.to_owned(), id.to_owned(), namespace.to_owned());
    Some(Found { name, id, namespace, header, parent })
}

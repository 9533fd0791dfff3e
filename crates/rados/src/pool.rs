//! Pools: made, removed, counted; applications; clients kept out.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use messages::mon::pool_op;
use objecter::{Outcome, Request};
use serde_json::json;
use types::{EntityAddr, Errno, PoolId, SnapId};

use crate::cluster::unexpected;
use crate::error::check;
use crate::{Cluster, Error, IoCtx, Result};

/// A pool's use, as librados counts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PoolStat {
    /// Of data as clients wrote it.
    pub bytes: u64,
    /// What all copies take on the OSDs.
    pub bytes_used: u64,
    pub objects: u64,
    pub clones: u64,
    pub copies: u64,
    pub missing_on_primary: u64,
    pub unfound: u64,
    pub degraded: u64,
    pub reads: u64,
    pub read_kib: u64,
    pub writes: u64,
    pub write_kib: u64,
    /// Before compression.
    pub compressed_bytes_orig: u64,
    /// What compressed data takes on the OSDs.
    pub compressed_bytes: u64,
}

impl Cluster {
    /// Makes a pool with the cluster's defaults. EEXIST when there is one.
    pub async fn create_pool(&self, name: &str) -> Result<IoCtx> {
        if self.map().pool_by_name(name).is_some() {
            return Err(Error::Os(Errno::EEXIST));
        }
        self.pool_request(PoolId(0), pool_op::CREATE, name).await?;
        self.wait_for_latest_map().await?;
        self.pool(name).await
    }

    /// Removes a pool with all its objects. EPERM while the monitors do not allow it.
    pub async fn delete_pool(&self, name: &str) -> Result<()> {
        let pool = self.pool(name).await?;
        self.pool_request(pool.pool_id(), pool_op::DELETE, name).await?;
        self.wait_for_latest_map().await.map(drop)
    }

    async fn pool_request(&self, pool: PoolId, op: u32, name: &str) -> Result<()> {
        // A removal must not name the pool twice. Source: Objecter::_do_delete_pool.
        let name = if op == pool_op::DELETE { "delete" } else { name }.to_owned();
        let request = Request::PoolOp { pool, op, snap: SnapId(0), name, crush_rule: -1 };
        match self.ask(request).await? {
            Outcome::PoolOp { result, .. } => check(result).map(drop),
            other => Err(unexpected(other)),
        }
    }

    /// The use of the pools of these names; of all without names.
    pub async fn pool_stats(&self, names: &[&str]) -> Result<BTreeMap<String, PoolStat>> {
        let map = self.map();
        let names = match names {
            [] => map.pool_names.values().cloned().collect(),
            _ => names.iter().map(|n| (*n).to_owned()).collect(),
        };
        match self.ask(Request::PoolStats { pools: names }).await? {
            Outcome::PoolStats { pools, per_pool } => {
                Ok(pools.into_iter().map(|(name, s)| (name, pool_stat(&s, per_pool))).collect())
            }
            other => Err(unexpected(other)),
        }
    }

    /// Keeps a client's address out for this long (`None`: the cluster's default of an hour).
    pub async fn blocklist_add(&self, addr: &EntityAddr, how_long: Option<Duration>) -> Result<()> {
        let mut command =
            json!({"prefix": "osd blocklist", "blocklistop": "add", "addr": addr.without_kind()});
        if let (Some(how_long), Some(map)) = (how_long, command.as_object_mut()) {
            map.insert("expire".into(), json!(how_long.as_secs_f64()));
        }
        self.mon_command(&command.to_string(), Bytes::new()).await?;
        self.wait_for_latest_map().await.map(drop)
    }
}

fn pool_stat(s: &messages::stats::PoolStat, per_pool: bool) -> PoolStat {
    let n = |v: i64| u64::try_from(v).unwrap_or(0);
    let sum = &s.stats.sum;
    let store = &s.store_stats;
    // Source: RadosClient::get_pool_stats in src/librados/RadosClient.cc.
    let bytes_used = if per_pool { n(store.allocated) + n(store.omap_allocated) } else { n(sum.num_bytes) };
    PoolStat {
        bytes: n(sum.num_bytes),
        bytes_used,
        objects: n(sum.num_objects),
        clones: n(sum.num_object_clones),
        copies: n(sum.num_object_copies),
        missing_on_primary: n(sum.num_objects_missing_on_primary),
        unfound: n(sum.num_objects_unfound),
        degraded: n(sum.num_objects_degraded),
        reads: n(sum.num_rd),
        read_kib: n(sum.num_rd_kb),
        writes: n(sum.num_wr),
        write_kib: n(sum.num_wr_kb),
        compressed_bytes_orig: n(store.data_compressed_original),
        compressed_bytes: n(store.data_compressed_allocated),
    }
}

impl IoCtx {
    /// Applications that use the pool.
    pub fn applications(&self) -> Vec<String> {
        let map = self.cluster().map();
        map.pool(self.pool_id()).map(|p| p.application_metadata.keys().cloned().collect()).unwrap_or_default()
    }

    /// Marks the pool as used by an application; with `force` also beside others.
    pub async fn enable_application(&self, app: &str, force: bool) -> Result<()> {
        let mut command =
            json!({"prefix": "osd pool application enable", "pool": self.pool_name()?, "app": app});
        if let (true, Some(map)) = (force, command.as_object_mut()) {
            map.insert("yes_i_really_mean_it".into(), json!(true));
        }
        self.pool_command(&command).await
    }

    pub async fn set_application_metadata(&self, app: &str, key: &str, value: &str) -> Result<()> {
        let pool = self.pool_name()?;
        self.pool_command(&json!({
            "prefix": "osd pool application set", "pool": pool, "app": app, "key": key, "value": value
        }))
        .await
    }

    pub async fn remove_application_metadata(&self, app: &str, key: &str) -> Result<()> {
        let pool = self.pool_name()?;
        self.pool_command(&json!({"prefix": "osd pool application rm", "pool": pool, "app": app, "key": key}))
            .await
    }

    /// What an application keeps with the pool; ENOENT when it is not enabled.
    pub fn application_metadata(&self, app: &str) -> Result<BTreeMap<String, String>> {
        let map = self.cluster().map();
        let pool = map.pool(self.pool_id()).ok_or(Error::Os(Errno::ENOENT))?;
        pool.application_metadata.get(app).cloned().ok_or(Error::Os(Errno::ENOENT))
    }

    async fn pool_command(&self, command: &serde_json::Value) -> Result<()> {
        self.cluster().mon_command(&command.to_string(), Bytes::new()).await?;
        self.cluster().wait_for_latest_map().await.map(drop)
    }
}

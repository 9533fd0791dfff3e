//! The cluster under test, and pools of its own for each test.

use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use rados::{Cluster, Config, IoCtx};
use serde_json::json;

/// One cluster serves all tests of a run; it stops with the last test that uses it.
static RUNNING: Mutex<(usize, Option<PathBuf>)> = Mutex::new((0, None));

/// Keeps the cluster running.
pub struct Server {
    conf: PathBuf,
}

impl Server {
    pub fn get() -> Self {
        if let Some(conf) = std::env::var_os("RADOS_TEST_CONF") {
            return Self { conf: conf.into() };
        }
        let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        let (users, data) = &mut *running;
        *users += 1;
        let data = data.get_or_insert_with(start);
        Self { conf: data.join("ceph.conf") }
    }

    pub fn config(&self) -> Config {
        let mut config = Config::from_file(&self.conf).expect("the cluster's configuration");
        config.connect_timeout = Duration::from_secs(20);
        config
    }

    /// Whether it is one of ours, whose daemons run here.
    pub fn loligo_data(&self) -> Option<PathBuf> {
        let data = self.conf.parent()?.to_owned();
        std::env::var_os("RADOS_TEST_CONF").is_none().then_some(data)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if std::env::var_os("RADOS_TEST_CONF").is_some() {
            return;
        }
        let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        running.0 -= 1;
        if running.0 == 0 {
            if let Some(data) = running.1.take() {
                stop(&data);
            }
        }
    }
}

fn binary() -> PathBuf {
    if let Some(named) = std::env::var_os("LOLIGO_BIN") {
        return named.into();
    }
    // Tests lie in target/PROFILE/deps.
    let test = std::env::current_exe().expect("our own path");
    let built = test.ancestors().nth(2).expect("a target folder").join("loligo");
    assert!(
        built.is_file(),
        "build loligo first, or name it with LOLIGO_BIN: there is no {}",
        built.display()
    );
    built
}

/// A port for the monitor, below those that the kernel gives to whoever asks for any: one of these may be
/// another process's by the time that the monitor starts.
fn mon_port() -> u16 {
    let first = 10_000 + (std::process::id() % 20_000) as u16;
    let free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
    (first..first + 100).find(free).expect("a free port")
}

fn start() -> PathBuf {
    let data = tempfile::tempdir().expect("a folder").keep().join("data");
    let (mut up, port) = (Command::new(binary()), mon_port().to_string());
    up.args(["up", "--detach", "--mon-port", &port, "--osds", "3", "--data"]).arg(&data);
    let out = up.output().expect("loligo runs");
    assert!(out.status.success(), "up failed: {}", String::from_utf8_lossy(&out.stderr));
    data
}

fn stop(data: &std::path::Path) {
    let _ = Command::new(binary()).args(["down", "--data"]).arg(data).output();
    if let Some(dir) = data.parent() {
        let _ = std::fs::remove_dir_all(dir);
    }
}

/// A client, and a pool that is removed when the test succeeds.
pub struct Bed {
    pub cluster: Cluster,
    pub pool: IoCtx,
    pub server: Server,
}

/// Runs a test with a client and a new pool, under a time limit that says when something hangs.
pub fn with_pool<F: Future<Output = ()>>(name: &str, limit: Duration, test: impl FnOnce(Bed) -> F) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let server = Server::get();
    let pool_name = format!("rados-test-{name}-{}", std::process::id());
    let body = async {
        let cluster = Cluster::connect(server.config()).await.expect("the cluster lets us in");
        let pool = make_pool(&cluster, &pool_name).await;
        test(Bed { cluster: cluster.clone(), pool, server: Server::get() }).await;
        let remove = json!({
            "prefix": "osd pool delete", "pool": pool_name, "pool2": pool_name, "yes_i_really_really_mean_it": true
        });
        allow_removal(&cluster).await;
        cluster.mon_command(&remove.to_string(), Bytes::new()).await.expect("the pool is removed");
    };
    runtime.block_on(async { tokio::time::timeout(limit, body).await }).expect("the test ends in time");
    drop(server);
}

pub async fn make_pool(cluster: &Cluster, name: &str) -> IoCtx {
    let create = json!({"prefix": "osd pool create", "pool": name, "pg_num": 8});
    cluster.mon_command(&create.to_string(), Bytes::new()).await.expect("a pool is made");
    let pool = cluster.pool(name).await.expect("the new pool");
    pool.enable_application("rados", false).await.expect("its application");
    pool
}

/// Real clusters forbid it by default.
async fn allow_removal(cluster: &Cluster) {
    let allow = json!({
        "prefix": "config set", "who": "mon", "name": "mon_allow_pool_delete", "value": "true"
    });
    cluster.mon_command(&allow.to_string(), Bytes::new()).await.expect("removal of pools is allowed");
}

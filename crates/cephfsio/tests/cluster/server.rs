//! Clusters of ours, one with Ceph's metadata servers and one with our own. Each serves all tests of a run
//! and stops with the last one that uses it.

use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Two ranks, and a standby for whoever is failed.
const SERVERS: [&str; 3] = ["a", "b", "c"];
/// Longer than anything takes that does not hang.
const PATIENCE: Duration = Duration::from_secs(120);

/// Whose metadata servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Ceph,
    Loligo,
}

/// How many tests use a cluster, and the cluster.
type Slot = Mutex<(usize, Option<Running>)>;

static ON_CEPHS: Slot = Mutex::new((0, None));
static ON_OURS: Slot = Mutex::new((0, None));

struct Running {
    kind: Kind,
    dir: tempfile::TempDir,
    servers: Vec<Child>,
}

/// Keeps the cluster running.
pub struct Server {
    pub kind: Kind,
    pub conf: PathBuf,
}

impl Kind {
    fn slot(self) -> &'static Slot {
        match self {
            Kind::Ceph => &ON_CEPHS,
            Kind::Loligo => &ON_OURS,
        }
    }
}

impl Server {
    /// `None` where there is no `ceph-mds`, unless it must be there, and for servers of ours where the
    /// environment names a cluster.
    pub fn get(kind: Kind) -> Option<Self> {
        if let Some(conf) = std::env::var_os("CEPHFS_TEST_CONF") {
            return (kind == Kind::Ceph).then(|| Self { kind, conf: conf.into() });
        }
        if kind == Kind::Ceph && !is_installed("ceph-mds") {
            return None;
        }
        let mut running = kind.slot().lock().unwrap_or_else(PoisonError::into_inner);
        let (users, cluster) = &mut *running;
        let cluster = cluster.get_or_insert_with(|| Running::start(kind));
        *users += 1;
        Some(Self { kind, conf: cluster.conf() })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if std::env::var_os("CEPHFS_TEST_CONF").is_some() {
            return;
        }
        let mut running = self.kind.slot().lock().unwrap_or_else(PoisonError::into_inner);
        running.0 -= 1;
        if running.0 == 0 {
            running.1 = None;
        }
    }
}

fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|dir| dir.join(program).is_file());
    assert!(found || std::env::var_os("LOLIGO_REQUIRE_PEERS").is_none(), "{program} is not installed");
    if !found {
        eprintln!("not tried: {program} is not installed");
    }
    found
}

fn binary() -> PathBuf {
    if let Some(named) = std::env::var_os("LOLIGO_BIN") {
        return named.into();
    }
    // Tests lie in target/PROFILE/deps.
    let test = std::env::current_exe().expect("our own path");
    let built = test.ancestors().nth(2).expect("a target folder").join("loligo");
    assert!(built.is_file(), "build loligo first, or name it with LOLIGO_BIN: no {}", built.display());
    built
}

/// A port for the monitor, below those that the kernel gives to whoever asks for any.
fn mon_port(kind: Kind) -> u16 {
    let first = 10_000 + (std::process::id() % 20_000) as u16;
    // Both clusters may start at once.
    let first = if kind == Kind::Loligo { first + 100 } else { first };
    let free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
    (first..first + 100).find(free).expect("a free port")
}

impl Running {
    fn start(kind: Kind) -> Self {
        let mut cluster = Self { kind, dir: tempfile::tempdir().expect("a folder"), servers: Vec::new() };
        let port = mon_port(kind).to_string();
        cluster.loligo(&["up", "--detach", "--mon-port", &port, "--osds", "3"]);
        for pool in ["meta", "data"] {
            cluster.ceph(&["osd", "pool", "create", pool, "8"]);
        }
        cluster.ceph(&["fs", "new", "cephfs", "meta", "data"]);
        for id in SERVERS {
            let server = cluster.start_server(id);
            cluster.servers.push(server);
        }
        let begin = Instant::now();
        while !cluster.is_served() {
            assert!(
                begin.elapsed() < PATIENCE,
                "no metadata server is active: {}",
                cluster.ceph(&["status"])
            );
            std::thread::sleep(Duration::from_millis(100));
        }
        cluster
    }

    fn conf(&self) -> PathBuf {
        self.dir.path().join("data/ceph.conf")
    }

    fn loligo(&self, args: &[&str]) {
        let out = Command::new(binary()).args(args).arg("--data").arg(self.dir.path().join("data")).output();
        let out = out.expect("loligo runs");
        assert!(out.status.success(), "loligo {args:?}: {}", String::from_utf8_lossy(&out.stderr));
    }

    fn ceph(&self, words: &[&str]) -> String {
        let mut command = Command::new("timeout");
        let out = command.args(["60", "ceph"]).args(words).env("CEPH_CONF", self.conf()).output();
        let out = out.expect("ceph runs");
        assert!(out.status.success(), "ceph {words:?}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8_lossy(&out.stdout).into_owned()
    }

    fn start_server(&self, id: &str) -> Child {
        let at = |what: &str| self.dir.path().join(format!("mds-{what}.{id}"));
        let name = format!("mds.{id}");
        let mut words = vec!["auth", "get-or-create", &name, "mon", "allow profile mds", "mds", "allow"];
        words.extend(["osd", "allow rw tag cephfs *=*", "mgr", "allow profile mds"]);
        std::fs::write(at("keyring"), self.ceph(&words)).expect("written");
        std::fs::create_dir_all(at("data")).expect("a folder");
        let option = |option: &str, path: &Path| format!("--{option}={}", path.display());
        let mut command = match self.kind {
            Kind::Ceph => {
                let mut command = Command::new("ceph-mds");
                command.args(["-f", "-i", id]).env("CEPH_CONF", self.conf());
                command
            }
            Kind::Loligo => {
                let mut command = Command::new(binary());
                command.args(["mds", "-i", id]).arg("-c").arg(self.conf());
                command
            }
        };
        command.arg(option("keyring", &at("keyring"))).arg(option("mds-data", &at("data")));
        command.arg(option("log-file", &at("log")));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().expect("it starts")
    }

    /// One server holds the rank, and the others stand by.
    fn is_served(&self) -> bool {
        let dump: serde_json::Value =
            serde_json::from_str(&self.ceph(&["fs", "dump", "-f", "json"])).expect("JSON");
        let standbys = dump["standbys"].as_array().map_or(0, Vec::len);
        let info = dump["filesystems"][0]["mdsmap"]["info"].as_object().cloned().unwrap_or_default();
        info.values().any(|i| i["state"] == "up:active") && standbys == SERVERS.len() - 1
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        for server in &mut self.servers {
            let _ = server.kill();
            let _ = server.wait();
        }
        let data = self.dir.path().join("data");
        let _ = Command::new(binary()).args(["down", "--data"]).arg(data).output();
    }
}

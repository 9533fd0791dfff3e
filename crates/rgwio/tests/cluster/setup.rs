//! A cluster of ours, and Ceph's own gateway and its tool on it.

use std::io::Write;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use rados::Config;
use serde_json::Value;

/// Longer than anything takes that does not hang.
const PATIENCE: Duration = Duration::from_secs(240);

pub fn installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|dir| dir.join(program).is_file());
    assert!(found || std::env::var_os("LOLIGO_REQUIRE_PEERS").is_none(), "{program} is not installed");
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

/// Below those that the kernel gives to whoever asks for any.
fn port() -> u16 {
    static USED: AtomicU16 = AtomicU16::new(0);
    let first = 10_000 + (std::process::id() % 20_000) as u16;
    let mut ports = (0..1000).map(|_| first + USED.fetch_add(1, Ordering::Relaxed));
    ports.find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok()).expect("a free port")
}

fn text(out: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr))
}

/// Stops when it is dropped.
pub struct Server {
    dir: tempfile::TempDir,
}

impl Server {
    pub fn start() -> Self {
        let server = Self { dir: tempfile::tempdir().expect("a folder") };
        let port = port().to_string();
        let mut up = Command::new(binary());
        let out = up.args(["up", "--detach", "--mon-port", &port, "--data"]).arg(server.data()).output();
        let out = out.expect("loligo runs");
        assert!(out.status.success(), "up failed: {}", text(&out));
        server
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    pub fn config(&self) -> Config {
        Config::from_file(self.data().join("ceph.conf")).expect("the cluster's configuration")
    }

    fn client(&self, program: &str) -> Command {
        let mut command = Command::new("timeout");
        command.args(["--kill-after=5", "120", program]).env("CEPH_CONF", self.data().join("ceph.conf"));
        command
    }

    /// What radosgw-admin prints.
    pub fn admin_line(&self, line: &str) -> String {
        let out = self.client("radosgw-admin").args(line.split(' ')).output().expect("it runs");
        assert!(out.status.success(), "radosgw-admin {line}: {}", text(&out));
        String::from_utf8_lossy(&out.stdout).into_owned()
    }

    /// What Ceph's own `rados` prints.
    pub fn rados(&self, words: &[&str]) -> String {
        let out = self.client("rados").args(words).output().expect("it runs");
        assert!(out.status.success(), "rados {words:?}: {}", text(&out));
        String::from_utf8_lossy(&out.stdout).into_owned()
    }

    pub fn admin(&self, line: &str) -> Value {
        let said = self.admin_line(line);
        // Some commands say one thing after the other.
        let mut values = serde_json::Deserializer::from_str(&said).into_iter::<Value>();
        values.next().and_then(Result::ok).unwrap_or_else(|| panic!("radosgw-admin {line}: {said}"))
    }

    pub fn has_stock(&self) -> bool {
        installed("radosgw")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = Command::new(binary()).args(["down", "--data"]).arg(self.data()).output();
    }
}

/// Ceph's own gateway.
pub struct Stock<'a> {
    server: &'a Server,
    child: Child,
    port: u16,
}

impl<'a> Stock<'a> {
    pub fn start(server: &'a Server) -> Self {
        let at = |name: &str| server.dir.path().join(format!("rgw.{name}"));
        let words = ["auth", "get-or-create", "client.rgw.x", "mon", "allow rw", "osd", "allow rwx"];
        let key = server.client("ceph").args(words).output().expect("ceph runs");
        assert!(key.status.success(), "{}", text(&key));
        std::fs::write(at("keyring"), key.stdout).expect("written");
        std::fs::create_dir_all(at("data")).expect("a folder");
        let port = port();
        let mut command = Command::new("radosgw");
        command.args(["-f", "-n", "client.rgw.x"]).env("CEPH_CONF", server.data().join("ceph.conf"));
        for (option, path) in [("keyring", at("keyring")), ("rgw-data", at("data")), ("log-file", at("log"))]
        {
            command.arg(format!("--{option}={}", path.display()));
        }
        command.arg(format!("--rgw-frontends=beast endpoint=127.0.0.1:{port} tcp_nodelay=1"));
        command.stdout(Stdio::null()).stderr(Stdio::null()).stdin(Stdio::null());
        let mut stock = Self { server, child: command.spawn().expect("radosgw starts"), port };
        let begin = Instant::now();
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            let ended = stock.child.try_wait().expect("a child");
            let log = || std::fs::read_to_string(at("log")).unwrap_or_default();
            assert!(ended.is_none() && begin.elapsed() < PATIENCE, "radosgw does not listen: {}", log());
            std::thread::sleep(Duration::from_millis(50));
        }
        stock
    }

    /// What one of the steps of `peer.py` found.
    pub fn python(&self, step: &str, input: &Value) -> Value {
        let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cluster/peer.py");
        let endpoint = format!("http://127.0.0.1:{}", self.port);
        let mut command = self.server.client("/usr/bin/python3");
        command.args(["-B", program, &endpoint, step]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::piped()).spawn().expect("python runs");
        let mut stdin = child.stdin.take().expect("piped");
        stdin.write_all(input.to_string().as_bytes()).expect("it reads");
        drop(stdin);
        let out = child.wait_with_output().expect("it ends");
        assert!(out.status.success(), "{step}: {}", text(&out));
        serde_json::from_slice(&out.stdout).unwrap_or_else(|e| panic!("{step}: {e}: {}", text(&out)))
    }
}

impl Drop for Stock<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

//! A throw-away cluster of real processes, with faults by the environment, and our own client of it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rados::{Config, IoCtx};
use serde_json::Value;

pub struct Cluster {
    pub dir: tempfile::TempDir,
    env: Vec<(&'static str, String)>,
}

/// Waits for what comes about; far longer than it takes on a loaded machine.
pub async fn until(what: &str, mut good: impl AsyncFnMut() -> bool) {
    let begin = Instant::now();
    while !good().await {
        assert!(begin.elapsed() < Duration::from_secs(120), "{what} did not come about");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

impl Cluster {
    /// `loligo up --detach`, its environment made from the cluster's folder.
    pub fn start(args: &[&str], env: impl FnOnce(&std::path::Path) -> Vec<(&'static str, String)>) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let env = env(dir.path());
        let cluster = Self { dir, env };
        let up = ["up", "--detach", "--mon-port", "0", "--timeout", "240"];
        let out = cluster.command(&[&up[..], args].concat()).output().expect("loligo runs");
        assert!(out.status.success(), "{}", text(&out));
        cluster
    }

    pub fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_loligo"));
        command.args(args).arg("--data").arg(self.data()).envs(self.env.iter().cloned());
        command
    }

    /// Starts one daemon as a process of its own whose words are kept.
    pub fn daemon(&self, kind: &str, id: &str, env: (&str, &str)) -> Child {
        let mut command = self.command(&[kind, "--id", id]);
        command.env(env.0, env.1).stdout(Stdio::null()).stderr(Stdio::piped());
        command.spawn().expect("loligo runs")
    }

    pub fn pid(&self, name: &str) -> Option<u32> {
        std::fs::read_to_string(self.data().join(format!("{name}.pid"))).ok()?.trim().parse().ok()
    }

    /// `loligo status`, as JSON.
    pub fn status(&self) -> Value {
        let out = self.command(&["status", "--json"]).output().expect("loligo runs");
        serde_json::from_slice(&out.stdout).unwrap_or_default()
    }

    /// What is remembered of a daemon's failures.
    pub fn failure(&self, name: &str) -> Value {
        let text = std::fs::read(self.data().join(format!("{name}.failure"))).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }

    pub async fn client(&self) -> rados::Cluster {
        let config = Config::from_file(self.data().join("ceph.conf")).expect("a configuration");
        rados::Cluster::connect(config).await.expect("connected")
    }

    /// A pool with two copies that takes no write while it has fewer.
    pub async fn pool(&self, client: &rados::Cluster, min_size: u32) -> IoCtx {
        for command in [
            r#"{"prefix": "osd pool create", "pool": "p", "pg_num": 8}"#.to_owned(),
            format!(r#"{{"prefix": "osd pool set", "pool": "p", "var": "min_size", "val": "{min_size}"}}"#),
        ] {
            client.mon_command(&command, bytes::Bytes::new()).await.expect("the pool is made");
        }
        client.pool("p").await.expect("the pool")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for entry in std::fs::read_dir(self.data()).into_iter().flatten().flatten() {
                let path = entry.path();
                if path.extension().is_some_and(|e| e == "log" || e == "failure") {
                    let log = std::fs::read_to_string(&path).unwrap_or_default();
                    let tail: Vec<&str> = log.lines().rev().take(40).collect();
                    eprintln!("--- {}", path.display());
                    tail.iter().rev().for_each(|line| eprintln!("{line}"));
                }
            }
        }
        let _ = self.command(&["down"]).output();
    }
}

pub fn text(out: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr))
}

/// Writes a few objects at a time, each once, until it is told to stop or has written many: 220 MiB at most,
/// for which two copies have to find room whichever OSDs hold them.
#[derive(Clone, Default)]
pub struct Writer {
    acked: Arc<Mutex<BTreeMap<String, Vec<u8>>>>,
    next: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
}

impl Writer {
    const MOST: usize = 30_000;

    pub fn start(io: &IoCtx, depth: usize) -> Self {
        let writer = Self::default();
        for _ in 0..depth {
            tokio::spawn(writer.clone().write(io.clone()));
        }
        writer
    }

    async fn write(self, io: IoCtx) {
        while !self.stop.load(Ordering::SeqCst) {
            let n = self.next.fetch_add(1, Ordering::SeqCst);
            if n >= Self::MOST {
                return;
            }
            let (name, content) = (format!("w{n}"), format!("{n:08}").repeat([1, 300, 2_500][n % 3]));
            if io.write_full(&name, content.clone()).await.is_ok() {
                self.acked.lock().expect("no panic").insert(name, content.into_bytes());
            }
        }
    }

    pub fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
    }

    pub fn acked(&self) -> BTreeMap<String, Vec<u8>> {
        self.acked.lock().expect("no panic").clone()
    }

    /// It has written all that it ever writes.
    pub fn is_done(&self) -> bool {
        self.next.load(Ordering::SeqCst) >= Self::MOST
    }

    pub fn count(&self) -> usize {
        self.acked.lock().expect("no panic").len()
    }
}

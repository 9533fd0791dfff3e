//! Ceph's own radosgw and radosgw-admin on our monitors and OSDs.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use crate::cluster::{Cluster, PATIENCE, asked, mon_port, runs, text, until};
use crate::managers::installed;

/// A gateway, which ends with the test.
pub struct Gateway {
    child: Child,
    pub endpoint: String,
}

impl Gateway {
    pub fn start(c: &Cluster) -> Self {
        let at = |name: &str| c.dir.path().join(format!("rgw.{name}"));
        let name = "client.rgw.x";
        let key = c.ok("ceph", &["auth", "get-or-create", name, "mon", "allow rw", "osd", "allow rwx"]);
        std::fs::write(at("keyring"), key).expect("written");
        std::fs::create_dir_all(at("data")).expect("a folder");
        let port = mon_port();
        let mut command = Command::new("radosgw");
        command.args(["-f", "-n", name]).env("CEPH_CONF", c.data().join("ceph.conf"));
        for (option, path) in [("keyring", at("keyring")), ("rgw-data", at("data")), ("log-file", at("log"))]
        {
            command.arg(format!("--{option}={}", path.display()));
        }
        command.arg(format!("--rgw-frontends=beast endpoint=127.0.0.1:{port} tcp_nodelay=1"));
        // A second is a day of a lifecycle; what is used is logged each second.
        command.args(["--rgw-lc-debug-interval=1", "--rgw-enable-usage-log=true"]);
        command.args(["--rgw-usage-log-tick-interval=1", "--rgw-thread-pool-size=32"]);
        command.stdout(Stdio::null()).stderr(Stdio::null()).stdin(Stdio::null());
        let child = command.spawn().expect("radosgw starts");
        let mut gateway = Self { child, endpoint: format!("http://127.0.0.1:{port}") };
        until("a gateway that listens", || {
            let ended = gateway.child.try_wait().expect("a child");
            assert!(
                ended.is_none(),
                "radosgw ended: {}",
                std::fs::read_to_string(at("log")).unwrap_or_default()
            );
            std::net::TcpStream::connect(format!("127.0.0.1:{port}")).is_ok()
        });
        gateway
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn program() -> String {
    concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/radosgw.py").to_owned()
}

/// Writes objects until its input ends; then it reads all of them back.
struct Writer {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Writer {
    fn start(c: &Cluster, gateway: &Gateway) -> Self {
        let mut command = Command::new("/usr/bin/python3");
        command.args(["-B", &program(), &gateway.endpoint, "write"]);
        command.env("CEPH_CONF", c.data().join("ceph.conf"));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("python starts");
        let (input, from) = (child.stdin.take(), child.stdout.take().expect("piped"));
        let (send, lines) = channel();
        // Ends with the writer, or with what reads.
        std::thread::spawn(move || {
            BufReader::new(from).lines().map_while(Result::ok).all(|line| send.send(line).is_ok())
        });
        Self { child, input, lines }
    }

    fn line(&mut self, what: &str) -> String {
        self.lines.recv_timeout(PATIENCE).unwrap_or_else(|e| panic!("{what} never came about: {e}"))
    }

    /// Waits for so many further reports, each of ten objects that were written.
    fn goes_on(&mut self, reports: usize) {
        (0..reports).for_each(|_| drop(self.line("ten more objects")));
    }

    /// How many objects are there, with the bytes that were written last.
    fn end(mut self) -> usize {
        drop(self.input.take());
        loop {
            if let Some(count) = self.line("all objects, read back").strip_prefix("read ") {
                return count.trim().parse().expect("a number");
            }
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn osd_socket(c: &Cluster) -> PathBuf {
    c.data().join("ceph-osd.1.asok")
}

#[test]
fn cephs_gateway_serves_from_our_osds() {
    if !installed("radosgw") {
        return;
    }
    let c = Cluster::start(&["--processes"]);
    let gateway = Gateway::start(&c);
    let out = c.client("/usr/bin/python3", &["-B", &program(), &gateway.endpoint, "steps"]);
    assert!(out.status.success() && text(&out).ends_with("done\n"), "{}", text(&out));
    until("a gateway in the status", || c.ceph("status").contains("rgw: 1 daemon active"));

    let mut writer = Writer::start(&c, &gateway);
    writer.goes_on(3);
    let (_, pid) = c.pids().into_iter().find(|(name, _)| name == "osd.1").expect("it runs");
    assert!(Command::new("kill").args(["-9", &pid.to_string()]).status().expect("kill runs").success());
    until("its end", || !runs(pid));
    writer.goes_on(6);
    assert_eq!(asked(&osd_socket(&c), "status"), serde_json::Value::Null, "it was not started again yet");
    c.up(&["--processes"]);
    writer.goes_on(3);
    let objects = writer.end();
    assert!(objects >= 60, "{objects}");
    c.healthy();
}

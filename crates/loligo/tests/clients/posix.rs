//! The list of system calls (`posix/posix.py`) on two mounts of ceph-fuse, with Ceph's metadata server.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::cluster::{Cluster, runs, text, until};
use crate::file_systems::{CephMds, active};
use crate::managers::installed;

/// A mounted folder, which is unmounted at the end.
struct Mounted {
    child: Child,
    at: PathBuf,
}

impl Mounted {
    fn start(c: &Cluster, name: &str) -> Self {
        let at = c.dir.path().join(name);
        std::fs::create_dir_all(&at).expect("a folder");
        let mut command = Command::new("ceph-fuse");
        command.args(["-f", "--id", "admin"]).arg(&at).env("CEPH_CONF", c.data().join("ceph.conf"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mounted = Self { child: command.spawn().expect("ceph-fuse starts"), at };
        until("a mount", || is_mounted(&mounted.at));
        mounted
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.at).status();
        // Its process ends with the mount; what is busy stays mounted, and its process is ended.
        if is_mounted(&self.at) {
            let _ = Command::new("umount").arg("--lazy").arg(&self.at).status();
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
        assert!(std::thread::panicking() || !runs(self.child.id()), "ceph-fuse ended");
    }
}

fn is_mounted(at: &Path) -> bool {
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap_or_default();
    mounts.lines().any(|line| line.split(' ').nth(1) == at.to_str())
}

#[test]
fn system_calls_through_ceph_fuse() {
    if !installed("ceph-mds") || !installed("ceph-fuse") {
        return;
    }
    if !Path::new("/dev/fuse").exists() {
        return eprintln!("not tried: there is no /dev/fuse");
    }
    let c = Cluster::start(&[]);
    c.managed();
    c.ceph("osd pool create meta 8");
    c.ceph("osd pool create data 8");
    c.ceph("fs new fs meta data");
    let _server = CephMds::start(&c, "a");
    active(&c, 1);
    let (one, two) = (Mounted::start(&c, "one"), Mounted::start(&c, "two"));
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../posix/posix.py");
    let mut command = Command::new("timeout");
    let out = command.args(["300", "/usr/bin/python3"]).arg(program).args([&one.at, &two.at]).output();
    let out = out.expect("it runs");
    println!("{}", text(&out));
    assert!(out.status.success(), "a case failed");
}

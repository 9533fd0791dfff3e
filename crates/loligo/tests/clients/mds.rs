//! `loligo up --fs`: our metadata server, mounted through libcephfs; what was written outlives `kill -9`.

use serde_json::Value;

use crate::cluster::{Cluster, text, until};
use crate::managers::installed;

/// Fills a file system, or compares what is in it: `fill` and `check` walk through the same steps.
const FILES: &str = r"
import cephfs, hashlib, os, stat, sys
f = cephfs.LibCephFS(conffile=os.environ['CEPH_CONF'], auth_id='admin'); f.mount()
def content(name):
    block = hashlib.sha256(name.encode()).digest()
    return (block * 8000)[:1 + int.from_bytes(block[:3], 'little') % 250000]
names = ['/a/b/f%d' % i for i in range(40)] + ['/a/g%d' % i for i in range(10)]
def fill():
    f.mkdirs('/a/b/c', 0o750)
    for name in names:
        fd = f.open(name, 'w', 0o644)
        f.write(fd, content(name), 0); f.fsync(fd, 0); f.close(fd)
    f.rename('/a/b/f0', '/a/b/c/moved')
    f.unlink('/a/b/f1')
    f.symlink('../g0', '/a/b/to-g0')
    f.link('/a/g1', '/a/b/c/hard')
    f.setxattr('/a/g2', 'user.colour', b'blue', 0)
    f.chmod('/a/g3', 0o600)
    f.truncate('/a/g4', 1000)
    f.mkdir('/a/empty', 0o700); f.mkdir('/a/gone', 0o700); f.rmdir('/a/gone')
    f.sync_fs()
def read(path):
    fd = f.open(path, 'r', 0)
    out, part = b'', f.read(fd, 0, 1 << 20)
    while part:
        out += part
        part = f.read(fd, len(out), 1 << 20)
    f.close(fd)
    return out
def listing(path):
    d = f.opendir(path); out = []
    entry = f.readdir(d)
    while entry:
        out.append(entry.d_name.decode()); entry = f.readdir(d)
    f.closedir(d)
    return sorted(n for n in out if n not in ('.', '..'))
def check():
    for name in names:
        if name in ('/a/b/f0', '/a/b/f1', '/a/g4'): continue
        assert read(name) == content(name), name
    assert read('/a/b/c/moved') == content('/a/b/f0')
    assert read('/a/b/c/hard') == content('/a/g1') and f.stat('/a/g1').st_nlink == 2
    assert f.readlink('/a/b/to-g0', 100) == b'../g0' and read('/a/b/to-g0') == content('/a/g0')
    assert f.getxattr('/a/g2', 'user.colour') == b'blue'
    assert stat.S_IMODE(f.stat('/a/g3').st_mode) == 0o600
    assert read('/a/g4') == content('/a/g4')[:1000]
    assert listing('/a') == sorted(['b', 'empty'] + ['g%d' % i for i in range(10)]), listing('/a')
    assert listing('/a/b') == sorted(['c', 'to-g0'] + ['f%d' % i for i in range(2, 40)]), listing('/a/b')
    assert listing('/a/empty') == []
for step in sys.argv[1:]:
    {'fill': fill, 'check': check}[step]()
f.unmount()
print('done')
";

fn run(c: &Cluster, steps: &[&str]) {
    let out = c.python(FILES, steps);
    assert!(out.status.success() && text(&out).contains("done"), "{steps:?}: {}", text(&out));
}

fn json(c: &Cluster, line: &str) -> Value {
    serde_json::from_str(&c.ceph(&format!("{line} -f json"))).expect("JSON")
}

#[test]
fn a_file_system_is_there_after_a_kill() {
    // Comes with what libcephfs is tested with elsewhere.
    if !installed("ceph-mds") {
        return;
    }
    let c = Cluster::start(&["--fs"]);
    let secret = std::fs::read_to_string(c.data().join("admin.secret")).expect("the key for mount.ceph");
    assert_eq!(c.ceph("auth get-key client.admin").trim(), secret.trim());
    run(&c, &["fill", "check"]);
    c.healthy();
    for _ in 0..2 {
        c.end_all();
        // The folder knows of its metadata server.
        c.up(&[]);
        until("a rank that serves", || c.ceph("mds stat").contains("up:active"));
        run(&c, &["check"]);
    }
}

/// A folder from before it had a file system gets one, once.
#[test]
fn an_existing_cluster_gets_a_file_system() {
    if !installed("ceph-mds") {
        return;
    }
    let c = Cluster::start(&[]);
    assert_eq!(json(&c, "fs ls"), Value::Array(vec![]));
    for _ in 0..2 {
        let out = c.loligo(&["up", "--detach", "--fs"]);
        let said = text(&out);
        assert!(out.status.success(), "{said}");
        let conf = c.data().join("ceph.conf");
        assert!(said.contains(&format!("ceph-fuse -c {}", conf.display())), "{said}");
        assert!(said.contains(&format!("mount -t ceph {}:/", c.mon_addr())), "{said}");
    }
    assert_eq!(json(&c, "fs ls")[0]["name"], "cephfs");
    run(&c, &["fill", "check"]);
    let status: Value = serde_json::from_str(&c.ceph("tell mds.a status")).expect("JSON");
    assert_eq!(
        (&status["state"], &status["whoami"], &status["fs_name"]),
        (&"up:active".into(), &0.into(), &"cephfs".into())
    );
}

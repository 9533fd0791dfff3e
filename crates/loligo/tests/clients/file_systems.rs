//! Ceph's metadata servers on monitors and OSDs of ours: a file system is mounted through libcephfs, survives the death
//! of the server, and is served by two ranks and by one again.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::cluster::{Cluster, until};
use crate::managers::installed;

/// A metadata server of Ceph's, which is killed at the end.
pub struct CephMds {
    child: Child,
    log: PathBuf,
}

impl CephMds {
    /// As `mds.<id>`, with a key of its own.
    pub fn start(c: &Cluster, id: &str) -> Self {
        let at = |name: &str| c.dir.path().join(format!("mds-{name}.{id}"));
        let name = format!("mds.{id}");
        let mut words = vec!["auth", "get-or-create", &name, "mon", "allow profile mds", "mds", "allow"];
        words.extend(["osd", "allow rw tag cephfs *=*", "mgr", "allow profile mds"]);
        let key = c.ok("ceph", &words);
        std::fs::write(at("keyring"), key).expect("written");
        std::fs::create_dir_all(at("data")).expect("a folder");
        let mut command = Command::new("ceph-mds");
        command.args(["-f", "-i", id]).env("CEPH_CONF", c.data().join("ceph.conf"));
        for (option, path) in [("keyring", at("keyring")), ("mds-data", at("data")), ("log-file", at("log"))]
        {
            command.arg(format!("--{option}={}", path.display()));
        }
        command.stdout(Stdio::null()).stderr(Stdio::null()).stdin(Stdio::null());
        Self { child: command.spawn().expect("ceph-mds starts"), log: at("log") }
    }

    /// `kill -9`.
    fn kill(mut self) {
        self.child.kill().expect("it ran");
        self.child.wait().expect("it ended");
    }
}

impl Drop for CephMds {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = std::fs::read_to_string(&self.log).unwrap_or_default();
            let tail: Vec<&str> = log.lines().rev().take(15).collect();
            eprintln!("{}:\n{}", self.log.display(), tail.into_iter().rev().collect::<Vec<_>>().join("\n"));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A mounted client: it does what a line says, and answers with a line.
struct Mount {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

/// `write DIR N SEED` writes and syncs N files, `over DIR N SEED` writes over them, `read DIR N SEED`
/// compares them; `pin DIR RANK`, `snap DIR NAME`, `unsnap DIR NAME`.
const MOUNT: &str = r#"
import cephfs, hashlib, os, sys
f = cephfs.LibCephFS(conffile=os.environ['CEPH_CONF'], auth_id='admin'); f.mount()
def content(name, seed):
    block = hashlib.sha256((name.rsplit('/', 1)[-1] + seed).encode()).digest()
    return (block * 4000)[:1 + int.from_bytes(block[:3], 'little') % 120000]
def write(where, n, seed):
    try: f.mkdirs(where, 0o755)
    except cephfs.ObjectExists: pass
    for i in range(int(n)):
        name = '%s/f%d' % (where, i)
        fd = f.open(name, 'w', 0o644)
        f.write(fd, content(name, seed), 0); f.fsync(fd, 0); f.close(fd)
        f.rename(name, name + '.done')
def over(where, n, seed):
    for i in range(int(n)):
        name = '%s/f%d' % (where, i)
        fd = f.open(name + '.done', 'w')
        f.write(fd, content(name, seed), 0); f.fsync(fd, 0); f.close(fd)
def read(where, n, seed):
    for i in range(int(n)):
        name = '%s/f%d' % (where, i)
        fd = f.open(name + '.done', 'r')
        got = f.read(fd, 0, 1 << 20); f.close(fd)
        if got != content(name, seed): raise ValueError(name + ' differs')
    with f.opendir(where) as d:
        names = set(e.d_name for e in iter(lambda: f.readdir(d), None)) - {b'.', b'..'}
    if len(names) != int(n): raise ValueError('%d names' % len(names))
def pin(where, rank): f.setxattr(where, 'ceph.dir.pin', rank.encode(), 0)
def snap(where, name): f.mkdir('%s/.snap/%s' % (where, name), 0o755)
def unsnap(where, name): f.rmdir('%s/.snap/%s' % (where, name))
print('mounted', flush=True)
for line in sys.stdin:
    what, *args = line.split()
    try: globals()[what](*args); print('ok', flush=True)
    except Exception as e: print(repr(e), flush=True)
f.unmount()
print('unmounted', flush=True)
"#;

impl Mount {
    fn start(c: &Cluster) -> Self {
        let mut command = Command::new("/usr/bin/python3");
        command.args(["-c", MOUNT]).env("CEPH_CONF", c.data().join("ceph.conf"));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("python starts");
        let (to, from) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        let mut mount = Self { child, to, from: BufReader::new(from) };
        mount.hears("mounted");
        mount
    }

    fn hears(&mut self, wanted: &str) {
        let mut line = String::new();
        self.from.read_line(&mut line).expect("it answers");
        assert_eq!(line.trim(), wanted);
    }

    fn tell(&mut self, line: &str) {
        writeln!(self.to, "{line}").expect("it listens");
    }

    fn does(&mut self, line: &str) {
        self.tell(line);
        self.hears("ok");
    }

    fn end(mut self) {
        drop(std::mem::replace(&mut self.to, {
            let mut idle = Command::new("true").stdin(Stdio::piped()).spawn().expect("true runs");
            let input = idle.stdin.take().expect("piped");
            idle.wait().expect("it ended");
            input
        }));
        self.hears("unmounted");
        assert!(self.child.wait().expect("it ended").success());
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn map(c: &Cluster) -> Value {
    serde_json::from_str(&c.ceph("fs dump -f json")).expect("JSON")
}

/// Names and states of those who hold ranks, by rank.
fn holders(c: &Cluster) -> Vec<(String, String)> {
    let map = map(c);
    let info = map["filesystems"][0]["mdsmap"]["info"].as_object().cloned().unwrap_or_default();
    let mut all: Vec<(i64, String, String)> = info
        .values()
        .map(|i| {
            let text = |name: &str| i[name].as_str().unwrap_or_default().to_owned();
            (i["rank"].as_i64().unwrap_or(-1), text("name"), text("state"))
        })
        .collect();
    all.sort();
    all.into_iter().map(|(_, name, state)| (name, state)).collect()
}

pub fn active(c: &Cluster, ranks: usize) -> Vec<String> {
    let all_active =
        |held: &[(String, String)]| held.len() == ranks && held.iter().all(|(_, state)| state == "up:active");
    until("active ranks", || all_active(&holders(c)));
    holders(c).into_iter().map(|(name, _)| name).collect()
}

/// Objects of a pool that still hold data of a snapshot.
fn clones(c: &Cluster, pool: &str) -> usize {
    let objects = c.ok("rados", &["-p", pool, "ls"]);
    let of = |object: &str| c.ok("rados", &["-p", pool, "listsnaps", object]);
    // Two lines of a heading, a line for each clone, and the head.
    let has_clone = |text: &String| text.lines().skip(2).any(|line| !line.starts_with("head"));
    objects.lines().map(of).filter(has_clone).count()
}

/// From a kill until a client goes on: two seconds until the monitor gives the rank away, and the journal's replay.
const WITHOUT: Duration = Duration::from_secs(40);

#[test]
fn a_file_system_survives_its_servers() {
    if !installed("ceph-mds") {
        return;
    }
    let c = Cluster::start(&["--processes"]);
    c.managed();
    // Without an application: the file system names itself.
    c.ceph("osd pool create meta 8");
    c.ceph("osd pool create data 8");
    let mut servers = vec![("a", CephMds::start(&c, "a"))];
    c.ceph("fs new fs meta data");
    active(&c, 1);
    servers.push(("b", CephMds::start(&c, "b")));
    until("a standby", || map(&c)["standbys"].as_array().is_some_and(|s| s.len() == 1));
    let mut mount = Mount::start(&c);
    mount.does("write /one 20 1");
    mount.does("snap /one first");
    mount.does("over /one 20 5");

    // The holder of the rank dies in the middle of work.
    let held = active(&c, 1).remove(0);
    let at = servers.iter().position(|(name, _)| *name == held).expect("one of ours");
    mount.tell("write /two 30 2");
    let (name, server) = servers.remove(at);
    let killed = Instant::now();
    server.kill();
    mount.hears("ok");
    println!("after a kill the client went on within {:?}", killed.elapsed());
    assert!(killed.elapsed() < WITHOUT);
    assert_ne!(active(&c, 1), [name.to_owned()]);
    let blocked = c.ceph("osd blocklist ls");
    assert!(blocked.lines().count() >= 2, "both of its addresses: {blocked}");

    // Two ranks, and one again.
    servers.push((name, CephMds::start(&c, name)));
    c.ceph("fs set fs max_mds 2");
    active(&c, 2);
    mount.does("write /three 5 3");
    mount.does("pin /three 1");
    mount.does("write /three/four 20 4");
    // MDSs report their sessions to the manager every five seconds.
    let mut shown = String::new();
    until("the client's session in `fs status`", || {
        shown = c.ceph("fs status");
        shown.contains("fs - 1 clients\n==\n")
    });
    assert!(shown.contains("Reqs:"), "{shown}");
    c.ceph("fs set fs max_mds 1");
    active(&c, 1);
    mount.end();

    let mut again = Mount::start(&c);
    again.does("read /one/.snap/first 20 1");
    again.does("read /one 20 5");
    again.does("read /two 30 2");
    again.does("read /three/four 20 4");
    // The OSDs give back what a snapshot held, because the monitors have them do it.
    assert!(clones(&c, "data") > 0);
    again.does("unsnap /one first");
    until("no data of the snapshot", || clones(&c, "data") == 0);
    again.end();
    let health = c.ceph("health detail");
    assert!(health.contains("MDS_TICKETS_OF_CEPH"), "{health}");
    assert!(c.ceph("status").contains("    volumes: 1/1 healthy\n"), "{}", c.ceph("status"));
    let (code, text) =
        c.fails("ceph", &["osd", "pool", "rm", "meta", "meta", "--yes-i-really-really-mean-it"]);
    assert!(code != 0 && text.contains("in use by CephFS"), "{text}");
    c.ceph("fs fail fs");
    c.ceph("fs rm fs --yes-i-really-mean-it");
}

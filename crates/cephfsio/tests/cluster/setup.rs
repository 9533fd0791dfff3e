//! The cluster under test, a folder of its own for each test, and the other client.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{PoisonError, RwLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use cephfs::{Attr, Call, Handle, Node, Settings};
use cephfsio::Mount;
use rados::{Cluster, Config};

use crate::server::{Kind, Server};

/// What a test works on.
pub struct Bed {
    pub mount: Mount,
    /// A folder of its own, and its path.
    pub dir: Node,
    pub path: String,
    server: Server,
}

impl Bed {
    pub async fn cluster(&self) -> Cluster {
        connect(&self.server).await
    }

    pub fn other(&self) -> Other {
        Other::start(&self.server.conf)
    }

    /// A second mount.
    pub async fn mount_again(&self) -> Mount {
        mount(&self.server).await.0
    }
}

async fn connect(server: &Server) -> Cluster {
    Cluster::connect(Config::from_file(&server.conf).expect("a configuration")).await.expect("connects")
}

async fn mount(server: &Server) -> (Mount, Attr) {
    Mount::new(connect(server).await, Settings::default(), "/").await.expect("mounts")
}

/// How long the other client may take to unmount.
const UNMOUNT: Duration = Duration::from_secs(30);

/// Those that change who holds ranks run beside no other test.
static RANKS: RwLock<()> = RwLock::new(());

const BOTH: [Kind; 2] = [Kind::Ceph, Kind::Loligo];

/// Runs a test with a mount and a folder that is made anew: on Ceph's metadata servers, then on ours.
pub fn with_folder(name: &str, test: impl AsyncFn(&Bed)) {
    run(&BOTH, name, || RANKS.read().unwrap_or_else(PoisonError::into_inner), &test);
}

/// The same on Ceph's servers alone: what ours do not have yet.
pub fn with_folder_on_cephs(name: &str, test: impl AsyncFn(&Bed)) {
    run(&[Kind::Ceph], name, || RANKS.read().unwrap_or_else(PoisonError::into_inner), &test);
}

/// Beside no other test: on Ceph's metadata servers, then on ours.
pub fn alone(name: &str, test: impl AsyncFn(&Bed)) {
    run(&BOTH, name, || RANKS.write().unwrap_or_else(PoisonError::into_inner), &test);
}

/// The same on Ceph's servers alone.
pub fn alone_on_cephs(name: &str, test: impl AsyncFn(&Bed)) {
    run(&[Kind::Ceph], name, || RANKS.write().unwrap_or_else(PoisonError::into_inner), &test);
}

fn run<Guard>(kinds: &[Kind], name: &str, lock: impl Fn() -> Guard, test: &impl AsyncFn(&Bed)) {
    // While a test waits it keeps its clusters running.
    let servers: Vec<Server> = kinds.iter().filter_map(|kind| Server::get(*kind)).collect();
    for server in servers {
        let _guard = lock();
        run_on(server, name, test);
    }
}

fn run_on(server: Server, name: &str, test: &impl AsyncFn(&Bed)) {
    eprintln!("{name}: on metadata servers of {:?}", server.kind);
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("starts");
    runtime.block_on(async {
        let path = format!("/test-{name}-{}", std::process::id());
        let (mount, root) = mount(&server).await;
        let dir = Call::Mkdir { dir: root.node, name: path[1..].to_owned().into(), mode: 0o755 };
        let dir = mount.attr(dir).await.expect("a folder").node;
        let bed = Bed { mount, dir, path, server };
        test(&bed).await;
        bed.mount.unmount().await.expect("unmounts");
    });
}

pub fn name(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

/// Contents that differ at each place: `content` of the other client makes the same.
pub fn content(seed: usize, n: usize) -> Bytes {
    (0..n).map(|i| (i * 31 + (i >> 8) * 7 + seed) as u8).collect::<Vec<u8>>().into()
}

pub async fn create(mount: &Mount, dir: Node, text: &str) -> (Handle, Attr) {
    let flags = messages::fs::OpenArgs::RDWR;
    mount.open(Call::Create { dir, name: name(text), mode: 0o644, flags }).await.expect("creates")
}

/// libcephfs, which evaluates a line of Python and answers with a line.
pub struct Other {
    child: Child,
    /// Nothing once it is to end.
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
}

const SCRIPT: &str = r#"
import cephfs, fcntl, json, os, subprocess, sys
f = cephfs.LibCephFS(conffile=os.environ['CEPHFS_TEST_CONF'], auth_id='admin'); f.mount()
kept = {}
def content(seed, n): return bytes((i * 31 + (i >> 8) * 7 + seed) & 255 for i in range(n))
def put(path, seed, n):
    fd = f.open(path, 'w', 0o644); f.write(fd, content(seed, n), 0); f.fsync(fd, 0); f.close(fd)
def same(path, seed, n):
    fd = f.open(path, 'r')
    try: return f.read(fd, 0, 1 << 26) == content(seed, n)
    finally: f.close(fd)
# Of several ranks 16.2's libcephfs may believe an older one that is not in charge: an open asks the one that is.
def size(path):
    fd = f.open(path, 'r')
    try: return f.fstat(fd).st_size
    finally: f.close(fd)
def names(path):
    with f.opendir(path) as d: return sorted(e.d_name.decode() for e in iter(lambda: f.readdir(d), None))[2:]
def keep(path, how): kept[path] = f.open(path, how, 0o644)
def subtrees(rank):
    words = ['ceph', '-c', os.environ['CEPHFS_TEST_CONF'], 'tell', 'mds.cephfs:%d' % rank, 'get', 'subtrees']
    return json.loads(subprocess.run(words, capture_output=True).stdout)
def error(call):
    try: call(); return 0
    except cephfs.Error as e: return e.errno
print('mounted', flush=True)
for line in sys.stdin:
    try: print(repr(eval(line)), flush=True)
    except Exception as e: print('raised ' + repr(e), flush=True)
f.unmount()
"#;

impl Other {
    fn start(conf: &Path) -> Self {
        let mut command = Command::new("/usr/bin/python3");
        command.args(["-c", SCRIPT]).env("CEPHFS_TEST_CONF", conf);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("python starts");
        let (to, from) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        let mut other = Self { child, to: Some(to), from: BufReader::new(from) };
        assert_eq!(other.hear(), "mounted");
        other
    }

    pub fn tell(&mut self, line: &str) {
        let to = self.to.as_mut().expect("it has not ended");
        writeln!(to, "{line}").expect("it listens");
    }

    pub fn hear(&mut self) -> String {
        let mut line = String::new();
        self.from.read_line(&mut line).expect("it answers");
        line.trim().to_owned()
    }

    /// Evaluates a line; its value as Python shows it.
    pub fn eval(&mut self, line: &str) -> String {
        self.tell(line);
        self.hear()
    }

    /// A line that gives `want`.
    pub fn is(&mut self, line: &str, want: &str) {
        assert_eq!(self.eval(line), want, "{line}");
    }
}

impl Drop for Other {
    /// It unmounts: a session that is left behind is waited for in each failover that follows.
    fn drop(&mut self) {
        self.to = None;
        let begin = Instant::now();
        while begin.elapsed() < UNMOUNT && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

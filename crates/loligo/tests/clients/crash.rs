//! `kill -9` of everything in the middle of writes: what was acknowledged reads back byte for byte.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::cluster::{Cluster, text};

/// Writes that have to be acknowledged before the kill: with fewer of them little is tested.
const ENOUGH: usize = 200;

/// Writes objects at depth 16 for ever; a line `name size crc` for each one after its acknowledgement.
const WRITER: &str = r#"
import os, rados, sys, threading, zlib
r = rados.Rados(conffile=os.environ['CEPH_CONF']); r.connect()
io = r.open_ioctx('p')
slots = threading.Semaphore(16)
out = threading.Lock()
def done(name, data):
    def f(completion):
        if completion.get_return_value() == 0:
            with out:
                os.write(1, ('%s %d %08x\n' % (name, len(data), zlib.crc32(data))).encode())
        slots.release()
    return f
n = 0
while True:
    slots.acquire()
    n += 1
    name = '%s-%d' % (sys.argv[1], n % 5000)
    size = (1, 100, 4096, 5000, 70000)[n % 5]
    data = (('%s:%d.' % (name, n)).encode() * (size // 8 + 1))[:size]
    io.aio_write_full(name, data, done(name, data))
"#;

/// Reads `name size crc` lines (the last one of a name counts; a later unacknowledged overwrite may also be there).
const CHECKER: &str = r#"
import os, rados, sys, zlib
r = rados.Rados(conffile=os.environ['CEPH_CONF']); r.connect()
io = r.open_ioctx('p')
want = {}
for line in open(sys.argv[1]):
    name, size, crc = line.split()
    want.setdefault(name, []).append((int(size), crc))
bad = 0
for name, versions in want.items():
    data = io.read(name, 1 << 20)
    if (len(data), '%08x' % zlib.crc32(data)) == versions[-1]:
        continue
    # Not the last acknowledged content: only a newer write of the same object, whole, may stand there.
    head = data.split(b'.')[0].decode('latin1')
    n = int(head.split(':')[1]) if head.startswith(name + ':') else -1
    size = (1, 100, 4096, 5000, 70000)[n % 5] if n > 0 else -1
    whole = (('%s:%d.' % (name, n)).encode() * (size // 8 + 1))[:size] if n > 0 else None
    older = (len(data), '%08x' % zlib.crc32(data)) in versions
    if older or data != whole:
        print('LOST', name, len(data), versions[-1]); bad += 1
print('checked', len(want), 'bad', bad)
sys.exit(1 if bad else 0)
"#;

fn kill_during_writes(mode: &[&str]) {
    let c = Cluster::start(mode);
    c.pool("p", 16);
    for round in 0..2 {
        let acks = c.dir.path().join(format!("acks{round}"));
        let mut writer = Command::new("/usr/bin/python3")
            .args(["-c", WRITER, &format!("r{round}")])
            .env("CEPH_CONF", c.data().join("ceph.conf"))
            .stdout(std::fs::File::create(&acks).expect("file"))
            .stderr(Stdio::null())
            .spawn()
            .expect("python3 runs");
        let begin = Instant::now();
        std::thread::sleep(Duration::from_secs(3));
        // Longer where Python takes seconds to start.
        loop {
            let lines = std::fs::read_to_string(&acks).expect("read").lines().count();
            if lines > ENOUGH {
                break;
            }
            assert!(begin.elapsed() < crate::cluster::PATIENCE, "only {lines} writes were acknowledged");
            std::thread::sleep(Duration::from_millis(50));
        }
        c.kill_all();
        writer.kill().expect("killed");
        writer.wait().expect("ended");
        c.up(mode);
        for old in 0..=round {
            let out = c.python(CHECKER, &[&format!("{}/acks{old}", c.dir.path().display())]);
            assert!(out.status.success(), "{}", text(&out));
        }
    }
    c.healthy();
}

#[test]
fn kill_nine_loses_nothing_acknowledged_in_one_process() {
    kill_during_writes(&[]);
}

#[test]
fn kill_nine_loses_nothing_acknowledged_with_processes() {
    kill_during_writes(&["--processes"]);
}

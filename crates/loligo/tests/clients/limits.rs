//! Start-up time, memory, and what happens when a disk is full.

use std::time::{Duration, Instant};

use crate::cluster::{Cluster, text};

/// Resident bytes of a process.
fn resident(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the process lives");
    let line = status.lines().find(|l| l.starts_with("VmRSS:")).expect("VmRSS");
    line.split_whitespace().nth(1).and_then(|kb| kb.parse::<u64>().ok()).expect("a number") * 1024
}

#[test]
fn healthy_within_two_seconds_and_under_200_megabytes() {
    // The machine of the test may be busy with another test: the best of three counts.
    let mut best = Duration::MAX;
    for _ in 0..3 {
        let start = Instant::now();
        let c = Cluster::start(&[]);
        best = best.min(start.elapsed());
        let pids = c.pids();
        let [(_, pid)] = pids.as_slice() else { panic!("one process, not {pids:?}") };
        let bytes = resident(*pid);
        assert!(bytes < 200_000_000, "{bytes} bytes resident");
    }
    assert!(best < Duration::from_secs(2), "healthy after {best:?}");
}

#[test]
fn a_full_disk_is_enospc_and_deletes_still_work() {
    let c = Cluster::start(&["--osds", "2", "--osd-size", "64M"]);
    c.pool("p", 4);
    let program = r#"
import os, rados, sys
r = rados.Rados(conffile=os.environ['CEPH_CONF']); r.connect()
r.conf_set('rados_osd_op_timeout', '20')
io = r.open_ioctx('p')
n, error = 0, None
data = os.urandom(1 << 20)
io.set_osdmap_full_try() if hasattr(io, 'set_osdmap_full_try') else None
try:
    while n < 200:
        io.write_full('o%d' % n, data); n += 1
except rados.Error as e:
    error = e
print('wrote', n, 'then', repr(error))
if n < 10 or not isinstance(error, (rados.NoSpace, rados.TimedOut)): sys.exit(1)
for i in range(n):
    io.remove_object('o%d' % i)
print('removed')
"#;
    let out = c.python(program, &[]);
    assert!(out.status.success(), "{}", text(&out));
    // Space comes back.
    let start = Instant::now();
    loop {
        let again = c.client("timeout", &["8", "rados", "-p", "p", "put", "again", "/etc/passwd"]);
        if again.status.success() {
            break;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "{}", text(&again));
    }
}

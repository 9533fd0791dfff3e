//! Peers that send nonsense: the connection closes, the daemons live, memory stays bounded.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::cluster::Cluster;

/// Every address that the cluster listens on: the monitor's and those in the maps.
fn addresses(c: &Cluster) -> Vec<SocketAddr> {
    let mut out = vec![c.mon_addr()];
    for dump in [c.ceph("osd dump"), c.ceph("mgr dump")] {
        for part in dump.split("v2:").skip(1) {
            let end = part.find('/').unwrap_or(0);
            out.extend(part.get(..end).and_then(|p| p.parse::<SocketAddr>().ok()));
        }
    }
    out.sort();
    out.dedup();
    assert!(out.len() >= 4, "{out:?}");
    out
}

/// Sends bytes; says how long the peer kept the connection open.
fn poke(addr: SocketAddr, bytes: &[u8]) -> Duration {
    let start = Instant::now();
    let mut stream = TcpStream::connect(addr).expect("accepts");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("set");
    let _ = stream.write_all(bytes);
    let mut sink = [0u8; 4096];
    while matches!(stream.read(&mut sink), Ok(n) if n > 0) {}
    start.elapsed()
}

#[test]
fn nonsense_closes_the_connection_and_nothing_else() {
    let c = Cluster::start(&[]);
    let banner =
        |payload: &[u8]| [b"ceph v2\n".as_slice(), &(payload.len() as u16).to_le_bytes(), payload].concat();
    let good = banner(&[3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let random: Vec<u8> = (0u32..100_000).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let mut huge_frame = good.clone();
    huge_frame.extend([1, 4]);
    huge_frame.extend([0xff; 200]);
    let cases: Vec<Vec<u8>> = vec![
        random.clone(),
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
        b"ceph v027".to_vec(),
        banner(&[0xff; 65535 - 1]),
        [good.clone(), random].concat(),
        huge_frame,
    ];
    for addr in addresses(&c) {
        for case in &cases {
            let open = poke(addr, case);
            assert!(open < Duration::from_secs(15), "{addr} kept a hostile connection for {open:?}");
        }
    }
    c.still_healthy();
}

#[test]
fn silence_is_cut_off_and_many_idle_peers_hurt_nobody() {
    let c = Cluster::start(&[]);
    let addr = c.mon_addr();
    let idle: Vec<TcpStream> = (0..200).map(|_| TcpStream::connect(addr).expect("accepts")).collect();
    c.still_healthy();
    for mut stream in idle {
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("set");
        let mut sink = [0u8; 4096];
        let start = Instant::now();
        while matches!(stream.read(&mut sink), Ok(n) if n > 0) {}
        assert!(start.elapsed() < Duration::from_secs(19), "a silent peer was never cut off");
    }
    c.still_healthy();
}

/// Gives each daemon 16 file descriptors more than it has open, and opens 100 connections to it.
const FEW_FILES: &str = r#"
import json, os, rados, socket, subprocess, sys, time
r = rados.Rados(conffile=os.environ['CEPH_CONF']); r.connect()
io = r.open_ioctx('p')
names = ['o%d' % i for i in range(16)]
for n in names: io.write_full(n, b'before')
ask = lambda prefix: json.loads(r.mon_command(json.dumps({'prefix': prefix, 'format': 'json'}), b'')[1])
addr = lambda a: next(x['addr'] for x in a['addrvec'] if x['type'] == 'v2')
addrs = {'osd.%d' % o['osd']: addr(o['public_addrs']) for o in ask('osd dump')['osds']}
addrs.update({'mon.' + m['name']: addr(m['public_addrs']) for m in ask('mon dump')['mons']})
pids = dict(p.split('=') for p in sys.argv[1:])
idle = []
for name, at in addrs.items():
    limit = len(os.listdir('/proc/%s/fd' % pids[name])) + 16
    subprocess.check_call(['prlimit', '--pid', pids[name], '--nofile=%d:%d' % (limit, limit)])
    host, port = at.rsplit(':', 1)
    for _ in range(100):
        try: idle.append(socket.create_connection((host, int(port)), timeout=1))
        except OSError: break
ticks = lambda: {n: sum(map(int, open('/proc/%s/stat' % p).read().split()[13:15])) for n, p in pids.items()}
before, began = ticks(), time.time()
for n in names: io.write_full(n, b'under the limit')
time.sleep(max(0, 3 - (time.time() - began)))
# A daemon that has no descriptor left must not spend its time finding that out.
busy = {n: t - before[n] for n, t in ticks().items() if t - before[n] > 150}
if busy: sys.exit('busy: %r' % busy)
for s in idle: s.close()
again = rados.Rados(conffile=os.environ['CEPH_CONF']); again.connect(timeout=30)
io = again.open_ioctx('p')
if any(io.read(n) != b'under the limit' for n in names): sys.exit('other bytes')
"#;

#[test]
fn few_file_descriptors_and_a_flood_of_connections_hurt_no_client() {
    let c = Cluster::start(&["--processes"]);
    c.pool("p", 8);
    let pids = c.pids();
    let words: Vec<String> = pids.iter().map(|(name, pid)| format!("{name}={pid}")).collect();
    let out = c.python(FEW_FILES, &words.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(out.status.success(), "{}", crate::cluster::text(&out));
    assert_eq!(c.pids(), pids, "nobody died");
    c.healthy();
}

#[test]
fn malformed_commands_are_einval_with_a_reason() {
    let c = Cluster::start(&[]);
    let program = r#"
import os, rados, sys, json
r = rados.Rados(conffile=os.environ['CEPH_CONF']); r.connect()
deep = '[' * 100000 + ']' * 100000
cases = ['', 'x', '{', '[]', '{}', '{"prefix": 5}', '{"prefix": "no such command"}', '{"prefix": "osd pool create"}',
         '{"prefix": "osd pool create", "pool": 7}', '{"prefix": "osd pool create", "pool": "a", "pg_num": "many"}',
         '{"prefix": "osd pool create", "pool": "a", "pg_num": 1e400}', '{"prefix": "osd pool create", "pool": "a", "pg_num": -1}',
         '{"prefix": "status", "format": ' + deep + '}', json.dumps({'prefix': 'status', 'x': 'y' * 10000000})]
for case in cases[:-1]:
    ret, out, err = r.mon_command(case, b'', timeout=20)
    # Ceph answers ERANGE where a number is well formed and out of bounds.
    if ret not in (-22, -34) or not err:
        print('case', case[:60], 'gave', ret, repr(err)); sys.exit(1)
ret, out, err = r.mon_command(cases[-1], b'', timeout=20)
print('ok')
"#;
    let out = c.python(program, &[]);
    assert!(out.status.success(), "{}", crate::cluster::text(&out));
    c.still_healthy();
}

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
    assert!(c.ceph("health").starts_with("HEALTH_OK"));
}

#[test]
fn silence_is_cut_off_and_many_idle_peers_hurt_nobody() {
    let c = Cluster::start(&[]);
    let addr = c.mon_addr();
    let idle: Vec<TcpStream> = (0..200).map(|_| TcpStream::connect(addr).expect("accepts")).collect();
    assert!(c.ceph("health").starts_with("HEALTH_OK"));
    for mut stream in idle {
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("set");
        let mut sink = [0u8; 4096];
        let start = Instant::now();
        while matches!(stream.read(&mut sink), Ok(n) if n > 0) {}
        assert!(start.elapsed() < Duration::from_secs(19), "a silent peer was never cut off");
    }
    assert!(c.ceph("health").starts_with("HEALTH_OK"));
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
    assert!(c.ceph("health").starts_with("HEALTH_OK"));
}

//! What a stock ceph-mgr's module `prometheus` and its `iostat` tell of our daemons, beside what the commands
//! of the monitors and of ours say.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::cluster::{Cluster, asked, mon_port, text, until};
use crate::managers::{CephMgr, answer, in_charge, installed};

/// How near what moves by itself has to be, as a part of the value.
const NEAR: f64 = 0.05;

/// Values by name and labels, as they are written: `ceph_osd_up{ceph_daemon="osd.0"}`.
type Metrics = BTreeMap<String, f64>;

/// What is served at `/metrics`; empty while nothing is.
fn metrics(port: u16) -> Metrics {
    let ask = || {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        stream.write_all(b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
        let mut told = String::new();
        stream.read_to_string(&mut told)?;
        std::io::Result::Ok(told)
    };
    let told = ask().unwrap_or_default();
    if !told.starts_with("HTTP/1.1 200") && !told.starts_with("HTTP/1.0 200") {
        return Metrics::new();
    }
    let value = |line: &str| {
        let (name, value) = line.rsplit_once(' ')?;
        Some((name.to_owned(), value.parse().ok()?))
    };
    told.lines().filter(|line| line.starts_with("ceph_")).filter_map(value).collect()
}

/// Whether all that the commands say is among the metrics; else what differs first.
fn differs(c: &Cluster, told: &Metrics) -> Option<String> {
    let mut wanted = Vec::new();
    let mut want = |name: String, value: &Value, near: f64| {
        wanted.push((name, value.as_f64().expect("a number"), near));
    };
    want("ceph_health_status".to_owned(), &json!(1), 0.0);
    want(r#"ceph_mon_quorum_status{ceph_daemon="mon.a"}"#.to_owned(), &json!(1), 0.0);
    let df = answer(c, "df");
    want("ceph_cluster_total_bytes".to_owned(), &df["stats"]["total_bytes"], 0.0);
    want("ceph_cluster_total_used_raw_bytes".to_owned(), &df["stats"]["total_used_raw_bytes"], NEAR);
    for pool in df["pools"].as_array().expect("pools") {
        let id = &pool["id"];
        for name in ["stored", "objects"] {
            want(format!("ceph_pool_{name}{{pool_id=\"{id}\"}}"), &pool["stats"][name], 0.0);
        }
    }
    for osd in answer(c, "osd df")["nodes"].as_array().expect("OSDs") {
        let of = |name: &str| format!("ceph_osd_{name}{{ceph_daemon=\"osd.{}\"}}", osd["id"]);
        want(of("numpg"), &osd["pgs"], 0.0);
        want(of("stat_bytes"), &json!(osd["kb"].as_u64().expect("a size") << 10), 0.0);
        want(of("stat_bytes_used"), &json!(osd["kb_used"].as_u64().expect("a size") << 10), NEAR);
        want(of("weight"), &json!(1), 0.0);
        let perf = asked(&c.data().join(format!("ceph-osd.{}.asok", osd["id"])), "perf dump");
        want(of("op_w"), &perf["osd"]["op_w"], 0.0);
        want(of("op_in_bytes"), &perf["osd"]["op_in_bytes"], 0.0);
    }
    let mut by_pool: BTreeMap<String, u64> = BTreeMap::new();
    let pgs = answer(c, "pg dump pgs");
    for pg in pgs["pg_stats"].as_array().expect("PGs") {
        let (pool, _) = pg["pgid"].as_str().expect("a PG").split_once('.').expect("a PG");
        *by_pool.entry(pool.to_owned()).or_default() += u64::from(pg["state"] == "active+clean");
    }
    for (pool, clean) in by_pool {
        want(format!("ceph_pg_clean{{pool_id=\"{pool}\"}}"), &json!(clean), 0.0);
        want(format!("ceph_pg_total{{pool_id=\"{pool}\"}}"), &json!(clean), 0.0);
    }
    wanted.into_iter().find_map(|(name, value, near)| match told.get(&name) {
        Some(told) if (told - value).abs() <= near * value.abs() => None,
        told => Some(format!("{name}: {told:?} instead of {value}")),
    })
}

/// A writer for as long as the test takes.
struct Load(Child);

impl Load {
    fn start(c: &Cluster) -> Self {
        let mut command = Command::new("rados");
        command.args(["-p", "p", "bench", "600", "write", "-b", "65536", "-t", "4"]);
        command.env("CEPH_CONF", c.data().join("ceph.conf")).stdout(Stdio::null()).stderr(Stdio::null());
        Self(command.spawn().expect("rados is installed"))
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether `ceph iostat` shows writes, in the table that both managers print.
fn iostat_shows_writes(c: &Cluster) {
    let mut said = String::new();
    until("writes in iostat", || {
        said = text(&c.client("timeout", &["-s", "INT", "4", "ceph", "iostat", "-p", "1"]));
        let rows = said.lines().filter(|line| line.starts_with('|') && !line.contains("Read"));
        let writes = rows.filter_map(|row| row.split('|').nth(5)?.trim().parse::<u64>().ok());
        writes.max() > Some(0)
    });
    assert!(said.contains("Write IOPS"), "{said}");
}

#[test]
fn cephs_prometheus_module_tells_what_is_so() {
    if !installed("ceph-mgr") {
        return;
    }
    let c = Cluster::start(&[]);
    c.managed();
    c.pool("p", 8);
    c.ok("rados", &["-p", "p", "bench", "1", "write", "-b", "65536", "-t", "4", "--no-cleanup"]);
    let load = Load::start(&c);
    iostat_shows_writes(&c);
    // Ceph's manager starts anew for a module, and another one may take its place: it is on before. Each has
    // a port of its own, for a standby of Ceph's takes it as well.
    let [port, other] = [(); 2].map(|()| mon_port().parse::<u16>().expect("a port"));
    for (name, value) in [
        ("server_addr", "127.0.0.1".to_owned()),
        ("server_port", other.to_string()),
        ("z/server_port", port.to_string()),
        ("scrape_interval", "1".to_owned()),
    ] {
        c.ceph(&format!("config set mgr mgr/prometheus/{name} {value}"));
    }
    c.ceph("mgr module enable prometheus");
    let _z = CephMgr::start(&c, "z");
    until("a manager that stands by", || answer(&c, "mgr stat")["num_standby"] == 1);
    c.ceph("mgr fail x");
    in_charge(&c, "z");
    iostat_shows_writes(&c);
    drop(load);
    let mut last = None;
    until("metrics that are true", || {
        let found = differs(&c, &metrics(port));
        if found != last {
            eprintln!("{found:?}");
        }
        last = found.clone();
        found.is_none()
    });
    let at = format!("http://127.0.0.1:{port}/");
    until("where it is served", || answer(&c, "mgr services")["prometheus"] == at);
    assert_eq!(answer(&c, "mgr dump")["active_name"], "z");
    what_was_asked_is_in_the_log(&c);
}

/// Commands of both kinds, with who gave them.
fn what_was_asked_is_in_the_log(c: &Cluster) {
    c.ceph("osd pool set p pg_num_min 4");
    c.ceph("pg deep-scrub 1.0");
    let log = || c.ceph("log last 1000 debug audit");
    until("what monitors were asked", || {
        let log = log();
        let line = |end: &str| {
            log.lines().any(|l| l.contains("pg_num_min") && l.contains("client.admin") && l.contains(end))
        };
        line("dispatch") && line("finished")
    });
    until("what the manager was asked", || {
        log().lines().any(|l| l.contains("mgr.z") && l.contains("pg deep-scrub") && l.contains("dispatch"))
    });
}

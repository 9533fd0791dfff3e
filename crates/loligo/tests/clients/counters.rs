//! Counters: what daemons count of a client's work, and what managers, ours and Ceph's, know of it.

use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::cluster::{Cluster, asked, text, until};
use crate::managers::{CephMgr, answer, in_charge, installed};

/// What OSDs count of clients' requests: `op`, `op_r`, `op_w`, `op_rw`, `op_in_bytes`, `op_out_bytes`,
/// `copyfrom`.
const COUNTED: [&str; 7] = ["op", "op_r", "op_w", "op_rw", "op_in_bytes", "op_out_bytes", "copyfrom"];

/// Commands of `rados -p p`, and what they added to these counters on three OSDs of Ceph 16.2.15. FILE has
/// 10,000 bytes.
const RECORDED: &[(&str, [u64; 7])] = &[
    ("put a FILE", [1, 0, 1, 0, 10_000, 0, 0]),
    ("get a /dev/null", [1, 1, 0, 0, 0, 10_000, 0]),
    ("get none /dev/null", [0; 7]),
    ("stat a", [1, 1, 0, 0, 0, 16, 0]),
    ("append a FILE", [2, 0, 2, 0, 10_000, 0, 0]),
    ("truncate a 5000", [1, 0, 1, 0, 0, 0, 0]),
    ("setxattr a k v", [1, 0, 1, 0, 0, 0, 0]),
    ("getxattr a k", [1, 1, 0, 0, 0, 1, 0]),
    ("listxattr a", [1, 1, 0, 0, 0, 14, 0]),
    ("setomapval a k v", [1, 0, 1, 0, 0, 0, 0]),
    ("listomapvals a", [1, 1, 0, 0, 0, 15, 0]),
    ("rmomapkey a k", [1, 0, 1, 0, 0, 0, 0]),
    ("create c", [1, 0, 1, 0, 0, 0, 0]),
    // Ceph's source gives 5,362 bytes: what OSDs tell each other of an object is theirs.
    ("cp a b", [2, 1, 1, 0, 5_000, 5_117, 1]),
    ("ls", [0; 7]),
    ("lock get a l", [1, 0, 0, 1, 0, 0, 0]),
    ("lock info a l", [1, 1, 0, 0, 0, 87, 0]),
    ("rm c", [1, 0, 1, 0, 0, 0, 0]),
    ("rm c", [0; 7]),
    ("bench 120 write -b 4096 --max-objects 100 -t 1 --no-cleanup", [101, 0, 101, 0, 409_624, 0, 0]),
    ("bench 120 seq -t 1", [101, 101, 0, 0, 0, 409_624, 0]),
];

/// The counters of the OSDs' requests, each summed over all OSDs; what `rados` does is counted at once.
fn osds(c: &Cluster) -> Vec<Value> {
    let perf = |osd| asked(&c.data().join(format!("ceph-osd.{osd}.asok")), "perf dump")["osd"].clone();
    (0..3).map(perf).collect()
}

fn sums(c: &Cluster) -> [u64; 7] {
    let osds = osds(c);
    COUNTED.map(|name| osds.iter().map(|osd| osd[name].as_u64().expect("a number")).sum())
}

/// Seconds that requests of a kind took together.
fn seconds(c: &Cluster, name: &str) -> f64 {
    osds(c).iter().map(|osd| osd[name]["sum"].as_f64().expect("seconds")).sum()
}

#[test]
fn requests_are_counted_as_cephs_osds_count_them() {
    let c = Cluster::start(&[]);
    c.managed();
    c.pool("p", 16);
    let file = c.dir.path().join("content");
    std::fs::write(&file, [b'7'; 10_000]).expect("written");
    for (line, expected) in RECORDED {
        let words =
            line.split(' ').map(|word| if word == "FILE" { file.to_str().expect("text") } else { word });
        let args: Vec<&str> = ["-p", "p"].into_iter().chain(words).collect();
        let (before, lat) = (sums(&c), ["op_w_latency", "op_r_latency"].map(|name| seconds(&c, name)));
        let said = c.client("rados", &args);
        let after = sums(&c);
        let came: Vec<u64> = after.iter().zip(before).map(|(after, before)| after - before).collect();
        assert_eq!(came, expected, "{line}: {}", text(&said));
        if !line.starts_with("bench") {
            continue;
        }
        // What the OSDs measure lies within what the client does.
        let average = text(&said)
            .lines()
            .find_map(|l| l.strip_prefix("Average Latency(s):")?.trim().parse::<f64>().ok());
        let client = average.expect("a latency") * 100.0;
        let now = ["op_w_latency", "op_r_latency"].map(|name| seconds(&c, name));
        let osd = now[0] - lat[0] + now[1] - lat[1];
        assert!(osd > 0.0 && osd < client, "{line}: {osd} s of {client} s");
    }
}

/// How long each read, write and flush of a disk takes longer, so that it is what a client waits for most.
const DISK_MS: u32 = 20;

/// Half of a write's time at least is an OSD's, as the client measures it, and no more than the whole.
#[test]
fn latencies_of_osds_lie_between_half_and_all_of_the_clients() {
    if !cfg!(feature = "test-medium") {
        println!("skipped: the disks of this build cannot be slowed");
        return;
    }
    let c = Cluster { dir: tempfile::tempdir().expect("a temporary folder") };
    let mut up = Command::new(crate::cluster::binary());
    up.args(["up", "--detach", "--mon-port", &crate::cluster::mon_port(), "--data"]).arg(c.data());
    let out = up.env("LOLIGO_TWIN", format!("delay-ms={DISK_MS}")).output().expect("loligo runs");
    assert!(out.status.success(), "{}", text(&out));
    c.managed();
    c.pool("p", 8);
    let (ops, sum) = (sums(&c)[2], seconds(&c, "op_w_latency"));
    let said = c.ok(
        "rados",
        &["-p", "p", "bench", "120", "write", "-b", "4096", "--max-objects", "60", "-t", "1", "--no-cleanup"],
    );
    let of = |name: &str| said.lines().find_map(|l| l.strip_prefix(name)?.trim().parse::<f64>().ok());
    let client = of("Average Latency(s):").expect("a latency");
    // Those are the objects, and the benchmark's own note of them.
    let osd = (seconds(&c, "op_w_latency") - sum) / (sums(&c)[2] - ops) as f64;
    println!("the client waits {client} s, the OSD measures {osd} s");
    assert!(client * 1000.0 > f64::from(DISK_MS), "the disk is slow: {client} s");
    assert!(osd >= client / 2.0 && osd <= client, "{osd} s of {client} s");
}

/// `rbd bench`, which ends with the test.
struct Writer(Child);

impl Writer {
    fn start(c: &Cluster, image: &str) -> Self {
        let mut command = Command::new("rbd");
        command.args(["bench", image, "--io-type", "write", "--io-size", "64K", "--io-total", "20G"]);
        command.env("CEPH_CONF", c.data().join("ceph.conf")).stdout(Stdio::null()).stderr(Stdio::null());
        Self(command.spawn().expect("rbd is installed"))
    }

    fn stop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.stop();
    }
}

#[test]
fn the_manager_hears_of_a_clients_work() {
    let c = Cluster::start(&[]);
    c.managed();
    c.pool("p", 8);
    for i in 0..3 {
        c.ok("rados", &["-p", "p", "create", &format!("o{i}")]);
    }
    let writes = sums(&c)[2];
    assert!(writes >= 3);
    let told = |daemon: &str| answer(&c, &format!("tell mgr.x counters dump {daemon}"));
    until("the manager knows", || {
        let of = |osd: i32| told(&format!("osd.{osd}"))["osd"]["op_w"].as_u64().unwrap_or(0);
        (0..3).map(of).sum::<u64>() == writes
    });
    until("a monitor's", || told("mon.a")["mon"]["num_sessions"].as_u64() > Some(0));
    // A higher threshold leaves what matters most.
    c.ceph("config set mgr mgr_stats_threshold 10");
    until("less", || {
        let osd = told("osd.0");
        osd["osd"]["op"].is_number() && osd["osd"]["op_w"].is_null()
    });
    c.ceph("tell osd.0 perf reset all");
    assert_eq!(osds(&c)[0]["op"], 0);
}

#[test]
fn cephs_manager_shows_what_our_daemons_count() {
    if !installed("ceph-mgr") {
        return;
    }
    let c = Cluster::start(&[]);
    c.managed();
    c.ceph("osd pool create p 8");
    c.ceph("osd pool application enable p rbd");
    let _z = CephMgr::start(&c, "z");
    until("a manager that stands by", || answer(&c, "mgr stat")["num_standby"] == 1);
    c.ceph("mgr fail x");
    in_charge(&c, "z");
    c.ok("rbd", &["create", "p/image", "--size", "64M"]);
    c.ok("rbd", &["bench", "p/image", "--io-type", "write", "--io-total", "8M", "--io-size", "64K"]);
    until("latencies of OSDs", || {
        let told = answer(&c, "osd perf");
        let infos = told["osdstats"]["osd_perf_infos"].as_array().cloned().unwrap_or_default();
        infos.len() == c.ceph("osd ls").lines().count()
            && infos.iter().any(|o| o["perf_stats"]["commit_latency_ns"].as_u64() > Some(0))
    });
    // A writer for as long as it takes: the manager asks the OSDs when it is first asked, and shows rates.
    let mut writer = Writer::start(&c, "p/image");
    let shown = c.ok("rbd", &["perf", "image", "iostat", "p", "--iterations", "1", "--format", "json"]);
    assert!(shown.contains("\"image\":\"image\"") && shown.contains("\"write_bytes\""), "{shown}");
    writer.stop();
    let counted = answer(&c, "rbd perf image counters p write_bytes");
    let of_image = counted["counters"].as_array().expect("images").iter().find_map(|o| o.get("0/image"));
    let write_bytes = of_image.and_then(|sums| sums[2].as_u64()).expect("the sum of what was written");
    assert!(write_bytes > 0 && write_bytes % (64 << 10) == 0, "{counted}");
}

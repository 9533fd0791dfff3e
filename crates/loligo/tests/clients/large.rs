//! Values that no message takes whole: written, read, recovered to an empty disk and scrubbed, by
//! python3-rados.

use crate::cluster::{Cluster, until};

/// `write` or `read` the objects: of each size in MiB one with an omap value, and one with attributes of 1
/// MiB each.
const OBJECTS: &str = r#"
import hashlib, os, rados, sys
MIB = 1 << 20
def value(size, tag):
    return hashlib.sha256(f"{tag} {size}".encode()).digest() * (size // 32)
with rados.Rados(conffile=os.environ["CEPH_CONF"]) as cluster, cluster.open_ioctx("p") as io:
    for size in map(int, sys.argv[2:]):
        names = [f"x{i:03}" for i in range(size)]
        if sys.argv[1] == "write":
            with rados.WriteOpCtx() as op:
                io.set_omap(op, ("key",), (value(size * MIB, "omap"),))
                io.operate_write_op(op, f"omap-{size}")
            with rados.WriteOpCtx() as op:
                for name in names:
                    op.set_xattr(name, value(MIB, name))
                io.operate_write_op(op, f"attrs-{size}")
        with rados.ReadOpCtx() as op:
            found, _ = io.get_omap_vals_by_keys(op, ("key",))
            io.operate_read_op(op, f"omap-{size}")
            assert list(found) == [("key", value(size * MIB, "omap"))], f"omap of {size} MiB"
        attrs = dict(io.get_xattrs(f"attrs-{size}"))
        assert attrs == {name: value(MIB, name) for name in names}, f"attributes of {size} MiB"
    print("good")
"#;

/// MiB. A front takes 16, and a write 94.
const SIZES: [&str; 5] = ["1", "15", "17", "40", "80"];

/// PGs of the pool: state, deep scrubs' time and errors.
fn pgs(c: &Cluster) -> Vec<(String, String, u64)> {
    let listed: serde_json::Value = serde_json::from_str(&c.ceph("pg ls-by-pool p -f json")).expect("JSON");
    let text = |pg: &serde_json::Value, key: &str| pg[key].as_str().unwrap_or_default().to_owned();
    let pg = |pg: &serde_json::Value| {
        let errors = pg["stat_sum"]["num_scrub_errors"].as_u64().expect("a number");
        (text(pg, "state"), text(pg, "last_deep_scrub_stamp"), errors)
    };
    listed["pg_stats"].as_array().expect("PGs").iter().map(pg).collect()
}

#[test]
fn long_values_reach_a_new_disk_and_are_scrubbed() {
    let c = Cluster::start(&["--processes", "--osd-size", "4G"]);
    c.pool("p", 4);
    c.ceph("osd pool set p size 3");
    let program = |verb: &str| {
        let out = c.python(OBJECTS, &[&[verb], &SIZES[..]].concat());
        assert!(out.status.success(), "{verb}: {}", crate::cluster::text(&out));
    };
    program("write");

    let pid = std::fs::read_to_string(c.data().join("osd.2.pid")).expect("its pid");
    let pid = rustix::process::Pid::from_raw(pid.trim().parse().expect("a number")).expect("a pid");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("killed");
    until("its death is noticed", || c.ceph("osd tree down").contains("osd.2"));
    c.ceph("osd destroy 2 --yes-i-really-mean-it");
    let out = c.loligo(&["osd", "--id", "2", "--replace"]);
    assert!(out.status.success(), "{}", crate::cluster::text(&out));
    c.up(&["--processes"]);
    let is_clean = || pgs(&c).iter().all(|(state, _, _)| state == "active+clean");
    until("all is on the new disk", || is_clean() && c.ceph("health").starts_with("HEALTH_OK"));

    let before = pgs(&c);
    for seed in 0..before.len() {
        c.ceph(&format!("pg deep-scrub 1.{seed:x}"));
    }
    until("all PGs are scrubbed", || {
        pgs(&c).iter().zip(&before).all(|(now, then)| now.1 != then.1 && is_clean())
    });
    assert!(pgs(&c).iter().all(|(_, _, errors)| *errors == 0), "{:?}", pgs(&c));
    program("read");
}

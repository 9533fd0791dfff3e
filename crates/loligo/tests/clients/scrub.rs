//! A byte that changes on a device: a deep scrub finds it, `rados` shows it, and `ceph pg repair` mends it.

use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::cluster::{Cluster, until};

/// What the object consists of.
pub const PATTERN: &[u8] = b"bytes-that-change-";
pub const OBJECT_BYTES: usize = 400_000;

/// Changes a byte of the object in the `nth` block of it that the OSD's device has.
pub fn damage(c: &Cluster, osd: u32, nth: usize) {
    let path = c.data().join(format!("osd.{osd}/block"));
    let device = File::options().read(true).write(true).open(path).expect("device");
    let len = device.metadata().expect("length").len();
    let twice = [PATTERN, PATTERN].concat();
    let mut found = 0;
    let mut buffer = vec![0; 1 << 20];
    for at in (0..len).step_by(buffer.len()) {
        let n = device.read_at(&mut buffer, at).expect("read");
        for (index, block) in buffer[..n].chunks(4096).enumerate() {
            if block.windows(twice.len()).take(64).any(|w| w == twice) {
                if found == nth {
                    let place = at + index as u64 * 4096 + 100;
                    device.write_all_at(&[0xff], place).expect("written");
                    return device.sync_all().expect("flushed");
                }
                found += 1;
            }
        }
    }
    panic!("{found} blocks of the object on osd.{osd}");
}

#[test]
fn a_damaged_copy_is_found_shown_and_replaced() {
    let c = Cluster::start(&["--osd-size", "1G"]);
    c.pool("p", 1);
    c.ceph("osd pool set p size 3");
    let data: Vec<u8> = PATTERN.iter().copied().cycle().take(OBJECT_BYTES).collect();
    let file = c.dir.path().join("object");
    std::fs::write(&file, &data).expect("file");
    c.ok("rados", &["-p", "p", "put", "victim", &file.display().to_string()]);
    let stat = || {
        let listed = c.ceph("pg ls-by-pool p --format=json");
        let listed: serde_json::Value = serde_json::from_str(&listed).expect("JSON");
        listed["pg_stats"][0].clone()
    };
    // It was clean with two copies, too: what was told before the third one came is no news.
    until("clean with three copies", || {
        let stat = stat();
        let copies = stat["acting"].as_array().map(Vec::len);
        stat["state"] == "active+clean" && copies == Some(3) && stat["stat_sum"]["num_objects"] == 1
    });
    let pg = stat()["pgid"].as_str().expect("a PG").to_owned();

    damage(&c, 0, 7);
    c.ceph(&format!("pg deep-scrub {pg}"));
    until("inconsistent", || c.ceph("health detail").contains("OSD_SCRUB_ERRORS"));
    let health = c.ceph("health detail");
    assert!(health.contains("[ERR] OSD_SCRUB_ERRORS: 1 scrub errors"), "{health}");
    assert!(health.contains("[ERR] PG_DAMAGED: Possible data damage: 1 pg inconsistent"), "{health}");
    assert_eq!(c.ok("rados", &["list-inconsistent-pg", "p"]).trim(), format!("[\"{pg}\"]"));
    let found = c.ok("rados", &["list-inconsistent-obj", &pg, "--format=json"]);
    let found: serde_json::Value = serde_json::from_str(&found).expect("JSON");
    let one = &found["inconsistents"][0];
    assert_eq!(one["object"]["name"], "victim");
    assert_eq!(one["union_shard_errors"], serde_json::json!(["read_error"]));
    assert_eq!(one["selected_object_info"]["size"], OBJECT_BYTES);
    let shards = one["shards"].as_array().expect("shards");
    let bad: Vec<i64> = shards
        .iter()
        .filter(|s| s["errors"] == serde_json::json!(["read_error"]))
        .filter_map(|s| s["osd"].as_i64())
        .collect();
    assert_eq!((shards.len(), bad), (3, vec![0]), "{found}");

    c.ceph(&format!("pg repair {pg}"));
    until("mended", || c.ceph("health").starts_with("HEALTH_OK"));
    c.ceph(&format!("pg deep-scrub {pg}"));
    let log = || c.ceph("log last 20 debug cluster");
    until("scrubbed again", || log().contains(&format!("{pg} deep-scrub ok")));
    assert!(log().contains(&format!("{pg} repair 1 errors, 1 fixed")), "{}", log());
    let back = c.dir.path().join("back");
    c.ok("rados", &["-p", "p", "get", "victim", &back.display().to_string()]);
    assert!(std::fs::read(&back).expect("file") == data, "other bytes");
}

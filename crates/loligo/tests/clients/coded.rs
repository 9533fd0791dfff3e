//! Erasure-coded pools through Debian's clients: each code, lost OSDs, images, damage, and what is refused.

use std::path::Path;

use crate::cluster::{Cluster, until};
use crate::scrub::{OBJECT_BYTES, PATTERN, damage};

/// A name, the words of its profile, and bytes of data in a stripe.
const CODES: [(&str, &str, u32); 6] = [
    ("c21", "k=2 m=1", 8192),
    ("c42", "plugin=jerasure technique=reed_sol_van k=4 m=2", 16384),
    ("r6", "plugin=jerasure technique=reed_sol_r6_op k=4 m=2", 16384),
    ("cauchy", "plugin=jerasure technique=cauchy_good k=3 m=2 packetsize=128", 12288),
    ("isa", "plugin=isa technique=cauchy k=6 m=2", 6 * 4096),
    ("lrc", "plugin=lrc k=4 m=2 l=3", 16384),
];

/// A pool with this profile, each shard on another OSD.
fn pool(c: &Cluster, name: &str, words: &str, pgs: u32) {
    c.ceph(&format!("osd erasure-code-profile set {name} {words} crush-failure-domain=osd"));
    c.ceph(&format!("osd pool create {name} {pgs} {pgs} erasure {name}"));
    c.ceph(&format!("osd pool application enable {name} rados"));
}

/// Runs coded.py.
fn program(c: &Cluster, args: &[&str]) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/coded.py").display().to_string();
    let out = c.ok("/usr/bin/python3", &[&["-B", &file], args].concat());
    assert_eq!(out.trim(), "good");
}

/// PGs of a pool as `pg ls-by-pool` lists them.
fn pgs(c: &Cluster, pool: &str) -> Vec<serde_json::Value> {
    let listed = c.ceph(&format!("pg ls-by-pool {pool} --format=json"));
    let listed: serde_json::Value = serde_json::from_str(&listed).expect("JSON");
    listed["pg_stats"].as_array().cloned().unwrap_or_default()
}

fn is_clean(c: &Cluster, pool: &str, count: usize) -> bool {
    let pgs = pgs(c, pool);
    pgs.len() == count && pgs.iter().all(|pg| pg["state"] == "active+clean")
}

#[test]
fn each_code_keeps_what_a_model_keeps() {
    let c = Cluster::start(&["--osds", "8", "--osd-size", "2G"]);
    for (seed, (name, words, width)) in CODES.into_iter().enumerate() {
        pool(&c, name, words, 4);
        program(&c, &["appends", name, &width.to_string()]);
        program(&c, &["refused", name]);
        c.ceph(&format!("osd pool set {name} allow_ec_overwrites true"));
        program(&c, &["write", name, &seed.to_string()]);
    }
    until("all PGs are reported", || CODES.iter().all(|(name, ..)| is_clean(&c, name, 4)));
    c.healthy();
    let df: serde_json::Value = serde_json::from_str(&c.ceph("df --format=json")).expect("JSON");
    let room = |name: &str| {
        let pools = df["pools"].as_array().expect("pools");
        let found = pools.iter().find(|p| p["name"] == name).expect("the pool");
        found["stats"]["max_avail"].as_f64().expect("a number")
    };
    // Two of three bytes are data, and four of six.
    let ratio = room("c21") / room("c42");
    assert!((0.99..1.01).contains(&ratio), "{df}");
    let ratio = room("isa") / room("c42");
    assert!((1.11..1.14).contains(&ratio), "{df}");
}

#[test]
fn objects_outlive_as_many_osds_as_there_are_coding_shards() {
    let c = Cluster::start(&["--processes", "--osds", "6", "--osd-size", "2G"]);
    pool(&c, "p", "plugin=isa technique=reed_sol_van k=2 m=2", 4);
    c.ceph("osd pool set p allow_ec_overwrites true");
    program(&c, &["write", "p", "1"]);
    until("clean", || is_clean(&c, "p", 4));
    let kill = |osd: u32| {
        let pid = std::fs::read_to_string(c.data().join(format!("osd.{osd}.pid"))).expect("its pid");
        c.ok("kill", &["-9", pid.trim()]);
    };
    kill(1);
    program(&c, &["read", "p", "1"]);
    program(&c, &["write", "p", "2"]);
    kill(4);
    until("both are down", || {
        let down = c.ceph("osd tree down");
        down.contains("osd.1") && down.contains("osd.4")
    });
    // PGs with two of their shards left answer nothing, and make the others anew.
    c.ceph("osd out 1 4");
    until("all shards are made again", || {
        let elsewhere = |pg: &serde_json::Value| {
            pg["acting"].as_array().is_some_and(|a| a.iter().all(|osd| *osd != 1 && *osd != 4))
        };
        is_clean(&c, "p", 4) && pgs(&c, "p").iter().all(elsewhere)
    });
    program(&c, &["read", "p", "2"]);
    program(&c, &["write", "p", "3"]);
}

#[test]
fn an_image_keeps_its_data_in_a_coded_pool() {
    let c = Cluster::start(&["--osds", "4", "--osd-size", "2G"]);
    c.ceph("osd pool create rbd 4");
    c.ok("rbd", &["pool", "init", "rbd"]);
    pool(&c, "data", "k=2 m=1", 4);
    let create = ["create", "--size", "64M", "--data-pool", "data", "image"];
    // Without overwrites librbd has nowhere to write to.
    let (_, said) = c.fails("rbd", &create);
    assert!(said.contains("overwrite support"), "{said}");
    c.ceph("osd pool set data allow_ec_overwrites true");
    c.ok("rbd", &create);
    let file = c.dir.path().join("image");
    let bytes: Vec<u8> =
        (0..(64u32 << 20) / 4).flat_map(|n| n.wrapping_mul(0x9e37_79b9).to_le_bytes()).collect();
    std::fs::write(&file, &bytes).expect("written");
    c.ok("rbd", &["import", "--data-pool", "data", &file.display().to_string(), "imported"]);
    c.ok("rbd", &["snap", "create", "imported@first"]);
    c.ok(
        "rbd",
        &[
            "bench",
            "--io-type",
            "write",
            "--io-size",
            "4K",
            "--io-pattern",
            "rand",
            "--io-total",
            "4M",
            "imported",
        ],
    );
    let back = c.dir.path().join("back");
    let exported = |name: &str| {
        let _ = std::fs::remove_file(&back);
        c.ok("rbd", &["export", name, &back.display().to_string()]);
        std::fs::read(&back).expect("exported")
    };
    assert!(exported("imported@first") == bytes, "the snapshot has other bytes");
    assert!(exported("imported") != bytes, "nothing was written");
    c.ok("rbd", &["snap", "protect", "imported@first"]);
    c.ok("rbd", &["clone", "--data-pool", "data", "imported@first", "clone"]);
    c.ok("rbd", &["flatten", "--no-progress", "clone"]);
    assert!(exported("clone") == bytes, "the clone has other bytes");
    assert!(pgs(&c, "data").iter().any(|pg| pg["stat_sum"]["num_objects"].as_u64() > Some(0)));
}

/// A shard that rots is read around at once, is named by a deep scrub, and made anew by a repair.
#[test]
fn a_damaged_shard_is_read_around_shown_and_made_anew() {
    let c = Cluster::start(&["--osds", "4", "--osd-size", "1G"]);
    pool(&c, "p", "k=2 m=2", 1);
    let data: Vec<u8> = PATTERN.iter().copied().cycle().take(OBJECT_BYTES).collect();
    let file = c.dir.path().join("object");
    std::fs::write(&file, &data).expect("file");
    c.ok("rados", &["-p", "p", "put", "victim", &file.display().to_string()]);
    until("clean", || is_clean(&c, "p", 1) && pgs(&c, "p")[0]["stat_sum"]["num_objects"] == 1);
    let pg = pgs(&c, "p")[0].clone();
    let id = pg["pgid"].as_str().expect("a PG").to_owned();
    // The second shard has data, and is not the primary's.
    let osd = u32::try_from(pg["acting"][1].as_u64().expect("an OSD")).expect("a number");
    damage(&c, osd, 3);
    c.ceph(&format!("pg deep-scrub {id}"));
    until("inconsistent", || c.ceph("health detail").contains("OSD_SCRUB_ERRORS"));
    assert_eq!(c.ok("rados", &["list-inconsistent-pg", "p"]).trim(), format!("[\"{id}\"]"));
    let found = c.ok("rados", &["list-inconsistent-obj", &id, "--format=json"]);
    let found: serde_json::Value = serde_json::from_str(&found).expect("JSON");
    let one = &found["inconsistents"][0];
    assert_eq!(one["object"]["name"], "victim", "{found}");
    assert_eq!(one["union_shard_errors"], serde_json::json!(["read_error"]), "{found}");
    let shards = one["shards"].as_array().expect("shards");
    let bad = shards.iter().filter(|s| s["errors"] == serde_json::json!(["read_error"]));
    let bad: Vec<_> = bad.map(|s| (s["osd"].as_u64(), s["shard"].as_u64())).collect();
    assert_eq!((shards.len(), bad), (4, vec![(Some(u64::from(osd)), Some(1))]), "{found}");
    let back = c.dir.path().join("back");
    let read = || {
        let _ = std::fs::remove_file(&back);
        c.ok("rados", &["-p", "p", "get", "victim", &back.display().to_string()]);
        std::fs::read(&back).expect("file") == data
    };
    assert!(read(), "other bytes while a shard is damaged");
    c.ceph(&format!("pg repair {id}"));
    until("mended", || c.ceph("health").starts_with("HEALTH_OK"));
    assert!(read(), "other bytes after the repair");
}

/// What Ceph refuses of profiles, and what is not built, is refused when it is set, with Ceph's codes.
#[test]
fn profiles_that_do_not_work_are_refused() {
    let c = Cluster::start(&["--osds", "3", "--osd-size", "1G"]);
    let refused = |words: &str| {
        let all = format!("osd erasure-code-profile set bad {words} crush-failure-domain=osd");
        c.fails("ceph", &all.split_whitespace().collect::<Vec<_>>())
    };
    const EINVAL: i32 = 22;
    for words in [
        "k=0 m=1",
        "k=2 m=0",
        "k=-1 m=1",
        "k=two m=1",
        "k=30 m=3",
        "k=2 m=1 kk=3",
        "plugin=isa technique=reed_sol_van k=8 m=5",
        "plugin=jerasure technique=reed_sol_r6_op k=4 m=3",
    ] {
        let (code, said) = refused(words);
        assert_eq!(code, EINVAL, "{words}: {said}");
        assert!(
            said.contains("EINVAL") && said.trim().len() > 25,
            "{words} is refused without a reason: {said}"
        );
    }
    // Ceph has a number of its own for groups that do not divide the chunks.
    let (_, said) = refused("plugin=lrc k=4 m=2 l=4");
    assert!(said.contains("k + m must be a multiple of l"), "{said}");
    for words in ["plugin=clay k=4 m=2", "plugin=shec k=4 m=2 c=1", "technique=liberation k=2 m=2"] {
        let (_, said) = refused(words);
        assert!(said.contains("not supported"), "{words}: {said}");
    }
    pool(&c, "p", "k=2 m=1", 4);
    let all = ["osd", "erasure-code-profile", "set", "p", "k=1", "m=1"];
    c.fails("ceph", &all);
    let (_, said) = c.fails("ceph", &["osd", "erasure-code-profile", "rm", "p"]);
    assert!(said.contains("EBUSY"), "{said}");
    // More shards than OSDs: the pool is made, and its PGs wait for OSDs with the shards that there are.
    pool(&c, "wide", "k=3 m=2", 4);
    until("its PGs are reported", || {
        let pgs = pgs(&c, "wide");
        pgs.len() == 4 && pgs.iter().all(|pg| pg["state"] == "undersized+peered")
    });
    c.ceph("osd pool delete wide wide --yes-i-really-really-mean-it");
    c.healthy();
}

//! The balancer and the flags of OSDs on a living cluster; Ceph's own `osdmaptool --upmap` judges what comes out.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use codec::{Decode, Encode};
use maps::{BalanceGoal, Deviation, OsdMap};
use types::{PgId, PoolId};

use crate::cluster::{Cluster, text, until};

fn decode(file: &Path) -> OsdMap {
    OsdMap::from_bytes(bytes::Bytes::from(std::fs::read(file).expect("a file"))).expect("a map")
}

fn pools(map: &OsdMap) -> BTreeSet<PoolId> {
    map.pools.keys().copied().collect()
}

fn deviation(map: &OsdMap) -> Deviation {
    map.deviation(&pools(map)).expect("OSDs")
}

/// What Ceph's tool makes of a map: the commands that it proposes, carried out on a copy.
fn by_osdmaptool(map: &OsdMap) -> OsdMap {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let (from, to) = (dir.path().join("map"), dir.path().join("commands"));
    std::fs::write(&from, map.to_bytes()).expect("written");
    let out = Command::new("osdmaptool")
        .args([&from, Path::new("--upmap"), &to])
        .args(["--upmap-deviation", "1", "--upmap-max", "1000"])
        .output()
        .expect("osdmaptool is installed");
    assert!(out.status.success(), "{}", text(&out));
    let mut map = map.clone();
    for line in std::fs::read_to_string(&to).expect("commands").lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["ceph", "osd", "pg-upmap-items", pg, ids @ ..] => {
                let ids: Vec<i32> = ids.iter().map(|id| id.parse().expect("a number")).collect();
                let items = ids.chunks(2).map(|pair| (pair[0], pair[1])).collect();
                map.pg_upmap_items.insert(PgId::parse(pg).expect("a PG"), items);
            }
            ["ceph", "osd", "rm-pg-upmap-items", pg] => {
                map.pg_upmap_items.remove(&PgId::parse(pg).expect("a PG"));
            }
            other => panic!("{other:?} is no command that is known"),
        }
    }
    map
}

/// Both are asked to come within one PG of each share; who is within is not moved further.
fn no_worse(what: &str, ours: &OsdMap, theirs: &OsdMap) {
    let (a, b) = (deviation(ours), deviation(theirs));
    let better = a.max <= b.max.max(1.0) + 1e-6 && a.standard <= b.standard.max(1.0) + 1e-6;
    assert!(better, "{what}: ours {a:?}, Ceph's {b:?}");
}

#[test]
fn it_is_no_worse_than_osdmaptool() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    for (osds, bits) in [(6, "4"), (12, "5"), (24, "6"), (40, "5")] {
        let file = dir.path().join(format!("{osds}"));
        let out = Command::new("osdmaptool")
            .arg(&file)
            .args(["--createsimple", &osds.to_string(), "--with-default-pool", "--mark-up-in", "--clobber"])
            .args(["--pg-bits", bits, "--pgp-bits", bits])
            .output()
            .expect("osdmaptool is installed");
        assert!(out.status.success(), "{}", text(&out));
        let mut map = decode(&file);
        // The tool's rule wants a host for each copy, and puts all OSDs on one.
        let mut crush = (*map.crush).clone();
        for osd in 0..osds {
            let place =
                [("host".to_owned(), format!("h{}", osd / 2)), ("root".to_owned(), "default".to_owned())];
            let moved = crush.create_or_move_item(osd, 0x10000, &format!("osd.{osd}"), &place.into());
            assert_eq!(moved, Ok(true));
        }
        map.crush = std::sync::Arc::new(crush);
        let theirs = by_osdmaptool(&map);
        let mut ours = map.clone();
        let (pools, bytes) = (pools(&map), BTreeMap::new());
        let goal = BalanceGoal {
            pools: &pools,
            max_deviation: 1,
            max_changes: 1_000,
            bytes: &bytes,
            least_bytes: 0,
        };
        ours.pg_upmap_items.extend(map.balance(&goal));
        no_worse(&format!("{osds} OSDs"), &ours, &theirs);
        assert!(deviation(&ours).max < deviation(&map).max, "{osds} OSDs: it was uneven before");
        assert!(!ours.clone().clean_upmaps(), "{osds} OSDs: every replacement is valid and needed");
    }
}

fn map_of(c: &Cluster) -> OsdMap {
    let file = c.dir.path().join("osdmap");
    c.ok("ceph", &["osd", "getmap", "-o", file.to_str().expect("text")]);
    decode(&file)
}

fn at_rest(c: &Cluster) -> bool {
    let status: serde_json::Value = serde_json::from_str(&c.ceph("balancer status")).expect("JSON");
    status["no_optimization_needed"] == true
}

#[test]
fn a_living_cluster_becomes_even_and_stays_so() {
    let c = Cluster::start(&["--osds", "5", "--osd-size", "1G"]);
    c.managed();
    c.ceph("balancer off");
    c.pool("p", 64);
    c.ceph("config set mgr mgr/balancer/upmap_max_deviation 1");
    c.ceph("config set mgr mgr/balancer/sleep_interval 1");
    let before = map_of(&c);
    assert!(deviation(&before).max > 1.0, "uneven at first");
    c.ceph("balancer on");
    // In this order: the rest of a plan may still be on its way when the map is even already.
    until("an even cluster", || deviation(&map_of(&c)).max <= 1.0 && at_rest(&c));
    let after = map_of(&c);
    no_worse("the cluster", &after, &by_osdmaptool(&before));
    assert!(!after.pg_upmap_items.is_empty());
    // Nothing more is done, and what an OSD that goes out makes wrong is taken back.
    c.ceph("balancer off");
    assert_eq!(map_of(&c).pg_upmap_items, after.pg_upmap_items);
    c.ceph("osd out 4");
    let map = map_of(&c);
    assert!(map.pg_upmap_items.values().flatten().all(|(_, to)| *to != 4), "{:?}", map.pg_upmap_items);
    for pg in map.pgs() {
        assert!(!map.pg_to_up_acting(pg).up.contains(&4), "{pg}");
    }
}

fn states(c: &Cluster, osd: i32) -> (bool, bool) {
    let map = map_of(c);
    (map.is_up(osd), map.is_in(osd))
}

/// `noup`, `nodown`, `noin` and `noout` hold states, for the cluster, an OSD, a bucket; health tells of them.
#[test]
fn flags_hold_the_states_of_osds() {
    let c = Cluster::start(&["--osds", "3", "--osd-size", "1G"]);
    c.ceph("config set mon mon_osd_down_out_interval 2");
    let host = c.ceph("osd crush ls default").trim().to_owned();
    for (set, unset) in [
        ("osd set noup".to_owned(), "osd unset noup".to_owned()),
        ("osd add-noup 1".to_owned(), "osd rm-noup 1".to_owned()),
        (format!("osd set-group noup,noout {host}"), format!("osd unset-group noup,noout {host}")),
    ] {
        c.ceph(&set);
        c.ceph("osd set noout");
        assert!(c.ceph("health detail").contains("noup"), "{set}");
        c.ceph("osd down 1");
        // It lives and wants to come up again, but may not; nor does it go out.
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_secs(4) {
            assert_eq!(states(&c, 1), (false, true), "{set}");
        }
        c.ceph(&unset);
        c.ceph("osd unset noout");
        until("the OSD's return", || states(&c, 1).0);
    }
    // Out after a while, and back in by itself but for the flag.
    c.ceph("osd set noup");
    c.ceph("osd down 1");
    until("the OSD's going out", || !states(&c, 1).1);
    c.ceph("osd add-noin 1");
    c.ceph("osd unset noup");
    until("the OSD's return", || states(&c, 1).0);
    assert_eq!(states(&c, 1), (true, false));
    c.ceph("osd rm-noin 1");
    c.ceph("osd in 1");
    until("health", || c.ceph("health").starts_with("HEALTH_OK"));
}

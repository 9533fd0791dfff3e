//! Dumps of recorded maps equal what the real tools printed for the same bytes.

use crate::common;

use codec::{Decode, Encode};
use common::{RECORDED, data, recorded, text};
use maps::{FsMap, MgrMap, MonMap, ServiceMap};
use serde_json::Value;
use types::Utime;

fn parse(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

/// Equal values and the same order of keys, but for objects whose keys a hash table ordered.
fn assert_same(ours: &Value, theirs: &Value, at: &str) {
    match (ours, theirs) {
        (Value::Object(a), Value::Object(b)) => {
            if !at.ends_with("blocklist") {
                assert_eq!(a.keys().collect::<Vec<_>>(), b.keys().collect::<Vec<_>>(), "keys at {at}");
            }
            assert_eq!(a.len(), b.len(), "{at}");
            for (k, v) in a {
                assert_same(v, b.get(k).unwrap_or(&Value::Null), &format!("{at}.{k}"));
            }
        }
        (Value::Array(a), Value::Array(b)) => {
            assert_eq!(a.len(), b.len(), "length at {at}");
            for (i, (x, y)) in a.iter().zip(b).enumerate() {
                assert_same(x, y, &format!("{at}[{i}]"));
            }
        }
        // The JSON reader may be off by one in the last place.
        (Value::Number(a), Value::Number(b)) if a.is_f64() && b.is_f64() => {
            let (a, b) = (a.as_f64().expect("float"), b.as_f64().expect("float"));
            assert!((a - b).abs() <= f64::EPSILON * a.abs(), "{a} {b} at {at}");
        }
        _ => assert_eq!(ours, theirs, "at {at}"),
    }
}

/// Blocklist lines come in a hash table's order: sorted before they are compared.
fn sorted_tail(text: &str) -> (Vec<&str>, Vec<&str>) {
    let (mut tail, head): (Vec<&str>, Vec<&str>) = text.lines().partition(|l| l.starts_with("blocklist "));
    tail.sort_unstable();
    (head, tail)
}

#[test]
fn osd_maps_dump_as_the_real_tool_does() {
    for (series, epoch) in RECORDED {
        let theirs = parse(&text(&format!("osdmap-{series}-{epoch}.json")));
        assert_same(&recorded(series, epoch).dump(), &theirs, &format!("{series}-{epoch}"));
    }
}

#[test]
fn osd_maps_print_as_the_real_tool_does() {
    for (series, epoch) in RECORDED {
        let (ours, theirs) = (recorded(series, epoch).print(), text(&format!("osdmap-{series}-{epoch}.txt")));
        let ((our_head, our_tail), (their_head, their_tail)) = (sorted_tail(&ours), sorted_tail(&theirs));
        assert_eq!(our_head, their_head, "{series} {epoch}");
        assert_eq!(our_tail, their_tail, "{series} {epoch}");
    }
}

#[test]
fn status_lines() {
    let map = recorded(1, 50);
    let now = map.modified;
    let want = "6 osds: 1 up (since 7m), 6 in (since 40s); epoch: e50; 1 remapped pgs\nflags noout\n";
    assert_eq!(map.summary(now, "", true), want);
    assert_eq!(map.oneline_summary(), "e50: 6 total, 1 up, 6 in");
    assert!(map.print_for_cli().starts_with("epoch 50\nfsid 8ef7570e-5485-4871-b3f7-5beed3c7f923\n"));
    assert!(!map.print_for_cli().contains("\n\n"));
    assert_eq!(map.dump_summary()["num_up_osds"], 1);
}

#[test]
fn monitor_maps() {
    let map = MonMap::from_bytes(data("monmap.bin")).expect("a real map");
    assert_eq!(map.to_bytes(), data("monmap.bin"));
    let mut theirs = parse(&text("monmap.json"));
    theirs.as_object_mut().expect("object").shift_remove("quorum");
    assert_same(&map.dump(), &theirs, "monmap");
    assert_eq!(map.print(), text("monmap.txt"));
    let addrs = "[v2:127.0.0.1:43789/0,v1:127.0.0.1:43790/0]";
    assert_eq!(map.summary(), format!("e1: 1 mons at {{a={addrs}}}"));
    let mine = MonMap::new(map.fsid, map.created, [("a".to_owned(), map.mons["a"].addrs.clone())]);
    assert_eq!(mine, map, "a new cluster's map");
}

#[test]
fn manager_maps() {
    let map = MgrMap::from_bytes(data("mgrmap.bin")).expect("a real map");
    assert_eq!(map.to_bytes(), data("mgrmap.bin"));
    assert_same(&map.dump(), &parse(&text("mgrmap.json")), "mgrmap");
    let later = Utime::new(map.active_change.sec + 300, 0);
    assert_eq!(map.summary(later), "x(active, since 4m)");
    assert_eq!(MgrMap::initial().to_bytes(), data("mgrmap-1.bin"), "a new cluster's map");
    assert_eq!(MgrMap::initial().summary(later), "no daemons active");
}

#[test]
fn maps_of_file_systems() {
    let map = FsMap::from_bytes(data("fsmap.bin")).expect("a real map");
    assert_eq!(map.to_bytes(), data("fsmap.bin"));
    assert_eq!(map, FsMap::initial(), "a new cluster's map");
    assert_same(&map.dump(), &parse(&text("fsmap.json")), "fsmap");
    assert_eq!(map.print(), text("fsmap.txt"));
}

#[test]
fn service_maps() {
    let map = ServiceMap::from_bytes(data("servicemap.bin")).expect("a real map");
    assert_eq!(map.to_bytes(), data("servicemap.bin"));
    assert_same(&map.dump(), &parse(&text("servicemap.json")), "servicemap");
}

/// Our own encoding, read and printed by the real tool.
#[test]
fn the_real_tool_reads_our_monitor_maps() {
    if !common::have("monmaptool") {
        return;
    }
    let mut map = MonMap::from_bytes(data("monmap.bin")).expect("a real map");
    let path = std::env::temp_dir().join(format!("loligo-monmap-{}", std::process::id()));
    let name = path.to_str().expect("UTF-8");
    for i in 0..6u16 {
        let mut m = map.mons["a"].clone();
        m.name = format!("m{i}");
        m.priority = i;
        m.weight = 2 * i;
        m.addrs.0.truncate(2 - usize::from(i % 2));
        m.addrs.0.iter_mut().for_each(|a| a.nonce = i.into());
        if i % 3 == 1 {
            m.crush_loc.insert("datacenter".to_owned(), format!("d{i}"));
        }
        assert!(map.add(m));
        if i == 4 {
            assert!(map.remove("m1") && !map.remove("m1"));
            map.disallowed_leaders.insert("m2".to_owned());
            map.election_strategy = 3;
        }
        if i == 5 {
            map.stretch_mode = true;
            map.tiebreaker_mon = "m5".to_owned();
            map.stretch_marked_down_mons.insert("m3".to_owned());
        }
        std::fs::write(&path, map.to_bytes()).expect("write");
        let theirs = String::from_utf8(common::run("monmaptool", &["--print", name])).expect("UTF-8");
        let theirs: Vec<&str> = theirs.lines().filter(|l| !l.starts_with("monmaptool")).collect();
        assert_eq!(map.print().lines().collect::<Vec<_>>(), theirs, "{i}");
        assert_eq!(MonMap::from_bytes(map.to_bytes()), Ok(map.clone()));
    }
    std::fs::remove_file(&path).expect("clean up");
}

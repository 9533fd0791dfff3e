//! Placements equal crushtool's: stored ones always, fresh ones where the tool is installed.

mod common;

use codec::{Decode, Encode};
use common::{Reweights, TempFile, crushtool, data, peer, placement_weights, random_map, run};
use crush::hash::hash32_2;
use crush::{CrushMap, Scratch};

/// Our placements in the words of `crushtool --test --show-mappings`.
fn mappings(map: &CrushMap, reweights: &Reweights, size: usize, xs: std::ops::Range<i32>) -> String {
    let weights = placement_weights(map, reweights);
    let (mut scratch, mut placed) = (Scratch::default(), Vec::new());
    let mut text = String::new();
    if weights.iter().all(|w| *w == 0) {
        return text; // crushtool skips the test then
    }
    for rule in 0..map.rules.len() as u32 {
        for x in xs.clone() {
            map.do_rule_into(rule, x, size, &weights, Some(0), &mut scratch, &mut placed);
            assert!(!scratch.exhausted());
            let list: Vec<String> = placed.iter().map(ToString::to_string).collect();
            text += &format!("CRUSH rule {rule} x {x} [{}]\n", list.join(","));
        }
    }
    text
}

fn tool_args(path: &str, reweights: &Reweights, size: usize, xs: std::ops::Range<i32>) -> Vec<String> {
    let size = size.to_string();
    let (first, last) = (xs.start.to_string(), (xs.end - 1).to_string());
    let mut args: Vec<String> =
        ["-i", path, "--test", "--show-mappings", "--num-rep", &size, "--min-x", &first, "--max-x", &last]
            .map(str::to_owned)
            .to_vec();
    for (device, sixteenths) in reweights {
        args.extend(["--weight".to_owned(), device.to_string(), (f64::from(*sixteenths) / 16.0).to_string()]);
    }
    args
}

fn first_difference(ours: &str, theirs: &str) -> Option<(String, String)> {
    let end = std::iter::repeat("<end>");
    let lines = ours.lines().chain(end.clone()).zip(theirs.lines().chain(end));
    let mut lines = lines.take(ours.lines().count().max(theirs.lines().count()));
    lines.find(|(a, b)| a != b).map(|(a, b)| (a.to_owned(), b.to_owned()))
}

/// Seeds whose placements by crushtool are stored in `tests/data/mappings`.
const STORED_SEEDS: std::ops::Range<u64> = 1..41;
const STORED_XS: std::ops::Range<i32> = 1000..1012;

#[test]
fn stored_placements_of_crushtool_come_out() {
    for seed in STORED_SEEDS {
        let (map, reweights) = random_map(seed);
        let stored =
            std::fs::read_to_string(data(&format!("mappings/{seed}.txt"))).expect("a stored placement");
        let size = 1 + seed as usize % 7;
        let ours = mappings(&map, &reweights, size, STORED_XS);
        assert_eq!(first_difference(&ours, &stored), None, "seed {seed}");
    }
}

#[test]
fn two_hundred_random_maps_place_ten_thousand_inputs_as_crushtool_does() {
    let Some(tool) = crushtool() else { return };
    let store = std::env::var("LOLIGO_STORE_FIXTURES").is_ok();
    let mut placed = 0;
    for seed in 1..=200u64 {
        let (map, reweights) = random_map(seed);
        let file = TempFile::new(&format!("map{seed}"), &map.to_bytes());
        let stored = STORED_SEEDS.contains(&seed);
        let xs = if stored { STORED_XS } else { 0..50 };
        for size in if stored { vec![1 + seed as usize % 7] } else { vec![3, 1 + seed as usize % 9] } {
            let args = tool_args(file.path(), &reweights, size, xs.clone());
            let out = run(&tool, &args.iter().map(String::as_str).collect::<Vec<_>>());
            let theirs = String::from_utf8(out.stdout).expect("text");
            if store && stored {
                std::fs::write(data(&format!("mappings/{seed}.txt")), &theirs).expect("the fixture");
            }
            let ours = mappings(&map, &reweights, size, xs.clone());
            assert_eq!(first_difference(&ours, &theirs), None, "seed {seed} size {size}");
            placed += ours.lines().count();
        }
    }
    assert!(placed >= 10_000, "{placed} placements compared");
}

/// An OSD map with each random map in it, and the placement groups of its replicated pool, which has id 1.
#[test]
fn two_hundred_random_maps_place_ten_thousand_groups_as_osdmaptool_does() {
    let Some(tool) = peer("osdmaptool") else { return };
    let mut placed = 0;
    for seed in 1..=200u64 {
        let (mut map, _) = random_map(seed);
        let crush = TempFile::new(&format!("osdmap-crush{seed}"), &map.to_bytes());
        let osdmap = TempFile::new(&format!("osdmap{seed}"), b"");
        let devices = map.max_devices.max(1).to_string();
        let (file, count) = (osdmap.path(), devices.as_str());
        run(&tool, &["--createsimple", count, "--clobber", "--pg-bits", "4", "--with-default-pool", file]);
        run(&tool, &[file, "--import-crush", crush.path()]);
        let out = run(&tool, &[file, "--mark-up-in", "--test-map-pgs-dump"]);
        let theirs = String::from_utf8(out.stdout).expect("text");
        let theirs: Vec<&str> = theirs.lines().filter(|l| l.starts_with("1.")).collect();
        let weights = vec![0x10000; map.max_devices as usize];
        // `--mark-up-in` gives devices without weight one of 1.
        for device in (0..map.max_devices).filter(|d| map.item_weight(*d) == Some(0)).collect::<Vec<_>>() {
            map.adjust_item_weight(device, 0x10000).expect("a device of the map");
        }
        for (group, line) in (0u32..).zip(&theirs) {
            let x = hash32_2(group, 1) as i32;
            let devices = map.do_rule(0, x, 3, &weights, Some(1));
            let list: Vec<String> = devices.iter().map(ToString::to_string).collect();
            let primary = devices.first().copied().unwrap_or(-1);
            assert_eq!(*line, format!("1.{group:x}\t[{}]\t{primary}", list.join(",")), "seed {seed}");
        }
        placed += theirs.len();
    }
    assert!(placed >= 10_000, "{placed} groups compared");
}

#[test]
fn random_maps_come_back_from_their_bytes() {
    for seed in 1..=60 {
        let (map, _) = random_map(seed);
        let bytes = map.to_bytes();
        let back = CrushMap::from_bytes(bytes.clone()).expect("our own bytes");
        assert_eq!(back.to_bytes(), bytes, "seed {seed}");
        assert_eq!(back, map.with_full_choose_args(), "seed {seed}");
    }
}

trait WithFullChooseArgs {
    fn with_full_choose_args(&self) -> CrushMap;
}

impl WithFullChooseArgs for CrushMap {
    fn with_full_choose_args(&self) -> CrushMap {
        let mut map = self.clone();
        map.repair_choose_args();
        map
    }
}

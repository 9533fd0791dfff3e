//! Placements equal crushtool's: stored ones always, fresh ones where the tool is installed.

use crate::common;

use codec::{Decode, Encode};
use common::{Random, Reweights, TempFile, crushtool, data, peer, placement_weights, random_map, run};
use crush::hash::hash32_2;
use crush::{Alg, Batch, Bucket, ChooseArg, ChooseArgMap, CrushMap, Rule, Scratch, Step, Tunables};

/// Our placements in the words of `crushtool --test --show-mappings`.
fn mappings(map: &CrushMap, reweights: &Reweights, size: usize, xs: std::ops::Range<i32>) -> String {
    let weights = placement_weights(map, reweights);
    let (mut scratch, mut placed) = (Scratch::default(), Vec::new());
    let mut text = String::new();
    if weights.iter().all(|w| *w == 0) {
        return text; // crushtool skips the test then
    }
    for rule in 0..map.rules.len() as u32 {
        let together = together(map, rule, &xs.clone().map(|x| x as u32).collect::<Vec<_>>(), size, &weights);
        for (x, all) in xs.clone().zip(together) {
            map.do_rule_into(rule, x, size, &weights, Some(0), &mut scratch, &mut placed);
            assert!(!scratch.exhausted());
            assert_eq!(all, placed, "rule {rule} x {x}: placed with others and alone");
            let list: Vec<String> = placed.iter().map(ToString::to_string).collect();
            text += &format!("CRUSH rule {rule} x {x} [{}]\n", list.join(","));
        }
    }
    text
}

/// The devices of each input, placed all at once.
fn together(map: &CrushMap, rule: u32, inputs: &[u32], size: usize, weights: &[u32]) -> Vec<Vec<i32>> {
    let mut all = Vec::new();
    map.place_all(rule, inputs, size, weights, Some(0), &mut Batch::default(), |i, placed| {
        assert_eq!(i, all.len());
        all.push(placed.to_vec());
    });
    all
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

/// Hosts of straw2 in racks, wide enough that the inputs of one batch meet in every bucket. Every third seed has equal
/// weights, every other one weight sets, and every fourth many devices that are partly out.
fn wide_map(seed: u64) -> (CrushMap, Reweights) {
    let rng = &mut Random::new(seed);
    let names = ["legacy", "bobtail", "firefly", "hammer", "jewel"];
    let tunables = Tunables::JEWEL.with_profile(rng.pick(&names)).expect("a profile");
    let mut map = CrushMap { tunables, ..CrushMap::default() };
    for (id, name) in ["osd", "host", "rack", "root"].iter().enumerate() {
        map.type_names.insert(id as i32, (*name).to_owned());
    }
    let weight = |rng: &mut Random| {
        if seed % 3 == 0 {
            0x10000
        } else {
            [0, 0x4000, 0x10000, 0x38_0000][rng.below(4) as usize] + rng.below(0x1000) as u32
        }
    };
    let (mut devices, mut racks) = (0, Vec::new());
    for _ in 0..3 + rng.below(5) {
        let mut hosts = Vec::new();
        for _ in 0..2 + rng.below(5) {
            let osds: Vec<(i32, u32)> =
                (devices..devices + 2 + rng.below(7) as i32).map(|d| (d, weight(rng))).collect();
            devices += osds.len() as i32;
            hosts.push(add_straw2(&mut map, 1, &osds));
        }
        racks.push(add_straw2(&mut map, 2, &hosts));
    }
    let root = add_straw2(&mut map, 3, &racks).0;
    add_wide_rules(&mut map, root, racks[0].0);
    if seed % 2 == 0 {
        let positions = 1 + rng.below(2) * 2;
        let args = map.buckets.iter().flatten().map(|b| ChooseArg {
            weight_sets: (0..positions).map(|_| b.items.iter().map(|_| weight(rng)).collect()).collect(),
            ids: if rng.chance(30) {
                b.items.iter().map(|i| i.wrapping_mul(7)).collect()
            } else {
                Vec::new()
            },
        });
        let args = args.collect();
        map.choose_args.insert(0, ChooseArgMap { args });
    }
    map.finalize();
    map.validate().expect("a valid map");
    let out = if seed % 4 == 0 { 60 } else { 10 };
    let reweights = (0..devices).filter(|_| rng.chance(out)).collect::<Vec<_>>();
    (map, reweights.into_iter().map(|d| (d, rng.below(16) as u32)).collect())
}

/// Every form of a rule that ends with devices.
fn add_wide_rules(map: &mut CrushMap, root: i32, rack: i32) {
    let leaf = [Step::CHOOSELEAF_FIRSTN, Step::CHOOSELEAF_INDEP];
    let plain = [Step::CHOOSE_FIRSTN, Step::CHOOSE_INDEP];
    for kind in 0..2 {
        let tries =
            if kind == 0 { Step::new(Step::NOOP, 0, 0) } else { Step::new(Step::SET_CHOOSELEAF_TRIES, 5, 0) };
        let begin = vec![tries, Step::take(root)];
        let ends = [
            vec![Step::new(leaf[kind], 0, 1), Step::emit()],
            vec![Step::new(plain[kind], 0, 0), Step::emit()],
            vec![Step::new(plain[kind], 3, 2), Step::new(leaf[kind], 2, 1), Step::emit()],
            vec![
                Step::new(plain[kind], 2, 2),
                Step::new(plain[kind], 2, 1),
                Step::new(plain[kind], 1, 0),
                Step::emit(),
            ],
            vec![
                Step::new(leaf[kind], 2, 2),
                Step::emit(),
                Step::take(rack),
                Step::new(leaf[kind], -1, 1),
                Step::emit(),
            ],
        ];
        for end in ends {
            let (ruleset, rule_type) = (map.rules.len() as u8, 1 + 2 * kind as u8);
            let steps = [begin.clone(), end].concat();
            map.rule_names.insert(map.rules.len() as i32, format!("rule{}", map.rules.len()));
            map.rules.push(Some(Rule { ruleset, rule_type, min_size: 1, max_size: 10, steps }));
        }
    }
}

fn add_straw2(map: &mut CrushMap, level: u16, items: &[(i32, u32)]) -> (i32, u32) {
    let id = CrushMap::bucket_id(map.buckets.len());
    let bucket = Bucket::new(Alg::Straw2, id, level, items, 1).expect("a bucket");
    let weight = bucket.weight;
    map.buckets.push(Some(bucket));
    (id, weight)
}

/// Every rule of a random map, for so many inputs at once and one by one.
fn check_together(seed: u64, inputs: u32) {
    let (mut map, reweights) = wide_map(seed);
    // Racks as the result, which crushtool cannot count.
    let racks = vec![
        Step::take(-1 - map.buckets.len() as i32 + 1),
        Step::new(Step::CHOOSE_FIRSTN, 0, 2),
        Step::emit(),
    ];
    map.rules.push(Some(Rule { ruleset: 9, rule_type: 1, min_size: 1, max_size: 10, steps: racks }));
    let weights = placement_weights(&map, &reweights);
    let inputs: Vec<u32> = (0..inputs).map(|i: u32| i.wrapping_mul(0x9e37_79b9)).collect();
    for rule in 0..map.rules.len() as u32 {
        for size in [3, 5] {
            let all = together(&map, rule, &inputs, size, &weights);
            let alone = inputs.iter().map(|x| map.do_rule(rule, *x as i32, size, &weights, Some(0)));
            for ((x, alone), all) in inputs.iter().zip(alone).zip(all) {
                assert_eq!(all, alone, "seed {seed} rule {rule} size {size} x {x}");
            }
        }
    }
}

#[test]
fn inputs_placed_together_are_placed_as_alone() {
    (0..8).for_each(|seed| check_together(seed, 500));
}

/// Small enough for emulated processors.
#[test]
fn a_few_inputs_placed_together_are_placed_as_alone() {
    check_together(8, 50);
}

#[test]
fn wide_maps_are_placed_as_crushtool_does() {
    let Some(tool) = crushtool() else { return };
    for seed in 0..12 {
        let (map, reweights) = wide_map(seed);
        let file = TempFile::new(&format!("wide{seed}"), &map.to_bytes());
        let args = tool_args(file.path(), &reweights, 4, 0..200);
        let out = run(&tool, &args.iter().map(String::as_str).collect::<Vec<_>>());
        let theirs = String::from_utf8(out.stdout).expect("text");
        assert_eq!(first_difference(&mappings(&map, &reweights, 4, 0..200), &theirs), None, "seed {seed}");
    }
}

#[test]
fn a_rule_that_is_missing_or_places_nothing_still_answers_every_input() {
    let (map, _) = wide_map(1);
    let weights = placement_weights(&map, &Reweights::new());
    for (rule, size) in [(99, 3), (0, 0)] {
        assert_eq!(together(&map, rule, &[1, 2, 3], size, &weights), [[0; 0]; 3]);
    }
    assert!(together(&map, 0, &[], 3, &weights).is_empty());
}

//! Bytes that are no map, maps that are no forest, rules that never end.

use crate::common;

use codec::{Decode, Encode};
use common::{Random, data, random_map};
use crush::{
    Alg, Batch, Bucket, BucketData, CrushMap, ITEM_NONE, MAX_DEPTH, MapError, Rule, Scratch, Step, Tunables,
};

fn golden(name: &str) -> Vec<u8> {
    std::fs::read(data(&format!("golden/{name}.bin"))).expect("a golden map")
}

#[test]
fn every_truncation_is_refused_or_an_older_map() {
    let bytes = golden("choose-args");
    let mut accepted = 0;
    for end in 0..bytes.len() {
        accepted += usize::from(CrushMap::from_bytes(bytes[..end].to_vec()).is_ok());
    }
    // The ends of older writers: before the tunables, behind each group of them, and before the choose_args.
    assert_eq!(accepted, 8);
}

#[test]
fn flipped_bytes_never_panic_and_what_decodes_places() {
    let rng = &mut Random::new(7);
    for name in ["classes", "choose-args", "algs", "erasure"] {
        let whole = golden(name);
        for _ in 0..1500 {
            let mut bytes = whole.clone();
            for _ in 0..1 + rng.below(3) {
                let at = rng.below(bytes.len() as u64) as usize;
                let any = rng.next() as u8;
                bytes[at] = rng.pick(&[0, 1, 0x7f, 0x80, 0xff, any]);
            }
            let Ok(map) = CrushMap::from_bytes(bytes) else { continue };
            assert_eq!(map.validate(), Ok(()));
            let weights = vec![0x10000; 16];
            let (mut scratch, mut placed) = (Scratch::with_budget(20_000), Vec::new());
            for rule in 0..map.rules.len().min(6) as u32 {
                map.do_rule_into(rule, rng.next() as i32, 5, &weights, Some(3), &mut scratch, &mut placed);
                assert!(placed.len() <= 5);
            }
            let _ = map.decompile();
            let _ = map.walk(true).count();
        }
    }
}

fn bucket(id: i32, type_id: u16, items: &[i32]) -> Option<Bucket> {
    let items: Vec<(i32, u32)> = items.iter().map(|i| (*i, 0x10000)).collect();
    Some(Bucket::new(Alg::Straw2, id, type_id, &items, 1).expect("a bucket"))
}

#[test]
fn maps_that_do_not_hold_together_are_refused() {
    let check = |buckets: Vec<Option<Bucket>>, expected: MapError| {
        let map = CrushMap { buckets, ..CrushMap::default() };
        assert_eq!(map.validate(), Err(expected.clone()));
        assert!(CrushMap::from_bytes(map.to_bytes()).is_err(), "{expected}");
    };
    check(vec![bucket(-2, 1, &[])], MapError::MisplacedBucket { id: -2, slot: -1 });
    check(vec![bucket(-1, 0, &[])], MapError::DeviceType { id: -1 });
    check(vec![bucket(-1, 1, &[-5])], MapError::DanglingItem { id: -1, item: -5 });
    check(vec![bucket(-1, 1, &[ITEM_NONE])], MapError::DanglingItem { id: -1, item: ITEM_NONE });
    check(vec![bucket(-1, 1, &[-1])], MapError::Cycle { id: -1 });
    check(
        vec![bucket(-1, 1, &[-2]), bucket(-2, 1, &[0, -3]), bucket(-3, 1, &[-1])],
        MapError::Cycle { id: -3 },
    );
}

fn chain(levels: usize) -> CrushMap {
    let below = |i: usize| if i + 1 < levels { CrushMap::bucket_id(i + 1) } else { 0 };
    let buckets = (0..levels).map(|i| bucket(CrushMap::bucket_id(i), 1, &[below(i)])).collect();
    CrushMap { buckets, ..CrushMap::default() }
}

#[test]
fn depth_is_bounded_whichever_way_the_chain_lies_in_the_table() {
    assert_eq!(chain(MAX_DEPTH + 1).validate(), Ok(()));
    assert!(matches!(chain(MAX_DEPTH + 2).validate(), Err(MapError::TooDeep { .. })));
    // The deepest bucket first: heights are known before their parents are looked at.
    let mut upside_down = chain(MAX_DEPTH + 2);
    let last = upside_down.buckets.len() as i32;
    for b in upside_down.buckets.iter_mut().flatten() {
        b.id = -1 - last - b.id;
        b.items.iter_mut().filter(|i| **i < 0).for_each(|i| *i = -1 - last - *i);
    }
    upside_down.buckets.reverse();
    assert!(matches!(upside_down.validate(), Err(MapError::TooDeep { .. })));
}

/// Ten levels of buckets that all hold each bucket below: 100^10 paths, but only a thousand buckets.
#[test]
fn shared_children_cost_no_more_than_the_map() {
    let (levels, width) = (10, 30);
    let id = |level: i32, i: i32| -1 - level * width - i;
    let mut buckets = Vec::new();
    for level in 0..levels {
        for i in 0..width {
            let items: Vec<i32> = match level {
                0 => vec![i],
                _ => (0..width).map(|k| id(level - 1, k)).collect(),
            };
            let items: Vec<(i32, u32)> = items.into_iter().map(|i| (i, 1)).collect();
            let b = Bucket::new(Alg::Straw2, id(level, i), level as u16 + 1, &items, 1).expect("a bucket");
            buckets.push(Some(b));
        }
    }
    let mut map = CrushMap { buckets, ..CrushMap::default() };
    map.finalize();
    assert_eq!(map.validate(), Ok(()));
    let root = id(levels - 1, 0);
    assert_eq!(map.leaves(root).len(), width as usize);
    assert!(map.subtree_contains(root, 5));
    assert!(map.walk_from([root]).count() <= 1 << 20);
}

#[test]
fn a_rule_that_never_ends_stops_at_its_budget() {
    let mut map = CrushMap { buckets: vec![bucket(-1, 1, &[0, 1, 2])], ..CrushMap::default() };
    map.tunables = Tunables { choose_total_tries: u32::MAX - 1, ..Tunables::JEWEL };
    map.finalize();
    for op in [Step::CHOOSE_FIRSTN, Step::CHOOSE_INDEP] {
        // Nine distinct items out of three, for ever.
        let steps = vec![Step::take(-1), Step::new(op, 9, 0), Step::emit()];
        map.rules = vec![Some(Rule { ruleset: 0, rule_type: 1, min_size: 1, max_size: 10, steps })];
        let (mut scratch, mut placed) = (Scratch::default(), Vec::new());
        map.do_rule_into(0, 1, 9, &[0x10000; 3], None, &mut scratch, &mut placed);
        assert!(scratch.exhausted());
        let mut found: Vec<i32> = placed.iter().copied().filter(|d| *d != ITEM_NONE).collect();
        found.sort();
        assert_eq!(found, [0, 1, 2]);
    }
}

#[test]
fn a_rule_for_a_level_that_cannot_be_finds_nothing_together_as_alone() {
    let mut map = CrushMap { buckets: vec![bucket(-1, 1, &[0, 1, 2])], ..CrushMap::default() };
    map.finalize();
    // Devices that the map does not have.
    map.max_devices = 1;
    for op in [Step::CHOOSE_FIRSTN, Step::CHOOSE_INDEP, Step::CHOOSELEAF_FIRSTN, Step::CHOOSELEAF_INDEP] {
        for type_id in [-1, -2, i32::MIN] {
            let steps = vec![Step::take(-1), Step::new(op, 2, type_id), Step::emit()];
            map.rules = vec![Some(Rule { ruleset: 0, rule_type: 1, min_size: 1, max_size: 10, steps })];
            let inputs: Vec<u32> = (0..100).collect();
            let (mut scratch, mut placed, mut seen) = (Scratch::default(), Vec::new(), 0);
            map.place_all(0, &inputs, 2, &[0x10000; 3], None, &mut Batch::default(), |i, together| {
                map.do_rule_into(0, i as i32, 2, &[0x10000; 3], None, &mut scratch, &mut placed);
                assert_eq!(together, placed, "op {op}, level {type_id}, input {i}");
                seen += 1;
            });
            assert_eq!(seen, inputs.len());
        }
    }
}

#[test]
fn trees_larger_than_their_wire_form_are_refused() {
    let items: Vec<(i32, u32)> = (0..64).map(|i| (i, 1)).collect();
    let mut b = Bucket::new(Alg::Tree, -1, 1, &items, 1).expect("64 items fit");
    assert!(matches!(&b.data, BucketData::Tree { node_weights } if node_weights.len() == 128));
    assert!(b.add_item(64, 1, 1).is_err());
    assert_eq!(b.items.len(), 64);
}

/// Adding and removing items step by step leaves the bucket that building it at once makes.
#[test]
fn buckets_grow_and_shrink_to_what_building_makes() {
    let rng = &mut Random::new(3);
    for alg in [Alg::List, Alg::Tree, Alg::Straw, Alg::Straw2] {
        for version in [0, 1] {
            let mut items: Vec<(i32, u32)> = Vec::new();
            let mut grown = Bucket::new(alg, -1, 1, &[], version).expect("empty");
            for item in 0..40 {
                let weight = 1 + rng.below(0x30000) as u32;
                items.push((item, weight));
                grown.add_item(item, weight, version).expect("added");
                let (changed, weight) =
                    (rng.below(items.len() as u64) as usize, 1 + rng.below(0x30000) as u32);
                items[changed].1 = weight;
                grown.set_item_weight(items[changed].0, weight, version).expect("here").expect("fits");
                let built = Bucket::new(alg, -1, 1, &items, version).expect("built");
                assert_eq!(grown, built, "{alg:?} {version} at {item}");
            }
            while let Some((item, _)) = items.pop() {
                assert!(grown.remove_item(item, version).is_some());
                let built = Bucket::new(alg, -1, 1, &items, version).expect("built");
                // An empty tree that once had items keeps one node.
                if !items.is_empty() {
                    assert_eq!(grown, built, "{alg:?} {version} without {item}");
                }
            }
        }
    }
}

#[test]
fn reweighting_makes_every_bucket_the_sum_of_its_items() {
    for seed in 1..=40 {
        let (mut map, _) = random_map(seed);
        map.choose_args.clear();
        // Uniform buckets average what is below them, so they need not add up.
        if map.buckets.iter().flatten().any(|b| b.alg() == Alg::Uniform) {
            continue;
        }
        let devices: Vec<i32> = map.leaves(map.nonshadow_roots()[0]).into_iter().collect();
        for b in map.buckets.iter_mut().flatten() {
            for d in &devices {
                let _ = b.set_item_weight(*d, 0x11000 + *d as u32, 1);
            }
        }
        map.reweight().expect("reweighted");
        assert_eq!(map.weight_mismatches(), [], "seed {seed}");
        for b in map.buckets.iter().flatten() {
            for (child, weight) in b.weighted_items().filter(|(c, _)| *c < 0) {
                assert_eq!(map.bucket(child).map(|c| c.weight), Some(weight), "seed {seed}");
            }
        }
    }
}

//! Edits against crushtool's, step by step on the same maps, and what edits refuse.

use crate::common;

use std::path::Path;

use codec::{Decode, Encode};
use common::{Random, TempFile, crushtool, data};
use crush::{
    Alg, Bucket, CrushMap, EditError, Location, RULE_ERASURE, RULE_REPLICATED, RuleMode, Step,
    parse_location, str_hash_rjenkins, weight_from_f32,
};

type Call = Box<dyn Fn(&mut CrushMap) -> Result<(), EditError>>;

/// An edit in crushtool's words and as a call.
struct Edit {
    args: Vec<String>,
    call: Call,
}

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

fn location(rng: &mut Random) -> (String, Location) {
    let mut words = Vec::new();
    if rng.chance(90) {
        words.push(format!("host=h{}", rng.below(6)));
    }
    if rng.chance(50) {
        words.push(format!("rack=r{}", rng.below(3)));
    }
    if rng.chance(85) {
        words.push(if rng.chance(80) { "root=default".to_owned() } else { "root=other".to_owned() });
    }
    let as_args = words.iter().map(|w| format!(" --loc {}", w.replace('=', " "))).collect();
    (as_args, parse_location(words.iter().map(String::as_str)).expect("a location"))
}

fn random_edit(rng: &mut Random, step: usize) -> Edit {
    let device = rng.below(16) as i32;
    let eighths = rng.below(40) as f32 / 8.0;
    let weight = weight_from_f32(eighths).expect("a weight");
    let (loc, at) = location(rng);
    let item = match rng.below(4) {
        0 => format!("h{}", rng.below(6)),
        1 => format!("r{}", rng.below(3)),
        _ => format!("osd.{device}"),
    };
    let id = |map: &CrushMap, name: &str| map.item_id(name).ok_or(EditError::NoSuchName(name.to_owned()));
    let (line, call): (String, Call) = match rng.below(12) {
        0..3 => (
            format!("--add-item {device} {eighths} osd.{device}{loc}"),
            Box::new(move |m| m.insert_item(device, weight, &format!("osd.{device}"), &at)),
        ),
        3 => (
            format!("--update-item {device} {eighths} osd.{device}{loc}"),
            Box::new(move |m| m.update_item(device, weight, &format!("osd.{device}"), &at).map(drop)),
        ),
        4 => (
            format!("--remove-item {item}"),
            Box::new(move |m| {
                let id = id(m, &item)?;
                m.remove_item(id, false)
            }),
        ),
        5..7 => (
            format!("--reweight-item {item} {eighths}"),
            Box::new(move |m| {
                let id = id(m, &item)?;
                m.adjust_item_weight(id, weight).map(drop)
            }),
        ),
        7 | 8 => (
            format!("--move {item}{loc}"),
            Box::new(move |m| match id(m, &item)? {
                // crushtool calls it a failure when there is nothing to move.
                id if m.weight_at(id, &at).is_some() => Err(EditError::NameExists(item.clone())),
                id if id >= 0 => m.create_or_move_item(id, 0, &item, &at).map(drop),
                id => m.move_bucket(id, &at),
            }),
        ),
        9 => {
            let class = rng.pick(&["hdd", "ssd"]);
            let host = format!("h{}", rng.below(6));
            (
                format!("--set-subtree-class {host} {class} --rebuild-class-roots"),
                Box::new(move |m| {
                    // crushtool rebuilds first and says nothing of a bucket that is not there.
                    m.rebuild_class_roots()?;
                    m.set_subtree_class(&host, class).or_else(|e| match e {
                        EditError::NoSuchName(_) => Ok(()),
                        e => Err(e),
                    })
                }),
            )
        }
        10 => ("--rebuild-class-roots".to_owned(), Box::new(|m| m.rebuild_class_roots())),
        _ => random_rule(rng, step),
    };
    Edit { args: words(&line), call }
}

fn random_rule(rng: &mut Random, step: usize) -> (String, Call) {
    let class = rng.pick(&["", "hdd", "ssd"]);
    let domain = rng.pick(&["osd", "host", "rack"]);
    let mode = rng.pick(&["firstn", "indep"]);
    let class_args = if class.is_empty() { String::new() } else { format!(" --device-class {class}") };
    (
        format!("--create-simple-rule rule{step} default {domain} {mode}{class_args}"),
        Box::new(move |m| {
            let class = Some(class).filter(|c| !c.is_empty());
            let mode = RuleMode::from_name(mode)?;
            let name = format!("rule{step}");
            m.add_simple_rule(&name, "default", domain, class, mode, RULE_REPLICATED, None).map(drop)
        }),
    )
}

fn starting_map(rng: &mut Random, with_choose_args: bool) -> CrushMap {
    let mut map = CrushMap::new_default();
    for device in 0..6 {
        let host = format!("host=h{}", device % 3);
        let place = parse_location([host.as_str(), "root=default"]).expect("a location");
        let weight = 0x10000 + 0x2000 * rng.below(8) as u32;
        map.insert_item(device, weight, &format!("osd.{device}"), &place).expect("a new item");
        if rng.chance(60) {
            map.set_device_class(device, rng.pick(&["hdd", "ssd"])).expect("a class");
        }
    }
    if with_choose_args {
        assert!(map.create_choose_args(-1, 1));
        assert!(map.create_choose_args(4, 1));
        map.adjust_choose_args(4, 2, &[0x18000]).expect("a weight set");
    }
    map.finalize();
    map
}

/// What crushtool made of an edit.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Outcome {
    /// A map whose bytes have this hash.
    Map(u32),
    Refused,
    /// It died of a signal, so there is nothing to compare with.
    Died,
}

impl Outcome {
    fn line(self) -> String {
        match self {
            Self::Map(hash) => format!("map {hash:08x}\n"),
            Self::Refused => "refused\n".to_owned(),
            Self::Died => "died\n".to_owned(),
        }
    }

    fn from_line(line: &str) -> Self {
        match line.split_once(' ') {
            Some((_, hash)) => Self::Map(u32::from_str_radix(hash, 16).expect("a hash")),
            None if line == "refused" => Self::Refused,
            None => Self::Died,
        }
    }
}

/// Has crushtool make the edit; its map, if it made one.
fn ask_tool(tool: &Path, files: (&TempFile, &TempFile), map: &CrushMap, edit: &Edit) -> (Outcome, Vec<u8>) {
    let (input, output) = files;
    std::fs::write(input.path(), map.to_bytes()).expect("the map");
    let mut command = std::process::Command::new(tool);
    command.args(["-i", input.path(), "-o", output.path()]).args(&edit.args);
    let out = command.output().expect("crushtool starts");
    match out.status.code() {
        Some(0) => (Outcome::Map(str_hash_rjenkins(&output.read())), output.read()),
        Some(_) => (Outcome::Refused, Vec::new()),
        None => (Outcome::Died, Vec::new()),
    }
}

/// Makes random edits; `theirs` tells what crushtool makes of each. How many changed the map.
fn compare_edits(
    seed: u64,
    steps: usize,
    with_choose_args: bool,
    mut theirs: impl FnMut(usize, &CrushMap, &Edit) -> (Outcome, Vec<u8>),
) -> usize {
    let rng = &mut Random::new(seed);
    let mut map = starting_map(rng, with_choose_args);
    let mut made = 0;
    for step in 0..steps {
        let edit = random_edit(rng, step);
        let (outcome, their_bytes) = theirs(step, &map, &edit);
        let mut edited = map.clone();
        let result = (edit.call)(&mut edited);
        let context = format!("seed {seed} step {step} {:?}\n{}", edit.args, map.decompile().unwrap());
        match outcome {
            Outcome::Died => {}
            Outcome::Refused => {
                assert!(result.is_err(), "crushtool refuses: {context}");
                assert_eq!(edited, map, "a refused edit changes nothing: {context}");
            }
            Outcome::Map(hash) => {
                assert_eq!(result, Ok(()), "{context}");
                edited.finalize();
                if str_hash_rjenkins(&edited.to_bytes()) != hash {
                    let theirs = CrushMap::from_bytes(their_bytes).expect("crushtool's map");
                    assert_eq!(edited.decompile(), theirs.decompile(), "{context}");
                    assert_eq!(edited, theirs, "{context}");
                    panic!("the same maps in different bytes: {context}");
                }
                map = edited;
                made += 1;
            }
        }
    }
    made
}

fn compare_with_tool(seeds: std::ops::RangeInclusive<u64>, steps: usize, with_choose_args: bool) -> usize {
    let Some(tool) = crushtool() else { return usize::MAX };
    let store = std::env::var("LOLIGO_STORE_FIXTURES").is_ok();
    let compare = |seed| {
        let input = TempFile::new(&format!("edit-in{seed}"), b"");
        let output = TempFile::new(&format!("edit-out{seed}"), b"");
        let mut lines = String::new();
        let made = compare_edits(seed, steps, with_choose_args, |_, map, edit| {
            let answer = ask_tool(&tool, (&input, &output), map, edit);
            lines += &answer.0.line();
            answer
        });
        if store {
            std::fs::write(data(&format!("edits/{seed}.txt")), lines).expect("the fixture");
        }
        made
    };
    seeds.map(compare).sum()
}

fn compare_with_stored(seed: u64, with_choose_args: bool) -> usize {
    let stored = std::fs::read_to_string(data(&format!("edits/{seed}.txt"))).expect("stored outcomes");
    let outcomes: Vec<Outcome> = stored.lines().map(Outcome::from_line).collect();
    compare_edits(seed, outcomes.len(), with_choose_args, |step, _, _| (outcomes[step], Vec::new()))
}

#[test]
fn random_edits_leave_the_maps_that_crushtool_left() {
    let made: usize = (1..=5).map(|seed| compare_with_stored(seed, false)).sum();
    assert!(made >= 100, "{made} edits made");
    let made: usize = (31..=34).map(|seed| compare_with_stored(seed, true)).sum();
    assert!(made >= 60, "{made} edits made");
}

#[test]
fn random_edits_leave_the_maps_that_crushtool_leaves() {
    assert!(compare_with_tool(1..=5, 60, false) >= 100);
}

#[test]
fn random_edits_with_weight_sets_leave_the_maps_that_crushtool_leaves() {
    assert!(compare_with_tool(31..=34, 50, true) >= 60);
}

fn place(words: &str) -> Location {
    parse_location(words.split_whitespace()).expect("a location")
}

/// A host of two devices in the default root, one of them of class ssd.
fn small_map() -> CrushMap {
    let mut map = CrushMap::new_default();
    for device in 0..2 {
        map.insert_item(device, 0x10000, &format!("osd.{device}"), &place("host=a root=default"))
            .expect("placed");
    }
    assert_eq!(map.set_device_class(1, "ssd"), Ok(true));
    map
}

#[test]
fn a_new_map_is_that_of_a_new_cluster() {
    let mut map = CrushMap::new_default();
    let made = map.add_simple_rule(
        "replicated_rule",
        "default",
        "osd",
        None,
        RuleMode::Firstn,
        RULE_REPLICATED,
        None,
    );
    assert_eq!(made, Ok(0));
    let golden = std::fs::read(data("golden/new-cluster.bin")).expect("a golden map");
    assert_eq!(map.to_bytes(), golden);
}

/// As 16.2.15 makes it for `plugin=lrc k=4 m=2 l=3 crush-locality=host crush-failure-domain=osd`.
#[test]
fn a_rule_of_steps_is_that_of_locally_repairable_codes() {
    let mut map = small_map();
    let steps = [(false, 2, "host"), (true, 4, "osd")];
    assert_eq!(map.add_stepped_rule("lrc", "default", None, steps, 8), Ok(0));
    let rule = map.rule(0).expect("the rule");
    assert_eq!((rule.ruleset, rule.rule_type, rule.min_size, rule.max_size), (0, RULE_ERASURE, 3, 8));
    let take = map.item_id("default").expect("the root");
    let want = [
        Step::new(Step::SET_CHOOSELEAF_TRIES, 5, 0),
        Step::new(Step::SET_CHOOSE_TRIES, 100, 0),
        Step::take(take),
        Step::new(Step::CHOOSE_INDEP, 2, 1),
        Step::new(Step::CHOOSELEAF_INDEP, 4, 0),
        Step::emit(),
    ];
    assert_eq!(rule.steps, want);
    assert_eq!(map.add_stepped_rule("fast", "default", Some("ssd"), [(true, 0, "host")], 3), Ok(1));
    let ssd = map.item_id("default~ssd").expect("the part with the class");
    assert_eq!(map.rule(1).map(|rule| rule.steps[2]), Some(Step::take(ssd)));
    let before = map.clone();
    let mut check = |name: &str, root: &str, class, kind, errno: i32| {
        let error = map.add_stepped_rule(name, root, class, [(true, 0, kind)], 3).expect_err("refused");
        assert_eq!((error.errno(), &map), (errno, &before), "{error}");
    };
    check("lrc", "default", None, "host", 17);
    check("x", "nowhere", None, "host", 2);
    check("x", "default", Some("nvme"), "host", 2);
    check("x", "default", None, "castle", 22);
}

#[test]
fn refused_edits_say_why_and_change_nothing() {
    let before = small_map();
    let check = |edit: Call, errno: i32| {
        let mut map = before.clone();
        let error = edit(&mut map).expect_err("refused");
        assert_eq!((error.errno(), &map), (errno, &before), "{error}");
    };
    let host = before.item_id("a").expect("the host");
    check(Box::new(|m| m.insert_item(2, 1, "osd 2", &place("host=a"))), 22);
    check(Box::new(|m| m.insert_item(2, 1, "osd.1", &place("host=a"))), 17);
    check(Box::new(|m| m.insert_item(2, 1, "osd.2", &place("root=osd.1"))), 22);
    check(Box::new(|m| m.insert_item(2, 1, "osd.2", &place("rack=a"))), 22);
    check(Box::new(|m| m.insert_item(2, 1, "osd.2", &Location::new())), 22);
    check(Box::new(move |m| m.move_bucket(host, &place("host=a"))), 22);
    check(Box::new(move |m| m.remove_item(host, false)), 39);
    check(Box::new(|m| m.remove_item(9, false)), 2);
    check(Box::new(|m| m.remove_rule(0)), 2);
    check(Box::new(|m| m.rename_bucket("a", "default")), 17);
    check(Box::new(|m| m.set_device_class(1, "hdd").map(drop)), 16);
    check(Box::new(|m| m.set_device_class(7, "hdd").map(drop)), 2);
    check(Box::new(move |m| m.set_device_class(host, "hdd").map(drop)), 22);
    check(Box::new(|m| m.add_bucket("b", "castle").map(drop)), 22);
    check(Box::new(|m| m.adjust_item_weight(0, u32::MAX).map(drop)), 34);
    let rule = |m: &mut CrushMap, root, domain, class| {
        m.add_simple_rule("r", root, domain, class, RuleMode::Firstn, RULE_REPLICATED, None).map(drop)
    };
    check(Box::new(move |m| rule(m, "nowhere", "host", None)), 2);
    check(Box::new(move |m| rule(m, "default", "castle", None)), 22);
    check(Box::new(move |m| rule(m, "default", "host", Some("nvme"))), 2);
}

#[test]
fn a_bucket_cannot_be_moved_below_itself() {
    let mut map = small_map();
    let rack = map.add_bucket("r", "rack").expect("a rack");
    map.move_bucket(rack, &place("root=default")).expect("moved");
    let root = map.item_id("default").expect("the root");
    assert!(matches!(map.move_bucket(root, &place("rack=r")), Err(EditError::Cycle { .. })));
}

#[test]
fn shadow_trees_keep_their_ids_over_edits() {
    let mut map = small_map();
    let take = |map: &CrushMap| map.item_id("default~ssd");
    let before = take(&map).expect("a shadow root");
    map.add_simple_rule("fast", "default", "host", Some("ssd"), RuleMode::Firstn, RULE_REPLICATED, None)
        .expect("a rule");
    map.insert_item(2, 0x20000, "osd.2", &place("host=b root=default")).expect("placed");
    map.set_device_class(2, "ssd").expect("a class");
    assert_eq!(take(&map), Some(before));
    assert_eq!(map.leaves(before), [1, 2].into());
    assert_eq!(map.bucket(before).map(|b| b.weight), Some(0x30000));
    assert_eq!(map.rules_by_class(map.class_id("ssd").expect("the class")), [0]);

    map.remove_device_class(1).expect("removed");
    map.remove_device_class(2).expect("removed");
    assert_eq!(take(&map), Some(before), "the rule keeps a class without devices alive");
    map.remove_rule(0).expect("removed");
    assert_eq!((take(&map), map.class_id("ssd")), (None, None));
}

/// Weight sets of several positions add up in shadow trees too, where Ceph 16.2 keeps the last position only.
#[test]
fn weight_sets_of_shadow_trees_add_up_at_every_position() {
    let mut map = small_map();
    assert!(map.create_choose_args(0, 2));
    map.adjust_choose_args(0, 1, &[0x8000, 0x18000]).expect("weights");
    map.rebuild_class_roots().expect("rebuilt");
    let sets = |name: &str| {
        let id = map.item_id(name).expect(name);
        map.choose_args[&0].get(id).expect(name).weight_sets.clone()
    };
    assert_eq!(sets("a"), [[0x10000, 0x8000], [0x10000, 0x18000]]);
    assert_eq!(sets("default"), [[0x18000], [0x28000]]);
    assert_eq!(sets("a~ssd"), [[0x8000], [0x18000]]);
    assert_eq!(sets("default~ssd"), [[0x8000], [0x18000]]);
}

/// Taking an item out of a uniform bucket leaves the others their weight.
#[test]
fn uniform_buckets_keep_their_weights_when_an_item_leaves() {
    let mut map = small_map();
    let host = map.item_id("a").expect("the host");
    let items = [(0, 0x10000), (1, 0x10000)];
    let uniform = Bucket::new(Alg::Uniform, host, 1, &items, 1).expect("a bucket");
    *map.bucket_mut(host).expect("the host") = uniform;
    map.remove_item(0, false).expect("removed");
    assert_eq!(map.item_weight(1), Some(0x10000));
    assert_eq!(map.bucket(-1).map(|b| b.weight), Some(0x10000));
    assert_eq!(map.weight_mismatches(), []);
}

#[test]
fn swapped_buckets_exchange_items_weights_and_names() {
    let mut map = small_map();
    map.insert_item(5, 0x30000, "osd.5", &place("host=b root=default")).expect("placed");
    let (a, b) = (map.item_id("a").expect("a"), map.item_id("b").expect("b"));
    map.swap_buckets(a, b).expect("swapped");
    assert_eq!((map.item_name(a), map.children(a)), (Some("b"), &[5][..]));
    assert_eq!((map.item_name(b), map.children(b)), (Some("a"), &[0, 1][..]));
    assert_eq!(map.weight_mismatches(), []);
}

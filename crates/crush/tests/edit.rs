//! Edits against crushtool's, step by step on the same maps, and what edits refuse.

mod common;

use codec::{Decode, Encode};
use common::{Random, TempFile, crushtool};
use crush::{
    Alg, Bucket, CrushMap, EditError, Location, RULE_REPLICATED, RuleMode, parse_location, weight_from_f32,
};

/// An edit in crushtool's words and as a call.
struct Edit {
    args: Vec<String>,
    call: Box<dyn Fn(&mut CrushMap) -> Result<(), EditError>>,
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
    let (line, call): (String, Box<dyn Fn(&mut CrushMap) -> Result<(), EditError>>) = match rng.below(12) {
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
        _ => {
            let class = rng.pick(&["", "hdd", "ssd"]);
            let domain = rng.pick(&["osd", "host", "rack"]);
            let mode = rng.pick(&["firstn", "indep"]);
            let class_args =
                if class.is_empty() { String::new() } else { format!(" --device-class {class}") };
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
    };
    Edit { args: words(&line), call }
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

fn compare_edits(seed: u64, steps: usize, with_choose_args: bool) -> usize {
    let Some(tool) = crushtool() else { return 0 };
    let rng = &mut Random::new(seed);
    let mut map = starting_map(rng, with_choose_args);
    let input = TempFile::new(&format!("edit-in{seed}"), &map.to_bytes());
    let output = TempFile::new(&format!("edit-out{seed}"), b"");
    let mut made = 0;
    for step in 0..steps {
        let edit = random_edit(rng, step);
        std::fs::write(input.path(), map.to_bytes()).expect("the map");
        let mut command = std::process::Command::new(&tool);
        command.args(["-i", input.path(), "-o", output.path()]).args(&edit.args);
        let out = command.output().expect("crushtool starts");
        let words = String::from_utf8_lossy(&out.stderr).into_owned();
        let mut edited = map.clone();
        let result = (edit.call)(&mut edited);
        let context =
            format!("seed {seed} step {step} {:?}: {words}\n{}", edit.args, map.decompile().unwrap());
        if out.status.code().is_none() {
            continue; // crushtool died of a signal; there is nothing to compare with
        }
        assert_eq!(result.is_ok(), out.status.success(), "{result:?} {context}");
        if result.is_err() {
            assert_eq!(edited, map, "a refused edit changes nothing: {context}");
            continue;
        }
        edited.finalize();
        let theirs = output.read();
        if edited.to_bytes() != theirs {
            let theirs = CrushMap::from_bytes(theirs).expect("crushtool's map");
            assert_eq!(edited.class_names, theirs.class_names, "{context}");
            assert_eq!(edited.device_classes, theirs.device_classes, "{context}");
            assert_eq!(edited.class_buckets, theirs.class_buckets, "{context}");
            assert_eq!(edited.item_names, theirs.item_names, "{context}");
            assert_eq!(edited.buckets, theirs.buckets, "{context}");
            let (ours, theirs) = (edited.decompile().unwrap(), theirs.decompile().unwrap());
            let differ = ours.lines().zip(theirs.lines()).filter(|(a, b)| a != b).collect::<Vec<_>>();
            panic!("ours and theirs: {differ:#?}\n{context}");
        }
        map = edited;
        made += 1;
    }
    made
}

#[test]
fn random_edits_leave_the_maps_that_crushtool_leaves() {
    let made: usize = (1..=24).map(|seed| compare_edits(seed, 60, false)).sum();
    assert!(crushtool().is_none() || made >= 100, "{made} edits made");
}

#[test]
fn random_edits_with_weight_sets_leave_the_maps_that_crushtool_leaves() {
    let made: usize = (31..=54).map(|seed| compare_edits(seed, 50, true)).sum();
    assert!(crushtool().is_none() || made >= 60, "{made} edits made");
}

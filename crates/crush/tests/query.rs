//! Names, places and walks, and the hashes against values that Ceph computes.

use crate::common;

use codec::Decode;
use common::data;
use crush::hash::{hash32, hash32_2, hash32_3, hash32_4, hash32_5};
use crush::{
    CrushMap, RULE_ERASURE, RULE_REPLICATED, STR_HASH_LINUX, STR_HASH_RJENKINS, parse_location, str_hash,
    weight_from_f32, weight_to_f32,
};

fn golden(name: &str) -> CrushMap {
    let bytes = std::fs::read(data(&format!("golden/{name}.bin"))).expect("a golden map");
    CrushMap::from_bytes(bytes).expect("a map")
}

/// The walk as `crushtool --tree` prints it.
#[test]
fn walks_come_in_the_order_of_the_tree_command() {
    for name in ["classes", "erasure", "algs", "reordered"] {
        let map = golden(name);
        let stored = std::fs::read_to_string(data(&format!("golden/{name}.tree"))).expect("a tree");
        let theirs: Vec<String> =
            stored.lines().skip(1).map(|l| l.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        let line = |item: crush::WalkItem| {
            let class = map.item_class(item.id).unwrap_or_default();
            let weight = match item.weight {
                0 => "0".to_owned(),
                w => format!("{:.5}", weight_to_f32(w)),
            };
            let own_name = map.item_name(item.id).unwrap_or_default();
            let type_name = map.item_type(item.id).filter(|t| *t > 0).and_then(|t| map.type_name(t));
            let words = [&item.id.to_string(), class, &weight, type_name.unwrap_or_default(), own_name];
            words.iter().filter(|w| !w.is_empty()).copied().collect::<Vec<_>>().join(" ")
        };
        let ours: Vec<String> = map.walk(true).map(line).collect();
        assert_eq!(ours, theirs, "{name}");
        assert!(map.walk(false).all(|i| !map.is_shadow(i.id)), "{name}");
    }
}

#[test]
fn walks_list_children_in_the_reverse_of_their_own_order() {
    let map = golden("erasure");
    let first = map.walk(false).next().expect("the root");
    assert_eq!((first.id, first.parent, first.depth), (-1, 0, 0));
    assert_eq!(first.children, [-7, -6, -5, -4, -3, -2]);
}

#[test]
fn places_of_items_are_found() {
    let map = golden("classes");
    let pairs = |list: &[(&str, &str)]| {
        list.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect::<Vec<_>>()
    };
    assert_eq!(map.full_location_ordered(0), pairs(&[("host", "a"), ("rack", "r"), ("root", "default")]));
    assert_eq!(map.parent(-2), Some(-4));
    assert_eq!(map.parent(-1), None);
    assert_eq!(map.parent_of_type(3, 3), Some(-4));
    assert_eq!(map.leaves(-4), [0, 1, 2, 3, 5].into());
    assert_eq!(map.leaves(map.item_id("default~ssd").expect("a shadow root")), [1].into());
    assert!(map.subtree_contains(-1, 5) && !map.subtree_contains(-2, 5));
    assert_eq!(map.children_of_type(-1, 1, false), [-2, -3].into());
    assert_eq!(map.nonshadow_roots(), [-1]);
    assert_eq!(map.roots().len(), 4);
    assert_eq!(map.devices_by_class("hdd"), [0, 2].into());
    assert_eq!(map.split_id_class(-20), Some((-1, map.class_id("hdd"))));
    assert_eq!(map.item_weight_in(1, &parse_location(["host=a"]).expect("a location")), Some(0x8000));
    let near = |words: &[&str]| {
        let places: Vec<_> = words.iter().filter_map(|w| w.split_once('=')).collect();
        map.common_ancestor_distance(0, &pairs(&places))
    };
    assert_eq!(near(&["host=b", "host=a"]), Some(1));
    assert_eq!(near(&["host=b", "rack=r"]), Some(3));
    assert_eq!(near(&["host=b"]), None);
}

#[test]
fn rules_are_found_by_what_they_serve() {
    let map = golden("erasure");
    assert_eq!(map.find_rule(1, RULE_ERASURE, 6), Some(1));
    assert_eq!(map.find_rule(1, RULE_ERASURE, 7), None);
    assert_eq!(map.find_rule(1, RULE_REPLICATED, 6), None);
    assert_eq!(map.find_rule(9, RULE_ERASURE, 6), None);
}

#[test]
fn shares_of_a_rule_sum_to_the_number_of_its_takes() {
    let map = golden("classes");
    let shares = map.rule_weights(1);
    assert_eq!(shares.into_iter().collect::<Vec<_>>(), [(1, 1.0)]);
    let both: f32 = map.rule_weights(4).values().sum();
    assert!((both - 2.0).abs() < 1e-6, "{both}");
}

#[test]
fn locations_and_weights_are_read_as_ceph_reads_them() {
    assert!(parse_location(["host=a", "root"]).is_err());
    assert!(parse_location(["host="]).is_err());
    assert_eq!(weight_from_f32(1.5), Ok(0x18000));
    assert_eq!(weight_from_f32(0.00976), Ok(639));
    assert!(weight_from_f32(-1.0).is_err());
    assert!(weight_from_f32(f32::NAN).is_err());
    assert!(weight_from_f32(32768.0).is_err());
}

/// Values from the functions of Ceph 16.2.
#[test]
fn hashes_have_their_known_values() {
    assert_eq!(hash32(0x0), 0x17c4a80b);
    assert_eq!(hash32(0x1), 0xd5082851);
    assert_eq!(hash32(0xffffffff), 0x7f71bc2a);
    assert_eq!(hash32_2(0x0, 0x0), 0x19ad4ce9);
    assert_eq!(hash32_2(0x1, 0x2), 0xb78dee9c);
    assert_eq!(hash32_2(0x12345678, 0xfffffffe), 0x62c04376);
    assert_eq!(hash32_3(0x0, 0x0, 0x0), 0x7a3bf3b2);
    assert_eq!(hash32_3(0x1, 0x2, 0x3), 0x735ad42b);
    assert_eq!(hash32_3(0x12345678, 0xfffffffe, 0x80000000), 0x40721b69);
    assert_eq!(hash32_4(0x0, 0x0, 0x0, 0x0), 0x3fafb04d);
    assert_eq!(hash32_4(0x1, 0x2, 0x3, 0x4), 0x696d1f16);
    assert_eq!(hash32_4(0x12345678, 0xfffffffe, 0x80000000, 0x4d), 0x60625368);
    assert_eq!(hash32_5(0x0, 0x0, 0x0, 0x0, 0x0), 0xa45e5003);
    assert_eq!(hash32_5(0x1, 0x2, 0x3, 0x4, 0x5), 0x4b42a1a1);
    assert_eq!(hash32_5(0x12345678, 0xfffffffe, 0x80000000, 0x4d, 0xdeadbeef), 0xf2d6c076);
    assert_eq!(str_hash(STR_HASH_LINUX, b""), 0x00000000);
    assert_eq!(str_hash(STR_HASH_LINUX, b"a"), 0x000042f2);
    assert_eq!(str_hash(STR_HASH_LINUX, b"rbd_data"), 0x404be40f);
    assert_eq!(str_hash(STR_HASH_LINUX, b"exactly12byt"), 0x3b2d1dcd);
    assert_eq!(str_hash(STR_HASH_LINUX, b"foo.0000000000000001"), 0x16de2814);
    assert_eq!(str_hash(STR_HASH_LINUX, b"\xff\x80 \x00bytes above ascii\xfe"), 0x577a8b9f);
    assert_eq!(str_hash(STR_HASH_RJENKINS, b""), 0xbd49d10d);
    assert_eq!(str_hash(STR_HASH_RJENKINS, b"a"), 0x29eec818);
    assert_eq!(str_hash(STR_HASH_RJENKINS, b"rbd_data"), 0x68b72761);
    assert_eq!(str_hash(STR_HASH_RJENKINS, b"exactly12byt"), 0x4d11656b);
    assert_eq!(str_hash(STR_HASH_RJENKINS, b"foo.0000000000000001"), 0x87026f09);
    assert_eq!(str_hash(STR_HASH_RJENKINS, b"\xff\x80 \x00bytes above ascii\xfe"), 0x9e90ae7b);
    // Every length of the tail, folded together.
    let bytes: Vec<u8> = (0..64u32).map(|i| (i * 37 + 11) as u8).collect();
    let folded = (0..=64).fold(0, |h, n| hash32_2(h, str_hash(STR_HASH_RJENKINS, &bytes[..n])));
    assert_eq!(folded, 0xc1ea7a54);
    assert_eq!(str_hash(9, b"x"), u32::MAX);
}

//! CRUSH maps that the cluster could not work with are refused before they are proposed; those that it can are not.

use crate::common;

use bytes::Bytes;
use codec::{Decode, Encode};
use common::{FSID, World, addr};
use crush::{CrushMap, Step};
use messages::osd::{MOsdBoot, MOsdPgCreated, OsdSuperblock};
use types::{AddrVec, ConnId, Epoch, Fsid, PgId};

const EINVAL: i32 = -22;
const EBUSY: i32 = -16;
const ELOOP: i32 = -40;

/// Four OSDs on two hosts in two racks, all in, and a pool of two copies.
fn cluster() -> (World, ConnId) {
    let mut w = World::new();
    let admin = w.admin();
    for id in 0..4 {
        let uuid = Fsid([id as u8 + 1; 16]);
        w.command(admin, &format!(r#"{{"prefix":"osd new","uuid":"{uuid}"}}"#));
        let args = format!(r#""args":["host=h{h}","rack=r{h}","root=default"]"#, h = id / 2);
        w.command(admin, &format!(r#"{{"prefix":"osd crush add","id":{id},"weight":1.0,{args}}}"#));
        let conn = w.osd(id);
        w.send(conn, boot(id, uuid, w.mon.state().osdmap().epoch));
    }
    let made = w.command(admin, r#"{"prefix":"osd pool create","pool":"p","pg_num":8}"#);
    assert_eq!(made.0, 0, "{made:?}");
    (w, admin)
}

fn boot(id: i32, osd_fsid: Fsid, newest_map: Epoch) -> MOsdBoot {
    let at = |port: i32| AddrVec::single(addr(&format!("v2:127.0.0.1:{}/1", port + id)));
    let superblock =
        OsdSuperblock { cluster_fsid: FSID, whoami: id, osd_fsid, newest_map, ..OsdSuperblock::default() };
    MOsdBoot {
        superblock,
        cluster_addrs: at(7_000),
        hb_back_addrs: at(7_100),
        hb_front_addrs: at(7_200),
        features: types::features::PACIFIC,
        metadata: [("loligo".to_owned(), "0.1".to_owned())].into(),
        ..MOsdBoot::default()
    }
}

fn crush(w: &World) -> CrushMap {
    (*w.mon.state().osdmap().crush).clone()
}

fn set(w: &mut World, admin: ConnId, bytes: Bytes) -> (i32, String) {
    let ack = w.raw_command(admin, r#"{"prefix":"osd setcrushmap"}"#, bytes);
    (ack.result, ack.status)
}

/// A whole map that is refused with these words, and leaves everything as it was.
fn refused(what: &str, words: &str, spoil: impl FnOnce(&mut CrushMap)) {
    let (mut w, admin) = cluster();
    let (mut map, epoch) = (crush(&w), w.mon.state().osdmap().epoch);
    spoil(&mut map);
    let (code, text) = set(&mut w, admin, map.to_bytes());
    assert_eq!(code, EINVAL, "{what}: {text}");
    assert!(text.contains(words), "{what}: {text}");
    assert_eq!(w.mon.state().osdmap().epoch, epoch, "{what}: nothing was proposed");
}

#[test]
fn bytes_that_are_no_map_are_refused_at_every_length() {
    let (mut w, admin) = cluster();
    let whole = crush(&w).to_bytes();
    let epoch = w.mon.state().osdmap().epoch;
    for len in 0..whole.len() / 2 {
        let (code, text) = set(&mut w, admin, whole.slice(..len));
        assert_eq!(code, EINVAL, "{len} bytes: {text}");
    }
    assert_eq!(w.mon.state().osdmap().epoch, epoch);
    let (code, text) = set(&mut w, admin, whole);
    assert_eq!((code, text.as_str()), (0, &*w.mon.state().osdmap().crush_version.to_string()));
}

#[test]
fn hierarchies_that_cannot_be_walked_are_refused() {
    refused("a cycle", "cycle", |m| {
        let (root, host) = (m.item_id("default").expect("there"), m.item_id("h0").expect("there"));
        let b = m.bucket_mut(host).expect("a bucket");
        b.add_item(root, 0, 1).expect("room");
    });
    refused("a bucket in itself", "cycle", |m| {
        let host = m.item_id("h0").expect("there");
        m.bucket_mut(host).expect("a bucket").add_item(host, 0, 1).expect("room");
    });
    refused("an item that is nowhere", "crush item", |m| {
        let host = m.item_id("h0").expect("there");
        m.bucket_mut(host).expect("a bucket").add_item(-900, 0, 1).expect("room");
    });
    refused("a deep hierarchy", "depth", |m| {
        let bucket = |level| m.add_bucket(&format!("deep{level}"), "rack").expect("a free name");
        let chain: Vec<i32> = (0..12).map(bucket).collect();
        for pair in chain.windows(2) {
            m.bucket_mut(pair[0]).expect("a bucket").add_item(pair[1], 0, 1).expect("room");
        }
    });
    refused("an OSD that can never be", "above any OSD number", |m| {
        let host = m.item_id("h0").expect("there");
        m.bucket_mut(host).expect("a bucket").add_item(2_000_000, 0x10000, 1).expect("room");
        m.finalize();
    });
    // Whoever went through all devices that there seem to be would not come back.
    refused("an OSD that is high enough to count to for ever", "device 536870914", |m| {
        let host = m.item_id("h0").expect("there");
        m.bucket_mut(host).expect("a bucket").add_item(536_870_914, 0x10000, 1).expect("room");
    });
    refused("nothing but the name of such an OSD", "device 2147483646", |m| {
        m.item_names.insert(i32::MAX - 1, "osd.2147483646".to_owned());
    });
}

#[test]
fn rules_that_pools_need_must_be_there_and_fit() {
    refused("no rule", "references crush_rule 0 but it is not present", |m| m.rules[0] = None);
    refused("another number", "ruleset != ruleid", |m| m.rules[0].as_mut().expect("a rule").ruleset = 3);
    refused("another kind", "type does not match", |m| m.rules[0].as_mut().expect("a rule").rule_type = 3);
    refused("too small", "does not fall within", |m| m.rules[0].as_mut().expect("a rule").max_size = 1);
}

#[test]
fn rules_that_do_not_end_are_refused() {
    let for_ever = |m: &mut CrushMap, number: usize| {
        // More hosts than the rack has, with a million tries for each.
        let steps = vec![
            Step::new(Step::SET_CHOOSE_TRIES, 1_000_000, 0),
            Step::new(Step::SET_CHOOSELEAF_TRIES, 1_000_000, 0),
            Step::take(m.item_id("r0").expect("there")),
            Step::new(Step::CHOOSELEAF_FIRSTN, 0, 1),
            Step::emit(),
        ];
        if number == 0 {
            m.rules[0].as_mut().expect("a rule").steps = steps;
        } else {
            let rule = crush::Rule { ruleset: number as u8, steps, ..m.rules[0].clone().expect("a rule") };
            m.put_rule(number as u32, "other", rule).expect("free");
        }
    };
    refused("the pool's", "rule 'replicated_rule' does not come to an end", |m| for_ever(m, 0));
    refused("one that a pool may get", "rule 'other' does not come to an end", |m| for_ever(m, 1));
}

#[test]
fn tunables_out_of_range_are_refused() {
    refused("tries", "choose_total_tries", |m| m.tunables.choose_total_tries = u32::MAX);
    refused("local tries", "choose_local_tries", |m| m.tunables.choose_local_tries = 1 << 20);
    refused("descend", "chooseleaf_descend_once", |m| m.tunables.chooseleaf_descend_once = 2);
    refused("stable", "chooseleaf_stable", |m| m.tunables.chooseleaf_stable = 9);
    refused("straws", "straw_calc_version", |m| m.tunables.straw_calc_version = 4);
    let (mut w, admin) = cluster();
    for value in ["2", "-1", "99999999999"] {
        let command =
            format!(r#"{{"prefix":"osd crush set-tunable","tunable":"straw_calc_version","value":{value}}}"#);
        assert_eq!(w.command(admin, &command).0, EINVAL, "{value}");
    }
}

#[test]
fn whole_maps_that_leave_a_pool_without_osds_are_refused_and_single_edits_are_not() {
    refused("nothing below the root", "find no OSDs any more for the PGs of pool 'p'", |m| {
        for rack in ["r0", "r1"] {
            m.remove_item(m.item_id(rack).expect("there"), true).expect("unlinked");
        }
    });
    let (mut w, admin) = cluster();
    let command = |prefix: &str, rest: &str| format!(r#"{{"prefix":"osd crush {prefix}",{rest}}}"#);
    let steps = [
        (command("unlink", r#""name":"r0""#), 0, "removed"),
        // As an operator does it who goes on to change the rule.
        (command("rm", r#""name":"osd.2""#), 0, "removed"),
        (command("rm", r#""name":"osd.3""#), 0, "removed"),
        (command("move", r#""name":"r0","args":["root=default"]"#), 0, "moved"),
        (command("unlink", r#""name":"r1""#), 0, "removed"),
    ];
    for (command, code, words) in steps {
        let got = w.command(admin, &command);
        assert!(got.0 == code && got.1.contains(words), "{command}: {got:?}");
    }
}

#[test]
fn what_is_in_use_cannot_be_removed() {
    let (mut w, admin) = cluster();
    let steps = [
        (r#"{"prefix":"osd crush rule rm","name":"replicated_rule"}"#, EBUSY),
        (r#"{"prefix":"osd crush rm","name":"default"}"#, -39),
        (r#"{"prefix":"osd crush rm","name":"h0"}"#, -39),
        (r#"{"prefix":"osd crush set-device-class","class":"ssd","ids":["0","1","2","3"]}"#, 0),
        (
            r#"{"prefix":"osd crush rule create-replicated","name":"fast","root":"default","type":"osd","class":"ssd"}"#,
            0,
        ),
        (r#"{"prefix":"osd crush class rm","class":"ssd"}"#, EBUSY),
        (r#"{"prefix":"osd pool set","pool":"p","var":"crush_rule","val":"fast"}"#, 0),
        (r#"{"prefix":"osd crush rule rm","name":"fast"}"#, EBUSY),
        (r#"{"prefix":"osd crush rm-device-class","ids":["0","1","2"]}"#, 0),
        // The last one of the class that the pool is on gets another one, in two steps.
        (r#"{"prefix":"osd crush rm-device-class","ids":["3"]}"#, 0),
        (r#"{"prefix":"osd crush set-device-class","class":"hdd","ids":["3"]}"#, 0),
    ];
    for (command, code) in steps {
        let got = w.command(admin, command);
        assert_eq!(got.0, code, "{command}: {got:?}");
    }
}

#[test]
fn moves_that_close_a_cycle_are_refused() {
    let (mut w, admin) = cluster();
    let move_to = |what: &str, place: &str| {
        format!(r#"{{"prefix":"osd crush move","name":"{what}","args":["{place}"]}}"#)
    };
    for (command, code) in [
        (move_to("default", "rack=r0"), ELOOP),
        (move_to("r0", "host=h0"), ELOOP),
        (move_to("r0", "rack=r0"), EINVAL),
        (move_to("h0", "rack=h1"), EINVAL),
        (r#"{"prefix":"osd crush link","name":"default","args":["rack=r1"]}"#.to_owned(), ELOOP),
        (r#"{"prefix":"osd crush swap-bucket","source":"default","dest":"r0","yes_i_really_mean_it":true}"#.to_owned(), EINVAL),
    ] {
        let before = crush(&w);
        let got = w.command(admin, &command);
        assert_eq!(got.0, code, "{command}: {got:?}");
        assert_eq!(crush(&w), before, "{command}");
    }
}

#[test]
fn weight_sets_are_made_changed_and_removed() {
    let (mut w, admin) = cluster();
    let set = |what: &str, rest: &str| format!(r#"{{"prefix":"osd crush weight-set {what}"{rest}}}"#);
    for (command, code, words) in [
        (
            set("reweight-compat", r#","item":"osd.0","weight":[0.5]"#),
            -2,
            "no backward-compatible weight-set",
        ),
        (set("create-compat", ""), 0, ""),
        (set("create-compat", ""), 0, "compat weight-set already created"),
        (set("reweight-compat", r#","item":"osd.0","weight":[0.5]"#), 0, ""),
        (set("reweight-compat", r#","item":"osd.9","weight":[0.5]"#), -2, "item 'osd.9' does not exist"),
        (set("create", r#","pool":"p","mode":"positional""#), 0, ""),
        (set("create", r#","pool":"p","mode":"flat""#), 0, "weight-set for pool 'p' already created"),
        (set("create", r#","pool":"q","mode":"flat""#), -2, "pool 'q' not found"),
        (
            set("reweight", r#","pool":"p","item":"osd.1","weight":[0.5]"#),
            EINVAL,
            "must specify exact 2 weight values",
        ),
        (set("reweight", r#","pool":"p","item":"osd.1","weight":[0.5,0.25]"#), 0, ""),
        (set("rm-compat", ""), 0, ""),
    ] {
        let got = w.command(admin, &command);
        assert_eq!((got.0, got.1.as_str()), (code, words), "{command}");
    }
    let map = crush(&w);
    let pool = w.mon.state().osdmap().pool_by_name("p").expect("there").0;
    assert_eq!(map.choose_args.keys().collect::<Vec<_>>(), [&pool]);
    let host = map.bucket(map.item_id("h0").expect("there")).expect("a bucket");
    let at = host.position(1).expect("osd.1");
    let arg = map.choose_args[&pool].get(host.id).expect("weights");
    assert_eq!([arg.weight_sets[0][at], arg.weight_sets[1][at]], [0x8000, 0x4000]);
    assert_eq!(w.command(admin, &set("rm", r#","pool":"p""#)).0, 0);
    assert!(crush(&w).choose_args.is_empty());
}

#[test]
fn upmaps_that_a_change_made_wrong_go_with_it() {
    let (mut w, admin) = cluster();
    w.command(admin, r#"{"prefix":"osd set-require-min-compat-client","version":"luminous"}"#);
    let pg = {
        let map = w.mon.state().osdmap();
        let all: Vec<_> = map.pgs().collect();
        all.into_iter()
            .find(|pg| map.pg_to_raw_osds(*pg).0.contains(&0) && !map.pg_to_raw_osds(*pg).0.contains(&1))
    };
    let pg = pg.expect("a PG on osd.0");
    let upmap = format!(r#"{{"prefix":"osd pg-upmap-items","pgid":"{pg}","id":[0,1]}}"#);
    let there = |w: &World| w.mon.state().osdmap().pg_upmap_items.contains_key(&pg);
    assert_eq!(w.command(admin, &upmap).0, 0);
    assert!(there(&w), "it is valid");
    // Out is where it leads to.
    w.command(admin, r#"{"prefix":"osd out","ids":["1"]}"#);
    assert!(!there(&w));
    w.command(admin, r#"{"prefix":"osd in","ids":["1"]}"#);
    w.command(admin, &upmap);
    assert!(there(&w));
    // The tree is left.
    assert_eq!(w.command(admin, r#"{"prefix":"osd crush move","name":"osd.1","args":["root=other"]}"#).0, 0);
    assert!(!there(&w));
    // And a wish that cannot be is dropped at once, as in Ceph.
    assert_eq!(w.command(admin, &upmap).0, 0);
    assert!(!there(&w));
}

#[test]
fn old_buckets_become_new_ones_and_the_map_is_set_by_its_second_name() {
    let (mut w, admin) = cluster();
    let mut map = crush(&w);
    let host = map.item_id("h0").expect("there");
    let items: Vec<(i32, u32)> = map.bucket(host).expect("a bucket").weighted_items().collect();
    *map.bucket_mut(host).expect("a bucket") =
        crush::Bucket::new(crush::Alg::Straw, host, 1, &items, 1).expect("a bucket");
    let version = w.mon.state().osdmap().crush_version;
    let ack = w.raw_command(
        admin,
        &format!(r#"{{"prefix":"osd crush set","prior_version":{version}}}"#),
        map.to_bytes(),
    );
    assert_eq!((ack.result, ack.status), (0, (version + 1).to_string()));
    assert_eq!(CrushMap::from_bytes(crush(&w).to_bytes()).map(|m| m == map), Ok(true));
    assert_eq!(w.command(admin, r#"{"prefix":"osd crush weight-set create-compat"}"#).0, -1);
    assert_eq!(w.command(admin, r#"{"prefix":"osd crush set-all-straw-buckets-to-straw2"}"#).0, 0);
    assert_eq!(crush(&w).bucket(host).map(crush::Bucket::alg), Some(crush::Alg::Straw2));
}

#[test]
fn a_pg_is_made_anew_or_peers_again() {
    let (mut w, admin) = cluster();
    let sure = r#""yes_i_really_mean_it":true"#;
    for (command, code, words) in [
        (r#"{"prefix":"osd force-create-pg","pgid":"1.0"}"#.to_owned(), -1, "data lost"),
        (
            format!(r#"{{"prefix":"osd force-create-pg","pgid":"1.99",{sure}}}"#),
            -2,
            "pg 1.99 should not exist",
        ),
        (r#"{"prefix":"pg repeer","pgid":"1.99"}"#.to_owned(), -2, "pg '1.99' does not exist"),
        (format!(r#"{{"prefix":"osd force-create-pg","pgid":"1.0",{sure}}}"#), 0, "pg 1.0 already creating"),
        (r#"{"prefix":"pg repeer","pgid":"1.0"}"#.to_owned(), 0, ""),
    ] {
        let got = w.command(admin, &command);
        assert!(got.0 == code && got.1.contains(words), "{command}: {got:?}");
    }
    let map = w.mon.state().osdmap();
    let pg = PgId::parse("1.0").expect("a PG");
    assert_eq!(map.pg_temp[&pg], [map.pg_to_up_acting(pg).up_primary]);
    // Made once, lost, and made anew.
    for seed in 0..8 {
        let (pgid, conn) = (PgId::new(pg.pool, seed), ConnId(100));
        w.send(conn, MOsdPgCreated { pgid, version: Default::default() });
    }
    assert!(w.mon.state().creating.is_empty());
    let anew = w.command(admin, &format!(r#"{{"prefix":"osd force-create-pg","pgid":"1.0",{sure}}}"#));
    assert_eq!((anew.0, anew.1.as_str()), (0, "pg 1.0 now creating, ok"));
    let seeds: Vec<u32> = w.mon.state().creating[&pg.pool].seeds.iter().copied().collect();
    assert_eq!(seeds, [0]);
    assert!(w.mon.state().osdmap().pools[&pg.pool].has_flag(maps::pool_flags::CREATING));
}

//! Pools with tiers, erasure-coded pools, and what becomes of removed snapshots.

use crate::common;

use common::{FSID, World};
use messages::Message;
use messages::mgr::MPgDigest;
use messages::mon::{MPoolOp, pool_op};
use monitor::state::PgDigest;
use types::{ConnId, Epoch, PoolId, SnapId};

/// Runs a command; its code and status line must be these.
fn check(w: &mut World, conn: ConnId, cmd: &str, code: i32, status: &str) {
    let ack = w.raw_command(conn, cmd, bytes::Bytes::new());
    assert_eq!((ack.result, ack.status.as_str()), (code, status), "{cmd}");
}

fn pool(w: &World, name: &str) -> (PoolId, maps::Pool) {
    let map = w.mon.state().osdmap();
    let id = map.pool_by_name(name).expect("the pool");
    (id, map.pool(id).expect("the pool").clone())
}

#[test]
fn a_pool_becomes_a_tier_and_stops_being_one() {
    let mut w = World::new();
    let c = w.admin();
    for name in ["base", "cache", "third"] {
        check(
            &mut w,
            c,
            &format!(r#"{{"prefix":"osd pool create","pool":"{name}"}}"#),
            0,
            &format!("pool '{name}' created"),
        );
    }
    let add = |pool: &str, tier: &str| {
        // As librados' own test sends it.
        format!(r#"{{"prefix":"osd tier add","pool":"{pool}","tierpool":"{tier}","force_nonempty":""}}"#)
    };
    check(&mut w, c, &add("base", "nope"), -2, "unrecognized pool 'nope'");
    let done = "pool 'cache' is now (or already was) a tier of 'base'";
    check(&mut w, c, &add("base", "cache"), 0, done);
    check(&mut w, c, &add("base", "cache"), 0, done);
    let (base, b) = pool(&w, "base");
    let (cache, t) = pool(&w, "cache");
    assert_eq!((t.tier_of, b.tiers.contains(&(cache.0 as u64))), (base, true));
    let text = "pool 'cache' is already a tier of 'base', multiple tiers are not yet supported.";
    check(&mut w, c, &add("cache", "third"), -22, text);
    let text = "pool 'base' has following tier(s) already:'cache', multiple tiers are not yet supported.";
    check(&mut w, c, &add("third", "base"), -22, text);
    check(&mut w, c, &add("third", "cache"), -22, "tier pool 'cache' is already a tier of 'base'");
    let mode = |pool: &str, mode: &str, sure: bool| {
        format!(
            r#"{{"prefix":"osd tier cache-mode","pool":"{pool}","mode":"{mode}","yes_i_really_mean_it":{sure}}}"#
        )
    };
    check(&mut w, c, &mode("third", "readonly", true), -22, "pool 'third' is not a tier");
    let text = "'readonly' is not a well-supported cache mode and may corrupt your data.  pass \
                --yes-i-really-mean-it to force.";
    check(&mut w, c, &mode("cache", "readonly", false), -1, text);
    check(&mut w, c, &mode("cache", "readonly", true), 0, "set cache-mode for pool 'cache' to readonly");
    assert_eq!(pool(&w, "cache").1.cache_mode_name(), "readonly");
    let overlay = r#"{"prefix":"osd tier set-overlay","pool":"base","overlaypool":"cache"}"#;
    check(&mut w, c, overlay, -95, "cache tiers are not supported: no overlay can be set");
    let remove = r#"{"prefix":"osd tier remove","pool":"base","tierpool":"cache"}"#;
    for _ in 0..2 {
        check(&mut w, c, remove, 0, "pool 'cache' is now (or already was) not a tier of 'base'");
    }
    let ((_, b), (_, t)) = (pool(&w, "base"), pool(&w, "cache"));
    assert!(b.tiers.is_empty() && !t.is_tier() && t.cache_mode == 0);
}

#[test]
fn an_erasure_coded_pool_gets_its_shape_from_its_profile() {
    let mut w = World::new();
    let c = w.admin();
    let set = r#"{"prefix":"osd erasure-code-profile set","name":"e","profile":["k=2","m=1","crush-failure-domain=osd"]}"#;
    check(&mut w, c, set, 0, "");
    check(&mut w, c, set, 0, "");
    let other = r#"{"prefix":"osd erasure-code-profile set","name":"e","profile":["k=3","m=1"]}"#;
    let text = "will not override erasure code profile e because the existing profile \
                {crush-device-class=,crush-failure-domain=osd,crush-root=default,jerasure-per-chunk-alignment=false,\
                k=2,m=1,plugin=jerasure,technique=reed_sol_van,w=8} is different from the proposed profile \
                {crush-device-class=,crush-failure-domain=host,crush-root=default,jerasure-per-chunk-alignment=false,\
                k=3,m=1,plugin=jerasure,technique=reed_sol_van,w=8}";
    check(&mut w, c, other, -1, text);
    let create = |pool: &str, profile: &str| {
        format!(
            r#"{{"prefix":"osd pool create","pool":"{pool}","pg_num":8,"pool_type":"erasure","erasure_code_profile":"{profile}"}}"#
        )
    };
    check(&mut w, c, &create("ec", "e"), 0, "pool 'ec' created");
    let (_, p) = pool(&w, "ec");
    assert_eq!((p.size, p.min_size, p.stripe_width, p.is_erasure()), (3, 2, 8192, true));
    let crush = &w.mon.state().osdmap().crush;
    let rule = crush.rule(p.crush_rule.into()).expect("its rule");
    assert_eq!((crush.rule_id("ec"), rule.min_size, rule.max_size), (Some(p.crush_rule.into()), 3, 3));
    let set = |var: &str, val: &str| {
        format!(r#"{{"prefix":"osd pool set","pool":"ec","var":"{var}","val":"{val}"}}"#)
    };
    let bounds = "pool min_size must be between 2 and size, which is set to 3";
    check(&mut w, c, &set("min_size", "1"), -22, bounds);
    check(&mut w, c, &set("min_size", "4"), -22, bounds);
    let never = "ec overwrites cannot be disabled once enabled";
    check(&mut w, c, &set("allow_ec_overwrites", "false"), -22, never);
    check(&mut w, c, &set("allow_ec_overwrites", "x"), -22, "expecting value 'true', 'false', '0', or '1'");
    assert!(!pool(&w, "ec").1.has_flag(maps::pool_flags::EC_OVERWRITES));
    let (id, _) = pool(&w, "ec");
    let done = |var: &str, val: &str| format!("set pool {id} {var} to {val}");
    check(&mut w, c, &set("min_size", "3"), 0, &done("min_size", "3"));
    check(&mut w, c, &set("allow_ec_overwrites", "true"), 0, &done("allow_ec_overwrites", "true"));
    let (_, p) = pool(&w, "ec");
    assert_eq!((p.min_size, p.has_flag(maps::pool_flags::EC_OVERWRITES)), (3, true));
    let forced = |words: &str| {
        format!(r#"{{"prefix":"osd erasure-code-profile set","name":"e","profile":[{words}],"force":true}}"#)
    };
    // What the pool holds could not be read any more, or would be read wrongly.
    for words in [r#""k=3","m=1""#, r#""k=2","m=1","technique=cauchy_good""#, r#""plugin=isa","k=2","m=1""#] {
        check(&mut w, c, &forced(words), -16, "pool(s) ec hold data of the code of profile 'e'");
    }
    check(&mut w, c, &forced(r#""k=2","m=1","crush-failure-domain=rack""#), 0, "");
    let rm = r#"{"prefix":"osd erasure-code-profile rm","name":"e"}"#;
    check(&mut w, c, rm, -16, "ec pool(s) are using the erasure code profile 'e'");
    let delete = r#"{"prefix":"osd pool rm","pool":"ec","pool2":"ec","yes_i_really_really_mean_it":true}"#;
    check(&mut w, c, delete, 0, "pool 'ec' removed");
    check(&mut w, c, rm, 0, "");
    check(&mut w, c, rm, 0, "erasure-code-profile e does not exist");
    let text = "cannot determine the erasure code plugin because there is no 'plugin' entry in the \
                erasure_code_profile {}";
    check(&mut w, c, &create("ec2", "e"), -22, text);
}

#[test]
fn profiles_of_every_plugin_make_pools_or_say_why_not() {
    let mut w = World::new();
    let c = w.admin();
    let mut check_set = |name: &str, words: &str, code: i32, text: &str| {
        let words: Vec<&str> = words.split(' ').collect();
        let command =
            serde_json::json!({"prefix": "osd erasure-code-profile set", "name": name, "profile": words});
        check(&mut w, c, &command.to_string(), code, text);
        if code == 0 {
            let create = serde_json::json!({"prefix": "osd pool create", "pool": name, "pg_num": 8,
                "pool_type": "erasure", "erasure_code_profile": name});
            check(&mut w, c, &create.to_string(), 0, &format!("pool '{name}' created"));
            let (_, p) = pool(&w, name);
            let rule = w.mon.state().osdmap().crush.rule(p.crush_rule.into()).expect("its rule");
            assert_eq!(rule.max_size, p.size);
            return (p.size, p.min_size, p.stripe_width, rule.steps.len());
        }
        (0, 0, 0, 0)
    };
    assert_eq!(check_set("isa", "plugin=isa k=4 crush-failure-domain=osd", 0, ""), (7, 5, 16_384, 5));
    let lrc = "plugin=lrc k=4 m=2 l=3 crush-locality=rack crush-failure-domain=host";
    assert_eq!(check_set("lrc", lrc, 0, ""), (8, 5, 16_384, 6));
    assert_eq!(check_set("cauchy", "technique=cauchy_good k=3 m=3", 0, ""), (6, 4, 196_608, 5));
    check_set("x", "plugin=lrc k=4 m=2 l=4", -4114, "k + m must be a multiple of l");
    check_set("x", "plugin=lrc k=4 m=2", -4112, "All of k, m, l must be set or none of them");
    let text = "plugin=clay is not supported: choose jerasure or isa, or lrc for cheaper recovery";
    check_set("x", "plugin=clay k=4 m=2", -95, text);
    check_set("x", "plugin=foo", -5, "there is no erasure code plugin 'foo': use jerasure, isa or lrc");
    let text =
        "technique=x is not a valid coding technique. Choose one of the following: reed_sol_van,cauchy";
    check_set("x", "plugin=isa technique=x", -2, text);
    check_set(
        "x",
        "k=2 m=1 colour=red",
        -22,
        "'colour' is no key of an erasure code profile: check its spelling",
    );
    let text = "k=22 should be less than 22 to guarantee an MDS codec with m=4: set k to at most 21 or choose cauchy";
    check_set("x", "plugin=isa k=22 m=4", -22, &format!("Vandermonde: {text}"));
}

/// What the manager says that no PG of the pool has clones of any more.
fn purged(w: &mut World, epoch: Epoch, id: PoolId, runs: &[(u64, u64)]) {
    let mut digest = PgDigest { epoch, ..PgDigest::default() };
    digest.purged_snaps.insert(id, runs.iter().copied().collect());
    let summary = codec::Encode::to_bytes(&digest);
    w.send(ConnId(1), MPgDigest { gid: 0, summary, ..MPgDigest::default() });
}

fn queued(w: &World, id: PoolId) -> String {
    w.mon.state().osdmap().removed_snaps_queue.get(&id).map(ToString::to_string).unwrap_or_default()
}

#[test]
fn removed_snapshots_are_queued_until_every_pg_has_purged_them() {
    let mut w = World::new();
    let c = w.admin();
    check(&mut w, c, r#"{"prefix":"osd pool create","pool":"p"}"#, 0, "pool 'p' created");
    let (id, _) = pool(&w, "p");
    let op =
        |op, snap| MPoolOp { fsid: FSID, pool: id.0 as u32, op, snap: SnapId(snap), ..MPoolOp::default() };
    for _ in 0..5 {
        w.send(c, op(pool_op::CREATE_UNMANAGED_SNAP, 0));
    }
    for snap in [2, 3, 5] {
        w.send(c, op(pool_op::DELETE_UNMANAGED_SNAP, snap));
    }
    assert_eq!(queued(&w, id), "[2~2,5~1]");
    // 4 was never removed: a report of it means nothing.
    let epoch = w.mon.state().osdmap().epoch;
    purged(&mut w, epoch, id, &[(2, 1), (4, 1)]);
    w.tick(5);
    assert_eq!(queued(&w, id), "[3~1,5~1]");
    let map = w.mon.state().osdmap();
    assert_eq!(map.new_purged_snaps.get(&id).map(ToString::to_string).as_deref(), Some("[2~1]"));
    // The same report again changes nothing, and makes no epoch.
    let epoch = map.epoch;
    w.tick(6);
    assert_eq!(w.mon.state().osdmap().epoch, epoch);
    purged(&mut w, epoch, id, &[(1, 9)]);
    w.tick(7);
    assert_eq!(queued(&w, id), "");
    assert!(!w.mon.state().osdmap().new_purged_snaps.is_empty());
}

#[test]
fn a_pool_gives_out_no_id_that_stands_for_the_head() {
    let mut w = World::new();
    let c = w.admin();
    check(&mut w, c, r#"{"prefix":"osd pool create","pool":"p"}"#, 0, "pool 'p' created");
    let (id, _) = pool(&w, "p");
    w.begin_with(|map| {
        let p = map.pools.get_mut(&id).expect("the pool");
        p.add_unmanaged_snap();
        p.snap_seq = SnapId::MAX.0 - (1 << 32) - 1;
    });
    let c = w.admin();
    let op =
        MPoolOp { fsid: FSID, pool: id.0 as u32, op: pool_op::CREATE_UNMANAGED_SNAP, ..MPoolOp::default() };
    let results = [0; 2].map(|_| {
        w.send(c, op.clone());
        match w.sent(c).pop() {
            Some(Message::PoolOpReply(reply)) => reply.result,
            other => panic!("{other:?}"),
        }
    });
    assert_eq!(results, [0, -75]);
}

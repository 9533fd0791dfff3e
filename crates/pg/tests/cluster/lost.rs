//! Objects that nobody has any more, copies that are deleted, and PGs that go first.

use std::time::Duration;

use maps::flags::map_flags;
use messages::osd::MOsdForceRecovery;
use pg::{Input, OsdConfig};
use serde_json::json;
use store::{ObjectKey, Txn};
use types::{HObject, PgId, PoolId, SpgId};

use crate::client::Expected;
use crate::mon::FSID;
use crate::scrub::{How, scrub};
use crate::sim::Sim;

fn flags(s: &mut Sim, flags: u32) {
    s.mon.change(|inc, _| inc.new_flags = flags as i32);
}

/// A PG whose newest versions of `o0` and `new` were on an OSD that is gone.
fn unfound(seed: u64) -> (Sim, PoolId, i32) {
    let mut s = Sim::new(3, seed);
    s.until("all up", |s| (0..3).all(|o| s.mon.map.is_up(o)));
    let pool = s.mon.create_pool(3, 1, 1);
    s.settle();
    let map = s.mon.map.clone();
    for i in 0..4u8 {
        s.client.write(&map, pool, &format!("o{i}"), vec![i; 9000]);
    }
    s.settle();
    let gone = map.pg_to_up_acting(PgId::new(pool, 0)).acting_primary;
    let others: Vec<i32> = (0..3).filter(|o| *o != gone).collect();
    for osd in &others {
        s.kill(*osd);
    }
    s.client.write(&map, pool, "o0", vec![99; 5000]);
    s.client.write(&map, pool, "new", vec![98; 500]);
    s.until("written", |s| s.client.is_idle());
    let before = s.mon.map.flags;
    flags(&mut s, before | map_flags::NORECOVER);
    for osd in &others {
        s.start(*osd);
    }
    s.until("joined", |s| {
        others.iter().all(|o| s.mon.map.is_up(*o)) && s.states().values().all(|t| t.contains("recovery_wait"))
    });
    s.kill(gone);
    s.mon.change(|inc, map| {
        inc.new_lost.insert(gone, map.epoch);
    });
    flags(&mut s, before);
    s.until("unfound", |s| s.states().values().all(|t| t.contains("recovery_unfound")));
    (s, pool, gone)
}

/// Asks the PG's primary to give up what is unfound; its answer.
fn mark(s: &mut Sim, pool: PoolId, how: &str) -> (i32, String) {
    let to = s.mon.map.pg_to_up_acting(PgId::new(pool, 0)).acting_primary;
    let cmd = json!({ "prefix": "mark_unfound_lost", "pgid": format!("{pool}.0"), "mulcmd": how });
    s.input(to, Input::AdminCommand { tid: 1, cmd: cmd.to_string() });
    let reply = s.nodes[to as usize].admin_replies.pop().expect("an answer");
    let text = String::from_utf8(reply.data.to_vec()).unwrap() + &reply.outs;
    (reply.code, text.trim().to_owned())
}

fn give_up(s: &mut Sim, pool: PoolId, how: &str) {
    let text = "pg has 2 objects unfound and apparently lost marking";
    assert_eq!(mark(s, pool, how), (0, text.into()));
}

fn leader(s: &Sim, pool: PoolId) -> i32 {
    s.mon.map.pg_to_up_acting(PgId::new(pool, 0)).acting_primary
}

fn tamper(s: &mut Sim, osd: i32, change: impl FnOnce(&mut Txn, &ObjectKey), pool: PoolId) {
    let key = ObjectKey::replicated(s.client.object(&s.mon.map, pool, "o0"));
    let mut txn = Txn::new();
    change(&mut txn, &key);
    s.nodes[osd as usize].core.as_mut().unwrap().store_mut().submit(txn).unwrap();
}

#[test]
fn nothing_is_given_up_while_somebody_who_is_down_may_have_it() {
    for seed in 20..23 {
        let (mut s, pool, gone) = unfound(seed);
        let first = leader(&s, pool);
        let other = (0..3).find(|o| *o != gone && *o != first).unwrap();
        s.kill(other);
        s.run(500);
        s.until("unfound", |s| s.states().values().all(|t| t.contains("recovery_unfound")));
        let text = "pg has 2 unfound objects but we haven't probed all sources, not marking lost";
        assert_eq!(mark(&mut s, pool, "delete"), (-22, text.into()));
        s.start(other);
        let back = |s: &mut Sim| s.mon.map.is_up(other) && s.states().values().all(|t| t.contains("unfound"));
        s.until("back", back);
        s.run(500);
        s.until("back", back);
        give_up(&mut s, pool, "delete");
        s.client.model.insert("o0".into(), Expected::default());
        s.client.model.insert("new".into(), Expected::default());
        s.start(gone);
        s.settle();
        s.check_copies();
    }
}

/// The leader has nothing older itself, or cannot read it: a member's older version takes the object's place.
#[test]
fn an_older_version_of_a_member_is_taken_back() {
    for seed in 30..34 {
        let (mut s, pool, gone) = unfound(seed);
        let first = leader(&s, pool);
        let damage = |txn: &mut Txn, key: &ObjectKey| {
            let _ = match seed % 2 {
                0 => txn.remove(key),
                _ => txn.set_attr(key, "_", "what is this"),
            };
        };
        tamper(&mut s, first, damage, pool);
        give_up(&mut s, pool, "revert");
        s.client.model.insert("o0".into(), Expected { acked: Some(vec![0; 9000]), open: vec![] });
        s.client.model.insert("new".into(), Expected::default());
        s.until("recovered", |s| s.states().values().all(|t| !t.contains("recover")));
        s.start(gone);
        s.settle();
        s.check_copies();
        assert!(scrub(&mut s, pool, How::Deep).ends_with(" ok"));
    }
}

/// No copy of an older version can be read: the object is not deleted for that, unless somebody says so.
#[test]
fn what_cannot_be_read_stays_unfound() {
    for seed in 40..43 {
        let (mut s, pool, gone) = unfound(seed);
        for osd in (0..3).filter(|o| *o != gone) {
            let damage = |txn: &mut Txn, key: &ObjectKey| {
                txn.set_attr(key, "_", "what is this");
            };
            tamper(&mut s, osd, damage, pool);
        }
        give_up(&mut s, pool, "revert");
        let stays = |s: &mut Sim| {
            let logs = s.nodes.iter().flat_map(|n| &n.log);
            logs.filter(|l| l.contains(" stays unfound")).count() > 0
        };
        s.until("stays", stays);
        assert!(s.states().values().all(|t| t.contains("recovery_unfound")), "{:?}", s.states());
        let text = "pg has 1 objects unfound and apparently lost marking";
        assert_eq!(mark(&mut s, pool, "delete"), (0, text.into()));
        s.client.model.insert("o0".into(), Expected::default());
        s.client.model.insert("new".into(), Expected::default());
        s.start(gone);
        s.settle();
        s.check_copies();
    }
}

#[test]
fn lost_objects_go_back_to_an_older_version_or_are_deleted() {
    for (seed, how) in [(1, "revert"), (2, "delete"), (3, "revert")] {
        let (mut s, pool, gone) = unfound(seed);
        let map = s.mon.map.clone();
        // Requests for them wait, and run when it is decided.
        let kept = (how == "revert").then(|| vec![0; 9000]);
        s.client.model.insert("o0".into(), Expected { acked: kept, open: vec![] });
        s.client.model.insert("new".into(), Expected::default());
        s.client.read(&map, pool, "o0");
        s.client.write(&map, pool, "new", vec![1, 2, 3]);
        s.run(300);
        assert!(!s.client.is_idle());
        give_up(&mut s, pool, how);
        s.until("answered", |s| s.client.is_idle());
        // Who had them learns of it when it comes back.
        s.start(gone);
        s.settle();
        s.check_copies();
        assert!(scrub(&mut s, pool, How::Deep).ends_with(" ok"));
    }
}

fn objects(s: &mut Sim, osd: i32, pool: PoolId) -> usize {
    let from = HObject { pool, ..HObject::min() };
    let until = HObject { pool: PoolId(pool.0 + 1), ..HObject::min() };
    let store = s.nodes[osd as usize].core.as_mut().unwrap().store_mut();
    store.list(-1, &from, &until, 100_000).unwrap().len()
}

/// A copy is deleted slice by slice, through a restart too, and other work goes on meanwhile.
#[test]
fn a_pool_is_deleted_in_slices() {
    let config = OsdConfig { delete_sleep: Duration::from_secs(2), ..OsdConfig::default() };
    let mut s = Sim::with_config(1, 7, config);
    s.until("up", |s| s.mon.map.is_up(0));
    let (pool, other) = (s.mon.create_pool(1, 1, 1), s.mon.create_pool(1, 1, 1));
    s.settle();
    let map = s.mon.map.clone();
    for round in 0..30 {
        for i in 0..25 {
            s.client.write(&map, pool, &format!("o{}", round * 25 + i), vec![1; 10]);
        }
        s.until("written", |s| s.client.is_idle());
    }
    s.client.model.clear();
    s.mon.change(|inc, _| {
        inc.old_pools.insert(pool);
    });
    s.until("the first slice is gone", |s| objects(s, 0, pool) < 750);
    assert!(objects(&mut s, 0, pool) > 400);
    s.client.write(&map, other, "x", vec![5; 100]);
    s.until("written meanwhile", |s| s.client.is_idle());
    assert!(objects(&mut s, 0, pool) > 0);
    s.crash(0);
    s.start(0);
    s.until("all are gone", |s| objects(s, 0, pool) == 0);
    s.until("served", |s| s.mon.map.is_up(0) && s.all_are("active+clean"));
    s.check_copies();
}

/// A PG that somebody wants first and that cannot go on keeps no other waiting.
#[test]
fn a_forced_pg_that_cannot_go_on_holds_up_nobody() {
    for seed in 50..53 {
        let (mut s, pool, gone) = unfound(seed);
        let first = leader(&s, pool);
        let other = (0..3).find(|o| *o != gone && *o != first).unwrap();
        s.mon.mark_out(gone);
        let second = s.mon.create_pool(2, 1, 8);
        let whole = |s: &mut Sim| {
            let mut states = s.states().into_iter().filter(|(pg, _)| pg.starts_with(&format!("{second}.")));
            states.all(|(_, t)| t == "active+clean")
        };
        s.until("served", whole);
        let force = MOsdForceRecovery {
            fsid: FSID,
            pgs: vec![SpgId::replicated(PgId::new(pool, 0))],
            options: MOsdForceRecovery::RECOVERY,
        };
        s.kill(other);
        let map = s.mon.map.clone();
        for i in 0..20 {
            s.client.write(&map, second, &format!("s{i}"), vec![3; 3000]);
        }
        s.until("written", |s| s.client.is_idle());
        s.start(other);
        s.until("up", |s| s.mon.map.is_up(other) && s.states().values().all(|t| t.contains("active")));
        s.input(first, Input::FromMgr(force.into()));
        let unfound = s.states().into_iter().find(|(pg, _)| pg.starts_with(&format!("{pool}."))).unwrap().1;
        assert!(unfound.contains("forced_recovery"), "{unfound}");
        s.until("the others recover", whole);
    }
}

/// What an operator wants first shows in the PG's state, and ends with the work.
#[test]
fn a_forced_recovery_goes_first() {
    let config = OsdConfig { recovery_max_active: 1, ..OsdConfig::default() };
    let mut s = Sim::with_config(2, 9, config);
    s.until("all up", |s| (0..2).all(|o| s.mon.map.is_up(o)));
    let pool = s.mon.create_pool(2, 1, 8);
    s.settle();
    let map = s.mon.map.clone();
    s.kill(1);
    for i in 0..60 {
        s.client.write(&map, pool, &format!("o{i}"), vec![3; 3000]);
    }
    s.until("written", |s| s.client.is_idle());
    let before = s.mon.map.flags;
    flags(&mut s, before | map_flags::NORECOVER);
    s.start(1);
    s.until("joined", |s| s.mon.map.is_up(1) && s.states().values().all(|t| t.contains("recovery_wait")));
    let pgid = PgId::new(pool, 7);
    let to = s.mon.map.pg_to_up_acting(pgid).acting_primary;
    let force = |options| MOsdForceRecovery { fsid: FSID, pgs: vec![SpgId::replicated(pgid)], options };
    s.input(to, Input::FromMgr(force(MOsdForceRecovery::RECOVERY).into()));
    let state = |s: &Sim| s.states().into_iter().find(|(pg, _)| pg.starts_with(&pgid.to_string())).unwrap().1;
    assert!(state(&s).contains("forced_recovery"), "{}", state(&s));
    s.input(to, Input::FromMgr(force(MOsdForceRecovery::RECOVERY | MOsdForceRecovery::CANCEL).into()));
    assert!(!state(&s).contains("forced"), "{}", state(&s));
    s.input(to, Input::FromMgr(force(MOsdForceRecovery::RECOVERY).into()));
    flags(&mut s, before);
    s.until("it is clean", |s| state(s) == "active+clean");
    let led: Vec<String> = {
        let core = s.nodes[to as usize].core.as_ref().unwrap();
        let others = core.pg_states().into_iter().filter(|(id, bits)| id.pgid != pgid && *bits != 0);
        others.map(|(_, bits)| messages::pg_state::to_text(bits)).collect()
    };
    assert!(led.iter().all(|t| t != "active+clean"), "others of that primary came later: {led:?}");
    s.settle();
    s.check_copies();
}

/// A range of a backfill that has begun is finished whatever forbids the next one: writes wait for it.
#[test]
fn writes_do_not_wait_for_a_backfill_that_is_held() {
    for seed in 60..68 {
        let config = OsdConfig {
            min_pg_log_entries: 5,
            max_pg_log_entries: 5,
            pg_log_trim_min: 1,
            recovery_max_active: 1,
            backfill_scan_max: 10,
            ..OsdConfig::default()
        };
        let mut s = Sim::with_config(3, seed, config);
        s.until("all up", |s| (0..3).all(|o| s.mon.map.is_up(o)));
        let pool = s.mon.create_pool(2, 1, 1);
        s.settle();
        let map = s.mon.map.clone();
        for i in 0..60u8 {
            s.client.write(&map, pool, &format!("o{i}"), vec![i; 3000]);
            s.until("written", |s| s.client.is_idle());
        }
        s.settle();
        let members = map.pg_to_up_acting(PgId::new(pool, 0)).acting;
        s.mon.mark_out(members[1]);
        s.until("backfilling", |s| s.states().values().any(|t| t.contains("backfilling")));
        let steps = s.rng.below(60) as usize;
        s.run(steps);
        let before = s.mon.map.flags;
        // Each of them holds backfills, norecover too.
        flags(&mut s, before | if seed % 2 == 0 { map_flags::NOBACKFILL } else { map_flags::NORECOVER });
        s.run(30);
        let map = s.mon.map.clone();
        for i in 0..60u8 {
            s.client.write(&map, pool, &format!("o{i}"), vec![i + 1; 2000]);
        }
        s.until("written", |s| s.client.is_idle());
        assert!(!s.all_are("active+clean"));
        flags(&mut s, before);
        s.settle();
        s.check_copies();
    }
}

/// A copy that lacks objects cannot tell what a split takes from the PG's sums: when its sums become the PG's, the objects are
/// counted anew.
#[test]
fn sums_are_right_after_a_split_of_a_copy_that_lacked_objects() {
    for seed in 80..84 {
        let log = 14;
        let config = OsdConfig {
            min_pg_log_entries: log,
            max_pg_log_entries: log,
            pg_log_trim_min: 1,
            ..OsdConfig::default()
        };
        let mut s = Sim::with_config(3, seed, config);
        s.until("all up", |s| (0..3).all(|o| s.mon.map.is_up(o)));
        let pool = s.mon.create_pool(3, 2, 1);
        s.settle();
        let map = s.mon.map.clone();
        let members = map.pg_to_up_acting(PgId::new(pool, 0)).acting;
        for (tag, len) in [(1u8, 100), (2, 900), (3, 7_000)] {
            for i in 0..12u8 {
                s.client.write(&map, pool, &format!("o{i}"), vec![tag; len]);
            }
            s.until("written", |s| s.client.is_idle());
            if tag == 2 {
                s.settle();
                s.kill(members[1]);
            }
        }
        let before = s.mon.map.flags;
        flags(&mut s, before | map_flags::NORECOVER);
        // Its log reaches back furthest, so the others take it for theirs, and its sums with it.
        s.start(members[1]);
        s.until("lacks objects", |s| s.states().values().all(|t| t.contains("recovery_wait")));
        s.mon.change(|inc, map| inc.pool_mut(map, pool).unwrap().set_pg_num(2));
        s.until("divided", |s| s.states().len() == 2 && s.states().values().all(|t| t.contains("active")));
        flags(&mut s, before);
        s.settle();
        assert!(scrub(&mut s, pool, How::Deep).ends_with(" ok"), "seed {seed}");
    }
}

//! Scrubs: what differs between copies is found, told as Ceph tells it, and mended from a copy that proves itself.

use std::time::Duration;

use bytes::Bytes;
use codec::{Decode, Encode, Reader};
use messages::osd::MOsdScrub2;
use messages::pg_state;
use pg::{Input, OsdConfig};
use store::{ObjectKey, Txn};
use types::{HObject, PgId, PoolId, SnapContext, SnapId, SpgId};

use crate::mon::FSID;
use crate::repair::{cluster, flip, primary};
use crate::sim::Sim;

#[derive(Clone, Copy, PartialEq)]
pub enum How {
    Light,
    Deep,
    Repair,
}

/// Asks for a scrub of the pool's first PG.
pub fn ask(s: &mut Sim, pool: PoolId, how: How) {
    ask_pg(s, PgId::new(pool, 0), how);
}

/// The same of another one.
fn ask_pg(s: &mut Sim, pgid: PgId, how: How) {
    let pgs = vec![s.mon.map.primary_shard(pgid).map_or(SpgId::replicated(pgid), |(_, id)| id)];
    let (deep, repair) = (how == How::Deep, how == How::Repair);
    let message = MOsdScrub2 { fsid: FSID, epoch: s.mon.map.epoch, pgs, repair, deep };
    let to = s.mon.map.pg_to_up_acting(pgid).acting_primary;
    s.input(to, Input::FromMgr(message.into()));
}

/// Lines of the primary's log from the start of its newest scrub on.
pub fn lines(s: &Sim, pool: PoolId) -> Vec<String> {
    let log = &s.nodes[primary(s, pool) as usize].log;
    let start = log.iter().rposition(|l| l.ends_with(" starts")).unwrap_or(0);
    log[start..].to_vec()
}

/// Scrubs and waits for the end; its last line.
pub fn scrub(s: &mut Sim, pool: PoolId, how: How) -> String {
    scrub_pg(s, PgId::new(pool, 0), how)
}

/// The same of another PG than the pool's first.
pub fn scrub_pg(s: &mut Sim, pgid: PgId, how: How) -> String {
    let word = match how {
        How::Light => "scrub",
        How::Deep => "deep-scrub",
        How::Repair => "repair",
    };
    let osd = s.mon.map.pg_to_up_acting(pgid).acting_primary as usize;
    let before = s.nodes[osd].log.len();
    ask_pg(s, pgid, how);
    let over = |l: &&String| {
        let is_end =
            l.contains(&format!(" {word} ok")) || (l.contains(" errors") && !l.contains(" missing, "));
        is_end && l.starts_with(&format!("{pgid} "))
    };
    s.until("scrubbed", |s| s.nodes[osd].log[before..].iter().any(|l| over(&l)));
    s.nodes[osd].log[before..].iter().find(over).cloned().unwrap()
}

fn state(s: &Sim, pool: PoolId) -> String {
    let core = s.nodes[primary(s, pool) as usize].core.as_ref().unwrap();
    let bits = core.pg_states().into_iter().find(|(id, _)| id.pgid == PgId::new(pool, 0)).unwrap().1;
    pg_state::to_text(bits)
}

/// The records of the newest scrub, undecoded: the result code, and each entry.
pub fn listed(s: &mut Sim, pool: PoolId, snapsets: bool, after: &str) -> (i32, Vec<Bytes>) {
    let mut w = codec::Writer::new();
    w.envelope(1, 1, |w| {
        w.u32(0);
        w.u32(u32::from(snapsets));
        after.to_owned().encode(w);
        String::new().encode(w);
        w.u64(if after.is_empty() { 0 } else { SnapId::HEAD.0 });
        w.u64(32);
    });
    let map = s.mon.map.clone();
    let tid = s.client.list_scrub(&map, pool, "o1", w.into_bytes().to_vec());
    s.until("listed", |s| s.client.is_idle());
    let reply = s.client.replies.iter().find(|(t, _)| *t == tid).unwrap().1.clone();
    if reply.result < 0 {
        return (reply.result, vec![]);
    }
    let mut r = Reader::new(reply.ops[0].outdata.clone());
    let vals = r.envelope("scrub_ls_result_t", 1, |r, _| {
        r.u32()?;
        Vec::<Bytes>::decode(r)
    });
    (reply.result, vals.unwrap())
}

/// Name, errors of the object, and errors of each shard of an entry of `list-inconsistent-obj`.
pub fn found(raw: &Bytes) -> (String, u64, Vec<(i32, u64)>) {
    let mut r = Reader::new(raw.clone());
    r.envelope("inconsistent_obj_t", 2, |r, _| {
        let errors = r.u64()?;
        let name = r.envelope("object_id_t", 1, |r, _| String::decode(r))?;
        r.u64()?;
        let mut shards = Vec::new();
        for _ in 0..r.u32()? {
            let osd = r.envelope("osd_shard_t", 1, |r, _| r.i32())?;
            shards.push((osd, r.envelope("shard_info_t", 3, |r, _| r.u64())?));
        }
        Ok((name, errors, shards))
    })
    .unwrap()
}

/// Changes a store behind the PG's back.
fn tamper(s: &mut Sim, osd: i32, txn: Txn) {
    let core = s.nodes[osd as usize].core.as_mut().unwrap();
    core.store_mut().submit(txn).unwrap();
}

fn key(s: &Sim, pool: PoolId, name: &str) -> ObjectKey {
    ObjectKey::replicated(s.client.object(&s.mon.map, pool, name))
}

/// Everything is whole, and a deep scrub agrees.
fn check_whole(s: &mut Sim, pool: PoolId) {
    s.settle();
    s.check_copies();
    assert!(scrub(s, pool, How::Deep).ends_with(" deep-scrub ok"), "{:#?}", lines(s, pool));
    assert_eq!(state(s, pool), "active+clean");
    assert_eq!(listed(s, pool, false, "").1.len(), 0);
}

#[test]
fn nothing_is_found_where_nothing_is_wrong_while_clients_write() {
    for seed in 0..4 {
        let config = OsdConfig { deep_scrub_stride: 4096, scrub_chunk_max: 4, ..OsdConfig::default() };
        let mut s = Sim::with_config(3, 200 + seed, config);
        s.until("all up", |s| (0..3).all(|o| s.mon.map.is_up(o)));
        let pool = s.mon.create_pool(3, 2, 1);
        s.settle();
        let map = s.mon.map.clone();
        assert_eq!(listed(&mut s, pool, false, "").0, -2);
        for round in 0..12u64 {
            for i in 0..20u8 {
                let name = format!("o{i}");
                if s.client.is_busy(&name) {
                    continue;
                }
                match s.rng.below(8) {
                    0 => s.client.remove(&map, pool, &name),
                    1 => s.client.patch(&map, pool, &name, 5000, &[i; 3000]),
                    2 => s.client.patch(&map, pool, &name, 0, &[round as u8; 10]),
                    _ => {
                        let size = s.rng.below(30_000) as usize;
                        s.client.write(&map, pool, &name, vec![i ^ round as u8; size])
                    }
                };
            }
            if round % 3 == 1 {
                s.client.snapc =
                    SnapContext { seq: round, snaps: (1..=round).rev().filter(|n| n % 3 == 1).collect() };
            }
            ask(&mut s, pool, if round % 2 == 0 { How::Deep } else { How::Light });
            s.run(400);
        }
        s.settle();
        let log: Vec<String> = s.nodes.iter().flat_map(|n| n.log.clone()).collect();
        assert!(log.iter().filter(|l| l.ends_with(" ok")).count() > 3, "{log:#?}");
        let odd = |l: &&String| !l.ends_with(" ok") && !l.ends_with(" starts");
        assert_eq!(log.iter().find(odd), None, "{log:#?}");
    }
}

#[test]
fn a_deep_scrub_finds_damaged_data_and_a_repair_replaces_it() {
    for seed in 30..32 {
        let (mut s, pool) = cluster(seed, 3);
        let first = primary(&s, pool);
        let others: Vec<i32> = (0..3).filter(|o| *o != first).collect();
        flip(&mut s, first, 0);
        flip(&mut s, others[0], 1);
        flip(&mut s, others[0], 2);
        flip(&mut s, others[1], 2);
        // A light scrub reads no data.
        assert!(scrub(&mut s, pool, How::Light).ends_with(" scrub ok"));
        let last = scrub(&mut s, pool, How::Deep);
        assert_eq!(last, format!("{pool}.0 deep-scrub 4 errors"));
        let object = s.client.object(&s.mon.map, pool, "o0");
        let log = lines(&s, pool);
        let line = format!("{pool}.0 shard {first} soid {object} : candidate had a read error");
        assert!(log.contains(&line), "{log:#?}");
        assert!(log.contains(&format!("{pool}.0 deep-scrub 0 missing, 3 inconsistent objects")), "{log:#?}");
        s.until("told", |s| state(s, pool) == "active+clean+inconsistent");
        let (_, entries) = listed(&mut s, pool, false, "");
        let entries: Vec<_> = entries.iter().map(found).collect();
        let read_error = |osds: &[i32]| -> Vec<(i32, u64)> {
            (0..3).map(|o| (o, if osds.contains(&o) { 1 << 3 } else { 0 })).collect()
        };
        let expected = vec![
            ("o0".to_owned(), 0, read_error(&[first])),
            ("o1".to_owned(), 0, read_error(&[others[0]])),
            ("o2".to_owned(), 0, read_error(&others)),
        ];
        assert_eq!(entries, expected);
        assert_eq!(listed(&mut s, pool, false, "o1").1.len(), 1, "from one on");
        // A light scrub does not make one forget.
        assert!(scrub(&mut s, pool, How::Light).contains("( 4 remaining deep scrub error details lost)"));
        let last = scrub(&mut s, pool, How::Repair);
        assert_eq!(last, format!("{pool}.0 repair 4 errors, 4 fixed"));
        check_whole(&mut s, pool);
    }
}

/// Objects that are not where they should be, are too small, or have other attributes; found by a light scrub.
#[test]
fn a_scrub_finds_what_is_missing_or_different() {
    let (mut s, pool) = cluster(40, 3);
    let first = primary(&s, pool);
    let others: Vec<i32> = (0..3).filter(|o| *o != first).collect();
    // In this interval: a member holds what it has acknowledged, too.
    let map = s.mon.map.clone();
    for i in 0..6 {
        s.client.patch(&map, pool, &format!("o{i}"), 100, &[i; 3]);
    }
    s.settle();
    let edit = |s: &mut Sim, osd: i32, name: &str, f: &dyn Fn(&mut Txn, &ObjectKey)| {
        let (mut txn, key) = (Txn::new(), key(s, pool, name));
        f(&mut txn, &key);
        tamper(s, osd, txn);
    };
    edit(&mut s, first, "o0", &|t, k| {
        t.remove(k);
    });
    edit(&mut s, others[1], "o1", &|t, k| {
        t.remove(k);
    });
    edit(&mut s, others[0], "o2", &|t, k| {
        t.truncate(k, 777);
    });
    edit(&mut s, others[0], "o3", &|t, k| {
        t.set_attr(k, Bytes::from_static(b"_x"), Bytes::from_static(b"y"));
    });
    edit(&mut s, first, "o4", &|t, k| {
        t.set_attr(k, Bytes::from_static(b"_"), Bytes::from_static(b"y"));
    });
    let last = scrub(&mut s, pool, How::Light);
    // o2 is counted for its shard and for itself.
    assert_eq!(last, format!("{pool}.0 scrub 6 errors"), "{:#?}", lines(&s, pool));
    let object = |s: &Sim, name: &str| s.client.object(&s.mon.map, pool, name);
    let (log, o) = (lines(&s, pool), |name: &str| object(&s, name));
    for line in [
        format!("{pool}.0 shard {first} {} : missing", o("o0")),
        format!("{pool}.0 shard {} {} : missing", others[1], o("o1")),
        format!(
            "{pool}.0 shard {} soid {} : candidate size 777 info size 200000 mismatch",
            others[0],
            o("o2")
        ),
        format!("{pool}.0 soid {} : attr name mismatch '_x'", o("o3")),
        format!("{pool}.0 shard {first} soid {} : candidate had a corrupt info", o("o4")),
        format!("{pool}.0 scrub 2 missing, 3 inconsistent objects"),
    ] {
        assert!(log.contains(&line), "{line} in {log:#?}");
    }
    let entries: Vec<_> = listed(&mut s, pool, false, "").1.iter().map(found).collect();
    let names: Vec<&str> = entries.iter().map(|(n, ..)| n.as_str()).collect();
    assert_eq!(names, ["o0", "o1", "o2", "o3", "o4"]);
    assert_eq!(entries[2].1, 1 << 6, "size_mismatch");
    assert!(
        entries[2].2.contains(&(others[0], 1 << 11 | 1 << 18)),
        "size_mismatch_info, obj_size_info_mismatch"
    );
    assert_eq!(entries[3].1, 1 << 8, "attr_name_mismatch");
    assert_eq!(scrub(&mut s, pool, How::Repair), format!("{pool}.0 repair 6 errors, 5 fixed"));
    // Not all errors are copies: a scrub looks again, and then all is well.
    s.until("scrubbed again", |s| {
        s.nodes[first as usize].log.last().is_some_and(|l| l.ends_with(" deep-scrub ok"))
    });
    check_whole(&mut s, pool);
}

/// A copy of a deleted object is removed, not brought back.
#[test]
fn an_extra_copy_goes() {
    for where_to in 0..2 {
        let (mut s, pool) = cluster(50, 3);
        let map = s.mon.map.clone();
        let k = key(&s, pool, "o0");
        let store = s.nodes[where_to].core.as_mut().unwrap().store_mut();
        let info = store.attr(&k, b"_").unwrap().unwrap();
        s.client.remove(&map, pool, "o0");
        s.settle();
        let mut txn = Txn::new();
        txn.touch(&k).truncate(&k, 200_000).set_attr(&k, Bytes::from_static(b"_"), info);
        tamper(&mut s, where_to as i32, txn);
        assert_eq!(scrub(&mut s, pool, How::Light), format!("{pool}.0 scrub 2 errors"));
        assert_eq!(scrub(&mut s, pool, How::Repair), format!("{pool}.0 repair 2 errors, 2 fixed"));
        s.until("removed", |s| (0..3).all(|osd| s.stored(osd, &k.object).is_none()));
        check_whole(&mut s, pool);
    }
}

#[test]
fn clones_and_heads_belong_together() {
    let (mut s, pool) = cluster(60, 3);
    let map = s.mon.map.clone();
    for snap in 1..4 {
        s.client.snapc = SnapContext { seq: snap, snaps: (1..=snap).rev().collect() };
        for name in ["o0", "o1"] {
            s.client.patch(&map, pool, name, 0, &[snap as u8; 5000]);
        }
        s.until("written", |s| s.client.is_idle());
    }
    s.client.snapc = SnapContext::default();
    check_whole(&mut s, pool);
    // A clone is lost everywhere; a head is.
    let (clone, head) = (key(&s, pool, "o0").object.at(SnapId(2)), key(&s, pool, "o1"));
    for osd in 0..3 {
        let mut txn = Txn::new();
        txn.remove(&ObjectKey::replicated(clone.clone())).remove(&head);
        tamper(&mut s, osd, txn);
    }
    let last = scrub(&mut s, pool, How::Light);
    let log = lines(&s, pool);
    // One clone, three clones without a head, and the sums.
    assert_eq!(last, format!("{pool}.0 scrub 5 errors"), "{log:#?}");
    let of = |o: &HObject| format!("{pool}.0 {o}");
    let expected = format!("scrub {} : expected clone {clone} 1 missing", of(&clone.head()));
    assert!(log.contains(&expected), "{expected} in {log:#?}");
    let headless = head.object.at(SnapId(3));
    assert!(log.contains(&format!("scrub {} : is an unexpected clone", of(&headless))), "{log:#?}");
    assert!(log.iter().any(|l| l.contains("stat mismatch, got 10/12 objects, 5/6 clones")), "{log:#?}");
    assert_eq!(listed(&mut s, pool, true, "").1.len(), 4);
    assert_eq!(listed(&mut s, pool, false, "").1.len(), 0);
}

/// Rot in blocks that a clone shares with its head, and the clone's snapshot is removed while both are scrubbed.
#[test]
fn a_clone_that_is_trimmed_while_it_is_scrubbed_counts_once() {
    for seed in 60..72 {
        let (mut s, pool) = cluster(seed, 3);
        let map = s.mon.map.clone();
        s.client.snapc = SnapContext { seq: 1, snaps: vec![1] };
        s.client.patch(&map, pool, "o1", 0, &[1; 5000]);
        s.until("written", |s| s.client.is_idle());
        s.client.snapc = SnapContext::default();
        s.settle();
        let lead = primary(&s, pool);
        flip(&mut s, (0..3).find(|o| *o != lead).unwrap(), 1);
        ask(&mut s, pool, How::Repair);
        s.run(seed as usize % 12);
        s.mon.change(|inc, _| {
            inc.new_removed_snaps.insert(pool, [(1, 1)].into_iter().collect());
        });
        s.step();
        s.deliver_all(crate::sim::MON, lead);
        s.tick(Duration::from_millis(500));
        let over = |l: &&String| l.contains(" repair ok") || l.contains(" repair ") && l.contains(" fixed");
        s.until("scrubbed", |s| s.nodes[lead as usize].log.iter().any(|l| over(&l)));
        let log = lines(&s, pool);
        assert!(!log.iter().any(|l| l.contains("mismatch, got") || l.contains("expected clone")), "{log:#?}");
        s.settle();
        assert_eq!(scrub(&mut s, pool, How::Deep), format!("{pool}.0 deep-scrub ok"), "{seed}");
    }
}

#[test]
fn scrubs_come_by_themselves_and_flags_stop_them() {
    let config = OsdConfig {
        scrub_min_interval: Duration::from_secs(20),
        scrub_max_interval: Duration::from_secs(100),
        deep_scrub_interval: Duration::from_secs(60),
        ..OsdConfig::default()
    };
    let mut s = Sim::with_config(3, 70, config);
    s.until("all up", |s| (0..3).all(|o| s.mon.map.is_up(o)));
    let pool = s.mon.create_pool(3, 2, 8);
    s.settle();
    let map = s.mon.map.clone();
    for i in 0..30u8 {
        s.client.write(&map, pool, &format!("o{i}"), vec![i; 6000]);
    }
    s.settle();
    let pass = |s: &mut Sim, seconds: u64| {
        s.nodes.iter_mut().for_each(|n| n.log.clear());
        for _ in 0..seconds * 2 {
            s.tick(Duration::from_millis(500));
            s.run(60);
        }
        let count = |s: &Sim, word: &str| -> usize {
            s.nodes.iter().map(|n| n.log.iter().filter(|l| l.ends_with(word)).count()).sum()
        };
        (count(s, " scrub ok"), count(s, " deep-scrub ok"))
    };
    let (light, deep) = pass(&mut s, 140);
    assert!(light >= 8 && deep >= 8, "{light} {deep}");
    s.mon.change(|inc, map| inc.new_flags = (map.flags | maps::flags::map_flags::NODEEP_SCRUB) as i32);
    s.run(100);
    let (light, deep) = pass(&mut s, 100);
    assert!(light >= 8 && deep == 0, "{light} {deep}");
    s.mon.change(|inc, map| inc.new_flags = (map.flags | maps::flags::map_flags::NOSCRUB) as i32);
    s.run(100);
    assert_eq!(pass(&mut s, 100), (0, 0));
    // What an operator asks for is done all the same.
    assert!(scrub(&mut s, pool, How::Deep).ends_with(" ok"));
}

#[test]
fn what_is_found_is_mended_at_once_when_that_is_wanted() {
    let (mut s, pool) = cluster(80, 3);
    let first = primary(&s, pool);
    let set = |s: &mut Sim, options: &[(&str, &str)]| {
        for osd in 0..3 {
            let options = options.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
            s.input(osd, Input::Config(options));
        }
    };
    flip(&mut s, first, 0);
    flip(&mut s, (first + 1) % 3, 1);
    let every = [
        ("osd_scrub_min_interval", "1"),
        ("osd_deep_scrub_interval", "1"),
        ("osd_scrub_auto_repair", "true"),
    ];
    let mut few = every.to_vec();
    few.push(("osd_scrub_auto_repair_num_errors", "1"));
    set(&mut s, &few);
    s.until("too many", |s| s.nodes[first as usize].log.iter().any(|l| l.ends_with(" deep-scrub 2 errors")));
    assert!(state(&s, pool).contains("inconsistent"));
    set(&mut s, &every);
    s.until("mended", |s| {
        s.nodes[first as usize].log.iter().any(|l| l.ends_with(" repair 2 errors, 2 fixed"))
    });
    set(&mut s, &[]);
    s.until("over", |s| s.all_are("active+clean"));
    check_whole(&mut s, pool);
}

/// A repair that follows a light scrub comes later when a member has no place for it now.
#[test]
fn a_refused_automatic_repair_is_tried_again() {
    let (mut s, pool) = cluster(85, 3);
    let first = primary(&s, pool);
    let busy = (first + 1) % 3;
    let mut txn = Txn::new();
    txn.remove(&key(&s, pool, "o1"));
    tamper(&mut s, busy, txn);
    let set = |s: &mut Sim, every: &str, places: &str| {
        for osd in 0..3 {
            let options = [
                ("osd_scrub_auto_repair", "true"),
                ("osd_scrub_min_interval", every),
                ("osd_deep_scrub_interval", "100000000"),
                ("osd_deep_scrub_randomize_ratio", "0"),
                ("osd_max_scrubs", if osd == busy { places } else { "1" }),
            ];
            let options = options.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
            s.input(osd, Input::Config(options));
        }
    };
    let said = |s: &Sim, what: &str| s.nodes[first as usize].log.iter().any(|l| l.ends_with(what));
    set(&mut s, "1", "1");
    s.until("found", |s| said(s, " scrub 1 errors"));
    set(&mut s, "100000000", "0");
    for _ in 0..20 {
        s.tick(Duration::from_millis(500));
        s.run(30);
    }
    assert!(!said(&s, " repair 1 errors, 1 fixed"));
    set(&mut s, "100000000", "1");
    s.until("mended", |s| said(s, " repair 1 errors, 1 fixed"));
    s.until("over", |s| s.all_are("active+clean"));
    s.check_copies();
}

/// A change of the members ends a scrub; what was asked for begins again with whoever leads then.
#[test]
fn scrubs_survive_restarts() {
    for seed in 90..94 {
        let (mut s, pool) = cluster(seed, 3);
        let first = primary(&s, pool);
        let victim = s.rng.below(3) as i32;
        flip(&mut s, (first + 1) % 3, 1);
        ask(&mut s, pool, How::Deep);
        s.tick(Duration::from_millis(500));
        let steps = s.rng.below(30) as usize;
        s.run(steps);
        s.restart(victim);
        s.until("whole", |s| {
            s.mon.map.is_up(victim) && s.states().values().all(|t| t.starts_with("active+clean"))
        });
        assert!(scrub(&mut s, pool, How::Repair).ends_with(" 1 errors, 1 fixed"));
        check_whole(&mut s, pool);
    }
}

/// A pool whose first PG has a damaged copy on a member that does not lead, as a scrub has found.
fn inconsistent(osds: i32, seed: u64) -> (Sim, PoolId) {
    let mut s = Sim::new(osds, seed);
    s.until("all up", |s| (0..osds).all(|o| s.mon.map.is_up(o)));
    let pool = s.mon.create_pool(3, 2, 1);
    s.settle();
    let map = s.mon.map.clone();
    for i in 0..6u8 {
        s.client.write(&map, pool, &format!("o{i}"), vec![i; 6000]);
    }
    s.settle();
    let members = map.pg_to_up_acting(PgId::new(pool, 0)).acting;
    let mut txn = Txn::new();
    txn.remove(&key(&s, pool, "o1"));
    tamper(&mut s, *members.last().unwrap(), txn);
    assert!(scrub(&mut s, pool, How::Deep).ends_with(" 1 errors"));
    assert_eq!(state(&s, pool), "active+clean+inconsistent");
    (s, pool)
}

/// A copy that was just made knows of no scrub; what scrubs found before it stands.
#[test]
fn a_new_copy_does_not_hide_what_a_scrub_has_found() {
    for seed in 300..303 {
        let (mut s, pool) = inconsistent(4, seed);
        let members = s.mon.map.pg_to_up_acting(PgId::new(pool, 0)).acting;
        s.tick(Duration::from_secs(5));
        s.mon.mark_out(members[1]);
        let clean = |s: &mut Sim| {
            let up = s.mon.map.pg_to_up_acting(PgId::new(pool, 0)).up;
            !up.contains(&members[1]) && s.states().values().all(|t| t.starts_with("active+clean"))
        };
        s.run(1_000);
        s.until("moved", clean);
        assert_eq!(state(&s, pool), "active+clean+inconsistent");
    }
}

/// A scrub ends with its pool: others get its place.
#[test]
fn a_pool_that_is_deleted_while_it_is_scrubbed_leaves_no_place_taken() {
    for seed in 310..314 {
        let (mut s, pool) = inconsistent(3, seed);
        let other = s.mon.create_pool(3, 2, 1);
        s.until("served", |s| s.states().values().all(|t| t.starts_with("active+clean")));
        ask(&mut s, pool, How::Deep);
        s.tick(Duration::from_millis(500));
        let begun = |s: &mut Sim| {
            let cores = s.nodes.iter().filter_map(|n| n.core.as_ref());
            cores.flat_map(|c| c.pg_states()).any(|(_, bits)| bits & pg_state::SCRUBBING != 0)
        };
        s.until("scrubbing", begun);
        s.client.model.clear();
        s.mon.change(|inc, _| {
            inc.old_pools.insert(pool);
        });
        s.until("deleted", |s| s.states().len() == 1 && s.all_are("active+clean"));
        assert!(scrub(&mut s, other, How::Deep).ends_with(" ok"));
    }
}

#[test]
fn two_osds_that_want_each_others_place_do_not_refuse_each_other_for_ever() {
    const PGS: u32 = 32;
    for seed in 320..326 {
        let mut s = Sim::new(2, seed);
        s.until("all up", |s| (0..2).all(|o| s.mon.map.is_up(o)));
        let pool = s.mon.create_pool(2, 1, PGS);
        s.settle();
        for osd in 0..2 {
            let led = |pg: &PgId| s.mon.map.pg_to_up_acting(*pg).acting_primary == osd;
            let pgs: Vec<_> = (0..PGS).map(|seed| PgId::new(pool, seed)).filter(led).collect();
            assert!(pgs.len() > 8, "each leads many: {}", pgs.len());
            let pgs = pgs.into_iter().map(SpgId::replicated).collect();
            let epoch = s.mon.map.epoch;
            s.input(
                osd,
                Input::FromMgr(MOsdScrub2 { fsid: FSID, epoch, pgs, repair: false, deep: true }.into()),
            );
        }
        // The time of both passes at the same moment.
        let begin = s.mono;
        let scrubbed = |s: &Sim| {
            let lines = s.nodes.iter().flat_map(|n| &n.log);
            lines.filter(|l| l.ends_with(" deep-scrub ok")).count()
        };
        s.until("all scrubbed", |s| scrubbed(s) == PGS as usize);
        let took = s.mono - begin;
        assert!(took < Duration::from_secs(90), "seed {seed}: {took:?} for {PGS} PGs");
    }
}

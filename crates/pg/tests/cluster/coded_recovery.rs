//! Shards that are lost are made again: of OSDs that were replaced or moved, of objects that were missed or
//! damaged. What they hold then is what clients wrote, and so is what reads give meanwhile.

use std::time::Duration;

use maps::flags::map_flags;
use pg::OsdConfig;
use store::{ObjectKey, Txn};
use types::{HObject, PgId, PoolId, SpgId};

use crate::coded_kit::{
    CHUNK, acting, bytes, check_shards, cluster_with, content, damage, long_log, mark_damaged, min_size,
    primary, put_back, read_all, requests, shard, start_empty, under_way,
};
use crate::sim::Sim;

const CODES: [(u8, u8); 3] = [(2, 1), (4, 2), (6, 2)];

/// Options under which a member that lacks much is backfilled, in ranges of a few objects.
fn short_log() -> OsdConfig {
    OsdConfig {
        min_pg_log_entries: 4,
        max_pg_log_entries: 4,
        pg_log_trim_min: 1,
        backfill_scan_max: 3,
        ..OsdConfig::default()
    }
}

/// Objects of several sizes, of which some were changed in parts and one was deleted.
fn write_objects(s: &mut Sim, pool: PoolId, count: usize) {
    let map = s.mon.map.clone();
    for at in 0..count {
        let content = bytes(s, [0, 10, CHUNK, 3 * CHUNK + 5, 40 * CHUNK][at % 5]);
        s.client.write(&map, pool, &format!("o{at}"), content);
    }
    s.settle();
    let part = bytes(s, CHUNK);
    s.client.patch(&map, pool, "o3", 2 * CHUNK - 7, &part);
    s.client.patch(&map, pool, "o4", 17 * CHUNK + 3, &part);
    s.client.remove(&map, pool, "o1");
    s.settle();
}

#[test]
fn an_osd_that_was_replaced_by_an_empty_one_gets_its_shard_back() {
    let mut seed = 0;
    for code in CODES {
        for place in 0..usize::from(code.0 + code.1) {
            for config in [long_log(), short_log()] {
                seed += 1;
                let (mut s, pool) = cluster_with(code, code.0, 0, seed, config);
                write_objects(&mut s, pool, 8);
                let osd = acting(&s, pool)[place];
                s.kill(osd);
                start_empty(&mut s, osd);
                s.settle();
                assert_eq!(acting(&s, pool)[place], osd);
                check_shards(&mut s, pool);
                read_all(&mut s, pool);
            }
        }
    }
}

#[test]
fn as_many_osds_as_there_are_coding_shards_are_lost_and_rebuilt_on_spares() {
    for (seed, code) in (0..12).zip(CODES.into_iter().cycle()) {
        let config = if seed % 2 == 0 { long_log() } else { short_log() };
        let (mut s, pool) = cluster_with(code, code.0, code.1.into(), 100 + seed, config);
        write_objects(&mut s, pool, 10);
        let members = acting(&s, pool);
        let first = s.rng.below(members.len() as u64) as usize;
        let lost: Vec<i32> =
            (0..usize::from(code.1)).map(|at| members[(first + at * 2) % members.len()]).collect();
        for osd in &lost {
            s.kill(*osd);
        }
        lost.iter().for_each(|osd| s.mon.mark_out(*osd));
        requests(&mut s, pool, 30);
        s.settle();
        assert!(acting(&s, pool).iter().all(|osd| !lost.contains(osd)));
        check_shards(&mut s, pool);
        read_all(&mut s, pool);
    }
}

/// Reads and writes go on while shards are made; what is written meanwhile is on all of them.
#[test]
fn requests_go_on_during_a_rebuild() {
    for (seed, code) in (0..9).zip(CODES.into_iter().cycle()) {
        let config = if seed % 2 == 0 { long_log() } else { short_log() };
        let (mut s, pool) = cluster_with(code, code.0, 0, 200 + seed, config);
        write_objects(&mut s, pool, 10);
        let members = acting(&s, pool);
        let osd = members[seed as usize % members.len()];
        s.kill(osd);
        requests(&mut s, pool, 20);
        start_empty(&mut s, osd);
        requests(&mut s, pool, 60);
        s.settle();
        check_shards(&mut s, pool);
    }
}

/// A range of a backfill begins while objects of it are being written, and which members have the new version
/// is not known yet: they are copied when the write is done. Nobody calls them unfound, or asks who cannot
/// have them.
#[test]
fn what_is_being_written_when_a_range_begins_is_copied_afterwards() {
    for seed in 0..16 {
        let code = CODES[seed as usize % 2];
        let (mut s, pool) = cluster_with(code, code.0, 1, 300 + seed, short_log());
        write_objects(&mut s, pool, 12);
        for round in 0..4 {
            let members = acting(&s, pool);
            let osd = members[(seed as usize + round) % members.len()];
            s.mon.mark_out(osd);
            requests(&mut s, pool, 40);
            s.settle();
            s.mon.mark_in(osd);
            requests(&mut s, pool, 40);
            s.settle();
        }
        let log = s.nodes.iter().flat_map(|node| &node.log);
        let said: Vec<_> = log.filter(|l| l.contains("no data of it") || l.contains("unfound")).collect();
        assert_eq!(said, [""; 0], "seed {seed}");
        check_shards(&mut s, pool);
        read_all(&mut s, pool);
    }
}

/// Whoever ends in the middle, nothing of what was begun is taken for an object.
#[test]
fn an_osd_ends_in_the_middle_of_a_rebuild() {
    let mut begun = 0;
    for (seed, code) in (0..18).zip(CODES.into_iter().cycle()) {
        // Pieces of a chunk.
        let config = OsdConfig { recovery_max_chunk: CHUNK as u64, ..long_log() };
        let (mut s, pool) = cluster_with(code, code.0, 0, 300 + seed, config);
        write_objects(&mut s, pool, 5);
        let members = acting(&s, pool);
        let osd = members[seed as usize % members.len()];
        s.kill(osd);
        start_empty(&mut s, osd);
        let recovering = |s: &Sim| s.states().values().any(|t| t.contains("recovering"));
        s.until("recovering", |s| recovering(s));
        let steps = s.rng.below(150) as usize;
        s.run(steps);
        begun += usize::from(recovering(&s));
        let ended = match seed / 3 % 3 {
            0 => osd,
            1 => primary(&s, pool),
            _ => *members.iter().find(|other| **other != osd && **other != primary(&s, pool)).unwrap(),
        };
        if s.nodes[ended as usize].core.is_some() {
            s.kill(ended);
        }
        s.start(ended);
        s.settle();
        check_shards(&mut s, pool);
        read_all(&mut s, pool);
        for osd in members {
            assert_eq!(aside(&mut s, osd), 0, "osd.{osd} has pieces left");
        }
    }
    assert!(begun > 9, "{begun}");
}

/// Objects that an OSD builds aside.
fn aside(s: &mut Sim, osd: i32) -> usize {
    let store = s.nodes[osd as usize].core.as_mut().unwrap().store_mut();
    let all = store.list_all(None, usize::MAX).unwrap();
    all.iter().filter(|key| key.object.pool.0 < -1 && !pg::coded::is_kept(&key.object)).count()
}

/// Whoever finds a shard damaged, the primary its own or a member its own, it is made again; requests see
/// nothing of it.
#[test]
fn a_damaged_shard_is_made_again() {
    let mut seed = 400;
    for code in CODES {
        for place in 0..usize::from(code.0 + code.1) {
            seed += 1;
            let (mut s, pool) = cluster_with(code, min_size(code), 0, seed, long_log());
            write_objects(&mut s, pool, 5);
            damage(&mut s, pool, place, "o4");
            let map = s.mon.map.clone();
            for round in 0..3 {
                s.client.read(&map, pool, "o4");
                s.until("read", |s| s.client.is_idle());
                if round == 1 {
                    // It changes every coding chunk, and one of data.
                    let part = bytes(&mut s, 100);
                    s.client.patch(&map, pool, "o4", 20, &part);
                }
                s.until("written", |s| s.client.is_idle());
            }
            s.settle();
            check_shards(&mut s, pool);
            let repairs: usize = s.nodes.iter().map(|n| refusals(&n.log, "o4")).sum();
            assert!(
                repairs <= 2 && (repairs > 0 || place >= code.0.into()),
                "{repairs} lines about one shard"
            );
        }
    }
}

/// The same where the log tells nothing of the object any more, and the primary has started since.
#[test]
fn a_damaged_shard_that_the_log_does_not_name_is_made_again() {
    let mut seed = 450;
    for code in CODES {
        for place in 0..usize::from(code.0) {
            seed += 1;
            let (mut s, pool) = cluster_with(code, min_size(code), 0, seed, short_log());
            write_objects(&mut s, pool, 5);
            let map = s.mon.map.clone();
            for at in 0..20 {
                s.client.write(&map, pool, "other", vec![at; 10]);
                s.settle();
            }
            let first = primary(&s, pool);
            s.restart(first);
            s.settle();
            damage(&mut s, pool, place, "o4");
            s.client.read(&map, pool, "o4");
            s.until("read", |s| s.client.is_idle());
            s.settle();
            check_shards(&mut s, pool);
        }
    }
}

fn refusals(log: &[String], name: &str) -> usize {
    log.iter().filter(|l| l.contains(&format!(":{name}:")) && l.contains("gives no data")).count()
}

/// A write that a member could not keep in its place, because more of its copies are damaged than can be made
/// up for, is not lost: it waits until a holder comes back.
#[test]
fn an_object_that_nobody_can_make_waits_for_a_holder() {
    for (seed, code) in (0..6).zip(CODES.into_iter().cycle()) {
        let (mut s, pool) = cluster_with(code, code.0, 0, 500 + seed, long_log());
        write_objects(&mut s, pool, 5);
        let map = s.mon.map.clone();
        let members = acting(&s, pool);
        let m = usize::from(code.1);
        // As many are away as may be. Then another one gets an empty disk.
        let away: Vec<i32> = members[members.len() - m..].to_vec();
        for osd in &away {
            s.kill(*osd);
        }
        s.until("active", |s| s.states().values().all(|t| t.contains("active")));
        damage_at(&mut s, pool, 0, "o4");
        s.client.read(&map, pool, "o4");
        s.run(3_000);
        assert!(!s.client.is_idle(), "nobody can read it");
        assert!(s.states().values().all(|t| t.contains("recovery_unfound")), "{:?}", s.states());
        for osd in &away {
            s.start(*osd);
        }
        s.settle();
        check_shards(&mut s, pool);
        read_all(&mut s, pool);
    }
}

/// The same as `damage`, while others are away.
fn damage_at(s: &mut Sim, pool: PoolId, place: usize, name: &str) {
    let osd = acting(s, pool)[place];
    let data = shard(s, osd, place, pool, name).expect("it is there");
    s.restart(osd);
    s.until("active", |s| s.states().values().all(|t| t.contains("active")));
    let device = s.nodes[osd as usize].device.clone();
    let blocks = (0..store::Device::len(&*device)).step_by(CHUNK);
    let blocks: Vec<u64> = blocks.filter(|at| device.peek(*at, CHUNK) == data[..CHUNK]).collect();
    assert!(!blocks.is_empty());
    blocks.iter().for_each(|at| device.flip(at + 9, 1));
}

/// Kills, restarts, moves and lost disks under requests: all that was acknowledged is on all shards in the
/// end.
#[test]
fn thrashing_loses_nothing() {
    let from = std::env::var("PG_SEED").ok().and_then(|s| s.parse().ok());
    let rounds = std::env::var("PG_ROUNDS").ok().and_then(|s| s.parse().ok()).unwrap_or(80);
    // A stray had what the acting set lacked, and more that was lost, so it gave nothing: 273, 286, 549. A
    // copy whose backfill had begun anew had what others lacked: 2127.
    let all: Vec<u64> = from.map_or_else(|| (0..9).chain([273, 286, 549, 2127]).collect(), |seed| vec![seed]);
    for seed in all {
        thrash(seed, rounds);
    }
}

fn thrash(seed: u64, rounds: usize) {
    let code = CODES[seed as usize % 3];
    let log = [3, 10, 500][seed as usize / 3 % 3];
    let config = OsdConfig {
        min_pg_log_entries: log,
        max_pg_log_entries: log * 2,
        pg_log_trim_min: 2,
        backfill_scan_max: 2,
        recovery_max_chunk: [1 << 20, CHUNK as u64][seed as usize % 2],
        max_markdown_count: 10_000,
        ..OsdConfig::default()
    };
    let (mut s, pool) = cluster_with(code, min_size(code), 1 + seed as i32 % 2, seed, config);
    let osds = s.nodes.len() as i32;
    for _ in 0..rounds {
        requests(&mut s, pool, 4);
        fault(&mut s, osds);
    }
    s.cut.clear();
    for osd in 0..osds {
        s.mon.mark_in(osd);
        if s.nodes[osd as usize].core.is_none() {
            s.start(osd);
        }
    }
    s.settle();
    check_shards(&mut s, pool);
    read_all(&mut s, pool);
}

pub fn fault(s: &mut Sim, osds: i32) {
    let osd = s.rng.below(osds as u64) as i32;
    let alive = s.nodes[osd as usize].core.is_some();
    match s.rng.below(12) {
        0 | 1 if alive => {
            s.crash(osd);
            if s.rng.one_in(2) {
                s.notice_crash(osd);
            }
        }
        2..=5 if !alive => s.start(osd),
        6 if alive && s.rng.one_in(2) => s.mon.mark_down(osd),
        7 if s.rng.one_in(3) => s.mon.mark_out(osd),
        8 => s.mon.mark_in(osd),
        9 if s.rng.one_in(4) => s.cut = vec![(osd, (osd + 1) % osds)],
        10 => s.cut.clear(),
        // All is whole: a disk may be lost.
        11 if alive && s.all_are("active+clean") => {
            s.kill(osd);
            start_empty(s, osd);
        }
        _ => {}
    }
}

/// A copy that had to follow a deletion, and alone with the primary began the interval in which it counted,
/// finds itself among others that have never heard of it: the object is there again, with that copy's shard.
#[test]
fn a_deletion_that_was_learnt_of_and_is_lost_is_taken_back() {
    for (seed, code) in (0..16).zip([(2, 3), (4, 3)].into_iter().cycle()) {
        let (mut s, pool) = cluster_with(code, code.0, 0, 600 + seed, long_log());
        let content = bytes(&mut s, 5 * CHUNK);
        let map = s.mon.map.clone();
        s.client.write(&map, pool, "o", content);
        s.settle();
        let first = primary(&s, pool);
        let others: Vec<i32> = acting(&s, pool).into_iter().filter(|osd| *osd != first).collect();
        let (late, short) =
            (others[seed as usize % others.len()], others[(seed as usize + 1) % others.len()]);
        let place = acting(&s, pool).iter().position(|osd| *osd == late).unwrap();
        if seed >= 8 {
            // What it has of the object is damaged, as it knows.
            let object = s.client.object(&map, pool, "o");
            let mut txn = Txn::new();
            txn.write(&ObjectKey::new(place as i8, object.clone()), 0, vec![0xba; CHUNK]);
            s.nodes[late as usize].core.as_mut().unwrap().store_mut().submit(txn).unwrap();
            mark_damaged(&mut s, pool, late, &object);
        }
        s.kill(late);
        s.until("goes on without", |s| s.states().values().all(|t| t == "active+undersized+degraded"));
        // The last one never gets it.
        let have: Vec<i32> = others.iter().copied().filter(|osd| ![late, short].contains(osd)).collect();
        s.client.remove(&map, pool, "o");
        s.deliver_requests(first);
        s.until("shipped", |s| others_have(s, first, &have, "RepOp"));
        s.client.paused = true;
        for osd in &have {
            s.deliver_all(first, *osd);
            s.commit(*osd);
        }
        s.commit(first);
        s.crash(short);
        s.start(late);
        s.until("up", |s| s.mon.map.is_up(late));
        s.notice_crash(short);
        // It counts where it was not seen before, and with the primary alone.
        s.until("learns of it", |s| !s.mon.map.is_up(short) && others_have(s, first, &[late], "Activate {"));
        s.cut = have.iter().map(|osd| (first, *osd)).collect();
        s.until("has the map", |s| s.is_up_to_date(late));
        s.deliver_all(first, late);
        s.commit(late);
        s.commit(first);
        assert_eq!(shard(&mut s, late, place, pool, "o"), None, "it is deleted there");
        // It looks at its marks every two seconds.
        (0..6).for_each(|_| s.tick(Duration::from_millis(500)));
        s.commit(late);
        s.crash(first);
        s.crash(late);
        s.cut.clear();
        s.start(short);
        s.until("up", |s| s.mon.map.is_up(short));
        s.notice_crash(first);
        s.notice_crash(late);
        s.until("down", |s| !s.mon.map.is_up(first) && !s.mon.map.is_up(late));
        s.until("goes on", |s| s.states().values().all(|t| t.contains("active")));
        s.start(first);
        s.start(late);
        s.until("whole", |s| s.all_are("active+clean"));
        let open = std::mem::take(&mut s.client.model.get_mut("o").unwrap().open);
        check_shards(&mut s, pool);
        s.client.model.get_mut("o").unwrap().open = open;
        s.client.paused = false;
        s.settle();
        check_shards(&mut s, pool);
    }
}

fn others_have(s: &Sim, from: i32, to: &[i32], kind: &str) -> bool {
    to.iter().all(|to| under_way(s, from, *to, kind).is_some())
}

/// Writes that an OSD can take back.
fn kept(s: &mut Sim, pool: PoolId, osd: i32) -> usize {
    let place = acting(s, pool).iter().position(|member| *member == osd).expect("a member");
    let id = SpgId { pgid: PgId::new(pool, 0), shard: place as i8 };
    let store = s.nodes[osd as usize].core.as_mut().unwrap().store_mut();
    pg::coded::kept_in(store, id).unwrap().len()
}

/// What is kept to take writes back goes when nobody will, although no write says so; and not before.
#[test]
fn records_go_when_all_members_have_the_writes() {
    for (seed, code) in (0..6).zip(CODES.into_iter().cycle()) {
        let (mut s, pool) = cluster_with(code, code.0, 0, 700 + seed, long_log());
        write_objects(&mut s, pool, 5);
        let members = acting(&s, pool);
        s.until("let go", |s| members.iter().all(|osd| kept(s, pool, *osd) == 0));
        // A member ends before it has heard of it; it hears when it is back.
        let late = *members.iter().find(|osd| **osd != primary(&s, pool)).unwrap();
        let map = s.mon.map.clone();
        let part = bytes(&mut s, CHUNK);
        s.client.patch(&map, pool, "o4", 3 * CHUNK, &part);
        s.until("written", |s| s.client.is_idle());
        assert!(kept(&mut s, pool, late) > 0);
        s.restart(late);
        s.settle();
        s.until("let go", |s| members.iter().all(|osd| kept(s, pool, *osd) == 0));
        check_shards(&mut s, pool);
    }
}

/// A start with fewer members than may take writes decides nothing: what they have is still taken back.
#[test]
fn records_stay_while_too_few_members_are_there() {
    for (seed, code) in (0..6).zip([(2, 2), (4, 2), (6, 2)].into_iter().cycle()) {
        let (mut s, pool) = cluster_with(code, code.0 + 1, 0, 800 + seed, long_log());
        let content = bytes(&mut s, 20 * CHUNK);
        let map = s.mon.map.clone();
        s.client.write(&map, pool, "o", content);
        s.settle();
        let first = primary(&s, pool);
        let others: Vec<i32> = acting(&s, pool).into_iter().filter(|osd| *osd != first).collect();
        let (away, have) = others.split_at(code.1.into());
        let part = bytes(&mut s, 3 * CHUNK);
        s.client.patch(&map, pool, "o", 10, &part);
        s.deliver_requests(first);
        s.until("shipped", |s| others_have(s, first, &others, "RepOp"));
        s.client.paused = true;
        for osd in have {
            s.deliver_all(first, *osd);
            s.commit(*osd);
        }
        s.commit(first);
        away.iter().for_each(|osd| s.crash(*osd));
        away.iter().for_each(|osd| s.notice_crash(*osd));
        s.until("peered", |s| s.states().values().all(|t| t.contains("peered")));
        s.run(300);
        assert!(kept(&mut s, pool, first) > 0 && have.iter().all(|osd| kept(&mut s, pool, *osd) > 0));
        away.iter().for_each(|osd| s.start(*osd));
        s.until("whole", |s| s.all_are("active+clean"));
        let open = std::mem::take(&mut s.client.model.get_mut("o").unwrap().open);
        check_shards(&mut s, pool);
        s.client.model.get_mut("o").unwrap().open = open;
        s.client.paused = false;
        s.settle();
        check_shards(&mut s, pool);
    }
}

/// Objects of a copy that is removed stay for a while, and a copy that is made meanwhile takes them over: not
/// what was known to be damaged.
#[test]
fn damage_goes_with_a_copy_that_is_removed() {
    for seed in 0..4 {
        // More objects than go at once, and nothing more goes.
        let config = OsdConfig { delete_sleep: Duration::from_secs(100_000), ..short_log() };
        let (mut s, pool) = cluster_with((2, 1), 2, 1, 900 + seed, config);
        let map = s.mon.map.clone();
        let names: Vec<String> = (0..270).map(|at| format!("o{at}")).collect();
        for some in names.chunks(30) {
            for name in some {
                let content = bytes(&mut s, 10);
                s.client.write(&map, pool, name, content);
            }
            s.until("written", |s| s.client.is_idle());
        }
        s.settle();
        let last = names.iter().max_by_key(|name| s.client.object(&map, pool, name)).unwrap();
        let members = acting(&s, pool);
        let place = seed as usize % 3;
        let osd = members[place];
        let object = s.client.object(&map, pool, last);
        let mut txn = Txn::new();
        txn.write(&ObjectKey::new(place as i8, object.clone()), 0, vec![0xba; CHUNK]);
        s.nodes[osd as usize].core.as_mut().unwrap().store_mut().submit(txn).unwrap();
        mark_damaged(&mut s, pool, osd, &object);
        s.kill(osd);
        s.mon.mark_out(osd);
        s.until("moved", |s| acting(s, pool).iter().all(|other| (0..4).contains(other) && *other != osd));
        s.settle();
        s.start(osd);
        s.until("removed", |s| {
            s.mon.map.is_up(osd) && s.nodes[osd as usize].core.as_ref().unwrap().pg_lines().is_empty()
        });
        s.mon.mark_in(osd);
        s.until("back", |s| acting(s, pool).contains(&osd));
        s.settle();
        check_shards(&mut s, pool);
    }
}

/// A copy that a backfill makes has refused an object, and was given it: it is a holder like any other.
#[test]
fn a_target_that_was_given_what_it_refused_is_a_holder() {
    for seed in 0..6 {
        let (mut s, pool) = cluster_with((2, 1), 2, 1, 1_000 + seed, short_log());
        let map = s.mon.map.clone();
        let names: Vec<String> = (0..12).map(|at| format!("o{at}")).collect();
        let mut sorted: Vec<(HObject, &str)> =
            names.iter().map(|name| (s.client.object(&map, pool, name), &**name)).collect();
        sorted.sort();
        let (object, name) = sorted[0].clone();
        for name in &names {
            let data = bytes(&mut s, 6 * CHUNK);
            s.client.write(&map, pool, name, data);
        }
        s.settle();
        let (first, members) = (primary(&s, pool), acting(&s, pool));
        let data = (0..2).find(|at| members[*at] != first).unwrap();
        let other = (0..3).find(|at| members[*at] != first && *at != data).unwrap();
        let old = |s: &mut Sim, place: usize| content(s, members[place], place, object.clone());
        let (a, b, c, d) = (old(&mut s, data), old(&mut s, data), old(&mut s, data), old(&mut s, other));
        let new = bytes(&mut s, 6 * CHUNK);
        s.client.write(&map, pool, name, new);
        s.settle();
        s.mon.mark_out(members[data]);
        let target = (0..4).find(|osd| !members.contains(osd)).unwrap();
        s.until("given", |s| shard(s, target, data, pool, name).is_some());
        s.mon.change(|inc, _| inc.new_flags = map_flags::NOBACKFILL as i32);
        s.until("known", |s| (0..4).all(|osd| s.is_up_to_date(osd)));
        s.run(500);
        assert_eq!(acting(&s, pool), members, "the backfill goes on");
        assert!(s.states().values().all(|t| t.contains("backfill")), "{:?}", s.states());
        let map = s.mon.map.clone();
        for (osd, was) in [(members[data], a), (target, b)] {
            put_back(&mut s, osd, was);
        }
        s.client.read(&map, pool, name);
        s.until("read", |s| s.client.is_idle());
        s.run(2_000);
        let log = &s.nodes[first as usize].log;
        assert!(
            log.iter().any(|l| l.contains(&format!("osd.{target}(")) && l.contains("no data")),
            "{log:?}"
        );
        assert_eq!(shard(&mut s, target, data, pool, name), shard(&mut s, members[data], data, pool, name));
        for (osd, was) in [(members[data], c), (members[other], d)] {
            put_back(&mut s, osd, was);
        }
        s.client.read(&map, pool, name);
        s.until("read", |s| s.client.is_idle());
        s.mon.change(|inc, _| inc.new_flags = 0);
        let newest = bytes(&mut s, 5 * CHUNK);
        s.client.write(&map, pool, name, newest);
        s.settle();
        check_shards(&mut s, pool);
        read_all(&mut s, pool);
    }
}

/// CRUSH has nobody for a place, and somebody new for another one: who is new serves as soon as it has its
/// shard.
#[test]
fn a_new_member_beside_a_hole_serves_when_it_has_all() {
    let mut found = 0;
    for seed in 1..=6 {
        let (mut s, pool) = cluster_with((2, 1), 2, 1, seed, short_log());
        write_objects(&mut s, pool, 20);
        let was = acting(&s, pool);
        was[1..].iter().for_each(|osd| s.mon.mark_out(*osd));
        let up = s.mon.map.pg_to_up_acting(PgId::new(pool, 0)).up;
        let is_new = |(at, osd): (usize, &i32)| (0..4).contains(osd) && was[at] != *osd;
        found += usize::from(up.iter().enumerate().any(is_new));
        s.until("remapped", |s| {
            let members = s.mon.map.pg_to_up_acting(PgId::new(pool, 0));
            let places = members.up.iter().zip(&members.acting);
            let serve = places.clone().all(|(up, acting)| !(0..4).contains(up) || up == acting);
            serve && s.all_are("active+clean+remapped")
        });
        requests(&mut s, pool, 10);
        s.until("answered", |s| s.client.is_idle());
        was[1..].iter().for_each(|osd| s.mon.mark_in(*osd));
        s.settle();
        read_all(&mut s, pool);
        check_shards(&mut s, pool);
    }
    assert!(found > 0, "nobody was new");
}

/// A copy that is new, and that a backfill is to make, has nothing. Where the others do not make an object up
/// it is asked, for it may as well be one that had it before its backfill began anew: that it refuses is no
/// error.
#[test]
fn what_a_new_copy_does_not_have_is_no_error() {
    for seed in 0..6 {
        let (mut s, pool) = cluster_with((2, 1), 2, 1, 1_100 + seed, short_log());
        write_objects(&mut s, pool, 8);
        let (map, members) = (s.mon.map.clone(), acting(&s, pool));
        let object = s.client.object(&map, pool, "o4");
        let place = seed as usize % 3;
        let (gone, bad) = (members[place], members[(place + 1) % 3]);
        s.mon.change(|inc, _| inc.new_flags = map_flags::NOBACKFILL as i32);
        s.mon.mark_out(gone);
        s.until("waits", |s| s.states().values().all(|t| t.contains("active") && t.contains("backfill")));
        let target = s.mon.map.pg_to_up_acting(PgId::new(pool, 0)).up[place];
        assert!(!members.contains(&target));
        s.kill(gone);
        s.until("goes on", |s| s.states().values().all(|t| t.contains("active")));
        mark_damaged(&mut s, pool, bad, &object);
        s.restart(bad);
        s.until("unfound", |s| s.states().values().all(|t| t.contains("recovery_unfound")));
        let refusals = |node: &crate::sim::Node| {
            let of_target = format!("osd.{target}(");
            node.log.iter().filter(|l| l.contains(&of_target) && l.contains("gives no data")).count()
        };
        assert!(s.nodes.iter().all(|node| refusals(node) == 0), "seed {seed}");
        s.start(gone);
        s.mon.mark_in(gone);
        s.mon.change(|inc, _| inc.new_flags = 0);
        s.settle();
        check_shards(&mut s, pool);
        read_all(&mut s, pool);
    }
}

/// Bytes that OSDs have sent to recover objects.
fn pushed(s: &mut Sim) -> u64 {
    let running: Vec<i32> =
        (0..s.nodes.len() as i32).filter(|osd| s.nodes[*osd as usize].core.is_some()).collect();
    running.into_iter().map(|osd| crate::counters::counter(s, osd, "push_out_bytes")).sum()
}

/// A large object, of which parts are written while the OSD at a place is away.
fn change_without(s: &mut Sim, pool: PoolId, away: &[i32], stripes: usize) {
    away.iter().for_each(|osd| s.kill(*osd));
    s.until("goes on", |s| s.states().values().all(|t| t.contains("active")));
    let map = s.mon.map.clone();
    let size = s.client.model["o"].acked.as_ref().expect("written").len();
    for (at, len) in [(3 * CHUNK + 7, 100), (stripes / 2 * CHUNK, CHUNK), (size, 2 * CHUNK + 1)] {
        let part = bytes(s, len);
        s.client.patch(&map, pool, "o", at, &part);
        s.until("written", |s| s.client.is_idle());
    }
}

/// A copy that was away for some writes gets what they have changed, whatever shard it has, in one piece or
/// in many.
#[test]
fn a_copy_that_was_away_gets_what_has_changed() {
    let mut seed = 1_200;
    for code in CODES {
        for place in 0..usize::from(code.0 + code.1) {
            seed += 1;
            let recovery_max_chunk = [8 << 20, CHUNK as u64][seed as usize / 2 % 2];
            let config = OsdConfig { recovery_max_chunk, ..long_log() };
            let (mut s, pool) = cluster_with(code, code.0, 0, seed, config);
            let stripes = 60;
            let content = bytes(&mut s, stripes * usize::from(code.0) * CHUNK - 5);
            let map = s.mon.map.clone();
            s.client.write(&map, pool, "o", content);
            s.settle();
            let osd = acting(&s, pool)[place];
            change_without(&mut s, pool, &[osd], stripes);
            let before = pushed(&mut s);
            s.start(osd);
            s.settle();
            check_shards(&mut s, pool);
            read_all(&mut s, pool);
            let sent = pushed(&mut s) - before;
            assert!(sent > 0 && sent < 30 * CHUNK as u64, "{sent} bytes of {} at {place}", stripes * CHUNK);
        }
    }
}

/// The older version is not there, damaged, or with one of two copies alone: what is made is all of the
/// shard.
#[test]
fn a_copy_without_what_it_should_have_gets_all_of_its_shard() {
    for seed in 0..12 {
        let recovery_max_chunk = [8 << 20, CHUNK as u64][seed as usize / 4 % 2];
        let config = OsdConfig { recovery_max_chunk, ..long_log() };
        let (mut s, pool) = cluster_with((4, 2), 4, 0, 1_300 + seed, config);
        let map = s.mon.map.clone();
        let (old, new) = (bytes(&mut s, 60 * 4 * CHUNK), bytes(&mut s, 60 * 4 * CHUNK));
        s.client.write(&map, pool, "o", old);
        s.settle();
        let (members, object) = (acting(&s, pool), s.client.object(&map, pool, "o"));
        let place = seed as usize % 6;
        let (osd, other) = (members[place], members[(place + 1) % 6]);
        let was = content(&mut s, osd, place, object.clone());
        s.client.write(&map, pool, "o", new);
        s.settle();
        match seed % 3 {
            0 => put_back(&mut s, osd, was),
            1 => mark_damaged(&mut s, pool, osd, &object),
            _ => {}
        }
        s.commit(osd);
        let away = if seed % 3 == 2 { vec![osd, other] } else { vec![osd] };
        change_without(&mut s, pool, &away, 60);
        s.start(osd);
        if seed % 3 == 2 {
            start_empty(&mut s, other);
        }
        s.settle();
        check_shards(&mut s, pool);
        read_all(&mut s, pool);
    }
}

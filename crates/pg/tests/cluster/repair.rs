//! Bytes that change on a medium: clients see nothing of it while another copy is good, and the copy is made good again.

use store::ObjectKey;
use types::{HObject, PoolId, SnapContext};

use crate::sim::Sim;

const LEN: usize = 200_000;

/// Objects of 200,000 bytes, each of one byte value, on three OSDs that have nothing of them in memory.
pub fn cluster(seed: u64, size: u8) -> (Sim, PoolId) {
    let mut s = Sim::new(i32::from(size), seed);
    s.until("all up", |s| (0..i32::from(size)).all(|o| s.mon.map.is_up(o)));
    let pool = s.mon.create_pool(size, 1, 1);
    s.settle();
    let map = s.mon.map.clone();
    for i in 0..6u8 {
        s.client.write(&map, pool, &format!("o{i}"), vec![100 + i; LEN]);
    }
    s.settle();
    for osd in 0..i32::from(size) {
        s.crash(osd);
        s.notice_crash(osd);
        s.until("down", |s| size == 1 || !s.mon.map.is_up(osd));
        let epoch = s.mon.map.epoch;
        s.start(osd);
        s.until("up again", |s| s.mon.map.epoch > epoch && s.mon.map.is_up(osd));
        s.settle();
    }
    (s, pool)
}

/// Changes a byte in the middle of an object, wherever the OSD's device has its blocks.
pub fn flip(s: &mut Sim, osd: i32, object: u8) {
    flip_blocks(s, osd, object, 10..20);
}

fn flip_blocks(s: &mut Sim, osd: i32, object: u8, which: std::ops::Range<usize>) {
    let device = s.nodes[osd as usize].device.clone();
    let block = vec![100 + object; 4096];
    let found: Vec<u64> = (0..store::Device::len(&*device))
        .step_by(4096)
        .filter(|at| device.peek(*at, 4096) == block)
        .collect();
    assert!(found.len() >= LEN / 4096, "{} blocks of {object} on osd.{osd}", found.len());
    for at in found.iter().take(which.end).skip(which.start) {
        device.flip(at + 77, 0x10);
    }
}

pub fn primary(s: &Sim, pool: PoolId) -> i32 {
    s.mon.map.pg_to_up_acting(types::PgId::new(pool, 0)).acting_primary
}

/// The report that a member's object is damaged comes to nobody: the member repeats it when the PG starts again.
#[test]
fn a_lost_report_of_damage_is_repeated() {
    for seed in 1..12 {
        let (mut s, pool) = cluster(seed, 3);
        let (map, first) = (s.mon.map.clone(), primary(&s, pool));
        let member = (0..3).find(|o| *o != first).expect("another");
        flip(&mut s, member, 2);
        s.client.patch(&map, pool, "o2", 15 * 4096 + 100, &[1; 9]);
        s.until("reported", |s| s.links.get(&(member, first)).is_some_and(|q| q.iter().any(is_report)));
        s.links.remove(&(member, first));
        // The good copies have the write, or nobody would after the primary's end.
        for osd in (0..3).filter(|osd| *osd != member) {
            s.deliver_all(first, osd);
            while !s.is_durable(osd) {
                s.commit(osd);
            }
        }
        // The session is lost; or the primary is too, and has forgotten everything.
        match seed {
            1 => s.input(member, pg::Input::OsdReset { osd: types::OsdId(first) }),
            _ => s.restart(first),
        }
        s.until("written", |s| s.client.is_idle());
        s.settle();
        for _ in 0..6 {
            s.tick(std::time::Duration::from_millis(600));
            s.run(300);
        }
        s.settle();
        // This reads all copies.
        s.check_copies();
    }
}

/// What every copy of every object of the pool says on its own.
fn scrub_all(s: &mut Sim, pool: PoolId, what: &str) {
    let from = HObject { pool, ..HObject::min() };
    let until = HObject { pool: PoolId(pool.0 + 1), ..HObject::min() };
    for (osd, node) in s.nodes.iter_mut().enumerate() {
        let Some(core) = node.core.as_mut() else { continue };
        let store = core.store_mut();
        for object in store.list(-1, &from, &until, 1_000).expect("listed") {
            let key = ObjectKey::replicated(object);
            let size = store.stat(&key).expect("readable").expect("listed").size;
            assert!(store.read(&key, 0, size).is_ok(), "{what}: {key:?} of osd.{osd}");
        }
    }
}

/// A member has lost a block of an object, and before it gets the object anew a write makes a clone of it for
/// a snapshot.
#[test]
fn a_clone_of_what_a_member_lost_is_replaced_too() {
    for seed in 1..8 {
        let (mut s, pool) = cluster(seed, 3);
        let (map, first) = (s.mon.map.clone(), primary(&s, pool));
        let member = (0..3).find(|o| *o != first).expect("another");
        flip(&mut s, member, 2);
        // The primary sends the object at a tick, since the write is under way when it hears of it.
        s.client.patch(&map, pool, "o2", 15 * 4096 + 100, &[1; 9]);
        s.until("written", |s| s.client.is_idle());
        s.client.snapc = SnapContext { seq: 5, snaps: vec![5] };
        s.client.patch(&map, pool, "o2", 100, &[2; 9]);
        s.until("written", |s| s.client.is_idle());
        for _ in 0..6 {
            s.tick(std::time::Duration::from_millis(600));
            s.run(300);
        }
        s.settle();
        scrub_all(&mut s, pool, &format!("seed {seed}"));
        s.check_copies();
    }
}

/// A member has lost a block of an object, and is started anew before the primary has sent the object; seeds
/// from 4 on: the primary too, and the member may lead.
#[test]
fn what_was_lost_is_known_after_a_restart() {
    for seed in 1..8 {
        let (mut s, pool) = cluster(seed, 3);
        let (map, first) = (s.mon.map.clone(), primary(&s, pool));
        let member = (0..3).find(|o| *o != first).expect("another");
        flip(&mut s, member, 2);
        s.client.patch(&map, pool, "o2", 15 * 4096 + 100, &[1; 9]);
        s.until("written", |s| s.client.is_idle());
        s.deliver_all(member, first);
        while !s.is_durable(member) {
            s.commit(member);
        }
        s.restart(member);
        if seed > 3 {
            s.kill(first);
            s.until("without it", |s| !s.mon.map.is_up(first));
            s.run(2_000);
            s.start(first);
        }
        s.settle();
        for _ in 0..6 {
            s.tick(std::time::Duration::from_millis(600));
            s.run(300);
        }
        s.settle();
        scrub_all(&mut s, pool, &format!("seed {seed}"));
        s.check_copies();
    }
}

/// A member lost a block of an object, then was away: what it gets is not based on what it has.
#[test]
fn nothing_is_based_on_what_lost_a_block() {
    for seed in 1..8 {
        let (mut s, pool) = cluster(seed, 3);
        let (map, first) = (s.mon.map.clone(), primary(&s, pool));
        let member = (0..3).find(|o| *o != first).expect("another");
        flip(&mut s, member, 2);
        s.client.patch(&map, pool, "o2", 15 * 4096 + 100, &[1; 9]);
        s.until("written", |s| s.client.is_idle());
        let key = ObjectKey::replicated(s.client.object(&map, pool, "o2"));
        let core = s.nodes[member as usize].core.as_mut().expect("runs");
        assert_eq!(core.store_mut().has_lost(&key), Ok(true));
        s.kill(member);
        s.client.patch(&map, pool, "o2", 100, &[2; 9]);
        s.until("written", |s| s.client.is_idle());
        s.start(member);
        s.settle();
        scrub_all(&mut s, pool, &format!("seed {seed}"));
        s.check_copies();
    }
}

fn is_report(m: &messages::Message) -> bool {
    pg::OsdCore::describe_message(m).is_some_and(|text| text.contains("Damaged {"))
}

/// Whether an OSD's copy of the object lacks data that its medium has lost.
fn has_lost(s: &mut Sim, pool: PoolId, osd: i32, name: &str) -> bool {
    let key = ObjectKey::replicated(s.client.object(&s.mon.map, pool, name));
    let core = s.nodes[osd as usize].core.as_mut().expect("runs");
    core.store_mut().has_lost(&key).expect("readable")
}

/// A primary that was away hears that a member lost a block of an object that it does not have itself yet. It
/// fetches the object from another member, and the one that lost the block gets it too.
#[test]
fn a_report_on_what_the_primary_lacks_itself_is_kept() {
    for seed in 1..8 {
        let (mut s, pool) = cluster(seed, 3);
        let first = primary(&s, pool);
        s.kill(first);
        let map = s.mon.map.clone();
        s.client.write(&map, pool, "new", vec![106; LEN]);
        s.until("written", |s| s.client.is_idle());
        let lead = primary(&s, pool);
        let member = 3 - first - lead;
        while !s.is_durable(member) {
            s.commit(member);
        }
        s.restart(member);
        s.until("up again", |s| s.mon.map.is_up(member));
        s.run(2_000);
        flip_blocks(&mut s, member, 6, 0..usize::MAX);
        let map = s.mon.map.clone();
        s.client.patch(&map, pool, "new", 15 * 4096 + 100, &[1; 9]);
        s.until("reported", |s| s.links.get(&(member, lead)).is_some_and(|q| q.iter().any(is_report)));
        s.links.remove(&(member, lead));
        assert!(has_lost(&mut s, pool, member, "new"));
        s.start(first);
        s.until("written", |s| s.client.is_idle());
        s.settle();
        for _ in 0..6 {
            s.tick(std::time::Duration::from_millis(600));
            s.run(300);
        }
        s.settle();
        scrub_all(&mut s, pool, &format!("seed {seed}"));
        s.check_copies();
    }
}

/// The blocks that a member lost are written anew before the primary has sent the object. Nothing is wrong
/// with the object then, and another copy could only be worse.
#[test]
fn what_was_lost_and_written_anew_is_whole() {
    for seed in 1..8 {
        let (mut s, pool) = cluster(seed, 3);
        let (map, first) = (s.mon.map.clone(), primary(&s, pool));
        let member = (0..3).find(|o| *o != first).expect("another");
        flip(&mut s, member, 2);
        s.client.patch(&map, pool, "o2", 15 * 4096 + 100, &[1; 9]);
        s.until("written", |s| s.client.is_idle());
        assert!(has_lost(&mut s, pool, member, "o2"));
        s.client.write(&map, pool, "o2", vec![9; LEN]);
        s.until("written", |s| s.client.is_idle());
        for osd in (0..3).filter(|osd| *osd != member) {
            s.kill(osd);
        }
        s.until("it leads", |s| s.nodes[member as usize].core.as_ref().is_some_and(leads));
        s.run(500);
        let log = &s.nodes[member as usize].log;
        assert!(!log.iter().any(|l| l.contains("data was lost here earlier")), "seed {seed}: {log:?}");
        for osd in (0..3).filter(|osd| *osd != member) {
            s.start(osd);
        }
        s.settle();
        s.check_copies();
    }
}

fn leads(core: &pg::OsdCore) -> bool {
    core.pg_states().iter().any(|(_, state)| state & messages::pg_state::ACTIVE != 0)
}

#[test]
fn a_damaged_object_is_read_from_another_copy_and_made_good() {
    for seed in 1..4 {
        let (mut s, pool) = cluster(seed, 3);
        let (map, first) = (s.mon.map.clone(), primary(&s, pool));
        let others: Vec<i32> = (0..3).filter(|o| *o != first).collect();
        // One object is bad here alone, one on a member too, one on a member alone.
        flip(&mut s, first, 0);
        flip(&mut s, first, 1);
        flip(&mut s, others[0], 1);
        flip(&mut s, others[1], 2);
        for i in 0..3 {
            s.client.read(&map, pool, &format!("o{i}"));
        }
        s.until("read", |s| s.client.is_idle());
        // A change of a part meets the damage too, and so does one of another object at its edges.
        flip(&mut s, first, 3);
        flip(&mut s, others[0], 4);
        s.client.patch(&map, pool, "o2", 15 * 4096 + 100, &[1; 9]);
        s.client.patch(&map, pool, "o3", 15 * 4096 + 100, &[2; 100]);
        s.client.patch(&map, pool, "o4", 15 * 4096 + 100, &[3; 90_000]);
        s.client.patch(&map, pool, "o5", 15 * 4096 + 100, &[4; 90_000]);
        s.until("written", |s| s.client.is_idle());
        // The primary sends members what they have lost.
        for _ in 0..6 {
            s.tick(std::time::Duration::from_millis(600));
            s.run(300);
        }
        s.settle();
        // Every copy proves its checksums again: this reads all of them.
        s.check_copies();
    }
}

#[test]
fn recovery_takes_a_good_copy() {
    for seed in 10..14 {
        let (mut s, pool) = cluster(seed, 3);
        let (map, first) = (s.mon.map.clone(), primary(&s, pool));
        let others: Vec<i32> = (0..3).filter(|o| *o != first).collect();
        s.kill(others[0]);
        for i in 0..4 {
            s.client.patch(&map, pool, &format!("o{i}"), 0, &[200; 5000]);
        }
        s.until("written", |s| s.client.is_idle());
        // What the primary has to send is bad there, or on the other member.
        flip(&mut s, first, 0);
        flip(&mut s, others[1], 1);
        s.start(others[0]);
        s.settle();
        for i in 0..4 {
            s.client.read(&map, pool, &format!("o{i}"));
        }
        s.until("read", |s| s.client.is_idle());
        s.settle();
        // The other member's bad copy is found when it is wanted.
        s.client.patch(&map, pool, "o1", 15 * 4096 + 1, &[1; 3]);
        s.until("written", |s| s.client.is_idle());
        for _ in 0..6 {
            s.tick(std::time::Duration::from_millis(600));
            s.run(300);
        }
        s.settle();
        s.check_copies();
    }
}

/// Nothing else has the data: the request gets an error, and the OSD goes on.
#[test]
fn the_only_copy_answers_with_an_error() {
    let (mut s, pool) = cluster(20, 1);
    let map = s.mon.map.clone();
    flip(&mut s, 0, 0);
    s.client.damage_allowed = true;
    s.client.read(&map, pool, "o0");
    s.until("answered", |s| s.client.is_idle());
    assert_eq!(s.client.replies.last().map(|(_, r)| r.result), Some(-5));
    s.client.patch(&map, pool, "o0", 15 * 4096 + 100, &[1; 9]);
    s.until("answered", |s| s.client.is_idle());
    assert_eq!(s.client.replies.last().map(|(_, r)| r.result), Some(-5));
    // Written anew it is good.
    s.client.damage_allowed = false;
    s.client.write(&map, pool, "o0", vec![9; LEN]);
    s.client.read(&map, pool, "o1");
    s.settle();
    s.client.read(&map, pool, "o0");
    s.settle();
    s.check_copies();
}

/// The newest version of an object is on one member alone, and damaged there: the others are recovered all the same. Where
/// only what did not change is damaged, the others' older versions have it.
#[test]
fn an_object_without_a_good_copy_holds_up_no_other() {
    damaged_on_the_only_member(LEN, 1);
    damaged_on_the_only_member(5000, 0);
}

fn damaged_on_the_only_member(changed: usize, lost: usize) {
    let (mut s, pool) = cluster(30, 3);
    let (map, first) = (s.mon.map.clone(), primary(&s, pool));
    for osd in (0..3).filter(|o| *o != first) {
        s.kill(osd);
    }
    for i in 0..6 {
        s.client.patch(&map, pool, &format!("o{i}"), 0, &vec![150 + i; changed]);
    }
    s.until("written", |s| s.client.is_idle());
    // What is damaged is new, or what did not change.
    flip(&mut s, first, if changed == LEN { 50 } else { 0 });
    for osd in (0..3).filter(|o| *o != first) {
        s.start(osd);
    }
    let lacking = |s: &Sim| {
        let lines = s.nodes.iter().filter_map(|n| n.core.as_ref()).flat_map(pg::OsdCore::pg_lines);
        lines.filter(|l| l.contains("missing 1 ")).count()
    };
    s.until("all but one are everywhere", |s| {
        lacking(s) == 2 * lost && s.all_are("active+clean") == (lost == 0)
    });
    s.client.damage_allowed = true;
    for i in 0..6 {
        s.client.read(&map, pool, &format!("o{i}"));
    }
    s.until("answered", |s| s.client.is_idle());
    let failed = s.client.replies.iter().filter(|(_, r)| r.result == -5).count();
    assert_eq!(failed, lost);
}

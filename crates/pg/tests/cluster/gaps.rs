//! Messages between OSDs that live are lost: no member acknowledges what follows a hole, and nothing waits for ever.

use messages::Message;
use pg::{Input, OsdCore};
use types::{OsdId, PgId, PoolId};

use crate::sim::Sim;

fn cluster(seed: u64) -> (Sim, PoolId, i32, i32) {
    let mut s = Sim::new(2, seed);
    s.until("all up", |s| (0..2).all(|o| s.mon.map.is_up(o)));
    let pool = s.mon.create_pool(2, 1, 1);
    s.settle();
    let primary = s.mon.map.pg_to_up_acting(PgId::new(pool, 0)).acting_primary;
    (s, pool, primary, 1 - primary)
}

fn write(s: &mut Sim, pool: PoolId, name: &str) {
    let map = s.mon.map.clone();
    s.client.write(&map, pool, name, name.as_bytes().to_vec());
}

fn is_write(msg: &Message) -> bool {
    OsdCore::describe_message(msg).is_some_and(|text| text.contains("RepOp(RepOp"))
}

/// Waits until a write is on its way between the two.
fn sent(s: &mut Sim, from: i32, to: i32) {
    s.until("a write on its way", |s| s.links.get(&(from, to)).is_some_and(|q| q.iter().any(is_write)));
}

/// A write is lost, others follow it: the member says so, and gets it again.
#[test]
fn a_member_does_not_apply_what_follows_a_hole() {
    for seed in 1..8 {
        let (mut s, pool, primary, member) = cluster(seed);
        for name in ["a", "b", "c"] {
            write(&mut s, pool, name);
        }
        sent(&mut s, primary, member);
        let link = s.links.get_mut(&(primary, member)).expect("a link");
        let at = link.iter().position(is_write).expect("a write");
        link.remove(at);
        write(&mut s, pool, "d");
        s.settle();
        s.check_copies();
        let told = |l: &String| l.contains("that follows");
        assert!(s.nodes[member as usize].log.iter().any(told), "{:?}", s.nodes[member as usize].log);
        // What was acknowledged is there without the primary.
        s.crash(primary);
        s.start(primary);
        s.settle();
        s.check_copies();
    }
}

/// Nothing follows what is lost; the side whose session it was hears of it.
#[test]
fn a_lost_session_is_made_up_for() {
    for seed in 1..8 {
        for by_primary in [true, false] {
            let (mut s, pool, primary, member) = cluster(seed);
            let (from, to) = if by_primary { (primary, member) } else { (member, primary) };
            for name in ["a", "b", "c"] {
                write(&mut s, pool, name);
            }
            s.until("something on its way", |s| s.links.get(&(from, to)).is_some_and(|q| !q.is_empty()));
            s.links.remove(&(from, to));
            s.input(from, Input::OsdReset { osd: OsdId(to) });
            s.until("answered", |s| s.client.is_idle());
            s.settle();
            s.check_copies();
        }
    }
}

/// A member hears that its session was lost and says that it is out of step, and that is lost with the next
/// session. The primary, which heard of neither, is told again.
#[test]
fn a_session_that_is_lost_twice_is_made_up_for() {
    for seed in 1..8 {
        let (mut s, pool, primary, member) = cluster(seed);
        for name in ["a", "b", "c"] {
            write(&mut s, pool, name);
        }
        s.until("something on its way", |s| s.links.get(&(member, primary)).is_some_and(|q| !q.is_empty()));
        for _ in 0..2 {
            s.links.remove(&(member, primary));
            s.input(member, Input::OsdReset { osd: OsdId(primary) });
        }
        s.until("answered", |s| s.client.is_idle());
        s.settle();
        s.check_copies();
    }
}

/// A member tells a primary of what is durable alone: what it has not written yet may be lost with the power.
#[test]
fn what_is_not_durable_is_not_told() {
    let (mut s, pool, primary, member) = cluster(11);
    write(&mut s, pool, "a");
    sent(&mut s, primary, member);
    s.deliver_all(primary, member);
    assert!(!s.is_durable(member), "the write is not durable there yet");
    s.input(primary, Input::OsdReset { osd: OsdId(member) });
    s.deliver_all(primary, member);
    let told = |s: &Sim| {
        let link = s.links.get(&(member, primary)).into_iter().flatten();
        link.filter_map(OsdCore::describe_message).filter(|text| text.contains("Notify {")).count()
    };
    assert_eq!(told(&s), 0);
    while !s.is_durable(member) {
        s.commit(member);
    }
    assert_eq!(told(&s), 1);
    s.until("answered", |s| s.client.is_idle());
    s.settle();
    s.check_copies();
}

/// A write that does not decode is as good as none.
#[test]
fn a_write_that_does_not_decode_is_sent_again() {
    let (mut s, pool, primary, member) = cluster(9);
    write(&mut s, pool, "a");
    sent(&mut s, primary, member);
    for msg in s.links.get_mut(&(primary, member)).expect("a link").iter_mut().filter(|m| is_write(m)) {
        let Message::Unknown(wire) = msg else { panic!("not our own number") };
        wire.front = wire.front.slice(..wire.front.len() - 20);
    }
    s.until("answered", |s| s.client.is_idle());
    s.settle();
    s.check_copies();
}

/// A watch lasts through another peering of the same interval: its client hears of none.
#[test]
fn a_watch_outlasts_a_lost_session() {
    let (mut s, pool, primary, member) = cluster(10);
    let map = s.mon.map.clone();
    write(&mut s, pool, "o");
    s.until("written", |s| s.client.is_idle());
    let op = messages::osd::watch_op::WATCH;
    let watch = messages::osd::Op::Watch { cookie: 7, op, generation: 0, timeout_s: 600 };
    s.client.change(&map, pool, "o", vec![watch]);
    s.until("watched", |s| s.client.is_idle());
    s.input(primary, Input::OsdReset { osd: OsdId(member) });
    s.settle();
    let cmd = r#"{"prefix": "dump_watchers"}"#.to_owned();
    s.input(primary, Input::AdminCommand { tid: 1, cmd });
    let reply = s.nodes[primary as usize].admin_replies.pop().expect("an answer");
    let told: serde_json::Value = serde_json::from_slice(&reply.data).expect("JSON");
    assert_eq!(told.as_array().map(Vec::len), Some(1), "{told}");
}

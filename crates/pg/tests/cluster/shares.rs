//! What one client may have of an OSD when there are others, and what it may do in their name.

use std::time::Duration;

use bytes::Bytes;
use codec::Decode;
use messages::Message;
use messages::osd::{CopyFromArgs, CopySource, Extent, MOsdOp, Op, OsdOp, flags};
use pg::{Input, OsdConfig};
use types::{ConnId, EntityAddr, Epoch, Errno, ObjectLocator, PgId, PoolId, ReqId, SnapId, SpgId, Utime};

use crate::sim::{CLIENT, Sim};

/// The connections of two other clients.
pub const ONE: i32 = CLIENT + 1;
const TWO: i32 = CLIENT + 2;

/// One OSD, and a pool of one PG.
fn cluster(config: OsdConfig) -> (Sim, PoolId) {
    // With an even seed nothing has to be waited for: what is read is looked at slice by slice.
    let mut s = Sim::with_config(1, 4, config);
    s.until("up", |s| s.mon.map.is_up(0));
    let pool = s.mon.create_pool(1, 1, 1);
    s.settle();
    (s, pool)
}

pub fn request(s: &Sim, pool: PoolId, name: &str, ops: Vec<OsdOp>) -> MOsdOp {
    MOsdOp {
        pgid: SpgId::replicated(PgId::new(pool, 0)),
        epoch: s.mon.map.epoch,
        flags: flags::WRITE | flags::READ | flags::ONDISK,
        explicit_reqid: ReqId::default(),
        client_inc: 0,
        mtime: Utime::new(50_000, 0),
        object: s.client.object(&s.mon.map, pool, name),
        ops,
        snapc: Default::default(),
        retry_attempt: 0,
        features: 0,
    }
}

pub fn write(content: &[u8]) -> OsdOp {
    let extent = Extent::new(0, content.len() as u64);
    Op::WriteFull { extent, data: Bytes::copy_from_slice(content) }.into()
}

pub fn read() -> OsdOp {
    Op::Read(Extent::new(0, 0)).into()
}

fn send(s: &mut Sim, conn: i32, tid: u64, msg: &MOsdOp) {
    s.input(0, Input::Message { conn: ConnId(conn as u64), tid, msg: Message::from(msg.clone()) });
}

/// The result and the first output.
pub fn answer(s: &mut Sim, conn: i32, tid: u64) -> (i32, Bytes) {
    let is_it = |m: &(i32, u64, Message)| (m.0, m.1) == (conn, tid) && matches!(m.2, Message::OsdOpReply(_));
    s.until("an answer", |s| s.strangers.iter().any(is_it));
    match s.strangers.iter().find(|m| is_it(m)) {
        Some((_, _, Message::OsdOpReply(r))) => (r.result, r.ops[0].outdata.clone()),
        other => panic!("{other:?}"),
    }
}

fn ask(s: &mut Sim, conn: i32, tid: u64, msg: &MOsdOp) -> (i32, Bytes) {
    send(s, conn, tid, msg);
    answer(s, conn, tid)
}

fn held(s: &Sim, conn: i32) -> bool {
    s.nodes[0].held.contains(&conn)
}

/// What the OSD says that clients' requests hold.
fn held_bytes(s: &mut Sim) -> u64 {
    let cmd = r#"{"prefix":"dump_mempools"}"#.into();
    s.input(0, Input::AdminCommand { tid: 1, cmd });
    let reply = s.nodes[0].admin_replies.pop().expect("an answer");
    let all: serde_json::Value = serde_json::from_slice(&reply.data).unwrap();
    all["mempool"]["by_pool"]["client_ops"]["bytes"].as_u64().unwrap()
}

#[test]
fn requests_for_a_map_that_nobody_has_hold_their_sender_alone() {
    let (mut s, pool) = cluster(OsdConfig::default());
    s.connect(ONE, |_| {});
    s.connect(TWO, |_| {});
    let mut made_up = request(&s, pool, "o", vec![read()]);
    made_up.epoch = Epoch(u32::MAX);
    for tid in 1..=257 {
        send(&mut s, ONE, tid, &made_up);
    }
    assert!(held(&s, ONE));
    let honest = request(&s, pool, "o", vec![write(b"x")]);
    for tid in 1..10 {
        assert_eq!(ask(&mut s, TWO, tid, &honest).0, 0);
    }
    assert!(!held(&s, TWO) && s.nodes[0].holds_clients == (false, 0));
    // What waits goes with its sender.
    s.input(0, Input::Disconnected { conn: ConnId(ONE as u64) });
    s.nodes[0].held.clear();
    s.connect(ONE, |_| {});
    assert_eq!(ask(&mut s, ONE, 300, &honest).0, 0);
    assert!(!held(&s, ONE));
}

/// What it sent and nobody read may be all that is left of it.
#[test]
fn who_is_held_for_long_for_a_map_that_nobody_has_is_closed() {
    let (mut s, pool) = cluster(OsdConfig::default());
    s.connect(ONE, |_| {});
    s.connect(TWO, |_| {});
    let mut made_up = request(&s, pool, "o", vec![read()]);
    made_up.epoch = Epoch(u32::MAX);
    let second = Duration::from_secs(1);
    (1..=100).for_each(|tid| send(&mut s, ONE, tid, &made_up));
    // This one is not held: its end would be seen.
    (1..=3).for_each(|tid| send(&mut s, TWO, tid, &made_up));
    assert!(held(&s, ONE) && !held(&s, TWO));
    let both = held_bytes(&mut s);
    for waited in 0..120 {
        assert_eq!((held_bytes(&mut s), s.nodes[0].closed.len()), (both, 0), "after {waited} s");
        s.tick(second);
    }
    s.tick(second);
    assert_eq!(s.nodes[0].closed, [ONE]);
    assert_eq!(held_bytes(&mut s), both / 103 * 3, "what waits goes with its sender");
    // It comes again, with requests that can run.
    s.nodes[0].held.clear();
    s.connect(ONE, |_| {});
    let honest = request(&s, pool, "o", vec![write(b"x")]);
    assert_eq!(ask(&mut s, ONE, 300, &honest).0, 0);
    assert!(!held(&s, ONE));
}

#[test]
fn what_waits_for_a_map_has_a_bound_over_all_connections() {
    let config = OsdConfig { client_message_size_cap: 8 << 20, ..OsdConfig::default() };
    let (mut s, pool) = cluster(config);
    let mut made_up = request(&s, pool, "o", vec![write(&vec![1; 1 << 20])]);
    made_up.epoch = Epoch(u32::MAX);
    for conn in ONE..ONE + 10 {
        s.connect(conn, |_| {});
        // The same number twice counts twice.
        (0..2).for_each(|_| send(&mut s, conn, 7, &made_up));
    }
    let bytes = held_bytes(&mut s);
    assert!((2 << 20..=4 << 20).contains(&bytes), "{bytes}");
}

/// Writes are under way until the device has them, and here it has none yet.
#[test]
fn a_client_has_the_whole_alone_and_a_share_with_others() {
    let config = OsdConfig { client_message_cap: 16, ..OsdConfig::default() };
    let (mut s, pool) = cluster(config);
    s.connect(ONE, |_| {});
    s.connect(TWO, |_| {});
    let m = request(&s, pool, "o", vec![write(b"x")]);
    (1..=16).for_each(|tid| send(&mut s, ONE, tid, &m));
    assert!(!held(&s, ONE), "alone");
    send(&mut s, TWO, 1, &m);
    assert!(held(&s, ONE) && !held(&s, TWO));
    send(&mut s, TWO, 2, &m);
    assert!(!held(&s, TWO), "two of sixteen are an even part of a quarter");
    // Whoever comes back has what it left behind.
    s.input(0, Input::Disconnected { conn: ConnId(ONE as u64) });
    s.nodes[0].held.clear();
    s.connect(ONE, |_| {});
    send(&mut s, ONE, 20, &m);
    send(&mut s, ONE, 21, &m);
    send(&mut s, ONE, 22, &m);
    assert!(held(&s, ONE), "sixteen of its own are under way still");
    assert_eq!(answer(&mut s, TWO, 2).0, 0);
    assert_eq!(answer(&mut s, ONE, 22).0, 0);
    s.until("let go", |s| !held(s, ONE));
}

/// No OSD waits for it.
#[test]
fn a_metadata_server_has_a_share_as_clients_have() {
    let config = OsdConfig { client_message_cap: 16, ..OsdConfig::default() };
    let (mut s, pool) = cluster(config);
    s.connect(ONE, |peer| peer.name.kind = types::EntityType::Mds as u8);
    s.connect(TWO, |_| {});
    let m = request(&s, pool, "o", vec![write(b"x")]);
    (1..=16).for_each(|tid| send(&mut s, ONE, tid, &m));
    send(&mut s, TWO, 1, &m);
    assert!(held(&s, ONE) && !held(&s, TWO));
    assert_eq!(answer(&mut s, ONE, 16).0, 0);
    s.until("let go", |s| !held(s, ONE));
}

/// Many connections of one entity have no more than one entity's share.
#[test]
fn connections_of_one_entity_share_its_part() {
    let config = OsdConfig { client_message_cap: 16, ..OsdConfig::default() };
    let (mut s, pool) = cluster(config);
    let m = request(&s, pool, "o", vec![write(b"x")]);
    let same = types::AuthName::new(types::EntityType::Client, "many");
    for conn in ONE + 10..ONE + 20 {
        s.connect(conn, |peer| peer.auth_name = same.clone());
        send(&mut s, conn, 1, &m);
    }
    s.connect(TWO, |_| {});
    send(&mut s, TWO, 1, &m);
    send(&mut s, TWO, 2, &m);
    assert!(!held(&s, TWO));
    send(&mut s, ONE + 10, 2, &m);
    assert!(held(&s, ONE + 10));
}

/// Requests of much work: others, and heartbeats, do not wait for all of them.
#[test]
fn clients_take_turns_when_there_is_much_to_do() {
    let (mut s, pool) = cluster(OsdConfig::default());
    s.connect(ONE, |_| {});
    s.connect(TWO, |_| {});
    let m = request(&s, pool, "large", vec![write(&vec![1; 1 << 20])]);
    assert_eq!(ask(&mut s, ONE, 1, &m).0, 0);
    let m = request(&s, pool, "small", vec![write(b"small")]);
    assert_eq!(ask(&mut s, TWO, 1, &m).0, 0);
    let heavy = request(&s, pool, "large", vec![read(); 3]);
    (10..20).for_each(|tid| send(&mut s, ONE, tid, &heavy));
    let light = request(&s, pool, "small", vec![read()]);
    send(&mut s, TWO, 2, &light);
    let answered = |s: &Sim, conn| {
        let queued = s.links.get(&(0, conn)).map_or(0, |q| q.len());
        queued + s.strangers.iter().filter(|m| m.0 == conn && m.1 > 1).count()
    };
    assert!((1..3).contains(&answered(&s, ONE)), "{} of ten", answered(&s, ONE));
    assert_eq!(answered(&s, TWO), 0);
    let ping = Message::Ping(messages::common::MPing { payload: Default::default() });
    s.input(0, Input::Message { conn: ConnId(TWO as u64), tid: 3, msg: ping });
    assert_eq!(answered(&s, TWO), 1, "at once");
    s.until("the light one", |s| answered(s, TWO) == 2);
    let before = answered(&s, ONE);
    assert!(before < 6, "{before} of ten");
    // A client that does not read has no turn; others have.
    s.unread = [ConnId(ONE as u64)].into();
    s.input(0, Input::Again { unread: s.unread.clone(), free_bytes: s.free_bytes });
    for tid in 4..8 {
        assert_eq!(ask(&mut s, TWO, tid, &light).0, 0);
    }
    assert_eq!(answered(&s, ONE), before);
    s.unread.clear();
    assert_eq!(answer(&mut s, ONE, 19).0, 0);
    let order: Vec<u64> = s.strangers.iter().filter(|m| m.0 == ONE && m.1 > 1).map(|m| m.1).collect();
    assert_eq!(order, (10..20).collect::<Vec<_>>());
}

/// Many connections of one entity have no more turns than one.
#[test]
fn entities_take_turns_and_then_their_connections() {
    let (mut s, pool) = cluster(OsdConfig::default());
    s.connect(ONE, |_| {});
    let m = request(&s, pool, "large", vec![write(&vec![1; 1 << 20])]);
    assert_eq!(ask(&mut s, ONE, 1, &m).0, 0);
    let heavy = request(&s, pool, "large", vec![read(); 3]);
    let same = types::AuthName::new(types::EntityType::Client, "many");
    let many = ONE + 10..ONE + 20;
    for conn in many.clone() {
        s.connect(conn, |peer| peer.auth_name = same.clone());
        (1..=2).for_each(|tid| send(&mut s, conn, tid, &heavy));
    }
    let light = request(&s, pool, "large", vec![Op::Stat.into()]);
    (2..=4).for_each(|tid| send(&mut s, ONE, tid, &light));
    let answered = |s: &Sim, conn| s.links.get(&(0, conn)).map_or(0, |q| q.len());
    let theirs = |s: &Sim| many.clone().map(|conn| answered(s, conn)).collect::<Vec<_>>();
    while answered(&s, ONE) < 3 {
        s.input(0, Input::Again { unread: Default::default(), free_bytes: 1 << 30 });
    }
    let sum = |s: &Sim| theirs(s).iter().sum::<usize>();
    assert!((3..=6).contains(&sum(&s)), "{:?}", theirs(&s));
    while sum(&s) < 11 {
        s.input(0, Input::Again { unread: Default::default(), free_bytes: 1 << 30 });
    }
    // The first had two before there was anything to wait for.
    assert!(theirs(&s).iter().all(|n| *n > 0), "{:?}", theirs(&s));
    for conn in many {
        assert_eq!(answer(&mut s, conn, 2).0, 0);
    }
}

/// The less room there is for answers, the fewer are made before the shell has looked again how much of them
/// was read.
#[test]
fn what_is_answered_at_a_time_follows_what_is_free() {
    let (mut s, pool) = cluster(OsdConfig::default());
    s.connect(ONE, |_| {});
    let m = request(&s, pool, "o", vec![write(&vec![1; 128 << 10])]);
    assert_eq!(ask(&mut s, ONE, 1, &m).0, 0);
    let m = request(&s, pool, "o", vec![read()]);
    (2..=200).for_each(|tid| send(&mut s, ONE, tid, &m));
    let answered = |s: &Sim| s.links.get(&(0, ONE)).map_or(0, |q| q.len());
    let mut before = answered(&s);
    assert_eq!(before, 8, "a slice");
    for (free_kib, answers) in [(1_000_000, 8), (1_536, 6), (1_024, 4), (0, 4)] {
        s.input(0, Input::Again { unread: Default::default(), free_bytes: free_kib << 10 });
        assert_eq!(answered(&s) - before, answers, "{free_kib} KiB are free");
        before = answered(&s);
    }
    // What comes later counts against the same word of the shell.
    let m = request(&s, pool, "o", vec![Op::Stat.into()]);
    send(&mut s, TWO, 1, &m);
    assert_eq!(answered(&s), before);
    assert_eq!(answer(&mut s, ONE, 200).0, 0);
}

/// What is refused before anything was done takes nobody's turn.
#[test]
fn a_refused_request_counts_what_it_did() {
    let (mut s, pool) = cluster(OsdConfig::default());
    s.connect(ONE, |_| {});
    let too_much = request(&s, pool, "o", vec![Op::Stat.into(); 20_000]);
    (1..=5).for_each(|tid| send(&mut s, ONE, tid, &too_much));
    assert_eq!(s.links.get(&(0, ONE)).map_or(0, |q| q.len()), 5, "at once");
    assert_eq!(answer(&mut s, ONE, 5).0, Errno::E2BIG.neg());
}

#[test]
fn what_notifies_hold_has_a_bound_and_goes_with_the_notifier() {
    let (mut s, pool) = cluster(OsdConfig::default());
    s.connect(ONE, |_| {});
    s.connect(TWO, |_| {});
    let watch = Op::Watch { cookie: 1, op: messages::osd::watch_op::WATCH, generation: 0, timeout_s: 600 };
    let m = request(&s, pool, "o", vec![Op::Create.into(), watch.into()]);
    assert_eq!(ask(&mut s, TWO, 1, &m).0, 0);
    let notify = |bytes: usize| {
        let payload = Bytes::from(vec![1; bytes]);
        OsdOp::from(Op::Notify { cookie: 9, timeout_s: u32::MAX, payload })
    };
    let large = request(&s, pool, "o", vec![notify(7 << 20)]);
    for (tid, result) in [(1, 0), (2, 0), (3, Errno::EBUSY.neg())] {
        assert_eq!(ask(&mut s, ONE, tid, &large).0, result, "{tid}");
    }
    let too_large = request(&s, pool, "o", vec![notify(17 << 20)]);
    assert_eq!(ask(&mut s, ONE, 4, &too_large).0, Errno::E2BIG.neg());
    let small = request(&s, pool, "o", vec![notify(10)]);
    assert_eq!(ask(&mut s, TWO, 5, &small).0, 0, "another client");
    s.input(0, Input::Disconnected { conn: ConnId(ONE as u64) });
    s.connect(ONE, |_| {});
    assert_eq!(ask(&mut s, ONE, 6, &large).0, 0);
    let many = request(&s, pool, "o", vec![notify(1); 1025]);
    assert_eq!(ask(&mut s, ONE, 7, &many).0, Errno::E2BIG.neg());
}

#[test]
fn one_client_does_not_fill_an_object_with_watches() {
    let (mut s, pool) = cluster(OsdConfig::default());
    s.connect(ONE, |_| {});
    s.connect(TWO, |_| {});
    let op = messages::osd::watch_op::WATCH;
    let watch = |cookie| -> OsdOp { Op::Watch { cookie, op, generation: 0, timeout_s: u32::MAX }.into() };
    let create = request(&s, pool, "o", vec![Op::Create.into()]);
    assert_eq!(ask(&mut s, ONE, 1, &create).0, 0);
    for cookie in 1..=64 {
        let m = request(&s, pool, "o", vec![watch(cookie)]);
        assert_eq!(ask(&mut s, ONE, 1 + cookie, &m).0, 0, "{cookie}");
    }
    let one_more = request(&s, pool, "o", vec![watch(65)]);
    assert_eq!(ask(&mut s, ONE, 100, &one_more).0, Errno::ENOSPC.neg());
    assert_eq!(ask(&mut s, TWO, 101, &one_more).0, 0, "another client");
    let known = request(&s, pool, "o", vec![watch(64)]);
    assert_eq!(ask(&mut s, ONE, 102, &known).0, 0, "one that is there is no further one");
    let list = request(&s, pool, "o", vec![Op::ListWatchers.into()]);
    let (result, answer) = ask(&mut s, TWO, 103, &list);
    assert_eq!(result, 0);
    let entries = messages::osd::ListWatchersResponse::from_bytes(answer).expect("a list").entries;
    assert_eq!(entries.len(), 65);
    assert!(entries.iter().all(|w| w.timeout_s == 3600), "{entries:?}");
}

/// The number of a request that ran is somebody else's.
#[test]
fn a_client_names_no_request_of_another() {
    let (mut s, pool) = cluster(OsdConfig::default());
    s.connect(ONE, |_| {});
    s.connect(TWO, |_| {});
    let theirs = ReqId { name: types::EntityName::client(TWO.into()), tid: 5, inc: 0 };
    let evil = MOsdOp { explicit_reqid: theirs, ..request(&s, pool, "o", vec![write(b"evil")]) };
    assert_eq!(ask(&mut s, ONE, 1, &evil).0, 0);
    let honest = request(&s, pool, "o", vec![write(b"good")]);
    assert_eq!(ask(&mut s, TWO, 5, &honest).0, 0);
    let look = request(&s, pool, "o", vec![read()]);
    assert_eq!(ask(&mut s, TWO, 6, &look), (0, "good".into()));
}

fn copy(from: PoolId, nspace: &str, name: &str) -> OsdOp {
    let locator = ObjectLocator { nspace: nspace.into(), ..ObjectLocator::pool(from) };
    let args = CopyFromArgs { snap: SnapId::HEAD, ..Default::default() };
    Op::CopyFrom2 { from: CopySource { object: name.into(), locator }, args, truncation: None }.into()
}

#[test]
fn a_copy_needs_the_right_to_read_its_source() {
    let (mut s, pool) = cluster(OsdConfig::default());
    let secret = s.mon.create_pool(1, 1, 1);
    s.settle();
    s.connect(ONE, |_| {});
    let m = request(&s, secret, "s", vec![write(b"secret")]);
    assert_eq!(ask(&mut s, ONE, 1, &m).0, 0);
    let m = request(&s, pool, "mine", vec![write(b"mine")]);
    assert_eq!(ask(&mut s, ONE, 2, &m).0, 0);
    let name = s.mon.map.pool_name(pool).expect("a name").to_owned();
    let caps = cephx::caps::OsdCap::parse(&format!("allow rw pool={name} namespace=\"\"")).expect("caps");
    s.connect(TWO, |peer| peer.caps = caps.clone());
    for (tid, op, result) in [
        (1, copy(secret, "", "s"), Errno::EPERM.neg()),
        (2, copy(pool, "other", "x"), Errno::EPERM.neg()),
        (3, copy(pool, "", "mine"), 0),
        (4, copy(PoolId(99), "", "x"), Errno::ENOENT.neg()),
    ] {
        let m = request(&s, pool, "copy", vec![op]);
        assert_eq!(ask(&mut s, TWO, tid, &m).0, result, "{tid}");
    }
}

pub const MIB: u64 = 1 << 20;

/// A cluster in which clients' requests may hold 64 MiB, with an object `large` of 20 MiB and so many clients
/// from `ONE` on.
pub fn with_a_large_object(device_bytes: u64, clients: i32) -> (Sim, PoolId) {
    let config = OsdConfig { client_message_size_cap: 64 * MIB, ..OsdConfig::default() };
    let mut s = Sim::with_devices(&[device_bytes], 4, config);
    s.until("up", |s| s.mon.map.is_up(0));
    let pool = s.mon.create_pool(1, 1, 1);
    s.settle();
    (0..clients).for_each(|k| s.connect(ONE + k, |_| {}));
    let m = request(&s, pool, "large", vec![write(&vec![7; 20 << 20])]);
    assert_eq!(ask(&mut s, ONE, 1, &m).0, 0);
    (s, pool)
}

/// Copies bring whole objects into memory: those of one client wait for each other, others go on.
#[test]
fn what_copies_fetch_has_a_bound() {
    let (mut s, pool) = with_a_large_object(600 << 20, 2);
    let m = request(&s, pool, "small", vec![write(b"small")]);
    assert_eq!(ask(&mut s, TWO, 1, &m).0, 0);
    let mut most = 0;
    for tid in 10..18 {
        let m = request(&s, pool, &format!("copy {tid}"), vec![copy(pool, "", "large")]);
        send(&mut s, ONE, tid, &m);
        most = held_bytes(&mut s).max(most);
    }
    // The device has written nothing so far.
    for _ in 0..10 {
        s.input(0, Input::Again { unread: Default::default(), free_bytes: 1 << 30 });
        most = held_bytes(&mut s).max(most);
    }
    let m = request(&s, pool, "other", vec![copy(pool, "", "small")]);
    assert_eq!(ask(&mut s, TWO, 2, &m).0, 0);
    let behind = request(&s, pool, "copy 17", vec![read()]);
    send(&mut s, ONE, 20, &behind);
    s.until("all copies", |s| {
        most = held_bytes(s).max(most);
        s.strangers.iter().filter(|m| m.0 == ONE && m.1 >= 10).count() == 9
    });
    // Half of what clients may hold, and one request.
    assert!((32 * MIB..=54 * MIB).contains(&most), "{most}");
    let order: Vec<(i32, u64)> = s.strangers.iter().map(|m| (m.0, m.1)).collect();
    let place = |who| order.iter().position(|m| *m == who);
    assert!(place((TWO, 2)) < place((ONE, 17)), "{order:?}");
    for tid in 10..18 {
        assert_eq!(answer(&mut s, ONE, tid).0, 0, "{tid}");
    }
    assert_eq!(answer(&mut s, ONE, 20), (0, vec![7; 20 << 20].into()), "it waited behind the copy");
    assert_eq!(held_bytes(&mut s), 0);

    let m = request(&s, pool, "too much", vec![copy(pool, "", "large"); 5]);
    assert_eq!(ask(&mut s, ONE, 30, &m).0, Errno::E2BIG.neg());
    // What was not written yet goes with its client.
    for tid in 40..48 {
        let m = request(&s, pool, &format!("copy {tid}"), vec![copy(pool, "", "large")]);
        send(&mut s, ONE, tid, &m);
    }
    s.input(0, Input::Disconnected { conn: ConnId(ONE as u64) });
    s.until("nothing is held", |s| held_bytes(s) == 0);
    let m = request(&s, pool, "copy 47", vec![Op::Stat.into()]);
    assert_eq!(ask(&mut s, TWO, 3, &m).0, Errno::ENOENT.neg());
}

fn addr(text: &str) -> EntityAddr {
    EntityAddr::v2(text.parse().expect("an address"), 7)
}

/// A client may state any address; its socket tells where it is.
#[test]
fn networks_and_blocklists_hold_for_where_a_client_is() {
    let (mut s, pool) = cluster(OsdConfig::default());
    let caps = cephx::caps::OsdCap::parse("allow * network 10.1.0.0/16").expect("caps");
    let m = request(&s, pool, "o", vec![write(b"x")]);
    let mut tid = 0;
    let mut from = |s: &mut Sim, ip: &str, stated: &str, caps: &cephx::caps::OsdCap| {
        tid += 1;
        s.connect(ONE, |peer| {
            (peer.addr, peer.ip) = (addr(stated), Some(ip.parse().expect("an IP address")));
            peer.caps = caps.clone();
        });
        ask(s, ONE, tid, &m).0
    };
    assert_eq!(from(&mut s, "10.1.2.3", "10.1.2.3:0", &caps), 0);
    assert_eq!(from(&mut s, "10.2.2.3", "10.1.2.3:0", &caps), Errno::EPERM.neg());
    assert_eq!(from(&mut s, "10.2.2.3", "10.2.2.3:0", &caps), Errno::EPERM.neg());
    let all = cephx::caps::OsdCap::allow_all();
    assert_eq!(from(&mut s, "10.2.2.3", "10.3.2.3:0", &all), 0);
    s.mon.change(|inc, _| {
        let host = EntityAddr { kind: types::AddrKind::Any, nonce: 0, ..addr("10.2.2.3:0") };
        inc.new_blocklist.insert(host, Utime::new(900_000, 0));
        let range = EntityAddr { kind: types::AddrKind::Any, nonce: 16, ..addr("10.4.0.0:0") };
        inc.new_range_blocklist.insert(range, Utime::new(900_000, 0));
    });
    s.settle();
    let barred = Errno::ESHUTDOWN.neg();
    assert_eq!(from(&mut s, "10.2.2.3", "10.3.2.3:0", &all), barred, "it states another host");
    assert_eq!(from(&mut s, "10.2.2.4", "10.3.2.3:0", &all), 0);
    assert_eq!(from(&mut s, "10.4.9.9", "10.4.9.9:0", &all), barred, "a range");
    assert_eq!(from(&mut s, "10.4.9.9", "10.3.2.3:0", &all), barred, "a range, and it states another host");
}

/// Copies that are fetched and cannot be written yet count as those that are being fetched.
#[test]
fn what_many_entities_fetched_has_a_bound() {
    let (mut s, pool) = with_a_large_object(2000 << 20, 8);
    for k in 0..8 {
        let m = request(&s, pool, &format!("copy {k}"), vec![copy(pool, "", "large")]);
        send(&mut s, ONE + k, 10, &m);
        // The device writes nothing meanwhile.
        for _ in 0..10 {
            s.input(0, Input::Again { unread: Default::default(), free_bytes: 1 << 30 });
        }
    }
    // The whole is half of the cap, a piece 8 MiB. Each entity holds one now, and none waits for another for
    // ever.
    let held = held_bytes(&mut s);
    assert!(held <= 32 * MIB + 8 * 8 * MIB, "{} MiB", held / MIB);
    (0..8).for_each(|k| assert_eq!(answer(&mut s, ONE + k, 10).0, 0));
}

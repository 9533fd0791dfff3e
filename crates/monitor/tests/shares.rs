//! What one client can make a monitor hold, and that others do not feel it; and that open sessions follow the key database.

use crate::common;

use std::collections::BTreeMap;

use bytes::Bytes;
use cephx::{AuthClient, CryptoKey};
use common::{FSID, World, addr};
use messages::Message;
use messages::log::{LogEntry, MLog};
use messages::mgr::{CommandDesc, MMgrBeacon};
use messages::mon::{MMonCommand, MMonGetVersion, MMonSubscribe, SubscribeItem};
use monitor::{CON_MODE_CRC, Input, Output, QuorumView};
use types::{AddrVec, AuthName, ConnId, EntityName, EntityType, SeededEntropy};

/// A client of its own name.
fn client(w: &mut World, conn: u64, name: &str) -> ConnId {
    w.connect(conn, name, 4_000 + conn as i64, &format!("v2:127.0.0.1:0/{conn}"))
}

fn command(cmd: &str, input: Bytes) -> MMonCommand {
    MMonCommand { fsid: FSID, cmd: vec![cmd.to_owned()], input, ..MMonCommand::default() }
}

/// Codes of the answers to commands, by connection.
fn codes(w: &mut World, of: ConnId) -> Vec<i32> {
    let ack = |m: Message| match m {
        Message::MonCommandAck(ack) => Some(ack.result),
        _ => None,
    };
    w.sent(of).into_iter().filter_map(ack).collect()
}

const EBUSY: i32 = -16;

#[test]
fn who_asks_for_too_much_is_refused_and_nobody_else() {
    let mut w = World::new();
    let (greedy, modest) = (client(&mut w, 10, "client.a"), client(&mut w, 11, "client.b"));
    let second = client(&mut w, 12, "client.a");
    w.bring(modest, command(r#"{"prefix":"config-key set","key":"k","val":"v"}"#, Bytes::new()).into());
    assert_eq!(w.log.len(), 1, "a proposal is under way");
    let set = r#"{"prefix":"osd set","key":"noscrub"}"#;
    for _ in 0..1_100 {
        w.bring(greedy, command(set, Bytes::new()).into());
    }
    w.bring(second, command(set, Bytes::new()).into());
    assert_eq!(codes(&mut w, greedy), [EBUSY; 100]);
    assert_eq!(codes(&mut w, second), [EBUSY], "sessions of one entity have one share");
    w.bring(modest, command(set, Bytes::new()).into());
    w.run();
    assert_eq!(codes(&mut w, modest), [0, 0]);
    assert_eq!(codes(&mut w, greedy).len(), 1_000);
    w.send(second, command(set, Bytes::new()));
    assert_eq!(codes(&mut w, second), [0], "what was answered does not count");
}

#[test]
fn bytes_count_as_well() {
    let mut w = World::new();
    let (greedy, modest) = (client(&mut w, 10, "client.a"), client(&mut w, 11, "client.b"));
    w.bring(modest, command(r#"{"prefix":"config-key set","key":"k","val":"v"}"#, Bytes::new()).into());
    let large = Bytes::from(vec![0; 10 << 20]);
    for _ in 0..5 {
        w.bring(greedy, command(r#"{"prefix":"osd set","key":"noscrub"}"#, large.clone()).into());
    }
    assert_eq!(codes(&mut w, greedy), [EBUSY; 2]);
}

#[test]
fn questions_that_wait_for_a_quorum_have_shares_too() {
    let mut w = World::new();
    let (greedy, modest) = (client(&mut w, 10, "client.a"), client(&mut w, 11, "client.b"));
    w.input(Input::Quorum(QuorumView { monitors: 3, ..QuorumView::alone() }));
    w.take();
    let question = |handle| Message::from(MMonGetVersion { handle, what: "osdmap".into() });
    for handle in 0..1_001 {
        w.bring(greedy, question(handle));
    }
    w.bring(modest, question(1));
    let out = w.take();
    let closed: Vec<&Output> = out.iter().filter(|o| matches!(o, Output::Close { .. })).collect();
    assert_eq!(closed, [&Output::Close { conn: greedy }]);
    // The first one is asked for, the others with the next round.
    let ctx = out.iter().find_map(|o| match o {
        Output::Read { ctx } => Some(*ctx),
        _ => None,
    });
    let ctx = ctx.expect("it asks");
    w.input(Input::Fresh { ctx });
    w.input(Input::Fresh { ctx: ctx + 1 });
    let told = |o: &&Output| matches!(o, Output::Send { conn, .. } if *conn == modest);
    assert_eq!(w.take().iter().filter(told).count(), 1);
}

#[test]
fn names_of_subscriptions_are_few_and_short() {
    let mut w = World::new();
    let conn = client(&mut w, 10, "client.a");
    let names = |names: Vec<String>| {
        let item = SubscribeItem { start: 0, flags: 0 };
        let what: BTreeMap<String, SubscribeItem> = names.into_iter().map(|n| (n, item)).collect();
        MMonSubscribe { what, ..MMonSubscribe::default() }
    };
    let sent = |w: &mut World| w.sent(conn).iter().filter(|m| matches!(m, Message::KvData(_))).count();
    w.send(conn, names(vec![format!("kv:{}", "k".repeat(300))]));
    assert_eq!(sent(&mut w), 0);
    w.send(conn, names((0..100).map(|i| format!("kv:{i:03}")).collect()));
    assert_eq!(sent(&mut w), 64);
}

fn lines(from: u64, to: u64, line: impl Fn(u64) -> LogEntry) -> MLog {
    let entry = |seq| LogEntry { seq, ..line(seq) };
    MLog { fsid: FSID, entries: (from..to).map(entry).collect(), ..MLog::default() }
}

fn kept(w: &mut World, conn: ConnId) -> Option<u64> {
    w.sent(conn).into_iter().find_map(|m| match m {
        Message::LogAck(ack) => Some(ack.last),
        _ => None,
    })
}

#[test]
fn nobody_fills_the_log_alone() {
    let mut w = World::new();
    let (loud, other) = (client(&mut w, 10, "client.a"), client(&mut w, 11, "client.b"));
    let line = |seq| LogEntry { channel: format!("channel-{seq}"), text: "x".into(), ..LogEntry::default() };
    w.send(loud, lines(1, 1_500, line));
    assert_eq!(kept(&mut w, loud), Some(1_000), "the rest comes again");
    assert!(w.mon.state().log.channels.len() <= 16, "{}", w.mon.state().log.channels.len());
    w.send(loud, lines(1_001, 1_500, line));
    assert_eq!(kept(&mut w, loud), None);
    w.send(other, lines(1, 2, line));
    assert_eq!(kept(&mut w, other), Some(1));
    w.tick(5);
    w.send(loud, lines(1_001, 1_500, line));
    assert_eq!(kept(&mut w, loud), Some(1_499));
    // Long lines are cut, between characters; names that nobody has do not get in.
    w.tick(6);
    let long =
        |_| LogEntry { channel: "cluster".into(), text: "\u{e4}".repeat(5_000), ..LogEntry::default() };
    w.send(other, lines(7, 8, long));
    assert_eq!(kept(&mut w, other), Some(7));
    let cut = |w: &World| w.mon.state().log.channels["cluster"].back().map(|(_, e)| e.text.len());
    assert_eq!(cut(&w), Some(4_096));
    let named =
        |_| LogEntry { name: AuthName::new(EntityType::Client, "n".repeat(20_000)), ..LogEntry::default() };
    let before = w.mon.state().log.seq;
    w.send(other, lines(8, 9, named));
    assert_eq!((kept(&mut w, other), w.mon.state().log.seq), (Some(8), before));
}

#[test]
fn commands_at_the_manager_have_shares() {
    let mut w = World::new();
    let (greedy, modest) = (client(&mut w, 10, "client.a"), client(&mut w, 11, "client.b"));
    let mgr = w.connect(50, "mgr.x", 4_200, "v2:127.0.0.1:6790/1");
    let dump = CommandDesc {
        cmdstring: "pg dump".to_owned(),
        module: "pg".to_owned(),
        req_perms: "r".to_owned(),
        ..CommandDesc::default()
    };
    let beacon = MMgrBeacon {
        gid: w.mon.session_id(mgr).expect("it is logged in"),
        name: "x".to_owned(),
        addrs: AddrVec::single(addr("v2:127.0.0.1:6790/1")),
        available: true,
        fsid: FSID,
        metadata: [("loligo".to_owned(), "0.1".to_owned())].into(),
        commands: vec![dump],
        ..MMgrBeacon::default()
    };
    w.send(mgr, beacon);
    w.take();
    for _ in 0..70 {
        w.send(greedy, command(r#"{"prefix":"pg dump"}"#, Bytes::new()));
    }
    w.send(modest, command(r#"{"prefix":"pg dump"}"#, Bytes::new()));
    assert_eq!(codes(&mut w, greedy), [EBUSY; 6]);
    assert!(codes(&mut w, modest).is_empty());
    let asked = w.sent(mgr).iter().filter(|m| matches!(m, Message::Command(_))).count();
    assert_eq!(asked, 65);
}

/// Logs in with a key of cephx; false when it is refused.
fn login(w: &mut World, conn: u64, name: &str, key: &CryptoKey) -> bool {
    let (conn, name) = (ConnId(conn), AuthName::parse(name).expect("a name"));
    let mut client = AuthClient::new(name, key.clone(), &[EntityType::Mon]);
    w.input(Input::AuthRequest {
        conn,
        peer_type: EntityType::Client,
        method: cephx::METHOD_CEPHX,
        preferred_modes: vec![CON_MODE_CRC],
        payload: client.start_login(),
        peer_addr: addr("v2:127.0.0.1:0/5"),
    });
    let challenge = w.take().into_iter().find_map(|o| match o {
        Output::AuthMore { payload, .. } => Some(payload),
        _ => None,
    });
    let mut seed = SeededEntropy(3);
    let mut fill = |b: &mut [u8]| types::Entropy::fill(&mut seed, b);
    let answer = client.handle_challenge(&challenge.expect("a challenge"), w.now.wall, &mut fill);
    w.input(Input::AuthMore { conn, payload: answer.expect("an answer") });
    let done = w.take().iter().any(|o| matches!(o, Output::AuthDone { .. }));
    let peer = EntityName::new(EntityType::Client, 9);
    let addrs = AddrVec::single(addr("v2:127.0.0.1:0/5"));
    w.input(Input::Connected { conn, peer, addrs, features: types::features::PACIFIC });
    done
}

#[test]
fn changes_of_keys_reach_open_sessions() {
    let mut w = World::new();
    let admin = w.admin();
    let run = |w: &mut World, cmd: &str| {
        let done = w.command(admin, cmd);
        assert_eq!(done.0, 0, "{cmd}: {done:?}");
        done.2
    };
    let make = r#"{"prefix":"auth get-or-create-key","entity":"client.x","caps":["mon","allow rw"]}"#;
    let text = run(&mut w, make);
    let key = CryptoKey::from_base64(text.trim()).expect("a key");
    assert!(login(&mut w, 30, "client.x", &key));
    let conn = ConnId(30);
    let set = r#"{"prefix":"osd set","key":"noscrub"}"#;
    assert_eq!(w.command(conn, set).0, 0);
    run(&mut w, r#"{"prefix":"auth caps","entity":"client.x","caps":["mon","allow r"]}"#);
    assert_eq!(w.command(conn, set).0, -13, "less is less at once");
    run(&mut w, r#"{"prefix":"auth caps","entity":"client.x","caps":["mon","allow rw"]}"#);
    assert_eq!(w.command(conn, set).0, 0, "and more is more");
    w.take();
    run(&mut w, r#"{"prefix":"auth rm","entity":"client.x"}"#);
    assert!(w.take().contains(&Output::Close { conn }), "who is no more is out");
    let ask = |w: &mut World| {
        w.send(conn, command(set, Bytes::new()));
        codes(w, conn)
    };
    assert_eq!(ask(&mut w), [-13], "until the connection ends, too");
    // Under another key it is somebody else.
    run(&mut w, make);
    assert!(!login(&mut w, 31, "client.x", &key));
    assert_eq!(ask(&mut w), [-13]);
    // Nobody else was touched.
    assert_eq!(w.command(admin, set).0, 0);
}

//! What must not work: commands without the capability, malformed ones, messages in somebody else's name.

use crate::common;

use bytes::Bytes;
use cephx::{AuthClient, CryptoKey};
use common::{FSID, World, addr};
use messages::mon::{MMonCommand, MPoolOp, pool_op};
use messages::{Message, log::MLog};
use monitor::{CON_MODE_CRC, Input, Output};
use types::{AddrVec, AuthName, ConnId, EntityName, EntityType, SeededEntropy};

/// Makes an entity with these capabilities and logs it in.
fn client(w: &mut World, admin: ConnId, mon_caps: &str) -> ConnId {
    let n = w.mon.state().auth.entities.len() as u64;
    let name = format!("client.c{n}");
    let caps = serde_json::json!({"prefix":"auth get-or-create-key","entity":name,"caps":["mon",mon_caps]});
    let (code, outs, key) = w.command(admin, &caps.to_string());
    assert_eq!((code, outs.as_str()), (0, ""));
    let key = CryptoKey::from_base64(key.trim()).expect("a key");
    let conn = ConnId(1_000 + n);
    let mut client = AuthClient::new(AuthName::parse(&name).expect("a name"), key, &[EntityType::Mon]);
    w.input(Input::AuthRequest {
        conn,
        peer_type: EntityType::Client,
        method: cephx::METHOD_CEPHX,
        preferred_modes: vec![CON_MODE_CRC],
        payload: client.start_login(),
        peer_addr: addr("v2:127.0.0.1:0/5"),
    });
    let Some(Output::AuthMore { payload, .. }) = w.take().pop() else { panic!("a challenge") };
    let mut seed = SeededEntropy(3);
    let mut fill = |b: &mut [u8]| types::Entropy::fill(&mut seed, b);
    let answer = client.handle_challenge(&payload, w.now.wall, &mut fill).expect("an answer");
    w.input(Input::AuthMore { conn, payload: answer });
    assert!(matches!(w.take().pop(), Some(Output::AuthDone { .. })));
    let peer = EntityName::client(-1);
    w.input(Input::Connected { conn, peer, addrs: AddrVec::default(), features: types::features::PACIFIC });
    conn
}

const READ: &str = r#"{"prefix":"osd lspools"}"#;
const WRITE: &str = r#"{"prefix":"osd set","key":"noout"}"#;
const KEYS: &str = r#"{"prefix":"auth ls"}"#;
const STORE: &str = r#"{"prefix":"config-key set","key":"a","val":"b"}"#;
const STORE_READ: &str = r#"{"prefix":"config-key get","key":"a"}"#;

#[test]
fn commands_obey_capabilities() {
    let mut w = World::new();
    let admin = w.admin();
    let (yes, no) = (true, false);
    let table = [
        ("allow *", [yes, yes, yes, yes, yes]),
        ("allow r", [yes, no, no, no, no]),
        ("allow rw", [yes, yes, no, no, no]),
        ("allow rwx", [yes, yes, yes, no, no]),
        ("profile osd", [yes, yes, no, no, no]),
        ("profile role-definer", [no, no, yes, no, no]),
        ("allow command \"osd set\" with key=noout", [no, yes, no, no, no]),
        ("allow command \"osd set\" with key=noup", [no, no, no, no, no]),
        ("allow service osd r", [yes, no, no, no, no]),
    ];
    for (caps, want) in table {
        let conn = client(&mut w, admin, caps);
        let got = [READ, WRITE, KEYS, STORE, STORE_READ].map(|cmd| {
            let (code, outs, _) = w.command(conn, cmd);
            assert_eq!(code == -13, outs == "access denied", "{caps}: {cmd}");
            code != -13
        });
        assert_eq!(got, want, "{caps}");
    }
}

#[test]
fn malformed_commands_are_answered_and_propose_nothing() {
    let mut w = World::new();
    let conn = w.admin();
    let (index, deep) = (w.index, format!("{}1{}", "[".repeat(64), "]".repeat(64)));
    let long = format!(r#"{{"prefix":"config-key set","key":"k","val":"{}"}}"#, "x".repeat(10 << 20));
    for cmd in [
        "",
        "{",
        "{}",
        "[]",
        "nonsense",
        r#"{"prefix":5}"#,
        r#"{"prefix":null}"#,
        r#"{"prefix":["osd","set"]}"#,
        r#"{"prefix":"osd"}"#,
        r#"{"prefix":"no such command"}"#,
        r#"{"prefix":"osd pool create"}"#,
        r#"{"prefix":"osd pool create","pool":7}"#,
        r#"{"prefix":"osd pool create","pool":"p","pg_num":"many"}"#,
        r#"{"prefix":"osd reweight","id":0,"weight":NaN}"#,
        r#"{"prefix":"osd reweight","id":0,"weight":1e400}"#,
        r#"{"prefix":"osd in","ids":{"a":1}}"#,
        &format!(r#"{{"prefix":"osd in","ids":{deep}}}"#),
        &deep,
        &long,
    ] {
        let ack = w.raw_command(conn, cmd, Bytes::new());
        assert_eq!(ack.result, -22, "{}", cmd.get(..80).unwrap_or(cmd));
        assert!(!ack.status.is_empty() && ack.status.len() < 2_000 && ack.cmd.concat().len() <= 1 << 20);
    }
    assert_eq!(w.index, index);
    let msg = MMonCommand { fsid: types::Fsid([1; 16]), cmd: vec![WRITE.into()], ..MMonCommand::default() };
    w.send(conn, msg);
    let Some(Message::MonCommandAck(ack)) = w.sent(conn).pop() else { panic!("an answer") };
    assert_eq!((ack.result, ack.status.as_str()), (-1, "wrong fsid"));
    w.send(conn, MMonCommand { fsid: FSID, ..MMonCommand::default() });
    let Some(Message::MonCommandAck(ack)) = w.sent(conn).pop() else { panic!("an answer") };
    assert_eq!((ack.result, ack.status.as_str()), (-22, "no command specified"));
    assert_eq!(w.index, index);
}

#[test]
fn messages_obey_capabilities() {
    let mut w = World::new();
    let admin = w.admin();
    let reader = client(&mut w, admin, "allow r");
    let index = w.index;
    let create =
        MPoolOp { fsid: FSID, op: pool_op::CREATE, name: "p".into(), crush_rule: -1, ..MPoolOp::default() };
    w.send(reader, create.clone());
    let Some(Message::PoolOpReply(reply)) = w.sent(reader).pop() else { panic!("an answer") };
    assert_eq!(reply.result, -1);
    w.send(reader, MLog { fsid: FSID, entries: vec![Default::default()], ..MLog::default() });
    w.send(reader, messages::osd::MOsdBoot::default());
    assert_eq!((w.index, w.sent(reader)), (index, Vec::new()));
    // Of this one a line is logged, once.
    for _ in 0..2 {
        let beacon = messages::mgr::MMgrBeacon { fsid: FSID, gid: 1, available: true, ..Default::default() };
        w.send(reader, beacon);
    }
    assert_eq!((w.index, w.sent(reader)), (index + 1, Vec::new()));
    assert_eq!(w.mon.state().mgr.active, None);
    w.send(admin, create);
    let Some(Message::PoolOpReply(reply)) = w.sent(admin).pop() else { panic!("an answer") };
    assert_eq!((reply.result, w.mon.state().osdmap().pools.len()), (0, 1));
}

#[test]
fn snapshots_of_a_client_s_own_need_the_right_to_write_there() {
    let mut w = World::new();
    let admin = w.admin();
    w.command(admin, r#"{"prefix":"osd pool create","pool":"p"}"#);
    let plain = client(&mut w, admin, "allow r");
    let rbd = client(&mut w, admin, "profile rbd");
    let snap = MPoolOp { fsid: FSID, pool: 1, op: pool_op::CREATE_UNMANAGED_SNAP, ..MPoolOp::default() };
    w.send(plain, snap.clone());
    let Some(Message::PoolOpReply(reply)) = w.sent(plain).pop() else { panic!("an answer") };
    assert_eq!(reply.result, -1);
    let caps = r#"["mon","profile rbd","osd","profile rbd pool=p"]"#;
    let name =
        w.mon.state().auth.entities.keys().rfind(|n| n.id.starts_with('c')).expect("made above").to_string();
    w.command(admin, &format!(r#"{{"prefix":"auth caps","entity":"{name}","caps":{caps}}}"#));
    w.send(rbd, snap);
    let Some(Message::PoolOpReply(reply)) = w.sent(rbd).pop() else { panic!("an answer") };
    assert_eq!(reply.result, 0);
}

/// Each is a step of the OSD map, and while a PG is unclean all steps are kept.
#[test]
fn a_client_makes_the_history_of_maps_no_larger_than_it_may_be() {
    let mut w = World::new();
    let admin = w.admin();
    w.command(admin, r#"{"prefix":"osd pool create","pool":"p"}"#);
    let caps = r#"["mon","allow r","osd","allow rw pool=p"]"#;
    let writer = client(&mut w, admin, "allow r");
    let name =
        w.mon.state().auth.entities.keys().rfind(|n| n.id.starts_with('c')).expect("made above").to_string();
    w.command(admin, &format!(r#"{{"prefix":"auth caps","entity":"{name}","caps":{caps}}}"#));
    let warn_at = w.mon.state().osds.kept_bytes() + 10_000;
    let option = |value: usize| {
        format!(r#"{{"prefix":"config set","who":"mon","name":"mon_data_size_warn","value":"{value}"}}"#)
    };
    w.command(admin, &option(warn_at));
    let make = MPoolOp { fsid: FSID, pool: 1, op: pool_op::CREATE_UNMANAGED_SNAP, ..MPoolOp::default() };
    let ask = |w: &mut World, conn, op: &MPoolOp| {
        w.send(conn, op.clone());
        match w.sent(conn).pop() {
            Some(Message::PoolOpReply(reply)) => reply.result,
            other => panic!("{other:?}"),
        }
    };
    let mut made = 0;
    while ask(&mut w, writer, &make) == 0 {
        made += 1;
        assert!(made < 10_000, "{} bytes", w.mon.state().osds.kept_bytes());
    }
    let kept = w.mon.state().osds.kept_bytes();
    assert!((warn_at..warn_at * 2).contains(&kept), "{made} snapshots, {kept} bytes");
    let epoch = w.mon.state().osdmap().epoch;
    let remove = MPoolOp { op: pool_op::DELETE_UNMANAGED_SNAP, snap: types::SnapId(1), ..make.clone() };
    for op in [&make, &remove] {
        assert_eq!(ask(&mut w, writer, op), types::Errno::ENOSPC.neg());
    }
    // Nor does it by shutting out others.
    let rbd = client(&mut w, admin, "profile rbd");
    let shut_out = |w: &mut World, conn, nonce: u32| {
        let entry = format!("10.0.0.1:0/{nonce}");
        let cmd = format!(r#"{{"prefix":"osd blocklist","blocklistop":"add","addr":"{entry}"}}"#);
        w.command(conn, &cmd).0
    };
    assert_eq!(shut_out(&mut w, rbd, 1), types::Errno::ENOSPC.neg());
    assert_eq!(w.mon.state().osdmap().epoch, epoch);
    w.tick(5);
    let (_, _, health) = w.command(admin, r#"{"prefix":"health","detail":"detail"}"#);
    assert!(health.contains("clients can make and remove no snapshots until PGs are clean"), "{health}");
    // An operator's work goes on, and so does a client's when there is room again.
    assert_eq!(ask(&mut w, admin, &remove), 0);
    assert_eq!(shut_out(&mut w, admin, 2), 0);
    w.command(admin, &option(warn_at * 2));
    assert_eq!(shut_out(&mut w, rbd, 3), 0);
    assert_eq!(ask(&mut w, writer, &make), 0);
}

#[test]
fn names_and_addresses_that_would_mislead_are_refused() {
    let mut w = World::new();
    let admin = w.admin();
    w.command(admin, r#"{"prefix":"osd pool create","pool":"p"}"#);
    let state = |w: &World| {
        let state = w.mon.state();
        (state.osdmap().epoch, state.monmap.epoch, state.auth.entities.len())
    };
    let before = state(&w);
    for line in [
        r#"{"prefix":"osd pool create","pool":"a\u0000b"}"#,
        r#"{"prefix":"osd pool rename","srcpool":"p","destpool":"a\nb"}"#,
        r#"{"prefix":"auth add","entity":"client.a\n[client.b]","caps":["mon","allow *"]}"#,
        r#"{"prefix":"auth get-or-create","entity":"client.a\r","caps":["mon","allow r"]}"#,
        r#"{"prefix":"auth add","entity":"client.a","caps":["osd","allow rw pool='a\u0007'"]}"#,
        r#"{"prefix":"mon add","name":"a b","addr":"10.0.0.1"}"#,
        r#"{"prefix":"mon add","name":"","addr":"10.0.0.1"}"#,
        r#"{"prefix":"mon add","name":"b","addr":"0.0.0.0:0"}"#,
        r#"{"prefix":"mon add","name":"b","addr":"[::]:3300"}"#,
        r#"{"prefix":"mon add","name":"b","addr":"224.0.0.1:3300"}"#,
    ] {
        let (code, said, _) = w.command(admin, line);
        assert_eq!(code, -22, "{line}: {said}");
        assert!(!said.is_empty() && !said.contains(char::is_control), "{line}: {said:?}");
    }
    assert_eq!(state(&w), before);
    // What an earlier release let in can be taken out.
    let (code, said, _) = w.command(admin, r#"{"prefix":"auth rm","entity":"client.a\n[client.b]"}"#);
    assert_eq!(code, 0, "{said}");
    // A line break between words of capabilities is a blank: in a keyring it would end the value.
    let line = r#"{"prefix":"auth add","entity":"client.a","caps":["mon","allow r,\n\tallow command df"]}"#;
    assert_eq!(w.command(admin, line).0, 0);
    let auth = &w.mon.state().auth;
    let kept = auth.entities.iter().find(|(n, _)| n.id == "a").map(|(_, a)| a.caps["mon"].clone());
    assert_eq!(kept.as_deref(), Some("allow r,  allow command df"));
}

/// A bootstrap key may give what its profile lists. What a signature does not know once stood in for what the handler used.
#[test]
fn bootstrap_keys_make_no_administrators() {
    let mut w = World::new();
    let admin = w.admin();
    let conn = client(&mut w, admin, "allow profile bootstrap-rbd");
    let all = r#"["mon","allow *","osd","allow *","mgr","allow *"]"#;
    let fine = r#"["mon","profile rbd","osd","profile rbd pool=p"]"#;
    let beside = r#""caps_mon":"profile rbd","caps_osd":"profile rbd""#;
    for (caps, more, code) in [
        (all, format!(",{beside}"), -13),
        (all, String::new(), -13),
        // As the single text that a list of one would be, and as nothing at all.
        (r#""mon allow *""#, format!(",{beside}"), -13),
        ("[]", format!(",{beside}"), -13),
        (r#"["mon","profile rbd","osd","profile rbd","mgr","allow *"]"#, String::new(), -13),
        (r#"["mon","profile rbd","osd","profile rbd; allow *"]"#, String::new(), -13),
        // Of two texts for one service the last counts, for the check and for the key.
        (r#"["mon","profile rbd","osd","profile rbd","mon","allow *"]"#, String::new(), -13),
        // An odd word is refused as it was: the pairs before it are allowed.
        (r#"["mon","profile rbd","osd","profile rbd","mon"]"#, String::new(), -22),
        (fine, String::new(), 0),
    ] {
        for prefix in ["auth get-or-create", "auth get-or-create-key"] {
            let cmd = format!(r#"{{"prefix":"{prefix}","entity":"client.evil","caps":{caps}{more}}}"#);
            let code = if code == 0 && prefix.ends_with("key") { -13 } else { code };
            let code = if code == -22 && prefix.ends_with("key") { -13 } else { code };
            assert_eq!(w.command(conn, &cmd).0, code, "{cmd}");
        }
        let made = w.mon.state().auth.entities.keys().any(|name| name.id == "evil");
        assert_eq!(made, code == 0, "{caps}");
    }
}

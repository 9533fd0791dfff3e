//! Logins, capabilities, subscriptions and versions of a lone monitor.

use crate::common;

use cephx::{AuthClient, CryptoKey};
use codec::Decode;
use common::{FSID, World, addr, at, genesis, settings};
use messages::Message;
use messages::mon::{MMonCommand, MMonGetVersion, MMonSubscribe, SubscribeItem};
use monitor::{CON_MODE_SECURE, Input, Monitor, Output};
use types::{AuthName, ConnId, EntityType, SeededEntropy, Utime};

#[test]
fn a_global_id_is_used_up_by_a_proof_only() {
    let mut w = World::new();
    let key = || CryptoKey::new([2; 16], Utime::ZERO);
    let id_of = |w: &mut World, conn| match login(w, ConnId(conn), "client.admin", key()) {
        Output::AuthDone { global_id, name, .. } => {
            assert_eq!(name.to_string(), "client.admin");
            global_id.0
        }
        other => panic!("logged in, not {other:?}"),
    };
    let first = id_of(&mut w, 1);
    for conn in 2..30_000 {
        let name = AuthName::parse("client.admin").expect("a name");
        let mut client = AuthClient::new(name, key(), &[EntityType::Mon]);
        w.input(Input::AuthRequest {
            conn: ConnId(conn),
            peer_type: EntityType::Client,
            method: cephx::METHOD_CEPHX,
            preferred_modes: vec![CON_MODE_SECURE],
            payload: client.start_login(),
            peer_addr: addr("v2:127.0.0.1:0/5"),
        });
        w.input(Input::Disconnected { conn: ConnId(conn) });
    }
    w.take();
    assert!(matches!(
        login(&mut w, ConnId(30_000), "client.admin", CryptoKey::new([3; 16], Utime::ZERO)),
        Output::AuthBad { .. }
    ));
    assert_eq!(id_of(&mut w, 30_001), first + 1);
}

/// What a monitor without authentication says to these modes.
fn without_authentication(modes: Vec<u32>) -> Output {
    let mut w = World::new();
    let name = AuthName::parse("client.admin").expect("a name");
    w.input(Input::AuthRequest {
        conn: ConnId(1),
        peer_type: EntityType::Client,
        method: cephx::METHOD_NONE,
        preferred_modes: modes,
        payload: cephx::none_login_request(&name, types::GlobalId(0)),
        peer_addr: addr("v2:127.0.0.1:0/5"),
    });
    w.run();
    w.take().pop().expect("an answer")
}

#[test]
fn without_a_key_there_is_no_secure_mode() {
    match without_authentication(vec![CON_MODE_SECURE]) {
        Output::AuthBad { refusal, .. } => {
            assert_eq!(refusal.errno, types::Errno::EOPNOTSUPP);
            assert_eq!(refusal.allowed_modes, [monitor::CON_MODE_CRC]);
        }
        other => panic!("refused, not {other:?}"),
    }
    let both = without_authentication(vec![CON_MODE_SECURE, monitor::CON_MODE_CRC]);
    assert!(matches!(both, Output::AuthDone { con_mode: monitor::CON_MODE_CRC, .. }), "{both:?}");
}

fn subscribe(what: &[(&str, u64, u8)]) -> MMonSubscribe {
    let what = what
        .iter()
        .map(|(n, start, flags)| ((*n).to_owned(), SubscribeItem { start: *start, flags: *flags }));
    MMonSubscribe { what: what.collect(), ..MMonSubscribe::default() }
}

/// One cephx login; gives the output that ends it.
fn login(w: &mut World, conn: ConnId, name: &str, key: CryptoKey) -> Output {
    let name = AuthName::parse(name).expect("a name");
    let mut client = AuthClient::new(name, key, &[EntityType::Mon, EntityType::Osd]);
    w.input(Input::AuthRequest {
        conn,
        peer_type: EntityType::Client,
        method: cephx::METHOD_CEPHX,
        preferred_modes: vec![CON_MODE_SECURE],
        payload: client.start_login(),
        peer_addr: addr("v2:127.0.0.1:0/5"),
    });
    let challenge = match w.take().as_slice() {
        [Output::AuthMore { payload, .. }] => payload.clone(),
        other => panic!("a challenge, not {other:?}"),
    };
    let mut seed = SeededEntropy(3);
    let mut fill = |b: &mut [u8]| types::Entropy::fill(&mut seed, b);
    let answer = client.handle_challenge(&challenge, w.now.wall, &mut fill).expect("an answer");
    w.input(Input::AuthMore { conn, payload: answer });
    let last = w.take().pop().expect("an outcome");
    if let Output::AuthDone { global_id, payload, connection_secret, .. } = &last {
        let shared = client.handle_done(*global_id, payload, w.now.wall).expect("tickets");
        assert_eq!((&shared.connection_secret[..], connection_secret.len()), (&connection_secret[..], 64));
        let shown = format!("{last:?}");
        assert!(shown.contains("connection_secret: Secret(64 bytes)"), "{shown}");
        assert!(!shown.contains(&format!("{:?}", shared.connection_secret)), "{shown}");
    }
    last
}

#[test]
fn the_right_key_logs_in_and_the_wrong_one_does_not() {
    let mut w = World::new();
    let right = CryptoKey::new([2; 16], Utime::ZERO);
    assert!(matches!(login(&mut w, ConnId(1), "client.admin", right.clone()), Output::AuthDone { .. }));
    let wrong = CryptoKey::new([3; 16], Utime::ZERO);
    for (conn, name, key) in [(2, "client.admin", wrong), (3, "client.nobody", right)] {
        match login(&mut w, ConnId(conn), name, key) {
            Output::AuthBad { refusal, .. } => assert_eq!(refusal.errno, types::Errno::EACCES),
            other => panic!("refused, not {other:?}"),
        }
    }
}

#[test]
fn osd_maps_are_given_by_epoch() {
    use messages::osd::MMonGetOsdMap;
    let mut w = World::new();
    w.admin();
    common::boot_osd(&mut w, 0);
    let osd = w.osd(0);
    w.take();
    let newest = w.mon.state().osdmap().clone();
    let before = newest.epoch.prev();
    let ask = MMonGetOsdMap { full_first: before, full_last: newest.epoch, ..MMonGetOsdMap::default() };
    let ask = MMonGetOsdMap { inc_first: newest.epoch, inc_last: types::Epoch(u32::MAX), ..ask };
    w.send(osd, ask);
    let sent = w.sent(osd);
    let [Message::OsdMap(m)] = sent.as_slice() else { panic!("maps, not {sent:?}") };
    assert_eq!(m.full.keys().copied().collect::<Vec<_>>(), [before, newest.epoch]);
    assert_eq!(m.incremental.keys().copied().collect::<Vec<_>>(), [newest.epoch]);
    let map = maps::OsdMap::from_bytes(m.full[&newest.epoch].clone()).expect("a map");
    assert_eq!((map.epoch, m.newest), (newest.epoch, newest.epoch));
    // All of them would be more than one message takes.
    let all = MMonGetOsdMap { full_last: types::Epoch(u32::MAX), ..MMonGetOsdMap::default() };
    w.send(osd, all);
    let sent = w.sent(osd);
    let [Message::OsdMap(m)] = sent.as_slice() else { panic!("maps, not {sent:?}") };
    assert!(!m.full.is_empty() && m.full.len() <= 40 && m.incremental.is_empty());
}

#[test]
fn nothing_is_served_before_the_login() {
    let mut w = World::new();
    w.send(ConnId(5), MMonGetVersion { handle: 1, what: "osdmap".into() });
    assert_eq!(w.take(), [Output::Close { conn: ConnId(5) }]);
    w.input(Input::AuthMore { conn: ConnId(6), payload: vec![1, 2, 3].into() });
    assert_eq!(w.take(), [Output::Close { conn: ConnId(6) }]);
}

#[test]
fn subscriptions_bring_the_maps_and_then_their_changes() {
    let mut w = World::new();
    let conn = w.admin();
    let all = [("monmap", 0, 0), ("osdmap", 0, 0), ("mgrmap", 0, 0), ("config", 0, 0), ("fsmap", 0, 1)];
    w.send(conn, subscribe(&all));
    let names: Vec<&str> = w.sent(conn).iter().map(Message::name).collect();
    assert_eq!(names, ["config", "fsmap", "mgrmap", "mon_map", "osdmap"]);
    let (code, outs, _) = w.command(conn, r#"{"prefix":"osd pool create","pool":"p","pg_num":8}"#);
    assert_eq!((code, outs.as_str()), (0, "pool 'p' created"));
    // The map went out together with the reply; a later one comes by itself.
    w.mon.state().osds.assert_invariants();
    assert_eq!(w.mon.state().osdmap().epoch.0, 2);
}

#[test]
fn managers_follow_the_digest_of_status_and_health() {
    let mut w = World::new();
    w.send(ConnId(9), subscribe(&[("mgrdigest", 0, 0)]));
    let (mgr, osd) = (w.connect(50, "mgr.x", 4_200, "v2:127.0.0.1:6790/1"), w.osd(0));
    let digests = |w: &mut World, conn| -> Vec<(serde_json::Value, serde_json::Value)> {
        let json = |raw: &[u8]| serde_json::from_slice(raw).expect("JSON");
        let sent = w.sent(conn).into_iter();
        sent.filter_map(|msg| match msg {
            Message::MgrDigest(m) => Some((json(&m.mon_status_json), json(&m.health_json))),
            _ => None,
        })
        .collect()
    };
    w.send(mgr, subscribe(&[("mgrdigest", 0, 0)]));
    let first = digests(&mut w, mgr);
    assert_eq!(first.len(), 1, "at once");
    assert_eq!((&first[0].0["name"], &first[0].0["state"]), (&"a".into(), &"leader".into()));
    assert_eq!(first[0].1["status"], "HEALTH_OK");
    let mut times = Vec::new();
    for secs in 1..=14 {
        w.tick(secs);
        times.extend(digests(&mut w, mgr).iter().map(|_| secs));
        assert!(digests(&mut w, osd).is_empty(), "it did not ask");
    }
    assert!(times.windows(2).all(|pair| pair[1] - pair[0] == 5) && times.len() >= 2, "{times:?}");
    w.input(Input::Disconnected { conn: mgr });
    w.tick(30);
    assert!(w.take().iter().all(|o| !matches!(o, Output::Send { conn, .. } if *conn == mgr)));
}

#[test]
fn old_epochs_come_as_increments_and_unknown_ones_as_a_whole_map() {
    let mut w = World::new();
    let conn = w.admin();
    for i in 0..100 {
        w.command(
            conn,
            &format!(r#"{{"prefix":"osd set","key":"{}"}}"#, if i % 2 == 0 { "noout" } else { "noin" }),
        );
        w.command(
            conn,
            &format!(r#"{{"prefix":"osd unset","key":"{}"}}"#, if i % 2 == 0 { "noout" } else { "noin" }),
        );
    }
    assert_eq!(w.mon.state().osdmap().epoch.0, 201);
    w.send(conn, subscribe(&[("osdmap", 2, 0)]));
    let maps: Vec<_> = w
        .sent(conn)
        .into_iter()
        .filter_map(|m| match m {
            Message::OsdMap(m) => Some((m.first(), m.last(), m.full.len(), m.incremental.len())),
            _ => None,
        })
        .collect();
    let e = |v| Some(types::Epoch(v));
    let want: Vec<_> = (0..5).map(|i| (e(2 + i * 40), e(41 + i * 40), 0, 40)).collect();
    assert_eq!(maps, want);
}

/// librados asks for one map, and again only ten seconds after an OSD that this map names refused its connection.
#[test]
fn who_asked_for_one_map_is_told_of_newer_ones_for_a_while() {
    const ONETIME: u8 = 1;
    let mut w = World::new();
    let admin = w.admin();
    let client = w.connect(2, "client.admin", 4_101, "v2:127.0.0.1:0/78");
    let other = w.connect(3, "client.admin", 4_102, "v2:127.0.0.1:0/79");
    w.send(client, subscribe(&[("osdmap", 0, ONETIME)]));
    w.take();
    let maps = |w: &mut World, conn: ConnId| -> Vec<(u32, u32)> {
        let sent = w.sent(conn).into_iter().filter_map(|m| match m {
            Message::OsdMap(m) => Some((m.first()?.0, m.last()?.0)),
            _ => None,
        });
        sent.collect()
    };
    w.command(admin, r#"{"prefix":"osd set","key":"noout"}"#);
    assert_eq!((maps(&mut w, client), maps(&mut w, other)), (vec![(2, 2)], vec![]));
    w.command(admin, r#"{"prefix":"osd unset","key":"noout"}"#);
    assert_eq!(maps(&mut w, client), [(3, 3)]);
    w.now = at(1 + 31);
    w.command(admin, r#"{"prefix":"osd set","key":"noout"}"#);
    assert_eq!(maps(&mut w, client), []);
    w.send(client, subscribe(&[("osdmap", 4, ONETIME)]));
    assert_eq!(maps(&mut w, client), [(4, 4)]);
    w.command(admin, r#"{"prefix":"osd unset","key":"noout"}"#);
    assert_eq!(maps(&mut w, client), [(5, 5)]);
}

/// A client whose session ended, with the monitor or without it, does not ask for maps again by itself.
#[test]
fn who_comes_back_is_told_of_newer_maps_for_a_while() {
    let mut w = World::new();
    let admin = w.admin();
    let name = AuthName::parse("client.admin").expect("a name");
    let (conn, addr) = (ConnId(9), addr("v2:127.0.0.1:0/80"));
    w.input(Input::AuthRequest {
        conn,
        peer_type: EntityType::Client,
        method: cephx::METHOD_NONE,
        preferred_modes: vec![1],
        payload: cephx::none_login_request(&name, types::GlobalId(4_555)),
        peer_addr: addr,
    });
    let change = |w: &mut World, verb: &str| {
        w.command(admin, &format!(r#"{{"prefix":"osd {verb}","key":"noout"}}"#));
        w.sent(conn).into_iter().filter(|m| matches!(m, Message::OsdMap(_))).count()
    };
    assert_eq!(change(&mut w, "set"), 0, "nothing before the session stands");
    let peer = types::EntityName { kind: EntityType::Client as u8, num: 4_555 };
    let addrs = types::AddrVec::single(addr);
    w.input(Input::Connected { conn, peer, addrs, features: types::features::PACIFIC });
    assert_eq!(change(&mut w, "unset"), 1);
    w.now = at(1 + 31);
    assert_eq!(change(&mut w, "set"), 0);
}

#[test]
fn options_reach_those_they_concern_and_only_when_they_change() {
    let mut w = World::new();
    let admin = w.admin();
    let osd = w.osd(0);
    for conn in [admin, osd] {
        w.send(conn, subscribe(&[("config", 0, 0)]));
    }
    w.take();
    w.command(admin, r#"{"prefix":"config set","who":"osd","name":"osd_max_backfills","value":"3"}"#);
    let configs = |w: &mut World, conn| {
        let options = w.sent(conn).into_iter().filter_map(|m| match m {
            Message::Config(m) => Some(m.options),
            _ => None,
        });
        options.collect::<Vec<_>>()
    };
    let want = [("osd_max_backfills".to_owned(), "3".to_owned())].into();
    assert_eq!((configs(&mut w, osd), configs(&mut w, admin)), (vec![want], vec![]));
    w.command(admin, r#"{"prefix":"osd set","key":"noout"}"#);
    assert!(configs(&mut w, osd).is_empty());
}

#[test]
fn the_log_is_followed_from_the_newest_entry_on_by_level() {
    let mut w = World::new();
    let conn = w.admin();
    w.command(conn, r#"{"prefix":"log","logtext":["before"]}"#);
    w.send(conn, subscribe(&[("log-warn", 0, 0)]));
    w.send(conn, subscribe(&[("log-info", 0, 0)]));
    let newest = w.sent(conn).into_iter().filter_map(|m| match m {
        Message::Log(m) => Some(m.entries.len()),
        _ => None,
    });
    assert_eq!(newest.collect::<Vec<_>>(), [1]);
    let msg = MMonCommand {
        fsid: FSID,
        cmd: vec![r#"{"prefix":"log","logtext":["after","all"]}"#.into()],
        ..MMonCommand::default()
    };
    w.send(conn, msg);
    let logs = w.sent(conn).into_iter().filter_map(|m| match m {
        Message::Log(m) => Some(m.entries.into_iter().filter(|e| e.channel == "cluster").map(|e| e.text)),
        _ => None,
    });
    assert_eq!(logs.flatten().collect::<Vec<_>>(), ["after all"]);
}

#[test]
fn versions_are_told() {
    let mut w = World::new();
    let conn = w.admin();
    w.send(conn, MMonGetVersion { handle: 9, what: "osdmap".into() });
    match w.sent(conn).as_slice() {
        [Message::MonGetVersionReply(r)] => assert_eq!((r.handle, r.version, r.oldest_version), (9, 1, 1)),
        other => panic!("a version, not {other:?}"),
    }
}

#[test]
fn snapshots_come_back_and_members_stay_equal() {
    let mut w = World::new();
    let conn = w.admin();
    w.command(conn, r#"{"prefix":"osd pool create","pool":"p"}"#);
    w.command(conn, r#"{"prefix":"config set","who":"osd","name":"osd_max_backfills","value":"3"}"#);
    let again =
        Monitor::new(common::settings(), Box::new(SeededEntropy(4)), &w.mon.snapshot()).expect("decodes");
    assert_eq!(again.state(), w.mon.state());
    assert_eq!(again.snapshot(), w.mon.snapshot());
}

#[test]
fn the_same_inputs_give_the_same_outputs() {
    let trace = || {
        let mut w = World::new();
        let conn = w.admin();
        w.send(conn, subscribe(&[("osdmap", 0, 0), ("log-info", 0, 0)]));
        w.command(conn, r#"{"prefix":"osd pool create","pool":"p"}"#);
        w.tick(30);
        (w.take(), w.mon.snapshot())
    };
    assert_eq!(trace(), trace());
}

#[test]
fn a_proposal_waits_for_its_commit_and_others_for_it() {
    let mut w = World::new();
    let conn = w.admin();
    let ask = |w: &mut World, pool: &str| {
        let cmd = vec![format!(r#"{{"prefix":"osd pool create","pool":"{pool}"}}"#)];
        let msg = MMonCommand { fsid: FSID, cmd, ..Default::default() };
        w.input(Input::Message { conn, header: Default::default(), msg: msg.into(), bytes: 0 });
    };
    ["a", "b", "c"].iter().for_each(|p| ask(&mut w, p));
    assert_eq!((w.log.len(), w.take().len()), (1, 0), "one is under way, nobody was answered");
    w.run();
    assert_eq!(w.sent(conn).len(), 3);
    assert_eq!(w.mon.state().osdmap().epoch.0, 3, "b and c went together");
    assert_eq!(w.mon.state().osdmap().pools.len(), 3);
    let _ = at(0);
}

/// A monitor that comes back from its log must not give out a number again: the OSDs would take the new client's requests for
/// repetitions of the old one's, and acknowledge writes that never happen.
#[test]
fn global_ids_are_not_reused_after_a_restart() {
    use monitor::QuorumView;
    let mut settings = settings();
    settings.quorum = QuorumView { leader: None, term: 0, ..QuorumView::alone() };
    let mut log: Vec<bytes::Bytes> = Vec::new();
    let mut seen = std::collections::BTreeSet::new();
    for life in 0..4u64 {
        let mut mon =
            monitor::Monitor::new(settings.clone(), Box::new(types::SeededEntropy(life)), &genesis())
                .expect("a snapshot");
        let mut out = Vec::new();
        for (i, change) in log.iter().enumerate() {
            mon.handle(at(life), Input::Committed { index: i as u64 + 1, change: change.clone() }, &mut out);
        }
        assert!(out.iter().all(|o| !matches!(o, Output::Propose { .. })), "nothing is proposed by a replay");
        let mut inputs = vec![Input::Quorum(QuorumView::alone()), Input::Tick];
        for n in 0..3 {
            inputs.push(Input::AuthRequest {
                conn: types::ConnId(n + 1),
                peer_type: types::EntityType::Client,
                method: cephx::METHOD_NONE,
                preferred_modes: vec![1],
                payload: cephx::none_login_request(
                    &types::AuthName::new(types::EntityType::Client, "admin"),
                    types::GlobalId(0),
                ),
                peer_addr: addr("v2:127.0.0.1:0/1"),
            });
        }
        let mut ids = 0;
        while !inputs.is_empty() {
            let mut out = Vec::new();
            mon.handle(at(life), inputs.remove(0), &mut out);
            for o in out {
                match o {
                    Output::Propose { data } => {
                        log.push(data.clone());
                        inputs.insert(0, Input::Committed { index: log.len() as u64, change: data });
                    }
                    Output::AuthDone { global_id, .. } => {
                        ids += 1;
                        assert!(seen.insert(global_id), "{global_id} was given out twice");
                    }
                    _ => {}
                }
            }
        }
        assert_eq!(ids, 3, "every login of life {life} succeeds");
    }
}

#[test]
fn only_the_monitors_own_key_makes_a_monitor() {
    let mut w = World::new();
    let admin = w.admin();
    let make = r#"{"prefix":"auth get-or-create-key","entity":"mon.x","caps":["mon","allow r"]}"#;
    let (code, _, key) = w.command(admin, make);
    assert_eq!(code, 0);
    let key = CryptoKey::from_base64(key.trim()).expect("a key");
    let outcome = login(&mut w, ConnId(7), "mon.x", key);
    // Monitors have a global id of their own, below those that are given out.
    assert!(matches!(outcome, Output::AuthDone { global_id, .. } if global_id.0 > 1), "{outcome:?}");
}

#[test]
fn a_service_that_is_secure_only_refuses_crc() {
    let ask = |peer_type, options: &[(&str, &str)]| {
        let mut w = World::with_options(options);
        let name = AuthName::parse("client.admin").expect("a name");
        let mut client = AuthClient::new(name, CryptoKey::new([2; 16], Utime::ZERO), &[EntityType::Mon]);
        w.input(Input::AuthRequest {
            conn: ConnId(1),
            peer_type,
            method: cephx::METHOD_CEPHX,
            preferred_modes: vec![monitor::CON_MODE_CRC],
            payload: client.start_login(),
            peer_addr: addr("v2:127.0.0.1:0/5"),
        });
        w.run();
        w.take().pop().expect("an answer")
    };
    let secure = [("ms_mon_service_mode", "secure")];
    match ask(EntityType::Client, &secure) {
        Output::AuthBad { refusal, .. } => {
            assert_eq!(refusal.errno, types::Errno::EOPNOTSUPP);
            assert_eq!(refusal.allowed_modes, [CON_MODE_SECURE]);
        }
        other => panic!("refused, not {other:?}"),
    }
    assert!(matches!(ask(EntityType::Mgr, &secure), Output::AuthMore { .. }), "another option's");
    assert!(matches!(ask(EntityType::Client, &[]), Output::AuthMore { .. }));
}

#[test]
fn the_audit_log_names_the_address_that_a_client_really_has() {
    let mut w = World::new();
    let admin = w.connect(1, "client.admin", 4_100, "v2:10.9.8.7:0/77");
    let conn = ConnId(1);
    let stated = types::AddrVec::single(addr("v2:192.168.0.1:0/5"));
    let peer = types::EntityName::client(4_100);
    w.input(Input::Connected { conn, peer, addrs: stated, features: types::features::PACIFIC });
    assert_eq!(w.command(admin, r#"{"prefix":"osd set","key":"noout"}"#).0, 0);
    let (_, _, log) = w.command(admin, r#"{"prefix":"log last","num":9,"channel":"audit"}"#);
    assert!(log.contains("10.9.8.7") && !log.contains("192.168.0.1"), "{log}");
}

/// Health is not cheap, and whoever can connect may ping.
#[test]
fn pings_have_health_made_once_a_second() {
    let mut w = World::new();
    let admin = w.admin();
    common::boot_osd(&mut w, 0);
    w.tick(9);
    let ping = |w: &mut World| {
        w.send(admin, messages::common::MPing::default());
        let sent = w.sent(admin).into_iter().find_map(|m| match m {
            Message::Ping(m) => Some(m.payload),
            _ => None,
        });
        sent.expect("an answer")
    };
    let first = ping(&mut w);
    assert_eq!(w.command(admin, r#"{"prefix":"osd set","key":"noout"}"#).0, 0);
    assert_eq!(ping(&mut w), first);
    w.now = common::at(10);
    assert_ne!(ping(&mut w), first);
}

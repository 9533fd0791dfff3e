//! What is left of those who go away: clients before they are answered, leaders before the manager answers.

use crate::common;

use common::{FSID, World, addr, at, genesis, settings};
use messages::common::MCommandReply;
use messages::mgr::{CommandDesc, MMgrBeacon};
use messages::mon::MMonCommand;
use messages::{Header, Message};
use monitor::{Input, Monitor, Output, QuorumView};
use types::{AddrVec, AuthName, ConnId, EntityType, GlobalId, SeededEntropy};

fn login(conn: u64) -> Input {
    Input::AuthRequest {
        conn: ConnId(conn),
        peer_type: EntityType::Client,
        method: cephx::METHOD_NONE,
        preferred_modes: vec![1],
        payload: cephx::none_login_request(&AuthName::new(EntityType::Client, "admin"), GlobalId(0)),
        peer_addr: addr("v2:127.0.0.1:0/1"),
    }
}

fn reads(out: &[Output]) -> Vec<u64> {
    let ctx = |o: &Output| match o {
        Output::Read { ctx } => Some(*ctx),
        _ => None,
    };
    out.iter().filter_map(ctx).collect()
}

fn let_in(out: &[Output]) -> Vec<u64> {
    let conn = |o: &Output| match o {
        Output::AuthDone { conn, .. } => Some(conn.0),
        _ => None,
    };
    out.iter().filter_map(conn).collect()
}

#[test]
fn what_a_client_asked_goes_with_it() {
    let mut w = World::new();
    w.input(Input::Quorum(QuorumView { monitors: 3, members: vec![0, 1], term: 2, ..QuorumView::alone() }));
    w.run();
    w.take();
    // The first is in the round under way, the others wait for the next.
    for conn in [60, 61, 62] {
        w.input(login(conn));
    }
    let first = reads(&w.take());
    w.input(Input::Disconnected { conn: ConnId(60) });
    w.input(Input::Disconnected { conn: ConnId(61) });
    w.input(Input::Fresh { ctx: first[0] });
    let out = w.take();
    assert_eq!((first.len(), let_in(&out), reads(&out).len()), (1, vec![], 1));
    w.input(Input::Fresh { ctx: reads(&out)[0] });
    let out = w.take();
    assert_eq!((let_in(&out), reads(&out)), (vec![62], vec![]));
    assert_eq!(w.mon.session_id(ConnId(60)), None, "a session of nobody would never end");
}

#[test]
fn a_login_that_waits_for_a_number_goes_with_its_connection() {
    let mut mon = Monitor::new(settings(), Box::new(SeededEntropy(3)), &genesis()).expect("a snapshot");
    let mut out = Vec::new();
    for input in [login(1), login(2), Input::Disconnected { conn: ConnId(1) }] {
        mon.handle(at(1), input, &mut out);
    }
    let proposed = out.iter().find_map(|o| match o {
        Output::Propose { data } => Some(data.clone()),
        _ => None,
    });
    let change = proposed.expect("numbers are asked for");
    mon.handle(at(1), Input::Committed { index: 1, change }, &mut out);
    assert_eq!(let_in(&out), vec![2]);
    assert_eq!(mon.session_id(ConnId(1)), None);
}

#[test]
fn commands_at_the_manager_end_with_the_leader() {
    let mut w = World::new();
    let admin = w.admin();
    let mgr = w.connect(50, "mgr.x", 4_200, "v2:127.0.0.1:6790/1");
    let command = CommandDesc {
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
        commands: vec![command],
        ..MMgrBeacon::default()
    };
    w.send(mgr, beacon);
    let ask = |w: &mut World| {
        let cmd = vec![r#"{"prefix":"pg dump"}"#.to_owned()];
        w.send(admin, MMonCommand { fsid: FSID, cmd, ..MMonCommand::default() });
        let tid = w.take().into_iter().find_map(|o| match o {
            Output::Send { conn, tid, msg: Message::Command(_) } if conn == mgr => Some(tid),
            _ => None,
        });
        tid.expect("the manager has it")
    };
    let reply = |w: &mut World, tid| {
        let header = Header { tid, ..Header::default() };
        w.input(Input::Message { conn: mgr, header, msg: MCommandReply::default().into(), bytes: 0 });
        w.sent(admin).len()
    };
    let tid = ask(&mut w);
    assert_eq!(reply(&mut w, tid), 1);
    let tid = ask(&mut w);
    w.input(Input::Quorum(QuorumView { term: 2, ..QuorumView::alone() }));
    let closed = Output::Close { conn: admin };
    assert!(w.take().contains(&closed), "whoever waits comes again");
    assert_eq!(reply(&mut w, tid), 0, "nobody waits for it any more");
    assert!(tid > 1_000, "another life counts from elsewhere");
}

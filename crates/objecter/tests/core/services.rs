//! Requests to monitors, commands to daemons.

use bytes::Bytes;
use codec::Encode;
use maps::MgrMap;
use messages::Message;
use messages::common::{MCommandReply, MMgrCommandReply};
use messages::mon::{MMgrMap, MMonCommandAck, MMonGetVersionReply, MPoolOpReply, MStatfsReply, pool_op};
use messages::payload::RestOfFront;
use objecter::{CommandReply, Input, Outcome, Request, ServicePeer, Settings};
use types::{AddrVec, EntityAddr, Epoch, Errno, SnapId};

use crate::bed::{Bed, FSID, POOL};

fn command() -> Request {
    Request::MonCommand { cmd: vec!["{}".into()], input: Bytes::new() }
}

#[test]
fn a_new_session_with_a_monitor_is_asked_again() {
    let mut b = Bed::new();
    let t = b.submit(command());
    let (tid, msg) = b.asked.pop().expect("asked");
    assert!(matches!(&msg, Message::MonCommand(m) if m.fsid == FSID));
    b.input(Input::MonGone);
    let lost = b.submit(Request::Statfs { pool: None });
    assert!(b.asked.is_empty(), "nobody is there");
    b.input(Input::MonReady);
    let kinds: Vec<&str> = b.asked.iter().map(|(_, m)| m.name()).collect();
    assert_eq!(kinds, ["mon_subscribe", "mon_command", "statfs"]);
    // An answer of the wrong kind is nobody's.
    b.mon_says(tid, MStatfsReply::default().into());
    assert_eq!(b.outcome(t), None);
    let ack = MMonCommandAck { result: -22, status: "no".into(), ..MMonCommandAck::default() };
    b.mon_says(tid, ack.clone().into());
    let reply = CommandReply { result: -22, status: "no".into(), output: Bytes::new() };
    assert_eq!(b.outcome(t), Some(&Outcome::Command(reply)));
    b.mon_says(tid, ack.into());
    b.input(Input::Cancel(lost, Errno::ETIMEDOUT));
    assert_eq!(b.outcome(lost), Some(&Outcome::Failed(Errno::ETIMEDOUT)));
}

#[test]
fn nothing_that_states_the_cluster_goes_out_before_it_is_known() {
    let mut b = Bed::without_map(Settings::default());
    b.input(Input::MonReady);
    b.submit(command());
    assert!(b.asked.iter().all(|(_, m)| !matches!(m, Message::MonCommand(_))));
    b.give_full();
    assert!(b.asked.iter().any(|(_, m)| matches!(m, Message::MonCommand(m) if m.fsid == FSID)));
}

#[test]
fn pool_operations_and_the_newest_map() {
    let mut b = Bed::new();
    let request = Request::PoolOp {
        pool: POOL,
        op: pool_op::CREATE_UNMANAGED_SNAP,
        snap: SnapId(0),
        name: String::new(),
        crush_rule: 0,
    };
    let t = b.submit(request);
    let (tid, _) = b.asked.pop().expect("asked");
    let response = Some(SnapId(4).to_bytes());
    let reply =
        MPoolOpReply { epoch: b.map.epoch.next(), response: response.clone(), ..MPoolOpReply::default() };
    b.mon_says(tid, reply.into());
    assert_eq!(b.outcome(t), Some(&Outcome::PoolOp { result: 0, response }));
    assert_eq!(b.take_subscriptions().len(), 1, "the map that holds it");

    let t = b.submit(Request::LatestMap);
    let (tid, _) = b.asked.pop().expect("asked");
    let newest = MMonGetVersionReply { handle: tid, version: 4, oldest_version: 1 };
    b.mon_says(0, newest.into());
    assert_eq!(b.outcome(t), None);
    b.change(|_, _| {});
    b.give();
    assert_eq!(b.outcome(t), Some(&Outcome::Map(Epoch(4))));
}

#[test]
fn commands_to_osds_follow_them() {
    let mut b = Bed::new();
    let to = |osd| Request::OsdCommand { osd, cmd: vec!["{}".into()], input: Bytes::new() };
    let t = b.submit(to(1));
    let first = b.take_sent();
    assert_eq!(b.peer(first[0].session), ServicePeer::Osd(1));
    b.reset(first[0].session);
    let second = b.take_sent();
    assert_eq!((second.len(), second[0].tid), (1, first[0].tid));
    let reply = MCommandReply { result: 0, status: "ok".into(), output: Bytes::from_static(b"out") };
    // From a session that is over, and from the one that was asked.
    b.input(Input::FromSession { session: first[0].session, tid: first[0].tid, msg: reply.clone().into() });
    assert_eq!(b.outcome(t), None);
    b.input(Input::FromSession { session: second[0].session, tid: first[0].tid, msg: reply.into() });
    assert!(matches!(b.outcome(t), Some(Outcome::Command(r)) if r.status == "ok"));

    // One that does not exist, and one that is down: only the newest map can say so.
    b.fail(2);
    b.give();
    for (osd, errno) in [(77, Errno::ENOENT), (2, Errno::ENXIO)] {
        let t = b.submit(to(osd));
        let (tid, msg) = b.asked.pop().expect("asked");
        assert!(matches!(msg, Message::MonGetVersion(_)));
        let newest = MMonGetVersionReply { handle: tid, version: b.map.epoch.0.into(), oldest_version: 1 };
        b.mon_says(0, newest.into());
        assert_eq!(b.outcome(t), Some(&Outcome::Failed(errno)), "osd.{osd}");
    }
}

#[test]
fn commands_to_the_manager_wait_for_one() {
    let mut b = Bed::new();
    let t = b.submit(Request::MgrCommand { cmd: vec!["{}".into()], input: Bytes::new() });
    let subs = b.take_subscriptions();
    assert!(subs[0].what.contains_key("mgrmap"));
    let map = |epoch, port: Option<u16>| {
        let addr = port.map(|p| EntityAddr::v2(([127, 0, 0, 1], p).into(), 1));
        let active_addrs = addr.map_or_else(AddrVec::default, AddrVec::single);
        let map = MgrMap { epoch: Epoch(epoch), active_addrs, ..MgrMap::initial() };
        MMgrMap { map: RestOfFront(map.to_bytes()) }
    };
    b.mon_says(0, map(2, None).into());
    assert!(b.take_sent().is_empty());
    b.mon_says(0, map(3, Some(1000)).into());
    let first = b.take_sent();
    assert_eq!((first.len(), b.peer(first[0].session)), (1, ServicePeer::Mgr));
    // Another one takes over.
    b.mon_says(0, map(4, Some(2000)).into());
    let second = b.take_sent();
    assert_eq!(second.len(), 1);
    assert!(!b.open.contains_key(&first[0].session));
    let reply = MMgrCommandReply { result: -1, ..MMgrCommandReply::default() };
    b.input(Input::FromSession { session: second[0].session, tid: second[0].tid, msg: reply.into() });
    assert!(matches!(b.outcome(t), Some(Outcome::Command(r)) if r.result == -1));
}

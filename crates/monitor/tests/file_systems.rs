//! File systems and metadata servers: beacons, failover with the failed ones blocked, sizes, kinds, and what a daemon
//! cannot bring about.

use crate::common;

use codec::Decode;
use common::{FSID, World, addr, boot_osd};
use maps::{FsMap, MdsInfo, MdsMap, MdsState};
use messages::Message;
use messages::mds::{MMdsBeacon, MMdsLoadTargets, MdsHealth, MdsHealthMetric};
use messages::mon::{MMonSubscribe, SubscribeItem};
use messages::osd::MRemoveSnaps;
use monitor::Input;
use types::{AddrKind, AddrVec, CompatSet, ConnId, EntityAddr, EntityName, Epoch, PoolId, SnapId};

/// A metadata server with its session.
#[derive(Debug, Clone)]
struct Mds {
    conn: ConnId,
    gid: u64,
    name: &'static str,
    seq: u64,
}

fn v2(port: u16, nonce: u32) -> EntityAddr {
    addr(&format!("v2:127.0.0.1:{port}/{nonce}"))
}

fn v1(port: u16, nonce: u32) -> EntityAddr {
    EntityAddr { kind: AddrKind::Legacy, ..v2(port, nonce) }
}

impl Mds {
    fn connect(w: &mut World, conn: u64, name: &'static str) -> Self {
        let port = u16::try_from(7_000 + 2 * conn).expect("small");
        let conn = w.connect(conn, &format!("mds.{name}"), 0, &format!("v2:127.0.0.1:{port}/9"));
        Self::states(w, conn, vec![v2(port, 9), v1(port + 1, 9)]);
        let gid = w.mon.session_id(conn).expect("a session");
        Self { conn, gid, name, seq: 0 }
    }

    /// What it says of where it is.
    fn states(w: &mut World, conn: ConnId, addrs: Vec<EntityAddr>) {
        let peer = EntityName { kind: types::EntityType::Mds as u8, num: 0 };
        let features = types::features::PACIFIC;
        w.input(Input::Connected { conn, peer, addrs: AddrVec(addrs), features });
    }

    fn beacon(&mut self, w: &World, state: MdsState) -> MMdsBeacon {
        self.seq += 1;
        let map = &w.mon.state().fs.map;
        MMdsBeacon {
            epoch: map.epoch_for(self.gid).unwrap_or_default(),
            fsid: FSID,
            gid: self.gid,
            name: self.name.to_owned(),
            state: state.0,
            seq: self.seq,
            compat: CompatSet::all(),
            features: types::features::PACIFIC,
            ..MMdsBeacon::default()
        }
    }

    fn say(&mut self, w: &mut World, state: MdsState) {
        let beacon = self.beacon(w, state);
        w.send(self.conn, beacon);
    }

    fn boot(w: &mut World, conn: u64, name: &'static str) -> Self {
        Self::boot_as(w, conn, name, false)
    }

    fn boot_as(w: &mut World, conn: u64, name: &'static str, ours: bool) -> Self {
        let mut mds = Self::connect(w, conn, name);
        let mut beacon = mds.beacon(w, MdsState::BOOT);
        let says = if ours { ("loligo", "0.1") } else { ("ceph_version", "ceph version 16.2.15") };
        beacon.sys_info = [(says.0.to_owned(), says.1.to_owned())].into();
        w.send(mds.conn, beacon);
        mds
    }

    fn info(&self, w: &World) -> Option<MdsInfo> {
        w.mon.state().fs.map.daemon(self.gid).cloned()
    }

    fn state(&self, w: &World) -> MdsState {
        self.info(w).map_or(MdsState::DNE, |i| i.state)
    }

    /// Says that it goes on as it is.
    fn alive(&mut self, w: &mut World) {
        let state = self.state(w);
        self.say(w, state);
    }

    /// From creating or replaying to active, as servers do.
    fn activate(&mut self, w: &mut World) {
        for _ in 0..6 {
            let next = match self.state(w) {
                MdsState::CREATING | MdsState::STARTING | MdsState::REJOIN => MdsState::ACTIVE,
                MdsState::REPLAY => MdsState::RECONNECT,
                MdsState::RECONNECT => MdsState::REJOIN,
                MdsState::RESOLVE => MdsState::RECONNECT,
                _ => break,
            };
            self.say(w, next);
            assert_eq!(self.state(w), next);
        }
        assert_eq!(self.state(w), MdsState::ACTIVE);
    }
}

/// A cluster with two pools.
fn world() -> (World, ConnId) {
    let mut w = World::with_options(&[("osd_pool_default_size", "1")]);
    let admin = w.admin();
    boot_osd(&mut w, 0);
    for pool in ["m", "d", "m2", "d2"] {
        ok(&mut w, admin, &format!(r#"{{"prefix":"osd pool create","pool":"{pool}"}}"#));
    }
    (w, admin)
}

fn ok(w: &mut World, conn: ConnId, cmd: &str) -> String {
    let (code, outs, _) = w.command(conn, cmd);
    assert_eq!(code, 0, "{cmd}: {outs}");
    outs
}

fn new_fs(w: &mut World, admin: ConnId) {
    ok(w, admin, r#"{"prefix":"fs new","fs_name":"a","metadata":"m","data":"d"}"#);
}

/// With an active server and a standby.
fn serving() -> (World, ConnId, Mds, Mds) {
    let (mut w, admin) = world();
    new_fs(&mut w, admin);
    let mut a = Mds::boot(&mut w, 10, "a");
    w.tick(2);
    a.activate(&mut w);
    let b = Mds::boot(&mut w, 11, "b");
    assert_eq!(b.state(&w), MdsState::STANDBY);
    (w, admin, a, b)
}

fn map(w: &World) -> &MdsMap {
    &w.mon.state().fs.map.filesystems[&1].map
}

fn is_blocked(w: &World, a: EntityAddr) -> bool {
    w.mon.state().osdmap().is_blocklisted(&a)
}

fn checks(w: &mut World, admin: ConnId) -> Vec<String> {
    let (_, _, text) = w.command(admin, r#"{"prefix":"health","detail":"detail","format":"json"}"#);
    let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    value["checks"].as_object().expect("checks").keys().cloned().collect()
}

#[test]
fn a_server_that_is_silent_is_blocked_and_replaced() {
    let (mut w, _, a, mut b) = serving();
    assert_eq!(map(&w).standby_count_wanted, -1);
    for secs in [3, 7, 11, 15, 19] {
        w.now = common::at(secs);
        b.alive(&mut w);
        w.tick(secs);
    }
    assert_eq!((a.info(&w), b.state(&w)), (None, MdsState::REPLAY));
    for at in [v2(7_020, 9), v1(7_021, 9)] {
        assert!(is_blocked(&w, at), "both protocols' addresses are shut out: {at}");
    }
    let (waits_for, newest) = (map(&w).last_failure_osd_epoch, w.mon.state().osds.newest());
    assert!(waits_for > Epoch(0) && waits_for <= newest, "the next holder waits for a map that is there");
    let then = w.mon.state().osds.map_at(waits_for).expect("kept");
    assert!(then.is_blocklisted(&v2(7_020, 9)), "and that one blocks the last holder");
    b.activate(&mut w);
    assert_eq!(map(&w).standby_count_wanted, 1);
}

/// A lost connection tells sooner, when nobody comes back.
#[test]
fn a_server_whose_connection_ended_is_replaced_when_it_does_not_come_back() {
    let (mut w, _, mut a, mut b) = serving();
    w.now = common::at(3);
    w.input(Input::Disconnected { conn: a.conn });
    w.tick(4);
    let back = Mds::connect(&mut w, 12, "a");
    assert_ne!(back.gid, a.gid, "another process: the old one is still gone");
    w.tick(5);
    b.alive(&mut w);
    w.tick(6);
    assert_eq!((a.info(&w), b.state(&w)), (None, MdsState::REPLAY));
    a.say(&mut w, MdsState::ACTIVE);
    assert_eq!(a.info(&w), None, "what is forgotten stays so");
}

/// The old connection may be found to be dead after a new one has begun.
#[test]
fn a_server_that_is_back_already_keeps_its_rank() {
    let (mut w, _, a, mut b) = serving();
    w.now = common::at(3);
    let name = types::AuthName::parse("mds.a").expect("a name");
    let (conn, kind) = (ConnId(12), types::EntityType::Mds);
    w.input(Input::AuthRequest {
        conn,
        peer_type: kind,
        method: cephx::METHOD_NONE,
        preferred_modes: vec![2, 1],
        payload: cephx::none_login_request(&name, types::GlobalId(a.gid)),
        peer_addr: v2(7_020, 9),
    });
    let peer = EntityName { kind: kind as u8, num: 0 };
    w.input(Input::Connected {
        conn,
        peer,
        addrs: AddrVec(vec![v2(7_020, 9)]),
        features: types::features::PACIFIC,
    });
    assert_eq!(w.mon.session_id(conn), Some(a.gid));
    w.input(Input::Disconnected { conn: a.conn });
    for at in 4..=6 {
        w.tick(at);
        b.alive(&mut w);
    }
    assert_eq!((a.state(&w), b.state(&w)), (MdsState::ACTIVE, MdsState::STANDBY));
}

#[test]
fn a_server_takes_no_state_that_does_not_exist() {
    let (mut w, admin, mut a, b) = serving();
    for state in [12, 13, 14, 16, 1_000, i32::MAX] {
        a.say(&mut w, MdsState(state));
        assert_eq!(a.state(&w), MdsState::ACTIVE, "{state}");
    }
    ok(&mut w, admin, r#"{"prefix":"fs set","fs_name":"a","var":"allow_standby_replay","val":"true"}"#);
    w.tick(3);
    assert_eq!(b.state(&w), MdsState::STANDBY_REPLAY);
    let set = format!(r#"{{"prefix":"mds set_state","gid":{},"state":13}}"#, b.gid);
    let (code, said, _) = w.command(admin, &set);
    assert_eq!((code, b.state(&w)), (-22, MdsState::STANDBY_REPLAY), "{said}");
}

#[test]
fn pools_of_one_file_system_are_no_others() {
    let (mut w, admin, _, _) = serving();
    for pool in ["m2", "d2"] {
        ok(&mut w, admin, &format!(r#"{{"prefix":"osd pool create","pool":"{pool}","pg_num":1}}"#));
    }
    ok(
        &mut w,
        admin,
        r#"{"prefix":"fs flag set","flag_name":"enable_multiple","val":"true","yes_i_really_mean_it":true}"#,
    );
    for (metadata, data) in [("m2", "m"), ("d", "d2"), ("m2", "d"), ("m", "d2")] {
        let new = format!(r#"{{"prefix":"fs new","fs_name":"b","metadata":"{metadata}","data":"{data}"}}"#);
        let (code, said, _) = w.command(admin, &new);
        assert_ne!(code, 0, "{metadata} {data}: {said}");
    }
    ok(&mut w, admin, r#"{"prefix":"fs new","fs_name":"b","metadata":"m2","data":"d2"}"#);
    for pool in ["m", "d"] {
        let add = format!(r#"{{"prefix":"fs add_data_pool","fs_name":"b","pool":"{pool}"}}"#);
        let (code, said, _) = w.command(admin, &add);
        assert_eq!(code, -22, "{pool}: {said}");
    }
    let osdmap = &w.mon.state().osds.map;
    let pool = osdmap.pool_by_name("m").and_then(|id| osdmap.pool(id)).expect("a pool");
    assert_eq!(pool.application_metadata["cephfs"].get("data"), None, "its tag stays");
}

#[test]
fn a_lone_server_that_is_silent_keeps_its_rank() {
    let (mut w, admin) = world();
    new_fs(&mut w, admin);
    let mut a = Mds::boot(&mut w, 10, "a");
    w.tick(2);
    a.activate(&mut w);
    w.input(Input::Disconnected { conn: a.conn });
    for secs in 3..40 {
        w.tick(secs);
    }
    assert_eq!(a.state(&w), MdsState::ACTIVE, "nobody would take its rank");
    assert!(a.info(&w).expect("is there").is_laggy());
    assert!(!is_blocked(&w, v2(7_020, 9)));
}

/// What the monitor's own absence hides is not held against anybody.
#[test]
fn a_monitor_that_was_away_waits_for_beacons_first() {
    let (mut w, _, a, b) = serving();
    w.tick(100);
    w.tick(101);
    assert_eq!((a.state(&w), b.state(&w)), (MdsState::ACTIVE, MdsState::STANDBY));
}

#[test]
fn a_beacon_speaks_for_its_sender_alone() {
    let (mut w, _, mut a, mut b) = serving();
    let before = w.mon.state().fs.clone();
    for spoil in [
        // Another one's number, name, cluster; a state that is nobody's to ask for.
        (|m: &mut MMdsBeacon, a: &Mds| m.gid = a.gid) as fn(&mut MMdsBeacon, &Mds),
        |m, a| m.name = a.name.to_owned(),
        |m, _| m.fsid = types::Fsid([9; 16]),
        |m, _| m.state = MdsState::ACTIVE.0,
        |m, _| m.state = MdsState::STOPPED.0,
        |m, _| m.state = MdsState::DAMAGED.0,
        |m, _| m.state = MdsState::STANDBY_REPLAY.0,
        |m, _| m.state = 77,
    ] {
        let mut beacon = b.beacon(&w, MdsState::STANDBY);
        spoil(&mut beacon, &a);
        w.send(b.conn, beacon);
        assert_eq!(*w.mon.state().fs, *before);
    }
    // A rank's holder has not given it back while nobody told it to stop.
    for state in
        [MdsState::STOPPED, MdsState::STOPPING, MdsState::STANDBY, MdsState::CREATING, MdsState::REPLAY]
    {
        a.say(&mut w, state);
        assert_eq!(a.state(&w), MdsState::ACTIVE, "{}", state.name());
    }
}

#[test]
fn what_a_later_beacon_overtook_says_nothing() {
    let (mut w, _, a, mut b) = serving();
    for secs in [3, 7, 11, 15, 19] {
        w.now = common::at(secs);
        b.alive(&mut w);
        w.tick(secs);
    }
    b.say(&mut w, MdsState::RECONNECT);
    b.say(&mut w, MdsState::REJOIN);
    let mut old = b.beacon(&w, MdsState::CLIENT_REPLAY);
    old.seq -= 2;
    w.send(b.conn, old);
    assert_eq!(b.state(&w), MdsState::REJOIN);
    b.say(&mut w, MdsState::RESOLVE);
    assert_eq!(b.state(&w), MdsState::REJOIN, "nor does a state that is behind");
    // It has not seen the newest map.
    let mut stale = b.beacon(&w, MdsState::ACTIVE);
    stale.epoch = Epoch(stale.epoch.0 - 1);
    w.send(b.conn, stale);
    assert_eq!((a.info(&w), b.state(&w)), (None, MdsState::REJOIN));
}

/// An entry that is there already may end at any time; the failed server stays out for as long as it should.
#[test]
fn an_address_that_was_blocked_for_a_moment_stays_blocked() {
    let (mut w, admin, a, mut b) = serving();
    ok(
        &mut w,
        admin,
        r#"{"prefix":"osd blocklist","blocklistop":"add","addr":"127.0.0.1:7020/9","expire":30.0}"#,
    );
    let newest = w.mon.state().osds.newest();
    ok(&mut w, admin, &format!(r#"{{"prefix":"mds fail","role_or_gid":"{}"}}"#, a.gid));
    assert_eq!(w.mon.state().osds.newest(), newest.next(), "its other address is new");
    for secs in [5, 9, 13, 40, 80, 81] {
        w.now = common::at(secs);
        b.alive(&mut w);
        w.tick(secs);
    }
    assert!(is_blocked(&w, v2(7_020, 9)));
    assert_eq!(w.mon.state().fs.fences.len(), 1);
    // The administrator may let it in.
    ok(&mut w, admin, r#"{"prefix":"osd blocklist","blocklistop":"rm","addr":"127.0.0.1:7020/9"}"#);
    assert!(!is_blocked(&w, v2(7_020, 9)));
}

/// When all addresses are blocked already there is no new OSD map to wait for.
#[test]
fn the_next_holder_waits_for_no_map_that_never_comes() {
    let (mut w, admin, a, _) = serving();
    for at in ["127.0.0.1:7020/9", "127.0.0.1:7021/9"] {
        let cmd = format!(r#"{{"prefix":"osd blocklist","blocklistop":"add","addr":"{at}"}}"#);
        ok(&mut w, admin, &cmd);
    }
    ok(&mut w, admin, &format!(r#"{{"prefix":"mds fail","role_or_gid":"{}"}}"#, a.gid));
    assert!(map(&w).last_failure_osd_epoch <= w.mon.state().osds.newest());
    assert!(map(&w).last_failure_osd_epoch > Epoch(0));
}

#[test]
fn ranks_come_and_go_as_wanted() {
    let (mut w, admin, mut a, mut b) = serving();
    let mut c = Mds::boot(&mut w, 12, "c");
    ok(&mut w, admin, r#"{"prefix":"fs set","fs_name":"a","var":"max_mds","val":"3"}"#);
    for secs in 3..8 {
        w.tick(secs);
        for mds in [&mut a, &mut b, &mut c] {
            if mds.state(&w) == MdsState::CREATING {
                mds.activate(&mut w);
            }
        }
    }
    assert_eq!(map(&w).up.len(), 3);
    let rank = |w: &World, mds: &Mds| mds.info(w).expect("is there").rank;
    let (b, mut c) = if rank(&w, &b) < rank(&w, &c) { (b, c) } else { (c, b) };
    w.send(b.conn, MMdsLoadTargets { gid: b.gid, targets: [0, 2].into(), version: Default::default() });
    assert_eq!(b.info(&w).expect("is there").export_targets, [0, 2].into());
    w.send(b.conn, MMdsLoadTargets { gid: a.gid, targets: [1].into(), version: Default::default() });
    w.send(b.conn, MMdsLoadTargets { gid: b.gid, targets: [7].into(), version: Default::default() });
    assert_eq!(b.info(&w).expect("is there").export_targets, [0, 2].into());
    assert!(a.info(&w).expect("is there").export_targets.is_empty());
    ok(&mut w, admin, r#"{"prefix":"fs set","fs_name":"a","var":"max_mds","val":"1"}"#);
    w.tick(9);
    assert_eq!((b.state(&w), c.state(&w)), (MdsState::ACTIVE, MdsState::STOPPING), "one at a time");
    c.say(&mut w, MdsState::ACTIVE);
    assert_eq!(c.state(&w), MdsState::STOPPING, "there is no way back");
    c.say(&mut w, MdsState::STOPPED);
    assert_eq!((c.info(&w), map(&w).stopped.clone()), (None, [2].into()));
    w.tick(10);
    assert_eq!(b.state(&w), MdsState::STOPPING);
}

#[test]
fn a_file_system_that_is_failed_waits_until_it_may_be_joined() {
    let (mut w, admin, a, mut b) = serving();
    ok(&mut w, admin, r#"{"prefix":"fs fail","fs_name":"a"}"#);
    assert!(a.info(&w).is_none() && is_blocked(&w, v2(7_020, 9)));
    b.alive(&mut w);
    for secs in 3..9 {
        w.tick(secs);
    }
    assert_eq!(b.state(&w), MdsState::STANDBY);
    assert!(checks(&mut w, admin).contains(&"MDS_ALL_DOWN".to_owned()));
    let rm = r#"{"prefix":"osd pool rm","pool":"m","pool2":"m","yes_i_really_really_mean_it":true}"#;
    let (code, outs, _) = w.command(admin, rm);
    assert_eq!((code, outs.as_str()), (-16, "pool 'm' is in use by CephFS"));
    ok(&mut w, admin, r#"{"prefix":"fs set","fs_name":"a","var":"joinable","val":"true"}"#);
    w.tick(10);
    assert_eq!(b.state(&w), MdsState::REPLAY);
    let (code, _, _) = w.command(admin, r#"{"prefix":"fs rm","fs_name":"a","yes_i_really_mean_it":true}"#);
    assert_eq!(code, -22, "while a rank is held");
    ok(&mut w, admin, r#"{"prefix":"fs fail","fs_name":"a"}"#);
    ok(&mut w, admin, r#"{"prefix":"fs rm","fs_name":"a","yes_i_really_mean_it":true}"#);
    ok(&mut w, admin, rm);
}

/// Frozen servers are left alone by the monitors themselves, and by nobody else.
#[test]
fn a_frozen_server_goes_when_it_is_told_to() {
    let freeze = |mds: &Mds| format!(r#"{{"prefix":"mds freeze","role_or_gid":"{}","val":"true"}}"#, mds.gid);
    let (mut w, admin, a, mut b) = serving();
    ok(&mut w, admin, &freeze(&a));
    for secs in [3, 7, 11, 15, 19, 23] {
        w.now = common::at(secs);
        b.alive(&mut w);
        w.tick(secs);
    }
    assert_eq!((a.state(&w), b.state(&w)), (MdsState::ACTIVE, MdsState::STANDBY), "it is silent, and stays");
    assert!(a.info(&w).expect("is there").is_laggy());
    ok(&mut w, admin, &format!(r#"{{"prefix":"mds fail","role_or_gid":"{}"}}"#, a.gid));
    w.tick(24);
    assert_eq!((a.info(&w), b.state(&w)), (None, MdsState::REPLAY));
    assert!(is_blocked(&w, v2(7_020, 9)));
    // One that starts anew is no longer the one that was frozen.
    ok(&mut w, admin, &freeze(&b));
    let again = Mds::boot(&mut w, 12, "b");
    assert_eq!((b.info(&w), again.state(&w)), (None, MdsState::STANDBY));
    w.tick(25);
    ok(&mut w, admin, &freeze(&again));
    for secs in 26..60 {
        w.tick(secs);
    }
    assert!(again.info(&w).is_some_and(|i| i.is_laggy()), "it is silent, and stays");
    ok(&mut w, admin, r#"{"prefix":"mds fail","role_or_gid":"b"}"#);
    assert_eq!(again.info(&w), None);
}

#[test]
fn followers_end_when_nobody_may_follow() {
    let (mut w, admin, a, b) = serving();
    let set = |val: &str| {
        format!(r#"{{"prefix":"fs set","fs_name":"a","var":"allow_standby_replay","val":"{val}"}}"#)
    };
    ok(&mut w, admin, &set("true"));
    w.tick(3);
    assert_eq!(b.state(&w), MdsState::STANDBY_REPLAY);
    ok(&mut w, admin, &set("false"));
    assert_eq!((a.state(&w), b.info(&w)), (MdsState::ACTIVE, None), "it comes back as a standby");
    assert!(!is_blocked(&w, v2(7_022, 9)), "it wrote nothing");
}

#[test]
fn a_server_that_starts_anew_takes_its_old_self_out() {
    let (mut w, _, a, mut b) = serving();
    let again = Mds::boot(&mut w, 13, "a");
    assert_eq!((a.info(&w), again.state(&w)), (None, MdsState::STANDBY));
    assert!(is_blocked(&w, v2(7_020, 9)));
    b.alive(&mut w);
    w.tick(3);
    let taken = [&again, &b].map(|mds| mds.state(&w) == MdsState::REPLAY);
    assert_eq!(taken.into_iter().filter(|taken| *taken).count(), 1);
    // A key has one place among the standbys, however often it comes.
    for conn in 20..40 {
        Mds::boot(&mut w, conn, "a");
    }
    assert_eq!(w.mon.state().fs.map.daemons().filter(|i| i.name == "a").count(), 1);
}

#[test]
fn what_servers_find_wrong_is_told_within_bounds() {
    let (mut w, admin, mut a, _) = serving();
    let metric = |kind: u16, text: &str| MdsHealthMetric {
        kind,
        severity: 1,
        message: text.to_owned(),
        metadata: [("client_id".to_owned(), "4".to_owned())].into(),
    };
    let mut beacon = a.beacon(&w, MdsState::ACTIVE);
    beacon.health.metrics =
        vec![metric(1, "Behind on trimming (1/2)"), metric(13, "x"), metric(99, "of a later release")];
    w.send(a.conn, beacon);
    let (_, _, text) = w.command(admin, r#"{"prefix":"health","detail":"detail"}"#);
    assert!(text.contains("[WRN] MDS_TRIM: 1 MDSs behind on trimming"), "{text}");
    assert!(text.contains("    mds.a(mds.0): Behind on trimming (1/2) client_id: 4"), "{text}");
    assert!(text.contains("[WRN] MDS_CLIENTS_LAGGY: 1 client(s) laggy due to laggy OSDs"), "{text}");
    let index = w.index;
    for n in 0..50 {
        let mut beacon = a.beacon(&w, MdsState::ACTIVE);
        beacon.health.metrics =
            (0..2_000).map(|_| metric(1, &format!("{n} {}", "x".repeat(5_000)))).collect();
        w.send(a.conn, beacon);
    }
    assert!(w.index <= index + 1, "a flood in one second is not committed piece by piece");
    w.tick(20);
    let mut beacon = a.beacon(&w, MdsState::ACTIVE);
    beacon.health.metrics = (0..2_000).map(|_| metric(1, &"x".repeat(5_000))).collect();
    w.send(a.conn, beacon);
    let kept: &MdsHealth = &w.mon.state().fs.health[&a.gid];
    assert!(kept.metrics.len() <= 64 && kept.metrics.iter().all(|m| m.message.len() <= 512));
    w.tick(40);
    let mut beacon = a.beacon(&w, MdsState::ACTIVE);
    let long = |n: usize| (format!("{n:02}{}", "k".repeat(600)), "v".repeat(600));
    beacon.health.metrics = (0..64).map(|n| metric(1, &format!("{n}"))).collect();
    beacon.health.metrics.iter_mut().for_each(|m| m.metadata = (0..20).map(long).collect());
    w.send(a.conn, beacon);
    let bytes: usize = w.mon.state().fs.health[&a.gid]
        .metrics
        .iter()
        .flat_map(|m| &m.metadata)
        .map(|(k, v)| k.len() + v.len())
        .sum();
    assert!((1..=32 << 10).contains(&bytes), "{bytes} bytes of one daemon");
    w.tick(60);
    a.alive(&mut w);
    assert!(!checks(&mut w, admin).contains(&"MDS_TRIM".to_owned()));
}

#[test]
fn servers_of_both_kinds_never_hold_ranks_together() {
    let (mut w, admin, mut a, mut b) = serving();
    let mut ours = Mds::boot_as(&mut w, 12, "o", true);
    ok(&mut w, admin, r#"{"prefix":"fs set","fs_name":"a","var":"max_mds","val":"3"}"#);
    w.tick(3);
    b.activate(&mut w);
    w.tick(4);
    assert_eq!(ours.state(&w), MdsState::STANDBY, "it waits, although a third rank is wanted");
    assert!(checks(&mut w, admin).contains(&"MDS_KINDS_APART".to_owned()));
    ok(&mut w, admin, &format!(r#"{{"prefix":"mds fail","role_or_gid":"{}"}}"#, a.gid));
    ours.alive(&mut w);
    w.tick(5);
    assert_eq!(ours.state(&w), MdsState::STANDBY, "one rank of the other kind is left");
    ok(&mut w, admin, &format!(r#"{{"prefix":"mds fail","role_or_gid":"{}"}}"#, b.gid));
    w.tick(6);
    assert_eq!(ours.state(&w), MdsState::REPLAY);
    a.alive(&mut w);
    assert!(w.mon.state().fs.ranked().all(|i| i.gid == ours.gid));
}

/// Metadata servers number their snapshots themselves, and ask for the end of them until they are told.
#[test]
fn snapshots_of_a_file_system_are_queued_and_answered() {
    let (mut w, _, a, _) = serving();
    let pools: Vec<PoolId> =
        ["d", "m2"].map(|n| w.mon.state().osdmap().pool_by_name(n).expect("is there")).into();
    let remove = |w: &mut World, snaps: &[(PoolId, Vec<u64>)]| {
        w.sent(a.conn);
        let list = |snaps: &[u64]| snaps.iter().copied().map(SnapId).collect();
        let snaps = snaps.iter().map(|(id, snaps)| (id.0 as i32, list(snaps))).collect();
        w.send(a.conn, MRemoveSnaps { snaps, ..MRemoveSnaps::default() });
        let told = w.sent(a.conn).into_iter().filter_map(|m| match m {
            Message::RemoveSnaps(m) => Some(m.snaps),
            _ => None,
        });
        let told: Vec<_> = told.collect();
        assert_eq!(told.len(), 1, "one answer");
        let count = |(id, snaps): (&i32, &Vec<SnapId>)| (PoolId((*id).into()), snaps.len());
        told[0].iter().map(count).collect::<Vec<_>>()
    };
    let queue = |w: &World, id: PoolId| w.mon.state().osdmap().removed_snaps_queue.get(&id).cloned();
    assert_eq!(remove(&mut w, &[(pools[0], vec![3, 2, 7])]), [(pools[0], 3)]);
    assert_eq!(queue(&w, pools[0]).expect("queued").to_string(), "[2~2,7~1]");
    let epoch = w.mon.state().osds.newest();
    let pool = w.mon.state().osdmap().pool(pools[0]).cloned().expect("is there");
    assert_eq!((pool.snap_seq, pool.snap_epoch, pool.is_unmanaged_snaps_mode()), (7, epoch, true));
    assert_eq!(remove(&mut w, &[(pools[0], vec![2])]), [(pools[0], 1)]);
    assert_eq!(w.mon.state().osds.newest(), epoch, "asked again, it is done already");
    // What there cannot be, and pools that are no file system's.
    let none = SnapId::MAX.0;
    assert_eq!(remove(&mut w, &[(pools[0], vec![0, none, u64::MAX]), (pools[1], vec![2])]), [(pools[0], 0)]);
    assert_eq!(
        remove(&mut w, &[(PoolId(99), vec![5])]),
        [(PoolId(99), 1)],
        "the pool is gone, and they with it"
    );
    assert_eq!((w.mon.state().osds.newest(), queue(&w, pools[1])), (epoch, None));
    // A number that leaves the pool none.
    let far = 7 + (1 << 32);
    assert_eq!(remove(&mut w, &[(pools[0], vec![SnapId::MAX.0 - 1, far])]), [(pools[0], 0)]);
    assert_eq!(w.mon.state().osdmap().pool(pools[0]).expect("is there").snap_seq, 7);
    let many = (0..50_000).map(|n| 10 + 2 * n).collect();
    let taken = remove(&mut w, &[(pools[0], many)])[0].1;
    assert!((1..20_000).contains(&taken), "{taken} runs");
}

#[test]
fn followers_get_the_maps_that_they_may_know() {
    let (mut w, admin, a, b) = serving();
    let follow = |w: &mut World, conn, what: &str| {
        let what = [(what.to_owned(), SubscribeItem { start: 0, flags: 0 })].into();
        w.sent(conn);
        w.send(conn, MMonSubscribe { what, ..MMonSubscribe::default() });
        w.sent(conn)
    };
    let sent = follow(&mut w, admin, "fsmap");
    let [Message::FsMap(m)] = sent.as_slice() else { panic!("{sent:?}") };
    assert_eq!(FsMap::from_bytes(m.map.0.clone()).as_ref(), Ok(&w.mon.state().fs.map));
    let mds_map = |sent: &[Message]| match sent {
        [Message::MdsMap(m)] => MdsMap::from_bytes(m.map.clone()).expect("a map"),
        other => panic!("{other:?}"),
    };
    let of_fs = mds_map(&follow(&mut w, a.conn, "mdsmap"));
    assert_eq!(&of_fs, map(&w));
    let of_standby = mds_map(&follow(&mut w, b.conn, "mdsmap"));
    assert_eq!(of_standby.info.keys().copied().collect::<Vec<_>>(), [b.gid], "a standby is told of itself");
    assert_eq!(&mds_map(&follow(&mut w, admin, "mdsmap.1")), map(&w));
    assert!(follow(&mut w, admin, "mdsmap.9").is_empty() && follow(&mut w, admin, "mdsmap.x").is_empty());
    assert!(matches!(follow(&mut w, admin, "fsmap.user").as_slice(), [Message::FsMapUser(_)]));
}

#[test]
fn of_beacons_that_wait_together_the_newest_counts() {
    let (mut w, _, mut a, mut b) = serving();
    w.take();
    let mut waiting: Vec<(ConnId, Message)> = Vec::new();
    for _ in 0..100 {
        waiting.push((a.conn, a.beacon(&w, MdsState::ACTIVE).into()));
        waiting.push((b.conn, b.beacon(&w, MdsState::STANDBY).into()));
    }
    w.send_behind_a_change(waiting);
    for mds in [&a, &b] {
        let answers = w.sent(mds.conn).into_iter().filter_map(|m| match m {
            Message::MdsBeacon(m) => Some(m.seq),
            _ => None,
        });
        assert_eq!(answers.collect::<Vec<_>>(), [mds.seq], "mds.{}", mds.name);
    }
}

/// Servers of one name replace each other, and each time all file systems are committed.
#[test]
fn servers_of_a_key_come_and_go_only_so_often() {
    let (mut w, _) = world();
    let index = w.index;
    let flood: Vec<Mds> = (20..50).map(|conn| Mds::boot(&mut w, conn, "a")).collect();
    let there = |w: &World| flood.iter().position(|mds| mds.info(w).is_some());
    assert_eq!((w.index - index, there(&w)), (5, Some(4)));
    let mut last = flood[4].clone();
    last.say(&mut w, MdsState::DNE);
    assert_eq!(there(&w), Some(4), "nor do they go");
    let mut other = Mds::boot(&mut w, 60, "b");
    assert!(other.info(&w).is_some(), "another key's is not kept out");
    // What an earlier beacon says of the end is overtaken.
    let mut gone = other.beacon(&w, MdsState::DNE);
    other.alive(&mut w);
    gone.seq -= 1;
    w.send(other.conn, gone);
    assert!(other.info(&w).is_some());
    w.tick(2);
    last.say(&mut w, MdsState::DNE);
    assert_eq!(there(&w), None);
}

/// All addresses of a server that failed are blocked: they have to be its own.
#[test]
fn a_server_has_no_address_of_another() {
    let (mut w, admin) = world();
    let other_mds = Mds::boot(&mut w, 10, "a");
    let manager = addr("v2:127.0.0.1:6790/50");
    let session = w.manager("x", 50);
    let beacon = messages::mgr::MMgrBeacon {
        gid: 50,
        name: "x".to_owned(),
        addrs: AddrVec::single(manager),
        fsid: FSID,
        ..Default::default()
    };
    w.send(session, beacon);
    let (own, far) = (v2(7_777, 3), addr("v2:10.9.9.9:6800/1"));
    let of_mds = other_mds.info(&w).expect("it is there").addrs.0[1];
    for (n, stated) in
        [v2(6_800, 1), v2(7_000, 1), v2(7_200, 1), manager, of_mds, far].into_iter().enumerate()
    {
        let mut mds = Mds::connect(&mut w, 20 + n as u64, "b");
        let stated = if stated == far { vec![far] } else { vec![own, stated] };
        Mds::states(&mut w, mds.conn, stated.clone());
        w.now = common::at(10 * (n as u64 + 1));
        mds.say(&mut w, MdsState::BOOT);
        assert_eq!(mds.info(&w), None, "{stated:?}");
    }
    w.tick(100);
    let mut mds = Mds::connect(&mut w, 40, "b");
    Mds::states(&mut w, mds.conn, vec![own, far]);
    mds.say(&mut w, MdsState::BOOT);
    assert_eq!(mds.info(&w).expect("let in").addrs, AddrVec::single(own), "what is its own is kept");
    new_fs(&mut w, admin);
    w.tick(101);
    ok(&mut w, admin, r#"{"prefix":"mds fail","role_or_gid":"b"}"#);
    assert!(!is_blocked(&w, far));
}

#[test]
fn a_quiet_beacon_costs_no_copy_of_all_file_systems() {
    let (mut w, _) = world();
    let mut all = Vec::new();
    for conn in 20..100 {
        let name: &'static str = format!("n{conn}").leak();
        let mut mds = Mds::connect(&mut w, conn, name);
        let mut beacon = mds.beacon(&w, MdsState::BOOT);
        beacon.sys_info = (0..256).map(|n| (format!("key {n}"), "value".to_owned())).collect();
        w.send(mds.conn, beacon);
        assert!(mds.info(&w).is_some());
        all.push(mds);
    }
    let begun = std::time::Instant::now();
    for _ in 0..20 {
        assert!(!w.mon.state().fs.as_ref().clone().metadata.is_empty());
    }
    let copies = begun.elapsed();
    let begun = std::time::Instant::now();
    for mds in all.iter_mut().take(20) {
        mds.say(&mut w, MdsState::STANDBY);
    }
    assert!(begun.elapsed() < copies / 2, "{:?}, 20 copies take {copies:?}", begun.elapsed());
    // More entries are not taken.
    let mut mds = Mds::connect(&mut w, 200, "many");
    let mut beacon = mds.beacon(&w, MdsState::BOOT);
    beacon.sys_info = (0..257).map(|n| (format!("key {n}"), String::new())).collect();
    w.send(mds.conn, beacon);
    assert_eq!(mds.info(&w), None);
}

/// What is found wrong has no room beyond that of all file systems: one commit is one message.
#[test]
fn what_servers_say_together_has_a_bound() {
    let (mut w, _) = world();
    let mut all = Vec::new();
    for conn in 1_000..1_300 {
        let name: &'static str = format!("n{conn}").leak();
        let mut mds = Mds::connect(&mut w, conn, name);
        let mut beacon = mds.beacon(&w, MdsState::BOOT);
        beacon.sys_info = [("k".to_owned(), "v".repeat(65_000))].into();
        w.send(mds.conn, beacon);
        match mds.info(&w) {
            Some(_) => all.push(mds),
            None => break,
        }
    }
    let bytes = |w: &World| codec::Encode::to_bytes(&*w.mon.state().fs).len();
    assert!(all.len() > 200 && bytes(&w) <= 16 << 20, "{} of {} bytes", all.len(), bytes(&w));
    for mds in all.iter_mut().take(4) {
        let mut beacon = mds.beacon(&w, MdsState::STANDBY);
        let text = |n: usize| (format!("{n:02}"), "v".repeat(500));
        let metadata = || (0..16).map(text).collect();
        let metric =
            |_| MdsHealthMetric { kind: 1, severity: 1, message: "x".to_owned(), metadata: metadata() };
        beacon.health.metrics = (0..64).map(metric).collect();
        w.send(mds.conn, beacon);
    }
    assert!(bytes(&w) <= 16 << 20, "{} bytes", bytes(&w));
}

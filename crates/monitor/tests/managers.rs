//! Managers of Ceph's in the place of ours: what tickets then look like, and who may say so.

use crate::common;

use crate::manager_faults::{counted, log, refusals};
use bytes::Bytes;
use cephx::{
    AuthClient, AuthError, AuthorizerAcceptor, CryptoKey, EntityAuth, ServiceSecrets, TicketForm, Verdict,
};
use codec::{Decode, Encode};
use common::{FSID, World, addr, settings};
use maps::{MgrMap, ModuleOption, Service, ServiceDaemon, ServiceMap};
use messages::Message;
use messages::common::{MMgrCommand, MMgrCommandReply};
use messages::mgr::{CommandDesc, HealthCheck, MMgrBeacon, MMonMgrReport, MPgDigest, ModuleInfo};
use messages::mon::{MMonCommand, MMonSubscribe, SubscribeItem};
use messages::osd::RawEnvelope;
use messages::pg_map_digest::PgMapDigest;
use messages::stats::{OsdStat, PoolStat, StoreStatfs};
use monitor::state::{MgrDaemon, MgrState, PgDigest, log_line};
use monitor::{CON_MODE_SECURE, Input, Monitor, Output};
use serde_json::json;
use types::{
    AddrVec, AuthName, ConnId, EntityName, EntityType, Epoch, GlobalId, PoolId, SeededEntropy, SnapId,
};

pub fn beacon(name: &str, gid: u64, ours: bool) -> MMgrBeacon {
    let metadata =
        if ours { ("loligo", "0.1") } else { ("ceph_version", "ceph version 16.2.15 (618f440) pacific") };
    MMgrBeacon {
        gid,
        name: name.to_owned(),
        addrs: AddrVec::single(addr(&format!("v2:127.0.0.1:6790/{gid}"))),
        available: true,
        fsid: FSID,
        metadata: [(metadata.0.to_owned(), metadata.1.to_owned())].into(),
        ..MMgrBeacon::default()
    }
}

fn entropy(seed: u64) -> impl FnMut(&mut [u8]) {
    let mut seed = SeededEntropy(seed);
    move |b: &mut [u8]| types::Entropy::fill(&mut seed, b)
}

/// A client of the monitor that holds tickets.
struct Client {
    conn: ConnId,
    auth: AuthClient,
}

impl Client {
    /// The administrator; it follows the manager map.
    fn new(w: &mut World, conn: u64) -> Self {
        let want = [EntityType::Mon, EntityType::Osd, EntityType::Mgr];
        let key = CryptoKey::new([2; 16], types::Utime::ZERO);
        let auth = AuthClient::new(AuthName::parse("client.admin").expect("a name"), key, &want);
        let mut client = Self { conn: ConnId(conn), auth };
        client.log_in(w);
        client.open(w);
        client
    }

    fn log_in(&mut self, w: &mut World) {
        let conn = self.conn;
        w.input(Input::AuthRequest {
            conn,
            peer_type: EntityType::Client,
            method: cephx::METHOD_CEPHX,
            preferred_modes: vec![CON_MODE_SECURE],
            payload: self.auth.start_login(),
            peer_addr: addr("v2:127.0.0.1:0/5"),
        });
        let challenge = w.take().into_iter().find_map(|o| match o {
            Output::AuthMore { payload, .. } => Some(payload),
            _ => None,
        });
        let challenge = challenge.expect("a challenge");
        let answer = self.auth.handle_challenge(&challenge, w.now.wall, &mut entropy(3)).expect("an answer");
        w.input(Input::AuthMore { conn, payload: answer });
        let done = w.take().into_iter().find_map(|o| match o {
            Output::AuthDone { global_id, payload, .. } => Some((global_id, payload)),
            _ => None,
        });
        let (global_id, payload) = done.expect("logged in");
        self.auth.handle_done(global_id, &payload, w.now.wall).expect("tickets");
    }

    fn open(&self, w: &mut World) {
        let peer = EntityName::client(5);
        let features = types::features::PACIFIC;
        w.input(Input::Connected { conn: self.conn, peer, addrs: AddrVec::default(), features });
        let item = SubscribeItem { start: 0, flags: 0 };
        let what = [("mgrmap".to_owned(), item)].into();
        w.send(self.conn, MMonSubscribe { what, ..MMonSubscribe::default() });
    }

    /// Takes what came: whether there were tickets, which come in front of the map that needs them.
    fn hear(&mut self, w: &mut World) -> bool {
        let (mut tickets, mut map) = (false, false);
        for msg in w.sent(self.conn) {
            match msg {
                Message::AuthReply(reply) => {
                    map = false;
                    assert_eq!(GlobalId(reply.global_id), self.auth.global_id());
                    self.auth.handle_reply(reply.result, &reply.payload, w.now.wall).expect("tickets");
                    tickets = true;
                }
                Message::MgrMap(_) => map = true,
                _ => {}
            }
        }
        assert!(!tickets || map, "the map that names the manager comes after the ticket");
        tickets
    }

    /// The only form of tickets that a service would have to know to let it in.
    fn form(&self, w: &World, service: EntityType) -> TicketForm {
        let authorizer = self.auth.authorizer(service, w.now.wall, &mut entropy(4)).expect("a ticket");
        let opens = |form| {
            let rotating = w.mon.state().auth.rotating.of(service).expect("secrets").clone();
            let secrets = ServiceSecrets { rotating, form, ..ServiceSecrets::new(service) };
            let verdict = AuthorizerAcceptor::new().verify(
                &secrets,
                &authorizer.payload(),
                0,
                w.now.wall,
                &mut entropy(5),
            );
            match verdict {
                Verdict::NeedChallenge(_) => true,
                Verdict::Refused(AuthError::Undecryptable(_) | AuthError::OldForm(_)) => false,
                other => panic!("{other:?}"),
            }
        };
        match (opens(TicketForm::Sealed), opens(TicketForm::Ceph)) {
            (true, false) => TicketForm::Sealed,
            (false, true) => TicketForm::Ceph,
            other => panic!("opens as both or neither: {other:?}"),
        }
    }
}

fn audit(w: &World) -> Vec<String> {
    let entries = w.mon.state().log.last(100, monitor::state::Priority::Debug, "audit");
    let of_tickets = entries.into_iter().filter(|e| e.text.contains("tickets"));
    of_tickets.map(log_line).map(|l| l.split(" : ").nth(1).unwrap_or_default().to_owned()).collect()
}

fn health(w: &mut World, conn: ConnId) -> bool {
    let (_, _, text) = w.command(conn, r#"{"prefix":"health","detail":"detail"}"#);
    text.contains("MGR_TICKETS_OF_CEPH")
}

#[test]
fn tickets_follow_the_manager_in_charge() {
    let mut w = World::new();
    let admin = w.connect(90, "client.admin", 4_100, "v2:127.0.0.1:0/77");
    let mgr = w.connect(50, "mgr.x", 4_200, "v2:127.0.0.1:6790/1");
    w.send(mgr, beacon("x", 1, true));
    let mut client = Client::new(&mut w, 7);
    assert!(!client.hear(&mut w));
    assert_eq!(client.form(&w, EntityType::Mgr), TicketForm::Sealed);
    assert!(!health(&mut w, admin) && audit(&w).is_empty());

    // One that stands by changes nothing.
    w.send(mgr, beacon("z", 2, false));
    assert!(!client.hear(&mut w));
    let between = {
        // A client that logs in before the change, and whose connection is there only after it.
        let auth = client.auth.clone();
        let mut late = Client { conn: ConnId(8), auth };
        late.log_in(&mut w);
        late
    };
    assert_eq!(w.command(admin, r#"{"prefix":"mgr fail"}"#).0, 0);
    assert_eq!(w.mon.state().mgr.active.as_ref().map(|a| a.name.as_str()), Some("z"));
    assert!(client.hear(&mut w), "unasked");
    let mut late = between;
    late.open(&mut w);
    assert!(late.hear(&mut w));
    for c in [&client, &late] {
        assert_eq!(c.form(&w, EntityType::Mgr), TicketForm::Ceph);
        for service in [EntityType::Osd, EntityType::Mon] {
            assert_eq!(c.form(&w, service), TicketForm::Sealed, "{service}");
        }
    }
    assert!(health(&mut w, admin));
    w.send(mgr, beacon("z", 2, false));
    assert!(!client.hear(&mut w), "once");
    // What was agreed on is agreed on after a restart too.
    let again = Monitor::new(settings(), Box::new(SeededEntropy(1)), &w.mon.snapshot()).expect("a snapshot");
    assert_eq!(again.state().auth.forms.mgr, TicketForm::Ceph);

    // Ours takes over.
    w.send(mgr, beacon("x", 3, true));
    assert_eq!(w.command(admin, r#"{"prefix":"mgr fail"}"#).0, 0);
    assert!(client.hear(&mut w));
    assert_eq!(client.form(&w, EntityType::Mgr), TicketForm::Sealed);
    assert!(!health(&mut w, admin));
    let lines = audit(&w);
    assert!(
        lines.first().is_some_and(|l| l.contains("have Ceph's form from now on: mgr.z is Ceph's")),
        "{lines:?}"
    );
    assert!(lines.get(1).is_some_and(|l| l.contains("sealed again")) && lines.len() == 2, "{lines:?}");
}

#[test]
fn a_login_after_a_change_brings_the_ticket_that_the_manager_opens() {
    let mut w = World::new();
    let mgr = w.connect(50, "mgr.x", 4_200, "v2:127.0.0.1:6790/1");
    w.send(mgr, beacon("x", 1, true));
    let mut client = Client::new(&mut w, 7);
    w.input(Input::Disconnected { conn: client.conn });
    w.send(mgr, beacon("x", 2, false));
    assert!(!client.hear(&mut w));
    client.conn = ConnId(8);
    client.log_in(&mut w);
    assert_eq!(client.form(&w, EntityType::Mgr), TicketForm::Ceph);
}

/// Nobody but a manager says who is one, whatever else its key permits.
#[test]
fn a_key_without_the_profile_changes_no_tickets() {
    let mut w = World::new();
    for (conn, name) in [(60, "client.admin"), (61, "osd.0"), (62, "mon.")] {
        // Without authentication everybody may do everything; what is left is what it is.
        let liar = w.connect(conn, name, 4_100, "v2:127.0.0.1:0/77");
        w.send(liar, beacon("z", 9, false));
        assert_eq!(w.mon.state().mgr.active, None, "{name}");
        assert_eq!(w.mon.state().auth.forms.mgr, TicketForm::Sealed);
    }
    assert_eq!((counted(&mut w, "not_allowed"), refusals(&w)), (3, 3));
    let liar = w.connect(61, "osd.0", 4_100, "v2:127.0.0.1:0/77");
    w.send(liar, beacon("z", 9, false));
    assert_eq!((counted(&mut w, "not_allowed"), refusals(&w)), (4, 3), "said once of a name");
    // A manager's name with a key that may only read.
    let key = CryptoKey::new([8; 16], types::Utime::ZERO);
    let mut weak = EntityAuth { key, ..EntityAuth::default() };
    weak.caps.insert("mon".to_owned(), "allow r".to_owned());
    let admin = w.admin();
    let keyring = format!("[mgr.w]\nkey = {}\ncaps mon = \"allow r\"\n", weak.key.to_base64());
    let ack = w.raw_command(admin, r#"{"prefix":"auth add","entity":"mgr.w"}"#, keyring.into());
    assert_eq!(ack.result, 0, "{}", ack.status);
    let auth = AuthClient::new(AuthName::parse("mgr.w").expect("a name"), weak.key, &[EntityType::Mon]);
    let mut client = Client { conn: ConnId(63), auth };
    client.log_in(&mut w);
    client.open(&mut w);
    w.send(client.conn, beacon("w", 10, false));
    assert_eq!(w.mon.state().mgr.active, None);
    assert_eq!(counted(&mut w, "not_allowed"), 5);
    assert!(audit(&w).is_empty());
    assert!(log(&w).contains(&"a beacon of mgr.w was refused: its key does not allow it".to_owned()));
}

#[test]
fn a_manager_that_says_only_a_version_of_ours_is_ours() {
    let mut w = World::new();
    let mgr = w.connect(50, "mgr.x", 4_200, "v2:127.0.0.1:6790/1");
    let mut of_before = beacon("x", 1, false);
    of_before
        .metadata
        .insert("ceph_version".to_owned(), "ceph version 16.2.15 (loligo 0.1.0) pacific (stable)".to_owned());
    w.send(mgr, of_before);
    assert_eq!(w.mon.state().mgr.active.as_ref().map(|a| a.of_ceph), Some(false));
    assert_eq!(w.mon.state().auth.forms.mgr, TicketForm::Sealed);
}

/// States of before hold managers of ours only.
#[test]
fn managers_of_the_first_form_are_read_as_ours() {
    let active = MgrDaemon { gid: 7, name: "x".to_owned(), ..MgrDaemon::default() };
    let state = MgrState { active: Some(active), ..MgrState::default() };
    let bytes = state.to_bytes();
    assert_eq!(MgrState::from_bytes(bytes.clone()), Ok(state.clone()));
    for n in 0..bytes.len() {
        assert!(MgrState::from_bytes(bytes.slice(..n)).is_err(), "{n}");
    }
    assert!(MgrMap::from_bytes(state.map_bytes()).is_ok());
}

pub fn pool_stat(objects: i64, bytes: i64) -> PoolStat {
    let mut stat = PoolStat::default();
    stat.stats.sum.num_objects = objects;
    stat.stats.sum.num_bytes = bytes;
    stat
}

/// What Ceph's manager says of a cluster with pool 1, of so many PGs, and one that is not there.
pub fn digest(pgs: i32) -> PgMapDigest {
    let mut d = PgMapDigest { num_pg: pgs.into(), num_osd: 1, ..PgMapDigest::default() };
    d.pools = [(1, pool_stat(7, 70)), (99, pool_stat(9, 90)), (-3, pool_stat(1, 1))].into();
    d.num_pg_by_pool = [(PoolId(1), pgs.into()), (PoolId(99), 4)].into();
    d.num_pg_by_state = [(0x82, pgs)].into();
    d.osd_sum.statfs = StoreStatfs { total: 1_000 << 20, available: 900 << 20, ..StoreStatfs::default() };
    d.osd_sum.num_osds = 1;
    d.avail_by_rule = [(0, 400 << 20)].into();
    let mut delta = pool_stat(0, 0);
    (delta.stats.sum.num_wr, delta.stats.sum.num_wr_kb) = (50, 100);
    d.pool_deltas = [(PoolId(1), (delta, types::Utime::new(5, 0)))].into();
    (d.sum_delta, d.sum_delta_span) = (delta, types::Utime::new(5, 0));
    d.purged_snaps = [(PoolId(1), vec![(SnapId(1), 3)]), (PoolId(99), vec![(SnapId(1), 3)])].into();
    d.osd_last_seq = vec![11, 12, 13];
    d
}

pub fn report(gid: u64, digest: &PgMapDigest) -> MMonMgrReport {
    MMonMgrReport { gid, digest: digest.to_bytes(), ..MMonMgrReport::default() }
}

/// A cluster with an OSD and pool 1 of eight PGs, whose manager is Ceph's.
pub fn under_ceph() -> (World, ConnId, ConnId) {
    let mut w = World::new();
    let admin = w.admin();
    common::boot_osd(&mut w, 0);
    w.command(admin, r#"{"prefix":"osd pool create","pool":"p","pg_num":8}"#);
    let mgr = w.connect(50, "mgr.z", 4_200, "v2:127.0.0.1:6790/1");
    w.send(mgr, beacon("z", 1, false));
    w.take();
    (w, admin, mgr)
}

#[test]
fn the_report_of_cephs_manager_is_what_the_cluster_is_like() {
    let (mut w, admin, mgr) = under_ceph();
    assert!(!w.mon.state().creating.is_empty());
    w.send(mgr, report(1, &digest(7)));
    assert!(w.mon.state().digest.purged_snaps.is_empty(), "a PG is missing: it may have clones of them");
    assert!(!w.mon.state().creating.is_empty(), "it may not be there yet");
    let mut not_yet = digest(8);
    not_yet.num_pg_by_state = [(0x82, 7), (0, 1)].into();
    w.send(mgr, report(1, &not_yet));
    assert!(!w.mon.state().creating.is_empty(), "a PG that nobody has reported");
    w.send(mgr, report(1, &digest(8)));
    assert!(w.mon.state().creating.is_empty(), "all PGs are there");
    let d = &w.mon.state().digest;
    assert_eq!(d.pools.keys().copied().collect::<Vec<_>>(), [PoolId(1)], "pools that exist");
    assert_eq!(d.purged_snaps, [(PoolId(1), maps::SnapIntervals::from_iter([(1, 3)]))].into());
    assert_eq!(d.osds.keys().copied().collect::<Vec<_>>(), [0], "OSDs that exist");
    let (_, _, text) = w.command(admin, r#"{"prefix":"status","format":"json"}"#);
    let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let map = &value["pgmap"];
    assert_eq!(
        [&map["num_pgs"], &map["num_objects"], &map["bytes_total"], &map["write_op_per_sec"]],
        [8, 7, 1_000 << 20, 10]
    );
    let (_, _, text) = w.command(admin, r#"{"prefix":"df","format":"json"}"#);
    let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!([&value["stats"]["num_osds"], &value["stats"]["total_bytes"]], [1, 1_000 << 20]);
    assert_eq!(value["pools"][0]["stats"]["max_avail"], 200 << 20);
    // The same again, of the same map, is no news.
    w.send(mgr, report(1, &digest(8)));
    let before = w.index;
    w.now = common::at(3);
    w.send(mgr, report(1, &digest(8)));
    assert_eq!(w.index, before);
}

/// What is long in a report is long again in each line of a table, or of the cluster log.
#[test]
fn what_a_report_has_without_number_or_end_has_a_bound() {
    let (mut w, admin, mgr) = under_ceph();
    // States and classes without number, and a pool whose objects lack all but one of their copies.
    let mut many = digest(8);
    many.num_pg_by_state = (0..70_000).map(|state| (state, i32::MAX)).collect();
    let class = OsdStat { num_osds: 1, ..OsdStat::default() };
    many.osd_sum_by_class = (0..100).map(|i| (i.to_string(), class.clone())).collect();
    many.osd_sum_by_class.insert("x".repeat(1 << 20), class);
    let mut stat = pool_stat(7, 70);
    (stat.stats.sum.num_object_copies, stat.stats.sum.num_objects_degraded) =
        (1 << 60, (1 << 60) - (1 << 20));
    (stat.store_stats.data_stored, stat.store_stats.omap_allocated) = (1 << 60, 1 << 60);
    many.pools.insert(1, stat);
    many.avail_by_rule = [(0, i64::MAX)].into();
    w.send(mgr, report(1, &many));
    assert!(w.mon.state().digest.sums.as_ref().is_some_and(|sums| sums.by_class.is_empty()));
    for command in ["status", "df", "health", "report"] {
        let (code, text, out) = w.command(admin, &format!(r#"{{"prefix":"{command}","detail":"detail"}}"#));
        assert_ne!(code, -5, "{command}: {text}");
        assert!(out.len() < 1 << 20, "{command}: {} bytes", out.len());
    }

    // A check as long as a report, of which the cluster log tells.
    let mut long = report(1, &digest(8));
    let check = HealthCheck { severity: 1, summary: "x".repeat(1 << 20), ..HealthCheck::default() };
    long.checks.checks = [("LONG".to_owned(), check)].into();
    (2..12).for_each(|secs| w.tick(secs));
    w.send(mgr, long);
    (12..22).for_each(|secs| w.tick(secs));
    let entries = w.mon.state().log.last(2_000, monitor::state::Priority::Debug, "cluster");
    assert!(entries.iter().any(|e| e.text.contains("xxx")), "it is told");
    assert!(entries.iter().all(|e| e.text.len() <= 4_096));
}

#[test]
fn the_service_map_goes_to_those_who_follow_it() {
    let (mut w, admin, mgr) = under_ceph();
    let item = SubscribeItem { start: 0, flags: 0 };
    w.send(
        admin,
        MMonSubscribe { what: [("servicemap".to_owned(), item)].into(), ..MMonSubscribe::default() },
    );
    let heard = |w: &mut World| -> Vec<ServiceMap> {
        let maps = w.sent(admin).into_iter().filter_map(|m| match m {
            Message::ServiceMap(m) => Some(ServiceMap::from_bytes(m.map.0).expect("a map")),
            _ => None,
        });
        maps.collect()
    };
    assert_eq!(heard(&mut w).iter().map(|m| m.epoch.0).collect::<Vec<_>>(), [1]);
    let mut map = ServiceMap { epoch: Epoch(5), ..ServiceMap::default() };
    let daemons = [("a".to_owned(), ServiceDaemon { gid: 77, ..ServiceDaemon::default() })].into();
    map.services.insert("rgw".to_owned(), Service { daemons, summary: String::new() });
    w.send(mgr, MMonMgrReport { service_map: map.to_bytes(), ..report(1, &digest(8)) });
    assert_eq!(heard(&mut w), [map.clone()]);
    let (_, _, text) = w.command(admin, r#"{"prefix":"status","format":"json"}"#);
    let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(value["servicemap"]["services"]["rgw"]["daemons"]["a"]["gid"], 77);
    let (_, _, text) = w.command(admin, r#"{"prefix":"status"}"#);
    assert!(text.contains("\n    osd: 1 osds:") && text.contains("\n    rgw: 1 daemon active\n"), "{text}");
    let again = Monitor::new(settings(), Box::new(SeededEntropy(1)), &w.mon.snapshot()).expect("a snapshot");
    assert_eq!(*again.state().service_map, map);
    // A report without one keeps it.
    w.send(mgr, report(1, &digest(8)));
    assert!(heard(&mut w).is_empty());
}

#[test]
fn cephs_manager_steps_pg_counts_itself() {
    let (mut w, admin, mgr) = under_ceph();
    w.send(mgr, report(1, &digest(8)));
    let set = |w: &mut World, var: &str, val: i64| {
        let cmd = format!(r#"{{"prefix":"osd pool set","pool":"p","var":"{var}","val":"{val}"}}"#);
        w.command(admin, &cmd)
    };
    let counts = |w: &World| {
        let p = w.mon.state().osdmap().pool(PoolId(1)).expect("the pool");
        [p.pg_num_target, p.pgp_num_target, p.pg_num, p.pg_num_pending, p.pgp_num]
    };
    assert_eq!(set(&mut w, "pg_num", 4).0, 0);
    assert_eq!(counts(&w), [4, 4, 8, 8, 8]);
    assert_eq!(set(&mut w, "pg_num_actual", 7).1, "specified pg_num 7 < pgp_num 8");
    assert_eq!(set(&mut w, "pgp_num_actual", 9).1, "specified pgp_num 9 > pg_num 8");
    assert_eq!(set(&mut w, "pgp_num_actual", 6).0, 0);
    assert_eq!(counts(&w), [4, 4, 8, 8, 6], "the targets stay");
    assert!(set(&mut w, "pg_num_actual", 6).1.contains("only single pg decrease"));
    assert_eq!(set(&mut w, "pg_num_actual", 7).0, 0);
    assert_eq!(counts(&w), [4, 4, 8, 7, 6], "the last PG is named");
    assert_eq!(set(&mut w, "pgp_num_actual", 8).1, "specified pgp_num 8 > pg_num_pending 7");
    assert_eq!(set(&mut w, "pg_num_actual", 12).0, 0);
    assert_eq!(counts(&w), [4, 4, 12, 12, 6]);
    for wrong in [0, -3, 1 << 40] {
        assert_eq!(set(&mut w, "pg_num_actual", wrong).0, -34, "{wrong}");
    }
}

#[test]
fn what_a_manager_leaves_behind_is_shut_out_and_forgotten() {
    let (mut w, admin, mgr) = under_ceph();
    let of_module = AddrVec::single(addr("v2:127.0.0.1:0/777"));
    let with_clients = MMgrBeacon {
        client_names: vec!["volumes".to_owned()],
        client_addrs: vec![of_module.clone()],
        ..beacon("z", 1, false)
    };
    w.send(mgr, with_clients);
    let (_, _, text) = w.command(admin, r#"{"prefix":"mgr dump"}"#);
    assert!(text.contains("127.0.0.1:0") && text.contains("volumes"), "{text}");
    // One that stands by brings commands of its own, which are not those of the one in charge.
    let mut ours = beacon("x", 2, true);
    ours.commands = vec![CommandDesc { cmdstring: "pg dump".to_owned(), ..CommandDesc::default() }];
    w.send(mgr, ours.clone());
    assert!(w.mon.state().mgr.commands.is_empty());
    assert_eq!(w.mon.state().mgr.metadata.len(), 2);
    w.command(admin, r#"{"prefix":"mgr fail"}"#);
    assert!(w.mon.state().osdmap().any_blocklisted(&of_module));
    assert_eq!(w.mon.state().mgr.metadata.keys().collect::<Vec<_>>(), ["x"]);
    w.send(mgr, ours);
    assert_eq!(w.mon.state().mgr.commands.len(), 1);
    // By the thousand they do not come.
    for gid in 10..300 {
        w.send(mgr, beacon(&format!("n{gid}"), gid, false));
    }
    assert_eq!(w.mon.state().mgr.standbys.len(), 64);
    assert_eq!(w.mon.state().mgr.metadata.len(), 65);
}

/// All of it is one entry of the monitors' log, and monitors take no message of any size.
#[test]
fn what_managers_say_of_themselves_has_a_bound() {
    let (mut w, admin, mgr) = under_ceph();
    for gid in 10..20 {
        let mut large = beacon(&format!("n{gid}"), gid, false);
        large.metadata.insert("x".to_owned(), "x".repeat(3 << 20));
        w.send(mgr, large);
    }
    let said = |w: &World| w.mon.state().mgr.to_bytes().len();
    assert!((9 << 20..16 << 20).contains(&said(&w)), "{} bytes", said(&w));
    assert!(refusals(&w) > 0);
    // The one in charge is still heard.
    w.send(mgr, MMgrBeacon { available: false, ..beacon("z", 1, false) });
    assert_eq!(w.mon.state().mgr.active.as_ref().map(|a| a.available), Some(false));
    assert_eq!(w.command(admin, r#"{"prefix":"mgr dump"}"#).0, 0);
}

/// The command that the monitor has for a manager of Ceph's, with its number.
fn for_manager(w: &mut World) -> Option<(u64, MMgrCommand)> {
    w.take().into_iter().find_map(|o| match o {
        Output::SendManager { tid, msg: Message::MgrCommand(command) } => Some((tid, command)),
        _ => None,
    })
}

#[test]
fn commands_for_cephs_manager_reach_it_over_the_monitors_session_with_it() {
    let (mut w, admin, mgr) = under_ceph();
    let dump = CommandDesc {
        cmdstring: "pg dump".to_owned(),
        module: "pg".to_owned(),
        req_perms: "r".to_owned(),
        ..CommandDesc::default()
    };
    w.send(mgr, MMgrBeacon { commands: vec![dump], ..beacon("z", 1, false) });
    let text = r#"{"prefix":"pg dump"}"#.to_owned();
    let command = || MMonCommand { fsid: FSID, cmd: vec![text.clone()], ..MMonCommand::default() };
    let answers = |w: &mut World| -> Vec<(i32, String)> {
        let acks = w.sent(admin).into_iter().filter_map(|m| match m {
            Message::MonCommandAck(ack) => Some((ack.result, ack.status)),
            _ => None,
        });
        acks.collect()
    };
    let answer = |tid, result, status: &str| {
        let status = status.to_owned();
        Input::FromManager { tid, msg: MMgrCommandReply { result, status, output: Bytes::new() }.into() }
    };

    // It waits for the session, if need be.
    w.send(admin, command());
    assert_eq!((for_manager(&mut w), answers(&mut w)), (None, vec![]));
    w.input(Input::ManagerConnected);
    let (tid, sent) = for_manager(&mut w).expect("a command");
    assert_eq!((sent.fsid, sent.cmd), (FSID, vec![text.clone()]));
    w.input(answer(tid + 1, 0, "nobody asked"));
    assert_eq!(answers(&mut w), []);
    w.input(answer(tid, 0, "dumped all"));
    assert_eq!(answers(&mut w), [(0, "dumped all".to_owned())]);
    w.input(answer(tid, 0, "again"));
    assert_eq!(answers(&mut w), []);

    // Who asked may be gone by the time of the answer, and so may be who was asked.
    w.send(admin, command());
    assert!(for_manager(&mut w).is_some(), "the session stands");
    w.input(Input::ManagerLost);
    assert_eq!(answers(&mut w), [(-110, "the manager did not answer".to_owned())]);
    w.input(Input::ManagerConnected);
    w.send(admin, command());
    let (tid, _) = for_manager(&mut w).expect("a command");
    w.input(Input::Disconnected { conn: admin });
    w.input(answer(tid, 0, "dumped all"));
    assert_eq!(answers(&mut w), []);

    // The session leads to the last manager until there is a new one.
    let admin = w.admin();
    w.send(mgr, MMgrBeacon { available: true, ..beacon("y", 3, false) });
    w.command(admin, r#"{"prefix":"mgr fail"}"#);
    w.send(mgr, beacon("y", 3, false));
    w.send(admin, command());
    assert_eq!(for_manager(&mut w), None);
    w.input(Input::ManagerConnected);
    assert!(for_manager(&mut w).is_some());

    // One of ours, which has taken over meanwhile, is asked over its own session.
    w.input(Input::ManagerLost);
    w.take();
    w.send(admin, command());
    w.send(mgr, beacon("x", 2, true));
    w.command(admin, r#"{"prefix":"mgr fail"}"#);
    w.input(Input::ManagerConnected);
    assert_eq!(answers(&mut w), [(-110, "the manager did not answer".to_owned())]);
    assert_eq!(for_manager(&mut w), None);
    // Until it serves there is nobody to ask.
    assert_eq!(w.command(admin, &text).0, -11);
}

#[test]
fn services_are_shown_with_what_they_are_busy_with() {
    let (mut w, admin, mgr) = under_ceph();
    let daemon = |tasks: &[(&str, &str)]| ServiceDaemon {
        task_status: tasks.iter().map(|(task, status)| ((*task).into(), (*status).into())).collect(),
        ..ServiceDaemon::default()
    };
    let service = |daemons: &[(&str, ServiceDaemon)], summary: &str| Service {
        daemons: daemons.iter().map(|(id, d)| ((*id).to_owned(), d.clone())).collect(),
        summary: summary.to_owned(),
    };
    let at = |host: &str, kind: &str| ServiceDaemon {
        metadata: [("hostname", host), ("zone_id", "z"), ("daemon_type", kind)]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into(),
        ..ServiceDaemon::default()
    };
    let mut map = ServiceMap { epoch: Epoch(5), ..ServiceMap::default() };
    let portals = [("a", at("h1", "portal")), ("b", at("h2", "portal")), ("c", at("h2", "portal"))];
    map.services.insert("gate".to_owned(), service(&portals, ""));
    map.services.insert("one".to_owned(), service(&portals[..1], ""));
    let busy = [("a", daemon(&[("resharding", "bucket x")])), ("b", daemon(&[]))];
    map.services.insert("rbd-mirror".to_owned(), service(&busy, ""));
    map.services.insert("iscsi".to_owned(), service(&[], "as it says"));
    map.services.insert("nfs".to_owned(), service(&[], ""));
    map.services.insert("mds".to_owned(), service(&busy[1..], ""));
    map.services.insert("n".repeat(300), service(&[], ""));
    w.send(mgr, MMonMgrReport { service_map: map.to_bytes(), ..report(1, &digest(8)) });
    let (_, _, text) = w.command(admin, r#"{"prefix":"status"}"#);
    let pad = |name: &str| format!("\n    {name}:{} ", " ".repeat(64 - name.len()));
    for (name, want) in [
        ("iscsi", "as it says"),
        ("nfs", "no daemons active"),
        ("rbd-mirror", "2 daemons active"),
        ("gate", "3 portals active (2 hosts, 1 zones)"),
        ("one", "1 portal active (1 hosts, 1 zones)"),
    ] {
        assert!(text.contains(&format!("{}{want}\n", pad(name))), "{name}: {text}");
    }
    assert!(!text.contains("\n    mds:"), "it has a map of its own");
    assert!(text.contains("\n  task status:\n    resharding:\n        rbd-mirror.a: bucket x\n"), "{text}");
    // None of them begins a line of its own choice, moves the cursor, or fills the page.
    let many: Vec<(String, String)> = (0..2_000).map(|i| (format!("t{i:04}"), "x".repeat(400))).collect();
    let task_status = many.into_iter().chain([("a\n  health:".into(), "\u{1b}[2J".into())]).collect();
    let daemons = [("x\ny".to_owned(), ServiceDaemon { task_status, ..ServiceDaemon::default() })].into();
    map.services = [("ev\nil".to_owned(), Service { daemons, summary: "HEALTH\nOK".to_owned() })].into();
    w.send(mgr, MMonMgrReport { service_map: map.to_bytes(), ..report(1, &digest(8)) });
    let (_, _, text) = w.command(admin, r#"{"prefix":"status"}"#);
    assert!(!text.contains('\u{1b}') && text.lines().count() < 600 && text.len() < 200_000, "{text}");
    for line in ["    a\\n  health::", "        ev\\nil.x\\ny: \\u{1b}[2J", "    and 1745 more"] {
        assert!(text.lines().any(|l| l == line), "{line}: {text}");
    }
    assert!(text.contains("    ev\\nil: HEALTH\\nOK\n"), "{text}");
    // By the thousand they are counted.
    map.services = (0..2_000).map(|i| (format!("s{i}"), Service::default())).collect();
    w.send(mgr, MMonMgrReport { service_map: map.to_bytes(), ..report(1, &digest(8)) });
    let (_, _, text) = w.command(admin, r#"{"prefix":"status"}"#);
    assert!(text.lines().count() < 300 && text.contains("\n    and 1744 more\n"), "{text}");
}

#[test]
fn options_of_modules_are_what_the_manager_in_charge_says() {
    let (mut w, admin, mgr) = under_ceph();
    let option = |name: &str, kind: u8, default: &str, choices: &[&str]| {
        let option = ModuleOption {
            name: name.to_owned(),
            kind,
            level: 1,
            flags: 1,
            default_value: default.to_owned(),
            enum_allowed: choices.iter().map(|c| (*c).to_owned()).collect(),
            desc: "how".to_owned(),
            see_also: ["active".to_owned(), "osd_max_backfills".to_owned()].into(),
            ..ModuleOption::default()
        };
        (name.to_owned(), RawEnvelope(option.to_bytes()))
    };
    let options = [option("mode", 2, "upmap", &["none", "upmap"]), option("active", 4, "True", &[])].into();
    let balancer =
        ModuleInfo { name: "balancer".to_owned(), can_run: true, options, ..ModuleInfo::default() };
    w.send(mgr, MMgrBeacon { modules: vec![balancer], ..beacon("z", 1, false) });
    let say = |w: &mut World, what: &str| {
        let words: Vec<&str> = what.split(' ').collect();
        let command = match words.as_slice() {
            ["set", name, value] => {
                json!({ "prefix": "config set", "who": "mgr", "name": name, "value": value })
            }
            ["get", name] => json!({ "prefix": "config get", "who": "mgr.z", "key": name }),
            [verb, name] => json!({ "prefix": format!("config {verb}"), "key": name }),
            other => panic!("{other:?}"),
        };
        let (code, text, out) = w.command(admin, &command.to_string());
        (code, text + &out)
    };
    let text = |text: &str| (0, text.to_owned());
    let refused = |text: &str| (-22, text.to_owned());
    let worst = "error parsing value: 'worst' is not one of the permitted values: none, upmap";
    assert_eq!(say(&mut w, "set mgr/balancer/mode worst"), refused(worst));
    let unknown = "unrecognized config option 'mgr/balancer/speed'";
    assert_eq!(say(&mut w, "set mgr/balancer/speed 1"), refused(unknown));
    assert_eq!(say(&mut w, "get mgr/balancer/mode"), text("upmap\n"));
    assert_eq!(say(&mut w, "get mgr/balancer/active"), text("true\n"));
    assert_eq!(say(&mut w, "set mgr/balancer/active 0"), text(""));
    assert_eq!(say(&mut w, "get mgr/balancer/active"), text("false\n"));
    assert_eq!(say(&mut w, "set mgr/balancer/z/mode none"), text(""), "for one manager");
    let (code, help) = say(&mut w, "help mgr/balancer/mode");
    assert_eq!(code, 0);
    assert!(help.starts_with("mgr/balancer/mode - how\n  (str, advanced)\n  Default: upmap\n"), "{help}");
    assert!(help.contains("  Can update at runtime: true\n"), "{help}");
    assert!(help.ends_with("  See also: [mgr/balancer/active,osd_max_backfills]\n"), "{help}");
    assert_eq!(say(&mut w, "help mgr/balancer/speed").0, -2);
    let (_, _, all) = w.command(admin, r#"{"prefix":"config ls"}"#);
    assert!(all.ends_with("\nmgr/balancer/active\nmgr/balancer/mode\n"));
    let (_, _, dump) = w.command(admin, r#"{"prefix":"config dump","format":"json"}"#);
    assert!(dump.contains(r#""name":"mgr/balancer/active","value":"false","level":"advanced""#), "{dump}");

    // Ours says nothing of its options, and takes them as they come.
    w.send(mgr, beacon("x", 2, true));
    w.command(admin, r#"{"prefix":"mgr fail"}"#);
    assert_eq!(say(&mut w, "set mgr/balancer/speed 1"), text(""));
    assert_eq!(say(&mut w, "help mgr/balancer/mode").0, -2);
}

#[test]
fn services_of_a_manager_of_ours_are_kept_and_numbered() {
    let (mut w, admin, mgr) = under_ceph();
    let theirs = ServiceMap {
        epoch: Epoch(7),
        services: [("nfs".to_owned(), Service::default())].into(),
        ..ServiceMap::default()
    };
    w.send(mgr, MMonMgrReport { service_map: theirs.to_bytes(), ..report(1, &digest(8)) });
    w.send(mgr, beacon("x", 2, true));
    w.command(admin, r#"{"prefix":"mgr fail"}"#);
    let say = |w: &mut World, services: Option<ServiceMap>| {
        let summary = PgDigest { services, ..PgDigest::default() }.to_bytes();
        w.send(mgr, MPgDigest { epoch: Epoch(1), gid: 2, summary });
        let map = &w.mon.state().service_map;
        (map.epoch.0, map.services.keys().cloned().collect::<Vec<_>>())
    };
    let of = |names: &[&str]| ServiceMap {
        epoch: Epoch(1),
        services: names.iter().map(|n| ((*n).to_owned(), Service::default())).collect(),
        ..ServiceMap::default()
    };
    assert_eq!(say(&mut w, None), (7, vec!["nfs".to_owned()]), "it has none to tell of yet");
    assert_eq!(say(&mut w, Some(of(&["rgw"]))), (8, vec!["rgw".to_owned()]));
    assert_eq!(say(&mut w, Some(of(&["rgw"]))), (8, vec!["rgw".to_owned()]), "no news");
    assert_eq!(say(&mut w, None).0, 8);
    let large = of(&[&"x".repeat(2 << 20)]);
    for _ in 0..2 {
        assert_eq!(say(&mut w, Some(large.clone())).0, 8);
    }
    assert_eq!((counted(&mut w, "mgr_refused"), refusals(&w)), (2, 1), "it is said that it was too large");
    assert_eq!(say(&mut w, Some(of(&[]))), (9, vec![]));
    assert_eq!(w.mon.state().digest.services, None);
}

fn modules(w: &World) -> Vec<String> {
    w.mon.state().mgr.map().modules.into_iter().collect()
}

#[test]
fn modules_are_switched_as_the_managers_have_them() {
    let (mut w, admin, mgr) = under_ceph();
    let mut z = beacon("z", 1, false);
    let module = |name: &str, error: &str| ModuleInfo {
        name: name.to_owned(),
        can_run: error.is_empty(),
        error: error.to_owned(),
        ..ModuleInfo::default()
    };
    z.modules = vec![module("iostat", ""), module("prometheus", ""), module("dashboard", "no cherrypy")];
    w.send(mgr, z);
    let say = |w: &mut World, verb: &str, name: &str| {
        let (code, text, _) =
            w.command(admin, &format!(r#"{{"prefix":"mgr module {verb}","module":"{name}"}}"#));
        (code, text)
    };
    let done = (0, String::new());
    for (verb, name, code, text) in [
        ("enable", "balancer", 0, "module 'balancer' is already enabled (always-on)"),
        ("disable", "balancer", -22, "module 'balancer' cannot be disabled (always-on)"),
        ("enable", "iostat", 0, "module 'iostat' is already enabled"),
        ("disable", "prometheus", 0, "module 'prometheus' is already disabled"),
        ("enable", "x", -2, "all mgr daemons do not support module 'x', pass --force to force enablement"),
    ] {
        assert_eq!(say(&mut w, verb, name), (code, text.to_owned()));
    }
    let (code, text) = say(&mut w, "enable", "dashboard");
    assert!(code == -2 && text.contains("cannot run on the active manager daemon: no cherrypy"), "{text}");
    assert_eq!(say(&mut w, "enable", "prometheus"), done);
    assert_eq!(say(&mut w, "disable", "restful"), done);
    assert_eq!(modules(&w), ["iostat", "nfs", "prometheus"]);
    let served = |w: &mut World| {
        let (_, _, text) = w.command(admin, r#"{"prefix":"health","detail":"detail"}"#);
        !text.contains("module 'prometheus' is enabled and the active mgr does not have it")
    };
    assert!(served(&mut w));

    // Ours takes over: what was enabled stays.
    w.send(mgr, beacon("x", 2, true));
    w.command(admin, r#"{"prefix":"mgr fail"}"#);
    assert_eq!(modules(&w), ["iostat", "nfs", "prometheus"]);
    assert!(!served(&mut w));
    assert_eq!(say(&mut w, "disable", "iostat"), done);
    assert_eq!(say(&mut w, "enable", "iostat"), done, "ours stands for it");
    assert_eq!(say(&mut w, "enable", "zabbix").0, -2);
    assert_eq!(say(&mut w, "disable", "prometheus"), done);
    assert!(served(&mut w));
    // With force any name goes in, but neither without end nor of any length.
    let force = |w: &mut World, name: &str| {
        let cmd = format!(r#"{{"prefix":"mgr module enable","module":"{name}","force":"--force"}}"#);
        w.command(admin, &cmd).0
    };
    assert_eq!(force(&mut w, "dashboard"), 0);
    assert_eq!(force(&mut w, &"x".repeat(65)), -22);
    let last = (0..200).map(|i| force(&mut w, &format!("m{i}"))).collect::<Vec<_>>();
    assert_eq!((last.first(), last.last(), modules(&w).len()), (Some(&0), Some(&-22), 128));
}

/// A manager that starts again while it starts had no address to be shut out by: the next one waits for no
/// map.
#[test]
fn no_manager_waits_for_a_map_that_never_comes() {
    let (mut w, _, mgr) = under_ceph();
    let waits = |w: &World| {
        let (map, newest) = (w.mon.state().mgr.map(), w.mon.state().osds.newest());
        map.last_failure_osd_epoch > newest
    };
    let starting =
        |gid| MMgrBeacon { available: false, addrs: AddrVec::default(), ..beacon("z", gid, false) };
    for gid in 2..5 {
        w.send(mgr, starting(gid));
        assert_eq!(w.mon.state().mgr.active.as_ref().map(|a| a.gid), Some(gid));
        assert!(!waits(&w), "{gid}");
    }
    assert!(w.mon.state().mgr.last_failure_osd_epoch > Epoch(0), "the first one was shut out");
}

/// Ceph's manager keeps its process, and with it its address, when it starts anew: as it does when modules
/// are switched.
#[test]
fn cephs_manager_comes_back_under_its_old_address() {
    let (mut w, _, mgr) = under_ceph();
    let of =
        |ours: bool, gid: u64| MMgrBeacon { addrs: beacon("z", 1, ours).addrs, ..beacon("z", gid, ours) };
    w.send(mgr, MMgrBeacon { available: false, addrs: AddrVec::default(), ..of(false, 2) });
    assert!(w.mon.state().osdmap().any_blocklisted(&of(false, 1).addrs), "its last life is shut out");
    w.send(mgr, of(false, 2));
    let active = |w: &World| w.mon.state().mgr.active.as_ref().map(|a| (a.gid, a.available));
    assert_eq!(active(&w), Some((2, true)));
    // One of ours has an address for each life.
    w.send(mgr, of(true, 3));
    assert_eq!(active(&w), Some((2, true)));
}

//! Managers of Ceph's in the place of ours: what tickets then look like, and who may say so.

mod common;

use cephx::{
    AuthClient, AuthError, AuthorizerAcceptor, CryptoKey, EntityAuth, ServiceSecrets, TicketForm, Verdict,
};
use codec::{Decode, Encode};
use common::{FSID, World, addr, settings};
use maps::MgrMap;
use messages::Message;
use messages::mgr::MMgrBeacon;
use messages::mon::{MMonSubscribe, SubscribeItem};
use monitor::state::{MgrDaemon, MgrState, log_line};
use monitor::{CON_MODE_SECURE, Input, Monitor, Output};
use types::{AddrVec, AuthName, ConnId, EntityName, EntityType, GlobalId, SeededEntropy};

fn beacon(name: &str, gid: u64, ours: bool) -> MMgrBeacon {
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
                Verdict::Refused(AuthError::Undecryptable(_)) => false,
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
    // A manager's name with a key that may only read.
    let mut weak = EntityAuth::default();
    weak.key = CryptoKey::new([8; 16], types::Utime::ZERO);
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
    assert!(audit(&w).is_empty());
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

//! Recorded connections between a real 16.2.15 client and monitor: from the same inputs, both of our ends
//! produce the same bytes. One without authentication in crc mode, one with cephx in secure mode (its keys
//! are in the file).

use crate::common;

use bytes::BytesMut;
use common::{addr, now};
use msgr::{
    ConMode, Connection, Event, Limits, Local, Peer, Policy, Ready, Session, SessionRequest, Verdict, decide,
};
use types::{AddrVec, EntityAddr, EntityName, EntityType};

struct Recording {
    key: Vec<u8>,
    secret: Vec<u8>,
    /// Who sent what, in the order of time.
    turns: Vec<(bool, Vec<u8>)>,
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len() / 2).map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).expect("hex")).collect()
}

fn parse(text: &str) -> Recording {
    let mut r = Recording { key: vec![], secret: vec![], turns: vec![] };
    for line in text.lines() {
        let (what, hex) = line.split_once(' ').unwrap_or((line, ""));
        match what {
            "key" => r.key = unhex(hex),
            "secret" => r.secret = unhex(hex),
            _ => r.turns.push((what == "client", unhex(hex))),
        }
    }
    r
}

/// Feeds one end with what its real counterpart sent and collects what it says.
struct Listener {
    conn: Connection,
    buf: BytesMut,
}

impl Listener {
    fn hear(&mut self, bytes: &[u8]) -> Vec<Event> {
        self.buf.extend_from_slice(bytes);
        self.conn.handle_bytes(now(0), &mut self.buf);
        self.events()
    }

    fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.conn.poll_event()).collect()
    }

    fn sent(&mut self) -> Vec<u8> {
        let mut out = vec![];
        self.conn.take_outgoing(&mut out);
        out.concat()
    }
}

/// The real client's frames as our acceptor reads them tell what our connector must be told to say, and the
/// reverse.
struct Replay {
    client: Listener,
    server: Listener,
    from_client: Vec<Event>,
    from_server: Vec<Event>,
    recording: Recording,
}

impl Replay {
    fn run(recording: Recording, idents: &Idents) -> (Vec<Event>, Vec<Event>) {
        let client_local =
            Local { name: EntityName::new(EntityType::Client, -1), addrs: idents.client_addrs.clone() };
        let policy = Policy::lossless_client();
        assert_eq!(policy.features_required, 0x0800_0000_0000_0000);
        let peer = Peer { name: EntityName::new(EntityType::Mon, 0), ..Peer::default() };
        let session = Session::outgoing(policy, peer, idents.client_cookie);
        let (gs, target) = (1, idents.server_addrs.0[0]);
        let client = Connection::connect(now(0), client_local, session, target, gs, 1, Limits::default());
        let server_local = Local { name: EntityName::mon(0), addrs: idents.server_addrs.clone() };
        let server = Connection::accept(now(0), server_local, idents.client_socket, Limits::default());
        let listener = |conn| Listener { conn, buf: BytesMut::new() };
        let mut r = Self {
            client: listener(client),
            server: listener(server),
            from_client: vec![],
            from_server: vec![],
            recording,
        };
        r.play(idents);
        (r.from_client, r.from_server)
    }

    fn play(&mut self, idents: &Idents) {
        let turns = std::mem::take(&mut self.recording.turns);
        let (mut want_client, mut want_server) = (vec![], vec![]);
        let (mut got_client, mut got_server) = (vec![], vec![]);
        for (by_client, bytes) in turns {
            if by_client {
                want_client.extend_from_slice(&bytes);
                let said = self.server.hear(&bytes);
                for event in &said {
                    self.client_says(event, idents);
                }
                self.from_client.extend(said);
            } else {
                want_server.extend_from_slice(&bytes);
                let said = self.client.hear(&bytes);
                for event in &said {
                    self.server_says(event);
                }
                self.from_server.extend(said);
            }
            got_client.extend(self.client.sent());
            got_server.extend(self.server.sent());
            // Frames that a later turn tells about may come early, wrong bytes may not come at all.
            let n = got_client.len().min(want_client.len());
            assert_eq!(got_client[..n], want_client[..n], "the client's bytes");
            let n = got_server.len().min(want_server.len());
            assert_eq!(got_server[..n], want_server[..n], "the server's bytes");
        }
        assert_eq!(got_client.len(), want_client.len());
        assert_eq!(got_server.len(), want_server.len());
    }

    fn client_says(&mut self, event: &Event, idents: &Idents) {
        let c = &mut self.client.conn;
        match event {
            Event::AuthRequest { method, preferred_modes, payload } => {
                let modes: Vec<_> = preferred_modes.iter().filter_map(|m| ConMode::from_u32(*m)).collect();
                c.auth_request(*method, &modes, payload.clone());
            }
            Event::AuthRequestMore { payload } => c.auth_request_more(payload.clone()),
            Event::Message(m) => c.send(m.clone()).expect("a session"),
            Event::SessionRequest(request) => {
                let SessionRequest::Open(ident) = request else { panic!("opens") };
                assert_eq!((ident.flags, ident.cookie), (0, idents.client_cookie));
                let ours = &idents.server_addrs;
                let mut policy = Policy::stateless_server();
                policy.features_required = idents.server_required;
                assert_eq!(decide(ours, &policy, request, None), Verdict::Fresh { close_existing: false });
                self.server.conn.accept_session(Session::incoming(policy), idents.server_global_seq, 0);
                let more = self.server.events();
                assert!(matches!(more.as_slice(), [Event::Ready(Ready { lossy: true, .. })]), "{more:?}");
            }
            Event::Hello { .. } => {}
            other => panic!("unexpected from the client: {other:?}"),
        }
        let more = self.client.events();
        assert!(more.is_empty(), "{more:?}");
    }

    fn server_says(&mut self, event: &Event) {
        let s = &mut self.server.conn;
        let (key, secret) = (self.recording.key.clone(), self.recording.secret.clone());
        match event {
            Event::AuthReplyMore { payload } => s.auth_reply_more(payload.clone()),
            Event::AuthDone { global_id, mode, payload } => {
                s.auth_done(*global_id, *mode, payload.clone(), &key, &secret);
                self.client.conn.auth_established(&key, &secret);
                let more = self.client.events();
                assert!(more.is_empty(), "{more:?}");
            }
            Event::Message(m) => s.send(m.clone()).expect("a session"),
            Event::Hello { .. } => {}
            Event::Ready(ready) => assert!(ready.lossy),
            other => panic!("unexpected from the server: {other:?}"),
        }
    }
}

/// What the recording's idents say, which only its end knows at the start.
struct Idents {
    client_socket: EntityAddr,
    client_addrs: AddrVec,
    client_cookie: u64,
    server_addrs: AddrVec,
    server_global_seq: u64,
    server_required: u64,
}

fn check(text: &str, idents: &Idents) {
    let (from_client, from_server) = Replay::run(parse(text), idents);
    // MON_GET_MAP and MON_SUBSCRIBE; two monitor maps and a config in between.
    assert_eq!(messages(&from_client), [(5, 1, 0), (15, 2, 48)]);
    assert_eq!(messages(&from_server), [(4, 1, 205), (62, 2, 4), (4, 3, 205)]);
    assert!(from_client.iter().any(|e| matches!(e, Event::Hello { entity_type: 8, .. })));
}

/// Type, seq and length of front.
fn messages(events: &[Event]) -> Vec<(u16, u64, usize)> {
    events
        .iter()
        .filter_map(|e| match e {
            Event::Message(m) => Some((m.header.ty, m.header.seq, m.front.len())),
            _ => None,
        })
        .collect()
}

fn any_port(nonce: u32) -> AddrVec {
    let mut a = addr("v2:127.0.0.1:0/0");
    (a.kind, a.nonce) = (types::AddrKind::Any, nonce);
    AddrVec::single(a)
}

#[test]
fn without_authentication_in_crc_mode() {
    let idents = Idents {
        client_socket: addr("v2:127.0.0.1:38448/0"),
        client_addrs: any_port(2_764_022_084),
        client_cookie: 0x7fcf_6018_1020_1bee,
        server_addrs: AddrVec(vec![addr("v2:127.0.0.1:41789/0"), addr("v1:127.0.0.1:41790/0")]),
        server_global_seq: 0x13,
        server_required: 0x0c01_0200_0204_0000,
    };
    check(include_str!("golden/none-crc.txt"), &idents);
}

#[test]
fn with_cephx_in_secure_mode() {
    let idents = Idents {
        client_socket: addr("v2:127.0.0.1:39248/0"),
        client_addrs: any_port(3_501_521_580),
        client_cookie: 0xae75_f18c_48b5_7842,
        server_addrs: AddrVec(vec![addr("v2:127.0.0.1:40789/0"), addr("v1:127.0.0.1:40790/0")]),
        server_global_seq: 0x3f,
        server_required: 0x0c01_0200_4204_0000,
    };
    check(include_str!("golden/cephx-secure.txt"), &idents);
}

//! Bytes recorded against the real Ceph: what it accepted is written here, and what it sent is read here.

use std::collections::BTreeMap;

use bytes::Bytes;
use codec::{Decode, Encode, Reader};
use types::{AuthName, EntityType, GlobalId, Utime};

use crate::crypt::take_encrypted;
use crate::protocol::{Authenticate, Authorize};
use crate::{
    AuthClient, AuthMode, CryptoKey, EntityAuth, Entropy, LoginRequest, RotatingKeys, TicketBlob, TicketForm,
    TicketInfo, open_ticket, seal_ticket,
};

struct Recorded(BTreeMap<&'static str, &'static str>);

impl Recorded {
    fn load() -> Self {
        let lines = include_str!("../tests/data/handshake.txt").lines().filter(|l| !l.starts_with('#'));
        Self(lines.filter_map(|l| l.split_once(' ')).collect())
    }

    fn bytes(&self, name: &str) -> Bytes {
        let hex = self.0[name].as_bytes();
        let digit = |c: u8| char::from(c).to_digit(16).expect("a hex digit") as u8;
        hex.chunks_exact(2).map(|p| digit(p[0]) << 4 | digit(p[1])).collect::<Vec<u8>>().into()
    }

    fn key(&self, name: &str) -> CryptoKey {
        CryptoKey::from_base64(self.0[name]).expect("a key")
    }

    fn client(&self) -> AuthClient {
        let name = AuthName::new(EntityType::Client, "loligo-golden");
        let want = [EntityType::Mon, EntityType::Osd, EntityType::Mgr, EntityType::Mds];
        AuthClient::new(name, self.key("key"), &want)
    }
}

/// Gives these bytes, and only as often as they are asked for.
fn fixed(bytes: [u8; 8]) -> impl Entropy {
    move |out: &mut [u8]| out.copy_from_slice(&bytes)
}

const NOW: Utime = Utime { sec: 1_795_297_600, nsec: 0 };

/// Repeats the first recorded login; the client then holds tickets.
fn logged_in(rec: &Recorded) -> AuthClient {
    let mut client = rec.client();
    assert_eq!(client.start_login(), rec.bytes("request"));
    let sent = Authenticate::from_bytes(rec.bytes("answer").slice(2..)).expect("decodes");
    let mut entropy = fixed(sent.client_challenge.to_le_bytes());
    let answer = client.handle_challenge(&rec.bytes("challenge"), NOW, &mut entropy).expect("answers");
    assert_eq!(answer, rec.bytes("answer"));
    let shared = client.handle_done(GlobalId(14441), &rec.bytes("done"), NOW).expect("done");
    assert_eq!(shared.session_key, rec.key("session_key"));
    assert!(shared.connection_secret.is_empty());
    client
}

#[test]
fn a_login_sends_and_reads_the_recorded_bytes() {
    let rec = Recorded::load();
    let client = logged_in(&rec);
    assert_eq!(client.need(NOW), []);
    assert_eq!(client.global_id(), GlobalId(14441));
    let later = |s: u32| Utime::new(NOW.sec + s, 0);
    assert_eq!(client.need(later(3600 * 3 / 4 - 1)), []);
    assert_eq!(client.need(later(3600 * 3 / 4)).len(), 4, "service tickets last an hour, renewed after 3/4");
    assert!(client.have(EntityType::Osd, later(3599)) && !client.have(EntityType::Osd, later(3600)));
    assert!(client.have(EntityType::Auth, later(72 * 3600 - 1)));
}

#[test]
fn a_reconnection_presents_the_old_ticket_and_takes_the_connection_secret() {
    let rec = Recorded::load();
    let mut client = logged_in(&rec);
    assert_eq!(client.start_login(), rec.bytes("request2"));
    let sent = Authenticate::from_bytes(rec.bytes("answer2").slice(2..)).expect("decodes");
    let mut entropy = fixed(sent.client_challenge.to_le_bytes());
    let answer = client.handle_challenge(&rec.bytes("challenge2"), NOW, &mut entropy).expect("answers");
    assert_eq!(answer, rec.bytes("answer2"));
    let shared = client.handle_done(GlobalId(14441), &rec.bytes("done2"), NOW).expect("done");
    assert_eq!(shared.session_key, rec.key("session_key2"));
    assert_eq!(shared.connection_secret.len(), crate::CONNECTION_SECRET_LEN);
}

/// The tickets of the first login made the recorded authorizers (the second login renewed no OSD ticket).
#[test]
fn authorizers_are_the_recorded_bytes() {
    let rec = Recorded::load();
    let client = logged_in(&rec);
    let osd_key = osd_ticket(&rec).session_key;
    for (suffix, secret_len) in [("", 0), ("2", crate::CONNECTION_SECRET_LEN)] {
        let of = |name: &str| rec.bytes(&format!("{name}{suffix}"));
        let request = of("osd_request");
        let mut tail = Reader::new(request.slice(authorizer_base(&request)..));
        let sent: Authorize = take_encrypted(&mut tail, &osd_key, "authorize").expect("decrypts");
        let mut entropy = fixed(sent.nonce.to_le_bytes());
        let mut authorizer = client.authorizer(EntityType::Osd, NOW, &mut entropy).expect("a ticket");
        assert_eq!(authorizer.payload(), request);
        assert_eq!(AuthMode::of(&request), Ok(AuthMode::Authorizer));
        assert_eq!(authorizer.add_challenge(&of("osd_challenge")).expect("challenge"), of("osd_answer"));
        let shared = authorizer.verify_reply(&of("osd_done")).expect("reply");
        assert_eq!(shared.connection_secret.len(), secret_len);
        assert_eq!(shared.session_key, osd_key);
    }
}

/// Length of what precedes an authorizer's encrypted part: version, global id, service, ticket blob.
fn authorizer_base(authorizer: &[u8]) -> usize {
    let at = 1 + 8 + 4 + 1 + 8;
    at + 4 + u32::from_le_bytes(authorizer[at..at + 4].try_into().expect("four bytes")) as usize
}

/// The recorded OSD ticket, opened as Ceph seals its tickets.
fn osd_ticket(rec: &Recorded) -> TicketInfo {
    let blob = TicketBlob::from_bytes(rec.bytes("osd_request").slice(13..)).expect("decodes");
    let rotating = RotatingKeys::from_bytes(rec.bytes("rotating")).expect("decodes");
    let secret = rotating.of(EntityType::Osd).and_then(|s| s.get(blob.secret_id)).expect("known secret");
    let info = open_ticket(TicketForm::Ceph, EntityType::Osd, secret, &blob).expect("opens");
    let ours =
        seal_ticket(TicketForm::Ceph, EntityType::Osd, blob.secret_id, secret, &info, &mut fixed([0; 8]));
    assert_eq!(ours, Ok(blob), "byte for byte as Ceph's");
    info
}

#[test]
fn tickets_hold_what_ceph_puts_into_them() {
    let rec = Recorded::load();
    let info = osd_ticket(&rec);
    assert_eq!(info.ticket.name.to_string(), "client.loligo-golden");
    assert_eq!(info.ticket.global_id, GlobalId(14441));
    assert_eq!(info.ticket.caps.text().as_deref(), Ok("allow rw pool=x"));
    assert_eq!(info.ticket.expires.since(info.ticket.created).as_secs(), 3600);
}

#[test]
fn stored_values_come_back_unchanged() {
    let rec = Recorded::load();
    let entity = EntityAuth::from_bytes(rec.bytes("entity")).expect("decodes");
    assert_eq!(entity.to_bytes(), rec.bytes("entity"));
    assert_eq!(entity.key, rec.key("key"));
    assert_eq!(entity.key.to_base64(), rec.0["key"]);
    assert_eq!(entity.caps["osd"], "allow rw pool=x");
    let rotating = RotatingKeys::from_bytes(rec.bytes("rotating")).expect("decodes");
    assert_eq!(rotating.to_bytes(), rec.bytes("rotating"));
    assert_eq!(rotating.version, 1);
    let request = LoginRequest::parse(&rec.bytes("request2")).expect("parses");
    assert_eq!(
        (request.name.to_string().as_str(), request.global_id),
        ("client.loligo-golden", GlobalId(14441))
    );
}

#[test]
fn every_truncation_of_the_recorded_bytes_is_an_error() {
    let rec = Recorded::load();
    for name in ["entity", "rotating", "request", "done", "osd_request"] {
        let whole = rec.bytes(name);
        for n in 0..whole.len() {
            let cut = whole.slice(..n);
            let refused = match name {
                "entity" => EntityAuth::from_bytes(cut).is_err(),
                "rotating" => RotatingKeys::from_bytes(cut).is_err(),
                "request" => LoginRequest::parse(&cut).is_err(),
                "done" => {
                    let mut client = rec.client();
                    client.start_login();
                    let mut entropy = fixed([1; 8]);
                    client.handle_challenge(&rec.bytes("challenge"), NOW, &mut entropy).expect("answers");
                    let got = client.handle_done(GlobalId(1), &cut, NOW);
                    // Old monitors end behind the login's ticket: that one cut is a whole reply.
                    got.is_err() || (got.is_ok() && !client.have(EntityType::Osd, NOW))
                }
                _ => TicketBlob::from_bytes(cut.slice(n.min(13)..)).is_err() || n >= authorizer_base(&whole),
            };
            assert!(refused, "{name} cut to {n} bytes");
        }
    }
}

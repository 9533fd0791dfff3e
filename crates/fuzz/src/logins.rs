//! Logins and authorizers, with keys that fit: both ends get beyond the first check.

use std::sync::OnceLock;

use bytes::Bytes;
use cephx::{
    AuthClient, AuthSession, AuthorizerAcceptor, CONNECTION_SECRET_LEN, CryptoKey, EntityAuth, KeyServer,
    LoginRequest, SERVICES, ServiceSecrets, Verdict,
};
use types::{AuthName, EntityType, GlobalId, Utime};

const NOW: Utime = Utime { sec: 1_800_000_000, nsec: 0 };
/// Tickets of an hour are due to be renewed.
const LATER: Utime = Utime { sec: NOW.sec + 2_800, nsec: 0 };
const ID: GlobalId = GlobalId(5);

/// No random numbers: a seed's answer then fits the challenge of every run.
fn fixed(out: &mut [u8]) {
    out.fill(7);
}

fn name() -> AuthName {
    AuthName::new(EntityType::Client, "x")
}

fn key() -> CryptoKey {
    CryptoKey::new([1; 16], Utime::ZERO)
}

fn keys() -> &'static KeyServer {
    static KEYS: OnceLock<KeyServer> = OnceLock::new();
    KEYS.get_or_init(|| {
        let mut keys = KeyServer::default();
        let caps = [("mon", "allow *"), ("osd", "allow *")].map(|(s, c)| (s.to_owned(), c.to_owned()));
        keys.entities.insert(name(), EntityAuth { key: key(), caps: caps.into() });
        if let Some(next) = keys.rotated(NOW, &mut fixed) {
            keys.rotating = next;
        }
        keys
    })
}

fn secrets() -> ServiceSecrets {
    let mut secrets = ServiceSecrets::new(EntityType::Osd);
    if let Some(rotating) = keys().rotating.of(EntityType::Osd) {
        secrets.rotating = rotating.clone();
    }
    secrets
}

/// What stands behind its length of two bytes, up to three times.
fn parts(data: &[u8]) -> [Bytes; 3] {
    let mut rest = data;
    [(); 3].map(|()| {
        let Some((len, body)) = rest.split_first_chunk::<2>() else { return Bytes::new() };
        let (part, more) = body.split_at(usize::from(u16::from_le_bytes(*len)).min(body.len()));
        rest = more;
        Bytes::copy_from_slice(part)
    })
}

fn joined(parts: &[Bytes]) -> Vec<u8> {
    parts.iter().flat_map(|p| [&(p.len() as u16).to_le_bytes()[..], p].concat()).collect()
}

/// A login at a monitor: the request, the answer to the challenge, and a request on the session.
pub(crate) fn login(data: &[u8]) {
    let [request, answer, renewal] = parts(data);
    let _ = cephx::AuthMode::of(&request);
    let Ok(request) = LoginRequest::parse(&request) else { return };
    let (mut session, _) = AuthSession::start(request, ID, &mut fixed);
    let _ = session.handle_request(keys(), &answer, Some(CONNECTION_SECRET_LEN), NOW, &mut fixed);
    let _ = session.handle_request(keys(), &renewal, None, LATER, &mut fixed);
}

/// The client's end: the challenge, the grant, and the answer to a renewal.
pub(crate) fn login_client(data: &[u8]) {
    let [challenge, done, reply] = parts(data);
    let mut client = AuthClient::new(name(), key(), &SERVICES);
    client.start_login();
    let _ = client.handle_challenge(&challenge, NOW, &mut fixed);
    let _ = client.handle_done(ID, &done, NOW);
    let _ = client.handle_reply(0, &reply, LATER);
}

/// A daemon's end of an authorizer: the first, and the one that answers the challenge.
pub(crate) fn authorizer(data: &[u8]) {
    let [first, second, _] = parts(data);
    let mut acceptor = AuthorizerAcceptor::new();
    for payload in [first, second] {
        let _ = acceptor.verify(&secrets(), &payload, CONNECTION_SECRET_LEN, NOW, &mut fixed);
    }
}

/// A whole login by both ends: the inputs of the three targets.
fn played() -> Option<[Vec<u8>; 3]> {
    let mut client = AuthClient::new(name(), key(), &SERVICES);
    let request = client.start_login();
    let (mut session, challenge) = AuthSession::start(LoginRequest::parse(&request).ok()?, ID, &mut fixed);
    let answer = client.handle_challenge(&challenge, NOW, &mut fixed).ok()?;
    let secret_len = Some(CONNECTION_SECRET_LEN);
    let done = session.handle_request(keys(), &answer, secret_len, NOW, &mut fixed).ok()?.payload;
    client.handle_done(ID, &done, NOW).ok()?;
    let renewal = client.renewal_request(LATER, &mut fixed).ok()??;
    let reply = session.handle_request(keys(), &renewal, None, LATER, &mut fixed).ok()?.payload;
    let mut authorizer = client.authorizer(EntityType::Osd, NOW, &mut fixed).ok()?;
    let first = authorizer.payload();
    let verdict =
        AuthorizerAcceptor::new().verify(&secrets(), &first, CONNECTION_SECRET_LEN, NOW, &mut fixed);
    let Verdict::NeedChallenge(challenge_of_osd) = verdict else { return None };
    let second = authorizer.add_challenge(&challenge_of_osd).ok()?;
    Some([joined(&[request, answer, renewal]), joined(&[challenge, done, reply]), joined(&[first, second])])
}

pub(crate) fn seeds_of(target: &str) -> Vec<Vec<u8>> {
    let [login, client, authorizer] = played().unwrap_or_default();
    match target {
        "login" => vec![login],
        "login_client" => vec![client],
        _ => vec![authorizer],
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_seeds_are_a_login_that_succeeds() {
        assert!(super::played().is_some());
    }
}

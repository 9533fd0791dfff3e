//! Logins at the monitor: what is granted, and everything that is refused.

use crate::common;

use bytes::Bytes;
use cephx::{
    AuthClient, AuthError, AuthMode, AuthSession, CONNECTION_SECRET_LEN, CryptoKey, LoginRequest, MonCap,
    Renewed, accept_none, login_none, none_authorizer, none_login_request,
};
use common::{Cluster, SERVICES, Seeded, at, flipped, name};
use types::{EntityType, Errno, GlobalId};

#[test]
fn both_sides_share_secrets_after_a_login() {
    for secret_len in [0, CONNECTION_SECRET_LEN] {
        let mut cluster = Cluster::new();
        let mut client = cluster.client("client.admin");
        let (_, granted, shared) = cluster.login(&mut client, 77, secret_len, 0).expect("logs in");
        assert_eq!((granted.name, granted.global_id), (name("client.admin"), GlobalId(77)));
        assert_eq!(
            (granted.session_key, granted.connection_secret),
            (shared.session_key, shared.connection_secret.clone())
        );
        assert_eq!(shared.connection_secret.len(), secret_len);
        assert!(MonCap::from_info(&granted.caps).expect("parses").is_allow_all());
        assert!(SERVICES.iter().all(|s| client.have(*s, at(0))));
        assert_eq!(client.need(at(0)), []);
    }
}

#[test]
fn modes_and_malformed_requests() {
    assert_eq!(AuthMode::of(&[10]), Ok(AuthMode::Login));
    assert_eq!(AuthMode::of(&[1]), Ok(AuthMode::Authorizer));
    for bad in [0, 20, 255] {
        assert_eq!(AuthMode::of(&[bad]), Err(AuthError::UnsupportedMode(bad)));
    }
    assert!(AuthMode::of(&[]).is_err());
    let mut cluster = Cluster::new();
    let mut client = cluster.client("client.admin");
    let request = client.start_login();
    for n in 0..request.len() {
        assert!(LoginRequest::parse(&request.slice(..n)).is_err());
    }
    let (mut session, challenge) =
        AuthSession::start(LoginRequest::parse(&request).expect("parses"), GlobalId(5), &mut cluster.rng);
    let answer = client.handle_challenge(&challenge, at(0), &mut cluster.rng).expect("answers");
    for n in 0..answer.len() {
        let got = session.handle_request(&cluster.keys, &answer.slice(..n), Some(0), at(0), &mut cluster.rng);
        assert!(got.is_err(), "cut to {n}");
    }
    let unknown = Bytes::from_static(&[0, 9, 1, 2]);
    let got = session.handle_request(&cluster.keys, &unknown, Some(0), at(0), &mut cluster.rng);
    assert_eq!(got, Err(AuthError::UnknownRequest(0x900)));
}

/// A wrong key and an unknown name look alike: a challenge first, then EACCES.
#[test]
fn wrong_keys_and_unknown_names_are_refused_alike() {
    let mut cluster = Cluster::new();
    for who in ["client.admin", "client.nobody"] {
        let key = CryptoKey::generate(at(0), &mut Seeded(7));
        let mut client = AuthClient::new(name(who), key, &SERVICES);
        let error = cluster.login(&mut client, 5, 64, 0).expect_err("refused");
        assert_eq!(error.errno(), Errno::EACCES, "{error}");
    }
    let mut client = cluster.client("client.locked-out");
    let error = cluster.login(&mut client, 5, 64, 0).expect_err("no mon caps");
    assert_eq!(error.errno(), Errno::EACCES);
}

#[test]
fn a_challenge_is_answered_once_and_by_this_session_only() {
    let mut cluster = Cluster::new();
    let mut client = cluster.client("client.admin");
    let request = LoginRequest::parse(&client.start_login()).expect("parses");
    let (mut session, challenge) = AuthSession::start(request.clone(), GlobalId(5), &mut cluster.rng);
    let answer = client.handle_challenge(&challenge, at(0), &mut cluster.rng).expect("answers");

    let (mut other, _) = AuthSession::start(request.clone(), GlobalId(6), &mut cluster.rng);
    let replayed = other.handle_request(&cluster.keys, &answer, Some(0), at(0), &mut cluster.rng);
    assert_eq!(replayed, Err(AuthError::WrongKey(name("client.admin"))));

    // Byte 3 begins the client's challenge; after a wrong guess even the right answer is too late.
    let wrong = flipped(&answer, 8 * 3);
    assert!(session.handle_request(&cluster.keys, &wrong, Some(0), at(0), &mut cluster.rng).is_err());
    let late = session.handle_request(&cluster.keys, &answer, Some(0), at(0), &mut cluster.rng);
    assert!(matches!(late, Err(AuthError::OutOfOrder(_))));
    assert!(client.handle_challenge(&challenge, at(0), &mut cluster.rng).is_err(), "challenged twice");
}

#[test]
fn nothing_is_served_before_the_login() {
    let mut cluster = Cluster::new();
    let mut osd = cluster.client("osd.0");
    cluster.login(&mut osd, 5, 64, 0).expect("logs in");
    let tickets = osd.renewal_request(at(2700), &mut cluster.rng).expect("builds").expect("due");
    let claim = LoginRequest { name: name("osd.0"), global_id: GlobalId(5) };
    let (mut session, _) = AuthSession::start(claim, GlobalId(0), &mut cluster.rng);
    for request in [osd.rotating_request(), tickets] {
        let got = session.handle_request(&cluster.keys, &request, Some(0), at(2700), &mut cluster.rng);
        assert!(matches!(got, Err(AuthError::OutOfOrder(_))), "{got:?}");
    }
}

#[test]
fn a_global_id_is_reclaimed_with_its_ticket_only() {
    let mut cluster = Cluster::new();
    let mut client = cluster.client("client.admin");
    cluster.login(&mut client, 77, 64, 0).expect("logs in");
    let (_, granted, _) = cluster.login(&mut client, 78, 64, 1).expect("reconnects");
    assert_eq!(granted.global_id, GlobalId(77), "the old id, not the fresh one");

    // Somebody with a good key of his own names our id: with no ticket, and with a ticket of his.
    let mut thief = cluster.client("client.other");
    cluster.login(&mut thief, 90, 64, 1).expect("logs in as himself");
    let claim = LoginRequest { name: name("client.other"), global_id: GlobalId(77) };
    let (mut session, challenge) = AuthSession::start(claim.clone(), GlobalId(91), &mut cluster.rng);
    let _ = thief.start_login();
    let with_ticket = thief.handle_challenge(&challenge, at(2), &mut cluster.rng).expect("answers");
    let got = session.handle_request(&cluster.keys, &with_ticket, Some(64), at(2), &mut cluster.rng);
    assert_eq!(got, Err(AuthError::GlobalIdNotProven(GlobalId(77))));

    thief.forget_tickets();
    let (mut session, challenge) = AuthSession::start(claim, GlobalId(91), &mut cluster.rng);
    let _ = thief.start_login();
    let without = thief.handle_challenge(&challenge, at(2), &mut cluster.rng).expect("answers");
    let got = session.handle_request(&cluster.keys, &without, Some(64), at(2), &mut cluster.rng);
    assert_eq!(got.map_err(|e| e.errno()), Err(Errno::EACCES));
}

#[test]
fn every_flipped_bit_of_an_old_ticket_is_refused() {
    let mut cluster = Cluster::new();
    let mut client = cluster.client("client.admin");
    cluster.login(&mut client, 77, 64, 0).expect("logs in");
    let request = LoginRequest::parse(&client.start_login()).expect("parses");
    let (session, challenge) = AuthSession::start(request, GlobalId(0), &mut cluster.rng);
    let answer = client.handle_challenge(&challenge, at(1), &mut cluster.rng).expect("answers");
    let good = session.clone().handle_request(&cluster.keys, &answer, Some(64), at(1), &mut cluster.rng);
    assert!(good.is_ok());
    // The ticket lies between the answer (2 + 1 + 8 + 8 bytes) and the wanted keys (4 bytes).
    for bit in 19 * 8..(answer.len() - 4) * 8 {
        let bad = flipped(&answer, bit);
        let got = session.clone().handle_request(&cluster.keys, &bad, Some(64), at(1), &mut cluster.rng);
        assert!(got.is_err(), "bit {bit}");
    }
}

#[test]
fn a_ticket_with_a_new_global_id_is_superfluous() {
    let mut cluster = Cluster::new();
    let mut client = cluster.client("client.admin");
    cluster.login(&mut client, 77, 64, 0).expect("logs in");
    let request = LoginRequest { name: name("client.admin"), global_id: GlobalId(0) };
    let (mut session, challenge) = AuthSession::start(request, GlobalId(78), &mut cluster.rng);
    let _ = client.start_login();
    let answer = client.handle_challenge(&challenge, at(1), &mut cluster.rng).expect("answers");
    let got = session.handle_request(&cluster.keys, &answer, Some(64), at(1), &mut cluster.rng);
    assert_eq!(got, Err(AuthError::SuperfluousTicket));
}

#[test]
fn tickets_are_renewed_over_the_session() {
    let mut cluster = Cluster::new();
    let mut client = cluster.client("client.admin");
    let (mut session, ..) = cluster.login(&mut client, 77, 64, 0).expect("logs in");
    assert_eq!(client.renewal_request(at(2699), &mut cluster.rng), Ok(None));
    // Service tickets after three quarters of an hour; the login's after three quarters of three days.
    for (sec, due) in [(2700, 4), (54 * 3600, 5)] {
        cluster.rotate(sec);
        assert_eq!(client.need(at(sec)).len(), due);
        let request = client.renewal_request(at(sec), &mut cluster.rng).expect("builds").expect("due");
        let reply = session.handle_request(&cluster.keys, &request, None, at(sec), &mut cluster.rng);
        let reply = reply.expect("renews");
        assert_eq!(client.handle_reply(0, &reply.payload, at(sec)), Ok(Renewed::Tickets));
        assert_eq!(client.need(at(sec)), []);
        assert_eq!(client.global_id(), GlobalId(77));
    }
    assert_eq!(client.handle_reply(-13, &Bytes::new(), at(0)), Err(AuthError::Refused(Errno::EACCES)));
}

#[test]
fn an_expired_or_foreign_login_ticket_gets_no_service_tickets() {
    let mut cluster = Cluster::new();
    cluster.keys.ttl.auth = std::time::Duration::from_secs(4000);
    cluster.keys.rotating = Default::default();
    cluster.rotate(0);
    let mut client = cluster.client("client.admin");
    let (mut session, ..) = cluster.login(&mut client, 77, 64, 0).expect("logs in");
    // The client's clock is behind: it believes that its login is still good.
    let request = client.renewal_request(at(2900), &mut cluster.rng).expect("builds").expect("due");
    let late = session.handle_request(&cluster.keys, &request, None, at(4000), &mut cluster.rng);
    assert_eq!(late, Err(AuthError::TicketExpired));
    let mut other = cluster.client("client.other");
    let (mut others, ..) = cluster.login(&mut other, 78, 64, 0).expect("logs in");
    let foreign = others.handle_request(&cluster.keys, &request, None, at(2900), &mut cluster.rng);
    assert_eq!(foreign, Err(AuthError::GlobalIdNotProven(GlobalId(77))));
    assert!(session.handle_request(&cluster.keys, &request, None, at(2900), &mut cluster.rng).is_ok());
    cluster.keys.entities.remove(&name("client.admin"));
    let removed = session.handle_request(&cluster.keys, &request, None, at(2900), &mut cluster.rng);
    assert_eq!(removed, Err(AuthError::UnknownEntity(name("client.admin"))));
}

#[test]
fn rotating_secrets_go_to_daemons_only() {
    let mut cluster = Cluster::new();
    let mut osd = cluster.client("osd.0");
    let (mut session, ..) = cluster.login(&mut osd, 5, 64, 0).expect("logs in");
    let request = osd.rotating_request();
    let reply =
        session.handle_request(&cluster.keys, &request, None, at(0), &mut cluster.rng).expect("answers");
    let secrets = cluster.keys.rotating.of(EntityType::Osd).expect("rotated").clone();
    assert_eq!(osd.handle_reply(0, &reply.payload, at(0)), Ok(Renewed::Rotating(secrets)));
    let mut eavesdropper = cluster.client("client.other");
    assert!(eavesdropper.handle_reply(0, &reply.payload, at(0)).is_err());

    let mut client = cluster.client("client.admin");
    let (mut session, ..) = cluster.login(&mut client, 6, 64, 0).expect("logs in");
    let got = session.handle_request(&cluster.keys, &request, None, at(0), &mut cluster.rng);
    assert_eq!(got.map_err(|e| e.errno()), Err(Errno::EACCES));
}

#[test]
fn a_tampered_reply_changes_nothing_at_the_client() {
    let mut cluster = Cluster::new();
    let mut client = cluster.client("client.admin");
    let request = LoginRequest::parse(&client.start_login()).expect("parses");
    let (mut session, challenge) = AuthSession::start(request, GlobalId(5), &mut cluster.rng);
    let answer = client.handle_challenge(&challenge, at(0), &mut cluster.rng).expect("answers");
    let reply =
        session.handle_request(&cluster.keys, &answer, Some(64), at(0), &mut cluster.rng).expect("grants");
    for n in 0..reply.payload.len() {
        let before = client.clone();
        if client.handle_done(GlobalId(5), &reply.payload.slice(..n), at(0)).is_err() {
            assert_eq!(client, before, "cut to {n}");
        } else {
            client = before;
        }
    }
    assert!(client.handle_done(GlobalId(5), &reply.payload, at(0)).is_ok());
}

#[test]
fn method_none_takes_everybody() {
    let who = name("client.admin");
    let authorizer = none_authorizer(&who, GlobalId(9));
    // AuthNoneAuthorizer: a version byte, the entity's name, its global id.
    assert_eq!(&authorizer[..], b"\x01\x08\0\0\0\x05\0\0\0admin\x09\0\0\0\0\0\0\0");
    let accepted = accept_none(&authorizer).expect("accepted");
    assert_eq!((accepted.name, accepted.global_id), (who.clone(), GlobalId(9)));
    assert!(accepted.caps.allow_all && accepted.reply.is_empty());
    for n in 0..authorizer.len() {
        assert!(accept_none(&authorizer.slice(..n)).is_err());
    }
    let request = LoginRequest::parse(&none_login_request(&who, GlobalId(0))).expect("parses");
    let granted = login_none(request, GlobalId(12));
    assert_eq!((granted.global_id, granted.caps.allow_all), (GlobalId(12), true));
}

#[test]
fn secrets_do_not_show_in_debug_output() {
    let cluster = Cluster::new();
    let key = &cluster.keys.entities[&name("client.admin")].key;
    let secret: String = key.secret().iter().map(|b| format!("{b}, ")).collect();
    let all = format!("{:?} {:?}", cluster.keys, cluster.client("client.admin"));
    assert!(!all.contains(&key.to_base64()) && !all.contains(secret.trim_end_matches(", ")));
    assert!(all.contains("CryptoKey(..)"));
}

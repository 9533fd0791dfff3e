//! Authorizers between the holder of a ticket and a service, and every way to abuse one.

use crate::common;

use bytes::Bytes;
use cephx::{
    AuthClient, AuthError, AuthorizerAcceptor, CONNECTION_SECRET_LEN, Keyring, OsdCap, ServiceSecrets,
    Verdict,
};
use common::{Cluster, Seeded, at, flipped, name};
use types::{EntityType, Errno, GlobalId};

struct Scene {
    cluster: Cluster,
    client: AuthClient,
    osd: ServiceSecrets,
}

fn scene() -> Scene {
    let mut cluster = Cluster::new();
    let mut client = cluster.client("client.admin");
    cluster.login(&mut client, 77, 64, 0).expect("logs in");
    let osd = cluster.secrets(EntityType::Osd);
    Scene { cluster, client, osd }
}

fn verify(acceptor: &mut AuthorizerAcceptor, secrets: &ServiceSecrets, payload: &Bytes, sec: u32) -> Verdict {
    acceptor.verify(secrets, payload, CONNECTION_SECRET_LEN, at(sec), &mut Seeded(u64::from(sec) + 99))
}

fn challenged(verdict: Verdict) -> Bytes {
    match verdict {
        Verdict::NeedChallenge(bytes) => bytes,
        other => panic!("expected a challenge, got {other:?}"),
    }
}

#[test]
fn an_authorizer_is_challenged_and_accepted() {
    let mut s = scene();
    let mut authorizer = s.client.authorizer(EntityType::Osd, at(1), &mut s.cluster.rng).expect("a ticket");
    let mut acceptor = AuthorizerAcceptor::new();
    let challenge = challenged(verify(&mut acceptor, &s.osd, &authorizer.payload(), 1));
    let answer = authorizer.add_challenge(&challenge).expect("answers");
    let Verdict::Accepted(peer) = verify(&mut acceptor, &s.osd, &answer, 1) else { panic!("refused") };
    assert_eq!((peer.name, peer.global_id), (name("client.admin"), GlobalId(77)));
    assert_eq!(peer.caps.text().as_deref(), Ok("allow rwx pool=p"));
    assert!(!OsdCap::from_info(&peer.caps).expect("parses").is_allow_all());
    assert_eq!(peer.expires, at(3600));
    let shared = authorizer.verify_reply(&peer.reply).expect("the reply proves the key");
    assert_eq!(shared.session_key, peer.session_key);
    assert_eq!(shared.connection_secret, peer.connection_secret);
    assert_eq!(shared.connection_secret.len(), CONNECTION_SECRET_LEN);
}

#[test]
fn replays_are_refused() {
    let mut s = scene();
    let mut authorizer = s.client.authorizer(EntityType::Osd, at(1), &mut s.cluster.rng).expect("a ticket");
    let first = authorizer.payload();
    let mut acceptor = AuthorizerAcceptor::new();
    let challenge = challenged(verify(&mut acceptor, &s.osd, &first, 1));
    let answer = authorizer.add_challenge(&challenge).expect("answers");

    // On the same connection: the first message again, instead of the answer.
    let mut same = acceptor.clone();
    assert_eq!(verify(&mut same, &s.osd, &first, 1), Verdict::Refused(AuthError::BadChallenge));
    // After a failure the right answer is too late.
    assert_eq!(verify(&mut same, &s.osd, &answer, 1), Verdict::Refused(AuthError::BadChallenge));

    // On another connection: an eavesdropper's copy of the answer is challenged anew, and then fits no more.
    let mut other = AuthorizerAcceptor::new();
    challenged(verify(&mut other, &s.osd, &answer, 2));
    assert_eq!(verify(&mut other, &s.osd, &answer, 2), Verdict::Refused(AuthError::BadChallenge));

    // Accepted once is over.
    assert!(matches!(verify(&mut acceptor, &s.osd, &answer, 1), Verdict::Accepted(_)));
    assert_eq!(verify(&mut acceptor, &s.osd, &answer, 1), Verdict::Refused(AuthError::BadChallenge));
}

#[test]
fn every_flipped_bit_of_the_ticket_is_refused() {
    let mut s = scene();
    let authorizer = s.client.authorizer(EntityType::Osd, at(1), &mut s.cluster.rng).expect("a ticket");
    let payload = authorizer.payload();
    // All but the encrypted part at the end (4 + 32 bytes) is version, global id, service and ticket.
    for bit in 0..(payload.len() - 36) * 8 {
        let verdict = verify(&mut AuthorizerAcceptor::new(), &s.osd, &flipped(&payload, bit), 1);
        assert!(matches!(verdict, Verdict::Refused(_)), "bit {bit}: {verdict:?}");
    }
}

#[test]
fn truncated_and_random_authorizers_are_refused() {
    let mut s = scene();
    let payload =
        s.client.authorizer(EntityType::Osd, at(1), &mut s.cluster.rng).expect("a ticket").payload();
    for n in 0..payload.len() {
        let verdict = verify(&mut AuthorizerAcceptor::new(), &s.osd, &payload.slice(..n), 1);
        assert!(matches!(verdict, Verdict::Refused(_)), "cut to {n}");
    }
    let mut rng = Seeded(3);
    for len in 0..200 {
        let mut noise = vec![0u8; len];
        cephx::Entropy::fill(&mut rng, &mut noise);
        if let Some(first) = noise.first_mut() {
            *first = 1;
        }
        let verdict = verify(&mut AuthorizerAcceptor::new(), &s.osd, &noise.into(), 1);
        assert!(matches!(verdict, Verdict::Refused(_)));
    }
}

#[test]
fn expired_tickets_and_rotated_secrets_are_refused() {
    let mut s = scene();
    let payload =
        s.client.authorizer(EntityType::Osd, at(1), &mut s.cluster.rng).expect("a ticket").payload();
    let expired = verify(&mut AuthorizerAcceptor::new(), &s.osd, &payload, 3600);
    assert_eq!(expired, Verdict::Refused(AuthError::TicketExpired));
    challenged(verify(&mut AuthorizerAcceptor::new(), &s.osd, &payload, 3599));
    assert_eq!(
        s.client.authorizer(EntityType::Osd, at(3600), &mut s.cluster.rng),
        Err(AuthError::NoTicket(EntityType::Osd))
    );
    s.cluster.rotate(7200);
    s.cluster.rotate(10_800);
    let rotated = verify(&mut AuthorizerAcceptor::new(), &s.cluster.secrets(EntityType::Osd), &payload, 1);
    let want = AuthError::UnknownSecret { service: EntityType::Osd, id: 2 };
    assert_eq!(rotated, Verdict::Refused(want.clone()));
    assert_eq!(want.errno(), Errno::EACCES);
    let nothing_fetched_yet =
        verify(&mut AuthorizerAcceptor::new(), &ServiceSecrets::new(EntityType::Osd), &payload, 1);
    assert!(matches!(nothing_fetched_yet, Verdict::Refused(_)));
}

#[test]
fn a_ticket_for_another_service_is_refused() {
    let mut s = scene();
    let payload =
        s.client.authorizer(EntityType::Mds, at(1), &mut s.cluster.rng).expect("a ticket").payload();
    let want = AuthError::WrongService { want: EntityType::Osd, got: EntityType::Mds as u32 };
    assert_eq!(verify(&mut AuthorizerAcceptor::new(), &s.osd, &payload, 1), Verdict::Refused(want));
    // Claiming the right service does not help, not even where the two services share a secret.
    let mut relabelled = payload.to_vec();
    relabelled[9] = EntityType::Osd as u8;
    let mut shared = s.osd.clone();
    shared.rotating = s.cluster.keys.rotating.of(EntityType::Mds).expect("rotated").clone();
    for secrets in [&s.osd, &shared] {
        let verdict = verify(&mut AuthorizerAcceptor::new(), secrets, &relabelled.clone().into(), 1);
        assert_eq!(verdict, Verdict::Refused(AuthError::Undecryptable("the ticket")));
    }
}

#[test]
fn a_stolen_ticket_without_its_session_key_is_useless() {
    let mut s = scene();
    let payload =
        s.client.authorizer(EntityType::Osd, at(1), &mut s.cluster.rng).expect("a ticket").payload();
    let mut thief = s.cluster.client("client.other");
    s.cluster.login(&mut thief, 78, 64, 0).expect("logs in");
    let own = thief.authorizer(EntityType::Osd, at(1), &mut s.cluster.rng).expect("a ticket").payload();
    let encrypted = 36;
    let mut spliced = payload[..payload.len() - encrypted].to_vec();
    spliced.extend_from_slice(&own[own.len() - encrypted..]);
    let verdict = verify(&mut AuthorizerAcceptor::new(), &s.osd, &spliced.into(), 1);
    assert!(matches!(verdict, Verdict::Refused(AuthError::Undecryptable(_))), "{verdict:?}");
}

#[test]
fn a_service_that_cannot_open_the_ticket_cannot_answer() {
    let mut s = scene();
    let mut authorizer = s.client.authorizer(EntityType::Osd, at(1), &mut s.cluster.rng).expect("a ticket");
    let mut another = s.client.authorizer(EntityType::Osd, at(1), &mut s.cluster.rng).expect("a ticket");
    assert!(authorizer.add_challenge(&[7; 32]).is_err());
    assert!(authorizer.verify_reply(&Bytes::from_static(&[0; 36])).is_err());
    // A reply to another authorizer, under the very same ticket.
    let mut acceptor = AuthorizerAcceptor::new();
    let challenge = challenged(verify(&mut acceptor, &s.osd, &another.payload(), 1));
    let answer = another.add_challenge(&challenge).expect("answers");
    let Verdict::Accepted(peer) = verify(&mut acceptor, &s.osd, &answer, 1) else { panic!("refused") };
    assert_eq!(authorizer.verify_reply(&peer.reply), Err(AuthError::BadReply));
    assert!(another.verify_reply(&peer.reply).is_ok());
}

#[test]
fn monitors_authorize_among_themselves_and_at_the_manager() {
    let mut s = scene();
    let mon = s.cluster.keys.entities[&name("osd.0")].clone();
    let mut ring = Keyring::new();
    ring.insert(name("mon."), mon.clone());
    s.cluster.keys.extra = ring;
    for service in [EntityType::Mon, EntityType::Mgr] {
        let mut secrets = s.cluster.secrets(service);
        secrets.fixed = Some(mon.key.clone());
        let mut authorizer =
            s.cluster.keys.mon_authorizer(service, at(1), &mut s.cluster.rng).expect("builds");
        let mut acceptor = AuthorizerAcceptor::new();
        let challenge = challenged(verify(&mut acceptor, &secrets, &authorizer.payload(), 1));
        let answer = authorizer.add_challenge(&challenge).expect("answers");
        let Verdict::Accepted(peer) = verify(&mut acceptor, &secrets, &answer, 1) else { panic!("refused") };
        assert_eq!(peer.name, name("mon."));
        assert!(authorizer.verify_reply(&peer.reply).is_ok());
    }
}

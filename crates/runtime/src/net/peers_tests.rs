//! Peers that state to be what they have not proven; see `Messenger::on_session` and `resumable`.

use std::sync::Arc;

use msgr::{Limits, Local, Policy, Session};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use types::{AddrVec, AuthName, EntityAddr, EntityName, EntityType, GlobalId};

use super::testing::{As, Named, Raw, Server, Told, message, server_of, silent};
use super::{Bounds, CapsInfo, ConnectTo, Identity, Messenger};
use crate::Clock;

const OSD_AT: &str = "v2:127.0.0.1:6801/77";

#[tokio::test]
async fn who_says_daemon_must_have_proven_it() {
    let server = Server::start(Bounds::default(), 0).await;
    for (name, hello) in
        [("client.a", EntityType::Osd), ("client.a", EntityType::Mon), ("osd.3", EntityType::Mgr)]
    {
        let me = As { hello, ..As::osd(name, OSD_AT) };
        assert!(Raw::ready(&server, me).await.is_err(), "{name} as {hello:?}");
    }
    assert!(Raw::ready(&server, As::osd("osd.4", OSD_AT)).await.is_err(), "another OSD's number");
    let osd = Raw::ready(&server, As::osd("osd.3", OSD_AT)).await.expect("an OSD");
    assert!(!osd.conn.session().expect("a session").policy.lossy);
    // A client that asks for a session that resumes gets one that does not. So does an OSD's key in a
    // client's hands.
    for name in ["client.a", "osd.3"] {
        let me = As { policy: Policy::lossless_client(), ..As::client(name) };
        let client = Raw::ready(&server, me).await.expect("let in");
        assert!(client.conn.session().expect("a session").policy.lossy, "{name}");
    }
}

#[test]
fn a_library_with_a_managers_key_is_a_client() {
    let called = |kind, id: &str, said| {
        let name = AuthName::new(kind, id);
        let identity = Identity { name, global_id: GlobalId(7), caps: CapsInfo::default() };
        identity.entity(EntityName::new(said, -1)).to_string()
    };
    use EntityType::{Client, Mgr, Osd};
    for (kind, id, said, want) in [
        (Client, "admin", Client, "client.7"),
        (Mgr, "x", Client, "client.7"),
        (Mgr, "x", Mgr, "mgr.7"),
        // Clients wait for OSDs, so what has an OSD's key is no client.
        (Osd, "3", Client, "osd.3"),
        (Osd, "3", Osd, "osd.3"),
    ] {
        assert_eq!(called(kind, id, said), want, "{kind:?} {id} as {said:?}");
    }
}

/// The networks of its routes to monitors and OSDs may be two.
#[tokio::test]
async fn a_client_states_one_address_to_all_peers() {
    let local = Local { name: EntityName::client(7), addrs: AddrVec::default() };
    let client = Messenger::new(local, Limits::default(), Clock::start());
    let seen = |text| EntityAddr::parse(text, types::AddrKind::Msgr2).expect("an address");
    assert_eq!(client.stated(), AddrVec::default());
    let first = client.client_addrs(seen("v2:10.0.0.1:40000/0")).expect("it does not listen");
    assert_eq!(first.0.first().and_then(|a| a.socket), "10.0.0.1:0".parse().ok());
    assert_eq!(client.client_addrs(seen("v2:10.9.0.1:40001/0")), Some(first.clone()));
    assert_eq!(client.stated(), first);
}

#[tokio::test]
async fn nobody_replaces_or_takes_up_the_session_of_another() {
    let server = Server::start(Bounds::default(), 0).await;
    let mut osd = Raw::ready(&server, As::osd("osd.3", OSD_AT)).await.expect("an OSD");
    let conn = server.conn_of("osd.3").await;
    osd.send(message(1)).await;
    server.heard(conn, 1).await;
    // The client states the OSD's address, with and without the OSD's cookies.
    let me = || As { addr: OSD_AT, policy: Policy::lossless_client(), ..As::client("client.a") };
    Raw::ready(&server, me()).await.expect("a session of its own");
    let stolen = osd.conn.session().expect("a session").clone();
    let thief = Raw::resume(&server, me(), stolen).await.expect("a session of its own");
    assert_ne!(server.conn_of("client.a").await, conn);
    assert_eq!(thief.conn.session().expect("a session").seqs().1, 0, "nothing of the OSD's");
    // The OSD loses its connection and goes on where it was.
    let session = osd.conn.take_session().expect("a session");
    drop(osd);
    let mut again = Raw::resume(&server, As::osd("osd.3", OSD_AT), session).await.expect("resumed");
    again.send(message(2)).await;
    server.heard(conn, 2).await;
    let other = Session::outgoing(Policy::lossless_client(), server_of(&server), 9);
    drop(Raw::resume(&server, As::osd("osd.3", OSD_AT), other).await.expect("another life"));
    server.gone(conn).await;
}

/// The peer has forgotten a session while both live: the side that had sent in it must make up for what is
/// lost.
#[tokio::test]
async fn the_connecting_side_hears_that_its_session_was_forgotten() {
    let (ours, theirs) =
        (Server::start(Bounds::default(), 0).await, Server::start(Bounds::default(), 0).await);
    let conn = ours.messenger.connect(ConnectTo {
        peer: server_of(&theirs),
        addr: theirs.at,
        policy: Policy::lossless_client(),
        auth: Arc::new(|| Box::new(Named("osd.0"))),
        from: Some(AddrVec::single(ours.at)),
    });
    ours.messenger.send(conn, message(1));
    let held = theirs.conn_of("osd.0").await;
    theirs.heard(held, 1).await;
    assert!(!ours.told().contains(&Told::Reset(conn)));
    theirs.messenger.close(held);
    ours.until(|told| told.contains(&Told::Reset(conn)).then_some(())).await;
    ours.messenger.send(conn, message(2));
    let ready = |t: &Told| match t {
        Told::Ready(conn, _) if *conn != held => Some(*conn),
        _ => None,
    };
    let new = theirs.until(|told| told.iter().find_map(ready)).await;
    theirs.heard(new, 1).await;
}

#[tokio::test]
async fn who_is_turned_away_leaves_a_line() {
    let server = Server::start(Bounds::default(), 0).await;
    drop(Raw::ready(&server, As::client("client.a")).await.expect("let in"));
    server.gone(server.conn_of("client.a").await).await;
    assert_eq!(server.messenger.refusal_lines(), 0);
    let me = As { hello: EntityType::Osd, ..As::osd("client.a", OSD_AT) };
    assert!(Raw::ready(&server, me).await.is_err());
    assert_eq!(server.messenger.refusal_lines(), 1, "one, whatever it was");
    let mut scanner = silent(&server, "127.0.0.5").await;
    scanner.write_all(b"GET / HTTP/1.1\r\n\r\n").await.expect("written");
    let mut rest = Vec::new();
    let _ = scanner.read_to_end(&mut rest).await;
    assert_eq!(server.messenger.refusal_lines(), 2);
}

#[tokio::test]
async fn connections_of_a_daemons_key_have_a_bound() {
    let server = Server::start(Bounds { daemon_conns: 2, ..Bounds::default() }, 0).await;
    let at = |port: u16| format!("v2:127.0.0.1:{port}/77");
    let (one, two, three) = (at(6801), at(6802), at(6803));
    let first = Raw::ready(&server, As::osd("osd.3", &one)).await.expect("let in");
    let conn = server.conn_of("osd.3").await;
    let _second = Raw::ready(&server, As::client("osd.3")).await.expect("let in");
    assert!(Raw::ready(&server, As::osd("osd.3", &two)).await.is_err());
    assert!(Raw::ready(&server, As::client("osd.3")).await.is_err());
    let mut others = Vec::new();
    others.push(Raw::ready(&server, As::client("osd.4")).await.expect("another"));
    for _ in 0..3 {
        others.push(Raw::ready(&server, As::client("client.many")).await.expect("a client has shares"));
    }
    let refused = |told: &[Told]| told.iter().filter(|t| matches!(t, Told::Gone(..))).count() == 2;
    server.until(|told| refused(told).then_some(())).await;
    server.messenger.close(conn);
    drop(first);
    Raw::ready(&server, As::osd("osd.3", &three)).await.expect("one has gone");
}

#[tokio::test]
async fn an_entity_with_many_connections_makes_way_for_another() {
    let server = Server::start(Bounds { client_conns: 3, ..Bounds::default() }, 0).await;
    let mut many = Vec::new();
    let mut conns = Vec::new();
    for _ in 0..3 {
        many.push(Raw::ready(&server, As::client("client.many")).await.expect("there is room"));
        let seen: Vec<_> = conns.clone();
        conns.push(
            server
                .until(|told| {
                    told.iter().find_map(|t| match t {
                        Told::Ready(conn, _) if !seen.contains(conn) => Some(*conn),
                        _ => None,
                    })
                })
                .await,
        );
    }
    assert!(Raw::ready(&server, As::client("client.many")).await.is_err(), "one more of its own");
    let mut few = Raw::ready(&server, As::client("client.few")).await.expect("let in");
    let conn = server.conn_of("client.few").await;
    assert!(server.gone(conns[2]).await.contains("too many connections"));
    few.send(message(1)).await;
    server.heard(conn, 1).await;
    // A daemon that others wait for never waits for clients' places.
    Raw::ready(&server, As::osd("osd.3", OSD_AT)).await.expect("an OSD");
    let mut older = many.remove(0);
    older.send(message(1)).await;
    server.heard(conns[0], 1).await;
}

#[tokio::test]
async fn what_is_given_up_is_told_once() {
    let server = Server::start(Bounds::default(), 0).await;
    let mut peer = Raw::ready(&server, As::client("client.a")).await.expect("let in");
    let conn = server.conn_of("client.a").await;
    server.messenger.give_up(conn, "for the test");
    server.messenger.give_up(conn, "again");
    assert!(server.gone(conn).await.contains("for the test"));
    while peer.receive(&server).await.is_ok() {}
    // Its task has ended too when another one's end was told after it.
    drop(Raw::ready(&server, As::client("client.b")).await.expect("let in"));
    server.gone(server.conn_of("client.b").await).await;
    assert_eq!(server.told().iter().filter(|t| matches!(t, Told::Gone(c, _) if *c == conn)).count(), 1);
}

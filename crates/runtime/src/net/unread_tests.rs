//! Clients that do not read what they asked for; see `unread`.

use super::Bounds;
use super::testing::{As, Raw, Server, Told, message};

const REPLY: usize = 1 << 20;

#[tokio::test]
async fn a_client_that_does_not_read_is_not_read_from_until_it_does() {
    let bounds = Bounds { unread_pause_bytes: 2 << 20, ..Bounds::default() };
    let server = Server::start(bounds, REPLY).await;
    let mut deaf = Raw::ready(&server, As::client("client.deaf")).await.expect("ready");
    let mut other = Raw::ready(&server, As::client("client.other")).await.expect("ready");
    let (deaf_conn, other_conn) = (server.conn_of("client.deaf").await, server.conn_of("client.other").await);
    let mut asked = 0;
    // As much as the kernel's buffers take, and then the pause.
    while server.messenger.unread() <= 2 << 20 {
        deaf.send(message(1)).await;
        asked += 1;
        server.heard(deaf_conn, asked).await;
    }
    deaf.send(message(1)).await;
    for nr in 1..=3 {
        other.send(message(1)).await;
        server.heard(other_conn, nr).await;
        while other.answers < nr {
            other.receive(&server).await.expect("an answer");
        }
    }
    assert_eq!(server.count_of(deaf_conn), asked, "its socket keeps the last one");
    while deaf.answers <= asked {
        deaf.receive(&server).await.expect("answers");
    }
    assert_eq!(server.count_of(deaf_conn), asked + 1);
}

/// A flush writes some MiB at most, and what it leaves counts although the socket takes more: a client with
/// much under way waits for its next turn although it reads.
#[tokio::test]
async fn what_waits_for_a_flush_counts_as_unread() {
    let bounds = Bounds { unread_pause_bytes: 2 << 20, ..Bounds::default() };
    let server = Server::start(bounds, REPLY).await;
    let mut client = Raw::ready(&server, As::client("client.reads")).await.expect("ready");
    let conn = server.conn_of("client.reads").await;
    let messenger = &server.messenger;
    let room = messenger.room_for_answers();
    (0..12).for_each(|_| messenger.queue(conn, message(REPLY)));
    messenger.flush(conn);
    assert!(messenger.has_much_unread(conn));
    assert!((7 << 20..13 << 20).contains(&(room - messenger.room_for_answers())));
    while client.answers < 12 {
        client.receive(&server).await.expect("answers");
    }
    assert!(!messenger.has_much_unread(conn));
    assert_eq!(messenger.room_for_answers(), room);
}

#[tokio::test]
async fn beyond_the_limit_the_client_with_the_most_is_cut_off() {
    let bounds = Bounds { unread_bytes: 32 << 20, ..Bounds::default() };
    let server = Server::start(bounds, REPLY).await;
    let mut slow = Raw::ready(&server, As::client("client.slow")).await.expect("ready");
    let slow_conn = server.conn_of("client.slow").await;
    slow.send(message(1)).await;
    server.heard(slow_conn, 1).await;
    let mut deaf = Raw::ready(&server, As::client("client.deaf")).await.expect("ready");
    let deaf_conn = server.conn_of("client.deaf").await;
    let many: Vec<u8> = (0..100).flat_map(|_| deaf.bytes_of(message(1))).collect();
    deaf.write(&many).await;
    let why = server.gone(deaf_conn).await;
    assert!(why.contains("does not read"), "{why}");
    assert!(server.messenger.unread() <= 32 << 20);
    while slow.answers < 1 {
        slow.receive(&server).await.expect("an answer");
    }
}

/// Each has little, together they have the most.
#[tokio::test]
async fn of_an_entity_with_many_connections_one_is_cut_off_first() {
    let bounds = Bounds { unread_bytes: 64 << 20, ..Bounds::default() };
    let server = Server::start(bounds, REPLY).await;
    let mut slow = Raw::ready(&server, As::client("client.slow")).await.expect("ready");
    let slow_conn = server.conn_of("client.slow").await;
    let bytes: Vec<u8> = (0..20).flat_map(|_| slow.bytes_of(message(1))).collect();
    slow.write(&bytes).await;
    server.heard(slow_conn, 20).await;
    let (mut many, mut conns) = (Vec::new(), Vec::new());
    for _ in 0..10 {
        many.push(Raw::ready(&server, As::client("client.many")).await.expect("ready"));
        conns.push(server.conn_of("client.many").await);
    }
    for one in &mut many {
        let bytes: Vec<u8> = (0..12).flat_map(|_| one.bytes_of(message(1))).collect();
        one.write(&bytes).await;
    }
    let first_gone = |told: &[Told]| {
        told.iter().find_map(|t| match t {
            Told::Gone(conn, why) => Some((*conn, why.clone())),
            _ => None,
        })
    };
    let (conn, why) = server.until(first_gone).await;
    assert!(conns.contains(&conn) && why.contains("does not read"), "{conn} {why}, not of {conns:?}");
    while slow.answers < 20 {
        slow.receive(&server).await.expect("an answer");
    }
}

#[tokio::test]
async fn what_a_metadata_server_does_not_read_counts() {
    let bounds = Bounds { unread_bytes: 32 << 20, ..Bounds::default() };
    let server = Server::start(bounds, REPLY).await;
    let me = As { hello: types::EntityType::Mds, ..As::client("mds.a") };
    let mut deaf = Raw::ready(&server, me).await.expect("ready");
    let deaf_conn = server.conn_of("mds.a").await;
    let many: Vec<u8> = (0..100).flat_map(|_| deaf.bytes_of(message(1))).collect();
    deaf.write(&many).await;
    let why = server.gone(deaf_conn).await;
    assert!(why.contains("does not read"), "{why}");
}

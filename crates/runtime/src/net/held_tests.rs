//! Clients that nothing is read from; see `gate`.

use std::time::Duration;

use msgr::Limits;

use super::Bounds;
use super::testing::{As, Raw, Server, message};

/// Writes until neither the peer's socket nor ours takes any more.
async fn fill(raw: &mut Raw) {
    let bytes = raw.bytes_of(message(64 << 10));
    let mut refused = 0;
    while refused < 1_000 {
        match raw.stream.try_write(&bytes) {
            Ok(_) => refused = 0,
            Err(_) => refused += 1,
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn who_leaves_behind_bytes_that_nobody_reads_is_seen_to_be_gone() {
    let limits = Limits { probe_held_after: Duration::from_millis(100), ..Limits::default() };
    let server = Server::start_within(limits, Bounds::default(), 0).await;
    let mut raw = Raw::ready(&server, As::client("client.gone")).await.expect("ready");
    let conn = server.conn_of("client.gone").await;
    server.messenger.hold(conn, true);
    fill(&mut raw).await;
    drop(raw);
    server.gone(conn).await;
}

#[tokio::test]
async fn who_waits_is_not_cut_off() {
    let limits = Limits { probe_held_after: Duration::from_millis(1), ..Limits::default() };
    let server = Server::start_within(limits, Bounds::default(), 1).await;
    let mut raw = Raw::ready(&server, As::client("client.waits")).await.expect("ready");
    let conn = server.conn_of("client.waits").await;
    server.messenger.hold(conn, true);
    // This message is still read: the connection's task learns of the hold when it comes.
    raw.send(message(1)).await;
    while raw.answers < 1 {
        raw.receive(&server).await.expect("an answer");
    }
    raw.send(message(1)).await;
    // The probe comes, and the peer has no event of it.
    assert_eq!(raw.receive(&server).await.expect("read"), vec![]);
    assert_eq!(server.count_of(conn), 1);
    server.messenger.hold(conn, false);
    while raw.answers < 2 {
        raw.receive(&server).await.expect("an answer");
    }
}

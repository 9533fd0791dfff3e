//! A flood of connections that never say who they are; see `half_open`.

use std::io::Read;

use tokio::io::AsyncReadExt;
use types::ConnId;

use super::Bounds;
use super::testing::{As, Raw, Server, Told, message, silent};

#[tokio::test]
async fn a_flood_from_one_address_locks_nobody_out() {
    let server = Server::start(Bounds { half_open: 64, ..Bounds::default() }, 0).await;
    // Held while the flood goes on: a handshake that is under way from another address.
    let mut early = silent(&server, "127.0.0.2").await;
    let mut banner = [0; 8];
    early.read_exact(&mut banner).await.expect("a banner");
    let mut flood = Vec::new();
    for _ in 0..200 {
        let mut one = silent(&server, "127.0.0.3").await;
        // Its turn has come when the banner is there.
        one.read_exact(&mut banner).await.expect("a banner");
        flood.push(one);
    }
    // The oldest ones were closed.
    let mut rest = Vec::new();
    for one in flood.iter_mut().take(200 - 32) {
        let _ = one.read_to_end(&mut rest).await;
    }
    drop(Raw::ready(&server, As::client("client.a")).await.expect("let in"));
    let crowded_out: Vec<ConnId> = server.told().iter().filter_map(crowded_out).collect();
    assert_eq!(crowded_out.len(), 200 - 32);
    assert!(!crowded_out.contains(&ConnId(1)), "another address keeps its place");
}

fn crowded_out(told: &Told) -> Option<ConnId> {
    match told {
        Told::Gone(conn, why) if why.contains("prove who they are") => Some(*conn),
        _ => None,
    }
}

/// The flood comes between a peer's proof and its session.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_has_proven_itself_is_no_half_open_connection() {
    let server = Server::start(Bounds { half_open: 4, ..Bounds::default() }, 0).await;
    let at = server.at.socket.expect("a socket");
    server.at_next_session(move |_| {
        let connect = || std::net::TcpStream::connect(at).expect("connected");
        tokio::task::block_in_place(|| {
            let mut silent: Vec<_> = std::iter::repeat_with(connect).take(3).collect();
            // This host has a share of two, so the first of them is closed, and any that is older before it.
            let mut rest = Vec::new();
            let _ = silent[0].read_to_end(&mut rest);
        });
    });
    let mut client = Raw::ready(&server, As::client("client.a")).await.expect("let in");
    let conn = server.conn_of("client.a").await;
    client.send(message(1)).await;
    server.heard(conn, 1).await;
    assert!(!server.told().iter().any(|t| matches!(t, Told::Gone(c, _) if *c == conn)));
}

#[tokio::test]
async fn what_ends_before_its_session_stands_never_begins() {
    let server = Server::start(Bounds { client_conns: 1, ..Bounds::default() }, 0).await;
    let messenger = server.messenger.clone();
    server.at_next_session(move |conn| messenger.give_up(conn, "for the test"));
    assert!(Raw::ready(&server, As::client("client.a")).await.is_err());
    let is_gone = |t: &Told| matches!(t, Told::Gone(_, why) if why.contains("for the test"));
    server.until(|told| told.iter().any(is_gone).then_some(())).await;
    assert!(!server.told().iter().any(|t| matches!(t, Told::Ready(..))), "{:?}", server.told());
    // Its place is free.
    drop(Raw::ready(&server, As::client("client.a")).await.expect("let in"));
}

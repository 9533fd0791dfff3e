//! A flood of connections that never say who they are; see `half_open`.

use tokio::io::AsyncReadExt;
use types::ConnId;

use super::Bounds;
use super::testing::{As, Raw, Server, Told, silent};

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

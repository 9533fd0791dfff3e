//! Clients' large frames share one budget; see `budget`.

use super::Bounds;
use super::testing::{As, Raw, Server, Told, message};

const LARGE: usize = 1 << 20;

#[tokio::test]
async fn a_frame_waits_while_others_hold_the_room_and_small_ones_go_on() {
    let server = Server::start(Bounds { frames_bytes: LARGE as u64 * 3 / 2, ..Bounds::default() }, 0).await;
    let mut half = Raw::ready(&server, As::client("client.half")).await.expect("ready");
    let half_conn = server.conn_of("client.half").await;
    // All of the frame but its end, with a small message before it to see that it was read.
    half.send(message(1)).await;
    let bytes = half.bytes_of(message(LARGE));
    let (begun, end) = bytes.split_at(bytes.len() - 1);
    half.write(begun).await;
    server.heard(half_conn, 1).await;

    let mut other = Raw::ready(&server, As::client("client.other")).await.expect("ready");
    let other_conn = server.conn_of("client.other").await;
    while server.messenger.frames_held() < LARGE as u64 {
        tokio::task::yield_now().await;
    }
    let large = other.bytes_of(message(LARGE));
    let mut third = Raw::ready(&server, As::client("client.third")).await.expect("ready");
    let third_conn = server.conn_of("client.third").await;
    let sending = tokio::spawn(async move {
        other.write(&large).await;
        other
    });
    while server.messenger.frames_waiting() == 0 {
        tokio::task::yield_now().await;
    }
    for _ in 0..3 {
        third.send(message(60_000)).await;
    }
    server.heard(third_conn, 3).await;
    // Daemons wait for no client.
    let mut osd = Raw::ready(&server, As::osd("osd.3", "v2:127.0.0.1:6801/1")).await.expect("ready");
    osd.send(message(LARGE)).await;
    server.heard(server.conn_of("osd.3").await, 1).await;
    assert_eq!(server.messenger.frames_waiting(), 1, "still waiting");

    half.write(end).await;
    server.heard(half_conn, 2).await;
    server.heard(other_conn, 1).await;
    drop(sending.await.expect("sent"));
    server.gone(other_conn).await;
    assert_eq!(server.messenger.frames_held(), 0);
}

#[tokio::test]
async fn who_leaves_in_the_middle_of_a_frame_gives_its_room_back() {
    let server = Server::start(Bounds { frames_bytes: LARGE as u64 * 3 / 2, ..Bounds::default() }, 0).await;
    let mut half = Raw::ready(&server, As::client("client.half")).await.expect("ready");
    let bytes = half.bytes_of(message(LARGE));
    half.write(&bytes[..LARGE / 2]).await;
    while server.messenger.frames_held() < LARGE as u64 {
        tokio::task::yield_now().await;
    }
    let mut other = Raw::ready(&server, As::client("client.other")).await.expect("ready");
    let other_conn = server.conn_of("client.other").await;
    let large = other.bytes_of(message(LARGE));
    let sending = tokio::spawn(async move {
        other.write(&large).await;
        other
    });
    while server.messenger.frames_waiting() == 0 {
        tokio::task::yield_now().await;
    }
    drop(half);
    server.heard(other_conn, 1).await;
    drop(sending.await.expect("sent"));
}

/// Their large frames take leases of the budget that clients' frames share.
#[tokio::test]
async fn metadata_servers_and_managers_wait_for_room_as_clients_do() {
    for (name, hello) in [("mds.a", types::EntityType::Mds), ("mgr.x", types::EntityType::Mgr)] {
        let bounds = Bounds { frames_bytes: LARGE as u64 * 3 / 2, ..Bounds::default() };
        let server = Server::start(bounds, 0).await;
        let mut half = Raw::ready(&server, As { hello, ..As::client(name) }).await.expect("ready");
        let bytes = half.bytes_of(message(LARGE));
        half.write(&bytes[..LARGE / 2]).await;
        while server.messenger.frames_held() < LARGE as u64 {
            tokio::task::yield_now().await;
        }
        // A second one has no room until the first is whole.
        let mut next = Raw::ready(&server, As { hello, ..As::client(name) }).await.expect("ready");
        let large = next.bytes_of(message(LARGE));
        let sending = tokio::spawn(async move {
            next.write(&large).await;
            next
        });
        while server.messenger.frames_waiting() == 0 {
            tokio::task::yield_now().await;
        }
        assert!(server.messenger.frames_held() < 2 * LARGE as u64, "{name}");
        drop(half);
        let whole =
            |told: &[Told]| told.iter().any(|t| matches!(t, Told::Message(_, bytes) if *bytes == LARGE));
        server.until(|told| whole(told).then_some(())).await;
        drop(sending.await.expect("sent"));
    }
}

/// A report of 1 GiB, as a manager in charge might announce it: nothing of it is read.
#[tokio::test]
async fn what_a_manager_announces_beyond_the_limit_ends_its_session() {
    let server = Server::start(Bounds::default(), 0).await;
    let me = As { hello: types::EntityType::Mgr, ..As::client("mgr.x") };
    let mut mgr = Raw::ready(&server, me).await.expect("ready");
    let conn = server.conn_of("mgr.x").await;
    mgr.send(message(60_000)).await;
    server.heard(conn, 1).await;
    // The length of the data is that of the fourth segment, behind the tag and the segments' count.
    let announced = |bytes: &[u8], length: u32| {
        let mut bytes = bytes.to_vec();
        bytes[20..24].copy_from_slice(&length.to_le_bytes());
        let crc = codec::crc32c(0, &bytes[..28]);
        bytes[28..32].copy_from_slice(&crc.to_le_bytes());
        bytes
    };
    let report = mgr.bytes_of(message(60_000));
    assert_eq!(announced(&report, 60_000), report, "a frame's preamble");
    mgr.write(&announced(&report, 1 << 30)).await;
    let why = server.gone(conn).await;
    assert!(why.contains("1073741824"), "{why}");
    assert_eq!((server.messenger.frames_held(), server.count_of(conn)), (0, 1));
}

//! Accepts one client without authentication and prints what it says until its first message:
//! `accept_client 127.0.0.1:3300`, then `ceph -m v2:127.0.0.1:3300 --auth-client-required=none -s`.
//! A check of the accepting side against a real Ceph.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use msgr::{ConMode, Connection, Event, Limits, Local, Policy, Session, Verdict, decide};
use types::{AddrVec, EntityAddr, EntityName, Now, Utime};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let at: std::net::SocketAddr = std::env::args().nth(1).ok_or("usage: accept_client ADDR")?.parse()?;
    let began = Instant::now();
    let now = || Now { mono: began.elapsed(), wall: Utime::ZERO };
    let (mut socket, from) = TcpListener::bind(at)?.accept()?;
    let ours = AddrVec::single(EntityAddr::v2(at, 0));
    let local = Local { name: EntityName::mon(0), addrs: ours.clone() };
    let mut conn = Connection::accept(now(), local, EntityAddr::v2(from, 0), Limits::default());
    let policy = Policy::stateless_server();
    let mut buf = BytesMut::with_capacity(64 << 10);
    let mut messages = 0;
    while messages == 0 {
        let mut out = Vec::new();
        conn.take_outgoing(&mut out);
        socket.write_all(&out.concat())?;
        let mut chunk = vec![0; 64 << 10];
        let n = socket.read(&mut chunk)?;
        if n == 0 {
            return Err("the peer closed".into());
        }
        buf.extend_from_slice(&chunk[..n]);
        conn.handle_bytes(now(), &mut buf);
        while let Some(event) = conn.poll_event() {
            println!("{event:?}");
            match event {
                Event::AuthRequest { method: 1, .. } => {
                    conn.auth_done(4100, ConMode::Crc, Bytes::new(), &[], &[]);
                }
                Event::AuthRequest { method, .. } => conn.auth_bad_method(method, -95, &[1], &[ConMode::Crc]),
                Event::SessionRequest(request) => match decide(&ours, &policy, &request, None) {
                    Verdict::Fresh { .. } => conn.accept_session(Session::incoming(policy), 1, 1),
                    other => return Err(format!("{other:?}").into()),
                },
                Event::Message(_) => messages += 1,
                Event::Closed(error) => return Err(error.into()),
                _ => {}
            }
        }
    }
    Ok(())
}

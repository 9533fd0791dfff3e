//! Connects to a monitor that asks for no authentication, subscribes to its map, and prints what comes:
//! `connect_mon 127.0.0.1:3300`. A check of the connecting side against a real Ceph.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use bytes::{BufMut, Bytes, BytesMut};
use messages::wire::{Header, WireMessage};
use msgr::{ConMode, Connection, Event, Limits, Local, Peer, Policy, Session};
use types::{AddrVec, EntityAddr, EntityName, EntityType, Now, Utime};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let at: std::net::SocketAddr = std::env::args().nth(1).ok_or("usage: connect_mon ADDR")?.parse()?;
    let began = Instant::now();
    let now = || Now {
        mono: began.elapsed(),
        wall: Utime::from_unix(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()),
    };
    let mut socket = TcpStream::connect(at)?;
    let local = Local {
        name: EntityName::client(-1),
        addrs: AddrVec::single(EntityAddr::v2(socket.local_addr()?, std::process::id())),
    };
    let peer = Peer { name: EntityName::mon(0), ..Peer::default() };
    let session = Session::outgoing(Policy::lossless_client(), peer, u64::from(now().wall.nsec));
    let mut conn = Connection::connect(now(), local, session, EntityAddr::v2(at, 0), 1, 1, Limits::default());
    let mut buf = BytesMut::with_capacity(64 << 10);
    let mut maps = 0;
    while maps < 2 {
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
                Event::Hello { .. } => {
                    // Auth none: the form's version, and our name. Source: src/auth/none/AuthNoneProtocol.h.
                    let mut p = BytesMut::new();
                    p.put_u8(10);
                    p.put_u32_le(EntityType::Client as u32);
                    p.put_u32_le(5);
                    p.put_slice(b"admin");
                    p.put_u64_le(0);
                    conn.auth_request(1, &[ConMode::Crc], p.freeze());
                }
                Event::AuthDone { global_id, .. } => {
                    println!("authenticated as client.{global_id}");
                    conn.auth_established(&[], &[]);
                }
                Event::Ready(_) => {
                    let header = Header { ty: 5, priority: 127, version: 1, ..Header::default() };
                    let get_map = WireMessage { header, ..WireMessage::default() };
                    conn.send(get_map.clone()).map_err(|_| "no session")?;
                    conn.send(WireMessage { front: Bytes::new(), ..get_map }).map_err(|_| "no session")?;
                    conn.send_keepalive(now());
                }
                Event::Message(m) if m.header.ty == 4 => maps += 1,
                Event::Closed(error) => return Err(error.into()),
                _ => {}
            }
        }
    }
    Ok(())
}

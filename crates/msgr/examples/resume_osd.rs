//! Opens a lossless session with an OSD's cluster address (auth none), loses the connection with messages on
//! their way, and resumes: `resume_osd 127.0.0.1:6802/NONCE`. A check of session resume against a real Ceph.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use bytes::{BufMut, Bytes, BytesMut};
use messages::wire::{Header, WireMessage};
use msgr::{ConMode, Connection, Event, Limits, Local, Peer, Policy, Session};
use types::{AddrKind, AddrVec, EntityAddr, EntityName, EntityType, Now, Utime};

type Failure = Box<dyn std::error::Error>;

/// CEPH_MSG_PING: a message that every daemon takes and does nothing for.
fn ping() -> WireMessage {
    WireMessage {
        header: Header { ty: 2, priority: 127, version: 1, ..Header::default() },
        ..WireMessage::default()
    }
}

fn login(num: i64) -> Bytes {
    let mut p = BytesMut::new();
    // As to a daemon that is no monitor. Source: AuthNoneAuthorizer::build_authorizer in src/auth/none.
    p.put_u8(1);
    p.put_u32_le(EntityType::Osd as u32);
    let id = num.to_string();
    p.put_u32_le(id.len() as u32);
    p.put_slice(id.as_bytes());
    p.put_u64_le(900);
    p.freeze()
}

/// One TCP connection. With `cut`, it is dropped after that many bytes of what follows readiness were
/// written.
fn run(session: Session, to: EntityAddr, nr: u64, cut: Option<usize>) -> Result<Session, Failure> {
    let began = Instant::now();
    let now = || Now { mono: began.elapsed(), wall: Utime::ZERO };
    let mut socket = TcpStream::connect(to.socket.ok_or("no address")?)?;
    let me = EntityAddr::v2(([127, 0, 0, 1], 1).into(), std::process::id());
    let local = Local { name: EntityName::osd(900), addrs: AddrVec::single(me) };
    let mut conn = Connection::connect(now(), local, session, to, nr, nr, Limits::default());
    let mut buf = BytesMut::with_capacity(64 << 10);
    loop {
        let mut out = Vec::new();
        conn.take_outgoing(&mut out);
        let mut bytes = out.concat();
        if let (true, Some(n)) = (conn.is_ready(), cut) {
            bytes.truncate(n);
            socket.write_all(&bytes)?;
            return conn.take_session().ok_or_else(|| "no session".into());
        }
        socket.write_all(&bytes)?;
        if conn.is_ready() && conn.session().is_some_and(|s| !s.has_pending()) {
            println!("all acknowledged: {:?}", conn.session().map(Session::seqs));
            return conn.take_session().ok_or_else(|| "no session".into());
        }
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
                Event::Hello { .. } => conn.auth_request(1, &[ConMode::Crc], login(900)),
                Event::AuthDone { .. } => conn.auth_established(&[], &[]),
                Event::RetryGlobal { peer_knows } => conn.set_global_seq(peer_knows + 1),
                Event::Closed(error) => return Err(error.into()),
                _ => {}
            }
        }
    }
}

fn main() -> Result<(), Failure> {
    let to = std::env::args().nth(1).ok_or("usage: resume_osd ADDR/NONCE")?;
    let to = EntityAddr::parse(&to, AddrKind::Msgr2).ok_or("not an address")?;
    let peer = Peer { name: EntityName::osd(0), ..Peer::default() };
    let mut session = Session::outgoing(Policy::lossless_peer(), peer, u64::from(std::process::id()) << 20);
    for _ in 0..3 {
        session.push(ping());
    }
    let mut session = run(session, to, 1, None)?;
    for nr in 2..6 {
        for _ in 0..3 {
            session.push(ping());
        }
        // The first message arrives whole, the second in part; the third goes unsent.
        session = run(session, to, nr, Some(77 + 20 * nr as usize))?;
    }
    let session = run(session, to, 6, None)?;
    println!("resumed; seqs {:?}", session.seqs());
    Ok(())
}

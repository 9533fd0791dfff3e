//! Connections that this process opens: the client's half of authentication, and new attempts for lossless
//! sessions.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use msgr::{ConMode, Connection, Event, Peer, Policy, Session};
use tokio::net::TcpStream;
use types::{AddrVec, ConnId, EntityAddr, Now};

use super::Gone;
use super::channel::Channel;
use super::link::Link;
use super::messenger::Messenger;

/// The client's half of one authentication.
pub trait ClientAuth: Send + 'static {
    /// Method, modes in the order of preference, payload.
    fn request(&mut self, now: Now) -> Result<(u32, Vec<ConMode>, Bytes), String>;
    /// The answer to another round.
    fn more(&mut self, now: Now, payload: Bytes) -> Result<Bytes, String>;
    /// The acceptor refused this side with this errno.
    fn refused(&mut self, _errno: types::Errno) {}
    /// Checks the acceptor's last word.
    fn done(
        &mut self,
        now: Now,
        global_id: u64,
        mode: ConMode,
        payload: Bytes,
    ) -> Result<Established, String>;
}

/// What both ends know after authentication.
#[derive(Clone, Default)]
pub struct Established {
    pub session_key: Vec<u8>,
    pub connection_secret: Vec<u8>,
    /// The number that this side's name gets (a client's global id); `None` keeps it.
    pub our_num: Option<i64>,
}

/// Makes the client's half anew for every attempt.
pub type AuthFactory = Arc<dyn Fn() -> Box<dyn ClientAuth> + Send + Sync>;

/// Where to connect, and how.
#[derive(Clone)]
pub struct ConnectTo {
    pub peer: Peer,
    pub addr: EntityAddr,
    pub policy: Policy,
    pub auth: AuthFactory,
    /// The addresses that are stated as ours; `None`: those of `Messenger::local`.
    pub from: Option<AddrVec>,
}

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const FIRST_BACKOFF: Duration = Duration::from_millis(20);
const LAST_BACKOFF: Duration = Duration::from_secs(1);

/// Carries the channel until it is over: one attempt for a lossy session, attempts without end for a lossless
/// one.
pub(super) async fn run(messenger: Messenger, to: ConnectTo, channel: Arc<Channel>) {
    let mut backoff = FIRST_BACKOFF;
    while !channel.is_over() {
        let ended = attempt(&messenger, &to, &channel).await;
        if to.policy.lossy || channel.is_over() {
            messenger.end_channel(channel.id, ended);
            return;
        }
        if ended.was_ready {
            backoff = FIRST_BACKOFF;
        }
        messenger.handler().gone(channel.id, ended.why);
        tokio::time::sleep(backoff).await;
        backoff = (backoff * 2).min(LAST_BACKOFF);
    }
}

/// How an attempt or a connection came to its end.
pub(super) struct Ended {
    pub(super) why: Gone,
    pub(super) was_ready: bool,
}

impl Ended {
    pub(super) fn never(why: Gone) -> Self {
        Self { why, was_ready: false }
    }
}

async fn attempt(messenger: &Messenger, to: &ConnectTo, channel: &Arc<Channel>) -> Ended {
    let Some(socket) = to.addr.socket else { return Ended::never(Gone::Lost("it has no address".into())) };
    let stream = match tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(socket)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(e)) if e.kind() == std::io::ErrorKind::ConnectionRefused => {
            return Ended::never(Gone::Refused);
        }
        Ok(Err(e)) => return Ended::never(Gone::Lost(e.to_string())),
        Err(_) => return Ended::never(Gone::Lost("timed out while connecting".into())),
    };
    let link = channel.move_session(|session: Session| {
        let mut local = messenger.local();
        if let Some(from) = &to.from {
            local.addrs.clone_from(from);
        }
        let machine = Connection::connect(
            messenger.now(),
            local,
            session,
            to.addr,
            messenger.next_global_seq(),
            messenger.random(),
            messenger.limits().clone(),
        );
        Arc::new(Link::new(stream, machine))
    });
    let Some(link) = link else { return Ended::never(Gone::Lost("closed".into())) };
    let mut auth = (to.auth)();
    let ended = messenger
        .drive(channel, &link, |messenger, link, event| on_auth_event(messenger, link, auth.as_mut(), event))
        .await;
    channel.park(&link, messenger.now().mono);
    ended
}

/// The connector's answers to pausing events.
fn on_auth_event(messenger: &Messenger, link: &Link, auth: &mut dyn ClientAuth, event: Event) {
    let now = messenger.now();
    let result = match event {
        Event::Hello { our_addr, .. } => {
            if let Some(addrs) = messenger.client_addrs(our_addr) {
                link.with(|m| m.set_local_addrs(addrs));
            }
            auth.request(now)
                .map(|(method, modes, payload)| link.with(|m| m.auth_request(method, &modes, payload)))
        }
        Event::AuthReplyMore { payload } => {
            auth.more(now, payload).map(|payload| link.with(|m| m.auth_request_more(payload)))
        }
        Event::AuthDone { global_id, mode, payload } => auth.done(now, global_id, mode, payload).map(|e| {
            link.with(|m| {
                if let Some(num) = e.our_num {
                    m.set_local_num(num);
                }
                m.auth_established(&e.session_key, &e.connection_secret);
            });
        }),
        Event::AuthBadMethod { result, .. } => {
            auth.refused(types::Errno(result.saturating_neg()));
            Err(format!("authentication refused: {}", types::Errno(result.saturating_neg())))
        }
        Event::RetryGlobal { peer_knows } => {
            let seq = messenger.global_seq_above(peer_knows);
            link.with(|m| m.set_global_seq(seq));
            Ok(())
        }
        _ => Ok(()),
    };
    if let Err(why) = result {
        tracing::warn!("{why}");
        link.with(|m| m.refuse(types::Errno::EACCES.0));
    }
}

/// A new outgoing channel's id and state, before its first attempt.
pub(super) fn new_channel(id: ConnId, to: &ConnectTo, cookie: u64, now: Now) -> Channel {
    let session = Session::outgoing(to.policy, to.peer.clone(), cookie);
    Channel::parked(id, session, now.mono, to.addr)
}

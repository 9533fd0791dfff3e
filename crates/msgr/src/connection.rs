//! One TCP connection: banner, hello, authentication, session handshake, then messages.
//!
//! ```text
//! connector                                          acceptor
//! Banner -handle_banner-> Hello                      Banner -handle_banner-> Hello
//! Hello -on_hello-> AuthOwner*                       Hello -on_hello-> AuthAccept
//! AuthOwner* -auth_request[_more]-> AuthSent         AuthAccept -on_auth_request-> AuthOwner*
//! AuthSent -on_auth_reply_more-> AuthOwner*          AuthOwner* -auth_reply_more-> AuthAccept
//! AuthSent -on_auth_bad_method-> AuthOwner*          AuthOwner* -auth_bad_method-> AuthAccept
//! AuthSent -on_auth_done-> AuthOwner*                AuthOwner* -auth_done-> AuthSign
//! AuthOwner* -auth_established-> AuthSign
//! AuthSign -on_signature-> SessionSent               AuthSign -on_signature-> SessionAccept
//! SessionSent -on_server_ident, on_reconnect_ok-> Ready    SessionAccept -on_request-> SessionOwner*
//! SessionSent -on_retry_global-> SessionOwner*       SessionOwner* -answer_session-> SessionAccept
//! SessionOwner* -set_global_seq-> SessionSent        SessionOwner* -accept_session-> Ready
//! any -close-> Closed      (* = paused until the owner calls)
//! ```
//!
//! Invariants:
//! 1. Until `AuthSign` is left, every byte received and sent is part of what the peers sign, and there are at
//!    most `handshake_bytes` of them in each direction.
//! 2. Sealing begins behind AUTH_DONE: our AUTH_SIGNATURE and everything later goes sealed in secure mode.
//! 3. A message leaves or is delivered only in `Ready`.
//!
//! Source: src/msg/async/ProtocolV2.cc.

mod auth;
mod open;

use std::collections::VecDeque;
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use codec::{Decode, Encode, Writer};
use messages::wire::{Header, WireMessage};
use types::{EntityAddr, EntityName, Now, Utime};

use crate::control::MessageHeader;
use crate::frame::{Frame, FrameReader, FrameWriter, Segment};
use crate::grant::{Awaited, Grant};
use crate::secure::Side;
use crate::{Error, Event, Limits, Session, SessionRequest, Tag};

const BANNER: &[u8; 8] = b"ceph v2\n";
const BANNER_V1: &[u8] = b"ceph v0";
const BANNER_LEN: usize = BANNER.len() + 2 + 16;
/// The msgr2 features that this end has. It states none as required, as Ceph does, and refuses peers without
/// revision 1 itself.
const OUR_FEATURES: u64 = types::features::MSGR2_REVISION_1;
/// Questions that may be asked before a session stands: authentication rounds, and session retries.
const MAX_ROUNDS: u32 = 32;
/// What data in large frames is aligned to in memory.
const PAGE: usize = 4096;
/// A frame of which so many bytes are yet to come gets an aligned buffer, to which those that have come are
/// copied.
const ALIGN_FROM: usize = 64 << 10;
/// Message flags: complete, and without the old payload checksums. Source: CEPH_MSG_FOOTER_* in
/// src/include/msgr.h.
const MESSAGE_FLAGS: u8 = 0x3;

/// The name and addresses that this end states. A client's number is known only after authentication.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Local {
    pub name: EntityName,
    pub addrs: types::AddrVec,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Banner,
    Hello,
    AuthOwner,
    AuthSent,
    AuthAccept { more: bool },
    AuthSign,
    SessionSent { reconnect: bool },
    SessionAccept,
    SessionOwner,
    Ready,
    Closed,
}

impl State {
    fn name(self) -> &'static str {
        match self {
            Self::Banner => "exchanging banners",
            Self::Hello => "waiting for the peer's hello",
            Self::AuthOwner => "the owner judges authentication",
            Self::AuthSent => "waiting for the answer to authentication",
            Self::AuthAccept { .. } => "waiting for authentication",
            Self::AuthSign => "waiting for the peer's signature",
            Self::SessionSent { .. } => "waiting for the answer to the session request",
            Self::SessionAccept => "waiting for a session request",
            Self::SessionOwner => "the owner judges the session request",
            Self::Ready => "ready",
            Self::Closed => "closed",
        }
    }

    fn is_paused(self) -> bool {
        matches!(self, Self::AuthOwner | Self::SessionOwner)
    }

    fn is_authenticated(self) -> bool {
        matches!(
            self,
            Self::SessionSent { .. } | Self::SessionAccept | Self::SessionOwner | Self::Ready | Self::Closed
        )
    }
}

/// The protocol's side of one TCP connection; see the crate's documentation for how to drive it.
pub struct Connection {
    side: Side,
    local: Local,
    limits: Limits,
    state: State,
    session: Option<Session>,
    pub(crate) reader: FrameReader,
    /// The frame that `reader` waits for.
    pub(crate) awaited: Option<Awaited>,
    /// Frames of more bytes wait for the owner's grant.
    pub(crate) ask_above: usize,
    writer: FrameWriter,
    /// Received while paused.
    held: BytesMut,
    events: VecDeque<Event>,
    /// The peer: its socket address at first, for a connector the address it wants.
    target: EntityAddr,
    peer_type: Option<u8>,
    /// The mode that AUTH_DONE stated, until the owner establishes it.
    mode: Option<crate::ConMode>,
    session_key: Vec<u8>,
    /// What the peer signs, until its signature is checked.
    sent_before_auth: Vec<u8>,
    request: Option<SessionRequest>,
    global_seq: u64,
    /// For a new client cookie when the peer has us start over.
    spare_cookie: u64,
    rounds: u32,
    unacked: Unacked,
    began: Duration,
    heard: Duration,
    keepalive_sent: Option<Duration>,
    /// For how long the owner has not read from the peer. A read and a probe set it back to 0.
    pub(crate) unread_for: Duration,
}

/// Received messages that no frame has acknowledged yet.
///
/// The peer keeps what is not acknowledged, and needs the acknowledgement for nothing else: it costs a frame
/// and two wake-ups, so one stands for many.
#[derive(Debug, Default)]
struct Unacked {
    messages: usize,
    bytes: usize,
    /// When the first of them came (monotonic).
    since: Option<Duration>,
    late: bool,
}

impl Unacked {
    fn add(&mut self, bytes: usize, now: Duration) {
        self.messages += 1;
        self.bytes += bytes;
        self.since.get_or_insert(now);
    }

    fn is_due(&self, limits: &Limits) -> bool {
        self.late || self.messages >= limits.ack_messages || self.bytes >= limits.ack_bytes
    }

    fn deadline(&self, limits: &Limits) -> Option<Duration> {
        self.since.filter(|_| !self.late).map(|since| since + limits.ack_after)
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection")
            .field("side", &self.side)
            .field("state", &self.state)
            .field("target", &self.target)
            .field("session", &self.session)
            .finish_non_exhaustive()
    }
}

impl Connection {
    fn new(now: Now, side: Side, local: Local, target: EntityAddr, limits: Limits) -> Self {
        let mut c = Self {
            side,
            local,
            limits,
            state: State::Banner,
            session: None,
            reader: FrameReader::recording(),
            awaited: None,
            ask_above: usize::MAX,
            writer: FrameWriter::recording(),
            held: BytesMut::new(),
            events: VecDeque::new(),
            target,
            peer_type: None,
            mode: None,
            session_key: Vec::new(),
            sent_before_auth: Vec::new(),
            request: None,
            global_seq: 0,
            spare_cookie: 0,
            rounds: 0,
            unacked: Unacked::default(),
            began: now.mono,
            heard: now.mono,
            keepalive_sent: None,
            unread_for: Duration::ZERO,
        };
        let mut w = Writer::with_capacity(BANNER_LEN);
        w.raw(BANNER);
        w.u16(16);
        w.u64(OUR_FEATURES);
        w.u64(0);
        c.writer.raw(w.as_slice());
        c
    }

    /// The connecting end, for `session` (its `peer` names the wanted entity type). `target` is the address
    /// connected to, `global_seq` a number larger than that of any earlier connection of this process,
    /// `spare_cookie` random.
    pub fn connect(
        now: Now,
        local: Local,
        mut session: Session,
        target: EntityAddr,
        global_seq: u64,
        spare_cookie: u64,
        limits: Limits,
    ) -> Self {
        if session.is_established() {
            session.connect_seq += 1;
        }
        let mut c = Self::new(now, Side::Connector, local, target, limits);
        c.peer_type = Some(session.peer.name.kind);
        c.session = Some(session);
        c.global_seq = global_seq;
        c.spare_cookie = spare_cookie.max(1);
        c
    }

    /// The accepting end; `peer` is the socket's remote address.
    pub fn accept(now: Now, local: Local, peer: EntityAddr, limits: Limits) -> Self {
        Self::new(now, Side::Acceptor, local, peer, limits)
    }

    /// The next thing that happened. Call until `None` after every other call.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Appends what is to be written, in order, to `out`. Call once per batch of events: an acknowledgement
    /// of what was received goes along here when enough has come or `tick` found it late, unless a message
    /// sent meanwhile carried it.
    pub fn take_outgoing(&mut self, out: &mut Vec<Bytes>) {
        if self.state == State::Ready && self.unacked.is_due(&self.limits) {
            self.send_ack();
        }
        self.writer.take(out);
    }

    /// Bytes that `take_outgoing` would give: what has not been handed to the socket yet.
    pub fn outgoing_len(&self) -> usize {
        self.writer.len()
    }

    /// Bytes that must come in before anything more can be parsed (0: the owner is awaited). `handle_bytes`
    /// has already made room for them in the buffer, as far as the limits allow at once.
    pub fn wants(&self, buf: &BytesMut) -> usize {
        match self.state {
            State::Closed => 0,
            s if s.is_paused() => 0,
            State::Banner => BANNER_LEN.saturating_sub(buf.len()),
            _ => self.reader.needs().saturating_sub(buf.len()),
        }
    }

    pub fn is_ready(&self) -> bool {
        self.state == State::Ready
    }

    pub fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    /// Whether the peer has proven who it is.
    pub fn is_authenticated(&self) -> bool {
        self.state.is_authenticated()
    }

    /// The session, while this connection holds it.
    pub fn session(&self) -> Option<&Session> {
        self.session.as_ref()
    }

    /// Takes the session out, for the next connection or for the table of sessions; this connection is then
    /// over.
    pub fn take_session(&mut self) -> Option<Session> {
        let session = self.session.take();
        if self.state != State::Closed {
            self.close(Error::Replaced);
        }
        session
    }

    /// The owner gives the connection up: `errno` is its reason.
    pub fn refuse(&mut self, errno: i32) {
        self.close(Error::Refused(errno));
    }

    /// Our name's number, once authentication has given it.
    pub fn set_local_num(&mut self, num: i64) {
        self.local.name.num = num;
    }

    /// Our addresses, once the peer's hello has told them.
    pub fn set_local_addrs(&mut self, addrs: types::AddrVec) {
        self.local.addrs = addrs;
    }

    /// Sends `msg`, or queues it for when the session stands. Its seq is assigned here. On an accepting
    /// connection whose session was not accepted yet there is nobody to send to, and `msg` comes back.
    #[allow(clippy::result_large_err)] // the message itself comes back, to be sent elsewhere
    pub fn send(&mut self, msg: WireMessage) -> Result<(), WireMessage> {
        let Some(session) = &mut self.session else { return Err(msg) };
        if self.state == State::Ready {
            let msg = session.stamp(msg);
            self.write_message(&msg);
        } else {
            session.push(msg);
        }
        Ok(())
    }

    /// Asks the peer for a sign of life; the answer is `Event::KeepaliveAck` with the wall clock's stamp.
    pub fn send_keepalive(&mut self, now: Now) {
        if self.state == State::Ready {
            self.keepalive_sent = Some(now.mono);
            self.send_control(Tag::Keepalive2, &now.wall);
        }
    }

    /// When the peer was last heard of, by the monotonic clock.
    pub fn heard_at(&self) -> Duration {
        self.heard
    }

    /// Whether a keepalive is unanswered.
    pub fn awaits_keepalive(&self) -> bool {
        self.keepalive_sent.is_some()
    }

    /// Time passes: timeouts, and keepalives where the limits ask for them.
    pub fn tick(&mut self, now: Now) {
        if self.unacked.deadline(&self.limits).is_some_and(|at| now.mono >= at) {
            self.unacked.late = true;
        }
        self.probe_if_held();
        let Some(deadline) = self.next_deadline() else { return };
        if now.mono < deadline {
            return;
        }
        if self.state != State::Ready {
            self.close(Error::HandshakeTimeout);
        } else if now.mono >= self.heard + self.limits.idle_timeout {
            self.close(Error::IdleTimeout);
        } else if self.frame_deadline().is_some_and(|at| now.mono >= at) {
            self.close(Error::FrameTimeout);
        } else if now.mono >= self.idle_deadline() {
            self.send_keepalive(now);
        }
    }

    /// Sends an acknowledgement to a peer that the owner has not read from for long, to find out whether it
    /// still exists. Its FIN cannot be seen behind bytes that nobody reads; but if its process has closed the
    /// connection, its host answers with a reset.
    ///
    /// It is an acknowledgement because every peer takes one at any time: Linux' own client knows no
    /// keepalive from servers. Source: process_control in net/ceph/messenger_v2.c of Linux; RFC 1122,
    /// 4.2.2.13.
    fn probe_if_held(&mut self) {
        if self.state == State::Ready && self.unread_for >= self.limits.probe_held_after {
            self.unread_for = Duration::ZERO;
            self.send_ack();
        }
    }

    fn send_ack(&mut self) {
        self.unacked = Unacked::default();
        let seq = self.session.as_ref().map_or(0, |s| s.in_seq);
        self.send_control(Tag::Ack, &seq);
    }

    /// The monotonic time at which `tick` has something to do.
    pub fn next_deadline(&self) -> Option<Duration> {
        match self.state {
            State::Closed => None,
            State::Ready => {
                let others = [self.unacked.deadline(&self.limits), self.frame_deadline()];
                others.into_iter().flatten().chain([self.idle_deadline()]).min()
            }
            _ => Some(self.began + self.limits.handshake_timeout),
        }
    }

    /// When (monotonic) the frame that is coming in has to be whole; `None` while it waits for its grant.
    fn frame_deadline(&self) -> Option<Duration> {
        let awaited = self.awaited.filter(|_| !matches!(self.grant(), Grant::Wanted(_)))?;
        Some(awaited.deadline(self.reader.needs(), &self.limits))
    }

    /// When the peer was silent for so long that it must be asked or given up.
    fn idle_deadline(&self) -> Duration {
        let idle = self.heard + self.limits.idle_timeout;
        let since = self.keepalive_sent.map_or(self.heard, |s| s.max(self.heard));
        self.limits.keepalive_after.map_or(idle, |k| idle.min(since + k))
    }

    /// Takes received bytes from the front of `buf` and leaves what is not a whole frame yet, with room
    /// behind it for the next read.
    pub fn handle_bytes(&mut self, now: Now, buf: &mut BytesMut) {
        if self.state == State::Closed {
            buf.clear();
            return;
        }
        if !buf.is_empty() {
            self.heard = now.mono;
            self.unread_for = Duration::ZERO;
        }
        if !self.held.is_empty() {
            self.held.extend_from_slice(buf);
            *buf = std::mem::take(&mut self.held);
        }
        self.parse(buf);
        if self.state.is_paused() {
            self.held = buf.split();
            if self.held.len() > self.limits.handshake_bytes {
                self.close(Error::HandshakeTooLarge);
            }
        } else if self.state == State::Closed {
            buf.clear();
        }
        if self.state == State::Ready && self.reader.is_waiting() {
            self.awaited.get_or_insert(Awaited::new(now.mono));
        }
        self.make_room(buf);
    }

    /// Makes room in `buf` for the next read.
    ///
    /// A buffer is filled up before another is taken, because a message that the owner keeps holds on to its
    /// whole buffer. A frame with much data gets a buffer of its own, in which the data begins at a page, so
    /// that a device can take it from there. A frame that is longer than what may be reserved at once is
    /// moved only when its room is used up, to about twice the room: otherwise every read would move all that
    /// has come before.
    pub(crate) fn make_room(&self, buf: &mut BytesMut) {
        if matches!(self.grant(), Grant::Wanted(_)) {
            return;
        }
        let all = self.wants(buf);
        let wants = all.min(buf.len().max(self.limits.reserve_bytes));
        let room = buf.capacity() - buf.len();
        let is_long = buf.len() + all > self.limits.reserve_bytes;
        let least = if is_long { all.min(self.limits.read_bytes) } else { all };
        if let Some(data_at) = self.reader.data_at().filter(|_| is_long || all >= ALIGN_FROM) {
            if (buf.as_ptr().addr() + data_at) % PAGE != 0 || room < least {
                *buf = aligned(buf, data_at, wants);
            }
            return;
        }
        // The last bytes of a long frame bring no other frame: nothing is moved for the sake of a larger
        // read.
        let spare = if buf.len() < self.limits.read_bytes { self.limits.read_bytes / 4 } else { 1 };
        if room < least.max(spare) {
            buf.reserve(wants.max(self.limits.read_bytes));
        }
    }

    /// Parses the bytes that were held while the owner was asked.
    fn resume(&mut self) {
        let mut held = std::mem::take(&mut self.held);
        self.parse(&mut held);
        if self.state != State::Closed {
            self.held = held;
        }
    }

    fn parse(&mut self, buf: &mut BytesMut) {
        if let Err(error) = self.parse_all(buf) {
            self.close(error);
        }
    }

    fn parse_all(&mut self, buf: &mut BytesMut) -> Result<(), Error> {
        if self.state == State::Banner && !self.handle_banner(buf)? {
            return Ok(());
        }
        while !self.state.is_paused() && self.state != State::Closed {
            let (state, side) = (self.state, self.side);
            let admit = |tag| admit(side, state, tag);
            let Some(frame) = self.reader.next(buf, &self.limits, admit)? else { break };
            self.awaited = None;
            self.check_transcripts()?;
            self.handle_frame(frame)?;
        }
        Ok(())
    }

    fn check_transcripts(&self) -> Result<(), Error> {
        let longest = [&self.reader.transcript, &self.writer.transcript]
            .map(|t| t.as_ref().map_or(0, Vec::len))
            .into_iter()
            .max();
        if longest.is_some_and(|n| n > self.limits.handshake_bytes) {
            return Err(Error::HandshakeTooLarge);
        }
        Ok(())
    }

    /// Whether the peer's banner was whole. Wrong bytes are found as soon as they are there.
    fn handle_banner(&mut self, buf: &mut BytesMut) -> Result<bool, Error> {
        let have = buf.get(..buf.len().min(BANNER.len())).unwrap_or_default();
        if !BANNER.starts_with(have) {
            let v1 = have.starts_with(BANNER_V1);
            return Err(if v1 { Error::LegacyPeer } else { Error::BadBanner });
        }
        let len = buf.get(BANNER.len()..BANNER.len() + 2);
        if len.is_some_and(|mut l| l.get_u16_le() != 16) {
            return Err(Error::BadBanner);
        }
        if buf.len() < BANNER_LEN {
            return Ok(false);
        }
        let raw = buf.split_to(BANNER_LEN);
        if let Some(t) = &mut self.reader.transcript {
            t.extend_from_slice(&raw);
        }
        let mut features = raw.get(BANNER.len() + 2..).unwrap_or_default();
        let (supported, required) = (features.get_u64_le(), features.get_u64_le());
        if required & !OUR_FEATURES != 0 {
            return Err(Error::UnknownRequired { unknown: required & !OUR_FEATURES });
        }
        if OUR_FEATURES & !supported != 0 {
            return Err(Error::NoRevision1 { missing: OUR_FEATURES & !supported });
        }
        self.state = State::Hello;
        let hello = crate::Hello { entity_type: self.local.name.kind, peer_addr: self.target };
        self.send_control(Tag::Hello, &hello);
        Ok(true)
    }

    fn handle_frame(&mut self, frame: Frame) -> Result<(), Error> {
        let [payload, ..] = &frame.segments;
        let payload = payload.clone();
        match frame.tag {
            Tag::Hello => self.on_hello(payload),
            Tag::AuthRequest => self.on_auth_request(payload),
            Tag::AuthRequestMore => self.on_auth_request_more(payload),
            Tag::AuthBadMethod => self.on_auth_bad_method(payload),
            Tag::AuthReplyMore => self.on_auth_reply_more(payload),
            Tag::AuthDone => self.on_auth_done(payload),
            Tag::AuthSignature => self.on_signature(payload),
            Tag::ClientIdent | Tag::SessionReconnect => self.on_request(frame.tag, payload),
            Tag::ServerIdent => self.on_server_ident(payload),
            Tag::SessionReconnectOk => self.on_reconnect_ok(payload),
            Tag::IdentMissingFeatures => Err(Error::MissingFeatures(u64::from_bytes(payload)?)),
            Tag::SessionReset => self.on_reset(payload),
            Tag::SessionRetry => self.on_retry(payload),
            Tag::SessionRetryGlobal => self.on_retry_global(payload),
            Tag::Wait => Err(Error::Wait),
            Tag::Message => self.on_message(frame),
            Tag::Keepalive2 => {
                let stamp = Utime::from_bytes(payload)?;
                self.send_control(Tag::Keepalive2Ack, &stamp);
                Ok(())
            }
            Tag::Keepalive2Ack => {
                self.keepalive_sent = None;
                self.events.push_back(Event::KeepaliveAck(Utime::from_bytes(payload)?));
                Ok(())
            }
            Tag::Ack => {
                let seq = u64::from_bytes(payload)?;
                self.session_mut(|s| s.acked(seq));
                Ok(())
            }
        }
    }

    fn session_mut<T>(&mut self, f: impl FnOnce(&mut Session) -> T) -> Option<T> {
        self.session.as_mut().map(f)
    }

    fn on_message(&mut self, frame: Frame) -> Result<(), Error> {
        if frame.aborted {
            return Ok(());
        }
        let [header, front, middle, data] = frame.segments;
        let h = MessageHeader::from_bytes(header)?;
        let Some(session) = &mut self.session else { return Ok(()) };
        session.acked(h.ack_seq);
        if !session.admit(h.seq) {
            return Ok(());
        }
        let lossy = session.policy.lossy;
        let header = Header {
            seq: h.seq,
            tid: h.tid,
            ty: h.ty,
            priority: h.priority,
            version: h.version,
            compat_version: h.compat_version,
            data_off: h.data_off,
        };
        let message = WireMessage { header, front, middle, data, more: Vec::new() };
        if !lossy {
            self.unacked.add(message.payload_len(), self.heard);
        }
        self.events.push_back(Event::Message(message));
        Ok(())
    }

    fn write_message(&mut self, msg: &WireMessage) {
        let h = &msg.header;
        let header = MessageHeader {
            seq: h.seq,
            tid: h.tid,
            ty: h.ty,
            priority: h.priority,
            version: h.version,
            pre_padding: 0,
            data_off: h.data_off,
            ack_seq: self.session.as_ref().map_or(0, |s| s.in_seq),
            flags: MESSAGE_FLAGS,
            compat_version: h.compat_version,
            reserved: 0,
        };
        self.unacked = Unacked::default();
        let later = [Segment::from(&msg.front), (&msg.middle).into(), Segment::of(&msg.data, &msg.more)];
        let written = Writer::pass(|w| header.encode(w), |raw| self.writer.frame(Tag::Message, raw, later));
        if let Err(error) = written {
            self.close(error);
        }
    }

    fn send_control(&mut self, tag: Tag, fields: &impl Encode) {
        let mut w = Writer::new();
        fields.encode(&mut w);
        if let Err(error) = self.writer.control(tag, w.as_slice()) {
            self.close(error);
        }
    }

    fn close(&mut self, error: Error) {
        if self.state != State::Closed {
            self.state = State::Closed;
            self.held = BytesMut::new();
            self.events.push_back(Event::Closed(error));
        }
    }

    /// Checks that an owner's call fits the state. A closed connection takes every call and does nothing.
    fn expect(&mut self, call: &'static str, fits: bool) -> bool {
        if !fits && self.state != State::Closed {
            self.close(Error::Misuse { call, state: self.state.name() });
        }
        self.state != State::Closed
    }
}

/// A buffer with room for `more` bytes behind those of `old`, whose byte at `data_at` begins a page.
fn aligned(old: &[u8], data_at: usize, more: usize) -> BytesMut {
    let mut new = codec::spare::buffer(PAGE + old.len() + more);
    let skip = (PAGE - (new.as_ptr().addr() + data_at) % PAGE) % PAGE;
    new.put_bytes(0, skip);
    new.advance(skip);
    new.put_slice(old);
    new
}

/// Whether a frame of this tag may come now; checked before its body is waited for.
fn admit(side: Side, state: State, tag: Tag) -> Result<(), Error> {
    let connector = side == Side::Connector;
    let fits = match tag {
        Tag::Hello => state == State::Hello,
        Tag::AuthRequest => matches!(state, State::AuthAccept { .. }),
        Tag::AuthRequestMore => state == State::AuthAccept { more: true },
        Tag::AuthBadMethod | Tag::AuthReplyMore | Tag::AuthDone => state == State::AuthSent,
        Tag::AuthSignature => state == State::AuthSign,
        Tag::ClientIdent | Tag::SessionReconnect => state == State::SessionAccept,
        Tag::ServerIdent | Tag::IdentMissingFeatures => state == State::SessionSent { reconnect: false },
        Tag::SessionReset | Tag::SessionRetry | Tag::SessionRetryGlobal | Tag::SessionReconnectOk => {
            state == State::SessionSent { reconnect: true }
        }
        Tag::Wait => connector && matches!(state, State::SessionSent { .. }),
        Tag::Message | Tag::Keepalive2 | Tag::Keepalive2Ack | Tag::Ack => state == State::Ready,
    };
    if fits { Ok(()) } else { Err(Error::UnexpectedFrame { tag, state: state.name() }) }
}

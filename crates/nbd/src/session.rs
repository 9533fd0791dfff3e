//! One connection: greeting, options, then requests.
//!
//! ```text
//! Flags --client flags--> Options --GO or EXPORT_NAME--> Transmission --DISC--> Closed
//! Options --STARTTLS, where it must come first--> Tls --> Options
//! any phase --malformed bytes--> Closed
//! ```

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::export::Export;
use crate::limits::{MAX_OPTION, MAX_PAYLOAD};
use crate::options::{Agreed, Next, answer, answer_before_tls};
use crate::reply::Replies;
use crate::request::{HEADER_LEN, Header, Request};
use crate::take::Take;
use crate::wire::{FLAG_FIXED_NEWSTYLE, FLAG_NO_ZEROES, INIT_MAGIC, OPTION_MAGIC, command};

/// What the session asks its shell to do, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    Send(Bytes),
    Request(Request),
    /// Send what is to be sent, then take up TLS: every later byte, both ways, goes through it.
    StartTls,
    /// Send what is to be sent, then close the connection.
    Close(CloseReason),
}

/// Why a connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CloseReason {
    #[error("the client left")]
    Left,
    #[error("the client asked for an export that does not exist")]
    NoSuchExport,
    #[error("the client must speak TLS and does not")]
    NoTls,
    #[error("the client sent bytes behind STARTTLS before it was answered")]
    BytesBeforeTls,
    #[error("the client's handshake flags are unknown")]
    UnknownFlags,
    #[error("the client sent a malformed option")]
    MalformedOption,
    #[error("the client sent a malformed request")]
    MalformedRequest,
    #[error("the client sent more than {MAX_PAYLOAD} bytes in one request")]
    TooLong,
}

/// A connection's state; see the module's diagram.
#[derive(Debug)]
pub struct Session {
    exports: Vec<Export>,
    agreed: Agreed,
    /// STARTTLS must come before everything else, and has not.
    needs_tls: bool,
    phase: Phase,
    input: BytesMut,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Flags,
    Options,
    Tls,
    Transmission(usize),
    Closed,
}

const OPTION_HEADER_LEN: usize = 16;

impl Session {
    /// A new connection, and the greeting to send first.
    #[must_use]
    pub fn new(exports: Vec<Export>) -> (Self, Bytes) {
        let mut greeting = BytesMut::with_capacity(18);
        greeting.put_u64(INIT_MAGIC);
        greeting.put_u64(OPTION_MAGIC);
        greeting.put_u16(FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES);
        let session = Self {
            exports,
            agreed: Agreed::default(),
            needs_tls: false,
            phase: Phase::Flags,
            input: BytesMut::new(),
        };
        (session, greeting.freeze())
    }

    /// As [`Session::new`] for a client that hears of no export before [`Event::StartTls`] (the protocol's
    /// FORCEDTLS).
    #[must_use]
    pub fn with_tls(exports: Vec<Export>) -> (Self, Bytes) {
        let (session, greeting) = Self::new(exports);
        (Self { needs_tls: true, ..session }, greeting)
    }

    /// Where received bytes go. Call [`Session::next_event`] until it is `None` before receiving more: that bounds
    /// the buffer to one request.
    pub fn input(&mut self) -> &mut BytesMut {
        &mut self.input
    }

    /// Bytes of data of the write whose header was received and whose data was not, yet; 0 when there is no such. The shell
    /// makes room for them before it receives more.
    #[must_use]
    pub fn payload_to_come(&self) -> usize {
        let Phase::Transmission(_) = self.phase else { return 0 };
        self.input.get(..HEADER_LEN).and_then(|head| Header::parse(head).ok()).map_or(0, |h| h.payload_len())
    }

    /// The image behind an export has another size now; requests are checked against it from here on.
    pub fn resize(&mut self, export: usize, size: u64) {
        if let Some(export) = self.exports.get_mut(export) {
            export.size = size;
        }
    }

    /// The next thing to do; `None` until more bytes come.
    pub fn next_event(&mut self) -> Option<Event> {
        match self.phase {
            Phase::Flags => self.client_flags(),
            Phase::Options => self.option(),
            Phase::Tls => self.start_tls(),
            Phase::Transmission(export) => self.request(export),
            Phase::Closed => None,
        }
    }

    /// How replies are written on this connection; fixed once requests come.
    #[must_use]
    pub fn replies(&self) -> Replies {
        Replies { structured: self.agreed.structured }
    }

    fn close(&mut self, why: CloseReason) -> Option<Event> {
        self.phase = Phase::Closed;
        self.input.clear();
        Some(Event::Close(why))
    }

    fn client_flags(&mut self) -> Option<Event> {
        if self.input.len() < 4 {
            return None;
        }
        let flags = self.input.get_u32();
        let known = u32::from(FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES);
        if flags & !known != 0 {
            return self.close(CloseReason::UnknownFlags);
        }
        self.agreed.flags = u16::try_from(flags).unwrap_or(0);
        self.phase = Phase::Options;
        self.option()
    }

    fn option(&mut self) -> Option<Event> {
        let mut take = Take(&self.input);
        let (Ok(magic), Ok(code), Ok(len)) = (take.u64(), take.u32(), take.u32()) else { return None };
        if magic != OPTION_MAGIC || len > MAX_OPTION {
            return self.close(CloseReason::MalformedOption);
        }
        if self.input.len() < OPTION_HEADER_LEN + len as usize {
            return None;
        }
        self.input.advance(OPTION_HEADER_LEN);
        let data = self.input.split_to(len as usize);
        let mut out = BytesMut::new();
        let next = if self.needs_tls {
            Ok(answer_before_tls(code, &data, &mut out))
        } else {
            answer(code, &data, &self.exports, &mut self.agreed, &mut out)
        };
        let Ok(next) = next else { return self.close(CloseReason::MalformedOption) };
        match next {
            Next::Option => {}
            Next::Tls => self.phase = Phase::Tls,
            Next::NoSuchExport if self.needs_tls => return self.close(CloseReason::NoTls),
            Next::Transmission(export) => self.attach(export),
            Next::Abort => self.phase = Phase::Closed,
            Next::NoSuchExport => return self.close(CloseReason::NoSuchExport),
        }
        Some(Event::Send(out.freeze()))
    }

    /// Bytes that came in the clear must not count as if they had come through TLS: anybody on the way may
    /// have added them.
    fn start_tls(&mut self) -> Option<Event> {
        if !self.input.is_empty() {
            return self.close(CloseReason::BytesBeforeTls);
        }
        self.needs_tls = false;
        self.agreed.is_secure = true;
        self.phase = Phase::Options;
        Some(Event::StartTls)
    }

    fn attach(&mut self, export: usize) {
        self.phase = Phase::Transmission(export);
        // A context that was selected for another export is not this one's.
        if self.agreed.allocation_of != Some(export) {
            self.agreed.allocation_of = None;
        }
    }

    fn request(&mut self, at: usize) -> Option<Event> {
        let head = self.input.get(..HEADER_LEN)?;
        let Ok(header) = Header::parse(head) else { return self.close(CloseReason::MalformedRequest) };
        if header.kind == command::DISC {
            return self.close(CloseReason::Left);
        }
        if header.payload_len() > MAX_PAYLOAD as usize {
            return self.close(CloseReason::TooLong);
        }
        let whole = HEADER_LEN + header.payload_len();
        if self.input.len() < whole {
            return None;
        }
        self.input.advance(HEADER_LEN);
        let payload = self.input.split_to(header.payload_len()).freeze();
        let Some(export) = self.exports.get(at) else { return self.close(CloseReason::NoSuchExport) };
        let allocation = self.agreed.allocation_of == Some(at);
        Some(match header.check(payload, export, self.agreed.structured, allocation) {
            Ok(command) => Event::Request(Request { cookie: header.cookie, command }),
            Err(e) => Event::Send(self.replies().error(header.cookie, e)),
        })
    }

    /// The export the client took, once it did.
    #[must_use]
    pub fn export(&self) -> Option<usize> {
        match self.phase {
            Phase::Transmission(export) => Some(export),
            _ => None,
        }
    }

    /// Whether the connection is over from the protocol's side.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.phase == Phase::Closed
    }
}

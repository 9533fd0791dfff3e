//! The handshake up to the signatures. Authentication itself is the owner's: this carries its payloads.

use bytes::Bytes;
use codec::Decode;
use hmac::{Hmac, Mac};
use sha2::Sha256;

use super::{Connection, MAX_ROUNDS, State};
use crate::control::{AuthBadMethod, AuthDone, AuthRequest, Blob};
use crate::secure::{Side, directions};
use crate::{ConMode, Error, Event, Hello, Tag};

/// Over everything the other end has sent. Without a session key (auth none) it is all zeros.
fn signature(key: &[u8], transcript: &[u8]) -> [u8; 32] {
    match Hmac::<Sha256>::new_from_slice(key) {
        Ok(mut mac) if !key.is_empty() => {
            mac.update(transcript);
            mac.finalize().into_bytes().into()
        }
        _ => [0; 32],
    }
}

fn differs(a: &[u8; 32], b: &[u8; 32]) -> bool {
    // No early exit: how far a forged signature is right must not show in the time taken.
    std::hint::black_box(a.iter().zip(b).fold(0, |acc, (x, y)| acc | (x ^ y))) != 0
}

impl Connection {
    pub(super) fn on_hello(&mut self, payload: Bytes) -> Result<(), Error> {
        let hello = Hello::from_bytes(payload)?;
        match self.peer_type {
            Some(wanted) if wanted != hello.entity_type => {
                return Err(Error::WrongPeerType { wanted, got: hello.entity_type });
            }
            _ => self.peer_type = Some(hello.entity_type),
        }
        self.state = match self.side {
            Side::Connector => State::AuthOwner,
            Side::Acceptor => State::AuthAccept { more: false },
        };
        let (entity_type, our_addr) = (hello.entity_type, hello.peer_addr);
        self.events.push_back(Event::Hello { entity_type, our_addr });
        Ok(())
    }

    fn count_round(&mut self) -> Result<(), Error> {
        self.rounds += 1;
        if self.rounds > MAX_ROUNDS { Err(Error::TooManyRounds) } else { Ok(()) }
    }

    fn ask_owner(&mut self, event: Event) -> Result<(), Error> {
        self.count_round()?;
        self.state = State::AuthOwner;
        self.events.push_back(event);
        Ok(())
    }

    pub(super) fn on_auth_request(&mut self, payload: Bytes) -> Result<(), Error> {
        let AuthRequest { method, preferred_modes, payload } = AuthRequest::from_bytes(payload)?;
        self.ask_owner(Event::AuthRequest { method, preferred_modes, payload: payload.0 })
    }

    pub(super) fn on_auth_request_more(&mut self, payload: Bytes) -> Result<(), Error> {
        let payload = Blob::from_bytes(payload)?.0;
        self.ask_owner(Event::AuthRequestMore { payload })
    }

    pub(super) fn on_auth_reply_more(&mut self, payload: Bytes) -> Result<(), Error> {
        let payload = Blob::from_bytes(payload)?.0;
        self.ask_owner(Event::AuthReplyMore { payload })
    }

    pub(super) fn on_auth_bad_method(&mut self, payload: Bytes) -> Result<(), Error> {
        let AuthBadMethod { method, result, allowed_methods, allowed_modes } =
            AuthBadMethod::from_bytes(payload)?;
        self.ask_owner(Event::AuthBadMethod { method, result, allowed_methods, allowed_modes })
    }

    pub(super) fn on_auth_done(&mut self, payload: Bytes) -> Result<(), Error> {
        let AuthDone { global_id, con_mode, payload } = AuthDone::from_bytes(payload)?;
        let mode = ConMode::from_u32(con_mode).ok_or(Error::BadConMode(con_mode))?;
        self.mode = Some(mode);
        self.ask_owner(Event::AuthDone { global_id, mode, payload: payload.0 })
    }

    fn owner_may(&mut self, call: &'static str, side: Side) -> bool {
        let fits = self.state == State::AuthOwner && self.side == side;
        self.expect(call, fits)
    }

    /// Connector: begins authentication with `method` (also after the peer refused another).
    pub fn auth_request(&mut self, method: u32, preferred_modes: &[ConMode], payload: Bytes) {
        let begun = self.mode.is_none();
        if self.owner_may("auth_request", Side::Connector) && self.expect("auth_request", begun) {
            let preferred_modes = preferred_modes.iter().map(|m| *m as u32).collect();
            self.state = State::AuthSent;
            self.send_control(
                Tag::AuthRequest,
                &AuthRequest { method, preferred_modes, payload: Blob(payload) },
            );
            self.resume();
        }
    }

    /// Connector: goes on after `AuthReplyMore`.
    pub fn auth_request_more(&mut self, payload: Bytes) {
        let begun = self.mode.is_none();
        if self.owner_may("auth_request_more", Side::Connector) && self.expect("auth_request_more", begun) {
            self.state = State::AuthSent;
            self.send_control(Tag::AuthRequestMore, &Blob(payload));
            self.resume();
        }
    }

    /// Connector: the owner has checked AUTH_DONE's payload. The key is empty without authentication; the
    /// secret (at least 40 bytes) is used in secure mode only.
    pub fn auth_established(&mut self, session_key: &[u8], connection_secret: &[u8]) {
        let mode = self.mode;
        if self.owner_may("auth_established", Side::Connector)
            && self.expect("auth_established", mode.is_some())
        {
            self.sign(mode.unwrap_or(ConMode::Crc), session_key, connection_secret);
        }
    }

    /// Acceptor: asks for another round.
    pub fn auth_reply_more(&mut self, payload: Bytes) {
        if self.owner_may("auth_reply_more", Side::Acceptor) {
            self.state = State::AuthAccept { more: true };
            self.send_control(Tag::AuthReplyMore, &Blob(payload));
            self.resume();
        }
    }

    /// Acceptor: refuses `method` for `result` (a negative errno); the peer may try another on this
    /// connection.
    pub fn auth_bad_method(
        &mut self,
        method: u32,
        result: i32,
        allowed_methods: &[u32],
        allowed_modes: &[ConMode],
    ) {
        if self.owner_may("auth_bad_method", Side::Acceptor) {
            self.state = State::AuthAccept { more: false };
            let allowed_modes = allowed_modes.iter().map(|m| *m as u32).collect();
            let allowed_methods = allowed_methods.to_vec();
            let frame = AuthBadMethod { method, result, allowed_methods, allowed_modes };
            self.send_control(Tag::AuthBadMethod, &frame);
            self.resume();
        }
    }

    /// Acceptor: the peer is who it claims. See `auth_established` for key and secret.
    pub fn auth_done(
        &mut self,
        global_id: u64,
        mode: ConMode,
        payload: Bytes,
        session_key: &[u8],
        connection_secret: &[u8],
    ) {
        if self.owner_may("auth_done", Side::Acceptor) {
            let frame = AuthDone { global_id, con_mode: mode as u32, payload: Blob(payload) };
            self.send_control(Tag::AuthDone, &frame);
            self.sign(mode, session_key, connection_secret);
        }
    }

    /// Turns sealing on and sends the signature over what was received, the first sealed frame.
    fn sign(&mut self, mode: ConMode, session_key: &[u8], connection_secret: &[u8]) {
        if mode == ConMode::Secure {
            match directions(connection_secret, self.side) {
                Ok((rx, tx)) => {
                    self.reader.secure(rx);
                    self.writer.secure(tx);
                }
                Err(error) => return self.close(error),
            }
        }
        self.state = State::AuthSign;
        self.session_key = session_key.to_vec();
        let received = self.reader.transcript.take().unwrap_or_default();
        let ours = signature(session_key, &received);
        // What we send from here on is not signed; what we sent before is kept to check the peer's signature.
        let sent = self.writer.transcript.take();
        if let Err(error) = self.writer.control(Tag::AuthSignature, &ours) {
            return self.close(error);
        }
        self.sent_before_auth = sent.unwrap_or_default();
        self.resume();
    }

    pub(super) fn on_signature(&mut self, payload: Bytes) -> Result<(), Error> {
        let theirs: [u8; 32] = codec::Reader::new(payload).array()?;
        let sent = std::mem::take(&mut self.sent_before_auth);
        let expected = signature(&std::mem::take(&mut self.session_key), &sent);
        if differs(&theirs, &expected) {
            return Err(Error::BadSignature);
        }
        self.rounds = 0;
        match self.side {
            Side::Acceptor => self.state = State::SessionAccept,
            Side::Connector => self.request_session(),
        }
        Ok(())
    }
}

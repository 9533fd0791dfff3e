//! Authorizers: how the holder of a ticket and the service that it is for prove to each other that they may
//! talk.
//!
//! ```text
//! holder                                        service
//!   Authorizer::payload  ── AUTH_REQUEST ──▶      AuthorizerAcceptor::verify  → NeedChallenge
//!   add_challenge        ◀─ AUTH_REPLY_MORE ──
//!                        ── AUTH_REQUEST_MORE ─▶  verify                      → Accepted
//!   verify_reply         ◀─ AUTH_DONE ──
//! ```
//!
//! Invariants of the service side:
//! 1. Nothing is accepted without an answer to a challenge that this connection made (CVE-2018-1128,
//!    CVE-2020-25660).
//! 2. A challenge is answered once; right or wrong, it is then gone.

use bytes::Bytes;
use codec::{Decode, Encode, Reader, Writer};
use types::{AuthName, EntityType, GlobalId, Utime};

use crate::ceph_form;
use crate::crypt::{decrypt_value, encrypt_value, put_encrypted, take_encrypted};
use crate::entity_auth::CapsInfo;
use crate::entropy::{Entropy, random_u64};
use crate::error::AuthError;
use crate::key::CryptoKey;
use crate::protocol::{Authorize, AuthorizeChallenge, AuthorizeReply};
use crate::rotating::ServiceSecrets;
use crate::ticket::{TicketBlob, TicketForm, TicketInfo, open_ticket};

/// First byte of an authorizer; also its authentication mode. Source: AUTH_MODE_AUTHORIZER in
/// src/auth/Auth.h.
const AUTHORIZER_VERSION: u8 = 1;

/// An authorizer in use on one connection, at its holder's side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authorizer {
    session_key: CryptoKey,
    nonce: u64,
    /// Version, global id, service and ticket: what stays when the challenge is answered.
    base: Bytes,
    payload: Bytes,
}

/// What both sides hold in common once an authorizer was accepted.
#[derive(Clone, PartialEq, Eq)]
pub struct SharedSecrets {
    pub session_key: CryptoKey,
    /// For msgr2's secure mode; empty in crc mode.
    pub connection_secret: Bytes,
}

impl std::fmt::Debug for SharedSecrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SharedSecrets(connection secret of {} bytes)", self.connection_secret.len())
    }
}

impl Authorizer {
    pub(crate) fn new(
        service: EntityType,
        global_id: GlobalId,
        session_key: CryptoKey,
        ticket: &TicketBlob,
        entropy: &mut dyn Entropy,
    ) -> Result<Self, AuthError> {
        let mut w = Writer::new();
        w.u8(AUTHORIZER_VERSION);
        global_id.encode(&mut w);
        w.u32(service as u32);
        ticket.encode(&mut w);
        let mut authorizer =
            Self { session_key, nonce: random_u64(entropy), base: w.into_bytes(), payload: Bytes::new() };
        authorizer.payload = authorizer.with_answer(None)?;
        Ok(authorizer)
    }

    /// What goes into AUTH_REQUEST (method cephx).
    pub fn payload(&self) -> Bytes {
        self.payload.clone()
    }

    /// Answers the service's challenge: takes what AUTH_REPLY_MORE brought, gives what AUTH_REQUEST_MORE
    /// carries.
    pub fn add_challenge(&mut self, challenge: &[u8]) -> Result<Bytes, AuthError> {
        let challenge: AuthorizeChallenge = decrypt_value(&self.session_key, challenge, "the challenge")?;
        self.payload = self.with_answer(Some(challenge.server_challenge.wrapping_add(1)))?;
        Ok(self.payload())
    }

    /// Checks the service's proof, as AUTH_DONE brought it.
    pub fn verify_reply(&self, reply: &Bytes) -> Result<SharedSecrets, AuthError> {
        let mut r = Reader::new(reply.clone());
        let reply: AuthorizeReply = take_encrypted(&mut r, &self.session_key, "the authorizer's reply")?;
        if reply.nonce_plus_one != self.nonce.wrapping_add(1) {
            return Err(AuthError::BadReply);
        }
        let connection_secret = reply.connection_secret;
        Ok(SharedSecrets { session_key: self.session_key.clone(), connection_secret })
    }

    fn with_answer(&self, answer: Option<u64>) -> Result<Bytes, AuthError> {
        let mut w = Writer::new();
        w.raw(&self.base);
        put_encrypted(&mut w, &self.session_key, &Authorize { nonce: self.nonce, answer })?;
        Ok(w.into_bytes())
    }
}

/// The service's side of one connection.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AuthorizerAcceptor {
    state: Challenge,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
enum Challenge {
    #[default]
    None,
    Sent(u64),
    Answered,
}

/// What a service does with an authorizer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Send this as AUTH_REPLY_MORE and verify what comes back.
    NeedChallenge(Bytes),
    /// The peer is who it says; send `reply` in AUTH_DONE.
    Accepted(Accepted),
    /// Send AUTH_BAD_METHOD or close with `errno()`; the connection is over.
    Refused(AuthError),
}

/// An accepted peer.
#[derive(Clone, PartialEq, Eq)]
pub struct Accepted {
    pub name: AuthName,
    pub global_id: GlobalId,
    /// The caps that the monitor put into the ticket for this service.
    pub caps: CapsInfo,
    /// When the ticket ends; a connection may outlive it, as in Ceph.
    pub expires: Utime,
    pub session_key: CryptoKey,
    /// Of the length asked for: 64 bytes for secure mode, none for crc mode.
    pub connection_secret: Bytes,
    /// The payload of AUTH_DONE.
    pub reply: Bytes,
}

impl std::fmt::Debug for Accepted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Accepted")
            .field("name", &self.name)
            .field("global_id", &self.global_id)
            .field("caps", &self.caps)
            .field("expires", &self.expires)
            .finish_non_exhaustive()
    }
}

impl AuthorizerAcceptor {
    pub fn new() -> Self {
        Self::default()
    }

    /// Judges the payload of AUTH_REQUEST or AUTH_REQUEST_MORE. `secret_len` is the length of the connection
    /// secret that the chosen mode needs (`CONNECTION_SECRET_LEN`, or 0 in crc mode).
    ///
    /// Source: cephx_verify_authorizer, MonClient::handle_auth_request.
    pub fn verify(
        &mut self,
        secrets: &ServiceSecrets,
        payload: &Bytes,
        secret_len: usize,
        now: Utime,
        entropy: &mut dyn Entropy,
    ) -> Verdict {
        let sent = std::mem::replace(&mut self.state, Challenge::Answered);
        let step = || {
            let (info, authorize, _) = open_authorizer(secrets, payload, now)?;
            match (sent, authorize.answer) {
                (Challenge::None, _) => self.challenge(&info, entropy).map(Verdict::NeedChallenge),
                (Challenge::Sent(challenge), Some(answer)) if answer == challenge.wrapping_add(1) => {
                    accept(info, &authorize, secret_len, entropy).map(Verdict::Accepted)
                }
                _ => Err(AuthError::BadChallenge),
            }
        };
        step().unwrap_or_else(Verdict::Refused)
    }

    fn challenge(&mut self, info: &TicketInfo, entropy: &mut dyn Entropy) -> Result<Bytes, AuthError> {
        let server_challenge = random_u64(entropy);
        self.state = Challenge::Sent(server_challenge);
        encrypt_value(&info.session_key, &AuthorizeChallenge { server_challenge })
    }
}

fn accept(
    info: TicketInfo,
    authorize: &Authorize,
    secret_len: usize,
    entropy: &mut dyn Entropy,
) -> Result<Accepted, AuthError> {
    let mut connection_secret = vec![0u8; secret_len];
    entropy.fill(&mut connection_secret);
    let connection_secret = Bytes::from(connection_secret);
    let proof = AuthorizeReply {
        nonce_plus_one: authorize.nonce.wrapping_add(1),
        connection_secret: connection_secret.clone(),
    };
    let mut reply = Writer::new();
    put_encrypted(&mut reply, &info.session_key, &proof)?;
    Ok(Accepted {
        name: info.ticket.name,
        global_id: info.ticket.global_id,
        caps: info.ticket.caps,
        expires: info.ticket.expires,
        session_key: info.session_key,
        connection_secret,
        reply: reply.into_bytes(),
    })
}

/// Opens an authorizer's ticket and its encrypted part, and gives the reader behind them. Does not look at
/// challenges.
pub(crate) fn open_authorizer(
    secrets: &ServiceSecrets,
    payload: &Bytes,
    now: Utime,
) -> Result<(TicketInfo, Authorize, Reader), AuthError> {
    let mut r = Reader::new(payload.clone());
    match r.u8()? {
        AUTHORIZER_VERSION => {}
        mode => return Err(AuthError::UnsupportedMode(mode)),
    }
    let global_id = GlobalId::decode(&mut r)?;
    let service = r.u32()?;
    let sealed = TicketBlob::decode(&mut r)?;
    if service != secrets.service as u32 {
        return Err(AuthError::WrongService { want: secrets.service, got: service });
    }
    let secret = secrets.secret(sealed.secret_id);
    let secret = secret.ok_or(AuthError::UnknownSecret { service: secrets.service, id: sealed.secret_id })?;
    let info = open_ticket(secrets.form, secrets.service, secret, &sealed)?;
    if info.ticket.global_id != global_id {
        return Err(AuthError::GlobalIdNotProven(global_id));
    }
    if secrets.form == TicketForm::Ceph {
        ceph_form::made_before(&info, now)?;
    }
    if info.ticket.expires <= now {
        return Err(AuthError::TicketExpired);
    }
    let authorize = take_encrypted(&mut r, &info.session_key, "the authorizer")?;
    Ok((info, authorize, r))
}

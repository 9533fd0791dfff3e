//! The messages of the cephx protocol in their wire forms. Source: src/auth/cephx/CephxProtocol.h.

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer};
use types::Utime;

use crate::crypt::encrypt_value;
use crate::error::AuthError;
use crate::key::CryptoKey;
use crate::ticket::TicketBlob;

/// `CEPHX_GET_AUTH_SESSION_KEY`: log in, or renew the login's ticket.
pub(crate) const GET_AUTH_SESSION_KEY: u16 = 0x0100;
/// `CEPHX_GET_PRINCIPAL_SESSION_KEY`: tickets for services.
pub(crate) const GET_PRINCIPAL_SESSION_KEY: u16 = 0x0200;
/// `CEPHX_GET_ROTATING_KEY`: a daemon's own service secrets.
pub(crate) const GET_ROTATING_KEY: u16 = 0x0400;

/// Implements the wire form of a struct behind a version byte that readers ignore.
macro_rules! versioned {
    ($name:ident($version:literal) { $($field:ident: $ty:ty),+ $(,)? }) => {
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub(crate) struct $name { $(pub(crate) $field: $ty),+ }

        impl Encode for $name {
            fn encode(&self, w: &mut Writer) {
                w.u8($version);
                $( self.$field.encode(w); )+
            }
        }
        impl Decode for $name {
            fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
                r.u8()?;
                Ok(Self { $( $field: <$ty>::decode(r)? ),+ })
            }
        }
    };
}

versioned!(ServerChallenge(1) { server_challenge: u64 });
versioned!(AuthorizeChallenge(1) { server_challenge: u64 });
versioned!(ServiceTicketRequest(1) { keys: u32 });
versioned!(ServiceTicket(1) { session_key: CryptoKey, validity: Utime });

/// The answer to a challenge. Version 3 promises that a reconnecting client presents its old ticket
/// (CVE-2021-20288).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Authenticate {
    pub(crate) client_challenge: u64,
    pub(crate) key: u64,
    pub(crate) old_ticket: TicketBlob,
    pub(crate) other_keys: u32,
}

impl Encode for Authenticate {
    fn encode(&self, w: &mut Writer) {
        w.u8(3);
        w.u64(self.client_challenge);
        w.u64(self.key);
        self.old_ticket.encode(w);
        w.u32(self.other_keys);
    }
}
impl Decode for Authenticate {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        let version = r.u8()?;
        Ok(Self {
            client_challenge: r.u64()?,
            key: r.u64()?,
            old_ticket: TicketBlob::decode(r)?,
            other_keys: if version >= 2 { r.u32()? } else { 0 },
        })
    }
}

/// The encrypted part of an authorizer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Authorize {
    pub(crate) nonce: u64,
    /// The service's challenge plus one, once it has challenged.
    pub(crate) answer: Option<u64>,
}

impl Encode for Authorize {
    fn encode(&self, w: &mut Writer) {
        w.u8(2);
        w.u64(self.nonce);
        self.answer.is_some().encode(w);
        w.u64(self.answer.unwrap_or(0));
    }
}
impl Decode for Authorize {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        let version = r.u8()?;
        let nonce = r.u64()?;
        if version < 2 {
            return Ok(Self { nonce, answer: None });
        }
        let have = bool::decode(r)?;
        let answer = r.u64()?;
        Ok(Self { nonce, answer: have.then_some(answer) })
    }
}

/// The service's proof that it opened the ticket, with the secret of a secure connection.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct AuthorizeReply {
    pub(crate) nonce_plus_one: u64,
    pub(crate) connection_secret: Bytes,
}

impl Encode for AuthorizeReply {
    fn encode(&self, w: &mut Writer) {
        let secret = !self.connection_secret.is_empty();
        w.u8(if secret { 2 } else { 1 });
        w.u64(self.nonce_plus_one);
        if secret {
            w.blob(&self.connection_secret);
        }
    }
}
impl Decode for AuthorizeReply {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        let version = r.u8()?;
        let nonce_plus_one = r.u64()?;
        let connection_secret = if version >= 2 { r.blob()? } else { Bytes::new() };
        Ok(Self { nonce_plus_one, connection_secret })
    }
}

/// What answers a server's challenge: both challenges encrypted with the entity's key and folded to 64 bits.
///
/// Source: cephx_calc_client_server_challenge. The fold covers the u32 length in front as well, and drops the
/// tail.
pub(crate) fn challenge_answer(key: &CryptoKey, server: u64, client: u64) -> Result<u64, AuthError> {
    let mut framed = Writer::new();
    framed.blob(&encrypt_value(key, &(server, client))?);
    let words =
        framed.as_slice().chunks_exact(8).map(|c| c.iter().rev().fold(0u64, |w, b| w << 8 | u64::from(*b)));
    Ok(words.fold(0, |acc, w| acc ^ w))
}

//! Ceph's authentication without IO: keys, keyrings, the cephx login, tickets, authorizers, capability
//! strings.
//!
//! Nothing here knows a socket, a file or a clock: payloads of msgr2's AUTH frames (and of MAuth messages)
//! come in and go out as bytes, with `now` and an `Entropy` (any `FnMut(&mut [u8])`) as arguments.
//!
//! **(a) The monitor** owns a `KeyServer`; per connection:
//!
//! ```text
//! // every few seconds, on the leader:
//! if let Some(keys) = key_server.rotated(now, &mut rng) { propose(keys) }
//! // once that is committed: key_server.rotating = keys
//! // AUTH_REQUEST (method METHOD_CEPHX):
//! match AuthMode::of(&payload)? {
//!     AuthMode::Login => {
//!         let request = LoginRequest::parse(&payload)?;
//!         let (session, challenge) = AuthSession::start(request, fresh_global_id, &mut rng);
//!         send(AUTH_REPLY_MORE, challenge);
//!     }
//!     // another monitor: as (b), with ServiceSecrets { service: Mon, fixed: the key of mon. }
//!     AuthMode::Authorizer => { .. }
//! }
//! // AUTH_REQUEST_MORE (secret_len: CONNECTION_SECRET_LEN in secure mode, 0 in crc mode):
//! let reply = session.handle_request(&key_server, &payload, Some(secret_len), now, &mut rng)?;
//! // Err(e): refuse with e.errno(). Granted: name, global_id, caps (MonCap::from_info), and the secrets.
//! let granted = reply.granted;
//! send(AUTH_DONE { global_id, con_mode, payload: reply.payload });
//! // later, each MAuth message over the session:
//! let reply = session.handle_request(&key_server, &mauth.payload, None, now, &mut rng);
//! send(MAuthReply { result, payload: reply.payload });
//! // whenever `key_server.forms` may have changed:
//! if let Some(payload) = session.changed_tickets(&key_server, now, &mut rng) { send(MAuthReply) }
//! ```
//!
//! **(b) An OSD (or mgr, mds) accepting** holds `ServiceSecrets`, refreshed by (c); per connection:
//!
//! ```text
//! let mut acceptor = AuthorizerAcceptor::new();
//! match acceptor.verify(&secrets, &payload, secret_len, now, &mut rng) {
//!     Verdict::NeedChallenge(bytes) => send(AUTH_REPLY_MORE, bytes),   // AUTH_REQUEST_MORE: verify() again
//!     Verdict::Accepted(peer) => { send(AUTH_DONE, peer.reply); /* OsdCap::from_info(&peer.caps)? */ }
//!     Verdict::Refused(why) => refuse(why.errno()),
//! }
//! ```
//!
//! **(c) A daemon or client connecting** keeps one `AuthClient` for its life:
//!
//! ```text
//! let mut auth = AuthClient::new(name, key, &[EntityType::Mon, EntityType::Osd, EntityType::Mgr]);
//! send(AUTH_REQUEST, auth.start_login());                                          // to a monitor
//! send(AUTH_REQUEST_MORE, auth.handle_challenge(&reply_more, now, &mut rng)?);
//! let shared = auth.handle_done(global_id, &done_payload, now)?;                   // SharedSecrets
//! // every few seconds over that session:
//! if let Some(payload) = auth.renewal_request(now, &mut rng)? { send_mauth(payload) }
//! if secrets.need_new(now, ttl.service) { send_mauth(auth.rotating_request()) }    // daemons only
//! match auth.handle_reply(result, &payload, now)? { Renewed::Rotating(r) => secrets.rotating = r, _ => {} }
//! // to an OSD:
//! let mut authorizer = auth.authorizer(EntityType::Osd, now, &mut rng)?;
//! send(AUTH_REQUEST, authorizer.payload());
//! send(AUTH_REQUEST_MORE, authorizer.add_challenge(&reply_more)?);
//! let shared = authorizer.verify_reply(&done_payload)?;
//! ```
//!
//! Source: doc/dev/cephx_protocol.rst, src/auth.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic))]

mod authorizer;
pub mod caps;
mod ceph_form;
mod client;
mod crypt;
mod entity_auth;
mod entropy;
mod error;
#[cfg(test)]
mod golden_tests;
mod key;
mod key_server;
mod keyring;
mod modes;
mod none;
mod protocol;
mod rotating;
mod secret;
mod server;
mod ticket;

pub use authorizer::{Accepted, Authorizer, AuthorizerAcceptor, SharedSecrets, Verdict};
pub use caps::{
    AppMetadata, CapError, ClassUse, MdsCap, MdsGrant, MdsPerms, MgrCap, MgrRequest, MonCap, MonRequest,
    OsdCap, OsdRequest, validate_caps,
};
pub use client::{AuthClient, Renewed};
pub use crypt::{decrypt_value, encrypt_value};
pub use entity_auth::{CapsInfo, EntityAuth};
pub use entropy::Entropy;
pub use error::AuthError;
pub use key::{CryptoKey, KeyTextError};
pub use key_server::KeyServer;
pub use keyring::{Keyring, KeyringError};
pub use modes::{MODE_CRC, MODE_OPTIONS, MODE_SECURE, mode_option, modes_allowed, parse_modes, usual_modes};
pub use none::{METHOD_CEPHX, METHOD_NONE, accept_none, login_none, none_authorizer, none_login_request};
pub use rotating::{
    ExpiringKey, FIXED_SECRET_ID, RotatingKeys, RotatingSecrets, SERVICES, ServiceSecrets, TicketTtl,
};
pub use secret::Secret;
pub use server::{AuthMode, AuthSession, Granted, LoginRequest, ServerReply};
pub use ticket::{AuthTicket, TicketBlob, TicketForm, TicketForms, TicketInfo, open_ticket, seal_ticket};

/// Bytes of connection secret that msgr2's secure mode needs. Source: get_connection_secret_length in
/// src/auth/Auth.h.
pub const CONNECTION_SECRET_LEN: usize = 64;

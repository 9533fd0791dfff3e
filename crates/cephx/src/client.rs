//! The client's side: logs in to a monitor, holds tickets, renews them, makes authorizers for services.

use std::collections::BTreeMap;

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer};
use types::{AuthName, EntityType, Errno, GlobalId, Utime};

use crate::authorizer::{Authorizer, SharedSecrets};
use crate::crypt::{decrypt_value, take_encrypted};
use crate::entropy::{Entropy, random_u64};
use crate::error::AuthError;
use crate::key::CryptoKey;
use crate::protocol::{
    Authenticate, GET_AUTH_SESSION_KEY, GET_PRINCIPAL_SESSION_KEY, GET_ROTATING_KEY, ServerChallenge,
    ServiceTicket, ServiceTicketRequest, challenge_answer,
};
use crate::rotating::{RotatingSecrets, SERVICES};
use crate::server::LoginRequest;
use crate::ticket::TicketBlob;

/// A ticket and the key shared with the service that it is for.
#[derive(Debug, Clone, PartialEq, Eq)]
struct HeldTicket {
    session_key: CryptoKey,
    ticket: TicketBlob,
    renew_after: Utime,
    expires: Utime,
}

/// One entity's authentication state towards a cluster; survives reconnections to monitors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthClient {
    name: AuthName,
    key: CryptoKey,
    global_id: GlobalId,
    want: Vec<EntityType>,
    tickets: BTreeMap<EntityType, HeldTicket>,
    /// The challenge of the present session with a monitor.
    server_challenge: Option<u64>,
}

/// What an MAuthReply brought.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Renewed {
    Tickets,
    /// Put these into `ServiceSecrets::rotating`.
    Rotating(RotatingSecrets),
}

impl AuthClient {
    /// `want` lists the services to hold tickets for (the login's own ticket is always held).
    pub fn new(name: AuthName, key: CryptoKey, want: &[EntityType]) -> Self {
        let mut want: Vec<EntityType> = want.iter().copied().filter(|s| *s != EntityType::Auth).collect();
        want.push(EntityType::Auth);
        let global_id = GlobalId(0);
        Self { name, key, global_id, want, tickets: BTreeMap::new(), server_challenge: None }
    }

    pub fn name(&self) -> &AuthName {
        &self.name
    }

    /// Zero before the first login.
    pub fn global_id(&self) -> GlobalId {
        self.global_id
    }

    /// Starts a login: the payload of AUTH_REQUEST to a monitor.
    pub fn start_login(&mut self) -> Bytes {
        self.server_challenge = None;
        if !self.tickets.contains_key(&EntityType::Auth) {
            // Without the ticket that proves it the old id would be refused.
            self.global_id = GlobalId(0);
        }
        LoginRequest { name: self.name.clone(), global_id: self.global_id }.encode()
    }

    /// Answers the monitor's challenge (AUTH_REPLY_MORE) with the payload of AUTH_REQUEST_MORE.
    pub fn handle_challenge(
        &mut self,
        payload: &Bytes,
        now: Utime,
        entropy: &mut dyn Entropy,
    ) -> Result<Bytes, AuthError> {
        if self.server_challenge.is_some() {
            return Err(AuthError::OutOfOrder("a second challenge"));
        }
        let challenge = ServerChallenge::from_bytes(payload.clone())?.server_challenge;
        self.server_challenge = Some(challenge);
        self.authenticate(challenge, now, entropy)
    }

    /// Takes in the tickets of AUTH_DONE.
    pub fn handle_done(
        &mut self,
        global_id: GlobalId,
        payload: &Bytes,
        now: Utime,
    ) -> Result<SharedSecrets, AuthError> {
        if self.server_challenge.is_none() {
            return Err(AuthError::OutOfOrder("done without a challenge"));
        }
        let mut r = Reader::new(payload.clone());
        expect_header(&mut r, GET_AUTH_SESSION_KEY)?;
        let shared = self.all_or_nothing(|c| c.take_login(&mut r, now))?;
        self.global_id = global_id;
        Ok(shared)
    }

    /// Forgets the tickets: call when a monitor refuses a login that presented one, then log in anew.
    pub fn forget_tickets(&mut self) {
        self.tickets.clear();
        self.global_id = GlobalId(0);
    }

    /// Whether a usable ticket for `service` is held.
    pub fn have(&self, service: EntityType, now: Utime) -> bool {
        self.tickets.get(&service).is_some_and(|t| now < t.expires)
    }

    /// The services whose tickets are missing or due for renewal.
    pub fn need(&self, now: Utime) -> Vec<EntityType> {
        let due = |s: &EntityType| self.tickets.get(s).is_none_or(|t| now >= t.renew_after);
        self.want.iter().copied().filter(due).collect()
    }

    /// A request that renews what is due, for an MAuth message over the session; nothing when nothing is due.
    pub fn renewal_request(
        &mut self,
        now: Utime,
        entropy: &mut dyn Entropy,
    ) -> Result<Option<Bytes>, AuthError> {
        let need = self.need(now);
        if need.is_empty() {
            return Ok(None);
        }
        if need.contains(&EntityType::Auth) {
            let challenge = self.server_challenge.ok_or(AuthError::OutOfOrder("renewal before login"))?;
            return self.authenticate(challenge, now, entropy).map(Some);
        }
        let mut w = Writer::new();
        w.u16(GET_PRINCIPAL_SESSION_KEY);
        w.raw(&self.authorizer(EntityType::Auth, now, entropy)?.payload());
        ServiceTicketRequest { keys: bits(&need) }.encode(&mut w);
        Ok(Some(w.into_bytes()))
    }

    /// A daemon's request for its service secrets, for an MAuth message.
    pub fn rotating_request(&self) -> Bytes {
        GET_ROTATING_KEY.to_bytes()
    }

    /// Takes in an MAuthReply: its result and payload.
    pub fn handle_reply(&mut self, result: i32, payload: &Bytes, now: Utime) -> Result<Renewed, AuthError> {
        if result < 0 {
            return Err(AuthError::Refused(Errno(result.saturating_neg())));
        }
        let mut r = Reader::new(payload.clone());
        let request = r.u16()?;
        r.skip(4)?;
        match request {
            GET_AUTH_SESSION_KEY => {
                self.all_or_nothing(|c| c.take_login(&mut r, now)).map(|_| Renewed::Tickets)
            }
            GET_PRINCIPAL_SESSION_KEY => {
                let login = self.tickets.get(&EntityType::Auth).map(|t| t.session_key.clone());
                let login = login.ok_or(AuthError::NoTicket(EntityType::Auth))?;
                self.all_or_nothing(|c| c.take_tickets(&mut r, &login, now)).map(|()| Renewed::Tickets)
            }
            GET_ROTATING_KEY => {
                take_encrypted(&mut r, &self.key, "the rotating secrets").map(Renewed::Rotating)
            }
            other => Err(AuthError::UnknownRequest(other)),
        }
    }

    /// An authorizer for a connection to `service`.
    pub fn authorizer(
        &self,
        service: EntityType,
        now: Utime,
        entropy: &mut dyn Entropy,
    ) -> Result<Authorizer, AuthError> {
        let held = self.tickets.get(&service).filter(|t| now < t.expires);
        let held = held.ok_or(AuthError::NoTicket(service))?;
        Authorizer::new(service, self.global_id, held.session_key.clone(), &held.ticket, entropy)
    }

    /// Runs `body`; when it fails, no ticket has changed.
    fn all_or_nothing<T>(
        &mut self,
        body: impl FnOnce(&mut Self) -> Result<T, AuthError>,
    ) -> Result<T, AuthError> {
        let before = self.tickets.clone();
        let out = body(self);
        if out.is_err() {
            self.tickets = before;
        }
        out
    }

    fn authenticate(
        &self,
        challenge: u64,
        now: Utime,
        entropy: &mut dyn Entropy,
    ) -> Result<Bytes, AuthError> {
        let client_challenge = random_u64(entropy);
        let old = self.tickets.get(&EntityType::Auth).filter(|_| self.global_id != GlobalId(0));
        let mut w = Writer::new();
        w.u16(GET_AUTH_SESSION_KEY);
        let answer = Authenticate {
            client_challenge,
            key: challenge_answer(&self.key, challenge, client_challenge)?,
            old_ticket: old.map(|t| t.ticket.clone()).unwrap_or_default(),
            // Never empty, or the monitor would leave out the connection secret.
            other_keys: bits(&self.need(now)) | EntityType::Auth as u32,
        };
        answer.encode(&mut w);
        Ok(w.into_bytes())
    }

    /// The login's ticket, the connection secret, and tickets for services.
    /// Source: CephxClientHandler::handle_response.
    fn take_login(&mut self, r: &mut Reader, now: Utime) -> Result<SharedSecrets, AuthError> {
        let own = self.key.clone();
        self.take_tickets(r, &own, now)?;
        let login = self.tickets.get(&EntityType::Auth).ok_or(AuthError::NoTicket(EntityType::Auth))?;
        let session_key = login.session_key.clone();
        let mut connection_secret = Bytes::new();
        if !r.is_empty() {
            let encrypted = r.blob()?;
            let extra = r.blob()?;
            if !encrypted.is_empty() {
                connection_secret =
                    take_encrypted(&mut Reader::new(encrypted), &session_key, "the connection secret")?;
            }
            if !extra.is_empty() {
                self.take_tickets(&mut Reader::new(extra), &session_key, now)?;
            }
        }
        Ok(SharedSecrets { session_key, connection_secret })
    }

    /// Source: CephXTicketManager::verify_service_ticket_reply.
    fn take_tickets(&mut self, r: &mut Reader, principal: &CryptoKey, now: Utime) -> Result<(), AuthError> {
        r.u8()?;
        for _ in 0..r.count("tickets", 14)? {
            let raw = r.u32()?;
            let service = u8::try_from(raw).ok().and_then(EntityType::from_u8);
            let service = service
                .filter(|s| SERVICES.contains(s))
                .ok_or(DecodeError::Invalid { what: "service", value: raw.into() })?;
            r.u8()?;
            let shared: ServiceTicket = take_encrypted(r, principal, "a session key")?;
            let encrypted = r.u8()? != 0;
            let mut ticket = r.blob()?;
            if encrypted {
                let old = self.tickets.get(&service).ok_or(AuthError::NoTicket(service))?;
                ticket = decrypt_value(&old.session_key, &ticket, "a ticket")?;
            }
            let validity = std::time::Duration::new(shared.validity.sec.into(), shared.validity.nsec);
            let held = HeldTicket {
                session_key: shared.session_key,
                ticket: TicketBlob::from_bytes(ticket)?,
                renew_after: now.plus(validity * 3 / 4),
                expires: now.plus(validity),
            };
            self.tickets.insert(service, held);
        }
        Ok(())
    }
}

fn expect_header(r: &mut Reader, want: u16) -> Result<(), AuthError> {
    let got = r.u16()?;
    let status = r.i32()?;
    if status < 0 {
        return Err(AuthError::Refused(Errno(status.saturating_neg())));
    }
    if got == want { Ok(()) } else { Err(AuthError::OutOfOrder("a reply to another request")) }
}

fn bits(services: &[EntityType]) -> u32 {
    services.iter().fold(0, |acc, s| acc | *s as u32)
}

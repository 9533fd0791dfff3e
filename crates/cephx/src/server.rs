//! The monitor's side of a login: challenge, check, tickets; then renewals over the same session.
//!
//! Invariants:
//! 1. A ticket is given only to a client that answered this session's challenge with the entity's key.
//! 2. A client that claims a global id gets it only with a valid ticket that holds this id (CVE-2021-20288).
//! 3. An unknown entity and a wrong key are answered alike.
//! 4. Before the challenge was answered, nothing but the login itself is served.
//! 5. The form of tickets for some services can change ([`TicketForms`]), and old tickets are then of no use.
//!    A session remembers the forms of the tickets that it gave, and can replace them. A client that comes
//!    back from an earlier session is given new tickets for all these services, since the forms of its old
//!    ones are not known here.

use std::collections::BTreeMap;

use bytes::Bytes;
use codec::{Decode, Encode, Reader, Writer};
use types::{AuthName, EntityType, GlobalId, Utime};

use crate::authorizer::open_authorizer;
use crate::crypt::put_encrypted;
use crate::entity_auth::CapsInfo;
use crate::entropy::{Entropy, random_u64};
use crate::error::AuthError;
use crate::key::CryptoKey;
use crate::key_server::{IssuedTicket, KeyServer, put_tickets};
use crate::protocol::{
    Authenticate, GET_AUTH_SESSION_KEY, GET_PRINCIPAL_SESSION_KEY, GET_ROTATING_KEY, ServerChallenge,
    ServiceTicketRequest, challenge_answer,
};
use crate::rotating::{SERVICES, ServiceSecrets};
use crate::ticket::{AuthTicket, TicketForm, TicketForms, open_ticket};

/// How the first payload of AUTH_REQUEST wants to authenticate: its first byte.
///
/// Source: AUTH_MODE_* in src/auth/Auth.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthMode {
    /// With an authorizer: give the payload to `AuthorizerAcceptor`.
    Authorizer,
    /// A login at the monitor: give the payload to `LoginRequest::parse`.
    Login,
}

impl AuthMode {
    /// Reads the mode from AUTH_REQUEST's payload.
    pub fn of(payload: &[u8]) -> Result<Self, AuthError> {
        match payload.first() {
            Some(1..=9) => Ok(Self::Authorizer),
            Some(10..=19) => Ok(Self::Login),
            Some(mode) => Err(AuthError::UnsupportedMode(*mode)),
            None => Err(AuthError::OutOfOrder("empty authentication request")),
        }
    }
}

/// Who wants to log in, not proven yet. Source: MonConnection::get_auth_request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoginRequest {
    pub name: AuthName,
    /// Zero asks for a new id; anything else claims an id held before.
    pub global_id: GlobalId,
}

/// The mode byte of a login. Source: AUTH_MODE_MON.
pub(crate) const MODE_LOGIN: u8 = 10;

impl LoginRequest {
    pub fn parse(payload: &Bytes) -> Result<Self, AuthError> {
        let mut r = Reader::new(payload.clone());
        match r.u8()? {
            10..=19 => Ok(Self { name: AuthName::decode(&mut r)?, global_id: GlobalId::decode(&mut r)? }),
            mode => Err(AuthError::UnsupportedMode(mode)),
        }
    }

    pub(crate) fn encode(&self) -> Bytes {
        let mut w = Writer::new();
        w.u8(MODE_LOGIN);
        self.name.encode(&mut w);
        self.global_id.encode(&mut w);
        w.into_bytes()
    }
}

/// A completed login.
#[derive(Clone, PartialEq, Eq)]
pub struct Granted {
    pub name: AuthName,
    pub global_id: GlobalId,
    /// The entity's caps at the monitor.
    pub caps: CapsInfo,
    /// Empty with method none.
    pub session_key: CryptoKey,
    /// Of the length asked for; empty in crc mode.
    pub connection_secret: Bytes,
}

impl std::fmt::Debug for Granted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Granted")
            .field("name", &self.name)
            .field("global_id", &self.global_id)
            .field("caps", &self.caps)
            .finish_non_exhaustive()
    }
}

/// What to send back, and what it means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerReply {
    /// The payload of AUTH_DONE, or of MAuthReply for a renewal.
    pub payload: Bytes,
    /// Set when the request proved the entity (again).
    pub granted: Option<Granted>,
}

/// One client's session at the monitor, from AUTH_REQUEST until the connection ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthSession {
    name: AuthName,
    global_id: GlobalId,
    /// The global id was given out by the monitor for this login, so the client need not prove that it held
    /// it before.
    new_id: bool,
    /// The challenge, which renewals answer again. 0 after a wrong answer: there is no challenge then.
    server_challenge: u64,
    /// Whether the entity has answered the challenge.
    proven: bool,
    /// The tickets that the client has had since then.
    holder: Option<Holder>,
}

/// The tickets that a client holds from this session.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Holder {
    /// The ticket of its last login.
    login: AuthTicket,
    /// The key under which further tickets are encrypted.
    session_key: CryptoKey,
    /// Forms of its tickets for the services whose form can change.
    forms: BTreeMap<EntityType, TicketForm>,
}

impl Holder {
    /// Remembers the forms of tickets that were just given.
    fn given(&mut self, services: &[EntityType], forms: TicketForms) {
        let changing = services.iter().filter(|s| CHANGING.contains(s));
        self.forms.extend(changing.map(|s| (*s, forms.of(*s))));
    }
}

/// The services whose tickets' form can change: those of [`TicketForms`].
const CHANGING: [EntityType; 2] = [EntityType::Mds, EntityType::Mgr];

impl AuthSession {
    /// Starts a login; the bytes go out as AUTH_REPLY_MORE. When the request claims no global id, `fresh_id`
    /// is the one that the monitor hands out; 0 leaves that to `offer_id`.
    pub fn start(request: LoginRequest, fresh_id: GlobalId, entropy: &mut dyn Entropy) -> (Self, Bytes) {
        let server_challenge = random_u64(entropy).max(1);
        let new_id = request.global_id == GlobalId(0);
        let global_id = if new_id { fresh_id } else { request.global_id };
        let name = request.name;
        let session = Self { name, global_id, new_id, server_challenge, proven: false, holder: None };
        (session, ServerChallenge { server_challenge }.to_bytes())
    }

    pub fn name(&self) -> &AuthName {
        &self.name
    }

    /// Whether this login still has to be given a global id.
    pub fn needs_id(&self) -> bool {
        self.new_id && self.global_id == GlobalId(0)
    }

    /// The global id that it gets when it proves itself.
    pub fn offer_id(&mut self, id: GlobalId) {
        if self.needs_id() {
            self.global_id = id;
        }
    }

    pub fn global_id(&self) -> GlobalId {
        self.global_id
    }

    /// Handles the payload of AUTH_REQUEST_MORE (`secret_len` of the chosen mode: `CONNECTION_SECRET_LEN` or
    /// 0), or of a later MAuth message (`secret_len` is `None`). An error refuses the request with its
    /// `errno()`.
    ///
    /// Source: CephxServiceHandler::handle_request.
    pub fn handle_request(
        &mut self,
        keys: &KeyServer,
        payload: &Bytes,
        secret_len: Option<usize>,
        now: Utime,
        entropy: &mut dyn Entropy,
    ) -> Result<ServerReply, AuthError> {
        let mut r = Reader::new(payload.clone());
        let request = r.u16()?;
        let mut w = Writer::new();
        put_header(&mut w, request);
        let granted = match request {
            GET_AUTH_SESSION_KEY => {
                let ask = Authenticate::decode(&mut r)?;
                Some(self.authenticate(keys, &ask, secret_len, now, entropy, &mut w)?)
            }
            GET_PRINCIPAL_SESSION_KEY | GET_ROTATING_KEY if !self.proven => {
                return Err(AuthError::OutOfOrder("a request before the login"));
            }
            GET_PRINCIPAL_SESSION_KEY => {
                self.service_tickets(keys, &r.rest(), now, entropy, &mut w)?;
                None
            }
            GET_ROTATING_KEY => {
                keys.rotating_encrypted(&self.name, &mut w)?;
                None
            }
            other => return Err(AuthError::UnknownRequest(other)),
        };
        Ok(ServerReply { payload: w.into_bytes(), granted })
    }

    fn authenticate(
        &mut self,
        keys: &KeyServer,
        ask: &Authenticate,
        secret_len: Option<usize>,
        now: Utime,
        entropy: &mut dyn Entropy,
        w: &mut Writer,
    ) -> Result<Granted, AuthError> {
        let key = self.check_answer(keys, ask, now, entropy)?;
        let old_session = self.check_global_id(keys, ask)?;
        let caps = keys.caps(&self.name, EntityType::Mon);
        if caps.text()?.is_empty() {
            return Err(AuthError::NoMonCaps(self.name.clone()));
        }
        let login = keys.login_ticket(&self.name, self.global_id, now, entropy)?;
        let (ticket, session_key) = (login.info.ticket.clone(), login.info.session_key.clone());
        put_tickets(w, &key, &[login], old_session.as_ref())?;
        let mut holder = self.holder.take().unwrap_or(Holder {
            login: AuthTicket::default(),
            session_key: CryptoKey::EMPTY,
            forms: BTreeMap::new(),
        });
        (holder.login, holder.session_key) = (ticket.clone(), session_key.clone());
        let mut connection_secret = Bytes::new();
        if ask.other_keys != 0 {
            let mut encrypted = Writer::new();
            if let Some(len) = secret_len {
                let mut secret = vec![0u8; len];
                entropy.fill(&mut secret);
                connection_secret = secret.into();
                put_encrypted(&mut encrypted, &session_key, &connection_secret)?;
            }
            w.blob(encrypted.as_slice());
            let mut extra = Writer::new();
            let again = if old_session.is_some() { self.uncertain(keys) } else { 0 };
            let tickets = issue_services(keys, ask.other_keys | again, &ticket, now, entropy);
            if !tickets.is_empty() {
                put_tickets(&mut extra, &session_key, &tickets, None)?;
                holder.given(&services_of(&tickets), keys.forms);
            }
            w.blob(extra.as_slice());
        }
        self.holder = Some(holder);
        self.new_id = false;
        self.proven = true;
        let (name, global_id) = (self.name.clone(), self.global_id);
        Ok(Granted { name, global_id, caps, session_key, connection_secret })
    }

    /// The services for which an entity with an earlier session may hold a ticket of a form that is not known
    /// here, as bits.
    fn uncertain(&self, keys: &KeyServer) -> u32 {
        let may = |s: &&EntityType| !keys.caps(&self.name, **s).caps.is_empty();
        CHANGING.iter().filter(may).fold(0, |bits, s| bits | *s as u32)
    }

    /// New tickets for the services that no longer open the tickets which the client holds; `None` when there
    /// are no such services. The payload of an MAuthReply that the client did not ask for: clients take it as
    /// the answer to a request for tickets. Each change of forms gives it once.
    ///
    /// Source: MonClient::handle_auth in src/mon/MonClient.cc, CephxClientHandler::handle_response.
    pub fn changed_tickets(
        &mut self,
        keys: &KeyServer,
        now: Utime,
        entropy: &mut dyn Entropy,
    ) -> Option<Bytes> {
        let holder = self.holder.as_mut()?;
        let changed = holder.forms.iter().filter(|(s, form)| keys.forms.of(**s) != **form);
        let wanted = changed.fold(0, |bits, (s, _)| bits | *s as u32);
        if wanted == 0 || keys.get(&self.name).is_none() {
            return None;
        }
        let tickets = issue_services(keys, wanted, &holder.login, now, entropy);
        holder.given(&services_of(&tickets), keys.forms);
        let mut w = Writer::new();
        put_header(&mut w, GET_PRINCIPAL_SESSION_KEY);
        put_tickets(&mut w, &holder.session_key, &tickets, None).ok()?;
        (!tickets.is_empty()).then(|| w.into_bytes())
    }

    /// Checks the answer to the challenge and gives the entity's key.
    fn check_answer(
        &mut self,
        keys: &KeyServer,
        ask: &Authenticate,
        now: Utime,
        entropy: &mut dyn Entropy,
    ) -> Result<CryptoKey, AuthError> {
        let challenge = std::mem::take(&mut self.server_challenge);
        if challenge == 0 {
            return Err(AuthError::OutOfOrder("no challenge stands"));
        }
        // An unknown entity takes the same path and the same time with a key that nobody has.
        let known = keys.get(&self.name).map(|e| e.key.clone()).filter(|k| !k.is_empty());
        let key = known.clone().unwrap_or_else(|| CryptoKey::generate(now, entropy));
        let expected = challenge_answer(&key, challenge, ask.client_challenge)?;
        let right = aws_lc_rs::constant_time::verify_slices_are_equal(
            &expected.to_le_bytes(),
            &ask.key.to_le_bytes(),
        );
        match (known, right) {
            (Some(key), Ok(())) => {
                self.server_challenge = challenge;
                Ok(key)
            }
            (Some(_), Err(_)) => Err(AuthError::WrongKey(self.name.clone())),
            (None, _) => Err(AuthError::UnknownEntity(self.name.clone())),
        }
    }

    /// Checks the claim of a global id (invariant 2). Gives the old ticket's session key, under which the new
    /// ticket is then encrypted.
    ///
    /// Source: CephxServiceHandler::verify_old_ticket (16.2.1 and later). That a valid ticket's name is this
    /// entity's is our own rule: Ceph compares the global id only.
    fn check_global_id(&self, keys: &KeyServer, ask: &Authenticate) -> Result<Option<CryptoKey>, AuthError> {
        let old = &ask.old_ticket;
        if self.new_id {
            return if old.blob.is_empty() { Ok(None) } else { Err(AuthError::SuperfluousTicket) };
        }
        let refused = AuthError::GlobalIdNotProven(self.global_id);
        let secret = keys.rotating.of(EntityType::Auth).and_then(|s| s.get(old.secret_id));
        let open = |s| open_ticket(TicketForm::Sealed, EntityType::Auth, s, old).ok();
        let info = secret.and_then(open).ok_or(refused.clone())?;
        // An expired ticket is enough, as in Ceph: a client that slept keeps its id as long as the secret is
        // kept.
        if info.ticket.global_id != self.global_id || info.ticket.name != self.name {
            return Err(refused);
        }
        Ok(Some(info.session_key))
    }

    /// Tickets for services against the login's ticket. The authorizer is not challenged here: it came over a
    /// session that already is authenticated.
    fn service_tickets(
        &mut self,
        keys: &KeyServer,
        payload: &Bytes,
        now: Utime,
        entropy: &mut dyn Entropy,
        w: &mut Writer,
    ) -> Result<(), AuthError> {
        let mut secrets = ServiceSecrets::new(EntityType::Auth);
        secrets.rotating = keys.rotating.of(EntityType::Auth).cloned().unwrap_or_default();
        let (info, _, mut r) = open_authorizer(&secrets, payload, now)?;
        if info.ticket.name != self.name || info.ticket.global_id != self.global_id {
            return Err(AuthError::GlobalIdNotProven(info.ticket.global_id));
        }
        if keys.get(&self.name).is_none() {
            return Err(AuthError::UnknownEntity(self.name.clone()));
        }
        let ask = ServiceTicketRequest::decode(&mut r)?;
        let tickets = issue_services(keys, ask.keys, &info.ticket, now, entropy);
        put_tickets(w, &info.session_key, &tickets, None)?;
        if let Some(holder) = &mut self.holder {
            // An older ticket of the login than the session's last one may have been used.
            (holder.login, holder.session_key) = (info.ticket, info.session_key);
            holder.given(&services_of(&tickets), keys.forms);
        }
        Ok(())
    }
}

/// CephXResponseHeader: the request's type and a status.
fn put_header(w: &mut Writer, request: u16) {
    w.u16(request);
    w.i32(0);
}

fn services_of(tickets: &[IssuedTicket]) -> Vec<EntityType> {
    tickets.iter().map(|t| t.service).collect()
}

/// Tickets for the services whose bits are set; a service without secrets is left out, as is the login's own
/// ticket.
fn issue_services(
    keys: &KeyServer,
    wanted: u32,
    parent: &AuthTicket,
    now: Utime,
    entropy: &mut dyn Entropy,
) -> Vec<IssuedTicket> {
    let asked = |s: &EntityType| *s != EntityType::Auth && wanted & (*s as u32) != 0;
    let mut services: Vec<EntityType> = SERVICES.into_iter().filter(asked).collect();
    services.sort_unstable();
    services.into_iter().filter_map(|s| keys.service_ticket(s, parent, now, entropy).ok()).collect()
}

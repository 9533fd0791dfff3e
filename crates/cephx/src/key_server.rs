//! The monitor's knowledge: every entity's key and caps, and the rotating secrets that tickets are sealed
//! with.

use std::collections::BTreeMap;

use bytes::Bytes;
use codec::{Encode, Writer};
use types::{AuthName, EntityType, GlobalId, Utime};

use crate::authorizer::Authorizer;
use crate::crypt::{encrypt_value, put_encrypted};
use crate::entity_auth::{CapsInfo, EntityAuth};
use crate::entropy::Entropy;
use crate::error::AuthError;
use crate::key::CryptoKey;
use crate::keyring::Keyring;
use crate::protocol::ServiceTicket;
use crate::rotating::{FIXED_SECRET_ID, RotatingKeys, TicketTtl};
use crate::ticket::{AuthTicket, TicketBlob, TicketForm, TicketForms, TicketInfo, seal_ticket};

/// Keys, caps and rotating secrets. The monitor's auth service owns one and changes it only by committed
/// values.
///
/// Source: KeyServer in src/auth/cephx/CephxKeyServer.h.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeyServer {
    /// The auth database.
    pub entities: BTreeMap<AuthName, EntityAuth>,
    /// Entities known without the database: the monitor's own keyring (`mon.`).
    pub extra: Keyring,
    pub rotating: RotatingKeys,
    pub ttl: TicketTtl,
    /// The form of tickets for each service: Ceph's form where a daemon of Ceph's has to open them.
    pub forms: TicketForms,
}

/// A ticket on its way to its holder.
pub(crate) struct IssuedTicket {
    pub(crate) service: EntityType,
    pub(crate) info: TicketInfo,
    pub(crate) validity: Utime,
    pub(crate) sealed: TicketBlob,
}

impl KeyServer {
    pub fn get(&self, name: &AuthName) -> Option<&EntityAuth> {
        self.entities.get(name).or_else(|| self.extra.get(name))
    }

    /// The caps of an entity at a service; nothing for an unknown entity.
    pub fn caps(&self, name: &AuthName, service: EntityType) -> CapsInfo {
        self.get(name).map_or_else(CapsInfo::default, |e| e.caps_for(service.as_str()))
    }

    /// The rotating keys as they should be at `now`, or nothing when they already are: propose what comes
    /// out, and assign it to `rotating` when committed. Call at start and every few seconds.
    #[must_use]
    pub fn rotated(&self, now: Utime, entropy: &mut dyn Entropy) -> Option<RotatingKeys> {
        self.rotating.rotated(now, self.ttl, entropy)
    }

    /// A daemon's service secrets, encrypted with its own key. Source: KeyServer::get_rotating_encrypted.
    pub(crate) fn rotating_encrypted(&self, name: &AuthName, w: &mut Writer) -> Result<(), AuthError> {
        // Only these daemons open tickets with rotating secrets; anybody else that asks learns nothing.
        let serves = matches!(name.kind, EntityType::Osd | EntityType::Mds | EntityType::Mgr);
        let auth = self.entities.get(name).filter(|_| serves);
        let auth = auth.ok_or_else(|| AuthError::UnknownEntity(name.clone()))?;
        let secrets = self.rotating.of(name.kind).ok_or(AuthError::NoServiceSecret(name.kind))?;
        put_encrypted(w, &auth.key, secrets)
    }

    /// The ticket that a login gives: its holder may ask for tickets of services.
    pub(crate) fn login_ticket(
        &self,
        name: &AuthName,
        global_id: GlobalId,
        now: Utime,
        entropy: &mut dyn Entropy,
    ) -> Result<IssuedTicket, AuthError> {
        let bare = AuthTicket { name: name.clone(), global_id, ..AuthTicket::default() };
        self.issue(EntityType::Auth, bare, now, entropy)
    }

    /// A ticket for `service`, for the holder of `parent`.
    pub(crate) fn service_ticket(
        &self,
        service: EntityType,
        parent: &AuthTicket,
        now: Utime,
        entropy: &mut dyn Entropy,
    ) -> Result<IssuedTicket, AuthError> {
        // Monitors look caps up themselves, so a ticket for them carries none.
        // Source: _build_session_auth_info.
        let caps = match service {
            EntityType::Mon => CapsInfo::default(),
            _ => self.caps(&parent.name, service),
        };
        self.issue(service, AuthTicket { caps, ..parent.clone() }, now, entropy)
    }

    fn issue(
        &self,
        service: EntityType,
        ticket: AuthTicket,
        now: Utime,
        entropy: &mut dyn Entropy,
    ) -> Result<IssuedTicket, AuthError> {
        let missing = AuthError::NoServiceSecret(service);
        let secrets = self.rotating.of(service).ok_or(missing.clone())?;
        let (secret_id, secret) = secrets.current(now).ok_or(missing)?;
        // A ticket that outlives every known secret could not be opened at its end.
        let ttl = self.ttl.of(service).min(secrets.last_expiration().since(now));
        let info = TicketInfo {
            ticket: AuthTicket { created: now, expires: now.plus(ttl), ..ticket },
            session_key: CryptoKey::generate(now, entropy),
        };
        let sealed = seal_ticket(self.forms.of(service), service, secret_id, &secret.key, &info, entropy)?;
        Ok(IssuedTicket { service, info, validity: Utime::from_unix(ttl), sealed })
    }

    /// An authorizer of this monitor towards another daemon: monitors authorize with the fixed key of `mon.`,
    /// the manager with its rotating secret. Source: Monitor::get_authorizer.
    pub fn mon_authorizer(
        &self,
        service: EntityType,
        now: Utime,
        entropy: &mut dyn Entropy,
    ) -> Result<Authorizer, AuthError> {
        let name = AuthName::new(EntityType::Mon, "");
        let me = AuthTicket { name: name.clone(), ..AuthTicket::default() };
        let (session_key, sealed) = if service == EntityType::Mon {
            let own = self.extra.get(&name).or_else(|| self.entities.get(&name));
            let own = own.ok_or(AuthError::UnknownEntity(name))?;
            let ticket = AuthTicket { created: now, expires: now.plus(self.ttl.service), ..me };
            let info = TicketInfo { ticket, session_key: CryptoKey::generate(now, entropy) };
            let sealed = seal_ticket(TicketForm::Sealed, service, FIXED_SECRET_ID, &own.key, &info, entropy)?;
            (info.session_key, sealed)
        } else {
            let issued = self.service_ticket(service, &me, now, entropy)?;
            (issued.info.session_key, issued.sealed)
        };
        Authorizer::new(service, GlobalId(0), session_key, &sealed, entropy)
    }
}

/// Appends tickets in the form that `verify_service_ticket_reply` reads: session keys encrypted with
/// `principal`, and the tickets themselves encrypted with `old_session` when the holder proved an older
/// ticket.
pub(crate) fn put_tickets(
    w: &mut Writer,
    principal: &CryptoKey,
    tickets: &[IssuedTicket],
    old_session: Option<&CryptoKey>,
) -> Result<(), AuthError> {
    w.u8(1);
    w.count(tickets.len());
    for t in tickets {
        w.u32(t.service as u32);
        w.u8(1);
        let shared = ServiceTicket { session_key: t.info.session_key.clone(), validity: t.validity };
        put_encrypted(w, principal, &shared)?;
        let ticket: Bytes = t.sealed.to_bytes();
        match old_session {
            None => {
                w.u8(0);
                w.blob(&ticket);
            }
            Some(old) => {
                w.u8(1);
                w.blob(&encrypt_value(old, &ticket)?);
            }
        }
    }
    Ok(())
}

//! Tickets: what they say, and how ours are sealed so that no bit of them can be changed.
//!
//! Clients and daemons hand tickets on without looking inside, so the inner form concerns only the monitors
//! and the service that opens them. Ceph encrypts tickets with AES-CBC under a fixed IV and without
//! authentication. Loligo's are sealed with AES-256-GCM. A daemon of Ceph's opens only the former, so
//! [`TicketForms`] says which services get it.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer};
use types::{AuthName, EntityType, GlobalId, Utime};

use crate::ceph_form;
use crate::crypt::{decrypt_value, encrypt_value};
use crate::entity_auth::CapsInfo;
use crate::entropy::{Entropy, random};
use crate::error::AuthError;
use crate::key::CryptoKey;

/// The old user id that every structure still carries. Source: CEPH_AUTH_UID_DEFAULT in
/// src/include/ceph_fs.h.
const AUID_DEFAULT: u64 = u64::MAX;

/// A sealed ticket as it travels: the id of the secret that opens it, and bytes opaque to the holder.
///
/// Source: CephXTicketBlob in src/auth/cephx/CephxProtocol.h.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TicketBlob {
    pub secret_id: u64,
    pub blob: Bytes,
}

impl Encode for TicketBlob {
    fn encode(&self, w: &mut Writer) {
        w.u8(1);
        w.u64(self.secret_id);
        w.blob(&self.blob);
    }
}
impl Decode for TicketBlob {
    const MIN_SIZE: usize = 13;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        match r.u8()? {
            1 => Ok(Self { secret_id: r.u64()?, blob: r.blob()? }),
            v => Err(DecodeError::Invalid { what: "ticket blob version", value: v.into() }),
        }
    }
}

/// What a principal may do at a service, and for how long. Source: AuthTicket in src/auth/Auth.h.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AuthTicket {
    pub name: AuthName,
    pub global_id: GlobalId,
    pub created: Utime,
    pub expires: Utime,
    pub caps: CapsInfo,
    pub flags: u32,
}

impl Encode for AuthTicket {
    fn encode(&self, w: &mut Writer) {
        w.u8(2);
        self.name.encode(w);
        self.global_id.encode(w);
        w.u64(AUID_DEFAULT);
        self.created.encode(w);
        self.expires.encode(w);
        self.caps.encode(w);
        w.u32(self.flags);
    }
}
impl Decode for AuthTicket {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        let version = r.u8()?;
        let name = AuthName::decode(r)?;
        let global_id = GlobalId::decode(r)?;
        if version >= 2 {
            r.skip(8)?;
        }
        Ok(Self {
            name,
            global_id,
            created: Utime::decode(r)?,
            expires: Utime::decode(r)?,
            caps: CapsInfo::decode(r)?,
            flags: r.u32()?,
        })
    }
}

/// The inside of a sealed ticket: the ticket and the key shared with its holder.
///
/// Source: CephXServiceTicketInfo in src/auth/cephx/CephxProtocol.h.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TicketInfo {
    pub ticket: AuthTicket,
    pub session_key: CryptoKey,
}

impl Encode for TicketInfo {
    fn encode(&self, w: &mut Writer) {
        w.u8(1);
        self.ticket.encode(w);
        self.session_key.encode(w);
    }
}
impl Decode for TicketInfo {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.u8()?;
        Ok(Self { ticket: AuthTicket::decode(r)?, session_key: CryptoKey::decode(r)? })
    }
}

/// How the inside of a ticket is kept from its holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TicketForm {
    /// AES-256-GCM, bound to the service and its secret.
    #[default]
    Sealed,
    /// AES-128-CBC as Ceph does it: bits of it can be changed unseen.
    Ceph,
}

/// The services whose tickets have Ceph's form. Those for monitors and OSDs, and the login's own, never have
/// it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TicketForms {
    pub mgr: TicketForm,
    pub mds: TicketForm,
}

impl TicketForms {
    pub fn of(self, service: EntityType) -> TicketForm {
        match service {
            EntityType::Mgr => self.mgr,
            EntityType::Mds => self.mds,
            _ => TicketForm::Sealed,
        }
    }
}

const WHAT: &str = "the ticket";

/// First byte of a sealed ticket: which sealing it is.
const SEAL_VERSION: u8 = 1;
const SEAL_LABEL: &[u8] = b"loligo ticket seal 1";

/// Closes a ticket for `service` under its secret `secret_id`.
///
/// Source of Ceph's form: cephx_build_service_ticket_blob in src/auth/cephx/CephxProtocol.cc.
pub fn seal_ticket(
    form: TicketForm,
    service: EntityType,
    secret_id: u64,
    secret: &CryptoKey,
    info: &TicketInfo,
    entropy: &mut dyn Entropy,
) -> Result<TicketBlob, AuthError> {
    if form == TicketForm::Ceph {
        return Ok(TicketBlob { secret_id, blob: encrypt_value(secret, info)? });
    }
    let nonce: [u8; NONCE_LEN] = random(entropy);
    let mut text = info.to_bytes().to_vec();
    sealing_key(secret)?
        .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), aad(service, secret_id), &mut text)
        .map_err(|_| AuthError::EmptyKey)?;
    let mut w = Writer::with_capacity(1 + NONCE_LEN + text.len());
    w.u8(SEAL_VERSION);
    w.raw(&nonce);
    w.raw(&text);
    Ok(TicketBlob { secret_id, blob: w.into_bytes() })
}

/// Opens a ticket of this form that was made for `service`. A sealed ticket is refused when any bit of it was
/// changed, or when it is for another service or under another secret. One of Ceph's form is refused under a
/// wrong secret, and when no monitor makes such a ticket; where only sealed ones are taken the refusal says
/// that it has that form.
pub fn open_ticket(
    form: TicketForm,
    service: EntityType,
    secret: &CryptoKey,
    sealed: &TicketBlob,
) -> Result<TicketInfo, AuthError> {
    if form == TicketForm::Ceph {
        return ceph_form::open(service, secret, &sealed.blob);
    }
    open_sealed(service, secret, sealed).map_err(|refusal| {
        let other: Result<TicketInfo, AuthError> = decrypt_value(secret, &sealed.blob, WHAT);
        other.map_or(refusal, |info| AuthError::OldForm(info.ticket.name))
    })
}

fn open_sealed(
    service: EntityType,
    secret: &CryptoKey,
    sealed: &TicketBlob,
) -> Result<TicketInfo, AuthError> {
    let mut r = Reader::new(sealed.blob.clone());
    if r.u8()? != SEAL_VERSION {
        return Err(AuthError::Undecryptable(WHAT));
    }
    let nonce: [u8; NONCE_LEN] = r.array()?;
    let mut text = r.rest().to_vec();
    let plain = sealing_key(secret)?
        .open_in_place(Nonce::assume_unique_for_key(nonce), aad(service, sealed.secret_id), &mut text)
        .map_err(|_| AuthError::Undecryptable(WHAT))?;
    TicketInfo::from_bytes(plain.to_vec()).map_err(|_| AuthError::Undecryptable(WHAT))
}

/// The rotating secret is also sent to daemons under the legacy cipher; deriving keeps its two uses apart.
fn sealing_key(secret: &CryptoKey) -> Result<LessSafeKey, AuthError> {
    if secret.is_empty() {
        return Err(AuthError::EmptyKey);
    }
    let derived = secret.hmac_sha256(SEAL_LABEL);
    UnboundKey::new(&AES_256_GCM, &derived).map(LessSafeKey::new).map_err(|_| AuthError::EmptyKey)
}

/// Binds a sealed ticket to its service and secret.
fn aad(service: EntityType, secret_id: u64) -> Aad<Vec<u8>> {
    let mut bound = (service as u32).to_le_bytes().to_vec();
    bound.extend_from_slice(&secret_id.to_le_bytes());
    Aad::from(bound)
}

//! Service secrets that rotate: tickets for a service are sealed with the current one and opened with any of
//! three.
//!
//! Invariants of `RotatingSecrets` after `rotate(now)`:
//! 1. Exactly three secrets are kept: previous, current, next, by ascending id.
//! 2. Ids only grow and are never used again.
//! 3. Expirations do not decrease with the id, and the current secret expires after `now`.

use std::collections::BTreeMap;
use std::time::Duration;

use codec::{Decode, DecodeError, Encode, Reader, Writer};
use types::{EntityType, Utime};

use crate::entropy::Entropy;
use crate::key::CryptoKey;
use crate::ticket::TicketForm;

/// Previous, current and next. Source: KEY_ROTATE_NUM in src/auth/Auth.h.
const KEPT: usize = 3;

/// The services that tickets are made for. Source: KeyServer::_check_rotating_secrets.
pub const SERVICES: [EntityType; 5] =
    [EntityType::Auth, EntityType::Mon, EntityType::Osd, EntityType::Mds, EntityType::Mgr];

/// How long tickets are valid. Source: auth_mon_ticket_ttl and auth_service_ticket_ttl (16.2.15: 72 h and 1
/// h).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TicketTtl {
    /// Of the ticket that a login gives.
    pub auth: Duration,
    /// Of tickets for services.
    pub service: Duration,
}

impl Default for TicketTtl {
    fn default() -> Self {
        Self { auth: Duration::from_secs(72 * 3600), service: Duration::from_secs(3600) }
    }
}

impl TicketTtl {
    pub fn of(&self, service: EntityType) -> Duration {
        if service == EntityType::Auth { self.auth } else { self.service }
    }
}

/// A secret and when it stops being the current one. Source: ExpiringCryptoKey in src/auth/Auth.h.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ExpiringKey {
    pub key: CryptoKey,
    pub expiration: Utime,
}

impl Encode for ExpiringKey {
    fn encode(&self, w: &mut Writer) {
        w.u8(1);
        self.key.encode(w);
        self.expiration.encode(w);
    }
}
impl Decode for ExpiringKey {
    const MIN_SIZE: usize = 21;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.u8()?;
        Ok(Self { key: CryptoKey::decode(r)?, expiration: Utime::decode(r)? })
    }
}

/// The secrets of one service. Source: RotatingSecrets in src/auth/Auth.h.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RotatingSecrets {
    secrets: BTreeMap<u64, ExpiringKey>,
    last_id: u64,
}

impl RotatingSecrets {
    /// The secret with this id, while it is kept.
    pub fn get(&self, id: u64) -> Option<&CryptoKey> {
        self.secrets.get(&id).map(|e| &e.key)
    }

    /// The secret that new tickets are sealed with: the current one, or the next when rotation is overdue.
    pub fn current(&self, now: Utime) -> Option<(u64, &ExpiringKey)> {
        let skip = usize::from(self.secrets.len() > 1);
        let candidates = || self.secrets.iter().skip(skip).map(|(id, e)| (*id, e));
        candidates().find(|(_, e)| e.expiration >= now).or_else(|| candidates().next_back())
    }

    /// When the newest secret expires: no ticket may outlive it.
    pub fn last_expiration(&self) -> Utime {
        self.secrets.values().next_back().map_or(Utime::ZERO, |e| e.expiration)
    }

    /// Too few secrets, or the current one has expired: the monitor rotates, a daemon asks for new ones.
    pub fn need_new(&self, now: Utime) -> bool {
        self.secrets.len() < KEPT || self.secrets.values().nth(1).is_none_or(|e| e.expiration <= now)
    }

    /// Adds secrets until the current one is valid and drops the oldest; true when anything changed.
    pub fn rotate(&mut self, now: Utime, ttl: Duration, entropy: &mut dyn Entropy) -> bool {
        let mut changed = false;
        // Three additions replace all secrets, so more never help; with a ttl of zero the loop would not end.
        for _ in 0..KEPT {
            if !self.need_new(now) {
                break;
            }
            let start = match self.secrets.is_empty() {
                true => now,
                false => now.plus(ttl).max(self.last_expiration()),
            };
            self.last_id += 1;
            let added = ExpiringKey { key: CryptoKey::generate(now, entropy), expiration: start.plus(ttl) };
            self.secrets.insert(self.last_id, added);
            while self.secrets.len() > KEPT {
                self.secrets.pop_first();
            }
            changed = true;
        }
        changed
    }

    /// Panics when an invariant of the module's head is broken; for tests and the simulator.
    pub fn assert_invariants(&self, now: Utime) {
        assert_eq!(self.secrets.len(), KEPT, "invariant 1");
        assert!(self.secrets.keys().all(|id| *id <= self.last_id), "invariant 2");
        assert!(self.secrets.values().is_sorted_by_key(|e| e.expiration), "invariant 3");
        assert!(self.secrets.values().nth(1).is_some_and(|e| e.expiration > now), "invariant 3");
    }
}

impl Encode for RotatingSecrets {
    fn encode(&self, w: &mut Writer) {
        w.u8(1);
        self.secrets.encode(w);
        w.u64(self.last_id);
    }
}
impl Decode for RotatingSecrets {
    const MIN_SIZE: usize = 13;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.u8()?;
        Ok(Self { secrets: BTreeMap::decode(r)?, last_id: r.u64()? })
    }
}

/// The secrets of all services, as the monitors agree on them. Source: KeyServerData::encode_rotating.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RotatingKeys {
    pub version: u64,
    services: BTreeMap<u32, RotatingSecrets>,
}

impl RotatingKeys {
    pub fn of(&self, service: EntityType) -> Option<&RotatingSecrets> {
        self.services.get(&(service as u32))
    }

    /// The keys as they should be at `now`, or nothing when they already are: the leader proposes what comes
    /// out.
    #[must_use]
    pub fn rotated(&self, now: Utime, ttl: TicketTtl, entropy: &mut dyn Entropy) -> Option<Self> {
        let mut next = self.clone();
        let mut changed = false;
        for service in SERVICES {
            let secrets = next.services.entry(service as u32).or_default();
            changed |= secrets.rotate(now, ttl.of(service), entropy);
        }
        next.version += 1;
        changed.then_some(next)
    }
}

impl Encode for RotatingKeys {
    fn encode(&self, w: &mut Writer) {
        w.u8(1);
        w.u64(self.version);
        self.services.encode(w);
    }
}
impl Decode for RotatingKeys {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.u8()?;
        Ok(Self { version: r.u64()?, services: BTreeMap::decode(r)? })
    }
}

/// What one service opens tickets with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceSecrets {
    /// The service that opens tickets with these.
    pub service: EntityType,
    /// The service's own secrets as fetched from the monitor (empty at first).
    pub rotating: RotatingSecrets,
    /// The fixed secret that authorizers with the id `FIXED_SECRET_ID` use: the key of `mon.` between
    /// monitors.
    pub fixed: Option<CryptoKey>,
    /// The only form of tickets that is opened: Ceph's where the monitors are Ceph's, and nowhere else.
    pub form: TicketForm,
}

/// The secret id that means "the service's own fixed key". Source: cephx_verify_authorizer.
pub const FIXED_SECRET_ID: u64 = u64::MAX;

impl ServiceSecrets {
    pub fn new(service: EntityType) -> Self {
        Self { service, rotating: RotatingSecrets::default(), fixed: None, form: TicketForm::Sealed }
    }

    pub(crate) fn secret(&self, id: u64) -> Option<&CryptoKey> {
        if id == FIXED_SECRET_ID { self.fixed.as_ref() } else { self.rotating.get(id) }
    }

    /// A daemon fetches new secrets when these have expired for half a minute (or a quarter of a ticket's
    /// life).
    ///
    /// Source: MonClient::_check_auth_rotating.
    pub fn need_new(&self, now: Utime, ttl: Duration) -> bool {
        let grace = (ttl / 4).min(Duration::from_secs(30));
        self.rotating.need_new(Utime::from_nanos(now.as_nanos().saturating_sub(grace.as_nanos() as u64)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entropy() -> impl Entropy {
        let mut n = 0u8;
        move |out: &mut [u8]| {
            n += 1;
            out.fill(n);
        }
    }

    const TTL: Duration = Duration::from_secs(3600);

    fn at(sec: u32) -> Utime {
        Utime::new(1_000_000 + sec, 0)
    }

    #[test]
    fn the_first_rotation_makes_three_secrets() {
        let (mut s, mut rng) = (RotatingSecrets::default(), entropy());
        assert!(s.need_new(at(0)));
        assert!(s.rotate(at(0), TTL, &mut rng));
        s.assert_invariants(at(0));
        let expirations: Vec<Utime> = s.secrets.values().map(|e| e.expiration).collect();
        assert_eq!(expirations, [at(3600), at(7200), at(10800)]);
        assert_eq!(s.current(at(0)).map(|(id, _)| id), Some(2));
        assert!(!s.rotate(at(7199), TTL, &mut rng), "the current one is still good");
    }

    #[test]
    fn a_secret_opens_tickets_until_two_rotations_later() {
        let (mut s, mut rng) = (RotatingSecrets::default(), entropy());
        s.rotate(at(0), TTL, &mut rng);
        let (id, old) = s.current(at(0)).map(|(id, e)| (id, e.key.clone())).expect("a secret");
        assert!(s.rotate(at(7200), TTL, &mut rng));
        s.assert_invariants(at(7200));
        assert_eq!(s.current(at(7200)).map(|(id, _)| id), Some(id + 1));
        assert_eq!(s.get(id), Some(&old), "now the previous one");
        assert!(s.rotate(at(10800), TTL, &mut rng));
        assert_eq!(s.get(id), None);
    }

    #[test]
    fn a_long_sleep_replaces_everything_and_ids_go_on() {
        let (mut s, mut rng) = (RotatingSecrets::default(), entropy());
        s.rotate(at(0), TTL, &mut rng);
        assert!(s.rotate(at(1_000_000), TTL, &mut rng));
        s.assert_invariants(at(1_000_000));
        assert!(s.secrets.keys().all(|id| *id >= 3));
        // With a lifetime of zero no secret is ever current, and the rotation ends all the same.
        assert!(s.rotate(at(9_000_000), Duration::ZERO, &mut rng));
    }

    #[test]
    fn a_model_of_hours_keeps_the_invariants() {
        let (mut s, mut rng) = (RotatingSecrets::default(), entropy());
        let mut now = 0;
        for step in 0..40u32 {
            now += step * 131 % 5000;
            s.rotate(at(now), TTL, &mut rng);
            s.assert_invariants(at(now));
            let (id, current) = s.current(at(now)).expect("a secret");
            assert!(current.expiration > at(now));
            assert!(s.get(id + 1).is_some(), "the next one is known in advance");
        }
    }

    #[test]
    fn overdue_rotation_seals_with_the_next_secret() {
        let (mut s, mut rng) = (RotatingSecrets::default(), entropy());
        s.rotate(at(0), TTL, &mut rng);
        assert_eq!(s.current(at(7201)).map(|(id, _)| id), Some(3));
        assert_eq!(s.current(at(99_999)).map(|(id, _)| id), Some(3));
        assert_eq!(RotatingSecrets::default().current(at(0)), None);
    }

    #[test]
    fn daemons_ask_half_a_minute_after_expiry() {
        let mut secrets = ServiceSecrets::new(EntityType::Osd);
        assert!(secrets.need_new(at(0), TTL));
        secrets.rotating.rotate(at(0), TTL, &mut entropy());
        assert!(!secrets.need_new(at(7229), TTL));
        assert!(secrets.need_new(at(7230), TTL));
    }
}

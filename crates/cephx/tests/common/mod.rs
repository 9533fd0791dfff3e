//! A small cluster's keys, and clients that log in to it.

use bytes::Bytes;
use cephx::{
    AuthClient, AuthError, AuthSession, CryptoKey, EntityAuth, Entropy, Granted, KeyServer, LoginRequest,
    ServiceSecrets, SharedSecrets,
};
use types::{AuthName, EntityType, GlobalId, Utime};

/// A seeded source of bytes (xorshift).
pub struct Seeded(pub u64);

impl Entropy for Seeded {
    fn fill(&mut self, out: &mut [u8]) {
        for b in out {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            *b = (self.0 >> 24) as u8;
        }
    }
}

pub const SERVICES: [EntityType; 4] = [EntityType::Mon, EntityType::Osd, EntityType::Mgr, EntityType::Mds];

pub fn at(sec: u32) -> Utime {
    Utime::new(1_800_000_000 + sec, 0)
}

pub fn name(text: &str) -> AuthName {
    AuthName::parse(text).expect("a name")
}

pub struct Cluster {
    pub keys: KeyServer,
    pub rng: Seeded,
}

impl Cluster {
    pub fn new() -> Self {
        let mut cluster = Self { keys: KeyServer::default(), rng: Seeded(42) };
        cluster.add("client.admin", &[("mon", "allow *"), ("osd", "allow rwx pool=p")]);
        cluster.add("client.other", &[("mon", "allow r")]);
        cluster.add("client.locked-out", &[("osd", "allow r")]);
        cluster.add("osd.0", &[("mon", "allow profile osd"), ("osd", "allow *")]);
        cluster.rotate(0);
        cluster
    }

    pub fn add(&mut self, who: &str, caps: &[(&str, &str)]) {
        let key = CryptoKey::generate(at(0), &mut self.rng);
        let caps = caps.iter().map(|(s, c)| ((*s).to_owned(), (*c).to_owned())).collect();
        self.keys.entities.insert(name(who), EntityAuth { key, caps });
    }

    pub fn rotate(&mut self, sec: u32) {
        if let Some(next) = self.keys.rotated(at(sec), &mut self.rng) {
            self.keys.rotating = next;
        }
    }

    pub fn client(&self, who: &str) -> AuthClient {
        AuthClient::new(name(who), self.keys.entities[&name(who)].key.clone(), &SERVICES)
    }

    /// What a daemon of this kind opens tickets with.
    pub fn secrets(&self, service: EntityType) -> ServiceSecrets {
        let mut secrets = ServiceSecrets::new(service);
        secrets.rotating = self.keys.rotating.of(service).expect("rotated").clone();
        secrets
    }

    /// A whole login; gives both sides' results and the session for renewals.
    pub fn login(
        &mut self,
        client: &mut AuthClient,
        fresh: u64,
        secret_len: usize,
        sec: u32,
    ) -> Result<(AuthSession, Granted, SharedSecrets), AuthError> {
        let request = LoginRequest::parse(&client.start_login())?;
        let (mut session, challenge) = AuthSession::start(request, GlobalId(fresh), &mut self.rng);
        let answer = client.handle_challenge(&challenge, at(sec), &mut self.rng)?;
        let reply = session.handle_request(&self.keys, &answer, Some(secret_len), at(sec), &mut self.rng)?;
        let granted = reply.granted.expect("a login grants");
        let shared = client.handle_done(granted.global_id, &reply.payload, at(sec))?;
        Ok((session, granted, shared))
    }
}

/// `bytes` with one bit changed.
pub fn flipped(bytes: &[u8], bit: usize) -> Bytes {
    let mut out = bytes.to_vec();
    out[bit / 8] ^= 1 << (bit % 8);
    out.into()
}

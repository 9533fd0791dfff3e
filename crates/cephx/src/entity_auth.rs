//! What the auth database knows of one entity: its key and its capability strings per service.

use std::collections::BTreeMap;

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer};

use crate::key::CryptoKey;

/// An entity's key and capabilities; caps are keyed by service name (`mon`, `osd`, `mds`, `mgr`).
///
/// Source: EntityAuth in src/auth/Auth.h.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EntityAuth {
    pub key: CryptoKey,
    pub caps: BTreeMap<String, String>,
}

impl EntityAuth {
    /// The caps for a service as tickets carry them; none when nothing was granted.
    pub fn caps_for(&self, service: &str) -> CapsInfo {
        self.caps.get(service).map_or_else(CapsInfo::default, |text| CapsInfo::from_text(text))
    }
}

impl Encode for EntityAuth {
    fn encode(&self, w: &mut Writer) {
        w.u8(2);
        w.u64(u64::MAX);
        self.key.encode(w);
        // Each caps value is a buffer that holds an encoded string.
        w.count(self.caps.len());
        for (service, text) in &self.caps {
            service.encode(w);
            w.blob(&text.to_bytes());
        }
    }
}
impl Decode for EntityAuth {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        if r.u8()? >= 2 {
            r.skip(8)?;
        }
        let key = CryptoKey::decode(r)?;
        let n = r.count("caps", 8)?;
        let mut caps = BTreeMap::new();
        for _ in 0..n {
            let service = String::decode(r)?;
            caps.insert(service, String::from_bytes(r.blob()?)?);
        }
        Ok(Self { key, caps })
    }
}

/// The caps inside a ticket: everything, or an encoded capability string for the service to parse.
///
/// Source: AuthCapsInfo in src/auth/Auth.h.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CapsInfo {
    pub allow_all: bool,
    /// Empty, or a u32 length and that much text.
    pub caps: Bytes,
}

impl CapsInfo {
    pub fn all() -> Self {
        Self { allow_all: true, caps: Bytes::new() }
    }

    pub fn from_text(text: &str) -> Self {
        Self { allow_all: false, caps: text.to_bytes() }
    }

    /// The capability string; empty when nothing was granted.
    pub fn text(&self) -> Result<String, DecodeError> {
        if self.caps.is_empty() { Ok(String::new()) } else { String::from_bytes(self.caps.clone()) }
    }
}

impl Encode for CapsInfo {
    fn encode(&self, w: &mut Writer) {
        w.u8(1);
        self.allow_all.encode(w);
        w.blob(&self.caps);
    }
}
impl Decode for CapsInfo {
    const MIN_SIZE: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.u8()?;
        Ok(Self { allow_all: bool::decode(r)?, caps: r.blob()? })
    }
}

//! Where an object lives: pool, namespace, and a key that may replace its name in placement.

use codec::{Decode, DecodeError, Encode, Reader, Writer};

use crate::{Name, PoolId};

/// Source: object_locator_t in src/osd/osd_types.cc (version 6).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ObjectLocator {
    pub pool: PoolId,
    /// Hashed instead of the object's name when not empty.
    pub key: Name,
    pub nspace: Name,
    /// Placement hash given outright; -1 for "hash the name". Never together with `key`.
    pub hash: i64,
}

impl ObjectLocator {
    pub fn pool(pool: PoolId) -> Self {
        Self { pool, hash: -1, ..Self::default() }
    }
}

impl Encode for ObjectLocator {
    fn encode(&self, w: &mut Writer) {
        let compat = if self.hash == -1 { 3 } else { 6 };
        w.envelope(6, compat, |w| {
            w.i64(self.pool.0);
            w.i32(-1);
            self.key.encode(w);
            self.nspace.encode(w);
            w.i64(self.hash);
        });
    }
}
impl Decode for ObjectLocator {
    const MIN_SIZE: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("object_locator_t", 6, |r, env| {
            let pool = PoolId(r.i64()?);
            r.skip(4)?;
            let key = Name::decode(r)?;
            let nspace = if env.version >= 5 { Name::decode(r)? } else { Name::new() };
            let hash = if env.version >= 6 { r.i64()? } else { -1 };
            Ok(Self { pool, key, nspace, hash })
        })
    }
}

/// Sends a client to another object; Ceph's cache tiers use it. Source: request_redirect_t in src/osd/osd_types.h.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RequestRedirect {
    pub locator: ObjectLocator,
    pub object: Name,
    pub osd_instructions: bytes::Bytes,
}

codec::wire_struct!(RequestRedirect(1, 1) { locator, object, osd_instructions });

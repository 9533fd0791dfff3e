//! Which pages of other sites may use a bucket. Source: src/rgw/rgw_cors.h.

use std::collections::BTreeSet;

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer, wire_struct};

/// Source: RGWCORSRule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CorsRule {
    /// Seconds for which a browser remembers the answer; `NO_AGE` where the rule says nothing.
    pub max_age_s: u32,
    /// Bits of `CorsRule::GET` and the others.
    pub methods: u8,
    pub id: Bytes,
    pub headers: BTreeSet<Bytes>,
    /// Sites, with a star at most in each.
    pub origins: BTreeSet<Bytes>,
    /// Headers of answers that pages may see, in the order in which they were given.
    pub exposed: Vec<Bytes>,
}

impl CorsRule {
    pub const GET: u8 = 0x1;
    pub const PUT: u8 = 0x2;
    pub const HEAD: u8 = 0x4;
    pub const POST: u8 = 0x8;
    pub const DELETE: u8 = 0x10;
    pub const COPY: u8 = 0x20;
    pub const NO_AGE: u32 = u32::MAX;
}

impl Encode for CorsRule {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            self.max_age_s.encode(w);
            self.methods.encode(w);
            self.id.encode(w);
            self.headers.encode(w);
            self.origins.encode(w);
            self.exposed.encode(w);
        });
    }
}
impl Decode for CorsRule {
    const MIN_SIZE: usize = 27;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("CORS rule", 1, |r, _| {
            let (max_age_s, methods, id) = (r.u32()?, r.u8()?, r.blob()?);
            let (headers, origins) = (Decode::decode(r)?, Decode::decode(r)?);
            Ok(Self { max_age_s, methods, id, headers, origins, exposed: Decode::decode(r)? })
        })
    }
}

/// The attribute `user.rgw.cors`. Source: RGWCORSConfiguration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cors {
    pub rules: Vec<CorsRule>,
}
wire_struct!(Cors(1, 1) { rules });

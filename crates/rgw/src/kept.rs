//! Structures that are passed on as they were found.

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer};

/// A structure in an envelope of which nothing is read: it goes back as it came, whatever its version.
///
/// Empty bodies have all versions in common that 16.2 writes of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    version: u8,
    compat: u8,
    body: Bytes,
}

impl Kept {
    /// A structure of version 1 that has `body`.
    pub fn new(body: impl Into<Bytes>) -> Self {
        Self { version: 1, compat: 1, body: body.into() }
    }
}

impl Encode for Kept {
    fn encode(&self, w: &mut Writer) {
        w.envelope(self.version, self.compat, |w| w.raw(&self.body));
    }
}
impl Decode for Kept {
    const MIN_SIZE: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("kept", u8::MAX, |r, env| {
            Ok(Self { version: env.version, compat: env.compat, body: r.rest() })
        })
    }
}

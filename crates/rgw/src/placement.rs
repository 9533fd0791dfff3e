//! Where a bucket's data goes: a placement target of the zone, and one of its storage classes.

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer};

/// The storage class of whoever asks for none.
pub const STANDARD: &[u8] = b"STANDARD";

/// A placement target, and a storage class of it. Source: rgw_placement_rule in src/rgw/rgw_common.h.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PlacementRule {
    pub name: Bytes,
    /// Empty for the standard one.
    pub storage_class: Bytes,
}

impl PlacementRule {
    pub fn named(name: impl Into<Bytes>) -> Self {
        Self { name: name.into(), storage_class: Bytes::new() }
    }

    pub fn is_standard(&self) -> bool {
        self.storage_class.is_empty() || self.storage_class == STANDARD
    }

    /// The class's name, also where it is the standard one.
    pub fn storage_class(&self) -> &[u8] {
        if self.storage_class.is_empty() { STANDARD } else { &self.storage_class }
    }
}

impl Encode for PlacementRule {
    fn encode(&self, w: &mut Writer) {
        if self.is_standard() {
            self.name.encode(w);
            return;
        }
        w.count(self.name.len() + 1 + self.storage_class.len());
        w.raw(&self.name);
        w.raw(b"/");
        w.raw(&self.storage_class);
    }
}
impl Decode for PlacementRule {
    const MIN_SIZE: usize = 4;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        let text = r.blob()?;
        let Some(at) = text.iter().position(|b| *b == b'/') else { return Ok(Self::named(text)) };
        Ok(Self { name: text.slice(..at), storage_class: text.slice(at + 1..) })
    }
}

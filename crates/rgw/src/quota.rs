//! How much a user or a bucket may hold.

use codec::{Decode, DecodeError, Encode, Reader, Writer};

/// Source: RGWQuotaInfo in src/rgw/rgw_quota.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    /// Bytes; negative for no bound.
    pub max_size: i64,
    /// Negative for no bound.
    pub max_objects: i64,
    pub enabled: bool,
    /// Sizes are compared as they are, not rounded to 4 KiB for each object.
    pub on_raw: bool,
}

impl Default for Quota {
    fn default() -> Self {
        Self { max_size: -1, max_objects: -1, enabled: false, on_raw: false }
    }
}

impl Encode for Quota {
    fn encode(&self, w: &mut Writer) {
        w.envelope(3, 1, |w| {
            // Kilobytes, rounded up, as the first version had them; what is negative keeps its sign.
            let kilobytes = self.max_size.unsigned_abs().div_ceil(1024) as i64;
            w.i64(if self.max_size < 0 { -kilobytes } else { kilobytes });
            self.max_objects.encode(w);
            self.enabled.encode(w);
            self.max_size.encode(w);
            self.on_raw.encode(w);
        });
    }
}
impl Decode for Quota {
    const MIN_SIZE: usize = 18;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.legacy_envelope("quota", 3, 1, |r, version| {
            let kilobytes = r.i64()?;
            let (max_objects, enabled) = (r.i64()?, Decode::decode(r)?);
            let max_size = if version < 2 { kilobytes.saturating_mul(1024) } else { r.i64()? };
            let on_raw = version >= 3 && Decode::decode(r)?;
            Ok(Self { max_size, max_objects, enabled, on_raw })
        })
    }
}

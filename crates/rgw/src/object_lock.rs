//! Objects that must not be deleted for a time. Source: src/rgw/rgw_object_lock.h.

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer, wire_struct};
use types::RealTime;

/// What a bucket's new objects are given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DefaultRetention {
    /// `GOVERNANCE` or `COMPLIANCE`.
    pub mode: Bytes,
    /// One of both is 0.
    pub days: i32,
    pub years: i32,
}
wire_struct!(DefaultRetention(1, 1) { mode, days, years });

/// Source: RGWObjectLock.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObjectLock {
    pub enabled: bool,
    pub rule: Option<DefaultRetention>,
}

impl Encode for ObjectLock {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            self.enabled.encode(w);
            self.rule.is_some().encode(w);
            if let Some(rule) = &self.rule {
                w.envelope(1, 1, |w| rule.encode(w));
            }
        });
    }
}
impl Decode for ObjectLock {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("object lock", 1, |r, _| {
            let (enabled, ruled) = (Decode::decode(r)?, bool::decode(r)?);
            let rule = || r.envelope("object lock's rule", 1, |r, _| Decode::decode(r));
            Ok(Self { enabled, rule: ruled.then(rule).transpose()? })
        })
    }
}

/// The attribute `user.rgw.object-retention`. Source: RGWObjectRetention.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Retention {
    pub mode: Bytes,
    pub until: RealTime,
}
wire_struct!(Retention(1, 1) { mode, until });

impl Retention {
    /// Lets itself be bypassed by who has the right to.
    pub const GOVERNANCE: &[u8] = b"GOVERNANCE";
    pub const COMPLIANCE: &[u8] = b"COMPLIANCE";
}

/// The attribute `user.rgw.object-legal-hold`. Source: RGWObjectLegalHold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LegalHold {
    /// `ON` or `OFF`.
    pub status: Bytes,
}
wire_struct!(LegalHold(1, 1) { status });

impl LegalHold {
    pub fn is_on(&self) -> bool {
        self.status.as_ref() == b"ON"
    }
}

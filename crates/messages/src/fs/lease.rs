//! Leases on names: how long a client may take a name for granted, asked for again or taken away.

use codec::{Decode, DecodeError, Encode, Reader, Writer};
use types::{Ino, SnapId};

use super::FileName;
use crate::payload::message;
use crate::type_numbers;

/// What happens to a lease. Source: CEPH_MDS_LEASE_*.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct LeaseAction(pub u8);

impl LeaseAction {
    pub const REVOKE: Self = Self(1);
    pub const RELEASE: Self = Self(2);
    pub const RENEW: Self = Self(3);
    pub const REVOKE_ACK: Self = Self(4);
}

impl Encode for LeaseAction {
    fn encode(&self, w: &mut Writer) {
        w.u8(self.0);
    }
}
impl Decode for LeaseAction {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.u8().map(Self)
    }
}

message! {
    /// A lease on `name` in the folder `ino`. Source: src/messages/MClientLease.h.
    #[derive(Default)]
    MClientLease = type_numbers::CLIENT_LEASE, "client_lease", 1, 1 {
        action: LeaseAction,
        mask: u16,
        ino: Ino,
        first: SnapId,
        last: SnapId,
        seq: u32,
        duration_ms: u32,
        name: FileName,
    }
}

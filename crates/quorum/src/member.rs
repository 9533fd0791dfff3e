//! Who belongs to the group.
//!
//! Invariants:
//! 1. A member is its store: the id is drawn when a store is made and lies in it. A store that was wiped
//!    comes back under another id, so nothing that its predecessor promised is asked of it, and no vote of it
//!    counts before it is made a voter.
//! 2. At most one member has a name.

use std::collections::BTreeMap;
use std::fmt;

use codec::{Decode, DecodeError, Encode, Reader, Writer};
use types::Entropy;

/// The identity of a member's store. 0 is nobody.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct MemberId(pub u64);

impl MemberId {
    /// Nobody, or everybody when it is who a message goes to.
    pub const NONE: Self = Self(0);

    /// A new store's identity.
    pub fn draw(entropy: &mut dyn Entropy) -> Self {
        Self(entropy.next_u64().max(1))
    }
}

impl fmt::Display for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}
impl Encode for MemberId {
    fn encode(&self, w: &mut Writer) {
        w.u64(self.0);
    }
}
impl Decode for MemberId {
    const MIN_SIZE: usize = 8;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.u64().map(Self)
    }
}

/// What the group knows of a member.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Peer {
    pub name: String,
    /// Learners receive the log and have no vote.
    pub voter: bool,
}
codec::wire_struct!(Peer(1, 1) { name, voter });

/// The members; empty for a store that belongs to no group yet.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Membership {
    pub peers: BTreeMap<MemberId, Peer>,
}
codec::wire_struct!(Membership(1, 1) { peers });

impl Membership {
    /// A new group of voters.
    pub fn of(members: impl IntoIterator<Item = (MemberId, String)>) -> Self {
        let peers = members.into_iter().map(|(id, name)| (id, Peer { name, voter: true })).collect();
        Self { peers }
    }

    pub fn voters(&self) -> impl Iterator<Item = MemberId> {
        self.peers.iter().filter(|(_, p)| p.voter).map(|(id, _)| *id)
    }

    pub fn is_voter(&self, id: MemberId) -> bool {
        self.peers.get(&id).is_some_and(|p| p.voter)
    }

    /// How many voters decide.
    pub fn majority(&self) -> usize {
        self.voters().count() / 2 + 1
    }

    pub fn name(&self, id: MemberId) -> Option<&str> {
        self.peers.get(&id).map(|p| p.name.as_str())
    }

    pub fn by_name(&self, name: &str) -> Option<MemberId> {
        self.peers.iter().find(|(_, p)| p.name == name).map(|(id, _)| *id)
    }

    /// The value that a majority of voters reach or exceed; `None` without voters.
    pub(crate) fn majority_value<T: Ord>(&self, value: impl Fn(MemberId) -> T) -> Option<T> {
        let majority = self.majority();
        // Asked for after every event: groups are small, and a sorted copy would be an allocation each time.
        let reach = |v: &T| self.voters().filter(|id| value(*id) >= *v).count() >= majority;
        self.voters().map(&value).filter(reach).max()
    }
}

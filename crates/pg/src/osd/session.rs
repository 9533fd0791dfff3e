//! One incoming connection: who it is, and what it was told.

use types::Epoch;

use crate::io::PeerInfo;

/// A connected peer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Session {
    pub peer: PeerInfo,
    /// The newest map epoch that the peer is known to have.
    pub epoch: Epoch,
}

impl Session {
    pub fn new(peer: PeerInfo) -> Self {
        Self { peer, epoch: Epoch(0) }
    }
}

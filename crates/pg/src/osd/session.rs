//! One incoming connection: who it is, and what it was told.

use std::collections::BTreeMap;
use std::time::Duration;

use types::{Epoch, HObject, SpgId};

use super::account::ClientAccount;
use crate::io::PeerInfo;

/// A connected peer.
#[derive(Debug)]
pub(crate) struct Session {
    pub peer: PeerInfo,
    /// The newest map epoch that the peer is known to have.
    pub epoch: Epoch,
    /// When it last asked for something.
    pub asked: Duration,
    pub backoffs: Backoffs,
    pub account: ClientAccount,
}

impl Session {
    pub fn new(peer: PeerInfo, account: ClientAccount) -> Self {
        let backoffs = Backoffs::default();
        Self { peer, epoch: Epoch(0), asked: Duration::ZERO, backoffs, account }
    }
}

/// What the client was told not to send, by the number it was told with. Source: Backoff in src/osd/Session.h.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Backoffs {
    told: BTreeMap<u64, Told>,
    last_id: u64,
}

#[derive(Debug, Clone, PartialEq)]
struct Told {
    pgid: SpgId,
    begin: HObject,
    /// Not in it; equal to `begin` for that object alone.
    end: HObject,
    /// The acknowledgement is here, perhaps behind requests that wait for their turn.
    ack_came: bool,
    acked: bool,
    released: bool,
}

impl Backoffs {
    /// A new one; returns its number.
    pub fn add(&mut self, pgid: SpgId, begin: HObject, end: HObject) -> u64 {
        self.last_id += 1;
        let told = Told { pgid, begin, end, ack_came: false, acked: false, released: false };
        self.told.insert(self.last_id, told);
        self.last_id
    }

    /// Whether what the client sends for this object was, as it knows or will know, not to be sent.
    pub fn covers(&self, pgid: SpgId, o: &HObject) -> bool {
        let covers = |t: &Told| t.pgid == pgid && (t.begin == *o || (t.begin < *o && *o < t.end));
        !self.told.is_empty() && self.told.values().any(covers)
    }

    /// An acknowledgement has come; false when it says nothing new. `acked` follows when all requests that
    /// were sent before it have had their turn.
    pub fn note_ack(&mut self, id: u64) -> bool {
        self.told.get_mut(&id).is_some_and(|told| !std::mem::replace(&mut told.ack_came, true))
    }

    /// The client has heard of it, and nothing that it sent earlier is still to come.
    pub fn acked(&mut self, id: u64) {
        if let Some(told) = self.told.get_mut(&id) {
            told.acked = true;
            if told.released {
                self.told.remove(&id);
            }
        }
    }

    /// The client is told that it may send again.
    pub fn release(&mut self, id: u64) {
        if let Some(told) = self.told.get_mut(&id) {
            told.released = true;
            if told.acked {
                self.told.remove(&id);
            }
        }
    }

    /// The PG is gone from here.
    pub fn forget(&mut self, pgid: SpgId) {
        self.told.retain(|_, t| t.pgid != pgid);
    }

    /// Those that hold, with their PGs.
    pub fn held(&self) -> impl Iterator<Item = (SpgId, u64)> {
        self.told.iter().filter(|(_, t)| !t.released).map(|(id, t)| (t.pgid, *id))
    }
}

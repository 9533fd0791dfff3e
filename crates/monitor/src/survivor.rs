//! What a monitor's store holds, read without its process; and how the last one that is left becomes a quorum of its own.
//!
//! Source: ceph-mon --extract-monmap and --inject-monmap in src/ceph_mon.cc.

use std::sync::Arc;

use codec::{Decode, DecodeError};
use maps::MonMap;
use quorum::{HardState, MemberId, Membership, Payload, Snapshot, Start};
use thiserror::Error;

use crate::proposal::{Proposal, decode_snapshot, encode_snapshot};
use crate::state::State;

/// Why a store cannot be read.
#[derive(Debug, Error)]
pub enum SurvivorError {
    #[error("the store's snapshot does not decode: {0}")]
    Snapshot(DecodeError),
    #[error("entry {0} of the store's log does not fit the state")]
    Entry(u64),
}

/// The state that a store leads to, with everything that it has logged: also what may not have been
/// committed, for nobody can tell.
#[derive(Debug)]
pub struct Survivor {
    index: u64,
    term: u64,
    hard: HardState,
    state: State,
}

impl Survivor {
    pub fn read(start: &Start) -> Result<Self, SurvivorError> {
        let (_, mut state) = decode_snapshot(&start.snapshot.state).map_err(SurvivorError::Snapshot)?;
        let (mut index, mut term) = (start.snapshot.index, start.snapshot.term);
        for entry in &start.entries {
            (index, term) = (entry.index, entry.term);
            let Payload::Data(data) = &entry.payload else { continue };
            if data.is_empty() {
                continue;
            }
            let bad = || SurvivorError::Entry(index);
            let proposal = Proposal::from_bytes(data.clone()).map_err(|_| bad())?;
            for change in &proposal.changes {
                state.apply(change).map_err(|_| bad())?;
            }
        }
        Ok(Self { index, term, hard: start.hard, state })
    }

    pub fn monmap(&self) -> &MonMap {
        &self.state.monmap
    }

    /// Whether a leader found that this store is an older copy of what it was.
    pub fn is_outdated(&self) -> bool {
        self.hard.outdated
    }

    /// What the store is to hold for its monitor to be the only one, as `monmap` says, under an identity of its own: whoever is
    /// left of the old group does not know it, and it asks none of them.
    pub fn alone(mut self, name: &str, monmap: MonMap, id: MemberId) -> (HardState, Snapshot) {
        let epoch = self.state.monmap.epoch.max(monmap.epoch).next();
        self.state.monmap = Arc::new(MonMap { epoch, ..monmap });
        Arc::make_mut(&mut self.state.mon_metadata).retain(|mon, _| mon == name);
        let term = self.hard.term.max(self.term) + 1;
        let snapshot = Snapshot {
            index: self.index,
            term: self.term,
            members: Membership::of([(id, name.to_owned())]),
            state: encode_snapshot(self.index, &self.state),
        };
        (HardState { id, term, vote: MemberId::NONE, outdated: false }, snapshot)
    }
}

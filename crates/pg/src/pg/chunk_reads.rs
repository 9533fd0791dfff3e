//! Member: what a write adds to coding chunks is added to what they hold. That is read outside the core where
//! the device has to be waited for, as clients' reads are.
//!
//! ```text
//! handle_rep_op ─► old_chunks ─► (Output::Read, Input::Read) ─► chunk_was_read ─► handle_rep_op
//! ```
//! Invariants:
//! 1. While chunks are read for a write it is the first in `Pg::held_back`. All that changes data of
//!    this copy waits behind it, so what was read is what the store has when the write is applied.
//! 2. A read that fails, or comes too late (see `store::ReadPlan`), is no answer: the chunk is read when the
//!    write is applied, which tells damage from a block that has moved.
//!
//! A primary that has a coding chunk itself reads that in the core. By its place it has data as a rule.

use std::collections::BTreeMap;

use bytes::Bytes;
use store::{Found, ObjectKey, StoreError};
use types::Eversion;

use super::Pg;
use crate::osd::shared::Shared;
use crate::peer::RepOp;

/// Chunks by the place of what is added to them in a write.
pub(super) type OldChunks = BTreeMap<usize, Bytes>;

/// What is read for a write.
#[derive(Debug)]
pub(crate) struct ChunkReads {
    /// What the write follows.
    prev: Eversion,
    /// The places, by the number of the read.
    under_way: BTreeMap<u64, usize>,
    found: OldChunks,
}

impl Pg {
    /// What a write adds to, as far as it can be read; `None` while the device reads some of it.
    pub(super) fn old_chunks(&mut self, op: &RepOp, cx: &mut Shared) -> Option<OldChunks> {
        let Some(coded) = op.coded.as_ref().filter(|coded| !coded.adds.is_empty()) else {
            return Some(OldChunks::new());
        };
        if let Some(begun) = self.chunk_reads.as_ref().filter(|begun| begun.prev == op.prev) {
            let is_read = begun.under_way.is_empty();
            return self.chunk_reads.take_if(|_| is_read).map(|begun| begun.found);
        }
        let mut begun = ChunkReads { prev: op.prev, under_way: BTreeMap::new(), found: OldChunks::new() };
        for (at, add) in coded.adds.iter().enumerate() {
            let key = ObjectKey::new(self.id.shard, add.from.clone());
            match cx.store.read_at_once(&key, add.offset, add.data.len() as u64) {
                Ok(Found::Data(data)) => drop(begun.found.insert(at, data)),
                Ok(Found::OnDevice(plan)) => {
                    let id = cx.reads.add_chunk(self.id, plan, &mut cx.out);
                    begun.under_way.insert(id, at);
                }
                Err(_) => {}
            }
        }
        if begun.under_way.is_empty() {
            return Some(begun.found);
        }
        self.chunk_reads = Some(begun);
        None
    }

    /// The device has read a chunk; whether the write that waits for it can go on.
    pub fn chunk_was_read(&mut self, id: u64, read: Result<Bytes, StoreError>) -> bool {
        let Some(begun) = &mut self.chunk_reads else { return false };
        let Some(at) = begun.under_way.remove(&id) else { return false };
        if let Ok(data) = read {
            begun.found.insert(at, data);
        }
        begun.under_way.is_empty()
    }
}

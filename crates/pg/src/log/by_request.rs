//! Finds a request's place in a queue of records that name requests, without a copy of their names.
//!
//! Invariants:
//! 1. Every record with a request id is found by it; of several with the same one, the newest.
//! 2. Numbers count records from the first that the queue ever held, so that taking from its front moves none.

use std::hash::{BuildHasher, BuildHasherDefault};

use hashbrown::HashTable;
use types::ReqId;

use crate::hash::FixedHasher;

/// Five bytes for each place: a number, and the table's own mark. Closures tell the request of the record at a place,
/// counted from the queue's front.
#[derive(Debug, Clone, Default)]
pub(super) struct ByRequest {
    table: HashTable<u32>,
    /// The number of the queue's first record; numbers wrap, a queue is shorter than that.
    base: u32,
}

fn hash(reqid: &ReqId) -> u64 {
    BuildHasherDefault::<FixedHasher>::default().hash_one(reqid)
}

impl ByRequest {
    pub fn len(&self) -> usize {
        self.table.len()
    }

    pub fn memory_bytes(&self) -> usize {
        self.table.allocation_size()
    }

    /// The place of the request's newest record.
    pub fn find(&self, reqid: &ReqId, at: impl Fn(usize) -> Option<ReqId>) -> Option<usize> {
        if self.table.is_empty() {
            return None;
        }
        let same = |number: &u32| at(self.place(*number)).is_some_and(|r| r == *reqid);
        self.table.find(hash(reqid), same).map(|number| self.place(*number))
    }

    /// The record at `place`, newer than all others, names this request.
    pub fn put(&mut self, reqid: &ReqId, place: usize, at: impl Fn(usize) -> Option<ReqId>) {
        if *reqid == ReqId::default() {
            return;
        }
        let base = self.base;
        let of = |number: &u32| at(number.wrapping_sub(base) as usize);
        let number = base.wrapping_add(place as u32);
        match self.table.find_mut(hash(reqid), |n| of(n).is_some_and(|r| r == *reqid)) {
            Some(older) => *older = number,
            None => {
                let rehash = |n: &u32| of(n).map_or(0, |r| hash(&r));
                self.table.insert_unique(hash(reqid), number, rehash);
            }
        }
    }

    /// The queue's first record, which named this request, was taken.
    pub fn front_taken(&mut self, reqid: &ReqId) {
        let first = self.base;
        if let Ok(found) = self.table.find_entry(hash(reqid), |number| *number == first) {
            found.remove();
        }
        self.base = first.wrapping_add(1);
    }

    pub fn clear(&mut self) {
        self.table.clear();
        self.base = 0;
    }

    fn place(&self, number: u32) -> usize {
        number.wrapping_sub(self.base) as usize
    }
}

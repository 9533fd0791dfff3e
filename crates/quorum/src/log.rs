//! The log in memory: everything above the newest snapshot.
//!
//! Invariants:
//! 1. Entries follow each other without gaps, the first right after the snapshot.
//! 2. `members` holds the snapshot's membership first, then that of each entry that changes it, by index.

use std::collections::VecDeque;

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer};

use crate::member::Membership;

/// One place of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub index: u64,
    pub term: u64,
    pub payload: Payload,
}

/// What an entry is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Payload {
    /// A leader's first: with it everything before is committed.
    Empty,
    /// The users' data.
    Data(Bytes),
    /// The members from here on.
    Members(Membership),
}

impl Encode for Entry {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.u64(self.index);
            w.u64(self.term);
            match &self.payload {
                Payload::Empty => w.u8(0),
                Payload::Data(data) => {
                    w.u8(1);
                    w.blob(data);
                }
                Payload::Members(members) => {
                    w.u8(2);
                    members.encode(w);
                }
            }
        });
    }
}
impl Decode for Entry {
    const MIN_SIZE: usize = 23;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("log entry", 1, |r, _| {
            let (index, term) = (r.u64()?, r.u64()?);
            let payload = match r.u8()? {
                0 => Payload::Empty,
                1 => Payload::Data(r.blob()?),
                2 => Payload::Members(Decode::decode(r)?),
                other => return Err(DecodeError::Invalid { what: "log entry", value: other.into() }),
            };
            Ok(Self { index, term, payload })
        })
    }
}

impl Payload {
    /// The users' data, empty for entries of the group itself.
    pub fn data(&self) -> Bytes {
        match self {
            Self::Data(data) => data.clone(),
            Self::Empty | Self::Members(_) => Bytes::new(),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Data(data) => data.len(),
            Self::Empty | Self::Members(_) => 64,
        }
    }
}

/// Everything up to an index.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Snapshot {
    pub index: u64,
    pub term: u64,
    pub members: Membership,
    pub state: Bytes,
}
impl Snapshot {
    /// No log comes near the end of the numbers.
    pub(crate) fn is_nonsense(&self) -> bool {
        self.index >= u64::MAX / 2
    }
}
codec::wire_struct!(Snapshot(1, 1) { index, term, members, state });

/// The snapshot and what follows it.
#[derive(Debug, Clone)]
pub(crate) struct Log {
    pub(crate) snapshot: Snapshot,
    entries: VecDeque<Entry>,
    members: Vec<(u64, Membership)>,
}

impl Log {
    pub(crate) fn new(snapshot: Snapshot, entries: Vec<Entry>) -> Self {
        let members = vec![(snapshot.index, snapshot.members.clone())];
        let mut log = Self { snapshot, entries: VecDeque::new(), members };
        for entry in entries {
            log.push(entry);
        }
        log
    }

    pub(crate) fn last_index(&self) -> u64 {
        self.snapshot.index + self.entries.len() as u64
    }

    pub(crate) fn last_term(&self) -> u64 {
        self.entries.back().map_or(self.snapshot.term, |e| e.term)
    }

    /// The term of an index, when it is known.
    pub(crate) fn term(&self, index: u64) -> Option<u64> {
        if index == self.snapshot.index {
            return Some(self.snapshot.term);
        }
        self.get(index).map(|e| e.term)
    }

    pub(crate) fn get(&self, index: u64) -> Option<&Entry> {
        let at = index.checked_sub(self.snapshot.index + 1)?;
        self.entries.get(usize::try_from(at).ok()?)
    }

    /// Entries from `from` on, bounded in number and bytes, at least one when there is one.
    pub(crate) fn range(&self, from: u64, max: usize, max_bytes: usize) -> Vec<Entry> {
        let mut out = Vec::new();
        let (mut at, mut bytes) = (from, 0);
        while let Some(entry) = self.get(at).filter(|_| out.len() < max && bytes < max_bytes) {
            bytes += entry.payload.len();
            out.push(entry.clone());
            at += 1;
        }
        out
    }

    pub(crate) fn push(&mut self, entry: Entry) {
        assert_eq!(entry.index, self.last_index() + 1, "invariant 1: no gaps");
        if let Payload::Members(members) = &entry.payload {
            self.members.push((entry.index, members.clone()));
        }
        self.entries.push_back(entry);
    }

    /// Drops `from` and everything after it.
    pub(crate) fn truncate(&mut self, from: u64) {
        let keep = from.saturating_sub(self.snapshot.index + 1);
        self.entries.truncate(usize::try_from(keep).unwrap_or(usize::MAX));
        self.members.retain(|(index, _)| *index < from || *index == self.snapshot.index);
    }

    /// Makes everything up to the snapshot's index part of the snapshot; what follows stays.
    pub(crate) fn compact(&mut self, snapshot: Snapshot) {
        while self.entries.front().is_some_and(|e| e.index <= snapshot.index) {
            self.entries.pop_front();
        }
        self.members.retain(|(index, _)| *index > snapshot.index);
        self.members.insert(0, (snapshot.index, snapshot.members.clone()));
        self.snapshot = snapshot;
    }

    /// The members as the newest entry says, committed or not.
    pub(crate) fn members(&self) -> &Membership {
        self.members.last().map_or(&self.snapshot.members, |(_, m)| m)
    }

    /// Where the members were last changed.
    pub(crate) fn members_index(&self) -> u64 {
        self.members.last().map_or(0, |(index, _)| *index)
    }

    /// The members as of an index.
    pub(crate) fn members_at(&self, index: u64) -> &Membership {
        let upto = self.members.iter().rev().find(|(i, _)| *i <= index);
        upto.map_or(&self.snapshot.members, |(_, m)| m)
    }

    /// The first index of the run of entries with the term that `index` has.
    pub(crate) fn term_start(&self, index: u64) -> u64 {
        let Some(term) = self.term(index) else { return index };
        let mut at = index;
        while at > self.snapshot.index + 1 && self.term(at - 1) == Some(term) {
            at -= 1;
        }
        at
    }
}

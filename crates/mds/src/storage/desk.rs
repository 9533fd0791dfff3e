//! Operations that are handed out, and whom their results belong to.

use std::collections::BTreeMap;

use types::{SnapContext, Utime};

use super::dirs::DirOp;
use super::job::JobOp;
use super::journal::JournalOp;
use super::object::{ObjectName, ObjectOp, OpId, Step};
use super::start::StartOp;

/// Whom a result belongs to.
#[derive(Debug)]
pub(super) enum Owner {
    /// The rank's journal.
    Log(JournalOp),
    /// The purge queue's journal.
    Queue(JournalOp),
    Start(StartOp),
    Dir(DirOp),
    Job(JobOp),
}

#[derive(Debug, Default)]
pub(super) struct Desk {
    last: u64,
    pub(super) ops: Vec<ObjectOp>,
    owners: BTreeMap<OpId, Owner>,
}

impl Desk {
    pub(super) fn take(&mut self, id: OpId) -> Option<Owner> {
        self.owners.remove(&id)
    }

    /// Operations under way.
    pub(super) fn under_way(&self) -> usize {
        self.owners.len()
    }

    /// An operation on an object of the metadata pool, which has no snapshots.
    pub(super) fn send(&mut self, owner: Owner, object: ObjectName, steps: Vec<Step>) {
        self.send_with(owner, object, SnapContext::default(), None, steps);
    }

    pub(super) fn send_with(
        &mut self,
        owner: Owner,
        object: ObjectName,
        snaps: SnapContext,
        mtime: Option<Utime>,
        steps: Vec<Step>,
    ) {
        self.last += 1;
        let id = OpId(self.last);
        self.owners.insert(id, owner);
        self.ops.push(ObjectOp { id, object, snaps, mtime, steps });
    }
}

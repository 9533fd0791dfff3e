//! The start of a rank: its tables, and the limits of its journal.
//!
//! Source: MDSRank::boot_start in src/mds/MDSRank.cc, MDSTable::load_2, SessionMap::_load_finish,
//! MDLog::_recovery_thread.

use bytes::Bytes;
use codec::{Decode, DecodeError};
use messages::osd::{Extent, OmapValsResponse, Op};
use types::{EntityName, EntityType, Errno, Ino, PoolId};

use super::desk::{Desk, Owner};
use super::event::{StorageError, Tables};
use super::object::{ObjectName, Reply, StepResult};
use crate::format::{BaseInode, JournalPointer, SessionInfo, SessionMapHeader, names};

/// What an operation of the start is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StartOp {
    Pointer,
    Inos,
    Snaps,
    Base(Ino),
    /// The first page has the header.
    Sessions {
        is_first: bool,
    },
}

/// Sessions in a page. Option `mds_sessionmap_keys_per_op`.
const SESSIONS_PER_PAGE: u64 = 1_024;

/// What was read so far.
#[derive(Debug)]
pub(super) struct Start {
    rank: u32,
    pool: PoolId,
    tables: Tables,
    waiting: usize,
    /// Set when the pointer was read.
    pub(super) journal: Option<Ino>,
}

impl Start {
    pub(super) fn new(rank: u32, pool: PoolId, has_snap_table: bool, desk: &mut Desk) -> Self {
        let mut start = Self { rank, pool, tables: Tables::default(), waiting: 0, journal: None };
        let whole = || Op::Read(Extent::new(0, 0));
        start.send(desk, StartOp::Pointer, names::object(names::journal_pointer(rank), 0), vec![whole()]);
        start.send(desk, StartOp::Inos, names::ino_table(rank), vec![whole()]);
        let root = (rank == 0).then_some(Ino::ROOT);
        for ino in root.into_iter().chain([names::mdsdir(rank)]) {
            start.send(desk, StartOp::Base(ino), names::base_inode(ino), vec![whole()]);
        }
        if has_snap_table {
            start.send(desk, StartOp::Snaps, names::SNAP_TABLE.to_owned(), vec![whole()]);
        }
        let op = StartOp::Sessions { is_first: true };
        start.send(
            desk,
            op,
            names::session_map(rank),
            vec![Op::OmapGetHeader, sessions_behind(Bytes::new())],
        );
        start
    }

    fn send(&mut self, desk: &mut Desk, op: StartOp, object: String, steps: Vec<Op>) {
        self.waiting += 1;
        let steps = steps.into_iter().map(Into::into).collect();
        desk.send(Owner::Start(op), ObjectName::new(self.pool, object), steps);
    }

    fn object_of(&self, op: StartOp) -> String {
        match op {
            StartOp::Pointer => names::object(names::journal_pointer(self.rank), 0),
            StartOp::Inos => names::ino_table(self.rank),
            StartOp::Snaps => names::SNAP_TABLE.to_owned(),
            StartOp::Base(ino) => names::base_inode(ino),
            StartOp::Sessions { .. } => names::session_map(self.rank),
        }
    }

    pub(super) fn done(&mut self, op: StartOp, reply: Reply, desk: &mut Desk) -> Result<(), StorageError> {
        self.waiting -= 1;
        let object = self.object_of(op);
        let steps = match reply {
            Ok(steps) => steps,
            // File systems of old have none. Source: MDLog::_recovery_thread.
            Err(Errno::ENOENT) if op == StartOp::Pointer => {
                self.journal = Some(names::journal(self.rank));
                return Ok(());
            }
            Err(Errno::ENOENT) => return Err(StorageError::Missing { object }),
            Err(errno) => return Err(StorageError::Os { object, errno }),
        };
        let more =
            self.take(op, steps).map_err(|error| StorageError::Damaged { object: object.clone(), error })?;
        if let Some(after) = more {
            self.send(desk, StartOp::Sessions { is_first: false }, object, vec![sessions_behind(after)]);
        }
        Ok(())
    }

    /// The key behind which the next page of sessions begins.
    fn take(&mut self, op: StartOp, steps: Vec<StepResult>) -> Result<Option<Bytes>, DecodeError> {
        let mut outputs = steps.into_iter().map(|step| step.output);
        let mut output = || outputs.next().unwrap_or_default();
        match op {
            // The journal that it was being rewritten to counts for nothing before it is in front.
            StartOp::Pointer => self.journal = Some(JournalPointer::from_bytes(output())?.front),
            StartOp::Inos => self.tables.inos = Decode::from_bytes(output())?,
            StartOp::Snaps => self.tables.snaps = Some(Box::new(Decode::from_bytes(output())?)),
            StartOp::Base(_) => {
                self.tables.base.push(Decode::from_bytes(output())?);
                self.tables.base.sort_by_key(|base: &BaseInode| base.0.inode.ino);
            }
            StartOp::Sessions { is_first } => {
                if is_first {
                    self.tables.session_version = SessionMapHeader::from_bytes(output())?.version;
                }
                let page = OmapValsResponse::from_bytes(output())?;
                let after = page.vals.last_key_value().map(|(key, _)| key.clone()).filter(|_| page.more);
                for (key, value) in page.vals {
                    let unknown = DecodeError::Invalid { what: "key of a session", value: key.len() as u64 };
                    let name = session_name(&key).ok_or(unknown)?;
                    self.tables.sessions.insert(name, SessionInfo::from_bytes(value)?);
                }
                return Ok(after);
            }
        }
        Ok(None)
    }

    /// The tables, once they are all here.
    pub(super) fn finished(&mut self) -> Option<Tables> {
        (self.waiting == 0).then(|| std::mem::take(&mut self.tables))
    }
}

fn sessions_behind(start_after: Bytes) -> Op {
    Op::OmapGetVals { start_after, max: SESSIONS_PER_PAGE, prefix: Bytes::new() }
}

/// `client.4123`. Source: entity_name_t::parse.
fn session_name(key: &[u8]) -> Option<EntityName> {
    let (kind, num) = std::str::from_utf8(key).ok()?.split_once('.')?;
    Some(EntityName::new(EntityType::parse(kind)?, num.parse().ok()?))
}

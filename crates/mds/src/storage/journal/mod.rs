//! A journal: a file of entries that is read from where it is needed, appended to, and cut in front.
//!
//! ```text
//! Closed ──open──> ReadingHead ──> Probing ──> Reading ──(all read) start_writing──> Cutting ──> Writing
//!                       ^                         │
//!                       └───────── follow ────────┘
//! ```
//!
//! Invariants ([`Journal::assert_invariants`]):
//! 1. `trimmed <= expire <= safe <= durable <= sent <= write_pos` while it is written.
//! 2. Bytes are written to an object only when all bytes before that object are durable: what is durable is
//!    whole up to its end, whenever the server dies.
//! 3. Bytes are written to an object only when the next object is known not to exist: the end is found by the
//!    objects' sizes alone.
//! 4. `write_pos`, `safe`, and what the header says of the end, are ends of entries.
//! 5. An object is removed only when the durable header says that replay begins behind it.
//!
//! Source: src/osdc/Journaler.h and Journaler.cc.

mod read;
mod write;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use codec::{Decode, Writer};
use messages::osd::{Extent, Op, StatResponse};
use types::{Errno, Ino, PoolId};

use super::desk::{Desk, Owner};
use super::event::{EntryDamage, StorageError};
use super::object::{ObjectName, Reply};
use super::store::JournalState;
use crate::format::{JournalHeader, MAGIC, names};

pub(super) use read::Entry;
pub(super) use write::{cleared_of_fresh, fresh_header};

/// Which journal of a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Which {
    Log,
    Queue,
}

/// What an operation of a journal is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum JournalOp {
    ReadHead,
    /// The size of an object, to find the end.
    Probe {
        object: u64,
    },
    Read {
        at: u64,
        length: u64,
    },
    /// What a write that was cut off left behind the end goes.
    Cut,
    /// An object ahead of the end goes.
    Clear {
        object: u64,
    },
    Write {
        at: u64,
    },
    WriteHead,
    Trim {
        object: u64,
    },
}

/// What happened to a journal.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum JournalEvent {
    /// Limits are known, entries can be read.
    Opened,
    /// There is none.
    Absent,
    Outrun {
        expire_pos: u64,
    },
    Writeable,
    Safe(u64),
    /// The header with this `expire_pos` is durable.
    Expired(u64),
    Failed(StorageError),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Closed,
    ReadingHead,
    Probing,
    Reading,
    Cutting,
    Writing,
    /// After an error: nothing is asked any more.
    Failed,
}

/// Objects ahead of the end that are removed before they are needed. Option `journaler_prezero_periods`.
const CLEAR_AHEAD: u64 = 5;
/// Writes under way: what is appended meanwhile goes with the next one.
const WRITES_AT_ONCE: usize = 2;

/// The part of the journal that is read.
#[derive(Debug, Default)]
struct ReadAhead {
    /// Where the next entry begins.
    pos: u64,
    /// Bytes from `pos` on.
    have: Bytes,
    /// Bytes below are asked for.
    requested: u64,
    /// What came before what lies in front of it.
    parts: BTreeMap<u64, Bytes>,
    /// As many bytes the next entry needs.
    needed: u64,
}

/// The part that is written.
#[derive(Debug, Default)]
struct Appender {
    /// Bytes from `sent` on.
    pending: Writer,
    /// Bytes below were sent.
    sent: u64,
    /// Ends of writes under way by their starts; `true`: durable, before an earlier one.
    in_flight: BTreeMap<u64, (u64, bool)>,
    /// Ends of entries that are not safe yet.
    ends: VecDeque<u64>,
    safe: u64,
    /// Objects below, from the end on, were asked to go; those in `clearing` are not gone yet.
    clear_next: u64,
    clearing: BTreeSet<u64>,
    is_cutting: bool,

    head_in_flight: Option<JournalHeader>,
    is_head_wanted: bool,
    head_at: Duration,

    trim_next: u64,
    trimming: BTreeSet<u64>,
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Journal {
    which: Which,
    pool: PoolId,
    ino: Ino,
    phase: Phase,
    period: u64,
    /// As it is durable.
    header: Option<JournalHeader>,
    trimmed: u64,
    expire: u64,
    /// Behind the last entry that is known.
    write_pos: u64,
    read: ReadAhead,
    write: Appender,
    /// Another server writes it.
    pub(super) is_following: bool,
    events: Vec<JournalEvent>,
}

impl Journal {
    pub(super) fn new(which: Which, pool: PoolId, ino: Ino) -> Self {
        Self {
            which,
            pool,
            ino,
            phase: Phase::Closed,
            period: 0,
            header: None,
            trimmed: 0,
            expire: 0,
            write_pos: 0,
            read: ReadAhead::default(),
            write: Appender::default(),
            is_following: false,
            events: Vec::new(),
        }
    }

    pub(super) fn take_events(&mut self) -> Vec<JournalEvent> {
        std::mem::take(&mut self.events)
    }

    pub(super) fn state(&self) -> JournalState {
        JournalState {
            trimmed_pos: self.trimmed,
            expire_pos: self.expire,
            safe_pos: if self.is_writing() { self.write.safe } else { self.write_pos },
            write_pos: self.write_pos,
            period: self.period,
        }
    }

    pub(super) fn is_writing(&self) -> bool {
        self.phase == Phase::Writing
    }

    pub(super) fn is_reading(&self) -> bool {
        matches!(self.phase, Phase::Reading | Phase::Writing)
    }

    /// Whether every entry that is durable has been read.
    pub(super) fn is_all_read(&self) -> bool {
        self.is_reading() && self.read.pos == self.readable_end()
    }

    /// Entries end here at the latest, as far as they may be read.
    fn readable_end(&self) -> u64 {
        if self.is_writing() { self.write.safe } else { self.write_pos }
    }

    fn owner(&self, op: JournalOp) -> Owner {
        match self.which {
            Which::Log => Owner::Log(op),
            Which::Queue => Owner::Queue(op),
        }
    }

    fn object(&self, block: u64) -> ObjectName {
        ObjectName::new(self.pool, names::object(self.ino, block))
    }

    fn head_name(&self) -> String {
        names::object(self.ino, 0)
    }

    fn send(&self, desk: &mut Desk, op: JournalOp, block: u64, step: Op) {
        desk.send(self.owner(op), self.object(block), vec![step.into()]);
    }

    fn fail(&mut self, error: StorageError) {
        if self.phase != Phase::Failed {
            self.phase = Phase::Failed;
            self.events.push(JournalEvent::Failed(error));
        }
    }

    fn damaged(&mut self, what: &'static str) {
        self.fail(StorageError::Inconsistent { object: self.head_name(), what });
    }

    fn hole(&mut self, at: u64) {
        let (object, error) = (self.head_name(), EntryDamage::Hole);
        self.fail(StorageError::DamagedEntry { object, at, error });
    }

    // Opening.

    /// Reads header and end.
    pub(super) fn open(&mut self, desk: &mut Desk) {
        self.phase = Phase::ReadingHead;
        self.send(desk, JournalOp::ReadHead, 0, Op::Read(Extent::new(0, 0)));
    }

    pub(super) fn done(&mut self, op: JournalOp, reply: Reply, desk: &mut Desk) {
        if self.phase == Phase::Failed {
            return;
        }
        let result = reply.map(|steps| steps.into_iter().next().unwrap_or_default());
        match (op, result) {
            (JournalOp::ReadHead, result) => self.head_read(result.map(|r| r.output), desk),
            (JournalOp::Probe { object }, Ok(r)) => match StatResponse::from_bytes(r.output) {
                Ok(stat) => self.object_probed(object, stat.size, desk),
                Err(error) => {
                    self.fail(StorageError::Damaged { object: self.object(object).name.to_string(), error })
                }
            },
            (JournalOp::Probe { object }, Err(Errno::ENOENT)) => self.object_probed(object, 0, desk),
            (JournalOp::Read { at, length }, result) => self.part_read(at, length, result.map(|r| r.output)),
            (JournalOp::Cut, Ok(_) | Err(Errno::ENOENT)) => {
                self.write.is_cutting = false;
                self.cut_done();
            }
            (JournalOp::Clear { object }, Ok(_) | Err(Errno::ENOENT)) => {
                self.write.clearing.remove(&object);
                self.cut_done();
            }
            (JournalOp::Write { at }, Ok(_)) => self.written(at),
            (JournalOp::WriteHead, Ok(_)) => self.head_written(),
            (JournalOp::Trim { object }, Ok(_) | Err(Errno::ENOENT)) => self.trimmed(object),
            (op, Err(errno)) => {
                let object = match op {
                    JournalOp::Probe { object }
                    | JournalOp::Clear { object }
                    | JournalOp::Trim { object } => object,
                    JournalOp::Write { at } => at / self.period.max(1),
                    _ => 0,
                };
                self.fail(StorageError::Os { object: self.object(object).name.to_string(), errno });
            }
        }
    }

    fn head_read(&mut self, result: Result<Bytes, Errno>, desk: &mut Desk) {
        let bytes = match result {
            Ok(bytes) if bytes.is_empty() => return self.damaged("the header is empty"),
            Ok(bytes) => bytes,
            Err(Errno::ENOENT) => {
                self.phase = Phase::Closed;
                return self.events.push(JournalEvent::Absent);
            }
            Err(errno) => return self.fail(StorageError::Os { object: self.head_name(), errno }),
        };
        match JournalHeader::from_bytes(bytes) {
            Ok(header) => self.opened(header, desk),
            Err(error) => self.fail(StorageError::Damaged { object: self.head_name(), error }),
        }
    }

    fn opened(&mut self, header: JournalHeader, desk: &mut Desk) {
        let layout = &header.layout;
        if header.magic != MAGIC {
            return self.damaged("another magic");
        }
        if !header.is_ordered() {
            return self.damaged("positions out of order");
        }
        if !layout.is_valid() || layout.stripe_count != 1 {
            return self.damaged("a layout that no server writes");
        }
        if layout.pool != self.pool {
            return self.damaged("a layout of another pool");
        }
        let period = u64::from(layout.object_size);
        if header.trimmed_pos < period {
            return self.damaged("entries in the header's object");
        }
        let is_first = self.header.is_none();
        if is_first {
            (self.read.pos, self.read.requested) = (header.expire_pos, header.expire_pos);
        }
        self.period = period;
        (self.trimmed, self.expire) = (header.trimmed_pos, header.expire_pos);
        self.write_pos = header.write_pos;
        let from = header.write_pos / period;
        self.header = Some(header);
        if self.read.pos < self.expire {
            return self.outrun();
        }
        self.phase = Phase::Probing;
        self.probe(from, desk);
    }

    fn probe(&self, object: u64, desk: &mut Desk) {
        self.send(desk, JournalOp::Probe { object }, object, Op::Stat);
    }

    fn object_probed(&mut self, object: u64, size: u64, desk: &mut Desk) {
        let end = (object * self.period).saturating_add(size);
        if size == self.period && object < u64::MAX / self.period - 1 {
            return self.probe(object + 1, desk);
        }
        if size > self.period {
            return self.damaged("an object that is too long");
        }
        if end < self.write_pos {
            // The header counts entries that are not there.
            return self.hole(end);
        }
        self.write_pos = end;
        self.phase = Phase::Reading;
        if self.read.pos > end {
            // The other server cut off what we read: it can only have begun anew.
            return self.outrun();
        }
        self.events.push(JournalEvent::Opened);
    }

    /// What lies in front of what was read next is gone.
    fn outrun(&mut self) {
        self.phase = Phase::Failed;
        self.events.push(JournalEvent::Outrun { expire_pos: self.expire });
    }

    /// Reads on from another position: where an entry begins.
    pub(super) fn read_from(&mut self, pos: u64) {
        self.read = ReadAhead { pos, requested: pos, ..ReadAhead::default() };
    }

    /// Where the next entry begins that is not read.
    pub(super) fn read_pos(&self) -> u64 {
        self.read.pos
    }

    /// What the header says of the end: entries before are whole.
    pub(super) fn header_end(&self) -> u64 {
        self.header.as_ref().map_or(0, |h| h.write_pos)
    }
}

//! What tests look for in an OSD: which writes its logs have, in memory and in the store.

use messages::Message;
use store::{Store, TxnSeq};
use types::{Epoch, Eversion, OsdId, PgShard, SpgId};

use super::OsdCore;
use super::shared::{Done, PgDone};
use crate::log::PgLog;
use crate::peer::{PgBody, PgMessage};
use crate::pg::persist;

/// What a message between OSDs is for, as far as it makes a PG whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Purpose {
    Peering,
    Recovery,
    Backfill,
}

/// A piece of a PG's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Logged {
    /// Entries, newest first.
    pub versions: Vec<Eversion>,
    /// What is at or below this was trimmed.
    pub tail: Eversion,
}

impl Logged {
    fn of(log: &PgLog, version: Eversion, most: usize) -> Self {
        Self { versions: log.up_to(version).take(most).map(|e| e.version).collect(), tail: log.tail() }
    }
}

impl OsdCore {
    /// What a message between OSDs is for, with its PG and the start of the interval; `None` for others.
    pub fn purpose_of(msg: &Message) -> Option<(Purpose, SpgId, Epoch)> {
        let msg = PgMessage::from_message(msg)?.ok()?;
        let purpose = match msg.body {
            PgBody::QueryInfo
            | PgBody::QueryLog { .. }
            | PgBody::Notify { .. }
            | PgBody::Log { .. }
            | PgBody::Activate { .. }
            | PgBody::Activated { .. } => Purpose::Peering,
            PgBody::Pull { .. } | PgBody::Push(_) | PgBody::PushAck { .. } | PgBody::PullRefused { .. } => {
                Purpose::Recovery
            }
            PgBody::BackfillRange { .. }
            | PgBody::BackfillWants { .. }
            | PgBody::BackfillProgress { .. }
            | PgBody::BackfillAck { .. }
            | PgBody::BackfillReserve { .. }
            | PgBody::BackfillGrant { .. } => Purpose::Backfill,
            _ => return None,
        };
        Some((purpose, msg.pgid, msg.interval))
    }

    /// The PG's newest entries up to a version; `None` without the PG.
    pub fn logged(&self, pgid: SpgId, version: Eversion, most: usize) -> Option<Logged> {
        self.pgs.get(&pgid).map(|pg| Logged::of(&pg.log, version, most))
    }

    /// The same of a store that no OSD runs on.
    pub fn logged_in(store: &mut Store, pgid: SpgId, version: Eversion, most: usize) -> Option<Logged> {
        let stored = persist::read(store, pgid).ok()??;
        Some(Logged::of(&stored.log, version, most))
    }

    /// Writes that were submitted after a transaction and of which this core has not heard that they are
    /// durable, oldest first: each with its transaction.
    pub fn submitted_after(&self, after: TxnSeq) -> impl Iterator<Item = (TxnSeq, SpgId, Eversion)> {
        let queue = &self.shared.on_durable;
        let first = queue.partition_point(|(seq, _)| *seq <= after);
        queue.range(first..).filter_map(|(seq, done)| match done {
            Done::Pg { id, what: PgDone::Write(version) | PgDone::RepOp { version, .. }, .. } => {
                Some((*seq, *id, *version))
            }
            _ => None,
        })
    }

    /// Members that lack nothing of a PG; `None` when it is not active here.
    pub fn whole_members(&self, pgid: SpgId) -> Option<Vec<OsdId>> {
        let me = self.shared.whoami;
        let pg = self.pgs.get(&pgid).filter(|pg| pg.is_primary(&self.shared) && pg.is_active())?;
        let is_whole = |copy: &PgShard| match copy.osd == me {
            true => pg.missing.is_empty(),
            false => pg.peers.get(copy).is_some_and(|p| p.is_whole()),
        };
        Some(pg.acting().filter(is_whole).map(|copy| copy.osd).collect())
    }

    /// Bytes that requests of erasure-coded PGs gather.
    pub fn gathered_bytes(&self) -> u64 {
        self.shared.gathers.bytes()
    }

    /// Bytes that all requests of clients hold.
    pub fn request_bytes(&self) -> u64 {
        self.clients.running().bytes
    }

    /// The PG's acting set as this OSD knows it, place by place.
    pub fn acting_of(&self, pgid: SpgId) -> &[OsdId] {
        self.pgs.get(&pgid).map_or(&[], |pg| pg.acting_set())
    }
}

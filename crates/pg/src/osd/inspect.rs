//! What tests look for in an OSD: which writes its logs have, in memory and in the store.

use store::Store;
use types::{Eversion, OsdId, PgShard, SpgId};

use super::OsdCore;
use crate::log::PgLog;
use crate::pg::persist;

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
    /// The PG's newest entries up to a version; `None` without the PG.
    pub fn logged(&self, pgid: SpgId, version: Eversion, most: usize) -> Option<Logged> {
        self.pgs.get(&pgid).map(|pg| Logged::of(&pg.log, version, most))
    }

    /// The same of a store that no OSD runs on.
    pub fn logged_in(store: &mut Store, pgid: SpgId, version: Eversion, most: usize) -> Option<Logged> {
        let stored = persist::read(store, pgid).ok()??;
        Some(Logged::of(&stored.log, version, most))
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

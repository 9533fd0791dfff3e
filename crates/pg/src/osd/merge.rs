//! Tells the monitors that two PGs may be merged, or that they may not.
//!
//! Source: OSDService::send_ready_to_merge in src/osd/OSD.cc.

use messages::PaxosVersion;
use messages::osd::MOsdPgReadyToMerge;
use types::SpgId;

use super::OsdCore;
use crate::pg::Pg;
use crate::pg::join::{Readiness, pending};

impl OsdCore {
    /// Says again at each tick what the pairs that are led from here are ready for, until the map changes.
    pub(super) fn merge_tick(&mut self) {
        if !self.boot.is_up() || self.stopping {
            return;
        }
        let map = self.shared.map.clone();
        for (id, pool) in map.pools.iter().filter(|(_, p)| p.pg_num_pending < p.pg_num) {
            if let Some((source, target)) = pending(*id, pool) {
                self.tell_readiness(source, target);
            }
        }
    }

    fn tell_readiness(&mut self, source: SpgId, target: SpgId) {
        let led = |id: &SpgId| self.pgs.get(id).filter(|pg| pg.is_primary(&self.shared));
        let (s, t) = (led(&source), led(&target));
        let says = |pg: Option<&Pg>| pg.map(|pg| pg.merge_readiness(&self.shared));
        // The copies of one that others have would be of no use: they lack the other half.
        let apart = s.zip(t).is_some_and(|(s, t)| s.acting() != t.acting());
        let ready = match (says(s), says(t)) {
            (None, None) => return,
            (Some(Readiness::Yes), Some(Readiness::Yes)) if apart => false,
            (Some(Readiness::Yes), Some(Readiness::Yes)) => true,
            // Led by two: the pair cannot be merged as it is placed now.
            (Some(Readiness::No), _) | (_, Some(Readiness::No)) | (Some(Readiness::Yes), None) => false,
            _ => return,
        };
        let mut msg = MOsdPgReadyToMerge {
            version: PaxosVersion(self.shared.epoch().0.into()),
            pgid: source.pgid,
            ready,
            ..MOsdPgReadyToMerge::default()
        };
        if let (Some(s), Some(t)) = (s, t) {
            let (a, b) = (&s.info.history, &t.info.history);
            msg.source_version = s.info.last_update;
            msg.target_version = t.info.last_update;
            msg.last_epoch_started = a.last_epoch_started.min(b.last_epoch_started);
            msg.last_epoch_clean = a.last_epoch_clean.min(b.last_epoch_clean);
        }
        self.shared.send_mon(msg);
    }
}

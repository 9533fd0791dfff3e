//! Tells the monitors that two PGs may be merged, or that they may not.
//!
//! Source: OSDService::send_ready_to_merge in src/osd/OSD.cc.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use messages::PaxosVersion;
use messages::osd::MOsdPgReadyToMerge;
use types::PgId;

use super::OsdCore;
use crate::pg::Pg;
use crate::pg::join::{Readiness, pending};

/// A pair serves nobody for so long at most, whatever its PGs wait for: then the merge is called off. The
/// monitors try again when all is clean.
const PATIENCE: Duration = Duration::from_secs(5);

impl OsdCore {
    /// Says again at each tick what the pairs that are led from here are ready for, until the map changes.
    pub(super) fn merge_tick(&mut self) {
        if !self.boot.is_up() || self.stopping {
            return;
        }
        let map = self.shared.map.clone();
        let pairs = map.pools.iter().filter(|(_, p)| p.pg_num_pending < p.pg_num);
        let pairs: Vec<(PgId, PgId)> = pairs.filter_map(|(id, pool)| pending(*id, pool)).collect();
        let named: BTreeSet<PgId> = pairs.iter().map(|(source, _)| *source).collect();
        self.merge_waits.retain(|source, _| named.contains(source));
        for (source, target) in pairs {
            self.tell_readiness(source, target);
        }
    }

    fn tell_readiness(&mut self, source: PgId, target: PgId) {
        let map = &self.shared.map;
        let led = |id: PgId| {
            let copy = map.primary_shard(id).and_then(|(_, id)| self.pgs.get(&id));
            copy.filter(|pg| pg.is_primary(&self.shared))
        };
        let (s, t) = (led(source), led(target));
        let says = |pg: Option<&Pg>| pg.map(|pg| pg.merge_readiness(&self.shared));
        // The copies of one that others have would be of no use: they lack the other half.
        let apart = s.zip(t).is_some_and(|(s, t)| s.acting_set() != t.acting_set());
        let ready = match (says(s), says(t)) {
            (None, None) => return,
            (Some(Readiness::Yes), Some(Readiness::Yes)) if apart => false,
            (Some(Readiness::Yes), Some(Readiness::Yes)) => true,
            // Led by two: the pair cannot be merged as it is placed now.
            (Some(Readiness::No), _) | (_, Some(Readiness::No)) | (Some(Readiness::Yes), None) => false,
            _ if waits_long(&mut self.merge_waits, source, self.shared.now.mono) => false,
            _ => return,
        };
        let mut msg = MOsdPgReadyToMerge {
            version: PaxosVersion(self.shared.epoch().0.into()),
            pgid: source,
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

/// Whether a pair has been waiting for longer than its clients can be asked to.
fn waits_long(waits: &mut BTreeMap<PgId, Duration>, source: PgId, now: Duration) -> bool {
    let since = *waits.entry(source).or_insert(now);
    now.saturating_sub(since) >= PATIENCE
}

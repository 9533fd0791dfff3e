//! Disks that are gone for good, under load and right after acknowledgements, and the new ones that take their place.
//!
//! What was acknowledged has to survive as long as one member has it all. So disks go only while each PG is active with a
//! member that lacks nothing and keeps its disk: whatever else was acknowledged until then, that member has it too.

use std::collections::BTreeSet;

use types::{Fsid, OsdId, SpgId};

use crate::faults::Death;
use crate::net::Node;
use crate::queue::{SECOND, Time};
use crate::world::{Event, World};

/// How often a fault waits for its moment again.
const TRIES: u32 = 20;
/// The administrator asks again after so long, when monitors were away.
const ASK_AGAIN: Time = 10 * SECOND;

/// A disk that an OSD waits for.
#[derive(Debug, Clone, Copy)]
pub struct NewDisk {
    /// All of its UUID's bytes.
    uuid: u8,
    asked: Time,
}

impl World {
    /// Takes the disks of as many of these OSDs as can go, with all that they hold. False when it has to be tried again.
    pub fn lose_disks(&mut self, index: usize, osds: &[i32], death: Death, down: Time) -> bool {
        let most = (1..=osds.len()).rev().find(|n| self.can_lose(&osds[..*n]));
        let Some(most) = most else { return self.gives_up(index) };
        self.came.insert(index);
        self.happened("disks lost for good, at a time");
        for osd in &osds[..most] {
            self.happened("disks lost for good");
            self.crash_osd(*osd, death);
            self.rotted.retain(|(on, _)| on != osd);
            self.disks_lost += 1;
            // Those of the first disks are smaller.
            let uuid = 150 + (self.disks_lost % 100) as u8;
            self.osds[*osd as usize].awaits = Some(NewDisk { uuid, asked: 0 });
            self.plan_in(down.max(SECOND), Event::Start(Node::Osd(*osd)));
        }
        true
    }

    /// Whether a fault has waited often enough for its moment.
    fn gives_up(&mut self, index: usize) -> bool {
        let tries = self.tries.entry(index).or_default();
        *tries += 1;
        *tries > TRIES
    }

    /// The OSDs and the monitor of a host.
    pub fn on_host(&self, host: usize) -> (Vec<i32>, Option<usize>) {
        let here = |node: Node| self.host_of(node) == Some(host);
        let osds = (0..self.scenario.options.osds).filter(|osd| here(Node::Osd(*osd)));
        (osds.collect(), self.listed_mons().into_iter().find(|mon| here(Node::Mon(*mon))))
    }

    /// Takes a host with all its disks. Of what its monitor promised the others have to have it all, and a
    /// lone one is never lost. False when it has to be tried again.
    pub fn lose_host(
        &mut self,
        index: usize,
        osds: &[i32],
        mon: Option<usize>,
        death: Death,
        down: Time,
    ) -> bool {
        let spares_mon = mon.is_none() || self.listed_mons().len() >= 3 && self.mons_whole();
        if !spares_mon || osds.is_empty() || !self.can_lose(osds) {
            return self.gives_up(index);
        }
        self.happened("hosts lost for good");
        if let Some(mon) = mon {
            self.crash_mon(mon, death);
            self.wipe_mon_disk(mon);
            self.plan_in(down.max(SECOND), Event::Start(Node::Mon(mon)));
        }
        self.lose_disks(index, osds, death, down)
    }

    /// Whether each PG has a member that is none of these and has everything. PGs are those of the newest
    /// map: a monitor that has just started shows an older one, which lacks pools that have been written to
    /// since.
    fn can_lose(&self, osds: &[i32]) -> bool {
        let newest = self.agreed.newest_map();
        let map = self.monitor().map(|m| m.state().osdmap()).filter(|m| m.epoch == newest);
        let Some(map) = map.cloned() else { return false };
        let lost: BTreeSet<i32> = osds.iter().copied().collect();
        let is_there = |osd: &OsdId| {
            let host = &self.osds[osd.0 as usize];
            !lost.contains(&osd.0) && host.core.is_some() && host.awaits.is_none()
        };
        let mut all = true;
        map.for_each_pg(|pg, m| {
            let primary = usize::try_from(m.acting_primary).ok().and_then(|p| self.osds[p].core.as_ref());
            let core = primary.filter(|c| c.osdmap().epoch == map.epoch);
            let id = map.primary_shard(pg).map_or(SpgId::replicated(pg), |(_, id)| id);
            let whole = core.and_then(|c| c.whole_members(id));
            // Of an erasure-coded object so many shards make up the data.
            let need = match (self.scenario.options.code, id.shard) {
                (_, SpgId::NO_SHARD) | (None, _) => 1,
                (Some((k, _)), _) => usize::from(k),
            };
            all &= whole.is_some_and(|whole| whole.iter().filter(|osd| is_there(osd)).count() >= need);
        });
        all
    }

    /// Whether an OSD's start has to wait until the monitors know its new disk; then it has that disk.
    pub fn waits_for_disk(&mut self, osd: i32) -> bool {
        let Some(NewDisk { uuid, asked }) = self.osds[osd as usize].awaits else { return false };
        let bytes = Fsid([uuid; 16]);
        let map = self.monitor().map(|m| m.state().osdmap().clone());
        if map.is_some_and(|m| m.osd(osd).is_some_and(|o| o.uuid == bytes) && !m.is_up(osd)) {
            self.new_disk(osd, uuid);
            self.osds[osd as usize].taken = None;
            self.osds[osd as usize].awaits = None;
            return false;
        }
        // What waits for monitors is still to come: asked once more it would destroy the new disk.
        if asked == 0 || self.now > asked + ASK_AGAIN && self.admin.is_idle() {
            self.osds[osd as usize].awaits = Some(NewDisk { uuid, asked: self.now });
            self.admin_command(format!(r#"{{"prefix":"osd down","ids":["{osd}"]}}"#));
            let destroy = r#""prefix":"osd destroy-actual","yes_i_really_mean_it":true"#;
            self.admin_command(format!(r#"{{{destroy},"id":"{osd}"}}"#));
            self.admin_command(format!(r#"{{"prefix":"osd new","uuid":"{bytes}","id":"{osd}"}}"#));
        }
        self.plan_in(SECOND, Event::Start(Node::Osd(osd)));
        true
    }
}

#[cfg(test)]
mod tests {
    use crate::faults::Death;
    use crate::net::Node;
    use crate::queue::MILLISECOND;
    use crate::scenario::{Level, Scenario};
    use crate::world::{Event, World};

    /// A lone monitor of three that has just started shows the map that the cluster began with, without a
    /// pool.
    #[test]
    fn nothing_is_lost_by_an_old_map() {
        let scenario = Scenario::from_seed(1).with_level(Level::Calm).with_mons(3);
        let mut world = World::new(scenario).expect("a cluster");
        world.bring_up();
        assert!(world.can_lose(&[0]), "every PG is clean: {:?}", world.pg_states());
        (0..3).for_each(|mon| world.crash_mon(mon, Death::Killed));
        assert!(!world.can_lose(&[0]), "nobody knows the map");
        world.plan_in(0, Event::Start(Node::Mon(0)));
        let end = world.now + 200 * MILLISECOND;
        world.run_until(end, |w| w.monitor().is_some());
        let map = world.monitor().expect("it has started").state().osdmap();
        assert!(map.epoch < world.agreed.newest_map(), "{} is no old map", map.epoch);
        assert!(!world.can_lose(&[0]));
    }
}

//! What must hold at the very moment at which an OSD tells a client that its write is done (O1): the log of every acting member
//! has the write and all before it, and there are as many of them as the pool asks for; what each has of it
//! is durable, as its store says. Of a member that is dead the medium is looked at, and of the others every
//! now and then.

use std::collections::VecDeque;
use std::sync::Arc;

use pg::{Logged, OsdCore};
use store::{Options, Store, TxnSeq};
use types::{Epoch, Eversion, OsdId, PgId, SpgId};

use crate::world::{FSID, World, life_of};

/// So many entries are compared, back from the acknowledged one: each was the last when its own time came.
const BACK: usize = 8;
/// At one of so many acknowledgements, and on the media, all that the logs have.
const WHOLE: u64 = 64;
/// One of so many acknowledgements is looked for on the media.
const ON_MEDIA: u64 = 4_000;
/// The first of them: a planted bug is found soon.
const FIRST_ON_MEDIA: u64 = 5;

/// Writes of an OSD that its store has not made durable, in the order of their transactions.
#[derive(Debug, Default)]
pub struct Undurable {
    writes: VecDeque<(TxnSeq, SpgId, Eversion)>,
    /// The newest transaction that was looked at.
    seen: TxnSeq,
}

impl Undurable {
    /// Notes what the core has submitted since, and forgets what the store has made durable. What the core
    /// was told of its store does not count: that may be wrong.
    pub fn look(&mut self, core: &mut OsdCore) {
        self.writes.extend(core.submitted_after(self.seen));
        let store = core.store_mut();
        self.seen = self.seen.max(store.submitted());
        let durable = store.durable();
        while self.writes.front().is_some_and(|(seq, ..)| *seq <= durable) {
            self.writes.pop_front();
        }
    }

    /// A write of the PG at or below this version that is not durable.
    fn below(&self, id: SpgId, version: Eversion) -> Option<Eversion> {
        self.writes.iter().find(|(_, pg, v)| *pg == id && *v <= version).map(|(_, _, v)| *v)
    }
}

impl World {
    /// `osd` acknowledges the write that made this version of the PG.
    pub fn check_acknowledged(&mut self, osd: i32, pgid: PgId, version: Eversion) {
        let Some(primary) = &self.osds[osd as usize].core else { return };
        let id = primary.osdmap().primary_shard(pgid).map_or(SpgId::replicated(pgid), |(_, id)| id);
        let epoch = primary.osdmap().epoch;
        let on_media = (self.acknowledged + 1) % ON_MEDIA == FIRST_ON_MEDIA;
        let back = if on_media || self.acknowledged % WHOLE == 0 { usize::MAX } else { BACK };
        // An answer that is given again may be about a write that was trimmed long ago.
        let Some(wanted) = primary.logged(id, version, back).filter(|l| l.versions.first() == Some(&version))
        else {
            return;
        };
        let acting = primary.acting_of(id).to_vec();
        let life = |osd: &OsdId| primary.osdmap().osd(osd.0).map_or(0, |o| life_of(&o.cluster_addrs));
        let lives: Vec<u32> = acting.iter().map(life).collect();
        self.acknowledged += 1;
        let least = primary.osdmap().pool(pgid.pool).map_or(0, |pool| usize::from(pool.min_size));
        let members = acting.iter().filter(|osd| **osd != OsdId::HOLE).count();
        if members < least {
            return self.violation(format!(
                "O1: osd.{osd} acknowledges {version} of pg {pgid} with {members} members of {least}: {acting:?}"
            ));
        }
        for (place, member) in acting.into_iter().enumerate().filter(|(_, osd)| *osd != OsdId::HOLE) {
            let shard = if id.shard == SpgId::NO_SHARD { id.shard } else { place as i8 };
            let id = SpgId { shard, ..id };
            let asked = Asked { id, wanted: &wanted, epoch, back, on_media };
            if let Some((place, fault)) = self.fault_of(member.0, lives[place], asked) {
                return self.violation(format!(
                    "O1: osd.{osd} acknowledges {version} of pg {pgid}; the {place} of osd.{member} {fault}"
                ));
            }
        }
        if on_media {
            self.happened("acknowledged writes looked for on the media");
        }
    }
}

/// What members must have of an acknowledged write.
#[derive(Clone, Copy)]
struct Asked<'a> {
    id: SpgId,
    wanted: &'a Logged,
    /// The map of whoever acknowledges it.
    epoch: Epoch,
    /// So many entries are compared.
    back: usize,
    on_media: bool,
}

impl World {
    /// Where a member, which the map shows in this life, lacks the write or anything before it, and what it
    /// has instead.
    fn fault_of(&mut self, member: i32, life: u32, asked: Asked<'_>) -> Option<(&'static str, String)> {
        let Asked { id, wanted, epoch, back, on_media } = asked;
        let version = *wanted.versions.first()?;
        let host = &self.osds[member as usize];
        // One that has another map may have split the PG, or given it up.
        if host.epoch != epoch {
            return None;
        }
        let Some(core) = &host.core else {
            // Another disk was put in since, or this one may be refused.
            if host.refusable || host.awaits.is_some() || life < host.first_life_of_disk {
                return None;
            }
            let device = Arc::new(host.device.after_the_worst());
            self.happened("acknowledged writes looked for on the media of the dead");
            return fault(wanted, logged_on(device, id, version, back)).map(|fault| ("medium", fault));
        };
        if let Some(v) = host.undurable.below(id, version) {
            return Some(("store", format!("has not made {v} durable")));
        }
        if let Some(fault) = fault(wanted, core.logged(id, version, back)) {
            return Some(("log", fault));
        }
        let device = on_media.then(|| Arc::new(host.device.after_the_worst()))?;
        fault(wanted, logged_on(device, id, version, back)).map(|fault| ("medium", fault))
    }
}

/// What a power loss now leaves of the PG's log, at worst.
fn logged_on(device: Arc<dyn store::Device>, id: SpgId, version: Eversion, back: usize) -> Option<Logged> {
    let options = Options { memory_bytes: 16 << 20, expect_fsid: Some(FSID), ..Options::default() };
    let mut store = Store::open(device, options).ok()?;
    OsdCore::logged_in(&mut store, id, version, back)
}

/// How a member's log differs from the primary's above where both begin.
fn fault(wanted: &Logged, logged: Option<Logged>) -> Option<String> {
    let Some(logged) = logged else { return Some("does not have the PG".to_owned()) };
    let above = |all: &[Eversion]| -> Vec<Eversion> {
        let floor = wanted.tail.max(logged.tail);
        all.iter().copied().take_while(|v| *v > floor).collect()
    };
    let (theirs, ours) = (above(&logged.versions), above(&wanted.versions));
    (theirs != ours).then(|| format!("has {theirs:?} and not {ours:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::{MILLISECOND, SECOND};
    use crate::scenario::{Level, Scenario};

    fn log(versions: &[u64], tail: u64) -> Logged {
        let of = |v: &u64| Eversion::new(Epoch(3), *v);
        Logged { versions: versions.iter().map(of).collect(), tail: of(&tail) }
    }

    #[test]
    fn a_gap_is_a_fault_and_what_was_trimmed_is_none() {
        let primary = log(&[9, 8, 7, 6], 5);
        assert_eq!(fault(&primary, Some(log(&[9, 8, 7, 6], 4))), None);
        assert_eq!(fault(&primary, Some(log(&[9, 8], 7))), None);
        assert_eq!(fault(&primary, Some(log(&[], 9))), None);
        for bad in [log(&[9, 7, 6], 5), log(&[8, 7, 6], 5), log(&[9, 8, 6], 5), log(&[], 5)] {
            assert!(fault(&primary, Some(bad)).is_some());
        }
        assert!(fault(&primary, None).is_some());
    }

    #[test]
    fn what_is_durable_is_what_the_store_says() {
        // A device that has made it durable by the time of the answer makes the word true.
        let told = (1..=20).find_map(told_too_early).expect("a client was answered before");
        assert!(told.contains("has not made"), "{told}");
    }

    /// What the oracle says of an OSD whose core is told that a write is durable while its device is still at
    /// it.
    fn told_too_early(seed: u64) -> Option<String> {
        let scenario = Scenario::from_seed(seed).with_level(Level::Calm);
        let mut world = World::new(scenario).expect("a cluster");
        world.bring_up();
        world.resume_clients();
        // Until a write has begun somewhere, and its device is still at it.
        let begun = |w: &World| w.osds.iter().position(|host| !host.undurable.writes.is_empty());
        let end = world.now + SECOND;
        while begun(&world).is_none() {
            assert!(world.now < end, "nobody writes");
            let next = world.now + MILLISECOND / 10;
            world.run_until(next, |_| false);
        }
        let osd = begun(&world).expect("a write");
        let (_, id, version) = world.osds[osd].undurable.writes[0];
        let seq = world.osds[osd].core.as_mut().expect("it lives").store_mut().submitted();
        // The core is told what is not so.
        world.osd_input(osd as i32, pg::Input::Durable(seq));
        let core = world.osds[osd].core.as_ref().expect("it lives");
        let epoch = core.osdmap().epoch;
        let wanted = core.logged(id, version, BACK).expect("the PG");
        assert_eq!(world.osds[osd].undurable.below(id, version), Some(version));
        let asked = Asked { id, wanted: &wanted, epoch, back: BACK, on_media: false };
        let (place, _) = world.fault_of(osd as i32, 1, asked).expect("a fault");
        assert_eq!(place, "store");
        let end = world.now + SECOND;
        world.run_until(end, |_| false);
        world.violations.first().map(ToString::to_string)
    }
}

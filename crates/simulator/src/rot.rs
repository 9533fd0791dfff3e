//! Rot: a block at rest on one OSD's device changes, was never written, or holds what belongs elsewhere. The
//! OSDs have to find it and mend it from another copy, whether a client, a write or a scrub comes upon it
//! first.
//!
//! One copy is all that redundancy has to spare, so nothing else that costs a copy happens until it is whole again.

use std::sync::Arc;

use messages::osd::MOsdScrub2;
use pg::Input;
use store::{ObjectKey, Options, Store};
use testkit::SimDevice;
use types::{HObject, PgId, SpgId};

use crate::faults::FaultKind;
use crate::mutant::Mutant;
use crate::net::Node;
use crate::queue::{MILLISECOND, SECOND, Time};
use crate::world::{Event, FSID, World};

const BLOCK: usize = 4096;
/// It must be mended so soon after the first scrub was asked for.
const BOUND: Time = 60 * SECOND;
const ROTTEN_BLOCKS: usize = 4;
/// Objects, and places of each, that are looked at before giving up for now.
const LOOKS: usize = 3;
/// Scrubs are asked for anew after so long.
const ASK_AGAIN: Time = 8 * SECOND;
/// Clients may come upon it before the first scrub.
const FIRST_SCRUB: Time = 2 * SECOND;
/// OSDs tell of what they mended a little later.
const TOLD_WITHIN: Time = 10 * SECOND;

/// What is rotten now.
#[derive(Debug, Clone)]
pub struct Rot {
    osd: i32,
    object: HObject,
    since: Time,
    asked: Time,
}

impl World {
    /// Whether OSDs may complain of damaged data.
    pub fn rot_is_known(&self) -> bool {
        let disk = self.osds.iter().any(|h| h.refusable);
        disk || self.rot.is_some() || self.rot_ended.is_some_and(|at| self.now < at + TOLD_WITHIN)
    }

    /// Whether anything ever rotted, also on a disk that is gone by now: PGs may still be called inconsistent
    /// for it.
    pub fn has_rotted(&self) -> bool {
        self.rot_ended.is_some() || !self.rotted.is_empty()
    }

    /// Whether a fault has to wait until what is rotten is mended.
    pub fn waits_for_mending(&self, kind: &FaultKind) -> bool {
        let harmless = matches!(
            kind,
            FaultKind::Note
                | FaultKind::Scrub { .. }
                | FaultKind::RestartClient { .. }
                | FaultKind::RestartGuest { .. }
                | FaultKind::Cut { .. }
                | FaultKind::CutAll { .. }
                | FaultKind::CrashMgr { .. }
                | FaultKind::Jump { .. }
        );
        self.rot.is_some() && !harmless
    }

    /// Everybody is there and has all copies. Of an OSD that stands still nobody may know yet that it is
    /// away.
    pub(crate) fn has_copies_to_spare(&self) -> bool {
        let o = &self.scenario.options;
        let stands_still = |osd| self.stands_still_until(Node::Osd(osd)).is_some();
        if (0..o.osds).any(stands_still) {
            return false;
        }
        let hosts = self.osds.iter().all(|h| h.core.is_some() && !h.failing && h.slow == 1);
        let whole = self.pg_states().values().all(|s| s == "active+clean");
        o.size > 1 && hosts && whole && !self.net.any_blocked() && self.rot.is_none()
    }

    /// Spoils a block of an object's data at rest; false when no object can spare a copy now.
    pub fn spread_rot(&mut self, nth: u64) -> bool {
        if !self.has_copies_to_spare() {
            return false;
        }
        let Some(map) = self.monitor().map(|m| m.state().osdmap().clone()) else { return false };
        let o = &self.scenario.options;
        // What is read is mended by reads.
        let (first, count) = if o.cold > 0 { (o.objects - o.cold, o.cold) } else { (0, o.objects) };
        let osd = ((nth >> 32) % self.osds.len() as u64) as i32;
        let Some(mut store) = open_copy(&self.osds[osd as usize].device) else { return false };
        let is_coded = o.code.is_some();
        let mut looks = LOOKS;
        for i in 0..count {
            let number = first + (nth as usize).wrapping_add(i) % count;
            let Some(object) = crate::client::object(&map, number) else { return false };
            let Some(pgid) = map.raw_pg_to_pg(PgId::new(object.pool, object.hash)) else { return false };
            let Some(place) = map.pg_to_up_acting(pgid).acting.iter().position(|o| *o == osd) else {
                continue;
            };
            let shard = if is_coded { place as i8 } else { SpgId::NO_SHARD };
            let key = ObjectKey::new(shard, object.clone());
            let large = store.stat(&key).ok().flatten().is_some_and(|s| s.size as usize >= BLOCK);
            if !large || looks == 0 {
                continue;
            }
            looks -= 1;
            if let Some(offset) = self.block_at_rest(osd, &key, &mut store) {
                let how = spoil(&self.osds[osd as usize].device, offset, nth);
                self.say(|| format!("ROT at {offset} of osd.{osd}: {object} ({how})"));
                self.board.count("rotten blocks");
                if how == STALE {
                    self.board.count("blocks with older content");
                }
                self.rotted.insert((osd, object.clone()));
                self.rot = Some(Rot { osd, object, since: self.now, asked: 0 });
                self.plan_in(FIRST_SCRUB, Event::LookAtRot);
                return true;
            }
        }
        false
    }

    /// Where on the device the first whole block of the object's data is.
    fn block_at_rest(&self, osd: i32, key: &ObjectKey, store: &mut Store) -> Option<u64> {
        let device = &self.osds[osd as usize].device;
        let block = store.read(key, 0, BLOCK as u64).ok()?;
        let places = (0..store::Device::len(&**device)).step_by(BLOCK);
        let alike =
            places.filter(|at| device.peek(*at, 16) == block[..16] && device.peek(*at, BLOCK) == block);
        // Records of the log, and copies that nobody uses any more, look the same.
        alike.take(LOOKS).find(|at| {
            let trial = Arc::new(device.fork());
            trial.flip(*at, 1);
            open_copy(&trial).is_some_and(|mut s| s.read(key, 0, BLOCK as u64).is_err())
        })
    }

    /// Spoils some of the blocks of a dead OSD's disk that hold anything.
    pub fn rot_anywhere(&mut self, osd: i32, nth: u64) {
        if self.osds[osd as usize].core.is_some() {
            return;
        }
        let mut r = testkit::Rng::new(nth);
        let host = &mut self.osds[osd as usize];
        let blocks = (0..store::Device::len(&*host.device)).step_by(BLOCK);
        let used: Vec<u64> =
            blocks.filter(|at| host.device.peek(*at, BLOCK).iter().any(|b| *b != 0)).collect();
        // Few leave a disk that still opens; of many something is always read.
        for _ in 0..ROTTEN_BLOCKS << r.below(4) {
            if r.one_in(3) {
                spoil(&host.device, *r.pick(&used), r.next_u64());
                continue;
            }
            // Heads of structures more often than their middle.
            let inside = if r.one_in(2) { r.below(96) } else { r.below(BLOCK as u64) };
            let at = *r.pick(&used) + inside;
            host.device.flip(at, 1 << r.below(8));
        }
        host.refusable = true;
        self.board.count("rotten disks");
    }

    pub fn look_at_rot(&mut self) {
        let Some(rot) = self.rot.clone() else { return };
        let mended = open_copy(&self.osds[rot.osd as usize].device)
            .is_some_and(|mut store| is_readable_with_clones(&mut store, &rot.object));
        if mended {
            self.say(|| format!("mended: {}", rot.object));
            self.board.count("mended");
            self.rot = None;
            self.rot_ended = Some(self.now);
            return;
        }
        if self.now > rot.since + BOUND {
            let text = format!("O1: {} on osd.{} rotted and was not mended", rot.object, rot.osd);
            return self.violation(text);
        }
        if self.now >= rot.asked + ASK_AGAIN || rot.asked == 0 {
            self.scrub_all(true, self.repairs());
            if let Some(rot) = &mut self.rot {
                rot.asked = self.now;
            }
        }
        self.plan_in(500 * MILLISECOND, Event::LookAtRot);
    }

    /// After healing: a PG that a scrub called inconsistent stays so until the next one.
    pub fn scrub_again(&mut self) {
        if self.pg_states().values().any(|s| s.contains("inconsistent")) {
            self.scrub_all(true, self.repairs());
            self.plan_in(ASK_AGAIN, Event::ScrubAgain);
        }
    }

    /// Whether scrubs mend what they find.
    fn repairs(&self) -> bool {
        self.scenario.mutant != Some(Mutant::NoRepair)
    }

    /// Whether it is of an object that rotted in the last checkpoint, and was written anew since: the log has it.
    pub fn is_old_rot(&self, osd: i32, finding: &store::Finding) -> bool {
        let damaged = |o: &HObject| {
            let named = |key: &ObjectKey| key.object.head() == *o;
            matches!(finding, store::Finding::Data { key, .. } if named(key))
        };
        self.rotted.iter().filter(|(on, o)| *on == osd && damaged(o)).any(|(_, o)| {
            open_copy(&self.osds[osd as usize].device)
                .is_some_and(|mut store| is_readable_with_clones(&mut store, o))
        })
    }

    /// What the manager tells OSDs when somebody asks for scrubs.
    pub fn scrub_all(&mut self, deep: bool, repair: bool) {
        let Some(map) = self.monitor().map(|m| m.state().osdmap().clone()) else { return };
        let mut all = Vec::new();
        map.for_each_pg(|pg, m| all.push((pg, m.acting_primary)));
        for osd in 0..self.scenario.options.osds {
            let mine = all.iter().filter(|(_, primary)| *primary == osd);
            let shard = |pg: PgId| map.primary_shard(pg).map_or(SpgId::replicated(pg), |(_, id)| id);
            let pgs: Vec<SpgId> = mine.map(|(pg, _)| shard(*pg)).collect();
            let msg = MOsdScrub2 { fsid: FSID, epoch: map.epoch, pgs, repair, deep };
            self.osd_input(osd, Input::FromMgr(msg.into()));
        }
    }
}

/// What there was before the last write was nothing, or something older.
const LOST: &str = "a lost write";
const STALE: &str = "a lost write over older content";

/// Spoils a block: a bit flips, its last write never came, or one that was meant for elsewhere did. Says
/// which.
fn spoil(device: &SimDevice, offset: u64, nth: u64) -> &'static str {
    let mut r = testkit::Rng::new(nth);
    let here = device.peek(offset, BLOCK);
    let (content, how) = if r.one_in(2) {
        device.older(offset).map_or((vec![0; BLOCK], LOST), |older| (older.to_vec(), STALE))
    } else {
        let blocks = store::Device::len(device) / BLOCK as u64;
        (device.peek(r.below(blocks) * BLOCK as u64, BLOCK), "a misdirected write")
    };
    if content == here || r.one_in(3) {
        let bit = r.below(BLOCK as u64 * 8);
        device.flip(offset + bit / 8, 1 << (bit % 8));
        return "a flipped bit";
    }
    device.overlay(offset, &content.into());
    how
}

/// The store as it would be found after the process's end now.
fn open_copy(device: &SimDevice) -> Option<Store> {
    let options = Options { memory_bytes: 4 << 20, expect_fsid: Some(FSID), ..Options::default() };
    Store::open(Arc::new(device.fork()), options).ok()
}

/// A clone shares blocks with its head: a write of the head mends only that.
fn is_readable_with_clones(store: &mut Store, head: &HObject) -> bool {
    let Ok(all) = store.list_all(None, usize::MAX) else { return false };
    all.iter().filter(|key| key.object.head() == *head).all(|key| {
        let size = store.stat(key).ok().flatten().map_or(0, |s| s.size);
        store.read(key, 0, size).is_ok()
    })
}

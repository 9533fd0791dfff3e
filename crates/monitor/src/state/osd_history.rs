//! The OSD map with its recent past, in the encoded forms that clients are sent.
//!
//! While a PG is not clean its past goes back to when it was, be that a month. An OSD that comes back needs
//! each step since then: it learns from them which members may have taken writes without it. It never needs
//! more than one whole map, to begin with. So all steps are kept, a few hundred bytes each, while whole maps
//! have a share of the memory, and those that have no room in it are made from the steps. Ceph keeps all
//! steps as well, and fewer whole maps of what is long ago. Source: OSDMonitor::do_prune,
//! mon_osdmap_full_prune_interval.
//!
//! Steps that change no PG's members could be left out too, but for the form in which OSDs are told: a whole
//! map that does not follow theirs means that older ones are forgotten. An OSD then closes each PG's interval
//! and presumes writes in the one that is cut, so that its members would be waited for in vain. Health speaks
//! when steps come to very much ([`MAPS_WARN`]).
//!
//! So steps that the cluster itself needs, such as those by which OSDs go down and come back, have no bound
//! in bytes: what is gained by one fewer is not worth a write. What clients without rights over the map ask
//! for, which is snapshots, is refused at half as much again: no client makes monitors hold any amount of
//! memory.
//!
//! Invariants:
//! 1. `increments` holds every epoch from `oldest + 1` to the newest, without gaps.
//! 2. `fulls` holds `oldest`, the newest epoch, and of every [`FULL_EVERY`]th between them those that
//!    [`FULLS_BYTES`] have room for, evenly spread.

use std::collections::BTreeMap;

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer};
use maps::{Incremental, OsdMap};
use types::Epoch;

/// Epochs kept when nothing else asks for more. Source: mon_min_osdmap_epochs.
pub const EPOCHS_KEPT: u32 = 500;
/// Between these, whole maps are made from increments when somebody wants one.
const FULL_EVERY: u32 = 64;
/// Whole maps between the oldest and the newest take no more than this.
const FULLS_BYTES: usize = 16 << 20;

/// All that is kept, in bytes, is worth a warning at the latest: a monitor without a store takes a state of 2
/// GiB.
/// Source: mon_data_size_warn, of a disk there.
const MAPS_WARN: f64 = (1u64 << 30) as f64;

/// How many bytes the option says that a warning is worth.
pub(crate) fn maps_limit(mon_data_size_warn: f64) -> u64 {
    mon_data_size_warn.clamp(0.0, MAPS_WARN) as u64
}

/// The map of now and how it came about.
#[derive(Debug, Clone, PartialEq)]
pub struct OsdHistory {
    pub map: OsdMap,
    increments: BTreeMap<Epoch, Bytes>,
    /// Bytes of all increments.
    stepped: usize,
    fulls: BTreeMap<Epoch, Bytes>,
}

impl OsdHistory {
    /// A history that starts with this map.
    pub fn new(map: OsdMap) -> Self {
        let full = map.encode_with_crc().0;
        let fulls = [(map.epoch, full)].into();
        Self { map, increments: BTreeMap::new(), stepped: 0, fulls }
    }

    pub fn newest(&self) -> Epoch {
        self.map.epoch
    }

    /// The first epoch that can still be given whole.
    pub fn oldest(&self) -> Epoch {
        self.fulls.keys().next().copied().unwrap_or(self.map.epoch)
    }

    /// The step to `epoch`, encoded.
    pub fn increment(&self, epoch: Epoch) -> Option<&Bytes> {
        self.increments.get(&epoch)
    }

    /// The whole map of `epoch`, encoded.
    pub fn full(&self, epoch: Epoch) -> Option<Bytes> {
        if let Some(full) = self.fulls.get(&epoch) {
            return Some(full.clone());
        }
        self.map_at(epoch).map(|m| m.encode_with_crc().0)
    }

    /// The whole maps from `first` on, encoded, each made from the one before.
    pub fn fulls_from(&self, first: Epoch) -> impl Iterator<Item = (Epoch, Bytes)> + '_ {
        std::iter::successors(self.map_at(first), |map| self.after(map.clone())).map(|map| {
            let kept = self.fulls.get(&map.epoch).cloned();
            (map.epoch, kept.unwrap_or_else(|| map.encode_with_crc().0))
        })
    }

    /// The map after this one.
    fn after(&self, mut map: OsdMap) -> Option<OsdMap> {
        let inc = Incremental::from_bytes(self.increments.get(&map.epoch.next())?.clone()).ok()?;
        map.apply(&inc).ok()?;
        Some(map)
    }

    /// The whole map of `epoch`.
    pub fn map_at(&self, epoch: Epoch) -> Option<OsdMap> {
        if epoch == self.map.epoch {
            return Some(self.map.clone());
        }
        if epoch > self.map.epoch {
            return None;
        }
        let (_, full) = self.fulls.range(..=epoch).next_back()?;
        let mut map = OsdMap::from_bytes(full.clone()).ok()?;
        while map.epoch < epoch {
            map = self.after(map)?;
        }
        Some(map)
    }

    /// Moves one epoch on.
    pub(crate) fn advance(&mut self, encoded: &Bytes) -> Result<(), DecodeError> {
        self.advance_within(encoded, FULLS_BYTES)
    }

    fn advance_within(&mut self, encoded: &Bytes, fulls_bytes: usize) -> Result<(), DecodeError> {
        let inc = Incremental::from_bytes(encoded.clone())?;
        let value = u64::from(inc.epoch.0);
        let misfit = |_| DecodeError::Invalid { what: "osd map increment", value };
        let full = self.map.apply_checked(&inc).map_err(misfit)?;
        let before = inc.epoch.prev();
        if before.0 % FULL_EVERY != 0 && before != self.oldest() {
            self.fulls.remove(&before);
        }
        self.stepped += encoded.len();
        self.increments.insert(inc.epoch, encoded.clone());
        self.fulls.insert(inc.epoch, full);
        if before.0 % FULL_EVERY == 0 {
            while self.between().map(|(_, full)| full.len()).sum::<usize>() > fulls_bytes {
                self.spread_wider();
            }
        }
        Ok(())
    }

    /// The whole maps but for the oldest and the newest.
    fn between(&self) -> impl Iterator<Item = (Epoch, &Bytes)> {
        let (oldest, newest) = (self.oldest(), self.newest());
        self.fulls.iter().map(|(e, full)| (*e, full)).filter(move |(e, _)| *e != oldest && *e != newest)
    }

    /// Forgets the whole maps between others that stand twice as far from each other. All members of the
    /// quorum do the same: what they hold decides alone.
    fn spread_wider(&mut self) {
        let Some(step) = self.between().map(|(e, _)| e.0.trailing_zeros()).min() else { return };
        let (oldest, newest) = (self.oldest(), self.newest());
        self.fulls.retain(|e, _| *e == oldest || *e == newest || e.0.trailing_zeros() > step);
    }

    /// Bytes of all that is kept.
    pub fn kept_bytes(&self) -> usize {
        self.stepped + self.fulls.values().map(Bytes::len).sum::<usize>()
    }

    /// Whether clients add no further steps, where health speaks of `limit` bytes.
    pub(crate) fn refuses_clients(&self, limit: u64) -> bool {
        self.kept_bytes() as u64 >= limit.saturating_add(limit / 2)
    }

    /// Forgets what came before `oldest`, which stays.
    pub(crate) fn trim(&mut self, oldest: Epoch) {
        if oldest <= self.oldest() || oldest > self.newest() {
            return;
        }
        let Some(full) = self.full(oldest) else { return };
        self.fulls.insert(oldest, full);
        self.fulls.retain(|e, _| *e >= oldest);
        self.increments = self.increments.split_off(&oldest.next());
        self.stepped = bytes_of(&self.increments);
    }

    /// Panics when an invariant of the module's head is broken; for tests and the simulator.
    pub fn assert_invariants(&self) {
        let (oldest, newest) = (self.oldest().0, self.newest().0);
        assert!(self.increments.keys().map(|e| e.0).eq(oldest + 1..=newest), "invariant 1");
        assert_eq!(self.stepped, bytes_of(&self.increments), "bytes of all increments");
        assert!(self.fulls.contains_key(&self.newest()), "invariant 2");
        assert!(self.fulls.contains_key(&self.oldest()), "invariant 2");
        assert!(self.between().all(|(e, _)| e.0 % FULL_EVERY == 0), "invariant 2");
        assert!(self.between().map(|(_, full)| full.len()).sum::<usize>() <= FULLS_BYTES, "invariant 2");
    }
}

impl Encode for OsdHistory {
    fn encode(&self, w: &mut Writer) {
        self.fulls.encode(w);
        self.increments.encode(w);
    }
}
impl Decode for OsdHistory {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        let fulls: BTreeMap<Epoch, Bytes> = BTreeMap::decode(r)?;
        let increments = BTreeMap::decode(r)?;
        let newest = fulls.values().next_back().cloned().unwrap_or_default();
        let stepped = bytes_of(&increments);
        Ok(Self { map: OsdMap::from_bytes(newest)?, increments, stepped, fulls })
    }
}

fn bytes_of(maps: &BTreeMap<Epoch, Bytes>) -> usize {
    maps.values().map(Bytes::len).sum()
}

#[cfg(test)]
mod tests {
    use crush::CrushMap;
    use types::{Fsid, Utime};

    use super::*;

    /// A host is down for a month, so that a PG is unclean all the time, and the cluster goes on.
    const EPOCHS: u32 = 100_000;

    fn step(map: &OsdMap) -> Bytes {
        let now = Utime::new(1_000 + map.epoch.0, 0);
        let mut inc = Incremental::after(map, now);
        inc.new_flags = (map.epoch.0 % 2) as i32;
        inc.finish(map, now).expect("a step");
        inc.to_bytes()
    }

    #[test]
    fn a_month_of_maps_has_a_bound() {
        let mut history =
            OsdHistory::new(OsdMap::new_cluster(Fsid([1; 16]), Utime::new(1, 0), CrushMap::new_default()));
        let budget = 50 * history.map.encode_with_crc().0.len();
        let mut stepped = 0;
        for _ in 0..EPOCHS {
            let inc = step(&history.map);
            stepped += inc.len();
            history.advance_within(&inc, budget).expect("it fits");
        }
        history.assert_invariants();
        let wholes: usize = history.between().map(|(_, full)| full.len()).sum();
        assert!(wholes <= budget && wholes >= budget / 3, "{wholes} of {budget}");
        let far = history.between().zip(history.between().skip(1)).map(|((a, _), (b, _))| b.0 - a.0).max();
        assert!(far.is_some_and(|f| f <= EPOCHS / 12), "{far:?} apart");
        let bytes = history.to_bytes();
        assert!(bytes.len() < stepped + EPOCHS as usize * 8 + 2 * budget, "{} bytes", bytes.len());
        assert!((stepped..stepped + 2 * budget).contains(&history.kept_bytes()));
        let again = OsdHistory::from_bytes(bytes.clone()).map(|h| h.to_bytes());
        assert!(again == Ok(bytes), "what is stored comes back");
        let first = history.oldest();
        for at in [first.0, first.0 + 1, EPOCHS / 3, EPOCHS - 100, history.newest().0] {
            let maps: Vec<_> = history.fulls_from(Epoch(at)).take(70).collect();
            assert!(maps.iter().map(|(e, _)| e.0).eq(at..=(at + 69).min(history.newest().0)));
            for (e, raw) in maps.iter().take(2) {
                assert_eq!(OsdMap::from_bytes(raw.clone()).map(|m| m.epoch), Ok(*e));
                assert_eq!(history.full(*e).as_ref(), Some(raw));
            }
        }
    }
}

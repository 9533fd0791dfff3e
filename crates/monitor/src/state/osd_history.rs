//! The OSD map with its recent past, in the encoded forms that clients are sent.
//!
//! Invariants:
//! 1. `increments` holds every epoch from `oldest + 1` to the newest, without gaps.
//! 2. `fulls` holds `oldest`, the newest epoch, and every [`FULL_EVERY`]th between them.

use std::collections::BTreeMap;

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer};
use maps::{Incremental, OsdMap};
use types::Epoch;

/// Epochs kept when nothing else asks for more. Source: mon_min_osdmap_epochs.
pub const EPOCHS_KEPT: u32 = 500;
/// Between these, whole maps are made from increments when somebody wants one.
const FULL_EVERY: u32 = 64;

/// The map of now and how it came about.
#[derive(Debug, Clone, PartialEq)]
pub struct OsdHistory {
    pub map: OsdMap,
    increments: BTreeMap<Epoch, Bytes>,
    fulls: BTreeMap<Epoch, Bytes>,
}

impl OsdHistory {
    /// A history that starts with this map.
    pub fn new(map: OsdMap) -> Self {
        let full = map.encode_with_crc().0;
        let fulls = [(map.epoch, full)].into();
        Self { map, increments: BTreeMap::new(), fulls }
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

    /// The whole map of `epoch`.
    pub fn map_at(&self, epoch: Epoch) -> Option<OsdMap> {
        if epoch == self.map.epoch {
            return Some(self.map.clone());
        }
        if epoch > self.map.epoch {
            return None;
        }
        let (base, full) = self.fulls.range(..=epoch).next_back()?;
        let mut map = OsdMap::from_bytes(full.clone()).ok()?;
        let mut at = *base;
        while at < epoch {
            at = at.next();
            let inc = Incremental::from_bytes(self.increments.get(&at)?.clone()).ok()?;
            map.apply(&inc).ok()?;
        }
        Some(map)
    }

    /// Moves one epoch on.
    pub(crate) fn advance(&mut self, encoded: &Bytes) -> Result<(), DecodeError> {
        let inc = Incremental::from_bytes(encoded.clone())?;
        let value = u64::from(inc.epoch.0);
        let misfit = |_| DecodeError::Invalid { what: "osd map increment", value };
        let full = self.map.apply_checked(&inc).map_err(misfit)?;
        let before = inc.epoch.prev();
        if before.0 % FULL_EVERY != 0 && before != self.oldest() {
            self.fulls.remove(&before);
        }
        self.increments.insert(inc.epoch, encoded.clone());
        self.fulls.insert(inc.epoch, full);
        Ok(())
    }

    /// Forgets what came before `oldest`, which stays.
    pub(crate) fn trim(&mut self, oldest: Epoch) {
        if oldest <= self.oldest() || oldest > self.newest() {
            return;
        }
        let Some(full) = self.full(oldest) else { return };
        self.fulls.insert(oldest, full);
        self.fulls.retain(|e, _| *e >= oldest);
        self.increments.retain(|e, _| *e > oldest);
    }

    /// Panics when an invariant of the module's head is broken; for tests and the simulator.
    pub fn assert_invariants(&self) {
        let (oldest, newest) = (self.oldest().0, self.newest().0);
        assert!(self.increments.keys().map(|e| e.0).eq(oldest + 1..=newest), "invariant 1");
        assert!(self.fulls.contains_key(&self.newest()), "invariant 2");
        let wanted = (oldest..newest).filter(|e| e % FULL_EVERY == 0);
        assert!(wanted.into_iter().all(|e| self.fulls.contains_key(&Epoch(e))), "invariant 2");
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
        Ok(Self { map: OsdMap::from_bytes(newest)?, increments, fulls })
    }
}

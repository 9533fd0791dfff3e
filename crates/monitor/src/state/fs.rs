//! The file systems and their metadata servers, and what is known of each server beside the map.
//!
//! Invariants:
//! 1. Of daemons that are not in the map nothing is kept.
//! 2. Daemons of Ceph's and of ours never hold ranks at the same time (`FsState::kind_up`).

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer, wire_struct};
use maps::{FsMap, MdsGid, MdsInfo};
use messages::mds::MdsHealth;
use types::{EntityAddr, Epoch, Utime};

use super::mgr::is_of_ceph;

/// What a daemon says of itself when it boots.
type Metadata = BTreeMap<String, String>;

/// What the map of file systems is made from.
#[derive(Debug, Clone, PartialEq)]
pub struct FsState {
    pub map: FsMap,
    /// By daemon.
    pub metadata: BTreeMap<MdsGid, Metadata>,
    /// What each daemon finds wrong; none of those that find nothing.
    pub health: BTreeMap<MdsGid, MdsHealth>,
    /// Tickets for metadata servers have Ceph's form, because a holder of a rank opens no other.
    pub ceph_tickets: bool,
    /// Addresses of failed daemons that were blocked already when the daemon failed, for a shorter time: their
    /// entries stay until these times, whatever the entries say.
    pub fences: BTreeMap<EntityAddr, Utime>,
}
wire_struct!(FsState(1, 1) { map, metadata, health, ceph_tickets, fences });

impl Default for FsState {
    fn default() -> Self {
        Self {
            map: FsMap::initial(),
            metadata: BTreeMap::new(),
            health: BTreeMap::new(),
            ceph_tickets: false,
            fences: BTreeMap::new(),
        }
    }
}

impl FsState {
    /// Whether a daemon is Ceph's: whatever does not say that it is ours.
    pub fn is_of_ceph(&self, gid: MdsGid) -> bool {
        self.metadata.get(&gid).is_none_or(is_of_ceph)
    }

    /// Every daemon that holds a rank, or follows the journal of one.
    pub fn ranked(&self) -> impl Iterator<Item = &MdsInfo> {
        self.map.filesystems.values().flat_map(|fs| fs.map.info.values())
    }

    /// Whether the daemons with ranks, but for `without`, are Ceph's; `None` when there are none.
    pub fn kind_up(&self, without: Option<MdsGid>) -> Option<bool> {
        let gid = self.ranked().map(|i| i.gid).find(|gid| Some(*gid) != without)?;
        Some(self.is_of_ceph(gid))
    }

    /// Whether a daemon may get a rank, or follow one, beside those that have ranks, but for `without`.
    pub fn is_of_kind_up(&self, gid: MdsGid, without: Option<MdsGid>) -> bool {
        self.kind_up(without).is_none_or(|kind| kind == self.is_of_ceph(gid))
    }

    /// Standbys that wait until no rank is held by a daemon of the other kind.
    pub fn waiting_for_kind(&self) -> Vec<&MdsInfo> {
        let standbys = self.map.standbys.values().map(|(info, _)| info);
        standbys.filter(|info| !self.is_of_kind_up(info.gid, None)).collect()
    }

    /// Forgets what belongs to daemons that are gone.
    pub(crate) fn forget_the_gone(&mut self) {
        let Self { map, metadata, health, .. } = self;
        metadata.retain(|gid, _| map.daemon(*gid).is_some());
        health.retain(|gid, h| !h.metrics.is_empty() && map.daemon(*gid).is_some());
    }
}

/// Earlier maps of file systems, for those who ask for one by its epoch.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct FsHistory {
    maps: VecDeque<(Epoch, Bytes)>,
}

/// Earlier maps that are kept, and bytes of them: they are part of every snapshot. Source of the idea:
/// mon_max_mdsmap_epochs, which is 500.
const MAPS_KEPT: usize = 500;
const MAP_BYTES_KEPT: usize = 2 << 20;

impl FsHistory {
    /// Adds a map, if it is a new one, and forgets old ones.
    pub(crate) fn note(&mut self, map: &FsMap) {
        if self.maps.back().is_some_and(|(epoch, _)| *epoch >= map.epoch) {
            return;
        }
        self.maps.push_back((map.epoch, map.to_bytes()));
        let bytes = |maps: &VecDeque<(Epoch, Bytes)>| maps.iter().map(|(_, raw)| raw.len()).sum::<usize>();
        while self.maps.len() > 1 && (self.maps.len() > MAPS_KEPT || bytes(&self.maps) > MAP_BYTES_KEPT) {
            self.maps.pop_front();
        }
    }

    pub fn oldest(&self) -> Option<Epoch> {
        self.maps.front().map(|(epoch, _)| *epoch)
    }

    pub fn map_at(&self, epoch: Epoch) -> Option<FsMap> {
        let (_, raw) = self.maps.iter().find(|(e, _)| *e == epoch)?;
        FsMap::from_bytes(raw.clone()).ok()
    }
}

impl Encode for FsHistory {
    fn encode(&self, w: &mut Writer) {
        self.maps.encode(w);
    }
}
impl Decode for FsHistory {
    const MIN_SIZE: usize = 4;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        Ok(Self { maps: Decode::decode(r)? })
    }
}

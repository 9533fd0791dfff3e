//! The table of all snapshots: a change is prepared, done with the event that needs it, and committed, each
//! in the journal; what is destroyed is told to the monitors until they have queued it.
//!
//! ```text
//! TableServer PREPARE ──> Update (names the change) ──> TableServer COMMIT ──> TableClient ACK
//! ```
//!
//! All four come at once here, for one rank has the table and uses it. A server that finds the first alone in
//! its journal takes it back, and one that finds the first two goes on.
//!
//! Source: src/mds/SnapServer.cc, MDSTableServer.cc, MDSTableClient.cc.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use codec::{Decode, Encode};
use messages::fs::FileName;
use types::{Ino, SnapId, Utime};

use super::io::Effect;
use super::server::{Dirty, Server};
use crate::format::{LogEvent, SnapInfo, SnapMutation, SnapTable, TableClient, TablePending, TableServer};

/// The table's number in the journal. Source: TABLE_SNAP.
pub(crate) const TABLE_SNAP: u8 = 1;
/// How long the monitors have before they are asked again.
const ASK_AGAIN: Duration = Duration::from_secs(5);

impl SnapTable {
    /// Without snapshots; `last`: the newest number that is used.
    pub(crate) fn empty(last: SnapId) -> Self {
        Self {
            version: 0,
            last_snap: last,
            snaps: BTreeMap::new(),
            need_to_purge: BTreeMap::new(),
            pending_update: BTreeMap::new(),
            pending_destroy: BTreeMap::new(),
            pending_noop: Default::default(),
            last_created: last,
            last_destroyed: last,
            realms_v2_since: SnapId(last.0 + 1),
            pending_for_ranks: BTreeMap::new(),
        }
    }

    /// The number that the change has: of a new snapshot, or of a removal. Source: SnapServer::_prepare.
    fn prepare(&mut self, rank: i32, req: u64, mutation: &SnapMutation) -> SnapId {
        self.version += 1;
        let tid = self.version;
        self.pending_for_ranks.insert(tid, TablePending { req, rank, tid });
        match mutation {
            SnapMutation::Create { ino, snapshot: Some((name, stamp)) } => {
                self.last_snap.0 += 1;
                let info = SnapInfo {
                    snap: self.last_snap,
                    ino: *ino,
                    stamp: *stamp,
                    name: name.clone(),
                    ..Default::default()
                };
                self.pending_update.insert(tid, info);
            }
            SnapMutation::Create { snapshot: None, .. } => drop(self.pending_noop.insert(tid)),
            SnapMutation::Update { ino, snap, name, stamp } => {
                let info = SnapInfo {
                    snap: *snap,
                    ino: *ino,
                    stamp: *stamp,
                    name: name.clone(),
                    ..Default::default()
                };
                self.pending_update.insert(tid, info);
            }
            SnapMutation::Destroy { snap, .. } => {
                self.last_snap.0 += 1;
                self.pending_destroy.insert(tid, (*snap, self.last_snap));
            }
        }
        self.last_snap
    }

    /// Source: SnapServer::_commit.
    fn commit(&mut self, tid: u64, pools: &[i64]) {
        self.version += 1;
        self.pending_for_ranks.remove(&tid);
        if let Some(mut info) = self.pending_update.remove(&tid) {
            match self.snaps.get(&info.snap) {
                Some(old) if info.stamp.is_zero() => info.stamp = old.stamp,
                Some(_) => {}
                None => self.last_created = self.last_created.max(info.snap),
            }
            self.snaps.insert(info.snap, info);
        } else if let Some((snap, seq)) = self.pending_destroy.remove(&tid) {
            self.snaps.remove(&snap);
            self.last_destroyed = self.last_destroyed.max(seq);
            for pool in pools.iter().filter_map(|p| i32::try_from(*p).ok()) {
                self.need_to_purge.entry(pool).or_default().extend([snap, seq]);
            }
        } else {
            self.pending_noop.remove(&tid);
        }
    }

    fn roll_back(&mut self, tid: u64) {
        self.version += 1;
        self.pending_for_ranks.remove(&tid);
        self.pending_update.remove(&tid);
        self.pending_destroy.remove(&tid);
        self.pending_noop.remove(&tid);
    }

    /// OSDs remove these, or have.
    fn purged(&mut self, done: &BTreeMap<i32, Vec<SnapId>>) {
        self.version += 1;
        for (pool, snaps) in done {
            if let Some(left) = self.need_to_purge.get_mut(pool) {
                left.retain(|snap| !snaps.contains(snap));
                if left.is_empty() {
                    self.need_to_purge.remove(pool);
                }
            }
        }
    }
}

impl Server {
    fn table_event(&mut self, op: i16, req: u64, rank: i32, mutation: Bytes, tid: u64) {
        let seq = self.next_seq();
        let (stamp, version) = (self.now.wall, self.snaps.version);
        let table = u16::from(TABLE_SNAP);
        let event = TableServer { stamp, table, op, req, rank, mutation, tid, version };
        self.mark_dirty(Dirty::SnapTable, seq);
        self.snaps_changed = seq;
        self.append(LogEvent::TableServer(event));
    }

    /// Journals that a change of the table is prepared: its number there, and the one of the snapshot.
    pub(crate) fn prepare_snaps(&mut self, mutation: &SnapMutation) -> (u64, SnapId) {
        self.last_table_req += 1;
        let (req, rank) = (self.last_table_req, self.rank);
        let snap = self.snaps.prepare(rank, req, mutation);
        let tid = self.snaps.version;
        self.table_event(TableServer::PREPARE, req, rank, mutation.to_bytes(), tid);
        (tid, snap)
    }

    /// Journals that the change is done, behind the event that names it.
    pub(crate) fn commit_snaps(&mut self, tid: u64) {
        let pools = self.map.data_pools.clone();
        self.snaps.commit(tid, &pools);
        self.table_event(TableServer::COMMIT, 0, maps::NO_RANK, Bytes::new(), tid);
        self.ack_snaps(tid);
    }

    fn ack_snaps(&mut self, tid: u64) {
        self.next_seq();
        let (stamp, table) = (self.now.wall, u16::from(TABLE_SNAP));
        self.append(LogEvent::TableClient(TableClient { stamp, table, op: TableClient::ACK, tid }));
    }

    pub(crate) fn create_snap(&mut self, ino: Ino, name: &FileName, stamp: Utime) -> (u64, SnapId) {
        self.prepare_snaps(&SnapMutation::Create { ino, snapshot: Some((name.clone(), stamp)) })
    }

    /// What the last server began is ended. Source: MDSTableServer::finish_recovery,
    /// MDSTableClient::handle_mds_recovery.
    pub(crate) fn end_table_changes(&mut self) {
        let pending: Vec<u64> = self.snaps.pending_for_ranks.keys().copied().collect();
        for tid in pending {
            if self.agreed_snaps.contains(&tid) {
                let pools = self.map.data_pools.clone();
                self.snaps.commit(tid, &pools);
                self.table_event(TableServer::COMMIT, 0, maps::NO_RANK, Bytes::new(), tid);
            } else {
                self.snaps.roll_back(tid);
                self.table_event(TableServer::ROLLBACK, 0, maps::NO_RANK, Bytes::new(), tid);
            }
        }
        for tid in std::mem::take(&mut self.agreed_snaps) {
            self.ack_snaps(tid);
        }
    }

    pub(crate) fn replay_table_server(&mut self, e: &TableServer) {
        if e.table != u16::from(TABLE_SNAP) || e.version <= self.snaps.version {
            return;
        }
        if e.version != self.snaps.version + 1 {
            return self
                .damaged(format!("the journal skips version {} of the snapshots", self.snaps.version + 1));
        }
        match e.op {
            TableServer::PREPARE => match SnapMutation::from_bytes(e.mutation.clone()) {
                Ok(mutation) => drop(self.snaps.prepare(e.rank, e.req, &mutation)),
                Err(error) => return self.damaged(format!("a change of snapshots: {error}")),
            },
            TableServer::COMMIT => {
                let pools = self.map.data_pools.clone();
                self.snaps.commit(e.tid, &pools);
            }
            TableServer::ROLLBACK => self.snaps.roll_back(e.tid),
            TableServer::SERVER_UPDATE => match Decode::from_bytes(e.mutation.clone()) {
                Ok(done) => self.snaps.purged(&done),
                Err(error) => return self.damaged(format!("snapshots that are removed: {error}")),
            },
            op => return self.damaged(format!("an unknown change of snapshots: {op}")),
        }
        self.mark_dirty(Dirty::SnapTable, self.last_seq);
    }

    pub(crate) fn replay_table_client(&mut self, e: &TableClient) {
        if e.table == u16::from(TABLE_SNAP) && e.op == TableClient::ACK {
            self.agreed_snaps.remove(&e.tid);
        }
    }

    // Removal in data pools.

    /// Tells the monitors which snapshots are gone. Source: SnapServer::check_osd_map.
    pub(crate) fn ask_to_remove_snaps(&mut self) {
        let is_safe = self.snaps_changed <= self.safe_seq;
        if self.snaps.need_to_purge.is_empty() || !is_safe || self.now.mono < self.next_snap_removal {
            return;
        }
        self.next_snap_removal = self.now.mono + ASK_AGAIN;
        let all = self.snaps.need_to_purge.iter();
        let asked = all.map(|(pool, snaps)| (*pool, snaps.iter().copied().collect())).collect();
        self.out.push(Effect::RemoveSnaps(asked));
    }

    /// Source: SnapServer::handle_remove_snaps.
    pub(crate) fn on_snaps_removed(&mut self, done: BTreeMap<i32, Vec<SnapId>>) {
        if !self.is_serving() {
            return;
        }
        let mut known: BTreeMap<i32, Vec<SnapId>> = BTreeMap::new();
        for (pool, snaps) in done {
            let Some(left) = self.snaps.need_to_purge.get(&pool) else { continue };
            let snaps: Vec<SnapId> = snaps.into_iter().filter(|snap| left.contains(snap)).collect();
            if !snaps.is_empty() {
                known.insert(pool, snaps);
            }
        }
        if known.is_empty() {
            return;
        }
        self.snaps.purged(&known);
        self.table_event(TableServer::SERVER_UPDATE, 0, maps::NO_RANK, known.to_bytes(), 0);
    }
}

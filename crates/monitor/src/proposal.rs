//! Requests that change the replicated state: collected, worked through in one go against a working copy, proposed as one
//! entry of the log, answered when the entry is committed.
//!
//! Invariants:
//! 1. At most one proposal is under way; requests that come meanwhile wait for the next.
//! 2. Each request of a batch sees what those before it did.
//! 3. No reply leaves before the entry that it reports is committed.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer};
use maps::{ApplyError, Incremental, OsdMap, Pool};
use messages::Message;
use types::{ConnId, EntityAddr, Epoch, Now, PoolId};

use crate::monitor::Reporting;
use crate::shares::Charge;
use crate::state::{Change, CreatingPool, FsState, LogEntry, State, diff};

/// A request that waits for its turn.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Waiting {
    pub(crate) conn: ConnId,
    pub(crate) tid: u64,
    pub(crate) msg: Message,
    /// Its part of its sender's share; `None` before it waits.
    pub(crate) charge: Option<Charge>,
}

/// An answer that waits for the commit.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Answer {
    pub(crate) conn: ConnId,
    pub(crate) tid: u64,
    pub(crate) what: Reporting,
}

/// The working copy that a batch of requests edits.
#[derive(Debug, Clone)]
pub struct Batch {
    base: State,
    next: State,
    changes: Vec<Change>,
    osdmap_touched: bool,
    log: Vec<LogEntry>,
    pub(crate) answers: Vec<Answer>,
}

impl Batch {
    pub(crate) fn new(state: &State) -> Self {
        Self {
            base: state.clone(),
            next: state.clone(),
            changes: Vec::new(),
            osdmap_touched: false,
            log: Vec::new(),
            answers: Vec::new(),
        }
    }

    /// The state as the requests so far leave it. The OSD map keeps its old epoch until the batch ends.
    pub fn state(&self) -> &State {
        &self.next
    }

    pub fn osdmap(&self) -> &OsdMap {
        &self.next.osds.map
    }

    /// The OSD map to edit. The batch's end turns what changed into an increment.
    pub fn osdmap_mut(&mut self) -> &mut OsdMap {
        let map = &mut Arc::make_mut(&mut self.next.osds).map;
        if !self.osdmap_touched {
            self.osdmap_touched = true;
            map.new_removed_snaps.clear();
            map.new_purged_snaps.clear();
        }
        map
    }

    /// The epoch that the OSD map will have when this batch is committed.
    pub fn osdmap_epoch(&self) -> Epoch {
        if self.osdmap_touched { self.base.osds.newest().next() } else { self.base.osds.newest() }
    }

    /// The epoch that edits of the OSD map will get.
    pub fn next_osdmap_epoch(&self) -> Epoch {
        self.base.osds.newest().next()
    }

    /// The file systems to edit, in the epoch that edits of this batch make. `fs::propose` takes them back.
    pub(crate) fn edit_fs(&self) -> FsState {
        let mut fs = FsState::clone(&self.next.fs);
        fs.map.epoch = self.base.fs.map.epoch.next();
        fs
    }

    /// The file systems as they were before this batch.
    pub(crate) fn fs_before(&self) -> &FsState {
        &self.base.fs
    }

    /// The OSD map in which these addresses are blocked, when the batch leaves them so: that of now if it has
    /// them already, else the one that the batch makes.
    pub(crate) fn blocked_since(&self, addrs: &[EntityAddr]) -> Epoch {
        let known = addrs.iter().all(|a| self.base.osds.map.blocklist.contains_key(a));
        if known { self.base.osds.newest() } else { self.next_osdmap_epoch() }
    }

    /// Makes and records a change of anything but the OSD map. One that replaces a part of the state whole
    /// takes the place of the batch's earlier ones of the same part: a thousand beacons in a batch hold the
    /// managers once.
    pub fn change(&mut self, change: Change) {
        let applied = self.next.apply(&change);
        assert!(applied.is_ok(), "a change made here applies here: {applied:?}");
        if matches!(change, Change::Mgr(_) | Change::Digest(_) | Change::ServiceMap(_) | Change::Fs(_)) {
            let part = std::mem::discriminant(&change);
            self.changes.retain(|earlier| std::mem::discriminant(earlier) != part);
        }
        self.changes.push(change);
    }

    /// Answers a request once the batch is committed.
    pub(crate) fn answer(&mut self, conn: ConnId, tid: u64, msg: impl Into<Message>) {
        self.answers.push(Answer { conn, tid, what: Reporting::Message(msg.into()) });
    }

    /// Sends OSD maps from `from` on once the batch is committed.
    pub(crate) fn answer_with_maps(&mut self, conn: ConnId, from: Epoch) {
        self.answers.push(Answer { conn, tid: 0, what: Reporting::OsdMaps { from } });
    }

    pub(crate) fn log(&mut self, entry: LogEntry) {
        self.log.push(entry);
    }

    /// Whether the log has a channel of this name, or room for another one. The usual two always have.
    pub(crate) fn has_log_channel(&self, name: &str, most: usize) -> bool {
        let known = &self.base.log.channels;
        if known.contains_key(name) || matches!(name, "cluster" | "audit") {
            return true;
        }
        let new = self.log.iter().map(|e| e.channel.as_str()).filter(|n| !known.contains_key(*n));
        let new: BTreeSet<&str> = new.collect();
        new.contains(name) || known.len() + new.len() + 2 < most
    }

    /// Whether nothing was changed at all.
    pub(crate) fn is_empty(&self) -> bool {
        self.changes.is_empty() && !self.osdmap_touched && self.log.is_empty()
    }

    /// The changes to propose, and the answers that wait for them.
    ///
    /// `log_seq` counts the log entries of this process.
    pub(crate) fn finish(
        mut self,
        now: Now,
        log_seq: &mut u64,
    ) -> Result<(Vec<Change>, Vec<Answer>), ApplyError> {
        if self.osdmap_touched {
            let map = &mut Arc::make_mut(&mut self.next.osds).map;
            crate::edit::settle(&self.base.osds.map, map, now.wall);
            let mut changes = osdmap_changes(&self.base, &self.next, now)?;
            self.changes.append(&mut changes);
        }
        // Entries that clients sent carry their own numbers.
        for entry in self.log.iter_mut().filter(|e| e.seq == 0) {
            *log_seq += 1;
            entry.seq = *log_seq;
        }
        if !self.log.is_empty() {
            self.changes.push(Change::Log(self.log));
        }
        Ok((self.changes, self.answers))
    }
}

/// The increment and what follows from it: PGs to create and to forget, facts of OSDs that are gone.
fn osdmap_changes(base: &State, next: &State, now: Now) -> Result<Vec<Change>, ApplyError> {
    let (old, new) = (&base.osds.map, &next.osds.map);
    let mut inc = diff(old, new, now.wall);
    if inc == Incremental::new(old.fsid, inc.epoch, now.wall) {
        return Ok(Vec::new());
    }
    let mut result = old.clone();
    result.apply(&inc)?;
    let astray = astray(&result, new);
    if !astray.is_empty() {
        return Err(ApplyError::Astray(format!("{astray:?}")));
    }
    inc.full_crc = result.encode_with_crc().1;
    let bytes = inc.to_bytes();
    // What does not decode would stop every monitor for good once it is committed.
    Incremental::from_bytes(bytes.clone())?;
    let mut changes = vec![Change::OsdMap(bytes)];
    for (id, pool) in result.pools.iter().filter(|(id, _)| !old.pools.contains_key(id)) {
        let seeds: BTreeSet<u32> = (0..pool.pg_num).collect();
        let creating = CreatingPool { epoch: result.epoch, stamp: now.wall, seeds };
        changes.push(Change::Creating(*id, Some(creating)));
    }
    changes.extend(pg_counts_grown(old, &result, now, next));
    let gone = next.creating.keys().filter(|id| !result.pools.contains_key(id));
    changes.extend(gone.map(|id| Change::Creating(*id, None)));
    let removed = (0..old.max_osd()).filter(|id| old.exists(*id) && !result.exists(*id));
    let known = removed.filter(|id| next.osd_metadata.contains_key(id));
    changes.extend(known.map(|id| Change::OsdMetadata(id, None)));
    Ok(changes)
}

/// A pool that grows while its first PGs are still being made needs the new ones as well. Later growth splits PGs,
/// which is the OSDs' own business.
fn pg_counts_grown(old: &OsdMap, new: &OsdMap, now: Now, state: &State) -> Vec<Change> {
    let grown = |id: &PoolId| {
        let (before, after) = (old.pools.get(id)?.pg_num, new.pools.get(id)?.pg_num);
        let creating = state.creating.get(id)?;
        (after > before).then(|| {
            let seeds = creating.seeds.iter().copied().chain(before..after).collect();
            Change::Creating(*id, Some(CreatingPool { epoch: creating.epoch, stamp: now.wall, seeds }))
        })
    };
    state.creating.keys().filter_map(grown).collect()
}

/// Where an applied increment did not give what was edited, other than what increments imply.
fn astray(applied: &OsdMap, edited: &OsdMap) -> Vec<&'static str> {
    let states = |m: &OsdMap| m.osds.iter().map(|o| (o.state, o.uuid)).collect::<Vec<_>>();
    let checks = [
        ("pools", same_pools(applied, edited)),
        ("pool names", applied.pool_names == edited.pool_names),
        ("states", states(applied) == states(edited)),
        ("weights", applied.weights == edited.weights),
        ("flags", applied.flags == edited.flags),
        ("pg_temp", applied.pg_temp == edited.pg_temp),
        ("blocklist", applied.blocklist == edited.blocklist),
        ("crush", applied.crush.to_bytes() == edited.crush.to_bytes()),
    ];
    checks.into_iter().filter(|(_, same)| !same).map(|(what, _)| what).collect()
}

/// Applying stamps every changed pool with the increment's epoch; edits need not.
fn same_pools(applied: &OsdMap, edited: &OsdMap) -> bool {
    let same = |(id, a): (&PoolId, &Pool)| {
        edited.pools.get(id).is_some_and(|e| Pool { last_change: a.last_change, ..e.clone() } == *a)
    };
    applied.pools.len() == edited.pools.len() && applied.pools.iter().all(same)
}

/// One entry of the replicated log.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Proposal {
    /// Which monitor made it, and its count there: tells the leader that its own has arrived.
    pub(crate) origin: String,
    pub(crate) number: u64,
    pub(crate) changes: Vec<Change>,
}

impl Encode for Proposal {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            self.origin.encode(w);
            w.u64(self.number);
            self.changes.encode(w);
        });
    }
}
impl Decode for Proposal {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("proposal", 1, |r, _| {
            Ok(Self { origin: Decode::decode(r)?, number: r.u64()?, changes: Decode::decode(r)? })
        })
    }
}

/// A proposal that is under way.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct InFlight {
    pub(crate) number: u64,
    pub(crate) answers: Vec<Answer>,
}

/// What a member starts from: the state, and the index of the last entry in it.
pub(crate) fn encode_snapshot(index: u64, state: &State) -> Bytes {
    let mut w = Writer::new();
    w.envelope(1, 1, |w| {
        w.u64(index);
        state.encode(w);
    });
    w.into_bytes()
}

pub(crate) fn decode_snapshot(snapshot: &Bytes) -> Result<(u64, State), DecodeError> {
    let mut r = Reader::new(snapshot.clone());
    r.envelope("monitor snapshot", 1, |r, _| Ok((r.u64()?, State::decode(r)?)))
}

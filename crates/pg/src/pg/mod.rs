//! One placement group's copy on this OSD: what it holds, its place in the current interval, and its work in progress.
//!
//! ```text
//!            start_interval                                 handle_activate
//!   (load) ──────────────► Stray ─────────────────────────────────────────► Replica
//!      │  we are primary
//!      └─► GetInfo ──► GetLog ──► GetMissing ──► WaitUpThru ──► WaitReadable ──► Activating ──► Active
//!            │  ▲        │ choose_acting          check_up_thru  check_prior            activated
//!            ▼  │        ├─► Incomplete
//!           Down         └─► WaitActing (the monitors are asked for another acting set)
//! ```
//! Every arrow but those of one interval leads back through `start_interval` when a map changes the members.
//!
//! Invariants:
//! 1. `log.head == info.last_update`, `log.tail == info.log_tail`.
//! 2. `info.last_complete == info.last_update` exactly when nothing is missing; else it is below the first need.
//! 3. Only a primary in `Active` runs client operations, and only while the acting set has at least `min_size` members.
//! 4. Writes in flight are in version order, the newest is `info.last_update`; outside `Active` there are none.
//! 5. An object that is missing here or on a member has no write in flight.
//! 6. Past intervals end before the current one begins.

mod activate;
mod aside;
mod backend;
mod backfill;
mod backoff;
mod batch;
mod choose;
mod chunk_reads;
mod client;
pub(crate) mod copy;
mod forced;
mod gather;
mod interval_change;
pub(crate) mod join;
mod lost;
mod newest;
mod peering;
pub(crate) mod persist;
pub(crate) mod pieces;
mod prior;
mod query;
mod reading;
mod rebuild;
mod recovery;
mod refused;
pub(crate) mod remove;
mod repair;
mod replicate;
mod reserve;
pub(crate) mod room;
mod scrub;
mod shard_bases;
pub(crate) mod split;
mod staging;
pub mod state;
mod stats;
mod trim;
mod witness;
mod writes;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use store::{ObjectKey, Txn};
use types::{Epoch, Eversion, HObject, OsdId, PgShard, SpgId};

use crate::info::PgInfo;
use crate::interval::{self, IntervalKey, PastIntervals};
use crate::log::PgLog;
use crate::missing::Missing;
use crate::osd::lease::Moment;
use crate::osd::shared::Shared;
use crate::peer::PgMessage;
use crate::watch::Watches;

use aside::Aside;
use backend::Backend;
use backfill::Backfill;
use backoff::Backoff;
use batch::Batch;
use chunk_reads::ChunkReads;
pub(crate) use client::ClientOp;
use copy::Copying;
pub(crate) use forced::Forced;
use lost::Reverting;
use pieces::Incoming;
use prior::Prior;
pub(crate) use prior::{Owed, owed_to};
use reading::Reading;
pub(crate) use recovery::Recovering;
use reserve::Places;
pub(crate) use reserve::Reservation;
#[cfg(test)]
pub(crate) use scrub::DeepAsk;
use scrub::Scrub;
pub(crate) use scrub::{ScrubAsk, ScrubPart};
pub(crate) use staging::{Staged, Staging};
use state::pg_state;
use trim::Trim;
use writes::Writes;

/// Where a copy stands in its interval; see the module's diagram.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Phase {
    /// Not the primary, and not activated by it (yet).
    Stray,
    /// Activated by the primary.
    Replica,
    /// Primary: these have not stated their info yet.
    GetInfo { waiting: BTreeSet<PgShard> },
    /// Primary: an interval may have taken writes, and none of its members is up.
    Down,
    /// Primary: waiting for the authoritative log.
    GetLog { from: PgShard },
    /// Primary: no reachable copy is complete.
    Incomplete,
    /// Primary: these have not sent their logs yet.
    GetMissing { waiting: BTreeSet<PgShard> },
    /// Primary: the monitors must record that we are alive before a write may be taken.
    WaitUpThru,
    /// Primary: earlier primaries may not know yet that they are replaced.
    WaitReadable,
    /// Primary: the monitors were asked for this acting set.
    WaitActing { want: Vec<OsdId> },
    /// Primary: these (with ourselves) have not made the activation durable yet.
    Activating { waiting: BTreeSet<PgShard> },
    /// Primary: started; serves when the acting set is large enough.
    Active,
}

/// What the primary knows of another copy.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Peer {
    pub info: PgInfo,
    /// Known once its log was seen, or when its info says it all.
    pub missing: Option<Missing>,
    /// Its log is the same as ours up to here.
    pub common: Eversion,
    /// Its writes are durable up to here.
    pub acked: Eversion,
    /// Bytes that its store has room for; `room::PLENTY` unless it says that they are few.
    pub room: u64,
    /// Which life of the OSD said so.
    pub up_from: Epoch,
}

impl Peer {
    /// Known to lack nothing.
    pub fn is_whole(&self) -> bool {
        !self.info.is_incomplete() && self.missing.as_ref().is_some_and(Missing::is_empty)
    }
}

/// See the module's invariants.
pub(crate) struct Pg {
    pub id: SpgId,
    pub backend: Backend,
    pub info: PgInfo,
    pub log: PgLog,
    pub missing: Missing,
    pub past: PastIntervals,
    /// Members of the current interval.
    pub key: IntervalKey,
    pub phase: Phase,
    /// Replica only: the interval as the primary names it, for replies.
    pub primary_interval: Epoch,
    /// Primary only.
    pub peers: BTreeMap<PgShard, Peer>,
    /// Primary only, while active: members that are being backfilled.
    pub backfills: BTreeMap<PgShard, Backfill>,
    pub places: Places,
    pub writes: Writes,
    pub waiting_for_active: VecDeque<ClientOp>,
    /// Requests that wait for an object's recovery.
    pub waiting_for_object: BTreeMap<HObject, VecDeque<ClientOp>>,
    pub recovering: BTreeMap<HObject, Recovering>,
    /// Objects of which only pieces have come.
    pub incoming: BTreeMap<HObject, Incoming>,
    /// What recovery sends when the input is through.
    pub batch: Batch,
    /// Missing here, and nobody who is up has it.
    pub unfound: BTreeSet<HObject>,
    /// Primary only: damaged objects of members, to be sent when no write is under way.
    pub damaged: BTreeSet<(HObject, PgShard)>,
    /// Objects that lost data here and were not replaced yet; stored, or a restart would leave them to the
    /// next scrub.
    pub lost_here: BTreeSet<HObject>,
    /// Objects that cannot be recovered now, as the cluster log was told.
    pub lamented: BTreeSet<HObject>,
    /// Primary only: unfound objects whose older version is being fetched to take their place.
    pub reverting: BTreeMap<HObject, Reverting>,
    /// OSDs whose return would let peering go on.
    pub blocked_by: Vec<OsdId>,
    /// When state bits last changed, for reports.
    pub stamps: stats::Stamps,
    /// Reads that wait for members to confirm that we are still the primary.
    pub waiting_for_lease: VecDeque<ClientOp>,
    /// Writes for which there is no room (yet), and what must not overtake them.
    pub waiting_for_space: VecDeque<ClientOp>,
    /// A client's write found no room of so many bytes, here or with a member; 0 when there is room.
    pub short_of: u64,
    /// Messages of members for which the store has no room, or the first of which waits for `chunk_reads`,
    /// and those that came after it.
    pub held_back: VecDeque<(PgShard, PgMessage)>,
    /// What is read for the first of them.
    pub chunk_reads: Option<ChunkReads>,
    /// How often it was activated: the PG may peer more than once in an interval.
    pub activations: u64,
    /// When `Activate` was sent: its answer is a sign of life.
    pub activate_sent: Moment,
    /// Requests ran again once the current input is through.
    pub ready: VecDeque<ClientOp>,
    /// Stats changed since the last report.
    pub report: bool,
    /// Primary only: what is known of the primaries before.
    pub prior: Prior,
    /// Primary only: clients that were told not to send.
    pub backoffs: Vec<Backoff>,
    /// Primary only: who watches through which connection.
    pub watches: Watches,
    /// Primary only.
    pub trim: Trim,
    pub scrub: Scrub,
    /// Somebody wants this PG to be recovered, or backfilled, before others.
    pub forced: Forced,
    /// Primary only: requests whose sources are being fetched, by their object.
    pub copies: BTreeMap<HObject, Copying>,
    /// Primary only: objects that the device reads for requests.
    pub reading: BTreeMap<HObject, Reading>,
    /// The number of the last question for a piece of a source.
    pub last_copy_id: u64,
    /// Primary only: large writes whose pieces go ahead, by their number; and what lies aside for such writes,
    /// here and on members.
    pub staging: BTreeMap<u64, Staging>,
    pub aside: BTreeMap<u64, Aside>,
}

impl Pg {
    pub fn new(id: SpgId, info: PgInfo, past: PastIntervals, log: PgLog, missing: Missing) -> Self {
        Self {
            id,
            backend: Backend::of(id),
            info,
            log,
            missing,
            past,
            key: IntervalKey::default(),
            phase: Phase::Stray,
            primary_interval: Epoch(0),
            peers: BTreeMap::new(),
            backfills: BTreeMap::new(),
            places: Places::default(),
            writes: Writes::default(),
            waiting_for_active: VecDeque::new(),
            waiting_for_object: BTreeMap::new(),
            recovering: BTreeMap::new(),
            incoming: BTreeMap::new(),
            batch: Batch::default(),
            unfound: BTreeSet::new(),
            damaged: BTreeSet::new(),
            lost_here: BTreeSet::new(),
            lamented: BTreeSet::new(),
            reverting: BTreeMap::new(),
            blocked_by: Vec::new(),
            stamps: stats::Stamps::default(),
            waiting_for_lease: VecDeque::new(),
            waiting_for_space: VecDeque::new(),
            short_of: 0,
            held_back: VecDeque::new(),
            chunk_reads: None,
            activations: 0,
            activate_sent: Moment::default(),
            ready: VecDeque::new(),
            prior: Prior::default(),
            backoffs: Vec::new(),
            watches: Watches::default(),
            trim: Trim::default(),
            scrub: Scrub::default(),
            forced: Forced::default(),
            copies: BTreeMap::new(),
            reading: BTreeMap::new(),
            last_copy_id: 0,
            staging: BTreeMap::new(),
            aside: BTreeMap::new(),
            report: true,
        }
    }

    pub fn interval(&self) -> Epoch {
        self.info.history.same_interval_since
    }

    /// Whether the pool is erasure-coded: this copy is one shard then.
    pub fn is_coded(&self) -> bool {
        self.id.shard != SpgId::NO_SHARD
    }

    /// This copy, as others address it.
    pub fn me(&self, cx: &Shared) -> PgShard {
        PgShard { osd: cx.whoami, shard: self.id.shard }
    }

    /// `PgShard::NONE` for none.
    pub fn primary(&self) -> PgShard {
        let osd = self.key.members.acting_primary;
        match self.is_coded() {
            true => self.acting().find(|copy| copy.osd == osd).unwrap_or(PgShard::NONE),
            false => PgShard::replicated(osd),
        }
    }

    pub fn is_primary(&self, cx: &Shared) -> bool {
        self.primary() == self.me(cx)
    }

    /// The copies that serve; holes are left out.
    pub fn acting(&self) -> impl Iterator<Item = PgShard> + Clone + '_ {
        interval::copies(&self.key.members.acting, self.is_coded())
    }

    /// The copies that CRUSH wants; holes are left out.
    pub fn up(&self) -> impl Iterator<Item = PgShard> + Clone + '_ {
        interval::copies(&self.key.members.up, self.is_coded())
    }

    pub fn is_acting(&self, copy: PgShard) -> bool {
        self.acting().any(|member| member == copy)
    }

    pub fn is_in_up(&self, copy: PgShard) -> bool {
        self.up().any(|member| member == copy)
    }

    /// The acting set place by place, holes and all.
    pub fn acting_set(&self) -> &[OsdId] {
        &self.key.members.acting
    }

    /// The up set place by place, holes and all.
    pub fn up_set(&self) -> &[OsdId] {
        &self.key.members.up
    }

    /// Whether the acting set is large enough to take writes.
    pub fn is_writeable(&self) -> bool {
        self.acting().count() >= usize::from(self.key.min_size.max(1))
    }

    /// Whether client operations run.
    pub fn is_active(&self) -> bool {
        self.phase == Phase::Active && self.is_writeable() && !self.key.premerge
    }

    /// Members of the acting set whose lease is over: somebody else may be primary by now.
    pub fn lacking_leases(&self, cx: &Shared) -> Vec<OsdId> {
        let others = self.acting().map(|copy| copy.osd).filter(|osd| *osd != cx.whoami);
        others.filter(|osd| !cx.has_lease_of(*osd)).collect()
    }

    /// Whether somebody else may be primary by now.
    pub fn lacks_a_lease(&self, cx: &Shared) -> bool {
        cx.leases.given_up || self.acting().any(|o| o.osd != cx.whoami && !cx.has_lease_of(o.osd))
    }

    /// Members that get every write: the acting set and those being backfilled, without ourselves.
    pub fn write_targets(&self, cx: &Shared) -> Vec<PgShard> {
        let me = self.me(cx);
        let mut all: Vec<PgShard> = self.acting().filter(|o| *o != me).collect();
        all.extend(self.backfills.keys().filter(|o| !self.is_acting(**o)));
        all
    }

    pub fn object_key(&self, object: &HObject) -> ObjectKey {
        ObjectKey::new(self.id.shard, object.clone())
    }

    /// Recomputes `last_complete` from what is missing.
    pub fn update_last_complete(&mut self) {
        self.info.last_complete = match self.missing.first_need() {
            None => self.info.last_update,
            Some(need) => self.log.last_below(need).unwrap_or(self.info.log_tail).min(below(need)),
        };
    }

    /// Takes the bounds of the log into the info.
    pub fn update_log_bounds(&mut self) {
        self.info.last_update = self.log.head();
        self.info.log_tail = self.log.tail();
    }

    pub fn save_info(&self, txn: &mut Txn) {
        persist::put_info(txn, self.id, &self.info);
    }

    /// These requests run again once the current input is through, before those that a slice left: what has
    /// waited further inside is older than any of these of the same object.
    pub fn let_go(&mut self, ops: impl IntoIterator<Item = ClientOp>, cx: &mut Shared) {
        let later = std::mem::take(&mut self.ready);
        self.ready.extend(ops);
        self.ready.extend(later);
        cx.some_ready |= !self.ready.is_empty();
    }

    /// Runs requests that became ready while the input was handled, as many as the slice has room for.
    pub fn run_ready(&mut self, cx: &mut Shared) {
        while !cx.is_slice_over() {
            let Some(op) = self.ready.pop_front() else { return };
            self.client_op(cx, op);
            // The slice is over: those behind it stay behind it.
            if let Some(op) = cx.paused.take() {
                self.ready.push_front(op);
            }
        }
        cx.some_ready |= !self.ready.is_empty();
    }

    /// Checks the invariants that the module states.
    pub fn assert_invariants(&self, cx: &Shared) {
        assert!(self.ready.is_empty() || cx.some_ready, "requests of {} are ready and nobody knows", self.id);
        self.log.assert_invariants();
        self.missing.assert_invariants();
        self.past.assert_invariants(self.interval());
        assert_eq!(self.log.head(), self.info.last_update, "1: {}", self.id);
        assert_eq!(self.log.tail(), self.info.log_tail, "1: {}", self.id);
        assert_eq!(
            self.missing.is_empty(),
            self.info.last_complete == self.info.last_update,
            "2: {}",
            self.id
        );
        if self.phase != Phase::Active {
            assert!(self.writes.is_empty(), "4: {} has writes in flight in {:?}", self.id, self.phase);
            assert!(self.staging.is_empty(), "4: {} stages writes in {:?}", self.id, self.phase);
        } else {
            assert!(self.is_primary(cx), "3: {}", self.id);
        }
        self.writes.assert_invariants(self.info.last_update);
        self.assert_reads(cx);
        self.assert_staging();
        self.assert_backend();
        for object in self.writes.objects() {
            assert!(!self.missing.contains(object), "5: {object}");
            for (osd, peer) in self.peers.iter().filter(|(o, _)| self.is_acting(**o)) {
                assert!(!peer.missing.as_ref().is_some_and(|m| m.contains(object)), "5: {object} on {osd}");
            }
        }
    }
}

/// The greatest version below `v` that an entry of the same epoch could have.
fn below(v: Eversion) -> Eversion {
    Eversion::new(v.epoch, v.version.saturating_sub(1))
}

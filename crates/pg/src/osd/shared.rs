//! What all PGs of an OSD share while one input is handled: the store, the map, the clocks, and the effects
//! that come out.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use maps::{OsdMap, SnapIntervals};
use messages::Message;
use store::{Priority, Store, StoreError, Txn, TxnSeq};
use types::{ConnId, EntityAddr, Epoch, Eversion, HObject, Now, OsdId, PgShard, PoolId, SpgId};

use super::account::Sum;
use super::cluster_log::Unsaid;
use super::coded_pools::CodedPools;
use super::counters::OpCounters;
use super::device_reads::{DeviceReads, HELD};
use super::gathers::Gathers;
use super::lease::Leases;
use super::queries::Queries;
use super::session::Session;
use crate::OsdConfig;
use crate::io::{FatalReason, LogLevel, Output};
use crate::peer::{PgBody, PgMessage, TooLong};
use crate::pg::remove::Removal;
use crate::pg::{ClientOp, Forced, Reservation};
use crate::push::Pushed;

/// Ticks come at least so often; see `Input::Tick`.
const LONGEST_TICK: Duration = Duration::from_millis(500);

/// What to do when a transaction is durable.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Done {
    Nothing,
    /// Done in the PG, if it is still in this interval then.
    Pg {
        id: SpgId,
        interval: Epoch,
        what: PgDone,
    },
    /// One write of the running benchmark.
    Bench,
    /// A slice of a copy that is being deleted.
    Removed,
    /// Clean shutdown is recorded.
    Stopped,
    /// The superblock says that this store is in use. An OSD's first boot message waits for that.
    Begun,
}

/// What to do in a PG when a transaction is durable.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum PgDone {
    /// The primary's own copy has the writes up to this version.
    Write(Eversion),
    /// This answer to a primary's question is sent: all that it speaks of is durable now.
    Tell {
        to: PgShard,
        interval: Epoch,
        body: Box<PgBody>,
    },
    /// This replica's copy has the writes up to this version, of which the last came at `came_ns`
    /// (monotonic).
    RepOp {
        version: Eversion,
        came_ns: u64,
    },
    /// Pieces of a large write lie aside here up to so many bytes.
    Staged {
        id: u64,
        upto: u64,
    },
    /// This copy's activation, counted since the copy was loaded.
    Activated(u64),
    /// Pulled objects are in the primary's store.
    Pulled {
        from: PgShard,
        objects: Vec<Pushed>,
    },
    /// Pushed objects are in this copy's store.
    Pushed {
        objects: Vec<Pushed>,
    },
    BackfillProgress {
        last_backfill: HObject,
    },
}

/// The common part of the OSD core; PGs are beside it, so that one of them can be borrowed together with it.
pub(crate) struct Shared {
    pub whoami: OsdId,
    pub config: OsdConfig,
    pub map: Arc<OsdMap>,
    pub coded_pools: CodedPools,
    /// Snapshots that were purged since this OSD started. Requests that were sent earlier than that cannot
    /// come: no connection is older than this process, and a client that sends a request again leaves out
    /// snapshots that it knows to be removed.
    pub purged_snaps: BTreeMap<PoolId, SnapIntervals>,
    pub store: Store,
    pub now: Now,
    /// The same moment, in nanoseconds of the monotonic clock.
    pub now_ns: u64,
    pub out: Vec<Output>,
    /// Messages from one of our PGs to another.
    pub to_ourselves: VecDeque<PgMessage>,
    /// What to do when transactions are durable, in the order of their submission.
    pub on_durable: VecDeque<(TxnSeq, Done)>,
    pub sessions: BTreeMap<ConnId, Session>,
    /// Objects being pulled or pushed, over all PGs.
    pub recovery_active: usize,
    /// Bytes of those objects that are under way.
    pub recovery_bytes: u64,
    /// PGs that could recover more objects if the OSD's bounds allowed it. They take turns.
    pub recovery_waits: BTreeSet<SpgId>,
    /// The PG whose turn it is, while it takes it.
    pub recovery_turn: Option<SpgId>,
    /// The PG that had the last turn.
    pub last_turn: Option<SpgId>,
    /// PGs led from here that have a range of a backfill under way: each holds a place.
    pub backfilling: BTreeSet<SpgId>,
    /// PGs led from here that wait for such a place, with their priorities: higher ones go first.
    pub backfill_waits: BTreeMap<SpgId, u8>,
    /// Places that this OSD gives to backfills of which it is a target.
    pub reservations: BTreeMap<SpgId, Reservation>,
    /// When the next object's recovery may begin (monotonic), if `osd_recovery_sleep` sets a pause between
    /// them.
    pub recovery_next: Duration,
    /// PGs that have recovery messages to send when the input is through.
    pub batched: BTreeSet<SpgId>,
    /// PGs that are being scrubbed, led from here or not: each holds a place.
    pub scrubs: BTreeSet<SpgId>,
    /// No scrub begins here before this time (monotonic). Set when a member has refused one, perhaps because
    /// it wanted a place here itself.
    pub scrub_pause: Duration,
    /// How often members have refused a scrub.
    pub scrub_refusals: u64,
    /// PGs whose recovery or backfill an operator has put before that of others, and which can go on now.
    pub forced: BTreeMap<SpgId, Forced>,
    /// Copies that are being deleted, a slice at a time.
    pub removals: VecDeque<Removal>,
    /// Whether a slice is under way.
    pub removing: bool,
    /// PGs whose reported stats changed.
    pub stats_dirty: bool,
    pub fatal: Option<FatalReason>,
    /// Something was submitted, or found no room, since the last `Output::Commit`.
    pub uncommitted: bool,
    /// The newest transaction that somebody waits for without waiting for anything else; see
    /// `OsdCore::is_commit_urgent`.
    pub urgent: TxnSeq,
    pub counters: OpCounters,
    /// What the manager asks of clients' operations.
    pub queries: Queries,
    /// The highest `up_thru` that a PG asked the monitors for.
    pub up_thru_wanted: Epoch,
    pub leases: Leases,
    /// Whether some PG has requests in `ready`, which saves a look at every PG after each input.
    pub some_ready: bool,
    /// The request that has just run, if it has to go on in another slice.
    pub paused: Option<ClientOp>,
    /// Requests for which the device reads; see `pg::reading`.
    pub reads: DeviceReads,
    /// The place of the newest request in the order in which they came.
    pub last_order: u64,
    /// Bytes that all paused requests hold.
    pub paused_bytes: Sum,
    /// What requests gather of shards.
    pub gathers: Gathers,
    /// The number of the newest `copy-from` request that fetches its sources.
    pub last_copy: u64,
    /// Whether such a request may wait for room for its next piece.
    pub copies_wait: bool,
    /// The number of the newest large write whose pieces went ahead.
    pub last_staged: u64,
    /// Whether a piece of one may go now.
    pub pieces_wait: bool,
    /// Bytes of work that requests may still do in this slice; see `turns`.
    pub slice_left: u64,
    /// Bytes of answers that may still go out in this slice. The shell then says anew how much clients have
    /// not read.
    pub answers_left: u64,
    /// Client requests that were dropped without an answer: their clients will send them again.
    pub dropped: Vec<(ConnId, u64)>,
    /// Whether writes may wait for room in the store.
    pub space_waited: bool,
    /// Whether the primaries of the copies here were told that this OSD has little room.
    pub told_tight: bool,
    /// Whether the store is so full that writes wait or are dropped, whatever the map says.
    pub failsafe_full: bool,
    /// Lines of the cluster log that the monitors do not have yet.
    pub unsaid: Unsaid,
}

impl Shared {
    pub fn new(whoami: OsdId, config: OsdConfig, map: Arc<OsdMap>, store: Store) -> Self {
        let paused_bytes = Sum::default();
        Self {
            whoami,
            config,
            map,
            coded_pools: CodedPools::default(),
            store,
            now: Now::default(),
            now_ns: 0,
            out: Vec::new(),
            to_ourselves: VecDeque::new(),
            on_durable: VecDeque::new(),
            sessions: BTreeMap::new(),
            recovery_active: 0,
            recovery_bytes: 0,
            recovery_waits: Default::default(),
            recovery_turn: None,
            purged_snaps: BTreeMap::new(),
            last_turn: None,
            backfilling: Default::default(),
            backfill_waits: Default::default(),
            reservations: Default::default(),
            recovery_next: Duration::ZERO,
            batched: Default::default(),
            scrubs: Default::default(),
            scrub_pause: Duration::ZERO,
            scrub_refusals: 0,
            forced: Default::default(),
            removals: VecDeque::new(),
            removing: false,
            stats_dirty: false,
            fatal: None,
            uncommitted: false,
            urgent: TxnSeq::default(),
            counters: OpCounters::default(),
            queries: Queries::default(),
            up_thru_wanted: Epoch(0),
            leases: Leases::default(),
            some_ready: false,
            paused: None,
            reads: DeviceReads::new(paused_bytes.clone()),
            last_order: 0,
            paused_bytes,
            gathers: Gathers::default(),
            last_copy: 0,
            copies_wait: false,
            last_staged: 0,
            pieces_wait: false,
            slice_left: super::turns::SLICE,
            answers_left: super::turns::SLICE,
            dropped: Vec::new(),
            space_waited: false,
            told_tight: false,
            failsafe_full: false,
            unsaid: Default::default(),
        }
    }

    /// Whether this slice's work or answers are spent: requests wait until the shell comes again.
    pub fn is_slice_over(&self) -> bool {
        self.slice_left == 0 || self.answers_left == 0
    }

    /// Whether requests that have paused hold as much as they may.
    pub fn is_full_of_paused(&self) -> bool {
        self.paused_bytes.get() >= HELD
    }

    pub fn epoch(&self) -> Epoch {
        self.map.epoch
    }

    /// Submits a transaction without which the OSD cannot go on: if the store refuses it, the OSD ends.
    pub fn submit(&mut self, txn: Txn, done: Done) {
        if let Err(e) = self.try_submit(txn, Priority::Essential, done) {
            self.fail(FatalReason::Store(e.to_string()));
        }
    }

    /// Submits a transaction. On an error nothing has happened.
    pub fn try_submit(&mut self, txn: Txn, priority: Priority, done: Done) -> Result<TxnSeq, StoreError> {
        let seq = self.store.submit_as(txn, priority)?;
        self.hurry();
        if done != Done::Nothing {
            self.on_durable.push_back((seq, done));
        }
        Ok(seq)
    }

    /// Sends another OSD a message of a PG as soon as all that was submitted so far is durable, unless the PG
    /// has left the interval `now` by then. `interval` is the one that the message states: that of the
    /// question it answers.
    pub fn tell_when_durable(
        &mut self,
        to: PgShard,
        id: SpgId,
        (now, interval): (Epoch, Epoch),
        body: PgBody,
    ) {
        if self.store.submitted() == self.store.durable() && self.on_durable.is_empty() {
            return self.send_pg(to, id, interval, body);
        }
        let what = PgDone::Tell { to, interval, body: Box::new(body) };
        self.on_durable.push_back((self.store.submitted(), Done::Pg { id, interval: now, what }));
        self.hurry();
    }

    /// Notes that somebody waits for what was submitted so far, so that its commit is not put off.
    pub fn hurry(&mut self) {
        (self.uncommitted, self.urgent) = (true, self.store.submitted());
    }

    /// Whether another object may be recovered now.
    pub fn may_recover(&self) -> bool {
        self.recovery_active < self.config.recovery_max_active.max(1)
            && self.recovery_bytes < self.max_recovery_bytes()
            && !self.rests()
    }

    /// Whether recovery pauses now, as `osd_recovery_sleep` has it, after the objects that were begun before.
    pub fn rests(&self) -> bool {
        !self.config.recovery_sleep.is_zero() && self.recovery_next > self.now.mono
    }

    /// Whether a PG has to wait for its turn, because other PGs wait to recover objects as well.
    pub fn must_queue(&self, id: SpgId) -> bool {
        self.recovery_turn != Some(id) && self.recovery_waits.iter().any(|waiting| *waiting != id)
    }

    /// Takes out the waiting PG that is next after the one with the last turn, by id and around.
    pub fn next_turn(&mut self) -> Option<SpgId> {
        let after = |last: SpgId| {
            self.recovery_waits.range((Bound::Excluded(last), Bound::Unbounded)).next().copied()
        };
        let next = self.last_turn.and_then(after).or_else(|| self.recovery_waits.first().copied())?;
        self.recovery_waits.remove(&next);
        self.last_turn = Some(next);
        Some(next)
    }

    /// Counts an object whose recovery begins. A pause that is shorter than the time between two ticks holds
    /// on average: what one tick has missed, the next makes up for.
    pub fn recovery_begun(&mut self) {
        self.recovery_active += 1;
        self.counters.recoveries += 1;
        let sleep = self.config.recovery_sleep;
        if !sleep.is_zero() {
            let from = self.now.mono.saturating_sub(LONGEST_TICK);
            self.recovery_next = self.recovery_next.max(from) + sleep;
        }
    }

    /// Whether another PG may be backfilled from here.
    pub fn has_backfill_place(&self) -> bool {
        self.backfilling.len() < self.config.max_backfills.max(1)
    }

    /// A place for a PG's backfill, unless too many are under way; then it waits. Source: osd_max_backfills.
    ///
    /// A PG that has a place already loses it, between two ranges, to one of a higher priority.
    pub fn take_backfill_place(&mut self, id: SpgId, priority: u8) -> bool {
        let outranked = self.backfill_waits.iter().any(|(other, p)| *other != id && *p > priority);
        let has = self.backfilling.contains(&id) || self.has_backfill_place();
        if outranked || !has {
            self.backfill_waits.insert(id, priority);
            return false;
        }
        self.backfill_waits.remove(&id);
        self.backfilling.insert(id);
        true
    }

    pub fn leave_backfill_place(&mut self, id: SpgId) {
        self.backfilling.remove(&id);
    }

    /// Whether another PG may be scrubbed here. Source: OSDService::inc_scrubs_local, PgScrubber::handle_scrub_reserve_request.
    pub fn may_scrub(&self) -> bool {
        self.scrubs.len() < self.config.max_scrubs
            && (self.recovery_active == 0 || self.config.scrub_during_recovery)
    }

    pub fn fail(&mut self, reason: FatalReason) {
        if self.fatal.is_none() {
            self.out.push(Output::Fatal(reason.clone()));
            self.fatal = Some(reason);
        }
    }

    /// Sends a message of the copy `id` to another copy of its PG.
    pub fn send_pg(&mut self, to: PgShard, id: SpgId, interval: Epoch, body: PgBody) {
        let (osd, pgid) = (to.osd, SpgId { shard: to.shard, ..id });
        let msg = PgMessage { pgid, from: id.shard, epoch: self.epoch(), interval, body };
        if osd == self.whoami {
            return self.to_ourselves.push_back(msg);
        }
        match msg.into_message() {
            Ok(msg) => self.out.push(Output::SendOsd { osd, msg }),
            Err(TooLong { bytes, instead }) => {
                let text = format!(
                    "pg {pgid} has a message of {bytes} bytes for osd.{osd}, which takes no such one"
                );
                self.cluster_log(LogLevel::Error, text);
                if let Some(body) = instead {
                    self.send_pg(to, id, interval, *body);
                }
            }
        }
    }

    pub fn send_mon(&mut self, msg: impl Into<Message>) {
        self.out.push(Output::SendMon(msg.into()));
    }

    /// Whether we hold a lease of that OSD: it lets us answer as a primary.
    pub fn has_lease_of(&self, osd: OsdId) -> bool {
        self.leases.holds(osd, self.now)
    }

    /// For how long that OSD may still hold a lease of ours.
    pub fn owed(&self, osd: OsdId) -> Duration {
        let forgets = types::is_planted!(self.config.planted, LeaseForgottenAtRestart);
        let lease = if forgets { Duration::ZERO } else { self.config.read_lease() };
        self.leases.owed(osd, self.now.mono, lease)
    }

    /// Gives an OSD a lease: for at most `asked` it may answer as a primary of PGs in which we are a member.
    /// Returns for how long. While the map does not show us up we give none: after a loss of power we may
    /// stand at an older epoch than one that an earlier life has answered for.
    pub fn grant(&mut self, osd: OsdId, asked: Duration) -> Duration {
        if !self.leases.is_up {
            return Duration::ZERO;
        }
        let lease = asked.min(self.config.read_lease());
        self.leases.promise(osd, self.now.mono, lease);
        lease
    }

    /// Asks the monitors to record that this OSD is alive, once for all PGs that want the same.
    pub fn want_up_thru(&mut self, epoch: Epoch) {
        if epoch > self.up_thru_wanted {
            self.up_thru_wanted = epoch;
            let msg = super::mon::alive(self.epoch(), epoch);
            self.send_mon(msg);
        }
    }

    /// Whether the map's blocklist has a client: its address, its whole host, or a range around it. The
    /// address that the client states counts, for that is what a blocklist entry names; and so does the host
    /// that it connects from, which it cannot choose.
    pub fn is_blocklisted(&self, stated: &EntityAddr, ip: Option<IpAddr>) -> bool {
        let map = &self.map;
        if map.blocklist.is_empty() && map.range_blocklist.is_empty() {
            return false;
        }
        let is_listed = |addr: &EntityAddr| map.is_blocklisted(addr) || map.blocklist.contains_key(addr);
        is_listed(stated) || ip.is_some_and(|ip| is_listed(&seen_at(stated, ip)))
    }

    /// The host that a connection comes from, as its socket says.
    pub fn ip_of(&self, conn: ConnId) -> Option<IpAddr> {
        self.sessions.get(&conn)?.peer.ip
    }

    pub fn cluster_log(&mut self, level: LogLevel, text: String) {
        self.unsaid.add(self.whoami, level, text.clone(), self.now.wall);
        self.out.push(Output::ClusterLog { level, text });
    }
}

/// The address that a client states, with the host that it connects from. Its port and nonce cannot be
/// checked.
pub(crate) fn seen_at(stated: &EntityAddr, ip: IpAddr) -> EntityAddr {
    let port = stated.socket.map_or(0, |s| s.port());
    EntityAddr { socket: Some(SocketAddr::new(ip, port)), ..*stated }
}

//! What all PGs of an OSD share while one input is handled: store, map, clocks, effects.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use maps::{OsdMap, SnapIntervals};
use messages::Message;
use store::{Priority, Store, StoreError, Txn, TxnSeq};
use types::{ConnId, EntityAddr, Epoch, Eversion, HObject, Now, OsdId, PoolId, SpgId};

use super::account::Sum;
use super::cluster_log::Unsaid;
use super::lease::Leases;
use super::session::Session;
use crate::OsdConfig;
use crate::io::{FatalReason, LogLevel, Output};
use crate::peer::{PgBody, PgMessage, TooLong};
use crate::pg::remove::Removal;
use crate::pg::{ClientOp, Forced, Reservation};
use crate::push::Pushed;

/// Ticks come at least so often; see `Input::Tick`.
const LONGEST_TICK: Duration = Duration::from_millis(500);

/// What to do when a transaction is durable. `interval` guards against effects of an interval that is over.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Done {
    Nothing,
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
    /// The store's beginning is recorded, before its OSD asks for the first time to be marked up.
    Begun,
}

/// The same, inside a PG.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum PgDone {
    /// The primary's own part of writes up to this version.
    Write(Eversion),
    /// What a primary asked is told: it may count on all that it hears of.
    Tell {
        osd: i32,
        interval: Epoch,
        body: Box<PgBody>,
    },
    /// A replica's part of the same.
    RepOp(Eversion),
    /// This copy's activation, the so many-th since it was loaded.
    Activated(u64),
    /// Pulled objects are in the primary's store.
    Pulled {
        from: i32,
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
    pub whoami: i32,
    pub config: OsdConfig,
    pub map: Arc<OsdMap>,
    /// Snapshots that were purged since this OSD started: no connection is older, and with it no request that was sent
    /// before. Clients leave out what they know to be removed when they send again.
    pub purged_snaps: BTreeMap<PoolId, SnapIntervals>,
    pub store: Store,
    pub now: Now,
    pub out: Vec<Output>,
    /// Messages from one of our PGs to another.
    pub to_ourselves: VecDeque<PgMessage>,
    /// In the order of submission.
    pub on_durable: VecDeque<(TxnSeq, Done)>,
    pub sessions: BTreeMap<ConnId, Session>,
    /// Objects being pulled or pushed, over all PGs.
    pub recovery_active: usize,
    /// Bytes of them that are under way.
    pub recovery_bytes: u64,
    /// PGs that could recover more if more were allowed: they take turns.
    pub recovery_waits: BTreeSet<SpgId>,
    /// Whose turn it is, while it is, and whose it was last.
    pub recovery_turn: Option<SpgId>,
    pub last_turn: Option<SpgId>,
    /// PGs with a range of a backfill under way that is led from here, and those that wait for a place among them.
    pub backfilling: BTreeSet<SpgId>,
    /// with how urgent each is.
    pub backfill_waits: BTreeMap<SpgId, u8>,
    /// Places of backfills of which this OSD is a target.
    pub reservations: BTreeMap<SpgId, Reservation>,
    /// With a pause between objects: when the next one may begin (monotonic).
    pub recovery_next: Duration,
    /// PGs that have recovery messages to send when the input is through.
    pub batched: BTreeSet<SpgId>,
    /// PGs that are being scrubbed, led from here or not: each holds a place.
    pub scrubs: BTreeSet<SpgId>,
    /// Until then (monotonic) no scrub begins here: a member refused one, perhaps because it wanted a place here itself.
    pub scrub_pause: Duration,
    /// How often that was.
    pub scrub_refusals: u64,
    /// What goes before other PGs' recovery and backfill, and can be done now.
    pub forced: BTreeMap<SpgId, Forced>,
    /// Copies that are being deleted, and whether a slice of one is under way.
    pub removals: VecDeque<Removal>,
    pub removing: bool,
    /// PGs whose reported stats changed.
    pub stats_dirty: bool,
    pub fatal: Option<FatalReason>,
    /// Something was submitted, or found no room, since the last `Output::Commit`.
    pub uncommitted: bool,
    /// The newest transaction that somebody waits for, and for nothing else.
    pub urgent: TxnSeq,
    pub counters: OpCounters,
    /// The highest `up_thru` that a PG asked the monitors for.
    pub up_thru_wanted: Epoch,
    pub leases: Leases,
    /// A PG has requests that run again: without it, no PG is looked at for them.
    pub some_ready: bool,
    /// The request that has just run, when it goes on in another slice; and bytes of all that do.
    pub paused: Option<ClientOp>,
    pub paused_bytes: Sum,
    /// The number of the newest copy, and whether one may wait for room.
    pub last_copy: u64,
    pub copies_wait: bool,
    /// Work that this batch of inputs may still bring about, in bytes.
    pub slice_left: u64,
    /// Bytes that clients may be answered before the shell has told how much they have not read.
    pub answers_left: u64,
    /// Client operations that were dropped without an answer: their clients send them again when they may.
    pub dropped: Vec<(ConnId, u64)>,
    /// Writes wait for room in the store.
    pub space_waited: bool,
    /// Primaries of PGs that have a copy here were told that there is little room.
    pub told_tight: bool,
    /// So full that writes are dropped, whatever the map says.
    pub failsafe_full: bool,
    /// Lines of the cluster log that the monitors do not have yet.
    pub unsaid: Unsaid,
}

/// Running totals for `perf dump`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OpCounters {
    pub ops: u64,
    pub reads: u64,
    pub read_bytes: u64,
    pub writes: u64,
    pub write_bytes: u64,
    pub rep_ops: u64,
    pub pulls: u64,
    /// Objects sent in recovery, the messages that they went in, and the bytes of data, omap and attributes.
    pub pushes: u64,
    pub push_messages: u64,
    pub push_bytes: u64,
    /// Damaged objects replaced from another copy, here or on a member.
    pub repairs: u64,
    /// Clients told not to send for a while.
    pub backoffs: u64,
}

impl Shared {
    pub fn new(whoami: i32, config: OsdConfig, map: Arc<OsdMap>, store: Store) -> Self {
        Self {
            whoami,
            config,
            map,
            store,
            now: Now::default(),
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
            up_thru_wanted: Epoch(0),
            leases: Leases::default(),
            some_ready: false,
            paused: None,
            paused_bytes: Sum::default(),
            last_copy: 0,
            copies_wait: false,
            slice_left: super::turns::SLICE,
            answers_left: super::turns::SLICE,
            dropped: Vec::new(),
            space_waited: false,
            told_tight: false,
            failsafe_full: false,
            unsaid: Default::default(),
        }
    }

    /// Whether requests wait until the shell was asked to come again.
    pub fn is_slice_over(&self) -> bool {
        self.slice_left == 0 || self.answers_left == 0
    }

    pub fn epoch(&self) -> Epoch {
        self.map.epoch
    }

    /// Submits a transaction without which the OSD cannot go on: a failure is the end of it.
    pub fn submit(&mut self, txn: Txn, done: Done) {
        if let Err(e) = self.try_submit(txn, Priority::Essential, done) {
            self.fail(FatalReason::Store(e.to_string()));
        }
    }

    /// Submits a transaction; nothing has happened when it is refused.
    pub fn try_submit(&mut self, txn: Txn, priority: Priority, done: Done) -> Result<TxnSeq, StoreError> {
        let seq = self.store.submit_as(txn, priority)?;
        self.hurry();
        if done != Done::Nothing {
            self.on_durable.push_back((seq, done));
        }
        Ok(seq)
    }

    /// Tells another OSD something of a PG when all that was submitted so far is durable, if the PG's interval is `now` then.
    pub fn tell_when_durable(
        &mut self,
        osd: i32,
        pgid: SpgId,
        (now, interval): (Epoch, Epoch),
        body: PgBody,
    ) {
        if self.store.submitted() == self.store.durable() && self.on_durable.is_empty() {
            return self.send_pg(osd, pgid, interval, body);
        }
        let what = PgDone::Tell { osd, interval, body: Box::new(body) };
        self.on_durable.push_back((self.store.submitted(), Done::Pg { id: pgid, interval: now, what }));
        self.hurry();
    }

    /// Somebody waits for what was submitted.
    pub fn hurry(&mut self) {
        (self.uncommitted, self.urgent) = (true, self.store.submitted());
    }

    /// Whether another object may be recovered now.
    pub fn may_recover(&self) -> bool {
        self.recovery_active < self.config.recovery_max_active.max(1)
            && self.recovery_bytes < self.max_recovery_bytes()
            && !self.rests()
    }

    /// Whether nothing begins for now: a pause that is set, for all that was begun before.
    pub fn rests(&self) -> bool {
        !self.config.recovery_sleep.is_zero() && self.recovery_next > self.now.mono
    }

    /// Whether a PG leaves what is free to others that wait for it.
    pub fn must_queue(&self, id: SpgId) -> bool {
        self.recovery_turn != Some(id) && self.recovery_waits.iter().any(|waiting| *waiting != id)
    }

    /// Takes out whoever of those that wait is the next after the last one.
    pub fn next_turn(&mut self) -> Option<SpgId> {
        let after = |last: SpgId| {
            self.recovery_waits.range((Bound::Excluded(last), Bound::Unbounded)).next().copied()
        };
        let next = self.last_turn.and_then(after).or_else(|| self.recovery_waits.first().copied())?;
        self.recovery_waits.remove(&next);
        self.last_turn = Some(next);
        Some(next)
    }

    /// An object's recovery begins. Pauses shorter than what lies between two ticks are right on average.
    pub fn recovery_begun(&mut self) {
        self.recovery_active += 1;
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
    /// Whoever has one leaves it between two ranges to what is more urgent.
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

    pub fn send_pg(&mut self, osd: i32, pgid: SpgId, interval: Epoch, body: PgBody) {
        let msg = PgMessage { pgid, epoch: self.epoch(), interval, body };
        if osd == self.whoami {
            return self.to_ourselves.push_back(msg);
        }
        match msg.into_message() {
            Ok(msg) => self.out.push(Output::SendOsd { osd: OsdId(osd), msg }),
            Err(TooLong { bytes, instead }) => {
                let text = format!(
                    "pg {pgid} has a message of {bytes} bytes for osd.{osd}, which takes no such one"
                );
                self.cluster_log(LogLevel::Error, text);
                if let Some(body) = instead {
                    self.send_pg(osd, pgid, interval, *body);
                }
            }
        }
    }

    pub fn send_mon(&mut self, msg: impl Into<Message>) {
        self.out.push(Output::SendMon(msg.into()));
    }

    /// Whether the OSD lets us answer as a primary.
    pub fn has_lease_of(&self, osd: i32) -> bool {
        self.leases.holds(osd, self.now.mono)
    }

    /// For how long an OSD may still count on us.
    pub fn owed(&self, osd: i32) -> Duration {
        let forgets = types::is_planted!(self.config.planted, LeaseForgottenAtRestart);
        let lease = if forgets { Duration::ZERO } else { self.config.read_lease() };
        self.leases.owed(osd, self.now.mono, lease)
    }

    /// Lets an OSD answer as a primary of PGs in which we are a member, for at most `asked`; returns for how long. One that the
    /// map does not show up lets nobody: power may have failed, and it may stand at an older epoch than one that it has
    /// already spoken for.
    pub fn grant(&mut self, osd: i32, asked: Duration) -> Duration {
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

    /// Whether the map refuses a client: its address, its whole host, or a range. It counts by what it says of itself, which is
    /// what others name it by, and by where it really comes from, which it cannot choose.
    pub fn is_blocklisted(&self, stated: &EntityAddr, ip: Option<IpAddr>) -> bool {
        let map = &self.map;
        if map.blocklist.is_empty() && map.range_blocklist.is_empty() {
            return false;
        }
        let is_listed = |addr: &EntityAddr| map.is_blocklisted(addr) || map.blocklist.contains_key(addr);
        is_listed(stated) || ip.is_some_and(|ip| is_listed(&seen_at(stated, ip)))
    }

    /// Where a connection really comes from.
    pub fn ip_of(&self, conn: ConnId) -> Option<IpAddr> {
        self.sessions.get(&conn)?.peer.ip
    }

    pub fn cluster_log(&mut self, level: LogLevel, text: String) {
        self.unsaid.add(self.whoami, level, text.clone(), self.now.wall);
        self.out.push(Output::ClusterLog { level, text });
    }
}

/// The address that a client would have stated had it told the truth about its host; its port and nonce nobody can check.
pub(crate) fn seen_at(stated: &EntityAddr, ip: IpAddr) -> EntityAddr {
    let port = stated.socket.map_or(0, |s| s.port());
    EntityAddr { socket: Some(SocketAddr::new(ip, port)), ..*stated }
}

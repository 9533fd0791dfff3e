//! The OSD around its PGs: maps, boot, sessions, heartbeats, reports, commands; and the one entry, `OsdCore::handle`.
//!
//! Invariants:
//! 1. All PGs have followed the maps up to the OSD's current one.
//! 2. Callbacks wait in the order of their transactions.
//! 3. After a failure of the device or the store nothing is acknowledged any more.

pub(crate) mod account;
mod boot;
pub(crate) mod cluster_log;
pub(crate) mod coded_pools;
mod command;
pub(crate) mod counters;
pub(crate) mod device_reads;
mod durable;
mod fetch;
mod full;
pub(crate) mod gathers;
mod heartbeat;
mod hold;
mod inspect;
mod instantiate;
pub(crate) mod lease;
mod maps;
mod memory;
mod merge;
pub(crate) mod mon;
mod neighbours;
pub(crate) mod queries;
mod report;
mod route;
mod scrub;
pub(crate) mod session;
mod settings;
pub(crate) mod shared;
mod staged;
mod superblock;
mod track;
pub(crate) mod turns;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use ::maps::{OsdMap, Placements};
use admin::options::Values;
use admin::perf::Resets;
use messages::Message;
use store::{Store, TxnSeq};
use types::{ConnId, Epoch, Now, OsdId, PgId, PgShard, SpgId};

use crate::OsdConfig;
use crate::interval::IntervalKey;
use crate::io::{BootAddrs, FatalReason, Input, Output};
use crate::pg::{Pg, persist};
use boot::Boot;
use heartbeat::Heartbeats;
pub use hold::has_share;
pub use inspect::{Logged, Purpose};
use route::Waiting;
use session::Session;
use shared::Shared;
pub use superblock::{MetaError, Superblock};

/// The whole OSD. See the module's invariants.
pub struct OsdCore {
    pub(crate) shared: Shared,
    pub(crate) pgs: BTreeMap<SpgId, Pg>,
    /// Where CRUSH puts the PGs of the newest map.
    placements: Placements,
    superblock: Superblock,
    addrs: BootAddrs,
    boot: Boot,
    /// Messages that name a map we do not have yet, in the order of their arrival.
    waiting_for_map: VecDeque<Waiting>,
    /// An epoch whose increment gave a map with a wrong checksum: the whole map is asked for.
    whole_map_wanted: Option<Epoch>,
    /// OSDs that sent what does not decode: each is named in the log once.
    not_understood: BTreeSet<OsdId>,
    heartbeats: Heartbeats,
    reports: report::Reports,
    tracker: track::Tracker,
    values: Values,
    /// From where counters are shown.
    resets: Resets,
    /// What the core was made with; options that are set somewhere replace it.
    base_config: OsdConfig,
    /// Whether all clients are held because the store cannot keep up.
    holding: bool,
    /// The accounts of clients.
    clients: account::Clients,
    /// Client requests that wait for another slice.
    turns: turns::Turns,
    /// What `Clients::fetch_changes` was when no copy that waits had room.
    no_room_at: Option<u64>,
    /// Whether the shell was asked for another slice (`Output::Again`).
    asked_again: bool,
    /// Number of connections that are held alone.
    held_conns: usize,
    stopping: bool,
    /// The fullness that was last told to the monitors, and when.
    told_full: Option<(u32, Duration)>,
    /// When clients are to hear of the newest map, if they do not know it by then.
    tell_clients: Option<Duration>,
    /// PGs that are about to be merged and cannot be yet, and since when.
    merge_waits: BTreeMap<PgId, Duration>,
    /// `ceph tell osd.N bench` is running.
    bench: Option<command::bench::Bench>,
    disk_questions: command::disks::DiskQuestions,
}

impl OsdCore {
    /// Opens the OSD that the store holds; a fresh store becomes this OSD's.
    pub fn new(
        whoami: OsdId,
        config: OsdConfig,
        mut store: Store,
        addrs: BootAddrs,
    ) -> Result<Self, FatalReason> {
        let superblock = Superblock::read(&mut store)
            .map_err(fatal)?
            .unwrap_or_else(|| Superblock { whoami, ..Superblock::default() });
        if superblock.whoami != whoami {
            return Err(FatalReason::OtherOsd { ours: whoami, theirs: superblock.whoami });
        }
        let map = match superblock.current_epoch {
            Epoch(0) => OsdMap::default(),
            e => superblock::full_map(&mut store, e).map_err(fatal)?.ok_or(FatalReason::MapMissing(e))?,
        };
        let base_config = config.clone();
        let shared = Shared::new(whoami, config, Arc::new(map), store);
        let mut core = Self {
            shared,
            pgs: BTreeMap::new(),
            placements: Placements::default(),
            boot: Boot::new(superblock.current_epoch),
            superblock,
            addrs,
            waiting_for_map: VecDeque::new(),
            whole_map_wanted: None,
            not_understood: BTreeSet::new(),
            heartbeats: Heartbeats::default(),
            reports: report::Reports::new(whoami),
            tracker: track::Tracker::default(),
            values: Values::new(format!("osd.{whoami}"), &BTreeMap::new()),
            resets: Resets::default(),
            base_config,
            holding: false,
            clients: account::Clients::default(),
            turns: turns::Turns::default(),
            no_room_at: None,
            asked_again: false,
            held_conns: 0,
            stopping: false,
            told_full: None,
            tell_clients: None,
            merge_waits: BTreeMap::new(),
            bench: None,
            disk_questions: command::disks::DiskQuestions::default(),
        };
        core.apply_values();
        core.load_pgs()?;
        Ok(core)
    }

    fn load_pgs(&mut self) -> Result<(), FatalReason> {
        let cx = &mut self.shared;
        let removals = crate::pg::remove::load(&mut cx.store);
        cx.removals = removals.map_err(|e| FatalReason::Store(e.to_string()))?.into();
        crate::pg::pieces::remove_all_aside(cx).map_err(|e| FatalReason::Store(e.to_string()))?;
        cx.store.will_read_pgs();
        let mut marked = Vec::new();
        for space in cx.store.spaces().map_err(|e| FatalReason::Store(e.to_string()))? {
            let store::Space::Pg(id) = space else { continue };
            let Some(stored) =
                persist::read(&mut cx.store, id).map_err(|e| FatalReason::Store(e.to_string()))?
            else {
                continue;
            };
            let has_mark = crate::pg::remove::has_old_mark(&mut cx.store, id);
            if has_mark.map_err(|e| FatalReason::Store(e.to_string()))? {
                marked.push(id);
                continue;
            }
            let mut pg = Pg::new(id, stored.info, stored.past, stored.log, stored.missing);
            pg.lost_here = stored.damaged;
            pg.update_log_bounds();
            pg.update_last_complete();
            pg.key = IntervalKey::placed(&cx.map, id.pgid, &mut self.placements).unwrap_or_default();
            if cx.config.presumes_writes() {
                pg.past.presume_writes(pg.key.min_size);
            }
            self.pgs.insert(id, pg);
        }
        let alive: Vec<_> = self
            .pgs
            .values()
            .map(|pg| (pg.id, pg.key.pg_num.max(pg.id.pgid.seed.saturating_add(1))))
            .collect();
        for id in marked {
            crate::pg::remove::remove_marked(id, &alive, cx);
        }
        Ok(())
    }

    /// Whether somebody waits for what was submitted and for nothing else. Else it is only this OSD's part of writes whose
    /// other members were asked to do theirs: it is needed when they have, or at the next tick.
    pub fn is_commit_urgent(&self) -> bool {
        let store = &self.shared.store;
        self.shared.urgent > store.durable() || store.commit_due()
    }

    /// Takes one input; effects are appended to `out`.
    pub fn handle(&mut self, now: Now, input: Input, out: &mut Vec<Output>) {
        if self.shared.now.mono != now.mono || matches!(input, Input::Again { .. }) {
            // Inputs of one batch have the same time, so this one begins another batch and a slice of its
            // own.
            self.shared.slice_left = self.shared.config.portions.slice;
        }
        self.shared.now = now;
        self.shared.now_ns = now.mono.as_nanos() as u64;
        self.shared.leases.begin(now.mono);
        std::mem::swap(&mut self.shared.out, out);
        let before = self.shared.out.len();
        self.track_input(&input);
        if self.shared.fatal.is_none() {
            self.dispatch(input);
            self.run_ready();
            self.shared.reads.look_again(&mut self.shared.out);
            self.report_if_due();
        }
        self.track_outputs(before);
        self.hold_clients_if_full();
        if std::mem::take(&mut self.shared.uncommitted) && self.shared.fatal.is_none() {
            self.shared.out.push(Output::Commit);
        }
        if !self.asked_again && (!self.turns.is_empty() || self.shared.some_ready) {
            self.asked_again = true;
            let at_leisure =
                !self.shared.some_ready && self.turns.wait_for_others(self.shared.is_full_of_paused());
            self.shared.out.push(Output::Again { at_leisure });
        }
        std::mem::swap(&mut self.shared.out, out);
    }

    fn track_input(&mut self, input: &Input) {
        let now = self.shared.now;
        match input {
            Input::Message { conn, tid, msg: Message::OsdOp(_) }
                if self.shared.sessions.contains_key(conn) =>
            {
                self.tracker.arrived(*conn, *tid, now);
            }
            Input::Disconnected { conn } => self.tracker.disconnected(*conn),
            Input::Durable(seq) => self.tracker.durable(*seq, now.mono),
            _ => {}
        }
    }

    fn track_outputs(&mut self, from: usize) {
        let now = self.shared.now;
        for output in self.shared.out.iter().skip(from) {
            if let Output::Reply { conn, tid, msg: Message::OsdOpReply(reply) } = output {
                let client = self.shared.sessions.get(conn).map(|s| s.peer.name);
                self.tracker.answered(*conn, *tid, client, reply, now);
            }
        }
        let dropped = std::mem::take(&mut self.shared.dropped);
        for (conn, tid) in &dropped {
            self.tracker.dropped(*conn, *tid);
        }
        self.tell_senders(&dropped);
        if self.shared.uncommitted && self.shared.urgent > self.shared.store.durable() {
            self.tracker.submitted(self.shared.urgent, now.mono);
        }
    }

    fn dispatch(&mut self, input: Input) {
        match input {
            Input::Connected { conn, peer } => match self.shared.sessions.get_mut(&conn) {
                Some(session) => session.peer = peer,
                None => {
                    let account = self.clients.account(&peer.auth_name);
                    self.shared.sessions.insert(conn, Session::new(peer, account));
                }
            },
            Input::Disconnected { conn } => self.disconnected(conn),
            Input::Message { conn, tid, msg } => self.message(conn, tid, msg),
            Input::FromOsd { osd, msg } => self.osd_message(osd, None, 0, msg),
            Input::FromHeartbeat { osd, net, msg } => self.heartbeat_message(osd, net, &msg),
            Input::FromMon(msg) => self.mon_message(msg),
            Input::FromMgr(msg) => self.mgr_message(&msg),
            Input::MonConnected => self.mon_connected(),
            Input::MgrConnected => self.mgr_connected(),
            Input::OsdRefused { osd } => self.osd_refused(osd),
            Input::OsdReset { osd } => self.osd_reset(osd),
            Input::OldTickets { count } => self.shared.counters.tickets_refused += count,
            Input::Durable(seq) => {
                self.durable(seq);
                self.retry_full();
            }
            Input::Read { id, result } => self.device_has_read(id, result),
            Input::DeviceFailed => self.shared.fail(FatalReason::DeviceFailed),
            Input::Tick => self.tick(),
            Input::Again { unread, free_bytes } => {
                self.asked_again = false;
                self.shared.answers_left = turns::answers(free_bytes);
                self.turns.set_unread(unread);
            }
            Input::Config(options) => self.config_from_mon(options),
            Input::AdminCommand { tid, cmd } => self.admin_command(tid, &[cmd]),
            Input::DisksTold { id, told } => self.disks_told(id, &told),
            Input::Shutdown => self.shutdown(),
        }
    }

    fn tick(&mut self) {
        // Options that change give copies room as well.
        self.no_room_at = None;
        self.boot_tick();
        self.heartbeat_tick();
        self.tell_clients();
        self.full_tick();
        self.retry_full();
        self.parked_tick();
        self.track_tick();
        self.memory_tick();
        if self.boot.is_up() && self.reports.questions_due(self.shared.now.mono, Duration::from_secs(2)) {
            let up_thru = self.shared.up_thru_wanted;
            if self.shared.map.osd(self.shared.whoami).is_some_and(|o| o.info.up_thru < up_thru) {
                self.shared.send_mon(mon::alive(self.shared.epoch(), up_thru));
            }
            for pg in self.pgs.values_mut() {
                pg.repeat_questions(&mut self.shared);
            }
        }
        crate::watch::tick(self);
        // Whoever waits for a lease asks again.
        self.shared.leases.waited = true;
        for pg in self.pgs.values_mut() {
            if pg.phase == crate::pg::Phase::WaitReadable {
                pg.check_prior(&mut self.shared);
            }
            pg.trim_step(&mut self.shared);
            pg.staging_tick(&mut self.shared);
        }
        crate::pg::remove::step(&mut self.shared);
        self.shared.grant_reservations();
        self.merge_tick();
        self.scrub_tick();
        self.send_cluster_log();
        if self.shared.store.submitted() > self.shared.store.durable() {
            self.shared.hurry();
        }
    }

    /// Runs requests that inputs have freed, until none is left.
    fn run_ready(&mut self) {
        self.retry_leases();
        loop {
            let cx = &mut self.shared;
            if std::mem::take(&mut cx.some_ready) {
                for pg in self.pgs.values_mut().filter(|pg| !pg.ready.is_empty()) {
                    pg.run_ready(cx);
                }
            }
            if let Some(msg) = cx.to_ourselves.pop_front() {
                self.pg_message(self.shared.whoami, msg);
            } else if !self.fetch_next()
                && !self.stage_next()
                && !self.gather_next()
                && !self.recover_next()
                && !self.next_turn()
            {
                return self.send_batches();
            }
        }
    }

    /// Runs the request whose turn it is. False when none waits that may run, or when this slice is over.
    fn next_turn(&mut self) -> bool {
        if self.turns.is_empty() || self.shared.is_slice_over() || self.shared.some_ready {
            return false;
        }
        let Some((conn, turn)) = self.turns.pop(self.shared.is_full_of_paused()) else { return false };
        self.start_request(conn, turn);
        true
    }

    /// Lets a PG recover more that had to wait for others; false when none does, or none may.
    fn recover_next(&mut self) -> bool {
        let cx = &mut self.shared;
        let mut next = None;
        if !cx.recovery_waits.is_empty() && cx.may_recover() {
            next = cx.next_turn();
            cx.recovery_turn = next;
        } else if !cx.backfill_waits.is_empty() && cx.has_backfill_place() {
            let urgent = cx.backfill_waits.iter().max_by_key(|(id, p)| (**p, std::cmp::Reverse(**id)));
            next = urgent.map(|(id, _)| *id);
            if let Some(id) = next {
                cx.backfill_waits.remove(&id);
            }
        }
        let Some(id) = next else { return false };
        if let Some(pg) = self.pgs.get_mut(&id) {
            pg.continue_recovery(cx);
        }
        cx.recovery_turn = None;
        true
    }

    fn send_batches(&mut self) {
        let cx = &mut self.shared;
        while let Some(id) = cx.batched.pop_first() {
            if let Some(pg) = self.pgs.get_mut(&id) {
                pg.send_batches(cx);
            }
        }
    }

    fn shutdown(&mut self) {
        self.stopping = true;
        self.superblock.clean = true;
        self.superblock.clean_thru = self.superblock.current_epoch;
        let mut txn = store::Txn::new();
        self.superblock.save(&mut txn);
        self.mark_me_down();
        self.shared.leases.given_up = true;
        self.shared.submit(txn, shared::Done::Stopped);
    }

    /// Connections of clients with requests that wait for `Input::Again`.
    pub fn clients_in_turn(&self) -> impl Iterator<Item = ConnId> {
        self.turns.clients()
    }

    /// The current map.
    pub fn osdmap(&self) -> &Arc<OsdMap> {
        &self.shared.map
    }

    pub fn whoami(&self) -> OsdId {
        self.shared.whoami
    }

    pub fn config(&self) -> &OsdConfig {
        &self.shared.config
    }

    /// The store, for the shell to take commits from and hand their outcome back to.
    pub fn store_mut(&mut self) -> &mut Store {
        &mut self.shared.store
    }

    /// Whether the map says that this OSD is up.
    pub fn is_up(&self) -> bool {
        self.boot.is_up()
    }

    /// Each PG's id and state as its primary sees it (0 elsewhere).
    pub fn pg_states(&self) -> Vec<(SpgId, u64)> {
        self.pgs.iter().map(|(id, pg)| (*id, pg.cluster_state(&self.shared))).collect()
    }

    /// A line on each PG, for traces.
    pub fn pg_lines(&self) -> Vec<String> {
        let line = |pg: &Pg| {
            format!(
                "{} since {} {:?} {:?} head {} missing {} peers {:?}",
                pg.id,
                pg.interval(),
                pg.acting_set(),
                pg.phase,
                pg.log.head(),
                pg.missing.len(),
                pg.peers.keys().map(PgShard::to_string).collect::<Vec<_>>(),
            )
        };
        self.pgs.values().map(line).collect()
    }

    /// Checks the invariants of the OSD and of all its PGs.
    pub fn assert_invariants(&self) {
        assert_eq!(self.superblock.current_epoch, self.shared.epoch(), "1: epochs");
        let mut last = TxnSeq(0);
        for (seq, _) in &self.shared.on_durable {
            assert!(*seq >= last, "2: {seq:?} after {last:?}");
            last = *seq;
        }
        self.tracker.assert_invariants();
        self.turns.assert_invariants();
        self.shared.reads.assert_invariants();
        assert!(self.shared.paused.is_none(), "a request paused and nobody keeps it");
        let copies = || self.pgs.values().flat_map(|pg| pg.copies.values());
        assert!(self.shared.copies_wait || !copies().any(|c| c.waits_for_room()), "a copy waits unseen");
        assert!(self.shared.pieces_wait || self.next_piece().is_none(), "a large write waits unseen");
        let fetched: u64 = copies().map(|c| c.held_bytes()).sum();
        assert!(fetched <= self.clients.fetched().bytes, "{fetched} bytes of copies");
        assert!(self.turns.is_empty() || self.asked_again, "requests wait for a slice that nobody brings");
        let held = self.shared.sessions.iter().flat_map(|(conn, s)| s.backoffs.held().map(|h| (*conn, h)));
        let told = self.pgs.values().flat_map(|pg| pg.backoffs.iter().map(|b| (b.conn, (pg.id, b.id))));
        let told: std::collections::BTreeSet<_> = told.collect();
        assert_eq!(told, held.collect(), "backoffs of PGs and of sessions");
        let recovering = || self.pgs.values().flat_map(|pg| pg.recovering.values());
        assert_eq!(recovering().count(), self.shared.recovery_active, "objects in recovery");
        let bytes: u64 = recovering().map(crate::pg::Recovering::bytes).sum();
        assert_eq!(bytes, self.shared.recovery_bytes, "bytes in recovery");
        let unknown = self.shared.reservations.keys().find(|id| !self.pgs.contains_key(id));
        assert_eq!(unknown, None, "a place for no PG");
        for pg in self.pgs.values() {
            pg.assert_invariants(&self.shared);
            let range = crate::range::pg_range(pg.id.pgid, pg.key.pg_num.max(pg.id.pgid.seed + 1));
            let is_removed = |r: &crate::pg::remove::Removal| r.id.shard == pg.id.shard && r.meets(&range);
            assert!(!self.shared.removals.iter().any(is_removed), "{} is being removed", pg.id);
        }
    }
}

fn fatal(e: MetaError) -> FatalReason {
    match e {
        MetaError::Store(e) => FatalReason::Store(e.to_string()),
        MetaError::Decode { what, error } => FatalReason::Corrupt { what, error },
    }
}

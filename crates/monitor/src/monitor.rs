//! The monitor: routes inputs to services, collects what changes the state into proposals, publishes what was committed.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use admin::options::Values;
use bytes::Bytes;
use codec::{Decode, DecodeError, Encode};
use messages::Message;
use types::{ConnId, Entropy, Epoch, Now};

use crate::io::{Input, Output};
use crate::proposal::{Answer, Batch, InFlight, Proposal, Waiting, decode_snapshot, encode_snapshot};
use crate::service::health_log::Logged;
use crate::service::osd::OsdWatch;
use crate::service::proxy::Proxied;
use crate::session::{Session, Stage};
use crate::settings::{QuorumView, Settings};
use crate::state::{PgDigest, State};

/// Requests that may wait for the next proposal. A client whose request does not fit is disconnected, and comes again.
const WAITING_LIMIT: usize = 50_000;

/// One member of the monitor quorum.
pub struct Monitor {
    pub(crate) settings: Settings,
    /// Options of this process; what is set here by hand wins over `settings.options`.
    pub(crate) values: Values,
    pub(crate) entropy: Box<dyn Entropy>,
    /// As committed.
    pub(crate) state: State,
    /// Of the last committed entry.
    pub(crate) index: u64,
    pub(crate) sessions: BTreeMap<ConnId, Session>,
    pub(crate) waiting: VecDeque<Waiting>,
    in_flight: Option<InFlight>,
    /// Proposals made by this process.
    proposals: u64,
    /// Distinguishes this process's proposals from an earlier one's under the same name.
    origin: String,
    snapshot_index: u64,
    /// What the leader watches and does not replicate.
    pub(crate) watch: OsdWatch,
    pub(crate) mgr_seen: BTreeMap<u64, Duration>,
    /// Versions of the config database and the CRUSH map that sessions' options were last made from.
    pub(crate) options_published: (u64, u32),
    /// Checks as they were last logged; `None` until the first look.
    pub(crate) health_logged: Option<BTreeMap<String, Logged>>,
    pub(crate) proxied: BTreeMap<u64, Proxied>,
    pub(crate) next_proxy_tid: u64,
    /// The last global id given out, and whether logins wait for more.
    pub(crate) last_global_id: u64,
    pub(crate) parked_logins: VecDeque<Input>,
    last_tick: Option<Duration>,
    tick_due: bool,
    log_seq: u64,
}

impl Monitor {
    /// A member that starts from a snapshot: [`Monitor::genesis`] makes the first, [`Monitor::snapshot`] later ones. Log
    /// entries after it follow as [`Input::Committed`].
    pub fn new(
        settings: Settings,
        mut entropy: Box<dyn Entropy>,
        snapshot: &Bytes,
    ) -> Result<Self, DecodeError> {
        let (index, state) = decode_snapshot(snapshot)?;
        let origin = format!("{}/{:016x}", settings.name, entropy.next_u64());
        let values = Values::new(settings.entity().to_string(), &settings.options);
        Ok(Self {
            // Ids below the bound may have been given out by an earlier process.
            last_global_id: state.global_id_bound,
            settings,
            values,
            entropy,
            state,
            index,
            sessions: BTreeMap::new(),
            waiting: VecDeque::new(),
            in_flight: None,
            proposals: 0,
            origin,
            snapshot_index: index,
            watch: OsdWatch::default(),
            mgr_seen: BTreeMap::new(),
            options_published: (0, 0),
            health_logged: None,
            proxied: BTreeMap::new(),
            next_proxy_tid: 1,
            parked_logins: VecDeque::new(),
            last_tick: None,
            tick_due: false,
            log_seq: 0,
        })
    }

    /// Everything committed so far, for [`Monitor::new`].
    pub fn snapshot(&self) -> Bytes {
        encode_snapshot(self.index, &self.state)
    }

    /// The committed state.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The index of the last committed entry.
    pub fn index(&self) -> u64 {
        self.index
    }

    /// Takes one event; what is to be done about it is appended to `out`.
    pub fn handle(&mut self, now: Now, input: Input, out: &mut Vec<Output>) {
        match input {
            Input::AuthRequest { .. } => self.auth_request(now, input, out),
            Input::AuthMore { conn, payload } => self.auth_more(now, conn, &payload, out),
            Input::Connected { conn, peer, addrs, features } => {
                if let Some(s) = self.sessions.get_mut(&conn).filter(|s| s.stage != Stage::Challenged) {
                    s.stage = Stage::Open;
                    s.peer = peer;
                    s.addrs = addrs;
                    s.features = features;
                } else {
                    out.push(Output::Close { conn });
                }
            }
            Input::Disconnected { conn } => {
                self.sessions.remove(&conn);
                self.proxied.retain(|_, p| p.conn != conn);
            }
            Input::Message { conn, header, msg } => self.message(now, conn, header.tid, msg, out),
            Input::Committed { index, change } => self.committed(now, index, &change, out),
            Input::Quorum(view) => self.quorum_changed(now, view, out),
            Input::Tick => {
                self.tick_due = true;
                self.proxy_timeouts(now, out);
            }
        }
        self.run_batch(now, out);
    }

    fn quorum_changed(&mut self, now: Now, view: QuorumView, out: &mut Vec<Output>) {
        let led = self.settings.quorum.is_leader() && self.settings.quorum.term == view.term;
        if self.settings.quorum.term != view.term || self.settings.quorum.members != view.members {
            self.settings.quorum_since = now.mono;
            // What the log brought before may have been given out by an earlier process: a number used twice would make
            // one client's requests look like repetitions of another's.
            self.last_global_id = self.last_global_id.max(self.state.global_id_bound);
        }
        self.settings.quorum = view;
        if led && self.settings.quorum.is_leader() {
            return;
        }
        // Whether the proposal under way is kept is not known: whoever waits for it asks again on a new connection.
        for answer in self.in_flight.take().into_iter().flat_map(|f| f.answers) {
            out.push(Output::Close { conn: answer.conn });
        }
        self.watch = OsdWatch::default();
        self.mgr_seen.clear();
        self.health_logged = None;
        if self.settings.quorum.is_leader() {
            // Whatever the manager said was said to somebody else, perhaps yesterday; it says it again when it finds us.
            self.state.digest = PgDigest::outdated(&self.state.digest).into();
        }
    }

    fn message(&mut self, now: Now, conn: ConnId, tid: u64, msg: Message, out: &mut Vec<Output>) {
        if self.sessions.get(&conn).is_none_or(|s| s.stage != Stage::Open) {
            out.push(Output::Close { conn });
            return;
        }
        match msg {
            Message::Auth(m) => self.auth_renewal(now, conn, tid, &m, out),
            Message::MonGetMap(_) => self.send_monmap(conn, tid, out),
            Message::MonSubscribe(m) => self.subscribe(now, conn, &m, out),
            Message::MonGetVersion(m) => self.get_version(conn, tid, &m, out),
            Message::GetConfig(m) => self.get_config(conn, tid, &m, out),
            Message::MonCommand(m) => self.command(now, conn, tid, m, out),
            Message::Command(m) => self.tell(now, conn, tid, &m, out),
            Message::CommandReply(m) => self.proxied_reply(conn, tid, m, out),
            Message::Statfs(m) => self.statfs(conn, tid, &m, out),
            Message::GetPoolStats(m) => self.pool_stats(conn, tid, &m, out),
            Message::MonGetPurgedSnaps(m) => self.purged_snaps(conn, tid, &m, out),
            Message::Ping(_) => self.pong(now, conn, tid, out),
            other => self.enqueue_if_allowed(conn, tid, other, out),
        }
    }

    /// Lets a request wait for the next batch.
    pub(crate) fn enqueue(&mut self, conn: ConnId, tid: u64, msg: Message, out: &mut Vec<Output>) {
        if self.waiting.len() >= WAITING_LIMIT {
            out.push(Output::Close { conn });
            return;
        }
        self.waiting.push_back(Waiting { conn, tid, msg });
    }

    /// Works through what waits, when nothing is under way and we lead.
    fn run_batch(&mut self, now: Now, out: &mut Vec<Output>) {
        if self.in_flight.is_some() || !self.settings.quorum.is_leader() {
            return;
        }
        if self.waiting.is_empty() && !self.tick_due && self.parked_logins.is_empty() {
            return;
        }
        let mut batch = Batch::new(&self.state);
        let mut again = VecDeque::new();
        for w in std::mem::take(&mut self.waiting) {
            if self.prepare(now, &mut batch, &w, out) == Prepared::Retry {
                again.push_back(w);
            }
        }
        self.waiting = again;
        if std::mem::take(&mut self.tick_due) {
            self.prepare_tick(now, &mut batch);
            self.last_tick = Some(now.mono);
        }
        self.reserve_global_ids(&mut batch);
        if batch.is_empty() {
            let answers = std::mem::take(&mut batch.answers);
            answers.into_iter().for_each(|a| self.answer(a, out));
            return;
        }
        self.propose(now, batch, out);
    }

    fn propose(&mut self, now: Now, batch: Batch, out: &mut Vec<Output>) {
        let asked: Vec<ConnId> = batch.answers.iter().map(|a| a.conn).collect();
        let (changes, answers) = match batch.finish(now, &mut self.log_seq) {
            Ok(done) => done,
            // Somebody's request made a map that does not hold together. None of the batch happened.
            Err(_) => return out.extend(asked.into_iter().map(|conn| Output::Close { conn })),
        };
        if changes.is_empty() {
            answers.into_iter().for_each(|a| self.answer(a, out));
            return;
        }
        self.proposals += 1;
        let proposal = Proposal { origin: self.origin.clone(), number: self.proposals, changes };
        self.in_flight = Some(InFlight { number: self.proposals, answers });
        out.push(Output::Propose { data: proposal.to_bytes() });
    }

    fn committed(&mut self, now: Now, index: u64, change: &Bytes, out: &mut Vec<Output>) {
        if index <= self.index {
            return;
        }
        assert_eq!(index, self.index + 1, "log entries come without gaps");
        self.index = index;
        let before = self.state.osds.newest();
        let proposal = Proposal::from_bytes(change.clone());
        assert!(proposal.is_ok(), "our own log entries decode: {proposal:?}");
        let Ok(proposal) = proposal else { return };
        for change in &proposal.changes {
            let applied = self.state.apply(change);
            assert!(applied.is_ok(), "a committed change applies: {applied:?}");
        }
        if self.state.osds.newest() != before {
            self.osdmap_changed(now, before);
        }
        self.publish(now, out);
        if proposal.origin == self.origin
            && self.in_flight.as_ref().is_some_and(|f| f.number == proposal.number)
        {
            let answers = self.in_flight.take().map(|f| f.answers).unwrap_or_default();
            answers.into_iter().for_each(|a| self.answer(a, out));
        }
        self.resume_logins(now, out);
        if self.index - self.snapshot_index >= self.settings.snapshot_every {
            self.snapshot_index = self.index;
            out.push(Output::TakeSnapshot { index });
        }
    }

    fn answer(&mut self, answer: Answer, out: &mut Vec<Output>) {
        match answer {
            Answer { conn, tid, what: Reporting::Message(msg) } => {
                if self.sessions.contains_key(&conn) {
                    out.push(Output::Send { conn, tid, msg });
                }
            }
            Answer { conn, what: Reporting::OsdMaps { from }, .. } => self.send_osdmaps(conn, from, out),
        }
    }
}

/// What a committed request is answered with.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Reporting {
    Message(Message),
    /// OSD maps from this epoch on.
    OsdMaps {
        from: Epoch,
    },
}

/// Whether a request was dealt with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Prepared {
    Done,
    /// It has to see the outcome of this batch first.
    Retry,
}

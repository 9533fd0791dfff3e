//! The monitor: routes inputs to services, collects what changes the state into proposals, publishes what was committed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use admin::options::Values;
use admin::perf::Resets;
use bytes::Bytes;
use codec::{Decode, DecodeError, Encode};
use maps::ApplyError;
use messages::Message;
use reporter::Reporter;
use types::{AuthName, ConnId, EntityType, Entropy, Epoch, Errno, Now};

use crate::command::Reply;
use crate::contain::contained;
use crate::io::{Input, Output};
use crate::proposal::{Answer, Batch, InFlight, Proposal, Waiting, decode_snapshot, encode_snapshot};
use crate::service::commands::ack;
use crate::service::faults::Faults;
use crate::service::fresh::Freshness;
use crate::service::health_log::Logged;
use crate::service::held::HeldDigest;
use crate::service::mds::MdsSeen;
use crate::service::osd::OsdWatch;
use crate::service::prepare;
use crate::service::proxy::Proxied;
use crate::service::reports::Counters;
use crate::session::{Session, Stage};
use crate::settings::{QuorumView, Settings};
use crate::shares::Shares;
use crate::state::{Change, PgDigest, Priority, State};

/// How long a manager's lines of the log may wait for another proposal: until its next report, and one that
/// is late.
const LINES_WAIT: Duration = Duration::from_secs(6);

/// One member of the monitor quorum.
pub struct Monitor {
    pub(crate) settings: Settings,
    /// Options of this process; what is set here by hand wins over `settings.options`.
    pub(crate) values: Values,
    /// What the config database last said of this monitor.
    pub(crate) given: BTreeMap<String, String>,
    pub(crate) counters: Counters,
    /// From where counters are shown.
    pub(crate) resets: Resets,
    pub(crate) reporter: Reporter,
    /// Whether there is a session with the manager in charge.
    pub(crate) reports: bool,
    pub(crate) entropy: Box<dyn Entropy>,
    /// The committed state.
    pub(crate) state: State,
    /// Whether this program could not apply something that the quorum has committed, perhaps because it is of
    /// an older version. It must not go on then.
    pub(crate) broken: bool,
    /// The index of the last committed entry.
    pub(crate) index: u64,
    pub(crate) sessions: BTreeMap<ConnId, Session>,
    pub(crate) waiting: VecDeque<Waiting>,
    pub(crate) shares: Shares,
    /// Bytes of the payload of the message that is handled: what it is charged for when it has to wait.
    pub(crate) handled_bytes: usize,
    /// Lines and bytes of the cluster log that each entity sent since the last tick.
    pub(crate) logged: BTreeMap<AuthName, (usize, usize)>,
    /// Requests of a batch that came to nothing, because it panicked or gave an invalid map. Each is tried
    /// alone.
    suspects: VecDeque<Waiting>,
    /// Every request for a pool of this name makes a map that does not decode: no request is known that does.
    #[cfg(feature = "planted")]
    pub spoilt: Option<&'static str>,
    /// Part of a tick, or prefix of a command, that panics.
    #[cfg(feature = "planted")]
    pub panics_in: Option<&'static str>,
    /// Parts of a tick that have panicked, of which the cluster log has been told.
    pub(crate) failed_steps: BTreeSet<&'static str>,
    in_flight: Option<InFlight>,
    /// Proposals made by this process.
    proposals: u64,
    /// Distinguishes this process's proposals from an earlier one's under the same name.
    pub(crate) origin: String,
    snapshot_index: u64,
    /// What the leader knows of OSDs and does not replicate.
    pub(crate) watch: OsdWatch,
    pub(crate) mgr_seen: BTreeMap<u64, Duration>,
    /// When managers were last looked at.
    pub(crate) mgr_ticked: Option<Duration>,
    /// The manager that last took its own place, and until when (monotonic) that is made up for.
    pub(crate) mgr_restarts: Option<(String, Duration)>,
    /// Beacons of metadata servers, by daemon.
    pub(crate) mds_seen: BTreeMap<u64, MdsSeen>,
    /// Until when (monotonic) what each key's metadata servers came and went is made up for.
    pub(crate) mds_comes: BTreeMap<AuthName, Duration>,
    /// When (monotonic) they were last looked at.
    pub(crate) mds_ticked: Option<Duration>,
    /// The metadata server that was refused last, of which the cluster log has been told.
    pub(crate) mds_refused: Option<u64>,
    /// What managers said that was refused, of which the cluster log has been told.
    pub(crate) faults: Faults,
    /// OSDs whose boot was refused because they are Ceph's, of which the cluster log has been told.
    pub(crate) osds_of_ceph: BTreeSet<i32>,
    /// Hosts from which monitors of Ceph's were turned away, of which the log has been told.
    pub(crate) mons_of_ceph: BTreeSet<IpAddr>,
    /// Versions of the config database and the CRUSH map that sessions' options were last made from.
    pub(crate) options_published: (u64, u32),
    /// Checks as they were last logged; `None` until the first look.
    pub(crate) health_logged: Option<BTreeMap<String, Logged>>,
    pub(crate) proxied: BTreeMap<u64, Proxied>,
    pub(crate) next_proxy_tid: u64,
    /// The global ids that this monitor may still give out.
    pub(crate) global_ids: std::ops::Range<u64>,
    /// Processes of monitors, perhaps this one, that want more global ids.
    pub(crate) ids_wanted: BTreeSet<String>,
    /// When (monotonic) this monitor last asked for more.
    pub(crate) ids_asked: Option<Duration>,
    pub(crate) parked_logins: VecDeque<Input>,
    pub(crate) fresh: Freshness,
    /// What pings are answered with, and when (monotonic) it was made.
    pub(crate) pong: Option<(Duration, Bytes)>,
    last_tick: Option<Duration>,
    /// Since when (monotonic) lines of a manager's wait alone.
    lines_since: Option<Duration>,
    pub(crate) held: HeldDigest,
    /// When (monotonic) managers that follow the digest were last sent one.
    pub(crate) digests_sent: Option<Duration>,
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
            global_ids: 0..0,
            ids_wanted: BTreeSet::new(),
            ids_asked: None,
            fresh: Freshness::new(entropy.next_u64()),
            // Answers to commands of an earlier life, or of another leader, must not look like answers to ours.
            next_proxy_tid: entropy.next_u64() >> 1,
            reporter: Reporter::new(settings.name.clone()),
            settings,
            values,
            given: BTreeMap::new(),
            counters: Counters::default(),
            resets: Resets::default(),
            reports: false,
            entropy,
            state,
            index,
            sessions: BTreeMap::new(),
            waiting: VecDeque::new(),
            shares: Shares::default(),
            handled_bytes: 0,
            logged: BTreeMap::new(),
            suspects: VecDeque::new(),
            #[cfg(feature = "planted")]
            spoilt: None,
            #[cfg(feature = "planted")]
            panics_in: None,
            failed_steps: BTreeSet::new(),
            in_flight: None,
            broken: false,
            proposals: 0,
            origin,
            snapshot_index: index,
            watch: OsdWatch::default(),
            mgr_seen: BTreeMap::new(),
            mgr_ticked: None,
            mgr_restarts: None,
            mds_seen: BTreeMap::new(),
            mds_comes: BTreeMap::new(),
            mds_ticked: None,
            mds_refused: None,
            faults: Faults::default(),
            osds_of_ceph: BTreeSet::new(),
            mons_of_ceph: BTreeSet::new(),
            options_published: (0, 0),
            health_logged: None,
            proxied: BTreeMap::new(),
            parked_logins: VecDeque::new(),
            pong: None,
            last_tick: None,
            digests_sent: None,
            tick_due: false,
            lines_since: None,
            held: HeldDigest::default(),
            log_seq: 0,
        })
    }

    /// Everything committed so far, for [`Monitor::new`].
    pub fn snapshot(&self) -> Bytes {
        encode_snapshot(self.index, &self.state)
    }

    /// The global id of a client of ours.
    pub fn session_id(&self, conn: ConnId) -> Option<u64> {
        self.sessions.get(&conn).map(|s| s.global_id.0)
    }

    /// Who a client of ours has logged in as.
    pub fn entity_of(&self, conn: ConnId) -> Option<&AuthName> {
        self.sessions.get(&conn).map(|s| &s.name)
    }

    /// Our place in the monitor map.
    pub fn rank(&self) -> Option<u32> {
        u32::try_from(self.state.monmap.rank(&self.settings.name)?).ok()
    }

    /// The quorum as this member sees it.
    pub fn quorum(&self) -> &QuorumView {
        &self.settings.quorum
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
        if self.broken {
            return;
        }
        match input {
            Input::AuthRequest { .. } => self.login(now, input, out),
            Input::AuthMore { conn, payload } => self.auth_more(now, conn, &payload, out),
            Input::Connected { conn, peer, addrs, features } => {
                if let Some(s) = self.sessions.get_mut(&conn).filter(|s| s.stage != Stage::Challenged) {
                    s.stage = Stage::Open;
                    s.peer = peer;
                    s.addrs = addrs;
                    s.features = features;
                    self.counters.sessions_opened += 1;
                    self.mds_came(conn);
                    self.send_changed_tickets(now, conn, out);
                } else {
                    out.push(Output::Close { conn });
                }
            }
            Input::Disconnected { conn } => {
                let session = self.sessions.remove(&conn);
                if let Some(session) = &session {
                    self.mds_left(now, session);
                }
                self.counters.sessions_closed += u64::from(session.is_some_and(|s| s.stage == Stage::Open));
                self.waiting.retain(|w| w.conn != conn);
                self.suspects.retain(|w| w.conn != conn);
                self.proxied.retain(|_, p| p.conn != conn);
                self.forget_asker(conn);
            }
            Input::Message { conn, header, msg, bytes } => {
                self.handled_bytes = bytes;
                self.message(now, conn, header.tid, msg, out);
            }
            Input::Committed { index, change } => self.committed(now, index, &change, out),
            Input::Quorum(view) => self.quorum_changed(now, view, out),
            Input::Fresh { ctx } => self.is_fresh(now, ctx, out),
            Input::Install { state } => self.install(now, &state, out),
            Input::Adopt { conn, who } => self.adopt(conn, *who),
            Input::WantIds { origin } => {
                self.ids_wanted.insert(origin);
            }
            Input::ManagerConnected => self.manager_connected(out),
            Input::ManagerLost => self.manager_lost(out),
            Input::FromManager { tid, msg } => self.manager_said(now, tid, msg, out),
            // These are for the quorum.
            Input::Peer { .. } | Input::PeerLost { .. } | Input::Written { .. } | Input::Resign => {}
            Input::Tick => {
                self.tick_due = true;
                self.proxy_timeouts(now, out);
                self.leave_clients(now, out);
                self.drop_old_reports();
                self.shares.sweep();
                self.logged.clear();
                self.send_due_digests(now, out);
                self.report_if_due(now, out);
            }
        }
        self.run_batch(now, out);
    }

    fn quorum_changed(&mut self, now: Now, view: QuorumView, out: &mut Vec<Output>) {
        let before = std::mem::replace(&mut self.settings.quorum, view);
        let view = &self.settings.quorum;
        self.counters.quorum(&before, view);
        if before.term != view.term || before.members != view.members {
            self.settings.quorum_since = now.mono;
        }
        if before.same_leadership(view) {
            return;
        }
        self.leader_changed(out);
    }

    fn leader_changed(&mut self, out: &mut Vec<Output>) {
        // Whether the proposal under way is kept is not known: whoever waits for it asks again on a new connection.
        for answer in self.in_flight.take().into_iter().flat_map(|f| f.answers) {
            out.push(Output::Close { conn: answer.conn });
        }
        self.forget_forwarded(out);
        // The manager answers to whoever leads now, and that one does not know who asked.
        for proxied in std::mem::take(&mut self.proxied).into_values() {
            out.push(Output::Close { conn: proxied.conn });
        }
        // They were clients of those who followed us.
        self.sessions.retain(|_, s| !s.adopted);
        self.ids_asked = None;
        self.watch = OsdWatch::default();
        self.mgr_seen.clear();
        self.mgr_ticked = None;
        self.mds_seen.clear();
        self.mds_comes.clear();
        self.mds_ticked = None;
        self.health_logged = None;
        self.held.forget();
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
            Message::MonGetOsdMap(m) => self.get_osdmaps(conn, tid, &m, out),
            Message::GetConfig(m) => self.get_config(conn, tid, &m, out),
            Message::Command(m) => self.tell(now, conn, tid, &m, out),
            Message::Ping(_) => self.pong(now, conn, tid, out),
            Message::MonGetVersion(_)
            | Message::MonCommand(_)
            | Message::Statfs(_)
            | Message::GetPoolStats(_)
            | Message::MonGetPurgedSnaps(_) => {
                self.when_fresh(now, Waiting { conn, tid, msg, charge: None }, out)
            }
            Message::CommandReply(_) if !self.settings.quorum.is_leader() => {
                self.enqueue(conn, tid, msg, out)
            }
            Message::CommandReply(m) => self.proxied_reply(conn, tid, m, out),
            other => self.enqueue_if_allowed(conn, tid, other, out),
        }
    }

    /// Answers a question whose answer must not be older than the question.
    pub(crate) fn serve(&mut self, now: Now, w: Waiting, out: &mut Vec<Output>) {
        let Waiting { conn, tid, msg, charge } = w;
        if let Some(charge) = charge {
            self.handled_bytes = charge.bytes();
        }
        if !self.sessions.contains_key(&conn) {
            return;
        }
        match msg {
            Message::MonGetVersion(m) => self.get_version(conn, tid, &m, out),
            Message::MonCommand(m) => self.command(now, conn, tid, m, out),
            Message::Statfs(m) => self.statfs(conn, tid, &m, out),
            Message::GetPoolStats(m) => self.pool_stats(conn, tid, &m, out),
            Message::MonGetPurgedSnaps(m) => self.purged_snaps(conn, tid, &m, out),
            _ => {}
        }
    }

    /// Lets a request wait for the next batch.
    pub(crate) fn enqueue(&mut self, conn: ConnId, tid: u64, msg: Message, out: &mut Vec<Output>) {
        let Some(session) = self.sessions.get(&conn) else { return };
        match self.shares.take(&session.name, self.handled_bytes) {
            Some(charge) => self.waiting.push_back(Waiting { conn, tid, msg, charge: Some(charge) }),
            None => out.push(self.too_much(conn, tid, &msg)),
        }
    }

    /// The answer to a request that its sender's share has no room for. Who waits for no answer comes again.
    pub(crate) fn too_much(&self, conn: ConnId, tid: u64, msg: &Message) -> Output {
        let (Message::MonCommand(m), Some(session)) = (msg, self.sessions.get(&conn)) else {
            return Output::Close { conn };
        };
        let text = format!("too much that {} asked for waits already", session.name);
        ack(conn, tid, &m.cmd, Reply::error(Errno::EBUSY, text))
    }

    /// Works through what waits, when nothing is under way and we lead; sends it to the leader, when somebody else leads.
    fn run_batch(&mut self, now: Now, out: &mut Vec<Output>) {
        if !self.settings.quorum.is_leader() {
            self.waiting.extend(std::mem::take(&mut self.suspects));
            return self.forward_waiting(now, out);
        }
        while self.in_flight.is_none() {
            let patient = self.lines_may_wait(now) && self.waiting.iter().all(|w| self.is_line(w));
            let asked = !self.waiting.is_empty() && !patient;
            let idle = !asked && self.suspects.is_empty() && self.ids_wanted.is_empty();
            if idle && !self.tick_due && self.parked_logins.is_empty() {
                return;
            }
            let suspect = self.suspects.pop_front();
            let alone = suspect.is_some();
            let asked: Vec<Waiting> = match suspect {
                Some(w) => vec![w],
                None => std::mem::take(&mut self.waiting).into(),
            };
            let said = out.len();
            let prepared = contained(|| self.prepare_batch(now, &asked, alone, out));
            let Some((batch, again)) = prepared else {
                // A bug in what somebody asked for. None of the batch happened.
                out.truncate(said);
                self.suspect(now, asked, alone, Suspicion::Bug, out);
                continue;
            };
            let mut taken = Vec::with_capacity(asked.len());
            for (i, w) in asked.into_iter().enumerate() {
                match again.contains(&i) {
                    true => self.waiting.push_back(w),
                    false => taken.push(w),
                }
            }
            match self.propose(now, batch, out) {
                Ok(()) if alone => {}
                Ok(()) => return,
                // Somebody's request made a map that does not hold together. None of the batch happened.
                Err(why) => {
                    out.truncate(said);
                    self.suspect(now, taken, alone, why, out);
                }
            }
        }
    }

    /// Whether lines of a manager's can wait for another entry of the log to go with: Ceph's sends one after
    /// each report, and an entry of its own would cost a monitor's disk as much as the report.
    fn lines_may_wait(&mut self, now: Now) -> bool {
        if !self.waiting.iter().any(|w| self.is_line(w)) {
            self.lines_since = None;
            return false;
        }
        let since = *self.lines_since.get_or_insert(now.mono);
        now.mono.saturating_sub(since) < LINES_WAIT
    }

    fn is_line(&self, w: &Waiting) -> bool {
        let of_manager = self.sessions.get(&w.conn).is_some_and(|s| s.name.kind == EntityType::Mgr);
        of_manager && prepare::is_chatter(&w.msg)
    }

    /// What is asked for as one batch, and which of it has to be tried again after that. A request alone has nothing of the
    /// monitor's own beside it.
    fn prepare_batch(
        &mut self,
        now: Now,
        asked: &[Waiting],
        alone: bool,
        out: &mut Vec<Output>,
    ) -> (Batch, BTreeSet<usize>) {
        let mut batch = Batch::new(&self.state);
        let mut again = BTreeSet::new();
        // A metadata server's newest beacon says all that its earlier ones did.
        let is_beacon = |w: &Waiting| matches!(w.msg, Message::MdsBeacon(_));
        let beacons = asked.iter().enumerate().filter(|(_, w)| is_beacon(w));
        let newest: BTreeMap<ConnId, usize> = beacons.map(|(i, w)| (w.conn, i)).collect();
        // If the batch has other log entries, a manager's go with them, so that their order stays.
        let others = asked.iter().any(|w| matches!(w.msg, Message::Log(_)) && !self.is_line(w));
        let is_early = self.lines_since.is_some_and(|at| now.mono.saturating_sub(at) < LINES_WAIT);
        let lines_wait = is_early && !others && !alone;
        let mut lines = Vec::new();
        for (i, w) in asked.iter().enumerate() {
            if is_beacon(w) && newest.get(&w.conn) != Some(&i) {
                continue;
            }
            if lines_wait && self.is_line(w) {
                lines.push((i, w));
                continue;
            }
            if self.prepare(now, &mut batch, w, out) == Prepared::Retry {
                again.insert(i);
            }
        }
        #[cfg(feature = "planted")]
        if self.spoilt.is_some_and(|name| batch.osdmap().pool_names.values().any(|n| n == name)) {
            batch.osdmap_mut().pools.values_mut().for_each(|p| p.pg_num = maps::MAX_PG_NUM + 1);
        }
        if !alone {
            for osd in std::mem::take(&mut self.watch.to_judge) {
                self.judge_failure(now, &mut batch, osd);
            }
            if std::mem::take(&mut self.tick_due) {
                self.prepare_tick(now, &mut batch);
                self.last_tick = Some(now.mono);
            }
            self.reserve_global_ids(&mut batch);
            self.release_digest(now, &mut batch);
        }
        let is_empty = batch.is_empty();
        for (i, w) in lines {
            if is_empty {
                again.insert(i);
            } else {
                self.prepare(now, &mut batch, w, out);
            }
        }
        (batch, again)
    }

    /// A batch came to nothing: its requests are tried one by one, and one that fails alone is refused.
    fn suspect(&mut self, now: Now, asked: Vec<Waiting>, alone: bool, why: Suspicion, out: &mut Vec<Output>) {
        let (errno, text) = match why {
            Suspicion::Map(error) => {
                (Errno::EINVAL, format!("a change was dropped, for no map can carry it: {error}"))
            }
            Suspicion::Size(bytes) => (Errno::E2BIG, format!("a change of {bytes} bytes was dropped")),
            Suspicion::Bug => (Errno::EIO, "a bug in the monitor: its log has the details".to_owned()),
        };
        match asked.first() {
            Some(w) if alone => {
                let reply = Reply::error(errno, text);
                out.push(match &w.msg {
                    Message::MonCommand(m) => ack(w.conn, w.tid, &m.cmd, reply),
                    _ => Output::Close { conn: w.conn },
                });
            }
            Some(_) => {
                self.tick_due = true;
                self.suspects.extend(asked);
            }
            // The monitor's own doing: it is said once a tick, and requests go on.
            None => {
                let mut batch = Batch::new(&self.state);
                batch.log(self.settings.log_entry(now, Priority::Error, "cluster", text));
                let logged = self.propose(now, batch, out);
                assert!(logged.is_ok(), "a line of the log changes no map: {logged:?}");
            }
        }
    }

    fn propose(&mut self, now: Now, mut batch: Batch, out: &mut Vec<Output>) -> Result<(), Suspicion> {
        if batch.is_empty() {
            let answers = std::mem::take(&mut batch.answers);
            answers.into_iter().for_each(|a| self.answer(a, out));
            return Ok(());
        }
        let finished = contained(|| batch.finish(now, &mut self.log_seq)).ok_or(Suspicion::Bug)?;
        let (changes, answers) = finished.map_err(Suspicion::Map)?;
        if changes.is_empty() {
            answers.into_iter().for_each(|a| self.answer(a, out));
            return Ok(());
        }
        let number = self.proposals + 1;
        let data = Proposal { origin: self.origin.clone(), number, changes }.to_bytes();
        if data.len() > ENTRY_LIMIT {
            return Err(Suspicion::Size(data.len()));
        }
        self.proposals = number;
        self.counters.begun += 1;
        self.counters.begun_bytes += data.len() as u64;
        self.in_flight = Some(InFlight { number, answers });
        out.push(Output::Propose { data });
        Ok(())
    }

    fn committed(&mut self, now: Now, index: u64, change: &Bytes, out: &mut Vec<Output>) {
        if index <= self.index {
            return;
        }
        assert_eq!(index, self.index + 1, "log entries come without gaps");
        self.index = index;
        self.counters.committed += 1;
        let before = self.state.osds.newest();
        let forms = self.state.auth.forms;
        let manager = self.manager_at();
        if change.is_empty() {
            // The quorum's own entry.
            return self.snapshot_if_due(out);
        }
        let Ok(proposal) = Proposal::from_bytes(change.clone()) else {
            self.broken = true;
            return;
        };
        for change in &proposal.changes {
            self.note_ids(change);
            if self.state.apply(change).is_err() {
                self.broken = true;
                return;
            }
            if let Change::AuthSet(name, _) | Change::AuthRemove(name) = change {
                self.renew_sessions(Some(name), out);
            }
        }
        if self.state.osds.newest() != before {
            self.osdmap_changed(now, before);
        }
        if self.state.auth.forms != forms {
            self.send_all_changed_tickets(now, out);
        }
        if self.manager_at() != manager {
            // The shell's session, if there is one, leads to the last one still.
            self.manager_lost(out);
        }
        self.publish_contained(now, out);
        if proposal.origin == self.origin
            && self.in_flight.as_ref().is_some_and(|f| f.number == proposal.number)
        {
            let answers = self.in_flight.take().map(|f| f.answers).unwrap_or_default();
            answers.into_iter().for_each(|a| self.answer(a, out));
        }
        self.resume_logins(now, out);
        self.snapshot_if_due(out);
    }

    fn snapshot_if_due(&mut self, out: &mut Vec<Output>) {
        if self.index - self.snapshot_index >= self.settings.snapshot_every {
            self.snapshot_index = self.index;
            out.push(Output::TakeSnapshot { index: self.index });
        }
    }

    /// Takes over another member's state.
    fn install(&mut self, now: Now, snapshot: &Bytes, out: &mut Vec<Output>) {
        let Ok((index, state)) = decode_snapshot(snapshot) else {
            self.broken = true;
            return;
        };
        let before = self.state.osds.newest();
        self.index = index;
        self.snapshot_index = index;
        self.counters.installed += 1;
        self.state = state;
        self.renew_sessions(None, out);
        self.osdmap_changed(now, before);
        self.send_all_changed_tickets(now, out);
        self.publish_contained(now, out);
    }

    /// What is not sent now is sent after the next change.
    fn publish_contained(&mut self, now: Now, out: &mut Vec<Output>) {
        let mut news = Vec::new();
        if contained(|| self.publish(now, &mut news)).is_some() {
            out.append(&mut news);
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

/// Bytes of one entry of the log. It goes to the other monitors as one message, and they close a connection
/// that brings more than `msgr::Limits::data_bytes`.
const ENTRY_LIMIT: usize = 64 << 20;

/// Why nothing came of a batch.
#[derive(Debug)]
enum Suspicion {
    /// No map can carry what was asked for.
    Map(ApplyError),
    /// The batch is an entry of so many bytes, more than [`ENTRY_LIMIT`].
    Size(usize),
    /// Somebody's request panicked.
    Bug,
}

/// Whether a request was dealt with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Prepared {
    Done,
    /// It has to see the outcome of this batch first.
    Retry,
}

//! The state, and the way of an input through it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use maps::{MdsMap, MdsState, Rank};
use messages::Message;
use messages::fs::{FileName, SnapOp};
use types::{ConnId, Epoch, GlobalId, Ino, Now, SnapId};

use super::cache::{Cache, Key};
use super::disk::Disk;
use super::hold::{self, Until};
use super::io::{Effect, Input, OsdMapView, Settings};
use super::request::{Request, Wait};
use super::session::Session;
use crate::format::{DirFrag, LogEvent, SnapTable};

/// Looking after sessions, statistics and what is to be written.
const TICK: Duration = Duration::from_millis(500);

/// What is in the journal and not in its objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Dirty {
    Dir(DirFrag),
    /// An inode that has an object for itself.
    Base(Ino),
    Backtrace(Ino),
    InoTable,
    Sessions,
    /// A file that is being cut.
    Truncate(Ino),
    /// A stray that the purge queue does not have yet.
    Stray(Ino),
    SnapTable,
}

/// What happens when an event is safe.
#[derive(Debug)]
pub(crate) enum Then {
    /// A client hears something.
    Tell {
        client: GlobalId,
        tid: u64,
        msg: Message,
        is_push: bool,
    },
    /// The answer that a change is safe.
    Safe {
        client: GlobalId,
        tid: u64,
        msg: Message,
    },
    SessionOpened(GlobalId),
    SessionClosed(GlobalId),
    /// A client may write further.
    MaxSize(Ino),
    Truncate(Ino),
    /// The inode has no name any more: perhaps it can go.
    Stray(Ino),
    /// Clients hear of a realm.
    Realm(Ino, SnapOp),
    /// The change of snapshots is safe.
    Snaps,
    Nothing,
}

/// What an event made unsafe until now.
#[derive(Debug)]
pub(crate) struct Settle {
    pub seq: u64,
    pub inodes: Vec<Ino>,
    pub names: Vec<(DirFrag, Key)>,
    pub then: Vec<Then>,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Server {
    pub(crate) settings: Settings,
    pub(crate) now: Now,
    pub(crate) out: Vec<Effect>,
    pub(crate) next_tick: Duration,

    pub(crate) map: MdsMap,
    pub(crate) rank: Rank,
    pub(crate) state: MdsState,
    /// What the beacons ask for.
    pub(crate) wanted: MdsState,
    pub(crate) osd: OsdMapView,
    /// Clients wait for this OSD map before they use what they are given.
    pub(crate) barrier: Epoch,
    pub(crate) is_damaged: bool,

    pub(crate) cache: Cache,
    pub(crate) sessions: BTreeMap<GlobalId, Session>,
    pub(crate) conns: BTreeMap<ConnId, GlobalId>,
    pub(crate) session_version: u64,
    pub(crate) last_cap: u64,

    pub(crate) last_request: u64,
    pub(crate) requests: BTreeMap<u64, Request>,
    pub(crate) waits: BTreeMap<Wait, BTreeSet<u64>>,
    pub(crate) ready: VecDeque<u64>,
    /// Inodes whose capabilities are to be looked at before an input is done with.
    pub(crate) stirred: BTreeSet<Ino>,

    pub(crate) last_seq: u64,
    pub(crate) safe_seq: u64,
    /// Events up to this one are sent without delay.
    pub(crate) hurried: u64,
    /// Since when the journal has entries that were not sent (monotonic).
    unsent_since: Option<Duration>,
    /// The event that opened this segment of the journal.
    pub(crate) segment_start: u64,
    pub(crate) settles: VecDeque<Settle>,
    pub(crate) dirty: BTreeSet<(u64, Dirty)>,
    pub(crate) dirty_at: BTreeMap<Dirty, u64>,
    /// The newest event that changed each.
    pub(crate) changed_at: BTreeMap<Dirty, u64>,
    /// Inodes of whose sums the folder above does not know.
    pub(crate) unsummed: BTreeSet<Ino>,
    pub(crate) next_sum: Duration,

    pub(crate) stage: super::boot::Stage,
    /// Inodes with objects of their own that are being read.
    pub(crate) base_asked: BTreeSet<Ino>,
    /// Until then clients may have leases of a former server.
    pub(crate) old_leases_until: Duration,
    /// Names of which all clients were asked for such leases.
    pub(crate) asked_names: BTreeSet<(DirFrag, Key)>,
    /// Clients that believe to have more than they can have.
    pub(crate) told_less: BTreeSet<(GlobalId, Ino)>,
    /// Strays that may get a name back: the hard link that is to be their primary one.
    pub(crate) homes: BTreeMap<Ino, (DirFrag, Key)>,
    pub(crate) probing: BTreeSet<Ino>,
    /// Strays in snapshots, of which what they are now goes.
    pub(crate) cut_strays: BTreeSet<Ino>,
    pub(crate) snaps: SnapTable,
    /// The event that changed the table last.
    pub(crate) snaps_changed: u64,
    /// Changes of the table that events have and that are not acknowledged in the journal.
    pub(crate) agreed_snaps: BTreeSet<u64>,
    pub(crate) last_table_req: u64,
    pub(crate) snap_change: Option<super::snaps::SnapChange>,
    pub(crate) next_snap_removal: Duration,
    pub(crate) disk: Disk,
    pub(crate) recon: super::reconnect::Reconnect,
}

impl Server {
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            now: Now::default(),
            out: Vec::new(),
            next_tick: Duration::ZERO,
            map: MdsMap::default(),
            rank: maps::NO_RANK,
            state: MdsState::NULL,
            wanted: MdsState::NULL,
            osd: OsdMapView::default(),
            barrier: Epoch(0),
            is_damaged: false,
            cache: Cache::default(),
            sessions: BTreeMap::new(),
            conns: BTreeMap::new(),
            session_version: 0,
            last_cap: 0,
            last_request: 0,
            requests: BTreeMap::new(),
            waits: BTreeMap::new(),
            ready: VecDeque::new(),
            stirred: BTreeSet::new(),
            last_seq: 0,
            safe_seq: 0,
            hurried: 0,
            unsent_since: None,
            segment_start: 0,
            settles: VecDeque::new(),
            dirty: BTreeSet::new(),
            dirty_at: BTreeMap::new(),
            changed_at: BTreeMap::new(),
            unsummed: BTreeSet::new(),
            next_sum: Duration::ZERO,
            stage: super::boot::Stage::default(),
            base_asked: BTreeSet::new(),
            old_leases_until: Duration::ZERO,
            asked_names: BTreeSet::new(),
            told_less: BTreeSet::new(),
            homes: BTreeMap::new(),
            probing: BTreeSet::new(),
            cut_strays: BTreeSet::new(),
            snaps: SnapTable::empty(SnapId(1)),
            snaps_changed: 0,
            agreed_snaps: BTreeSet::new(),
            last_table_req: 0,
            snap_change: None,
            next_snap_removal: Duration::ZERO,
            disk: Disk::default(),
            recon: super::reconnect::Reconnect::default(),
        }
    }

    /// Handles one input and appends what has to be done.
    pub fn handle(&mut self, now: Now, input: Input, out: &mut Vec<Effect>) {
        self.now = now;
        if !self.is_damaged {
            self.take(input);
            loop {
                self.settle_all();
                if !self.take_stored() {
                    break;
                }
            }
            let is_due = self.journal_due().is_some_and(|at| at <= now.mono);
            let all = is_due || self.hurried > self.safe_seq || self.settings.journal_delay.is_zero();
            self.disk.flush(all, now, &mut self.out);
            self.unsent_since = self.disk.has_unsent().then(|| self.unsent_since.unwrap_or(now.mono));
        }
        out.append(&mut self.out);
    }

    fn take(&mut self, input: Input) {
        match input {
            Input::MdsMap(map) => self.on_mds_map(*map),
            Input::OsdMap(view) => self.on_osd_map(view),
            Input::Connected(conn, peer) => self.on_connected(conn, *peer),
            Input::Said { conn, tid, msg } => self.on_said(conn, tid, msg),
            Input::Gone(conn) => self.on_gone(conn),
            Input::ObjectDone(id, reply) => self.disk.done(self.now, id, reply),
            Input::Blocklisted(client, epoch) => self.on_blocklisted(client, epoch),
            Input::Evict(client) => self.evict(client, "an administrator ended it"),
            Input::SnapsRemoved(snaps) => self.on_snaps_removed(snaps),
            Input::Tick => self.tick(),
        }
    }

    /// Runs requests that may go on and looks at capabilities until nothing is left to do.
    fn settle_all(&mut self) {
        loop {
            if let Some(request) = self.ready.pop_front() {
                self.run(request);
            } else if let Some(ino) = self.stirred.pop_first() {
                self.look_at(ino);
            } else {
                break;
            }
        }
    }

    /// When a `Tick` is due (monotonic); `None` while the rank is not served.
    pub fn deadline(&self) -> Option<Duration> {
        let next = self.journal_due().map_or(self.next_tick, |at| at.min(self.next_tick));
        (self.state != MdsState::NULL).then_some(next)
    }

    /// Whether the journal has entries that were not sent yet. For tests.
    pub fn has_unsent(&self) -> bool {
        self.unsent_since.is_some()
    }

    /// When entries of the journal are sent that nobody waits for.
    fn journal_due(&self) -> Option<Duration> {
        self.unsent_since.map(|since| since.saturating_add(self.settings.journal_delay))
    }

    /// Somebody waits for an event: it goes to the journal at once, and what comes before it.
    pub(crate) fn hurry(&mut self, seq: u64) {
        self.hurried = self.hurried.max(seq);
    }

    /// The state that this server has by the newest map.
    pub fn state(&self) -> MdsState {
        self.state
    }

    pub(crate) fn is_serving(&self) -> bool {
        matches!(self.state, MdsState::ACTIVE | MdsState::STOPPING)
    }

    fn on_said(&mut self, conn: ConnId, tid: u64, msg: Message) {
        let Some(client) = self.conns.get(&conn).copied() else { return };
        match msg {
            Message::ClientSession(m) => self.on_session(client, m),
            Message::ClientReconnect(m) => self.on_reconnect(client, m),
            Message::ClientRequest(m) => self.on_request(client, tid, m),
            Message::ClientCaps(m) => self.on_caps(client, tid, *m),
            Message::ClientCapRelease(m) => self.on_cap_release(client, &m),
            Message::ClientLease(m) => self.on_lease(client, &m),
            Message::ClientReclaim(m) => self.on_reclaim(client, &m),
            Message::ClientMetrics(_) => {}
            _ => {}
        }
    }

    fn on_osd_map(&mut self, view: OsdMapView) {
        if view.epoch < self.osd.epoch {
            return;
        }
        self.osd = view;
        self.wake(&Wait::OsdMap);
        let shut_out: Vec<GlobalId> = self
            .sessions
            .iter()
            .filter(|(_, s)| self.osd.blocklisted.contains(&s.info.client.addr))
            .map(|(c, _)| *c)
            .collect();
        for client in shut_out {
            self.kill_session(client);
        }
        self.boot_step();
    }

    fn tick(&mut self) {
        if self.now.mono < self.next_tick {
            return;
        }
        self.next_tick = self.now.mono + TICK;
        self.disk.tick(self.now);
        self.boot_step();
        self.reconnect_tick();
        self.tick_sessions();
        if self.is_serving() {
            self.tick_caps();
            self.expire_leases();
            if self.now.mono >= self.next_sum {
                self.next_sum = self.now.mono + self.settings.stat_interval;
                self.sum_all();
            }
            self.trim_cache();
            self.ask_to_remove_snaps();
        }
        self.write_back();
    }

    /// The next event's number.
    pub(crate) fn next_seq(&mut self) -> u64 {
        self.last_seq += 1;
        self.last_seq
    }

    /// Hands the event of the last number to the journal.
    pub(crate) fn append(&mut self, event: LogEvent) {
        let seq = self.last_seq;
        self.journal(seq, event);
    }

    pub(crate) fn settle_at(&mut self, seq: u64, inodes: Vec<Ino>, names: Vec<(DirFrag, Key)>) {
        self.settles.push_back(Settle { seq, inodes, names, then: Vec::new() });
    }

    /// What is to happen when the newest event is safe, which somebody waits for.
    pub(crate) fn when_safe(&mut self, seq: u64, then: Then) {
        self.hurry(seq);
        self.when_safe_at_last(seq, then);
    }

    /// The same where nobody waits.
    pub(crate) fn when_safe_at_last(&mut self, seq: u64, then: Then) {
        if seq <= self.safe_seq {
            return self.do_then(then);
        }
        match self.settles.back_mut().filter(|s| s.seq == seq) {
            Some(settle) => settle.then.push(then),
            None => {
                let then = vec![then];
                self.settles.push_back(Settle { seq, inodes: Vec::new(), names: Vec::new(), then });
            }
        }
    }

    /// Events up to this one are safe.
    pub(crate) fn on_safe(&mut self, seq: u64) {
        self.safe_seq = self.safe_seq.max(seq);
        while self.settles.front().is_some_and(|s| s.seq <= seq) {
            let Some(settle) = self.settles.pop_front() else { break };
            self.settle(settle);
        }
        let is_safe = |w: &&Wait| matches!(w, Wait::Safe(s) if *s <= seq);
        let safe: Vec<Wait> = self.waits.keys().filter(is_safe).cloned().collect();
        safe.iter().for_each(|w| self.wake(w));
    }

    fn settle(&mut self, settle: Settle) {
        let mut roomier = Vec::new();
        for ino in settle.inodes {
            let safe = self.safe_seq;
            let Some(inode) = self.cache.get_mut(ino) else { continue };
            if inode.unsafe_until <= settle.seq {
                inode.unsafe_until = 0;
                inode.safe_version = inode.store.inode.version;
                let ranges = inode.store.inode.client_ranges.iter().map(|(c, r)| (*c, r.last)).collect();
                if std::mem::replace(&mut inode.safe_ranges, ranges) != inode.safe_ranges {
                    roomier.push(ino);
                }
            }
            inode.holds.retain(|h| !matches!(h.until, Until::Safe(s) if s <= safe));
            self.stirred.insert(ino);
        }
        for (frag, key) in settle.names {
            if let Some(dentry) = self.cache.dentry_mut(frag, &key) {
                if dentry.unsafe_by.is_some_and(|(_, s)| s <= settle.seq) {
                    dentry.unsafe_by = None;
                }
            }
        }
        // The event that made the room may have been safe while a later one of the inode was not.
        roomier.into_iter().for_each(|ino| self.tell_max_size(ino));
        settle.then.into_iter().for_each(|then| self.do_then(then));
    }

    fn do_then(&mut self, then: Then) {
        match then {
            Then::Tell { client, tid, msg, is_push } => match is_push {
                true => self.push(client, tid, msg),
                false => self.tell(client, tid, msg),
            },
            Then::Safe { client, tid, msg } => {
                if let Some(session) = self.sessions.get_mut(&client) {
                    session.unsafe_requests.remove(&tid);
                }
                self.tell(client, tid, msg);
            }
            Then::SessionOpened(client) => self.session_opened(client),
            Then::SessionClosed(client) => self.session_closed(client),
            Then::MaxSize(ino) => self.tell_max_size(ino),
            Then::Truncate(ino) => self.begin_truncate(ino),
            Then::Stray(ino) => self.look_at_stray(ino),
            Then::Realm(ino, op) => self.tell_realm(ino, op),
            Then::Snaps => self.snaps_changed(),
            Then::Nothing => {}
        }
    }

    /// Notes that something is in the journal and not in its objects since this event.
    pub(crate) fn mark_dirty(&mut self, what: Dirty, seq: u64) {
        self.changed_at.insert(what, seq);
        let since = *self.dirty_at.entry(what).or_insert(seq);
        self.dirty.insert((since, what));
    }

    pub(crate) fn mark_clean(&mut self, what: Dirty) {
        self.changed_at.remove(&what);
        if let Some(seq) = self.dirty_at.remove(&what) {
            self.dirty.remove(&(seq, what));
        }
    }

    pub(crate) fn mark_dir_dirty(&mut self, frag: DirFrag, seq: u64) {
        if let Some(dir) = self.cache.dirs.get_mut(&frag) {
            dir.dirty_since.get_or_insert(seq);
        }
        self.mark_dirty(Dirty::Dir(frag), seq);
    }

    /// Says something to a client that has a connection.
    pub(crate) fn tell(&mut self, client: GlobalId, tid: u64, msg: Message) {
        if let Some(conn) = self.sessions.get(&client).and_then(|s| s.conn) {
            self.out.push(Effect::Send { conn, tid, msg });
        }
    }

    /// The same, counted: the client states how many such messages it has seen when it closes.
    pub(crate) fn push(&mut self, client: GlobalId, tid: u64, msg: Message) {
        if let Some(session) = self.sessions.get_mut(&client).filter(|s| s.conn.is_some()) {
            session.pushes += 1;
        }
        self.tell(client, tid, msg);
    }

    pub(crate) fn damaged(&mut self, why: String) {
        self.is_damaged = true;
        self.out.push(Effect::Damaged(why));
    }

    /// Checks the invariants of everything that is here. For tests.
    pub fn assert_invariants(&self) {
        self.cache.assert_invariants();
        self.cache.inodes.values().for_each(hold::assert_coherent);
        for (client, session) in &self.sessions {
            for ino in &session.caps {
                let has = self.cache.get(*ino).is_some_and(|i| i.caps.contains_key(client));
                assert!(has, "client {client} has a capability of {ino} by its session alone");
            }
        }
        for (ino, inode) in &self.cache.inodes {
            for client in inode.caps.keys() {
                let knows = self.sessions.get(client).is_some_and(|s| s.caps.contains(ino));
                assert!(knows, "the session of {client} does not know of {ino}");
            }
        }
        for (seq, what) in &self.dirty {
            assert_eq!(self.dirty_at.get(what), Some(seq), "{what:?}");
        }
        for (wait, requests) in &self.waits {
            assert!(!requests.is_empty(), "{wait:?} without requests");
            for id in requests {
                let waits = self.requests.get(id).map(|r| &r.wait);
                assert_eq!(waits, Some(&Some(wait.clone())), "request {id}");
            }
        }
    }

    /// Inodes in memory. For tests and counters.
    pub fn inodes(&self) -> usize {
        self.cache.inodes.len()
    }
}

/// A name that may be in a folder. Source: Server::rdlock_path_xlock_dentry, NAME_MAX.
pub(crate) fn is_good_name(name: &FileName) -> bool {
    !name.is_empty() && !name.iter().any(|b| matches!(b, 0 | b'/')) && !matches!(name.as_ref(), b"." | b"..")
}

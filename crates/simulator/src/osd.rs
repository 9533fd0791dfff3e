//! The OSD's shell in the simulation: its device and jobs, its sessions, death and return.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use codec::Decode;
use maps::MgrMap;
use messages::Message;
use messages::mon::{MMonSubscribe, SubscribeItem};
use messages::osd::{MOsdOp, MOsdOpReply, OpCode};
use pg::{BootAddrs, FatalReason, Input, LogLevel, OsdConfig, OsdCore, Output};
use store::{FormatOptions, ObjectKey, Options, Store};
use testkit::SimDevice;
use types::{ConnId, Epoch, Fsid, OsdId};

use crate::acks::Undurable;
use crate::device::{self, Job};
use crate::faults::{Death, Trigger};
use crate::holds::Holds;
use crate::losses::NewDisk;
use crate::mon::osd_uuid;
use crate::mutant::Mutant;
use crate::net::{Delivery, End, Node};
use crate::queue::{MILLISECOND, SECOND};
use crate::reads::DeviceRead;
use crate::scenario::Scenario;
use crate::slices::Batch;
use crate::world::{Event, FSID, MonLink, World, addr_of, life_of};

/// Invariants are checked after every so many inputs.
const CHECK_EVERY: u64 = 97;

/// An OSD's process and its device.
pub struct OsdHost {
    pub core: Option<OsdCore>,
    pub device: Arc<SimDevice>,
    pub life: u32,
    pub silent: bool,
    pub mon: MonLink,
    /// Sessions that it opened, and to which life.
    peers: BTreeMap<i32, (ConnId, u32)>,
    mgr: Option<ConnId>,
    mgr_life: u32,
    pub committing: Option<Job>,
    pub checkpointing: Option<Job>,
    /// Reads under way, by their numbers.
    pub reads: BTreeMap<u64, DeviceRead>,
    /// How many jobs there were.
    pub jobs: u64,
    pub commit_wanted: bool,
    /// The device takes so many times longer.
    pub slow: u64,
    /// The device was told to fail: a stop is what is expected.
    pub failing: bool,
    inputs: u64,
    /// The batch of inputs that it handles.
    pub batch: Batch,
    pub holds: Holds,
    /// What it has submitted and not made durable.
    pub undurable: Undurable,
    /// That of its newest map, which it keeps in death.
    pub epoch: Epoch,
    /// The device at the last start, for a mutant.
    old: Option<Arc<SimDevice>>,
    /// Its disk is one that was given up: a stop is what is expected.
    pub refusable: bool,
    /// In which life its disk was first used.
    pub first_life_of_disk: u32,
    /// A disk that was taken out.
    pub taken: Option<Arc<SimDevice>>,
    /// Its disk is lost, and another one is on its way.
    pub awaits: Option<NewDisk>,
    /// Its monotonic clock runs at so many parts per thousand.
    pub rate: u64,
    /// Seconds that its wall clock is ahead of the others.
    pub skew_s: i64,
}

impl OsdHost {
    /// `clock`: rate in parts per thousand, and seconds ahead.
    pub fn new(
        osd: i32,
        clock: (u64, i64),
        [device_mb, log_kb]: [u64; 2],
    ) -> Result<Self, store::StoreError> {
        let device = SimDevice::new(device_mb << 20);
        let options = FormatOptions { fsid: FSID, osd_uuid: osd_uuid(osd), log_bytes: Some(log_kb << 10) };
        Store::format(&device, options)?;
        Ok(Self {
            core: None,
            device: Arc::new(device),
            life: 0,
            silent: false,
            mon: MonLink::default(),
            peers: BTreeMap::new(),
            mgr: None,
            mgr_life: 0,
            committing: None,
            checkpointing: None,
            reads: BTreeMap::new(),
            jobs: 0,
            commit_wanted: false,
            slow: 1,
            failing: false,
            inputs: 0,
            batch: Batch::default(),
            holds: Holds::default(),
            undurable: Undurable::default(),
            epoch: Epoch(0),
            old: None,
            refusable: false,
            first_life_of_disk: 0,
            taken: None,
            awaits: None,
            rate: clock.0,
            skew_s: clock.1,
        })
    }
}

/// What an OSD is told of the scenario.
fn config_of(scenario: &Scenario) -> OsdConfig {
    let o = &scenario.options;
    let (log_entries, dups_tracked) = o.remembered(scenario.mutant);
    OsdConfig {
        min_pg_log_entries: log_entries,
        max_pg_log_entries: log_entries * 4,
        pg_log_trim_min: 3,
        pg_log_dups_tracked: dups_tracked,
        heartbeat_interval: std::time::Duration::from_secs(o.heartbeat_interval_s),
        heartbeat_grace: std::time::Duration::from_secs(o.heartbeat_grace_s),
        // Minutes are seconds here, and faults come without end.
        max_markdown_count: usize::MAX,
        backfill_scan_max: o.backfill_scan,
        portions: pg::Portions {
            slice: o.slice_bytes,
            stage_from: o.stage.0,
            stage_piece: o.stage.1,
            ..pg::Portions::default()
        },
        client_message_cap: o.room,
        beacon_interval: std::time::Duration::from_secs(o.beacon_s),
        #[cfg(feature = "planted")]
        planted: scenario.mutant.and_then(Mutant::in_osds),
        ..OsdConfig::default()
    }
}

impl World {
    fn osd(&mut self, osd: i32) -> &mut OsdHost {
        &mut self.osds[osd as usize]
    }

    pub fn start_osd(&mut self, osd: i32) {
        let config = config_of(&self.scenario);
        let mutant = self.scenario.mutant;
        let host = self.osd(osd);
        host.life += 1;
        host.silent = false;
        host.failing = false;
        host.epoch = Epoch(0);
        if mutant == Some(Mutant::OldDisk) {
            if let Some(old) = host.old.take() {
                host.device = old;
            }
            host.old = Some(Arc::new(host.device.fork()));
        }
        host.device.clear_faults();
        // In every other life what is not in memory has to be waited for.
        host.device.set_slow(host.life % 2 == 1);
        let at = addr_of(Node::Osd(osd), host.life);
        let addrs = BootAddrs {
            public: at.clone(),
            cluster: at.clone(),
            heartbeat_front: at.clone(),
            heartbeat_back: at,
            ..BootAddrs::default()
        };
        let options = Options {
            memory_bytes: 16 << 20,
            discard_min_bytes: 8 << 10,
            discard_after: Duration::from_secs(3),
            expect_fsid: Some(FSID),
            #[cfg(feature = "planted")]
            planted: mutant.and_then(Mutant::in_stores),
            ..Options::default()
        };
        let opened = Store::open(host.device.clone(), options)
            .map_err(|e| format!("the store does not open: {e}"))
            .and_then(|store| OsdCore::new(OsdId(osd), config, store, addrs).map_err(|e| e.to_string()));
        let life = host.life;
        match opened {
            Ok(core) => host.core = Some(core),
            Err(e) if host.refusable => {
                self.board.count("disks refused");
                return self.say(|| format!("osd.{osd} refuses its disk: {e}"));
            }
            Err(e) => return self.violation(format!("O8: osd.{osd} does not start: {e}")),
        }
        self.seek_mon(Node::Osd(osd), life);
        let first = self.rng.below(500 * MILLISECOND);
        self.plan_in(first, Event::Tick { node: Node::Osd(osd), life });
    }

    pub fn crash_osd(&mut self, osd: i32, death: Death) {
        // Calls that the jobs under way still make.
        let (a, b) = (self.rng.below(6), self.rng.below(40));
        let host = &mut self.osds[osd as usize];
        let Some(mut core) = host.core.take() else { return };
        let seen = core.store_mut().counters();
        if host.refusable && seen.corrupt_pages + seen.corrupt_blocks > 0 {
            self.board.count("disks seen through");
        }
        drop(core);
        host.silent = death == Death::PowerLoss;
        self.frozen.remove(&Node::Osd(osd));
        let host = &mut self.osds[osd as usize];
        host.device.clear_faults();
        // The jobs under way reach the device in part.
        let device = host.device.clone();
        let jobs = [(host.committing.take(), a), (host.checkpointing.take(), b)];
        device::die(&device, jobs, &mut self.rng);
        let host = &mut self.osds[osd as usize];
        host.device = Arc::new(device.crash_randomly(&mut self.rng));
        host.peers.clear();
        host.reads.clear();
        host.mgr = None;
        host.mgr_life = 0;
        host.mon = MonLink::default();
        host.commit_wanted = false;
        host.batch = Batch::default();
        host.holds = Holds::default();
        host.undurable = Undurable::default();
        self.drop_connections(Node::Osd(osd), death);
    }

    pub fn osd_tick(&mut self, osd: i32) {
        self.reach_mgr(osd);
        self.osd_input(osd, Input::Tick);
        self.osd_discard(osd);
        self.tick_wire(osd);
    }

    pub fn osd_input(&mut self, osd: i32, input: Input) {
        let mut now = self.time_of_batch(osd);
        if self.scenario.mutant == Some(Mutant::SlowClock) && osd == 0 {
            // Its wall clock would end leases in time.
            now.wall = types::Utime::from_unix(Duration::from_secs(1_700_000_000) + now.mono / 30);
            now.mono /= 30;
        }
        let host = &mut self.osds[osd as usize];
        let Some(core) = &mut host.core else { return };
        let mut out = std::mem::take(&mut self.spare.osd);
        core.handle(now, input, &mut out);
        host.undurable.look(core);
        host.inputs += 1;
        if host.inputs % CHECK_EVERY == 0 {
            core.assert_invariants();
        }
        let epoch = core.osdmap().epoch;
        if epoch < host.epoch {
            let text = format!("O7: osd.{osd} went back from map {} to {epoch}", host.epoch);
            return self.violation(text);
        }
        host.epoch = epoch;
        for o in out.drain(..) {
            self.osd_output(osd, o);
        }
        self.spare.osd = out;
        self.osd_commit(osd);
    }

    fn osd_output(&mut self, osd: i32, output: Output) {
        match output {
            Output::Reply { conn, tid, msg } => {
                self.check_reply(osd, conn, tid, &msg);
                self.net.send(self.now, conn, End::Target, tid, msg);
            }
            // There is one network here: what comes back counts for both.
            Output::SendOsd { osd: to, msg }
            | Output::Heartbeat { osd: to, net: pg::HeartbeatNet::Back, msg } => {
                self.send_osd(osd, to.0, msg)
            }
            Output::Heartbeat { .. } => {}
            Output::SendMon(msg) => self.send_mon(Node::Osd(osd), 0, msg),
            Output::SendMgr(msg) => {
                if let Some(conn) = self.osds[osd as usize].mgr {
                    self.net.send(self.now, conn, End::Opener, 0, msg);
                }
            }
            Output::Commit => {
                self.osd(osd).commit_wanted = true;
                self.ack_early(osd);
            }
            Output::Read { id, plan } => self.plan_device_read(osd, id, plan),
            Output::Again { at_leisure } => self.plan_slice(osd, at_leisure),
            Output::CloseConn { conn } => self.net.close(self.now, conn, End::Target),
            Output::DropOsd { osd: to } => self.drop_osd(osd, to.0),
            // Nobody asks over an admin socket, nor for disks.
            Output::MapChanged | Output::Stopped => {}
            Output::AdminReply { .. } | Output::AskDisks { .. } => {}
            Output::HoldClients(hold) => self.hold_clients(osd, None, hold),
            Output::HoldClient { conn, hold } => self.hold_clients(osd, Some(conn), hold),
            Output::Up => self.say(|| format!("osd.{osd} is up")),
            Output::ClusterLog { level, text } => {
                self.say(|| format!("cluster log {level:?}: {text}"));
                // An object whose only holder is down may be unfound: O5 says whether it is found again. A
                // PG knows what a deep scrub found until the next one, also when it was mended meanwhile.
                let excused = text.ends_with("is unfound")
                    || text.ends_with("deep-scrub details will be lost") && self.has_rotted()
                    || self.osds[osd as usize].failing;
                if level == LogLevel::Error && !excused && !self.rot_is_known() {
                    self.violation(format!("osd.{osd} logged an error: {text}"));
                }
            }
            Output::Fatal(reason) => self.osd_stops(osd, &reason),
        }
    }

    /// An OSD ends its session with another one.
    pub fn drop_osd(&mut self, osd: i32, to: i32) {
        if let Some((conn, _)) = self.osd(osd).peers.remove(&to) {
            self.net.lose_tail(conn, End::Target);
            self.net.close(self.now, conn, End::Opener);
        }
    }

    /// An OSD says that it cannot go on; where that is expected, no violation.
    fn osd_stops(&mut self, osd: i32, reason: &FatalReason) {
        let host = &self.osds[osd as usize];
        let expected = host.failing || host.refusable;
        self.say(|| format!("osd.{osd} stops: {reason}"));
        let failing = host.failing;
        if host.refusable {
            self.board.count("disks given up");
        }
        if failing {
            self.happened("devices failed");
        }
        if !expected {
            self.violation(format!("osd.{osd} stopped: {reason}"));
        }
        self.crash_osd(osd, Death::Killed);
        if self.healed {
            // What a write lost before the end of the faults was told afterwards.
            self.plan_in(SECOND, Event::Start(Node::Osd(osd)));
        }
    }

    fn send_osd(&mut self, osd: i32, to: i32, msg: Message) {
        let Some(core) = &self.osds[osd as usize].core else { return };
        let life = core.osdmap().osd(to).map_or(0, |o| life_of(&o.cluster_addrs));
        if life == 0 {
            return;
        }
        let conn = match self.osds[osd as usize].peers.get(&to).copied() {
            Some((conn, known)) if known == life => conn,
            other => {
                if let Some((old, _)) = other {
                    self.net.close(self.now, old, End::Opener);
                }
                let conn = self.connect(Node::Osd(osd), Node::Osd(to), life, false);
                self.osd(osd).peers.insert(to, (conn, life));
                conn
            }
        };
        self.net.send(self.now, conn, End::Opener, 0, msg);
    }

    pub fn osd_message(&mut self, osd: i32, d: Delivery, other: Node, tid: u64, msg: Message) {
        if d.to == End::Target {
            let msg = match self.mutate_request(osd, d.conn, tid, msg) {
                Some(msg) => msg,
                None => return,
            };
            return self.osd_hears(osd, d.conn, other, Input::Message { conn: d.conn, tid, msg });
        }
        match other {
            Node::Osd(from) => self.osd_input(osd, Input::FromOsd { osd: OsdId(from), msg }),
            Node::Mgr => self.osd_input(osd, Input::FromMgr(msg)),
            Node::Mon(_) if self.osds[osd as usize].mon.conn == Some(d.conn) => match msg {
                Message::MgrMap(m) => {
                    if let Ok(map) = MgrMap::from_bytes(m.map.0) {
                        let life = life_of(&map.active_addrs);
                        self.follow_mgr(osd, life);
                    }
                }
                Message::Config(m) => self.osd_input(osd, Input::Config(m.options.into_iter().collect())),
                msg => self.osd_from_mon(osd, msg),
            },
            _ => {}
        }
    }

    fn osd_from_mon(&mut self, osd: i32, msg: Message) {
        let known = self.osds[osd as usize].epoch;
        let gap = match &msg {
            Message::OsdMap(m) => known > Epoch(0) && m.first().is_some_and(|first| first > known.next()),
            _ => false,
        };
        self.osd_input(osd, Input::FromMon(msg));
        if gap && self.osds[osd as usize].epoch > known {
            self.happened("maps skipped");
        }
    }

    pub fn osd_mon_ready(&mut self, osd: i32) {
        let what = [("mgrmap", 0), ("config", 0)]
            .map(|(name, start)| (name.to_owned(), SubscribeItem { start, flags: 0 }));
        let msg = MMonSubscribe { what: what.into(), ..MMonSubscribe::default() };
        self.send_mon(Node::Osd(osd), 0, msg.into());
        self.osd_input(osd, Input::MonConnected);
    }

    fn follow_mgr(&mut self, osd: i32, life: u32) {
        let host = self.osd(osd);
        if host.mgr_life != life {
            host.mgr_life = life;
            if let Some(old) = host.mgr.take() {
                self.net.close(self.now, old, End::Opener);
            }
        }
        self.reach_mgr(osd);
    }

    fn reach_mgr(&mut self, osd: i32) {
        let host = &self.osds[osd as usize];
        if host.mgr.is_none() && host.mgr_life > 0 {
            let conn = self.connect(Node::Osd(osd), Node::Mgr, host.mgr_life, true);
            self.osd(osd).mgr = Some(conn);
        }
    }

    pub fn osd_mgr_gone(&mut self, osd: i32, conn: ConnId) {
        let host = self.osd(osd);
        if host.mgr == Some(conn) {
            host.mgr = None;
        }
    }

    // Disks that are changed.

    /// An empty disk; the one before is kept.
    pub fn new_disk(&mut self, osd: i32, uuid: u8) {
        let o = &self.scenario.options;
        let (device, log_bytes) = (SimDevice::new(o.device_mb << 20), o.log_kb << 10);
        let host = self.osd(osd);
        if host.core.is_some() {
            return;
        }
        let options = FormatOptions { fsid: FSID, osd_uuid: Fsid([uuid; 16]), log_bytes: Some(log_bytes) };
        if let Err(e) = Store::format(&device, options) {
            return self.violation(format!("a new disk cannot be formatted: {e}"));
        }
        host.taken = Some(std::mem::replace(&mut host.device, Arc::new(device)));
        host.refusable = false;
        host.first_life_of_disk = host.life + 1;
    }

    /// The disk that was taken out is back; the present one is kept.
    pub fn old_disk(&mut self, osd: i32) {
        let host = self.osd(osd);
        if host.core.is_some() {
            return;
        }
        if let Some(taken) = host.taken.take() {
            host.refusable = !host.refusable;
            host.first_life_of_disk = host.life + 1;
            host.taken = Some(std::mem::replace(&mut host.device, taken));
        }
    }

    // Checks and mutants at the door.

    /// O7: a version of a PG belongs to one request.
    fn check_reply(&mut self, osd: i32, conn: ConnId, tid: u64, msg: &Message) {
        let Message::OsdOpReply(r) = msg else { return };
        if r.replay_version.version > 0 && r.result >= 0 {
            self.check_acknowledged(osd, r.pgid, r.replay_version);
        }
        let Some((Node::Client(client), life)) = self.net.conn(conn).map(|c| (c.nodes[0], c.lives[0])) else {
            return;
        };
        if self.clients[client].life != life {
            return;
        }
        if r.replay_version.version == 0 || r.result < 0 {
            return;
        }
        self.pull(Trigger::Answer, Node::Osd(osd));
        let owner = (self.clients[client].mon.global_id as i64, tid);
        let known = *self.versions.entry((r.pgid, r.replay_version)).or_insert(owner);
        if known != owner {
            let text = format!(
                "O7: osd.{osd} gave version {} of pg {} to {owner:?}, which {known:?} had",
                r.replay_version, r.pgid
            );
            self.violation(text);
        }
    }

    fn ack_early(&mut self, osd: i32) {
        let primary_only = match self.scenario.mutant {
            Some(Mutant::AckEarly) => false,
            Some(Mutant::ReplicaAckEarly) => true,
            _ => return,
        };
        if primary_only && osd == 0 {
            return;
        }
        if let Some(core) = &mut self.osd(osd).core {
            let seq = core.store_mut().submitted();
            self.osd_input(osd, Input::Durable(seq));
        }
    }

    fn mutate_request(&mut self, osd: i32, conn: ConnId, tid: u64, msg: Message) -> Option<Message> {
        let Message::OsdOp(mut m) = msg else { return Some(msg) };
        match self.scenario.mutant {
            Some(Mutant::ForgetRequests) if m.retry_attempt > 0 => {
                m.explicit_reqid.inc = m.retry_attempt;
                Some(m.into())
            }
            Some(Mutant::WatchesForever) => {
                for op in m.ops.iter_mut().filter(|op| op.code == OpCode::WATCH) {
                    op.arg[21..25].copy_from_slice(&1_000_000u32.to_le_bytes());
                }
                Some(m.into())
            }
            Some(Mutant::ReadAnyCopy) if m.ops.iter().all(|op| op.code.is_read()) => {
                let reply = self.read_copy(osd, &m)?;
                self.net.send(self.now, conn, End::Target, tid, reply.into());
                None
            }
            _ => Some(m.into()),
        }
    }

    /// What this OSD's store holds of the object, whatever its PG thinks.
    fn read_copy(&mut self, osd: i32, m: &MOsdOp) -> Option<MOsdOpReply> {
        let core = self.osd(osd).core.as_mut()?;
        let epoch = core.osdmap().epoch;
        let key = ObjectKey::replicated(m.object.clone());
        let store = core.store_mut();
        let Some(stat) = store.stat(&key).ok()? else {
            return Some(MOsdOpReply::to(m, crate::history::ENOENT, epoch, 0));
        };
        let mut reply = MOsdOpReply::to(m, 0, epoch, 0);
        for op in &mut reply.ops {
            op.outdata = match op.code {
                OpCode::READ => store.read(&key, 0, stat.size).ok()?,
                OpCode::GETXATTRS => crate::copies::user_attrs(store, &key)?,
                _ => crate::copies::omap(store, &key)?,
            };
        }
        Some(reply)
    }
}

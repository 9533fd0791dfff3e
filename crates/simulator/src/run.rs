//! One run: start, trouble, healing, and the checks at its end.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};

use pg::pg_state;
use testkit::Rng;

use crate::admin::Admin;
use crate::board::Board;
use crate::client::{Client, object_name};
use crate::faults::{Fault, FaultKind, plan};
use crate::guest::Guest;
use crate::history::{Call, Hash};
use crate::linear::{Verdict, check};
use crate::mgr::MgrHost;
use crate::mon::{MonHost, first_snapshot};
use crate::mon_shell::Agreed;
use crate::net::{Net, Node};
use crate::osd::OsdHost;
use crate::phases::Phases;
use crate::queue::{MILLISECOND, Queue, SECOND, Time};
use crate::scenario::Scenario;
use crate::wire::Wire;
use crate::world::{Event, Spare, World};

/// The cluster must be whole so long after all faults have ended, and answer everybody.
const HEAL_BOUND: Time = 400 * SECOND;
/// Writes of a monitor, and packets of a connection, that an idle cluster may have under way.
const MON_WRITES: usize = 8;
const PACKETS: usize = 64;
/// Erasure-coded PGs forget within so many seconds how the last writes are taken back.
const RECORDS_BOUND_S: u64 = 30;
/// New requests are served for so long after that.
const AFTER: Time = 2 * SECOND;

/// What a run came to.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Report {
    pub trace_hash: u64,
    pub events: u64,
    pub acked: u64,
    pub faults: u64,
    /// Simulated seconds.
    pub seconds: f64,
    /// From the end of the faults until everything was clean.
    pub healing_seconds: f64,
    /// The longest that a request was under way after the end of the faults.
    pub longest_wait_seconds: f64,
    /// Objects whose history was too tangled to judge.
    pub undecided: usize,
    pub violations: Vec<String>,
    /// Terms of the monitors that had a leader.
    pub leaders: usize,
    /// Entries that the monitors committed.
    pub commits: usize,
    /// Stores that monitors refused.
    pub refused_stores: u64,
    /// Requests answered at each [`crate::FaultKind::Note`].
    pub marks: Vec<u64>,
    /// What the administrator asked, and the results.
    pub commands: Vec<(String, i32)>,
    /// What guests were answered.
    pub guest_answers: u64,
    /// How often guests did what is special about them.
    pub guests: BTreeMap<&'static str, u64>,
    /// How often something came about that scenarios are made for.
    pub happened: BTreeMap<&'static str, u64>,
    /// What of the plan was not done: it did not apply, or what it waited for never came.
    pub left_out: Vec<String>,
    /// The longest time without a fault before healing.
    pub longest_calm_seconds: f64,
    /// What PGs were at each note.
    pub states_at_marks: Vec<BTreeSet<String>>,
}

/// Runs a scenario.
pub fn run(scenario: &Scenario) -> Report {
    run_verbose(scenario, false)
}

/// The same, printing every event.
pub fn run_verbose(scenario: &Scenario, verbose: bool) -> Report {
    let mut world = match World::new(scenario.clone()) {
        Ok(world) => world,
        Err(text) => return Report::failed(text),
    };
    world.verbose = verbose;
    let outcome = catch_unwind(AssertUnwindSafe(|| world.play()));
    let (healing, undecided) = match outcome {
        Ok(done) => done,
        Err(panic) => {
            let text = panic
                .downcast_ref::<String>()
                .cloned()
                .or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()));
            world.violation(format!("O6: panic: {}", text.unwrap_or_default()));
            (0, 0)
        }
    };
    Report {
        trace_hash: world.trace.0,
        events: world.events,
        acked: world.clients.iter().map(|c| c.acked).sum(),
        faults: world.faults,
        seconds: world.now as f64 / SECOND as f64,
        healing_seconds: healing as f64 / SECOND as f64,
        longest_wait_seconds: world.longest_wait() as f64 / SECOND as f64,
        undecided,
        violations: std::mem::take(&mut world.violations),
        leaders: world.agreed.leaders(),
        commits: world.agreed.commits(),
        refused_stores: world.refused_stores,
        marks: std::mem::take(&mut world.marks),
        guest_answers: world.guests.iter().map(|g| g.answered).sum(),
        guests: std::mem::take(&mut world.board.counts),
        happened: world.what_happened(),
        left_out: world.left_out(),
        longest_calm_seconds: world.longest_calm as f64 / SECOND as f64,
        states_at_marks: std::mem::take(&mut world.states_at_marks),
        commands: world.admin.answers.iter().map(|(cmd, result, _)| (cmd.clone(), *result)).collect(),
    }
}

/// The faults that a scenario's seed plans.
pub fn faults(scenario: &Scenario) -> Vec<Fault> {
    plan(scenario)
}

impl Report {
    fn failed(text: String) -> Self {
        Self { violations: vec![text], ..Self::default() }
    }

    pub fn is_good(&self) -> bool {
        self.violations.is_empty()
    }
}

/// The OSDs with their empty disks. Where any of them is to rot, they keep what was written over.
fn hosts(scenario: &Scenario, plan: &[Fault]) -> Result<Vec<OsdHost>, String> {
    let o = &scenario.options;
    let host = |osd| OsdHost::new(osd, o.osd_clock(osd), [o.device_mb, o.log_kb]);
    let hosts: Result<Vec<_>, _> = (0..o.osds).map(host).collect();
    let hosts = hosts.map_err(|e| format!("the store cannot be made: {e}"))?;
    let rots = |fault: &Fault| matches!(fault.kind, FaultKind::Rot { .. } | FaultKind::RotAnywhere { .. });
    if plan.iter().any(rots) {
        hosts.iter().for_each(|host| host.device.keep_older());
    }
    Ok(hosts)
}

impl World {
    pub fn new(scenario: Scenario) -> Result<Self, String> {
        let seed = scenario.seed;
        let o = scenario.options.clone();
        let now = types::Now {
            mono: std::time::Duration::ZERO,
            wall: types::Utime::from_unix(std::time::Duration::from_secs(1_700_000_000)),
        };
        let plan = plan(&scenario);
        let osds = hosts(&scenario, &plan)?;
        let genesis = first_snapshot(&scenario, now);
        Ok(Self {
            now: 0,
            queue: Queue::default(),
            net: Net::new(
                seed ^ 0x4e_4554,
                o.latency,
                scenario.wire.then(|| Wire::new(seed, scenario.mutant)),
            ),
            rng: Rng::new(seed ^ 0x5_0121),
            plan,
            armed: Vec::new(),
            mons: (0..o.mons).map(|m| MonHost::new(&scenario, m, &genesis)).collect(),
            agreed: Agreed::default(),
            genesis,
            damaged_mons: BTreeSet::new(),
            refused_stores: 0,
            puller: Node::Admin,
            marks: Vec::new(),
            mgr: MgrHost::default(),
            osds,
            clients: (0..o.clients).map(|c| Client::new(seed, c, o.clients, o.reader)).collect(),
            guests: o.guests.iter().enumerate().map(|(g, kind)| Guest::new(seed, g, *kind)).collect(),
            board: Board::default(),
            finishing: false,
            rot: None,
            rot_ended: None,
            rotted: BTreeSet::new(),
            last_fault: 0,
            longest_calm: 0,
            states_at_marks: Vec::new(),
            admin: Admin::default(),
            history: Vec::new(),
            sizes: BTreeMap::new(),
            trace: Hash::default(),
            events: 0,
            faults: 0,
            came: BTreeSet::new(),
            happened: BTreeMap::new(),
            busy_until: 0,
            violations: Vec::new(),
            verbose: false,
            healed: false,
            heals_at: Time::MAX,
            healed_at: Time::MAX,
            settled_at: Time::MAX,
            disks_lost: 0,
            tries: BTreeMap::new(),
            frozen: BTreeMap::new(),
            suspended: BTreeMap::new(),
            flags: BTreeSet::new(),
            acknowledged: 0,
            versions: BTreeMap::new(),
            spare: Spare::default(),
            garbler: Rng::new(seed ^ 0x6a_7b1e5),
            phases: Phases::default(),
            scenario,
        })
    }

    /// Healing time, and the number of undecided objects.
    fn play(&mut self) -> (Time, usize) {
        self.bring_up();
        if !self.violations.is_empty() {
            return (0, 0);
        }
        self.plan_faults();
        self.last_fault = self.now;
        self.resume_clients();
        self.heals_at = self.now + self.scenario.seconds * SECOND;
        self.run_until(self.heals_at, |_| false);
        let ended = self.now;
        self.heal();
        self.run_until(self.now + AFTER, |_| false);
        self.pause_clients();
        self.wait("clean and idle", HEAL_BOUND, |w| w.is_whole());
        let healing = self.now - ended;
        self.settled_at = self.now;
        self.resume_clients();
        self.run_until(self.now + AFTER, |_| false);
        self.pause_clients();
        self.wait("idle", HEAL_BOUND, |w| w.is_whole());
        self.finish_guests();
        self.read_everything();
        // The map may change meanwhile (pg_num's steps), and copies are those of the newest one.
        self.wait("read", HEAL_BOUND, |w| w.is_whole());
        self.wait_for_records();
        if self.violations.is_empty() {
            self.check_queues();
            self.check_copies();
        }
        let undecided = self.check_histories();
        if self.violations.is_empty() {
            self.check_stores();
        }
        (healing, undecided)
    }

    pub fn bring_up(&mut self) {
        for mon in 0..self.mons.len() {
            self.plan_in(0, Event::Start(Node::Mon(mon)));
        }
        self.plan_in(MILLISECOND, Event::Start(Node::Mgr));
        for osd in 0..self.scenario.options.osds {
            self.plan_in(2 * MILLISECOND, Event::Start(Node::Osd(osd)));
        }
        self.start_admin();
        self.make_pool();
        let all_up = |w: &mut Self| {
            let map = w.monitor().map(|m| m.state().osdmap());
            map.is_some_and(|m| (0..w.scenario.options.osds).all(|osd| m.is_up(osd)) && !m.pools.is_empty())
        };
        self.wait("all OSDs up and the pool made", 60 * SECOND, all_up);
        for c in 0..self.clients.len() {
            self.start_client(c);
        }
        for g in 0..self.guests.len() {
            self.start_guest(g);
        }
        let ready = |w: &mut Self| {
            w.is_whole() && w.clients.iter().all(|c| c.map.as_ref().is_some_and(|m| !m.pools.is_empty()))
        };
        self.wait("the new pool is clean", 60 * SECOND, ready);
    }

    /// The clients' pool.
    fn make_pool(&mut self) {
        let o = self.scenario.options.clone();
        let (n, mut kind) = (o.pg_num, "");
        if let Some((k, m)) = o.code {
            let words = format!(r#"["plugin=jerasure","k={k}","m={m}","crush-failure-domain=osd"]"#);
            let profile = r#""prefix":"osd erasure-code-profile set","name":"coded""#;
            self.admin_command(format!(r#"{{{profile},"profile":{words}}}"#));
            kind = r#","pool_type":"erasure","erasure_code_profile":"coded""#;
        }
        let pool = format!(r#""prefix":"osd pool create","pool":"p","pg_num":{n},"pgp_num":{n}"#);
        self.admin_command(format!("{{{pool}{kind}}}"));
        if o.code.is_some() {
            let set = r#""prefix":"osd pool set","pool":"p","var":"allow_ec_overwrites","val":"true""#;
            self.admin_command(format!("{{{set}}}"));
        }
    }

    /// Runs until the condition holds; it is a violation when it never does.
    fn wait(&mut self, what: &str, bound: Time, mut done: impl FnMut(&mut Self) -> bool) {
        if !self.violations.is_empty() {
            return;
        }
        let mut came = false;
        self.run_until(self.now + bound, |w| {
            came = done(w);
            came
        });
        if !came && self.violations.is_empty() {
            let states = self.pg_states();
            let stuck: Vec<_> = self.clients.iter().map(Client::oldest).collect();
            let guests: Vec<_> =
                self.guests.iter().filter(|g| !g.has_finished()).map(Guest::oldest).collect();
            let text =
                format!("O5: never came: {what}; PGs {states:?}; oldest requests {stuck:?}, {guests:?}");
            self.violation(text);
        }
    }

    fn longest_wait(&self) -> Time {
        let ended = self.history.iter().filter_map(|r| Some((r, r.ended.as_ref()?.0)));
        ended.map(|(r, at)| at.saturating_sub(r.begun.max(self.healed_at))).max().unwrap_or(0)
    }

    fn what_happened(&mut self) -> BTreeMap<&'static str, u64> {
        let resends = self.history.iter().map(|r| u64::from(r.sends.saturating_sub(1))).sum();
        self.happened.insert("requests sent again", resends);
        if let Some(wire) = &mut self.net.wire {
            self.happened.append(&mut wire.counts);
        }
        std::mem::take(&mut self.happened)
    }

    fn left_out(&self) -> Vec<String> {
        let planned = self.plan.iter().enumerate().filter(|(i, _)| !self.scenario.skip.contains(i));
        planned.filter(|(i, _)| !self.came.contains(i)).map(|(i, f)| format!("{i}: {f}")).collect()
    }

    fn pause_clients(&mut self) {
        self.clients.iter_mut().for_each(|c| c.paused = true);
        self.guests.iter_mut().for_each(|g| g.paused = true);
    }

    fn clients_idle(&self) -> bool {
        self.clients.iter().all(Client::is_idle) && self.guests.iter().all(Guest::is_idle)
    }

    /// Each PG's state as its primary in the monitor's map sees it.
    pub fn pg_states(&self) -> BTreeMap<String, String> {
        let mut all = BTreeMap::new();
        let Some(mon) = self.monitor() else { return all };
        let map = mon.state().osdmap();
        map.for_each_pg(|pg, m| {
            let host = usize::try_from(m.acting_primary).ok().and_then(|p| self.osds.get(p));
            let states = host.and_then(|h| h.core.as_ref()).map(|c| c.pg_states()).unwrap_or_default();
            let state = states.into_iter().find(|(id, _)| id.pgid == pg);
            let text = state.map_or("none".to_owned(), |(_, s)| pg_state::to_text(s));
            all.insert(format!("{pg} {:?}/{:?}", m.up, m.acting), text);
        });
        all
    }

    fn is_whole(&mut self) -> bool {
        let osds = self.scenario.options.osds;
        let up = self.monitor().is_some_and(|m| {
            let map = m.state().osdmap();
            (0..osds).all(|osd| map.is_up(osd) && map.is_in(osd))
        });
        up && self.mons_whole()
            && self.admin.is_idle()
            && self.mgr.core.is_some()
            && self.rot.is_none()
            && self.clients_idle()
            && self.pg_states().values().all(|s| s == "active+clean")
    }

    /// The last checks of guests; then nothing of removed snapshots is left anywhere.
    fn finish_guests(&mut self) {
        if self.guests.is_empty() {
            return;
        }
        self.finishing = true;
        self.wake_guests();
        self.wait("the guests' ends", HEAL_BOUND, |w| w.guests.iter().all(Guest::has_finished));
        self.wait("all clones trimmed", HEAL_BOUND, |w| w.is_whole() && w.clones_left().is_empty());
        if let Some(first) = self.clones_left().first().filter(|_| !self.violations.is_empty()) {
            self.say(|| format!("left: {first}"));
        }
    }

    /// Nothing of an idle cluster's writes is to be taken back any more.
    fn wait_for_records(&mut self) {
        let mut kept = Ok(0);
        for _ in 0..RECORDS_BOUND_S {
            if !self.violations.is_empty() {
                return;
            }
            kept = self.records_kept();
            if kept == Ok(0) {
                return;
            }
            self.run_until(self.now + SECOND, |_| false);
        }
        self.violation(format!("O4: records of what takes writes back stay: {kept:?}"));
    }

    fn read_everything(&mut self) {
        for object in 0..self.scenario.options.objects {
            self.begin(object % self.clients.len(), object, Call::Read);
        }
    }

    /// O1, O2, O3: each object's history can be explained.
    fn check_histories(&mut self) -> usize {
        let mut undecided = 0;
        for object in 0..self.scenario.options.objects {
            match check(self.history.iter().filter(|r| r.object == object)) {
                Verdict::Good => {}
                Verdict::Undecided => undecided += 1,
                Verdict::Bad(text) => {
                    self.violation(format!("O3: no order explains {}: {text}", object_name(object)))
                }
            }
        }
        undecided
    }

    /// O6: nothing piles up: what is healed and idle has nothing under way.
    fn check_queues(&mut self) {
        for mon in 0..self.mons.len() {
            let writing = self.mons[mon].writing.len();
            if writing > MON_WRITES {
                self.violation(format!("O6: mon.{mon} has {writing} writes under way"));
            }
        }
        let busiest = self.net.longest_queue();
        if busiest > PACKETS {
            self.violation(format!(
                "O6: {busiest} packets are under way on one connection of an idle cluster"
            ));
        }
    }

    /// O8: the power goes, and every monitor's store is read again.
    fn check_mon_stores(&mut self) {
        for mon in 0..self.mons.len() {
            self.crash_mon(mon, crate::faults::Death::PowerLoss);
            let disk = &self.mons[mon].disk;
            let rows = disk.log.iter().map(|(index, row)| (*index, row.clone()));
            if let Err(e) = quorum::stored::recover_whole(&disk.vote, &disk.snapshot, rows) {
                self.violation(format!("O8: the store of mon.{mon} is not sound: {e}"));
            }
        }
    }

    /// O8: the power goes, and every store is sound.
    fn check_stores(&mut self) {
        self.check_mon_stores();
        for osd in 0..self.scenario.options.osds {
            if let Some(core) = &self.osds[osd as usize].core {
                core.assert_invariants();
            }
            self.crash_osd(osd, crate::faults::Death::PowerLoss);
            match store::fsck(&*self.osds[osd as usize].device, true) {
                Ok(report) => {
                    // The power may go between the two copies of the superblock.
                    let old_copy = |f: &store::Finding| matches!(f, store::Finding::SuperblockCopy { .. });
                    let left = |f: &&store::Finding| !old_copy(f) && !self.is_old_rot(osd, f);
                    let faults: Vec<_> = report.findings.iter().filter(left).collect();
                    if let Some(first) = faults.first() {
                        let n = faults.len();
                        self.violation(format!("O8: the store of osd.{osd} has {n} faults: {first}"));
                    }
                }
                Err(e) => self.violation(format!("O8: the store of osd.{osd} cannot be checked: {e}")),
            }
        }
    }
}

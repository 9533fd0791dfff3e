//! Carrying out faults, and undoing all of them at the end.

use store::DeviceOp;

use crate::faults::{Death, FaultKind, From, Mons, Trigger};
use crate::net::{End, Mangling, Node};
use crate::queue::{MILLISECOND, SECOND, Time};
use crate::scenario::Level;
use crate::world::{Event, Gone, World};

/// How often rot is tried before it is given up, and the time between.
const ROT_TRIES: u32 = 10;
const ROT_AGAIN: Time = 3 * SECOND;

impl World {
    /// Puts the plan's faults into the queue.
    pub fn plan_faults(&mut self) {
        self.net.set_flips(self.scenario.level >= Level::Links);
        for (i, fault) in self.plan.clone().iter().enumerate() {
            if !self.scenario.skip.contains(&i) {
                self.plan_in(fault.at, Event::Fault(i));
            }
        }
    }

    /// A fault's time has come.
    pub fn arm(&mut self, index: usize) {
        match self.plan[index].when {
            Trigger::AtOnce => self.inject(index),
            _ => self.armed.push(index),
        }
    }

    /// What armed faults wait for has just happened.
    pub fn pull(&mut self, trigger: Trigger, by: Node) {
        if self.armed.is_empty() {
            return;
        }
        let hit = |i: &usize| self.plan[*i].when == trigger;
        let due: Vec<usize> = self.armed.iter().copied().filter(hit).collect();
        self.armed.retain(|i| !due.contains(i));
        if !due.is_empty() {
            self.puller = by;
        }
        due.into_iter().for_each(|i| self.plan_in(0, Event::Inject(i)));
    }

    pub fn inject(&mut self, index: usize) {
        let kind = self.plan[index].kind.clone();
        if self.healed {
            return;
        }
        self.say(|| format!("FAULT {index}: {kind:?}"));
        if matches!(kind, FaultKind::Note | FaultKind::Scrub { .. } | FaultKind::Rot { .. }) {
            self.came.insert(index);
        }
        match kind {
            FaultKind::Note => return self.note(),
            FaultKind::Scrub { deep, repair } => return self.scrub_all(deep, repair),
            FaultKind::Rot { nth } => return self.try_rot(nth, ROT_TRIES),
            FaultKind::LoseDisks { osds, death, down } => {
                return self.inject_loss(index, &osds, None, death, down);
            }
            FaultKind::LoseHost { host, death, down } => {
                let (osds, mon) = self.on_host(host);
                return self.inject_loss(index, &osds, mon, death, down);
            }
            _ if self.waits_for_mending(&kind) => return self.plan_in(SECOND / 2, Event::Inject(index)),
            FaultKind::AddMon { early } => return self.add_mon(index, early),
            FaultKind::RemoveMon { which } => return self.remove_mon(index, which),
            _ => {}
        }
        self.came.insert(index);
        self.count_fault();
        self.wake_clients();
        match kind {
            FaultKind::CrashAll { death, down } => self.crash_all(death, down),
            FaultKind::CrashOsds { osds, death, down } => {
                for osd in osds {
                    self.down_up(osd, death, down);
                }
            }
            FaultKind::CrashMons { which, death, down } => {
                for mon in self.which_mons(which) {
                    self.crash_mon(mon, death);
                    self.plan_in(down, Event::Start(Node::Mon(mon)));
                }
            }
            FaultKind::WipeMon { mon, damaged } => self.wipe_mon(mon, damaged),
            FaultKind::CutMon { which, from, both_ways, lasts } => {
                let links = self.cut_mon(which, from, both_ways);
                self.block(links, lasts);
            }
            FaultKind::Partition { osd, from, both_ways, lasts } => {
                let links = self.partition(osd, from, both_ways);
                self.block(links, lasts);
            }
            FaultKind::Island { osd, client, lasts } => {
                let links = self.island([Node::Osd(osd), Node::Client(client)]);
                self.block(links, lasts);
            }
            FaultKind::MonUnreachable { which, lasts } => self.block(self.around_mons(which), lasts),
            FaultKind::FailDevice { osd, nth, down } => self.fail_device(osd, nth, down),
            FaultKind::MarkOut { osd, lasts } => {
                self.admin_command(format!(r#"{{"prefix":"osd out","ids":["{osd}"]}}"#));
                self.plan_in(lasts, Event::MarkIn { osd });
            }
            FaultKind::RestartClient { client } => self.restart_client(client),
            FaultKind::Command(json) => self.admin_command(json),
            other => {
                if !self.inject_other(other) {
                    self.came.remove(&index);
                }
            }
        }
    }

    fn inject_loss(&mut self, index: usize, osds: &[i32], mon: Option<usize>, death: Death, down: Time) {
        let is_host = matches!(self.plan[index].kind, FaultKind::LoseHost { .. });
        if self.rot.is_some() {
            self.plan_in(SECOND / 2, Event::Fault(index));
        } else if is_host && !self.lose_host(index, osds, mon, death, down)
            || !is_host && !self.lose_disks(index, osds, death, down)
        {
            // The next such moment may do.
            self.plan_in(SECOND, Event::Fault(index));
        } else if self.came.contains(&index) {
            self.count_fault();
            self.wake_clients();
        }
    }

    fn note(&mut self) {
        self.marks.push(self.clients.iter().map(|c| c.acked).sum());
        let states = self.pg_states().into_values().collect();
        self.states_at_marks.push(states);
    }

    pub fn count_fault(&mut self) {
        self.faults += 1;
        self.longest_calm = self.longest_calm.max(self.now - self.last_fault);
        self.last_fault = self.now;
    }

    pub fn try_rot(&mut self, nth: u64, tries: u32) {
        if self.healed {
            return;
        }
        if self.spread_rot(nth) {
            return self.count_fault();
        }
        if tries > 0 {
            // Another OSD, and other objects.
            let nth = nth.rotate_left(7).wrapping_add(1 << 32);
            self.plan_in(ROT_AGAIN, Event::Rot { nth, tries: tries - 1 });
        }
    }

    /// Whether it applied.
    fn inject_other(&mut self, kind: FaultKind) -> bool {
        match kind {
            FaultKind::CrashMgr { down } => {
                self.crash_mgr();
                self.plan_in(down, Event::Start(Node::Mgr));
            }
            FaultKind::Cut { nth } => {
                let live = self.net.live(nth % 2 == 0);
                if !live.is_empty() {
                    self.cut(live[(nth / 2 % live.len() as u64) as usize]);
                }
            }
            FaultKind::CutAll { node } => {
                for conn in self.net.of_node(node) {
                    self.cut(conn);
                }
            }
            FaultKind::Kill { node, death } => self.kill(node, death),
            FaultKind::SlowDevice { osd, factor, lasts } => {
                self.osds[osd as usize].slow = factor;
                self.plan_in(lasts, Event::SpeedUp { osd });
            }
            FaultKind::RestartGuest { guest } if guest < self.guests.len() => {
                let after = self.jitter();
                self.restart_guest(guest, after);
            }
            FaultKind::Freeze { node, lasts } => return self.freeze(node, lasts),
            FaultKind::Suspend { host, lasts } => self.suspend(host, lasts),
            FaultKind::Apart { nth, one_way, lasts } => {
                let links = self.three_networks(nth, one_way);
                self.block(links, lasts);
            }
            FaultKind::Flag { flag, lasts } => self.set_flag(flag, lasts),
            FaultKind::Refuse { osd, nth, lasts } => {
                let pairs = self.around(osd, nth);
                self.refuse_between(pairs, self.until_after(lasts));
            }
            FaultKind::Start { node } => self.plan_in(0, Event::Start(node)),
            FaultKind::CrashPuller { death, down } => {
                let node = self.puller;
                self.kill(node, death);
                self.plan_in(down, Event::Start(node));
            }
            FaultKind::EmptyMon { mon } if self.mons[mon].core.is_none() => self.wipe_mon_disk(mon),
            FaultKind::Block { links, lasts } => self.block(links, lasts),
            FaultKind::NewDisk { osd, uuid } => self.new_disk(osd, uuid),
            FaultKind::RotAnywhere { osd, nth } => self.rot_anywhere(osd, nth),
            FaultKind::OldDisk { osd } => self.old_disk(osd),
            FaultKind::Jump { node: Node::Mon(mon), seconds } => self.mons[mon].skew_s += seconds,
            FaultKind::Jump { node: Node::Osd(osd), seconds } => self.osds[osd as usize].skew_s += seconds,
            other => {
                self.say(|| format!("{other:?} does not apply"));
                return false;
            }
        }
        true
    }

    /// The end of a fault that lasts so long, and that healing does not end by itself: it ends no later.
    pub fn until_after(&self, lasts: Time) -> Time {
        (self.now + lasts).min(self.heals_at)
    }

    fn kill(&mut self, node: Node, death: Death) {
        match node {
            Node::Mon(mon) => self.crash_mon(mon, death),
            Node::Mgr => self.crash_mgr(),
            Node::Osd(osd) => self.crash_osd(osd, death),
            Node::Client(_) | Node::Admin | Node::Guest(_) => {}
        }
    }

    fn crash_all(&mut self, death: Death, down: Time) {
        for mon in 0..self.mons.len() {
            self.crash_mon(mon, death);
            let at = down + self.jitter();
            self.plan_in(at, Event::Start(Node::Mon(mon)));
        }
        self.crash_mgr();
        self.plan_in(down, Event::Start(Node::Mgr));
        for osd in 0..self.scenario.options.osds {
            self.down_up(osd, death, down);
        }
        // Somebody may come right then, and get yesterday's map.
        if self.rng.one_in(2) {
            let client = self.rng.below(self.clients.len() as u64) as usize;
            let early = self.rng.below(500 * MILLISECOND);
            self.plan_in(down + early, Event::RestartClient { client });
        }
    }

    /// The device fails at one of its next calls, in a way that the number tells; the OSD stops itself and is started again.
    fn fail_device(&mut self, osd: i32, nth: u64, down: Time) {
        // What cannot be read is mended from another copy. Of the last one a client rightly hears EIO.
        let has_copies = self.has_copies_to_spare();
        let host = &mut self.osds[osd as usize];
        if host.core.is_some() {
            host.failing = true;
            let calls = 1 + nth / 4;
            match nth % 4 {
                0 => host.device.fail_nth(DeviceOp::Flush, calls),
                1 => host.device.fail_nth(DeviceOp::Write, calls),
                2 if has_copies => host.device.fail_nth(DeviceOp::Read, 1),
                _ => host.device.drop_write(calls),
            }
            self.plan_in(down.max(SECOND), Event::Start(Node::Osd(osd)));
        }
    }

    /// The monitors that a fault means, as things are now.
    pub fn which_mons(&self, which: Mons) -> Vec<usize> {
        let listed = self.listed_mons();
        let count = listed.len();
        let leader = listed.iter().position(|mon| Some(*mon) == self.mon_leader()).unwrap_or(0);
        match which {
            Mons::One(mon) => vec![listed[mon % count]],
            Mons::Leader => vec![listed[leader]],
            Mons::Majority => (0..count / 2 + 1).map(|i| listed[(leader + i) % count]).collect(),
            Mons::All => listed,
        }
    }

    /// All links between these monitors and everybody who is none.
    fn around_mons(&self, which: Mons) -> Vec<(Node, Node)> {
        let mons: Vec<Node> = self.which_mons(which).into_iter().map(Node::Mon).collect();
        let all = (0..self.scenario.options.osds).map(Node::Osd);
        let all = all.chain((0..self.clients.len()).map(Node::Client)).chain([Node::Mgr]);
        let all = all.chain((0..self.guests.len()).map(Node::Guest));
        all.flat_map(|n| mons.iter().flat_map(move |m| [(n, *m), (*m, n)])).collect()
    }

    /// Links among monitors that are cut: those towards the ones meant, and back.
    fn cut_mon(&mut self, which: Mons, from: Option<usize>, both_ways: bool) -> Vec<(Node, Node)> {
        let mut links = Vec::new();
        for mon in self.which_mons(which) {
            let others = (0..self.mons.len()).filter(|o| *o != mon && from.is_none_or(|f| f == *o));
            for other in others {
                links.push((Node::Mon(other), Node::Mon(mon)));
                if both_ways {
                    links.push((Node::Mon(mon), Node::Mon(other)));
                }
            }
        }
        links
    }

    /// A monitor loses its disk. Of what it promised nothing is left, so no other one may lose its own meanwhile.
    fn wipe_mon(&mut self, mon: usize, damaged: bool) {
        let listed = self.listed_mons();
        let mon = listed[mon % listed.len()];
        if listed.len() < 3 || !self.mons_whole() {
            return;
        }
        self.crash_mon(mon, Death::Killed);
        if damaged {
            let nth = self.rng.next_u64();
            self.mons[mon].disk.damage(nth);
            self.damaged_mons.insert(mon);
        } else {
            self.wipe_mon_disk(mon);
        }
        self.plan_in(20 * MILLISECOND, Event::Start(Node::Mon(mon)));
    }

    fn jitter(&mut self) -> Time {
        self.rng.below(SECOND)
    }

    fn down_up(&mut self, osd: i32, death: Death, down: Time) {
        self.crash_osd(osd, death);
        // Sometimes they return together, sometimes one long after another.
        let at = match self.rng.below(3) {
            0 => down,
            1 => down + self.jitter(),
            _ => down / 4 + self.rng.below(down * 2),
        };
        self.plan_in(at, Event::Start(Node::Osd(osd)));
    }

    /// A connection breaks: a lossy one ends at both ends, a lossless session pauses.
    fn cut(&mut self, conn: types::ConnId) {
        let Some(c) = self.net.conn(conn) else { return };
        if c.held != [true, true] {
            return;
        }
        let lossy = c.lossy;
        self.happened("sessions cut");
        if self.net.is_wired() && self.cut_wire(conn, lossy) {
            return;
        }
        if lossy {
            self.net.lose_tail(conn, End::Opener);
            self.net.lose_tail(conn, End::Target);
            if self.rng.one_in(2) {
                self.gone(conn, End::Target, Gone::Lost);
            } else {
                self.gone(conn, End::Opener, Gone::Lost);
            }
            return;
        }
        let until = self.now + 5 * MILLISECOND + self.rng.below(SECOND);
        self.net.hold(conn, until);
        if Mangling::of(self.scenario.mutant).is_some() {
            self.mangle(conn);
            self.plan_in(until - self.now - 1, Event::Mangle { conn });
        }
    }

    /// Mutants: a session that breaks, or is resumed, repeats or turns what is under way.
    pub fn mangle(&mut self, conn: types::ConnId) {
        let Some(how) = Mangling::of(self.scenario.mutant) else { return };
        self.net.mangle(self.now, conn, End::Target, how);
        self.net.mangle(self.now, conn, End::Opener, how);
    }

    fn partition(&self, osd: i32, from: From, both_ways: bool) -> Vec<(Node, Node)> {
        let me = Node::Osd(osd);
        let osds = || (0..self.scenario.options.osds).filter(move |o| *o != osd).map(Node::Osd);
        let guests = || (0..self.guests.len()).map(Node::Guest);
        let clients = || (0..self.clients.len()).map(Node::Client).chain(guests());
        let mons = || (0..self.mons.len()).map(Node::Mon);
        let others: Vec<Node> = match from {
            From::All => osds().chain(clients()).chain(mons()).chain([Node::Mgr]).collect(),
            From::OtherOsds => osds().collect(),
            From::Monitors => mons().collect(),
            From::OneMonitor(mon) => vec![Node::Mon(mon)],
            From::OneOsd(other) => vec![Node::Osd(other)],
            From::Clients => clients().collect(),
            From::AllButClients => osds().chain(mons()).chain([Node::Mgr]).collect(),
        };
        let inward = others.iter().map(|o| (*o, me));
        let outward = others.iter().map(|o| (me, *o));
        if both_ways { inward.chain(outward).collect() } else { inward.collect() }
    }

    /// Connections that a box in front of an OSD answers: everybody's, another OSD's, or clients'.
    fn around(&self, osd: i32, nth: u64) -> Vec<(Node, Node)> {
        let osds: Vec<i32> = (0..self.scenario.options.osds).filter(|o| *o != osd).collect();
        let clients =
            (0..self.clients.len()).map(Node::Client).chain((0..self.guests.len()).map(Node::Guest));
        let others: Vec<Node> = match nth % 3 {
            0 => osds.iter().copied().map(Node::Osd).chain(clients).collect(),
            1 => vec![Node::Osd(osds[(nth / 3) as usize % osds.len()])],
            _ => clients.collect(),
        };
        others.into_iter().map(|n| (n, Node::Osd(osd))).collect()
    }

    /// All links between these and the rest.
    fn island(&self, island: [Node; 2]) -> Vec<(Node, Node)> {
        let all = (0..self.scenario.options.osds).map(Node::Osd);
        let all = all.chain((0..self.clients.len()).map(Node::Client));
        let all = all.chain((0..self.mons.len()).map(Node::Mon)).chain([Node::Mgr]);
        let all = all.chain((0..self.guests.len()).map(Node::Guest));
        let rest = all.filter(|n| !island.contains(n));
        rest.flat_map(|n| island.into_iter().flat_map(move |i| [(n, i), (i, n)])).collect()
    }

    pub fn block(&mut self, links: Vec<(Node, Node)>, lasts: Time) {
        for (from, to) in &links {
            self.net.block(*from, *to);
        }
        self.plan_in(lasts, Event::Unblock(links));
    }

    /// Ends all faults: everybody is started, links and devices are sound, OSDs are in.
    pub fn heal(&mut self) {
        self.say(|| "heal".to_owned());
        self.healed = true;
        self.net.set_flips(false);
        self.longest_calm = self.longest_calm.max(self.now - self.last_fault);
        self.healed_at = self.now;
        self.net.unblock_all(self.now);
        self.net.refuse_nobody();
        for flag in self.flags.clone() {
            self.unset_flag(flag);
        }
        let mut nodes: Vec<Node> = self.listed_mons().into_iter().map(Node::Mon).chain([Node::Mgr]).collect();
        for osd in 0..self.scenario.options.osds {
            self.speed_up(osd);
            let host = &mut self.osds[osd as usize];
            host.device.clear_faults();
            host.failing = host.device.owes_an_error();
            nodes.push(Node::Osd(osd));
            self.plan_in(0, Event::MarkIn { osd });
        }
        for node in nodes {
            let at = self.jitter();
            self.plan_in(at, Event::Start(node));
        }
        if self.has_rotted() {
            self.plan_in(5 * SECOND, Event::ScrubAgain);
        }
        if self.scenario.level > Level::Calm && self.rng.one_in(2) {
            self.restart_client(0);
        }
    }
}

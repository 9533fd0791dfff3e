//! The plan of what goes wrong, made from the seed before the run begins, so that single faults can be left out.

use std::fmt;

use testkit::Rng;

use crate::client::is_reader;
use crate::late;
use crate::net::Node;
use crate::phases::Moment;
use crate::queue::{MILLISECOND, SECOND, Time};
use crate::scenario::{Level, Scenario, is_late};

/// Faults around guests are no further apart than 3/2 of this.
const GUEST_FAULTS: Time = 30 * SECOND;

/// How a process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Death {
    /// Its host lives: connections are reset, new ones refused.
    Killed,
    /// Silence until it is back.
    PowerLoss,
}

/// Whom a partition separates an OSD from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    All,
    OtherOsds,
    Monitors,
    OneMonitor(usize),
    OneOsd(i32),
    Clients,
    AllButClients,
}

/// Which monitors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mons {
    One(usize),
    Leader,
    /// So many that the others are no majority, the leader among them.
    Majority,
    All,
}

/// Something that goes wrong.
#[derive(Debug, Clone, PartialEq)]
pub enum FaultKind {
    /// Every process but the clients; each comes back after its own time.
    CrashAll {
        death: Death,
        down: Time,
    },
    CrashOsds {
        osds: Vec<i32>,
        death: Death,
        down: Time,
    },
    CrashMons {
        which: Mons,
        death: Death,
        down: Time,
    },
    /// A monitor comes back with an empty disk, or with a damaged one that it has to refuse; only while all others vote.
    WipeMon {
        mon: usize,
        damaged: bool,
    },
    /// Another monitor, up to five, as soon as all vote; its process begins before it is added (early) or
    /// after.
    AddMon {
        early: bool,
    },
    /// A monitor goes for good, down to three; as soon as all vote.
    RemoveMon {
        which: Mons,
    },
    /// A monitor does not hear the others, or one of them; nor do they hear it, if both ways.
    CutMon {
        which: Mons,
        from: Option<usize>,
        both_ways: bool,
        lasts: Time,
    },
    CrashMgr {
        down: Time,
    },
    /// The connection at this place of the list of those alive (even: of those with something under way), modulo
    /// its length.
    Cut {
        nth: u64,
    },
    CutAll {
        node: Node,
    },
    Partition {
        osd: i32,
        from: From,
        both_ways: bool,
        lasts: Time,
    },
    /// An OSD and a client reach nobody but each other.
    Island {
        osd: i32,
        client: usize,
        lasts: Time,
    },
    /// Nobody but the other monitors reaches these.
    MonUnreachable {
        which: Mons,
        lasts: Time,
    },
    SlowDevice {
        osd: i32,
        factor: u64,
        lasts: Time,
    },
    /// A flush, write, read or write-back (`nth` modulo 4) fails, that after `nth / 4` others; the OSD must stop, or read another
    /// copy. It is started again with a healthy device.
    FailDevice {
        osd: i32,
        nth: u64,
        down: Time,
    },
    MarkOut {
        osd: i32,
        lasts: Time,
    },
    /// A client's process ends and another one begins.
    RestartClient {
        client: usize,
    },
    /// A process ends, and nothing starts it again but `Start` and healing.
    Kill {
        node: Node,
        death: Death,
    },
    Start {
        node: Node,
    },
    /// The process that pulled the trigger ends, if it is an OSD or a monitor.
    CrashPuller {
        death: Death,
        down: Time,
    },
    /// The disk of a dead monitor is empty.
    EmptyMon {
        mon: usize,
    },
    /// A dead OSD gets an empty disk; the UUID's bytes are all this one.
    NewDisk {
        osd: i32,
        uuid: u8,
    },
    /// A dead OSD gets back the disk that `NewDisk` took.
    OldDisk {
        osd: i32,
    },
    /// The wall clock of a monitor or an OSD jumps.
    Jump {
        node: Node,
        seconds: i64,
    },
    /// Nothing gets over these links.
    Block {
        links: Vec<(Node, Node)>,
        lasts: Time,
    },
    /// The same of a guest.
    RestartGuest {
        guest: usize,
    },
    /// A bit of some object's data changes on the medium, as soon as every object has all its copies.
    Rot {
        nth: u64,
    },
    /// A byte of a dead OSD's disk changes, wherever anything is written; it may refuse its disk, or stop when it comes upon it.
    RotAnywhere {
        osd: i32,
        nth: u64,
    },
    /// The disks of these OSDs are gone for good, or of the first of them, as soon as something survives of everything.
    LoseDisks {
        osds: Vec<i32>,
        death: Death,
        down: Time,
    },
    /// The same of all OSDs and the monitor of one host.
    LoseHost {
        host: usize,
        death: Death,
        down: Time,
    },
    /// A process stands still, and its clock goes on.
    Freeze {
        node: Node,
        lasts: Time,
    },
    /// A host is suspended: the processes of its monitor and its OSD stand still, and so does its monotonic
    /// clock. Its wall clock goes on. The manager is on host 0.
    Suspend {
        host: usize,
        lasts: Time,
    },
    /// Three networks that do not reach each other: who is where, the number tells. One way: of each two, one
    /// still hears the other.
    Apart {
        nth: u64,
        one_way: bool,
        lasts: Time,
    },
    /// A flag of the OSD map.
    Flag {
        flag: &'static str,
        lasts: Time,
    },
    /// A box in front of an OSD refuses connections in its name: which ones, the number tells.
    Refuse {
        osd: i32,
        nth: u64,
        lasts: Time,
    },
    /// No fault: all PGs are scrubbed.
    Scrub {
        deep: bool,
        repair: bool,
    },
    /// Nothing: the report tells what was answered until then.
    Note,
    /// An administrator's command that moves data or members, and stays.
    Command(String),
}

/// What a fault waits for once its time has come: moments at which a promise has just been made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trigger {
    AtOnce,
    /// An OSD sends the answer to a write.
    Answer,
    /// A client hears that its write is done.
    Heard,
    /// The monitor commits a new OSD map.
    NewMap,
    /// An OSD begins to write a commit to its device.
    Submit,
    /// An OSD's commit is durable, and it does not know yet.
    Durable,
    /// The leading monitor begins to write its log.
    MonWrite,
    /// The leading monitor's log is durable, and it does not know yet.
    MonDurable,
    /// The k-th message or commit (from 1) since a PG or the monitors began what they go through. It is
    /// counted from when the fault's time has come.
    Nth {
        what: Moment,
        k: u32,
    },
}

#[derive(Debug, Clone, PartialEq)]
pub struct Fault {
    pub at: Time,
    pub when: Trigger,
    pub kind: FaultKind,
}

impl Fault {
    /// After so many seconds.
    pub fn at(seconds: f64, kind: FaultKind) -> Self {
        Self { at: (seconds * SECOND as f64) as Time, when: Trigger::AtOnce, kind }
    }

    /// At the first such moment after so many seconds.
    pub fn when(self, when: Trigger) -> Self {
        Self { when, ..self }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3} s {:?} {:?}", self.at as f64 / SECOND as f64, self.when, self.kind)
    }
}

/// All faults of a scenario; those in `skip` are still in it, at their places.
pub fn plan(s: &Scenario) -> Vec<Fault> {
    if let Some(plan) = &s.plan {
        return plan.clone();
    }
    let mut r = Rng::new(s.seed ^ 0xfa_0175);
    let mut out = Vec::new();
    if s.level == Level::Calm {
        return out;
    }
    let every = s.options.fault_every;
    let mut at = SECOND + r.below(every);
    while at < s.seconds * SECOND {
        let when = *r.pick(&[Trigger::AtOnce, Trigger::Answer, Trigger::Heard, Trigger::NewMap]);
        out.push(Fault { at, when, kind: kind(&mut r, s) });
        at += every / 4 + r.below(every * 3 / 2);
    }
    // From numbers of their own, so that they do not change the others.
    let mut r = Rng::new(s.seed ^ 0xc11e47);
    let mut at = SECOND + r.below(every * 2);
    while at < s.seconds * SECOND {
        let client = r.below(s.options.clients as u64) as usize;
        out.push(Fault { at, when: Trigger::AtOnce, kind: FaultKind::RestartClient { client } });
        at += every + r.below(every * 4);
    }
    if s.level >= Level::Links {
        long_islands(s, &mut out);
        networks_and_hosts(s, &mut out);
    }
    if s.level == Level::All {
        losses(s, &mut out);
        beside(s, &mut out);
        members(s, &mut out);
    }
    if s.guests {
        around_guests(s, &mut out);
    }
    if is_late(s.profile, s.seed) {
        late::plan(s, &mut out);
    }
    out
}

/// Disks that are gone for good, up to all copies but one, most of them right after somebody was answered.
fn losses(s: &Scenario, out: &mut Vec<Fault>) {
    if s.options.size < 2 {
        return;
    }
    let mut r = Rng::new(s.seed ^ 0x10_5e5);
    let every = s.options.fault_every * 8;
    let mut at = every / 4 + r.below(every);
    while at < s.seconds * SECOND {
        let mut osds: Vec<i32> = (0..s.options.osds).collect();
        let count = 1 + r.below(u64::from(s.options.size) - 1) as usize;
        let osds = (0..count).map(|_| osds.swap_remove(r.below(osds.len() as u64) as usize)).collect();
        let when = *r.pick(&[Trigger::AtOnce, Trigger::Answer, Trigger::Answer, Trigger::Heard]);
        let down = lasts(&mut r, s);
        out.push(Fault { at, when, kind: FaultKind::LoseDisks { osds, death: death(&mut r), down } });
        at += every + r.below(every);
    }
}

/// What administrators do for a while, processes that stand still, and boxes in the middle of the network.
fn beside(s: &Scenario, out: &mut Vec<Fault>) {
    let mut r = Rng::new(s.seed ^ 0xbe_51de);
    let every = s.options.fault_every * 3;
    let mut at = r.below(every);
    while at < s.seconds * SECOND {
        let osd = r.below(s.options.osds as u64) as i32;
        let lasts = lasts(&mut r, s);
        let kind = match r.below(8) {
            0 | 1 => FaultKind::Flag { flag: r.pick::<&'static str>(&FLAGS), lasts },
            2 => FaultKind::Freeze { node: Node::Mon(r.below(s.options.mons as u64) as usize), lasts },
            3 | 4 => FaultKind::Freeze { node: Node::Osd(osd), lasts },
            5 | 6 => FaultKind::Refuse { osd, nth: r.next_u64() >> 1, lasts },
            _ => FaultKind::Command(pool_command(&mut r)),
        };
        out.push(Fault { at, when: Trigger::AtOnce, kind });
        at += every / 2 + r.below(every);
    }
}

/// Three networks apart; and hosts that are suspended, where more than links goes wrong.
fn networks_and_hosts(s: &Scenario, out: &mut Vec<Fault>) {
    let mut r = Rng::new(s.seed ^ 0x3_a9a47);
    let every = s.options.fault_every * 4;
    let grace = s.options.heartbeat_grace_s * SECOND;
    let hosts = s.options.mons.max(s.options.osds as usize) as u64;
    let mut at = r.below(every);
    while at < s.seconds * SECOND {
        let lasts = lasts(&mut r, s);
        let kind = match s.level == Level::All && r.one_in(2) {
            true => FaultKind::Suspend { host: r.below(hosts) as usize, lasts },
            // Longer, and a client that waits there asks again after more writes than PGs remember.
            false => FaultKind::Apart {
                nth: r.next_u64(),
                one_way: r.one_in(3),
                lasts: lasts.min(grace + 20 * SECOND),
            },
        };
        let when = *r.pick(&[Trigger::AtOnce, Trigger::AtOnce, Trigger::Answer, Trigger::Heard]);
        out.push(Fault { at, when, kind });
        at += every / 2 + r.below(every);
    }
}

/// Monitors that come and go, at every other seed that has three of them.
fn members(s: &Scenario, out: &mut Vec<Fault>) {
    if s.options.mons < 3 || s.seed % 2 == 1 {
        return;
    }
    let mut r = Rng::new(s.seed ^ 0x3e_b325);
    let every = s.options.fault_every * 3;
    let mut at = r.below(every);
    while at < s.seconds * SECOND {
        let kind = match r.one_in(2) {
            true => FaultKind::AddMon { early: r.one_in(2) },
            false => FaultKind::RemoveMon { which: mons(&mut r, s) },
        };
        let when = *r.pick(&[Trigger::AtOnce, Trigger::NewMap, Trigger::MonWrite, Trigger::MonDurable]);
        out.push(Fault { at, when, kind });
        at += every / 2 + r.below(every);
    }
}

/// Flags that an administrator sets for a while.
const FLAGS: [&str; 9] =
    ["nodown", "noup", "noout", "noin", "norebalance", "nobackfill", "norecover", "noscrub", "pause"];

/// Pools besides the clients' that come and go, and how many copies of a write are enough.
fn pool_command(r: &mut Rng) -> String {
    let pool = format!("q{}", r.below(2));
    match r.below(3) {
        0 => {
            let sure = r#""yes_i_really_really_mean_it":true"#;
            format!(r#"{{"prefix":"osd pool delete","pool":"{pool}","pool2":"{pool}",{sure}}}"#)
        }
        1 => format!(r#"{{"prefix":"osd pool create","pool":"{pool}","pg_num":{}}}"#, 1 + r.below(4)),
        _ => {
            let val = 1 + r.below(2);
            format!(r#"{{"prefix":"osd pool set","pool":"p","var":"min_size","val":"{val}"}}"#)
        }
    }
}

/// What goes wrong with guests, and what only scenarios with guests are made for: rot, and scrubs.
fn around_guests(s: &Scenario, out: &mut Vec<Fault>) {
    let mut r = Rng::new(s.seed ^ 0x9_0e57);
    let every = s.options.fault_every.min(GUEST_FAULTS);
    let mut at = SECOND + r.below(every);
    while at < s.seconds * SECOND {
        let guest = r.below(s.options.guests.len().max(1) as u64) as usize;
        let kind = match r.one_in(3) {
            true => FaultKind::CutAll { node: Node::Guest(guest) },
            false => FaultKind::RestartGuest { guest },
        };
        out.push(Fault { at, when: Trigger::AtOnce, kind });
        if s.level == Level::All && s.options.size > 1 && r.one_in(12) {
            let later = at + r.below(5 * SECOND);
            out.push(Fault { at: later, when: Trigger::AtOnce, kind: FaultKind::Rot { nth: r.next_u64() } });
        }
        if r.one_in(8) {
            let kind = FaultKind::Scrub { deep: r.one_in(2), repair: false };
            out.push(Fault { at: at + r.below(5 * SECOND), when: Trigger::AtOnce, kind });
        }
        at += every / 2 + r.below(every);
    }
}

/// A primary and a client that nobody else reaches, for long enough that others take over and write. Clients that write soon
/// wait for what cannot be done there; those that read find out what the old primary still answers.
fn long_islands(s: &Scenario, out: &mut Vec<Fault>) {
    let mut r = Rng::new(s.seed ^ 0x15_1a2d);
    let grace = s.options.heartbeat_grace_s * SECOND;
    let all = 0..s.options.clients;
    let readers: Vec<usize> = all.clone().filter(|c| is_reader(s.seed, *c)).collect();
    let clients = if readers.is_empty() { all.collect() } else { readers };
    let mut at = r.below(2 * grace);
    while at < s.seconds * SECOND {
        let osd = if r.one_in(2) { 0 } else { r.below(s.options.osds as u64) as i32 };
        let client = *r.pick(&clients);
        // Clients that wait for an OSD ask for a newer map after ten seconds.
        let lasts = grace + 5 * SECOND + r.below(15 * SECOND);
        out.push(Fault { at, when: Trigger::AtOnce, kind: FaultKind::Island { osd, client, lasts } });
        at += lasts + r.below(4 * grace);
    }
}

/// Mostly short, at times long enough to be marked down, rarely long enough to be marked out.
pub(crate) fn lasts(r: &mut Rng, s: &Scenario) -> Time {
    let grace = s.options.heartbeat_grace_s * SECOND;
    match r.below(10) {
        0..=3 => 20 * MILLISECOND + r.below(SECOND),
        4..=7 => r.below(2 * grace + SECOND),
        8 => grace + r.below(4 * grace),
        _ => grace + r.below(s.options.down_out_s.min(60) * SECOND * 2),
    }
}

pub(crate) fn death(r: &mut Rng) -> Death {
    if r.one_in(3) { Death::PowerLoss } else { Death::Killed }
}

fn kind(r: &mut Rng, s: &Scenario) -> FaultKind {
    let osds = s.options.osds;
    let osd = r.below(osds as u64) as i32;
    let down = lasts(r, s);
    let bound = match s.level {
        Level::Calm | Level::Power => 2,
        Level::Crash => 11,
        Level::Links => 25,
        Level::All => 36,
    };
    match r.below(bound) {
        0 => FaultKind::CrashAll { death: death(r), down },
        1 => FaultKind::CrashAll { death: Death::PowerLoss, down: 20 * MILLISECOND },
        2..=6 => FaultKind::CrashOsds { osds: vec![osd], death: death(r), down },
        7 | 8 => {
            let osds = (0..osds).filter(|o| *o == osd || r.one_in(2)).collect();
            FaultKind::CrashOsds { osds, death: death(r), down }
        }
        9 => FaultKind::CrashMons { which: mons(r, s), death: death(r), down },
        10 => FaultKind::CrashMgr { down },
        11..=15 => FaultKind::Cut { nth: r.next_u64() },
        16 => FaultKind::CutAll { node: Node::Osd(osd) },
        17..=21 => {
            let from = match r.below(6) {
                0 => From::All,
                1 => From::OtherOsds,
                2 if r.one_in(2) => From::OneMonitor(r.below(s.options.mons as u64) as usize),
                2 => From::Monitors,
                3 => From::OneOsd((osd + 1 + r.below(osds as u64 - 1) as i32) % osds),
                4 => From::Clients,
                _ => From::AllButClients,
            };
            FaultKind::Partition { osd, from, both_ways: !r.one_in(4), lasts: down }
        }
        22 if s.options.mons > 1 && !r.one_in(3) => cut_mon(r, s, down),
        22 => FaultKind::MonUnreachable { which: mons(r, s), lasts: down },
        23 | 24 => FaultKind::Island { osd, client: r.below(s.options.clients as u64) as usize, lasts: down },
        25 | 26 => FaultKind::SlowDevice { osd, factor: *r.pick(&[10, 100, 1_000]), lasts: down },
        27 => FaultKind::FailDevice { osd, nth: r.below(24), down },
        28 | 29 => FaultKind::MarkOut { osd, lasts: down },
        34 if s.options.mons > 1 => {
            FaultKind::WipeMon { mon: r.below(s.options.mons as u64) as usize, damaged: r.one_in(2) }
        }
        35 if s.options.mons > 1 => cut_mon(r, s, down),
        _ => FaultKind::Command(command(r, s, osd)),
    }
}

fn mons(r: &mut Rng, s: &Scenario) -> Mons {
    match r.below(8) {
        0..=2 => Mons::Leader,
        3 => Mons::Majority,
        4 => Mons::All,
        _ => Mons::One(r.below(s.options.mons as u64) as usize),
    }
}

fn cut_mon(r: &mut Rng, s: &Scenario, lasts: Time) -> FaultKind {
    let from = (!r.one_in(3)).then(|| r.below(s.options.mons as u64) as usize);
    FaultKind::CutMon { which: mons(r, s), from, both_ways: r.one_in(2), lasts }
}

fn command(r: &mut Rng, s: &Scenario, osd: i32) -> String {
    let pool_set = |var: &str, val: u64| {
        format!(r#"{{"prefix":"osd pool set","pool":"p","var":"{var}","val":"{val}"}}"#)
    };
    match r.below(6) {
        0 | 1 => format!(r#"{{"prefix":"osd down","ids":["{osd}"]}}"#),
        2 => {
            let weight = 0.25 * (1 + r.below(8)) as f64;
            format!(r#"{{"prefix":"osd crush reweight","name":"osd.{osd}","weight":{weight}}}"#)
        }
        3 => {
            let weight = 0.25 * r.below(5) as f64;
            format!(r#"{{"prefix":"osd primary-affinity","id":{osd},"weight":{weight}}}"#)
        }
        4 => pool_set("size", 2 + r.below(2)),
        _ => pool_set("pg_num", u64::from(s.options.pg_num) + r.below(12)),
    }
}

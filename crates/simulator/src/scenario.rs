//! The options of one run: a seed expands to all of them, and they print as one line that makes the run again.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use testkit::Rng;

use crate::faults::Fault;
use crate::guest::GuestKind;
use crate::mutant::Mutant;
use crate::queue::{MICROSECOND, MILLISECOND, SECOND, Time};

/// Everything that decides a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    pub seed: u64,
    /// Simulated seconds with faults, before healing.
    pub seconds: u64,
    /// Which kinds of faults may happen.
    pub level: Level,
    /// Faults of the plan that are left out, by their place in it.
    pub skip: BTreeSet<usize>,
    /// A bug that is planted in the adapters around the cores.
    pub mutant: Option<Mutant>,
    pub profile: Profile,
    /// Faults by hand instead of the seed's; a line does not hold them.
    pub plan: Option<Vec<Fault>>,
    /// When it is not for the seed to say.
    pub mons: Option<usize>,
    /// Other clients with habits of their own, rot, and scrubs besides.
    pub guests: bool,
    /// Links carry the bytes of connections instead of messages as they are.
    pub wire: bool,
    /// The clients' pool is erasure-coded.
    pub coded: bool,
    pub options: Options,
}

/// What kind of cluster the seed chooses, and how busy it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Profile {
    /// Small clusters of all kinds, busy all the time, with faults every few seconds.
    #[default]
    Storm,
    /// What counts as simulated hours: at least three monitors, four OSDs and two clients, a fault in every minute, and busy
    /// spells around faults with quiet ones between.
    Hour,
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Storm => "storm",
            Self::Hour => "hour",
        })
    }
}
impl FromStr for Profile {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        match s {
            "storm" => Ok(Self::Storm),
            "hour" => Ok(Self::Hour),
            _ => Err(format!("no profile '{s}'")),
        }
    }
}

/// How much goes wrong; each level adds to those before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    Calm,
    /// All processes at once.
    Power,
    /// Single processes, in any order.
    Crash,
    /// Connections and partitions.
    Links,
    /// Slow and failing devices, and OSDs marked out and in.
    All,
}

impl Level {
    pub const EACH: [(&'static str, Self); 5] = [
        ("calm", Self::Calm),
        ("power", Self::Power),
        ("crash", Self::Crash),
        ("links", Self::Links),
        ("all", Self::All),
    ];
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::EACH.iter().find(|(_, l)| l == self).map_or("?", |(n, _)| n);
        f.write_str(name)
    }
}
impl FromStr for Level {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        let found = Self::EACH.iter().find(|(n, _)| *n == s);
        found.map(|(_, l)| *l).ok_or_else(|| format!("no level '{s}'"))
    }
}

/// What the seed chooses.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    pub mons: usize,
    /// Of each monitor: its monotonic clock's rate in parts per thousand, and how many seconds its wall clock is ahead.
    pub mon_clocks: Vec<(u64, i64)>,
    pub(crate) osd_clocks: Vec<(u64, i64)>,
    pub osds: i32,
    pub clients: usize,
    pub size: u8,
    pub min_size: u8,
    /// Data and coding shards of an erasure-coded pool.
    pub code: Option<(u8, u8)>,
    pub pg_num: u32,
    pub objects: usize,
    /// The last so many of them are written once, and read by nobody before the end.
    pub cold: usize,
    /// Requests that one client has under way at a time.
    pub depth: usize,
    /// Between a reply and the next request.
    pub think: Time,
    /// The longest payload but for a few large ones.
    pub payload: usize,
    /// Least delay of a message; most take up to four times as long.
    pub latency: Time,
    /// Least time of a flush.
    pub flush: Time,
    /// Mean time between two faults.
    pub fault_every: Time,
    /// Between a reply and the next request in quiet spells; `None`: there are none.
    pub quiet_think: Option<Time>,
    pub heartbeat_interval_s: u64,
    pub heartbeat_grace_s: u64,
    /// Down OSDs are marked out after this many seconds.
    pub down_out_s: u64,
    pub log_entries: usize,
    pub dups_tracked: u64,
    pub backfill_scan: usize,
    /// Work that an OSD does for clients with one batch of inputs; little: a request or a few.
    pub slice_bytes: u64,
    /// Requests that an OSD has room for; where that is little, clients are held.
    pub room: u64,
    /// A write of more bytes goes ahead to the members in pieces of so many.
    pub stage: (usize, u64),
    /// OSD maps that the monitors keep at least.
    pub maps_kept: u64,
    /// OSDs say this often from where on they need maps; before all have, the monitors forget none.
    pub beacon_s: u64,
    /// Log entries of the monitor between two snapshots.
    pub mon_snapshot_every: u64,
    pub guests: Vec<GuestKind>,
    /// Nothing else goes wrong: what is bound to the death of a watcher happens in its time.
    pub only_guests_die: bool,
    /// This client only reads, whatever its seed says.
    pub reader: Option<usize>,
    /// One of so many messages between OSDs does not decode where it arrives.
    pub garbled: Option<u64>,
    /// So many OSDs share a host, and end with it.
    pub osds_per_host: usize,
    /// Each OSD's device, and how much of it is the store's log: a small one is emptied often.
    pub device_mb: u64,
    pub log_kb: u64,
}

impl Options {
    fn of(seed: u64) -> Self {
        let r = &mut Rng::new(seed ^ 0x0970_0115);
        let osds = *r.pick(&[3, 3, 3, 4, 5]);
        let size = *r.pick(&[3u8, 3, 2]);
        // From numbers of their own, so that they do not change the others.
        let m = &mut Rng::new(seed ^ 0x3a_6d6f6e);
        let mons = *m.pick(&[1, 3, 3, 3, 3, 5]);
        let mon_clocks = (0..mons).map(|_| (995 + m.below(11), skew(m))).collect();
        let osd_clocks = (0..osds).map(|_| (999 + m.below(3), skew(m))).collect();
        let min_size = if size == 3 && r.one_in(4) { 1 } else { size - 1 };
        Self {
            mons,
            mon_clocks,
            osd_clocks,
            osds,
            clients: *r.pick(&[1, 2, 3, 3, 4]),
            size,
            min_size,
            code: None,
            pg_num: *r.pick(&[1, 2, 4, 8, 16]),
            objects: *r.pick(&[2, 6, 12, 24]),
            cold: 0,
            depth: *r.pick(&[1, 2, 4]),
            think: *r.pick(&[10, 50, 50, 200, 500]) * MILLISECOND,
            payload: *r.pick(&[100, 2_000, 20_000]),
            latency: *r.pick(&[20, 100, 500]) * MICROSECOND,
            flush: *r.pick(&[100, 1_000, 5_000]) * MICROSECOND,
            fault_every: *r.pick(&[1_500, 4_000, 10_000]) * MILLISECOND,
            quiet_think: None,
            heartbeat_interval_s: 1,
            heartbeat_grace_s: *r.pick(&[3, 6, 20]),
            down_out_s: *r.pick(&[8, 30, 600]),
            log_entries: *r.pick(&[5, 30, 250]),
            dups_tracked: *r.pick(&[500, 3_000]),
            backfill_scan: *r.pick(&[2, 16, 128]),
            slice_bytes: slice_of(seed),
            room: room_of(seed),
            stage: stage_of(seed),
            maps_kept: *m.pick(&[5, 20, 500]),
            beacon_s: *m.pick(&[1, 5, 60]),
            mon_snapshot_every: *r.pick(&[7, 50, 1_000]),
            guests: Vec::new(),
            only_guests_die: false,
            reader: None,
            garbled: None,
            osds_per_host: 1,
            device_mb: 96,
            log_kb: 8 << 10,
        }
    }
}

/// How long a client can be cut off with an OSD, until it hears of another: grace, what is added, and its next question.
const LONGEST_ISLAND_S: u64 = 20 + 20 + 10;

/// Duplicates that a PG remembers at most for the sake of that.
const MOST_DUPS: u64 = 100_000;

/// Some of them, but never none.
fn guests_of(seed: u64) -> Vec<GuestKind> {
    let r = &mut Rng::new(seed ^ 0x6_7565_7374);
    let mut all = Vec::new();
    if !r.one_in(3) {
        all.push(if r.one_in(3) { GuestKind::PoolSnaps } else { GuestKind::Snaps });
    }
    if r.one_in(2) {
        all.extend([GuestKind::Locker; 3].into_iter().take(2 + r.below(2) as usize));
    }
    if r.one_in(2) || all.is_empty() {
        all.extend([GuestKind::Watcher, GuestKind::Watcher, GuestKind::Notifier]);
    }
    all
}

impl Options {
    /// As [`Profile::Hour`] wants it, with the times that a cluster has by default.
    fn hour(seed: u64) -> Self {
        let mut o = Self::of(seed);
        let r = &mut Rng::new(seed ^ 0x40_757273);
        o.mons = if r.one_in(6) { 5 } else { 3 };
        o.osds = *r.pick(&[4, 4, 4, 5, 6]);
        o.clients = *r.pick(&[2, 2, 3]);
        o.size = *r.pick(&[3, 3, 3, 2]);
        o.min_size = o.size - 1;
        o.pg_num = *r.pick(&[4, 8, 16]);
        o.objects = *r.pick(&[12, 24, 48]);
        o.depth = *r.pick(&[1, 2, 4]);
        o.think = *r.pick(&[20, 50, 100]) * MILLISECOND;
        o.quiet_think = Some(*r.pick(&[2_000, 5_000]) * MILLISECOND);
        o.remember_islands();
        o.payload = *r.pick(&[100, 2_000]);
        // No two faults are further apart than 7/4 of this.
        o.fault_every = *r.pick(&[15_000, 25_000, 34_000]) * MILLISECOND;
        (o.heartbeat_interval_s, o.heartbeat_grace_s) = *r.pick(&[(6, 20), (3, 20), (2, 8)]);
        o.down_out_s = *r.pick(&[60, 600]);
        o.mon_clocks = (0..o.mons).map(|_| (995 + r.below(11), skew(r))).collect();
        o.osd_clocks = (0..o.osds).map(|_| (999 + r.below(3), skew(r))).collect();
        o
    }

    fn new(profile: Profile, seed: u64) -> Self {
        let mut o = match profile {
            Profile::Storm => Self::of(seed),
            Profile::Hour => Self::hour(seed),
        };
        if is_late(profile, seed) {
            o.garbled = garbled_of(seed);
            o.osds_per_host = 1 + usize::from(Rng::new(seed ^ 0x4057_505e).one_in(3));
            o.add_visitor(seed);
        }
        o
    }

    /// At half of the late seeds somebody uses pools that come and go.
    fn add_visitor(&mut self, seed: u64) {
        if Rng::new(seed ^ 0x71_5170).one_in(2) {
            self.guests.push(GuestKind::Visitor);
        }
    }

    /// A request that is sent again after more writes than its PG remembers runs twice, and nobody promised
    /// more.
    fn remember_islands(&mut self) {
        let a_second = self.clients as u64 * self.depth as u64 * SECOND / self.think.max(MILLISECOND);
        self.dups_tracked = self.dups_tracked.max((a_second * LONGEST_ISLAND_S).min(MOST_DUPS));
    }

    fn add_guests(&mut self, profile: Profile, seed: u64) {
        self.guests = guests_of(seed);
        if is_late(profile, seed) {
            self.add_visitor(seed);
        }
        // Rot comes to what lies in its place.
        self.log_kb = *Rng::new(seed ^ 0x10_6b62).pick(&[1 << 10, 1 << 10, 8 << 10]);
    }

    /// With an erasure-coded pool, for which there are OSDs enough.
    fn add_coded(&mut self, seed: u64) {
        let r = &mut Rng::new(seed ^ 0xc0de);
        let (k, m) = *r.pick(&[(2, 1), (2, 1), (2, 2), (2, 2), (3, 2), (4, 2), (5, 1), (6, 2)]);
        self.code = Some((k, m));
        self.size = k + m;
        self.min_size = if m > 1 { k + 1 } else { k };
        self.osds = (i32::from(self.size) + r.below(3) as i32).max(4);
        self.osd_clocks = (0..self.osds).map(|_| (999 + r.below(3), skew(r))).collect();
        self.remember_islands();
    }

    /// Log entries, and duplicates beyond them, that a PG keeps at least.
    pub fn remembered(&self, mutant: Option<Mutant>) -> (usize, u64) {
        match mutant {
            // The bug: requests that were done are forgotten at once.
            Some(Mutant::DupsForgotten) => (1, 0),
            _ => (self.log_entries, self.dups_tracked),
        }
    }

    /// Rate in parts per thousand, and seconds ahead.
    pub fn osd_clock(&self, osd: i32) -> (u64, i64) {
        self.osd_clocks.get(osd as usize).copied().unwrap_or((1_000, 0))
    }
}

/// At half of the seeds OSDs stop after a request, or after two or three, and go on when others had their
/// turn.
fn slice_of(seed: u64) -> u64 {
    let mut r = Rng::new(seed ^ 0x51_1ce5);
    *r.pick(&[1, 40 << 10, pg::Portions::default().slice, pg::Portions::default().slice])
}

/// At three of eight seeds an OSD holds clients that have more than a few requests there.
fn room_of(seed: u64) -> u64 {
    let mut r = Rng::new(seed ^ 0x726f_6f6d);
    *r.pick(&[1, 3, 6, ROOM, ROOM, ROOM, ROOM, ROOM])
}

/// What OSDs have room for by default. Clients here have fewer under way.
pub(crate) const ROOM: u64 = 256;

/// At half of the seeds all but small writes go ahead to the members in pieces, as large ones do.
fn stage_of(seed: u64) -> (usize, u64) {
    let mut r = Rng::new(seed ^ 0x5_7a6e);
    *r.pick(&[(6 << 10, 4 << 10), (30 << 10, 8 << 10), LARGE, LARGE])
}

/// What OSDs stage by default. No client here writes as much.
pub(crate) const LARGE: (usize, u64) = (4 << 20, 1 << 20);

/// Whether a seed has what came after others had run: those mean what they meant when they ran.
pub(crate) fn is_late(profile: Profile, seed: u64) -> bool {
    match profile {
        Profile::Storm => seed >= 10_000,
        Profile::Hour => seed >= 2_341,
    }
}

/// At one seed of eight some messages between OSDs do not decode.
fn garbled_of(seed: u64) -> Option<u64> {
    let mut r = Rng::new(seed ^ 0x6a_4b1ed);
    r.one_in(8).then(|| *r.pick(&[300, 3_000, 30_000]))
}

/// One seed of eight: messages that are encoded, framed and decoded cost more.
fn is_wired(seed: u64) -> bool {
    Rng::new(seed ^ 0x6279_7465).one_in(8)
}

/// Seconds that a wall clock is ahead: mostly none, at times up to an hour either way.
fn skew(r: &mut Rng) -> i64 {
    match r.below(6) {
        0 => r.below(7_200) as i64 - 3_600,
        1 => r.below(3) as i64 - 1,
        _ => 0,
    }
}

impl Scenario {
    /// The run that a seed stands for.
    pub fn from_seed(seed: u64) -> Self {
        Self {
            seed,
            seconds: 60,
            level: Level::All,
            skip: BTreeSet::new(),
            mutant: None,
            profile: Profile::Storm,
            plan: None,
            mons: None,
            guests: false,
            wire: is_wired(seed),
            coded: false,
            options: Options::new(Profile::Storm, seed),
        }
    }

    /// With guests as the seed says.
    #[must_use]
    pub fn with_guests(mut self) -> Self {
        self.guests = true;
        self.options.add_guests(self.profile, self.seed);
        self
    }

    /// With an erasure-coded pool as the seed says.
    #[must_use]
    pub fn with_coded(mut self) -> Self {
        self.coded = true;
        self.options.add_coded(self.seed);
        self
    }

    /// With links that carry bytes, or none, whatever the seed says.
    #[must_use]
    pub fn with_wire(self, wire: bool) -> Self {
        Self { wire, ..self }
    }

    #[must_use]
    pub fn with_level(self, level: Level) -> Self {
        Self { level, ..self }
    }

    #[must_use]
    pub fn with_seconds(self, seconds: u64) -> Self {
        Self { seconds, ..self }
    }

    #[must_use]
    pub fn with_mutant(self, mutant: Mutant) -> Self {
        Self { mutant: Some(mutant), ..self }
    }

    #[must_use]
    pub fn with_profile(self, profile: Profile) -> Self {
        let mut out = Self { profile, options: Options::new(profile, self.seed), ..self };
        if out.guests {
            out.options.add_guests(profile, out.seed);
        }
        if out.coded {
            out.options.add_coded(out.seed);
        }
        match out.mons {
            Some(mons) => out.with_mons(mons),
            None => out,
        }
    }

    /// Faults by hand instead of the seed's.
    #[must_use]
    pub fn with_plan(self, plan: Vec<Fault>) -> Self {
        Self { plan: Some(plan), ..self }
    }

    /// Options by hand; a line does not hold them.
    #[must_use]
    pub fn with_options(mut self, change: impl FnOnce(&mut Options)) -> Self {
        change(&mut self.options);
        self
    }

    /// Another number of monitors than the seed's.
    #[must_use]
    pub fn with_mons(mut self, mons: usize) -> Self {
        self.mons = Some(mons.clamp(1, 9));
        self.options.mons = mons.clamp(1, 9);
        self
    }

    /// The line that makes this run again: `seed=7 seconds=60 level=all skip=1,4 mutant=lose-flush`.
    pub fn line(&self) -> String {
        let mut s = format!("seed={} seconds={} level={}", self.seed, self.seconds, self.level);
        if !self.skip.is_empty() {
            let all: Vec<String> = self.skip.iter().map(usize::to_string).collect();
            s += &format!(" skip={}", all.join(","));
        }
        if self.profile != Profile::Storm {
            s += &format!(" profile={}", self.profile);
        }
        if let Some(mons) = self.mons {
            s += &format!(" mons={mons}");
        }
        if self.guests {
            s += " guests=yes";
        }
        if self.coded {
            s += " coded=yes";
        }
        if self.wire != is_wired(self.seed) {
            s += if self.wire { " wire=yes" } else { " wire=no" };
        }
        if let Some(m) = self.mutant {
            s += &format!(" mutant={m}");
        }
        s
    }
}

impl FromStr for Scenario {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let mut out = Self::from_seed(0);
        for word in line.split_whitespace() {
            let (key, value) = word.split_once('=').ok_or_else(|| format!("'{word}' is no option"))?;
            let number = || value.parse::<u64>().map_err(|_| format!("'{value}' is no number"));
            match key {
                "seed" => {
                    out.seed = number()?;
                    out.wire = is_wired(out.seed);
                    let profile = out.profile;
                    out = out.with_profile(profile);
                }
                "seconds" => out.seconds = number()?,
                "level" => out.level = value.parse()?,
                "profile" => out = out.with_profile(value.parse()?),
                "mons" => out = out.with_mons(number()? as usize),
                "skip" => {
                    let each = value.split(',').map(|n| n.parse().map_err(|_| format!("'{n}' is no number")));
                    out.skip = each.collect::<Result<_, String>>()?;
                }
                "guests" if value == "yes" => out = out.with_guests(),
                "coded" if value == "yes" => out = out.with_coded(),
                "wire" if value == "yes" || value == "no" => out.wire = value == "yes",
                "mutant" => out.mutant = Some(value.parse()?),
                _ => return Err(format!("no option '{key}'")),
            }
        }
        Ok(out)
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let o = &self.options;
        write!(
            f,
            "{} ({} monitors, {} OSDs, {} clients x {}, size {}/{}{}, {} PGs, {} objects of {} B, think {} ms, latency {} us, \
             flush {} us, fault every {} ms, grace {} s, out after {} s, log {}, dups {}, scan {}, maps {}, \
             beacon every {} s, mon snapshot {}, slices of {} B, room for {}, \
             guests {}, links of {})",
            self.line(),
            o.mons,
            o.osds,
            o.clients,
            o.depth,
            o.size,
            o.min_size,
            o.code.map(|(k, m)| format!(" of {k}+{m} shards")).unwrap_or_default(),
            o.pg_num,
            o.objects,
            o.payload,
            o.think / MILLISECOND,
            o.latency / MICROSECOND,
            o.flush / MICROSECOND,
            o.fault_every / MILLISECOND,
            o.heartbeat_grace_s,
            o.down_out_s,
            o.log_entries,
            o.dups_tracked,
            o.backfill_scan,
            o.maps_kept,
            o.beacon_s,
            o.mon_snapshot_every,
            o.slice_bytes,
            o.room,
            o.guests.iter().map(GuestKind::to_string).collect::<Vec<_>>().join(" "),
            if self.wire { "bytes" } else { "messages" },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_makes_the_same_scenario() {
        let mut s = Scenario::from_seed(77)
            .with_seconds(9)
            .with_level(Level::Links)
            .with_mons(5)
            .with_guests()
            .with_coded()
            .with_wire(!is_wired(77))
            .with_profile(Profile::Hour);
        s.skip = [3, 5].into();
        s.mutant = Some(Mutant::LoseFlush);
        assert_eq!(s.line().parse(), Ok(s));
        assert!("seed=x".parse::<Scenario>().is_err() && "what".parse::<Scenario>().is_err());
    }
}

//! The options of one run: a seed expands to all of them, and they print as one line that makes the run again.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use testkit::Rng;

use crate::mutant::Mutant;
use crate::queue::{MICROSECOND, MILLISECOND, Time};

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
    pub options: Options,
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
    pub osds: i32,
    pub clients: usize,
    pub size: u8,
    pub min_size: u8,
    pub pg_num: u32,
    pub objects: usize,
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
    pub heartbeat_grace_s: u64,
    /// Down OSDs are marked out after this many seconds.
    pub down_out_s: u64,
    pub log_entries: usize,
    pub dups_tracked: u64,
    pub backfill_scan: usize,
    /// Log entries of the monitor between two snapshots.
    pub mon_snapshot_every: u64,
}

impl Options {
    fn of(seed: u64) -> Self {
        let r = &mut Rng::new(seed ^ 0x0970_0115);
        let osds = *r.pick(&[3, 3, 3, 4, 5]);
        let size = *r.pick(&[3u8, 3, 2]);
        let min_size = if size == 3 && r.one_in(4) { 1 } else { size - 1 };
        Self {
            osds,
            clients: *r.pick(&[1, 2, 3, 3, 4]),
            size,
            min_size,
            pg_num: *r.pick(&[1, 2, 4, 8, 16]),
            objects: *r.pick(&[2, 6, 12, 24]),
            depth: *r.pick(&[1, 2, 4]),
            think: *r.pick(&[10, 50, 50, 200, 500]) * MILLISECOND,
            payload: *r.pick(&[100, 2_000, 20_000]),
            latency: *r.pick(&[20, 100, 500]) * MICROSECOND,
            flush: *r.pick(&[100, 1_000, 5_000]) * MICROSECOND,
            fault_every: *r.pick(&[1_500, 4_000, 10_000]) * MILLISECOND,
            heartbeat_grace_s: *r.pick(&[3, 6, 20]),
            down_out_s: *r.pick(&[8, 30, 600]),
            log_entries: *r.pick(&[5, 30, 250]),
            dups_tracked: *r.pick(&[500, 3_000]),
            backfill_scan: *r.pick(&[2, 16, 128]),
            mon_snapshot_every: *r.pick(&[7, 50, 1_000]),
        }
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
            options: Options::of(seed),
        }
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

    /// The line that makes this run again: `seed=7 seconds=60 level=all skip=1,4 mutant=lose-flush`.
    pub fn line(&self) -> String {
        let mut s = format!("seed={} seconds={} level={}", self.seed, self.seconds, self.level);
        if !self.skip.is_empty() {
            let all: Vec<String> = self.skip.iter().map(usize::to_string).collect();
            s += &format!(" skip={}", all.join(","));
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
                    out.options = Options::of(out.seed);
                }
                "seconds" => out.seconds = number()?,
                "level" => out.level = value.parse()?,
                "skip" => {
                    let each = value.split(',').map(|n| n.parse().map_err(|_| format!("'{n}' is no number")));
                    out.skip = each.collect::<Result<_, String>>()?;
                }
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
            "{} ({} OSDs, {} clients x {}, size {}/{}, {} PGs, {} objects of {} B, think {} ms, latency {} us, \
             flush {} us, fault every {} ms, grace {} s, out after {} s, log {}, dups {}, scan {}, mon snapshot {})",
            self.line(),
            o.osds,
            o.clients,
            o.depth,
            o.size,
            o.min_size,
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
            o.mon_snapshot_every,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_makes_the_same_scenario() {
        let mut s = Scenario::from_seed(77).with_seconds(9).with_level(Level::Links);
        s.skip = [3, 5].into();
        s.mutant = Some(Mutant::LoseFlush);
        assert_eq!(s.line().parse(), Ok(s));
        assert!("seed=x".parse::<Scenario>().is_err() && "what".parse::<Scenario>().is_err());
    }
}

//! Simulated cluster-hours by the dozen: seeds of the hour profile on all cores, until so many hours are full or the time is up.
//!
//! Only the seconds with faults and load count, of runs in which every check held.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use simulator::{Level, Profile, Report, Scenario, run};

/// Simulated seconds with faults of one run; healing and the last checks come after them.
const SECONDS: u64 = 600;
/// An hour counts only with a fault in every simulated minute.
const CALM: f64 = 60.0;
/// So many of the first seeds run twice.
const TWICE: u64 = 10;

/// From this seed on some have an erasure-coded pool.
const FIRST_CODED: u64 = 2_341;

/// Which seeds the gate takes next, and which failed once.
const KEPT: &str = include_str!("../hours.txt");

/// The seeds of the gate: `next N` is the first that no gate has run, `failed N reason` one that every gate runs again.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Kept {
    pub next: u64,
    pub failed: Vec<u64>,
}

impl Kept {
    /// Those of the repository.
    pub fn of_the_repository() -> Result<Self, String> {
        Self::parse(KEPT)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let mut kept = Self::default();
        for line in text.lines().filter(|l| !l.is_empty() && !l.starts_with('#')) {
            let mut words = line.split(' ');
            let (key, seed) = (words.next(), words.next().and_then(|n| n.parse().ok()));
            match (key, seed) {
                (Some("next"), Some(seed)) => kept.next = seed,
                (Some("failed"), Some(seed)) if words.next().is_some() => kept.failed.push(seed),
                _ => return Err(format!("hours.txt: '{line}' is neither 'next N' nor 'failed N reason'")),
            }
        }
        match kept.failed.iter().find(|seed| **seed >= kept.next) {
            Some(seed) => Err(format!("hours.txt: seed {seed} failed, and comes after the next one")),
            None => Ok(kept),
        }
    }
}

/// What to run.
pub struct Wanted {
    pub hours: f64,
    pub first_seed: u64,
    /// Run besides, before the others; they are no new hours.
    pub again: Vec<u64>,
    pub jobs: usize,
    /// Real seconds after which no new run begins.
    pub limit_s: f64,
}

/// What it came to.
#[derive(Debug, Default)]
pub struct Sum {
    pub runs: u64,
    pub first_seed: u64,
    pub last_seed: u64,
    pub hours: f64,
    pub operations: u64,
    pub faults: u64,
    pub events: u64,
    /// Runs whose trace was compared with that of a second one.
    pub compared: u64,
    /// Histories that were too tangled to judge, by seed.
    pub undecided: BTreeMap<u64, usize>,
    pub longest_wait_s: f64,
    pub longest_healing_s: f64,
    /// The longest time without a fault of any run.
    pub longest_calm_s: f64,
    pub guest_answers: u64,
    /// What guests did, altogether.
    pub guests: BTreeMap<&'static str, u64>,
    /// What failed, by seed.
    pub failed: BTreeMap<u64, Vec<String>>,
    pub real_s: f64,
}

impl Sum {
    /// Why this is not good enough, if it is not.
    pub fn complaint(&self, wanted: &Wanted) -> Option<String> {
        if !self.failed.is_empty() {
            return Some(format!("{} runs failed", self.failed.len()));
        }
        if !self.undecided.is_empty() {
            let seeds: Vec<String> = self.undecided.keys().map(u64::to_string).collect();
            return Some(format!("histories of seeds {} were too tangled to judge", seeds.join(", ")));
        }
        // Sixths of an hour add up to a little less than they are.
        if self.hours + 1e-6 < wanted.hours {
            return Some(format!("{:.1} hours, {} wanted", self.hours, wanted.hours));
        }
        None
    }

    /// `fresh`: its time counts; otherwise only what failed does.
    fn add(&mut self, seed: u64, fresh: bool, report: &Report, again: Option<&Report>) {
        self.runs += 1;
        if fresh {
            self.last_seed = self.last_seed.max(seed);
        }
        self.operations += report.acked;
        self.faults += report.faults;
        self.events += report.events;
        if report.undecided > 0 {
            self.undecided.insert(seed, report.undecided);
        }
        self.longest_wait_s = self.longest_wait_s.max(report.longest_wait_seconds);
        self.longest_healing_s = self.longest_healing_s.max(report.healing_seconds);
        self.longest_calm_s = self.longest_calm_s.max(report.longest_calm_seconds);
        self.guest_answers += report.guest_answers;
        report.guests.iter().for_each(|(what, n)| *self.guests.entry(what).or_default() += n);
        let mut violations = report.violations.clone();
        if let Some(again) = again {
            self.compared += 1;
            if again != report {
                violations.push("O9: the second run went another way".to_owned());
            }
        }
        if report.longest_calm_seconds > CALM {
            violations.push(format!("no fault for {:.1} s", report.longest_calm_seconds));
        }
        match violations.is_empty() {
            true if fresh => self.hours += SECONDS as f64 / 3_600.0,
            true => {}
            false => _ = self.failed.insert(seed, violations),
        }
    }
}

impl fmt::Display for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:.1} simulated cluster-hours in {} runs (seeds {} to {}, {} of them run twice), {} failed: {} requests \
             answered, {} more to guests, {} faults, never {:.1} s without one, {} events; longest wait after healing {:.1} s, longest healing {:.0} s; {:.0} s real, \
             {:.0} times real time",
            self.hours,
            self.runs,
            self.first_seed,
            self.last_seed,
            self.compared,
            self.failed.len(),
            self.operations,
            self.guest_answers,
            self.faults,
            self.longest_calm_s,
            self.events,
            self.longest_wait_s,
            self.longest_healing_s,
            self.real_s,
            self.hours * 3_600.0 / self.real_s.max(1e-9),
        )?;
        let guests: Vec<String> = self.guests.iter().map(|(what, n)| format!("{n} {what}")).collect();
        if guests.is_empty() { Ok(()) } else { write!(f, "\n  guests: {}", guests.join(", ")) }
    }
}

/// One of six has an erasure-coded pool, of seeds that came after OSDs had learnt of these: earlier ones mean
/// what they meant when they ran.
pub fn scenario(seed: u64) -> Scenario {
    let scenario = Scenario::from_seed(seed)
        .with_profile(Profile::Hour)
        .with_guests()
        .with_level(Level::All)
        .with_seconds(SECONDS);
    if seed >= FIRST_CODED && seed % 6 == 1 { scenario.with_coded() } else { scenario }
}

/// Runs seeds on all jobs.
pub fn run_all(wanted: &Wanted) -> Sum {
    let began = Instant::now();
    let runs = (wanted.hours * 3_600.0 / SECONDS as f64).ceil() as u64;
    let fresh = wanted.first_seed..wanted.first_seed + runs;
    let again = wanted.again.iter().filter(|seed| !fresh.contains(seed)).map(|seed| (*seed, false));
    let all: Vec<(u64, bool)> = again.chain(fresh.clone().map(|seed| (seed, true))).collect();
    let next = AtomicUsize::new(0);
    let first = Sum { first_seed: wanted.first_seed, last_seed: wanted.first_seed, ..Sum::default() };
    let sum = Mutex::new(first);
    std::thread::scope(|scope| {
        for _ in 0..wanted.jobs.max(1) {
            scope.spawn(|| {
                while let Some((seed, is_fresh)) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if began.elapsed().as_secs_f64() > wanted.limit_s {
                        return;
                    }
                    let twice = *is_fresh && *seed < wanted.first_seed + TWICE;
                    one(*seed, *is_fresh, twice, &sum);
                }
            });
        }
    });
    let mut sum = sum.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    sum.real_s = began.elapsed().as_secs_f64();
    sum
}

fn one(seed: u64, fresh: bool, twice: bool, sum: &Mutex<Sum>) {
    let scenario = scenario(seed);
    let report = run(&scenario);
    let again = twice.then(|| run(&scenario));
    let mut sum = sum.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    sum.add(seed, fresh, &report, again.as_ref());
    if let Some(violations) = sum.failed.get(&seed) {
        println!(
            "{scenario}\n  trace {:016x}\n  VIOLATION {}\n  again: --run \"{}\"",
            report.trace_hash,
            violations.join("\n  VIOLATION "),
            scenario.line()
        );
    }
    if sum.runs % 20 == 0 {
        eprintln!("{:.1} hours, {} failed", sum.hours, sum.failed.len());
    }
}

const HEAD: &str = "# Ledger of simulated cluster-hours

What `simulator --hours N --ledger FILE` ran; figures are claimed only from here. An hour is 3,600 simulated seconds of
at least 3 monitors, 4 OSDs and 2 clients under load, besides clients that make snapshots, take locks and watch, with never more
than 60 seconds between two faults and all checks on (`crates/simulator/src/hours.rs`); healing is not counted. The gate runs
the seeds from the number in `crates/simulator/hours.txt` on, and those again that once failed. It adds its line to
`target/ledger.md`; `cargo xtask ledger` takes what stands there over into `docs/ledger.md` and raises the number. Lines of the
same seeds are the same hours; the sum below counts each seed once.

| date | commit | seeds | hours | requests answered | of guests | faults | longest without one, s | events | traces compared | failed | real s |
|---|---|---|---|---|---|---|---|---|---|---|---|
";

/// Adds a line to the ledger, which is begun when it is not there.
pub fn write_ledger(sum: &Sum, path: &Path, date: &str, commit: &str) -> Result<(), String> {
    let fresh = !path.exists();
    let mut file = OpenOptions::new().create(true).append(true).open(path).map_err(|e| e.to_string())?;
    if fresh {
        file.write_all(HEAD.as_bytes()).map_err(|e| e.to_string())?;
    }
    let failed: Vec<String> = sum.failed.keys().map(u64::to_string).collect();
    let failed = if failed.is_empty() { "0".to_owned() } else { format!("seeds {}", failed.join(" ")) };
    writeln!(
        file,
        "| {date} | {commit} | {}..{} | {:.1} | {} | {} | {} | {:.1} | {} | {} | {failed} | {:.0} |",
        sum.first_seed,
        sum.last_seed,
        sum.hours,
        sum.operations,
        sum.guest_answers,
        sum.faults,
        sum.longest_calm_s,
        sum.events,
        sum.compared,
        sum.real_s
    )
    .map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_that_failed_come_before_the_next_one() {
        let kept = Kept::of_the_repository().expect("hours.txt");
        assert!(kept.next > 0);
        let text = "# why\nnext 7\nfailed 3 a lost write\n";
        assert_eq!(Kept::parse(text), Ok(Kept { next: 7, failed: vec![3] }));
        for bad in
            ["next 7\nfailed 7 late", "failed 3 no next", "next 7\nfailed 3", "next", "later 7", "next x"]
        {
            assert!(Kept::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn seeds_that_failed_run_again_and_are_no_new_hours() {
        let mut sum = Sum { first_seed: 5, last_seed: 5, ..Sum::default() };
        sum.add(2, false, &Report::default(), None);
        assert_eq!((sum.runs, sum.last_seed, sum.hours), (1, 5, 0.0));
        sum.add(6, true, &Report::default(), None);
        assert!(sum.last_seed == 6 && sum.hours > 0.1);
        let bad = Report { violations: vec!["O3".to_owned()], ..Report::default() };
        sum.add(3, false, &bad, None);
        let wanted = Wanted { hours: 0.1, first_seed: 5, again: vec![2, 3], jobs: 1, limit_s: 1.0 };
        assert!(sum.failed.contains_key(&3) && sum.complaint(&wanted).is_some());
    }

    #[test]
    fn a_line_that_is_printed_makes_the_same_run() {
        for seed in (1..200).chain(FIRST_CODED..FIRST_CODED + 60) {
            let scenario = scenario(seed);
            assert_eq!(scenario.line().parse(), Ok(scenario));
        }
        let coded = (FIRST_CODED..FIRST_CODED + 60).filter(|seed| scenario(*seed).coded);
        assert_eq!((coded.count(), (1..FIRST_CODED).any(|seed| scenario(seed).coded)), (10, false));
        let short = scenario(3).with_seconds(8);
        let again: Scenario = short.line().parse().expect("a scenario");
        assert_eq!(run(&short).trace_hash, run(&again).trace_hash);
    }
}

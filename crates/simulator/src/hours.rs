//! Simulated cluster-hours by the dozen: seeds of the hour profile on all cores, until so many hours are full or the time is up.
//!
//! Only the seconds with faults and load count, of runs in which every check held.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use simulator::{Level, Profile, Report, Scenario, run};

/// Simulated seconds with faults of one run; healing and the last checks come after them.
const SECONDS: u64 = 600;
/// An hour counts only with a fault in every simulated minute.
const CALM: f64 = 60.0;
/// So many of the first seeds run twice.
const TWICE: u64 = 10;

/// What to run.
pub struct Wanted {
    pub hours: f64,
    pub first_seed: u64,
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
    pub undecided: usize,
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
        if self.undecided > 0 {
            return Some(format!("{} histories were too tangled to judge", self.undecided));
        }
        // Sixths of an hour add up to a little less than they are.
        if self.hours + 1e-6 < wanted.hours {
            return Some(format!("{:.1} hours, {} wanted", self.hours, wanted.hours));
        }
        None
    }

    fn add(&mut self, seed: u64, report: &Report, again: Option<&Report>) {
        self.runs += 1;
        self.last_seed = self.last_seed.max(seed);
        self.operations += report.acked;
        self.faults += report.faults;
        self.events += report.events;
        self.undecided += report.undecided;
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
        if violations.is_empty() {
            self.hours += SECONDS as f64 / 3_600.0;
        } else {
            self.failed.insert(seed, violations);
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

pub fn scenario(seed: u64) -> Scenario {
    Scenario::from_seed(seed)
        .with_profile(Profile::Hour)
        .with_guests()
        .with_level(Level::All)
        .with_seconds(SECONDS)
}

/// Runs seeds on all jobs.
pub fn run_all(wanted: &Wanted) -> Sum {
    let began = Instant::now();
    let runs = (wanted.hours * 3_600.0 / SECONDS as f64).ceil() as u64;
    let next = AtomicU64::new(wanted.first_seed);
    let first = Sum { first_seed: wanted.first_seed, last_seed: wanted.first_seed, ..Sum::default() };
    let sum = Mutex::new(first);
    std::thread::scope(|scope| {
        for _ in 0..wanted.jobs.max(1) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    let late = began.elapsed().as_secs_f64() > wanted.limit_s;
                    if seed >= wanted.first_seed + runs || late {
                        return;
                    }
                    one(seed, seed < wanted.first_seed + TWICE, &sum);
                }
            });
        }
    });
    let mut sum = sum.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    sum.real_s = began.elapsed().as_secs_f64();
    sum
}

fn one(seed: u64, twice: bool, sum: &Mutex<Sum>) {
    let scenario = scenario(seed);
    let report = run(&scenario);
    let again = twice.then(|| run(&scenario));
    let mut sum = sum.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    sum.add(seed, &report, again.as_ref());
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
than 60 seconds between two faults and all checks on (`crates/simulator/src/hours.rs`); healing is not counted. The gate adds its
line to `target/ledger.md`; `cargo xtask ledger` takes what stands there over into `docs/ledger.md`.

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
    fn a_line_that_is_printed_makes_the_same_run() {
        for seed in 1..200 {
            let scenario = scenario(seed);
            assert_eq!(scenario.line().parse(), Ok(scenario));
        }
        let short = scenario(3).with_seconds(8);
        let again: Scenario = short.line().parse().expect("a scenario");
        assert_eq!(run(&short).trace_hash, run(&again).trace_hash);
    }
}

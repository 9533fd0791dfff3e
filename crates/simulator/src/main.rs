//! Runs scenarios: `simulator --hours 30`, `simulator --seeds 1..100 --seconds 60 [--level every] [--shrink] [--ledger FILE]`, `--mutant all`, or
//! `--run "seed=7 ..."`.

mod hours;

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

use clap::Parser;
use simulator::{
    CATALOG, Level, Mutant, NOT_FOUND, PLANTED, Scenario, faults, find, run, run_verbose, shrink,
};

/// A simulated cluster makes and drops many small values: with the C library's allocator they were a fifth of
/// a run.
#[global_allocator]
static ALLOCATOR: allocator::Allocator = allocator::Allocator;

/// Simulated clusters with faults from a seed.
#[derive(Parser)]
struct Arguments {
    /// First and last seed: `1..100`, or one seed. `--hours` without it takes fresh ones, and those that once failed (`hours.txt`).
    #[arg(long)]
    seeds: Option<String>,
    /// Simulated seconds with faults.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// calm, power, crash, links, all; or `every`: each seed at each of them.
    #[arg(long, default_value = "all")]
    level: String,
    /// A planted bug, or `all`: each that a scenario is known to find must be found, the others are listed.
    #[arg(long)]
    mutant: Option<String>,
    /// One scenario, as a failure was printed.
    #[arg(long)]
    run: Option<String>,
    /// A scenario of the catalog, with each of the seeds.
    #[arg(long)]
    named: Option<String>,
    /// Clients that make snapshots, take locks and watch, rot, and scrubs besides; `--hours` always has them.
    #[arg(long)]
    guests: bool,
    /// The clients' pool is erasure-coded.
    #[arg(long)]
    coded: bool,
    /// Print every event.
    #[arg(long)]
    trace: bool,
    /// Leave out faults while the failure persists.
    #[arg(long)]
    shrink: bool,
    /// Run each seed twice and compare.
    #[arg(long)]
    twice: bool,
    /// Go on after a failure.
    #[arg(long)]
    keep_going: bool,
    /// Print one line per level instead of two per run.
    #[arg(long)]
    brief: bool,
    /// So many simulated cluster-hours (each at least ten minutes of load and faults; see docs/scenarios.md), from the first of the seeds on.
    #[arg(long)]
    hours: Option<f64>,
    /// Runs at a time, for `--hours`.
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// No new run begins after this many minutes.
    #[arg(long)]
    minutes: Option<f64>,
    /// Append what the runs came to, as one JSON object per level and line.
    #[arg(long)]
    ledger: Option<PathBuf>,
    /// The ledger's date; today's when it is not given.
    #[arg(long)]
    date: Option<String>,
    /// The ledger's commit; that of the working directory when it is not given.
    #[arg(long)]
    commit: Option<String>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match play(&arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(text) => {
            eprintln!("{text}");
            ExitCode::from(2)
        }
    }
}

fn play(a: &Arguments) -> Result<bool, String> {
    if let Some(line) = &a.run {
        return Ok(one(a, &line.parse()?, &mut Totals::default()));
    }
    if let Some(wanted) = a.hours {
        return many_hours(a, wanted);
    }
    let (first, last) = range(a.seeds.as_deref().unwrap_or("1..20"))?;
    if let Some(name) = &a.named {
        return named(a, name, first, last);
    }
    match a.mutant.as_deref() {
        Some("all") => {
            NOT_FOUND
                .iter()
                .for_each(|u| println!("# {}: not looked for, found by {}", u.mutant, u.found_by));
            return hunt(a, &PLANTED.iter().map(|p| p.mutant).collect::<Vec<_>>(), first, last);
        }
        Some(name) => return hunt(a, &[name.parse()?], first, last),
        None => {}
    }
    let levels = match a.level.as_str() {
        "every" => Level::EACH.map(|(_, level)| level).to_vec(),
        one => vec![one.parse()?],
    };
    let began = Instant::now();
    let mut good = true;
    let mut ends = Vec::new();
    for (i, level) in levels.iter().enumerate() {
        // What is left of the time is shared among the levels that are left.
        let left = a.minutes.map(|m| (m * 60.0 - began.elapsed().as_secs_f64()) / (levels.len() - i) as f64);
        let totals = seeds(a, *level, first, last, left);
        println!("{level}: {totals}");
        good &= totals.failed == 0;
        ends.push((*level, totals));
        if !good && !a.keep_going {
            break;
        }
    }
    if let Some(path) = &a.ledger {
        write_ledger(a, path, &ends)?;
    }
    Ok(good)
}

fn many_hours(a: &Arguments, hours: f64) -> Result<bool, String> {
    let kept = hours::Kept::of_the_repository()?;
    let (first_seed, again) = match &a.seeds {
        Some(seeds) => (range(seeds)?.0, Vec::new()),
        None => (kept.next, kept.failed),
    };
    // Violations that are panics are told as such.
    std::panic::set_hook(Box::new(|_| {}));
    let limit_s = a.minutes.map_or(f64::INFINITY, |m| m * 60.0);
    let wanted = hours::Wanted { hours, first_seed, again, jobs: a.jobs, limit_s };
    let sum = hours::run_all(&wanted);
    println!("{sum}");
    if let Some(path) = &a.ledger {
        let (date, commit) = when_and_what(a)?;
        hours::write_ledger(&sum, path, &date, &commit)?;
    }
    let complaint = sum.complaint(&wanted);
    complaint.iter().for_each(|c| println!("not good: {c}"));
    Ok(complaint.is_none())
}

/// Runs a scenario of the catalog, with the planted bug if one is given.
fn named(a: &Arguments, name: &str, first: u64, last: u64) -> Result<bool, String> {
    let known = CATALOG.iter().find(|n| n.name == name).ok_or_else(|| format!("no scenario '{name}'"))?;
    let mutant = a.mutant.as_deref().map(str::parse).transpose()?;
    let all = (first..=last).map(|seed| Scenario { mutant, ..known.scenario(seed) });
    let mut totals = Totals::default();
    Ok(all.filter(|s| !one(a, s, &mut totals)).count() == 0)
}

/// The ledger's date and commit.
fn when_and_what(a: &Arguments) -> Result<(String, String), String> {
    let date = a.date.clone().map_or_else(|| output_of("date", &["-u", "+%Y-%m-%d"]), Ok)?;
    let commit =
        a.commit.clone().map_or_else(|| output_of("git", &["rev-parse", "--short=10", "HEAD"]), Ok)?;
    Ok((date, commit))
}

/// Runs the seeds at one level, for at most so many seconds.
fn seeds(a: &Arguments, level: Level, first: u64, last: u64, limit: Option<f64>) -> Totals {
    let began = Instant::now();
    let mut totals = Totals { seeds: (first, first), ..Totals::default() };
    for seed in first..=last {
        if limit.is_some_and(|l| began.elapsed().as_secs_f64() > l) {
            break;
        }
        let scenario = Scenario::from_seed(seed).with_level(level).with_seconds(a.seconds);
        let scenario = if a.guests { scenario.with_guests() } else { scenario };
        let scenario = if a.coded { scenario.with_coded() } else { scenario };
        let good = one(a, &scenario, &mut totals);
        totals.seeds.1 = seed;
        if a.brief && totals.runs % 20 == 0 {
            eprintln!("{level}: {totals}");
        }
        if !good && !a.keep_going {
            break;
        }
    }
    totals
}

/// One line per level, so that the file shows what was tried since it began.
fn write_ledger(a: &Arguments, path: &Path, ends: &[(Level, Totals)]) -> Result<(), String> {
    let (date, commit) = when_and_what(a)?;
    let mut file = OpenOptions::new().create(true).append(true).open(path).map_err(|e| e.to_string())?;
    for (level, t) in ends.iter().filter(|(_, t)| t.runs > 0) {
        let (first, last) = t.seeds;
        let line = format!(
            r#"{{"date":{date:?},"commit":{commit:?},"level":"{level}","seeds":"{first}..{last}","seconds":{},"#,
            a.seconds
        ) + &format!(
            r#""simulated_hours":{:.2},"operations":{},"faults":{},"events":{},"undecided":{},"longest_wait_s":{:.1},"violations":{}}}"#,
            t.seconds / 3_600.0,
            t.acked,
            t.faults,
            t.events,
            t.undecided,
            t.longest_wait.0,
            t.failed
        );
        writeln!(file, "{line}").map_err(|e| e.to_string())?;
    }
    Ok(())
}

/// What a program prints, on one line.
fn output_of(program: &str, arguments: &[&str]) -> Result<String, String> {
    let out = Command::new(program).args(arguments).output();
    let out = out.map_err(|e| format!("{program} does not run ({e}): give --date and --commit"))?;
    Ok(String::from_utf8_lossy(&out.stdout).trim().to_owned())
}

fn range(text: &str) -> Result<(u64, u64), String> {
    let number = |s: &str| s.parse::<u64>().map_err(|_| format!("'{s}' is no seed"));
    match text.split_once("..") {
        Some((a, b)) => Ok((number(a)?, number(b.trim_start_matches('='))?)),
        None => number(text).map(|n| (n, n)),
    }
}

/// Sums over all runs.
#[derive(Default)]
struct Totals {
    /// First and last.
    seeds: (u64, u64),
    runs: u64,
    failed: u64,
    seconds: f64,
    events: u64,
    acked: u64,
    faults: u64,
    undecided: usize,
    /// The longest that a request waited after the end of a run's faults, and the run's seed.
    longest_wait: (f64, u64),
    real: f64,
}

impl std::fmt::Display for Totals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} runs, {} failed: {:.2} simulated hours, {} requests answered, {} faults, {} events, {} undecided, longest \
             wait {:.1} s (seed {}); {:.1} s real, {:.0} times real time, {:.0} events/s",
            self.runs,
            self.failed,
            self.seconds / 3_600.0,
            self.acked,
            self.faults,
            self.events,
            self.undecided,
            self.longest_wait.0,
            self.longest_wait.1,
            self.real,
            self.seconds / self.real.max(1e-9),
            self.events as f64 / self.real.max(1e-9),
        )
    }
}

fn one(a: &Arguments, s: &Scenario, totals: &mut Totals) -> bool {
    let began = Instant::now();
    let report = run_verbose(s, a.trace);
    let real = began.elapsed().as_secs_f64();
    totals.runs += 1;
    totals.seconds += report.seconds;
    totals.events += report.events;
    totals.acked += report.acked;
    totals.faults += report.faults;
    totals.undecided += report.undecided;
    if report.longest_wait_seconds > totals.longest_wait.0 {
        totals.longest_wait = (report.longest_wait_seconds, s.seed);
    }
    totals.real += real;
    let mut good = report.is_good();
    if !a.brief || !good {
        println!(
            "{s}\n  {:.1} s simulated in {real:.2} s: {} events, {} answered, {} faults, healed in {:.1} s, \
             longest wait {:.1} s, trace {:016x}",
            report.seconds,
            report.events,
            report.acked,
            report.faults,
            report.healing_seconds,
            report.longest_wait_seconds,
            report.trace_hash
        );
    }
    if !a.brief && !report.guests.is_empty() {
        println!("  guests: {:?}", report.guests);
    }
    if !a.brief && s.plan.is_some() {
        println!(
            "  happened: {:?}; left out: {:?}; {:?}",
            report.happened, report.left_out, report.states_at_marks
        );
    }
    report.violations.iter().for_each(|v| println!("  VIOLATION {v}"));
    if a.twice && run(s).trace_hash != report.trace_hash {
        println!("  VIOLATION O9: the second run went another way");
        good = false;
    }
    if !good {
        totals.failed += 1;
        println!("  again: --run \"{}\"", s.line());
        if a.shrink {
            let small = shrink(s, &report);
            println!("  smallest: --run \"{}\"", small.line());
            for (i, fault) in faults(&small).iter().enumerate().filter(|(i, _)| !small.skip.contains(i)) {
                println!("    fault {i}: {fault}");
            }
        }
    }
    good
}

/// The first of the seeds with which the scenario made for a planted bug finds it, and what that says.
fn in_its_scenario(mutant: Mutant, first: u64, last: u64) -> Option<(Scenario, String)> {
    let plant = PLANTED.iter().find(|p| p.mutant == mutant)?;
    let named = CATALOG.iter().find(|n| n.name == plant.name)?;
    let seeds = std::iter::once(plant.seed).chain(first..=last);
    let runs = seeds.map(|seed| named.scenario(seed).with_mutant(mutant));
    runs.map(|s| (run(&s), s)).find_map(|(report, s)| Some((s, report.violations.first()?.clone())))
}

/// Looks for each planted bug in the scenario made for it, then in the seeds; prints lines as
/// `tests/mutants.txt` holds them.
fn hunt(a: &Arguments, mutants: &[Mutant], first: u64, last: u64) -> Result<bool, String> {
    let level = a.level.parse()?;
    let mut good = true;
    for mutant in mutants {
        let began = Instant::now();
        if let Some((scenario, violation)) = in_its_scenario(*mutant, first, last) {
            println!("# {violation} (found in {:.0} s)\n{}", began.elapsed().as_secs_f64(), scenario.line());
            continue;
        }
        match find(*mutant, first..=last, level, a.seconds) {
            Some(found) => {
                let real = began.elapsed().as_secs_f64();
                println!("# {} ({} events; found in {real:.0} s)", found.violation, found.events);
                println!("{}", found.scenario.line());
            }
            None => {
                println!("# {mutant}: NOT FOUND in {:.0} s", began.elapsed().as_secs_f64());
                good = false;
            }
        }
    }
    Ok(good)
}

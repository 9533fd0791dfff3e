//! Runs scenarios: `simulator --seeds 1..100 --seconds 60 [--level all] [--shrink] [--mutant all]`, or `--run "seed=7 ..."`.

use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use simulator::{Level, Mutant, Scenario, faults, find, run, run_verbose, shrink};

/// Simulated clusters with faults from a seed.
#[derive(Parser)]
struct Arguments {
    /// First and last seed: `1..100`, or one seed.
    #[arg(long, default_value = "1..20")]
    seeds: String,
    /// Simulated seconds with faults.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// calm, power, crash, links, all.
    #[arg(long, default_value = "all")]
    level: Level,
    /// A planted bug, or `all`: then each must be found within the seeds.
    #[arg(long)]
    mutant: Option<String>,
    /// One scenario, as a failure was printed.
    #[arg(long)]
    run: Option<String>,
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
    let (first, last) = range(&a.seeds)?;
    let scenario = |seed| Scenario::from_seed(seed).with_level(a.level).with_seconds(a.seconds);
    match a.mutant.as_deref() {
        Some("all") => Ok(hunt(a, &Mutant::ALL.map(|(_, m)| m), first, last)),
        Some(name) => Ok(hunt(a, &[name.parse()?], first, last)),
        None => {
            let mut totals = Totals::default();
            let mut good = true;
            for seed in first..=last {
                good &= one(a, &scenario(seed), &mut totals);
                if !good && !a.keep_going {
                    break;
                }
            }
            println!("{totals}");
            Ok(good)
        }
    }
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
    runs: u64,
    failed: u64,
    seconds: f64,
    events: u64,
    acked: u64,
    faults: u64,
    undecided: usize,
    real: f64,
}

impl std::fmt::Display for Totals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} runs, {} failed: {:.2} simulated hours, {} requests answered, {} faults, {} events, {} undecided; \
             {:.1} s real, {:.0} times real time, {:.0} events/s",
            self.runs,
            self.failed,
            self.seconds / 3_600.0,
            self.acked,
            self.faults,
            self.events,
            self.undecided,
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
    totals.real += real;
    println!(
        "{s}\n  {:.1} s simulated in {real:.2} s: {} events, {} answered, {} faults, healed in {:.1} s, longest wait {:.1} s, trace {:016x}",
        report.seconds,
        report.events,
        report.acked,
        report.faults,
        report.healing_seconds,
        report.longest_wait_seconds,
        report.trace_hash
    );
    let mut good = report.is_good();
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

/// Looks for each planted bug in the seeds; prints lines as `tests/mutants.txt` holds them.
fn hunt(a: &Arguments, mutants: &[Mutant], first: u64, last: u64) -> bool {
    let mut good = true;
    for mutant in mutants {
        let began = Instant::now();
        match find(*mutant, first..=last, a.level, a.seconds) {
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
    good
}

//! `cargo xtask soak`: random and long tests with new seeds. The gate's own seeds are fixed.

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::{CLIENT_TESTS, ClientTest, GATE_BINARY, KEEP_MEMORY, SKIPPED, cargo, cargo_command, setup};

const HELP: &str = "\
cargo xtask soak [--minutes N] [--seed N]

Runs random and long tests, with new seeds each time, until the time is over:

  hours        simulated cluster-hours (simulator --hours)
  storms       simulated storms at each level of faults, which destroy disks too (simulator --seeds)
  each, storm  the thrasher on real processes: every fault once in a random order, and a random storm
  coded-each, coded-storm
               the same with an erasure-coded pool, 2+1 or 4+2 by the seed
  hosts-each, hosts-storm, hosts-coded
               the same on hosts in network namespaces; skipped without root
  store        the store's random histories and crash walks, sixteen times as many as the gate's
  fuzz         each fuzz target on mutated input, ten times as many as the gate's
  clients, block, rados, gateway, mounted
               the tests with Ceph's clients and of the client library, which have no seed: for what fails at times

They take turns; a whole turn takes an hour and more. Nothing begins when the time is over; what has begun goes on.
Before each starts, the one command that repeats it is printed, with its seed. A failure stops nothing: the end
lists what failed, with these commands, and the exit status is 1.

  --minutes N  how long (default: 60). The optimised build at the start counts.
  --seed N     all seeds are drawn from this one (default: any; it is printed): the same one gives the same turns
";

/// The repository's root, as a shell that runs there writes it.
const ROOT: &str = "$PWD";

/// Lower seeds are the gate's own, or in its ledger.
const LEAST_SEED: u64 = 1 << 20;

pub fn run(root: &Path, words: &[String]) -> Result<()> {
    let Some(wanted) = Wanted::parse(words)? else {
        print!("{HELP}");
        return Ok(());
    };
    let began = Instant::now();
    let seed = wanted.seed.unwrap_or_else(|| RandomState::new().build_hasher().finish());
    println!("cargo xtask soak --minutes {} --seed {seed}", wanted.minutes);
    setup::install()?;
    let build = ["build", "--release", "--package", "loligo", "--features", "loligo/test-medium"];
    cargo(root, &build).context("the optimised build failed")?;
    let limit = Duration::from_secs_f64(wanted.minutes * 60.0);
    let ran = take_turns(&mut Seeds(seed), || began.elapsed() >= limit, |job| job.run(root));
    println!("\n{ran}");
    ran.outcome()
}

#[derive(Debug, PartialEq)]
struct Wanted {
    minutes: f64,
    seed: Option<u64>,
}

impl Wanted {
    /// `None`: help was asked for.
    fn parse(words: &[String]) -> Result<Option<Self>> {
        let mut wanted = Self { minutes: 60.0, seed: None };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().with_context(|| format!("{word} needs a value\n\n{HELP}"));
            match word.as_str() {
                "--help" | "-h" => return Ok(None),
                "--minutes" => {
                    let value = value()?;
                    let minutes = value.parse().ok().filter(|m| (0.0..=1e6).contains(m));
                    wanted.minutes =
                        minutes.with_context(|| format!("'{value}' is no number of minutes\n\n{HELP}"))?;
                }
                "--seed" => {
                    let value = value()?;
                    let seed = value.parse().with_context(|| format!("'{value}' is no seed\n\n{HELP}"))?;
                    wanted.seed = Some(seed);
                }
                other => bail!("unknown word '{other}'\n\n{HELP}"),
            }
        }
        Ok(Some(wanted))
    }
}

/// Seeds that are drawn from one (splitmix64).
struct Seeds(u64);

impl Seeds {
    /// From `LEAST_SEED` to 2^31, which is what the thrasher prints and every program takes.
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        LEAST_SEED + (z ^ (z >> 31)) % ((1 << 31) - LEAST_SEED)
    }
}

/// One program that runs, and how to run it again.
#[derive(Debug, Clone, PartialEq)]
struct Job {
    name: &'static str,
    environment: Vec<(&'static str, String)>,
    /// The program, and its arguments.
    words: Vec<String>,
}

enum Outcome {
    Good,
    Skipped,
    Failed(String),
}

impl Job {
    fn new(name: &'static str, words: &str, seed: Option<u64>) -> Self {
        let seed = seed.map(|s| s.to_string());
        let words = words.split(' ').map(|w| match &seed {
            Some(seed) => w.replace("SEED", seed),
            None => w.to_owned(),
        });
        Self { name, environment: Vec::new(), words: words.collect() }
    }

    fn with(mut self, variable: &'static str, value: impl fmt::Display) -> Self {
        self.environment.push((variable, value.to_string()));
        self
    }

    fn command(&self, root: &Path) -> Command {
        let (program, arguments) = self.words.split_first().expect("a job has a program");
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let mut command = match program.as_str() {
            "cargo" => cargo_command(root, &arguments),
            _ => {
                let mut command = Command::new(program);
                command.args(arguments).current_dir(root);
                command
            }
        };
        let root = root.to_string_lossy();
        command.envs(self.environment.iter().map(|(k, v)| (*k, v.replace(ROOT, &root))));
        command
    }

    fn run(&self, root: &Path) -> Outcome {
        match self.command(root).status() {
            Ok(status) if status.success() => Outcome::Good,
            Ok(status) if status.code() == Some(SKIPPED) => Outcome::Skipped,
            Ok(status) => Outcome::Failed(status.to_string()),
            Err(e) => Outcome::Failed(format!("it does not start: {e}")),
        }
    }
}

/// The command that repeats it, in the repository's root.
impl fmt::Display for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.environment.iter().try_for_each(|(k, v)| write!(f, "{k}={v} "))?;
        f.write_str(&self.words.join(" "))
    }
}

/// One of each, with seeds of its own. No word has a blank, or a character that a shell reads.
fn turn(seeds: &mut Seeds) -> Vec<Job> {
    let mut seed = || Some(seeds.next());
    let simulator = "cargo run --release --package simulator --";
    let thrash =
        |cluster: &str| format!("/usr/bin/python3 thrash/thrash.py {cluster} --loligo {GATE_BINARY}");
    let (processes, hosts) = (thrash("loligo"), thrash("hosts --may-skip"));
    let mut jobs = vec![
        Job::new("hours", &format!("{simulator} --hours 4 --seeds SEED"), seed())
            .with(KEEP_MEMORY.0, KEEP_MEMORY.1),
        Job::new("each", &format!("{processes} --each --seed SEED"), seed()),
        Job::new("storm", &format!("{processes} --minutes 3 --seed SEED"), seed()),
        Job::new("coded-each", &format!("{processes} --pool ec --each --seed SEED"), seed()),
        Job::new("coded-storm", &format!("{processes} --pool ec --minutes 3 --seed SEED"), seed()),
    ];
    let first = seeds.next();
    let storms = format!("{first}..{}", first + 19);
    let storms =
        format!("{simulator} --seeds {storms} --level every --seconds 60 --guests --brief --keep-going");
    jobs.push(Job::new("storms", &storms, None).with(KEEP_MEMORY.0, KEEP_MEMORY.1));
    let walks = "cargo test --release --package store --no-fail-fast --test crash --test model";
    let walks = Job::new("store", walks, None).with("LOLIGO_STORE_EFFORT", 16);
    jobs.push(walks.with("LOLIGO_STORE_SEED", seeds.next()));
    // Without optimisation: so numbers that overflow are findings.
    let fuzz =
        Job::new("fuzz", "cargo test --package fuzz --test short", None).with("LOLIGO_FUZZ_RUNS", 20_000);
    jobs.push(fuzz.with("LOLIGO_FUZZ_SEED", seeds.next()));
    for ClientTest { job: name, package, target, .. } in CLIENT_TESTS {
        let words = format!("cargo test --package {package} --test {target}");
        let job = Job::new(name, &format!("{words} -- --test-threads=2"), None);
        // The test runs in its crate's folder.
        let binary = format!("{ROOT}/{GATE_BINARY}");
        let job = job.with("LOLIGO_BIN", binary).with("LOLIGO_REQUIRE_PEERS", 1);
        jobs.push(match name {
            "clients" => job
                .with("LOLIGO_FLOOD_SECONDS", 20)
                .with("LOLIGO_MANAGER_SWITCHES", 20)
                .with("LOLIGO_MANAGER_ACTS", 1),
            _ => job,
        });
    }
    let mut seed = || Some(seeds.next());
    jobs.push(Job::new("hosts-each", &format!("{hosts} --each --seed SEED"), seed()));
    jobs.push(Job::new("hosts-storm", &format!("{hosts} --minutes 3 --seed SEED"), seed()));
    jobs.push(Job::new("hosts-coded", &format!("{hosts} --pool ec --minutes 3 --seed SEED"), seed()));
    jobs
}

/// What became of the jobs.
#[derive(Debug, Default)]
struct Ran {
    good: usize,
    skipped: Vec<&'static str>,
    /// With what is to be said of it.
    failed: Vec<(Job, String)>,
}

impl Ran {
    /// What was never begun is no success.
    fn outcome(&self) -> Result<()> {
        match (self.good, self.failed.len()) {
            (0, 0) => bail!(
                "nothing was tested: the time was over before anything could begin; give more --minutes"
            ),
            (_, 0) => Ok(()),
            (_, failed) => bail!("{failed} failed"),
        }
    }
}

impl fmt::Display for Ran {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "soak: {} good, {} failed, {} skipped", self.good, self.failed.len(), self.skipped.len())?;
        if !self.skipped.is_empty() {
            write!(f, " ({})", self.skipped.join(", "))?;
        }
        self.failed.iter().try_for_each(|(job, why)| write!(f, "\n{}: {why}; again:\n  {job}", job.name))
    }
}

/// Turns of jobs, until no more may begin.
fn take_turns(seeds: &mut Seeds, is_over: impl Fn() -> bool, run: impl Fn(&Job) -> Outcome) -> Ran {
    let mut ran = Ran::default();
    loop {
        for job in turn(seeds) {
            if is_over() {
                return ran;
            }
            println!("== {}; again:\n  {job}", job.name);
            let began = Instant::now();
            let outcome = run(&job);
            let took = began.elapsed().as_secs();
            match outcome {
                Outcome::Good => {
                    ran.good += 1;
                    println!("== {}: ok, {took} s", job.name);
                }
                Outcome::Skipped => {
                    ran.skipped.push(job.name);
                    println!("== {}: SKIPPED, see above", job.name);
                }
                Outcome::Failed(why) => {
                    println!("== {}: FAILED, {why}, {took} s", job.name);
                    ran.failed.push((job, why));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn lines(jobs: &[Job]) -> Vec<String> {
        jobs.iter().map(Job::to_string).collect()
    }

    #[test]
    fn one_seed_gives_the_turns_again_and_another_one_others() {
        let mut seeds = Seeds(7);
        let (first, second) = (turn(&mut seeds), turn(&mut seeds));
        assert_eq!(first, turn(&mut Seeds(7)));
        // What has a seed has another one in each turn and for each start.
        let without = ["clients", "block", "rados", "gateway", "mounted"];
        for others in [&second, &turn(&mut Seeds(8))] {
            for (a, b) in first.iter().zip(others.iter()) {
                assert_eq!(a == b, without.contains(&a.name), "{a}");
            }
        }
        assert!(lines(&first).iter().all(|l| !l.contains("SEED ") && !l.ends_with("SEED")));
        assert!(first.iter().all(|j| HELP.contains(j.name)), "--help names every job");
    }

    #[test]
    fn a_failure_stops_nothing_and_is_told_with_its_command() {
        let begun = Cell::new(0);
        let all = turn(&mut Seeds(7)).len();
        let run = |job: &Job| {
            begun.set(begun.get() + 1);
            match job.name {
                "hours" => Outcome::Failed("exit status: 1".to_owned()),
                "hosts-storm" => Outcome::Skipped,
                _ => Outcome::Good,
            }
        };
        let ran = take_turns(&mut Seeds(7), || begun.get() > all, run);
        assert_eq!((ran.good, ran.skipped.len(), ran.failed.len()), (all - 2, 1, 2));
        let mut seeds = Seeds(7);
        let hours = [turn(&mut seeds), turn(&mut seeds)].map(|t| t[0].to_string());
        let text = ran.to_string();
        assert!(
            hours.iter().all(|line| text.contains(&format!("hours: exit status: 1; again:\n  {line}"))),
            "{text}"
        );
        assert!(text.contains("1 skipped (hosts-storm)"), "{text}");
        assert!(ran.outcome().is_err());
        let none = take_turns(&mut Seeds(7), || true, |_| panic!("the time is over"));
        assert!(none.outcome().is_err_and(|e| e.to_string().contains("nothing was tested")));
    }

    #[test]
    fn what_is_printed_repeats_the_job() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let job = Job::new("a", "printenv BINARY N", None).with("BINARY", "$PWD/a").with("N", 3);
        let own = job.command(here).output().unwrap();
        let printed = Command::new("sh").args(["-c", &job.to_string()]).current_dir(here).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&own.stdout), format!("{}/a\n3\n", here.display()));
        assert_eq!(own.stdout, printed.stdout);
        let outcome = |words| Job::new("a", words, None).run(here);
        assert!(matches!(outcome("true"), Outcome::Good));
        assert!(matches!(outcome("false"), Outcome::Failed(_)));
        assert!(matches!(outcome("no-program-of-this-name"), Outcome::Failed(_)));
        let shell = Job { words: ["sh", "-c", "exit 77"].map(str::to_owned).to_vec(), ..job };
        assert!(matches!(shell.run(here), Outcome::Skipped));
    }

    #[test]
    fn words_are_read() {
        let parse =
            |text: &str| Wanted::parse(&text.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(parse("").unwrap(), Some(Wanted { minutes: 60.0, seed: None }));
        assert_eq!(parse("--seed 3 --minutes 0.5").unwrap(), Some(Wanted { minutes: 0.5, seed: Some(3) }));
        assert_eq!(parse("--minutes 5 --help").unwrap(), None);
        for bad in ["--minutes", "--minutes x", "--minutes -1", "--minutes nan", "--seed -1", "5"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}

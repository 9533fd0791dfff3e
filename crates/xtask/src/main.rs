//! `cargo xtask`: the gate that a change has to pass before it lands, and tests that run for longer (`soak`).
#![forbid(unsafe_code)]

mod ledger;
mod manual;
mod named;
mod page;
mod processors;
mod release;
mod setup;
mod soak;
mod tidy;
mod unused;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode};
use std::time::Instant;

use anyhow::{Context, Result, bail};

const HELP: &str = "\
cargo xtask <command>

  test        the whole gate: setup, ci, processors, clients
  ci          format, tidy, clippy, docs, unit and simulator tests
  clients     tests of an optimised build: crash states, cluster-hours, Ceph's own clients, the thrasher
  processors  the vector code's tests on emulated processors with fewer features, and on aarch64
  tidy        sizes of files and functions, layers, no IO in cores, module docs, ARCHITECTURE.md, the manual's links
  setup       installs from Debian what the tests need (as root)
  page        builds the dashboard's page of its sources and compares it with the one that is committed
  soak        random and long tests with new seeds, for as long as you like: see cargo xtask soak --help
  release     builds target/ship/loligo, optimised by a profile of a first build: a quarter of an hour
  ledger      adds the simulated cluster-hours that the gate ran here to docs/ledger.md, and sets the gate's
              next seed (crates/simulator/hours.txt)
";

/// For the simulator: keeps freed memory in the process. The simulator needs it again at once, and the kernel
/// took a fifth of the CPU for clearing pages that were given back.
const KEEP_MEMORY: (&str, &str) = ("MIMALLOC_PURGE_DELAY", "-1");

/// A step's name.
const PAGE: &str = "the dashboard's page is that of its sources";

/// Where the gate writes down the cluster-hours that it ran.
const GATE_LEDGER: &str = "target/ledger.md";

/// The optimised program that the tests with clients use; the path is from the repository's root.
const GATE_BINARY: &str = "target/release/loligo";

/// A test with real clients: a target with `test = false` in its package's manifest, so that it runs only when
/// it is named.
struct ClientTest {
    step: &'static str,
    /// Its name in the soak.
    job: &'static str,
    package: &'static str,
    target: &'static str,
    /// How many of its tests run at a time in the gate. Most mostly wait.
    threads: &'static str,
}

const CLIENT_TESTS: [ClientTest; 5] = [
    ClientTest { step: "clients", job: "clients", package: "loligo", target: "clients", threads: "4" },
    ClientTest { step: "block images", job: "block", package: "loligo", target: "block", threads: "2" },
    ClientTest {
        step: "the client library",
        job: "rados",
        package: "rados",
        target: "client_library",
        threads: "2",
    },
    ClientTest {
        step: "the gateway's core beside Ceph's",
        job: "gateway",
        package: "rgwio",
        target: "gateway_core",
        threads: "2",
    },
    ClientTest {
        step: "a mounted file system on both metadata servers",
        job: "mounted",
        package: "cephfsio",
        target: "mounted",
        threads: "4",
    },
];

fn main() -> ExitCode {
    match work() {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            // The chain alone: a backtrace of this program says nothing about the step that failed.
            eprintln!("Error: {e:#}");
            ExitCode::FAILURE
        }
    }
}

fn work() -> Result<()> {
    let root = workspace_root()?;
    match std::env::args().nth(1).as_deref() {
        Some("tidy") => tidy::run(&root),
        Some("ci") => ci(&root),
        Some("setup") => setup::install(),
        Some("processors") => {
            setup::install()?;
            processors::run(&root)
        }
        Some("page") => step_if_possible(PAGE, || page::compare(&root)),
        Some("release") => release::build(&root),
        Some("soak") => soak::run(&root, &std::env::args().skip(2).collect::<Vec<_>>()),
        Some("ledger") => ledger::take(&root, GATE_LEDGER),
        Some("test") => {
            setup::install()?;
            let optimised = Optimised::begin(&root, "19")?;
            ci(&root)?;
            step("other processors", || processors::run(&root))?;
            clients(&root, optimised)
        }
        Some("clients") => {
            setup::install()?;
            let optimised = Optimised::begin(&root, "0")?;
            clients(&root, optimised)
        }
        Some("help" | "--help" | "-h") | None => {
            print!("{HELP}");
            Ok(())
        }
        Some(other) => bail!("unknown command '{other}'\n\n{HELP}"),
    }
}

fn workspace_root() -> Result<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).map(Path::to_owned).context("xtask is not at crates/xtask")
}

fn ci(root: &Path) -> Result<()> {
    step("format", || cargo(root, &["fmt", "--all", "--check"]))?;
    step("tidy", || tidy::run(root))?;
    step("clippy", || {
        let all = ["clippy", "--workspace", "--all-targets", "--all-features"];
        // These do not belong to the targets that cargo tests unasked.
        let clients = CLIENT_TESTS.map(|test| ["--test", test.target]).concat();
        cargo(root, &[&all[..], &clients, &["--", "-D", "warnings"]].concat())
    })?;
    step_if_possible(PAGE, || page::compare(root))?;
    // All else is built with the features of tests.
    step("the product alone", || cargo(root, &["check", "--package", "loligo"]))?;
    step("docs", || {
        let mut doc = cargo_command(root, &["doc", "--workspace", "--no-deps", "--document-private-items"]);
        // Private items are documented too, so links to them are fine.
        doc.env("RUSTDOCFLAGS", "-D warnings -A rustdoc::private_intra_doc_links");
        run(doc)
    })?;
    // A run takes minutes, so a failure must not hide the others.
    step("unit and simulator tests, faults in real processes", || {
        cargo(root, &["test", "--workspace", "--features", "loligo/test-medium", "--no-fail-fast"])
    })
}

/// What the optimised program is built with. The thrasher puts stores on a bad medium, which the product does
/// not have.
const WITH_FAULTS: [&str; 3] = ["--release", "--features", "loligo/test-medium"];

/// The program as users build it, begun beside other steps: it takes what processor time those leave.
struct Optimised {
    build: Begun,
}

impl Optimised {
    fn begin(root: &Path, niceness: &str) -> Result<Self> {
        // The simulator beside it, without bugs to be planted: so it is built of the same crates, which are
        // built once.
        let both = ["build", "--package", "loligo", "--package", "simulator", "--no-default-features"];
        let build = cargo_command(root, &[&both[..], &WITH_FAULTS].concat());
        Ok(Self { build: Begun::begin(root, "optimised-build.out", nice(niceness, &build))? })
    }

    fn end(self) -> Result<()> {
        step("optimised build, begun beside the steps before", || self.build.end())
    }
}

/// Runs Ceph's own clients against the optimised program.
fn clients(root: &Path, optimised: Optimised) -> Result<()> {
    optimised.end()?;
    step("the README's first command finds the program", || {
        cargo(root, &[&["run"][..], &WITH_FAULTS, &["--", "up", "--help"]].concat())
    })?;
    step("crash states of the store", || {
        cargo(root, &["test", "--release", "--package", "store", "--test", "enumerate", "--", "--nocapture"])
    })?;
    let hours = Hours::begin(root)?;
    with_clients(root)?;
    hours.end()
}

/// Ceph's own clients, the thrasher and the storms: they mostly wait.
fn with_clients(root: &Path) -> Result<()> {
    for test in CLIENT_TESTS {
        step(test.step, || clients_test(root, &test))?;
    }
    step("the thrasher's own checks", || {
        python(
            root,
            "thrash",
            &["-m", "unittest", "-q", "test_history", "test_thrash", "test_storm", "test_figures"],
        )
    })?;
    step("the benches' own checks", || python(root, "bench", &["-m", "unittest", "-q", "test_bench"]))?;
    let faults = "kill-osd,kill-leader,kill-all-osds,freeze-primary,move-rack,power-loss-all,\
                  slow-disk,below-min-size,missed-maps";
    let of_networks = "partition-leader,partition-one-way,bad-links";
    // The gate repeats itself; random seeds are the soak's. This one has a disk that is slower by 100 ms.
    let here = ["--each", "--seed", "2055940849", "--faults", faults];
    thrash(root, "thrasher", &here, &["--each", "--seed", "1", "--faults", of_networks])?;
    // With an erasure-coded pool: as many OSDs as it can spare, and more. How long an operation may take in
    // the soak is too little beside other work.
    let coded = ["--pool", "ec:2+1", "--each", "--seed", "1", "--faults", "kill-spare,below-min-size"];
    step("the thrasher with an erasure-coded pool", || {
        let program = ["thrash/thrash.py", "loligo", "--loligo", GATE_BINARY];
        python(root, ".", &[&program[..], &coded, &["--image", "16", "--stall", "5"]].concat())
    })?;
    // These seeds' schedules have every kind of fault, and partitions (thrash/test_storm.py).
    thrash(root, "storm", &["--minutes", "0.7", "--seed", "9"], &["--minutes", "0.7", "--seed", "6"])
}

/// Runs the thrasher on this host, and at the same time on hosts in network namespaces, which need root. Both
/// mostly wait, so they do not disturb each other.
fn thrash(root: &Path, what: &str, here: &[&str], on_hosts: &[&str]) -> Result<()> {
    let program = ["thrash/thrash.py", "hosts", "--may-skip", "--loligo", GATE_BINARY];
    let mut hosts = python_command(root, ".", &[&program, on_hosts].concat());
    let path = root.join("target").join(format!("{what}-on-hosts.out"));
    let said = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
    hosts.stdout(said.try_clone()?).stderr(said);
    let mut running = hosts.spawn().with_context(|| format!("cannot start {hosts:?}"))?;
    let program = ["thrash/thrash.py", "loligo", "--loligo", GATE_BINARY];
    let ended = step(what, || python(root, ".", &[&program, here].concat()));
    // Waited for even when the first has failed, so that it is not left behind.
    let on_hosts = step_if_possible(&format!("{what} on hosts, begun beside it"), || {
        let status = running.wait()?;
        eprint!("{}", std::fs::read_to_string(&path)?);
        match status.code() {
            Some(0) => Ok(Outcome::Done),
            Some(SKIPPED) => Ok(Outcome::Skipped),
            _ => bail!("{hosts:?} ended with {status}"),
        }
    });
    ended.and(on_hosts)
}

/// Exit status of a Python program that has found that something it needs is not on this machine.
const SKIPPED: i32 = 77;

enum Outcome {
    Done,
    Skipped,
}

/// Runs a step that this machine may not be able to take.
fn step_if_possible(name: &str, body: impl FnOnce() -> Result<Outcome>) -> Result<()> {
    eprintln!("== {name}");
    let start = Instant::now();
    match body().with_context(|| format!("step '{name}' failed"))? {
        Outcome::Done => eprintln!("== {name}: ok, {:.0} s", start.elapsed().as_secs_f32()),
        Outcome::Skipped => eprintln!("== {name}: SKIPPED, see above; nothing of it was tested"),
    }
    Ok(())
}

/// A program that runs beside other steps. What it says goes into a file, which is shown when it has ended.
struct Begun {
    command: String,
    running: Child,
    said: PathBuf,
}

impl Begun {
    fn begin(root: &Path, file: &str, mut command: Command) -> Result<Self> {
        let folder = root.join("target");
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let said = folder.join(file);
        let out = File::create(&said).with_context(|| format!("cannot write {}", said.display()))?;
        command.stdout(out.try_clone()?).stderr(out);
        let running = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
        Ok(Self { command: format!("{command:?}"), running, said })
    }

    fn end(mut self) -> Result<()> {
        let status = self.running.wait()?;
        eprint!("{}", std::fs::read_to_string(&self.said)?);
        if !status.success() {
            bail!("{} ended with {status}", self.command);
        }
        Ok(())
    }
}

impl Drop for Begun {
    /// When another step has failed.
    fn drop(&mut self) {
        // Both fail for one that has ended. What it started itself ends when it finds that out.
        let _ = self.running.kill();
        let _ = self.running.wait();
    }
}

/// The same command at a lower priority.
fn nice(niceness: &str, command: &Command) -> Command {
    let mut nice = Command::new("nice");
    nice.args(["-n", niceness]).arg(command.get_program()).args(command.get_args());
    nice.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    if let Some(folder) = command.get_current_dir() {
        nice.current_dir(folder);
    }
    nice
}

/// Simulated cluster-hours, begun beside tests that mostly wait: they take what processor time those leave.
struct Hours(Begun);

impl Hours {
    fn begin(root: &Path) -> Result<Self> {
        let mut simulator = Command::new("target/release/simulator");
        // Fewer hours than these by then are a failure, as any violation is. They are not to last longer
        // than the tests beside them, also on a machine half as fast as most; more of them are the soak's.
        simulator.args(["--hours", "8", "--minutes", "40", "--ledger", GATE_LEDGER]);
        simulator.env(KEEP_MEMORY.0, KEEP_MEMORY.1).current_dir(root);
        Ok(Self(Begun::begin(root, "hours.out", nice("19", &simulator))?))
    }

    fn end(self) -> Result<()> {
        step("simulated cluster-hours, begun beside clients", || self.0.end())
    }
}

/// A program in Python, with the interpreter that has Ceph's modules.
fn python(root: &Path, folder: &str, args: &[&str]) -> Result<()> {
    run(python_command(root, folder, args))
}

fn python_command(root: &Path, folder: &str, args: &[&str]) -> Command {
    let mut command = Command::new("/usr/bin/python3");
    command.args(args).current_dir(root.join(folder));
    command
}

/// A test that runs the optimised program. It is built of the whole workspace: of one package alone cargo
/// would choose other features for what the package needs, and build all of that once more.
fn clients_test(root: &Path, test: &ClientTest) -> Result<()> {
    let mut command = cargo_command(root, &["test", "--workspace", "--features", "loligo/test-medium"]);
    command.args(["--test", test.target, "--", "--test-threads", test.threads]);
    command.env("LOLIGO_BIN", root.join(GATE_BINARY));
    command.env("LOLIGO_REQUIRE_PEERS", "1");
    run(command)
}

fn step(name: &str, body: impl FnOnce() -> Result<()>) -> Result<()> {
    eprintln!("== {name}");
    let start = Instant::now();
    body().with_context(|| format!("step '{name}' failed"))?;
    eprintln!("== {name}: ok, {:.0} s", start.elapsed().as_secs_f32());
    Ok(())
}

fn cargo(root: &Path, args: &[&str]) -> Result<()> {
    run(cargo_command(root, args))
}

pub(crate) fn cargo_command(root: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args).current_dir(root);
    // Where ld is mold already no flag is needed, and plain cargo runs share what these build.
    if setup::has_program("mold") && !setup::linker_is_mold() {
        command.env("RUSTFLAGS", "-Clink-arg=-fuse-ld=mold");
    }
    command
}

pub(crate) fn run(mut command: Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start {command:?}"))?;
    if !status.success() {
        bail!("{command:?} ended with {status}");
    }
    Ok(())
}

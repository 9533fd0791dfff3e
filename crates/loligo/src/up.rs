//! `loligo up`, `down` and `status`.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::args::{DownArgs, StatusArgs, UpArgs};
use crate::client;
use crate::create;
use crate::failures::{self, Record};
use crate::layout::{ClusterDir, Description};
use crate::serve;
use crate::{up_dashboard, up_fs, up_s3};

/// Between looks at the cluster's health.
const POLL: Duration = Duration::from_millis(20);
/// How long a daemon may take to stop before it is killed.
const STOP_LIMIT: Duration = Duration::from_secs(15);

pub fn up(args: &UpArgs) -> Result<()> {
    bring_up(args)?;
    let dir = ClusterDir::new(&args.data)?;
    let d = dir.load()?.context("the folder's description is gone")?;
    // One in the foreground has ended by now.
    let other = dir.running("loligo").is_some_and(|pid| pid != std::process::id());
    let runs = other || !alive(&dir, &d).is_empty();
    if args.fs && runs {
        start_fs(&dir, args)?;
    }
    if args.s3 && runs {
        start_s3(&dir, &d, args)?;
    }
    if args.dashboard && runs { up_dashboard::open(&dir, &d) } else { Ok(()) }
}

fn start_s3(dir: &ClusterDir, d: &Description, args: &UpArgs) -> Result<()> {
    up_s3::start(dir, d, args, |words| spawn(dir, up_s3::NAME, words))
}

/// Makes the file system if there is none, and has a metadata server run.
fn start_fs(dir: &ClusterDir, args: &UpArgs) -> Result<()> {
    up_fs::start(dir, Duration::from_secs(args.timeout), |name| match dir.running("loligo") {
        Some(pid) => signal(pid, Signal::HUP),
        None => spawn(dir, &format!("mds.{name}"), &["mds", "--id", name]).map(drop),
    })
}

fn bring_up(args: &UpArgs) -> Result<()> {
    let dir = ClusterDir::new(&args.data)?;
    let existing = dir.load()?;
    let (description, fresh) = match existing {
        Some(d) => (moved(&dir, create::without_missing(&dir, d)?, args)?, false),
        None => (create::cluster(&dir, args)?, true),
    };
    check_port(args, &description, fresh)?;
    let alive = alive(&dir, &description);
    let together = dir.running("loligo");
    if let Some(pid) = together {
        say!("The cluster in {} is already running (process {pid}).", dir.root().display());
        try_again(&dir, &description, pid)?;
        return confirm(&dir, &description, args, &["loligo".to_owned()]);
    }
    if args.processes || !alive.is_empty() {
        return up_processes(&dir, &description, args, &alive);
    }
    if args.detach {
        let child = spawn(&dir, "loligo", &["serve"])?;
        let limit = Duration::from_secs(args.timeout);
        report(&dir, &description, Some(limit), vec![("loligo".to_owned(), child)], &[])?;
        print_next(&dir);
        return grow(&dir, &description, args);
    }
    let lock = dir.lock("loligo")?.context("another process just started this cluster")?;
    let served = serve::serve(&dir, &serve::names(&description), lock, || {
        report_when_healthy(&dir, &description, args);
        Ok(())
    });
    let stopped = stop_s3(&dir).map(drop);
    served.and(stopped)
}

/// The cluster at the address that `--listen` names, if it names another one than it has.
fn moved(dir: &ClusterDir, d: Description, args: &UpArgs) -> Result<Description> {
    let Some(ip) = args.listen.filter(|ip| *ip != d.ip()) else { return Ok(d) };
    if dir.running("loligo").is_some() || !alive(dir, &d).is_empty() {
        bail!("the cluster runs at {}; `loligo down` first, then it can move to {ip}", d.ip());
    }
    create::move_to(dir, &d, ip)
}

/// Has daemons that were given up started once more: whatever was in their way may be gone.
fn try_again(dir: &ClusterDir, d: &Description, pid: u32) -> Result<()> {
    let given_up = failures::given_up(dir, &serve::names(d));
    for (name, record) in &given_up {
        failures::note(dir, name, &Record { now: failures::Now::Waits(0), ..record.clone() });
    }
    if given_up.is_empty() { Ok(()) } else { signal(pid, Signal::HUP) }
}

/// Waits until the running cluster is usable. One of its processes may be about to end, killed a moment ago, while it still
/// holds its place: then it is started again.
fn confirm(dir: &ClusterDir, d: &Description, args: &UpArgs, running: &[String]) -> Result<()> {
    if !report(dir, d, Some(Duration::from_secs(args.timeout)), Vec::new(), running)? {
        say!("It has just ended; starting it again.");
        return bring_up(args);
    }
    grow(dir, d, args)
}

/// Whether `--osds` asks for more than there are. Fewer is no wish to lose data: OSDs go by `ceph osd purge`.
fn wants_more(d: &Description, args: &UpArgs) -> bool {
    args.osds.is_some_and(|wanted| wanted as usize > d.osds.len())
}

/// Adds the monitors that `--mons` asks for, and starts them; a cluster loses monitors by `ceph mon rm`.
fn grow_mons(dir: &ClusterDir, d: &Description, args: &UpArgs) -> Result<Description> {
    if args.mons.is_none_or(|wanted| wanted as usize <= d.mons().len()) {
        return Ok(d.clone());
    }
    let grown = create::add_mons(dir, d, args)?;
    let added = || grown.mons.iter().filter(|m| d.mon(&m.name).is_none()).map(|m| m.name.as_str());
    match dir.running("loligo") {
        Some(pid) => signal(pid, Signal::HUP)?,
        None => {
            for name in added() {
                spawn(dir, &format!("mon.{name}"), &["mon", "--id", name])?;
            }
        }
    }
    await_quorum(dir, &grown, &added().collect::<Vec<_>>(), Duration::from_secs(args.timeout))?;
    Ok(grown)
}

/// Waits until the monitors of these names are in the quorum.
fn await_quorum(dir: &ClusterDir, d: &Description, names: &[&str], limit: Duration) -> Result<()> {
    let start = Instant::now();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let admin = client::admin(dir, d)?;
        loop {
            let mut status = Value::Null;
            if admin.connected(POLL).await.is_ok() {
                status =
                    client::command(&admin, json!({"prefix": "quorum_status"})).await.unwrap_or_default();
            }
            let quorum: Vec<&str> = status
                .get("quorum_names")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .collect();
            let Some(away) = names.iter().find(|name| !quorum.contains(name)) else { return Ok(()) };
            if start.elapsed() > limit {
                bail!("mon.{away} is not in the quorum after {} s: see its log", limit.as_secs());
            }
            tokio::time::sleep(POLL).await;
        }
    })
}

/// Adds the OSDs that `--osds` asks for to the running cluster, starts them and waits for them.
fn grow(dir: &ClusterDir, d: &Description, args: &UpArgs) -> Result<()> {
    let d = &grow_mons(dir, d, args)?;
    if !wants_more(d, args) {
        return Ok(());
    }
    let grown = create::add_osds(dir, d, args)?;
    let mut children = Vec::new();
    match dir.running("loligo") {
        Some(pid) => signal(pid, Signal::HUP)?,
        None => {
            for osd in grown.osds.iter().filter(|o| d.osds.iter().all(|old| old.id != o.id)) {
                let name = format!("osd.{}", osd.id);
                children.push((name.clone(), spawn(dir, &name, &["osd", "--id", &osd.id.to_string()])?));
            }
        }
    }
    report(dir, &grown, Some(Duration::from_secs(args.timeout)), children, &[])?;
    Ok(())
}

/// `--mon-port` is for new clusters: clients know the port of an existing one.
fn check_port(args: &UpArgs, d: &Description, fresh: bool) -> Result<()> {
    match args.mon_port {
        Some(port) if !fresh && port != 0 && port != d.mon_addr.port() => {
            bail!(
                "the monitor of this cluster has port {}; --mon-port is for new clusters",
                d.mon_addr.port()
            )
        }
        _ => Ok(()),
    }
}

/// Daemons that run as processes of their own.
fn alive(dir: &ClusterDir, d: &Description) -> Vec<(String, u32)> {
    serve::names(d).into_iter().filter_map(|n| dir.running(&n).map(|pid| (n, pid))).collect()
}

fn up_processes(dir: &ClusterDir, d: &Description, args: &UpArgs, alive: &[(String, u32)]) -> Result<()> {
    let names = serve::names(d);
    let dead: Vec<&String> = names.iter().filter(|n| !alive.iter().any(|(a, _)| a == *n)).collect();
    if dead.is_empty() {
        say!("The cluster in {} is already running ({} processes).", dir.root().display(), alive.len());
        return confirm(dir, d, args, &names);
    }
    let mut children = Vec::new();
    for name in dead {
        let (kind, id) = name.split_once('.').context("a daemon's name has a dot")?;
        children.push((name.clone(), spawn(dir, name, &[kind, "--id", id])?));
    }
    if args.detach {
        let others: Vec<String> = alive.iter().map(|(name, _)| name.clone()).collect();
        if !report(dir, d, Some(Duration::from_secs(args.timeout)), children, &others)? {
            say!("A daemon has just ended; starting it again.");
            return bring_up(args);
        }
        print_next(dir);
        return grow(dir, d, args);
    }
    report_when_healthy(dir, d, args);
    supervise(dir, children)
}

/// Waits for a signal, then stops the children.
fn supervise(dir: &ClusterDir, mut children: Vec<(String, Child)>) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut term = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
        tokio::select! {
            r = tokio::signal::ctrl_c() => r,
            _ = term.recv() => Ok(()),
        }
    })?;
    // It may have grown meanwhile.
    let d = dir.load()?.context("the folder's description is gone")?;
    stop_all(dir, &d)?;
    for (_, child) in &mut children {
        let _ = child.wait();
    }
    Ok(())
}

/// Starts this program again in the background, with a log of its own.
fn spawn(dir: &ClusterDir, name: &str, args: &[&str]) -> Result<Child> {
    let path = dir.log_file(name);
    let log = OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(&path)
        .with_context(|| format!("cannot write {}", path.display()))?;
    let mut command = Command::new(std::env::current_exe().context("cannot find this program's file")?);
    command.args(args).arg("--data").arg(dir.root());
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    // Of a process group of its own, so that the terminal's Ctrl-C does not reach it.
    command.process_group(0);
    command.spawn().with_context(|| format!("cannot start {name}"))
}

/// Waits until the cluster is usable, and says so. A child that ends is an error; false when one of the `others`, which ran
/// before, ended.
fn report(
    dir: &ClusterDir,
    d: &Description,
    limit: Option<Duration>,
    mut children: Vec<(String, Child)>,
    others: &[String],
) -> Result<bool> {
    let start = Instant::now();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let health = runtime.block_on(async {
        let admin = client::admin(dir, d)?;
        let (mut last, mut lacks) = (Value::Null, "the monitor does not answer");
        loop {
            for (name, child) in &mut children {
                if let Some(status) = child.try_wait()? {
                    bail!("{}", died(dir, name, status.code()));
                }
            }
            if others.iter().any(|name| dir.running(name).is_none()) {
                return Ok(None);
            }
            if admin.connected(POLL).await.is_ok() {
                last = client::command(&admin, json!({"prefix": "health"})).await.unwrap_or(Value::Null);
                if usable(&last) {
                    match lacking(dir, &admin, d).await {
                        // What was wrong until now may be over.
                        None => {
                            return Ok(Some(
                                client::command(&admin, json!({"prefix": "health"})).await.unwrap_or(last),
                            ));
                        }
                        Some(what) => lacks = what,
                    }
                }
            }
            if let Some(limit) = limit.filter(|limit| start.elapsed() >= *limit) {
                let reasons = reasons(&last).unwrap_or_else(|| lacks.to_owned());
                bail!("the cluster runs, but is not usable after {} s: {reasons}", limit.as_secs());
            }
            tokio::time::sleep(POLL).await;
        }
    })?;
    let Some(health) = health else { return Ok(false) };
    let (root, took) = (dir.root().display(), start.elapsed().as_secs_f32());
    for (name, record) in failures::given_up(dir, &serve::names(d)) {
        say!("{name} stopped: {}; {}", record.why, record.now);
    }
    match reasons(&health) {
        None => say!("The cluster in {root} is healthy ({took:.1} s)."),
        Some(warnings) => say!("The cluster in {root} is usable ({took:.1} s), with warnings: {warnings}"),
    }
    Ok(true)
}

/// Healthy, or with nothing worse than warnings: an operator's warning of yesterday must not look like a failed start.
fn usable(health: &Value) -> bool {
    matches!(health.get("status").and_then(Value::as_str), Some("HEALTH_OK" | "HEALTH_WARN"))
}

/// The messages of the checks that fail.
fn reasons(health: &Value) -> Option<String> {
    let checks = health.get("checks")?.as_object()?;
    let texts = checks.values().filter_map(|v| v.pointer("/summary/message")?.as_str());
    let texts: Vec<&str> = texts.collect();
    (!texts.is_empty()).then(|| texts.join("; "))
}

/// What is missing until every OSD of the folder is up, every PG active and clean, and a manager in charge:
/// "healthy" alone may mean yesterday's map, and both PGs and the manager may be on their way for a minute
/// before they count as ill.
async fn lacking(
    dir: &ClusterDir,
    admin: &daemons::admin::AdminClient,
    d: &Description,
) -> Option<&'static str> {
    const OSDS: &str = "the map does not show each OSD as it runs";
    if !booted(dir, admin, d).await {
        return Some(OSDS);
    }
    let status = client::command(admin, json!({"prefix": "status"})).await.unwrap_or(Value::Null);
    let away = d.osds.iter().filter(|o| is_given_up(dir, o.id)).count();
    let number = |path: &str| status.pointer(path).and_then(Value::as_u64);
    let states = status.pointer("/pgmap/pgs_by_state").and_then(Value::as_array);
    let clean: u64 = states
        .into_iter()
        .flatten()
        .filter(|s| s["state_name"].as_str().is_some_and(|n| n.starts_with("active+clean")))
        .filter_map(|s| s["count"].as_u64())
        .sum();
    if status.pointer("/mgrmap/available") != Some(&Value::Bool(true)) {
        return Some("no manager is in charge");
    }
    if number("/osdmap/num_up_osds") != Some((d.osds.len() - away) as u64) {
        return Some(OSDS);
    }
    // With an OSD away they may be degraded for long.
    let is_good = away > 0 || number("/pgmap/num_pgs") == Some(clean);
    (!is_good).then_some("PGs are not yet active and clean")
}

/// Nobody need wait for an OSD that does not start again by itself; the others serve.
fn is_given_up(dir: &ClusterDir, osd: i32) -> bool {
    failures::of(dir, &format!("osd.{osd}")).is_some_and(|record| record.now == failures::Now::Stopped)
}

/// Whether the map holds the addresses of the OSDs that run now, not those of processes that were killed. An
/// OSD that does not start again is told to be down: its end before a power failure may have gone unseen, and
/// its peers need two hosts to say so.
async fn booted(dir: &ClusterDir, admin: &daemons::admin::AdminClient, d: &Description) -> bool {
    let dump = client::command(admin, json!({"prefix": "osd dump"})).await.unwrap_or(Value::Null);
    let entry = |id: i32| {
        let osds = dump.get("osds")?.as_array()?;
        osds.iter().find(|o| o["osd"].as_i64() == Some(i64::from(id)))
    };
    let nonce = |id: i32| entry(id)?.pointer("/public_addrs/addrvec/0/nonce")?.as_u64();
    for osd in d.osds.iter().filter(|o| is_given_up(dir, o.id)) {
        if entry(osd.id).is_some_and(|o| o["up"].as_i64() == Some(1)) {
            let down = json!({"prefix": "osd down", "ids": [osd.id.to_string()]});
            // The next look at the map says whether it was heard.
            let _ = client::command(admin, down).await;
        }
    }
    let pid = |id: i32| dir.running("loligo").or_else(|| dir.running(&format!("osd.{id}")));
    d.osds.iter().all(|o| {
        let life = failures::of(dir, &format!("osd.{}", o.id)).map_or(0, |record| record.times);
        let wanted = pid(o.id).map(|pid| u64::from(daemons::nonce::of_life(pid, o.id, life)));
        wanted.is_some() && nonce(o.id) == wanted || is_given_up(dir, o.id)
    })
}

/// The last line of a dead daemon's log says why.
fn died(dir: &ClusterDir, name: &str, code: Option<i32>) -> String {
    let log = std::fs::read_to_string(dir.log_file(name)).unwrap_or_default();
    match log.lines().rev().find(|l| !l.trim().is_empty()) {
        Some(line) => line.trim_start_matches("loligo: ").to_owned(),
        None => format!("{name} ended with status {}", code.map_or("signal".into(), |c| c.to_string())),
    }
}

/// In the foreground: prints when the cluster is usable, while it goes on running.
fn report_when_healthy(dir: &ClusterDir, d: &Description, args: &UpArgs) {
    let (dir, d, args) = (dir.clone(), d.clone(), args.clone());
    std::thread::spawn(move || {
        let outcome = report(&dir, &d, None, Vec::new(), &[]).and_then(|_| {
            print_next(&dir);
            grow(&dir, &d, &args)?;
            if args.fs {
                start_fs(&dir, &args)?;
            }
            if args.s3 {
                start_s3(&dir, &d, &args)?;
            }
            if args.dashboard {
                up_dashboard::open(&dir, &d)?;
            }
            say!("\nCtrl-C stops it; the data stays.");
            Ok(())
        });
        if let Err(error) = outcome {
            eprintln!("loligo: {error:#}");
        }
    });
}

fn print_next(dir: &ClusterDir) {
    say!("\nTry next, with Ceph's own tools (Debian: apt-get install ceph-common):\n");
    say!("  export CEPH_CONF={}", dir.conf().display());
    say!("  ceph -s");
    say!("  ceph osd pool create p 32 && rados -p p bench 10 write -b 4096 -t 16");
}

pub fn down(args: &DownArgs) -> Result<()> {
    let dir = ClusterDir::new(&args.data)?;
    let Some(d) = dir.load()? else { bail!("{} holds no cluster", dir.root().display()) };
    let stopped = stop_all(&dir, &d)?;
    match stopped {
        0 => say!("The cluster in {} is not running.", dir.root().display()),
        n => say!("Stopped {n} process(es) of {}.", dir.root().display()),
    }
    Ok(())
}

/// Stops the gateway of the folder; how many there were.
fn stop_s3(dir: &ClusterDir) -> Result<usize> {
    let Some(pid) = dir.running(up_s3::NAME) else { return Ok(0) };
    signal(pid, Signal::TERM)?;
    wait_stopped(dir, &[up_s3::NAME.to_owned()])?;
    dir.clear(up_s3::NAME);
    Ok(1)
}

/// The gateway first, which has requests to end; then OSDs; the monitor last, so that it hears who goes.
fn stop_all(dir: &ClusterDir, d: &Description) -> Result<usize> {
    let gateways = stop_s3(dir)?;
    let mut names = serve::names(d);
    names.reverse();
    names.push("loligo".to_owned());
    let mut waiting = Vec::new();
    for name in names {
        let Some(pid) = dir.running(&name) else { continue };
        if name.starts_with("mon.") && waiting.iter().all(|w: &String| !w.starts_with("mon.")) {
            wait_stopped(dir, &waiting)?;
        }
        signal(pid, Signal::TERM)?;
        waiting.push(name);
    }
    wait_stopped(dir, &waiting)?;
    serve::names(d).iter().for_each(|name| dir.clear(name));
    dir.clear("loligo");
    Ok(waiting.len() + gateways)
}

fn wait_stopped(dir: &ClusterDir, names: &[String]) -> Result<()> {
    let start = Instant::now();
    for name in names {
        while let Some(pid) = dir.running(name) {
            if start.elapsed() > STOP_LIMIT {
                eprintln!("{name} (process {pid}) does not stop, killing it");
                signal(pid, Signal::KILL)?;
            }
            std::thread::sleep(POLL);
        }
    }
    Ok(())
}

fn signal(pid: u32, which: Signal) -> Result<()> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).context("a pid file holds no pid")?;
    match kill_process(pid, which) {
        // It ended in between.
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(e) => Err(e).context("cannot signal the daemon"),
    }
}

pub fn status(args: &StatusArgs) -> Result<()> {
    let dir = ClusterDir::new(&args.data)?;
    let Some(d) = dir.load()? else { bail!("{} holds no cluster", dir.root().display()) };
    let together = dir.running("loligo");
    let mut daemons: Vec<(String, Option<u32>)> =
        serve::names(&d).into_iter().map(|n| (n.clone(), together.or_else(|| dir.running(&n)))).collect();
    daemons.extend(dir.running(up_s3::NAME).map(|pid| (up_s3::NAME.to_owned(), Some(pid))));
    let health = if daemons.iter().any(|(n, pid)| n.starts_with("mon.") && pid.is_some()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let admin = client::admin(&dir, &d)?;
            admin.connected(Duration::from_secs(5)).await?;
            client::command(&admin, json!({"prefix": "health"})).await
        })?
    } else {
        Value::Null
    };
    let failed: BTreeMap<&str, Record> =
        daemons.iter().filter_map(|(n, _)| Some((n.as_str(), failures::of(&dir, n)?))).collect();
    let down = |name: &str| failed.get(name).filter(|record| record.is_down());
    if args.json {
        let running: serde_json::Map<String, Value> =
            daemons.iter().map(|(n, pid)| (n.clone(), json!(pid.filter(|_| down(n).is_none())))).collect();
        let out = json!({
            "data": dir.root(), "fsid": d.fsid, "daemons": running, "failures": failed, "health": health,
        });
        say!("{}", serde_json::to_string_pretty(&out)?);
        return Ok(());
    }
    say!("cluster {} in {}", d.fsid, dir.root().display());
    for (name, pid) in &daemons {
        let runs = pid.filter(|_| down(name).is_none());
        say!("  {name:8} {}", runs.map_or("stopped".into(), |p| format!("running (process {p})")));
        if let Some(Record { why, at, times, now }) = failed.get(name.as_str()) {
            say!("           failed {times} time(s), last at {at}: {why}; {now}");
        }
    }
    let status = health.get("status").and_then(Value::as_str);
    say!("health: {}", status.unwrap_or("unknown (the monitor does not run)"));
    Ok(())
}

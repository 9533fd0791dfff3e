//! Runs daemons: all of a folder in this process, or one, of a folder or by its configuration file.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use admin::options::Values;
use anyhow::{Context, Result, bail};
use cephx::{METHOD_CEPHX, METHOD_NONE};
use daemons::admin::AdminClient;
use daemons::admin_socket::AdminSocketAt;
use daemons::auth::{Method, SharedAuth};
use daemons::mon::{Mon, MonConfig};
use daemons::osd::{Osd, OsdSettings};
use daemons::{Lasting, StartPlace};
use monitor::Whose;
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use types::{AddrVec, AuthName, EntityAddr, EntityType, OsdId};

use crate::args::DaemonArgs;
use crate::client;
use crate::layout::{ClusterDir, Description, MonEntry, PidLock};
use crate::log::Lines;
use crate::mkfs::{self, MonDir, mon_name};
use crate::network;
use crate::place::{Place, warn_of_settings};
use crate::rescue;
use crate::running::{Running, Site};
use crate::user;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Log lines go to standard error, or to a file; LOLIGO_LOG sets the level (`warn`, `info`, `debug`, or per module).
pub fn start_log(file: Option<std::fs::File>) {
    let filter = tracing_subscriber::EnvFilter::try_from_env("LOLIGO_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn"));
    let log = tracing_subscriber::fmt()
        .with_env_filter(without_requests(filter))
        .with_target(false)
        .with_ansi(false);
    match file {
        Some(file) => log.with_writer(std::sync::Mutex::new(Lines(file))).init(),
        None => log.with_writer(|| Lines(std::io::stderr())).init(),
    }
}

/// S3's library writes requests with all their headers, secrets among them, into debug logs.
fn without_requests(filter: tracing_subscriber::EnvFilter) -> tracing_subscriber::EnvFilter {
    let warnings = tracing::level_filters::LevelFilter::WARN;
    match format!("s3s={warnings}").parse() {
        Ok(directive) => filter.add_directive(directive),
        Err(_) => tracing_subscriber::EnvFilter::new("warn"),
    }
}

/// All daemons of the folder, until SIGINT or SIGTERM.
pub fn everything(data: &Path) -> Result<()> {
    let (dir, description) = open(data)?;
    let lock = take_place(&dir, "loligo")?;
    serve(&dir, &names(&description), lock, || Ok(()))
}

/// One daemon, until SIGINT or SIGTERM; or the making of its data.
pub fn one(args: &DaemonArgs, kind: EntityType) -> Result<()> {
    if args.new && kind == EntityType::Osd {
        start_log(None);
        return mkfs::new_osd(args);
    }
    let id = id_of(args, kind)?;
    user::check(&args.given()?)?;
    if args.force && kind != EntityType::Mgr {
        bail!("--force is for managers");
    }
    if args.replace && kind == EntityType::Osd {
        start_log(None);
        return match folder(args, kind, &id) {
            Some(data) => {
                let (dir, description) = open(&data)?;
                mkfs::replace_of_folder(&dir, &description, &id)
            }
            None => mkfs::new_osd(&DaemonArgs { id: Some(id), name: None, ..args.clone() }),
        };
    }
    if rescue::is_asked_for(args) && kind != EntityType::Mon {
        bail!("--extract-monmap and --inject-monmap are for monitors");
    }
    if let Some(data) = folder(args, kind, &id) {
        start_log(None);
        return one_of_folder(args, &data, kind, &id);
    }
    let place = Place::by_conf(args, kind, &id)?;
    if rescue::is_asked_for(args) {
        start_log(None);
        return rescue::by_conf(args, &place);
    }
    match (args.mkfs, kind) {
        (false, _) => {}
        (true, EntityType::Mon) => return mkfs::mon(&place),
        (true, EntityType::Osd) => return mkfs::osd(&place, args),
        (true, _) => {
            let keyring = place.data.join("keyring");
            bail!("{} has no store: it needs {} alone", place.name, keyring.display())
        }
    }
    start_log(log_file(&place.values())?);
    place.need_monitors()?;
    if !place.data.is_dir() {
        bail!("there is no folder {} (--{}-data): --mkfs makes it", place.data.display(), kind.as_str());
    }
    place.warn_of_settings()?;
    let lock = place.lock()?;
    if let Some(path) = place.values().get("pid_file").filter(|p| !p.is_empty()) {
        std::fs::write(&path, format!("{}\n", std::process::id()))
            .with_context(|| format!("cannot write {path}"))?;
    }
    run(&Site::Alone { place: Box::new(place), force: args.force }, lock, || Ok(()))
}

fn id_of(args: &DaemonArgs, kind: EntityType) -> Result<String> {
    let name = args.name.as_deref().map(|n| n.split_once('.').unwrap_or((kind.as_str(), n)));
    match (name, &args.id) {
        (Some((other, _)), _) if other != kind.as_str() => {
            bail!("{other} is not what loligo {} runs", kind.as_str())
        }
        (Some((_, id)), _) => Ok(id.to_owned()),
        (None, Some(id)) => Ok(id.clone()),
        (None, None) => bail!("which {}? Name it with --id", kind.as_str()),
    }
}

/// The folder of `up` that the daemon is of: named, or that of the `ceph.conf` which `up` has clients use, or
/// the usual one where no configuration file is named.
fn folder(args: &DaemonArgs, kind: EntityType, id: &str) -> Option<PathBuf> {
    if args.conf.is_some() || args.mkfs {
        return None;
    }
    let usual = Path::new("data");
    args.data.clone().or_else(|| match std::env::var_os("CEPH_CONF") {
        Some(conf) => folder_of(Path::new(&conf), &AuthName::new(kind, id).to_string()),
        None => usual.join("loligo.json").is_file().then(|| usual.to_owned()),
    })
}

/// The folder that this is the `ceph.conf` of, if it has a daemon of this name.
fn folder_of(conf: &Path, daemon: &str) -> Option<PathBuf> {
    let conf = std::path::absolute(conf).ok()?;
    let dir = ClusterDir::new(conf.parent()?).ok().filter(|dir| dir.conf() == conf)?;
    let description = dir.load().ok()??;
    names(&description).iter().any(|name| name == daemon).then(|| dir.root().to_owned())
}

fn one_of_folder(args: &DaemonArgs, data: &Path, kind: EntityType, id: &str) -> Result<()> {
    let (dir, description) = open(data)?;
    let name = AuthName::new(kind, id).to_string();
    if !names(&description).contains(&name) {
        bail!("there is no {name} in {}", dir.root().display());
    }
    if let Some(pid) = dir.running("loligo") {
        bail!("the whole cluster of {} runs in process {pid}", dir.root().display());
    }
    let lock = take_place(&dir, &name)?;
    if rescue::is_asked_for(args) {
        let name = AuthName::new(kind, id);
        let folder = MonDir(dir.daemon_dir(&name.to_string()));
        return rescue::run(args, &rescue::Stopped { name: &name, dir: folder, cluster: Some(&dir) });
    }
    serve(&dir, &[name], lock, || Ok(()))
}

/// The file that `log_file` names; none by default, for what runs in the foreground says it there.
fn log_file(values: &Values) -> Result<Option<std::fs::File>> {
    if values.levels("log_file").next().is_none() || values.get("log_to_file").as_deref() == Some("false") {
        return Ok(None);
    }
    let path = values.get("log_file").unwrap_or_default();
    if path.is_empty() {
        return Ok(None);
    }
    let file = std::fs::OpenOptions::new().create(true).append(true).open(&path);
    file.map(Some).with_context(|| format!("cannot write the log file {path}"))
}

pub fn open(data: &Path) -> Result<(ClusterDir, Description)> {
    let dir = ClusterDir::new(data)?;
    match dir.load()? {
        Some(description) => Ok((dir, description)),
        None => bail!(
            "{} holds no cluster; make one with: loligo up --data {}",
            dir.root().display(),
            data.display()
        ),
    }
}

fn take_place(dir: &ClusterDir, name: &str) -> Result<PidLock> {
    dir.lock(name)?.with_context(|| format!("{name} of {} is already running", dir.root().display()))
}

/// Every daemon of a folder, in the order in which they start.
pub fn names(d: &Description) -> Vec<String> {
    let mut out: Vec<String> = d.mons().iter().map(|m| format!("mon.{}", m.name)).collect();
    out.push("mgr.x".to_owned());
    out.extend(d.osds.iter().map(|o| format!("osd.{}", o.id)));
    out.extend(d.mds.iter().map(|name| format!("mds.{name}")));
    out
}

/// Threads for the sockets of so many daemons. A daemon alone has few: its core runs on one at a time, and on two cores a
/// second thread cost more in wake-ups than it brought.
fn worker_threads(daemons: usize) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    if daemons > 1 { cores } else { (cores / 2).clamp(1, 4) }
}

/// Runs the named daemons of a folder until a signal; SIGHUP starts those that were added to the folder since. `started` is
/// called when all of them listen.
pub fn serve(
    dir: &ClusterDir,
    names: &[String],
    lock: PidLock,
    started: impl FnOnce() -> Result<()>,
) -> Result<()> {
    warn_of_settings(&dir.conf())?;
    let site = Site::Folder { dir: dir.clone(), names: names.to_vec() };
    run(&site, lock, started)
}

fn run(site: &Site, lock: PidLock, started: impl FnOnce() -> Result<()>) -> Result<()> {
    runtime::end_on_other_panics(monitor::is_panic_contained);
    raise_descriptors();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(worker_threads(site.daemons()))
        .event_interval(TASKS_BETWEEN_EVENTS)
        .enable_all()
        .build()?;
    let result = runtime.block_on(run_until_stopped(site, started));
    // Connections that still wait for peers must not hold the process up.
    runtime.shutdown_timeout(Duration::from_millis(500));
    // Threads of the stores may still hold their files: the place is free when the process has ended, not before.
    std::mem::forget(lock);
    result
}

/// Tasks that a thread runs before it looks at the sockets again while there are more. With tokio's 61, heavy
/// requests of some clients, each with milliseconds of work, keep all others waiting for their sum.
const TASKS_BETWEEN_EVENTS: u32 = 8;

/// Takes as many file descriptors as the system allows: the usual limit, 1,024, is kept low for the sake of
/// programs that use `select`, and is less than a busy daemon has connections.
fn raise_descriptors() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
            tracing::warn!("file descriptors stay at {current:?}: {error}");
        }
    }
}

async fn run_until_stopped(site: &Site, started: impl FnOnce() -> Result<()>) -> Result<()> {
    let mut term = signal(SignalKind::terminate())?;
    let mut int = signal(SignalKind::interrupt())?;
    let mut hup = signal(SignalKind::hangup())?;
    let mut running = Running::new(site);
    running.start_all().await?;
    started()?;
    let outcome = loop {
        let end = tokio::select! {
            _ = term.recv() => break Ok(()),
            _ = int.recv() => break Ok(()),
            _ = hup.recv() => {
                running.start_new().await;
                continue;
            }
            () = running.due() => {
                running.start_due().await;
                continue;
            }
            end = running.ended() => end,
        };
        match running.handle(end).await {
            Ok(true) => {}
            Ok(false) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    running.stop().await;
    outcome
}

/// How many file descriptors the process may have.
pub fn descriptors() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// What a daemon has of its process.
#[derive(Debug, Clone, Copy)]
pub struct Part {
    /// Whether no other daemon is served by the threads of this process.
    pub alone: bool,
    /// File descriptors.
    pub descriptors: u64,
}

/// `life`: how often this process has been this OSD before.
pub async fn start_osd(place: &Place, id: OsdId, part: Part, life: u32) -> Result<Osd> {
    let block = place.data.join("block");
    if !block.exists() {
        let (block, name) = (block.display(), &place.name);
        let why = format!("there is no {block}: loligo osd --mkfs (or --new) makes the store of {name}");
        return Err(Lasting(why).into());
    }
    let told = std::fs::read_to_string(place.data.join("whoami")).unwrap_or_default();
    if !told.trim().is_empty() && told.trim() != id.to_string() {
        let why = format!("{} holds osd.{}, not {}", place.data.display(), told.trim(), place.name);
        return Err(Lasting(why).into());
    }
    let start = StartPlace { host: place.host(), class: mkfs::device_class(&place.data) };
    let target = crate::create::memory_target_or_usual(&place.options);
    crate::create::choose_pages(target);
    let settings = OsdSettings {
        id,
        block,
        listen: place.listen()?,
        monitors: place.monitors.clone(),
        auth: place.auth()?,
        options: pg::OsdConfig { memory_target: target, ..pg::OsdConfig::default() },
        store: crate::create::store_options(target),
        local: place.options.clone(),
        admin_socket: AdminSocketAt::of(&place.values()),
        // `up` has placed its OSDs, and leaves them where they are moved to.
        place: place.folder.is_none().then_some(start),
        cluster: place.fsid,
        medium: daemons::Medium::chosen()?,
        only_daemon: part.alone,
        descriptors: part.descriptors,
        life,
    };
    Osd::start(settings).await
}

/// `folder`: where the folder that it belongs to has its monitors, whatever their map says.
pub async fn start_mon(
    place: &Place,
    addr: SocketAddr,
    seeds: Vec<EntityAddr>,
    founding: Option<(Vec<String>, bytes::Bytes)>,
    folder: &[MonEntry],
    part: Part,
) -> Result<Mon> {
    let mut settings = monitor::Settings::new(&place.name.id, AddrVec::single(EntityAddr::v2(addr, 0)));
    settings.moved = folder.iter().map(|m| (m.name.clone(), EntityAddr::v2(m.addr, 0))).collect();
    settings.host_name = place.host();
    settings.auth_methods = vec![if place.method == Method::None { METHOD_NONE } else { METHOD_CEPHX }];
    settings.options = place.options.clone();
    let config = MonConfig {
        settings,
        store: MonDir(place.data.clone()).store(),
        listen: addr,
        seeds,
        method: place.method,
        key: place.key(&mon_name())?,
        admin_socket: AdminSocketAt::of(&place.values()),
        founding,
        cluster: place.fsid,
        medium: daemons::Medium::chosen()?,
        descriptors: part.descriptors,
    };
    Mon::start(config).await
}

pub async fn start_mon_by_conf(place: &Place, part: Part) -> Result<Mon> {
    let (dir, id) = (MonDir(place.data.clone()), &place.name.id);
    if !dir.store().exists() {
        bail!("there is no {}: loligo mon --mkfs makes the store of {}", dir.store().display(), place.name);
    }
    let known = dir.read_monmap()?;
    let fsid = place.fsid.or_else(|| (!known.fsid.is_zero()).then_some(known.fsid));
    let mut place = place.clone();
    place.fsid = fsid;
    let own = known.mons.get(id).and_then(|m| m.addrs.msgr2()).and_then(|a| a.socket);
    let addr = own.with_context(|| format!("{} does not hold {}", dir.0.display(), place.name))?;
    if !network::is_own(addr.ip()) {
        bail!("{} is at {addr}, which is no address of this host", place.name);
    }
    let mut seeds: Vec<EntityAddr> = known.ranked().filter_map(|m| m.addrs.msgr2()).collect();
    seeds.extend(
        place
            .monitors
            .iter()
            .filter(|m| seeds.iter().all(|s| s.socket != m.socket))
            .copied()
            .collect::<Vec<_>>(),
    );
    let founding = dir.read_founding()?;
    let is_new = founding.is_some() || dir.is_joining();
    let mon = start_mon(&place, addr, seeds.clone(), founding, &[], part).await?;
    let others: Vec<EntityAddr> = seeds.into_iter().filter(|s| s.socket != Some(addr)).collect();
    if is_new && !others.is_empty() {
        tokio::spawn(meet_the_others(place, addr, others, mon.ender()));
    }
    Ok(mon)
}

/// Why a monitor of ours ends that comes to monitors of Ceph's.
const MONITORS_APART: &str = "they form no quorum with ours";

/// What a new monitor does when it reaches others that have a quorum: it ends where they are Ceph's, and
/// otherwise adds itself to their map, unless it is one of those that found the cluster.
async fn meet_the_others(
    place: Place,
    addr: SocketAddr,
    others: Vec<EntityAddr>,
    end: impl FnOnce(String) + Send,
) {
    let Some(fsid) = place.fsid else {
        return tracing::error!("{} cannot join: the cluster's fsid is not known", place.name);
    };
    let key = match place.key(&mon_name()) {
        Ok(key) => key,
        Err(error) => return tracing::error!("{} cannot join: no key of mon.: {error:#}", place.name),
    };
    let dir = MonDir(place.data.clone());
    let words = json!({"prefix": "mon add", "name": place.name.id, "addr": format!("v2:{addr}/0")});
    loop {
        let auth = SharedAuth::new(place.method, mon_name(), key.clone(), EntityType::Mon);
        let admin = AdminClient::new(fsid, auth, others.clone());
        if admin.connected(Duration::from_secs(10)).await.is_ok() {
            match client::whose(&admin).await {
                Ok(Whose::Ceph) => return end(format!("the other monitors are Ceph's: {MONITORS_APART}")),
                Ok(Whose::Ours) if !dir.is_joining() => return,
                Ok(Whose::Ours) => match client::command(&admin, words.clone()).await {
                    Ok(_) => return dir.joined(),
                    Err(error) => tracing::warn!("{} cannot be added to the cluster: {error:#}", place.name),
                },
                Err(error) => tracing::warn!("{} waits: {error:#}", place.name),
            }
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_that_clients_use_names_the_folder_for_its_own_daemons() {
        let tmp = tempfile::tempdir().expect("a folder");
        let dir = ClusterDir::new(tmp.path()).expect("a path");
        assert_eq!(folder_of(&dir.conf(), "mon.a"), None, "no cluster");
        let description = Description {
            format: crate::layout::FORMAT,
            fsid: "215f035f-8e81-42db-a68c-2ddf6b582ff3".to_owned(),
            auth: "cephx".to_owned(),
            mon_addr: "127.0.0.1:3300".parse().expect("an address"),
            mons: Vec::new(),
            osds: Vec::new(),
            mds: Vec::new(),
            profile: crate::args::Profile::Default,
        };
        dir.save(&description).expect("saved");
        assert_eq!(folder_of(&dir.conf(), "mon.a").as_deref(), Some(tmp.path()));
        assert_eq!(folder_of(&dir.conf(), "mon.b"), None, "a daemon by its configuration alone");
        assert_eq!(folder_of(&tmp.path().join("other.conf"), "mon.a"), None);
    }

    #[test]
    fn debug_logs_have_no_requests() {
        let filter =
            without_requests(tracing_subscriber::EnvFilter::new("debug,s3s=trace,s3=debug")).to_string();
        let mut parts: Vec<&str> = filter.split(',').collect();
        parts.sort_unstable();
        assert_eq!(parts, ["debug", "s3=debug", "s3s=warn"]);
    }
}

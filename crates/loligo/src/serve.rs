//! Runs daemons: all of a folder in this process, or one of them.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::pin::Pin;

use anyhow::{Context, Result, bail};
use daemons::admin_socket::AdminSocketAt;
use daemons::auth::SharedAuth;
use daemons::mgr::{Mgr, MgrSettings};
use daemons::mon::{Mon, MonConfig};
use daemons::osd::{Osd, OsdSettings};
use tokio::signal::unix::{SignalKind, signal};
use types::{AuthName, EntityType, OsdId};

use crate::args::DaemonArgs;
use crate::client::{method, monitors, read_key};
use crate::layout::{ClusterDir, Description, PidLock};
use rados::Conf;

/// Which daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Mon,
    Osd,
    Mgr,
}

impl Kind {
    fn as_str(self) -> &'static str {
        match self {
            Self::Mon => "mon",
            Self::Osd => "osd",
            Self::Mgr => "mgr",
        }
    }
}

/// Log lines go to standard error; LOLIGO_LOG sets the level (`warn`, `info`, `debug`, or per module).
pub fn start_log() {
    let filter = tracing_subscriber::EnvFilter::try_from_env("LOLIGO_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(false).init();
}

/// A core that panicked may have done half of something: the process ends at once and starts again from what is durable.
fn end_on_panic() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        usual(info);
        std::process::abort();
    }));
}

/// All daemons of the folder, until SIGINT or SIGTERM.
pub fn everything(data: &Path) -> Result<()> {
    let (dir, description) = open(data)?;
    let lock = take_place(&dir, "loligo")?;
    serve(&dir, &description, &names(&description), lock, || Ok(()))
}

/// One daemon, until SIGINT or SIGTERM.
pub fn one(args: &DaemonArgs, kind: Kind) -> Result<()> {
    let (dir, description) = open(&args.data)?;
    let name = format!("{}.{}", kind.as_str(), args.id);
    if !names(&description).contains(&name) {
        bail!("there is no {name} in {}", dir.root().display());
    }
    if let Some(pid) = dir.running("loligo") {
        bail!("the whole cluster of {} runs in process {pid}", dir.root().display());
    }
    let lock = take_place(&dir, &name)?;
    serve(&dir, &description, &[name], lock, || Ok(()))
}

fn open(data: &Path) -> Result<(ClusterDir, Description)> {
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
    out
}

/// Threads for the sockets of so many daemons. A daemon alone has few: its core runs on one at a time, and on two cores a
/// second thread cost more in wake-ups than it brought.
fn worker_threads(daemons: usize) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    if daemons > 1 { cores } else { (cores / 2).clamp(1, 4) }
}

/// Runs the named daemons until a signal; SIGHUP starts those that were added to the folder since. `started` is called when all of them listen.
pub fn serve(
    dir: &ClusterDir,
    d: &Description,
    names: &[String],
    lock: PidLock,
    started: impl FnOnce() -> Result<()>,
) -> Result<()> {
    end_on_panic();
    warn_of_unknown(dir)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(worker_threads(names.len()))
        .enable_all()
        .build()?;
    let result = runtime.block_on(async {
        let mut term = signal(SignalKind::terminate())?;
        let mut int = signal(SignalKind::interrupt())?;
        let mut hup = signal(SignalKind::hangup())?;
        let mut running = Running::default();
        for name in names {
            running.start(dir, d, name).await?;
        }
        started()?;
        let whole = names.len() > 1;
        let failed = loop {
            tokio::select! {
                _ = term.recv() => break None,
                _ = int.recv() => break None,
                _ = hup.recv() => if whole { running.start_new(dir).await?; },
                reason = running.failed() => break Some(reason),
            }
        };
        running.stop().await;
        match failed {
            Some((name, reason)) => bail!("{name} stopped: {reason}"),
            None => Ok(()),
        }
    });
    // Connections that still wait for peers must not hold the process up.
    runtime.shutdown_timeout(std::time::Duration::from_millis(500));
    // Threads of the stores may still hold their files: the place is free when the process has ended, not before.
    std::mem::forget(lock);
    result
}

/// One line for all the options in ceph.conf that do not exist; they are ignored otherwise.
fn warn_of_unknown(dir: &ClusterDir) -> Result<()> {
    let conf = Conf::read(&dir.conf())?;
    let unknown: Vec<&str> = conf.names().filter(|name| monitor::options::find(name).is_none()).collect();
    if !unknown.is_empty() {
        tracing::warn!("{}: unknown options are ignored: {}", dir.conf().display(), unknown.join(", "));
    }
    Ok(())
}

/// The daemons of this process.
#[derive(Default)]
struct Running {
    mons: Vec<(String, Mon)>,
    mgrs: Vec<Mgr>,
    osds: Vec<(OsdId, Osd)>,
}

impl Running {
    async fn start(&mut self, dir: &ClusterDir, d: &Description, name: &str) -> Result<()> {
        let (kind, id) = name.split_once('.').context("a daemon's name has a dot")?;
        let options = Conf::read(&dir.conf())?.for_daemon(kind, id);
        let values = admin::options::Values::new(name, &options);
        let admin_socket = AdminSocketAt::of(&values);
        let loopback = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
        match kind {
            "mon" => {
                let mon = start_mon(dir, d, id, options, admin_socket).await?;
                self.mons.push((name.to_owned(), mon));
            }
            "mgr" => {
                let auth = daemon_auth(dir, d, EntityType::Mgr, id)?;
                let monitors = monitors(d);
                let settings = MgrSettings {
                    name: id.to_owned(),
                    listen: loopback,
                    monitors,
                    auth,
                    options,
                    admin_socket,
                };
                self.mgrs.push(Mgr::start(settings).await?);
            }
            _ => {
                let number = OsdId(id.parse().context("an OSD's id is a number")?);
                let settings = OsdSettings {
                    id: number,
                    block: dir.block(number.0),
                    listen: loopback,
                    monitors: monitors(d),
                    auth: daemon_auth(dir, d, EntityType::Osd, id)?,
                    options: pg::OsdConfig::default(),
                    store: crate::create::store_options(&options),
                    local: options,
                    admin_socket,
                };
                self.osds.push((number, Osd::start(settings).await?));
            }
        }
        Ok(())
    }

    /// Starts the monitors and OSDs that the folder has got since.
    async fn start_new(&mut self, dir: &ClusterDir) -> Result<()> {
        let (_, d) = open(dir.root())?;
        for mon in d.mons() {
            let name = format!("mon.{}", mon.name);
            if self.mons.iter().all(|(known, _)| *known != name) {
                self.start(dir, &d, &name).await?;
            }
        }
        for osd in &d.osds {
            if self.osds.iter().all(|(id, _)| id.0 != osd.id) {
                self.start(dir, &d, &format!("osd.{}", osd.id)).await?;
            }
        }
        Ok(())
    }

    /// The first daemon that cannot go on.
    async fn failed(&self) -> (String, String) {
        type Wait<'a> = Pin<Box<dyn Future<Output = (String, String)> + 'a>>;
        let mut waits: Vec<Wait<'_>> = Vec::new();
        for (name, mon) in &self.mons {
            waits.push(Box::pin(async move { (name.clone(), mon.failed().await) }));
        }
        for (id, osd) in &self.osds {
            waits.push(Box::pin(async move { (format!("osd.{id}"), osd.failed().await) }));
        }
        std::future::poll_fn(move |cx| {
            for wait in &mut waits {
                if let std::task::Poll::Ready(done) = wait.as_mut().poll(cx) {
                    return std::task::Poll::Ready(done);
                }
            }
            std::task::Poll::Pending
        })
        .await
    }

    /// OSDs first: they tell the monitor that they go.
    async fn stop(&self) {
        for (_, osd) in &self.osds {
            osd.stop().await;
        }
        for mgr in &self.mgrs {
            mgr.stop();
        }
        for (_, mon) in &self.mons {
            mon.stop();
        }
    }
}

async fn start_mon(
    dir: &ClusterDir,
    d: &Description,
    id: &str,
    options: BTreeMap<String, String>,
    admin_socket: Option<AdminSocketAt>,
) -> Result<Mon> {
    let store = crate::create::mon_store(dir, id);
    if !store.exists() && d.mons().len() > 1 {
        // A new disk: the others let it in as somebody new.
        tracing::warn!("mon.{id} has no store; it will fetch everything from the other monitors");
        crate::create::blank_monitor(dir, d, id)?;
    }
    let listen = d.mon(id).with_context(|| format!("there is no mon.{id}"))?.addr;
    let config = MonConfig {
        settings: crate::create::mon_settings(d, id, options)?,
        store,
        listen,
        seeds: monitors(d),
        method: method(d),
        key: crate::create::mon_key(dir, id)?,
        admin_socket,
    };
    Mon::start(config).await
}

fn daemon_auth(
    dir: &ClusterDir,
    d: &Description,
    kind: EntityType,
    id: &str,
) -> Result<std::sync::Arc<SharedAuth>> {
    let name = AuthName::new(kind, id);
    let key = read_key(&dir.daemon_dir(&name.to_string()).join("keyring"), &name)?;
    Ok(SharedAuth::new(method(d), name, key, kind))
}

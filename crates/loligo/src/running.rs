//! The daemons of one process. Each is its own failure domain: one that fails or panics ends alone, and comes back from what
//! its medium holds after a pause, where that can help.

use std::pin::Pin;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, bail};
use daemons::admin_socket::AdminSocketAt;
use daemons::mds::{Mds, MdsEnd, MdsSettings};
use daemons::mgr::{Mgr, MgrEnd, MgrSettings};
use daemons::mon::{Mon, MonEnd};
use daemons::osd::Osd;
use daemons::{Failure, Lasting};
use types::{AuthName, EntityAddr, EntityType, OsdId};

use crate::failures::{self, Now, Record};
use crate::fates::Fates;
use crate::layout::{ClusterDir, Description};
use crate::mkfs::MonDir;
use crate::of_manager::OfManager;
use crate::place::Place;
use crate::serve::{self, Part};

/// What runs in this process.
pub enum Site {
    /// Daemons of a folder, by name.
    Folder { dir: ClusterDir, names: Vec<String> },
    /// One daemon by its configuration file; `force` is a manager's.
    Alone { place: Box<Place>, force: bool },
}

impl Site {
    /// How many daemons it begins with.
    pub fn daemons(&self) -> usize {
        match self {
            Self::Folder { names, .. } => names.len(),
            Self::Alone { .. } => 1,
        }
    }
}

/// How a daemon ended although nobody stopped it. Names begin with the daemon's type: `osd.1`.
pub enum End {
    Failed(String, Failure),
    /// A monitor that was removed from the cluster (`ceph mon rm`).
    Removed(String),
    /// A manager or a metadata server that another one has replaced: it starts anew under another address.
    Deposed(String),
}

/// The daemons of this process.
pub struct Running<'a> {
    site: &'a Site,
    mons: Vec<(String, Mon)>,
    mgrs: Vec<(String, Mgr)>,
    /// Managers that this process has started so far.
    managers: i32,
    /// The monitors that the last deposed daemon knew: those of the configuration may be gone.
    told: Vec<EntityAddr>,
    osds: Vec<(OsdId, Osd)>,
    mds: Vec<(String, Mds)>,
    /// Metadata servers that this process has started so far.
    mds_lives: i32,
    fates: Fates,
}

impl<'a> Running<'a> {
    pub fn new(site: &'a Site) -> Self {
        let (mons, mgrs, osds, mds) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (managers, mds_lives, told, fates) = (0, 0, Vec::new(), Fates::chosen());
        Self { site, mons, mgrs, managers, told, osds, mds, mds_lives, fates }
    }

    /// Starts all daemons. One that cannot be started is tried again later, as long as another of its type
    /// runs; otherwise its error is returned.
    pub async fn start_all(&mut self) -> Result<()> {
        let names = match self.site {
            Site::Folder { names, .. } => names.clone(),
            Site::Alone { place, .. } => vec![place.name.to_string()],
        };
        let mut failed: Vec<(String, anyhow::Error)> = Vec::new();
        for name in &names {
            if let Some(dir) = self.dir() {
                failures::forget(dir, name);
            }
            if let Err(error) = self.start(name).await {
                failed.push((name.clone(), error));
            }
        }
        for (name, error) in failed {
            let kind = name.split_once('.').map_or("", |(kind, _)| kind);
            let works = match kind {
                "mon" => !self.mons.is_empty(),
                "osd" => !self.osds.is_empty(),
                // The rest of the cluster works without it.
                "mds" => self.site.daemons() > 1,
                _ => false,
            };
            if !works {
                return Err(error);
            }
            self.failed(&name, &Failure::from(&error));
        }
        Ok(())
    }

    fn dir(&self) -> Option<&'a ClusterDir> {
        match self.site {
            Site::Folder { dir, .. } => Some(dir),
            Site::Alone { .. } => None,
        }
    }

    /// Starts a daemon by its whole name (`osd.1`). A panic during its start is an error like any other.
    async fn start(&mut self, name: &str) -> Result<()> {
        let site = self.site;
        let start = async {
            match site {
                Site::Alone { place, .. } => self.start_at(place).await,
                Site::Folder { dir, .. } => {
                    // Read again: the folder may have got more daemons since this process began.
                    let (_, d) = serve::open(dir.root())?;
                    self.start_of_folder(dir, &d, name).await
                }
            }
        };
        runtime::contained_async(start).await.unwrap_or_else(|how| Err(anyhow!(how)))
    }

    async fn start_of_folder(&mut self, dir: &ClusterDir, d: &Description, name: &str) -> Result<()> {
        let lives = self.fates.failures(name);
        let name = AuthName::parse(name).context("a daemon's name has a dot")?;
        let place = Place::in_folder(dir, d, name.kind, &name.id)?;
        if name.kind != EntityType::Mon {
            return self.start_at(&place).await;
        }
        let store = MonDir(place.data.clone()).store();
        if !store.exists() {
            if lives > 0 {
                return Err(Lasting(format!("{} is gone", store.display())).into());
            }
            if d.mons().len() > 1 {
                // A new disk: the others let it in as somebody new.
                tracing::warn!("{name} has no store; it will fetch everything from the other monitors");
                crate::create::blank_monitor(dir, d, &name.id)?;
            }
        }
        let addr = d.mon(&name.id).with_context(|| format!("there is no {name}"))?.addr;
        let mon =
            serve::start_mon(&place, addr, place.monitors.clone(), None, &d.mons(), self.part()).await?;
        self.mons.push((name.id, mon));
        Ok(())
    }

    /// What the next daemon has of this process.
    fn part(&self) -> Part {
        let running = self.mons.len() + self.mgrs.len() + self.osds.len() + self.mds.len();
        let daemons = self.site.daemons().max(running + 1);
        // A process that began with one daemon never gets another.
        Part { alone: self.site.daemons() == 1, descriptors: serve::descriptors() / daemons as u64 }
    }

    async fn start_at(&mut self, place: &Place) -> Result<()> {
        let id = place.name.id.clone();
        match place.name.kind {
            EntityType::Mon => self.mons.push((id, serve::start_mon_by_conf(place, self.part()).await?)),
            EntityType::Mgr => {
                self.managers += 1;
                let monitors = [self.told.as_slice(), &place.monitors].concat();
                let settings = MgrSettings {
                    name: id.clone(),
                    listen: place.listen()?,
                    clients: OfManager::new(place, monitors.clone())?,
                    monitors,
                    auth: place.auth()?,
                    options: place.options.clone(),
                    admin_socket: AdminSocketAt::of(&place.values()),
                    life: self.managers - 1,
                    force: matches!(self.site, Site::Alone { force: true, .. }),
                    descriptors: self.part().descriptors,
                };
                let mgr = Mgr::start(settings).await?;
                tokio::spawn(dashboard::run(dashboard::Site {
                    manager: mgr.handle(),
                    name: id.clone(),
                    version: format!("loligo {}", env!("CARGO_PKG_VERSION")),
                    client: place.client()?,
                }));
                tokio::spawn(dashboard::metrics::run(mgr.handle(), id.clone()));
                self.mgrs.push((id, mgr));
            }
            EntityType::Mds => {
                self.mds_lives += 1;
                let settings = MdsSettings {
                    name: id.clone(),
                    listen: place.listen()?,
                    monitors: [self.told.as_slice(), &place.monitors].concat(),
                    auth: place.auth()?,
                    options: place.options.clone(),
                    admin_socket: AdminSocketAt::of(&place.values()),
                    life: self.mds_lives - 1,
                    descriptors: self.part().descriptors,
                };
                self.mds.push((id, Mds::start(settings).await?));
            }
            _ => {
                let number = OsdId(id.parse().context("an OSD's id is a number")?);
                let life = self.fates.failures(&place.name.to_string());
                self.osds.push((number, serve::start_osd(place, number, self.part(), life).await?));
            }
        }
        Ok(())
    }

    /// Starts the daemons that the folder has got since this process began, and those that were given up. A
    /// signal asks for it.
    pub async fn start_new(&mut self) {
        let Site::Folder { dir, names, .. } = self.site else { return };
        if names.len() < 2 {
            return;
        }
        let known = match serve::open(dir.root()) {
            Ok((_, d)) => serve::names(&d),
            Err(error) => return tracing::error!("no daemon is started anew: {error:#}"),
        };
        for name in known {
            if !self.has(&name) && !self.fates.waits(&name) {
                self.start_again(&name).await;
            }
        }
    }

    fn has(&self, name: &str) -> bool {
        self.mons.iter().any(|(id, _)| format!("mon.{id}") == name)
            || self.mgrs.iter().any(|(id, _)| format!("mgr.{id}") == name)
            || self.osds.iter().any(|(id, _)| format!("osd.{id}") == name)
            || self.mds.iter().any(|(id, _)| format!("mds.{id}") == name)
    }

    /// Drops a daemon, and with it its admin socket: its next life opens one at the same path.
    fn remove(&mut self, name: &str) {
        self.mons.retain(|(id, _)| format!("mon.{id}") != name);
        self.mgrs.retain(|(id, _)| format!("mgr.{id}") != name);
        self.osds.retain(|(id, _)| format!("osd.{id}") != name);
        self.mds.retain(|(id, _)| format!("mds.{id}") != name);
    }

    fn is_empty(&self) -> bool {
        self.mons.is_empty() && self.mgrs.is_empty() && self.osds.is_empty() && self.mds.is_empty()
    }

    /// Deals with a daemon's end. False when no daemon is left that runs or is to run again; an error when
    /// the process has to end with a failure.
    pub async fn handle(&mut self, end: End) -> Result<bool> {
        match end {
            End::Failed(name, failure) => {
                self.remove(&name);
                self.failed(&name, &failure);
                if self.is_empty() && (self.site.daemons() == 1 || self.fates.next().is_none()) {
                    bail!("{name} stopped: {failure}");
                }
            }
            End::Deposed(name) => {
                for (_, old) in self.mgrs.iter().filter(|(id, _)| format!("mgr.{id}") == name) {
                    self.told = old.monitors();
                    old.stop();
                }
                for (_, old) in self.mds.iter().filter(|(id, _)| format!("mds.{id}") == name) {
                    self.told = old.monitors();
                }
                self.remove(&name);
                if let Err(error) = self.start(&name).await {
                    return Box::pin(self.handle(End::Failed(name, Failure::from(&error)))).await;
                }
            }
            End::Removed(name) => {
                say!("{name} was removed from the cluster; its store is of no use any more.");
                self.remove(&name);
                self.fates.forget(&name);
                if let (Some(dir), Some((_, id))) = (self.dir(), name.split_once('.')) {
                    crate::create::forget_mon(dir, id)?;
                }
                return Ok(!self.is_empty() || self.fates.next().is_some());
            }
        }
        Ok(true)
    }

    /// Logs and records that a daemon has failed or could not be started, and plans its next start where one
    /// may help.
    fn failed(&mut self, name: &str, failure: &Failure) {
        let pause = self.fates.failed(name, failure, Instant::now());
        let Some(dir) = self.dir() else { return };
        // A process that has one daemon ends with it, and says why when it does.
        let pause = pause.filter(|_| self.site.daemons() > 1);
        let record = Record::new(&failure.why, self.fates.failures(name), pause);
        if self.site.daemons() > 1 {
            tracing::error!("{name} stopped: {failure}; {}", record.now);
        }
        failures::note(dir, name, &record);
    }

    /// Waits until the time of a daemon's next start has come.
    pub async fn due(&self) {
        match self.fates.next() {
            Some((at, _)) => tokio::time::sleep_until(at.into()).await,
            None => std::future::pending().await,
        }
    }

    /// Starts the daemon whose time has come.
    pub async fn start_due(&mut self) {
        if let Some((_, name)) = self.fates.next() {
            self.start_again(&name).await;
        }
    }

    async fn start_again(&mut self, name: &str) {
        self.fates.started(name, Instant::now());
        if let Err(error) = self.start(name).await {
            return self.failed(name, &Failure::from(&error));
        }
        tracing::warn!("{name} was started");
        if let Some((dir, record)) = self.dir().and_then(|dir| Some((dir, failures::of(dir, name)?))) {
            failures::note(dir, name, &Record { now: Now::Runs, ..record });
        }
    }

    /// Waits until a daemon ends.
    pub async fn ended(&self) -> End {
        type Wait<'a> = Pin<Box<dyn Future<Output = End> + 'a>>;
        let mut waits: Vec<Wait<'_>> = Vec::new();
        for (id, mon) in &self.mons {
            waits.push(Box::pin(async move {
                match mon.ended().await {
                    MonEnd::Removed => End::Removed(format!("mon.{id}")),
                    MonEnd::Failed(failure) => End::Failed(format!("mon.{id}"), failure),
                }
            }));
        }
        for (id, mgr) in &self.mgrs {
            waits.push(Box::pin(async move {
                match mgr.ended().await {
                    MgrEnd::Deposed => End::Deposed(format!("mgr.{id}")),
                    MgrEnd::Failed(failure) => End::Failed(format!("mgr.{id}"), failure),
                }
            }));
        }
        for (id, mds) in &self.mds {
            waits.push(Box::pin(async move {
                let name = format!("mds.{id}");
                match mds.ended().await {
                    MdsEnd::Deposed(why) => {
                        tracing::warn!("{name} starts anew: {why}");
                        End::Deposed(name)
                    }
                    MdsEnd::Failed(failure) => End::Failed(name, failure),
                }
            }));
        }
        for (id, osd) in &self.osds {
            waits.push(Box::pin(async move { End::Failed(format!("osd.{id}"), osd.failed().await) }));
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

    /// Metadata servers first, which write to OSDs; then these, which tell the monitor that they go.
    pub async fn stop(&self) {
        for (_, mds) in &self.mds {
            mds.stop().await;
        }
        for (_, osd) in &self.osds {
            osd.stop().await;
        }
        for (_, mgr) in &self.mgrs {
            mgr.stop();
        }
        // A monitor that is alone in its process hands over to one elsewhere. Several in one process stop
        // together.
        let hand_over = self.mons.len() == 1;
        for (_, mon) in &self.mons {
            mon.stop(hand_over).await;
        }
    }
}

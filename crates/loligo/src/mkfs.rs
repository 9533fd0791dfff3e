//! Makes the data of one daemon: `loligo mon --mkfs`, `loligo osd --mkfs`, `loligo osd --new`.
//!
//! Source: src/ceph_mon.cc, src/ceph_osd.cc, doc/install/manual-deployment.rst; AuthMonitor::_generate_bootstrap_keys.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use cephx::{CryptoKey, EntityAuth, Keyring};
use codec::{Decode, Encode};
use daemons::admin::AdminClient;
use daemons::auth::{Method, SharedAuth};
use daemons::mon_store::MonStore;
use maps::{MonInfo, MonMap};
use monitor::{GenesisConfig, Monitor, Whose};
use quorum::{MemberId, Membership};
use runtime::{Clock, FileDevice, OsEntropy};
use serde_json::json;
use store::{Device, FormatOptions, Options, Store, StoreError};
use types::{AddrKind, AddrVec, AuthName, EntityAddr, EntityType, Entropy, Epoch, Fsid};

use crate::args::DaemonArgs;
use crate::create::{make_private_dir, random_fsid};
use crate::layout::{ClusterDir, Description, write_atomically};
use crate::place::Place;
use crate::{client, network};

/// Where a monitor listens when nothing else is said.
const MON_PORT: u16 = 3300;

/// Bytes at the start of a device that must be empty, so that nobody's file system is overwritten.
const LOOKED_AT: usize = 1 << 20;

/// A monitor's data folder.
#[derive(Debug, Clone)]
pub struct MonDir(pub PathBuf);

impl MonDir {
    pub fn store(&self) -> PathBuf {
        self.0.join("store.redb")
    }

    /// The monitors that it knew of when its store was made, itself among them.
    fn monmap(&self) -> PathBuf {
        self.0.join("monmap")
    }

    /// The state that a new cluster begins with; only where one is to be founded.
    fn founding(&self) -> PathBuf {
        self.0.join("founding")
    }

    /// Present until the monitor is in the map of the cluster that it was made for.
    fn joining(&self) -> PathBuf {
        self.0.join("joining")
    }

    pub fn is_joining(&self) -> bool {
        self.joining().exists()
    }

    pub fn joined(&self) {
        let _ = std::fs::remove_file(self.joining());
    }

    pub fn read_monmap(&self) -> Result<MonMap> {
        read_monmap(&self.monmap())
    }

    /// For a monitor by its configuration file; one of `up` has no such file.
    pub fn write_monmap(&self, map: &MonMap) -> Result<()> {
        if !self.monmap().exists() {
            return Ok(());
        }
        write_atomically(&self.monmap(), &map.to_bytes(), 0o644)
    }

    /// Names of the first monitors, and what the cluster begins with.
    pub fn read_founding(&self) -> Result<Option<(Vec<String>, Bytes)>> {
        match std::fs::read(self.founding()) {
            Ok(state) => Ok(Some((self.read_monmap()?.mons.keys().cloned().collect(), state.into()))),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e).with_context(|| format!("cannot read {}", self.founding().display())),
        }
    }
}

/// A map that was given, as we speak: with msgr2 alone.
pub fn read_monmap_for(path: &Path) -> Result<MonMap> {
    let mut map = read_monmap(path)?;
    only_msgr2(&mut map);
    Ok(map)
}

fn read_monmap(path: &Path) -> Result<MonMap> {
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    MonMap::from_bytes(bytes).with_context(|| format!("{} is no monitor map", path.display()))
}

pub fn mon_name() -> AuthName {
    AuthName::new(EntityType::Mon, "")
}

/// Makes a monitor's store: of a new cluster, or blank, to be let in by the monitors of one.
pub fn mon(place: &Place) -> Result<()> {
    let id = &place.name.id;
    let dir = MonDir(place.data.clone());
    if dir.store().exists() {
        bail!("{} holds the store of a monitor already", dir.0.display());
    }
    let values = place.values();
    let named = values.get("monmap").filter(|p| !p.is_empty());
    let mut map = match &named {
        Some(path) => read_monmap(Path::new(path))?,
        None => first_monmap(place)?,
    };
    let fsid = match place.fsid {
        Some(fsid) if !map.fsid.is_zero() && map.fsid != fsid => {
            bail!("the monitor map is of cluster {}, fsid says {fsid}", map.fsid)
        }
        Some(fsid) => fsid,
        None if map.fsid.is_zero() => {
            bail!("fsid is not set: give the cluster's with --fsid, or in the configuration file")
        }
        None => map.fsid,
    };
    only_msgr2(&mut map);
    let of_new_cluster = map.epoch.0 == 0 && map.mons.contains_key(id);
    if !map.mons.contains_key(id) {
        let at = network::public(&values, &place.monitors)?;
        let at = SocketAddr::new(at.ip(), if at.port() == 0 { MON_PORT } else { at.port() });
        map.add(MonInfo {
            name: id.clone(),
            addrs: AddrVec::single(EntityAddr::v2(at, 0)),
            ..MonInfo::default()
        });
    }
    map.fsid = fsid;
    let keyring = keyring_of(&values)?;
    let own = keyring.get(&mon_name()).context("the keyring has no key for mon.")?.clone();
    make_private_dir(&dir.0)?;
    let mut one = Keyring::new();
    one.insert(mon_name(), own.clone());
    write_atomically(&dir.0.join("keyring"), one.to_string().as_bytes(), 0o600)?;
    let now = Clock::start().now();
    // One of the first monitors founds the cluster, when all of them are there: that of the first name.
    if of_new_cluster && map.mons.keys().next() == Some(id) {
        let level = values.int("osd_crush_chooseleaf_type");
        let genesis = GenesisConfig {
            fsid,
            monmap: MonMap {
                mons: map.mons.clone(),
                ranks: map.ranks.clone(),
                ..MonMap::new(fsid, now.wall, [])
            },
            entities: first_entities(keyring, now.wall),
            failure_domain: if level == 0 { "osd" } else { "host" }.to_owned(),
            options: Vec::new(),
            osds: Vec::new(),
        };
        let state = Monitor::genesis(&genesis, now, &mut OsEntropy);
        write_atomically(&dir.founding(), &state, 0o600)?;
    }
    if !of_new_cluster {
        write_atomically(&dir.joining(), b"", 0o644)?;
    }
    write_atomically(&dir.monmap(), &map.to_bytes(), 0o644)?;
    let auth = EntityAuth { key: own.key, caps: [("mon".to_owned(), "allow *".to_owned())].into() };
    let blank = Monitor::blank(fsid, auth, now, &mut OsEntropy);
    MonStore::create(&dir.store(), MemberId::draw(&mut OsEntropy), Membership::default(), &blank)?;
    say!("mon.{id} of cluster {fsid} is made in {}.", dir.0.display());
    Ok(())
}

/// The first monitors by `mon_initial_members` and `mon_host`, which go together.
fn first_monmap(place: &Place) -> Result<MonMap> {
    place.need_monitors()?;
    let members = place.values().get("mon_initial_members").unwrap_or_default();
    let mut names: Vec<&str> = members.split([',', ' ', ';']).filter(|n| !n.is_empty()).collect();
    let mut addrs = place.monitors.clone();
    if names.is_empty() && addrs.len() == 1 {
        names.push(&place.name.id);
    }
    // Monitors that mon_host names beyond the first ones come later.
    if names.is_empty() || names.len() > addrs.len() {
        bail!(
            "who the first monitors are is not clear: give --monmap (monmaptool makes one), or set mon_initial_members to \
             their names in the order of mon_host"
        );
    }
    addrs.truncate(names.len());
    let mons = names.iter().zip(addrs).map(|(name, addr)| ((*name).to_owned(), AddrVec::single(addr)));
    let map = MonMap::new(place.fsid.unwrap_or_default(), Clock::start().now().wall, mons);
    Ok(MonMap { epoch: Epoch(0), ..map })
}

/// We speak msgr2 alone, and say so.
fn only_msgr2(map: &mut MonMap) {
    for info in map.mons.values_mut() {
        let addr = info.addrs.msgr2().or_else(|| {
            let legacy = info.addrs.0.first()?;
            Some(EntityAddr { kind: AddrKind::Msgr2, ..*legacy })
        });
        info.addrs = addr.map(AddrVec::single).unwrap_or_default();
    }
}

fn keyring_of(values: &admin::options::Values) -> Result<Keyring> {
    let path = values.get("keyring").unwrap_or_default();
    let text = std::fs::read_to_string(&path)
        .with_context(|| format!("cannot read the keyring with the key of mon. (--keyring): {path}"))?;
    Keyring::parse(&text).with_context(|| format!("{path} is not a keyring"))
}

/// The keys of the given keyring, and those that every cluster has.
fn first_entities(keyring: Keyring, now: types::Utime) -> BTreeMap<AuthName, EntityAuth> {
    let mut all = keyring.entries;
    let mut need = |name: &str, caps: &[(&str, &str)]| {
        let caps = caps.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let key = CryptoKey::generate(now, &mut |b: &mut [u8]| OsEntropy.fill(b));
        all.entry(AuthName::new(EntityType::Client, name)).or_insert(EntityAuth { key, caps });
    };
    need("admin", &[("mds", "allow *"), ("mgr", "allow *"), ("mon", "allow *"), ("osd", "allow *")]);
    for kind in ["mds", "mgr", "osd", "rbd", "rbd-mirror", "rgw"] {
        let name = format!("bootstrap-{kind}");
        need(&name, &[("mon", &format!("allow profile {name}"))]);
    }
    all
}

/// Makes an OSD's store and, if asked, its key; the device is `block` in its folder.
pub fn osd(place: &Place, args: &DaemonArgs) -> Result<()> {
    let id: i32 = place.name.id.parse().context("an OSD's id is a number")?;
    let values = place.values();
    let monmap = values.get("monmap").filter(|p| !p.is_empty());
    let of_map = monmap.map(|p| read_monmap(Path::new(&p))).transpose()?.map(|m| m.fsid);
    let fsid =
        place.fsid.or(of_map).context("the cluster's fsid is not known: set fsid, or give --monmap")?;
    let uuid = values.get("osd_uuid").and_then(|u| Fsid::parse(&u)).filter(|u| !u.is_zero());
    let uuid = uuid.unwrap_or_else(random_fsid);
    make_osd(&place.data, id, fsid, uuid, args, &values)?;
    if args.mkkey && !place.data.join("keyring").exists() {
        write_keyring(&place.data, &place.name, &new_key())?;
    }
    say!("osd.{id} of cluster {fsid} is made in {}, with the UUID {uuid}.", place.data.display());
    Ok(())
}

fn make_osd(
    data: &Path,
    id: i32,
    fsid: Fsid,
    uuid: Fsid,
    args: &DaemonArgs,
    values: &admin::options::Values,
) -> Result<()> {
    make_private_dir(data)?;
    let block = data.join("block");
    if let (Some(device), false) = (given_device(args, values)?, block.exists()) {
        link(&device, &block)?;
    }
    let device = if block.exists() {
        FileDevice::open(&block)
    } else {
        let size = args.size.unwrap_or_else(|| values.int("bluestore_block_size").max(0) as u64);
        FileDevice::create(&block, size)
    };
    let device = device.with_context(|| format!("cannot open {}", block.display()))?;
    let device: std::sync::Arc<dyn Device> = std::sync::Arc::new(device);
    match Store::open(std::sync::Arc::clone(&device), Options::default()) {
        Ok(store) if store.identity().fsid == fsid && store.identity().osd_uuid == uuid => {}
        Ok(store) => bail!(
            "{} holds the store of an OSD of cluster {} with the UUID {}; erase it first (wipefs, blkdiscard or dd)",
            block.display(),
            store.identity().fsid,
            store.identity().osd_uuid
        ),
        Err(StoreError::Foreign(store::Foreign::NotAStore)) => {
            need_empty(device.as_ref(), &block)?;
            let options = FormatOptions { fsid, osd_uuid: uuid, log_bytes: None };
            Store::format(device.as_ref(), options)
                .with_context(|| format!("cannot format {}", block.display()))?;
        }
        Err(e) => return Err(e).with_context(|| format!("{} holds something else", block.display())),
    }
    let class = args.class.clone();
    let files = [
        ("ceph_fsid", Some(fsid.to_string())),
        ("fsid", Some(uuid.to_string())),
        ("whoami", Some(id.to_string())),
        ("type", Some("loligo".to_owned())),
        ("crush_device_class", class),
        ("ready", Some("ready".to_owned())),
    ];
    for (name, text) in files {
        if let Some(text) = text {
            write_atomically(&data.join(name), format!("{text}\n").as_bytes(), 0o644)?;
        }
    }
    Ok(())
}

fn given_device(args: &DaemonArgs, values: &admin::options::Values) -> Result<Option<PathBuf>> {
    let by_option = || values.get("bluestore_block_path").filter(|p| !p.is_empty()).map(PathBuf::from);
    Ok(args.device.clone().or_else(by_option).map(std::path::absolute).transpose()?)
}

fn link(device: &Path, block: &Path) -> Result<()> {
    std::os::unix::fs::symlink(device, block)
        .with_context(|| format!("cannot link {} to {}", block.display(), device.display()))
}

fn need_empty(device: &dyn Device, path: &Path) -> Result<()> {
    let mut start = vec![0; LOOKED_AT.min(device.len() as usize)];
    device.read_at(0, &mut start)?;
    if start.iter().any(|b| *b != 0) {
        bail!("{} holds other data; erase it first (wipefs, blkdiscard or dd)", path.display());
    }
    Ok(())
}

/// Whether both are there and one device.
fn is_same(a: &Path, b: &Path) -> bool {
    matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b)
}

/// Refuses a disk that cannot be opened, and one that is not the folder's and holds something.
fn check_target(block: Option<PathBuf>, given: Option<&Path>, replace: bool) -> Result<()> {
    let present = block.filter(|b| std::fs::symlink_metadata(b).is_ok());
    let open =
        |path: &Path| FileDevice::open(path).with_context(|| format!("cannot open {}", path.display()));
    match (present, given) {
        (Some(block), Some(given)) if replace && !is_same(&block, given) => need_empty(&open(given)?, given),
        // Whether what it holds is this OSD's shows when the store is opened.
        (Some(block), _) => open(&block).map(drop),
        (None, Some(given)) => need_empty(&open(given)?, given),
        (None, None) => Ok(()),
    }
}

/// What an OSD is registered with, in its folder until its store is made: a rerun registers the same OSD.
struct Secrets {
    uuid: Fsid,
    key: CryptoKey,
}

impl Secrets {
    const FILE: &'static str = "registering";

    /// Those of an earlier run that got stuck, or new ones.
    fn kept(data: &Path, wanted: Option<Fsid>) -> Result<Self> {
        let path = data.join(Self::FILE);
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let earlier = text.split_once(char::is_whitespace).and_then(|(uuid, key)| {
            Some(Self { uuid: Fsid::parse(uuid)?, key: CryptoKey::from_base64(key.trim()).ok()? })
        });
        if let Some(earlier) = earlier.filter(|e| wanted.is_none_or(|w| w == e.uuid)) {
            return Ok(earlier);
        }
        let new = Self { uuid: wanted.unwrap_or_else(random_fsid), key: new_key() };
        make_private_dir(data)?;
        write_atomically(&path, format!("{} {}\n", new.uuid, new.key.to_base64()).as_bytes(), 0o600)?;
        Ok(new)
    }

    fn forget(data: &Path) -> Result<()> {
        match std::fs::remove_file(data.join(Self::FILE)) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(e.into()),
            _ => Ok(()),
        }
    }
}

fn write_keyring(data: &Path, name: &AuthName, key: &CryptoKey) -> Result<()> {
    let text = format!("[{name}]\n\tkey = {}\n", key.to_base64());
    write_atomically(&data.join("keyring"), text.as_bytes(), 0o600)
}

/// Registers an OSD with the monitors, and makes its folder, key and store. `--replace`: what lies in the folder goes.
pub fn new_osd(args: &DaemonArgs) -> Result<()> {
    let login = AuthName::new(EntityType::Client, args.login.clone().unwrap_or("bootstrap-osd".to_owned()));
    // The number may not be known yet; the paths that depend on it are looked at below.
    let place = Place::by_conf(args, EntityType::Osd, args.id.as_deref().unwrap_or("0"))?;
    place.need_monitors()?;
    let fsid = place.fsid.context("the cluster's fsid is not known: set fsid in the configuration file")?;
    let login_key = match place.method {
        Method::None => new_key(),
        Method::Cephx => login_key(args, &login)?,
    };
    let uuid = place.values().get("osd_uuid").and_then(|u| Fsid::parse(&u)).filter(|u| !u.is_zero());
    let wanted = args.id.as_deref().map(str::parse::<i32>).transpose().context("an OSD's id is a number")?;
    // What can go wrong here goes wrong before the monitors hear of it, if the folder is known by then.
    let known = wanted.map(|_| &place);
    let _early = known.filter(|p| p.data.is_dir()).map(|p| p.lock()).transpose()?;
    let target = given_device(args, &place.values())?;
    check_target(known.map(|p| p.data.join("block")), target.as_deref(), args.replace)?;
    let secrets = known.map(|p| Secrets::kept(&p.data, uuid)).transpose()?;
    let Secrets { uuid, key } =
        secrets.unwrap_or_else(|| Secrets { uuid: uuid.unwrap_or_else(random_fsid), key: new_key() });
    let id = on_runtime(async {
        let auth = SharedAuth::new(place.method, login.clone(), login_key, EntityType::Client);
        let auth = auth.with_options(&place.options);
        let admin = AdminClient::new(fsid, auth, place.monitors.clone());
        admin
            .connected(Duration::from_secs(20))
            .await
            .with_context(|| format!("cannot log in as {login}"))?;
        if client::whose(&admin).await? == Whose::Ceph {
            bail!("the monitors are Ceph's: its OSDs do not replicate with ours");
        }
        register(&admin, wanted, uuid, &key).await
    })?;
    let place = Place::by_conf(args, EntityType::Osd, &id.to_string())?;
    let _lock = (wanted.is_none() && place.data.is_dir()).then(|| place.lock()).transpose()?;
    if args.replace {
        replace_disk(&place.data, target.as_deref(), args.size)?;
    }
    make_osd(&place.data, id, fsid, uuid, args, &place.values())?;
    write_keyring(&place.data, &place.name, &key)?;
    Secrets::forget(&place.data)?;
    say!("osd.{id} is made in {}; start it with: loligo osd --id {id}", place.data.display());
    Ok(())
}

/// Gives a destroyed OSD of a folder an empty disk of the same size.
pub fn replace_of_folder(dir: &ClusterDir, d: &Description, id: &str) -> Result<()> {
    let number: i32 = id.parse().context("an OSD's id is a number")?;
    let mut changed = d.clone();
    let entry = changed.osds.iter_mut().find(|o| o.id == number);
    let entry = entry.with_context(|| format!("there is no osd.{id} in {}", dir.root().display()))?;
    if let Some(pid) = dir.running("loligo") {
        bail!("the whole cluster of {} runs in process {pid}", dir.root().display());
    }
    let place = Place::in_folder(dir, d, EntityType::Osd, id)?;
    let _lock = place.lock()?;
    FileDevice::open(&dir.block(number)).with_context(|| format!("cannot open the disk of osd.{id}"))?;
    let Secrets { uuid, key } = Secrets::kept(&place.data, None)?;
    on_runtime(async {
        let admin = client::admin(dir, d)?;
        admin.connected(Duration::from_secs(20)).await?;
        register(&admin, Some(number), uuid, &key).await
    })?;
    entry.uuid = uuid.to_string();
    erase(&place.data, Some(entry.bytes))?;
    let device = FileDevice::open(&dir.block(number))?;
    let fsid = place.fsid.context("a folder's cluster has an fsid")?;
    Store::format(&device, FormatOptions { fsid, osd_uuid: uuid, log_bytes: None })?;
    write_keyring(&place.data, &place.name, &key)?;
    dir.save(&changed)?;
    Secrets::forget(&place.data)?;
    say!("osd.{id} has an empty disk.");
    Ok(())
}

fn on_runtime<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
}

fn new_key() -> CryptoKey {
    CryptoKey::generate(Clock::start().now().wall, &mut |b: &mut [u8]| OsEntropy.fill(b))
}

/// `osd new`: the number that the OSD of this UUID has from now on, with its key.
async fn register(admin: &AdminClient, id: Option<i32>, uuid: Fsid, key: &CryptoKey) -> Result<i32> {
    let (mark, ours) = monitor::Whose::MARK;
    let mut words = json!({"prefix": "osd new", "uuid": uuid.to_string(), mark: ours});
    if let (Some(id), Some(words)) = (id, words.as_object_mut()) {
        words.insert("id".to_owned(), json!(id));
    }
    let secrets = json!({"cephx_secret": key.to_base64()}).to_string();
    let made = client::command_with(admin, words, secrets.into()).await;
    let made = made.context("the monitors refuse the new OSD")?;
    let id = made.get("osdid").unwrap_or(&made).as_i64().context("the monitor named no OSD number")?;
    Ok(i32::try_from(id)?)
}

/// The folder's disk is made empty, or another one takes its place.
fn replace_disk(data: &Path, given: Option<&Path>, size: Option<u64>) -> Result<()> {
    let block = data.join("block");
    let Some(given) = given.filter(|g| !is_same(&block, g)) else { return erase(data, size) };
    match std::fs::remove_file(&block) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(e).with_context(|| format!("cannot remove {}", block.display()))
        }
        _ => link(given, &block),
    }
}

/// Makes the disk of an OSD that the cluster has given up empty: a file is made anew, a device loses its superblocks.
fn erase(data: &Path, size: Option<u64>) -> Result<()> {
    let block = data.join("block");
    let Ok(about) = std::fs::symlink_metadata(&block) else { return Ok(()) };
    if about.is_file() {
        let size = size.unwrap_or(about.len());
        std::fs::remove_file(&block).with_context(|| format!("cannot remove {}", block.display()))?;
        FileDevice::create(&block, size).with_context(|| format!("cannot create {}", block.display()))?;
        return Ok(());
    }
    let device = FileDevice::open(&block).with_context(|| format!("cannot open {}", block.display()))?;
    device.write_at(0, &vec![0; LOOKED_AT.min(device.len() as usize)])?;
    device.flush()?;
    Ok(())
}

/// The key that may register OSDs.
fn login_key(args: &DaemonArgs, name: &AuthName) -> Result<CryptoKey> {
    let given = args.given()?;
    let usual =
        ["/var/lib/ceph/bootstrap-osd/ceph.keyring".to_owned(), format!("/etc/ceph/ceph.{name}.keyring")];
    let paths = given.get("keyring").map_or(usual.to_vec(), |p| vec![p.clone()]);
    let found = paths.iter().map(Path::new).find(|p| p.is_file());
    let path = found
        .with_context(|| format!("no keyring of {name} (--keyring): looked for {}", paths.join(", ")))?;
    client::read_key(path, name)
}

/// The class of a device by what the kernel says of it. Source: BlkDev in src/common/blkdev.cc.
pub fn device_class(data: &Path) -> String {
    let told = std::fs::read_to_string(data.join("crush_device_class")).unwrap_or_default();
    if !told.trim().is_empty() {
        return told.trim().to_owned();
    }
    let rotational = block_number(&data.join("block")).and_then(|(major, minor)| {
        let at = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
        // A partition has its queue one level up.
        [at.join("queue/rotational"), at.join("../queue/rotational")]
            .iter()
            .find_map(|p| std::fs::read_to_string(p).ok())
    });
    if rotational.is_some_and(|r| r.trim() == "1") { "hdd" } else { "ssd" }.to_owned()
}

/// The block device that a file is or lies on.
fn block_number(path: &Path) -> Option<(u32, u32)> {
    let stat = rustix::fs::stat(path).ok()?;
    let is_block = rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::BlockDevice;
    let number = if is_block { stat.st_rdev } else { stat.st_dev };
    Some((rustix::fs::major(number), rustix::fs::minor(number)))
}

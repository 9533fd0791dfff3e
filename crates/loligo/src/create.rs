//! Makes a cluster in a folder, and adds OSDs to one.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use cephx::{CryptoKey, EntityAuth, Keyring};
use daemons::mon_store::MonStore;
use maps::MonMap;
use monitor::{GenesisConfig, GenesisOsd, Monitor};
use quorum::{MemberId, Membership};
use runtime::{Clock, FileDevice, OsEntropy};
use serde_json::json;
use store::{FormatOptions, Options, Store};
use types::{AddrVec, AuthName, EntityAddr, EntityType, Entropy, Fsid, Now};

use crate::args::UpArgs;
use crate::client;
use crate::failures;
use crate::layout::{
    ClusterDir, Description, FORMAT, MonEntry, OsdEntry, ceph_conf, host_name, with_monitors_moved,
    write_atomically,
};

const DEFAULT_OSDS: u32 = 3;
const DEFAULT_PORT: u16 = 3300;
/// Ports that are tried when none is asked for.
const PORTS_TRIED: u16 = 100;

/// Makes a new cluster; nothing is left half made: the description is written last.
pub fn cluster(dir: &ClusterDir, args: &UpArgs) -> Result<Description> {
    if !dir.is_empty() {
        bail!("{} is not empty and holds no cluster", dir.root().display());
    }
    let ip = args.listen.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    check_listen(ip, &args.auth)?;
    let mons = choose_mons(ip, args)?;
    let mon_addr = mons.first().context("there is a first monitor")?.addr;
    dir.create()?;
    let now = Clock::start().now();
    let fsid = random_fsid();
    let count = args.osds.unwrap_or(DEFAULT_OSDS);
    let osds = (0..count as i32)
        .map(|id| OsdEntry { id, uuid: random_fsid().to_string(), bytes: args.osd_size })
        .collect();
    let d = Description {
        format: FORMAT,
        fsid: fsid.to_string(),
        auth: args.auth.clone(),
        mon_addr,
        mons,
        osds,
        mds: Vec::new(),
        profile: args.profile,
    };
    let mut keyring = Keyring::new();
    let mut add = |name: AuthName, caps: &[(&str, &str)]| {
        let caps = caps.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let key = CryptoKey::generate(now.wall, &mut |b: &mut [u8]| OsEntropy.fill(b));
        keyring.insert(name, EntityAuth { key, caps });
    };
    add(AuthName::new(EntityType::Mon, ""), &[("mon", "allow *")]);
    add(admin_name(), &[("mds", "allow *"), ("mgr", "allow *"), ("mon", "allow *"), ("osd", "allow *")]);
    add(
        AuthName::new(EntityType::Mgr, "x"),
        &[("mds", "allow *"), ("mon", "allow profile mgr"), ("osd", "allow *")],
    );
    for osd in &d.osds {
        add(AuthName::new(EntityType::Osd, osd.id.to_string()), OSD_CAPS);
    }
    write_keyrings(dir, &keyring)?;
    for mon in &d.mons {
        write_mon_keyring(dir, &mon.name, &keyring)?;
    }
    for osd in &d.osds {
        format_osd(dir, fsid, osd)?;
    }
    make_monitors(dir, &d, fsid, &keyring, now)?;
    write_atomically(&dir.conf(), ceph_conf(dir, &d).as_bytes(), 0o644)?;
    dir.save(&d)?;
    Ok(d)
}

pub const OSD_CAPS: &[(&str, &str)] =
    &[("mgr", "allow profile osd"), ("mon", "allow profile osd"), ("osd", "allow *")];

fn admin_name() -> AuthName {
    AuthName::new(EntityType::Client, "admin")
}

pub fn random_fsid() -> Fsid {
    let mut bytes = [0; 16];
    OsEntropy.fill(&mut bytes);
    Fsid::from_random(bytes)
}

/// The port asked for, if it is free; 0: any; none asked for: the usual one, or the next free one.
fn choose_port(ip: IpAddr, asked: Option<u16>) -> Result<u16> {
    let bind = |port| TcpListener::bind((ip, port));
    match asked {
        Some(port) => match bind(port) {
            Ok(listener) => Ok(listener.local_addr()?.port()),
            Err(e) if e.kind() == std::io::ErrorKind::AddrInUse => bail!("port {port} is in use"),
            Err(e) => Err(e).with_context(|| format!("cannot use port {port}")),
        },
        None => (DEFAULT_PORT..DEFAULT_PORT + PORTS_TRIED)
            .find(|port| bind(*port).is_ok())
            .context("no free port from 3300 on; name one with --mon-port"),
    }
}

/// The monitors of a new cluster: `a` at the port asked for, the others at the next free ones.
fn choose_mons(ip: IpAddr, args: &UpArgs) -> Result<Vec<MonEntry>> {
    let mut mons = Vec::new();
    let mut port = choose_port(ip, args.mon_port)?;
    for name in mon_names().take(args.mons.unwrap_or(1) as usize) {
        if !mons.is_empty() {
            port = next_port(ip, port)?;
        }
        mons.push(MonEntry { name, addr: SocketAddr::new(ip, port) });
    }
    Ok(mons)
}

fn mon_names() -> impl Iterator<Item = String> {
    ('a'..='z').map(|c| c.to_string())
}

fn next_port(ip: IpAddr, after: u16) -> Result<u16> {
    (after.saturating_add(1)..=after.saturating_add(PORTS_TRIED))
        .find(|port| TcpListener::bind((ip, *port)).is_ok())
        .with_context(|| format!("no free port for another monitor after {after}"))
}

fn mon_key_name() -> AuthName {
    AuthName::new(EntityType::Mon, "")
}

fn write_mon_keyring(dir: &ClusterDir, mon: &str, all: &Keyring) -> Result<()> {
    let mut one = Keyring::new();
    let entry = all.get(&mon_key_name()).context("the monitors have a key")?;
    one.insert(mon_key_name(), entry.clone());
    let path = make_dir(&dir.daemon_dir(&format!("mon.{mon}")))?.join("keyring");
    write_atomically(&path, one.to_string().as_bytes(), 0o600)
}

/// The key with which monitors prove to each other that they are.
pub fn mon_key(dir: &ClusterDir, mon: &str) -> Result<CryptoKey> {
    client::read_key(&dir.daemon_dir(&format!("mon.{mon}")).join("keyring"), &mon_key_name())
}

/// A store for a monitor that is to be let in by the others.
pub fn blank_monitor(dir: &ClusterDir, d: &Description, mon: &str) -> Result<()> {
    let fsid = Fsid::parse(&d.fsid).context("the folder's fsid is damaged")?;
    let auth =
        EntityAuth { key: mon_key(dir, mon)?, caps: [("mon".to_owned(), "allow *".to_owned())].into() };
    let state = Monitor::blank(fsid, auth, Clock::start().now(), &mut OsEntropy);
    let path = mon_store(dir, mon);
    MonStore::create(&path, MemberId::draw(&mut OsEntropy), Membership::default(), &state)
}

pub fn mon_store(dir: &ClusterDir, mon: &str) -> PathBuf {
    dir.daemon_dir(&format!("mon.{mon}")).join("store.redb")
}

fn write_keyrings(dir: &ClusterDir, all: &Keyring) -> Result<()> {
    for (name, entry) in &all.entries {
        let mut one = Keyring::new();
        one.insert(name.clone(), entry.clone());
        let path = match name.kind {
            EntityType::Client => dir.admin_keyring(),
            EntityType::Mon => continue,
            _ => make_dir(&dir.daemon_dir(&name.to_string()))?.join("keyring"),
        };
        write_atomically(&path, one.to_string().as_bytes(), 0o600)?;
    }
    Ok(())
}

pub fn make_dir(path: &Path) -> Result<&Path> {
    std::fs::create_dir_all(path).with_context(|| format!("cannot create {}", path.display()))?;
    Ok(path)
}

/// A folder of secrets: if it is made, nobody else may look into it.
pub fn make_private_dir(path: &Path) -> Result<()> {
    if let Some(parent) = path.parent() {
        make_dir(parent)?;
    }
    let mut maker = std::fs::DirBuilder::new();
    maker.recursive(true).mode(0o700);
    maker.create(path).with_context(|| format!("cannot create {}", path.display()))
}

fn format_osd(dir: &ClusterDir, fsid: Fsid, osd: &OsdEntry) -> Result<()> {
    make_dir(&dir.daemon_dir(&format!("osd.{}", osd.id)))?;
    let path = dir.block(osd.id);
    let device =
        FileDevice::create(&path, osd.bytes).with_context(|| format!("cannot create {}", path.display()))?;
    let osd_uuid = Fsid::parse(&osd.uuid).context("the OSD's uuid is damaged")?;
    Store::format(&device, FormatOptions { fsid, osd_uuid, log_bytes: None })
        .with_context(|| format!("cannot format {}", path.display()))
}

fn make_monitors(dir: &ClusterDir, d: &Description, fsid: Fsid, keyring: &Keyring, now: Now) -> Result<()> {
    let addrs = |m: &MonEntry| (m.name.clone(), AddrVec::single(EntityAddr::v2(m.addr, 0)));
    let host = host_name();
    let osds = d
        .osds
        .iter()
        .map(|o| GenesisOsd {
            id: o.id,
            uuid: Fsid::parse(&o.uuid).unwrap_or_default(),
            weight_16_16: weight(o.bytes),
            host: host.clone(),
        })
        .collect();
    let config = GenesisConfig {
        fsid,
        monmap: MonMap::new(fsid, now.wall, d.mons.iter().map(addrs)),
        entities: keyring.entries.clone(),
        failure_domain: "osd".to_owned(),
        options: default_options(),
        osds,
    };
    let snapshot = Monitor::genesis(&config, now, &mut OsEntropy);
    let ids: Vec<MemberId> = d.mons.iter().map(|_| MemberId::draw(&mut OsEntropy)).collect();
    let members = Membership::of(ids.iter().copied().zip(d.mons.iter().map(|m| m.name.clone())));
    for (mon, id) in d.mons.iter().zip(ids) {
        MonStore::create(&mon_store(dir, &mon.name), id, members.clone(), &snapshot)?;
    }
    Ok(())
}

/// What a small cluster on one machine wants to differ from Ceph's defaults; `ceph config` shows and changes them.
fn default_options() -> Vec<(String, String, String)> {
    let all = [
        ("osd_pool_default_size", "2"),
        ("osd_pool_default_min_size", "1"),
        ("osd_crush_chooseleaf_type", "0"),
        ("mon_allow_pool_delete", "true"),
    ];
    all.into_iter().map(|(name, value)| ("global".to_owned(), name.to_owned(), value.to_owned())).collect()
}

/// CRUSH weight of a size: its TiB as 16.16, and never nothing.
fn weight(bytes: u64) -> u32 {
    u32::try_from((u128::from(bytes) << 16) >> 40).unwrap_or(u32::MAX).max(1)
}

/// Adds monitors to a running cluster's map and folder, up to the number asked for; whoever calls starts them.
pub fn add_mons(dir: &ClusterDir, d: &Description, args: &UpArgs) -> Result<Description> {
    let wanted = args.mons.unwrap_or(0) as usize;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let admin = client::admin(dir, d)?;
        admin.connected(std::time::Duration::from_secs(10)).await?;
        let first = d.mons().first().context("there is a first monitor")?.name.clone();
        let keyring = std::fs::read(dir.daemon_dir(&format!("mon.{first}")).join("keyring"))?;
        let mut grown = Description { mons: d.mons(), ..d.clone() };
        while grown.mons.len() < wanted {
            let name = mon_names().find(|n| grown.mon(n).is_none()).context("too many monitors")?;
            let last = grown.mons.iter().map(|m| m.addr.port()).max().unwrap_or(DEFAULT_PORT);
            let addr = SocketAddr::new(d.ip(), next_port(d.ip(), last)?);
            let path = make_dir(&dir.daemon_dir(&format!("mon.{name}")))?.join("keyring");
            write_atomically(&path, &keyring, 0o600)?;
            blank_monitor(dir, &grown, &name)?;
            let at = format!("v2:{addr}/0");
            client::command(&admin, json!({"prefix": "mon add", "name": name, "addr": at})).await?;
            grown.mons.push(MonEntry { name: name.clone(), addr });
            write_atomically(&dir.conf(), ceph_conf(dir, &grown).as_bytes(), 0o644)?;
            dir.save(&grown)?;
            say!("Added mon.{name}.");
        }
        Ok(grown)
    })
}

/// Whether a cluster with this authentication may be reached at the address.
fn check_listen(ip: IpAddr, auth: &str) -> Result<()> {
    if auth != "cephx" && !ip.is_loopback() {
        bail!(
            "without authentication everybody who reaches {ip} has all rights: beyond loopback cephx is required"
        );
    }
    Ok(())
}

/// Moves a cluster that does not run to another address of this host: its monitors keep their ports, and tell
/// the others.
pub fn move_to(dir: &ClusterDir, d: &Description, ip: IpAddr) -> Result<Description> {
    check_listen(ip, &d.auth)?;
    let mut moved = Description { mons: d.mons(), ..d.clone() };
    for mon in &mut moved.mons {
        mon.addr.set_ip(ip);
        TcpListener::bind(mon.addr)
            .with_context(|| format!("mon.{} cannot move to {}", mon.name, mon.addr))?;
    }
    moved.mon_addr.set_ip(ip);
    let conf = with_monitors_moved(&std::fs::read_to_string(dir.conf())?, &moved)?;
    // The description last: until it is there, the same command moves what is left to move.
    write_atomically(&dir.conf(), conf.as_bytes(), 0o644)?;
    dir.save(&moved)?;
    say!("The cluster moves from {} to {ip}; its clients need the new {}.", d.ip(), dir.conf().display());
    Ok(moved)
}

/// A monitor that `ceph mon rm` has removed leaves the folder's description; its own folder stays.
pub fn forget_mon(dir: &ClusterDir, name: &str) -> Result<()> {
    let Some(mut d) = dir.load()? else { return Ok(()) };
    d.mons = d.mons();
    d.mons.retain(|m| m.name != name);
    let Some(first) = d.mons.first() else { return Ok(()) };
    d.mon_addr = first.addr;
    write_atomically(&dir.conf(), ceph_conf(dir, &d).as_bytes(), 0o644)?;
    dir.save(&d)
}

/// OSDs whose folders were deleted leave the description: nothing of them is there to be started.
pub fn without_missing(dir: &ClusterDir, mut d: Description) -> Result<Description> {
    let folder = |id: i32| dir.daemon_dir(&format!("osd.{id}"));
    let is_missing = |id: i32| {
        let found = std::fs::symlink_metadata(folder(id));
        found.is_err_and(|e| e.kind() == std::io::ErrorKind::NotFound)
    };
    let missing: Vec<i32> = d.osds.iter().map(|o| o.id).filter(|id| is_missing(*id)).collect();
    if missing.is_empty() {
        return Ok(d);
    }
    d.osds.retain(|o| !missing.contains(&o.id));
    dir.save(&d)?;
    for id in missing {
        failures::forget(dir, &format!("osd.{id}"));
        say!(
            "osd.{id} is forgotten: {} is gone. If the cluster has it still: ceph osd purge {id}",
            folder(id).display()
        );
    }
    Ok(d)
}

/// Adds OSDs to a running cluster's folder and maps, up to the number asked for; whoever calls starts them.
pub fn add_osds(dir: &ClusterDir, d: &Description, args: &UpArgs) -> Result<Description> {
    let wanted = args.osds.unwrap_or(0) as usize;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let admin = client::admin(dir, d)?;
        admin.connected(std::time::Duration::from_secs(10)).await?;
        let fsid = Fsid::parse(&d.fsid).context("the folder's fsid is damaged")?;
        let known = client::command(&admin, json!({"prefix": "osd ls"})).await?;
        let is_known =
            |id: i32| known.as_array().into_iter().flatten().any(|k| k.as_i64() == Some(i64::from(id)));
        // Its number is the next one that the cluster gives.
        if let Some(purged) = d.osds.iter().find(|o| !is_known(o.id)) {
            let folder = dir.daemon_dir(&format!("osd.{}", purged.id));
            bail!("osd.{} was purged, and {} is still there: delete it first", purged.id, folder.display());
        }
        let mut grown = d.clone();
        while grown.osds.len() < wanted {
            let uuid = random_fsid().to_string();
            let made = client::command(&admin, json!({"prefix": "osd new", "uuid": uuid})).await?;
            let id =
                made.get("osdid").unwrap_or(&made).as_i64().context("the monitor named no OSD number")?;
            let osd = OsdEntry { id: i32::try_from(id)?, uuid, bytes: args.osd_size };
            let name = format!("osd.{id}");
            let caps: Vec<&str> = OSD_CAPS.iter().flat_map(|(k, v)| [*k, *v]).collect();
            let made = client::command(
                &admin,
                json!({"prefix": "auth get-or-create", "entity": name, "caps": caps}),
            )
            .await?;
            let key = made
                .pointer("/0/key")
                .and_then(serde_json::Value::as_str)
                .context("the monitor gave no key")?;
            let text = format!("[{name}]\n\tkey = {key}\n");
            format_osd(dir, fsid, &osd)?;
            write_atomically(&dir.daemon_dir(&name).join("keyring"), text.as_bytes(), 0o600)?;
            let weight = f64::from(weight(args.osd_size)) / 65_536.0;
            let place = [format!("host={}", host_name()), "root=default".to_owned()];
            client::command(
                &admin,
                json!({"prefix": "osd crush create-or-move", "id": id, "weight": weight, "args": place}),
            )
            .await?;
            grown.osds.push(osd);
            dir.save(&grown)?;
            say!("Added osd.{id}.");
        }
        Ok(grown)
    })
}

/// From this target on memory is not so scarce that large pages, which stay resident half empty, would not be worth the
/// 5 to 12 % of CPU that they save.
const LARGE_PAGES_FROM: u64 = 512 << 20;

/// Has the kernel give this process small pages only, but for an OSD with a large target. Three OSDs' heaps took 15 to 25 MiB
/// more for each with large ones.
pub fn choose_pages(target: u64) {
    // An old kernel that does not know the call gives what it gives.
    let _ = rustix::thread::disable_transparent_huge_pages(target < LARGE_PAGES_FROM);
}

/// What an OSD may keep in memory when nobody says anything else. Ceph's 4 GiB are for caches that pay off less here.
const MEMORY_TARGET: u64 = 96 << 20;

/// `osd_memory_target` of the configuration file. Ceph refuses less than 896 MiB; ours needs a tenth of that, so the
/// file's word counts as it stands.
pub fn memory_target(options: &BTreeMap<String, String>) -> Result<u64, String> {
    match options.get("osd_memory_target") {
        Some(text) => crate::size::bytes(text).map_err(|why| format!("osd_memory_target = {text}: {why}")),
        None => Ok(MEMORY_TARGET),
    }
}

/// [`memory_target`], or as if nothing were set; that is told, as Ceph tells of a value that it cannot read.
pub fn memory_target_or_usual(options: &BTreeMap<String, String>) -> u64 {
    memory_target(options).unwrap_or_else(|why| {
        tracing::warn!("{why}; {} MiB count", MEMORY_TARGET >> 20);
        MEMORY_TARGET
    })
}

/// The store's bounds: the OSD gives it its part of the memory target once it runs.
pub fn store_options(memory_target: u64) -> Options {
    Options { memory_bytes: (memory_target / 2).max(16 << 20), ..Options::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_osd_without_a_folder_leaves_the_description() {
        let tmp = tempfile::tempdir().expect("a folder");
        let dir = ClusterDir::new(tmp.path()).expect("a path");
        let osd = |id| OsdEntry { id, uuid: String::new(), bytes: 1 };
        let d = Description {
            format: FORMAT,
            fsid: "215f035f-8e81-42db-a68c-2ddf6b582ff3".to_owned(),
            auth: "cephx".to_owned(),
            mon_addr: "127.0.0.1:3300".parse().expect("an address"),
            mons: Vec::new(),
            osds: vec![osd(0), osd(1), osd(2)],
            mds: Vec::new(),
            profile: crate::args::Profile::Default,
        };
        for here in ["osd.0", "osd.2"] {
            std::fs::create_dir(tmp.path().join(here)).expect("made");
        }
        // A disk that is elsewhere, and not there now, is no reason to forget an OSD.
        std::os::unix::fs::symlink("/nowhere", tmp.path().join("osd.1")).expect("a link");
        assert_eq!(without_missing(&dir, d.clone()).expect("read"), d);
        std::fs::remove_file(tmp.path().join("osd.1")).expect("removed");
        let left = without_missing(&dir, d).expect("written");
        assert_eq!(left.osds.iter().map(|o| o.id).collect::<Vec<_>>(), [0, 2]);
        assert_eq!(dir.load().expect("read"), Some(left));
    }

    #[test]
    fn a_memory_target_that_cannot_be_read_is_told() {
        let of = |text: &str| BTreeMap::from([("osd_memory_target".to_owned(), text.to_owned())]);
        assert_eq!(memory_target(&BTreeMap::new()), Ok(MEMORY_TARGET));
        for (text, bytes) in [("4Gi", 4 << 30), ("4294967296", 4 << 30), ("64M", 64 << 20)] {
            assert_eq!(memory_target(&of(text)), Ok(bytes), "{text}");
        }
        let why = memory_target(&of("4 pounds")).expect_err("no size");
        assert!(why.contains("osd_memory_target = 4 pounds: "), "{why}");
        assert_eq!(memory_target_or_usual(&of("4 pounds")), MEMORY_TARGET);
    }
}

//! The folder of a cluster: what lies where, its description file, its ceph.conf, and who runs in it.
//!
//! ```text
//! DIR/loligo.json        format version, fsid, OSDs, the monitor's address
//! DIR/ceph.conf          for Ceph's clients: CEPH_CONF=DIR/ceph.conf
//! DIR/keyring            client.admin
//! DIR/mon.a/             a monitor's store and the monitors' key
//! DIR/osd.N/block        the object store; DIR/osd.N/keyring its key
//! DIR/mgr.x/keyring      the manager's key
//! DIR/mds.a/keyring      a metadata server's key
//! DIR/admin.secret       the key of client.admin alone, as mount.ceph reads it
//! DIR/<type>.<id>.pid    locked while that daemon runs (loligo.pid when all share one process)
//! ```

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::args::Profile;

/// Version of the folder's layout. Another one is refused, never guessed at.
pub const FORMAT: u32 = 1;

/// `DIR/loligo.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Description {
    pub format: u32,
    pub fsid: String,
    pub auth: String,
    /// Of mon.a.
    pub mon_addr: SocketAddr,
    /// All monitors, when there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mons: Vec<MonEntry>,
    pub osds: Vec<OsdEntry>,
    /// Names of metadata servers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mds: Vec<String>,
    #[serde(default)]
    pub profile: Profile,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MonEntry {
    pub name: String,
    pub addr: SocketAddr,
}

impl Description {
    pub fn mons(&self) -> Vec<MonEntry> {
        match self.mons.is_empty() {
            true => vec![MonEntry { name: "a".to_owned(), addr: self.mon_addr }],
            false => self.mons.clone(),
        }
    }

    /// Where all daemons listen.
    pub fn ip(&self) -> IpAddr {
        self.mon_addr.ip()
    }

    pub fn mon(&self, name: &str) -> Option<MonEntry> {
        self.mons().into_iter().find(|m| m.name == name)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OsdEntry {
    pub id: i32,
    pub uuid: String,
    pub bytes: u64,
}

/// A cluster's folder.
#[derive(Debug, Clone)]
pub struct ClusterDir {
    root: PathBuf,
}

impl ClusterDir {
    /// The folder as an absolute path, so that a daemon that changes its directory still finds it.
    pub fn new(path: &Path) -> Result<Self> {
        let root = std::path::absolute(path).with_context(|| format!("bad path {}", path.display()))?;
        Ok(Self { root })
    }

    pub fn root(&self) -> &Path {
        &self.root
    }
    pub fn conf(&self) -> PathBuf {
        self.root.join("ceph.conf")
    }
    pub fn admin_keyring(&self) -> PathBuf {
        self.root.join("keyring")
    }
    pub fn daemon_dir(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }
    pub fn block(&self, osd: i32) -> PathBuf {
        self.daemon_dir(&format!("osd.{osd}")).join("block")
    }
    pub fn log_file(&self, name: &str) -> PathBuf {
        self.root.join(format!("{name}.log"))
    }
    pub fn failure_file(&self, name: &str) -> PathBuf {
        self.root.join(format!("{name}.failure"))
    }
    fn pid_file(&self, name: &str) -> PathBuf {
        self.root.join(format!("{name}.pid"))
    }
    pub fn admin_secret(&self) -> PathBuf {
        self.root.join("admin.secret")
    }
    fn description_file(&self) -> PathBuf {
        self.root.join("loligo.json")
    }

    /// Makes the folder, readable by its owner only, and says plainly when that cannot be done.
    pub fn create(&self) -> Result<()> {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.root)
            .with_context(|| format!("cannot create folder {}", self.root.display()))?;
        let probe = self.root.join(".writable");
        File::create(&probe).with_context(|| format!("folder {} is not writable", self.root.display()))?;
        fs::remove_file(&probe)?;
        Ok(())
    }

    /// The description, or `None` when the folder holds no cluster.
    pub fn load(&self) -> Result<Option<Description>> {
        let path = self.description_file();
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(e).with_context(|| format!("cannot read {}", path.display())),
        };
        let any: serde_json::Value = serde_json::from_str(&text)
            .with_context(|| format!("{} is not a cluster description", path.display()))?;
        match any.get("format").and_then(serde_json::Value::as_u64) {
            Some(v) if v == u64::from(FORMAT) => {}
            Some(v) => bail!(
                "{} has folder format {v}; this loligo reads format {FORMAT}. Use the loligo version that made it.",
                self.root.display()
            ),
            None => bail!("{} names no format version", path.display()),
        }
        serde_json::from_value(any).map(Some).with_context(|| format!("{} is damaged", path.display()))
    }

    pub fn save(&self, description: &Description) -> Result<()> {
        let text = serde_json::to_string_pretty(description)? + "\n";
        write_atomically(&self.description_file(), text.as_bytes(), 0o600)
    }

    /// Whether there is anything in the folder.
    pub fn is_empty(&self) -> bool {
        fs::read_dir(&self.root).map_or(true, |mut d| d.next().is_none())
    }

    /// Takes the daemon's place in the folder until the returned lock is dropped. `None`: it is taken already.
    pub fn lock(&self, name: &str) -> Result<Option<PidLock>> {
        lock_file(&self.pid_file(name))
    }

    /// Removes the pid file of a daemon that does not run.
    pub fn clear(&self, name: &str) {
        if self.running(name).is_none() {
            let _ = fs::remove_file(self.pid_file(name));
        }
    }

    /// The pid of the daemon that holds this place now.
    pub fn running(&self, name: &str) -> Option<u32> {
        let mut file = File::open(self.pid_file(name)).ok()?;
        if flock(&file, FlockOperation::NonBlockingLockShared).is_ok() {
            return None; // nobody holds it: a file left behind by kill -9
        }
        let mut text = String::new();
        file.read_to_string(&mut text).ok()?;
        text.trim().parse().ok()
    }
}

fn open_pid_file(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().create(true).truncate(false).read(true).write(true).mode(0o644).open(path)
}

/// Takes a pid file until the returned lock is dropped. `None`: another process has it.
pub fn lock_file(path: &Path) -> Result<Option<PidLock>> {
    let mut file = open_pid_file(path).with_context(|| format!("cannot open {}", path.display()))?;
    // Somebody asking `running` holds a shared lock for a moment: that is not a daemon.
    let taken = (0..10).all(|attempt| {
        std::thread::sleep(std::time::Duration::from_millis(2 * attempt));
        flock(&file, FlockOperation::NonBlockingLockExclusive).is_err()
    });
    if taken {
        return Ok(None);
    }
    file.set_len(0)?;
    writeln!(file, "{}", std::process::id())?;
    Ok(Some(PidLock { _file: file }))
}

/// The short name, as `hostname -s` gives it.
pub fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let short = name.trim().split('.').next().unwrap_or_default().to_owned();
    if short.is_empty() { "localhost".to_owned() } else { short }
}

/// Held while a daemon runs. The kernel lets the lock go when the process ends, however it ends.
#[derive(Debug)]
pub struct PidLock {
    _file: File,
}

/// Replaces a file so that a crash leaves the old or the new content, whole.
pub fn write_atomically(path: &Path, bytes: &[u8], mode: u32) -> Result<()> {
    let tmp = path.with_extension("tmp");
    let write = || -> std::io::Result<()> {
        // What an earlier write left behind has that write's mode.
        match fs::remove_file(&tmp) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let mut f = OpenOptions::new().create_new(true).write(true).mode(mode).open(&tmp)?;
        f.write_all(bytes)?;
        f.sync_all()?;
        fs::rename(&tmp, path)?;
        path.parent().map_or(Ok(()), |dir| File::open(dir)?.sync_all())
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

/// The configuration's line that names the monitors.
fn mon_host(d: &Description) -> String {
    let mons: Vec<String> = d.mons().iter().map(|m| format!("[v2:{}/0]", m.addr)).collect();
    format!("mon host = {}", mons.join(","))
}

/// An operator's configuration with the monitors where they are now; the rest stays as it is.
pub fn with_monitors_moved(conf: &str, d: &Description) -> Result<String> {
    let names =
        |line: &str| line.split('=').next().is_some_and(|k| k.trim().replace(['_', '-'], " ") == "mon host");
    if conf.lines().filter(|line| names(line)).count() != 1 {
        bail!("ceph.conf has not just one line 'mon host = ...': write it anew");
    }
    let lines = conf.lines().map(|line| if names(line) { mon_host(d) } else { line.to_owned() });
    Ok(lines.map(|line| line + "\n").collect())
}

/// What Ceph's clients need to find and use the cluster.
pub fn ceph_conf(dir: &ClusterDir, d: &Description) -> String {
    let root = dir.root().display();
    let mut text = format!(
        "# Written by loligo up. Use it with: CEPH_CONF={root}/ceph.conf ceph -s\n\
         [global]\n\
         fsid = {fsid}\n\
         {mon_host}\n\
         auth cluster required = {auth}\n\
         auth service required = {auth}\n\
         auth client required = {auth}\n\
         keyring = {root}/keyring\n\
         run dir = {root}\n\
         log file = \n\
         log to stderr = true\n",
        fsid = d.fsid,
        mon_host = mon_host(d),
        auth = d.auth,
    );
    let options = d.profile.options();
    if !options.is_empty() {
        text.push_str("[osd]\n");
        options.iter().for_each(|(name, value)| text.push_str(&format!("{name} = {value}\n")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_has_its_own_mode() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("keyring");
        // Left behind by a write that was cut off.
        let old = path.with_extension("tmp");
        fs::write(&old, "longer than what comes").expect("written");
        fs::set_permissions(&old, fs::Permissions::from_mode(0o666)).expect("set");
        write_atomically(&path, b"key", 0o600).expect("written");
        assert_eq!(fs::read(&path).expect("read"), b"key");
        assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o600);
        assert!(!old.exists());
    }

    fn sample() -> Description {
        Description {
            format: FORMAT,
            fsid: "215f035f-8e81-42db-a68c-2ddf6b582ff3".into(),
            auth: "cephx".into(),
            mon_addr: "127.0.0.1:3300".parse().expect("address"),
            mons: vec![],
            osds: vec![],
            mds: vec![],
            profile: Profile::Default,
        }
    }

    #[test]
    fn a_profile_is_lines_for_the_osds_alone() {
        let tmp = tempfile::tempdir().expect("tempdir");
        let dir = ClusterDir::new(tmp.path()).expect("path");
        assert!(!ceph_conf(&dir, &sample()).contains("[osd]"));
        let small = Description { profile: Profile::Small, ..sample() };
        fs::write(dir.conf(), ceph_conf(&dir, &small)).expect("written");
        let read = rados::Conf::read(&dir.conf()).expect("read");
        let (osd, mon) = (read.for_daemon("osd", "0"), read.for_daemon("mon", "a"));
        assert_eq!(crate::create::memory_target(&osd), Ok(64 << 20));
        assert_eq!(mon.get("osd_memory_target"), None);
        let values = admin::options::Values::new("osd.0", &osd);
        let taken = |name: &str| values.levels(name).next().is_some();
        // Ceph refuses so low a target; all else is in force.
        let refused: Vec<_> = osd.keys().filter(|name| name.starts_with("osd_") && !taken(name)).collect();
        assert_eq!(refused, ["osd_memory_target"]);
    }

    #[test]
    fn description_comes_back_and_other_formats_are_refused() {
        let tmp = tempfile::tempdir().expect("tempdir");
        let dir = ClusterDir::new(tmp.path()).expect("path");
        assert_eq!(dir.load().expect("empty"), None);
        dir.save(&sample()).expect("saved");
        assert_eq!(dir.load().expect("loaded"), Some(sample()));
        fs::write(tmp.path().join("loligo.json"), "{\"format\": 9}").expect("written");
        let error = format!("{:#}", dir.load().expect_err("refused"));
        assert!(error.contains("folder format 9"), "{error}");
    }

    #[test]
    fn one_place_one_daemon() {
        let tmp = tempfile::tempdir().expect("tempdir");
        let dir = ClusterDir::new(tmp.path()).expect("path");
        let held = dir.lock("osd.0").expect("io").expect("free");
        assert!(dir.lock("osd.0").expect("io").is_none());
        assert_eq!(dir.running("osd.0"), Some(std::process::id()));
        drop(held);
        assert_eq!(dir.running("osd.0"), None);
        assert!(dir.lock("osd.0").expect("io").is_some());
    }
}

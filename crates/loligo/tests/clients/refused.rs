//! Disks and monitors that do not belong: refused with one clear line and a non-zero exit status, and the way to a new disk.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use crate::cluster::{Cluster, binary, text, until};

/// An OSD of the cluster that is run by its configuration file, with a folder of its own.
struct Disk<'a> {
    cluster: &'a Cluster,
    data: PathBuf,
    running: Option<Child>,
}

impl<'a> Disk<'a> {
    fn new(cluster: &'a Cluster, name: &str) -> Self {
        Self { cluster, data: cluster.dir.path().join(name), running: None }
    }

    fn command(&self, id: &str, more: &[&str]) -> Command {
        // Among them OSDs that serve while others are refused: it only ends what hangs.
        let mut command = Command::new("timeout");
        command.args(["300"]).arg(binary()).args(["osd", "--id", id, "-c"]);
        command.arg(self.cluster.data().join("ceph.conf"));
        command.arg("--osd-data").arg(&self.data).args(["--public-addr", "127.0.0.1"]).args(more);
        command
    }

    fn run(&self, id: &str, more: &[&str]) -> Output {
        self.command(id, more).output().expect("loligo runs")
    }

    /// It ends by itself, and says why in one line.
    fn refused(&self, id: &str, more: &[&str], why: &str) {
        let out = self.run(id, more);
        let said = text(&out);
        assert_eq!(out.status.code(), Some(1), "{said}");
        let lines: Vec<&str> = said.lines().filter(|l| l.starts_with("loligo: ")).collect();
        assert!(lines.len() == 1 && lines[0].contains(why), "expected '{why}': {said}");
    }

    fn start(&mut self, id: &str) {
        let child = self.command(id, &[]).stdout(Stdio::null()).stderr(Stdio::inherit()).spawn();
        self.running = Some(child.expect("loligo runs"));
        until("the OSD to come up", || is_up(self.cluster, id));
    }

    fn stop(&mut self, id: &str) {
        let Some(mut child) = self.running.take() else { return };
        // `timeout` passes it on.
        let told = Command::new("kill").arg(child.id().to_string()).status().expect("kill runs");
        assert!(told.success());
        child.wait().expect("it ends");
        until("the OSD to go down", || !is_up(self.cluster, id));
    }
}

impl Drop for Disk<'_> {
    fn drop(&mut self) {
        if let Some(child) = &mut self.running {
            let _ = Command::new("kill").arg(child.id().to_string()).status();
            let _ = child.wait();
        }
    }
}

fn is_up(c: &Cluster, id: &str) -> bool {
    let dump: serde_json::Value = serde_json::from_str(&c.ceph("osd dump -f json")).expect("JSON");
    let osds = dump["osds"].as_array().expect("OSDs");
    osds.iter().any(|o| o["osd"].as_i64() == id.parse().ok() && o["up"] == 1)
}

fn admin(c: &Cluster) -> [String; 4] {
    let keyring = c.data().join("keyring").display().to_string();
    ["--login".to_owned(), "admin".to_owned(), "--keyring".to_owned(), keyring]
}

/// Makes an OSD of a file with the administrator's key.
fn new_osd(c: &Cluster, disk: &Disk) -> std::process::Output {
    let mut command = Command::new(binary());
    command.args(["osd", "--new", "--size", "1G", "-c"]).arg(c.data().join("ceph.conf"));
    command.arg("--osd-data").arg(&disk.data).args(admin(c));
    command.output().expect("loligo runs")
}

/// Raises the format version in both copies of a store's superblock.
fn make_newer(block: &Path) {
    use std::os::unix::fs::FileExt;
    let file = std::fs::OpenOptions::new().read(true).write(true).open(block).expect("the store");
    for at in [0, 64 * 4096] {
        let mut raw = vec![0; 4096];
        file.read_exact_at(&mut raw, at).expect("a superblock");
        let (body, crc) = raw.split_at(4092);
        let sum = |body: &[u8]| codec::crc32c(u32::MAX, body);
        let flip = sum(body) ^ u32::from_le_bytes(crc.try_into().expect("four bytes"));
        assert!(flip == 0 || flip == u32::MAX, "the checksum is one of these two");
        raw[8..12].copy_from_slice(&9u32.to_le_bytes());
        let crc = sum(&raw[..4092]) ^ flip;
        raw[4092..].copy_from_slice(&crc.to_le_bytes());
        file.write_all_at(&raw, at).expect("written");
    }
}

#[test]
fn disks_that_do_not_belong_are_refused_and_a_new_one_takes_their_place() {
    let c = Cluster::start(&["--osds", "1", "--osd-size", "1G"]);
    let mut disk = Disk::new(&c, "disk");
    let admin = admin(&c);
    let admin: Vec<&str> = admin.iter().map(String::as_str).collect();
    disk.refused("1", &[], "there is no folder");
    let made = new_osd(&c, &disk);
    assert!(text(&made).contains("osd.1 is made in"), "{}", text(&made));
    let copy = Disk::new(&c, "copy");
    let copied = Command::new("cp").args(["-r", "--sparse=always"]).arg(&disk.data).arg(&copy.data).status();
    assert!(copied.expect("cp runs").success());
    disk.refused("0", &[], "holds osd.1, not osd.0");
    disk.refused("1", &["--fsid", "7d3f0a8e-24f5-4b36-9d7e-000000000001"], "belongs to another cluster");
    disk.start("1");
    assert!(c.ceph("osd tree").contains("osd.1"), "it placed itself in the CRUSH map");
    disk.refused("1", &[], "osd.1 is already running");
    copy.refused("1", &[], "another process serves osd.1");
    let log = c.ceph("log last 20 debug");
    assert!(is_up(&c, "1") && !log.contains("marked itself down"), "the copy did no harm: {log}");
    disk.stop("1");
    let newer = Disk::new(&c, "newer");
    let copied = Command::new("cp").args(["-r", "--sparse=always"]).arg(&disk.data).arg(&newer.data).status();
    assert!(copied.expect("cp runs").success());
    make_newer(&newer.data.join("block"));
    newer.refused("1", &[], "newer format: version 9");
    // Destroyed: its key is gone; with another key its disk is still another one.
    disk.refused("1", &[&["--replace"], &admin[..]].concat(), "refuse the new OSD");
    c.ceph("osd destroy 1 --yes-i-really-mean-it");
    disk.refused("1", &[], "the monitors refuse the key of osd.1");
    // What is wrong with a disk shows before the monitors hear of it; another disk takes the place of the first.
    let other = disk.data.with_extension("other");
    std::fs::write(&other, vec![7; 2 << 20]).expect("written");
    let device = ["--replace", "--device", other.to_str().expect("UTF-8")];
    disk.refused("1", &[&device[..], &admin[..]].concat(), "holds other data");
    disk.refused("1", &[], "the monitors refuse the key of osd.1");
    std::fs::File::create(&other).and_then(|f| f.set_len(1 << 30)).expect("made empty");
    let replaced = disk.run("1", &[&device[..], &admin[..]].concat());
    assert!(replaced.status.success(), "{}", text(&replaced));
    assert_eq!(std::fs::read_link(disk.data.join("block")).expect("a link"), other);
    disk.start("1");
    std::fs::copy(disk.data.join("keyring"), copy.data.join("keyring")).expect("copied");
    copy.refused("1", &[], "has another disk");
    disk.stop("1");
    c.ceph("osd purge 1 --yes-i-really-mean-it");
    disk.refused("1", &[], "the monitors refuse the key of osd.1");
}

#[test]
fn an_osd_whose_device_fails_a_write_stops_itself() {
    let c = Cluster::start(&["--osds", "1", "--osd-size", "1G"]);
    let mut disk = Disk::new(&c, "disk");
    // The size of the file is a promise that the file system does not keep: past this limit every write fails.
    let made = new_osd(&c, &disk);
    assert!(made.status.success(), "{}", text(&made));
    let mut limited = Command::new("prlimit");
    let whole = disk.command("1", &[]);
    limited.arg("--fsize=65536:65536").arg(whole.get_program()).args(whole.get_args());
    // Without a handler the signal that comes with the error would end the process.
    let mut quiet = Command::new("env");
    quiet.arg("--ignore-signal=SIGXFSZ").arg(limited.get_program()).args(limited.get_args());
    let out = quiet.output().expect("env runs");
    let said = text(&out);
    assert_eq!(out.status.code(), Some(1), "{said}");
    assert!(said.lines().any(|l| l.starts_with("loligo: osd.1 stopped: the device failed")), "{said}");
    disk.start("1");
}

#[test]
fn monitors_that_do_not_belong_are_refused() {
    let c = Cluster::start(&["--mons", "3", "--processes", "--osds", "1", "--osd-size", "1G"]);
    let mon = |args: &[&str]| {
        let mut command = Command::new("timeout");
        command.arg("300").arg(binary()).arg("mon").args(args).output().expect("loligo runs")
    };
    let refused = |out: &Output, why: &str| {
        let said = text(out);
        assert_eq!(out.status.code(), Some(1), "{said}");
        assert!(
            said.lines().any(|l| l.starts_with("loligo: ") && l.contains(why)),
            "expected '{why}': {said}"
        );
    };
    let pid = |name: &str| c.pids().into_iter().find(|(n, _)| n == name).expect("it runs").1.to_string();
    let (data, conf) = (c.data().display().to_string(), c.data().join("ceph.conf").display().to_string());
    // Removed while it was away.
    let killed = Command::new("kill").args(["-9", &pid("mon.c")]).status().expect("kill runs");
    assert!(killed.success());
    c.ceph("mon rm c");
    refused(&mon(&["--id", "c", "--data", &data]), "mon.c stopped: it was removed from the cluster");
    // Removed while it runs: it ends, and the folder forgets it.
    let b = pid("mon.b");
    c.ceph("mon rm b");
    until("the removed monitor to end", || !Path::new(&format!("/proc/{b}/stat")).exists() || is_zombie(&b));
    let known = std::fs::read_to_string(c.data().join("loligo.json")).expect("readable");
    assert!(!known.contains("\"b\""), "{known}");
    refused(&mon(&["--id", "b", "--data", &data]), "there is no mon.b");
    let log = std::fs::read_to_string(c.data().join("mon.b.log")).expect("readable");
    assert!(log.ends_with("mon.b was removed from the cluster; its store is of no use any more.\n"), "{log}");
    // Stores of another cluster, made twice, or not at all.
    let store = c.dir.path().join("mon.z").display().to_string();
    let conf = ["--id", "z", "-c", &conf, "--mon-data", &store, "--public-addr", "127.0.0.1:0"];
    refused(&mon(&conf), "there is no folder");
    let keyring = c.data().join("mon.a/keyring").display().to_string();
    let made = mon(&[&conf[..], &["--mkfs", "--keyring", &keyring]].concat());
    assert!(!made.status.success() && text(&made).contains("who the first monitors are"), "{}", text(&made));
    let monmap = c.dir.path().join("monmap").display().to_string();
    c.ceph(&format!("mon getmap -o {monmap}"));
    let mkfs = [&conf[..], &["--mkfs", "--keyring", &keyring, "--monmap", &monmap]].concat();
    assert!(mon(&mkfs).status.success());
    refused(&mon(&mkfs), "holds the store of a monitor already");
    let other = "7d3f0a8e-24f5-4b36-9d7e-000000000001";
    refused(&mon(&[&conf[..], &["--fsid", other]].concat()), "belongs to another cluster");
}

fn is_zombie(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('Z'))
}

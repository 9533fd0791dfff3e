//! A small cluster of Ceph's own daemons, for what ours do on it.

use std::cell::RefCell;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};

use serde_json::Value;

use crate::cluster::{binary, mon_port, text, until};

/// One monitor and some OSDs whose stores are memory, and whatever else a test starts there; all of it ends
/// with the test.
pub struct RealCeph {
    dir: tempfile::TempDir,
    daemons: Vec<(String, Child)>,
    ceph: RefCell<Option<Shell>>,
}

/// `ceph` as a process that stays: it takes a second to start when the machine is busy.
struct Shell {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

/// A command in each line, as `ceph` has them; its code, its output and its status in each answer.
const SHELL: &str = r#"
import json, rados, sys
from ceph_argparse import json_command, parse_json_funcsigs, validate_command
r = rados.Rados(conffile=sys.argv[1]); r.connect(timeout=60)
known = {}
for line in sys.stdin:
    valid = known and validate_command(known, line.split())
    if not valid:
        known = parse_json_funcsigs(json_command(r, prefix='get_command_descriptions', timeout=60)[1].decode(), 'cli')
        valid = validate_command(known, line.split())
    if not valid:
        print(json.dumps([-22, '', 'no such command']), flush=True)
        continue
    code, out, status = json_command(r, argdict=dict(valid, format='json'), timeout=60)
    print(json.dumps([code, out.decode() if out else '', status]), flush=True)
"#;

impl Shell {
    fn start(conf: &str) -> Self {
        let mut command = Command::new("/usr/bin/python3");
        command.args(["-c", SHELL, conf]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("python starts");
        let (to, from) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        Self { child, to, from: BufReader::new(from) }
    }

    /// Code, output and status of a command; `None` when the process has ended.
    fn run(&mut self, line: &str) -> Option<(i64, String, String)> {
        writeln!(self.to, "{line}").ok()?;
        let mut answer = String::new();
        self.from.read_line(&mut answer).ok()?;
        serde_json::from_str(&answer).ok()
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A folder in memory, if there is room for it: real monitors sync so often that on a slow disk a test takes
/// minutes.
fn folder_in_memory() -> tempfile::TempDir {
    const ROOM: u64 = 2 << 30;
    let has_room = |at: &str| rustix::fs::statvfs(at).is_ok_and(|s| s.f_bavail * s.f_frsize > ROOM);
    let there = Some("/dev/shm").filter(|at| has_room(at)).and_then(|at| tempfile::tempdir_in(at).ok());
    there.unwrap_or_else(|| tempfile::tempdir().expect("a temporary folder"))
}

const OSDS: u32 = 3;
const FSID: &str = "5a1d2c34-8d1f-4c50-9d0f-6f1f3f0e7a10";

/// Whether Ceph's own daemons are there; the gate has all of them.
pub fn installed() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let there = |program: &&str| std::env::split_paths(&path).any(|dir| dir.join(program).is_file());
    let programs = ["ceph-mon", "ceph-osd", "ceph-mgr", "ceph-authtool", "monmaptool"];
    let missing: Vec<&str> = programs.into_iter().filter(|program| !there(program)).collect();
    assert!(
        missing.is_empty() || std::env::var_os("LOLIGO_REQUIRE_PEERS").is_none(),
        "not installed: {missing:?}"
    );
    if !missing.is_empty() {
        eprintln!("not tried on Ceph's own daemons: {missing:?} are not installed");
    }
    missing.is_empty()
}

impl RealCeph {
    /// With a monitor alone.
    pub fn new() -> Self {
        let dir = folder_in_memory();
        let mut c = Self { dir, daemons: Vec::new(), ceph: RefCell::default() };
        c.write_conf();
        c.write_keyring();
        let (map, keyring, conf) = (c.path("monmap"), c.path("keyring"), c.conf());
        let at = format!("[v2:127.0.0.1:{}/0]", c.port());
        c.run("monmaptool", &["--create", "--addv", "a", &at, "--fsid", FSID, &map]);
        c.run("ceph-mon", &["-c", &conf, "--mkfs", "-i", "a", "--monmap", &map, "--keyring", &keyring]);
        c.start("ceph-mon", "mon.a", &[]);
        c
    }

    /// With its OSDs.
    pub fn with_osds() -> Self {
        let mut c = Self::new();
        let conf = c.conf();
        let made: Vec<Child> = (0..OSDS)
            .map(|id| {
                std::fs::create_dir_all(c.path(&format!("osd.{id}"))).expect("a folder");
                let (id, uuid) = (id.to_string(), format!("00000000-0000-4000-8000-00000000000{id}"));
                let args = ["-c", &conf, "--mkfs", "-i", &id, "--osd-uuid", &uuid];
                c.command("ceph-osd", &args).stderr(Stdio::null()).spawn().expect("it starts")
            })
            .collect();
        for (id, mut made) in made.into_iter().enumerate() {
            assert!(made.wait().expect("a child").success(), "mkfs of osd.{id}");
            // It registers itself with the monitors before it boots.
            c.start("ceph-osd", &format!("osd.{id}"), &[]);
        }
        until("all OSDs", || c.json("osd stat")["num_up_osds"] == OSDS);
        c
    }

    pub fn path(&self, name: &str) -> String {
        self.dir.path().join(name).display().to_string()
    }

    pub fn conf(&self) -> String {
        self.path("ceph.conf")
    }

    /// The monitor's.
    pub fn port(&self) -> String {
        std::fs::read_to_string(self.path("port")).expect("written")
    }

    fn write_conf(&self) {
        let (dir, port) = (self.dir.path().display(), mon_port());
        std::fs::write(self.path("port"), &port).expect("written");
        let conf = format!(
            "[global]\nfsid = {FSID}\nmon host = [v2:127.0.0.1:{port}/0]\nkeyring = {dir}/keyring\nrun dir = {dir}\n\
             admin socket = {dir}/$name.asok\nlog file = {dir}/$name.log\npublic addr = 127.0.0.1\n\
             mon data = {dir}/mon.$id\nosd data = {dir}/osd.$id\nmgr data = {dir}/mgr.$id\nmgr initial modules = iostat\n\
             osd objectstore = memstore\nmemstore device bytes = 1073741824\nosd pool default size = 2\n\
             osd pool default min size = 1\nosd crush chooseleaf type = 0\nosd pool default pg autoscale mode = off\n\
             mon allow pool delete = true\nmon data avail warn = 2\nmon data avail crit = 1\n\
             auth allow insecure global id reclaim = false\nmon warn on msgr2 not enabled = false\n\
             ms bind msgr1 = false\nmgr stats period = 1\nosd heartbeat grace = 6\nosd numa auto affinity = false\n\
             mon osd min down reporters = 1\nosd recovery sleep = 0\nosd recovery sleep hdd = 0\nosd max backfills = 8\n\
             mgr tick period = 1\nosd mon report interval = 1\n"
        );
        std::fs::write(self.conf(), conf).expect("written");
    }

    /// All keys at once, so that nobody has to ask for them.
    fn write_keyring(&self) {
        let keyring = self.path("keyring");
        let mut entities = vec![
            ("mon.".to_owned(), vec!["mon", "allow *"]),
            (
                "client.admin".to_owned(),
                vec!["mon", "allow *", "osd", "allow *", "mgr", "allow *", "mds", "allow *"],
            ),
        ];
        let mgr = vec!["mon", "allow profile mgr", "osd", "allow *", "mds", "allow *"];
        entities.extend(["x", "y"].map(|id| (format!("mgr.{id}"), mgr.clone())));
        let osd = vec!["mon", "allow profile osd", "mgr", "allow profile osd", "osd", "allow *"];
        entities.extend((0..=OSDS).map(|id| (format!("osd.{id}"), osd.clone())));
        for (at, (name, caps)) in entities.iter().enumerate() {
            let mut args = vec![keyring.as_str(), "--gen-key", "-n", name];
            if at == 0 {
                args.insert(0, "-C");
            }
            for pair in caps.chunks(2) {
                args.push("--cap");
                args.extend(pair);
            }
            self.run("ceph-authtool", &args);
        }
    }

    fn command(&self, program: &str, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(args).env("CEPH_CONF", self.conf()).current_dir(self.dir.path()).stdin(Stdio::null());
        command
    }

    /// A program that ends, under a limit that says when something hangs.
    pub fn client(&self, program: &str, args: &[&str]) -> Output {
        let all = [&["--kill-after=5", "240", program], args].concat();
        self.command("timeout", &all).output().expect("it is installed (cargo xtask setup installs it)")
    }

    /// The same, which must succeed; gives its standard output.
    pub fn run(&self, program: &str, args: &[&str]) -> String {
        let out = self.client(program, args);
        assert!(out.status.success(), "{program} {args:?} ended with {}: {}", out.status, text(&out));
        String::from_utf8_lossy(&out.stdout).into_owned()
    }

    /// A command of `ceph`: its output in JSON, or why there is none.
    pub fn try_ceph(&self, line: &str) -> Result<String, String> {
        let mut shell = self.ceph.borrow_mut();
        let answer = shell.get_or_insert_with(|| Shell::start(&self.conf())).run(line);
        match answer {
            Some((code, out, _)) if code >= 0 => Ok(out),
            Some((code, _, status)) => Err(format!("{status} ({code})")),
            None => {
                *shell = None;
                Err("no answer".to_owned())
            }
        }
    }

    /// The same, which must succeed.
    pub fn ceph(&self, line: &str) -> String {
        self.try_ceph(line).unwrap_or_else(|why| panic!("ceph {line}: {why}"))
    }

    /// For what is waited for: null while there is no answer.
    pub fn json(&self, line: &str) -> Value {
        self.try_ceph(line).ok().and_then(|out| serde_json::from_str(&out).ok()).unwrap_or_default()
    }

    /// A daemon of Ceph's by its whole name, in the foreground.
    pub fn start(&mut self, program: &str, name: &str, args: &[&str]) {
        let (_, id) = name.split_once('.').expect("a name");
        let (conf, folder) = (self.conf(), self.path(name));
        std::fs::create_dir_all(folder).expect("a folder");
        let mut command = self.command(program, &[&["-f", "-c", &conf, "-i", id], args].concat());
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
        self.daemons.push((name.to_owned(), child));
    }

    /// A daemon of ours, whose log lines go to `NAME.out`.
    pub fn start_ours(&mut self, name: &str, args: &[&str]) {
        let (kind, id) = name.split_once('.').expect("a name");
        std::fs::create_dir_all(self.path(name)).expect("a folder");
        let log = std::fs::File::create(self.ours_log(name)).expect("a file");
        let (program, conf) = (binary().display().to_string(), self.conf());
        // As the service file of ceph-mgr has it; -d: the log goes to standard error.
        let words = [&[kind, "-d", "--cluster", "ceph", "-c", &conf, "-i", id], args].concat();
        let mut command = self.command(&program, &words);
        let child = command.stderr(log).stdout(Stdio::null()).spawn().expect("loligo starts");
        self.daemons.push((name.to_owned(), child));
    }

    fn ours_log(&self, name: &str) -> PathBuf {
        self.dir.path().join(format!("{name}.out"))
    }

    /// What a daemon of ours has said.
    pub fn said(&self, name: &str) -> String {
        std::fs::read_to_string(self.ours_log(name)).unwrap_or_default()
    }

    /// Waits until a daemon ends by itself; whether it called that a success.
    pub fn ends(&mut self, name: &str) -> bool {
        let at = self.daemons.iter().position(|(n, _)| n == name).expect("it was started");
        let (_, mut child) = self.daemons.remove(at);
        let mut status = None;
        until(&format!("the end of {name}"), || {
            status = child.try_wait().expect("a child");
            status.is_some()
        });
        status.is_some_and(|s| s.success())
    }

    pub fn signal(&self, name: &str, signal: rustix::process::Signal) {
        let (_, child) = self.daemons.iter().find(|(n, _)| n == name).expect("it was started");
        let pid = rustix::process::Pid::from_child(child);
        rustix::process::kill_process(pid, signal).expect("it runs");
    }

    /// Ends a daemon as its service does: an OSD keeps what it has in memory.
    pub fn stop(&mut self, name: &str) {
        self.signal(name, rustix::process::Signal::TERM);
        self.ends(name);
    }

    /// Epochs of all maps that the monitors keep.
    pub fn epochs(&self) -> [u64; 4] {
        let epoch = |line: &str| self.json(line)["epoch"].as_u64().expect("an epoch");
        [epoch("mon dump"), epoch("osd dump"), epoch("mgr dump"), epoch("fs dump")]
    }

    pub fn in_charge(&self, name: &str) {
        until(&format!("mgr.{name} in charge"), || {
            let map = self.json("mgr dump");
            map["available"] == true && map["active_name"] == name
        });
    }
}

impl Drop for RealCeph {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for (name, _) in &self.daemons {
                let said = self.said(name);
                let log = std::fs::read_to_string(self.path(&format!("{name}.log"))).unwrap_or_default();
                for (what, text) in [("out", said), ("log", log)] {
                    let tail: Vec<&str> = text.lines().rev().take(20).collect();
                    eprintln!("--- {name}.{what}");
                    tail.iter().rev().for_each(|line| eprintln!("{line}"));
                }
            }
        }
        for (_, child) in &mut self.daemons {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

//! What an OSD's disks tell of their health: smartctl and nvme are run where they are installed.
//!
//! Source: block_device_get_metrics and what it calls in src/common/blkdev.cc.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use pg::DiskQuestion;
use runtime::{Disk, HostFiles};
use serde_json::{Map, Value, json};
use types::Errno;

/// Bytes that are taken of what a program prints.
const MOST_OUTPUT: u64 = 100 << 10;
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The disks below a path, and the programs that ask them.
#[derive(Debug, Clone)]
pub(crate) struct Disks {
    host: HostFiles,
    below: PathBuf,
    /// Programs of root's, with the words in front of their arguments.
    smartctl: Vec<String>,
    nvme: Vec<String>,
}

impl Disks {
    pub fn below(path: &Path) -> Self {
        // sudo has to go without a password, as for Ceph's daemons.
        let sudo: &[&str] = if rustix::process::geteuid().is_root() { &[] } else { &["sudo", "-n"] };
        let words = |name| sudo.iter().copied().chain([name]).map(str::to_owned).collect();
        let [smartctl, nvme] = ["smartctl", "nvme"].map(words);
        Self { host: HostFiles::default(), below: path.to_owned(), smartctl, nvme }
    }

    pub fn host(&self) -> &HostFiles {
        &self.host
    }

    /// For `ceph osd metadata`.
    pub fn metadata(&self) -> BTreeMap<String, String> {
        runtime::disk_metadata(&self.host.disks_below(&self.below))
    }

    /// Blocks for as long as the question says, for each disk twice.
    pub fn answer(&self, question: &DiskQuestion) -> Value {
        let disks = self.host.disks_below(&self.below);
        match question {
            DiskQuestion::List => disks
                .iter()
                .map(|disk| {
                    let id = disk.id.as_deref().unwrap_or_default();
                    json!({ "device": format!("/dev/{}", disk.name), "device_id": id })
                })
                .collect(),
            DiskQuestion::Smart { of, within } => {
                let wanted = |disk: &&Disk| of.is_none() || disk.id == *of;
                let told = |disk: &Disk| Some((disk.id.clone()?, self.health(disk, *within)?));
                Value::Object(disks.iter().filter(wanted).filter_map(told).collect())
            }
        }
    }

    /// What a disk tells; `None` where Ceph tells nothing either.
    fn health(&self, disk: &Disk, within: Duration) -> Option<Value> {
        let device = format!("/dev/{}", disk.name);
        let failed = |output: &str, errno: Errno| {
            json!({ "error": "smartctl failed", "dev": device, "smartctl_error_code": errno.neg(),
                "smartctl_output": output })
        };
        let mut out = match run(&self.smartctl, &["-a", "--json=o", &device], within) {
            Err(e) => failed(&format!("error spawning smartctl: {e}"), Errno::EINVAL),
            // Its first two bits: it did not understand, or could not open the device. The others tell of
            // the disk.
            Ok(done) if done.code.is_none_or(|code| code & 3 != 0) => {
                // What it prints then is JSON, which Ceph quotes in a text in such a way that it cannot be
                // read: it leaves the disk out.
                if done.stdout.contains('"') {
                    return None;
                }
                let code = done.code.map_or_else(|| "timed out".to_owned(), |code| code.to_string());
                let (err, out) = (done.stderr, done.stdout);
                let text = format!("smartctl returned an error ({code}): stderr:\n{err}\nstdout:\n{out}");
                failed(&text, Errno::EINVAL)
            }
            Ok(done) => match serde_json::from_str::<Map<String, Value>>(&done.stdout) {
                Ok(told) => Value::Object(told),
                Err(_) => json!({ "error": "smartctl returned invalid JSON", "dev": device,
                    "output": done.stdout }),
            },
        };
        let told = out.as_object_mut()?;
        let vendor = disk.vendor.as_deref();
        told.insert("nvme_vendor".to_owned(), vendor.unwrap_or("unknown").into());
        if let Some(vendor) = vendor {
            self.add_of_vendor(told, vendor, &device, within);
        }
        Some(out)
    }

    /// What the maker's own log has.
    fn add_of_vendor(&self, told: &mut Map<String, Value>, vendor: &str, device: &str, within: Duration) {
        const LOG: &str = "nvme_smart_health_information_add_log";
        let mut failed = |text: String| {
            told.insert(format!("{LOG}_error_code"), Errno::EINVAL.neg().into());
            told.insert(format!("{LOG}_error"), text.into());
        };
        match run(&self.nvme, &[vendor, "smart-log-add", "--json", device], within) {
            Err(e) => failed(format!("error spawning nvme command: {e}")),
            Ok(done) if done.code != Some(0) => failed(format!("nvme returned an error: {}", done.stderr)),
            Ok(done) => match serde_json::from_str::<Value>(&done.stdout) {
                Ok(log) => drop(told.insert(LOG.to_owned(), log)),
                Err(_) => {
                    let text = format!("bad json output: {}", done.stdout);
                    told.insert(format!("{LOG}_error"), text.into());
                }
            },
        }
    }
}

/// How a program ended.
struct Done {
    /// `None`: it was ended because it took too long, or by a signal.
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

/// Runs a program for so long at most.
fn run(program: &[String], args: &[&str], within: Duration) -> std::io::Result<Done> {
    let mut words = program.iter().map(String::as_str).chain(args.iter().copied());
    let mut command = Command::new(words.next().unwrap_or_default());
    command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let readers = (reader(stdout)?, reader(stderr)?);
    let code = ended(&mut child, within)?;
    if code.is_none() {
        // What it has started may live on, and keep its output open.
        return Ok(Done { code, stdout: String::new(), stderr: String::new() });
    }
    let text = |reader: std::thread::JoinHandle<String>| reader.join().unwrap_or_default();
    Ok(Done { code, stdout: text(readers.0), stderr: text(readers.1) })
}

/// Reads what is printed. What is too much is read as well, so that the program can end, and forgotten.
fn reader(from: Option<impl Read + Send + 'static>) -> std::io::Result<std::thread::JoinHandle<String>> {
    std::thread::Builder::new().name("disk-output".to_owned()).spawn(move || {
        let Some(mut from) = from else { return String::new() };
        let mut out = Vec::new();
        let _ = from.by_ref().take(MOST_OUTPUT).read_to_end(&mut out);
        let _ = std::io::copy(&mut from, &mut std::io::sink());
        String::from_utf8_lossy(&out).into_owned()
    })
}

fn ended(child: &mut Child, within: Duration) -> std::io::Result<Option<i32>> {
    let begin = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status.code());
        }
        if begin.elapsed() >= within {
            let _ = child.kill();
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMART: DiskQuestion = DiskQuestion::Smart { of: None, within: Duration::from_secs(20) };

    /// A host whose disk `sda` has a file, and programs that do as told.
    fn disks(root: &Path, smartctl: &str, udev: &str) -> Disks {
        let write = |at: &str, text: &str| {
            let at = root.join(at);
            std::fs::create_dir_all(at.parent().expect("a folder")).expect("made");
            std::fs::write(&at, text).expect("written");
            at
        };
        let block = write("block", "");
        let dev = std::os::unix::fs::MetadataExt::dev(&std::fs::metadata(&block).expect("there"));
        let number = format!("{}:{}", rustix::fs::major(dev), rustix::fs::minor(dev));
        write("sys/class/block/sda/dev", &number);
        write(&format!("udev/b{number}"), udev);
        std::fs::create_dir_all(root.join("sys/dev/block")).expect("made");
        let link = root.join("sys/dev/block").join(&number);
        if !link.exists() {
            std::os::unix::fs::symlink(root.join("sys/class/block/sda"), link).expect("linked");
        }
        // The shell reads the program: whoever executes a file that was just written may find it busy.
        let program = |name: &str, text: &str| {
            vec!["/bin/sh".to_owned(), write(name, &format!("{text}\n")).display().to_string()]
        };
        let host = HostFiles { sys: root.join("sys"), udev: root.join("udev"), ..HostFiles::default() };
        let nvme = program("nvme", r#"echo "{\"args\": \"$*\"}""#);
        Disks { host, below: block, smartctl: program("smartctl", smartctl), nvme }
    }

    const UDEV: &str = "E:ID_MODEL=M\nE:ID_SERIAL_SHORT=S\n";

    #[test]
    fn a_disk_is_asked_with_smartctl_and_its_makers_log() {
        let dir = tempfile::tempdir().expect("a folder");
        // Bit 3: the disk fails.
        let d = disks(dir.path(), r#"echo "{\"args\": \"$*\"}"; exit 8"#, UDEV);
        assert_eq!(d.answer(&DiskQuestion::List), json!([{ "device": "/dev/sda", "device_id": "M_S" }]));
        let told = d.answer(&SMART);
        let want = json!({ "M_S": {
            "args": "-a --json=o /dev/sda", "nvme_vendor": "m",
            "nvme_smart_health_information_add_log": { "args": "m smart-log-add --json /dev/sda" },
        } });
        assert_eq!(told, want);
        let of = |id: &str| DiskQuestion::Smart { of: Some(id.to_owned()), within: Duration::from_secs(20) };
        assert_eq!((d.answer(&of("M_S")), d.answer(&of("M_T"))), (want, json!({})));
    }

    #[test]
    fn what_goes_wrong_is_told_as_ceph_tells_it() {
        let dir = tempfile::tempdir().expect("a folder");
        let told = |smartctl: &str| disks(dir.path(), smartctl, UDEV).answer(&SMART)["M_S"].clone();
        let broken = told("echo no >&2; exit 2");
        assert_eq!(
            (&broken["error"], &broken["smartctl_error_code"]),
            (&json!("smartctl failed"), &json!(-22))
        );
        assert_eq!(broken["smartctl_output"], "smartctl returned an error (2): stderr:\nno\n\nstdout:\n");
        assert_eq!(told(r#"echo '{"smartctl": 1}'; exit 2"#), Value::Null, "it is left out");
        assert_eq!(told("echo half")["error"], "smartctl returned invalid JSON");
        assert_eq!(told("echo 7")["output"], "7\n");
        let mut d = disks(dir.path(), "", UDEV);
        d.smartctl = vec!["/none/smartctl".to_owned()];
        d.nvme = vec!["/none/nvme".to_owned()];
        let none = d.answer(&SMART)["M_S"].clone();
        assert!(none["smartctl_output"].as_str().is_some_and(|t| t.starts_with("error spawning smartctl: ")));
        assert_eq!(none["nvme_smart_health_information_add_log_error_code"], -22);
        assert_eq!(disks(dir.path(), "echo '{}'", "").answer(&SMART), json!({}), "a disk without an id");
    }

    #[test]
    fn a_program_that_does_not_end_is_ended_and_one_that_prints_too_much_is_cut() {
        let dir = tempfile::tempdir().expect("a folder");
        let d = disks(dir.path(), "sleep 5", UDEV);
        let told = d.answer(&DiskQuestion::Smart { of: None, within: Duration::from_millis(200) });
        let said = told["M_S"]["smartctl_output"].as_str().expect("text");
        assert!(said.starts_with("smartctl returned an error (timed out)"), "{said}");
        let d = disks(dir.path(), "head -c 1000000 /dev/zero | tr '\\0' x", UDEV);
        let cut = d.answer(&SMART)["M_S"]["output"].as_str().map(str::len);
        assert_eq!(cut, Some(MOST_OUTPUT as usize));
    }
}

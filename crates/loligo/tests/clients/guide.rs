//! The manual in docs/guide: its commands do what it says, and it leaves out no health code and no option.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cluster::{binary, text};

const RUNNER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/guide.py");
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Blocks that nothing runs, each with its reason in the manual.
const MOST_NOT_RUN: usize = 4;

fn sources() -> PathBuf {
    Path::new(ROOT).join("docs/guide/src")
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Chapters that have commands: each has a test below.
const CHAPTERS: [&str; 14] = [
    "first-cluster",
    "hosts",
    "users",
    "block",
    "objects",
    "files",
    "coded",
    "monitoring",
    "disks",
    "lost",
    "troubleshooting",
    "options",
    "upgrades",
    "ceph",
];

/// Runs a chapter on a machine of its own, as far as namespaces make one. What it starts ends with it.
fn run(chapter: &str) {
    if !rustix::process::getuid().is_root() {
        eprintln!("a machine of its own needs root: nothing of {chapter} was tried");
        return;
    }
    let dir = tempfile::tempdir().expect("a temporary folder");
    let page = sources().join(format!("{chapter}.md"));
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", "300", "unshare", "--mount", "--net", "--uts", "--ipc", "--pid"]);
    command.args(["--fork", "--kill-child", "--mount-proc", "/usr/bin/python3", "-B", RUNNER, "run"]);
    let out = command.arg(page).arg(binary()).arg(dir.path()).output().expect("the runner starts");
    let said = text(&out);
    eprintln!("{chapter}:\n{said}");
    let required = std::env::var_os("LOLIGO_REQUIRE_PEERS").is_some();
    assert!(out.status.success(), "{chapter} is not true");
    assert!(!required || !said.lines().any(|l| l.starts_with("left out: ") && !l.ends_with("needs aws")));
}

#[test]
fn a_first_cluster() {
    run("first-cluster");
}

#[test]
fn several_hosts() {
    run("hosts");
}

#[test]
fn users_and_keys() {
    run("users");
}

#[test]
fn block_images() {
    run("block");
}

#[test]
fn object_storage() {
    run("objects");
}

#[test]
fn file_systems() {
    run("files");
}

#[test]
fn erasure_coded_pools() {
    run("coded");
}

#[test]
fn monitoring() {
    run("monitoring");
}

#[test]
fn disks_and_space() {
    run("disks");
}

#[test]
fn lost_monitors_and_osds() {
    run("lost");
}

#[test]
fn troubleshooting_by_symptom() {
    run("troubleshooting");
}

#[test]
fn options() {
    run("options");
}

#[test]
fn upgrades_and_formats() {
    run("upgrades");
}

#[test]
fn from_ceph_and_back() {
    run("ceph");
}

/// Every block says whether it is run, and few are not.
#[test]
fn blocks_are_marked_and_nearly_all_are_run() {
    let pages: Vec<PathBuf> = std::fs::read_dir(sources())
        .expect("the manual")
        .map(|entry| entry.expect("entry").path())
        .filter(|path| path.extension().is_some_and(|e| e == "md"))
        .collect();
    let has_commands = |path: &&PathBuf| read(path).contains("\n```sh (run");
    let names: BTreeSet<String> = pages
        .iter()
        .filter(has_commands)
        .map(|path| path.file_stem().unwrap_or_default().to_string_lossy().into_owned())
        .collect();
    assert_eq!(names, CHAPTERS.map(str::to_owned).into(), "chapters with commands that no test runs");
    let out = Command::new("/usr/bin/python3").args(["-B", RUNNER, "marks"]).args(&pages).output();
    let out = out.expect("the runner starts");
    let said = text(&out);
    assert!(out.status.success(), "{said}");
    let not_run = said.lines().filter(|line| line.starts_with("not run: ")).count();
    assert!(not_run <= MOST_NOT_RUN, "{said}");
    assert!(said.lines().count() > not_run, "{said}");
}

/// Words of a health code's form that a file has in quotation marks, but for its tests.
fn codes(text: &str) -> BTreeSet<String> {
    let code = text.split("#[cfg(test)]").next().unwrap_or_default();
    let is_code = |word: &&str| {
        let plain = |b: u8| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_';
        word.contains('_') && word.len() > 5 && word.bytes().all(plain) && !word.starts_with('_')
    };
    code.split('"').filter(is_code).map(str::to_owned).collect()
}

fn rust_files(dir: &Path, out: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).expect("a folder") {
        let path = entry.expect("entry").path();
        match path.is_dir() {
            true => rust_files(&path, out),
            false if path.extension().is_some_and(|e| e == "rs") => out.push(path),
            false => {}
        }
    }
}

/// All codes of the source have a heading in the chapter on trouble, and there are no others.
#[test]
fn every_health_code_is_explained() {
    let mut files = Vec::new();
    for place in ["monitor/src/health", "manager/src/health", "manager/src/autoscaler"] {
        rust_files(&Path::new(ROOT).join("crates").join(place), &mut files);
    }
    let single = [
        "manager/src/health.rs",
        "manager/src/crashes.rs",
        "manager/src/device_health/checks.rs",
        "manager/src/prometheus/mod.rs",
        "messages/src/mds.rs",
        "monitor/src/state/digest.rs",
    ];
    files.extend(single.map(|file| Path::new(ROOT).join("crates").join(file)));
    // Checks are made in these files alone.
    for of in ["monitor", "manager", "pg", "daemons", "reporter"] {
        let mut all = Vec::new();
        rust_files(&Path::new(ROOT).join("crates").join(of).join("src"), &mut all);
        let makes = |path: &&PathBuf| {
            let text = read(path);
            let code = text.split("#[cfg(test)]").next().unwrap_or_default();
            code.contains("HealthCheck { severity") || code.contains("HealthCheck {\n")
        };
        let others: Vec<&PathBuf> = all.iter().filter(makes).filter(|path| !files.contains(path)).collect();
        assert!(others.is_empty(), "codes of these files are not looked for: {others:?}");
    }
    let mut raised: BTreeSet<String> = files.iter().flat_map(|file| codes(&read(file))).collect();
    raised.retain(|code| !code.starts_with("HEALTH_"));
    // Named by the type of a CRUSH bucket.
    assert!(files.iter().any(|file| read(file).contains("\"OSD_{}_DOWN\"")));
    raised.insert("OSD_HOST_DOWN".to_owned());
    let page = read(&sources().join("troubleshooting.md"));
    let headings = page.lines().filter_map(|line| line.strip_prefix("### "));
    let explained: BTreeSet<String> = headings.flat_map(|line| line.split(", ")).map(str::to_owned).collect();
    let missing: Vec<&String> = raised.difference(&explained).collect();
    assert!(missing.is_empty(), "not in docs/guide/src/troubleshooting.md: {missing:?}");
    let unknown: Vec<&String> = explained.difference(&raised).collect();
    assert!(unknown.is_empty(), "no code raises them: {unknown:?}");
}

/// What the chapter on options says to act does act, and what it says to have no effect has none.
#[test]
fn options_are_what_they_are_said_to_be() {
    let effects = read(&Path::new(ROOT).join("crates/admin/src/options/effects.tsv"));
    let acts: BTreeSet<&str> = effects.lines().filter_map(|line| line.strip_suffix("\tacts")).collect();
    let page = read(&sources().join("options.md"));
    let rows = page.lines().filter(|line| line.starts_with("| `"));
    let names: Vec<&str> = rows
        .flat_map(|row| row.split('|').nth(1).unwrap_or_default().split('`').skip(1).step_by(2))
        .collect();
    assert!(names.len() > 60, "{names:?}");
    let idle: Vec<&&str> = names.iter().filter(|name| !acts.contains(**name)).collect();
    assert!(idle.is_empty(), "these do not act: {idle:?}");
}

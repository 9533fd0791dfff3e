//! Builds the program as it should be installed: compiled a second time, with what a training load showed of the first.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{cargo_command, run, step};

/// Where everything about the training lies, from the repository's root.
const FOLDER: &str = "target/trained";

/// Where the program ends up, as with `cargo build --profile ship`.
const PROGRAM: &str = "target/ship/loligo";

/// What the daemons do while they are watched: the loads that the project exists for. Every block is compared.
const LOADS: [&[&str]; 2] = [
    &["-b", "4K", "--reads", "0,70,100", "-t", "1,8,32", "-s", "3", "--ramp", "1"],
    &["-b", "4M", "--reads", "0,100", "-t", "8", "-s", "3", "--ramp", "0"],
];

/// Builds, trains, builds again.
pub fn build(root: &Path) -> Result<()> {
    let rustc = rustc_says(root, &["-vV"])?;
    let host = rustc.lines().find_map(|l| l.strip_prefix("host: ")).context("rustc -vV names no host")?;
    let merge = profdata(root, host)?;
    let folder = root.join(FOLDER);
    let (raw, profile) = (folder.join("raw"), folder.join("loligo.profdata"));
    if raw.exists() {
        std::fs::remove_dir_all(&raw).with_context(|| format!("cannot empty {}", raw.display()))?;
    }
    step("build that counts", || {
        compile(root, host, "counting", &format!("-Cprofile-generate={}", raw.display()))
    })?;
    step("training", || train(root, &folder.join("counting").join(host).join("ship/loligo"), &folder))?;
    step("what was counted", || {
        let mut command = Command::new(&merge);
        command.args(["merge", "--output"]).arg(&profile).arg(&raw);
        run(command)
    })?;
    step("build that uses it", || {
        compile(root, host, "using", &format!("-Cprofile-use={}", profile.display()))
    })?;
    let program = root.join(PROGRAM);
    std::fs::create_dir_all(program.parent().context("a file lies in a folder")?)?;
    // A copy under another name first: the one that is replaced may be running.
    let fresh = program.with_extension("new");
    std::fs::copy(folder.join("using").join(host).join("ship/loligo"), &fresh)
        .and_then(|_| std::fs::rename(&fresh, &program))
        .with_context(|| format!("cannot write {}", program.display()))?;
    eprintln!("== {PROGRAM} is built");
    Ok(())
}

/// Compiles the program with a flag for its own code: a target that is named keeps it away from build scripts and macros.
fn compile(root: &Path, host: &str, name: &str, flag: &str) -> Result<()> {
    let mut command =
        cargo_command(root, &["build", "--profile", "ship", "--package", "loligo", "--target", host]);
    command.arg("--target-dir").arg(root.join(FOLDER).join(name));
    let set = command.get_envs().find(|(key, _)| *key == "RUSTFLAGS").and_then(|(_, value)| value);
    let mut flags = set.map(|flags| flags.to_string_lossy().into_owned()).unwrap_or_default();
    flags.push(' ');
    flags.push_str(flag);
    command.env("RUSTFLAGS", flags.trim());
    run(command)
}

/// Runs a cluster of the counting program under load; each process writes its counts when it ends in order.
fn train(root: &Path, program: &Path, folder: &Path) -> Result<()> {
    let data = folder.join("data");
    if data.exists() {
        // Of a training that was interrupted.
        let _ = loligo(root, program, &["down", "--data", &data.to_string_lossy()]);
        std::fs::remove_dir_all(&data).with_context(|| format!("cannot remove {}", data.display()))?;
    }
    let place = data.to_string_lossy();
    let up = ["up", "--data", &place, "--processes", "--detach", "--osds", "3", "--osd-size", "4G"];
    let loaded = || {
        loligo(root, program, &up)?;
        for words in LOADS {
            let bench = ["bench", "block", "--copies", "2", "--data", &place];
            loligo(root, program, &[&bench[..], words].concat())?;
        }
        // Once more from what is on the disks.
        loligo(root, program, &["down", "--data", &place])?;
        loligo(root, program, &up)
    };
    let result = loaded();
    let stopped = loligo(root, program, &["down", "--data", &place]);
    result.and(stopped)?;
    std::fs::remove_dir_all(&data).with_context(|| format!("cannot remove {}", data.display()))
}

fn loligo(root: &Path, program: &Path, words: &[&str]) -> Result<()> {
    let mut command = Command::new(program);
    command.args(words).current_dir(root);
    run(command)
}

/// The program that puts counts together; it has to be of the compiler's own version.
fn profdata(root: &Path, host: &str) -> Result<PathBuf> {
    let sysroot = rustc_says(root, &["--print", "sysroot"])?;
    let tool = Path::new(sysroot.trim()).join("lib/rustlib").join(host).join("bin/llvm-profdata");
    if !tool.is_file() {
        bail!("{} is missing: rustup component add llvm-tools", tool.display());
    }
    Ok(tool)
}

fn rustc_says(root: &Path, words: &[&str]) -> Result<String> {
    let out = Command::new("rustc").args(words).current_dir(root).output().context("cannot run rustc")?;
    if !out.status.success() {
        bail!("rustc {} ended with {}", words.join(" "), out.status);
    }
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

//! Installs Debian's packages that the tests use: Ceph's clients and tools, a fast linker.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

/// Program that shows a package is there, and the package.
const NEEDED: [(&str, &str); 26] = [
    ("mold", "mold"),
    ("curl", "curl"),
    ("promtool", "prometheus"),
    ("ceph", "ceph-common"),
    ("rados", "ceph-common"),
    ("crushtool", "ceph-base"),
    ("osdmaptool", "ceph-base"),
    ("monmaptool", "ceph-base"),
    ("ceph-authtool", "ceph-common"),
    ("ceph-mds", "ceph-mds"),
    ("ceph-mgr", "ceph-mgr"),
    ("ceph-mon", "ceph-mon"),
    ("ceph-osd", "ceph-osd"),
    ("radosgw", "radosgw"),
    ("s3cmd", "s3cmd"),
    ("rclone", "rclone"),
    ("fio", "fio"),
    ("qemu-img", "qemu-utils"),
    ("debugfs", "e2fsprogs"),
    ("rbd", "ceph-common"),
    ("nbdcopy", "libnbd-bin"),
    ("nft", "nftables"),
    ("ip", "iproute2"),
    ("qemu-x86_64-static", "qemu-user-static"),
    ("qemu-aarch64-static", "qemu-user-static"),
    ("aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu"),
];

/// Module of Python, and its package.
const PYTHON: [(&str, &str); 5] = [
    ("rados", "python3-rados"),
    ("rbd", "python3-rbd"),
    ("cephfs", "python3-cephfs"),
    ("boto3", "python3-boto3"),
    // Of Ceph's module prometheus.
    ("cherrypy", "python3-cherrypy3"),
];

/// Debian's compiler, for it comes with aarch64's standard library as a package.
pub const CROSS_RUSTC: &str = "/usr/bin/rustc";
const CROSS_LIBRARY: &str = "/usr/lib/rustlib/aarch64-unknown-linux-gnu/lib";
const CROSS_PACKAGES: [&str; 3] = ["rustc-web", "libstd-rust-web-dev:arm64", "libc6-dev-arm64-cross"];

pub fn has_program(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(name).is_file())
}

pub fn linker_is_mold() -> bool {
    Command::new("ld").arg("--version").output().is_ok_and(|out| out.stdout.starts_with(b"mold"))
}

/// Installs what is missing when run as root; otherwise says what to install and fails.
pub fn install() -> Result<()> {
    let mut packages: Vec<&str> =
        NEEDED.iter().filter(|(program, _)| !has_program(program)).map(|(_, package)| *package).collect();
    for (module, package) in PYTHON {
        if !python_has(module) {
            packages.push(package);
        }
    }
    if !qemu_has_rbd() {
        packages.push("qemu-block-extra");
    }
    let cross = Path::new(CROSS_RUSTC).is_file() && Path::new(CROSS_LIBRARY).is_dir();
    if !cross {
        packages.extend(CROSS_PACKAGES);
    }
    packages.dedup();
    if packages.is_empty() {
        return Ok(());
    }
    if !is_root()? {
        bail!(
            "missing Debian packages; run as root: dpkg --add-architecture arm64; apt-get update; \
             apt-get install --no-install-recommends {}",
            packages.join(" ")
        );
    }
    eprintln!("== installing {}", packages.join(" "));
    if !cross {
        let status = Command::new("dpkg").args(["--add-architecture", "arm64"]).status()?;
        if !status.success() {
            bail!("dpkg --add-architecture arm64 ended with {status}");
        }
    }
    apt(&["update", "-qq"])?;
    let mut args = vec!["install", "-y", "-qq", "--no-install-recommends"];
    args.extend(&packages);
    apt(&args)
}

fn python_has(module: &str) -> bool {
    let import = format!("import {module}");
    Command::new("/usr/bin/python3").args(["-c", &import]).output().is_ok_and(|o| o.status.success())
}

/// qemu's rbd driver is a module of its own: without it the protocol is unknown.
fn qemu_has_rbd() -> bool {
    let found = Command::new("qemu-img").args(["info", "rbd:none/none:conf=/dev/null"]).output();
    found.is_ok_and(|out| !String::from_utf8_lossy(&out.stderr).contains("Unknown protocol"))
}

fn is_root() -> Result<bool> {
    let out = Command::new("id").arg("-u").output().context("cannot run id")?;
    Ok(out.stdout.trim_ascii() == b"0")
}

fn apt(args: &[&str]) -> Result<()> {
    let status = Command::new("apt-get").args(args).env("DEBIAN_FRONTEND", "noninteractive").status()?;
    if !status.success() {
        bail!("apt-get {} ended with {status}", args.join(" "));
    }
    Ok(())
}

//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// A storage cluster that Ceph's own clients use, in one binary.
#[derive(Debug, Parser)]
#[command(name = "loligo", version, arg_required_else_help = true, after_help = EXAMPLES)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

const EXAMPLES: &str = "\
Examples:
  loligo up                          run a cluster of three OSDs in ./data until Ctrl-C
  loligo up --detach                 the same in the background; returns when it is healthy
  CEPH_CONF=data/ceph.conf ceph -s   ask it with Ceph's own tools (Debian package ceph-common)
  loligo down                        stop it; the data stays
  loligo store fsck data/osd.0       check the object store of a stopped OSD";

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start a cluster in a folder, creating it when the folder is new.
    Up(UpArgs),
    /// Stop the cluster of a folder; its data stays.
    Down(DownArgs),
    /// Show which daemons of a folder run, and the cluster's health.
    Status(StatusArgs),
    /// Run all daemons of a folder in this process (what `up` starts in the background).
    #[command(hide = true)]
    Serve(ServeArgs),
    /// Run one monitor of a folder in the foreground.
    Mon(DaemonArgs),
    /// Run one OSD of a folder in the foreground.
    Osd(DaemonArgs),
    /// Run one manager of a folder in the foreground.
    Mgr(DaemonArgs),
    /// Work with block images: in Ceph's format, on Loligo and on Ceph.
    Rbd(Box<crate::rbd::RbdArgs>),
    /// Look into the object store of a stopped OSD.
    #[command(subcommand)]
    Store(StoreCommand),
    /// Work with the objects of a pool, as Ceph's `rados` does.
    Rados(Box<crate::rados::RadosArgs>),
    /// Load a cluster, check its data, and show rates, latencies and CPU per operation.
    #[command(subcommand)]
    Bench(crate::bench::BenchArgs),
}

#[derive(Debug, Clone, Args)]
pub struct UpArgs {
    /// Folder of the cluster: configuration, keyring, and the daemons' data.
    #[arg(long, value_name = "DIR", default_value = "data", env = "LOLIGO_DATA")]
    pub data: PathBuf,
    /// Number of OSDs. On an existing cluster a larger number adds OSDs. [default: 3 for a new cluster]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub osds: Option<u32>,
    /// Number of monitors; an odd number, of which a majority has to run. On an existing cluster a larger number adds
    /// monitors. [default: 1 for a new cluster]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=9))]
    pub mons: Option<u32>,
    /// Size of each new OSD's sparse file: bytes, or a number with K, M, G or T.
    #[arg(long, value_name = "BYTES", default_value = "10G", value_parser = parse_size)]
    pub osd_size: u64,
    /// Port of the first monitor. [default: 3300, or the next free one, for a new cluster]
    #[arg(long, value_name = "PORT")]
    pub mon_port: Option<u16>,
    /// Return when the cluster is healthy, leaving it running in the background.
    #[arg(long)]
    pub detach: bool,
    /// Run each daemon as a process of its own, with a pid file of its name (DIR/osd.0.pid).
    #[arg(long)]
    pub processes: bool,
    /// Authentication of a new cluster: cephx, or none for a closed test network.
    #[arg(long, value_name = "METHOD", default_value = "cephx", value_parser = ["cephx", "none"])]
    pub auth: String,
    /// Seconds to wait for a healthy cluster with --detach.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub timeout: u64,
}

#[derive(Debug, Clone, Args)]
pub struct DownArgs {
    /// Folder of the cluster.
    #[arg(long, value_name = "DIR", default_value = "data", env = "LOLIGO_DATA")]
    pub data: PathBuf,
}

#[derive(Debug, Clone, Args)]
pub struct StatusArgs {
    /// Folder of the cluster.
    #[arg(long, value_name = "DIR", default_value = "data", env = "LOLIGO_DATA")]
    pub data: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Args)]
pub struct ServeArgs {
    /// Folder of the cluster.
    #[arg(long, value_name = "DIR", default_value = "data", env = "LOLIGO_DATA")]
    pub data: PathBuf,
}

#[derive(Debug, Clone, Args)]
pub struct DaemonArgs {
    /// Folder of the cluster.
    #[arg(long, value_name = "DIR", default_value = "data", env = "LOLIGO_DATA")]
    pub data: PathBuf,
    /// Which daemon: `a` for mon.a, `0` for osd.0, `x` for mgr.x.
    #[arg(long)]
    pub id: String,
}

#[derive(Debug, Clone, Subcommand)]
pub enum StoreCommand {
    /// Check every structure and checksum; exit status 1 when something is wrong.
    Fsck(StoreArgs),
    /// List objects.
    List(StoreArgs),
    /// Write one object's data to standard output.
    Get(StoreGetArgs),
    /// Write every object's data to files in a folder.
    Export(StoreExportArgs),
}

#[derive(Debug, Clone, Args)]
pub struct StoreArgs {
    /// The OSD's folder (data/osd.0), or its block device or file.
    pub osd: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Args)]
pub struct StoreGetArgs {
    /// The OSD's folder (data/osd.0), or its block device or file.
    pub osd: PathBuf,
    /// Pool number.
    pub pool: i64,
    /// The object's name.
    pub object: String,
    /// The object's namespace.
    #[arg(long, default_value = "")]
    pub namespace: String,
}

#[derive(Debug, Clone, Args)]
pub struct StoreExportArgs {
    /// The OSD's folder (data/osd.0), or its block device or file.
    pub osd: PathBuf,
    /// The folder to write into; it must be empty or absent.
    pub into: PathBuf,
}

/// Parses `10G`, `512M`, `4096`, `2TiB`.
fn parse_size(text: &str) -> Result<u64, String> {
    let lower = text.trim().to_ascii_lowercase();
    let digits = lower.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift =
        match lower.get(digits.len()..).unwrap_or_default().trim_end_matches("ib").trim_end_matches('b') {
            "" => 0,
            "k" => 10,
            "m" => 20,
            "g" => 30,
            "t" => 40,
            unit => return Err(format!("unknown unit '{unit}': use K, M, G or T")),
        };
    let number: u64 =
        digits.parse().map_err(|_| format!("'{text}' is not a size such as 10G or 536870912"))?;
    let bytes = number.checked_shl(shift).filter(|b| b >> shift == number).ok_or("too large")?;
    if bytes < MIN_OSD_BYTES {
        return Err(format!("an OSD needs at least {} MiB", MIN_OSD_BYTES >> 20));
    }
    Ok(bytes)
}

/// Below this an OSD has no room for its log and its reserve.
pub const MIN_OSD_BYTES: u64 = 64 << 20;

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn sizes() {
        assert_eq!(parse_size("10G"), Ok(10 << 30));
        assert_eq!(parse_size("64MiB"), Ok(64 << 20));
        assert_eq!(parse_size("1073741824"), Ok(1 << 30));
        for bad in ["", "G", "10X", "1K", "99999999999T", "-1"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
    }
}

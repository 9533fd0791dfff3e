//! The command line.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, CommandFactory, Parser, Subcommand};

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
    /// Run a monitor in the foreground, by a ceph.conf or from a folder of `up`; or make its store.
    #[command(after_help = MON_HELP)]
    Mon(DaemonArgs),
    /// Run an OSD in the foreground, by a ceph.conf or from a folder of `up`; or make its store.
    #[command(after_help = OSD_HELP)]
    Osd(DaemonArgs),
    /// Run a manager in the foreground, by a ceph.conf or from a folder of `up`.
    #[command(after_help = MGR_HELP)]
    Mgr(DaemonArgs),
    /// Run a metadata server of file systems in the foreground, by a ceph.conf or from a folder of `up`.
    #[command(after_help = MDS_HELP)]
    Mds(DaemonArgs),
    /// Work with block images: in Ceph's format, on Loligo and on Ceph.
    Rbd(Box<crate::rbd::RbdArgs>),
    /// Look into the object store of a stopped OSD.
    #[command(subcommand)]
    Store(StoreCommand),
    /// Work with the objects of a pool, as Ceph's `rados` does.
    Rados(Box<crate::rados::RadosArgs>),
    /// Serve S3 from a cluster, as Ceph's radosgw does and beside it.
    #[command(after_help = crate::rgw::HELP)]
    Rgw(Box<crate::rgw::RgwArgs>),
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
    /// Address of this host that the cluster listens on, for guests, containers and neighbours; beyond
    /// loopback cephx is required. An existing cluster that does not run moves there with its data, and its
    /// clients need the new ceph.conf. [default: 127.0.0.1 for a new cluster]
    #[arg(long, value_name = "ADDR", value_parser = parse_listen)]
    pub listen: Option<IpAddr>,
    /// Return when the cluster is healthy, leaving it running in the background.
    #[arg(long)]
    pub detach: bool,
    /// Run each daemon as a process of its own, with a pid file of its name (DIR/osd.0.pid).
    #[arg(long)]
    pub processes: bool,
    /// Authentication of a new cluster: cephx, or none for a closed test network.
    #[arg(long, value_name = "METHOD", default_value = "cephx", value_parser = ["cephx", "none"])]
    pub auth: String,
    /// What a new cluster's machines are like: `small` sets the OSDs' options for nodes with 1 GB of memory.
    #[arg(long, value_enum, default_value_t)]
    pub profile: Profile,
    /// Serve S3 as well: a gateway with a user, whose keys are printed and lie in DIR/s3.env.
    #[arg(long)]
    pub s3: bool,
    /// Port of the gateway. [default: 7480, or the next free one]
    #[arg(long, value_name = "PORT", requires = "s3")]
    pub s3_port: Option<u16>,
    /// Make a file system named cephfs as well, start a metadata server, and print how it is mounted.
    #[arg(long)]
    pub fs: bool,
    /// Serve the dashboard as well, and print its address and a password that lets somebody sign in once.
    #[arg(long)]
    pub dashboard: bool,
    /// Seconds to wait for a healthy cluster with --detach.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub timeout: u64,
}

/// Options that are set together.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    #[default]
    Default,
    /// Nodes with 1 GB of memory, several daemons on each.
    Small,
}

impl Profile {
    /// Lines of the configuration file.
    pub fn options(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Default => &[],
            Self::Small => &[
                ("osd memory target", "64M"),
                ("osd map cache size", "40"),
                ("osd map message max", "32"),
                ("osd min pg log entries", "100"),
                ("osd max pg log entries", "1000"),
                ("osd pg log dups tracked", "500"),
                ("osd client message cap", "64"),
                ("osd client message size cap", "16777216"),
                ("osd max push cost", "2097152"),
                ("osd recovery max active", "1"),
                ("osd max backfills", "1"),
                ("osd backfill scan max", "64"),
            ],
        }
    }
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
    /// Which daemon: `a` for mon.a, `0` for osd.0, `x` for mgr.x.
    #[arg(short = 'i', long)]
    pub id: Option<String>,
    /// The same with its type: `osd.0`.
    #[arg(short = 'n', long, value_name = "TYPE.ID", conflicts_with = "id")]
    pub name: Option<String>,
    /// Configuration file. [default: $CEPH_CONF, /etc/ceph/ceph.conf]
    #[arg(short = 'c', long, value_name = "FILE")]
    pub conf: Option<PathBuf>,
    /// Run a daemon of this folder, made by `loligo up`. [default: the folder of $CEPH_CONF, or ./data, when
    /// it is one and no -c is given]
    #[arg(long, value_name = "DIR", env = "LOLIGO_DATA")]
    pub data: Option<PathBuf>,
    /// Make the daemon's store in its folder (mon_data, osd_data), and end.
    #[arg(long)]
    pub mkfs: bool,
    /// With --mkfs of an OSD: make its key as well.
    #[arg(long, requires = "mkfs")]
    pub mkkey: bool,
    /// Register an OSD with the monitors as client.bootstrap-osd, make its folder, key and store, and end. With --id:
    /// another disk for an OSD that was destroyed.
    #[arg(long, conflicts_with = "mkfs")]
    pub new: bool,
    /// Give an OSD that was destroyed (`ceph osd destroy`) an empty disk in place of the one in its folder, and end.
    #[arg(long, conflicts_with_all = ["mkfs", "new"])]
    pub replace: bool,
    /// Of a monitor that does not run: write its monitor map to FILE, and end.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["mkfs", "new", "replace"])]
    pub extract_monmap: Option<PathBuf>,
    /// Of a monitor that does not run, when the stores of a majority are lost: make it the only one, as the map in FILE says.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["mkfs", "new", "replace"])]
    pub inject_monmap: Option<PathBuf>,
    /// With --inject-monmap: the other monitors are lost for good.
    #[arg(long, requires = "inject_monmap")]
    pub yes_i_really_mean_it: bool,
    /// With --new: register as client.NAME. [default: bootstrap-osd]
    #[arg(long, value_name = "NAME")]
    pub login: Option<String>,
    /// With --mkfs or --new of an OSD: its block device. Without one, a sparse file is made.
    #[arg(long, value_name = "PATH")]
    pub device: Option<PathBuf>,
    /// With --mkfs or --new of an OSD: size of the sparse file. [default: bluestore_block_size, which is 100G]
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    pub size: Option<u64>,
    /// With --mkfs or --new of an OSD: its device class. [default: ssd or hdd, by what the kernel says]
    #[arg(long, value_name = "CLASS")]
    pub class: Option<String>,
    /// Of a manager on Ceph's monitors: take over even where modules are in use that it does not stand for.
    #[arg(long)]
    pub force: bool,
    /// Accepted for the sake of service files: it always runs in the foreground.
    #[arg(short = 'f', long, hide = true)]
    pub foreground: bool,
    /// Accepted for the sake of service files: there is no other name.
    #[arg(long, hide = true, value_parser = parse_cluster)]
    pub cluster: Option<String>,
    /// `name=value`, from options that are no arguments of ours.
    #[arg(long = SET, hide = true)]
    pub set: Vec<String>,
}

/// How options reach clap.
const SET: &str = "set-option";

const MON_HELP: &str = "\
Any option of Ceph can be given as --option VALUE, and wins over the configuration file. Those that matter:
  --mon-data DIR        where the store lies  [/var/lib/ceph/mon/ceph-ID]
  --monmap FILE         with --mkfs: the monitors, from monmaptool or `ceph mon getmap`; without it, mon_initial_members
                        and mon_host name the first ones
  --keyring FILE        with --mkfs: the key of mon., and others that the cluster begins with
  --fsid UUID           the cluster
  --public-addr ADDR    where it listens, when the monitor map does not say so  (or public_network)
  --log-file FILE       log lines, instead of standard error

When a majority of the monitors' stores is lost, one that is left goes on alone. Stop it, and see that the others never run again:
  loligo mon --id a --extract-monmap map
  monmaptool map --rm b --rm c
  loligo mon --id a --inject-monmap map --yes-i-really-mean-it
Then start it; others join it with empty folders (loligo up --mons 3, or loligo mon --mkfs with `ceph mon getmap`).";

const OSD_HELP: &str = "\
Any option of Ceph can be given as --option VALUE, and wins over the configuration file. Those that matter:
  --osd-data DIR        where the store (`block`) and the key lie  [/var/lib/ceph/osd/ceph-ID]
  --osd-uuid UUID       with --mkfs: the UUID that it was registered under (`ceph osd new`)
  --public-network NET, --public-addr ADDR      clients, and heartbeats
  --cluster-network NET, --cluster-addr ADDR    the other OSDs, and heartbeats  [as public]
  --crush-location TEXT   'root=default rack=r1 host=h1'  [root=default host=HOSTNAME]
  --osd-crush-initial-weight W   [its size in TiB]
  --log-file FILE       log lines, instead of standard error

A new OSD in two commands, given /var/lib/ceph/bootstrap-osd/ceph.keyring:
  loligo osd --new --device /dev/sdb      prints its number
  loligo osd --id NUMBER";

const MGR_HELP: &str = "\
Any option of Ceph can be given as --option VALUE, and wins over the configuration file. Those that matter:
  --mgr-data DIR        where its keyring lies  [/var/lib/ceph/mgr/ceph-ID]
  --public-network NET, --public-addr ADDR      where it listens
  --log-file FILE       log lines, instead of standard error

It takes the place of ceph-mgr 16.2 on Ceph's own monitors and OSDs as well, with that manager's name, ceph.conf and keyring,
active or standing by beside others: what ceph-mgr is started with is understood, -k, -m and -d among it. It stands for the
modules balancer, crash, iostat, pg_autoscaler, progress, rbd_support (but for migrations and snapshots of mirrored images)
and status. While others are switched on and in use (cephadm,
dashboard, prometheus ...) it stays out of the way and says so; with --force it takes over all the same.";

const MDS_HELP: &str = "\
Any option of Ceph can be given as --option VALUE, and wins over the configuration file. Those that matter:
  --mds-data DIR        where its keyring lies  [/var/lib/ceph/mds/ceph-ID]
  --public-network NET, --public-addr ADDR      where it listens
  --mds-join-fs NAME    the file system that it would rather serve
  --log-file FILE       log lines, instead of standard error

Its key, given client.admin's:
  ceph auth get-or-create mds.a mon 'allow profile mds' mgr 'allow profile mds' mds 'allow *' osd 'allow rwx'";

impl DaemonArgs {
    /// Options of Ceph's on the command line.
    pub fn given(&self) -> anyhow::Result<BTreeMap<String, String>> {
        let split = |text: &String| {
            let (name, value) = text.split_once('=').unwrap_or((text, ""));
            (name.to_owned(), value.to_owned())
        };
        let out: BTreeMap<String, String> = self.set.iter().map(split).collect();
        for (name, value) in &out {
            let Some(option) = admin::options::find(name) else { continue };
            if let Err(why) = option.parse_value(value) {
                anyhow::bail!("--{}: {why}", name.replace('_', "-"));
            }
        }
        Ok(out)
    }
}

/// Turns Ceph's options among a daemon's arguments into a form that clap knows; everything else stays as it is.
pub fn with_options(args: Vec<OsString>) -> Vec<OsString> {
    let mut words = args.into_iter();
    let mut out: Vec<OsString> = words.by_ref().take(2).collect();
    if !out.get(1).is_some_and(|kind| ["mon", "osd", "mgr", "mds"].iter().any(|k| kind == k)) {
        out.extend(words);
        return out;
    }
    let command = Cli::command();
    let own = |name: &str| {
        let daemon = command.find_subcommand("osd");
        name == "help" || daemon.is_some_and(|c| c.get_arguments().any(|a| a.get_long() == Some(name)))
    };
    let mut words = words.peekable();
    while let Some(word) = words.next() {
        let word = match word.to_str() {
            Some("-k") => "--keyring".into(),
            Some("-m") => "--mon-host".into(),
            // In the foreground, with what is logged on standard error.
            Some("-d") => "--log-to-file=false".into(),
            Some(_) | None => word,
        };
        let text = word.to_str().and_then(|w| w.strip_prefix("--")).unwrap_or_default().to_owned();
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (text.as_str(), None),
        };
        let option = admin::options::find(&name.replace('-', "_")).filter(|_| !own(name));
        let Some(option) = option else {
            out.push(word);
            continue;
        };
        let value = value.or_else(|| match option.kind {
            "bool" => words
                .next_if(|next| next.to_str().is_some_and(|v| option.parse_value(v).is_ok()))
                .map_or(Some("true".to_owned()), |v| v.into_string().ok()),
            _ => words.next().and_then(|v| v.into_string().ok()),
        });
        out.push(format!("--{SET}={}={}", option.name, value.unwrap_or_default()).into());
    }
    out
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

/// Bytes of an OSD's device.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    match crate::size::bytes(text)? {
        bytes if bytes < MIN_OSD_BYTES => Err(format!("an OSD needs at least {} MiB", MIN_OSD_BYTES >> 20)),
        bytes => Ok(bytes),
    }
}

/// Where a cluster listens: one address, for that is what clients are told.
fn parse_listen(text: &str) -> Result<IpAddr, String> {
    let ip: IpAddr = text
        .parse()
        .map_err(|_| "name one address of this host, such as 192.168.1.5, without a port".to_owned())?;
    crate::network::can_be_told(ip.to_canonical())
}

/// Folders and files of daemons are called `ceph-ID`, as Ceph does since it has given other names up.
fn parse_cluster(text: &str) -> Result<String, String> {
    match text {
        "ceph" => Ok(text.to_owned()),
        _ => Err("clusters have no names but ceph: name the file with -c, and the folder with --mgr-data or its like".to_owned()),
    }
}

/// Below this an OSD has no room for its log and its reserve.
pub const MIN_OSD_BYTES: u64 = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn options_of_ceph_are_arguments_of_daemons() {
        let words = |line: &str| line.split_whitespace().map(OsString::from).collect::<Vec<_>>();
        let line = "loligo osd -i 3 --osd-data /d --public_network=10.0.0.0/8 --osd-crush-update-on-start --mkfs --size 1G";
        let cli = Cli::try_parse_from(with_options(words(line))).expect("parses");
        let Command::Osd(args) = cli.command else { panic!("another command") };
        let given = args.given().expect("valid");
        let want =
            [("osd_data", "/d"), ("public_network", "10.0.0.0/8"), ("osd_crush_update_on_start", "true")];
        assert_eq!(given, want.map(|(k, v)| (k.to_owned(), v.to_owned())).into());
        assert!(args.mkfs && args.size == Some(1 << 30));
        assert_eq!(with_options(words("loligo up --fsid x")), words("loligo up --fsid x"), "daemons only");
        let line = "loligo mgr -f --cluster ceph -i x -k /k -m 10.0.0.1 -d --setuser ceph --force";
        let Ok(Cli { command: Command::Mgr(args) }) = Cli::try_parse_from(with_options(words(line))) else {
            panic!("what ceph-mgr is started with");
        };
        let want =
            [("keyring", "/k"), ("mon_host", "10.0.0.1"), ("log_to_file", "false"), ("setuser", "ceph")];
        assert_eq!(args.given().expect("valid"), want.map(|(k, v)| (k.to_owned(), v.to_owned())).into());
        assert!(args.force && args.foreground);
        assert!(Cli::try_parse_from(words("loligo mgr -i x --cluster mine")).is_err());
        let bad = Cli::try_parse_from(with_options(words("loligo osd -i 3 --no-such-thing 4")));
        assert!(bad.is_err());
        let cli = Cli::try_parse_from(with_options(words("loligo osd -i 3 --osd-max-backfills many")));
        let Ok(Cli { command: Command::Osd(args) }) = cli else { panic!("another command") };
        assert!(args.given().is_err(), "values are checked");
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

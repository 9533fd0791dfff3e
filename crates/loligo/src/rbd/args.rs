//! The command line of `loligo rbd`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::connect::ConnectArgs;
use crate::size;

#[derive(Debug, Clone, Args)]
pub struct RbdArgs {
    #[command(flatten)]
    pub connect: ConnectArgs,
    /// Pool of images that are named without one.
    #[arg(short = 'p', long, value_name = "POOL", global = true, default_value = "rbd")]
    pub pool: String,
    /// Print JSON.
    #[arg(long, global = true)]
    pub json: bool,
    /// Do not show how far long work is; it is shown on terminals only.
    #[arg(long, global = true)]
    pub no_progress: bool,
    #[command(subcommand)]
    pub command: RbdCommand,
}

/// Images are named `[POOL/[NAMESPACE/]]IMAGE[@SNAPSHOT]`.
#[derive(Debug, Clone, Subcommand)]
pub enum RbdCommand {
    /// List the images of a pool.
    #[command(visible_alias = "list")]
    Ls {
        /// `POOL` or `POOL/NAMESPACE`.
        pool: Option<String>,
    },
    /// Namespaces of a pool; images in them are `POOL/NAMESPACE/IMAGE`.
    #[command(subcommand)]
    Namespace(NamespaceCommand),
    /// Show an image's header.
    Info { image: String },
    /// Make an empty image.
    Create(CreateArgs),
    /// Remove an image.
    #[command(visible_alias = "remove")]
    Rm { image: String },
    /// Rename an image within its pool.
    #[command(visible_alias = "rename")]
    Mv { from: String, to: String },
    /// Change an image's size.
    Resize {
        image: String,
        #[arg(short = 's', long, value_parser = mib)]
        size: u64,
        /// Let a smaller size cut data off.
        #[arg(long)]
        allow_shrink: bool,
    },
    /// Snapshots of an image.
    #[command(subcommand)]
    Snap(SnapCommand),
    /// Make a writable clone of a snapshot.
    Clone {
        parent: String,
        child: String,
        #[command(flatten)]
        layout: LayoutArgs,
    },
    /// Copy into a clone what it shares with its parent, and forget the parent.
    Flatten { image: String },
    /// Write an image's bytes to a file, or to `-` for standard output.
    Export { image: String, path: PathBuf },
    /// Make an image of a file's bytes, or of `-` for standard input.
    Import {
        path: PathBuf,
        image: String,
        #[command(flatten)]
        layout: LayoutArgs,
    },
    /// Write what changed since a snapshot, in Ceph's format, to a file or `-`.
    ExportDiff {
        image: String,
        path: PathBuf,
        #[arg(long, value_name = "SNAPSHOT")]
        from_snap: Option<String>,
    },
    /// Apply differences from a file or `-`.
    ImportDiff { path: PathBuf, image: String },
    /// Show how much of images is used.
    #[command(visible_alias = "disk-usage")]
    Du { image: Option<String> },
    /// Measure writes or reads of an image; writes destroy what it holds.
    Bench(BenchArgs),
    /// The marks that write-back caches leave on images while they hold what the images lack.
    #[command(subcommand)]
    PersistentCache(CacheCommand),
    /// Serve images over the NBD protocol until Ctrl-C: to qemu, nbd-client, nbdcopy.
    Serve(ServeArgs),
}

#[derive(Debug, Clone, Subcommand)]
pub enum SnapCommand {
    #[command(visible_alias = "list")]
    Ls {
        image: String,
    },
    /// Take a snapshot.
    Create {
        snapshot: String,
    },
    #[command(visible_alias = "remove")]
    Rm {
        snapshot: String,
    },
    /// Remove every snapshot that is not protected.
    Purge {
        image: String,
    },
    Rename {
        from: String,
        to: String,
    },
    /// Make an image what it was at a snapshot.
    Rollback {
        snapshot: String,
    },
    /// Keep a snapshot from being removed.
    Protect {
        snapshot: String,
    },
    Unprotect {
        snapshot: String,
    },
}

/// Named `POOL/NAMESPACE`, or `NAMESPACE` in the pool of --pool.
#[derive(Debug, Clone, Subcommand)]
pub enum NamespaceCommand {
    #[command(visible_alias = "list")]
    Ls {
        pool: Option<String>,
    },
    Create {
        namespace: String,
    },
    #[command(visible_alias = "remove")]
    Rm {
        namespace: String,
    },
}

#[derive(Debug, Clone, Subcommand)]
pub enum CacheCommand {
    /// Give up what a cache holds and the image lacks, because its host is gone for good. The cache is refused later.
    Invalidate { image: String },
}

#[derive(Debug, Clone, Args)]
pub struct CreateArgs {
    pub image: String,
    /// Bytes with K, M, G or T; a bare number is MiB.
    #[arg(short = 's', long, value_parser = mib)]
    pub size: u64,
    #[command(flatten)]
    pub layout: LayoutArgs,
}

#[derive(Debug, Clone, Args)]
pub struct LayoutArgs {
    /// Bytes of a data object, with K or M; a power of two.
    #[arg(long, value_parser = size::bytes, default_value = "4M")]
    pub object_size: u64,
    /// Features, with commas. [default: layering,exclusive-lock,object-map,fast-diff,deep-flatten]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub image_feature: Vec<String>,
    /// Bytes of a stripe's unit, with K or M.
    #[arg(long, value_parser = size::bytes, requires = "stripe_count")]
    pub stripe_unit: Option<u64>,
    /// Objects that a stripe goes over.
    #[arg(long, requires = "stripe_unit")]
    pub stripe_count: Option<u64>,
    /// Pool for the data.
    #[arg(long, value_name = "POOL")]
    pub data_pool: Option<String>,
}

#[derive(Debug, Clone, Args)]
pub struct BenchArgs {
    pub image: String,
    #[arg(long, value_parser = ["read", "write"])]
    pub io_type: String,
    /// Bytes of a request.
    #[arg(long, value_parser = size::bytes, default_value = "4K")]
    pub io_size: u64,
    /// Requests under way at once.
    #[arg(long, default_value_t = 16)]
    pub io_threads: usize,
    /// Bytes in all.
    #[arg(long, value_parser = size::bytes, default_value = "64M")]
    pub io_total: u64,
    #[arg(long, value_parser = ["seq", "rand"], default_value = "seq")]
    pub io_pattern: String,
    /// Write through a persistent cache in this folder.
    #[arg(long, value_name = "DIR")]
    pub cache: Option<PathBuf>,
}

#[derive(Debug, Clone, Args)]
pub struct ServeArgs {
    /// Images; each is an export named as it is written here.
    #[arg(required = true)]
    pub images: Vec<String>,
    /// Listen on this Unix socket.
    #[arg(long, value_name = "PATH")]
    pub unix: Option<PathBuf>,
    /// Who may connect to the Unix socket, as for chmod: whoever can write to it has the image. 0660 lets its group in, too.
    #[arg(long, value_name = "OCTAL", default_value = "0600", value_parser = parse_mode)]
    pub unix_mode: u32,
    /// Listen on this TCP address. Without TLS it must be a loopback address, where every user of the host
    /// has the images.
    #[arg(long, value_name = "ADDR", required_unless_present = "unix")]
    pub tcp: Option<SocketAddr>,
    #[command(flatten)]
    pub tls: TlsArgs,
    /// Refuse writes; clients are told that the exports are read-only.
    #[arg(long)]
    pub read_only: bool,
    /// Acknowledge writes once they are durable in a file in this folder, and write them to the image in the background.
    /// Until the server ends in order, the image alone lacks the newest writes; the next start replays them.
    #[arg(long, value_name = "DIR", conflicts_with = "read_only")]
    pub cache: Option<PathBuf>,
    /// Give up what caches hold, here or on other hosts, where others may have written to the images since. A cache whose
    /// image still proves that its writes are the newest keeps them.
    #[arg(long, requires = "cache", conflicts_with = "force_replay")]
    pub discard_cache: bool,
    /// Write what the caches hold over whatever is there now, also if others may have written to the images since.
    #[arg(long, requires = "cache")]
    pub force_replay: bool,
    /// Bytes of a new cache's file, with M or G.
    #[arg(long, value_parser = size::bytes, default_value = "256M")]
    pub cache_size: u64,
    /// Milliseconds that a cached write may wait before it goes to the image.
    #[arg(long, default_value_t = 200)]
    pub cache_linger_ms: u64,
}

/// TLS for `--tcp`: clients must use it, and show a certificate of the authority.
#[derive(Debug, Clone, Args)]
pub struct TlsArgs {
    /// TLS for --tcp, with server-cert.pem, server-key.pem and ca-cert.pem of this folder (QEMU's names;
    /// ca-crl.pem, if there, names certificates that were taken back). Who has no certificate of the
    /// authority does not get in.
    #[arg(long, value_name = "DIR", requires = "tcp", conflicts_with_all = ["tls_cert", "tls_key", "tls_ca", "insecure"])]
    pub tls_dir: Option<PathBuf>,
    /// The server's certificate, in PEM; the same as --tls-dir together with --tls-key and --tls-ca.
    #[arg(long, value_name = "FILE", requires_all = ["tcp", "tls_key", "tls_ca"], conflicts_with = "insecure")]
    pub tls_cert: Option<PathBuf>,
    /// The server's private key, in PEM.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// The authority that clients' certificates must come from, in PEM.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_ca: Option<PathBuf>,
    /// Let --tcp be any address without TLS: whoever reaches it has the images, and whoever is on the way
    /// reads along.
    #[arg(long, requires = "tcp")]
    pub insecure: bool,
}

/// As Ceph's `rbd` reads sizes: a bare number is MiB.
fn mib(text: &str) -> Result<u64, String> {
    size::parse(text, size::Unit::Mib)
}

/// Permissions in octal.
fn parse_mode(text: &str) -> Result<u32, String> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o777 => Ok(mode),
        _ => Err(format!("'{text}' is not a mode such as 0600 or 0660")),
    }
}

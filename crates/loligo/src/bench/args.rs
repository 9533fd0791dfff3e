//! The command line of `loligo bench`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use crate::connect::ConnectArgs;
use crate::size;

#[derive(Debug, Clone, Subcommand)]
pub enum BenchArgs {
    /// Load a pool with reads and writes of objects.
    Rados(Box<RadosBench>),
    /// Measure block images: a table over copies, block sizes, shares of reads and depths.
    Block(Box<BlockBench>),
    /// Measure what a replicated write costs on this machine at the least, with no cluster at all.
    Floor(FloorBench),
}

/// A client, a primary and a replica that do nothing but send, append and flush; needs no cluster.
#[derive(Debug, Clone, Args)]
pub struct FloorBench {
    /// How long to measure.
    #[arg(short = 's', long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    pub seconds: u64,
    /// Bytes of each write, or a number with K or M.
    #[arg(short = 'b', long, value_name = "BYTES", default_value = "4K", value_parser = parse_bytes)]
    pub block_size: u64,
    /// Writes in flight.
    #[arg(short = 't', long, value_name = "N", default_value_t = 32, value_parser = parse_depth)]
    pub depth: usize,
    /// Folder on the device to measure; the files are removed at the end.
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub dir: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// The part that this process plays; given by the client to the processes that it starts.
    #[arg(long, hide = true, value_enum)]
    pub role: Option<FloorRole>,
    #[arg(long, hide = true)]
    pub file: Option<PathBuf>,
    #[arg(long, hide = true)]
    pub port: Option<u16>,
}

impl FloorBench {
    /// Bytes of each write; `parse_bytes` keeps it small.
    pub fn size(&self) -> usize {
        usize::try_from(self.block_size).unwrap_or(usize::MAX)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FloorRole {
    Primary,
    Replica,
}

/// Options of the benchmarks that load a cluster.
#[derive(Debug, Clone, Args)]
pub struct CommonArgs {
    /// Read back and compare everything that was written, not only a sample of it.
    #[arg(long)]
    pub verify: bool,
    /// Measure although health shows this warning (POOL_NO_REDUNDANCY for instance); may be given several times.
    #[arg(long, value_name = "CHECK")]
    pub accept: Vec<String>,
    /// Threads of this client.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = parse_threads)]
    pub threads: usize,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub connect: ConnectArgs,
}

/// What is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// Blocks one after the other, over all objects in turn.
    Write,
    /// Reads in the same order of what was written before the clock starts.
    Seq,
    /// Reads at random places.
    Rand,
    /// Reads and writes at random places.
    Mixed,
}

#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct RadosBench {
    #[arg(value_enum, default_value_t = Mode::Write)]
    pub mode: Mode,
    /// Pool to work in; the benchmark's objects are removed from it at the end.
    #[arg(short = 'p', long, value_name = "POOL")]
    pub pool: String,
    /// How long to measure.
    #[arg(short = 's', long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    pub seconds: u64,
    /// Bytes of each operation, or a number with K or M.
    #[arg(short = 'b', long, value_name = "BYTES", default_value = "4K", value_parser = parse_bytes)]
    pub block_size: u64,
    /// Operations in flight.
    #[arg(short = 't', long, value_name = "N", default_value_t = 16)]
    pub depth: usize,
    /// Bytes of each object.
    #[arg(short = 'O', long, value_name = "BYTES", default_value = "4M", value_parser = parse_bytes)]
    pub object_size: u64,
    /// Objects that the load goes round; their sizes together are the working set.
    #[arg(long, value_name = "N", default_value_t = 32)]
    pub objects: u64,
    /// Per cent of reads in a mixed load.
    #[arg(long, value_name = "PERCENT", default_value_t = 70, value_parser = clap::value_parser!(u64).range(0..=100))]
    pub reads: u64,
    /// Leave the objects in the pool.
    #[arg(long)]
    pub keep: bool,
    #[command(flatten)]
    pub common: CommonArgs,
}

/// Makes a pool and images of its own, fills them, runs every combination, and removes them.
#[derive(Debug, Clone, Args)]
#[command(after_help = BLOCK_EXAMPLES)]
pub struct BlockBench {
    /// Bytes of each image.
    #[arg(long, value_name = "BYTES", default_value = "256M", value_parser = parse_image_bytes)]
    pub size: u64,
    /// Images, which the load goes round.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=64))]
    pub images: u64,
    /// How long to measure each line.
    #[arg(short = 's', long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    pub seconds: u64,
    /// Load before each line that is not measured.
    #[arg(long, value_name = "SECONDS", default_value_t = 2)]
    pub ramp: u64,
    /// Numbers of copies.
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_values_t = [2, 3], value_parser = clap::value_parser!(u8).range(1..=10))]
    pub copies: Vec<u8>,
    /// Block sizes.
    #[arg(short = 'b', long, value_name = "BYTES,...", value_delimiter = ',', default_values = ["4K", "8K"], value_parser = parse_bytes)]
    pub blocks: Vec<u64>,
    /// Shares of reads, in per cent: 0 is all writes.
    #[arg(long, value_name = "PERCENT,...", value_delimiter = ',', default_values_t = [0, 70, 90, 100], value_parser = clap::value_parser!(u64).range(0..=100))]
    pub reads: Vec<u64>,
    /// Operations in flight.
    #[arg(short = 't', long, value_name = "N,...", value_delimiter = ',', default_values_t = [1, 32])]
    pub depths: Vec<usize>,
    /// Placement groups of the pool.
    #[arg(long, value_name = "N", default_value_t = 32)]
    pub pg_num: u32,
    #[command(flatten)]
    pub common: CommonArgs,
}

const BLOCK_EXAMPLES: &str = "\
IOPS/GB is the access density: operations per second for each gigabyte of image. IOPS/W appears where the processors' energy
can be read (/sys/class/powercap). Every read is compared with what was written, and blocks are read back at the end.
There are no figures when data differs, or when the cluster is not HEALTH_OK before and after.

Examples:
  loligo bench block                                       the whole table: 32 lines of 12 seconds
  loligo bench block --copies 2 -b 4K --reads 0,100 -t 1,8,32
  loligo bench block --size 2G --images 8 --threads 2 -s 60 --json > table.json";

const EXAMPLES: &str = "\
Every read is compared with what was written; after a run with writes a sample of them (with --verify all) is read back.
There are no figures when data differs, or when the cluster is not HEALTH_OK before and after the run.

CPU per operation counts user and system time: of this client, and of the daemons of this cluster that run on this host (of
OSDs alone when each has its own process: `loligo up --processes`, or Ceph's).

Examples:
  loligo bench rados -p bench                          4 KiB writes, 16 in flight, for 10 seconds
  loligo bench rados rand -p bench -t 64 --json        random reads, 64 in flight, as JSON
  loligo bench rados write -p bench -b 4M -t 4         large writes: throughput
  loligo bench rados mixed -p bench --reads 50 --verify";

/// Parses `4096`, `4K`, `4M`.
fn parse_bytes(text: &str) -> Result<u64, String> {
    size::bytes(text).and_then(|bytes| match bytes {
        1..=0x400_0000 => Ok(bytes),
        _ => Err("between 1 byte and 64 MiB".into()),
    })
}

/// Whole MiB, so that every block size fits.
fn parse_image_bytes(text: &str) -> Result<u64, String> {
    size::bytes(text).and_then(|bytes| match bytes {
        0 => Err("at least 1M".into()),
        _ if bytes % (1 << 20) != 0 || bytes > 16 << 40 => Err("whole MiB, at most 16T".into()),
        _ => Ok(bytes),
    })
}

fn parse_depth(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|n| (1..=1024).contains(n)).ok_or_else(|| "between 1 and 1024".to_owned())
}

fn parse_threads(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|n| (1..=64).contains(n)).ok_or_else(|| "between 1 and 64".to_owned())
}

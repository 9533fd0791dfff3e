//! The command line of `loligo rados`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::connect::ConnectArgs;

#[derive(Debug, Clone, Args)]
#[command(arg_required_else_help = true, after_help = EXAMPLES)]
pub struct RadosArgs {
    #[command(flatten)]
    pub connect: ConnectArgs,
    /// Pool.
    #[arg(short = 'p', long, value_name = "POOL", global = true)]
    pub pool: Option<String>,
    /// Namespace of the objects.
    #[arg(
        short = 'N',
        long,
        value_name = "NAME",
        global = true,
        default_value = "",
        hide_default_value = true
    )]
    pub namespace: String,
    /// Key that places the objects instead of their names.
    #[arg(long, value_name = "KEY", global = true, default_value = "", hide_default_value = true)]
    pub object_locator: String,
    /// Read from this snapshot of the pool.
    #[arg(short = 's', long, value_name = "SNAP", global = true)]
    pub snap: Option<String>,
    /// Print JSON.
    #[arg(long, global = true)]
    pub json: bool,
    #[command(subcommand)]
    pub command: RadosCommand,
}

const EXAMPLES: &str = "\
Output and exit status are those of Ceph's `rados` where scripts read them: 0 for success, 1 for an error.

Examples:
  loligo rados lspools                         the pools of the cluster in ./data
  loligo rados -p mail put letter letter.txt   store a file as an object
  loligo rados -p mail get letter -            and write it to standard output
  loligo rados -p mail ls --all                objects of every namespace
  loligo rados -p mail mksnap monday           take a snapshot of the pool
  loligo rados -c /etc/ceph/ceph.conf df       what a Ceph cluster holds";

#[derive(Debug, Clone, Subcommand)]
pub enum RadosCommand {
    /// List the pools.
    Lspools,
    /// Show the use of a pool, or of all, and of the cluster.
    Df,
    /// List objects.
    Ls {
        /// Of every namespace, which is printed before each name.
        #[arg(long)]
        all: bool,
    },
    /// Write an object to a file, or to standard output with `-`.
    Get { object: String, file: PathBuf },
    /// Store a file, or standard input with `-`, as an object.
    Put {
        object: String,
        file: PathBuf,
        /// Write from this offset on, leaving the rest as it is.
        #[arg(long, value_name = "BYTES")]
        offset: Option<u64>,
    },
    /// Append a file, or standard input with `-`, to an object.
    Append { object: String, file: PathBuf },
    /// Cut or extend an object.
    Truncate { object: String, size: u64 },
    /// Make an empty object that must not exist.
    Create { object: String },
    /// Remove objects.
    Rm {
        #[arg(required = true)]
        objects: Vec<String>,
        /// Also while the pool is full.
        #[arg(long)]
        force_full: bool,
    },
    /// Copy an object with its attributes and omap.
    Cp {
        object: String,
        /// Name of the copy; the same as the object's when it goes to another pool.
        target: Option<String>,
        #[arg(long, value_name = "POOL")]
        target_pool: Option<String>,
        #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
        target_nspace: String,
        #[arg(long, value_name = "KEY", default_value = "", hide_default_value = true)]
        target_locator: String,
    },
    /// Show an object's size and modification time.
    Stat { object: String },
    /// List an object's attributes.
    Listxattr { object: String },
    /// Print an attribute.
    Getxattr { object: String, name: String },
    /// Set an attribute; without a value, to what standard input holds.
    Setxattr { object: String, name: String, value: Option<String> },
    /// Remove an attribute.
    Rmxattr { object: String, name: String },
    /// List the keys of an object's omap.
    Listomapkeys { object: String },
    /// List the keys and values of an object's omap.
    Listomapvals { object: String },
    /// Show the value of a key, or write it to a file.
    Getomapval { object: String, key: String, file: Option<PathBuf> },
    /// Set the value of a key; without a value, to what standard input holds.
    Setomapval { object: String, key: String, value: Option<String> },
    /// Remove a key.
    Rmomapkey { object: String, key: String },
    /// Remove every key of objects.
    Clearomap {
        #[arg(required = true)]
        objects: Vec<String>,
    },
    /// Show the omap's header, or write it to a file.
    Getomapheader { object: String, file: Option<PathBuf> },
    /// Set the omap's header.
    Setomapheader { object: String, value: String },
    /// List the pool's snapshots.
    Lssnap,
    /// Take a snapshot of the pool.
    Mksnap { name: String },
    /// Remove a snapshot of the pool.
    Rmsnap { name: String },
    /// Make an object what it was at a snapshot of the pool.
    Rollback { object: String, name: String },
    /// List an object's clones.
    Listsnaps { object: String },
    /// Print what others notify, until Enter is pressed.
    Watch { object: String },
    /// Notify everybody who watches an object.
    Notify { object: String, message: String },
    /// List who watches an object.
    Listwatchers { object: String },
    /// Locks on objects.
    #[command(subcommand)]
    Lock(LockCommand),
}

#[derive(Debug, Clone, Subcommand)]
pub enum LockCommand {
    /// List an object's locks.
    List { object: String },
    /// Show a lock and who holds it.
    Info { object: String, lock: String },
    /// Take a lock.
    Get {
        object: String,
        lock: String,
        #[command(flatten)]
        options: LockOptions,
    },
    /// Take a lock away from its holder (`client.4123`).
    Break {
        object: String,
        lock: String,
        holder: String,
        #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
        lock_cookie: String,
    },
}

#[derive(Debug, Clone, Args)]
pub struct LockOptions {
    /// Tells this holder from others of the same client.
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub lock_cookie: String,
    /// Shared holders must agree on it.
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub lock_tag: String,
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub lock_description: String,
    /// Seconds after which it is free again; 0 for never.
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    pub lock_duration: u64,
    #[arg(long, value_name = "TYPE", default_value = "exclusive", value_parser = ["exclusive", "shared"])]
    pub lock_type: String,
}

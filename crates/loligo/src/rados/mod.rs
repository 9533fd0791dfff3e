//! `loligo rados`: what Ceph's `rados` does, with its output and exit status. Source: src/tools/rados/rados.cc.

mod args;
mod hex;
mod objects;
mod omap;
mod pools;
mod watch;

use ::rados::{Cluster, Error, IoCtx};
use anyhow::{Context, Result, bail};

pub use args::RadosArgs;
use args::RadosCommand as C;

/// The request was understood and failed; the words are printed as they are, as Ceph's tool does.
#[derive(Debug)]
pub struct Failed(pub String);

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}
impl std::error::Error for Failed {}

/// `what: (2) No such file or directory`.
fn failed(what: &str, error: &Error) -> anyhow::Error {
    match error {
        Error::Os(_) | Error::Mismatch { .. } => Failed(format!("{what}: {}", error.errno())).into(),
        other => Failed(format!("{what}: {other}")).into(),
    }
}

pub fn run(args: &RadosArgs) -> Result<()> {
    let config = args.connect.config()?;
    crate::connect::run(config, async |cluster| dispatch(&cluster, args).await)
}

async fn dispatch(cluster: &Cluster, args: &RadosArgs) -> Result<()> {
    match &args.command {
        C::Lspools => return pools::lspools(cluster, args.json),
        C::Df => return pools::df(cluster, args.pool.as_deref(), args.json).await,
        _ => {}
    }
    let Some(name) = &args.pool else { bail!("which pool? Name it with -p") };
    let t = open(cluster, name, args).await?;
    match &args.command {
        C::Lspools | C::Df => Ok(()),
        C::Ls { .. }
        | C::Get { .. }
        | C::Put { .. }
        | C::Append { .. }
        | C::Truncate { .. }
        | C::Create { .. }
        | C::Rm { .. }
        | C::Cp { .. }
        | C::Stat { .. }
        | C::Listxattr { .. }
        | C::Getxattr { .. }
        | C::Setxattr { .. }
        | C::Rmxattr { .. } => objects::run(&t, &args.command).await,
        C::Listomapkeys { .. }
        | C::Listomapvals { .. }
        | C::Getomapval { .. }
        | C::Setomapval { .. }
        | C::Rmomapkey { .. }
        | C::Clearomap { .. }
        | C::Getomapheader { .. }
        | C::Setomapheader { .. } => omap::run(&t, &args.command).await,
        C::Lssnap => pools::lssnap(&t),
        C::Mksnap { name } => pools::mksnap(&t, name).await,
        C::Rmsnap { name } => pools::rmsnap(&t, name).await,
        C::Rollback { object, name } => pools::rollback(&t, object, name).await,
        C::Listsnaps { object } => pools::listsnaps(&t, object).await,
        C::Watch { object } => watch::watch(&t, object).await,
        C::Notify { object, message } => watch::notify(&t, object, message).await,
        C::Listwatchers { object } => watch::listwatchers(&t, object).await,
        C::Lock(command) => watch::lock(&t, command).await,
    }
}

/// The pool that a command works on, with its name for messages.
pub struct Target {
    pub io: IoCtx,
    pub pool: String,
    pub json: bool,
}

async fn open(cluster: &Cluster, name: &str, args: &RadosArgs) -> Result<Target> {
    let io = cluster.pool(name).await.map_err(|e| failed(&format!("error opening pool {name}"), &e))?;
    let mut io = io.with_namespace(&*args.namespace).with_locator(&*args.object_locator);
    if let Some(snap) = &args.snap {
        let id = io
            .snap_by_name(snap)
            .ok_or_else(|| Failed(format!("error looking up snap '{snap}': {}", types::Errno::ENOENT)))?;
        say!("selected snap {} '{snap}'", id.0);
        io = io.at_snap(id);
    }
    Ok(Target { io, pool: name.to_owned(), json: args.json })
}

/// Prints a JSON value on one line, as Ceph's formatter does.
fn print_json(value: &serde_json::Value) {
    use std::io::Write as _;
    let _ = write!(std::io::stdout(), "{value}");
    let _ = std::io::stdout().flush();
}

/// What standard input holds.
fn stdin_bytes() -> Result<Vec<u8>> {
    let mut all = Vec::new();
    std::io::Read::read_to_end(&mut std::io::stdin(), &mut all).context("cannot read standard input")?;
    Ok(all)
}

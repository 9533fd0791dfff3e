//! How the client subcommands reach a cluster: the options that Ceph's tools have, and our folder.

use std::future::Future;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::Args;
use rados::{AuthName, Cluster, Config, EntityType, Find};

/// Options of every subcommand that is a client.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Cluster")]
pub struct ConnectArgs {
    /// Configuration file. [default: $CEPH_CONF, ceph.conf of --data, ./data/ceph.conf, /etc/ceph/ceph.conf]
    #[arg(short = 'c', long, value_name = "FILE", global = true)]
    pub conf: Option<PathBuf>,
    /// Folder of a cluster of ours.
    #[arg(long, value_name = "DIR", global = true, env = "LOLIGO_DATA")]
    pub data: Option<PathBuf>,
    /// Who to log in as, without its type: `admin` is client.admin.
    #[arg(long = "id", value_name = "ID", global = true)]
    pub login_id: Option<String>,
    /// The same with its type.
    #[arg(short = 'n', long = "name", value_name = "TYPE.ID", global = true, conflicts_with = "login_id")]
    pub login_name: Option<String>,
    /// Keyring file.
    #[arg(short = 'k', long, value_name = "FILE", global = true)]
    pub keyring: Option<PathBuf>,
    /// Monitors, as in `mon host`.
    #[arg(short = 'm', long, value_name = "HOSTS", global = true)]
    pub mon_host: Option<String>,
}

impl ConnectArgs {
    pub fn config(&self) -> Result<Config> {
        let name = match (&self.login_id, &self.login_name) {
            (Some(id), _) => Some(AuthName::new(EntityType::Client, id.clone())),
            (None, Some(text)) => {
                Some(AuthName::parse(text).with_context(|| format!("'{text}' is no TYPE.ID"))?)
            }
            (None, None) => None,
        };
        let (keyring, mon_host) = (self.keyring.clone(), self.mon_host.clone());
        Ok(Config::find(&Find { conf: self.conf_file()?, cluster: None, name, keyring, mon_host })?)
    }

    fn conf_file(&self) -> Result<Option<PathBuf>> {
        if self.conf.is_some() {
            return Ok(self.conf.clone());
        }
        if let Some(data) = &self.data {
            let conf = data.join("ceph.conf");
            if !conf.is_file() {
                bail!("{} is not the folder of a cluster: it has no ceph.conf", data.display());
            }
            return Ok(Some(conf));
        }
        let near = PathBuf::from("data/ceph.conf");
        let named = std::env::var_os("CEPH_CONF").is_some();
        Ok((!named && near.is_file()).then_some(near))
    }
}

/// Runs a client on this thread.
pub fn run<T>(config: Config, body: impl AsyncFnOnce(Cluster) -> Result<T>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    on(&runtime, config, body)
}

pub fn on<T>(
    runtime: &tokio::runtime::Runtime,
    config: Config,
    body: impl AsyncFnOnce(Cluster) -> Result<T>,
) -> Result<T> {
    let whole: std::pin::Pin<Box<dyn Future<Output = Result<T>> + '_>> = Box::pin(async {
        let cluster = Cluster::connect(config).await.context("error connecting to the cluster")?;
        body(cluster).await
    });
    runtime.block_on(whole)
}

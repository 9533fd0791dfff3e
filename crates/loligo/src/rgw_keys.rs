//! Master keys of gateways (SSE-S3), in the monitors' store of keys and values (`config-key`).

use std::time::Duration;

use bytes::Bytes;
use rados::{Cluster, Error};
use s3::encryption::{KeyStore, StoreFailed};
use serde_json::json;
use types::Errno;
use zeroize::Zeroizing;

/// How long the monitors are waited for.
const PATIENCE: Duration = Duration::from_secs(30);

pub struct ConfigKeys(pub Cluster);

impl ConfigKeys {
    /// Nothing where there is no such key.
    async fn ask(&self, prefix: &str, key: &str, input: Bytes) -> Result<Option<Bytes>, StoreFailed> {
        let command = json!({ "prefix": prefix, "key": key }).to_string();
        let asked = self.0.mon_command(&command, input);
        match tokio::time::timeout(PATIENCE, asked).await {
            Ok(Ok(said)) => Ok(Some(said.output)),
            Ok(Err(Error::Command { errno: Errno::ENOENT, .. })) => Ok(None),
            Ok(Err(Error::Command { errno: Errno::EACCES | Errno::EPERM, .. })) => {
                Err(StoreFailed(format!("`{prefix}` needs mon 'allow rw'")))
            }
            Ok(Err(e)) => Err(StoreFailed(format!("`{prefix}`: {e}"))),
            Err(_) => Err(StoreFailed(format!("`{prefix}`: the monitors do not answer"))),
        }
    }
}

#[async_trait::async_trait]
impl KeyStore for ConfigKeys {
    async fn get(&self, name: &str) -> Result<Option<Zeroizing<String>>, StoreFailed> {
        let found = self.ask("config-key get", name, Bytes::new()).await?;
        Ok(found.map(|value| Zeroizing::new(String::from_utf8_lossy(&value).into_owned())))
    }

    /// The value goes as data: it is in no list of commands.
    async fn set(&self, name: &str, value: Zeroizing<String>) -> Result<(), StoreFailed> {
        let value = Bytes::copy_from_slice(value.as_bytes());
        self.ask("config-key set", name, value).await.map(drop)
    }
}

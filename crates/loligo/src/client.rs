//! Talks to a folder's cluster as client.admin.

use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use cephx::{CryptoKey, Keyring};
use daemons::admin::AdminClient;
use daemons::auth::{Method, SharedAuth};
use monitor::Whose;
use serde_json::{Value, json};
use types::{AuthName, EntityAddr, EntityType, Fsid};

use crate::layout::{ClusterDir, Description};

const COMMAND_LIMIT: Duration = Duration::from_secs(10);

/// Reads one entity's key from a keyring file.
pub fn read_key(path: &std::path::Path, name: &AuthName) -> Result<CryptoKey> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let keyring = Keyring::parse(&text).with_context(|| format!("{} is not a keyring", path.display()))?;
    let entry = keyring.get(name).with_context(|| format!("{} has no key for {name}", path.display()))?;
    Ok(entry.key.clone())
}

pub fn method(d: &Description) -> Method {
    if d.auth == "none" { Method::None } else { Method::Cephx }
}

pub fn monitors(d: &Description) -> Vec<EntityAddr> {
    d.mons().iter().map(|m| EntityAddr::v2(m.addr, 0)).collect()
}

/// A client of the cluster; connects in the background.
pub fn admin(dir: &ClusterDir, d: &Description) -> Result<AdminClient> {
    let name = AuthName::new(EntityType::Client, "admin");
    let key = read_key(&dir.admin_keyring(), &name)?;
    let auth = SharedAuth::new(method(d), name, key, EntityType::Client);
    let fsid = Fsid::parse(&d.fsid).context("the folder's fsid is damaged")?;
    Ok(AdminClient::new(fsid, auth, monitors(d)))
}

/// Runs a command; its JSON output, or an error with the monitor's words.
pub async fn command(client: &AdminClient, words: Value) -> Result<Value> {
    command_with(client, words, bytes::Bytes::new()).await
}

/// The same with input, as `ceph -i FILE` gives it.
pub async fn command_with(client: &AdminClient, mut words: Value, input: bytes::Bytes) -> Result<Value> {
    if let Some(map) = words.as_object_mut() {
        map.insert("format".into(), json!("json"));
    }
    let answer = client.command_with(&words, input, COMMAND_LIMIT).await?;
    if answer.code != 0 {
        bail!("{} ({})", answer.status, types::Errno(-answer.code));
    }
    if answer.data.trim_ascii().is_empty() {
        return Ok(Value::Null);
    }
    serde_json::from_slice(&answer.data).context("the monitor's answer is not JSON")
}

/// Whose the monitors are. Asked before anything is changed there.
pub async fn whose(admin: &AdminClient) -> Result<Whose> {
    let question = serde_json::from_str(Whose::QUESTION).context("the question is JSON")?;
    let answer = admin.command(&question, COMMAND_LIMIT).await?;
    let whose = Whose::of_answer(answer.code, &answer.data);
    whose.map_err(|errno| anyhow!("the monitors do not say whose they are: {} ({errno})", answer.status))
}

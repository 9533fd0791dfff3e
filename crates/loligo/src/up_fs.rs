//! `loligo up --fs`: a file system in the cluster of a folder, with a metadata server, and how it is mounted.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use cephx::CryptoKey;
use daemons::admin::AdminClient;
use serde_json::{Value, json};
use types::{AuthName, EntityType};

use crate::client;
use crate::create::make_private_dir;
use crate::layout::{ClusterDir, Description, write_atomically};

/// The file system, and its pools as `ceph fs volume create` names them.
const NAME: &str = "cephfs";
const META: &str = "cephfs.cephfs.meta";
const DATA: &str = "cephfs.cephfs.data";
/// The metadata server.
const SERVER: &str = "a";
/// Between looks at the server's state.
const POLL: Duration = Duration::from_millis(50);

/// Makes what there is not, starts the server by `run` if it does not run, and says how to mount.
pub fn start(dir: &ClusterDir, limit: Duration, run: impl FnOnce(&str) -> Result<()>) -> Result<()> {
    let d = dir.load()?.context("the folder's description is gone")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let admin = client::admin(dir, &d)?;
        admin.connected(limit).await?;
        make(&admin).await?;
        if d.mds.is_empty() {
            add_server(dir, &d, &admin).await?;
            run(SERVER)?;
        }
        wait(&admin, limit).await
    })?;
    let key = client::read_key(&dir.admin_keyring(), &AuthName::new(EntityType::Client, "admin"))?;
    write_secret(dir, &key)?;
    say(dir, &d);
    Ok(())
}

/// The file system with its pools.
async fn make(admin: &AdminClient) -> Result<()> {
    let listed = client::command(admin, json!({"prefix": "fs ls"})).await?;
    let systems = listed.as_array().into_iter().flatten();
    if systems.filter_map(|fs| fs["name"].as_str()).any(|name| name == NAME) {
        return Ok(());
    }
    for (pool, pgs) in [(META, 16), (DATA, 32)] {
        let words = json!({"prefix": "osd pool create", "pool": pool, "pg_num": pgs});
        client::command(admin, words).await.with_context(|| format!("cannot make the pool {pool}"))?;
    }
    let words = json!({"prefix": "fs new", "fs_name": NAME, "metadata": META, "data": DATA});
    client::command(admin, words).await.context("cannot make the file system").map(drop)
}

/// The server's key and its place in the folder.
async fn add_server(dir: &ClusterDir, d: &Description, admin: &AdminClient) -> Result<()> {
    let name = AuthName::new(EntityType::Mds, SERVER);
    let caps = ["mon", "allow profile mds", "mgr", "allow profile mds", "mds", "allow *", "osd", "allow rwx"];
    let words = json!({"prefix": "auth get-or-create-key", "entity": name.to_string(), "caps": caps});
    let made = client::command(admin, words).await.context("cannot make a key for the metadata server")?;
    let key = made.get("key").unwrap_or(&made).as_str().context("the monitor named no key")?;
    let data = dir.daemon_dir(&name.to_string());
    make_private_dir(&data)?;
    let text = format!("[{name}]\n\tkey = {key}\n");
    write_atomically(&data.join("keyring"), text.as_bytes(), 0o600)?;
    let mut grown = d.clone();
    grown.mds.push(SERVER.to_owned());
    dir.save(&grown)
}

/// Until a rank of the file system is active.
async fn wait(admin: &AdminClient, limit: Duration) -> Result<()> {
    let start = Instant::now();
    loop {
        let dump = client::command(admin, json!({"prefix": "fs dump"})).await.unwrap_or(Value::Null);
        let states = states(&dump);
        if states.iter().any(|state| state == "up:active") {
            return Ok(());
        }
        if start.elapsed() > limit {
            let states = if states.is_empty() { "no server has it".to_owned() } else { states.join(", ") };
            bail!("the file system {NAME} is not served after {} s: {states}", limit.as_secs());
        }
        tokio::time::sleep(POLL).await;
    }
}

/// States of the servers that have a rank of the file system.
fn states(dump: &Value) -> Vec<String> {
    let systems = dump["filesystems"].as_array().into_iter().flatten();
    let ours = systems.filter(|fs| fs.pointer("/mdsmap/fs_name").is_some_and(|name| name == NAME));
    let infos = ours.filter_map(|fs| fs.pointer("/mdsmap/info")?.as_object()).flat_map(|info| info.values());
    infos.filter_map(|info| info["state"].as_str().map(str::to_owned)).collect()
}

/// For mount.ceph, which wants the key alone.
fn write_secret(dir: &ClusterDir, key: &CryptoKey) -> Result<()> {
    write_atomically(&dir.admin_secret(), format!("{}\n", key.to_base64()).as_bytes(), 0o600)
}

fn say(dir: &ClusterDir, d: &Description) {
    let (root, mon) = (dir.root().display(), d.mon_addr);
    let secret = dir.admin_secret();
    say!("\nThe file system {NAME} is served by mds.{SERVER}. Mount it, as root:\n");
    say!("  ceph-fuse -c {root}/ceph.conf -k {root}/keyring /mnt        (Debian package ceph-fuse)");
    say!(
        "  mount -t ceph {mon}:/ /mnt -o name=admin,secretfile={},ms_mode=prefer-crc        \
         (Linux 5.11, ceph-common)",
        secret.display()
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_servers_of_the_file_system_count() {
        let info = |state: &str| json!({"gid_1": {"state": state}});
        let dump = json!({"filesystems": [
            {"mdsmap": {"fs_name": "other", "info": info("up:active")}},
            {"mdsmap": {"fs_name": "cephfs", "info": info("up:creating")}},
        ]});
        assert_eq!(states(&dump), ["up:creating"]);
        assert!(states(&Value::Null).is_empty());
    }
}

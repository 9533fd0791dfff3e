//! `loligo up --s3`: a gateway beside the cluster of a folder, and a user of it.

use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Child;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rados::{Config, Find};
use zeroize::Zeroizing;

use crate::args::UpArgs;
use crate::layout::{ClusterDir, Description, write_atomically};
use crate::rgw::{Keys, Store};

/// What the gateway is called in the folder.
pub const NAME: &str = "rgw";
/// The user that is made.
const USER: &str = "s3";
/// The port of a first gateway. Source: rgw_frontends in src/common/options.cc.
const PORT: u16 = 7480;
const PORTS: u16 = 100;
/// Between looks at the gateway.
const POLL: Duration = Duration::from_millis(20);

fn env_file(dir: &ClusterDir) -> PathBuf {
    dir.root().join("s3.env")
}

/// Where the gateway of this folder was last.
fn known_port(dir: &ClusterDir) -> Option<u16> {
    let text = std::fs::read_to_string(env_file(dir)).ok()?;
    let url = text.lines().find_map(|line| line.strip_prefix("export AWS_ENDPOINT_URL="))?;
    url.rsplit(':').next()?.trim_end_matches('\'').parse().ok()
}

fn free_port(dir: &ClusterDir, ip: IpAddr) -> Result<u16> {
    let first = known_port(dir).unwrap_or(PORT);
    let mut ports = std::iter::once(first).chain((0..PORTS).filter_map(|n| PORT.checked_add(n)));
    let found = ports.find(|port| TcpListener::bind((ip, *port)).is_ok());
    found.context("no free port from 7480 on; name one with --s3-port")
}

/// The user, made when there is none; and the zone, with its pools.
fn keys(dir: &ClusterDir) -> Result<Keys> {
    let config = Config::find(&Find { conf: Some(dir.conf()), ..Find::default() })?;
    crate::connect::run(config, async |cluster| {
        Store::open(cluster, "default", "default").await?.user_or_new(USER).await
    })
}

/// Starts the gateway if it does not run, and says how it is used. `spawn` starts this program again.
pub fn start(
    dir: &ClusterDir,
    d: &Description,
    args: &UpArgs,
    spawn: impl FnOnce(&[&str]) -> Result<Child>,
) -> Result<()> {
    let keys = keys(dir)?;
    let port = match (dir.running(NAME), args.s3_port) {
        (Some(_), asked) => {
            let known =
                known_port(dir).context("the folder's gateway runs, and s3.env does not say where")?;
            if asked.is_some_and(|asked| asked != known) {
                bail!("the gateway of {} has port {known}; `loligo down` stops it", dir.root().display());
            }
            known
        }
        (None, Some(port)) => {
            // Whoever has the port would be taken for the gateway.
            let free = TcpListener::bind((d.ip(), port)).map(drop);
            free.with_context(|| format!("cannot listen on {}:{port}; name another --s3-port", d.ip()))?;
            port
        }
        (None, None) => free_port(dir, d.ip())?,
    };
    let address = SocketAddr::new(d.ip(), port);
    if dir.running(NAME).is_none() {
        let (port, ip) = (port.to_string(), d.ip().to_string());
        let mut child = spawn(&["rgw", "--of-folder", "--port", &port, "--listen", &ip])?;
        if let Err(error) = wait(dir, &mut child, address, Duration::from_secs(args.timeout)) {
            // It may have ended by itself.
            let _ = child.kill();
            return Err(error);
        }
    }
    write_env(dir, address, &keys)?;
    say(dir, address, &keys);
    Ok(())
}

fn wait(dir: &ClusterDir, child: &mut Child, address: SocketAddr, limit: Duration) -> Result<()> {
    let start = Instant::now();
    while dir.running(NAME).is_none() || TcpStream::connect(address).is_err() {
        if child.try_wait()?.is_some() {
            bail!("the gateway ended; {} says why", dir.log_file(NAME).display());
        }
        if start.elapsed() > limit {
            bail!("the gateway does not listen at {address} after {} s", limit.as_secs());
        }
        std::thread::sleep(POLL);
    }
    Ok(())
}

/// For shells to read: `. data/s3.env`.
fn write_env(dir: &ClusterDir, address: SocketAddr, keys: &Keys) -> Result<()> {
    // It holds a secret.
    write_atomically(&env_file(dir), env_text(address, keys).as_bytes(), 0o600)
}

/// Each value in quotes, within which nothing is carried out: keys may have been made by others.
fn env_text(address: SocketAddr, keys: &Keys) -> Zeroizing<String> {
    let url = format!("http://{address}");
    let mut text = Zeroizing::new(String::new());
    for (name, value) in [
        ("AWS_ENDPOINT_URL", url.as_str()),
        ("AWS_ACCESS_KEY_ID", &keys.access_key),
        ("AWS_SECRET_ACCESS_KEY", &keys.secret),
        ("AWS_DEFAULT_REGION", "default"),
    ] {
        let value = Zeroizing::new(value.replace('\'', r"'\''"));
        text.extend(["export ", name, "='", &value, "'\n"]);
    }
    text
}

fn say(dir: &ClusterDir, address: SocketAddr, keys: &Keys) {
    say!("\nS3 at http://{address}");
    say!("  access key {}", keys.access_key);
    say!("  secret     {}", *keys.secret);
    say!("\nTry next, with one of S3's tools:\n");
    say!("  . {}", env_file(dir).display());
    say!("  aws --endpoint-url $AWS_ENDPOINT_URL s3 mb s3://from-aws");
    say!(
        "  s3cmd --host={address} --host-bucket={address} --no-ssl --access_key=$AWS_ACCESS_KEY_ID \
         --secret_key=$AWS_SECRET_ACCESS_KEY mb s3://from-s3cmd"
    );
    say!("  rclone --s3-provider=Ceph --s3-env-auth --s3-endpoint=$AWS_ENDPOINT_URL mkdir :s3:from-rclone");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_keys_and_carries_nothing_out() {
        let secret = "a'$(exit 7)`exit 8`\"b";
        let keys = Keys { access_key: "key".to_owned(), secret: secret.to_owned().into() };
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("s3.env");
        std::fs::write(&path, env_text("127.0.0.1:7480".parse().expect("an address"), &keys))
            .expect("written");
        let script = format!(". {} && printf %s \"$AWS_SECRET_ACCESS_KEY\"", path.display());
        let out = std::process::Command::new("/bin/sh").args(["-c", &script]).output().expect("a shell");
        assert_eq!((out.status.code(), String::from_utf8_lossy(&out.stdout).as_ref()), (Some(0), secret));
    }
}

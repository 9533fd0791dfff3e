//! `loligo up --dashboard`: has the manager serve its dashboard, and lets whoever reads this terminal sign in
//! once.

use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use daemons::admin::AdminClient;
use runtime::OsEntropy;
use serde_json::{Value, json};
use types::Entropy as _;

use crate::client;
use crate::layout::{ClusterDir, Description};

/// The port of a first cluster. Source: server_port in src/pybind/mgr/dashboard/module.py.
const PORT: u16 = 8080;
const PORTS: u16 = 100;
const PORT_OPTION: &str = "mgr/dashboard/server_port";
/// Between looks at the manager.
const POLL: Duration = Duration::from_millis(50);
/// How long the manager may take to serve it.
const LIMIT: Duration = Duration::from_secs(30);

pub fn open(dir: &ClusterDir, d: &Description) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (url, code) = runtime.block_on(async {
        let admin = client::admin(dir, d)?;
        admin.connected(LIMIT).await?;
        let url = match served(&admin).await? {
            Some(url) => url,
            None => switch_on(&admin).await?,
        };
        let code = code();
        client::command_with(&admin, json!({ "prefix": "dashboard sign-in-once" }), code.clone().into())
            .await?;
        anyhow::Ok((url, code))
    })?;
    say!("\nThe dashboard: {url}");
    say!("Within 15 minutes, and once, user 'once' may sign in with the password {code}");
    say!("Users that stay are made with: ceph dashboard ac-user-create NAME -i PASSWORD-FILE read-only");
    Ok(())
}

/// Where the manager in charge serves it.
async fn served(admin: &AdminClient) -> Result<Option<String>> {
    let services = client::command(admin, json!({ "prefix": "mgr services" })).await?;
    Ok(services.get("dashboard").and_then(Value::as_str).map(ToOwned::to_owned))
}

async fn switch_on(admin: &AdminClient) -> Result<String> {
    let set = client::command(admin, json!({ "prefix": "config dump" })).await;
    if !is_port_set(&set.context("the dashboard's port cannot be asked for")?) {
        let port = free_port()?.to_string();
        let set = json!({ "prefix": "config set", "who": "mgr", "name": PORT_OPTION, "value": port });
        client::command(admin, set).await.context("the dashboard's port cannot be set")?;
    }
    let enable = json!({ "prefix": "mgr module enable", "module": "dashboard" });
    let start = Instant::now();
    // The monitors hear from the manager which modules it has, a moment after it has come.
    let mut enabled = client::command(admin, enable.clone()).await;
    while enabled.is_err() && start.elapsed() < LIMIT {
        tokio::time::sleep(POLL).await;
        enabled = client::command(admin, enable.clone()).await;
    }
    enabled.context("the dashboard cannot be switched on")?;
    loop {
        if let Some(url) = served(admin).await? {
            return Ok(url);
        }
        if start.elapsed() > LIMIT {
            bail!("the manager does not serve the dashboard: see its log");
        }
        tokio::time::sleep(POLL).await;
    }
}

/// Whether somebody has said at which port it is to be served, for all managers or for one.
fn is_port_set(dump: &Value) -> bool {
    let is_it = |name: &str| {
        let option = name.strip_prefix("mgr/dashboard/").unwrap_or_default();
        option == "server_port" || option.ends_with("/server_port")
    };
    let mut set = dump.as_array().into_iter().flatten().filter_map(|entry| entry.get("name")?.as_str());
    set.any(is_it)
}

fn free_port() -> Result<u16> {
    let ip = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let mut ports = (0..PORTS).filter_map(|n| PORT.checked_add(n));
    let found = ports.find(|port| TcpListener::bind((ip, *port)).is_ok());
    found
        .with_context(|| format!("no free port from {PORT} on; set one: ceph config set mgr {PORT_OPTION} N"))
}

/// A hundred random bits, in letters and digits that are not taken for others.
fn code() -> String {
    const LETTERS: &[u8; 32] = b"abcdefghjkmnpqrstuvwxyz234567890";
    let mut bytes = [0; 20];
    OsEntropy.fill(&mut bytes);
    let mut out = String::new();
    for (i, byte) in bytes.iter().enumerate() {
        if i > 0 && i % 5 == 0 {
            out.push('-');
        }
        out.extend(LETTERS.get(usize::from(byte % 32)).map(|b| char::from(*b)));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_is_set_is_kept_whatever_it_is() {
        let set = |name: &str, value: &str| json!([{ "section": "mgr", "name": name, "value": value }]);
        assert!(is_port_set(&set(PORT_OPTION, "8080")), "the usual one as well");
        assert!(is_port_set(&set("mgr/dashboard/x/server_port", "9000")));
        assert!(!is_port_set(&set("mgr/dashboard/ssl_server_port", "8443")));
        assert!(!is_port_set(&json!([])));
    }

    #[test]
    fn codes_are_long_and_differ() {
        let (a, b) = (code(), code());
        assert_eq!((a.len(), a.matches('-').count()), (23, 3));
        assert_ne!(a, b);
    }
}

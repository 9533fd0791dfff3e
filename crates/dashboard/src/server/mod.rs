//! Serves the dashboard where the manager says that it is to be: follows the options, and tells the monitors
//! the address.

mod answer;
mod auth;
pub(crate) mod body;
pub(crate) mod connection;
mod images;
mod live;
pub(crate) mod tls;

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use admin::Reply;
use bytes::Bytes;
use daemons::mgr::MgrHandle;
use manager::users::HASH_COST;
use manager::{Ask, DashboardAt};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use crate::attempts::Attempts;
use crate::sessions::Sessions;
use live::Live;

/// What the monitors call it.
const SERVICE: &str = "dashboard";
/// A port that is taken, or a certificate that is no use, is tried again.
const AGAIN: Duration = Duration::from_secs(5);
/// Passwords that are looked at together: each keeps a core busy for a good part of a second.
const MOST_HASHES: usize = 2;

/// Whose dashboard it is.
#[derive(Clone)]
pub struct Site {
    pub manager: MgrHandle,
    /// `x` of `mgr.x`.
    pub name: String,
    /// What this program calls itself.
    pub version: String,
    /// How to reach the cluster as a client, for what lies in its pools.
    pub client: rados::Config,
}

/// What all requests work with.
struct Shared {
    site: Site,
    at: DashboardAt,
    sessions: Mutex<Sessions>,
    attempts: Mutex<Attempts>,
    hashes: Arc<Semaphore>,
    /// One that nobody's password fits: who there is cannot be told by how long an answer takes.
    decoy: String,
    live: Live,
    images: images::Images,
    cells: Mutex<Option<Cells>>,
}

/// The cells of all PGs, and which map and statistics they were made of.
#[derive(Clone)]
struct Cells {
    of: (u32, u64),
    json: Bytes,
}

pub(crate) fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn new(site: Site, at: DashboardAt, decoy: String) -> Self {
        Self {
            images: images::Images::new(site.client.clone()),
            site,
            at,
            sessions: Mutex::default(),
            attempts: Mutex::default(),
            hashes: Arc::new(Semaphore::new(MOST_HASHES)),
            decoy,
            live: Live::default(),
            cells: Mutex::default(),
        }
    }

    /// What the monitors answer to a command, as JSON.
    async fn mon(&self, command: Value) -> Result<Value, Reply> {
        let ask = Ask::Monitors { json: command.to_string(), input: Bytes::new() };
        json_of(self.site.manager.ask(ask).await)
    }

    /// The same of the manager.
    async fn mgr(&self, command: Value) -> Result<Value, Reply> {
        let ask = Ask::Manager { json: command.to_string(), input: Bytes::new() };
        json_of(self.site.manager.ask(ask).await)
    }
}

fn json_of(reply: Reply) -> Result<Value, Reply> {
    if reply.is_error() {
        return Err(reply);
    }
    let odd = |_| Reply { code: -5, outs: "the answer is no JSON".to_owned(), data: Bytes::new() };
    serde_json::from_slice(&reply.data).map_err(odd)
}

/// Serves until the manager ends.
pub async fn run(site: Site) {
    let mut wanted = site.manager.dashboard();
    loop {
        let at = *wanted.borrow_and_update();
        let changed = match at {
            None => wanted.changed().await,
            Some(at) => tokio::select! {
                changed = wanted.changed() => changed,
                () = serve(&site, at) => Ok(()),
            },
        };
        site.manager.serving(SERVICE, None);
        if changed.is_err() {
            return;
        }
    }
}

async fn serve(site: &Site, at: DashboardAt) {
    // A hash of something that nobody knows, as costly as users'.
    let decoy = tokio::task::spawn_blocking(|| bcrypt::hash(auth::random_token(), HASH_COST)).await;
    let Ok(Ok(decoy)) = decoy else {
        tracing::error!("no password can be hashed: no dashboard");
        return std::future::pending().await;
    };
    let mut complained = false;
    let (listener, acceptor) = loop {
        match prepare(site, at).await {
            Ok(ready) => break ready,
            Err(why) if !complained => {
                complained = true;
                tracing::error!("the dashboard is not served at {}: {why}; it is tried again", at.addr);
            }
            Err(_) => {}
        }
        tokio::time::sleep(AGAIN).await;
    };
    let url = url(at);
    tracing::info!("the dashboard is served at {url}");
    site.manager.serving(SERVICE, Some(url));
    let shared = Arc::new(Shared::new(site.clone(), at, decoy));
    let feed = live::feed(&shared.live, &*shared);
    tokio::select! {
        () = feed => {}
        never = connection::serve(listener, acceptor, Arc::clone(&shared)) => match never {},
    }
    lock(&shared.sessions).end_all();
}

async fn prepare(
    site: &Site,
    at: DashboardAt,
) -> Result<(TcpListener, Option<tokio_rustls::TlsAcceptor>), String> {
    let acceptor = match at.tls {
        true => Some(tls::acceptor(&site.manager, SERVICE, &site.name, at.addr.ip()).await?),
        false => None,
    };
    let listener = TcpListener::bind(at.addr).await.map_err(|e| e.to_string())?;
    Ok((listener, acceptor))
}

/// Where a browser finds it. An address that stands for all is told as the host's name.
fn url(at: DashboardAt) -> String {
    let scheme = if at.tls { "https" } else { "http" };
    let host = match at.addr.ip() {
        ip if ip.is_unspecified() => tls::host_name(),
        IpAddr::V6(ip) => format!("[{ip}]"),
        IpAddr::V4(ip) => ip.to_string(),
    };
    format!("{scheme}://{host}:{}/", at.addr.port())
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    #[test]
    fn the_address_is_one_that_a_browser_takes() {
        let at = |addr: &str, tls| DashboardAt { addr: addr.parse::<SocketAddr>().expect("an address"), tls };
        assert_eq!(url(at("127.0.0.1:8080", false)), "http://127.0.0.1:8080/");
        assert_eq!(url(at("[::1]:8443", true)), "https://[::1]:8443/");
        assert!(!url(at("0.0.0.0:8443", true)).contains("0.0.0.0"));
    }
}

//! Serves the series for Prometheus where the manager says that they are to be.
//!
//! Invariants:
//! 1. Where there is a cache, whoever asks is told what the last look at the cluster showed: a hundred who
//!    ask at once cost one look. Without it those who come while one is under way wait for the next.
//! 2. Data that is older than two intervals and the time of a look, or that took longer than an interval to
//!    gather, is stale: it is told only where the options say so.
//! 3. Where a password is asked for, nothing is served before one is kept; a changed one counts from the next
//!    look on.
//!
//! Source: serve and the collection thread in src/pybind/mgr/prometheus/module.py (16.2).

mod answer;
mod kept;

use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use daemons::mgr::MgrHandle;
use manager::prometheus::{MetricsAt, Role};
use tokio::net::TcpListener;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;

use crate::attempts::Attempts;
use crate::server::{connection, lock, tls};
use kept::Kept;

/// What the monitors call it.
const SERVICE: &str = "prometheus";
/// While a manager that has just begun does not know the cluster yet.
const SOON: Duration = Duration::from_secs(1);

/// What all requests work with.
struct Shared {
    manager: MgrHandle,
    name: String,
    at: MetricsAt,
    kept: Kept,
    /// SHA-256 of the password that is asked for.
    password: Mutex<Option<[u8; 32]>>,
    attempts: Mutex<Attempts>,
    /// Attempts are told the time since then.
    since: Instant,
}

/// Serves until the manager ends.
pub async fn run(manager: MgrHandle, name: String) {
    let mut wanted = manager.metrics();
    loop {
        let at = wanted.borrow_and_update().clone();
        let changed = match at {
            None => wanted.changed().await,
            Some(at) => tokio::select! {
                changed = wanted.changed() => changed,
                // The manager says when to try again.
                never = serve(&manager, &name, at) => match never {},
            },
        };
        manager.serving(SERVICE, None);
        if changed.is_err() {
            return;
        }
    }
}

/// Serves as long as it is let.
async fn serve(manager: &MgrHandle, name: &str, at: MetricsAt) -> Infallible {
    let shared = Arc::new(Shared {
        manager: manager.clone(),
        name: name.to_owned(),
        kept: Kept::default(),
        password: Mutex::default(),
        attempts: Mutex::default(),
        since: Instant::now(),
        at,
    });
    let (listener, acceptor) = match prepare(&shared).await {
        Ok(ready) => ready,
        Err(why) => {
            manager.metrics_served(Some(why));
            return std::future::pending().await;
        }
    };
    manager.metrics_served(None);
    if shared.at.role == Role::Active {
        let open = shared.at.username.is_none() && !shared.at.ip.is_some_and(|ip| ip.is_loopback());
        let to = if open { ", to everybody who reaches it" } else { "" };
        tracing::info!("metrics are served at {}{to}", shared.at.url);
        manager.serving(SERVICE, Some(shared.at.url.clone()));
    }
    tokio::select! {
        never = look_on(&shared) => never,
        never = connection::serve(listener, acceptor, Arc::clone(&shared)) => never,
    }
}

async fn prepare(shared: &Shared) -> Result<(TcpListener, Option<TlsAcceptor>), String> {
    let at = &shared.at;
    shared.look_at_password().await?;
    let acceptor = match at.tls {
        true => {
            let ip = at.ip.unwrap_or(Ipv4Addr::UNSPECIFIED.into());
            Some(tls::acceptor(&shared.manager, SERVICE, &shared.name, ip).await?)
        }
        false => None,
    };
    Ok((listen(at).await?, acceptor))
}

/// At all addresses of both kinds where none is given, or of one where the host has no other.
async fn listen(at: &MetricsAt) -> Result<TcpListener, String> {
    let bind = |ip: IpAddr| async move {
        let addr = SocketAddr::new(ip, at.port);
        TcpListener::bind(addr).await.map_err(|e| (e.kind(), format!("cannot listen at {addr}: {e}")))
    };
    let listener = match at.ip {
        Some(ip) => bind(ip).await,
        None => match bind(Ipv6Addr::UNSPECIFIED.into()).await {
            Err((kind, _)) if kind != std::io::ErrorKind::AddrInUse => {
                bind(Ipv4Addr::UNSPECIFIED.into()).await
            }
            listener => listener,
        },
    };
    listener.map_err(|(_, why)| why)
}

/// Looks at the cluster in each interval, where there is a cache, and at the password.
async fn look_on(shared: &Shared) -> Infallible {
    let is_active = shared.at.role == Role::Active;
    let mut said = None;
    loop {
        let begun = Instant::now();
        if let Err(why) = shared.look_at_password().await {
            tracing::warn!("{why}");
        }
        let mut wait = shared.at.interval;
        if is_active && shared.at.cache {
            let failed = shared.kept.gather(&shared.manager).await.err();
            if failed.is_some() {
                wait = wait.min(SOON);
            }
            if let Some(why) = failed.as_ref().filter(|_| failed != said) {
                tracing::warn!("metrics are not gathered: {why}");
            }
            said = failed;
        }
        tokio::time::sleep_until(begun + wait).await;
    }
}

impl Shared {
    /// Learns which password is asked for.
    async fn look_at_password(&self) -> Result<(), String> {
        if self.at.username.is_none() {
            return Ok(());
        }
        let kept = tls::kept(&self.manager, SERVICE, &self.name, "password").await?;
        // A newline at the end of a file is no part of it.
        let password = kept.as_deref().map(|p| p.trim_ascii_end()).filter(|p| !p.is_empty());
        *lock(&self.password) = password.map(answer::digest);
        match password {
            Some(_) => Ok(()),
            None => Err(format!(
                "mgr/{SERVICE}/auth is on and there is no password: `ceph config-key set mgr/{SERVICE}/password \
                 -i FILE` keeps one"
            )),
        }
    }
}

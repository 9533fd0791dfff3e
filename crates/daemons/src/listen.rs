//! Where a daemon listens: at the network of the clients, and an OSD also at the one that OSDs have among
//! themselves.

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

use anyhow::{Context, Result, bail};
use pg::BootAddrs;
use runtime::net::Messenger;
use types::AddrVec;

/// This host's addresses in both networks, and the ports that may be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenAt {
    /// For clients, the manager, and heartbeats of the other OSDs.
    pub public: IpAddr,
    /// For the other OSDs, and a second time their heartbeats.
    pub cluster: IpAddr,
    /// Empty: any.
    pub ports: Range<u16>,
}

impl ListenAt {
    /// One address for everything, at any ports.
    pub fn all_at(ip: IpAddr) -> Self {
        Self { public: ip, cluster: ip, ports: 0..0 }
    }

    /// Binds the four addresses that an OSD announces.
    pub(crate) async fn bind_all(&self, messenger: &Messenger, nonce: u32) -> Result<BootAddrs> {
        Ok(BootAddrs {
            public: self.bind(messenger, true, self.public, nonce).await?,
            cluster: self.bind(messenger, false, self.cluster, nonce).await?,
            heartbeat_front: self.bind(messenger, false, self.public, nonce).await?,
            heartbeat_back: self.bind(messenger, false, self.cluster, nonce).await?,
            host: crate::metadata::host(),
        })
    }

    async fn bind(&self, messenger: &Messenger, first: bool, ip: IpAddr, nonce: u32) -> Result<AddrVec> {
        bind(messenger, first, ip, &self.ports, nonce).await
    }
}

/// Listens on a free port of `ports`; the first address of a messenger is the one that it states by itself.
pub(crate) async fn bind(
    messenger: &Messenger,
    first: bool,
    ip: IpAddr,
    ports: &Range<u16>,
    nonce: u32,
) -> Result<AddrVec> {
    let ports = if ports.is_empty() { 0..1 } else { ports.clone() };
    for port in ports.clone() {
        let at = SocketAddr::new(ip, port);
        let bound = match first {
            true => messenger.listen(at, nonce).await,
            false => messenger.listen_also(at, nonce).await,
        };
        match bound {
            Ok(addr) => return Ok(AddrVec::single(addr)),
            Err(e) if e.kind() == std::io::ErrorKind::AddrInUse => {}
            Err(e) => return Err(e).with_context(|| format!("cannot listen on {at}")),
        }
    }
    bail!(
        "cannot listen on {ip}: the ports {} to {} are all in use",
        ports.start,
        ports.end.saturating_sub(1)
    )
}

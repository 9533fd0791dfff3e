//! What daemons told of themselves: their options, and the services that register with `MMgrOpen`.
//!
//! Source: DaemonServer::handle_open and handle_report in src/mgr/DaemonServer.cc, src/mgr/DaemonState.h.

use std::collections::BTreeMap;

use bytes::Bytes;
use codec::{Decode, DecodeError, Reader};
use maps::{OsdMap, ServiceDaemon, ServiceMap};
use messages::mgr::{DaemonHealthMetric, MMgrOpen, MMgrReport};
use types::{ConnId, EntityType, Now, Utime};

use crate::io::PeerInfo;

/// Entries; more are not taken in.
const LIMIT: usize = 16_384;

/// One daemon's name: `osd.3`, `rgw.4123`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DaemonKey {
    pub service: String,
    pub id: String,
}

impl DaemonKey {
    pub fn parse(text: &str) -> Option<Self> {
        let (service, id) = text.split_once('.')?;
        Some(Self { service: service.to_owned(), id: id.to_owned() })
    }
}

/// One daemon.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Daemon {
    /// The session that it has, if any.
    pub conn: Option<ConnId>,
    /// Values by level (`CONF_*`) that are not defaults.
    pub config: BTreeMap<String, BTreeMap<i32, String>>,
    /// The monitors' values that it ignores.
    pub ignored: BTreeMap<String, String>,
    /// Every option's default; empty when it told none.
    pub defaults: BTreeMap<String, String>,
    pub status: BTreeMap<String, String>,
    pub status_stamp: Utime,
    pub last_beacon: Utime,
    /// How many operations are slow, and the age of the oldest in seconds.
    pub slow: (u32, u32),
}

/// All of them.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Daemons {
    pub daemons: BTreeMap<DaemonKey, Daemon>,
    /// Those that are not daemons of the cluster itself.
    pub services: ServiceMap,
}

impl Daemons {
    pub fn opened(&mut self, now: Now, conn: ConnId, peer: &PeerInfo, m: MMgrOpen) {
        let key = key(peer, &m.service_name, &m.daemon_name);
        if self.daemons.len() >= LIMIT && !self.daemons.contains_key(&key) {
            return;
        }
        let daemon = self.daemons.entry(key.clone()).or_default();
        daemon.conn = Some(conn);
        daemon.take_config(&m.config);
        daemon.take_defaults(m.config_defaults);
        let Some(service) = m.service else { return };
        daemon.status = service.status;
        daemon.status_stamp = now.wall;
        daemon.last_beacon = now.wall;
        if is_cluster_daemon(&key.service) {
            return;
        }
        self.services.epoch = self.services.epoch.next();
        self.services.modified = now.wall;
        let entry = ServiceDaemon {
            gid: u64::try_from(peer.name.num).unwrap_or(0),
            addr: peer.addr,
            start_epoch: self.services.epoch,
            start_stamp: now.wall,
            metadata: service.metadata,
            ..ServiceDaemon::default()
        };
        self.services.services.entry(key.service).or_default().daemons.insert(key.id, entry);
    }

    /// Takes a report; whether it changes the cluster's health.
    pub fn reported(&mut self, now: Now, conn: ConnId, peer: &PeerInfo, m: &MMgrReport) -> bool {
        let key = key(peer, &m.service_name, &m.daemon_name);
        let Some(daemon) = self.daemons.get_mut(&key).filter(|d| d.conn == Some(conn)) else { return false };
        daemon.take_config(&m.config);
        let slow = slow_ops(&m.health_metrics);
        let news = std::mem::replace(&mut daemon.slow, slow) != slow;
        daemon.last_beacon = now.wall;
        if let Some(status) = &m.daemon_status {
            daemon.status.clone_from(status);
            daemon.status_stamp = now.wall;
        }
        let service = self.services.services.get_mut(&key.service);
        if let (Some(entry), Some(tasks)) =
            (service.and_then(|s| s.daemons.get_mut(&key.id)), m.task_status())
        {
            entry.task_status = tasks;
        }
        news
    }

    /// A session ended, and with it the registration of a service.
    pub fn disconnected(&mut self, now: Now, conn: ConnId) {
        let gone = |d: &Daemon| d.conn == Some(conn);
        let keys: Vec<DaemonKey> =
            self.daemons.iter().filter(|(_, d)| gone(d)).map(|(key, _)| key.clone()).collect();
        for key in keys {
            if is_cluster_daemon(&key.service) {
                let daemon = self.daemons.entry(key).or_default();
                (daemon.conn, daemon.slow) = (None, (0, 0));
                continue;
            }
            if let Some(service) = self.services.services.get_mut(&key.service) {
                service.daemons.remove(&key.id);
                if service.daemons.is_empty() {
                    self.services.services.remove(&key.service);
                }
                self.services.epoch = self.services.epoch.next();
                self.services.modified = now.wall;
            }
            self.daemons.remove(&key);
        }
    }

    /// OSDs that are gone for good are forgotten.
    pub fn map_changed(&mut self, map: &OsdMap) {
        let gone = |key: &DaemonKey| key.service == "osd" && !key.id.parse().is_ok_and(|osd| map.exists(osd));
        self.daemons.retain(|key, _| !gone(key));
    }

    /// Daemons with slow operations.
    pub fn slow(&self) -> impl Iterator<Item = (&DaemonKey, (u32, u32))> {
        self.daemons.iter().filter(|(_, d)| d.slow != (0, 0)).map(|(key, d)| (key, d.slow))
    }

    pub fn get(&self, key: &DaemonKey) -> Option<&Daemon> {
        self.daemons.get(key)
    }
}

impl Daemon {
    /// Bytes that do not decode leave the last values.
    pub fn take_config(&mut self, bytes: &Bytes) {
        let decode = |r: &mut Reader| Ok::<_, DecodeError>((Decode::decode(r)?, Decode::decode(r)?));
        if let Ok((config, ignored)) = decode(&mut Reader::new(bytes.clone())) {
            self.config = config;
            self.ignored = ignored;
        }
    }

    pub fn take_defaults(&mut self, bytes: Bytes) {
        if let Ok(defaults) = BTreeMap::from_bytes(bytes) {
            self.defaults = defaults;
        }
    }
}

/// Two numbers in one metric. Source: src/mgr/DaemonHealthMetric.h.
fn slow_ops(metrics: &[DaemonHealthMetric]) -> (u32, u32) {
    const SLOW_OPS: u8 = 0;
    let of_ops = metrics.iter().filter(|m| m.kind == SLOW_OPS);
    of_ops.fold((0, 0), |(n, oldest), m| {
        let (count, age) = (m.value as u32, (m.value >> 32) as u32);
        (n.saturating_add(count), oldest.max(age))
    })
}

fn key(peer: &PeerInfo, service: &str, daemon: &str) -> DaemonKey {
    let kind = peer.name.entity_type().map_or("unknown", EntityType::as_str);
    let service = if service.is_empty() { kind } else { service };
    DaemonKey { service: service.to_owned(), id: daemon.to_owned() }
}

/// Those have maps of their own. Source: ServiceMap::is_normal_ceph_entity.
fn is_cluster_daemon(service: &str) -> bool {
    matches!(service, "osd" | "client" | "mon" | "mds" | "mgr")
}

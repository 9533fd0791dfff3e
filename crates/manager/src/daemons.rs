//! What daemons told of themselves: their options, their counters, and the services that register with
//! `MMgrOpen`.
//!
//! Invariants:
//! 1. The entry of a daemon of the cluster (`osd.3`) is made and changed by sessions with that entity's key alone.
//! 2. A service's entry belongs to the key that registered it, and goes with its session. A key has at most [`SERVICES_SHARE`].
//!    Ceph's own keys for gateways have no capability at the manager, so none is asked for.
//! 3. What an entry holds is bounded, and so is what the services of one key hold together. No number of
//!    services takes room from the daemons of the cluster.
//! 4. A client that registers no service has no entry.
//! 5. What the log is told of a connection is bounded.
//!
//! Source: DaemonServer::handle_open and handle_report in src/mgr/DaemonServer.cc, src/mgr/DaemonState.h.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use codec::{Decode, DecodeError, Reader};
use maps::{OsdMap, ServiceDaemon, ServiceMap};
use messages::mgr::{DaemonHealthMetric, MMgrOpen, MMgrReport, ServiceInfo};
use types::{AuthName, ConnId, EntityType, Now, Utime, printable};

use crate::counters::{ALL_COUNTERS, Counters, KEY_COUNTERS, Refusal, SERVICE_COUNTERS};
use crate::io::PeerInfo;
use crate::services::Cut;

/// Daemons of the cluster; more are not taken in.
const LIMIT: usize = 16_384;
/// Services, those of one key, and the bytes of their names.
const SERVICES_LIMIT: usize = 4_096;
const SERVICES_SHARE: usize = 16;
const SERVICE_NAME_BYTES: usize = 64;
const DAEMON_NAME_BYTES: usize = 256;
/// Bytes of what a daemon says of itself, and of its options.
const ABOUT_BYTES: usize = 64 << 10;
const OPTIONS_BYTES: usize = 1 << 20;
/// Bytes of what all services of one key say of themselves when they register.
const OWNER_BYTES: usize = 128 << 10;
/// Bytes of options of all services of one key, as they come.
const OWNER_OPTIONS_BYTES: usize = 512 << 10;
/// Bytes of a service's tasks.
const TASKS_BYTES: usize = 4 << 10;

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
    /// Whose key registered it.
    pub owner: Option<AuthName>,
    /// Values by level (`CONF_*`) that are not defaults.
    pub config: BTreeMap<String, BTreeMap<i32, String>>,
    /// The monitors' values that it ignores.
    pub ignored: BTreeMap<String, String>,
    /// Every option's default; empty when it told none.
    pub defaults: BTreeMap<String, String>,
    /// As they came, of `config` and of `defaults`.
    options_bytes: [usize; 2],
    pub status: BTreeMap<String, String>,
    pub status_stamp: Utime,
    pub last_beacon: Utime,
    /// How many operations are slow, and the age of the oldest in seconds.
    pub slow: (u32, u32),
    /// PGs that it was told to make and has no room for.
    pub pending_pgs: u64,
    /// Whether it tells of slow operations, and of PGs that it has no room for.
    pub tells: (bool, bool),
    /// As they last reported them.
    pub counters: Counters,
}

/// All of them.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Daemons {
    pub daemons: BTreeMap<DaemonKey, Daemon>,
    /// Those that are not daemons of the cluster itself.
    pub services: ServiceMap,
    /// Reports of which the counters, or all, were not taken.
    pub refused: u64,
    /// Counters that a daemon declared although it had declared them before.
    pub declared_twice: u64,
    /// Sessions that were not registered.
    pub sessions_refused: u64,
    /// Connections whose tickets had a form that is not taken.
    pub tickets_refused: u64,
    /// What the log has been told of a connection: each refusal once, however often it opens and closes
    /// sessions.
    told: BTreeMap<ConnId, BTreeSet<Refusal>>,
    /// What the monitors were not told of services.
    pub cut: Cut,
    /// Changes with `services`.
    pub services_version: u64,
}

impl Daemons {
    /// A session begins; a line for the log when it is refused as none of this connection's was before.
    pub fn opened(&mut self, now: Now, conn: ConnId, peer: &PeerInfo, m: MMgrOpen) -> Option<String> {
        let key = key(peer, &m.service_name, &m.daemon_name);
        if key.service == EntityType::Client.as_str() {
            // Clients of Ceph's open a session only for a service that they are.
            return None;
        }
        if !self.may_open(&key, peer) || !m.service.as_ref().is_none_or(|s| self.may_say(&key, peer, s)) {
            return self.refuse_session(conn, peer, &key);
        }
        self.register(now, conn, peer, key, m);
        None
    }

    fn refuse_session(&mut self, conn: ConnId, peer: &PeerInfo, key: &DaemonKey) -> Option<String> {
        self.sessions_refused += 1;
        let why = Refusal::Registration;
        let news = self.told.entry(conn).or_default().insert(why);
        let name = format!("{}.{}", cut(&key.service), cut(&key.id));
        let line = || format!("a session of {} as {name} was refused: {}", peer.auth_name, why.why());
        news.then(|| printable(&line()).into_owned())
    }

    fn register(&mut self, now: Now, conn: ConnId, peer: &PeerInfo, key: DaemonKey, m: MMgrOpen) {
        let room = self.room_for_options(&key, peer);
        let daemon = self.daemons.entry(key.clone()).or_default();
        daemon.conn = Some(conn);
        daemon.counters = Counters::default();
        daemon.owner = Some(peer.auth_name.clone());
        daemon.take_defaults(m.config_defaults, room);
        daemon.take_config(&m.config, room);
        let Some(service) = m.service else { return };
        daemon.status = service.status;
        daemon.status_stamp = now.wall;
        daemon.last_beacon = now.wall;
        if ServiceMap::is_cluster_daemon(&key.service) {
            return;
        }
        self.services_changed(now);
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

    /// Whether a session may register under this name, and whether there is room for it.
    fn may_open(&self, key: &DaemonKey, peer: &PeerInfo) -> bool {
        if key.service.len() > SERVICE_NAME_BYTES || key.id.len() > DAEMON_NAME_BYTES {
            return false;
        }
        let is_text = |name: &str| !name.chars().any(char::is_control);
        if !is_text(&key.service) || !is_text(&key.id) {
            return false;
        }
        let known = self.daemons.get(key);
        let services = || self.daemons.iter().filter(|(k, _)| !ServiceMap::is_cluster_daemon(&k.service));
        if ServiceMap::is_cluster_daemon(&key.service) {
            let room = known.is_some() || self.daemons.len() - services().count() < LIMIT;
            return is_own_name(key, &peer.auth_name) && room;
        }
        if let Some(known) = known {
            return known.owner.as_ref() == Some(&peer.auth_name);
        }
        let of_key = services().filter(|(_, d)| d.owner.as_ref() == Some(&peer.auth_name)).count();
        of_key < SERVICES_SHARE && services().count() < SERVICES_LIMIT
    }

    /// Whether what a daemon says of itself is within its own bound and within that of its key.
    fn may_say(&self, key: &DaemonKey, peer: &PeerInfo, said: &ServiceInfo) -> bool {
        let (metadata, status) = (size(&said.metadata), size(&said.status));
        if metadata > ABOUT_BYTES || status > ABOUT_BYTES {
            return false;
        }
        if ServiceMap::is_cluster_daemon(&key.service) {
            return true;
        }
        let of_key =
            self.daemons.iter().filter(|(k, d)| *k != key && d.owner.as_ref() == Some(&peer.auth_name));
        let held = of_key.map(|(k, d)| {
            let entry = self.services.services.get(&k.service).and_then(|s| s.daemons.get(&k.id));
            entry.map_or(0, |entry| size(&entry.metadata)) + size(&d.status)
        });
        held.sum::<usize>() + metadata + status <= OWNER_BYTES
    }

    /// For how many bytes of options there is room: those of services have a share for each key.
    fn room_for_options(&self, key: &DaemonKey, peer: &PeerInfo) -> usize {
        if ServiceMap::is_cluster_daemon(&key.service) {
            return 2 * OPTIONS_BYTES;
        }
        let of_key =
            self.daemons.iter().filter(|(k, d)| *k != key && d.owner.as_ref() == Some(&peer.auth_name));
        let held: usize = of_key.flat_map(|(_, d)| d.options_bytes).sum();
        OWNER_OPTIONS_BYTES.saturating_sub(held)
    }

    /// For how many more counters there is room for this daemon: services have a share of their own, and each
    /// key one of that.
    fn room(&self, key: &DaemonKey, peer: &PeerInfo) -> usize {
        let of_cluster = |key: &DaemonKey| ServiceMap::is_cluster_daemon(&key.service);
        let held = |counts: &dyn Fn(&DaemonKey, &Daemon) -> bool| {
            let daemons = self.daemons.iter().filter(|(k, d)| counts(k, d));
            daemons.map(|(_, d)| d.counters.len()).sum::<usize>()
        };
        if of_cluster(key) {
            return ALL_COUNTERS.saturating_sub(held(&|k, _| of_cluster(k)));
        }
        let of_all = SERVICE_COUNTERS.saturating_sub(held(&|k, _| !of_cluster(k)));
        let own = held(&|k, d| !of_cluster(k) && d.owner.as_ref() == Some(&peer.auth_name));
        of_all.min(KEY_COUNTERS.saturating_sub(own))
    }

    /// Takes the counters of a report; a line for the log when it is refused as none of this
    /// connection's was before.
    pub fn counted(&mut self, conn: ConnId, peer: &PeerInfo, m: &MMgrReport) -> Option<String> {
        let key = key(peer, &m.service_name, &m.daemon_name);
        if key.service == EntityType::Client.as_str() {
            // A client reports because nobody told it otherwise; it is no daemon.
            return None;
        }
        let room = if m.declare_types.is_empty() { 0 } else { self.room(&key, peer) };
        let daemon = self.daemons.get_mut(&key).filter(|d| d.conn == Some(conn));
        let refusal = match daemon.map(|daemon| daemon.counters.take(m, room)) {
            None => Refusal::Foreign,
            Some(Err(refusal)) => refusal,
            Some(Ok(0)) => return None,
            Some(Ok(twice)) => {
                self.declared_twice += twice;
                Refusal::Twice
            }
        };
        self.refused += u64::from(refusal != Refusal::Twice);
        let news = self.told.entry(conn).or_default().insert(refusal);
        let name = format!("{}.{}", cut(&key.service), cut(&key.id));
        let what = if refusal == Refusal::Twice { "was cut" } else { "was refused" };
        let line = || format!("a report of {} as {name} {what}: {}", peer.auth_name, refusal.why());
        news.then(|| printable(&line()).into_owned())
    }

    /// Whether a report is of the daemon that opened this session.
    pub fn is_of(&self, conn: ConnId, peer: &PeerInfo, m: &MMgrReport) -> bool {
        self.daemons.get(&key(peer, &m.service_name, &m.daemon_name)).is_some_and(|d| d.conn == Some(conn))
    }

    /// What an OSD says of images cannot be read; a line for the log when none of this connection's could not
    /// before.
    pub fn refuse_metrics(&mut self, conn: ConnId, peer: &PeerInfo) -> Option<String> {
        self.refused += 1;
        let news = self.told.entry(conn).or_default().insert(Refusal::Metrics);
        news.then(|| {
            format!("sums over images of {} were refused: {}", peer.auth_name, Refusal::Metrics.why())
        })
    }

    /// Takes what else a report says; whether that changes the cluster's health.
    pub fn reported(&mut self, now: Now, conn: ConnId, peer: &PeerInfo, m: &MMgrReport) -> bool {
        let key = key(peer, &m.service_name, &m.daemon_name);
        let room = self.room_for_options(&key, peer);
        let Some(daemon) = self.daemons.get_mut(&key).filter(|d| d.conn == Some(conn)) else { return false };
        daemon.take_config(&m.config, room);
        // Only these report on the cluster's health. Source: DaemonServer::handle_report.
        let of_cluster = matches!(peer.name.entity_type(), Some(EntityType::Osd | EntityType::Mon));
        let metrics = if of_cluster { m.health_metrics.as_slice() } else { &[] };
        let (slow, pending) = (slow_ops(metrics), pending_pgs(metrics));
        let news = (daemon.slow, daemon.pending_pgs) != (slow, pending);
        (daemon.slow, daemon.pending_pgs) = (slow, pending);
        let has = |kind| metrics.iter().any(|m| m.kind == kind);
        daemon.tells = (has(SLOW_OPS), has(PENDING_CREATING_PGS));
        daemon.last_beacon = now.wall;
        if let Some(status) = m.daemon_status.as_ref().filter(|s| size(s) <= ABOUT_BYTES) {
            daemon.status.clone_from(status);
            daemon.status_stamp = now.wall;
        }
        let service = self.services.services.get_mut(&key.service);
        if let (Some(entry), Some(tasks)) = (
            service.and_then(|s| s.daemons.get_mut(&key.id)),
            m.task_status().filter(|t| size(t) <= TASKS_BYTES),
        ) {
            self.services_version += u64::from(entry.task_status != tasks);
            entry.task_status = tasks;
        }
        news
    }

    /// A connection ended, and with it its session; whether that changes the cluster's health.
    pub fn disconnected(&mut self, now: Now, conn: ConnId) -> bool {
        self.told.remove(&conn);
        self.closed(now, conn)
    }

    /// A session ended, and with it the registration of a service; whether that changes the cluster's health.
    pub fn closed(&mut self, now: Now, conn: ConnId) -> bool {
        let mut news = false;
        let gone = |d: &Daemon| d.conn == Some(conn);
        let keys: Vec<DaemonKey> =
            self.daemons.iter().filter(|(_, d)| gone(d)).map(|(key, _)| key.clone()).collect();
        for key in keys {
            if ServiceMap::is_cluster_daemon(&key.service) {
                let daemon = self.daemons.entry(key).or_default();
                news |= (daemon.slow, daemon.pending_pgs) != ((0, 0), 0);
                (daemon.conn, daemon.slow, daemon.pending_pgs) = (None, (0, 0), 0);
                continue;
            }
            if let Some(service) = self.services.services.get_mut(&key.service) {
                service.daemons.remove(&key.id);
                if service.daemons.is_empty() {
                    self.services.services.remove(&key.service);
                }
                self.services_changed(now);
            }
            self.daemons.remove(&key);
        }
        news
    }

    fn services_changed(&mut self, now: Now) {
        self.services.epoch = self.services.epoch.next();
        self.services.modified = now.wall;
        self.services_version += 1;
    }

    /// OSDs that are gone for good are forgotten; whether that changes the cluster's health.
    pub fn map_changed(&mut self, map: &OsdMap) -> bool {
        let ailing = |daemons: &Self| daemons.slow().count() + daemons.pending_pgs().count();
        let before = ailing(self);
        let gone =
            |key: &DaemonKey| key.service == "osd" && !key.id.parse::<i32>().is_ok_and(|osd| map.exists(osd));
        self.daemons.retain(|key, _| !gone(key));
        ailing(self) != before
    }

    /// Daemons with slow operations.
    pub fn slow(&self) -> impl Iterator<Item = (&DaemonKey, (u32, u32))> {
        self.daemons.iter().filter(|(_, d)| d.slow != (0, 0)).map(|(key, d)| (key, d.slow))
    }

    /// Daemons that were told to make more PGs than they have room for.
    pub fn pending_pgs(&self) -> impl Iterator<Item = (&DaemonKey, u64)> {
        self.daemons.iter().filter(|(_, d)| d.pending_pgs != 0).map(|(key, d)| (key, d.pending_pgs))
    }

    pub fn get(&self, key: &DaemonKey) -> Option<&Daemon> {
        self.daemons.get(key)
    }
}

impl Daemon {
    /// Bytes that do not decode leave the last values.
    pub fn take_config(&mut self, bytes: &Bytes, room: usize) {
        if bytes.len().saturating_add(self.options_bytes[1]) > room {
            return;
        }
        let decode = |r: &mut Reader| Ok::<_, DecodeError>((Decode::decode(r)?, Decode::decode(r)?));
        if let Ok((config, ignored)) = decode(&mut Reader::new(bytes.clone())) {
            self.config = config;
            self.ignored = ignored;
            self.options_bytes[0] = bytes.len();
        }
    }

    pub fn take_defaults(&mut self, bytes: Bytes, room: usize) {
        let length = bytes.len();
        if length.saturating_add(self.options_bytes[0]) > room {
            return;
        }
        if let Ok(defaults) = BTreeMap::from_bytes(bytes) {
            self.defaults = defaults;
            self.options_bytes[1] = length;
        }
    }
}

/// Kinds of health metrics. Source: daemon_metric in src/mgr/DaemonHealthMetric.h.
const SLOW_OPS: u8 = 0;
const PENDING_CREATING_PGS: u8 = 1;

/// Two numbers in one metric.
fn slow_ops(metrics: &[DaemonHealthMetric]) -> (u32, u32) {
    let of_ops = metrics.iter().filter(|m| m.kind == SLOW_OPS);
    of_ops.fold((0, 0), |(n, oldest), m| {
        let (count, age) = (m.value as u32, (m.value >> 32) as u32);
        (n.saturating_add(count), oldest.max(age))
    })
}

fn pending_pgs(metrics: &[DaemonHealthMetric]) -> u64 {
    metrics.iter().filter(|m| m.kind == PENDING_CREATING_PGS).fold(0, |n, m| n.saturating_add(m.value))
}

fn key(peer: &PeerInfo, service: &str, daemon: &str) -> DaemonKey {
    let kind = peer.name.entity_type().map_or("unknown", EntityType::as_str);
    let service = if service.is_empty() { kind } else { service };
    DaemonKey { service: service.to_owned(), id: daemon.to_owned() }
}

/// Whether a key is that of the daemon with this name. Monitors have one key for all of them.
fn is_own_name(key: &DaemonKey, name: &AuthName) -> bool {
    key.service == name.kind.as_str() && (name.kind == EntityType::Mon || key.id == name.id)
}

/// A name as the log may carry it.
fn cut(name: &str) -> String {
    name.chars().take(SERVICE_NAME_BYTES).collect()
}

/// Bytes that texts take up, about.
fn size(texts: &BTreeMap<String, String>) -> usize {
    texts.iter().map(|(name, value)| name.len() + value.len() + 16).sum()
}

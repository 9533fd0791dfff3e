//! The service map: daemons outside the maps of their own (gateways and the like) that report to the manager.
//!
//! Source: src/mgr/ServiceMap.{h,cc}.

use std::collections::{BTreeMap, BTreeSet};

use codec::{Decode, DecodeError, Encode, Reader, Writer};
use serde_json::{Value, json};
use types::{EntityAddr, Epoch, Utime};

use crate::addrs::legacy_text_of;
use crate::json::{object, strings};

/// One daemon of a service.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServiceDaemon {
    pub gid: u64,
    pub addr: EntityAddr,
    /// The epoch that it first appeared in.
    pub start_epoch: Epoch,
    pub start_stamp: Utime,
    pub metadata: BTreeMap<String, String>,
    /// Status by running task.
    pub task_status: BTreeMap<String, String>,
}

/// The daemons of one service, by name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Service {
    pub daemons: BTreeMap<String, ServiceDaemon>,
    /// Replaces the counted summary in `ceph status` when not empty.
    pub summary: String,
}

codec::wire_struct!(Service(1, 1) { daemons, summary });

/// All services, by name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServiceMap {
    pub epoch: Epoch,
    pub modified: Utime,
    pub services: BTreeMap<String, Service>,
}

codec::wire_struct!(ServiceMap(1, 1) { epoch, modified, services });

impl Encode for ServiceDaemon {
    fn encode(&self, w: &mut Writer) {
        w.envelope(2, 1, |w| {
            w.u64(self.gid);
            self.addr.encode(w);
            self.start_epoch.encode(w);
            self.start_stamp.encode(w);
            self.metadata.encode(w);
            self.task_status.encode(w);
        });
    }
}
impl Decode for ServiceDaemon {
    const MIN_SIZE: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("ServiceMap::Daemon", 2, |r, env| {
            Ok(Self {
                gid: r.u64()?,
                addr: EntityAddr::decode(r)?,
                start_epoch: Epoch::decode(r)?,
                start_stamp: Utime::decode(r)?,
                metadata: Decode::decode(r)?,
                task_status: if env.version >= 2 { Decode::decode(r)? } else { BTreeMap::new() },
            })
        })
    }
}

impl ServiceMap {
    /// Whether a daemon of this type has a map of its own.
    pub fn is_cluster_daemon(kind: &str) -> bool {
        matches!(kind, "osd" | "client" | "mon" | "mds" | "mgr")
    }

    /// `ceph service dump`.
    pub fn dump(&self) -> Value {
        json!({
            "epoch": self.epoch.0,
            "modified": self.modified.to_string(),
            "services": object(self.services.iter().map(|(name, s)| (name.as_str(), s.dump()))),
        })
    }
}

impl Service {
    /// What `ceph status` says of it: its own words, or how many daemons it has, on how many hosts and for
    /// how many zones, as far as they say. Seen of 16.2.15: `1 portal active (1 hosts, 1 zones)`.
    pub fn summary(&self) -> String {
        if !self.summary.is_empty() {
            return self.summary.clone();
        }
        let said = |key: &str| self.daemons.values().filter_map(|d| d.metadata.get(key)).collect::<Vec<_>>();
        let count = self.daemons.len();
        if count == 0 {
            return "no daemons active".to_owned();
        }
        let kind = said("daemon_type").pop().map_or("daemon", String::as_str);
        let groups = [("hostname", "hosts"), ("zone_id", "zones")].into_iter().filter_map(|(key, name)| {
            let different: BTreeSet<&String> = said(key).into_iter().collect();
            (!different.is_empty()).then(|| format!("{} {name}", different.len()))
        });
        let groups: Vec<String> = groups.collect();
        let s = if count == 1 { "" } else { "s" };
        match groups.is_empty() {
            true => format!("{count} {kind}{s} active"),
            false => format!("{count} {kind}{s} active ({})", groups.join(", ")),
        }
    }

    fn dump(&self) -> Value {
        let daemons = self.daemons.iter().map(|(name, d)| {
            let value = json!({
                "start_epoch": d.start_epoch.0,
                "start_stamp": d.start_stamp.to_string(),
                "gid": d.gid,
                "addr": legacy_text_of(&d.addr),
                "metadata": strings(&d.metadata),
                "task_status": strings(&d.task_status),
            });
            (name.as_str(), value)
        });
        json!({ "daemons": object([("summary", Value::from(self.summary.as_str()))].into_iter().chain(daemons)) })
    }
}

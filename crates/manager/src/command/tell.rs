//! What `ceph tell mgr.x` and the manager's admin socket answer: commands of the daemon itself, not of the cluster.
//!
//! Source: src/common/admin_socket.cc, src/mgr/ClusterState.cc (`dump_osd_network`), src/mgr/Mgr.cc (`mgr_status`).

use admin::common::{self, Daemon, Described, Request, described_as};
use admin::perf::{Count, Logger};
use monitor::command::Reply;
use serde_json::{Value, json};
use types::{Errno, Now};

use crate::command::Giver;
use crate::core::Manager;
use crate::daemons::DaemonKey;
use crate::io::PeerInfo;

/// The commands besides those of every daemon.
const TELL: &[Described] = &[
    described_as(
        "counters dump name=who,type=CephString,req=false",
        "the counters that daemons have reported: how many each, or those of <who>",
    ),
    described_as("mgr_status", "Dump mgr status"),
    described_as("sessions", "list sessions with daemons and clients"),
    described_as("status", "how far the manager has got"),
];

/// Answers a command. They need all capabilities, whatever they do.
pub(super) fn answer(manager: &mut Manager, now: Now, peer: &PeerInfo, cmd: &[String]) -> Reply {
    manager.audit(now, Giver::Client(peer), cmd, !peer.caps.is_allow_all());
    if !peer.caps.is_allow_all() {
        let why = "access denied: does your client key have mgr caps? See \
                   http://docs.ceph.com/en/latest/mgr/administrator/#client-authentication";
        return Reply::error(Errno::EACCES, why);
    }
    manager.daemon_command(cmd)
}

impl Manager {
    /// A command from somebody who may do everything: the owner of the admin socket.
    pub fn daemon_command(&mut self, cmd: &[String]) -> Reply {
        let request = match Request::parse(cmd, TELL) {
            Ok(request) => request,
            Err(refused) => return refused,
        };
        let loggers = self.perf();
        let perf = &|| loggers.clone();
        let (values, resets) = (&mut self.options, &mut self.resets);
        let mut daemon = Daemon { values, perf, resets, own: TELL };
        if let Some(reply) = common::run(&request, &mut daemon) {
            return reply;
        }
        let epoch = self.map.as_ref().map_or(0, |map| map.epoch.0);
        let value = match request.prefix.as_str() {
            "mgr_status" | "status" => {
                json!({ "osd_epoch": epoch, "pg_ready": self.pgs.ready, "sessions": self.sessions.len() })
            }
            "sessions" => {
                let one = |p: &PeerInfo| json!({ "name": p.name.to_string(), "entity_name": p.auth_name.to_string(), "addr": p.addr.to_string() });
                self.sessions.values().map(one).collect()
            }
            "counters dump" => match self.reported_counters(request.args.text("who")) {
                Some(value) => value,
                None => return Reply::error(Errno::ENOENT, "no such daemon has reported"),
            },
            other => return Reply::error(Errno::EINVAL, format!("unknown command '{other}'")),
        };
        request.finish(Reply::json(request.format, &value))
    }

    /// One daemon's counters as it last reported them, or how many each has.
    fn reported_counters(&self, who: Option<&str>) -> Option<Value> {
        let name = |key: &DaemonKey| format!("{}.{}", key.service, key.id);
        match who {
            Some(who) => Some(self.daemons.get(&DaemonKey::parse(who)?)?.counters.value()),
            None => {
                let with = self.daemons.daemons.iter().filter(|(_, d)| !d.counters.is_empty());
                Some(Value::Object(with.map(|(key, d)| (name(key), json!(d.counters.len()))).collect()))
            }
        }
    }

    /// What is counted: sessions, and what is held of PGs and OSDs.
    fn perf(&self) -> Vec<Logger> {
        let logger = Logger::new("mgr")
            .with("sessions", "sessions with daemons and clients", Count::Gauge(self.sessions.len() as u64))
            .with("num_pgs", "PGs that are known", Count::Gauge(self.pgs.pgs.len() as u64))
            .with("num_osds", "OSDs that have reported", Count::Gauge(self.pgs.osds.len() as u64))
            .with("pgmap_version", "changes of the statistics", Count::Total(self.pgs.version))
            .with(
                "reports_refused",
                "reports with counters that were refused",
                Count::Total(self.daemons.refused),
            )
            .with(
                "declared_twice",
                "counters that daemons declared although they had before",
                Count::Total(self.daemons.declared_twice),
            )
            .with(
                "services_cut",
                "services of which the monitors are not told all",
                Count::Gauge(self.daemons.cut.texts + self.daemons.cut.entries),
            )
            .with(
                "sessions_refused",
                "sessions of daemons and services that were refused",
                Count::Total(self.daemons.sessions_refused),
            )
            .with(
                "tickets_refused",
                "connections with tickets in a form that is not taken",
                Count::Total(self.daemons.tickets_refused),
            );
        vec![logger]
    }
}

//! The manager's sessions with daemons, and its beacon and reports to the monitors.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer, wire_struct};
use types::{AddrVec, Epoch, Fsid};

use crate::payload::{Parts, PaxosVersion, Payload, RestOfFront, Segments, message};
use crate::type_numbers;

/// A daemon (or a client that registered a service) introduces itself. Source: src/messages/MMgrOpen.h (version 3).
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MMgrOpen {
    pub daemon_name: String,
    /// Empty when the session's entity type says it.
    pub service_name: String,
    /// Metadata and status of a service daemon.
    pub service: Option<ServiceInfo>,
    /// An encoded map of options to their values by level.
    pub config: Bytes,
    pub config_defaults: Bytes,
}

/// What a registered service says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServiceInfo {
    pub metadata: BTreeMap<String, String>,
    pub status: BTreeMap<String, String>,
}
codec::wire_plain!(ServiceInfo { metadata, status });

impl Payload for MMgrOpen {
    const TYPE: u16 = type_numbers::MGR_OPEN;
    const NAME: &'static str = "mgropen";
    const VERSION: u16 = 3;
    const COMPAT: u16 = 1;

    fn encode_payload(&self, out: &mut Segments) {
        let w = &mut out.front;
        self.daemon_name.encode(w);
        self.service_name.encode(w);
        self.service.encode(w);
        self.config.encode(w);
        self.config_defaults.encode(w);
    }

    fn decode_payload(parts: &mut Parts) -> Result<Self, DecodeError> {
        let r = &mut parts.front;
        let mut m = Self { daemon_name: Decode::decode(r)?, ..Self::default() };
        if parts.version >= 2 {
            m.service_name = Decode::decode(r)?;
            m.service = Decode::decode(r)?;
        }
        if parts.version >= 3 {
            m.config = Decode::decode(r)?;
            m.config_defaults = Decode::decode(r)?;
        }
        Ok(m)
    }
}

message! {
    /// Ends a daemon's session; the manager answers with the same. Source: src/messages/MMgrClose.h.
    #[derive(Default)]
    MMgrClose = type_numbers::MGR_CLOSE, "mgrclose", 1, 1 {
        daemon_name: String,
        service_name: String,
    }
}

/// Tells a daemon what to report and how often. Source: src/messages/MMgrConfigure.h (version 4).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MMgrConfigure {
    pub period_s: u32,
    /// Counters of lower priority are not wanted.
    pub threshold: u32,
    /// Queries for sums over an OSD's clients, encoded; see `metric_queries` and `NO_QUERIES`.
    pub queries: RestOfFront,
}

impl MMgrConfigure {
    /// No queries: an empty map and an absent message.
    pub const NO_QUERIES: RestOfFront = RestOfFront(Bytes::from_static(&[0; 5]));
}

impl Default for MMgrConfigure {
    fn default() -> Self {
        Self { period_s: 5, threshold: 5, queries: Self::NO_QUERIES }
    }
}

impl Payload for MMgrConfigure {
    const TYPE: u16 = type_numbers::MGR_CONFIGURE;
    const NAME: &'static str = "mgrconfigure";
    const VERSION: u16 = 4;
    const COMPAT: u16 = 1;

    fn encode_payload(&self, out: &mut Segments) {
        let w = &mut out.front;
        w.u32(self.period_s);
        w.u32(self.threshold);
        self.queries.encode(w);
    }

    fn decode_payload(parts: &mut Parts) -> Result<Self, DecodeError> {
        let r = &mut parts.front;
        Ok(Self {
            period_s: r.u32()?,
            threshold: if parts.version >= 2 { r.u32()? } else { 0 },
            queries: if parts.version >= 4 { RestOfFront::decode(r)? } else { Self::NO_QUERIES },
        })
    }
}

/// A performance counter that reports refer to from now on. Source: PerfCounterType in src/messages/MMgrReport.h.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PerfCounterType {
    pub path: String,
    pub description: String,
    pub nick: String,
    /// PERFCOUNTER_* bits.
    pub kind: u8,
    pub priority: u8,
    pub unit: u8,
}

impl Encode for PerfCounterType {
    fn encode(&self, w: &mut Writer) {
        w.envelope(3, 1, |w| {
            self.path.encode(w);
            self.description.encode(w);
            self.nick.encode(w);
            w.u8(self.kind);
            w.u8(self.priority);
            w.u8(self.unit);
        });
    }
}
impl Decode for PerfCounterType {
    const MIN_SIZE: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("PerfCounterType", 3, |r, env| {
            Ok(Self {
                path: Decode::decode(r)?,
                description: Decode::decode(r)?,
                nick: Decode::decode(r)?,
                kind: r.u8()?,
                priority: if env.version >= 2 { r.u8()? } else { 5 },
                unit: if env.version >= 3 { r.u8()? } else { 0 },
            })
        })
    }
}

/// A number that may make the cluster unhealthy. Source: src/mgr/DaemonHealthMetric.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DaemonHealthMetric {
    /// 0 slow operations, 1 pending PG creations, 2 none.
    pub kind: u8,
    pub value: u64,
}
wire_struct!(DaemonHealthMetric(1, 1) { kind, value });

/// What a daemon reports. Source: src/messages/MMgrReport.h (version 9).
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MMgrReport {
    pub daemon_name: String,
    pub declare_types: Vec<PerfCounterType>,
    /// Values of the declared counters, by their order.
    pub packed: Bytes,
    pub undeclare_types: Vec<String>,
    pub service_name: String,
    pub daemon_status: Option<BTreeMap<String, String>>,
    pub health_metrics: Vec<DaemonHealthMetric>,
    pub config: Bytes,
    /// Answers to the queries of `MMgrConfigure` and the status of tasks, encoded; see `metrics` and
    /// `task_status`.
    pub rest: RestOfFront,
}

impl MMgrReport {
    /// No answers to queries, no task status, no metrics.
    pub const NO_REST: RestOfFront = RestOfFront(Bytes::from_static(&[0; 6]));

    /// Progress of a service's tasks. `None` also when answers to queries stand before it, whose form is not known here.
    pub fn task_status(&self) -> Option<BTreeMap<String, String>> {
        let mut r = Reader::new(self.rest.0.clone());
        match r.u32() {
            Ok(0) => Option::decode(&mut r).ok().flatten(),
            _ => None,
        }
    }
}

impl Payload for MMgrReport {
    const TYPE: u16 = type_numbers::MGR_REPORT;
    const NAME: &'static str = "mgrreport";
    const VERSION: u16 = 9;
    const COMPAT: u16 = 1;

    fn encode_payload(&self, out: &mut Segments) {
        let w = &mut out.front;
        self.daemon_name.encode(w);
        self.declare_types.encode(w);
        self.packed.encode(w);
        self.undeclare_types.encode(w);
        self.service_name.encode(w);
        self.daemon_status.encode(w);
        self.health_metrics.encode(w);
        self.config.encode(w);
        if self.rest.0.is_empty() { Self::NO_REST.encode(w) } else { self.rest.encode(w) }
    }

    fn decode_payload(parts: &mut Parts) -> Result<Self, DecodeError> {
        let (form, r) = (parts.version, &mut parts.front);
        let mut m = Self {
            daemon_name: Decode::decode(r)?,
            declare_types: Decode::decode(r)?,
            packed: Decode::decode(r)?,
            rest: Self::NO_REST,
            ..Self::default()
        };
        if form >= 2 {
            m.undeclare_types = Decode::decode(r)?;
        }
        if form >= 3 {
            m.service_name = Decode::decode(r)?;
            m.daemon_status = Decode::decode(r)?;
        }
        if form >= 5 {
            m.health_metrics = Decode::decode(r)?;
        }
        if form >= 6 {
            m.config = Decode::decode(r)?;
        }
        if form >= 9 {
            m.rest = Decode::decode(r)?;
        }
        Ok(m)
    }
}

/// A command that a manager module answers. Source: MonCommand in src/mon/MonCommand.h.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CommandDesc {
    pub cmdstring: String,
    pub helpstring: String,
    pub module: String,
    pub req_perms: String,
    /// Where it was offered; always `cli,rest`.
    pub availability: String,
    pub flags: u64,
}
wire_struct!(CommandDesc(1, 1) { cmdstring, helpstring, module, req_perms, availability, flags });

/// A manager module. Source: MgrMap::ModuleInfo in src/mon/MgrMap.h (version 2).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ModuleInfo {
    pub name: String,
    pub can_run: bool,
    pub error: String,
    /// Each option's envelope, not looked into.
    pub options: BTreeMap<String, crate::osd::RawEnvelope>,
}
wire_struct!(ModuleInfo(2, 1) { name, can_run, error, options });

/// A manager lives, and what it offers. Source: src/messages/MMgrBeacon.h (version 11 in 16.2).
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MMgrBeacon {
    pub version: PaxosVersion,
    pub addrs: AddrVec,
    pub gid: u64,
    /// Its modules have started.
    pub available: bool,
    pub name: String,
    pub fsid: Fsid,
    pub commands: Vec<CommandDesc>,
    pub metadata: BTreeMap<String, String>,
    pub services: BTreeMap<String, String>,
    pub modules: Vec<ModuleInfo>,
    pub features: u64,
    /// Clients that its modules opened, to be blocklisted when it fails: names and addresses in the same order.
    pub client_names: Vec<String>,
    pub client_addrs: Vec<AddrVec>,
}

impl Payload for MMgrBeacon {
    const TYPE: u16 = type_numbers::MGR_BEACON;
    const NAME: &'static str = "mgrbeacon";
    const VERSION: u16 = 11;
    const COMPAT: u16 = 8;

    fn encode_payload(&self, out: &mut Segments) {
        let w = &mut out.front;
        self.version.encode(w);
        self.addrs.encode(w);
        w.u64(self.gid);
        self.available.encode(w);
        self.name.encode(w);
        self.fsid.encode(w);
        // What readers before version 7 have instead of `modules`.
        let names: BTreeSet<&str> = self.modules.iter().map(|m| m.name.as_str()).collect();
        names.encode(w);
        self.commands.encode(w);
        self.metadata.encode(w);
        self.services.encode(w);
        self.modules.encode(w);
        w.u64(self.features);
        self.client_addrs.encode(w);
        self.client_names.encode(w);
    }

    fn decode_payload(parts: &mut Parts) -> Result<Self, DecodeError> {
        let (form, r) = (parts.version, &mut parts.front);
        if form < 8 {
            return Err(DecodeError::Invalid { what: "mgrbeacon version", value: form.into() });
        }
        let mut m = Self {
            version: Decode::decode(r)?,
            addrs: Decode::decode(r)?,
            gid: r.u64()?,
            available: Decode::decode(r)?,
            name: Decode::decode(r)?,
            fsid: Decode::decode(r)?,
            ..Self::default()
        };
        BTreeSet::<String>::decode(r)?;
        m.commands = Decode::decode(r)?;
        m.metadata = Decode::decode(r)?;
        m.services = Decode::decode(r)?;
        m.modules = Decode::decode(r)?;
        if form >= 9 {
            m.features = r.u64()?;
        }
        if form >= 10 {
            m.client_addrs = Decode::decode(r)?;
        }
        if form >= 11 {
            m.client_names = Decode::decode(r)?;
        }
        Ok(m)
    }
}

/// A reason for ill health. Source: health_check_t in src/mon/health_check.h (version 2).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HealthCheck {
    /// 0 error, 1 warning, 2 ok.
    pub severity: u8,
    pub summary: String,
    pub detail: Vec<String>,
    pub count: i64,
}
wire_struct!(HealthCheck(2, 1) { severity, summary, detail, count });

/// Reasons by code (`OSD_DOWN`, ...). Source: health_check_map_t.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HealthChecks {
    pub checks: BTreeMap<String, HealthCheck>,
}
wire_struct!(HealthChecks(1, 1) { checks });

message! {
    /// Health reasons that a monitor sends to its leader. Source: src/messages/MMonHealthChecks.h.
    #[derive(Default)]
    MMonHealthChecks = type_numbers::MON_HEALTH_CHECKS, "mon_health_checks", 1, 1, HIGH {
        version: PaxosVersion,
        checks: HealthChecks,
    }
}

/// A line of progress that `ceph -s` shows. Source: ProgressEvent in src/mon/mon_types.h (version 2).
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ProgressEvent {
    pub message: String,
    /// 0 to 1.
    pub progress: f32,
    pub add_to_ceph_s: bool,
}
wire_struct!(ProgressEvent(2, 1) { message, progress, add_to_ceph_s });

/// The active manager's sums for the monitors. Source: src/messages/MMonMgrReport.h (version 3 in 16.2).
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MMonMgrReport {
    pub version: PaxosVersion,
    pub checks: HealthChecks,
    /// An encoded service map; empty when nothing changed.
    pub service_map: Bytes,
    pub progress: BTreeMap<String, ProgressEvent>,
    /// The manager's global id.
    pub gid: u64,
    /// An encoded digest of all PG statistics; travels in the data segment.
    pub digest: Bytes,
}

impl Payload for MMonMgrReport {
    const TYPE: u16 = type_numbers::MON_MGR_REPORT;
    const NAME: &'static str = "monmgrreport";
    const VERSION: u16 = 3;
    const COMPAT: u16 = 1;

    fn encode_payload(&self, out: &mut Segments) {
        let w = &mut out.front;
        self.version.encode(w);
        self.checks.encode(w);
        self.service_map.encode(w);
        self.progress.encode(w);
        w.u64(self.gid);
        out.data = self.digest.clone();
    }

    fn decode_payload(parts: &mut Parts) -> Result<Self, DecodeError> {
        let (form, r) = (parts.version, &mut parts.front);
        let mut m = Self {
            version: Decode::decode(r)?,
            checks: Decode::decode(r)?,
            service_map: Decode::decode(r)?,
            digest: parts.data.clone(),
            ..Self::default()
        };
        if form >= 2 {
            m.progress = Decode::decode(r)?;
        }
        if form >= 3 {
            m.gid = r.u64()?;
        }
        Ok(m)
    }
}

message! {
    /// The monitors' status and health for the manager's modules, in JSON. Source: src/messages/MMgrDigest.h.
    #[derive(Default)]
    MMgrDigest = type_numbers::MGR_DIGEST, "mgrdigest", 1, 1, HIGH {
        mon_status_json: Bytes,
        health_json: Bytes,
    }
}

message! {
    /// A summary of PG statistics from one of our managers to our monitors, in a form of their own.
    #[derive(Default)]
    MPgDigest = type_numbers::PG_DIGEST, "pg_digest", 1, 1 {
        /// The OSD map that it was made with.
        epoch: Epoch,
        gid: u64,
        summary: Bytes,
    }
}

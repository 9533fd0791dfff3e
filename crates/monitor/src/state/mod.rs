//! What all monitors agree on: changed only by [`Change`]s, in the order of the replicated log.
//!
//! Invariants:
//! 1. `apply` depends on nothing but the state and the change, so members that applied the same log are equal.
//! 2. Map epochs and service versions never fall.
//! 3. Parts are shared (`Arc`), so a working copy for a batch of requests costs only what the batch touches.

mod ceph_digest;
mod change;
mod config;
mod digest;
mod fs;
mod log;
mod mgr;
mod osd_diff;
mod osd_history;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use cephx::{KeyServer, TicketForm, TicketForms};
use codec::{Decode, DecodeError, Encode, Reader, Writer};
use maps::{MonMap, ServiceMap};
use types::{AuthName, Epoch, Fsid, PoolId, Utime};

pub use change::Change;
pub(crate) use config::split_key;
pub use config::{ConfigChange, ConfigDb, ConfigEntry, EntityView, Mask, parse_who};
pub use digest::{OsdSums, OsdUsage, PgDigest, PgSteps, PoolUsage, Rates, add_statfs};
pub use fs::{FsHistory, FsState};
pub(crate) use log::LINE_BYTES;
pub use log::{ClusterLog, LOG_KEPT, LogEntry, Priority, line as log_line};
pub(crate) use mgr::is_of_ceph;
pub use mgr::{MgrDaemon, MgrState};
pub use osd_diff::diff;
pub(crate) use osd_history::maps_limit;
pub use osd_history::{EPOCHS_KEPT, OsdHistory};

/// Everything replicated.
#[derive(Debug, Clone, PartialEq)]
pub struct State {
    pub fsid: Fsid,
    pub monmap: Arc<MonMap>,
    pub osds: Arc<OsdHistory>,
    /// What each OSD said of itself when it booted.
    pub osd_metadata: Arc<BTreeMap<i32, BTreeMap<String, String>>>,
    pub mon_metadata: Arc<BTreeMap<String, BTreeMap<String, String>>>,
    /// New pools whose PGs do not all exist yet.
    pub creating: Arc<BTreeMap<PoolId, CreatingPool>>,
    pub auth: Arc<KeyServer>,
    /// Global ids below this one may have been given out.
    pub global_id_bound: u64,
    pub config: Arc<ConfigDb>,
    /// The config-key store.
    pub kv: Arc<BTreeMap<String, Bytes>>,
    pub kv_version: u64,
    pub mgr: Arc<MgrState>,
    /// The file systems and their metadata servers.
    pub fs: Arc<FsState>,
    pub fs_history: Arc<FsHistory>,
    pub log: Arc<ClusterLog>,
    pub digest: Arc<PgDigest>,
    /// Daemons of other services, as the manager knows them.
    pub service_map: Arc<ServiceMap>,
    /// Muted health checks by code.
    pub mutes: Arc<BTreeMap<String, Mute>>,
}

/// PGs of a new pool that no OSD has reported yet.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CreatingPool {
    pub epoch: types::Epoch,
    pub stamp: Utime,
    pub seeds: std::collections::BTreeSet<u32>,
}
codec::wire_struct!(CreatingPool(1, 1) { epoch, stamp, seeds });

/// A health check that an operator silenced.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Mute {
    /// Zero for no end.
    pub until: Utime,
    pub sticky: bool,
    pub summary: String,
    pub count: i64,
}
codec::wire_struct!(Mute(1, 1) { until, sticky, summary, count });

impl State {
    /// Applies one committed change. A change that does not fit is our own fault: it is proposed only against the state it
    /// was made for.
    pub fn apply(&mut self, change: &Change) -> Result<(), DecodeError> {
        match change {
            Change::MonMap(map) => self.monmap = Arc::new(MonMap::from_bytes(map.clone())?),
            Change::OsdMap(inc) => Arc::make_mut(&mut self.osds).advance(inc)?,
            Change::TrimOsdMaps(oldest) => Arc::make_mut(&mut self.osds).trim(*oldest),
            Change::OsdMetadata(osd, meta) => put(Arc::make_mut(&mut self.osd_metadata), osd, meta),
            Change::MonMetadata(mon, meta) => put(Arc::make_mut(&mut self.mon_metadata), mon, meta),
            Change::Creating(pool, creating) => put(Arc::make_mut(&mut self.creating), pool, creating),
            Change::AuthSet(name, auth) => {
                Arc::make_mut(&mut self.auth).entities.insert(name.clone(), auth.clone());
            }
            Change::AuthRemove(name) => {
                Arc::make_mut(&mut self.auth).entities.remove(name);
            }
            Change::Rotating(keys) => Arc::make_mut(&mut self.auth).rotating = keys.clone(),
            Change::GlobalIds(_, count) => self.global_id_bound += count,
            Change::GlobalIdBound(bound) => self.global_id_bound = self.global_id_bound.max(*bound),
            Change::Config(change) => Arc::make_mut(&mut self.config).apply(change),
            Change::Kv(key, value) => {
                put(Arc::make_mut(&mut self.kv), key, value);
                self.kv_version += 1;
            }
            Change::Mgr(mgr) => {
                self.mgr = Arc::new(MgrState::from_bytes(mgr.clone())?);
                self.follow_ticket_forms();
            }
            Change::Fs(fs) => {
                let fs = FsState::from_bytes(fs.clone())?;
                let history = Arc::make_mut(&mut self.fs_history);
                history.note(&self.fs.map);
                history.note(&fs.map);
                self.fs = Arc::new(fs);
                self.follow_ticket_forms();
            }
            Change::Log(entries) => Arc::make_mut(&mut self.log).append(entries),
            Change::Digest(digest) => self.digest = Arc::new(PgDigest::from_bytes(digest.clone())?),
            Change::ServiceMap(map) => self.service_map = Arc::new(ServiceMap::from_bytes(map.clone())?),
            Change::Mute(code, mute) => put(Arc::make_mut(&mut self.mutes), code, mute),
        }
        Ok(())
    }

    /// Tickets are made for whoever opens them.
    fn follow_ticket_forms(&mut self) {
        let form = |of_ceph: bool| if of_ceph { TicketForm::Ceph } else { TicketForm::Sealed };
        let forms = TicketForms { mgr: form(self.mgr.ceph_tickets), mds: form(self.fs.ceph_tickets) };
        if self.auth.forms != forms {
            Arc::make_mut(&mut self.auth).forms = forms;
        }
    }

    pub fn monmap_epoch(&self) -> Epoch {
        self.monmap.epoch
    }

    pub fn monmap_bytes(&self) -> Bytes {
        self.monmap.to_bytes()
    }

    pub fn fsmap_epoch(&self) -> Epoch {
        self.fs.map.epoch
    }

    /// The OSD map of now.
    pub fn osdmap(&self) -> &maps::OsdMap {
        &self.osds.map
    }

    /// The key of the monitors themselves.
    pub fn mon_key(&self) -> Option<&cephx::CryptoKey> {
        self.auth.get(&AuthName::new(types::EntityType::Mon, "")).map(|e| &e.key)
    }
}

/// Sets or removes an entry.
fn put<K: Ord + Clone, V: Clone>(map: &mut BTreeMap<K, V>, key: &K, value: &Option<V>) {
    match value {
        Some(v) => map.insert(key.clone(), v.clone()),
        None => map.remove(key),
    };
}

/// The snapshot form. Times of tickets and the like are settings, not state, and not in here.
impl Encode for State {
    fn encode(&self, w: &mut Writer) {
        w.envelope(3, 1, |w| {
            self.fsid.encode(w);
            w.blob(&self.monmap.to_bytes());
            self.osds.encode(w);
            self.osd_metadata.encode(w);
            self.mon_metadata.encode(w);
            self.creating.encode(w);
            self.auth.entities.encode(w);
            self.auth.rotating.encode(w);
            w.u64(self.global_id_bound);
            self.config.encode(w);
            self.kv.encode(w);
            w.u64(self.kv_version);
            self.mgr.encode(w);
            self.log.encode(w);
            self.digest.encode(w);
            self.mutes.encode(w);
            self.service_map.encode(w);
            self.fs.encode(w);
            self.fs_history.encode(w);
        });
    }
}
impl Decode for State {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("monitor state", 3, |r, env| {
            let mut state = Self {
                fsid: Fsid::decode(r)?,
                monmap: Arc::new(MonMap::from_bytes(r.blob()?)?),
                osds: Arc::new(OsdHistory::decode(r)?),
                osd_metadata: Arc::new(Decode::decode(r)?),
                mon_metadata: Arc::new(Decode::decode(r)?),
                creating: Arc::new(Decode::decode(r)?),
                auth: Arc::new(KeyServer {
                    entities: Decode::decode(r)?,
                    rotating: Decode::decode(r)?,
                    ..KeyServer::default()
                }),
                global_id_bound: r.u64()?,
                config: Arc::new(Decode::decode(r)?),
                kv: Arc::new(Decode::decode(r)?),
                kv_version: r.u64()?,
                mgr: Arc::new(Decode::decode(r)?),
                log: Arc::new(Decode::decode(r)?),
                digest: Arc::new(Decode::decode(r)?),
                mutes: Arc::new(Decode::decode(r)?),
                service_map: Arc::default(),
                fs: Arc::default(),
                fs_history: Arc::default(),
            };
            if env.version >= 2 {
                state.service_map = Arc::new(Decode::decode(r)?);
            }
            if env.version >= 3 {
                state.fs = Arc::new(Decode::decode(r)?);
                state.fs_history = Arc::new(Decode::decode(r)?);
            }
            state.follow_ticket_forms();
            Ok(state)
        })
    }
}

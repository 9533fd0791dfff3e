//! The first state of a new cluster.
//!
//! Source: OSDMonitor::create_initial, AuthMonitor::create_initial, OSDMap::build_simple.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use cephx::{EntityAuth, KeyServer};
use crush::{CrushMap, RULE_REPLICATED, RuleMode};
use maps::{Incremental, MonMap, OsdMap};
use types::{AuthName, Epoch, Fsid, Now, OsdId};

use crate::monitor::Monitor;
use crate::proposal::encode_snapshot;
use crate::state::{ClusterLog, ConfigChange, ConfigDb, MgrState, OsdHistory, PgDigest, State};

/// What a new cluster starts from.
#[derive(Debug, Clone, PartialEq)]
pub struct GenesisConfig {
    pub fsid: Fsid,
    pub monmap: MonMap,
    /// Keys and capabilities: `mon.` and `client.admin` at least, and whoever else starts with the cluster.
    pub entities: BTreeMap<AuthName, EntityAuth>,
    /// The CRUSH type that the default rule spreads copies over: `host`, or `osd` on one machine.
    pub failure_domain: String,
    /// First entries of the config database: section, option, value.
    pub options: Vec<(String, String, String)>,
    /// OSDs that exist from the start; they come up when they boot.
    pub osds: Vec<GenesisOsd>,
}

/// One OSD of a new cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GenesisOsd {
    pub id: i32,
    pub uuid: Fsid,
    /// CRUSH weight: the size in TiB, as 16.16.
    pub weight_16_16: u32,
    /// The CRUSH bucket of type host that it is in.
    pub host: String,
}

/// Ids below it are never given out, so that small numbers stay free. Source: MIN_GLOBAL_ID in src/mon/AuthMonitor.cc.
const FIRST_GLOBAL_ID: u64 = 4_096;

impl Monitor {
    /// The snapshot that [`Monitor::new`] starts a new cluster from. The same bytes go to every first monitor.
    pub fn genesis(config: &GenesisConfig, now: Now, entropy: &mut dyn types::Entropy) -> Bytes {
        let auth = KeyServer { entities: config.entities.clone(), ..KeyServer::default() };
        let rotating = auth.rotated(now.wall, &mut |b: &mut [u8]| entropy.fill(b)).unwrap_or_default();
        let state = State {
            fsid: config.fsid,
            monmap: Arc::new(config.monmap.clone()),
            osds: Arc::new(OsdHistory::new(first_osdmap(config, now))),
            osd_metadata: Arc::default(),
            mon_metadata: Arc::default(),
            creating: Arc::default(),
            auth: Arc::new(KeyServer { rotating, ..auth }),
            service_map: Arc::default(),
            global_id_bound: FIRST_GLOBAL_ID,
            config: Arc::new(first_options(config)),
            kv: Arc::default(),
            kv_version: 1,
            mgr: Arc::new(MgrState { epoch: Epoch(1), ..MgrState::default() }),
            log: Arc::new(ClusterLog::default()),
            digest: Arc::new(PgDigest::default()),
            mutes: Arc::default(),
            fs: Arc::default(),
            fs_history: Arc::default(),
        };
        encode_snapshot(0, &state)
    }

    /// What a monitor starts from that is to join others: enough for them to log in.
    pub fn blank(
        fsid: types::Fsid,
        mon_auth: cephx::EntityAuth,
        now: Now,
        entropy: &mut dyn types::Entropy,
    ) -> Bytes {
        let config = GenesisConfig {
            fsid,
            monmap: maps::MonMap { epoch: Epoch(0), ..maps::MonMap::new(fsid, now.wall, []) },
            entities: [(types::AuthName::new(types::EntityType::Mon, ""), mon_auth)].into(),
            failure_domain: "host".to_owned(),
            options: Vec::new(),
            osds: Vec::new(),
        };
        Self::genesis(&config, now, entropy)
    }
}

fn first_options(config: &GenesisConfig) -> ConfigDb {
    let mut db = ConfigDb::default();
    let set = config.options.iter();
    let diff = set.map(|(who, name, value)| (format!("{who}/{name}"), (None, Some(value.clone())))).collect();
    // Version 1 has no time, as in Ceph.
    db.apply(&ConfigChange { diff, ..ConfigChange::default() });
    db
}

fn first_osdmap(config: &GenesisConfig, now: Now) -> OsdMap {
    let mut crush = CrushMap::new_default();
    let domain = config.failure_domain.as_str();
    let rule = crush.add_simple_rule(
        "replicated_rule",
        "default",
        domain,
        None,
        RuleMode::Firstn,
        RULE_REPLICATED,
        None,
    );
    assert!(rule.is_ok(), "the failure domain is a type of the default map: {rule:?}");
    for osd in &config.osds {
        let location = [("root", "default"), ("host", osd.host.as_str())];
        let location = location.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
        let placed = crush.insert_item(osd.id, osd.weight_16_16, &format!("osd.{}", osd.id), &location);
        assert!(placed.is_ok(), "a new OSD has a place in a new map: {placed:?}");
    }
    let map = OsdMap::new_cluster(config.fsid, now.wall, crush);
    let mut inc = Incremental::after(&map, now.wall);
    for osd in &config.osds {
        inc.create_osd(&map, OsdId(osd.id), osd.uuid);
    }
    match inc.finish(&map, now.wall) {
        Ok((with_osds, _)) => OsdMap { epoch: map.epoch, ..with_osds },
        // Only OSD numbers beyond the bound of a map are refused.
        Err(_) => map,
    }
}

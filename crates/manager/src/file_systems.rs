//! What the manager knows of file systems: their map, and which version each metadata server is of.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use codec::Decode;
use maps::{FsMap, MdsGid};
use serde_json::Value;

/// Bytes of what the monitors tell of metadata servers.
const METADATA_BYTES: usize = 16 << 20;

/// See the module's documentation.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct FileSystems {
    /// `None` before the first one came.
    pub map: Option<FsMap>,
    /// By a daemon's name; of those that said nothing there is none.
    pub versions: BTreeMap<String, String>,
}

impl FileSystems {
    /// Takes a map; true when there are daemons in it that were not in the last one. One that does not decode
    /// is the monitors' fault: the last one stays.
    pub fn take_map(&mut self, map: Bytes) -> bool {
        let Ok(map) = FsMap::from_bytes(map) else { return false };
        let gids = |map: &FsMap| map.daemons().map(|i| i.gid).collect::<BTreeSet<MdsGid>>();
        let known = self.map.as_ref().map(gids).unwrap_or_default();
        let news = !gids(&map).is_subset(&known);
        self.map = Some(map);
        news
    }

    /// Takes the answer to `mds metadata`.
    pub fn take_metadata(&mut self, json: &Bytes) {
        if json.len() > METADATA_BYTES {
            return;
        }
        let Ok(Value::Array(daemons)) = serde_json::from_slice(json) else { return };
        let text = |daemon: &Value, field: &str| Some(daemon.get(field)?.as_str()?.to_owned());
        let one = |daemon: &Value| Some((text(daemon, "name")?, text(daemon, "ceph_version")?));
        self.versions = daemons.iter().filter_map(one).collect();
    }
}

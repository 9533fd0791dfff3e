//! The map of a new cluster.
//!
//! Source: OSDMap::build_simple_crush_map and _build_crush_types in src/osd/OSDMap.cc.

use crate::bucket::empty_data;
use crate::{Alg, Bucket, CrushMap};

/// Levels of the hierarchy by type id.
const TYPES: [&str; 12] =
    ["osd", "host", "chassis", "rack", "row", "pdu", "pod", "room", "datacenter", "zone", "region", "root"];

impl CrushMap {
    /// Ceph's levels, its optimal tunables, an empty root `default`, and no rule; see [`Self::add_simple_rule`].
    pub fn new_default() -> Self {
        let mut map = Self::default();
        map.type_names = (0..).zip(TYPES).map(|(id, name)| (id, name.to_owned())).collect();
        let type_id = (TYPES.len() - 1) as u16;
        let data = empty_data(Alg::Straw2);
        let root = Bucket { id: -1, type_id, hash: 0, weight: 0, items: Vec::new(), data };
        map.buckets.resize(8, None);
        if let Some(slot) = map.buckets.first_mut() {
            *slot = Some(root);
        }
        map.item_names.insert(-1, "default".to_owned());
        map
    }
}

//! `/api/block/image`.
//!
//! Source: RbdService._rbd_image in src/pybind/mgr/dashboard/services/rbd.py.

use std::collections::BTreeMap;

use rbd::{Header, SnapshotKind, feature};
use serde_json::{Value, json};
use types::Utime;

/// An image and what it was cloned from, if anything.
pub struct Found {
    pub name: String,
    pub id: String,
    pub namespace: String,
    pub header: Header,
    pub parent: Option<ParentName>,
}

/// A clone's parent by names.
pub struct ParentName {
    pub image: String,
    pub snapshot: String,
}

/// The pool's part of the list; `whole` when every image could be read.
pub fn of_pool(pool: &str, found: &[Found], whole: bool, pools: &BTreeMap<i64, String>) -> Value {
    // Ceph's ViewCache: 0 what is there now, 3 an exception.
    let status = if whole { 0 } else { 3 };
    let images: Vec<Value> = found.iter().map(|f| image(pool, f, pools)).collect();
    json!({ "status": status, "value": images, "pool_name": pool })
}

fn image(pool: &str, f: &Found, pools: &BTreeMap<i64, String>) -> Value {
    let h = &f.header;
    let object_bytes = 1u64.checked_shl(h.order.into()).unwrap_or(0);
    let namespace = (!f.namespace.is_empty()).then_some(&f.namespace);
    let parent = h.parent.as_ref().zip(f.parent.as_ref()).map(|(at, name)| {
        json!({
            "pool_name": pools.get(&at.pool),
            "pool_namespace": at.namespace,
            "image_name": name.image,
            "snap_name": name.snapshot,
            "overlap": h.parent_overlap,
        })
    });
    let snapshots = h.snaps.iter().filter(|s| s.kind == SnapshotKind::User).map(|s| {
        json!({
            "id": s.id,
            "name": s.name,
            "size": s.size,
            "timestamp": iso(s.timestamp),
            "is_protected": s.is_protected,
        })
    });
    json!({
        "name": f.name,
        "unique_id": match namespace {
            Some(namespace) => format!("{pool}/{namespace}/{}", f.id),
            None => format!("{pool}/{}", f.id),
        },
        "id": f.id,
        "pool_name": pool,
        "namespace": namespace,
        "size": h.size,
        "obj_size": object_bytes,
        "num_objs": h.size.div_ceil(object_bytes.max(1)),
        "order": h.order,
        "block_name_prefix": h.prefix,
        "image_format": 2,
        "features": h.features,
        "features_name": feature::names(h.features),
        "stripe_count": h.layout.stripe_count,
        "stripe_unit": h.layout.stripe_unit,
        "parent": parent,
        "data_pool": h.data_pool.and_then(|id| pools.get(&id)),
        "snapshots": snapshots.collect::<Vec<_>>(),
        "timestamp": iso(h.created),
    })
}

/// `2026-11-28T12:00:00Z`.
fn iso(at: Utime) -> String {
    let text = at.to_string();
    text.split_once('.').map_or(text.clone(), |(seconds, _)| format!("{seconds}Z"))
}

//! The series of images, of the pools that `rbd_stats_pools` names.
//!
//! Latencies are told in nanoseconds, as by Ceph's module, whose words say milliseconds.
//!
//! Source: get_rbd_stats in src/pybind/mgr/prometheus/module.py (16.2).

use std::collections::BTreeSet;

use maps::OsdMap;

use super::text::{Exposition, Kind};
use crate::rbd::stats::Stats;

/// Name, what it says, and its place among an image's sums.
const COUNTERS: [(&str, &str, usize); 8] = [
    ("write_ops", "RBD image writes count", 0),
    ("read_ops", "RBD image reads count", 1),
    ("write_bytes", "RBD image bytes written", 2),
    ("read_bytes", "RBD image bytes read", 3),
    ("write_latency_sum", "RBD image writes latency (msec) Total", 4),
    // Each operation has a latency.
    ("write_latency_count", "RBD image writes latency (msec) Count", 0),
    ("read_latency_sum", "RBD image reads latency (msec) Total", 5),
    ("read_latency_count", "RBD image reads latency (msec) Count", 1),
];

pub(super) fn write(map: &OsdMap, stats: &Stats, out: &mut Exposition) {
    if stats.query().is_none() {
        return;
    }
    let mut seen = BTreeSet::new();
    let named = stats.images().filter_map(|(space, image)| Some((map.pool_name(space.pool)?, space, image)));
    let images: Vec<_> = named
        .filter(|(pool, space, image)| seen.insert((*pool, space.namespace.as_str(), image.name.as_str())))
        .collect();
    for (name, help, at) in COUNTERS {
        let Some(mut family) = out.family(&format!("rbd_{name}"), Kind::Counter, help) else { continue };
        for (pool, space, image) in &images {
            let labels = [("pool", *pool), ("namespace", &space.namespace), ("image", &image.name)];
            family.series(&labels, image.sums.get(at).copied().unwrap_or(0) as f64);
        }
    }
    let help = "RBD images of rbd_stats_pools that there is no room for";
    out.single("rbd_stats_images_left_out", Kind::Gauge, help, stats.left_out() as f64);
}

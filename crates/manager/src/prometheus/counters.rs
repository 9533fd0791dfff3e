//! The series of daemons' own counters.
//!
//! Invariants:
//! 1. A counter's type is that of the first daemon, by name, that has it; so is what is said about it.
//! 2. No counter takes a name from the series of the cluster, nor from another counter.
//! 3. Only counters from [`priority::USEFUL`] on are told, and no histograms.
//!
//! Source: Module.collect, MgrModule.get_all_perf_counters and _stattype_to_str in src/pybind/mgr (16.2).

use std::collections::BTreeMap;

use admin::perf::{kind, priority};

use super::text::{Exposition, Family, Kind, metric_name};
use crate::counters::Counter;
use crate::daemons::Daemons;

/// Whose counters are told.
const SERVICES: [&str; 6] = ["mds", "mon", "osd", "rbd-mirror", "rgw", "tcmu-runner"];

/// A daemon, as labels name it.
struct Labelled {
    label: &'static str,
    text: String,
}

/// Where a counter is kept, and whose it is.
struct Told<'a> {
    daemon: usize,
    /// Of an image that a mirror replays: pool, namespace and name.
    image: Option<[&'a str; 3]>,
    /// What it has behind its name as another label: the zone that a gateway fetches from.
    zone: Option<&'a str>,
    counter: &'a Counter,
}

/// Writes all of them, in the order of their names.
pub(super) fn write(daemons: &Daemons, out: &mut Exposition) {
    let mut labels = Vec::new();
    let mut families: BTreeMap<String, Vec<Told<'_>>> = BTreeMap::new();
    // Daemons have the same counters: what a path is called is found out once.
    let mut names: BTreeMap<&str, String> = BTreeMap::new();
    let told = daemons.daemons.iter().filter(|(key, _)| SERVICES.contains(&key.service.as_str()));
    for (key, daemon) in told {
        let is_rgw = key.service == "rgw";
        let text = if is_rgw { key.id.clone() } else { format!("{}.{}", key.service, key.id) };
        labels.push(Labelled { label: if is_rgw { "instance_id" } else { "ceph_daemon" }, text });
        let daemon_at = labels.len() - 1;
        for (path, counter) in daemon.counters.all() {
            if counter.what.priority < priority::USEFUL || counter.what.kind & kind::HISTOGRAM != 0 {
                continue;
            }
            let mirrored = (key.service == "rbd-mirror").then(|| of_mirror(path)).flatten();
            if let Some((what, image)) = mirrored {
                let name = metric_name(&format!("rbd_mirror_image_{what}"));
                let told = Told { daemon: daemon_at, image: Some(image), zone: None, counter };
                families.entry(name).or_default().push(told);
                continue;
            }
            let name = names.entry(path).or_insert_with(|| metric_name(path));
            let told = Told { daemon: daemon_at, image: None, zone: None, counter };
            match families.get_mut(name.as_str()) {
                Some(family) => family.push(told),
                None => drop(families.insert(name.clone(), vec![told])),
            }
            if let Some((name, zone)) = of_sync(path) {
                let told = Told { daemon: daemon_at, image: None, zone: Some(zone), counter };
                families.entry(metric_name(&name)).or_default().push(told);
            }
        }
    }
    for (name, told) in families {
        let name = name.strip_prefix("ceph_").unwrap_or(&name);
        write_family(name, &told, &labels, out);
    }
}

/// A counter with a sum and a number of them has two families.
fn write_family(name: &str, told: &[Told<'_>], daemons: &[Labelled], out: &mut Exposition) {
    let Some(what) = told.first().map(|first| &first.counter.what) else { return };
    // Types are masked so in Ceph: a sum is a counter, whatever else it is.
    let is_average = what.kind & kind::LONG_RUN_AVERAGE != 0;
    let kind_of = if is_average || what.kind & kind::COUNTER != 0 { Kind::Counter } else { Kind::Gauge };
    let like = |t: &&Told<'_>| (t.counter.what.kind & kind::LONG_RUN_AVERAGE != 0) == is_average;
    let told: Vec<&Told<'_>> = told.iter().filter(like).collect();
    let description = &what.description;
    if !is_average {
        if let Some(mut family) = out.family(name, kind_of, description) {
            write_series(&mut family, &told, daemons, value);
        }
        return;
    }
    if let Some(mut family) = out.family(&format!("{name}_sum"), kind_of, &format!("{description} Total")) {
        write_series(&mut family, &told, daemons, value);
    }
    if let Some(mut family) = out.family(&format!("{name}_count"), kind_of, &format!("{description} Count")) {
        write_series(&mut family, &told, daemons, |c| c.count as f64);
    }
}

fn write_series(
    family: &mut Family<'_>,
    told: &[&Told<'_>],
    daemons: &[Labelled],
    value: impl Fn(&Counter) -> f64,
) {
    let mut last = None;
    for one in told {
        let Some(daemon) = daemons.get(one.daemon) else { continue };
        // Two paths of one daemon may have one name.
        let series = (one.daemon, one.image, one.zone);
        if last.replace(series) == Some(series) {
            continue;
        }
        let mut labels = vec![(daemon.label, daemon.text.as_str())];
        if let Some([pool, namespace, image]) = one.image {
            labels.extend([("pool", pool), ("namespace", namespace), ("image", image)]);
        }
        labels.extend(one.zone.map(|zone| ("source_zone", zone)));
        family.series(&labels, value(one.counter));
    }
}

/// Times are nanoseconds, and told in seconds.
fn value(counter: &Counter) -> f64 {
    match counter.what.kind & kind::TIME != 0 {
        true => counter.value as f64 / 1e9,
        false => counter.value as f64,
    }
}

/// What a mirror counts of an image: `rbd_mirror_image_POOL/[NAMESPACE/]IMAGE.replay`. Source:
/// _perfpath_to_path_labels.
fn of_mirror(path: &str) -> Option<(&str, [&str; 3])> {
    let (image, what) = path.strip_prefix("rbd_mirror_image_")?.rsplit_once('.')?;
    if !matches!(what, "replay" | "replay_bytes" | "replay_latency") {
        return None;
    }
    let (pool, rest) = image.split_once('/')?;
    let (namespace, image) = rest.split_once('/').unwrap_or(("", rest));
    Some((what, [pool, namespace, image]))
}

/// What a gateway counts of a zone that it fetches from, under a name without the zone. Source:
/// add_fixed_name_metrics.
fn of_sync(path: &str) -> Option<(String, &str)> {
    let (zone, what) = path.strip_prefix("data-sync-from-")?.rsplit_once('.')?;
    (!zone.contains('.')).then(|| (format!("data-sync-from-zone.{what}"), zone))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_a_path_becomes_labels() {
        let mirrored = |path| of_mirror(path);
        assert_eq!(mirrored("rbd_mirror_image_p/i.replay"), Some(("replay", ["p", "", "i"])));
        assert_eq!(
            mirrored("rbd_mirror_image_p/n/a.b.replay_bytes"),
            Some(("replay_bytes", ["p", "n", "a.b"]))
        );
        assert_eq!(mirrored("rbd_mirror_image_p.replay"), None);
        assert_eq!(mirrored("rbd_mirror_image_p/i.other"), None);
        let sync = of_sync("data-sync-from-z1.fetch_bytes");
        assert_eq!(sync, Some(("data-sync-from-zone.fetch_bytes".to_owned(), "z1")));
        assert_eq!(of_sync("osd.op"), None);
    }
}

//! Disks that are expected to fail soon: warnings, and OSDs that are marked out before.
//!
//! Source: Module.check_health and mark_out_etc in src/pybind/mgr/devicehealth/module.py (16.2).

use std::collections::{BTreeMap, BTreeSet};

use maps::OsdMap;
use messages::mgr::HealthCheck;
use serde_json::json;
use types::{OsdId, Utime};

use super::Options;
use crate::devices::{Device, Devices};
use crate::mon_commands::MonRequest;
use crate::pg_map::PgMap;

/// Lines of one warning.
const MAX_DETAIL: usize = 1_000;

const IN_USE: &str = "DEVICE_HEALTH_IN_USE";
const TOO_MANY: &str = "DEVICE_HEALTH_TOOMANY";

/// What a look at all disks comes to.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Looked {
    pub checks: BTreeMap<String, HealthCheck>,
    /// OSDs to be marked out, the next to fail first.
    pub out: Vec<OsdId>,
}

/// Seconds from now until the disk is gone for sure; `None` where that is not expected.
fn left_s(device: &Device, now: Utime) -> Option<i64> {
    let last = device.expected_until()?;
    Some(i64::from(last.sec) - i64::from(now.sec))
}

fn osds(device: &Device) -> impl Iterator<Item = OsdId> + '_ {
    device.daemons.iter().filter_map(|name| Some(OsdId(name.strip_prefix("osd.")?.parse().ok()?)))
}

/// `min_in`: the part of all OSDs that has to stay in (`mon_osd_min_in_ratio`).
pub(super) fn look(
    devices: &Devices,
    map: &OsdMap,
    pgs: &PgMap,
    options: &Options,
    min_in: f64,
    now: Utime,
) -> Looked {
    let within = |left: i64, threshold_s: u64| left <= i64::try_from(threshold_s).unwrap_or(i64::MAX);
    let mut failing = Vec::new();
    let mut bad: BTreeMap<OsdId, Utime> = BTreeMap::new();
    let mut gone: BTreeSet<OsdId> = BTreeSet::new();
    for (id, device) in devices.all().filter(|(_, device)| !device.daemons.is_empty()) {
        let Some(left) = left_s(device, now) else { continue };
        let last = device.expected_until().unwrap_or(Utime::ZERO);
        if options.self_heal && within(left, options.mark_out_s) {
            for osd in osds(device) {
                if map.is_in(osd) {
                    bad.insert(osd, last);
                } else {
                    gone.insert(osd);
                }
            }
        }
        if within(left, options.warn_s) {
            let at = device.locations.iter().map(|(host, dev, _)| format!("{host}:{dev}"));
            let (at, daemons) = (at.collect::<Vec<_>>(), device.daemons.iter().cloned().collect::<Vec<_>>());
            // Ceph names the end twice.
            failing.push(format!(
                "{id} ({}); daemons {}; life expectancy between {last} and {last}",
                at.join(","),
                daemons.join(",")
            ));
        }
    }
    let mut looked = Looked::default();
    let in_use = gone.iter().filter_map(|osd| {
        let count = pgs.osds.get(osd).map_or(0, |report| report.stat.num_pgs);
        (count > 0).then(|| format!("osd.{osd} is marked out but still has {count} PG(s)"))
    });
    looked.warn("DEVICE_HEALTH", failing, "device(s) expected to fail soon");
    let soon = "daemon(s) expected to fail soon and still contain data";
    looked.warn(IN_USE, in_use.collect(), soon);
    looked.choose(&bad, map, min_in);
    looked
}

impl Looked {
    fn warn(&mut self, code: &str, mut detail: Vec<String>, what: &str) {
        let count = detail.len();
        if count > 0 {
            detail.truncate(MAX_DETAIL);
            let summary = format!("{count} {what}");
            let check = HealthCheck { severity: 1, summary, detail, count: count as i64 };
            self.checks.insert(code.to_owned(), check);
        }
    }

    /// Marks OSDs out as long as enough of them stay in.
    fn choose(&mut self, bad: &BTreeMap<OsdId, Utime>, map: &OsdMap, min_in: f64) {
        let all = map.existing_osds().count() as f64;
        let inside = map.existing_osds().filter(|(id, _)| map.is_in(*id)).count();
        let mut next: Vec<(Utime, OsdId)> = bad.iter().map(|(osd, at)| (*at, *osd)).collect();
        next.sort_unstable();
        for (done, (_, osd)) in next.into_iter().enumerate() {
            if (inside as f64 - done as f64 - 1.0) / all < min_in {
                let left = (inside as f64 - bad.len() as f64) / all;
                let line = format!(
                    "{} OSDs with failing device(s) would bring \"in\" ratio to {left:.6} < \
                     mon_osd_min_in_ratio {min_in:.6}",
                    bad.len() - done
                );
                let summary = "Too many daemons are expected to fail soon".to_owned();
                let check = HealthCheck { severity: 1, summary, detail: vec![line], count: 0 };
                self.checks.insert(TOO_MANY.to_owned(), check);
                return;
            }
            self.out.push(osd);
        }
    }

    /// What the monitors are asked for.
    pub fn requests(&self) -> Vec<MonRequest> {
        if self.out.is_empty() {
            return Vec::new();
        }
        let ids: Vec<String> = self.out.iter().map(OsdId::to_string).collect();
        let mut all = vec![json!({ "prefix": "osd out", "format": "json", "ids": ids })];
        let affinity = |osd: &OsdId| json!({ "prefix": "osd primary-affinity", "format": "json", "id": osd.0, "weight": 0.0 });
        all.extend(self.out.iter().map(affinity));
        all.into_iter().map(|json| MonRequest { json: json.to_string(), ..MonRequest::default() }).collect()
    }
}

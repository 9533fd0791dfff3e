//! Checks of OSDs: down, full, flagged, strangely weighted.
//!
//! Source: OSDMap::check_health and OSDMap::subtree_type_is_down in src/osd/OSDMap.cc.

use std::collections::{BTreeMap, BTreeSet};

use crush::{Alg, CrushMap, Step, Tunables};
use maps::OsdMap;
use maps::flags::{map_flags, osd_state};

use super::{Checks, Seen, Severity};
use crate::service::osd::{EMPTY_STORE, empty_store_advice, is_data_wanted};
use crate::text::six_digits;

pub(super) fn check(seen: &Seen<'_>, checks: &mut Checks) {
    let map = seen.state.osdmap();
    down(map, checks);
    empty_stores(seen, checks);
    ratios(seen, map, checks);
    full(map, checks);
    flags(map, checks);
    group_flags(map, checks);
    crush_map(seen, &map.crush, checks);
    stretch(seen, map, checks);
    let too_few = seen.number("osd_pool_default_size").max(0.0) as usize;
    let count = map.counts().total;
    // It is the manager that looks for this, so without its reports there is no such check.
    let managed = !seen.state.digest.stamp.is_zero() && !seen.reported("TOO_FEW_OSDS");
    let wanted = managed && seen.switch("mon_warn_on_too_few_osds");
    if wanted && count < too_few {
        let summary = format!("OSD count {count} < osd_pool_default_size {too_few}");
        checks.warn("TOO_FEW_OSDS", summary, too_few - count, Vec::new());
    }
}

/// `root=default,host=a` of an item.
pub(crate) fn location_text(crush: &CrushMap, item: i32) -> String {
    let path = crush.full_location_ordered(item);
    let words: Vec<String> = path.iter().rev().map(|(kind, name)| format!("{kind}={name}")).collect();
    words.join(",")
}

/// OSDs that are down though in, and subtrees of which nothing is up.
struct Down<'a> {
    map: &'a OsdMap,
    osds: BTreeSet<i32>,
    /// Buckets with something up in them.
    up: BTreeSet<i32>,
    /// Buckets by type.
    buckets: BTreeMap<i32, BTreeSet<i32>>,
}

impl Down<'_> {
    fn find(&mut self) {
        for osd in (0..self.map.max_osd()).filter(|o| self.map.exists(*o) && self.map.is_in(*o)) {
            if self.map.is_up(osd) || self.osds.contains(&osd) {
                continue;
            }
            self.osds.insert(osd);
            let mut at = osd;
            while let Some(parent) = self.map.crush.parent(at) {
                if self.up.contains(&parent) || !self.is_down(parent, 0) {
                    break;
                }
                at = parent;
            }
        }
    }

    /// Notes on the way what it finds. `depth` bounds the recursion: maps are validated to be no deeper.
    fn is_down(&mut self, item: i32, depth: usize) -> bool {
        if item >= 0 {
            let down = self.map.is_down(item);
            if down && self.map.is_in(item) {
                self.osds.insert(item);
            }
            return down;
        }
        let kind = self.map.crush.item_type(item).unwrap_or(0);
        if self.buckets.get(&kind).is_some_and(|set| set.contains(&item)) {
            return true;
        }
        if depth > crush::MAX_DEPTH {
            return false;
        }
        for child in self.map.crush.children(item).to_vec() {
            if !self.is_down(child, depth + 1) {
                self.up.insert(item);
                return false;
            }
        }
        self.buckets.entry(kind).or_default().insert(item);
        true
    }

    /// OSDs in each bucket that is down, the lower types first.
    fn counts(&self) -> BTreeMap<i32, usize> {
        let mut counts: BTreeMap<i32, usize> = BTreeMap::new();
        for (_, set) in self.buckets.iter().filter(|(kind, _)| **kind > 0) {
            for bucket in set {
                let of = |child: &i32| if *child >= 0 { 1 } else { counts.get(child).copied().unwrap_or(0) };
                let sum = self.map.crush.children(*bucket).iter().map(of).sum();
                counts.insert(*bucket, sum);
            }
        }
        counts
    }
}

fn down(map: &OsdMap, checks: &mut Checks) {
    let mut found = Down { map, osds: BTreeSet::new(), up: BTreeSet::new(), buckets: BTreeMap::new() };
    found.find();
    if !found.osds.is_empty() {
        down_subtrees(&found, checks);
        let line = |o: &i32| format!("osd.{o} ({}) is down", location_text(&map.crush, *o));
        checks.warn_each("OSD_DOWN", "osds down", found.osds.iter().map(line).collect());
    }
    let orphans = (0..map.max_osd()).filter(|o| !map.exists(*o) && map.crush.item_name(*o).is_some());
    let detail = orphans.map(|o| format!("osd.{o} exists in crush map but not in osdmap")).collect();
    checks.warn_each("OSD_ORPHAN", "osds exist in the crush map but not in the osdmap", detail);
}

/// OSDs that came back without their data.
fn empty_stores(seen: &Seen<'_>, checks: &mut Checks) {
    let refused = |(id, o): (types::OsdId, &maps::Osd)| {
        let marked = seen.state.osd_metadata.get(&id.0)?.contains_key(EMPTY_STORE);
        (marked && !o.is_up() && is_data_wanted(o))
            .then(|| format!("osd.{}: {}", id.0, empty_store_advice(id.0)))
    };
    let detail = seen.state.osdmap().existing_osds().filter_map(refused).collect();
    checks.warn_each("OSD_EMPTY_STORE", "osds do not boot because their stores are empty", detail);
}

fn down_subtrees(found: &Down<'_>, checks: &mut Checks) {
    let crush = &found.map.crush;
    let counts = found.counts();
    let count = |bucket: &i32| counts.get(bucket).copied().unwrap_or(0);
    let top = crush.type_names.keys().next_back().copied().unwrap_or(0);
    for (kind, set) in found.buckets.iter().filter(|(kind, _)| **kind > 0) {
        let Some(name) = crush.type_name(*kind) else { continue };
        let plural = if set.len() > 1 { "s" } else { "" };
        let osds: usize = set.iter().map(count).sum();
        let line = |bucket: &i32| {
            let place = match *kind == top {
                true => String::new(),
                false => format!(" ({})", location_text(crush, *bucket)),
            };
            let item = crush.item_name(*bucket).unwrap_or_default();
            format!("{name} {item}{place} ({} osds) is down", count(bucket))
        };
        let detail = set.iter().rev().map(line).collect();
        let code = format!("OSD_{}_DOWN", name.to_uppercase());
        checks.warn(&code, format!("{} {name}{plural} ({osds} osds) down", set.len()), set.len(), detail);
    }
}

fn ratios(seen: &Seen<'_>, map: &OsdMap, checks: &mut Checks) {
    let mut failsafe = seen.number("osd_failsafe_full_ratio") as f32;
    if failsafe > 1.0 {
        failsafe /= 100.0;
    }
    let (mut full, mut backfillfull, nearfull) = (map.full_ratio, map.backfillfull_ratio, map.nearfull_ratio);
    let text = |v: f32| six_digits(f64::from(v));
    let mut detail = Vec::new();
    let mut ordered = |low: f32, low_name: &str, high: f32, high_name: &str| {
        if low < high {
            detail.push(format!("{low_name} ({}) < {high_name} ({}), increased", text(low), text(high)));
        }
        low.max(high)
    };
    backfillfull = ordered(backfillfull, "backfillfull_ratio", nearfull, "nearfull_ratio");
    full = ordered(full, "full_ratio", backfillfull, "backfillfull_ratio");
    ordered(failsafe, "osd_failsafe_full_ratio", full, "full_ratio");
    if !detail.is_empty() {
        checks.add(
            "OSD_OUT_OF_ORDER_FULL",
            Severity::Error,
            "full ratio(s) out of order".to_owned(),
            0,
            detail,
        );
    }
}

fn full(map: &OsdMap, checks: &mut Checks) {
    // An OSD counts once, with the worst of its states.
    let worst = |state: u32| {
        [osd_state::FULL, osd_state::BACKFILLFULL, osd_state::NEARFULL]
            .into_iter()
            .find(|bit| state & bit != 0)
    };
    let with = |bit: u32, text: &str| -> Vec<String> {
        let serving = map.existing_osds().filter(|(id, o)| o.is_up() && map.is_in(id.0));
        let hit = serving.filter(|(_, o)| worst(o.state) == Some(bit));
        hit.map(|(id, _)| format!("osd.{} is {text}", id.0)).collect()
    };
    let full = with(osd_state::FULL, "full");
    if !full.is_empty() {
        checks.add("OSD_FULL", Severity::Error, format!("{} full osd(s)", full.len()), full.len(), full);
    }
    checks.warn_each(
        "OSD_BACKFILLFULL",
        "backfillfull osd(s)",
        with(osd_state::BACKFILLFULL, "backfill full"),
    );
    checks.warn_each("OSD_NEARFULL", "nearfull osd(s)", with(osd_state::NEARFULL, "near full"));
}

fn flags(map: &OsdMap, checks: &mut Checks) {
    let warn = map_flags::PAUSERD
        | map_flags::PAUSEWR
        | map_flags::PAUSEREC
        | map_flags::NOUP
        | map_flags::NODOWN
        | map_flags::NOIN
        | map_flags::NOOUT
        | map_flags::NOBACKFILL
        | map_flags::NORECOVER
        | map_flags::NOSCRUB
        | map_flags::NODEEP_SCRUB
        | map_flags::NOTIERAGENT
        | map_flags::NOSNAPTRIM
        | map_flags::NOREBALANCE;
    if map.test_flag(warn) {
        let names = map_flags::to_text(map.flags & warn);
        // The count is the text's length; that is what Ceph does, so that mutes notice changes.
        checks.warn("OSDMAP_FLAGS", format!("{names} flag(s) set"), names.len(), Vec::new());
    }
    if !map.test_flag(map_flags::SORTBITWISE) {
        checks.warn("OSD_NO_SORTBITWISE", "'sortbitwise' flag is not set".to_owned(), 0, Vec::new());
    }
}

fn group_flags(map: &OsdMap, checks: &mut Checks) {
    let names = |state: u32| osd_state::name_set(state).into_iter().collect::<Vec<_>>().join(",");
    let mask = osd_state::NOUP | osd_state::NOIN | osd_state::NODOWN | osd_state::NOOUT;
    let numbered = map.osds.iter().enumerate().filter(|(_, o)| o.state & mask != 0);
    let mut detail: Vec<String> =
        numbered.map(|(id, o)| format!("osd.{id} has flags {}", names(o.state & mask))).collect();
    for (item, state) in map.crush_node_flags.iter().filter(|(_, s)| **s != 0) {
        let Some(name) = map.crush.item_name(*item) else { continue };
        let kind = map.crush.item_type(*item).and_then(|t| map.crush.type_name(t)).unwrap_or("node");
        detail.push(format!("{kind} {name} has flags {}", names(*state)));
    }
    for (class, state) in map.device_class_flags.iter().filter(|(_, s)| **s != 0) {
        let Some(name) = map.crush.class_name(*class) else { continue };
        detail.push(format!("device class '{name}' has flags {}", names(*state)));
    }
    let what = "OSDs or CRUSH {nodes, device-classes} have {NOUP,NODOWN,NOIN,NOOUT} flags set";
    checks.warn_each("OSD_FLAGS", what, detail);
}

/// The oldest release whose clients understand a map. Source: CrushWrapper::get_min_required_version.
pub(crate) fn min_required_release(crush: &CrushMap) -> &'static str {
    let t = &crush.tunables;
    let legacy = Tunables::LEGACY;
    let stable_step =
        crush.rules.iter().flatten().any(|r| r.steps.iter().any(|s| s.op == Step::SET_CHOOSELEAF_STABLE));
    let tries = |t: &Tunables| (t.choose_local_tries, t.choose_local_fallback_tries, t.choose_total_tries);
    if stable_step || t.chooseleaf_stable != 0 {
        "jewel"
    } else if crush.buckets.iter().flatten().any(|b| b.alg() == Alg::Straw2) {
        "hammer"
    } else if t.chooseleaf_vary_r != 0 {
        "firefly"
    } else if t.chooseleaf_descend_once != 0 || tries(t) != tries(&legacy) {
        "bobtail"
    } else {
        "argonaut"
    }
}

fn crush_map(seen: &Seen<'_>, crush: &CrushMap, checks: &mut Checks) {
    let see = || vec!["see http://docs.ceph.com/en/latest/rados/operations/crush-map/#tunables".to_owned()];
    let wanted = seen.settings.text(seen.state, "mon_crush_min_required_version");
    let wanted = wanted.as_str();
    let min = min_required_release(crush);
    // Releases are named in alphabetical order.
    if seen.switch("mon_warn_on_legacy_crush_tunables") && min < wanted {
        let summary = format!("crush map has legacy tunables (require {min}, min is {wanted})");
        checks.warn("OLD_CRUSH_TUNABLES", summary, 0, see());
    }
    if seen.switch("mon_warn_on_crush_straw_calc_version_zero") && crush.tunables.straw_calc_version == 0 {
        checks.warn(
            "OLD_CRUSH_STRAW_CALC_VERSION",
            "crush map has straw_calc_version=0".to_owned(),
            0,
            see(),
        );
    }
}

fn stretch(seen: &Seen<'_>, map: &OsdMap, checks: &mut Checks) {
    let s = &map.stretch;
    if !seen.switch("mon_warn_on_degraded_stretch_mode") || (s.recovering == 0 && s.degraded == 0) {
        return;
    }
    let (code, verb) = match s.recovering {
        0 => ("DEGRADED_STRETCH_MODE", "missing"),
        _ => ("RECOVERING_STRETCH_MODE", "recovering"),
    };
    let (up, all) = (s.degraded, s.bucket_count);
    let summary = format!("We are {verb} stretch mode buckets, only requiring {up} of {all} buckets to peer");
    checks.warn(code, summary, 0, Vec::new());
}

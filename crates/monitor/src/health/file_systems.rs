//! Checks of file systems and metadata servers.
//!
//! Source: FSMap::get_health_checks, MDSMap::get_health_checks, MDSMonitor::encode_pending.

use std::collections::BTreeMap;

use maps::{Filesystem, MdsState, mds_flags};

use super::{Checks, Seen, Severity};

/// Details of one check. Its words count them all.
const DETAILS_LIMIT: usize = 256;

/// A check while its details are collected.
struct Check {
    severity: Severity,
    /// `%num%`, `%plurals%`, `%isorare%` and `%hasorhave%` follow from the number of details.
    words: &'static str,
    count: usize,
    detail: Vec<String>,
}

/// By code.
type Found = BTreeMap<&'static str, Check>;

pub(super) fn check(seen: &Seen<'_>, checks: &mut Checks) {
    let mut found = Found::new();
    reported(seen, &mut found);
    for fs in seen.state.fs.map.filesystems.values() {
        ranks(seen, fs, &mut found);
        settings(fs, &mut found);
    }
    for (code, check) in found {
        let many = check.count > 1;
        let words = check.words.replace("%num%", &check.count.to_string());
        let words = words.replace("%plurals%", if many { "s" } else { "" });
        let words = words.replace("%isorare%", if many { "are" } else { "is" });
        let words = words.replace("%hasorhave%", if many { "have" } else { "has" });
        let mut detail = check.detail;
        if check.count > detail.len() {
            detail.push(format!("and {} more", check.count - detail.len()));
        }
        checks.add(code, check.severity, words, check.count, detail);
    }
    standbys(seen, checks);
    tickets(seen, checks);
}

fn add(found: &mut Found, code: &'static str, severity: Severity, words: &'static str, detail: String) {
    let check = found.entry(code).or_insert(Check { severity, words, count: 0, detail: Vec::new() });
    check.severity = check.severity.min(severity);
    check.count += 1;
    if check.detail.len() < DETAILS_LIMIT {
        check.detail.push(detail);
    }
}

/// What daemons find wrong themselves.
fn reported(seen: &Seen<'_>, found: &mut Found) {
    let fs = &seen.state.fs;
    for (gid, health) in &fs.health {
        let Some(info) = fs.map.daemon(*gid) else { continue };
        for metric in &health.metrics {
            let Some((code, words)) = metric.names() else { continue };
            let more: Vec<String> = metric.metadata.iter().map(|(k, v)| format!("{k}: {v}")).collect();
            let space = if more.is_empty() { "" } else { " " };
            let detail =
                format!("mds.{}(mds.{}): {}{space}{}", info.name, info.rank, metric.message, more.join(", "));
            add(found, code, Severity::from_u8(metric.severity), words, detail);
        }
    }
}

/// Ranks that nobody holds.
fn ranks(seen: &Seen<'_>, fs: &Filesystem, found: &mut Found) {
    let (map, name) = (&fs.map, &fs.map.fs_name);
    let state = &seen.state.fs;
    let fits = |info: &maps::MdsInfo| state.is_of_kind_up(info.gid, None);
    let stuck =
        map.failed.iter().filter(|rank| state.map.replacement(fs.fscid, **rank, fits).is_none()).count();
    if stuck > 0 {
        let words = "%num% filesystem%plurals% %hasorhave% a failed mds daemon";
        let s = if stuck > 1 { "s" } else { "" };
        let detail = format!("fs {name} has {stuck} failed mds{s}");
        add(found, "FS_WITH_FAILED_MDS", Severity::Warning, words, detail);
    }
    for rank in &map.damaged {
        let detail = format!("fs {name} mds.{rank} is damaged");
        add(found, "MDS_DAMAGE", Severity::Error, "%num% mds daemon%plurals% damaged", detail);
    }
    if map.is_degraded() {
        let words = "%num% filesystem%plurals% %isorare% degraded";
        add(found, "FS_DEGRADED", Severity::Warning, words, format!("fs {name} is degraded"));
    }
    let max = usize::try_from(map.max_mds).unwrap_or(0);
    if map.r#in.len() < max {
        let words = "%num% filesystem%plurals% %isorare% online with fewer MDS than max_mds";
        let detail = format!("fs {name} has {} MDS online, but wants {max}", map.r#in.len());
        add(found, "MDS_UP_LESS_THAN_MAX", Severity::Warning, words, detail);
    }
    if map.up.is_empty() && max > 0 {
        let words = "%num% filesystem%plurals% %isorare% offline";
        let detail = format!("fs {name} is offline because no MDS is active for it.");
        add(found, "MDS_ALL_DOWN", Severity::Error, words, detail);
    }
}

fn settings(fs: &Filesystem, found: &mut Found) {
    let (map, name) = (&fs.map, &fs.map.fs_name);
    let old_snaps =
        map.was_ever_allowed(mds_flags::ALLOW_SNAPS) && !map.has_flag(mds_flags::ALLOW_MULTIMDS_SNAPS);
    if map.max_mds > 1 && old_snaps {
        let words = "%num% filesystem%plurals% %isorare% multi-active mds with old snapshots";
        let detail = "multi-active mds while there are snapshots possibly created by pre-mimic MDS";
        add(found, "MULTIMDS_WITH_OLDSNAPS", Severity::Error, words, detail.to_owned());
    }
    if map.inline_data {
        let words = "%num% filesystem%plurals% with deprecated feature inline_data";
        let detail = format!("fs {name} has deprecated feature inline_data enabled.");
        add(found, "FS_INLINE_DATA_DEPRECATED", Severity::Warning, words, detail);
    }
}

fn standbys(seen: &Seen<'_>, checks: &mut Checks) {
    let fs = &seen.state.fs;
    let missing = fs.map.standbys_missing();
    if missing > 0 {
        let detail = format!("have {}; want {missing} more", fs.map.standbys.len());
        let summary = "insufficient standby MDS daemons available".to_owned();
        checks.warn("MDS_INSUFFICIENT_STANDBY", summary, 1, vec![detail]);
    }
    let waiting = fs.waiting_for_kind();
    if let Some(first) = waiting.first() {
        let (theirs, ours) = match fs.is_of_ceph(first.gid) {
            true => ("Ceph's", "Loligo's"),
            false => ("Loligo's", "Ceph's"),
        };
        let s = if waiting.len() > 1 { "s" } else { "" };
        let summary = format!("{} standby mds daemon{s} cannot join ranks of the other kind", waiting.len());
        let detail = waiting.iter().take(DETAILS_LIMIT).map(|i| {
            format!("mds.{} is {theirs}, and waits until no rank is held by a daemon of {ours}", i.name)
        });
        let detail: Vec<String> = detail.collect();
        checks.warn("MDS_KINDS_APART", summary, waiting.len(), detail);
    }
}

/// A metadata server of Ceph's opens no other tickets than Ceph's, of which bits can be changed unseen.
fn tickets(seen: &Seen<'_>, checks: &mut Checks) {
    let fs = &seen.state.fs;
    if !fs.ceph_tickets {
        return;
    }
    let theirs = fs.ranked().filter(|i| fs.is_of_ceph(i.gid) && i.state != MdsState::DNE);
    let detail = theirs
        .take(DETAILS_LIMIT)
        .map(|i| format!("mds.{} opens tickets in Ceph's form (AES-128-CBC) only", i.name));
    let detail: Vec<String> = detail.collect();
    let summary = "tickets for metadata servers are not authenticated: ranks are held by Ceph's".to_owned();
    checks.warn("MDS_TICKETS_OF_CEPH", summary, detail.len(), detail);
}

//! Checks of the monitors and managers themselves.
//!
//! Source: src/mon/HealthMonitor.cc, MgrMonitor::should_warn_about_mgr_down.

use std::time::Duration;

use types::AddrKind;

use super::{Checks, Seen, Severity};
use crate::state::maps_limit;
use crate::text::units;

pub(super) fn check(seen: &Seen<'_>, checks: &mut Checks) {
    monitors(seen, checks);
    manager(seen, checks);
    managers_tickets(seen, checks);
    managers_modules(seen, checks);
    old_maps(seen, checks);
    if seen.switch("mon_warn_on_osd_down_out_interval_zero")
        && seen.number("mon_osd_down_out_interval") == 0.0
    {
        let name = &seen.settings.name;
        let summary = format!("mon {name} has mon_osd_down_out_interval set to 0");
        let detail = vec![format!("mon.{name} has mon_osd_down_out_interval set to 0")];
        checks.warn("OSD_NO_DOWN_OUT_INTERVAL", summary, 1, detail);
    }
}

fn monitors(seen: &Seen<'_>, checks: &mut Checks) {
    let map = &seen.state.monmap;
    let quorum = &seen.settings.quorum.members;
    let in_quorum = |rank: usize| quorum.iter().any(|r| usize::try_from(*r) == Ok(rank));
    let down: Vec<String> = (map.ranked().enumerate())
        .filter(|(rank, _)| !in_quorum(*rank))
        .map(|(rank, m)| format!("mon.{} (rank {rank}) addr {} is down (out of quorum)", m.name, m.addrs))
        .collect();
    if !down.is_empty() {
        let names = crate::views::quorum_names(map, quorum).join(",");
        let summary = format!("{}/{} mons down, quorum {names}", down.len(), map.ranks.len());
        checks.warn("MON_DOWN", summary, down.len(), down);
    }
    clocks(seen, checks);
    let without_msgr2 = map.mons.values().filter(|m| m.addrs.0.iter().all(|a| a.kind != AddrKind::Msgr2));
    let detail =
        without_msgr2.map(|m| format!("mon.{} is not bound to a msgr2 port, only {}", m.name, m.addrs));
    let detail: Vec<String> = detail.collect();
    if seen.switch("mon_warn_on_msgr2_not_enabled") {
        checks.warn_each("MON_MSGR2_NOT_ENABLED", "monitors have not enabled msgr2", detail);
    }
}

/// Maps that PGs need which have not been clean since. All members of the quorum hold the same, in memory
/// too. Source: MON_DISK_BIG in src/mon/HealthMonitor.cc.
fn old_maps(seen: &Seen<'_>, checks: &mut Checks) {
    let limit = maps_limit(seen.number("mon_data_size_warn"));
    let kept = seen.state.osds.kept_bytes() as u64;
    if kept < limit {
        return;
    }
    let names = crate::views::quorum_names(&seen.state.monmap, &seen.settings.quorum.members);
    let detail = names.iter().map(|name| {
        let (kept, limit) = (units::bytes(kept), units::bytes(limit));
        format!("mon.{name} keeps {kept} of OSD maps for unclean PGs >= mon_data_size_warn ({limit})")
    });
    let mut detail: Vec<String> = detail.collect();
    let count = detail.len();
    if seen.state.osds.refuses_clients(limit) {
        detail.push("clients can make and remove no snapshots until PGs are clean".to_owned());
        detail.push("clients can shut out no others until PGs are clean".to_owned());
    }
    let (s, are) = if names.len() == 1 { ("", "is") } else { ("s", "are") };
    let summary = format!("mon{s} {} {are} using a lot of disk space", names.join(","));
    checks.warn("MON_DISK_BIG", summary, count, detail);
}

/// Source: HealthMonitor::check_for_clock_skew, Monitor::timecheck_status.
fn clocks(seen: &Seen<'_>, checks: &mut Checks) {
    let allowed = seen.number("mon_clock_drift_allowed");
    let seconds = |ms: u64| std::time::Duration::from_millis(ms).as_secs_f64();
    let off = |s: &&crate::settings::ClockSkew| seconds(s.skew_ms.unsigned_abs()) > allowed;
    let skewed: Vec<_> = seen.settings.quorum.skews.iter().filter(off).collect();
    if skewed.is_empty() {
        return;
    }
    let names: Vec<String> = skewed.iter().map(|s| format!("mon.{}", s.name)).collect();
    let detail = skewed.iter().map(|s| {
        let (skew, latency) = (seconds(s.skew_ms.unsigned_abs()), seconds(s.latency_ms));
        format!("mon.{} clock skew {skew}s > max {allowed}s (latency {latency}s)", s.name)
    });
    let summary = format!("clock skew detected on {}", names.join(", "));
    checks.warn("MON_CLOCK_SKEW", summary, skewed.len(), detail.collect());
}

/// A manager of Ceph's opens no other tickets than Ceph's, of which bits can be changed unseen.
fn managers_tickets(seen: &Seen<'_>, checks: &mut Checks) {
    let mgr = &seen.state.mgr;
    let Some(active) = mgr.active.as_ref().filter(|_| mgr.ceph_tickets) else { return };
    let name = &active.name;
    let summary = format!("tickets for managers are not authenticated: mgr.{name} is Ceph's");
    let detail = vec![format!("mgr.{name} opens tickets in Ceph's form (AES-128-CBC) only")];
    checks.warn("MGR_TICKETS_OF_CEPH", summary, 1, detail);
}

/// Modules that somebody switched on under a manager of Ceph's, and that the one in charge does not have.
fn managers_modules(seen: &Seen<'_>, checks: &mut Checks) {
    let names = seen.state.mgr.unserved();
    if names.is_empty() {
        return;
    }
    let s = if names.len() == 1 { "" } else { "s" };
    let summary = format!("{} enabled mgr module{s} not served", names.len());
    let detail =
        names.iter().map(|name| format!("module '{name}' is enabled and the active mgr does not have it"));
    let detail: Vec<String> = detail.collect();
    checks.warn("MGR_MODULE_NOT_SERVED", summary, detail.len(), detail);
}

/// A cluster without OSDs needs no manager, nor does one that was made a moment ago.
fn manager(seen: &Seen<'_>, checks: &mut Checks) {
    let mgr = &seen.state.mgr;
    if mgr.active.is_some() || seen.state.osdmap().counts().total == 0 {
        return;
    }
    let seconds = |name| Duration::from_secs_f64(seen.number(name).clamp(0.0, 1e9));
    let age = seen.now.wall.since(seen.state.monmap.created);
    if age <= seconds("mon_mgr_mkfs_grace") {
        return;
    }
    let gone_for = seen.now.wall.since(mgr.active_change);
    let long = !mgr.active_change.is_zero() && gone_for > seconds("mon_mgr_inactive_grace");
    let severity = if long { Severity::Error } else { Severity::Warning };
    checks.add("MGR_DOWN", severity, "no active mgr".to_owned(), 0, Vec::new());
}

//! The managers: who is active, and what the active one reports.
//!
//! Invariant: tickets for managers have Ceph's form exactly while the manager in charge is Ceph's (and cephx is in use).
//!
//! Source: MgrMonitor::prepare_beacon, MgrMonitor::tick, MgrStatMonitor::prepare_report.

use std::time::Duration;

use cephx::METHOD_CEPHX;
use codec::{Decode, Encode};
use messages::mgr::{MMgrBeacon, MMonMgrReport, MPgDigest};
use types::{AddrKind, ConnId, Now, Utime};

use crate::monitor::Monitor;
use crate::proposal::Batch;
use crate::settings::Settings;
use crate::state::{Change, MgrDaemon, MgrState, PgDigest, Priority, is_of_ceph};

/// Without a beacon for so long a manager is gone. Source: mon_mgr_beacon_grace.
const BEACON_GRACE: Duration = Duration::from_secs(30);

impl Monitor {
    pub(crate) fn prepare_mgr_beacon(&mut self, now: Now, batch: &mut Batch, conn: ConnId, m: &MMgrBeacon) {
        // A manager that has no map yet does not know the cluster's id.
        if !m.fsid.is_zero() && m.fsid != batch.state().fsid
            || self.sessions.get(&conn).is_none_or(|s| s.global_id.0 == 0)
            // It lost its place and cannot work: it comes back in another life when it sees a map without itself.
            || batch.osdmap().any_blocklisted(&m.addrs)
        {
            return;
        }
        self.mgr_seen.insert(m.gid, now.mono);
        let mut mgr = MgrState::clone(&batch.state().mgr);
        let daemon = MgrDaemon {
            gid: m.gid,
            name: m.name.clone(),
            addrs: m.addrs.clone(),
            available: m.available,
            features: m.features,
            modules: m.modules.clone(),
            of_ceph: is_of_ceph(&m.metadata),
        };
        // One that had to log in anew has another number, and is the same process.
        let same =
            |a: &MgrDaemon| a.gid == m.gid || (a.name == m.name && a.addrs == m.addrs && !m.addrs.is_empty());
        if mgr.active.as_ref().is_some_and(|a| a.name == m.name && !same(a)) {
            // It started anew: its earlier self is gone.
            drop_active(now, &self.settings, &mut mgr, batch, "restarted");
        }
        mgr.standbys.retain(|gid, d| *gid == m.gid || d.name != m.name);
        match &mut mgr.active {
            Some(active) if same(active) => {
                if daemon.available && !active.available {
                    let text = format!("Manager daemon {} is now available", m.name);
                    batch.log(self.settings.log_entry(now, Priority::Info, "cluster", text));
                }
                *active = daemon;
                mgr.services.clone_from(&m.services);
            }
            Some(_) => {
                if !mgr.standbys.contains_key(&m.gid) {
                    let text = format!("Standby manager daemon {} started", m.name);
                    batch.log(self.settings.log_entry(now, Priority::Debug, "cluster", text));
                }
                mgr.standbys.insert(m.gid, daemon);
            }
            None => {
                let text = format!("Activating manager daemon {}", m.name);
                batch.log(self.settings.log_entry(now, Priority::Info, "cluster", text));
                mgr.standbys.remove(&m.gid);
                mgr.active = Some(daemon);
                mgr.active_change = now.wall;
            }
        }
        if !m.metadata.is_empty() {
            mgr.metadata.insert(m.name.clone(), m.metadata.clone());
        }
        if !m.commands.is_empty() {
            mgr.commands.clone_from(&m.commands);
        }
        propose_mgr(now, &self.settings, mgr, batch);
    }

    /// Managers that are silent lose their place; a standby takes the active one's.
    pub(crate) fn tick_mgr(&mut self, now: Now, batch: &mut Batch) {
        let mut mgr = MgrState::clone(&batch.state().mgr);
        let grace = self.settings.span(&self.state, "mon_mgr_beacon_grace", BEACON_GRACE);
        let mut silent = |gid: u64| {
            let seen = *self.mgr_seen.entry(gid).or_insert(now.mono);
            now.mono.saturating_sub(seen) > grace
        };
        let gone: Vec<u64> = mgr.standbys.keys().copied().filter(|gid| silent(*gid)).collect();
        let active_gone = mgr.active.as_ref().is_some_and(|a| silent(a.gid));
        for gid in gone {
            mgr.standbys.remove(&gid);
            self.mgr_seen.remove(&gid);
        }
        if active_gone {
            drop_active(now, &self.settings, &mut mgr, batch, "is unresponsive");
        }
        promote(now, &self.settings, &mut mgr, batch);
        let known =
            |gid: &u64| mgr.standbys.contains_key(gid) || mgr.active.as_ref().is_some_and(|a| a.gid == *gid);
        self.mgr_seen.retain(|gid, _| known(gid));
        propose_mgr(now, &self.settings, mgr, batch);
    }

    pub(crate) fn prepare_mgr_report(&mut self, batch: &mut Batch, m: &MMonMgrReport) {
        let mut digest = PgDigest::clone(&batch.state().digest);
        digest.checks.clone_from(&m.checks.checks);
        digest.progress.clone_from(&m.progress);
        batch.change(Change::Digest(digest.to_bytes()));
    }

    pub(crate) fn prepare_pg_digest(&mut self, batch: &mut Batch, m: &MPgDigest) {
        let active = batch.state().mgr.active.as_ref().map(|a| a.gid);
        if m.gid != 0 && active != Some(m.gid) {
            return;
        }
        // Bytes that do not decode are the manager's fault: the last digest stays.
        let Ok(digest) = PgDigest::from_bytes(m.summary.clone()) else { return };
        let pools: Vec<_> = batch.state().creating.keys().copied().collect();
        if *batch.state().digest != digest {
            batch.change(Change::Digest(m.summary.clone()));
        }
        for pool in pools {
            crate::service::osd::created_by_report(batch, pool, &digest);
        }
    }
}

/// Takes the lead from the manager in charge, and its place.
pub(crate) fn drop_active(now: Now, settings: &Settings, mgr: &mut MgrState, batch: &mut Batch, why: &str) {
    let Some(active) = mgr.active.take() else { return };
    mgr.active_change = now.wall;
    mgr.services.clear();
    let text = format!("Manager daemon {} {why}, replacing it", active.name);
    batch.log(settings.log_entry(now, Priority::Info, "cluster", text));
    // Whatever it still holds of its last life may write no more.
    let until = now.wall.plus(Duration::from_secs(86_400));
    let blank = |a: &types::EntityAddr| a.is_blank();
    let addrs: Vec<types::EntityAddr> = active.addrs.0.into_iter().filter(|a| !blank(a)).collect();
    for addr in addrs {
        blocklist(batch, addr, until);
    }
    mgr.last_failure_osd_epoch = batch.next_osdmap_epoch();
}

/// Puts a standby in charge when nobody is.
pub(crate) fn promote(now: Now, settings: &Settings, mgr: &mut MgrState, batch: &mut Batch) {
    if mgr.active.is_some() {
        return;
    }
    if let Some((_, next)) = mgr.standbys.pop_first() {
        let text = format!("Activating manager daemon {}", next.name);
        batch.log(settings.log_entry(now, Priority::Info, "cluster", text));
        mgr.active = Some(MgrDaemon { available: false, ..next });
        mgr.active_change = now.wall;
    }
}

/// Blocks an address until a time, whatever protocol it speaks. Source: OSDMonitor::blocklist.
pub(crate) fn blocklist(batch: &mut Batch, addr: types::EntityAddr, until: Utime) {
    let map = batch.osdmap_mut();
    // An entry's time cannot be changed by an increment while it is there; the longer one wins in the next epoch.
    map.blocklist.entry(types::EntityAddr { kind: AddrKind::Any, ..addr }).or_insert(until);
}

/// Proposes the managers' state when it changed; what only beacons touch makes no new epoch.
pub(crate) fn propose_mgr(now: Now, settings: &Settings, mut mgr: MgrState, batch: &mut Batch) {
    let of_ceph = mgr.active.as_ref().filter(|a| a.of_ceph && settings.auth_methods.contains(&METHOD_CEPHX));
    if mgr.ceph_tickets != of_ceph.is_some() {
        let text = match of_ceph {
            Some(a) => format!("tickets for managers have Ceph's form from now on: mgr.{} is Ceph's", a.name),
            None => "tickets for managers are sealed again".to_owned(),
        };
        mgr.ceph_tickets = of_ceph.is_some();
        batch.log(settings.log_entry(now, Priority::Info, "audit", text));
    }
    if *batch.state().mgr == mgr {
        return;
    }
    mgr.epoch = mgr.epoch.next();
    batch.change(Change::Mgr(mgr.to_bytes()));
}

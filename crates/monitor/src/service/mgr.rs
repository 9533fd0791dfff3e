//! The managers: who is active, and what the active one reports.
//!
//! Invariant: tickets for managers have Ceph's form exactly while the manager in charge is Ceph's (and cephx
//! is in use).
//!
//! Source: MgrMonitor::prepare_beacon, MgrMonitor::tick, MgrStatMonitor::prepare_report.

use std::sync::Arc;
use std::time::Duration;

use cephx::METHOD_CEPHX;
use codec::{Decode, Encode};
use maps::ServiceMap;
use messages::Message;
use messages::mgr::{HealthCheck, MMgrBeacon, MMonMgrReport, MPgDigest};
use messages::pg_map_digest::PgMapDigest;
use types::{AddrKind, ConnId, EntityType, Now, PoolId, Utime};

use crate::monitor::Monitor;
use crate::proposal::Batch;
use crate::service::faults::{Fault, LeftOut};
use crate::session::{Access, Session};
use crate::settings::Settings;
use crate::state::{Change, MgrDaemon, MgrState, PgDigest, Priority, is_of_ceph};

/// Managers that stand by, and clients of one that are shut out with it.
const STANDBYS_LIMIT: usize = 64;
const CLIENTS_LIMIT: usize = 64;
/// Addresses of a manager, and of each of its clients.
const ADDRS_LIMIT: usize = 8;
/// Bytes of all that managers say of themselves: it is committed as a whole, and goes to every monitor as one
/// message.
const MANAGERS_BYTES: usize = 16 << 20;
/// Of one report: bytes of its digest and of its service map, health checks (and events under way), lines of
/// a check.
const DIGEST_LIMIT: usize = 16 << 20;
const SERVICE_MAP_LIMIT: usize = 1 << 20;
/// A manager that starts anew takes its own place at once so many times, and then once in a while: two
/// processes of one name would push each other out without end.
const RESTARTS_AT_ONCE: u32 = 6;
const RESTART_EVERY: Duration = Duration::from_secs(10);
/// A monitor whose last tick is less old was not away.
const PAUSED: Duration = Duration::from_secs(2);
pub(crate) const CHECKS_LIMIT: usize = 256;
pub(crate) const DETAILS_LIMIT: usize = 256;

impl Monitor {
    pub(crate) fn prepare_mgr_beacon(&mut self, now: Now, batch: &mut Batch, conn: ConnId, m: &MMgrBeacon) {
        if !self.sessions.get(&conn).is_some_and(is_manager) {
            return self.say_beacon(now, batch, conn, Fault::Denied);
        }
        // A manager that has no map yet does not know the cluster's id.
        let is_foreign = !m.fsid.is_zero() && m.fsid != batch.state().fsid;
        // It speaks for itself alone.
        let Some(session) = self.sessions.get(&conn).filter(|s| !is_foreign && is_own(s, m)) else {
            return self.say_beacon(now, batch, conn, Fault::Foreign);
        };
        let gid = session.global_id.0;
        // One of ours lost its place: it comes back under another address when it sees a map without
        // itself. Ceph's starts anew under the same address, and works with others that are not blocked.
        if !is_of_ceph(&m.metadata) && batch.osdmap().any_blocklisted(&m.addrs) {
            return;
        }
        self.mgr_seen.insert(gid, now.mono);
        if let Some(why) = too_large(batch, m) {
            return self.refuse_report(now, batch, m.gid, (Fault::Size, why));
        }
        let mut mgr = MgrState::clone(&batch.state().mgr);
        let daemon = daemon_of(m);
        // One that had to log in anew has another number, and is the same process.
        let same =
            |a: &MgrDaemon| a.gid == m.gid || (a.name == m.name && a.addrs == m.addrs && !m.addrs.is_empty());
        if mgr.active.as_ref().is_some_and(|a| a.name == m.name && !same(a)) {
            if !self.may_restart(now, &m.name) {
                return self.say_beacon(now, batch, conn, Fault::Twin);
            }
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
                if !m.commands.is_empty() {
                    mgr.commands.clone_from(&m.commands);
                }
            }
            Some(_) if mgr.standbys.len() >= STANDBYS_LIMIT && !mgr.standbys.contains_key(&m.gid) => return,
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
                if !m.commands.is_empty() {
                    mgr.commands.clone_from(&m.commands);
                }
            }
        }
        if !m.metadata.is_empty() {
            mgr.metadata.insert(m.name.clone(), m.metadata.clone());
        }
        propose_mgr(now, &self.settings, mgr, batch);
    }

    /// Whether the manager in charge may be replaced by its own name once more. Where it may not, and the one
    /// in charge is silent, that one loses its place as any other.
    fn may_restart(&mut self, now: Now, name: &str) -> bool {
        let (of, paid) = self.mgr_restarts.get_or_insert_with(|| (name.to_owned(), now.mono));
        if of != name {
            (*of, *paid) = (name.to_owned(), now.mono);
        }
        let next = (*paid).max(now.mono) + RESTART_EVERY;
        let may = next <= now.mono + RESTART_EVERY * RESTARTS_AT_ONCE;
        if may {
            *paid = next;
        }
        may
    }

    /// Managers that are silent lose their place; a standby takes the active one's.
    pub(crate) fn tick_mgr(&mut self, now: Now, batch: &mut Batch) {
        let mgr = Arc::clone(&batch.state().mgr);
        let grace = self.settings.span(&self.state, "mon_mgr_beacon_grace");
        let last = self.mgr_ticked.replace(now.mono).unwrap_or(now.mono);
        if now.mono.saturating_sub(last) > (grace / 2).max(PAUSED) {
            // It was this monitor that was away: beacons may wait to be read. Source: MgrMonitor::tick.
            self.mgr_seen.values_mut().for_each(|seen| *seen = now.mono);
        }
        let mut silent = |gid: u64| {
            let seen = *self.mgr_seen.entry(gid).or_insert(now.mono);
            now.mono.saturating_sub(seen) > grace
        };
        let gone: Vec<u64> = mgr.standbys.keys().copied().filter(|gid| silent(*gid)).collect();
        let active_gone = mgr.active.as_ref().is_some_and(|a| silent(a.gid));
        let stays = gone.is_empty() && !active_gone && (mgr.active.is_some() || mgr.standbys.is_empty());
        let known = |mgr: &MgrState, gid: u64| {
            mgr.standbys.contains_key(&gid) || mgr.active.as_ref().is_some_and(|a| a.gid == gid)
        };
        if stays && is_settled(&self.settings, &mgr) {
            // As nearly always: the state, which is large, is not copied to be found the same.
            return self.mgr_seen.retain(|gid, _| known(&mgr, *gid));
        }
        let mut mgr = MgrState::clone(&mgr);
        for gid in gone {
            mgr.standbys.remove(&gid);
            self.mgr_seen.remove(&gid);
        }
        if active_gone {
            drop_active(now, &self.settings, &mut mgr, batch, "is unresponsive");
        }
        promote(now, &self.settings, &mut mgr, batch);
        self.mgr_seen.retain(|gid, _| known(&mgr, *gid));
        propose_mgr(now, &self.settings, mgr, batch);
    }

    /// The report of Ceph's manager. What is wrong with it is said once, and what is known stays.
    pub(crate) fn prepare_mgr_report(&mut self, now: Now, batch: &mut Batch, m: &MMonMgrReport) {
        if !is_in_charge(batch, m.gid) {
            return self.refuse_report(now, batch, m.gid, not_in_charge());
        }
        let read = read_digest(batch, now, m).map_err(|why| (Fault::Digest, why));
        let map = read_service_map(m).map_err(|why| (Fault::ServiceMap, why));
        let ((digest, left_out), map) = match (read, map) {
            (Ok(read), Ok(map)) => (read, map),
            (Err(why), _) | (_, Err(why)) => return self.refuse_report(now, batch, m.gid, why),
        };
        self.say_left_out(now, batch, m.gid, left_out);
        if let Some(map) = map.filter(|map| *map != *batch.state().service_map) {
            batch.change(Change::ServiceMap(map.to_bytes()));
        }
        let known = |id: &PoolId| digest.pools.get(id).map_or(0, |usage| usage.num_pg);
        let whole = |id: &PoolId| batch.osdmap().pool(*id).is_some_and(|pool| pool.pg_num <= known(id));
        let pools = batch.state().creating.keys().copied().filter(whole).collect();
        self.take_digest(now, batch, m.gid, digest, pools);
    }

    pub(crate) fn prepare_pg_digest(&mut self, now: Now, batch: &mut Batch, m: &MPgDigest) {
        if !is_in_charge(batch, m.gid) {
            return self.refuse_report(now, batch, m.gid, not_in_charge());
        }
        // Bytes that do not decode are the manager's fault: the last digest stays.
        let mut digest = match PgDigest::from_bytes(m.summary.clone()) {
            Ok(digest) => digest,
            Err(error) => {
                return self.refuse_report(now, batch, m.gid, (Fault::Digest, error.to_string()));
            }
        };
        // An OSD may have said what it likes.
        digest.clamp();
        if let Some(Err(why)) = digest.services.take().map(|map| take_services(now, batch, map)) {
            self.refuse_report(now, batch, m.gid, (Fault::ServiceMap, why));
        }
        let pools = batch.state().creating.keys().copied().collect();
        self.take_digest(now, batch, m.gid, digest, pools);
    }

    /// Proposes a digest that says something new, and ends what it shows the end of: the creation of those
    /// pools of which it knows each PG.
    fn take_digest(&mut self, now: Now, batch: &mut Batch, gid: u64, digest: PgDigest, pools: Vec<PoolId>) {
        let before = &batch.state().digest;
        let news = **before != (PgDigest { stamp: before.stamp, ..digest.clone() }) || before.stamp.is_zero();
        if news {
            self.take_or_hold(now, batch, gid, digest.clone());
        } else {
            self.held.drop_waiting();
        }
        for pool in pools {
            crate::service::osd::created_by_report(batch, pool, &digest);
        }
    }
}

/// Whether a session is a manager's. The form of all managers' tickets depends on which manager is in charge:
/// so a beacon takes a manager's key, and an administrator's does not do.
pub(crate) fn is_manager(session: &Session) -> bool {
    session.name.kind == EntityType::Mgr && session.may("mgr", Access::X)
}

/// Whether a beacon is of its sender. Source: MgrStandby::send_beacon in src/mgr/MgrStandby.cc, which says
/// the number that the monitor gave the session and the name that it logged in with.
fn is_own(session: &Session, m: &MMgrBeacon) -> bool {
    session.global_id.0 != 0 && session.global_id.0 == m.gid && session.name.id == m.name
}

/// Why there is no room for what a beacon says.
fn too_large(batch: &Batch, m: &MMgrBeacon) -> Option<String> {
    if m.client_addrs.iter().chain([&m.addrs]).any(|addrs| addrs.0.len() > ADDRS_LIMIT) {
        return Some(format!("a daemon has at most {ADDRS_LIMIT} addresses"));
    }
    let wire = Message::from(m.clone()).into_wire(0);
    let bytes = batch.state().mgr.to_bytes().len() + wire.front.len() + wire.data.len();
    (bytes > MANAGERS_BYTES).then(|| format!("managers would take {bytes} bytes"))
}

/// The manager that a beacon speaks of.
fn daemon_of(m: &MMgrBeacon) -> MgrDaemon {
    MgrDaemon {
        gid: m.gid,
        name: m.name.clone(),
        addrs: m.addrs.clone(),
        available: m.available,
        features: m.features,
        modules: m.modules.clone(),
        of_ceph: is_of_ceph(&m.metadata),
        clients: m
            .client_names
            .iter()
            .cloned()
            .zip(m.client_addrs.iter().cloned())
            .take(CLIENTS_LIMIT)
            .collect(),
    }
}

/// Whether a report is the word of the manager in charge; some do not say whose it is.
pub(crate) fn is_in_charge(batch: &Batch, gid: u64) -> bool {
    gid == 0 || batch.state().mgr.active.as_ref().is_some_and(|a| a.gid == gid)
}

fn not_in_charge() -> (Fault, String) {
    (Fault::NotInCharge, "it is not in charge".to_owned())
}

/// What a report says of PGs, of health and of what is under way, and what was left out of that.
/// Before it knows all PGs a manager sends an empty digest.
fn read_digest(batch: &Batch, now: Now, m: &MMonMgrReport) -> Result<(PgDigest, LeftOut), String> {
    let state = batch.state();
    let mut left_out = LeftOut::default();
    let whole = if m.digest.is_empty() {
        PgDigest::clone(&state.digest)
    } else if m.digest.len() > DIGEST_LIMIT {
        return Err(format!("a digest of {} bytes", m.digest.len()));
    } else {
        let digest = PgMapDigest::from_bytes(m.digest.clone()).map_err(|e| e.to_string())?;
        left_out = LeftOut::of_digest(&digest, state.osdmap().pool_max);
        PgDigest::of_ceph(&digest, state.osdmap(), now.wall)
    };
    left_out.count_checks(m);
    let checks = m.checks.checks.iter().take(CHECKS_LIMIT).map(|(code, check)| {
        let detail = check.detail.iter().take(DETAILS_LIMIT).cloned().collect();
        (code.clone(), HealthCheck { detail, ..check.clone() })
    });
    let progress = m.progress.iter().take(CHECKS_LIMIT).map(|(id, event)| (id.clone(), event.clone()));
    Ok((PgDigest { checks: checks.collect(), progress: progress.collect(), ..whole }, left_out))
}

/// The service map of a report that has one.
fn read_service_map(m: &MMonMgrReport) -> Result<Option<ServiceMap>, String> {
    match m.service_map.len() {
        0 => Ok(None),
        len if len > SERVICE_MAP_LIMIT => Err(format!("a service map of {len} bytes")),
        _ => ServiceMap::from_bytes(m.service_map.clone()).map(Some).map_err(|e| e.to_string()),
    }
}

/// Proposes the services of a manager of ours, which numbers its maps by itself.
fn take_services(now: Now, batch: &mut Batch, map: ServiceMap) -> Result<(), String> {
    let known = &batch.state().service_map;
    if known.services != map.services {
        let map =
            ServiceMap { epoch: known.epoch.next(), modified: now.wall, services: map.services }.to_bytes();
        if map.len() > SERVICE_MAP_LIMIT {
            return Err(format!("a service map of {} bytes; the last one stays", map.len()));
        }
        batch.change(Change::ServiceMap(map));
    }
    Ok(())
}

/// Takes the lead from the manager in charge, and its place.
pub(crate) fn drop_active(now: Now, settings: &Settings, mgr: &mut MgrState, batch: &mut Batch, why: &str) {
    let Some(active) = mgr.active.take() else { return };
    mgr.active_change = now.wall;
    mgr.services.clear();
    let text = format!("Manager daemon {} {why}, replacing it", active.name);
    batch.log(settings.log_entry(now, Priority::Info, "cluster", text));
    // Whatever it still holds of its last life may write no more.
    let until = settings.quorum.fastest_wall(now.wall).plus(Duration::from_secs(86_400));
    let blank = |a: &types::EntityAddr| a.is_blank();
    let clients = active.clients.into_iter().flat_map(|(_, addrs)| addrs.0);
    let addrs: Vec<types::EntityAddr> =
        active.addrs.0.into_iter().chain(clients).filter(|a| !blank(a)).collect();
    // Who takes over waits for the map that shuts the last one out: without a new entry there will be none.
    let mut news = false;
    for addr in addrs {
        news |= blocklist(batch, addr, until);
    }
    if news {
        mgr.last_failure_osd_epoch = batch.next_osdmap_epoch();
    }
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

/// Blocks an address until a time, whatever protocol it speaks; true when it was not blocked before. Source:
/// OSDMonitor::blocklist.
pub(crate) fn blocklist(batch: &mut Batch, addr: types::EntityAddr, until: Utime) -> bool {
    let map = batch.osdmap_mut();
    // An entry's time cannot be changed by an increment while it is there; the longer one wins in the next epoch.
    let entry = map.blocklist.entry(types::EntityAddr { kind: AddrKind::Any, ..addr });
    let news = matches!(entry, std::collections::btree_map::Entry::Vacant(_));
    entry.or_insert(until);
    news
}

/// The manager in charge when it is Ceph's, and its tickets have to have Ceph's form.
fn of_ceph<'a>(settings: &Settings, mgr: &'a MgrState) -> Option<&'a MgrDaemon> {
    mgr.active.as_ref().filter(|a| a.of_ceph && settings.auth_methods.contains(&METHOD_CEPHX))
}

fn has_daemon(mgr: &MgrState, name: &str) -> bool {
    mgr.active.iter().chain(mgr.standbys.values()).any(|d| d.name == name)
}

/// Whether [`propose_mgr`] would leave this state as it is.
fn is_settled(settings: &Settings, mgr: &MgrState) -> bool {
    mgr.ceph_tickets == of_ceph(settings, mgr).is_some()
        && mgr.metadata.keys().all(|name| has_daemon(mgr, name))
}

/// Proposes the managers' state when it changed; what only beacons touch makes no new epoch.
pub(crate) fn propose_mgr(now: Now, settings: &Settings, mut mgr: MgrState, batch: &mut Batch) {
    let of_ceph = of_ceph(settings, &mgr);
    if mgr.ceph_tickets != of_ceph.is_some() {
        let text = match of_ceph {
            Some(a) => format!("tickets for managers have Ceph's form from now on: mgr.{} is Ceph's", a.name),
            None => "tickets for managers are sealed again".to_owned(),
        };
        mgr.ceph_tickets = of_ceph.is_some();
        batch.log(settings.log_entry(now, Priority::Info, "audit", text));
    }
    let MgrState { active, standbys, metadata, .. } = &mut mgr;
    // Of managers that are gone nothing is kept.
    metadata.retain(|name, _| active.iter().chain(standbys.values()).any(|d| d.name == *name));
    if *batch.state().mgr == mgr {
        return;
    }
    mgr.epoch = mgr.epoch.next();
    batch.change(Change::Mgr(mgr.to_bytes()));
}

//! What managers say that is not taken, or not as it comes: counted each time, and said in the cluster log.
//!
//! Invariant: a line says each fault of a manager once while a manager of the same name is in charge, and of
//! at most [`SAID_LIMIT`] faults in all.

use std::collections::BTreeSet;

use messages::mgr::MMonMgrReport;
use messages::pg_map_digest::PgMapDigest;
use types::{AuthName, ConnId, Now};

use crate::monitor::Monitor;
use crate::proposal::Batch;
use crate::service::mgr::{CHECKS_LIMIT, DETAILS_LIMIT};
use crate::state::{PgDigest, Priority};

const SAID_LIMIT: usize = 256;
/// Managers whose keys do not allow beacons and of which the leader is told, once each.
const DENIED_LIMIT: usize = 64;

/// What is wrong with a beacon or a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    /// The sender's key does not allow it.
    Denied,
    /// It speaks for another manager or another cluster.
    Foreign,
    /// Another process of that name is in charge.
    Twin,
    /// Too many addresses, or no room for what it says of itself.
    Size,
    /// The manager that it is of is not in charge.
    NotInCharge,
    Digest,
    ServiceMap,
    /// Pools that never were.
    Pools,
    /// Sums that cannot be.
    Sums,
    /// More checks, lines of a check or events than are kept.
    Checks,
}

/// Of which faults the log has been told.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Faults {
    /// The manager that was in charge when they were said.
    in_charge: String,
    said: BTreeSet<(String, Fault)>,
    denied: BTreeSet<AuthName>,
}

impl Faults {
    fn is_news(&mut self, in_charge: &str, of: &str, fault: Fault) -> bool {
        if self.in_charge != in_charge {
            in_charge.clone_into(&mut self.in_charge);
            self.said.clear();
        }
        self.said.len() < SAID_LIMIT && self.said.insert((of.to_owned(), fault))
    }
}

/// What was left out of a report, by its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct LeftOut {
    /// Pools that never were. Those that were removed a moment ago may still be in a report.
    pub pools: u64,
    /// Pools with sums that cannot be.
    pub sums: u64,
    /// Checks, lines of checks and events beyond what is kept.
    pub checks: u64,
}

impl LeftOut {
    pub fn of_digest(digest: &PgMapDigest, pool_max: i32) -> Self {
        let never = |id: &&i32| **id < 1 || **id > pool_max;
        let pools = digest.pools.keys().filter(never).count() as u64;
        Self { pools, sums: PgDigest::wild_pools(digest), checks: 0 }
    }

    pub fn count_checks(&mut self, m: &MMonMgrReport) {
        let beyond = |len: usize, most: usize| len.saturating_sub(most) as u64;
        let lines = m.checks.checks.values().map(|check| beyond(check.detail.len(), DETAILS_LIMIT));
        let lists = [m.checks.checks.len(), m.progress.len()].map(|len| beyond(len, CHECKS_LIMIT));
        self.checks = lines.chain(lists).sum();
    }
}

impl Monitor {
    /// Whether a beacon from a key that does not allow it goes to the leader, who says so in the log.
    pub(crate) fn is_denied_first(&mut self, conn: ConnId) -> bool {
        let Some(session) = self.sessions.get(&conn) else { return false };
        let denied = &mut self.faults.denied;
        denied.len() < DENIED_LIMIT && denied.insert(session.name.clone())
    }

    /// Counts a beacon as refused, and says what is wrong with it. One from a key that does not allow it was
    /// counted when it came.
    pub(crate) fn say_beacon(&mut self, now: Now, batch: &mut Batch, conn: ConnId, fault: Fault) {
        self.counters.manager_refused += u64::from(fault != Fault::Denied);
        let Some(session) = self.sessions.get(&conn) else { return };
        let why = match fault {
            Fault::Denied => "its key does not allow it",
            Fault::Twin => "processes of this name take each other's place again and again",
            _ => "it speaks for another manager or another cluster",
        };
        let of = session.name.to_string();
        let text = format!("a beacon of {of} was refused: {why}");
        self.say_fault(now, batch, &of, fault, text);
    }

    /// Counts what a manager said as refused, and says why.
    pub(crate) fn refuse_report(
        &mut self,
        now: Now,
        batch: &mut Batch,
        gid: u64,
        (fault, why): (Fault, String),
    ) {
        self.counters.manager_refused += 1;
        let text = format!("a report of the manager with number {gid} was refused: {why}");
        self.say_fault(now, batch, &gid.to_string(), fault, text);
    }

    /// Counts what was left out of a report that was taken, and says what that was.
    pub(crate) fn say_left_out(&mut self, now: Now, batch: &mut Batch, gid: u64, left_out: LeftOut) {
        let LeftOut { pools, sums, checks } = left_out;
        for (fault, count, what) in [
            (Fault::Pools, pools, "pools that never were"),
            (Fault::Sums, sums, "pools with sums that cannot be"),
            (Fault::Checks, checks, "checks, lines of checks or events beyond what is kept"),
        ] {
            if count > 0 {
                self.counters.manager_bounded += count;
                let text = format!("a report of the manager with number {gid} was cut: {count} {what}");
                self.say_fault(now, batch, &gid.to_string(), fault, text);
            }
        }
    }

    fn say_fault(&mut self, now: Now, batch: &mut Batch, of: &str, fault: Fault, text: String) {
        let in_charge = batch.state().mgr.active.as_ref().map_or("", |a| a.name.as_str());
        if self.faults.is_news(in_charge, of, fault) {
            // The last report of a manager that lost its place may be under way.
            let priority = if fault == Fault::NotInCharge { Priority::Info } else { Priority::Warn };
            batch.log(self.settings.log_entry(now, priority, "cluster", text));
        }
    }
}

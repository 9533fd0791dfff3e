//! Changes of health in the cluster log, where `ceph -w` shows them.
//!
//! Source: Monitor::log_health.

use std::collections::BTreeMap;
use std::time::Duration;

use types::Now;

use crate::health::{Health, Severity};
use crate::monitor::Monitor;
use crate::proposal::Batch;
use crate::state::Priority;

/// A check whose text changes all the time is logged no more often. Source: mon_health_log_update_period.
const UPDATE_PERIOD: Duration = Duration::from_secs(5);

/// What was last logged of a check.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Logged {
    severity: u8,
    summary: String,
    at: Duration,
}

impl Monitor {
    /// Compares health with what was logged last.
    pub(crate) fn log_health(&mut self, now: Now, batch: &mut Batch) {
        let checks = Health::of(&self.state, &self.settings, now).checks;
        // What a new leader finds was logged by the one before.
        let Some(before) = self.health_logged.clone() else {
            let known = |c: &messages::mgr::HealthCheck| Logged {
                severity: c.severity,
                summary: c.summary.clone(),
                at: now.mono,
            };
            self.health_logged = Some(checks.iter().map(|(code, c)| (code.clone(), known(c))).collect());
            return;
        };
        let mut after: BTreeMap<String, Logged> = BTreeMap::new();
        for (code, check) in &checks {
            let new = Logged { severity: check.severity, summary: check.summary.clone(), at: now.mono };
            let (verb, entry) = match before.get(code) {
                None => ("failed", new),
                Some(old) if old.severity == new.severity && old.summary == new.summary => {
                    after.insert(code.clone(), old.clone());
                    continue;
                }
                Some(old) if old.severity == new.severity && now.mono < old.at + UPDATE_PERIOD => {
                    after.insert(code.clone(), old.clone());
                    continue;
                }
                Some(_) => ("update", new),
            };
            let prio = match Severity::from_u8(check.severity) {
                Severity::Error => Priority::Error,
                Severity::Warning => Priority::Warn,
                Severity::Ok => Priority::Info,
            };
            let text = format!("Health check {verb}: {} ({code})", check.summary);
            batch.log(self.settings.log_entry(now, prio, "cluster", text));
            after.insert(code.clone(), entry);
        }
        for (code, old) in before.iter().filter(|(code, _)| !checks.contains_key(*code)) {
            let text = format!("Health check cleared: {code} (was: {})", old.summary);
            batch.log(self.settings.log_entry(now, Priority::Info, "cluster", text));
        }
        if !before.is_empty() && checks.is_empty() {
            let text = "Cluster is now healthy".to_owned();
            batch.log(self.settings.log_entry(now, Priority::Info, "cluster", text));
        }
        self.health_logged = Some(after);
    }
}

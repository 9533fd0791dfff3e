//! Health: what the monitors find wrong themselves, together with what the manager finds, and what operators muted.
//!
//! Source: src/mon/HealthMonitor.cc, OSDMap::check_health in src/osd/OSDMap.cc, src/mon/health_check.h.

mod cluster;
mod file_systems;
mod osds;
mod pools;
mod report;

use std::collections::BTreeMap;

use messages::mgr::HealthCheck;
use types::Now;

use crate::settings::Settings;
use crate::state::{Mute, State};

pub(crate) use osds::min_required_release;
pub use report::{health_detail, health_json, health_line};

/// How bad a check is; the worse, the smaller. Source: health_status_t in src/include/health.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Severity {
    Error = 0,
    Warning = 1,
    Ok = 2,
}

impl Severity {
    pub fn from_u8(v: u8) -> Self {
        match v {
            0 => Self::Error,
            1 => Self::Warning,
            _ => Self::Ok,
        }
    }

    /// `HEALTH_WARN` and the like.
    pub fn name(self) -> &'static str {
        match self {
            Self::Error => "HEALTH_ERR",
            Self::Warning => "HEALTH_WARN",
            Self::Ok => "HEALTH_OK",
        }
    }

    /// The tag of detail lines.
    pub fn short(self) -> &'static str {
        match self {
            Self::Error => "ERR",
            Self::Warning => "WRN",
            Self::Ok => "OK",
        }
    }
}

/// Everything that is wrong now.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Health {
    /// By code.
    pub checks: BTreeMap<String, HealthCheck>,
    /// Silenced codes.
    pub mutes: BTreeMap<String, Mute>,
}

impl Health {
    /// Looks at the committed state.
    pub fn of(state: &State, settings: &Settings, now: Now) -> Self {
        let mut checks = Checks::default();
        let seen = Seen { state, settings, now };
        cluster::check(&seen, &mut checks);
        osds::check(&seen, &mut checks);
        pools::check(&seen, &mut checks);
        file_systems::check(&seen, &mut checks);
        let mut checks = checks.0;
        for (code, check) in &state.digest.checks {
            merge(&mut checks, code, check);
        }
        let in_force = state.mutes.iter().filter(|(_, m)| m.until.is_zero() || m.until > now.wall);
        Self { checks, mutes: in_force.map(|(code, m)| (code.clone(), m.clone())).collect() }
    }

    /// The worst of what is not muted.
    pub fn status(&self) -> Severity {
        let loud = self.checks.iter().filter(|(code, _)| !self.mutes.contains_key(*code));
        loud.map(|(_, c)| Severity::from_u8(c.severity)).min().unwrap_or(Severity::Ok)
    }

    pub fn is_muted(&self, code: &str) -> bool {
        self.mutes.contains_key(code)
    }
}

/// What happens to a mute because health changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MuteUpdate {
    /// It ends; the text is for the cluster log.
    Clear { code: String, reason: String },
    /// Fewer are affected than when it was set: it holds for that many from now on.
    Lower { code: String, count: i64 },
}

/// The mutes that run out, or that no longer fit what is wrong. Source: HealthMonitor::check_mutes.
pub fn mute_updates(state: &State, settings: &Settings, now: Now) -> Vec<MuteUpdate> {
    if state.mutes.is_empty() {
        return Vec::new();
    }
    let health = Health::of(state, settings, now);
    state.mutes.iter().filter_map(|(code, mute)| update(&health, code, mute, now)).collect()
}

fn update(health: &Health, code: &str, mute: &Mute, now: Now) -> Option<MuteUpdate> {
    let clear = |why: String| {
        let reason = format!("Health alert mute {code} cleared ({why})");
        Some(MuteUpdate::Clear { code: code.to_owned(), reason })
    };
    if !mute.until.is_zero() && mute.until <= now.wall {
        return clear(format!("passed TTL {}", mute.until));
    }
    if mute.sticky {
        return None;
    }
    let Some(check) = health.checks.get(code) else { return clear("health alert cleared".to_owned()) };
    if mute.count == 0 {
        return if mute.summary == check.summary { None } else { clear("summary changed".to_owned()) };
    }
    if check.count > mute.count {
        return clear(format!("count increased from {} to {}", mute.count, check.count));
    }
    (check.count < mute.count).then(|| MuteUpdate::Lower { code: code.to_owned(), count: check.count })
}

/// Two services may find parts of the same: then details and counts add up.
fn merge(checks: &mut BTreeMap<String, HealthCheck>, code: &str, check: &HealthCheck) {
    match checks.get_mut(code) {
        Some(same) => {
            same.detail.extend(check.detail.iter().cloned());
            same.count += check.count;
        }
        None => {
            checks.insert(code.to_owned(), check.clone());
        }
    }
}

/// What checks look at.
struct Seen<'a> {
    state: &'a State,
    settings: &'a Settings,
    now: Now,
}

impl Seen<'_> {
    fn switch(&self, name: &str) -> bool {
        self.settings.switch(self.state, name)
    }

    fn number(&self, name: &str) -> f64 {
        self.settings.number(self.state, name)
    }

    /// Whether the manager looks at this itself: then its word counts.
    fn reported(&self, code: &str) -> bool {
        self.state.digest.checks.contains_key(code)
    }
}

/// Checks that fail, while they are collected.
#[derive(Default)]
struct Checks(BTreeMap<String, HealthCheck>);

impl Checks {
    fn add(&mut self, code: &str, severity: Severity, summary: String, count: usize, detail: Vec<String>) {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        self.0.insert(code.to_owned(), HealthCheck { severity: severity as u8, summary, detail, count });
    }

    fn warn(&mut self, code: &str, summary: String, count: usize, detail: Vec<String>) {
        self.add(code, Severity::Warning, summary, count, detail);
    }

    /// A warning that counts its details; none without details.
    fn warn_each(&mut self, code: &str, what: &str, detail: Vec<String>) {
        if !detail.is_empty() {
            self.warn(code, format!("{} {what}", detail.len()), detail.len(), detail);
        }
    }
}

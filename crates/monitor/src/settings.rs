//! What one monitor is told at start, and who it works with.

use std::collections::BTreeMap;
use std::time::Duration;

use admin::options::KnownOption;
use types::{AddrVec, AuthName, EntityAddr, EntityName, EntityType, Now, Utime};

use crate::state::{EntityView, LINE_BYTES, LogEntry, Priority, State};
use crate::text::cut;

/// Local settings of a monitor: those that cannot come from the replicated state.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// `a` of `mon.a`.
    pub name: String,
    /// Where it listens.
    pub addrs: AddrVec,
    /// Monitors that an operator has moved, by name: these addresses count instead of the map's, and the
    /// leader has the map say so. Who is at the map's address is in here no more.
    pub moved: BTreeMap<String, EntityAddr>,
    pub host_name: String,
    /// `cephx::METHOD_*` accepted, in order of preference.
    pub auth_methods: Vec<u32>,
    /// Options from the configuration file and the command line, by Ceph's names with underscores; they win over the
    /// config database.
    pub options: BTreeMap<String, String>,
    pub quorum: QuorumView,
    /// When that quorum was formed, by the process's monotonic clock.
    pub quorum_since: Duration,
    /// Log entries between two snapshots.
    pub snapshot_every: u64,
}

impl Settings {
    /// A lone monitor with cephx and both modes.
    pub fn new(name: impl Into<String>, addrs: AddrVec) -> Self {
        Self {
            name: name.into(),
            addrs,
            moved: BTreeMap::new(),
            host_name: "localhost".to_owned(),
            auth_methods: vec![cephx::METHOD_CEPHX],
            options: BTreeMap::new(),
            quorum: QuorumView::alone(),
            quorum_since: Duration::ZERO,
            snapshot_every: 1_000,
        }
    }
}

impl Settings {
    /// An option: local settings first, then the config database for `mon.<name>`.
    pub fn option(&self, state: &State, name: &str) -> Option<String> {
        if let Some(value) = self.options.get(name) {
            return Some(value.clone());
        }
        if !state.config.is_set(name) {
            return None;
        }
        let me = self.entity();
        let view = EntityView { name: Some(&me), ..EntityView::default() };
        state.config.resolve_one(&view, name)
    }

    /// The same as a number, or the option's default. A committed value may be one that no later version
    /// would take: what is no finite number within the option's bounds counts as not set, for it would stop
    /// every leader, and again after each restart.
    pub fn number(&self, state: &State, name: &str) -> f64 {
        let known = known(name);
        let taken = |text: &String| known.parse_value(text).is_ok();
        let number = |text: &str| text.trim().parse().ok().filter(|v: &f64| v.is_finite());
        let set = self.option(state, name).filter(taken).and_then(|text| number(&text));
        set.or_else(|| number(known.default)).unwrap_or_default()
    }

    /// The same as a span of whole seconds (`30`, `2m`), or the option's default.
    pub fn span(&self, state: &State, name: &str) -> Duration {
        let span = |text: &str| admin::options::parse_span(text.trim()).ok().map(Duration::from_secs);
        let set = self.option(state, name).and_then(|text| span(&text));
        set.or_else(|| span(known(name).default)).unwrap_or_default()
    }

    /// The same as a switch, or the option's default.
    pub fn switch(&self, state: &State, name: &str) -> bool {
        let switch = |text: &str| match text {
            "true" | "yes" | "on" | "1" => Some(true),
            "false" | "no" | "off" | "0" => Some(false),
            _ => None,
        };
        let set = self.option(state, name).and_then(|text| switch(&text));
        set.or_else(|| switch(known(name).default)).unwrap_or_default()
    }

    /// The same as text, or the option's default.
    pub fn text(&self, state: &State, name: &str) -> String {
        self.option(state, name).unwrap_or_else(|| known(name).default.to_owned())
    }

    pub fn entity(&self) -> AuthName {
        AuthName::new(EntityType::Mon, self.name.clone())
    }

    /// An entry of the cluster log in this monitor's name; its number is given when it is proposed.
    pub(crate) fn log_entry(&self, now: Now, prio: Priority, channel: &str, text: String) -> LogEntry {
        let mut text = text;
        // A manager's health check, or a command, may be of any length.
        cut(&mut text, LINE_BYTES);
        LogEntry {
            name: self.entity(),
            rank: EntityName::mon(self.quorum.rank.into()),
            addrs: self.addrs.clone(),
            stamp: now.wall,
            seq: 0,
            priority: prio as u16,
            text,
            channel: channel.to_owned(),
        }
    }
}

/// The option that code asks for by name: a name that the table does not have is a fault of the code.
fn known(name: &str) -> KnownOption {
    admin::options::find(name).unwrap_or_else(|| unreachable!("{name} is no option"))
}

/// The quorum as the replicated log knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuorumView {
    /// Our place in the monitor map.
    pub rank: u32,
    /// Who leads; `None` while there is no leader, and then nothing is proposed.
    pub leader: Option<u32>,
    /// Monitors in the monitor map.
    pub monitors: u32,
    /// Ranks in the quorum, ascending.
    pub members: Vec<u32>,
    /// Grows with each election; what `election_epoch` shows.
    pub term: u64,
    /// Monitors whose clocks differ from the leader's.
    pub skews: Vec<ClockSkew>,
    /// How often this process has called for an election.
    pub calls: u64,
}

/// A monitor whose wall clock differs from the leader's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClockSkew {
    pub name: String,
    pub skew_ms: i64,
    pub latency_ms: u64,
}

impl QuorumView {
    pub fn alone() -> Self {
        Self { rank: 0, leader: Some(0), monitors: 1, members: vec![0], term: 1, skews: Vec::new(), calls: 0 }
    }

    /// What the slowest clock of the quorum shows when the leader's shows `wall`.
    pub fn slowest_wall(&self, wall: Utime) -> Utime {
        let behind_ms = self.skews.iter().map(|s| s.skew_ms).min().map_or(0, |ms| ms.min(0).unsigned_abs());
        Utime::from_nanos(wall.as_nanos().saturating_sub(behind_ms.saturating_mul(1_000_000)))
    }

    /// The same of the fastest one. What is to last so long lasts by this clock, for its end is seen by any
    /// of them.
    pub fn fastest_wall(&self, wall: Utime) -> Utime {
        let ahead_ms = self.skews.iter().map(|s| s.skew_ms).max().map_or(0, |ms| ms.max(0).unsigned_abs());
        Utime::from_nanos(wall.as_nanos().saturating_add(ahead_ms.saturating_mul(1_000_000)))
    }

    /// Nobody leads, as far as we know.
    pub fn electing(rank: u32, monitors: u32) -> Self {
        Self { rank, leader: None, monitors, members: Vec::new(), term: 0, skews: Vec::new(), calls: 0 }
    }

    pub fn is_leader(&self) -> bool {
        self.leader == Some(self.rank)
    }

    /// Whether the same monitor leads in both views, or nobody does. A term has one leader; ranks do not say who it is, for
    /// they shift without an election when a monitor of a lower rank is removed.
    pub(crate) fn same_leadership(&self, other: &Self) -> bool {
        self.term == other.term
            && self.is_leader() == other.is_leader()
            && self.leader.is_some() == other.leader.is_some()
    }
}

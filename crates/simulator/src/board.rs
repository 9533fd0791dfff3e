//! What guests know of each other, which no client could: who watches, who has died, what was heard.

use std::collections::{BTreeMap, BTreeSet};

use crate::queue::Time;

/// A watcher that was left out of a notify, unless it turns out that its watch had ended.
#[derive(Debug, Clone)]
pub struct Suspicion {
    pub watcher: u64,
    pub at: Time,
    pub text: String,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Board {
    pub unique: u64,
    /// By global id: since when its watch has stood.
    pub watching: BTreeMap<u64, Time>,
    /// When processes ended.
    pub dead: BTreeMap<u64, Time>,
    /// Which payloads each watcher heard of.
    pub heard: BTreeSet<(u64, u64)>,
    pub suspicions: Vec<Suspicion>,
    /// How often something special happened, for the report.
    pub counts: BTreeMap<&'static str, u64>,
}

impl Board {
    pub fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    pub fn process_ended(&mut self, gid: u64, now: Time) {
        self.dead.insert(gid, now);
        self.watch_ended(gid);
    }

    /// Its watch is not what it was: nothing follows from its having been left out.
    pub fn watch_ended(&mut self, gid: u64) {
        self.watching.remove(&gid);
        self.suspicions.retain(|s| s.watcher != gid);
    }
}

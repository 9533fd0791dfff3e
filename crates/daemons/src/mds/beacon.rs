//! Beacons of a metadata server: what it asks the monitors to be, and its sign of life.
//!
//! Source: src/mds/Beacon.cc.

use std::collections::BTreeMap;
use std::time::Duration;

use maps::{MdsMap, MdsState};
use messages::mds::{MMdsBeacon, MdsHealth};
use types::{CompatSet, Epoch, Fsid, features};

/// Between beacons. Option `mds_beacon_interval`.
const INTERVAL: Duration = Duration::from_secs(4);
/// Without an answer for so long the monitors have given the rank away, or will. Option `mds_beacon_grace`.
const GRACE: Duration = Duration::from_secs(15);
/// Beacons that are remembered until they are answered.
const REMEMBERED: usize = 64;

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Beacon {
    name: String,
    /// The file system that it would rather serve; empty for any.
    fs: String,
    sys_info: BTreeMap<String, String>,
    want: MdsState,
    epoch: Epoch,
    compat: CompatSet,
    seq: u64,
    /// When (monotonic) each was sent that is not answered.
    sent: BTreeMap<u64, Duration>,
    last: Option<Duration>,
    /// When the newest one that was answered was sent; the start at first.
    answered: Duration,
}

impl Beacon {
    pub(super) fn new(name: String, fs: String, sys_info: BTreeMap<String, String>, now: Duration) -> Self {
        Self {
            name,
            fs,
            sys_info,
            want: MdsState::BOOT,
            epoch: Epoch(0),
            compat: CompatSet::all(),
            seq: 0,
            sent: BTreeMap::new(),
            last: None,
            answered: now,
        }
    }

    pub(super) fn wanted(&self) -> MdsState {
        self.want
    }

    /// The next beacon goes at once.
    pub(super) fn want(&mut self, state: MdsState) {
        if self.want != state {
            self.want = state;
            self.last = None;
        }
    }

    pub(super) fn map(&mut self, map: &MdsMap) {
        if map.epoch != self.epoch {
            self.epoch = map.epoch;
            self.compat = CompatSet::all();
            self.compat.merge(&map.compat);
        }
    }

    /// A session with another monitor: it may not have heard the last one.
    pub(super) fn again(&mut self) {
        self.last = None;
    }

    /// The beacon that is due.
    pub(super) fn due(&mut self, now: Duration, gid: u64, fsid: Fsid) -> Option<MMdsBeacon> {
        if self.last.is_some_and(|last| now < last + INTERVAL) {
            return None;
        }
        self.last = Some(now);
        self.seq += 1;
        self.sent.insert(self.seq, now);
        while self.sent.len() > REMEMBERED {
            self.sent.pop_first();
        }
        let is_boot = self.want == MdsState::BOOT;
        Some(MMdsBeacon {
            epoch: self.epoch,
            fsid,
            gid,
            name: self.name.clone(),
            state: self.want.0,
            seq: self.seq,
            compat: self.compat.clone(),
            health: MdsHealth::default(),
            sys_info: if is_boot { self.sys_info.clone() } else { BTreeMap::new() },
            features: features::PACIFIC,
            fs: self.fs.clone(),
        })
    }

    /// The monitors have this one.
    pub(super) fn answered(&mut self, seq: u64) {
        if let Some(at) = self.sent.get(&seq).copied() {
            self.answered = self.answered.max(at);
            self.sent = self.sent.split_off(&(seq + 1));
        }
    }

    /// Whether the newest beacon is answered.
    pub(super) fn is_heard(&self) -> bool {
        self.seq > 0 && !self.sent.contains_key(&self.seq)
    }

    /// Whether the monitors have not answered for so long that another server may have the rank.
    pub(super) fn is_laggy(&self, now: Duration) -> bool {
        now.saturating_sub(self.answered) > GRACE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn beacon() -> Beacon {
        Beacon::new("a".into(), String::new(), [("os".to_owned(), "Linux".to_owned())].into(), secs(0))
    }

    fn secs(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[test]
    fn beacons_go_at_their_interval_and_at_once_when_something_is_wanted() {
        let mut b = beacon();
        let due = |b: &mut Beacon, at| b.due(secs(at), 7, Fsid::default()).map(|m| (m.seq, m.state));
        assert_eq!(due(&mut b, 0), Some((1, MdsState::BOOT.0)));
        assert_eq!((due(&mut b, 3), due(&mut b, 4)), (None, Some((2, MdsState::BOOT.0))));
        b.want(MdsState::STANDBY);
        assert_eq!(due(&mut b, 4), Some((3, MdsState::STANDBY.0)));
        b.want(MdsState::STANDBY);
        assert_eq!(due(&mut b, 5), None);
        b.again();
        assert_eq!(due(&mut b, 5), Some((4, MdsState::STANDBY.0)));
    }

    #[test]
    fn a_server_says_what_it_is_when_it_boots() {
        let mut b = beacon();
        assert_eq!(b.due(secs(0), 7, Fsid::default()).expect("a beacon").sys_info.len(), 1);
        b.want(MdsState::STANDBY);
        assert!(b.due(secs(0), 7, Fsid::default()).expect("a beacon").sys_info.is_empty());
    }

    #[test]
    fn a_server_without_answers_is_laggy() {
        let mut b = beacon();
        for at in [0, 4, 8] {
            b.due(secs(at), 7, Fsid::default());
        }
        assert!(!b.is_heard() && !b.is_laggy(secs(15)) && b.is_laggy(secs(16)));
        b.answered(2);
        assert!(!b.is_heard() && !b.is_laggy(secs(19)) && b.is_laggy(secs(20)));
        b.answered(9);
        b.answered(1);
        assert!(b.is_laggy(secs(20)), "that is no answer to anything");
        b.answered(3);
        assert!(b.is_heard());
    }
}

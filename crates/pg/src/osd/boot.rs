//! Getting into the map: follow it to its newest epoch, ask to be marked up, wait until the map says so.
//!
//! The monitors refuse a store that was never up when the cluster counts on what its OSD held. So an OSD whose number holds
//! nothing yet notes on its disk that it begins, before it asks for the first time (`begins`): when it ends between its
//! first "up" in the map and the storing of that map, it is no stranger at its next start.
//!
//! ```text
//!   Catching ──newest epoch reached──► Booting ──the map says up, at our address──► Up
//!      ▲                                                                            │
//!      └──────────────────── the map says down, or another address ─────────────────┘
//! ```

use std::collections::BTreeMap;
use std::time::Duration;

use messages::osd::{MOsdBoot, MOsdMarkMeDown, OsdSuperblock};
use messages::{Message, PaxosVersion};
use store::Txn;
use types::{Epoch, features};

use super::shared::Done;
use super::{OsdCore, mon};
use crate::io::{LogLevel, Output};

/// How long to wait for an effect before asking again.
const ASK_AGAIN: Duration = Duration::from_secs(3);

const ARCH: &str = if cfg!(target_arch = "aarch64") { "aarch64" } else { "x86_64" };

/// Where the OSD stands on its way into the map.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Boot {
    stage: Stage,
    /// Newest epoch when this process began: the map must say "up" after it.
    since: Epoch,
    /// The newest epoch that the monitors spoke of.
    newest: Option<Epoch>,
    asked: Duration,
    beacon: Duration,
    mon: bool,
    /// The note that this store begins is on its way to the disk.
    beginning: bool,
    /// When the map said that we were down, although we live.
    marked_down: Vec<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Catching,
    Booting,
    Up,
}

impl Boot {
    pub fn new(since: Epoch) -> Self {
        Self {
            stage: Stage::Catching,
            since,
            newest: None,
            asked: Duration::ZERO,
            beacon: Duration::ZERO,
            mon: false,
            beginning: false,
            marked_down: Vec::new(),
        }
    }
    /// Whether a monitor can be reached.
    pub fn has_mon(&self) -> bool {
        self.mon
    }
    pub fn is_up(&self) -> bool {
        self.stage == Stage::Up
    }
}

impl OsdCore {
    pub(super) fn mon_connected(&mut self) {
        self.boot.mon = true;
        self.cluster_log_again();
        self.heartbeats.report_again();
        self.shared.send_mon(mon::subscribe(self.shared.epoch().next()));
        if !self.boot.is_up() {
            self.shared.send_mon(mon::newest_osdmap(1));
            self.boot.stage = Stage::Catching;
        }
        self.boot.asked = self.shared.now.mono;
        let up_thru = self.shared.up_thru_wanted;
        if self.boot.is_up() && up_thru.0 > 0 {
            self.shared.send_mon(mon::alive(self.shared.epoch(), up_thru));
        }
    }

    /// The monitors' newest epoch is known.
    pub(super) fn newest_known(&mut self, newest: Epoch) {
        self.boot.newest = Some(newest);
        self.try_boot();
    }

    /// Asks to be marked up once the newest map is here.
    pub(super) fn try_boot(&mut self) {
        let current = self.shared.epoch();
        let caught_up = self.boot.newest.is_some_and(|n| current >= n) && current.0 > 0;
        if self.boot.stage != Stage::Catching || !caught_up || self.stopping || !self.boot.mon {
            return;
        }
        if let Some(reason) = self.misfit() {
            return self.shared.fail(reason);
        }
        if self.heartbeats.is_searching() || self.begins() {
            return;
        }
        self.boot.stage = Stage::Booting;
        self.boot.asked = self.shared.now.mono;
        let msg = self.boot_message();
        self.shared.send_mon(msg);
    }

    /// Whether the note that this store begins has yet to be durable; writes it when it is needed.
    fn begins(&mut self) -> bool {
        if self.boot.beginning {
            return true;
        }
        // With an earlier life's data missing here, the monitors have to hear that this store was never up.
        let me = self.shared.map.osd(self.shared.whoami).filter(|o| o.exists());
        let wanted = me.is_some_and(|o| o.info.up_from > o.info.lost_at);
        if self.superblock.mounted.0 > 0 || wanted {
            return false;
        }
        self.superblock.mounted = self.shared.epoch();
        let mut txn = Txn::new();
        self.superblock.save(&mut txn);
        self.boot.beginning = true;
        self.shared.submit(txn, Done::Begun);
        true
    }

    /// The note is durable.
    pub(super) fn begun(&mut self) {
        self.boot.beginning = false;
        self.try_boot();
    }

    /// Why the cluster has no use for this disk.
    fn misfit(&self) -> Option<crate::FatalReason> {
        let who = self.shared.whoami;
        if self.shared.map.is_destroyed(who) {
            return Some(crate::FatalReason::NotInMap(who));
        }
        let known = self.shared.map.osd(who).filter(|o| o.exists())?;
        let ours = self.shared.store.identity().osd_uuid;
        let other = !known.uuid.is_zero() && known.uuid != ours;
        other.then_some(crate::FatalReason::OtherDisk { osd: who, ours, theirs: known.uuid })
    }

    /// Counts how often the others thought this process dead; too often means that something is wrong with it, and that it
    /// disturbs the cluster. Source: osd_max_markdown_count, osd_max_markdown_period.
    fn count_markdown(&mut self) {
        let (now, config) = (self.shared.now.mono, &self.shared.config);
        let (most, period) = (config.max_markdown_count, config.max_markdown_period);
        self.boot.marked_down.push(now);
        self.boot.marked_down.retain(|at| *at + period > now);
        let times = self.boot.marked_down.len();
        if times > most {
            let seconds = period.as_secs();
            self.shared.fail(crate::FatalReason::Flapping { osd: self.shared.whoami, times, seconds });
        }
    }

    fn boot_message(&self) -> Message {
        let sb = &self.superblock;
        let identity = self.shared.store.identity();
        MOsdBoot {
            version: PaxosVersion(sb.current_epoch.0.into()),
            superblock: OsdSuperblock {
                cluster_fsid: identity.fsid,
                whoami: sb.whoami.0,
                current_epoch: sb.current_epoch,
                oldest_map: sb.oldest_map,
                newest_map: sb.current_epoch,
                clean_thru: sb.clean_thru,
                mounted: sb.mounted,
                osd_fsid: identity.osd_uuid,
                ..OsdSuperblock::default()
            },
            hb_back_addrs: self.addrs.heartbeat_back.clone(),
            cluster_addrs: self.addrs.cluster.clone(),
            boot_epoch: Epoch(0),
            hb_front_addrs: self.addrs.heartbeat_front.clone(),
            metadata: self.metadata(),
            features: features::PACIFIC,
        }
        .into()
    }

    /// More of what the shell knows of the host, shown from the next boot on.
    pub fn add_host_metadata(&mut self, more: BTreeMap<String, String>) {
        self.addrs.host.extend(more);
    }

    /// What `ceph osd metadata` shows.
    fn metadata(&self) -> BTreeMap<String, String> {
        let size = self.shared.store.statfs().total_bytes;
        let public = self.addrs.public.to_string();
        let cluster = self.addrs.cluster.to_string();
        let pairs = [
            ("front_addr", public),
            ("back_addr", cluster),
            ("hb_front_addr", self.addrs.heartbeat_front.to_string()),
            ("hb_back_addr", self.addrs.heartbeat_back.to_string()),
            ("ceph_version", crate::VERSION_TEXT.to_owned()),
            ("ceph_version_short", crate::VERSION_SHORT.to_owned()),
            ("ceph_release", "pacific".to_owned()),
            ("osd_objectstore", "loligo".to_owned()),
            ("bluestore_bdev_size", size.to_string()),
            ("rotational", "0".to_owned()),
            ("arch", ARCH.to_owned()),
            ("os", "Linux".to_owned()),
        ];
        let mut all = self.addrs.host.clone();
        all.extend(pairs.into_iter().map(|(k, v)| (k.to_owned(), v)));
        all
    }

    /// Compares the map with what we are; PGs begin to work when it says that we are up.
    pub(super) fn check_up(&mut self) {
        let me = self.shared.map.osd(self.shared.whoami);
        let up = me.is_some_and(|o| {
            o.is_up() && o.cluster_addrs == self.addrs.cluster && o.info.up_from > self.boot.since
        });
        self.shared.leases.is_up = up;
        match (self.boot.stage, up) {
            (Stage::Up, true) | (Stage::Catching | Stage::Booting, false) => {}
            (_, true) => {
                self.boot.stage = Stage::Up;
                self.shared.out.push(Output::Up);
                let cx = &mut self.shared;
                for pg in self.pgs.values_mut() {
                    pg.start_interval(cx);
                }
                self.reports.all_due();
            }
            (Stage::Up, false) => {
                let who = self.shared.whoami;
                if !self.stopping {
                    let text = format!("osd.{who} was marked down although it is alive: it boots again");
                    self.shared.cluster_log(LogLevel::Warn, text);
                    self.heartbeats.begin_search();
                    // No PG serves here from now on: those who take over need not wait.
                    let cx = &mut self.shared;
                    let msg = mon::dead(cx.map.fsid, cx.map.epoch, who);
                    cx.send_mon(msg);
                    self.count_markdown();
                }
                self.boot.stage = Stage::Catching;
                self.boot.since = self.shared.epoch();
                self.boot.newest = Some(self.shared.epoch());
            }
        }
        self.try_boot();
    }

    pub(super) fn boot_tick(&mut self) {
        let now = self.shared.now.mono;
        if !self.boot.mon || self.stopping {
            return;
        }
        if !self.boot.is_up() && now.saturating_sub(self.boot.asked) >= ASK_AGAIN {
            self.boot.asked = now;
            self.boot.stage = Stage::Catching;
            self.shared.send_mon(mon::subscribe(self.shared.epoch().next()));
            self.shared.send_mon(mon::newest_osdmap(1));
        }
        if self.boot.is_up() && now.saturating_sub(self.boot.beacon) >= self.shared.config.beacon_interval {
            self.send_beacon();
        }
    }

    /// Tells the monitors that this OSD lives, and from which epoch on it needs maps.
    pub(super) fn send_beacon(&mut self) {
        self.boot.beacon = self.shared.now.mono;
        let epoch = self.shared.epoch();
        let (mut pgs, mut clean) = (Vec::new(), epoch);
        for (id, pg) in self.pgs.iter().filter(|(_, pg)| pg.is_primary(&self.shared)) {
            pgs.push(id.pgid);
            // What is clean needs nothing from before now: who learns later of an interval that began earlier presumes writes in
            // it. Source: pg_stat_t::get_effective_last_epoch_clean.
            if pg.cluster_state(&self.shared) & messages::pg_state::CLEAN == 0 {
                clean = clean.min(pg.info.history.last_epoch_clean);
            }
        }
        let interval = self.shared.config.beacon_interval;
        let msg = messages::osd::MOsdBeacon {
            version: PaxosVersion(epoch.0.into()),
            pgs,
            min_last_epoch_clean: clean,
            report_interval_s: interval.as_secs() as i32,
            ..Default::default()
        };
        self.shared.send_mon(msg);
    }

    /// Tells the monitors before a clean stop, so that clients need not wait for a failure report.
    pub(super) fn mark_me_down(&mut self) {
        let cx = &mut self.shared;
        // Another process may be up under this number, when our disk is a copy of its.
        let ours = |o: &&maps::Osd| o.is_up() && o.cluster_addrs == self.addrs.cluster;
        let Some(me) = cx.map.osd(cx.whoami).filter(ours) else { return };
        let msg = MOsdMarkMeDown {
            version: PaxosVersion(cx.epoch().0.into()),
            fsid: cx.map.fsid,
            target_osd: cx.whoami.0,
            target_addrs: me.client_addrs.clone(),
            epoch: cx.epoch(),
            request_ack: false,
            down_and_dead: true,
        };
        cx.send_mon(msg);
    }
}

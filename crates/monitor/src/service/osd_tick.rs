//! What time does to the OSD map: silent OSDs go down, long-down ones out, blocklist entries end, old epochs are forgotten.
//!
//! Source: OSDMonitor::tick, handle_osd_timeouts, check_failure, get_trim_to.

use std::collections::BTreeSet;
use std::time::Duration;

use types::{EntityAddr, Epoch, Now};

use crate::contain::contained;
use crate::edit;
use crate::health::{MuteUpdate, mute_updates};
use crate::monitor::Monitor;
use crate::proposal::Batch;
use crate::service::merge::shrink_pools;
use crate::service::osd::place;
use crate::service::pool_tick::{grow_pools, prune_purged_snaps};
use crate::service::subscribe::place_of_osd;
use crate::state::{Change, Mute, Priority};

/// A report of a failure that is not repeated for so long does not count any more: OSDs repeat theirs every 5 s, and their
/// taking it back may have been lost.
const REPORT_KEPT: Duration = Duration::from_secs(60);

/// One part of the leader's tick.
type TickStep = fn(&mut Monitor, Now, &mut Batch);

impl Monitor {
    /// Once a second, on the leader.
    pub(crate) fn prepare_tick(&mut self, now: Now, batch: &mut Batch) {
        let since = *self.watch.since.get_or_insert(now.mono);
        if now.mono.saturating_sub(since) < Duration::from_millis(1) {
            // The first tick of a reign also starts the clocks of OSDs that are down already.
            self.osdmap_changed(now, Epoch(0));
        }
        let steps: [(&'static str, TickStep); 15] = [
            ("rotating keys", Self::rotate_keys),
            ("moved monitors", Self::move_monitors),
            ("silent OSDs", Self::osd_timeouts),
            ("failure reports", Self::judge_failures),
            ("OSDs to mark out", Self::mark_outs),
            ("the blocklist", |mon, now, batch| {
                expire_blocklist(mon.settings.quorum.slowest_wall(now.wall), batch)
            }),
            ("quotas", Self::check_quotas),
            ("purged snapshots", |_, _, batch| prune_purged_snaps(batch)),
            ("pools that grow", |_, _, batch| grow_pools(batch)),
            ("pools that shrink", |_, _, batch| shrink_pools(batch)),
            ("managers", Self::tick_mgr),
            ("metadata servers", Self::tick_mds),
            ("old maps", |mon, _, batch| mon.trim_osdmaps(batch)),
            ("mutes", Self::expire_mutes),
            ("health", Self::log_health),
        ];
        for (name, step) in steps {
            self.tick_step(now, batch, name, step);
        }
    }

    /// Runs one part of a tick. If it panics, what it did is undone and the cluster log says so once; other
    /// parts go on.
    fn tick_step(&mut self, now: Now, batch: &mut Batch, name: &'static str, step: TickStep) {
        let before = batch.clone();
        #[cfg(feature = "planted")]
        let fails = self.panics_in == Some(name);
        let done = contained(|| {
            #[cfg(feature = "planted")]
            assert!(!fails, "planted");
            step(self, now, batch);
        });
        if done.is_some() {
            self.failed_steps.remove(name);
            return;
        }
        *batch = before;
        if self.failed_steps.insert(name) {
            let text = format!("a bug keeps the monitor from looking after {name}: its log has the details");
            batch.log(self.settings.log_entry(now, Priority::Error, "cluster", text));
        }
    }

    fn judge_failures(&mut self, now: Now, batch: &mut Batch) {
        let reported: Vec<i32> = self.watch.failures.keys().copied().collect();
        for osd in reported {
            self.judge_failure(now, batch, osd);
        }
    }

    fn rotate_keys(&mut self, now: Now, batch: &mut Batch) {
        let entropy = &mut self.entropy;
        if let Some(keys) = batch.state().auth.rotated(now.wall, &mut |b: &mut [u8]| entropy.fill(b)) {
            batch.change(Change::Rotating(keys));
        }
    }

    /// Below this part of OSDs that are up, none is marked down.
    pub(crate) fn min_up_ratio(&self) -> f64 {
        self.number("mon_osd_min_up_ratio")
    }

    pub(crate) fn number(&self, name: &str) -> f64 {
        self.settings.number(&self.state, name)
    }

    /// OSDs without a beacon for too long.
    fn osd_timeouts(&mut self, now: Now, batch: &mut Batch) {
        let limit = Duration::from_secs_f64(self.number("mon_osd_report_timeout").clamp(1.0, 1e9));
        let map = batch.osdmap();
        let ups: Vec<i32> = (0..map.max_osd()).filter(|id| map.is_up(*id)).collect();
        for id in ups {
            let (seen, every) = *self.watch.seen.entry(id).or_insert((now.mono, Duration::ZERO));
            let silent = now.mono.saturating_sub(seen);
            if silent <= limit.max(every * 2) || !edit::can_mark_down(batch.osdmap(), id, self.min_up_ratio())
            {
                continue;
            }
            edit::mark_down(batch.osdmap_mut(), id);
            let text =
                format!("osd.{id} marked down after no beacon for {:.6} seconds", silent.as_secs_f64());
            batch.log(self.settings.log_entry(now, Priority::Info, "cluster", text));
        }
    }

    /// Marks an OSD down when enough others, from different hosts, have missed it for long enough.
    pub(crate) fn judge_failure(&mut self, now: Now, batch: &mut Batch, target: i32) {
        let map = batch.osdmap();
        let Some(reports) = self.watch.failures.get_mut(&target) else { return };
        // A reporter that goes down with this batch may itself be on the wrong side of a bad network. Its
        // reports are still here because the map that says so is not committed yet.
        reports.retain(|osd, r| map.is_up(*osd) && r.told + REPORT_KEPT >= now.mono);
        let Some(reports) = self.watch.failures.get(&target).filter(|r| !r.is_empty()) else { return };
        if !map.is_up(target) || !edit::can_mark_down(map, target, self.min_up_ratio()) {
            return;
        }
        let level = self.settings.text(&self.state, "mon_osd_reporter_subtree_level");
        let subtree = |osd: &i32| {
            let view = place_of_osd(map, *osd);
            view.location.get(&level).cloned().unwrap_or_else(|| format!("osd.{osd}"))
        };
        let subtrees: BTreeSet<String> = reports.keys().map(subtree).collect();
        // Counted from the last to notice, so that all reporters agree on at least this long.
        let now_ms = now.mono.as_millis() as i64;
        let since = reports.values().map(|r| r.since).max().unwrap_or(now_ms);
        let failed_for = (now_ms - since) as f64 / 1_000.0;
        let base = self.number("osd_heartbeat_grace");
        let reporters: Vec<i32> = reports.keys().copied().collect();
        let grace = base + self.laggy_grace(now, map, target, failed_for, &reporters);
        let needed = self.number("mon_osd_min_down_reporters");
        if failed_for < grace || (subtrees.len() as f64) < needed {
            return;
        }
        let text = format!(
            "osd.{target} failed ({}) ({} reporters from different {level} after {failed_for:.6} >= grace {grace:.6})",
            place(map, target),
            subtrees.len()
        );
        batch.log(self.settings.log_entry(now, Priority::Info, "cluster", text));
        edit::mark_down(batch.osdmap_mut(), target);
    }

    /// OSDs that were wrongly thought dead before get more time, and so do those whose reporters were: they may be on the
    /// wrong side of a bad network. Source: OSDMonitor::check_failure.
    fn laggy_grace(
        &self,
        now: Now,
        map: &maps::OsdMap,
        target: i32,
        failed_for_s: f64,
        reporters: &[i32],
    ) -> f64 {
        if !self.settings.switch(&self.state, "mon_osd_adjust_heartbeat_grace") {
            return 0.0;
        }
        let of_reporter = |osd: &i32| {
            let down = map.osd(*osd).map_or(types::Utime::ZERO, |o| o.xinfo.down_stamp);
            self.laggy(map, *osd, f64::from(now.wall.sec.saturating_sub(down.sec)))
        };
        let peers = reporters.iter().map(of_reporter).sum::<f64>() / reporters.len().max(1) as f64;
        self.laggy(map, target, failed_for_s) + peers
    }

    /// Seconds that an OSD is expected to be away without being dead; older experience counts less.
    fn laggy(&self, map: &maps::OsdMap, osd: i32, elapsed_s: f64) -> f64 {
        let half_life = self.number("mon_osd_laggy_halflife").max(1.0);
        let decay = (elapsed_s * 0.5f64.ln() / half_life).exp();
        map.osd(osd).map_or(0.0, |o| {
            decay * f64::from(o.xinfo.laggy_interval) * f64::from(o.xinfo.laggy_probability.as_f32())
        })
    }

    fn mark_outs(&mut self, now: Now, batch: &mut Batch) {
        let interval = self.number("mon_osd_down_out_interval");
        if interval <= 0.0 {
            return;
        }
        let limit = self.settings.text(&self.state, "mon_osd_down_out_subtree_limit");
        let min_in = self.number("mon_osd_min_in_ratio");
        let waiting: Vec<(i32, Duration)> = self.watch.down_since.iter().map(|(i, t)| (*i, *t)).collect();
        for (id, since) in waiting {
            let down_for = now.mono.saturating_sub(since).as_secs_f64();
            let map = batch.osdmap();
            let concerns = map.exists(id) && map.is_down(id) && map.is_in(id);
            let adjusted = self.settings.switch(&self.state, "mon_osd_adjust_down_out_interval");
            let interval = interval + if adjusted { self.laggy(map, id, down_for) } else { 0.0 };
            if !concerns || down_for < interval || !edit::can_mark_out(map, id, min_in) {
                continue;
            }
            if subtree_is_down(map, id, &limit) {
                // A whole rack: rather a switch than its disks.
                self.watch.down_since.insert(id, now.mono);
                continue;
            }
            edit::mark_out_automatically(batch.osdmap_mut(), id);
            let text = format!("Marking osd.{id} out (has been down for {} seconds)", down_for as u64);
            batch.log(self.settings.log_entry(now, Priority::Info, "cluster", text));
        }
    }

    /// Keeps what is still needed, and at least the usual number of epochs. A PG that is not clean needs to know who had it
    /// since it last was: with a gap there, members that come back could not tell that others have gone on without them. So
    /// nothing is trimmed before every PG has been spoken of, those without a living member included. OSDs rely on it: the
    /// oldest map is one since which every PG was clean, or in the middle of an interval in which it was.
    ///
    /// Source: OSDMonitor::get_min_last_epoch_clean.
    fn trim_osdmaps(&mut self, batch: &mut Batch) {
        let (oldest, newest) = (batch.state().osds.oldest(), batch.state().osds.newest());
        let keep = self.number("mon_min_osdmap_epochs").clamp(1.0, 1e6) as u32;
        let mut to = newest.0.saturating_sub(keep);
        // In steps, so that not every tick makes a proposal.
        if to <= oldest.0 + keep / 5 {
            return;
        }
        let map = batch.osdmap();
        self.watch.clean_epochs.retain(|pg, _| map.pool(pg.pool).is_some_and(|p| pg.seed < p.pg_num));
        let up = map.existing_osds().filter(|(_, o)| o.is_up()).map(|(id, _)| self.watch.epochs.get(&id.0));
        // Of PGs of a pool that does not fit its profile nobody will ever speak.
        let is_served =
            |pg: &types::PgId| map.pool(pg.pool).is_some_and(|p| super::erasure::is_served(map, p));
        let clean = map.pgs().map(|pg| (pg, self.watch.clean_epochs.get(&pg)));
        let clean = clean.filter(|(pg, known)| known.is_some() || is_served(pg)).map(|(_, known)| known);
        for needed in up.chain(clean) {
            match needed {
                Some(epoch) if epoch.0 > 0 => to = to.min(epoch.0),
                // Nothing heard yet: no trimming.
                _ => return,
            }
        }
        if to > oldest.0 + keep / 5 {
            batch.change(Change::TrimOsdMaps(Epoch(to)));
        }
    }

    /// Mutes end with their time, and when what they silence is over or got worse.
    fn expire_mutes(&mut self, now: Now, batch: &mut Batch) {
        for update in mute_updates(batch.state(), &self.settings, now) {
            match update {
                MuteUpdate::Clear { code, reason } => {
                    batch.log(self.settings.log_entry(now, Priority::Info, "cluster", reason));
                    batch.change(Change::Mute(code, None));
                }
                MuteUpdate::Lower { code, count } => {
                    let lowered = batch.state().mutes.get(&code).map(|m| Mute { count, ..m.clone() });
                    batch.change(Change::Mute(code, lowered));
                }
            }
        }
    }
}

/// Removes blocklist entries that have ended. `now` is by the slowest clock of the quorum, because another
/// leader may have set an entry's end by a clock behind ours: a client that is let in too early may write
/// under a lock that another client holds by now.
fn expire_blocklist(now: types::Utime, batch: &mut Batch) {
    let map = batch.osdmap();
    let ended = |list: &std::collections::BTreeMap<EntityAddr, types::Utime>| -> Vec<EntityAddr> {
        list.iter().filter(|(_, until)| **until < now).map(|(addr, _)| *addr).collect()
    };
    let (mut single, ranges) = (ended(&map.blocklist), ended(&map.range_blocklist));
    let fences = &batch.state().fs.fences;
    single.retain(|addr| fences.get(addr).is_none_or(|until| *until < now));
    if single.is_empty() && ranges.is_empty() {
        return;
    }
    let map = batch.osdmap_mut();
    for addr in single {
        map.blocklist.remove(&addr);
    }
    for addr in ranges {
        map.range_blocklist.remove(&addr);
    }
}

/// Whether every OSD below the OSD's ancestor of this type is down. False when it has no such ancestor.
fn subtree_is_down(map: &maps::OsdMap, id: i32, type_name: &str) -> bool {
    let crush = &map.crush;
    let ancestor = crush.type_id(type_name).and_then(|t| crush.parent_of_type(id, t));
    ancestor.is_some_and(|a| crush.leaves(a).into_iter().all(|o| map.is_down(o)))
}

//! How full the store is, told to the monitors as state bits; they turn those into flags that stop clients in time.

use std::time::Duration;

use maps::flags::osd_state;
use messages::PaxosVersion;
use messages::osd::MOsdFull;

use super::OsdCore;
use super::route::deliver_to_pg;
use crate::pg::room::{PLENTY, tight_room};

const FULL_BITS: u32 = osd_state::NEARFULL | osd_state::BACKFILLFULL | osd_state::FULL;
/// How often the same state is told while the map does not show it.
const TELL_AGAIN: Duration = Duration::from_secs(3);

impl OsdCore {
    /// The share of the store that is in use, 0 to 1.
    fn used_ratio(&self) -> f32 {
        let s = self.shared.store.statfs();
        if s.total_bytes == 0 {
            return 0.0;
        }
        s.total_bytes.saturating_sub(s.available_bytes) as f32 / s.total_bytes as f32
    }

    /// Lets requests that found no room in the store try again.
    pub(super) fn retry_full(&mut self) {
        if !std::mem::take(&mut self.shared.space_waited) {
            return;
        }
        for pg in self.pgs.values_mut() {
            for (from, msg) in std::mem::take(&mut pg.held_back) {
                deliver_to_pg(pg, from, msg, &mut self.shared);
            }
            let waiting = std::mem::take(&mut pg.waiting_for_space);
            pg.let_go(waiting, &mut self.shared);
        }
    }

    /// Tells primaries again while there is little room, and once when there is enough.
    fn room_tick(&mut self) {
        let room = tight_room(&self.shared);
        if room.is_none() && !self.shared.told_tight {
            return;
        }
        self.shared.told_tight = room.is_some();
        for pg in self.pgs.values() {
            pg.tell_room(room.unwrap_or(PLENTY), &mut self.shared);
        }
    }

    /// Tells the monitors when the fullness is another than the map says. Source: OSDService::recalc_full_state.
    pub(super) fn full_tick(&mut self) {
        if !self.boot.is_up() || self.stopping {
            return;
        }
        self.room_tick();
        let used = self.used_ratio();
        let cx = &mut self.shared;
        let map = &cx.map;
        // Writes are held back no sooner than the cluster looks full, and it does when they are.
        let failsafe = cx.config.failsafe_full_ratio.max(map.full_ratio);
        let full = if map.full_ratio > 0.0 { map.full_ratio } else { failsafe };
        cx.failsafe_full = used >= failsafe;
        let short = self.pgs.values_mut().filter(|pg| pg.is_primary(cx)).any(|pg| pg.is_short_of_space(cx));
        let wanted = if short || used >= full {
            osd_state::FULL
        } else if map.backfillfull_ratio > 0.0 && used >= map.backfillfull_ratio {
            osd_state::BACKFILLFULL
        } else if map.nearfull_ratio > 0.0 && used >= map.nearfull_ratio {
            osd_state::NEARFULL
        } else {
            0
        };
        let now = cx.now.mono;
        let shown = map.osd(cx.whoami).map_or(0, |o| o.state & FULL_BITS);
        let told = self.told_full.is_some_and(|(s, at)| s == wanted && now.saturating_sub(at) < TELL_AGAIN);
        if shown == wanted || told {
            return;
        }
        self.told_full = Some((wanted, now));
        let version = PaxosVersion(cx.epoch().0.into());
        cx.send_mon(MOsdFull { version, map_epoch: cx.epoch(), state: wanted });
    }
}

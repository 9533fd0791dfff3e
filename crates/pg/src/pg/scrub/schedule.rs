//! When a PG is scrubbed, and how: what somebody asked for goes first, then whoever is longest overdue.
//!
//! Source: PG::sched_scrub, PG::verify_scrub_mode, PgScrubber::reg_next_scrub, OSDService::ScrubJob.

use std::time::Duration;

use maps::flags::map_flags;
use maps::pool_flags;
use types::{SpgId, Utime};

use super::super::{Pg, pg_state};
use crate::io::LogLevel;
use crate::osd::shared::Shared;

/// A scrub that somebody asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Wanted {
    pub deep: bool,
    pub repair: bool,
    /// To see whether a repair has mended everything.
    pub check_repair: bool,
    /// By an operator; else by us, to repair what a light scrub has found.
    pub required: bool,
}

/// What kind of scrub a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Plan {
    pub deep: bool,
    pub repair: bool,
    /// `repair` was not asked for: it is left when there are too many errors.
    pub auto_repair: bool,
    /// When a light scrub finds something, a deep one that repairs follows.
    pub deep_on_error: bool,
    pub check_repair: bool,
    /// Asked for: flags do not stop it.
    pub required: bool,
    /// What it came from, to be wanted again when it comes to nothing.
    pub from: Option<Wanted>,
}

impl Plan {
    /// The word for it in the cluster log.
    pub fn mode(self) -> &'static str {
        match (self.repair, self.deep) {
            (true, _) => "repair",
            (false, true) => "deep-scrub",
            (false, false) => "scrub",
        }
    }
}

/// Something between 0 and 1 that is always the same for the same input, and looks arbitrary.
pub(super) fn fraction(id: SpgId, a: u64, b: u64) -> f64 {
    let mut x = (id.pgid.pool.0 as u64) << 32 | u64::from(id.pgid.seed);
    for part in [a, b] {
        x = (x ^ part).wrapping_add(0x9e37_79b9_7f4a_7c15);
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^= x >> 31;
    }
    (x >> 11) as f64 / (1u64 << 53) as f64
}

/// A pool's own setting, else the OSD's.
fn pool_seconds(pool: &maps::Pool, name: &str, otherwise: Duration) -> Duration {
    match pool.opts.get(name) {
        Some(maps::OptValue::Double(s)) if *s > 0.0 => Duration::try_from_secs_f64(*s).unwrap_or(otherwise),
        _ => otherwise,
    }
}

impl Pg {
    /// An operator, or the manager for him, wants a scrub. Source: PgScrubber::scrub_requested.
    pub fn scrub_wanted(&mut self, deep: bool, repair: bool) {
        self.scrub.wanted =
            Some(Wanted { deep: deep || repair, repair, check_repair: false, required: true });
        self.scrub.not_before = Duration::ZERO;
    }

    /// When the next scrub is due; the least time when somebody has asked for one. `None` when nothing can be scrubbed
    /// here now.
    pub fn scrub_due(&self, cx: &Shared) -> Option<Utime> {
        let whole = pg_state::ACTIVE | pg_state::CLEAN;
        let can = self.scrub.run.is_none()
            && self.scrub.repairs.is_empty()
            && self.cluster_state(cx) & whole == whole
            && cx.now.mono >= self.scrub.not_before;
        if !can {
            return None;
        }
        if self.scrub.wanted.is_some() {
            return Some(Utime::default());
        }
        let pool = cx.map.pool(self.id.pgid.pool)?;
        let every = pool_seconds(pool, "scrub_min_interval", cx.config.scrub_min_interval);
        let last = self.info.history.scrub.last_stamp;
        let spread = f64::from(cx.config.scrub_randomize_ratio).clamp(0.0, 100.0);
        let late = every.mul_f64(spread * fraction(self.id, u64::from(last.sec), 1));
        Some(last.plus(every).plus(late))
    }

    /// Whether it has waited so long that the time of day does not matter any more.
    pub fn scrub_overdue(&self, cx: &Shared) -> bool {
        let Some(pool) = cx.map.pool(self.id.pgid.pool) else { return false };
        let within = pool_seconds(pool, "scrub_max_interval", cx.config.scrub_max_interval);
        !within.is_zero() && self.info.history.scrub.last_stamp.plus(within) < cx.now.wall
    }

    /// Whether flags of the cluster and of the pool let a scrub go on.
    pub fn scrub_allowed(&self, plan: Plan, cx: &Shared) -> bool {
        let (light, deep) = self.scrub_flags(cx);
        plan.required || if plan.deep { deep } else { light }
    }

    /// Whether light and deep scrubs are allowed.
    fn scrub_flags(&self, cx: &Shared) -> (bool, bool) {
        let pool = cx.map.pool(self.id.pgid.pool);
        let set =
            |global: u32, own: u64| cx.map.test_flag(global) || pool.is_some_and(|p| p.flags & own != 0);
        (
            !set(map_flags::NOSCRUB, pool_flags::NOSCRUB),
            !set(map_flags::NODEEP_SCRUB, pool_flags::NODEEP_SCRUB),
        )
    }

    /// What to do now that a scrub is due; `None` when flags forbid it.
    pub fn scrub_plan(&mut self, cx: &mut Shared) -> Option<Plan> {
        let deep_errors = self.info.history.scrub.deep_errors > 0;
        if let Some(w) = self.scrub.wanted {
            if w.required {
                self.scrub.wanted = None;
                if !w.deep && deep_errors {
                    let text = "Regular scrub request, deep-scrub details will be lost";
                    cx.cluster_log(LogLevel::Error, format!("osd.{} pg {} {text}", cx.whoami, self.id.pgid));
                }
                return Some(Plan {
                    deep: w.deep,
                    repair: w.repair,
                    check_repair: w.check_repair,
                    required: true,
                    from: Some(w),
                    ..Plan::default()
                });
            }
        }
        let (light, deep) = self.scrub_flags(cx);
        let auto = self.scrub.wanted.is_some();
        if !deep && deep_errors {
            // Source: PG::verify_periodic_scrub_mode; there each attempt says so, here a pause follows.
            let text = "Regular scrub skipped due to deep-scrub errors and nodeep-scrub set";
            cx.cluster_log(LogLevel::Error, format!("osd.{} pg {} {text}", cx.whoami, self.id.pgid));
            self.scrub.not_before = cx.now.mono + Duration::from_secs(3600);
            return None;
        }
        let now_deep = deep && (auto || self.deep_is_due(light, deep_errors, cx));
        if !light && !now_deep {
            return None;
        }
        let from = self.scrub.wanted.take();
        let repair = cx.config.scrub_auto_repair && deep;
        Some(Plan {
            deep: now_deep,
            repair: repair && now_deep,
            auto_repair: repair && now_deep,
            deep_on_error: repair && !now_deep,
            from,
            ..Plan::default()
        })
    }

    /// Source: PG::is_time_for_deep.
    fn deep_is_due(&self, light: bool, deep_errors: bool, cx: &mut Shared) -> bool {
        let Some(pool) = cx.map.pool(self.id.pgid.pool) else { return false };
        let every = pool_seconds(pool, "deep_scrub_interval", cx.config.deep_scrub_interval);
        let h = &self.info.history.scrub;
        if cx.now.wall >= h.last_deep_stamp.plus(every) {
            return true;
        }
        if deep_errors {
            let text = "Deep scrub errors, upgrading scrub to deep-scrub";
            cx.cluster_log(LogLevel::Info, format!("osd.{} pg {} {text}", cx.whoami, self.id.pgid));
            return true;
        }
        let share = f64::from(cx.config.deep_scrub_randomize_ratio);
        light && fraction(self.id, u64::from(h.last_stamp.sec), 2) < share
    }
}

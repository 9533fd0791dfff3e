//! The state that the cluster sees: bits and their text. Source: PG_STATE_* in src/osd/osd_types.h.

/// Bits of a PG's state.
pub mod pg_state {
    pub const CREATING: u64 = 1 << 0;
    pub const ACTIVE: u64 = 1 << 1;
    pub const CLEAN: u64 = 1 << 2;
    pub const DOWN: u64 = 1 << 4;
    pub const RECOVERY_UNFOUND: u64 = 1 << 5;
    pub const BACKFILL_UNFOUND: u64 = 1 << 6;
    pub const PREMERGE: u64 = 1 << 7;
    pub const SCRUBBING: u64 = 1 << 8;
    pub const DEGRADED: u64 = 1 << 10;
    pub const INCONSISTENT: u64 = 1 << 11;
    pub const PEERING: u64 = 1 << 12;
    pub const REPAIR: u64 = 1 << 13;
    pub const RECOVERING: u64 = 1 << 14;
    pub const BACKFILL_WAIT: u64 = 1 << 15;
    pub const INCOMPLETE: u64 = 1 << 16;
    pub const STALE: u64 = 1 << 17;
    pub const REMAPPED: u64 = 1 << 18;
    pub const DEEP_SCRUB: u64 = 1 << 19;
    pub const BACKFILLING: u64 = 1 << 20;
    pub const BACKFILL_TOOFULL: u64 = 1 << 21;
    pub const RECOVERY_WAIT: u64 = 1 << 22;
    pub const UNDERSIZED: u64 = 1 << 23;
    pub const ACTIVATING: u64 = 1 << 24;
    pub const PEERED: u64 = 1 << 25;
    pub const SNAPTRIM: u64 = 1 << 26;
    pub const SNAPTRIM_WAIT: u64 = 1 << 27;
    pub const RECOVERY_TOOFULL: u64 = 1 << 28;
    pub const SNAPTRIM_ERROR: u64 = 1 << 29;
    pub const FORCED_RECOVERY: u64 = 1 << 30;
    pub const FORCED_BACKFILL: u64 = 1 << 31;
    pub const FAILED_REPAIR: u64 = 1 << 32;
    pub const LAGGY: u64 = 1 << 33;
    pub const WAIT: u64 = 1 << 34;

    /// Names in the order in which Ceph joins them. Source: pg_state_string in src/osd/osd_types.cc.
    const NAMES: [(u64, &str); 32] = [
        (STALE, "stale"),
        (CREATING, "creating"),
        (ACTIVE, "active"),
        (ACTIVATING, "activating"),
        (CLEAN, "clean"),
        (RECOVERY_WAIT, "recovery_wait"),
        (RECOVERY_TOOFULL, "recovery_toofull"),
        (RECOVERING, "recovering"),
        (FORCED_RECOVERY, "forced_recovery"),
        (DOWN, "down"),
        (RECOVERY_UNFOUND, "recovery_unfound"),
        (BACKFILL_UNFOUND, "backfill_unfound"),
        (UNDERSIZED, "undersized"),
        (DEGRADED, "degraded"),
        (REMAPPED, "remapped"),
        (PREMERGE, "premerge"),
        (SCRUBBING, "scrubbing"),
        (DEEP_SCRUB, "deep"),
        (INCONSISTENT, "inconsistent"),
        (PEERING, "peering"),
        (REPAIR, "repair"),
        (BACKFILL_WAIT, "backfill_wait"),
        (BACKFILLING, "backfilling"),
        (FORCED_BACKFILL, "forced_backfill"),
        (BACKFILL_TOOFULL, "backfill_toofull"),
        (INCOMPLETE, "incomplete"),
        (PEERED, "peered"),
        (SNAPTRIM, "snaptrim"),
        (SNAPTRIM_WAIT, "snaptrim_wait"),
        (SNAPTRIM_ERROR, "snaptrim_error"),
        (FAILED_REPAIR, "failed_repair"),
        (LAGGY, "laggy"),
    ];

    /// The state as `ceph pg` prints it; `unknown` for none.
    pub fn to_text(state: u64) -> String {
        let names: Vec<&str> =
            NAMES.iter().filter(|(bit, _)| state & bit != 0).map(|(_, name)| *name).collect();
        if names.is_empty() { "unknown".into() } else { names.join("+") }
    }
}

#[cfg(test)]
mod tests {
    use super::pg_state::*;

    #[test]
    fn texts_are_cephs() {
        assert_eq!(to_text(ACTIVE | CLEAN), "active+clean");
        assert_eq!(to_text(DEGRADED | UNDERSIZED | ACTIVE), "active+undersized+degraded");
        assert_eq!(to_text(PEERING | REMAPPED), "remapped+peering");
        assert_eq!(to_text(0), "unknown");
    }
}

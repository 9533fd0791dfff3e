//! The states of a placement group: bits, their names, and how Ceph joins them.
//!
//! Source: PG_STATE_* in src/osd/osd_types.h, pg_state_string and pg_string_state in src/osd/osd_types.cc.

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

/// Names in the order in which Ceph prints them. Source: pg_state_string in src/osd/osd_types.cc.
pub const NAMES: [(u64, &str); 33] = [
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
    (WAIT, "wait"),
];

/// `active+clean`; `unknown` for no bits at all.
pub fn to_text(bits: u64) -> String {
    let names: Vec<&str> = NAMES.iter().filter(|(b, _)| bits & b != 0).map(|(_, n)| *n).collect();
    if names.is_empty() { "unknown".to_owned() } else { names.join("+") }
}

/// The bit of one name; 0 for `unknown`.
pub fn by_name(name: &str) -> Option<u64> {
    if name == "unknown" {
        return Some(0);
    }
    NAMES.iter().find(|(_, n)| *n == name).map(|(bit, _)| *bit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cephs() {
        assert_eq!(to_text(ACTIVE | CLEAN), "active+clean");
        assert_eq!(to_text(DEGRADED | UNDERSIZED | ACTIVE), "active+undersized+degraded");
        assert_eq!(to_text(PEERING | REMAPPED), "remapped+peering");
        assert_eq!(to_text(0), "unknown");
        // What 16.2.15 shows for a PG that lost a copy.
        assert_eq!(to_text(1 << 1 | 1 << 23 | 1 << 10 | 1 << 12), "active+undersized+degraded+peering");
        assert_eq!(to_text(LAGGY | WAIT), "laggy+wait");
        // As `ceph pg ls x bogus` of 16.2.15 lists them.
        assert_eq!(to_text(0xffff_ffff).split('+').count(), 30);
    }

    #[test]
    fn each_name_has_its_own_bit() {
        let mut seen = 0;
        for (bit, name) in NAMES {
            assert_eq!((bit.count_ones(), seen & bit, by_name(name)), (1, 0, Some(bit)), "{name}");
            seen |= bit;
        }
        assert_eq!((by_name("unknown"), by_name("bogus")), (Some(0), None));
    }
}

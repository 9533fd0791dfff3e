//! States of PGs by name. Source: PG_STATE_* in src/osd/osd_types.h, pg_state_string in src/osd/osd_types.cc.

/// The PG serves IO.
pub const ACTIVE: u64 = 1 << 1;

/// Bit numbers and names, in the order in which texts join them.
const NAMES: [(u32, &str); 33] = [
    (17, "stale"),
    (0, "creating"),
    (1, "active"),
    (24, "activating"),
    (2, "clean"),
    (22, "recovery_wait"),
    (28, "recovery_toofull"),
    (14, "recovering"),
    (30, "forced_recovery"),
    (4, "down"),
    (5, "recovery_unfound"),
    (6, "backfill_unfound"),
    (23, "undersized"),
    (10, "degraded"),
    (18, "remapped"),
    (7, "premerge"),
    (8, "scrubbing"),
    (19, "deep"),
    (11, "inconsistent"),
    (12, "peering"),
    (13, "repair"),
    (15, "backfill_wait"),
    (20, "backfilling"),
    (31, "forced_backfill"),
    (21, "backfill_toofull"),
    (16, "incomplete"),
    (25, "peered"),
    (26, "snaptrim"),
    (27, "snaptrim_wait"),
    (29, "snaptrim_error"),
    (32, "failed_repair"),
    (33, "laggy"),
    (34, "wait"),
];

/// `active+clean`; `unknown` without any known bit.
pub fn to_text(state: u64) -> String {
    let set = NAMES.iter().filter(|(bit, _)| state & (1 << bit) != 0);
    let names: Vec<&str> = set.map(|(_, name)| *name).collect();
    if names.is_empty() { "unknown".to_owned() } else { names.join("+") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_joined_in_cephs_order() {
        assert_eq!(to_text(0), "unknown");
        assert_eq!(to_text(0b110), "active+clean");
        // What 16.2.15 shows for a PG that lost a copy.
        assert_eq!(to_text(1 << 1 | 1 << 23 | 1 << 10 | 1 << 12), "active+undersized+degraded+peering");
    }
}

//! Bits of the OSD map: cluster-wide flags and states of single OSDs, with their names.

/// Cluster-wide flags. Source: CEPH_OSDMAP_* in src/include/rados.h.
pub mod map_flags {
    pub const NEARFULL: u32 = 1 << 0;
    pub const FULL: u32 = 1 << 1;
    pub const PAUSERD: u32 = 1 << 2;
    pub const PAUSEWR: u32 = 1 << 3;
    pub const PAUSEREC: u32 = 1 << 4;
    pub const NOUP: u32 = 1 << 5;
    pub const NODOWN: u32 = 1 << 6;
    pub const NOOUT: u32 = 1 << 7;
    pub const NOIN: u32 = 1 << 8;
    pub const NOBACKFILL: u32 = 1 << 9;
    pub const NORECOVER: u32 = 1 << 10;
    pub const NOSCRUB: u32 = 1 << 11;
    pub const NODEEP_SCRUB: u32 = 1 << 12;
    pub const NOTIERAGENT: u32 = 1 << 13;
    pub const NOREBALANCE: u32 = 1 << 14;
    pub const SORTBITWISE: u32 = 1 << 15;
    pub const REQUIRE_JEWEL: u32 = 1 << 16;
    pub const REQUIRE_KRAKEN: u32 = 1 << 17;
    pub const REQUIRE_LUMINOUS: u32 = 1 << 18;
    pub const RECOVERY_DELETES: u32 = 1 << 19;
    pub const PURGED_SNAPDIRS: u32 = 1 << 20;
    pub const NOSNAPTRIM: u32 = 1 << 21;
    pub const PGLOG_HARDLIMIT: u32 = 1 << 22;

    /// What maps said before they named the required release.
    pub const LEGACY_REQUIRE: u32 = REQUIRE_JEWEL | REQUIRE_KRAKEN | REQUIRE_LUMINOUS;
    /// Flags of every modern cluster, left out of short status lines.
    pub const SEMIHIDDEN: u32 =
        LEGACY_REQUIRE | RECOVERY_DELETES | SORTBITWISE | PURGED_SNAPDIRS | PGLOG_HARDLIMIT;
    /// What a new cluster of this release starts with.
    pub const INITIAL: u32 = SORTBITWISE | RECOVERY_DELETES | PURGED_SNAPDIRS | PGLOG_HARDLIMIT;

    /// Names in the order that texts list them, which is not the order of the bits; other bits have no name.
    const NAMES: [(u32, &str); 21] = [
        (PAUSERD, "pauserd"),
        (PAUSEWR, "pausewr"),
        (PAUSEREC, "pauserec"),
        (NOUP, "noup"),
        (NODOWN, "nodown"),
        (NOOUT, "noout"),
        (NOIN, "noin"),
        (NOBACKFILL, "nobackfill"),
        (NOREBALANCE, "norebalance"),
        (NORECOVER, "norecover"),
        (NOSCRUB, "noscrub"),
        (NODEEP_SCRUB, "nodeep-scrub"),
        (NOTIERAGENT, "notieragent"),
        (NOSNAPTRIM, "nosnaptrim"),
        (SORTBITWISE, "sortbitwise"),
        (REQUIRE_JEWEL, "require_jewel_osds"),
        (REQUIRE_KRAKEN, "require_kraken_osds"),
        (REQUIRE_LUMINOUS, "require_luminous_osds"),
        (RECOVERY_DELETES, "recovery_deletes"),
        (PURGED_SNAPDIRS, "purged_snapdirs"),
        (PGLOG_HARDLIMIT, "pglog_hardlimit"),
    ];

    /// Names of the set flags, comma separated. Source: OSDMap::get_flag_string.
    pub fn to_text(flags: u32) -> String {
        let set = NAMES.iter().filter(|(bit, _)| flags & bit != 0);
        let names: Vec<&str> = set.map(|(_, name)| *name).collect();
        names.join(",")
    }

    /// The bit called `name`.
    pub fn by_name(name: &str) -> Option<u32> {
        NAMES.iter().find(|(_, n)| *n == name).map(|(bit, _)| *bit)
    }

    /// Names of the set flags in alphabetical order; a set bit without a name adds one empty name.
    pub fn name_set(flags: u32) -> std::collections::BTreeSet<String> {
        let bits = (0..u32::BITS).map(|i| 1u32 << i).filter(|bit| flags & bit != 0);
        bits.map(to_text).collect()
    }
}

/// States of an OSD. Source: CEPH_OSD_* in src/include/rados.h.
pub mod osd_state {
    pub const EXISTS: u32 = 1 << 0;
    pub const UP: u32 = 1 << 1;
    /// Marked out automatically, not by an operator.
    pub const AUTOOUT: u32 = 1 << 2;
    /// Never marked in.
    pub const NEW: u32 = 1 << 3;
    pub const FULL: u32 = 1 << 4;
    pub const NEARFULL: u32 = 1 << 5;
    pub const BACKFILLFULL: u32 = 1 << 6;
    pub const DESTROYED: u32 = 1 << 7;
    pub const NOUP: u32 = 1 << 8;
    pub const NODOWN: u32 = 1 << 9;
    pub const NOIN: u32 = 1 << 10;
    pub const NOOUT: u32 = 1 << 11;
    /// Stopped by an operator.
    pub const STOP: u32 = 1 << 12;

    const NAMES: [&str; 13] = [
        "exists",
        "up",
        "autoout",
        "new",
        "full",
        "nearfull",
        "backfillfull",
        "destroyed",
        "noup",
        "nodown",
        "noin",
        "noout",
        "stop",
    ];

    /// Names of the set bits in alphabetical order; unknown bits are `???`. Source: OSDMap::calc_state_set.
    pub fn name_set(state: u32) -> std::collections::BTreeSet<&'static str> {
        let bits = (0..32usize).filter(|i| state & (1 << i) != 0);
        bits.map(|i| NAMES.get(i).copied().unwrap_or("???")).collect()
    }

    /// The per-OSD, per-host and per-class flags (`noup`, `nodown`, `noin`, `noout`) by name.
    pub fn flag_by_name(name: &str) -> Option<u32> {
        [NOUP, NODOWN, NOIN, NOOUT].into_iter().find(|bit| name_set(*bit).contains(name))
    }
}

/// Weight (16.16) of an OSD that takes its full share.
pub const WEIGHT_IN: u32 = 0x1_0000;
/// Weight of an OSD that takes no data.
pub const WEIGHT_OUT: u32 = 0;
/// Primary affinity (16.16) that never refuses to be primary.
pub const MAX_PRIMARY_AFFINITY: u32 = 0x1_0000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flag_texts_are_cephs() {
        let text = "sortbitwise,recovery_deletes,purged_snapdirs,pglog_hardlimit";
        assert_eq!(map_flags::to_text(map_flags::INITIAL), text);
        assert_eq!(map_flags::INITIAL, 5_799_936, "flags_num of a new 16.2.15 cluster");
        assert_eq!(map_flags::to_text(0), "");
        assert_eq!(map_flags::by_name("noout"), Some(map_flags::NOOUT));
        assert_eq!(osd_state::name_set(0x1003).into_iter().collect::<Vec<_>>(), ["exists", "stop", "up"]);
        assert_eq!(osd_state::flag_by_name("noin"), Some(osd_state::NOIN));
        assert_eq!(osd_state::flag_by_name("up"), None);
    }
}

//! Which connection modes may be used between whom: the six options `ms_*_mode`.
//!
//! Source: AuthRegistry::get_supported_methods and _parse_mode_list in src/auth/AuthRegistry.cc.

use types::EntityType;

use crate::none::METHOD_NONE;

/// `CEPH_CON_MODE_CRC`.
pub const MODE_CRC: u32 = 1;
/// `CEPH_CON_MODE_SECURE`.
pub const MODE_SECURE: u32 = 2;

/// The options and their defaults.
pub const MODE_OPTIONS: [(&str, &str); 6] = [
    ("ms_cluster_mode", "crc secure"),
    ("ms_service_mode", "crc secure"),
    ("ms_client_mode", "crc secure"),
    ("ms_mon_cluster_mode", "secure crc"),
    ("ms_mon_service_mode", "secure crc"),
    ("ms_mon_client_mode", "secure crc"),
];

/// The option that holds at `me` for a connection with `peer`, whichever of them connects.
pub fn mode_option(me: EntityType, peer: EntityType) -> &'static str {
    use EntityType::{Mds, Mgr, Mon, Osd};
    match (me, peer) {
        (Mon | Mgr | Osd | Mds, Mon | Mgr) => "ms_mon_cluster_mode",
        (Mon | Mgr, _) => "ms_mon_service_mode",
        (Osd | Mds, Osd | Mds) => "ms_cluster_mode",
        (Osd | Mds, _) => "ms_service_mode",
        (_, Mon | Mgr) => "ms_mon_client_mode",
        _ => "ms_client_mode",
    }
}

/// An option's default.
pub fn usual_modes(option: &str) -> &'static str {
    MODE_OPTIONS.iter().find(|(name, _)| *name == option).map_or("secure", |(_, usual)| usual)
}

/// The modes that an option's value names, the preferred one first. The error is the word that names no mode.
pub fn parse_modes(text: &str) -> Result<Vec<u32>, String> {
    let words = text.split([' ', ',', ';', '\t']).filter(|w| !w.is_empty());
    words
        .map(|word| match word {
            "crc" => Ok(MODE_CRC),
            "secure" => Ok(MODE_SECURE),
            other => Err(other.to_owned()),
        })
        .collect()
}

/// What `text` allows with an authentication method. A value that names no mode, or a wrong one, allows
/// secure mode only: an operator's typing error must not send in the clear what was to be encrypted. Without
/// a key there is only crc.
pub fn modes_allowed(text: &str, method: u32) -> Vec<u32> {
    let mut modes = parse_modes(text).unwrap_or_default();
    if modes.is_empty() {
        modes.push(MODE_SECURE);
    }
    modes.retain(|m| method != METHOD_NONE || *m == MODE_CRC);
    modes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_option_follows_from_both_ends() {
        use EntityType::{Client, Mds, Mgr, Mon, Osd};
        for (me, peer, option) in [
            (Osd, Osd, "ms_cluster_mode"),
            (Osd, Client, "ms_service_mode"),
            (Client, Osd, "ms_client_mode"),
            (Client, Mds, "ms_client_mode"),
            (Mon, Mon, "ms_mon_cluster_mode"),
            (Osd, Mgr, "ms_mon_cluster_mode"),
            (Mon, Osd, "ms_mon_service_mode"),
            (Mgr, Client, "ms_mon_service_mode"),
            (Client, Mgr, "ms_mon_client_mode"),
        ] {
            assert_eq!(mode_option(me, peer), option, "{me:?} {peer:?}");
        }
        assert_eq!(usual_modes("ms_mon_client_mode"), "secure crc");
    }

    #[test]
    fn what_is_no_mode_allows_no_crc() {
        assert_eq!(modes_allowed("crc secure", crate::METHOD_CEPHX), [MODE_CRC, MODE_SECURE]);
        assert_eq!(modes_allowed("secure", crate::METHOD_CEPHX), [MODE_SECURE]);
        for wrong in ["", "secrue", "crc secrue"] {
            assert_eq!(modes_allowed(wrong, crate::METHOD_CEPHX), [MODE_SECURE], "{wrong:?}");
        }
        assert_eq!(modes_allowed("secure crc", METHOD_NONE), [MODE_CRC]);
        assert!(modes_allowed("secure", METHOD_NONE).is_empty());
    }
}

//! Feature bits of sessions. We speak to Luminous and newer; most bits are then always on.
//!
//! Source: src/include/ceph_features.h.

/// What a Pacific (16.2) daemon and client offer: seen in `ceph features` of the real release.
pub const PACIFIC: u64 = 0x3f01_cfbd_fffd_ffff;

/// Clients that keep requests back when they are told to. Source: CEPH_FEATURE_RADOS_BACKOFF, its bit and its incarnation's.
pub const RADOS_BACKOFF: u64 = 1 << 21 | 1 << 57;

/// The msgr2 features that a peer's banner states: revision 1 is msgr2.1. Source:
/// CEPH_MSGR2_FEATURE_REVISION_1 in src/include/msgr.h.
pub const MSGR2_REVISION_1: u64 = 1;

/// Names of releases by number, as `require_osd_release` holds them. Source: src/common/ceph_releases.h.
pub const RELEASES: [(u8, &str); 6] =
    [(12, "luminous"), (13, "mimic"), (14, "nautilus"), (15, "octopus"), (16, "pacific"), (17, "quincy")];

/// The release we present ourselves as.
pub const OUR_RELEASE: u8 = 16;

//! What a directory holds, counted: directly and with all that is below it.
//!
//! Source: frag_info_t, nest_info_t, fnode_t in src/mds/mdstypes.h and mdstypes.cc.

use codec::{Decode, DecodeError, Encode, Reader, Writer};
use types::{SnapId, Utime};

use super::wire::stored;

/// What is directly in a directory or in one of its fragments.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FragInfo {
    pub version: u64,
    pub mtime: Utime,
    pub files: i64,
    pub subdirs: i64,
    pub change_attr: u64,
}
stored!(FragInfo(3, 2, 2) { version, mtime, files, subdirs } since 3 { change_attr });

/// What is in a directory or a fragment, and below it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NestInfo {
    pub version: u64,
    /// The last change of anything below.
    pub rctime: Utime,
    pub rbytes: i64,
    pub rfiles: i64,
    pub rsubdirs: i64,
    pub rsnaps: i64,
}

impl Encode for NestInfo {
    fn encode(&self, w: &mut Writer) {
        w.envelope(3, 2, |w| {
            w.u64(self.version);
            [self.rbytes, self.rfiles, self.rsubdirs].into_iter().for_each(|n| w.i64(n));
            // Anchors, of which there are none any more.
            w.i64(0);
            w.i64(self.rsnaps);
            self.rctime.encode(w);
        });
    }
}
impl Decode for NestInfo {
    const MIN_SIZE: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope_since("nest_info_t", 3, 2, |r, _| {
            let mut info = Self {
                version: r.u64()?,
                rbytes: r.i64()?,
                rfiles: r.i64()?,
                rsubdirs: r.i64()?,
                ..Self::default()
            };
            r.skip(8)?;
            info.rsnaps = r.i64()?;
            info.rctime = Utime::decode(r)?;
            Ok(info)
        })
    }
}

/// What a fragment says of itself: the header of its omap.
///
/// `accounted` is what the directory's inode has of it already.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fnode {
    pub version: u64,
    /// No name is left here that only snapshots removed up to this one had.
    pub snap_purged_through: SnapId,
    pub fragstat: FragInfo,
    pub accounted_fragstat: FragInfo,
    pub rstat: NestInfo,
    pub accounted_rstat: NestInfo,
    /// What a scrub found wrong. Source: DAMAGE_*.
    pub damage_flags: u32,
    pub recursive_scrub_version: u64,
    pub recursive_scrub_stamp: Utime,
    pub localized_scrub_version: u64,
    pub localized_scrub_stamp: Utime,
}
stored!(Fnode(4, 3, 2) {
    version, snap_purged_through, fragstat, accounted_fragstat, rstat, accounted_rstat
} since 3 { damage_flags } since 4 {
    recursive_scrub_version, recursive_scrub_stamp, localized_scrub_version, localized_scrub_stamp
});

impl Default for Fnode {
    fn default() -> Self {
        Self {
            version: 0,
            snap_purged_through: SnapId(0),
            fragstat: FragInfo::default(),
            accounted_fragstat: FragInfo::default(),
            rstat: NestInfo::default(),
            accounted_rstat: NestInfo::default(),
            damage_flags: 0,
            recursive_scrub_version: 0,
            recursive_scrub_stamp: Utime::ZERO,
            localized_scrub_version: 0,
            localized_scrub_stamp: Utime::ZERO,
        }
    }
}

//! What an OSD says of its store and its history: parts of its boot message and of PG creation.

use std::collections::BTreeMap;

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer, wire_plain, wire_struct};
use types::{Epoch, Eversion, Fsid, Utime};

/// Numbered features with their names; bit 0 is never on the wire. Source: CompatSet::FeatureSet in src/include/CompatSet.h.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FeatureSet {
    pub mask: u64,
    pub names: BTreeMap<u64, String>,
}
wire_plain!(FeatureSet { mask, names });

/// What a reader of a store must know (`incompat`), to write (`ro_compat`), or may ignore.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CompatSet {
    pub compat: FeatureSet,
    pub ro_compat: FeatureSet,
    pub incompat: FeatureSet,
}
wire_plain!(CompatSet { compat, ro_compat, incompat });

/// Source: OSDSuperblock in src/osd/osd_types.cc (version 10 in 16.2.15).
#[derive(Debug, Clone, PartialEq, Default)]
pub struct OsdSuperblock {
    pub cluster_fsid: Fsid,
    pub whoami: i32,
    pub current_epoch: Epoch,
    pub oldest_map: Epoch,
    pub newest_map: Epoch,
    pub weight: f64,
    pub compat: CompatSet,
    pub clean_thru: Epoch,
    /// The last epoch that the store was mounted in.
    pub mounted: Epoch,
    pub osd_fsid: Fsid,
    pub purged_snaps_last: Epoch,
    pub last_purged_snaps_scrub: Utime,
    /// Maps before this are not needed by any OSD.
    pub trim_lower_bound: Epoch,
}

impl Encode for OsdSuperblock {
    fn encode(&self, w: &mut Writer) {
        w.envelope(10, 5, |w| {
            self.cluster_fsid.encode(w);
            w.i32(self.whoami);
            self.current_epoch.encode(w);
            self.oldest_map.encode(w);
            self.newest_map.encode(w);
            self.weight.encode(w);
            self.compat.encode(w);
            self.clean_thru.encode(w);
            self.mounted.encode(w);
            self.osd_fsid.encode(w);
            // When the map or a pool was last marked full: not kept any more.
            w.u32(0);
            w.u32(0);
            self.purged_snaps_last.encode(w);
            self.last_purged_snaps_scrub.encode(w);
            self.trim_lower_bound.encode(w);
        });
    }
}
impl Decode for OsdSuperblock {
    const MIN_SIZE: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("OSDSuperblock", 10, |r, env| {
            if env.version < 7 {
                return Err(DecodeError::Invalid {
                    what: "OSDSuperblock version",
                    value: env.version.into(),
                });
            }
            let mut s = Self {
                cluster_fsid: Decode::decode(r)?,
                whoami: r.i32()?,
                current_epoch: Decode::decode(r)?,
                oldest_map: Decode::decode(r)?,
                newest_map: Decode::decode(r)?,
                weight: Decode::decode(r)?,
                compat: Decode::decode(r)?,
                clean_thru: Decode::decode(r)?,
                mounted: Decode::decode(r)?,
                osd_fsid: Decode::decode(r)?,
                ..Self::default()
            };
            r.skip(4)?;
            BTreeMap::<i64, Epoch>::decode(r)?;
            if env.version >= 9 {
                s.purged_snaps_last = Decode::decode(r)?;
                s.last_purged_snaps_scrub = Decode::decode(r)?;
            }
            if env.version >= 10 {
                s.trim_lower_bound = Decode::decode(r)?;
            }
            Ok(s)
        })
    }
}

/// Seconds and nanoseconds that may be negative: clocks' differences and spans. Source: encode(duration) in
/// src/include/encoding.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct SignedSpan {
    pub sec: i32,
    pub nsec: i32,
}
wire_plain!(SignedSpan { sec, nsec });

/// A PG's history. Source: pg_history_t in src/osd/osd_types.cc (version 10).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PgHistory {
    pub epoch_created: Epoch,
    pub last_epoch_started: Epoch,
    pub last_epoch_clean: Epoch,
    pub last_epoch_split: Epoch,
    pub same_interval_since: Epoch,
    pub same_up_since: Epoch,
    pub same_primary_since: Epoch,
    pub last_scrub: Eversion,
    pub last_scrub_stamp: Utime,
    pub last_deep_scrub: Eversion,
    pub last_deep_scrub_stamp: Utime,
    pub last_clean_scrub_stamp: Utime,
    pub last_epoch_marked_full: Epoch,
    pub last_interval_started: Epoch,
    pub last_interval_clean: Epoch,
    pub epoch_pool_created: Epoch,
    pub prior_readable_until_ub: SignedSpan,
}
wire_struct!(PgHistory(10, 4) {
    epoch_created, last_epoch_started, last_epoch_clean, last_epoch_split, same_interval_since, same_up_since,
    same_primary_since, last_scrub, last_scrub_stamp, last_deep_scrub, last_deep_scrub_stamp, last_clean_scrub_stamp,
    last_epoch_marked_full, last_interval_started, last_interval_clean, epoch_pool_created, prior_readable_until_ub,
});

/// A structure in an envelope, kept whole and not looked into.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RawEnvelope(pub Bytes);

impl Encode for RawEnvelope {
    fn encode(&self, w: &mut Writer) {
        w.raw(&self.0);
    }
}
impl Decode for RawEnvelope {
    const MIN_SIZE: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        let mut probe = r.clone();
        probe.skip(2)?;
        let len = probe.u32()? as usize;
        r.raw(len.saturating_add(6)).map(Self)
    }
}

//! The wire form of pools. Source: pg_pool_t::encode and decode in src/osd/osd_types.cc.

use codec::{Decode, DecodeError, Encode, Reader, Writer};
use types::{Epoch, PoolId, Utime};

use crate::pool::{
    AutoscaleMode, HitSetParams, PeeringCrush, PgMergeMeta, Pool, PoolSnap, PoolType, pool_flags,
};
use crate::{PoolOpts, SnapIntervals};

/// The newest form we know; pools outside stretch mode are written as one less.
const NEWEST: u8 = 30;
/// The oldest form we read: Jewel's.
const OLDEST: u8 = 24;
/// Periods of a hit set that a decoded pool may have: dumps list a number for each.
const MAX_HIT_SET_COUNT: u32 = 1 << 16;
/// PGs that a decoded pool may have. Monitors allow 65,536 by default (mon_max_pool_pg_num).
pub const MAX_PG_NUM: u32 = 1 << 20;

codec::wire_struct!(PoolSnap(2, 2) { snapid, stamp, name });
codec::wire_struct!(PgMergeMeta(1, 1) {
    source_pgid, ready_epoch, last_epoch_started, last_epoch_clean, source_version, target_version
});
codec::wire_plain!(PeeringCrush { bucket_count, bucket_target, bucket_barrier, mandatory_member });

impl Encode for HitSetParams {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| match self {
            Self::None => w.u8(0),
            Self::ExplicitHash => w.u8(1),
            Self::ExplicitObject => w.u8(2),
            Self::Bloom { fpp_micro, target_size, seed } => {
                w.u8(3);
                w.envelope(1, 1, |w| {
                    w.u32(*fpp_micro);
                    w.u64(*target_size);
                    w.u64(*seed);
                });
            }
        });
    }
}
impl Decode for HitSetParams {
    const MIN_SIZE: usize = 7;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("HitSet::Params", 1, |r, _| match r.u8()? {
            0 => Ok(Self::None),
            1 => Ok(Self::ExplicitHash),
            2 => Ok(Self::ExplicitObject),
            3 => r.envelope("BloomHitSet::Params", 1, |r, _| {
                Ok(Self::Bloom { fpp_micro: r.u32()?, target_size: r.u64()?, seed: r.u64()? })
            }),
            v => Err(DecodeError::Invalid { what: "hit set type", value: v.into() }),
        })
    }
}

impl Encode for Pool {
    fn encode(&self, w: &mut Writer) {
        let version = if self.is_stretch() { NEWEST } else { NEWEST - 1 };
        w.envelope(version, 5, |w| {
            self.encode_to_14(w);
            self.encode_15_to_29(w);
            if let Some(p) = self.peering_crush.filter(|_| version >= 30) {
                p.encode(w);
            }
        });
    }
}

impl Pool {
    /// The fields up to the form of version 14, in their order.
    fn encode_to_14(&self, w: &mut Writer) {
        w.u8(self.kind as u8);
        w.u8(self.size);
        w.u8(self.crush_rule);
        w.u8(self.object_hash);
        w.u32(self.pg_num);
        w.u32(self.pgp_num);
        w.u64(0); // two counts of PGs with a preferred OSD, which are gone
        self.last_change.encode(w);
        w.u64(self.snap_seq);
        self.snap_epoch.encode(w);
        self.snaps.encode(w);
        self.removed_snaps.encode(w);
        w.u64(self.auid);
        w.u64(self.flags);
        w.u32(0); // crash_replay_interval, obsolete
        w.u8(self.min_size);
        w.u64(self.quota_max_bytes);
        w.u64(self.quota_max_objects);
        self.tiers.encode(w);
        self.tier_of.encode(w);
        w.u8(self.cache_mode);
        self.read_tier.encode(w);
        self.write_tier.encode(w);
        self.properties.encode(w);
        self.hit_set_params.encode(w);
        w.u32(self.hit_set_period);
        w.u32(self.hit_set_count);
        w.u32(self.stripe_width);
        w.u64(self.target_max_bytes);
        w.u64(self.target_max_objects);
        w.u32(self.cache_target_dirty_ratio_micro);
        w.u32(self.cache_target_full_ratio_micro);
        w.u32(self.cache_min_flush_age);
        w.u32(self.cache_min_evict_age);
        self.erasure_code_profile.encode(w);
    }

    fn encode_15_to_29(&self, w: &mut Writer) {
        self.last_force_op_resend_preluminous.encode(w);
        w.u32(self.min_read_recency_for_promote);
        w.u64(self.expected_num_objects);
        w.u32(self.cache_target_dirty_high_ratio_micro);
        w.u32(self.min_write_recency_for_promote);
        self.use_gmt_hitset.encode(w);
        self.fast_read.encode(w);
        w.u32(self.hit_set_grade_decay_rate);
        w.u32(self.hit_set_search_last_n);
        self.opts.encode(w);
        self.last_force_op_resend_prenautilus.encode(w);
        self.application_metadata.encode(w);
        self.create_time.encode(w);
        w.u32(self.pg_num_target);
        w.u32(self.pgp_num_target);
        w.u32(self.pg_num_pending);
        w.u64(0); // two epochs of merges in early Nautilus, superseded by last_pg_merge_meta
        self.last_force_op_resend.encode(w);
        w.u8(self.autoscale_mode.0);
        self.last_pg_merge_meta.encode(w);
    }
}

/// Refuses unknown pool types, for nothing can be placed in them, and forms from before Jewel.
impl Decode for Pool {
    const MIN_SIZE: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("pg_pool_t", NEWEST, |r, env| {
            let version = env.version;
            if version < OLDEST {
                return Err(DecodeError::Invalid { what: "pg_pool_t version", value: version.into() });
            }
            let mut p = decode_to_14(r)?;
            decode_15_to_24(&mut p, r)?;
            decode_25_on(&mut p, version, r)?;
            // Maps from before Mimic do not say who manages the snapshots.
            let modes = pool_flags::SELFMANAGED_SNAPS | pool_flags::POOL_SNAPS;
            if p.snap_seq > 0 && p.flags & modes == 0 {
                p.flags |= if p.removed_snaps.is_empty() {
                    pool_flags::POOL_SNAPS
                } else {
                    pool_flags::SELFMANAGED_SNAPS
                };
            }
            Ok(p)
        })
    }
}

fn decode_to_14(r: &mut Reader) -> Result<Pool, DecodeError> {
    let kind = r.u8()?;
    let mut p = Pool {
        kind: PoolType::from_u8(kind)
            .ok_or(DecodeError::Invalid { what: "pool type", value: u64::from(kind) })?,
        size: r.u8()?,
        crush_rule: r.u8()?,
        object_hash: r.u8()?,
        pg_num: r.u32()?,
        pgp_num: r.u32()?,
        ..Pool::default()
    };
    at_most("pg_num", p.pg_num, MAX_PG_NUM)?;
    r.skip(8)?;
    p.last_change = Epoch::decode(r)?;
    p.snap_seq = r.u64()?;
    p.snap_epoch = Epoch::decode(r)?;
    p.snaps = Decode::decode(r)?;
    p.removed_snaps = SnapIntervals::decode(r)?;
    p.auid = r.u64()?;
    p.flags = r.u64()?;
    r.skip(4)?;
    p.min_size = r.u8()?;
    p.quota_max_bytes = r.u64()?;
    p.quota_max_objects = r.u64()?;
    p.tiers = Decode::decode(r)?;
    p.tier_of = PoolId::decode(r)?;
    p.cache_mode = r.u8()?;
    p.read_tier = PoolId::decode(r)?;
    p.write_tier = PoolId::decode(r)?;
    p.properties = Decode::decode(r)?;
    p.hit_set_params = HitSetParams::decode(r)?;
    p.hit_set_period = r.u32()?;
    p.hit_set_count = r.u32()?;
    at_most("hit_set_count", p.hit_set_count, MAX_HIT_SET_COUNT)?;
    p.stripe_width = r.u32()?;
    p.target_max_bytes = r.u64()?;
    p.target_max_objects = r.u64()?;
    p.cache_target_dirty_ratio_micro = r.u32()?;
    p.cache_target_full_ratio_micro = r.u32()?;
    p.cache_min_flush_age = r.u32()?;
    p.cache_min_evict_age = r.u32()?;
    p.erasure_code_profile = String::decode(r)?;
    Ok(p)
}

fn at_most(what: &'static str, claimed: u32, bound: u32) -> Result<(), DecodeError> {
    if claimed > bound {
        return Err(DecodeError::TooLarge { what, claimed: claimed.into(), bound: bound.into() });
    }
    Ok(())
}

fn decode_15_to_24(p: &mut Pool, r: &mut Reader) -> Result<(), DecodeError> {
    p.last_force_op_resend_preluminous = Epoch::decode(r)?;
    p.min_read_recency_for_promote = r.u32()?;
    p.expected_num_objects = r.u64()?;
    p.cache_target_dirty_high_ratio_micro = r.u32()?;
    p.min_write_recency_for_promote = r.u32()?;
    p.use_gmt_hitset = bool::decode(r)?;
    p.fast_read = bool::decode(r)?;
    p.hit_set_grade_decay_rate = r.u32()?;
    p.hit_set_search_last_n = r.u32()?;
    p.opts = PoolOpts::decode(r)?;
    Ok(())
}

fn decode_25_on(p: &mut Pool, version: u8, r: &mut Reader) -> Result<(), DecodeError> {
    p.last_force_op_resend_prenautilus =
        if version >= 25 { Epoch::decode(r)? } else { p.last_force_op_resend_preluminous };
    if version >= 26 {
        p.application_metadata = Decode::decode(r)?;
    }
    if version >= 27 {
        p.create_time = Utime::decode(r)?;
    }
    if version >= 28 {
        p.pg_num_target = r.u32()?;
        p.pgp_num_target = r.u32()?;
        p.pg_num_pending = r.u32()?;
        let old_merge = (Epoch::decode(r)?, Epoch::decode(r)?);
        p.last_force_op_resend = Epoch::decode(r)?;
        p.autoscale_mode = AutoscaleMode(r.u8()?);
        if version >= 29 {
            p.last_pg_merge_meta = PgMergeMeta::decode(r)?;
        } else {
            p.last_pg_merge_meta.last_epoch_started = old_merge.0;
            p.last_pg_merge_meta.last_epoch_clean = old_merge.1;
        }
    } else {
        p.pg_num_target = p.pg_num;
        p.pgp_num_target = p.pgp_num;
        p.pg_num_pending = p.pg_num;
        p.last_force_op_resend = p.last_force_op_resend_prenautilus;
        p.autoscale_mode = AutoscaleMode::WARN;
    }
    if version >= 30 {
        p.peering_crush = Some(PeeringCrush::decode(r)?);
    }
    Ok(())
}

//! How much a bucket and its owner may hold. Source: RGWQuotaHandlerImpl in src/rgw/rgw_quota.cc.
//!
//! 1. The quotas that count are those of the bucket's owner, whoever writes.
//! 2. Requests that are looked at together may pass together: as in radosgw a quota is held to what was
//!    counted before them.

use classes::client::{EmptyEnvelope, user as list};
use rgw::{BucketInfo, Quota, UserInfo};
use types::RealTime;

use crate::{BucketStats, Error, Plan, Request, Site};

/// What is held, in the units of quotas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Held {
    objects: u64,
    bytes: u64,
    /// Each object's bytes, rounded up to blocks.
    rounded: u64,
}

/// Bytes of a block. Source: rgw_rounded_objsize in src/rgw/rgw_common.h.
const BLOCK: u64 = 4096;

fn has_room(quota: &Quota, held: Held, size: u64) -> bool {
    let (held_bytes, more) = match quota.on_raw {
        true => (held.bytes, size),
        false => (held.rounded, size.div_ceil(BLOCK).saturating_mul(BLOCK)),
    };
    let fits = |max: i64, then: u64| u64::try_from(max).is_ok_and(|max| then <= max) || max < 0;
    fits(quota.max_size, held_bytes.saturating_add(more))
        && fits(quota.max_objects, held.objects.saturating_add(1))
}

fn of_bucket(stats: &BucketStats) -> Held {
    let sum = |of: fn(&rgw::index::Stats) -> u64| stats.categories.values().map(of).sum();
    Held { objects: sum(|c| c.entries), bytes: sum(|c| c.size), rounded: sum(|c| c.size_rounded) }
}

impl Site {
    /// Fails with `QuotaExceeded` if an object of `size` bytes exceeds the bucket's or its owner's quota.
    /// Without quotas nothing is read.
    pub fn room_for(&self, bucket: &BucketInfo, owner: &UserInfo, size: u64, now: RealTime) -> Plan<()> {
        let of_bucket_quota = if bucket.quota.enabled { bucket.quota } else { owner.bucket_quota };
        let of_user = owner.user_quota;
        if !of_bucket_quota.enabled && !of_user.enabled {
            return Plan::ok(());
        }
        let (site, info, id) = (self.clone(), bucket.clone(), owner.id.clone());
        self.bucket_stats(bucket).and_then(move |stats| {
            if of_bucket_quota.enabled && !has_room(&of_bucket_quota, of_bucket(&stats), size) {
                return Plan::failed(Error::QuotaExceeded);
            }
            if !of_user.enabled {
                return Plan::ok(());
            }
            let header = Request::new(site.user_buckets_object(&id)).call(&list::HEADER, &EmptyEnvelope);
            // What the owner holds is counted by bucket, and this bucket's count is an old one.
            site.sync_bucket_stats(&info, now).and_then(move |()| Plan::ask(header)).and_then(move |reply| {
                let stats = match reply.answer(0, &list::HEADER) {
                    Ok(answer) => answer.header.stats,
                    Err(e) => return Plan::failed(e),
                };
                let held = Held { objects: stats.entries, bytes: stats.bytes, rounded: stats.bytes_rounded };
                match has_room(&of_user, held, size) {
                    true => Plan::ok(()),
                    false => Plan::failed(Error::QuotaExceeded),
                }
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use rgw::UserId;

    use super::super::tests::{bucket, put};
    use super::*;
    use crate::cluster::{Cluster, NOW, site};

    fn quota(max_size: i64, max_objects: i64) -> Quota {
        Quota { max_size, max_objects, enabled: true, on_raw: false }
    }

    #[test]
    fn rooms_are_counted_in_blocks_or_bytes() {
        let held = Held { objects: 1, bytes: 10, rounded: 4096 };
        let raw = Quota { on_raw: true, ..quota(20, -1) };
        for (quota, size, want) in [
            (quota(-1, -1), u64::MAX, true),
            (quota(8192, -1), 4096, true),
            (quota(8192, -1), 4097, false),
            (quota(8191, -1), 1, false),
            (raw, 10, true),
            (raw, 11, false),
            (quota(-1, 2), 0, true),
            (quota(-1, 1), 0, false),
            (quota(0, -1), 0, false),
        ] {
            assert_eq!(has_room(&quota, held, size), want, "{quota:?} {size}");
        }
    }

    #[test]
    fn an_owners_quotas_hold_for_a_bucket_and_for_all() {
        let mut c = Cluster::default();
        let b = bucket(&mut c);
        put(&mut c, &b, "k", &[1; 5000]).unwrap();
        let owner = |user_quota, bucket_quota| UserInfo {
            id: UserId::plain("u"),
            user_quota,
            bucket_quota,
            ..UserInfo::default()
        };
        let off = Quota::default();
        let mut check =
            |info: &BucketInfo, owner: UserInfo, size| site().room_for(info, &owner, size, NOW).run(&mut c);
        assert_eq!(check(&b, owner(off, off), u64::MAX), Ok(()));
        assert_eq!(check(&b, owner(off, quota(16_384, -1)), 8192), Ok(()));
        assert_eq!(check(&b, owner(off, quota(16_384, -1)), 8193), Err(Error::QuotaExceeded));
        // The bucket's own comes before what its owner has for all buckets.
        let own = BucketInfo { quota: quota(-1, 5), ..(*b).clone() };
        assert_eq!(check(&own, owner(off, quota(0, 0)), 8193), Ok(()));
        assert_eq!(check(&b, owner(quota(-1, 2), off), 1), Ok(()));
        assert_eq!(check(&b, owner(quota(-1, 1), off), 1), Err(Error::QuotaExceeded));
        assert_eq!(check(&b, owner(quota(8192, -1), off), 1), Err(Error::QuotaExceeded));
    }
}

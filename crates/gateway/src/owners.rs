//! Whose a bucket is. Source: RGWBucketCtl::chown and RGWBucket::link, unlink in src/rgw/rgw_bucket.cc.
//!
//! 1. The new owner's list has the bucket before the old one's loses it: it is on one list at least.

use codec::Encode;
use rgw::{AccessControl, Owner};
use types::RealTime;

use crate::buckets::ATTR_ACL;
use crate::system::{self, Attrs, Over, Write};
use crate::{BucketState, Error, Plan, Site};

impl Site {
    /// Gives a bucket to another user of its tenant, with a list of grants that is the new owner's alone. Its
    /// objects keep theirs.
    pub fn give_bucket(&self, state: BucketState, owner: Owner, now: RealTime) -> Plan<()> {
        let before = state.instance.value.clone();
        if before.owner.tenant != owner.id.tenant {
            return Plan::failed(Error::InvalidArgument);
        }
        let (site, acl) = (self.clone(), AccessControl::private(owner.clone()).to_bytes());
        let (entry, id) = (state.entry.clone(), owner.id.clone());
        let changed = self.modify_bucket(state, now, move |info, attrs: &mut Attrs| {
            info.owner = owner.id;
            attrs.insert(ATTR_ACL.into(), acl);
            Ok(())
        });
        changed.and_then(move |info| {
            let mut point = entry.value;
            (point.owner, point.linked) = (id, true);
            let write = Write {
                object: site.entry_object(&info.bucket.tenant, &info.bucket.name),
                data: point.to_bytes(),
                attrs: entry.attrs,
                version: Some(system::next_version(&entry.version)),
                over: Over::Version(entry.version),
                now,
            };
            let (listing, last) = (site.clone(), site.clone());
            let same = before.owner == info.owner;
            system::write(&site, write)
                .and_then(move |()| listing.link_again(&info, now))
                .and_then(move |()| if same { Plan::ok(()) } else { last.unlink(&before) })
        })
    }

    /// Takes a bucket off its owner's list, and notes in its entry point that it is on none.
    pub fn unlink_bucket(&self, state: BucketState, now: RealTime) -> Plan<()> {
        let (site, info, entry) = (self.clone(), state.instance.value, state.entry);
        let mut point = entry.value;
        point.linked = false;
        let write = Write {
            object: self.entry_object(&info.bucket.tenant, &info.bucket.name),
            data: point.to_bytes(),
            attrs: entry.attrs,
            version: Some(system::next_version(&entry.version)),
            over: Over::Version(entry.version),
            now,
        };
        system::write(self, write).and_then(move |()| site.unlink(&info))
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use codec::Decode;
    use rgw::{PlacementRule, UserId, Versioning};

    use super::*;
    use crate::NewBucket;
    use crate::cluster::{Cluster, NOW, run, site};

    fn owner(id: &'static str) -> Owner {
        Owner { id: UserId::plain(id), display_name: id.into() }
    }

    fn made(c: &mut Cluster) -> BucketState {
        let new = NewBucket {
            name: "b".into(),
            acl: AccessControl::private(owner("u")),
            placement: PlacementRule::default(),
            flags: Versioning::default(),
            attrs: Attrs::new(),
            number: 1,
            max_buckets: None,
        };
        run(c, |moment| site().create_bucket(new, moment)).unwrap();
        read(c)
    }

    fn read(c: &mut Cluster) -> BucketState {
        site().bucket(&Bytes::new(), &"b".into()).run(c).unwrap()
    }

    fn list(c: &mut Cluster, id: &'static str) -> usize {
        site().user_buckets(&UserId::plain(id), Bytes::new(), 10).run(c).unwrap().0.len()
    }

    #[test]
    fn a_bucket_changes_hands_with_its_list_and_its_grants() {
        let mut c = Cluster::default();
        let state = made(&mut c);
        site().give_bucket(state, owner("v"), NOW).run(&mut c).unwrap();
        let after = read(&mut c);
        assert_eq!((list(&mut c, "u"), list(&mut c, "v")), (0, 1));
        assert_eq!(after.instance.value.owner, UserId::plain("v"));
        assert_eq!((after.entry.value.owner.clone(), after.entry.value.linked), (UserId::plain("v"), true));
        let acl = AccessControl::from_bytes(after.instance.attrs[ATTR_ACL].clone()).unwrap();
        assert_eq!(acl, AccessControl::private(owner("v")));
        let other = Owner { id: UserId { tenant: "t".into(), ..UserId::plain("w") }, ..owner("w") };
        let refused = site().give_bucket(after, other, NOW).run(&mut c);
        assert_eq!(refused, Err(Error::InvalidArgument));
    }

    #[test]
    fn of_two_changes_of_hands_one_is_refused() {
        let mut c = Cluster::default();
        let state = made(&mut c);
        site().give_bucket(state.clone(), owner("v"), NOW).run(&mut c).unwrap();
        assert_eq!(site().give_bucket(state, owner("w"), NOW).run(&mut c), Err(Error::Raced));
        assert_eq!((list(&mut c, "v"), list(&mut c, "w")), (1, 0));
    }

    #[test]
    fn a_bucket_on_no_list_is_there_and_can_be_given_again() {
        let mut c = Cluster::default();
        let state = made(&mut c);
        site().unlink_bucket(state, NOW).run(&mut c).unwrap();
        let state = read(&mut c);
        assert_eq!((list(&mut c, "u"), state.entry.value.linked), (0, false));
        site().give_bucket(state, owner("u"), NOW).run(&mut c).unwrap();
        assert_eq!((list(&mut c, "u"), read(&mut c).entry.value.linked), (1, true));
    }
}

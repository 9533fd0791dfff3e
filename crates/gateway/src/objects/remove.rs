//! Removing an object. Source: RGWRados::Object::Delete in src/rgw/rgw_rados.cc.

use bytes::Bytes;
use classes::client::object;
use rgw::Key;
use rgw::index::Meta;
use types::Errno;

use super::change::{Change, Prepared};
use super::put::waste;
use super::{Head, SharedBucket, TRIES, Wanted, attr, versions, writable};
use crate::{Error, Moment, Op, Plan, Request, Site, garbage};

impl Site {
    /// Removes an object; its tail goes to garbage collection. `Versioned` where the bucket, or the object's
    /// name, has versions.
    pub fn remove(&self, bucket: &SharedBucket, key: Key, moment: &mut Moment) -> Plan<()> {
        self.remove_wanted(bucket, key, Wanted::default(), moment)
    }

    /// The same of what is as it is wanted; `PreconditionFailed` where it is not.
    pub(super) fn remove_wanted(
        &self,
        bucket: &SharedBucket,
        key: Key,
        wanted: Wanted,
        moment: &mut Moment,
    ) -> Plan<()> {
        if let Err(e) = writable(bucket, &key) {
            return Plan::failed(e);
        }
        let tag: Bytes = [b"_", &moment.letters(31)[..]].concat().into();
        let change = match Change::new(self, bucket, &key, &key.name, tag) {
            Ok(change) => change,
            Err(e) => return Plan::failed(e),
        };
        self.remove_seen(bucket.clone(), key, change, (None, wanted), (TRIES, false))
    }

    /// Removes what is there, as long as it is the object that was seen `before`. What looks like a name with
    /// versions makes it look whether the bucket keeps some by now, unless that `is_sure`.
    fn remove_seen(
        &self,
        bucket: SharedBucket,
        key: Key,
        change: Change,
        (before, wanted): (Option<Head>, Wanted),
        (tries, is_sure): (u32, bool),
    ) -> Plan<()> {
        let site = self.clone();
        self.head(&bucket, &key, 0).and_then(move |head| match head {
            None => Plan::failed(Error::NoSuchKey),
            Some(head) if head.name_tag().is_some() && !is_sure => {
                let fresh = site.bucket(&bucket.bucket.tenant, &bucket.bucket.name);
                fresh.and_then(move |state| match versions::is_versioned(&state.instance.value) {
                    true => Plan::failed(Error::Versioned),
                    // radosgw copies these attributes from versions into buckets that keep none.
                    false => site.remove_seen(bucket, key, change, (before, wanted), (tries, true)),
                })
            }
            Some(head) if before.as_ref().is_some_and(|before| !head.is_same_object(before)) => {
                Plan::failed(Error::Raced)
            }
            Some(head) => {
                if let Err(e) = wanted.check_head(&head) {
                    return Plan::failed(e);
                }
                let request = Request::new(head.object.clone());
                let (again, seen) = (change.clone(), head.clone());
                let place = (site.clone(), bucket.clone());
                remove_head(place, head, request, change, Vec::new()).then(move |done| match done {
                    // Somebody else has removed it since.
                    Err(Error::Rados(Errno::ENOENT)) => Plan::failed(Error::NoSuchKey),
                    Err(Error::Raced) if tries > 0 => {
                        site.remove_seen(bucket, key, again, (Some(seen), wanted), (tries - 1, is_sure))
                    }
                    done => Plan::Done(done),
                })
            }
        })
    }
}

/// Removes a head if the `request` that does so finds what it asks for, and `remove`, entries of the index
/// that go with it. An index that moves is followed.
pub(crate) fn remove_head(
    (site, bucket): (Site, SharedBucket),
    head: Head,
    mut request: Request,
    change: Change,
    remove: Vec<rgw::index::Key>,
) -> Plan<()> {
    if let Some(tag) = head.id_tag() {
        request = request.op(Op::AttrIs { name: Bytes::from_static(attr::ID_TAG), value: tag.clone() });
    }
    let keep = object::RemoveArgs { keep: vec![Bytes::from_static(attr::OLH)] };
    request = request.call(&object::REMOVE, &keep);
    change.prepare_delete(&site, bucket).and_then(move |Prepared { bucket, change, .. }| {
        Plan::ask(request).then(move |done| match done {
            Ok(reply) => {
                let meta = Meta { mtime: head.modified, ..Meta::default() };
                let objects = waste(&site, &head);
                deleted(&site, bucket, change, move |change| {
                    change.deleted(&reply, meta.clone(), remove.clone())
                })
                .then(move |_| garbage::collect(&site, objects, head.tail_tag()))
            }
            Err(e) if e.is_unclear() => Plan::failed(e),
            Err(e) => Plan::ask(change.cancelled()).then(move |_| Plan::failed(e)),
        })
    })
}

/// Completes a removal where the index is now. What the index does not hear of at all, it learns from
/// listings.
pub(crate) fn deleted(
    site: &Site,
    bucket: SharedBucket,
    change: Change,
    request: impl Fn(&Change) -> Request + Send + 'static,
) -> Plan<()> {
    let of = site.clone();
    let completed = site.follow(bucket, move |bucket| match change.in_bucket(&of, bucket) {
        Ok(change) => Plan::ask(request(&change)).when(Error::Rados(Errno::ENOENT), Error::NoSuchBucket),
        Err(e) => Plan::failed(e),
    });
    completed.then(|_| Plan::ok(()))
}

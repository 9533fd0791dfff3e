//! Changing attributes of an object that is there. Source: RGWRados::set_attrs in src/rgw/rgw_rados.cc.

use bytes::Bytes;
use rgw::index::Meta;
use rgw::{Compression, Key};
use types::{Errno, RealTime};

use codec::Decode;

use super::change::{Change, Prepared};
use super::put::MAIN;
use super::versions::is_versioned;
use super::{Head, SharedBucket, TRIES, attr, listed_meta, named, text};
use crate::{Error, Moment, Op, Plan, Request, Site};

/// An attribute under its whole name, and its value; nothing to remove it.
pub type AttrChange = (Bytes, Option<Bytes>);

impl Site {
    /// Changes attributes of the object that was read, and no other's: `Raced` if another one took its place,
    /// `NoSuchKey` if it is gone. Its data and its tags stay, so that who reads it or writes in its place at
    /// that moment does not take it for another one; radosgw makes a new tag.
    pub fn set_attrs(
        &self,
        bucket: &SharedBucket,
        key: &Key,
        head: Head,
        changes: Vec<AttrChange>,
        moment: &mut Moment,
    ) -> Plan<RealTime> {
        self.set(bucket, key, (head, false), changes, moment)
    }

    /// The same as long as these attributes are as they were read, of which the change follows: else `Raced`.
    pub fn set_attrs_as_seen(
        &self,
        bucket: &SharedBucket,
        key: &Key,
        head: Head,
        changes: Vec<AttrChange>,
        moment: &mut Moment,
    ) -> Plan<RealTime> {
        self.set(bucket, key, (head, true), changes, moment)
    }

    fn set(
        &self,
        bucket: &SharedBucket,
        key: &Key,
        (head, as_seen): (Head, bool),
        changes: Vec<AttrChange>,
        moment: &mut Moment,
    ) -> Plan<RealTime> {
        let tag: Bytes = [b"_", &moment.letters(31)[..]].concat().into();
        let key = Key { instance: head.version.clone(), ..key.clone() };
        let change = named(&key).and_then(|()| Change::new(self, bucket, &key, &key.name, tag));
        let change = match change {
            Ok(change) => change,
            Err(e) => return Plan::failed(e),
        };
        if changes.iter().any(|(name, _)| !attr::CHANGEABLE.contains(&&name[..])) {
            return Plan::failed(Error::InvalidArgument);
        }
        let change = if is_versioned(bucket) { change.of_version() } else { change };
        let (site, bucket) = (self.clone(), bucket.clone());
        Setting { site, bucket, key, changes, as_seen, change, now: moment.now }.go_on(head, TRIES)
    }
}

/// A change of attributes.
struct Setting {
    site: Site,
    bucket: SharedBucket,
    key: Key,
    changes: Vec<AttrChange>,
    /// What is changed is as it was read.
    as_seen: bool,
    change: Change,
    now: RealTime,
}

impl Setting {
    fn go_on(self, head: Head, tries: u32) -> Plan<RealTime> {
        let request = request(&head, &self.changes, self.as_seen).at(self.now);
        let meta = match meta_then(head.clone(), self.changes.clone(), self.now) {
            Ok(meta) => meta,
            Err(e) => return Plan::failed(e),
        };
        let prepared = self.change.clone().prepare_add(&self.site, self.bucket.clone());
        prepared.and_then(move |Prepared { bucket, change, .. }| {
            let this = Self { bucket, change, ..self };
            Plan::ask(request).then(move |done| match done {
                // The head is changed: that the index does not hear of it now, it learns from listings.
                Ok(reply) => {
                    Plan::ask(this.change.added(&reply, meta, Vec::new())).then(move |_| Plan::ok(this.now))
                }
                Err(e) if e.is_unclear() => Plan::failed(e),
                Err(e) => Plan::ask(this.change.cancelled()).then(move |_| match e {
                    Error::Rados(Errno::ENOENT) => Plan::failed(Error::NoSuchKey),
                    Error::Raced if tries > 0 && !this.as_seen => this.again(head, tries - 1),
                    e => Plan::failed(e),
                }),
            })
        })
    }

    /// Another one changed the object at the same time, as radosgw does with a new tag, or replaced it.
    fn again(self, before: Head, tries: u32) -> Plan<RealTime> {
        self.site.head(&self.bucket, &self.key, 0).and_then(move |head| match head {
            None => Plan::failed(Error::NoSuchKey),
            Some(head) if head.is_same_object(&before) => self.go_on(head, tries),
            Some(_) => Plan::failed(Error::Raced),
        })
    }
}

fn request(head: &Head, changes: &[AttrChange], as_seen: bool) -> Request {
    let request = head.is_there().into_iter().fold(Request::new(head.object.clone()), Request::op);
    let seen = changes.iter().filter(|_| as_seen).map(|(name, _)| Op::AttrIs {
        name: name.clone(),
        value: head.attrs.get(name).cloned().unwrap_or_default(),
    });
    let request = seen.fold(request, Request::op);
    changes.iter().fold(request, |request, (name, value)| match value {
        Some(value) => request.set_attr(name.clone(), value.clone()),
        None => request.op(Op::RemoveAttr(name.clone())),
    })
}

/// What listings show of the head as it becomes.
pub(super) fn meta_then(mut head: Head, changes: Vec<AttrChange>, now: RealTime) -> Result<Meta, Error> {
    for (name, value) in changes {
        match value {
            Some(value) => head.attrs.insert(name, value),
            None => head.attrs.remove(&name),
        };
    }
    let size = head.size();
    let compressed =
        head.attrs.get(attr::COMPRESSION).map(|raw| Compression::from_bytes(raw.clone())).transpose()?;
    let compressed = compressed.filter(|c| c.kind != Compression::default().kind);
    Ok(Meta {
        category: MAIN,
        size,
        accounted_size: compressed.map_or(size, |c| c.size),
        storage_class: head.attrs.get(attr::STORAGE_CLASS).map(text).unwrap_or_default(),
        ..listed_meta(&head.attrs, now)
    })
}

#[cfg(test)]
mod tests {
    use codec::Encode;
    use rgw::{AccessControl, Grant, Owner, Permissions, UserId};

    use super::super::tests::{bucket, garbage_of, get, list, put, ramp, remove, stats, with_queues};
    use super::*;
    use crate::cluster::{Cluster, NOW, run, site};

    const TAGS: &str = "user.rgw.x-amz-tagging";

    fn head(c: &mut Cluster, b: &SharedBucket) -> Head {
        site().head(b, &Key::plain("k"), 0).run(c).unwrap().unwrap()
    }

    fn set(
        c: &mut Cluster,
        b: &SharedBucket,
        head: Head,
        value: Option<&'static str>,
    ) -> Result<RealTime, Error> {
        let changes = vec![(Bytes::from(TAGS), value.map(Bytes::from))];
        run(c, |moment| site().set_attrs(b, &Key::plain("k"), head, changes, moment))
    }

    #[test]
    fn an_attribute_changes_and_nothing_else_does() {
        let mut c = Cluster::default();
        let b = bucket(&mut c);
        let data = ramp(5 << 20);
        put(&mut c, &b, "k", &data).unwrap();
        let (before, counted) = (head(&mut c, &b), stats(&mut c, &b));
        let read = head(&mut c, &b);
        assert_eq!(set(&mut c, &b, read, Some("tags")), Ok(NOW));
        let mut after = head(&mut c, &b);
        assert_eq!(after.attrs.remove(TAGS.as_bytes()), Some("tags".into()));
        assert_eq!(after.attrs, before.attrs);
        assert_eq!((get(&mut c, &b, "k").unwrap(), stats(&mut c, &b)), (data.into(), counted));
        let read = head(&mut c, &b);
        set(&mut c, &b, read, None).unwrap();
        assert!(!head(&mut c, &b).attrs.contains_key(TAGS.as_bytes()));
        // Its tail is found by whoever removes it then.
        with_queues(&mut c);
        remove(&mut c, &b, "k").unwrap();
        assert_eq!(garbage_of(&mut c).len(), 1);
    }

    #[test]
    fn a_head_that_is_another_one_is_not_changed() {
        let mut c = Cluster::default();
        let b = bucket(&mut c);
        put(&mut c, &b, "k", b"old").unwrap();
        let old = head(&mut c, &b);
        put(&mut c, &b, "k", b"new").unwrap();
        assert_eq!(set(&mut c, &b, old.clone(), Some("x")), Err(Error::Raced));
        assert!(!head(&mut c, &b).attrs.contains_key(TAGS.as_bytes()));
        remove(&mut c, &b, "k").unwrap();
        assert_eq!(set(&mut c, &b, old, Some("x")), Err(Error::NoSuchKey));
        assert_eq!((list(&mut c, &b), stats(&mut c, &b)), (Vec::new(), (0, 0)));
    }

    #[test]
    fn a_head_without_a_tag_is_changed_only_while_it_is_there() {
        let mut c = Cluster::default();
        let b = bucket(&mut c);
        put(&mut c, &b, "k", b"old").unwrap();
        let object = head(&mut c, &b).object;
        Plan::ask(Request::new(object).op(Op::RemoveAttr(Bytes::from_static(attr::ID_TAG))))
            .run(&mut c)
            .unwrap();
        let read = head(&mut c, &b);
        set(&mut c, &b, read.clone(), Some("x")).unwrap();
        remove(&mut c, &b, "k").unwrap();
        assert_eq!(set(&mut c, &b, read.clone(), Some("y")), Err(Error::NoSuchKey));
        assert_eq!((get(&mut c, &b, "k"), list(&mut c, &b)), (Err(Error::NoSuchKey), Vec::new()));
        // Another object in its place has a tag.
        put(&mut c, &b, "k", b"new").unwrap();
        assert_eq!(set(&mut c, &b, read, Some("y")), Err(Error::Raced));
    }

    #[test]
    fn what_an_object_is_made_of_is_no_attribute_to_change() {
        let mut c = Cluster::default();
        let b = bucket(&mut c);
        put(&mut c, &b, "k", b"data").unwrap();
        let read = head(&mut c, &b);
        let changes = vec![(Bytes::from_static(attr::MANIFEST), None)];
        let set = run(&mut c, |moment| site().set_attrs(&b, &Key::plain("k"), read, changes, moment));
        assert_eq!(set, Err(Error::InvalidArgument));
    }

    #[test]
    fn a_gateway_that_dies_on_the_way_leaves_the_object_listed() {
        for left in 0..3 {
            let mut c = Cluster::default();
            let b = bucket(&mut c);
            put(&mut c, &b, "k", b"data").unwrap();
            let read = head(&mut c, &b);
            c.left = Some(left);
            let done = set(&mut c, &b, read, Some("x"));
            assert_eq!(done.is_ok(), left > 1, "{left}");
            c.left = None;
            assert_eq!((list(&mut c, &b), stats(&mut c, &b)), (vec!["k".to_owned()], (1, 4)));
        }
    }

    #[test]
    fn listings_name_the_owner_that_a_new_acl_has() {
        let mut c = Cluster::default();
        let b = bucket(&mut c);
        put(&mut c, &b, "k", b"data").unwrap();
        let mut acl = AccessControl::private(Owner { id: UserId::plain("v"), display_name: "V".into() });
        acl.list.add(Grant::to_group(Grant::ALL_USERS, Permissions::READ));
        let changes = vec![(Bytes::from("user.rgw.acl"), Some(acl.to_bytes()))];
        let read = head(&mut c, &b);
        run(&mut c, |moment| site().set_attrs(&b, &Key::plain("k"), read, changes, moment)).unwrap();
        let listing = super::super::Listing { max: 10, ..Default::default() };
        let listed = site().list(&b, listing).run(&mut c).unwrap();
        let (_, meta) = listed.objects.first().unwrap();
        assert_eq!((&meta.owner[..], &meta.etag[..], meta.size), (&b"v"[..], &b"etag"[..], 4));
    }
}

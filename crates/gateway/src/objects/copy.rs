//! Copying an object: its tail is shared where it can be, by references. Source: RGWRados::copy_obj in
//! src/rgw/rgw_rados.cc.

use bytes::Bytes;
use classes::client::refcount;
use rgw::{Key, Manifest, Object, PlacementRule, RawObject};

use super::change::Change;
use super::put::{MAX_HEAD, Made, NewHead};
use super::seal::Seal;
use super::versions::is_versioned;
use super::{Finish, Opened, SharedBucket, Upload, Written, attr, named};
use crate::{Error, Moment, Plan, Request, Site, garbage};

/// Where a copy goes.
#[derive(Debug, Clone)]
pub struct CopyTo {
    pub bucket: SharedBucket,
    pub key: Key,
    /// Empty for the bucket's own.
    pub storage_class: Bytes,
    /// Attributes of the copy, with its etag: the source's or others.
    pub finish: Finish,
    /// What the copy is encrypted with, whatever its source is.
    pub seal: Option<Seal>,
    /// No two requests of this gateway have the same.
    pub number: u64,
}

impl Site {
    /// Copies an object that was opened, whatever becomes of it meanwhile.
    pub fn copy(&self, from: Opened, to: CopyTo, moment: &mut Moment) -> Plan<Written> {
        let to = CopyTo { key: self.new_key(&to.bucket, to.key.clone(), moment), ..to };
        let upload = self.put(&to.bucket, to.key.clone(), to.storage_class.clone(), to.number, moment);
        match upload {
            Err(e) => Plan::failed(e),
            Ok(upload) => match self.sharable(&from, &to) {
                Some(manifest) => self.share_tail(from, to, manifest, moment),
                None => copy_bytes(from, upload.sealed(to.seal), to.finish, 0),
            },
        }
    }

    /// The manifest of a copy that shares its source's tail, if it can.
    fn sharable(&self, from: &Opened, to: &CopyTo) -> Option<Manifest> {
        // Each copy of what is encrypted is encrypted anew, or not at all.
        if to.seal.is_some() || from.head.encryption().is_some() {
            return None;
        }
        let old = from.head.manifest.as_ref()?;
        let rule = match to.storage_class.is_empty() {
            true => to.bucket.placement.clone(),
            false => PlacementRule { storage_class: to.storage_class.clone(), ..to.bucket.placement.clone() },
        };
        let same = old.tail.placement.name == rule.name
            && old.tail.placement.storage_class() == rule.storage_class();
        let head = self.head_object(&to.bucket, &to.key).ok()?;
        let shares = same && head.pool == from.head.object.pool && old.has_tail() && !old.is_explicit;
        // Over itself it takes the place of the head that was opened and of no other, which the tag tells.
        let shares = shares && (head != from.head.object || from.head.id_tag().is_some());
        (shares && old.head_size <= MAX_HEAD).then(|| {
            let mut made = old.clone();
            if made.tail.bucket.name.is_empty() {
                made.tail.bucket = old.object.bucket.clone();
            }
            made.object = Object { bucket: to.bucket.bucket.clone(), key: to.key.clone() };
            made.head_placement = to.bucket.placement.clone();
            made
        })
    }

    fn share_tail(&self, from: Opened, to: CopyTo, manifest: Manifest, moment: &mut Moment) -> Plan<Written> {
        let tag: Bytes = [&self.unique(to.number)[..], b"\0"].concat().into();
        let showing = is_versioned(&to.bucket).then(|| self.showing(&to.bucket, &to.key, moment));
        let new = match self.copied_head(&from, &to, manifest, tag.clone()) {
            Ok(new) if showing.is_some() => {
                NewHead { change: new.change.clone().of_version(), showing, ..new }
            }
            Ok(new) => new,
            Err(e) => return Plan::failed(e),
        };
        // One that is copied over itself keeps its tail, and what that is referred to by.
        let itself = new.object == from.head.object;
        let tail = if itself { Vec::new() } else { garbage::tail(self, &new.manifest, &new.object) };
        let args = refcount::TagArgs { tag: tag.clone(), implicit: true };
        let get = |object: &RawObject| Request::new(object.clone()).call(&refcount::GET, &args);
        let gets = tail.iter().map(get).collect();
        let first = from.read(0, new.manifest.head_size);
        Plan::ask_each(gets).and_then(move |replies| {
            let failed = replies.iter().find_map(|reply| reply.as_ref().err().copied());
            // Only a reference that was given can be taken back: the first one is the source's own.
            let given = tail.into_iter().zip(&replies).filter(|(_, reply)| reply.is_ok());
            let given: Vec<RawObject> = given.map(|(object, _)| object).collect();
            let read = match failed {
                Some(e) => Plan::failed(Error::from(e)),
                None => first,
            };
            let made = read.and_then(move |data| {
                let new = NewHead { data: Some(data), ..new };
                // The tail of the head that was opened goes with that head: another one's place is not taken.
                if itself { new.write_over(from.head) } else { new.write() }
            });
            Made::or_remove(made, given, tag)
        })
    }

    fn copied_head(
        &self,
        from: &Opened,
        to: &CopyTo,
        manifest: Manifest,
        tag: Bytes,
    ) -> Result<NewHead, Error> {
        named(&to.key)?;
        let object = self.head_object(&to.bucket, &to.key)?;
        let own_tag = Bytes::copy_from_slice(tag.strip_suffix(b"\0").unwrap_or(&tag));
        let keeps_tail = object == from.head.object;
        let tail_tag = if keeps_tail { from.head.tail_tag() } else { tag.clone() };
        let mut finish = to.finish.clone();
        keep_own(&mut finish);
        Seal::settle(None, &mut finish.attrs, 0);
        Ok(NewHead {
            site: self.clone(),
            bucket: to.bucket.clone(),
            object,
            data: None,
            manifest,
            tag,
            tail_tag,
            change: Change::new(self, &to.bucket, &to.key, &to.key.name, own_tag)?,
            first: None,
            keeps_tail,
            showing: None,
            unchanged: if keeps_tail { from.head.is_unchanged() } else { Vec::new() },
            remove: Vec::new(),
            finish,
        })
    }
}

/// Leaves of a source's attributes what tells of its place: its tags, and which version its name shows.
fn keep_own(finish: &mut Finish) {
    let made = [attr::ID_TAG, attr::TAIL_TAG, attr::STORAGE_CLASS];
    finish.attrs.retain(|name, _| !made.contains(&&name[..]) && !name.starts_with(attr::OLH));
}

/// Copies what lies elsewhere, or is in the head alone, a stripe at a time.
fn copy_bytes(from: Opened, upload: Upload, mut finish: Finish, at: u64) -> Plan<Written> {
    if at >= from.size() {
        keep_own(&mut finish);
        return upload.finish(finish);
    }
    from.read(at, MAX_HEAD).then(move |read| match read {
        Err(e) => upload.give_up(e),
        Ok(data) => {
            let next = at.saturating_add(data.len() as u64);
            upload.write(data).and_then(move |upload| copy_bytes(from, upload, finish, next))
        }
    })
}

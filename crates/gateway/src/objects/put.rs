//! Writing an object: its tail as it comes, then its head. Source: src/rgw/rgw_putobj_processor.cc,
//! RGWRados::Object::Write in src/rgw/rgw_rados.cc.

use std::collections::BTreeSet;

use bytes::{Bytes, BytesMut};
use classes::client::object;
use codec::Encode;
use rgw::index::Meta;
use rgw::index::entry::VERSION_MARKER;
use rgw::{Key, Manifest, Object, RawObject};
use types::{Errno, RealTime};

use super::change::{Change, Prepared};
use super::lock::lock_new;
use super::seal::Seal;
use super::versions::{NAME_TAG, Showing, is_versioned, null_or};
use super::{Head, SharedBucket, TRIES, attr, listed_meta, named};
use crate::system::Attrs;
use crate::{Error, Moment, Op, Plan, Reply, Request, Site, garbage};

/// Bytes of a head, at most. Source: rgw_max_chunk_size in src/common/options.cc.
pub(crate) const MAX_HEAD: u64 = 4 << 20;
/// Bytes of a stripe of the tail. Source: rgw_obj_stripe_size.
pub(crate) const STRIPE: u64 = 4 << 20;
/// Category of what clients see. Source: RGWObjCategory::Main in src/cls/rgw/cls_rgw_types.h.
pub(crate) const MAIN: u8 = 1;

/// What must hold for the object that is there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Condition {
    #[default]
    Any,
    /// There is none.
    Missing,
    /// There is one, with this etag where one is given.
    Exists(Option<Bytes>),
    /// There is none with this etag.
    Differs(Bytes),
}

/// What is known when all bytes are there.
#[derive(Debug, Clone)]
pub struct Finish {
    /// ETag, ACL, content type and the like, under their whole names.
    pub attrs: Attrs,
    /// Bytes as clients see them; nothing for those that were written.
    pub accounted_size: Option<u64>,
    pub condition: Condition,
    pub now: RealTime,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    pub modified: RealTime,
    /// The version that it is, `null` for one without an id; empty in a bucket without versions.
    pub version: Bytes,
    /// Another one wrote or removed the object at the same time, as if it had done so just after.
    pub overtaken: bool,
}

/// An object that is being written.
#[derive(Debug)]
pub struct Upload {
    site: Site,
    bucket: SharedBucket,
    /// Its size grows with what is written.
    manifest: Manifest,
    raw_head: RawObject,
    head: BytesMut,
    /// Of the stripe that is not full yet.
    stripe: BytesMut,
    /// Objects of the tail that are there, or may be.
    tail: Vec<RawObject>,
    tag: Bytes,
    /// In a bucket that keeps versions: what its name shows then.
    showing: Option<Showing>,
    /// What is stored is encrypted with it.
    seal: Option<Seal>,
}

impl Site {
    /// Begins an object; in a bucket that keeps versions, another version of it. Of `number` no two requests
    /// of this gateway have the same.
    pub fn put(
        &self,
        bucket: &SharedBucket,
        key: Key,
        storage_class: Bytes,
        number: u64,
        moment: &mut Moment,
    ) -> Result<Upload, Error> {
        named(&key)?;
        let (key, prefix) = (self.new_key(bucket, key, moment), moment.letters(31));
        let showing = is_versioned(bucket).then(|| self.showing(bucket, &key, moment));
        let raw_head = self.head_object(bucket, &key)?;
        let head_rule = bucket.placement.clone();
        let mut tail_rule = head_rule.clone();
        if !storage_class.is_empty() {
            tail_rule.storage_class = storage_class;
        }
        let object = Object { bucket: bucket.bucket.clone(), key };
        if !self.placement(&tail_rule)?.classes.contains_key(tail_rule.storage_class()) {
            return Err(Error::NoSuchPlacement);
        }
        // What lies in another pool has no bytes in its head.
        let max_head = if self.raw(&object, &tail_rule)?.pool == raw_head.pool { MAX_HEAD } else { 0 };
        let prefix: Bytes = [b".", &prefix[..], b"_"].concat().into();
        let mut manifest = Manifest::whole(object, head_rule, prefix, 0, max_head, STRIPE);
        if !tail_rule.is_standard() {
            manifest.tail.placement = tail_rule;
        }
        Ok(Upload {
            site: self.clone(),
            bucket: bucket.clone(),
            manifest,
            raw_head,
            head: BytesMut::new(),
            stripe: BytesMut::new(),
            tail: Vec::new(),
            tag: self.unique(number),
            showing,
            seal: None,
        })
    }
}

impl Upload {
    /// The same, encrypted; before the first of its bytes.
    pub fn sealed(self, seal: Option<Seal>) -> Self {
        assert!(self.manifest.size == 0, "an object is encrypted as a whole");
        Self { seal, ..self }
    }

    /// Takes more of the bytes. Whole stripes are written; what is held is less than a head and a stripe.
    pub fn write(mut self, mut data: Bytes) -> Plan<Self> {
        let mut requests = Vec::new();
        while !data.is_empty() {
            let in_head = self.manifest.size < self.manifest.max_head_size;
            let (into, bound) = match in_head {
                true => (&mut self.head, self.manifest.max_head_size),
                false => (&mut self.stripe, STRIPE),
            };
            let room = bound.saturating_sub(into.len() as u64).min(data.len() as u64);
            into.extend_from_slice(&data.split_to(usize::try_from(room).unwrap_or(data.len())));
            self.manifest.size += room;
            self.manifest.head_size = self.head.len() as u64;
            if self.stripe.len() as u64 == STRIPE {
                match self.flush() {
                    Ok(request) => requests.push(request),
                    Err(e) => return self.give_up(e),
                }
            }
        }
        self.ask(requests)
    }

    /// The request that writes the last stripe.
    fn flush(&mut self) -> Result<Request, Error> {
        let last = self.manifest.size.checked_sub(1).ok_or(Error::Unexpected)?;
        let stripe = self.manifest.stripe_at(last).ok_or(Error::Unexpected)?;
        let object = self.site.raw(&stripe.object, &stripe.placement)?;
        self.tail.push(object.clone());
        let mut data = self.stripe.split();
        Seal::close(self.seal.as_ref(), &mut data, stripe.at);
        Ok(Request::new(object).op(Op::WriteFull(data.freeze())))
    }

    fn ask(self, requests: Vec<Request>) -> Plan<Self> {
        Plan::<Vec<Reply>>::ask_all(requests).then(|done| match done {
            Ok(_) => Plan::ok(self),
            Err(e) => self.give_up(e),
        })
    }

    /// Removes what was written of the tail, and fails with `why`.
    pub fn give_up<T: Send + 'static>(self, why: Error) -> Plan<T> {
        self.take_back().then(|_| Plan::failed(why))
    }

    /// Removes what is written so far: for whoever loses sight of the upload.
    pub fn take_back(&self) -> Plan<()> {
        garbage::remove_now(self.tail.clone(), self.tag_value())
    }

    /// The tag as attributes have it: with a zero behind it.
    fn tag_value(&self) -> Bytes {
        [&self.tag[..], b"\0"].concat().into()
    }

    /// Makes the object what was written.
    pub fn finish(mut self, finish: Finish) -> Plan<Written> {
        let mut requests = Vec::new();
        if !self.stripe.is_empty() {
            match self.flush() {
                Ok(request) => requests.push(request),
                Err(e) => return self.give_up(e),
            }
        }
        self.ask(requests).and_then(|upload| upload.finish_head(finish))
    }

    fn finish_head(mut self, mut finish: Finish) -> Plan<Written> {
        Seal::settle(self.seal.as_ref(), &mut finish.attrs, self.manifest.size);
        let mut data = self.head.split();
        Seal::close(self.seal.as_ref(), &mut data, 0);
        let (tail, give_back) = (std::mem::take(&mut self.tail), self.tag_value());
        let key = &self.manifest.object.key;
        let change = Change::new(&self.site, &self.bucket, key, &key.name, self.tag.clone());
        let change = change.map(|c| if self.showing.is_some() { c.of_version() } else { c });
        let new = change.map(|change| NewHead {
            site: self.site.clone(),
            bucket: self.bucket.clone(),
            object: self.raw_head.clone(),
            data: Some(data.freeze()),
            manifest: self.manifest.clone(),
            tag: give_back.clone(),
            tail_tag: give_back.clone(),
            change,
            first: None,
            keeps_tail: false,
            unchanged: Vec::new(),
            showing: self.showing,
            remove: Vec::new(),
            finish,
        });
        let made = match new {
            Ok(new) => new.write(),
            Err(e) => Plan::failed(e),
        };
        Made::or_remove(made, tail, give_back)
    }
}

/// What became of a head: another one's is in its place as if it had come just after, or it is there, and
/// with it its tail, whatever failed then.
#[derive(Debug)]
pub(crate) struct Made {
    pub written: Written,
    pub failed: Option<Error>,
}

impl Made {
    fn result(self) -> Result<Written, Error> {
        self.failed.map_or(Ok(self.written), Err)
    }

    /// What was written; objects that are there for the head alone go where it is not there.
    pub fn or_remove(made: Plan<Self>, objects: Vec<RawObject>, tag: Bytes) -> Plan<Written> {
        made.then(move |made| match made {
            Ok(made) if !made.written.overtaken => Plan::Done(made.result()),
            // The head that names them may be there.
            Err(e) if e.is_unclear() => Plan::failed(e),
            other => {
                let result = other.and_then(Self::result);
                garbage::remove_now(objects, tag).then(move |_| Plan::Done(result))
            }
        })
    }
}

/// A head that is about to be written.
#[derive(Debug, Clone)]
pub(crate) struct NewHead {
    pub site: Site,
    pub bucket: SharedBucket,
    pub object: RawObject,
    /// Nothing where all bytes are in parts.
    pub data: Option<Bytes>,
    pub manifest: Manifest,
    /// With a zero behind it.
    pub tag: Bytes,
    /// What its tail's objects are referred to by.
    pub tail_tag: Bytes,
    pub change: Change,
    /// Comes between the index's preparation and the head.
    pub first: Option<Request>,
    /// What it has in common with the head in its place has one reference for both, as with an object that is
    /// copied over itself or an upload that is completed once more. Other copies have their own.
    pub keeps_tail: bool,
    /// What holds besides for the head in its place, where this one has of it what may change.
    pub unchanged: Vec<Op>,
    /// In a bucket that keeps versions: what its name shows then.
    pub showing: Option<Showing>,
    /// Entries of the index that go with it.
    pub remove: Vec<rgw::index::Key>,
    pub finish: Finish,
}

impl NewHead {
    /// Prepares the index, writes the head, completes the index.
    pub fn write(self) -> Plan<Made> {
        // Most objects are new: the head is looked at only when there is one, or when it must be.
        if self.showing.is_some() && self.finish.condition != Condition::Any {
            return self.write_beside_shown();
        }
        let look = matches!(self.finish.condition, Condition::Exists(_));
        if look {
            return self.look().and_then(|(new, old)| new.prepare(old));
        }
        self.prepare(None)
    }

    fn has_id(&self) -> bool {
        !self.manifest.object.key.instance.is_empty()
    }

    /// What must hold is of the version that is shown, and this one comes beside it.
    fn write_beside_shown(mut self) -> Plan<Made> {
        let name = Key { instance: Bytes::new(), ..self.manifest.object.key.clone() };
        let removal = self.showing.as_ref().map(Showing::removal).unwrap_or_default();
        self.site.shown_by(&self.bucket, &name, 0, removal).and_then(move |shown| {
            if !self.meets(shown.as_ref()) {
                return Plan::failed(self.unmet(shown.as_ref()));
            }
            self.finish.condition = Condition::Any;
            self.prepare(None)
        })
    }

    /// Takes the place of a head with a tag, or of none: that head's tail is what this one has.
    pub fn write_over(self, old: Head) -> Plan<Made> {
        match self.meets(Some(&old)) {
            true => self.prepare(Some(old)),
            false => Plan::failed(self.unmet(Some(&old))),
        }
    }

    fn look(self) -> Plan<(Self, Option<Head>)> {
        let key = self.manifest.object.key.clone();
        self.site.head(&self.bucket, &key, 0).and_then(|old| match self.meets(old.as_ref()) {
            true => Plan::ok((self, old)),
            false => Plan::failed(self.unmet(old.as_ref())),
        })
    }

    /// Where there is to be one, that there is none is another failure than that it is another one; 16.2
    /// knows no difference.
    fn unmet(&self, old: Option<&Head>) -> Error {
        match (&self.finish.condition, old) {
            (Condition::Exists(_), None) => Error::NoSuchKey,
            _ => Error::PreconditionFailed,
        }
    }

    fn meets(&self, old: Option<&Head>) -> bool {
        match &self.finish.condition {
            Condition::Any => true,
            Condition::Missing => old.is_none(),
            Condition::Differs(etag) => old.is_none_or(|old| *etag != old.etag()),
            Condition::Exists(etag) => {
                old.is_some_and(|old| etag.as_ref().is_none_or(|etag| *etag == old.etag()))
            }
        }
    }

    fn prepare(mut self, old: Option<Head>) -> Plan<Made> {
        lock_new(&self.bucket, &mut self.finish.attrs, self.finish.now);
        let first = self.first.clone().into_iter().collect();
        let prepared = self.change.clone().prepare_add(&self.site, self.bucket.clone());
        prepared.and_then(move |Prepared { bucket, change, .. }| {
            let this = Self { change, ..self.in_bucket(bucket) };
            Plan::<Vec<Reply>>::ask_all(first).then(move |done| match done {
                Ok(_) => this.replace(old, TRIES),
                Err(e) => this.cancel(Err(e)),
            })
        })
    }

    /// The same with the bucket as it is since its index moved.
    fn in_bucket(self, bucket: SharedBucket) -> Self {
        let showing = self.showing.map(|showing| showing.in_bucket(bucket.clone()));
        Self { bucket, showing, ..self }
    }

    fn replace(mut self, old: Option<Head>, tries: u32) -> Plan<Made> {
        self.learn(old.as_ref());
        let changing = self.showing.clone().zip(old.clone()).filter(|(_, old)| old.is_changing());
        if let Some((showing, name)) = changing.filter(|_| tries > 0) {
            // What is logged of the version without an id is not to be done to the one that comes now.
            let change = self.change.clone();
            return showing.catch_up(&name).then(move |done| match done {
                Ok(()) | Err(Error::Raced) => self.again(name, tries - 1),
                Err(e) => Plan::ask(change.cancelled()).then(move |_| Plan::failed(e)),
            });
        }
        Plan::ask(self.request(old.as_ref())).then(move |done| match (done, old) {
            (Ok(reply), old) => self.complete(reply, old),
            (Err(e), old) if e.is_unclear() => self.look_whether_written(old, e),
            (Err(Error::Rados(Errno::EEXIST)), None) => match self.finish.condition {
                Condition::Missing => self.cancel(Err(Error::PreconditionFailed)),
                _ => self.replace_existing(tries),
            },
            (Err(Error::Raced), Some(old)) if tries > 0 => self.again(old, tries - 1),
            // A name that was given up stood for others, and nobody took the place of this one.
            (Err(Error::Rados(Errno::ENOENT)), Some(old)) if tries > 0 && self.showing.is_some() => {
                self.again(old, tries - 1)
            }
            (Err(e), _) => self.overtaken(e),
        })
    }

    /// What comes under a name that has versions is one of them, also where the bucket had none when it was
    /// begun.
    fn learn(&mut self, old: Option<&Head>) {
        let key = &self.manifest.object.key;
        if self.showing.is_none() && old.is_some_and(|old| old.name_tag().is_some()) {
            let late = Showing::late(&self.site, &self.bucket, key, &self.tag, self.finish.now);
            self.showing = Some(late);
            self.change = self.change.clone().of_version();
        }
    }

    /// The head is another one than was seen: that of the same object with other attributes, in whose place
    /// this one comes, or another object's.
    fn again(self, old: Head, tries: u32) -> Plan<Made> {
        let change = self.change.clone();
        self.look().then(move |looked| match looked {
            Ok((new, Some(head))) if head.is_same_object(&old) || new.showing.is_some() => {
                match new.unchanged.is_empty() {
                    true => new.replace(Some(head), tries),
                    // What this one has of it is of before.
                    false => new.cancel(Err(Error::Raced)),
                }
            }
            Ok((new, None)) if new.showing.is_some() && new.unchanged.is_empty() => new.replace(None, tries),
            Ok((new, _)) => new.overtaken(Error::Raced),
            Err(e) => Plan::ask(change.cancelled()).then(|_| Plan::failed(e)),
        })
    }

    /// Another one's object took the place: as if it had come just after.
    fn overtaken(self, e: Error) -> Plan<Made> {
        let gone = Error::Rados(Errno::ENOENT);
        let overtaken = self.finish.condition == Condition::Any && (e == Error::Raced || e == gone);
        let written = Written { overtaken: true, ..self.written() };
        self.cancel(if overtaken { Ok(written) } else { Err(e) })
    }

    /// Whether a head is there of which no answer came. One that is not there yet may still come: the index
    /// keeps the change as one under way, which the next listing ends.
    fn look_whether_written(self, old: Option<Head>, e: Error) -> Plan<Made> {
        let look = Request::new(self.object.clone()).op(Op::Attrs);
        Plan::ask(look).then(move |reply| match reply {
            Ok(reply) if reply.attrs(0).is_ok_and(|a| a.get(attr::ID_TAG) == Some(&self.tag)) => {
                self.complete(reply, old)
            }
            _ => Plan::failed(e),
        })
    }

    fn replace_existing(self, tries: u32) -> Plan<Made> {
        let change = self.change.clone();
        self.look().then(move |looked| match looked {
            // It was removed again meanwhile.
            Ok((new, None)) => new.replace_missing(tries),
            Ok((new, old)) => new.replace(old, TRIES),
            Err(e) => Plan::ask(change.cancelled()).then(|_| Plan::failed(e)),
        })
    }

    fn replace_missing(self, tries: u32) -> Plan<Made> {
        Plan::ask(self.request(None)).then(move |done| match done {
            Ok(reply) => self.complete(reply, None),
            Err(e) if e.is_unclear() => self.look_whether_written(None, e),
            // A name is no object that takes the place of this one.
            Err(Error::Rados(Errno::EEXIST)) if self.showing.is_some() && tries > 0 => {
                self.replace_existing(tries - 1)
            }
            Err(Error::Rados(Errno::EEXIST)) => {
                let written = Written { overtaken: true, ..self.written() };
                self.cancel(Ok(written))
            }
            Err(e) => self.cancel(Err(e)),
        })
    }

    fn cancel(self, result: Result<Written, Error>) -> Plan<Made> {
        let made = result.map(|written| Made { written, failed: None });
        Plan::ask(self.change.cancelled()).then(|_| Plan::Done(made))
    }

    /// What makes the head, in place of the one that was seen.
    fn request(&self, old: Option<&Head>) -> Request {
        let mut r = Request::new(self.object.clone()).at(self.finish.now);
        let keep = object::RemoveArgs { keep: vec![Bytes::from_static(attr::OLH)] };
        r = match old {
            None => r.op(Op::Create { exclusive: true }),
            Some(old) => {
                let r = old.is_in_place().into_iter().chain(self.unchanged.clone()).fold(r, Request::op);
                r.op(Op::Create { exclusive: false }).call(&object::REMOVE, &keep)
            }
        };
        r = r.set_attr(attr::ID_TAG, self.tag.clone()).set_attr(attr::TAIL_TAG, self.tail_tag.clone());
        let name_tag = old.and_then(Head::name_tag).filter(|_| self.showing.is_some());
        r = name_tag.into_iter().fold(r, |r, tag| r.set_attr(NAME_TAG, tag.clone()));
        if let Some(data) = &self.data {
            r = r.op(Op::WriteFull(data.clone()));
        }
        r = r.set_attr(attr::MANIFEST, self.manifest.to_bytes());
        let attrs = &self.finish.attrs;
        let given = attrs.iter().filter(|(name, value)| name.as_ref() != attr::MANIFEST && !value.is_empty());
        r = given.fold(r, |r, (name, value)| r.set_attr(name.clone(), value.clone()));
        if !attrs.contains_key(attr::PG_VERSION) {
            let args = object::StoreVersionArgs { attr: Bytes::from_static(attr::PG_VERSION) };
            r = r.call(&object::STORE_VERSION, &args);
        }
        if !attrs.contains_key(attr::SOURCE_ZONE) {
            // Zones have numbers only in a realm.
            r = r.set_attr(attr::SOURCE_ZONE, 0u32.to_bytes());
        }
        let class = &self.manifest.tail.placement.storage_class;
        if class.is_empty() { r } else { r.set_attr(attr::STORAGE_CLASS, class.clone()) }
    }

    fn written(&self) -> Written {
        let version = match self.showing {
            Some(_) => null_or(&self.manifest.object.key.instance),
            None => Bytes::new(),
        };
        Written { modified: self.finish.now, version, overtaken: false }
    }

    fn complete(self, reply: Reply, old: Option<Head>) -> Plan<Made> {
        // A name that has no versions yet needs nothing that says which one it shows.
        let links = self.has_id() || old.as_ref().is_some_and(|old| old.name_tag().is_some());
        let completed = self.change.added(&reply, self.meta(), self.remove.clone());
        // The object is written: that the index does not hear of it now, it learns from listings.
        Plan::ask(completed).then(move |done| {
            let collected = match old {
                Some(old) => self.collect(&old),
                None => Plan::ok(()),
            };
            // A version that the index does not know cannot be shown.
            let elsewhere = match done {
                Err(Error::Rados(Errno::ENOENT)) => true,
                Err(Error::Resharding) => self.showing.is_some(),
                _ => false,
            };
            collected.then(move |_| match elsewhere {
                true => self.complete_where_it_is(reply, links),
                false => self.show(reply, links),
            })
        })
    }

    /// Hands the tail of the head that was replaced to garbage collection.
    fn collect(&self, old: &Head) -> Plan<()> {
        let mut objects = waste(&self.site, old);
        if self.keeps_tail {
            let own = garbage::tail(&self.site, &self.manifest, &self.object);
            let kept: BTreeSet<_> = own.into_iter().map(|object| (object.pool, object.oid)).collect();
            objects.retain(|object| !kept.contains(&(object.pool.clone(), object.oid.clone())));
        }
        garbage::collect(&self.site, objects, old.tail_tag())
    }

    /// Shows what was written, where its name has versions.
    fn show(self, reply: Reply, links: bool) -> Plan<Made> {
        if !links && self.showing.is_some() {
            return self.show_alone(reply, TRIES);
        }
        let (id, written) = (self.manifest.object.key.instance.clone(), self.written());
        // What parts are made into is not taken back: they would go with it.
        let may_go = !self.keeps_tail;
        match self.showing.filter(|_| links) {
            None => Plan::ok(Made { written, failed: None }),
            Some(showing) => {
                showing.link(id, may_go).then(move |shown| Plan::ok(Made { written, failed: shown.err() }))
            }
        }
    }

    /// Shows what was written under a name that was not there: its last version may have gone just then, and
    /// the index take it for one of several, or forget it with what stood for these.
    fn show_alone(self, reply: Reply, tries: u32) -> Plan<Made> {
        let stands = self.site.plain_entry(&self.bucket, &self.manifest.object.key);
        stands.then(move |entry| match entry {
            Ok(Some(entry)) if entry.has(VERSION_MARKER) => {
                let again = self.clone();
                self.show(reply.clone(), true).then(move |made| match made {
                    // What stood for several versions went just now.
                    Ok(Made { failed: Some(Error::NoSuchBucket), .. }) if tries > 0 => {
                        again.show_alone(reply, tries - 1)
                    }
                    made => Plan::Done(made),
                })
            }
            Ok(None) if tries > 0 => {
                let prepared = self.change.clone().prepare_add(&self.site, self.bucket.clone());
                prepared.then(move |prepared| {
                    let this = match prepared {
                        Ok(Prepared { bucket, change, .. }) => Self { change, ..self.in_bucket(bucket) },
                        Err(_) => self,
                    };
                    let added = this.change.added(&reply, this.meta(), Vec::new());
                    Plan::ask(added).then(move |_| this.show_alone(reply, tries - 1))
                })
            }
            _ => Plan::ok(Made { written: self.written(), failed: None }),
        })
    }

    /// The index is not where it was: it moved, or its bucket is gone, and with it what was written.
    fn complete_where_it_is(self, reply: Reply, links: bool) -> Plan<Made> {
        let (change, site) = (self.change.clone(), self.site.clone());
        let (head, meta, remove) = (reply.clone(), self.meta(), self.remove.clone());
        let completed = self.site.follow(self.bucket.clone(), move |bucket| {
            let change = match change.in_bucket(&site, bucket) {
                Ok(change) => change,
                Err(e) => return Plan::failed(e),
            };
            let added = Plan::ask(change.added(&head, meta.clone(), remove.clone()));
            added.then(|done| match done {
                Err(Error::Rados(Errno::ENOENT)) => Plan::failed(Error::NoSuchBucket),
                Err(Error::Resharding) => Plan::failed(Error::Resharding),
                // What it does not take, it learns from listings.
                _ => Plan::ok(change),
            })
        });
        completed.then(move |completed| match completed {
            Ok((bucket, change)) => Self { change, ..self.in_bucket(bucket) }.show(reply, links),
            Err(Error::NoSuchBucket) => {
                let written = self.written();
                let is = Op::AttrIs { name: Bytes::from_static(attr::ID_TAG), value: self.tag };
                let undo = Request::new(self.object).op(is).op(Op::Remove { may_miss: true });
                Plan::ask(undo).then(move |undone| match undone {
                    Ok(_) => Plan::failed(Error::NoSuchBucket),
                    Err(_) => Plan::ok(Made { written, failed: Some(Error::NoSuchBucket) }),
                })
            }
            Err(e) => Plan::ok(Made { written: self.written(), failed: Some(e) }),
        })
    }

    /// What listings show.
    fn meta(&self) -> Meta {
        Meta {
            category: MAIN,
            size: self.manifest.size,
            accounted_size: self.finish.accounted_size.unwrap_or(self.manifest.size),
            storage_class: self.manifest.tail.placement.storage_class.clone(),
            ..listed_meta(&self.finish.attrs, self.finish.now)
        }
    }
}

/// The tail of a head that is no more.
pub(crate) fn waste(site: &Site, old: &Head) -> Vec<RawObject> {
    old.manifest.as_ref().map(|m| garbage::tail(site, m, &old.object)).unwrap_or_default()
}

//! Uploads in parts. Source: RGWInitMultipart and RGWCompleteMultipart in src/rgw/rgw_op.cc,
//! MultipartObjectProcessor in src/rgw/rgw_putobj_processor.cc, src/rgw/rgw_multi.cc.
//!
//! 1. An upload is an object of its own, whose omap has the parts. While it is there, they are.
//! 2. Of two that complete or give up an upload, one holds its lock.
//! 3. What the whole's manifest names is never handed to garbage collection on the way: an upload is marked
//!    with the tag of the whole before that is written. Where the mark leaves it open whether parts are an
//!    object's, they stay.
//! 4. Parts are handed to garbage collection after their upload is gone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use classes::client::{lock, object, refcount};
use codec::{Decode, Encode};
use rgw::index::{Key as IndexKey, Meta};
use rgw::{
    Cipher, Cksum, Compression, Encryption, Key, Manifest, Object, PartInfo, PlacementRule, RawObject,
    UploadInfo,
};
use types::{Errno, RealTime, Utime};

use super::change::{Change, Prepared};
use super::put::{Made, NewHead, waste};
use super::remove::remove_head;
use super::versions::{Showing, is_versioned, null_or};
use super::{Condition, Finish, Head, SharedBucket, Written, attr, listed_meta, named};
use crate::plan::optional;
use crate::system::{Attrs, own};
use crate::{Error, Moment, Op, Plan, Reply, Request, Site, garbage};

/// In front of ids of uploads whose parts' keys sort by their numbers. Source:
/// MULTIPART_UPLOAD_ID_PREFIX in src/rgw/rgw_multi.h.
const ID: &[u8] = b"2~";
/// Behind the names of uploads. Source: MP_META_SUFFIX.
pub(crate) const META: &[u8] = b".meta";
/// Source: RGW_OBJ_NS_MULTIPART in src/rgw/rgw_common.h.
pub(crate) const NAMESPACE: &[u8] = b"multipart";
/// Category of uploads in an index. Source: RGWObjCategory::MultiMeta.
pub(crate) const UPLOADS: u8 = 3;
const LOCK: &[u8] = b"RGWCompleteMultipart";
/// An upload's attribute: what its object's head is tagged with, with a zero behind it, and the id of its
/// version, written before that head is. radosgw takes no notice of it.
const COMPLETED_AS: &[u8] = b"user.rgw.loligo.completed_as";
/// In front of attributes that uploads have, and objects do not.
const OF_UPLOADS: &[u8] = b"user.rgw.loligo.";
/// Source: rgw_mp_lock_max_time in src/common/options.cc.
const LOCK_S: u32 = 600;
/// Source: ClsLockType::EXCLUSIVE in src/cls/lock/cls_lock_types.h.
const EXCLUSIVE: u8 = 1;
/// Parts of one upload. Source: rgw_multipart_part_upload_limit.
pub const MAX_PARTS: u32 = 10_000;
/// Bytes of all parts but the last, at least. Source: rgw_multipart_min_part_size.
pub const MIN_PART: u64 = 5 << 20;
/// Parts that one request reads.
const PAGE: u64 = 1000;

/// An upload of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UploadId {
    /// The object's name.
    pub name: Bytes,
    pub id: Bytes,
}

impl UploadId {
    /// The object's name and the upload's id, as all objects of the upload begin.
    fn prefix(&self) -> Bytes {
        [&self.name[..], b".", &self.id].concat().into()
    }

    fn key(&self) -> Key {
        Key::within(NAMESPACE, [&self.prefix()[..], META].concat())
    }

    /// The upload that an entry of an index is of.
    pub fn from_name(name: &Bytes) -> Option<Self> {
        let whole = name.slice(..name.strip_suffix(META)?.len());
        let dot = whole.iter().rposition(|b| *b == b'.')?;
        Some(Self { name: whole.slice(..dot), id: whole.slice(dot + 1..) })
    }
}

fn part_key(number: u32) -> Bytes {
    format!("part.{number:08}").into()
}

/// A part that is being written.
#[derive(Debug)]
pub struct Part {
    site: Site,
    bucket: SharedBucket,
    upload: UploadId,
    number: u32,
    manifest: Manifest,
    stripe: bytes::BytesMut,
    written: Vec<RawObject>,
    /// In the name of a part that was uploaded before.
    spare: Bytes,
    tag: Bytes,
    /// What the upload is encrypted with, and its key.
    encryption: Option<Encryption>,
    cipher: Option<Arc<Cipher>>,
    /// What the upload was begun with.
    begun: Attrs,
}

/// What is known when all bytes of a part are there.
#[derive(Debug, Clone)]
pub struct FinishPart {
    /// ACL and the like.
    pub attrs: Attrs,
    pub etag: Bytes,
    pub accounted_size: Option<u64>,
    pub compression: Compression,
    pub checksum: Option<Cksum>,
    pub now: RealTime,
}

/// What a whole has of its parts besides; or why these are not taken.
pub type OfParts = Box<dyn Fn(&[PartInfo]) -> Result<Attrs, Error> + Send>;

/// What completes an upload.
pub struct Complete {
    /// Numbers and etags of all its parts, in order.
    pub parts: Vec<(u32, Bytes)>,
    /// Makes the whole's etag of those of the parts.
    pub etag: fn(&[Bytes]) -> Bytes,
    /// What must hold for the object that is there.
    pub condition: Condition,
    pub of_parts: Option<OfParts>,
    /// Of `number` no two requests of this gateway have the same.
    pub number: u64,
    pub now: RealTime,
}

impl Site {
    fn upload_object(&self, bucket: &SharedBucket, upload: &UploadId) -> Result<RawObject, Error> {
        self.head_object(bucket, &upload.key())
    }

    /// Begins an upload. Its attributes become the whole's.
    pub fn begin_upload(
        &self,
        bucket: &SharedBucket,
        name: Bytes,
        placement: PlacementRule,
        attrs: Attrs,
        moment: &mut Moment,
    ) -> Plan<UploadId> {
        let id = [ID, &moment.letters(31)[..]].concat().into();
        let (upload, now) = (UploadId { name, id }, moment.now);
        let tag = [b"_", &moment.letters(31)[..]].concat().into();
        let made = named(&Key::plain(upload.name.clone()))
            .and_then(|()| self.placement(&placement).map(|_| ()))
            .and_then(|()| Change::new(self, bucket, &upload.key(), &upload.name, tag))
            .and_then(|change| Ok((change, self.upload_object(bucket, &upload)?)));
        let (change, object) = match made {
            Ok(made) => made,
            Err(e) => return Plan::failed(e),
        };
        let is_sealed = Encryption::told_by(&attrs).is_some_and(|e| e.is_unknown_to_16_2());
        let data = UploadInfo { placement, is_sealed }.to_bytes();
        let size = data.len() as u64;
        let keep = object::RemoveArgs { keep: vec![Bytes::from_static(attr::OLH)] };
        let request = Request::new(object)
            .at(now)
            .op(Op::Create { exclusive: false })
            .call(&object::REMOVE, &keep)
            .op(Op::WriteFull(data));
        let request = with_attrs(request, &attrs);
        let meta = Meta { category: UPLOADS, size, ..listed_meta(&attrs, now) };
        change.prepare_add(self, bucket.clone()).and_then(move |Prepared { change, .. }| {
            Plan::ask(request).then(move |done| match done {
                Ok(reply) => {
                    Plan::ask(change.added(&reply, meta, Vec::new())).then(move |_| Plan::ok(upload))
                }
                Err(e) => Plan::ask(change.cancelled()).then(move |_| Plan::failed(e)),
            })
        })
    }

    /// Begins a part.
    pub fn put_part(
        &self,
        bucket: &SharedBucket,
        upload: UploadId,
        number: u32,
        moment: &mut Moment,
    ) -> Plan<Part> {
        if !(1..=MAX_PARTS).contains(&number) {
            return Plan::failed(Error::InvalidPart);
        }
        let object = match self.upload_object(bucket, &upload) {
            Ok(object) => object,
            Err(e) => return Plan::failed(e),
        };
        let (site, bucket) = (self.clone(), bucket.clone());
        let (spare, tag) = (moment.letters(31), [b"_", &moment.letters(31)[..]].concat().into());
        let read = Request::new(object).op(Op::Read { offset: 0, length: 0 }).op(Op::Attrs);
        no_upload(Plan::ask(read)).try_map(move |reply| {
            let placement = UploadInfo::from_bytes(reply.data(0)?)?.placement;
            let begun = own(reply.attrs(1)?);
            let encryption = Encryption::told_by(&begun);
            let whole = Object { bucket: bucket.bucket.clone(), key: Key::plain(upload.name.clone()) };
            let stripe = super::put::STRIPE;
            let manifest = Manifest::part(whole, placement, upload.prefix(), number, 0, stripe);
            let (stripe, written) = (bytes::BytesMut::new(), Vec::new());
            let cipher = None;
            Ok(Part {
                site,
                bucket,
                upload,
                number,
                manifest,
                stripe,
                written,
                spare,
                tag,
                encryption,
                cipher,
                begun,
            })
        })
    }

    /// Parts behind a number, at most a thousand, and whether more follow.
    pub fn parts(&self, bucket: &SharedBucket, upload: &UploadId, after: u32) -> Plan<(Vec<PartInfo>, bool)> {
        let object = match self.upload_object(bucket, upload) {
            Ok(object) => object,
            Err(e) => return Plan::failed(e),
        };
        let list = Op::OmapList { after: part_key(after), max: PAGE };
        no_upload(Plan::ask(Request::new(object).op(list))).try_map(|reply| {
            let Some(crate::Output::Page { entries, more }) = reply.outputs.into_iter().next() else {
                return Err(Error::Unexpected);
            };
            let parts = entries.into_iter().filter(|(key, _)| key.starts_with(b"part."));
            Ok((parts.map(|(_, raw)| PartInfo::from_bytes(raw)).collect::<Result<_, _>>()?, more))
        })
    }

    /// What an upload was begun with.
    pub fn upload_attrs(&self, bucket: &SharedBucket, upload: &UploadId) -> Plan<Attrs> {
        match self.upload_object(bucket, upload) {
            Ok(object) => no_upload(Plan::ask(Request::new(object).op(Op::Attrs)))
                .try_map(|reply| Ok(own(reply.attrs(0)?))),
            Err(e) => Plan::failed(e),
        }
    }

    fn all_parts(
        &self,
        bucket: &SharedBucket,
        upload: &UploadId,
        known: Vec<PartInfo>,
    ) -> Plan<Vec<PartInfo>> {
        let after = known.last().map_or(0, |part| part.number);
        let (site, bucket, upload) = (self.clone(), bucket.clone(), upload.clone());
        self.parts(&bucket, &upload, after).and_then(move |(page, more)| {
            let ahead = page.last().is_some_and(|part| part.number > after);
            let known: Vec<PartInfo> = known.into_iter().chain(page).collect();
            let goes_on = more && ahead && known.len() <= MAX_PARTS as usize;
            if goes_on { site.all_parts(&bucket, &upload, known) } else { Plan::ok(known) }
        })
    }

    /// Takes an upload's lock; ENOENT where there is none.
    fn lock_upload(&self, object: RawObject) -> Plan<()> {
        let args = lock::LockArgs {
            name: Bytes::from_static(LOCK),
            kind: EXCLUSIVE,
            cookie: Bytes::new(),
            tag: Bytes::new(),
            description: Bytes::new(),
            duration: Utime::new(LOCK_S, 0),
            flags: 0,
        };
        let request = Request::new(object).op(Op::Stat).call(&lock::LOCK, &args);
        no_upload(Plan::ask(request)).when(Error::Rados(Errno::EBUSY), Error::Raced).try_map(|_| Ok(()))
    }

    fn unlock_upload<T: Send + 'static>(object: RawObject, result: Result<T, Error>) -> Plan<T> {
        let args = lock::UnlockArgs { name: Bytes::from_static(LOCK), cookie: Bytes::new() };
        optional(Plan::ask(Request::new(object).call(&lock::UNLOCK, &args))).then(|_| Plan::Done(result))
    }

    /// Makes the object of its parts.
    pub fn complete_upload(
        &self,
        bucket: &SharedBucket,
        upload: UploadId,
        complete: Complete,
        moment: &mut Moment,
    ) -> Plan<Written> {
        let tags = [self.unique(complete.number), [b"_", &moment.letters(31)[..]].concat().into()];
        let key = self.new_key(bucket, Key::plain(upload.name.clone()), moment);
        let showing = is_versioned(bucket).then(|| self.showing(bucket, &key, moment));
        let object = match self.upload_object(bucket, &upload) {
            Ok(object) => object,
            Err(e) => return Plan::failed(e),
        };
        let site = self.clone();
        let bucket = bucket.clone();
        self.lock_upload(object.clone()).and_then(move |()| {
            let [tag, end_tag] = tags;
            let ending = site.ending(&bucket, upload, end_tag);
            let whole = Whole { key, showing, tag };
            ending.and_then(move |ending| ending.assemble(complete, whole)).then(move |done| match done {
                // The lock is gone with the upload.
                Ok(written) => Plan::ok(written),
                Err(e) => Self::unlock_upload(object, Err(e)),
            })
        })
    }

    /// Removes an upload and its parts. One whose parts became an object is no upload any more.
    pub fn abort_upload(&self, bucket: &SharedBucket, upload: UploadId, moment: &mut Moment) -> Plan<()> {
        let tag: Bytes = [b"_", &moment.letters(31)[..]].concat().into();
        let object = match self.upload_object(bucket, &upload) {
            Ok(object) => object,
            Err(e) => return Plan::failed(e),
        };
        let (site, bucket) = (self.clone(), bucket.clone());
        self.lock_upload(object.clone()).and_then(move |()| {
            site.ending(&bucket, upload, tag).and_then(Ending::abort).then(move |done| match done {
                Ok(()) => Plan::ok(()),
                Err(e) => Self::unlock_upload(object, Err(e)),
            })
        })
    }

    /// What is known of an upload that is to go.
    fn ending(&self, bucket: &SharedBucket, upload: UploadId, tag: Bytes) -> Plan<Ending> {
        let change = match Change::new(self, bucket, &upload.key(), &upload.name, tag) {
            Ok(change) => change,
            Err(e) => return Plan::failed(e),
        };
        let parts = self.all_parts(bucket, &upload, Vec::new());
        let (site, bucket) = (self.clone(), bucket.clone());
        self.head(&bucket, &upload.key(), 0).and_then(move |head| match head {
            None => Plan::failed(Error::NoSuchUpload),
            Some(head) => parts.and_then(move |parts| {
                let head = Head { manifest: None, ..head };
                Plan::ok(Ending { site, bucket, upload, head, parts, change })
            }),
        })
    }
}

/// An upload that is completed or given up, by who has its lock.
struct Ending {
    site: Site,
    bucket: SharedBucket,
    upload: UploadId,
    head: Head,
    parts: Vec<PartInfo>,
    change: Change,
}

/// What an upload's object becomes.
struct Whole {
    key: Key,
    /// In a bucket that keeps versions.
    showing: Option<Showing>,
    tag: Bytes,
}

/// What an attempt to complete an upload said before it wrote the object.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Mark {
    tag: Bytes,
    version: Bytes,
}

impl Mark {
    fn of(raw: &Bytes) -> Self {
        let end = raw.iter().position(|b| *b == 0).map_or(raw.len(), |at| at + 1);
        Self { tag: raw.slice(..end), version: raw.slice(end..) }
    }
}

impl Ending {
    /// Makes the object, unless an attempt that died had made it.
    fn assemble(self, complete: Complete, made_of: Whole) -> Plan<Written> {
        let showing = made_of.showing.clone();
        let Self { site, bucket, upload, head, parts, .. } = &self;
        let new = match whole(site, bucket, upload, head, parts, &complete, made_of) {
            Ok(new) => new,
            Err(e) => return Plan::failed(e),
        };
        let Some(mark) = self.mark() else { return self.write(new, None) };
        self.settled(&mark, showing.clone()).and_then(move |made| match made {
            Some(made) if made.tail_tag() == mark.tag => {
                let version = showing.as_ref().map_or_else(Bytes::new, |_| null_or(&mark.version));
                let written = Written { modified: made.modified, version, overtaken: false };
                let shown = match showing {
                    None => Plan::ok(()),
                    Some(showing) => {
                        let own = mark.tag.strip_suffix(b"\0").unwrap_or(&mark.tag);
                        let tag = Bytes::copy_from_slice(own);
                        self.site.show_once(&self.bucket, showing, mark.version, tag)
                    }
                };
                shown.and_then(move |()| self.remove(true).then(move |_| Plan::ok(written)))
            }
            // The attempt's object was never there, or another one took its place and its tail is garbage.
            _ => self.hold(new),
        })
    }

    /// Writes the object with references of its own to all of its parts, if they are still there.
    fn hold(self, new: NewHead) -> Plan<Written> {
        let tail = garbage::tail(&self.site, &new.manifest, &new.object);
        let args = refcount::TagArgs { tag: new.tail_tag.clone(), implicit: true };
        let get = |o: &RawObject| Request::new(o.clone()).op(Op::Stat).call(&refcount::GET, &args);
        Plan::ask_each(tail.iter().map(get).collect()).and_then(move |replies| {
            let failed = replies.iter().find_map(|reply| reply.as_ref().err().copied());
            let Some(e) = failed else { return self.write(new, Some(tail)) };
            let given = tail.into_iter().zip(&replies).filter(|(_, reply)| reply.is_ok());
            garbage::remove_now(given.map(|(object, _)| object).collect(), new.tail_tag)
                .then(move |_| no_upload(Plan::failed(e.into())))
        })
    }

    /// `held` are objects that the new head has references to: without them its tail is the parts' own.
    fn write(self, new: NewHead, held: Option<Vec<RawObject>>) -> Plan<Written> {
        let mark = lock_held(Request::new(self.head.object.clone()).op(Op::Stat));
        let version = &new.manifest.object.key.instance;
        let first = mark.set_attr(COMPLETED_AS, [&new.tail_tag[..], version].concat());
        let tag = new.tail_tag.clone();
        let made = no_upload(NewHead { first: Some(first), keeps_tail: held.is_none(), ..new }.write());
        let (given, of) = (held.clone().unwrap_or_default(), tag.clone());
        let made = made.then(move |made| match made {
            // The head that has these references is not there.
            Err(e) if !e.is_unclear() => garbage::remove_now(given, of).then(move |_| Plan::failed(e)),
            made => Plan::Done(made),
        });
        made.when(Error::Rados(Errno::EBUSY), Error::Raced).and_then(move |Made { written, failed }| {
            if let Some(e) = failed {
                return Plan::failed(e);
            }
            let site = self.site.clone();
            // An upload that stays is seen in the list of uploads, and who ends it finds the object.
            match (written.overtaken, held) {
                (false, _) => self.remove(false).then(move |_| Plan::ok(written)),
                (true, Some(held)) => self
                    .remove(true)
                    .and_then(move |()| garbage::collect(&site, held, tag))
                    .then(move |_| Plan::ok(written)),
                (true, None) => self.discard().then(move |_| Plan::ok(written)),
            }
        })
    }

    /// What the object's head will be tagged with, or was, by an attempt to complete the upload.
    fn mark(&self) -> Option<Mark> {
        self.head.attrs.get(COMPLETED_AS).map(Mark::of)
    }

    /// The object that an attempt may have made.
    fn made(&self, mark: &Mark) -> Plan<Option<Head>> {
        let key = Key { instance: mark.version.clone(), ..Key::plain(self.upload.name.clone()) };
        self.site.head(&self.bucket, &key, 0)
    }

    /// The same when what was begun at a name that has versions is done.
    fn settled(&self, mark: &Mark, showing: Option<Showing>) -> Plan<Option<Head>> {
        let again = self.made(mark);
        self.made(mark).and_then(move |made| {
            let changing = showing.zip(made.clone()).filter(|(_, made)| made.is_changing());
            match changing {
                None => Plan::ok(made),
                Some((showing, name)) => showing.catch_up(&name).then(move |done| match done {
                    Ok(()) | Err(Error::Raced) => again,
                    Err(e) => Plan::failed(e),
                }),
            }
        })
    }

    fn abort(self) -> Plan<()> {
        let Some(mark) = self.mark() else { return self.discard() };
        // An attempt to complete it may have made the object, whose tail is somebody's then: parts that are
        // nobody's stay behind, rather than that an object loses them.
        self.made(&mark).and_then(move |made| {
            let completed = made.is_some_and(|made| made.tail_tag() == mark.tag);
            let result = if completed { Err(Error::NoSuchUpload) } else { Ok(()) };
            self.remove(true).and_then(move |()| Plan::Done(result))
        })
    }

    /// Removes the upload first: parts that no upload names any more are in no object but those that have
    /// them already, as one that another gateway made of them and died.
    fn discard(self) -> Plan<()> {
        let (site, tag) = (self.site.clone(), self.upload.id.clone());
        let of_part = |part: &PartInfo| garbage::tail(&site, &part.manifest, &RawObject::default());
        let mut objects: Vec<RawObject> = self.parts.iter().flat_map(of_part).collect();
        let name = Key::plain(self.upload.name.clone());
        let made = self.site.shown_by(&self.bucket, &name, 0, self.change.tag.clone());
        self.remove(true).and_then(move |()| made).and_then(move |made| {
            let kept = made.map(|made| waste(&site, &made)).unwrap_or_default();
            let kept: BTreeSet<_> = kept.into_iter().map(|o| (o.pool, o.oid)).collect();
            objects.retain(|o| !kept.contains(&(o.pool.clone(), o.oid.clone())));
            garbage::collect(&site, objects, tag)
        })
    }

    /// Removes the upload, with entries of its parts where nothing else did.
    fn remove(self, with_parts: bool) -> Plan<()> {
        let Self { site, bucket, upload, head, parts, change } = self;
        let parts = parts.iter().filter(|_| with_parts).flat_map(|part| entries(&upload, part)).collect();
        let object = head.object.clone();
        let request = Request::new(object.clone());
        // As long as parts go with it nobody else may have begun to make an object of them.
        let request = if with_parts { lock_held(request) } else { request };
        let removed = remove_head((site, bucket), head, request, change, parts);
        removed.when(Error::Rados(Errno::EBUSY), Error::Raced).then(move |done| match done {
            Ok(()) => Plan::ok(()),
            Err(e) => Site::unlock_upload(object, Err(e)),
        })
    }
}

/// Holds a request to the lock of who sends it.
fn lock_held(request: Request) -> Request {
    let (name, empty) = (Bytes::from_static(LOCK), Bytes::new());
    let args = lock::AssertArgs { name, kind: EXCLUSIVE, cookie: empty.clone(), tag: empty };
    request.call(&lock::ASSERT, &args)
}

fn no_upload<T: Send + 'static>(plan: Plan<T>) -> Plan<T> {
    plan.when(Error::Rados(Errno::ENOENT), Error::NoSuchUpload)
}

/// Attributes of a head that is no object of clients'.
fn with_attrs(request: Request, attrs: &Attrs) -> Request {
    let args = object::StoreVersionArgs { attr: Bytes::from_static(attr::PG_VERSION) };
    let given = attrs.iter().filter(|(_, value)| !value.is_empty());
    given
        .fold(request, |r, (name, value)| r.set_attr(name.clone(), value.clone()))
        .call(&object::STORE_VERSION, &args)
        .set_attr(attr::SOURCE_ZONE, 0u32.to_bytes())
}

/// Entries of a part in the index: radosgw removes the one that parts have which were uploaded once.
fn entries(upload: &UploadId, part: &PartInfo) -> Vec<IndexKey> {
    let usual =
        Key::within(NAMESPACE, [&upload.prefix()[..], format!(".{}", part.number).as_bytes()].concat());
    let own = part.manifest.stripe_at(0).map(|stripe| stripe.object.key).filter(|own| *own != usual);
    own.iter().chain([&usual]).map(|key| IndexKey::plain(key.index_name())).collect()
}

/// The head of a whole, if the parts are those that the caller knows.
fn whole(
    site: &Site,
    bucket: &SharedBucket,
    upload: &UploadId,
    head: &Head,
    parts: &[PartInfo],
    complete: &Complete,
    made_of: Whole,
) -> Result<NewHead, Error> {
    let Whole { key, showing, tag } = made_of;
    if parts.is_empty() || parts.len() != complete.parts.len() {
        return Err(Error::InvalidPart);
    }
    let (mut manifest, mut compression) = (Manifest::default(), Compression::default());
    let (mut accounted, mut remove) = (0u64, Vec::new());
    for (n, (part, (number, etag))) in parts.iter().zip(&complete.parts).enumerate() {
        let alike = n == 0 || part.compression.kind == compression.kind;
        if part.number != *number || part.etag != *etag || !alike || !manifest.append(&part.manifest) {
            return Err(Error::InvalidPart);
        }
        if n + 1 < parts.len() && part.accounted_size < MIN_PART {
            return Err(Error::PartTooSmall);
        }
        join(&mut compression, &part.compression);
        accounted = accounted.saturating_add(part.accounted_size);
        remove.extend(entries(upload, part));
    }
    let mut attrs = head.attrs.clone();
    attrs.retain(|name, _| !name.starts_with(OF_UPLOADS));
    if let Some(of_parts) = &complete.of_parts {
        attrs.extend(of_parts(parts)?);
    }
    let etags: Vec<Bytes> = parts.iter().map(|part| part.etag.clone()).collect();
    attrs.insert(Bytes::from_static(attr::ETAG), (complete.etag)(&etags));
    if compression.kind != Compression::default().kind {
        attrs.insert(Bytes::from_static(attr::COMPRESSION), compression.to_bytes());
    }
    let change = Change::new(site, bucket, &key, &key.name, tag.clone())?;
    manifest.object.key = key.clone();
    Ok(NewHead {
        site: site.clone(),
        bucket: bucket.clone(),
        object: site.head_object(bucket, &key)?,
        data: None,
        manifest,
        tag: [&tag[..], b"\0"].concat().into(),
        tail_tag: [&tag[..], b"\0"].concat().into(),
        first: None,
        keeps_tail: true,
        unchanged: Vec::new(),
        change: if showing.is_some() { change.of_version() } else { change },
        showing,
        remove,
        finish: Finish {
            attrs,
            accounted_size: Some(accounted),
            condition: complete.condition.clone(),
            now: complete.now,
        },
    })
}

/// Puts a part's compressed blocks behind those of the parts in front of it.
fn join(whole: &mut Compression, part: &Compression) {
    let stored = whole.blocks.last().map_or(0, |last| last.stored.saturating_add(last.length));
    let mut at = stored;
    for block in &part.blocks {
        let original = block.original.saturating_add(whole.size);
        whole.blocks.push(rgw::CompressedBlock { original, stored: at, length: block.length });
        at = at.saturating_add(block.length);
    }
    whole.kind = part.kind.clone();
    whole.size = whole.size.saturating_add(part.size);
    whole.message = whole.message.or(part.message);
}

impl Part {
    /// An attribute that the upload was begun with.
    pub fn begun_with(&self, name: &[u8]) -> Option<&Bytes> {
        self.begun.get(name)
    }

    /// What the upload is encrypted with.
    pub fn encryption(&self) -> Option<&Encryption> {
        self.encryption.as_ref()
    }

    fn is_sealed(&self) -> bool {
        self.encryption.as_ref().is_some_and(Encryption::is_unknown_to_16_2)
    }

    /// The part with the key that its upload is encrypted with.
    pub fn unlocked(self, cipher: Arc<Cipher>) -> Self {
        Self { cipher: Some(cipher), ..self }
    }

    /// Takes more of the bytes; what is held is less than a stripe.
    pub fn write(mut self, mut data: Bytes) -> Plan<Self> {
        let stripe = usize::try_from(super::put::STRIPE).unwrap_or(usize::MAX);
        let room = stripe.saturating_sub(self.stripe.len()).min(data.len());
        self.stripe.extend_from_slice(&data.split_to(room));
        self.manifest.size += room as u64;
        if self.stripe.len() < stripe {
            return Plan::ok(self);
        }
        self.flush().and_then(move |part| if data.is_empty() { Plan::ok(part) } else { part.write(data) })
    }

    /// Where the last stripe lies.
    fn place(&self) -> Result<RawObject, Error> {
        let last = self.manifest.size.saturating_sub(1);
        // A part of nothing has an object all the same.
        let sized = Manifest { size: self.manifest.size.max(1), ..self.manifest.clone() };
        let stripe = sized.stripe_at(last).ok_or(Error::Unexpected)?;
        self.site.raw(&stripe.object, &stripe.placement)
    }

    /// Writes the stripe that is held.
    fn flush(mut self) -> Plan<Self> {
        let mut data = self.stripe.split();
        match (&self.encryption, &self.cipher) {
            (None, _) => {}
            (Some(_), Some(cipher)) => {
                let last = self.manifest.size.saturating_sub(1);
                cipher.encrypt(&mut data, last - last % super::put::STRIPE);
            }
            (Some(_), None) => return self.give_up(Error::Encrypted),
        }
        self.store(data.freeze())
    }

    /// Writes a stripe as it is stored. The first one makes an object that nobody has: a part that was
    /// uploaded before is another one, and stays as it was until the list of parts says otherwise.
    fn store(mut self, data: Bytes) -> Plan<Self> {
        let first = self.written.is_empty();
        let object = match self.place() {
            Ok(object) => object,
            Err(e) => return self.give_up(e),
        };
        let mut request = Request::new(object.clone());
        if first {
            request = request.op(Op::Create { exclusive: true });
        }
        Plan::ask(request.op(Op::WriteFull(data.clone()))).then(move |done| match done {
            Ok(_) => {
                self.written.push(object);
                Plan::ok(self)
            }
            Err(Error::Rados(Errno::EEXIST)) if first && !self.spare.is_empty() => {
                let spare = std::mem::take(&mut self.spare);
                self.manifest.prefix = [&self.upload.name[..], b".", &spare].concat().into();
                self.store(data)
            }
            Err(e) => {
                // It may have been written. Of the first it is not known whose it is: a part that was
                // uploaded before may lie under this name.
                self.written.extend(Some(object).filter(|_| !first));
                self.give_up(e)
            }
        })
    }

    /// Removes what was written, and fails with `why`. As long as the first stripe is there nobody else
    /// writes under these names: it goes when the others are gone, and stays where one of them may be left.
    pub fn give_up<T: Send + 'static>(self, why: Error) -> Plan<T> {
        self.take_back().then(|_| Plan::failed(why))
    }

    /// Removes what is written so far: for whoever loses sight of the part.
    pub fn take_back(&self) -> Plan<()> {
        let (mut others, tag) = (self.written.clone(), self.tag.clone());
        let first: Vec<RawObject> = others.drain(..others.len().min(1)).collect();
        garbage::try_remove(others, tag.clone()).then(move |gone| match gone {
            Ok(true) => garbage::remove_now(first, tag),
            _ => Plan::ok(()),
        })
    }

    /// Puts the part on the upload's list, in place of an earlier one of its number.
    pub fn finish(self, finish: FinishPart) -> Plan<PartInfo> {
        if self.stripe.is_empty() && !self.written.is_empty() {
            return self.finish_list(finish);
        }
        self.flush().and_then(|part| part.finish_list(finish))
    }

    fn finish_list(self, finish: FinishPart) -> Plan<PartInfo> {
        let made = self.requests(&finish);
        let (change, head, list, info) = match made {
            Ok(made) => made,
            Err(e) => return self.give_up(e),
        };
        let meta = Meta {
            category: super::put::MAIN,
            size: info.size,
            accounted_size: info.accounted_size,
            etag: finish.etag,
            ..listed_meta(&finish.attrs, finish.now)
        };
        let undo = change.clone();
        let indexed = change.prepare_add(&self.site, self.bucket.clone()).and_then(move |prepared| {
            let added = move |reply| Plan::ask(prepared.change.added(&reply, meta, Vec::new()));
            Plan::ask(head).and_then(added)
        });
        indexed.then(move |done| {
            let listed = match done {
                Ok(_) => no_upload(Plan::ask(list)),
                Err(e) => return self.unlist(undo, e),
            };
            listed.then(move |done| match done {
                Ok(_) => Plan::ok(info),
                // It may be on the list, and in an object soon.
                Err(e) if e.is_unclear() => Plan::failed(e),
                Err(e) => self.unlist(undo, e),
            })
        })
    }

    /// Takes a part that is on no list out of the index, and gives it up.
    fn unlist(self, change: Change, why: Error) -> Plan<PartInfo> {
        let prepared = change.prepare_delete(&self.site, self.bucket.clone());
        let deleted = prepared.and_then(move |Prepared { change, reply, .. }| {
            let nothing = Reply { version: 0, ..reply };
            Plan::ask(change.deleted(&nothing, Meta::default(), Vec::new()))
        });
        deleted.then(move |_| self.give_up(why))
    }

    /// What tells of the part: its change in the index, its head's attributes, and its place on the list.
    fn requests(&self, finish: &FinishPart) -> Result<(Change, Request, Request, PartInfo), Error> {
        let size = self.manifest.size;
        let sized = Manifest { size: size.max(1), ..self.manifest.clone() };
        let first = sized.stripe_at(0).ok_or(Error::Unexpected)?;
        let hashed = &self.upload.name;
        let change = Change::new(&self.site, &self.bucket, &first.object.key, hashed, self.tag.clone())?;
        let object = self.site.raw(&first.object, &first.placement)?;
        let mut attrs = finish.attrs.clone();
        attrs.insert(Bytes::from_static(attr::ETAG), finish.etag.clone());
        let sum = finish.checksum.as_ref().map(Encode::to_bytes);
        attrs.extend(sum.map(|sum| (Bytes::from_static(attr::CKSUM), sum)));
        let head = with_attrs(Request::new(object).at(finish.now), &attrs);
        let info = PartInfo {
            number: self.number,
            size,
            etag: finish.etag.clone(),
            modified: finish.now,
            manifest: self.manifest.clone(),
            compression: match self.is_sealed() {
                true => Compression::sealed(size),
                false => finish.compression.clone(),
            },
            accounted_size: finish.accounted_size.unwrap_or(size),
            checksum: finish.checksum.clone(),
        };
        let entry = BTreeMap::from([(part_key(self.number), info.to_bytes())]);
        let upload = self.site.upload_object(&self.bucket, &self.upload)?;
        let list = Request::new(upload).op(Op::Stat).op(Op::OmapSet(entry));
        Ok((change, head, list, info))
    }
}

//! Versions of an object. Source: set_olh, unlink_obj_instance, update_olh, apply_olh_log and follow_olh in
//! src/rgw/rgw_rados.cc.
//!
//! 1. A version is an object of its own (an instance), named by its id. The object's plain name holds the OLH
//!    (object logical head), which names the current version, beside the data of the null version.
//! 2. The bucket's index decides which version is shown: it orders changes, and logs what is to be done for
//!    them. A gateway says that it begins a change at the name, has the index make it, and does what the log
//!    says.
//! 3. Whoever finds a change begun at the name does what the log says first: a gateway may have died on the
//!    way.
//! 4. A name is given up only while no change is begun and no data lies there.

use std::collections::BTreeMap;

use bytes::Bytes;
use classes::client::{index, object};
use codec::{Decode, Encode};
use rgw::index::entry::{DELETE_MARKER, VERSION_MARKER, VERSIONED};
use rgw::index::head::{LINK, REMOVE_INSTANCE, UNLINK};
use rgw::index::{Entry, HeadChange, Key as IndexKey, Meta};
use rgw::{BucketInfo, Key, Object, OlhInfo, OlhPending, Versioning};
use types::{Errno, RealTime};

use super::change::{Change, Prepared};
use super::remove::{deleted, remove_head};
use super::{Head, Lock, SharedBucket, TRIES, Wanted, attr, has_locks};
use crate::plan::optional;
use crate::system::Attrs;
use crate::{Error, Moment, Op, Plan, Reply, Request, Site, garbage};

/// Which version a name shows. Source: RGW_ATTR_OLH_INFO in src/rgw/rgw_common.h.
pub(super) const INFO: &[u8] = b"user.rgw.olh.info";
/// Epoch of the index's OLH log up to which this OLH is applied.
const EPOCH: &[u8] = b"user.rgw.olh.ver";
/// Identifies this OLH until it is removed.
pub(crate) const NAME_TAG: &[u8] = b"user.rgw.olh.idtag";
/// Prefix of the attributes that mark changes of the OLH in progress.
const PENDING: &[u8] = b"user.rgw.olh.pending.";
/// Entries under the keys that they are asked for by. Source: BIIndexType::Plain in
/// src/cls/rgw/cls_rgw_types.h.
const PLAIN: u8 = 1;
/// Seconds until a change that was begun is taken for one that nobody goes on with. Source:
/// rgw_olh_pending_timeout_sec in src/common/options.cc.
const PENDING_S: u32 = 3600;

/// Whether a bucket keeps versions, and gives new ones an id.
pub(crate) fn is_versioned(bucket: &BucketInfo) -> bool {
    bucket.flags.has(Versioning::VERSIONED)
}

pub(crate) fn gives_ids(bucket: &BucketInfo) -> bool {
    // Where versions can have locks, none takes the place of another one.
    is_versioned(bucket) && (has_locks(bucket) || !bucket.flags.has(Versioning::VERSIONS_SUSPENDED))
}

/// The version that clients call `null` has no id.
pub(crate) fn without_null(mut key: Key) -> Key {
    if key.instance.as_ref() == b"null" {
        key.instance = Bytes::new();
    }
    key
}

/// Made-up letters that a change of what a name shows needs.
#[derive(Debug, Clone)]
struct Letters {
    /// Of the change.
    op: Bytes,
    /// Of the name, if it gets its tags now.
    id: Bytes,
    name: Bytes,
    /// Of removals that the change brings with it.
    removal: Bytes,
}

/// A change of what a name shows.
#[derive(Debug, Clone)]
pub(crate) struct Showing {
    site: Site,
    bucket: SharedBucket,
    /// Without a version's id.
    key: Key,
    letters: Letters,
    now: RealTime,
}

/// What the index is to do.
#[derive(Debug, Clone)]
enum Step {
    /// Shows a version, or a delete marker with what listings say of it.
    Link(Bytes, Option<Meta>),
    Unlink(Bytes),
    /// Lists a version with what is known of it, at the epoch that it has.
    List(Bytes, u64),
}

/// Who removes an object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Remover {
    /// Of the delete marker that may come.
    pub owner: rgw::Owner,
    /// Retentions that let themselves be bypassed keep nothing.
    pub bypasses: bool,
    /// What must hold of what goes.
    pub wanted: Wanted,
}

/// What a removal did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Removed {
    /// The version that went or, where a delete marker came, the marker's; empty in a bucket without
    /// versions.
    pub version: Bytes,
    /// A delete marker came, or went.
    pub is_marker: bool,
}

impl Head {
    fn olh(&self, name: &[u8]) -> Option<&Bytes> {
        self.attrs.get(name)
    }

    /// The tag of a name that has versions.
    pub(crate) fn name_tag(&self) -> Option<&Bytes> {
        self.olh(NAME_TAG)
    }

    pub(crate) fn shows_versions(&self) -> bool {
        self.olh(INFO).is_some()
    }

    fn pending(&self) -> impl Iterator<Item = (&Bytes, &Bytes)> {
        self.attrs.iter().filter(|(name, _)| name.starts_with(PENDING))
    }

    pub(crate) fn is_changing(&self) -> bool {
        self.pending().next().is_some()
    }

    /// Whether data lies here, as that of the version without an id.
    pub(super) fn has_data(&self) -> bool {
        self.manifest.is_some() || (self.name_tag().is_none() && !self.shows_versions())
    }
}

impl Site {
    /// A change of what the name of a key shows.
    pub(crate) fn showing(&self, bucket: &SharedBucket, key: &Key, moment: &mut Moment) -> Showing {
        let letters = Letters {
            op: moment.lower_letters(16),
            id: moment.lower_letters(32),
            name: moment.lower_letters(32),
            removal: [b"_", &moment.letters(31)[..]].concat().into(),
        };
        let key = Key { instance: Bytes::new(), ..key.clone() };
        Showing { site: self.clone(), bucket: bucket.clone(), key, letters, now: moment.now }
    }

    /// The key of what is written under a name: with an id where the bucket gives versions some.
    pub(crate) fn new_key(&self, bucket: &BucketInfo, key: Key, moment: &mut Moment) -> Key {
        let key = without_null(key);
        let gets_id = gives_ids(bucket) && key.instance.is_empty();
        if gets_id { Key { instance: moment.version_id(), ..key } } else { key }
    }

    /// The head of the version that a key names: of the one that is shown, where it names none. What was
    /// begun at the name is done first: such a plan is to be carried out to its end.
    pub fn shown(
        &self,
        bucket: &SharedBucket,
        key: &Key,
        prefetch: u64,
        moment: &mut Moment,
    ) -> Plan<Option<Head>> {
        self.shown_by(bucket, key, prefetch, [b"_", &moment.letters(31)[..]].concat().into())
    }

    /// The same, with the tag of the removals that this brings with it: no other request has it.
    pub(crate) fn shown_by(
        &self,
        bucket: &SharedBucket,
        key: &Key,
        prefetch: u64,
        removal: Bytes,
    ) -> Plan<Option<Head>> {
        // With such an id, the name in RADOS would be that of another key's version.
        if key.instance.contains(&b'_') {
            return Plan::ok(None);
        }
        let look =
            Looking { site: self.clone(), bucket: bucket.clone(), key: key.clone(), prefetch, removal };
        look.go_on(TRIES)
    }

    /// Removes an object: the version that a key names, or what is shown, in whose place a delete marker
    /// comes where the bucket keeps versions. `NoSuchKey` where there is nothing to remove, `Versioned` where
    /// the bucket, as it is known here, has no versions with ids: it may have by now; `Locked` where a lock
    /// keeps the version; `PreconditionFailed` where it is not what is wanted.
    pub fn remove_version(
        &self,
        bucket: &SharedBucket,
        key: Key,
        by: &Remover,
        moment: &mut Moment,
    ) -> Plan<Removed> {
        let names_version = !key.instance.is_empty();
        let (key, site, now) = (without_null(key), self.clone(), moment.now);
        if !is_versioned(bucket) {
            if !key.instance.is_empty() {
                return Plan::failed(Error::Versioned);
            }
            let version = if names_version { null_or(&key.instance) } else { Bytes::new() };
            let removed = Removed { version, is_marker: false };
            let gone = self.remove_wanted(bucket, key, by.wanted.clone(), moment);
            return gone.and_then(|()| Plan::ok(removed));
        }
        let showing = self.showing(bucket, &key, moment);
        let named =
            if names_version { Key { instance: null_or(&key.instance), ..key.clone() } } else { key.clone() };
        let good = self.check_wanted(bucket, &named, &by.wanted, showing.removal());
        if names_version {
            let of = key.clone();
            let unlocked = site.unlocked(bucket, &key, by.bypasses, now);
            let bucket = bucket.clone();
            let found = good
                .and_then(move |()| unlocked)
                .and_then(move |()| site.clone().follow(bucket, move |bucket| site.entry_of(bucket, &of)));
            return found.and_then(move |(bucket, entry)| {
                let is_marker = entry.has(DELETE_MARKER);
                let removed = Removed { version: null_or(&key.instance), is_marker };
                let showing = showing.in_bucket(bucket);
                showing.make(Step::Unlink(key.instance), TRIES).and_then(|()| Plan::ok(removed))
            });
        }
        let id = if gives_ids(bucket) { moment.version_id() } else { Bytes::new() };
        let meta = Meta {
            mtime: now,
            owner: by.owner.id.to_text(),
            owner_name: by.owner.display_name.clone(),
            ..Meta::default()
        };
        let removed = Removed { version: null_or(&id), is_marker: true };
        let made = good.and_then(move |()| showing.make(Step::Link(id, Some(meta)), TRIES));
        made.and_then(|()| Plan::ok(removed))
    }

    /// Fails with `Locked` where a lock keeps a version. One that is put on it just then may come too late,
    /// as in radosgw.
    fn unlocked(&self, bucket: &SharedBucket, key: &Key, bypasses: bool, now: RealTime) -> Plan<()> {
        if !has_locks(bucket) {
            return Plan::ok(());
        }
        // A delete marker has no head, and no lock.
        self.head(bucket, key, 0).try_map(move |head| match head.map(|head| Lock::of(&head.attrs)) {
            Some(lock) if !lock.clone()?.lets_go(now, bypasses) => Err(Error::Locked),
            _ => Ok(()),
        })
    }

    /// Shows a version that somebody wrote, with this tag, who may have died before this was done.
    pub(crate) fn show_once(
        &self,
        bucket: &SharedBucket,
        showing: Showing,
        id: Bytes,
        tag: Bytes,
    ) -> Plan<()> {
        let key = Key { instance: id.clone(), ..showing.key.clone() };
        let (site, bucket) = (self.clone(), bucket.clone());
        self.located(&bucket, &key).and_then(move |(at, entry)| {
            // A name without versions is shown as it is.
            let is_plain = id.is_empty() && at == key.index_name();
            if is_plain || (!id.is_empty() && entry.has(VERSIONED)) {
                return Plan::ok(());
            }
            if !entry.has(VERSIONED) {
                return showing.link(id, false);
            }
            // One without an id was shown before, in front of others: the entry that listings go by is of
            // what was written then.
            let listed = site.stored_entry(&bucket, &key.name, index::listed_at(&entry));
            listed.and_then(move |listed| match listed.is_some_and(|listed| listed.tag == tag) {
                true => Plan::ok(()),
                false => showing.link(id, false),
            })
        })
    }

    /// A version's entry in the index; of the one without an id the delete marker's, where it is one.
    /// `NoSuchKey` where there is none, `NoSuchBucket` where there is no index.
    pub(crate) fn entry_of(&self, bucket: &SharedBucket, key: &Key) -> Plan<Entry> {
        self.located(bucket, key).and_then(|(_, entry)| Plan::ok(entry))
    }

    /// The same, with its key in the index.
    pub(super) fn located(&self, bucket: &SharedBucket, key: &Key) -> Plan<(Bytes, Entry)> {
        let (site, bucket, key) = (self.clone(), bucket.clone(), key.clone());
        let shard = self.index_object(&bucket, &key.name);
        let named = IndexKey { name: key.index_name(), instance: key.instance.clone() };
        let places = [index::entry_at(&named), index::delete_marker_at(&named), index::instance_at(&named)];
        let [first, marker, last] = places;
        let find = move |at: Bytes| {
            let found = site.stored_entry(&bucket, &key.name, at.clone());
            found.and_then(move |entry| Plan::ok(entry.map(|entry| (at, entry))))
        };
        let found = find(first).and_then(move |found| match found {
            Some((_, entry)) if entry.has(VERSION_MARKER) => {
                find(marker).and_then(move |found| if found.is_some() { Plan::ok(found) } else { find(last) })
            }
            found => Plan::ok(found),
        });
        found.and_then(move |found| match (found, shard) {
            (Some(found), _) => Plan::ok(found),
            (None, Err(e)) => Plan::failed(e),
            // An index that is elsewhere says no more than one that has no entry.
            (None, Ok(shard)) => Plan::ask(Request::new(shard).op(Op::Stat))
                .when(Error::Rados(Errno::ENOENT), Error::NoSuchBucket)
                .and_then(|_| Plan::failed(Error::NoSuchKey)),
        })
    }

    /// The entry under an object's own name: its own, or what stands for all of its versions.
    pub(crate) fn plain_entry(&self, bucket: &SharedBucket, key: &Key) -> Plan<Option<Entry>> {
        self.stored_entry(bucket, &key.name, key.index_name())
    }

    /// The entry under a key of the index, in the shard of a name.
    fn stored_entry(&self, bucket: &SharedBucket, name: &[u8], at: Bytes) -> Plan<Option<Entry>> {
        let shard = match self.index_object(bucket, name) {
            Ok(shard) => shard,
            Err(e) => return Plan::failed(e),
        };
        let args = index::GetEntryArgs { key: IndexKey::plain(at), kind: PLAIN };
        optional(Plan::ask(Request::new(shard).call(&index::GET_ENTRY, &args))).try_map(|reply| {
            let Some(reply) = reply else { return Ok(None) };
            let raw = reply.answer(0, &index::GET_ENTRY)?.entry.value;
            Ok(Some(Entry::from_bytes(raw)?))
        })
    }
}

/// Somebody looks for the version that a key names, or that is shown.
#[derive(Debug, Clone)]
struct Looking {
    site: Site,
    bucket: SharedBucket,
    key: Key,
    prefetch: u64,
    /// Tag of the removals that this brings with it.
    removal: Bytes,
}

impl Looking {
    fn go_on(self, tries: u32) -> Plan<Option<Head>> {
        let follows = self.key.instance.is_empty();
        self.site.head(&self.bucket, &self.key, self.prefetch).and_then(move |head| match head {
            Some(head) if follows && head.is_changing() => self.settle(&head, tries),
            Some(head) if follows => self.target(head, tries),
            found => Plan::ok(found.filter(Head::has_data)),
        })
    }

    /// The same when what was begun is done.
    fn settle(self, name: &Head, tries: u32) -> Plan<Option<Head>> {
        let named = Named {
            site: self.site.clone(),
            bucket: self.bucket.clone(),
            key: self.key.clone(),
            tag: name.name_tag().cloned().unwrap_or_default(),
        };
        named.follow_up(self.removal.clone(), name.modified).then(move |done| match done {
            // Another one is at it.
            Err(Error::Raced) if tries > 0 => self.go_on(tries - 1),
            Ok(()) | Err(Error::Raced) => {
                self.site.head(&self.bucket, &self.key, self.prefetch).and_then(move |name| match name {
                    Some(name) => self.target(name, tries),
                    None => Plan::ok(None),
                })
            }
            Err(e) => Plan::failed(e),
        })
    }

    fn target(self, name: Head, tries: u32) -> Plan<Option<Head>> {
        let Some(info) = name.olh(INFO) else {
            return Plan::ok(Some(name).filter(Head::has_data));
        };
        let info = match OlhInfo::from_bytes(info.clone()) {
            Ok(info) => info,
            Err(e) => return Plan::failed(e.into()),
        };
        if info.removed {
            return Plan::ok(None);
        }
        let key = without_null(info.target.key);
        if key.instance.is_empty() && (name.has_data() || tries == 0) {
            return Plan::ok(Some(name).filter(Head::has_data));
        }
        if key.instance.is_empty() {
            return self.unless_same(&name, tries - 1);
        }
        self.site.head(&self.bucket, &key, self.prefetch).and_then(move |head| match head {
            // The version went meanwhile, and the name shows another one.
            None if tries > 0 => self.unless_same(&name, tries - 1),
            found => Plan::ok(found),
        })
    }

    /// Looks again, unless the name is as it was: then the version is gone and nothing else says so yet.
    fn unless_same(self, before: &Head, tries: u32) -> Plan<Option<Head>> {
        let seen = |name: &Head| (name.olh(INFO).cloned(), name.olh(EPOCH).cloned(), name.is_changing());
        let before = seen(before);
        self.site.head(&self.bucket, &self.key, 0).and_then(move |name| match name {
            Some(name) if seen(&name) != before => self.go_on(tries),
            _ => Plan::ok(None),
        })
    }
}

/// What clients call a version.
pub(crate) fn null_or(id: &Bytes) -> Bytes {
    if id.is_empty() { Bytes::from_static(b"null") } else { id.clone() }
}

impl Showing {
    /// The same for a write that learns of versions when it is about to end: its own tag, which no other
    /// request has, stands for made-up letters.
    pub fn late(site: &Site, bucket: &SharedBucket, key: &Key, tag: &Bytes, now: RealTime) -> Self {
        let digits = |n: u64| format!("{:016x}", garbage::xxh64(tag, n));
        let two = |n: u64| Bytes::from([digits(n), digits(n + 1)].concat());
        let letters = Letters {
            op: digits(0).into(),
            id: two(1),
            name: two(3),
            removal: [&b"_"[..], &two(5)].concat().into(),
        };
        let key = Key { instance: Bytes::new(), ..key.clone() };
        Self { site: site.clone(), bucket: bucket.clone(), key, letters, now }
    }

    /// The same in a bucket whose index moved.
    pub fn in_bucket(self, bucket: SharedBucket) -> Self {
        Self { bucket, ..self }
    }

    /// The tag of removals that this brings with it.
    pub fn removal(&self) -> Bytes {
        self.letters.removal.clone()
    }

    /// Shows a version that was written; one that cannot be shown goes again where it may.
    pub fn link(self, id: Bytes, may_go: bool) -> Plan<()> {
        let (named, removal) = (self.named(Bytes::new()), self.letters.removal.clone());
        let key = Key { instance: id.clone(), ..self.key.clone() };
        self.make(Step::Link(id, None), TRIES).then(move |linked| match linked {
            // Nobody finds a version that is not linked.
            Err(e) if may_go && !e.is_unclear() && !key.instance.is_empty() => {
                named.remove_all(vec![key], removal).then(move |_| Plan::failed(e))
            }
            linked => Plan::Done(linked),
        })
    }

    /// Has listings show of a version what its entry says, and nothing else change. Source: the epoch that
    /// RGWRados::transition_obj hands to set_olh.
    pub fn list_again(self, id: Bytes, epoch: u64) -> Plan<()> {
        self.make(Step::List(id, epoch), TRIES)
    }

    /// Does what the log says of changes that are begun at a name.
    pub fn catch_up(&self, name: &Head) -> Plan<()> {
        let tag = name.name_tag().cloned().unwrap_or_default();
        self.named(tag).follow_up(self.letters.removal.clone(), name.modified)
    }

    fn named(&self, tag: Bytes) -> Named {
        Named { site: self.site.clone(), bucket: self.bucket.clone(), key: self.key.clone(), tag }
    }

    /// Of the change; the first digits sort by time.
    fn op_tag(&self) -> Bytes {
        [format!("{:016x}", self.now.0.sec).as_bytes(), &self.letters.op].concat().into()
    }

    fn pending_attr(&self) -> Bytes {
        [PENDING, &self.op_tag()].concat().into()
    }

    fn make(self, step: Step, tries: u32) -> Plan<()> {
        self.site.head(&self.bucket, &self.key, 0).and_then(move |name| {
            let modified = name.as_ref().map_or(self.now, |name| name.modified);
            let (request, tag) = match self.begin(name.as_ref()) {
                Ok(begun) => begun,
                Err(e) => return Plan::failed(e),
            };
            Plan::ask(request).then(move |begun| match begun {
                Ok(_) => self.decide(step, tag, modified, tries),
                Err(Error::Raced | Error::Rados(Errno::EEXIST | Errno::ENOENT)) if tries > 0 => {
                    self.make(step, tries - 1)
                }
                Err(e) => Plan::failed(e),
            })
        })
    }

    /// Says at the name that a change begins, and gives it its tags if it has none: the name's tag is the
    /// other result.
    fn begin(&self, name: Option<&Head>) -> Result<(Request, Bytes), Error> {
        let object = self.site.head_object(&self.bucket, &self.key)?;
        let mut request = Request::new(object);
        let tag = name.and_then(Head::name_tag).cloned();
        request = match name {
            None => request.op(Op::Create { exclusive: true }),
            Some(name) => name.is_there().into_iter().fold(request.at(name.modified), Request::op),
        };
        if let Some(tag) = &tag {
            request = request.op(Op::AttrIs { name: Bytes::from_static(NAME_TAG), value: tag.clone() });
        } else {
            // What lies under the name is the version without an id from now on.
            if let Some(name) = name.filter(|name| name.has_data()) {
                let target = Object { bucket: self.bucket.bucket.clone(), key: self.key.clone() };
                request = request.set_attr(INFO, OlhInfo { target, removed: false }.to_bytes());
                // Its tail was referred to by the tag that goes now.
                let kept = name.id_tag().filter(|_| !name.attrs.contains_key(attr::TAIL_TAG));
                request = kept.into_iter().fold(request, |r, tag| r.set_attr(attr::TAIL_TAG, tag.clone()));
            }
            request = request
                .set_attr(attr::ID_TAG, self.letters.id.clone())
                .set_attr(NAME_TAG, self.letters.name.clone())
                .set_attr(EPOCH, Bytes::new());
        }
        for (left, raw) in name.iter().flat_map(|name| name.pending()) {
            let since = OlhPending::from_bytes(raw.clone()).map_or(0, |pending| pending.time.0.sec);
            if since.saturating_add(PENDING_S) < self.now.0.sec {
                request = request.op(Op::RemoveAttr(left.clone()));
            }
        }
        let pending = OlhPending { time: self.now }.to_bytes();
        Ok((request.set_attr(self.pending_attr(), pending), tag.unwrap_or_else(|| self.letters.name.clone())))
    }

    fn decide(self, step: Step, tag: Bytes, modified: RealTime, tries: u32) -> Plan<()> {
        let (is_unlink, is_list) = (matches!(step, Step::Unlink(_)), matches!(step, Step::List(..)));
        let (asking, asked, of) = (self.clone(), step.clone(), tag.clone());
        let decided = self.site.follow(self.bucket.clone(), move |bucket| {
            asking.clone().in_bucket(bucket.clone()).ask_index(&asked, &of)
        });
        decided.then(move |decided| match decided {
            Ok((bucket, _)) => {
                let this = self.in_bucket(bucket);
                let (again, pending) = (this.named(tag.clone()), this.pending_attr());
                let done = this.named(tag).follow_up(this.letters.removal.clone(), modified);
                done.then(move |done| match done {
                    // The log has nothing of what was not shown and is not then, and the change is over.
                    Ok(()) if is_unlink || is_list => again.forget(pending, modified).then(|_| Plan::ok(())),
                    // Others did it.
                    Ok(()) | Err(Error::Raced) => Plan::ok(()),
                    // The index shows it, and whoever reads the name next does what its log says.
                    Err(_) if !is_unlink => Plan::ok(()),
                    Err(e) => Plan::failed(e),
                })
            }
            // The index may have it: whoever reads the name next does what its log says.
            Err(e) if e.is_unclear() => Plan::failed(e),
            Err(Error::Raced) if tries > 0 => self.make(step, tries - 1),
            Err(e) => {
                let is_marker = matches!(step, Step::Link(_, Some(_)));
                // A delete marker is not put over another one.
                let error = match e == Error::Rados(Errno::ENOENT) {
                    true if is_marker || is_list => Error::NoSuchKey,
                    true => Error::NoSuchBucket,
                    false => e,
                };
                self.named(tag).forget(self.pending_attr(), modified).then(move |_| Plan::failed(error))
            }
        })
    }

    /// Has the index decide: `NoSuchBucket` where there is none.
    fn ask_index(&self, step: &Step, tag: &Bytes) -> Plan<Reply> {
        let (id, marker) = match step {
            Step::Link(id, marker) => (id, marker.clone()),
            Step::Unlink(id) | Step::List(id, _) => (id, None),
        };
        let key = Key { instance: id.clone(), ..self.key.clone() };
        let change = match Change::new(&self.site, &self.bucket, &key, &key.name, self.op_tag()) {
            Ok(change) => change,
            Err(e) => return Plan::failed(e),
        };
        change.ask(match step {
            Step::Link(..) => change.link(tag.clone(), marker, 0),
            Step::List(_, epoch) => change.link(tag.clone(), None, *epoch),
            Step::Unlink(_) => change.unlink(tag.clone()),
        })
    }
}

/// A name that has versions, by its tag.
#[derive(Debug, Clone)]
struct Named {
    site: Site,
    bucket: SharedBucket,
    key: Key,
    tag: Bytes,
}

/// What a log says is to be done.
#[derive(Debug, Default)]
struct ToDo {
    /// Up to this epoch.
    epoch: u64,
    removed: Vec<Key>,
    /// Tags of the changes that it is of.
    tags: Vec<Bytes>,
    shown: Option<(IndexKey, bool)>,
    gives_up: bool,
}

impl ToDo {
    /// `known` is what the name shows, and since which epoch.
    fn of(log: &BTreeMap<u64, Vec<HeadChange>>, known: (u64, IndexKey)) -> Result<Self, Error> {
        let (known_epoch, mut key) = known;
        let mut to_do = Self { epoch: log.keys().next_back().copied().unwrap_or(0), ..Self::default() };
        for (epoch, change) in log.iter().flat_map(|(epoch, all)| all.iter().map(move |one| (epoch, one))) {
            to_do.tags.push(change.op_tag.clone());
            match change.op {
                REMOVE_INSTANCE => {
                    let key = Key::from_oid(&change.key.name).ok_or(Error::Unexpected)?;
                    let key = without_null(Key { instance: change.key.instance.clone(), ..key });
                    to_do.removed.push(key);
                }
                LINK => {
                    // The version without an id was written anew since its removal was logged.
                    if change.key.instance.is_empty() && !change.delete_marker {
                        to_do.removed.retain(|key| !key.instance.is_empty());
                    }
                    // Of two of one epoch the one that sorts first is shown.
                    let sorts_first = key.instance.is_empty() || key.instance > change.key.instance;
                    if known_epoch < *epoch || sorts_first {
                        key = change.key.clone();
                        to_do.shown = Some((key.clone(), change.delete_marker));
                    }
                    // Also where it is shown already: radosgw then gives the name up.
                    to_do.gives_up = false;
                }
                UNLINK => (to_do.shown, to_do.gives_up) = (None, true),
                _ => return Err(Error::Unexpected),
            }
        }
        Ok(to_do)
    }
}

impl Named {
    fn change(&self) -> Result<Change, Error> {
        Change::new(&self.site, &self.bucket, &self.key, &self.key.name, Bytes::new())
    }

    /// Takes back that a change began.
    fn forget(self, pending: Bytes, modified: RealTime) -> Plan<()> {
        let object = match self.site.head_object(&self.bucket, &self.key) {
            Ok(object) => object,
            Err(e) => return Plan::failed(e),
        };
        let is = Op::AttrIs { name: Bytes::from_static(NAME_TAG), value: self.tag };
        // Data may lie here, whose time stays.
        let request = Request::new(object).at(modified).op(is);
        Plan::ask(request.op(Op::RemoveAttr(pending))).and_then(|_| Plan::ok(()))
    }

    /// Does what the index's log says, wherever the index is. `Raced` where the name has another tag.
    fn follow_up(self, removal: Bytes, modified: RealTime) -> Plan<()> {
        let done = self.site.clone().follow(self.bucket.clone(), move |bucket| {
            let named = Self { bucket: bucket.clone(), ..self.clone() };
            named.catch_up(removal.clone(), modified, 0)
        });
        done.and_then(|_| Plan::ok(()))
    }

    /// The same with the index that is known, page by page. `NoSuchBucket` where it is not there.
    fn catch_up(self, removal: Bytes, modified: RealTime, after: u64) -> Plan<()> {
        let change = match self.change() {
            Ok(change) => change,
            Err(e) => return Plan::failed(e),
        };
        let args = index::LogArgs { key: change.name(), epoch: after, tag: self.tag.clone() };
        let read = change.guarded().call(&index::READ_HEAD_LOG, &args);
        change.ask(read).and_then(move |reply: Reply| {
            let page = match reply.answer(2, &index::READ_HEAD_LOG) {
                Ok(page) => page,
                Err(e) => return Plan::failed(e),
            };
            if page.log.is_empty() {
                return Plan::ok(());
            }
            let again = (self.clone(), removal.clone());
            self.apply(page.log, removal, modified, change).and_then(move |epoch| match page.truncated {
                true => again.0.catch_up(again.1, modified, epoch),
                false => Plan::ok(()),
            })
        })
    }

    fn apply(
        self,
        log: BTreeMap<u64, Vec<HeadChange>>,
        removal: Bytes,
        modified: RealTime,
        change: Change,
    ) -> Plan<u64> {
        self.site.head(&self.bucket, &self.key, 0).and_then(move |name| {
            let Some(name) = name.filter(|name| name.name_tag() == Some(&self.tag)) else {
                return Plan::failed(Error::Raced);
            };
            let known = match known(&name.attrs) {
                Ok(known) => known,
                Err(e) => return Plan::failed(e),
            };
            let to_do = match ToDo::of(&log, known) {
                Ok(to_do) => to_do,
                Err(e) => return Plan::failed(e),
            };
            // The first one is taken first, from behind.
            let removed = to_do.removed.iter().rev().cloned().collect();
            self.clone()
                .remove_all(removed, removal)
                .and_then(move |()| self.update(&to_do, modified, &change))
        })
    }

    fn remove_all(self, mut keys: Vec<Key>, removal: Bytes) -> Plan<()> {
        let Some(key) = keys.pop() else { return Plan::ok(()) };
        let change = Change::new(&self.site, &self.bucket, &key, &key.name, removal.clone());
        let made =
            change.and_then(|change| Ok((change.of_version(), self.site.head_object(&self.bucket, &key)?)));
        let (change, object) = match made {
            Ok(made) => made,
            Err(e) => return Plan::failed(e),
        };
        let (site, id) = (self.site.clone(), key.instance.clone());
        let place = (site.clone(), self.bucket.clone());
        let look = Request::new(object.clone()).op(Op::Attrs).op(Op::Stat);
        optional(Plan::ask(look)).and_then(move |reply| {
            let head = reply.as_ref().map(|reply| Head::read(object, id.clone(), reply)).transpose();
            let removed = match (head, reply) {
                (Err(e), _) => Plan::failed(e),
                (Ok(Some(head)), _) if head.has_data() => {
                    let request = Request::new(head.object.clone());
                    remove_head(place, head, request, change, Vec::new())
                }
                // Without a name nobody can tell whether one without an id is being written anew.
                (Ok(None), _) if id.is_empty() => Plan::ok(()),
                // Who removed it may have died before the index heard of it.
                (_, reply) => site.entry_of(&self.bucket, &key).then(move |entry| match entry {
                    Ok(entry) if !entry.has(DELETE_MARKER) => remove_entry(place, change, &id, reply),
                    Ok(_) | Err(Error::NoSuchKey) => Plan::ok(()),
                    Err(e) => Plan::failed(e),
                }),
            };
            removed.then(move |done| match done {
                Ok(()) | Err(Error::Rados(Errno::ENOENT)) => self.remove_all(keys, removal),
                Err(e) => Plan::failed(e),
            })
        })
    }

    /// Shows at the name what is to be shown, has the log trimmed, and gives the name up if it has no
    /// versions.
    fn update(self, to_do: &ToDo, modified: RealTime, change: &Change) -> Plan<u64> {
        let object = match self.site.head_object(&self.bucket, &self.key) {
            Ok(object) => object,
            Err(e) => return Plan::failed(e),
        };
        let (name, epoch) = (Bytes::from_static(EPOCH), to_do.epoch);
        let is_ours = Op::AttrIs { name: Bytes::from_static(NAME_TAG), value: self.tag.clone() };
        let mut request = Request::new(object.clone())
            .at(modified)
            .op(is_ours.clone())
            .op(Op::NumberIs { name: name.clone(), value: epoch, or_less: true })
            .set_attr(EPOCH, epoch.to_string());
        for tag in &to_do.tags {
            request = request.op(Op::RemoveAttr([PENDING, tag].concat().into()));
        }
        if let Some((key, removed)) = &to_do.shown {
            let key = Key { instance: key.instance.clone(), ..self.key.clone() };
            let target = Object { bucket: self.bucket.bucket.clone(), key };
            request = request.set_attr(INFO, OlhInfo { target, removed: *removed }.to_bytes());
        }
        let args = index::LogArgs { key: change.name(), epoch, tag: self.tag.clone() };
        let trim = change.guarded().call(&index::TRIM_HEAD_LOG, &args);
        let clear = index::ClearArgs { key: change.name(), tag: self.tag.clone() };
        let clear = change.guarded().call(&index::CLEAR_HEAD, &clear);
        let no_change = object::CheckPrefixArgs { prefix: Bytes::from_static(PENDING), fail_if_exists: true };
        let empty = Op::AttrIs { name: Bytes::from_static(attr::MANIFEST), value: Bytes::new() };
        let give_up = Request::new(object)
            .op(is_ours)
            .op(Op::NumberIs { name, value: epoch, or_less: false })
            .op(empty)
            .call(&object::CHECK_ATTRS_PREFIX, &no_change)
            .op(Op::Remove { may_miss: false });
        let (gives_up, at, again) = (to_do.gives_up, change.clone(), change.clone());
        Plan::ask(request)
            .then(|done| match done {
                // Others were faster; they may have given the name up.
                Ok(_) | Err(Error::Raced | Error::Rados(Errno::ENOENT)) => Plan::ok(()),
                Err(e) => Plan::failed(e),
            })
            .and_then(move |()| at.ask(trim))
            .and_then(move |_| match gives_up {
                false => Plan::ok(epoch),
                true => Plan::ask(give_up).then(move |gone| match gone {
                    // There is data again, or a change has begun.
                    Err(Error::Raced) => Plan::ok(epoch),
                    Ok(_) | Err(Error::Rados(Errno::ENOENT)) => {
                        again.ask(clear).and_then(move |_| Plan::ok(epoch))
                    }
                    Err(e) => Plan::failed(e),
                }),
            })
    }
}

/// Takes an entry out of the index whose object is gone. One with an id never comes again, and takes with it
/// what is begun and not ended. One without an id stays where a later write of it is known, or is begun.
fn remove_entry(
    (site, bucket): (Site, SharedBucket),
    change: Change,
    id: &Bytes,
    seen: Option<Reply>,
) -> Plan<()> {
    let comes_again = id.is_empty();
    change.prepare_delete(&site, bucket).and_then(move |Prepared { bucket, change, reply }| {
        let seen = seen.unwrap_or(Reply { version: 0, ..reply });
        deleted(&site, bucket, change, move |change| match comes_again {
            true => change.deleted(&seen, Meta::default(), Vec::new()),
            false => change.taken_out(),
        })
    })
}

/// What a name shows, and since which epoch.
fn known(attrs: &Attrs) -> Result<(u64, IndexKey), Error> {
    let epoch = attrs.get(EPOCH).and_then(|text| std::str::from_utf8(text).ok()?.parse().ok()).unwrap_or(0);
    let info = attrs.get(INFO).map(|raw| OlhInfo::from_bytes(raw.clone())).transpose()?;
    let key = info.map(|info| info.target.key).unwrap_or_default();
    Ok((epoch, IndexKey { name: key.index_name(), instance: key.instance }))
}

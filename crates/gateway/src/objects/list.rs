//! Listing a bucket in the order of its names: a page of each shard at a time, merged. Source:
//! RGWRados::Bucket::List::list_objects_ordered, cls_bucket_list_ordered in src/rgw/rgw_rados.cc.
//!
//! 1. An entry that a gateway left between two steps is shown as its object is, and the index is told.
//! 2. A shard is read on when its page is used up, never before.
//! 3. A page ends after so many steps, however little was found: what goes on is a request of its own.

use std::collections::VecDeque;

use bytes::Bytes;
use classes::client::index::{self, ListArgs, Suggestion, Suggestions};
use codec::Decode;
use rgw::index::entry::{COMMON_PREFIX, CURRENT, DELETE_MARKER, VERSIONED};
use rgw::index::{Entry, Key as IndexKey, Meta, PendingMap, Written};
use rgw::{AccessControl, Compression, Key, RawObject};

use super::put::MAIN;
use super::upload::{META, NAMESPACE, UPLOADS};
use super::versions::{NAME_TAG, null_or};
use super::{SharedBucket, attr, text};
use crate::system::own;
use crate::{Error, Op, Plan, Reply, Request, Site};

/// Entries of one answer. Source: rgw_max_listing_results in src/common/options.cc.
pub const MAX_KEYS: usize = 1000;

/// Steps of one page, each a read of the shards that are used up.
const MAX_STEPS: usize = 64;

/// What is to be listed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listing {
    pub prefix: Bytes,
    /// What lies behind one, after the prefix, is shown as one.
    pub delimiter: Bytes,
    /// What comes behind this name, or behind all that begins with this common prefix.
    pub after: Bytes,
    /// All versions, not those alone that are shown.
    pub versions: bool,
    /// With `after`: what comes behind this version of that name, the older ones of it first.
    pub after_version: Bytes,
    /// Names and common prefixes together.
    pub max: usize,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listed {
    pub objects: Vec<(Key, Meta)>,
    /// In the place of objects where all versions are asked for: those of a name from the newest on.
    pub versions: Vec<ListedVersion>,
    pub prefixes: Vec<Bytes>,
    /// Where to go on, when more follows.
    pub next: Option<Bytes>,
    /// Behind which version of that name.
    pub next_version: Bytes,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedVersion {
    /// With the version's id, or `null`.
    pub key: Key,
    pub meta: Meta,
    pub is_latest: bool,
    pub is_marker: bool,
}

/// A shard of the index while it is listed.
#[derive(Debug)]
struct Shard {
    object: RawObject,
    page: VecDeque<Entry>,
    marker: IndexKey,
    more: bool,
}

#[derive(Debug)]
struct Merge {
    site: Site,
    bucket: SharedBucket,
    /// Of the names; empty for objects.
    namespace: &'static [u8],
    listing: Listing,
    shards: Vec<Shard>,
    listed: Listed,
    /// Name or prefix that was shown last.
    last: Bytes,
    last_version: Bytes,
    found: usize,
    steps: usize,
}

impl Site {
    /// A page of a bucket's objects.
    pub fn list(&self, bucket: &SharedBucket, listing: Listing) -> Plan<Listed> {
        self.list_within(bucket, b"", listing)
    }

    /// A page of a bucket's uploads, by names that `UploadId::from_name` reads.
    pub fn uploads(&self, bucket: &SharedBucket, listing: Listing) -> Plan<Listed> {
        self.list_within(bucket, NAMESPACE, listing)
    }

    fn list_within(
        &self,
        bucket: &SharedBucket,
        namespace: &'static [u8],
        mut listing: Listing,
    ) -> Plan<Listed> {
        if listing.max == 0 {
            return Plan::ok(Listed::default());
        }
        listing.max = listing.max.min(MAX_KEYS);
        let objects = match self.index_objects(bucket) {
            Ok(objects) => objects,
            Err(e) => return Plan::failed(e),
        };
        let name = Key::within(namespace, listing.after.clone()).index_name();
        let marker = IndexKey { name, instance: listing.after_version.clone() };
        let shard = |object| Shard { object, page: VecDeque::new(), marker: marker.clone(), more: true };
        let shards = objects.into_iter().map(shard).collect();
        let (site, bucket, last) = (self.clone(), bucket.clone(), listing.after.clone());
        let (listed, last_version) = (Listed::default(), listing.after_version.clone());
        Merge { site, bucket, namespace, listing, shards, listed, last, last_version, found: 0, steps: 0 }
            .go_on()
    }
}

impl Merge {
    /// Merges until a shard is used up, reads that one on, and so forth.
    fn go_on(mut self) -> Plan<Listed> {
        if self.merge() || (self.steps >= MAX_STEPS && self.stop()) {
            return Plan::ok(self.listed);
        }
        self.steps += 1;
        let shares = self.shards.len().max(1);
        let each = self.listing.max / shares + self.listing.max.isqrt() + 8;
        let args = |marker: &IndexKey| ListArgs {
            start: marker.clone(),
            max: u32::try_from(each).unwrap_or(u32::MAX),
            prefix: Key::within(self.namespace, self.listing.prefix.clone()).index_name(),
            versions: self.listing.versions,
            delimiter: self.delimiter_in_index(),
        };
        let empty = |shard: &Shard| shard.page.is_empty() && shard.more;
        let which: Vec<usize> =
            self.shards.iter().enumerate().filter(|(_, s)| empty(s)).map(|(i, _)| i).collect();
        let requests = self.shards.iter().filter(|s| empty(s)).map(|shard| {
            Request::new(shard.object.clone()).call_or(
                &index::LIST,
                &args(&shard.marker),
                // Nothing to show, and a place to go on from.
                types::Errno::EFBIG,
            )
        });
        let requests = requests.collect();
        Plan::<Vec<Reply>>::ask_all(requests).and_then(move |replies| match self.take(&which, &replies) {
            Ok(()) => self.check(which),
            Err(e) => Plan::failed(e),
        })
    }

    /// The index has other names for what begins with an underscore: there it looks for other delimiters
    /// alone.
    fn delimiter_in_index(&self) -> Bytes {
        let delimiter = &self.listing.delimiter;
        if delimiter.contains(&b'_') || !self.namespace.is_empty() { Bytes::new() } else { delimiter.clone() }
    }

    fn take(&mut self, which: &[usize], replies: &[Reply]) -> Result<(), Error> {
        for (n, reply) in which.iter().zip(replies) {
            let answer = reply.answer(0, &index::LIST)?;
            let shard = self.shards.get_mut(*n).ok_or(Error::Unexpected)?;
            let last = answer.entries.values().next_back().map(|entry| entry.key.clone());
            let marker = if answer.marker.name.is_empty() { last } else { Some(answer.marker) };
            let marker = marker.map(|m| past_other_namespaces(self.namespace, behind(&shard.marker, m)));
            // A shard that stays where it is would be read for ever, and what it holds is not known.
            let ahead =
                marker.as_ref().is_some_and(|m| m.name > shard.marker.name || is_next(&shard.marker, m));
            if answer.truncated && !ahead {
                return Err(Error::Unexpected);
            }
            shard.more = answer.truncated;
            shard.marker = marker.unwrap_or_default();
            shard.page = answer.entries.into_values().collect();
        }
        Ok(())
    }

    /// Looks at the objects of entries that tell of changes under way.
    fn check(self, which: Vec<usize>) -> Plan<Listed> {
        let missing = |e: &Entry| !e.exists && !e.has(DELETE_MARKER);
        let open = |e: &Entry| e.flags & COMMON_PREFIX == 0 && (missing(e) || !e.pending.is_empty());
        let (mut places, mut requests) = (Vec::new(), Vec::new());
        for n in which {
            for (at, entry) in self.shards.get(n).map(|s| s.page.iter()).into_iter().flatten().enumerate() {
                let key = Key::from_oid(&entry.key.name).filter(|_| open(entry));
                let Some(mut key) = key else { continue };
                key.instance = entry.key.instance.clone();
                let head = match self.site.head_object(&self.bucket, &key) {
                    Ok(head) => head,
                    Err(e) => return Plan::failed(e),
                };
                places.push((n, at));
                requests.push(Request::new(head).op(Op::Attrs).op(Op::Stat));
            }
        }
        Plan::ask_each(requests).and_then(move |replies| self.correct(&places, replies))
    }

    fn correct(
        mut self,
        places: &[(usize, usize)],
        replies: Vec<Result<Reply, types::Errno>>,
    ) -> Plan<Listed> {
        let mut told: Vec<(usize, Suggestions)> = Vec::new();
        for ((n, at), reply) in places.iter().zip(replies) {
            let Some(entry) = self.shards.get_mut(*n).and_then(|s| s.page.get_mut(*at)) else { continue };
            entry.pending = PendingMap::default();
            let reply = reply.and_then(|reply| match is_name_alone(&reply) {
                true => Err(types::Errno::ENOENT),
                false => Ok(reply),
            });
            let op = match reply {
                Err(types::Errno::ENOENT) => {
                    entry.exists = false;
                    Suggestion::REMOVE
                }
                Err(e) => return Plan::failed(e.into()),
                Ok(reply) => match as_stored(entry, &reply) {
                    Ok(()) => Suggestion::UPDATE,
                    Err(e) => return Plan::failed(e),
                },
            };
            if !is_told(op, entry) {
                continue;
            }
            let suggestion = Suggestion { op, entry: entry.clone() };
            match told.last_mut().filter(|(shard, _)| shard == n) {
                Some((_, all)) => all.0.push(suggestion),
                None => told.push((*n, Suggestions(vec![suggestion]))),
            }
        }
        let request = |(n, all): &(usize, Suggestions)| {
            let shard = self.shards.get(*n)?;
            Some(Request::new(shard.object.clone()).call(&index::SUGGEST, all))
        };
        let requests = told.iter().filter_map(request).collect();
        // What the index does not take now, the next listing finds again.
        Plan::ask_each(requests).and_then(move |_| self.go_on())
    }

    /// Takes entries in order; whether the listing is whole.
    fn merge(&mut self) -> bool {
        loop {
            if self.shards.iter().any(|s| s.page.is_empty() && s.more) {
                return false;
            }
            let next = self.shards.iter_mut().filter(|s| !s.page.is_empty());
            let next = next.min_by(|a, b| {
                let key = |s: &Shard| s.page.front().map(|entry| entry.key.name.clone());
                key(a).cmp(&key(b))
            });
            let Some(entry) = next.and_then(|shard| shard.page.pop_front()) else { return true };
            if self.show(entry) {
                return true;
            }
        }
    }

    /// Ends a page before it is full: with what lies up to the first place that a shard was read to. Whether
    /// there is such a place: an index may say one that is no name.
    fn stop(&mut self) -> bool {
        let read_to =
            self.shards.iter().filter(|s| s.page.is_empty() && s.more).map(|s| &s.marker.name).min();
        let Some(read_to) = read_to.cloned() else { return false };
        let Some(at) = Key::from_oid(&read_to).filter(|key| key.namespace == self.namespace) else {
            return false;
        };
        loop {
            let within = |s: &Shard| s.page.front().is_some_and(|entry| entry.key.name <= read_to);
            let next = self.shards.iter_mut().filter(|s| within(s)).min_by(|a, b| {
                let key = |s: &Shard| s.page.front().map(|entry| entry.key.name.clone());
                key(a).cmp(&key(b))
            });
            let Some(entry) = next.and_then(|shard| shard.page.pop_front()) else { break };
            if self.show(entry) {
                return true;
            }
        }
        // Names of parts are not those of uploads, and nobody goes on from them; nor from a version that was
        // not shown.
        let at = if self.namespace.is_empty() && !self.listing.versions {
            at.name.max(self.last.clone())
        } else {
            self.last.clone()
        };
        // Nothing was read yet behind where the page began.
        if at <= self.listing.after && self.last_version == self.listing.after_version {
            return false;
        }
        (self.listed.next, self.listed.next_version) = (Some(at), self.last_version.clone());
        true
    }

    /// Adds an entry; whether one more than is wanted was found.
    fn show(&mut self, entry: Entry) -> bool {
        let Some(mut key) = Key::from_oid(&entry.key.name) else { return false };
        key.instance = entry.key.instance.clone();
        let is_prefix = entry.flags & COMMON_PREFIX != 0;
        // Beside uploads there are their parts.
        let part = !self.namespace.is_empty() && !key.name.ends_with(META);
        let is_marker = self.listing.versions && entry.has(DELETE_MARKER);
        let hidden = part || key.namespace != self.namespace || !(entry.exists || is_prefix || is_marker);
        if hidden || !key.name.starts_with(&self.listing.prefix) {
            return false;
        }
        let prefix = if is_prefix { Some(key.name.clone()) } else { self.common_prefix(&key.name) };
        let shown = prefix.as_ref().unwrap_or(&key.name);
        // Of the name that was shown last, older versions follow.
        let follows = self.listing.versions && prefix.is_none() && !self.last_version.is_empty();
        if *shown < self.last || (*shown == self.last && !follows) {
            return false;
        }
        if self.found == self.listing.max {
            self.listed.next = Some(self.last.clone());
            self.listed.next_version = self.last_version.clone();
            return true;
        }
        (self.last, self.found, self.last_version) = (shown.clone(), self.found + 1, Bytes::new());
        match prefix {
            Some(prefix) => self.listed.prefixes.push(prefix),
            None if self.listing.versions => {
                key.instance = null_or(&key.instance);
                self.last_version = key.instance.clone();
                let is_latest = !entry.has(VERSIONED) || entry.has(CURRENT);
                self.listed.versions.push(ListedVersion { key, meta: entry.meta, is_latest, is_marker });
            }
            None => self.listed.objects.push((key, entry.meta)),
        }
        false
    }

    /// The name to behind the first delimiter that follows the listing's prefix.
    fn common_prefix(&self, name: &Bytes) -> Option<Bytes> {
        let (delimiter, from) = (&self.listing.delimiter, self.listing.prefix.len());
        if delimiter.is_empty() {
            return None;
        }
        let rest = name.get(from..)?;
        let at = rest.windows(delimiter.len()).position(|w| w == delimiter.as_ref())?;
        Some(name.slice(..from + at + delimiter.len()))
    }
}

/// Whether what lies under a name says which version it shows, and is no version itself.
fn is_name_alone(reply: &Reply) -> bool {
    reply.attrs(0).is_ok_and(|a| a.contains_key(NAME_TAG) && !a.contains_key(attr::MANIFEST))
}

/// Whether the index is told what an object is found to be. The version without an id would be told by the
/// object's name, where what stands for all versions is; and a version goes by its removal alone, which takes
/// both of its entries.
fn is_told(op: u8, entry: &Entry) -> bool {
    !entry.has(VERSIONED) || (op == Suggestion::UPDATE && !entry.key.instance.is_empty())
}

/// Where to go on among the versions of one name: the index takes a name alone for what comes before them
/// all, and the version without an id by the name `null`.
fn behind(before: &IndexKey, marker: IndexKey) -> IndexKey {
    let unnamed = marker.name == before.name && marker.instance.is_empty();
    if unnamed { IndexKey { instance: Bytes::from_static(b"null"), ..marker } } else { marker }
}

/// Where to go on in a list of objects: behind all names of other namespaces. Those begin with one underscore;
/// of objects, what begins with one has two in the index.
fn past_other_namespaces(namespace: &[u8], marker: IndexKey) -> IndexKey {
    let next: &'static [u8] = match marker.name.strip_prefix(b"_").and_then(|rest| rest.first()) {
        Some(second) if namespace.is_empty() && *second < b'_' => b"_^\xff",
        Some(second) if namespace.is_empty() && *second > b'_' => b"_\xff",
        _ => return marker,
    };
    if next > &marker.name[..] { IndexKey::plain(Bytes::from_static(next)) } else { marker }
}

/// Another version of the same name.
fn is_next(before: &IndexKey, marker: &IndexKey) -> bool {
    marker.name == before.name && marker.instance != before.instance
}

/// Makes an entry what its object is. Source: RGWRados::check_disk_state.
fn as_stored(entry: &mut Entry, reply: &Reply) -> Result<(), Error> {
    let (attrs, (size, mtime)) = (own(reply.attrs(0)?), reply.stat(1)?);
    let given = |name: &[u8]| attrs.get(name).map(text).unwrap_or_default();
    let manifest = attrs.get(attr::MANIFEST).map(|raw| rgw::Manifest::from_bytes(raw.clone())).transpose()?;
    let size = manifest.map_or(size, |m| m.size);
    let compression =
        attrs.get(attr::COMPRESSION).map(|raw| Compression::from_bytes(raw.clone())).transpose()?;
    let seen = compression.filter(|c| c.kind != Compression::default().kind).map_or(size, |c| c.size);
    let acl = attrs.get(crate::buckets::ATTR_ACL).map(|raw| AccessControl::from_bytes(raw.clone()));
    let owner = acl.transpose()?.map(|acl| acl.owner).unwrap_or_default();
    entry.exists = true;
    entry.written = Written { pool: reply.pool, epoch: reply.version };
    entry.tag = given(attr::ID_TAG);
    let is_upload = Key::from_oid(&entry.key.name).is_some_and(|key| super::is_upload(&key));
    entry.meta = Meta {
        category: if is_upload { UPLOADS } else { MAIN },
        size,
        accounted_size: if is_upload { 0 } else { seen },
        mtime,
        etag: given(attr::ETAG),
        content_type: given(attr::CONTENT_TYPE),
        storage_class: given(attr::STORAGE_CLASS),
        owner: owner.id.to_text(),
        owner_name: owner.display_name,
        ..std::mem::take(&mut entry.meta)
    };
    Ok(())
}

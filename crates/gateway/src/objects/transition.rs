//! Objects that go to another storage class because their time has come. Source: RGWRados::transition_obj in
//! src/rgw/rgw_rados.cc.
//!
//! 1. Bytes are copied as they are stored, a stripe at a time, under names that nobody had before. What was
//!    uploaded in parts keeps its parts: radosgw makes one piece of it, of which nobody can decipher a part.
//! 2. The head changes in one request, and in place of the one that was read alone, with the attributes that
//!    may change as they were. Its time and its other attributes stay.
//! 3. A version that is listed with another class than its head's is listed anew: whoever moved it died
//!    before that.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use codec::Encode;
use rgw::index::Meta;
use rgw::index::entry::DELETE_MARKER;
use rgw::{BucketInfo, Key, Manifest, Object, PlacementRule};
use types::Errno;

use super::attrs::{AttrChange, meta_then};
use super::change::{Change, Prepared};
use super::expire::is_seen;
use super::put::{MAX_HEAD, STRIPE, waste};
use super::versions::{Showing, is_versioned, without_null};
use super::{Head, Opened, SharedBucket, attr, text};
use crate::lifecycle::{Seen, canonical};
use crate::system::{Attrs, own};
use crate::{Error, Moment, Op, Plan, Reply, Request, Site, garbage};

impl Site {
    /// Moves what a list showed to a storage class, as long as it is what was listed. Whether it is there.
    pub(crate) fn move_to_class(
        &self,
        bucket: &SharedBucket,
        (class, seen): (&Bytes, &Seen),
        tags: &BTreeMap<Bytes, Bytes>,
        moment: &mut Moment,
    ) -> Plan<bool> {
        if seen.is_marker {
            return Plan::ok(false);
        }
        if !self.has_class(bucket, class) {
            return Plan::failed(Error::NoSuchPlacement);
        }
        let key = without_null(seen.key.clone());
        let tag: Bytes = [b"_", &moment.letters(31)[..]].concat().into();
        let change = match Change::new(self, bucket, &key, &key.name, tag.clone()) {
            Ok(change) => change,
            Err(e) => return Plan::failed(e),
        };
        let showing = is_versioned(bucket).then(|| self.showing(bucket, &key, moment));
        let change = if showing.is_some() { change.of_version() } else { change };
        let (site, bucket, letters) = (self.clone(), bucket.clone(), moment.letters(31));
        let moves = Moves { site, bucket, key, seen: seen.clone(), class: canonical(class), tag, showing };
        let tags = tags.clone();
        moves.is_listed_so().and_then(move |is_listed_so| match is_listed_so {
            true => moves.look().and_then(move |head| match head.map(|head| moves.judge(head, &tags)) {
                None => Plan::ok(false),
                Some(Err(e)) => Plan::failed(e),
                Some(Ok(None)) => Plan::ok(false),
                Some(Ok(Some(head))) => moves.go(head, change, &letters),
            }),
            false => Plan::ok(false),
        })
    }
}

/// Where something goes.
struct Moves {
    site: Site,
    bucket: SharedBucket,
    /// With the version's id.
    key: Key,
    seen: Seen,
    /// By its name, also where it is the standard one.
    class: Bytes,
    /// Of the change, and of the head that comes.
    tag: Bytes,
    /// Of its name, in a bucket that keeps versions.
    showing: Option<Showing>,
}

/// The class that a head is of.
fn class_of(head: &Head, bucket: &BucketInfo) -> Bytes {
    let told = head.attrs.get(attr::STORAGE_CLASS).map(text).filter(|class| !class.is_empty());
    canonical(&told.unwrap_or_else(|| bucket.placement.storage_class.clone()))
}

impl Moves {
    /// Whether a version is still what the list said: the one that is shown, or another one. Its entry does
    /// not tell it once its attributes changed.
    fn is_listed_so(&self) -> Plan<bool> {
        let Some(showing) = &self.showing else { return Plan::ok(true) };
        let (id, is_latest) = (self.key.instance.clone(), self.seen.is_latest);
        let name = Key { instance: Bytes::new(), ..self.key.clone() };
        let shown = self.site.shown_by(&self.bucket, &name, 0, showing.removal());
        shown.and_then(move |shown| Plan::ok(shown.is_some_and(|head| head.version == id) == is_latest))
    }

    /// The head, where data lies there.
    fn look(&self) -> Plan<Option<Head>> {
        let keeps_versions = self.showing.is_some();
        let is_object = move |head: &Head| head.has_data() && (keeps_versions || head.name_tag().is_none());
        self.site.head(&self.bucket, &self.key, 0).and_then(move |head| Plan::ok(head.filter(is_object)))
    }

    fn judge(&self, head: Head, tags: &BTreeMap<Bytes, Bytes>) -> Result<Option<Head>, Error> {
        Ok(is_seen(&head, &self.seen, tags)?.then_some(head))
    }

    fn go(self, head: Head, change: Change, letters: &[u8]) -> Plan<bool> {
        if class_of(&head, &self.bucket) == self.class {
            return self.tell_index(head.object.clone(), change);
        }
        let Some(manifest) = self.manifest(&head, letters) else { return Plan::ok(false) };
        let opened = Opened::of(&self.site, head);
        let transfer = Arc::new(Transfer { moves: self, opened, manifest });
        transfer.copy(0).and_then(move |transfer| transfer.read_head(change))
    }

    fn placement(&self) -> PlacementRule {
        let moved = PlacementRule { storage_class: self.class.clone(), ..self.bucket.placement.clone() };
        let is_default = moved.storage_class() == self.bucket.placement.storage_class();
        if is_default { self.bucket.placement.clone() } else { moved }
    }

    /// What the attribute that names the class becomes: as of an object that is written to it.
    fn class_attr(&self) -> AttrChange {
        let class = Some(self.placement().storage_class).filter(|class| !class.is_empty());
        (Bytes::from_static(attr::STORAGE_CLASS), class)
    }

    /// The manifest of what lies there then; none for what would not be the same object.
    fn manifest(&self, head: &Head, letters: &[u8]) -> Option<Manifest> {
        let object = Object { bucket: self.bucket.bucket.clone(), key: self.key.clone() };
        let placement = self.placement();
        let parts = head.manifest.as_ref().and_then(|old| {
            let prefix = [&self.key.name[..], b".2~", letters].concat().into();
            old.parts_moved(object.clone(), placement.clone(), prefix)
        });
        if parts.is_some() {
            return parts;
        }
        let size = head.size();
        // Of what is encrypted each part has a stream of its own.
        let is_one_stream = |old: &Manifest| size == 0 || old.part_at(0) == Some(0..size);
        if head.encryption().is_some() && !head.manifest.as_ref().is_none_or(is_one_stream) {
            return None;
        }
        // What lies in another pool has no bytes in its head.
        let is_beside = self.site.raw(&object, &placement).ok()?.pool == head.object.pool;
        let (max_head, prefix) =
            (if is_beside { MAX_HEAD } else { 0 }, [b".", letters, b"_"].concat().into());
        let head_rule = self.bucket.placement.clone();
        let mut manifest = Manifest::whole(object, head_rule, prefix, size, max_head, STRIPE);
        manifest.tail.placement = placement;
        Some(manifest)
    }

    /// What listings show of the head as it becomes, whose time stays.
    fn meta(&self, head: &Head) -> Result<Meta, Error> {
        let (appendable, user_data) = (self.seen.meta.appendable, self.seen.meta.user_data.clone());
        let meta = meta_then(head.clone(), vec![self.class_attr()], head.modified)?;
        Ok(Meta { appendable, user_data, ..meta })
    }

    /// Tells the index of a head that is in its class already.
    fn tell_index(self, object: rgw::RawObject, change: Change) -> Plan<bool> {
        let prepared = change.prepare_add(&self.site, self.bucket.clone());
        prepared.and_then(move |Prepared { bucket, change, .. }| {
            let moves = Self { bucket, ..self };
            let look = Request::new(object.clone()).op(Op::Attrs).op(Op::Stat);
            Plan::ask(look).then(move |reply| {
                let head = reply.and_then(|reply| {
                    let head = Head::read(object, moves.key.instance.clone(), &reply)?;
                    let is_it = head.has_data() && class_of(&head, &moves.bucket) == moves.class;
                    let meta = is_it.then(|| moves.meta(&head)).transpose()?.ok_or(Error::Raced)?;
                    Ok((reply, meta))
                });
                match head {
                    Ok((reply, meta)) => moves.complete(reply, meta, change),
                    Err(e) => Plan::ask(change.cancelled()).then(move |_| Plan::failed(e)),
                }
            })
        })
    }

    /// The head is in its class: that the index does not hear of it now, it learns from listings, or when the
    /// next round finds it listed elsewhere.
    fn complete(self, reply: Reply, meta: Meta, change: Change) -> Plan<bool> {
        Plan::ask(change.added(&reply, meta, Vec::new())).then(move |_| {
            let Some(showing) = self.showing else { return Plan::ok(true) };
            self.site.located(&self.bucket, &self.key).and_then(move |(at, entry)| {
                // A name without versions is listed as it is, and what was never shown is not listed.
                let is_plain = self.key.instance.is_empty() && at == self.key.index_name();
                if is_plain || entry.has(DELETE_MARKER) || entry.versioned_epoch == 0 {
                    return Plan::ok(true);
                }
                let (showing, id) = (showing.in_bucket(self.bucket), self.key.instance);
                showing.list_again(id, entry.versioned_epoch).and_then(|()| Plan::ok(true))
            })
        })
    }
}

/// Something on its way.
struct Transfer {
    moves: Moves,
    opened: Opened,
    /// As it becomes.
    manifest: Manifest,
}

impl Transfer {
    /// Copies the tail from a byte of the whole on.
    fn copy(self: Arc<Self>, at: u64) -> Plan<Arc<Self>> {
        let at = at.max(self.manifest.head_size);
        if at >= self.manifest.size {
            return Plan::ok(self);
        }
        let place = self.manifest.stripe_at(at).filter(|stripe| stripe.at + stripe.length > at);
        let place = place.ok_or(Error::Unexpected).and_then(|stripe| {
            Ok((
                self.moves.site.raw(&stripe.object, &stripe.placement)?,
                stripe.at,
                stripe.at + stripe.length,
            ))
        });
        let (object, begin, end) = match place {
            Ok(place) => place,
            Err(e) => return self.give_up(e, at),
        };
        // Stripes of others may be longer than what is held here.
        let end = end.min(at.saturating_add(STRIPE));
        let read = self.opened.read_stored(at, end);
        let written = self.part_attrs(at).and_then(move |attrs| {
            read.and_then(move |data| {
                let op = if at == begin { Op::WriteFull(data) } else { Op::Append(data) };
                let request = Request::new(object).op(op);
                Plan::ask(attrs.into_iter().fold(request, |r, (name, value)| r.set_attr(name, value)))
            })
        });
        written.then(move |written| match written {
            Ok(_) => self.copy(end),
            Err(e) => self.give_up(e, end),
        })
    }

    /// What is kept of a part that begins here.
    fn part_attrs(&self, at: u64) -> Plan<Attrs> {
        let old = self.opened.head.manifest.as_ref().filter(|old| old.parts().is_some());
        let begins = old.filter(|old| old.part_at(at).is_some_and(|part| part.start == at));
        let Some(stripe) = begins.and_then(|old| old.stripe_at(at)) else { return Plan::ok(Attrs::new()) };
        let object = match self.moves.site.raw(&stripe.object, &stripe.placement) {
            Ok(object) => object,
            Err(e) => return Plan::failed(e),
        };
        Plan::ask(Request::new(object).op(Op::Attrs)).try_map(|reply| {
            let mut attrs = own(reply.attrs(0)?);
            attrs.retain(|name, _| ![attr::ID_TAG, attr::TAIL_TAG, attr::MANIFEST].contains(&&name[..]));
            Ok(attrs)
        })
    }

    /// Removes what was copied of the tail up to a byte of the whole, and fails with `why`: what was read is
    /// gone where it was not found.
    fn give_up<T: Send + 'static>(&self, why: Error, reached: u64) -> Plan<T> {
        let why = if why == Error::Rados(Errno::ENOENT) { Error::Raced } else { why };
        let copied = Manifest { size: self.manifest.size.min(reached), ..self.manifest.clone() };
        let tail = garbage::tail(&self.moves.site, &copied, &self.opened.head.object);
        garbage::remove_now(tail, self.tag_value()).then(move |_| Plan::failed(why))
    }

    /// The tag as attributes have it: with a zero behind it.
    fn tag_value(&self) -> Bytes {
        [&self.moves.tag[..], b"\0"].concat().into()
    }

    fn read_head(self: Arc<Self>, change: Change) -> Plan<bool> {
        let (site, bucket) = (self.moves.site.clone(), self.moves.bucket.clone());
        let read = self.opened.read_stored(0, self.manifest.head_size);
        let prepared = read.and_then(move |data| {
            let prepared = change.prepare_add(&site, bucket);
            prepared.and_then(move |prepared| Plan::ok((prepared, data)))
        });
        prepared.then(move |prepared| match prepared {
            Ok((prepared, data)) => self.write_head(prepared, data),
            Err(e) => self.give_up(e, u64::MAX),
        })
    }

    fn write_head(self: Arc<Self>, prepared: Prepared, data: Bytes) -> Plan<bool> {
        let Prepared { bucket, change, .. } = prepared;
        let meta = match self.moves.meta(&self.opened.head) {
            Ok(meta) => meta,
            Err(e) => return Plan::ask(change.cancelled()).then(move |_| self.give_up(e, u64::MAX)),
        };
        Plan::ask(self.request(data)).then(move |written| match written {
            Ok(reply) => self.complete(reply, meta, bucket, change),
            Err(e) if e.is_unclear() => {
                let look = Request::new(self.opened.head.object.clone()).op(Op::Attrs);
                Plan::ask(look).then(move |reply| match reply {
                    Ok(reply)
                        if reply.attrs(0).is_ok_and(|a| a.get(attr::ID_TAG) == Some(&self.tag_value())) =>
                    {
                        self.complete(reply, meta, bucket, change)
                    }
                    // The head may still come, and names the tail then.
                    _ => Plan::failed(e),
                })
            }
            Err(e) => Plan::ask(change.cancelled()).then(move |_| self.give_up(e, u64::MAX)),
        })
    }

    /// What makes the head, in place of the one that was read, of which all stays that is not said here.
    fn request(&self, data: Bytes) -> Request {
        let head = &self.opened.head;
        let request = Request::new(head.object.clone()).at(head.modified);
        let holds = [Op::Stat].into_iter().chain(head.is_in_place()).chain(head.is_unchanged());
        let request = holds
            .fold(request, Request::op)
            .op(Op::WriteFull(data))
            .set_attr(attr::ID_TAG, self.tag_value())
            .set_attr(attr::TAIL_TAG, self.tag_value())
            .set_attr(attr::MANIFEST, self.manifest.to_bytes());
        match self.moves.class_attr() {
            (name, Some(class)) => request.set_attr(name, class),
            (name, None) => request.op(Op::RemoveAttr(name)),
        }
    }

    /// Hands the tail from before to garbage collection, and tells the index.
    fn complete(&self, reply: Reply, meta: Meta, bucket: SharedBucket, change: Change) -> Plan<bool> {
        let Moves { site, key, seen, class, tag, showing, .. } = &self.moves;
        let (site, key, seen, class) = (site.clone(), key.clone(), seen.clone(), class.clone());
        let moves = Moves { site, bucket, key, seen, class, tag: tag.clone(), showing: showing.clone() };
        let head = &self.opened.head;
        let collected = garbage::collect(&moves.site, waste(&moves.site, head), head.tail_tag());
        collected.then(move |_| moves.complete(reply, meta, change))
    }
}

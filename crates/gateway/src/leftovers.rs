//! What is left in a bucket's index of gateways that died: versions that were written and never shown,
//! names whose versions are gone, and parts whose upload is gone. No list shows them, so that nobody could
//! remove them but with their bucket.
//!
//! 1. Writers are held off meanwhile: what is not shown yet never will be. A change that is prepared and may
//!    still be under way is no leftover.
//! 2. Nothing is removed before it is known that the bucket holds nothing else.
//! 3. A bucket holds each upload that is there, and so the upload's parts. Where it holds none, entries of
//!    parts are of uploads that are gone. Their data stays: a copy in another bucket may have it.

use bytes::Bytes;
use classes::client::index::{self, RawEntry};
use codec::Decode;
use rgw::index::entry::{DELETE_MARKER, VERSION_MARKER, VERSIONED};
use rgw::index::{Entry, Head as IndexHead};
use rgw::{BucketInfo, Key, RawObject};
use types::RealTime;

use crate::objects::{META, NAMESPACE, waste};
use crate::{Error, Op, Plan, Reply, Request, Site, garbage};

/// Kinds of entries. Source: BIIndexType in src/cls/rgw/cls_rgw_types.h.
const PLAIN: u8 = 1;
const INSTANCE: u8 = 2;
/// Entries of one request.
const PAGE: u32 = 1000;
/// Seconds in which a prepared change may still be under way. Source: CEPH_RGW_TAG_TIMEOUT in
/// src/cls/rgw/cls_rgw_types.h.
const PENDING_S: u32 = 120;

/// An index that is gone through.
#[derive(Debug, Clone)]
struct Sweep {
    site: Site,
    info: BucketInfo,
    /// Shards that are still to be looked at, the next one last.
    shards: Vec<RawObject>,
    /// Key of the last entry that was looked at of that shard.
    after: Bytes,
    /// Leftovers are removed, not just told from what the bucket holds.
    removes: bool,
    now: RealTime,
}

impl Site {
    /// Whether a bucket that writers are held off from holds nothing; then its leftovers go.
    pub(crate) fn is_empty(&self, info: &BucketInfo, now: RealTime) -> Plan<bool> {
        let shards = match self.index_objects(info) {
            Ok(shards) => shards,
            Err(e) => return Plan::failed(e),
        };
        let sweep = |removes| Sweep {
            site: self.clone(),
            info: info.clone(),
            shards: shards.clone(),
            after: Bytes::new(),
            removes,
            now,
        };
        let (looks, removes) = (sweep(false), sweep(true));
        looks.go_on().and_then(move |empty| if empty { removes.go_on() } else { Plan::ok(false) })
    }
}

impl Sweep {
    fn go_on(mut self) -> Plan<bool> {
        let Some(shard) = self.shards.last().cloned() else { return Plan::ok(true) };
        let args = index::ListEntriesArgs { max: PAGE, name: Bytes::new(), marker: self.after.clone() };
        Plan::ask(Request::new(shard).call(&index::LIST_ENTRIES, &args)).and_then(move |reply: Reply| {
            let page = match reply.answer(0, &index::LIST_ENTRIES) {
                Ok(page) => page,
                Err(e) => return Plan::failed(e),
            };
            let found: Result<Vec<_>, _> = page.entries.iter().map(|raw| leftover(raw, self.now)).collect();
            let keys: Option<Vec<_>> = match found {
                Ok(found) => found.into_iter().collect(),
                Err(e) => return Plan::failed(e),
            };
            let Some(keys) = keys else { return Plan::ok(false) };
            match page.entries.last().filter(|_| page.truncated) {
                Some(last) if last.key == self.after => return Plan::failed(Error::Unexpected),
                Some(last) => self.after = last.key.clone(),
                None => {
                    self.shards.pop();
                    self.after = Bytes::new();
                }
            }
            let keys = keys.into_iter().flatten().flat_map(with_name).filter(|_| self.removes).collect();
            self.remove(keys)
        })
    }

    fn remove(self, mut keys: Vec<Key>) -> Plan<bool> {
        let Some(key) = keys.pop() else { return self.go_on() };
        self.site.head(&self.info, &key, 0).and_then(move |head| match head {
            None => self.remove(keys),
            Some(head) => {
                let request =
                    head.is_in_place().into_iter().fold(Request::new(head.object.clone()), Request::op);
                let (objects, tag) = (waste(&self.site, &head), head.tail_tag());
                Plan::ask(request.op(Op::Remove { may_miss: true })).then(move |done| {
                    let collected = match done {
                        Ok(_) => garbage::collect(&self.site, objects, tag),
                        // It is another one by now: what it is will be seen.
                        Err(_) => Plan::ok(()),
                    };
                    collected.then(move |_| self.remove(keys))
                })
            }
        })
    }
}

/// A version that was never shown may have a name that shows nothing.
fn with_name(key: Key) -> Vec<Key> {
    let name = Key { instance: Bytes::new(), ..key.clone() };
    if key == name { vec![key] } else { vec![key, name] }
}

/// What may lie in RADOS for an entry, if that is a leftover: nothing for an entry without an object. The
/// outer one is none where the bucket holds something.
type Leftover = Option<Option<Key>>;

/// Whether a name in an index is that of a part of an upload, not of the upload itself.
fn is_part(name: &Bytes) -> bool {
    let key = Key::from_oid(name);
    key.is_some_and(|key| key.namespace == NAMESPACE && !key.name.ends_with(META))
}

fn leftover(raw: &RawEntry, now: RealTime) -> Result<Leftover, Error> {
    let key = |name: &Bytes, instance: Bytes| Key::from_oid(name).map(|key| Key { instance, ..key });
    match raw.kind {
        PLAIN | INSTANCE => {
            let mut entry = Entry::from_bytes(raw.value.clone())?;
            entry.pending.retain(|change| change.time.0.sec.saturating_add(PENDING_S) > now.0.sec);
            // What lists show has an entry of the first kind. So has a write of the version without an id
            // that was prepared before its name had others.
            let never_was = entry.has(VERSIONED) && !entry.exists && !entry.has(DELETE_MARKER);
            let is_listed = raw.kind == PLAIN && !entry.has(VERSION_MARKER) && !never_was;
            if raw.kind == PLAIN && entry.pending.is_empty() && is_part(&entry.key.name) {
                return Ok(Some(None));
            }
            let is_left = entry.pending.is_empty() && !is_listed;
            Ok(is_left.then(|| key(&entry.key.name, entry.key.instance)))
        }
        _ => {
            let head = IndexHead::from_bytes(raw.value.clone())?;
            Ok(Some(key(&head.key.name, Bytes::new())))
        }
    }
}

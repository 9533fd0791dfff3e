//! Objects that expire or go to another storage class: the list of buckets that have rules, which all
//! gateways work off together, and what is done to an object. Source: src/rgw/rgw_lc.cc.
//!
//! 1. The list is in 32 objects. Who works on one holds its lock for as long as it takes to say which bucket
//!    comes next, and again to say how that ended.
//! 2. A list of a bucket tells what is to go; before it goes it is looked at again.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use classes::client::Nothing;
use classes::client::lifecycle as list;
use codec::Decode;
use rgw::{
    Bucket, BucketInfo, Key, Lifecycle, LifecycleEntry, LifecycleHead, Owner, RawObject, Tags, UserId,
};
use types::RealTime;

use crate::buckets::shard_of;
use crate::objects::{Remover, SharedBucket};
use crate::plan::optional;
use crate::turn::Turn;
use crate::{Error, Moment, Plan, Reply, Request, Site};

mod rules;
#[cfg(test)]
mod tests;

pub(crate) use rules::canonical;
pub use rules::{Action, Age, Expiry, Seen};

/// Attribute of a bucket's instance. Source: RGW_ATTR_LC in src/rgw/rgw_common.h.
pub const ATTR: &[u8] = b"user.rgw.lc";
/// Objects of the list. Source: rgw_lc_max_objs in src/common/options.cc.
pub const SHARDS: u32 = 32;
const LOCK: &[u8] = b"lc_process";
/// Source: rgw_lc_lock_max_time.
const LOCK_S: u32 = 90;
/// Who finds the lock taken tries again so often, after so long.
const TRIES: u32 = 30;
const WAIT: Duration = Duration::from_secs(1);
/// Entries of one request. Source: MAX_LC_LIST_ENTRIES in src/rgw/rgw_lc.cc.
const PAGE: u32 = 100;
/// Version of a list's request. Source: cls_rgw_lc_list_entries_op in src/cls/rgw/cls_rgw_ops.h.
const LIST_VERSION: u8 = 3;

/// Source: LC_BUCKET_STATUS in src/rgw/rgw_lc.h.
mod status {
    pub const NOT_YET: u32 = 0;
    pub const UNDER_WAY: u32 = 1;
    pub const FAILED: u32 = 2;
    pub const DONE: u32 = 3;
}

/// How the work on a bucket ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Done,
    Failed,
    /// There is no such bucket any more.
    Gone,
}

/// What a bucket is called in the list. Source: get_lc_shard_name.
fn name(bucket: &Bucket) -> Bytes {
    [&bucket.tenant[..], b":", &bucket.name, b":", &bucket.marker].concat().into()
}

impl Site {
    fn lifecycles(&self, shard: u32) -> RawObject {
        RawObject::new(&self.zone.lc, format!("lc.{shard}"))
    }

    fn lifecycle_turn(&self, shard: u32, cookie: Bytes) -> Turn {
        Turn { object: self.lifecycles(shard), name: LOCK, cookie, seconds: LOCK_S }
    }

    /// Puts a bucket on the list, or takes it off: after its rules were set, or went.
    pub fn list_lifecycle(&self, bucket: &Bucket, listed: bool, moment: &mut Moment) -> Plan<()> {
        let name = name(bucket);
        // Source: get_lc_oid.
        let shard = shard_of(crush::str_hash_linux(&name), SHARDS);
        let args = list::EntryArgs { entry: LifecycleEntry { bucket: name, ..LifecycleEntry::default() } };
        let request = Request::new(self.lifecycles(shard));
        let request =
            if listed { request.call(&list::SET, &args) } else { request.call(&list::REMOVE, &args) };
        let turn = self.lifecycle_turn(shard, moment.letters(16));
        in_turn(turn, move || Plan::ask(request.clone()).and_then(|_| Plan::ok(())), TRIES)
    }

    /// The bucket of a part of the list that comes next, which is marked as worked on; none when the round is
    /// over, or somebody works there. A round begins once a day, or each `interval` seconds.
    pub fn next_lifecycle(&self, shard: u32, age: Age) -> Plan<Option<LifecycleEntry>> {
        let (site, turn) = (self.clone(), self.lifecycle_turn(shard, Bytes::new()));
        turn.hold(move || site.next_lifecycle_held(shard, age)).then(|found| match found {
            Err(Error::Raced) => Plan::ok(None),
            found => Plan::Done(found),
        })
    }

    fn next_lifecycle_held(&self, shard: u32, age: Age) -> Plan<Option<LifecycleEntry>> {
        let (site, object) = (self.clone(), self.lifecycles(shard));
        let read = Plan::ask(Request::new(object.clone()).call(&list::GET_HEAD, &Nothing));
        read.and_then(move |reply: Reply| {
            let head = match reply.answer(0, &list::GET_HEAD) {
                Ok(answer) => answer.head,
                Err(e) => return Plan::failed(e),
            };
            let args = list::MarkerArgs { marker: head.marker.clone() };
            let last = optional(Plan::ask(Request::new(object).call(&list::GET, &args)));
            last.try_map(move |last| match last {
                Some(reply) => Ok(Some(reply.answer(0, &list::GET)?.entry)),
                None => Ok(None),
            })
            .and_then(move |last| {
                let busy = last.is_some_and(|e| e.status == status::UNDER_WAY && !age.is_given_up(e.started));
                match busy {
                    true => Plan::ok(None),
                    false if age.is_of_this_round(head.started) => site.take_lifecycle(shard, head),
                    false => {
                        let head = LifecycleHead { started: age.now.0.sec.into(), marker: Bytes::new() };
                        let begun = site.begin_round(shard, Bytes::new(), age.now);
                        begun.and_then(move |()| site.take_lifecycle(shard, head))
                    }
                }
            })
        })
    }

    /// Marks all entries behind a name as not worked on.
    fn begin_round(&self, shard: u32, marker: Bytes, now: RealTime) -> Plan<()> {
        let (site, object) = (self.clone(), self.lifecycles(shard));
        let args = list::ListArgs { version: LIST_VERSION, marker: marker.clone(), max: PAGE };
        Plan::ask(Request::new(object.clone()).call(&list::LIST, &args)).and_then(move |reply: Reply| {
            let page = match reply.answer(0, &list::LIST) {
                Ok(page) => page.entries,
                Err(e) => return Plan::failed(e),
            };
            let Some(last) = page.last().map(|entry| entry.bucket.clone()) else { return Plan::ok(()) };
            if last <= marker {
                return Plan::failed(Error::Unexpected);
            }
            let set = |entry: LifecycleEntry| {
                let (started, status) = (now.0.sec.into(), status::NOT_YET);
                let args = list::EntryArgs { entry: LifecycleEntry { started, status, ..entry } };
                Request::new(object.clone()).call(&list::SET, &args)
            };
            Plan::<Vec<Reply>>::ask_all(page.into_iter().map(set).collect())
                .and_then(move |_| site.begin_round(shard, last, now))
        })
    }

    fn take_lifecycle(&self, shard: u32, head: LifecycleHead) -> Plan<Option<LifecycleEntry>> {
        let object = self.lifecycles(shard);
        let args = list::MarkerArgs { marker: head.marker.clone() };
        Plan::ask(Request::new(object.clone()).call(&list::NEXT, &args)).and_then(move |reply: Reply| {
            let entry = match reply.answer(0, &list::NEXT) {
                Ok(next) => next.entry,
                Err(e) => return Plan::failed(e),
            };
            if entry.bucket.is_empty() {
                return Plan::ok(None);
            }
            let entry = LifecycleEntry { status: status::UNDER_WAY, ..entry };
            let head = list::HeadArgs { head: LifecycleHead { marker: entry.bucket.clone(), ..head } };
            let args = list::EntryArgs { entry: entry.clone() };
            let marked = Request::new(object).call(&list::SET, &args).call(&list::PUT_HEAD, &head);
            Plan::ask(marked).and_then(move |_| Plan::ok(Some(entry)))
        })
    }

    /// Says how the work on a bucket ended.
    pub fn end_lifecycle(
        &self,
        shard: u32,
        entry: LifecycleEntry,
        outcome: Outcome,
        moment: &mut Moment,
    ) -> Plan<()> {
        let request = Request::new(self.lifecycles(shard));
        let request = match outcome {
            Outcome::Gone => request.call(&list::REMOVE, &list::EntryArgs { entry }),
            Outcome::Done | Outcome::Failed => {
                let ok = outcome == Outcome::Done;
                let status = if ok { status::DONE } else { status::FAILED };
                request.call(&list::SET, &list::EntryArgs { entry: LifecycleEntry { status, ..entry } })
            }
        };
        let turn = self.lifecycle_turn(shard, moment.letters(16));
        in_turn(turn, move || Plan::ask(request.clone()).and_then(|_| Plan::ok(())), TRIES)
    }

    /// The bucket of an entry and its rules; none where the bucket is gone, and no rules where it has none.
    pub fn lifecycle_of(&self, entry: &LifecycleEntry) -> Plan<Option<(SharedBucket, Lifecycle)>> {
        let mut words = entry.bucket.split(|b| *b == b':').map(Bytes::copy_from_slice);
        let [tenant, name, marker] = [(); 3].map(|()| words.next().unwrap_or_default());
        self.bucket(&tenant, &name).then(move |state| match state {
            Err(Error::NoSuchBucket) => Plan::ok(None),
            Ok(state) if state.instance.value.bucket.marker != marker => Plan::ok(None),
            Ok(state) => match state.instance.attrs.get(ATTR).cloned().map(Lifecycle::from_bytes).transpose()
            {
                Ok(rules) => Plan::ok(Some((state.instance.value.into(), rules.unwrap_or_default()))),
                Err(e) => Plan::failed(e.into()),
            },
            Err(e) => Plan::failed(e),
        })
    }

    /// Does to an object what a list of its bucket said, unless it is another one by now, has not all of
    /// these tags, or a lock keeps it. Whether it was done.
    pub fn expire(
        &self,
        bucket: &SharedBucket,
        (expiry, seen): (Expiry, &Seen),
        tags: &BTreeMap<Bytes, Bytes>,
        moment: &mut Moment,
    ) -> Plan<bool> {
        let owner =
            Owner { id: UserId::from_text(&seen.meta.owner), display_name: seen.meta.owner_name.clone() };
        let by = Remover { owner, ..Remover::default() };
        let done = match expiry {
            Expiry::Shown => {
                let plain = Key { instance: Bytes::new(), ..seen.key.clone() };
                self.expire_shown(bucket, plain, seen, tags, (by, moment))
            }
            Expiry::Version => self.expire_version(bucket, seen, tags, (by, moment)),
        };
        done.then(|done| match done {
            Err(Error::Locked | Error::NoSuchKey | Error::Raced) => Plan::ok(false),
            done => Plan::Done(done),
        })
    }
}

impl Site {
    /// Whether a bucket's objects can be of a storage class.
    pub fn has_class(&self, bucket: &BucketInfo, class: &Bytes) -> bool {
        self.placement(&bucket.placement).is_ok_and(|pools| pools.classes.contains_key(&canonical(class)))
    }

    /// Has an object go to a storage class, as a list of its bucket said, unless it is another one by now, or
    /// has not all of these tags. Whether it was done.
    pub fn transition(
        &self,
        bucket: &SharedBucket,
        (class, seen): (&Bytes, &Seen),
        tags: &BTreeMap<Bytes, Bytes>,
        moment: &mut Moment,
    ) -> Plan<bool> {
        self.move_to_class(bucket, (class, seen), tags, moment).then(|done| match done {
            Err(Error::NoSuchKey | Error::Raced) => Plan::ok(false),
            done => Plan::Done(done),
        })
    }
}

/// Does something when a lock is free.
fn in_turn(turn: Turn, work: impl Fn() -> Plan<()> + Send + Clone + 'static, tries: u32) -> Plan<()> {
    let (again, next) = (turn.clone(), work.clone());
    turn.hold(work).then(move |done| match done {
        Err(Error::Raced) if tries > 0 => {
            Plan::wait(WAIT).and_then(move |()| in_turn(again, next, tries - 1))
        }
        done => Plan::Done(done),
    })
}

/// Whether an object has all of some tags.
pub(crate) fn has_tags(raw: Option<&Bytes>, wanted: &BTreeMap<Bytes, Bytes>) -> Result<bool, Error> {
    if wanted.is_empty() {
        return Ok(true);
    }
    let own = raw.map(|raw| Tags::from_bytes(raw.clone())).transpose()?.unwrap_or_default();
    Ok(wanted.iter().all(|(key, value)| own.tags.get(key) == Some(value)))
}

//! Tails that nobody needs any more: they are handed to garbage collection, which removes them when readers
//! that began earlier have ended. Source: src/rgw/rgw_gc.cc, rgw_gc_log.cc.

use bytes::Bytes;
use classes::client::Nothing;
use classes::client::version::{self, CondArgs, Condition};
use classes::client::{gc, gc_queue, lock, refcount};
use rgw::{Chain, Garbage, GarbageObject, Manifest, ObjectVersion, Pool, RawObject};
use types::RealTime;

use crate::buckets::shard_of;
use crate::plan::optional;
use crate::turn::{EXCLUSIVE, Turn};
use crate::{Error, Plan, Reply, Request, Site};

/// Objects that hold garbage. Source: rgw_gc_max_objs in src/common/options.cc.
pub const SHARDS: u32 = 32;
/// Seconds until garbage is removed. Source: rgw_gc_obj_min_wait.
const WAIT_S: u32 = 2 * 3600;
/// Source: RGWGC::seed in src/rgw/rgw_gc.h.
const SEED: u64 = 8_675_309;
/// Version of an object that holds a queue; of one that still has an omap it is 0.
pub(crate) const QUEUE: u64 = 1;
/// Versions are equal. Source: VER_COND_EQ in src/cls/version/cls_version_types.h.
pub(crate) const EQUAL: u32 = 1;
/// Stripes of one object: 5 TiB in pieces of 4 MiB are a fourth of that.
pub(crate) const MAX_STRIPES: usize = 5 << 20;

/// The 64 bits of xxHash with a seed. Source: the algorithm's specification; XXH64 in src/xxHash.
pub(crate) fn xxh64(data: &[u8], seed: u64) -> u64 {
    const P: [u64; 5] = [
        0x9e37_79b1_85eb_ca87,
        0xc2b2_ae3d_27d4_eb4f,
        0x1656_67b1_9e37_79f9,
        0x85eb_ca77_c2b2_ae63,
        0x27d4_eb2f_1656_67c5,
    ];
    let [p1, p2, p3, p4, p5] = P;
    let round =
        |acc: u64, lane: u64| acc.wrapping_add(lane.wrapping_mul(p2)).rotate_left(31).wrapping_mul(p1);
    let word = |bytes: &[u8]| bytes.iter().rev().fold(0u64, |sum, b| sum << 8 | u64::from(*b));
    let (stripes, mut rest) = data.split_at(data.len() / 32 * 32);
    let mut hash = seed.wrapping_add(p5);
    if !stripes.is_empty() {
        let mut lanes =
            [seed.wrapping_add(p1).wrapping_add(p2), seed.wrapping_add(p2), seed, seed.wrapping_sub(p1)];
        for stripe in stripes.chunks_exact(32) {
            for (lane, bytes) in lanes.iter_mut().zip(stripe.chunks_exact(8)) {
                *lane = round(*lane, word(bytes));
            }
        }
        let turned = lanes.iter().zip([1, 7, 12, 18]).map(|(lane, turn)| lane.rotate_left(turn));
        hash = turned.fold(0, u64::wrapping_add);
        for lane in lanes {
            hash = (hash ^ round(0, lane)).wrapping_mul(p1).wrapping_add(p4);
        }
    }
    hash = hash.wrapping_add(data.len() as u64);
    while let Some((bytes, behind)) = rest.split_at_checked(8) {
        hash = (hash ^ round(0, word(bytes))).rotate_left(27).wrapping_mul(p1).wrapping_add(p4);
        rest = behind;
    }
    if let Some((bytes, behind)) = rest.split_at_checked(4) {
        hash = (hash ^ word(bytes).wrapping_mul(p1)).rotate_left(23).wrapping_mul(p2).wrapping_add(p3);
        rest = behind;
    }
    for byte in rest {
        hash = (hash ^ u64::from(*byte).wrapping_mul(p5)).rotate_left(11).wrapping_mul(p1);
    }
    hash = (hash ^ (hash >> 33)).wrapping_mul(p2);
    hash = (hash ^ (hash >> 29)).wrapping_mul(p3);
    hash ^ (hash >> 32)
}

fn shard(tag: &[u8]) -> Bytes {
    // Of the hash 32 bits count.
    format!("gc.{}", shard_of(xxh64(tag, SEED) as u32, SHARDS)).into()
}

/// The objects that hold a manifest's bytes, but for `head`.
pub(crate) fn tail(site: &Site, manifest: &Manifest, head: &RawObject) -> Vec<RawObject> {
    let stripes = manifest.stripes(MAX_STRIPES);
    let raw = |stripe: &rgw::Stripe| site.raw(&stripe.object, &stripe.placement).ok();
    stripes.iter().filter_map(raw).filter(|object| object != head).collect()
}

/// Hands objects to garbage collection; where that fails, they are removed at once.
pub(crate) fn collect(site: &Site, objects: Vec<RawObject>, tag: Bytes) -> Plan<()> {
    if objects.is_empty() {
        return Plan::ok(());
    }
    let waste = |o: &RawObject| GarbageObject {
        pool: o.pool.to_text(),
        name: o.oid.clone(),
        instance: Bytes::new(),
        locator: o.locator.clone(),
    };
    let chain = Chain { objects: objects.iter().map(waste).collect() };
    let info = Garbage { tag: tag.clone(), chain, time: RealTime::default() };
    let args = gc::SetArgs { expires_in_s: WAIT_S, info };
    let object = RawObject::new(&site.zone.gc, shard(&tag));
    let queue = ObjectVersion { version: QUEUE, tag: Bytes::new() };
    let conditions = vec![Condition { version: queue.clone(), op: EQUAL }];
    let to_queue = Request::new(object.clone())
        .call(&version::CHECK, &CondArgs { version: queue, conditions })
        .call(&gc_queue::ENQUEUE, &args);
    Plan::ask(to_queue)
        .then(move |done| match done {
            // The object has an omap still, as before there were queues.
            Err(Error::Raced | Error::Rados(types::Errno::EPERM)) => {
                Plan::ask(Request::new(object).call(&gc::SET, &args))
            }
            other => Plan::Done(other),
        })
        .then(move |done| match done {
            Ok(_) => Plan::ok(()),
            Err(_) => remove_now(objects, tag),
        })
}

/// Source: gc_index_lock_name in src/rgw/rgw_gc.cc.
const LOCK: &[u8] = b"gc_process";
/// Source: rgw_gc_processor_max_time in src/common/options.cc.
const LOCK_S: u32 = 3600;
/// Entries that are worked off while the lock is held.
const PAGE: u32 = 100;
/// Objects that are removed at a time. Source: rgw_gc_max_concurrent_io.
const AT_A_TIME: usize = 10;

/// What a look at garbage did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Swept {
    /// Entries that were worked off.
    pub entries: usize,
    /// More may be due.
    pub more: bool,
}

/// Where entries are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kept {
    Queue,
    Omap,
}

impl Site {
    /// Removes garbage that is due, a page of one of its lists. Entries stay of which an object cannot be
    /// removed; nothing is done where somebody else is at it.
    pub fn sweep_garbage(&self, shard: u32) -> Plan<Swept> {
        let object = RawObject::new(&self.zone.gc, format!("gc.{shard}"));
        let at = object.clone();
        let turn = Turn { object: object.clone(), name: LOCK, cookie: Bytes::new(), seconds: LOCK_S };
        // A list that is not there is not made by looking at it.
        optional(Plan::ask(Request::new(object).call(&version::READ, &Nothing))).and_then(move |there| {
            match there.map(|reply| reply.answer(0, &version::READ)).transpose() {
                Err(e) => Plan::failed(e),
                Ok(None) => Plan::ok(Swept::default()),
                Ok(Some(known)) => {
                    turn.hold(move || sweep(at, known.version.version)).then(|done| match done {
                        Err(Error::Raced) => Plan::ok(Swept::default()),
                        done => Plan::Done(done),
                    })
                }
            }
        })
    }
}

/// What an omap has comes before what a queue has, which took its place.
fn sweep(object: RawObject, version: u64) -> Plan<Swept> {
    let args = |expired_only, max| gc::ListArgs { marker: Bytes::new(), max, expired_only };
    let all = Request::new(object.clone()).call(&gc::LIST, &args(false, 1));
    let due = Request::new(object.clone()).call(&gc::LIST, &args(true, PAGE));
    let queued = Request::new(object.clone())
        .call(&gc_queue::LIST, &args(true, PAGE))
        .call(&gc_queue::LIST, &args(false, PAGE));
    optional(Plan::ask(all)).and_then(move |reply: Option<Reply>| {
        let old = match reply.map(|reply| reply.answer(0, &gc::LIST)).transpose() {
            Ok(old) => old.is_some_and(|old| !old.entries.is_empty()),
            Err(e) => return Plan::failed(e),
        };
        let (list, kept) = match (old, version) {
            (true, _) => (due, Kept::Omap),
            (false, QUEUE) => (queued, Kept::Queue),
            (false, _) => return Plan::ok(Swept::default()),
        };
        Plan::ask(list).and_then(move |reply: Reply| {
            let page = match kept {
                Kept::Omap => reply.answer(0, &gc::LIST).map(|page| (page.entries, page.truncated)),
                Kept::Queue => front(&reply),
            };
            match page {
                Ok((entries, more)) => remove_page(object, kept, entries, more),
                Err(e) => Plan::failed(e),
            }
        })
    })
}

/// The entries in front of a queue that are due. A queue gives up entries from its front, by their number:
/// those behind one that is not due yet, which another gateway may have put there, have to wait for it.
fn front(reply: &Reply) -> Result<(Vec<Garbage>, bool), Error> {
    let (due, all) = (reply.answer(0, &gc_queue::LIST)?, reply.answer(1, &gc_queue::LIST)?);
    let of_page = all.entries.len();
    let is_due = |entry: &Garbage| due.entries.iter().any(|e| e.tag == entry.tag && e.time == entry.time);
    let entries: Vec<Garbage> = all.entries.into_iter().take_while(is_due).collect();
    let more = all.truncated && entries.len() == of_page;
    Ok((entries, more))
}

fn remove_page(object: RawObject, kept: Kept, entries: Vec<Garbage>, more: bool) -> Plan<Swept> {
    if entries.is_empty() {
        return Plan::ok(Swept::default());
    }
    let tags: Vec<Bytes> = entries.iter().map(|entry| entry.tag.clone()).collect();
    let swept = Swept { entries: entries.len(), more };
    // Who has lost the lock meanwhile takes nothing that another one lists.
    let held = lock::AssertArgs {
        name: Bytes::from_static(LOCK),
        kind: EXCLUSIVE,
        cookie: Bytes::new(),
        tag: Bytes::new(),
    };
    let request = Request::new(object).call(&lock::ASSERT, &held);
    let request = match kept {
        Kept::Omap => request.call(&gc::REMOVE, &gc::RemoveArgs { tags }),
        Kept::Queue => request.call(&gc_queue::REMOVE, &gc_queue::RemoveArgs { entries: tags.len() as u64 }),
    };
    let raw = |o: GarbageObject| {
        let object = RawObject::new(&Pool::from_text(&o.pool), o.name);
        RawObject { locator: o.locator, ..object }
    };
    let objects = entries.into_iter().flat_map(|entry| {
        let Garbage { tag, chain, .. } = entry;
        chain.objects.into_iter().map(move |o| (raw(o), tag.clone()))
    });
    remove_some(objects.collect()).and_then(move |gone| match gone {
        true => Plan::ask(request).then(move |done| match done {
            Ok(_) => Plan::ok(swept),
            Err(Error::Rados(types::Errno::EBUSY)) => Plan::ok(Swept::default()),
            Err(e) => Plan::failed(e),
        }),
        false => Plan::ok(Swept::default()),
    })
}

/// Removes objects, some at a time from behind; whether all are gone.
fn remove_some(mut objects: Vec<(RawObject, Bytes)>) -> Plan<bool> {
    let some = objects.split_off(objects.len().saturating_sub(AT_A_TIME));
    if some.is_empty() {
        return Plan::ok(true);
    }
    let put =
        |(object, tag)| Request::new(object).call(&refcount::PUT, &refcount::TagArgs { tag, implicit: true });
    Plan::ask_each(some.into_iter().map(put).collect()).and_then(|replies| {
        let gone = |reply: &Result<_, _>| matches!(reply, Ok(_) | Err(types::Errno::ENOENT));
        if replies.iter().all(gone) { remove_some(objects) } else { Plan::ok(false) }
    })
}

/// Takes the reference of a tag from each of some objects, which go with their last one.
pub(crate) fn remove_now(objects: Vec<RawObject>, tag: Bytes) -> Plan<()> {
    // What cannot be removed stays behind, and harms nobody.
    try_remove(objects, tag).and_then(|_| Plan::ok(()))
}

/// As `remove_now`; whether none of the objects is left to this tag.
pub(crate) fn try_remove(objects: Vec<RawObject>, tag: Bytes) -> Plan<bool> {
    let args = refcount::TagArgs { tag, implicit: true };
    let put = |object| Request::new(object).call(&refcount::PUT, &args);
    Plan::ask_each(objects.into_iter().map(put).collect()).and_then(|replies| {
        Plan::ok(replies.iter().all(|reply| matches!(reply, Ok(_) | Err(types::Errno::ENOENT))))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_xxhash() {
        // From the reference implementation's own checks, and of a tag that radosgw put into gc.15.
        assert_eq!(xxh64(b"", 0), 0xef46_db37_51d8_e999);
        assert_eq!(xxh64(b"a", 0), 0xd24e_c4f1_a98c_6e5b);
        assert_eq!(xxh64(b"abc", 0), 0x44bc_2cf5_ad77_0999);
        assert_eq!(xxh64(b"", 2_654_435_761), 0xac75_fda2_929b_17ef);
    }

    /// Tags and shards of what stock radosgw handed to garbage collection.
    #[test]
    fn tags_go_where_radosgw_puts_them() {
        let captured = include_str!("../../rgw/tests/data/captured.txt");
        let mut seen = 0;
        for line in captured.lines().filter(|line| line.starts_with("gc ")) {
            let words: Vec<&str> = line.split(' ').collect();
            let hex = words[2];
            let bytes: Bytes =
                (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect();
            let garbage = <Garbage as codec::Decode>::from_bytes(bytes).unwrap();
            assert_eq!(shard(&garbage.tag), words[1], "{garbage:?}");
            seen += 1;
        }
        assert!(seen > 3, "{seen}");
    }
}

//! What a scrub has found, in the form in which clients ask for it: `rados list-inconsistent-obj` and `-snapset`.
//!
//! Source: src/common/scrub_types.cc, object_info_t::encode and SnapSet::encode in src/osd/osd_types.cc.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer};
use types::{EntityName, Epoch, Eversion, HObject, ObjectLocator, PgShard, ReqId, SnapId};

use super::compare::{object_error, shard_error};
use super::scan::Scanned;
use crate::object::{INFO_ATTR, ObjectInfo, SNAPSET_ATTR, SnapSet, WatchInfo, info_flags};

/// Ceph's name of the attribute with an object's snapshots.
const CEPH_SNAPSET: &[u8] = b"snapset";

/// Bits of a snapset's errors. Source: inconsistent_snapset_t in src/include/rados/rados_types.hpp.
pub(crate) mod snapset_error {
    pub const SNAPSET_CORRUPTED: u64 = 1 << 1;
    pub const CLONE_MISSING: u64 = 1 << 2;
    pub const SNAP_ERROR: u64 = 1 << 3;
    pub const HEADLESS_CLONE: u64 = 1 << 5;
    pub const SIZE_MISMATCH: u64 = 1 << 6;
    pub const INFO_MISSING: u64 = 1 << 7;
    pub const INFO_CORRUPTED: u64 = 1 << 8;
    pub const EXTRA_CLONES: u64 = 1 << 9;
}

/// All that one scrub has found.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Records {
    objects: Vec<FoundObject>,
    snapsets: Vec<FoundSnapset>,
}

/// An object whose copies differ. Source: inconsistent_obj_wrapper.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FoundObject {
    object: HObject,
    /// Bits of `object_error`.
    pub errors: u64,
    user_version: u64,
    shards: BTreeMap<PgShard, ShardRecord>,
}

/// A member's copy of it, or that it has none. Source: shard_info_wrapper.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ShardRecord {
    /// Bits of `shard_error`.
    errors: u64,
    primary: bool,
    selected: bool,
    attrs: BTreeMap<String, Bytes>,
    size: u64,
    data_digest: Option<u32>,
    omap_digest: Option<u32>,
}

/// A head and its clones that do not belong together, or a clone without a head. Source: inconsistent_snapset_wrapper.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FoundSnapset {
    pub object: HObject,
    /// Bits of `snapset_error`.
    pub errors: u64,
    pub clones: Vec<u64>,
    pub missing: Vec<u64>,
    pub snapset: Option<SnapSet>,
}

impl FoundObject {
    pub fn new(object: &HObject, user_version: u64) -> Self {
        Self { object: object.clone(), errors: 0, user_version, shards: BTreeMap::new() }
    }

    pub fn add(&mut self, osd: PgShard, shard: ShardRecord) {
        self.shards.insert(osd, shard);
    }

    /// Bytes of its copies' attributes.
    pub fn bytes(&self) -> usize {
        let attrs = self.shards.values().flat_map(|s| &s.attrs);
        attrs.map(|(name, value)| name.len() + value.len()).sum()
    }

    fn union(&self) -> u64 {
        self.shards.values().fold(0, |all, s| all | s.errors)
    }

    /// How many errors a scrub counts of it: shallow and deep ones. A copy has one, and the object.
    pub fn counts(&self) -> (u32, u32) {
        let of_shards = self.shards.values().map(|s| (s.errors, s.errors & shard_error::DEEP != 0));
        let all = of_shards.chain([(self.errors, self.errors & object_error::DEEP != 0)]);
        all.filter(|(errors, _)| *errors != 0).fold((0, 0), |(shallow, deep), (_, is_deep)| match is_deep {
            true => (shallow, deep + 1),
            false => (shallow + 1, deep),
        })
    }

    /// A write has replaced the data of these shards; `is_good` says that no other is to be replaced. That
    /// shards do not match each other is over when it has replaced all of them.
    pub fn forgive(&mut self, replaced: &BTreeSet<i8>, is_good: bool) {
        for (_, shard) in self.shards.iter_mut().filter(|(copy, _)| replaced.contains(&copy.shard)) {
            shard.errors = 0;
        }
        if self.shards.keys().all(|copy| replaced.contains(&copy.shard)) {
            self.errors = 0;
        } else if is_good {
            self.errors &= object_error::DEEP;
        }
    }

    pub fn has_errors(&self) -> bool {
        self.errors | self.union() != 0
    }
}

impl ShardRecord {
    pub fn new(object: &HObject, errors: u64, primary: bool, selected: bool, copy: Option<&Scanned>) -> Self {
        let none = Scanned::default();
        let copy_or_none = copy.unwrap_or(&none);
        let attrs = copy_or_none.attrs.iter().map(|(name, value)| ceph_attr(object, name, value)).collect();
        Self {
            errors,
            primary,
            selected,
            attrs,
            size: copy.map_or(u64::MAX, |c| c.size),
            data_digest: copy_or_none.data_digest,
            omap_digest: copy_or_none.omap_digest,
        }
    }
}

/// An attribute under Ceph's name, and our own ones as Ceph encodes them; what does not decode stays as it is.
fn ceph_attr(object: &HObject, name: &Bytes, value: &Bytes) -> (String, Bytes) {
    let text = String::from_utf8_lossy(name).into_owned();
    match name.as_ref() {
        INFO_ATTR => match ObjectInfo::from_bytes(value.clone()) {
            Ok(info) => (text, encode_object_info(object, &info)),
            Err(_) => (text, value.clone()),
        },
        SNAPSET_ATTR => {
            let text = String::from_utf8_lossy(CEPH_SNAPSET).into_owned();
            match SnapSet::from_bytes(value.clone()) {
                Ok(snapset) => (text, encode_snapset(&snapset)),
                Err(_) => (text, value.clone()),
            }
        }
        _ => (text, value.clone()),
    }
}

/// Source: object_id_wrapper::encode.
fn encode_id(object: &HObject, w: &mut Writer) {
    w.envelope(1, 1, |w| {
        object.name.encode(w);
        object.nspace.encode(w);
        object.key.encode(w);
        w.u64(object.snap.0);
    });
}

impl Encode for FoundObject {
    fn encode(&self, w: &mut Writer) {
        w.envelope(2, 2, |w| {
            w.u64(self.errors);
            encode_id(&self.object, w);
            w.u64(self.user_version);
            w.count(self.shards.len());
            for (osd, shard) in &self.shards {
                w.envelope(1, 1, |w| {
                    w.i32(osd.osd.0);
                    osd.shard.encode(w);
                });
                shard.encode(w);
            }
            w.u64(self.union());
        });
    }
}

impl Encode for ShardRecord {
    fn encode(&self, w: &mut Writer) {
        w.envelope(3, 3, |w| {
            w.u64(self.errors);
            self.primary.encode(w);
            if self.errors & shard_error::MISSING == 0 {
                self.attrs.encode(w);
                w.u64(self.size);
                for digest in [self.omap_digest, self.data_digest] {
                    digest.is_some().encode(w);
                    w.u32(digest.unwrap_or_default());
                }
                self.selected.encode(w);
            }
        });
    }
}

impl Encode for FoundSnapset {
    fn encode(&self, w: &mut Writer) {
        w.envelope(2, 1, |w| {
            w.u64(self.errors);
            encode_id(&self.object, w);
            self.clones.encode(w);
            self.missing.encode(w);
            self.snapset.as_ref().map(encode_snapset).unwrap_or_default().encode(w);
        });
    }
}

fn encode_snapset(s: &SnapSet) -> Bytes {
    let mut w = Writer::with_capacity(64);
    w.envelope(3, 2, |w| {
        w.u64(s.seq);
        true.encode(w);
        let mut snaps: Vec<u64> = s.clones.values().flat_map(|c| c.snaps.iter().copied()).collect();
        snaps.sort_unstable_by(|a, b| b.cmp(a));
        snaps.encode(w);
        s.clones.keys().copied().collect::<Vec<u64>>().encode(w);
        let overlaps = s.clones.iter().map(|(id, c)| (*id, c.overlap.iter().copied().collect()));
        overlaps.collect::<BTreeMap<u64, BTreeMap<u64, u64>>>().encode(w);
        s.clones.iter().map(|(id, c)| (*id, c.size)).collect::<BTreeMap<u64, u64>>().encode(w);
        s.clones.iter().map(|(id, c)| (*id, c.snaps.clone())).collect::<BTreeMap<u64, Vec<u64>>>().encode(w);
    });
    w.into_bytes()
}

fn encode_watch(i: &WatchInfo, w: &mut Writer) {
    w.envelope(4, 3, |w| {
        w.u64(i.cookie);
        w.u32(i.timeout_seconds);
        i.addr.encode(w);
    });
}

fn encode_object_info(object: &HObject, i: &ObjectInfo) -> Bytes {
    let locator =
        ObjectLocator { pool: object.pool, key: object.key.clone(), nspace: object.nspace.clone(), hash: -1 };
    let mut w = Writer::with_capacity(256);
    w.envelope(17, 8, |w| {
        object.encode(w);
        locator.encode(w);
        w.u32(0);
        (i.version, i.prior_version).encode(w);
        i.last_reqid.encode(w);
        w.u64(i.size);
        i.mtime.encode(w);
        if object.is_head() {
            ReqId::default().encode(w);
        } else {
            w.u32(0);
        }
        w.u64(i.truncate_seq.into());
        w.u64(i.truncate_size);
        false.encode(w);
        let by_name: BTreeMap<&EntityName, &WatchInfo> =
            i.watchers.iter().map(|((_, name), watch)| (name, watch)).collect();
        w.count(by_name.len());
        for (name, watch) in by_name {
            name.encode(w);
            encode_watch(watch, w);
        }
        Eversion::new(Epoch(0), i.user_version).encode(w);
        false.encode(w);
        w.count(i.watchers.len());
        for (key, watch) in &i.watchers {
            key.encode(w);
            encode_watch(watch, w);
        }
        w.u32(i.flags);
        i.local_mtime.encode(w);
        // Ceph's value for one that is not known.
        w.u32(if i.test(info_flags::DATA_DIGEST) { i.data_digest } else { u32::MAX });
        w.u32(if i.test(info_flags::OMAP_DIGEST) { i.omap_digest } else { u32::MAX });
        w.u64(i.expected_object_size);
        w.u64(i.expected_write_size);
        w.u32(i.alloc_hint_flags);
    });
    w.into_bytes()
}

/// An object's info as Ceph's log lines show it. Source: operator<< of object_info_t in src/osd/osd_types.cc.
pub(crate) fn object_info(object: &HObject, i: &ObjectInfo) -> String {
    let names = [
        (info_flags::WHITEOUT, "whiteout"),
        (info_flags::DIRTY, "dirty"),
        (info_flags::OMAP, "omap"),
        (info_flags::DATA_DIGEST, "data_digest"),
        (info_flags::OMAP_DIGEST, "omap_digest"),
        (info_flags::CACHE_PIN, "cache_pin"),
    ];
    let set: Vec<&str> = names.iter().filter(|(bit, _)| i.test(*bit)).map(|(_, name)| *name).collect();
    let mut text = format!("{object}({} {}", i.version, i.last_reqid);
    if !set.is_empty() {
        text += &format!(" {}", set.join("|"));
    }
    text += &format!(" s {} uv {}", i.size, i.user_version);
    if i.test(info_flags::DATA_DIGEST) {
        text += &format!(" dd {:x}", i.data_digest);
    }
    if i.test(info_flags::OMAP_DIGEST) {
        text += &format!(" od {:x}", i.omap_digest);
    }
    text + &format!(
        " alloc_hint [{} {} {}])",
        i.expected_object_size, i.expected_write_size, i.alloc_hint_flags
    )
}

/// What a client asks for. Source: scrub_ls_arg_t.
struct ListArgs {
    interval: u32,
    snapsets: bool,
    after: (String, String, SnapId),
    max: u64,
}

impl Decode for ListArgs {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("scrub_ls_arg_t", 1, |r, _| {
            let (interval, snapsets) = (r.u32()?, r.u32()? != 0);
            let (name, nspace) = (String::decode(r)?, String::decode(r)?);
            Ok(Self { interval, snapsets, after: (nspace, name, SnapId(r.u64()?)), max: r.u64()? })
        })
    }
}

/// The question cannot be answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListError {
    Malformed,
    /// The interval that the listing began in is over.
    Expired,
}

/// The order of listings. Source: to_object_key in src/osd/ScrubStore.cc.
fn place(o: &HObject) -> (&str, &str, &str, SnapId) {
    (&o.nspace, &o.key, &o.name, o.snap)
}

impl Records {
    pub fn new(mut objects: Vec<FoundObject>, mut snapsets: Vec<FoundSnapset>) -> Self {
        objects.sort_by(|a, b| place(&a.object).cmp(&place(&b.object)));
        snapsets.sort_by(|a, b| place(&a.object).cmp(&place(&b.object)));
        Self { objects, snapsets }
    }

    /// Answers a client's question. Source: PrimaryLogPG::do_scrub_ls.
    pub fn list(&self, args: Bytes, interval: Epoch) -> Result<Bytes, ListError> {
        let args = ListArgs::from_bytes(args).map_err(|_| ListError::Malformed)?;
        if args.interval != 0 && args.interval != interval.0 {
            return Err(ListError::Expired);
        }
        let max = usize::try_from(args.max).unwrap_or(usize::MAX);
        let vals = match args.snapsets {
            false => page(&self.objects, |f| &f.object, &args.after, max),
            true => page(&self.snapsets, |f| &f.object, &args.after, max),
        };
        let mut w = Writer::with_capacity(1024);
        w.envelope(1, 1, |w| {
            w.u32(interval.0);
            vals.encode(w);
        });
        Ok(w.into_bytes())
    }
}

fn page<T: Encode>(
    all: &[T],
    object: impl Fn(&T) -> &HObject,
    after: &(String, String, SnapId),
    max: usize,
) -> Vec<Bytes> {
    let (nspace, name, snap) = after;
    let is_last = |o: &HObject| o.nspace == *nspace && o.name == *name && o.snap == *snap;
    let begin = match name.is_empty() {
        true => 0,
        false => match all.iter().position(|f| is_last(object(f))) {
            Some(at) => at + 1,
            None => all.partition_point(|f| place(object(f)) <= (nspace, "", name, *snap)),
        },
    };
    all.iter().skip(begin).take(max).map(Encode::to_bytes).collect()
}

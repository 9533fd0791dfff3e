//! What a member says about its objects: sizes and attributes of a range, or digests of data and omap.
//!
//! A light answer covers its whole range at once. A deep one reads at most a stride of bytes; what is left is described by
//! a `DeepState`, with which the primary asks again. Both are made the moment the question is handled, and questions travel
//! in order with writes: all members answer for the same point of the PG's history, without anybody holding up a write.
//!
//! Source: PGBackend::be_scan_list, ReplicatedBackend::be_deep_scrub.

use std::collections::BTreeMap;
use std::ops::Bound;

use bytes::Bytes;
use codec::{Encode, Writer, crc32c};
use erasure::{Codec, Sketch};
use store::{ObjectKey, Store, StoreError};
use types::{HObject, SnapId};

use crate::object::{INFO_ATTR, SNAPSET_ATTR};

/// The seed of digests. Source: bufferhash(-1) in ReplicatedBackend::be_deep_scrub.
const SEED: u32 = !0;
/// Attributes of clients that an answer carries of one object. Of the others it has a digest, under this name.
const ATTRS_BYTES: usize = 64 << 10;
const OTHER_ATTRS: &[u8] = b"_(attributes beyond 64 KiB)";
/// Names listed, and omap entries read, in one step.
const PAGE: usize = 1_024;
const PAGE_BYTES: usize = 8 << 20;

/// A question of the primary about the objects from `begin` up to, without, `end`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ScrubAsk {
    /// Counts the questions of a PG's primary; the answer has the same number.
    pub id: u64,
    pub begin: HObject,
    pub end: HObject,
    /// Digests are wanted, and nothing else.
    pub deep: Option<DeepAsk>,
}

codec::wire_struct!(ScrubAsk(1, 1) { id, begin, end, deep });

/// How far a member goes in one answer, and where it goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DeepAsk {
    /// Bytes.
    pub stride: u64,
    /// Of the range's first object.
    pub from: DeepState,
    /// For sums of shards.
    pub seed: u64,
}

codec::wire_struct!(DeepAsk(2, 1) { stride, from } since 2 { seed });

/// How much of an object is in its digests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DeepState {
    /// Bytes of data; `data_done` says that it was all of them.
    pub offset: u64,
    pub data_done: bool,
    pub data_digest: u32,
    /// The last omap key; none yet when the header is not in either.
    pub omap_after: Option<Bytes>,
    pub omap_digest: u32,
    pub omap_keys: u64,
    pub omap_bytes: u64,
    /// Of a shard, the sum so far (`erasure::Sketch`).
    pub sum: Bytes,
}

codec::wire_struct!(DeepState(2, 1) {
    offset, data_done, data_digest, omap_after, omap_digest, omap_keys, omap_bytes,
} since 2 { sum });

impl Default for DeepState {
    fn default() -> Self {
        Self {
            offset: 0,
            data_done: false,
            data_digest: SEED,
            omap_after: None,
            omap_digest: SEED,
            omap_keys: 0,
            omap_bytes: 0,
            sum: Bytes::new(),
        }
    }
}

/// A member's answer.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct ScrubPart {
    pub id: u64,
    pub objects: Vec<(HObject, Scanned)>,
    /// The first object is not done.
    pub more: Option<DeepState>,
    /// Why there is no answer: the member cannot even list its objects.
    pub failed: Option<String>,
}

codec::wire_struct!(ScrubPart(1, 1) { id, objects, more, failed });

/// One object as a member has it. Source: ScrubMap::object in src/osd/osd_types.h.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Scanned {
    /// Bytes.
    pub size: u64,
    pub has_omap: bool,
    /// Empty in a deep answer.
    pub attrs: BTreeMap<Bytes, Bytes>,
    /// The object's metadata cannot be read.
    pub stat_error: bool,
    /// Data or omap do not prove their checksums.
    pub read_error: bool,
    pub data_digest: Option<u32>,
    pub omap_digest: Option<u32>,
    pub omap_keys: u64,
    pub omap_bytes: u64,
    /// Of a shard, the sum of its bytes, by which parity is checked; empty in a light answer.
    pub sum: Bytes,
}

codec::wire_struct!(Scanned(2, 1) {
    size, has_omap, attrs, stat_error, read_error, data_digest, omap_digest, omap_keys, omap_bytes,
} since 2 { sum });

impl Scanned {
    /// Takes over the digests of a deep answer.
    pub fn add_deep(&mut self, deep: Self) {
        self.read_error |= deep.read_error;
        self.data_digest = deep.data_digest;
        self.omap_digest = deep.omap_digest;
        self.omap_keys = deep.omap_keys;
        self.omap_bytes = deep.omap_bytes;
        self.sum = deep.sum;
    }
}

/// Answers for this store; with a code, shards are summed.
pub(crate) fn scan(shard: i8, ask: &ScrubAsk, codec: Option<&Codec>, store: &mut Store) -> ScrubPart {
    let mut part = ScrubPart { id: ask.id, ..ScrubPart::default() };
    let objects = match list(shard, &ask.begin, &ask.end, store) {
        Ok(objects) => objects,
        Err(e) => {
            part.failed = Some(e.to_string());
            return part;
        }
    };
    for (index, object) in objects.into_iter().enumerate() {
        let key = ObjectKey::new(shard, object.clone());
        match &ask.deep {
            None => {
                if let Some(found) = light(&key, store) {
                    part.objects.push((object, found));
                }
            }
            Some(deep) => {
                let from = if index == 0 { deep.from.clone() } else { DeepState::default() };
                match digests(&key, from, deep, codec, store) {
                    Ok(found) => part.objects.push((object, found)),
                    Err(state) => {
                        part.more = Some(*state);
                        break;
                    }
                }
            }
        }
    }
    part
}

/// The object right behind another.
pub(in crate::pg) fn behind(o: &HObject) -> HObject {
    o.at(SnapId(o.snap.0.saturating_add(1)))
}

fn list(shard: i8, from: &HObject, until: &HObject, store: &mut Store) -> Result<Vec<HObject>, StoreError> {
    let mut all = store.list(shard, from, until, PAGE)?;
    let mut full = all.len() == PAGE;
    while full {
        let Some(next) = all.last().map(behind) else { break };
        let page = store.list(shard, &next, until, PAGE)?;
        full = page.len() == PAGE;
        all.extend(page);
    }
    Ok(all)
}

fn light(key: &ObjectKey, store: &mut Store) -> Option<Scanned> {
    let look = |store: &mut Store| -> Result<Option<Scanned>, StoreError> {
        let Some(stat) = store.stat(key)? else { return Ok(None) };
        let attrs = shortened(store.attrs(key)?);
        Ok(Some(Scanned { size: stat.size, has_omap: stat.has_omap, attrs, ..Scanned::default() }))
    };
    look(store).unwrap_or_else(|_| Some(Scanned { stat_error: true, ..Scanned::default() }))
}

/// Attributes as an answer has them: the same of the same ones, and never so many that a message does not take them.
fn shortened(attrs: Vec<(Bytes, Bytes)>) -> BTreeMap<Bytes, Bytes> {
    let mut kept = BTreeMap::new();
    let (mut left, mut digest, mut others) = (ATTRS_BYTES, SEED, 0u64);
    for (name, value) in attrs {
        let bytes = name.len() + value.len();
        if name == INFO_ATTR || name == SNAPSET_ATTR {
            kept.insert(name, value);
        } else if bytes <= left && others == 0 {
            left -= bytes;
            kept.insert(name, value);
        } else {
            digest = crc32c(crc32c(digest, &(name.len() as u64).to_le_bytes()), &name);
            digest = crc32c(crc32c(digest, &(value.len() as u64).to_le_bytes()), &value);
            others += 1;
        }
    }
    if others > 0 {
        let digest = format!("{others} with the digest {digest:08x}");
        kept.insert(Bytes::from_static(OTHER_ATTRS), Bytes::from(digest));
    }
    kept
}

/// An object's digests, or how far this stride came.
fn digests(
    key: &ObjectKey,
    mut at: DeepState,
    ask: &DeepAsk,
    codec: Option<&Codec>,
    store: &mut Store,
) -> Result<Scanned, Box<DeepState>> {
    let sketch = codec.map(|codec| match at.sum.is_empty() {
        true => Sketch::new(codec, ask.seed),
        false => Sketch::resume(codec, ask.seed, at.offset, at.sum.to_vec())
            .unwrap_or_else(|| Sketch::new(codec, ask.seed)),
    });
    match advance(key, &mut at, ask.stride.max(1), sketch, store) {
        Ok(true) => Ok(Scanned {
            size: at.offset,
            data_digest: codec.is_none().then_some(at.data_digest),
            omap_digest: codec.is_none().then_some(at.omap_digest),
            omap_keys: at.omap_keys,
            omap_bytes: at.omap_bytes,
            sum: at.sum,
            ..Scanned::default()
        }),
        Ok(false) => Err(Box::new(at)),
        Err(_) => Ok(Scanned { read_error: true, ..Scanned::default() }),
    }
}

/// Goes on for a stride; whether that was all.
fn advance(
    key: &ObjectKey,
    at: &mut DeepState,
    stride: u64,
    mut sketch: Option<Sketch>,
    store: &mut Store,
) -> Result<bool, StoreError> {
    let mut left = stride;
    while !at.data_done {
        if left == 0 {
            at.sum = sketch.map(|sketch| sketch.into_folds().into()).unwrap_or_default();
            return Ok(false);
        }
        let data = store.read(key, at.offset, left.min(PAGE_BYTES as u64))?;
        match &mut sketch {
            Some(sketch) => sketch.add(&data),
            None => at.data_digest = crc32c(at.data_digest, &data),
        }
        at.offset += data.len() as u64;
        left -= (data.len() as u64).min(left);
        at.data_done = data.is_empty() || store.stat(key)?.is_none_or(|s| at.offset >= s.size);
    }
    if let Some(sketch) = sketch {
        at.sum = sketch.into_folds().into();
        return Ok(true);
    }
    if at.omap_after.is_none() {
        at.omap_digest = crc32c(at.omap_digest, &store.omap_header(key)?);
    }
    loop {
        let from = at.omap_after.clone();
        let bound = from.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let bytes = usize::try_from(left).unwrap_or(PAGE_BYTES).clamp(1, PAGE_BYTES);
        let (page, more) = store.omap_list(key, bound, PAGE, bytes)?;
        for (name, value) in page {
            let mut w = Writer::with_capacity(name.len() + value.len() + 8);
            (name.clone(), value.clone()).encode(&mut w);
            at.omap_digest = crc32c(at.omap_digest, &w.into_bytes());
            at.omap_keys += 1;
            at.omap_bytes += value.len() as u64;
            left = left.saturating_sub((name.len() + value.len()) as u64);
            at.omap_after = Some(name);
        }
        if !more {
            return Ok(true);
        }
        if left == 0 {
            return Ok(false);
        }
    }
}

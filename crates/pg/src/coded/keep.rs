//! What a shard keeps of an object so that a write can be taken back, until every shard has the write.
//!
//! A record stands in the PG's keys under the version of the write's log entry. Old data is kept in an object
//! aside that shares its blocks with the object, so that little is copied; old attributes stand in the
//! record.
//!
//! Invariants:
//! 1. A record and what it speaks of come in the very transaction that makes the change, and go in one.
//! 2. Records of one object are taken back newest first, each from the state that its write has left.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer};
use store::{Corruption, ObjectKey, Op, Space, Store, StoreError, Txn};
use types::{Eversion, HObject, PoolId, SpgId};

use super::split::Add;
use crate::entry::LogEntry;
use crate::object::{INFO_ATTR, LoadError, ObjectInfo, stored_version};

/// The store's blocks: what begins and ends with one is shared and not copied.
const BLOCK: u64 = 4096;
/// The class of the records among a PG's keys.
const CLASS: u8 = b'k';
/// Namespaces of objects that are kept begin so.
const KEPT: &str = "\u{1}kept ";
/// Records read in one step.
const PAGE: usize = 1_000;

/// How one object's change is taken back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    pub object: HObject,
    /// Of the log entry.
    pub version: Eversion,
    how: How,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum How {
    /// It was not there.
    Made,
    /// All of it is kept.
    Whole,
    /// The size, these ranges of data, and these attributes (`None` for one that was not there).
    Parts { size: u64, ranges: Vec<(u64, u64)>, attrs: Vec<(Bytes, Option<Bytes>)> },
}

impl Kept {
    /// Whether it takes its write back from an object in this version, `None` for one that cannot be told. A
    /// record of parts goes with what its write has left; others bring, or take away, the whole object.
    pub fn goes_back_from(&self, version: Option<Eversion>) -> bool {
        !matches!(self.how, How::Parts { .. }) || version == Some(self.version)
    }
}

impl Encode for Kept {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            self.object.encode(w);
            self.version.encode(w);
            match &self.how {
                How::Made => w.u8(1),
                How::Whole => w.u8(2),
                How::Parts { size, ranges, attrs } => {
                    w.u8(3);
                    w.u64(*size);
                    ranges.encode(w);
                    attrs.encode(w);
                }
            }
        });
    }
}
impl Decode for Kept {
    const MIN_SIZE: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("Kept", 1, |r, _| {
            let (object, version) = (HObject::decode(r)?, Eversion::decode(r)?);
            let how = match r.u8()? {
                1 => How::Made,
                2 => How::Whole,
                3 => How::Parts { size: r.u64()?, ranges: Vec::decode(r)?, attrs: Vec::decode(r)? },
                v => return Err(DecodeError::Invalid { what: "how a write is taken back", value: v.into() }),
            };
            Ok(Self { object, version, how })
        })
    }
}

/// A shard's transaction, made ready.
#[derive(Debug)]
pub struct Prepared {
    pub txn: Txn,
    /// For the log entries that change an object.
    pub kept: Vec<Kept>,
    /// Objects to whose coding chunk nothing could be added, because what is there is damaged: this shard has
    /// to be rebuilt, and nothing may be read from it.
    pub damaged: Vec<HObject>,
}

fn record_key(version: Eversion) -> Bytes {
    let mut key = Vec::with_capacity(13);
    key.push(CLASS);
    key.extend_from_slice(&version.epoch.0.to_be_bytes());
    key.extend_from_slice(&version.version.to_be_bytes());
    key.into()
}

/// Where an object's old data is kept: in a pool that no client can name, whose blocks count for the object's
/// own.
fn aside(shard: i8, object: &HObject, version: Eversion) -> ObjectKey {
    let pool = PoolId((-2i64).saturating_sub(object.pool.0));
    let nspace = format!("{KEPT}{version} {}", object.nspace).into();
    ObjectKey::new(shard, HObject { pool, nspace, ..object.clone() })
}

/// Whether an object is one that is kept.
pub fn is_kept(object: &HObject) -> bool {
    object.pool.0 < -1 && object.nspace.starts_with(KEPT)
}

/// What a write adds to coding chunks.
#[derive(Clone, Copy)]
pub struct Adds<'a> {
    pub adds: &'a [Add],
    /// What the store holds where something is added, as far as that was read before, by the place in `adds`.
    pub old: &'a BTreeMap<usize, Bytes>,
}

/// Makes a shard's part of a write ready for its store: with what it adds to coding chunks, and with all that
/// is needed to take it back. The log entries themselves are the caller's to add.
pub fn prepare(
    store: &mut Store,
    id: SpgId,
    txn: Txn,
    Adds { adds, old }: Adds,
    entries: &[LogEntry],
) -> Result<Prepared, StoreError> {
    let mut first = Txn::new();
    let mut kept = Vec::with_capacity(entries.len());
    for entry in entries.iter().filter(|e| !e.is_error()) {
        let record = keep(store, id.shard, &txn, adds, entry, &mut first)?;
        first.set(Space::Pg(id), record_key(record.version), record.to_bytes());
        kept.push(record);
    }
    let mut damaged = Vec::new();
    let mut sums = Vec::with_capacity(adds.len());
    for (at, add) in adds.iter().enumerate() {
        match added(store, id.shard, add, old.get(&at)) {
            Ok(sum) => sums.push((add, sum)),
            Err(StoreError::Corrupt(Corruption::Data { .. })) => damaged.push(add.object.clone()),
            Err(e) => return Err(e),
        }
    }
    first.append(txn);
    for (add, sum) in sums {
        first.write(&ObjectKey::new(id.shard, add.object.clone()), add.offset, sum);
    }
    damaged.dedup();
    Ok(Prepared { txn: first, kept, damaged })
}

/// The sum of what is there and what is added; behind the end of the shard there are zeros.
fn added(store: &mut Store, shard: i8, add: &Add, old: Option<&Bytes>) -> Result<Bytes, StoreError> {
    let key = ObjectKey::new(shard, add.from.clone());
    let old = match old {
        Some(old) => old.clone(),
        None => store.read(&key, add.offset, add.data.len() as u64)?,
    };
    let mut sum = add.data.to_vec();
    sum.iter_mut().zip(old.iter()).for_each(|(new, old)| *new ^= old);
    Ok(sum.into())
}

/// Adds to `first` what keeps the entry's object as it is.
fn keep(
    store: &mut Store,
    shard: i8,
    txn: &Txn,
    adds: &[Add],
    entry: &LogEntry,
    first: &mut Txn,
) -> Result<Kept, StoreError> {
    let key = ObjectKey::new(shard, entry.object.clone());
    let record = |how| Kept { object: entry.object.clone(), version: entry.version, how };
    let Some(stat) = store.stat(&key)? else { return Ok(record(How::Made)) };
    let aside = aside(shard, &entry.object, entry.version);
    let mut changed = Changed::default();
    for op in txn.ops() {
        changed.follow(txn, &key, op);
    }
    for add in adds.iter().filter(|add| add.object == entry.object) {
        changed.ranges.push((add.offset, add.offset.saturating_add(add.data.len() as u64)));
    }
    if changed.wholly {
        first.clone_object(&key, &aside);
        return Ok(record(How::Whole));
    }
    let ranges = changed.blocks(stat.size);
    for (offset, len) in &ranges {
        first.clone_range(&key, &aside, *offset, *len, *offset);
    }
    let mut attrs = Vec::with_capacity(changed.attrs.len());
    for name in changed.attrs {
        let value = store.attr(&key, &name)?;
        attrs.push((name, value));
    }
    Ok(record(How::Parts { size: stat.size, ranges, attrs }))
}

/// What a transaction changes of one object.
#[derive(Default)]
struct Changed {
    wholly: bool,
    /// From and until.
    ranges: Vec<(u64, u64)>,
    attrs: BTreeSet<Bytes>,
}

impl Changed {
    fn follow(&mut self, txn: &Txn, key: &ObjectKey, op: &Op) {
        let is_it = |index| txn.object(index) == Some(key);
        match op {
            Op::Write { object, offset, data } if is_it(*object) => {
                self.ranges.push((*offset, offset.saturating_add(data.len() as u64)));
            }
            Op::Zero { object, offset, len } if is_it(*object) => {
                self.ranges.push((*offset, offset.saturating_add(*len)));
            }
            Op::Truncate { object, size } if is_it(*object) => self.ranges.push((*size, u64::MAX)),
            Op::CloneRange { dst, len, dst_offset, .. } if is_it(*dst) => {
                self.ranges.push((*dst_offset, dst_offset.saturating_add(*len)));
            }
            Op::SetAttr { object, name, .. } | Op::RmAttr { object, name } if is_it(*object) => {
                self.attrs.insert(name.clone());
            }
            Op::Remove { object } | Op::RmAttrs { object } if is_it(*object) => self.wholly = true,
            Op::Clone { dst, .. } if is_it(*dst) => self.wholly = true,
            Op::Rename { src, dst } if is_it(*src) || is_it(*dst) => self.wholly = true,
            _ => {}
        }
    }

    /// The ranges as offsets and lengths: in order, apart, of whole blocks as far as the object goes.
    fn blocks(&self, size: u64) -> Vec<(u64, u64)> {
        let whole = |(from, until): &(u64, u64)| {
            (from / BLOCK * BLOCK, until.div_ceil(BLOCK).saturating_mul(BLOCK).min(size))
        };
        let mut all: Vec<(u64, u64)> = self.ranges.iter().map(whole).filter(|(f, u)| f < u).collect();
        all.sort_unstable();
        let mut out: Vec<(u64, u64)> = Vec::with_capacity(all.len());
        for (from, until) in all {
            match out.last_mut() {
                Some((_, end)) if *end >= from => *end = (*end).max(until),
                _ => out.push((from, until)),
            }
        }
        out.into_iter().map(|(from, until)| (from, until - from)).collect()
    }
}

/// Takes a write back, from the state that it has left.
pub fn take_back(txn: &mut Txn, id: SpgId, kept: &Kept) {
    let key = ObjectKey::new(id.shard, kept.object.clone());
    let aside = aside(id.shard, &kept.object, kept.version);
    match &kept.how {
        How::Made => {
            txn.remove(&key);
        }
        How::Whole => {
            txn.remove(&key).rename(&aside, &key);
        }
        How::Parts { size, ranges, attrs } => {
            for (offset, len) in ranges {
                txn.clone_range(&aside, &key, *offset, *len, *offset);
            }
            txn.truncate(&key, *size);
            for (name, value) in attrs {
                match value {
                    Some(value) => txn.set_attr(&key, name.clone(), value.clone()),
                    None => txn.rm_attr(&key, name.clone()),
                };
            }
            txn.remove(&aside);
        }
    }
    txn.unset(Space::Pg(id), record_key(kept.version));
}

/// The version that an object has once a write of it is taken back; zero for none.
pub fn version_before(store: &mut Store, id: SpgId, kept: &Kept) -> Result<Eversion, LoadError> {
    match &kept.how {
        How::Made => Ok(Eversion::ZERO),
        How::Whole => stored_version(store, &aside(id.shard, &kept.object, kept.version)),
        How::Parts { attrs, .. } => match attrs.iter().find(|(name, _)| name == INFO_ATTR) {
            Some((_, Some(raw))) => Ok(ObjectInfo::from_bytes(raw.clone())?.version),
            Some((_, None)) => Ok(Eversion::ZERO),
            None => stored_version(store, &ObjectKey::new(id.shard, kept.object.clone())),
        },
    }
}

/// A range of a shard as it was in an older version, of which the records of the writes since tell, newest
/// first. `is` is the version that is stored; `None` where the records do not lead from there to the other.
pub fn read_before<'a>(
    store: &mut Store,
    id: SpgId,
    object: &HObject,
    newest_first: impl Iterator<Item = &'a Kept>,
    (is, version): (Eversion, Eversion),
    (offset, len): (u64, u64),
) -> Result<Option<Bytes>, LoadError> {
    let mut is = is;
    let mut bytes = store.read(&ObjectKey::new(id.shard, object.clone()), offset, len)?.to_vec();
    for kept in newest_first.filter(|kept| kept.object == *object) {
        if is == version {
            break;
        }
        let was_deleted = is == Eversion::ZERO && kept.how == How::Whole;
        if is != kept.version && !was_deleted {
            return Ok(None);
        }
        let aside = aside(id.shard, object, kept.version);
        match &kept.how {
            How::Made => return Ok(None),
            How::Whole => bytes = store.read(&aside, offset, len)?.to_vec(),
            How::Parts { size, ranges, .. } => {
                let end = offset.saturating_add(len).min(*size).max(offset);
                bytes.resize(usize::try_from(end - offset).unwrap_or_default(), 0);
                for (from, len) in ranges {
                    let until = from.saturating_add(*len).min(end);
                    let from = (*from).max(offset);
                    if from < until {
                        let old = store.read(&aside, from, until - from)?;
                        let at = usize::try_from(from - offset).unwrap_or_default();
                        let to = bytes.get_mut(at..at.saturating_add(old.len()));
                        to.into_iter().for_each(|to| to.copy_from_slice(&old));
                    }
                }
            }
        }
        is = version_before(store, id, kept)?;
    }
    Ok((is == version).then(|| bytes.into()))
}

/// Keeps all of an object that is there, before a change of this version.
pub fn keep_whole(txn: &mut Txn, id: SpgId, object: &HObject, version: Eversion) -> Kept {
    let key = ObjectKey::new(id.shard, object.clone());
    txn.clone_object(&key, &aside(id.shard, object, version));
    let kept = Kept { object: object.clone(), version, how: How::Whole };
    txn.set(Space::Pg(id), record_key(version), kept.to_bytes());
    kept
}

/// Makes a record one of another PG, which has the object from now on.
pub fn hand_over(txn: &mut Txn, from: SpgId, to: SpgId, kept: &Kept) {
    txn.unset(Space::Pg(from), record_key(kept.version));
    txn.set(Space::Pg(to), record_key(kept.version), kept.to_bytes());
}

/// Lets go of what is kept: every shard has the write.
pub fn forget(txn: &mut Txn, id: SpgId, kept: &Kept) {
    if kept.how != How::Made {
        txn.remove(&aside(id.shard, &kept.object, kept.version));
    }
    txn.unset(Space::Pg(id), record_key(kept.version));
}

/// The stored records of a copy, oldest first.
pub fn kept_in(store: &mut Store, id: SpgId) -> Result<Vec<Kept>, LoadError> {
    let mut out = Vec::new();
    let mut from = vec![CLASS];
    loop {
        let page = store.scan(Space::Pg(id), &from, Some(&[CLASS + 1]), PAGE)?;
        let Some((last, _)) = page.last() else { return Ok(out) };
        from = last.to_vec();
        from.push(0);
        let full = page.len() == PAGE;
        for (_, raw) in page {
            out.push(Kept::from_bytes(raw)?);
        }
        if !full {
            return Ok(out);
        }
    }
}

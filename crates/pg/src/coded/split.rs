//! Turns the transaction of a request, which speaks of whole objects, into one for each shard.
//!
//! Operations on attributes, removals and clones go to every shard as they are. Changes of data are followed
//! to what the object is in the end ([`Content`]), and each stripe is changed once: encoded anew, or by what
//! each coding chunk differs in ([`erasure::StripedWrite`]). Old bytes that this takes have to be gathered
//! from the shards first: the split then stops and says which.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;
use erasure::{Change, CodecError};
use store::{ObjectIndex, ObjectKey, Op, Space, StoreError, Txn};
use types::{Errno, HObject, SpgId};

use super::Geometry;
use super::content::Content;
use crate::object::LoadError;

/// Bytes of an object that are wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Needed {
    pub object: HObject,
    pub range: Range<u64>,
}

/// Bytes of objects, as the shards had them before the request.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Gathered {
    pieces: Vec<(Needed, Bytes)>,
}

impl Gathered {
    /// Adds what was read for a need. Fewer bytes than were asked for end with zeros.
    pub fn add(&mut self, what: Needed, bytes: Bytes) {
        self.pieces.push((what, bytes));
    }

    /// The bytes of a range, if one piece has them.
    pub fn get(&self, object: &HObject, range: &Range<u64>) -> Option<Bytes> {
        let has =
            |n: &Needed| n.object == *object && n.range.start <= range.start && range.end <= n.range.end;
        let (needed, bytes) = self.pieces.iter().find(|(needed, _)| has(needed))?;
        let at = |offset: u64| usize::try_from(offset - needed.range.start).unwrap_or(usize::MAX);
        let (from, until) = (at(range.start), at(range.end));
        if let Some(whole) = bytes.get(from..until) {
            return Some(bytes.slice_ref(whole));
        }
        let mut short = bytes.get(from..).unwrap_or_default().to_vec();
        short.resize(until - from, 0);
        Some(short.into())
    }
}

/// What a coding shard adds (exclusive or) to what it has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Add {
    pub object: HObject,
    /// The object that has the old bytes before the transaction; another one when it is cloned from that.
    pub from: HObject,
    /// In the shard.
    pub offset: u64,
    pub data: Bytes,
}

codec::wire_struct!(Add(1, 1) { object, from, offset, data });

/// What one shard has to do.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ShardPart {
    pub txn: Txn,
    pub adds: Vec<Add>,
}

/// A write, by shard.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Parts {
    pub shards: Vec<ShardPart>,
}

/// There is no split (yet).
#[derive(Debug, Clone, PartialEq)]
pub enum SplitStop {
    /// These bytes have to be gathered first.
    Needs(Vec<Needed>),
    /// No erasure-coded pool takes such a change.
    Refused(Errno),
    Load(LoadError),
    Codec(CodecError),
}

impl From<CodecError> for SplitStop {
    fn from(e: CodecError) -> Self {
        Self::Codec(e)
    }
}
impl From<LoadError> for SplitStop {
    fn from(e: LoadError) -> Self {
        Self::Load(e)
    }
}
impl From<StoreError> for SplitStop {
    fn from(e: StoreError) -> Self {
        Self::Load(e.into())
    }
}

/// Splits a transaction. `size_of` tells how many bytes an object has in the store, 0 for none.
pub fn split(
    geometry: &Geometry,
    txn: &Txn,
    gathered: &Gathered,
    mut size_of: impl FnMut(&HObject) -> Result<u64, LoadError>,
) -> Result<Parts, SplitStop> {
    let shards = vec![ShardPart::default(); geometry.shards()];
    let mut s = Split { geometry, txn, parts: Parts { shards }, contents: BTreeMap::new() };
    for op in txn.ops() {
        s.follow(op, &mut size_of)?;
    }
    let contents = std::mem::take(&mut s.contents);
    let mut needs = Vec::new();
    for (object, content) in contents.iter().filter(|(_, content)| content.is_changed()) {
        s.change_data(object, content, gathered, &mut needs)?;
    }
    if needs.is_empty() { Ok(s.parts) } else { Err(SplitStop::Needs(needs)) }
}

struct Split<'a> {
    geometry: &'a Geometry,
    txn: &'a Txn,
    parts: Parts,
    contents: BTreeMap<HObject, Content>,
}

type SizeOf<'a> = dyn FnMut(&HObject) -> Result<u64, LoadError> + 'a;

impl Split<'_> {
    fn object(&self, index: ObjectIndex) -> Result<HObject, SplitStop> {
        let key = self.txn.object(index).ok_or(SplitStop::Refused(Errno::EINVAL))?;
        Ok(key.object.clone())
    }

    fn content(&mut self, object: &HObject, size_of: &mut SizeOf<'_>) -> Result<&mut Content, SplitStop> {
        if !self.contents.contains_key(object) {
            let content = Content::stored(object.clone(), size_of(object)?);
            self.contents.insert(object.clone(), content);
        }
        self.contents.get_mut(object).ok_or(SplitStop::Refused(Errno::EIO))
    }

    /// Adds an operation to every shard's transaction.
    fn everywhere(&mut self, add: impl Fn(&mut Txn, i8)) {
        for (shard, part) in (0i8..).zip(&mut self.parts.shards) {
            add(&mut part.txn, shard);
        }
    }

    fn follow(&mut self, op: &Op, size_of: &mut SizeOf<'_>) -> Result<(), SplitStop> {
        match op {
            Op::Write { object, offset, data } => {
                let object = self.object(*object)?;
                self.content(&object, size_of)?.write(*offset, data.clone());
            }
            Op::Zero { object, offset, len } => {
                let object = self.object(*object)?;
                self.content(&object, size_of)?.zero(*offset, *len);
            }
            Op::Truncate { object, size } => {
                let object = self.object(*object)?;
                self.content(&object, size_of)?.truncate(*size);
            }
            Op::Touch { object } => {
                let object = self.object(*object)?;
                self.everywhere(|txn, shard| {
                    txn.touch(&ObjectKey::new(shard, object.clone()));
                });
            }
            Op::Remove { object } => {
                let object = self.object(*object)?;
                self.everywhere(|txn, shard| {
                    txn.remove(&ObjectKey::new(shard, object.clone()));
                });
                self.contents.insert(object, Content::default());
            }
            Op::Clone { src, dst } => self.clone_object(*src, *dst, size_of)?,
            other => self.follow_metadata(other)?,
        }
        Ok(())
    }

    fn clone_object(
        &mut self,
        src: ObjectIndex,
        dst: ObjectIndex,
        size_of: &mut SizeOf<'_>,
    ) -> Result<(), SplitStop> {
        let (src, dst) = (self.object(src)?, self.object(dst)?);
        // What has changed before in the same transaction is not in the store that the shards clone from.
        let cloned = self.content(&src, size_of)?.cloned().ok_or(SplitStop::Refused(Errno::EOPNOTSUPP))?;
        self.everywhere(|txn, shard| {
            txn.clone_object(&ObjectKey::new(shard, src.clone()), &ObjectKey::new(shard, dst.clone()));
        });
        self.contents.insert(dst, cloned);
        Ok(())
    }

    fn follow_metadata(&mut self, op: &Op) -> Result<(), SplitStop> {
        let key = |object: HObject| move |shard: i8| ObjectKey::new(shard, object.clone());
        let space_of = |space: &Space| {
            let space = *space;
            move |shard: i8| match space {
                Space::Pg(id) => Space::Pg(SpgId { shard, ..id }),
                Space::Meta => Space::Meta,
            }
        };
        match op {
            Op::SetAttr { object, name, value } => {
                let key = key(self.object(*object)?);
                self.everywhere(|txn, shard| {
                    txn.set_attr(&key(shard), name.clone(), value.clone());
                });
            }
            Op::RmAttr { object, name } => {
                let key = key(self.object(*object)?);
                self.everywhere(|txn, shard| {
                    txn.rm_attr(&key(shard), name.clone());
                });
            }
            Op::RmAttrs { object } => {
                let key = key(self.object(*object)?);
                self.everywhere(|txn, shard| {
                    txn.rm_attrs(&key(shard));
                });
            }
            Op::AllocHint { object, object_size, write_size } => {
                let key = key(self.object(*object)?);
                let part = |bytes: u64| bytes.div_ceil(self.geometry.codec.data_chunk_count().max(1) as u64);
                let (object_size, write_size) = (part(*object_size), part(*write_size));
                self.everywhere(|txn, shard| {
                    txn.alloc_hint(&key(shard), object_size, write_size);
                });
            }
            Op::Set { space, key, value } => {
                let space = space_of(space);
                self.everywhere(|txn, shard| {
                    txn.set(space(shard), key.clone(), value.clone());
                });
            }
            Op::Unset { space, key } => {
                let space = space_of(space);
                self.everywhere(|txn, shard| {
                    txn.unset(space(shard), key.clone());
                });
            }
            // Omaps, and what no request on such a pool does.
            _ => return Err(SplitStop::Refused(Errno::EOPNOTSUPP)),
        }
        Ok(())
    }

    /// Adds what becomes of an object's data to each shard's part, or notes what has to be read for that.
    fn change_data(
        &mut self,
        object: &HObject,
        content: &Content,
        gathered: &Gathered,
        needs: &mut Vec<Needed>,
    ) -> Result<(), SplitStop> {
        let (codec, stripes) = (&self.geometry.codec, &self.geometry.stripes);
        let mut updates = Vec::new();
        for range in content.changed(stripes.stripe_width()) {
            let plan = stripes.write(codec, content.stored, range.clone())?;
            let kept = content.kept(&range);
            let mut old = Old { base: content.base.as_ref(), gathered, needs: &mut *needs };
            let was: Vec<Option<Bytes>> = plan.reads().iter().map(|r| old.get(r)).collect();
            let stays: Vec<Option<Bytes>> = kept.iter().map(|r| old.get(r)).collect();
            let (Some(was), Some(stays)) =
                (was.into_iter().collect::<Option<Vec<_>>>(), stays.into_iter().collect::<Option<Vec<_>>>())
            else {
                continue;
            };
            let len = usize::try_from(range.end - range.start).map_err(|_| CodecError::OutOfRange)?;
            let mut bytes = vec![0; len];
            for (part, data) in kept.iter().zip(stays) {
                let at = (part.start - range.start) as usize;
                let to = bytes.get_mut(at..at + data.len()).ok_or(CodecError::OutOfRange)?;
                to.copy_from_slice(&data);
            }
            content.lay_over(&range, &mut bytes);
            let was: Vec<&[u8]> = was.iter().map(Bytes::as_ref).collect();
            updates.extend(plan.updates(codec, &was, &bytes)?);
        }
        if !needs.is_empty() {
            return Ok(());
        }
        let length = stripes.shard_len(content.size);
        self.everywhere(|txn, shard| {
            txn.touch(&ObjectKey::new(shard, object.clone()));
        });
        for update in updates {
            let shard = i8::try_from(update.shard).map_err(|_| CodecError::OutOfRange)?;
            let Some(part) = self.parts.shards.get_mut(update.shard) else { continue };
            match update.change {
                Change::Write(data) => {
                    part.txn.write(&ObjectKey::new(shard, object.clone()), update.offset, data);
                }
                Change::Add(data) => part.adds.push(Add {
                    object: object.clone(),
                    from: content.base.clone().unwrap_or_else(|| object.clone()),
                    offset: update.offset,
                    data: data.into(),
                }),
            }
        }
        self.everywhere(|txn, shard| {
            txn.truncate(&ObjectKey::new(shard, object.clone()), length);
        });
        Ok(())
    }
}

/// Where old bytes come from.
struct Old<'a> {
    base: Option<&'a HObject>,
    gathered: &'a Gathered,
    needs: &'a mut Vec<Needed>,
}

impl Old<'_> {
    fn get(&mut self, range: &Range<u64>) -> Option<Bytes> {
        let base = self.base?;
        let found = self.gathered.get(base, range);
        if found.is_none() {
            self.needs.push(Needed { object: base.clone(), range: range.clone() });
        }
        found
    }
}

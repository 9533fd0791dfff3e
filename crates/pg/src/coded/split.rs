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
use super::content::{Content, Laid};
use crate::object::LoadError;

/// Bytes of an object that are wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Needed {
    pub object: HObject,
    pub range: Range<u64>,
}

/// Bytes of objects, as the shards had them before the request. The pieces of an object are apart, by where
/// they begin.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Gathered {
    pieces: BTreeMap<HObject, BTreeMap<u64, Piece>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Piece {
    end: u64,
    /// Behind the last of them there are zeros.
    bytes: Bytes,
}

impl Piece {
    /// The bytes that are there of a range, which begins in the piece that begins at `start`.
    fn there(&self, start: u64, range: &Range<u64>) -> &[u8] {
        let at = |offset: u64| usize::try_from(offset.saturating_sub(start)).unwrap_or(usize::MAX);
        let until = at(range.end.min(self.end)).min(self.bytes.len());
        self.bytes.get(at(range.start)..until).unwrap_or_default()
    }
}

impl Gathered {
    /// Adds what was read for a need. Fewer bytes than were asked for end with zeros.
    pub fn add(&mut self, what: Needed, bytes: Bytes) {
        let of = self.pieces.entry(what.object).or_default();
        let range = what.range;
        let mut at = range.start;
        let mut gaps = Vec::with_capacity(1);
        for (start, piece) in over(of, &range) {
            if at < *start {
                gaps.push(at..*start);
            }
            at = at.max(piece.end);
        }
        if at < range.end {
            gaps.push(at..range.end);
        }
        let whole = Piece { end: range.end, bytes };
        for gap in gaps {
            let bytes = whole.bytes.slice_ref(whole.there(range.start, &gap));
            of.insert(gap.start, Piece { end: gap.end, bytes });
        }
    }

    /// The bytes of a range, if all of them are here.
    pub fn get(&self, object: &HObject, range: &Range<u64>) -> Option<Bytes> {
        let len = usize::try_from(range.end.saturating_sub(range.start)).ok()?;
        if len == 0 {
            return Some(Bytes::new());
        }
        let mut pieces = over(self.pieces.get(object)?, range);
        let (mut start, mut piece) = pieces.next().filter(|(start, _)| **start <= range.start)?;
        let there = piece.there(*start, range);
        if there.len() == len {
            return Some(piece.bytes.slice_ref(there));
        }
        let (mut all, mut at) = (Vec::with_capacity(len), range.start);
        loop {
            let until = piece.end.min(range.end);
            all.extend_from_slice(piece.there(*start, &(at..until)));
            all.resize(usize::try_from(until - range.start).ok()?, 0);
            at = until;
            if at == range.end {
                return Some(all.into());
            }
            (start, piece) = pieces.next().filter(|(start, _)| **start == at)?;
        }
    }
}

/// The pieces that touch a range: the last one that begins before it may.
fn over<'a>(
    pieces: &'a BTreeMap<u64, Piece>,
    range: &Range<u64>,
) -> impl Iterator<Item = (&'a u64, &'a Piece)> {
    let before = pieces.range(..range.start).next_back().filter(|(_, piece)| piece.end > range.start);
    before.into_iter().chain(pieces.range(range.start..range.end.max(range.start)))
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

impl ShardPart {
    /// Whether nothing is left of the data that the shard had of an object.
    pub fn replaces(&self, key: &ObjectKey) -> bool {
        let is_it = |index: &ObjectIndex| self.txn.object(*index) == Some(key);
        let (mut length, mut written) = (None, Vec::new());
        for op in self.txn.ops() {
            match op {
                Op::Remove { object } if is_it(object) => return true,
                Op::Clone { dst, .. } if is_it(dst) => return true,
                Op::Truncate { object, size } if is_it(object) => length = Some(*size),
                Op::Write { object, offset, data } if is_it(object) => {
                    written.push((*offset, offset.saturating_add(data.len() as u64)));
                }
                _ => {}
            }
        }
        written.sort_unstable();
        let join = |end: u64, (from, until): (u64, u64)| if from <= end { end.max(until) } else { end };
        let end = written.into_iter().fold(0, join);
        length.is_some_and(|length| length <= end)
    }
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
        let laid = content.laid();
        for range in laid.changed(stripes.stripe_width()) {
            let plan = stripes.write(codec, content.stored, range.clone())?;
            let kept = laid.kept(&range);
            let mut old = Old { base: content.base.as_ref(), gathered, needs: &mut *needs };
            let was: Vec<Option<Bytes>> = plan.reads().iter().map(|r| old.get(r)).collect();
            let stays: Vec<Option<Bytes>> = kept.iter().map(|r| old.get(r)).collect();
            let (Some(was), Some(stays)) =
                (was.into_iter().collect::<Option<Vec<_>>>(), stays.into_iter().collect::<Option<Vec<_>>>())
            else {
                continue;
            };
            let was: Vec<&[u8]> = was.iter().map(Bytes::as_ref).collect();
            let updated = match laid.one_over(&range) {
                Some(bytes) => plan.updates(codec, &was, bytes)?,
                None => plan.updates(codec, &was, &laid_over(&laid, &range, &kept, &stays)?)?,
            };
            updates.extend(updated);
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

/// A range of the object: what it keeps, and over it what changes.
fn laid_over(
    laid: &Laid<'_>,
    range: &Range<u64>,
    kept: &[Range<u64>],
    stays: &[Bytes],
) -> Result<Vec<u8>, CodecError> {
    let len = usize::try_from(range.end - range.start).map_err(|_| CodecError::OutOfRange)?;
    let mut bytes = vec![0; len];
    for (part, data) in kept.iter().zip(stays) {
        let at = (part.start - range.start) as usize;
        let to = bytes.get_mut(at..at + data.len()).ok_or(CodecError::OutOfRange)?;
        to.copy_from_slice(data);
    }
    laid.lay_over(range, &mut bytes);
    Ok(bytes)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn needed(range: Range<u64>) -> Needed {
        Needed { object: HObject::min(), range }
    }

    #[test]
    fn pieces_that_meet_are_one_and_those_that_overlap_are_taken_once() {
        let data: Vec<u8> = (0..100).collect();
        let piece = |r: &Range<u64>| Bytes::copy_from_slice(&data[r.start as usize..r.end as usize]);
        let mut gathered = Gathered::default();
        for range in [10..20, 30..40, 15..35, 0..5, 90..100] {
            gathered.add(needed(range.clone()), piece(&range));
        }
        for (range, is_there) in
            [(10..40, true), (12..33, true), (0..5, true), (0..11, false), (5..10, false)]
        {
            let found = gathered.get(&HObject::min(), &range);
            assert_eq!(found, is_there.then(|| piece(&range)), "{range:?}");
        }
        // What was short ends with zeros.
        gathered.add(needed(200..210), Bytes::from_static(b"abc"));
        gathered.add(needed(210..212), Bytes::from_static(b"de"));
        let found = gathered.get(&HObject::min(), &(201..212));
        assert_eq!(found.as_deref(), Some(&b"bc\0\0\0\0\0\0\0de"[..]));
        assert_eq!(gathered.get(&HObject::min(), &(204..206)).as_deref(), Some(&[0, 0][..]));
    }

    /// A piece of many is found without a look at the others.
    #[test]
    fn a_piece_of_many_is_found_at_once() {
        let mut gathered = Gathered::default();
        for at in 0..16_384 {
            gathered.add(needed(at * 10..at * 10 + 2), Bytes::from_static(b"ab"));
        }
        let pieces = &gathered.pieces[&HObject::min()];
        let looked: usize = (0..16_384).map(|at| over(pieces, &(at * 10..at * 10 + 2)).count()).sum();
        assert_eq!(looked, 16_384);
    }
}

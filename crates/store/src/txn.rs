//! A transaction: a list of changes that the store applies as one, and that a primary ships to its replicas.

use bytes::Bytes;

use crate::{ObjectKey, Space};

/// Position of a submitted transaction; consecutive over the life of the store, 0 before the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TxnSeq(pub u64);

/// Index into `Txn::objects`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectIndex(pub u32);

/// One change. Offsets and lengths are in bytes. What sets something creates the object when it is missing; what
/// removes something from a missing object does nothing; a clone of a missing object is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// Creates the object when it is missing.
    Touch {
        object: ObjectIndex,
    },
    /// Replaces a range, growing the object to its end.
    Write {
        object: ObjectIndex,
        offset: u64,
        data: Bytes,
    },
    /// Makes a range read as zeros and frees its space; grows the object to its end.
    Zero {
        object: ObjectIndex,
        offset: u64,
        len: u64,
    },
    /// Sets the size; what is beyond is gone for good.
    Truncate {
        object: ObjectIndex,
        size: u64,
    },
    /// Removes the object with data, attributes and omap.
    Remove {
        object: ObjectIndex,
    },
    SetAttr {
        object: ObjectIndex,
        name: Bytes,
        value: Bytes,
    },
    RmAttr {
        object: ObjectIndex,
        name: Bytes,
    },
    RmAttrs {
        object: ObjectIndex,
    },
    OmapSet {
        object: ObjectIndex,
        entries: Vec<(Bytes, Bytes)>,
    },
    OmapRm {
        object: ObjectIndex,
        keys: Vec<Bytes>,
    },
    /// Removes omap keys from `start` up to, without, `end`.
    OmapRmRange {
        object: ObjectIndex,
        start: Bytes,
        end: Bytes,
    },
    /// Removes all omap keys and the omap header.
    OmapClear {
        object: ObjectIndex,
    },
    OmapSetHeader {
        object: ObjectIndex,
        header: Bytes,
    },
    /// Replaces `dst` with a copy of `src`: data (shared until overwritten), attributes, omap.
    Clone {
        src: ObjectIndex,
        dst: ObjectIndex,
    },
    /// Copies a data range (shared where both offsets fall on the same place in a 4 KiB block).
    CloneRange {
        src: ObjectIndex,
        dst: ObjectIndex,
        src_offset: u64,
        len: u64,
        dst_offset: u64,
    },
    /// Moves whole blocks of one object into another: nothing is copied, the source has a hole there. Refused
    /// unless all of them are there and `digest` is that of their content (`blocks_digest`).
    MoveRange {
        src: ObjectIndex,
        dst: ObjectIndex,
        src_offset: u64,
        len: u64,
        dst_offset: u64,
        digest: u32,
    },
    /// Moves an object to another key, replacing what was there.
    Rename {
        src: ObjectIndex,
        dst: ObjectIndex,
    },
    Set {
        space: Space,
        key: Bytes,
        value: Bytes,
    },
    Unset {
        space: Space,
        key: Bytes,
    },
    /// Removes keys from `start` up to, without, `end`. Keys removed since the last checkpoint are walked over again, so
    /// whoever trims from the front names the first key that exists.
    UnsetRange {
        space: Space,
        start: Bytes,
        end: Bytes,
    },
    /// Removes all keys of the space.
    DropSpace {
        space: Space,
    },
    /// Expected sizes, for information only.
    AllocHint {
        object: ObjectIndex,
        object_size: u64,
        write_size: u64,
    },
}

/// A part of a write whose bytes lie in another object already, in whole blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Laid {
    /// Where the part belongs in the object that is written.
    pub offset: u64,
    pub len: u64,
    /// Where it lies in the other one.
    pub src_offset: u64,
    /// `blocks_digest` of it.
    pub digest: u32,
}

/// Changes applied all or none, in order. Built by the methods below.
///
/// Invariant: `sealed` is what `encode_head` makes of the rest; every change of that drops it.
#[derive(Debug, Clone, Default)]
pub struct Txn {
    objects: Vec<ObjectKey>,
    ops: Vec<Op>,
    /// The encoded head, so that primary, replicas and their logs encode it once.
    sealed: Option<Bytes>,
    /// A hint for this store alone.
    unread: bool,
}

impl PartialEq for Txn {
    fn eq(&self, o: &Self) -> bool {
        (&self.objects, &self.ops) == (&o.objects, &o.ops)
    }
}
impl Eq for Txn {}

impl Txn {
    pub fn new() -> Self {
        Self::default()
    }

    pub(crate) fn from_parts(objects: Vec<ObjectKey>, ops: Vec<Op>) -> Self {
        Self { objects, ops, sealed: None, unread: false }
    }

    /// Tells the store that what this writes is hardly ever read here, such as another OSD's copy: no cache has to keep it.
    pub fn note_unread(&mut self) {
        self.unread = true;
    }

    pub(crate) fn is_unread(&self) -> bool {
        self.unread
    }

    pub(crate) fn sealed(&self) -> Option<&Bytes> {
        self.sealed.as_ref()
    }

    pub(crate) fn keep_sealed(&mut self, head: Bytes) {
        self.sealed = Some(head);
    }

    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    pub fn ops(&self) -> &[Op] {
        &self.ops
    }

    /// Whether it changes objects, not only keys of spaces.
    pub fn names_objects(&self) -> bool {
        !self.objects.is_empty()
    }

    /// Whether it names this object.
    pub fn names(&self, object: &ObjectKey) -> bool {
        self.objects.contains(object)
    }

    pub(crate) fn objects(&self) -> &[ObjectKey] {
        &self.objects
    }

    /// Writes by the index of their operation.
    pub(crate) fn writes(&self) -> impl Iterator<Item = (usize, &Bytes)> {
        self.ops.iter().enumerate().filter_map(|(at, op)| match op {
            Op::Write { data, .. } => Some((at, data)),
            _ => None,
        })
    }

    /// The key an operation's index stands for.
    pub fn object(&self, index: ObjectIndex) -> Option<&ObjectKey> {
        self.objects.get(index.0 as usize)
    }

    /// Adds the changes of `other` behind these.
    pub fn append(&mut self, other: Txn) {
        let Txn { objects, ops, .. } = other;
        self.sealed = None;
        let map: Vec<ObjectIndex> = objects.iter().map(|o| self.index(o)).collect();
        let at = |i: ObjectIndex| map.get(i.0 as usize).copied().unwrap_or(i);
        self.ops.extend(ops.into_iter().map(|op| op.with_objects(at)));
    }

    pub fn touch(&mut self, object: &ObjectKey) -> &mut Self {
        let object = self.index(object);
        self.push(Op::Touch { object })
    }

    pub fn write(&mut self, object: &ObjectKey, offset: u64, data: impl Into<Bytes>) -> &mut Self {
        let object = self.index(object);
        self.push(Op::Write { object, offset, data: data.into() })
    }

    pub fn zero(&mut self, object: &ObjectKey, offset: u64, len: u64) -> &mut Self {
        let object = self.index(object);
        self.push(Op::Zero { object, offset, len })
    }

    pub fn truncate(&mut self, object: &ObjectKey, size: u64) -> &mut Self {
        let object = self.index(object);
        self.push(Op::Truncate { object, size })
    }

    pub fn remove(&mut self, object: &ObjectKey) -> &mut Self {
        let object = self.index(object);
        self.push(Op::Remove { object })
    }

    pub fn set_attr(
        &mut self,
        object: &ObjectKey,
        name: impl Into<Bytes>,
        value: impl Into<Bytes>,
    ) -> &mut Self {
        let object = self.index(object);
        self.push(Op::SetAttr { object, name: name.into(), value: value.into() })
    }

    pub fn rm_attr(&mut self, object: &ObjectKey, name: impl Into<Bytes>) -> &mut Self {
        let object = self.index(object);
        self.push(Op::RmAttr { object, name: name.into() })
    }

    pub fn rm_attrs(&mut self, object: &ObjectKey) -> &mut Self {
        let object = self.index(object);
        self.push(Op::RmAttrs { object })
    }

    pub fn omap_set(&mut self, object: &ObjectKey, entries: Vec<(Bytes, Bytes)>) -> &mut Self {
        let object = self.index(object);
        self.push(Op::OmapSet { object, entries })
    }

    pub fn omap_rm(&mut self, object: &ObjectKey, keys: Vec<Bytes>) -> &mut Self {
        let object = self.index(object);
        self.push(Op::OmapRm { object, keys })
    }

    pub fn omap_rm_range(
        &mut self,
        object: &ObjectKey,
        start: impl Into<Bytes>,
        end: impl Into<Bytes>,
    ) -> &mut Self {
        let object = self.index(object);
        self.push(Op::OmapRmRange { object, start: start.into(), end: end.into() })
    }

    pub fn omap_clear(&mut self, object: &ObjectKey) -> &mut Self {
        let object = self.index(object);
        self.push(Op::OmapClear { object })
    }

    pub fn omap_set_header(&mut self, object: &ObjectKey, header: impl Into<Bytes>) -> &mut Self {
        let object = self.index(object);
        self.push(Op::OmapSetHeader { object, header: header.into() })
    }

    pub fn clone_object(&mut self, src: &ObjectKey, dst: &ObjectKey) -> &mut Self {
        let (src, dst) = (self.index(src), self.index(dst));
        self.push(Op::Clone { src, dst })
    }

    pub fn clone_range(
        &mut self,
        src: &ObjectKey,
        dst: &ObjectKey,
        src_offset: u64,
        len: u64,
        dst_offset: u64,
    ) -> &mut Self {
        let (src, dst) = (self.index(src), self.index(dst));
        self.push(Op::CloneRange { src, dst, src_offset, len, dst_offset })
    }

    pub fn move_range(&mut self, src: &ObjectKey, dst: &ObjectKey, part: Laid) -> &mut Self {
        let (src, dst) = (self.index(src), self.index(dst));
        let Laid { offset: dst_offset, len, src_offset, digest } = part;
        self.push(Op::MoveRange { src, dst, src_offset, len, dst_offset, digest })
    }

    /// Has writes take parts of their bytes from `src`: `laid` names them for a write, in order. The transaction
    /// then carries only the rest.
    pub fn take_from(&mut self, src: &ObjectKey, mut laid: impl FnMut(&ObjectKey, u64, &Bytes) -> Vec<Laid>) {
        for op in std::mem::take(&mut self.ops) {
            let Op::Write { object, offset, data } = &op else {
                self.push(op);
                continue;
            };
            let Some(key) = self.object(*object).cloned() else { continue };
            let parts = laid(&key, *offset, data);
            if parts.is_empty() {
                self.push(op);
                continue;
            }
            let (mut rest, mut at) = (data.clone(), *offset);
            for part in parts {
                let before =
                    rest.split_to(usize::try_from(part.offset - at).unwrap_or(usize::MAX).min(rest.len()));
                if !before.is_empty() {
                    self.write(&key, at, before);
                }
                self.move_range(src, &key, part);
                rest = rest.split_off(usize::try_from(part.len).unwrap_or(usize::MAX).min(rest.len()));
                at = part.offset + part.len;
            }
            if !rest.is_empty() {
                self.write(&key, at, rest);
            }
        }
    }

    pub fn rename(&mut self, src: &ObjectKey, dst: &ObjectKey) -> &mut Self {
        let (src, dst) = (self.index(src), self.index(dst));
        self.push(Op::Rename { src, dst })
    }

    pub fn set(&mut self, space: Space, key: impl Into<Bytes>, value: impl Into<Bytes>) -> &mut Self {
        self.push(Op::Set { space, key: key.into(), value: value.into() })
    }

    pub fn unset(&mut self, space: Space, key: impl Into<Bytes>) -> &mut Self {
        self.push(Op::Unset { space, key: key.into() })
    }

    pub fn unset_range(&mut self, space: Space, start: impl Into<Bytes>, end: impl Into<Bytes>) -> &mut Self {
        self.push(Op::UnsetRange { space, start: start.into(), end: end.into() })
    }

    pub fn drop_space(&mut self, space: Space) -> &mut Self {
        self.push(Op::DropSpace { space })
    }

    pub fn alloc_hint(&mut self, object: &ObjectKey, object_size: u64, write_size: u64) -> &mut Self {
        let object = self.index(object);
        self.push(Op::AllocHint { object, object_size, write_size })
    }

    fn push(&mut self, op: Op) -> &mut Self {
        self.sealed = None;
        self.ops.push(op);
        self
    }

    /// Transactions name few objects, mostly the last one again: searched from the end.
    fn index(&mut self, object: &ObjectKey) -> ObjectIndex {
        let at = self.objects.iter().rposition(|o| o == object).unwrap_or_else(|| {
            self.objects.push(object.clone());
            self.objects.len() - 1
        });
        ObjectIndex(at as u32)
    }
}

impl Op {
    /// The same change with its object indexes replaced.
    fn with_objects(mut self, at: impl Fn(ObjectIndex) -> ObjectIndex) -> Self {
        match &mut self {
            Self::Touch { object }
            | Self::Write { object, .. }
            | Self::Zero { object, .. }
            | Self::Truncate { object, .. }
            | Self::Remove { object }
            | Self::SetAttr { object, .. }
            | Self::RmAttr { object, .. }
            | Self::RmAttrs { object }
            | Self::OmapSet { object, .. }
            | Self::OmapRm { object, .. }
            | Self::OmapRmRange { object, .. }
            | Self::OmapClear { object }
            | Self::OmapSetHeader { object, .. }
            | Self::AllocHint { object, .. } => *object = at(*object),
            Self::Clone { src, dst }
            | Self::CloneRange { src, dst, .. }
            | Self::MoveRange { src, dst, .. }
            | Self::Rename { src, dst } => {
                *src = at(*src);
                *dst = at(*dst);
            }
            Self::Set { .. } | Self::Unset { .. } | Self::UnsetRange { .. } | Self::DropSpace { .. } => {}
        }
        self
    }
}

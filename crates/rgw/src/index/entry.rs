//! Entries of a bucket index: one for each object, or for each version of one.

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer, wire_struct};
use types::RealTime;

/// A version of a versioned object.
pub const VERSIONED: u16 = 0x1;
/// The newest version of its object.
pub const CURRENT: u16 = 0x2;
pub const DELETE_MARKER: u16 = 0x4;
/// Stands under the object's plain name for its versions.
pub const VERSION_MARKER: u16 = 0x8;
/// No object: what the names of several have in common up to a delimiter.
pub const COMMON_PREFIX: u16 = 0x8000;

/// An object in its bucket, and which of its versions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Key {
    pub name: Bytes,
    /// Empty for the plain object, and for the version that has no id.
    pub instance: Bytes,
}
wire_struct!(Key(1, 1) { name, instance });

impl Key {
    pub fn plain(name: Bytes) -> Self {
        Self { name, instance: Bytes::new() }
    }
}

/// A number in as few bytes as it fits in. Source: encode_packed_val in src/cls/rgw/cls_rgw_types.h.
///
/// As in Ceph, 2^16 itself is written in two bytes, which read back as 0.
pub(super) fn put_packed(w: &mut Writer, value: u64) {
    match value {
        0..=0x7f => w.u8(value as u8),
        0x80..=0xff => {
            w.u8(0x81);
            w.u8(value as u8);
        }
        0x100..=0x1_0000 => {
            w.u8(0x82);
            w.u16(value as u16);
        }
        0x1_0001..=0x100_0000 => {
            w.u8(0x84);
            w.u32(value as u32);
        }
        _ => {
            w.u8(0x88);
            w.u64(value);
        }
    }
}

pub(super) fn packed(r: &mut Reader) -> Result<u64, DecodeError> {
    Ok(match r.u8()? {
        value @ 0..=0x7f => value.into(),
        0x81 => r.u8()?.into(),
        0x82 => r.u16()?.into(),
        0x84 => r.u32()?.into(),
        0x88 => r.u64()?,
        other => return Err(DecodeError::Invalid { what: "packed number", value: other.into() }),
    })
}

/// Which write of the object's head an entry tells of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// The head's pool; -1 when not known.
    pub pool: i64,
    /// The write's version in its placement group.
    pub epoch: u64,
}

impl Default for Written {
    fn default() -> Self {
        Self { pool: -1, epoch: 0 }
    }
}

impl Encode for Written {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            put_packed(w, self.pool as u64);
            put_packed(w, self.epoch);
        });
    }
}
impl Decode for Written {
    const MIN_SIZE: usize = 8;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("entry version", 1, |r, _| Ok(Self { pool: packed(r)? as i64, epoch: packed(r)? }))
    }
}

/// What a listing shows of an object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Meta {
    /// Main objects, parts of uploads and others are summed up apart.
    pub category: u8,
    /// Bytes as stored.
    pub size: u64,
    pub mtime: RealTime,
    pub etag: Bytes,
    pub owner: Bytes,
    pub owner_name: Bytes,
    pub content_type: Bytes,
    /// Bytes as clients see them.
    pub accounted_size: u64,
    pub user_data: Bytes,
    pub storage_class: Bytes,
    pub appendable: bool,
}

impl Encode for Meta {
    fn encode(&self, w: &mut Writer) {
        w.envelope(7, 3, |w| {
            self.category.encode(w);
            self.size.encode(w);
            self.mtime.encode(w);
            self.etag.encode(w);
            self.owner.encode(w);
            self.owner_name.encode(w);
            self.content_type.encode(w);
            self.accounted_size.encode(w);
            self.user_data.encode(w);
            self.storage_class.encode(w);
            self.appendable.encode(w);
        });
    }
}
impl Decode for Meta {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.legacy_envelope("entry meta", 6, 3, |r, version| {
            let (category, size) = (r.u8()?, r.u64()?);
            let mut m = Self { category, size, accounted_size: size, ..Self::default() };
            m.mtime = Decode::decode(r)?;
            (m.etag, m.owner, m.owner_name) = (r.blob()?, r.blob()?, r.blob()?);
            if version >= 2 {
                m.content_type = r.blob()?;
            }
            if version >= 4 {
                m.accounted_size = r.u64()?;
            }
            if version >= 5 {
                m.user_data = r.blob()?;
            }
            if version >= 6 {
                m.storage_class = r.blob()?;
            }
            if version >= 7 {
                m.appendable = Decode::decode(r)?;
            }
            Ok(m)
        })
    }
}

/// A change that was prepared and not completed yet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pending {
    pub state: u8,
    pub time: RealTime,
    pub op: u8,
}

impl Encode for Pending {
    fn encode(&self, w: &mut Writer) {
        w.envelope(2, 2, |w| {
            self.state.encode(w);
            self.time.encode(w);
            self.op.encode(w);
        });
    }
}
impl Decode for Pending {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.legacy_envelope("pending change", 2, 2, |r, _| {
            Ok(Self { state: r.u8()?, time: Decode::decode(r)?, op: r.u8()? })
        })
    }
}

/// Changes under way by tag. A tag can occur more than once; those of one tag keep the order they came in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PendingMap(Vec<(Bytes, Pending)>);

impl PendingMap {
    pub fn insert(&mut self, tag: Bytes, pending: Pending) {
        let at = self.0.partition_point(|(other, _)| *other <= tag);
        self.0.insert(at, (tag, pending));
    }

    /// Takes the first change of a tag out, if there is one.
    pub fn remove(&mut self, tag: &Bytes) -> Option<Pending> {
        let at = self.0.iter().position(|(other, _)| other == tag)?;
        Some(self.0.remove(at).1)
    }

    pub fn retain(&mut self, keep: impl Fn(&Pending) -> bool) {
        self.0.retain(|(_, pending)| keep(pending));
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Encode for PendingMap {
    fn encode(&self, w: &mut Writer) {
        self.0.encode(w);
    }
}
impl Decode for PendingMap {
    const MIN_SIZE: usize = 4;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        let mut all: Vec<(Bytes, Pending)> = Decode::decode(r)?;
        all.sort_by(|(a, _), (b, _)| a.cmp(b));
        Ok(Self(all))
    }
}

/// Source: rgw_bucket_dir_entry in src/cls/rgw/cls_rgw_types.h.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Entry {
    pub key: Key,
    pub written: Written,
    pub locator: Bytes,
    pub exists: bool,
    pub meta: Meta,
    pub pending: PendingMap,
    /// The header's version when the entry last changed.
    pub index_version: u64,
    /// Of the change that made it.
    pub tag: Bytes,
    pub flags: u16,
    /// Orders the versions of one object.
    pub versioned_epoch: u64,
}

impl Entry {
    pub fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    /// Shown in listings without versions.
    pub fn is_visible(&self) -> bool {
        (!self.has(VERSIONED) || self.has(CURRENT)) && !self.has(DELETE_MARKER)
    }
}

impl Encode for Entry {
    fn encode(&self, w: &mut Writer) {
        w.envelope(8, 3, |w| {
            self.key.name.encode(w);
            self.written.epoch.encode(w);
            self.exists.encode(w);
            self.meta.encode(w);
            self.pending.encode(w);
            self.locator.encode(w);
            self.written.encode(w);
            put_packed(w, self.index_version);
            self.tag.encode(w);
            self.key.instance.encode(w);
            self.flags.encode(w);
            self.versioned_epoch.encode(w);
        });
    }
}
impl Decode for Entry {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.legacy_envelope("bucket entry", 8, 3, |r, version| {
            let mut e = Self { key: Key::plain(r.blob()?), ..Self::default() };
            e.written.epoch = r.u64()?;
            e.exists = Decode::decode(r)?;
            e.meta = Decode::decode(r)?;
            e.pending = Decode::decode(r)?;
            if version >= 2 {
                e.locator = r.blob()?;
            }
            if version >= 4 {
                e.written = Decode::decode(r)?;
            }
            if version >= 5 {
                (e.index_version, e.tag) = (packed(r)?, r.blob()?);
            }
            if version >= 6 {
                e.key.instance = r.blob()?;
            }
            if version >= 7 {
                e.flags = r.u16()?;
            }
            if version >= 8 {
                e.versioned_epoch = r.u64()?;
            }
            Ok(e)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_numbers_take_the_bytes_that_they_need() {
        let read = |bytes: &[u8]| packed(&mut Reader::new(Bytes::copy_from_slice(bytes))).ok();
        for (value, bytes, back) in [
            (0u64, &[0u8][..], 0),
            (0x7f, &[0x7f], 0x7f),
            (0x80, &[0x81, 0x80], 0x80),
            (0xff, &[0x81, 0xff], 0xff),
            (0x100, &[0x82, 0, 1], 0x100),
            (0xffff, &[0x82, 0xff, 0xff], 0xffff),
            (0x1_0000, &[0x82, 0, 0], 0), // Ceph loses this one
            (0x1_0001, &[0x84, 1, 0, 1, 0], 0x1_0001),
            (0x100_0000, &[0x84, 0, 0, 0, 1], 0x100_0000),
            (0x100_0001, &[0x88, 1, 0, 0, 1, 0, 0, 0, 0], 0x100_0001),
            (u64::MAX, &[0x88, 255, 255, 255, 255, 255, 255, 255, 255], u64::MAX),
        ] {
            assert_eq!(Writer::collect(|w| put_packed(w, value)), bytes, "{value:#x}");
            assert_eq!(read(bytes), Some(back), "{value:#x}");
        }
        for bad in [&[0x83u8, 0, 0, 0][..], &[0x80], &[0x88, 0], &[]] {
            assert_eq!(read(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn changes_of_one_tag_are_taken_in_the_order_they_came() {
        let pending = |op| Pending { op, ..Pending::default() };
        let mut map = PendingMap::default();
        for (tag, op) in [("b", 1), ("a", 2), ("b", 3)] {
            map.insert(tag.into(), pending(op));
        }
        assert_eq!(PendingMap::from_bytes(map.to_bytes()), Ok(map.clone()));
        let taken = ["b", "b", "b", "a"].map(|tag| map.remove(&tag.into()).map(|p| p.op));
        assert_eq!((taken, map.is_empty()), ([Some(1), Some(3), None, Some(2)], true));
    }

    #[test]
    fn entries_come_back_and_cut_ones_do_not() {
        let entry = Entry {
            key: Key { name: "n".into(), instance: "i".into() },
            written: Written { pool: 3, epoch: 70_000 },
            index_version: 300,
            flags: VERSIONED | CURRENT,
            versioned_epoch: 2,
            ..Entry::default()
        };
        let bytes = entry.to_bytes();
        assert_eq!(Entry::from_bytes(bytes.clone()), Ok(entry));
        for n in 0..bytes.len() {
            assert!(Entry::from_bytes(bytes.slice(..n)).is_err(), "{n}");
        }
    }
}

//! Which data objects exist, in memory and through the class; the head's map is locked by the lock's owner.
//!
//! Source: src/include/rbd/object_map_types.h, src/common/bit_vector.hpp (two bits an object, the first in the highest).

use bytes::Bytes;
use codec::{Decode, Encode, Reader, Writer};
use rados::{IoCtx, LockRequest, WriteOp};
use types::Errno;

use crate::class::{self, AssertLocked, MapResizeArgs, MapUpdateArgs};
use crate::error::{Context, Error, Result};
use crate::lock::LOCK_NAME;

pub const NONEXISTENT: u8 = 0;
pub const EXISTS: u8 = 1;
pub const PENDING: u8 = 2;
pub const EXISTS_CLEAN: u8 = 3;

/// The states of an image's objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Map {
    objects: u64,
    bits: Vec<u8>,
}

impl Map {
    /// The map of objects that do not exist.
    pub fn empty(objects: u64) -> Self {
        let mut map = Self { objects: 0, bits: Vec::new() };
        map.resize(objects);
        map
    }

    pub fn len(&self) -> u64 {
        self.objects
    }

    /// Objects behind the end do not exist.
    pub fn get(&self, object: u64) -> u8 {
        let byte = self.bits.get((object / 4) as usize).copied().unwrap_or(0);
        if object < self.objects { byte >> (6 - object % 4 * 2) & 3 } else { NONEXISTENT }
    }

    pub fn set(&mut self, object: u64, state: u8) {
        if object >= self.objects {
            return;
        }
        if let Some(byte) = self.bits.get_mut((object / 4) as usize) {
            let shift = 6 - object % 4 * 2;
            *byte = *byte & !(3 << shift) | state << shift;
        }
    }

    pub fn resize(&mut self, objects: u64) {
        for gone in objects..self.objects {
            self.set(gone, NONEXISTENT);
        }
        self.bits.resize(objects.div_ceil(4) as usize, 0);
        self.objects = objects;
    }

    /// The objects of either map, all as changed since the last snapshot.
    pub fn existing_with(&self, other: &Self) -> Self {
        let mut out = Self::empty(self.objects.max(other.objects));
        for object in 0..out.objects {
            if self.get(object) != NONEXISTENT || other.get(object) != NONEXISTENT {
                out.set(object, EXISTS);
            }
        }
        out
    }
}

impl Decode for Map {
    fn decode(r: &mut Reader) -> std::result::Result<Self, codec::DecodeError> {
        let mut head = Reader::new(r.blob()?);
        let objects = head.envelope("object map", 1, |r, _| r.u64())?;
        let len = usize::try_from(objects.div_ceil(4)).unwrap_or(usize::MAX);
        let bits = r.raw(len)?.to_vec();
        r.blob()?;
        Ok(Self { objects, bits })
    }
}

impl Encode for Map {
    /// Without checksums, as the class takes it.
    fn encode(&self, w: &mut Writer) {
        let mut head = Writer::new();
        head.envelope(1, 1, |w| w.u64(self.objects));
        w.blob(head.as_slice());
        w.raw(&self.bits);
        w.blob(&[]);
    }
}

/// Reads the map of an image or snapshot.
pub async fn load(io: &IoCtx, id: &str, snap: Option<u64>) -> Result<Map> {
    class::call(io, &class::object::map(id, snap), "object_map_load", Bytes::new()).await
}

/// Takes the head's map for us alone; whoever had it before lost the image's lock already.
pub async fn take(io: &IoCtx, id: &str) -> Result<()> {
    let object = class::object::map(id, None);
    for _ in 0..2 {
        match io.lock(&object, &LockRequest::exclusive(LOCK_NAME, "")).await {
            Ok(()) => return Ok(()),
            Err(e) if e.errno() == Errno::EEXIST => return Ok(()),
            Err(e) if e.errno() == Errno::EBUSY => {}
            Err(e) => return Err(e).context(|| format!("locking {object}")),
        }
        for holder in io.lock_info(&object, LOCK_NAME).await?.holders {
            match io.break_lock(&object, LOCK_NAME, holder.client, &holder.cookie).await {
                Err(e) if !e.is_not_found() => return Err(e.into()),
                _ => {}
            }
        }
    }
    Err(Error::refused(Errno::EBUSY, format!("{object} is locked by somebody else")))
}

pub async fn release(io: &IoCtx, id: &str) -> Result<()> {
    match io.unlock(&class::object::map(id, None), LOCK_NAME, "").await {
        Err(e) if !e.is_not_found() => Err(e.into()),
        _ => Ok(()),
    }
}

/// Only while the map is ours.
pub fn guarded() -> WriteOp {
    let args = AssertLocked { name: LOCK_NAME.into(), kind: 1, cookie: String::new(), tag: String::new() };
    WriteOp::new().exec("lock", "assert_locked", args.to_bytes())
}

/// Changes objects `from..to` of the map of the head (guarded by its lock) or of a snapshot.
pub async fn update(io: &IoCtx, id: &str, snap: Option<u64>, args: MapUpdateArgs) -> Result<()> {
    let object = class::object::map(id, snap);
    let op = if snap.is_none() { guarded() } else { WriteOp::new() };
    let op = op.exec("rbd", "object_map_update", args.to_bytes());
    io.write_op(&object, op).await.map(drop).context(|| format!("updating {object}"))
}

pub async fn resize(io: &IoCtx, id: &str, objects: u64, is_new: bool) -> Result<()> {
    let object = class::object::map(id, None);
    let op = if is_new { WriteOp::new() } else { guarded() };
    let op = op.exec("rbd", "object_map_resize", MapResizeArgs { objects, state: NONEXISTENT }.to_bytes());
    io.write_op(&object, op).await.map(drop).context(|| format!("resizing {object}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_lie_as_the_class_stores_them() {
        let mut map = Map::empty(6);
        for (object, state) in [(0, EXISTS), (1, PENDING), (3, EXISTS_CLEAN), (5, EXISTS), (9, EXISTS)] {
            map.set(object, state);
        }
        assert_eq!(map.bits, [0b01_10_00_11, 0b00_01_00_00]);
        assert_eq!((0..7).map(|i| map.get(i)).collect::<Vec<_>>(), [1, 2, 0, 3, 0, 1, 0]);
        assert_eq!(Map::from_bytes(map.to_bytes()), Ok(map.clone()));
        let mut longer = Map::empty(8);
        longer.set(2, EXISTS_CLEAN);
        let either = map.existing_with(&longer);
        assert_eq!((0..8).map(|i| either.get(i)).collect::<Vec<_>>(), [1, 1, 1, 1, 0, 1, 0, 0]);
        map.resize(3);
        map.resize(6);
        assert_eq!((0..6).map(|i| map.get(i)).collect::<Vec<_>>(), [1, 2, 0, 0, 0, 0]);
        for n in 0..map.to_bytes().len() {
            assert!(Map::from_bytes(map.to_bytes().slice(..n)).is_err(), "{n}");
        }
    }
}

//! The byte form of a transaction: a head with every change, then the payloads of its writes back to back.
//!
//! The head alone goes into a log record when a write's payload went straight to its place; on the wire both parts
//! follow each other, and a receiver's payloads are slices of the buffer it received.

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer};
use types::{HObject, SpgId};

use crate::txn::{ObjectIndex, Op, Txn};
use crate::{ObjectKey, Space};

const VERSION: u8 = 2;
/// What a reader must know of a transaction that moves ranges: older releases refuse it.
const MOVES: u8 = 2;
/// About the bytes that an object's name and an operation take beside what may be long.
const OBJECT_LEN: usize = 128;
const OP_LEN: usize = 32;

impl Encode for Txn {
    fn encode(&self, w: &mut Writer) {
        self.encode_head(w);
        w.u32(self.payload_len() as u32);
        self.payloads().for_each(|p| w.raw(p));
    }
}

impl Decode for Txn {
    const MIN_SIZE: usize = 18;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        let head = decode_head(r)?;
        let len = r.u32()? as usize;
        let mut payload = Reader::new(r.raw(len)?);
        head.with_payloads(|_, len| payload.raw(len))
    }
}

impl Txn {
    /// The change list without the payloads of writes, for a transport that carries those as its own segment.
    pub fn head(&self) -> Bytes {
        match self.sealed() {
            Some(head) => head.clone(),
            None => Writer::collect_about(self.head_len(), |w| self.encode_head(w)),
        }
    }

    /// About the bytes of the head.
    fn head_len(&self) -> usize {
        let pair = |(key, value): &(Bytes, Bytes)| 8 + key.len() + value.len();
        let op = |op: &Op| match op {
            Op::OmapSet { entries, .. } => entries.iter().map(pair).sum(),
            Op::OmapRm { keys, .. } => keys.iter().map(|key| 4 + key.len()).sum(),
            Op::SetAttr { name, value, .. } => name.len() + value.len(),
            Op::OmapSetHeader { header, .. } => header.len(),
            _ => 0,
        };
        let ops = self.ops().iter().map(|of| OP_LEN + op(of)).sum::<usize>();
        ops + self.objects().len() * OBJECT_LEN
    }

    /// The same, kept for the log: call it when the transaction is complete.
    pub fn seal(&mut self) -> Bytes {
        let head = self.head();
        self.keep_sealed(head.clone());
        head
    }

    /// What `head` leaves out, in order.
    pub fn payloads(&self) -> impl Iterator<Item = &Bytes> {
        self.writes().map(|(_, data)| data)
    }

    pub fn payload_len(&self) -> usize {
        self.payloads().map(Bytes::len).sum()
    }

    /// Puts a head and its payloads together again; the writes share `payload`.
    pub fn from_head(head: Bytes, payload: Bytes) -> Result<Self, DecodeError> {
        let mut payload = Reader::new(payload);
        let mut r = Reader::new(head.clone());
        let mut txn = decode_head(&mut r)?.with_payloads(|_, len| payload.raw(len))?;
        txn.keep_sealed(head.slice(..r.position()));
        Ok(txn)
    }

    pub(crate) fn encode_head(&self, w: &mut Writer) {
        if let Some(head) = self.sealed() {
            return w.raw(head);
        }
        let moves = self.ops().iter().any(|op| matches!(op, Op::MoveRange { .. }));
        let version = if moves { MOVES } else { 1 };
        w.envelope(version, version, |w| {
            w.count(self.objects().len());
            self.objects().iter().for_each(|o| o.encode(w));
            w.count(self.ops().len());
            self.ops().iter().for_each(|op| encode_op(op, w));
        });
    }
}

/// A decoded head: writes are there with the right length in `write_lens`, but still without data.
pub(crate) struct TxnHead {
    objects: Vec<ObjectKey>,
    ops: Vec<Op>,
    /// Index of each write in `ops`, and its payload's length.
    write_lens: Vec<(usize, usize)>,
}

impl TxnHead {
    /// Asks for the payload of each write by the index of its operation and its length.
    pub(crate) fn with_payloads(
        mut self,
        mut payload: impl FnMut(usize, usize) -> Result<Bytes, DecodeError>,
    ) -> Result<Txn, DecodeError> {
        for (at, len) in self.write_lens {
            if let Some(Op::Write { data, .. }) = self.ops.get_mut(at) {
                *data = payload(at, len)?;
            }
        }
        Ok(Txn::from_parts(self.objects, self.ops))
    }
}

pub(crate) fn decode_head(r: &mut Reader) -> Result<TxnHead, DecodeError> {
    r.envelope("store transaction", VERSION, |r, _| {
        let objects = Vec::<ObjectKey>::decode(r)?;
        let mut sorted: Vec<&ObjectKey> =
            if objects.len() > 1 { objects.iter().collect() } else { Vec::new() };
        sorted.sort_unstable();
        if sorted.windows(2).any(|pair| matches!(pair, [a, b] if a == b)) {
            // Two indexes for one object would be two states of it.
            return Err(DecodeError::Invalid { what: "object named twice", value: objects.len() as u64 });
        }
        let n = r.count("operations", 2)?;
        let mut head = TxnHead { objects, ops: Vec::with_capacity(n.min(1024)), write_lens: Vec::new() };
        for at in 0..n {
            let op = decode_op(r, head.objects.len(), |len| head.write_lens.push((at, len)))?;
            head.ops.push(op);
        }
        Ok(head)
    })
}

mod tag {
    pub const TOUCH: u8 = 1;
    pub const WRITE: u8 = 2;
    pub const ZERO: u8 = 3;
    pub const TRUNCATE: u8 = 4;
    pub const REMOVE: u8 = 5;
    pub const SET_ATTR: u8 = 6;
    pub const RM_ATTR: u8 = 7;
    pub const RM_ATTRS: u8 = 8;
    pub const OMAP_SET: u8 = 9;
    pub const OMAP_RM: u8 = 10;
    pub const OMAP_RM_RANGE: u8 = 11;
    pub const OMAP_CLEAR: u8 = 12;
    pub const OMAP_SET_HEADER: u8 = 13;
    pub const CLONE: u8 = 14;
    pub const CLONE_RANGE: u8 = 15;
    pub const RENAME: u8 = 16;
    pub const SET: u8 = 17;
    pub const UNSET: u8 = 18;
    pub const UNSET_RANGE: u8 = 19;
    pub const DROP_SPACE: u8 = 20;
    pub const ALLOC_HINT: u8 = 21;
    pub const MOVE_RANGE: u8 = 22;
}

fn object_op(w: &mut Writer, tag: u8, object: &ObjectIndex) {
    w.u8(tag);
    w.u32(object.0);
}

fn encode_op(op: &Op, w: &mut Writer) {
    match op {
        Op::Touch { object } => object_op(w, tag::TOUCH, object),
        Op::Write { object, offset, data } => {
            object_op(w, tag::WRITE, object);
            w.u64(*offset);
            w.u32(data.len() as u32);
        }
        Op::Zero { object, offset, len } => {
            object_op(w, tag::ZERO, object);
            w.u64(*offset);
            w.u64(*len);
        }
        Op::Truncate { object, size } => {
            object_op(w, tag::TRUNCATE, object);
            w.u64(*size);
        }
        Op::Remove { object } => object_op(w, tag::REMOVE, object),
        Op::SetAttr { object, name, value } => {
            object_op(w, tag::SET_ATTR, object);
            name.encode(w);
            value.encode(w);
        }
        Op::RmAttr { object, name } => {
            object_op(w, tag::RM_ATTR, object);
            name.encode(w);
        }
        Op::RmAttrs { object } => object_op(w, tag::RM_ATTRS, object),
        Op::Clone { src, dst } => {
            object_op(w, tag::CLONE, src);
            w.u32(dst.0);
        }
        Op::CloneRange { src, dst, src_offset, len, dst_offset } => {
            object_op(w, tag::CLONE_RANGE, src);
            w.u32(dst.0);
            w.u64(*src_offset);
            w.u64(*len);
            w.u64(*dst_offset);
        }
        Op::MoveRange { src, dst, src_offset, len, dst_offset, digest } => {
            object_op(w, tag::MOVE_RANGE, src);
            w.u32(dst.0);
            w.u64(*src_offset);
            w.u64(*len);
            w.u64(*dst_offset);
            w.u32(*digest);
        }
        Op::Rename { src, dst } => {
            object_op(w, tag::RENAME, src);
            w.u32(dst.0);
        }
        Op::AllocHint { object, object_size, write_size } => {
            object_op(w, tag::ALLOC_HINT, object);
            w.u64(*object_size);
            w.u64(*write_size);
        }
        _ => encode_key_op(op, w),
    }
}

/// Changes of omaps and spaces.
fn encode_key_op(op: &Op, w: &mut Writer) {
    match op {
        Op::OmapSet { object, entries } => {
            object_op(w, tag::OMAP_SET, object);
            entries.encode(w);
        }
        Op::OmapRm { object, keys } => {
            object_op(w, tag::OMAP_RM, object);
            keys.encode(w);
        }
        Op::OmapRmRange { object, start, end } => {
            object_op(w, tag::OMAP_RM_RANGE, object);
            start.encode(w);
            end.encode(w);
        }
        Op::OmapClear { object } => object_op(w, tag::OMAP_CLEAR, object),
        Op::OmapSetHeader { object, header } => {
            object_op(w, tag::OMAP_SET_HEADER, object);
            header.encode(w);
        }
        Op::Set { space, key, value } => {
            w.u8(tag::SET);
            space.encode(w);
            key.encode(w);
            value.encode(w);
        }
        Op::Unset { space, key } => {
            w.u8(tag::UNSET);
            space.encode(w);
            key.encode(w);
        }
        Op::UnsetRange { space, start, end } => {
            w.u8(tag::UNSET_RANGE);
            space.encode(w);
            start.encode(w);
            end.encode(w);
        }
        Op::DropSpace { space } => {
            w.u8(tag::DROP_SPACE);
            space.encode(w);
        }
        _ => {}
    }
}

/// `objects` bounds the indexes; `write_len` hears the payload length of a write.
fn decode_op(r: &mut Reader, objects: usize, write_len: impl FnOnce(usize)) -> Result<Op, DecodeError> {
    let tag = r.u8()?;
    if matches!(tag, tag::SET | tag::UNSET | tag::UNSET_RANGE | tag::DROP_SPACE) {
        return decode_space_op(tag, r);
    }
    let index = |r: &mut Reader| {
        let i = r.u32()?;
        match (i as usize) < objects {
            true => Ok(ObjectIndex(i)),
            false => Err(DecodeError::Invalid { what: "object index", value: u64::from(i) }),
        }
    };
    let object = index(r)?;
    Ok(match tag {
        tag::TOUCH => Op::Touch { object },
        tag::WRITE => {
            let offset = r.u64()?;
            write_len(r.u32()? as usize);
            Op::Write { object, offset, data: Bytes::new() }
        }
        tag::ZERO => Op::Zero { object, offset: r.u64()?, len: r.u64()? },
        tag::TRUNCATE => Op::Truncate { object, size: r.u64()? },
        tag::REMOVE => Op::Remove { object },
        tag::SET_ATTR => Op::SetAttr { object, name: r.blob()?, value: r.blob()? },
        tag::RM_ATTR => Op::RmAttr { object, name: r.blob()? },
        tag::RM_ATTRS => Op::RmAttrs { object },
        tag::OMAP_SET => Op::OmapSet { object, entries: Vec::decode(r)? },
        tag::OMAP_RM => Op::OmapRm { object, keys: Vec::decode(r)? },
        tag::OMAP_RM_RANGE => Op::OmapRmRange { object, start: r.blob()?, end: r.blob()? },
        tag::OMAP_CLEAR => Op::OmapClear { object },
        tag::OMAP_SET_HEADER => Op::OmapSetHeader { object, header: r.blob()? },
        tag::CLONE => Op::Clone { src: object, dst: index(r)? },
        tag::CLONE_RANGE => Op::CloneRange {
            src: object,
            dst: index(r)?,
            src_offset: r.u64()?,
            len: r.u64()?,
            dst_offset: r.u64()?,
        },
        tag::MOVE_RANGE => Op::MoveRange {
            src: object,
            dst: index(r)?,
            src_offset: r.u64()?,
            len: r.u64()?,
            dst_offset: r.u64()?,
            digest: r.u32()?,
        },
        tag::RENAME => Op::Rename { src: object, dst: index(r)? },
        tag::ALLOC_HINT => Op::AllocHint { object, object_size: r.u64()?, write_size: r.u64()? },
        other => return Err(DecodeError::Invalid { what: "store operation", value: u64::from(other) }),
    })
}

fn decode_space_op(tag: u8, r: &mut Reader) -> Result<Op, DecodeError> {
    let space = Space::decode(r)?;
    Ok(match tag {
        tag::SET => Op::Set { space, key: r.blob()?, value: r.blob()? },
        tag::UNSET => Op::Unset { space, key: r.blob()? },
        tag::UNSET_RANGE => Op::UnsetRange { space, start: r.blob()?, end: r.blob()? },
        _ => Op::DropSpace { space },
    })
}

impl Encode for Space {
    fn encode(&self, w: &mut Writer) {
        match self {
            Self::Meta => w.u8(0),
            Self::Pg(pg) => {
                w.u8(1);
                pg.encode(w);
            }
        }
    }
}
impl Decode for Space {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        match r.u8()? {
            0 => Ok(Self::Meta),
            1 => Ok(Self::Pg(SpgId::decode(r)?)),
            other => Err(DecodeError::Invalid { what: "store space", value: u64::from(other) }),
        }
    }
}

impl Encode for ObjectKey {
    fn encode(&self, w: &mut Writer) {
        w.u8(self.shard as u8);
        self.object.encode(w);
    }
}
impl Decode for ObjectKey {
    const MIN_SIZE: usize = 7;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        Ok(Self { shard: r.u8()? as i8, object: HObject::decode(r)? })
    }
}

#[cfg(test)]
mod tests {
    use types::{PgId, PoolId};

    use super::*;
    use crate::Laid;

    fn every_operation() -> Txn {
        let a = ObjectKey::replicated(HObject { name: "a".into(), pool: PoolId(1), ..HObject::min() });
        let b = ObjectKey::new(2, HObject { name: "b".into(), pool: PoolId(1), ..HObject::min() });
        let pg = Space::Pg(SpgId::replicated(PgId::new(PoolId(1), 3)));
        let mut t = Txn::new();
        t.touch(&a).write(&a, 5, &b"payload"[..]).zero(&b, 1, 2).truncate(&b, 9).remove(&a);
        t.set_attr(&a, &b"n"[..], &b"v"[..]).rm_attr(&a, &b"n"[..]).rm_attrs(&b);
        t.omap_set(&a, vec![(Bytes::from_static(b"k"), Bytes::from_static(b"v"))]);
        t.omap_rm(&a, vec![Bytes::from_static(b"k")]).omap_rm_range(&a, &b"a"[..], &b"b"[..]);
        t.omap_clear(&b).omap_set_header(&b, &b"h"[..]).clone_object(&a, &b).clone_range(&a, &b, 1, 2, 3);
        t.rename(&b, &a).set(Space::Meta, &b"k"[..], &b"v"[..]).unset(pg, &b"k"[..]);
        t.unset_range(pg, &b"a"[..], &b"b"[..]).drop_space(pg).alloc_hint(&a, 4, 5).write(&b, 0, &b"2nd"[..]);
        t.move_range(&a, &b, Laid { offset: 4096, len: 8192, src_offset: 0, digest: 7 });
        t
    }

    #[test]
    fn every_operation_comes_back_and_every_truncation_is_an_error() {
        let t = every_operation();
        let whole = t.to_bytes();
        assert_eq!(Txn::from_bytes(whole.clone()), Ok(t.clone()));
        for n in 0..whole.len() {
            assert!(Txn::from_bytes(whole.slice(..n)).is_err(), "{n}");
        }
        let payload: Vec<u8> = t.payloads().flat_map(|p| p.to_vec()).collect();
        assert_eq!(Txn::from_head(t.head(), payload.into()), Ok(t));
    }

    #[test]
    fn decoded_payloads_share_the_received_buffer() {
        let whole = every_operation().to_bytes();
        let range = whole.as_ptr_range();
        let t = Txn::from_bytes(whole.clone()).expect("own form");
        assert!(t.payloads().all(|p| range.contains(&p.as_ptr())));
    }

    /// An older release refuses what it does not know; everything else it reads as before.
    #[test]
    fn only_what_moves_ranges_has_the_newer_version() {
        let key = |name: &str| ObjectKey::replicated(HObject { name: name.into(), ..HObject::min() });
        let mut t = Txn::new();
        t.touch(&key("a"));
        assert_eq!(t.head().get(..2), Some(&[1, 1][..]));
        t.move_range(&key("a"), &key("b"), Laid { offset: 0, len: 4096, src_offset: 0, digest: 7 });
        assert_eq!(t.head().get(..2), Some(&[2, 2][..]));
    }

    #[test]
    fn an_object_index_out_of_the_table_is_refused() {
        let mut w = Writer::new();
        w.envelope(1, 1, |w| {
            w.count(0);
            w.count(1);
            w.u8(1);
            w.u32(0);
        });
        w.u32(0);
        assert!(Txn::from_bytes(w.into_bytes()).is_err());
    }

    #[test]
    fn an_object_that_is_named_twice_is_refused() {
        let key = ObjectKey::replicated(HObject { name: "a".into(), ..HObject::min() });
        let mut w = Writer::new();
        w.envelope(1, 1, |w| {
            vec![key.clone(), key].encode(w);
            w.count(0);
        });
        w.u32(0);
        assert!(Txn::from_bytes(w.into_bytes()).is_err());
    }

    #[test]
    fn appended_transactions_share_one_object_table() {
        let (mut t, u) = (every_operation(), every_operation());
        t.append(u.clone());
        assert_eq!(t.objects().len(), 2);
        assert_eq!(t.ops().len(), 2 * u.ops().len());
    }
}

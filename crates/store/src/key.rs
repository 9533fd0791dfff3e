//! Keys of the store, and their byte forms whose memcmp order is the order of the keys.

use std::borrow::Borrow;
use std::cmp::Ordering;

use bytes::Bytes;
use types::{HObject, Name, PgId, PoolId, SnapId, SpgId};

/// Where keys outside objects live: the OSD itself (superblock, maps) or one PG (info, log, past intervals).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Space {
    Meta,
    Pg(SpgId),
}

/// An object's key: shard (-1 in replicated pools), then HObject order, so a PG is one range and PG split moves nothing.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    pub shard: i8,
    pub object: HObject,
}

impl ObjectKey {
    pub fn new(shard: i8, object: HObject) -> Self {
        Self { shard, object }
    }

    /// An object of a replicated pool.
    pub fn replicated(object: HObject) -> Self {
        Self { shard: SpgId::NO_SHARD, object }
    }
}

/// First bytes of index keys: one class of content each.
pub(crate) mod class {
    pub const META: u8 = 1;
    pub const PG: u8 = 2;
    pub const ONODE: u8 = 3;
    pub const OMAP: u8 = 4;
    pub const REFS: u8 = 5;
    pub const POOLS: u8 = 6;
}

/// `class, pool, seed, shard`: what all keys of a space begin with.
pub(crate) fn space_prefix(space: Space) -> Vec<u8> {
    let mut k = Vec::with_capacity(prefix_len(space));
    push_prefix(&mut k, space);
    k
}

fn prefix_len(space: Space) -> usize {
    match space {
        Space::Meta => 1,
        Space::Pg(_) => 14,
    }
}

fn push_prefix(k: &mut Vec<u8>, space: Space) {
    match space {
        Space::Meta => k.push(class::META),
        Space::Pg(SpgId { pgid, shard }) => {
            k.push(class::PG);
            push_pool(k, pgid.pool);
            k.extend_from_slice(&pgid.seed.to_be_bytes());
            k.push(shift_sign(shard));
        }
    }
}

pub(crate) fn space_key(space: Space, key: &[u8]) -> Bytes {
    // Of exact length, so that no second allocation holds the difference.
    let mut k = Vec::with_capacity(prefix_len(space) + key.len());
    push_prefix(&mut k, space);
    k.extend_from_slice(key);
    k.into()
}

/// The space an index key belongs to, and the rest of the key.
pub(crate) fn split_space_key(key: &[u8]) -> Option<(Space, &[u8])> {
    match key.split_first()? {
        (&class::META, rest) => Some((Space::Meta, rest)),
        (&class::PG, rest) => {
            let (pool, rest) = rest.split_first_chunk::<8>()?;
            let (seed, rest) = rest.split_first_chunk::<4>()?;
            let (shard, rest) = rest.split_first()?;
            let pgid = PgId { pool: PoolId(unshift_pool(*pool)), seed: u32::from_be_bytes(*seed) };
            Some((Space::Pg(SpgId { pgid, shard: unshift_sign(*shard) }), rest))
        }
        _ => None,
    }
}

pub(crate) fn omap_prefix(omap_id: u64) -> [u8; 9] {
    let mut k = [class::OMAP; 9];
    if let Some(tail) = k.get_mut(1..) {
        tail.copy_from_slice(&omap_id.to_be_bytes());
    }
    k
}

pub(crate) fn omap_key(omap_id: u64, key: &[u8]) -> Bytes {
    let mut k = Vec::with_capacity(9 + key.len());
    k.extend_from_slice(&omap_prefix(omap_id));
    k.extend_from_slice(key);
    k.into()
}

pub(crate) fn refs_key(region: u32) -> Bytes {
    let mut k = Vec::with_capacity(5);
    k.push(class::REFS);
    k.extend_from_slice(&region.to_be_bytes());
    k.into()
}

/// The least key above every key that begins with `prefix`; `None` when there is none.
pub(crate) fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.last_mut() {
        if let Some(up) = last.checked_add(1) {
            *last = up;
            return Some(end);
        }
        end.pop();
    }
    None
}

/// An object's index key. Strings are escaped, so that a shorter one sorts first whatever follows it; the locator key
/// takes part as HObject orders it: effective key, then name below (1), equal (2) or above (3) it.
pub(crate) fn onode_key(key: &ObjectKey) -> Bytes {
    // Of exact length: keys are kept, and of a buffer with room behind it `Bytes` makes two allocations.
    let len = onode_key_len(&key.object);
    let mut k = Vec::with_capacity(len);
    onode_key_into(key.shard, &key.object, &mut k);
    debug_assert_eq!(k.len(), len);
    k.into()
}

fn onode_key_len(o: &HObject) -> usize {
    if o.max {
        return 3;
    }
    let escaped = |text: &str| text.len() + text.bytes().filter(|b| *b == 0).count() + 2;
    let name = if o.key.is_empty() || o.key == o.name { 0 } else { escaped(&o.name) };
    25 + escaped(&o.nspace) + escaped(o.effective_key()) + name
}

pub(crate) fn onode_key_into(shard: i8, o: &HObject, k: &mut Vec<u8>) {
    k.push(class::ONODE);
    k.push(shift_sign(shard));
    if o.max {
        k.push(0xff);
        return;
    }
    k.push(0);
    push_pool(k, o.pool);
    k.extend_from_slice(&o.hash.reverse_bits().to_be_bytes());
    push_escaped(k, o.nspace.as_bytes());
    let effective = o.effective_key().as_bytes();
    push_escaped(k, effective);
    match o.name.as_bytes().cmp(effective) {
        Ordering::Equal => k.push(2),
        less_or_greater => {
            k.push(if less_or_greater.is_lt() { 1 } else { 3 });
            push_escaped(k, o.name.as_bytes());
        }
    }
    k.extend_from_slice(&o.snap.0.to_be_bytes());
    k.push(u8::from(!o.key.is_empty()));
}

/// The index key of an onode, with its first bytes beside it. Those hold the pool and the object's hash, so
/// that two keys nearly always differ there, and a search through a map reads little outside of its nodes.
/// Ordered as the bytes are.
#[derive(Debug, Clone)]
pub(crate) struct OnodeKey {
    head: u128,
    bytes: Bytes,
}

impl OnodeKey {
    pub(crate) fn new(bytes: Bytes) -> Self {
        Self { head: head_of(&bytes), bytes }
    }

    pub(crate) fn bytes(&self) -> &Bytes {
        &self.bytes
    }
}

/// The first sixteen bytes as a number. A shorter key, filled up with zeros, is not above those that begin
/// with it.
fn head_of(bytes: &[u8]) -> u128 {
    let mut head = [0; 16];
    head.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
    u128::from_be_bytes(head)
}

/// What maps of `OnodeKey` are searched for, without a key of one's own.
pub(crate) trait Sought {
    fn head(&self) -> u128;
    fn bytes(&self) -> &[u8];
}

/// A key that somebody else holds.
pub(crate) struct BorrowedKey<'a> {
    head: u128,
    bytes: &'a [u8],
}

impl<'a> BorrowedKey<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { head: head_of(bytes), bytes }
    }
}

impl Sought for OnodeKey {
    fn head(&self) -> u128 {
        self.head
    }
    fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl Sought for BorrowedKey<'_> {
    fn head(&self) -> u128 {
        self.head
    }
    fn bytes(&self) -> &[u8] {
        self.bytes
    }
}

impl Ord for dyn Sought + '_ {
    fn cmp(&self, other: &Self) -> Ordering {
        self.head().cmp(&other.head()).then_with(|| self.bytes().cmp(other.bytes()))
    }
}

impl PartialOrd for dyn Sought + '_ {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for dyn Sought + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for dyn Sought + '_ {}

impl Ord for OnodeKey {
    fn cmp(&self, other: &Self) -> Ordering {
        self.head.cmp(&other.head).then_with(|| self.bytes.cmp(&other.bytes))
    }
}

impl PartialOrd for OnodeKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for OnodeKey {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for OnodeKey {}

impl<'a> Borrow<dyn Sought + 'a> for OnodeKey {
    fn borrow(&self) -> &(dyn Sought + 'a) {
        self
    }
}

impl Borrow<[u8]> for OnodeKey {
    fn borrow(&self) -> &[u8] {
        &self.bytes
    }
}

/// The pool of an object's index key.
pub(crate) fn pool_of_onode_key(key: &[u8]) -> Option<i64> {
    key.get(3..)?.first_chunk::<8>().copied().map(unshift_pool)
}

/// The object an index key names; `None` for a key of another class or a damaged one.
pub(crate) fn parse_onode_key(key: &[u8]) -> Option<ObjectKey> {
    let rest = key.strip_prefix(&[class::ONODE])?;
    let (shard, rest) = rest.split_first()?;
    let rest = rest.strip_prefix(&[0])?;
    let (pool, rest) = rest.split_first_chunk::<8>()?;
    let (hash, rest) = rest.split_first_chunk::<4>()?;
    let (nspace, rest) = pop_escaped(rest)?;
    let (effective, rest) = pop_escaped(rest)?;
    let (relation, rest) = rest.split_first()?;
    let (name, rest) = match relation {
        2 => (effective.clone(), rest),
        1 | 3 => pop_escaped(rest)?,
        _ => return None,
    };
    let (snap, rest) = rest.split_first_chunk::<8>()?;
    let locator = match rest {
        [0] => Name::new(),
        [1] => effective,
        _ => return None,
    };
    let object = HObject {
        pool: PoolId(unshift_pool(*pool)),
        hash: u32::from_be_bytes(*hash).reverse_bits(),
        nspace,
        key: locator,
        name,
        snap: SnapId(u64::from_be_bytes(*snap)),
        max: false,
    };
    Some(ObjectKey { shard: unshift_sign(*shard), object })
}

fn shift_sign(v: i8) -> u8 {
    (v as u8) ^ 0x80
}
fn unshift_sign(v: u8) -> i8 {
    (v ^ 0x80) as i8
}
fn push_pool(k: &mut Vec<u8>, pool: PoolId) {
    k.extend_from_slice(&((pool.0 as u64) ^ (1 << 63)).to_be_bytes());
}
fn unshift_pool(raw: [u8; 8]) -> i64 {
    (u64::from_be_bytes(raw) ^ (1 << 63)) as i64
}

/// A zero byte becomes `0, 0xff`; the string ends with `0, 1`.
fn push_escaped(k: &mut Vec<u8>, text: &[u8]) {
    for (i, piece) in text.split(|b| *b == 0).enumerate() {
        if i > 0 {
            k.extend_from_slice(&[0, 0xff]);
        }
        k.extend_from_slice(piece);
    }
    k.extend_from_slice(&[0, 1]);
}

fn pop_escaped(mut from: &[u8]) -> Option<(Name, &[u8])> {
    let mut out = Vec::new();
    loop {
        match from {
            [0, 1, rest @ ..] => return Some((std::str::from_utf8(&out).ok()?.into(), rest)),
            [0, 0xff, rest @ ..] => {
                out.push(0);
                from = rest;
            }
            [0, ..] | [] => return None,
            [b, rest @ ..] => {
                out.push(*b);
                from = rest;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn objects() -> Vec<ObjectKey> {
        let mut all = Vec::new();
        for shard in [-1, 0, 3] {
            for pool in [-5, 0, 1, 77] {
                for hash in [0u32, 1, 2, 0x8000_0000, 0xffff_ffff] {
                    for nspace in ["", "n", "n\0"] {
                        for (key, name) in [
                            ("", "a"),
                            ("", "a\0"),
                            ("", "ab"),
                            ("a", "0"),
                            ("a", "a"),
                            ("a", "z"),
                            ("b", "a"),
                        ] {
                            for snap in [SnapId(1), SnapId::HEAD] {
                                let object = HObject {
                                    pool: PoolId(pool),
                                    hash,
                                    nspace: nspace.into(),
                                    key: key.into(),
                                    name: name.into(),
                                    snap,
                                    max: false,
                                };
                                all.push(ObjectKey { shard, object });
                            }
                        }
                    }
                }
            }
        }
        all
    }

    #[test]
    fn byte_order_is_object_order_and_keys_come_back() {
        let mut by_value = objects();
        let mut by_bytes = by_value.clone();
        by_value.sort();
        by_bytes.sort_by_key(onode_key);
        assert_eq!(by_value, by_bytes);
        for k in &by_value {
            let raw = onode_key(k);
            assert_eq!(parse_onode_key(&raw).as_ref(), Some(k));
            for n in 0..raw.len() {
                assert_eq!(parse_onode_key(&raw[..n]), None);
            }
            assert!(raw < onode_key(&ObjectKey { shard: k.shard, object: HObject::max() }));
            assert!(raw > onode_key(&ObjectKey { shard: k.shard, object: HObject::min() }));
        }
    }

    #[test]
    fn keys_with_their_first_bytes_beside_them_are_in_the_order_of_bytes() {
        let whole = objects().into_iter().step_by(97).map(|k| onode_key(&k));
        let mut keys: Vec<Bytes> = whole.flat_map(|k| (0..=k.len()).map(move |n| k.slice(..n))).collect();
        // Shorter than the first bytes are, and with zeros in place of what is not there.
        keys.extend([&[1, 0][..], &[1], &[1, 0, 0], &[]].map(Bytes::copy_from_slice));
        for one in &keys {
            for other in keys.iter().step_by(7) {
                let (own, others) = (OnodeKey::new(one.clone()), OnodeKey::new(other.clone()));
                let (a, b): (&dyn Sought, &dyn Sought) = (&own, &BorrowedKey::new(other));
                assert_eq!([own.cmp(&others), a.cmp(b)], [one.cmp(other); 2], "{one:?} {other:?}");
            }
        }
    }

    #[test]
    fn spaces_come_back_and_do_not_overlap() {
        let spaces = [
            Space::Meta,
            Space::Pg(SpgId::replicated(PgId::new(PoolId(1), 2))),
            Space::Pg(SpgId { pgid: PgId::new(PoolId(1), 2), shard: 3 }),
        ];
        for s in spaces {
            let k = space_key(s, b"key");
            assert_eq!(split_space_key(&k), Some((s, &b"key"[..])));
            for other in spaces {
                assert_eq!(k.starts_with(&space_prefix(other)), s == other);
            }
        }
        assert_eq!(prefix_end(&[1, 0xff]), Some(vec![2]));
        assert_eq!(prefix_end(&[0xff]), None);
    }
}

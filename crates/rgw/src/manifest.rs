//! Where the bytes of an object lie: in its head, and in the objects of its tail.
//!
//! 1. The head has the first `head_size` bytes, and is the object that clients name.
//! 2. The rest is in stripes of the rule's size; a rule holds from its offset up to the next one's.
//! 3. Rules with parts begin a stripe anew with each part.
//!
//! Source: src/rgw/rgw_obj_manifest.h and .cc.

use std::collections::BTreeMap;
use std::ops::{Bound, Range};

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer, wire_struct};

use crate::names::join;
use crate::{Bucket, Key, Object, PlacementRule};

/// Bytes of an object that lie in one place; of manifests that name each of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Piece {
    pub object: Object,
    /// Where they begin in that object.
    pub offset: u64,
    pub size: u64,
}

impl Encode for Piece {
    fn encode(&self, w: &mut Writer) {
        w.envelope(2, 2, |w| {
            self.object.encode(w);
            self.offset.encode(w);
            self.size.encode(w);
        });
    }
}
impl Decode for Piece {
    const MIN_SIZE: usize = 20;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.legacy_envelope_32("piece", 2, 2, |r, _| {
            Ok(Self { object: Decode::decode(r)?, offset: r.u64()?, size: r.u64()? })
        })
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ManifestRule {
    /// 0 for what was not uploaded in parts.
    pub first_part: u32,
    /// Where it begins, in the object.
    pub offset: u64,
    /// 0 for a part that goes on up to the next rule.
    pub part_size: u64,
    pub stripe_size: u64,
    /// In front of the names of its objects, instead of the manifest's prefix; empty for that one.
    pub prefix: Bytes,
}
wire_struct!(ManifestRule(2, 1) { first_part, offset, part_size, stripe_size } since 2 { prefix });

/// The bucket and the storage class that the tail was written to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tail {
    pub bucket: Bucket,
    pub placement: PlacementRule,
    /// Version that the tail's objects are called after.
    pub instance: Bytes,
}

/// The attribute `user.rgw.manifest`. Source: RGWObjManifest.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Manifest {
    /// Bytes of the whole object.
    pub size: u64,
    /// Each piece by its offset, in manifests of old.
    pub pieces: BTreeMap<u64, Piece>,
    pub is_explicit: bool,
    /// The head.
    pub object: Object,
    pub head_size: u64,
    pub max_head_size: u64,
    pub prefix: Bytes,
    pub rules: BTreeMap<u64, ManifestRule>,
    pub tail: Tail,
    pub head_placement: PlacementRule,
}

/// Some bytes of an object that lie together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stripe {
    pub object: Object,
    pub placement: PlacementRule,
    /// Where they begin in the RADOS object.
    pub offset: u64,
    /// Where they begin in the whole.
    pub at: u64,
    pub length: u64,
}

/// Parts of one size that follow each other.
struct Run {
    /// The first one's number.
    first: u32,
    offset: u64,
    /// 0: there is one.
    part_size: u64,
    end: u64,
}

impl Run {
    fn count(&self) -> u64 {
        let bytes = self.end.saturating_sub(self.offset);
        // One that is empty is a part, too.
        if self.part_size > 0 { bytes.div_ceil(self.part_size) } else { 1 }
    }

    /// Where its part `at` begins and ends.
    fn span(&self, at: u64) -> Option<Range<u64>> {
        let begin = self.offset.checked_add(at.checked_mul(self.part_size)?)?;
        let end = if self.part_size > 0 { begin.saturating_add(self.part_size) } else { self.end };
        (at < self.count()).then_some(begin..end.min(self.end).max(begin))
    }
}

/// Namespaces of what is no object to clients. Source: src/rgw/rgw_common.h.
const SHADOW: &[u8] = b"shadow";
const MULTIPART: &[u8] = b"multipart";

impl Manifest {
    /// Of an object that was written at once: a head of at most `max_head` bytes, stripes behind it.
    pub fn whole(
        object: Object,
        placement: PlacementRule,
        prefix: Bytes,
        size: u64,
        max_head: u64,
        stripe: u64,
    ) -> Self {
        let rule = ManifestRule { offset: max_head, stripe_size: stripe, ..ManifestRule::default() };
        let instance = object.key.instance.clone();
        Self {
            size,
            head_size: size.min(max_head),
            max_head_size: max_head,
            prefix,
            rules: BTreeMap::from([(0, rule)]),
            tail: Tail { bucket: object.bucket.clone(), placement: placement.clone(), instance },
            head_placement: placement,
            object,
            ..Self::default()
        }
    }

    /// Of one part of an upload, which has no head.
    pub fn part(
        object: Object,
        placement: PlacementRule,
        prefix: Bytes,
        number: u32,
        size: u64,
        stripe: u64,
    ) -> Self {
        let rule = ManifestRule { first_part: number, stripe_size: stripe, ..ManifestRule::default() };
        let manifest = Self::whole(object, placement, prefix, size, 0, stripe);
        Self { rules: BTreeMap::from([(0, rule)]), head_placement: PlacementRule::default(), ..manifest }
    }

    /// Puts the next part of an upload behind those that are there. Parts of one size and one prefix whose
    /// numbers follow each other have one rule. False, and nothing is done, for manifests that name each
    /// piece. Source: RGWObjManifest::append.
    #[must_use]
    pub fn append(&mut self, next: &Self) -> bool {
        if self.is_explicit || next.is_explicit {
            return false;
        }
        let Some(mut last) = self.rules.last_entry() else {
            *self = next.clone();
            return true;
        };
        let (size, prefix) = (self.size, self.prefix.clone());
        let rule = last.get_mut();
        if rule.part_size == 0 {
            rule.part_size = size.saturating_sub(rule.offset);
        }
        let own = |rule: &ManifestRule, prefix: &Bytes| match rule.prefix.is_empty() {
            true => prefix.clone(),
            false => rule.prefix.clone(),
        };
        let rule = rule.clone();
        let sized = |next_rule: &ManifestRule| match next_rule.part_size {
            0 => next.size.saturating_sub(next_rule.offset),
            given => given,
        };
        let follows = |other: &ManifestRule| {
            let behind = size.saturating_add(other.offset).saturating_sub(rule.offset);
            let count = behind.checked_div(rule.part_size).unwrap_or(1);
            sized(other) == rule.part_size
                && other.stripe_size == rule.stripe_size
                && own(other, &next.prefix) == own(&rule, &prefix)
                && u64::from(rule.first_part).saturating_add(count) == u64::from(other.first_part)
        };
        let rules = next.rules.values().skip_while(|other| follows(other));
        for (n, other) in rules.enumerate() {
            let own = own(other, &next.prefix);
            let offset = other.offset.saturating_add(size);
            let prefix = if own == prefix { Bytes::new() } else { own };
            // Ceph counts the size of the first rule alone, as it is compared with the next part's.
            let part_size = if n == 0 { sized(other) } else { other.part_size };
            self.rules.insert(offset, ManifestRule { offset, prefix, part_size, ..other.clone() });
        }
        self.size = size.saturating_add(next.size);
        true
    }

    pub fn has_tail(&self) -> bool {
        if self.is_explicit {
            return self.pieces.len() > 1 || self.pieces.values().any(|p| p.object != self.object);
        }
        self.size > self.head_size
    }

    /// The stripe that the byte at `offset` is in; `None` behind the end, or where the manifest makes no
    /// sense.
    pub fn stripe_at(&self, offset: u64) -> Option<Stripe> {
        if offset >= self.size {
            return None;
        }
        if self.is_explicit {
            return self.piece_at(offset);
        }
        if offset < self.head_size {
            let (object, placement) = (self.object.clone(), self.head_placement.clone());
            return Some(Stripe { object, placement, offset: 0, at: 0, length: self.head_size });
        }
        let rule = self.rules.range(..=offset).next_back().or_else(|| self.rules.iter().next())?.1;
        let behind = (Bound::Excluded(rule.offset.max(offset)), Bound::Unbounded);
        let end = self.rules.range(behind).next().map_or(self.size, |(at, _)| (*at).min(self.size));
        // A rule's own offset is where its stripes begin; the key is 0 for the first.
        let within = offset.checked_sub(rule.offset)?;
        let part = within.checked_div(rule.part_size).unwrap_or(0);
        let part_at = rule.offset.checked_add(part.checked_mul(rule.part_size)?)?;
        let part_end = if rule.part_size > 0 { part_at.saturating_add(rule.part_size).min(end) } else { end };
        let number = (offset - part_at).checked_div(rule.stripe_size)?;
        let at = part_at.checked_add(number.checked_mul(rule.stripe_size)?)?;
        let length = rule.stripe_size.min(part_end.saturating_sub(at));
        // A whole object's first stripe is the head.
        let first = u64::from(rule.first_part == 0 && self.head_size > 0);
        let key = self.stripe_key(rule, u64::from(rule.first_part).saturating_add(part), number + first);
        let bucket = if self.tail.bucket.name.is_empty() { &self.object.bucket } else { &self.tail.bucket };
        let (object, placement) = (Object { bucket: bucket.clone(), key }, self.tail.placement.clone());
        Some(Stripe { object, placement, offset: 0, at, length })
    }

    /// Where the part begins and ends that the byte at `offset` is in: the whole of what was not uploaded in
    /// parts. `None` behind the end, and where the manifest does not tell. Source:
    /// RGWGetObj_BlockDecrypt::read_manifest in src/rgw/rgw_crypt.cc.
    pub fn part_at(&self, offset: u64) -> Option<Range<u64>> {
        if offset >= self.size || self.is_explicit {
            return None;
        }
        let Some((_, rule)) = self.rules.range(..=offset).next_back().or_else(|| self.rules.iter().next())
        else {
            return (self.size <= self.head_size).then_some(0..self.size);
        };
        if rule.first_part == 0 {
            return (self.rules.len() == 1).then_some(0..self.size);
        }
        let behind = (Bound::Excluded(rule.offset.max(offset)), Bound::Unbounded);
        let end = self.rules.range(behind).next().map_or(self.size, |(at, _)| (*at).min(self.size));
        let part = offset.checked_sub(rule.offset)?.checked_div(rule.part_size).unwrap_or(0);
        let at = rule.offset.checked_add(part.checked_mul(rule.part_size)?)?;
        let part_end = if rule.part_size > 0 { at.saturating_add(rule.part_size) } else { end };
        // A head would be of no part.
        (self.head_size == 0).then_some(at..part_end.min(end))
    }

    /// Parts of an upload; `None` for what was not uploaded in parts, and where the manifest does not tell.
    pub fn parts(&self) -> Option<u64> {
        self.runs()?.map(|run| run.count()).try_fold(0u64, u64::checked_add)
    }

    /// Where the part of this number begins and ends; `None` also where there is none. Parts keep the numbers
    /// that they were uploaded with.
    pub fn part_numbered(&self, number: u32) -> Option<Range<u64>> {
        self.runs()?.find_map(|run| run.span(u64::from(number.checked_sub(run.first)?)))
    }

    /// The parts with greater numbers, in order, and where they begin and end.
    pub fn parts_behind(&self, number: u32) -> impl Iterator<Item = (u32, Range<u64>)> + '_ {
        let from = u64::from(number) + 1;
        self.runs().into_iter().flatten().flat_map(move |run| {
            let begin = from.saturating_sub(u64::from(run.first));
            (begin..run.count()).map_while(move |at| {
                let number = u64::from(run.first).checked_add(at)?;
                Some((u32::try_from(number).ok()?, run.span(at)?))
            })
        })
    }

    /// The same parts under names with another prefix, in another place; `None` for what was not uploaded in
    /// parts, and where two parts would have one name.
    pub fn parts_moved(&self, object: Object, placement: PlacementRule, prefix: Bytes) -> Option<Self> {
        let (mut next, runs) = (0, self.runs()?);
        for run in runs {
            if u64::from(run.first) < next {
                return None;
            }
            next = u64::from(run.first).checked_add(run.count())?;
        }
        let rule = |rule: &ManifestRule| ManifestRule { prefix: Bytes::new(), ..rule.clone() };
        let rules = self.rules.iter().map(|(at, own)| (*at, rule(own))).collect();
        let instance = object.key.instance.clone();
        let tail = Tail { bucket: object.bucket.clone(), placement, instance };
        Some(Self { object, prefix, rules, tail, ..self.clone() })
    }

    /// What each rule says of parts.
    fn runs(&self) -> Option<impl Iterator<Item = Run> + '_> {
        let of_parts = self.rules.values().all(|rule| rule.first_part > 0);
        if self.is_explicit || self.head_size > 0 || self.rules.is_empty() || !of_parts {
            return None;
        }
        let ends = self.rules.values().skip(1).map(|rule| rule.offset.min(self.size));
        let ends = ends.chain(std::iter::once(self.size));
        Some(self.rules.values().zip(ends).map(|(rule, end)| Run {
            first: rule.first_part,
            offset: rule.offset,
            part_size: rule.part_size,
            end,
        }))
    }

    fn piece_at(&self, offset: u64) -> Option<Stripe> {
        let (at, piece) = self.pieces.range(..=offset).next_back()?;
        let (object, placement) = (piece.object.clone(), self.tail.placement.clone());
        (offset - at < piece.size).then_some(Stripe {
            object,
            placement,
            offset: piece.offset,
            at: *at,
            length: piece.size,
        })
    }

    /// Source: RGWObjManifest::get_implicit_location.
    fn stripe_key(&self, rule: &ManifestRule, part: u64, stripe: u64) -> Key {
        let prefix = if rule.prefix.is_empty() { &self.prefix } else { &rule.prefix };
        let (number, namespace) = match (rule.first_part, stripe) {
            (0, _) => (stripe.to_string(), SHADOW),
            (_, 0) => (format!(".{part}"), MULTIPART),
            _ => (format!(".{part}_{stripe}"), SHADOW),
        };
        let name = join(&[prefix, number.as_bytes()]);
        Key { instance: self.tail.instance.clone(), ..Key::within(namespace, name) }
    }

    /// All stripes in order. What a manifest of others makes without an end stops at `bound` stripes.
    pub fn stripes(&self, bound: usize) -> Vec<Stripe> {
        let mut all: Vec<Stripe> = Vec::new();
        let mut at = 0;
        while let Some(stripe) = self.stripe_at(at).filter(|s| s.length > 0) {
            at = stripe.at.saturating_add(stripe.length);
            all.push(stripe);
            if all.len() >= bound {
                break;
            }
        }
        all
    }
}

impl Encode for Manifest {
    fn encode(&self, w: &mut Writer) {
        w.envelope(7, 6, |w| {
            self.size.encode(w);
            self.pieces.encode(w);
            self.is_explicit.encode(w);
            self.object.encode(w);
            self.head_size.encode(w);
            self.max_head_size.encode(w);
            self.prefix.encode(w);
            self.rules.encode(w);
            // What is the head's, too, is left out. Buckets are the same when their names and ids are.
            let (tail, head) = (&self.tail.bucket, &self.object.bucket);
            let same = (&tail.tenant, &tail.name, &tail.id) == (&head.tenant, &head.name, &head.id);
            Some(tail).filter(|_| !same).cloned().encode(w);
            let instance = &self.tail.instance;
            Some(instance).filter(|i| **i != self.object.key.instance).cloned().encode(w);
            self.head_placement.encode(w);
            self.tail.placement.encode(w);
        });
    }
}

impl Manifest {
    /// What the first three versions had.
    fn decode_first(r: &mut Reader, version: u8) -> Result<Self, DecodeError> {
        let mut m = Self { size: r.u64()?, pieces: Decode::decode(r)?, ..Self::default() };
        if version >= 3 {
            (m.is_explicit, m.object) = (Decode::decode(r)?, Decode::decode(r)?);
            (m.head_size, m.max_head_size) = (r.u64()?, r.u64()?);
            (m.prefix, m.rules) = (r.blob()?, Decode::decode(r)?);
        } else {
            m.is_explicit = true;
            if let Some(first) = m.pieces.values().next() {
                m.object = first.object.clone();
                (m.head_size, m.max_head_size) = (first.size, first.size);
            }
        }
        if m.is_explicit && m.head_size > 0 && !m.pieces.is_empty() {
            // A copy of an old object has its own head, whatever the list says. Source: decode, issue 16435.
            let first = m.pieces.entry(0).or_default();
            if !first.object.key.oid().is_empty() && first.object.key.namespace.is_empty() {
                (first.object, first.size) = (m.object.clone(), m.head_size);
            }
        }
        Ok(m)
    }
}

impl Decode for Manifest {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.legacy_envelope_32("manifest", 7, 2, |r, version| {
            let mut m = Self::decode_first(r, version)?;
            m.tail.bucket = match version {
                0..4 => Bucket::default(),
                4..6 => Decode::decode(r)?,
                _ => Option::decode(r)?.unwrap_or_else(|| m.object.bucket.clone()),
            };
            m.tail.instance = match version {
                0..5 => m.object.key.instance.clone(),
                5 => r.blob()?,
                _ => Option::decode(r)?.unwrap_or_else(|| m.object.key.instance.clone()),
            };
            if version >= 7 {
                (m.head_placement, m.tail.placement) = (Decode::decode(r)?, Decode::decode(r)?);
            }
            Ok(m)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(number: u32, size: u64) -> Manifest {
        Manifest::part(<_>::default(), <_>::default(), "p".into(), number, size, 4)
    }

    fn whole(parts: &[(u32, u64)]) -> Manifest {
        let mut all = Manifest::default();
        for (number, size) in parts {
            assert!(all.append(&part(*number, *size)));
        }
        all
    }

    #[test]
    fn parts_are_found_by_their_numbers() {
        for parts in [
            &[(1, 10), (2, 10), (3, 10), (4, 3)][..],
            &[(1, 7)],
            &[(1, 10), (2, 4)],
            &[(2, 10), (5, 10), (6, 10), (9, 1)],
            &[(1, 5), (2, 6), (3, 6), (4, 5)],
            &[(1, 0)],
            &[(1, 10), (2, 0)],
        ] {
            let all = whole(parts);
            assert_eq!(all.parts(), Some(parts.len() as u64), "{parts:?}");
            let mut at = 0;
            for (number, size) in parts {
                assert_eq!(all.part_numbered(*number), Some(at..at + size), "{parts:?}: {number}");
                let is_there = *size > 0;
                assert!(!is_there || all.part_at(at) == Some(at..at + size), "{parts:?}: {number}");
                at += size;
            }
            for number in 0..12 {
                let behind = all.parts_behind(number).map(|(n, span)| (n, span.end - span.start));
                let want: Vec<_> = parts.iter().copied().filter(|(n, _)| *n > number).collect();
                assert_eq!(behind.collect::<Vec<_>>(), want, "{parts:?}: behind {number}");
            }
            let none = (0..12).filter(|number| !parts.iter().any(|(n, _)| n == number));
            assert!(none.into_iter().all(|number| all.part_numbered(number).is_none()), "{parts:?}");
        }
    }

    #[test]
    fn parts_that_move_are_the_same_parts_elsewhere() {
        let object = Object { key: Key::plain("k"), ..Object::default() };
        let moved = |all: &Manifest| {
            let placement = PlacementRule { name: "p".into(), storage_class: "COLD".into() };
            all.parts_moved(object.clone(), placement, "new".into())
        };
        let mut all = whole(&[(1, 10), (2, 10), (5, 7), (9, 1)]);
        all.rules.values_mut().nth(1).unwrap().prefix = "own".into();
        let new = moved(&all).unwrap();
        assert_eq!((new.parts(), new.size), (all.parts(), all.size));
        for at in 0..all.size {
            let (old, new) = (all.stripe_at(at).unwrap(), new.stripe_at(at).unwrap());
            assert_eq!((old.at, old.length, old.offset), (new.at, new.length, new.offset), "{at}");
            assert!(new.object.key.name.starts_with(b"new.") && new.placement.storage_class == "COLD");
        }
        let names: std::collections::BTreeSet<_> =
            new.stripes(99).into_iter().map(|s| s.object.key.oid()).collect();
        assert_eq!(names.len(), new.stripes(99).len());
        // Of two parts with one number the second would lie where the first one does.
        assert_eq!(moved(&whole(&[(1, 10), (2, 10), (2, 4)])), None);
        assert_eq!(moved(&Manifest::whole(object.clone(), <_>::default(), "p".into(), 9, 4, 4)), None);
    }

    #[test]
    fn what_was_written_at_once_has_no_parts_and_nonsense_ends() {
        let one = Manifest::whole(<_>::default(), <_>::default(), "p".into(), 9, 4, 4);
        assert_eq!((one.parts(), one.part_numbered(1)), (None, None));
        assert_eq!(Manifest::default().parts(), None);
        let mut odd = whole(&[(1, 10), (2, 4)]);
        odd.size = u64::MAX;
        odd.rules.values_mut().for_each(|rule| (rule.part_size, rule.first_part) = (1, u32::MAX));
        odd.rules.values_mut().for_each(|rule| rule.offset = u64::MAX - 1);
        assert!(odd.parts().is_some() && odd.part_numbered(7).is_none());
        assert_eq!(odd.part_numbered(u32::MAX), Some(u64::MAX - 1..u64::MAX));
    }
}

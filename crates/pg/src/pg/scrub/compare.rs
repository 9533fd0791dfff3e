//! The copies of one chunk of objects against each other: which copy counts, and what is wrong with the others.
//!
//! A copy that counts proves itself: its data and omap agree with the store's checksums, its size with its info, and its
//! version is the newest. Of several the contents that most of them have count, the primary's when that is not decided.
//!
//! Source: be_select_auth_object, be_compare_scrub_objects and be_compare_scrubmaps in src/osd/PGBackend.cc.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use codec::Decode;
use erasure::Parity;
use types::{Eversion, HObject, PgId, PgShard};

use super::record::{FoundObject, ShardRecord, object_info};
use super::scan::Scanned;
use crate::coded::Geometry;
use crate::object::{INFO_ATTR, ObjectInfo, SNAPSET_ATTR, SnapSet, info_flags};

/// Bits of a shard's errors. Source: err_t in src/include/rados/rados_types.hpp.
pub(crate) mod shard_error {
    pub const MISSING: u64 = 1 << 1;
    pub const STAT: u64 = 1 << 2;
    pub const READ: u64 = 1 << 3;
    pub const DATA_DIGEST_MISMATCH_INFO: u64 = 1 << 9;
    pub const OMAP_DIGEST_MISMATCH_INFO: u64 = 1 << 10;
    pub const SIZE_MISMATCH_INFO: u64 = 1 << 11;
    /// A shard is not what the others make of it.
    pub const EC_HASH_MISMATCH: u64 = 1 << 12;
    pub const EC_SIZE_MISMATCH: u64 = 1 << 13;
    pub const INFO_MISSING: u64 = 1 << 14;
    pub const INFO_CORRUPTED: u64 = 1 << 15;
    pub const SNAPSET_CORRUPTED: u64 = 1 << 17;
    pub const OBJ_SIZE_INFO_MISMATCH: u64 = 1 << 18;
    pub const DEEP: u64 = READ | DATA_DIGEST_MISMATCH_INFO | OMAP_DIGEST_MISMATCH_INFO | EC_HASH_MISMATCH;
}

/// Bits of an object's errors, which blame no shard. Source: obj_err_t there.
pub(crate) mod object_error {
    pub const INFO_INCONSISTENCY: u64 = 1 << 1;
    pub const DATA_DIGEST_MISMATCH: u64 = 1 << 4;
    pub const OMAP_DIGEST_MISMATCH: u64 = 1 << 5;
    pub const SIZE_MISMATCH: u64 = 1 << 6;
    pub const ATTR_VALUE_MISMATCH: u64 = 1 << 7;
    pub const ATTR_NAME_MISMATCH: u64 = 1 << 8;
    pub const SNAPSET_INCONSISTENCY: u64 = 1 << 9;
    pub const SIZE_TOO_LARGE: u64 = 1 << 11;
    pub const DEEP: u64 = DATA_DIGEST_MISMATCH | OMAP_DIGEST_MISMATCH;
}

/// Every member's objects of the chunk.
pub(crate) type Maps = BTreeMap<PgShard, BTreeMap<HObject, Scanned>>;

/// Objects of one scrub that are remembered, to be listed and mended; the others are counted.
pub(crate) const MOST_FOUND: usize = 4096;
/// Bytes of attributes that are remembered with them.
const MOST_BYTES: usize = 16 << 20;

/// What a scrub has found so far.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Tally {
    pub shallow: u32,
    pub deep: u32,
    pub bad: BTreeMap<HObject, BadObject>,
    /// For `rados list-inconsistent-obj`, and how the objects' own lines in the cluster log read.
    pub records: BTreeMap<HObject, FoundObject>,
    pub lines: Vec<String>,
    /// Errors that were counted and are not any more: writes have replaced what they were found in.
    pub forgiven: u32,
    record_bytes: usize,
    /// Objects to be mended, and found ones, beyond what is remembered.
    pub more_bad: u32,
    pub more_records: u32,
}

impl Tally {
    /// A write has replaced all data of some shards of an object; whether that takes back what was found.
    /// What is too much to be remembered stays counted.
    pub fn forgive(&mut self, object: &HObject, replaced: &BTreeSet<i8>) -> bool {
        if self.bad.get(object).is_some_and(|bad| bad.extra) {
            return false;
        }
        let (mut is_less, mut is_good) = (false, false);
        if let Some(bad) = self.bad.get_mut(object) {
            let before = bad.bad().len();
            bad.forgive(replaced);
            let left = bad.bad().len();
            (is_less, is_good) = (left < before, left == 0);
        }
        if is_good {
            self.bad.remove(object);
        }
        let Some(found) = self.records.get_mut(object) else { return is_less };
        let before = found.counts();
        found.forgive(replaced, is_good);
        let left = found.counts();
        if !found.has_errors() {
            self.records.remove(object);
        }
        let gone = (before.0.saturating_sub(left.0), before.1.saturating_sub(left.1));
        self.shallow = self.shallow.saturating_sub(gone.0);
        self.deep = self.deep.saturating_sub(gone.1);
        self.forgiven += gone.0 + gone.1;
        is_less || gone != (0, 0)
    }

    fn add_bad(&mut self, object: &HObject, verdict: BadObject) {
        match self.bad.len() < MOST_FOUND {
            true => drop(self.bad.insert(object.clone(), verdict)),
            false => self.more_bad += 1,
        }
    }

    /// Counts the errors of an object, and remembers them.
    fn add_record(&mut self, object: &HObject, found: FoundObject) {
        let (shallow, deep) = found.counts();
        self.shallow += shallow;
        self.deep += deep;
        let bytes = self.record_bytes + found.bytes();
        if self.records.len() >= MOST_FOUND || bytes > MOST_BYTES {
            self.more_records += 1;
            return;
        }
        self.record_bytes = bytes;
        self.records.insert(object.clone(), found);
    }
}

/// An object that is not the same everywhere, and of which at least one copy counts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct BadObject {
    pub good: BTreeSet<PgShard>,
    pub missing: BTreeSet<PgShard>,
    pub inconsistent: BTreeSet<PgShard>,
    pub version: Eversion,
    /// The log says that it was deleted: who has it has it too much.
    pub extra: bool,
}

impl BadObject {
    /// Copies that are to be replaced.
    pub fn bad(&self) -> BTreeSet<PgShard> {
        self.missing.union(&self.inconsistent).copied().collect()
    }

    /// A write has replaced all data of these shards: what was found of them is not so any more.
    fn forgive(&mut self, replaced: &BTreeSet<i8>) {
        let stays = |copy: &PgShard| !replaced.contains(&copy.shard);
        self.missing.retain(stays);
        self.inconsistent.retain(stays);
    }
}

/// What the comparison has to know besides the copies.
pub(crate) struct Context<'a> {
    pub pgid: PgId,
    pub primary: PgShard,
    /// Bytes.
    pub max_object_size: u64,
    /// Whether the log deletes this version of the object.
    pub deleted: &'a dyn Fn(&HObject, Eversion) -> bool,
    /// Objects whose recorded digests are not to be looked at: they changed in between.
    pub moving: &'a BTreeSet<HObject>,
    /// Of an erasure-coded PG: the copies are shards.
    pub coded: Option<&'a Geometry>,
}

impl Context<'_> {
    /// How many bytes a copy of an object of so many bytes has.
    fn size_on_copy(&self, size: u64) -> u64 {
        self.coded.map_or(size, |geometry| geometry.stripes.shard_len(size))
    }
}

/// A copy, looked at by itself.
#[derive(Debug, Clone, Default)]
struct Shard {
    errors: u64,
    info: Option<ObjectInfo>,
}

/// Compares all objects but those of `skip`; returns the copies that count.
pub(crate) fn compare(
    cx: &Context<'_>,
    maps: &Maps,
    skip: &BTreeSet<HObject>,
    tally: &mut Tally,
) -> BTreeMap<HObject, Scanned> {
    let names: BTreeSet<&HObject> =
        maps.values().flat_map(|m| m.keys()).filter(|o| !skip.contains(o)).collect();
    let mut sound = BTreeMap::new();
    for object in names {
        let copies: BTreeMap<PgShard, Option<&Scanned>> =
            maps.iter().map(|(osd, m)| (*osd, m.get(object))).collect();
        let counts = One { cx, object, copies }.compare(tally);
        let any = || maps.get(&cx.primary).and_then(|m| m.get(object));
        if let Some(copy) = counts.and_then(|osd| maps.get(&osd)?.get(object)).or_else(any) {
            sound.insert(object.clone(), whole(cx, copy));
        }
    }
    sound
}

/// A copy as the sums count it: with the bytes of the object, of which a shard has a part.
fn whole(cx: &Context<'_>, copy: &Scanned) -> Scanned {
    let info = copy.attrs.get(INFO_ATTR).filter(|_| cx.coded.is_some());
    let info = info.and_then(|raw| ObjectInfo::from_bytes(raw.clone()).ok());
    match info.filter(|info| cx.size_on_copy(info.size) == copy.size) {
        Some(info) => Scanned { size: info.size, sum: Bytes::new(), ..copy.clone() },
        None => copy.clone(),
    }
}

/// One object's copies.
struct One<'a> {
    cx: &'a Context<'a>,
    object: &'a HObject,
    copies: BTreeMap<PgShard, Option<&'a Scanned>>,
}

impl One<'_> {
    /// The member whose copy counts.
    fn compare(&self, tally: &mut Tally) -> Option<PgShard> {
        let (pgid, object) = (self.cx.pgid, self.object);
        let mut shards: BTreeMap<PgShard, Shard> = BTreeMap::new();
        for osd in self.primary_first() {
            let Some(copy) = self.copy(osd) else { continue };
            let (shard, what) = self.examine(copy);
            if !what.is_empty() {
                tally.lines.push(format!("{pgid} shard {osd} soid {object} : {}", what.join(", ")));
            }
            shards.insert(osd, shard);
        }
        let parity = self.check_parity(&mut shards, tally);
        let Some(auth) = self.select(&shards) else {
            self.none_counts(shards, tally);
            return None;
        };
        let (Some(auth_copy), Some(auth_info)) =
            (self.copy(auth), shards.get(&auth).and_then(|s| s.info.clone()))
        else {
            return None;
        };
        let mut found = FoundObject::new(object, auth_info.user_version);
        found.errors |= parity;
        let mut verdict = BadObject { version: auth_info.version, ..BadObject::default() };
        let mut blameless: BTreeSet<PgShard> = BTreeSet::new();
        verdict.extra = (self.cx.deleted)(object, auth_info.version);
        for (osd, copy) in &self.copies {
            let mut shard = shards.remove(osd).unwrap_or_default();
            match copy {
                None => {
                    shard.errors |= shard_error::MISSING;
                    verdict.missing.insert(*osd);
                    tally.lines.push(format!("{pgid} shard {osd} {object} : missing"));
                }
                Some(copy) => {
                    let what = self.differences(auth, auth_copy, &auth_info, copy, &mut shard, &mut found);
                    if shard.errors != 0 {
                        verdict.inconsistent.insert(*osd);
                        if !what.is_empty() {
                            tally
                                .lines
                                .push(format!("{pgid} shard {osd} soid {object} : {}", what.join(", ")));
                        }
                    } else if !what.is_empty() {
                        blameless.insert(*osd);
                        tally.lines.push(format!("{pgid} soid {object} : {}", what.join(", ")));
                    } else {
                        verdict.good.insert(*osd);
                    }
                }
            }
            found.add(*osd, self.record(*osd, *copy, &shard, *osd == auth));
        }
        self.judge(auth, verdict, blameless, found, tally);
        Some(auth)
    }

    /// Sums up: what is to be mended, and what is told of it.
    fn judge(
        &self,
        auth: PgShard,
        mut verdict: BadObject,
        mut blameless: BTreeSet<PgShard>,
        found: FoundObject,
        tally: &mut Tally,
    ) {
        if verdict.good.is_empty() {
            let first = if blameless.contains(&auth) { Some(auth) } else { blameless.first().copied() };
            match first {
                Some(osd) => {
                    blameless.remove(&osd);
                    verdict.good.insert(osd);
                }
                None => tally.lines.push(format!(
                    "{} soid {} : failed to pick suitable auth object",
                    self.cx.pgid, self.object
                )),
            }
        }
        verdict.inconsistent.extend(blameless);
        // Shards that do not match each other, and do not tell which of them is wrong, make no other one.
        let is_unsure = self.cx.coded.is_some() && found.errors & object_error::DATA_DIGEST_MISMATCH != 0;
        let can_mend = verdict.extra || !is_unsure;
        if can_mend && !verdict.good.is_empty() && !verdict.bad().is_empty() {
            tally.add_bad(self.object, verdict);
        }
        if found.has_errors() {
            tally.add_record(self.object, found);
        }
    }

    /// No copy can be trusted.
    fn none_counts(&self, mut shards: BTreeMap<PgShard, Shard>, tally: &mut Tally) {
        let mut found = FoundObject::new(self.object, 0);
        for (osd, copy) in &self.copies {
            let mut shard = shards.remove(osd).unwrap_or_default();
            if copy.is_none() {
                shard.errors |= shard_error::MISSING;
            }
            found.add(*osd, self.record(*osd, *copy, &shard, false));
        }
        tally.add_record(self.object, found);
        tally
            .lines
            .push(format!("{} soid {} : failed to pick suitable object info", self.cx.pgid, self.object));
    }

    fn copy(&self, osd: PgShard) -> Option<&Scanned> {
        self.copies.get(&osd).copied().flatten()
    }

    fn primary_first(&self) -> Vec<PgShard> {
        let primary = self.cx.primary;
        let others = self.copies.keys().copied().filter(|o| *o != primary);
        std::iter::once(primary).chain(others).collect()
    }

    /// What is wrong with a copy by itself.
    fn examine(&self, copy: &Scanned) -> (Shard, Vec<String>) {
        let (mut shard, mut what) = (Shard::default(), Vec::new());
        let mut fault = |bit: u64, text: &str| {
            shard.errors |= bit;
            what.push(text.to_owned());
        };
        if copy.read_error {
            fault(shard_error::READ, "candidate had a read error");
        }
        if copy.stat_error {
            fault(shard_error::STAT, "candidate had a stat error");
            return (shard, what);
        }
        let snapset = copy.attrs.get(SNAPSET_ATTR).map(|raw| SnapSet::from_bytes(raw.clone()));
        if self.object.is_head() && matches!(snapset, Some(Err(_))) {
            fault(shard_error::SNAPSET_CORRUPTED, "candidate had a corrupt snapset");
        }
        match copy.attrs.get(INFO_ATTR).map(|raw| ObjectInfo::from_bytes(raw.clone())) {
            None => fault(shard_error::INFO_MISSING, "candidate had a missing info key"),
            Some(Err(_)) => fault(shard_error::INFO_CORRUPTED, "candidate had a corrupt info"),
            Some(Ok(info)) => {
                let size = self.cx.size_on_copy(info.size);
                if size != copy.size {
                    let text = format!("candidate size {} info size {size} mismatch", copy.size);
                    let of_shard = if self.cx.coded.is_some() { shard_error::EC_SIZE_MISMATCH } else { 0 };
                    fault(shard_error::OBJ_SIZE_INFO_MISMATCH | of_shard, &text);
                }
                shard.info = Some(info);
            }
        }
        (shard, what)
    }

    /// Whether the shards are what the code makes of each other. One that is not is blamed where the others
    /// tell; else the object is, whose errors come back.
    fn check_parity(&self, shards: &mut BTreeMap<PgShard, Shard>, tally: &mut Tally) -> u64 {
        let (pgid, object) = (self.cx.pgid, self.object);
        let Some(geometry) = self.cx.coded.filter(|_| !self.cx.moving.contains(&object.head())) else {
            return 0;
        };
        let mut sums: Vec<Option<&[u8]>> = vec![None; geometry.shards()];
        let newest = shards.values().filter_map(|s| s.info.as_ref()).map(|info| info.version).max();
        let sound = |osd: &PgShard| {
            shards.get(osd).is_some_and(|s| s.errors == 0 && s.info.as_ref().map(|i| i.version) == newest)
        };
        let mut by_place = BTreeMap::new();
        for (osd, copy) in self.copies.iter().filter(|(osd, _)| sound(osd)) {
            let Some(copy) = copy.filter(|copy| !copy.sum.is_empty()) else { continue };
            let place = usize::try_from(osd.shard).unwrap_or(usize::MAX);
            if let Some(sum) = sums.get_mut(place) {
                *sum = Some(&copy.sum);
                by_place.insert(place, *osd);
            }
        }
        match geometry.codec.parity(&sums) {
            Ok(Parity::Holds | Parity::Unknown) => 0,
            Ok(Parity::Wrong(place)) if by_place.contains_key(&place) => {
                let Some(osd) = by_place.get(&place) else { return 0 };
                tally
                    .lines
                    .push(format!("{pgid} shard {osd} soid {object} : candidate had an ec hash mismatch"));
                shards.entry(*osd).or_default().errors |= shard_error::EC_HASH_MISMATCH;
                0
            }
            _ => {
                tally.lines.push(format!("{pgid} soid {object} : shards do not match each other"));
                object_error::DATA_DIGEST_MISMATCH
            }
        }
    }

    /// The copy that counts.
    fn select(&self, shards: &BTreeMap<PgShard, Shard>) -> Option<PgShard> {
        let rank =
            |i: &ObjectInfo| (i.version, i.test(info_flags::DATA_DIGEST), i.test(info_flags::OMAP_DIGEST));
        let sound = |osd: &PgShard| {
            Some(shards.get(osd)?.info.as_ref()?).filter(|_| shards.get(osd).is_some_and(|s| s.errors == 0))
        };
        let order = self.primary_first();
        let best = order.iter().filter_map(sound).map(rank).max()?;
        let candidates: Vec<PgShard> =
            order.into_iter().filter(|o| sound(o).is_some_and(|i| rank(i) == best)).collect();
        let alike = |a: PgShard| candidates.iter().filter(|b| self.are_alike(a, **b)).count();
        let most = candidates.iter().map(|o| alike(*o)).max()?;
        candidates.iter().copied().find(|o| alike(*o) == most)
    }

    /// Whether two copies say the same. Shards have the same metadata, and other bytes.
    fn are_alike(&self, a: PgShard, b: PgShard) -> bool {
        match (self.copy(a), self.copy(b)) {
            (Some(a), Some(b)) if self.cx.coded.is_some() => (a.size, &a.attrs) == (b.size, &b.attrs),
            (a, b) => a == b,
        }
    }

    /// In what a copy differs from the one that counts.
    fn differences(
        &self,
        auth: PgShard,
        auth_copy: &Scanned,
        auth_info: &ObjectInfo,
        copy: &Scanned,
        shard: &mut Shard,
        found: &mut FoundObject,
    ) -> Vec<String> {
        let mut what = Vec::new();
        let fixed = !self.cx.moving.contains(self.object);
        let digests = [
            ("data", auth_copy.data_digest, copy.data_digest, object_error::DATA_DIGEST_MISMATCH),
            ("omap", auth_copy.omap_digest, copy.omap_digest, object_error::OMAP_DIGEST_MISMATCH),
        ];
        for (kind, ours, theirs, bit) in digests {
            if let (Some(ours), Some(theirs)) = (ours, theirs) {
                if ours != theirs {
                    found.errors |= bit;
                    what.push(format!(
                        "{kind}_digest 0x{theirs:x} != {kind}_digest 0x{ours:x} from shard {auth}"
                    ));
                }
            }
        }
        let recorded = [
            (
                "data",
                info_flags::DATA_DIGEST,
                auth_info.data_digest,
                copy.data_digest,
                shard_error::DATA_DIGEST_MISMATCH_INFO,
            ),
            (
                "omap",
                info_flags::OMAP_DIGEST,
                auth_info.omap_digest,
                copy.omap_digest,
                shard_error::OMAP_DIGEST_MISMATCH_INFO,
            ),
        ];
        for (kind, flag, recorded, theirs, bit) in recorded {
            if let Some(theirs) = theirs.filter(|d| fixed && auth_info.test(flag) && *d != recorded) {
                shard.errors |= bit;
                let info = object_info(self.object, auth_info);
                what.push(format!(
                    "{kind}_digest 0x{theirs:x} != {kind}_digest 0x{recorded:x} from auth oi {info}"
                ));
            }
        }
        if copy.stat_error {
            return what;
        }
        self.differing_metadata(auth, auth_copy, auth_info, copy, shard, found, &mut what);
        what
    }

    #[expect(clippy::too_many_arguments, reason = "both sides of a comparison and what comes of it")]
    fn differing_metadata(
        &self,
        auth: PgShard,
        auth_copy: &Scanned,
        auth_info: &ObjectInfo,
        copy: &Scanned,
        shard: &mut Shard,
        found: &mut FoundObject,
        what: &mut Vec<String>,
    ) {
        let differ = |name: &[u8]| auth_copy.attrs.get(name) != copy.attrs.get(name);
        if shard.errors & (shard_error::INFO_MISSING | shard_error::INFO_CORRUPTED) == 0 && differ(INFO_ATTR)
        {
            found.errors |= object_error::INFO_INCONSISTENCY;
            what.push("object info inconsistent ".to_owned());
        }
        let readable = shard.errors & shard_error::SNAPSET_CORRUPTED == 0;
        if self.object.is_head() && readable && differ(SNAPSET_ATTR) {
            found.errors |= object_error::SNAPSET_INCONSISTENCY;
            what.push("snapset inconsistent ".to_owned());
        }
        let size = self.cx.size_on_copy(auth_info.size);
        if size != copy.size {
            shard.errors |= shard_error::SIZE_MISMATCH_INFO;
            let info = object_info(self.object, auth_info);
            what.push(format!("size {} != size {size} from auth oi {info}", copy.size));
        }
        if auth_copy.size != copy.size {
            found.errors |= object_error::SIZE_MISMATCH;
            what.push(format!("size {} != size {} from shard {auth}", copy.size, auth_copy.size));
        }
        let max = self.cx.max_object_size;
        if copy.size > max && found.errors & object_error::SIZE_TOO_LARGE == 0 {
            found.errors |= object_error::SIZE_TOO_LARGE;
            what.push(format!("size {} > {max} is too large", copy.size));
        }
        let of_clients = |name: &&Bytes| name.first() == Some(&b'_') && name.as_ref() != INFO_ATTR;
        let text = |name: &Bytes| String::from_utf8_lossy(name).into_owned();
        for name in auth_copy.attrs.keys().filter(of_clients) {
            if !copy.attrs.contains_key(name) {
                found.errors |= object_error::ATTR_NAME_MISMATCH;
                what.push(format!("attr name mismatch '{}'", text(name)));
            } else if differ(name) {
                found.errors |= object_error::ATTR_VALUE_MISMATCH;
                what.push(format!("attr value mismatch '{}'", text(name)));
            }
        }
        for name in copy.attrs.keys().filter(of_clients).filter(|n| !auth_copy.attrs.contains_key(*n)) {
            found.errors |= object_error::ATTR_NAME_MISMATCH;
            what.push(format!("attr name mismatch '{}'", text(name)));
        }
    }

    fn record(&self, osd: PgShard, copy: Option<&Scanned>, shard: &Shard, selected: bool) -> ShardRecord {
        ShardRecord::new(self.object, shard.errors, osd == self.cx.primary, selected, copy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_remembered_has_a_bound() {
        let mut tally = Tally::default();
        for i in 0..MOST_FOUND as u32 + 7 {
            let object = HObject { hash: i, ..HObject::min() };
            tally.add_bad(&object, BadObject::default());
            tally.add_record(&object, FoundObject::new(&object, 0));
        }
        assert_eq!((tally.bad.len(), tally.more_bad), (MOST_FOUND, 7));
        assert_eq!((tally.records.len(), tally.more_records), (MOST_FOUND, 7));
        let mut tally = Tally::default();
        let large = Scanned {
            attrs: BTreeMap::from([(Bytes::from_static(b"_a"), Bytes::from(vec![0; MOST_BYTES / 4]))]),
            ..Scanned::default()
        };
        for i in 0..9 {
            let object = HObject { hash: i, ..HObject::min() };
            let mut found = FoundObject::new(&object, 0);
            found.add(
                PgShard::replicated(types::OsdId(1)),
                ShardRecord::new(&object, 0, true, true, Some(&large)),
            );
            tally.add_record(&object, found);
        }
        assert_eq!((tally.records.len(), tally.more_records), (3, 6));
    }
}

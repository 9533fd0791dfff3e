//! The map's wire form: exactly what Ceph 16.2 writes for peers with all features.
//!
//! Source: CrushWrapper::encode and CrushWrapper::decode in src/crush/CrushWrapper.cc.

use std::collections::BTreeMap;

use codec::{Decode, DecodeError, Encode, Reader, Writer};

use crate::validate::MAX_RULES;
use crate::{Alg, Bucket, BucketData, ChooseArg, ChooseArgMap, CrushMap, Rule, Step, Tunables};

/// Tells revisions of the algorithm apart. Source: CRUSH_MAGIC in src/crush/crush.h.
const MAGIC: u32 = 0x0001_0000;

impl Encode for CrushMap {
    fn encode(&self, w: &mut Writer) {
        w.u32(MAGIC);
        w.count(self.buckets.len());
        w.count(self.rules.len());
        w.i32(self.max_devices);
        for slot in &self.buckets {
            match slot {
                Some(b) => encode_bucket(b, w),
                None => w.u32(0),
            }
        }
        for slot in &self.rules {
            w.u32(u32::from(slot.is_some()));
            if let Some(rule) = slot {
                rule.encode(w);
            }
        }
        self.type_names.encode(w);
        self.item_names.encode(w);
        self.rule_names.encode(w);
        encode_tunables(&self.tunables, w);
        self.device_classes.encode(w);
        self.class_names.encode(w);
        self.class_buckets.encode(w);
        w.count(self.choose_args.len());
        for (id, args) in &self.choose_args {
            w.i64(*id);
            args.encode(w);
        }
    }
}

/// Refuses maps that [`CrushMap::validate`] refuses, so that a decoded map is safe to place with. Like Ceph, repairs
/// weight sets of the wrong size and recomputes `max_devices`. Reads the tunables and what follows only as far as the
/// reader goes, since older writers end earlier: give it a reader bounded to the map.
impl Decode for CrushMap {
    const MIN_SIZE: usize = 28;

    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        let magic = r.u32()?;
        if magic != MAGIC {
            return Err(DecodeError::Invalid { what: "crush magic", value: u64::from(magic) });
        }
        let max_buckets = bounded(r, "crush max_buckets", i32::MAX as u64)?;
        let max_rules = bounded(r, "crush max_rules", MAX_RULES as u64)?;
        let max_devices = r.i32()?;
        let mut map = Self { tunables: Tunables::LEGACY, max_devices, ..Self::default() };
        // Each slot takes four bytes at least; the readers stop at the end, so nothing is reserved up front.
        for _ in 0..max_buckets {
            map.buckets.push(decode_bucket(r)?);
        }
        for _ in 0..max_rules {
            map.rules.push(if r.u32()? == 0 { None } else { Some(Rule::decode(r)?) });
        }
        map.type_names = decode_names(r)?;
        map.item_names = decode_names(r)?;
        map.rule_names = decode_names(r)?;
        decode_tunables(&mut map.tunables, r)?;
        if !r.is_empty() {
            map.device_classes = Decode::decode(r)?;
            map.class_names = Decode::decode(r)?;
            map.class_buckets = Decode::decode(r)?;
        }
        if !r.is_empty() {
            decode_choose_args(&mut map, r)?;
        }
        map.validate().map_err(|e| e.as_decode_error())?;
        map.repair_choose_args();
        map.finalize();
        Ok(map)
    }
}

/// A u32 that says how many slots follow, each of four bytes or more.
fn bounded(r: &mut Reader, what: &'static str, cap: u64) -> Result<usize, DecodeError> {
    let claimed = u64::from(r.u32()?);
    let bound = cap.min(r.remaining() as u64 / 4);
    if claimed > bound {
        return Err(DecodeError::TooLarge { what, claimed, bound });
    }
    Ok(claimed as usize)
}

fn encode_bucket(b: &Bucket, w: &mut Writer) {
    let alg = b.alg() as u8;
    w.u32(u32::from(alg));
    w.i32(b.id);
    w.u16(b.type_id);
    w.u8(alg);
    w.u8(b.hash);
    w.u32(b.weight);
    b.items.encode(w);
    let pairs = |w: &mut Writer, a: &[u32], b: &[u32]| {
        a.iter().zip(b).for_each(|(a, b)| {
            w.u32(*a);
            w.u32(*b);
        });
    };
    match &b.data {
        BucketData::Uniform { item_weight } => w.u32(*item_weight),
        BucketData::List { item_weights, sum_weights } => pairs(w, item_weights, sum_weights),
        BucketData::Tree { node_weights } => {
            // One byte: trees above 64 items have no wire form and are refused by `validate`.
            w.u8(node_weights.len() as u8);
            node_weights.iter().for_each(|n| w.u32(*n));
        }
        BucketData::Straw { item_weights, straws } => pairs(w, item_weights, straws),
        BucketData::Straw2 { item_weights } => item_weights.iter().for_each(|n| w.u32(*n)),
    }
}

fn decode_bucket(r: &mut Reader) -> Result<Option<Bucket>, DecodeError> {
    let slot_alg = r.u32()?;
    if slot_alg == 0 {
        return Ok(None);
    }
    let invalid = |value: u32| DecodeError::Invalid { what: "bucket algorithm", value: u64::from(value) };
    let alg = Alg::from_wire(slot_alg).ok_or_else(|| invalid(slot_alg))?;
    let id = r.i32()?;
    let type_id = r.u16()?;
    let inner_alg = u32::from(r.u8()?);
    if inner_alg != slot_alg {
        return Err(invalid(inner_alg));
    }
    let hash = r.u8()?;
    let weight = r.u32()?;
    let items = Vec::<i32>::decode(r)?;
    let n = items.len();
    let data = match alg {
        Alg::Uniform => BucketData::Uniform { item_weight: r.u32()? },
        Alg::List => {
            let (item_weights, sum_weights) = decode_pairs(r, n)?;
            BucketData::List { item_weights, sum_weights }
        }
        Alg::Tree => {
            let nodes = usize::from(r.u8()?);
            BucketData::Tree { node_weights: decode_words(r, nodes)? }
        }
        Alg::Straw => {
            let (item_weights, straws) = decode_pairs(r, n)?;
            BucketData::Straw { item_weights, straws }
        }
        Alg::Straw2 => BucketData::Straw2 { item_weights: decode_words(r, n)? },
    };
    Ok(Some(Bucket { id, type_id, hash, weight, items, data }))
}

fn decode_words(r: &mut Reader, n: usize) -> Result<Vec<u32>, DecodeError> {
    (0..n).map(|_| r.u32()).collect()
}

fn decode_pairs(r: &mut Reader, n: usize) -> Result<(Vec<u32>, Vec<u32>), DecodeError> {
    let mut pairs = (Vec::new(), Vec::new());
    for _ in 0..n {
        pairs.0.push(r.u32()?);
        pairs.1.push(r.u32()?);
    }
    Ok(pairs)
}

impl Encode for Rule {
    fn encode(&self, w: &mut Writer) {
        w.count(self.steps.len());
        w.u8(self.ruleset);
        w.u8(self.rule_type);
        w.u8(self.min_size);
        w.u8(self.max_size);
        for s in &self.steps {
            w.u32(s.op);
            w.i32(s.arg1);
            w.i32(s.arg2);
        }
    }
}

impl Decode for Rule {
    const MIN_SIZE: usize = 8;

    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        let len = r.count("rule steps", 12)?;
        let (ruleset, rule_type, min_size, max_size) = (r.u8()?, r.u8()?, r.u8()?, r.u8()?);
        let steps =
            (0..len).map(|_| Ok(Step::new(r.u32()?, r.i32()?, r.i32()?))).collect::<Result<_, _>>()?;
        Ok(Self { ruleset, rule_type, min_size, max_size, steps })
    }
}

/// Names by id. Old writers put 64-bit ids: since no name is empty, a zero length is the upper half of such an id.
fn decode_names(r: &mut Reader) -> Result<BTreeMap<i32, String>, DecodeError> {
    let n = r.count("crush names", 8)?;
    let mut names = BTreeMap::new();
    for _ in 0..n {
        let id = r.i32()?;
        let mut len = r.u32()?;
        if len == 0 {
            len = r.u32()?;
        }
        let raw = r.raw(len as usize)?;
        let name = std::str::from_utf8(&raw).map_err(|_| DecodeError::NotUtf8 { what: "crush name" })?;
        names.insert(id, name.to_owned());
    }
    Ok(names)
}

fn encode_tunables(t: &Tunables, w: &mut Writer) {
    w.u32(t.choose_local_tries);
    w.u32(t.choose_local_fallback_tries);
    w.u32(t.choose_total_tries);
    w.u32(t.chooseleaf_descend_once);
    w.u8(t.chooseleaf_vary_r);
    w.u8(t.straw_calc_version);
    w.u32(t.allowed_bucket_algs);
    w.u8(t.chooseleaf_stable);
}

fn decode_tunables(t: &mut Tunables, r: &mut Reader) -> Result<(), DecodeError> {
    if !r.is_empty() {
        t.choose_local_tries = r.u32()?;
        t.choose_local_fallback_tries = r.u32()?;
        t.choose_total_tries = r.u32()?;
    }
    if !r.is_empty() {
        t.chooseleaf_descend_once = r.u32()?;
    }
    if !r.is_empty() {
        t.chooseleaf_vary_r = r.u8()?;
    }
    if !r.is_empty() {
        t.straw_calc_version = r.u8()?;
    }
    if !r.is_empty() {
        t.allowed_bucket_algs = r.u32()?;
    }
    if !r.is_empty() {
        t.chooseleaf_stable = r.u8()?;
    }
    Ok(())
}

impl Encode for ChooseArgMap {
    fn encode(&self, w: &mut Writer) {
        let used = || self.args.iter().enumerate().filter(|(_, a)| !a.is_empty());
        w.count(used().count());
        for (index, arg) in used() {
            w.count(index);
            arg.weight_sets.encode(w);
            arg.ids.encode(w);
        }
    }
}

fn decode_choose_args(map: &mut CrushMap, r: &mut Reader) -> Result<(), DecodeError> {
    let slots = map.buckets.len();
    let sets = r.count("choose_args", 12)?;
    // Each set holds a slot per bucket, so a few bytes could ask for a lot: bound the product, not only the count.
    let mut budget = MAX_CHOOSE_ARG_SLOTS;
    for _ in 0..sets {
        let id = r.i64()?;
        let n = r.count("choose_args buckets", 12)?;
        budget = budget.checked_sub(slots).ok_or(DecodeError::TooLarge {
            what: "choose_args",
            claimed: (sets as u64).saturating_mul(slots as u64),
            bound: MAX_CHOOSE_ARG_SLOTS as u64,
        })?;
        let mut args = vec![ChooseArg::default(); slots];
        for _ in 0..n {
            let index = r.u32()?;
            let slot = args
                .get_mut(index as usize)
                .ok_or(DecodeError::Invalid { what: "choose_args bucket", value: u64::from(index) })?;
            *slot = ChooseArg { weight_sets: Decode::decode(r)?, ids: Decode::decode(r)? };
        }
        map.choose_args.insert(id, ChooseArgMap { args });
    }
    Ok(())
}

/// Weight sets times buckets that a decoded map may have: 48 bytes each.
const MAX_CHOOSE_ARG_SLOTS: usize = 16 << 20;

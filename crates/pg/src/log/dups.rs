//! Dups, packed: a PG keeps thousands of them, an OSD hundreds of thousands.
//!
//! Invariants:
//! 1. Versions strictly rise.
//! 2. `returns` has the results of exactly those records that say so.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use types::{EntityName, Epoch, Eversion, ReqId};

use super::by_request::ByRequest;
use crate::entry::{DupEntry, OpReturn};

/// The queue grows by so many records: doubling would leave half of the memory of an OSD's dups unused.
const STEP: usize = 128;

/// A dup but for the results of its operations, which few requests ask for.
#[derive(Debug, Clone, Copy)]
struct Packed {
    version: u64,
    user_version: u64,
    tid: u64,
    client: i64,
    epoch: u32,
    inc: i32,
    return_code: i32,
    client_kind: u8,
    /// Stored under a key of its own, not as the entry that it was.
    apart: bool,
    has_returns: bool,
}

const _: () = assert!(size_of::<Packed>() == 48);

impl Packed {
    fn version(&self) -> Eversion {
        Eversion::new(Epoch(self.epoch), self.version)
    }

    fn reqid(&self) -> ReqId {
        let name = EntityName { kind: self.client_kind, num: self.client };
        ReqId { name, tid: self.tid, inc: self.inc }
    }
}

/// See the module's invariants.
#[derive(Debug, Clone, Default)]
pub(super) struct Dups {
    records: VecDeque<Packed>,
    returns: BTreeMap<Eversion, Vec<OpReturn>>,
    by_request: ByRequest,
}

impl Dups {
    /// These, in any order; of several with one version the first. `apart` says how each is stored.
    pub fn from_unsorted(dups: impl IntoIterator<Item = (DupEntry, bool)>) -> Self {
        let mut all = Self::default();
        all.merge(dups);
        all
    }

    /// Puts more between them.
    pub fn merge(&mut self, more: impl IntoIterator<Item = (DupEntry, bool)>) {
        for (dup, apart) in more {
            let packed = self.pack(dup, apart);
            self.records.push_back(packed);
        }
        self.records.make_contiguous().sort_by_key(Packed::version);
        let mut last = None;
        self.records.retain(|p| last.replace(p.version()) != Some(p.version()));
        if !self.returns.is_empty() {
            let with = self.records.iter().filter(|p| p.has_returns).map(Packed::version);
            let with: BTreeSet<Eversion> = with.collect();
            self.returns.retain(|version, _| with.contains(version));
        }
        self.records.shrink_to_fit();
        self.rebuild();
    }

    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Bytes of memory, about.
    pub fn memory_bytes(&self) -> usize {
        let one = |r: &Vec<OpReturn>| {
            size_of::<(Eversion, Vec<OpReturn>)>()
                + r.capacity() * size_of::<OpReturn>()
                + r.iter().map(|r| r.data.len()).sum::<usize>()
        };
        self.records.capacity() * size_of::<Packed>()
            + self.by_request.memory_bytes()
            + self.returns.values().map(one).sum::<usize>()
    }

    /// The same without kept results.
    pub fn about_bytes(&self) -> usize {
        self.records.capacity() * size_of::<Packed>() + self.by_request.memory_bytes()
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = DupEntry> {
        self.records.iter().map(|p| self.unpack(p))
    }

    pub fn versions(&self) -> impl DoubleEndedIterator<Item = Eversion> {
        self.records.iter().map(Packed::version)
    }

    pub fn find(&self, reqid: &ReqId) -> Option<DupEntry> {
        let place = self.by_request.find(reqid, |at| self.records.get(at).map(Packed::reqid))?;
        self.records.get(place).map(|p| self.unpack(p))
    }

    /// Appends the dup of an entry, which is stored as that entry; it must be newer than all others.
    pub fn push(&mut self, dup: DupEntry) {
        if self.records.len() == self.records.capacity() {
            self.records.reserve_exact(STEP);
        }
        let (reqid, place, packed) = (dup.reqid, self.records.len(), self.pack(dup, false));
        self.records.push_back(packed);
        self.by_request.put(&reqid, place, |at| self.records.get(at).map(Packed::reqid));
    }

    /// Takes the oldest if its counter is below `floor`: its version, and whether it is stored apart.
    pub fn pop_below(&mut self, floor: u64) -> Option<(Eversion, bool)> {
        let p = *self.records.front().filter(|p| p.version < floor)?;
        self.records.pop_front();
        self.by_request.front_taken(&p.reqid());
        if p.has_returns {
            self.returns.remove(&p.version());
        }
        Some((p.version(), p.apart))
    }

    /// Takes those above `tail`; returns the versions of those that are not stored apart.
    pub fn truncate_above(&mut self, tail: Eversion) -> Vec<Eversion> {
        let keep = self.records.partition_point(|p| p.version() <= tail);
        let gone: Vec<Packed> = self.records.drain(keep..).collect();
        gone.iter().filter(|p| p.has_returns).for_each(|p| drop(self.returns.remove(&p.version())));
        self.rebuild();
        gone.iter().filter(|p| !p.apart).map(Packed::version).collect()
    }

    /// The store has been given each under a key of its own.
    pub fn all_apart(&mut self) {
        self.records.iter_mut().for_each(|p| p.apart = true);
    }

    fn pack(&mut self, dup: DupEntry, apart: bool) -> Packed {
        let has_returns = !dup.op_returns.is_empty();
        if has_returns {
            self.returns.entry(dup.version).or_insert(dup.op_returns);
        }
        Packed {
            version: dup.version.version,
            user_version: dup.user_version,
            tid: dup.reqid.tid,
            client: dup.reqid.name.num,
            epoch: dup.version.epoch.0,
            inc: dup.reqid.inc,
            return_code: dup.return_code,
            client_kind: dup.reqid.name.kind,
            apart,
            has_returns,
        }
    }

    fn unpack(&self, p: &Packed) -> DupEntry {
        let returns = if p.has_returns { self.returns.get(&p.version()).cloned() } else { None };
        DupEntry {
            reqid: p.reqid(),
            version: p.version(),
            user_version: p.user_version,
            return_code: p.return_code,
            op_returns: returns.unwrap_or_default(),
        }
    }

    fn rebuild(&mut self) {
        self.by_request.clear();
        for (place, p) in self.records.iter().enumerate() {
            self.by_request.put(&p.reqid(), place, |at| self.records.get(at).map(Packed::reqid));
        }
    }

    /// Checks the invariants that the module states.
    pub fn assert_invariants(&self) {
        let mut last = None;
        let mut with = self.returns.keys();
        for p in &self.records {
            let version = p.version();
            assert!(last < Some(version), "1: {last:?} before {version}");
            assert!(!p.has_returns || with.next() == Some(&version), "2: {version}");
            last = Some(version);
        }
        assert!(with.next().is_none(), "2: results of nothing");
        assert!(self.by_request.len() <= self.records.len(), "index too large");
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use testkit::Rng;

    use super::*;

    fn dup(counter: u64, tid: u64, rng: &mut Rng) -> DupEntry {
        let data = Bytes::from_static(b"answer");
        DupEntry {
            reqid: ReqId { name: EntityName::client(4000 + (tid % 3) as i64), tid, inc: (tid % 2) as i32 },
            version: Eversion::new(Epoch(1 + (counter / 100) as u32), counter),
            user_version: rng.below(1 << 20),
            return_code: -(rng.below(3) as i32),
            op_returns: vec![OpReturn { rval: 1, data }; usize::from(rng.below(4) == 0)],
        }
    }

    /// The newest of the request's dups in a plain list.
    fn newest<'a>(model: &'a [(DupEntry, bool)], reqid: &ReqId) -> Option<&'a DupEntry> {
        model.iter().rev().map(|(d, _)| d).find(|d| d.reqid == *reqid)
    }

    #[test]
    fn packed_dups_answer_as_a_plain_list_does() {
        for seed in 0..20 {
            let rng = &mut Rng::new(seed);
            let (mut packed, mut model) = (Dups::default(), Vec::<(DupEntry, bool)>::new());
            let mut counter = 0u64;
            for _ in 0..300 {
                match rng.below(12) {
                    0 => {
                        let floor = counter.saturating_sub(20 + rng.below(40));
                        while let Some(got) = packed.pop_below(floor) {
                            let (d, apart) = model.remove(0);
                            assert_eq!(got, (d.version, apart));
                        }
                        assert!(model.first().is_none_or(|(d, _)| d.version.version >= floor));
                    }
                    1 if !model.is_empty() => {
                        let keep = rng.below(model.len() as u64) as usize;
                        let gone: Vec<_> = model.drain(keep + 1..).collect();
                        let gone = gone.iter().filter(|(_, apart)| !apart).map(|(d, _)| d.version);
                        assert_eq!(packed.truncate_above(model[keep].0.version), gone.collect::<Vec<_>>());
                    }
                    2 => {
                        // Of a peer, some of them known.
                        let known = model.last().map(|(d, _)| (d.clone(), true));
                        counter += 3;
                        let new = [(dup(counter, counter, rng), true), (dup(counter - 1, 7, rng), true)];
                        packed.merge(known.into_iter().chain(new.clone()));
                        let [b, a] = new;
                        model.extend([a, b]);
                    }
                    3 => {
                        packed.all_apart();
                        model.iter_mut().for_each(|(_, apart)| *apart = true);
                    }
                    _ => {
                        counter += 1;
                        // Some requests run twice.
                        let d = dup(counter, rng.below(60), rng);
                        packed.push(d.clone());
                        model.push((d, false));
                    }
                }
                packed.assert_invariants();
                assert!(packed.iter().eq(model.iter().map(|(d, _)| d.clone())), "seed {seed}");
                let reqid = dup(1, rng.below(60), rng).reqid;
                assert_eq!(packed.find(&reqid).as_ref(), newest(&model, &reqid), "seed {seed}");
                assert_eq!(packed.len(), model.len());
            }
        }
    }

    #[test]
    fn a_dup_takes_sixty_bytes_with_its_place_in_the_index() {
        let rng = &mut Rng::new(1);
        let mut all = Dups::default();
        let plain = |n: u64, rng: &mut Rng| DupEntry { op_returns: Vec::new(), ..dup(n, n, rng) };
        (1..=3_000).for_each(|n| all.push(plain(n, rng)));
        let each = all.memory_bytes() / all.len();
        assert!((48..=60).contains(&each), "{each} bytes");
    }
}

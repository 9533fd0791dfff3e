//! Random requests against a naive model: what each operation answers, what the object is afterwards, and that a failed
//! request changes nothing.

use std::collections::BTreeMap;

use bytes::Bytes;
use codec::Decode;
use messages::osd::{Extent, OmapValsResponse, Op, OsdOp, op_flags};
use testkit::Rng;
use types::Errno;

use crate::bench::{Bench, Request};

/// Bytes that objects stay below, so that ranges overlap often and cross blocks.
const SPAN: u64 = 12_000;

#[derive(Debug, Clone, Default, PartialEq)]
struct Object {
    data: Vec<u8>,
    attrs: BTreeMap<String, Bytes>,
    omap: BTreeMap<Bytes, Bytes>,
    header: Bytes,
}

/// One object in the middle of a request: as it was, and as it is going to be.
struct Step {
    before: Option<Object>,
    now: Option<Object>,
}

const NONE: i32 = -2;

impl Step {
    fn made(&mut self) -> &mut Object {
        self.now.get_or_insert_default()
    }

    /// The operation's result; what it reads is what was there before the request.
    fn apply(&mut self, op: &Op, excl: bool) -> Result<i32, i32> {
        match op {
            Op::Create if excl && self.now.is_some() => return Err(Errno::EEXIST.neg()),
            Op::Create => {
                self.made();
            }
            Op::Delete => {
                self.now.take().ok_or(NONE)?;
            }
            Op::Stat => {
                self.now.as_ref().ok_or(NONE)?;
            }
            Op::Write { extent, data } => {
                let (o, at) = (self.made(), extent.offset as usize);
                o.data.resize(o.data.len().max(at + data.len()), 0);
                o.data[at..at + data.len()].copy_from_slice(data);
            }
            Op::WriteFull { data, .. } => self.made().data = data.to_vec(),
            Op::Append { data, .. } => self.made().data.extend_from_slice(data),
            Op::Truncate(e) => {
                if let Some(o) = &mut self.now {
                    o.data.resize(e.offset as usize, 0);
                }
            }
            Op::Zero(e) => {
                if let Some(o) = &mut self.now {
                    let (from, to) = (e.offset as usize, (e.offset + e.length) as usize);
                    if from < o.data.len() && to >= o.data.len() {
                        o.data.truncate(from);
                    } else if to < o.data.len() {
                        o.data[from..to].fill(0);
                    }
                }
            }
            Op::SetXattr { name, value } => {
                self.made().attrs.insert(name.clone(), value.clone());
            }
            Op::RmXattr { name } => {
                self.now.as_mut().ok_or(NONE)?.attrs.remove(name);
            }
            Op::CmpXattr { name, value, .. } => {
                let stored = self.before.as_ref().ok_or(NONE)?.attrs.get(name);
                let equal = stored.map_or(value.is_empty(), |v| v == value);
                return if equal { Ok(1) } else { Err(Errno::ECANCELED.neg()) };
            }
            _ => return self.apply_omap(op),
        }
        Ok(0)
    }

    fn apply_omap(&mut self, op: &Op) -> Result<i32, i32> {
        match op {
            Op::OmapSetVals { vals } => self.made().omap.extend(vals.clone()),
            Op::OmapSetHeader { header } => self.made().header = header.clone(),
            Op::OmapClear => {
                let o = self.now.as_mut().ok_or(NONE)?;
                o.omap.clear();
                o.header = Bytes::new();
            }
            Op::OmapRmKeys { keys } => self.now.as_mut().ok_or(NONE)?.omap.retain(|k, _| !keys.contains(k)),
            Op::OmapRmKeyRange { begin, end } => {
                self.now.as_mut().ok_or(NONE)?.omap.retain(|k, _| k < begin || k >= end);
            }
            other => panic!("{other:?}"),
        }
        Ok(0)
    }
}

/// Runs a whole request on the model; returns its result and each operation's.
fn run_model(object: &mut Option<Object>, ops: &[OsdOp]) -> (i32, Vec<i32>) {
    let mut step = Step { before: object.clone(), now: object.clone() };
    let mut rvals = vec![0; ops.len()];
    let mut last = 0;
    for (op, rval) in ops.iter().zip(&mut rvals) {
        let parsed = op.parse().unwrap();
        // These leave the result of the operation before them.
        let size = step.now.as_ref().map(|o| o.data.len() as u64);
        let keeps = match &parsed {
            Op::Stat => true,
            Op::Zero(e) => size.is_some_and(|size| e.offset >= size),
            _ => false,
        };
        match step.apply(&parsed, op.flags & op_flags::EXCL != 0) {
            Ok(r) => last = if keeps { last } else { r },
            Err(e) => last = e,
        }
        *rval = last;
        if last < 0 && op.flags & op_flags::FAILOK == 0 {
            return (last, rvals);
        }
        last = last.max(0);
    }
    *object = step.now;
    (last, rvals)
}

fn random_op(rng: &mut Rng) -> Op {
    let key = |rng: &mut Rng| Bytes::from((*rng.pick(&["a", "b", "c", "d"])).to_owned());
    let name = |rng: &mut Rng| (*rng.pick(&["x", "y", "z"])).to_owned();
    let value = |rng: &mut Rng| Bytes::from((*rng.pick(&["", "1", "22"])).to_owned());
    let data = |rng: &mut Rng| {
        let len = if rng.one_in(3) { rng.below(6000) } else { rng.below(10) };
        Bytes::from(rng.bytes(len as usize))
    };
    let at = |rng: &mut Rng| if rng.one_in(2) { rng.below(SPAN) } else { rng.below(3) * 4096 };
    match rng.below(17) {
        0..3 => {
            let data = data(rng);
            let data = if data.is_empty() { Bytes::from_static(b"1") } else { data };
            Op::Write { extent: Extent::new(at(rng), data.len() as u64), data }
        }
        3 => {
            let data = data(rng);
            Op::WriteFull { extent: Extent::new(0, data.len() as u64), data }
        }
        4 => {
            let data = data(rng);
            Op::Append { extent: Extent::new(0, data.len() as u64), data }
        }
        5 => Op::Truncate(Extent::new(at(rng), 0)),
        6 => Op::Zero(Extent::new(at(rng), 1 + rng.below(5000))),
        7 => Op::Create,
        8 => Op::Delete,
        9 => Op::Stat,
        10 => Op::SetXattr { name: name(rng), value: value(rng) },
        11 => Op::RmXattr { name: name(rng) },
        12 => Op::CmpXattr { name: name(rng), op: 1, mode: 1, value: value(rng) },
        13 => Op::OmapSetVals { vals: [(key(rng), value(rng)), (key(rng), value(rng))].into() },
        14 => Op::OmapRmKeys { keys: [key(rng)].into() },
        15 => Op::OmapRmKeyRange { begin: key(rng), end: key(rng) },
        _ if rng.one_in(2) => Op::OmapClear,
        _ => Op::OmapSetHeader { header: value(rng) },
    }
}

fn random_request(rng: &mut Rng) -> Request {
    let count = 1 + rng.below(4);
    let ops = (0..count).map(|_| {
        let mut op = OsdOp::from(random_op(rng));
        let excl = op.code == messages::osd::OpCode::CREATE && rng.one_in(2);
        op.flags = if rng.one_in(4) { op_flags::FAILOK } else { 0 } | if excl { op_flags::EXCL } else { 0 };
        op
    });
    let ops: Vec<OsdOp> = ops.collect();
    Request::new(["p", "q"][rng.below(2) as usize], ops)
}

/// Reads everything that clients can see of an object.
fn visible(b: &mut Bench, name: &str) -> Option<Object> {
    if b.op(name, Op::Stat).0 < 0 {
        return None;
    }
    let vals = Op::OmapGetVals { start_after: Bytes::new(), max: 100, prefix: Bytes::new() };
    Some(Object {
        data: b.op(name, Op::Read(Extent::default())).1.to_vec(),
        attrs: BTreeMap::from_bytes(b.op(name, Op::GetXattrs).1).unwrap(),
        omap: OmapValsResponse::from_bytes(b.op(name, vals).1).unwrap().vals,
        header: b.op(name, Op::OmapGetHeader).1,
    })
}

fn check_seed(seed: u64, requests: usize) {
    let rng = &mut Rng::new(seed);
    let mut b = Bench::new();
    let mut model: BTreeMap<String, Option<Object>> = BTreeMap::new();
    for i in 0..requests {
        let r = random_request(rng);
        let name = r.object.name.to_string();
        let object = model.entry(name.clone()).or_default();
        // A request of reads alone is refused before it runs when there is no object.
        let reads = r.ops.iter().all(|op| !op.code.is_write());
        let want = if reads && object.is_none() { (NONE, Vec::new()) } else { run_model(object, &r.ops) };
        let got = b.run(&r);
        let rvals: Vec<i32> = got.results.iter().map(|r| r.rval).collect();
        let at = format!("seed {seed} request {i}: {:?}", r.ops);
        if want.0 < 0 {
            assert_eq!((got.result, rvals), want, "{at}");
        } else {
            assert_eq!(rvals, want.1, "{at}");
        }
        assert_eq!(visible(&mut b, &name), *object, "{at}");
        let objects: Vec<&Object> = model.values().flatten().collect();
        let bytes: usize = objects.iter().map(|o| o.data.len()).sum();
        assert_eq!((b.sums.objects, b.sums.bytes), (objects.len() as i64, bytes as i64), "{at}");
    }
}

#[test]
fn random_requests_do_what_the_model_does() {
    for seed in 0..40 {
        check_seed(seed, 150);
    }
}

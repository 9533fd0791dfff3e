//! What clients ask: random requests with payloads of their own, in the form of operations, and replies read back.

use std::collections::BTreeMap;

use bytes::Bytes;
use codec::Decode;
use messages::osd::{Extent, OmapValsResponse, Op, OpResult, OsdOp, cmp_mode, op_flags};
use testkit::Rng;

use crate::history::{Call, Content, ENOENT, Outcome};
use crate::scenario::Options;

/// Appends stop here, so that an object's content stays small enough to be read often.
const APPEND_LIMIT: u64 = 40_000;

/// Bytes that no other request writes.
pub fn payload(unique: u64, len: usize) -> Bytes {
    let mut out = unique.to_le_bytes().to_vec();
    out.extend(Rng::new(unique).bytes(len.saturating_sub(8)));
    out.truncate(len.max(8));
    out.into()
}

fn key(r: &mut Rng) -> Bytes {
    Bytes::from(format!("k{}", r.below(4)))
}

/// A random request; `unique` is given to no other one.
pub fn random_call(r: &mut Rng, unique: u64, o: &Options) -> Call {
    let call = any_call(r, unique, o);
    if o.code.is_some() { without_omap(call, r, o) } else { call }
}

/// Erasure-coded pools have no omap: something else of the kind.
fn without_omap(call: Call, r: &mut Rng, o: &Options) -> Call {
    match call {
        Call::OmapSet { key, value } => Call::SetAttr { key, value },
        Call::OmapRemove { key } => Call::Write { offset: r.below(o.payload as u64 * 4), data: key },
        Call::Bundle { data, .. } => Call::WriteFull(data),
        call => call,
    }
}

fn any_call(r: &mut Rng, unique: u64, o: &Options) -> Call {
    let len = match r.below(40) {
        0 => 70_000 + r.below(60_000) as usize,
        1 => 4_096 * (1 + r.below(4) as usize),
        _ => 8 + r.below(o.payload as u64) as usize,
    };
    let value = || Bytes::copy_from_slice(&unique.to_le_bytes());
    match r.below(100) {
        0..=29 => Call::Read,
        30..=39 => Call::WriteFull(payload(unique, len)),
        40..=49 => {
            let offset = r.below(o.payload as u64 * 2);
            Call::Write { offset, data: payload(unique, len) }
        }
        50..=64 => Call::Append(payload(unique, 8 + (len % 200))),
        65..=69 => Call::Delete,
        70..=74 => Call::CreateExclusive,
        75..=81 => Call::OmapSet { key: key(r), value: value() },
        82..=84 => Call::OmapRemove { key: key(r) },
        85..=90 => Call::SetAttr { key: key(r), value: value() },
        91..=95 => Call::Bundle { data: payload(unique, len), key: key(r), value: value() },
        _ => {
            // Guess a value that may be there: one of a recent request.
            let guess = unique.saturating_sub(r.below(16));
            let guess = Bytes::copy_from_slice(&guess.to_le_bytes());
            Call::Guarded { key: key(r), value: guess, data: payload(unique, len) }
        }
    }
}

/// The operations of a request on a pool of these options.
pub fn operations(call: &Call, o: &Options) -> Vec<OsdOp> {
    let whole =
        |data: &Bytes| Op::WriteFull { extent: Extent::new(0, data.len() as u64), data: data.clone() };
    let name = |key: &Bytes| String::from_utf8_lossy(key).into_owned();
    let set_attr = |key: &Bytes, value: &Bytes| Op::SetXattr { name: name(key), value: value.clone() };
    let set_omap =
        |key: &Bytes, value: &Bytes| Op::OmapSetVals { vals: BTreeMap::from([(key.clone(), value.clone())]) };
    match call {
        Call::WriteFull(data) => vec![whole(data).into()],
        Call::Write { offset, data } => {
            vec![Op::Write { extent: Extent::new(*offset, data.len() as u64), data: data.clone() }.into()]
        }
        Call::Append(data) => {
            vec![Op::Append { extent: Extent::new(0, data.len() as u64), data: data.clone() }.into()]
        }
        Call::Delete => vec![Op::Delete.into()],
        Call::CreateExclusive => vec![OsdOp { flags: op_flags::EXCL, ..Op::Create.into() }],
        Call::OmapSet { key, value } => vec![set_omap(key, value).into()],
        Call::OmapRemove { key } => vec![Op::OmapRmKeys { keys: [key.clone()].into() }.into()],
        Call::SetAttr { key, value } => vec![set_attr(key, value).into()],
        Call::Bundle { data, key, value } => {
            vec![whole(data).into(), set_attr(key, value).into(), set_omap(key, value).into()]
        }
        Call::Guarded { key, value, data } => {
            let compare =
                Op::CmpXattr { name: name(key), op: 1, mode: cmp_mode::STRING, value: value.clone() };
            vec![compare.into(), whole(data).into()]
        }
        Call::Read if o.code.is_some() => vec![Op::Read(Extent::new(0, 0)).into(), Op::GetXattrs.into()],
        Call::Read => vec![
            Op::Read(Extent::new(0, 0)).into(),
            Op::OmapGetVals { start_after: Bytes::new(), max: 1_000, prefix: Bytes::new() }.into(),
            Op::GetXattrs.into(),
        ],
    }
}

/// Reads a reply; an error is something that no server may answer.
pub fn outcome(call: &Call, result: i32, ops: &[OpResult]) -> Result<Outcome, String> {
    if !call.is_read() {
        return Ok(Outcome::Done(result));
    }
    if result == ENOENT {
        return Ok(Outcome::Seen(None));
    }
    if result < 0 {
        return Err(format!("a read was answered with {result}"));
    }
    let (data, omap, attrs) = match ops {
        [data, omap, attrs] => {
            let omap = OmapValsResponse::from_bytes(omap.outdata.clone());
            (data, omap.map_err(|e| format!("omap: {e}"))?, attrs)
        }
        [data, attrs] => (data, OmapValsResponse::default(), attrs),
        _ => return Err(format!("a read was answered with {} parts", ops.len())),
    };
    let attrs = BTreeMap::from_bytes(attrs.outdata.clone()).map_err(|e| format!("attributes: {e}"))?;
    Ok(Outcome::Seen(Some(Content { data: data.outdata.clone(), omap: omap.vals, attrs })))
}

/// Whether a request would make the object larger than the run can carry.
pub fn too_large(call: &Call, size: u64) -> bool {
    matches!(call, Call::Append(_)) && size > APPEND_LIMIT
}

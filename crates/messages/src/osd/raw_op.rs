//! One operation as it travels: code, flags, a 28-byte argument whose meaning the code decides, and its bytes.

use bytes::Bytes;
use codec::{DecodeError, Reader, Writer};

use super::OpCode;

/// Length of the argument union of ceph_osd_op.
pub const ARG_LEN: usize = 28;
/// Bytes of a data segment that no operation has and that are kept for the sake of those that one has.
const UNUSED_BYTES: usize = 64 << 10;
/// Length of one operation in the front segment: code, flags, argument, length of its bytes.
const HEAD_LEN: usize = 2 + 4 + ARG_LEN + 4;

/// An operation of a request. Source: ceph_osd_op in src/include/rados.h, OSDOp in src/osd/osd_types.h.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct OsdOp {
    pub code: OpCode,
    /// `op_flags::*`.
    pub flags: u32,
    /// The argument union as it came.
    pub arg: [u8; ARG_LEN],
    /// The operation's part of the message's data segment, sharing its buffer.
    pub indata: Bytes,
}

/// An operation of a reply, with its own result and output.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct OpResult {
    pub code: OpCode,
    pub flags: u32,
    pub arg: [u8; ARG_LEN],
    /// 0 or more, or a negated errno.
    pub rval: i32,
    pub outdata: Bytes,
    /// What follows `outdata` in the output: of results that are sent, so that pieces of a long read are not
    /// copied into one. A result that came from the network has everything in `outdata`.
    pub more: Vec<Bytes>,
}

impl OpResult {
    /// Bytes of the output.
    pub fn output_len(&self) -> usize {
        self.output().map(Bytes::len).sum()
    }

    /// The output, in pieces.
    pub fn output(&self) -> impl Iterator<Item = &Bytes> {
        std::iter::once(&self.outdata).chain(&self.more)
    }

    /// The same with all of the output in `outdata`, as one that came from the network.
    pub fn joined(mut self) -> Self {
        if !self.more.is_empty() {
            self.outdata = self.output().flatten().copied().collect();
            self.more.clear();
        }
        self
    }
}

impl From<&OsdOp> for OpResult {
    /// The operation answered with nothing yet.
    fn from(op: &OsdOp) -> Self {
        Self { code: op.code, flags: op.flags, arg: op.arg, rval: 0, outdata: Bytes::new(), more: Vec::new() }
    }
}

impl std::fmt::Debug for OsdOp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.code)?;
        if self.code.uses_extent() {
            write!(f, " {}~{}", u64_at(&self.arg, 0), u64_at(&self.arg, 8))?;
        }
        write!(f, " in={}b", self.indata.len())
    }
}
impl std::fmt::Debug for OpResult {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} = {} out={}b", self.code, self.rval, self.output_len())
    }
}

/// What both forms have in the front segment.
struct Head {
    code: OpCode,
    flags: u32,
    arg: [u8; ARG_LEN],
    payload_len: usize,
}

fn encode_head(code: OpCode, flags: u32, arg: &[u8; ARG_LEN], payload_len: usize, w: &mut Writer) {
    w.u16(code.0);
    w.u32(flags);
    w.raw(arg);
    w.count(payload_len);
}

fn decode_head(r: &mut Reader) -> Result<Head, DecodeError> {
    Ok(Head { code: OpCode(r.u16()?), flags: r.u32()?, arg: r.array()?, payload_len: r.u32()? as usize })
}

fn bounded_count(claimed: usize, r: &Reader) -> Result<usize, DecodeError> {
    let bound = r.remaining() / HEAD_LEN;
    if claimed > bound {
        return Err(DecodeError::TooLarge { what: "ops", claimed: claimed as u64, bound: bound as u64 });
    }
    Ok(claimed)
}

/// Writes a request's operations: a u16 count and their heads.
pub(super) fn encode_ops(ops: &[OsdOp], w: &mut Writer) {
    assert!(ops.len() <= usize::from(u16::MAX), "{} operations have no wire form", ops.len());
    w.u16(ops.len() as u16);
    for op in ops {
        encode_head(op.code, op.flags, &op.arg, op.indata.len(), w);
    }
}

/// Reads a request's operations and cuts their bytes out of `data`.
pub(super) fn decode_ops(r: &mut Reader, data: &Bytes) -> Result<Vec<OsdOp>, DecodeError> {
    let n = usize::from(r.u16()?);
    let n = bounded_count(n, r)?;
    let mut data = Reader::new(data.clone());
    let mut ops = Vec::with_capacity(n);
    let mut used = 0usize;
    for _ in 0..n {
        let h = decode_head(r)?;
        used = used.saturating_add(h.payload_len);
        ops.push(OsdOp { code: h.code, flags: h.flags, arg: h.arg, indata: data.raw(h.payload_len)? });
    }
    if data.remaining() > used.saturating_add(UNUSED_BYTES) {
        // Each operation's bytes would keep all of the segment in memory.
        ops.iter_mut().for_each(|op: &mut OsdOp| op.indata = Bytes::copy_from_slice(&op.indata));
    }
    Ok(ops)
}

/// Writes a reply's operations: a u32 count and their heads. Results and bytes travel elsewhere.
pub(super) fn encode_result_heads(ops: &[OpResult], w: &mut Writer) {
    w.count(ops.len());
    for op in ops {
        encode_head(op.code, op.flags, &op.arg, op.output_len(), w);
    }
}

/// Reads a reply's operations and cuts their output out of `data`; results come later.
pub(super) fn decode_result_heads(r: &mut Reader, data: &Bytes) -> Result<Vec<OpResult>, DecodeError> {
    let n = r.u32()? as usize;
    let n = bounded_count(n, r)?;
    let mut data = Reader::new(data.clone());
    (0..n)
        .map(|_| {
            let h = decode_head(r)?;
            let outdata = data.raw(h.payload_len)?;
            Ok(OpResult { code: h.code, flags: h.flags, arg: h.arg, rval: 0, outdata, more: Vec::new() })
        })
        .collect()
}

/// `N` bytes of an argument; the caller names constant offsets inside it.
fn bytes_at<const N: usize>(arg: &[u8; ARG_LEN], at: usize) -> [u8; N] {
    let mut out = [0; N];
    if let Some(src) = arg.get(at..at + N) {
        out.copy_from_slice(src);
    }
    out
}
pub(super) fn u64_at(arg: &[u8; ARG_LEN], at: usize) -> u64 {
    u64::from_le_bytes(bytes_at(arg, at))
}
pub(super) fn u32_at(arg: &[u8; ARG_LEN], at: usize) -> u32 {
    u32::from_le_bytes(bytes_at(arg, at))
}
pub(super) fn u8_at(arg: &[u8; ARG_LEN], at: usize) -> u8 {
    u8::from_le_bytes(bytes_at(arg, at))
}

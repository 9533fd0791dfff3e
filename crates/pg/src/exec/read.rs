//! Operations that read an object's data and its size.
//!
//! They see the data as it was before the request, and the size as the operations before them leave it: Ceph reads
//! from the store, where the request's own transaction has not arrived yet.

use std::ops::Range;

use bytes::Bytes;
use codec::{Encode, Writer, crc32c};
use messages::osd::{Extent, Op, OpCode, OsdOp, SparseReadResponse, StatResponse, checksum_type};
use store::Found;
use types::{Errno, HObject, SnapId};

use super::answer::{Answer, OpError, Outcome};
use super::pause::bytes_of;
use super::scratch::Scratch;
use super::work::ENTRY;
use super::{ExecEnv, ExecStop, xxhash};
use crate::coded::Needed;
use crate::object::{ObjectInfo, ObjectState};

/// A request that reads more than this is to be looked at before it gathers: it may ask for too much.
const AT_ONCE: u64 = 64 << 10;

/// Errors of `cmpext` say where the first difference is: this plus the index. Source: MAX_ERRNO in src/include/rados.h.
const MAX_ERRNO: i32 = 4095;

/// A range of bytes, short at the end; length 0 means to the end. Source: PrimaryLogPG::do_read.
pub(super) fn read(env: &mut ExecEnv<'_>, s: &mut Scratch<'_>, extent: Extent) -> Outcome {
    let e = extent.normalised();
    let length = readable(s, e);
    s.work.may_answer(length)?;
    // As much as the slice has room for: before the work of it is taken.
    let piece = s.piece(length);
    s.work.spend(length)?;
    let answer = Answer::pieces(data(env, s, &[(e.offset, length)], piece)?);
    s.count_read(answer.len());
    Ok(answer)
}

/// The bytes of the head that a request asks for which does nothing but read them: what is to be gathered is
/// known before it runs. `None` where a run is to tell.
pub(crate) fn of_head(state: &ObjectState, snap: SnapId, ops: &[OsdOp]) -> Option<Range<u64>> {
    let [op] = ops else { return None };
    if snap != SnapId::HEAD || !state.is_present() || op.code != OpCode::READ {
        return None;
    }
    let Ok(Op::Read(e)) = op.parse() else { return None };
    let e = e.normalised();
    let length = readable_of(&state.info, e);
    (1..=AT_ONCE).contains(&length).then(|| e.offset..e.offset.saturating_add(length))
}

/// Bytes that a read of the range finds.
fn readable(s: &Scratch<'_>, e: Extent) -> u64 {
    readable_of(s.info(), e)
}

fn readable_of(info: &ObjectInfo, e: Extent) -> u64 {
    let mut size = info.size;
    let end = e.offset.wrapping_add(e.length);
    if info.truncate_seq < e.truncate_seq && end > e.truncate_size && size > e.truncate_size {
        size = e.truncate_size;
    }
    let wanted = if e.length == 0 { size } else { e.length };
    wanted.min(size.saturating_sub(e.offset))
}

/// The bytes of some ranges, one after the other, of which `piece` bytes are to be read now; those before
/// were read in earlier slices. `SliceOver` when more are to come, `OnDevice` when the device has to read
/// first.
fn data(
    env: &mut ExecEnv<'_>,
    s: &mut Scratch<'_>,
    ranges: &[(u64, u64)],
    piece: u64,
) -> Result<Vec<Bytes>, OpError> {
    let mut left = piece;
    loop {
        let got = bytes_of(&s.got);
        let Some((offset, rest)) = behind(ranges, got) else { return Ok(std::mem::take(&mut s.got)) };
        let (data, asked) = match s.fetched.take() {
            Some(fetched) => (fetched.data, fetched.asked),
            None if left == 0 => return Err(OpError::SliceOver),
            None => (read_now(env, s, offset, rest.min(left))?, rest.min(left)),
        };
        let is_short = (data.len() as u64) < asked;
        s.got.push(data);
        // What is shorter than it says is not waited for.
        if is_short {
            return Ok(std::mem::take(&mut s.got));
        }
        left = left.saturating_sub(asked);
    }
}

/// Where to go on in ranges of which so many bytes were read, and how long the range there goes on.
fn behind(ranges: &[(u64, u64)], got: u64) -> Option<(u64, u64)> {
    let mut done = got;
    for (offset, length) in ranges {
        match length.checked_sub(done).filter(|rest| *rest > 0) {
            Some(rest) => return Some((offset + done, rest)),
            None => done -= length,
        }
    }
    None
}

/// What the store has of a range; `OnDevice` where the device must be waited for and the request can go on
/// later.
fn read_now(env: &mut ExecEnv<'_>, s: &Scratch<'_>, offset: u64, length: u64) -> Result<Bytes, OpError> {
    if length == 0 {
        return Ok(Bytes::new());
    }
    if env.gathered.is_some() {
        return gathered(env, &s.key.object, offset, length);
    }
    if !s.may_wait() {
        return Ok(env.store.read(&s.key, offset, length)?);
    }
    match env.store.read_at_once(&s.key, offset, length)? {
        Found::Data(data) => Ok(data),
        Found::OnDevice(plan) => Err(OpError::OnDevice(plan)),
    }
}

/// What shards have of a range; they are asked when they have not been.
pub(super) fn gathered(
    env: &ExecEnv<'_>,
    object: &HObject,
    offset: u64,
    length: u64,
) -> Result<Bytes, OpError> {
    let range = offset..offset.saturating_add(length);
    let found = env.gathered.and_then(|gathered| gathered.get(object, &range));
    let needed = || ExecStop::Needs(vec![Needed { object: object.clone(), range: range.clone() }]);
    found.ok_or_else(|| needed().into())
}

/// Refuses a request that only reads and whose answers are known to be too much, before it reads any of them.
/// A single operation refuses for itself.
pub(super) fn refuse_too_much(s: &Scratch<'_>, ops: &[OsdOp]) -> Result<(), ExecStop> {
    if ops.len() < 2 {
        return Ok(());
    }
    let bytes = |op: &OsdOp| match op.parse() {
        Ok(Op::Read(e) | Op::SyncRead(e)) => readable(s, e.normalised()),
        _ => 0,
    };
    let reads = ops.iter().filter(|op| matches!(op.code, OpCode::READ | OpCode::SYNC_READ));
    s.work.may_answer(reads.map(bytes).fold(0, u64::saturating_add))
}

/// The extents that hold data, and their bytes. Source: PrimaryLogPG::do_sparse_read.
pub(super) fn sparse_read(env: &mut ExecEnv<'_>, s: &mut Scratch<'_>, extent: Extent) -> Outcome {
    let e = extent.normalised();
    if e.truncate_seq != 0 {
        return Err(Errno::EINVAL.into());
    }
    let extents = match env.gathered {
        None => env.store.extents(&s.key, e.offset, e.length)?,
        // Where shards have holes is not known. Source: PrimaryLogPG::do_sparse_read.
        Some(_) => Vec::from([(e.offset, readable(s, e))]),
    };
    let length = extents.iter().fold(0u64, |sum, (_, l)| sum.saturating_add(*l));
    s.work.may_answer(length)?;
    let piece = s.piece(length);
    s.work.spend(length.saturating_add(extents.len() as u64 * ENTRY))?;
    let data = Answer::pieces(data(env, s, &extents, piece)?).joined();
    s.count_read(data.len());
    Ok(Answer::data(SparseReadResponse { extents: extents.into_iter().collect(), data }.to_bytes()))
}

/// The extents alone.
pub(super) fn map_extents(env: &mut ExecEnv<'_>, s: &mut Scratch<'_>, extent: Extent) -> Outcome {
    if env.gathered.is_some() {
        return Err(Errno::EOPNOTSUPP.into());
    }
    let found = env.store.extents(&s.key, extent.offset, extent.length)?;
    s.work.spend(found.len() as u64 * ENTRY)?;
    s.delta.reads += 1;
    Ok(Answer::kept(found.to_bytes()))
}

/// Size and mtime.
pub(super) fn stat(s: &mut Scratch<'_>) -> Outcome {
    s.delta.reads += 1;
    if !s.present() {
        return Err(Errno::ENOENT.into());
    }
    let answer = StatResponse { size: s.info().size, mtime: s.info().mtime };
    Ok(Answer::kept(answer.to_bytes()))
}

/// The object's version is the client's.
pub(super) fn assert_version(s: &Scratch<'_>, version: u64) -> Outcome {
    let ours = s.info().user_version;
    match version.cmp(&ours) {
        _ if version == 0 => Err(Errno::EINVAL.into()),
        std::cmp::Ordering::Less => Err(Errno::ERANGE.into()),
        std::cmp::Ordering::Greater => Err(Errno::EOVERFLOW.into()),
        std::cmp::Ordering::Equal => Ok(Answer::kept(Bytes::new())),
    }
}

/// Compares data with what the client thinks it is; what is beyond the end counts as zeros. Source: do_extent_cmp.
pub(super) fn compare_extent(
    env: &mut ExecEnv<'_>,
    s: &mut Scratch<'_>,
    extent: Extent,
    expected: &Bytes,
) -> Outcome {
    let mut e = extent.normalised();
    let info = s.info();
    let truncated = info.truncate_seq < e.truncate_seq && e.offset.wrapping_add(e.length) > e.truncate_size;
    let size = if truncated { e.truncate_size } else { info.size };
    e.length = e.length.min(size.saturating_sub(e.offset));
    let data = if e.length == 0 || !s.before.is_present() { Bytes::new() } else { read(env, s, e)?.joined() };
    let stored = data.iter().copied().chain(std::iter::repeat(0));
    match expected.iter().zip(stored).position(|(a, b)| *a != b) {
        None => Ok(Answer::done()),
        Some(at) => Err(Errno(MAX_ERRNO.saturating_add(at as i32)).into()),
    }
}

/// Checksums of the chunks of a range. Source: PrimaryLogPG::do_checksum, finish_checksum.
pub(super) struct ChecksumArgs<'a> {
    pub offset: u64,
    pub length: u64,
    /// 0 takes the range as one chunk.
    pub chunk_size: u32,
    /// `checksum_type::*`.
    pub kind: u8,
    /// The start value, and possibly more behind it.
    pub init: &'a Bytes,
}

pub(super) fn checksum(env: &mut ExecEnv<'_>, s: &mut Scratch<'_>, args: &ChecksumArgs<'_>) -> Outcome {
    let chunk = u64::from(args.chunk_size);
    let size = s.info().size;
    let mut length = args.length;
    if chunk > 0 && (length == 0 || length % chunk != 0) {
        return Err(Errno::EINVAL.into());
    }
    if args.offset == 0 && length == 0 {
        length = size;
    } else if args.offset >= size {
        return Ok(Answer::done());
    } else if args.offset.wrapping_add(length) > size {
        length = size - args.offset;
        if chunk > 0 && length % chunk != 0 {
            return Err(Errno::EINVAL.into());
        }
    }
    let width = match args.kind {
        checksum_type::XXHASH32 | checksum_type::CRC32C => 4,
        checksum_type::XXHASH64 => 8,
        _ => return Err(Errno::EINVAL.into()),
    };
    let init = args.init.get(..width).ok_or(Errno::EINVAL)?;
    // Chunks may be as small as a byte, and each has its checksum.
    s.work.spend(length.checked_div(chunk).unwrap_or(1).saturating_mul(ENTRY))?;
    let data =
        if length > 0 { read(env, s, Extent::new(args.offset, length))?.joined() } else { Bytes::new() };
    if length > 0 && data.len() as u64 != length {
        return Err(Errno::EINVAL.into());
    }
    let chunk = if chunk == 0 { data.len() } else { chunk as usize };
    let mut w = Writer::new();
    w.count(data.len().checked_div(chunk).unwrap_or(0));
    for part in data.chunks_exact(chunk.max(1)) {
        put_checksum(args.kind, init, part, &mut w);
    }
    Ok(Answer::data(w.into_bytes()))
}

fn put_checksum(kind: u8, init: &[u8], part: &[u8], w: &mut Writer) {
    let seed = init.iter().rev().fold(0u64, |v, b| v << 8 | u64::from(*b));
    match kind {
        checksum_type::XXHASH32 => w.u32(xxhash::xxh32(seed as u32, part)),
        checksum_type::XXHASH64 => w.u64(xxhash::xxh64(seed, part)),
        _ => w.u32(crc32c(seed as u32, part)),
    }
}

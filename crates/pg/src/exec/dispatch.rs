//! Goes through a request's operations in order, and says beforehand what a request may do.

use cephx::caps::ClassUse;
use codec::Decode;
use messages::osd::{Extent, Op, OpCode, OpResult, OsdOp, flags, op_flags, watch_op};
use types::Errno;

use super::answer::{Answer, OpError, Outcome};
use super::pause::Start;
use super::read::ChecksumArgs;
use super::scratch::Scratch;
use super::work::Work;
use super::{ExecEnv, ExecStop, attrs, call, copy, omap, read, snaps, tmap, watch, work, write};

/// What a request may do, known before it runs: it decides about caps, waiting and duplicates.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RequestKind {
    /// Looks at the object, itself or through a class method.
    pub reads: bool,
    pub writes: bool,
    /// Reads or writes the object itself, which takes `r` or `w`; class methods take caps of their own.
    pub needs_read_cap: bool,
    pub needs_write_cap: bool,
    /// Concerns the PG and no object.
    pub pg_op: bool,
    /// Waits for writes as a write does, although it only reads.
    pub rwordered: bool,
    /// Sends something to watchers.
    pub notifies: bool,
    /// Class methods that it calls, for caps.
    pub classes: Vec<ClassUse>,
}

/// Classifies a request. `Err` when it names a class that may not be loaded (EPERM) or a method that does not exist
/// (EOPNOTSUPP), or does nothing at all (EINVAL). Source: OpInfo::set_from_op in src/osd/osd_op_util.cc.
pub fn classify(ops: &[OsdOp], request_flags: u32) -> Result<RequestKind, Errno> {
    let mut kind = RequestKind { rwordered: request_flags & flags::RWORDERED != 0, ..Default::default() };
    let mut known = kind.rwordered || request_flags & flags::RETURNVEC != 0;
    for op in ops {
        let ping = op.code == OpCode::WATCH && matches!(op.parse(), Ok(Op::Watch { op: watch_op::PING, .. }));
        if op.code == OpCode::CALL {
            let used = class_use(op)?;
            kind.reads |= used.read;
            kind.writes |= used.write;
            known |= used.read || used.write;
            kind.classes.push(used);
        }
        // A ping changes nothing, but is answered in order with writes.
        kind.rwordered |= ping;
        kind.needs_write_cap |= op.code.is_write() && !ping;
        // A watch looks at what was watched before.
        kind.needs_read_cap |= op.code.is_read() || op.code == OpCode::WATCH;
        kind.pg_op |= op.code.is_pg_op();
        kind.notifies |= op.code == OpCode::NOTIFY;
        known |= op.code.is_read() || op.code.is_write() || op.code.is_pg_op() || op.code.is_cache();
    }
    kind.reads |= kind.needs_read_cap;
    kind.writes |= kind.needs_write_cap;
    if known { Ok(kind) } else { Err(Errno::EINVAL) }
}

/// Classes that an OSD may load: any other answers EPERM. Source: osd_class_load_list in src/common/options.cc.
const LOAD_LIST: [&str; 19] = [
    "2pc_queue",
    "cas",
    "cephfs",
    "cmpomap",
    "fifo",
    "hello",
    "journal",
    "lock",
    "log",
    "numops",
    "otp",
    "queue",
    "rbd",
    "refcount",
    "rgw",
    "rgw_gc",
    "timeindex",
    "user",
    "version",
];

/// The class method that an operation calls, as caps know it.
fn class_use(op: &OsdOp) -> Result<ClassUse, Errno> {
    let Ok(Op::Call { class, method, .. }) = op.parse() else { return Err(Errno::EINVAL) };
    if !LOAD_LIST.contains(&class.as_str()) {
        return Err(Errno::EPERM);
    }
    let flags = classes::find(&class, &method).map_err(|_| Errno::EOPNOTSUPP)?.flags;
    // All that there are stand in osd_class_default_list.
    Ok(ClassUse { class, method, read: flags.read, write: flags.write, allowed: true })
}

/// How far operations ran.
pub(super) enum Ran {
    /// To the end; the request's result.
    Through(i32),
    /// The slice is over, or the device has to read, before the operation where they are to go on; what was
    /// left of the request's bound then.
    Paused(Work),
}

/// Runs the operations from `at` on until one fails, or the slice is over. Source: PrimaryLogPG::do_osd_ops.
pub(super) fn run_ops(
    env: &mut ExecEnv<'_>,
    s: &mut Scratch<'_>,
    ops: &[OsdOp],
    results: &mut [OpResult],
    at: &mut Start,
) -> Result<Ran, ExecStop> {
    let (first, mut last) = (at.next, at.last);
    for (nr, (op, out)) in ops.iter().zip(results).enumerate().skip(first) {
        s.subop = nr as u32;
        *at = Start { next: nr, last };
        let before = *s.work;
        if nr > first && s.is_slice_over() {
            return Ok(Ran::Paused(before));
        }
        s.user_modify |= op.code.is_write() && is_user_visible(op.code);
        check_keys(s, op)?;
        let outcome = op.parse().map_err(OpError::from).and_then(|parsed| run_op(env, s, op, parsed));
        let is_last = nr + 1 == ops.len();
        if !s.note_metadata(env.store) && !is_last {
            return Err(ExecStop::Refused(Errno::E2BIG));
        }
        match outcome {
            Ok(answer) => {
                s.work.answer(answer.len())?;
                last = answer.rval.unwrap_or(last);
                (out.outdata, out.more) = (answer.data, answer.more);
            }
            Err(OpError::Stop(stop)) => return Err(*stop),
            Err(OpError::SliceOver) => return Ok(Ran::Paused(before)),
            Err(OpError::OnDevice(plan)) => {
                s.wanted = Some(plan);
                return Ok(Ran::Paused(before));
            }
            Err(OpError::Errno(e)) => last = e.neg(),
        }
        out.rval = last;
        if last < 0 && op.flags & op_flags::FAILOK != 0 && !s.broken {
            last = 0;
        }
        if last < 0 {
            break;
        }
    }
    Ok(Ran::Through(last))
}

/// Keys of a few bytes each take ten times as much memory once they are decoded: too many are refused before.
fn check_keys(s: &Scratch<'_>, op: &OsdOp) -> Result<(), ExecStop> {
    use OpCode as C;
    let has_keys =
        matches!(op.code, C::OMAP_SET_VALS | C::OMAP_RM_KEYS | C::OMAP_GET_VALS_BY_KEYS | C::OMAP_CMP);
    let count = op.indata.first_chunk::<4>().filter(|_| has_keys).map_or(0, |n| u32::from_le_bytes(*n));
    // A count that the bytes cannot hold is malformed, and answered as that.
    let count = u64::from(count).min(op.indata.len() as u64 / 4);
    let is_too_much = count * work::KEY > s.work.left();
    if is_too_much { Err(ExecStop::Refused(Errno::E2BIG)) } else { Ok(()) }
}

/// Whether a change by this operation is a new version to clients.
fn is_user_visible(code: OpCode) -> bool {
    use OpCode as C;
    !matches!(
        code,
        C::WATCH
            | C::UNDIRTY
            | C::COPY_FROM
            | C::COPY_FROM2
            | C::CACHE_PIN
            | C::CACHE_UNPIN
            | C::SET_REDIRECT
            | C::TIER_PROMOTE
    )
}

fn run_op(env: &mut ExecEnv<'_>, s: &mut Scratch<'_>, op: &OsdOp, parsed: Op) -> Outcome {
    match parsed {
        Op::Read(e) => read::read(env, s, e),
        Op::SyncRead(_) if env.pool.is_erasure() => Err(Errno::EOPNOTSUPP.into()),
        Op::SyncRead(e) => read::read(env, s, e),
        Op::SparseRead(e) => read::sparse_read(env, s, e),
        Op::MapExt(e) => read::map_extents(env, s, e),
        Op::Stat => read::stat(s),
        Op::AssertVer { version } => read::assert_version(s, version),
        Op::CmpExt { extent, data } => read::compare_extent(env, s, extent, &data),
        Op::Checksum { offset, length, chunk_size, kind, init } => {
            read::checksum(env, s, &ChecksumArgs { offset, length, chunk_size, kind, init: &init })
        }
        Op::Write { extent, data } => write::write(env, s, extent, data),
        Op::WriteFull { extent, data } => write::write_full(env, s, extent, data),
        Op::Append { extent, data } => write::append(env, s, extent, data),
        Op::WriteSame { offset, length, data_length, data } => {
            write::write_same(env, s, Extent::new(offset, length), data_length, &data)
        }
        Op::Zero(e) => write::zero(env, s, e),
        Op::Truncate(e) => write::truncate(env, s, e),
        Op::TrimTrunc(e) => write::truncate(env, s, Extent { offset: e.normalised().truncate_size, ..e }),
        Op::Create => {
            if !op.indata.is_empty() {
                // A category, which nothing uses any more.
                String::from_bytes(op.indata.clone())?;
            }
            write::create(s, op.flags & op_flags::EXCL != 0)
        }
        Op::Rollback { snap } => snaps::rollback(env, s, snap),
        Op::ListSnaps => snaps::list(s),
        Op::Call { class, method, input } => call::call(env, s, (&class, &method), &input),
        Op::Delete => write::delete(env, s),
        Op::AllocHint { object_size, write_size, flags } => {
            write::alloc_hint(s, object_size, write_size, flags)
        }
        Op::Watch { cookie, op, timeout_s, .. } => watch::watch(env, s, cookie, op, timeout_s),
        Op::Notify { cookie, timeout_s, payload } => watch::notify(env, s, cookie, timeout_s, payload),
        Op::NotifyAck { notify_id, cookie, reply } => {
            // Two numbers, or the old form with neither.
            let cookie = (op.indata.len() >= 16).then_some(cookie);
            watch::notify_ack(s, notify_id, cookie, reply)
        }
        Op::CopyGet { max, cursor } => copy::get(env, s, cursor, max),
        Op::CopyFrom { .. } => copy::from(env, s, None),
        Op::CopyFrom2 { truncation, .. } => copy::from(env, s, truncation),
        Op::ListWatchers => watch::list_watchers(s),
        Op::TmapGet => tmap::get(env, s),
        Op::TmapPut { data } => tmap::put(env, s, &data),
        Op::TmapUp { commands } => tmap::update(env, s, commands),
        Op::Tmap2Omap { flags } => tmap::to_omap(env, s, flags),
        _ if op.code == OpCode::STARTSYNC => {
            s.modify = true;
            Ok(Answer::done())
        }
        other => run_metadata_op(env, s, other),
    }
}

/// Attributes and omap.
fn run_metadata_op(env: &mut ExecEnv<'_>, s: &mut Scratch<'_>, parsed: Op) -> Outcome {
    match parsed {
        Op::GetXattr { name } => attrs::get(env, s, name.as_bytes()),
        Op::GetXattrs => attrs::get_all(env, s),
        Op::CmpXattr { name, op, mode, value } => attrs::cmp(env, s, name.as_bytes(), (op, mode), &value),
        Op::SetXattr { name, value } => attrs::set(env, s, name.as_bytes(), value),
        Op::RmXattr { name } => attrs::remove(s, name.as_bytes()),
        Op::OmapGetKeys { start_after, max } => omap::keys(env, s, &start_after, max),
        Op::OmapGetVals { start_after, max, prefix } => omap::vals(env, s, &start_after, max, &prefix),
        Op::OmapGetHeader => omap::header(env, s),
        Op::OmapGetValsByKeys { keys } => omap::vals_by_keys(env, s, keys),
        Op::OmapSetVals { vals } => omap::set(env, s, vals),
        Op::OmapSetHeader { header } => omap::set_header(env, s, header),
        Op::OmapClear => omap::clear(env, s),
        Op::OmapRmKeys { keys } => omap::remove(env, s, keys),
        Op::OmapRmKeyRange { begin, end } => omap::remove_range(env, s, begin, end),
        Op::OmapCmp { assertions } => omap::cmp(env, s, assertions),
        _ => Err(Errno::EOPNOTSUPP.into()),
    }
}

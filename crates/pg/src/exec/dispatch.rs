//! Goes through a request's operations in order, and says beforehand what a request may do.

use bytes::Bytes;
use cephx::caps::ClassUse;
use messages::osd::{Op, OpCode, OpResult, OsdOp, flags, op_flags};
use types::Errno;

use super::{ExecEnv, ExecStop, OpError, Scratch, read, write};

/// What a request may do, known before it runs: it decides about caps, waiting and duplicates.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RequestKind {
    pub reads: bool,
    pub writes: bool,
    /// Concerns the PG and no object.
    pub pg_op: bool,
    /// Waits for writes as a write does, although it only reads.
    pub rwordered: bool,
    /// Class methods that it calls, for caps.
    pub classes: Vec<ClassUse>,
}

/// Classifies a request. `Err` when it names an operation or class method that cannot be classified.
pub fn classify(ops: &[OsdOp], request_flags: u32) -> Result<RequestKind, Errno> {
    let mut kind = RequestKind { rwordered: request_flags & flags::RWORDERED != 0, ..Default::default() };
    for op in ops {
        kind.reads |= op.code.is_read();
        kind.writes |= op.code.is_write();
        kind.pg_op |= op.code.is_pg_op();
    }
    Ok(kind)
}

/// Runs the operations until one fails; returns the request's result.
pub(super) fn run_ops(
    env: &mut ExecEnv<'_>,
    s: &mut Scratch,
    ops: &[OsdOp],
    results: &mut [OpResult],
) -> Result<i32, ExecStop> {
    let mut last = 0;
    for (op, out) in ops.iter().zip(results) {
        let parsed = op.parse().map_err(|_| OpError::Errno(Errno::EINVAL));
        match parsed.and_then(|parsed| run_op(env, s, op, parsed)) {
            Ok((rval, data)) => {
                out.rval = rval;
                out.outdata = data;
                last = rval;
            }
            Err(OpError::Stop(stop)) => return Err(stop),
            Err(OpError::Errno(e)) => {
                out.rval = e.neg();
                if op.flags & op_flags::FAILOK == 0 {
                    return Ok(e.neg());
                }
                last = 0;
            }
        }
    }
    Ok(last)
}

/// One operation: its result and output.
fn run_op(env: &mut ExecEnv<'_>, s: &mut Scratch, op: &OsdOp, parsed: Op) -> Result<(i32, Bytes), OpError> {
    let done = |()| (0, Bytes::new());
    match parsed {
        Op::Read(extent) | Op::SyncRead(extent) => read::read(env, s, extent).map(|data| (0, data)),
        Op::Stat => read::stat(s).map(|data| (0, data)),
        Op::OmapGetValsByKeys { keys } => read::omap_get_by_keys(env, s, keys).map(|data| (0, data)),
        Op::Write { extent, data } => write::write(env, s, extent, data).map(done),
        Op::WriteFull { extent, data } => write::write_full(env, s, extent, data).map(done),
        Op::Delete => write::delete(s).map(done),
        Op::Create => write::create(s, op.flags & op_flags::EXCL != 0).map(done),
        Op::OmapSetVals { vals } => write::omap_set(env, s, vals).map(done),
        _ if op.code == OpCode::SET_ALLOC_HINT => Ok((0, Bytes::new())),
        _ => Err(Errno::EOPNOTSUPP.into()),
    }
}

//! Data objects: copy-up from a parent, guards against late snapshots, freeing of zeros.

use std::collections::BTreeMap;

use bytes::Bytes;
use codec::wire_plain;
use types::Errno;

use crate::registry::{Done, Raw};
use crate::{ObjectView, keys};

/// Runs that are written one by one: a grain of one byte makes as many as the object has bytes.
const MAX_RUNS: usize = 1 << 16;

pub(super) struct SparseArgs {
    /// Offsets and lengths in the object, bytes.
    extents: BTreeMap<u64, u64>,
    /// The bytes of all extents, one behind the other.
    data: Bytes,
}
wire_plain!(SparseArgs { extents, data });

pub(super) struct AssertArgs {
    seq: u64,
    /// Source: AssertSnapcSeqState.
    relation: u8,
}
wire_plain!(AssertArgs { seq, relation });

pub(super) struct SparsifyArgs {
    /// Bytes: runs of zeros of this size and alignment are freed.
    grain: u64,
    remove_empty: bool,
}
wire_plain!(SparsifyArgs { grain, remove_empty });

/// The parent's data, unless the clone has written its own in the meantime.
pub(super) fn copyup(v: &mut dyn ObjectView, raw: Raw) -> Result<Done, Errno> {
    if v.stat().is_err() {
        v.write(0, raw.0)?;
    }
    Ok(Done)
}

pub(super) fn sparse_copyup(v: &mut dyn ObjectView, args: SparseArgs) -> Result<Done, Errno> {
    if v.stat().is_ok() {
        return Ok(Done);
    }
    if args.extents.is_empty() {
        v.create(true)?;
        return Ok(Done);
    }
    let mut data = args.data;
    for (offset, length) in args.extents {
        if length > data.len() as u64 {
            return Err(Errno::EINVAL);
        }
        let part = data.split_to(length as usize);
        v.write(offset, part)?;
    }
    Ok(Done)
}

/// Whether the object has seen the writer's newest snapshot. ERANGE when not as asserted; an object that does not exist
/// has seen none.
pub(super) fn assert_snapc_seq(v: &mut dyn ObjectView, args: AssertArgs) -> Result<Done, Errno> {
    let seen = keys::optional(v.snapset_seq())?;
    let is_newer = seen.is_none_or(|seen| args.seq > seen);
    let holds = match args.relation {
        0 => is_newer,
        1 => !is_newer,
        _ => return Err(Errno::EOPNOTSUPP),
    };
    if holds { Ok(Done) } else { Err(Errno::ERANGE) }
}

/// Writes the object anew without its runs of zeros.
pub(super) fn sparsify(v: &mut dyn ObjectView, args: SparsifyArgs) -> Result<Done, Errno> {
    if args.grain == 0 {
        // Ceph's loop would not end.
        return Err(Errno::EINVAL);
    }
    v.stat()?;
    let data = v.read(0, 0)?;
    let runs = runs(&data, args.grain).ok_or(Errno::E2BIG)?;
    match runs.as_slice() {
        [] if args.remove_empty => v.remove()?,
        [] if data.is_empty() => {}
        [] => {
            v.truncate(0)?;
            v.write(0, Bytes::new())?;
        }
        [run] if *run == (0..data.len()) => {}
        _ => {
            v.truncate(0)?;
            for run in runs {
                v.write(run.start as u64, data.slice(run))?;
            }
        }
    }
    Ok(Done)
}

/// Longest ranges of grains of which none is all zeros; `None` when they are too many to be written one by one.
fn runs(data: &[u8], grain: u64) -> Option<Vec<std::ops::Range<usize>>> {
    let grain = usize::try_from(grain).unwrap_or(usize::MAX);
    let mut runs: Vec<std::ops::Range<usize>> = Vec::new();
    let mut at = 0;
    for part in data.chunks(grain) {
        let end = at + part.len();
        if part.iter().any(|b| *b != 0) {
            let count = runs.len();
            match runs.last_mut() {
                Some(last) if last.end == at => last.end = end,
                _ if count >= MAX_RUNS => return None,
                _ => runs.push(at..end),
            }
        }
        at = end;
    }
    Some(runs)
}

#[cfg(test)]
mod tests {
    use super::{MAX_RUNS, runs};

    #[test]
    fn runs_leave_out_whole_grains_of_zeros_only() {
        assert_eq!(runs(b"", 4), Some(vec![]));
        assert_eq!(runs(&[0; 9], 4), Some(vec![]));
        assert_eq!(runs(b"\0\0\0a\0\0\0\0bb", 4), Some(vec![0..4, 8..10]));
        for (data, grain, end) in [(&b"a\0\0\0b\0\0\0"[..], 4, 8), (b"a", u64::MAX, 1)] {
            assert_eq!(runs(data, grain), Some(vec![0..end; 1]));
        }
        assert_eq!(runs(&b"a\0".repeat(MAX_RUNS), 1).map(|r| r.len()), Some(MAX_RUNS));
        assert_eq!(runs(&b"a\0".repeat(MAX_RUNS + 1), 1), None);
    }
}

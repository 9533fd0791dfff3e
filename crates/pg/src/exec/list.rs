//! Operations on a PG and no object: listings. Source: PrimaryLogPG::do_pg_op.

use bytes::Bytes;
use codec::{Decode, Encode, Reader};
use messages::osd::{
    ListArgs, ListFilter, ListedObject, Op, OpCode, OpResult, OsdOp, PglsResponse, PgnlsResponse,
};
use types::{Errno, HObject, SnapId};

use super::answer::{Answer, OpError, Outcome};
use super::work::{METHOD_STEP, Work};
use super::{ExecEnv, ExecStop};

/// The namespace that stands for all of them. Source: librados::all_nspaces.
const ALL_NSPACES: &str = "\u{1}";
/// Where Ceph's cache tiers keep their hit sets; never listed. Source: osd_hit_set_namespace.
const HIT_SET_NSPACE: &str = ".ceph-internal";

/// Runs operations until one fails; returns the request's result.
pub(super) fn run(
    env: &mut ExecEnv<'_>,
    work: &mut Work,
    nspace: &str,
    ops: &[OsdOp],
    results: &mut [OpResult],
) -> Result<i32, ExecStop> {
    let mut last = 0;
    for (op, out) in ops.iter().zip(results) {
        match run_op(env, work, nspace, op) {
            Ok(answer) => {
                work.answer(answer.data.len())?;
                last = answer.rval.unwrap_or(last);
                out.rval = last;
                out.outdata = answer.data;
            }
            Err(OpError::Stop(stop)) => return Err(*stop),
            Err(OpError::Errno(e)) => return Ok(e.neg()),
            // Lists of a PG have no slices.
            Err(OpError::SliceOver | OpError::OnDevice(_)) => return Ok(Errno::EIO.neg()),
        }
    }
    Ok(last)
}

fn run_op(env: &mut ExecEnv<'_>, work: &mut Work, nspace: &str, op: &OsdOp) -> Outcome {
    match op.code {
        // There are no hit sets: an empty list of them.
        OpCode::PG_HITSET_LS => return Ok(Answer::kept(0u32.to_bytes())),
        OpCode::PG_HITSET_GET => return Err(Errno::ENOENT.into()),
        OpCode::SCRUBLS => return list_scrub(env, op),
        _ => {}
    }
    let parsed = op.parse()?;
    let all = nspace == ALL_NSPACES;
    let page = match parsed {
        Op::Pgnls(args) => Page { args, filter: None, all, nspace },
        Op::Pgls(args) => Page { args, filter: None, all: false, nspace },
        Op::PgnlsFilter { count, start_epoch, filter } => {
            let (filter, cursor) = Filter::new(&filter)?;
            Page { args: ListArgs { count, start_epoch, cursor }, filter: Some(filter), all, nspace }
        }
        Op::PglsFilter { count, start_epoch, filter } => {
            let (filter, cursor) = Filter::new(&filter)?;
            Page { args: ListArgs { count, start_epoch, cursor }, filter: Some(filter), all: false, nspace }
        }
        _ => return Err(Errno::EINVAL.into()),
    };
    if env.snapid != SnapId::HEAD {
        return Err(Errno::EINVAL.into());
    }
    // A filter looks at each object.
    work.spend(page.args.count.min(env.config.max_pgls).saturating_mul(METHOD_STEP))?;
    if matches!(op.code, OpCode::PGNLS | OpCode::PGNLS_FILTER) {
        page.list_new(env)
    } else {
        page.list_old(env)
    }
}

/// What the newest scrub has found. Source: PrimaryLogPG::do_scrub_ls.
fn list_scrub(env: &ExecEnv<'_>, op: &OsdOp) -> Outcome {
    Ok(Answer::kept((env.list_scrub)(op.indata.clone())?))
}

/// What one listing wants.
struct Page<'a> {
    args: ListArgs,
    filter: Option<Filter>,
    /// Every namespace, not only `nspace`.
    all: bool,
    nspace: &'a str,
}

impl Page<'_> {
    fn list_new(&self, env: &mut ExecEnv<'_>) -> Outcome {
        let (start, end) = env.range();
        // The position behind a PG's objects, as clients know it. Source: pg_t::get_hobj_end in
        // src/osd/osd_types.cc.
        let end = if end.pool == env.pgid.pgid.pool {
            HObject { snap: SnapId::HEAD, ..end }
        } else {
            HObject::max()
        };
        let cursor = &self.args.cursor;
        if (!cursor.max && *cursor >= end) || (!cursor.is_min() && *cursor < start) {
            return Err(Errno::EINVAL.into());
        }
        let (found, next) = self.collect(env)?;
        let entries = found
            .into_iter()
            .map(|o| ListedObject { nspace: o.nspace.into(), name: o.name.into(), key: o.key.into() })
            .collect();
        let rval = next.is_none().then_some(1);
        let answer = PgnlsResponse { cursor: next.unwrap_or(end), entries };
        Ok(Answer { rval, data: answer.to_bytes(), more: Vec::new() })
    }

    fn list_old(&self, env: &mut ExecEnv<'_>) -> Outcome {
        let (found, next) = self.collect(env)?;
        let entries = found.into_iter().map(|o| (o.name.into(), o.key.into())).collect();
        let rval = next.is_none().then_some(1);
        let answer = PglsResponse { cursor: next.unwrap_or_else(HObject::max), entries };
        Ok(Answer { rval, data: answer.to_bytes(), more: Vec::new() })
    }

    /// Heads that are wanted among the next stored objects, and the object behind those.
    ///
    /// As in Ceph the bound counts stored objects, so that a page may be short, or empty, and not be the last.
    fn collect(&self, env: &mut ExecEnv<'_>) -> Result<(Vec<HObject>, Option<HObject>), OpError> {
        let max = self.args.count.min(env.config.max_pgls) as usize;
        if self.args.cursor.max {
            return Ok((Vec::new(), None));
        }
        let (start, end) = env.range();
        let from = self.args.cursor.clone().max(start);
        let mut stored = env.store.list(env.pgid.shard, &from, &end, max + 1)?;
        let next = if stored.len() > max { stored.pop() } else { None };
        let mut found = Vec::new();
        for o in stored {
            if self.wants(env, &o)? {
                found.push(o);
            }
        }
        Ok((found, next))
    }

    fn wants(&self, env: &mut ExecEnv<'_>, o: &HObject) -> Result<bool, OpError> {
        if !o.is_head() || o.nspace == HIT_SET_NSPACE || !(self.all || o.nspace == self.nspace) {
            return Ok(false);
        }
        self.filter.as_ref().map_or(Ok(true), |f| f.passes(env, o))
    }
}

/// A filter with its arguments. Source: PGLSPlainFilter in src/osd/osd_types.cc, PGLSCephFSFilter in src/cls/cephfs.
enum Filter {
    /// An attribute, under its stored name, has this value.
    Plain { attr: String, value: String },
    /// The first object of a CephFS file that is not tagged so.
    InodeTag { tag: String },
}

impl Filter {
    /// The filter, and the listing's cursor, which follows the filter's arguments.
    fn new(filter: &ListFilter) -> Result<(Self, HObject), Errno> {
        let parse = || match filter.kind.as_str() {
            "plain" | "hello.hello" => {
                filter.plain().map(|(attr, value, cursor)| Some((Self::Plain { attr, value }, cursor)))
            }
            "cephfs.inode_tag" => {
                let r = &mut Reader::new(filter.args_and_cursor.clone());
                let tag = r.envelope("InodeTagFilterArgs", 1, |r, _| String::decode(r))?;
                Ok(Some((Self::InodeTag { tag }, HObject::decode(r)?)))
            }
            _ => Ok(None),
        };
        parse().ok().flatten().ok_or(Errno::EINVAL)
    }

    fn passes(&self, env: &mut ExecEnv<'_>, o: &HObject) -> Result<bool, OpError> {
        let key = env.key(o.clone());
        let mut attr = |name: &[u8]| -> Result<Option<Bytes>, OpError> { Ok(env.store.attr(&key, name)?) };
        match self {
            Self::Plain { attr: name, value } if name.is_empty() => Ok(value.is_empty()),
            Self::Plain { attr: name, value } => {
                Ok(attr(name.as_bytes())?.is_some_and(|v| v == value.as_bytes()))
            }
            Self::InodeTag { .. } if !o.name.ends_with(".00000000") => Ok(false),
            Self::InodeTag { tag } if tag.is_empty() => Ok(true),
            Self::InodeTag { tag } => {
                let stored = attr(b"_scrub_tag")?.and_then(|raw| String::from_bytes(raw).ok());
                Ok(stored.as_ref() != Some(tag))
            }
        }
    }
}

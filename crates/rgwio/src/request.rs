//! A request of the core as an operation of the client library, and its reply.

use std::collections::BTreeMap;

use bytes::Bytes;
use codec::Decode;
use gateway::{Op, Output, Reply, Request};
use messages::osd::{OmapValsResponse, StatResponse, op_flags};
use rados::{CmpOp, IoCtx, Pending, ReadOp, WriteOp};
use types::{Errno, RealTime};

/// Seconds that a notify waits for those who watch; a gateway that hangs delays a change of others no longer.
const NOTIFY_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(5);

/// What output an operation of a request that reads has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Nothing,
    Stat,
    Data,
    Attrs,
    Page,
}

pub(crate) enum Submitted {
    Op {
        pool: i64,
        pending: Pending,
        kinds: Vec<Kind>,
        /// Operations of requests that change something have no output.
        changes: bool,
        /// What the last operation may fail with.
        tolerated: Option<Errno>,
    },
    Notify {
        io: IoCtx,
        oid: String,
        payload: Bytes,
    },
}

/// Whether a request changes the object: methods are looked up among those that OSDs have.
pub(crate) fn changes(request: &Request) -> bool {
    request.ops.iter().any(|op| match op {
        Op::Call { class, method, .. } => classes::find(class, method).is_ok_and(|m| m.flags.write),
        Op::Stat | Op::Read { .. } | Op::Attrs | Op::OmapList { .. } => false,
        Op::AttrIs { .. } | Op::NumberIs { .. } => false,
        _ => true,
    })
}

fn text(bytes: &Bytes) -> Result<String, Errno> {
    String::from_utf8(bytes.to_vec()).map_err(|_| Errno::EINVAL)
}

/// Hands a request in. Requests of one object are carried out in the order in which they were handed in.
pub(crate) fn submit(io: &IoCtx, request: Request) -> Result<Submitted, Errno> {
    let changes = changes(&request);
    let (oid, locator) = (text(&request.object.oid)?, text(&request.object.locator)?);
    let io = if locator.is_empty() { io.clone() } else { io.with_locator(locator) };
    if let [Op::Notify(payload)] = &request.ops[..] {
        return Ok(Submitted::Notify { io, oid, payload: payload.clone() });
    }
    let kinds = request.ops.iter().map(kind).collect();
    let tolerated = match request.ops.last() {
        Some(Op::Call { tolerated, .. }) => *tolerated,
        _ => None,
    };
    let pending = if changes {
        let op = request.ops.into_iter().try_fold(WriteOp::new(), write_step)?;
        let op = match request.mtime {
            Some(RealTime(mtime)) => op.mtime(mtime),
            None => op,
        };
        io.submit_write(&oid, op)
    } else {
        io.submit_read(&oid, request.ops.into_iter().try_fold(ReadOp::new(), read_step)?)
    };
    Ok(Submitted::Op { pool: io.pool_id().0, pending, kinds, changes, tolerated })
}

fn kind(op: &Op) -> Kind {
    match op {
        Op::Stat => Kind::Stat,
        Op::Read { .. } | Op::Call { .. } => Kind::Data,
        Op::Attrs => Kind::Attrs,
        Op::OmapList { .. } => Kind::Page,
        _ => Kind::Nothing,
    }
}

fn read_step(to: ReadOp, op: Op) -> Result<ReadOp, Errno> {
    Ok(match op {
        Op::Stat => to.stat(),
        Op::Read { offset, length } => to.read(offset, length),
        Op::Attrs => to.get_xattrs(),
        Op::OmapList { after, max } => to.omap_get_vals(after, Bytes::new(), max),
        Op::Call { class, method, input, .. } => to.exec(class, method, input),
        Op::AttrIs { name, value } => to.cmp_xattr(&text(&name)?, CmpOp::Eq, value),
        Op::NumberIs { name, value, or_less } => to.cmp_xattr_u64(&text(&name)?, at_most(or_less), value),
        // Whatever else there is changes something.
        _ => return Err(Errno::EINVAL),
    })
}

/// How the number that is given compares with the stored one.
fn at_most(or_less: bool) -> CmpOp {
    if or_less { CmpOp::Gte } else { CmpOp::Eq }
}

fn write_step(to: WriteOp, op: Op) -> Result<WriteOp, Errno> {
    Ok(match op {
        Op::Stat => to.assert_exists(),
        Op::Call { class, method, input, .. } => to.exec(class, method, input),
        Op::AttrIs { name, value } => to.cmp_xattr(&text(&name)?, CmpOp::Eq, value),
        Op::NumberIs { name, value, or_less } => to.cmp_xattr_u64(&text(&name)?, at_most(or_less), value),
        Op::Create { exclusive } => to.create(exclusive),
        Op::Remove { may_miss } => {
            let removed = to.remove();
            if may_miss { removed.flag_last(op_flags::FAILOK) } else { removed }
        }
        Op::WriteFull(data) => to.write_full(data),
        Op::Append(data) => to.append(data),
        Op::SetAttr { name, value } => to.set_xattr(&text(&name)?, value),
        Op::RemoveAttr(name) => to.rm_xattr(&text(&name)?),
        Op::OmapSet(entries) => to.omap_set(entries),
        // OSDs return nothing of what a request reads that changes something, and a notify stands alone.
        Op::Read { .. } | Op::Attrs | Op::OmapList { .. } | Op::Notify(_) => return Err(Errno::EINVAL),
    })
}

impl Submitted {
    pub(crate) async fn reply(self) -> Result<Reply, Errno> {
        match self {
            Self::Notify { io, oid, payload } => {
                let told = io.notify(&oid, payload, Some(NOTIFY_TIMEOUT)).await.map_err(|e| e.errno())?;
                if !told.missed.is_empty() {
                    tracing::debug!("{oid}: {} did not answer in time", told.missed.len());
                }
                Ok(Reply { pool: io.pool_id().0, version: 0, outputs: vec![Output::Nothing] })
            }
            Self::Op { pool, pending, kinds, changes, tolerated } => {
                let reply = pending.raw().await.map_err(|e| e.errno())?;
                let failed = Errno(reply.result.saturating_neg());
                let all_but_last = || {
                    let before = reply.ops.len().saturating_sub(1);
                    reply.ops.len() == kinds.len() && reply.ops.iter().take(before).all(|op| op.rval >= 0)
                };
                if reply.result < 0 && !(tolerated == Some(failed) && all_but_last()) {
                    return Err(failed);
                }
                let outputs = kinds.into_iter().enumerate().map(|(at, kind)| match changes {
                    true => Ok(Output::Nothing),
                    false => output(kind, reply.output(at)),
                });
                Ok(Reply { pool, version: reply.version, outputs: outputs.collect::<Result<_, _>>()? })
            }
        }
    }
}

fn output(kind: Kind, data: Bytes) -> Result<Output, Errno> {
    let read = || -> Result<Output, codec::DecodeError> {
        Ok(match kind {
            Kind::Nothing => Output::Nothing,
            Kind::Data => Output::Data(data),
            Kind::Attrs => Output::Attrs(BTreeMap::from_bytes(data)?),
            Kind::Stat => {
                let stat = StatResponse::from_bytes(data)?;
                Output::Stat { size: stat.size, mtime: RealTime(stat.mtime) }
            }
            Kind::Page => {
                let page = OmapValsResponse::from_bytes(data)?;
                Output::Page { entries: page.vals.into_iter().collect(), more: page.more }
            }
        })
    };
    read().map_err(|_| Errno::EIO)
}

#[cfg(test)]
mod tests {
    use classes::client::{Nothing, version};
    use codec::Encode;
    use rgw::{Pool, RawObject};

    use super::*;

    fn request() -> Request {
        Request::new(RawObject::new(&Pool::new("p", ""), "o"))
    }

    #[test]
    fn what_changes_an_object_is_known_by_its_operations_and_methods() {
        let check = |request: Request, want: bool| assert_eq!(changes(&request), want, "{request:?}");
        check(request(), false);
        check(request().op(Op::Stat).op(Op::Attrs).op(Op::Read { offset: 0, length: 0 }), false);
        check(request().call(&version::READ, &Nothing), false);
        check(request().op(Op::Stat).op(Op::Create { exclusive: true }), true);
        let version = rgw::ObjectVersion { version: 1, tag: Bytes::new() };
        check(request().call(&version::SET, &version::VersionArgs { version }), true);
        check(request().op(Op::Notify(Bytes::new())), true);
    }

    #[test]
    fn outputs_are_what_osds_answer_and_nothing_else() {
        let stat = [&7u64.to_le_bytes()[..], &1u32.to_le_bytes(), &2u32.to_le_bytes()].concat();
        let mtime = RealTime(types::Utime { sec: 1, nsec: 2 });
        assert_eq!(output(Kind::Stat, stat.clone().into()), Ok(Output::Stat { size: 7, mtime }));
        for end in 0..stat.len() {
            assert_eq!(output(Kind::Stat, stat[..end].to_vec().into()), Err(Errno::EIO), "{end}");
        }
        let attrs = BTreeMap::from([(Bytes::from_static(b"\xff"), Bytes::from_static(b"v"))]);
        assert_eq!(output(Kind::Attrs, attrs.to_bytes()), Ok(Output::Attrs(attrs.clone())));
        assert_eq!(output(Kind::Nothing, "x".into()), Ok(Output::Nothing));
    }

    #[test]
    fn a_request_that_changes_something_reads_nothing() {
        for op in [Op::Attrs, Op::Read { offset: 0, length: 1 }, Op::Notify(Bytes::new())] {
            assert_eq!(write_step(WriteOp::new(), op).err(), Some(Errno::EINVAL));
        }
        let name = Bytes::from_static(b"\xff");
        let op = Op::SetAttr { name, value: Bytes::new() };
        assert_eq!(write_step(WriteOp::new(), op.clone()).err(), Some(Errno::EINVAL));
        assert_eq!(read_step(ReadOp::new(), op).err(), Some(Errno::EINVAL));
    }
}

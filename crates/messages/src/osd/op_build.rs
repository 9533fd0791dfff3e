//! From an operation's arguments to its raw form.

use bytes::Bytes;
use codec::{Encode, Writer};

use super::raw_op::ARG_LEN;
use super::{CopyFromArgs, Extent, ListFilter, Op, OpCode, OsdOp};

impl Extent {
    fn put(&self, w: &mut Writer) {
        w.u64(self.offset);
        w.u64(self.length);
        w.u64(self.truncate_size);
        w.u32(self.truncate_seq);
    }
}

impl CopyFromArgs {
    fn put(&self, w: &mut Writer) {
        self.snap.encode(w);
        w.u64(self.version);
        w.u8(self.flags);
        w.u32(self.src_fadvise);
    }
}

/// Builds the raw form of an operation from its argument writer and its bytes.
fn raw(code: OpCode, arg: impl FnOnce(&mut Writer), indata: Bytes) -> OsdOp {
    let mut w = Writer::with_capacity(ARG_LEN);
    arg(&mut w);
    let mut slot = [0; ARG_LEN];
    for (to, from) in slot.iter_mut().zip(w.as_slice()) {
        *to = *from;
    }
    OsdOp { code, flags: 0, arg: slot, indata }
}

fn encoded(body: impl FnOnce(&mut Writer)) -> Bytes {
    let mut w = Writer::new();
    body(&mut w);
    w.into_bytes()
}

fn no_arg(_: &mut Writer) {}

impl From<Op> for OsdOp {
    /// The wire form, with no flags set.
    fn from(op: Op) -> Self {
        let extent = |code, e: Extent, data| raw(code, |w| e.put(w), data);
        let none = Bytes::new();
        match op {
            Op::Read(e) => extent(OpCode::READ, e, none),
            Op::SparseRead(e) => extent(OpCode::SPARSE_READ, e, none),
            Op::SyncRead(e) => extent(OpCode::SYNC_READ, e, none),
            Op::MapExt(e) => extent(OpCode::MAPEXT, e, none),
            Op::Zero(e) => extent(OpCode::ZERO, e, none),
            Op::Truncate(e) => extent(OpCode::TRUNCATE, e, none),
            Op::TrimTrunc(e) => extent(OpCode::TRIMTRUNC, e, none),
            Op::CmpExt { extent: e, data } => extent(OpCode::CMPEXT, e, data),
            Op::Write { extent: e, data } => extent(OpCode::WRITE, e, data),
            Op::WriteFull { extent: e, data } => extent(OpCode::WRITEFULL, e, data),
            Op::Append { extent: e, data } => extent(OpCode::APPEND, e, data),
            Op::Stat => raw(OpCode::STAT, no_arg, none),
            Op::ListWatchers => raw(OpCode::LIST_WATCHERS, no_arg, none),
            Op::ListSnaps => raw(OpCode::LIST_SNAPS, no_arg, none),
            Op::Delete => raw(OpCode::DELETE, no_arg, none),
            Op::Create => raw(OpCode::CREATE, no_arg, none),
            Op::GetXattrs => raw(OpCode::GETXATTRS, no_arg, none),
            Op::OmapGetHeader => raw(OpCode::OMAP_GET_HEADER, no_arg, none),
            Op::OmapClear => raw(OpCode::OMAP_CLEAR, no_arg, none),
            Op::TmapGet => raw(OpCode::TMAPGET, no_arg, none),
            Op::TmapPut { data } => raw(OpCode::TMAPPUT, no_arg, data),
            Op::TmapUp { commands } => raw(OpCode::TMAPUP, no_arg, commands),
            Op::Tmap2Omap { flags } => raw(OpCode::TMAP2OMAP, |w| w.u8(flags), none),
            Op::Rollback { snap } => raw(OpCode::ROLLBACK, |w| snap.encode(w), none),
            Op::AssertVer { version } => raw(
                OpCode::ASSERT_VER,
                |w| {
                    w.u64(0);
                    w.u64(version);
                },
                none,
            ),
            Op::Other(op) => op,
            other => build_with_data(other),
        }
    }
}

/// Operations whose arguments are more than an extent.
fn build_with_data(op: Op) -> OsdOp {
    match op {
        Op::Checksum { offset, length, chunk_size, kind, init } => {
            let arg = |w: &mut Writer| {
                w.u64(offset);
                w.u64(length);
                w.u32(chunk_size);
                w.u8(kind);
            };
            raw(OpCode::CHECKSUM, arg, init)
        }
        Op::WriteSame { offset, length, data_length, data } => {
            let arg = |w: &mut Writer| {
                w.u64(offset);
                w.u64(length);
                w.u64(data_length);
            };
            raw(OpCode::WRITESAME, arg, data)
        }
        Op::AllocHint { object_size, write_size, flags } => {
            let arg = |w: &mut Writer| {
                w.u64(object_size);
                w.u64(write_size);
                w.u32(flags);
            };
            raw(OpCode::SET_ALLOC_HINT, arg, Bytes::new())
        }
        Op::CopyFrom { from, args } => raw(OpCode::COPY_FROM, |w| args.put(w), from.to_bytes()),
        Op::CopyFrom2 { from, args, truncation } => {
            let data = encoded(|w| {
                from.encode(w);
                if let Some((seq, size)) = truncation {
                    w.u32(seq);
                    w.u64(size);
                }
            });
            raw(OpCode::COPY_FROM2, |w| args.put(w), data)
        }
        Op::CopyGet { max, cursor } => {
            let data = encoded(|w| {
                cursor.encode(w);
                w.u64(max);
            });
            raw(OpCode::COPY_GET, no_arg, data)
        }
        Op::Call { class, method, input } => build_call(&class, &method, &input),
        Op::Watch { .. } | Op::Notify { .. } | Op::NotifyAck { .. } => build_watch(op),
        Op::GetXattr { .. } | Op::RmXattr { .. } | Op::SetXattr { .. } | Op::CmpXattr { .. } => {
            build_xattr(op)
        }
        Op::Pgls(_) | Op::Pgnls(_) | Op::PglsFilter { .. } | Op::PgnlsFilter { .. } => build_list(op),
        other => build_omap(other),
    }
}

fn build_xattr(op: Op) -> OsdOp {
    let (code, name, value, cmp) = match op {
        Op::GetXattr { name } => (OpCode::GETXATTR, name, Bytes::new(), (0, 0)),
        Op::RmXattr { name } => (OpCode::RMXATTR, name, Bytes::new(), (0, 0)),
        Op::SetXattr { name, value } => (OpCode::SETXATTR, name, value, (0, 0)),
        Op::CmpXattr { name, op, mode, value } => (OpCode::CMPXATTR, name, value, (op, mode)),
        _ => return OsdOp::default(),
    };
    let arg = |w: &mut Writer| {
        w.count(name.len());
        w.count(value.len());
        w.u8(cmp.0);
        w.u8(cmp.1);
    };
    let data = encoded(|w| {
        w.raw(name.as_bytes());
        w.raw(&value);
    });
    raw(code, arg, data)
}

fn build_omap(op: Op) -> OsdOp {
    let (code, data) = match op {
        Op::OmapGetKeys { start_after, max } => (
            OpCode::OMAP_GET_KEYS,
            encoded(|w| {
                w.blob(&start_after);
                w.u64(max);
            }),
        ),
        Op::OmapGetVals { start_after, max, prefix } => (
            OpCode::OMAP_GET_VALS,
            encoded(|w| {
                w.blob(&start_after);
                w.u64(max);
                w.blob(&prefix);
            }),
        ),
        Op::OmapGetValsByKeys { keys } => (OpCode::OMAP_GET_VALS_BY_KEYS, keys.to_bytes()),
        Op::OmapSetVals { vals } => (OpCode::OMAP_SET_VALS, vals.to_bytes()),
        Op::OmapSetHeader { header } => (OpCode::OMAP_SET_HEADER, header),
        Op::OmapRmKeys { keys } => (OpCode::OMAP_RM_KEYS, keys.to_bytes()),
        Op::OmapRmKeyRange { begin, end } => (OpCode::OMAP_RM_KEY_RANGE, (begin, end).to_bytes()),
        Op::OmapCmp { assertions } => (OpCode::OMAP_CMP, assertions.to_bytes()),
        _ => return OsdOp::default(),
    };
    raw(code, no_arg, data)
}

fn build_watch(op: Op) -> OsdOp {
    match op {
        Op::Watch { cookie, op, generation, timeout_s } => {
            let arg = |w: &mut Writer| {
                w.u64(cookie);
                w.u64(0);
                w.u8(op);
                w.u32(generation);
                w.u32(timeout_s);
            };
            raw(OpCode::WATCH, arg, Bytes::new())
        }
        Op::Notify { cookie, timeout_s, payload } => {
            let data = encoded(|w| {
                // A protocol version that nobody reads.
                w.u32(1);
                w.u32(timeout_s);
                w.blob(&payload);
            });
            raw(OpCode::NOTIFY, |w| w.u64(cookie), data)
        }
        Op::NotifyAck { notify_id, cookie, reply } => {
            let data = encoded(|w| {
                w.u64(notify_id);
                w.u64(cookie);
                w.blob(&reply);
            });
            raw(OpCode::NOTIFY_ACK, no_arg, data)
        }
        _ => OsdOp::default(),
    }
}

fn build_call(class: &str, method: &str, input: &Bytes) -> OsdOp {
    // Names of methods are ours or a caller's constants; they have one length byte.
    assert!(class.len() < 256 && method.len() < 256, "a method name has one length byte");
    let arg = |w: &mut Writer| {
        w.u8(class.len() as u8);
        w.u8(method.len() as u8);
        w.u8(0);
        w.count(input.len());
    };
    let data = encoded(|w| {
        w.raw(class.as_bytes());
        w.raw(method.as_bytes());
        w.raw(input);
    });
    raw(OpCode::CALL, arg, data)
}

fn build_list(op: Op) -> OsdOp {
    let filtered = |f: &ListFilter| {
        encoded(|w| {
            "pg".encode(w);
            "filter".encode(w);
            f.kind.encode(w);
            w.raw(&f.args_and_cursor);
        })
    };
    let (code, count, start_epoch, data) = match op {
        Op::Pgls(a) => (OpCode::PGLS, a.count, a.start_epoch, a.cursor.to_bytes()),
        Op::Pgnls(a) => (OpCode::PGNLS, a.count, a.start_epoch, a.cursor.to_bytes()),
        Op::PglsFilter { count, start_epoch, filter } => {
            (OpCode::PGLS_FILTER, count, start_epoch, filtered(&filter))
        }
        Op::PgnlsFilter { count, start_epoch, filter } => {
            (OpCode::PGNLS_FILTER, count, start_epoch, filtered(&filter))
        }
        _ => return OsdOp::default(),
    };
    let arg = |w: &mut Writer| {
        w.u64(count);
        w.u32(start_epoch);
    };
    raw(code, arg, data)
}

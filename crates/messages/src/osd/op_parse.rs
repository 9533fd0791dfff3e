//! From an operation's raw form to its arguments.

use bytes::Bytes;
use codec::{Decode, DecodeError, Reader};
use types::{HObject, SnapId};

use super::raw_op::{ARG_LEN, u8_at, u32_at, u64_at};
use super::{
    CopyFromArgs, CopySource, Extent, ListArgs, ListFilter, Op, OpCode, OsdOp, cmp_mode, copy_from_flags,
};

impl Extent {
    fn from_arg(arg: &[u8; ARG_LEN]) -> Self {
        Self {
            offset: u64_at(arg, 0),
            length: u64_at(arg, 8),
            truncate_size: u64_at(arg, 16),
            truncate_seq: u32_at(arg, 24),
        }
    }
}

impl CopyFromArgs {
    fn from_arg(arg: &[u8; ARG_LEN]) -> Self {
        Self {
            snap: SnapId(u64_at(arg, 0)),
            version: u64_at(arg, 8),
            flags: u8_at(arg, 16),
            src_fadvise: u32_at(arg, 17),
        }
    }
}

impl OsdOp {
    /// Reads the arguments. A server answers EINVAL to an error.
    pub fn parse(&self) -> Result<Op, DecodeError> {
        let extent = || Extent::from_arg(&self.arg);
        let data = || self.indata.clone();
        Ok(match self.code {
            OpCode::READ => Op::Read(extent()),
            OpCode::SPARSE_READ => Op::SparseRead(extent()),
            OpCode::SYNC_READ => Op::SyncRead(extent()),
            OpCode::MAPEXT => Op::MapExt(extent()),
            OpCode::STAT => Op::Stat,
            OpCode::CHECKSUM => Op::Checksum {
                offset: u64_at(&self.arg, 0),
                length: u64_at(&self.arg, 8),
                chunk_size: u32_at(&self.arg, 16),
                kind: u8_at(&self.arg, 20),
                init: data(),
            },
            OpCode::CMPEXT => Op::CmpExt { extent: extent(), data: data() },
            OpCode::ASSERT_VER => Op::AssertVer { version: u64_at(&self.arg, 8) },
            OpCode::LIST_WATCHERS => Op::ListWatchers,
            OpCode::LIST_SNAPS => Op::ListSnaps,
            OpCode::CALL => self.parse_call()?,
            _ if self.code.is_pg_op() => self.parse_list()?,
            _ if self.code.is_attr() => self.parse_xattr()?,
            OpCode::WATCH | OpCode::NOTIFY | OpCode::NOTIFY_ACK => self.parse_watch(),
            _ => match self.parse_write()? {
                Some(op) => op,
                None => self.parse_omap()?,
            },
        })
    }

    fn parse_write(&self) -> Result<Option<Op>, DecodeError> {
        let extent = Extent::from_arg(&self.arg);
        let data = self.indata.clone();
        Ok(Some(match self.code {
            OpCode::WRITE => Op::Write { extent, data },
            OpCode::WRITEFULL => Op::WriteFull { extent, data },
            OpCode::APPEND => Op::Append { extent, data },
            OpCode::WRITESAME => Op::WriteSame {
                offset: u64_at(&self.arg, 0),
                length: u64_at(&self.arg, 8),
                data_length: u64_at(&self.arg, 16),
                data,
            },
            OpCode::ZERO => Op::Zero(extent),
            OpCode::TRUNCATE => Op::Truncate(extent),
            OpCode::TRIMTRUNC => Op::TrimTrunc(extent),
            OpCode::DELETE => Op::Delete,
            OpCode::CREATE => Op::Create,
            OpCode::ROLLBACK => Op::Rollback { snap: SnapId(u64_at(&self.arg, 0)) },
            OpCode::SET_ALLOC_HINT => Op::AllocHint {
                object_size: u64_at(&self.arg, 0),
                write_size: u64_at(&self.arg, 8),
                flags: u32_at(&self.arg, 16),
            },
            OpCode::COPY_FROM | OpCode::COPY_FROM2 => self.parse_copy_from()?,
            OpCode::COPY_GET => {
                let r = &mut Reader::new(data);
                Op::CopyGet { cursor: Decode::decode(r)?, max: r.u64()? }
            }
            OpCode::TMAPGET => Op::TmapGet,
            OpCode::TMAPPUT => Op::TmapPut { data },
            OpCode::TMAPUP => Op::TmapUp { commands: data },
            OpCode::TMAP2OMAP => Op::Tmap2Omap { flags: u8_at(&self.arg, 0) },
            _ => return Ok(None),
        }))
    }

    fn parse_copy_from(&self) -> Result<Op, DecodeError> {
        let args = CopyFromArgs::from_arg(&self.arg);
        let r = &mut Reader::new(self.indata.clone());
        let from = CopySource::decode(r)?;
        if self.code == OpCode::COPY_FROM {
            return Ok(Op::CopyFrom { from, args });
        }
        let truncation = match args.flags & copy_from_flags::TRUNCATE_SEQ {
            0 => None,
            _ => Some((r.u32()?, r.u64()?)),
        };
        Ok(Op::CopyFrom2 { from, args, truncation })
    }

    fn parse_xattr(&self) -> Result<Op, DecodeError> {
        let r = &mut Reader::new(self.indata.clone());
        let mut name = || text(r, u32_at(&self.arg, 0) as usize);
        Ok(match self.code {
            OpCode::GETXATTR => Op::GetXattr { name: name()? },
            OpCode::RMXATTR => Op::RmXattr { name: name()? },
            OpCode::SETXATTR => {
                let name = name()?;
                Op::SetXattr { name, value: r.raw(u32_at(&self.arg, 4) as usize)? }
            }
            OpCode::CMPXATTR => {
                let name = name()?;
                let (op, mode) = (u8_at(&self.arg, 8), u8_at(&self.arg, 9));
                // A number is always eight bytes, whatever length the client states.
                let len = if mode == cmp_mode::U64 { 8 } else { u32_at(&self.arg, 4) as usize };
                Op::CmpXattr { name, op, mode, value: r.raw(len)? }
            }
            OpCode::GETXATTRS => Op::GetXattrs,
            _ => Op::Other(self.clone()),
        })
    }

    fn parse_omap(&self) -> Result<Op, DecodeError> {
        let r = &mut Reader::new(self.indata.clone());
        Ok(match self.code {
            OpCode::OMAP_GET_KEYS => Op::OmapGetKeys { start_after: r.blob()?, max: r.u64()? },
            OpCode::OMAP_GET_VALS => {
                Op::OmapGetVals { start_after: r.blob()?, max: r.u64()?, prefix: r.blob()? }
            }
            OpCode::OMAP_GET_HEADER => Op::OmapGetHeader,
            OpCode::OMAP_GET_VALS_BY_KEYS => Op::OmapGetValsByKeys { keys: Decode::decode(r)? },
            OpCode::OMAP_SET_VALS => Op::OmapSetVals { vals: Decode::decode(r)? },
            OpCode::OMAP_SET_HEADER => Op::OmapSetHeader { header: self.indata.clone() },
            OpCode::OMAP_CLEAR => Op::OmapClear,
            OpCode::OMAP_RM_KEYS => Op::OmapRmKeys { keys: Decode::decode(r)? },
            OpCode::OMAP_RM_KEY_RANGE => Op::OmapRmKeyRange { begin: r.blob()?, end: r.blob()? },
            OpCode::OMAP_CMP => Op::OmapCmp { assertions: Decode::decode(r)? },
            _ => Op::Other(self.clone()),
        })
    }

    /// Malformed notifies and acks are taken as old forms and never refused. Source: PrimaryLogPG::do_osd_ops.
    fn parse_watch(&self) -> Op {
        let cookie = u64_at(&self.arg, 0);
        let r = &mut Reader::new(self.indata.clone());
        match self.code {
            OpCode::WATCH => Op::Watch {
                cookie,
                op: u8_at(&self.arg, 16),
                generation: u32_at(&self.arg, 17),
                timeout_s: u32_at(&self.arg, 21),
            },
            OpCode::NOTIFY => {
                let args = (|| {
                    r.skip(4)?;
                    Ok::<_, DecodeError>((r.u32()?, r.blob()?))
                })();
                let (timeout_s, payload) = args.unwrap_or_default();
                Op::Notify { cookie, timeout_s, payload }
            }
            _ => {
                let args = (|| {
                    let (id, cookie) = (r.u64()?, r.u64()?);
                    let reply = if r.is_empty() { Bytes::new() } else { r.blob()? };
                    Ok::<_, DecodeError>((id, cookie, reply))
                })();
                let (notify_id, cookie, reply) = args.unwrap_or((cookie, 0, Bytes::new()));
                Op::NotifyAck { notify_id, cookie, reply }
            }
        }
    }

    fn parse_call(&self) -> Result<Op, DecodeError> {
        let r = &mut Reader::new(self.indata.clone());
        let class = text(r, u8_at(&self.arg, 0).into())?;
        let method = text(r, u8_at(&self.arg, 1).into())?;
        let input = r.raw(u32_at(&self.arg, 3) as usize)?;
        Ok(Op::Call { class, method, input })
    }

    fn parse_list(&self) -> Result<Op, DecodeError> {
        let (count, start_epoch) = (u64_at(&self.arg, 0), u32_at(&self.arg, 8));
        let r = &mut Reader::new(self.indata.clone());
        let mut filter = || {
            // Two names that every client sends and no server looks at.
            r.blob()?;
            r.blob()?;
            Ok::<_, DecodeError>(ListFilter { kind: String::decode(r)?, args_and_cursor: r.rest() })
        };
        Ok(match self.code {
            OpCode::PGLS_FILTER => Op::PglsFilter { count, start_epoch, filter: filter()? },
            OpCode::PGNLS_FILTER => Op::PgnlsFilter { count, start_epoch, filter: filter()? },
            OpCode::PGLS => Op::Pgls(ListArgs { count, start_epoch, cursor: HObject::decode(r)? }),
            OpCode::PGNLS => Op::Pgnls(ListArgs { count, start_epoch, cursor: HObject::decode(r)? }),
            _ => Op::Other(self.clone()),
        })
    }
}

/// `len` bytes of UTF-8 without a length of their own.
fn text(r: &mut Reader, len: usize) -> Result<String, DecodeError> {
    let raw = r.raw(len)?;
    std::str::from_utf8(&raw)
        .map(str::to_owned)
        .map_err(|_| DecodeError::NotUtf8 { what: "operation argument" })
}

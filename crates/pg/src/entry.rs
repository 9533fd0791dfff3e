//! One entry of a PG's log, and the short form that stays behind when the entry is trimmed.

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer};
use types::{Eversion, HObject, ReqId, Utime};

/// What an entry did to its object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum EntryKind {
    /// Created or changed.
    Modify = 1,
    /// A clone was made for a snapshot; the entry's object is the clone.
    Clone = 2,
    Delete = 3,
    /// Nothing changed: a write was refused, and its result is kept so that a resend gets the same one.
    Error = 4,
}

impl Encode for EntryKind {
    fn encode(&self, w: &mut Writer) {
        w.u8(*self as u8);
    }
}
impl Decode for EntryKind {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        Ok(match r.u8()? {
            1 => Self::Modify,
            2 => Self::Clone,
            3 => Self::Delete,
            4 => Self::Error,
            v => return Err(DecodeError::Invalid { what: "pg log entry kind", value: v.into() }),
        })
    }
}

/// What one operation of a request answered, kept for resends of requests that asked for it (RETURNVEC).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OpReturn {
    pub rval: i32,
    pub data: Bytes,
}

codec::wire_plain!(OpReturn { rval, data });

/// One change of one object, in the order of the PG.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogEntry {
    pub kind: EntryKind,
    pub object: HObject,
    /// This entry's place in the PG's order.
    pub version: Eversion,
    /// The object's version before; zero when it did not exist.
    pub prior_version: Eversion,
    /// The object's version as clients see it.
    pub user_version: u64,
    /// The request that made it; the default value for entries that no client asked for by themselves (clones).
    pub reqid: ReqId,
    pub mtime: Utime,
    /// 0, a positive result, or a negated errno.
    pub return_code: i32,
    pub op_returns: Vec<OpReturn>,
}

codec::wire_struct!(LogEntry(1, 1) {
    kind, object, version, prior_version, user_version, reqid, mtime, return_code, op_returns,
});

impl LogEntry {
    /// Whether a resend of `reqid` finds this entry.
    pub fn answers_requests(&self) -> bool {
        self.reqid != ReqId::default()
    }

    pub fn is_error(&self) -> bool {
        self.kind == EntryKind::Error
    }

    pub fn is_delete(&self) -> bool {
        self.kind == EntryKind::Delete
    }

    pub fn to_dup(&self) -> DupEntry {
        DupEntry {
            reqid: self.reqid,
            version: self.version,
            user_version: self.user_version,
            return_code: self.return_code,
            op_returns: self.op_returns.clone(),
        }
    }
}

/// What is left of a trimmed entry: enough to answer a resend. Source: pg_log_dup_t in src/osd/osd_types.h.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DupEntry {
    pub reqid: ReqId,
    pub version: Eversion,
    pub user_version: u64,
    pub return_code: i32,
    pub op_returns: Vec<OpReturn>,
}

codec::wire_struct!(DupEntry(1, 1) { reqid, version, user_version, return_code, op_returns });

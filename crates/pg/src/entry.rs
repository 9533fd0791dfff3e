//! One entry of a PG's log, and the short form that stays behind when the entry is trimmed.

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer};
use types::{Eversion, HObject, ReqId, Utime};

use crate::dirty::Dirty;

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
    /// What of the object differs from the version before.
    pub dirty: Dirty,
}

impl Encode for LogEntry {
    fn encode(&self, w: &mut Writer) {
        w.envelope(2, 1, |w| {
            self.kind.encode(w);
            self.object.encode(w);
            (self.version, self.prior_version).encode(w);
            w.u64(self.user_version);
            self.reqid.encode(w);
            self.mtime.encode(w);
            self.return_code.encode(w);
            self.op_returns.encode(w);
            self.dirty.encode(w);
        });
    }
}
impl Decode for LogEntry {
    const MIN_SIZE: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("LogEntry", 2, |r, env| {
            Ok(Self {
                kind: EntryKind::decode(r)?,
                object: HObject::decode(r)?,
                version: Eversion::decode(r)?,
                prior_version: Eversion::decode(r)?,
                user_version: r.u64()?,
                reqid: ReqId::decode(r)?,
                mtime: Utime::decode(r)?,
                return_code: i32::decode(r)?,
                op_returns: Vec::decode(r)?,
                // Older releases did not say: all of it, then.
                dirty: if env.version >= 2 { Dirty::decode(r)? } else { Dirty::ALL },
            })
        })
    }
}

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

impl From<LogEntry> for DupEntry {
    fn from(e: LogEntry) -> Self {
        Self {
            reqid: e.reqid,
            version: e.version,
            user_version: e.user_version,
            return_code: e.return_code,
            op_returns: e.op_returns,
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

#[cfg(test)]
mod tests {
    use types::Epoch;

    use super::*;

    #[test]
    fn entries_of_older_releases_say_nothing_of_what_changed() {
        let entry = LogEntry {
            kind: EntryKind::Modify,
            object: HObject { name: "o".into(), ..HObject::min() },
            version: Eversion::new(Epoch(3), 7),
            prior_version: Eversion::new(Epoch(3), 6),
            user_version: 5,
            reqid: ReqId::default(),
            mtime: Utime::new(1, 2),
            return_code: -2,
            op_returns: vec![OpReturn::default()],
            dirty: Dirty::NOTHING,
        };
        let raw = entry.to_bytes();
        assert_eq!(LogEntry::from_bytes(raw.clone()), Ok(entry.clone()));
        assert!((0..raw.len()).all(|cut| LogEntry::from_bytes(raw.slice(..cut)).is_err()));
        let mut old = raw.slice(..raw.len() - entry.dirty.to_bytes().len()).to_vec();
        old[0] = 1;
        let len = u32::try_from(old.len() - 6).expect("short");
        old[2..6].copy_from_slice(&len.to_le_bytes());
        assert_eq!(LogEntry::from_bytes(old), Ok(LogEntry { dirty: Dirty::ALL, ..entry }));
    }
}

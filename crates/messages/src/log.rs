//! The cluster log: entries that daemons send to the monitors.

use codec::{Decode, DecodeError, Encode, Reader, Writer};
use types::{AddrVec, AuthName, EntityAddr, EntityName, Fsid, Utime};

use crate::payload::{PaxosVersion, message};
use crate::type_numbers;

/// Priorities of entries. Source: clog_type in src/common/LogEntry.h.
pub mod log_priority {
    pub const DEBUG: u16 = 0;
    pub const INFO: u16 = 1;
    pub const SECURITY: u16 = 2;
    pub const WARN: u16 = 3;
    pub const ERROR: u16 = 4;
}

/// Source: LogEntry in src/common/LogEntry.cc (version 5).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LogEntry {
    pub name: AuthName,
    pub rank: EntityName,
    pub addrs: AddrVec,
    pub stamp: Utime,
    /// Counts the sender's entries.
    pub seq: u64,
    /// `log_priority::*`.
    pub priority: u16,
    pub text: String,
    /// `cluster` or `audit`.
    pub channel: String,
}

impl Encode for LogEntry {
    fn encode(&self, w: &mut Writer) {
        w.envelope(5, 5, |w| {
            self.name.encode(w);
            self.rank.encode(w);
            self.addrs.encode(w);
            self.stamp.encode(w);
            w.u64(self.seq);
            w.u16(self.priority);
            self.text.encode(w);
            self.channel.encode(w);
        });
    }
}
impl Decode for LogEntry {
    const MIN_SIZE: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("LogEntry", 5, |r, env| match env.version {
            0..4 => Err(DecodeError::Invalid { what: "LogEntry version", value: env.version.into() }),
            4 => {
                let (rank, addr) = (EntityName::decode(r)?, EntityAddr::decode(r)?);
                let mut entry = decode_tail(r)?;
                entry.name = AuthName::decode(r)?;
                (entry.rank, entry.addrs) = (rank, AddrVec::single(addr));
                Ok(entry)
            }
            _ => {
                let (name, rank, addrs) = (AuthName::decode(r)?, EntityName::decode(r)?, AddrVec::decode(r)?);
                Ok(Self { name, rank, addrs, ..decode_tail(r)? })
            }
        })
    }
}

fn decode_tail(r: &mut Reader) -> Result<LogEntry, DecodeError> {
    Ok(LogEntry {
        stamp: Utime::decode(r)?,
        seq: r.u64()?,
        priority: r.u16()?,
        text: String::decode(r)?,
        channel: String::decode(r)?,
        ..LogEntry::default()
    })
}

message! {
    /// Source: src/messages/MLog.h.
    #[derive(Default)]
    MLog = type_numbers::LOG, "log", 1, 1 {
        version: PaxosVersion,
        fsid: Fsid,
        entries: Vec<LogEntry>,
    }
}

message! {
    /// The entries up to `last` are kept. Source: src/messages/MLogAck.h.
    #[derive(Default)]
    MLogAck = type_numbers::LOG_ACK, "log_ack", 1, 1, HIGH {
        fsid: Fsid,
        last: u64,
        channel: String,
    }
}

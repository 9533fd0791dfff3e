//! Requests of the transmission phase: the header's checks, and what the server hands on.

use bytes::Bytes;

use crate::export::Export;
use crate::limits::MAX_PAYLOAD;
use crate::take::{Malformed, Take};
use crate::wire::{REQUEST_MAGIC, command, command_flag as flag};

/// A request that was checked against its export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The client's name for the request, given back with the reply.
    pub cookie: u64,
    pub command: Command,
}

/// What is asked; offsets and lengths are in bytes and inside the export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// `whole`: the reply must be one piece (DF).
    Read {
        offset: u64,
        len: u32,
        whole: bool,
    },
    /// `fua`: durable before the reply.
    Write {
        offset: u64,
        data: Bytes,
        fua: bool,
    },
    Flush,
    Trim {
        offset: u64,
        len: u32,
        fua: bool,
    },
    /// `punch`: the range may be deallocated; without it the space stays reserved where that means something.
    WriteZeroes {
        offset: u64,
        len: u32,
        fua: bool,
        punch: bool,
    },
    /// `one`: only the first extent is wanted (REQ_ONE).
    BlockStatus {
        offset: u64,
        len: u32,
        one: bool,
    },
    Cache {
        offset: u64,
        len: u32,
    },
}

/// Errors a reply can carry; clients know no others.
///
/// Source: doc/proto.md, "Error values".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum NbdError {
    NotPermitted = 1,
    Io = 5,
    Invalid = 22,
    NoSpace = 28,
    Overflow = 75,
    NotSupported = 95,
    Shutdown = 108,
}

impl NbdError {
    /// The nearest error that the protocol has for an errno of Linux.
    #[must_use]
    pub fn from_errno(errno: i32) -> Self {
        match errno.abs() {
            1 | 13 | 30 => Self::NotPermitted,
            22 => Self::Invalid,
            28 | 122 => Self::NoSpace,
            75 => Self::Overflow,
            95 => Self::NotSupported,
            108 => Self::Shutdown,
            _ => Self::Io,
        }
    }
}

/// The first 28 bytes of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    pub flags: u16,
    pub kind: u16,
    pub cookie: u64,
    pub offset: u64,
    pub len: u32,
}

pub const HEADER_LEN: usize = 28;

impl Header {
    /// # Errors
    /// The magic is wrong: the stream is out of step.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut take = Take(bytes);
        if take.u32()? != REQUEST_MAGIC {
            return Err(Malformed);
        }
        Ok(Self {
            flags: take.u16()?,
            kind: take.u16()?,
            cookie: take.u64()?,
            offset: take.u64()?,
            len: take.u32()?,
        })
    }

    /// Bytes behind the header that belong to the request.
    pub fn payload_len(&self) -> usize {
        if self.kind == command::WRITE { self.len as usize } else { 0 }
    }

    /// The checked command; `Err` is what the client is answered, the connection goes on.
    pub fn check(
        &self,
        payload: Bytes,
        export: &Export,
        structured: bool,
        allocation: bool,
    ) -> Result<Command, NbdError> {
        let (offset, len) = (self.offset, self.len);
        let is_write = matches!(self.kind, command::WRITE | command::TRIM | command::WRITE_ZEROES);
        if is_write && export.read_only {
            return Err(NbdError::NotPermitted);
        }
        self.check_flags(structured)?;
        if self.kind == command::FLUSH {
            return if offset == 0 && len == 0 { Ok(Command::Flush) } else { Err(NbdError::Invalid) };
        }
        if offset.checked_add(u64::from(len)).is_none_or(|end| end > export.size) {
            return Err(if is_write { NbdError::NoSpace } else { NbdError::Invalid });
        }
        let fua = self.flags & flag::FUA != 0;
        match self.kind {
            command::READ if len > MAX_PAYLOAD => Err(NbdError::Overflow),
            command::READ => Ok(Command::Read { offset, len, whole: self.flags & flag::DF != 0 }),
            command::WRITE => Ok(Command::Write { offset, data: payload, fua }),
            command::TRIM => Ok(Command::Trim { offset, len, fua }),
            command::WRITE_ZEROES => {
                Ok(Command::WriteZeroes { offset, len, fua, punch: self.flags & flag::NO_HOLE == 0 })
            }
            command::BLOCK_STATUS if !allocation || len == 0 => Err(NbdError::Invalid),
            command::BLOCK_STATUS => {
                Ok(Command::BlockStatus { offset, len, one: self.flags & flag::REQ_ONE != 0 })
            }
            command::CACHE => Ok(Command::Cache { offset, len }),
            _ => Err(NbdError::Invalid),
        }
    }

    fn check_flags(&self, structured: bool) -> Result<(), NbdError> {
        // FUA on a command that writes nothing has no meaning and is let through, as the protocol asks.
        let allowed = flag::FUA
            | match self.kind {
                command::READ if structured => flag::DF,
                command::WRITE_ZEROES => flag::NO_HOLE,
                command::BLOCK_STATUS => flag::REQ_ONE,
                _ => 0,
            };
        if self.flags & !allowed == 0 { Ok(()) } else { Err(NbdError::Invalid) }
    }
}

//! Why the store refused, ordered by who is to blame: the medium, its size, the device, the format, the
//! caller.

use types::{Errno, Fsid};

use crate::{DeviceError, ObjectKey};

/// A store operation failed; nothing of it was applied.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum StoreError {
    /// The medium returned other bytes than were written to it.
    #[error("corrupt medium: {0}")]
    Corrupt(#[from] Corruption),
    /// Not enough free space; decided before anything changed. Deletes still work.
    #[error("full: needs {needed_bytes} bytes, {available_bytes} available")]
    Full { needed_bytes: u64, available_bytes: u64 },
    /// The device failed a call.
    #[error(transparent)]
    Device(DeviceError),
    /// An earlier write or flush failed, so what is durable is unknown: the store does no further work until
    /// reopened.
    #[error("stopped after an earlier failure of the device")]
    Stopped,
    /// No store was ever formatted here, or it belongs to another OSD or cluster.
    #[error("foreign device: {0}")]
    Foreign(Foreign),
    /// Written by a newer release in a way that this one must not touch.
    #[error("newer format: version {version}, unknown incompat flags {incompat:#x}{}", named(*incompat))]
    Newer { version: u32, incompat: u64 },
    /// The caller asked for something that makes no sense; never the medium's fault.
    #[error("misuse: {0}")]
    Misuse(Misuse),
}

/// What kind of structure is damaged, and where.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Corruption {
    /// Neither copy of the superblock is whole, or both are older than the log says.
    #[error("superblock")]
    Superblock,
    /// A log record that is known to have been durable does not verify.
    #[error("log record {record} at byte {offset}")]
    Log { record: u64, offset: u64 },
    /// A metadata page does not verify.
    #[error("metadata page at block {block}")]
    Page { block: u64 },
    /// A part of the allocation map does not verify.
    #[error("allocation map region {region}")]
    AllocMap { region: u64 },
    /// Object data does not match its checksum: the byte range of the first bad block.
    #[error("{len} bytes of data at {offset} do not match their checksum")]
    Data { key: Box<ObjectKey>, offset: u64, len: u64 },
    /// A value that verified but does not decode.
    #[error("undecodable {what}")]
    Value { what: &'static str },
}

/// Why a device is not ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Foreign {
    #[error("no superblock")]
    NotAStore,
    #[error("cluster {found}, expected {expected}")]
    Cluster { found: Fsid, expected: Fsid },
    #[error("OSD {found}, expected {expected}")]
    Osd { found: Fsid, expected: Fsid },
    #[error("device has {found} bytes, the store was made for {expected}")]
    Length { found: u64, expected: u64 },
}

/// What the caller did wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Misuse {
    #[error("device too small")]
    DeviceTooSmall,
    #[error("range ends past the largest object")]
    ObjectTooLarge,
    #[error("transaction larger than the log can hold")]
    TxnTooLarge,
    #[error("clone source does not exist")]
    NoCloneSource,
    #[error("what is to be moved is not there as stated")]
    BadMove,
    #[error("the key is not an object's")]
    BadKey,
    #[error("a commit or checkpoint that was not handed out")]
    WrongJob,
}

impl From<DeviceError> for StoreError {
    /// Nothing is known to be wrong with an object that a closed device does not read: it must not be
    /// repaired.
    fn from(error: DeviceError) -> Self {
        match error {
            DeviceError::Closed { .. } => Self::Stopped,
            DeviceError::Io { .. } | DeviceError::OutOfRange { .. } => Self::Device(error),
        }
    }
}

impl StoreError {
    /// The one mapping to an errno.
    pub fn errno(&self) -> Errno {
        match self {
            Self::Corrupt(_) | Self::Device(_) | Self::Stopped => Errno::EIO,
            Self::Full { .. } => Errno::ENOSPC,
            Self::Foreign(_) | Self::Newer { .. } => Errno::ENODEV,
            Self::Misuse(Misuse::ObjectTooLarge) => Errno::EFBIG,
            Self::Misuse(Misuse::TxnTooLarge) => Errno::E2BIG,
            Self::Misuse(Misuse::NoCloneSource) => Errno::ENOENT,
            Self::Misuse(Misuse::DeviceTooSmall) => Errno::ENOSPC,
            Self::Misuse(Misuse::BadKey | Misuse::BadMove | Misuse::WrongJob) => Errno::EINVAL,
        }
    }
}

/// Incompat flags that are kept for later formats (FORMAT.md), so that this release can say what it lacks.
const RESERVED: [(u64, &str); 4] =
    [(2, "shards of erasure-coded PGs"), (4, "compression"), (8, "encryption"), (16, "a second device")];

fn named(incompat: u64) -> String {
    let wanted = RESERVED.iter().filter(|(flag, _)| incompat & flag != 0).map(|(_, name)| *name);
    let wanted: Vec<&str> = wanted.collect();
    if wanted.is_empty() { String::new() } else { format!(" ({})", wanted.join(", ")) }
}

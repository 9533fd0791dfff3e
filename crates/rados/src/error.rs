//! What can go wrong, by whose fault.

use codec::DecodeError;
use types::Errno;

use crate::conf::ConfError;

pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation did not succeed. [`Error::errno`] gives the number that librados would return.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The cluster answered with an error.
    #[error("{0}")]
    Os(Errno),
    /// `cmpext` found other bytes than it was given; the first that differs is at this offset of the comparison.
    #[error("the contents differ at byte {offset} of the comparison")]
    Mismatch { offset: u64 },
    /// A command failed, with the daemon's words.
    #[error("{status} {errno}")]
    Command { errno: Errno, status: String },
    /// The configuration cannot be used.
    #[error("{0}")]
    Config(String),
    /// The configuration file cannot be read.
    #[error(transparent)]
    Conf(#[from] ConfError),
    /// The monitors do not let us in.
    #[error("the monitors refuse {name}: {errno}")]
    Refused { name: String, errno: Errno },
    /// No monitor answered in time.
    #[error("no monitor answered within {seconds} s")]
    Unreachable { seconds: u64 },
    /// The peer's answer cannot be read.
    #[error("the answer cannot be read: {0}")]
    BadReply(#[from] DecodeError),
    /// The cluster handle is gone.
    #[error("the connection to the cluster is shut down")]
    ShutDown,
}

/// Results below this are not errors but where `cmpext` found a difference. Source: MAX_ERRNO in src/include/err.h.
const MAX_ERRNO: i32 = 4095;

impl Error {
    /// From a negative result.
    pub(crate) fn of(result: i32) -> Self {
        match result.unsigned_abs().checked_sub(MAX_ERRNO as u32) {
            Some(offset) => Self::Mismatch { offset: offset.into() },
            None => Self::Os(Errno(result.saturating_neg())),
        }
    }

    /// The error number that a caller of librados would see.
    pub fn errno(&self) -> Errno {
        match self {
            Self::Os(errno) | Self::Command { errno, .. } | Self::Refused { errno, .. } => *errno,
            Self::Mismatch { .. } => Errno::ECANCELED,
            Self::Config(_) | Self::Conf(_) => Errno::EINVAL,
            Self::Unreachable { .. } => Errno::ETIMEDOUT,
            Self::BadReply(_) => Errno::EIO,
            Self::ShutDown => Errno::ESHUTDOWN,
        }
    }

    /// Whether the object, pool or key is not there.
    pub fn is_not_found(&self) -> bool {
        self.errno() == Errno::ENOENT
    }
}

impl From<Errno> for Error {
    fn from(errno: Errno) -> Self {
        Self::Os(errno)
    }
}

/// `Ok` for results that are not negative.
pub(crate) fn check(result: i32) -> Result<i32> {
    if result < 0 { Err(Error::of(result)) } else { Ok(result) }
}

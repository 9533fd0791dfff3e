//! How a call may fail.

use types::Errno;

/// The server's or the caller's fault is an errno, as with system calls.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{0}")]
    Os(Errno),
    /// The mount was dropped.
    #[error("the file system is not mounted any more")]
    ShutDown,
    #[error(transparent)]
    Cluster(#[from] rados::Error),
}

pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::Os(errno) => Some(*errno),
            Self::ShutDown | Self::Cluster(_) => None,
        }
    }
}

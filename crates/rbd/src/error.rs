//! What can go wrong with an image.

use types::Errno;

pub type Result<T> = std::result::Result<T, Error>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The cluster answered with an error.
    #[error("{what}: {cause}")]
    Cluster { what: String, cause: rados::Error },
    /// The caller asked for something that this image does not allow.
    #[error("{what}: {errno}")]
    Refused { errno: Errno, what: String },
    /// A stream that is read or written failed, or is no stream of the expected format.
    #[error(transparent)]
    Stream(#[from] std::io::Error),
}

impl Error {
    #[must_use]
    pub fn refused(errno: Errno, what: impl Into<String>) -> Self {
        Self::Refused { errno, what: what.into() }
    }

    /// The number that librbd would return.
    #[must_use]
    pub fn errno(&self) -> Errno {
        match self {
            Self::Cluster { cause, .. } => cause.errno(),
            Self::Refused { errno, .. } => *errno,
            Self::Stream(e) => Errno(e.raw_os_error().unwrap_or(Errno::EINVAL.0)),
        }
    }

    #[must_use]
    pub fn is_not_found(&self) -> bool {
        self.errno() == Errno::ENOENT
    }
}

impl From<rados::Error> for Error {
    fn from(cause: rados::Error) -> Self {
        Self::Cluster { what: "the cluster".into(), cause }
    }
}

impl From<codec::DecodeError> for Error {
    fn from(e: codec::DecodeError) -> Self {
        Self::Cluster { what: "an image's metadata".into(), cause: e.into() }
    }
}

/// Says what was done when it failed.
pub(crate) trait Context<T> {
    fn context(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T> Context<T> for rados::Result<T> {
    fn context(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|cause| Error::Cluster { what: what(), cause })
    }
}

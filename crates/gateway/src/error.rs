//! Why an operation failed.

use codec::DecodeError;
use types::Errno;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    // The caller's.
    NoSuchUser,
    UserExists,
    /// Another user has the access key, or the Swift name.
    KeyTaken,
    EmailTaken,
    UserHasBuckets,
    NoSuchSubuser,
    NoSuchBucket,
    BucketExists,
    BucketNotEmpty,
    TooManyBuckets,
    /// The bucket, or all that its owner has, would be larger than it may be.
    QuotaExceeded,
    NoSuchKey,
    PreconditionFailed,
    NoSuchUpload,
    /// There is no such part, or it is another one than the caller knows.
    InvalidPart,
    PartTooSmall,
    /// Sums of parts, or of the whole, are others than the caller knows.
    BadChecksum,
    /// Parts have sums of other kinds than the upload was begun for.
    OtherChecksum,
    /// The parts are more or fewer bytes than the caller knows.
    OtherSize,
    /// The bucket keeps versions, and what is asked for is a matter of those that do not.
    Versioned,
    /// A lock keeps the version.
    Locked,
    /// The object is encrypted, and its key was not given.
    Encrypted,
    /// There is no such placement target, or no such storage class.
    NoSuchPlacement,
    InvalidArgument,
    /// The zone is one of a realm, which this core does not work in yet.
    Realm,
    // Of the moment: what others did meanwhile. The caller may begin anew.
    /// Another one changed it first.
    Raced,
    /// The bucket's index moves to other shards; the bucket is to be read anew when it has.
    Resharding,
    // The medium's.
    /// What is stored does not decode.
    Damaged(DecodeError),
    // The cluster's.
    Rados(Errno),
    /// A reply has something else than was asked for.
    Unexpected,
}

impl From<DecodeError> for Error {
    fn from(e: DecodeError) -> Self {
        Self::Damaged(e)
    }
}

/// What an index answers while it is being resharded. Source: ERR_BUSY_RESHARDING in src/rgw/rgw_common.h.
pub const BUSY_RESHARDING: i32 = 2300;

impl From<Errno> for Error {
    fn from(e: Errno) -> Self {
        match e {
            Errno::ECANCELED => Self::Raced,
            Errno(BUSY_RESHARDING) => Self::Resharding,
            other => Self::Rados(other),
        }
    }
}

impl Error {
    /// Whether a request that ended so may still be done, or be done already: its client went, waited too
    /// long, or could not read what it was told.
    pub(crate) fn is_unclear(&self) -> bool {
        matches!(self, Self::Rados(Errno::ETIMEDOUT | Errno::ESHUTDOWN | Errno::EIO))
    }

    /// As administrators' tools end.
    pub fn errno(self) -> Errno {
        match self {
            Self::NoSuchUser | Self::NoSuchBucket | Self::NoSuchKey => Errno::ENOENT,
            Self::NoSuchSubuser | Self::NoSuchUpload => Errno::ENOENT,
            Self::UserExists | Self::KeyTaken | Self::EmailTaken | Self::BucketExists => Errno::EEXIST,
            Self::UserHasBuckets | Self::BucketNotEmpty => Errno::ENOTEMPTY,
            Self::TooManyBuckets | Self::QuotaExceeded => Errno::EDQUOT,
            Self::NoSuchPlacement | Self::InvalidArgument => Errno::EINVAL,
            Self::InvalidPart | Self::PartTooSmall => Errno::EINVAL,
            Self::BadChecksum | Self::OtherChecksum | Self::OtherSize => Errno::EINVAL,
            Self::PreconditionFailed | Self::Raced => Errno::ECANCELED,
            Self::Locked | Self::Encrypted => Errno::EACCES,
            Self::Versioned | Self::Realm => Errno::EOPNOTSUPP,
            Self::Resharding => Errno::EBUSY,
            Self::Damaged(_) | Self::Unexpected => Errno::EIO,
            Self::Rados(errno) => errno,
        }
    }
}

//! What failed, in S3's words. Codes that S3's library knows are made by its `s3_error!` where there is more
//! to say than the code, and by `S3ErrorCode::into` where there is not; others by [`custom`].

use gateway::Error;
use hyper::StatusCode;
use s3s::{S3Error, S3ErrorCode, s3_error};
use types::Errno;

/// A code that the library has no name for.
pub fn custom(code: &'static str, status: u16) -> S3Error {
    let mut error = S3Error::new(S3ErrorCode::Custom(code.into()));
    error.set_status_code(StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_REQUEST));
    error
}

pub fn not_served(what: &'static str) -> S3Error {
    S3Error::with_message(S3ErrorCode::NotImplemented, what)
}

/// Source: the table rgw_http_s3_errors in src/rgw/rgw_common.cc.
pub fn of(error: Error) -> S3Error {
    match error {
        Error::NoSuchUser | Error::NoSuchSubuser => S3ErrorCode::AccessDenied.into(),
        Error::NoSuchBucket => S3ErrorCode::NoSuchBucket.into(),
        Error::BucketExists | Error::UserExists | Error::KeyTaken | Error::EmailTaken => {
            S3ErrorCode::BucketAlreadyExists.into()
        }
        Error::BucketNotEmpty | Error::UserHasBuckets => S3ErrorCode::BucketNotEmpty.into(),
        Error::TooManyBuckets => custom("TooManyBuckets", 400),
        Error::QuotaExceeded => custom("QuotaExceeded", 403),
        Error::NoSuchKey => S3ErrorCode::NoSuchKey.into(),
        Error::PreconditionFailed => S3ErrorCode::PreconditionFailed.into(),
        Error::NoSuchUpload => S3ErrorCode::NoSuchUpload.into(),
        Error::InvalidPart => S3ErrorCode::InvalidPart.into(),
        Error::PartTooSmall => S3ErrorCode::EntityTooSmall.into(),
        Error::BadChecksum => S3ErrorCode::BadDigest.into(),
        Error::OtherChecksum => s3_error!(InvalidRequest, "parts have checksums of other kinds"),
        Error::OtherSize => s3_error!(InvalidRequest, "the parts have another size than is said"),
        Error::Versioned => s3_error!(OperationAborted, "the bucket began to keep versions at the same time"),
        Error::Locked => S3ErrorCode::AccessDenied.into(),
        Error::Encrypted => s3_error!(InvalidRequest, "the object is encrypted, and its key was not given"),
        Error::Realm => not_served("zones of a realm are not served"),
        Error::NoSuchPlacement => S3ErrorCode::InvalidStorageClass.into(),
        Error::InvalidArgument => S3ErrorCode::InvalidArgument.into(),
        Error::Raced => s3_error!(OperationAborted, "another one changed it at the same time"),
        Error::Resharding | Error::Rados(Errno::ETIMEDOUT) => S3ErrorCode::ServiceUnavailable.into(),
        Error::Rados(Errno::ENOSPC | Errno::EDQUOT) => custom("InsufficientCapacity", 507),
        Error::Damaged(_) | Error::Rados(_) | Error::Unexpected => {
            tracing::error!("a request failed: {error:?}");
            S3ErrorCode::InternalError.into()
        }
    }
}

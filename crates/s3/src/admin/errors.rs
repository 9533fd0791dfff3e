//! What failed, in the words of this API, which differ from S3's where a user is what is missing or taken.
//! Source: the table rgw_http_s3_errors in src/rgw/rgw_common.cc.

use gateway::Error;
use s3s::S3Error;

use crate::errors::{self, custom};

pub fn of(error: Error) -> S3Error {
    match error {
        Error::NoSuchUser => custom("NoSuchUser", 404),
        Error::UserExists => custom("UserAlreadyExists", 409),
        Error::KeyTaken => custom("KeyExists", 409),
        Error::EmailTaken => custom("EmailExists", 409),
        Error::NoSuchSubuser => custom("NoSuchSubUser", 404),
        // radosgw answers with BucketAlreadyExists, for want of a code.
        Error::UserHasBuckets => custom("BucketAlreadyExists", 409),
        other => errors::of(other),
    }
}

pub fn invalid_access_key() -> S3Error {
    custom("InvalidAccessKeyId", 403)
}

pub fn invalid_secret() -> S3Error {
    custom("InvalidSecretKey", 400)
}

pub fn invalid_key_type() -> S3Error {
    custom("InvalidKeyType", 400)
}

pub fn invalid_capability() -> S3Error {
    custom("InvalidCapability", 400)
}

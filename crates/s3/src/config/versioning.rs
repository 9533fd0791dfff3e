//! Whether a bucket keeps versions. Source: RGWSetBucketVersioning and its like in src/rgw/rgw_op.cc and
//! src/rgw/rgw_rest_s3.cc.

use hyper::{Response, StatusCode};
use rgw::Versioning;
use rgw::policy::Action;
use s3s::{Body, S3ErrorCode, S3Result, s3_error};

use super::{Asked, empty};
use crate::state::Gateway;
use crate::xml::{Document, Element};
use crate::{errors, state};

const ROOT: &str = "VersioningConfiguration";

pub async fn get(gateway: &Gateway, asked: Asked) -> S3Result<Response<Body>> {
    let view = gateway.own_bucket(&asked.caller, &asked.bucket, Action::GetBucketVersioning).await?;
    let flags = view.info.flags;
    let mut document = Document::new(ROOT);
    // Of one that never kept any nothing is said.
    if flags.has(Versioning::VERSIONED) {
        let suspended = flags.has(Versioning::VERSIONS_SUSPENDED);
        document.text("Status", if suspended { "Suspended" } else { "Enabled" });
        document.text("MfaDelete", if flags.has(Versioning::MFA) { "Enabled" } else { "Disabled" });
    }
    Ok(document.done(ROOT))
}

/// Whether versions are suspended.
fn read(document: &[u8]) -> S3Result<bool> {
    let root = Element::read(document, ROOT)?;
    match root.text_of("MfaDelete").map(str::trim) {
        None | Some("Disabled") => {}
        Some("Enabled") => return Err(errors::not_served("one-time passwords are not served")),
        Some(_) => return Err(s3_error!(InvalidArgument)),
    }
    match root.text_of("Status").map(str::trim) {
        Some("Enabled") => Ok(false),
        Some("Suspended") => Ok(true),
        // As radosgw answers.
        _ => Err(s3_error!(InvalidArgument)),
    }
}

pub async fn put(gateway: &Gateway, asked: Asked) -> S3Result<Response<Body>> {
    let view = gateway.own_bucket(&asked.caller, &asked.bucket, Action::PutBucketVersioning).await?;
    let suspended = read(&asked.document)?;
    if view.info.flags.has(Versioning::OBJECT_LOCK) && suspended {
        return Err(errors::custom("InvalidBucketState", 409));
    }
    // Who changes what is deleted with a password has to give one.
    if view.info.flags.has(Versioning::MFA) {
        return Err(S3ErrorCode::AccessDenied.into());
    }
    let change = move |info: &mut rgw::BucketInfo, _: &mut crate::attrs::Attrs| {
        let Versioning(flags) = info.flags;
        let flags = (flags | Versioning::VERSIONED) & !Versioning::VERSIONS_SUSPENDED;
        let more = if suspended { Versioning::VERSIONS_SUSPENDED } else { 0 };
        info.flags = Versioning(flags | more);
    };
    gateway.change_bucket(&asked.caller, &view, change).await?;
    Ok(empty(StatusCode::OK))
}

/// Refuses to take versions of a bucket away where that asks for a one-time password. Source:
/// RGWDeleteObj::verify_permission and RGWDeleteMultiObj::verify_permission.
pub fn check_password(view: &state::BucketView, names_version: bool) -> S3Result<()> {
    match names_version && view.info.flags.has(Versioning::MFA) {
        true => Err(S3ErrorCode::AccessDenied.into()),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_status_is_one_of_two() {
        let read = |inner: &str| {
            let document = format!("<VersioningConfiguration>{inner}</VersioningConfiguration>");
            super::read(document.as_bytes()).map_err(|e| e.code().as_str().to_owned())
        };
        assert_eq!(read("<Status>Enabled</Status>"), Ok(false));
        assert_eq!(read("<Status> Suspended </Status><MfaDelete>Disabled</MfaDelete>"), Ok(true));
        for wrong in ["", "<Status>enabled</Status>", "<Status>Enabled</Status><MfaDelete>x</MfaDelete>"] {
            assert_eq!(read(wrong), Err("InvalidArgument".into()), "{wrong}");
        }
        let locked = "<Status>Enabled</Status><MfaDelete>Enabled</MfaDelete>";
        assert_eq!(read(locked), Err("NotImplemented".into()));
        assert!(super::read(b"<Other/>").is_err());
    }
}

//! Lists of grants.

use codec::Encode;
use rgw::{AccessControl, Key, Owner, Permissions};
use s3s::dto::*;
use s3s::{S3ErrorCode, S3Request, S3Response, S3Result};

use super::reader;
use crate::rights::{self, Does};
use crate::state::{Gateway, caller, now};
use crate::{attrs, errors, grants};

pub async fn get_bucket_acl(
    gateway: &Gateway,
    request: S3Request<GetBucketAclInput>,
) -> S3Result<S3Response<GetBucketAclOutput>> {
    let caller = caller(&request);
    let name = &request.input.bucket;
    let view = gateway.bucket_for(&caller, name, Does::Read, Permissions::READ_ACL).await?;
    let (grants, owner) = (Some(grants::shown(&view.acl)), Some(grants::owner(&view.acl.owner)));
    Ok(S3Response::new(GetBucketAclOutput { grants, owner }))
}

pub async fn get_object_acl(
    gateway: &Gateway,
    request: S3Request<GetObjectAclInput>,
) -> S3Result<S3Response<GetObjectAclOutput>> {
    let (caller, input) = (caller(&request), &request.input);
    if input.version_id.is_some() {
        return Err(errors::not_served("versions are not served"));
    }
    let view = gateway.bucket(&caller, &input.bucket).await?;
    let head = reader::head(gateway, &caller, &view, &Key::plain(input.key.clone())).await?;
    let acl = attrs::acl(&head)?;
    let may = rights::allows_object(&view.acl, &acl, &caller, Permissions::READ_ACL, view.groups());
    if !may || !caller.may(Does::Read) {
        return Err(S3ErrorCode::AccessDenied.into());
    }
    let (grants, owner) = (Some(grants::shown(&acl)), Some(grants::owner(&acl.owner)));
    Ok(S3Response::new(GetObjectAclOutput { grants, owner, ..GetObjectAclOutput::default() }))
}

/// The list that a request asks for; canned ones alone are served.
fn asked(input: &PutBucketAclInput, owner: Owner) -> S3Result<AccessControl> {
    let given = input.acl.as_ref().map(|acl| acl.as_str());
    if given.is_none() || input.access_control_policy.is_some() {
        return Err(errors::not_served("other than canned ACLs are not served"));
    }
    grants::canned(given, owner.clone(), &owner)
}

pub async fn put_bucket_acl(
    gateway: &Gateway,
    request: S3Request<PutBucketAclInput>,
) -> S3Result<S3Response<PutBucketAclOutput>> {
    let (caller, input) = (caller(&request), request.input);
    gateway.bucket_for(&caller, &input.bucket, Does::Write, Permissions::WRITE_ACL).await?;
    let view = gateway.fresh_bucket(&caller, &input.bucket).await?;
    let acl = asked(&input, view.acl.owner.clone())?;
    if !view.takes(&acl) {
        return Err(S3ErrorCode::AccessDenied.into());
    }
    let changed = gateway.site().modify_bucket(view.state, now(), move |_, attrs| {
        attrs.insert(attrs::ACL.into(), acl.to_bytes());
        Ok(())
    });
    let changed = gateway.run(changed).await;
    gateway.forget_bucket(&caller, &input.bucket);
    changed.map_err(errors::of)?;
    Ok(S3Response::new(PutBucketAclOutput {}))
}

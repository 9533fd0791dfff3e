//! Lists of grants. Source: RGWGetACLs and RGWPutACLs in src/rgw/rgw_op.cc.

use codec::Encode;
use gateway::Error;
use hyper::{Response, StatusCode};
use rgw::policy::Action;
use rgw::{AccessControl, Owner};
use s3s::{Body, S3ErrorCode, S3Result, s3_error};

use super::ownership::check_lists;
use super::{Asked, empty};
use crate::ops::reader;
use crate::rights::Target;
use crate::state::{BucketView, Gateway};
use crate::{attrs, errors, grants};

pub async fn get(gateway: &Gateway, asked: Asked) -> S3Result<Response<Body>> {
    let Some(key) = &asked.key else {
        let view = gateway.bucket_for(&asked.caller, &asked.bucket, Action::GetBucketAcl).await?;
        return Ok(grants::document(&view.acl));
    };
    let view = gateway.bucket(&asked.caller, &asked.bucket).await?;
    let head = reader::head(gateway, &asked.caller, &view, &asked.key()).await?;
    let acl = attrs::acl(&head)?;
    let target = Target { key: key.as_bytes(), acl: &acl, attrs: &head.attrs };
    match view.may_with(&asked.caller, asked.action(Action::GetObjectAcl), &target) {
        true => Ok(grants::document(&acl)),
        false => Err(S3ErrorCode::AccessDenied.into()),
    }
}

/// The list that a request asks for, in place of one.
async fn wanted(
    gateway: &Gateway,
    asked: &Asked,
    view: &BucketView,
    owner: &Owner,
) -> S3Result<AccessControl> {
    let has_canned = asked.headers.get("x-amz-acl").is_some_and(|canned| !canned.is_empty());
    if has_canned && !asked.document.is_empty() {
        return Err(S3ErrorCode::InvalidArgument.into());
    }
    let acl = match has_canned || grants::has_headers(&asked.headers) {
        true => grants::of_headers(gateway, &asked.headers, owner.clone(), &view.acl.owner).await?,
        false => grants::of_document(&asked.document)?,
    };
    let acl = grants::known(gateway, acl, owner).await?;
    match view.takes(&acl) {
        true => Ok(acl),
        false => Err(S3ErrorCode::AccessDenied.into()),
    }
}

pub async fn put(gateway: &Gateway, asked: Asked) -> S3Result<Response<Body>> {
    match asked.key {
        Some(_) => put_object(gateway, asked).await,
        None => put_bucket(gateway, asked).await,
    }
}

async fn put_bucket(gateway: &Gateway, asked: Asked) -> S3Result<Response<Body>> {
    let view = gateway.bucket_for(&asked.caller, &asked.bucket, Action::PutBucketAcl).await?;
    check_lists(&view)?;
    let acl = wanted(gateway, &asked, &view, &view.acl.owner).await?;
    let set = Some(acl.to_bytes());
    gateway.set_bucket_attr(&asked.caller, &view, attrs::ACL.as_bytes(), set).await?;
    Ok(empty(StatusCode::OK))
}

async fn put_object(gateway: &Gateway, asked: Asked) -> S3Result<Response<Body>> {
    let view = gateway.bucket(&asked.caller, &asked.bucket).await?;
    let key = asked.key();
    let head = reader::head(gateway, &asked.caller, &view, &key).await?;
    let acl = attrs::acl(&head)?;
    let target = Target { key: &key.name, acl: &acl, attrs: &head.attrs };
    if !view.may_with(&asked.caller, asked.action(Action::PutObjectAcl), &target) {
        return Err(S3ErrorCode::AccessDenied.into());
    }
    check_lists(&view)?;
    let acl = wanted(gateway, &asked, &view, &acl.owner).await?;
    let change = vec![(attrs::ACL.into(), Some(acl.to_bytes()))];
    let set = gateway.now(|moment| gateway.site().set_attrs(&view.info, &key, head, change, moment)).await;
    match set {
        Ok(_) => Ok(empty(StatusCode::OK)),
        // radosgw answers success, though the list of grants may be what it was.
        Err(Error::Raced) => {
            Err(s3_error!(OperationAborted, "another one changed the object at the same time"))
        }
        Err(e) => Err(errors::of(e)),
    }
}

//! Tags of objects and buckets. Source: RGWPutObjTags and its like in src/rgw/rgw_op.cc.

use bytes::Bytes;
use gateway::{Error, Head};
use hyper::{Response, StatusCode};
use rgw::policy::Action;
use s3s::{Body, S3ErrorCode, S3Result, s3_error};

use super::{Asked, empty};
use crate::ops::reader;
use crate::rights::Target;
use crate::state::Gateway;
use crate::{attrs, errors, tags};

const ATTR: &[u8] = attrs::TAGGING.as_bytes();

/// The head of an object with whose tags the caller may do something.
async fn head(
    gateway: &Gateway,
    asked: &Asked,
    action: Action,
) -> S3Result<(std::sync::Arc<crate::state::BucketView>, Head)> {
    let view = gateway.bucket(&asked.caller, &asked.bucket).await?;
    let key = asked.key();
    let head = reader::head(gateway, &asked.caller, &view, &key).await?;
    let acl = attrs::acl(&head)?;
    let target = Target { key: &key.name, acl: &acl, attrs: &head.attrs };
    match view.may_with(&asked.caller, asked.action(action), &target) {
        true => Ok((view, head)),
        false => Err(S3ErrorCode::AccessDenied.into()),
    }
}

async fn set(gateway: &Gateway, asked: &Asked, action: Action, value: Option<Bytes>) -> S3Result<()> {
    let (view, head) = head(gateway, asked, action).await?;
    if value.is_none() && !head.attrs.contains_key(ATTR) {
        return Ok(());
    }
    let change = vec![(Bytes::from_static(ATTR), value)];
    let key = asked.key();
    let set = gateway.now(|moment| gateway.site().set_attrs(&view.info, &key, head, change, moment)).await;
    match set {
        Ok(_) => Ok(()),
        Err(Error::Raced) => {
            Err(s3_error!(OperationAborted, "another one changed the object at the same time"))
        }
        Err(e) => Err(errors::of(e)),
    }
}

pub async fn get(gateway: &Gateway, asked: Asked) -> S3Result<Response<Body>> {
    if asked.key.is_some() {
        let (_, head) = head(gateway, &asked, Action::GetObjectTagging).await?;
        return Ok(tags::shown(&tags::stored(head.attrs.get(ATTR))?));
    }
    let view = gateway.bucket_for(&asked.caller, &asked.bucket, Action::GetBucketTagging).await?;
    match view.state.instance.attrs.get(ATTR) {
        Some(raw) => Ok(tags::shown(&tags::stored(Some(raw))?)),
        None => Err(S3ErrorCode::NoSuchTagSet.into()),
    }
}

pub async fn put(gateway: &Gateway, asked: Asked) -> S3Result<Response<Body>> {
    if asked.key.is_some() {
        let tags = tags::of_document(&asked.document, tags::MAX_OF_OBJECT)?;
        set(gateway, &asked, Action::PutObjectTagging, Some(tags::encoded(&tags))).await?;
        return Ok(empty(StatusCode::OK));
    }
    let view = gateway.own_bucket(&asked.caller, &asked.bucket, Action::PutBucketTagging).await?;
    let tags = tags::of_document(&asked.document, tags::MAX_OF_BUCKET)?;
    gateway.set_bucket_attr(&asked.caller, &view, ATTR, Some(tags::encoded(&tags))).await?;
    Ok(empty(StatusCode::OK))
}

pub async fn delete(gateway: &Gateway, asked: Asked) -> S3Result<Response<Body>> {
    if asked.key.is_some() {
        set(gateway, &asked, Action::DeleteObjectTagging, None).await?;
        return Ok(empty(StatusCode::NO_CONTENT));
    }
    let view = gateway.own_bucket(&asked.caller, &asked.bucket, Action::PutBucketTagging).await?;
    gateway.set_bucket_attr(&asked.caller, &view, ATTR, None).await?;
    Ok(empty(StatusCode::NO_CONTENT))
}

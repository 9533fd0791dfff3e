//! Policies of buckets. Source: RGWPutBucketPolicy and its like in src/rgw/rgw_op.cc.

use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Response, StatusCode};
use rgw::Grantee;
use rgw::policy::{Action, Policy};
use s3s::{Body, S3ErrorCode, S3Result, s3_error};

use super::{Asked, empty};
use crate::state::{Gateway, POLICY};
use crate::xml::Document;

pub async fn get(gateway: &Gateway, asked: Asked) -> S3Result<Response<Body>> {
    let view = gateway.bucket_for(&asked.caller, &asked.bucket, Action::GetBucketPolicy).await?;
    let text = view.state.instance.attrs.get(POLICY).filter(|text| !text.is_empty());
    let text = text.ok_or_else(|| s3_error!(NoSuchBucketPolicy, "The bucket policy does not exist"))?;
    let mut response = Response::new(Body::from(text.clone()));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

pub async fn put(gateway: &Gateway, asked: Asked) -> S3Result<Response<Body>> {
    let view = gateway.bucket_for(&asked.caller, &asked.bucket, Action::PutBucketPolicy).await?;
    let tenant = String::from_utf8_lossy(&view.info.bucket.tenant);
    let policy = Policy::read(&asked.document, &tenant)
        .map_err(|_| s3_error!(InvalidArgument, "the policy cannot be read"))?;
    // 16.2 takes it: whoever is not named would be let in, the whole world included.
    if policy.allows_all_but_some() {
        return Err(s3_error!(InvalidArgument, "Allow with NotPrincipal is not allowed"));
    }
    if view.public.block_policy && policy.is_public() {
        return Err(S3ErrorCode::AccessDenied.into());
    }
    let text = Some(asked.document.clone());
    gateway.set_bucket_attr(&asked.caller, &view, POLICY, text).await?;
    // 16.2 answers 200.
    Ok(empty(StatusCode::NO_CONTENT))
}

pub async fn delete(gateway: &Gateway, asked: Asked) -> S3Result<Response<Body>> {
    let view = gateway.bucket_for(&asked.caller, &asked.bucket, Action::DeleteBucketPolicy).await?;
    gateway.set_bucket_attr(&asked.caller, &view, POLICY, None).await?;
    Ok(empty(StatusCode::NO_CONTENT))
}

pub async fn status(gateway: &Gateway, asked: Asked) -> S3Result<Response<Body>> {
    let view = gateway.bucket_for(&asked.caller, &asked.bucket, Action::GetBucketPolicyStatus).await?;
    let by_policy = view.policy.as_ref().is_some_and(Policy::is_public);
    let by_grants = view.acl.list.grants().any(|grant| grant.to == Grantee::GROUP);
    let mut document = Document::new("PolicyStatus");
    document.text("IsPublic", if by_policy || by_grants { "true" } else { "false" });
    Ok(document.done("PolicyStatus"))
}

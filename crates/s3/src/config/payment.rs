//! Who pays for requests: a bucket's owner, or who asks. Source: RGWSetRequestPayment in src/rgw/rgw_op.cc.

use hyper::{Response, StatusCode};
use rgw::policy::Action;
use s3s::{Body, S3Result, s3_error};

use super::{Asked, empty};
use crate::state::Gateway;
use crate::xml::{Document, Element};

const ROOT: &str = "RequestPaymentConfiguration";

pub async fn get(gateway: &Gateway, asked: Asked) -> S3Result<Response<Body>> {
    let view = gateway.own_bucket(&asked.caller, &asked.bucket, Action::GetBucketRequestPayment).await?;
    let mut document = Document::new(ROOT);
    document.text("Payer", if view.info.requester_pays { "Requester" } else { "BucketOwner" });
    Ok(document.done(ROOT))
}

pub async fn put(gateway: &Gateway, asked: Asked) -> S3Result<Response<Body>> {
    let view = gateway.own_bucket(&asked.caller, &asked.bucket, Action::PutBucketRequestPayment).await?;
    let root = Element::read(&asked.document, ROOT)?;
    let pays = match root.text_of("Payer").map(str::trim) {
        Some("Requester") => true,
        Some("BucketOwner") => false,
        _ => return Err(s3_error!(MalformedXML)),
    };
    gateway.change_bucket(&asked.caller, &view, move |info, _| info.requester_pays = pays).await?;
    Ok(empty(StatusCode::OK))
}

//! What a bucket refuses to make public. Source: RGWPutBucketPublicAccessBlock and its like in
//! src/rgw/rgw_op.cc.

use codec::Encode;
use hyper::{Response, StatusCode};
use rgw::PublicAccessBlock;
use rgw::policy::Action;
use s3s::{Body, S3ErrorCode, S3Result, s3_error};

use super::{Asked, empty};
use crate::errors;
use crate::state::{Gateway, PUBLIC_ACCESS};
use crate::xml::{Document, Element};

const ROOT: &str = "PublicAccessBlockConfiguration";

pub async fn get(gateway: &Gateway, asked: Asked) -> S3Result<Response<Body>> {
    // 16.2 asks for another action, and answers that nothing is blocked where nothing was said.
    let right = Action::GetBucketPublicAccessBlock;
    let view = gateway.bucket_for(&asked.caller, &asked.bucket, right).await?;
    if !view.state.instance.attrs.contains_key(PUBLIC_ACCESS) {
        return Err(errors::custom("NoSuchPublicAccessBlockConfiguration", 404));
    }
    let PublicAccessBlock { block_acls, ignore_acls, block_policy, restrict_buckets } = view.public;
    let mut document = Document::new(ROOT);
    for (name, value) in [
        ("BlockPublicAcls", block_acls),
        ("IgnorePublicAcls", ignore_acls),
        ("BlockPublicPolicy", block_policy),
        ("RestrictPublicBuckets", restrict_buckets),
    ] {
        document.text(name, if value { "true" } else { "false" });
    }
    Ok(document.done(ROOT))
}

fn read(document: &[u8]) -> S3Result<PublicAccessBlock> {
    let root = Element::read(document, ROOT)?;
    let is =
        |name: &'static str| match root.text_of(name).map(|text| text.trim().to_ascii_lowercase()).as_deref()
        {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(_) => Err(s3_error!(MalformedXML)),
        };
    Ok(PublicAccessBlock {
        block_acls: is("BlockPublicAcls")?,
        ignore_acls: is("IgnorePublicAcls")?,
        block_policy: is("BlockPublicPolicy")?,
        restrict_buckets: is("RestrictPublicBuckets")?,
    })
}

pub async fn put(gateway: &Gateway, asked: Asked) -> S3Result<Response<Body>> {
    let view = gateway.bucket_for(&asked.caller, &asked.bucket, Action::PutBucketPublicAccessBlock).await?;
    let block = read(&asked.document).map_err(|_| S3ErrorCode::MalformedXML)?;
    gateway.set_bucket_attr(&asked.caller, &view, PUBLIC_ACCESS, Some(block.to_bytes())).await?;
    Ok(empty(StatusCode::OK))
}

pub async fn delete(gateway: &Gateway, asked: Asked) -> S3Result<Response<Body>> {
    let view = gateway.bucket_for(&asked.caller, &asked.bucket, Action::PutBucketPublicAccessBlock).await?;
    gateway.set_bucket_attr(&asked.caller, &view, PUBLIC_ACCESS, None).await?;
    Ok(empty(StatusCode::NO_CONTENT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_said_is_not_refused() {
        let text = format!("<{ROOT}><BlockPublicAcls>true</BlockPublicAcls></{ROOT}>");
        assert_eq!(
            read(text.as_bytes()).unwrap(),
            PublicAccessBlock { block_acls: true, ..Default::default() }
        );
        for wrong in ["", "<Other/>", &text.replace("true", "yes")] {
            assert!(read(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }
}

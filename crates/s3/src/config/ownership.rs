//! Whose a bucket's objects are. Source: RGWPutBucketOwnershipControls and its like in src/rgw/rgw_op.cc of
//! 20.

use bytes::Bytes;
use codec::Encode;
use hyper::{HeaderMap, Response, StatusCode};
use rgw::policy::Action;
use rgw::{AccessControl, Ownership};
use s3s::{Body, S3Error, S3ErrorCode, S3Result};

use super::{Asked, empty};
use crate::state::{BucketView, Gateway, OWNERSHIP};
use crate::users::Caller;
use crate::xml::{Document, Element};
use crate::{errors, grants};

const ROOT: &str = "OwnershipControls";
/// The list of grants that leaves everything to the bucket's owner.
const OWNERS: &str = "bucket-owner-full-control";

/// What an attribute keeps.
pub fn attr(ownership: &Ownership) -> (Bytes, Bytes) {
    (Bytes::from_static(OWNERSHIP), ownership.to_bytes())
}

/// A bucket whose lists of grants count for nothing has one that would have to.
pub fn shared() -> S3Error {
    errors::custom("InvalidBucketAclWithObjectOwnership", 400)
}

/// Refuses a new list of grants where none counts.
pub fn check_lists(view: &BucketView) -> S3Result<()> {
    match view.ownership {
        Some(Ownership::Enforced) => Err(errors::custom("AccessControlListNotSupported", 400)),
        _ => Ok(()),
    }
}

/// The list of grants of a new object, where the bucket has a say in whose it is.
pub fn new_acl(caller: &Caller, view: &BucketView, headers: &HeaderMap) -> S3Result<Option<AccessControl>> {
    let canned = headers.get("x-amz-acl").map(|name| name.to_str().unwrap_or("?")).unwrap_or_default();
    let is_plain = !grants::has_headers(headers);
    let owners = || Ok(Some(AccessControl::private(view.acl.owner.clone())));
    match view.ownership {
        None | Some(Ownership::Writer) => Ok(None),
        Some(Ownership::Preferred) if is_plain && canned == OWNERS => owners(),
        Some(Ownership::Preferred) => Ok(None),
        Some(Ownership::Enforced) if is_plain && (canned.is_empty() || canned == OWNERS) => owners(),
        Some(Ownership::Enforced) => {
            tracing::debug!("{:?} gives grants where none counts", caller.id());
            check_lists(view).map(|()| None)
        }
    }
}

pub async fn get(gateway: &Gateway, asked: Asked) -> S3Result<Response<Body>> {
    let right = Action::GetBucketOwnershipControls;
    let view = gateway.own_bucket(&asked.caller, &asked.bucket, right).await?;
    let ownership = view.ownership.ok_or_else(|| errors::custom("OwnershipControlsNotFoundError", 404))?;
    let mut document = Document::new(ROOT);
    document.open("Rule");
    document.text("ObjectOwnership", ownership.name());
    document.close("Rule");
    Ok(document.done(ROOT))
}

fn read(document: &[u8]) -> S3Result<Ownership> {
    let root = Element::read(document, ROOT)?;
    let mut rules = root.all("Rule");
    let (Some(rule), None) = (rules.next(), rules.next()) else {
        return Err(S3ErrorCode::MalformedXML.into());
    };
    let named = rule.text_of("ObjectOwnership").and_then(|name| Ownership::named(name.trim()));
    named.ok_or_else(|| S3ErrorCode::MalformedXML.into())
}

pub async fn put(gateway: &Gateway, asked: Asked) -> S3Result<Response<Body>> {
    let right = Action::PutBucketOwnershipControls;
    let view = gateway.own_bucket(&asked.caller, &asked.bucket, right).await?;
    let ownership = read(&asked.document)?;
    let own = AccessControl::private(view.acl.owner.clone());
    if ownership == Ownership::Enforced && view.acl.list != own.list {
        return Err(shared());
    }
    let value = Some(ownership.to_bytes());
    gateway.set_bucket_attr(&asked.caller, &view, OWNERSHIP, value).await?;
    Ok(empty(StatusCode::OK))
}

pub async fn delete(gateway: &Gateway, asked: Asked) -> S3Result<Response<Body>> {
    let right = Action::PutBucketOwnershipControls;
    let view = gateway.own_bucket(&asked.caller, &asked.bucket, right).await?;
    gateway.set_bucket_attr(&asked.caller, &view, OWNERSHIP, None).await?;
    Ok(empty(StatusCode::NO_CONTENT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_rule_says_whose_objects_are() {
        let of = |rules: &str| read(format!("<{ROOT}>{rules}</{ROOT}>").as_bytes()).ok();
        let rule = |name: &str| format!("<Rule><ObjectOwnership>{name}</ObjectOwnership></Rule>");
        for one in Ownership::ALL {
            assert_eq!(of(&rule(one.name())), Some(one));
        }
        assert_eq!((of(""), of(&rule("Nobody"))), (None, None));
        assert_eq!(of(&rule("ObjectWriter").repeat(2)), None);
    }
}

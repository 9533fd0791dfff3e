//! What clients say and ask of a bucket or an object in documents of their own: grants, tags, policies and
//! their like. S3's library reads some of these documents otherwise than clients write them.

mod access;
mod acl;
mod cors;
mod payment;
mod policy;
mod tagging;

use bytes::Bytes;
use hyper::{HeaderMap, Method, Response, StatusCode};
use rgw::Key;
use s3s::{Body, S3Result};

use crate::errors;
use crate::state::Gateway;
use crate::users::Caller;

pub use cors::{answer_for, preflight};

/// A request for such a document.
#[derive(Debug)]
pub struct Asked {
    pub caller: Caller,
    pub bucket: String,
    /// Nothing where the bucket itself is asked for.
    pub key: Option<String>,
    pub headers: HeaderMap,
    pub document: Bytes,
}

impl Asked {
    fn key(&self) -> Key {
        Key::plain(self.key.clone().unwrap_or_default())
    }
}

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Config {
    GetAcl,
    PutAcl,
    GetTags,
    PutTags,
    DeleteTags,
    GetCors,
    PutCors,
    DeleteCors,
    GetPolicy,
    PutPolicy,
    DeletePolicy,
    GetPolicyStatus,
    GetPublicAccess,
    PutPublicAccess,
    DeletePublicAccess,
    GetPayment,
    PutPayment,
}

impl Config {
    fn changes(self) -> bool {
        use Config as C;
        match self {
            C::GetAcl | C::GetTags | C::GetCors | C::GetPolicy | C::GetPolicyStatus => false,
            C::GetPublicAccess | C::GetPayment => false,
            C::PutAcl | C::PutTags | C::DeleteTags | C::PutCors | C::DeleteCors | C::PutPolicy => true,
            C::DeletePolicy | C::PutPublicAccess | C::DeletePublicAccess | C::PutPayment => true,
        }
    }
}

/// What a request asks for, by its method, the names in its query, and whether it names an object. Nothing
/// for what S3's library knows as it is.
pub fn find(method: &Method, names: &[&str], is_object: bool) -> Option<Config> {
    use Config as C;
    let has = |name: &str| names.contains(&name);
    let of = |get, put, delete| match *method {
        Method::GET => get,
        Method::PUT => put,
        Method::DELETE => delete,
        _ => None,
    };
    if has("acl") {
        return of(Some(C::GetAcl), Some(C::PutAcl), None);
    }
    if has("tagging") {
        return of(Some(C::GetTags), Some(C::PutTags), Some(C::DeleteTags));
    }
    if is_object {
        return None;
    }
    match () {
        () if has("cors") => of(Some(C::GetCors), Some(C::PutCors), Some(C::DeleteCors)),
        () if has("policy") => of(Some(C::GetPolicy), Some(C::PutPolicy), Some(C::DeletePolicy)),
        () if has("policyStatus") => of(Some(C::GetPolicyStatus), None, None),
        () if has("publicAccessBlock") => {
            of(Some(C::GetPublicAccess), Some(C::PutPublicAccess), Some(C::DeletePublicAccess))
        }
        () if has("requestPayment") => of(Some(C::GetPayment), Some(C::PutPayment), None),
        () => None,
    }
}

pub async fn answer(gateway: &Gateway, config: Config, asked: Asked) -> S3Result<Response<Body>> {
    use Config as C;
    if asked.key.is_none() && config.changes() {
        // What the caller may do is looked up as it is: who has just made the bucket anew may change it.
        gateway.forget_bucket(&asked.caller, &asked.bucket);
    }
    match config {
        C::GetAcl => acl::get(gateway, asked).await,
        C::PutAcl => acl::put(gateway, asked).await,
        C::GetTags => tagging::get(gateway, asked).await,
        C::PutTags => tagging::put(gateway, asked).await,
        C::DeleteTags => tagging::delete(gateway, asked).await,
        C::GetCors => cors::get(gateway, asked).await,
        C::PutCors => cors::put(gateway, asked).await,
        C::DeleteCors => cors::delete(gateway, asked).await,
        C::GetPolicy => policy::get(gateway, asked).await,
        C::PutPolicy => policy::put(gateway, asked).await,
        C::DeletePolicy => policy::delete(gateway, asked).await,
        C::GetPolicyStatus => policy::status(gateway, asked).await,
        C::GetPublicAccess => access::get(gateway, asked).await,
        C::PutPublicAccess => access::put(gateway, asked).await,
        C::DeletePublicAccess => access::delete(gateway, asked).await,
        C::GetPayment => payment::get(gateway, asked).await,
        C::PutPayment => payment::put(gateway, asked).await,
    }
}

/// An answer without a body.
fn empty(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

/// Objects have one version here.
pub fn check_version(query: Option<&str>) -> S3Result<()> {
    let fields = query.unwrap_or_default().split('&');
    let mut ids = fields.filter_map(|field| field.strip_prefix("versionId="));
    match ids.any(|id| id != "null") {
        true => Err(errors::not_served("versions are not served")),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_asked_for_by_names_in_the_query() {
        for (method, names, is_object, want) in [
            (Method::GET, &["acl"][..], true, Some(Config::GetAcl)),
            (Method::PUT, &["versionId", "acl"], true, Some(Config::PutAcl)),
            (Method::DELETE, &["acl"], true, None),
            (Method::DELETE, &["tagging"], false, Some(Config::DeleteTags)),
            (Method::GET, &["cors"], false, Some(Config::GetCors)),
            (Method::GET, &["cors"], true, None),
            (Method::PUT, &["policyStatus"], false, None),
            (Method::PUT, &["requestPayment"], false, Some(Config::PutPayment)),
            (Method::GET, &[], true, None),
        ] {
            assert_eq!(find(&method, names, is_object), want, "{method} {names:?}");
        }
    }

    #[test]
    fn other_versions_are_not_served() {
        assert!(check_version(None).is_ok() && check_version(Some("acl&versionId=null")).is_ok());
        assert!(check_version(Some("acl&versionId=x")).is_err());
    }
}

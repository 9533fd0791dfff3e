//! What clients say and ask of a bucket or an object in documents of their own: grants, tags, policies and
//! their like. S3's library reads some of these documents otherwise than clients write them.

mod access;
mod acl;
mod cors;
mod encryption;
pub mod lifecycle;
pub mod lock;
mod logging;
pub mod ownership;
mod payment;
mod policy;
mod tagging;
mod usage;
pub mod versioning;
mod website;

use std::future::Future;
use std::pin::Pin;

use bytes::Bytes;
use hyper::{HeaderMap, Method, Response, StatusCode};
use rgw::Key;
use rgw::policy::Action;
use s3s::{Body, S3Result};

use crate::ops::reader;
use crate::rights::for_version;
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
    /// Of the object, where the request names one.
    pub version: Option<String>,
    /// As it came.
    pub query: String,
    pub headers: HeaderMap,
    pub document: Bytes,
}

impl Asked {
    fn key(&self) -> Key {
        reader::key(self.key.as_deref().unwrap_or_default(), self.version.as_deref())
    }

    /// The right that something needs with the object that is asked for.
    fn action(&self, action: Action) -> Action {
        for_version(action, self.version.is_some())
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
    GetVersioning,
    PutVersioning,
    GetLifecycle,
    PutLifecycle,
    DeleteLifecycle,
    GetLockRule,
    PutLockRule,
    GetRetention,
    PutRetention,
    GetHold,
    PutHold,
    GetWebsite,
    PutWebsite,
    DeleteWebsite,
    GetEncryption,
    PutEncryption,
    DeleteEncryption,
    GetLogging,
    PutLogging,
    FlushLogging,
    GetOwnership,
    PutOwnership,
    DeleteOwnership,
    GetTorrent,
    GetUsage,
}

impl Config {
    fn changes(self) -> bool {
        use Config as C;
        match self {
            C::GetAcl | C::GetTags | C::GetCors | C::GetPolicy | C::GetPolicyStatus => false,
            C::GetPublicAccess | C::GetPayment | C::GetVersioning | C::GetWebsite => false,
            C::GetLifecycle | C::GetLockRule | C::GetRetention | C::GetHold => false,
            C::PutAcl | C::PutTags | C::DeleteTags | C::PutCors | C::DeleteCors | C::PutPolicy => true,
            C::DeletePolicy | C::PutPublicAccess | C::DeletePublicAccess | C::PutPayment => true,
            C::PutLifecycle | C::DeleteLifecycle | C::PutWebsite | C::DeleteWebsite => true,
            C::GetEncryption | C::GetLogging | C::GetOwnership | C::GetTorrent | C::GetUsage => false,
            C::PutOwnership | C::DeleteOwnership => true,
            C::PutLogging | C::FlushLogging => true,
            C::PutEncryption | C::DeleteEncryption => true,
            C::PutVersioning | C::PutLockRule | C::PutRetention | C::PutHold => true,
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
        return match () {
            () if has("retention") => of(Some(C::GetRetention), Some(C::PutRetention), None),
            () if has("torrent") => of(Some(C::GetTorrent), None, None),
            () if has("legal-hold") => of(Some(C::GetHold), Some(C::PutHold), None),
            () => None,
        };
    }
    match () {
        () if has("cors") => of(Some(C::GetCors), Some(C::PutCors), Some(C::DeleteCors)),
        () if has("encryption") => {
            of(Some(C::GetEncryption), Some(C::PutEncryption), Some(C::DeleteEncryption))
        }
        () if has("lifecycle") => of(Some(C::GetLifecycle), Some(C::PutLifecycle), Some(C::DeleteLifecycle)),
        () if has("logging") && *method == Method::POST => Some(C::FlushLogging),
        () if has("logging") => of(Some(C::GetLogging), Some(C::PutLogging), None),
        () if has("object-lock") => of(Some(C::GetLockRule), Some(C::PutLockRule), None),
        () if has("ownershipControls") => {
            of(Some(C::GetOwnership), Some(C::PutOwnership), Some(C::DeleteOwnership))
        }
        () if has("policy") => of(Some(C::GetPolicy), Some(C::PutPolicy), Some(C::DeletePolicy)),
        () if has("policyStatus") => of(Some(C::GetPolicyStatus), None, None),
        () if has("publicAccessBlock") => {
            of(Some(C::GetPublicAccess), Some(C::PutPublicAccess), Some(C::DeletePublicAccess))
        }
        () if has("requestPayment") => of(Some(C::GetPayment), Some(C::PutPayment), None),
        () if has("versioning") => of(Some(C::GetVersioning), Some(C::PutVersioning), None),
        () if has("website") => of(Some(C::GetWebsite), Some(C::PutWebsite), Some(C::DeleteWebsite)),
        () => None,
    }
}

/// The same where a request names no bucket. Source: RGWHandler_REST_Service_S3.
pub fn find_of_service(method: &Method, names: &[&str]) -> S3Result<Option<Config>> {
    if *method == Method::GET && names.contains(&"usage") {
        return Ok(Some(Config::GetUsage));
    }
    match find(method, names, false) {
        Some(_) => Err(s3s::S3ErrorCode::MethodNotAllowed.into()),
        None => Ok(None),
    }
}

pub async fn answer(gateway: &Gateway, config: Config, asked: Asked) -> S3Result<Response<Body>> {
    use Config as C;
    // Nobody changes anything, and would have all buckets read anew.
    if asked.key.is_none() && config.changes() && asked.caller.user().is_some() {
        // What the caller may do is looked up as it is: who has just made the bucket anew may change it.
        gateway.forget_bucket(&asked.caller, &asked.bucket);
    }
    let answering = match config {
        C::GetAcl => boxed(|| acl::get(gateway, asked)),
        C::PutAcl => boxed(|| acl::put(gateway, asked)),
        C::GetTags => boxed(|| tagging::get(gateway, asked)),
        C::PutTags => boxed(|| tagging::put(gateway, asked)),
        C::DeleteTags => boxed(|| tagging::delete(gateway, asked)),
        C::GetCors => boxed(|| cors::get(gateway, asked)),
        C::PutCors => boxed(|| cors::put(gateway, asked)),
        C::DeleteCors => boxed(|| cors::delete(gateway, asked)),
        C::GetPolicy => boxed(|| policy::get(gateway, asked)),
        C::PutPolicy => boxed(|| policy::put(gateway, asked)),
        C::DeletePolicy => boxed(|| policy::delete(gateway, asked)),
        C::GetPolicyStatus => boxed(|| policy::status(gateway, asked)),
        C::GetPublicAccess => boxed(|| access::get(gateway, asked)),
        C::PutPublicAccess => boxed(|| access::put(gateway, asked)),
        C::DeletePublicAccess => boxed(|| access::delete(gateway, asked)),
        C::GetPayment => boxed(|| payment::get(gateway, asked)),
        C::PutPayment => boxed(|| payment::put(gateway, asked)),
        C::GetVersioning => boxed(|| versioning::get(gateway, asked)),
        C::PutVersioning => boxed(|| versioning::put(gateway, asked)),
        C::GetLifecycle => boxed(|| lifecycle::get(gateway, asked)),
        C::PutLifecycle => boxed(|| lifecycle::put(gateway, asked)),
        C::DeleteLifecycle => boxed(|| lifecycle::delete(gateway, asked)),
        C::GetLockRule => boxed(|| lock::get_rule(gateway, asked)),
        C::PutLockRule => boxed(|| lock::put_rule(gateway, asked)),
        C::GetRetention => boxed(|| lock::get_retention(gateway, asked)),
        C::PutRetention => boxed(|| lock::put_retention(gateway, asked)),
        C::GetHold => boxed(|| lock::get_hold(gateway, asked)),
        C::PutHold => boxed(|| lock::put_hold(gateway, asked)),
        C::GetWebsite => boxed(|| website::get(gateway, asked)),
        C::PutWebsite => boxed(|| website::put(gateway, asked)),
        C::DeleteWebsite => boxed(|| website::delete(gateway, asked)),
        C::GetEncryption => boxed(|| encryption::get(gateway, asked)),
        C::PutEncryption => boxed(|| encryption::put(gateway, asked)),
        C::GetOwnership => boxed(|| ownership::get(gateway, asked)),
        C::PutOwnership => boxed(|| ownership::put(gateway, asked)),
        C::DeleteOwnership => boxed(|| ownership::delete(gateway, asked)),
        C::GetTorrent => boxed(|| torrent(gateway, asked)),
        C::GetUsage => boxed(|| usage::get(gateway, asked)),
        C::GetLogging => boxed(|| logging::get(gateway, asked)),
        C::PutLogging => boxed(|| logging::put(gateway, asked)),
        C::FlushLogging => boxed(|| logging::flush(gateway, asked)),
        C::DeleteEncryption => boxed(|| encryption::delete(gateway, asked)),
    };
    answering.await
}

type Answering<'a> = Pin<Box<dyn Future<Output = S3Result<Response<Body>>> + Send + 'a>>;

/// Puts what answers on the heap from a frame of its own: without that, one frame has room for all kinds of
/// answers beside each other, and a thread's stack has none for what they call.
fn boxed<'a, F: Future<Output = S3Result<Response<Body>>> + Send + 'a>(
    make: impl FnOnce() -> F,
) -> Answering<'a> {
    Box::pin(make())
}

/// No object has a file for BitTorrent, as in radosgw unless it is told to make them.
async fn torrent(gateway: &Gateway, asked: Asked) -> S3Result<Response<Body>> {
    let view = gateway.bucket(&asked.caller, &asked.bucket).await?;
    reader::open(gateway, &asked.caller, &view, &asked.key(), 0).await?;
    Err(s3s::s3_error!(NoSuchKey, "the object has no torrent"))
}

/// An answer without a body.
fn empty(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
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
            (Method::PUT, &["versioning"], false, Some(Config::PutVersioning)),
            (Method::PUT, &["object-lock"], false, Some(Config::PutLockRule)),
            (Method::GET, &["object-lock"], true, None),
            (Method::PUT, &["versionId", "retention"], true, Some(Config::PutRetention)),
            (Method::GET, &["legal-hold"], true, Some(Config::GetHold)),
            (Method::GET, &["legal-hold"], false, None),
            (Method::GET, &["versions"], false, None),
            (Method::DELETE, &["website"], false, Some(Config::DeleteWebsite)),
            (Method::PUT, &["encryption"], false, Some(Config::PutEncryption)),
            (Method::GET, &["encryption"], true, None),
            (Method::GET, &["website"], true, None),
            (Method::GET, &[], true, None),
        ] {
            assert_eq!(find(&method, names, is_object), want, "{method} {names:?}");
        }
    }

    #[test]
    fn without_a_bucket_there_is_what_a_user_used() {
        assert_eq!(find_of_service(&Method::GET, &["usage"]).unwrap(), Some(Config::GetUsage));
        assert_eq!(find_of_service(&Method::GET, &["max-buckets"]).unwrap(), None);
        assert!(find_of_service(&Method::GET, &["acl"]).is_err());
        assert!(find_of_service(&Method::PUT, &["policy", "usage"]).is_err());
    }
}

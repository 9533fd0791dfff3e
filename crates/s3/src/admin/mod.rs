//! The admin ops API: users, buckets and usage as JSON under `/admin`, as go-ceph's `rgw/admin` and
//! radosgw's own documentation call it.
//!
//! 1. Who asks has a key of a user whose capabilities allow it (`users=read`, `buckets=*`); a policy or a
//!    grant gives no right here.
//! 2. What is not served is answered with NotImplemented, never with success.
//!
//! Source: src/rgw/rgw_rest_user.cc, rgw_rest_bucket.cc, rgw_rest_usage.cc, doc/radosgw/adminops.rst.

pub(crate) mod args;
mod buckets;
mod caps;
mod errors;
mod keys;
mod purge;
mod quotas;
pub(crate) mod shown;
pub(crate) mod usage;
pub(crate) mod users;

use bytes::Bytes;
use hyper::header::HeaderValue;
use hyper::http::request::Parts;
use hyper::{Method, Response, StatusCode, Uri};
use s3s::{Body, S3Error, S3ErrorCode, S3Result};
use serde_json::{Value, json};

use crate::state::Gateway;
use crate::users::Caller;
use args::Args;
use caps::{READ, WRITE};

/// Where the API is, and so no bucket's name. Source: rgw_admin_entry in src/common/options.cc.
const ENTRY: &str = "admin";
/// A document of this API. Source: QUOTA_INPUT_MAX_LEN.
pub const MAX_DOCUMENT: u64 = 1024;

/// Whether a request is for this API.
pub fn is_for(uri: &Uri) -> bool {
    let path = uri.path().strip_prefix('/').unwrap_or_default();
    path.strip_prefix(ENTRY).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    UserInfo,
    UserList,
    UserCreate,
    UserModify,
    UserRemove,
    SubuserCreate,
    SubuserModify,
    SubuserRemove,
    KeyCreate,
    KeyRemove,
    CapsAdd,
    CapsRemove,
    QuotaInfo,
    QuotaSet,
    BucketInfo,
    BucketAcl,
    BucketLink,
    BucketUnlink,
    BucketRemove,
    BucketQuota,
    ObjectRemove,
    UsageShow,
    UsageTrim,
}

impl Operation {
    /// What a request asks for, by its method, its path and the names in its query.
    fn find(method: &Method, resource: &str, args: &Args) -> S3Result<Self> {
        use Operation as O;
        let named = |known: &[(&str, O)], otherwise| {
            known.iter().find(|(name, _)| args.has(name)).map_or(otherwise, |(_, operation)| *operation)
        };
        let quota = ("quota", O::QuotaSet);
        Ok(match (resource, method.as_str()) {
            ("user", "GET") => named(&[("quota", O::QuotaInfo), ("list", O::UserList)], O::UserInfo),
            ("user", "PUT") => named(
                &[("subuser", O::SubuserCreate), ("key", O::KeyCreate), ("caps", O::CapsAdd), quota],
                O::UserCreate,
            ),
            ("user", "POST") => named(&[("subuser", O::SubuserModify), ("key", O::KeyCreate)], O::UserModify),
            ("user", "DELETE") => named(
                &[("subuser", O::SubuserRemove), ("key", O::KeyRemove), ("caps", O::CapsRemove)],
                O::UserRemove,
            ),
            ("bucket", "GET" | "PUT") if args.has("index") || args.has("sync") => {
                return Err(crate::errors::not_served("indexes are checked by radosgw-admin alone"));
            }
            ("bucket", "GET") => named(&[("policy", O::BucketAcl)], O::BucketInfo),
            ("bucket", "PUT") => named(&[("quota", O::BucketQuota)], O::BucketLink),
            ("bucket", "POST") => O::BucketUnlink,
            ("bucket", "DELETE") => named(&[("object", O::ObjectRemove)], O::BucketRemove),
            ("usage", "GET") => O::UsageShow,
            ("usage", "DELETE") => O::UsageTrim,
            ("" | "user" | "bucket" | "usage", _) => return Err(S3ErrorCode::MethodNotAllowed.into()),
            _ => return Err(crate::errors::not_served("only users, buckets and usage are served")),
        })
    }

    /// The capability that it needs, and how much of it.
    fn needs(self) -> (&'static str, u32) {
        use Operation as O;
        match self {
            O::UserInfo | O::UserList | O::QuotaInfo => ("users", READ),
            O::UserCreate | O::UserModify | O::UserRemove | O::QuotaSet => ("users", WRITE),
            O::SubuserCreate | O::SubuserModify | O::SubuserRemove => ("users", WRITE),
            O::KeyCreate | O::KeyRemove | O::CapsAdd | O::CapsRemove => ("users", WRITE),
            O::BucketInfo | O::BucketAcl => ("buckets", READ),
            O::BucketLink | O::BucketUnlink | O::BucketRemove => ("buckets", WRITE),
            O::BucketQuota | O::ObjectRemove => ("buckets", WRITE),
            O::UsageShow => ("usage", READ),
            O::UsageTrim => ("usage", WRITE),
        }
    }
}

/// A request whose sender is known.
#[derive(Debug)]
pub struct Call {
    caller: Caller,
    operation: Operation,
    args: Args,
    document: Bytes,
}

impl Call {
    /// Fails where the sender may not ask for that.
    pub fn new(caller: Caller, parts: &Parts) -> S3Result<Self> {
        let args = Args::of(parts.uri.query().unwrap_or_default())?;
        if args.get("format").is_some_and(|format| format != "json") {
            return Err(crate::errors::not_served("answers have the form of JSON"));
        }
        let path = parts.uri.path().trim_start_matches('/').trim_end_matches('/');
        let resource = path.strip_prefix(ENTRY).unwrap_or_default().trim_start_matches('/');
        // Nobody in particular learns nothing, not even what is served.
        let user = caller.user().ok_or(S3ErrorCode::AccessDenied)?;
        let operation = Operation::find(&parts.method, resource, &args)?;
        let (about, rights) = operation.needs();
        if user.caps.get(about.as_bytes()).copied().unwrap_or_default() & rights != rights {
            return Err(S3ErrorCode::AccessDenied.into());
        }
        Ok(Self { caller, operation, args, document: Bytes::new() })
    }

    pub fn with(self, document: Bytes) -> Self {
        Self { document, ..self }
    }
}

/// Carries a call out.
pub async fn answer(gateway: &Gateway, call: Call) -> S3Result<Response<Body>> {
    use Operation as O;
    let gateway = &gateway.of_caller(&call.caller);
    let Call { caller, operation, args, document } = &call;
    let value = match operation {
        O::UserInfo => users::info(gateway, args).await?,
        O::UserList => users::list(gateway, args).await?,
        O::UserCreate => users::create(gateway, caller, args).await?,
        O::UserModify => users::modify(gateway, caller, args).await?,
        O::UserRemove => users::remove(gateway, args).await?,
        O::SubuserCreate => keys::create_subuser(gateway, args).await?,
        O::SubuserModify => keys::modify_subuser(gateway, args).await?,
        O::SubuserRemove => keys::remove_subuser(gateway, args).await?,
        O::KeyCreate => keys::create(gateway, args).await?,
        O::KeyRemove => keys::remove(gateway, args).await?,
        O::CapsAdd => caps::add(gateway, args).await?,
        O::CapsRemove => caps::remove(gateway, args).await?,
        O::QuotaInfo => quotas::of_user(gateway, args).await?,
        O::QuotaSet => quotas::set_of_user(gateway, args, document).await?,
        O::BucketInfo => buckets::info(gateway, args).await?,
        O::BucketAcl => buckets::acl(gateway, args).await?,
        O::BucketLink => buckets::link(gateway, args).await?,
        O::BucketUnlink => buckets::unlink(gateway, args).await?,
        O::BucketRemove => buckets::remove(gateway, args).await?,
        O::BucketQuota => quotas::set_of_bucket(gateway, args, document).await?,
        O::ObjectRemove => buckets::remove_object(gateway, args).await?,
        O::UsageShow => usage::show(gateway, args).await?,
        O::UsageTrim => usage::trim(gateway, args).await?,
    };
    tracing::info!("admin: {operation:?} by {}", String::from_utf8_lossy(&caller.id().to_text()));
    Ok(document_of(StatusCode::OK, value.as_ref()))
}

/// An error in the form of this API. Source: dump_errno and abort_early in src/rgw/rgw_rest.cc.
pub fn failed(e: &S3Error, id: &str) -> Response<Body> {
    let mut said = json!({ "Code": e.code().as_str() });
    if let (Some(message), Some(fields)) = (e.message(), said.as_object_mut()) {
        fields.insert("Message".to_owned(), message.into());
    }
    if let Some(fields) = said.as_object_mut() {
        fields.insert("RequestId".to_owned(), id.into());
        fields.insert("HostId".to_owned(), id.into());
    }
    let status = e.status_code().or_else(|| e.code().status_code());
    document_of(status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), Some(&said))
}

fn document_of(status: StatusCode, value: Option<&Value>) -> Response<Body> {
    let text = value.map(Value::to_string).unwrap_or_default();
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    response.headers_mut().insert("content-type", HeaderValue::from_static("application/json"));
    response
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use hyper::Request;
    use rgw::{UserId, UserInfo};

    use super::*;

    fn call(method: &str, target: &str, caps: Option<&[(&'static str, u32)]>) -> Result<Operation, String> {
        let parts = Request::builder().method(method).uri(target).body(()).unwrap().into_parts().0;
        let user = caps.map(|caps| {
            let caps: BTreeMap<Bytes, u32> =
                caps.iter().map(|(name, bits)| ((*name).into(), *bits)).collect();
            UserInfo { id: UserId::plain("admin"), caps, ..UserInfo::default() }.into()
        });
        let made = Call::new(Caller::new(user), &parts);
        made.map(|call| call.operation).map_err(|e| e.code().as_str().to_owned())
    }

    #[test]
    fn the_api_is_where_radosgw_has_it() {
        let at = |target: &str| is_for(&target.parse().unwrap());
        assert!(at("/admin") && at("/admin/") && at("/admin/user?uid=x"));
        assert!(!at("/administrator") && !at("/b/admin") && !at("/"));
    }

    #[test]
    fn capabilities_decide_who_may_ask_for_what() {
        use Operation as O;
        let all: &[(&str, u32)] = &[("users", 3), ("buckets", 3), ("usage", 3)];
        for (method, target, needs, operation) in [
            ("GET", "/admin/user?uid=x", ("users", READ), O::UserInfo),
            ("GET", "/admin/user?list", ("users", READ), O::UserList),
            ("GET", "/admin/user?quota&uid=x", ("users", READ), O::QuotaInfo),
            ("PUT", "/admin/user?uid=x", ("users", WRITE), O::UserCreate),
            ("POST", "/admin/user/?uid=x", ("users", WRITE), O::UserModify),
            ("DELETE", "/admin/user?uid=x", ("users", WRITE), O::UserRemove),
            ("PUT", "/admin/user?subuser=s", ("users", WRITE), O::SubuserCreate),
            ("PUT", "/admin/user?key&uid=x", ("users", WRITE), O::KeyCreate),
            ("DELETE", "/admin/user?caps&uid=x", ("users", WRITE), O::CapsRemove),
            ("PUT", "/admin/user?quota&uid=x", ("users", WRITE), O::QuotaSet),
            ("GET", "/admin/bucket", ("buckets", READ), O::BucketInfo),
            ("GET", "/admin/bucket?policy&bucket=b", ("buckets", READ), O::BucketAcl),
            ("PUT", "/admin/bucket?quota", ("buckets", WRITE), O::BucketQuota),
            ("DELETE", "/admin/bucket?object=o", ("buckets", WRITE), O::ObjectRemove),
            ("GET", "/admin/usage", ("usage", READ), O::UsageShow),
            ("DELETE", "/admin/usage", ("usage", WRITE), O::UsageTrim),
        ] {
            assert_eq!(call(method, target, Some(all)), Ok(operation), "{method} {target}");
            assert_eq!(call(method, target, Some(&[needs])), Ok(operation), "{method} {target}");
            let other = if needs.1 == READ { WRITE } else { READ };
            let denied = Err("AccessDenied".to_owned());
            assert_eq!(call(method, target, Some(&[(needs.0, other)])), denied, "{method} {target}");
            assert_eq!(call(method, target, Some(&[])), denied, "{method} {target}");
            assert_eq!(call(method, target, None), denied, "{method} {target}");
        }
        for (method, target, code) in [
            ("PATCH", "/admin/user", "MethodNotAllowed"),
            ("GET", "/admin/log", "NotImplemented"),
            ("GET", "/admin/bucket?index&bucket=b", "NotImplemented"),
            ("GET", "/admin/user?uid=x&format=xml", "NotImplemented"),
        ] {
            assert_eq!(call(method, target, Some(all)), Err(code.to_owned()), "{method} {target}");
        }
    }
}

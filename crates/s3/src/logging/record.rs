//! Records of requests. Source: the tables of fields in src/rgw/rgw_bucket_logging.cc of 20, after AWS's
//! server access log format.

use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use bytes::Bytes;
use http_body::Body as _;
use hyper::header::{HeaderValue, REFERER, USER_AGENT};
use hyper::{Method, Request, Response, Uri};
use rgw::{BucketLogging, KeyFilter, LogKind};
use s3s::{Body, S3Result};
use types::RealTime;

use crate::ops::list::Names;
use crate::sign::percent_decode;
use crate::state::{BucketView, now};
use crate::users::Caller;

/// Objects that a request removed, of which each has a record: keys and versions.
#[derive(Debug, Clone, Default)]
pub struct Removals(Arc<Mutex<Vec<OneRemoval>>>);

/// A key, and the version that went.
type OneRemoval = (String, Option<String>);

impl Removals {
    pub fn add(&self, key: &str, version: Option<&str>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.push((key.to_owned(), version.map(str::to_owned)));
    }

    fn take(&self) -> Vec<OneRemoval> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What a record has of a request, as it came in.
pub struct Seed {
    method: Method,
    uri: Uri,
    headers: [Option<HeaderValue>; 3],
    length: Option<HeaderValue>,
    is_copy: bool,
    /// How it is signed, and where that stands.
    signature: [&'static str; 2],
    id: String,
    peer: IpAddr,
    at: RealTime,
    since: Instant,
    removals: Removals,
}

fn signature(uri: &Uri, authorization: Option<&HeaderValue>) -> [&'static str; 2] {
    let query = uri.query().unwrap_or_default();
    let has = |name: &str| query.split('&').any(|field| field.split('=').next() == Some(name));
    match authorization.map(HeaderValue::as_bytes) {
        Some(text) if text.starts_with(b"AWS4-") => ["SigV4", "AuthHeader"],
        Some(_) => ["SigV2", "AuthHeader"],
        None if has("X-Amz-Algorithm") => ["SigV4", "QueryString"],
        None if has("AWSAccessKeyId") => ["SigV2", "QueryString"],
        None => ["-", "-"],
    }
}

/// What a request does, in the words of logs. Source: canonical_name of operations in src/rgw/rgw_op.h of 20.
fn operation(method: &Method, is_object: bool, names: &[&str], is_form: bool) -> String {
    let has = |name: &str| names.contains(&name);
    let known =
        |list: &[(&str, &'static str)]| list.iter().find(|(name, _)| has(name)).map(|(_, what)| *what);
    let what = match is_object {
        true if has("uploadId") && *method == Method::PUT => "PART",
        true => known(&[
            ("uploads", "UPLOAD"),
            ("uploadId", "UPLOAD"),
            ("acl", "ACL"),
            ("tagging", "OBJECT_TAGGING"),
            ("retention", "RETENTION"),
            ("legal-hold", "LEGAL_HOLD"),
            ("attributes", "OBJECT_ATTRIBUTES"),
            ("torrent", "OBJECT_TORRENT"),
        ])
        .unwrap_or("OBJECT"),
        false if is_form => "OBJECT",
        false => known(&[
            ("delete", "DELETE_MULTI_OBJECT"),
            ("uploads", "UPLOADS"),
            ("versions", "BUCKETVERSIONS"),
            ("acl", "ACL"),
            ("policy", "BUCKETPOLICY"),
            ("policyStatus", "BUCKETPOLICY_STATUS"),
            ("publicAccessBlock", "PUBLIC_ACCESS_BLOCK"),
            ("ownershipControls", "OWNERSHIP_CONTROLS"),
            ("encryption", "ENCRYPTION"),
            ("lifecycle", "LIFECYCLE"),
            ("location", "LOCATION"),
            ("logging", "LOGGING_STATUS"),
            ("object-lock", "OBJECT_LOCK"),
            ("requestPayment", "REQUEST_PAYMENT"),
            ("tagging", "TAGGING"),
            ("versioning", "VERSIONING"),
            ("website", "WEBSITE"),
            ("cors", "CORS"),
        ])
        .unwrap_or("BUCKET"),
    };
    format!("REST.{method}.{what}")
}

/// Whether a request changed an object, which journals have.
fn changes(operation: &str, names: &[&str]) -> bool {
    match operation {
        "REST.POST.UPLOAD" => names.contains(&"uploadId"),
        "REST.PUT.OBJECT" | "REST.POST.OBJECT" | "REST.DELETE.OBJECT" => true,
        "REST.POST.DELETE_MULTI_OBJECT" | "REST.PUT.RETENTION" | "REST.PUT.LEGAL_HOLD" => true,
        "REST.PUT.OBJECT_TAGGING" | "REST.DELETE.OBJECT_TAGGING" => true,
        other => other == "REST.PUT.ACL",
    }
}

fn fits(filter: &KeyFilter, key: Option<&str>) -> bool {
    if *filter == KeyFilter::default() {
        return true;
    }
    key.is_some_and(|key| {
        let key = key.as_bytes();
        key.starts_with(&filter.prefix) && key.ends_with(&filter.suffix)
    })
}

/// A text that stands in quotes: nothing in it ends them, or the line.
fn quoted(text: &[u8]) -> String {
    let byte = |b: &u8| match b {
        b'"' | b'\\' | b'[' | b']' => format!("%{b:02X}"),
        0x20..=0x7e => char::from(*b).to_string(),
        b => format!("%{b:02X}"),
    };
    text.iter().map(byte).collect()
}

/// A text that stands by itself.
fn word(text: &str) -> String {
    match text.is_empty() {
        true => "-".to_owned(),
        false => Names::escaped().show(text.as_bytes()),
    }
}

fn or_dash(text: &str) -> &str {
    if text.is_empty() { "-" } else { text }
}

/// What an answer says of itself.
#[derive(Debug, Default, PartialEq, Eq)]
struct Outcome {
    status: u16,
    code: String,
    sent: u64,
    version: String,
    etag: String,
}

impl Outcome {
    async fn of(answered: &mut S3Result<Response<Body>>) -> Self {
        let response = match answered {
            Err(e) => {
                let status = e.status_code().or_else(|| e.code().status_code()).map_or(500, |s| s.as_u16());
                return Self { status, code: e.code().as_str().to_owned(), ..Self::default() };
            }
            Ok(response) => response,
        };
        let text = |name: &str| {
            let value = response.headers().get(name).and_then(|value| value.to_str().ok());
            value.unwrap_or_default().to_owned()
        };
        let (version, etag) = (text("x-amz-version-id"), text("etag").trim_matches('"').to_owned());
        let said = text("content-length").parse().ok();
        let sent = said.or_else(|| response.body().size_hint().exact()).unwrap_or(0);
        let status = response.status().as_u16();
        let code = if status >= 400 { code_of(response).await } else { String::new() };
        Self { status, code, sent, version, etag }
    }
}

/// The code of an error's document, which stays as it is.
async fn code_of(response: &mut Response<Body>) -> String {
    let mut body = std::mem::replace(response.body_mut(), Body::empty());
    let mut all = Vec::new();
    while let Some(Ok(frame)) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        all.extend_from_slice(&frame.into_data().unwrap_or_default());
    }
    let text = String::from_utf8_lossy(&all).into_owned();
    *response.body_mut() = Body::from(Bytes::from(all));
    let code = text.split_once("<Code>").and_then(|(_, rest)| rest.split_once("</Code>"));
    code.map(|(code, _)| code.to_owned()).unwrap_or_default()
}

impl Seed {
    pub fn of<B>(request: &Request<B>, id: &str, peer: IpAddr) -> Self {
        let header = |name: &str| request.headers().get(name).cloned();
        let host = header("host");
        let headers =
            [request.headers().get(REFERER).cloned(), request.headers().get(USER_AGENT).cloned(), host];
        Self {
            method: request.method().clone(),
            uri: request.uri().clone(),
            headers,
            length: header("x-amz-decoded-content-length").or_else(|| header("content-length")),
            is_copy: request.headers().contains_key("x-amz-copy-source"),
            signature: signature(request.uri(), request.headers().get("authorization")),
            id: id.to_owned(),
            peer,
            at: now(),
            since: Instant::now(),
            removals: Removals::default(),
        }
    }

    pub fn removals(&self) -> Removals {
        self.removals.clone()
    }

    fn path(&self) -> Option<(String, Option<String>)> {
        let path = percent_decode(self.uri.path())?;
        let path = path.strip_prefix('/').unwrap_or(&path);
        let (bucket, key) = path.split_once('/').unwrap_or((path, ""));
        let bucket = bucket.rsplit(':').next().unwrap_or_default();
        (!bucket.is_empty()).then(|| (bucket.to_owned(), Some(key.to_owned()).filter(|key| !key.is_empty())))
    }

    /// Whether something goes, which a log that cannot be written does not hinder: a bucket can be emptied
    /// when the one that has its logs is gone.
    pub fn removes(&self) -> bool {
        let names_removals = || {
            let mut fields = self.uri.query().unwrap_or_default().split('&');
            fields.any(|field| field.split('=').next() == Some("delete"))
        };
        self.method == Method::DELETE || (self.method == Method::POST && names_removals())
    }

    /// The request's bucket; nothing where it has none.
    pub fn bucket(&self) -> Option<String> {
        if self.method == Method::OPTIONS {
            return None;
        }
        Some(self.path()?.0)
    }

    /// The records of the request, in the words of its bucket's log.
    pub async fn records(
        &self,
        view: &BucketView,
        caller: &Caller,
        conf: &BucketLogging,
        answered: &mut S3Result<Response<Body>>,
    ) -> Vec<Bytes> {
        let Some((_, key)) = self.path() else { return Vec::new() };
        let names: Vec<&str> = self.uri.query().unwrap_or_default().split('&').collect();
        let names: Vec<&str> =
            names.iter().map(|field| field.split('=').next().unwrap_or_default()).collect();
        let is_multi = self.method == Method::POST && key.is_none() && names.contains(&"delete");
        let is_form =
            self.method == Method::POST && key.is_none() && !is_multi && !names.contains(&"logging");
        let operation = operation(&self.method, key.is_some(), &names, is_form);
        let outcome = Outcome::of(answered).await;
        let is_journal = conf.kind == LogKind::Journal;
        if is_journal && (outcome.status >= 300 || !changes(&operation, &names)) {
            return Vec::new();
        }
        let named = names.contains(&"versionId").then(|| self.field("versionId")).flatten();
        let all: Vec<(Option<String>, Option<String>)> = match is_multi {
            true => self.removals.take().into_iter().map(|(key, version)| (Some(key), version)).collect(),
            false => vec![(key, named)],
        };
        let own = [&view.info.bucket.tenant[..], b":", &view.info.bucket.name].concat();
        let bucket = String::from_utf8_lossy(own.strip_prefix(b":").unwrap_or(&own)).into_owned();
        let owner = String::from_utf8_lossy(&view.info.owner.to_text()).into_owned();
        let head = format!("{} {} [{}]", or_dash(&owner), bucket, time(self.at));
        let mut records = Vec::with_capacity(all.len());
        for (key, version) in all {
            if is_journal && !fits(&conf.filter, key.as_deref()) {
                continue;
            }
            let version = version.unwrap_or_else(|| outcome.version.clone());
            let key = word(key.as_deref().unwrap_or_default());
            let record = match is_journal {
                true => {
                    let (size, etag) = (self.size(&outcome), or_dash(&outcome.etag));
                    format!("{head} {operation} {key} {size} {} {etag}", word(&version))
                }
                false => self.standard(&head, &operation, (&key, &version), caller, &outcome),
            };
            records.push(record.into());
        }
        records
    }

    fn field(&self, name: &str) -> Option<String> {
        let mut fields = self.uri.query()?.split('&').filter_map(|field| field.split_once('='));
        fields.find(|(n, _)| *n == name).and_then(|(_, value)| percent_decode(value))
    }

    /// Bytes of what was written or read.
    fn size(&self, outcome: &Outcome) -> String {
        let sent = self.length.as_ref().and_then(|length| length.to_str().ok()?.parse().ok()).unwrap_or(0u64);
        let size = match self.method {
            Method::PUT if !self.is_copy => sent,
            Method::GET | Method::HEAD => outcome.sent,
            _ => 0,
        };
        if size == 0 { "-".to_owned() } else { size.to_string() }
    }

    fn standard(
        &self,
        head: &str,
        operation: &str,
        (key, version): (&str, &str),
        caller: &Caller,
        outcome: &Outcome,
    ) -> String {
        let requester = caller.user().map(|user| String::from_utf8_lossy(&user.id.to_text()).into_owned());
        let [referrer, agent, host] = &self.headers;
        let text = |value: &Option<HeaderValue>| match value {
            Some(value) => quoted(value.as_bytes()),
            None => "-".to_owned(),
        };
        let host = host.as_ref().map(|host| word(&String::from_utf8_lossy(host.as_bytes())));
        let target = self.uri.path_and_query().map_or("/", |target| target.as_str());
        let request = format!("{} {} HTTP/1.1", self.method, quoted(target.as_bytes()));
        let sent = if outcome.sent == 0 { "-".to_owned() } else { outcome.sent.to_string() };
        let [version_of_signature, place_of_signature] = self.signature;
        let acl = if caller.was_let_by_grants() { "Yes" } else { "-" };
        format!(
            "{head} {} {} {} {operation} {key} \"{request}\" {} {} {sent} {} - {} \"{}\" \"{}\" {} - {} - {} {} - - {acl}",
            self.peer.to_canonical(),
            requester.as_deref().map_or("-", or_dash),
            self.id,
            outcome.status,
            or_dash(&outcome.code),
            self.size(outcome),
            self.since.elapsed().as_millis(),
            text(referrer),
            text(agent),
            word(version),
            version_of_signature,
            place_of_signature,
            host.as_deref().unwrap_or("-"),
        )
    }
}

fn time(at: RealTime) -> String {
    let at = jiff::Timestamp::from_second(at.0.sec.into()).unwrap_or_default();
    format!("{} +0000", jiff::tz::Offset::UTC.to_datetime(at).strftime("%d/%b/%Y:%H:%M:%S"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_have_names_in_logs() {
        let of = |method: Method, is_object, names: &[&str]| operation(&method, is_object, names, false);
        for (method, is_object, names, want) in [
            (Method::PUT, true, &[][..], "REST.PUT.OBJECT"),
            (Method::PUT, true, &["partNumber", "uploadId"], "REST.PUT.PART"),
            (Method::POST, true, &["uploads"], "REST.POST.UPLOAD"),
            (Method::POST, true, &["uploadId"], "REST.POST.UPLOAD"),
            (Method::HEAD, true, &["versionId"], "REST.HEAD.OBJECT"),
            (Method::PUT, true, &["acl"], "REST.PUT.ACL"),
            (Method::DELETE, true, &["tagging"], "REST.DELETE.OBJECT_TAGGING"),
            (Method::GET, false, &["list-type", "prefix"], "REST.GET.BUCKET"),
            (Method::POST, false, &["delete"], "REST.POST.DELETE_MULTI_OBJECT"),
            (Method::PUT, false, &["policy"], "REST.PUT.BUCKETPOLICY"),
        ] {
            assert_eq!(of(method, is_object, names), want);
        }
        let journal = |operation, names: &[&str]| changes(operation, names);
        assert!(journal("REST.POST.UPLOAD", &["uploadId"]) && !journal("REST.POST.UPLOAD", &["uploads"]));
        assert!(journal("REST.PUT.ACL", &["acl"]) && !journal("REST.PUT.PART", &["uploadId"]));
    }

    #[test]
    fn no_field_of_a_request_ends_its_record() {
        assert_eq!(quoted(b"a \"b\"\\\n[c]\xff"), "a %22b%22%5C%0A%5Bc%5D%FF");
        assert_eq!((word("a b'c\n"), word("")), ("a%20b%27c%0A".to_owned(), "-".to_owned()));
    }

    #[test]
    fn journals_have_keys_that_fit() {
        let filter = KeyFilter { prefix: "a/".into(), suffix: ".txt".into(), ..KeyFilter::default() };
        assert!(fits(&filter, Some("a/b.txt")) && !fits(&filter, Some("a/b")) && !fits(&filter, None));
        assert!(fits(&KeyFilter::default(), None));
    }

    fn seed(method: Method, uri: &str, headers: &[(&'static str, &str)]) -> Seed {
        let request =
            headers.iter().fold(Request::builder().method(method).uri(uri), |r, (n, v)| r.header(*n, *v));
        Seed::of(&request.body(()).unwrap(), "tx1", "::ffff:10.0.0.1".parse().unwrap())
    }

    #[test]
    fn records_have_twenty_six_fields() {
        let of =
            seed(Method::PUT, "/b/a%20b?x=1", &[("user-agent", "SDK \"1\" [2]"), ("content-length", "5")]);
        assert_eq!(of.path(), Some(("b".to_owned(), Some("a b".to_owned()))));
        let outcome = Outcome { status: 200, ..Outcome::default() };
        let head = format!("o b [{}]", time(RealTime(types::Utime { sec: 1_795_932_760, nsec: 0 })));
        let record = of.standard(&head, "REST.PUT.OBJECT", ("a%20b", "v"), &Caller::default(), &outcome);
        let elapsed = record.split(' ').nth(17).unwrap().to_owned();
        assert!(elapsed.parse::<u32>().is_ok(), "{record}");
        let want = format!(
            "o b [29/Nov/2026:06:12:40 +0000] 10.0.0.1 - tx1 REST.PUT.OBJECT a%20b \"PUT /b/a%20b?x=1 HTTP/1.1\" \
             200 - - 5 - {elapsed} \"-\" \"SDK %221%22 %5B2%5D\" v - - - - - - - -"
        );
        assert_eq!(record, want);
    }

    #[test]
    fn how_a_request_is_signed_is_seen() {
        let of = |uri: &str, headers: &[(&'static str, &str)]| seed(Method::GET, uri, headers).signature;
        assert_eq!(of("/b", &[]), ["-", "-"]);
        assert_eq!(of("/b", &[("authorization", "AWS4-HMAC-SHA256 x")]), ["SigV4", "AuthHeader"]);
        assert_eq!(of("/b", &[("authorization", "AWS a:b")]), ["SigV2", "AuthHeader"]);
        assert_eq!(of("/b?X-Amz-Algorithm=x", &[]), ["SigV4", "QueryString"]);
        assert_eq!(of("/b?AWSAccessKeyId=x&Signature=y", &[]), ["SigV2", "QueryString"]);
    }

    #[tokio::test]
    async fn what_failed_is_told_and_stays_as_it_is() {
        let mut response = Response::new(Body::from("<Error><Code>NoSuchKey</Code></Error>".to_owned()));
        *response.status_mut() = hyper::StatusCode::NOT_FOUND;
        let mut answered = Ok(response);
        let outcome = Outcome::of(&mut answered).await;
        assert_eq!((outcome.status, outcome.code.as_str(), outcome.sent), (404, "NoSuchKey", 37));
        let mut body = answered.unwrap().into_body();
        let frame = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await.unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap().len(), 37);
        let mut failed = Err(s3s::S3ErrorCode::AccessDenied.into());
        let outcome = Outcome::of(&mut failed).await;
        assert_eq!((outcome.status, outcome.code.as_str()), (403, "AccessDenied"));
    }
}

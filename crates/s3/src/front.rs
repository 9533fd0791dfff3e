//! A request from the connection to the operation: who sent it is found out, its body is held against what
//! was signed, and what S3's library would do without bounds has them.
//!
//! 1. The library sees no signature: all of them are checked here, with bodies that go by in windows.

use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

use base64::Engine;
use bytes::Bytes;
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use md5::{Digest, Md5};
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s::{Body, S3Error, S3ErrorCode, S3Result, s3_error};

use crate::body::{Checked, Checks};
use crate::checksum::Checksum;
use crate::shares::{Share, Shares};
use crate::sign::{self, Claim, Payload, chunks::Decoder, header};
use crate::state::{Gateway, now};
use crate::users::Caller;
use crate::{attrs, errors};

/// Names and values of all headers together. Source: docs on limits of S3, 8 KiB with 2 KiB of metadata.
const MAX_HEADERS: usize = 16 << 10;
/// A body that is no object's.
const MAX_DOCUMENT: u64 = 1 << 20;
/// One object's bytes in one request. Source: rgw_max_put_size in src/common/options.cc.
const MAX_PUT: u64 = 5 << 30;
/// What windows are counted in.
const UNIT: u64 = 1 << 20;
/// Units of a request with a body as long as one likes: two pieces that are held, and the core's own.
const WRITER_UNITS: u64 = 16;
/// Units of any other request.
const READER_UNITS: usize = 2;

/// Parameters of a signature in a query.
const OF_SIGNATURE: [&str; 8] = [
    "X-Amz-Algorithm",
    "X-Amz-Credential",
    "X-Amz-Date",
    "X-Amz-Expires",
    "X-Amz-SignedHeaders",
    "X-Amz-Signature",
    "X-Amz-Security-Token",
    "X-Amz-Content-Sha256",
];

/// Answers requests.
pub struct Front {
    gateway: Gateway,
    service: S3Service,
    windows: Arc<Shares>,
}

impl Front {
    /// `window_bytes` bounds what all requests hold of bodies.
    pub fn new(gateway: Gateway, window_bytes: u64) -> Self {
        let units = usize::try_from(window_bytes / UNIT).unwrap_or(usize::MAX);
        let service = S3ServiceBuilder::new(gateway.clone()).build();
        Self { gateway, service, windows: Shares::new(units.max(READER_UNITS)) }
    }

    /// Whether no request is under way.
    pub fn is_idle(&self) -> bool {
        self.windows.is_empty()
    }

    /// Answers one request of a client at an address; the share is to be held until the answer went out.
    pub async fn answer(&self, request: Request<Incoming>, peer: IpAddr) -> (Response<Body>, Option<Share>) {
        let number = self.gateway.number();
        let mends = mend_of(request.method(), request.uri());
        let (result, share) = match self.admit(request, peer).await {
            Ok((request, share)) => {
                let answered = self.service.call(request).await;
                let answered = match (mends, answered) {
                    (Some(mend), Ok(answered)) => mended(answered, mend).await,
                    (_, answered) => answered,
                };
                (answered, Some(share))
            }
            Err(e) => (Err(e), None),
        };
        let mut response = result.or_else(S3Error::to_hyper_response).unwrap_or_else(|_| {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
            response
        });
        // The library says so of answers with a body alone.
        let is_part = response.headers().contains_key("content-range");
        if is_part && response.status() == StatusCode::OK {
            *response.status_mut() = StatusCode::PARTIAL_CONTENT;
        }
        let id = format!("tx{number:021x}-{}", self.gateway.site().instance);
        if let Ok(id) = id.parse() {
            response.headers_mut().insert("x-amz-request-id", id);
        }
        (response, share)
    }

    async fn admit(&self, request: Request<Incoming>, peer: IpAddr) -> S3Result<(Request<Body>, Share)> {
        let (mut parts, body) = request.into_parts();
        check_headers(&parts)?;
        check_query(&parts)?;
        attrs::refuse(&parts.headers)?;
        let claim = sign::claim(&parts)?;
        let (caller, key) = self.identify(&parts, claim.as_ref()).await?;
        let payload = match &claim {
            Some(claim) => claim.payload.clone(),
            None => header(&parts, "x-amz-content-sha256").map_or(Ok(Payload::Unsigned), Payload::of)?,
        };
        let is_data = is_data(&parts)?;
        let length = length(&parts, &payload, is_data)?;
        let units = if is_data { length.div_ceil(UNIT).saturating_add(1).min(WRITER_UNITS) } else { 0 };
        let units = usize::try_from(units).unwrap_or(usize::MAX).max(READER_UNITS);
        let share = self.windows.take(peer, units).ok_or(S3ErrorCode::SlowDown)?;
        let checks = checks(&parts, payload, key, length)?;
        let body = Checked::new(body, checks);
        let body = match is_data {
            true => Body::http_body_unsync(body),
            false => document(&parts.headers, body.collect(MAX_DOCUMENT).await?)?.into(),
        };
        strip(&mut parts, length)?;
        parts.extensions.insert(caller);
        Ok((Request::from_parts(parts, body), share))
    }

    /// Who sent a request, and what its chunks are signed with.
    async fn identify(
        &self,
        parts: &Parts,
        claim: Option<&Claim>,
    ) -> S3Result<(Caller, Option<sign::ChunkKey>)> {
        let Some(claim) = claim else { return Ok((Caller::Nobody, None)) };
        if parts.headers.contains_key("x-amz-security-token") {
            return Err(errors::not_served("tokens of sessions are not served"));
        }
        let (user, secret) = self.gateway.user(&claim.access_key).await?;
        let key = claim.verify(parts, &secret, now().0.sec.into())?;
        if user.suspended != 0 {
            return Err(errors::custom("UserSuspended", 403));
        }
        Ok((Caller::User(user), Some(key)))
    }
}

/// What is done to a document that the library makes.
type Mend = fn(&mut StatusCode, String) -> String;

/// Answers to these requests are not as the library makes them.
fn mend_of(method: &Method, uri: &Uri) -> Option<Mend> {
    let has = |name: &str| {
        let mut fields = uri.query().unwrap_or_default().split('&');
        fields.any(|field| field.split('=').next() == Some(name))
    };
    match *method {
        Method::POST if has("uploadId") => Some(settled),
        Method::GET if has("acl") => Some(with_types),
        _ => None,
    }
}

async fn mended(answered: Response<Body>, mend: Mend) -> S3Result<Response<Body>> {
    let (mut parts, mut body) = answered.into_parts();
    let mut all = Vec::new();
    while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        let frame = frame.map_err(|e| S3Error::with_source(S3ErrorCode::InternalError, e))?;
        all.extend_from_slice(&frame.into_data().unwrap_or_default());
    }
    let text = String::from_utf8(all).map_err(|_| S3ErrorCode::InternalError)?;
    parts.headers.remove("trailer");
    let text = mend(&mut parts.status, text);
    Ok(Response::from_parts(parts, Body::from(text)))
}

/// The library answers completions with success before it knows; here the answer waits, and says what came of
/// it. Clients wait for minutes, and a completion takes as long as its parts' heads are read.
fn settled(status: &mut StatusCode, text: String) -> String {
    // Spaces stood for waiting.
    let (declaration, document) = text.split_once("?>").unwrap_or(("", &text));
    let document = document.trim_start();
    if document.starts_with("<Error>") {
        let code = document.split_once("<Code>").and_then(|(_, rest)| rest.split_once("</Code>"));
        let code = code.and_then(|(code, _)| S3ErrorCode::from_bytes(code.as_bytes()));
        let named = code.and_then(|code| code.status_code());
        *status = named.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    }
    let end = if declaration.is_empty() { "" } else { "?>" };
    format!("{declaration}{end}{document}")
}

/// The library writes the type of a grantee as an element, where clients look for an attribute.
fn with_types(_: &mut StatusCode, text: String) -> String {
    let mut pieces = text.split("<Grantee>");
    let mut out = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let found = piece.split_once("<xsi:type>").and_then(|(before, rest)| {
            let (kind, behind) = rest.split_once("</xsi:type>")?;
            Some((before, kind, behind))
        });
        let Some((before, kind, behind)) = found else {
            out.push_str("<Grantee>");
            out.push_str(piece);
            continue;
        };
        let space = "http://www.w3.org/2001/XMLSchema-instance";
        out.push_str(&format!("<Grantee xmlns:xsi=\"{space}\" xsi:type=\"{kind}\">{before}{behind}"));
    }
    out
}

fn check_headers(parts: &Parts) -> S3Result<()> {
    let size: usize = parts.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
    let uri = parts.uri.path_and_query().map_or(0, |target| target.as_str().len());
    if size > MAX_HEADERS || uri > MAX_HEADERS {
        return Err(errors::custom("RequestHeaderSectionTooLarge", 400));
    }
    let form = header(parts, "content-type")
        .is_some_and(|kind| kind.trim_start().to_ascii_lowercase().starts_with("multipart/form-data"));
    if form && parts.method == Method::POST {
        return Err(errors::not_served("forms are not served"));
    }
    Ok(())
}

/// Names in the query of a request that changes something, besides those of signatures, for which the library
/// has an operation of its own. By method, and by whether the path names an object.
const KNOWN: [(Method, bool, &[&str]); 6] = [
    (Method::PUT, true, &["partNumber", "uploadId", "acl", "tagging", "retention", "legal-hold"]),
    (Method::POST, true, &["uploads", "uploadId", "restore", "select", "select-type", "versionId"]),
    (Method::DELETE, true, &["uploadId", "versionId", "tagging"]),
    (
        Method::PUT,
        false,
        &[
            "acl",
            "cors",
            "encryption",
            "lifecycle",
            "logging",
            "notification",
            "object-lock",
            "ownershipControls",
            "policy",
            "publicAccessBlock",
            "replication",
            "requestPayment",
            "tagging",
            "versioning",
            "website",
            "accelerate",
        ],
    ),
    (Method::POST, false, &["delete"]),
    (
        Method::DELETE,
        false,
        &[
            "cors",
            "encryption",
            "lifecycle",
            "ownershipControls",
            "policy",
            "publicAccessBlock",
            "replication",
            "tagging",
            "website",
        ],
    ),
];

/// Refuses changes that ask for more than is known: without the name the same request does something else,
/// and takes `DELETE /bucket?notification` for the end of the bucket.
fn check_query(parts: &Parts) -> S3Result<()> {
    let is_object = key(parts)?.is_some();
    let known = KNOWN.iter().find(|(method, object, _)| *method == parts.method && *object == is_object);
    let Some((.., known)) = known else { return Ok(()) };
    let fields = parts.uri.query().unwrap_or_default().split('&').filter(|field| !field.is_empty());
    let names: Vec<&str> = fields.map(|field| field.split('=').next().unwrap_or_default()).collect();
    let of_client = |name: &str| name.get(..2).is_some_and(|start| start.eq_ignore_ascii_case("x-"));
    if names.iter().any(|name| !known.contains(name) && !OF_SIGNATURE.contains(name) && !of_client(name)) {
        return Err(errors::not_served("the query asks for what is not served"));
    }
    let has = |name: &str| names.contains(&name);
    if parts.method == Method::PUT && has("partNumber") != has("uploadId") {
        return Err(s3_error!(InvalidArgument, "a part has a number and an upload"));
    }
    Ok(())
}

/// The key that the path names.
fn key(parts: &Parts) -> S3Result<Option<String>> {
    let path = sign::percent_decode(parts.uri.path()).ok_or(S3ErrorCode::InvalidURI)?;
    let key = path.trim_start_matches('/').split_once('/').map(|(_, key)| key).unwrap_or_default();
    Ok((!key.is_empty()).then(|| key.to_owned()))
}

/// Whether the body becomes an object's bytes, of any length.
fn is_data(parts: &Parts) -> S3Result<bool> {
    let query = parts.uri.query().unwrap_or_default().split('&').filter(|field| !field.is_empty());
    let plain = |field: &str| {
        let name = field.split('=').next().unwrap_or_default();
        matches!(name, "partNumber" | "uploadId" | "x-id") || OF_SIGNATURE.contains(&name)
    };
    let mut fields = query;
    let is_copy = parts.headers.contains_key("x-amz-copy-source");
    Ok(parts.method == Method::PUT && key(parts)?.is_some() && !is_copy && fields.all(plain))
}

/// Bytes of the body, out of its chunks.
fn length(parts: &Parts, payload: &Payload, is_data: bool) -> S3Result<u64> {
    let number = |name: &str| {
        let text = parts.headers.get(name).map(|value| value.to_str().unwrap_or_default());
        text.map(|text| text.parse::<u64>().map_err(|_| s3_error!(InvalidArgument, "a length is no number")))
    };
    let name = match payload {
        Payload::Chunks { .. } => "x-amz-decoded-content-length",
        _ => "content-length",
    };
    let length = match number(name).transpose()? {
        Some(length) => length,
        None if is_data || parts.headers.contains_key("transfer-encoding") => {
            return Err(S3ErrorCode::MissingContentLength.into());
        }
        None => 0,
    };
    if length > MAX_PUT {
        return Err(S3ErrorCode::EntityTooLarge.into());
    }
    Ok(length)
}

fn checks(parts: &Parts, payload: Payload, key: Option<sign::ChunkKey>, length: u64) -> S3Result<Checks> {
    let mut checks = Checks { length, ..Checks::default() };
    let mut named: Vec<(Checksum, Option<String>)> = Vec::new();
    for name in Checksum::HEADERS {
        if let (Some(said), Some(sum)) = (header(parts, name), Checksum::of(name)) {
            named.push((sum, Some(said.to_owned())));
        }
    }
    match payload {
        Payload::Unsigned => {}
        Payload::Sum(sum) => checks.sum = Some(sum),
        Payload::Chunks { signed, trailer } => {
            if signed && key.is_none() {
                return Err(s3_error!(AccessDenied, "chunks are signed, and the request is not"));
            }
            checks.decoder = Some(Decoder::new(key.filter(|_| signed), trailer));
            for name in header(parts, "x-amz-trailer").unwrap_or_default().split(',').map(str::trim) {
                let sum = Checksum::of(&name.to_ascii_lowercase());
                named.extend(sum.filter(|_| trailer).map(|sum| (sum, None)));
            }
        }
    }
    // One of a kind is what clients send; five cost as much as five clients.
    if named.len() > 1 {
        return Err(s3_error!(InvalidRequest, "a request has one checksum"));
    }
    checks.checksums = named;
    Ok(checks)
}

/// A document that is whole.
fn document(headers: &HeaderMap, document: Bytes) -> S3Result<Bytes> {
    if let Some(wanted) = headers.get("content-md5") {
        let wanted = base64::prelude::BASE64_STANDARD.decode(wanted.as_bytes());
        let wanted = wanted.map_err(|_| S3ErrorCode::InvalidDigest)?;
        if wanted.len() != 16 {
            return Err(S3ErrorCode::InvalidDigest.into());
        }
        if wanted != Md5::digest(&document)[..] {
            return Err(S3ErrorCode::BadDigest.into());
        }
    }
    // Documents of S3 have no types of their own, whose entities would be put in. Comments and CDATA are
    // refused too: the library takes the text before one of these for the whole, and so another key.
    if document.windows(2).any(|pair| pair == b"<!") {
        return Err(S3ErrorCode::MalformedXML.into());
    }
    Ok(document)
}

/// Takes off what belongs to signatures and chunks, and what the library does not take.
fn strip(parts: &mut Parts, length: u64) -> S3Result<()> {
    let headers = &mut parts.headers;
    for name in ["authorization", "x-amz-content-sha256", "x-amz-date", "x-amz-trailer", "transfer-encoding"]
    {
        headers.remove(name);
    }
    headers.remove("x-amz-decoded-content-length");
    if length > 0 || headers.contains_key("content-length") {
        headers.insert("content-length", length.into());
    }
    let encodings = headers.get("content-encoding").and_then(|value| value.to_str().ok());
    if let Some(encodings) = encodings {
        let kept: Vec<&str> = encodings.split(',').map(str::trim).filter(|e| *e != "aws-chunked").collect();
        let kept = kept.join(", ");
        headers.remove("content-encoding");
        if !kept.is_empty() {
            headers.insert("content-encoding", kept.parse().map_err(|_| S3ErrorCode::InvalidArgument)?);
        }
    }
    // What is no single range is passed over.
    let range = headers.get("range").and_then(|value| value.to_str().ok());
    if range.is_some_and(|range| s3s::dto::Range::parse(range).is_err()) {
        headers.remove("range");
    }
    let Some(query) = parts.uri.query() else { return Ok(()) };
    let of_signature = |field: &&str| OF_SIGNATURE.contains(&field.split('=').next().unwrap_or_default());
    let kept: Vec<&str> = query.split('&').filter(|field| !of_signature(field)).collect();
    let target = match kept.is_empty() {
        true => parts.uri.path().to_owned(),
        false => format!("{}?{}", parts.uri.path(), kept.join("&")),
    };
    parts.uri = Uri::try_from(target).map_err(|_| S3ErrorCode::InvalidURI)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(method: Method, uri: &str, headers: &[(&'static str, &str)]) -> Parts {
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn changes_that_ask_for_what_is_not_known_are_refused() {
        let code = |method, uri: &str| {
            check_query(&parts(method, uri, &[])).err().map(|e| e.code().as_str().to_owned())
        };
        for (method, uri) in [
            (Method::PUT, "/b/k?append&position=100"),
            (Method::PUT, "/b/k?partNumber=1&uploadId=2&torrent"),
            (Method::DELETE, "/b?notification"),
            (Method::DELETE, "/b?versioning"),
            (Method::DELETE, "/b/k?acl"),
            (Method::POST, "/b?deletes"),
            (Method::PUT, "/b?uploads"),
        ] {
            assert_eq!(code(method, uri).as_deref(), Some("NotImplemented"), "{uri}");
        }
        assert_eq!(code(Method::PUT, "/b/k?uploadId=2").as_deref(), Some("InvalidArgument"));
        assert_eq!(code(Method::PUT, "/b/k?partNumber=2").as_deref(), Some("InvalidArgument"));
        for (method, uri) in [
            (Method::PUT, "/b/k?partNumber=1&uploadId=2&x-id=UploadPart"),
            (Method::PUT, "/b/k?X-Amz-Signature=1&X-Amz-Date=2"),
            (Method::DELETE, "/b/"),
            (Method::DELETE, "/b/k?uploadId=2"),
            (Method::POST, "/b?delete"),
            (Method::POST, "/b/k?uploads="),
            (Method::GET, "/b/k?anything"),
        ] {
            assert_eq!(code(method, uri), None, "{uri}");
        }
    }

    #[test]
    fn documents_with_more_than_elements_and_text_are_refused() {
        let none = HeaderMap::new();
        for text in ["<!DOCTYPE a [<!ENTITY x 'y'>]><a/>", "<a>b<!-- -->c</a>", "<a>b<![CDATA[c]]></a>"] {
            assert!(document(&none, text.into()).is_err(), "{text}");
        }
        assert!(document(&none, "<?xml version='1.0'?><a>b!</a>".into()).is_ok());
    }

    #[test]
    fn bodies_of_objects_are_told_from_documents() {
        let check =
            |method, uri: &str, want| assert_eq!(is_data(&parts(method, uri, &[])).unwrap(), want, "{uri}");
        check(Method::PUT, "/b/k", true);
        check(Method::PUT, "/b/k?partNumber=1&uploadId=2", true);
        check(Method::PUT, "/b/k?X-Amz-Signature=1&x-id=PutObject", true);
        check(Method::PUT, "/b/k?acl", false);
        check(Method::PUT, "/b/k?tagging=", false);
        check(Method::PUT, "/b", false);
        check(Method::PUT, "/b/", false);
        check(Method::POST, "/b/k?uploadId=2", false);
        assert!(!is_data(&parts(Method::PUT, "/b/k", &[("x-amz-copy-source", "/a/b")])).unwrap());
    }

    #[test]
    fn lengths_are_known_and_bounded() {
        let of = |headers: &[(&'static str, &str)], payload: &Payload, is_data| {
            length(&parts(Method::PUT, "/b/k", headers), payload, is_data)
                .map_err(|e| e.code().as_str().to_owned())
        };
        let chunks = Payload::Chunks { signed: true, trailer: false };
        assert_eq!(of(&[("content-length", "7")], &Payload::Unsigned, true), Ok(7));
        assert_eq!(of(&[("content-length", "7")], &chunks, true), Err("MissingContentLength".into()));
        assert_eq!(of(&[("x-amz-decoded-content-length", "5")], &chunks, true), Ok(5));
        assert_eq!(of(&[], &Payload::Unsigned, false), Ok(0));
        assert_eq!(of(&[], &Payload::Unsigned, true), Err("MissingContentLength".into()));
        assert_eq!(
            of(&[("content-length", "5368709121")], &Payload::Unsigned, true),
            Err("EntityTooLarge".into())
        );
        assert_eq!(of(&[("content-length", "-1")], &Payload::Unsigned, true), Err("InvalidArgument".into()));
    }

    #[test]
    fn the_library_sees_neither_signatures_nor_chunks() {
        let uri = "/b/a%20b?X-Amz-Signature=s&uploadId=u&X-Amz-Date=d";
        let headers = [
            ("authorization", "x"),
            ("content-encoding", "aws-chunked,gzip"),
            ("content-length", "99"),
            ("range", "bytes=1-2,4-5"),
        ];
        let mut parts = parts(Method::PUT, uri, &headers);
        strip(&mut parts, 5).unwrap();
        assert_eq!(parts.uri, "/b/a%20b?uploadId=u");
        let left: Vec<_> = parts.headers.iter().map(|(n, v)| (n.as_str(), v.to_str().unwrap())).collect();
        assert_eq!(left.len(), 2);
        assert!(left.contains(&("content-encoding", "gzip")) && left.contains(&("content-length", "5")));
    }

    #[test]
    fn documents_with_types_of_their_own_are_refused() {
        let headers = HeaderMap::new();
        assert!(document(&headers, Bytes::from_static(b"<?xml version='1.0'?><Delete/>")).is_ok());
        let entity = Bytes::from_static(b"<!doctype a [<!ENTITY x 'y'>]><Delete/>");
        assert_eq!(document(&headers, entity).unwrap_err().code().as_str(), "MalformedXML");
        let mut sum = HeaderMap::new();
        sum.insert("content-md5", "AAAA".parse().unwrap());
        assert_eq!(document(&sum, Bytes::new()).unwrap_err().code().as_str(), "InvalidDigest");
        sum.insert("content-md5", "AAAAAAAAAAAAAAAAAAAAAA==".parse().unwrap());
        assert_eq!(document(&sum, Bytes::new()).unwrap_err().code().as_str(), "BadDigest");
    }

    #[test]
    fn completions_say_what_came_of_them_and_grantees_have_types() {
        let mut status = StatusCode::OK;
        let text = "<?xml version=\"1.0\"?>   <Error><Code>InvalidPart</Code></Error>".to_owned();
        assert_eq!(
            settled(&mut status, text),
            "<?xml version=\"1.0\"?><Error><Code>InvalidPart</Code></Error>"
        );
        assert_eq!(status, StatusCode::BAD_REQUEST);
        let mut status = StatusCode::OK;
        assert_eq!(settled(&mut status, " <Result/>".to_owned()), "<Result/>");
        assert_eq!(status, StatusCode::OK);
        let grants =
            "<A><Grantee><ID>u</ID><xsi:type>CanonicalUser</xsi:type></Grantee><Grantee/></A>".to_owned();
        let space = "xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\" xsi:type=\"CanonicalUser\"";
        let want = format!("<A><Grantee {space}><ID>u</ID></Grantee><Grantee/></A>");
        assert_eq!(with_types(&mut status, grants), want);
    }

    #[test]
    fn headers_and_forms_have_bounds() {
        let long = "x".repeat(MAX_HEADERS);
        assert!(check_headers(&parts(Method::GET, "/", &[("x-amz-meta-a", &long)])).is_err());
        assert!(check_headers(&parts(Method::GET, &format!("/{long}"), &[])).is_err());
        let form = [("content-type", "Multipart/Form-Data; boundary=x")];
        assert!(check_headers(&parts(Method::POST, "/b", &form)).is_err());
        assert!(check_headers(&parts(Method::PUT, "/b/k", &form)).is_ok());
    }
}

//! What a request asks for, looked at before S3's library sees it: its size, its query, its headers, its
//! document. The library is given what is left.

use base64::Engine;
use bytes::Bytes;
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, Uri};
use md5::{Digest, Md5};
use rgw::CksumKind;
use s3s::{S3ErrorCode, S3Result, s3_error};

use crate::body::Checks;
use crate::checksum::{Checksum, header_of};
use crate::errors;
use crate::sign::{self, Payload, chunks::Decoder, header};

/// Names and values of all headers together. Source: docs on limits of S3, 8 KiB with 2 KiB of metadata.
const MAX_HEADERS: usize = 16 << 10;
/// One object's bytes in one request. Source: rgw_max_put_size in src/common/options.cc.
pub const MAX_PUT: u64 = 5 << 30;

/// Parameters of a signature in a query.
const OF_SIGNATURE: [&str; 11] = [
    "X-Amz-Algorithm",
    "X-Amz-Credential",
    "X-Amz-Date",
    "X-Amz-Expires",
    "X-Amz-SignedHeaders",
    "X-Amz-Signature",
    "X-Amz-Security-Token",
    "X-Amz-Content-Sha256",
    "AWSAccessKeyId",
    "Signature",
    "Expires",
];

pub fn check_headers(parts: &Parts) -> S3Result<()> {
    let size: usize = parts.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
    let uri = parts.uri.path_and_query().map_or(0, |target| target.as_str().len());
    if size > MAX_HEADERS || uri > MAX_HEADERS {
        return Err(errors::custom("RequestHeaderSectionTooLarge", 400));
    }
    Ok(())
}

/// Names the version of an object.
const VERSION: &str = "versionId";

/// Names in the query of a request that changes something, besides those of signatures, for which the library
/// has an operation of its own. By method, and by whether the path names an object.
const KNOWN: [(Method, bool, &[&str]); 6] = [
    (Method::PUT, true, &["partNumber", "uploadId", "acl", "tagging", "retention", "legal-hold", VERSION]),
    (Method::POST, true, &["uploads", "uploadId", "restore", "select", "select-type", VERSION]),
    (Method::DELETE, true, &["uploadId", VERSION, "tagging"]),
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
    (Method::POST, false, &["delete", "logging"]),
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

/// Whether a client says something by a field of the query that no operation is chosen by.
fn of_client(name: &str) -> bool {
    name.get(..2).is_some_and(|start| start.eq_ignore_ascii_case("x-"))
}

/// Refuses changes that ask for more than is known: without the name the same request does something else,
/// and takes `DELETE /bucket?notification` for the end of the bucket.
pub fn check_query(parts: &Parts) -> S3Result<()> {
    let is_object = key(parts)?.is_some();
    let fields: Vec<&str> = parts.uri.query().unwrap_or_default().split('&').collect();
    let delimits = fields.iter().any(|f| f.strip_prefix("delimiter=").is_some_and(|d| !d.is_empty()));
    if fields.contains(&"allow-unordered=true") && delimits {
        return Err(s3_error!(InvalidArgument, "a list without order knows no delimiter"));
    }
    let known = KNOWN.iter().find(|(method, object, _)| *method == parts.method && *object == is_object);
    let Some((.., known)) = known else { return Ok(()) };
    let names = query_names(parts);
    if names.iter().any(|name| !known.contains(name) && !OF_SIGNATURE.contains(name) && !of_client(name)) {
        return Err(errors::not_served("the query asks for what is not served"));
    }
    // Headers ask for encryption; what asks for it here would be stored as it is.
    let encrypts = |name: &&str| name.to_ascii_lowercase().starts_with("x-amz-server-side-encryption");
    if names.iter().any(encrypts) {
        return Err(errors::not_served("encryption is asked for by headers alone"));
    }
    let has = |name: &str| names.contains(&name);
    if parts.method == Method::PUT && has("partNumber") != has("uploadId") {
        return Err(s3_error!(InvalidArgument, "a part has a number and an upload"));
    }
    // What is written is a version of its own, and parts are of none.
    let of_version = ["acl", "tagging", "retention", "legal-hold", "restore", "select"];
    let takes_version = parts.method == Method::DELETE && !has("uploadId") || of_version.into_iter().any(has);
    if has(VERSION) && !takes_version {
        return Err(s3_error!(InvalidArgument, "the request is of no version"));
    }
    Ok(())
}

/// The version that a request names. One without an id is none.
pub fn version(parts: &Parts) -> S3Result<Option<String>> {
    let fields = parts.uri.query().unwrap_or_default().split('&');
    let mut ids = fields.filter(|field| field.split('=').next() == Some(VERSION));
    let (id, more) = (ids.next(), ids.next());
    if more.is_some() {
        return Err(s3_error!(InvalidArgument, "a version is named twice"));
    }
    let id = id.and_then(|field| field.split_once('=')).map(|(_, id)| id.replace('+', " "));
    let id = id.map(|id| sign::percent_decode(&id).ok_or(S3ErrorCode::InvalidURI)).transpose()?;
    Ok(id.filter(|id| !id.is_empty()))
}

/// Names in a query without escapes that need not be: all who look for a name find it, or nobody does.
pub fn plain_names(uri: &Uri) -> Option<Uri> {
    let query = uri.query()?;
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~".contains(&b);
    let plain = |field: &str| {
        let (name, value) = field.split_at(field.find('=').unwrap_or(field.len()));
        let decoded = sign::percent_decode(name).filter(|name| name.bytes().all(is_plain))?;
        Some([&decoded, value].concat())
    };
    if !query.split('&').any(|field| field.split('=').next().unwrap_or_default().contains('%')) {
        return None;
    }
    let fields: Vec<String> =
        query.split('&').map(|field| plain(field).unwrap_or_else(|| field.to_owned())).collect();
    Uri::try_from(format!("{}?{}", uri.path(), fields.join("&"))).ok()
}

/// The bucket and the key that the path names.
pub fn path(parts: &Parts) -> S3Result<(String, Option<String>)> {
    let path = sign::percent_decode(parts.uri.path()).ok_or(S3ErrorCode::InvalidURI)?;
    let path = path.strip_prefix('/').unwrap_or(&path);
    let (bucket, key) = path.split_once('/').unwrap_or((path, ""));
    Ok((bucket.to_owned(), (!key.is_empty()).then(|| key.to_owned())))
}

fn key(parts: &Parts) -> S3Result<Option<String>> {
    Ok(path(parts)?.1)
}

/// Names in the query.
pub fn query_names(parts: &Parts) -> Vec<&str> {
    let fields = parts.uri.query().unwrap_or_default().split('&').filter(|field| !field.is_empty());
    fields.map(|field| field.split('=').next().unwrap_or_default()).collect()
}

/// Takes the tenant in front of a bucket's name off the path: `/tenant:bucket/key`. Source:
/// rgw_parse_url_bucket in src/rgw/rgw_common.cc.
pub fn take_tenant(parts: &mut Parts) -> S3Result<Option<Bytes>> {
    let (bucket, _) = path(parts)?;
    let Some((tenant, bucket)) = bucket.split_once(':') else { return Ok(None) };
    // The signature is of the decoded path: an escaped slash would make a bucket's request of an object's.
    let first = parts.uri.path().trim_start_matches('/').split('/').next().unwrap_or_default();
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"-._".contains(&b);
    if sign::percent_decode(first).as_deref() != Some(&format!("{tenant}:{bucket}"))
        || !bucket.bytes().all(is_plain)
    {
        return Err(S3ErrorCode::InvalidURI.into());
    }
    let rest = parts.uri.path().trim_start_matches('/').split_once('/').map_or("", |(_, rest)| rest);
    let slash = if parts.uri.path().trim_start_matches('/').contains('/') { "/" } else { "" };
    let query = parts.uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    let target = format!("/{bucket}{slash}{rest}{query}");
    parts.uri = Uri::try_from(target).map_err(|_| S3ErrorCode::InvalidURI)?;
    Ok(Some(tenant.to_owned().into()))
}

/// Whether the client says that it pays. Source: req_state::get_request_payer in src/rgw/rgw_common.h.
pub fn pays(parts: &Parts) -> bool {
    said(parts, "x-amz-request-payer").is_some_and(|payer| payer.eq_ignore_ascii_case("requester"))
}

/// Whose the client takes its bucket for, and that of a copy's source.
///
/// # Errors
/// A header that is no text, or comes twice: it would not be held against the owner.
pub fn expected_owners(parts: &Parts) -> S3Result<[Option<String>; 2]> {
    let expected = |name| {
        let mut values = parts.headers.get_all(name).iter();
        let is_text = values.next().is_none_or(|value| value.to_str().is_ok());
        match is_text && values.next().is_none() {
            true => Ok(said(parts, name)),
            false => Err(s3_error!(InvalidRequest, "the expected owner of a bucket cannot be read")),
        }
    };
    Ok([expected("x-amz-expected-bucket-owner")?, expected("x-amz-source-expected-bucket-owner")?])
}

/// What a header says or, where a URL was signed for others to use, a field of its query.
fn said(parts: &Parts, name: &str) -> Option<String> {
    let fields = parts.uri.query().unwrap_or_default().split('&');
    let field = || fields.filter_map(|f| f.split_once('=')).find(|(n, _)| *n == name);
    let of_query = || field().map(|(_, text)| sign::percent_decode(text).unwrap_or_default());
    header(parts, name).map(str::to_owned).or_else(of_query)
}

/// Whether the body becomes an object's bytes, of any length.
pub fn is_data(parts: &Parts) -> S3Result<bool> {
    let query = parts.uri.query().unwrap_or_default().split('&').filter(|field| !field.is_empty());
    let plain = |field: &str| {
        let name = field.split('=').next().unwrap_or_default();
        matches!(name, "partNumber" | "uploadId") || OF_SIGNATURE.contains(&name) || of_client(name)
    };
    let mut fields = query;
    let is_copy = parts.headers.contains_key("x-amz-copy-source");
    Ok(parts.method == Method::PUT && key(parts)?.is_some() && !is_copy && fields.all(plain))
}

/// Whether an object comes of the request, at once or of an upload that begins.
pub fn writes_object(parts: &Parts) -> S3Result<bool> {
    let names = query_names(parts);
    let is_copy = parts.headers.contains_key("x-amz-copy-source") && !names.contains(&"uploadId");
    let begins = parts.method == Method::POST && names.contains(&"uploads");
    let is_put = parts.method == Method::PUT && !names.contains(&"uploadId");
    Ok(key(parts)?.is_some() && (begins || (is_put && (is_copy || is_data(parts)?))))
}

/// Bytes of the body, out of its chunks.
pub fn length(parts: &Parts, payload: &Payload, is_data: bool) -> S3Result<u64> {
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

pub fn checks(parts: &Parts, payload: Payload, key: Option<sign::ChunkKey>, length: u64) -> S3Result<Checks> {
    let mut checks = Checks { length, ..Checks::default() };
    let mut named: Vec<(Checksum, Option<String>)> = Vec::new();
    // A completion's is that of the object, not of the document that names its parts.
    let completes = parts.method == Method::POST && query_names(parts).contains(&"uploadId");
    for name in CksumKind::ALL.map(header_of).into_iter().filter(|_| !completes) {
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
    checks.summed.kind = named.first().map(|(sum, _)| sum.kind());
    checks.checksums = named;
    Ok(checks)
}

/// A document that is whole.
pub fn document(headers: &HeaderMap, document: Bytes) -> S3Result<Bytes> {
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
pub fn strip(parts: &mut Parts, length: u64) -> S3Result<()> {
    let headers = &mut parts.headers;
    for name in
        ["authorization", "date", "x-amz-content-sha256", "x-amz-date", "x-amz-trailer", "transfer-encoding"]
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
    if headers.get("content-type").is_some_and(|kind| kind.is_empty()) {
        headers.remove("content-type");
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
    use hyper::Request;

    use super::*;

    fn parts(method: Method, uri: &str, headers: &[(&'static str, &str)]) -> Parts {
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn owners_are_expected_by_headers_and_by_signed_urls() {
        let expected = |uri: &str, headers: &[(&'static str, &str)]| {
            let owners = expected_owners(&parts(Method::GET, uri, headers)).unwrap();
            owners.map(|owner| owner.unwrap_or_default())
        };
        let own = "x-amz-expected-bucket-owner";
        assert_eq!(expected("/b/k", &[(own, "t$u")]), ["t$u", ""]);
        assert_eq!(expected("/b/k?x&x-amz-source-expected-bucket-owner=t%24u", &[]), ["", "t$u"]);
        assert_eq!(expected(&format!("/b/k?{own}=u"), &[(own, "v")]), ["v", ""]);
        assert_eq!(expected_owners(&parts(Method::GET, "/b/k", &[])).unwrap(), [None, None]);
        // What cannot be held against the owner is refused.
        for values in [&[&b"m\xc3\xbcller"[..]][..], &[b"u", b"v"]] {
            let mut parts = parts(Method::GET, "/b/k", &[]);
            for value in values {
                parts.headers.append(own, hyper::header::HeaderValue::from_bytes(value).unwrap());
            }
            assert!(expected_owners(&parts).is_err(), "{values:?}");
        }
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
            (Method::PUT, "/b/k?X-Amz-Server-Side-Encryption=aws:kms"),
        ] {
            assert_eq!(code(method, uri).as_deref(), Some("NotImplemented"), "{uri}");
        }
        for uri in ["/b/k?versionId=x", "/b/k?versionId=null", "/b/k?partNumber=1&uploadId=2&versionId=x"] {
            assert_eq!(code(Method::PUT, uri).as_deref(), Some("InvalidArgument"), "{uri}");
        }
        assert_eq!(code(Method::POST, "/b/k?uploads&versionId=x").as_deref(), Some("InvalidArgument"));
        assert_eq!(code(Method::DELETE, "/b/k?uploadId=2&versionId=x").as_deref(), Some("InvalidArgument"));
        assert_eq!(code(Method::PUT, "/b/k?uploadId=2").as_deref(), Some("InvalidArgument"));
        assert_eq!(code(Method::PUT, "/b/k?partNumber=2").as_deref(), Some("InvalidArgument"));
        assert_eq!(
            code(Method::GET, "/b?allow-unordered=true&delimiter=/").as_deref(),
            Some("InvalidArgument")
        );
        for (method, uri) in [
            (Method::GET, "/b?allow-unordered=true&delimiter="),
            (Method::PUT, "/b/k?partNumber=1&uploadId=2&x-id=UploadPart"),
            (Method::PUT, "/b/k?X-Amz-Signature=1&X-Amz-Date=2"),
            (Method::DELETE, "/b/"),
            (Method::DELETE, "/b/k?uploadId=2"),
            (Method::DELETE, "/b/k?versionId=x"),
            (Method::DELETE, "/b/k?tagging&versionId=x"),
            (Method::PUT, "/b/k?acl&versionId=x"),
            (Method::GET, "/b/k?versionId=x"),
            (Method::POST, "/b?delete"),
            (Method::POST, "/b/k?uploads="),
            (Method::GET, "/b/k?anything"),
        ] {
            assert_eq!(code(method, uri), None, "{uri}");
        }
    }

    #[test]
    fn a_version_is_named_once() {
        let of = |query: &str| {
            version(&parts(Method::GET, &format!("/b/k?{query}"), &[]))
                .map_err(|e| e.code().as_str().to_owned())
        };
        assert_eq!(of("acl&versionId=a%2Eb"), Ok(Some("a.b".to_owned())));
        assert_eq!((of("acl"), of("versionId"), of("versionId=")), (Ok(None), Ok(None), Ok(None)));
        assert_eq!(of("versionId=a&versionId=a"), Err("InvalidArgument".to_owned()));
        assert_eq!(of("versionId=%zz"), Err("InvalidURI".to_owned()));
    }

    #[test]
    fn names_have_no_escapes_that_need_not_be() {
        let of = |uri: &str| plain_names(&Uri::try_from(uri).unwrap()).map(|uri| uri.to_string());
        assert_eq!(of("/b/k?version%49d=%41&acl"), Some("/b/k?versionId=%41&acl".to_owned()));
        assert_eq!(of("/b/k?%61cl"), Some("/b/k?acl".to_owned()));
        assert_eq!(of("/b%41?acl=%41"), None);
        // What stands for something else stays.
        assert_eq!(of("/b/k?a%26b=1&a%zz=2&%3D"), Some("/b/k?a%26b=1&a%zz=2&%3D".to_owned()));
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
    fn what_writes_an_object_may_lock_it() {
        let check = |method, uri, copy, want| {
            let headers: &[(&'static str, &str)] = if copy { &[("x-amz-copy-source", "/a/b")] } else { &[] };
            assert_eq!(writes_object(&parts(method, uri, headers)).unwrap(), want, "{uri}");
        };
        check(Method::PUT, "/b/k", false, true);
        check(Method::PUT, "/b/k", true, true);
        check(Method::POST, "/b/k?uploads", false, true);
        check(Method::PUT, "/b/k?partNumber=1&uploadId=2", false, false);
        check(Method::PUT, "/b/k?partNumber=1&uploadId=2", true, false);
        check(Method::PUT, "/b/k?tagging", false, false);
        check(Method::PUT, "/b", false, false);
        check(Method::GET, "/b/k", false, false);
        check(Method::POST, "/b/k?uploadId=2", false, false);
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
    fn documents_with_more_than_elements_and_text_are_refused() {
        let none = HeaderMap::new();
        assert!(document(&none, "<?xml version='1.0'?><a>b!</a>".into()).is_ok());
        for text in ["<!doctype a [<!ENTITY x 'y'>]><a/>", "<a>b<!-- -->c</a>", "<a>b<![CDATA[c]]></a>"] {
            assert_eq!(document(&none, text.into()).unwrap_err().code().as_str(), "MalformedXML", "{text}");
        }
        let mut sum = HeaderMap::new();
        sum.insert("content-md5", "AAAA".parse().unwrap());
        assert_eq!(document(&sum, Bytes::new()).unwrap_err().code().as_str(), "InvalidDigest");
        sum.insert("content-md5", "AAAAAAAAAAAAAAAAAAAAAA==".parse().unwrap());
        assert_eq!(document(&sum, Bytes::new()).unwrap_err().code().as_str(), "BadDigest");
    }

    #[test]
    fn headers_have_bounds() {
        let long = "x".repeat(MAX_HEADERS);
        assert!(check_headers(&parts(Method::GET, "/", &[("x-amz-meta-a", &long)])).is_err());
        assert!(check_headers(&parts(Method::GET, &format!("/{long}"), &[])).is_err());
    }
}

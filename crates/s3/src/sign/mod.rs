//! Signatures of requests: AWS's version 4, in a header or in the query; version 2 is in `v2.rs`.
//! Source: "Signature Version 4 signing process" of AWS; src/rgw/rgw_auth_s3.cc.
//!
//! 1. What a signature does not cover is not believed: each `x-amz-` header is signed, or the request is
//!    refused.
//! 2. Signatures are compared in constant time.

mod canonical;
pub mod chunks;
pub mod v2;

use hmac::digest::KeyInit;
use hmac::{Hmac, Mac};
use hyper::http::request::Parts;
use s3s::{S3Error, S3ErrorCode, S3Result, s3_error};
use sha2::{Digest, Sha256};

pub use canonical::{percent_decode, percent_encode};

/// Seconds that clocks may differ by. Source: RGW_AUTH_GRACE in src/rgw/rgw_common.h.
const GRACE_S: i64 = 15 * 60;
/// Longest life of a signature in a query. Source: the longest that AWS takes.
const MAX_EXPIRES_S: i64 = 7 * 24 * 3600;
/// Bytes that SHA-256 works on.
const BLOCK: usize = 64;
pub const ALGORITHM: &str = "AWS4-HMAC-SHA256";

/// What a body is held against.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Payload {
    Unsigned,
    /// SHA-256 of it, in hexadecimal digits.
    Sum(String),
    /// In chunks, with a signature for each where they are signed.
    Chunks {
        signed: bool,
        trailer: bool,
    },
}

impl Payload {
    pub fn of(text: &str) -> S3Result<Self> {
        Ok(match text {
            "UNSIGNED-PAYLOAD" => Self::Unsigned,
            "STREAMING-AWS4-HMAC-SHA256-PAYLOAD" => Self::Chunks { signed: true, trailer: false },
            "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER" => Self::Chunks { signed: true, trailer: true },
            "STREAMING-UNSIGNED-PAYLOAD-TRAILER" => Self::Chunks { signed: false, trailer: true },
            sum if sum.len() == 64 && sum.bytes().all(|b| b.is_ascii_hexdigit()) => {
                Self::Sum(sum.to_ascii_lowercase())
            }
            other if other.starts_with("STREAMING-") => {
                return Err(s3_error!(NotImplemented, "this kind of signed chunks is not served"));
            }
            _ => return Err(s3_error!(InvalidArgument, "x-amz-content-sha256 is no SHA-256")),
        })
    }
}

/// Whose key signs, and for what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    pub access_key: String,
    date: String,
    region: String,
    service: String,
}

impl Scope {
    /// Reads `KEY/20261127/region/s3/aws4_request`.
    pub fn read(credential: &str) -> S3Result<Self> {
        // An access key may have slashes itself.
        let mut scope = credential.rsplitn(5, '/');
        let mut part = || scope.next().map(str::to_owned).ok_or_else(malformed);
        let (end, service, region, date, access_key) = (part()?, part()?, part()?, part()?, part()?);
        if end != "aws4_request" || access_key.is_empty() {
            return Err(malformed());
        }
        if service != "s3" {
            return Err(s3_error!(NotImplemented, "this service is not served"));
        }
        Ok(Self { access_key, date, region, service })
    }

    fn key(&self, secret: &[u8]) -> Vec<u8> {
        let mut key = [b"AWS4", secret].concat();
        for part in [&self.date[..], &self.region, &self.service, "aws4_request"] {
            key = hmac(&key, part.as_bytes()).finalize().into_bytes().to_vec();
        }
        key
    }

    fn text(&self) -> String {
        format!("{}/{}/{}/aws4_request", self.date, self.region, self.service)
    }

    /// Holds the signature of a text alone, a form's document, against the key's secret.
    pub fn verify(&self, secret: &[u8], text: &str, signature: &str) -> S3Result<()> {
        match verify(&self.key(secret), text, signature) {
            true => Ok(()),
            false => Err(S3ErrorCode::SignatureDoesNotMatch.into()),
        }
    }
}

/// A signature of either version that a request came with, not verified yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Signature {
    V2(v2::Claim),
    V4(Claim),
}

impl Signature {
    pub fn access_key(&self) -> &str {
        match self {
            Self::V2(claim) => &claim.access_key,
            Self::V4(claim) => &claim.access_key,
        }
    }

    /// What the body is held against.
    pub fn payload(&self) -> Payload {
        match self {
            Self::V2(_) => Payload::Unsigned,
            Self::V4(claim) => claim.payload.clone(),
        }
    }

    /// Holds it against the secret of its access key. Gives what chunks are signed with.
    pub fn verify(&self, parts: &Parts, secret: &[u8], now_s: i64) -> S3Result<Option<ChunkKey>> {
        match self {
            Self::V2(claim) => claim.verify(parts, secret, now_s).map(|()| None),
            Self::V4(claim) => claim.verify(parts, secret, now_s).map(Some),
        }
    }
}

/// The same of version 4.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    pub access_key: String,
    scope: Scope,
    signed_headers: Vec<String>,
    signature: String,
    /// When it was made, as it says itself.
    stamp: String,
    /// Seconds since the epoch.
    made_s: i64,
    /// Seconds; for signatures in a query.
    expires_s: Option<i64>,
    pub payload: Payload,
    /// As the client said it.
    payload_text: String,
}

/// What chunks of a body are signed with.
#[derive(Clone)]
pub struct ChunkKey {
    key: Vec<u8>,
    stamp: String,
    scope: String,
    previous: String,
}

impl std::fmt::Debug for ChunkKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ChunkKey({})", self.scope)
    }
}

/// One header's value; nothing when it is not there or no text.
pub fn header<'a>(parts: &'a Parts, name: &str) -> Option<&'a str> {
    parts.headers.get(name)?.to_str().ok()
}

fn malformed() -> S3Error {
    s3_error!(AuthorizationHeaderMalformed, "the authorization cannot be read")
}

/// Seconds since the epoch of `20261127T101112Z`.
fn seconds(stamp: &str) -> Option<i64> {
    let at = jiff::civil::DateTime::strptime("%Y%m%dT%H%M%SZ", stamp).ok()?;
    Some(jiff::tz::Offset::UTC.to_timestamp(at).ok()?.as_second())
}

/// The signature of a request; nothing for one that is not signed.
pub fn claim(parts: &Parts) -> S3Result<Option<Signature>> {
    let query = canonical::pairs(parts.uri.query().unwrap_or_default())?;
    let of = |name: &str| query.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str());
    let authorization = parts.headers.get("authorization");
    if of("X-Amz-Algorithm").is_some() {
        if authorization.is_some() {
            return Err(s3_error!(InvalidArgument, "only one way of authentication may be used"));
        }
        return in_query(parts, &of).map(|claim| Some(Signature::V4(claim)));
    }
    let Some(authorization) = authorization else {
        let is_signed = of("AWSAccessKeyId").is_some() && of("Signature").is_some();
        return is_signed.then(|| v2::Claim::in_query(&of).map(Signature::V2)).transpose();
    };
    let authorization = authorization.to_str().map_err(|_| malformed())?;
    match authorization.split_once(' ') {
        Some((ALGORITHM, fields)) => in_header(parts, fields).map(|claim| Some(Signature::V4(claim))),
        Some(("AWS", fields)) => v2::Claim::in_header(fields).map(|claim| Some(Signature::V2(claim))),
        _ => Err(malformed()),
    }
}

fn in_header(parts: &Parts, fields: &str) -> S3Result<Claim> {
    let field = |name: &str| {
        let mut found = fields.split(',').filter_map(|field| field.trim().split_once('='));
        found.find(|(n, _)| *n == name).map(|(_, value)| value).ok_or_else(malformed)
    };
    let payload_text = header(parts, "x-amz-content-sha256")
        .ok_or_else(|| s3_error!(InvalidArgument, "x-amz-content-sha256 is missing"))?;
    let stamp = header(parts, "x-amz-date")
        .ok_or_else(|| s3_error!(AccessDenied, "a signed request needs x-amz-date"))?;
    let names = field("SignedHeaders")?;
    new(field("Credential")?, names, field("Signature")?, stamp, payload_text, None)
}

fn in_query<'a>(parts: &Parts, of: &impl Fn(&str) -> Option<&'a str>) -> S3Result<Claim> {
    let wrong = || S3Error::new(S3ErrorCode::AuthorizationQueryParametersError);
    let field = |name: &str| of(name).ok_or_else(wrong);
    if field("X-Amz-Algorithm")? != ALGORITHM {
        return Err(s3_error!(NotImplemented, "this algorithm of signatures is not served"));
    }
    let expires: i64 = field("X-Amz-Expires")?.parse().map_err(|_| wrong())?;
    if !(1..=MAX_EXPIRES_S).contains(&expires) {
        return Err(s3_error!(AccessDenied, "the request's life is too long, or none"));
    }
    let names = field("X-Amz-SignedHeaders")?;
    let is_signed = names.split(';').any(|name| name == "x-amz-content-sha256");
    let payload = header(parts, "x-amz-content-sha256").filter(|_| is_signed).unwrap_or("UNSIGNED-PAYLOAD");
    let (credential, signature) = (field("X-Amz-Credential")?, field("X-Amz-Signature")?);
    new(credential, names, signature, field("X-Amz-Date")?, payload, Some(expires))
}

fn new(
    credential: &str,
    signed_headers: &str,
    signature: &str,
    stamp: &str,
    payload_text: &str,
    expires_s: Option<i64>,
) -> S3Result<Claim> {
    let scope = Scope::read(credential)?;
    let made_s = seconds(stamp).ok_or_else(|| s3_error!(AccessDenied, "the date cannot be read"))?;
    if !stamp.starts_with(&scope.date) {
        return Err(malformed());
    }
    Ok(Claim {
        access_key: scope.access_key.clone(),
        scope,
        signed_headers: signed_headers.split(';').map(str::to_ascii_lowercase).collect(),
        signature: signature.to_owned(),
        stamp: stamp.to_owned(),
        made_s,
        expires_s,
        payload: Payload::of(payload_text)?,
        payload_text: payload_text.to_owned(),
    })
}

fn hmac(key: &[u8], data: &[u8]) -> Hmac<Sha256> {
    // A key is filled up with zeros to a block; a longer one is hashed first.
    let hashed = Sha256::digest(key);
    let key = if key.len() > BLOCK { &hashed[..] } else { key };
    let mut block = [0u8; BLOCK];
    block.iter_mut().zip(key).for_each(|(to, from)| *to = *from);
    let mut mac = <Hmac<Sha256> as KeyInit>::new(&block.into());
    mac.update(data);
    mac
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let pair = |at: usize| text.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
    (text.len() % 2 == 0).then(|| (0..text.len()).step_by(2).map(pair).collect()).flatten()
}

/// Whether a signature, in hexadecimal digits, is that of a text.
fn verify(key: &[u8], text: &str, signature: &str) -> bool {
    unhex(signature).is_some_and(|said| hmac(key, text.as_bytes()).verify_slice(&said).is_ok())
}

impl Claim {
    /// Holds the signature against the secret of its access key. Gives what chunks are signed with.
    pub fn verify(&self, parts: &Parts, secret: &[u8], now_s: i64) -> S3Result<ChunkKey> {
        self.in_time(now_s)?;
        self.covers(parts)?;
        let is_query = self.expires_s.is_some();
        let request = canonical::request(parts, &self.signed_headers, &self.payload_text, is_query)?;
        let digest = hex(&Sha256::digest(request.as_bytes()));
        let (stamp, scope) = (self.stamp.clone(), self.scope.text());
        let text = format!("{ALGORITHM}\n{stamp}\n{scope}\n{digest}");
        let key = self.scope.key(secret);
        if !verify(&key, &text, &self.signature) {
            return Err(S3ErrorCode::SignatureDoesNotMatch.into());
        }
        Ok(ChunkKey { key, stamp, scope, previous: self.signature.clone() })
    }

    fn in_time(&self, now_s: i64) -> S3Result<()> {
        let age = now_s.saturating_sub(self.made_s);
        match self.expires_s {
            Some(expires) if age > expires => Err(s3_error!(AccessDenied, "the request has expired")),
            None if age > GRACE_S => Err(S3ErrorCode::RequestTimeTooSkewed.into()),
            _ if age < -GRACE_S => Err(S3ErrorCode::RequestTimeTooSkewed.into()),
            _ => Ok(()),
        }
    }

    fn covers(&self, parts: &Parts) -> S3Result<()> {
        let signed = |name: &str| self.signed_headers.iter().any(|signed| signed == name);
        // The payload's kind is in the signature itself, and the user agent decides of nothing.
        let free = ["x-amz-content-sha256", "x-amz-user-agent"];
        let names = parts.headers.keys().map(|name| name.as_str());
        let mut bare =
            names.filter(|name| name.starts_with("x-amz-") && !free.contains(name) && !signed(name));
        match bare.next() {
            None if signed("host") => Ok(()),
            _ => Err(s3_error!(AccessDenied, "there were headers in the request which were not signed")),
        }
    }
}

#[cfg(test)]
mod tests {
    use hyper::Request;

    use super::*;

    /// The example of AWS's documentation.
    const SECRET: &[u8] = b"wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
    const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    const AT: i64 = 1_369_353_600;

    fn parts(request: hyper::http::request::Builder) -> Parts {
        request.body(()).unwrap().into_parts().0
    }

    fn get_object() -> hyper::http::request::Builder {
        let credential = "AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request";
        let names = "host;range;x-amz-content-sha256;x-amz-date";
        let signature = "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41";
        Request::get("/test.txt")
            .header("host", "examplebucket.s3.amazonaws.com")
            .header("range", "bytes=0-9")
            .header("x-amz-content-sha256", EMPTY)
            .header("x-amz-date", "20130524T000000Z")
            .header(
                "authorization",
                format!("{ALGORITHM} Credential={credential},SignedHeaders={names},Signature={signature}"),
            )
    }

    fn code(result: S3Result<impl std::fmt::Debug>) -> String {
        result.unwrap_err().code().as_str().to_owned()
    }

    #[test]
    fn a_signed_header_is_that_of_awss_example() {
        let good = parts(get_object());
        let claim = claim(&good).unwrap().unwrap();
        assert_eq!(
            (claim.access_key(), claim.payload()),
            ("AKIAIOSFODNN7EXAMPLE", Payload::Sum(EMPTY.into()))
        );
        claim.verify(&good, SECRET, AT).unwrap();
        assert_eq!(code(claim.verify(&good, b"other", AT)), "SignatureDoesNotMatch");
        for late in [AT + 901, AT - 901] {
            assert_eq!(code(claim.verify(&good, SECRET, late)), "RequestTimeTooSkewed");
        }
        let more = parts(get_object().header("x-amz-acl", "public-read"));
        assert_eq!(code(claim.verify(&more, SECRET, AT)), "AccessDenied");
        let mut other = parts(get_object());
        other.uri = "/test.txt?acl".parse().unwrap();
        assert_eq!(code(claim.verify(&other, SECRET, AT)), "SignatureDoesNotMatch");
    }

    #[test]
    fn a_signed_query_is_that_of_awss_example() {
        let uri = "/test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524\
                   %2Fus-east-1%2Fs3%2Faws4_request&X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400\
                   &X-Amz-SignedHeaders=host&X-Amz-Signature=\
                   aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404";
        let get = |uri: &str| parts(Request::get(uri).header("host", "examplebucket.s3.amazonaws.com"));
        let good = get(uri);
        let signed = claim(&good).unwrap().unwrap();
        signed.verify(&good, SECRET, AT + 86_400).unwrap();
        assert_eq!(code(signed.verify(&good, SECRET, AT + 86_401)), "AccessDenied");
        let bare =
            Request::get(uri).header("host", "examplebucket.s3.amazonaws.com").header("x-amz-acl", "a");
        assert_eq!(code(signed.verify(&parts(bare), SECRET, AT)), "AccessDenied");
        for (from, to, want) in [
            ("=86400", "=0", "AccessDenied"),
            ("=86400", "=604801", "AccessDenied"),
            ("=86400", "=x", "AuthorizationQueryParametersError"),
            ("X-Amz-Date", "Y", "AuthorizationQueryParametersError"),
        ] {
            assert_eq!(code(claim(&get(&uri.replace(from, to)))), want, "{to}");
        }
    }

    #[test]
    fn what_is_no_signature_is_refused() {
        assert!(claim(&parts(Request::get("/"))).unwrap().is_none());
        let with = |text: &str| code(claim(&parts(Request::get("/").header("authorization", text))));
        for (text, want) in [
            ("AWS key", "InvalidArgument"),
            ("Basic abc", "AuthorizationHeaderMalformed"),
            ("", "AuthorizationHeaderMalformed"),
            ("AWS4-HMAC-SHA256 ", "InvalidArgument"),
        ] {
            assert_eq!(with(text), want, "{text}");
        }
        assert_eq!(code(claim(&parts(Request::get("/?AWSAccessKeyId=a&Signature=b")))), "AccessDenied");
        let both = get_object().uri("/?X-Amz-Algorithm=AWS4-HMAC-SHA256");
        assert_eq!(code(claim(&parts(both))), "InvalidArgument");
        for whole in ["a/20130524/us-east-1/s3/aws4_request", "a/b/c"] {
            for end in 0..whole.len() {
                let cut = whole.get(..end).unwrap();
                assert!(new(cut, "host", "", "20130524T000000Z", "UNSIGNED-PAYLOAD", None).is_err(), "{cut}");
            }
        }
        for stamp in ["20130525T000000Z", "20130524", "x", "99999999T999999Z"] {
            let credential = "a/20130524/us-east-1/s3/aws4_request";
            assert!(new(credential, "host", "", stamp, "UNSIGNED-PAYLOAD", None).is_err(), "{stamp}");
        }
    }
}

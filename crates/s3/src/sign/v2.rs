//! AWS's signatures of version 2, which old clients still make. Source: src/rgw/rgw_auth_s3.cc.
//!
//! 1. Such a signature covers all `x-amz-` headers, and no body.

use std::collections::BTreeMap;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hmac::{Hmac, Mac};
use hyper::http::request::Parts;
use s3s::{S3Error, S3ErrorCode, S3Result, s3_error};
use sha1::Sha1;

use super::{GRACE_S, canonical, header};

/// Names in the query that are signed, in this order.
const SIGNED: [&str; 27] = [
    "acl",
    "cors",
    "delete",
    "lifecycle",
    "location",
    "logging",
    "notification",
    "partNumber",
    "policy",
    "policyStatus",
    "publicAccessBlock",
    "requestPayment",
    "response-cache-control",
    "response-content-disposition",
    "response-content-encoding",
    "response-content-language",
    "response-content-type",
    "response-expires",
    "tagging",
    "torrent",
    "uploadId",
    "uploads",
    "versionId",
    "versioning",
    "versions",
    "website",
    "object-lock",
];

/// A signature that a request came with, not verified yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    pub access_key: String,
    signature: String,
    /// When a signature in a query ends, as it says itself.
    expires: Option<String>,
}

fn denied(why: &'static str) -> S3Error {
    S3Error::with_message(S3ErrorCode::AccessDenied, why)
}

impl Claim {
    /// The signature of `KEY:SIGNATURE`.
    pub fn in_header(fields: &str) -> S3Result<Self> {
        let wrong = || s3_error!(InvalidArgument, "the authorization cannot be read");
        let (access_key, signature) = fields.rsplit_once(':').ok_or_else(wrong)?;
        let (access_key, signature) = (access_key.trim().to_owned(), signature.trim().to_owned());
        if access_key.is_empty() || signature.is_empty() {
            return Err(wrong());
        }
        Ok(Self { access_key, signature, expires: None })
    }

    pub fn in_query<'a>(of: &impl Fn(&str) -> Option<&'a str>) -> S3Result<Self> {
        let field =
            |name: &str| of(name).map(str::to_owned).ok_or_else(|| denied("the signature is not whole"));
        let (access_key, signature) = (field("AWSAccessKeyId")?, field("Signature")?);
        Ok(Self { access_key, signature, expires: Some(field("Expires")?) })
    }

    /// Holds the signature against the secret of its access key.
    pub fn verify(&self, parts: &Parts, secret: &[u8], now_s: i64) -> S3Result<()> {
        let date = match &self.expires {
            Some(expires) => {
                let end: i64 = expires.parse().map_err(|_| denied("the request's end is no number"))?;
                if now_s >= end {
                    return Err(denied("the request has expired"));
                }
                expires.clone()
            }
            None => in_time(parts, now_s)?,
        };
        let path = parts.uri.path();
        let signed = verify(secret, &text(parts, path, &date)?, &self.signature);
        // A bucket alone is signed with a slash behind it by some, however it is asked for.
        match signed.is_err() && !path.trim_start_matches('/').contains('/') {
            true => verify(secret, &text(parts, &format!("{path}/"), &date)?, &self.signature),
            false => signed,
        }
    }
}

/// Whether a signature in base 64 is that of a text.
pub fn verify(secret: &[u8], text: &str, signature: &str) -> S3Result<()> {
    let said = BASE64_STANDARD.decode(signature).unwrap_or_default();
    let mac = <Hmac<Sha1> as Mac>::new_from_slice(secret).ok();
    let is_same = mac.is_some_and(|mut mac| {
        mac.update(text.as_bytes());
        mac.verify_slice(&said).is_ok()
    });
    if is_same { Ok(()) } else { Err(S3ErrorCode::SignatureDoesNotMatch.into()) }
}

/// The date that is signed, if it is about now.
fn in_time(parts: &Parts, now_s: i64) -> S3Result<String> {
    let (own, date) = (header(parts, "x-amz-date"), header(parts, "date"));
    let text = own.or(date).ok_or_else(|| denied("a signed request needs a date"))?;
    let parser = jiff::fmt::rfc2822::DateTimeParser::new().relaxed_weekday(true);
    let made =
        parser.parse_timestamp(text.trim()).map_err(|_| denied("the date cannot be read"))?.as_second();
    if made < 0 {
        return Err(denied("the date cannot be read"));
    }
    if made.abs_diff(now_s) > GRACE_S.unsigned_abs() {
        return Err(S3ErrorCode::RequestTimeTooSkewed.into());
    }
    // One in a header of its own is signed with the others.
    Ok(if own.is_some() { String::new() } else { text.to_owned() })
}

fn text(parts: &Parts, path: &str, date: &str) -> S3Result<String> {
    let plain = |name: &str| header(parts, name).unwrap_or_default();
    let mut own: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, value) in parts.headers.iter().filter(|(name, _)| name.as_str().starts_with("x-amz-")) {
        let value = std::str::from_utf8(value.as_bytes()).map_err(|_| denied("a header is no text"))?;
        own.entry(name.as_str()).or_default().push(value.trim());
    }
    let own: String = own.iter().map(|(name, values)| format!("{name}:{}\n", values.join(","))).collect();
    let query = canonical::pairs(parts.uri.query().unwrap_or_default())?;
    let signed = SIGNED.iter().filter_map(|name| {
        let (_, value) = query.iter().find(|(n, _)| n == name)?;
        Some(if value.is_empty() { (*name).to_owned() } else { format!("{name}={value}") })
    });
    let signed: Vec<String> = signed.collect();
    let mark = if signed.is_empty() { "" } else { "?" };
    Ok(format!(
        "{}\n{}\n{}\n{date}\n{own}{}{mark}{}",
        parts.method,
        plain("content-md5"),
        plain("content-type"),
        path,
        signed.join("&")
    ))
}

#[cfg(test)]
mod tests {
    use hyper::Request;
    use hyper::http::request::Builder;

    use super::*;

    /// Examples of AWS's documentation.
    const SECRET: &[u8] = b"wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
    const AT: i64 = 1_175_024_202;

    fn parts(request: Builder) -> Parts {
        request.body(()).unwrap().into_parts().0
    }

    fn code(result: S3Result<()>) -> String {
        result.err().map(|e| e.code().as_str().to_owned()).unwrap_or_default()
    }

    fn check(request: Builder, signature: &str, now_s: i64) -> String {
        let claim = Claim::in_header(&format!("AKIAIOSFODNN7EXAMPLE:{signature}")).unwrap();
        code(claim.verify(&parts(request), SECRET, now_s))
    }

    #[test]
    fn requests_are_signed_as_in_awss_examples() {
        // The bucket is in the host's name there, and in the path here.
        let get = |date: &str| Request::get("/johnsmith/photos/puppy.jpg").header("date", date);
        let date = "Tue, 27 Mar 2007 19:36:42 +0000";
        let signature = "bWq2s1WEIj+Ydj0vQ697zp+IXMU=";
        assert_eq!(check(get(date), signature, AT), "");
        assert_eq!(check(get(date), "bWq2s1WEIj+Ydj0vQ697zp+IXMV=", AT), "SignatureDoesNotMatch");
        assert_eq!(check(get(date), "?", AT), "SignatureDoesNotMatch");
        assert_eq!(check(get(date), signature, AT + 901), "RequestTimeTooSkewed");
        assert_eq!(
            check(get(date).header("x-amz-acl", "public-read"), signature, AT),
            "SignatureDoesNotMatch"
        );
        for wrong in ["", "x", "Tue, 07 Jul 1950 21:53:04 GMT"] {
            assert_eq!(check(get(wrong), signature, AT), "AccessDenied", "{wrong}");
        }
        assert_eq!(check(get("Tue, 07 Jul 2010 21:53:04 GMT"), signature, AT), "RequestTimeTooSkewed");
        let list =
            Request::get("/johnsmith/?prefix=photos&max-keys=50&marker=puppy").header("user-agent", "M");
        let list = list.header("date", "Tue, 27 Mar 2007 19:42:41 +0000");
        assert_eq!(check(list, "htDYFYduRNen8P9ZfE/s9SuKy0U=", AT), "");
        let bare = Request::get("/johnsmith?prefix=photos").header("date", "Tue, 27 Mar 2007 19:42:41 +0000");
        assert_eq!(check(bare, "htDYFYduRNen8P9ZfE/s9SuKy0U=", AT), "");
        let acl = Request::get("/johnsmith/?acl").header("date", "Tue, 27 Mar 2007 19:44:46 +0000");
        assert_eq!(check(acl, "c2WLPFtWHVgbEmeEG93a4cG37dM=", AT), "");
    }

    #[test]
    fn signatures_in_a_query_have_an_end() {
        let at = |now| {
            let uri = "/johnsmith/photos/puppy.jpg?AWSAccessKeyId=AKIAIOSFODNN7EXAMPLE\
                       &Signature=NpgCjnDzrM%2BWFzoENXmpNDUsSn8%3D&Expires=1175139620";
            let parts = parts(Request::get(uri));
            let query = canonical::pairs(parts.uri.query().unwrap()).unwrap();
            let of = |name: &str| query.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str());
            code(Claim::in_query(&of).unwrap().verify(&parts, SECRET, now))
        };
        assert_eq!((at(1_175_139_619), at(1_175_139_620)), (String::new(), "AccessDenied".to_owned()));
    }

    #[test]
    fn what_is_no_signature_is_refused() {
        for wrong in ["", "key", "key:", ":signature"] {
            assert!(Claim::in_header(wrong).is_err(), "{wrong}");
        }
        assert!(Claim::in_query(&|name| (name == "Signature").then_some("x")).is_err());
    }
}

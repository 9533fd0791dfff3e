//! Headers of an object, and the attributes that keep them. Source: generic_attrs_map in
//! src/rgw/rgw_rest.cc, RGWPutObj::execute in src/rgw/rgw_op.cc.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use codec::{Decode, Encode};
use gateway::Head;
use hyper::HeaderMap;
use hyper::header::HeaderName;
use rgw::{AccessControl, Tags};
use s3s::dto::Timestamp;
use s3s::{S3ErrorCode, S3Result, s3_error};
use types::RealTime;

use crate::errors;

pub type Attrs = BTreeMap<Bytes, Bytes>;

pub const ACL: &str = "user.rgw.acl";
pub const ETAG: &str = "user.rgw.etag";
pub const TAGGING: &str = "user.rgw.x-amz-tagging";
const PREFIX: &str = "user.rgw.";
/// All metadata of an object together. Source: rgw_max_attrs_size would be unbounded; S3 takes 2 KiB.
const MAX_METADATA: usize = 16 << 10;
/// Headers that are kept as they came, and the attributes that keep them.
const KEPT: [(&str, &str); 7] = [
    ("content-type", "user.rgw.content_type"),
    ("cache-control", "user.rgw.cache_control"),
    ("content-disposition", "user.rgw.content_disposition"),
    ("content-encoding", "user.rgw.content_encoding"),
    ("content-language", "user.rgw.content_language"),
    ("expires", "user.rgw.expires"),
    ("x-amz-website-redirect-location", "user.rgw.x-amz-website-redirect-location"),
];
const METADATA: &str = "x-amz-meta-";
/// Type of what has none. Source: src/rgw/rgw_rest_s3.cc.
const DEFAULT_TYPE: &str = "binary/octet-stream";

/// Headers of a request for what is not served; those of locks where the request writes no object, those of
/// encryption where it is of none. Of two headers of encryption with one name nobody knows which one counts.
pub fn refuse(headers: &HeaderMap, writes: bool, of_object: bool) -> S3Result<()> {
    let unserved = |name: &str| {
        (name.starts_with("x-amz-server-side-encryption") && !of_object)
            || (name.starts_with("x-amz-object-lock") && !writes)
            || name == "x-amz-server-side-encryption-context"
            || name == "x-amz-write-offset-bytes"
            || name == "x-amz-mfa"
    };
    let is_twice = |name: &HeaderName| headers.get_all(name).iter().nth(1).is_some();
    if headers.keys().any(|name| name.as_str().contains("server-side-encryption") && is_twice(name)) {
        return Err(s3_error!(InvalidArgument, "a header of the encryption is given twice"));
    }
    match headers.keys().any(|name| unserved(name.as_str())) {
        true => Err(errors::not_served("a header asks for what is not served")),
        false => Ok(()),
    }
}

/// What is kept of a request's headers.
pub fn of_headers(headers: &HeaderMap) -> S3Result<Attrs> {
    let mut attrs = Attrs::new();
    let mut keep = |name: String, value: &[u8]| {
        attrs.insert(name.into(), [value, b"\0"].concat().into());
    };
    for (header, attr) in KEPT {
        if let Some(value) = headers.get(header).filter(|value| !value.is_empty()) {
            keep(attr.to_owned(), value.as_bytes());
        }
    }
    let mut size = 0usize;
    for name in headers.keys().filter(|name| name.as_str().starts_with(METADATA)) {
        let values: Vec<&[u8]> = headers.get_all(name).iter().map(|value| value.as_bytes()).collect();
        let value = values.join(&b","[..]);
        size = size.saturating_add(name.as_str().len()).saturating_add(value.len());
        keep(format!("{PREFIX}{name}"), &value);
    }
    if size > MAX_METADATA {
        return Err(S3ErrorCode::MetadataTooLarge.into());
    }
    Ok(attrs)
}

pub fn set_acl(attrs: &mut Attrs, acl: &AccessControl) {
    attrs.insert(ACL.into(), acl.to_bytes());
}

/// Whose an object is, and who may do what with it.
pub fn acl(head: &Head) -> S3Result<AccessControl> {
    let raw = head.attrs.get(ACL.as_bytes());
    let acl = raw.map(|raw| AccessControl::from_bytes(raw.clone())).transpose();
    Ok(acl.map_err(|e| errors::of(e.into()))?.unwrap_or_default())
}

/// An object of which the stored bytes are compressed. What says that it is sealed, and not by which key, has
/// lost that on its way, and is read by nobody.
pub fn is_compressed(head: &Head) -> bool {
    let none = |raw: &Bytes| {
        let is_sealed = || head.encryption().is_some_and(|e| e.is_unknown_to_16_2());
        let none = |c: rgw::Compression| {
            c.kind == rgw::Compression::default().kind || (c.is_sealed() && is_sealed())
        };
        rgw::Compression::from_bytes(raw.clone()).is_ok_and(none)
    };
    head.attrs.get(&b"user.rgw.compression"[..]).is_some_and(|raw| !none(raw))
}

/// A large object of Swift's, whose own bytes only name its segments. Source: RGW_ATTR_USER_MANIFEST and
/// RGW_ATTR_SLO_MANIFEST in src/rgw/rgw_common.h.
pub fn is_of_segments(head: &Head) -> bool {
    let names = ["user.rgw.user_manifest", "user.rgw.slo_manifest"];
    names.iter().any(|name| head.attrs.get(name.as_bytes()).is_some_and(|value| !text(value).is_empty()))
}

fn text(value: &Bytes) -> &[u8] {
    let end = value.iter().position(|b| *b == 0).unwrap_or(value.len());
    value.get(..end).unwrap_or_default()
}

/// Headers of an answer about an object. What cannot be in a header is left out.
pub fn headers(head: &Head) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let mut add = |name: &str, value: &[u8]| {
        let name = hyper::header::HeaderName::from_bytes(name.as_bytes());
        if let (Ok(name), Ok(value)) = (name, hyper::header::HeaderValue::from_bytes(value)) {
            headers.insert(name, value);
        }
    };
    add("content-type", DEFAULT_TYPE.as_bytes());
    for (header, attr) in KEPT {
        if let Some(value) = head.attrs.get(attr.as_bytes()).filter(|value| !text(value).is_empty()) {
            add(header, text(value));
        }
    }
    for (name, value) in &head.attrs {
        let name = name.strip_prefix(PREFIX.as_bytes()).and_then(|name| std::str::from_utf8(name).ok());
        if let Some(name) = name.filter(|name| name.starts_with(METADATA)) {
            add(name, text(value));
        }
    }
    let tags = head.attrs.get(TAGGING.as_bytes()).and_then(|raw| Tags::from_bytes(raw.clone()).ok());
    if let Some(tags) = tags.filter(|tags| !tags.tags.is_empty()) {
        add("x-amz-tagging-count", tags.tags.len().to_string().as_bytes());
    }
    if let Some(class) = storage_class(head) {
        add("x-amz-storage-class", class.as_bytes());
    }
    headers
}

/// The class that an object was written to, where it is not the bucket's own.
pub fn storage_class(head: &Head) -> Option<&str> {
    let class = head.attrs.get(&b"user.rgw.storage_class"[..]).map(text);
    class.and_then(|class| std::str::from_utf8(class).ok()).filter(|class| !class.is_empty())
}

pub fn quoted(etag: &[u8]) -> String {
    format!("\"{}\"", String::from_utf8_lossy(etag))
}

pub fn system_time(time: RealTime) -> SystemTime {
    UNIX_EPOCH + Duration::new(time.0.sec.into(), time.0.nsec.min(999_999_999))
}

pub fn timestamp(time: RealTime) -> Timestamp {
    system_time(time).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_kept_as_radosgw_keeps_them() {
        let mut headers = HeaderMap::new();
        for (name, value) in
            [("content-type", "text/plain"), ("x-amz-meta-a", "1"), ("x-other", "2"), ("expires", "")]
        {
            headers.append(name, value.parse().unwrap());
        }
        headers.append("x-amz-meta-a", "2".parse().unwrap());
        let attrs = of_headers(&headers).unwrap();
        let want = [("user.rgw.content_type", "text/plain\0"), ("user.rgw.x-amz-meta-a", "1,2\0")];
        assert_eq!(attrs, want.map(|(name, value)| (Bytes::from(name), Bytes::from(value))).into());
        headers.append("x-amz-meta-long", "x".repeat(MAX_METADATA).parse().unwrap());
        assert!(of_headers(&headers).is_err());
    }

    #[test]
    fn objects_whose_bytes_are_not_their_own_are_told() {
        use rgw::Compression;
        let with = |name: &'static str, value: Bytes| Head {
            object: <_>::default(),
            version: Bytes::new(),
            attrs: Attrs::from([(name.into(), value)]),
            manifest: None,
            head_size: 0,
            modified: RealTime::default(),
            first: Bytes::new(),
        };
        assert!(is_of_segments(&with("user.rgw.user_manifest", "c/p\0".into())));
        assert!(is_of_segments(&with("user.rgw.slo_manifest", "\x01".into())));
        assert!(!is_of_segments(&with("user.rgw.user_manifest", "\0".into())));
        let zlib = Compression { kind: "zlib".into(), ..Compression::default() };
        assert!(is_compressed(&with("user.rgw.compression", zlib.to_bytes())));
        assert!(is_compressed(&with("user.rgw.compression", "?".into())), "it cannot be read");
        assert!(!is_compressed(&with("user.rgw.compression", Compression::default().to_bytes())));
    }

    #[test]
    fn what_is_not_served_is_refused() {
        for name in ["x-amz-server-side-encryption", "x-amz-mfa", "x-amz-object-lock-mode"] {
            let mut headers = HeaderMap::new();
            headers.append(hyper::header::HeaderName::from_static(name), "x".parse().unwrap());
            let of_object = name != "x-amz-mfa" && name != "x-amz-object-lock-mode";
            assert!(refuse(&headers, false, false).is_err(), "{name}");
            assert_eq!(refuse(&headers, false, true).is_ok(), of_object, "{name}");
            assert_eq!(refuse(&headers, true, true).is_ok(), name != "x-amz-mfa", "{name}");
        }
        assert!(refuse(&HeaderMap::new(), false, false).is_ok());
        let mut headers = HeaderMap::new();
        headers.append("x-amz-server-side-encryption-context", "x".parse().unwrap());
        assert_eq!(refuse(&headers, true, true).unwrap_err().code().as_str(), "NotImplemented");
        for name in
            ["x-amz-server-side-encryption", "x-amz-copy-source-server-side-encryption-customer-algorithm"]
        {
            let mut headers = HeaderMap::new();
            headers.append(name, "AES256".parse().unwrap());
            assert!(refuse(&headers, true, true).is_ok(), "{name}");
            headers.append(name, "aws:kms".parse().unwrap());
            assert_eq!(
                refuse(&headers, true, true).unwrap_err().code().as_str(),
                "InvalidArgument",
                "{name}"
            );
        }
    }
}

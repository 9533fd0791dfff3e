//! What policies may ask of a request. Source: rgw_build_iam_environment in src/rgw/rgw_op.cc, and what
//! RGWPutObj, RGWPutACLs, RGWCopyObj and RGWListBucket add to it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use hyper::Method;
use hyper::http::request::Parts;
use rgw::UserInfo;
use rgw::policy::Environment;
use s3s::{S3Result, s3_error};

use crate::sign::{header, percent_decode};
use crate::{asked, encryption, tags};

/// Headers that policies may ask for, behind `s3:`.
const HEADERS: [&str; 7] = [
    "x-amz-copy-source",
    "x-amz-metadata-directive",
    "x-amz-grant-read",
    "x-amz-grant-write",
    "x-amz-grant-read-acp",
    "x-amz-grant-write-acp",
    "x-amz-grant-full-control",
];
/// Of these, those that copies alone act by.
const OF_COPIES: [&str; 2] = ["x-amz-copy-source", "x-amz-metadata-directive"];
/// The same of what makes an object, also where an upload begins.
const OF_ENCRYPTION: [&str; 3] = [
    "x-amz-server-side-encryption",
    "x-amz-server-side-encryption-aws-kms-key-id",
    // 16.2 does not know it.
    "x-amz-server-side-encryption-customer-algorithm",
];
/// Bytes of a header's value: patterns are compared with it.
const MAX_VALUE: usize = 4 << 10;
/// Keys of a page, unless fewer are asked for.
const MAX_KEYS: u64 = 1_000;
/// Fields of the query that policies may ask for, behind `s3:`.
const FIELDS: [&str; 3] = ["prefix", "delimiter", "max-keys"];

/// How a request came.
#[derive(Debug, Clone, Copy)]
pub struct Way {
    pub peer: IpAddr,
    /// Nobody read it on its way.
    pub is_secure: bool,
}

impl Way {
    pub fn new(parts: &Parts, peer: IpAddr, settings: &encryption::Settings) -> Self {
        Self { peer, is_secure: encryption::is_secure(&parts.headers, settings) }
    }
}

/// Only what the request acts by is known: a header that nothing comes of would fulfil a condition.
pub fn of(parts: &Parts, user: Option<&UserInfo>, way: Way, now_s: u32) -> S3Result<Environment> {
    let mut env = Environment::new();
    let mut add = |key: &str, value: &str| drop(env.insert(key.to_owned(), value.to_owned()));
    // As in radosgw, whose values for these two are the other way round than AWS's.
    add("aws:CurrentTime", &now_s.to_string());
    let stamp = jiff::Timestamp::from_second(now_s.into()).unwrap_or_default();
    add("aws:EpochTime", &stamp.to_string());
    add("aws:PrincipalType", "User");
    add("aws:SourceIp", &way.peer.to_canonical().to_string());
    if way.is_secure {
        // As in radosgw it is not known that a request is not.
        add("aws:SecureTransport", "true");
    }
    add("sts:authentication", "false");
    for (key, name) in [("aws:Referer", "referer"), ("aws:UserAgent", "user-agent")] {
        let value = header(parts, name);
        if value.is_some_and(|value| value.len() > MAX_VALUE) {
            return Err(s3_error!(InvalidRequest, "a header that policies ask for is too long"));
        }
        value.into_iter().for_each(|value| add(key, value));
    }
    let name = user.map_or("anonymous".into(), |user| String::from_utf8_lossy(&user.id.id));
    add("aws:username", &name);
    let (_, object) = asked::path(parts)?;
    let (is_put, names) = (parts.method == Method::PUT, asked::query_names(parts));
    let is_copy = is_put && object.is_some() && parts.headers.contains_key("x-amz-copy-source");
    let of_put = HEADERS.iter().filter(|name| is_put && (is_copy || !OF_COPIES.contains(name)));
    let makes_object = asked::writes_object(parts)?;
    for name in of_put.chain(OF_ENCRYPTION.iter().filter(|_| makes_object)) {
        if header(parts, name).is_some_and(|value| value.len() > MAX_VALUE) {
            return Err(s3_error!(InvalidRequest, "a header that policies ask for is too long"));
        }
        // What is empty asks for nothing.
        let value = header(parts, name).filter(|value| !value.trim().is_empty());
        value.into_iter().for_each(|value| add(&format!("s3:{name}"), value));
    }
    if is_put {
        // A policy that wants another one than is given is to see that none is.
        add("s3:x-amz-acl", header(parts, "x-amz-acl").unwrap_or_default());
    }
    let replaces =
        header(parts, "x-amz-tagging-directive").is_some_and(|d| d.eq_ignore_ascii_case("replace"));
    let takes_tags = match is_copy {
        true => replaces && !names.contains(&"uploadId"),
        false => asked::is_data(parts)? && !names.contains(&"uploadId"),
    };
    let tags = tags::of_header(&parts.headers).ok().flatten().filter(|_| takes_tags);
    for (key, value) in tags.unwrap_or_default().tags {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        add(&format!("s3:RequestObjectTag/{}", text(&key)), &text(&value));
    }
    for (key, value) in listing(parts, object.is_none())? {
        add(&key, &value);
    }
    Ok(env)
}

/// What a list of a bucket is asked with.
fn listing(parts: &Parts, of_bucket: bool) -> S3Result<Vec<(String, String)>> {
    let mut found: BTreeMap<&str, String> = BTreeMap::new();
    if of_bucket && parts.method == Method::GET {
        found.insert("max-keys", MAX_KEYS.to_string());
    }
    let mut seen = BTreeSet::new();
    for field in parts.uri.query().unwrap_or_default().split('&') {
        let (name, value) = field.split_once('=').unwrap_or((field, ""));
        let Some(name) = percent_decode(&name.replace('+', " ")) else { continue };
        let Some(name) = FIELDS.into_iter().find(|known| *known == name) else { continue };
        if !seen.insert(name) {
            // The library passes over both.
            return Err(s3_error!(InvalidArgument, "a field of the query is given twice"));
        }
        let value = percent_decode(&value.replace('+', " ")).filter(|value| !value.is_empty());
        let Some(value) = value else { continue };
        let asked = value.parse::<u64>().ok().filter(|_| name == "max-keys");
        found.insert(name, asked.map_or(value, |keys| keys.min(MAX_KEYS).to_string()));
    }
    Ok(found.into_iter().map(|(name, value)| (format!("s3:{name}"), value)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_comes_from_headers_query_and_connection() {
        let request = hyper::Request::builder()
            .method(Method::PUT)
            .uri("/b/k?x-id=y")
            .header("referer", "http://r")
            .header("x-amz-tagging", "color=red")
            .header("x-amz-grant-read", "id=u");
        let (parts, ()) = request.body(()).unwrap().into_parts();
        let way = |is_secure| Way { peer: "::ffff:10.0.0.1".parse().unwrap(), is_secure };
        let secure = of(&parts, None, way(true), 1).unwrap();
        assert_eq!(secure.get("aws:SecureTransport").map(String::as_str), Some("true"));
        let env = of(&parts, None, way(false), 1_700_000_000).unwrap();
        for (key, want) in [
            ("aws:SourceIp", Some("10.0.0.1")),
            ("aws:CurrentTime", Some("1700000000")),
            ("aws:EpochTime", Some("2023-11-14T22:13:20Z")),
            ("aws:Referer", Some("http://r")),
            ("aws:username", Some("anonymous")),
            ("aws:UserAgent", None),
            ("aws:SecureTransport", None),
            ("s3:x-amz-acl", Some("")),
            ("s3:x-amz-grant-read", Some("id=u")),
            ("s3:RequestObjectTag/color", Some("red")),
            ("s3:max-keys", None),
            ("s3:x-id", None),
        ] {
            assert_eq!(env.get(key).map(String::as_str), want, "{key}");
        }
    }

    fn env(method: Method, uri: &str, headers: &[(&'static str, &str)]) -> S3Result<Environment> {
        let request =
            headers.iter().fold(hyper::Request::builder().method(method).uri(uri), |r, (name, value)| {
                r.header(*name, *value)
            });
        let (parts, ()) = request.body(()).unwrap().into_parts();
        of(&parts, None, Way { peer: "::1".parse().unwrap(), is_secure: false }, 1)
    }

    #[test]
    fn lists_are_seen_as_they_are_done() {
        for (uri, prefix, keys) in [
            ("/b?prefix=a%2Fb&max-keys=5&x=y", Some("a/b"), "5"),
            ("/b?%70refix=secret/&max%2Dkeys=7", Some("secret/"), "7"),
            ("/b?max-keys=5000", None, "1000"),
            ("/b?prefix=", None, "1000"),
        ] {
            let env = env(Method::GET, uri, &[]).unwrap();
            assert_eq!(env.get("s3:prefix").map(String::as_str), prefix, "{uri}");
            assert_eq!(env.get("s3:max-keys").map(String::as_str), Some(keys), "{uri}");
        }
        assert!(env(Method::GET, "/b?prefix=a&prefix=b", &[]).is_err(), "neither would count");
        assert!(env(Method::GET, "/b?prefix=a&%70refix=b", &[]).is_err());
    }

    #[test]
    fn what_a_request_does_not_act_by_is_not_known() {
        let tag = ("x-amz-tagging", "team=blue");
        let copy = ("x-amz-copy-source", "templates/x");
        let tags_of = |method, uri, headers: &[_]| {
            env(method, uri, headers).unwrap().contains_key("s3:RequestObjectTag/team")
        };
        assert!(tags_of(Method::PUT, "/b/k", &[tag]));
        assert!(tags_of(Method::PUT, "/b/k?x-a=1", &[tag]));
        assert!(tags_of(Method::PUT, "/b/k", &[tag, copy, ("x-amz-tagging-directive", "REPLACE")]));
        for (method, uri, headers) in [
            (Method::PUT, "/b/k?tagging", &[tag][..]),
            (Method::PUT, "/b/k?partNumber=1&uploadId=u", &[tag]),
            (Method::PUT, "/b/k", &[tag, copy]),
            (Method::POST, "/b", &[tag]),
        ] {
            assert!(!tags_of(method, uri, headers), "{uri}");
        }
        let source_of = |method, uri| env(method, uri, &[copy]).unwrap().contains_key("s3:x-amz-copy-source");
        assert!(
            source_of(Method::PUT, "/b/k") && !source_of(Method::POST, "/b") && !source_of(Method::PUT, "/b")
        );
        let encrypts = ("x-amz-server-side-encryption", "aws:kms");
        let encryption_of = |method, uri| {
            let env = env(method, uri, &[encrypts]).unwrap();
            env.get("s3:x-amz-server-side-encryption").cloned()
        };
        for (method, uri, known) in [
            (Method::PUT, "/b/k", true),
            (Method::PUT, "/b/k?x-a=1", true),
            (Method::POST, "/b/k?uploads", true),
            (Method::PUT, "/b/k?partNumber=1&uploadId=u", false),
            (Method::PUT, "/b/k?tagging", false),
            (Method::GET, "/b/k", false),
        ] {
            assert_eq!(encryption_of(method, uri).is_some(), known, "{uri}");
        }
        for name in OF_ENCRYPTION {
            let env = env(Method::PUT, "/b/k", &[(name, "")]).unwrap();
            assert_eq!(env.get(&format!("s3:{name}")), None);
        }
        assert!(env(Method::GET, "/b/k", &[("user-agent", &"x".repeat(MAX_VALUE + 1))]).is_err());
    }
}

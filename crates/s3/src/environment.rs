//! What policies may ask of a request. Source: rgw_build_iam_environment in src/rgw/rgw_op.cc, and what
//! RGWPutObj, RGWPutACLs, RGWCopyObj and RGWListBucket add to it.

use std::net::IpAddr;

use hyper::Method;
use hyper::http::request::Parts;
use rgw::UserInfo;
use rgw::policy::Environment;

use crate::sign::{header, percent_decode};
use crate::tags;

/// Headers that policies may ask for, behind `s3:`.
const HEADERS: [&str; 9] = [
    "x-amz-copy-source",
    "x-amz-metadata-directive",
    "x-amz-server-side-encryption",
    "x-amz-server-side-encryption-aws-kms-key-id",
    "x-amz-grant-read",
    "x-amz-grant-write",
    "x-amz-grant-read-acp",
    "x-amz-grant-write-acp",
    "x-amz-grant-full-control",
];
/// The same of the query.
const FIELDS: [&str; 3] = ["prefix", "delimiter", "max-keys"];

pub fn of(parts: &Parts, user: Option<&UserInfo>, peer: IpAddr, now_s: u32) -> Environment {
    let mut env = Environment::new();
    let mut add = |key: &str, value: &str| drop(env.insert(key.to_owned(), value.to_owned()));
    add("aws:CurrentTime", &now_s.to_string());
    let stamp = jiff::Timestamp::from_second(now_s.into()).unwrap_or_default();
    add("aws:EpochTime", &stamp.to_string());
    add("aws:PrincipalType", "User");
    add("aws:SourceIp", &peer.to_canonical().to_string());
    add("sts:authentication", "false");
    for (key, name) in [("aws:Referer", "referer"), ("aws:UserAgent", "user-agent")] {
        header(parts, name).into_iter().for_each(|value| add(key, value));
    }
    let name = user.map_or("anonymous".into(), |user| String::from_utf8_lossy(&user.id.id));
    add("aws:username", &name);
    for name in HEADERS {
        header(parts, name).into_iter().for_each(|value| add(&format!("s3:{name}"), value));
    }
    if parts.method == Method::PUT {
        // A policy that wants another one than is given is to see that none is.
        add("s3:x-amz-acl", header(parts, "x-amz-acl").unwrap_or_default());
    }
    for (key, value) in tags::of_header(&parts.headers).ok().flatten().unwrap_or_default().tags {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        add(&format!("s3:RequestObjectTag/{}", text(&key)), &text(&value));
    }
    for field in parts.uri.query().unwrap_or_default().split('&') {
        let Some((name, value)) = field.split_once('=') else { continue };
        let value = percent_decode(&value.replace('+', " ")).filter(|value| !value.is_empty());
        if let Some(value) = value.filter(|_| FIELDS.contains(&name)) {
            add(&format!("s3:{name}"), &value);
        }
    }
    env
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_comes_from_headers_query_and_connection() {
        let request = hyper::Request::builder()
            .method(Method::PUT)
            .uri("/b?prefix=a%2Fb&max-keys=5&x=y")
            .header("referer", "http://r")
            .header("x-amz-tagging", "color=red")
            .header("x-amz-grant-read", "id=u");
        let (parts, ()) = request.body(()).unwrap().into_parts();
        let env = of(&parts, None, "::ffff:10.0.0.1".parse().unwrap(), 1_700_000_000);
        for (key, want) in [
            ("aws:SourceIp", Some("10.0.0.1")),
            ("aws:CurrentTime", Some("1700000000")),
            ("aws:EpochTime", Some("2023-11-14T22:13:20Z")),
            ("aws:Referer", Some("http://r")),
            ("aws:username", Some("anonymous")),
            ("aws:UserAgent", None),
            ("s3:x-amz-acl", Some("")),
            ("s3:x-amz-grant-read", Some("id=u")),
            ("s3:RequestObjectTag/color", Some("red")),
            ("s3:prefix", Some("a/b")),
            ("s3:max-keys", Some("5")),
            ("s3:x", None),
        ] {
            assert_eq!(env.get(key).map(String::as_str), want, "{key}");
        }
    }
}

//! Buckets as web sites, for whoever asks with a browser: index and error documents, and redirects.
//! Source: RGWHandler_REST_S3Website in src/rgw/rgw_rest_s3.cc, src/rgw/rgw_website.cc.
//!
//! 1. A site is its host's name, and is read as nobody in particular: signatures count for nothing here.
//! 2. What is answered are objects that anybody may read, where else a browser is sent, or an error as HTML.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderValue, LOCATION};
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use rgw::{RoutingRule, Website};
use s3s::service::S3Service;
use s3s::{Body, S3Error, S3ErrorCode, S3Result};

use crate::environment::{self, Way};
use crate::ops::reader;
use crate::sign::{self, header};
use crate::state::{self, BucketView, Gateway, now};
use crate::users::Caller;
use crate::{encryption, errors};

/// What a gateway is told of web sites.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// Owners may say what their sites are. Source: rgw_enable_static_website.
    pub documents: bool,
    /// A site is a bucket's name in front of this. Source: rgw_dns_s3website_name.
    pub domain: Option<String>,
}

/// Headers that an error's document is asked for without.
const CONDITIONS: [&str; 6] =
    ["range", "if-range", "if-match", "if-none-match", "if-modified-since", "if-unmodified-since"];

/// A request for a page of a site.
pub struct Visit {
    pub bucket: String,
    /// Empty for the site itself.
    pub key: String,
    parts: Parts,
    caller: Caller,
}

fn host_and_port(parts: &Parts) -> Option<&str> {
    header(parts, "host").or_else(|| parts.uri.authority().map(|a| a.as_str()))
}

/// The host that a request names, without its port. Source: RGWREST::preprocess in src/rgw/rgw_rest.cc.
fn host(parts: &Parts) -> Option<&str> {
    let host = host_and_port(parts)?;
    match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next(),
        None => host.split(':').next(),
    }
}

/// Where a browser finds the site that it asks: the host, and the port if it is one. What else a client
/// writes there would send others elsewhere.
fn authority(parts: &Parts) -> String {
    let host = host(parts).unwrap_or_default();
    let port = host_and_port(parts).and_then(|both| both.strip_prefix(host)?.strip_prefix(':'));
    match port.filter(|port| port.bytes().all(|b| b.is_ascii_digit()) && port.parse::<u16>().is_ok()) {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    }
}

/// What a request whose host is a site's is for.
#[derive(Debug, PartialEq, Eq)]
struct Target {
    /// In front of the bucket's name and a colon, where it is named.
    tenant: Option<Bytes>,
    bucket: String,
    key: String,
}

impl Target {
    /// A bucket's name that is in a path must be one name there, and in a host may not end it.
    fn new(bucket: &str, key: &str) -> S3Result<Self> {
        let (tenant, bucket) = match bucket.split_once(':') {
            Some((tenant, bucket)) => (Some(tenant.to_owned().into()), bucket),
            None => (None, bucket),
        };
        let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"-._".contains(&b);
        if !bucket.bytes().all(is_plain) {
            return Err(S3ErrorCode::InvalidBucketName.into());
        }
        Ok(Self { tenant, bucket: bucket.to_owned(), key: key.to_owned() })
    }
}

/// `None` where the host is no site's.
fn target(parts: &Parts, domain: &str) -> Option<S3Result<Target>> {
    let host = host(parts)?;
    let at = host.len().checked_sub(domain.len())?;
    let bucket =
        host.get(..at).filter(|_| host.get(at..).is_some_and(|end| end.eq_ignore_ascii_case(domain)))?;
    if !bucket.is_empty() && !bucket.ends_with('.') {
        return None;
    }
    let Some(path) = sign::percent_decode(parts.uri.path()) else {
        return Some(Err(S3ErrorCode::InvalidURI.into()));
    };
    let path = path.strip_prefix('/').unwrap_or(&path);
    Some(match bucket.strip_suffix('.') {
        Some(bucket) => Target::new(&bucket.to_ascii_lowercase(), path),
        // The domain alone: the bucket is in front of the path.
        None => {
            let (bucket, key) = path.split_once('/').unwrap_or((path, ""));
            Target::new(bucket, key)
        }
    })
}

impl Visit {
    /// A request whose host is that of a site.
    pub fn of(parts: &Parts, settings: &state::Settings, peer: IpAddr) -> Option<S3Result<Self>> {
        let target = target(parts, settings.websites.domain.as_deref()?)?;
        Some(target.and_then(|Target { tenant, bucket, key }| {
            let mut parts = parts.clone();
            let asked = encryption::Asked::of_visit(&parts.headers, &settings.encryption);
            parts.extensions.insert(Arc::new(asked));
            let way = Way::new(&parts, peer, &settings.encryption);
            // What a page is asked with is the page's own matter.
            parts.uri = place(&bucket, &key)?;
            let env = environment::of(&parts, None, way, now().0.sec)?;
            let caller = Caller::default().asking(env, tenant, false);
            Ok(Self { bucket, key, parts, caller })
        }))
    }

    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// The answer with an object's bytes.
    async fn page(&self, service: &S3Service, key: &str, headers: HeaderMap) -> S3Result<Response<Body>> {
        let mut request = Request::new(Body::empty());
        *request.method_mut() = self.parts.method.clone();
        *request.uri_mut() = place(&self.bucket, key)?;
        *request.headers_mut() = headers;
        *request.extensions_mut() = self.parts.extensions.clone();
        request.extensions_mut().insert(self.caller.clone());
        Box::pin(service.call(request)).await
    }

    /// Headers as they came, but for signatures and keys.
    fn headers(&self) -> HeaderMap {
        let kept = self.parts.headers.iter().filter(|(name, _)| {
            let name = name.as_str();
            name == "host" || CONDITIONS.contains(&name)
        });
        kept.map(|(name, value)| (name.clone(), value.clone())).collect()
    }

    /// Sends a browser where a rule says.
    fn sent(&self, rule: &RoutingRule) -> S3Result<Response<Body>> {
        let url = target_of(rule, authority(&self.parts).as_bytes(), self.key.as_bytes());
        let code = if rule.redirect.http_code > 0 { rule.redirect.http_code } else { 301 };
        redirect(&url, StatusCode::from_u16(code).unwrap_or(StatusCode::MOVED_PERMANENTLY))
    }
}

fn redirect(url: &[u8], status: StatusCode) -> S3Result<Response<Body>> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    let url = HeaderValue::from_bytes(url).map_err(|_| errors::custom("WebsiteRedirect", 500))?;
    response.headers_mut().insert(LOCATION, url);
    Ok(response)
}

/// Where S3 has an object.
fn place(bucket: &str, key: &str) -> S3Result<Uri> {
    let path = format!("/{}/{}", sign::percent_encode(bucket, true), sign::percent_encode(key, true));
    path.parse().map_err(|_| S3ErrorCode::InvalidURI.into())
}

/// Where a rule sends a request for a key. Source: RGWBWRoutingRule::apply_rule.
fn target_of(rule: &RoutingRule, host: &[u8], key: &[u8]) -> Vec<u8> {
    let or = |text: &[u8], default: &[u8]| if text.is_empty() { default.to_vec() } else { text.to_vec() };
    let to = &rule.redirect;
    let place = match (&rule.replace_key_prefix_with[..], &rule.replace_key_with[..]) {
        // The index document's key may have the prefix where the request's does not.
        (prefix @ [_, ..], _) => {
            [prefix, key.get(rule.key_prefix_equals.len()..).unwrap_or_default()].concat()
        }
        ([], whole @ [_, ..]) => whole.to_vec(),
        ([], []) => key.to_vec(),
    };
    let place = escaped_bytes(&place);
    [&or(&to.protocol, b"http")[..], b"://", &or(&to.hostname, host), b"/", place.as_bytes()].concat()
}

/// Bytes of a key as a header can have them.
fn escaped_bytes(bytes: &[u8]) -> String {
    let plain = |b: u8| b.is_ascii_graphic();
    bytes.iter().map(|b| if plain(*b) { char::from(*b).to_string() } else { format!("%{b:02X}") }).collect()
}

/// The first rule for a key and an error, or for a key and none. Source:
/// RGWBucketWebsiteConf::should_redirect.
fn rule_for(site: &Website, key: &[u8], error: u16) -> Option<RoutingRule> {
    if !site.redirect_all.hostname.is_empty() {
        return Some(RoutingRule { redirect: site.redirect_all.clone(), ..RoutingRule::default() });
    }
    let fits =
        |rule: &&RoutingRule| key.starts_with(&rule.key_prefix_equals) && rule.http_error_equals == error;
    site.rules.iter().find(fits).cloned()
}

/// The object that a request for a key gets. Source: RGWBucketWebsiteConf::get_effective_key.
fn page_of(site: &Website, key: &str, is_file: bool) -> Option<String> {
    let index = std::str::from_utf8(&site.index_suffix).ok().filter(|index| !index.is_empty())?;
    Some(match key {
        "" => index.to_owned(),
        key if key.ends_with('/') => [key, index].concat(),
        key if is_file => key.to_owned(),
        key => [key, "/", index].concat(),
    })
}

/// Answers a request for a page; with an error as HTML.
pub async fn answer(gateway: &Gateway, service: &S3Service, visit: &Visit) -> Response<Body> {
    let answered = match visit.parts.method {
        Method::GET | Method::HEAD => shown(gateway, service, visit).await,
        _ => Err(S3ErrorCode::MethodNotAllowed.into()),
    };
    answered.unwrap_or_else(|e| failed(&e, visit.parts.method == Method::HEAD))
}

async fn shown(gateway: &Gateway, service: &S3Service, visit: &Visit) -> S3Result<Response<Body>> {
    let view = gateway.bucket(&visit.caller, &visit.bucket).await?;
    let Some(site) = &view.info.website else {
        return Err(errors::custom("NoSuchWebsiteConfiguration", 404));
    };
    let error = match page(gateway, service, visit, &view, site).await {
        Ok(answered) => return Ok(answered),
        Err(e) => e,
    };
    let status = status_of(&error);
    if let Some(rule) = rule_for(site, visit.key.as_bytes(), status.as_u16()) {
        return visit.sent(&rule);
    }
    let document = std::str::from_utf8(&site.error_key).ok().filter(|key| !key.is_empty());
    if let Some(document) = document {
        let mut headers = visit.headers();
        CONDITIONS.iter().for_each(|name| drop(headers.remove(*name)));
        // What nobody may read is no page either.
        if let Ok(mut answered) = visit.page(service, document, headers).await {
            if answered.status() == StatusCode::OK {
                *answered.status_mut() = status;
                return Ok(answered);
            }
        }
    }
    Err(error)
}

/// The object of a request, or where its rules or its own header send it.
async fn page(
    gateway: &Gateway,
    service: &S3Service,
    visit: &Visit,
    view: &BucketView,
    site: &Website,
) -> S3Result<Response<Body>> {
    let itself = match visit.key.strip_suffix('/').filter(|key| !key.is_empty()) {
        Some(folder) => folder,
        None => &visit.key,
    };
    let is_file = !itself.is_empty() && reader::is_there(gateway, view, itself).await?;
    let key = page_of(site, &visit.key, is_file).ok_or_else(|| {
        S3Error::with_message(
            S3ErrorCode::InvalidArgument,
            "The IndexDocument Suffix is not configurated or not well formed!",
        )
    })?;
    if let Some(rule) = rule_for(site, key.as_bytes(), 0) {
        return visit.sent(&rule);
    }
    let opened = reader::open(gateway, &visit.caller, view, &reader::key(&key, None), 0).await?;
    if let Some(url) = opened.head.attrs.get(&b"user.rgw.x-amz-website-redirect-location"[..]) {
        let url = url.split(|b| *b == 0).next().unwrap_or_default();
        return redirect(url, StatusCode::MOVED_PERMANENTLY);
    }
    visit.page(service, &key, visit.headers()).await
}

fn status_of(error: &S3Error) -> StatusCode {
    let status = error.status_code().or_else(|| error.code().status_code());
    status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

/// An error as browsers show it.
fn failed(error: &S3Error, of_head: bool) -> Response<Body> {
    let status = status_of(error);
    let text = |text: &str| quick_xml::escape::escape(text).into_owned();
    let title = text(&status.to_string());
    let code = format!("<li>Code: {}</li>", text(error.code().as_str()));
    let message = error.message().map(|message| format!("<li>Message: {}</li>", text(message)));
    let page = format!(
        "<html><head><title>{title}</title></head><body><h1>{title}</h1><ul>{code}{}</ul></body></html>\n",
        message.unwrap_or_default()
    );
    let mut response = Response::new(if of_head { Body::empty() } else { Body::from(page) });
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(host: &str, uri: &str) -> Parts {
        Request::builder().uri(uri).header("host", host).body(()).unwrap().into_parts().0
    }

    #[test]
    fn a_sites_bucket_is_in_its_hosts_name() {
        let of = |host: &str, uri: &str| target(&parts(host, uri), "web.example").map(Result::unwrap);
        let want = |bucket: &str, key: &str| Some(Target::new(bucket, key).unwrap());
        assert_eq!(of("b.web.example", "/"), want("b", ""));
        assert_eq!(of("B.Web.Example:8080", "/a%20b/c?x=y"), want("b", "a b/c"));
        assert_eq!(of("b.c.web.example", "/k"), want("b.c", "k"));
        assert_eq!(of("web.example:80", "/b/k/l"), want("b", "k/l"));
        assert_eq!(of("web.example", "/"), want("", ""));
        for host in ["bweb.example", "example", "web.example.org", "[::1]:80", "127.0.0.1", ""] {
            assert_eq!(of(host, "/b/k"), None, "{host}");
        }
        for tenanted in ["/t:b/k", "/t%3Ab/k"] {
            let found = of("web.example", tenanted).unwrap();
            assert_eq!((found.tenant, found.bucket, found.key), (Some("t".into()), "b".into(), "k".into()));
        }
        for (host, uri) in [
            ("b.web.example", "/%zz"),
            ("b/c.web.example", "/k"),
            ("b?c.web.example", "/k"),
            ("evil.example#.web.example", "/k"),
            ("web.example", "/t:b:c/k"),
            ("web.example", "/t:b%3F/k"),
        ] {
            assert!(target(&parts(host, uri), "web.example").unwrap().is_err(), "{host}{uri}");
        }
    }

    fn settings() -> state::Settings {
        let websites = Settings { documents: true, domain: Some("web.example".to_owned()) };
        state::Settings { websites, ..state::Settings::default() }
    }

    #[test]
    fn a_visit_says_how_it_came() {
        let mut settings = settings();
        settings.encryption.trusts_proxy = true;
        let mut parts = parts("b.web.example", "/k");
        parts.headers.insert("x-forwarded-proto", HeaderValue::from_static("https"));
        let visit = Visit::of(&parts, &settings, "::1".parse().unwrap()).unwrap().unwrap();
        assert!(visit.parts.extensions.get::<Arc<encryption::Asked>>().is_some());
        assert_eq!(visit.caller().env()["aws:SecureTransport"], "true");
    }

    #[test]
    fn browsers_are_sent_to_hosts_and_ports_alone() {
        for (host, want) in [
            ("b.web.example", "http://b.web.example/a/c"),
            ("b.web.example:8080", "http://b.web.example:8080/a/c"),
            ("b.web.example:80@evil.example", "http://b.web.example/a/c"),
            ("b.web.example:x", "http://b.web.example/a/c"),
            ("b.web.example:+80", "http://b.web.example/a/c"),
            ("b.web.example:99999", "http://b.web.example/a/c"),
            ("b.web.example:", "http://b.web.example/a/c"),
        ] {
            let visit = Visit::of(&parts(host, "/a/c"), &settings(), "::1".parse().unwrap());
            let sent = visit.unwrap().unwrap().sent(&rule("a/", 0, rgw::Redirect::default())).unwrap();
            assert_eq!(sent.headers()[LOCATION], want, "{host}");
        }
    }

    #[test]
    fn folders_have_index_documents() {
        let site = Website { index_suffix: "i.html".into(), ..Website::default() };
        for (key, is_file, want) in [
            ("", false, "i.html"),
            ("a/", false, "a/i.html"),
            ("a/", true, "a/i.html"),
            ("a", false, "a/i.html"),
            ("a", true, "a"),
        ] {
            assert_eq!(page_of(&site, key, is_file).as_deref(), Some(want), "{key}");
        }
        assert_eq!(page_of(&Website::default(), "a", true), None);
    }

    fn rule(prefix: &'static str, error: u16, redirect: rgw::Redirect) -> RoutingRule {
        let (key_prefix_equals, http_error_equals) = (prefix.into(), error);
        RoutingRule { key_prefix_equals, http_error_equals, redirect, ..RoutingRule::default() }
    }

    #[test]
    fn rules_are_for_keys_and_errors() {
        let to = |host: &'static str| rgw::Redirect { hostname: host.into(), ..rgw::Redirect::default() };
        let rules = vec![rule("a/", 404, to("one")), rule("a/", 0, to("two")), rule("", 403, to("three"))];
        let site = Website { rules, ..Website::default() };
        let of = |key: &str, error| {
            rule_for(&site, key.as_bytes(), error)
                .map(|rule| String::from_utf8(rule.redirect.hostname.to_vec()).unwrap())
        };
        assert_eq!(of("a/b", 404).as_deref(), Some("one"));
        assert_eq!(of("a/b", 0).as_deref(), Some("two"));
        assert_eq!(of("x", 403).as_deref(), Some("three"));
        assert_eq!((of("x", 0), of("x", 404), of("a", 404)), (None, None, None));
        let all = Website { redirect_all: to("all"), ..site };
        assert_eq!(rule_for(&all, b"x", 0).unwrap().redirect.hostname, "all");
    }

    #[test]
    fn redirects_are_made_of_a_rule_and_a_request() {
        let of = |rule: &RoutingRule, key: &str| {
            String::from_utf8(target_of(rule, b"h:80", key.as_bytes())).unwrap()
        };
        let plain = rule("a/", 0, rgw::Redirect::default());
        assert_eq!(of(&plain, "a/b c"), "http://h:80/a/b%20c");
        let to = rgw::Redirect { protocol: "https".into(), hostname: "o".into(), http_code: 302 };
        let prefix = RoutingRule { replace_key_prefix_with: "b/".into(), ..rule("a/", 0, to.clone()) };
        assert_eq!(of(&prefix, "a/c"), "https://o/b/c");
        assert_eq!(of(&prefix, "a"), "https://o/b/", "the key has less than the prefix");
        let whole = RoutingRule { replace_key_with: "k".into(), ..rule("a/", 0, to) };
        assert_eq!(of(&whole, "a/c"), "https://o/k");
        // No second header can be made of a key.
        assert_eq!(of(&plain, "a/\r\nset-cookie: x"), "http://h:80/a/%0D%0Aset-cookie:%20x");
    }
}

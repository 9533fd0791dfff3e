//! Pages of other sites: which may use a bucket, and what their browsers are told. Source:
//! src/rgw/rgw_cors.cc, src/rgw/rgw_cors_s3.cc, RGWOptionsCORS in src/rgw/rgw_op.cc.

use codec::Encode;
use hyper::header::{HeaderName, HeaderValue};
use hyper::{HeaderMap, Method, Response, StatusCode};
use rgw::policy::Action;
use rgw::{Cors, CorsRule};
use s3s::{Body, S3Error, S3ErrorCode, S3Result, s3_error};

use super::{Asked, empty};
use crate::errors;
use crate::state::{BucketView, CORS, Gateway};
use crate::users::Caller;
use crate::xml::{Document, Element};

const ROOT: &str = "CORSConfiguration";
/// Source: rgw_cors_rules_max_num in src/common/options.cc.
const MAX_RULES: usize = 100;
const MAX_ID: usize = 255;
/// Bytes of a document, and texts of each kind in a rule: pages ask for them with each request.
const MAX_DOCUMENT: usize = 64 << 10;
const MAX_TEXTS: usize = 100;
/// Headers that a page may ask for at once.
const MAX_WANTED: usize = 100;
/// Bytes of the headers that a page may read, as one header.
const MAX_EXPOSED: usize = 8 << 10;
/// In the order in which answers have them.
const METHODS: [(&str, u8); 6] = [
    ("GET", CorsRule::GET),
    ("PUT", CorsRule::PUT),
    ("DELETE", CorsRule::DELETE),
    ("HEAD", CorsRule::HEAD),
    ("POST", CorsRule::POST),
    ("COPY", CorsRule::COPY),
];

pub async fn get(gateway: &Gateway, asked: Asked) -> S3Result<Response<Body>> {
    let view = gateway.own_bucket(&asked.caller, &asked.bucket, Action::GetBucketCORS).await?;
    let cors = view.cors.as_ref().ok_or_else(|| errors::custom("NoSuchCORSConfiguration", 404))?;
    Ok(shown(cors))
}

fn shown(cors: &Cors) -> Response<Body> {
    let mut document = Document::new(ROOT);
    for rule in &cors.rules {
        document.open("CORSRule");
        if !rule.id.is_empty() {
            document.text("ID", &rule.id);
        }
        let methods = METHODS.iter().filter(|(_, bit)| rule.methods & bit != 0);
        methods.for_each(|(name, _)| document.text("AllowedMethod", name));
        rule.origins.iter().for_each(|origin| document.text("AllowedOrigin", origin));
        rule.headers.iter().for_each(|header| document.text("AllowedHeader", header));
        if rule.max_age_s != CorsRule::NO_AGE {
            document.text("MaxAgeSeconds", rule.max_age_s.to_string());
        }
        rule.exposed.iter().for_each(|header| document.text("ExposeHeader", header));
        document.close("CORSRule");
    }
    document.done(ROOT)
}

fn read(document: &[u8]) -> S3Result<Cors> {
    if document.len() > MAX_DOCUMENT {
        return Err(s3_error!(InvalidRequest, "the document has more than 64 KiB"));
    }
    let root = Element::read(document, ROOT)?;
    let rules: Vec<CorsRule> = root.all("CORSRule").map(rule).collect::<S3Result<_>>()?;
    match rules.len() {
        0 => Err(S3ErrorCode::MalformedXML.into()),
        n if n > MAX_RULES => Err(s3_error!(InvalidRequest, "there are too many rules")),
        _ => Ok(Cors { rules }),
    }
}

fn rule(element: &Element) -> S3Result<CorsRule> {
    let malformed = || S3Error::new(S3ErrorCode::MalformedXML);
    let mut methods = 0;
    for method in element.all("AllowedMethod") {
        let known = METHODS.iter().find(|(name, _)| name.eq_ignore_ascii_case(method.text.trim()));
        methods |= known.ok_or_else(malformed)?.1;
    }
    let id = element.text_of("ID").unwrap_or_default();
    // What pages and their headers are named by has one star at most.
    let named = |name| {
        let texts = element.all(name).map(|e| e.text.trim());
        let fits = |text: &str| !text.is_empty() && text.matches('*').count() < 2;
        let texts = texts.map(|text| fits(text).then(|| text.to_owned().into()).ok_or_else(malformed));
        texts.collect::<S3Result<std::collections::BTreeSet<_>>>()
    };
    let (origins, headers) = (named("AllowedOrigin")?, named("AllowedHeader")?);
    let exposed: Vec<_> = element.all("ExposeHeader").map(|header| header.text.clone().into()).collect();
    if origins.is_empty() || id.len() > MAX_ID {
        return Err(malformed());
    }
    let is_long = exposed.iter().map(|text: &bytes::Bytes| text.len() + 1).sum::<usize>() > MAX_EXPOSED;
    if is_long || [origins.len(), headers.len(), exposed.len()].iter().any(|n| *n > MAX_TEXTS) {
        return Err(s3_error!(InvalidRequest, "a rule has too many entries"));
    }
    let max_age_s = match element.text_of("MaxAgeSeconds") {
        None => CorsRule::NO_AGE,
        Some(text) => {
            let seconds: u64 = text.trim().parse().map_err(|_| malformed())?;
            u32::try_from(seconds).unwrap_or(CorsRule::NO_AGE)
        }
    };
    Ok(CorsRule { max_age_s, methods, id: id.to_owned().into(), headers, origins, exposed })
}

pub async fn put(gateway: &Gateway, asked: Asked) -> S3Result<Response<Body>> {
    let view = gateway.own_bucket(&asked.caller, &asked.bucket, Action::PutBucketCORS).await?;
    let cors = read(&asked.document)?;
    gateway.set_bucket_attr(&asked.caller, &view, CORS, Some(cors.to_bytes())).await?;
    Ok(empty(StatusCode::OK))
}

pub async fn delete(gateway: &Gateway, asked: Asked) -> S3Result<Response<Body>> {
    let view = gateway.own_bucket(&asked.caller, &asked.bucket, Action::PutBucketCORS).await?;
    gateway.set_bucket_attr(&asked.caller, &view, CORS, None).await?;
    Ok(empty(StatusCode::NO_CONTENT))
}

/// Whether a text is one of some that have a star at most.
fn is_among<'a>(some: impl IntoIterator<Item = &'a [u8]>, text: &[u8], ignore_case: bool) -> bool {
    let same = |a: &[u8], b: &[u8]| if ignore_case { a.eq_ignore_ascii_case(b) } else { a == b };
    some.into_iter().any(|pattern| match pattern.iter().position(|b| *b == b'*') {
        None => same(pattern, text),
        Some(at) => {
            let (start, end) =
                (pattern.get(..at).unwrap_or_default(), pattern.get(at + 1..).unwrap_or_default());
            let first = text.get(..start.len());
            let last = text.len().checked_sub(end.len()).and_then(|from| text.get(from..));
            first.is_some_and(|first| same(first, start)) && last.is_some_and(|last| same(last, end))
        }
    })
}

/// The first rule for a page.
fn rule_for<'a>(cors: &'a Cors, origin: &str) -> Option<&'a CorsRule> {
    let fits = |rule: &&CorsRule| is_among(rule.origins.iter().map(|o| &o[..]), origin.as_bytes(), false);
    cors.rules.iter().find(fits)
}

fn allows_method(rule: &CorsRule, method: &str) -> bool {
    // Copies are no method of HTTP.
    let known = METHODS.iter().find(|(name, bit)| *name == method && *bit != CorsRule::COPY);
    known.is_some_and(|(_, bit)| rule.methods & bit != 0)
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// Headers that a page wants to send, and whether the rule lets it send each.
fn wanted<'a>(rule: &'a CorsRule, headers: &'a HeaderMap) -> impl Iterator<Item = (&'a str, bool)> {
    let list = header(headers, "access-control-request-headers").unwrap_or_default();
    let names = list.split([';', ',', '=', ' ', '\t']).filter(|name| !name.is_empty());
    // One beyond the bound is there, and not allowed.
    names.take(MAX_WANTED + 1).enumerate().map(|(at, name)| {
        let some = rule.headers.iter().map(|h| &h[..]).take(MAX_TEXTS);
        (name, at < MAX_WANTED && is_among(some, name.as_bytes(), true))
    })
}

/// What a browser is told of a page's request.
fn told(rule: &CorsRule, origin: &str, method: &str, headers: &HeaderMap) -> HeaderMap {
    let mut out = HeaderMap::new();
    let mut add = |name: &'static str, value: &[u8]| {
        // What cannot be in a header, a line's end first of all, is left out.
        if let Some(value) = HeaderValue::from_bytes(value).ok().filter(|value| !value.is_empty()) {
            out.insert(HeaderName::from_static(name), value);
        }
    };
    add("access-control-allow-origin", origin.as_bytes());
    if origin != "*" {
        add("vary", b"Origin");
    }
    add("access-control-allow-methods", method.as_bytes());
    let allowed: Vec<&str> =
        wanted(rule, headers).filter(|(_, is_allowed)| *is_allowed).map(|(n, _)| n).collect();
    add("access-control-allow-headers", allowed.join(",").as_bytes());
    add("access-control-expose-headers", &rule.exposed.join(&b","[..]));
    if rule.max_age_s != CorsRule::NO_AGE {
        add("access-control-max-age", rule.max_age_s.to_string().as_bytes());
    }
    out
}

/// What is added to the answer of a request that a page made.
fn told_of_answer(cors: &Cors, method: &Method, headers: &HeaderMap, is_signed: bool) -> Option<HeaderMap> {
    let origin = header(headers, "origin")?;
    let rule = rule_for(cors, origin)?;
    let method = header(headers, "access-control-request-method").unwrap_or(method.as_str());
    let is_open = !is_signed && rule.origins.contains(&b"*"[..]);
    allows_method(rule, method).then(|| told(rule, if is_open { "*" } else { origin }, method, headers))
}

/// What is added to an answer about a bucket, of a request with an origin.
pub async fn answer_for(
    gateway: &Gateway,
    caller: &Caller,
    bucket: &str,
    method: &Method,
    headers: &HeaderMap,
) -> Option<HeaderMap> {
    let view = gateway.bucket(caller, bucket).await.ok()?;
    told_of_answer(view.cors.as_ref()?, method, headers, headers.contains_key("authorization"))
}

fn check_preflight(view: &BucketView, headers: &HeaderMap) -> S3Result<HeaderMap> {
    let missing = || s3_error!(InvalidArgument, "a page's origin and method are missing");
    let origin = header(headers, "origin").ok_or_else(missing)?;
    let method = header(headers, "access-control-request-method").ok_or_else(missing)?;
    let rule = view.cors.as_ref().and_then(|cors| rule_for(cors, origin));
    let rule = rule.filter(|rule| allows_method(rule, method));
    let rule = rule.filter(|rule| wanted(rule, headers).all(|(_, is_allowed)| is_allowed));
    Ok(told(rule.ok_or(S3ErrorCode::AccessDenied)?, origin, method, headers))
}

/// A browser asks what a page may do.
pub async fn preflight(
    gateway: &Gateway,
    caller: &Caller,
    bucket: &str,
    headers: &HeaderMap,
) -> S3Result<Response<Body>> {
    let view = gateway.bucket(caller, bucket).await?;
    let told = check_preflight(&view, headers)?;
    let mut response = empty(StatusCode::OK);
    response.headers_mut().extend(told);
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "<CORSConfiguration><CORSRule><ID>r</ID><AllowedMethod>get</AllowedMethod>\
        <AllowedMethod>PUT</AllowedMethod><AllowedOrigin>https://*.example.com</AllowedOrigin>\
        <AllowedHeader>x-amz-meta-*</AllowedHeader><MaxAgeSeconds>60</MaxAgeSeconds>\
        <ExposeHeader>ETag</ExposeHeader><ExposeHeader>x\nset-cookie: y</ExposeHeader></CORSRule>\
        <CORSRule><AllowedMethod>GET</AllowedMethod><AllowedOrigin>*</AllowedOrigin></CORSRule>\
        </CORSConfiguration>";

    fn headers(list: &[(&'static str, &str)]) -> HeaderMap {
        list.iter().map(|(n, v)| (HeaderName::from_static(n), v.parse().unwrap())).collect()
    }

    fn told(method: Method, list: &[(&'static str, &str)], is_signed: bool) -> Option<Vec<(String, String)>> {
        let told = told_of_answer(&read(TEXT.as_bytes()).unwrap(), &method, &headers(list), is_signed)?;
        Some(told.iter().map(|(n, v)| (n.to_string(), v.to_str().unwrap().to_owned())).collect())
    }

    #[test]
    fn rules_are_read_and_those_that_say_nothing_are_refused() {
        let cors = read(TEXT.as_bytes()).unwrap();
        assert_eq!((cors.rules[0].methods, cors.rules[0].max_age_s), (CorsRule::GET | CorsRule::PUT, 60));
        assert_eq!(cors.rules[1].max_age_s, CorsRule::NO_AGE);
        let rule = "<CORSRule><AllowedMethod>GET</AllowedMethod><AllowedOrigin>*</AllowedOrigin></CORSRule>";
        let of = |rules: &str| read(format!("<{ROOT}>{rules}</{ROOT}>").as_bytes()).is_ok();
        assert!(of(rule) && of(&rule.repeat(100)) && !of(&rule.repeat(101)) && !of(""));
        for (from, to) in [("GET", "HEADS"), ("*", "a*b*"), ("*", ""), ("</AllowedO", "</AllowedO>")] {
            assert!(!of(&rule.replace(from, to)), "{from} {to}");
        }
        assert!(!of(&rule.replace("<AllowedMethod>", "<MaxAgeSeconds>x</MaxAgeSeconds><AllowedMethod>")));
    }

    #[test]
    fn browsers_are_told_what_the_first_rule_for_a_page_says() {
        let page = ("origin", "https://a.example.com");
        let got =
            told(Method::GET, &[page, ("access-control-request-headers", "X-Amz-Meta-A, other")], false);
        let want = [
            ("access-control-allow-origin", "https://a.example.com"),
            ("vary", "Origin"),
            ("access-control-allow-methods", "GET"),
            ("access-control-allow-headers", "X-Amz-Meta-A"),
            ("access-control-max-age", "60"),
        ];
        // The list of exposed headers has the end of a line in it.
        assert_eq!(got.unwrap(), want.map(|(n, v)| (n.to_owned(), v.to_owned())));
        assert_eq!(told(Method::DELETE, &[page], false), None);
        assert_eq!(told(Method::GET, &[], false), None);
        let open = |is_signed| told(Method::GET, &[("origin", "http://b")], is_signed).unwrap()[0].1.clone();
        assert_eq!((open(false), open(true)), ("*".to_owned(), "http://b".to_owned()));
        assert_eq!(told(Method::PUT, &[("origin", "http://b")], false), None);
    }

    #[test]
    fn stars_stand_for_any_text() {
        for (pattern, text, want) in [
            ("*", "x", true),
            ("a*", "abc", true),
            ("*c", "abc", true),
            ("a*c", "abc", true),
            ("ab*bc", "abc", true),
            ("a*c", "abd", false),
            ("abc", "abc", true),
            ("abc", "ABC", false),
        ] {
            assert_eq!(is_among([pattern.as_bytes()], text.as_bytes(), false), want, "{pattern} {text}");
        }
        assert!(is_among([&b"X-*"[..]], b"x-a", true));
    }
}

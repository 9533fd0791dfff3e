//! Requests for the series: who may ask, and what each path is answered.

use std::net::IpAddr;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::{
    ALLOW, AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER,
    WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
};
use hyper::{Method, Request, Response, StatusCode};
use manager::prometheus::{MetricsAt, Role};
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use super::Shared;
use super::kept::Gathered;
use crate::server::body::Body;
use crate::server::connection::Answers;
use crate::server::lock;

/// Bytes of a user's name; what is longer is nobody's.
const NAME_BYTES: usize = 256;
/// The exposition format, which Prometheus asks for by this type.
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";
const HTML: &str = "text/html;charset=utf-8";
const PLAIN: &str = "text/plain;charset=utf-8";

/// An answer before it has headers.
#[derive(Debug, PartialEq)]
struct Said {
    status: StatusCode,
    kind: &'static str,
    body: Bytes,
}

impl Said {
    fn new(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Self {
        Self { status, kind, body: body.into() }
    }

    fn refused(status: StatusCode, why: impl Into<String>) -> Self {
        Self::new(status, PLAIN, why.into() + "\n")
    }
}

pub fn digest(password: &[u8]) -> [u8; 32] {
    Sha256::digest(password).into()
}

impl Answers for Shared {
    const WHAT: &'static str = "the metrics";

    async fn answer(self: Arc<Self>, request: Request<Incoming>, peer: IpAddr) -> Response<Body> {
        let path = request.uri().path().to_owned();
        let is_known = matches!(*request.method(), Method::GET | Method::HEAD);
        let refused = self.let_in(request.headers(), peer).err();
        drop(request);
        let (said, more) = match refused {
            _ if !is_known => {
                let why = "there is nothing but GET and HEAD";
                (Said::refused(StatusCode::METHOD_NOT_ALLOWED, why), Some((ALLOW, "GET, HEAD".to_owned())))
            }
            Some((said, header)) => (said, Some(header)),
            None => (self.at_path(&path).await, None),
        };
        let mut response = Response::new(Body::Whole(Some(said.body)));
        *response.status_mut() = said.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(said.kind));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        if let Some((name, value)) = more.and_then(|(n, v)| Some((n, HeaderValue::from_str(&v).ok()?))) {
            headers.insert(name, value);
        }
        response
    }
}

impl Shared {
    /// Whether whoever asks may, where a password is asked for.
    fn let_in(&self, headers: &HeaderMap, peer: IpAddr) -> Result<(), (Said, (HeaderName, String))> {
        let Some(username) = &self.at.username else { return Ok(()) };
        let realm = (WWW_AUTHENTICATE, "Basic realm=\"Ceph Exporter\", charset=\"UTF-8\"".to_owned());
        let unknown = |why: &str| Err((Said::refused(StatusCode::UNAUTHORIZED, why), realm));
        let Some((name, password)) = signature(headers) else { return unknown("a password is needed") };
        let mut attempts = lock(&self.attempts);
        if let Some(wait) = attempts.begin(self.since.elapsed(), &name, peer) {
            let seconds = wait.as_secs().max(1);
            let why = format!("too many wrong passwords: the next may come in {seconds} s");
            let said = Said::refused(StatusCode::TOO_MANY_REQUESTS, why);
            return Err((said, (RETRY_AFTER, seconds.to_string())));
        }
        // Hashes are compared: how much of a password is right cannot be told by how long that takes.
        let is_right = *lock(&self.password) == Some(digest(password.as_bytes()));
        if !is_right || name != *username {
            return unknown("the name or the password is wrong");
        }
        attempts.succeeded(&name, peer);
        Ok(())
    }

    async fn at_path(&self, path: &str) -> Said {
        let is_metrics = match path {
            "/" => false,
            "/metrics" | "/metrics/" => true,
            _ => {
                return Said::refused(
                    StatusCode::NOT_FOUND,
                    "there is no such path: /metrics has the metrics",
                );
            }
        };
        match (&self.at.role, is_metrics) {
            (Role::Standby { status: Some(status), .. }, false) => {
                let status = StatusCode::from_u16(*status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
                Said::refused(status, "Keep on looking")
            }
            (Role::Standby { active, .. }, false) => page(active),
            (Role::Standby { .. }, true) => Said::new(StatusCode::OK, METRICS, ""),
            (Role::Active, false) => page("/"),
            (Role::Active, true) if !self.at.cache => match self.kept.gather(&self.manager).await {
                Ok(gathered) => Said::new(StatusCode::OK, METRICS, gathered.text),
                Err(why) => Said::refused(StatusCode::SERVICE_UNAVAILABLE, why),
            },
            (Role::Active, true) => cached(&self.at, self.kept.last(), Instant::now()),
        }
    }
}

/// What is told of what was gathered last.
fn cached(at: &MetricsAt, last: Option<Gathered>, now: Instant) -> Said {
    let Some(last) = last else {
        return Said::refused(StatusCode::SERVICE_UNAVAILABLE, "No cached data available yet");
    };
    let age = now.saturating_duration_since(last.begun);
    let is_stale = last.took > at.interval || age > at.interval * 2 + last.took;
    if !is_stale {
        return Said::new(StatusCode::OK, METRICS, last.text);
    }
    let (age, took) = (age.as_secs_f64(), last.took.as_secs_f64());
    let why = format!("Gathering data took {took:.2} seconds, {age:.2} seconds ago: metrics are stale");
    if at.tells_stale {
        tracing::info!("{why}, and told all the same");
        return Said::new(StatusCode::OK, METRICS, last.text);
    }
    Said::refused(StatusCode::SERVICE_UNAVAILABLE, why)
}

/// The page that leads to the metrics of the manager at this address.
fn page(of: &str) -> Said {
    let of = of.replace('&', "&amp;").replace('\'', "&#39;").replace('<', "&lt;");
    let text = format!(
        "<!DOCTYPE html>\n<html>\n    <head><title>Ceph Exporter</title></head>\n    <body>\n        <h1>Ceph Exporter</h1>\n        \
         <p><a href='{of}metrics'>Metrics</a></p>\n    </body>\n</html>"
    );
    Said::new(StatusCode::OK, HTML, text)
}

/// Name and password that came with a request.
fn signature(headers: &HeaderMap) -> Option<(String, String)> {
    let text = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, rest) = text.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = String::from_utf8(STANDARD.decode(rest.trim()).ok()?).ok()?;
    let (name, password) = decoded.split_once(':')?;
    (name.len() <= NAME_BYTES).then(|| (name.to_owned(), password.to_owned()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(tells_stale: bool) -> MetricsAt {
        MetricsAt {
            ip: None,
            port: 9283,
            tls: false,
            username: None,
            interval: Duration::from_secs(10),
            cache: true,
            tells_stale,
            role: Role::Active,
            url: String::new(),
        }
    }

    #[test]
    fn stale_data_is_told_only_where_that_is_wished() {
        let gathered = |took: u64| Gathered {
            text: Bytes::from_static(b"x 1\n"),
            begun: Instant::now(),
            took: Duration::from_secs(took),
        };
        let statuses = |took: u64, age: u64| {
            let last = gathered(took);
            let now = last.begun + Duration::from_secs(age);
            [false, true].map(|tells| cached(&at(tells), Some(last.clone()), now).status.as_u16())
        };
        let nothing = cached(&at(true), None, Instant::now());
        assert_eq!(nothing.status, 503, "nothing was gathered yet");
        assert_eq!(statuses(1, 1), [200, 200]);
        assert_eq!(statuses(11, 11), [503, 200], "it took longer than an interval");
        assert_eq!(statuses(1, 20), [200, 200]);
        assert_eq!(statuses(1, 22), [503, 200], "it is older than two");
    }

    #[test]
    fn a_signature_is_a_name_and_a_password() {
        let of = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, HeaderValue::from_str(text).expect("a header"));
            signature(&headers)
        };
        let basic = |text: &str| format!("Basic {}", STANDARD.encode(text));
        assert_eq!(of(&basic("ann:a:b")), Some(("ann".to_owned(), "a:b".to_owned())));
        assert_eq!(of(&basic("ann:").replace("Basic", "bAsIc")), Some(("ann".to_owned(), String::new())));
        for bad in ["Bearer x", "Basic", "Basic %%", "Basic YQ==", &basic(&format!("{}:x", "n".repeat(257)))]
        {
            assert_eq!(of(bad), None, "{bad}");
        }
        assert_eq!(signature(&HeaderMap::new()), None);
    }

    #[test]
    fn the_page_leads_to_the_manager_in_charge_and_nowhere_else() {
        let text = |of: &str| String::from_utf8_lossy(&page(of).body).into_owned();
        assert!(text("/").contains("<a href='/metrics'>"));
        assert!(text("http://h:9283/").contains("<a href='http://h:9283/metrics'>"));
        assert!(!text("'><script>").contains("<script>"));
    }
}

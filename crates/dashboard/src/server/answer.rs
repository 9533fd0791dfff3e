//! Requests: which path, whether it may be asked, and what it is answered.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use admin::Reply;
use bytes::{Bytes, BytesMut};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue, ORIGIN,
    REFERRER_POLICY, RETRY_AFTER, SET_COOKIE, STRICT_TRANSPORT_SECURITY, X_CONTENT_TYPE_OPTIONS,
    X_FRAME_OPTIONS,
};
use hyper::{Method, Request, Response, StatusCode};
use serde_json::{Value, json};

use super::auth::{self, SignedIn, Who};
use super::body::Body;
use super::connection::Answers;
use super::{Cells, Shared, live, lock};
use crate::docs::{figures, health, log, osds, pools, services};
use crate::page;

/// Bytes of a request's body, and how long it may take.
const BODY_BYTES: usize = 4 << 10;
const BODY_TIME: Duration = Duration::from_secs(10);
/// Nothing is loaded from elsewhere, nothing stands in the document itself, and nobody frames it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";
const SEC_FETCH_SITE: &str = "sec-fetch-site";

/// What is said instead of an answer.
struct Refused {
    status: StatusCode,
    detail: String,
}

impl Refused {
    fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self { status, detail: detail.into() }
    }
}

impl From<Reply> for Refused {
    fn from(reply: Reply) -> Self {
        let detail = if reply.outs.is_empty() { format!("error {}", reply.code) } else { reply.outs };
        Self::new(StatusCode::SERVICE_UNAVAILABLE, detail)
    }
}

impl Answers for Shared {
    const WHAT: &'static str = "the dashboard";

    async fn answer(self: Arc<Self>, request: Request<Incoming>, peer: IpAddr) -> Response<Body> {
        answer(&self, request, peer).await
    }
}

/// Answers a request. Whatever it is, the answer bears the headers that keep browsers in bounds.
async fn answer(shared: &Arc<Shared>, request: Request<Incoming>, peer: IpAddr) -> Response<Body> {
    let mut response = match routed(shared, request, peer).await {
        Ok(response) => response,
        Err(Refused { status, detail }) => json_response(status, &json!({ "detail": detail })),
    };
    let headers = response.headers_mut();
    let mut set = |name: HeaderName, value: &'static str| {
        headers.insert(name, HeaderValue::from_static(value));
    };
    set(CONTENT_SECURITY_POLICY, POLICY);
    set(X_CONTENT_TYPE_OPTIONS, "nosniff");
    set(X_FRAME_OPTIONS, "DENY");
    set(REFERRER_POLICY, "no-referrer");
    set(CACHE_CONTROL, "no-store");
    set(HeaderName::from_static("cross-origin-opener-policy"), "same-origin");
    set(HeaderName::from_static("cross-origin-resource-policy"), "same-origin");
    if shared.at.tls {
        set(STRICT_TRANSPORT_SECURITY, "max-age=31536000");
    }
    response
}

async fn routed(
    shared: &Arc<Shared>,
    request: Request<Incoming>,
    peer: IpAddr,
) -> Result<Response<Body>, Refused> {
    let path = request.uri().path().to_owned();
    is_meant_for_us(shared, request.headers())?;
    if request.method() == Method::POST {
        return posted(shared, &path, request, peer).await;
    }
    if request.method() != Method::GET {
        return Err(Refused::new(StatusCode::METHOD_NOT_ALLOWED, "There is nothing but GET and POST"));
    }
    if let Some(file) = page::file(&path) {
        return Ok(whole(StatusCode::OK, file.kind, Bytes::from_static(file.bytes)));
    }
    if !path.starts_with("/api/") {
        return Err(no_path());
    }
    let who = signed_in(shared, request.headers())?;
    let (scope, document) = document_at(&path).ok_or_else(no_path)?;
    if !may_read(&who, scope) {
        let why = "You don't have permissions to access that resource";
        return Err(Refused::new(StatusCode::FORBIDDEN, why));
    }
    let query = Query::of(request.uri().query().unwrap_or_default());
    let value = match document {
        Document::Live => return Ok(events(shared, &who)),
        Document::Cells => {
            return cells(shared).map(|json| whole(StatusCode::OK, "application/json", json));
        }
        Document::Tasks => {
            let tasks = shared.site.manager.with(|m, _| m.ended_tasks()).ok_or_else(ended)?;
            figures::ended(&tasks, |scope| may_read(&who, scope))
        }
        Document::Tree => tree(shared).await?,
        Document::Services => service_list(shared, &Maps::ask(shared).await?).await?,
        Document::Pools => pool_list(shared, query.get("attrs"), query.is_on("stats")).await?,
        Document::Osds => osd_list(shared).await?,
        Document::Images => image_list(shared, query.get("pool_name")).await?,
        Document::Log => log_lines(shared).await?,
        Document::Health { minimal } => health_of(shared, &who, minimal).await?,
    };
    Ok(json_response(StatusCode::OK, &value))
}

fn no_path() -> Refused {
    Refused::new(StatusCode::NOT_FOUND, "There is no such path")
}

fn ended() -> Refused {
    Refused::new(StatusCode::SERVICE_UNAVAILABLE, "The manager has ended")
}

/// On loopback nothing but this host's own names is answered: no name of another site leads here.
fn is_meant_for_us(shared: &Shared, headers: &HeaderMap) -> Result<(), Refused> {
    if !shared.at.addr.ip().is_loopback() {
        return Ok(());
    }
    let host = headers.get(HOST).and_then(|h| h.to_str().ok()).unwrap_or_default();
    match is_loopback(host) {
        true => Ok(()),
        false => Err(Refused::new(StatusCode::MISDIRECTED_REQUEST, "This host is not served here")),
    }
}

fn is_loopback(host: &str) -> bool {
    let bare = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    bare.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// Requests that another site has made a browser send are refused: by their origin, and by what the browser
/// says of them.
fn is_of_our_page(shared: &Shared, headers: &HeaderMap) -> Result<(), Refused> {
    let text = |name: &str| headers.get(name).and_then(|v| v.to_str().ok());
    let foreign = || Refused::new(StatusCode::FORBIDDEN, "Requests of other sites are refused");
    if text(SEC_FETCH_SITE).is_some_and(|site| site != "same-origin" && site != "none") {
        return Err(foreign());
    }
    let Some(origin) = text(ORIGIN.as_str()) else { return Ok(()) };
    let scheme = if shared.at.tls { "https" } else { "http" };
    let ours = format!("{scheme}://{}", text(HOST.as_str()).unwrap_or_default());
    if origin.eq_ignore_ascii_case(&ours) { Ok(()) } else { Err(foreign()) }
}

fn signed_in(shared: &Shared, headers: &HeaderMap) -> Result<Who, Refused> {
    let none = || Refused::new(StatusCode::UNAUTHORIZED, "You are not authorized to access that resource");
    let (token, by_itself) = token_of(shared, headers).ok_or_else(none)?;
    if by_itself {
        is_of_our_page(shared, headers)?;
    }
    auth::who(shared, &token).ok_or_else(none)
}

fn token_of(shared: &Shared, headers: &HeaderMap) -> Option<(String, bool)> {
    auth::token(headers, shared.at.addr.port())
}

async fn posted(
    shared: &Arc<Shared>,
    path: &str,
    request: Request<Incoming>,
    peer: IpAddr,
) -> Result<Response<Body>, Refused> {
    is_of_our_page(shared, request.headers())?;
    // No form of another site can send this kind without being asked for it first.
    let kind = request.headers().get(CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    if kind.split(';').next().is_none_or(|k| !k.trim().eq_ignore_ascii_case("application/json")) {
        return Err(Refused::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "What is sent has to be application/json",
        ));
    }
    let (parts, body) = request.into_parts();
    let body = read(body).await?;
    match posted_at(path).ok_or_else(no_path)? {
        Posted::SignIn => sign_in(shared, peer, &body).await,
        Posted::Check => Ok(check(shared, &parts.headers, &body)),
        Posted::SignOut => Ok(sign_out(shared, &parts.headers)),
    }
}

/// The JSON of a request, which may be empty.
async fn read(body: Incoming) -> Result<Value, Refused> {
    let late = |_| Refused::new(StatusCode::REQUEST_TIMEOUT, "What is sent comes too slowly");
    let all = tokio::time::timeout(BODY_TIME, collect(body)).await.map_err(late)??;
    if all.is_empty() {
        return Ok(Value::Null);
    }
    serde_json::from_slice(&all).map_err(|_| Refused::new(StatusCode::BAD_REQUEST, "What is sent is no JSON"))
}

async fn collect(mut body: Incoming) -> Result<Bytes, Refused> {
    let mut all = BytesMut::new();
    loop {
        let frame = std::future::poll_fn(|cx| std::pin::Pin::new(&mut body).poll_frame(cx)).await;
        let Some(frame) = frame else { return Ok(all.freeze()) };
        let frame = frame.map_err(|e| Refused::new(StatusCode::BAD_REQUEST, e.to_string()))?;
        let Ok(data) = frame.into_data() else { continue };
        if all.len() + data.len() > BODY_BYTES {
            return Err(Refused::new(StatusCode::PAYLOAD_TOO_LARGE, "What is sent is too much"));
        }
        all.extend_from_slice(&data);
    }
}

async fn sign_in(shared: &Arc<Shared>, peer: IpAddr, body: &Value) -> Result<Response<Body>, Refused> {
    let refused = |status| {
        json_response(
            status,
            &json!({ "detail": "Invalid credentials", "code": "invalid_credentials", "component": "auth" }),
        )
    };
    Ok(match auth::sign_in(shared, peer, body).await {
        SignedIn::Yes { token, answer } => {
            with_cookie(shared, json_response(StatusCode::CREATED, &answer), &token)
        }
        SignedIn::No => refused(StatusCode::BAD_REQUEST),
        SignedIn::Wait(wait) => {
            let detail = json!({ "detail": "There were too many failed attempts." });
            let mut response = json_response(StatusCode::TOO_MANY_REQUESTS, &detail);
            let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
            response
        }
    })
}

fn with_cookie(shared: &Shared, mut response: Response<Body>, token: &str) -> Response<Body> {
    if let Ok(value) = HeaderValue::from_str(&auth::cookie(shared, token)) {
        response.headers_mut().insert(SET_COOKIE, value);
    }
    response
}

/// Whether a token is good: the one in the body, as scripts send it, or that of the request itself.
fn check(shared: &Shared, headers: &HeaderMap, body: &Value) -> Response<Body> {
    let given = body.get("token").and_then(Value::as_str).map(ToOwned::to_owned);
    let token = given.or_else(|| token_of(shared, headers).map(|(token, _)| token));
    let value = match token.and_then(|token| auth::who(shared, &token)) {
        Some(who) => auth::session_of(&who),
        None => json!({ "login_url": "#/login" }),
    };
    json_response(StatusCode::OK, &value)
}

fn sign_out(shared: &Shared, headers: &HeaderMap) -> Response<Body> {
    if let Some((token, _)) = token_of(shared, headers) {
        lock(&shared.sessions).end(&token);
    }
    with_cookie(shared, json_response(StatusCode::OK, &json!({ "redirect_url": "#/login" })), "")
}

fn events(shared: &Arc<Shared>, who: &Who) -> Response<Body> {
    let (of, token) = (Arc::clone(shared), who.token.clone());
    let rx = live::stream(&shared.live, move || auth::still(&of, &token));
    let mut response = Response::new(Body::Events(rx));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    response
}

fn json_response(status: StatusCode, value: &Value) -> Response<Body> {
    whole(status, "application/json", value.to_string().into())
}

fn whole(status: StatusCode, kind: &'static str, bytes: Bytes) -> Response<Body> {
    let mut response = Response::new(Body::Whole(Some(bytes)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// The parameters of an address.
struct Query(Vec<(String, String)>);

impl Query {
    fn of(text: &str) -> Self {
        let pair = |p: &str| {
            let (name, value) = p.split_once('=').unwrap_or((p, ""));
            (decoded(name), decoded(value))
        };
        Self(text.split('&').filter(|p| !p.is_empty()).map(pair).collect())
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// Source: str_to_bool in src/pybind/mgr/dashboard/tools.py.
    fn is_on(&self, name: &str) -> bool {
        self.get(name)
            .is_some_and(|v| ["1", "true", "yes", "y", "t", "on"].contains(&v.to_ascii_lowercase().as_str()))
    }
}

/// `%41+b` is `A b`; what is no escape stays as it is.
fn decoded(text: &str) -> String {
    let mut out = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        let escape = behind.get(..2).filter(|_| *first == b'%').and_then(|hex| std::str::from_utf8(hex).ok());
        match escape.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                out.push(byte);
                rest = behind.get(2..).unwrap_or_default();
            }
            None => {
                out.push(if *first == b'+' { b' ' } else { *first });
                rest = behind;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Document {
    Health {
        minimal: bool,
    },
    Pools,
    Osds,
    Images,
    Log,
    Tree,
    /// Of PGs.
    Cells,
    Services,
    Tasks,
    Live,
}

/// Paths, what a user must be allowed to read for each (`""`: anything; parts have scopes of their own), and
/// what is there.
const DOCUMENTS: [(&str, &str, Document); 11] = [
    ("/api/health/minimal", "", Document::Health { minimal: true }),
    ("/api/health/full", "", Document::Health { minimal: false }),
    ("/api/pool", "pool", Document::Pools),
    ("/api/osd", "osd", Document::Osds),
    ("/api/block/image", "rbd-image", Document::Images),
    ("/api/logs/all", "log", Document::Log),
    ("/api/view/osds", "osd", Document::Tree),
    ("/api/view/pgs", "osd", Document::Cells),
    ("/api/view/services", "hosts", Document::Services),
    ("/api/view/tasks", "", Document::Tasks),
    ("/api/live", "", Document::Live),
];

fn document_at(path: &str) -> Option<(&'static str, Document)> {
    DOCUMENTS.iter().find(|(at, ..)| *at == path).map(|(_, scope, document)| (*scope, *document))
}

/// What is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Posted {
    SignIn,
    Check,
    SignOut,
}

const POSTED: [(&str, Posted); 3] = [
    ("/api/auth", Posted::SignIn),
    ("/api/auth/check", Posted::Check),
    ("/api/auth/logout", Posted::SignOut),
];

fn posted_at(path: &str) -> Option<Posted> {
    POSTED.iter().find(|(at, _)| *at == path).map(|(_, posted)| *posted)
}

/// Whoever has to change the password first reads nothing.
fn may_read(who: &Who, scope: &str) -> bool {
    if scope.is_empty() { who.may_read_at_all() } else { who.may_read(scope) }
}

/// The cells of all PGs, made anew when there is a new map or something new of PGs.
fn cells(shared: &Shared) -> Result<Bytes, Refused> {
    let known = lock(&shared.cells).clone();
    let of = shared.site.manager.with(|m, _| m.pg_version()).ok_or_else(ended)?;
    if let Some(known) = known.filter(|known| known.of == of) {
        return Ok(known.json);
    }
    let (of, value) = shared.site.manager.with(|m, _| (m.pg_version(), m.pg_cells())).ok_or_else(ended)?;
    let json = Bytes::from(value.to_string());
    *lock(&shared.cells) = Some(Cells { of, json: json.clone() });
    Ok(json)
}

async fn tree(shared: &Arc<Shared>) -> Result<Value, Refused> {
    let df = json!({ "prefix": "osd df", "output_method": "tree", "format": "json" });
    let (df, perf, dump) =
        tokio::try_join!(shared.mgr(df), shared.mgr(command("osd perf")), shared.mon(command("osd dump")),)?;
    Ok(osds::tree(&df, &perf, &dump))
}

async fn log_lines(shared: &Arc<Shared>) -> Result<Value, Refused> {
    let of = |channel: &str| {
        json!({
            "prefix": "log last", "num": log::LINES, "level": "debug", "channel": channel, "format": "json",
        })
    };
    let (cluster, audit) = tokio::try_join!(shared.mon(of("cluster")), shared.mon(of("audit")))?;
    Ok(log::logs(&cluster, &audit))
}

/// What the monitors say of daemons.
struct Maps {
    quorum: Value,
    mgr_dump: Value,
    osd_dump: Value,
    fs_dump: Value,
    osd_metadata: Value,
    /// What has registered with the manager.
    registered: Value,
}

impl Maps {
    async fn ask(shared: &Arc<Shared>) -> Result<Self, Refused> {
        let mon = |prefix: &'static str| shared.mon(command(prefix));
        let (quorum, mgr_dump, osd_dump, fs_dump, osd_metadata) = tokio::try_join!(
            mon("quorum_status"),
            mon("mgr dump"),
            mon("osd dump"),
            mon("fs dump"),
            mon("osd metadata"),
        )?;
        let registered = shared.site.manager.with(|m, _| m.services()).unwrap_or_default();
        Ok(Self { quorum, mgr_dump, osd_dump, fs_dump, osd_metadata, registered })
    }
}

fn command(prefix: &str) -> Value {
    json!({ "prefix": prefix, "format": "json" })
}

fn rates_of_pool(shared: &Shared, id: i64) -> manager::Figures {
    shared.site.manager.with(|m, _| m.figures_of_pool(id)).unwrap_or_default()
}

async fn pool_list(shared: &Arc<Shared>, attrs: Option<&str>, with_stats: bool) -> Result<Value, Refused> {
    let (dump, crush) =
        tokio::try_join!(shared.mon(command("osd dump")), shared.mon(command("osd crush dump")))?;
    if !with_stats {
        return Ok(pools::pools(&dump, &crush, attrs, None));
    }
    let df = shared.mon(json!({ "prefix": "df", "detail": "detail", "format": "json" })).await?;
    let looked = shared.site.manager.with(|m, now| (m.pg_states_by_pool(), live::seconds(now)));
    let (states, at) = looked.unwrap_or_default();
    let rates = |id: i64| rates_of_pool(shared, id);
    let stats = pools::Stats { df: &df, states: &states, at, rates: &rates };
    Ok(pools::pools(&dump, &crush, attrs, Some(&stats)))
}

async fn osd_list(shared: &Arc<Shared>) -> Result<Value, Refused> {
    let stats = json!({ "prefix": "pg dump", "dumpcontents": ["osds"], "format": "json" });
    let (dump, stats, tree) = tokio::try_join!(
        shared.mon(command("osd dump")),
        shared.mgr(stats),
        shared.mon(command("osd tree")),
    )?;
    let at = shared.site.manager.with(|_, now| live::seconds(now)).unwrap_or_default();
    let rates = |osd: i32| shared.site.manager.with(|m, _| m.figures_of_osd(osd)).unwrap_or_default();
    Ok(osds::osds(&dump, &stats, &tree, at, rates))
}

async fn image_list(shared: &Arc<Shared>, pool: Option<&str>) -> Result<Value, Refused> {
    let dump = shared.mon(command("osd dump")).await?;
    let all = dump.get("pools").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let is_for_images = |p: &&Value| match pool {
        Some(name) => p.get("pool_name").and_then(Value::as_str) == Some(name),
        None => p.pointer("/application_metadata/rbd").is_some(),
    };
    let name = |p: &Value| p.get("pool_name").and_then(Value::as_str).map(ToOwned::to_owned);
    let pools: Vec<String> = all.iter().filter(is_for_images).filter_map(name).collect();
    if let Some(name) = pool.filter(|_| pools.is_empty()) {
        return Err(Refused::new(StatusCode::NOT_FOUND, format!("There is no pool '{name}'")));
    }
    let lists = shared.images.lists(&pools).await;
    lists.map_err(|why| Refused::new(StatusCode::SERVICE_UNAVAILABLE, why))
}

async fn service_list(shared: &Arc<Shared>, maps: &Maps) -> Result<Value, Refused> {
    let mon = |prefix: &'static str| shared.mon(command(prefix));
    let (mon_metadata, mgr_metadata, mds_metadata) =
        tokio::try_join!(mon("mon metadata"), mon("mgr metadata"), mon("mds metadata"))?;
    let slow = shared.site.manager.with(|m, _| m.slow_daemons()).unwrap_or_default();
    Ok(services::services(&services::Facts {
        quorum: &maps.quorum,
        mgr_dump: &maps.mgr_dump,
        osd_dump: &maps.osd_dump,
        fs_dump: &maps.fs_dump,
        services: &maps.registered,
        mon_metadata: &mon_metadata,
        mgr_metadata: &mgr_metadata,
        osd_metadata: &maps.osd_metadata,
        mds_metadata: &mds_metadata,
        slow: &slow,
    }))
}

async fn health_of(shared: &Arc<Shared>, who: &Who, minimal: bool) -> Result<Value, Refused> {
    let mon = |prefix: &'static str| shared.mon(command(prefix));
    let detail = |prefix: &str| json!({ "prefix": prefix, "detail": "detail", "format": "json" });
    let of_pgs = |what: &str| json!({ "prefix": "pg dump", "dumpcontents": [what], "format": "json" });
    let maps = Maps::ask(shared).await?;
    let (health_detail, df, pool_stats, pg_sum, osd_stats) = tokio::try_join!(
        shared.mon(detail("health")),
        shared.mon(detail("df")),
        shared.mgr(command("osd pool stats")),
        shared.mgr(of_pgs("sum")),
        shared.mgr(of_pgs("osds")),
    )?;
    let listed = service_list(shared, &maps).await?;
    let (osd_tree, crush, all_pools) = match minimal {
        true => (Value::Null, Value::Null, Value::Null),
        false => {
            let (tree, crush) = tokio::try_join!(mon("osd tree"), mon("osd crush dump"))?;
            (tree, crush, pool_list(shared, None, true).await?)
        }
    };
    let pg_states = shared.site.manager.with(|m, _| m.pg_states_by_pool()).unwrap_or_default();
    let facts = health::Facts {
        health: &health_detail,
        quorum: &maps.quorum,
        osd_dump: &maps.osd_dump,
        osd_tree: &osd_tree,
        crush: &crush,
        osd_metadata: &maps.osd_metadata,
        df: &df,
        pool_stats: &pool_stats,
        pg_sum: &pg_sum,
        mgr_dump: &maps.mgr_dump,
        fs_dump: &maps.fs_dump,
        services: &maps.registered,
        pg_states: &pg_states,
        pgs_by_osd: &osds::pgs_by_osd(&osd_stats),
        pools: all_pools,
        hosts: services::hosts(&listed),
    };
    Ok(health::health(&facts, minimal, |scope| who.may_read(scope)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_hosts_own_names_lead_to_loopback() {
        for host in
            ["localhost", "LOCALHOST:8080", "127.0.0.1", "127.0.0.1:8080", "[::1]:8080", "127.9.9.9:1"]
        {
            assert!(is_loopback(host), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "evil.example:8080",
            "localhost.evil.example",
            "10.0.0.1",
            "[::2]:8080",
            "127.0.0.1.evil.example",
        ] {
            assert!(!is_loopback(host), "{host}");
        }
    }

    #[test]
    fn parameters_are_decoded() {
        let query = Query::of("pool_name=a%2Fb+c&stats=True&x&odd=%zz%4");
        assert_eq!(query.get("pool_name"), Some("a/b c"));
        assert!(query.is_on("stats") && !query.is_on("x") && !query.is_on("y"));
        assert_eq!(query.get("odd"), Some("%zz%4"));
    }

    #[test]
    fn each_path_has_a_scope_and_others_have_none() {
        assert_eq!(document_at("/api/osd"), Some(("osd", Document::Osds)));
        assert_eq!(document_at("/api/health"), None);
        assert_eq!(document_at("/api/live/"), None);
        assert_eq!(posted_at("/api/auth/"), None);
    }

    #[test]
    fn whoever_has_to_change_the_password_first_reads_nothing() {
        let of_osds = |update_required| Who {
            username: "ann".to_owned(),
            permissions: [("osd".to_owned(), ["read".to_owned()].into())].into(),
            update_required,
            token: String::new(),
        };
        let paths = |who: &Who| -> Vec<&str> {
            DOCUMENTS.iter().filter(|(_, scope, _)| may_read(who, scope)).map(|(path, ..)| *path).collect()
        };
        assert_eq!(paths(&of_osds(true)), [""; 0]);
        let for_all = ["/api/health/minimal", "/api/health/full", "/api/view/tasks", "/api/live"];
        let mut may: Vec<&str> = paths(&of_osds(false));
        may.retain(|path| !for_all.contains(path));
        assert_eq!(may, ["/api/osd", "/api/view/osds", "/api/view/pgs"]);
    }

    /// `get /api/osd` and the like: all that is answered is described, and all that is described is answered.
    #[test]
    fn the_description_has_the_paths_that_there_are() {
        let file = page::file("/openapi.json").expect("the description");
        let api: Value = serde_json::from_slice(file.bytes).expect("JSON");
        let mut described = Vec::new();
        for (path, of) in api["paths"].as_object().expect("paths") {
            for (method, of) in of.as_object().expect("methods") {
                described.push(format!("{method} {path}"));
                let has = |status: &str| of["responses"].get(status).is_some();
                assert_eq!(has("401") && has("403"), method == "get", "{method} {path}: refusals");
                let of_all = document_at(path).is_none_or(|(scope, _)| scope.is_empty());
                let summary = of["summary"].as_str().expect("a summary");
                assert_eq!(of_all, !summary.contains("Needs `"), "{path}: {summary}");
                for (_, scope, _) in DOCUMENTS.iter().filter(|(at, scope, _)| at == path && !scope.is_empty())
                {
                    assert!(summary.contains(&format!("Needs `{scope}`")), "{path}: {summary}");
                }
            }
        }
        let gets = DOCUMENTS.iter().map(|(path, ..)| format!("get {path}"));
        let mut answered: Vec<String> =
            gets.chain(POSTED.iter().map(|(path, _)| format!("post {path}"))).collect();
        described.sort_unstable();
        answered.sort_unstable();
        assert_eq!(described, answered);
    }
}

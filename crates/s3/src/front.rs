//! A request from the connection to the operation: who sent it is found out, its body is held against what
//! was signed, and what S3's library would do without bounds has them.
//!
//! 1. The library sees no signature: all of them are checked here, with bodies that go by in windows.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::HeaderValue;
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use rgw::policy::Environment;
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s::{Body, S3Error, S3ErrorCode, S3Result};

use crate::answered::{mend_of, mended};
use crate::body::{Checked, Checks};
use crate::config::{Asked, Config, answer_for, preflight};
use crate::environment::{self, Way};
use crate::form::{self, Form};
use crate::logging::{Seed, logged};
use crate::ops::copies::CopyFrom;
use crate::ops::reader::Room;
use crate::ops::{Made, RequestId};
use crate::shares::{Share, Shares};
use crate::sign::{self, Payload, Signature, header};
use crate::state::{Gateway, now};
use crate::users::{Caller, Known};
use crate::website::{self, Visit};
use crate::{admin, asked, attrs, config, encryption, errors};

/// A body that is no object's.
const MAX_DOCUMENT: u64 = 1 << 20;
/// What windows are counted in.
const UNIT: u64 = 1 << 20;
/// Units of a request with a body as long as one likes: two pieces that are held, and the core's own.
const WRITER_UNITS: u64 = 16;
/// Units of any other request.
const READER_UNITS: usize = 2;

/// Answers requests.
pub struct Front {
    gateway: Gateway,
    service: S3Service,
    windows: Arc<Shares>,
}

/// A request whose sender is known.
enum Admitted {
    /// What S3's library takes.
    Library(Request<Body>),
    Config(Config, Asked),
    /// A browser asks what a page may do with a bucket.
    Preflight(Caller, String, HeaderMap),
    /// Who sends a form is known when its fields came.
    Form(Box<Form>),
    /// A browser asks for a page of a bucket's site.
    Page(Box<Visit>),
    /// An administrator asks.
    Admin(Box<admin::Call>),
}

/// A page of another site asks.
struct Page {
    bucket: String,
    method: Method,
    headers: HeaderMap,
}

impl Front {
    /// `window_bytes` bounds what all requests hold of bodies.
    pub fn new(gateway: Gateway, window_bytes: u64) -> Self {
        let units = usize::try_from(window_bytes / UNIT).unwrap_or(usize::MAX);
        let service = S3ServiceBuilder::new(gateway.clone()).build();
        Self { gateway, service, windows: Shares::new(units.max(READER_UNITS)) }
    }

    /// Whether no request is under way.
    pub fn is_idle(&self) -> bool {
        self.windows.is_empty()
    }

    /// Answers one request of a client at an address; the share is to be held until the answer went out.
    pub async fn answer(
        &self,
        mut request: Request<Incoming>,
        peer: IpAddr,
    ) -> (Response<Body>, Option<Share>) {
        let id = format!("tx{:021x}-{}", self.gateway.number(), self.gateway.site().instance);
        if let Some(uri) = asked::plain_names(request.uri()) {
            *request.uri_mut() = uri;
        }
        let mends = mend_of(request.method(), request.uri());
        let is_admin = admin::is_for(request.uri());
        let mut page = page(&request).filter(|_| !is_admin);
        let seed = Seed::of(&request, &id, peer);
        request.extensions_mut().insert(seed.removals());
        request.extensions_mut().insert(RequestId(id.clone()));
        let made = Made::default();
        request.extensions_mut().insert(made.clone());
        let (result, share) = match self.admit(request, peer).await {
            Ok((admitted, caller, share)) => {
                if let (Admitted::Page(visit), Some(page)) = (&admitted, &mut page) {
                    page.bucket.clone_from(&visit.bucket);
                }
                let is_beside = matches!(admitted, Admitted::Page(_) | Admitted::Admin(_));
                let (answered, told) = match page.take().filter(|page| !page.bucket.is_empty()) {
                    None => (self.carry_out(admitted).await, None),
                    Some(page) => {
                        let Page { bucket, method, headers } = &page;
                        // As it was when the request came in.
                        let told = answer_for(&self.gateway, &caller, bucket, method, headers).await;
                        (self.carry_out(admitted).await, told)
                    }
                };
                let answered = match (mends, answered) {
                    (Some(mend), Ok(answered)) => mended(answered, mend).await,
                    (_, answered) => answered,
                };
                // A bucket's log has S3's requests: sites' pages and administrators' are beside S3.
                let answered = match is_beside {
                    true => answered,
                    false => logged(&self.gateway, &caller, &seed, answered).await,
                };
                let answered = answered.or_else(|e| failed(e, &id, is_admin)).map(|mut answered| {
                    answered.headers_mut().extend(told.unwrap_or_default());
                    answered
                });
                (answered, Some(share))
            }
            Err(e) => (failed(e, &id, is_admin), None),
        };
        let mut response = result.unwrap_or_else(|_| {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
            response
        });
        // The library says so of answers with a body alone.
        let is_part = response.headers().contains_key("content-range");
        if is_part && response.status() == StatusCode::OK {
            *response.status_mut() = StatusCode::PARTIAL_CONTENT;
        }
        if let Some(headers) = made.0.get() {
            response.headers_mut().extend(headers.clone());
        }
        if let Ok(id) = id.parse() {
            response.headers_mut().insert("x-amz-request-id", id);
        }
        (response, share)
    }

    async fn carry_out(&self, admitted: Admitted) -> S3Result<Response<Body>> {
        match admitted {
            Admitted::Library(request) => Box::pin(self.service.call(request)).await,
            Admitted::Config(config, asked) => {
                let gateway = self.gateway.of_caller(&asked.caller);
                Box::pin(config::answer(&gateway, config, asked)).await
            }
            Admitted::Preflight(caller, bucket, headers) => {
                preflight(&self.gateway.of_caller(&caller), &caller, &bucket, &headers).await
            }
            Admitted::Form(form) => Box::pin(form::answer(&self.gateway, *form)).await,
            Admitted::Page(visit) => {
                let gateway = self.gateway.of_caller(visit.caller());
                Ok(Box::pin(website::answer(&gateway, &self.service, &visit)).await)
            }
            Admitted::Admin(call) => Box::pin(admin::answer(&self.gateway, *call)).await,
        }
    }

    async fn admit(&self, request: Request<Incoming>, peer: IpAddr) -> S3Result<(Admitted, Caller, Share)> {
        let (mut parts, body) = request.into_parts();
        asked::check_headers(&parts)?;
        if let Some(admitted) = self.admit_visit(&mut parts, peer) {
            return admitted;
        }
        if admin::is_for(&parts.uri) {
            return self.admit_admin(parts, body, peer).await;
        }
        asked::check_query(&parts)?;
        refuse(&parts)?;
        if parts.method == Method::OPTIONS {
            let share = self.windows.take(peer, READER_UNITS).ok_or(S3ErrorCode::SlowDown)?;
            let tenant = match asked::take_tenant(&mut parts)? {
                None => self.tenant_of_query(&parts, peer).await,
                named => named,
            };
            let caller = Caller::default().at(peer).in_tenant(tenant);
            let (bucket, _) = asked::path(&parts)?;
            return Ok((Admitted::Preflight(caller.clone(), bucket, parts.headers), caller, share));
        }
        if let Some(boundary) = form(&parts) {
            return self.admit_form(parts, body, boundary?, peer);
        }
        let claim = sign::claim(&parts)?;
        let (user, key) = self.identify(&parts, claim.as_ref(), peer).await?;
        let info = user.as_ref().map(|user| &*user.info);
        let settings = &self.gateway.settings().encryption;
        let env = environment::of(&parts, info, Way::new(&parts, peer, settings), now().0.sec)?;
        let payload = match &claim {
            Some(claim) => claim.payload(),
            None => header(&parts, "x-amz-content-sha256").map_or(Ok(Payload::Unsigned), Payload::of)?,
        };
        let is_data = asked::is_data(&parts)?;
        let length = asked::length(&parts, &payload, is_data)?;
        let units = if is_data { units(length) } else { READER_UNITS };
        let share = self.windows.take(peer, units).ok_or(S3ErrorCode::SlowDown)?;
        let checks = asked::checks(&parts, payload, key, length)?;
        let (pays, owners) = (asked::pays(&parts), asked::expected_owners(&parts)?);
        let caller = Caller::new(user).asking(env, asked::take_tenant(&mut parts)?, pays).expecting(owners);
        parts.extensions.insert(Arc::new(encryption::Asked::take(&mut parts.headers, settings)));
        parts.extensions.insert(checks.summed.clone());
        let body = Checked::new(body, checks);
        if is_data {
            let request = library(parts, Body::http_body_unsync(body), length, &caller)?;
            return Ok((request, caller, share));
        }
        let room = Room { windows: Arc::clone(&self.windows), peer };
        parts.extensions.insert(room);
        let document = asked::document(&parts.headers, body.collect(MAX_DOCUMENT).await?)?;
        let (bucket, key) = asked::path(&parts)?;
        let version = asked::version(&parts)?;
        let names = asked::query_names(&parts);
        let config = match bucket.is_empty() {
            true => config::find_of_service(&parts.method, &names)?,
            false => config::find(&parts.method, &names, key.is_some()),
        };
        let admitted = match config {
            Some(config) => {
                let query = parts.uri.query().unwrap_or_default().to_owned();
                let (caller, headers) = (caller.clone(), parts.headers);
                let asked = Asked { caller, bucket, key, version, query, headers, document };
                Admitted::Config(config, asked)
            }
            None => library(parts, document.into(), length, &caller)?,
        };
        Ok((admitted, caller, share))
    }

    async fn admit_admin(
        &self,
        parts: Parts,
        body: Incoming,
        peer: IpAddr,
    ) -> S3Result<(Admitted, Caller, Share)> {
        let claim = sign::claim(&parts)?;
        let (user, key) = self.identify(&parts, claim.as_ref(), peer).await?;
        let payload = claim.as_ref().map_or(Payload::Unsigned, Signature::payload);
        let length = asked::length(&parts, &payload, false)?;
        let share = self.windows.take(peer, READER_UNITS).ok_or(S3ErrorCode::SlowDown)?;
        let checks = asked::checks(&parts, payload, key, length)?;
        // What nobody may ask for is not read.
        let caller = Caller::new(user).at(peer);
        let call = admin::Call::new(caller.clone(), &parts)?;
        let document = Checked::new(body, checks).collect(admin::MAX_DOCUMENT).await?;
        Ok((Admitted::Admin(Box::new(call.with(document))), caller, share))
    }

    /// The tenant of a presigned URL's bucket, for the preflight that a browser sends first. The answer gives
    /// no right: the signature is for another method.
    async fn tenant_of_query(&self, parts: &Parts, peer: IpAddr) -> Option<Bytes> {
        let signature = sign::claim(parts).ok()??;
        let nobody = Caller::default().at(peer);
        let (user, _) = self.gateway.of_caller(&nobody).user(signature.access_key()).await.ok()?;
        Some(user.info.id.tenant.clone())
    }

    /// A request for a page, if its host is a site's. What it has of a body is not read.
    fn admit_visit(&self, parts: &mut Parts, peer: IpAddr) -> Option<S3Result<(Admitted, Caller, Share)>> {
        parts.extensions.insert(Room { windows: Arc::clone(&self.windows), peer });
        let visit = Visit::of(parts, self.gateway.settings(), peer)?;
        let admitted = visit.and_then(|visit| {
            let share = self.windows.take(peer, READER_UNITS).ok_or(S3ErrorCode::SlowDown)?;
            let caller = visit.caller().clone();
            Ok((Admitted::Page(Box::new(visit)), caller, share))
        });
        Some(admitted)
    }

    fn admit_form(
        &self,
        mut parts: Parts,
        body: Incoming,
        boundary: String,
        peer: IpAddr,
    ) -> S3Result<(Admitted, Caller, Share)> {
        let length = asked::length(&parts, &Payload::Unsigned, true)?;
        let share = self.windows.take(peer, units(length)).ok_or(S3ErrorCode::SlowDown)?;
        let tenant = asked::take_tenant(&mut parts)?;
        let (bucket, _) = asked::path(&parts)?;
        let body = Checked::new(body, Checks { length, ..Checks::default() });
        let caller = Caller::default().asking(Environment::new(), tenant.clone(), false);
        let form = Form { parts, bucket, tenant, peer, body, boundary };
        Ok((Admitted::Form(Box::new(form)), caller, share))
    }

    /// Who sent a request, and what its chunks are signed with.
    async fn identify(
        &self,
        parts: &Parts,
        claim: Option<&Signature>,
        peer: IpAddr,
    ) -> S3Result<(Option<Known>, Option<sign::ChunkKey>)> {
        let Some(claim) = claim else { return Ok((None, None)) };
        if parts.headers.contains_key("x-amz-security-token") {
            return Err(errors::not_served("tokens of sessions are not served"));
        }
        // Until a signature is checked it is nobody's: its address has a share of what is looked up.
        let nobody = Caller::default().at(peer);
        let (user, secret) = self.gateway.of_caller(&nobody).user(claim.access_key()).await?;
        let key = claim.verify(parts, &secret, now().0.sec.into())?;
        if user.info.suspended != 0 {
            return Err(errors::custom("UserSuspended", 403));
        }
        Ok((Some(user), key))
    }
}

/// The boundary of a request that is a form.
fn form(parts: &Parts) -> Option<S3Result<String>> {
    form::boundary(parts).filter(|_| parts.method == Method::POST)
}

/// Refuses headers for what is not served. Of a form, fields alone count, whatever its path and query are.
fn refuse(parts: &Parts) -> S3Result<()> {
    let is_form = form(parts).is_some();
    let of_object = !is_form && asked::path(parts)?.1.is_some();
    attrs::refuse(&parts.headers, !is_form && asked::writes_object(parts)?, of_object)
}

/// What a request with so many bytes for an object takes.
fn units(length: u64) -> usize {
    let units = length.div_ceil(UNIT).saturating_add(1).min(WRITER_UNITS);
    usize::try_from(units).unwrap_or(usize::MAX).max(READER_UNITS)
}

fn library(mut parts: Parts, body: Body, length: u64, caller: &Caller) -> S3Result<Admitted> {
    asked::strip(&mut parts, length)?;
    if let Some(from) = header(&parts, "x-amz-copy-source").map(CopyFrom::read).transpose()? {
        parts.extensions.insert(from);
        // The library undoes escapes first, and finds other names.
        parts.headers.insert("x-amz-copy-source", HeaderValue::from_static("bucket/key"));
    }
    parts.extensions.insert(caller.clone());
    Ok(Admitted::Library(Request::from_parts(parts, body)))
}

fn failed(mut e: S3Error, id: &str, is_admin: bool) -> S3Result<Response<Body>> {
    if is_admin {
        return Ok(admin::failed(&e, id));
    }
    e.set_request_id(id.to_owned());
    e.to_hyper_response()
}

/// What is told to a page of another site, if one asks.
fn page(request: &Request<Incoming>) -> Option<Page> {
    let is_page = request.headers().contains_key("origin") && request.method() != Method::OPTIONS;
    let path = request.uri().path().trim_start_matches('/');
    let bucket = sign::percent_decode(path.split('/').next().unwrap_or_default())?;
    let bucket = bucket.rsplit(':').next().unwrap_or_default().to_owned();
    let (method, headers) = (request.method().clone(), request.headers());
    is_page.then(|| Page { bucket, method, headers: headers.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_forms_encrypt_and_lock_nothing() {
        let refused = |kind: &str, uri: &str, header: &str| {
            let request = Request::post(uri).header("content-type", kind).header(header, "AES256");
            refuse(&request.body(()).unwrap().into_parts().0).is_err()
        };
        let form = "multipart/form-data; boundary=x";
        for header in [
            "x-amz-server-side-encryption",
            "x-amz-server-side-encryption-customer-algorithm",
            "x-amz-object-lock-mode",
        ] {
            assert!(!refused("text/plain", "/b/k?uploads", header), "{header}");
            for uri in ["/b", "/b/anything", "/b/k?uploads"] {
                assert!(refused(form, uri, header), "{header} {uri}");
            }
        }
    }
}

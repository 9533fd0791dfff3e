//! A request from the connection to the operation: who sent it is found out, its body is held against what
//! was signed, and what S3's library would do without bounds has them.
//!
//! 1. The library sees no signature: all of them are checked here, with bodies that go by in windows.

use std::net::IpAddr;
use std::sync::Arc;

use hyper::body::Incoming;
use hyper::http::request::Parts;
use hyper::{Request, Response, StatusCode};
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s::{Body, S3Error, S3ErrorCode, S3Result};

use crate::answered::{mend_of, mended};
use crate::body::Checked;
use crate::shares::{Share, Shares};
use crate::sign::{self, Claim, Payload, header};
use crate::state::{Gateway, now};
use crate::users::Caller;
use crate::{asked, attrs, errors};

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
    pub async fn answer(&self, request: Request<Incoming>, peer: IpAddr) -> (Response<Body>, Option<Share>) {
        let number = self.gateway.number();
        let mends = mend_of(request.method(), request.uri());
        let (result, share) = match self.admit(request, peer).await {
            Ok((request, share)) => {
                let answered = self.service.call(request).await;
                let answered = match (mends, answered) {
                    (Some(mend), Ok(answered)) => mended(answered, mend).await,
                    (_, answered) => answered,
                };
                (answered, Some(share))
            }
            Err(e) => (Err(e), None),
        };
        let mut response = result.or_else(S3Error::to_hyper_response).unwrap_or_else(|_| {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
            response
        });
        // The library says so of answers with a body alone.
        let is_part = response.headers().contains_key("content-range");
        if is_part && response.status() == StatusCode::OK {
            *response.status_mut() = StatusCode::PARTIAL_CONTENT;
        }
        let id = format!("tx{number:021x}-{}", self.gateway.site().instance);
        if let Ok(id) = id.parse() {
            response.headers_mut().insert("x-amz-request-id", id);
        }
        (response, share)
    }

    async fn admit(&self, request: Request<Incoming>, peer: IpAddr) -> S3Result<(Request<Body>, Share)> {
        let (mut parts, body) = request.into_parts();
        asked::check_headers(&parts)?;
        asked::check_query(&parts)?;
        attrs::refuse(&parts.headers)?;
        let claim = sign::claim(&parts)?;
        let (caller, key) = self.identify(&parts, claim.as_ref()).await?;
        let payload = match &claim {
            Some(claim) => claim.payload.clone(),
            None => header(&parts, "x-amz-content-sha256").map_or(Ok(Payload::Unsigned), Payload::of)?,
        };
        let is_data = asked::is_data(&parts)?;
        let length = asked::length(&parts, &payload, is_data)?;
        let units = if is_data { length.div_ceil(UNIT).saturating_add(1).min(WRITER_UNITS) } else { 0 };
        let units = usize::try_from(units).unwrap_or(usize::MAX).max(READER_UNITS);
        let share = self.windows.take(peer, units).ok_or(S3ErrorCode::SlowDown)?;
        let checks = asked::checks(&parts, payload, key, length)?;
        let body = Checked::new(body, checks);
        let body = match is_data {
            true => Body::http_body_unsync(body),
            false => asked::document(&parts.headers, body.collect(MAX_DOCUMENT).await?)?.into(),
        };
        asked::strip(&mut parts, length)?;
        parts.extensions.insert(caller);
        Ok((Request::from_parts(parts, body), share))
    }

    /// Who sent a request, and what its chunks are signed with.
    async fn identify(
        &self,
        parts: &Parts,
        claim: Option<&Claim>,
    ) -> S3Result<(Caller, Option<sign::ChunkKey>)> {
        let Some(claim) = claim else { return Ok((Caller::Nobody, None)) };
        if parts.headers.contains_key("x-amz-security-token") {
            return Err(errors::not_served("tokens of sessions are not served"));
        }
        let (user, secret) = self.gateway.user(&claim.access_key).await?;
        let key = claim.verify(parts, &secret, now().0.sec.into())?;
        if user.suspended != 0 {
            return Err(errors::custom("UserSuspended", 403));
        }
        Ok((Caller::User(user), Some(key)))
    }
}

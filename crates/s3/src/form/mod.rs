//! Objects that come as forms of web pages. Source: RGWPostObj in src/rgw/rgw_op.cc,
//! RGWPostObj_ObjStore_S3 in src/rgw/rgw_rest_s3.cc.
//!
//! 1. Who sends a form is known by a signature of the document in it; a form without one is nobody's.
//! 2. All fields stand in front of the file: what stands behind it is passed over.

mod parse;
mod policy;

use std::net::IpAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use gateway::{Condition, Finish};
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::header::{HeaderName, HeaderValue, LOCATION};
use hyper::http::request::Parts;
use hyper::{HeaderMap, Response, StatusCode};
use rgw::{CksumKind, Key};
use s3s::dto::StorageClass;
use s3s::{Body, S3Error, S3ErrorCode, S3Result, s3_error};

use crate::body::{BodyError, Checked};
use crate::checksum::{self, Checksum};
use crate::environment::{self, Way};
use crate::ops::{objects, sums, writer};
use crate::sign::{self, header};
use crate::state::{Gateway, at_once, now};
use crate::tags;
use crate::users::{Caller, Known};
use crate::xml::Document;
use crate::{attrs, encryption, errors};
use parse::{Parser, Piece};
use policy::{Fields, FormPolicy, Refused};

const VERSION: HeaderName = HeaderName::from_static("x-amz-version-id");
/// Fields that no document has to name.
const SIGNATURES: [&str; 10] = [
    "policy",
    "signature",
    "awsaccesskeyid",
    "x-amz-signature",
    // What the file sums up to follows from the file.
    "x-amz-checksum-algorithm",
    "x-amz-checksum-crc32",
    "x-amz-checksum-crc32c",
    "x-amz-checksum-crc64nvme",
    "x-amz-checksum-sha1",
    "x-amz-checksum-sha256",
];

/// A form whose body is still to come.
pub struct Form {
    pub parts: Parts,
    pub bucket: String,
    pub tenant: Option<Bytes>,
    pub peer: IpAddr,
    pub body: Checked<Incoming>,
    pub boundary: String,
}

/// The boundary of a request that is a form.
pub fn boundary(parts: &Parts) -> Option<S3Result<String>> {
    let found = parse::boundary(header(parts, "content-type")?)?;
    Some(
        found
            .map(str::to_owned)
            .map_err(|_| s3_error!(InvalidArgument, "Missing multipart boundary specification")),
    )
}

fn malformed() -> S3Error {
    s3_error!(InvalidArgument, "Malformed request")
}

impl From<Refused> for S3Error {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Malformed(why) => Self::with_message(S3ErrorCode::InvalidArgument, why),
            Refused::Denied(why) => Self::with_message(S3ErrorCode::AccessDenied, why),
        }
    }
}

/// The body of a form: its pieces one after the other.
struct Pieces {
    body: Checked<Incoming>,
    parser: Parser,
    ended: bool,
}

impl Pieces {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Piece, BodyError>>> {
        loop {
            match self.parser.next() {
                Ok(Some(piece)) => return Poll::Ready(Some(Ok(piece))),
                Ok(None) if self.ended => return Poll::Ready(None),
                Ok(None) => {}
                Err(parse::Malformed) => return Poll::Ready(Some(Err(BodyError::Malformed))),
            }
            match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => self.parser.push(&frame.into_data().unwrap_or_default()),
                Some(Err(e)) => return Poll::Ready(Some(Err(e))),
                None => self.ended = true,
            }
        }
    }

    /// All fields, and the name of the file behind them.
    async fn fields(&mut self) -> S3Result<(Fields, String)> {
        let mut fields = Fields::new();
        while let Some(piece) = std::future::poll_fn(|cx| self.poll(cx)).await {
            match piece {
                Ok(Piece::Field { name, value }) => drop(fields.insert(name.to_ascii_lowercase(), value)),
                Ok(Piece::File { name }) => return Ok((fields, name)),
                Ok(_) | Err(BodyError::Malformed) => return Err(malformed()),
                Err(e) => return Err(e.into()),
            }
        }
        Err(malformed())
    }
}

/// The file of a form: a body with a bound on its length, which ends where the form does.
struct File {
    pieces: Pieces,
    length: u64,
    bounds: std::ops::RangeInclusive<u64>,
    /// The file's end came.
    done: bool,
}

impl File {
    fn take(&mut self, data: Bytes) -> Result<Bytes, BodyError> {
        self.length = self.length.saturating_add(data.len() as u64);
        if self.length > *self.bounds.end() { Err(BodyError::TooLarge) } else { Ok(data) }
    }
}

impl http_body::Body for File {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        loop {
            match ready!(this.pieces.poll(cx)) {
                Some(Ok(Piece::Data(data))) => {
                    return Poll::Ready(Some(this.take(data).map(Frame::data)));
                }
                // What follows is read, and passed over.
                Some(Ok(Piece::End)) => this.done = true,
                Some(Ok(_)) => return Poll::Ready(Some(Err(BodyError::Malformed))),
                Some(Err(e)) => return Poll::Ready(Some(Err(e))),
                None if !this.done => return Poll::Ready(Some(Err(BodyError::Short))),
                None if this.length < *this.bounds.start() => {
                    return Poll::Ready(Some(Err(BodyError::TooSmall)));
                }
                None => return Poll::Ready(None),
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

/// Who signed a form's document, and what it allows.
async fn signed(gateway: &Gateway, fields: &Fields) -> S3Result<Option<(Known, FormPolicy)>> {
    let Some(policy) = fields.get("policy") else { return Ok(None) };
    let field = |name: &'static str, why: &'static str| {
        let found = fields.get(name).map(|value| value.trim());
        found.ok_or_else(|| S3Error::with_message(S3ErrorCode::InvalidArgument, why))
    };
    let policy = policy.trim();
    let is_v4 = fields.get("x-amz-algorithm").is_some_and(|algorithm| algorithm.trim() == sign::ALGORITHM);
    if fields.contains_key("x-amz-security-token") {
        return Err(errors::not_served("tokens of sessions are not served"));
    }
    let denied = |e: S3Error| match e.code() {
        // A form says no more of a key that is not there.
        S3ErrorCode::InvalidAccessKeyId | S3ErrorCode::SignatureDoesNotMatch => {
            S3ErrorCode::AccessDenied.into()
        }
        _ => e,
    };
    let user = if is_v4 {
        let credential = field("x-amz-credential", "Missing aws4 credential")?;
        let signature = field("x-amz-signature", "Missing aws4 signature")?;
        field("x-amz-date", "Missing aws4 date")?;
        let scope = sign::Scope::read(credential)?;
        let (user, secret) = gateway.user(&scope.access_key).await.map_err(denied)?;
        scope.verify(&secret, policy, signature).map_err(denied)?;
        user
    } else {
        let access_key = field("awsaccesskeyid", "Missing aws2 access key")?;
        let signature = field("signature", "Missing aws2 signature")?;
        let (user, secret) = gateway.user(access_key).await.map_err(denied)?;
        sign::v2::verify(&secret, policy, signature).map_err(denied)?;
        user
    };
    if user.info.suspended != 0 {
        return Err(errors::custom("UserSuspended", 403));
    }
    let text =
        BASE64_STANDARD.decode(policy).map_err(|_| s3_error!(InvalidArgument, "Could not decode policy"))?;
    Ok(Some((user, FormPolicy::read(&text)?)))
}

/// Fields that are headers of other requests.
fn as_headers(fields: &Fields) -> S3Result<HeaderMap> {
    let mut headers = HeaderMap::new();
    for (name, value) in fields {
        let is_kept = name.starts_with("x-amz-meta-") || name.starts_with("x-amz-object-lock-");
        let is_kept = is_kept || name == "content-type";
        if is_kept || name == "x-amz-website-redirect-location" {
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| malformed())?;
            headers.insert(name, HeaderValue::from_bytes(value.trim().as_bytes()).map_err(|_| malformed())?);
        }
    }
    if let Some(canned) = fields.get("acl") {
        let canned = HeaderValue::from_str(canned.trim()).map_err(|_| malformed())?;
        headers.insert("x-amz-acl", canned);
    }
    Ok(headers)
}

/// The sum that a form says its file has.
fn said_sum(fields: &Fields) -> S3Result<Option<(CksumKind, &str)>> {
    let field = |kind: CksumKind| Some((kind, fields.get(checksum::header_of(kind))?.trim()));
    let mut said = CksumKind::ALL.into_iter().filter_map(field);
    match (said.next(), said.next()) {
        (said, None) => Ok(said),
        _ => Err(s3_error!(InvalidRequest, "a form has one checksum")),
    }
}

/// Writes the object of a form.
pub async fn answer(gateway: &Gateway, form: Form) -> S3Result<Response<Body>> {
    let Form { parts, bucket, tenant, peer, body, boundary } = form;
    let mut pieces = Pieces { body, parser: Parser::new(&boundary), ended: false };
    let (mut fields, file) = pieces.fields().await?;
    let key = fields.get("key").ok_or_else(|| s3_error!(InvalidArgument, "Key not specified"))?;
    let key = key.trim().replacen("${filename}", &file, 1);
    if key.is_empty() {
        return Err(s3_error!(InvalidArgument, "Empty object name"));
    }
    if key.len() > objects::MAX_KEY {
        return Err(S3ErrorCode::KeyTooLongError.into());
    }
    let signed = signed(&gateway.of_caller(&Caller::default().at(peer)), &fields).await?;
    let user = signed.as_ref().map(|(user, _)| user.clone());
    let info = user.as_ref().map(|user| &*user.info);
    let way = Way::new(&parts, peer, &gateway.settings().encryption);
    let env = environment::of(&parts, info, way, now().0.sec)?;
    let owners = crate::asked::expected_owners(&parts)?;
    let caller = Caller::new(user).asking(env, tenant, crate::asked::pays(&parts)).expecting(owners);
    let mut bounds = 0..=crate::asked::MAX_PUT;
    if let Some((_, policy)) = &signed {
        fields.insert("bucket".to_owned(), bucket.clone());
        fields.insert("key".to_owned(), key.clone());
        policy.check(&fields, &SIGNATURES, now().0.sec.into())?;
        bounds = *policy.length.start()..=(*policy.length.end()).min(crate::asked::MAX_PUT);
    }
    // The file is a little smaller than the form.
    let size = header(&parts, "content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let gateway = &gateway.of_caller(&caller);
    let view = objects::writable(gateway, &caller, &bucket, &key, size).await?;
    let mut attrs = objects::new_attrs(gateway, &caller, &view, &key, &as_headers(&fields)?).await?;
    if let Some(tagging) = fields.get("tagging") {
        let tags = tags::of_document(tagging.trim().as_bytes(), tags::MAX_OF_OBJECT);
        let tags = tags.map_err(|_| s3_error!(InvalidArgument, "Invalid Tagging XML"))?;
        attrs.insert(attrs::TAGGING.into(), tags::encoded(&tags));
    }
    let class = fields.get("x-amz-storage-class").map(|class| StorageClass::from(class.trim().to_owned()));
    let class = objects::storage_class(class.as_ref());
    let settings = &gateway.settings().encryption;
    let keys = encryption::Asked::of_fields(&fields, &parts.headers, settings)?;
    let (seal, mut told) = keys.seal(settings, view.place()).await?;
    let md5 = writer::wanted_md5(header(&parts, "content-md5").map(str::to_owned).as_ref())?;
    let said = said_sum(&fields)?;
    let wants = writer::Wants { md5, sum: said.map(|(kind, _)| Checksum::new(kind)) };
    let number = gateway.number();
    let at = Key::plain(key.clone());
    let upload = at_once(|moment| gateway.site().put(&view.info, at, class, number, moment));
    let file = File { pieces, length: 0, bounds, done: false };
    let body = Some(Body::http_body_unsync(file).into());
    let upload = upload.map_err(errors::of)?.sealed(seal);
    let (upload, writer::Summed { etag, sum }) = writer::write(gateway, upload, body, wants).await?;
    if let Some((sum, (_, said))) = sum.zip(said) {
        if !checksum::is(&sum, said) {
            return Err(writer::drop_all(gateway, upload, s3_error!(BadDigest)).await);
        }
        attrs.extend([sums::attr(&sum)]);
        told.extend(sums::of_bytes(&sum).iter().flat_map(sums::Told::headers));
    }
    attrs.insert(attrs::ETAG.into(), etag.clone().into());
    let finish = Finish { attrs, accounted_size: None, condition: Condition::Any, now: now() };
    let written = writer::finish(gateway, upload, |upload| upload.finish(finish)).await?;
    let mut response = done(&fields, header(&parts, "host").unwrap_or_default(), &bucket, &key, &etag)?;
    let version = objects::new_version(&written.version).and_then(|version| version.parse().ok());
    response.headers_mut().extend(told);
    response.headers_mut().extend(version.map(|version: HeaderValue| (VERSION, version)));
    Ok(response)
}

fn url(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for b in text.bytes() {
        match b {
            b'-' | b'_' | b'.' | b'~' => out.push(char::from(b)),
            b if b.is_ascii_alphanumeric() => out.push(char::from(b)),
            b => out.push_str(&format!("%{b:02X}")),
        }
    }
    out
}

/// The answer that the form wants.
fn done(fields: &Fields, host: &str, bucket: &str, key: &str, etag: &str) -> S3Result<Response<Body>> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    if let Some(target) = fields.get("success_action_redirect").map(|target| target.trim()) {
        let etag = url(&format!("\"{etag}\""));
        let target = format!("{target}?bucket={}&key={}&etag={etag}", url(bucket), url(key));
        let target = HeaderValue::from_str(&target).map_err(|_| malformed())?;
        *response.status_mut() = StatusCode::SEE_OTHER;
        response.headers_mut().insert(LOCATION, target);
        return Ok(response);
    }
    match fields.get("success_action_status").map(|status| status.trim().parse::<u32>()) {
        Some(Err(_)) => return Err(s3_error!(InvalidArgument, "the status is no number")),
        Some(Ok(200)) => *response.status_mut() = StatusCode::OK,
        Some(Ok(201)) => {
            let mut document = Document::plain("PostResponse");
            document.text("Location", format!("http://{host}/{}/{}", url(bucket), url(key)));
            document.text("Bucket", bucket);
            document.text("Key", key);
            document.text("ETag", etag);
            response = document.done("PostResponse");
            *response.status_mut() = StatusCode::CREATED;
        }
        _ => {}
    }
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(list: &[(&str, &str)]) -> Fields {
        list.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect()
    }

    #[test]
    fn forms_say_what_they_want_as_an_answer() {
        let of =
            |list: &[(&str, &str)]| done(&fields(list), "h:1", "b", "a b", "e").map(|r| r.into_parts().0);
        assert_eq!(of(&[]).unwrap().status, 204);
        assert_eq!(of(&[("success_action_status", "200")]).unwrap().status, 200);
        assert_eq!(of(&[("success_action_status", "201")]).unwrap().status, 201);
        assert_eq!(of(&[("success_action_status", "404")]).unwrap().status, 204);
        assert!(of(&[("success_action_status", "x")]).is_err());
        let parts = of(&[("success_action_redirect", "http://page/")]).unwrap();
        assert_eq!(parts.status, 303);
        assert_eq!(parts.headers["location"], "http://page/?bucket=b&key=a%20b&etag=%22e%22");
        // No second header can be made of it.
        assert!(of(&[("success_action_redirect", "http://page/\r\nset-cookie: x")]).is_err());
    }

    #[test]
    fn fields_are_headers_of_the_object() {
        let headers = as_headers(&fields(&[
            ("acl", "public-read "),
            ("content-type", "text/plain"),
            ("x-amz-meta-a", "1"),
            ("policy", "x"),
            ("x-amz-grant-read", "id=u"),
        ]));
        let headers = headers.unwrap();
        assert_eq!(headers["x-amz-acl"], "public-read");
        assert_eq!(
            (&headers["content-type"], &headers["x-amz-meta-a"], headers.len()),
            (&"text/plain".parse().unwrap(), &"1".parse().unwrap(), 3)
        );
        assert!(as_headers(&fields(&[("x-amz-meta-a", "1\r\n2")])).is_err());
        assert!(as_headers(&fields(&[("x-amz-meta-\u{e9}", "1")])).is_err());
    }
}

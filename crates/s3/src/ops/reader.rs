//! Objects that are read: their heads, and their bytes in windows.

use std::collections::VecDeque;
use std::future::Future;
use std::net::IpAddr;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use gateway::{Error, Head, Moment, Opened, Plan};
use http_body::{Body, Frame, SizeHint};
use hyper::HeaderMap;
use hyper::header::{HeaderName, HeaderValue};
use rgw::Key;
use rgw::policy::Action;
use s3s::{S3Error, S3ErrorCode, S3Result};

use crate::rights::{Target, for_version};
use crate::shares::{Share, Shares};
use crate::state::{BucketView, Gateway, at_once};
use crate::users::Caller;
use crate::{attrs, errors};

/// Bytes that are read at a time, and that come with a head.
pub const WINDOW: u64 = 1 << 20;

/// Says of what is not there whether a delete marker is.
const MARKER: HeaderName = HeaderName::from_static("x-amz-delete-marker");
const VERSION: HeaderName = HeaderName::from_static("x-amz-version-id");

/// What a caller is told of an object that is not there: whether it may know.
async fn missing(gateway: &Gateway, caller: &Caller, view: &BucketView, key: &Key) -> S3Error {
    if !view.may_miss(caller, &key.name) {
        return S3ErrorCode::AccessDenied.into();
    }
    let mut e = S3Error::from(S3ErrorCode::NoSuchKey);
    let shows = view.has_versions() && key.instance.is_empty();
    let marker = match shows {
        true => gateway.read(gateway.site().marker_shown(&view.info, key)).await,
        false => Ok(None),
    };
    let mut headers = HeaderMap::new();
    match marker {
        // It is not known.
        Err(_) => return e,
        Ok(None) => drop(headers.insert(MARKER, HeaderValue::from_static("false"))),
        Ok(Some((id, _))) => {
            headers.insert(MARKER, HeaderValue::from_static("true"));
            headers.extend(HeaderValue::from_bytes(&id).ok().map(|id| (VERSION, id)));
        }
    }
    e.set_headers(headers);
    e
}

/// A key, and the version of it that a request names.
pub fn key(name: &str, version: Option<&str>) -> Key {
    Key { instance: version.unwrap_or_default().to_owned().into(), ..Key::plain(name.to_owned()) }
}

/// Carries out what finds an object: where versions are kept, to its end, as it may end what others began.
async fn find<T: Send + 'static>(
    gateway: &Gateway,
    view: &BucketView,
    plan: impl FnOnce(&mut Moment) -> Plan<T>,
) -> Result<T, Error> {
    let plan = at_once(plan);
    if view.has_versions() { gateway.run(plan).await } else { gateway.read(plan).await }
}

/// An object's head, whatever the caller may do with it.
pub async fn head(gateway: &Gateway, caller: &Caller, view: &BucketView, key: &Key) -> S3Result<Head> {
    let head = find(gateway, view, |moment| gateway.site().shown(&view.info, key, 0, moment)).await;
    match head.map_err(errors::of)? {
        Some(head) => Ok(head),
        None => Err(missing(gateway, caller, view, key).await),
    }
}

/// Whether there is an object of a name, whoever may know.
pub async fn is_there(gateway: &Gateway, view: &BucketView, name: &str) -> S3Result<bool> {
    let key = key(name, None);
    let head = find(gateway, view, |moment| gateway.site().shown(&view.info, &key, 0, moment)).await;
    Ok(head.map_err(errors::of)?.is_some())
}

/// An object that the caller may read.
pub async fn open(
    gateway: &Gateway,
    caller: &Caller,
    view: &BucketView,
    key: &Key,
    prefetch: u64,
) -> S3Result<Opened> {
    let open = |moment: &mut Moment| gateway.site().open(&view.info, key, prefetch, moment);
    let opened = find(gateway, view, open).await;
    let opened = match opened {
        Err(Error::NoSuchKey) => return Err(missing(gateway, caller, view, key).await),
        other => other.map_err(errors::of)?,
    };
    let acl = attrs::acl(&opened.head)?;
    let target = Target { key: &key.name, acl: &acl, attrs: &opened.head.attrs };
    let action = for_version(Action::GetObject, !key.instance.is_empty());
    if !view.may_with(caller, action, &target) {
        return Err(S3ErrorCode::AccessDenied.into());
    }
    if attrs::is_compressed(&opened.head) {
        return Err(errors::not_served("compressed objects are not served"));
    }
    if attrs::is_of_segments(&opened.head) {
        return Err(errors::not_served("large objects of Swift are not served"));
    }
    Ok(opened)
}

type Reading = Pin<Box<dyn Future<Output = Result<Bytes, Error>> + Send>>;

/// Room for more of an object than a window.
#[derive(Debug, Clone)]
pub struct Room {
    pub windows: Arc<Shares>,
    pub peer: IpAddr,
}

/// Bytes of an object, a window at a time: the next one is read when the client has taken the one before.
///
/// What is asked for of the head is read before the answer begins, if there is room: another object may take
/// its place, while a tail stays. So is the first window of anything.
pub struct Windows {
    gateway: Gateway,
    opened: Arc<Opened>,
    ready: VecDeque<Bytes>,
    at: u64,
    end: u64,
    reading: Option<Reading>,
    _room: Option<Share>,
}

impl Windows {
    /// `Raced` where another object took the place: nothing was answered, and it may be opened anew.
    pub async fn begin(
        gateway: &Gateway,
        opened: Opened,
        span: Range<u64>,
        room: Option<&Room>,
    ) -> Result<Self, Error> {
        let length = span.end.saturating_sub(span.start);
        let of_head = span.end.min(opened.head.head_size).saturating_sub(span.start);
        let more = usize::try_from(of_head.saturating_sub(WINDOW).div_ceil(WINDOW)).unwrap_or(usize::MAX);
        let share = room.filter(|_| more > 0).and_then(|room| room.windows.take(room.peer, more));
        let ahead = if share.is_some() { of_head } else { WINDOW.min(length) };
        let (mut ready, mut at) = (VecDeque::new(), span.start);
        let end = span.start.saturating_add(ahead);
        while at < end {
            let data = gateway.read(opened.read(at, WINDOW.min(end - at))).await?;
            at = at.saturating_add(data.len() as u64);
            if data.is_empty() {
                return Err(Error::Unexpected);
            }
            ready.push_back(data);
        }
        let (gateway, opened) = (gateway.clone(), Arc::new(opened));
        Ok(Self { gateway, opened, ready, at, end: span.end, reading: None, _room: share })
    }

    fn left(&self) -> u64 {
        let ready: u64 = self.ready.iter().map(|data| data.len() as u64).sum();
        self.end.saturating_sub(self.at).saturating_add(ready)
    }
}

/// The bytes are not there as they were when the answer began.
#[derive(Debug)]
pub struct Lost(Error);

impl std::fmt::Display for Lost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the object cannot be read on: {:?}", self.0)
    }
}

impl std::error::Error for Lost {}

impl Body for Windows {
    type Data = Bytes;
    type Error = Lost;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Lost>>> {
        let this = self.get_mut();
        if let Some(data) = this.ready.pop_front() {
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        if this.at >= this.end {
            return Poll::Ready(None);
        }
        let reading = this.reading.get_or_insert_with(|| {
            let plan = this.opened.read(this.at, WINDOW.min(this.end - this.at));
            let gateway = this.gateway.clone();
            Box::pin(async move { gateway.read(plan).await })
        });
        let read = ready!(reading.as_mut().poll(cx));
        this.reading = None;
        // Nothing more comes after what failed.
        let failed = |this: &mut Self, e| {
            this.at = this.end;
            tracing::warn!("an answer is cut off: {e:?}");
            Poll::Ready(Some(Err(Lost(e))))
        };
        match read {
            Ok(data) if data.is_empty() => failed(this, Error::Unexpected),
            Ok(data) => {
                this.at = this.at.saturating_add(data.len() as u64);
                Poll::Ready(Some(Ok(Frame::data(data))))
            }
            Err(e) => failed(this, e),
        }
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left())
    }
}

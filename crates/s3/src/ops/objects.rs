//! Objects.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use gateway::{Condition, Error as CoreError, Finish, Head, Opened, Removed, Remover, Wanted};
use hyper::HeaderMap;
use hyper::header::HeaderName;
use rgw::policy::Action;
use rgw::{AccessControl, Key};
use s3s::dto::{Range as Asked, *};
use s3s::{S3ErrorCode, S3Request, S3Response, S3Result, s3_error};

use super::conditions::{Conditions, whole_seconds};
use super::{reader, sums, writer};
use crate::attrs::{Attrs, quoted, system_time, timestamp};
use crate::config::versioning::check_password;
use crate::config::{lifecycle, lock, ownership};
use crate::rights::for_version;
use crate::state::{BucketView, Gateway, at_once, caller, now};
use crate::users::Caller;
use crate::{attrs, encryption, errors, grants, tags};

/// Keys of one request to remove. Source: rgw_delete_multi_obj_max_num in src/common/options.cc.
const MAX_REMOVED: usize = 1000;
/// Bytes of a key; policies are compared with it.
pub const MAX_KEY: usize = 1024;
/// Says when an object expires.
const EXPIRATION: HeaderName = HeaderName::from_static("x-amz-expiration");
/// How often an object is opened whose place others take at the same time.
const TRIES: usize = 8;
/// Keys of one request that are removed at a time.
const AT_A_TIME: usize = 16;

/// A bucket into which the caller may write an object, and which has room for so many bytes.
pub async fn writable(
    gateway: &Gateway,
    caller: &Caller,
    bucket: &str,
    key: &str,
    size: u64,
) -> S3Result<Arc<BucketView>> {
    let view = gateway.bucket_with_key(caller, bucket, Action::PutObject, key).await?;
    gateway.check_room(&view, size).await?;
    Ok(view)
}

/// What a client says that it sends.
pub fn said_length(length: Option<i64>) -> u64 {
    length.and_then(|length| u64::try_from(length).ok()).unwrap_or(0)
}

/// The list of grants of a new object, as a request's headers ask for it.
pub async fn new_acl(
    gateway: &Gateway,
    caller: &Caller,
    view: &BucketView,
    headers: &HeaderMap,
) -> S3Result<AccessControl> {
    if let Some(acl) = ownership::new_acl(caller, view, headers)? {
        return Ok(acl);
    }
    let acl = grants::of_headers(gateway, headers, caller.owner(), &view.acl.owner).await?;
    match view.takes(&acl) {
        true => Ok(acl),
        false => Err(S3ErrorCode::AccessDenied.into()),
    }
}

/// What an object keeps of the request that writes it.
pub async fn new_attrs(
    gateway: &Gateway,
    caller: &Caller,
    view: &BucketView,
    key: &str,
    headers: &HeaderMap,
) -> S3Result<Attrs> {
    let mut attrs = attrs::of_headers(headers)?;
    attrs.extend(lock::new_attrs(caller, view, key, headers)?);
    attrs::set_acl(&mut attrs, &new_acl(gateway, caller, view, headers).await?);
    if let Some(tags) = tags::of_header(headers)? {
        attrs.insert(attrs::TAGGING.into(), tags::encoded(&tags));
    }
    Ok(attrs)
}

/// A class that is the bucket's own has no name.
pub fn storage_class(class: Option<&StorageClass>) -> Bytes {
    let named = class.map(|class| class.as_str()).filter(|class| *class != StorageClass::STANDARD);
    named.unwrap_or_default().to_owned().into()
}

pub fn condition(matches: Option<&String>, none_matches: Option<&String>) -> S3Result<Condition> {
    match (matches.map(|tags| tags.trim()), none_matches.map(|tags| tags.trim())) {
        (None, None) => Ok(Condition::Any),
        (None, Some("*")) => Ok(Condition::Missing),
        (Some("*"), None) => Ok(Condition::Exists(None)),
        (Some(tag), None) if !tag.contains(',') => {
            Ok(Condition::Exists(Some(tag.trim_matches('"').to_owned().into())))
        }
        (None, Some(tag)) if !tag.contains(',') => {
            Ok(Condition::Differs(tag.trim_matches('"').to_owned().into()))
        }
        _ => Err(errors::not_served("this condition of a write is not served")),
    }
}

pub async fn put_object(
    gateway: &Gateway,
    request: S3Request<PutObjectInput>,
) -> S3Result<S3Response<PutObjectOutput>> {
    let caller = caller(&request);
    let size = said_length(request.input.content_length);
    let view = writable(gateway, &caller, &request.input.bucket, &request.input.key, size).await?;
    let mut attrs = new_attrs(gateway, &caller, &view, &request.input.key, &request.headers).await?;
    let keys = encryption::asked(&request);
    let (seal, mut headers) = keys.seal(&gateway.settings().encryption, view.place()).await?;
    let summed = sums::of_request(&request);
    let input = request.input;
    let condition = condition(input.if_match.as_ref(), input.if_none_match.as_ref())?;
    let wants = writer::Wants { md5: writer::wanted_md5(input.content_md5.as_ref())?, sum: None };
    let class = storage_class(input.storage_class.as_ref());
    let (key_name, key) = (input.key.clone(), Key::plain(input.key));
    let number = gateway.number();
    let upload = at_once(|moment| gateway.site().put(&view.info, key, class, number, moment));
    let upload = upload.map_err(errors::of)?.sealed(seal);
    let (upload, writer::Summed { etag, .. }) = writer::write(gateway, upload, input.body, wants).await?;
    attrs.insert(attrs::ETAG.into(), etag.clone().into());
    if let Some(sum) = summed.get() {
        attrs.extend([sums::attr(&sum)]);
        headers.extend(sums::of_bytes(&sum).iter().flat_map(sums::Told::headers));
    }
    let modified = now();
    let expiration = lifecycle::header(&view, key_name.as_bytes(), &attrs, modified);
    headers.extend(expiration.map(|value| (EXPIRATION, value)));
    let finish = Finish { attrs, accounted_size: None, condition, now: modified };
    let written = writer::finish(gateway, upload, |upload| upload.finish(finish)).await?;
    let (e_tag, version_id) = (Some(quoted(etag.as_bytes())), new_version(&written.version));
    let output = PutObjectOutput { e_tag, version_id, ..PutObjectOutput::default() };
    Ok(S3Response::with_headers(output, headers))
}

/// A version's id as the core has it, which is empty where none are kept.
pub fn shown_version(id: &Bytes) -> Option<String> {
    (!id.is_empty()).then(|| String::from_utf8_lossy(id).into_owned())
}

/// The id of a version that was written. As in radosgw, one without an id is told of by reads and lists
/// alone.
pub fn new_version(id: &Bytes) -> Option<String> {
    shown_version(id).filter(|id| id != "null")
}

/// What a request names as a version. Without an id it names none.
pub fn named(id: Option<&String>) -> Option<&str> {
    id.map(String::as_str).filter(|id| !id.is_empty())
}

/// Headers that an answer has of the object, and those that the client wants instead.
fn shown(head: &Head, overrides: &[(&'static str, Option<String>)]) -> S3Result<HeaderMap> {
    let mut headers = attrs::headers(head);
    for (name, value) in overrides {
        let Some(value) = value else { continue };
        let value =
            value.parse().map_err(|_| s3_error!(InvalidArgument, "a header for the answer is none"))?;
        headers.insert(*name, value);
    }
    Ok(headers)
}

fn expires(time: Option<&Timestamp>) -> Option<String> {
    let mut text = Vec::new();
    time?.format(TimestampFormat::HttpDate, &mut text).ok()?;
    String::from_utf8(text).ok()
}

/// Whether a range is of the object that the client has part of already. Source: RFC 9110, section 13.1.5.
fn is_range_meant(headers: &HeaderMap, head: &Head) -> bool {
    let Some(known) = headers.get("if-range") else { return true };
    let etag = quoted(&head.etag());
    let mut date = Vec::new();
    let dated = timestamp(head.modified).format(TimestampFormat::HttpDate, &mut date).is_ok();
    // Weak tags tell nothing of bytes.
    known.as_bytes() == etag.as_bytes() || (dated && known.as_bytes() == date)
}

/// What a read, of an object or of its head alone, answers besides the object's headers.
struct Seen {
    etag: String,
    /// The bytes that are asked for.
    span: Range<u64>,
    /// Where they are, if a range or a part was asked for.
    content_range: Option<String>,
    /// How many parts the object has, if one was asked for.
    parts: Option<i32>,
}

fn seen(
    opened: &Opened,
    conditions: &Conditions<'_>,
    range: Option<Asked>,
    part: Option<i32>,
) -> S3Result<Seen> {
    let etag = String::from_utf8_lossy(&opened.head.etag()).into_owned();
    let good = conditions.check(&etag, system_time(opened.head.modified));
    good.map_err(|e| unchanged(e, &opened.head))?;
    let size = opened.size();
    let (range, parts) = match (range, part) {
        (Some(_), Some(_)) => {
            return Err(s3_error!(InvalidRequest, "a range and a part are asked for at once"));
        }
        (range, None) => (range.map(|range| range.check(size)).transpose()?, None),
        (None, Some(number)) => {
            let (span, parts) = part_of(opened, number)?;
            (Some(span), parts)
        }
    };
    let shown = |range: &Range<u64>| format!("bytes {}-{}/{size}", range.start, range.end.saturating_sub(1));
    // Of no bytes there is no range.
    let content_range = range.as_ref().filter(|range| !range.is_empty()).map(shown);
    Ok(Seen { etag, span: range.unwrap_or(0..size), content_range, parts })
}

/// A part's bytes, and of how many. What was not uploaded in parts is its own first part. Source:
/// RGWGetObj::execute of later releases; 16.2 knows no parts of objects.
fn part_of(opened: &Opened, number: i32) -> S3Result<(Range<u64>, Option<i32>)> {
    let number = u32::try_from(number).map_err(|_| S3ErrorCode::InvalidPart)?;
    let manifest = opened.head.manifest.as_ref();
    let Some(parts) = manifest.and_then(rgw::Manifest::parts) else {
        return if number == 1 { Ok((0..opened.size(), None)) } else { Err(S3ErrorCode::InvalidPart.into()) };
    };
    let span = manifest.and_then(|manifest| manifest.part_numbered(number));
    Ok((span.ok_or(S3ErrorCode::InvalidPart)?, i32::try_from(parts).ok()))
}

/// That an object is unchanged is said with what a cache goes by. Source: RFC 9110, section 15.4.5.
fn unchanged(mut e: s3s::S3Error, head: &Head) -> s3s::S3Error {
    if *e.code() == S3ErrorCode::NotModified {
        let mut headers = HeaderMap::new();
        let mut date = Vec::new();
        let dated = timestamp(head.modified).format(TimestampFormat::HttpDate, &mut date);
        headers.extend(quoted(&head.etag()).parse().ok().map(|etag| (hyper::header::ETAG, etag)));
        let date = dated.ok().and_then(|()| date.as_slice().try_into().ok());
        headers.extend(date.map(|date| (hyper::header::LAST_MODIFIED, date)));
        e.set_headers(headers);
    }
    e
}

pub async fn get_object(
    gateway: &Gateway,
    request: S3Request<GetObjectInput>,
) -> S3Result<S3Response<GetObjectOutput>> {
    let (caller, input) = (caller(&request), &request.input);
    let overrides = [
        ("content-type", input.response_content_type.clone()),
        ("content-language", input.response_content_language.clone()),
        ("expires", expires(input.response_expires.as_ref())),
        ("cache-control", input.response_cache_control.clone()),
        ("content-disposition", input.response_content_disposition.clone()),
        ("content-encoding", input.response_content_encoding.clone()),
    ];
    if caller.user().is_none() && overrides.iter().any(|(_, value)| value.is_some()) {
        return Err(s3_error!(InvalidRequest, "headers of the answer are not nobody's to choose"));
    }
    let view = gateway.bucket(&caller, &input.bucket).await?;
    // An object whose place another one took is that one.
    for _ in 1..TRIES {
        match answer(gateway, &caller, &view, &request, &overrides).await {
            Err(Failed::Raced) => {}
            Err(Failed::With(e)) => return Err(e),
            Ok(answered) => return Ok(answered),
        }
    }
    Err(errors::of(CoreError::Raced))
}

/// Why a read gave no answer.
enum Failed {
    Raced,
    With(s3s::S3Error),
}

impl From<s3s::S3Error> for Failed {
    fn from(e: s3s::S3Error) -> Self {
        Self::With(e)
    }
}

async fn answer(
    gateway: &Gateway,
    caller: &Caller,
    view: &BucketView,
    request: &S3Request<GetObjectInput>,
    overrides: &[(&'static str, Option<String>)],
) -> Result<S3Response<GetObjectOutput>, Failed> {
    let input = &request.input;
    let prefetch = if input.range.is_some() { 0 } else { reader::WINDOW };
    let key = reader::key(&input.key, named(input.version_id.as_ref()));
    let opened = reader::open(gateway, caller, view, &key, prefetch).await?;
    let conditions = Conditions {
        matches: input.if_match.as_deref(),
        none_matches: input.if_none_match.as_deref(),
        modified_since: input.if_modified_since.as_ref(),
        unmodified_since: input.if_unmodified_since.as_ref(),
    };
    let range = input.range.filter(|_| is_range_meant(&request.headers, &opened.head));
    let of = (range.is_some(), input.part_number);
    let asked = seen(&opened, &conditions, range, input.part_number)?;
    let keys = encryption::asked(request);
    let (opened, encrypted) = keys.open(&gateway.settings().encryption, opened).await?;
    let mut headers = shown(&opened.head, overrides)?;
    let told = sums::of_read(gateway, &opened, input.checksum_mode.as_ref(), of).await?;
    headers.extend(told.iter().flat_map(sums::Told::headers));
    headers.extend(encrypted);
    headers.extend(lock::headers(caller, view, &key, &opened.head)?);
    let expiration = lifecycle::header_of(view, &key.name, &opened.head).filter(|_| key.instance.is_empty());
    headers.extend(expiration.map(|value| (EXPIRATION, value)));
    let (modified, version_id) = (opened.head.modified, view.version(&opened.head.version));
    let length = asked.span.end.saturating_sub(asked.span.start);
    let room = request.extensions.get::<reader::Room>();
    let windows = match reader::Windows::begin(gateway, opened, asked.span, room).await {
        Err(CoreError::Raced) => return Err(Failed::Raced),
        begun => begun.map_err(errors::of)?,
    };
    let output = GetObjectOutput {
        accept_ranges: Some("bytes".to_owned()),
        content_length: i64::try_from(length).ok(),
        content_range: asked.content_range,
        e_tag: Some(quoted(asked.etag.as_bytes())),
        last_modified: Some(timestamp(modified)),
        body: Some(s3s::Body::http_body_unsync(windows).into()),
        version_id,
        parts_count: asked.parts,
        ..GetObjectOutput::default()
    };
    Ok(S3Response::with_headers(output, headers))
}

pub async fn head_object(
    gateway: &Gateway,
    request: S3Request<HeadObjectInput>,
) -> S3Result<S3Response<HeadObjectOutput>> {
    let (caller, input) = (caller(&request), &request.input);
    let view = gateway.bucket(&caller, &input.bucket).await?;
    let key = reader::key(&input.key, named(input.version_id.as_ref()));
    let opened = reader::open(gateway, &caller, &view, &key, 0).await?;
    let conditions = Conditions {
        matches: input.if_match.as_deref(),
        none_matches: input.if_none_match.as_deref(),
        modified_since: input.if_modified_since.as_ref(),
        unmodified_since: input.if_unmodified_since.as_ref(),
    };
    let range = input.range.filter(|_| is_range_meant(&request.headers, &opened.head));
    let of = (range.is_some(), input.part_number);
    let asked = seen(&opened, &conditions, range, input.part_number)?;
    let (opened, encrypted) =
        encryption::asked(&request).open(&gateway.settings().encryption, opened).await?;
    let mut headers = shown(&opened.head, &[])?;
    let told = sums::of_read(gateway, &opened, input.checksum_mode.as_ref(), of).await?;
    headers.extend(told.iter().flat_map(sums::Told::headers));
    headers.extend(encrypted);
    headers.extend(lock::headers(&caller, &view, &key, &opened.head)?);
    let expiration = lifecycle::header_of(&view, &key.name, &opened.head).filter(|_| key.instance.is_empty());
    headers.extend(expiration.map(|value| (EXPIRATION, value)));
    let output = HeadObjectOutput {
        accept_ranges: Some("bytes".to_owned()),
        content_length: i64::try_from(asked.span.end.saturating_sub(asked.span.start)).ok(),
        content_range: asked.content_range,
        e_tag: Some(quoted(asked.etag.as_bytes())),
        last_modified: Some(timestamp(opened.head.modified)),
        version_id: view.version(&opened.head.version),
        parts_count: asked.parts,
        ..HeadObjectOutput::default()
    };
    Ok(S3Response::with_headers(output, headers))
}

/// Removes an object, or the version that a key names. That there is none is no failure, nor, where none are
/// kept, that somebody else removed or replaced it first: then this request came just before. Source:
/// RGWDeleteObj::execute in src/rgw/rgw_op.cc.
async fn remove(
    gateway: &Gateway,
    caller: &Caller,
    view: &BucketView,
    key: Key,
    (bypasses, wanted): (bool, Wanted),
) -> Result<Removed, CoreError> {
    let by = Remover { owner: caller.owner(), bypasses, wanted };
    let site = gateway.site();
    let removed = gateway.now(|moment| site.remove_version(&view.info, key.clone(), &by, moment)).await;
    let removed = match removed {
        // The bucket keeps versions since a moment ago.
        Err(CoreError::Versioned) => {
            let info = &view.info.bucket;
            let state = gateway.read(site.bucket(&info.tenant, &info.name)).await?;
            let fresh = Arc::new(state.instance.value);
            let removed = gateway.now(|moment| site.remove_version(&fresh, key, &by, moment)).await;
            // It keeps none: there is no such version.
            removed.map_err(|e| if e == CoreError::Versioned { CoreError::NoSuchKey } else { e })
        }
        removed => removed,
    };
    match removed {
        Err(CoreError::NoSuchKey) => Ok(Removed::default()),
        Err(CoreError::Raced) if !view.has_versions() && by.wanted.is_anything() => Ok(Removed::default()),
        other => other,
    }
}

pub async fn delete_object(
    gateway: &Gateway,
    request: S3Request<DeleteObjectInput>,
) -> S3Result<S3Response<DeleteObjectOutput>> {
    let caller = caller(&request);
    let (headers, input) = (request.headers, request.input);
    let time = input.if_match_last_modified_time.as_ref();
    let wanted = wanted(input.if_match.as_ref(), input.if_match_size, time)?;
    let version = named(input.version_id.as_ref());
    let action = for_version(Action::DeleteObject, version.is_some());
    let view = gateway.bucket_with_key(&caller, &input.bucket, action, &input.key).await?;
    check_password(&view, version.is_some())?;
    let key = reader::key(&input.key, version);
    let bypasses = lock::bypasses(&caller, &view, &input.key, &headers);
    let removed = remove(gateway, &caller, &view, key, (bypasses, wanted)).await.map_err(errors::of)?;
    Ok(S3Response::new(DeleteObjectOutput {
        delete_marker: removed.is_marker.then_some(true),
        version_id: shown_version(&removed.version),
        ..DeleteObjectOutput::default()
    }))
}

fn refused(object: &ObjectIdentifier, e: &s3s::S3Error) -> Error {
    let code = Some(e.code().as_str().to_owned());
    let (key, version_id) = (Some(object.key.clone()), object.version_id.clone());
    Error { code, key, message: e.message().map(str::to_owned), version_id }
}

/// Whether one of many objects may be removed.
fn removable(caller: &Caller, view: &BucketView, object: &ObjectIdentifier) -> S3Result<()> {
    if object.key.len() > MAX_KEY {
        return Err(S3ErrorCode::KeyTooLongError.into());
    }
    let version = named(object.version_id.as_ref());
    let action = for_version(Action::DeleteObject, version.is_some());
    if !view.may_with_key(caller, action, object.key.as_bytes()) {
        return Err(S3ErrorCode::AccessDenied.into());
    }
    check_password(view, version.is_some())?;
    wanted_of(object).map(drop)
}

fn wanted_of(object: &ObjectIdentifier) -> S3Result<Wanted> {
    wanted(object.e_tag.as_ref(), object.size, object.last_modified_time.as_ref())
}

/// What must hold of what goes.
fn wanted(etag: Option<&String>, size: Option<i64>, modified: Option<&Timestamp>) -> S3Result<Wanted> {
    let etag = etag.map(|tag| tag.trim());
    if etag.is_some_and(|tag| tag.contains(',')) {
        return Err(errors::not_served("a removal asks for one tag"));
    }
    let no_size = |_| s3_error!(InvalidArgument, "the size of an object is no number");
    Ok(Wanted {
        etag: etag.map(|tag| tag.trim_matches('"').to_owned().into()),
        size: size.map(|size| u64::try_from(size).map_err(no_size)).transpose()?,
        // Before there were seconds to count there was no object.
        modified_s: modified.map(|time| u64::try_from(whole_seconds(time)).unwrap_or(u64::MAX)),
    })
}

fn deleted(object: &ObjectIdentifier, removed: &Removed) -> DeletedObject {
    let marker = || shown_version(&removed.version);
    DeletedObject {
        key: Some(object.key.clone()),
        version_id: named(object.version_id.as_ref()).map(str::to_owned),
        delete_marker: removed.is_marker.then_some(true),
        delete_marker_version_id: removed.is_marker.then(marker).flatten(),
    }
}

pub async fn delete_objects(
    gateway: &Gateway,
    request: S3Request<DeleteObjectsInput>,
) -> S3Result<S3Response<DeleteObjectsOutput>> {
    let caller = caller(&request);
    let removals = request.extensions.get::<crate::logging::Removals>().cloned();
    let (headers, input) = (request.headers, request.input);
    if input.delete.objects.len() > MAX_REMOVED || input.delete.objects.is_empty() {
        return Err(S3ErrorCode::MalformedXML.into());
    }
    let view = gateway.bucket(&caller, &input.bucket).await?;
    let is_quiet = input.delete.quiet.unwrap_or(false);
    let (mut all_deleted, mut failed) = (Vec::new(), Vec::new());
    for some in input.delete.objects.chunks(AT_A_TIME) {
        // Versions of one name go one after the other: each waits for what the one before it changed.
        let mut names: BTreeMap<&str, (bool, Vec<ObjectIdentifier>)> = BTreeMap::new();
        for object in some {
            // Others go on between two keys, each of which may take long to be compared with the policy.
            tokio::task::yield_now().await;
            match removable(&caller, &view, object) {
                Ok(()) => {
                    let bypasses = || (lock::bypasses(&caller, &view, &object.key, &headers), Vec::new());
                    names.entry(&object.key).or_insert_with(bypasses).1.push(object.clone());
                }
                Err(e) => failed.push(refused(object, &e)),
            }
        }
        let tasks: Vec<_> = names
            .into_values()
            .map(|(bypasses, objects)| {
                let (gateway, view, caller) = (gateway.clone(), Arc::clone(&view), caller.clone());
                let known = objects.clone();
                let task = tokio::spawn(async move {
                    let mut results = Vec::with_capacity(objects.len());
                    for object in &objects {
                        let key = reader::key(&object.key, named(object.version_id.as_ref()));
                        let removed = match wanted_of(object) {
                            Ok(wanted) => remove(&gateway, &caller, &view, key, (bypasses, wanted)).await,
                            Err(_) => Err(CoreError::InvalidArgument),
                        };
                        results.push(removed);
                    }
                    results
                });
                (known, task)
            })
            .collect();
        for (objects, task) in tasks {
            let results = task.await.unwrap_or_default().into_iter();
            let results = results.chain(std::iter::repeat_with(|| Err(CoreError::Unexpected)));
            for (object, result) in objects.iter().zip(results) {
                if let (Some(removals), Ok(_)) = (&removals, &result) {
                    removals.add(&object.key, named(object.version_id.as_ref()));
                }
                match result {
                    Ok(_) if is_quiet => {}
                    Ok(removed) => all_deleted.push(deleted(object, &removed)),
                    Err(e) => failed.push(refused(object, &errors::of(e))),
                }
            }
        }
    }
    let (deleted, errors) = (Some(all_deleted), Some(failed));
    Ok(S3Response::new(DeleteObjectsOutput { deleted, errors, ..DeleteObjectsOutput::default() }))
}

/// Whether a source may be copied, by its tags and times.
pub fn source_conditions<'a>(
    matches: Option<&'a String>,
    none_matches: Option<&'a String>,
    modified_since: Option<&'a Timestamp>,
    unmodified_since: Option<&'a Timestamp>,
    head: &Head,
) -> S3Result<()> {
    let (matches, none_matches) = (matches.map(String::as_str), none_matches.map(String::as_str));
    let etag = String::from_utf8_lossy(&head.etag()).into_owned();
    let conditions = Conditions { matches, none_matches, modified_since, unmodified_since };
    conditions.check_source(&etag, system_time(head.modified))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removals_ask_for_one_tag_a_size_and_a_time() {
        let time = Timestamp::from(std::time::UNIX_EPOCH + std::time::Duration::from_millis(1500));
        let of = |etag: &str, size| wanted(Some(&etag.to_owned()), size, Some(&time)).ok();
        let want = Wanted { etag: Some("e".into()), size: Some(3), modified_s: Some(1) };
        assert_eq!((of("\"e\"", Some(3)), of(" e", Some(3))), (Some(want.clone()), Some(want)));
        let any = Wanted { etag: Some("*".into()), modified_s: Some(1), ..Wanted::default() };
        assert_eq!(of("*", None), Some(any));
        assert_eq!((of("e,f", None), of("e", Some(-1))), (None, None));
        assert!(wanted(None, None, None).unwrap().is_anything());
    }

    #[test]
    fn a_range_is_of_the_object_that_the_client_has_part_of() {
        let attrs = Attrs::from([(attrs::ETAG.into(), "e".into())]);
        let head = Head {
            object: <_>::default(),
            version: Bytes::new(),
            attrs,
            manifest: None,
            head_size: 3,
            modified: types::RealTime(types::Utime { sec: 784_111_777, nsec: 5 }),
            first: Bytes::new(),
        };
        let check = |known: Option<&str>, want| {
            let headers = known.map(|known| (hyper::header::IF_RANGE, known.parse().unwrap()));
            assert_eq!(is_range_meant(&headers.into_iter().collect(), &head), want, "{known:?}");
        };
        check(None, true);
        for (known, want) in [
            ("\"e\"", true),
            ("\"f\"", false),
            ("W/\"e\"", false),
            ("Sun, 06 Nov 1994 08:49:37 GMT", true),
            ("Sun, 06 Nov 1994 08:49:38 GMT", false),
            ("", false),
        ] {
            check(Some(known), want);
        }
    }
}

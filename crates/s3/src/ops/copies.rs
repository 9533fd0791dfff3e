//! Copies of objects, and of their ranges as parts.

use std::sync::Arc;

use bytes::Bytes;
use gateway::{Condition, CopyTo, Error, Finish, FinishPart, Head, Opened, UploadId};
use hyper::HeaderMap;
use rgw::{CksumKind, Compression, Key};
use s3s::dto::*;
use s3s::{S3ErrorCode, S3Request, S3Response, S3Result, s3_error};

use super::objects::{
    condition, new_acl, new_attrs, new_version, source_conditions, storage_class, writable,
};
use super::sums::{self, Told, tell};
use super::writer::{self, drop_all, hex};
use super::{reader, uploads};
use crate::attrs::{Attrs, quoted, timestamp};
use crate::checksum::Checksum;
use crate::config::lock;
use crate::sign::percent_decode;
use crate::state::{Gateway, caller, now};
use crate::users::Caller;
use crate::{attrs, encryption, errors};

/// Attributes that a copy makes anew.
const MADE: [&str; 6] = [
    "user.rgw.acl",
    "user.rgw.idtag",
    "user.rgw.tail_tag",
    "user.rgw.manifest",
    "user.rgw.pg_ver",
    "user.rgw.source_zone",
];
/// Bytes of a range that are copied at a time.
const WINDOW: u64 = 4 << 20;

/// The source of a copy, as the request's header names it.
/// Source: RGWCopyObj::parse_copy_location in src/rgw/rgw_op.cc.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyFrom {
    tenant: Option<Bytes>,
    bucket: String,
    key: String,
    /// Of the key, where one is named.
    version: Option<String>,
}

impl CopyFrom {
    /// Reads `/[tenant:]bucket/key[?versionId=id]`. It is split before escapes are undone, so a key may
    /// contain escaped slashes and question marks.
    pub fn read(text: &str) -> S3Result<Self> {
        let wrong = || s3_error!(InvalidArgument, "the copy's source cannot be read");
        let (path, version) = match text.split_once("?versionId=") {
            Some((path, version)) => (path, Some(version)),
            None => (text, None),
        };
        let path = path.strip_prefix('/').unwrap_or(path);
        let (bucket, key) = match path.split_once('/') {
            Some((bucket, key)) => (percent_decode(bucket), percent_decode(key)),
            // Some clients escape all of it.
            None => {
                let whole = percent_decode(path).ok_or_else(wrong)?;
                let (bucket, key) = whole.split_once('/').ok_or_else(wrong)?;
                (Some(bucket.to_owned()), Some(key.to_owned()))
            }
        };
        let (bucket, key) = bucket.zip(key).ok_or_else(wrong)?;
        let (tenant, bucket) = match bucket.split_once(':') {
            Some((tenant, bucket)) => (Some(tenant.to_owned().into()), bucket.to_owned()),
            None => (None, bucket),
        };
        if bucket.is_empty() || key.is_empty() {
            return Err(wrong());
        }
        let version = version.map(|id| percent_decode(id).ok_or_else(wrong)).transpose()?;
        let version = version.filter(|id| !id.is_empty());
        Ok(Self { tenant, bucket, key, version })
    }
}

/// How often an object is copied over itself that others change at the same time.
const TRIES: usize = 15;

/// Opens what is copied.
async fn source<T>(
    gateway: &Gateway,
    caller: &Caller,
    request: &S3Request<T>,
) -> S3Result<(Opened, CopyFrom, Option<String>)> {
    let from = request.extensions.get::<CopyFrom>().cloned().ok_or(S3ErrorCode::InvalidArgument)?;
    // It is in the caller's tenant where it names none.
    let caller = caller.clone().in_tenant(from.tenant.clone()).at_source();
    let view = gateway.bucket(&caller, &from.bucket).await?;
    let key = reader::key(&from.key, from.version.as_deref());
    let opened = reader::open(gateway, &caller, &view, &key, 0).await?;
    let version = view.version(&opened.head.version);
    Ok((opened, from, version))
}

pub async fn copy_object(
    gateway: &Gateway,
    request: S3Request<CopyObjectInput>,
) -> S3Result<S3Response<CopyObjectOutput>> {
    // One that is copied over itself while its attributes change is copied anew, with those.
    for _ in 1..TRIES {
        match copy_once(gateway, &request).await {
            Err(e) if *e.code() == S3ErrorCode::OperationAborted => {}
            done => return done,
        }
    }
    copy_once(gateway, &request).await
}

async fn copy_once(
    gateway: &Gateway,
    request: &S3Request<CopyObjectInput>,
) -> S3Result<S3Response<CopyObjectOutput>> {
    let (caller, input) = (caller(request), &request.input);
    let (opened, from, copy_source_version_id) = source(gateway, &caller, request).await?;
    let view = writable(gateway, &caller, &input.bucket, &input.key, opened.size()).await?;
    source_conditions(
        input.copy_source_if_match.as_ref(),
        input.copy_source_if_none_match.as_ref(),
        input.copy_source_if_modified_since.as_ref(),
        input.copy_source_if_unmodified_since.as_ref(),
        &opened.head,
    )?;
    let keys = encryption::asked(request);
    let opened = keys.open_source(&gateway.settings().encryption, opened).await?;
    let encryption = opened.head.encryption();
    let sealing = keys.seal_copy(&gateway.settings().encryption, encryption.as_ref(), view.place());
    let (seal, headers) = sealing.await?;
    let seals_anew = seal.is_some() && !keys.keeps(encryption.as_ref(), view.place());
    let directive = input.metadata_directive.as_ref().map(|d| d.as_str()).unwrap_or("COPY");
    let class = storage_class(input.storage_class.as_ref());
    let is_here = from.tenant.as_ref().is_none_or(|tenant| *tenant == view.info.bucket.tenant);
    // An older version may come in front of all others as it is.
    let itself = is_here && from.bucket == input.bucket && from.key == input.key && from.version.is_none();
    if itself && directive == "COPY" && class.is_empty() && !seals_anew {
        return Err(s3_error!(InvalidRequest, "an object is copied over itself only to change something"));
    }
    let etag = opened.head.etag();
    let condition = condition_said(&request.headers)?;
    let of_request = new_attrs(gateway, &caller, &view, &input.key, &request.headers).await?;
    let mut attrs: Attrs = match directive {
        "REPLACE" => of_request.clone(),
        "COPY" => {
            let mut attrs = kept_attrs(&opened.head, &of_request);
            attrs.extend(lock::new_attrs(&caller, &view, &input.key, &request.headers)?);
            attrs
        }
        _ => return Err(s3_error!(InvalidArgument, "metadata is copied or replaced")),
    };
    copy_tags(&request.headers, &opened.head.attrs, &of_request, &mut attrs)?;
    attrs.insert(attrs::ETAG.into(), etag.clone());
    sums::check_copy(&request.headers, &opened.head)?;
    let sum = opened.head.attrs.get_key_value(sums::ATTR.as_bytes());
    attrs.extend(sum.map(|(name, sum)| (name.clone(), sum.clone())));
    let told = sums::of_head(&opened.head);
    let to = CopyTo {
        bucket: Arc::clone(&view.info),
        key: Key::plain(input.key.clone()),
        storage_class: class,
        finish: Finish { attrs, accounted_size: None, condition, now: now() },
        seal,
        number: gateway.number(),
    };
    let written = gateway.now(|moment| gateway.site().copy(opened, to, moment)).await.map_err(errors::of)?;
    let mut result = CopyObjectResult {
        checksum_type: told.as_ref().map(Told::kind_of_sum),
        e_tag: Some(quoted(&etag)),
        last_modified: Some(timestamp(written.modified)),
        ..CopyObjectResult::default()
    };
    tell!(told, result);
    let output = CopyObjectOutput {
        copy_object_result: Some(result),
        copy_source_version_id,
        version_id: new_version(&written.version),
        ..CopyObjectOutput::default()
    };
    Ok(S3Response::with_headers(output, headers))
}

/// What must hold of the object that is copied over; the library does not know that it can be asked for.
fn condition_said(headers: &HeaderMap) -> S3Result<Condition> {
    let said = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or_default().to_owned());
    condition(said("if-match").as_ref(), said("if-none-match").as_ref())
}

/// What a copy keeps of its source's attributes; who may do what with it is the request's to say.
fn kept_attrs(source: &Head, of_request: &Attrs) -> Attrs {
    let mut attrs = source.attrs.clone();
    attrs.retain(|name, _| !MADE.iter().any(|made| name == made.as_bytes()));
    attrs.extend(of_request.get(attrs::ACL.as_bytes()).map(|acl| (attrs::ACL.into(), acl.clone())));
    lock::take_off(&mut attrs);
    attrs
}

/// Tags are the source's, unless the request has others in their place.
fn copy_tags(headers: &HeaderMap, source: &Attrs, of_request: &Attrs, attrs: &mut Attrs) -> S3Result<()> {
    let tags = match headers.get("x-amz-tagging-directive").map(|directive| directive.as_bytes()) {
        None | Some(b"COPY") => source.get(attrs::TAGGING.as_bytes()),
        Some(b"REPLACE") => of_request.get(attrs::TAGGING.as_bytes()),
        Some(_) => return Err(s3_error!(InvalidArgument, "tags are copied or replaced")),
    };
    match tags {
        Some(tags) => attrs.insert(attrs::TAGGING.into(), tags.clone()),
        None => attrs.remove(attrs::TAGGING.as_bytes()),
    };
    Ok(())
}

/// `bytes=0-9`, all of which must be there.
fn part_range(text: Option<&String>, size: u64) -> S3Result<std::ops::Range<u64>> {
    let Some(text) = text else { return Ok(0..size) };
    let wrong = || s3_error!(InvalidArgument, "the range of the source is none");
    match Range::parse(text).map_err(|_| wrong())? {
        Range::Int { first, last: Some(last) } if last < size => Ok(first..last.saturating_add(1)),
        Range::Int { last: Some(_), .. } => Err(S3ErrorCode::InvalidRange.into()),
        _ => Err(wrong()),
    }
}

pub async fn upload_part_copy(
    gateway: &Gateway,
    request: S3Request<UploadPartCopyInput>,
) -> S3Result<S3Response<UploadPartCopyOutput>> {
    use md5::{Digest, Md5};
    let caller = caller(&request);
    let (opened, _, copy_source_version_id) = source(gateway, &caller, &request).await?;
    let keys = encryption::asked(&request);
    let (headers, input) = (request.headers, request.input);
    let range = part_range(input.copy_source_range.as_ref(), opened.size())?;
    let size = range.end.saturating_sub(range.start);
    let view = writable(gateway, &caller, &input.bucket, &input.key, size).await?;
    source_conditions(
        input.copy_source_if_match.as_ref(),
        input.copy_source_if_none_match.as_ref(),
        input.copy_source_if_modified_since.as_ref(),
        input.copy_source_if_unmodified_since.as_ref(),
        &opened.head,
    )?;
    let opened = keys.open_source(&gateway.settings().encryption, opened).await?;
    // The ACL is checked first, so that a refusal leaves nothing written.
    let mut attrs = Attrs::new();
    attrs::set_acl(&mut attrs, &new_acl(gateway, &caller, &view, &headers).await?);
    let upload = UploadId { name: input.key.into(), id: input.upload_id.into() };
    let number = uploads::part_number(input.part_number)?;
    let begun = gateway.now(|moment| gateway.site().put_part(&view.info, upload, number, moment)).await;
    let begun = begun.map_err(errors::of)?;
    let (mut part, headers) = keys.open_part(&gateway.settings().encryption, begun).await?;
    let begun = sums::way_of(part.begun_with(sums::upload_attr_name().as_bytes()));
    let mut sum = sums::own_sum(begun, None);
    let (mut at, mut md5) = (range.start, Md5::new());
    while at < range.end {
        let data: Result<Bytes, Error> = gateway.run(opened.read(at, WINDOW.min(range.end - at))).await;
        let data = match data {
            Ok(data) if !data.is_empty() => data,
            Ok(_) => return Err(drop_all(gateway, part, S3ErrorCode::InternalError.into()).await),
            Err(e) => return Err(drop_all(gateway, part, errors::of(e)).await),
        };
        md5.update(&data);
        sum.iter_mut().for_each(|sum| sum.update(&data));
        at = at.saturating_add(data.len() as u64);
        part = writer::take(gateway, part, data).await.map_err(errors::of)?;
    }
    let (etag, modified) = (hex(&md5.finalize()), now());
    let checksum = sum.map(Checksum::finish);
    let finish = FinishPart {
        attrs,
        etag: etag.clone().into(),
        accounted_size: None,
        compression: Compression::default(),
        checksum: checksum.clone(),
        now: modified,
    };
    writer::finish(gateway, part, |part| part.finish(finish)).await?;
    let mut result = CopyPartResult {
        e_tag: Some(quoted(etag.as_bytes())),
        last_modified: Some(timestamp(modified)),
        ..CopyPartResult::default()
    };
    tell!(checksum.as_ref().and_then(sums::of_bytes), result);
    let output = UploadPartCopyOutput {
        copy_part_result: Some(result),
        copy_source_version_id,
        ..UploadPartCopyOutput::default()
    };
    Ok(S3Response::with_headers(output, headers))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_taken_apart_before_escapes_are_undone() {
        let read = |text: &str| {
            let from = CopyFrom::read(text).ok()?;
            let tenant = from.tenant.map(|tenant| String::from_utf8(tenant.to_vec()).unwrap());
            Some((tenant, from.bucket, from.key, from.version))
        };
        let want = |bucket: &str, key: &str, version: &str| {
            let version = Some(version.to_owned()).filter(|id| !id.is_empty());
            Some((None, bucket.to_owned(), key.to_owned(), version))
        };
        for (text, is) in [
            ("/b/k", want("b", "k", "")),
            ("b/a%2Fb%20c", want("b", "a/b c", "")),
            ("b/%3FversionId", want("b", "?versionId", "")),
            ("b%2Fk", want("b", "k", "")),
            ("b/k?versionId=null", want("b", "k", "null")),
            ("b/k?versionId=", want("b", "k", "")),
            ("b/k?versionId=x%2Ey", want("b", "k", "x.y")),
            ("b", None),
            ("/b/", None),
            ("//k", None),
            ("b/%zz", None),
        ] {
            assert_eq!(read(text), is, "{text}");
        }
        assert_eq!(read("t:b/k"), Some((Some("t".to_owned()), "b".to_owned(), "k".to_owned(), None)));
    }

    #[test]
    fn ranges_of_sources_are_whole() {
        let range = |text: &str| part_range(Some(&text.to_owned()), 10).ok();
        assert_eq!(part_range(None, 10).unwrap(), 0..10);
        assert_eq!((range("bytes=0-9"), range("bytes=3-3")), (Some(0..10), Some(3..4)));
        for wrong in
            ["bytes=0-10", "bytes=5-", "bytes=-3", "0-3", "bytes=4-3", "bytes=0-18446744073709551615"]
        {
            assert_eq!(range(wrong), None, "{wrong}");
        }
    }
}

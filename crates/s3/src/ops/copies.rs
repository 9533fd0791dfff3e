//! Copies of objects, and of their ranges as parts.

use std::sync::Arc;

use bytes::Bytes;
use gateway::{Condition, CopyTo, Error, Finish, FinishPart, Opened, UploadId};
use rgw::{Compression, Key};
use s3s::dto::*;
use s3s::{S3ErrorCode, S3Request, S3Response, S3Result, s3_error};

use super::objects::{new_acl, new_attrs, source_conditions, storage_class, writable};
use super::writer::{Sink, drop_all, hex};
use super::{reader, uploads};
use crate::attrs::{Attrs, quoted, timestamp};
use crate::state::{Gateway, caller, now};
use crate::users::Caller;
use crate::{attrs, errors};

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

/// What is copied.
async fn source(
    gateway: &Gateway,
    caller: &Caller,
    source: &CopySource,
) -> S3Result<(Opened, String, String)> {
    let CopySource::Bucket { bucket, key, version_id } = source else {
        return Err(errors::not_served("access points are not served"));
    };
    if version_id.is_some() {
        return Err(errors::not_served("versions are not served"));
    }
    let view = gateway.bucket(caller, bucket).await?;
    let opened = reader::open(gateway, caller, &view, key, 0).await?;
    Ok((opened, bucket.to_string(), key.to_string()))
}

pub async fn copy_object(
    gateway: &Gateway,
    request: S3Request<CopyObjectInput>,
) -> S3Result<S3Response<CopyObjectOutput>> {
    let (caller, input) = (caller(&request), &request.input);
    let view = writable(gateway, &caller, &input.bucket).await?;
    let (opened, bucket, key) = source(gateway, &caller, &input.copy_source).await?;
    source_conditions(
        input.copy_source_if_match.as_ref(),
        input.copy_source_if_none_match.as_ref(),
        input.copy_source_if_modified_since.as_ref(),
        input.copy_source_if_unmodified_since.as_ref(),
        &opened.head,
    )?;
    let directive = input.metadata_directive.as_ref().map(|d| d.as_str()).unwrap_or("COPY");
    let class = storage_class(input.storage_class.as_ref());
    let itself = bucket == input.bucket && key == input.key;
    if itself && directive == "COPY" && class.is_empty() {
        return Err(s3_error!(InvalidRequest, "an object is copied over itself only to change something"));
    }
    let canned = input.acl.as_ref().map(|acl| acl.as_str());
    let etag = opened.head.etag();
    let mut attrs: Attrs = match directive {
        "REPLACE" => new_attrs(&caller, &view, &request.headers, canned)?,
        "COPY" => {
            let mut attrs = opened.head.attrs.clone();
            attrs.retain(|name, _| !MADE.iter().any(|made| name == made.as_bytes()));
            attrs::set_acl(&mut attrs, &new_acl(&caller, &view, canned)?);
            attrs
        }
        _ => return Err(s3_error!(InvalidArgument, "metadata is copied or replaced")),
    };
    attrs.insert(attrs::ETAG.into(), etag.clone());
    let finish = Finish { attrs, accounted_size: None, condition: Condition::Any, now: now() };
    let to = CopyTo {
        bucket: Arc::clone(&view.info),
        key: Key::plain(input.key.clone()),
        storage_class: class,
        finish,
        number: gateway.number(),
    };
    let written = gateway.now(|moment| gateway.site().copy(opened, to, moment)).await.map_err(errors::of)?;
    let result = CopyObjectResult {
        e_tag: Some(quoted(&etag)),
        last_modified: Some(timestamp(written.modified)),
        ..CopyObjectResult::default()
    };
    Ok(S3Response::new(CopyObjectOutput { copy_object_result: Some(result), ..CopyObjectOutput::default() }))
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
    let (caller, input) = (caller(&request), request.input);
    let view = writable(gateway, &caller, &input.bucket).await?;
    let (opened, _, _) = source(gateway, &caller, &input.copy_source).await?;
    source_conditions(
        input.copy_source_if_match.as_ref(),
        input.copy_source_if_none_match.as_ref(),
        input.copy_source_if_modified_since.as_ref(),
        input.copy_source_if_unmodified_since.as_ref(),
        &opened.head,
    )?;
    let range = part_range(input.copy_source_range.as_ref(), opened.size())?;
    let upload = UploadId { name: input.key.into(), id: input.upload_id.into() };
    let number = uploads::part_number(input.part_number)?;
    let begun = gateway.now(|moment| gateway.site().put_part(&view.info, upload, number, moment)).await;
    let (mut part, mut at, mut md5) = (begun.map_err(errors::of)?, range.start, Md5::new());
    while at < range.end {
        let data: Result<Bytes, Error> = gateway.run(opened.read(at, WINDOW.min(range.end - at))).await;
        let data = match data {
            Ok(data) if !data.is_empty() => data,
            Ok(_) => return Err(drop_all(gateway, part, S3ErrorCode::InternalError.into()).await),
            Err(e) => return Err(drop_all(gateway, part, errors::of(e)).await),
        };
        md5.update(&data);
        at = at.saturating_add(data.len() as u64);
        part = gateway.run(part.take(data)).await.map_err(errors::of)?;
    }
    let (etag, modified) = (hex(&md5.finalize()), now());
    let mut attrs = Attrs::new();
    attrs::set_acl(&mut attrs, &new_acl(&caller, &view, None)?);
    let finish = FinishPart {
        attrs,
        etag: etag.clone().into(),
        accounted_size: None,
        compression: Compression::default(),
        now: modified,
    };
    gateway.run(part.finish(finish)).await.map_err(errors::of)?;
    let result = CopyPartResult {
        e_tag: Some(quoted(etag.as_bytes())),
        last_modified: Some(timestamp(modified)),
        ..CopyPartResult::default()
    };
    Ok(S3Response::new(UploadPartCopyOutput {
        copy_part_result: Some(result),
        ..UploadPartCopyOutput::default()
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

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

//! Uploads in parts.

use bytes::Bytes;
use codec::Decode;
use gateway::{Complete, Error, FinishPart, Head, Listing, UploadId};
use hyper::HeaderMap;
use hyper::header::HeaderName;
use md5::{Digest, Md5};
use rgw::policy::Action;
use rgw::{AccessControl, CksumKind, Compression, Encryption, Key, PlacementRule};
use s3s::dto::*;
use s3s::{S3ErrorCode, S3Request, S3Response, S3Result, s3_error};

use super::list::{Names, max_keys};
use super::objects::{condition, new_acl, new_attrs, new_version, said_length, storage_class, writable};
use super::sums::{self, Completion, Told, tell};
use super::{Made, writer};
use crate::attrs::{Attrs, quoted, timestamp};
use crate::checksum::Way;
use crate::rights::Target;
use crate::state::{BucketView, Gateway, caller, now};
use crate::{attrs, encryption, errors, grants};

const VERSION: HeaderName = HeaderName::from_static("x-amz-version-id");

fn text(bytes: &Bytes) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn algorithm_of(way: Way) -> ChecksumAlgorithm {
    ChecksumAlgorithm::from_static(way.kind.name())
}

fn type_of(way: Way) -> ChecksumType {
    ChecksumType::from_static(Way::name(way.is_composite))
}

pub fn part_number(number: i32) -> S3Result<u32> {
    let parsed = u32::try_from(number).ok().filter(|n| (1..=gateway::MAX_PARTS).contains(n));
    parsed.ok_or_else(|| s3_error!(InvalidArgument, "there is no such part number"))
}

pub async fn create_multipart_upload(
    gateway: &Gateway,
    request: S3Request<CreateMultipartUploadInput>,
) -> S3Result<S3Response<CreateMultipartUploadOutput>> {
    let (caller, input) = (caller(&request), &request.input);
    let view = writable(gateway, &caller, &input.bucket, &input.key, 0).await?;
    let mut attrs = new_attrs(gateway, &caller, &view, &input.key, &request.headers).await?;
    let keys = encryption::asked(&request);
    let (seal, headers) = keys.seal(&gateway.settings().encryption, view.place()).await?;
    attrs.extend(seal.into_iter().flat_map(|seal| seal.encryption.attrs()));
    let algorithm = input.checksum_algorithm.as_ref().map(|name| name.as_str());
    let way = sums::begin(algorithm, input.checksum_type.as_ref().map(|way| way.as_str()))?;
    attrs.extend(way.map(sums::upload_attr));
    let class = storage_class(input.storage_class.as_ref());
    let placement = match class.is_empty() {
        true => view.info.placement.clone(),
        false => PlacementRule { storage_class: class, ..view.info.placement.clone() },
    };
    let name = input.key.clone().into();
    let begun = gateway.now(|moment| gateway.site().begin_upload(&view.info, name, placement, attrs, moment));
    let upload = begun.await.map_err(errors::of)?;
    let output = CreateMultipartUploadOutput {
        checksum_algorithm: way.map(algorithm_of),
        checksum_type: way.map(type_of),
        bucket: Some(input.bucket.clone()),
        key: Some(input.key.clone()),
        upload_id: Some(text(&upload.id)),
        ..CreateMultipartUploadOutput::default()
    };
    Ok(S3Response::with_headers(output, headers))
}

pub async fn upload_part(
    gateway: &Gateway,
    request: S3Request<UploadPartInput>,
) -> S3Result<S3Response<UploadPartOutput>> {
    let (caller, keys) = (caller(&request), encryption::asked(&request));
    let summed = sums::of_request(&request);
    let (headers, input) = (request.headers, request.input);
    let view =
        writable(gateway, &caller, &input.bucket, &input.key, said_length(input.content_length)).await?;
    let md5 = writer::wanted_md5(input.content_md5.as_ref())?;
    let upload = UploadId { name: input.key.into(), id: input.upload_id.into() };
    let number = part_number(input.part_number)?;
    // The ACL is checked first, so that a refusal leaves nothing written.
    let mut attrs = Attrs::new();
    attrs::set_acl(&mut attrs, &new_acl(gateway, &caller, &view, &headers).await?);
    let begun = gateway.now(|moment| gateway.site().put_part(&view.info, upload, number, moment)).await;
    let (part, mut headers) =
        keys.open_part(&gateway.settings().encryption, begun.map_err(errors::of)?).await?;
    let begun = sums::way_of(part.begun_with(sums::upload_attr_name().as_bytes()));
    let wants = writer::Wants { md5, sum: sums::own_sum(begun, summed.kind) };
    let (part, writer::Summed { etag, sum }) = writer::write(gateway, part, input.body, wants).await?;
    let checksum = sum.or_else(|| summed.get());
    headers.extend(checksum.as_ref().and_then(sums::of_bytes).iter().flat_map(sums::Told::headers));
    let finish = FinishPart {
        attrs,
        etag: etag.clone().into(),
        accounted_size: None,
        compression: Compression::default(),
        checksum,
        now: now(),
    };
    writer::finish(gateway, part, |part| part.finish(finish)).await?;
    let e_tag = Some(quoted(etag.as_bytes()));
    Ok(S3Response::with_headers(UploadPartOutput { e_tag, ..UploadPartOutput::default() }, headers))
}

/// The tag of a whole: the sum of its parts' sums, and how many there are.
fn whole_etag(parts: &[Bytes]) -> Bytes {
    let mut sum = Md5::new();
    for part in parts {
        let digit = |b: &u8| char::from(*b).to_digit(16).unwrap_or(0) as u8;
        let pairs = part.chunks_exact(2).map(|pair| pair.iter().fold(0, |sum: u8, b| sum << 4 | digit(b)));
        sum.update(pairs.collect::<Vec<u8>>());
    }
    format!("{}-{}", writer::hex(&sum.finalize()), parts.len()).into()
}

/// Numbers and tags of the parts that a client names.
fn named_parts(upload: Option<CompletedMultipartUpload>) -> S3Result<Vec<(u32, Bytes)>> {
    let parts = upload.and_then(|upload| upload.parts).unwrap_or_default();
    if parts.is_empty() || parts.len() > gateway::MAX_PARTS as usize {
        return Err(S3ErrorCode::MalformedXML.into());
    }
    let named = parts.into_iter().map(|part| {
        let (Some(number), Some(etag)) = (part.part_number, part.e_tag) else {
            return Err(S3ErrorCode::MalformedXML.into());
        };
        let number = u32::try_from(number).map_err(|_| S3ErrorCode::InvalidPart)?;
        Ok((number, etag.trim().trim_matches('"').to_owned().into()))
    });
    let named: Vec<(u32, Bytes)> = named.collect::<S3Result<_>>()?;
    if !named.is_sorted_by_key(|(number, _)| *number) {
        return Err(S3ErrorCode::InvalidPartOrder.into());
    }
    // Of one that is named twice the last is meant, as radosgw reads it.
    let mut once: Vec<(u32, Bytes)> = Vec::with_capacity(named.len());
    for (number, etag) in named {
        match once.last_mut().filter(|(last, _)| *last == number) {
            Some((_, known)) => *known = etag,
            None => once.push((number, etag)),
        }
    }
    Ok(once)
}

/// The object, if it is what an upload would have made of it: a client that did not hear of the upload's end
/// asks again. Source: RGWCompleteMultipart::check_previously_completed in src/rgw/rgw_op.cc of 16.2.15.
async fn made_before(
    gateway: &Gateway,
    view: &BucketView,
    key: &str,
    etag: &Bytes,
) -> S3Result<Option<Head>> {
    let key = Key::plain(key.to_owned());
    let head = gateway.now(|moment| gateway.site().shown(&view.info, &key, 0, moment)).await;
    Ok(head.map_err(errors::of)?.filter(|head| head.etag() == *etag))
}

pub async fn complete_multipart_upload(
    gateway: &Gateway,
    request: S3Request<CompleteMultipartUploadInput>,
) -> S3Result<S3Response<CompleteMultipartUploadOutput>> {
    let (caller, input) = (caller(&request), &request.input);
    let keys = encryption::asked(&request);
    let view = gateway.bucket_with_key(&caller, &input.bucket, Action::PutObject, &input.key).await?;
    let condition = condition(input.if_match.as_ref(), input.if_none_match.as_ref())?;
    let named = input.multipart_upload.as_ref().and_then(|upload| upload.parts.as_deref());
    let mut sums = Completion::new(&request.headers, named.unwrap_or_default())?;
    let input = request.input;
    let parts = named_parts(input.multipart_upload)?;
    let parts_count = parts.len();
    let etags: Vec<Bytes> = parts.iter().map(|(_, etag)| etag.clone()).collect();
    let etag = whole_etag(&etags);
    let upload = UploadId { name: input.key.clone().into(), id: input.upload_id.into() };
    let mut headers = HeaderMap::new();
    match gateway.read(gateway.site().upload_attrs(&view.info, &upload)).await {
        // Who asks again finds what was made.
        Err(Error::NoSuchUpload) => {}
        Err(e) => return Err(errors::of(e)),
        Ok(begun) => {
            sums = sums.of_upload(sums::way_of_upload(&begun));
            if let Some(encryption) = Encryption::told_by(&begun) {
                headers = keys.complete(&gateway.settings().encryption, &encryption).await?;
            }
        }
    }
    let (number, now) = (gateway.number(), now());
    let (of_parts, made) = sums.attrs();
    let of_parts = Some(of_parts);
    let complete = Complete { parts, etag: whole_etag, condition, of_parts, number, now };
    let done = gateway.now(|moment| gateway.site().complete_upload(&view.info, upload, complete, moment));
    let (version_id, told) = match done.await {
        Err(Error::NoSuchUpload) => {
            let made = made_before(gateway, &view, &input.key, &etag).await?;
            let made = made.ok_or(S3ErrorCode::NoSuchUpload)?;
            (new_version(&made.version), sums::of_head(&made))
        }
        done => {
            let written = done.map_err(errors::of)?;
            let sum = made.get().and_then(|sum| sums::of_whole(sum, parts_count));
            (new_version(&written.version), sum)
        }
    };
    let version = version_id.as_ref().and_then(|version| version.parse().ok());
    headers.extend(version.map(|version| (VERSION, version)));
    if let Some(Made(to_tell)) = request.extensions.get() {
        let _ = to_tell.set(headers);
    }
    let mut output = CompleteMultipartUploadOutput {
        checksum_type: told.as_ref().map(Told::kind_of_sum),
        location: Some(format!("/{}/{}", input.bucket, input.key)),
        bucket: Some(input.bucket),
        key: Some(input.key),
        e_tag: Some(quoted(&etag)),
        version_id,
        ..CompleteMultipartUploadOutput::default()
    };
    tell!(told, output);
    Ok(S3Response::new(output))
}

pub async fn abort_multipart_upload(
    gateway: &Gateway,
    request: S3Request<AbortMultipartUploadInput>,
) -> S3Result<S3Response<AbortMultipartUploadOutput>> {
    let (caller, input) = (caller(&request), request.input);
    let view =
        gateway.bucket_with_key(&caller, &input.bucket, Action::AbortMultipartUpload, &input.key).await?;
    let upload = UploadId { name: input.key.into(), id: input.upload_id.into() };
    let done = gateway.now(|moment| gateway.site().abort_upload(&view.info, upload, moment)).await;
    done.map_err(errors::of)?;
    Ok(S3Response::new(AbortMultipartUploadOutput::default()))
}

pub async fn list_parts(
    gateway: &Gateway,
    request: S3Request<ListPartsInput>,
) -> S3Result<S3Response<ListPartsOutput>> {
    let (caller, input) = (caller(&request), request.input);
    let view = gateway.bucket(&caller, &input.bucket).await?;
    let target = Target { key: input.key.as_bytes(), acl: &view.acl, attrs: &Attrs::new() };
    if !view.may_with(&caller, Action::ListMultipartUploadParts, &target) {
        return Err(S3ErrorCode::AccessDenied.into());
    }
    let (shown_max, max) = max_keys(input.max_parts)?;
    let after = input.part_number_marker.as_deref().unwrap_or("0");
    let number = after.parse().map_err(|_| s3_error!(InvalidArgument, "the marker is no number"))?;
    let upload = UploadId { name: input.key.clone().into(), id: input.upload_id.clone().into() };
    let listed = gateway.read(gateway.site().parts(&view.info, &upload, number)).await;
    let (mut parts, mut more) = listed.map_err(errors::of)?;
    if parts.len() > max {
        parts.truncate(max);
        more = true;
    }
    let part = |part: &rgw::PartInfo| {
        let mut output = Part {
            e_tag: Some(quoted(&part.etag)),
            last_modified: Some(timestamp(part.modified)),
            part_number: i32::try_from(part.number).ok(),
            size: i64::try_from(part.accounted_size).ok(),
            ..Part::default()
        };
        tell!(part.checksum.as_ref().and_then(sums::of_bytes), output);
        output
    };
    let begun = gateway.read(gateway.site().upload_attrs(&view.info, &upload)).await.map_err(errors::of)?;
    let way = sums::way_of_upload(&begun);
    let initiated = grants::owner(&caller.owner());
    // Whose the object will be.
    let acl = begun.get(attrs::ACL.as_bytes()).and_then(|raw| AccessControl::from_bytes(raw.clone()).ok());
    let owner = acl.map_or_else(|| initiated.clone(), |acl| grants::owner(&acl.owner));
    let initiator = Initiator { display_name: initiated.display_name, id: initiated.id };
    Ok(S3Response::new(ListPartsOutput {
        checksum_algorithm: way.map(algorithm_of),
        checksum_type: way.map(type_of),
        bucket: Some(input.bucket),
        key: Some(input.key),
        upload_id: Some(input.upload_id),
        part_number_marker: Some(after.to_owned()),
        next_part_number_marker: parts.last().filter(|_| more).map(|part| part.number.to_string()),
        max_parts: Some(shown_max),
        is_truncated: Some(more),
        parts: Some(parts.iter().map(part).collect()),
        owner: Some(owner),
        initiator: Some(initiator),
        storage_class: Some(StorageClass::from_static(StorageClass::STANDARD)),
        ..ListPartsOutput::default()
    }))
}

/// Where a list of uploads goes on behind a key, or behind one of its uploads. Entries of uploads have the
/// name, the id, and an ending. A common prefix that was shown last is its own marker: all that begins with
/// it was shown.
fn behind_uploads(key: Bytes, id: &Bytes, prefix: &Bytes, delimiter: &Bytes) -> Bytes {
    let rest = key.strip_prefix(&prefix[..]).filter(|_| !delimiter.is_empty() && id.is_empty());
    let ends_there = |rest: &[u8]| {
        let first = rest.windows(delimiter.len()).position(|w| w == &delimiter[..]);
        first.is_some_and(|at| at + delimiter.len() == rest.len())
    };
    match () {
        () if key.is_empty() || rest.is_some_and(ends_there) => key,
        () if id.is_empty() => [&key[..], b".~"].concat().into(),
        () => [&key[..], b".", id, b".meta"].concat().into(),
    }
}

/// The markers of a page that is not the last: a key and an upload's id, which a common prefix has not.
fn next_upload(listed: &gateway::Listed) -> Option<(Bytes, Bytes)> {
    let next = listed.next.as_ref()?;
    if listed.prefixes.last() == Some(next) {
        return Some((next.clone(), Bytes::new()));
    }
    UploadId::from_name(next).map(|upload| (upload.name, upload.id))
}

pub async fn list_multipart_uploads(
    gateway: &Gateway,
    request: S3Request<ListMultipartUploadsInput>,
) -> S3Result<S3Response<ListMultipartUploadsOutput>> {
    let (caller, input) = (caller(&request), request.input);
    let view = gateway.bucket_for(&caller, &input.bucket, Action::ListBucketMultipartUploads).await?;
    let (names, (shown_max, max)) = (Names::new(input.encoding_type.as_ref())?, max_keys(input.max_uploads)?);
    let given = |text: &Option<String>| Bytes::from(text.clone().unwrap_or_default());
    let (key, id) = (given(&input.key_marker), given(&input.upload_id_marker));
    let (prefix, delimiter) = (given(&input.prefix), given(&input.delimiter));
    let after = behind_uploads(key, &id, &prefix, &delimiter);
    let listing = Listing { prefix, delimiter, after, max, ..Listing::default() };
    let listed = gateway.read(gateway.site().uploads(&view.info, listing)).await.map_err(errors::of)?;
    let next = next_upload(&listed);
    let upload = |(key, meta): &(rgw::Key, rgw::index::Meta)| {
        let upload = UploadId::from_name(&key.name)?;
        let (display_name, id) = (Some(text(&meta.owner_name)), Some(text(&meta.owner)));
        Some(MultipartUpload {
            initiated: Some(timestamp(meta.mtime)),
            initiator: Some(Initiator { display_name: display_name.clone(), id: id.clone() }),
            owner: Some(Owner { display_name, id }),
            key: Some(names.show(&upload.name)),
            upload_id: Some(text(&upload.id)),
            storage_class: Some(StorageClass::from_static(StorageClass::STANDARD)),
            ..MultipartUpload::default()
        })
    };
    let prefix = |prefix: &Bytes| CommonPrefix { prefix: Some(names.show(prefix)) };
    Ok(S3Response::new(ListMultipartUploadsOutput {
        bucket: Some(input.bucket),
        common_prefixes: Some(listed.prefixes.iter().map(prefix).collect()),
        delimiter: input.delimiter,
        encoding_type: input.encoding_type,
        is_truncated: Some(listed.next.is_some()),
        key_marker: input.key_marker,
        max_uploads: Some(shown_max),
        next_key_marker: next.as_ref().map(|(key, _)| names.show(key)),
        next_upload_id_marker: next.as_ref().map(|(_, id)| text(id)),
        prefix: input.prefix,
        upload_id_marker: input.upload_id_marker,
        uploads: Some(listed.objects.iter().filter_map(upload).collect()),
        ..ListMultipartUploadsOutput::default()
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(number: i32, etag: &str) -> CompletedPart {
        CompletedPart { part_number: Some(number), e_tag: Some(etag.into()), ..CompletedPart::default() }
    }

    fn code(parts: Vec<CompletedPart>) -> Option<String> {
        let upload = CompletedMultipartUpload { parts: Some(parts) };
        named_parts(Some(upload)).err().map(|e| e.code().as_str().to_owned())
    }

    #[test]
    fn parts_are_named_in_order() {
        let named =
            named_parts(Some(CompletedMultipartUpload { parts: Some(vec![part(1, "\"a\""), part(3, "b")]) }));
        assert_eq!(named.unwrap(), [(1, Bytes::from("a")), (3, Bytes::from("b"))]);
        let twice = CompletedMultipartUpload { parts: Some(vec![part(2, "a"), part(2, "b")]) };
        assert_eq!(named_parts(Some(twice)).unwrap(), [(2, Bytes::from("b"))]);
        for (parts, want) in [
            (vec![], "MalformedXML"),
            (vec![CompletedPart::default()], "MalformedXML"),
            (vec![part(2, "a"), part(1, "b")], "InvalidPartOrder"),
            (vec![part(-1, "a")], "InvalidPart"),
        ] {
            assert_eq!(code(parts).as_deref(), Some(want));
        }
        assert!(named_parts(None).is_err());
        assert!([0, -1, 10_001].map(|n| part_number(n).is_ok()) == [false; 3] && part_number(10_000).is_ok());
    }

    #[test]
    fn a_page_of_uploads_has_markers_that_lead_on() {
        let listed = |objects: &[&'static str], prefixes: &[&'static str], next: Option<&'static str>| {
            let objects = objects.iter().map(|name| (Key::plain(*name), <_>::default())).collect();
            let prefixes = prefixes.iter().map(|prefix| Bytes::from(*prefix)).collect();
            gateway::Listed { objects, prefixes, next: next.map(Bytes::from), ..<_>::default() }
        };
        let after = |key: &'static str, id: &'static str, prefix: &'static str, delimiter: &'static str| {
            behind_uploads(key.into(), &id.into(), &prefix.into(), &delimiter.into())
        };
        assert_eq!(next_upload(&listed(&[], &["d/"], None)), None);
        let next = next_upload(&listed(&["a.2~x.meta"], &["d/"], Some("d/"))).unwrap();
        assert_eq!(next, ("d/".into(), "".into()));
        assert_eq!(after("d/", "", "", "/"), "d/");
        let next = next_upload(&listed(&["a.b.2~x.meta"], &[], Some("a.b.2~x.meta"))).unwrap();
        assert_eq!(next, ("a.b".into(), "2~x".into()));
        assert_eq!(after("a.b", "2~x", "", "/"), "a.b.2~x.meta");
        // A key that a client names by itself: behind all of its uploads.
        assert_eq!((after("a", "", "", "/"), after("d/", "", "", "")), ("a.~".into(), "d/.~".into()));
        assert_eq!((after("", "x", "", ""), after("d/e", "", "", "/")), ("".into(), "d/e.~".into()));
        assert_eq!(
            (after("d/e/", "", "d/", "/"), after("d/", "", "d/", "/")),
            ("d/e/".into(), "d/.~".into())
        );
    }

    #[test]
    fn the_tag_of_a_whole_is_the_sum_of_its_parts_sums() {
        // Of 5 MiB and 1 MiB of zeros.
        let parts = ["5f363e0e58a95f06cbe9bbc662c5dfb6", "b6d81b360a5672d80c27430f39153e2c"].map(Bytes::from);
        assert_eq!(whole_etag(&parts), "b7992ce8540773fdfcab72bd0e8c4c64-2");
        assert_eq!(writer::hex(&Md5::digest(vec![0; 1 << 20])), parts[1]);
    }
}

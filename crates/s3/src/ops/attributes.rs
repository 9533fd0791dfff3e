//! What an object is like, without its bytes: GetObjectAttributes, which 16.2 has not.

use gateway::Opened;
use rgw::{CksumKind, Manifest};
use s3s::dto::*;
use s3s::{S3ErrorCode, S3Request, S3Response, S3Result, s3_error};

use super::objects::named;
use super::reader;
use super::sums::{self, Told, tell};
use crate::attrs::{storage_class, timestamp};
use crate::encryption;
use crate::state::{Gateway, caller};

/// Parts that one answer has at most. Source: AWS's documentation of x-amz-max-parts.
const MAX_PARTS: i32 = 1000;

pub async fn get_object_attributes(
    gateway: &Gateway,
    request: S3Request<GetObjectAttributesInput>,
) -> S3Result<S3Response<GetObjectAttributesOutput>> {
    let (caller, input) = (caller(&request), &request.input);
    let wanted = wanted(&input.object_attributes)?;
    let wants = |name: &str| wanted.contains(&name);
    let view = gateway.bucket(&caller, &input.bucket).await?;
    // Whoever may read all of an object may read what it is like.
    let key = reader::key(&input.key, named(input.version_id.as_ref()));
    let opened = reader::open(gateway, &caller, &view, &key, 0).await?;
    let (opened, headers) = encryption::asked(&request).open(&gateway.settings().encryption, opened).await?;
    let mut parts = wants("ObjectParts").then(|| parts(&opened, input)).transpose()?.flatten();
    let whole = sums::of_head(&opened.head);
    if let Some(page) = parts.as_mut().and_then(|page| page.parts.as_mut()).filter(|_| whole.is_some()) {
        let numbers: Vec<u32> =
            page.iter().filter_map(|part| part.part_number).filter_map(|n| u32::try_from(n).ok()).collect();
        let told = sums::of_parts(gateway, &opened, &numbers).await?;
        for (part, told) in page.iter_mut().zip(told) {
            tell!(told, part);
        }
    }
    let head = &opened.head;
    let class = || StorageClass::from(storage_class(head).unwrap_or(StorageClass::STANDARD).to_owned());
    let output = GetObjectAttributesOutput {
        checksum: whole.filter(|_| wants("Checksum")).map(|told| checksum(&told)),
        e_tag: wants("ETag").then(|| String::from_utf8_lossy(&head.etag()).into_owned()),
        object_size: wants("ObjectSize").then(|| i64::try_from(opened.size()).ok()).flatten(),
        storage_class: wants("StorageClass").then(class),
        object_parts: parts,
        last_modified: Some(timestamp(head.modified)),
        version_id: view.version(&head.version),
        ..GetObjectAttributesOutput::default()
    };
    Ok(S3Response::with_headers(output, headers))
}

fn checksum(told: &Told) -> Checksum {
    let mut checksum = Checksum { checksum_type: Some(told.kind_of_sum()), ..Checksum::default() };
    tell!(Some(told), checksum);
    checksum
}

/// What is asked for, in headers with commas in them.
fn wanted(asked: &[ObjectAttributes]) -> S3Result<Vec<&str>> {
    let known = ["ETag", "Checksum", "ObjectParts", "StorageClass", "ObjectSize"];
    let all: Vec<&str> = asked.iter().flat_map(|names| names.as_str().split(',')).map(str::trim).collect();
    if all.iter().any(|name| !known.contains(name)) {
        return Err(s3_error!(InvalidArgument, "x-amz-object-attributes names what objects do not have"));
    }
    Ok(all)
}

/// A page of an object's parts; `None` for what was not uploaded in parts.
fn parts(opened: &Opened, input: &GetObjectAttributesInput) -> S3Result<Option<GetObjectAttributesParts>> {
    let marker = match input.part_number_marker.as_deref() {
        None | Some("") => 0,
        Some(text) => text.parse::<u32>().map_err(|_| S3ErrorCode::InvalidArgument)?,
    };
    let max = input.max_parts.unwrap_or(MAX_PARTS);
    if max < 0 {
        return Err(s3_error!(InvalidArgument, "x-amz-max-parts is no count"));
    }
    Ok(opened.head.manifest.as_ref().and_then(|manifest| page(manifest, marker, max.min(MAX_PARTS))))
}

/// At most `max` parts behind the one with this number.
fn page(manifest: &Manifest, marker: u32, max: i32) -> Option<GetObjectAttributesParts> {
    let total = manifest.parts()?;
    let mut behind = manifest.parts_behind(marker);
    let told = |(number, span): (u32, std::ops::Range<u64>)| ObjectPart {
        part_number: i32::try_from(number).ok(),
        size: i64::try_from(span.end.saturating_sub(span.start)).ok(),
        ..ObjectPart::default()
    };
    let parts: Vec<ObjectPart> = behind.by_ref().take(usize::try_from(max).unwrap_or(0)).map(told).collect();
    // A page of none leads nowhere.
    let last = parts.last().and_then(|part| part.part_number).filter(|_| behind.next().is_some());
    Some(GetObjectAttributesParts {
        is_truncated: Some(last.is_some()),
        max_parts: Some(max),
        next_part_number_marker: last.map(|number| number.to_string()),
        part_number_marker: Some(marker.to_string()),
        parts: Some(parts),
        total_parts_count: i32::try_from(total).ok(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_named_in_one_header_or_several() {
        let of = |headers: &[&str]| {
            let all: Vec<_> = headers.iter().map(|text| ObjectAttributes::from((*text).to_owned())).collect();
            wanted(&all).map(|names| names.join(" ")).ok()
        };
        assert_eq!(of(&["ETag,ObjectSize", "Checksum"]).as_deref(), Some("ETag ObjectSize Checksum"));
        assert_eq!(of(&["ETag, ObjectParts"]).as_deref(), Some("ETag ObjectParts"));
        assert_eq!((of(&["ETag,"]), of(&["Owner"])), (None, None));
    }

    #[test]
    fn parts_are_told_in_pages() {
        let mut manifest = Manifest::default();
        for (number, size) in [(1, 10), (2, 10), (4, 3)] {
            let part = Manifest::part(<_>::default(), <_>::default(), "p".into(), number, size, 4);
            assert!(manifest.append(&part));
        }
        let told = |marker, max| {
            let page = page(&manifest, marker, max).unwrap();
            let parts = page.parts.unwrap().into_iter();
            let parts: Vec<_> = parts.map(|p| (p.part_number.unwrap(), p.size.unwrap())).collect();
            assert_eq!((page.total_parts_count, page.max_parts), (Some(3), Some(max)));
            assert_eq!(page.is_truncated, Some(page.next_part_number_marker.is_some()));
            (parts, page.next_part_number_marker)
        };
        assert_eq!(told(0, 1000), (vec![(1, 10), (2, 10), (4, 3)], None));
        assert_eq!(told(0, 2), (vec![(1, 10), (2, 10)], Some("2".to_owned())));
        assert_eq!(told(2, 2), (vec![(4, 3)], None));
        assert_eq!(told(4, 2), (Vec::new(), None));
        assert_eq!(told(1, 0), (Vec::new(), None));
        let whole = Manifest::whole(<_>::default(), <_>::default(), "p".into(), 9, 4, 4);
        assert!(page(&whole, 0, 9).is_none());
    }
}

//! Lists of a bucket's objects, in both versions.

use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use bytes::Bytes;
use gateway::{Listed, ListedVersion, Listing};
use rgw::policy::Action;
use rgw::{Key, index::Meta};
use s3s::dto::*;
use s3s::{S3Request, S3Response, S3Result, s3_error};

use crate::attrs::{quoted, timestamp};
use crate::errors;
use crate::state::{Gateway, caller};

/// Names that one answer has, at most. Source: rgw_max_listing_results in src/common/options.cc.
const MAX_KEYS: i32 = 1000;

/// Names as an answer has them: they may be no XML.
#[derive(Debug, Clone, Copy)]
pub struct Names {
    is_url: bool,
}

impl Names {
    pub fn new(encoding: Option<&EncodingType>) -> S3Result<Self> {
        match encoding.map(|encoding| encoding.as_str()) {
            None => Ok(Self { is_url: false }),
            Some("url") => Ok(Self { is_url: true }),
            Some(_) => Err(s3_error!(InvalidArgument, "names are encoded as 'url' or not at all")),
        }
    }

    /// Names as URLs have them.
    pub fn escaped() -> Self {
        Self { is_url: true }
    }

    pub fn show(self, name: &[u8]) -> String {
        if !self.is_url {
            return String::from_utf8_lossy(name).into_owned();
        }
        let mut out = String::with_capacity(name.len());
        for b in name {
            match b {
                b'-' | b'_' | b'.' | b'~' | b'/' => out.push(char::from(*b)),
                b if b.is_ascii_alphanumeric() => out.push(char::from(*b)),
                b => out.push_str(&format!("%{b:02X}")),
            }
        }
        out
    }
}

/// How many entries are wanted.
pub fn max_keys(wanted: Option<i32>) -> S3Result<(i32, usize)> {
    let wanted = wanted.unwrap_or(MAX_KEYS);
    let max = usize::try_from(wanted).map_err(|_| s3_error!(InvalidArgument, "max-keys is negative"))?;
    Ok((wanted, max.min(1000)))
}

fn object(names: Names, with_owner: bool, (key, meta): (Key, Meta)) -> Object {
    let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
    let class = if meta.storage_class.is_empty() { "STANDARD".to_owned() } else { text(&meta.storage_class) };
    let owner = || Owner { display_name: Some(text(&meta.owner_name)), id: Some(text(&meta.owner)) };
    Object {
        e_tag: Some(quoted(&meta.etag)),
        key: Some(names.show(&key.name)),
        last_modified: Some(timestamp(meta.mtime)),
        owner: with_owner.then(owner),
        size: i64::try_from(meta.accounted_size).ok(),
        storage_class: Some(ObjectStorageClass::from(class)),
        ..Object::default()
    }
}

struct Page {
    contents: Vec<Object>,
    prefixes: Vec<CommonPrefix>,
    next: Option<Bytes>,
}

async fn page<T>(
    gateway: &Gateway,
    request: &S3Request<T>,
    bucket: &str,
    (listing, action): (Listing, Action),
    (names, with_owner): (Names, bool),
) -> S3Result<Page> {
    let view = gateway.bucket_for(&caller(request), bucket, action).await?;
    let listed: Listed =
        gateway.read(gateway.site().list(&Arc::clone(&view.info), listing)).await.map_err(errors::of)?;
    let prefix = |prefix: Bytes| CommonPrefix { prefix: Some(names.show(&prefix)) };
    Ok(Page {
        contents: listed.objects.into_iter().map(|entry| object(names, with_owner, entry)).collect(),
        prefixes: listed.prefixes.into_iter().map(prefix).collect(),
        next: listed.next,
    })
}

fn bytes(text: Option<&String>) -> Bytes {
    text.cloned().unwrap_or_default().into()
}

pub async fn list_objects(
    gateway: &Gateway,
    request: S3Request<ListObjectsInput>,
) -> S3Result<S3Response<ListObjectsOutput>> {
    let input = &request.input;
    let (names, (shown_max, max)) = (Names::new(input.encoding_type.as_ref())?, max_keys(input.max_keys)?);
    let (prefix, delimiter) = (bytes(input.prefix.as_ref()), bytes(input.delimiter.as_ref()));
    let listing =
        Listing { prefix, delimiter, after: bytes(input.marker.as_ref()), max, ..Listing::default() };
    let page = page(gateway, &request, &input.bucket, (listing, Action::ListBucket), (names, true)).await?;
    let shown = |text: &String| names.show(text.as_bytes());
    Ok(S3Response::new(ListObjectsOutput {
        common_prefixes: Some(page.prefixes),
        contents: Some(page.contents),
        delimiter: input.delimiter.as_ref().filter(|d| !d.is_empty()).map(shown),
        encoding_type: input.encoding_type.clone(),
        is_truncated: Some(page.next.is_some()),
        marker: Some(input.marker.as_ref().map(shown).unwrap_or_default()),
        max_keys: Some(shown_max),
        name: Some(input.bucket.clone()),
        next_marker: page.next.as_ref().map(|next| names.show(next)),
        prefix: Some(input.prefix.as_ref().map(|prefix| shown_prefix(names, prefix)).unwrap_or_default()),
        request_charged: None,
    }))
}

/// Clients undo no escapes of a prefix in the first version of lists: it has some only where it is no XML.
fn shown_prefix(names: Names, prefix: &str) -> String {
    match prefix.chars().any(|c| c < ' ' && !matches!(c, '\t' | '\n' | '\r')) {
        true => names.show(prefix.as_bytes()),
        false => prefix.to_owned(),
    }
}

/// Where to go on, as a client gives it back.
fn token(name: &Bytes) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(name)
}

fn from_token(token: &str) -> S3Result<Bytes> {
    let decoded = BASE64_URL_SAFE_NO_PAD.decode(token);
    Ok(decoded.map_err(|_| s3_error!(InvalidArgument, "the continuation token is none"))?.into())
}

pub async fn list_objects_v2(
    gateway: &Gateway,
    request: S3Request<ListObjectsV2Input>,
) -> S3Result<S3Response<ListObjectsV2Output>> {
    let input = &request.input;
    let (names, (shown_max, max)) = (Names::new(input.encoding_type.as_ref())?, max_keys(input.max_keys)?);
    let after = match &input.continuation_token {
        Some(given) => from_token(given)?,
        None => bytes(input.start_after.as_ref()),
    };
    let (prefix, delimiter) = (bytes(input.prefix.as_ref()), bytes(input.delimiter.as_ref()));
    let listing = Listing { prefix, delimiter, after, max, ..Listing::default() };
    let with_owner = input.fetch_owner.unwrap_or(false);
    let page =
        page(gateway, &request, &input.bucket, (listing, Action::ListBucket), (names, with_owner)).await?;
    let shown = |text: &String| names.show(text.as_bytes());
    let count = page.contents.len().saturating_add(page.prefixes.len());
    Ok(S3Response::new(ListObjectsV2Output {
        common_prefixes: Some(page.prefixes),
        contents: Some(page.contents),
        continuation_token: input.continuation_token.clone(),
        delimiter: input.delimiter.as_ref().filter(|d| !d.is_empty()).map(shown),
        encoding_type: input.encoding_type.clone(),
        is_truncated: Some(page.next.is_some()),
        key_count: i32::try_from(count).ok(),
        max_keys: Some(shown_max),
        name: Some(input.bucket.clone()),
        next_continuation_token: page.next.as_ref().map(token),
        prefix: Some(input.prefix.as_ref().map(shown).unwrap_or_default()),
        request_charged: None,
        start_after: input.start_after.as_ref().map(shown),
    }))
}

/// Where a list of versions goes on: the version without an id is behind no other one where none is named.
fn version_marker(input: &ListObjectVersionsInput) -> S3Result<Bytes> {
    let (key, version) = (bytes(input.key_marker.as_ref()), bytes(input.version_id_marker.as_ref()));
    match key.is_empty() && !version.is_empty() {
        true => {
            Err(s3_error!(InvalidArgument, "a version-id marker cannot be specified without a key marker"))
        }
        false => Ok(version),
    }
}

/// One of a bucket's versions, or of its delete markers.
fn version(names: Names, (listed, object): (&ListedVersion, Object)) -> ObjectVersion {
    ObjectVersion {
        e_tag: object.e_tag,
        is_latest: Some(listed.is_latest),
        key: Some(names.show(&listed.key.name)),
        last_modified: object.last_modified,
        owner: object.owner,
        size: object.size,
        storage_class: object.storage_class.map(|class| class.as_str().to_owned().into()),
        version_id: Some(String::from_utf8_lossy(&listed.key.instance).into_owned()),
        ..ObjectVersion::default()
    }
}

fn marker(version: ObjectVersion) -> DeleteMarkerEntry {
    DeleteMarkerEntry {
        is_latest: version.is_latest,
        key: version.key,
        last_modified: version.last_modified,
        owner: version.owner,
        version_id: version.version_id,
    }
}

pub async fn list_object_versions(
    gateway: &Gateway,
    request: S3Request<ListObjectVersionsInput>,
) -> S3Result<S3Response<ListObjectVersionsOutput>> {
    let input = &request.input;
    let (names, (shown_max, max)) = (Names::new(input.encoding_type.as_ref())?, max_keys(input.max_keys)?);
    let listing = Listing {
        prefix: bytes(input.prefix.as_ref()),
        delimiter: bytes(input.delimiter.as_ref()),
        after: bytes(input.key_marker.as_ref()),
        versions: true,
        after_version: version_marker(input)?,
        max,
    };
    let view = gateway.bucket_for(&caller(&request), &input.bucket, Action::ListBucketVersions).await?;
    let listed = gateway.read(gateway.site().list(&view.info, listing)).await.map_err(errors::of)?;
    let (mut versions, mut markers) = (Vec::new(), Vec::new());
    for found in &listed.versions {
        let object = object(names, true, (found.key.clone(), found.meta.clone()));
        let shown = version(names, (found, object));
        match found.is_marker {
            true => markers.push(marker(shown)),
            false => versions.push(shown),
        }
    }
    let shown = |text: &String| names.show(text.as_bytes());
    let prefix = |prefix: &Bytes| CommonPrefix { prefix: Some(names.show(prefix)) };
    let next_version = match listed.next_version.is_empty() {
        true => "null".to_owned(),
        false => String::from_utf8_lossy(&listed.next_version).into_owned(),
    };
    Ok(S3Response::new(ListObjectVersionsOutput {
        common_prefixes: Some(listed.prefixes.iter().map(prefix).collect()),
        delete_markers: Some(markers),
        delimiter: input.delimiter.as_ref().filter(|d| !d.is_empty()).map(shown),
        encoding_type: input.encoding_type.clone(),
        is_truncated: Some(listed.next.is_some()),
        key_marker: input.key_marker.as_ref().map(shown),
        max_keys: Some(shown_max),
        name: Some(input.bucket.clone()),
        next_key_marker: listed.next.as_ref().map(|next| names.show(next)),
        next_version_id_marker: listed.next.as_ref().map(|_| next_version),
        prefix: Some(input.prefix.as_ref().map(shown).unwrap_or_default()),
        version_id_marker: input.version_id_marker.clone(),
        versions: Some(versions),
        ..ListObjectVersionsOutput::default()
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_shown_as_asked_for() {
        let url = Names::new(Some(&EncodingType::from_static("url"))).unwrap();
        assert_eq!(url.show("a b/ö+".as_bytes()), "a%20b/%C3%B6%2B");
        assert_eq!(Names::new(None).unwrap().show("a b/ö+".as_bytes()), "a b/ö+");
        assert!(Names::new(Some(&EncodingType::from_static("x"))).is_err());
    }

    #[test]
    fn tokens_come_back_and_others_are_refused() {
        let name = Bytes::from_static(b"a/\xff b");
        assert_eq!(from_token(&token(&name)).unwrap(), name);
        assert!(from_token("=?").is_err());
        assert!(max_keys(Some(-1)).is_err());
        assert_eq!(max_keys(Some(5000)).unwrap(), (5000, 1000));
        assert_eq!(max_keys(Some(0)).unwrap(), (0, 0));
    }
}

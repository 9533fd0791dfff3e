//! Buckets.

use gateway::{Error, Listing, NewBucket, SharedBucket, UploadId};
use rgw::{Permissions, PlacementRule, Versioning};
use s3s::dto::*;
use s3s::{S3ErrorCode, S3Request, S3Response, S3Result, s3_error};

use crate::attrs::timestamp;
use crate::rights::Does;
use crate::state::{Gateway, caller};
use crate::{errors, grants};

/// Buckets that one answer has, at most.
const MAX_BUCKETS: usize = 10_000;
/// Uploads that are looked at together.
const MAX_UPLOADS: usize = 1000;

pub async fn list_buckets(
    gateway: &Gateway,
    request: S3Request<ListBucketsInput>,
) -> S3Result<S3Response<ListBucketsOutput>> {
    let caller = caller(&request);
    let user = caller.user().ok_or(S3ErrorCode::AccessDenied)?;
    if !caller.may(Does::Read) {
        return Err(S3ErrorCode::AccessDenied.into());
    }
    let mut buckets: Vec<Bucket> = Vec::new();
    let mut marker = bytes::Bytes::new();
    loop {
        let page = gateway.site().user_buckets(&user.id, marker.clone(), i32::MAX);
        let (page, more) = gateway.run(page).await.map_err(errors::of)?;
        buckets.extend(page.iter().map(|entry| Bucket {
            bucket_region: None,
            creation_date: Some(timestamp(entry.created)),
            name: Some(String::from_utf8_lossy(&entry.bucket.name).into_owned()),
        }));
        match page.last() {
            Some(last) if more && buckets.len() < MAX_BUCKETS => marker = last.bucket.name.clone(),
            _ => break,
        }
    }
    let owner = Some(grants::owner(&caller.owner()));
    let output = ListBucketsOutput { buckets: Some(buckets), owner, ..ListBucketsOutput::default() };
    Ok(S3Response::new(output))
}

/// The placement that a bucket's place asks for: `zonegroup`, `zonegroup:placement` or `:placement`.
fn placement(gateway: &Gateway, input: &CreateBucketInput) -> S3Result<PlacementRule> {
    let place = input.create_bucket_configuration.as_ref().and_then(|c| c.location_constraint.as_ref());
    let place = place.map(|place| place.as_str()).unwrap_or_default();
    let (zonegroup, placement) = place.split_once(':').unwrap_or((place, ""));
    if !zonegroup.is_empty() && zonegroup != gateway.settings().zonegroup {
        return Err(S3ErrorCode::InvalidLocationConstraint.into());
    }
    match placement {
        "" => Ok(PlacementRule::default()),
        name => Ok(PlacementRule::named(name.to_owned())),
    }
}

pub async fn create_bucket(
    gateway: &Gateway,
    request: S3Request<CreateBucketInput>,
) -> S3Result<S3Response<CreateBucketOutput>> {
    let (caller, input) = (caller(&request), request.input);
    let user = caller.user().ok_or(S3ErrorCode::AccessDenied)?;
    if !caller.may(Does::Write) || user.max_buckets < 0 {
        return Err(S3ErrorCode::AccessDenied.into());
    }
    if input.object_lock_enabled_for_bucket == Some(true) || input.object_ownership.is_some() {
        return Err(errors::not_served("locks and ownership of objects are not served"));
    }
    let owner = caller.owner();
    let acl = grants::canned(input.acl.as_ref().map(|acl| acl.as_str()), owner.clone(), &owner)?;
    let new = NewBucket {
        name: input.bucket.clone().into(),
        acl,
        placement: placement(gateway, &input)?,
        flags: Versioning::default(),
        number: gateway.number(),
        max_buckets: usize::try_from(user.max_buckets).ok().filter(|max| *max > 0),
    };
    let made = gateway.now(|moment| gateway.site().create_bucket(new, moment)).await;
    gateway.forget_bucket(&caller, &input.bucket);
    match made {
        Ok(_) => {}
        Err(Error::BucketExists) => {
            // Who has it already is told that it is there.
            let there = gateway.fresh_bucket(&caller, &input.bucket).await?;
            if !caller.is(&there.info.owner) {
                return Err(S3ErrorCode::BucketAlreadyExists.into());
            }
        }
        Err(Error::NoSuchPlacement) => return Err(S3ErrorCode::InvalidLocationConstraint.into()),
        Err(e) => return Err(errors::of(e)),
    }
    Ok(S3Response::new(CreateBucketOutput { location: Some(format!("/{}", input.bucket)) }))
}

/// Gives up what is uploaded to a bucket without objects. Source: RGWDeleteBucket::execute, which does so,
/// too.
async fn end_uploads(gateway: &Gateway, bucket: &SharedBucket) -> S3Result<()> {
    let one = Listing { max: 1, ..Listing::default() };
    let objects = gateway.run(gateway.site().list(bucket, one)).await.map_err(errors::of)?;
    if !objects.objects.is_empty() {
        return Err(S3ErrorCode::BucketNotEmpty.into());
    }
    let mut after = bytes::Bytes::new();
    loop {
        let listing = Listing { after, max: MAX_UPLOADS, ..Listing::default() };
        let page = gateway.run(gateway.site().uploads(bucket, listing)).await.map_err(errors::of)?;
        for upload in page.objects.iter().filter_map(|(key, _)| UploadId::from_name(&key.name)) {
            match gateway.now(|moment| gateway.site().abort_upload(bucket, upload, moment)).await {
                Ok(()) | Err(Error::NoSuchUpload) => {}
                Err(e) => return Err(errors::of(e)),
            }
        }
        match page.next {
            Some(next) => after = next,
            None => return Ok(()),
        }
    }
}

pub async fn delete_bucket(
    gateway: &Gateway,
    request: S3Request<DeleteBucketInput>,
) -> S3Result<S3Response<DeleteBucketOutput>> {
    let (caller, name) = (caller(&request), &request.input.bucket);
    gateway.bucket_for(&caller, name, Does::Delete, Permissions::WRITE).await?;
    let fresh = gateway.fresh_bucket(&caller, name).await?;
    end_uploads(gateway, &fresh.info).await?;
    let state = fresh.state;
    let removed = gateway.run(gateway.site().remove_bucket(state)).await;
    gateway.forget_bucket(&caller, name);
    removed.map_err(errors::of)?;
    Ok(S3Response::new(DeleteBucketOutput {}))
}

pub async fn head_bucket(
    gateway: &Gateway,
    request: S3Request<HeadBucketInput>,
) -> S3Result<S3Response<HeadBucketOutput>> {
    let caller = caller(&request);
    gateway.bucket_for(&caller, &request.input.bucket, Does::Read, Permissions::READ).await?;
    Ok(S3Response::new(HeadBucketOutput::default()))
}

/// Whose it is may know what a bucket is.
async fn own_bucket(gateway: &Gateway, caller: &crate::users::Caller, name: &str) -> S3Result<()> {
    let view = gateway.bucket(caller, name).await?;
    match caller.is(&view.info.owner) && caller.may(Does::Read) {
        true => Ok(()),
        false => Err(s3_error!(AccessDenied)),
    }
}

pub async fn get_bucket_location(
    gateway: &Gateway,
    request: S3Request<GetBucketLocationInput>,
) -> S3Result<S3Response<GetBucketLocationOutput>> {
    own_bucket(gateway, &caller(&request), &request.input.bucket).await?;
    let place = gateway.settings().zonegroup.clone();
    let location_constraint = Some(BucketLocationConstraint::from(place));
    Ok(S3Response::new(GetBucketLocationOutput { location_constraint }))
}

/// Buckets that keep versions are not served: of all others none was ever asked for.
pub async fn get_bucket_versioning(
    gateway: &Gateway,
    request: S3Request<GetBucketVersioningInput>,
) -> S3Result<S3Response<GetBucketVersioningOutput>> {
    own_bucket(gateway, &caller(&request), &request.input.bucket).await?;
    Ok(S3Response::new(GetBucketVersioningOutput::default()))
}

//! Buckets.

use std::net::Ipv4Addr;

use gateway::{Error, Listing, NewBucket, SharedBucket, UploadId};
use hyper::HeaderMap;
use rgw::policy::Action;
use rgw::{AccessControl, Ownership, PlacementRule, Versioning};
use s3s::dto::*;
use s3s::{S3ErrorCode, S3Request, S3Response, S3Result, s3_error};

use crate::attrs::timestamp;
use crate::config::{self, lock};
use crate::state::{Gateway, caller, now};
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
    let owner = Some(grants::owner(&caller.owner()));
    let Some(user) = caller.user() else {
        // Nobody has none.
        let (buckets, none) = (Some(Vec::new()), ListBucketsOutput::default());
        return Ok(S3Response::new(ListBucketsOutput { buckets, owner, ..none }));
    };
    if !caller.may_by_itself(Action::ListAllMyBuckets, b"*") {
        return Err(S3ErrorCode::AccessDenied.into());
    }
    let max = most(request.input.max_buckets)?;
    let ListBucketsInput { continuation_token, prefix, bucket_region, .. } = request.input;
    let start = prefix.clone().unwrap_or_default();
    // All are in the zone group.
    let is_here = bucket_region.is_none_or(|region| region == gateway.settings().zonegroup);
    let mut buckets: Vec<Bucket> = Vec::new();
    let mut marker = bytes::Bytes::from(continuation_token.unwrap_or_default());
    while is_here && buckets.len() <= max {
        let page = gateway.site().user_buckets(&user.id, marker.clone(), i32::MAX);
        let (page, more) = gateway.read(page).await.map_err(errors::of)?;
        let meant = page.iter().filter(|entry| entry.bucket.name.starts_with(start.as_bytes()));
        buckets.extend(meant.map(|entry| Bucket {
            bucket_region: None,
            creation_date: Some(timestamp(entry.created)),
            name: Some(String::from_utf8_lossy(&entry.bucket.name).into_owned()),
        }));
        match page.last() {
            Some(last) if more => marker = last.bucket.name.clone(),
            _ => break,
        }
    }
    let more = buckets.len() > max;
    buckets.truncate(max);
    // The next page begins behind the last one that is told of.
    let continuation_token = buckets.last().and_then(|last| last.name.clone()).filter(|_| more);
    let output = ListBucketsOutput { buckets: Some(buckets), continuation_token, owner, prefix };
    Ok(S3Response::new(output))
}

/// How many buckets an answer has at most.
fn most(asked: Option<i32>) -> S3Result<usize> {
    let Some(asked) = asked else { return Ok(MAX_BUCKETS) };
    let good = usize::try_from(asked).ok().filter(|max| (1..=MAX_BUCKETS).contains(max));
    good.ok_or_else(|| s3_error!(InvalidArgument, "max-buckets is from 1 to 10,000"))
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

/// Whether a bucket may have this name. Source: valid_s3_bucket_name in src/rgw/rgw_rest_s3.h.
fn is_bucket_name(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let label = |label: &str| {
        let ends = label.as_bytes().first().zip(label.as_bytes().last());
        ends.is_some_and(|(first, last)| plain(*first) && plain(*last))
            && label.bytes().all(|b| plain(b) || b == b'-' || b == b'_')
    };
    (3..=63).contains(&name.len()) && name.split('.').all(label) && name.parse::<Ipv4Addr>().is_err()
}

pub async fn create_bucket(
    gateway: &Gateway,
    request: S3Request<CreateBucketInput>,
) -> S3Result<S3Response<CreateBucketOutput>> {
    let (caller, input) = (caller(&request), &request.input);
    let user = caller.user().ok_or(S3ErrorCode::AccessDenied)?;
    let may = caller.may_by_itself(Action::CreateBucket, input.bucket.as_bytes());
    if !may || user.max_buckets < 0 || !caller.is_at_home() {
        return Err(S3ErrorCode::AccessDenied.into());
    }
    let ownership = match &input.object_ownership {
        Some(name) => Some(Ownership::named(name.as_str()).ok_or(S3ErrorCode::InvalidArgument)?),
        None => None,
    };
    if !is_bucket_name(&input.bucket) {
        return Err(S3ErrorCode::InvalidBucketName.into());
    }
    let owner = caller.owner();
    let acl = grants::of_headers(gateway, &request.headers, owner.clone(), &owner).await?;
    if ownership == Some(Ownership::Enforced) && acl != AccessControl::private(owner.clone()) {
        return Err(config::ownership::shared());
    }
    let asked_for = acl.clone();
    let locks = input.object_lock_enabled_for_bucket == Some(true);
    let flags = if locks { Versioning::VERSIONED | Versioning::OBJECT_LOCK } else { 0 };
    let new = NewBucket {
        name: input.bucket.clone().into(),
        acl,
        placement: placement(gateway, input)?,
        flags: Versioning(flags),
        number: gateway.number(),
        max_buckets: usize::try_from(user.max_buckets).ok().filter(|max| *max > 0),
        attrs: ownership.iter().map(config::ownership::attr).collect(),
    };
    let made = gateway.now(|moment| gateway.site().create_bucket(new, moment)).await;
    gateway.forget_bucket(&caller, &input.bucket);
    match made {
        Ok(_) => {}
        Err(Error::BucketExists) => {
            // Who has it already is told that it is there, as long as nothing else is asked for.
            let there = gateway.fresh_bucket(&caller, &input.bucket).await?;
            let lacks_locks = locks && !lock::has_locks(&there);
            let is_other = there.acl != asked_for || there.ownership != ownership;
            if !caller.is(&there.info.owner) || is_other || lacks_locks {
                return Err(S3ErrorCode::BucketAlreadyExists.into());
            }
            gateway.run(gateway.site().link_again(&there.info, now())).await.map_err(errors::of)?;
        }
        Err(Error::NoSuchPlacement) => return Err(S3ErrorCode::InvalidLocationConstraint.into()),
        Err(e) => return Err(errors::of(e)),
    }
    Ok(S3Response::new(CreateBucketOutput { location: Some(format!("/{}", input.bucket)) }))
}

/// Gives up what is uploaded to a bucket without objects. Source: RGWDeleteBucket::execute, which does so,
/// too.
async fn end_uploads(gateway: &Gateway, bucket: &SharedBucket) -> S3Result<()> {
    let mut one = Listing { max: 1, ..Listing::default() };
    loop {
        // A page may end before an object is found.
        let page = gateway.run(gateway.site().list(bucket, one.clone())).await.map_err(errors::of)?;
        if !page.objects.is_empty() {
            return Err(S3ErrorCode::BucketNotEmpty.into());
        }
        let Some(next) = page.next else { break };
        one.after = next;
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
    // The right is looked up of the bucket that goes: another one may have had the name a moment ago.
    let fresh = gateway.fresh_bucket(&caller, name).await?;
    fresh.served()?;
    if !caller.means(&fresh.info.owner) || !fresh.may(&caller, Action::DeleteBucket) {
        return Err(S3ErrorCode::AccessDenied.into());
    }
    end_uploads(gateway, &fresh.info).await?;
    let logged = match fresh.logging {
        Some(_) => Some(gateway.fresh_bucket(&caller, name).await?),
        None => None,
    };
    let state = fresh.state;
    let removed = gateway.run(gateway.site().remove_bucket(state, now())).await;
    gateway.forget_bucket(&caller, name);
    removed.map_err(errors::of)?;
    if let Some(view) = logged {
        crate::logging::end(gateway, &view).await;
    }
    Ok(S3Response::new(DeleteBucketOutput {}))
}

pub async fn head_bucket(
    gateway: &Gateway,
    request: S3Request<HeadBucketInput>,
) -> S3Result<S3Response<HeadBucketOutput>> {
    let caller = caller(&request);
    let view = gateway.bucket_for(&caller, &request.input.bucket, Action::ListBucket).await?;
    let stats = gateway.read(gateway.site().bucket_stats(&view.info)).await.map_err(errors::of)?;
    let mut headers = HeaderMap::new();
    headers.insert("x-rgw-object-count", stats.objects().into());
    headers.insert("x-rgw-bytes-used", stats.bytes().into());
    if let Some(user) = caller.user().filter(|user| user.id == view.info.owner) {
        // Quotas are the owner's to know.
        headers.insert("x-rgw-quota-user-size", user.user_quota.max_size.into());
        headers.insert("x-rgw-quota-user-objects", user.user_quota.max_objects.into());
        headers.insert("x-rgw-quota-max-buckets", user.max_buckets.into());
        headers.insert("x-rgw-quota-bucket-size", user.bucket_quota.max_size.into());
        headers.insert("x-rgw-quota-bucket-objects", user.bucket_quota.max_objects.into());
    }
    Ok(S3Response::with_headers(HeadBucketOutput::default(), headers))
}

pub async fn get_bucket_location(
    gateway: &Gateway,
    request: S3Request<GetBucketLocationInput>,
) -> S3Result<S3Response<GetBucketLocationOutput>> {
    gateway.own_bucket(&caller(&request), &request.input.bucket, Action::GetBucketLocation).await?;
    let place = gateway.settings().zonegroup.clone();
    let location_constraint = Some(BucketLocationConstraint::from(place));
    Ok(S3Response::new(GetBucketLocationOutput { location_constraint }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_have_names_of_hosts() {
        for name in ["abc", "a-b.c-d", "a_b", "1.2.3", &"x".repeat(63)] {
            assert!(is_bucket_name(name), "{name}");
        }
        for name in
            ["", "ab", "Abc", "-ab", "ab-", "a..b", "a-.b", "a.-b", "10.0.0.1", "a b", &"x".repeat(64)]
        {
            assert!(!is_bucket_name(name), "{name}");
        }
    }
}

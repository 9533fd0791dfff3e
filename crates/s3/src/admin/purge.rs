//! A bucket is removed with all that it holds.

use bytes::Bytes;
use gateway::{Error, Listing, Remover, SharedBucket, UploadId};
use s3s::S3Result;

use super::{buckets, errors};
use crate::state::{Gateway, now};

/// Entries of one page.
const PAGE: usize = 1000;
/// Rounds over a bucket that others go on writing to.
const ROUNDS: u32 = 4;

/// Removes a bucket with its versions and uploads. What a lock keeps stays, and so does the bucket then. A
/// request that ends halfway is sent again: what is gone is not looked for.
pub async fn bucket(gateway: &Gateway, tenant: &Bytes, name: &Bytes) -> S3Result<()> {
    for round in 1..=ROUNDS {
        let state = buckets::of_name(gateway, tenant, name).await?;
        let bucket: SharedBucket = state.instance.value.clone().into();
        objects(gateway, &bucket).await?;
        uploads(gateway, &bucket).await?;
        match gateway.run(gateway.site().remove_bucket(state, now())).await {
            Err(Error::BucketNotEmpty | Error::Raced) if round < ROUNDS => {}
            done => return done.map_err(errors::of),
        }
    }
    Err(errors::of(Error::BucketNotEmpty))
}

async fn objects(gateway: &Gateway, bucket: &SharedBucket) -> S3Result<()> {
    let by = Remover::default();
    let mut listing = Listing { versions: true, max: PAGE, ..Listing::default() };
    loop {
        let page = gateway.run(gateway.site().list(bucket, listing.clone())).await.map_err(errors::of)?;
        let versioned = bucket.flags.has(rgw::Versioning::VERSIONED);
        for version in page.versions {
            let mut key = version.key;
            if !versioned {
                key.instance = Bytes::new();
            }
            let gone = gateway.now(|moment| gateway.site().remove_version(bucket, key, &by, moment)).await;
            match gone {
                Ok(_) | Err(Error::NoSuchKey) => {}
                Err(e) => return Err(errors::of(e)),
            }
        }
        match page.next {
            Some(next) => (listing.after, listing.after_version) = (next, page.next_version),
            None => return Ok(()),
        }
    }
}

async fn uploads(gateway: &Gateway, bucket: &SharedBucket) -> S3Result<()> {
    let mut listing = Listing { max: PAGE, ..Listing::default() };
    loop {
        let page = gateway.run(gateway.site().uploads(bucket, listing.clone())).await.map_err(errors::of)?;
        for upload in page.objects.iter().filter_map(|(key, _)| UploadId::from_name(&key.name)) {
            match gateway.now(|moment| gateway.site().abort_upload(bucket, upload, moment)).await {
                Ok(()) | Err(Error::NoSuchUpload) => {}
                Err(e) => return Err(errors::of(e)),
            }
        }
        match page.next {
            Some(next) => listing.after = next,
            None => return Ok(()),
        }
    }
}

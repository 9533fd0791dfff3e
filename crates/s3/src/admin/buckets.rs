//! Buckets. Source: RGWBucketAdminOp in src/rgw/rgw_bucket.cc.

use bytes::Bytes;
use codec::Decode;
use gateway::{BucketState, Error, Remover};
use rgw::{AccessControl, Owner};
use s3s::S3Result;
use serde_json::{Map, Value, json};

use super::args::Args;
use super::shown::{Held, text};
use super::{errors, purge, shown, users};
use crate::ops::reader;
use crate::state::{Gateway, now};
use crate::{attrs, tags};

/// What each of an object's categories is called. Source: rgw_obj_category_name in src/rgw/rgw_common.cc.
const CATEGORIES: [&str; 5] = ["rgw.none", "rgw.main", "rgw.shadow", "rgw.multimeta", "rgw.cloudtiered"];
/// Buckets told of with their sums in one answer.
const MAX_TOLD: usize = 1000;

pub async fn of_name(gateway: &Gateway, tenant: &Bytes, name: &Bytes) -> S3Result<BucketState> {
    gateway.read(gateway.site().bucket(tenant, name)).await.map_err(errors::of)
}

/// The tenant and the name of a bucket that is called `tenant/name`, or is in the user's own tenant.
fn named(args: &Args) -> S3Result<(Bytes, Bytes)> {
    let name = args.wanted("bucket")?;
    match name.iter().position(|b| *b == b'/') {
        Some(at) => Ok((name.slice(..at), name.slice(at + 1..))),
        None if args.has("uid") => Ok((args.user()?.tenant, name)),
        None => Ok((args.text("tenant").unwrap_or_default(), name)),
    }
}

/// A bucket as radosgw tells of it.
async fn told(gateway: &Gateway, tenant: &Bytes, name: &Bytes) -> S3Result<Value> {
    let state = of_name(gateway, tenant, name).await?;
    let (info, kept) = (&state.instance.value, &state.instance.attrs);
    let stats = gateway.read(gateway.site().bucket_stats(info)).await.map_err(errors::of)?;
    let mut usage = Map::new();
    for (category, sums) in &stats.categories {
        let name = CATEGORIES.get(usize::from(*category)).copied().unwrap_or("rgw.none");
        let held = Held { bytes: sums.size, rounded: sums.size_rounded, objects: sums.entries };
        usage.insert(name.to_owned(), held.to_json());
    }
    let per_shard = |of: &dyn Fn(&gateway::ShardState) -> String| {
        let shards = stats.shards.iter().enumerate().map(|(n, shard)| format!("{n}#{}", of(shard)));
        shards.collect::<Vec<_>>().join(",")
    };
    let placement = match info.placement.is_standard() {
        true => text(&info.placement.name),
        false => format!("{}/{}", text(&info.placement.name), text(&info.placement.storage_class)),
    };
    let pools = &info.bucket.explicit;
    let kept = tags::stored(kept.get(attrs::TAGGING.as_bytes()))?;
    let tag_set: Map<String, Value> = kept.tags.iter().map(|(k, v)| (text(k), text(v).into())).collect();
    let mut told = json!({
        "bucket": text(name),
        "num_shards": info.layout.current.shards.count,
        "tenant": text(&info.bucket.tenant),
        "zonegroup": text(&info.zonegroup),
        "placement_rule": placement,
        "explicit_placement": {
            "data_pool": text(&pools.data.to_text()),
            "data_extra_pool": text(&pools.data_extra.to_text()),
            "index_pool": text(&pools.index.to_text()),
        },
        "id": text(&info.bucket.id),
        "marker": text(&info.bucket.marker),
        "index_type": "Normal",
        "owner": text(&info.owner.to_text()),
        "ver": per_shard(&|shard| shard.version.to_string()),
        "master_ver": per_shard(&|shard| shard.master_version.to_string()),
        "mtime": rgw::iso_8601::text(state.instance.mtime, 6),
        "creation_time": rgw::iso_8601::text(info.created, 6),
        "max_marker": per_shard(&|shard| text(&shard.max_marker)),
        "usage": usage,
        "bucket_quota": shown::quota(&info.quota),
    });
    if let (false, Some(fields)) = (tag_set.is_empty(), told.as_object_mut()) {
        fields.insert("tagset".to_owned(), tag_set.into());
    }
    Ok(told)
}

pub async fn info(gateway: &Gateway, args: &Args) -> S3Result<Option<Value>> {
    let stats = args.flag("stats")? == Some(true);
    if args.text("bucket").is_some() {
        let (tenant, name) = named(args)?;
        return Ok(Some(told(gateway, &tenant, &name).await?));
    }
    let names: Vec<(Bytes, Bytes)> = match args.text("uid") {
        Some(_) => {
            let user = args.user()?;
            users::of_id(gateway, &user).await?;
            let names = users::bucket_names(gateway, &user).await?;
            names.into_iter().map(|name| (user.tenant.clone(), name)).collect()
        }
        None => {
            let pool = gateway.site().zone.domain_root.clone();
            // Entry points alone: instances have their own prefix.
            let bucket = |name: &str| (!name.starts_with(".bucket.meta.")).then(|| name.to_owned());
            let (names, _) = users::names(gateway, &pool, args, bucket).await?;
            let split = |name: String| match name.split_once('/') {
                Some((tenant, name)) => (tenant.to_owned().into(), name.to_owned().into()),
                None => (Bytes::new(), name.into()),
            };
            names.into_iter().map(split).collect()
        }
    };
    let mut shown = Vec::with_capacity(names.len());
    for (tenant, name) in &names {
        match stats {
            false if tenant.is_empty() || args.has("uid") => shown.push(text(name).into()),
            false => shown.push(format!("{}/{}", text(tenant), text(name)).into()),
            true if shown.len() == MAX_TOLD => {
                return Err(crate::errors::not_served("sums of more than 1000 buckets: ask with a marker"));
            }
            true => match told(gateway, tenant, name).await {
                // It went meanwhile.
                Err(e) if *e.code() == s3s::S3ErrorCode::NoSuchBucket => {}
                bucket => shown.push(bucket?),
            },
        }
    }
    Ok(Some(shown.into()))
}

pub async fn acl(gateway: &Gateway, args: &Args) -> S3Result<Option<Value>> {
    let (tenant, name) = named(args)?;
    let state = of_name(gateway, &tenant, &name).await?;
    let raw = match args.get("object").filter(|object| !object.is_empty()) {
        None => state.instance.attrs.get(crate::state::ACL).cloned(),
        Some(object) => {
            let (bucket, key) = (state.instance.value.into(), reader::key(object, None));
            let head = gateway.now(|moment| gateway.site().shown(&bucket, &key, 0, moment)).await;
            let head = head.map_err(errors::of)?.ok_or_else(|| errors::of(Error::NoSuchKey))?;
            head.attrs.get(crate::state::ACL).cloned()
        }
    };
    let acl = raw.map(AccessControl::from_bytes).transpose().map_err(|e| errors::of(e.into()))?;
    Ok(Some(shown::acl(&acl.unwrap_or_default())))
}

/// Gives a bucket to another user of its tenant.
pub async fn link(gateway: &Gateway, args: &Args) -> S3Result<Option<Value>> {
    if args.text("new-bucket-name").is_some() {
        return Err(crate::errors::not_served("buckets keep their names"));
    }
    let user = users::of_id(gateway, &args.user()?).await?;
    let (tenant, name) = named(args)?;
    if tenant != user.id.tenant {
        return Err(crate::errors::not_served("buckets stay in their tenant"));
    }
    let state = of_name(gateway, &tenant, &name).await?;
    if args.text("bucket-id").is_some_and(|id| id != state.instance.value.bucket.id) {
        return Err(errors::of(Error::NoSuchBucket));
    }
    let owner = Owner { id: user.id, display_name: user.display_name };
    gateway.now(|moment| gateway.site().give_bucket(state, owner, moment.now)).await.map_err(errors::of)?;
    Ok(None)
}

/// Takes a bucket off its owner's list; it stays, and is nobody's to list.
pub async fn unlink(gateway: &Gateway, args: &Args) -> S3Result<Option<Value>> {
    let (user, (tenant, name)) = (args.user()?, named(args)?);
    let state = of_name(gateway, &tenant, &name).await?;
    if state.instance.value.owner != user {
        return Err(errors::of(Error::InvalidArgument));
    }
    gateway.run(gateway.site().unlink_bucket(state, now())).await.map_err(errors::of)?;
    Ok(None)
}

pub async fn remove(gateway: &Gateway, args: &Args) -> S3Result<Option<Value>> {
    let (tenant, name) = named(args)?;
    if args.flag("purge-objects")? == Some(true) {
        purge::bucket(gateway, &tenant, &name).await?;
    } else {
        let state = of_name(gateway, &tenant, &name).await?;
        gateway.run(gateway.site().remove_bucket(state, now())).await.map_err(errors::of)?;
    }
    Ok(None)
}

pub async fn remove_object(gateway: &Gateway, args: &Args) -> S3Result<Option<Value>> {
    let (tenant, name) = named(args)?;
    let object = args.wanted("object")?;
    let bucket = of_name(gateway, &tenant, &name).await?.instance.value.into();
    let key = reader::key(&text(&object), args.get("version-id"));
    let by = Remover::default();
    let removed = gateway.now(|moment| gateway.site().remove_version(&bucket, key, &by, moment)).await;
    removed.map_err(errors::of)?;
    Ok(None)
}

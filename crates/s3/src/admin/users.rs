//! Users. Source: RGWUserAdminOp_User and RGWUser in src/rgw/rgw_user.cc.

use std::collections::BinaryHeap;

use bytes::Bytes;
use gateway::Error;
use rgw::{PlacementRule, UserId, UserInfo, UserKind, Versioning};
use s3s::{S3ErrorCode, S3Result, s3_error};
use serde_json::{Value, json};

use super::args::Args;
use super::shown::Held;
use super::{caps, errors, keys, purge, shown};
use crate::state::{Gateway, now};
use crate::users::Caller;

/// Names in one answer, unless asked for otherwise, and at most.
const PAGE: usize = 1000;
const MAX_PAGE: usize = 10_000;
/// How often a change is tried that others come before. Source: retry_raced_bucket_write in
/// src/rgw/rgw_op.cc.
const TRIES: u32 = 15;
/// Ends the names of objects with lists of buckets, beside those of users. Source: RGW_BUCKETS_OBJ_SUFFIX.
const BUCKETS: &str = ".buckets";

/// Changes a user; again when another change came before.
pub async fn change(
    gateway: &Gateway,
    id: &UserId,
    change: impl Fn(&mut UserInfo) -> Result<(), Error> + Clone + Send + 'static,
) -> S3Result<UserInfo> {
    for _ in 0..TRIES {
        match gateway.run(gateway.site().modify_user(id, now(), change.clone())).await {
            Err(Error::Raced) => {}
            changed => return changed.map_err(errors::of),
        }
    }
    Err(errors::of(Error::Raced))
}

pub async fn of_id(gateway: &Gateway, id: &UserId) -> S3Result<UserInfo> {
    let stored = gateway.read(gateway.site().user(id)).await.map_err(errors::of)?;
    Ok(stored.value.info)
}

/// Does something with each bucket of a user's list, in pages.
pub async fn each_bucket(
    gateway: &Gateway,
    id: &UserId,
    mut each: impl FnMut(rgw::UserBucketEntry),
) -> S3Result<()> {
    let mut marker = Bytes::new();
    loop {
        let page = gateway.read(gateway.site().user_buckets(id, marker, i32::MAX)).await;
        let (page, more) = page.map_err(errors::of)?;
        let Some(last) = page.last() else { return Ok(()) };
        marker = last.bucket.name.clone();
        page.into_iter().for_each(&mut each);
        if !more {
            return Ok(());
        }
    }
}

/// Names of a user's buckets.
pub async fn bucket_names(gateway: &Gateway, id: &UserId) -> S3Result<Vec<Bytes>> {
    let mut names = Vec::new();
    each_bucket(gateway, id, |entry| names.push(entry.bucket.name)).await?;
    Ok(names)
}

pub async fn info(gateway: &Gateway, args: &Args) -> S3Result<Option<Value>> {
    let info = match args.text("access-key") {
        Some(key) if !args.has("uid") => {
            let stored = gateway.read(gateway.site().user_by_key(&key)).await;
            stored.map_err(errors::of)?.value.info
        }
        _ => of_id(gateway, &args.user()?).await?,
    };
    if args.flag("sync")? == Some(true) {
        for name in bucket_names(gateway, &info.id).await? {
            let bucket = gateway.read(gateway.site().bucket(&info.id.tenant, &name)).await;
            let bucket = bucket.map_err(errors::of)?.instance.value;
            gateway.run(gateway.site().sync_bucket_stats(&bucket, now())).await.map_err(errors::of)?;
        }
    }
    let held = match args.flag("stats")? {
        Some(true) => {
            let mut held = Held::default();
            each_bucket(gateway, &info.id, |entry| held.add(&entry)).await?;
            Some(held)
        }
        _ => None,
    };
    Ok(Some(shown::user(&info, held)))
}

/// A page of names, by their order: of those in a pool that `name` takes.
pub async fn names(
    gateway: &Gateway,
    pool: &rgw::Pool,
    args: &Args,
    name: impl Fn(&str) -> Option<String>,
) -> S3Result<(Vec<String>, bool)> {
    let max = args.number("max-entries")?.unwrap_or(PAGE);
    if max == 0 || max > MAX_PAGE {
        return Err(s3_error!(InvalidArgument, "max-entries is at most {MAX_PAGE}"));
    }
    let after = args.get("marker").unwrap_or_default();
    // The smallest ones, with the largest of them on top.
    let mut page = BinaryHeap::new();
    let listed = gateway.names(pool, |object| {
        if let Some(name) = name(object).filter(|name| &name[..] > after) {
            page.push(name);
            if page.len() > max + 1 {
                page.pop();
            }
        }
    });
    listed.await.map_err(errors::of)?;
    let more = page.len() > max;
    if more {
        page.pop();
    }
    Ok((page.into_sorted_vec(), more))
}

pub async fn list(gateway: &Gateway, args: &Args) -> S3Result<Option<Value>> {
    let pool = gateway.site().zone.user_uid.clone();
    let user = |name: &str| (!name.ends_with(BUCKETS)).then(|| name.to_owned());
    let (names, more) = names(gateway, &pool, args, user).await?;
    let mut shown = json!({ "keys": names, "truncated": more, "count": names.len() });
    if let (true, Some(last), Some(fields)) = (more, names.last(), shown.as_object_mut()) {
        fields.insert("marker".to_owned(), last.clone().into());
    }
    Ok(Some(shown))
}

/// What a request says of a user that is made or changed.
#[derive(Debug, Clone, Default)]
struct Said {
    display_name: Option<Bytes>,
    email: Option<Bytes>,
    max_buckets: Option<i32>,
    suspended: Option<bool>,
    system: Option<bool>,
    op_mask: Option<u32>,
    caps: caps::Caps,
    placement: Option<PlacementRule>,
    placement_tags: Option<Vec<Bytes>>,
}

/// Kinds of requests, as `read,write`. Source: rgw_parse_op_type_list.
fn op_mask(text: &str) -> S3Result<u32> {
    let mut kinds = text.split([',', ' ', '|']).filter(|kind| !kind.is_empty());
    kinds.try_fold(0, |mask, kind| match kind {
        "read" => Ok(mask | 1),
        "write" => Ok(mask | 2),
        "delete" => Ok(mask | 4),
        "*" => Ok(7),
        _ => Err(s3_error!(InvalidArgument, "op-mask has read, write and delete")),
    })
}

impl Said {
    fn read(gateway: &Gateway, caller: &Caller, args: &Args) -> S3Result<Self> {
        let system = args.flag("system")?;
        if system == Some(true) && caller.user().is_none_or(|user| user.system == 0) {
            return Err(s3_error!(InvalidArgument, "only a system user makes another one"));
        }
        let placement = args.get("default-placement").filter(|text| !text.is_empty()).map(|text| {
            let (name, class) = text.split_once('/').unwrap_or((text, ""));
            let copy = |text: &str| Bytes::copy_from_slice(text.as_bytes());
            PlacementRule { name: copy(name), storage_class: copy(class) }
        });
        if let Some(rule) = &placement {
            let pools = gateway.site().zone.placement.get(&rule.name);
            if pools.is_none_or(|pools| !pools.classes.contains_key(rule.storage_class())) {
                return Err(s3_error!(InvalidArgument, "there is no such placement target"));
            }
        }
        let tags = args.text("placement-tags").map(|tags| {
            let tags = tags.split(|b| *b == b',').filter(|tag| !tag.is_empty());
            tags.map(Bytes::copy_from_slice).collect()
        });
        Ok(Self {
            display_name: args.text("display-name"),
            email: args.get("email").map(|email| Bytes::copy_from_slice(email.as_bytes())),
            max_buckets: args.number::<i32>("max-buckets")?.map(|max| max.max(-1)),
            suspended: args.flag("suspended")?,
            system,
            op_mask: args.get("op-mask").filter(|text| !text.is_empty()).map(op_mask).transpose()?,
            caps: caps::read(args.get("user-caps").unwrap_or_default())?,
            placement,
            placement_tags: tags,
        })
    }

    fn apply(&self, info: &mut UserInfo) {
        fn set<T: Clone>(field: &mut T, said: &Option<T>) {
            if let Some(value) = said {
                field.clone_from(value);
            }
        }
        set(&mut info.display_name, &self.display_name);
        set(&mut info.email, &self.email);
        set(&mut info.max_buckets, &self.max_buckets);
        set(&mut info.suspended, &self.suspended.map(u8::from));
        set(&mut info.system, &self.system.map(u8::from));
        set(&mut info.op_mask, &self.op_mask);
        set(&mut info.placement, &self.placement);
        set(&mut info.placement_tags, &self.placement_tags);
        for (kind, bits) in &self.caps {
            *info.caps.entry(kind.clone()).or_default() |= bits;
        }
    }
}

pub async fn create(gateway: &Gateway, caller: &Caller, args: &Args) -> S3Result<Option<Value>> {
    let mut id = args.user()?;
    if let Some(tenant) = args.text("tenant") {
        id.tenant = tenant;
    }
    args.wanted("display-name")?;
    let said = Said::read(gateway, caller, args)?;
    let mut info = UserInfo { id, kind: UserKind::RGW, ..UserInfo::default() };
    said.apply(&mut info);
    if let Some(key) = keys::wanted(args, Some(true))? {
        key.put(&mut info).map_err(errors::of)?;
    }
    let made = info.clone();
    gateway.now(|moment| gateway.site().create_user(made, moment)).await.map_err(errors::of)?;
    Ok(Some(shown::user(&info, None)))
}

pub async fn modify(gateway: &Gateway, caller: &Caller, args: &Args) -> S3Result<Option<Value>> {
    let id = args.user()?;
    let said = Said::read(gateway, caller, args)?;
    let key = keys::wanted(args, None)?;
    let suspended = said.suspended;
    let info = change(gateway, &id, move |info| {
        said.apply(info);
        key.as_ref().map_or(Ok(()), |key| key.put(info))
    })
    .await?;
    if let Some(suspended) = suspended {
        suspend_buckets(gateway, &id, suspended).await?;
    }
    Ok(Some(shown::user(&info, None)))
}

/// Nobody is served from buckets of a user that is suspended. Source: RGWRados::set_buckets_enabled.
async fn suspend_buckets(gateway: &Gateway, id: &UserId, suspended: bool) -> S3Result<()> {
    for name in bucket_names(gateway, id).await? {
        let found = gateway.read(gateway.site().bucket(&id.tenant, &name)).await;
        let bucket = match found {
            // It went meanwhile.
            Err(Error::NoSuchBucket) => continue,
            found => found.map_err(errors::of)?.instance.value.bucket,
        };
        let flag = move |info: &mut rgw::BucketInfo, _: &mut std::collections::BTreeMap<Bytes, Bytes>| {
            let bit = Versioning::SUSPENDED_BUCKET;
            info.flags.0 = if suspended { info.flags.0 | bit } else { info.flags.0 & !bit };
        };
        gateway.run(gateway.site().change_bucket(&bucket, now(), flag)).await.map_err(errors::of)?;
    }
    Ok(())
}

pub async fn remove(gateway: &Gateway, args: &Args) -> S3Result<Option<Value>> {
    let id = args.user()?;
    of_id(gateway, &id).await?;
    if args.flag("purge-data")? == Some(true) {
        for name in bucket_names(gateway, &id).await? {
            match purge::bucket(gateway, &id.tenant, &name).await {
                Err(e) if *e.code() == S3ErrorCode::NoSuchBucket => {}
                done => done?,
            }
        }
    }
    gateway.run(gateway.site().remove_user(&id)).await.map_err(errors::of)?;
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_of_a_user_changes_that_and_no_more() {
        let said = Said { email: Some("e".into()), suspended: Some(true), ..Said::default() };
        let mut info = UserInfo { display_name: "d".into(), max_buckets: 7, ..UserInfo::default() };
        said.apply(&mut info);
        let left = (&info.display_name[..], &info.email[..], info.max_buckets, info.suspended, info.op_mask);
        assert_eq!(left, (&b"d"[..], &b"e"[..], 7, 1, 7));
    }

    #[test]
    fn kinds_of_requests_are_read() {
        assert_eq!((op_mask("read,write").unwrap(), op_mask("*").unwrap()), (3, 7));
        assert!(op_mask("reads").is_err());
    }
}

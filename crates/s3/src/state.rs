//! What all requests share: the core, its cluster, and what was read of users and buckets lately.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use codec::Decode;
use gateway::{BucketState, Error, Moment, Plan, SharedBucket, Site};
use rgw::{AccessControl, BucketInfo, Permissions, PublicAccessBlock, UserInfo, Versioning};
use rgwio::Performer;
use s3s::{S3ErrorCode, S3Request, S3Result};
use types::{RealTime, Utime};

use crate::errors;
use crate::rights::{self, Does};
use crate::users::{Cache, Caller};

const ACL: &[u8] = b"user.rgw.acl";
/// Attributes of buckets and users that decide who may do what, and are not evaluated here.
const POLICY: &[u8] = b"user.rgw.iam-policy";
const USER_POLICY: &[u8] = b"user.rgw.user-policy";
const PUBLIC_ACCESS: &[u8] = b"user.rgw.public-access";

/// What a gateway is told when it starts.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// The zone group's name, which clients may give as a bucket's place.
    pub zonegroup: String,
}

/// Shared by all requests; cheap to clone.
#[derive(Clone)]
pub struct Gateway {
    inner: Arc<Inner>,
}

struct Inner {
    site: Site,
    performer: Performer,
    settings: Settings,
    users: Cache<String, Option<Arc<UserInfo>>>,
    buckets: Cache<(Bytes, String), Arc<BucketView>>,
    numbers: AtomicU64,
}

/// A bucket, and whose it is.
#[derive(Debug)]
pub struct BucketView {
    pub state: BucketState,
    pub info: SharedBucket,
    pub acl: AccessControl,
    public: PublicAccessBlock,
}

impl BucketView {
    fn read(state: BucketState) -> Result<Self, Error> {
        let attrs = &state.instance.attrs;
        let acl = attrs.get(ACL).map(|raw| AccessControl::from_bytes(raw.clone())).transpose()?;
        let public =
            attrs.get(PUBLIC_ACCESS).map(|raw| PublicAccessBlock::from_bytes(raw.clone())).transpose()?;
        let info: Arc<BucketInfo> = Arc::new(state.instance.value.clone());
        Ok(Self { info, acl: acl.unwrap_or_default(), public: public.unwrap_or_default(), state })
    }

    /// Whether grants to everybody count.
    pub fn groups(&self) -> bool {
        !(self.public.ignore_acls || self.public.restrict_buckets)
    }

    /// Whether a list may be given to the bucket or its objects.
    pub fn takes(&self, acl: &AccessControl) -> bool {
        let public = acl.list.grants().any(|grant| grant.to == rgw::Grantee::GROUP);
        !(public && self.public.block_acls)
    }

    pub fn may(&self, caller: &Caller, wanted: Permissions) -> bool {
        rights::allows(&self.acl, caller, wanted, self.groups())
    }

    /// Refuses what rests on something that is not served.
    fn served(&self, caller: &Caller) -> S3Result<()> {
        let flags = self.info.flags;
        // Its owner is suspended. Source: rgw_build_bucket_policies in src/rgw/rgw_op.cc.
        if flags.has(Versioning::SUSPENDED_BUCKET) {
            return Err(errors::custom("UserSuspended", 403));
        }
        if flags.has(Versioning::VERSIONED) || flags.has(Versioning::OBJECT_LOCK) {
            return Err(errors::not_served("buckets that keep versions are not served"));
        }
        if self.state.instance.attrs.contains_key(POLICY) {
            return Err(errors::not_served("buckets with a policy are not served"));
        }
        if self.info.requester_pays && !caller.is(&self.info.owner) {
            return Err(errors::not_served("buckets whose requesters pay are not served"));
        }
        Ok(())
    }
}

/// Now, as objects are stamped.
pub fn now() -> RealTime {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    RealTime(Utime { sec: u32::try_from(since.as_secs()).unwrap_or(u32::MAX), nsec: since.subsec_nanos() })
}

/// Who a request is carried out as.
pub fn caller<T>(request: &S3Request<T>) -> Caller {
    request.extensions.get::<Caller>().cloned().unwrap_or(Caller::Nobody)
}

impl Gateway {
    pub fn new(site: Site, performer: Performer, settings: Settings) -> Self {
        let (users, buckets) = (Cache::new(), Cache::new());
        let inner = Inner { site, performer, settings, users, buckets, numbers: AtomicU64::new(1) };
        Self { inner: Arc::new(inner) }
    }

    pub fn site(&self) -> &Site {
        &self.inner.site
    }

    pub fn settings(&self) -> &Settings {
        &self.inner.settings
    }

    /// A number that no other request of this gateway has.
    pub fn number(&self) -> u64 {
        self.inner.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// Carries a plan out to its end.
    pub async fn run<T: Send + 'static>(&self, plan: Plan<T>) -> Result<T, Error> {
        self.inner.performer.run(plan).await
    }

    /// Carries out what is planned with the time and made-up texts.
    pub async fn now<T: Send + 'static>(
        &self,
        plan: impl FnOnce(&mut Moment) -> Plan<T>,
    ) -> Result<T, Error> {
        self.run(at_once(plan)).await
    }

    /// The user of an access key, with the key's secret.
    pub async fn user(&self, access_key: &str) -> S3Result<(Arc<UserInfo>, Bytes)> {
        let key = access_key.to_owned();
        let found = match self.inner.users.get(&key) {
            Some(found) => found,
            None => {
                let at = Instant::now();
                let found = match self.run(self.site().user_by_key(&key.clone().into())).await {
                    Ok(stored) if stored.attrs.contains_key(USER_POLICY) => {
                        return Err(errors::not_served("users with policies are not served"));
                    }
                    Ok(stored) => Some(Arc::new(stored.value.info)),
                    Err(Error::NoSuchUser) => None,
                    Err(e) => return Err(errors::of(e)),
                };
                self.inner.users.put(key.clone(), at, found.clone());
                found
            }
        };
        let info = found.ok_or(S3ErrorCode::InvalidAccessKeyId)?;
        let key = info.keys.get(key.as_bytes()).ok_or(S3ErrorCode::InvalidAccessKeyId)?;
        if !key.subuser.is_empty() {
            return Err(errors::not_served("keys of subusers are not served"));
        }
        let secret = key.secret.clone();
        Ok((info, secret))
    }

    /// A bucket as it was a moment ago.
    pub async fn bucket(&self, caller: &Caller, name: &str) -> S3Result<Arc<BucketView>> {
        let key = (caller.tenant(), name.to_owned());
        if let Some(view) = self.inner.buckets.get(&key) {
            view.served(caller)?;
            return Ok(view);
        }
        let at = Instant::now();
        let view = Arc::new(self.fresh_bucket(caller, name).await?);
        self.inner.buckets.put(key, at, view.clone());
        view.served(caller)?;
        Ok(view)
    }

    /// A bucket as it is.
    pub async fn fresh_bucket(&self, caller: &Caller, name: &str) -> S3Result<BucketView> {
        let plan = self.site().bucket(&caller.tenant(), &name.to_owned().into());
        let state = self.run(plan).await.map_err(errors::of)?;
        BucketView::read(state).map_err(errors::of)
    }

    /// Has a bucket read anew.
    pub fn forget_bucket(&self, caller: &Caller, name: &str) {
        self.inner.buckets.forget(&(caller.tenant(), name.to_owned()));
    }

    /// A bucket that the caller may do something with.
    pub async fn bucket_for(
        &self,
        caller: &Caller,
        name: &str,
        does: Does,
        wanted: Permissions,
    ) -> S3Result<Arc<BucketView>> {
        let view = self.bucket(caller, name).await?;
        if !caller.may(does) || !view.may(caller, wanted) {
            return Err(S3ErrorCode::AccessDenied.into());
        }
        Ok(view)
    }
}

/// A plan made with the time and made-up texts.
pub fn at_once<T>(plan: impl FnOnce(&mut Moment) -> T) -> T {
    plan(&mut Moment { now: now(), entropy: &mut runtime::OsEntropy })
}

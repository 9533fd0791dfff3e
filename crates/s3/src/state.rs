//! What all requests share: the core, its cluster, and what was read of users and buckets lately.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use codec::Decode;
use gateway::{BucketState, Error, Moment, Plan, SharedBucket, Site};
use rgw::policy::{Action, MAX_POLICY, Policy};
use rgw::{
    AccessControl, BucketEncryption, BucketInfo, BucketLogging, Cors, Lifecycle, Ownership,
    PublicAccessBlock, UserInfo, Versioning,
};
use rgwio::Performer;
use s3s::{S3ErrorCode, S3Request, S3Result};
use types::{RealTime, Utime};

use crate::attrs::Attrs;
use crate::encryption::Place;
use crate::errors;
use crate::turns::Turns;
use crate::users::{Cache, Caller, Known};

/// Attributes of buckets.
pub const ACL: &[u8] = b"user.rgw.acl";
pub const POLICY: &[u8] = b"user.rgw.iam-policy";
pub const PUBLIC_ACCESS: &[u8] = b"user.rgw.public-access";
pub const CORS: &[u8] = b"user.rgw.cors";
/// Source: RGW_ATTR_BUCKET_LOGGING in src/rgw/rgw_common.h of 20.
pub const LOGGING: &[u8] = b"user.rgw.logging";
/// Source: RGW_ATTR_OWNERSHIP_CONTROLS in src/rgw/rgw_common.h of 20.
pub const OWNERSHIP: &[u8] = b"user.rgw.ownership-controls";
/// Source: RGW_ATTR_BUCKET_ENCRYPTION_POLICY in src/rgw/rgw_common.h of 17.2.
pub const ENCRYPTION: &[u8] = b"user.rgw.sse-s3.policy";
/// A user's own policies: their texts by their names. Source: RGW_ATTR_USER_POLICY.
const USER_POLICY: &[u8] = b"user.rgw.user-policy";
/// Policies of one user. Source: rgw_user_policies_max_num in src/common/options.cc.
const MAX_POLICIES: usize = 100;
/// How long a change of a bucket waits for others of the same bucket.
const TURN: Duration = Duration::from_secs(15);

/// What a gateway is told when it starts.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// The zone group's name, which clients may give as a bucket's place.
    pub zonegroup: String,
    pub encryption: crate::encryption::Settings,
    pub websites: crate::website::Settings,
    /// Seconds until a bucket's log is closed, where its settings do not say it. Source:
    /// rgw_bucket_logging_obj_roll_time of 20.
    pub log_roll_s: u32,
}

/// Shared by all requests; cheap to clone.
#[derive(Clone)]
pub struct Gateway {
    inner: Arc<Inner>,
    /// With the share of plans of whoever asks, where that is known.
    performer: Performer,
}

struct Inner {
    site: Site,
    settings: Settings,
    users: Cache<String, Option<Known>>,
    /// Of buckets, by their ids.
    owners: Cache<Bytes, Arc<UserInfo>>,
    buckets: Cache<(Bytes, String), Arc<BucketView>>,
    /// Of changes of buckets, by their ids.
    changes: Turns<Bytes>,
    /// Of logs of buckets that are ended.
    logs: Turns<Bytes>,
    numbers: AtomicU64,
}

/// A bucket, and whose it is.
#[derive(Debug)]
pub struct BucketView {
    pub state: BucketState,
    pub info: SharedBucket,
    pub acl: AccessControl,
    pub public: PublicAccessBlock,
    pub policy: Option<Policy>,
    pub cors: Option<Cors>,
    pub lifecycle: Option<Lifecycle>,
    pub encryption: Option<BucketEncryption>,
    pub logging: Option<BucketLogging>,
    pub ownership: Option<Ownership>,
    /// There is a policy, and it cannot be read: nobody knows what it forbids.
    is_unread: bool,
}

impl BucketView {
    fn read(state: BucketState) -> Result<Self, Error> {
        fn decoded<T: Decode>(attrs: &Attrs, name: &[u8]) -> Result<Option<T>, Error> {
            Ok(attrs.get(name).map(|raw| T::from_bytes(raw.clone())).transpose()?)
        }
        let attrs = &state.instance.attrs;
        let acl = decoded(attrs, ACL)?.unwrap_or_default();
        let public = decoded(attrs, PUBLIC_ACCESS)?.unwrap_or_default();
        let cors = decoded(attrs, CORS)?;
        let lifecycle = decoded(attrs, gateway::lifecycle::ATTR)?;
        let encryption = decoded(attrs, ENCRYPTION)?;
        let logging = decoded(attrs, LOGGING)?;
        let ownership = decoded(attrs, OWNERSHIP)?;
        let info: Arc<BucketInfo> = Arc::new(state.instance.value.clone());
        let tenant = String::from_utf8_lossy(&info.bucket.tenant);
        let policy = attrs.get(POLICY).filter(|text| !text.is_empty());
        let policy = policy.map(|text| Policy::read(text, &tenant));
        let is_unread = matches!(policy, Some(Err(_)));
        let policy = policy.and_then(Result::ok);
        Ok(Self {
            info,
            acl,
            public,
            policy,
            cors,
            lifecycle,
            encryption,
            logging,
            ownership,
            is_unread,
            state,
        })
    }

    /// The bucket as what is written to it sees it.
    pub fn place(&self) -> Place<'_> {
        Place { bucket_id: &self.info.bucket.id, default: self.encryption.as_ref() }
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

    /// Whether the bucket keeps versions, or did.
    pub fn has_versions(&self) -> bool {
        self.info.flags.has(Versioning::VERSIONED)
    }

    /// What clients call the version that was written or read; nothing in a bucket without versions.
    pub fn version(&self, id: &Bytes) -> Option<String> {
        let id = if id.is_empty() { "null".to_owned() } else { String::from_utf8_lossy(id).into_owned() };
        self.has_versions().then_some(id)
    }

    /// Refuses what rests on something that is not served.
    pub fn served(&self) -> S3Result<()> {
        let flags = self.info.flags;
        // Its owner is suspended. Source: rgw_build_bucket_policies in src/rgw/rgw_op.cc.
        if flags.has(Versioning::SUSPENDED_BUCKET) {
            return Err(errors::custom("UserSuspended", 403));
        }
        if self.is_unread {
            return Err(errors::not_served("the bucket's policy cannot be read"));
        }
        Ok(())
    }
}

/// Policies of a user of a tenant, all together as long as one of a bucket may be. Of one that cannot be read
/// nobody knows what it forbids.
fn policies(raw: Option<&Bytes>, tenant: &Bytes) -> S3Result<Vec<Policy>> {
    let Some(raw) = raw else { return Ok(Vec::new()) };
    let texts = BTreeMap::<Bytes, Bytes>::from_bytes(raw.clone()).map_err(|e| errors::of(e.into()))?;
    let length: usize = texts.values().map(Bytes::len).sum();
    if texts.len() > MAX_POLICIES || length > MAX_POLICY {
        return Err(errors::not_served("the policies of the user are too many, or too long"));
    }
    let tenant = String::from_utf8_lossy(tenant);
    let read = |text: &Bytes| {
        Policy::read(text, &tenant).map_err(|_| errors::not_served("a policy of the user cannot be read"))
    };
    texts.values().map(read).collect()
}

/// Now, as objects are stamped.
pub fn now() -> RealTime {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    RealTime(Utime { sec: u32::try_from(since.as_secs()).unwrap_or(u32::MAX), nsec: since.subsec_nanos() })
}

/// Who a request is carried out as.
pub fn caller<T>(request: &S3Request<T>) -> Caller {
    request.extensions.get::<Caller>().cloned().unwrap_or_default()
}

impl Gateway {
    pub fn new(site: Site, performer: Performer, settings: Settings) -> Self {
        let (users, owners, buckets) = (Cache::new(), Cache::new(), Cache::new());
        let (changes, logs, numbers) = (Turns::new(), Turns::new(), AtomicU64::new(1));
        let inner = Inner { site, settings, users, owners, buckets, changes, logs, numbers };
        Self { inner: Arc::new(inner), performer }
    }

    /// The same for requests of one caller, who has a share of what is carried out at a time.
    pub fn of_caller(&self, caller: &Caller) -> Self {
        Self { inner: Arc::clone(&self.inner), performer: self.performer.of_client(caller.client()) }
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
        self.performer.run(plan).await
    }

    /// Carries a plan out with what was begun: `instead` where its turn does not come in time, and what comes
    /// `after` it where it ends when nobody waits any more.
    pub async fn run_or<T: Send + 'static>(
        &self,
        plan: Plan<T>,
        instead: Plan<()>,
        after: impl FnOnce(T) -> Plan<()> + Send + 'static,
    ) -> Result<T, Error> {
        self.performer.run_or(plan, instead, after).await
    }

    /// Carries out a plan that reads, as long as its client waits.
    pub async fn read<T: Send + 'static>(&self, plan: Plan<T>) -> Result<T, Error> {
        self.performer.read(plan).await
    }

    /// Tells the names of all objects of a pool.
    pub async fn names(&self, pool: &rgw::Pool, each: impl FnMut(&str)) -> Result<(), Error> {
        self.performer.names(pool, each).await
    }

    /// Carries out what is planned with the time and made-up texts.
    pub async fn now<T: Send + 'static>(
        &self,
        plan: impl FnOnce(&mut Moment) -> Plan<T>,
    ) -> Result<T, Error> {
        self.run(at_once(plan)).await
    }

    /// The user of an access key, with the key's secret.
    pub async fn user(&self, access_key: &str) -> S3Result<(Known, Bytes)> {
        let key = access_key.to_owned();
        let found = match self.inner.users.get(&key) {
            Some(found) => found,
            None => {
                let at = Instant::now();
                let found = match self.read(self.site().user_by_key(&key.clone().into())).await {
                    Ok(stored) => {
                        let (attrs, info) = (stored.attrs, Arc::new(stored.value.info));
                        let policies = policies(attrs.get(USER_POLICY), &info.id.tenant)?.into();
                        Some(Known { info, policies })
                    }
                    Err(Error::NoSuchUser) => None,
                    Err(e) => return Err(errors::of(e)),
                };
                self.inner.users.put(key.clone(), at, found.clone());
                found
            }
        };
        let known = found.ok_or(S3ErrorCode::InvalidAccessKeyId)?;
        let key = known.info.keys.get(key.as_bytes()).ok_or(S3ErrorCode::InvalidAccessKeyId)?;
        if !key.subuser.is_empty() {
            return Err(errors::not_served("keys of subusers are not served"));
        }
        let secret = key.secret.clone();
        Ok((known, secret))
    }

    /// Fails where an object of a size has no room: the quotas of the bucket's owner count.
    pub async fn check_room(&self, view: &BucketView, size: u64) -> S3Result<()> {
        let id = view.info.owner.to_text();
        let owner = match self.inner.owners.get(&id) {
            Some(owner) => owner,
            None => {
                let at = Instant::now();
                let owner = match self.read(self.site().user(&view.info.owner)).await {
                    Ok(stored) => stored.value.info,
                    // Who is gone has no quotas any more.
                    Err(Error::NoSuchUser) => UserInfo::default(),
                    Err(e) => return Err(errors::of(e)),
                };
                let owner = Arc::new(owner);
                self.inner.owners.put(id, at, Arc::clone(&owner));
                owner
            }
        };
        self.run(self.site().room_for(&view.info, &owner, size, now())).await.map_err(errors::of)
    }

    /// A bucket as it was a moment ago.
    pub async fn bucket(&self, caller: &Caller, name: &str) -> S3Result<Arc<BucketView>> {
        let key = (caller.tenant(), name.to_owned());
        let view = match self.inner.buckets.get(&key) {
            Some(view) => view,
            None => {
                let at = Instant::now();
                let view = Arc::new(self.fresh_bucket(caller, name).await?);
                self.inner.buckets.put(key, at, view.clone());
                view
            }
        };
        view.served()?;
        match caller.means(&view.info.owner) {
            true => Ok(view),
            false => Err(S3ErrorCode::AccessDenied.into()),
        }
    }

    /// A bucket as it is.
    pub async fn fresh_bucket(&self, caller: &Caller, name: &str) -> S3Result<BucketView> {
        let plan = self.site().bucket(&caller.tenant(), &name.to_owned().into());
        let state = self.read(plan).await.map_err(errors::of)?;
        BucketView::read(state).map_err(errors::of)
    }

    /// A bucket as it was a moment ago, whatever there is to say against its use; read anew, unless what
    /// `is_cached` alone is wanted.
    pub async fn known_bucket(
        &self,
        caller: &Caller,
        name: &str,
        is_cached: bool,
    ) -> Option<Arc<BucketView>> {
        match self.inner.buckets.get(&(caller.tenant(), name.to_owned())) {
            Some(view) => Some(view),
            None if is_cached => None,
            None => self.fresh_bucket(caller, name).await.ok().map(Arc::new),
        }
    }

    /// Waits for a turn at a log that is to be ended.
    pub async fn log_turn(&self, log: Bytes, patience: Duration) -> Option<tokio::sync::OwnedMutexGuard<()>> {
        self.inner.logs.take(log, patience).await
    }

    /// Has a bucket read anew.
    pub fn forget_bucket(&self, caller: &Caller, name: &str) {
        self.inner.buckets.forget(&(caller.tenant(), name.to_owned()));
    }

    /// A bucket that the caller may do something with.
    pub async fn bucket_for(&self, caller: &Caller, name: &str, action: Action) -> S3Result<Arc<BucketView>> {
        let view = self.bucket(caller, name).await?;
        if !view.may(caller, action) {
            return Err(S3ErrorCode::AccessDenied.into());
        }
        Ok(view)
    }

    /// A bucket with whose keys the caller may do something, whatever objects are there.
    pub async fn bucket_with_key(
        &self,
        caller: &Caller,
        name: &str,
        action: Action,
        key: &str,
    ) -> S3Result<Arc<BucketView>> {
        let view = self.bucket(caller, name).await?;
        if !view.may_with_key(caller, action, key.as_bytes()) {
            return Err(S3ErrorCode::AccessDenied.into());
        }
        Ok(view)
    }

    /// A bucket with which the caller may do what is the owner's.
    pub async fn own_bucket(&self, caller: &Caller, name: &str, action: Action) -> S3Result<Arc<BucketView>> {
        let view = self.bucket(caller, name).await?;
        if !view.is_owners(caller, action) {
            return Err(S3ErrorCode::AccessDenied.into());
        }
        Ok(view)
    }

    /// Changes the bucket that the caller was found to have a right to, as it is now; again when another
    /// change came before.
    pub async fn change_bucket(
        &self,
        caller: &Caller,
        view: &BucketView,
        change: impl Fn(&mut BucketInfo, &mut Attrs) + Send + 'static,
    ) -> S3Result<()> {
        // Who is told to come again later holds nothing meanwhile.
        let turn = self.inner.changes.take(view.info.bucket.id.clone(), TURN).await;
        let _turn = turn.ok_or(S3ErrorCode::SlowDown)?;
        let plan = self.site().change_bucket(&view.info.bucket, now(), change);
        let changed = self.run(plan).await;
        self.forget_bucket(caller, &String::from_utf8_lossy(&view.info.bucket.name));
        changed.map(drop).map_err(errors::of)
    }

    /// Sets an attribute of a bucket, or removes it.
    pub async fn set_bucket_attr(
        &self,
        caller: &Caller,
        view: &BucketView,
        name: &'static [u8],
        value: Option<Bytes>,
    ) -> S3Result<()> {
        let change = move |_: &mut BucketInfo, attrs: &mut Attrs| match &value {
            Some(value) => drop(attrs.insert(Bytes::from_static(name), value.clone())),
            None => drop(attrs.remove(name)),
        };
        self.change_bucket(caller, view, change).await
    }
}

/// A plan made with the time and made-up texts.
pub fn at_once<T>(plan: impl FnOnce(&mut Moment) -> T) -> T {
    plan(&mut Moment { now: now(), entropy: &mut runtime::OsEntropy })
}

#[cfg(test)]
mod tests {
    use codec::Encode;

    use super::*;

    #[test]
    fn policies_of_a_user_have_a_bound_together() {
        let of = |count: usize, length: usize| {
            let text = format!(r#"{{"Id":"{}"}}"#, "x".repeat(length - r#"{"Id":""}"#.len()));
            let named = |n: usize| (Bytes::from(n.to_string()), Bytes::from(text.clone()));
            let raw = (0..count).map(named).collect::<BTreeMap<_, _>>().to_bytes();
            policies(Some(&raw), &Bytes::new()).map(|policies| policies.len()).ok()
        };
        assert_eq!(policies(None, &Bytes::new()).unwrap().len(), 0);
        assert_eq!((of(1, MAX_POLICY), of(2, MAX_POLICY / 2)), (Some(1), Some(2)));
        assert_eq!((of(1, MAX_POLICY + 1), of(2, MAX_POLICY / 2 + 1)), (None, None));
        assert_eq!((of(MAX_POLICIES, 100), of(MAX_POLICIES + 1, 100)), (Some(MAX_POLICIES), None));
    }
}

//! Who asks, and what is kept of users and buckets for a short time.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use rgw::policy::{Environment, Policy};
use rgw::{Owner, UserId, UserInfo};

/// A change is in force on every gateway after this long, whether notices are heard or not.
const AGE: Duration = Duration::from_secs(1);
/// Entries of one cache.
const BOUND: usize = 4096;

/// What was read lately.
#[derive(Debug)]
pub struct Cache<K, V> {
    entries: Mutex<HashMap<K, (Instant, V)>>,
}

impl<K: Hash + Eq, V: Clone> Cache<K, V> {
    pub fn new() -> Self {
        Self { entries: Mutex::default() }
    }

    pub fn get(&self, key: &K) -> Option<V> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.get(key).filter(|(at, _)| at.elapsed() < AGE).map(|(_, value)| value.clone())
    }

    /// What was read at a moment, from before it was asked for.
    pub fn put(&self, key: K, at: Instant, value: V) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.len() >= BOUND {
            entries.retain(|_, (at, _)| at.elapsed() < AGE);
        }
        if entries.len() >= BOUND {
            entries.clear();
        }
        entries.insert(key, (at, value));
    }

    pub fn forget(&self, key: &K) {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }
}

/// A user, and what its own policies say.
#[derive(Debug, Clone)]
pub struct Known {
    pub info: Arc<UserInfo>,
    pub policies: Arc<[Policy]>,
}

impl From<UserInfo> for Known {
    fn from(info: UserInfo) -> Self {
        Self { info: Arc::new(info), policies: Arc::new([]) }
    }
}

/// Who a request is carried out as, and what is known of the request.
#[derive(Debug, Clone, Default)]
pub struct Caller {
    user: Option<Known>,
    /// What policies may ask for.
    env: Arc<Environment>,
    /// Where the request says that its bucket is named.
    tenant: Option<Bytes>,
    /// Whether the caller pays for what belongs to others.
    pays: bool,
    /// Whose the bucket is to be, and that of what is copied.
    expects: [Option<String>; 2],
    /// A list of grants let the caller do what no policy, and no ownership, did.
    by_grants: Arc<AtomicBool>,
}

impl Caller {
    /// A user, or nobody.
    pub fn new(user: Option<Known>) -> Self {
        Self { user, ..Self::default() }
    }

    /// The same caller, with what is known of a request.
    pub fn asking(self, env: Environment, tenant: Option<Bytes>, pays: bool) -> Self {
        Self { env: Arc::new(env), tenant, pays, ..self }
    }

    /// The same caller, who takes a bucket, and a copy's source, for those of these users.
    pub fn expecting(self, expects: [Option<String>; 2]) -> Self {
        Self { expects, ..self }
    }

    /// The same caller as it looks for what it copies.
    pub fn at_source(self) -> Self {
        let [_, source] = self.expects;
        Self { expects: [source, None], ..self }
    }

    /// Whether a bucket of this owner may be the one that the caller means.
    pub fn means(&self, owner: &UserId) -> bool {
        let [expected, _] = &self.expects;
        expected.as_ref().is_none_or(|expected| owner.to_text() == expected.as_bytes())
    }

    /// Notes that grants let the caller do something.
    pub fn let_by_grants(&self) {
        self.by_grants.store(true, Ordering::Relaxed);
    }

    pub fn was_let_by_grants(&self) -> bool {
        self.by_grants.load(Ordering::Relaxed)
    }

    /// Nobody in particular, at an address.
    pub fn at(self, peer: IpAddr) -> Self {
        let address = peer.to_canonical().to_string();
        Self { env: Arc::new([("aws:SourceIp".to_owned(), address)].into()), ..self }
    }

    pub fn user(&self) -> Option<&UserInfo> {
        self.user.as_ref().map(|known| &*known.info)
    }

    /// The user's own policies.
    pub fn policies(&self) -> &[Policy] {
        self.user.as_ref().map_or(&[], |known| &known.policies)
    }

    pub fn env(&self) -> &Environment {
        &self.env
    }

    pub fn pays(&self) -> bool {
        self.pays
    }

    pub fn is(&self, id: &UserId) -> bool {
        self.user().is_some_and(|info| info.id == *id)
    }

    /// Where the request's bucket is named: with the caller's own, unless it says otherwise.
    pub fn tenant(&self) -> Bytes {
        let own = || self.user().map(|info| info.id.tenant.clone()).unwrap_or_default();
        self.tenant.clone().unwrap_or_else(own)
    }

    /// The same caller, who asks for what is named elsewhere; nothing for the caller's own.
    pub fn in_tenant(self, tenant: Option<Bytes>) -> Self {
        Self { tenant, ..self }
    }

    /// Whether the request's bucket is named with the caller's own.
    pub fn is_at_home(&self) -> bool {
        self.user().is_none_or(|info| info.id.tenant == self.tenant())
    }

    /// Source: the user "anonymous" in src/rgw/rgw_common.h.
    pub fn id(&self) -> UserId {
        self.user().map_or_else(|| UserId::plain("anonymous"), |info| info.id.clone())
    }

    /// Whom the caller's share is counted to: the user, or the place that nobody in particular asks from.
    pub fn client(&self) -> Bytes {
        let place = || {
            let address = self.env().get("aws:SourceIp").and_then(|address| address.parse().ok());
            address.map(|address| crate::shares::place(address).to_string()).unwrap_or_default()
        };
        match self.user() {
            Some(info) => [b"user ", &info.id.to_text()[..]].concat().into(),
            None => format!("at {}", place()).into(),
        }
    }

    /// As what it makes belongs to it.
    pub fn owner(&self) -> Owner {
        let display_name = self.user().map(|info| info.display_name.clone()).unwrap_or_default();
        Owner { id: self.id(), display_name }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_counted_to_users_and_places() {
        let at = |address: &str| {
            let env = Environment::from([("aws:SourceIp".to_owned(), address.to_owned())]);
            Caller::default().asking(env, None, false).client()
        };
        assert_eq!(at("2001:db8::1"), at("2001:db8::ffff:1"));
        assert_ne!(at("2001:db8::1"), at("2001:db8:0:1::1"));
        assert_ne!(at("10.0.0.1"), at("10.0.0.2"));
        assert_eq!(Caller::default().at("::ffff:10.0.0.1".parse().unwrap()).client(), at("10.0.0.1"));
        let user = |id: &'static str| {
            Caller::new(Some(UserInfo { id: UserId::plain(id), ..UserInfo::default() }.into())).client()
        };
        assert_ne!(user("10.0.0.1"), at("10.0.0.1"));
        assert_ne!(user("a"), user("b"));
    }

    #[test]
    fn a_bucket_is_meant_whose_owner_is_expected() {
        let [ours, theirs] = ["a", "b"].map(UserId::plain);
        let means = |caller: &Caller| [caller.means(&ours), caller.means(&theirs)];
        let expecting = |own: Option<&str>, source: Option<&str>| {
            Caller::default().expecting([own, source].map(|id| id.map(str::to_owned)))
        };
        assert_eq!(means(&Caller::default()), [true, true]);
        assert_eq!(means(&expecting(Some("a"), Some("b"))), [true, false]);
        assert_eq!(means(&expecting(Some("a"), Some("b")).at_source()), [false, true]);
        assert_eq!(means(&expecting(Some("a"), None).at_source()), [true, true]);
        assert_eq!(means(&expecting(Some(""), None)), [false, false]);
    }

    #[test]
    fn what_is_old_is_read_anew_and_what_is_kept_has_a_bound() {
        let cache = Cache::new();
        let old = Instant::now().checked_sub(AGE).unwrap();
        cache.put(1, old, "old");
        cache.put(2, Instant::now(), "new");
        assert_eq!((cache.get(&1), cache.get(&2)), (None, Some("new")));
        cache.forget(&2);
        assert_eq!(cache.get(&2), None);
        for n in 0..3 * BOUND {
            cache.put(n, Instant::now(), "x");
            assert!(cache.entries.lock().unwrap().len() <= BOUND);
        }
    }
}

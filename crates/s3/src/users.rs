//! Who asks: users by their access keys, kept for a short time.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
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

/// Who a request is carried out as.
#[derive(Debug, Clone)]
pub enum Caller {
    Nobody,
    User(Arc<UserInfo>),
}

impl Caller {
    pub fn user(&self) -> Option<&UserInfo> {
        match self {
            Self::Nobody => None,
            Self::User(info) => Some(info),
        }
    }

    pub fn is(&self, id: &UserId) -> bool {
        self.user().is_some_and(|info| info.id == *id)
    }

    /// Where the caller's buckets are named.
    pub fn tenant(&self) -> Bytes {
        self.user().map(|info| info.id.tenant.clone()).unwrap_or_default()
    }

    /// As what it makes belongs to it. Source: the user "anonymous" in src/rgw/rgw_common.h.
    pub fn owner(&self) -> Owner {
        match self {
            Self::User(info) => Owner { id: info.id.clone(), display_name: info.display_name.clone() },
            Self::Nobody => Owner { id: UserId::plain("anonymous"), display_name: Bytes::new() },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

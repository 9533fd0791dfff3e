//! Turns: what changes one thing goes one after the other within this gateway, so that one does not undo its
//! work for another again and again. Other gateways change it at the same time, and are noticed as ever.
//!
//! Invariant: an entry is there while somebody has a turn or waits for one.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::OwnedMutexGuard;

/// See the module.
#[derive(Debug)]
pub struct Turns<K>(Mutex<HashMap<K, Weak<tokio::sync::Mutex<()>>>>);

impl<K: Hash + Eq> Turns<K> {
    pub fn new() -> Self {
        Self(Mutex::default())
    }

    /// Waits for a turn, which lasts until it is dropped.
    pub async fn take(&self, key: K) -> OwnedMutexGuard<()> {
        let turn = {
            let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            // As many are left as requests that are under way.
            all.retain(|_, turn| turn.strong_count() > 0);
            let known = all.get(&key).and_then(Weak::upgrade);
            known.unwrap_or_else(|| {
                let made = Arc::default();
                all.insert(key, Arc::downgrade(&made));
                made
            })
        };
        turn.lock_owned().await
    }
}

#[cfg(test)]
mod tests {
    use std::future::{Future, poll_fn};
    use std::pin::pin;
    use std::task::Poll;

    use super::*;

    async fn is_ready<T>(future: &mut (impl Future<Output = T> + Unpin)) -> bool {
        let future = &mut *future;
        poll_fn(|cx| Poll::Ready(std::pin::Pin::new(&mut *future).poll(cx).is_ready())).await
    }

    #[tokio::test]
    async fn one_has_a_turn_at_a_time_and_others_are_not_held_up() {
        let turns = Turns::new();
        let first = turns.take("a").await;
        let mut second = pin!(turns.take("a"));
        assert!(!is_ready(&mut second).await);
        let other = turns.take("b").await;
        drop(first);
        assert!(is_ready(&mut second).await);
        drop(other);
        let third = turns.take("c").await;
        assert_eq!(turns.0.lock().unwrap().len(), 1, "what nobody waits for is forgotten");
        drop(third);
    }
}

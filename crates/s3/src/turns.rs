//! Turns: what changes one thing goes one after the other within this gateway, so that one does not undo its
//! work for another again and again. Other gateways change it at the same time, and are noticed as ever.
//!
//! Invariant: an entry is there while somebody has a turn or waits for one.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::OwnedMutexGuard;

/// So many have or await a turn at one thing.
const MAX: usize = 256;

/// See the module.
#[derive(Debug)]
pub struct Turns<K>(Mutex<HashMap<K, Weak<tokio::sync::Mutex<()>>>>);

impl<K: Hash + Eq> Turns<K> {
    pub fn new() -> Self {
        Self(Mutex::default())
    }

    /// Waits for a turn, which lasts until it is dropped; `None` when it does not come for so long, or too
    /// many wait.
    pub async fn take(&self, key: K, patience: Duration) -> Option<OwnedMutexGuard<()>> {
        let turn: Arc<tokio::sync::Mutex<()>> = {
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
        // Ours, that of whoever has the turn, and of each who waits.
        if Arc::strong_count(&turn) > MAX {
            return None;
        }
        tokio::time::timeout(patience, turn.lock_owned()).await.ok()
    }
}

#[cfg(test)]
mod tests {
    use std::future::{Future, poll_fn};
    use std::pin::pin;
    use std::task::Poll;

    use super::*;

    const LONG: Duration = Duration::from_secs(3_600);

    async fn is_ready<T>(future: &mut (impl Future<Output = T> + Unpin)) -> bool {
        let future = &mut *future;
        poll_fn(|cx| Poll::Ready(std::pin::Pin::new(&mut *future).poll(cx).is_ready())).await
    }

    #[tokio::test]
    async fn one_has_a_turn_at_a_time_and_others_are_not_held_up() {
        let turns = Turns::new();
        let first = turns.take("a", LONG).await;
        let mut second = pin!(turns.take("a", LONG));
        assert!(!is_ready(&mut second).await);
        let other = turns.take("b", LONG).await;
        assert!(other.is_some());
        drop(first);
        assert!(is_ready(&mut second).await);
        drop(other);
        let third = turns.take("c", LONG).await;
        assert_eq!(turns.0.lock().unwrap().len(), 1, "what nobody waits for is forgotten");
        drop(third);
    }

    #[tokio::test]
    async fn nobody_waits_for_ever_and_not_all_wait() {
        let turns = Turns::new();
        let first = turns.take("a", LONG).await;
        assert!(turns.take("a", Duration::ZERO).await.is_none());
        let mut waiting: Vec<_> = (1..MAX).map(|_| Box::pin(turns.take("a", LONG))).collect();
        for turn in &mut waiting {
            assert!(!is_ready(turn).await);
        }
        assert!(turns.take("a", LONG).await.is_none(), "one more");
        drop((waiting, first));
        assert!(turns.take("a", LONG).await.is_some());
    }
}

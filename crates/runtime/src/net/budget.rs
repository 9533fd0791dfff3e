//! What clients' large frames may hold of memory before they are whole.
//!
//! A frame of more than [`SMALL_FRAME_BYTES`] is read only when its bytes are reserved here. When none are left, it waits,
//! and its bytes with it in the socket; small frames go on, and so do daemons, for which clients wait themselves.
//!
//! Invariants:
//! 1. What all leases hold is at most the limit.
//! 2. What one entity holds is at most a quarter of the limit, or one single frame.
//! 3. Whoever asked first is served first, past those that wait for their own entity's share only.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use msgr::Grant;
use tokio::sync::oneshot;
use types::AuthName;

use crate::owner::lock;

/// Frames of at most so many bytes need no lease.
pub(super) const SMALL_FRAME_BYTES: usize = 64 << 10;

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Budget {
    limit: u64,
    book: Mutex<Book>,
}

#[derive(Debug, Default)]
struct Book {
    held: u64,
    by_entity: BTreeMap<AuthName, u64>,
    waiting: VecDeque<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    entity: AuthName,
    bytes: u64,
    tell: oneshot::Sender<Lease>,
}

/// Reserved bytes, until it is dropped.
#[derive(Debug)]
pub(super) struct Lease {
    budget: Arc<Budget>,
    entity: AuthName,
    bytes: u64,
}

/// Whether a connection may be read from.
#[derive(Debug)]
pub(super) enum Reading {
    /// What comes next needs no lease.
    Free,
    Waiting(oneshot::Receiver<Lease>),
    /// A large frame is under way.
    Granted(#[allow(dead_code)] Option<Lease>), // held, not looked at
}

impl Reading {
    pub(super) fn is_waiting(&self) -> bool {
        matches!(self, Self::Waiting(_))
    }

    /// The lease that is waited for. May be dropped and called again.
    pub(super) async fn granted(&mut self) -> Option<Lease> {
        match self {
            Self::Waiting(lease) => lease.await.ok(),
            _ => std::future::pending().await,
        }
    }

    /// After a read: what the next frame needs. The lease of the last one ends with it.
    pub(super) fn next(&mut self, grant: Grant, budget: &Arc<Budget>, client: Option<&AuthName>) {
        match (grant, client) {
            (Grant::Given, _) => {}
            (Grant::Wanted(bytes), Some(client)) => {
                *self = Self::Free;
                *self = Self::Waiting(budget.ask(client, bytes));
            }
            _ => *self = Self::Free,
        }
    }
}

impl Budget {
    /// `limit` in bytes; at least as much as one frame may have, or that frame waits for ever.
    pub(super) fn new(limit: u64) -> Arc<Self> {
        Arc::new(Self { limit, book: Mutex::default() })
    }

    /// Asks for bytes; the lease comes when they are free. Dropping the receiver gives up.
    pub(super) fn ask(self: &Arc<Self>, entity: &AuthName, bytes: usize) -> oneshot::Receiver<Lease> {
        let (tell, hears) = oneshot::channel();
        let bytes = (bytes as u64).min(self.limit);
        lock(&self.book).waiting.push_back(Waiting { entity: entity.clone(), bytes, tell });
        self.serve();
        hears
    }

    #[cfg(test)]
    pub(super) fn held(&self) -> u64 {
        lock(&self.book).held
    }

    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        lock(&self.book).waiting.len()
    }

    fn serve(self: &Arc<Self>) {
        // Whom nobody hears gives its lease back, and that serves others: not under the lock.
        while let Some((waiting, lease)) = self.next() {
            drop(waiting.tell.send(lease));
        }
    }

    fn next(self: &Arc<Self>) -> Option<(Waiting, Lease)> {
        let mut book = lock(&self.book);
        book.waiting.retain(|w| !w.tell.is_closed());
        let may = |w: &Waiting| {
            let held = book.by_entity.get(&w.entity).copied().unwrap_or(0);
            held == 0 || held + w.bytes <= self.limit / 4
        };
        let at = book.waiting.iter().position(may)?;
        let bytes = book.waiting.get(at)?.bytes;
        if book.held + bytes > self.limit {
            return None;
        }
        let waiting = book.waiting.remove(at)?;
        book.held += bytes;
        *book.by_entity.entry(waiting.entity.clone()).or_default() += bytes;
        let lease = Lease { budget: Arc::clone(self), entity: waiting.entity.clone(), bytes };
        Some((waiting, lease))
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        {
            let mut book = lock(&self.budget.book);
            book.held -= self.bytes;
            if let Some(held) = book.by_entity.get_mut(&self.entity) {
                *held -= self.bytes;
                if *held == 0 {
                    book.by_entity.remove(&self.entity);
                }
            }
        }
        self.budget.serve();
    }
}

#[cfg(test)]
mod tests {
    use types::EntityType;

    use super::*;

    fn client(id: &str) -> AuthName {
        AuthName::new(EntityType::Client, id)
    }

    #[test]
    fn nobody_gets_more_than_there_is_and_all_get_it_in_turn() {
        let budget = Budget::new(100);
        let mut first = budget.ask(&client("a"), 60);
        let first = first.try_recv().expect("free");
        let mut second = budget.ask(&client("b"), 50);
        let mut third = budget.ask(&client("c"), 10);
        assert!(
            second.try_recv().is_err() && third.try_recv().is_err(),
            "in turn, or a large one waits for ever"
        );
        drop(first);
        let second = second.try_recv().expect("its turn");
        let third = third.try_recv().expect("its turn");
        drop((second, third));
        assert_eq!(lock(&budget.book).held, 0);
        assert!(lock(&budget.book).by_entity.is_empty());
    }

    #[test]
    fn an_entity_has_a_share_and_a_single_frame_may_be_larger() {
        let budget = Budget::new(100);
        let large = budget.ask(&client("a"), 40).try_recv().expect("its only frame");
        let mut more = budget.ask(&client("a"), 1);
        assert!(more.try_recv().is_err());
        let other =
            budget.ask(&client("b"), 25).try_recv().expect("passes those that wait for their own share");
        assert!(budget.ask(&client("b"), 1).try_recv().is_err());
        drop(large);
        drop(more.try_recv().expect("its share again"));
        drop(other);
    }

    #[test]
    fn who_went_away_keeps_nothing() {
        let budget = Budget::new(100);
        let held = budget.ask(&client("a"), 100).try_recv().expect("free");
        drop(budget.ask(&client("b"), 100));
        let mut last = budget.ask(&client("c"), 100);
        drop(held);
        drop(last.try_recv().expect("nothing is held by the one that left"));
        assert_eq!(lock(&budget.book).held, 0);
    }
}

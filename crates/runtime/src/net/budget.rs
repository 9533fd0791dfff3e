//! Memory for clients' large frames that are not whole yet.
//!
//! A client's frame of more than [`SMALL_FRAME_BYTES`] is read only under a lease of as many bytes from this
//! budget. While the budget has none left, the frame waits in its socket. Small frames and frames of OSDs and
//! monitors need no lease: clients wait for these, so these must not wait for clients.
//!
//! Invariants:
//! 1. What all leases hold is at most the limit.
//! 2. The leases of one entity hold at most a quarter of the limit, or one single frame of any size.
//! 3. Requests are served in the order in which they came. A request that waits only because its entity holds
//!    its share already is passed over.

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
    /// The next frame needs no lease.
    Free,
    /// The next frame needs a lease that has not come yet: nothing is read.
    Waiting(oneshot::Receiver<Lease>),
    /// A large frame is being read under this lease.
    Granted(#[allow(dead_code)] Option<Lease>), // only held, until it is dropped
}

impl Reading {
    pub(super) fn is_waiting(&self) -> bool {
        matches!(self, Self::Waiting(_))
    }

    /// Waits for the lease; for ever when none was asked for. Safe to drop and call again.
    pub(super) async fn granted(&mut self) -> Option<Lease> {
        match self {
            Self::Waiting(lease) => lease.await.ok(),
            _ => std::future::pending().await,
        }
    }

    /// Called after each read with what the next frame needs. A lease is given back once its frame is whole.
    /// `client` is `None` for daemons.
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
    /// `limit` in bytes. A frame that is larger than the limit gets all of it.
    pub(super) fn new(limit: u64) -> Arc<Self> {
        Arc::new(Self { limit, book: Mutex::default() })
    }

    /// Asks for so many bytes. The receiver gets the lease when they are free; dropping it withdraws the
    /// request.
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
        // A lease whose receiver is gone is dropped here. That locks the book again, so it must not be locked
        // now.
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

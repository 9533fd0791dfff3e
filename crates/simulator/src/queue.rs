//! What will happen, in the order of time; what falls on the same moment happens in the order of its planning.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// Nanoseconds since the simulation began.
pub type Time = u64;

pub const MICROSECOND: Time = 1_000;
pub const MILLISECOND: Time = 1_000_000;
pub const SECOND: Time = 1_000_000_000;

struct Planned<E> {
    at: Time,
    seq: u64,
    event: E,
}

impl<E> PartialEq for Planned<E> {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.seq) == (other.at, other.seq)
    }
}
impl<E> Eq for Planned<E> {}
impl<E> PartialOrd for Planned<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl<E> Ord for Planned<E> {
    /// The heap gives its greatest first: the earliest is the greatest.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.seq).cmp(&(self.at, self.seq))
    }
}

/// A heap of events by `(time, order of planning)`.
pub struct Queue<E> {
    heap: BinaryHeap<Planned<E>>,
    seq: u64,
}

impl<E> Default for Queue<E> {
    fn default() -> Self {
        Self { heap: BinaryHeap::new(), seq: 0 }
    }
}

impl<E> Queue<E> {
    pub fn plan(&mut self, at: Time, event: E) {
        self.seq += 1;
        self.heap.push(Planned { at, seq: self.seq, event });
    }

    pub fn pop(&mut self) -> Option<(Time, E)> {
        self.heap.pop().map(|p| (p.at, p.event))
    }

    pub fn next_at(&self) -> Option<Time> {
        self.heap.peek().map(|p| p.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn earliest_first_and_ties_in_order_of_planning() {
        let mut q = Queue::default();
        for (at, name) in [(5, "c"), (1, "a"), (5, "d"), (2, "b")] {
            q.plan(at, name);
        }
        let got: Vec<_> = std::iter::from_fn(|| q.pop()).map(|(_, e)| e).collect();
        assert_eq!(got, ["a", "b", "c", "d"]);
    }
}

//! A panic ends one piece of a monitor's work, not the monitor: what the state says would come upon it again after each start.
//!
//! Invariants:
//! 1. Only work on a copy is contained: a batch, an answer, a message for a session. What such work did is thrown away.
//! 2. Applying what was committed is never contained: a member that leaves out a part is not the same as the others any more.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    /// How many pieces of contained work are under way on this thread, one in another.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// Whether a panic on this thread now is dealt with: a process that ends itself on panics goes on.
pub fn is_panic_contained() -> bool {
    DEPTH.with(Cell::get) > 0
}

/// The outcome of a piece of work; `None` when it panicked.
pub(crate) fn contained<T>(work: impl FnOnce() -> T) -> Option<T> {
    DEPTH.with(|d| d.set(d.get() + 1));
    let outcome = catch_unwind(AssertUnwindSafe(work));
    DEPTH.with(|d| d.set(d.get() - 1));
    outcome.ok()
}

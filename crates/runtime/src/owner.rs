//! One owner at a time for a core that many threads feed: whoever finds the core free applies everything that waits.
//!
//! A connection's task that brings an operation usually runs it to completion itself, without a hop to another thread;
//! under load one thread applies the inputs of all, so batches form by themselves. Nobody ever waits for the core.
//!
//! Invariants:
//! 1. Inputs are applied in the order in which they entered the inbox.
//! 2. An input in the inbox is applied by a thread that is inside `submit`: the one that fails to get the core leaves its
//!    input to the holder, and the holder looks into the inbox again after letting the core go.
//! 3. `Machine::apply` never runs twice at the same time.

use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// A synchronous state machine with everything it needs to carry out its effects.
pub trait Machine: Send {
    type Input: Send;

    /// Handles the inputs that were waiting, and carries out the effects. `inputs` may be left with its capacity.
    fn apply(&mut self, inputs: &mut Vec<Self::Input>);
}

/// Owns a machine and its inbox.
#[derive(Debug)]
pub struct Owner<M: Machine> {
    inbox: Mutex<Vec<M::Input>>,
    machine: Mutex<Slot<M>>,
}

#[derive(Debug)]
struct Slot<M: Machine> {
    machine: M,
    /// Swapped with the inbox, so that neither vector is allocated again in steady state.
    batch: Vec<M::Input>,
}

impl<M: Machine> Owner<M> {
    pub fn new(machine: M) -> Self {
        Self { inbox: Mutex::new(Vec::new()), machine: Mutex::new(Slot { machine, batch: Vec::new() }) }
    }

    /// Hands in one input; it may be applied on this thread before the call returns, or on another one.
    pub fn submit(&self, input: M::Input) {
        lock(&self.inbox).push(input);
        self.run();
    }

    /// Hands in a batch, leaving `inputs` empty.
    pub fn submit_all(&self, inputs: &mut Vec<M::Input>) {
        if inputs.is_empty() {
            return;
        }
        lock(&self.inbox).append(inputs);
        self.run();
    }

    /// Runs `body` with the machine, waiting for it; for queries and shutdown, not for the data path.
    pub fn with<T>(&self, body: impl FnOnce(&mut M) -> T) -> T {
        let result = {
            let mut slot = lock(&self.machine);
            body(&mut slot.machine)
        };
        // Inputs that came meanwhile found the core taken.
        self.run();
        result
    }

    fn run(&self) {
        loop {
            {
                let mut slot = match self.machine.try_lock() {
                    Ok(slot) => slot,
                    Err(TryLockError::WouldBlock) => return,
                    Err(TryLockError::Poisoned(e)) => e.into_inner(),
                };
                let Slot { machine, batch } = &mut *slot;
                loop {
                    std::mem::swap(&mut *lock(&self.inbox), batch);
                    if batch.is_empty() {
                        break;
                    }
                    machine.apply(batch);
                    batch.clear();
                }
            }
            if lock(&self.inbox).is_empty() {
                return;
            }
        }
    }
}

/// A panic while a lock was held is a bug that has been reported; other threads go on with what is there.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[derive(Debug, Default)]
    struct Recorder {
        seen: Vec<(usize, usize)>,
        inside: bool,
    }

    impl Machine for Recorder {
        type Input = (usize, usize);
        fn apply(&mut self, inputs: &mut Vec<(usize, usize)>) {
            assert!(!self.inside);
            self.inside = true;
            self.seen.append(inputs);
            self.inside = false;
        }
    }

    #[test]
    fn every_input_of_every_thread_is_applied_once_and_in_order() {
        let owner = Arc::new(Owner::new(Recorder::default()));
        let threads: Vec<_> = (0..4)
            .map(|t| {
                let owner = Arc::clone(&owner);
                std::thread::spawn(move || (0..10_000).for_each(|i| owner.submit((t, i))))
            })
            .collect();
        for t in threads {
            t.join().expect("no panic");
        }
        let seen = owner.with(|r| std::mem::take(&mut r.seen));
        assert_eq!(seen.len(), 40_000);
        for t in 0..4 {
            assert!(seen.iter().filter(|(who, _)| *who == t).map(|(_, i)| *i).eq(0..10_000));
        }
    }
}

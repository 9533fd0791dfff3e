//! Gives a core that many threads feed one owner at a time: the thread that finds it free applies all inputs
//! that wait.
//!
//! A connection's task that brings an operation usually runs it to completion itself, without a hop to
//! another thread; under load one thread applies the inputs of all, so batches form by themselves. Nobody
//! ever waits for the core.
//!
//! Invariants:
//! 1. Inputs are applied in the order in which they entered the inbox.
//! 2. An input in the inbox is applied by a thread that is inside `submit`: the one that fails to get the
//!    core leaves its input to the holder, and the holder looks into the inbox again after letting the core
//!    go.
//! 3. `Machine::apply` never runs twice at the same time.
//! 4. A machine that panicked, or that was ended, is dropped by the thread that holds it, and sees no further
//!    input.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use crate::contain::contained;

/// A synchronous state machine with everything it needs to carry out its effects.
pub trait Machine: Send {
    type Input: Send;

    /// Handles the inputs that were waiting, and carries out the effects. `inputs` may be left with its
    /// capacity.
    fn apply(&mut self, inputs: &mut Vec<Self::Input>);
}

/// Is told how a machine panicked, while the machine is still held, so that no thread has seen what it left
/// behind.
type OnPanic = Box<dyn Fn(String) + Send + Sync>;

/// Owns a machine and its inbox.
pub struct Owner<M: Machine> {
    inbox: Mutex<Vec<M::Input>>,
    machine: Mutex<Slot<M>>,
    ended: AtomicBool,
    /// `None`: a panic goes on into the thread that submitted.
    on_panic: Option<OnPanic>,
}

struct Slot<M: Machine> {
    /// `None` once it has ended.
    machine: Option<M>,
    /// Swapped with the inbox, so that neither vector is allocated again in steady state.
    batch: Vec<M::Input>,
}

impl<M: Machine> Owner<M> {
    pub fn new(machine: M) -> Self {
        let slot = Slot { machine: Some(machine), batch: Vec::new() };
        Self {
            inbox: Mutex::new(Vec::new()),
            machine: Mutex::new(slot),
            ended: AtomicBool::new(false),
            on_panic: None,
        }
    }

    /// Owns a machine whose panics end it alone. `on_panic` is called on the thread that had the machine,
    /// before any other thread gets it; it must not wait for the machine.
    pub fn contained(machine: M, on_panic: impl Fn(String) + Send + Sync + 'static) -> Self {
        Self { on_panic: Some(Box::new(on_panic)), ..Self::new(machine) }
    }

    /// Ends the machine: at once when it is free, else when the batch that it is at is through. May be called
    /// from within it.
    pub fn end(&self) {
        self.ended.store(true, Ordering::SeqCst);
        self.run();
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

    /// Runs `body` with the machine, waiting for it; for queries and shutdown, not for the data path. `None`
    /// when the machine has ended.
    pub fn with<T>(&self, body: impl FnOnce(&mut M) -> T) -> Option<T> {
        let result = {
            let mut slot = lock(&self.machine);
            let machine = slot.machine.as_mut().filter(|_| !self.ended.load(Ordering::SeqCst));
            machine.and_then(|machine| self.guarded(|| body(machine)))
        };
        // Inputs that came meanwhile found the core taken.
        self.run();
        result
    }

    /// Calls into the machine; `None` when that panicked, and the machine has ended.
    fn guarded<T>(&self, call: impl FnOnce() -> T) -> Option<T> {
        let Some(on_panic) = &self.on_panic else { return Some(call()) };
        contained(call)
            .inspect_err(|how| {
                self.ended.store(true, Ordering::SeqCst);
                on_panic(how.clone());
            })
            .ok()
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
                    if self.ended.load(Ordering::SeqCst) {
                        batch.clear();
                        let old = machine.take();
                        // After a panic its state may be such that dropping it panics as well.
                        let _ = contained(|| drop(old));
                        break;
                    }
                    let Some(machine) = machine.as_mut().filter(|_| !batch.is_empty()) else { break };
                    let _ = self.guarded(|| machine.apply(batch));
                    batch.clear();
                }
            }
            let is_done = lock(&self.inbox).is_empty();
            let is_left = self.ended.load(Ordering::SeqCst) && self.has_machine();
            if is_done && !is_left {
                return;
            }
        }
    }

    /// Whether one is still there that nobody holds.
    fn has_machine(&self) -> bool {
        self.machine.try_lock().is_ok_and(|slot| slot.machine.is_some())
    }
}

impl<M: Machine> fmt::Debug for Owner<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Owner").field("ended", &self.ended).finish_non_exhaustive()
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
        let seen = owner.with(|r| std::mem::take(&mut r.seen)).expect("it did not end");
        assert_eq!(seen.len(), 40_000);
        for t in 0..4 {
            assert!(seen.iter().filter(|(who, _)| *who == t).map(|(_, i)| *i).eq(0..10_000));
        }
    }

    /// Adds what it is given, and panics at 0.
    struct Adder {
        sum: usize,
        dropped: Arc<AtomicBool>,
    }

    impl Machine for Adder {
        type Input = usize;
        fn apply(&mut self, inputs: &mut Vec<usize>) {
            for input in inputs.drain(..) {
                assert!(input != 0, "nothing to add to {}", self.sum);
                self.sum += input;
            }
        }
    }

    impl Drop for Adder {
        fn drop(&mut self) {
            self.dropped.store(true, Ordering::SeqCst);
        }
    }

    #[test]
    fn a_machine_that_panics_is_dropped_and_its_owner_hears_how() {
        let (dropped, how) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
        let heard = Arc::clone(&how);
        let (alive, adder) = (Arc::clone(&dropped), Adder { sum: 0, dropped: Arc::clone(&dropped) });
        let owner = Owner::contained(adder, move |text| {
            assert!(!alive.load(Ordering::SeqCst), "it is told before the machine goes");
            lock(&heard).push(text);
        });
        owner.submit(3);
        assert_eq!(owner.with(|m| m.sum), Some(3));
        owner.submit_all(&mut vec![4, 0, 5]);
        assert!(dropped.load(Ordering::SeqCst));
        owner.submit(0);
        assert_eq!(owner.with(|m| m.sum), None);
        assert_eq!(lock(&how).len(), 1);
        assert!(lock(&how)[0].ends_with("nothing to add to 7"), "{how:?}");
    }

    #[test]
    fn a_machine_that_is_ended_is_dropped_also_by_a_panic_of_a_query_or_from_within() {
        let new = || {
            let dropped = Arc::new(AtomicBool::new(false));
            let owner = Owner::contained(Adder { sum: 0, dropped: Arc::clone(&dropped) }, |_| {});
            (owner, dropped)
        };
        let (owner, dropped) = new();
        owner.end();
        assert!(dropped.load(Ordering::SeqCst));
        let (owner, dropped) = new();
        assert_eq!(owner.with(|_| panic!("a bad question")), None::<()>);
        assert!(dropped.load(Ordering::SeqCst));
        let (owner, dropped) = new();
        assert_eq!(owner.with(|_| owner.end()), Some(()), "it is held meanwhile");
        assert!(dropped.load(Ordering::SeqCst));
    }
}

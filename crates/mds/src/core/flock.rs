//! Locks on a file: on ranges for fcntl, whole for flock; who holds them and who waits.
//!
//! A range is from a start to an end that is not part of it; `u64::MAX` is to the end, wherever that is.
//!
//! Source: src/mds/flock.cc.

use messages::fs::{FileLock, LockType};
use types::GlobalId;

/// Ranges that one client holds of one file at most.
const MAX_HELD: usize = 16_384;
/// Owners that are looked at for a deadlock.
const MAX_DEPTH: usize = 5;

/// Of old clients the process is part of the owner; later ones set the upper bit. Source:
/// ceph_filelock_owner_equal.
fn is_same_owner(a: &FileLock, b: &FileLock) -> bool {
    if a.client != b.client || a.owner != b.owner {
        return false;
    }
    a.owner & (1 << 63) != 0 || a.pid == b.pid
}

fn end(lock: &FileLock) -> u64 {
    if lock.length == 0 { u64::MAX } else { lock.start.saturating_add(lock.length) }
}

fn overlaps(a: &FileLock, b: &FileLock) -> bool {
    a.start < end(b) && b.start < end(a)
}

fn conflicts(a: &FileLock, b: &FileLock) -> bool {
    overlaps(a, b) && !is_same_owner(a, b) && (a.lock == LockType::EXCL || b.lock == LockType::EXCL)
}

/// The locks of one kind.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct FileLocksOf {
    pub held: Vec<FileLock>,
    pub waiting: Vec<FileLock>,
}

/// The locks of a file.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct FileLockTable {
    pub fcntl: FileLocksOf,
    pub flock: FileLocksOf,
}

impl FileLockTable {
    pub fn is_empty(&self) -> bool {
        [&self.fcntl, &self.flock].iter().all(|l| l.held.is_empty() && l.waiting.is_empty())
    }

    /// A client is gone.
    pub fn remove_client(&mut self, client: GlobalId) {
        for locks in [&mut self.fcntl, &mut self.flock] {
            locks.held.retain(|l| l.client != client.0);
            locks.waiting.retain(|l| l.client != client.0);
        }
    }
}

/// What came of a wish for a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wish {
    Held,
    /// Others hold what is in the way.
    Blocked,
    /// The client holds too many.
    TooMany,
}

impl FileLocksOf {
    /// Takes a lock if nothing is in the way.
    pub fn add(&mut self, new: &FileLock) -> Wish {
        if self.held.iter().any(|l| conflicts(l, new)) {
            return Wish::Blocked;
        }
        if self.held.iter().filter(|l| l.client == new.client).count() >= MAX_HELD {
            return Wish::TooMany;
        }
        self.stop_waiting(new);
        self.cut(new);
        self.held.push(*new);
        self.join(new);
        Wish::Held
    }

    /// Gives up a range.
    pub fn remove(&mut self, gone: &FileLock) {
        self.cut(gone);
    }

    /// An owner's ranges lose what `by` covers.
    fn cut(&mut self, by: &FileLock) {
        let mut kept = Vec::with_capacity(self.held.len() + 1);
        for lock in self.held.drain(..) {
            if !is_same_owner(&lock, by) || !overlaps(&lock, by) {
                kept.push(lock);
                continue;
            }
            if lock.start < by.start {
                kept.push(FileLock { length: by.start - lock.start, ..lock });
            }
            if end(&lock) > end(by) {
                let length = if lock.length == 0 { 0 } else { end(&lock) - end(by) };
                kept.push(FileLock { start: end(by), length, ..lock });
            }
        }
        self.held = kept;
    }

    /// Neighbours of one owner and type become one range.
    fn join(&mut self, new: &FileLock) {
        let mut whole = *new;
        loop {
            let touches = |l: &FileLock| {
                is_same_owner(l, &whole)
                    && l.lock == whole.lock
                    && *l != whole
                    && (end(l) == whole.start || end(&whole) == l.start)
            };
            let Some(at) = self.held.iter().position(touches) else { return };
            let other = self.held.swap_remove(at);
            let until = end(&other).max(end(&whole));
            let start = other.start.min(whole.start);
            let joined =
                FileLock { start, length: if until == u64::MAX { 0 } else { until - start }, ..whole };
            if let Some(place) = self.held.iter_mut().find(|l| **l == whole) {
                *place = joined;
            }
            whole = joined;
        }
    }

    /// The lock that is in the way of this one.
    pub fn blocker(&self, wish: &FileLock) -> Option<FileLock> {
        self.held.iter().find(|l| conflicts(l, wish)).copied()
    }

    pub fn is_waiting(&self, wish: &FileLock) -> bool {
        self.waiting.iter().any(|l| is_same_wait(l, wish))
    }

    pub fn wait(&mut self, wish: &FileLock) {
        if !self.is_waiting(wish) {
            self.waiting.push(*wish);
        }
    }

    pub fn stop_waiting(&mut self, wish: &FileLock) {
        self.waiting.retain(|l| !is_same_wait(l, wish));
    }

    /// Whether whoever is in the way of `wish` waits, perhaps over others of this file, for its owner. Waits
    /// for locks of other files are not looked at.
    pub fn is_deadlock(&self, wish: &FileLock) -> bool {
        let mut at: Vec<FileLock> = vec![*wish];
        for _ in 0..MAX_DEPTH {
            let mut next = Vec::new();
            for wait in &at {
                for holder in self.held.iter().filter(|l| conflicts(l, wait)) {
                    if is_same_owner(holder, wish) {
                        return true;
                    }
                    next.extend(self.waiting.iter().filter(|w| is_same_owner(w, holder)).copied());
                }
            }
            if next.is_empty() {
                return false;
            }
            at = next;
        }
        false
    }
}

fn is_same_wait(a: &FileLock, b: &FileLock) -> bool {
    is_same_owner(a, b) && (a.start, a.length) == (b.start, b.length)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(client: u64, start: u64, length: u64, lock: LockType) -> FileLock {
        FileLock { start, length, client, owner: 1 << 63 | client, pid: 1, lock }
    }

    #[test]
    fn ranges_of_others_are_in_the_way() {
        let mut l = FileLocksOf::default();
        assert_eq!(l.add(&lock(1, 0, 10, LockType::EXCL)), Wish::Held);
        assert_eq!(l.add(&lock(2, 10, 0, LockType::EXCL)), Wish::Held);
        assert_eq!(l.add(&lock(2, 9, 1, LockType::SHARED)), Wish::Blocked);
        assert_eq!(l.blocker(&lock(3, 5, 1, LockType::SHARED)), Some(lock(1, 0, 10, LockType::EXCL)));
        assert_eq!(l.add(&lock(1, 0, 10, LockType::SHARED)), Wish::Held, "an owner changes its own");
        assert_eq!(l.add(&lock(3, 0, 5, LockType::SHARED)), Wish::Held);
    }

    #[test]
    fn ranges_are_cut_and_joined() {
        let mut l = FileLocksOf::default();
        l.add(&lock(1, 0, 0, LockType::EXCL));
        l.remove(&lock(1, 10, 10, LockType::UNLOCK));
        assert_eq!(l.held, [lock(1, 0, 10, LockType::EXCL), lock(1, 20, 0, LockType::EXCL)]);
        l.add(&lock(1, 10, 10, LockType::EXCL));
        assert_eq!(l.held, [lock(1, 0, 0, LockType::EXCL)]);
        l.remove(&lock(1, 0, 0, LockType::UNLOCK));
        assert!(l.held.is_empty());
    }

    #[test]
    fn two_that_wait_for_each_other_are_a_deadlock() {
        let mut l = FileLocksOf::default();
        l.add(&lock(1, 0, 1, LockType::EXCL));
        l.add(&lock(2, 1, 1, LockType::EXCL));
        l.wait(&lock(1, 1, 1, LockType::EXCL));
        assert!(l.is_deadlock(&lock(2, 0, 1, LockType::EXCL)));
        assert!(!l.is_deadlock(&lock(3, 0, 1, LockType::EXCL)));
    }
}

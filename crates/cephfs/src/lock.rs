//! Locks on files, which servers keep; what we hold is told to the next holder of the rank.
//!
//! Source: Client::_do_filelock, _update_lock_state.

use codec::Decode;
use messages::fs::{FileLock, FsOp, LockKind, LockType, RequestArgs};
use types::Errno;

use crate::call::{Event, Step};
use crate::core::Client;
use crate::io::{Answer, Handle, Node, Ticket};
use crate::request::Ask;

/// Set in owners, so that servers tell them from those of old clients, which had the process in mind.
pub(crate) const OWNER_MARK: u64 = 1 << 63;
/// Ranges of one file that we hold.
const MAX_LOCKS: usize = 4096;

fn end(lock: &FileLock) -> u64 {
    if lock.length == 0 { u64::MAX } else { lock.start.saturating_add(lock.length) }
}

fn range(start: u64, until: u64) -> u64 {
    if until == u64::MAX { 0 } else { until - start }
}

/// An owner's ranges when one of them is locked or unlocked.
fn record(held: &mut Vec<FileLock>, new: FileLock) {
    let mut kept = Vec::with_capacity(held.len() + 2);
    for lock in held.drain(..) {
        let is_apart = lock.owner != new.owner || end(&lock) <= new.start || end(&new) <= lock.start;
        if is_apart {
            kept.push(lock);
            continue;
        }
        if lock.start < new.start {
            kept.push(FileLock { length: range(lock.start, new.start), ..lock });
        }
        if end(&lock) > end(&new) {
            kept.push(FileLock { start: end(&new), length: range(end(&new), end(&lock)), ..lock });
        }
    }
    if new.lock != LockType::UNLOCK {
        kept.push(new);
    }
    *held = kept;
}

impl Client {
    fn ask_lock(
        &mut self,
        ticket: Ticket,
        op: FsOp,
        handle: Handle,
        kind: LockKind,
        lock: &FileLock,
        wait: bool,
    ) -> Result<(), Errno> {
        let node = self.handles.get(&handle).ok_or(Errno::EBADF)?.node;
        if !matches!(kind, LockKind::FCNTL | LockKind::FLOCK) {
            return Err(Errno::EINVAL);
        }
        let held = self.inodes.get(&node).map_or(0, |i| i.locks.fcntl.len() + i.locks.flock.len());
        if held >= MAX_LOCKS && lock.lock != LockType::UNLOCK {
            return Err(Errno::ENOMEM);
        }
        let lock = FileLock { owner: lock.owner | OWNER_MARK, client: 0, ..*lock };
        let (path, args) = (self.path(node, None)?, RequestArgs::FileLock { kind, lock, wait });
        self.ask(Some(ticket), Ask { op, args, path, about: Some(node), ..Ask::default() });
        Ok(())
    }

    pub(crate) fn lock(
        &mut self,
        ticket: Ticket,
        handle: Handle,
        kind: LockKind,
        lock: &FileLock,
        wait: bool,
        event: Event,
    ) -> Step {
        match event {
            Event::Start => {
                if !matches!(lock.lock, LockType::SHARED | LockType::EXCL | LockType::UNLOCK) {
                    return Err(Errno::EINVAL);
                }
                self.ask_lock(ticket, FsOp::SETFILELOCK, handle, kind, lock, wait).map(|()| None)
            }
            Event::Reply(reply) => {
                reply.result?;
                if let Some(node) = self.handles.get(&handle).map(|f| f.node) {
                    self.record_lock(node, kind, *lock);
                }
                Ok(Some(Answer::Done))
            }
            Event::Retry | Event::Object(..) => Ok(None),
        }
    }

    /// What we hold of an inode after a server granted this.
    pub(crate) fn record_lock(&mut self, node: Node, kind: LockKind, lock: FileLock) {
        let Some(inode) = self.inodes.get_mut(&node) else { return };
        let locks = &mut inode.locks;
        let held = if kind == LockKind::FCNTL { &mut locks.fcntl } else { &mut locks.flock };
        record(held, FileLock { owner: lock.owner | OWNER_MARK, client: 0, ..lock });
    }

    pub(crate) fn test_lock(
        &mut self,
        ticket: Ticket,
        handle: Handle,
        kind: LockKind,
        lock: &FileLock,
        event: Event,
    ) -> Step {
        match event {
            Event::Start => {
                self.ask_lock(ticket, FsOp::GETFILELOCK, handle, kind, lock, false).map(|()| None)
            }
            Event::Reply(reply) => {
                reply.result?;
                let found = FileLock::from_bytes(reply.extra).map_err(|_| Errno::EBADMSG)?;
                Ok(Some(Answer::Lock(FileLock { owner: found.owner & !OWNER_MARK, ..found })))
            }
            Event::Retry | Event::Object(..) => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(owner: u64, start: u64, length: u64, lock: LockType) -> FileLock {
        FileLock { start, length, client: 0, owner, pid: 0, lock }
    }

    #[test]
    fn ranges_are_cut_by_later_ones_of_the_same_owner() {
        let mut held = Vec::new();
        record(&mut held, lock(1, 0, 0, LockType::EXCL));
        record(&mut held, lock(2, 5, 5, LockType::SHARED));
        record(&mut held, lock(1, 10, 10, LockType::UNLOCK));
        let want =
            [lock(1, 0, 10, LockType::EXCL), lock(1, 20, 0, LockType::EXCL), lock(2, 5, 5, LockType::SHARED)];
        assert_eq!(held, want);
        record(&mut held, lock(1, 5, 20, LockType::SHARED));
        assert_eq!(
            held.iter().filter(|l| l.owner == 1).map(|l| (l.start, l.length)).collect::<Vec<_>>(),
            [(0, 5), (25, 0), (5, 20)]
        );
        record(&mut held, lock(1, 0, 0, LockType::UNLOCK));
        assert_eq!(held, [lock(2, 5, 5, LockType::SHARED)]);
    }
}

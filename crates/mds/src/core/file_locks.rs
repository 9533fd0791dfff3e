//! Requests for locks on files. They are kept in memory: clients tell a new server of those that they hold.
//!
//! Source: Server::handle_client_file_setlock, handle_client_file_readlock.

use codec::Encode;
use messages::fs::{FileLock, LockKind, LockType, RequestArgs};
use types::{Errno, Ino};

use super::access::READ;
use super::flock::{FileLocksOf, Wish};
use super::path::Walked;
use super::request::{Done, Request, Run, Stop, Wait};
use super::server::Server;

impl Server {
    fn locks_of(&mut self, ino: Ino, is_fcntl: bool) -> Run<&mut FileLocksOf> {
        let inode = self.cache.get_mut(ino).ok_or(Stop::Fail(Errno::ESTALE))?;
        let table = inode.locks.get_or_insert_default();
        Ok(if is_fcntl { &mut table.fcntl } else { &mut table.flock })
    }

    fn tidy_locks(&mut self, ino: Ino) {
        if let Some(inode) = self.cache.get_mut(ino) {
            if inode.locks.as_ref().is_some_and(|l| l.is_empty()) {
                inode.locks = None;
            }
        }
    }

    fn locked_file(&mut self, request: &Request) -> Run<(Ino, LockKind, FileLock, bool)> {
        let RequestArgs::FileLock { kind, lock, wait } = request.msg.args else {
            return Err(Errno::EINVAL.into());
        };
        let path = request.msg.path.clone();
        let Walked { ino, .. } = self.walk(request, &path)?;
        self.check(request, ino, READ)?;
        let lock = FileLock { client: request.client.0, ..lock };
        Ok((ino, kind, lock, wait))
    }

    pub(crate) fn op_setfilelock(&mut self, request: &mut Request) -> Run<Done> {
        let (ino, kind, lock, wait) = self.locked_file(request)?;
        let done = Done { target: Some(ino), ..Done::default() };
        let is_fcntl = matches!(kind, LockKind::FCNTL | LockKind::FCNTL_INTR);
        match kind {
            LockKind::FCNTL_INTR | LockKind::FLOCK_INTR => {
                self.locks_of(ino, is_fcntl)?.stop_waiting(&lock);
                self.wake(&Wait::FileLock(ino));
                self.tidy_locks(ino);
                return Ok(done);
            }
            LockKind::FCNTL | LockKind::FLOCK => {}
            _ => return Err(Errno::EINVAL.into()),
        }
        if lock.lock == LockType::UNLOCK {
            let locks = self.locks_of(ino, is_fcntl)?;
            locks.remove(&lock);
            self.wake(&Wait::FileLock(ino));
            self.tidy_locks(ino);
            return Ok(done);
        }
        if !matches!(lock.lock, LockType::SHARED | LockType::EXCL) {
            return Err(Errno::EINVAL.into());
        }
        let has_waited = request.waits_for_lock;
        let locks = self.locks_of(ino, is_fcntl)?;
        if has_waited && !locks.is_waiting(&lock) {
            // The client ended the wait, or its session is gone.
            self.tidy_locks(ino);
            return Err(Errno::EINTR.into());
        }
        match locks.add(&lock) {
            Wish::Held => {
                // A wish that was given up may have been in the way of others.
                self.wake(&Wait::FileLock(ino));
                Ok(done)
            }
            Wish::TooMany => Err(Errno::ENOLCK.into()),
            Wish::Blocked if !wait => {
                self.tidy_locks(ino);
                Err(Errno::EAGAIN.into())
            }
            Wish::Blocked => {
                if is_fcntl && locks.is_deadlock(&lock) {
                    locks.stop_waiting(&lock);
                    return Err(Errno::EDEADLK.into());
                }
                locks.wait(&lock);
                request.waits_for_lock = true;
                Err(Stop::Wait(Wait::FileLock(ino)))
            }
        }
    }

    pub(crate) fn op_getfilelock(&mut self, request: &mut Request) -> Run<Done> {
        let (ino, kind, lock, _) = self.locked_file(request)?;
        if !matches!(kind, LockKind::FCNTL | LockKind::FLOCK) {
            return Err(Errno::EINVAL.into());
        }
        let locks = self.locks_of(ino, kind == LockKind::FCNTL)?;
        let found = locks.blocker(&lock).unwrap_or(FileLock { lock: LockType::UNLOCK, ..lock });
        self.tidy_locks(ino);
        Ok(Done { target: Some(ino), extra: found.to_bytes(), ..Done::default() })
    }
}

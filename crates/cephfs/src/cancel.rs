//! Calls that are given up: by whoever made them, or because their time is over.

use std::time::Duration;

use messages::fs::{FileLock, FsOp, LockKind, LockType, RequestArgs};
use types::Errno;

use crate::call::{Running, Stage};
use crate::core::Client;
use crate::io::{Call, Effect, Ticket};
use crate::lock::OWNER_MARK;
use crate::request::Ask;

impl Client {
    /// Ends a call. What a server was asked may be done all the same; a lock that it gives is given back. A
    /// read or a write whose objects are under way ends by itself.
    pub(crate) fn cancel(&mut self, ticket: Ticket, errno: Errno) {
        if self.calls.get(&ticket).is_none_or(|r| r.stage.has_objects()) {
            return;
        }
        let Some(Running { call, stage }) = self.calls.remove(&ticket) else { return };
        self.settling.remove(&ticket);
        self.timed.remove(&ticket);
        let of_it = |(tid, r): (&u64, &crate::request::Request)| (r.ticket == Some(ticket)).then_some(*tid);
        let tids: Vec<u64> = self.requests.iter().filter_map(of_it).collect();
        for tid in tids {
            self.give_up_request(tid);
        }
        match &call {
            Call::Open { flags, .. } => self.give_up_open(&stage, *flags),
            Call::Read { handle, .. } | Call::Write { handle, .. } => {
                let node = self.handles.get(handle).map(|f| f.node);
                if let Some(inode) = node.and_then(|n| self.inodes.get_mut(&n)) {
                    inode.waiters.retain(|t| *t != ticket);
                }
            }
            _ => {}
        }
        self.out.push(Effect::Done(ticket, Err(errno)));
    }

    fn give_up_request(&mut self, tid: u64) {
        let Some(request) = self.requests.get_mut(&tid) else { return };
        request.ticket = None;
        if request.rank.is_none() {
            self.requests.remove(&tid);
            return self.wake_settling();
        }
        let RequestArgs::FileLock { kind, lock, wait } = request.msg.args else { return };
        if request.msg.op != FsOp::SETFILELOCK || lock.lock == LockType::UNLOCK {
            return;
        }
        request.is_undone = true;
        let kind = match kind {
            LockKind::FCNTL => LockKind::FCNTL_INTR,
            _ => LockKind::FLOCK_INTR,
        };
        if wait {
            self.ask_unlock(tid, kind, lock);
        }
    }

    /// A lock was given to nobody.
    pub(crate) fn undo_lock(&mut self, tid: u64) {
        let Some(request) = self.requests.get(&tid).filter(|r| r.is_undone) else { return };
        let (about, args) = (request.about, request.msg.args.clone());
        let RequestArgs::FileLock { kind, lock, .. } = args else { return };
        self.ask_unlock(tid, kind, lock);
        if let Some(node) = about {
            self.record_lock(node, kind, FileLock { lock: LockType::UNLOCK, ..lock });
        }
    }

    fn ask_unlock(&mut self, tid: u64, kind: LockKind, lock: FileLock) {
        let Some(request) = self.requests.get(&tid) else { return };
        let (path, about) = (request.msg.path.clone(), request.about);
        let lock = FileLock { lock: LockType::UNLOCK, owner: lock.owner | OWNER_MARK, ..lock };
        let args = RequestArgs::FileLock { kind, lock, wait: false };
        self.ask(None, Ask { op: FsOp::SETFILELOCK, args, path, about, ..Ask::default() });
    }

    /// Mounts and unmounts that no server has answered in their time.
    pub(crate) fn expire(&mut self) {
        let is_over = |at: &Duration| self.now.mono >= *at;
        let over: Vec<Ticket> = self.timed.iter().filter(|(_, at)| is_over(at)).map(|(t, _)| *t).collect();
        for ticket in over {
            if self.calls.get(&ticket).is_some_and(|r| r.call == Call::Unmount) {
                let ranks: Vec<_> = self.sessions.keys().copied().collect();
                ranks.into_iter().for_each(|rank| self.close_session(rank, Errno::ETIMEDOUT));
                self.requests.clear();
            }
            self.cancel(ticket, Errno::ETIMEDOUT);
        }
    }
}

impl Stage {
    fn has_objects(&self) -> bool {
        match self {
            Self::Read(read) => read.is_pending(),
            Self::Write(write) => write.is_pending(),
            _ => false,
        }
    }
}

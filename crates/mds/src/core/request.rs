//! Requests: taken once, run until they have an answer, answered at once and again when the change is safe.
//!
//! ```text
//! on_request ──> run ──Ok──> answered (early, then safe)
//!                 │ ^
//!                 │ └── wake: a fragment is loaded, capabilities are given back, an event is safe ...
//!                 └──Stop::Wait──> waits
//! ```
//!
//! A run begins anew each time, and changes nothing before it is sure of its end.
//!
//! Source: Server::handle_client_request, Server::dispatch_client_request, Server::reply_client_request.

use bytes::Bytes;
use codec::Encode;
use messages::fs::{CapDrop, Caps, FsOp, MClientReply, MClientRequest};
use types::{Errno, GlobalId, Ino, SnapId};

use super::cache::Key;
use super::hold::{Hold, Mode, Part, Until, is_free};
use super::server::{Server, Then};
use super::session::State;
use crate::format::{DirFrag, MetaReqId};

/// What a request waits for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Wait {
    /// A fragment, or a name of it, is read.
    Dir(DirFrag),
    /// Capabilities of an inode, or what others hold of it.
    Inode(Ino),
    /// An event is safe.
    Safe(u64),
    /// An inode is found by its number.
    Find(Ino),
    /// A lease is given back or over.
    Lease(DirFrag, Key),
    /// A lock on a file.
    FileLock(Ino),
    OsdMap,
    /// The rank serves.
    Active,
    /// A file's cut or the search for its end is over.
    File(Ino),
}

/// Why a run ends without an answer of success.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Stop {
    Fail(Errno),
    /// A name leads nowhere: the client hears of the name.
    NoEntry(DirFrag, Key),
    Wait(Wait),
}

impl From<Errno> for Stop {
    fn from(errno: Errno) -> Self {
        Self::Fail(errno)
    }
}

pub(crate) type Run<T> = Result<T, Stop>;

/// What a request brought.
#[derive(Debug, Default)]
pub(crate) struct Done {
    pub dentry: Option<(DirFrag, Key)>,
    pub target: Option<Ino>,
    /// The snapshot that both are shown at; `HEAD`: as they are now.
    pub snap: SnapId,
    /// What the answer has to have right.
    pub mask: Caps,
    pub extra: Bytes,
    /// The event of the change.
    pub seq: Option<u64>,
    /// The answer waits until the change is safe.
    pub is_late: bool,
}

#[derive(Debug)]
pub(crate) struct Request {
    pub id: u64,
    pub client: GlobalId,
    pub tid: u64,
    pub msg: Box<MClientRequest>,
    pub wait: Option<Wait>,
    /// Inodes that it holds parts of.
    pub held: Vec<Ino>,
    /// It waits, or has waited, for a lock on a file.
    pub waits_for_lock: bool,
    /// It was done before the failover, and is run again as an open.
    pub was_done: bool,
}

impl Request {
    pub fn req_id(&self) -> MetaReqId {
        let num = i64::try_from(self.client.0).unwrap_or(i64::MAX);
        MetaReqId { name: types::EntityName::client(num), tid: self.tid }
    }

    pub fn is_replay(&self) -> bool {
        self.msg.flags & MClientRequest::REPLAY != 0
    }
}

impl Server {
    pub(crate) fn on_request(&mut self, client: GlobalId, tid: u64, mut msg: Box<MClientRequest>) {
        let is_replay = msg.flags & MClientRequest::REPLAY != 0;
        let Some(session) = self.sessions.get(&client) else { return };
        if !session.is_usable() {
            return;
        }
        if session.requests.contains(&tid) {
            // It is on its way already.
            return;
        }
        if session.requests.len() >= self.settings.max_requests {
            self.out.push(super::io::Effect::Warn(format!("client.{client} has too many requests")));
            return self.evict(client, "it has too many requests");
        }
        let mut was_done = false;
        if is_replay || msg.num_retry > 0 {
            if let Some(created) = session.info.completed_requests.get(&tid).copied() {
                if is_replay || !matches!(msg.op, FsOp::OPEN | FsOp::CREATE) {
                    return self.answer_again(client, tid, &msg, created);
                }
                was_done = true;
            }
        }
        self.trim_completed(client, msg.oldest_tid);
        let drops = std::mem::take(&mut msg.drops);
        self.last_request += 1;
        let id = self.last_request;
        let request =
            Request { id, client, tid, msg, wait: None, held: Vec::new(), waits_for_lock: false, was_done };
        if let Some(session) = self.sessions.get_mut(&client) {
            session.requests.insert(tid);
        }
        self.requests.insert(id, request);
        if self.is_serving() {
            self.take_drops(client, &drops);
            self.ready.push_back(id);
        } else {
            if is_replay {
                self.recon.replays.insert(id);
            }
            // Capabilities are known when clients have reconnected.
            self.recon.drops.push((client, drops));
            self.park(id, Wait::Active);
        }
    }

    /// The request was done before; only its answer was lost. Source: Server::handle_client_request.
    fn answer_again(&mut self, client: GlobalId, tid: u64, msg: &MClientRequest, created: Ino) {
        let extra = if created.0 == 0 { Bytes::new() } else { created.to_bytes() };
        let reply = MClientReply {
            op: msg.op,
            mdsmap_epoch: self.map.epoch,
            is_safe: true,
            extra,
            ..MClientReply::default()
        };
        // The change may not be safe yet in this server's own journal.
        let seq = self.last_seq;
        self.when_safe(seq, Then::Tell { client, tid, msg: reply.into(), is_push: false });
    }

    fn trim_completed(&mut self, client: GlobalId, oldest: u64) {
        let Some(session) = self.sessions.get_mut(&client) else { return };
        if oldest > 0 {
            session.trim_completed(oldest);
        }
        if session.info.completed_requests.len() > self.settings.max_completed {
            self.evict(client, "it does not advance its oldest request");
        }
    }

    fn take_drops(&mut self, client: GlobalId, drops: &[CapDrop]) {
        for drop in drops {
            self.on_drop(client, drop);
        }
    }

    pub(crate) fn take_held_drops(&mut self) {
        for (client, drops) in std::mem::take(&mut self.recon.drops) {
            self.take_drops(client, &drops);
        }
    }

    pub(crate) fn park(&mut self, id: u64, wait: Wait) {
        if let Some(request) = self.requests.get_mut(&id) {
            request.wait = Some(wait.clone());
            if let Wait::Safe(seq) = wait {
                self.hurry(seq);
            }
            self.waits.entry(wait).or_default().insert(id);
        }
    }

    /// What requests wait for has come about.
    pub(crate) fn wake(&mut self, wait: &Wait) {
        for id in self.waits.remove(wait).unwrap_or_default() {
            if let Some(request) = self.requests.get_mut(&id) {
                request.wait = None;
                self.ready.push_back(id);
            }
        }
    }

    /// Ends a request without an answer.
    pub(crate) fn drop_request(&mut self, id: u64) {
        let Some(request) = self.requests.remove(&id) else { return };
        if let Some(wait) = &request.wait {
            if let Some(waiting) = self.waits.get_mut(wait) {
                waiting.remove(&id);
                if waiting.is_empty() {
                    self.waits.remove(wait);
                }
            }
        }
        self.ready.retain(|r| *r != id);
        if let Some(session) = self.sessions.get_mut(&request.client) {
            session.requests.remove(&request.tid);
        }
        self.release(id, &request.held);
        if self.recon.replays.remove(&id) {
            self.next_replay();
        }
    }

    fn release(&mut self, id: u64, held: &[Ino]) {
        for ino in held {
            if let Some(inode) = self.cache.get_mut(*ino) {
                inode.holds.retain(|h| h.until != Until::Request(id));
                self.stirred.insert(*ino);
                self.wake(&Wait::Inode(*ino));
            }
        }
    }

    /// Runs a request from its beginning.
    pub(crate) fn run(&mut self, id: u64) {
        let Some(mut request) = self.requests.remove(&id) else { return };
        let before = std::mem::take(&mut request.held);
        for ino in &before {
            if let Some(inode) = self.cache.get_mut(*ino) {
                inode.holds.retain(|h| h.until != Until::Request(id));
            }
        }
        let result = self.execute(&mut request);
        match result {
            Err(Stop::Wait(wait)) => {
                // What it does not hold any more may be given to clients, and whoever waited for it goes on.
                let freed: Vec<Ino> =
                    before.iter().copied().filter(|ino| !request.held.contains(ino)).collect();
                for ino in freed {
                    self.stirred.insert(ino);
                    self.wake(&Wait::Inode(ino));
                }
                self.requests.insert(id, request);
                self.park(id, wait);
            }
            Ok(done) => self.answer(request, &before, done),
            Err(Stop::NoEntry(frag, key)) => {
                let done = Done { dentry: Some((frag, key)), ..Done::default() };
                self.refuse(request, &before, Errno::ENOENT, done);
            }
            Err(Stop::Fail(errno)) => self.refuse(request, &before, errno, Done::default()),
        }
    }

    fn end(&mut self, request: &Request, before: &[Ino]) {
        let id = request.id;
        self.release(id, &request.held);
        self.release(id, before);
        if let Some(session) = self.sessions.get_mut(&request.client) {
            session.requests.remove(&request.tid);
        }
        if self.recon.replays.remove(&id) {
            self.next_replay();
        }
    }

    fn refuse(&mut self, request: Request, before: &[Ino], errno: Errno, done: Done) {
        let mut reply = MClientReply {
            op: request.msg.op,
            result: errno.neg(),
            mdsmap_epoch: self.map.epoch,
            is_safe: true,
            ..MClientReply::default()
        };
        if done.dentry.is_some() {
            self.trace(request.client, &done, &mut reply);
        }
        self.tell(request.client, request.tid, reply.into());
        self.end(&request, before);
    }

    fn answer(&mut self, mut request: Request, before: &[Ino], done: Done) {
        // The trace gives what the request has kept free for its client.
        let id = request.id;
        for ino in request.held.iter().chain(before) {
            if let Some(inode) = self.cache.get_mut(*ino) {
                inode.holds.retain(|h| h.until != Until::Request(id));
            }
        }
        let wants_trace = !request.is_replay() || request.was_done;
        let mut reply = MClientReply {
            op: request.msg.op,
            mdsmap_epoch: self.map.epoch,
            extra: done.extra.clone(),
            is_safe: true,
            ..MClientReply::default()
        };
        let (client, tid) = (request.client, request.tid);
        match done.seq {
            Some(seq) => {
                let safe = reply.clone();
                let is_early = !done.is_late && wants_trace && seq > self.safe_seq;
                if is_early {
                    reply.is_safe = false;
                    self.trace(client, &done, &mut reply);
                    if let Some(session) = self.sessions.get_mut(&client) {
                        session.unsafe_requests.insert(tid);
                    }
                    self.tell(client, tid, reply.into());
                    let safe = MClientReply { extra: Bytes::new(), ..safe };
                    self.when_safe_at_last(seq, Then::Safe { client, tid, msg: safe.into() });
                } else {
                    if wants_trace {
                        self.trace(client, &done, &mut reply);
                    }
                    self.when_safe(seq, Then::Safe { client, tid, msg: reply.into() });
                }
            }
            None => {
                self.trace(client, &done, &mut reply);
                self.tell(client, tid, reply.into());
            }
        }
        request.wait = None;
        self.end(&request, before);
    }

    /// Keeps parts of inodes free for a request; it waits until clients have given back what is in the way.
    pub(crate) fn need(&mut self, request: &mut Request, needs: &[(Ino, Part, Mode)]) -> Run<()> {
        let (by, id) = (request.client, request.id);
        let mut wait = None;
        for (ino, part, mode) in needs.iter().copied() {
            let hold = Hold { by, part, mode, until: Until::Request(id) };
            let Some(inode) = self.cache.get_mut(ino) else { return Err(Errno::ESTALE.into()) };
            let is_earlier = |h: &Hold| match h.until {
                Until::Request(other) => other < id,
                Until::Safe(_) => true,
            };
            let barred = inode.holds.iter().find(|h| is_earlier(h) && h.bars(by, part, mode)).copied();
            inode.holds.push(hold);
            if !request.held.contains(&ino) {
                request.held.push(ino);
            }
            if let Some(hold) = barred {
                wait = wait.or(Some(match hold.until {
                    Until::Safe(seq) => Wait::Safe(seq),
                    Until::Request(_) => Wait::Inode(ino),
                }));
            } else if !is_free(inode, by, part, mode) {
                wait = wait.or(Some(Wait::Inode(ino)));
            }
        }
        if let Some(wait) = wait {
            for (ino, ..) in needs {
                self.look_at(*ino);
            }
            // What clients gave back at once, because nobody has to be asked, frees it right away.
            let free = needs
                .iter()
                .all(|(ino, part, mode)| self.cache.get(*ino).is_some_and(|i| is_free(i, by, *part, *mode)));
            if !free || matches!(wait, Wait::Safe(_)) || self.is_barred(request, needs) {
                return Err(Stop::Wait(wait));
            }
        }
        Ok(())
    }

    fn is_barred(&self, request: &Request, needs: &[(Ino, Part, Mode)]) -> bool {
        needs.iter().any(|(ino, part, mode)| {
            self.cache.get(*ino).is_some_and(|i| {
                i.holds.iter().any(|h| {
                    h.bars(request.client, *part, *mode)
                        && !matches!(h.until, Until::Request(other) if other >= request.id)
                })
            })
        })
    }

    /// A change of a client's request, with its number in the journal.
    pub(crate) fn change_of(&self, request: &Request, what: &'static str) -> super::change::Change {
        let stamp = if request.msg.stamp.is_zero() { self.now.wall } else { request.msg.stamp };
        let mut change = super::change::Change::new(what, stamp);
        change.by = request.client;
        change.req = request.req_id();
        change.blob.client_reqs.push((change.req, request.msg.oldest_tid));
        change
    }

    /// Makes the event of a client's request, and remembers that it is done.
    pub(crate) fn commit_request(
        &mut self,
        request: &Request,
        change: super::change::Change,
        created: Ino,
    ) -> u64 {
        let seq = self.commit(change);
        if let Some(session) = self.sessions.get_mut(&request.client) {
            session.info.completed_requests.insert(request.tid, created);
            session.dirty_since.get_or_insert(seq);
        }
        self.mark_dirty(super::server::Dirty::Sessions, seq);
        seq
    }

    pub(crate) fn is_session_open(&self, client: GlobalId) -> bool {
        self.sessions.get(&client).is_some_and(|s| matches!(s.state, State::Open | State::Stale))
    }

    fn execute(&mut self, request: &mut Request) -> Run<Done> {
        if !self.is_session_open(request.client) {
            return Err(Errno::ESHUTDOWN.into());
        }
        match request.msg.op {
            FsOp::LOOKUP | FsOp::GETATTR | FsOp::LOOKUPSNAP => self.op_getattr(request),
            FsOp::LOOKUPINO => self.op_lookup_ino(request),
            FsOp::LOOKUPPARENT => self.op_lookup_parent(request),
            FsOp::LOOKUPNAME => self.op_lookup_name(request),
            FsOp::GETVXATTR => self.op_getvxattr(request),
            FsOp::OPEN => self.op_open(request),
            FsOp::CREATE => self.op_create(request),
            FsOp::READDIR => self.op_readdir(request),
            FsOp::LSSNAP => self.op_lssnap(request),
            FsOp::MKNOD | FsOp::MKDIR | FsOp::SYMLINK => self.op_make(request),
            FsOp::LINK => self.op_link(request),
            FsOp::UNLINK | FsOp::RMDIR => self.op_unlink(request),
            FsOp::RENAME => self.op_rename(request),
            FsOp::SETATTR => self.op_setattr(request),
            FsOp::SETXATTR => self.op_setxattr(request),
            FsOp::RMXATTR => self.op_rmxattr(request),
            FsOp::SETLAYOUT => self.op_setlayout(request),
            FsOp::SETDIRLAYOUT => self.op_setdirlayout(request),
            FsOp::SETFILELOCK => self.op_setfilelock(request),
            FsOp::GETFILELOCK => self.op_getfilelock(request),
            FsOp::MKSNAP => self.op_mksnap(request),
            FsOp::RMSNAP => self.op_rmsnap(request),
            FsOp::RENAMESNAP => self.op_renamesnap(request),
            _ => Err(Errno::EOPNOTSUPP.into()),
        }
    }
}

//! Requests to metadata servers: which rank they go to, when they are sent and sent again.
//!
//! Source: Client::make_request, send_request, choose_target_mds.

use std::time::Duration;

use maps::Rank;
use messages::fs::{
    Caps, FileName, FilePath, FsOp, MClientRequest, MClientRequestForward, RequestArgs, features,
};
use types::Errno;

use crate::call::{Event, Reply};
use crate::core::Client;
use crate::io::{Node, Ticket};
use crate::session::{Session, State};

#[derive(Debug)]
pub(crate) struct Request {
    /// `None`: we ask for ourselves, or the call had its answer.
    pub ticket: Option<Ticket>,
    pub msg: MClientRequest,
    /// The inode whose rank is asked.
    pub about: Option<Node>,
    /// Whose changes are safe when this is: for fsync.
    pub touches: Vec<Node>,
    /// A name that is gone when it succeeds: of a rename.
    pub old_name: Option<(Node, FileName)>,
    /// It asks for capabilities of an open file, for no call.
    pub renews: bool,
    /// A lock that nobody waits for any more: it is given back when it is given.
    pub is_undone: bool,
    /// Where it was sent; `None` while it waits.
    pub rank: Option<Rank>,
    pub resend_rank: Option<Rank>,
    /// Answered, but not safely: what it made.
    pub is_unsafe: bool,
    pub target: Option<Node>,
    pub retries: u32,
    pub sent_at: Duration,
}

/// What a request is about.
#[derive(Debug, Default)]
pub(crate) struct Ask {
    pub op: FsOp,
    pub args: RequestArgs,
    pub path: FilePath,
    pub path2: FilePath,
    pub data: bytes::Bytes,
    pub about: Option<Node>,
    pub touches: Vec<Node>,
    pub old_name: Option<(Node, FileName)>,
    pub wants_dentry: bool,
    pub renews: bool,
}

impl Client {
    /// The path of an inode, or of a name in it.
    pub(crate) fn path(&self, node: Node, name: Option<&FileName>) -> Result<FilePath, Errno> {
        let (base, path) = self.path_of(node).ok_or(Errno::ESTALE)?;
        let Some(name) = name else { return Ok(FilePath { base, path }) };
        if node.is_head() {
            return Ok(FilePath { base, path: name.clone() });
        }
        Ok(FilePath { base, path: [path.as_ref(), b"/", name.as_ref()].concat().into() })
    }

    pub(crate) fn ask(&mut self, ticket: Option<Ticket>, ask: Ask) -> u64 {
        self.last_tid += 1;
        let tid = self.last_tid;
        let msg = MClientRequest {
            op: ask.op,
            args: ask.args,
            flags: if ask.wants_dentry { MClientRequest::WANT_DENTRY } else { 0 },
            caller_uid: self.settings.uid,
            caller_gid: self.settings.gid,
            path: ask.path,
            path2: ask.path2,
            stamp: self.now.wall,
            data: ask.data,
            ..MClientRequest::default()
        };
        let request = Request {
            ticket,
            msg,
            about: ask.about,
            touches: ask.touches,
            old_name: ask.old_name,
            renews: ask.renews,
            is_undone: false,
            rank: None,
            resend_rank: None,
            is_unsafe: false,
            target: None,
            retries: 0,
            sent_at: Duration::ZERO,
        };
        self.requests.insert(tid, request);
        self.try_send(tid);
        tid
    }

    pub(crate) fn send_waiting(&mut self) {
        let is_waiting = |r: &Request| r.rank.is_none();
        let waiting: Vec<u64> =
            self.requests.iter().filter(|(_, r)| is_waiting(r)).map(|(tid, _)| *tid).collect();
        waiting.into_iter().for_each(|tid| self.try_send(tid));
    }

    /// The rank that is responsible for what a request is about, as far as we know.
    pub(crate) fn rank_for(&self, about: Option<Node>) -> Option<Rank> {
        let node =
            about.map(|n| if n.is_head() { n } else { Node::head(self.path_of(n).map_or(n.ino, |p| p.0)) });
        let inode = node.and_then(|n| self.inodes.get(&n));
        let of_inode = inode.and_then(|i| i.auth.or(i.caps.keys().next().copied()));
        of_inode.or_else(|| self.some_rank())
    }

    fn try_send(&mut self, tid: u64) {
        let Some(request) = self.requests.get_mut(&tid) else { return };
        if request.resend_rank.is_some_and(|rank| !self.map.r#in.contains(&rank)) {
            request.resend_rank = None;
        }
        let (resend, about) = (request.resend_rank, request.about);
        let Some(rank) = resend.or_else(|| self.rank_for(about)) else { return };
        if !self.is_serving(rank) {
            return;
        }
        match self.open_session(rank) {
            Some(State::Open) if !self.is_understood(tid, rank) => {
                self.finish_request(tid, Errno::EOPNOTSUPP);
            }
            Some(State::Open) => self.send_request(tid, rank),
            Some(State::Rejected(errno)) => self.finish_request(tid, errno),
            Some(State::Opening | State::Closing) | None => {}
        }
    }

    /// Whether the server knows what it would be asked.
    fn is_understood(&self, tid: u64, rank: Rank) -> bool {
        let asks_value = self.requests.get(&tid).is_some_and(|r| r.msg.op == FsOp::GETVXATTR);
        let knows = |s: &Session| s.features.contains(features::OP_GETVXATTR);
        !asks_value || self.sessions.get(&rank).is_some_and(knows)
    }

    /// The oldest request without a safe answer. A lock may wait for long and does not count.
    fn oldest_tid(&self) -> u64 {
        let counts = |op: FsOp| op != FsOp::SETFILELOCK;
        self.requests.iter().find(|(_, r)| counts(r.msg.op)).map_or(0, |(tid, _)| *tid)
    }

    pub(crate) fn send_request(&mut self, tid: u64, rank: Rank) {
        let oldest_tid = self.oldest_tid();
        let wide_counts =
            self.sessions.get(&rank).is_some_and(|s| s.features.contains(features::RETRY_FWD_32BITS));
        let (epoch, osd_epoch, now) = (self.map.epoch, self.osd_epoch, self.now.mono);
        let Some(request) = self.requests.get_mut(&tid) else { return };
        let msg = &mut request.msg;
        (msg.oldest_tid, msg.mdsmap_epoch, msg.wide_counts) = (oldest_tid, epoch, wide_counts);
        msg.num_retry = request.retries;
        if let RequestArgs::SetXattr { osdmap_epoch, .. } = &mut msg.args {
            *osdmap_epoch = osd_epoch.0;
        }
        if request.is_unsafe {
            msg.flags |= MClientRequest::REPLAY;
            msg.ino = request.target.map_or(msg.ino, |node| node.ino);
        }
        request.retries = request.retries.saturating_add(1);
        request.resend_rank = None;
        if request.rank.is_none() {
            request.sent_at = now;
        }
        request.rank = Some(rank);
        let msg = Box::new(msg.clone());
        self.send(rank, tid, msg.into());
    }

    /// What was sent to a rank goes to its new holder: first what was answered, but not safely.
    pub(crate) fn resend_requests(&mut self, rank: Rank) {
        self.forget_undone(rank);
        for is_unsafe in [true, false] {
            let of_it = |r: &Request| r.rank == Some(rank) && r.is_unsafe == is_unsafe;
            let tids: Vec<u64> =
                self.requests.iter().filter(|(_, r)| of_it(r)).map(|(tid, _)| *tid).collect();
            tids.into_iter().for_each(|tid| self.send_request(tid, rank));
        }
    }

    /// The next holder of a rank has no lock that it is not told of.
    fn forget_undone(&mut self, rank: Rank) {
        self.requests.retain(|_, r| !(r.is_undone && r.rank == Some(rank)));
    }

    /// The session is over: what was not answered is asked again, and what was not safe is lost.
    pub(crate) fn requests_of_closed(&mut self, rank: Rank, errno: Errno) {
        self.forget_undone(rank);
        let tids: Vec<u64> =
            self.requests.iter().filter(|(_, r)| r.rank == Some(rank)).map(|(tid, _)| *tid).collect();
        for tid in tids {
            let Some(request) = self.requests.get_mut(&tid) else { continue };
            if !request.is_unsafe {
                request.rank = None;
                continue;
            }
            let touches = std::mem::take(&mut request.touches);
            let target = request.target;
            self.requests.remove(&tid);
            self.lose(touches.into_iter().chain(target), errno);
        }
    }

    /// Ends a request without an answer.
    pub(crate) fn finish_request(&mut self, tid: u64, errno: Errno) {
        let Some(request) = self.requests.remove(&tid) else { return };
        if let Some(node) = request.about.filter(|_| request.renews) {
            self.renewed_caps(node, Err(errno));
        }
        if let Some(ticket) = request.ticket {
            self.ready.push_back((ticket, Event::Reply(Reply::failed(errno))));
        }
        self.wake_settling();
    }

    /// Source: Client::handle_client_request_forward.
    pub(crate) fn on_forward(&mut self, tid: u64, m: &MClientRequestForward) {
        let Some(request) = self.requests.get_mut(&tid) else { return };
        let forwards = u32::try_from(m.num_fwd).unwrap_or(0);
        if request.is_unsafe || forwards <= request.msg.num_fwd {
            return;
        }
        request.msg.num_fwd = forwards;
        request.retries = 0;
        request.rank = None;
        request.resend_rank = Some(m.rank);
        self.try_send(tid);
    }

    /// Attributes of an inode, asked for a call.
    pub(crate) fn ask_attr(&mut self, ticket: Ticket, node: Node, mask: Caps) -> Result<(), Errno> {
        let real = if node.is_snapdir() { Node::head(node.ino) } else { node };
        let (path, args) = (self.path(real, None)?, RequestArgs::Mask(mask));
        self.ask(Some(ticket), Ask { op: FsOp::GETATTR, args, path, about: Some(real), ..Ask::default() });
        Ok(())
    }
}

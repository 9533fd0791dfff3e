//! What goes into the core and what comes out.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use maps::{MonMap, OsdMap};
use messages::Message;
use messages::mon::MStatfsReply;
use messages::osd::{OpResult, OsdOp};
use messages::stats::PoolStat;
use types::{AddrVec, Epoch, Errno, HObject, PgId, PoolId, SnapContext, SnapId, Utime};

/// The shell's name for one request; it is used for one request only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// One session with an OSD or the manager, from `Open` until `Close` or `SessionGone`; never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

/// Whom a session is with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ServicePeer {
    Osd(i32),
    Mgr,
}

/// An operation on one object, or (with `flags::PGOP`) on the PG that holds the position `object.hash`.
#[derive(Debug, Clone, PartialEq)]
pub struct OpRequest {
    /// The hash is filled in, unless `flags::PGOP` is set; `snap` is the snapshot to read.
    pub object: HObject,
    pub ops: Vec<OsdOp>,
    /// `messages::osd::flags::*`, with READ or WRITE.
    pub flags: u32,
    pub snapc: SnapContext,
    /// `None`: the time of submission.
    pub mtime: Option<Utime>,
    /// Give up after this long.
    pub timeout: Option<Duration>,
}

impl OpRequest {
    /// What it holds in the budget of bytes: data that is sent, and data that will come.
    pub(crate) fn bytes(&self) -> u64 {
        self.ops.iter().map(|op| op.indata.len() as u64 + op.reply_bytes()).sum()
    }
}

/// How much an operation's answer may bring, as far as the request tells.
trait ReplyBytes {
    fn reply_bytes(&self) -> u64;
}

impl ReplyBytes for OsdOp {
    fn reply_bytes(&self) -> u64 {
        if !self.code.is_read() || !self.code.uses_extent() {
            return 0;
        }
        let length = self.arg.get(8..16).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes);
        length.min(64 << 20)
    }
}

/// What the shell may ask for.
#[derive(Debug, Clone, PartialEq)]
pub enum Request {
    Op(Box<OpRequest>),
    /// Done with `Outcome::Watching` when it is registered; events follow.
    Watch {
        object: HObject,
        /// How long the OSD keeps it without hearing of us; 0 for the OSD's default.
        timeout_s: u32,
    },
    /// Ends a watch.
    Unwatch {
        cookie: u64,
    },
    /// How long ago the watch was known to be good.
    WatchCheck {
        cookie: u64,
    },
    /// Done when all watchers have answered or their time is up.
    Notify {
        object: HObject,
        payload: Bytes,
        timeout_s: u32,
    },
    MonCommand {
        cmd: Vec<String>,
        input: Bytes,
    },
    OsdCommand {
        osd: i32,
        cmd: Vec<String>,
        input: Bytes,
    },
    /// To the OSD that leads the PG.
    PgCommand {
        pg: PgId,
        cmd: Vec<String>,
        input: Bytes,
    },
    MgrCommand {
        cmd: Vec<String>,
        input: Bytes,
    },
    /// `messages::mon::pool_op::*`.
    PoolOp {
        pool: PoolId,
        op: u32,
        snap: SnapId,
        name: String,
        crush_rule: i16,
    },
    Statfs {
        pool: Option<PoolId>,
    },
    /// Statistics of pools by name.
    PoolStats {
        pools: Vec<String>,
    },
    /// Done when our map is at least as new as the monitor's is now.
    LatestMap,
    /// Done when our map is at least of this epoch.
    WaitMap(Epoch),
}

/// What happens to the core.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    Submit(Ticket, Request),
    /// Nobody waits for it any more: it ends with this error, if it has not ended yet.
    Cancel(Ticket, Errno),
    /// The session with a monitor stands; what the one before was asked is asked again.
    MonReady,
    MonGone,
    FromMon {
        tid: u64,
        msg: Message,
    },
    SessionReady(SessionId),
    SessionGone(SessionId),
    FromSession {
        session: SessionId,
        tid: u64,
        msg: Message,
    },
    /// Time has passed.
    Tick,
}

/// What an operation brought.
#[derive(Debug, Clone, PartialEq)]
pub struct OpReply {
    /// 0 or more, or a negated errno.
    pub result: i32,
    /// Results and outputs by operation; empty when the core itself ended the request.
    pub ops: Vec<OpResult>,
    /// The object's version, as `assert-version` takes it.
    pub version: u64,
}

/// What a command brought.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CommandReply {
    /// 0 or more, or a negated errno.
    pub result: i32,
    /// A line for people.
    pub status: String,
    pub output: Bytes,
}

/// How a request ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    Op(OpReply),
    /// Registered.
    Watching {
        cookie: u64,
    },
    /// The watch is good, and was known to be at this age.
    WatchAge(Duration),
    /// An encoded `NotifyResult`, and 0 or a negated errno (a watcher did not answer).
    Notified {
        result: i32,
        replies: Bytes,
    },
    Command(CommandReply),
    PoolOp {
        result: i32,
        /// Holds a new unmanaged snapshot's id.
        response: Option<Bytes>,
    },
    Statfs(MStatfsReply),
    PoolStats {
        pools: BTreeMap<String, PoolStat>,
        per_pool: bool,
    },
    /// Our map is of this epoch.
    Map(Epoch),
    /// Ended without an answer.
    Failed(Errno),
}

/// What a watcher hears.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchEvent {
    /// To be acknowledged with a `notify-ack` on the same object.
    Notify { notify_id: u64, notifier: u64, payload: Bytes },
    /// The watch is lost: ENOTCONN when it expired or the object was removed. It has to be made anew.
    Error(Errno),
}

/// What the shell has to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Dropped by the shell while no session stands; the core sends again what matters.
    SendMon {
        tid: u64,
        msg: Message,
    },
    /// Connect, lossy; `SessionReady` or `SessionGone` follows. What is sent meanwhile may wait or be dropped.
    Open {
        session: SessionId,
        peer: ServicePeer,
        addrs: AddrVec,
    },
    /// No `SessionGone` follows.
    Close(SessionId),
    Send {
        session: SessionId,
        tid: u64,
        msg: Message,
    },
    Done(Ticket, Outcome),
    Watch {
        cookie: u64,
        event: WatchEvent,
    },
    NewMap(Arc<OsdMap>),
    NewMonMap(Box<MonMap>),
}

//! What goes into the manager core and what comes out of it.

use bytes::Bytes;
use cephx::caps::MgrCap;
use messages::Message;
use monitor::Whose;
use monitor::command::Reply;
use types::{AddrVec, AuthName, ConnId, EntityAddr, EntityName};

use crate::job::{Failed, Found, Job};

use crate::dashboard::DashboardAt;
use crate::prometheus::MetricsAt;

/// Who is at the other end of an accepted connection.
#[derive(Debug, Clone, PartialEq)]
pub struct PeerInfo {
    pub name: EntityName,
    pub auth_name: AuthName,
    pub addr: EntityAddr,
    pub caps: MgrCap,
}

/// One event for the core.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    Connected {
        conn: ConnId,
        peer: PeerInfo,
    },
    Disconnected {
        conn: ConnId,
    },
    Message {
        conn: ConnId,
        tid: u64,
        msg: Message,
    },
    /// From a monitor, on the session that the shell keeps up; `tid` is that of its header.
    FromMon {
        tid: u64,
        msg: Message,
    },
    /// A (new) session with a monitor stands; `gid` is the number that it gave us.
    MonConnected {
        gid: u64,
    },
    /// Somebody in this process wants to know something; answered under this number.
    Ask {
        id: u64,
        ask: Ask,
    },
    /// Whoever asked under this number does not wait any more.
    GivenUp {
        id: u64,
    },
    /// The bcrypt hash of a password; `None` where none could be made.
    Hashed {
        id: u64,
        hash: Option<String>,
    },
    /// Where this manager serves something besides, or not any more: the monitors are told.
    Serving {
        service: String,
        url: Option<String>,
    },
    /// The series are served where that was told, or why they cannot be.
    MetricsServed {
        failed: Option<String>,
    },
    /// The client that was to be started works under these addresses, or why there is none.
    Client {
        start: u64,
        started: Result<AddrVec, String>,
    },
    /// So much of a job is done, of so much.
    JobProgress {
        id: u64,
        done: u64,
        of: u64,
    },
    /// A job is over.
    JobDone {
        id: u64,
        result: Result<Found, Failed>,
    },
    /// So many peers were refused because their tickets have the form of Ceph's monitors, and this cluster's
    /// monitors are ours.
    OldTickets {
        count: u64,
    },
    /// Time passes; due about every 250 ms.
    Tick,
}

/// A question of somebody in this process, who may do everything.
#[derive(Debug, Clone, PartialEq)]
pub enum Ask {
    Manager {
        json: String,
        input: Bytes,
    },
    Monitors {
        json: String,
        input: Bytes,
    },
    /// All series for Prometheus, as text.
    Metrics,
}

/// One effect, to be carried out in order.
#[derive(Debug, Clone, PartialEq)]
pub enum Output {
    /// To the peer of an accepted connection.
    Send {
        conn: ConnId,
        tid: u64,
        msg: Message,
    },
    /// To a monitor; dropped when there is no session (`MonConnected` makes up for it).
    SendMon {
        tid: u64,
        msg: Message,
    },
    Close {
        conn: ConnId,
    },
    /// Another manager is in charge now, or none: the process starts anew with a nonce of its own, for its address is blocked.
    Respawn,
    /// Whose the monitors are. Those of Ceph's give our clients tickets of another form than ours do.
    Monitors(Whose),
    /// To whoever asked under this number.
    Answer {
        id: u64,
        reply: Reply,
    },
    /// A password is to be hashed; [`Input::Hashed`] brings what it came to.
    Hash {
        id: u64,
        password: String,
    },
    /// Where the dashboard is to be served from now on, or not any more.
    Dashboard(Option<DashboardAt>),
    /// The same of the series for Prometheus.
    Metrics(Option<Box<MetricsAt>>),
    /// A client of the cluster is needed for jobs; answered by `Input::Client` with this number, each start
    /// by another one.
    StartClient {
        start: u64,
    },
    /// It is not needed any more: its jobs end where they are, and are not answered.
    EndClient,
    /// To be done by the client.
    Job {
        id: u64,
        job: Job,
    },
    /// A job is to end early; it is answered all the same.
    CancelJob {
        id: u64,
    },
    /// For whoever reads the log.
    Warn(String),
    /// The manager cannot go on, in words for its owner.
    End(String),
}

impl Output {
    pub fn send(conn: ConnId, tid: u64, msg: impl Into<Message>) -> Self {
        Self::Send { conn, tid, msg: msg.into() }
    }

    /// To a monitor, and no answer is expected.
    pub fn send_mon(msg: impl Into<Message>) -> Self {
        Self::SendMon { tid: 0, msg: msg.into() }
    }
}

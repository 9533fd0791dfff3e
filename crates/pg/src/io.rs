//! What goes into the OSD core and what comes out of it: the whole contract with the daemon's shell.

use std::collections::BTreeSet;
use std::net::IpAddr;

use bytes::Bytes;
use cephx::caps::OsdCap;
use messages::Message;
use types::{AddrVec, AuthName, ConnId, EntityAddr, EntityName, GlobalId, OsdId};

/// Who is at the other end of an accepted connection; fixed while the connection lives, but for renewed caps.
#[derive(Debug, Clone, PartialEq)]
pub struct PeerInfo {
    /// `client.4123`, `osd.2`, `mgr.…`: the type comes from the peer's ticket, never from what it says.
    pub name: EntityName,
    pub auth_name: AuthName,
    pub global_id: GlobalId,
    /// As the map's blocklist and watchers name it; the nonce is the peer's.
    pub addr: EntityAddr,
    /// The other end of the socket: what `addr` says of the host is the peer's word. `None` where there is no socket.
    pub ip: Option<IpAddr>,
    pub caps: OsdCap,
    pub features: u64,
}

/// One event for the core.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// An incoming connection is authenticated. The same `conn` again replaces what is known (a renewed ticket).
    Connected {
        conn: ConnId,
        peer: PeerInfo,
    },
    /// An incoming connection's session is gone for good.
    Disconnected {
        conn: ConnId,
    },
    /// A message on an incoming connection.
    Message {
        conn: ConnId,
        tid: u64,
        msg: Message,
    },
    /// A message from another OSD on the session that this OSD opened to it.
    FromOsd {
        osd: OsdId,
        msg: Message,
    },
    /// A message from another OSD on a heartbeat session that this OSD opened to it.
    FromHeartbeat {
        osd: OsdId,
        net: HeartbeatNet,
        msg: Message,
    },
    /// A message from a monitor or the manager, on sessions that the shell keeps up.
    FromMon(Message),
    FromMgr(Message),
    /// A (new) session with a monitor is up: subscriptions and the boot message go out (again).
    MonConnected,
    /// A (new) session with the active manager is up.
    MgrConnected,
    /// A connection to that OSD's address of the current map was refused: nobody listens there.
    OsdRefused {
        osd: OsdId,
    },
    /// That OSD lives, and has forgotten the session that this one opened to it: messages under way were lost.
    OsdReset {
        osd: OsdId,
    },
    /// So many peers were refused because their tickets have Ceph's form.
    OldTickets {
        count: u64,
    },
    /// All submitted transactions up to and including this one are on stable media.
    Durable(store::TxnSeq),
    /// What came of an `Output::Read` of that number, which may be gone meanwhile.
    Read {
        id: u64,
        result: Result<Bytes, store::StoreError>,
    },
    /// A write or flush failed: nothing may be acknowledged any more.
    DeviceFailed,
    /// Time passes; due at least every 500 ms.
    Tick,
    /// The answer to `Output::Again`; these of `OsdCore::clients_in_turn` have much to read. So many bytes of
    /// answers may wait for all clients to read them before somebody is cut off.
    Again {
        unread: BTreeSet<ConnId>,
        free_bytes: u64,
    },
    /// The options that the monitors hold for this OSD, all of them, name and value as Ceph spells them.
    Config(Vec<(String, String)>),
    /// A command's JSON from the owner of the admin socket; answered by an `Output::AdminReply` of the same number.
    AdminCommand {
        tid: u64,
        cmd: String,
    },
    /// The answer to the `Output::AskDisks` of that number.
    DisksTold {
        id: u64,
        told: serde_json::Value,
    },
    /// Stop cleanly: `Output::Stopped` follows when the last transaction is durable.
    Shutdown,
}

/// One effect. The shell carries effects out in order.
#[derive(Debug, Clone, PartialEq)]
pub enum Output {
    /// To the peer of an incoming connection; dropped when the connection is gone.
    Reply {
        conn: ConnId,
        tid: u64,
        msg: Message,
    },
    /// To another OSD, on a lossless ordered session to its address in the current map, opened when needed.
    SendOsd {
        osd: OsdId,
        msg: Message,
    },
    /// To another OSD's heartbeat address on that network, on a session of its own that nothing else delays; dropped when
    /// there is none.
    Heartbeat {
        osd: OsdId,
        net: HeartbeatNet,
        msg: Message,
    },
    /// To a monitor, on the shell's session; dropped when there is none (`MonConnected` makes up for it).
    SendMon(Message),
    /// To the active manager, tid 0.
    SendMgr(Message),
    /// The answer to an `Input::AdminCommand`.
    AdminReply {
        tid: u64,
        reply: admin::Reply,
    },
    /// To be answered by an `Input::DisksTold` of the same number, without holding anything else up.
    AskDisks {
        id: u64,
        question: DiskQuestion,
    },
    /// Read nothing more from clients until this comes with `false`; other daemons are not held back.
    HoldClients(bool),
    /// The same of one client's connection.
    HoldClient {
        conn: ConnId,
        hold: bool,
    },
    /// Transactions were submitted, or one found no room: take a commit, and a checkpoint if one is due, from the store
    /// when the batch of inputs is through.
    /// While `OsdCore::is_commit_urgent` is false it may put that off and gather more: another `Commit` comes in time.
    Commit,
    /// Execute the plan on the device while the core goes on, and bring what came of it as `Input::Read`, in
    /// any order.
    Read {
        id: u64,
        plan: Box<store::ReadPlan>,
    },
    /// There is more to do: bring `Input::Again` when what else has come was handled; at leisure, within a tenth of a second,
    /// when clients have to read before.
    Again {
        at_leisure: bool,
    },
    CloseConn {
        conn: ConnId,
    },
    /// Forget the session to that OSD: it is down, or came back at another address.
    DropOsd {
        osd: OsdId,
    },
    /// The current map changed; the shell reads addresses and auth needs from `OsdCore::osdmap`.
    MapChanged,
    /// The OSD is up in the map and serves.
    Up,
    /// A line for the cluster log.
    ClusterLog {
        level: LogLevel,
        text: String,
    },
    /// The core cannot go on; the shell logs the reason and ends the process with a failure.
    Fatal(FatalReason),
    /// After `Input::Shutdown`: everything is on stable media.
    Stopped,
}

/// What is asked of the disks below this OSD.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DiskQuestion {
    /// Which they are: a list of objects with `device` and `device_id`.
    List,
    /// What they tell of their health, by id; of one of them alone where `of` names it. Each has so long.
    Smart { of: Option<String>, within: std::time::Duration },
}

/// Which network a heartbeat uses: the cluster's, or the one that clients use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum HeartbeatNet {
    Back,
    Front,
}

impl HeartbeatNet {
    pub const BOTH: [Self; 2] = [Self::Back, Self::Front];
}

/// Severities of the cluster log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogLevel {
    Debug,
    Info,
    Warn,
    Error,
}

/// Why the core stopped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FatalReason {
    #[error("the device failed a write or a flush")]
    DeviceFailed,
    #[error("the store failed: {0}")]
    Store(String),
    #[error("the monitors' cluster is {theirs}, this OSD belongs to {ours}")]
    ForeignCluster { ours: types::Fsid, theirs: types::Fsid },
    #[error("osd.{0} is destroyed or does not exist in the map")]
    NotInMap(OsdId),
    #[error("osd.{osd} of the cluster has another disk: its UUID is {theirs}, this one's {ours}")]
    OtherDisk { osd: OsdId, ours: types::Fsid, theirs: types::Fsid },
    #[error(
        "osd.{osd} was marked down {times} times within {seconds} s although it lives: it cannot be reached reliably"
    )]
    Flapping { osd: OsdId, times: usize, seconds: u64 },
    #[error("the store belongs to osd.{theirs}, this is osd.{ours}")]
    OtherOsd { ours: OsdId, theirs: OsdId },
    #[error("the store lacks the OSD map {0} that it was last at")]
    MapMissing(types::Epoch),
    #[error("stored {what} cannot be read: {error}")]
    Corrupt { what: &'static str, error: codec::DecodeError },
}

/// Addresses that this OSD announces when it boots.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BootAddrs {
    pub public: AddrVec,
    pub cluster: AddrVec,
    pub heartbeat_front: AddrVec,
    pub heartbeat_back: AddrVec,
    /// What the shell knows of the host, for `ceph osd metadata`.
    pub host: std::collections::BTreeMap<String, String>,
}

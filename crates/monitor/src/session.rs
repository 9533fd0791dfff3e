//! One connected client or daemon: who it is, what it may do, what it wants to hear of.

use std::collections::BTreeMap;
use std::time::Duration;

use cephx::{AuthSession, CryptoKey, MonCap, MonRequest};
use types::{AddrVec, AuthName, EntityAddr, EntityName, Epoch, GlobalId};

/// How far a connection has got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stage {
    /// A challenge was sent.
    Challenged,
    /// The handshake of authentication is done, the connection's not yet.
    Authenticated,
    /// Messages flow.
    Open,
}

/// A connection's state at the monitor.
#[derive(Debug, Clone)]
pub struct Session {
    pub(crate) stage: Stage,
    /// The entity that logged in.
    pub name: AuthName,
    /// The session's name in messages: type and global id (or OSD number).
    pub peer: EntityName,
    pub global_id: GlobalId,
    pub caps: MonCap,
    pub addrs: AddrVec,
    /// Where the connection comes from, for caps limited to a network.
    pub addr: EntityAddr,
    pub features: u64,
    /// The host name it told when it subscribed.
    pub host: String,
    /// `None` with method none.
    pub(crate) auth: Option<AuthSession>,
    /// The entity's key when it logged in by one.
    pub(crate) key: Option<CryptoKey>,
    pub(crate) con_mode: u32,
    pub(crate) subs: BTreeMap<String, Subscription>,
    /// The last OSD map epoch that we sent.
    pub(crate) osd_epoch: Epoch,
    /// The newest OSD map that it asked for and got, and until when (monotonic) it is told of newer ones unasked.
    pub(crate) osd_fresh: Option<(Epoch, Duration)>,
    /// Something of it went to the leader, who may change before it is dealt with.
    pub(crate) forwarded: bool,
    /// It is another member's client.
    pub(crate) adopted: bool,
    /// What its last MConfig held.
    pub(crate) config_sent: Option<BTreeMap<String, String>>,
}

/// What a session follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Subscription {
    /// The first version it lacks; 0 asks for the newest, whole.
    pub(crate) next: u64,
    pub(crate) onetime: bool,
}

/// Kinds of access, as caps and commands name them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Access {
    pub read: bool,
    pub write: bool,
    pub exec: bool,
}

impl Access {
    pub const R: Self = Self { read: true, write: false, exec: false };
    pub const W: Self = Self { read: false, write: true, exec: false };
    pub const X: Self = Self { read: false, write: false, exec: true };

    /// From `r`, `rw`, `rwx`.
    pub fn parse(perm: &str) -> Self {
        Self { read: perm.contains('r'), write: perm.contains('w'), exec: perm.contains('x') }
    }
}

impl Session {
    pub(crate) fn new(name: AuthName, addr: EntityAddr, con_mode: u32) -> Self {
        Self {
            stage: Stage::Challenged,
            name,
            peer: EntityName::default(),
            global_id: GlobalId(0),
            caps: MonCap::default(),
            addrs: AddrVec::default(),
            addr,
            features: 0,
            host: String::new(),
            auth: None,
            key: None,
            con_mode,
            subs: BTreeMap::new(),
            osd_epoch: Epoch(0),
            osd_fresh: None,
            forwarded: false,
            adopted: false,
            config_sent: None,
        }
    }

    /// Whether OSD maps may go to it now.
    pub(crate) fn follows_osdmaps(&self) -> bool {
        self.stage == Stage::Open && self.may("osd", Access::R)
    }

    /// Whether the session may do something that is no command.
    pub fn may(&self, service: &str, access: Access) -> bool {
        self.may_command(service, "", &BTreeMap::new(), access)
    }

    /// Whether the session may give a command with these arguments.
    pub fn may_command(
        &self,
        service: &str,
        command: &str,
        args: &BTreeMap<String, String>,
        access: Access,
    ) -> bool {
        self.caps.is_capable(&MonRequest {
            name: &self.name,
            service,
            command,
            args,
            read: access.read,
            write: access.write,
            exec: access.exec,
            addr: &self.addr,
        })
    }
}

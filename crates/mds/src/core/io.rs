//! What goes into the core and what comes out.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cephx::caps::MdsCap;
use maps::{MdsGid, MdsMap, MdsState};
use messages::Message;
use types::{AuthName, ConnId, EntityAddr, EntityInst, Epoch, GlobalId, PoolId, SnapId};

use crate::storage::{ObjectOp, OpId, Reply};

/// Who is at the other end of a connection, as its ticket says.
#[derive(Debug, Clone, PartialEq)]
pub struct Peer {
    pub client: GlobalId,
    pub addr: EntityAddr,
    pub name: AuthName,
    pub caps: MdsCap,
}

impl Peer {
    pub fn inst(&self) -> EntityInst {
        let num = i64::try_from(self.client.0).unwrap_or(i64::MAX);
        EntityInst { name: types::EntityName::client(num), addr: self.addr }
    }
}

/// What the core has to know of an OSD map.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct OsdMapView {
    pub epoch: Epoch,
    /// Pools by name, for layouts that clients set by it.
    pub pools: BTreeMap<String, PoolId>,
    /// The newest snapshot that each pool has had.
    pub snap_seqs: BTreeMap<PoolId, u64>,
    /// Clients of ours that are shut out, by their addresses.
    pub blocklisted: BTreeSet<EntityAddr>,
}

/// What happens to the core.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// A newer map of this server's file system.
    MdsMap(Box<MdsMap>),
    OsdMap(OsdMapView),
    /// A client's connection stands. The number is never used again.
    Connected(ConnId, Box<Peer>),
    /// A client said something; `tid` is the message's number.
    Said {
        conn: ConnId,
        tid: u64,
        msg: Message,
    },
    /// The connection is gone for good, and its session with it: the client has to reconnect or to open anew.
    Gone(ConnId),
    /// An operation on an object is done.
    ObjectDone(OpId, Reply),
    /// The monitors shut a client out, from this OSD map on.
    Blocklisted(GlobalId, Epoch),
    /// The monitors have queued these snapshots for removal, by pool, or know nothing of them.
    SnapsRemoved(BTreeMap<i32, Vec<SnapId>>),
    /// An administrator ends a client's session.
    Evict(GlobalId),
    Tick,
}

/// What the core wants done.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    Send {
        conn: ConnId,
        tid: u64,
        msg: Message,
    },
    Close(ConnId),
    /// The state that the next beacons ask for.
    Want(MdsState),
    /// The monitors are to shut this client out; `Input::Blocklisted` answers.
    Blocklist(GlobalId, EntityAddr),
    /// An OSD map of this epoch at least is needed.
    NeedOsdMap(Epoch),
    /// An operation on an object. Those on one object are carried out in the order in which they come.
    Object(Box<ObjectOp>),
    /// The monitors are to have these snapshots removed, by pool; `Input::SnapsRemoved` answers.
    RemoveSnaps(BTreeMap<i32, Vec<SnapId>>),
    /// A line for the cluster's log, a warning.
    Warn(String),
    /// The rank cannot be served: its metadata is damaged. The beacons say so.
    Damaged(String),
    /// The map names another holder of the rank: the process starts anew.
    Respawn,
}

/// How the core is set. Names and defaults are those of Ceph's options (`mds_...`).
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    pub gid: MdsGid,
    /// Inodes that are kept; those that clients hold or that are dirty may be more.
    pub max_inodes: usize,
    /// Capabilities of one client, beyond which it is asked to give back.
    pub max_caps_per_client: usize,
    /// Capabilities that a client is left with at least when the cache is too large.
    pub min_caps_per_client: usize,
    /// Capabilities that one message asks to give back at most.
    pub recall_max_caps: usize,
    /// Requests of one session that wait or run.
    pub max_requests: usize,
    /// Done requests of a client that does not say that it knows; beyond that its session ends.
    pub max_completed: usize,
    /// How long clients have to come back after a failover. Source: mds_reconnect_timeout.
    pub reconnect_timeout: Duration,
    /// A client that holds a capability for this long that is to be given back loses its session. Zero:
    /// never.
    pub cap_revoke_eviction_timeout: Duration,
    /// For how long a name is lent. Ceph lends for 30 s; here a new server asks after those of the last one.
    pub lease: Duration,
    /// How long recursive statistics may lag behind.
    pub stat_interval: Duration,
    /// Entries of a segment of the journal. Source: mds_log_events_per_segment.
    pub segment_events: u64,
    /// Entries of the journal before what is oldest is written to its objects.
    pub max_log_events: u64,
    /// Bytes of an inode's extended attributes. Source: mds_max_xattr_pairs_size.
    pub max_xattr_bytes: usize,
    /// Snapshots that a folder is in, beyond which none is made of it.
    pub max_snaps_per_dir: usize,
    /// The size by which a writer's room grows, in objects.
    pub range_objects: u64,
    /// How long an entry of the journal waits for others, if nobody waits for it. Ceph's wait for the next
    /// tick, which is up to 5 s.
    pub journal_delay: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            gid: 0,
            max_inodes: 1 << 20,
            max_caps_per_client: 1 << 20,
            min_caps_per_client: 100,
            recall_max_caps: 5_000,
            max_requests: 1_024,
            max_completed: 100_000,
            reconnect_timeout: Duration::from_secs(45),
            cap_revoke_eviction_timeout: Duration::ZERO,
            lease: Duration::from_secs(10),
            stat_interval: Duration::from_secs(1),
            segment_events: 1_024,
            max_log_events: 8_192,
            max_xattr_bytes: 65_536,
            max_snaps_per_dir: 100,
            range_objects: 1_024,
            journal_delay: Duration::from_millis(5),
        }
    }
}

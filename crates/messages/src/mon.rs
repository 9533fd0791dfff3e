//! Messages between clients (any daemon is one) and monitors: maps, subscriptions, commands, statistics.
//!
//! What a monitor sends goes out at high priority, as its messenger's default is in Ceph; OSDs that pass maps on do
//! so at the default one.

use std::collections::BTreeMap;

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, wire_plain};
use types::{AuthName, Epoch, Fsid, PoolId, SnapId};

use crate::payload::{Parts, PaxosVersion, Payload, RestOfFront, Segments, message};
use crate::type_numbers;
use crate::wire::priority;

message! {
    /// The monitor map, encoded. Source: src/messages/MMonMap.h.
    #[derive(Default)]
    MMonMap = type_numbers::MON_MAP, "mon_map", 1, 1, HIGH { map: Bytes }
}

message! {
    /// Asks for the monitor map.
    #[derive(Default)]
    MMonGetMap = type_numbers::MON_GET_MAP, "mon_getmap", 1, 1 {}
}

/// One wanted subscription. Source: ceph_mon_subscribe_item in src/include/ceph_fs.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SubscribeItem {
    /// The first version that is wanted; 0 for the newest.
    pub start: u64,
    pub flags: u8,
}

wire_plain!(SubscribeItem { start, flags });

impl SubscribeItem {
    /// One update is enough.
    pub const ONETIME: u8 = 1;

    pub fn is_onetime(&self) -> bool {
        self.flags & Self::ONETIME != 0
    }
}

message! {
    /// Asks to be sent maps (`osdmap`, `monmap`, `config`, `mgrmap`, `mdsmap`, ...). Source: src/messages/MMonSubscribe.h.
    #[derive(Default)]
    MMonSubscribe = type_numbers::MON_SUBSCRIBE, "mon_subscribe", 3, 1 {
        what: BTreeMap<String, SubscribeItem>,
        hostname: String [since 3],
    }
}

message! {
    /// Tells the client when to subscribe again; only clients older than ours need it.
    #[derive(Default)]
    MMonSubscribeAck = type_numbers::MON_SUBSCRIBE_ACK, "mon_subscribe_ack", 1, 1, HIGH {
        interval_s: u32,
        fsid: Fsid,
    }
}

message! {
    /// Asks for a map's newest version number. Source: src/messages/MMonGetVersion.h.
    #[derive(Default)]
    MMonGetVersion = type_numbers::MON_GET_VERSION, "mon_get_version", 1, 1 {
        /// Chosen by the client; the reply repeats it.
        handle: u64,
        /// `osdmap`, `monmap`, `fsmap`, `mdsmap`.
        what: String,
    }
}

message! {
    #[derive(Default)]
    MMonGetVersionReply = type_numbers::MON_GET_VERSION_REPLY, "mon_get_version_reply", 2, 2, HIGH {
        handle: u64,
        version: u64,
        oldest_version: u64 [since 2],
    }
}

/// A command to the cluster; input travels in the data segment. Source: src/messages/MMonCommand.h.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MMonCommand {
    pub version: PaxosVersion,
    pub fsid: Fsid,
    /// One string of JSON; old clients send words.
    pub cmd: Vec<String>,
    pub input: Bytes,
}

impl Payload for MMonCommand {
    const TYPE: u16 = type_numbers::MON_COMMAND;
    const NAME: &'static str = "mon_command";
    const VERSION: u16 = 1;
    const COMPAT: u16 = 1;

    fn encode_payload(&self, out: &mut Segments) {
        self.version.encode(&mut out.front);
        self.fsid.encode(&mut out.front);
        self.cmd.encode(&mut out.front);
        out.data = self.input.clone();
    }

    fn decode_payload(parts: &mut Parts) -> Result<Self, DecodeError> {
        Ok(Self {
            version: PaxosVersion::decode(&mut parts.front)?,
            fsid: Fsid::decode(&mut parts.front)?,
            cmd: Vec::decode(&mut parts.front)?,
            input: parts.data.clone(),
        })
    }
}

/// A command's outcome; output travels in the data segment. Source: src/messages/MMonCommandAck.h.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MMonCommandAck {
    pub version: PaxosVersion,
    /// 0 or a negated errno.
    pub result: i32,
    /// A line for people.
    pub status: String,
    /// The command, repeated.
    pub cmd: Vec<String>,
    pub output: Bytes,
}

impl Payload for MMonCommandAck {
    const TYPE: u16 = type_numbers::MON_COMMAND_ACK;
    const NAME: &'static str = "mon_command_ack";
    const VERSION: u16 = 1;
    const COMPAT: u16 = 1;
    const PRIORITY: u16 = priority::HIGH;

    fn encode_payload(&self, out: &mut Segments) {
        self.version.encode(&mut out.front);
        self.result.encode(&mut out.front);
        self.status.encode(&mut out.front);
        self.cmd.encode(&mut out.front);
        out.data = self.output.clone();
    }

    fn decode_payload(parts: &mut Parts) -> Result<Self, DecodeError> {
        Ok(Self {
            version: PaxosVersion::decode(&mut parts.front)?,
            result: parts.front.i32()?,
            status: String::decode(&mut parts.front)?,
            cmd: Vec::decode(&mut parts.front)?,
            output: parts.data.clone(),
        })
    }
}

message! {
    /// Asks for space used and free, of one pool or of all. Source: src/messages/MStatfs.h.
    #[derive(Default)]
    MStatfs = type_numbers::STATFS, "statfs", 2, 1 {
        version: PaxosVersion,
        fsid: Fsid,
        data_pool: Option<PoolId> [since 2],
    }
}

message! {
    /// Source: ceph_mon_statfs_reply in src/include/ceph_fs.h.
    #[derive(Default)]
    MStatfsReply = type_numbers::STATFS_REPLY, "statfs_reply", 1, 1, HIGH {
        fsid: Fsid,
        version: u64,
        /// KiB.
        kb: u64,
        kb_used: u64,
        kb_avail: u64,
        num_objects: u64,
    }
}

/// What a pool operation asks for. Source: POOL_OP_* in src/include/ceph_fs.h.
pub mod pool_op {
    pub const CREATE: u32 = 0x01;
    pub const DELETE: u32 = 0x02;
    pub const AUID_CHANGE: u32 = 0x03;
    pub const CREATE_SNAP: u32 = 0x11;
    pub const DELETE_SNAP: u32 = 0x12;
    pub const CREATE_UNMANAGED_SNAP: u32 = 0x21;
    pub const DELETE_UNMANAGED_SNAP: u32 = 0x22;
}

/// Creates or deletes a pool or a snapshot of one. Source: src/messages/MPoolOp.h.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MPoolOp {
    pub version: PaxosVersion,
    pub fsid: Fsid,
    /// 32 bits on the wire; ignored when a pool is created.
    pub pool: u32,
    /// `pool_op::*`.
    pub op: u32,
    pub snap: SnapId,
    /// The new pool's or snapshot's name.
    pub name: String,
    /// -1 for the default rule.
    pub crush_rule: i16,
}

impl Payload for MPoolOp {
    const TYPE: u16 = type_numbers::POOL_OP;
    const NAME: &'static str = "poolop";
    const VERSION: u16 = 4;
    const COMPAT: u16 = 2;

    fn encode_payload(&self, out: &mut Segments) {
        let w = &mut out.front;
        self.version.encode(w);
        self.fsid.encode(w);
        w.u32(self.pool);
        w.u32(self.op);
        // An owner id that is gone.
        w.u64(0);
        self.snap.encode(w);
        self.name.encode(w);
        // Form 3 had the rule in one byte here.
        w.u8(0);
        self.crush_rule.encode(w);
    }

    fn decode_payload(parts: &mut Parts) -> Result<Self, DecodeError> {
        let form = parts.version;
        if form < 2 {
            return Err(DecodeError::Invalid { what: "poolop version", value: form.into() });
        }
        let r = &mut parts.front;
        let (version, fsid) = (PaxosVersion::decode(r)?, Fsid::decode(r)?);
        let (pool, op) = (r.u32()?, r.u32()?);
        r.skip(8)?;
        let (snap, name) = (SnapId::decode(r)?, String::decode(r)?);
        let crush_rule = match form {
            2 => -1,
            3 => r.u8()?.into(),
            _ => {
                r.skip(1)?;
                i16::decode(r)?
            }
        };
        Ok(Self { version, fsid, pool, op, snap, name, crush_rule })
    }
}

message! {
    /// Source: src/messages/MPoolOpReply.h.
    #[derive(Default)]
    MPoolOpReply = type_numbers::POOL_OP_REPLY, "poolopreply", 1, 1, HIGH {
        version: PaxosVersion,
        fsid: Fsid,
        /// 0 or a negated errno.
        result: i32,
        /// The OSD map that holds the change.
        epoch: Epoch,
        /// A new unmanaged snapshot's id, encoded; absent when there is none.
        response: Option<Bytes>,
    }
}

/// OSD maps, whole and incremental, encoded. Source: src/messages/MOSDMap.h.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MOsdMap {
    pub fsid: Fsid,
    pub incremental: BTreeMap<Epoch, Bytes>,
    pub full: BTreeMap<Epoch, Bytes>,
    /// The epochs that the sender could still send.
    pub oldest: Epoch,
    pub newest: Epoch,
}

impl MOsdMap {
    /// The first epoch in here.
    pub fn first(&self) -> Option<Epoch> {
        self.incremental.keys().chain(self.full.keys()).min().copied()
    }

    /// The last epoch in here.
    pub fn last(&self) -> Option<Epoch> {
        self.incremental.keys().chain(self.full.keys()).max().copied()
    }
}

impl Payload for MOsdMap {
    const TYPE: u16 = type_numbers::OSD_MAP;
    const NAME: &'static str = "osdmap";
    const VERSION: u16 = 4;
    const COMPAT: u16 = 3;

    fn encode_payload(&self, out: &mut Segments) {
        let w = &mut out.front;
        self.fsid.encode(w);
        self.incremental.encode(w);
        self.full.encode(w);
        self.oldest.encode(w);
        self.newest.encode(w);
        // Removed snapshots that fell into a gap: empty since Octopus.
        w.u32(0);
    }

    fn decode_payload(parts: &mut Parts) -> Result<Self, DecodeError> {
        let r = &mut parts.front;
        Ok(Self {
            fsid: Fsid::decode(r)?,
            incremental: BTreeMap::decode(r)?,
            full: BTreeMap::decode(r)?,
            oldest: if parts.version >= 2 { Epoch::decode(r)? } else { Epoch(0) },
            newest: if parts.version >= 2 { Epoch::decode(r)? } else { Epoch(0) },
        })
    }
}

message! {
    /// The manager map, encoded. Source: src/messages/MMgrMap.h.
    #[derive(Default)]
    MMgrMap = type_numbers::MGR_MAP, "mgrmap", 1, 1, HIGH { map: RestOfFront }
}

message! {
    /// The service map, encoded. Source: src/messages/MServiceMap.h.
    #[derive(Default)]
    MServiceMap = type_numbers::SERVICE_MAP, "service_map", 1, 1, HIGH { map: RestOfFront }
}

message! {
    /// Every file system with its ranks, encoded. Source: src/messages/MFSMap.h.
    #[derive(Default)]
    MFsMap = type_numbers::FS_MAP, "fsmap", 1, 1, HIGH { epoch: Epoch, map: RestOfFront }
}

message! {
    /// The names of file systems, encoded. Source: src/messages/MFSMapUser.h.
    #[derive(Default)]
    MFsMapUser = type_numbers::FS_MAP_USER, "fsmap.user", 1, 1, HIGH { epoch: Epoch, map: RestOfFront }
}

message! {
    /// One file system's map, encoded. Source: src/messages/MMDSMap.h.
    #[derive(Default)]
    MMdsMap = type_numbers::MDS_MAP, "mdsmap", 2, 1, HIGH {
        fsid: Fsid,
        epoch: Epoch,
        map: Bytes,
        fs_name: String [since 2],
    }
}

message! {
    /// The options that the monitors hold for this client. Source: src/messages/MConfig.h.
    #[derive(Default)]
    MConfig = type_numbers::CONFIG, "config", 1, 1, HIGH { options: BTreeMap<String, String> }
}

message! {
    /// Asks for options before a session exists. Source: src/messages/MGetConfig.h.
    #[derive(Default)]
    MGetConfig = type_numbers::GET_CONFIG, "get_config", 1, 1 {
        name: AuthName,
        host: String,
        device_class: String,
    }
}

message! {
    /// Keys of the config-key store under a prefix that was subscribed to. Source: src/messages/MKVData.h of 16.2.
    #[derive(Default)]
    MKvData = type_numbers::KV_DATA, "kv_data", 1, 1, HIGH {
        version: u64,
        prefix: String,
        /// Only what changed; a key without value was removed.
        incremental: bool,
        data: BTreeMap<String, Option<Bytes>>,
    }
}

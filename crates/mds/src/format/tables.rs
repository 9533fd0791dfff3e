//! Tables that are one object each: free inode numbers of a rank, and the snapshots of a file system.
//!
//! Source: src/mds/MDSTable.cc, InoTable.h, MDSTableServer.h, SnapServer.h, SnapServer.cc.

use std::collections::{BTreeMap, BTreeSet};

use codec::{Decode, DecodeError, Encode, Reader, Writer};
use messages::fs::FileName;
use types::{Ino, InoSet, SnapId, Utime};

use super::realm::SnapInfo;
use super::wire::stored;

/// Numbers that a rank may give to new inodes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct InoTable {
    pub version: u64,
    pub free: InoSet,
}

impl Encode for InoTable {
    fn encode(&self, w: &mut Writer) {
        w.u64(self.version);
        w.envelope(2, 2, |w| self.free.encode(w));
    }
}
impl Decode for InoTable {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        let version = r.u64()?;
        let free = r.envelope_since("InoTable", 2, 2, |r, _| InoSet::decode(r))?;
        Ok(Self { version, free })
    }
}

/// A change that a rank prepared and did not commit yet.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TablePending {
    /// The rank's own number of it.
    pub req: u64,
    pub rank: i32,
    /// The version of the table with the change.
    pub tid: u64,
}
stored!(TablePending(2, 2, 2) { req, rank, tid });

/// Every snapshot, and what is under way. The rank that has the table serves the others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapTable {
    pub version: u64,
    pub last_snap: SnapId,
    pub snaps: BTreeMap<SnapId, SnapInfo>,
    /// By data pool, what its OSDs still have to remove.
    pub need_to_purge: BTreeMap<i32, BTreeSet<SnapId>>,
    /// Prepared changes, by the version that each will be.
    pub pending_update: BTreeMap<u64, SnapInfo>,
    /// The snapshot, and the sequence of its removal.
    pub pending_destroy: BTreeMap<u64, (SnapId, SnapId)>,
    pub pending_noop: BTreeSet<u64>,
    pub last_created: SnapId,
    pub last_destroyed: SnapId,
    /// Snapshots from here on are in realms without earlier parents.
    pub realms_v2_since: SnapId,
    pub pending_for_ranks: BTreeMap<u64, TablePending>,
}

impl SnapTable {
    fn decode_state(r: &mut Reader, table: u64, version: u8) -> Result<Self, DecodeError> {
        let last_snap = SnapId::decode(r)?;
        let mut snaps = Self {
            version: table,
            last_snap,
            snaps: Decode::decode(r)?,
            need_to_purge: Decode::decode(r)?,
            pending_update: Decode::decode(r)?,
            pending_destroy: Decode::decode(r)?,
            pending_noop: Decode::decode(r)?,
            last_created: last_snap,
            last_destroyed: last_snap,
            realms_v2_since: SnapId::HEAD,
            pending_for_ranks: BTreeMap::new(),
        };
        if version >= 4 {
            snaps.last_created = SnapId::decode(r)?;
            snaps.last_destroyed = SnapId::decode(r)?;
        }
        if version >= 5 {
            snaps.realms_v2_since = SnapId::decode(r)?;
        }
        Ok(snaps)
    }
}

impl Encode for SnapTable {
    fn encode(&self, w: &mut Writer) {
        w.u64(self.version);
        w.envelope(5, 3, |w| {
            self.last_snap.encode(w);
            self.snaps.encode(w);
            self.need_to_purge.encode(w);
            self.pending_update.encode(w);
            self.pending_destroy.encode(w);
            self.pending_noop.encode(w);
            self.last_created.encode(w);
            self.last_destroyed.encode(w);
            self.realms_v2_since.encode(w);
        });
        self.pending_for_ranks.encode(w);
    }
}
impl Decode for SnapTable {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        let table = r.u64()?;
        let mut snaps =
            r.envelope_since("SnapServer", 5, 3, |r, version| Self::decode_state(r, table, version))?;
        snaps.pending_for_ranks = Decode::decode(r)?;
        Ok(snaps)
    }
}

/// What a rank wants changed in the table of snapshots: in its request, and in the journal of the rank that
/// has the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SnapMutation {
    /// A snapshot of a directory; without a name only a number is taken, for a realm that changes.
    Create {
        ino: Ino,
        snapshot: Option<(FileName, Utime)>,
    },
    Update {
        ino: Ino,
        snap: SnapId,
        name: FileName,
        stamp: Utime,
    },
    Destroy {
        ino: Ino,
        snap: SnapId,
    },
}

impl SnapMutation {
    const CREATE: u32 = 0;
    const UPDATE: u32 = 1;
    const DESTROY: u32 = 2;
}

impl Encode for SnapMutation {
    fn encode(&self, w: &mut Writer) {
        match self {
            Self::Create { ino, snapshot } => {
                w.u32(Self::CREATE);
                ino.encode(w);
                if let Some((name, stamp)) = snapshot {
                    w.blob(name);
                    stamp.encode(w);
                }
            }
            Self::Update { ino, snap, name, stamp } => {
                w.u32(Self::UPDATE);
                ino.encode(w);
                snap.encode(w);
                w.blob(name);
                stamp.encode(w);
            }
            Self::Destroy { ino, snap } => {
                w.u32(Self::DESTROY);
                ino.encode(w);
                snap.encode(w);
            }
        }
    }
}
/// To the end of what `r` has.
impl Decode for SnapMutation {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        let op = r.u32()?;
        let ino = Ino::decode(r)?;
        Ok(match op {
            Self::CREATE if r.is_empty() => Self::Create { ino, snapshot: None },
            Self::CREATE => Self::Create { ino, snapshot: Some((r.blob()?, Utime::decode(r)?)) },
            Self::UPDATE => {
                Self::Update { ino, snap: SnapId::decode(r)?, name: r.blob()?, stamp: Utime::decode(r)? }
            }
            Self::DESTROY => Self::Destroy { ino, snap: SnapId::decode(r)? },
            _ => {
                return Err(DecodeError::Invalid {
                    what: "change of the table of snapshots",
                    value: op.into(),
                });
            }
        })
    }
}

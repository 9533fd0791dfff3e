//! Metadata in an event of the journal: directories, names and inodes as they are after it.
//!
//! Source: src/mds/events/EMetaBlob.h, src/mds/journal.cc; 16.2.15 writes version 9 of full bits and 3 of
//! remote bits.

use std::collections::BTreeMap;

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer};
use messages::fs::{FileName, Frag, FragTree};
use types::{EntityName, Ino, InoSet, SnapId};

use super::names::DirFrag;
use super::realm::SnapRealm;
use super::sessions::MetaReqId;
use super::stats::Fnode;
use super::store::{OldInode, decode_realm, encode_realm};
use super::wire::stored;
use super::{Inode, Xattrs};

/// What an inode in an event is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FullBitState(pub u8);

impl FullBitState {
    /// Changed by this event, and not only told for the replay.
    pub const DIRTY: u8 = 1;
    /// Its backtrace is to be written.
    pub const DIRTY_PARENT: u8 = 1 << 1;
    /// Its backtrace is in the wrong pool.
    pub const DIRTY_POOL: u8 = 1 << 2;
    /// Clients have changes from before a snapshot.
    pub const NEED_SNAPFLUSH: u8 = 1 << 3;
    /// Pinned by its hash.
    pub const EPHEMERAL_RANDOM: u8 = 1 << 4;

    pub fn has(self, bits: u8) -> bool {
        self.0 & bits == bits
    }
}

/// A name and the inode that is stored with it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct FullBit {
    /// Empty for the root and a server's own folder.
    pub name: FileName,
    pub first: SnapId,
    pub last: SnapId,
    /// The version of the name.
    pub version: u64,
    pub inode: Inode,
    pub xattrs: Xattrs,
    pub symlink: Bytes,
    /// Of directories.
    pub frag_tree: FragTree,
    pub realm: Option<SnapRealm>,
    pub state: FullBitState,
    pub old_inodes: BTreeMap<SnapId, OldInode>,
    pub oldest_snap: SnapId,
    pub alternate_name: Bytes,
}

impl FullBit {
    fn decode_body(r: &mut Reader, version: u8) -> Result<Self, DecodeError> {
        let mut bit = Self {
            name: r.blob()?,
            first: SnapId::decode(r)?,
            last: SnapId::decode(r)?,
            version: r.u64()?,
            inode: Inode::decode(r)?,
            xattrs: Decode::decode(r)?,
            ..Self::default()
        };
        if bit.inode.is_symlink() {
            bit.symlink = r.blob()?;
        }
        if bit.inode.is_dir() {
            bit.frag_tree = FragTree::decode(r)?;
            bit.realm = decode_realm(r)?;
        }
        bit.state = FullBitState(r.u8()?);
        if bool::decode(r)? {
            bit.old_inodes = Decode::decode(r)?;
        }
        if !bit.inode.is_dir() {
            bit.realm = decode_realm(r)?;
        }
        bit.oldest_snap = SnapId::decode(r)?;
        if version >= 9 {
            bit.alternate_name = r.blob()?;
        }
        Ok(bit)
    }
}

impl Encode for FullBit {
    fn encode(&self, w: &mut Writer) {
        w.envelope(9, 5, |w| {
            w.blob(&self.name);
            self.first.encode(w);
            self.last.encode(w);
            w.u64(self.version);
            self.inode.encode(w);
            self.xattrs.encode(w);
            if self.inode.is_symlink() {
                w.blob(&self.symlink);
            }
            if self.inode.is_dir() {
                self.frag_tree.encode(w);
                encode_realm(self.realm.as_ref(), w);
            }
            w.u8(self.state.0);
            (!self.old_inodes.is_empty()).encode(w);
            if !self.old_inodes.is_empty() {
                self.old_inodes.encode(w);
            }
            if !self.inode.is_dir() {
                encode_realm(self.realm.as_ref(), w);
            }
            self.oldest_snap.encode(w);
            w.blob(&self.alternate_name);
        });
    }
}
impl Decode for FullBit {
    const MIN_SIZE: usize = 200;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        // Ceph's own decoder reads what came with version 8 from any.
        r.envelope_since("EMetaBlob::fullbit", 9, 8, Self::decode_body)
    }
}

/// A name that is a hard link.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RemoteBit {
    pub name: FileName,
    pub first: SnapId,
    pub last: SnapId,
    pub version: u64,
    pub ino: Ino,
    pub d_type: u8,
    pub dirty: bool,
    pub alternate_name: Bytes,
}
stored!(RemoteBit(3, 2, 2) { name, first, last, version, ino, d_type, dirty } since 3 { alternate_name });

/// A name that is gone.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NullBit {
    pub name: FileName,
    pub first: SnapId,
    pub last: SnapId,
    pub version: u64,
    pub dirty: bool,
}
stored!(NullBit(2, 2, 2) { name, first, last, version, dirty });

/// What a fragment in an event is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DirLumpState(pub u32);

impl DirLumpState {
    /// All its names are in the event.
    pub const COMPLETE: u32 = 1 << 1;
    pub const DIRTY: u32 = 1 << 2;
    pub const NEW: u32 = 1 << 3;
    pub const IMPORTING: u32 = 1 << 4;
    /// The directory's fragments changed.
    pub const DIRTY_FRAG_TREE: u32 = 1 << 5;

    pub fn has(self, bits: u32) -> bool {
        self.0 & bits == bits
    }
}

/// A fragment of a directory, with those of its names that the event is about.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct DirLump {
    pub fnode: Fnode,
    pub state: DirLumpState,
    pub full: Vec<FullBit>,
    pub remote: Vec<RemoteBit>,
    pub null: Vec<NullBit>,
}

impl Encode for DirLump {
    fn encode(&self, w: &mut Writer) {
        w.envelope(2, 2, |w| {
            self.fnode.encode(w);
            w.u32(self.state.0);
            [self.full.len(), self.remote.len(), self.null.len()].into_iter().for_each(|n| w.count(n));
            w.sized(|w| {
                self.full.encode(w);
                self.remote.encode(w);
                self.null.encode(w);
            });
        });
    }
}
impl Decode for DirLump {
    const MIN_SIZE: usize = 200;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope_since("EMetaBlob::dirlump", 2, 2, |r, _| {
            let (fnode, state) = (Fnode::decode(r)?, DirLumpState(r.u32()?));
            // The numbers of names, which stand before each list as well.
            r.skip(12)?;
            let len = r.u32()? as usize;
            r.bounded(len, |r| {
                Ok(Self {
                    fnode,
                    state,
                    full: Decode::decode(r)?,
                    remote: Decode::decode(r)?,
                    null: Decode::decode(r)?,
                })
            })
        })
    }
}

/// The metadata of an event.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MetaBlob {
    /// In which order `lumps` are replayed.
    pub order: Vec<DirFrag>,
    pub lumps: BTreeMap<DirFrag, DirLump>,
    /// Inodes that are in no directory.
    pub roots: Vec<FullBit>,
    /// Changes of tables that commit with this: the table's number and the change's.
    pub table_tids: Vec<(u8, u64)>,
    pub opened_ino: Ino,
    /// Taken from the table of free numbers.
    pub allocated_ino: Ino,
    /// Taken from what was set aside for the client.
    pub used_preallocated_ino: Ino,
    /// Set aside for the client.
    pub preallocated_inos: InoSet,
    pub client: EntityName,
    /// The version of the table of free numbers after this; 0: it does not change.
    pub ino_table_version: u64,
    pub session_map_version: u64,
    pub truncate_start: Vec<Ino>,
    /// With the segment that had the start.
    pub truncate_finish: BTreeMap<Ino, u64>,
    pub destroyed_inodes: Vec<Ino>,
    /// Requests that are done with this, with the oldest that its client may send again.
    pub client_reqs: Vec<(MetaReqId, u64)>,
    pub renamed_dir: Ino,
    pub renamed_dir_frags: Vec<Frag>,
    pub client_flushes: Vec<(MetaReqId, u64)>,
}

impl Encode for MetaBlob {
    fn encode(&self, w: &mut Writer) {
        w.envelope(8, 5, |w| {
            self.order.encode(w);
            self.lumps.encode(w);
            self.roots.encode(w);
            self.table_tids.encode(w);
            self.opened_ino.encode(w);
            self.allocated_ino.encode(w);
            self.used_preallocated_ino.encode(w);
            self.preallocated_inos.encode(w);
            self.client.encode(w);
            w.u64(self.ino_table_version);
            w.u64(self.session_map_version);
            self.truncate_start.encode(w);
            self.truncate_finish.encode(w);
            self.destroyed_inodes.encode(w);
            self.client_reqs.encode(w);
            self.renamed_dir.encode(w);
            self.renamed_dir_frags.encode(w);
            // A pool and a flag, of which only version 6 knew.
            w.i64(-1);
            w.u8(0);
            self.client_flushes.encode(w);
        });
    }
}
impl Decode for MetaBlob {
    const MIN_SIZE: usize = 100;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope_since("EMetaBlob", 8, 5, |r, version| {
            let mut blob = Self {
                order: Decode::decode(r)?,
                lumps: Decode::decode(r)?,
                roots: Decode::decode(r)?,
                table_tids: Decode::decode(r)?,
                opened_ino: Ino::decode(r)?,
                allocated_ino: Ino::decode(r)?,
                used_preallocated_ino: Ino::decode(r)?,
                preallocated_inos: InoSet::decode(r)?,
                client: EntityName::decode(r)?,
                ino_table_version: r.u64()?,
                session_map_version: r.u64()?,
                truncate_start: Decode::decode(r)?,
                truncate_finish: Decode::decode(r)?,
                destroyed_inodes: Decode::decode(r)?,
                client_reqs: Decode::decode(r)?,
                renamed_dir: Ino::decode(r)?,
                renamed_dir_frags: Decode::decode(r)?,
                client_flushes: Vec::new(),
            };
            if version >= 6 {
                r.skip(9)?;
            }
            if version >= 8 {
                blob.client_flushes = Decode::decode(r)?;
            }
            Ok(blob)
        })
    }
}

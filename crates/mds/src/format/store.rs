//! An inode with all that is stored beside it: in the value of its name, or in an object of its own.
//!
//! Source: InodeStoreBase and InodeStore in src/mds/CInode.h and CInode.cc, old_inode_t in
//! src/mds/mdstypes.h.

use std::collections::BTreeMap;

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer};
use messages::fs::FragTree;
use types::SnapId;

use super::realm::SnapRealm;
use super::wire::stored;
use super::{Inode, MAGIC, Xattrs};

/// What an inode was in the snapshots from `first` to its key.
#[derive(Debug, Clone, PartialEq)]
pub struct OldInode {
    pub first: SnapId,
    pub inode: Inode,
    pub xattrs: Xattrs,
}
stored!(OldInode(2, 2, 2) { first, inode, xattrs });

/// An inode and what is stored with it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct InodeStore {
    pub inode: Inode,
    /// Where a symbolic link leads; stored for links only.
    pub symlink: Bytes,
    pub frag_tree: FragTree,
    pub xattrs: Xattrs,
    /// The snapshots, if a realm begins here.
    pub realm: Option<SnapRealm>,
    /// By the last snapshot that has them.
    pub old_inodes: BTreeMap<SnapId, OldInode>,
    pub oldest_snap: SnapId,
    pub damage_flags: u32,
}

/// A realm in a buffer that is empty where there is none. Source: CInode::decode_snap_blob.
pub(super) fn encode_realm(realm: Option<&SnapRealm>, w: &mut Writer) {
    w.sized(|w| realm.into_iter().for_each(|realm| realm.encode(w)));
}

pub(super) fn decode_realm(r: &mut Reader) -> Result<Option<SnapRealm>, DecodeError> {
    let blob = r.blob()?;
    if blob.is_empty() { Ok(None) } else { SnapRealm::from_bytes(blob).map(Some) }
}

impl InodeStore {
    /// Without an envelope: to the end of what `r` has.
    pub(super) fn decode_bare(r: &mut Reader, version: u8) -> Result<Self, DecodeError> {
        let inode = Inode::decode(r)?;
        let symlink = if inode.is_symlink() { r.blob()? } else { Bytes::new() };
        let mut store = Self {
            inode,
            symlink,
            frag_tree: FragTree::decode(r)?,
            xattrs: Decode::decode(r)?,
            realm: decode_realm(r)?,
            old_inodes: Decode::decode(r)?,
            ..Self::default()
        };
        // Values of names had these two added without a new version.
        if version >= 5 && !r.is_empty() {
            store.oldest_snap = SnapId::decode(r)?;
        }
        if version >= 5 && !r.is_empty() {
            store.damage_flags = r.u32()?;
        }
        Ok(store)
    }
}

impl Encode for InodeStore {
    fn encode(&self, w: &mut Writer) {
        w.envelope(6, 4, |w| {
            self.inode.encode(w);
            if self.inode.is_symlink() {
                w.blob(&self.symlink);
            }
            self.frag_tree.encode(w);
            self.xattrs.encode(w);
            encode_realm(self.realm.as_ref(), w);
            self.old_inodes.encode(w);
            self.oldest_snap.encode(w);
            w.u32(self.damage_flags);
        });
    }
}
impl Decode for InodeStore {
    const MIN_SIZE: usize = 200;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope_since("InodeStore", 6, 4, Self::decode_bare)
    }
}

/// An inode that is in no directory: the root, or a server's own folder. It has an object for itself.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct BaseInode(pub InodeStore);

impl Encode for BaseInode {
    fn encode(&self, w: &mut Writer) {
        w.blob(MAGIC);
        self.0.encode(w);
    }
}
impl Decode for BaseInode {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        check_magic(r)?;
        InodeStore::decode(r).map(Self)
    }
}

/// The value of the error is the length of what stands there instead.
pub(super) fn check_magic(r: &mut Reader) -> Result<(), DecodeError> {
    let found = r.blob()?;
    if found == MAGIC {
        Ok(())
    } else {
        Err(DecodeError::Invalid { what: "magic", value: found.len() as u64 })
    }
}

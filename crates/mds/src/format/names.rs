//! Names of objects, and the numbers of inodes that metadata servers have for themselves.
//!
//! Source: src/mds/mdstypes.h (MDS_INO_*), InodeStoreBase::get_object_name, MDSTable::get_object_name,
//! file_object_t.

use codec::wire_plain;
use messages::fs::Frag;
use types::Ino;

/// Ranks of a file system at most. Source: MAX_MDS.
pub const MAX_RANKS: u32 = 0x100;
/// Folders of a rank for inodes that have no name any more. Source: NUM_STRAY.
pub const STRAYS: u32 = 10;

const MDSDIR: u64 = 0x100;
const JOURNAL: u64 = 0x200;
const JOURNAL_POINTER: u64 = 0x400;
const PURGE_QUEUE: u64 = 0x500;
const STRAY: u64 = 0x600;

/// The realm above all others.
pub const GLOBAL_SNAPREALM: Ino = Ino(3);
/// Numbers from here on are given to files. Source: MDS_INO_SYSTEM_BASE.
pub const SYSTEM_END: Ino = Ino(STRAY + (MAX_RANKS * STRAYS) as u64);

/// A rank's own folder, which has its strays.
pub fn mdsdir(rank: u32) -> Ino {
    Ino(MDSDIR + u64::from(rank))
}

/// The `i`th folder of strays.
pub fn stray(rank: u32, i: u32) -> Ino {
    Ino(STRAY + u64::from(rank) * u64::from(STRAYS) + u64::from(i))
}

/// Where a journal is at first; [`JournalPointer`](super::JournalPointer) says where it is.
pub fn journal(rank: u32) -> Ino {
    Ino(JOURNAL + u64::from(rank))
}

pub fn journal_pointer(rank: u32) -> Ino {
    Ino(JOURNAL_POINTER + u64::from(rank))
}

pub fn purge_queue(rank: u32) -> Ino {
    Ino(PURGE_QUEUE + u64::from(rank))
}

/// The rank whose own folder it is.
pub fn mdsdir_owner(ino: Ino) -> Option<u32> {
    within(ino, MDSDIR, MAX_RANKS)
}

/// Rank and place of a folder of strays.
pub fn stray_owner(ino: Ino) -> Option<(u32, u32)> {
    within(ino, STRAY, MAX_RANKS * STRAYS).map(|at| (at / STRAYS, at % STRAYS))
}

fn within(ino: Ino, first: u64, count: u32) -> Option<u32> {
    let at = u32::try_from(ino.0.checked_sub(first)?).ok()?;
    (at < count).then_some(at)
}

/// An object of a file or a journal.
pub fn object(ino: Ino, block: u64) -> String {
    format!("{:x}.{block:08x}", ino.0)
}

/// The object that has an inode which is in no folder.
pub fn base_inode(ino: Ino) -> String {
    format!("{:x}.00000000.inode", ino.0)
}

pub fn ino_table(rank: u32) -> String {
    format!("mds{rank}_inotable")
}

/// One for a file system.
pub const SNAP_TABLE: &str = "mds_snaptable";

pub fn session_map(rank: u32) -> String {
    format!("mds{rank}_sessionmap")
}

/// The `n`th object of a rank's table of open files.
pub fn open_files(rank: u32, n: u32) -> String {
    format!("mds{rank}_openfiles.{n:x}")
}

/// A fragment of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct DirFrag {
    pub ino: Ino,
    pub frag: Frag,
}
wire_plain!(DirFrag { ino, frag });

impl DirFrag {
    pub fn object(self) -> String {
        object(self.ino, self.frag.0.into())
    }

    /// The fragment that an object of this name has; `None` for any other spelling.
    pub fn of_object(name: &str) -> Option<Self> {
        let (ino, frag) = name.split_once('.')?;
        let dir = Self {
            ino: Ino(u64::from_str_radix(ino, 16).ok()?),
            frag: Frag(u32::from_str_radix(frag, 16).ok()?),
        };
        (dir.object() == name).then_some(dir)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_named_by_inode_and_fragment() {
        for (ino, frag, name) in [
            (1, Frag::ROOT, "1.00000000"),
            (0x100_0000_0005, Frag::new(3, 0xe0_0000), "10000000005.03e00000"),
            (u64::MAX, Frag(u32::MAX), "ffffffffffffffff.ffffffff"),
        ] {
            let dir = DirFrag { ino: Ino(ino), frag };
            assert_eq!((dir.object().as_str(), DirFrag::of_object(name)), (name, Some(dir)));
        }
        for other in
            ["", "1", "1.0", "1.00000000.inode", "+1.00000000", "1.0000000g", "01.00000000", "A.00000000"]
        {
            assert_eq!(DirFrag::of_object(other), None, "{other}");
        }
        assert_eq!(base_inode(mdsdir(1)), "101.00000000.inode");
        assert_eq!(
            (open_files(2, 17).as_str(), session_map(0).as_str()),
            ("mds2_openfiles.11", "mds0_sessionmap")
        );
        assert_eq!(object(journal_pointer(1), 0), "401.00000000");
    }

    #[test]
    fn numbers_of_servers_lie_below_those_of_files() {
        assert_eq!((stray(1, 9), stray_owner(Ino(0x613))), (Ino(0x613), Some((1, 9))));
        assert_eq!(
            (mdsdir_owner(mdsdir(255)), mdsdir_owner(journal(0)), mdsdir_owner(Ino(1))),
            (Some(255), None, None)
        );
        assert_eq!(stray_owner(SYSTEM_END), None);
        assert_eq!(stray_owner(Ino(SYSTEM_END.0 - 1)), Some((MAX_RANKS - 1, STRAYS - 1)));
        assert!(purge_queue(255) < stray(0, 0));
    }
}

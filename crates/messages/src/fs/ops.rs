//! The operations that clients ask metadata servers for, and the features of both.

use std::fmt::{self, Display, Formatter};

/// An operation's number. Source: CEPH_MDS_OP_* in src/include/ceph_fs.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct FsOp(pub u32);

macro_rules! ops {
    ($($name:ident = $number:literal $text:literal),+ $(,)?) => {
        impl FsOp {
            $( pub const $name: Self = Self($number); )+

            /// The name that Ceph shows. Source: ceph_mds_op_name in src/common/ceph_strings.cc.
            pub fn name(self) -> &'static str {
                match self.0 { $( $number => $text, )+ _ => "???" }
            }
        }
    };
}
ops! {
    LOOKUP = 0x00100 "lookup",
    GETATTR = 0x00101 "getattr",
    LOOKUPHASH = 0x00102 "lookuphash",
    LOOKUPPARENT = 0x00103 "lookupparent",
    LOOKUPINO = 0x00104 "lookupino",
    LOOKUPNAME = 0x00105 "lookupname",
    // Of 16.2.15.
    GETVXATTR = 0x00106 "getvxattr",
    GETFILELOCK = 0x00110 "getfilelock",
    OPEN = 0x00302 "open",
    READDIR = 0x00305 "readdir",
    LOOKUPSNAP = 0x00400 "lookupsnap",
    LSSNAP = 0x00402 "lssnap",
    SETXATTR = 0x01105 "setxattr",
    RMXATTR = 0x01106 "rmxattr",
    SETLAYOUT = 0x01107 "setlayou",
    SETATTR = 0x01108 "setattr",
    SETFILELOCK = 0x01109 "setfilelock",
    SETDIRLAYOUT = 0x0110a "setdirlayout",
    MKNOD = 0x01201 "mknod",
    LINK = 0x01202 "link",
    UNLINK = 0x01203 "unlink",
    RENAME = 0x01204 "rename",
    MKDIR = 0x01220 "mkdir",
    RMDIR = 0x01221 "rmdir",
    SYMLINK = 0x01222 "symlink",
    CREATE = 0x01301 "create",
    MKSNAP = 0x01400 "mksnap",
    RMSNAP = 0x01401 "rmsnap",
    RENAMESNAP = 0x01403 "renamesnap",
}

impl FsOp {
    const WRITE: u32 = 0x1000;

    /// Whether it changes something. An `OPEN` that creates or truncates does, too.
    pub fn is_write(self) -> bool {
        self.0 & Self::WRITE != 0
    }
}

impl Display for FsOp {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Features of clients and metadata servers, by number. Source: src/mds/cephfs_features.h, and its names in
/// 16.2.15.
pub mod features {
    pub const JEWEL: usize = 5;
    pub const KRAKEN: usize = 6;
    pub const LUMINOUS: usize = 7;
    pub const MIMIC: usize = 8;
    /// Replies have envelopes.
    pub const REPLY_ENCODING: usize = 9;
    pub const RECLAIM_CLIENT: usize = 10;
    /// Capabilities of files that are open but idle need not be wanted.
    pub const LAZY_CAP_WANTED: usize = 11;
    /// A reconnect may come in several messages.
    pub const MULTI_RECONNECT: usize = 12;
    /// A `CREATE` is answered with inode numbers for later ones.
    pub const DELEG_INO: usize = 13;
    pub const METRIC_COLLECT: usize = 14;
    pub const ALTERNATE_NAME: usize = 15;
    /// A server tells the session's state in its metadata.
    pub const NOTIFY_SESSION_STATE: usize = 16;
    pub const OP_GETVXATTR: usize = 17;
    /// Requests count retries and forwards in 32 bits.
    pub const RETRY_FWD_32BITS: usize = 18;
}

//! What clients of a file system and its metadata servers say to each other.
//!
//! Replies, leases and inodes travel in the form of clients that have the feature `reply_encoding` (Linux
//! 5.1, Nautilus); the older form without envelopes is not spoken here. Names of files are bytes and need not
//! be UTF-8.
//!
//! Source: src/messages/MClient*.h, src/include/ceph_fs.h, as 16.2.15 sends them.

mod cap_bits;
mod frag;
mod inode;
mod layout;
mod ops;

mod cap;
mod file_lock;
mod lease;
mod metrics;
mod reconnect;
mod reply;
mod request;
mod request_args;
mod session;
mod snap;

pub use cap::{CapItem, CapOp, CapPeer, MClientCapRelease, MClientCaps};
pub use cap_bits::Caps;
pub use file_lock::{FileLock, FileLocks, LockKind, LockType};
pub use frag::{Frag, FragTree};
pub use inode::{DirStat, InodeStat, LeaseStat, ReplyCap, decode_xattrs, encode_xattrs};
pub use layout::{FileLayout, Quota};
pub use lease::{LeaseAction, MClientLease};
pub use metrics::{Hits, Latency, MClientMetrics, Metric, Pair};
pub use ops::{FsOp, features};
pub use reconnect::{CapReconnect, MClientReconnect, SnapRealmReconnect};
pub use reply::{
    CreateReply, DirEntry, MClientReply, MClientRequestForward, ReaddirReply, Trace, TraceDentry,
};
pub use request::{CapDrop, FilePath, MClientRequest};
pub use request_args::{OpenArgs, ReaddirArgs, RequestArgs, SetAttr};
pub use session::{MClientReclaim, MClientReclaimReply, MClientSession, SessionOp};
pub use snap::{MClientQuota, MClientSnap, SnapOp, SnapRealmInfo, SnapTrace};

/// A name or a path: bytes with their length in front.
pub type FileName = bytes::Bytes;

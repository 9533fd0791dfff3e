//! Requests of clients to OSDs: operations, replies, watches; and what OSDs tell each other and the monitors.

mod heartbeat;
mod op;
mod op_build;
mod op_parse;
mod opcode;
mod raw_op;
mod reply;
mod request;
mod responses;
mod service;
mod superblock;
mod watch;

pub use heartbeat::MOsdPing;
pub use op::{
    CmpOp, CopyFromArgs, Extent, ListArgs, ListFilter, Op, checksum_type, cmp_mode, copy_from_flags, watch_op,
};
pub use opcode::{OpCode, flags, op_flags};
pub use raw_op::{ARG_LEN, OpResult, OsdOp};
pub use reply::MOsdOpReply;
pub use request::{CopySource, MOsdOp, OsdOpHead};
pub use responses::{
    Checksums, CloneInfo, CopyCursor, CopyData, ListSnapsResponse, ListWatchersResponse, ListedObject,
    NotifyResult, OmapKeysResponse, OmapValsResponse, PglsResponse, PgnlsResponse, SparseReadResponse,
    StatResponse, WatchItem, WatcherId,
};
pub use service::{
    MMonGetOsdMap, MMonGetPurgedSnaps, MMonGetPurgedSnapsReply, MOsdAlive, MOsdBeacon, MOsdBoot, MOsdFailure,
    MOsdForceRecovery, MOsdFull, MOsdMarkMeDead, MOsdMarkMeDown, MOsdPgCreate2, MOsdPgCreated,
    MOsdPgReadyToMerge, MOsdPgTemp, MOsdScrub2, MRemoveSnaps,
};
pub use superblock::{CompatSet, FeatureSet, OsdSuperblock, PgHistory, RawEnvelope, SignedSpan};
pub use watch::{MOsdBackoff, MWatchNotify, backoff_op, watch_event};

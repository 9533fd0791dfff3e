//! Messages between our OSDs: replication, peering, recovery, scrub.
//!
//! Interfaces between our own daemons are ours: these have numbers that no Ceph release uses (`type_numbers::OURS`
//! and up), and an OSD of Ceph's cannot join. What peering, recovery and scrub say is theirs to define; here it is an
//! encoded payload in a common envelope that routing and staleness checks need.

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode};
use types::{Epoch, Eversion, ReqId, SpgId};

use crate::payload::{Parts, Payload, Segments, message};
use crate::type_numbers;
use crate::wire::priority;

/// The primary asks a replica to apply a transaction and append log entries, atomically.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RepOp {
    pub reqid: ReqId,
    /// The PG at the receiver (with the receiver's shard).
    pub pgid: SpgId,
    /// The sender's map.
    pub map_epoch: Epoch,
    /// The epoch that the PG's interval began in: the receiver needs at least that map.
    pub min_epoch: Epoch,
    /// The version that this gives the PG.
    pub version: Eversion,
    /// Encoded log entries, oldest first.
    pub log_entries: Vec<Bytes>,
    /// The log may be cut up to here.
    pub pg_trim_to: Eversion,
    /// Everything up to here is on all replicas.
    pub pg_committed_to: Eversion,
    /// An encoded store transaction; travels in the data segment.
    pub txn: Bytes,
}

impl Payload for RepOp {
    const TYPE: u16 = type_numbers::REP_OP;
    const NAME: &'static str = "rep_op";
    const VERSION: u16 = 1;
    const COMPAT: u16 = 1;

    fn encode_payload(&self, out: &mut Segments) {
        let w = &mut out.front;
        self.reqid.encode(w);
        self.pgid.encode(w);
        self.map_epoch.encode(w);
        self.min_epoch.encode(w);
        self.version.encode(w);
        self.log_entries.encode(w);
        self.pg_trim_to.encode(w);
        self.pg_committed_to.encode(w);
        out.data = self.txn.clone();
    }

    fn decode_payload(parts: &mut Parts) -> Result<Self, DecodeError> {
        let r = &mut parts.front;
        Ok(Self {
            reqid: Decode::decode(r)?,
            pgid: Decode::decode(r)?,
            map_epoch: Decode::decode(r)?,
            min_epoch: Decode::decode(r)?,
            version: Decode::decode(r)?,
            log_entries: Decode::decode(r)?,
            pg_trim_to: Decode::decode(r)?,
            pg_committed_to: Decode::decode(r)?,
            txn: parts.data.clone(),
        })
    }
}

message! {
    /// A replica has a `RepOp` on disk, or refuses it. The header's `tid` is the request's.
    #[derive(Default)]
    RepOpReply = type_numbers::REP_OP_REPLY, "rep_op_reply", 1, 1, HIGH {
        reqid: ReqId,
        pgid: SpgId,
        /// The replica.
        from_osd: i32,
        map_epoch: Epoch,
        min_epoch: Epoch,
        version: Eversion,
        /// 0 or a negated errno.
        result: i32,
        last_complete: Eversion,
    }
}

/// Declares messages that are the common envelope around a payload, which travels in the data segment.
macro_rules! pg_messages {
    ($( $(#[$meta:meta])* $name:ident = $ty:expr, $label:literal, $priority:expr; )+) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq, Default)]
        pub struct $name {
            /// The PG at the receiver.
            pub pgid: SpgId,
            pub from_osd: i32,
            /// The sender's map.
            pub map_epoch: Epoch,
            /// The sender asked, or answers a question that was asked, in this epoch: older intervals drop it.
            pub query_epoch: Epoch,
            pub payload: Bytes,
        }

        impl Payload for $name {
            const TYPE: u16 = $ty;
            const NAME: &'static str = $label;
            const VERSION: u16 = 1;
            const COMPAT: u16 = 1;
            const PRIORITY: u16 = $priority;

            fn encode_payload(&self, out: &mut Segments) {
                let w = &mut out.front;
                self.pgid.encode(w);
                w.i32(self.from_osd);
                self.map_epoch.encode(w);
                self.query_epoch.encode(w);
                out.data = self.payload.clone();
            }

            fn decode_payload(parts: &mut Parts) -> Result<Self, DecodeError> {
                let r = &mut parts.front;
                Ok(Self {
                    pgid: Decode::decode(r)?,
                    from_osd: r.i32()?,
                    map_epoch: Decode::decode(r)?,
                    query_epoch: Decode::decode(r)?,
                    payload: parts.data.clone(),
                })
            }
        }
    )+};
}

pg_messages! {
    /// Asks a peer for a PG's info or log.
    PgQuery = type_numbers::PG_QUERY, "pg_query", priority::HIGH;
    /// Tells a peer a PG's info, asked or not.
    PgInfoNotify = type_numbers::PG_INFO_NOTIFY, "pg_info_notify", priority::HIGH;
    /// A PG's log, or a part of it.
    PgLog = type_numbers::PG_LOG, "pg_log", priority::HIGH;
    /// Objects, or pieces of them, that the receiver misses.
    PgPush = type_numbers::PG_PUSH, "pg_push", priority::DEFAULT;
    /// The pushed objects are on disk, or the next pieces are wanted.
    PgPushReply = type_numbers::PG_PUSH_REPLY, "pg_push_reply", priority::HIGH;
    /// Asks for a range's scrub map.
    PgScrub = type_numbers::PG_SCRUB, "pg_scrub", priority::DEFAULT;
    /// A range's scrub map.
    PgScrubReply = type_numbers::PG_SCRUB_REPLY, "pg_scrub_reply", priority::DEFAULT;
}

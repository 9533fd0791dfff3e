//! Authentication requests and replies inside an established session (msgr2 frames carry the first ones).

use bytes::Bytes;
use types::Epoch;

use crate::payload::{PaxosVersion, message};
use crate::type_numbers;

message! {
    /// A step of authentication, or a request for more tickets. Source: src/messages/MAuth.h.
    #[derive(Default)]
    MAuth = type_numbers::AUTH, "auth", 1, 1 {
        version: PaxosVersion,
        /// CEPH_AUTH_*; 0 in the first request, whose payload lists what the client supports.
        protocol: u32,
        payload: Bytes,
        monmap_epoch: Epoch,
    }
}

message! {
    /// Source: src/messages/MAuthReply.h.
    #[derive(Default)]
    MAuthReply = type_numbers::AUTH_REPLY, "auth_reply", 1, 1, HIGH {
        protocol: u32,
        /// 0 or a negated errno.
        result: i32,
        /// 0 when it says nothing about the client's id.
        global_id: u64,
        payload: Bytes,
        result_msg: String,
    }
}

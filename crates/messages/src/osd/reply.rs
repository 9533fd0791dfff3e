//! The OSD's reply to a client's request.

use codec::{Decode, DecodeError, Encode};
use types::{Epoch, Eversion, Name, PgId, RequestRedirect};

use super::raw_op::{decode_result_heads, encode_result_heads};
use super::request::TRACE_LEN;
use super::{MOsdOp, OpResult, flags};
use crate::payload::{Parts, Payload, Segments};
use crate::type_numbers;

/// Source: src/messages/MOSDOpReply.h (version 8).
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MOsdOpReply {
    /// The object's name, repeated.
    pub object: Name,
    pub pgid: PgId,
    pub ops: Vec<OpResult>,
    /// The request's flags with ACK and ONDISK replaced by what this reply says.
    pub flags: i64,
    /// 0 or more, or a negated errno.
    pub result: i32,
    /// What clients older than user versions look at.
    pub bad_replay_version: Eversion,
    pub replay_version: Eversion,
    /// The object's version as clients see and assert it.
    pub user_version: u64,
    pub epoch: Epoch,
    /// The request's attempt, repeated.
    pub retry_attempt: i32,
    /// Ask another object instead.
    pub redirect: Option<RequestRedirect>,
}

impl MOsdOpReply {
    /// A reply to `request` with no output yet; `acks` is what it says of ACK and ONDISK.
    pub fn to(request: &MOsdOp, result: i32, epoch: Epoch, acks: u32) -> Self {
        Self::with_results(request, result, epoch, acks, request.ops.iter().map(OpResult::from).collect())
    }

    /// The same with what the operations gave.
    pub fn with_results(request: &MOsdOp, result: i32, epoch: Epoch, acks: u32, ops: Vec<OpResult>) -> Self {
        let kept = request.flags & !(flags::ONDISK | flags::ONNVRAM | flags::ACK);
        Self {
            object: request.object.name.clone(),
            pgid: request.pgid.pgid,
            ops,
            flags: i64::from(kept | acks),
            result,
            epoch,
            retry_attempt: request.retry_attempt,
            ..Self::default()
        }
    }

    /// Sets the versions after a success; 0 as user version keeps that of the log entry for old clients.
    pub fn set_versions(&mut self, version: Eversion, user_version: u64) {
        self.replay_version = version;
        self.user_version = user_version;
        self.bad_replay_version = version;
        if user_version != 0 {
            self.bad_replay_version.version = user_version;
        }
    }

    /// Sets the versions when the object does not exist: nothing was written that could be replayed.
    pub fn set_enoent_versions(&mut self, version: Eversion, user_version: u64) {
        self.user_version = user_version;
        self.bad_replay_version = version;
    }

    pub fn is_on_disk(&self) -> bool {
        self.flags & i64::from(flags::ONDISK) != 0
    }
}

impl Payload for MOsdOpReply {
    const TYPE: u16 = type_numbers::OSD_OP_REPLY;
    const NAME: &'static str = "osd_op_reply";
    const VERSION: u16 = 8;
    const COMPAT: u16 = 2;

    fn encode_payload(&self, out: &mut Segments) {
        let w = &mut out.front;
        self.object.encode(w);
        self.pgid.encode(w);
        w.i64(self.flags);
        w.i32(self.result);
        self.bad_replay_version.encode(w);
        self.epoch.encode(w);
        encode_result_heads(&self.ops, w);
        w.i32(self.retry_attempt);
        for op in &self.ops {
            w.i32(op.rval);
        }
        self.replay_version.encode(w);
        w.u64(self.user_version);
        self.redirect.encode(w);
        w.zeros(TRACE_LEN);
        out.set_data(self.ops.iter().flat_map(OpResult::output));
    }

    fn decode_payload(parts: &mut Parts) -> Result<Self, DecodeError> {
        // Redirects were unconditional before 7, and nobody that old is left.
        if parts.version < 7 {
            return Err(DecodeError::Invalid { what: "osd_op_reply version", value: parts.version.into() });
        }
        let r = &mut parts.front;
        let object = Name::decode(r)?;
        let pgid = PgId::decode(r)?;
        let (flags, result) = (r.i64()?, r.i32()?);
        let bad_replay_version = Eversion::decode(r)?;
        let epoch = Epoch::decode(r)?;
        let mut ops = decode_result_heads(r, &parts.data)?;
        let retry_attempt = r.i32()?;
        for op in &mut ops {
            op.rval = r.i32()?;
        }
        let replay_version = Eversion::decode(r)?;
        let user_version = r.u64()?;
        let redirect = Option::decode(r)?;
        if parts.version >= 8 {
            r.skip(TRACE_LEN)?;
        }
        Ok(Self {
            object,
            pgid,
            ops,
            flags,
            result,
            bad_replay_version,
            replay_version,
            user_version,
            epoch,
            retry_attempt,
            redirect,
        })
    }
}

//! What an OSD tells watchers and notifiers, and how it holds clients back.

use bytes::Bytes;
use codec::DecodeError;
use types::{Epoch, HObject, SpgId};

use crate::payload::{Parts, Payload, Segments, message};
use crate::type_numbers;

/// What happened. Source: CEPH_WATCH_EVENT_* in src/include/ceph_fs.h.
pub mod watch_event {
    /// A notify for a watcher.
    pub const NOTIFY: u8 = 1;
    /// A notify's result for the notifier.
    pub const NOTIFY_COMPLETE: u8 = 2;
    /// The watch is gone.
    pub const DISCONNECT: u8 = 3;
}

/// Source: src/messages/MWatchNotify.h (version 3).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MWatchNotify {
    /// The watch's (or for a result, the notify's) cookie, chosen by the client.
    pub cookie: u64,
    /// Not used by anybody.
    pub version: u64,
    pub notify_id: u64,
    /// `watch_event::*`.
    pub event: u8,
    /// The notifier's payload.
    pub payload: Bytes,
    /// An encoded `NotifyResult` for the notifier; travels in the data segment.
    pub result: Bytes,
    /// 0 or a negated errno.
    pub return_code: i32,
    /// Global id of who sent the notify.
    pub notifier: u64,
}

impl Payload for MWatchNotify {
    const TYPE: u16 = type_numbers::WATCH_NOTIFY;
    const NAME: &'static str = "watch-notify";
    const VERSION: u16 = 3;
    const COMPAT: u16 = 1;

    fn encode_payload(&self, out: &mut Segments) {
        let w = &mut out.front;
        w.u8(1);
        w.u8(self.event);
        w.u64(self.cookie);
        w.u64(self.version);
        w.u64(self.notify_id);
        w.blob(&self.payload);
        w.i32(self.return_code);
        w.u64(self.notifier);
        out.data = self.result.clone();
    }

    fn decode_payload(parts: &mut Parts) -> Result<Self, DecodeError> {
        let r = &mut parts.front;
        let form = r.u8()?;
        Ok(Self {
            event: r.u8()?,
            cookie: r.u64()?,
            version: r.u64()?,
            notify_id: r.u64()?,
            payload: if form >= 1 { r.blob()? } else { Bytes::new() },
            return_code: if parts.version >= 2 { r.i32()? } else { 0 },
            result: parts.data.clone(),
            notifier: if parts.version >= 3 { r.u64()? } else { 0 },
        })
    }
}

/// What a backoff does. Source: CEPH_OSD_BACKOFF_OP_* in src/include/rados.h.
pub mod backoff_op {
    pub const BLOCK: u8 = 1;
    pub const ACK_BLOCK: u8 = 2;
    pub const UNBLOCK: u8 = 3;
}

message! {
    /// Tells a client not to send operations on a range of objects until it is unblocked. Source: src/messages/MOSDBackoff.h.
    MOsdBackoff = type_numbers::OSD_BACKOFF, "osd_backoff", 1, 1 {
        pgid: SpgId,
        epoch: Epoch,
        /// `backoff_op::*`.
        op: u8,
        /// Unique in the session.
        id: u64,
        /// The range's first object.
        begin: HObject,
        /// The object behind the range; equal to `begin` for that object alone.
        end: HObject,
    }
}

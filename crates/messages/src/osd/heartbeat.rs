//! Heartbeats between OSDs.

use codec::{Decode, DecodeError, Encode};
use types::{Epoch, Fsid, Utime};

use super::SignedSpan;
use crate::payload::{Parts, Payload, Segments};
use crate::type_numbers;

/// Source: src/messages/MOSDPing.h (version 5).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MOsdPing {
    pub fsid: Fsid,
    pub map_epoch: Epoch,
    /// `MOsdPing::PING` and so on.
    pub op: u8,
    /// When the ping was sent; the reply repeats it.
    pub stamp: Utime,
    pub up_from: Epoch,
    /// The pinging side's monotonic clock at sending.
    pub mono_ping_stamp: SignedSpan,
    /// The replying side's monotonic clock at sending.
    pub mono_send_stamp: SignedSpan,
    /// In Ceph an upper bound of the difference between both clocks. Loligo's OSDs send for how long the sender may count on
    /// the other: in a ping the lease that is asked for, in a reply the one that is granted.
    pub delta_ub: Option<SignedSpan>,
    /// The payload is filled up to about this many bytes, to find networks that lose large packets.
    pub min_message_size: u32,
}

impl MOsdPing {
    pub const HEARTBEAT: u8 = 0;
    pub const START_HEARTBEAT: u8 = 1;
    pub const YOU_DIED: u8 = 2;
    pub const STOP_HEARTBEAT: u8 = 3;
    pub const PING: u8 = 4;
    pub const PING_REPLY: u8 = 5;
}

impl Payload for MOsdPing {
    const TYPE: u16 = type_numbers::OSD_PING;
    const NAME: &'static str = "osd_ping";
    const VERSION: u16 = 5;
    const COMPAT: u16 = 4;

    fn encode_payload(&self, out: &mut Segments) {
        let w = &mut out.front;
        self.fsid.encode(w);
        self.map_epoch.encode(w);
        w.u8(self.op);
        self.stamp.encode(w);
        let padding = (self.min_message_size as usize).saturating_sub(w.len());
        w.count(padding);
        self.up_from.encode(w);
        self.mono_ping_stamp.encode(w);
        self.mono_send_stamp.encode(w);
        self.delta_ub.encode(w);
        w.zeros(padding);
    }

    fn decode_payload(parts: &mut Parts) -> Result<Self, DecodeError> {
        let r = &mut parts.front;
        let mut m = Self {
            fsid: Decode::decode(r)?,
            map_epoch: Decode::decode(r)?,
            op: r.u8()?,
            stamp: Decode::decode(r)?,
            ..Self::default()
        };
        let head = r.position();
        let padding = r.u32()?;
        if parts.version >= 5 {
            m.up_from = Decode::decode(r)?;
            m.mono_ping_stamp = Decode::decode(r)?;
            m.mono_send_stamp = Decode::decode(r)?;
            m.delta_ub = Decode::decode(r)?;
        }
        r.skip(padding as usize)?;
        if padding > 0 {
            m.min_message_size = u32::try_from(head).unwrap_or(u32::MAX).saturating_add(padding);
        }
        Ok(m)
    }
}

//! A message as msgr2 carries it: a header and three segments, none of them interpreted yet.

use bytes::{Bytes, BytesMut};

/// The fields of a message header that mean something to both ends; the frame layer adds acks, padding and flags.
///
/// Source: ceph_msg_header2 in src/include/msgr.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Header {
    /// The sender's count of messages in this session; the connection assigns it.
    pub seq: u64,
    /// Names a request; its reply carries the same one. 0 when nobody waits.
    pub tid: u64,
    /// Message type number. Source: src/msg/Message.h, src/include/ceph_fs.h.
    pub ty: u16,
    /// Larger goes first when a queue builds up.
    pub priority: u16,
    /// The form of the payload.
    pub version: u16,
    /// The oldest form a reader must know to understand this payload.
    pub compat_version: u16,
    /// Offset in the object that the data segment starts at, for receivers that align buffers.
    pub data_off: u16,
}

/// A whole message before decoding, or after encoding.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WireMessage {
    pub header: Header,
    pub front: Bytes,
    pub middle: Bytes,
    pub data: Bytes,
    /// What follows `data` in its segment: of messages that are sent, so that long parts from different
    /// buffers are not copied into one. A message that came from the network has everything in `data`.
    pub more: Vec<Bytes>,
}

impl WireMessage {
    /// Payload bytes of all three segments together.
    pub fn payload_len(&self) -> usize {
        self.front.len() + self.middle.len() + self.data_len()
    }

    /// Bytes of the data segment.
    pub fn data_len(&self) -> usize {
        self.data.len() + self.more.iter().map(Bytes::len).sum::<usize>()
    }

    /// The data segment in one buffer.
    pub fn whole_data(&self) -> Bytes {
        if self.more.is_empty() {
            return self.data.clone();
        }
        let mut all = BytesMut::with_capacity(self.data_len());
        std::iter::once(&self.data).chain(&self.more).for_each(|part| all.extend_from_slice(part));
        all.freeze()
    }
}

/// Source: CEPH_MSG_PRIO_* in src/include/msgr.h.
pub mod priority {
    pub const LOW: u16 = 64;
    pub const DEFAULT: u16 = 127;
    pub const HIGH: u16 = 196;
    pub const HIGHEST: u16 = 255;
}

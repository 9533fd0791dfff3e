//! Tags and the fields of control frames.
//!
//! Source: doc/dev/msgr2.rst, src/msg/async/frames_v2.h.

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer, wire_plain};
use types::{AddrVec, EntityAddr};

/// What a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Tag {
    Hello = 1,
    AuthRequest = 2,
    AuthBadMethod = 3,
    AuthReplyMore = 4,
    AuthRequestMore = 5,
    AuthDone = 6,
    AuthSignature = 7,
    ClientIdent = 8,
    ServerIdent = 9,
    IdentMissingFeatures = 10,
    SessionReconnect = 11,
    SessionReset = 12,
    SessionRetry = 13,
    SessionRetryGlobal = 14,
    SessionReconnectOk = 15,
    Wait = 16,
    Message = 17,
    Keepalive2 = 18,
    Keepalive2Ack = 19,
    Ack = 20,
}

impl Tag {
    pub const ALL: [Self; 20] = [
        Self::Hello,
        Self::AuthRequest,
        Self::AuthBadMethod,
        Self::AuthReplyMore,
        Self::AuthRequestMore,
        Self::AuthDone,
        Self::AuthSignature,
        Self::ClientIdent,
        Self::ServerIdent,
        Self::IdentMissingFeatures,
        Self::SessionReconnect,
        Self::SessionReset,
        Self::SessionRetry,
        Self::SessionRetryGlobal,
        Self::SessionReconnectOk,
        Self::Wait,
        Self::Message,
        Self::Keepalive2,
        Self::Keepalive2Ack,
        Self::Ack,
    ];

    pub fn from_u8(v: u8) -> Option<Self> {
        Self::ALL.get(usize::from(v).checked_sub(1)?).copied()
    }

    /// The most bytes a control frame of this tag may carry.
    pub(crate) fn control_cap(self) -> u32 {
        match self {
            Self::AuthRequest
            | Self::AuthBadMethod
            | Self::AuthReplyMore
            | Self::AuthRequestMore
            | Self::AuthDone => 32 << 10,
            Self::ClientIdent | Self::ServerIdent | Self::SessionReconnect => 4 << 10,
            Self::Hello => 512,
            _ => 64,
        }
    }
}

/// How a connection goes on after authentication. Source: CEPH_CON_MODE_* in src/include/msgr.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum ConMode {
    /// Checksums against bit errors, no secrecy.
    Crc = 1,
    /// AES-128-GCM.
    Secure = 2,
}

impl ConMode {
    pub fn from_u32(v: u32) -> Option<Self> {
        match v {
            1 => Some(Self::Crc),
            2 => Some(Self::Secure),
            _ => None,
        }
    }
}

/// The peers' entity types and the address each sees of the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    pub entity_type: u8,
    pub peer_addr: EntityAddr,
}
wire_plain!(Hello { entity_type, peer_addr });

/// A blob with its length in front: how authentication payloads travel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Blob(pub Bytes);

impl Encode for Blob {
    fn encode(&self, w: &mut Writer) {
        w.blob(&self.0);
    }
}
impl Decode for Blob {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.blob().map(Self)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AuthRequest {
    pub method: u32,
    pub preferred_modes: Vec<u32>,
    pub payload: Blob,
}
wire_plain!(AuthRequest { method, preferred_modes, payload });

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AuthBadMethod {
    pub method: u32,
    pub result: i32,
    pub allowed_methods: Vec<u32>,
    pub allowed_modes: Vec<u32>,
}
wire_plain!(AuthBadMethod { method, result, allowed_methods, allowed_modes });

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AuthDone {
    pub global_id: u64,
    pub con_mode: u32,
    pub payload: Blob,
}
wire_plain!(AuthDone { global_id, con_mode, payload });

/// Set in the flags of an ident when the session is not resumed. Source: CEPH_MSG_CONNECT_LOSSY in
/// src/include/msgr.h.
pub(crate) const FLAG_LOSSY: u64 = 1;

/// Who the connecting side is and whom it wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientIdent {
    pub addrs: AddrVec,
    pub target: EntityAddr,
    /// The number in the entity name: `osd.3`, `client.4123`.
    pub gid: i64,
    pub global_seq: u64,
    pub features_supported: u64,
    pub features_required: u64,
    pub flags: u64,
    pub cookie: u64,
}
wire_plain!(ClientIdent {
    addrs,
    target,
    gid,
    global_seq,
    features_supported,
    features_required,
    flags,
    cookie
});

/// The accepting side's answer, which opens the session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerIdent {
    pub addrs: AddrVec,
    pub gid: i64,
    pub global_seq: u64,
    pub features_supported: u64,
    pub features_required: u64,
    pub flags: u64,
    pub cookie: u64,
}
wire_plain!(ServerIdent { addrs, gid, global_seq, features_supported, features_required, flags, cookie });

/// The connecting side wants an older session back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reconnect {
    pub addrs: AddrVec,
    pub client_cookie: u64,
    pub server_cookie: u64,
    pub global_seq: u64,
    pub connect_seq: u64,
    /// The last message that the connecting side has received.
    pub msg_seq: u64,
}
wire_plain!(Reconnect { addrs, client_cookie, server_cookie, global_seq, connect_seq, msg_seq });

/// The first segment of a message frame. Source: ceph_msg_header2 in src/include/msgr.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MessageHeader {
    pub seq: u64,
    pub tid: u64,
    pub ty: u16,
    pub priority: u16,
    pub version: u16,
    pub pre_padding: u32,
    pub data_off: u16,
    pub ack_seq: u64,
    pub flags: u8,
    pub compat_version: u16,
    pub reserved: u16,
}
wire_plain!(MessageHeader {
    seq,
    tid,
    ty,
    priority,
    version,
    pre_padding,
    data_off,
    ack_seq,
    flags,
    compat_version,
    reserved
});

impl MessageHeader {
    pub const LEN: usize = 41;
}

//! Who talks: entity types, session names (`osd.3`, `client.4123`), and names in the auth database (`client.admin`).

use codec::{Decode, DecodeError, Encode, Reader, Writer, wire_plain};

use crate::EntityAddr;

/// A kind of daemon or client. Source: CEPH_ENTITY_TYPE_* in src/include/msgr.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(u8)]
pub enum EntityType {
    Mon = 0x01,
    Mds = 0x02,
    Osd = 0x04,
    #[default]
    Client = 0x08,
    Mgr = 0x10,
    Auth = 0x20,
    Any = 0xff,
}

impl EntityType {
    pub fn from_u8(v: u8) -> Option<Self> {
        Some(match v {
            0x01 => Self::Mon,
            0x02 => Self::Mds,
            0x04 => Self::Osd,
            0x08 => Self::Client,
            0x10 => Self::Mgr,
            0x20 => Self::Auth,
            0xff => Self::Any,
            _ => return None,
        })
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Mon => "mon",
            Self::Mds => "mds",
            Self::Osd => "osd",
            Self::Client => "client",
            Self::Mgr => "mgr",
            Self::Auth => "auth",
            Self::Any => "*",
        }
    }

    pub fn parse(s: &str) -> Option<Self> {
        [Self::Mon, Self::Mds, Self::Osd, Self::Client, Self::Mgr, Self::Auth]
            .into_iter()
            .find(|t| t.as_str() == s)
    }
}

impl std::fmt::Display for EntityType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A session's name: type and number, as message headers and request ids carry it.
///
/// Nine bytes on the wire: u8 type, i64 number. Unknown type bytes are kept. Source: ceph_entity_name in src/include/msgr.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct EntityName {
    pub kind: u8,
    pub num: i64,
}

wire_plain!(EntityName { kind, num });

impl EntityName {
    pub fn new(kind: EntityType, num: i64) -> Self {
        Self { kind: kind as u8, num }
    }
    pub fn osd(num: i32) -> Self {
        Self::new(EntityType::Osd, num.into())
    }
    pub fn client(num: i64) -> Self {
        Self::new(EntityType::Client, num)
    }
    pub fn mon(rank: i64) -> Self {
        Self::new(EntityType::Mon, rank)
    }
    pub fn entity_type(self) -> Option<EntityType> {
        EntityType::from_u8(self.kind)
    }
}

impl std::fmt::Display for EntityName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = self.entity_type().map_or("unknown", EntityType::as_str);
        if self.num < 0 { write!(f, "{kind}.?") } else { write!(f, "{kind}.{}", self.num) }
    }
}

/// An entity in the auth database: type and textual id (`client.admin`, `osd.0`, `mon.`).
///
/// On the wire a u32 type, then the id as a string. Source: EntityName in src/common/entity_name.h.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct AuthName {
    pub kind: EntityType,
    pub id: String,
}

impl AuthName {
    pub fn new(kind: EntityType, id: impl Into<String>) -> Self {
        Self { kind, id: id.into() }
    }

    /// Parses `type.id`; the id may be empty (`mon.`) or hold further dots.
    pub fn parse(text: &str) -> Option<Self> {
        let (kind, id) = text.split_once('.')?;
        Some(Self { kind: EntityType::parse(kind)?, id: id.to_owned() })
    }
}

impl std::fmt::Display for AuthName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.kind, self.id)
    }
}
impl Encode for AuthName {
    fn encode(&self, w: &mut Writer) {
        w.u32(self.kind as u32);
        self.id.encode(w);
    }
}
impl Decode for AuthName {
    const MIN_SIZE: usize = 8;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        let raw = r.u32()?;
        let kind = u8::try_from(raw)
            .ok()
            .and_then(EntityType::from_u8)
            .ok_or(DecodeError::Invalid { what: "entity type", value: raw.into() })?;
        Ok(Self { kind, id: String::decode(r)? })
    }
}

/// A session's name and address. Source: entity_inst_t in src/msg/msg_types.h.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct EntityInst {
    pub name: EntityName,
    pub addr: EntityAddr,
}

wire_plain!(EntityInst { name, addr });

/// Names one client request for ever: the key of duplicate detection.
///
/// `inc` is the client's incarnation. Source: osd_reqid_t in src/osd/osd_types.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ReqId {
    pub name: EntityName,
    pub tid: u64,
    pub inc: i32,
}

codec::wire_struct!(ReqId(2, 2) { name, tid, inc });

impl std::fmt::Display for ReqId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}:{}", self.name, self.inc, self.tid)
    }
}

//! Network addresses as Ceph writes them: `v2:127.0.0.1:6800/123`, and lists of them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use codec::{Decode, DecodeError, Encode, Reader, Writer};

/// Which protocol listens at an address. Source: entity_addr_t::type_t in src/msg/msg_types.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(u32)]
pub enum AddrKind {
    #[default]
    None = 0,
    Legacy = 1,
    Msgr2 = 2,
    Any = 3,
    /// A range of addresses; the nonce is the prefix length. Only in blocklists.
    Cidr = 4,
}

impl AddrKind {
    fn from_u32(v: u32) -> Option<Self> {
        Some(match v {
            0 => Self::None,
            1 => Self::Legacy,
            2 => Self::Msgr2,
            3 => Self::Any,
            4 => Self::Cidr,
            _ => return None,
        })
    }
}

/// One address: protocol, socket address, and a nonce that tells incarnations of a process apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct EntityAddr {
    pub kind: AddrKind,
    pub nonce: u32,
    /// `None` is a blank address (family AF_UNSPEC).
    pub socket: Option<SocketAddr>,
}

const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;
/// Length of struct sockaddr_in and of sockaddr_in6, family included, as the wire form states it.
const SOCKADDR_IN_LEN: u32 = 16;
const SOCKADDR_IN6_LEN: u32 = 28;

impl EntityAddr {
    pub fn v2(socket: SocketAddr, nonce: u32) -> Self {
        Self { kind: AddrKind::Msgr2, nonce, socket: Some(socket) }
    }

    pub fn is_blank(&self) -> bool {
        self.socket.is_none()
    }

    /// Parses `[v1:|v2:|any:]ip:port[/nonce]`; without a prefix the kind is `default`.
    pub fn parse(text: &str, default: AddrKind) -> Option<Self> {
        if text == "-" {
            return Some(Self::default());
        }
        let (kind, rest) = match text.split_once(':') {
            Some(("v1", rest)) => (AddrKind::Legacy, rest),
            Some(("v2", rest)) => (AddrKind::Msgr2, rest),
            Some(("any", rest)) => (AddrKind::Any, rest),
            Some(("cidr", rest)) => (AddrKind::Cidr, rest),
            _ => (default, text),
        };
        let (addr, nonce) = match rest.split_once('/') {
            Some((a, n)) => (a, n.parse().ok()?),
            None => (rest, 0),
        };
        let socket = match addr.parse::<SocketAddr>() {
            Ok(s) => s,
            Err(_) => SocketAddr::new(addr.trim_matches(['[', ']']).parse::<IpAddr>().ok()?, 0),
        };
        Some(Self { kind, nonce, socket: Some(socket) })
    }

    /// `ip:port/nonce` without the protocol prefix, as blocklists and `osd dump` show addresses.
    pub fn without_kind(&self) -> String {
        match self.socket {
            Some(s) => format!("{s}/{}", self.nonce),
            None => "-".to_owned(),
        }
    }
}

impl std::fmt::Display for EntityAddr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let prefix = match self.kind {
            AddrKind::None => return f.write_str("-"),
            AddrKind::Legacy => "v1:",
            AddrKind::Msgr2 => "v2:",
            // Source: operator<< for entity_addr_t prints "any" addresses without a prefix.
            AddrKind::Any => "",
            AddrKind::Cidr => "cidr:",
        };
        write!(f, "{prefix}{}", self.without_kind())
    }
}

impl Encode for EntityAddr {
    fn encode(&self, w: &mut Writer) {
        w.u8(1);
        w.envelope(1, 1, |w| {
            w.u32(self.kind as u32);
            w.u32(self.nonce);
            encode_sockaddr(self.socket, w);
        });
    }
}

fn encode_sockaddr(socket: Option<SocketAddr>, w: &mut Writer) {
    match socket {
        None => {
            // A blank address carries the whole union of both forms. Source: get_sockaddr_len in src/msg/msg_types.h.
            w.u32(SOCKADDR_IN6_LEN);
            w.zeros(SOCKADDR_IN6_LEN as usize);
        }
        Some(SocketAddr::V4(a)) => {
            w.u32(SOCKADDR_IN_LEN);
            w.u16(AF_INET);
            w.raw(&a.port().to_be_bytes());
            w.raw(&a.ip().octets());
            w.zeros(8);
        }
        Some(SocketAddr::V6(a)) => {
            w.u32(SOCKADDR_IN6_LEN);
            w.u16(AF_INET6);
            w.raw(&a.port().to_be_bytes());
            w.raw(&a.flowinfo().to_be_bytes());
            w.raw(&a.ip().octets());
            w.u32(a.scope_id());
        }
    }
}

impl Decode for EntityAddr {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        match r.u8()? {
            0 => decode_legacy(r),
            1 => r.envelope("entity_addr_t", 1, |r, _| {
                let raw = r.u32()?;
                let kind = AddrKind::from_u32(raw)
                    .ok_or(DecodeError::Invalid { what: "address type", value: raw.into() })?;
                let nonce = r.u32()?;
                let len = r.u32()? as usize;
                let socket = r.bounded(len, decode_sockaddr)?;
                Ok(Self { kind, nonce, socket })
            }),
            v => Err(DecodeError::Invalid { what: "address marker", value: v.into() }),
        }
    }
}

/// The form before msgr2: three more marker bytes, the nonce, and a whole sockaddr_storage with a big-endian family.
fn decode_legacy(r: &mut Reader) -> Result<EntityAddr, DecodeError> {
    r.skip(3)?;
    let nonce = r.u32()?;
    let mut storage: [u8; 128] = r.array()?;
    // The family is big-endian in this form only. Source: encode(sockaddr_storage) in src/msg/msg_types.h.
    storage.swap(0, 1);
    let mut inner = Reader::new(storage.to_vec().into());
    let socket = decode_sockaddr(&mut inner)?;
    Ok(EntityAddr { kind: AddrKind::Legacy, nonce, socket })
}

fn decode_sockaddr(r: &mut Reader) -> Result<Option<SocketAddr>, DecodeError> {
    if r.is_empty() {
        return Ok(None);
    }
    match r.u16()? {
        0 => Ok(None),
        AF_INET => {
            let port = u16::from_be_bytes(r.array()?);
            let ip = Ipv4Addr::from(r.array::<4>()?);
            Ok(Some(SocketAddr::new(ip.into(), port)))
        }
        AF_INET6 => {
            let port = u16::from_be_bytes(r.array()?);
            let flow = u32::from_be_bytes(r.array()?);
            let ip = Ipv6Addr::from(r.array::<16>()?);
            let scope = r.u32()?;
            Ok(Some(SocketAddr::V6(std::net::SocketAddrV6::new(ip, port, flow, scope))))
        }
        v => Err(DecodeError::Invalid { what: "address family", value: v.into() }),
    }
}

/// The addresses of one daemon, one per protocol. Source: entity_addrvec_t in src/msg/msg_types.cc.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct AddrVec(pub Vec<EntityAddr>);

impl AddrVec {
    pub fn single(addr: EntityAddr) -> Self {
        Self(vec![addr])
    }

    /// The msgr2 address, if there is one.
    pub fn msgr2(&self) -> Option<EntityAddr> {
        self.0.iter().find(|a| a.kind == AddrKind::Msgr2).copied()
    }

    /// The msgr1 address, or a blank one. Source: entity_addrvec_t::legacy_addr.
    pub fn legacy(&self) -> EntityAddr {
        self.0.iter().find(|a| a.kind == AddrKind::Legacy).copied().unwrap_or_default()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl std::fmt::Display for AddrVec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0.as_slice() {
            [] => f.write_str("-"),
            [one] => one.fmt(f),
            many => {
                let texts: Vec<String> = many.iter().map(ToString::to_string).collect();
                write!(f, "[{}]", texts.join(","))
            }
        }
    }
}
impl Encode for AddrVec {
    fn encode(&self, w: &mut Writer) {
        w.u8(2);
        self.0.encode(w);
    }
}
impl Decode for AddrVec {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        match r.peek_u8()? {
            2 => {
                r.skip(1)?;
                Vec::decode(r).map(Self)
            }
            // An old peer sends a single address. Source: entity_addrvec_t::decode.
            _ => EntityAddr::decode(r).map(|a| Self(vec![a])),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) {
        let a = EntityAddr::parse(text, AddrKind::Msgr2).expect("parses");
        assert_eq!(a.to_string(), text);
        let bytes = a.to_bytes();
        assert_eq!(EntityAddr::from_bytes(bytes.clone()), Ok(a));
        for n in 0..bytes.len() {
            assert!(EntityAddr::from_bytes(bytes.slice(..n)).is_err(), "{n}");
        }
    }

    #[test]
    fn addresses_round_trip() {
        check("v2:127.0.0.1:40789/0");
        check("v1:10.0.0.1:6789/77");
        check("v2:[::1]:3300/5");
    }

    #[test]
    fn the_wire_form_is_cephs() {
        let a = EntityAddr::parse("v2:127.0.0.1:3300/1", AddrKind::Msgr2).expect("parses");
        let want = [
            1, 1, 1, 28, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 16, 0, 0, 0, 2, 0, 0x0c, 0xe4, 127, 0, 0, 1, 0, 0,
            0, 0, 0, 0, 0, 0,
        ];
        assert_eq!(&a.to_bytes()[..], &want[..]);
    }

    #[test]
    fn unknown_families_and_markers_are_refused() {
        assert!(EntityAddr::from_bytes(vec![9u8; 40]).is_err());
    }
}

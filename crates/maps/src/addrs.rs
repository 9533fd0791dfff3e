//! Addresses in maps: the order in which Ceph sorts them, and the forms that dumps show.

use std::collections::BTreeMap;

use codec::{Encode, Writer};
use serde_json::{Value, json};
use types::{AddrKind, AddrVec, EntityAddr};

use std::net::SocketAddr;

/// What dumps print for an address without a family.
const NO_FAMILY: &str = "(unrecognized address family 0)";

/// Ceph compares addresses as their bytes lie in memory: kind and nonce little-endian, then the socket address with a
/// little-endian family and a big-endian port. Source: operator< for entity_addr_t in src/msg/msg_types.h.
fn memory_order(a: &EntityAddr) -> [u8; 36] {
    let mut w = Writer::with_capacity(36);
    w.u32(a.kind as u32);
    w.u32(a.nonce);
    match a.socket {
        None => {}
        Some(SocketAddr::V4(s)) => {
            w.u16(2);
            w.raw(&s.port().to_be_bytes());
            w.raw(&s.ip().octets());
        }
        Some(SocketAddr::V6(s)) => {
            w.u16(10);
            w.raw(&s.port().to_be_bytes());
            w.raw(&s.flowinfo().to_be_bytes());
            w.raw(&s.ip().octets());
            w.u32(s.scope_id());
        }
    }
    let mut out = [0; 36];
    out.iter_mut().zip(w.as_slice()).for_each(|(o, b)| *o = *b);
    out
}

/// Entries of a map keyed by address, in Ceph's order.
pub(crate) fn in_memory_order<V>(map: &BTreeMap<EntityAddr, V>) -> Vec<(&EntityAddr, &V)> {
    let mut entries: Vec<_> = map.iter().collect();
    entries.sort_by_cached_key(|(a, _)| memory_order(a));
    entries
}

/// Writes such a map as a peer would.
pub(crate) fn encode_by_addr<V: Encode>(map: &BTreeMap<EntityAddr, V>, w: &mut Writer) {
    w.count(map.len());
    for (addr, value) in in_memory_order(map) {
        addr.encode(w);
        value.encode(w);
    }
}

/// The address that a reader who knows one address per daemon is shown: the msgr1 one, else the first.
/// Source: entity_addrvec_t::legacy_or_front_addr in src/msg/msg_types.h.
fn legacy_or_front(addrs: &AddrVec) -> EntityAddr {
    let legacy = addrs.0.iter().find(|a| a.kind == AddrKind::Legacy);
    legacy.or(addrs.0.first()).copied().unwrap_or_default()
}

fn socket_text(addr: &EntityAddr) -> String {
    addr.socket.map_or_else(|| NO_FAMILY.to_owned(), |s| s.to_string())
}

/// `ip:port/nonce` of one address.
pub(crate) fn legacy_text_of(addr: &EntityAddr) -> String {
    format!("{}/{}", socket_text(addr), addr.nonce)
}

/// `ip:port/nonce` of the address for readers who know one. Source: entity_addrvec_t::get_legacy_str.
pub(crate) fn legacy_text(addrs: &AddrVec) -> String {
    legacy_text_of(&legacy_or_front(addrs))
}

/// The plain form: nothing for an empty list, no brackets around a single address.
pub(crate) fn plain_text(addrs: &AddrVec) -> String {
    if addrs.is_empty() { String::new() } else { addrs.to_string() }
}

/// `{"type", "addr", "nonce"}`. Source: entity_addr_t::dump.
pub fn addr_json(addr: &EntityAddr) -> Value {
    let kind = match addr.kind {
        AddrKind::None => "none",
        AddrKind::Legacy => "v1",
        AddrKind::Msgr2 => "v2",
        AddrKind::Any => "any",
        AddrKind::Cidr => "cidr",
    };
    json!({ "type": kind, "addr": socket_text(addr), "nonce": addr.nonce })
}

/// `{"addrvec": [...]}`. Source: entity_addrvec_t::dump.
pub fn addrvec_json(addrs: &AddrVec) -> Value {
    json!({ "addrvec": addrs.0.iter().map(addr_json).collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addr(text: &str) -> EntityAddr {
        EntityAddr::parse(text, AddrKind::Any).expect("parses")
    }

    #[test]
    fn entries_come_in_the_order_of_their_bytes() {
        // Nonce 256 is 00 01 00 00 in memory and sorts before nonce 1, which is 01 00 00 00.
        let map = BTreeMap::from([
            (addr("10.0.0.9:1/256"), 0),
            (addr("10.0.0.1:1/1"), 1),
            (addr("9.0.0.1:2/256"), 2),
        ]);
        let got: Vec<i32> = in_memory_order(&map).into_iter().map(|(_, v)| *v).collect();
        assert_eq!(got, [0, 2, 1]);
    }

    #[test]
    fn readers_of_one_address_get_the_msgr1_one() {
        let both = AddrVec(vec![addr("v2:127.0.0.1:6828/7"), addr("v1:127.0.0.1:6829/7")]);
        assert_eq!(legacy_text(&both), "127.0.0.1:6829/7");
        assert_eq!(legacy_text(&AddrVec::default()), "(unrecognized address family 0)/0");
        assert_eq!((plain_text(&AddrVec::default()), plain_text(&both)), (String::new(), both.to_string()));
    }
}

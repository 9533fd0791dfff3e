//! Where a peer is, whatever it says.

use std::net::SocketAddr;

use types::EntityAddr;

/// Where a peer is: of what it states only port and nonce count, for caps that are limited to a network ask
/// for the host.
pub(crate) fn seen_at(stated: EntityAddr, socket: Option<EntityAddr>) -> EntityAddr {
    let Some(really) = socket.and_then(|a| a.socket) else { return stated };
    let port = stated.socket.map_or(0, |s| s.port());
    EntityAddr { socket: Some(SocketAddr::new(really.ip().to_canonical(), port)), ..stated }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_where_its_socket_is() {
        let addr = |text| EntityAddr::parse(text, types::AddrKind::Msgr2).expect("an address");
        let stated = addr("v2:10.0.0.1:0/77");
        assert_eq!(seen_at(stated, Some(addr("v2:192.168.7.7:41000/0"))), addr("v2:192.168.7.7:0/77"));
        assert_eq!(seen_at(stated, None), stated);
    }
}

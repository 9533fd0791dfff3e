//! Which of this host's addresses a daemon uses: by `public_addr`, by `public_network`, or whichever leads to the monitors.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};

use admin::options::Values;
use anyhow::{Context, Result, bail};
use types::{AddrKind, EntityAddr};

/// `10.0.0.0/24`, `fd00::/64`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Network {
    at: IpAddr,
    bits: u32,
}

impl Network {
    fn parse(text: &str) -> Option<Self> {
        let (at, bits) = text.trim().split_once('/')?;
        let (at, bits): (IpAddr, u32) = (at.parse().ok()?, bits.parse().ok()?);
        (bits <= if at.is_ipv4() { 32 } else { 128 }).then_some(Self { at, bits })
    }

    fn contains(&self, ip: IpAddr) -> bool {
        let (a, b, width) = match (self.at, ip) {
            (IpAddr::V4(a), IpAddr::V4(b)) => (u128::from(u32::from(a)), u128::from(u32::from(b)), 32),
            (IpAddr::V6(a), IpAddr::V6(b)) => (u128::from(a), u128::from(b), 128),
            _ => return false,
        };
        let shift = width - self.bits;
        shift >= 128 || a >> shift == b >> shift
    }
}

/// The address that this host would send from; nothing is sent.
fn towards(to: IpAddr) -> Option<IpAddr> {
    let any: IpAddr = if to.is_ipv4() { [0; 4].into() } else { [0; 16].into() };
    let socket = UdpSocket::bind(SocketAddr::new(any, 0)).ok()?;
    socket.connect(SocketAddr::new(to, 9)).ok()?;
    socket.local_addr().ok().map(|a| a.ip())
}

/// This host's address in one of the networks.
fn address_in(option: &str, text: &str) -> Result<IpAddr> {
    for word in text.split([',', ' ', ';', '\t']).filter(|w| !w.is_empty()) {
        let network = Network::parse(word).with_context(|| format!("{option}: '{word}' is no network"))?;
        if let Some(ip) = towards(network.at).filter(|ip| network.contains(*ip)) {
            return Ok(ip);
        }
    }
    bail!("this host has no address in {option} = {text}")
}

/// `public_addr` or `cluster_addr`; the port is 0 when none is given.
fn given(values: &Values, option: &str) -> Result<Option<SocketAddr>> {
    let text = values.get(option).unwrap_or_default();
    if text.is_empty() || text == "-" {
        return Ok(None);
    }
    let addr = EntityAddr::parse(&text, AddrKind::Msgr2).and_then(|a| a.socket);
    addr.map(Some).with_context(|| format!("{option} = {text} is no address"))
}

/// Where clients reach this daemon.
pub fn public(values: &Values, monitors: &[EntityAddr]) -> Result<SocketAddr> {
    if let Some(addr) = given(values, "public_addr")? {
        return Ok(addr);
    }
    let network = values.get("public_network").unwrap_or_default();
    if !network.is_empty() {
        return Ok(SocketAddr::new(address_in("public_network", &network)?, 0));
    }
    let monitor = monitors.iter().find_map(|m| m.socket).context("no monitors are named ('mon host')")?;
    let ip =
        towards(monitor.ip()).with_context(|| format!("there is no route to the monitor at {monitor}"))?;
    Ok(SocketAddr::new(ip, 0))
}

/// Where the other OSDs reach this one; `public` when no network of their own is named.
pub fn cluster(values: &Values, public: IpAddr) -> Result<IpAddr> {
    if let Some(addr) = given(values, "cluster_addr")? {
        return Ok(addr.ip());
    }
    let network = values.get("cluster_network").unwrap_or_default();
    if network.is_empty() { Ok(public) } else { address_in("cluster_network", &network) }
}

/// An address that clients can be told, and that is this host's; else the reason.
pub fn can_be_told(ip: IpAddr) -> Result<IpAddr, String> {
    if ip.is_unspecified() {
        return Err(format!("{ip} is every address of this host, and clients are told one: name it"));
    }
    if ip.is_multicast() || ip == IpAddr::V4(Ipv4Addr::BROADCAST) {
        return Err(format!("nobody can listen on {ip}"));
    }
    if !is_own(ip) {
        return Err(format!("{ip} is no address of this host; `ip address` shows those that are"));
    }
    Ok(ip)
}

/// Whether this is an address of this host.
pub fn is_own(ip: IpAddr) -> bool {
    UdpSocket::bind(SocketAddr::new(ip, 0)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_hold_their_addresses() {
        let check = |network: &str, ip: &str, want: bool| {
            let got = Network::parse(network).expect("a network").contains(ip.parse().expect("an address"));
            assert_eq!(got, want, "{ip} in {network}");
        };
        check("10.1.0.0/16", "10.1.255.3", true);
        check("10.1.0.0/16", "10.2.0.3", false);
        check("10.1.2.3/32", "10.1.2.3", true);
        check("0.0.0.0/0", "192.168.1.1", true);
        check("fd00::/64", "fd00::1", true);
        check("fd00::/64", "fd00:0:0:1::1", false);
        check("::/0", "fd00::1", true);
        check("10.1.0.0/16", "fd00::1", false);
        assert_eq!(["10.0.0.1", "10.0.0.0/33", "x/8"].map(Network::parse), [None; 3]);
    }

    #[test]
    fn clients_are_told_one_address_of_this_host() {
        let told = |text: &str| can_be_told(text.parse().expect("an address"));
        assert_eq!(told("127.0.0.1"), Ok(IpAddr::V4(Ipv4Addr::LOCALHOST)));
        for (text, why) in [
            ("0.0.0.0", "every address"),
            ("::", "every address"),
            ("224.0.0.1", "nobody can listen"),
            ("255.255.255.255", "nobody can listen"),
            // Reserved: no host has it.
            ("240.0.0.1", "no address of this host"),
            ("2001:db8::7", "no address of this host"),
        ] {
            let refused = told(text).expect_err(text);
            assert!(refused.contains(why), "{refused}");
        }
    }

    #[test]
    fn options_choose_the_address() {
        let values = |options: &[(&str, &str)]| {
            let options = options.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
            Values::new("osd.0", &options)
        };
        let local: IpAddr = "127.0.0.1".parse().expect("an address");
        let mon = [EntityAddr::v2(SocketAddr::new(local, 3300), 0)];
        assert_eq!(public(&values(&[]), &mon).expect("found").ip(), local);
        let both = values(&[("public_network", "240.1.2.0/24, 127.0.0.0/8"), ("cluster_addr", "127.0.0.9")]);
        assert_eq!(public(&both, &[]).expect("found").ip(), local);
        assert_eq!(cluster(&both, local).expect("found").to_string(), "127.0.0.9");
        let nowhere = values(&[("public_network", "240.1.2.0/24")]);
        let error = public(&nowhere, &mon).expect_err("no such address").to_string();
        assert!(error.contains("no address in public_network = 240.1.2.0/24"), "{error}");
    }
}

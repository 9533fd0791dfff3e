//! Parts that several grammars share: networks, and constraints on command arguments.

use std::collections::BTreeMap;
use std::net::IpAddr;

use types::EntityAddr;

use super::ere::Ere;
use super::osd::OsdCap;
use super::scan::Scan;

/// A network that a grant is limited to. One that does not parse matches nobody, as in Ceph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Network(Option<(IpAddr, u32)>);

impl Network {
    /// Source: parse_network in src/common/ipaddr.cc.
    pub(super) fn new(text: &str) -> Self {
        let parse = || {
            let (ip, prefix) = text.split_once('/')?;
            Some((ip.parse().ok()?, prefix.parse().ok()?))
        };
        Self(parse())
    }

    /// Source: network_contains in src/common/ipaddr.cc.
    pub(super) fn contains(&self, addr: &EntityAddr) -> bool {
        match (self.0, addr.socket.map(|s| s.ip())) {
            (Some((IpAddr::V4(net), prefix)), Some(IpAddr::V4(ip))) => {
                let shift = 32u32.saturating_sub(prefix);
                u32::from(net).checked_shr(shift) == u32::from(ip).checked_shr(shift)
            }
            (Some((IpAddr::V6(net), prefix)), Some(IpAddr::V6(ip))) => {
                let shift = 128u32.saturating_sub(prefix);
                u128::from(net).checked_shr(shift) == u128::from(ip).checked_shr(shift)
            }
            _ => false,
        }
    }
}

/// Whether a grant that may be limited to a network applies to `addr`.
pub(super) fn applies(network: Option<&Network>, addr: &EntityAddr) -> bool {
    network.is_none_or(|n| n.contains(addr))
}

/// What a command's argument must look like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Constraint {
    Equal(String),
    Prefix(String),
    /// POSIX extended, over the whole value.
    Regex(String),
    /// OSD capabilities that are profiles alone, each with a name that begins so. The grammar has no words
    /// for it: only the built-in profiles use it.
    OsdProfiles(&'static str),
    /// Not there, or one of these.
    NoneOr(&'static [&'static str]),
}

pub(super) type Constraints = BTreeMap<String, Constraint>;

impl Constraint {
    fn admits(&self, value: &str) -> bool {
        match self {
            Self::Equal(want) => want == value,
            Self::Prefix(prefix) => value.starts_with(prefix.as_str()),
            Self::Regex(pattern) => Ere::new(pattern).is_some_and(|re| re.matches_whole(value)),
            Self::OsdProfiles(prefix) => OsdCap::parse(value).is_ok_and(|cap| cap.is_only_profiles(prefix)),
            Self::NoneOr(values) => values.contains(&value),
        }
    }
}

/// Every constrained argument must be present and fit.
pub(super) fn admits_all(constraints: &Constraints, args: &BTreeMap<String, String>) -> bool {
    constraints.iter().all(|(key, c)| match args.get(key) {
        Some(value) => c.admits(value),
        None => matches!(c, Constraint::NoneOr(_)),
    })
}

impl Scan<'_> {
    /// `key=value`, `key prefix value` or `key regex value`; `loose` allows spaces around `=`.
    fn constraint(&mut self, loose: bool) -> Option<(String, Constraint)> {
        self.attempt(|s| {
            let key = s.string()?;
            let equal = s.attempt(|s| {
                if loose {
                    s.spaces();
                }
                s.lit("=")?;
                if loose {
                    s.spaces();
                }
                s.string()
            });
            if let Some(value) = equal {
                return Some((key, Constraint::Equal(value)));
            }
            let prefix = s.attempt(|s| {
                s.word("prefix")?;
                s.spaces()?;
                s.string()
            });
            if let Some(value) = prefix {
                return Some((key, Constraint::Prefix(value)));
            }
            s.word("regex")?;
            s.spaces()?;
            s.string().map(|value| (key, Constraint::Regex(value)))
        })
    }

    /// One or more constraints. Of two on one key the first stays, as when Ceph fills its map.
    pub(super) fn constraints(&mut self, loose: bool) -> Option<Constraints> {
        let mut out = Constraints::new();
        let (key, first) = self.constraint(loose)?;
        out.insert(key, first);
        while let Some((key, c)) = self.attempt(|s| {
            s.spaces()?;
            s.constraint(loose)
        }) {
            out.entry(key).or_insert(c);
        }
        Some(out)
    }
}

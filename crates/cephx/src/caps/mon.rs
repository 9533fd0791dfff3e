//! Monitor capabilities: parser and checker. Source: src/mon/MonCap.cc.

use std::collections::BTreeMap;

use types::{AuthName, EntityAddr};

use super::CapError;
use super::mon_profile::profile_grants;
use super::rule::{Constraints, Network, admits_all, applies};
use super::scan::{SPACE_PLAIN, Scan};
use crate::entity_auth::CapsInfo;

pub(super) const R: u8 = 1 << 1;
pub(super) const W: u8 = 1 << 2;
pub(super) const X: u8 = 1 << 3;
pub(super) const RWX: u8 = R | W | X;
/// `*`: more than all bits, for it also opens the config-key store.
pub(super) const ANY: u8 = 0xff;

/// A parsed monitor capability.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MonCap {
    text: String,
    grants: Vec<MonGrant>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MonGrant {
    pub(super) on: MonOn,
    /// Meaningless for commands and profiles.
    pub(super) allow: u8,
    pub(super) network: Option<Network>,
    pub(super) fs_name: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum MonOn {
    Everything,
    Service(String),
    Profile(String),
    Command { prefix: String, args: Constraints },
}

/// An operation that an entity asks the monitor for.
#[derive(Debug, Clone, Copy)]
pub struct MonRequest<'a> {
    pub name: &'a AuthName,
    /// The service that the operation belongs to: `mon`, `osd`, `pg`, `mds`, `fs`, `auth`, `log`,
    /// `config-key`...
    pub service: &'a str,
    /// The command's prefix; empty when the operation is no command.
    pub command: &'a str,
    pub args: &'a BTreeMap<String, String>,
    pub read: bool,
    pub write: bool,
    pub exec: bool,
    pub addr: &'a EntityAddr,
}

impl MonCap {
    pub fn parse(text: &str) -> Result<Self, CapError> {
        let mut s = Scan::new(text, SPACE_PLAIN);
        match s.grants(&[' '], grant) {
            Some(grants) if s.rest().is_empty() => Ok(Self { text: text.to_owned(), grants }),
            _ => Err(CapError::Syntax {
                service: "mon",
                stopped_at: s.rest().to_owned(),
                text: text.to_owned(),
            }),
        }
    }

    pub fn allow_all() -> Self {
        Self { text: "allow *".to_owned(), grants: vec![MonGrant::on(MonOn::Everything, ANY)] }
    }

    /// The caps of a login. Source: Monitor::ms_handle_authentication.
    pub fn from_info(info: &CapsInfo) -> Result<Self, CapError> {
        if info.allow_all {
            return Ok(Self::allow_all());
        }
        Self::parse(&info.text().map_err(|_| CapError::NotText("mon"))?)
    }

    /// The text it was parsed from.
    pub fn text(&self) -> &str {
        &self.text
    }

    pub fn is_allow_all(&self) -> bool {
        self.grants.iter().any(MonGrant::is_unlimited)
    }

    /// Source: MonCap::is_capable. Bits of several grants add up.
    pub fn is_capable(&self, want: &MonRequest<'_>) -> bool {
        let mut allow = 0;
        for grant in self.grants.iter().filter(|g| applies(g.network.as_ref(), want.addr)) {
            if grant.is_allow_all() {
                return true;
            }
            allow |= grant.allowed(want);
            let has = |wanted: bool, bit: u8| !wanted || allow & bit != 0;
            if has(want.read, R) && has(want.write, W) && has(want.exec, X) {
                return true;
            }
        }
        false
    }

    /// The file systems that the caps are limited to; none means all. Source: MonCap::allowed_fs_names.
    pub fn allowed_fs_names(&self) -> Vec<String> {
        let names: Option<Vec<String>> = self.grants.iter().map(|g| g.fs_name.clone()).collect();
        names.unwrap_or_default()
    }

    /// Whether the caps allow any of `read`, `write` on a file system. Source: MonCap::fs_name_capable.
    pub fn fs_name_capable(&self, name: &AuthName, fs_name: &str, read: bool, write: bool) -> bool {
        let mask = if read { R } else { 0 } | if write { W } else { 0 };
        let fits = |g: &MonGrant| g.fs_name.as_deref().is_none_or(|n| n == fs_name) && g.allow & mask != 0;
        let of_fs = |g: &MonGrant| matches!(&g.on, MonOn::Service(s) if s == "fs" || s == "mds");
        self.grants.iter().any(|g| {
            let expanded = match &g.on {
                MonOn::Profile(profile) => profile_grants(profile, name),
                _ => Vec::new(),
            };
            g.is_allow_all() || fits(g) || expanded.iter().any(|p| of_fs(p) && fits(p))
        })
    }
}

impl MonGrant {
    pub(super) fn on(on: MonOn, allow: u8) -> Self {
        Self { on, allow, network: None, fs_name: None }
    }

    fn is_allow_all(&self) -> bool {
        self.allow == ANY && self.on == MonOn::Everything && self.fs_name.is_none()
    }

    /// The same without a limit to a network, for callers that check nothing else after this.
    fn is_unlimited(&self) -> bool {
        self.is_allow_all() && self.network.is_none()
    }

    /// The bits that this grant gives for a request. Source: MonCapGrant::get_allowed.
    fn allowed(&self, want: &MonRequest<'_>) -> u8 {
        match &self.on {
            MonOn::Profile(profile) => {
                profile_grants(profile, want.name).iter().fold(0, |acc, g| acc | g.allowed(want))
            }
            MonOn::Service(service) if service == want.service => self.allow,
            MonOn::Command { prefix, args } if prefix == want.command && admits_all(args, want.args) => RWX,
            // Blanket bits do not open the key store: that takes `allow *`, a service or a command grant.
            MonOn::Everything if want.service != "config-key" => self.allow,
            _ => 0,
        }
    }
}

fn rwx(s: &mut Scan<'_>) -> Option<u8> {
    s.rwx(ANY, [R, W, X])
}

fn grant(s: &mut Scan<'_>) -> Option<MonGrant> {
    s.spaces();
    let out = s
        .attempt(blanket)
        .or_else(|| s.attempt(profile))
        .or_else(|| s.attempt(service))
        .or_else(|| s.attempt(command))?;
    s.spaces();
    Some(out)
}

fn allow(s: &mut Scan<'_>) -> Option<()> {
    s.spaces();
    s.lit("allow")?;
    s.spaces()
}

fn blanket(s: &mut Scan<'_>) -> Option<MonGrant> {
    allow(s)?;
    let mut grant = MonGrant::on(MonOn::Everything, rwx(s)?);
    grant.network = s.network();
    grant.fs_name = s.attempt(|s| {
        s.word("fsname")?;
        s.equals_or_spaces()?;
        s.take(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
    });
    Some(grant)
}

fn profile(s: &mut Scan<'_>) -> Option<MonGrant> {
    s.spaces();
    s.attempt(|s| {
        s.lit("allow")?;
        s.spaces()
    });
    s.lit("profile")?;
    s.equals_or_spaces()?;
    let mut grant = MonGrant::on(MonOn::Profile(s.string()?), 0);
    grant.network = s.network();
    Some(grant)
}

fn service(s: &mut Scan<'_>) -> Option<MonGrant> {
    allow(s)?;
    s.lit("service")?;
    s.equals_or_spaces()?;
    let service = s.string()?;
    s.spaces()?;
    let mut grant = MonGrant::on(MonOn::Service(service), rwx(s)?);
    grant.network = s.network();
    Some(grant)
}

fn command(s: &mut Scan<'_>) -> Option<MonGrant> {
    allow(s)?;
    s.lit("command")?;
    s.equals_or_spaces()?;
    let prefix = s.string()?;
    let args = s.attempt(|s| {
        s.word("with")?;
        s.spaces()?;
        s.constraints(false)
    });
    let args = args.unwrap_or_default();
    let mut grant = MonGrant::on(MonOn::Command { prefix, args }, 0);
    grant.network = s.network();
    Some(grant)
}

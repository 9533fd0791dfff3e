//! Manager capabilities: parser and checker. Source: src/mgr/MgrCap.cc.

use std::collections::BTreeMap;

use types::EntityAddr;

use super::CapError;
use super::rule::{Constraints, Network, admits_all, applies};
use super::scan::{SPACE_PLAIN, Scan};
use crate::entity_auth::CapsInfo;

const R: u8 = 1 << 1;
const W: u8 = 1 << 2;
const X: u8 = 1 << 3;
const ANY: u8 = 0xff;

/// A parsed manager capability. The default allows nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MgrCap {
    text: String,
    grants: Vec<Grant>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Grant {
    on: On,
    args: Constraints,
    allow: u8,
    network: Option<Network>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum On {
    Everything,
    Service(String),
    Module(String),
    Command(String),
    /// What a profile stands for.
    Profile(Vec<Grant>),
}

/// An operation that an entity asks the manager for.
#[derive(Debug, Clone, Copy)]
pub struct MgrRequest<'a> {
    pub service: &'a str,
    pub module: &'a str,
    /// The command's prefix; empty when the operation is no command.
    pub command: &'a str,
    pub args: &'a BTreeMap<String, String>,
    pub read: bool,
    pub write: bool,
    pub exec: bool,
    pub addr: &'a EntityAddr,
}

impl MgrCap {
    pub fn parse(text: &str) -> Result<Self, CapError> {
        let mut s = Scan::new(text, SPACE_PLAIN);
        match s.grants(&[' '], grant) {
            Some(grants) if s.rest().is_empty() => {
                // Ceph strings the profiles' problems together.
                let problems: String = grants.iter().filter_map(|g| g.as_ref().err().cloned()).collect();
                if !problems.is_empty() {
                    return Err(CapError::MgrProfile(problems));
                }
                Ok(Self { text: text.to_owned(), grants: grants.into_iter().flatten().collect() })
            }
            _ => Err(CapError::Syntax {
                service: "mgr",
                stopped_at: s.rest().to_owned(),
                text: text.to_owned(),
            }),
        }
    }

    pub fn allow_all() -> Self {
        Self { text: "allow *".to_owned(), grants: vec![Grant::on(On::Everything, ANY)] }
    }

    /// The caps of a ticket; a ticket without any allows nothing.
    /// Source: DaemonServer::ms_handle_authentication.
    pub fn from_info(info: &CapsInfo) -> Result<Self, CapError> {
        if info.allow_all {
            return Ok(Self::allow_all());
        }
        let text = info.text().map_err(|_| CapError::NotText("mgr"))?;
        if text.is_empty() { Ok(Self::default()) } else { Self::parse(&text) }
    }

    /// The text it was parsed from.
    pub fn text(&self) -> &str {
        &self.text
    }

    pub fn is_allow_all(&self) -> bool {
        self.grants.iter().any(Grant::is_allow_all)
    }

    /// Source: MgrCap::is_capable. Bits of several grants add up.
    pub fn is_capable(&self, want: &MgrRequest<'_>) -> bool {
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
}

impl Grant {
    fn on(on: On, allow: u8) -> Self {
        Self { on, args: Constraints::new(), allow, network: None }
    }

    fn is_allow_all(&self) -> bool {
        self.allow == ANY && self.on == On::Everything
    }

    /// Source: MgrCapGrant::get_allowed.
    fn allowed(&self, want: &MgrRequest<'_>) -> u8 {
        match &self.on {
            On::Everything => self.allow,
            On::Profile(grants) => grants.iter().fold(0, |acc, g| acc | g.allowed(want)),
            On::Service(service) if service == want.service => self.allow,
            // A command has its own argument checks; a module's count only for what is no command.
            On::Module(module)
                if module == want.module
                    && (!want.command.is_empty() || admits_all(&self.args, want.args)) =>
            {
                self.allow
            }
            On::Command(prefix) if prefix == want.command && admits_all(&self.args, want.args) => ANY,
            _ => 0,
        }
    }
}

/// A grant, or the problem with its profile.
type Parsed = Result<Grant, String>;

fn grant(s: &mut Scan<'_>) -> Option<Parsed> {
    s.spaces();
    let out = s
        .attempt(blanket)
        .map(Ok)
        .or_else(|| s.attempt(profile))
        .or_else(|| s.attempt(service).map(Ok))
        .or_else(|| s.attempt(module).map(Ok))
        .or_else(|| s.attempt(command).map(Ok))?;
    s.spaces();
    Some(out)
}

fn allow(s: &mut Scan<'_>) -> Option<()> {
    s.spaces();
    s.lit("allow")?;
    s.spaces()
}

fn rwx(s: &mut Scan<'_>) -> Option<u8> {
    s.rwx(ANY, [R, W, X])
}

fn blanket(s: &mut Scan<'_>) -> Option<Grant> {
    allow(s)?;
    let grant = Grant::on(On::Everything, rwx(s)?);
    Some(Grant { network: s.network(), ..grant })
}

fn profile(s: &mut Scan<'_>) -> Option<Parsed> {
    s.spaces();
    s.attempt(|s| {
        s.lit("allow")?;
        s.spaces()
    });
    s.lit("profile")?;
    s.equals_or_spaces()?;
    let name = s.string()?;
    let args = s.attempt(|s| {
        s.spaces()?;
        s.constraints(true)
    });
    let network = s.network();
    let grants = profile_grants(&name, args.unwrap_or_default());
    Some(grants.map(|grants| Grant { network, ..Grant::on(On::Profile(grants), 0) }))
}

fn service(s: &mut Scan<'_>) -> Option<Grant> {
    allow(s)?;
    s.lit("service")?;
    s.equals_or_spaces()?;
    let service = s.string()?;
    s.spaces()?;
    let grant = Grant::on(On::Service(service), rwx(s)?);
    Some(Grant { network: s.network(), ..grant })
}

fn with_args(s: &mut Scan<'_>) -> Constraints {
    s.attempt(|s| {
        s.word("with")?;
        s.spaces()?;
        s.constraints(true)
    })
    .unwrap_or_default()
}

fn module(s: &mut Scan<'_>) -> Option<Grant> {
    allow(s)?;
    s.lit("module")?;
    s.equals_or_spaces()?;
    let module = s.string()?;
    let args = with_args(s);
    s.spaces()?;
    let grant = Grant::on(On::Module(module), rwx(s)?);
    Some(Grant { args, network: s.network(), ..grant })
}

fn command(s: &mut Scan<'_>) -> Option<Grant> {
    allow(s)?;
    s.lit("command")?;
    s.equals_or_spaces()?;
    let prefix = s.string()?;
    let args = with_args(s);
    Some(Grant { args, network: s.network(), ..Grant::on(On::Command(prefix), 0) })
}

/// Source: MgrCapGrant::expand_profile.
fn profile_grants(name: &str, args: Constraints) -> Result<Vec<Grant>, String> {
    Ok(match name {
        "read-only" => vec![Grant::on(On::Everything, R)],
        "read-write" => vec![Grant::on(On::Everything, R | W)],
        "crash" => vec![Grant::on(On::Command("crash post".to_owned()), 0)],
        // Accepted, and without any right so far.
        "osd" | "mds" => Vec::new(),
        "rbd" | "rbd-read-only" => {
            if let Some(key) = args.keys().find(|k| !matches!(k.as_str(), "pool" | "namespace")) {
                return Err(format!("profile '{name}' does not recognize key '{key}'"));
            }
            let allow = if name == "rbd" { R | W } else { R };
            vec![Grant { args, ..Grant::on(On::Module("rbd_support".to_owned()), allow) }]
        }
        _ => return Err(format!("unrecognized profile '{name}'")),
    })
}

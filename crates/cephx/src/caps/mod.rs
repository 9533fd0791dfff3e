//! Capability strings: what an entity may do at each service, parsed from the text that the auth database
//! keeps.
//!
//! The grammars are Ceph's, with its order of alternatives: text that Ceph refuses is refused here, at the
//! same place and with the same words.

mod ere;
mod mds;
mod mgr;
mod mon;
mod mon_profile;
mod osd;
mod rule;
mod scan;

pub use mds::{MdsCap, MdsGrant, MdsPerms};
pub use mgr::{MgrCap, MgrRequest};
pub use mon::{MonCap, MonRequest};
pub use osd::{AppMetadata, ClassUse, OsdCap, OsdRequest};

/// A capability string was not accepted; its text is what `ceph auth` answers with EINVAL.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CapError {
    #[error("{service} capability parse failed, stopped at {} of '{text}'", stopped(.service, .stopped_at))]
    Syntax { service: &'static str, stopped_at: String, text: String },
    #[error("mgr capability parse failed during profile evaluation: {0}")]
    MgrProfile(String),
    #[error("unknown cap type '{0}'")]
    UnknownService(String),
    /// The caps of a ticket are no text.
    #[error("{0} caps are not text")]
    NotText(&'static str),
}

/// The monitor's and the manager's parsers name the end; the others quote the empty rest.
fn stopped(service: &str, rest: &str) -> String {
    match (service, rest) {
        ("mon" | "mgr", "") => "end".to_owned(),
        _ => format!("'{rest}'"),
    }
}

/// Checks a capability string for a service, as `ceph auth` does before it stores one.
///
/// Source: AuthMonitor::valid_caps in src/mon/AuthMonitor.cc.
pub fn validate_caps(service: &str, text: &str) -> Result<(), CapError> {
    match service {
        "mon" => MonCap::parse(text).map(drop),
        "osd" => OsdCap::parse(text).map(drop),
        "mgr" => MgrCap::parse(text).map(drop),
        "mds" => MdsCap::parse(text).map(drop),
        other => Err(CapError::UnknownService(other.to_owned())),
    }
}

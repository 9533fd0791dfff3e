//! Roles: what each lets its users do, by scope. The system's own ones can be neither changed nor removed.
//!
//! Source: src/pybind/mgr/dashboard/security.py, services/access_control.py (16.2).

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

/// What there is to be allowed.
pub const SCOPES: [&str; 17] = [
    "cephfs",
    "config-opt",
    "dashboard-settings",
    "grafana",
    "hosts",
    "iscsi",
    "log",
    "manager",
    "monitor",
    "nfs-ganesha",
    "osd",
    "pool",
    "prometheus",
    "rbd-image",
    "rbd-mirroring",
    "rgw",
    "user",
];

const READ: &[&str] = &["read"];
const ALL: &[&str] = &["create", "delete", "read", "update"];

/// A role.
#[derive(Debug, Clone, PartialEq)]
pub struct Role {
    pub name: String,
    pub description: Option<String>,
    /// Permissions by scope.
    pub scopes: BTreeMap<String, Vec<String>>,
}

/// Name, description, and in which scopes it may do all and only read.
const SYSTEM: [(&str, &str, &[&str], &[&str]); 8] = [
    ("administrator", "Administrator", &SCOPES, &[]),
    ("block-manager", "Block Manager", &["rbd-image", "iscsi", "rbd-mirroring"], &["pool", "grafana"]),
    ("cephfs-manager", "CephFS Manager", &["cephfs"], &["grafana"]),
    (
        "cluster-manager",
        "Cluster Manager",
        &["hosts", "osd", "monitor", "manager", "config-opt", "log"],
        &["grafana"],
    ),
    ("ganesha-manager", "NFS Ganesha Manager", &["nfs-ganesha", "cephfs", "rgw"], &["grafana"]),
    ("pool-manager", "Pool Manager", &["pool"], &["grafana"]),
    ("read-only", "Read-Only", &[], &SCOPES),
    ("rgw-manager", "RGW Manager", &["rgw"], &["grafana"]),
];

/// The names of the system's own.
pub fn system_names() -> impl Iterator<Item = &'static str> {
    SYSTEM.iter().map(|(name, ..)| *name)
}

/// One of the system's own.
pub fn system_role(name: &str) -> Option<Role> {
    let (name, description, all, read) = SYSTEM.iter().find(|(n, ..)| *n == name)?;
    let entry = |scope: &&str, may: &[&str]| {
        ((*scope).to_owned(), may.iter().map(|p| (*p).to_owned()).collect::<Vec<_>>())
    };
    // Whoever may only look is not shown how to get in.
    let hidden = |scope: &&&str| *name == "read-only" && **scope == "dashboard-settings";
    let read = read.iter().filter(|s| !hidden(s)).map(|s| entry(s, READ));
    let scopes = all.iter().map(|s| entry(s, ALL)).chain(read).collect();
    Some(Role { name: (*name).to_owned(), description: Some((*description).to_owned()), scopes })
}

impl Role {
    pub(super) fn parse(value: &Value) -> Option<Self> {
        let scopes = value.get("scopes_permissions")?.as_object()?.iter().map(|(scope, may)| {
            let may = may.as_array()?.iter().map(|p| p.as_str().map(ToOwned::to_owned));
            Some((scope.clone(), may.collect::<Option<Vec<_>>>()?))
        });
        Some(Self {
            name: value.get("name")?.as_str()?.to_owned(),
            description: super::text_or_null(value.get("description")?)?,
            scopes: scopes.collect::<Option<_>>()?,
        })
    }

    pub fn value(&self) -> Value {
        let scopes: Map<String, Value> = self.scopes.iter().map(|(s, p)| (s.clone(), json!(p))).collect();
        json!({ "name": self.name, "description": self.description, "scopes_permissions": scopes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_systems_roles_are_cephs() {
        let may = |role: &str, scope: &str| system_role(role).and_then(|r| r.scopes.get(scope).cloned());
        assert_eq!(may("read-only", "osd"), Some(vec!["read".to_owned()]));
        assert_eq!(may("read-only", "dashboard-settings"), None);
        assert_eq!(may("administrator", "dashboard-settings").map(|p| p.len()), Some(4));
        assert_eq!(may("pool-manager", "osd"), None);
        assert!(system_role("operator").is_none() && system_role("rgw-manager").is_some());
    }
}

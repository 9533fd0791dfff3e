//! The monitor's built-in profiles, as the grants that they stand for.
//!
//! Source: MonCapGrant::expand_profile in src/mon/MonCap.cc.

use types::AuthName;

use super::mon::{MonGrant, MonOn, R, RWX, W};
use super::rule::{Constraint, Constraints};

/// One client instance: an address with its nonce. A nonce of 0 stands for every client of the host. Unlike
/// in Ceph it is refused: a client that breaks a lock names the one instance that holds it.
const ADDR_WITH_NONCE: &str = "^[^/]+/[1-9][0-9]*$";
/// What a bootstrap key may give for a service that its profile says nothing of. Ceph lets it give anything
/// there.
const HARMLESS: &[&str] = &["profile rbd", "profile rbd-mirror", "profile mds", "allow profile mds"];

fn service(name: &str, allow: u8) -> MonGrant {
    MonGrant::on(MonOn::Service(name.to_owned()), allow)
}

fn command(prefix: &str) -> MonGrant {
    command_with(prefix, [])
}

fn command_with<const N: usize>(prefix: &str, args: [(&str, Constraint); N]) -> MonGrant {
    let args: Constraints = args.into_iter().map(|(key, c)| (key.to_owned(), c)).collect();
    MonGrant::on(MonOn::Command { prefix: prefix.to_owned(), args }, 0)
}

fn equal(value: &str) -> Constraint {
    Constraint::Equal(value.to_owned())
}

fn prefix(value: &str) -> Constraint {
    Constraint::Prefix(value.to_owned())
}

fn regex(value: &str) -> Constraint {
    Constraint::Regex(value.to_owned())
}

/// The grants of a profile for an entity; an unknown profile grants nothing.
pub(super) fn profile_grants(profile: &str, name: &AuthName) -> Vec<MonGrant> {
    let mut grants = match profile {
        "read-only" => return vec![MonGrant::on(MonOn::Everything, R)],
        "read-write" => return vec![MonGrant::on(MonOn::Everything, R | W)],
        "mon" | "osd" | "mds" | "mgr" => daemon(profile, name),
        "bootstrap-osd"
        | "bootstrap-mds"
        | "bootstrap-mgr"
        | "bootstrap-rgw"
        | "bootstrap-rbd"
        | "bootstrap-rbd-mirror" => bootstrap(profile),
        "fs-client" => {
            vec![service("mon", R), service("mds", R), service("osd", R), service("pg", R)]
        }
        "simple-rados-client" => read_maps(),
        "simple-rados-client-with-blocklist" => [read_maps(), blocklist()].concat(),
        "crash" => vec![service("mon", R)],
        "role-definer" => vec![service("mon", R), service("auth", RWX)],
        _ => Vec::new(),
    };
    // Every profile whose name begins so is one of RBD's.
    if profile.starts_with("rbd") {
        grants.extend([read_maps(), blocklist()].concat());
    }
    match profile {
        "rbd-mirror" => grants.push(command_with("config-key get", [("key", prefix("rbd/mirror/"))])),
        "rbd-mirror-peer" => {
            grants.push(command_with("config-key get", [("key", regex("rbd/mirror/[^/]+"))]));
            grants.push(command_with("config-key set", [("key", prefix("rbd/mirror/peer/"))]));
        }
        _ => {}
    }
    grants
}

fn read_maps() -> Vec<MonGrant> {
    vec![service("mon", R), service("osd", R), service("pg", R)]
}

/// Puts a dead holder of an exclusive lock on the blocklist, by the command's present name and by its former.
fn blocklist() -> Vec<MonGrant> {
    let addr = || ("addr", regex(ADDR_WITH_NONCE));
    vec![
        command_with("osd blocklist", [("blocklistop", equal("add")), addr()]),
        command_with("osd blacklist", [("blacklistop", equal("add")), addr()]),
    ]
}

fn daemon(profile: &str, name: &AuthName) -> Vec<MonGrant> {
    let mut grants = match profile {
        "mon" => vec![service("mon", RWX), service("log", RWX)],
        "osd" => vec![service("osd", RWX), service("mon", R), service("pg", R | W), service("log", W)],
        "mds" => vec![
            service("mds", RWX),
            service("mon", R),
            service("osd", R),
            command("osd pool rmsnap"),
            command("osd blocklist"),
            command("osd blacklist"),
            service("log", W),
        ],
        _ => vec![
            service("mgr", RWX),
            service("log", R | W),
            service("mon", R | W),
            service("mds", R | W),
            service("fs", R | W),
            service("osd", R | W),
            service("auth", RWX),
            service("config-key", R | W),
            service("config", R | W),
            command("auth get-or-create"),
            command("auth caps"),
            command("auth rm"),
            command("smart"),
        ],
    };
    // Each daemon has a corner of the key store to itself.
    let own = format!("daemon-private/{name}/");
    for op in ["get", "put", "set", "exists", "delete"] {
        grants.push(command_with(&format!("config-key {op}"), [("key", prefix(&own))]));
    }
    grants
}

/// Keys that may do no more than create one kind of daemon or client, with just these caps.
fn bootstrap(profile: &str) -> Vec<MonGrant> {
    const CREATE: &str = "auth get-or-create";
    let rbd = |caps_mon: &str| {
        // Ceph has an expression for the OSD's part, which also fits `profile rbd pool=a; allow *`.
        let args = [
            ("entity", prefix("client.")),
            ("caps_mon", equal(caps_mon)),
            ("caps_osd", Constraint::OsdProfiles("rbd")),
            ("caps_mgr", Constraint::NoneOr(HARMLESS)),
            ("caps_mds", Constraint::NoneOr(&[])),
        ];
        vec![service("mon", R), command_with(CREATE, args)]
    };
    let mut grants = vec![service("mon", R), service("osd", R), command("mon getmap")];
    match profile {
        "bootstrap-rbd" => return rbd("profile rbd"),
        "bootstrap-rbd-mirror" => return rbd("profile rbd-mirror"),
        "bootstrap-osd" => grants.extend([command("osd new"), command("osd purge-new")]),
        "bootstrap-mds" => grants.push(command_with(
            CREATE,
            [
                ("entity", prefix("mds.")),
                ("caps_mon", equal("allow profile mds")),
                ("caps_osd", equal("allow rwx")),
                ("caps_mds", equal("allow")),
                ("caps_mgr", Constraint::NoneOr(HARMLESS)),
            ],
        )),
        "bootstrap-mgr" => grants.push(command_with(
            CREATE,
            [("entity", prefix("mgr.")), ("caps_mon", equal("allow profile mgr"))],
        )),
        _ => grants.push(command_with(
            CREATE,
            [
                ("entity", prefix("client.rgw.")),
                ("caps_mon", equal("allow rw")),
                ("caps_osd", equal("allow rwx")),
                ("caps_mgr", Constraint::NoneOr(HARMLESS)),
                ("caps_mds", Constraint::NoneOr(&[])),
            ],
        )),
    }
    grants
}

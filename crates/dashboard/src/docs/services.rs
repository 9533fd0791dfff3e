//! Which daemons there are, where, and how each is: what the page shows of hosts and services.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::{integer, list, text};

/// Answers of the monitors to the commands of these names.
pub struct Facts<'a> {
    pub quorum: &'a Value,
    pub mgr_dump: &'a Value,
    pub osd_dump: &'a Value,
    pub fs_dump: &'a Value,
    pub services: &'a Value,
    pub mon_metadata: &'a Value,
    pub mgr_metadata: &'a Value,
    pub osd_metadata: &'a Value,
    pub mds_metadata: &'a Value,
    /// Slow requests by daemon, and how many seconds the oldest waits.
    pub slow: &'a BTreeMap<String, (u32, u32)>,
}

struct Daemon {
    kind: &'static str,
    id: String,
    addr: String,
    state: String,
    ok: bool,
    note: String,
}

/// The document.
pub fn services(f: &Facts<'_>) -> Value {
    let known = [
        (mons(f), f.mon_metadata, "name"),
        (mgrs(f), f.mgr_metadata, "name"),
        (osds(f), f.osd_metadata, "id"),
        (mdss(f), f.mds_metadata, "name"),
    ];
    let mut all: Vec<Value> = Vec::new();
    for (daemons, metadata, by) in known {
        let about: BTreeMap<String, &Value> = list(metadata, "").iter().map(|m| (name(m, by), m)).collect();
        let none = &Value::Null;
        all.extend(daemons.into_iter().map(|d| value(about.get(&d.id).copied().unwrap_or(none), d)));
    }
    all.extend(registered(f.services));
    json!({ "daemons": all, "urls": f.mgr_dump.get("services") })
}

/// Hosts that run a daemon.
pub fn hosts(services: &Value) -> usize {
    let hosts = list(services, "/daemons").iter().map(|d| text(d, "/host"));
    hosts.filter(|host| !host.is_empty()).collect::<BTreeSet<_>>().len()
}

fn name(of: &Value, by: &str) -> String {
    of.get(by).map(|v| v.as_str().map_or_else(|| v.to_string(), ToOwned::to_owned)).unwrap_or_default()
}

fn value(about: &Value, d: Daemon) -> Value {
    json!({
        "kind": d.kind,
        "id": d.id,
        "host": text(about, "/hostname"),
        "addr": d.addr,
        "version": text(about, "/ceph_version_short"),
        "state": d.state,
        "ok": d.ok,
        "note": d.note,
    })
}

fn mons(f: &Facts<'_>) -> Vec<Daemon> {
    let in_quorum: Vec<&str> = list(f.quorum, "/quorum_names").iter().filter_map(Value::as_str).collect();
    let one = |m: &Value| {
        let id = text(m, "/name");
        let ok = in_quorum.contains(&id);
        let leads = ok && id == text(f.quorum, "/quorum_leader_name");
        Daemon {
            kind: "mon",
            id: id.to_owned(),
            addr: address(m.pointer("/public_addrs")),
            state: if ok { "in quorum" } else { "not in quorum" }.to_owned(),
            ok,
            note: if leads { "leads" } else { "" }.to_owned(),
        }
    };
    list(f.quorum, "/monmap/mons").iter().map(one).collect()
}

fn mgrs(f: &Facts<'_>) -> Vec<Daemon> {
    let one = |id: &str, addr: String, state: &str, ok: bool| Daemon {
        kind: "mgr",
        id: id.to_owned(),
        addr,
        state: state.to_owned(),
        ok,
        note: String::new(),
    };
    let active = text(f.mgr_dump, "/active_name");
    let serves = f.mgr_dump.get("available").and_then(Value::as_bool).unwrap_or_default();
    let state = if serves { "active" } else { "active, starting" };
    let first = (!active.is_empty())
        .then(|| one(active, address(f.mgr_dump.pointer("/active_addrs")), state, serves));
    let others = list(f.mgr_dump, "/standbys").iter();
    first.into_iter().chain(others.map(|s| one(text(s, "/name"), String::new(), "stands by", true))).collect()
}

fn osds(f: &Facts<'_>) -> Vec<Daemon> {
    let one = |o: &Value| {
        let (up, is_in) = (integer(o, "/up") == 1, integer(o, "/in") == 1);
        let id = integer(o, "/osd").to_string();
        let slow = f.slow.get(&format!("osd.{id}"));
        let note = slow.map(|(n, age)| format!("{n} slow requests, the oldest waits for {age} s"));
        Daemon {
            kind: "osd",
            addr: address(o.pointer("/public_addrs")),
            state: format!("{}, {}", if up { "up" } else { "down" }, if is_in { "in" } else { "out" }),
            ok: up,
            note: note.unwrap_or_default(),
            id,
        }
    };
    list(f.osd_dump, "/osds").iter().map(one).collect()
}

fn mdss(f: &Facts<'_>) -> Vec<Daemon> {
    let one = |info: &Value, note: String| {
        let state = text(info, "/state").trim_start_matches("up:");
        Daemon {
            kind: "mds",
            id: text(info, "/name").to_owned(),
            addr: address(info.pointer("/addrs")),
            state: if state == "standby" { "stands by" } else { state }.to_owned(),
            ok: !text(info, "/state").starts_with("down:"),
            note,
        }
    };
    let mut out: Vec<Daemon> = Vec::new();
    for fs in list(f.fs_dump, "/filesystems") {
        let of = text(fs, "/mdsmap/fs_name");
        for info in fs.pointer("/mdsmap/info").and_then(Value::as_object).into_iter().flat_map(Map::values) {
            out.push(one(info, format!("rank {} of {of}", integer(info, "/rank"))));
        }
    }
    out.extend(list(f.fs_dump, "/standbys").iter().map(|info| one(info, String::new())));
    out
}

/// Gateways and whatever else has registered with the manager; they go with their session.
fn registered(services: &Value) -> Vec<Value> {
    let mut out = Vec::new();
    for (kind, service) in services.get("services").and_then(Value::as_object).into_iter().flatten() {
        let daemons = service.get("daemons").and_then(Value::as_object).into_iter().flatten();
        for (id, d) in daemons.filter(|(id, d)| *id != "summary" && d.is_object()) {
            let about = d.get("metadata").unwrap_or(&Value::Null);
            // A gateway of object storage registers by number, and says its name.
            let own = text(about, "/id");
            out.push(json!({
                "kind": kind,
                "id": if own.is_empty() { id.as_str() } else { own },
                "host": text(about, "/hostname"),
                "addr": text(d, "/addr"),
                "version": text(about, "/ceph_version_short"),
                "state": "registered",
                "ok": true,
                "note": match text(about, "/zone_name") {
                    "" => String::new(),
                    zone => format!("zone {zone}"),
                },
            }));
        }
    }
    out
}

/// The newer protocol's address of a list of them.
fn address(addrs: Option<&Value>) -> String {
    let all = addrs.and_then(|a| a.get("addrvec")).and_then(Value::as_array).map(Vec::as_slice);
    let all = all.unwrap_or_default();
    let best = all.iter().find(|a| text(a, "/type") == "v2").or(all.first());
    best.map(|a| format!("{}:{}", text(a, "/type"), text(a, "/addr"))).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn daemons_of_every_kind_are_told_with_where_they_run() {
        let addrs = |port: u32| json!({ "addrvec": [{ "type": "v1", "addr": "h:1", "nonce": 0 }, { "type": "v2", "addr": format!("h:{port}"), "nonce": 0 }] });
        let quorum = json!({
            "quorum_names": ["a"], "quorum_leader_name": "a",
            "monmap": { "mons": [{ "name": "a", "public_addrs": addrs(1) }, { "name": "b", "public_addrs": addrs(2) }] },
        });
        let mgr_dump = json!({
            "active_name": "x", "available": true, "active_addrs": addrs(3), "standbys": [{ "name": "y" }],
            "services": { "dashboard": "http://h:8080/" },
        });
        let osd_dump = json!({ "osds": [{ "osd": 0, "up": 0, "in": 1, "public_addrs": addrs(4) }] });
        let osd_metadata = json!([{ "id": 0, "hostname": "store-1", "ceph_version_short": "v" }]);
        let services_json = json!({ "services": { "rgw": { "daemons": {
            "summary": "", "4123": { "addr": "h:0/1", "metadata": { "id": "s3", "hostname": "gate-1", "zone_name": "z" } },
        } } } });
        let slow = [("osd.0".to_owned(), (3, 40))].into();
        let none = Value::Null;
        let f = Facts {
            quorum: &quorum,
            mgr_dump: &mgr_dump,
            osd_dump: &osd_dump,
            fs_dump: &none,
            services: &services_json,
            mon_metadata: &none,
            mgr_metadata: &none,
            osd_metadata: &osd_metadata,
            mds_metadata: &none,
            slow: &slow,
        };
        let all = services(&f);
        let told: Vec<String> = list(&all, "/daemons")
            .iter()
            .map(|d| {
                format!(
                    "{}.{} {} {} {}",
                    text(d, "/kind"),
                    text(d, "/id"),
                    text(d, "/state"),
                    text(d, "/addr"),
                    d["ok"]
                )
            })
            .collect();
        assert_eq!(
            told,
            [
                "mon.a in quorum v2:h:1 true",
                "mon.b not in quorum v2:h:2 false",
                "mgr.x active v2:h:3 true",
                "mgr.y stands by  true",
                "osd.0 down, in v2:h:4 false",
                "rgw.s3 registered h:0/1 true",
            ]
        );
        assert_eq!(hosts(&all), 2);
        assert_eq!(all["daemons"][4]["note"], "3 slow requests, the oldest waits for 40 s");
    }
}

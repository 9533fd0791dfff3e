//! What parsed capabilities allow and refuse.

use std::collections::BTreeMap;

use cephx::{
    AppMetadata, CapsInfo, ClassUse, MdsCap, MgrCap, MgrRequest, MonCap, MonRequest, OsdCap, OsdRequest,
};
use types::{AddrKind, AuthName, EntityAddr};

fn addr(text: &str) -> EntityAddr {
    EntityAddr::parse(text, AddrKind::Msgr2).expect("an address")
}

fn args(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
}

/// Whether `caps` let osd.3 at 10.1.2.3 do `perms` at `service` (or run `command`).
fn mon(caps: &str, service: &str, command: &str, pairs: &[(&str, &str)], perms: &str) -> bool {
    let name = AuthName::parse("osd.3").expect("a name");
    MonCap::parse(caps).expect(caps).is_capable(&MonRequest {
        name: &name,
        service,
        command,
        args: &args(pairs),
        read: perms.contains('r'),
        write: perms.contains('w'),
        exec: perms.contains('x'),
        addr: &addr("v2:10.1.2.3:0/9"),
    })
}

#[test]
fn monitor_blanket_and_service_grants() {
    assert!(mon("allow *", "auth", "", &[], "rwx"));
    assert!(mon("allow r", "osd", "", &[], "r"));
    assert!(!mon("allow r", "osd", "", &[], "w"));
    assert!(!mon("allow rw", "auth", "", &[], "rx"));
    assert!(mon("allow rw, allow service auth rx", "auth", "", &[], "rx"));
    assert!(mon("allow r, allow w, allow x", "mon", "", &[], "rwx"), "bits of grants add up");
    assert!(mon("allow service osd rw", "osd", "", &[], "rw"));
    assert!(!mon("allow service osd rw", "mon", "", &[], "r"));
    // The key store opens to `*`, to its service and to command grants alone.
    assert!(!mon("allow rwx", "config-key", "", &[], "r"));
    assert!(mon("allow *", "config-key", "", &[], "rwx"));
    assert!(mon("allow service config-key r", "config-key", "", &[], "r"));
}

#[test]
fn monitor_networks_limit_grants() {
    assert!(mon("allow r network 10.0.0.0/8", "mon", "", &[], "r"));
    assert!(mon("allow r network 10.1.2.3/32", "mon", "", &[], "r"));
    assert!(mon("allow r network 0.0.0.0/0", "mon", "", &[], "r"));
    for elsewhere in ["11.0.0.0/8", "10.1.2.4/32", "10.1.2.3", "::/0", "10.0.0.0/"] {
        assert!(!mon(&format!("allow * network {elsewhere}"), "mon", "", &[], "r"), "{elsewhere}");
    }
}

#[test]
fn monitor_command_grants_check_arguments() {
    let caps = "allow command \"auth get\" with entity prefix client. kind=a id regex \"x[0-9]+\"";
    let good = [("entity", "client.x"), ("kind", "a"), ("id", "x12"), ("more", "z")];
    assert!(mon(caps, "auth", "auth get", &good, "rwx"));
    for (key, bad) in [("entity", "osd.1"), ("kind", "ab"), ("id", "x12y")] {
        let mut changed = good;
        for pair in changed.iter_mut().filter(|p| p.0 == key) {
            pair.1 = bad;
        }
        assert!(!mon(caps, "auth", "auth get", &changed, "r"), "{key}={bad}");
    }
    assert!(!mon(caps, "auth", "auth get", &good[..2], "r"), "an argument is missing");
    assert!(!mon(caps, "auth", "auth get-key", &good, "r"));
}

#[test]
fn monitor_profiles() {
    let own = [("key", "daemon-private/osd.3/x")];
    let others = [("key", "daemon-private/osd.33/x")];
    assert!(mon("allow profile osd", "osd", "", &[], "rwx"));
    assert!(mon("allow profile osd", "pg", "", &[], "rw"));
    assert!(mon("allow profile osd", "log", "", &[], "w"));
    assert!(!mon("allow profile osd", "mon", "", &[], "w"));
    assert!(!mon("allow profile osd", "auth", "", &[], "r"));
    assert!(mon("allow profile osd", "config-key", "config-key set", &own, "rw"));
    assert!(!mon("allow profile osd", "config-key", "config-key set", &others, "rw"));
    assert!(mon("profile mgr", "config-key", "", &[], "rw"));
    assert!(mon("profile mgr", "auth", "auth caps", &[], "rwx"));
    assert!(mon("profile read-only", "osd", "", &[], "r") && !mon("profile read-only", "osd", "", &[], "w"));
    assert!(
        mon("profile read-write", "osd", "", &[], "rw") && !mon("profile read-write", "auth", "", &[], "x")
    );
    assert!(!mon("profile nosuch", "mon", "", &[], "r"));
    assert!(mon("profile role-definer", "auth", "", &[], "rwx"));
    assert!(!mon("profile role-definer", "osd", "", &[], "r"));
    assert!(mon("profile crash", "mon", "", &[], "r") && !mon("profile crash", "osd", "", &[], "r"));
    for name in ["rbd", "rbd-read-only", "rbd-mirror", "simple-rados-client"] {
        let caps = format!("profile {name}");
        assert!(mon(&caps, "osd", "", &[], "r") && !mon(&caps, "osd", "", &[], "w"), "{name}");
    }
    let shut_out = |addr| [("blocklistop", "add"), ("addr", addr)];
    assert!(mon("profile rbd", "osd", "osd blocklist", &shut_out("10.0.0.1:0/77"), "rw"));
    for whole_host in ["10.0.0.1:0", "10.0.0.1:0/0", "10.0.0.1:0/00", "10.0.0.1/0"] {
        assert!(!mon("profile rbd", "osd", "osd blocklist", &shut_out(whole_host), "rw"), "{whole_host}");
    }
    assert!(mon("profile rbd-mirror", "config-key", "config-key get", &[("key", "rbd/mirror/a/b")], "r"));
    assert!(mon("profile rbd-mirror-peer", "config-key", "config-key get", &[("key", "rbd/mirror/a")], "r"));
    assert!(!mon(
        "profile rbd-mirror-peer",
        "config-key",
        "config-key get",
        &[("key", "rbd/mirror/a/b")],
        "r"
    ));
}

#[test]
fn bootstrap_keys_create_one_kind_of_daemon() {
    let create = |entity, osd| [("entity", entity), ("caps_mon", "profile rbd"), ("caps_osd", osd)];
    let caps = "allow profile bootstrap-rbd";
    let allowed = |entity, osd| mon(caps, "auth", "auth get-or-create", &create(entity, osd), "rwx");
    assert!(allowed("client.x", "profile rbd pool=a"));
    assert!(allowed("client.x", "profile rbd pool=a, profile rbd-read-only pool=b"));
    assert!(!allowed("client.x", "allow *"));
    assert!(!allowed("client.x", "profile rbd pool=a, allow *"));
    for more in
        ["profile rbd pool=a; allow *", "profile rbd pool=a; profile read-write", "profile rbd;allow *", ""]
    {
        assert!(!allowed("client.x", more), "{more}");
    }
    for (service, text, may) in [
        ("caps_mgr", "profile rbd", true),
        ("caps_mgr", "allow *", false),
        ("caps_mds", "allow *", false),
        ("caps_mds", "profile rbd", false),
    ] {
        let [entity, mon_caps, osd] = create("client.x", "profile rbd");
        let args = [entity, mon_caps, osd, (service, text)];
        assert_eq!(mon(caps, "auth", "auth get-or-create", &args, "rwx"), may, "{service} {text}");
    }
    let rgw = "allow profile bootstrap-rgw";
    let args = [("entity", "client.rgw.a"), ("caps_mon", "allow rw"), ("caps_osd", "allow rwx")];
    assert!(mon(rgw, "auth", "auth get-or-create", &args, "rwx"));
    let [entity, mon_caps, osd] = args;
    assert!(!mon(
        rgw,
        "auth",
        "auth get-or-create",
        &[entity, mon_caps, osd, ("caps_mgr", "allow *")],
        "rwx"
    ));
    assert!(!allowed("osd.1", "profile rbd"));
    assert!(mon("allow profile bootstrap-osd", "osd", "osd new", &[], "rw"));
    assert!(!mon("allow profile bootstrap-osd", "osd", "osd rm", &[], "rw"));
    let mgr = [("entity", "mgr.x"), ("caps_mon", "allow profile mgr")];
    assert!(mon("allow profile bootstrap-mgr", "auth", "auth get-or-create", &mgr, "rw"));
}

#[test]
fn monitor_file_system_limits() {
    let name = AuthName::parse("client.a").expect("a name");
    let cap = MonCap::parse("allow r fsname=a, allow rw fsname=b").expect("parses");
    assert_eq!(cap.allowed_fs_names(), ["a", "b"]);
    assert!(cap.fs_name_capable(&name, "a", true, false));
    assert!(!cap.fs_name_capable(&name, "a", false, true));
    assert!(cap.fs_name_capable(&name, "b", false, true));
    assert!(!cap.fs_name_capable(&name, "c", true, true));
    assert!(MonCap::parse("allow r").expect("parses").allowed_fs_names().is_empty());
    assert!(MonCap::parse("profile mgr").expect("parses").fs_name_capable(&name, "x", false, true));
}

struct Op<'a> {
    pool: &'a str,
    namespace: &'a str,
    object: &'a str,
    perms: &'a str,
    classes: Vec<ClassUse>,
}

fn op<'a>(pool: &'a str, perms: &'a str) -> Op<'a> {
    Op { pool, namespace: "", object: "obj", perms, classes: Vec::new() }
}

impl Op<'_> {
    fn on(&self, caps: &str) -> bool {
        let app_metadata: AppMetadata =
            [("cephfs".to_owned(), args(&[("data", "fs1")])), ("rgw".to_owned(), args(&[]))].into();
        OsdCap::parse(caps).expect(caps).is_capable(&OsdRequest {
            pool: self.pool,
            namespace: self.namespace,
            app_metadata: &app_metadata,
            object: self.object,
            read: self.perms.contains('r'),
            write: self.perms.contains('w'),
            classes: &self.classes,
            addr: &addr("v2:10.1.2.3:0/9"),
        })
    }
}

#[test]
fn osd_pools_and_bits() {
    assert!(op("a", "rw").on("allow rw"));
    assert!(op("a", "rw").on("allow *"));
    assert!(!op("a", "rw").on("allow r"));
    assert!(op("a", "rw").on("allow rw pool=a"));
    assert!(op("a", "rw").on("allow pool a rw"));
    for other in ["a2", "A", "", "aa"] {
        assert!(!op(other, "r").on("allow rw pool=a"), "{other}");
    }
    assert!(!op("a", "rw").on("allow r, allow w"), "one grant must allow the whole operation");
    assert!(op("b", "w").on("allow r pool=a, allow w pool=b"));
    assert!(!op("a", "r").on("allow rw network 11.0.0.0/8"));
    assert!(op("a", "r").on("allow rw network 10.0.0.0/8"));
}

#[test]
fn osd_namespaces_and_prefixes() {
    let at = |namespace, caps| Op { namespace, ..op("a", "r") }.on(caps);
    assert!(
        at("n", "allow r namespace=n") && !at("n2", "allow r namespace=n") && !at("", "allow r namespace=n")
    );
    assert!(
        at("n2", "allow r namespace=n*")
            && at("n", "allow r namespace=n*")
            && !at("m", "allow r namespace=n*")
    );
    assert!(at("", "allow r namespace=\"\"") && !at("x", "allow r namespace=\"\""));
    assert!(at("x", "allow r pool=a"), "without a namespace all of them");
    let object = |object, caps| Op { object, ..op("a", "r") }.on(caps);
    assert!(object("foo1", "allow r object_prefix foo") && !object("fo", "allow r object_prefix foo"));
}

#[test]
fn osd_tags() {
    for yes in ["cephfs data=fs1", "cephfs *=*", "cephfs data=*", "cephfs *=fs1", "rgw *=*"] {
        assert!(op("a", "r").on(&format!("allow r tag {yes}")), "{yes}");
    }
    for no in ["cephfs data=fs2", "cephfs metadata=*", "rbd *=*", "rgw *=x"] {
        assert!(!op("a", "r").on(&format!("allow r tag {no}")), "{no}");
    }
}

fn class(class: &str, method: &str, perms: &str, allowed: bool) -> ClassUse {
    let (read, write) = (perms.contains('r'), perms.contains('w'));
    ClassUse { class: class.to_owned(), method: method.to_owned(), read, write, allowed }
}

#[test]
fn osd_classes() {
    let call = |classes: &[ClassUse], caps: &str| Op { classes: classes.to_vec(), ..op("a", "") }.on(caps);
    let lock = class("lock", "lock", "rw", true);
    let odd = class("odd", "m", "r", false);
    assert!(call(std::slice::from_ref(&lock), "allow x"));
    assert!(call(std::slice::from_ref(&lock), "allow class-read class-write"));
    assert!(!call(std::slice::from_ref(&lock), "allow class-read"));
    assert!(!call(std::slice::from_ref(&lock), "allow rw"));
    assert!(!call(std::slice::from_ref(&odd), "allow rwx"), "a class off the list needs its name or *");
    assert!(call(std::slice::from_ref(&odd), "allow *"));
    assert!(call(std::slice::from_ref(&odd), "allow class odd"));
    assert!(call(std::slice::from_ref(&odd), "allow class odd m"));
    assert!(!call(std::slice::from_ref(&odd), "allow class odd n"));
    assert!(call(&[lock.clone(), odd.clone()], "allow x, allow class odd"), "each class by another grant");
    assert!(!call(&[lock, odd], "allow x"));
}

#[test]
fn osd_profiles() {
    let header = |perms, classes: &[ClassUse]| Op {
        object: "rbd_header.1",
        classes: classes.to_vec(),
        ..op("images", perms)
    };
    assert!(header("rw", &[class("rbd", "x", "rw", true)]).on("profile rbd pool=images"));
    assert!(!header("rw", &[]).on("profile rbd pool=other"));
    assert!(!header("w", &[]).on("profile rbd-read-only"));
    assert!(header("r", &[]).on("profile rbd-read-only"));
    assert!(header("", &[class("rbd", "child_attach", "rw", true)]).on("profile rbd-read-only"));
    assert!(!header("", &[class("rbd", "remove", "rw", true)]).on("profile rbd-read-only"));
    assert!(Op { object: "rbd_info", ..op("other", "r") }.on("profile rbd pool=images"));
    assert!(!op("a", "r").on("profile nosuch"));
}

#[test]
fn osd_tickets_without_caps_allow_nothing() {
    let nothing = OsdCap::from_info(&CapsInfo::default()).expect("no caps are fine");
    assert!(!nothing.is_allow_all());
    assert_eq!(nothing, OsdCap::default());
    assert!(OsdCap::from_info(&CapsInfo::all()).expect("all").is_allow_all());
    assert!(OsdCap::from_info(&CapsInfo::from_text("allow *")).expect("all").is_allow_all());
    assert!(!OsdCap::from_info(&CapsInfo::from_text("allow * pool=a")).expect("parses").is_allow_all());
    assert!(OsdCap::from_info(&CapsInfo { allow_all: false, caps: vec![9, 0].into() }).is_err());
}

#[test]
fn manager_grants() {
    let can = |caps: &str, module, command, pairs: &[(&str, &str)], perms: &str| {
        MgrCap::parse(caps).expect(caps).is_capable(&MgrRequest {
            service: "py",
            module,
            command,
            args: &args(pairs),
            read: perms.contains('r'),
            write: perms.contains('w'),
            exec: perms.contains('x'),
            addr: &addr("v2:10.1.2.3:0/9"),
        })
    };
    assert!(can("allow *", "m", "c", &[], "rwx"));
    assert!(can("allow r", "m", "c", &[], "r") && !can("allow r", "m", "c", &[], "w"));
    assert!(can("allow module m rw", "m", "", &[], "rw") && !can("allow module m rw", "n", "", &[], "r"));
    assert!(can("allow module m with a=b r", "m", "", &[("a", "b")], "r"));
    assert!(!can("allow module m with a=b r", "m", "", &[("a", "c")], "r"));
    assert!(can("allow command \"crash post\"", "crash", "crash post", &[], "rw"));
    assert!(can("profile crash", "crash", "crash post", &[], "rw"));
    assert!(!can("profile osd", "m", "c", &[], "r"));
    assert!(can("profile rbd pool=p", "rbd_support", "", &[("pool", "p")], "rw"));
    assert!(!can("profile rbd pool=p", "rbd_support", "", &[("pool", "q")], "r"));
    assert!(!can("profile rbd-read-only", "rbd_support", "", &[], "w"));
    assert!(
        can("allow service py r", "m", "c", &[], "r") && !can("allow service other r", "m", "c", &[], "r")
    );
}

#[test]
fn metadata_server_grants() {
    let cap = MdsCap::parse("allow rwp fsname=fs path=/home/a").expect("parses");
    let [grant] = cap.grants.as_slice() else { panic!("one grant") };
    assert_eq!((grant.fs_name.as_deref(), grant.path.as_str()), (Some("fs"), "home/a"));
    assert!(grant.perms.read && grant.perms.write && grant.perms.set_vxattr && !grant.perms.snapshot);
    assert!(
        grant.covers("home/a")
            && grant.covers("home/a/b")
            && !grant.covers("home/ab")
            && !grant.covers("home")
    );
    assert!(!cap.is_allow_all());
    assert!(MdsCap::parse("allow *").expect("parses").is_allow_all());
    assert!(!MdsCap::parse("allow").expect("parses").is_allow_all());
    let owned = MdsCap::parse("allow rw path=/x uid=5 gids=9,7").expect("parses");
    assert_eq!((owned.grants[0].uid, owned.grants[0].gids.as_slice()), (Some(5), &[7, 9][..]));
}

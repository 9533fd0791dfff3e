//! `loligo up --listen`: a cluster that moves to an address which a neighbour reaches, a host in a network
//! namespace.

use std::process::Command;

use crate::cluster::{Cluster, text};

/// A host beside this one, on a link of its own.
struct Neighbour {
    namespace: String,
    /// This host's address on the link.
    ip: String,
}

impl Neighbour {
    /// `nr`: of those that this process has at a time.
    fn new(nr: u32) -> Self {
        let pid = std::process::id();
        let namespace = format!("loligo-{pid}-{nr}");
        let net = format!("10.{}.{}", 64 + nr * 64 + pid % 64, pid / 64 % 256);
        let new = Self { namespace, ip: format!("{net}.1") };
        let (near, far) = (format!("ll{nr}{pid}"), format!("lr{nr}{pid}"));
        let n = &new.namespace;
        for words in [
            format!("netns add {n}"),
            format!("link add {near} type veth peer name {far} netns {n}"),
            format!("addr add {net}.1/30 dev {near}"),
            format!("link set {near} up"),
            format!("-n {n} addr add {net}.2/30 dev {far}"),
            format!("-n {n} link set {far} up"),
        ] {
            let out = Command::new("ip").args(words.split(' ')).output().expect("iproute2 is installed");
            assert!(out.status.success(), "ip {words}: {}", text(&out));
        }
        new
    }

    fn ok(&self, c: &Cluster, words: &[&str]) -> String {
        c.ok("ip", &[&["netns", "exec", &self.namespace], words].concat())
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        // The link goes with it.
        let _ = Command::new("ip").args(["netns", "del", &self.namespace]).status();
    }
}

/// Where the monitor map has its monitors.
fn monitors(c: &Cluster) -> Vec<String> {
    let dump: serde_json::Value = serde_json::from_str(&c.ceph("mon dump -f json")).expect("JSON");
    let mons = dump["mons"].as_array().expect("monitors").iter();
    let addrs = mons.map(|m| m["public_addrs"]["addrvec"][0]["addr"].as_str().unwrap_or_default());
    addrs.map(|addr| addr.rsplit_once(':').map_or(addr, |(ip, _)| ip).to_owned()).collect()
}

#[test]
fn a_cluster_moves_with_its_data_to_where_a_neighbour_reaches_it() {
    if !rustix::process::getuid().is_root() {
        eprintln!("network namespaces need root: nothing was tested");
        return;
    }
    let there = Neighbour::new(0);
    let c = Cluster::start(&["--mons", "3", "--osd-size", "1G"]);
    c.pool("p", 8);
    let file = c.dir.path().join("greeting");
    std::fs::write(&file, "hello").expect("a file");
    c.ok("rados", &["-p", "p", "put", "greeting", &file.display().to_string()]);
    assert_eq!(monitors(&c), ["127.0.0.1"; 3]);

    let said = text(&c.loligo(&["up", "--detach", "--listen", &there.ip]));
    assert!(said.contains("runs at 127.0.0.1") && said.contains("loligo down"), "{said}");
    assert!(c.loligo(&["down"]).status.success());
    // What an operator has added to the configuration stays.
    let conf = c.data().join("ceph.conf");
    let own = std::fs::read_to_string(&conf).expect("its text") + "[client]\nrbd cache = false\n";
    std::fs::write(&conf, own).expect("written");
    c.up(&["--listen", &there.ip]);
    assert_eq!(monitors(&c), [there.ip.as_str(); 3]);
    assert!(std::fs::read_to_string(&conf).expect("its text").ends_with("[client]\nrbd cache = false\n"));

    let health = there.ok(&c, &["ceph", "health"]);
    assert!(health.starts_with("HEALTH_OK"), "{health}");
    assert_eq!(there.ok(&c, &["rados", "-p", "p", "get", "greeting", "-"]), "hello");
    there.ok(&c, &["rbd", "create", "p/image", "--size", "16M"]);
    let fio = "fio --name=neighbour --ioengine=rbd --clientname=admin --pool=p --rbdname=image --rw=randwrite \
               --bs=4k --iodepth=8 --verify=crc32c --do_verify=1 --verify_state_save=0";
    there.ok(&c, &fio.split_whitespace().collect::<Vec<_>>());
    // It stays there.
    assert!(c.loligo(&["down"]).status.success());
    c.up(&[]);
    assert_eq!(monitors(&c), [there.ip.as_str(); 3]);
}

#[test]
fn where_nothing_is_authenticated_nobody_else_is_let_in() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let up = |words: &[&str]| {
        let data = dir.path().join("data");
        let out =
            Command::new(crate::cluster::binary()).arg("up").args(words).arg("--data").arg(&data).output();
        let out = out.expect("loligo runs");
        assert!(!out.status.success() && !data.exists(), "{}", text(&out));
        text(&out)
    };
    for (addr, why) in [
        ("0.0.0.0", "every address"),
        ("::", "every address"),
        ("240.0.0.1", "no address of this host"),
        ("10.0.0.1:3300", "without a port"),
        ("here", "without a port"),
    ] {
        let said = up(&["--listen", addr]);
        assert!(said.contains(why), "{said}");
    }
    if rustix::process::getuid().is_root() {
        let there = Neighbour::new(1);
        let said = up(&["--listen", &there.ip, "--auth", "none"]);
        assert!(said.contains("cephx is required"), "{said}");
    }
}

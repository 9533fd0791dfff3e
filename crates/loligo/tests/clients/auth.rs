//! Keys and capabilities, seen from the clients.

use std::fs;

use crate::cluster::Cluster;

#[test]
fn a_wrong_key_is_refused() {
    let c = Cluster::start(&[]);
    let wrong = c.dir.path().join("wrong");
    fs::write(&wrong, "[client.admin]\n\tkey = AQBWrongWrongBAAZZZZZZZZZZZZZZZZZZZZZZ==\n").expect("written");
    let (_, said) = c.fails("ceph", &["--connect-timeout", "10", "-k", &wrong.to_string_lossy(), "-s"]);
    assert!(said.contains("denied") || said.contains("invalid") || said.contains("error"), "{said}");
    let other = c.dir.path().join("other");
    fs::write(&other, "[client.admin]\n\tkey = AQDk9bdhAAAAABAAT0pF0rgAXkyA3I9yBzgeQA==\n").expect("written");
    let (_, said) = c.fails("ceph", &["--connect-timeout", "10", "-k", &other.to_string_lossy(), "-s"]);
    assert!(said.contains("denied"), "{said}");
    // The same wrong key, for an entity that does not exist: no way to tell the two apart.
    fs::write(&other, "[client.nobody]\n\tkey = AQDk9bdhAAAAABAAT0pF0rgAXkyA3I9yBzgeQA==\n")
        .expect("written");
    let (_, said) = c.fails(
        "ceph",
        &["--connect-timeout", "10", "-n", "client.nobody", "-k", &other.to_string_lossy(), "-s"],
    );
    assert!(said.contains("denied"), "{said}");
    c.still_healthy();
}

#[test]
fn capabilities_are_obeyed() {
    let c = Cluster::start(&[]);
    for pool in ["p", "p2"] {
        c.pool(pool, 8);
    }
    let keyring = c.dir.path().join("reader");
    let key =
        c.ok("ceph", &["auth", "get-or-create", "client.r", "mon", "allow r", "osd", "allow rw pool=p"]);
    fs::write(&keyring, key).expect("written");
    let keyring = keyring.to_string_lossy().into_owned();
    let me = |args: &[&str]| {
        [&["-n", "client.r", "-k", &keyring], args]
            .concat()
            .into_iter()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let run = |program: &str, args: &[&str]| {
        let args = me(args);
        c.client(program, &args.iter().map(String::as_str).collect::<Vec<_>>())
    };
    assert!(run("ceph", &["-s"]).status.success());
    let denied = run("ceph", &["osd", "pool", "create", "x"]);
    assert_eq!(denied.status.code(), Some(13), "EACCES");
    assert!(run("rados", &["-p", "p", "put", "a", "/etc/hostname"]).status.success());
    let refused = run("rados", &["-p", "p2", "put", "a", "/etc/hostname"]);
    assert!(!refused.status.success());
    assert!(String::from_utf8_lossy(&refused.stderr).contains("Operation not permitted"));
    // A key that was taken away cannot log in any more.
    c.ceph("auth rm client.r");
    assert!(!run("ceph", &["--connect-timeout", "10", "-s"]).status.success());
}

#[test]
fn secure_mode_carries_data() {
    let c = Cluster::start(&[]);
    c.pool("p", 8);
    let secure = ["--ms_client_mode=secure", "--ms_mon_client_mode=secure", "--ms_service_mode=secure"];
    let run = |args: &[&str]| c.ok("rados", &[&secure[..], args].concat());
    run(&["-p", "p", "put", "x", "/etc/passwd"]);
    run(&["-p", "p", "get", "x", "x"]);
    assert_eq!(fs::read(c.dir.path().join("x")).expect("read"), fs::read("/etc/passwd").expect("read"));
    run(&["-p", "p", "bench", "2", "write", "-t", "8"]);
}

#[test]
fn no_key_is_ever_logged() {
    let c = Cluster::start(&[]);
    let keyring = fs::read_to_string(c.data().join("keyring")).expect("keyring");
    let key = keyring.lines().find_map(|l| l.trim().strip_prefix("key = ")).expect("a key").trim().to_owned();
    c.ok("ceph", &["auth", "get-or-create", "client.x", "mon", "allow r"]);
    c.ceph("auth ls");
    for entry in fs::read_dir(c.data()).expect("folder").flatten() {
        if entry.path().extension().is_some_and(|e| e == "log") {
            assert!(!fs::read_to_string(entry.path()).unwrap_or_default().contains(&key));
        }
    }
}

#[test]
fn auth_none_works_when_asked_for() {
    let c = Cluster::start(&["--auth", "none"]);
    c.pool("p", 8);
    c.ok("rados", &["-p", "p", "put", "x", "/etc/passwd"]);
    c.still_healthy();
}

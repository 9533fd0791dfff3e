//! `loligo rbd serve` with the NBD clients people have: libnbd's tools and qemu; and its cache under `kill -9`.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};

use crate::cluster::{Cluster, binary};
use crate::formats::{content, started};

struct Serving {
    child: Child,
    /// Of the first image.
    uri: String,
    /// The same by TCP, when it is offered there.
    tcp: String,
}

impl Serving {
    fn start(c: &Cluster, images: &str, more: &str) -> Self {
        let socket = c.dir.path().join("socket");
        let mut child = Command::new(binary())
            .args(["rbd", "serve"])
            .args(images.split_whitespace())
            .args(more.split_whitespace())
            .arg("--unix")
            .arg(&socket)
            .env("CEPH_CONF", c.data().join("ceph.conf"))
            .current_dir(c.dir.path())
            .stdout(Stdio::piped())
            .spawn()
            .expect("loligo runs");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let mut line = || lines.next().map_or_else(String::new, |line| line.expect("says where"));
        let uri = line();
        assert!(uri.starts_with("nbd+unix://"), "the server did not start: {uri}");
        let tcp = if more.contains("--tcp") { line() } else { String::new() };
        Self { child, uri, tcp }
    }

    fn signal(mut self, name: &str) -> Option<i32> {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().expect("kill runs").success());
        let code = self.child.wait().expect("ends").code();
        std::mem::forget(self);
        code
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn who_may_connect_is_said_not_left_to_the_umask() {
    let c = started();
    c.ours("create a --size 8M");
    for (more, mode) in [("", 0o600), ("--unix-mode 0666", 0o666)] {
        let serving = Serving::start(&c, "a", more);
        let found = fs::metadata(c.dir.path().join("socket")).expect("a socket").permissions().mode();
        assert_eq!(found & 0o777, mode);
        assert_eq!(serving.signal("-TERM"), Some(0));
    }
    assert_eq!(c.ours_status("serve a --unix s --unix-mode 888"), 2);
}

#[test]
fn a_file_system_goes_in_and_comes_out_whole() {
    let c = started();
    let files = c.dir.path().join("files");
    fs::create_dir(&files).expect("makes");
    fs::write(files.join("one"), content(700_000, 3)).expect("writes");
    c.ok("truncate", &["-s", "32M", "fs.img"]);
    c.ok("mke2fs", &["-q", "-t", "ext4", "-d", "files", "fs.img"]);
    c.ours("create fs --size 32M");
    c.ours("create other --size 1M");
    let serving = Serving::start(&c, "fs other", "");
    let uri = serving.uri.as_str();
    c.ok("nbdcopy", &["fs.img", uri]);
    c.ok("nbdcopy", &[uri, "out.img"]);
    assert!(c.file("fs.img") == c.file("out.img"));
    assert_eq!(c.ok("nbdinfo", &["--size", uri]).trim(), (32 << 20).to_string());
    assert!(c.ok("nbdinfo", &["--map", uri]).contains("hole,zero"));
    let list = c.ok("nbdinfo", &["--list", uri]);
    assert!(list.contains("export=\"fs\"") && list.contains("export=\"other\""), "{list}");
    c.ok("qemu-img", &["compare", "-f", "raw", "-F", "raw", "fs.img", uri]);
    c.ok("qemu-img", &["convert", "-f", "raw", "-O", "qcow2", uri, "fs.qcow2"]);
    c.ok("qemu-img", &["compare", "-F", "raw", "fs.qcow2", uri]);

    // Malformed bytes end their own connection only.
    let mut stream = UnixStream::connect(c.dir.path().join("socket")).expect("connects");
    stream.write_all(&[0, 0, 0, 3]).expect("sends");
    stream.write_all(&[0xff; 64]).expect("sends");
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    assert_eq!(rest.len(), 18, "the greeting, then the end");
    c.ok("nbdinfo", &["--size", uri]);

    assert_eq!(serving.signal("-TERM"), Some(0));
    c.theirs("export fs librbd.img");
    assert!(c.file("librbd.img") == c.file("fs.img"));
    c.ok("e2fsck", &["-fn", "librbd.img"]);
    c.theirs("object-map check fs");
}

/// Certificates of one authority for a server and a client, in folders with QEMU's names.
fn certificates(under: &Path) {
    let mut params = CertificateParams::new(Vec::new()).expect("no names");
    params.distinguished_name.push(DnType::CommonName, "authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("signed");
    for (name, host, purpose) in [
        ("server", "127.0.0.1", ExtendedKeyUsagePurpose::ServerAuth),
        ("client", "client", ExtendedKeyUsagePurpose::ClientAuth),
    ] {
        let mut params = CertificateParams::new(vec![host.to_owned()]).expect("a name");
        params.distinguished_name.push(DnType::CommonName, name);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
        params.extended_key_usages = vec![purpose];
        let key = KeyPair::generate().expect("a key");
        let cert = params.signed_by(&key, &ca).expect("signed");
        let folder = under.join(name);
        fs::create_dir(&folder).expect("made");
        fs::write(folder.join("ca-cert.pem"), ca.pem()).expect("written");
        fs::write(folder.join(format!("{name}-cert.pem")), cert.pem()).expect("written");
        fs::write(folder.join(format!("{name}-key.pem")), key.serialize_pem()).expect("written");
    }
}

#[test]
fn other_hosts_have_an_image_by_tls() {
    let c = started();
    c.ours("create t --size 8M");
    certificates(c.dir.path());
    assert_ne!(c.ours_status("serve t --tcp 0.0.0.0:0"), 0, "not to everybody by mistake");
    assert_ne!(c.ours_status("serve t --tcp 127.0.0.1:0 --tls-dir client"), 0, "no server's certificate");
    let serving = Serving::start(&c, "t", "--tcp 127.0.0.1:0 --tls-dir server");
    let place = serving.tcp.strip_prefix("nbds://127.0.0.1:").expect("by TLS");
    let port = place.strip_suffix("/t").expect("the image");
    fs::write(c.dir.path().join("in.img"), content(8 << 20, 5)).expect("writes");

    let image = format!("driver=nbd,host=127.0.0.1,port={port},export=t,tls-creds=tls");
    let creds = "tls-creds-x509,id=tls,endpoint=client,dir=client";
    let to = ["convert", "-n", "-f", "raw", "--object", creds, "--target-image-opts", "in.img", &image];
    c.ok("qemu-img", &to);
    let uri = format!("{}?tls-certificates={}", serving.tcp, c.dir.path().join("client").display());
    assert_eq!(c.ok("nbdinfo", &["--size", &uri]).trim(), (8 << 20).to_string());
    c.ok("nbdcopy", &[&uri, "out.img"]);
    assert!(c.file("out.img") == c.file("in.img"));

    let (_, said) = c.fails("nbdinfo", &["--size", &format!("nbd://127.0.0.1:{port}/t")]);
    assert!(said.contains("TLS"), "{said}");
    assert_eq!(serving.signal("-TERM"), Some(0));
    c.theirs("export t librbd.img");
    assert!(c.file("librbd.img") == c.file("in.img"));
}

#[test]
fn read_only_refuses_writes() {
    let c = started();
    c.ours("create r --size 1M");
    let serving = Serving::start(&c, "r", "--read-only");
    let (_, said) = c.fails("qemu-io", &["-f", "raw", "-c", "write 0 4k", &serving.uri]);
    assert!(said.contains("Permission denied"), "{said}");
    assert_eq!(serving.signal("-INT"), Some(0));
}

#[test]
fn the_cache_loses_nothing_to_kill_9() {
    let c = started();
    c.ours("create k --size 8M");
    let mut expected = vec![0u8; 8 << 20];
    let options = "--cache cache --cache-size 2M --cache-linger-ms 60000";
    for round in 1..=4u8 {
        let serving = Serving::start(&c, "k", options);
        let mut args = vec!["-f".to_owned(), "raw".to_owned()];
        for step in 0..8u64 {
            let offset = (u64::from(round) * 7_001 + step * 300_007) % (7 << 20) / 512 * 512;
            let pattern = round * 10 + step as u8;
            args.extend(["-c".to_owned(), format!("write -P {pattern} {offset} 69632")]);
            expected[offset as usize..offset as usize + 69_632].fill(pattern);
        }
        args.extend(["-c".to_owned(), "flush".to_owned(), serving.uri.clone()]);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let said = c.ok("qemu-io", &args);
        assert_eq!(said.matches("wrote").count(), 8, "{said}");
        assert_eq!(serving.signal("-KILL"), None);
        assert!(c.ours("info k").contains("dirty-cache"), "the image says that it is not all");
    }
    let serving = Serving::start(&c, "k", options);
    c.ok("nbdcopy", &[&serving.uri, "seen.img"]);
    assert!(c.file("seen.img") == expected, "an acknowledged write is gone");
    assert_eq!(serving.signal("-TERM"), Some(0));
    c.theirs("export k image.img");
    assert!(c.file("image.img") == expected, "the image has all after an orderly end");
    assert!(!c.ours("info k").contains("dirty-cache"));
    assert_eq!(c.theirs("image-meta ls k"), "There are 0 metadata on this image.\n");

    // A cache belongs to one image.
    c.ours("create other --size 8M");
    let caches = c.dir.path().join("cache");
    let own = fs::read_dir(&caches).expect("folder").next().expect("a file").expect("entry").path();
    let id = c.ours("info other --json");
    let id = id.split("\"id\":\"").nth(1).and_then(|rest| rest.split('"').next()).expect("an id");
    fs::copy(own, caches.join(format!("{id}.cache"))).expect("copies");
    let program = binary().display().to_string();
    let (_, said) = c.fails(&program, &["rbd", "serve", "other", "--unix", "s2", "--cache", "cache"]);
    assert!(said.contains("belongs to image"), "{said}");

    // Nothing would keep others from writing below the cache.
    c.ours("create open --size 8M --image-feature layering");
    let (_, said) = c.fails(&program, &["rbd", "serve", "open", "--unix", "s3", "--cache", "cache"]);
    assert!(said.contains("lacks the exclusive-lock feature"), "{said}");
}

/// A cache under which nothing reaches the image by itself.
const HELD: &str = "--cache cache --cache-size 2M --cache-linger-ms 600000";

/// Leaves a cache with one acknowledged write that image `k` lacks.
fn die_dirty(c: &Cluster, pattern: u8, more: &str) {
    let serving = Serving::start(c, "k", &format!("{HELD}{more}"));
    c.ok("qemu-io", &["-f", "raw", "-c", &format!("write -P {pattern} 64k 4k"), "-c", "flush", &serving.uri]);
    assert_eq!(serving.signal("-KILL"), None);
}

fn exported(c: &Cluster) -> Vec<u8> {
    let _ = fs::remove_file(c.dir.path().join("k.img"));
    c.ours("export k k.img");
    c.file("k.img")
}

/// A cache that died dirty, and another client, librbd's or ours, that has written since.
#[test]
fn a_dirty_cache_is_not_replayed_over_what_others_wrote() {
    let c = started();
    let program = binary().display().to_string();
    let serve: Vec<&str> = ["rbd", "serve", "k", "--unix", "s2"].into_iter().chain(HELD.split(' ')).collect();
    c.ours("create k --size 1M");
    die_dirty(&c, 1, "");

    // Our tools do not write below it.
    let (status, said) = c.fails(&program, &["rbd", "bench", "k", "--io-type", "write", "--io-total", "4K"]);
    assert!(status == 16 && said.contains("a write-back cache holds, at "), "{said}");
    let elsewhere = ["rbd", "serve", "k", "--unix", "s2", "--cache", "cache2"];
    let (_, said) = c.fails(&program, &elsewhere);
    assert!(said.contains("a write-back cache holds, at "), "{said}");

    // An empty cache has nothing to replay: force would only give the other one's writes up.
    let (_, said) = c.fails(&program, &[&elsewhere[..], &["--force-replay"]].concat());
    assert!(said.contains("a write-back cache holds, at "), "{said}");

    // librbd knows nothing of it; the lock tells.
    break_locks(&c, "k");
    c.theirs("bench --io-type write --io-size 64K --io-total 1M k");
    let theirs = exported(&c);
    assert!(theirs[64 << 10] != 1);
    let (_, said) = c.fails(&program, &serve);
    assert!(said.contains("--discard-cache") && said.contains("--force-replay"), "{said}");
    assert!(exported(&c) == theirs, "the refusal left the image as it was");
    let serving = Serving::start(&c, "k", &format!("{HELD} --discard-cache"));
    c.ok("nbdcopy", &[&serving.uri, "seen.img"]);
    assert!(c.file("seen.img") == theirs);
    assert_eq!(serving.signal("-TERM"), Some(0));
    assert!(exported(&c) == theirs && !c.ours("info k").contains("dirty-cache"));

    // A host that is gone for good: its lock is broken when its watch is over.
    die_dirty(&c, 2, "");
    let begin = Instant::now();
    c.ours("persistent-cache invalidate k");
    assert!(begin.elapsed() < Duration::from_secs(35), "it took {:?}", begin.elapsed());
    c.ours("bench k --io-type write --io-size 64K --io-total 1M");
    let ours = exported(&c);
    let (_, said) = c.fails(&program, &serve);
    assert!(said.contains("does not bear this cache's mark"), "{said}");
    assert!(exported(&c) == ours);
    let serving = Serving::start(&c, "k", &format!("{HELD} --force-replay"));
    assert_eq!(serving.signal("-TERM"), Some(0));
    let mut both = ours;
    both[64 << 10..68 << 10].fill(2);
    assert!(exported(&c) == both, "replayed as was asked for");
    c.theirs("object-map check k");
}

#[test]
fn a_cache_whose_image_is_taken_by_force_stops() {
    let c = started();
    c.ours("create k --size 1M");
    let serving = Serving::start(&c, "k", "--cache cache --cache-size 2M --cache-linger-ms 0");
    let write = ["-f", "raw", "-c", "write -P 3 0 4k", "-c", "flush", &serving.uri];
    c.ok("qemu-io", &write);
    break_locks(&c, "k");
    let end = Instant::now() + Duration::from_secs(60);
    while c.client("qemu-io", &write).status.success() {
        assert!(Instant::now() < end, "it goes on acknowledging");
    }
    assert_ne!(serving.signal("-TERM"), Some(0), "not everything reached the image");
    c.theirs("bench --io-type write --io-size 64K --io-total 1M k");
    let theirs = exported(&c);
    let program = binary().display().to_string();
    let (_, said) = c.fails(&program, &["rbd", "serve", "k", "--unix", "s2", "--cache", "cache"]);
    assert!(said.contains("--force-replay"), "{said}");
    assert!(exported(&c) == theirs);
}

fn break_locks(c: &Cluster, image: &str) {
    let locks = c.theirs(&format!("lock ls {image} --format json"));
    let locks: serde_json::Value = serde_json::from_str(&locks).expect("JSON");
    for lock in locks.as_array().expect("a list") {
        let word = |name: &str| lock[name].as_str().expect("a text").to_owned();
        c.ok("rbd", &["lock", "rm", image, &word("id"), &word("locker")]);
    }
}

//! Each side reads what the other wrote: bytes, differences, clones, object maps, locks.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::cluster::{Cluster, binary};

/// Bytes that do not repeat, with holes of zeros, from a seed.
pub fn content(len: usize, mut seed: u64) -> Vec<u8> {
    let mut out = vec![0; len];
    for (at, chunk) in out.chunks_mut(64 << 10).enumerate() {
        if at % 3 == 1 {
            continue;
        }
        for word in chunk.chunks_mut(8) {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            word.copy_from_slice(&seed.to_le_bytes()[..word.len()]);
        }
    }
    out
}

pub fn started() -> Cluster {
    let cluster = Cluster::start(&[]);
    cluster.ceph("osd pool create rbd 8");
    cluster.ok("rbd", &["pool", "init", "rbd"]);
    cluster
}

impl Cluster {
    /// `loligo rbd`, which must succeed.
    pub fn ours(&self, line: &str) -> String {
        let program = binary().display().to_string();
        let args: Vec<&str> = std::iter::once("rbd").chain(line.split_whitespace()).collect();
        self.ok(&program, &args)
    }

    /// The exit status of `loligo rbd`.
    pub fn ours_status(&self, line: &str) -> i32 {
        let program = binary().display().to_string();
        let args: Vec<&str> = std::iter::once("rbd").chain(line.split_whitespace()).collect();
        self.client(&program, &args).status.code().unwrap_or(-1)
    }

    /// Ceph's `rbd`, which must succeed.
    pub fn theirs(&self, line: &str) -> String {
        let mut args: Vec<&str> = line.split_whitespace().collect();
        if matches!(args[0], "export" | "export-diff" | "import" | "object-map") {
            args.push("--no-progress");
        }
        self.ok("rbd", &args)
    }

    pub fn file(&self, name: &str) -> Vec<u8> {
        fs::read(self.dir.path().join(name)).expect("the file is there")
    }

    /// Both tools export the same bytes of an image; gives them.
    fn exported(&self, image: &str) -> Vec<u8> {
        for name in ["ours.raw", "theirs.raw"] {
            let _ = fs::remove_file(self.dir.path().join(name));
        }
        self.ours(&format!("export {image} ours.raw"));
        self.theirs(&format!("export {image} theirs.raw"));
        let (ours, theirs) = (self.file("ours.raw"), self.file("theirs.raw"));
        assert!(ours == theirs, "{image} differs");
        ours
    }
}

#[test]
fn images_snapshots_differences_and_clones() {
    let c = started();
    let first = content(9_000_000, 1);
    fs::write(c.dir.path().join("in"), &first).expect("writes");
    c.ours("import in a");
    c.theirs("import in b");
    assert!(c.exported("a") == first && c.exported("b") == first);
    assert_eq!(c.ours("info a --json"), c.theirs("info a --format json").trim_end().to_owned() + "\n");
    assert_eq!(c.ours("ls"), "a\nb\n");

    c.ours("snap create a@s");
    c.theirs("bench --io-type write --io-size 64K --io-total 2M --io-pattern rand a");
    c.ours("bench b --io-type write --io-size 64K --io-total 2M --io-pattern rand");
    for (image, args) in [("a", " --from-snap s"), ("a@s", ""), ("b", "")] {
        let _ = (fs::remove_file(c.dir.path().join("d1")), fs::remove_file(c.dir.path().join("d2")));
        c.ours(&format!("export-diff {image} d1{args}"));
        c.theirs(&format!("export-diff {image} d2{args}"));
        assert!(c.file("d1") == c.file("d2"), "the differences of {image}{args} differ");
    }
    assert_eq!(c.ours("du a"), c.theirs("du a"));
    c.exported("b");

    c.ours("clone a@s c");
    c.exported("c");
    c.ours("bench c --io-type write --io-size 4K --io-total 64K --io-pattern rand");
    c.ours("snap create c@t");
    c.ours("bench c --io-type write --io-size 4K --io-total 64K --io-pattern rand");
    let (now, then) = (c.exported("c"), c.exported("c@t"));
    for image in ["a", "b", "c"] {
        c.theirs(&format!("object-map check {image}"));
    }
    c.ours("snap rm a@s");
    c.ours("flatten c");
    assert!(c.exported("c") == now && c.exported("c@t") == then, "flattening changed a byte");
    assert!(!c.theirs("info c").contains("parent"));
    assert_eq!(c.theirs("snap ls --all a"), "", "the trashed snapshot left with its last clone");

    c.ours("resize a --size 3M --allow-shrink");
    c.ours("resize a --size 12M");
    let resized = c.exported("a");
    assert!(resized[3 << 20..].iter().all(|b| *b == 0));
    c.theirs("object-map check a");
    assert!(!c.theirs("info a").contains("invalid"));
    c.ours("snap rm c@t");
    for image in ["a", "b", "c"] {
        c.ours(&format!("rm {image}"));
    }
    // Clones of the removed snapshot go in the background; until then their objects are listed.
    let end = Instant::now() + Duration::from_secs(30);
    while c.ok("rados", &["-p", "rbd", "ls"]).contains("rbd_data") {
        assert!(Instant::now() < end, "data is left");
        std::thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn differences_apply_one_after_the_other() {
    let c = started();
    let write = |image: &str, total: &str| {
        c.ours(&format!("bench {image} --io-type write --io-size 16K --io-total {total} --io-pattern rand"));
    };
    c.ours("create a --size 24M");
    write("a", "1M");
    c.ours("snap create a@one");
    write("a", "64K");
    c.ours("snap create a@two");
    c.ours("resize a --size 30M");
    write("a", "64K");
    let steps = [("a@one", "d1", ""), ("a@two", "d2", " --from-snap one"), ("a", "d3", " --from-snap two")];
    for image in ["b", "t"] {
        c.ours(&format!("create {image} --size 1M"));
    }
    for (image, file, args) in steps {
        c.ours(&format!("export-diff {image} {file}{args}"));
        c.theirs(&format!("export-diff {image} {file}.theirs{args}"));
        assert!(c.file(file) == c.file(&format!("{file}.theirs")), "the differences of {image}{args} differ");
        c.ours(&format!("import-diff {file} b"));
        c.ok("rbd", &["import-diff", "--no-progress", file, "t"]);
    }
    assert_eq!(c.ours_status("export-diff a@one backwards --from-snap two"), 22);
    assert!(!c.dir.path().join("backwards").exists(), "refused before anything is written");
    let all = c.exported("a");
    assert!(c.exported("b") == all && c.exported("t") == all);
    assert_eq!(c.ours("du b"), c.theirs("du b"));
    assert_eq!(c.ours("snap ls b --json"), c.theirs("snap ls b --format json"));
    c.theirs("object-map check b");

    fs::write(c.dir.path().join("cut"), &c.file("d3")[..9000]).expect("writes");
    fs::write(c.dir.path().join("noise"), [7; 5000]).expect("writes");
    for (line, status) in [
        ("import-diff d2 b", 17),
        ("import-diff d2 a", 17),
        ("import-diff cut b", 22),
        ("import-diff noise b", 22),
        ("snap rename b@nope b@x", 2),
        ("snap rename b@one b@two", 17),
        ("snap rename b@one a@x", 22),
    ] {
        assert_eq!(c.ours_status(line), status, "{line}");
    }
    c.ours("snap rename b@one b@first");
    assert_eq!(c.ours("snap ls b --json"), c.theirs("snap ls b --format json"));
    c.ours("snap rollback b@first");
    assert!(c.exported("b") == c.exported("a@one"));

    // A clone has what it wrote, not what it shares.
    c.ours("clone a@two c");
    c.ours("bench c --io-type write --io-size 4K --io-total 4K");
    assert_eq!(c.ours("du c"), c.theirs("du c"));
    assert!(c.ours("du c").contains(" 4 MiB"), "{}", c.ours("du c"));
}

/// Only the removed snapshot's map knew that the object changed.
#[test]
fn a_lost_map_of_a_removed_snapshot_hides_no_change() {
    let c = started();
    let write = "bench a --io-type write --io-size 64K --io-total 64K";
    for image in ["head", "next"] {
        c.ours("create a --size 8M");
        for snap in ["one", "two"] {
            c.ours(write);
            c.ours(&format!("snap create a@{snap}"));
        }
        if image == "next" {
            c.ours("snap create a@three");
        }
        let objects = c.ok("rados", &["-p", "rbd", "ls"]);
        let maps =
            objects.lines().filter(|o| o.starts_with("rbd_object_map.") && o.matches('.').count() == 2);
        let mut maps: Vec<&str> = maps.collect();
        maps.sort_unstable();
        fs::write(c.dir.path().join("noise"), [7; 3]).expect("writes");
        c.ok("rados", &["-p", "rbd", "put", maps[1], "noise"]);
        c.ours("snap rm a@two");
        let end = if image == "next" { "a@three" } else { "a" };
        c.ours(&format!("export-diff {end} {image} --from-snap one"));
        assert!(c.file(image).len() > 60_000, "{image}: the change is told");
        for snap in if image == "next" { vec!["one", "three"] } else { vec!["one"] } {
            c.ours(&format!("snap rm a@{snap}"));
        }
        c.ours("rm a");
    }
}

#[test]
fn namespaces_and_timestamps() {
    let c = started();
    c.ours("namespace create rbd/n");
    c.theirs("namespace create rbd/m");
    assert_eq!(c.ours("namespace ls"), c.theirs("namespace ls"));
    assert!(c.ours("namespace ls").starts_with("NAME\n"));
    assert_eq!(c.ours("namespace ls --json"), "[{\"name\":\"m\"},{\"name\":\"n\"}]\n");
    c.ours("create rbd/n/i --size 4M");
    c.ours("bench rbd/n/i --io-type write --io-total 64K");
    assert_eq!((c.ours("ls rbd/n"), c.ours("ls")), ("i\n".into(), String::new()));
    c.exported("rbd/n/i");
    c.ours("mv rbd/n/i rbd/n/j");
    assert_eq!(c.theirs("ls rbd/n"), "j\n");
    for (line, status) in [
        ("namespace create rbd/n", 17),
        ("namespace create rbd/", 22),
        ("namespace rm rbd/n", 16),
        ("namespace rm rbd/o", 2),
        ("mv rbd/n/j rbd/j", 22),
        ("info j", 2),
    ] {
        assert_eq!(c.ours_status(line), status, "{line}");
    }
    c.ours("rm rbd/n/j");
    c.ours("namespace rm rbd/n");
    c.ours("namespace rm rbd/m");
    assert_eq!(c.theirs("namespace ls --format json").trim(), "[]");

    // Times are written down when the last one is a minute old.
    c.ours("create t --size 4M");
    let info: serde_json::Value = serde_json::from_str(&c.ours("info t --json")).expect("JSON");
    let header = format!("rbd_header.{}", info["id"].as_str().expect("an id"));
    fs::write(c.dir.path().join("long-ago"), [0, 0, 0, 2, 0, 0, 0, 0]).expect("writes");
    for key in ["modify_timestamp", "access_timestamp"] {
        c.ok("rados", &["-p", "rbd", "setomapval", &header, key, "--input-file", "long-ago"]);
    }
    let year = |key: &str| {
        let info: serde_json::Value = serde_json::from_str(&c.theirs("info t --format json")).expect("JSON");
        info[key].as_str().expect("a time").rsplit(' ').next().map(str::to_owned)
    };
    let long_ago = Some("1971".to_owned());
    c.ours("bench t --io-type write --io-total 4K");
    assert!(year("modify_timestamp") != long_ago && year("access_timestamp") == long_ago);
    c.ours("bench t --io-type read --io-total 4K");
    assert_ne!(year("access_timestamp"), long_ago);
}

#[test]
fn layouts_and_refusals() {
    let c = started();
    c.ceph("osd pool create data 8");
    c.ours("create s --size 20M --stripe-unit 64K --stripe-count 4 --object-size 1M --data-pool data");
    c.ours("bench s --io-type write --io-size 100000 --io-total 3000000 --io-threads 4");
    c.exported("s");
    c.theirs("bench --io-type write --io-size 64K --io-total 1M --io-pattern rand s");
    c.exported("s");
    c.theirs("object-map check s");
    assert_eq!(c.ours("info s --json"), c.theirs("info s --format json").trim_end().to_owned() + "\n");

    c.theirs("create j --size 8M --image-feature layering,exclusive-lock,journaling");
    for (line, status) in [
        ("info nope", 2),
        ("rm nope", 2),
        ("create s --size 1", 17),
        ("create x --size 1M --object-size 2K", 22),
        ("create x --size 1M --image-feature fast-diff", 22),
        ("resize s --size 1M", 22),
        ("bench j --io-type write --io-total 4K", 38),
        ("export-diff s d --from-snap nope", 2),
        ("create x@y --size 1", 22),
        ("rm s@y", 22),
        ("mv s@y z", 22),
        ("mv s z@y", 22),
        ("resize s@y --size 100M", 22),
    ] {
        assert_eq!(c.ours_status(line), status, "{line}");
    }
    assert_eq!(c.ours("ls"), "j\ns\n", "nothing was left behind");
}

#[test]
fn damaged_and_unknown_headers_are_refused_and_left_alone() {
    let c = started();
    let set = |image: &str, key: &str, bytes: &[u8]| {
        let stripes = if key.starts_with("stripe") { " --stripe-unit 64K --stripe-count 2" } else { "" };
        c.theirs(&format!("create {image} --size 4M{stripes}"));
        let info: serde_json::Value =
            serde_json::from_str(&c.theirs(&format!("info {image} --format json"))).expect("JSON");
        let header = format!("rbd_header.{}", info["id"].as_str().expect("an id"));
        fs::write(c.dir.path().join("value"), bytes).expect("written");
        c.ok("rados", &["-p", "rbd", "setomapval", &header, key, "--input-file", "value"]);
        header
    };
    let cases: [(&str, &str, &[u8]); 8] = [
        ("endless", "size", &u64::MAX.to_le_bytes()),
        ("wide", "stripe_count", &(u64::MAX / 2).to_le_bytes()),
        ("narrow", "stripe_count", &0u64.to_le_bytes()),
        ("uneven", "stripe_unit", &100_000u64.to_le_bytes()),
        ("short", "size", &[1, 2, 3]),
        ("order", "order", &[77]),
        ("unknown", "features", &(1u64 << 40 | 1).to_le_bytes()),
        ("prefix", "object_prefix", &[0xff, 0xff, 0xff, 0x7f]),
    ];
    for (image, key, bytes) in cases {
        let header = set(image, key, bytes);
        let before = c.ok("rados", &["-p", "rbd", "listomapvals", &header]);
        let program = binary().display().to_string();
        for words in [
            &["rbd", "bench", image, "--io-type", "write", "--io-total", "64K"][..],
            &["rbd", "resize", image, "--size", "8M"],
        ] {
            let (status, said) = c.fails(&program, words);
            assert!(status != 101 && !said.contains("panicked") && said.contains(image), "{key}: {said}");
        }
        assert_eq!(
            c.ok("rados", &["-p", "rbd", "listomapvals", &header]),
            before,
            "{key}: the image is as it was"
        );
    }
}

#[test]
fn removal_ends_what_was_interrupted_and_spares_groups() {
    let c = started();
    let header = |image: &str| {
        let info: serde_json::Value =
            serde_json::from_str(&c.theirs(&format!("info {image} --format json"))).expect("JSON");
        format!("rbd_header.{}", info["id"].as_str().expect("an id"))
    };
    c.ours("create half --size 4M");
    c.ok("rados", &["-p", "rbd", "rm", &header("half")]);
    assert_eq!(c.ours("ls"), "half\n");
    c.ours("rm half");
    assert_eq!(c.ours("ls"), "");
    assert_eq!(c.ours_status("rm half"), 2);
    let left = c.ok("rados", &["-p", "rbd", "ls"]);
    assert!(!left.contains("rbd_id.") && !left.contains("rbd_object_map."), "{left}");
    c.ours("create half --size 4M");

    c.theirs("group create g");
    c.theirs("group image add g half");
    let (status, said) = c.fails("rbd", &["rm", "--no-progress", "half"]);
    assert_eq!(c.ours_status("rm half"), status, "{said}");
    c.exported("half");
    c.theirs("group image rm g half");
    c.ours("rm half");
    assert_eq!(c.ours_status("create x --size 8000000T --image-feature layering"), 22);
    assert_eq!(c.ours("ls"), "");
}

/// Holds an image open through librbd and does what it is told.
const HOLDER: &str = "
import rados, rbd, sys
cluster = rados.Rados(conffile='')
cluster.connect()
image = rbd.Image(cluster.open_ioctx('rbd'), 'l')
image.write(b'a' * 4096, 0)
print(image.is_exclusive_lock_owner(), flush=True)
for line in sys.stdin:
    if line.strip() == 'write':
        image.write(b'b' * 4096, 4096)
    print(image.is_exclusive_lock_owner(), flush=True)
";

#[test]
fn the_lock_changes_hands_between_live_clients() {
    let c = started();
    c.ours("create l --size 8M");
    let mut holder = Command::new("/usr/bin/python3")
        .args(["-c", HOLDER])
        .env("CEPH_CONF", c.data().join("ceph.conf"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3-rbd is installed");
    let mut to = holder.stdin.take().expect("piped");
    let mut from = BufReader::new(holder.stdout.take().expect("piped")).lines();
    let mut says = |what: &str| {
        if !what.is_empty() {
            writeln!(to, "{what}").expect("it lives");
        }
        from.next().expect("a line").expect("text")
    };
    assert_eq!(says(""), "True");
    c.ours("bench l --io-type write --io-total 16K");
    assert_eq!(says("owner"), "False", "we got the lock");
    assert_eq!(says("write"), "True", "librbd took it back");
    c.ours("snap create l@s");
    c.ours("resize l --size 9M");
    assert_eq!(says("write"), "True", "librbd goes on with the new header");
    drop(to);
    assert!(holder.wait().expect("ends").success());
    c.theirs("object-map check l");
    c.exported("l");
}

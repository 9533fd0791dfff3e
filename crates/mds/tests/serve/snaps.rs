//! Snapshots: what each shows is what the tree was, whatever changed since and whichever server died.

use std::collections::BTreeMap;
use std::time::Duration;

use cephfs::{Answer, Call};
use codec::Encode;
use messages::fs::{Caps, FilePath, FsOp, MClientRequest, RequestArgs, SetAttr};
use types::Errno;

use crate::model::Random;
use crate::world::{World, name};

/// Every path below a folder, with what files hold and links lead to.
pub fn tree(w: &mut World, i: usize, root: &str) -> BTreeMap<String, String> {
    let mut tree = BTreeMap::new();
    let mut dirs = vec![String::new()];
    while let Some(dir) = dirs.pop() {
        let at = if dir.is_empty() { root.to_owned() } else { format!("{root}/{dir}") };
        for n in w.list(i, &at) {
            let path = if dir.is_empty() { n.clone() } else { format!("{dir}/{n}") };
            let full = if root.is_empty() { path.clone() } else { format!("{root}/{path}") };
            let attr = w.stat(i, &full).unwrap_or_else(|e| panic!("client {i}: {full}: {e}"));
            if attr.is_dir() {
                dirs.push(path.clone());
                tree.insert(path, "/".to_owned());
            } else if attr.is_symlink() {
                tree.insert(path, String::from_utf8_lossy(&attr.symlink).into_owned());
            } else {
                let text = w.get(i, &full).unwrap_or_else(|e| panic!("client {i}: {full}: {e}"));
                assert_eq!(text.len() as u64, attr.size, "client {i}: {full}");
                tree.insert(path, text);
            }
        }
    }
    tree
}

fn snap(w: &mut World, i: usize, dir: &str, n: &str) {
    w.mkdir(i, &format!("{dir}/.snap/{n}")).unwrap_or_else(|e| panic!("{dir} {n}: {e}"));
}

#[test]
fn a_snapshot_shows_what_was() {
    let mut w = World::mounted(2);
    w.mkdir(0, "d").expect("made");
    w.mkdir(0, "d/e").expect("made");
    w.put(0, "d/f", "one");
    w.put(0, "d/e/g", "two");
    let before = tree(&mut w, 0, "d");
    snap(&mut w, 0, "d", "a");
    assert_eq!(w.list(0, "d/.snap"), ["a"]);
    w.put(0, "d/f", "changed");
    w.put(0, "d/new", "new");
    w.unlink(0, "d/e/g").expect("unlinked");
    w.rename(0, "d/e", "d/h").expect("renamed");
    let after = tree(&mut w, 0, "d");
    for _ in 0..2 {
        for i in [0, 1] {
            assert_eq!(tree(&mut w, i, "d/.snap/a"), before, "client {i}");
            assert_eq!(tree(&mut w, i, "d"), after, "client {i}");
        }
        w.pass(Duration::from_secs(5));
        w.restart();
    }
    // Without the clients' memory, and when nothing is in the journal alone.
    w.server.flush_journal();
    w.pass(Duration::from_secs(5));
    (0..2).for_each(|i| drop(w.ok(i, Call::Unmount)));
    w.restart();
    let i = w.add_client("allow *");
    w.ok(i, Call::Mount { path: name("") });
    assert_eq!(tree(&mut w, i, "d/.snap/a"), before);
    assert_eq!(w.stat(i, "d").expect("a folder").nsubdirs, 1);
}

#[test]
fn names_of_snapshots_and_what_is_refused() {
    let settings = mds::Settings { max_snaps_per_dir: 3, ..mds::Settings::default() };
    let mut w = World::with(settings, &["allow *", "allow rw", "allow rws"]);
    (0..3).for_each(|i| drop(w.ok(i, Call::Mount { path: name("") })));
    w.mkdir(0, "d").expect("made");
    w.mkdir(0, "d/e").expect("made");
    w.put(0, "d/f", "text");
    assert_eq!(w.mkdir(1, "d/.snap/a"), Err(Errno::EACCES));
    snap(&mut w, 2, "d", "a");
    assert_eq!(w.mkdir(0, "d/.snap/a"), Err(Errno::EEXIST));
    assert_eq!(w.mkdir(0, "d/.snap/_x"), Err(Errno::EINVAL));
    assert_eq!(w.rmdir(0, "d/.snap/none"), Err(Errno::ENOENT));
    assert_eq!(w.rmdir(1, "d/.snap/a"), Err(Errno::EACCES));
    assert_eq!(w.mkdir(0, "d/.snap/a/x"), Err(Errno::EROFS));
    assert_eq!(w.unlink(0, "d/.snap/a/f"), Err(Errno::EROFS));
    assert_eq!(w.open(0, "d/.snap/a/f", 2), Err(Errno::EROFS));
    assert_eq!(w.stat(0, "d/.snap/none"), Err(Errno::ENOENT));
    assert_eq!(w.rmdir(0, "d"), Err(Errno::ENOTEMPTY));
    // A folder below shows it by the name of the one that it is of.
    let ino = w.node(0, "d").ino.0;
    let long = format!("_a_{ino}");
    assert_eq!(w.list(0, "d/e/.snap"), std::slice::from_ref(&long));
    assert!(w.stat(0, &format!("d/e/.snap/{long}")).expect("there").is_dir());
    assert_eq!(w.rmdir(0, &format!("d/e/.snap/{long}")), Err(Errno::EINVAL));
    w.rename(0, "d/.snap/a", "d/.snap/b").expect("renamed");
    snap(&mut w, 0, "d", "a");
    assert_eq!(w.rename(0, "d/.snap/a", "d/.snap/b"), Err(Errno::EEXIST));
    assert_eq!(w.rename(0, "d/.snap/a", "d/.snap/_b"), Err(Errno::EINVAL));
    snap(&mut w, 0, "d", "c");
    assert_eq!(w.mkdir(0, "d/.snap/d"), Err(Errno::EMLINK));
    w.restart();
    assert_eq!(w.list(1, "d/.snap"), ["a", "b", "c"]);
    let names = ["a", "b", "c"];
    names.iter().for_each(|n| drop(w.rmdir(0, &format!("d/.snap/{n}")).expect("removed")));
    w.unlink(0, "d/f").expect("unlinked");
    w.rmdir(0, "d/e").expect("removed");
    w.rmdir(0, "d").expect("removed");
    w.map.flags &= !maps::mds_flags::ALLOW_SNAPS;
    w.mkdir(0, "g").expect("made");
    w.restart();
    assert_eq!(w.mkdir(0, "g/.snap/a"), Err(Errno::EPERM));
}

/// A client that has a file open and its size to itself tells what it was, before others may see.
#[test]
fn what_is_buffered_is_in_the_snapshot() {
    let mut w = World::mounted(2);
    w.mkdir(0, "d").expect("made");
    let a = w.create(0, "d/f").expect("made");
    w.write(0, a, 0, "hello");
    snap(&mut w, 1, "d", "a");
    w.write(0, a, 5, " world");
    assert_eq!(w.get(1, "d/.snap/a/f").as_deref(), Ok("hello"));
    assert_eq!(w.stat(1, "d/.snap/a/f").expect("a file").size, 5);
    assert_eq!(w.stat(1, "d/f").expect("a file").size, 11);
    // Mode and times as well, of a client that has them to itself.
    let node = w.node(0, "d/f");
    let set = SetAttr { mask: SetAttr::MODE, mode: 0o600, ..SetAttr::default() };
    w.ok(0, Call::SetAttr { node, set });
    snap(&mut w, 1, "d", "b");
    let set = SetAttr { mask: SetAttr::MODE, mode: 0o640, ..SetAttr::default() };
    w.ok(0, Call::SetAttr { node, set });
    w.write(0, a, 0, "J");
    w.restart();
    let mode = |w: &mut World, path| w.stat(1, path).expect("a file").mode & 0o777;
    assert_eq!(mode(&mut w, "d/.snap/b/f"), 0o600);
    assert_eq!(mode(&mut w, "d/f"), 0o640);
    assert_eq!(w.get(1, "d/.snap/b/f").as_deref(), Ok("hello world"));
    assert_eq!(w.get(1, "d/.snap/a/f").as_deref(), Ok("hello"));
    assert_eq!(w.get(1, "d/f").as_deref(), Ok("Jello world"));
}

/// Nobody sees of a snapshot what its writer has not told yet.
#[test]
fn whoever_reads_a_snapshot_waits_for_its_writers() {
    let mut w = World::mounted(2);
    w.mkdir(0, "d").expect("made");
    let a = w.create(0, "d/f").expect("made");
    w.write(0, a, 0, "hello");
    w.slow = Some((0, w.node(0, "d/f").ino));
    snap(&mut w, 1, "d", "a");
    let dir = w.node(1, "d/.snap/a");
    let asked = w.submit(1, Call::Lookup { dir, name: name("f") });
    w.settle();
    assert!(w.is_done(1, asked).is_none(), "it is not known yet");
    assert!(w.hear_late() > 0);
    let Ok(Answer::Attr(f)) = w.wait(1, asked) else { panic!("attributes") };
    assert_eq!(f.size, 5);
    assert_eq!(w.get(1, "d/.snap/a/f").as_deref(), Ok("hello"));
}

/// A word that was on its way when a snapshot was taken is of the time before.
#[test]
fn a_flush_that_crosses_a_snapshot_is_in_it() {
    let mut w = World::mounted(2);
    w.mkdir(0, "d").expect("made");
    let a = w.create(0, "d/f").expect("made");
    w.write(0, a, 0, "hello");
    w.slow = Some((0, w.node(0, "d/f").ino));
    w.pass(Duration::from_secs(8));
    snap(&mut w, 1, "d", "a");
    // The server changes the inode, so that the snapshot has a version of its own.
    let node = w.node(0, "d/f");
    let open = w.submit(1, Call::Open { node, flags: 2 });
    w.settle();
    assert!(w.hear_late() > 0);
    assert!(w.wait(1, open).is_ok());
    assert_eq!(w.stat(1, "d/.snap/a/f").expect("a file").size, 5);
    assert_eq!(w.stat(1, "d/f").expect("a file").size, 5);
}

/// What is said with a snapshot is told with what it shows, as are its number and time.
#[test]
fn what_is_said_with_a_snapshot_is_kept() {
    let mut w = World::mounted(1);
    w.mkdir(0, "d").expect("made");
    let said: BTreeMap<String, String> = [("who".to_owned(), "me".to_owned())].into();
    let m = MClientRequest {
        op: FsOp::MKSNAP,
        args: RequestArgs::Mkdir { mode: 0 },
        path: FilePath { base: w.node(0, "d").ino, path: name("/s") },
        data: codec::Writer::collect(|w| w.envelope(1, 1, |w| said.encode(w))),
        ..MClientRequest::default()
    };
    w.raw(0, m).expect("made");
    for _ in 0..2 {
        let m = w.raw_stat(0, FsOp::LOOKUPSNAP, "d", "/s");
        assert_eq!(m.snap_metadata, said);
        assert!(!m.snap_btime.is_zero());
        w.restart();
    }
}

#[test]
fn hard_links_are_in_the_snapshots_of_all_their_folders() {
    let mut w = World::mounted(2);
    ["a", "b", "c"].iter().for_each(|d| drop(w.mkdir(0, d).expect("made")));
    w.put(0, "a/f", "one");
    w.link(0, "a/f", "b/g").expect("linked");
    snap(&mut w, 0, "b", "s");
    w.put(1, "a/f", "two");
    w.unlink(0, "a/f").expect("unlinked");
    snap(&mut w, 0, "c", "s");
    w.put(1, "b/g", "six");
    for _ in 0..2 {
        assert_eq!(w.get(1, "b/.snap/s/g").as_deref(), Ok("one"));
        assert_eq!(w.get(0, "b/g").as_deref(), Ok("six"));
        w.pass(Duration::from_secs(5));
        w.restart();
    }
    w.unlink(0, "b/g").expect("unlinked");
    for _ in 0..2 {
        assert_eq!(w.get(1, "b/.snap/s/g").as_deref(), Ok("one"));
        w.pass(Duration::from_secs(5));
        w.restart();
    }
}

/// What was moved out of a folder is in its snapshots still, and not in later ones.
#[test]
fn a_move_between_realms_keeps_both() {
    let mut w = World::mounted(2);
    ["a", "b", "a/d"].iter().for_each(|d| drop(w.mkdir(0, d).expect("made")));
    w.put(0, "a/d/f", "one");
    w.put(0, "a/g", "plain");
    let open = w.open(1, "a/d/f", 2).expect("open");
    snap(&mut w, 0, "a", "s");
    snap(&mut w, 0, "b", "s");
    w.rename(0, "a/d", "b/d").expect("moved");
    w.rename(0, "a/g", "b/g").expect("moved");
    w.write(1, open, 0, "two");
    w.put(0, "b/g", "other");
    let b = tree(&mut w, 0, "b");
    snap(&mut w, 0, "b", "t");
    snap(&mut w, 0, "a", "t");
    w.write(1, open, 0, "six");
    w.put(0, "b/g", "again");
    w.unlink(0, "b/g").expect("unlinked");
    for _ in 0..2 {
        for i in [0, 1] {
            let old = BTreeMap::from([
                ("d".to_owned(), "/".to_owned()),
                ("d/f".to_owned(), "one".to_owned()),
                ("g".to_owned(), "plain".to_owned()),
            ]);
            assert_eq!(tree(&mut w, i, "a/.snap/s"), old, "client {i}");
            assert_eq!(tree(&mut w, i, "b/.snap/t"), b, "client {i}");
            assert!(tree(&mut w, i, "b/.snap/s").is_empty() && tree(&mut w, i, "a/.snap/t").is_empty());
            assert_eq!(w.get(i, "b/d/f").as_deref(), Ok("six"));
        }
        w.pass(Duration::from_secs(5));
        w.restart();
    }
}

/// What was made after the last snapshot of where it was, and moves while it is open, is in later snapshots
/// of where it is.
#[test]
fn an_open_file_that_moves_is_in_the_snapshots_of_its_new_place() {
    let mut w = World::mounted(2);
    ["b", "a"].iter().for_each(|d| drop(w.mkdir(0, d).expect("made")));
    ["b", "a"].iter().for_each(|d| snap(&mut w, 0, d, "s"));
    w.mkdir(0, "a/d").expect("made");
    let open = w.create(1, "a/d/f").expect("made");
    w.write(1, open, 0, "one");
    w.rename(0, "a/d", "b/d").expect("moved");
    snap(&mut w, 0, "b", "t");
    w.write(1, open, 0, "two");
    assert_eq!(w.get(0, "b/.snap/t/d/f").as_deref(), Ok("one"));
    assert_eq!(w.get(0, "b/d/f").as_deref(), Ok("two"));
}

/// When its snapshots are gone, nothing is left of what was removed.
#[test]
fn removed_snapshots_leave_nothing() {
    let mut w = World::mounted(1);
    w.mkdir(0, "d").expect("made");
    w.mkdir(0, "d/e").expect("made");
    w.put(0, "d/e/f", "one");
    w.put(0, "d/g", "two");
    w.link(0, "d/g", "d/h").expect("linked");
    snap(&mut w, 0, "d", "a");
    w.put(0, "d/e/f", "new");
    ["d/e/f", "d/g", "d/h"].iter().for_each(|f| drop(w.unlink(0, f).expect("unlinked")));
    w.rmdir(0, "d/e").expect("removed");
    w.pass(Duration::from_secs(10));
    assert!(w.clones.count() > 0, "something is kept");
    assert!(w.server.cache_view().strays > 0, "something is kept");
    w.restart();
    w.rmdir(0, "d/.snap/a").expect("removed");
    w.rmdir(0, "d").expect("removed");
    w.ok(0, Call::Unmount);
    w.pass(Duration::from_secs(20));
    assert_eq!(w.clones.count(), 0);
    assert!(w.objects.0.keys().all(|o| o.pool != crate::model::DATA), "{:?}", w.objects.0.keys());
    assert_eq!(w.server.cache_view().strays, 0);
}

#[test]
fn sums_and_times_of_snapshots_are_told() {
    let mut w = World::mounted(1);
    w.mkdir(0, "d").expect("made");
    w.put(0, "d/f", "12345");
    w.pass(Duration::from_secs(8));
    snap(&mut w, 0, "d", "a");
    snap(&mut w, 0, "d", "b");
    w.put(0, "d/g", "123");
    w.pass(Duration::from_secs(8));
    let get = |w: &mut World, path: &str, n: &str| {
        let node = w.node(0, path);
        match w.ok(0, Call::GetXattr { node, name: name(n) }) {
            Answer::Value(v) => String::from_utf8(v.to_vec()).expect("text"),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(get(&mut w, "", "ceph.dir.rsnaps"), "2");
    assert_eq!(get(&mut w, "d", "ceph.dir.rbytes"), "8");
    assert_eq!(get(&mut w, "d/.snap/a", "ceph.dir.rbytes"), "5");
    assert!(get(&mut w, "d/.snap/a", "ceph.snap.btime").starts_with("17000000"));
    w.rmdir(0, "d/.snap/a").expect("removed");
    w.pass(Duration::from_secs(3));
    w.restart();
    assert_eq!(get(&mut w, "", "ceph.dir.rsnaps"), "1");
    let node = w.node(0, "d/.snap/b");
    let Answer::Attr(b) = w.ok(0, Call::GetAttr { node, mask: Caps::FILE_SHARED }) else {
        panic!("attributes")
    };
    assert_eq!((b.nfiles, b.rbytes), (1, 5));
}

/// The server dies before any of its operations: the snapshot is there whole, or not yet.
#[test]
fn the_server_dies_at_every_write_of_snapshots() {
    let mut at = 0;
    loop {
        let mut w = World::mounted(2);
        w.mkdir(0, "d").expect("made");
        let open = w.create(1, "d/open").expect("made");
        w.write(1, open, 0, "old");
        w.put(0, "d/f", "one");
        w.dies_in = Some(at);
        snap(&mut w, 0, "d", "a");
        w.write(1, open, 0, "newer");
        w.put(0, "d/f", "two!");
        w.rename(0, "d/f", "d/g").expect("renamed");
        snap(&mut w, 0, "d", "b");
        w.unlink(0, "d/g").expect("unlinked");
        w.rmdir(0, "d/.snap/a").expect("removed");
        snap(&mut w, 0, "d", "c");
        let has_died = w.deaths > 0;
        w.dies_in = None;
        for round in 0..2 {
            for i in [0, 1] {
                let of = |text: &[(&str, &str)]| -> BTreeMap<String, String> {
                    text.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
                };
                let note = format!("at {at}, {round}, client {i}");
                assert_eq!(w.list(i, "d/.snap"), ["b", "c"], "{note}");
                assert_eq!(tree(&mut w, i, "d/.snap/b"), of(&[("open", "newer"), ("g", "two!")]), "{note}");
                assert_eq!(tree(&mut w, i, "d/.snap/c"), of(&[("open", "newer")]), "{note}");
            }
            w.pass(Duration::from_secs(3));
            w.restart();
        }
        w.server.assert_idle();
        if !has_died {
            break;
        }
        at += 1;
        assert!(at < 500, "the script ends");
    }
    assert!(at > 5, "it wrote something: {at}");
}

const NAMES: [&str; 3] = ["a", "b", "c"];

fn some_path(r: &mut Random, depth: usize) -> String {
    (0..=depth).map(|_| NAMES[r.below(3)]).collect::<Vec<_>>().join("/")
}

/// What has been done at random, and what snapshots have to show.
struct Play {
    w: World,
    r: Random,
    kept: Kept,
    last: usize,
    open: Vec<(usize, cephfs::Handle)>,
}

impl Play {
    fn is_dir(&mut self, i: usize, path: &str) -> bool {
        path.is_empty() || self.w.stat(i, path).is_ok_and(|a| a.is_dir())
    }

    fn is_file(&mut self, i: usize, path: &str) -> bool {
        self.w.stat(i, path).is_ok_and(|a| a.is_file())
    }

    /// A path whose folder is there.
    fn some_path(&mut self, i: usize) -> Option<String> {
        let depth = self.r.below(3);
        let path = some_path(&mut self.r, depth);
        let up = path.rsplit_once('/').map_or("", |(up, _)| up).to_owned();
        self.is_dir(i, &up).then_some(path)
    }

    fn change(&mut self, i: usize, n: usize) -> Option<()> {
        let path = self.some_path(i)?;
        match self.r.below(14) {
            0 | 1 => drop(self.w.mkdir(i, &path)),
            2..=4 if !self.is_dir(i, &path) => {
                let handle = self.w.create(i, &path).expect("made");
                self.write(i, handle, n);
                self.w.close(i, handle);
            }
            5 => drop(self.w.unlink(i, &path)),
            6 => drop(self.w.rmdir(i, &path)),
            7 | 8 => {
                let to = self.some_path(i)?;
                drop(self.w.rename(i, &path, &to));
            }
            9 if self.is_file(i, &path) => {
                let to = self.some_path(i)?;
                drop(self.w.link(i, &path, &to));
            }
            10 => {
                let node = self.w.stat(i, &path).ok()?.node;
                let size = self.r.below(5) as u64;
                let set = SetAttr { mask: SetAttr::SIZE, size, ..SetAttr::default() };
                drop(self.w.call(i, Call::SetAttr { node, set }));
            }
            11 if self.is_file(i, &path) => {
                self.open.extend(self.w.open(i, &path, 2).map(|handle| (i, handle)));
                if self.open.len() > 4 {
                    let (i, handle) = self.open.remove(0);
                    self.w.close(i, handle);
                }
            }
            _ => {
                let at = self.r.below(self.open.len().max(1));
                let (i, handle) = self.open.get(at).copied()?;
                self.write(i, handle, n);
            }
        }
        Some(())
    }

    fn write(&mut self, i: usize, handle: cephfs::Handle, n: usize) {
        let text = format!("{n}{}", "x".repeat(self.r.below(6)));
        self.w.write(i, handle, self.r.below(4) as u64, &text);
    }

    fn snapshot(&mut self, i: usize) -> Option<()> {
        let path = self.some_path(i)?;
        if !self.is_dir(i, &path) {
            return None;
        }
        self.last += 1;
        let n = format!("s{}", self.last);
        let ino = self.w.node(i, &path).ino;
        let was = tree(&mut self.w, i, &path);
        let by = self.r.below(3);
        snap(&mut self.w, by, &path, &n);
        self.kept.insert((n, ino), was);
        Some(())
    }

    fn remove_snapshot(&mut self, i: usize) -> Option<()> {
        let at = self.r.below(self.kept.len().max(1));
        let (n, ino) = self.kept.keys().nth(at).cloned()?;
        let path = find(&mut self.w, i, ino)?;
        self.w.rmdir(i, &format!("{path}/.snap/{n}")).expect("removed");
        self.kept.retain(|(name, _), _| *name != n);
        Some(())
    }
}

/// Random changes and snapshots of random folders.
fn run(seed: u64, calls: usize, deaths: bool, settings: mds::Settings) {
    let mut w = World::with(settings, &["allow *"; 3]).shuffled(seed);
    (0..3).for_each(|i| drop(w.ok(i, Call::Mount { path: name("") })));
    NAMES.iter().for_each(|n| drop(w.mkdir(0, n)));
    let r = Random(seed.wrapping_mul(91).wrapping_add(7));
    let mut p = Play { w, r, kept: Kept::new(), last: 0, open: Vec::new() };
    for n in 0..calls {
        if deaths && p.w.dies_in.is_none() && p.r.below(8) == 0 {
            p.w.dies_in = Some(p.r.below(25));
        }
        let i = p.r.below(3);
        let _ = match p.r.below(18) {
            0 | 1 => p.snapshot(i),
            2 => p.remove_snapshot(i),
            _ => p.change(i, n),
        };
        if n % 20 == 19 {
            p.w.pass(Duration::from_secs(1 + p.r.below(3) as u64));
            check(&mut p.w, &p.kept, i, seed, n);
        }
    }
    p.w.dies_in = None;
    (0..3).for_each(|i| check(&mut p.w, &p.kept, i, seed, calls));
    p.open.drain(..).for_each(|(i, handle)| p.w.close(i, handle));
    p.w.pass(Duration::from_secs(6));
    (0..3).for_each(|i| check(&mut p.w, &p.kept, i, seed, calls));
    p.w.restart();
    check(&mut p.w, &p.kept, 1, seed, calls);
    p.w.server.assert_idle();
}

/// Where a folder is now.
fn find(w: &mut World, i: usize, ino: types::Ino) -> Option<String> {
    let mut dirs = vec![String::new()];
    while let Some(dir) = dirs.pop() {
        for n in w.list(i, &dir) {
            let path = if dir.is_empty() { n } else { format!("{dir}/{n}") };
            let attr = w.stat(i, &path).expect("there");
            if attr.node.ino == ino {
                return Some(path);
            }
            if attr.is_dir() {
                dirs.push(path);
            }
        }
    }
    None
}

/// By snapshot and folder.
type Kept = BTreeMap<(String, types::Ino), BTreeMap<String, String>>;

fn check(w: &mut World, kept: &Kept, i: usize, seed: u64, n: usize) {
    for ((snap, ino), was) in kept {
        // A folder that has snapshots cannot be removed, but it may be anywhere.
        let path = find(w, i, *ino).unwrap_or_else(|| panic!("seed {seed}, {n}: {ino} is gone"));
        let now = tree(w, i, &format!("{path}/.snap/{snap}"));
        assert_eq!(&now, was, "seed {seed}, {n}: client {i}: {path} {snap}");
    }
}

#[test]
fn random_changes_leave_snapshots_as_they_were() {
    crate::random::seeds(4).for_each(|seed| run(seed, 160, false, mds::Settings::default()));
}

#[test]
fn random_changes_leave_snapshots_while_servers_die() {
    crate::random::seeds(4).for_each(|seed| run(seed, 120, true, mds::Settings::default()));
}

#[test]
fn random_changes_leave_snapshots_in_little_memory() {
    let settings =
        mds::Settings { max_inodes: 20, max_log_events: 10, segment_events: 20, ..mds::Settings::default() };
    crate::random::seeds(3).for_each(|seed| run(seed, 120, seed % 2 == 0, settings.clone()));
}

//! Several clients at once: every call ends, nobody holds what contradicts another one, and in the end all of
//! them, and the next server, see the same.

use std::collections::BTreeMap;
use std::time::Duration;

use cephfs::{Answer, Call, Handle, Node, Ticket};
use messages::fs::SetAttr;
use types::Ino;

use crate::model::Random;
use crate::world::{World, name};

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// What one client knows of the tree: folders and files that it has met, handles that it has open.
#[derive(Default)]
struct Known {
    dirs: Vec<Node>,
    files: Vec<Node>,
    handles: Vec<Handle>,
}

fn some<T: Copy>(r: &mut Random, all: &[T]) -> Option<T> {
    (!all.is_empty()).then(|| all[r.below(all.len())])
}

fn some_call(r: &mut Random, k: &mut Known) -> Call {
    let dir = some(r, &k.dirs).unwrap_or(Node::ROOT);
    let to_dir = some(r, &k.dirs).unwrap_or(Node::ROOT);
    let (n, to_name) = (name(NAMES[r.below(4)]), name(NAMES[r.below(4)]));
    let file = some(r, &k.files);
    let handle = some(r, &k.handles);
    match (r.below(16), file, handle) {
        (0 | 1, ..) => Call::Mkdir { dir, name: n, mode: 0o755 },
        (2 | 3, ..) => Call::Create { dir, name: n, mode: 0o644, flags: 2 },
        (4, ..) => Call::Unlink { dir, name: n },
        (5, ..) => Call::Rmdir { dir, name: n },
        (6 | 7, ..) => Call::Rename { dir, name: n, to_dir, to_name },
        (8, Some(node), _) => Call::Link { node, dir, name: n },
        (9, Some(node), _) => {
            let set = SetAttr { mask: SetAttr::SIZE, size: r.below(9) as u64, ..SetAttr::default() };
            Call::SetAttr { node, set }
        }
        (10, Some(node), _) => Call::Open { node, flags: r.below(3) as u32 },
        (11, _, Some(handle)) => Call::Write { handle, offset: Some(r.below(9) as u64), data: to_name },
        (12, _, Some(handle)) => Call::Read { handle, offset: 0, length: 64 },
        (13, _, Some(handle)) => {
            k.handles.retain(|h| *h != handle);
            Call::Close { handle }
        }
        (14, ..) => Call::Readdir { dir, from: None },
        _ => Call::Lookup { dir, name: n },
    }
}

fn note(k: &mut Known, answer: Answer) {
    let attr = match answer {
        Answer::Opened { handle, attr } => {
            k.handles.push(handle);
            attr
        }
        Answer::Attr(attr) => attr,
        _ => return,
    };
    let list = if attr.is_dir() { &mut k.dirs } else { &mut k.files };
    if !list.contains(&attr.node) {
        list.push(attr.node);
    }
    if list.len() > 8 {
        list.remove(0);
    }
}

type Tree = BTreeMap<String, (Ino, u32, u64)>;

/// The whole tree: inode, links and size by path.
fn tree(w: &mut World, i: usize) -> Tree {
    let mut tree = Tree::new();
    let mut dirs = vec![String::new()];
    while let Some(dir) = dirs.pop() {
        for n in w.list(i, &dir) {
            let path = if dir.is_empty() { n } else { format!("{dir}/{n}") };
            let attr = w.stat(i, &path).unwrap_or_else(|e| panic!("client {i}: {path}: {e}"));
            if attr.is_dir() {
                dirs.push(path.clone());
            }
            let size = if attr.is_dir() { attr.nfiles + attr.nsubdirs } else { attr.size };
            tree.insert(path, (attr.node.ino, attr.nlink, size));
        }
    }
    tree
}

fn run(seed: u64, rounds: usize, deaths: bool, settings: mds::Settings) {
    const CLIENTS: usize = 4;
    let mut w = World::with(settings, &["allow *"; CLIENTS]).shuffled(seed);
    (0..CLIENTS).for_each(|i| drop(w.ok(i, Call::Mount { path: name("") })));
    let mut r = Random(seed.wrapping_mul(31).wrapping_add(3));
    let mut known: Vec<Known> = (0..CLIENTS).map(|_| Known::default()).collect();
    known.iter_mut().for_each(|k| k.dirs.push(Node::ROOT));
    for round in 0..rounds {
        if deaths && w.dies_in.is_none() && r.below(6) == 0 {
            w.dies_in = Some(r.below(25));
        }
        let mut tickets: Vec<(usize, Ticket)> = Vec::new();
        for (i, k) in known.iter_mut().enumerate() {
            for _ in 0..1 + r.below(2) {
                let call = some_call(&mut r, k);
                tickets.push((i, w.submit(i, call)));
                for _ in 0..r.below(6) {
                    w.step();
                }
            }
        }
        for (i, ticket) in tickets {
            if let Ok(answer) = w.wait(i, ticket) {
                note(&mut known[i], answer);
            }
        }
        if round % 10 == 9 {
            w.pass(Duration::from_secs(1 + r.below(7) as u64));
        }
    }
    w.dies_in = None;
    for (i, k) in known.iter_mut().enumerate() {
        k.handles.drain(..).for_each(|handle| w.close(i, handle));
    }
    w.pass(Duration::from_secs(8));
    let first = tree(&mut w, 0);
    for i in 1..CLIENTS {
        assert_eq!(tree(&mut w, i), first, "seed {seed}: client {i}");
    }
    let inos: BTreeMap<Ino, u32> = first.values().fold(BTreeMap::new(), |mut all, (ino, ..)| {
        *all.entry(*ino).or_default() += 1;
        all
    });
    for (path, (ino, nlink, _)) in &first {
        assert_eq!(inos[ino], *nlink, "seed {seed}: links of {path}");
    }
    w.restart();
    assert_eq!(tree(&mut w, 2), first, "seed {seed}: after the end");
    w.server.assert_idle();
}

#[test]
fn clients_work_together() {
    crate::random::seeds(4).for_each(|seed| run(seed, 40, false, mds::Settings::default()));
}

#[test]
fn clients_work_together_while_servers_die() {
    crate::random::seeds(4).for_each(|seed| run(seed, 40, true, mds::Settings::default()));
}

#[test]
fn clients_work_together_in_little_memory() {
    let settings =
        mds::Settings { max_inodes: 15, max_log_events: 10, segment_events: 15, ..mds::Settings::default() };
    crate::random::seeds(3).for_each(|seed| run(seed, 40, seed % 2 == 0, settings.clone()));
}

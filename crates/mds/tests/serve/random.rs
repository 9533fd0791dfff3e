//! Random calls of several clients against a model of the namespace; the server dies now and then.

use std::collections::BTreeMap;
use std::time::Duration;

use types::Errno;

use crate::model::Random;
use crate::world::World;

#[derive(Debug, Clone, PartialEq)]
enum Entry {
    Dir,
    /// Contents by number: hard links share them.
    File(usize),
}

#[derive(Default)]
struct Model {
    entries: BTreeMap<String, Entry>,
    files: Vec<String>,
}

fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(dir, _)| dir)
}

impl Model {
    fn is_dir(&self, path: &str) -> bool {
        path.is_empty() || self.entries.get(path) == Some(&Entry::Dir)
    }

    fn children(&self, path: &str) -> Vec<String> {
        self.entries
            .keys()
            .filter(|p| parent(p) == path && !p.is_empty())
            .map(|p| p.rsplit('/').next().unwrap_or(p).to_owned())
            .collect()
    }

    fn links(&self, file: usize) -> usize {
        self.entries.values().filter(|e| **e == Entry::File(file)).count()
    }

    fn remove(&mut self, path: &str, dir: bool) -> Result<(), Errno> {
        match self.entries.get(path).ok_or(Errno::ENOENT)? {
            Entry::Dir if !dir => Err(Errno::EISDIR),
            Entry::File(_) if dir => Err(Errno::ENOTDIR),
            Entry::Dir if !self.children(path).is_empty() => Err(Errno::ENOTEMPTY),
            _ => {
                self.entries.remove(path);
                Ok(())
            }
        }
    }

    fn rename(&mut self, old: &str, new: &str) -> Result<(), Errno> {
        let entry = self.entries.get(old).cloned().ok_or(Errno::ENOENT)?;
        if old == new {
            return Ok(());
        }
        if new.starts_with(&format!("{old}/")) {
            return Err(Errno::EINVAL);
        }
        match (&entry, self.entries.get(new)) {
            (Entry::Dir, Some(Entry::File(_))) => return Err(Errno::ENOTDIR),
            (Entry::File(_), Some(Entry::Dir)) => return Err(Errno::EISDIR),
            (Entry::Dir, Some(Entry::Dir)) if !self.children(new).is_empty() => return Err(Errno::ENOTEMPTY),
            (Entry::File(a), Some(Entry::File(b))) if a == b => return Ok(()),
            _ => {}
        }
        let moved: Vec<String> =
            self.entries.keys().filter(|p| *p == old || p.starts_with(&format!("{old}/"))).cloned().collect();
        for path in moved {
            if let Some(entry) = self.entries.remove(&path) {
                self.entries.insert(format!("{new}{}", &path[old.len()..]), entry);
            }
        }
        Ok(())
    }
}

fn some_path(r: &mut Random, model: &Model, depth: usize) -> String {
    let mut path = String::new();
    for level in 0..=depth {
        let part = ["a", "b", "c", "d"][r.below(4)];
        let next = if path.is_empty() { part.to_owned() } else { format!("{path}/{part}") };
        path = next;
        if level < depth && !model.is_dir(&path) {
            break;
        }
    }
    path
}

fn outcome<T>(result: Result<T, Errno>) -> Result<(), Errno> {
    result.map(drop)
}

fn one(w: &mut World, model: &mut Model, r: &mut Random, i: usize, seed: u64) {
    let depth = r.below(3);
    let path = some_path(r, model, depth);
    if !model.is_dir(parent(&path)) {
        return;
    }
    let what = r.below(12);
    let note = format!("seed {seed}: client {i}: {what} {path}");
    match what {
        0 | 1 => {
            let want = if model.entries.contains_key(&path) { Err(Errno::EEXIST) } else { Ok(()) };
            assert_eq!(outcome(w.mkdir(i, &path)), want, "{note}");
            model.entries.entry(path).or_insert(Entry::Dir);
        }
        2..=4 => {
            if model.entries.get(&path) == Some(&Entry::Dir) {
                return;
            }
            let text = format!("{note} {}", "x".repeat(r.below(20)));
            let handle = w.create(i, &path).unwrap_or_else(|e| panic!("{note}: {e}"));
            let file = match model.entries.get(&path) {
                Some(Entry::File(file)) => *file,
                _ => {
                    model.files.push(String::new());
                    model.files.len() - 1
                }
            };
            model.entries.insert(path, Entry::File(file));
            w.write(i, handle, 0, &text);
            let old = &model.files[file];
            let rest = old.get(text.len().min(old.len())..).unwrap_or("").to_owned();
            model.files[file] = format!("{text}{rest}");
            w.close(i, handle);
        }
        5 => assert_eq!(outcome(w.unlink(i, &path)), model.remove(&path, false), "{note}"),
        6 => assert_eq!(outcome(w.rmdir(i, &path)), model.remove(&path, true), "{note}"),
        7 | 8 => {
            let depth = r.below(3);
            let to = some_path(r, model, depth);
            if model.is_dir(parent(&to)) {
                let got = outcome(w.rename(i, &path, &to));
                assert_eq!(got, model.rename(&path, &to), "{note} to {to}");
            }
        }
        9 => {
            let depth = r.below(2);
            let to = some_path(r, model, depth);
            if let (Some(Entry::File(file)), true) =
                (model.entries.get(&path).cloned(), model.is_dir(parent(&to)))
            {
                let want = if model.entries.contains_key(&to) { Err(Errno::EEXIST) } else { Ok(()) };
                assert_eq!(outcome(w.link(i, &path, &to)), want, "{note} to {to}");
                model.entries.entry(to).or_insert(Entry::File(file));
            }
        }
        10 => check_one(w, model, i, &path, &note),
        _ => {
            if model.is_dir(&path) {
                assert_eq!(w.list(i, &path), model.children(&path), "{note}");
            }
        }
    }
}

fn check_one(w: &mut World, model: &Model, i: usize, path: &str, note: &str) {
    match model.entries.get(path) {
        None => assert_eq!(w.stat(i, path), Err(Errno::ENOENT), "{note}"),
        Some(Entry::Dir) => {
            let attr = w.stat(i, path).unwrap_or_else(|e| panic!("{note}: {e}"));
            assert!(attr.is_dir(), "{note}");
        }
        Some(Entry::File(file)) => {
            let attr = w.stat(i, path).unwrap_or_else(|e| panic!("{note}: {e}"));
            let want = (model.links(*file), model.files[*file].len());
            assert_eq!((attr.nlink as usize, attr.size as usize), want, "{note}");
            assert_eq!(w.get(i, path).as_ref(), Ok(&model.files[*file]), "{note}");
        }
    }
}

fn check_all(w: &mut World, model: &Model, i: usize, note: &str) {
    let dirs: Vec<String> =
        model.entries.iter().filter(|(_, e)| **e == Entry::Dir).map(|(p, _)| p.clone()).collect();
    for dir in dirs.iter().chain([&String::new()]) {
        assert_eq!(w.list(i, dir), model.children(dir), "{note}: {dir}");
    }
    for path in model.entries.keys() {
        check_one(w, model, i, path, note);
    }
}

fn run(seed: u64, calls: usize, deaths: bool, settings: mds::Settings) {
    let mut w = World::with(settings, &["allow *"; 3]).shuffled(seed);
    (0..3).for_each(|i| drop(w.ok(i, cephfs::Call::Mount { path: crate::world::name("") })));
    let mut r = Random(seed.wrapping_mul(77).wrapping_add(5));
    let mut model = Model::default();
    for n in 0..calls {
        if deaths && w.dies_in.is_none() && r.below(12) == 0 {
            w.dies_in = Some(r.below(20));
        }
        let i = r.below(3);
        one(&mut w, &mut model, &mut r, i, seed);
        if n % 40 == 39 {
            w.pass(Duration::from_secs(2));
        }
    }
    w.dies_in = None;
    w.pass(Duration::from_secs(8));
    for i in 0..3 {
        check_all(&mut w, &model, i, &format!("seed {seed}: at the end, client {i}"));
    }
    w.restart();
    check_all(&mut w, &model, 1, &format!("seed {seed}: after the end"));
    w.server.assert_idle();
}

/// So many seeds, from the one that `MDS_SEED` says on: more of them are for nights.
pub fn seeds(few: u64) -> std::ops::Range<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let first = number("MDS_SEED").unwrap_or(0);
    first..first + number("MDS_SEEDS").unwrap_or(few)
}

#[test]
fn clients_agree_with_a_model() {
    seeds(4).for_each(|seed| run(seed, 150, false, mds::Settings::default()));
}

#[test]
fn clients_agree_with_a_model_while_servers_die() {
    seeds(4).for_each(|seed| run(seed, 120, true, mds::Settings::default()));
}

#[test]
fn clients_agree_with_a_model_in_little_memory() {
    let settings =
        mds::Settings { max_inodes: 20, max_log_events: 10, segment_events: 20, ..mds::Settings::default() };
    seeds(3).for_each(|seed| run(seed, 120, seed % 2 == 0, settings.clone()));
}

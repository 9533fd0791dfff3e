//! Random maps from a seed, and the real crushtool to compare with.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crush::{Alg, Bucket, ChooseArg, ChooseArgMap, CrushMap, Rule, Step, Tunables};

/// Marsaglia's xorshift64*: the tests' only source of chance.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    /// From 0 up to and without `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}

/// In/out weights of devices that are not wholly in, in sixteenths, so that crushtool reads exactly the same numbers.
pub type Reweights = Vec<(i32, u32)>;

const ALGS: [Alg; 5] = [Alg::Straw2, Alg::Straw, Alg::Tree, Alg::List, Alg::Uniform];

/// A hierarchy of one to four levels of buckets with mixed algorithms and weights, a rule of each kind, random
/// tunables, and sometimes weight sets.
pub fn random_map(seed: u64) -> (CrushMap, Reweights) {
    let rng = &mut Random::new(seed);
    let mut map = CrushMap { tunables: random_tunables(rng), ..CrushMap::default() };
    let levels = 1 + rng.below(4) as u16;
    for (id, name) in ["osd", "host", "rack", "room", "root"].iter().enumerate() {
        map.type_names.insert(id as i32, (*name).to_owned());
    }
    let mixed = rng.chance(70);
    let common = rng.pick(&ALGS);
    let mut devices = 0;
    let mut below: Vec<(i32, u32)> = Vec::new();
    for level in 1..=levels {
        let top = level == levels;
        let count = if top { 1 } else { 2 + rng.below(5) * u64::from(levels - level + 1) };
        let mut made = Vec::new();
        for i in 0..count {
            let alg = if mixed { rng.pick(&ALGS) } else { common };
            let items = if level == 1 {
                let n = rng.below(if top { 20 } else { 7 }) + u64::from(!rng.chance(5));
                (0..n).map(|_| device(rng, &mut devices, alg)).collect()
            } else {
                share(&below, i as usize, count as usize)
            };
            made.push(add(&mut map, rng, alg, level, &items));
        }
        below = made;
    }
    let root = below[0].0;
    add_rules(&mut map, rng, root, levels);
    if rng.chance(35) {
        let set = random_choose_args(&map, rng);
        map.choose_args.insert(if rng.chance(50) { 0 } else { -1 }, set);
    }
    map.finalize();
    map.validate().expect("the generator makes valid maps");
    let reweights = (0..map.max_devices).filter(|_| rng.chance(20)).collect::<Vec<_>>();
    let reweights = reweights.into_iter().map(|d| (d, rng.below(16) as u32)).collect();
    (map, reweights)
}

fn random_tunables(rng: &mut Random) -> Tunables {
    let names = ["legacy", "argonaut", "bobtail", "firefly", "hammer", "jewel", "optimal"];
    let mut t = Tunables::JEWEL.with_profile(rng.pick(&names)).expect("a profile");
    if rng.chance(30) {
        t.choose_local_tries = rng.below(4) as u32;
        t.choose_local_fallback_tries = rng.below(4) as u32;
        t.choose_total_tries = 3 + rng.below(60) as u32;
        t.chooseleaf_vary_r = rng.below(5) as u8;
        t.chooseleaf_stable = rng.below(2) as u8;
        t.straw_calc_version = rng.below(2) as u8;
    }
    t
}

fn device(rng: &mut Random, devices: &mut i32, alg: Alg) -> (i32, u32) {
    // Some ids stay unused.
    *devices += 1 + i32::from(rng.chance(5));
    // A tree without weight leads Ceph's tree walk out of its bounds, so trees get no zeros.
    let zero = rng.chance(6) && alg != Alg::Tree;
    let weight = if zero { 0 } else { 0x1000 + rng.below(0x40000) as u32 };
    (*devices - 1, weight)
}

fn share(below: &[(i32, u32)], i: usize, of: usize) -> Vec<(i32, u32)> {
    below.iter().enumerate().filter(|(k, _)| k % of == i).map(|(_, c)| *c).collect()
}

fn add(map: &mut CrushMap, rng: &mut Random, alg: Alg, level: u16, items: &[(i32, u32)]) -> (i32, u32) {
    // Leave slots empty now and then.
    if rng.chance(10) {
        map.buckets.push(None);
    }
    let alg = if alg == Alg::Tree && items.iter().any(|(_, w)| *w == 0) { Alg::Straw2 } else { alg };
    let id = CrushMap::bucket_id(map.buckets.len());
    let bucket = Bucket::new(alg, id, level, items, map.tunables.straw_calc_version).expect("a bucket");
    let weight = bucket.weight;
    map.buckets.push(Some(bucket));
    map.item_names.insert(id, format!("b{}", -id));
    for (device, _) in items.iter().filter(|(i, _)| *i >= 0) {
        map.item_names.insert(*device, format!("osd.{device}"));
    }
    (id, weight)
}

fn add_rules(map: &mut CrushMap, rng: &mut Random, root: i32, levels: u16) {
    let leaf_level = rng.below(u64::from(levels)) as i32;
    let n = |rng: &mut Random| rng.pick(&[0, 0, 0, 2, 3, -1]);
    let mut programs = vec![
        vec![Step::new(Step::CHOOSELEAF_FIRSTN, n(rng), leaf_level)],
        vec![Step::new(Step::CHOOSELEAF_INDEP, n(rng), leaf_level)],
        vec![Step::new(Step::CHOOSE_FIRSTN, n(rng), 0)],
        vec![Step::new(Step::CHOOSE_INDEP, n(rng), 0)],
    ];
    if levels > 1 {
        let mid = 1 + rng.below(u64::from(levels) - 1) as i32;
        let (all, leaf) = (rng.pick(&[0, 2, 3]), rng.pick(&[1, 2]));
        let firstn = [Step::new(Step::CHOOSE_FIRSTN, all, mid), Step::new(Step::CHOOSELEAF_FIRSTN, leaf, 0)];
        let indep = [Step::new(Step::CHOOSE_INDEP, all, mid), Step::new(Step::CHOOSE_INDEP, leaf, 0)];
        programs.push(firstn.to_vec());
        programs.push(indep.to_vec());
    }
    for (i, program) in programs.into_iter().enumerate() {
        let mut steps = Vec::new();
        if rng.chance(40) {
            steps.push(Step::new(Step::SET_CHOOSE_TRIES, 1 + rng.below(100) as i32, 0));
            steps.push(Step::new(Step::SET_CHOOSELEAF_TRIES, rng.below(8) as i32, 0));
        }
        if rng.chance(15) {
            steps.push(Step::new(Step::SET_CHOOSELEAF_VARY_R, rng.below(4) as i32, 0));
            steps.push(Step::new(Step::SET_CHOOSELEAF_STABLE, rng.below(2) as i32, 0));
            steps.push(Step::new(Step::SET_CHOOSE_LOCAL_TRIES, rng.below(3) as i32, 0));
            steps.push(Step::new(Step::SET_CHOOSE_LOCAL_FALLBACK_TRIES, rng.below(6) as i32, 0));
        }
        let twice = rng.chance(15);
        for _ in 0..1 + i32::from(twice) {
            steps.push(Step::take(root));
            steps.extend(&program);
            steps.push(Step::emit());
        }
        let rule_type = if i % 2 == 0 { 1 } else { 3 };
        map.rules.push(Some(Rule { ruleset: i as u8, rule_type, min_size: 1, max_size: 10, steps }));
        map.rule_names.insert(i as i32, format!("rule{i}"));
    }
}

fn random_choose_args(map: &CrushMap, rng: &mut Random) -> ChooseArgMap {
    let positions = 1 + rng.below(3) as usize;
    let mut args = vec![ChooseArg::default(); map.buckets.len()];
    for (arg, bucket) in args.iter_mut().zip(&map.buckets) {
        let Some(b) = bucket.as_ref().filter(|b| b.alg() == Alg::Straw2 && !b.items.is_empty()) else {
            continue;
        };
        if rng.chance(70) {
            let set = |rng: &mut Random| b.items.iter().map(|_| rng.below(0x30000) as u32).collect();
            arg.weight_sets = (0..positions).map(|_| set(rng)).collect();
        }
        if rng.chance(30) {
            arg.ids = b.items.iter().map(|_| rng.below(1000) as i32 - 500).collect();
        }
    }
    ChooseArgMap { args }
}

/// The in/out weights to place with: as crushtool sets them, devices that are nowhere in the map are out.
pub fn placement_weights(map: &CrushMap, reweights: &Reweights) -> Vec<u32> {
    let present = |d: i32| map.buckets.iter().flatten().any(|b| b.items.contains(&d));
    let mut weights: Vec<u32> = (0..map.max_devices).map(|d| if present(d) { 0x10000 } else { 0 }).collect();
    for (device, sixteenths) in reweights {
        weights[*device as usize] = sixteenths * 0x1000;
    }
    weights
}

pub fn crushtool() -> Option<PathBuf> {
    peer("crushtool")
}

/// A tool of real Ceph, if this machine has it. With LOLIGO_REQUIRE_PEERS=1 its absence is a failure.
pub fn peer(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|dir| dir.join(name)).find(|p| p.is_file());
    let required = std::env::var("LOLIGO_REQUIRE_PEERS").is_ok_and(|v| v == "1");
    assert!(found.is_some() || !required, "LOLIGO_REQUIRE_PEERS=1 asks for {name}, which is not on the PATH");
    found
}

/// Runs a tool and fails with its words when it fails.
pub fn run(tool: &Path, args: &[&str]) -> Output {
    let out = Command::new(tool).args(args).output().expect("the tool starts");
    let words = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.success(), "{tool:?} {args:?}: {}\n{words}", out.status);
    out
}

/// A file of this test process, removed on drop.
pub struct TempFile(PathBuf);

impl TempFile {
    pub fn new(name: &str, content: &[u8]) -> Self {
        let path = std::env::temp_dir().join(format!("loligo-crush-{}-{name}", std::process::id()));
        std::fs::write(&path, content).expect("a temporary file");
        Self(path)
    }

    pub fn path(&self) -> &str {
        self.0.to_str().expect("a path in UTF-8")
    }

    pub fn read(&self) -> Vec<u8> {
        std::fs::read(&self.0).expect("the temporary file")
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

pub fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

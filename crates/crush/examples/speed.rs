//! How many inputs per second a core places, beside `crushtool --test` on the same map in the same run:
//!
//!   cargo run --profile ship -p crush --example speed -- [--inputs N] [--json | --alone] [MAP]
//!
//! Without a map it is 504 OSDs in 63 hosts in 9 racks, made by `crushtool --build`; the rule is number 0, three copies.
//! Crushtool is asked for no output at all, so that it counts devices and prints nothing; what it needs for no inputs is
//! taken off. Time is CPU time, ours of this process alone, so that other work on the machine changes little. Before
//! anything is measured, the mappings of 20,000 inputs have to be the same. `--alone` only places, for a profiler.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

use codec::Decode;
use crush::{Batch, CrushMap, Scratch};

/// Windows of each side; the median counts.
const WINDOWS: usize = 3;
const COMPARED: u32 = 20_000;
const BUILD: &str = "--build --num_osds 504 host straw2 8 rack straw2 7 root straw2 0";

fn main() -> ExitCode {
    let (mut inputs, mut json, mut alone, mut path) = (1_000_000u32, false, false, None);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--inputs" => inputs = args.next().and_then(|n| n.parse().ok()).expect("a number"),
            "--json" => json = true,
            "--alone" => alone = true,
            _ => path = Some(PathBuf::from(arg)),
        }
    }
    let made = path.is_none().then(|| std::env::temp_dir().join(format!("crush-{}", std::process::id())));
    let path = path.or(made.clone()).expect("a path");
    if made.is_some() {
        crushtool(&path, "-o", BUILD);
    }
    let map = CrushMap::from_bytes(std::fs::read(&path).expect("readable")).expect("a compiled map");
    let result = if let Some(x) = first_difference(&map, &path) {
        eprintln!("no figure: x {x} is placed differently");
        ExitCode::FAILURE
    } else if alone {
        println!("{:.0} a second", f64::from(inputs) / timed(|| together(&map, inputs)));
        ExitCode::SUCCESS
    } else {
        report(&map, &path, inputs, json);
        ExitCode::SUCCESS
    };
    if let Some(made) = made {
        std::fs::remove_file(made).expect("removed");
    }
    result
}

fn report(map: &CrushMap, path: &Path, inputs: u32, json: bool) {
    let (mut all, mut single, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..WINDOWS {
        single.push(f64::from(inputs) / timed(|| one_by_one(map, inputs)));
        all.push(f64::from(inputs) / timed(|| together(map, inputs)));
        let few = child_seconds(path, 1);
        theirs.push(f64::from(inputs) / (child_seconds(path, inputs) - few).max(1e-9));
    }
    let [all, single, theirs] = [all, single, theirs].map(median);
    let devices = map.max_devices;
    if json {
        println!(
            "{{\"devices\": {devices}, \"inputs\": {inputs}, \"crushtool\": {theirs:.0}, \"one_by_one\": {single:.0}, \
             \"together\": {all:.0}, \"ratio\": {:.2}}}",
            all / theirs
        );
    } else {
        println!("{devices} devices, {inputs} inputs, three copies, placements per second of one core");
        println!("crushtool   {theirs:>10.0}");
        println!("one by one  {single:>10.0}  {:>5.1} times", single / theirs);
        println!("together    {all:>10.0}  {:>5.1} times", all / theirs);
    }
}

fn median(mut list: Vec<f64>) -> f64 {
    list.sort_by(f64::total_cmp);
    list[list.len() / 2]
}

fn one_by_one(map: &CrushMap, inputs: u32) -> u64 {
    let weights = vec![0x10000; map.max_devices as usize];
    let (mut scratch, mut out, mut sum) = (Scratch::default(), Vec::new(), 0);
    for x in 0..inputs {
        map.do_rule_into(0, x as i32, 3, &weights, None, &mut scratch, &mut out);
        sum += out.iter().map(|osd| *osd as u64).sum::<u64>();
    }
    sum
}

fn together(map: &CrushMap, inputs: u32) -> u64 {
    let weights = vec![0x10000; map.max_devices as usize];
    let (mut batch, mut sum) = (Batch::default(), 0);
    let all: Vec<u32> = (0..inputs).collect();
    map.place_all(0, &all, 3, &weights, None, &mut batch, |_, out| {
        sum += out.iter().map(|osd| *osd as u64).sum::<u64>();
    });
    sum
}

/// CPU seconds of this process; wall-clock seconds where there is no /proc.
fn timed(work: impl FnOnce() -> u64) -> f64 {
    let (start, before) = (Instant::now(), own_seconds());
    std::hint::black_box(work());
    match (before, own_seconds()) {
        (Some(a), Some(b)) => b - a,
        _ => start.elapsed().as_secs_f64(),
    }
}

/// Nanoseconds on a core, the first field of schedstat.
fn own_seconds() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/self/schedstat").ok()?;
    text.split(' ').next()?.parse().ok().map(|ns: f64| ns / 1e9)
}

/// User and system seconds of children that ended, in ticks of a hundredth.
fn children_seconds() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/self/stat").ok()?;
    let mut fields = text.rsplit(')').next()?.split_whitespace().skip(13);
    let user: f64 = fields.next()?.parse().ok()?;
    let system: f64 = fields.next()?.parse().ok()?;
    Some((user + system) / 100.0)
}

fn child_seconds(path: &Path, inputs: u32) -> f64 {
    let (start, before) = (Instant::now(), children_seconds());
    crushtool(path, "-i", &format!("--test --rule 0 --num-rep 3 --min-x 0 --max-x {}", inputs - 1));
    match (before, children_seconds()) {
        (Some(a), Some(b)) => b - a,
        _ => start.elapsed().as_secs_f64(),
    }
}

fn crushtool(path: &Path, how: &str, words: &str) -> String {
    let out =
        Command::new("crushtool").arg(how).arg(path).args(words.split(' ')).output().expect("crushtool");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).expect("text")
}

fn first_difference(map: &CrushMap, path: &Path) -> Option<u32> {
    let words = format!("--test --show-mappings --rule 0 --num-rep 3 --min-x 0 --max-x {}", COMPARED - 1);
    let theirs = crushtool(path, "-i", &words);
    let weights = vec![0x10000; map.max_devices as usize];
    let all: Vec<u32> = (0..COMPARED).collect();
    let mut different = (theirs.lines().count() != all.len()).then_some(0);
    let mut lines = theirs.lines();
    map.place_all(0, &all, 3, &weights, None, &mut Batch::default(), |x, out| {
        let osds = out.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        let ours = format!("CRUSH rule 0 x {x} [{osds}]");
        if lines.next() != Some(ours.as_str()) {
            different = different.or(Some(x as u32));
        }
    });
    different
}

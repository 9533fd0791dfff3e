//! How many bytes of data a core encodes and decodes in a second, and how long a change of 4 KiB takes:
//!
//!   cargo run --profile ship -p erasure --example speed -- [--json] [--scalar]
//!       [--chunk BYTES] [--only TECHNIQUE]
//!
//! A chunk is 64 KiB unless said otherwise. Decoding makes as many chunks as the code can lose, the first
//! ones, which hold data: the hardest case. Before a figure counts, the chunks that were made are compared
//! with those that were lost. Time is CPU time, so that other work on the machine changes little; the median
//! of the rounds. `--scalar`: without vectors.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Instant;

use erasure::{ChunkSet, Codec, Profile, Simd};

const SHAPES: [(usize, usize); 5] = [(2, 1), (4, 2), (6, 2), (8, 3), (16, 6)];
const TECHNIQUES: [(&str, &str); 6] = [
    ("jerasure", "reed_sol_van"),
    ("jerasure", "reed_sol_r6_op"),
    ("jerasure", "cauchy_orig"),
    ("jerasure", "cauchy_good"),
    ("isa", "reed_sol_van"),
    ("isa", "cauchy"),
];
const ROUNDS: usize = 5;
/// Of one round; the kernel counts CPU time up to a tick of 4 ms behind.
const ROUND_SECONDS: f64 = 0.06;
/// Bytes of a small overwrite.
const CHANGE: usize = 4096;

struct Figures {
    encode: f64,
    decode: f64,
    /// Planning of a pattern of losses, which is done once for many stripes.
    plan_ns: f64,
    delta_ns: f64,
}

fn main() -> ExitCode {
    let (mut json, mut chunk, mut simd, mut only) = (false, 64 << 10, Simd::Detected, None);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--json" => json = true,
            "--scalar" => simd = Simd::Off,
            "--chunk" => chunk = args.next().and_then(|n| n.parse().ok()).expect("a number of bytes"),
            "--only" => only = args.next(),
            _ => panic!("unknown argument {arg}"),
        }
    }
    if !json {
        println!(
            "chunks of {chunk} bytes; GB of data a second, us for a plan of losses and for a change of {CHANGE} bytes"
        );
    }
    for (plugin, technique) in TECHNIQUES.into_iter().filter(|(_, t)| only.as_ref().is_none_or(|o| o == t)) {
        for (k, m) in SHAPES {
            let van = plugin == "isa" && technique == "reed_sol_van";
            if (technique == "reed_sol_r6_op" && m != 2) || (van && m > 4) {
                continue;
            }
            let codec = Codec::new(&profile(plugin, technique, k, m), simd);
            let Some(figures) = measure(&codec, chunk) else {
                eprintln!("no figure: {plugin} {technique} {k}+{m} gives wrong chunks");
                return ExitCode::FAILURE;
            };
            report(json, (plugin, technique), (k, m), codec.path(), &figures);
        }
    }
    ExitCode::SUCCESS
}

fn profile(plugin: &str, technique: &str, k: usize, m: usize) -> Profile {
    let (k, m) = (k.to_string(), m.to_string());
    let words = [("plugin", plugin), ("technique", technique), ("k", &k), ("m", &m)];
    let values: BTreeMap<String, String> =
        words.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    Profile::new(&values).expect("a profile")
}

fn report(json: bool, code: (&str, &str), shape: (usize, usize), path: &str, figures: &Figures) {
    let (Figures { encode, decode, plan_ns, delta_ns }, (k, m)) = (figures, shape);
    let (plan, delta) = (plan_ns / 1e3, delta_ns / 1e3);
    if json {
        println!(
            "{{\"plugin\": \"{}\", \"technique\": \"{}\", \"k\": {k}, \"m\": {m}, \"path\": \"{path}\", \
             \"encode_gb\": {encode:.2}, \"decode_gb\": {decode:.2}, \"plan_us\": {plan:.2}, \"delta_us\": {delta:.2}}}",
            code.0, code.1
        );
    } else {
        let name = format!("{} {} {k}+{m}", code.0, code.1);
        println!(
            "{name:<30} {path:<17} encode {encode:>6.2}  decode {decode:>6.2}  plan {plan:>7.2}  delta {delta:>6.2}"
        );
    }
}

/// `None` when what was made is not what was lost.
fn measure(codec: &Codec, chunk: usize) -> Option<Figures> {
    let (k, n) = (codec.data_chunk_count(), codec.chunk_count());
    let mut rng = testkit::Rng::new(1);
    let data: Vec<Vec<u8>> = (0..k).map(|_| rng.bytes(chunk)).collect();
    let inputs: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
    let mut coding = vec![vec![0; chunk]; n - k];
    let encode = seconds(|| codec.encode(&inputs, &mut slices(&mut coding)).expect("a stripe"));
    let lost = ChunkSet::first(n - k) & codec.data_chunks().iter().copied().collect();
    let there = ChunkSet::first(n) - lost;
    let plan = codec.rebuild(lost, there).expect("enough chunks");
    let all = data.iter().chain(&coding).map(Vec::as_slice);
    let given: Vec<Option<&[u8]>> = all.enumerate().map(|(i, c)| (!lost.contains(i)).then_some(c)).collect();
    let mut made = vec![vec![0; chunk]; lost.len()];
    let decode = seconds(|| plan.execute(&given, &mut slices(&mut made)).expect("enough chunks"));
    if lost.iter().zip(&made).any(|(at, chunk)| data.get(at) != Some(chunk)) {
        return None;
    }
    let planning = seconds(|| drop(std::hint::black_box(codec.rebuild(lost, there))));
    let change = rng.bytes(CHANGE);
    let range = codec.parity_range(0..CHANGE as u64);
    let mut changes = vec![vec![0; range.end as usize]; n - k];
    let delta = seconds(|| codec.delta(1, 0, &change, &mut slices(&mut changes)).expect("a change"));
    let bytes = (k * chunk) as f64 / 1e9;
    let (plan_ns, delta_ns) = (planning * 1e9, delta * 1e9);
    Some(Figures { encode: bytes / encode, decode: bytes / decode, plan_ns, delta_ns })
}

fn slices(buffers: &mut [Vec<u8>]) -> Vec<&mut [u8]> {
    buffers.iter_mut().map(Vec::as_mut_slice).collect()
}

/// CPU seconds of one call.
fn seconds(mut work: impl FnMut()) -> f64 {
    let mut rounds = [0.0; ROUNDS];
    for round in &mut rounds {
        let (start, before) = (Instant::now(), own_seconds());
        let (mut calls, mut taken) = (0u32, 0.0);
        while taken < ROUND_SECONDS {
            (0..64).for_each(|_| work());
            calls += 64;
            taken = match (before, own_seconds()) {
                (Some(a), Some(b)) => b - a,
                _ => start.elapsed().as_secs_f64(),
            };
        }
        *round = taken / f64::from(calls);
    }
    rounds.sort_by(f64::total_cmp);
    rounds[ROUNDS / 2]
}

/// Seconds on a core, the first field of schedstat.
fn own_seconds() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/self/schedstat").ok()?;
    text.split(' ').next()?.parse().ok().map(|ns: f64| ns / 1e9)
}

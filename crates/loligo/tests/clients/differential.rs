//! Random sequences of requests, in short form: the cluster answers as the naive model of tests/differential does.

use std::path::Path;
use std::process::Output;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::cluster::{Cluster, text};

/// Plays sequences on the cluster and on the model.
fn play(c: &Cluster, snaps: &str, seed: u64, steps: u32, more: &[&str]) -> Output {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/differential/differential.py");
    let (program, conf) = (program.display().to_string(), c.data().join("ceph.conf").display().to_string());
    let (seed, steps) = (seed.to_string(), steps.to_string());
    let args = ["-B", &program, &conf, "model", "--snaps", snaps, "--seed", &seed, "--steps", &steps];
    c.client("/usr/bin/python3", &[&args, more].concat())
}

#[test]
fn random_requests_are_answered_as_by_the_model() {
    let c = Cluster::start(&["--osds", "2"]);
    let fresh = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock").as_secs();
    println!("the fresh seed is {fresh}");
    for seed in [20_261, fresh] {
        for (snaps, steps) in [("none", 500), ("self", 700), ("pool", 250)] {
            let out = play(&c, snaps, seed, steps, &[]);
            assert!(out.status.success(), "seed {seed}, snapshots: {snaps}\n{}", text(&out));
        }
    }
}

/// The test above can fail: an error in the model is found, and its sequence shortened.
#[test]
fn an_error_of_the_model_is_found_and_shortened() {
    let c = Cluster::start(&["--osds", "2"]);
    let out = play(&c, "none", 3, 500, &["--plant", "append"]);
    assert_eq!(out.status.code(), Some(1), "{}", text(&out));
    let said = text(&out);
    let shortened: Vec<&str> = said.lines().filter(|l| l.starts_with("    {")).collect();
    assert!((2..=4).contains(&shortened.len()) && shortened.iter().any(|l| l.contains("append")), "{said}");
}

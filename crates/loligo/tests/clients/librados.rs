//! The tests of tests/librados, which follow Ceph's own of librados.

use std::path::Path;

use crate::cluster::{Cluster, text};

/// Tests that there must be at least: an empty run is no success.
const TESTS: usize = 70;

#[test]
fn librados_does_what_cephs_tests_of_it_ask() {
    let c = Cluster::start(&[]);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/librados").display().to_string();
    let out = c.client("/usr/bin/python3", &["-B", "-m", "unittest", "discover", "-s", &folder]);
    let said = text(&out);
    assert!(out.status.success(), "{said}");
    let ran = said.lines().find_map(|l| l.strip_prefix("Ran ")?.split(' ').next()?.parse::<usize>().ok());
    assert!(ran.is_some_and(|n| n >= TESTS), "{said}");
}

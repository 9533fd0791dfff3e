//! Block storage through librbd, fio and qemu: the tests of tests/block.

use std::path::Path;

use crate::cluster::{Cluster, text};

/// Runs one file; an empty run is no success.
fn check(file: &str, tests: usize) {
    let c = Cluster::start(&[]);
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/block").join(file).display().to_string();
    let out = c.client("/usr/bin/python3", &["-B", &file]);
    let said = text(&out);
    assert!(out.status.success() && said.contains(&format!("Ran {tests} tests")), "{said}");
}

#[test]
fn images_keep_what_a_model_keeps() {
    check("test_images.py", 7);
}

#[test]
fn qemu_and_fio_work_on_images() {
    check("test_qemu.py", 4);
}

#[test]
fn a_dead_lock_holder_is_replaced_and_shut_out() {
    check("test_takeover.py", 2);
}

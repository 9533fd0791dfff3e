//! The tests of vector code on processors that this machine is not: emulated, with features masked, and aarch64.
//!
//! qemu 7.2 emulates no AVX-512; that path is tested where the gate's machine has it, by the ordinary tests.

use std::path::Path;

use anyhow::Result;

use crate::{cargo_command, setup};

/// A processor of qemu, and the paths that the checksum and the erasure codes must take there: a mask without
/// effect is an error.
struct Processor {
    name: &'static str,
    crc_path: &'static str,
    galois_path: &'static str,
}

const X86_64: [Processor; 3] = [
    // x86-64-v2 without carry-less multiplication.
    Processor { name: "Nehalem", crc_path: "software", galois_path: "x86_64/ssse3" },
    // x86-64-v2 with it.
    Processor { name: "Westmere", crc_path: "sse-pclmulqdq", galois_path: "x86_64/ssse3" },
    // AVX2.
    Processor { name: "Haswell", crc_path: "sse-pclmulqdq", galois_path: "x86_64/avx2" },
];

const AARCH64: [Processor; 2] = [
    Processor { name: "cortex-a57", crc_path: "neon-pmull", galois_path: "aarch64/neon" },
    Processor { name: "max", crc_path: "neon-pmull-sha3", galois_path: "aarch64/neon" },
];

/// Packages with vector code, and what of their tests is quick enough to be emulated.
const TESTS: [&str; 17] = [
    "--package",
    "codec",
    "--package",
    "crush",
    "--package",
    "erasure",
    "--lib",
    "--test",
    "all",
    "--",
    "crc::",
    "sums::",
    "lanes::",
    "a_few_inputs_placed_together",
    "packets::",
    "the_processors_instructions_are_used",
    "a_few_chunks_are_those_of_ceph",
];

pub fn run(root: &Path) -> Result<()> {
    for processor in &X86_64 {
        emulate(root, processor, "x86_64", &[])?;
    }
    for processor in &AARCH64 {
        emulate(root, processor, "aarch64", &["--target", "aarch64-unknown-linux-gnu"])?;
    }
    Ok(())
}

fn emulate(root: &Path, processor: &Processor, arch: &str, target: &[&str]) -> Result<()> {
    eprintln!("-- {arch}, {}", processor.name);
    let mut command = cargo_command(root, &["test", "--quiet"]);
    command.args(target).args(TESTS);
    let prefix = format!("CARGO_TARGET_{}_UNKNOWN_LINUX_GNU", arch.to_uppercase());
    command.env(format!("{prefix}_RUNNER"), format!("qemu-{arch}-static -cpu {}", processor.name));
    command.env("LOLIGO_EXPECT_CRC_PATH", processor.crc_path);
    command.env("LOLIGO_EXPECT_GALOIS_PATH", processor.galois_path);
    // qemu tells of each feature of the processor that it does not have, which no path here asks for.
    if arch == "aarch64" {
        command.env("RUSTC", setup::CROSS_RUSTC);
        command.env("CC_aarch64_unknown_linux_gnu", "aarch64-linux-gnu-gcc");
        command.env(format!("{prefix}_LINKER"), "aarch64-linux-gnu-gcc");
        // Linked statically: with the dynamic loader qemu 7.2 hangs in the first test.
        command.env("RUSTFLAGS", "-Ctarget-feature=+crt-static");
        // Another compiler: its output must not stand in for the other one's.
        command.env("CARGO_TARGET_DIR", root.join("target/cross"));
    }
    crate::run(command)
}

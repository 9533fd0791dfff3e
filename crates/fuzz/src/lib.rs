//! One fuzz target per decoder of bytes that a peer, a user or a disk gives us.
//!
//! `cargo test -p fuzz` runs each on seeded mutations of valid inputs; `fuzz/` runs them under libFuzzer for long.
//! A target returns normally for every input: a panic is a finding.
#![forbid(unsafe_code)]

mod mons;
mod seeds;
mod targets;

pub use seeds::{Mutator, seeds_of};
pub use targets::{TARGETS, Target};

#[cfg(test)]
mod tests {
    use super::*;

    /// Inputs per target in the short run; LOLIGO_FUZZ_RUNS makes it longer.
    fn runs() -> u64 {
        std::env::var("LOLIGO_FUZZ_RUNS").ok().and_then(|v| v.parse().ok()).unwrap_or(2_000)
    }

    #[test]
    fn no_target_panics_on_mutated_input() {
        for target in TARGETS {
            let seeds = seeds_of(target.name);
            let mut mutator = Mutator::new(0x10_1190);
            for seed in &seeds {
                (target.run)(seed);
            }
            for _ in 0..runs() {
                (target.run)(&mutator.next(&seeds));
            }
        }
    }

    #[test]
    fn every_target_has_a_seed_that_decodes() {
        for target in TARGETS {
            assert!(!seeds_of(target.name).is_empty(), "{}", target.name);
        }
    }
}

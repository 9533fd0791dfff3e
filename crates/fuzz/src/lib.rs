//! One fuzz target per decoder of bytes that a peer, a user or a disk gives us.
//!
//! `cargo test -p fuzz` runs each on seeded mutations of valid inputs, most of them real traffic, and holds
//! memory and time to a budget; `fuzz/` runs them under libFuzzer for long, from a corpus that `cargo run -p
//! fuzz --example corpus` writes. A target returns normally for every input: a panic is a finding.
#![forbid(unsafe_code)]

mod arguments;
mod budget;
mod commands;
mod crashes;
mod frames;
mod gateway;
mod given;
mod groups;
mod images;
mod logins;
mod medium;
mod methods;
mod mons;
mod osds;
mod recorded;
mod replies;
mod seal;
mod seeds;
mod targets;

pub use budget::Budget;
pub use seeds::{Mutator, seeds_of};
pub use targets::{TARGETS, Target};

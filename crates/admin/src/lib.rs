//! What the commands and options of every daemon have in common, without IO: how commands are described and their
//! arguments checked, how answers are written, the table of options, the values that a daemon has of them, and the
//! commands about those.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic))]

mod args;
mod reply;
mod signature;

pub mod common;
pub mod options;
pub mod perf;
pub mod socket;

pub mod json;
pub mod units;
pub mod xml;

pub use args::{ArgValue, Args, CommandError, MAX_COMMAND_BYTES};
pub use reply::{Format, Reply, json_text};
pub use signature::{Param, ParamKind, Signature, described, f64Bits};

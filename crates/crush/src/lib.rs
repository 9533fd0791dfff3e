//! CRUSH: the map of a cluster's hierarchy and rules, and the function that places inputs on devices.
//!
//! Weights in a map are 16.16 fixed point (`0x10000` is 1.0). Buckets have negative ids, devices have ids from 0.
//! Source: src/crush/crush.h, src/crush/mapper.c, src/crush/CrushWrapper.cc.
#![forbid(unsafe_code)]
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

pub mod hash;

mod map;

mod finalize;
mod validate;
mod wire;

mod batch;
mod choose;
mod lanes;
mod ln;
mod ln_table;
mod mapper;
mod str_hash;

mod query;
mod walk;

mod bucket;
mod build;
mod classes;
mod edit;
mod error;
mod rules;
mod weights;

mod text;

pub use batch::Batch;
pub use error::EditError;
pub use map::{
    Alg, Bucket, BucketData, ChooseArg, ChooseArgMap, CrushMap, DEFAULT_CHOOSE_ARGS, ITEM_NONE, ITEM_UNDEF,
    Rule, Step, Tunables,
};
pub use mapper::{DRAW_BUDGET, Scratch};
pub use query::{Location, is_valid_name, parse_location, weight_from_f32, weight_to_f32};
pub use rules::{RULE_ERASURE, RULE_REPLICATED, RuleMode};
pub use str_hash::{
    STR_HASH_LINUX, STR_HASH_RJENKINS, str_hash, str_hash_linux, str_hash_name, str_hash_rjenkins,
};
pub use text::{TextError, TextProblem};
pub use validate::{MAX_DEPTH, MAX_RULES, MapError, WeightMismatch};
pub use walk::{Walk, WalkItem};

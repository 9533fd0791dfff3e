//! CRUSH: the map of a cluster's hierarchy and rules, and the function that places inputs on devices.
//!
//! Weights in a map are 16.16 fixed point (`0x10000` is 1.0). Buckets have negative ids, devices have ids from 0.
//! Source: src/crush/crush.h, src/crush/mapper.c, src/crush/CrushWrapper.cc.
#![forbid(unsafe_code)]
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

mod map;

mod finalize;
mod validate;
mod wire;

pub use map::{
    Alg, Bucket, BucketData, ChooseArg, ChooseArgMap, CrushMap, DEFAULT_CHOOSE_ARGS, ITEM_NONE, ITEM_UNDEF,
    Rule, Step, Tunables,
};
pub use validate::{MAX_DEPTH, MAX_RULES, MapError};

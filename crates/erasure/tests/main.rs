//! This crate's tests, as one program: each further one costs the gate seconds to build.

mod golden;
mod profiles;
mod properties;
mod sketch;
mod stripes;

//! This crate's tests, as one program: each further one costs the gate seconds to build.

mod common;
mod edit;
mod mapping;
mod query;
mod robust;
mod text;

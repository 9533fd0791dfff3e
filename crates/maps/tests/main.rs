//! This crate's tests, as one program: each further one costs the gate seconds to build.

mod balance;
mod builders;
mod common;
mod dumps;
mod file_systems;
mod golden;
mod hostile;
mod mapping;
mod placements;

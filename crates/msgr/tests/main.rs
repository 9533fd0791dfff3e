//! This crate's tests, as one program: each further one costs the gate seconds to build.

mod common;
mod golden;
mod grant;
mod hostile;
mod pipes;
mod resume;

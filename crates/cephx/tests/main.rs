//! This crate's tests, as one program: each further one costs the gate seconds to build.

mod authorizer;
mod caps_check;
mod caps_golden;
mod common;
mod forms;
mod keyring;
mod login;

//! A rank with clients, all without IO: names, files, capabilities, failover at every operation, bad input.

#[path = "../storage/model.rs"]
#[allow(dead_code)] // it serves the tests of storage, too
mod model;
mod world;

mod basic;
mod coherence;
mod failover;
mod hostile;
mod random;
mod snaps;
mod together;

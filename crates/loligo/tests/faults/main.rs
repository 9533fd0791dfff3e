//! Faults inside real processes of a build for tests: devices that fail a write-back, daemons that panic.

mod cluster;
mod eio;
mod panics;

//! Fault-injecting stand-ins for tests.
#![forbid(unsafe_code)]

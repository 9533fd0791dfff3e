//! What a manager serves over HTTP: the dashboard, which is a page in the binary and the JSON API behind it,
//! and the series for Prometheus (`metrics`).
//!
//! What the answers are made of comes in as JSON, from the manager's and the monitors' commands, so that the
//! functions under `docs` do no IO; neither do sessions and the pauses after failed attempts, which are told
//! the time. Paths that Ceph's dashboard has are answered as it answers them; the API is described in
//! `openapi.json`.
//!
//! Invariants:
//! 1. Of the dashboard nothing but the page's own files and the sign-in is answered without a session.
//! 2. A session's token is known to its owner alone: here is only its hash. It is never a part of an address.
//! 3. Nothing that the cluster says becomes markup: answers are JSON, and the page shows texts as texts.
//! 4. Off loopback the dashboard has TLS. The series are told without, as by Ceph's module, unless options
//!    say otherwise.
//!
//! Source: src/pybind/mgr/dashboard (16.2) for paths and shapes.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic))]

mod attempts;
mod sessions;

mod docs;
mod page;

mod server;

pub mod metrics;

pub use server::{Site, run};

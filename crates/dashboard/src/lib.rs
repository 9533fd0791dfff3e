//! The dashboard: a page in the binary, and the JSON API behind it, served by the manager in charge.
//!
//! What the answers are made of comes in as JSON, from the manager's and the monitors' commands, so that the
//! functions under `docs` do no IO; neither do sessions and the pauses after failed attempts, which are told
//! the time. Paths that Ceph's dashboard has are answered as it answers them; the API is described in
//! `openapi.json`.
//!
//! Invariants:
//! 1. Nothing but the page's own files and the sign-in is answered without a session.
//! 2. A session's token is known to its owner alone: here is only its hash. It is never a part of an address.
//! 3. Nothing that the cluster says becomes markup: answers are JSON, and the page shows texts as texts.
//! 4. Off loopback there is TLS.
//!
//! Source: src/pybind/mgr/dashboard (16.2) for paths and shapes.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic))]

mod attempts;
mod sessions;

mod docs;
mod page;

mod server;

pub use server::{Site, run};

//! Monitor services without IO: cluster maps, authentication, configuration, sessions and commands, over a replicated
//! log that is somebody else's.
//!
//! A [`Monitor`] is fed [`Input`]s and answers with [`Output`]s. What changes the replicated [`state`] goes out as
//! [`Output::Propose`] and takes effect, on every member alike, when it comes back as [`Input::Committed`].
#![forbid(unsafe_code)]
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

mod io;
mod settings;

pub use io::{AuthRefusal, Input, Output};
pub use settings::{QuorumView, Settings};

//! Monitor services without IO: cluster maps, authentication, configuration, sessions and commands, over a replicated
//! log that is somebody else's.
//!
//! A [`Monitor`] is fed [`Input`]s and answers with [`Output`]s. What changes the replicated [`state`] goes out as
//! [`Output::Propose`] and takes effect, on every member alike, when it comes back as [`Input::Committed`]. A [`Member`] is a
//! monitor together with its share of the quorum.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic))]

pub mod command;
pub mod health;
pub mod state;
pub mod text;

mod contain;
mod crush_check;
mod crush_dump;
mod edit;
mod io;
mod member;
mod monitor;
mod osd_tree;
mod peer;
mod pg_sums;
mod proposal;
mod service;
mod session;
mod settings;
mod shares;
mod survivor;
mod turns;
mod views;
mod whose;

pub use admin::options;
pub use contain::is_panic_contained;
pub use io::{AuthRefusal, CON_MODE_CRC, CON_MODE_SECURE, Input, Output};
pub use member::{Dismissal, Member};
pub use monitor::Monitor;
pub use proposal::Batch;
pub use service::genesis::{GenesisConfig, GenesisOsd};
pub use session::{Access, Session};
pub use settings::{ClockSkew, QuorumView, Settings};
pub use survivor::{Survivor, SurvivorError};
pub use turns::{Arrival, Hold, Rest, Turns};
pub use whose::Whose;

//! The manager without IO: gathers what OSDs report, tells the monitors a digest of it, and answers its commands.
//!
//! Nothing here is replicated: a new manager has everything again as soon as the OSDs have reported once.
#![forbid(unsafe_code)]
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

mod io;
pub mod job;

mod client;
mod core;
mod modules;
mod offer;
mod pg_map;
mod pg_steps;
mod services;
mod sums;

mod audit;
mod autoscaler;
mod balancer;
mod counters;
mod crashes;
mod daemons;
mod dashboard;
mod device_health;
mod devices;
mod digest;
mod file_systems;
mod health;
mod mon_commands;
mod outcome;
mod progress;
pub mod prometheus;
mod rbd;
mod report;
mod shown;
pub mod users;

pub mod command;
mod dump;
mod pretty_table;
mod text;
mod times;

pub use core::{Manager, Settings};
pub use dashboard::DashboardAt;
pub use io::{Ask, Input, Output, PeerInfo};
pub use pg_map::{OsdReport, PgMap};
pub use shown::Figures;

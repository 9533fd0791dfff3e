//! A whole cluster in one thread: monitors, a manager, OSDs and clients made of the real cores, under a seeded network,
//! seeded devices and seeded faults; and checks of everything that clients were promised.
//!
//! The same [`Scenario`] gives the same events, whose hash is in the [`Report`].
#![forbid(unsafe_code)]

mod catalog;
mod planted;
mod run;
mod scenario;
mod search;

mod faults;
mod late;
mod mutant;

mod inject;
mod world;

mod acks;
mod admin;
mod board;
mod bytes_shell;
mod client;
mod filler;
mod garbled;
mod guest;
mod holds;
mod jobs;
mod locks;
mod losses;
mod members;
mod mgr;
mod middle;
mod mon;
mod mon_shell;
mod objecter;
mod osd;
mod phases;
mod reads;
mod rot;
mod slices;
mod snaps;
mod visits;
mod watches;

mod workload;

mod copies;
mod history;
mod linear;

mod conns;
mod device;
mod net;
mod queue;
mod wire;
#[cfg(test)]
mod wire_tests;

pub use catalog::{CATALOG, Named};
pub use faults::{Death, Fault, FaultKind, From, Mons, Trigger};
pub use guest::GuestKind;
pub use history::{Call, Content, Outcome, Record, State};
pub use linear::{Verdict, check};
pub use mutant::Mutant;
pub use net::Node;
pub use phases::{Moment, Phase, Step};
pub use planted::{NOT_FOUND, PLANTED, Plant, Unfound};
pub use run::{Report, faults, run, run_verbose};
pub use scenario::{Level, Options, Profile, Scenario};
pub use search::{Found, find, kind, shrink};

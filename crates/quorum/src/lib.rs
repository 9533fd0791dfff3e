//! The replicated log that monitors share: Raft without IO.
//!
//! A [`Raft`] is fed [`Input`]s and answers with [`Output`]s; time, disk, network and random numbers come
//! from outside. Elections begin with a pre-vote, a leader that loses sight of the majority steps down, reads
//! are linearizable by a lease on monotonic clocks, members change one at a time, and a store's identity is
//! the member's: a wiped store is somebody new.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic))]

pub mod stored;

mod election;
mod follow;
mod lead;
mod log;
mod member;
mod message;
mod parts;
mod raft;
mod read;
mod tuning;

pub use log::{Entry, Payload, Snapshot};
pub use member::{MemberId, Membership, Peer};
pub use message::{Append, AppendReply, Body, InstallSnapshot, Message, PartReply, PeerStatus, SnapshotPart};
pub use raft::{HardState, Input, Output, Raft, Start, View, Write};
#[cfg(feature = "planted")]
pub use tuning::Planted;
pub use tuning::Tuning;

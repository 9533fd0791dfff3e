//! One active rank: sessions of clients, their requests, capabilities and leases, and the metadata that they
//! change, as a state machine without IO.
//!
//! [`Server::handle`] takes one [`Input`] and appends [`Effect`]s; the shell carries messages, hands
//! operations on objects to an objecter, tells the monitors which state the rank wants, and calls again at
//! [`Server::deadline`]. Storage (`crate::storage`) is part of the state.
//!
//! ```text
//! request ──> run ──waits for capabilities, names, events──> run ──> change in memory ──> event in the journal
//!                                                                        │                   │ durable
//!                                                                  early answer          safe answer
//! ```
//!
//! Invariants ([`Server::assert_invariants`]; those of capabilities in `hold`, of what is in memory in
//! `cache`):
//! 1. A request changes nothing before it is sure of its end, and then everything at once.
//! 2. No other client sees a change before it is safe.
//! 3. Nothing goes to an object before its event is safe.
//! 4. A client has a capability of an inode if and only if its session knows it.
//! 5. What is in the journal and not in its object is in `dirty` with the oldest such event.
//!
//! Snapshots: `realm` tells which ones something is in, `past` keeps what they show, `snaps` makes and
//! removes them, `snap_table` numbers them.
//!
//! Not done: data within inodes, fragments that split and merge (those of a folder that another server has
//! split are served), several active ranks and standby-replay, asynchronous creation (no numbers are set
//! aside for clients), reclaiming of another client's state, the table of open files. Quotas are told and not
//! enforced (clients do), metrics of clients are thrown away. Strays whose hard links nobody looks at stay
//! strays. Deadlocks of locks are found within one file only. A rank that fails tells no health but what the
//! shell knows: slow requests and clients that give nothing back are not reported.
//!
//! Known faults: journals with events of several ranks or of fragments are refused as damage. A client that
//! claims capabilities after a failover before their true holder does keeps them until it is asked for them.
//! A listing of a folder reads and keeps all of its fragment, and so does a look at one of its names in a
//! snapshot. Realms that brought along snapshots in the form of before 14.0 lose those. What a client tells
//! late of a file whose versions another server put with its name is taken if they are in memory. Sums of
//! folders in snapshots are those that the server had when a snapshot was taken.
//!
//! Source: src/mds/Server.cc, Locker.cc, MDCache.cc, MDSRank.cc.

mod io;

mod server;

mod boot;
mod reconnect;
mod replay;
mod session;

mod cache;
mod cap;
mod flock;
mod hold;
mod lease;

mod flush;
mod grant;

mod past;
mod realm;
mod snap_table;
mod snaps;

mod access;
mod path;
mod reply;
mod request;

mod attr;
mod change_names;
mod file_locks;
mod look;
mod make;
mod mirror;
mod vxattr;

mod change;
mod disk;
mod inspect;
mod stray;
mod upkeep;

pub use inspect::{CacheView, SessionView};
pub use io::{Effect, Input, OsdMapView, Peer, Settings};
pub use server::Server;

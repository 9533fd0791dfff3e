//! The client side of a file system without IO: sessions with metadata servers, inodes and names that it
//! knows, capabilities, and files' data as operations on objects.
//!
//! [`Client::handle`] takes one [`Input`] and appends [`Effect`]s; the shell carries messages, hands
//! operations on objects to an objecter, and calls again at [`Client::deadline`].
//!
//! ```text
//! Submit ──> call ──request──> waiting ──active rank──> sent ──reply──> answered ──safe reply──> forgotten
//!              │    (tid)         ^                       │               (a change that is not safe yet)
//!              │                  └─ forward, new map ────┘                │
//!              ├──caps──> waits for a grant                                └─ failover: sent again, REPLAY
//!              └──objects──> ObjectDone ──> Done
//! ```
//!
//! Invariants ([`Client::assert_invariants`]):
//! 1. Each call that was submitted ends in exactly one `Done`, also when it is cancelled.
//! 2. What is revoked is given back as soon as nothing under way uses it, and not before.
//! 3. Dirty capabilities become clean by a flush that the server acknowledged, or are lost with their
//!    session; every handle and the next sync hear of a loss. Without a responsible rank they wait for one.
//! 4. A request is known until its safe answer came; the oldest one's number goes with each request.
//! 5. A capability's session exists.
//! 6. A folder's names that lead nowhere are counted.
//!
//! Data is neither cached nor buffered: a read asks the objects under the capability to read, a write is done
//! when the objects have it. Attributes and names are taken from memory while a capability or a lease covers
//! them; they are changed by requests, except for size and mtime of a file that is written.
//!
//! Not done: permissions are not checked here (servers check paths of keys); quotas are told but not
//! enforced; data within inodes is refused (EOPNOTSUPP), and so are servers without the feature
//! `reply_encoding`. A read or a write whose objects are under way cannot be cancelled. An append of two
//! clients at once is no more atomic than libcephfs' (each asks for the size first). Layouts are told with
//! the pool's number. No asynchronous creates, lazy IO, metrics, lookups by an inode's number alone, or
//! reclaiming of another client's state. Only what `SetAttr` and `OpenArgs` name is taken; other bits get
//! EINVAL.
//!
//! Source: src/client/Client.cc.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic))]

mod io;

mod core;
mod map;
mod reconnect;
mod session;

mod reply;
mod request;

mod dentry;
mod inode;
mod trim;

mod cap;
mod cap_message;
mod flush;
mod loss;
mod snap;

mod attributes;
mod call;
mod cancel;
mod file;
mod listing;
mod lock;
mod namespace;
mod read;
mod settle;
mod striping;
mod walk;
mod write;
mod xattr;

pub use core::Client;
pub use io::{
    Answer, Attr, Call, Cursor, Effect, Entry, Handle, Input, Node, ObjectTicket, SessionId, Settings, Ticket,
};

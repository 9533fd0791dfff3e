//! RBD images in the standard format: what librbd writes this reads, and the other way round.
//!
//! An [`Image`] is opened with [`OpenOptions`]; as a [`block::BlockDevice`] it can be served or cached. A
//! pool's images are made, listed, renamed and removed with the functions of [`pool`], those in its trash
//! with [`trash`]; whole images go to and come from streams with [`stream`].
//!
//! Invariants
//! 1. With the exclusive-lock feature nothing is changed before the lock is ours; another client that asks
//!    gets it when the changes under way are done, unless the image was opened to keep it.
//! 2. The object map names an object as existing before data is written to it, and as missing only after it
//!    is removed; a map that cannot be kept so is flagged invalid in the header.
//! 3. An image that lacks what a write-back cache holds bears its mark, and is changed by that cache alone
//!    (`mark`).
//! 4. What a snapshot shares with the parent is copied up below the snapshot before the clone's own data is
//!    written.
//! 5. Data goes only of an image that has no name and whose entry in the trash says that it is being removed
//!    (`removal`).
//! 6. A clone names no snapshot of its parent that may be removed (`ops`).
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic))]

mod class;
mod device;
mod diff;
mod error;
mod header;
mod image;
mod io;
mod layout;
mod lineage;
mod lock;
mod manage;
mod mark;
mod notify;
mod object_map;
mod ops;
mod removal;
mod snapshots;
mod spec;

#[cfg(feature = "hostile")]
pub mod hostile;
pub mod pool;
pub mod stream;
pub mod trash;

pub use diff::{Change, Changes};
pub use error::{Error, Result};
pub use header::{Header, Parent, Snapshot, SnapshotKind, feature, flag};
pub use image::{Image, LockPolicy, OpenOptions};
pub use layout::Layout;
pub use manage::{CreateOptions, DEFAULT_FEATURES};
pub use mark::{Claim, Claimed, Doubt};
pub use spec::ImageSpec;

//! A persistent write-back cache's log and index: writes go to a log on local media, later, in order, to the image.
//!
//! The shell writes what [`Log::append`] asks for, flushes the media, says so with [`Log::committed`], and only then
//! acknowledges. In the background it copies what [`Log::next_batch`] gives to the image, flushes the image, and says so
//! with [`Log::retire`]. Before the first record it claims the file ([`Log::claim`]) and marks the image with the claim's
//! token; when nothing is dirty any more it settles both ([`Log::settle`]). `FORMAT.md` beside this crate describes the file.
//!
//! Invariants
//! 1. Records lie one behind the other from the tail on with consecutive sequence numbers; epochs never fall along them.
//! 2. Space is written again only when a superblock whose tail lies behind it is durable.
//! 3. The index shows committed records only, for each byte the newest.
//! 4. A record is retired only when it and every older one are durable in the image.
//! 5. Records of two groups (a flush between them) never go to the image in one batch.
//! 6. A record is appended only while a durable superblock claims the file; a settled one has none that the image lacks.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic))]

mod batch;
mod error;
mod index;
mod log;
mod record;
mod replay;
mod superblock;

pub use batch::{Batch, BatchPiece, BatchWork};
pub use error::OpenError;
pub use index::Source;
pub use log::{Appended, Log, MediaWrite, NoSpace, Segment, Stats};
pub use record::{MAX_DATA, Op, RecordRef, SECTOR};
pub use replay::Media;
pub use superblock::{AREA_START, MIN_FILE_LEN};

//! What a rank reads and writes of its pools, without IO: the journal, fragments of directories, tables,
//! backtraces, the purge queue, files' objects.
//!
//! [`Storage`] is asked by its methods and appends operations on objects ([`ObjectOp`]) to what
//! [`Storage::take_ops`] gives; the owner carries them out, hands results to [`Storage::done`], and takes
//! [`Event`]s ([`Storage::take_events`]) after every call. Nothing is told from within a method: an event may
//! wait even if no operation was needed.
//!
//! ```text
//! fresh rank:   create ──> Created ──> open ...
//! active rank:  open ──> Opened(tables) ──> replay ──> Replayed* ──> ReplayEnd
//!               start_writing ──> Writeable
//!               append, flush ──> Safe;  mark_expired ──> Expired
//! standby:      open ──> Opened ──> replay ──> Replayed* ──> ReplayEnd
//!               follow ──> Replayed* ──> ReplayEnd, again and again
//! taking over:  take_over ──> Replayed* ──> ReplayEnd ──> start_writing ──> Writeable
//! ```

mod store;

mod event;
mod object;

mod desk;
mod job;

mod dirs;
mod fresh;
mod journal;
mod purge;
mod start;
mod striping;

pub use dirs::{DirCommit, MAX_COMMIT_BYTES};
pub use event::{BLOCKLISTED, EntryDamage, Event, LoadedDir, StorageError, Tables, Tag};
pub use object::{ObjectName, ObjectOp, OpId, Reply, Step, StepResult, reply_of};
pub use store::{JournalState, Mode, PurgeState, Settings, Storage, Truncation};

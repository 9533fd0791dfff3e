//! Object classes: methods that run beside an object on its OSD, as pure functions over a view of the object.
//!
//! `ObjectView` is what a method sees; `find` looks a method up by class and name; one module holds one class. A new class
//! is a module with a `CLASS` and a line in `registry`.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic))]

mod keys;
mod names;
mod registry;
mod unordered;
mod view;
mod wire;

mod cas;
mod cephfs;
mod cmpomap;
mod fifo;
mod hello;
mod journal;
mod lock;
mod log;
mod numops;
mod otp;
mod queue;
mod rbd;
mod refcount;
mod rgw;
mod rgw_gc;
mod timeindex;
mod two_pc_queue;
mod user;
mod version;

pub mod client;

pub use registry::{CLASSES, Class, Method, MethodFlags, Unknown, find};
pub use view::{KeyPage, ObjectView, Origin, Stat};

#[cfg(any(test, feature = "fake"))]
pub mod fake;
#[cfg(test)]
mod replay;
#[cfg(test)]
mod session;

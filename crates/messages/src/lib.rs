//! Every message and OSD operation that goes over the wire, as plain structs with encode and decode.
#![forbid(unsafe_code)]
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

pub mod wire;

pub use wire::{Header, WireMessage};

//! Operation execution against recorded answers of Ceph 16.2.15, and against a naive model.

mod bench;
mod recorded;
mod snaps;

mod cases;
mod listing;
mod random;

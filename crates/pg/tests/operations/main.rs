//! Operation execution against recorded answers of Ceph 16.2.15, and against a naive model.

mod bench;
mod recorded;

mod cases;
mod listing;
mod random;

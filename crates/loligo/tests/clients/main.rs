//! Debian's unmodified Ceph clients against the release binary: what a user does, and what a hostile peer does.

mod auth;
mod basics;
mod cluster;
mod crash;
mod daemons;
mod hostile;
mod limits;
mod tickets;

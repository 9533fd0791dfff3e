//! Debian's unmodified Ceph clients against an optimised build: what a user does, and what a hostile peer does.

mod auth;
mod balance;
mod basics;
mod bench;
mod block;
mod cluster;
mod counters;
mod crash;
mod daemons;
mod differential;
mod flood;
mod hostile;
mod hosts;
mod large;
mod librados;
mod limits;
mod listen;
mod managers;
mod managers_alike;
mod managers_switch;
mod on_ceph;
mod quorum;
mod real_ceph;
mod refused;
mod scrub;
mod tickets;

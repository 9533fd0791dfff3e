//! OSD cores in a deterministic mini cluster: replication, restarts, divergence, recovery, backfill, splits.

mod backoff;
mod client;
mod copies;
mod daemon;
mod join;
mod leases;
mod lost;
mod mon;
mod recovery;
mod remove;
mod repair;
mod room;
mod scrub;
mod sim;
mod snaps;

mod scenarios;

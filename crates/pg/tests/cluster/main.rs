//! OSD cores in a deterministic mini cluster: replication, restarts, divergence, recovery, backfill, splits.

mod client;
mod daemon;
mod mon;
mod sim;
mod snaps;

mod scenarios;

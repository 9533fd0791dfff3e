//! OSD cores in a deterministic mini cluster: replication, restarts, divergence, recovery, backfill, splits.

mod backoff;
mod client;
mod coded;
mod coded_gaps;
mod coded_pgs;
mod coded_recovery;
mod coded_scrub;
mod coded_stale;
mod coded_thrash;
mod coded_verdicts;
mod copies;
mod counters;
mod daemon;
mod gaps;
mod gather;
mod join;
mod large;
mod leases;
mod lost;
mod mon;
mod pieces;
mod reading;
mod recovery;
mod remove;
mod repair;
mod reserve;
mod room;
mod scrub;
mod shares;
mod sim;
mod slices;
mod snaps;
mod staged;
mod trimmed;

mod scenarios;

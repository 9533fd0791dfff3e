//! The state of a PG that the cluster sees.

pub use messages::pg_state;

//! The daemons: a shell around each core.

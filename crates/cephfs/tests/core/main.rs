//! The core against a scripted metadata server: what it sends for what it hears.

mod world;

mod cancel;
mod caps;
mod failover;
mod hostile;
mod losses;
mod names;
mod sessions;
mod traceless;

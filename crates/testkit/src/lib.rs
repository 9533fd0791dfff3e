//! What tests share: a simulated block device that fails, a small seeded random number generator, and a
//! strict reader of what Prometheus is told.
#![forbid(unsafe_code)]

#[cfg(feature = "device")]
mod crash;
#[cfg(feature = "device")]
mod device;
pub mod exposition;
mod rng;

#[cfg(feature = "device")]
pub use crash::{CrashPlan, Epoch, crash_plans};
#[cfg(feature = "device")]
pub use device::{Fate, SimDevice, Write};
pub use rng::Rng;

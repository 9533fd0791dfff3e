//! Fault-injecting stand-ins for tests: a simulated block device, and a small seeded random number generator.
#![forbid(unsafe_code)]

#[cfg(feature = "device")]
mod crash;
#[cfg(feature = "device")]
mod device;
mod rng;

#[cfg(feature = "device")]
pub use crash::{CrashPlan, Epoch, crash_plans};
#[cfg(feature = "device")]
pub use device::{Fate, SimDevice, Write};
pub use rng::Rng;

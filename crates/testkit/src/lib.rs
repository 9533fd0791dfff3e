//! Fault-injecting stand-ins for tests: a simulated block device, and a small seeded random number generator.
#![forbid(unsafe_code)]

mod crash;
mod device;
mod rng;

pub use crash::{CrashPlan, Epoch, crash_plans};
pub use device::{Fate, SimDevice, Write};
pub use rng::Rng;

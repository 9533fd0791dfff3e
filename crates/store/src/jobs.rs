//! Device work that leaves the store as owned jobs, so that no lock is held while the device is waited for.

use crate::{Device, DeviceError};

/// One batch of device writes and one flush.
#[derive(Debug)]
pub struct Commit {}

/// Proof that a commit's writes and flush went through.
#[derive(Debug)]
pub struct CommitDone {}

impl Commit {
    pub fn execute(self, device: &dyn Device) -> Result<CommitDone, DeviceError> {
        device.flush().map(|()| CommitDone {})
    }
}

/// One step of a checkpoint.
#[derive(Debug)]
pub struct Checkpoint {}

/// Proof that a checkpoint step went through.
#[derive(Debug)]
pub struct CheckpointDone {}

impl Checkpoint {
    pub fn execute(self, device: &dyn Device) -> Result<CheckpointDone, DeviceError> {
        device.flush().map(|()| CheckpointDone {})
    }
}

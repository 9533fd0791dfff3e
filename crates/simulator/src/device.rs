//! The device as a job sees it: whole, lying, or dying in the middle of the job.

use std::sync::atomic::{AtomicI64, Ordering};

use store::{Device, DeviceError, DeviceOp};
use testkit::SimDevice;

use crate::mutant::Mutant;

/// A view of a simulated device for one job.
pub struct JobDevice<'a> {
    pub inner: &'a SimDevice,
    pub mutant: Option<Mutant>,
    /// Writes and flushes that still reach the device; all others fail, as the power is gone.
    left: AtomicI64,
}

impl<'a> JobDevice<'a> {
    pub fn new(inner: &'a SimDevice, mutant: Option<Mutant>) -> Self {
        Self { inner, mutant, left: AtomicI64::new(i64::MAX) }
    }

    /// A device that loses power after so many writes and flushes.
    pub fn dying(inner: &'a SimDevice, mutant: Option<Mutant>, left: u64) -> Self {
        Self { inner, mutant, left: AtomicI64::new(left as i64) }
    }

    fn step(&self, op: DeviceOp) -> Result<(), DeviceError> {
        if self.left.fetch_sub(1, Ordering::Relaxed) <= 0 {
            return Err(DeviceError::Io { op, offset: 0, len: 0, errno: 5 });
        }
        Ok(())
    }
}

impl Device for JobDevice<'_> {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.inner.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        self.step(DeviceOp::Write)?;
        if self.mutant == Some(Mutant::LosePayload) && data.len() >= 32 << 10 {
            return Ok(());
        }
        self.inner.write_at(offset, data)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.step(DeviceOp::Flush)?;
        if self.mutant == Some(Mutant::LoseFlush) {
            return Ok(());
        }
        self.inner.flush()
    }

    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        self.inner.discard(offset, len)
    }
}

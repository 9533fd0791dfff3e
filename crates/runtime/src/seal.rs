//! A seal closes a device to all threads of an OSD at once when one of them has met an error.
//!
//! Linux reports a failed write-back once for each opening of the file (`errseq_t`), so each thread that
//! flushes opens the device for itself: otherwise one thread's flush would take the report away from
//! another's. The seal covers the time between a failure and the moment at which the OSD's core hears of it.
//!
//! Invariants:
//! 1. A write or flush that fails closes the seal before its caller hears of it.
//! 2. Once the seal is closed no handle reads, writes or flushes. A write or flush that was running then
//!    fails, so its transactions are not acknowledged, and no superblock is published for it.
//! 3. A seal never opens again. The OSD's next life opens the device anew and goes on from what is on the
//!    medium.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use store::{Device, DeviceError, DeviceOp};

/// The switch that all handles of a device share.
#[derive(Debug, Clone, Default)]
pub struct Seal(Arc<AtomicBool>);

impl Seal {
    /// From now on every handle refuses everything.
    pub fn close(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    pub fn is_closed(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

/// One thread's handle of a device.
#[derive(Debug)]
pub struct Sealed<D> {
    device: D,
    seal: Seal,
}

impl<D: Device> Sealed<D> {
    pub fn new(device: D, seal: Seal) -> Self {
        Self { device, seal }
    }

    fn check(&self, op: DeviceOp) -> Result<(), DeviceError> {
        if self.seal.is_closed() { Err(DeviceError::Closed { op }) } else { Ok(()) }
    }

    /// Runs a write or a flush under the seal.
    fn change(
        &self,
        op: DeviceOp,
        run: impl FnOnce(&D) -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        self.check(op)?;
        run(&self.device).inspect_err(|_| self.seal.close())?;
        self.check(op)
    }
}

impl<D: Device> Device for Sealed<D> {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.check(DeviceOp::Read)?;
        self.device.read_at(offset, buf)
    }

    fn read_append(&self, offset: u64, len: usize, out: &mut Vec<u8>) -> Result<(), DeviceError> {
        self.check(DeviceOp::Read)?;
        self.device.read_append(offset, len, out)
    }

    fn read_at_once(&self, offset: u64, len: usize, out: &mut Vec<u8>) -> Result<bool, DeviceError> {
        self.check(DeviceOp::Read)?;
        self.device.read_at_once(offset, len, out)
    }

    fn will_read(&self, ranges: &[(u64, u64)]) {
        if !self.seal.is_closed() {
            self.device.will_read(ranges);
        }
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        self.change(DeviceOp::Write, |device| device.write_at(offset, data))
    }

    fn write_vectored_at(&self, offset: u64, pieces: &[&[u8]]) -> Result<(), DeviceError> {
        self.change(DeviceOp::Write, |device| device.write_vectored_at(offset, pieces))
    }

    fn write_unread_at(&self, offset: u64, pieces: &[&[u8]]) -> Result<(), DeviceError> {
        self.change(DeviceOp::Write, |device| device.write_unread_at(offset, pieces))
    }

    fn write_durably(&self, offset: u64, pieces: &[&[u8]]) -> Result<(), DeviceError> {
        self.change(DeviceOp::Write, |device| device.write_durably(offset, pieces))
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.change(DeviceOp::Flush, |device| device.flush())
    }

    fn len(&self) -> u64 {
        self.device.len()
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        // A hint: that it fails says nothing of what was written.
        self.check(DeviceOp::Discard)?;
        self.device.discard(offset, len)
    }
}

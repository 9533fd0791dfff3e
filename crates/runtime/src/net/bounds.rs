//! Bounds on what all connections of one messenger hold together.

/// Sizes in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bounds {
    /// Of clients' large frames that are not whole yet. Must hold one frame of the largest kind.
    pub frames_bytes: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { frames_bytes: 256 << 20 }
    }
}

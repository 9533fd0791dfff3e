//! Bounds on what all connections of one messenger hold together.

/// Sizes in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bounds {
    /// Of clients' large frames that are not whole yet. Must hold one frame of the largest kind.
    pub frames_bytes: u64,
    /// Of answers that clients do not read: beyond it the client with the most is cut off.
    pub unread_bytes: u64,
    /// A client that has left so much unread is not read from.
    pub unread_pause_bytes: u64,
    /// Connections whose peers have not proven who they are.
    pub half_open: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            frames_bytes: 256 << 20,
            unread_bytes: 512 << 20,
            unread_pause_bytes: 16 << 20,
            half_open: 1024,
        }
    }
}

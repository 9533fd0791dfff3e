//! Bounds on what all connections of one messenger hold together.

/// Sizes in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bounds {
    /// Of clients' large frames that are not whole yet. Must hold one frame of the largest kind.
    pub frames_bytes: u64,
    /// Of answers that clients do not read: beyond it the client with the most is cut off.
    pub unread_bytes: u64,
    /// A client that has left so much unread is not read from; less where the limit for all is near.
    pub unread_pause_bytes: u64,
    /// Connections whose peers have not proven who they are.
    pub half_open: usize,
}

/// The largest answer, and what a limit for answers has to hold at least.
const ANSWER_BYTES: u64 = 144 << 20;

impl Bounds {
    /// For a daemon that tries to stay within so many bytes: what clients do not read takes half of them, or
    /// one largest answer.
    pub fn within(memory_target: u64) -> Self {
        let usual = Self::default();
        let unread_bytes = match memory_target {
            0 => usual.unread_bytes,
            target => (target / 2).clamp(ANSWER_BYTES, usual.unread_bytes),
        };
        Self { unread_bytes, ..usual }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_read_is_bounded_by_the_memory_target() {
        let usual = Bounds::default().unread_bytes;
        for (target, bytes) in
            [(0, usual), (96 << 20, ANSWER_BYTES), (600 << 20, 300 << 20), (4 << 30, usual)]
        {
            assert_eq!(Bounds::within(target).unread_bytes, bytes, "{target}");
        }
    }
}

//! Bounds on what all connections of one messenger hold together.

/// Sizes in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bounds {
    /// For clients' large frames that are not whole yet. At least as much as the largest frame has.
    pub frames_bytes: u64,
    /// For answers that clients have not read yet. Beyond it, a connection of the entity with most is closed.
    pub unread_bytes: u64,
    /// Nothing is read from a client that has left more than this unread; near `unread_bytes`, from one that
    /// has left less (`Share::is_much`).
    pub unread_pause_bytes: u64,
    /// Number of connections whose peers have not authenticated yet.
    pub half_open: usize,
    /// Number of connections with the key of one OSD, or with the monitors' key. Such entities have no share
    /// of the bounds above.
    pub daemon_conns: usize,
}

/// The largest answer to one request; `unread_bytes` is never less.
const ANSWER_BYTES: u64 = 144 << 20;

impl Bounds {
    /// For a daemon whose memory target is so many bytes (0: none): unread answers may take half of it, but
    /// never less than one largest answer, nor more than the usual bound.
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
            daemon_conns: 256,
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

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
    /// Number of connections of all other entities together, once they have authenticated.
    pub client_conns: usize,
}

/// The largest answer to one request; `unread_bytes` is never less.
const ANSWER_BYTES: u64 = 144 << 20;

/// What a connection costs whose peer has sent part of a message: its receive buffer.
const CONN_BYTES: u64 = 64 << 10;
/// Clients' connections that a daemon has place for, however little memory it may take,
const LEAST_CONNS: u64 = 512;
/// and however few file descriptors.
const FEWEST_CONNS: u64 = 32;
/// The same for connections that have not proven who they are.
const LEAST_HALF_OPEN: u64 = 16;

impl Bounds {
    /// For a daemon whose memory target is so many bytes (0: none), and that may have so many file
    /// descriptors. Unread answers may take half of the memory, but never less than one largest answer, nor
    /// more than the usual bound; receive buffers of clients an eighth; their connections half of the
    /// descriptors, and those that have not authenticated a quarter.
    pub fn within(memory_target: u64, descriptors: u64) -> Self {
        let usual = Self::default();
        let (unread_bytes, conns) = match memory_target {
            0 => (usual.unread_bytes, usual.client_conns as u64),
            target => (
                (target / 2).clamp(ANSWER_BYTES, usual.unread_bytes),
                (target / 8 / CONN_BYTES).clamp(LEAST_CONNS, usual.client_conns as u64),
            ),
        };
        let client_conns = conns.min((descriptors / 2).max(FEWEST_CONNS)) as usize;
        let half_open = usual.half_open.min((descriptors / 4).max(LEAST_HALF_OPEN) as usize);
        Self { unread_bytes, client_conns, half_open, ..usual }
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
            client_conns: 16_384,
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
            assert_eq!(Bounds::within(target, 1 << 20).unread_bytes, bytes, "{target}");
        }
    }

    #[test]
    fn connections_that_prove_nothing_leave_descriptors_to_others() {
        for (descriptors, conns) in [(1 << 20, 1_024), (204, 51), (0, 16)] {
            assert_eq!(Bounds::within(0, descriptors).half_open, conns, "{descriptors}");
        }
    }

    #[test]
    fn connections_are_bounded_by_memory_and_descriptors() {
        for (target, descriptors, conns) in [
            (0, 1 << 20, 16_384),
            (0, 1_024, 512),
            (0, 0, 32),
            (96 << 20, 1 << 20, 512),
            (96 << 20, 204, 102),
            (1 << 30, 1 << 20, 2_048),
            (64 << 30, 1 << 20, 16_384),
        ] {
            assert_eq!(Bounds::within(target, descriptors).client_conns, conns, "{target}, {descriptors}");
        }
    }
}

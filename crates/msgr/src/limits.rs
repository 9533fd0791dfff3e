//! Bounds on the memory that a peer can make this process hold, and on the time that it can make it wait.

use std::time::Duration;

/// Sizes in bytes. One value serves all connections of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Everything a peer may send before it has proven who it is; also the cap of one control frame.
    pub handshake_bytes: usize,
    /// Close when the session is not ready within this time of the connection's start.
    pub handshake_timeout: Duration,
    /// Cap of a message's front, and of its middle.
    pub front_bytes: u32,
    /// Cap of a message's data.
    pub data_bytes: u32,
    /// How much room a receive buffer gets for bytes that have not come in yet. The buffer of a longer frame
    /// starts with this and doubles as the frame comes in.
    pub reserve_bytes: usize,
    /// The size of a new receive buffer. At least a quarter of it is free before each read.
    pub read_bytes: usize,
    /// Send a keepalive when nothing was heard for this long; `None`: only when asked.
    pub keepalive_after: Option<Duration>,
    /// Close when nothing was heard for this long. Source: ms_connection_idle_timeout is 900 s.
    pub idle_timeout: Duration,
    /// Close when a frame is not whole within this time for each MiB of it; a part of a MiB counts as one. It
    /// bounds a peer that sends a frame byte by byte, for which the idle timeout never runs out.
    pub frame_timeout_per_mib: Duration,
    /// Send an acknowledgement to a peer that the owner has not read from for so long, and again each time as
    /// long. The peer's FIN cannot be seen behind bytes that nobody reads; but if the peer is gone, its host
    /// answers with a reset.
    pub probe_held_after: Duration,
    /// Acknowledge received messages of a lossless session when there are so many,
    pub ack_messages: usize,
    /// or when they have so many bytes,
    pub ack_bytes: usize,
    /// or when the first has waited so long, as exactly as `Connection::tick` is called.
    pub ack_after: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            handshake_bytes: 64 << 10,
            handshake_timeout: Duration::from_secs(10),
            front_bytes: 16 << 20,
            data_bytes: 128 << 20,
            reserve_bytes: (4 << 20) + (64 << 10),
            read_bytes: 64 << 10,
            keepalive_after: None,
            idle_timeout: Duration::from_secs(900),
            frame_timeout_per_mib: Duration::from_secs(30),
            probe_held_after: Duration::from_secs(5),
            ack_messages: 32,
            ack_bytes: 256 << 10,
            ack_after: Duration::from_millis(500),
        }
    }
}
